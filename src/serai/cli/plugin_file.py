"""`plugins.toml` beside the person's settings: what `serai guest grant` has given, written by Serai alone (spec yoi 10).

It has the form of `[plugins]` in `config.toml`. What is written is read back before it takes the old one's place.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

from serai import home
from serai.dialects.yoi import drift, settings
from serai.dialects.yoi.grants import Enablement
from serai.errors import BadSettings, NotWritten

__all__ = ["FILE", "PluginFile"]

FILE = "plugins.toml"
_LOCK = 10.0  # seconds: whoever has it needs a moment
_HEAD = "# Written by `serai guest grant` and `serai guest revoke`; what you write yourself belongs into config.toml.\n"


class PluginFile:
    """The file, read anew each time: another Serai may have written it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def usual(cls) -> PluginFile:
        return cls(Path(home.config_folder()) / FILE)

    def read(self) -> tuple[Enablement, ...]:
        """What is granted there; nothing when there is no such file."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise BadSettings(f"cannot be read: {error.strerror}", who=str(self.path), hint="make it readable for you") from None
        return self._parsed(content)

    def put(self, enablement: Enablement) -> None:
        """Have it there, in place of what was granted to that plugin before."""
        with self._locked():
            others = [one for one in self.read() if one.id != enablement.id]
            self._write((*others, enablement))

    def drop(self, id: str) -> bool:
        """Take from a plugin what it was granted; whether there was something."""
        with self._locked():
            known = self.read()
            left = tuple(one for one in known if one.id != id)
            if len(left) == len(known):
                return False
            self._write(left)
        return True

    def _parsed(self, content: bytes) -> tuple[Enablement, ...]:
        try:
            return settings.read(tomllib.loads(content.decode())).enabled
        except (ValueError, RecursionError, BadSettings) as error:
            hint = "remove the file and grant again, or mend it"
            raise BadSettings(f"what was granted cannot be read: {error}", who=str(self.path), hint=hint) from None

    def _write(self, enablements: Sequence[Enablement]) -> None:
        """In one step, for this user alone. A linked file stays linked."""
        text = (_HEAD + drift.document(enablements)).encode()
        if self._parsed(text) != tuple(enablements):
            hint = "take --print and write it into config.toml yourself"
            raise NotWritten("what is to be granted cannot be written there", who=str(self.path), hint=hint)
        real, temporary = os.path.realpath(self.path), ""
        try:
            descriptor, temporary = tempfile.mkstemp(prefix=".plugins-", dir=os.path.dirname(real))  # made with 0600
            with open(descriptor, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(descriptor)
            os.replace(temporary, real)
        except OSError as error:
            if temporary:
                with suppress(OSError):
                    os.unlink(temporary)
            raise self._unwritable(error) from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Nobody else changes the file meanwhile: two at once would each write what the other has not seen."""
        real = Path(os.path.realpath(self.path))
        try:
            home.make_folder(real.parent)
            descriptor = os.open(real.with_name(".plugins.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise self._unwritable(error) from None
        try:
            self._take(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _take(self, descriptor: int) -> None:
        end = monotonic() + _LOCK
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if monotonic() > end:
                    hint = "end the other one, then try again"
                    raise BadSettings("another Serai is changing it and does not end", who=str(self.path), hint=hint) from None
            except OSError as error:
                raise self._unwritable(error) from None
            sleep(0.01)

    def _unwritable(self, error: OSError) -> NotWritten:
        return NotWritten(f"cannot be written: {error.strerror}", who=str(self.path), hint="make its folder writable")

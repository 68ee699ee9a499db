"""`plugins.toml` beside the person's settings: what `serai guest grant` has given, written by Serai alone (spec yoi 10).

It has the form of `[plugins]` in `config.toml`. What is written is read back before it takes the old one's place.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

from serai import paths
from serai.errors import BadSettings, NotWritten
from serai.locked_file import LockedFile
from serai.plugins import grants, resolution
from serai.plugins.grants import Enablement

FILE = "plugins.toml"
_HEAD = "# Written by `serai guest grant` and `serai guest revoke`; what you write yourself belongs into config.toml.\n"


class GrantsFile:
    """The file, read anew each time: another Serai may have written it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = LockedFile(path, NotWritten)

    @classmethod
    def usual(cls) -> GrantsFile:
        return cls(Path(paths.config_folder()) / FILE)

    def read(self) -> tuple[Enablement, ...]:
        """What is granted there; nothing when there is no such file."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise BadSettings(f"cannot be read: {error.strerror}", who=str(self.path), hint="make it readable for you") from None
        return self._parse(content)

    def put(self, enablement: Enablement) -> None:
        """Have it there, in place of what was granted to that plugin before."""
        with self._file.lock():
            others = [one for one in self.read() if one.id != enablement.id]
            self._write((*others, enablement))

    def drop(self, id: str) -> bool:
        """Take from a plugin what it was granted; whether there was something."""
        with self._file.lock():
            known = self.read()
            left = tuple(one for one in known if one.id != id)
            if len(left) == len(known):
                return False
            self._write(left)
        return True

    def _parse(self, content: bytes) -> tuple[Enablement, ...]:
        try:
            return resolution.read_plugin_settings(tomllib.loads(content.decode())).enabled
        except (ValueError, RecursionError, BadSettings) as error:
            hint = "remove the file and grant again, or mend it"
            raise BadSettings(f"what was granted cannot be read: {error}", who=str(self.path), hint=hint) from None

    def _write(self, enablements: Sequence[Enablement]) -> None:
        """What is written is read back before it takes the old one's place."""
        text = (_HEAD + grants.format_grants(enablements)).encode()
        if self._parse(text) != tuple(enablements):
            hint = "take --print and write it into config.toml yourself"
            raise NotWritten("what is to be granted cannot be written there", who=str(self.path), hint=hint)
        self._file.write(text)

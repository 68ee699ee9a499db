"""A file among the person's settings that only Serai writes: what was trusted, what was granted."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from serai import atomic_file, paths
from serai.errors import BadSettings, NotWritten

_LOCK = 10.0  # seconds: whoever has it needs a moment


class LockedFile:
    """One writer at a time, each step whole, for this user alone. A linked file stays linked."""

    def __init__(self, path: Path, failed: type[BadSettings | NotWritten]) -> None:
        """`failed` is the error of who cannot write it."""
        self.path = path
        self._failed = failed

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Nobody else changes it meanwhile: two at once would each write what the other has not seen."""
        real = Path(os.path.realpath(self.path))
        try:
            paths.make_private_folder(real.parent)
            lock = real.with_name(f".{self.path.stem}.lock")
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise self._build_error(error) from None
        try:
            self._acquire(descriptor)
            yield
        finally:
            os.close(descriptor)

    def write(self, content: bytes) -> None:
        """In one step: whoever reads meanwhile has the old or the new."""
        try:
            atomic_file.write_atomically(os.path.realpath(self.path), content, sync=True)
        except OSError as error:
            raise self._build_error(error) from None

    def _acquire(self, descriptor: int) -> None:
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
                raise self._build_error(error) from None
            sleep(0.01)

    def _build_error(self, error: OSError) -> BadSettings | NotWritten:
        return self._failed(f"cannot be written: {error.strerror}", who=str(self.path), hint="make its folder writable")

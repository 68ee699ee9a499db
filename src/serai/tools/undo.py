"""Copies of files from before they were changed, the newest of each (spec piglet 6.10)."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Mapping
from typing import Self

from serai.errors import NoSnapshot, NotWritten
from serai.limits import Limits
from serai.paths import make_private_folder, state_folder
from serai.tools.failing import Failed
from serai.tools.files import opened
from serai.tools.places import Place, plain

__all__ = ["Undo"]


class Undo:
    """The copies in one folder: `<digest of the path>.snap`, and beside it the path in `.path`. For this user alone."""

    def __init__(self, folder: str | os.PathLike[str], *, limits: Limits | None = None) -> None:
        self.folder = os.path.abspath(folder)
        self.most = (limits or Limits()).undo

    @classmethod
    def usual(cls, environ: Mapping[str, str] = os.environ, *, limits: Limits | None = None) -> Self:
        """Where Serai keeps its state."""
        return cls(os.path.join(state_folder(environ), "undo"), limits=limits)

    def before(self, path: str | os.PathLike[str]) -> bool:
        """Copy a file that is about to be changed; False when there is none, it is no plain file, or too long for that.

        `NotWritten` when the copy cannot be made: then leave the file as it is.
        """
        real = os.path.realpath(path)
        try:
            with opened(Place(real, plain(real))) as spot:
                data, _ = spot.read(self.most)
        except Failed as failed:
            if failed.code in ("FILE_NOT_FOUND", "NOT_REGULAR_FILE", "FILE_TOO_LARGE"):
                return False
            raise NotWritten(str(failed), hint=failed.hint) from None
        self.keep(real, data)
        return True

    def keep(self, path: str, data: bytes) -> None:
        """The same for whoever has read it already. On disk when this returns."""
        stem = self._stem(path)
        try:
            make_private_folder(self.folder)
            if not os.path.exists(f"{stem}.path"):  # it says the same for ever
                _put(f"{stem}.path", os.fsencode(path))
            _put(f"{stem}.snap", data)
        except OSError as error:
            why = f"no copy for undo can be made: {error.strerror}"
            raise NotWritten(why, who=path, hint=f"make room for it in {self.folder}") from None

    def snapshots(self) -> dict[str, int]:
        """The size of every copy, by the path of its file."""
        found = {}
        try:
            names = sorted(os.listdir(self.folder))
        except FileNotFoundError:
            return {}
        for name in names:
            stem, ending = os.path.splitext(os.path.join(self.folder, name))
            if ending != ".path":
                continue
            try:
                with open(f"{stem}.path", "rb") as file:
                    path = os.fsdecode(file.read())
                found[path] = os.stat(f"{stem}.snap").st_size
            except FileNotFoundError:
                continue  # its copy was never finished
        return found

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Put the file back as it was before its last change, in one step. It keeps the mode it has now (FIX-25), we the copy."""
        real = os.path.realpath(path)
        try:
            with open(f"{self._stem(real)}.snap", "rb") as file:
                data = file.read()
        except FileNotFoundError:
            raise NoSnapshot(f"no snapshot for path: {path}", hint="`snapshots()` tells which there are") from None
        try:
            with opened(Place(real, plain(real)), make=True) as spot:
                spot.replace(data, spot.status())
        except Failed as failed:
            raise NotWritten(str(failed), hint=failed.hint) from None

    def _stem(self, path: str) -> str:
        return os.path.join(self.folder, hashlib.sha256(os.fsencode(path)).hexdigest()[:32])


def _put(path: str, data: bytes) -> None:
    temporary = f"{path}.{secrets.token_hex(8)}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fdatasync(descriptor)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise

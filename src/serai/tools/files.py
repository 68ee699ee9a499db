"""A file that is looked into or replaced, in a folder that is held open meanwhile.

Links are followed once, when it is judged where a path leads (`places`). From then on none is: a link that somebody puts on the way
between the look and the use ends the call, and does not lead it out.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import NamedTuple

from serai.tools.failing import Failed, failed
from serai.tools.places import Place, plain
from serai.tools.programs.walking import FILE, FOLDER, descend

__all__ = ["Seen", "Spot", "Stamp", "opened"]

_READ = 1 << 20
_MOST_NAMES = 2000  # of a folder that are compared with one that is not there
_MOST_SEEN = 10_000

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link that was put there meanwhile",
}


class Stamp(NamedTuple):
    """What a file looks like from outside; when it changes, so did the file."""

    modified: int
    size: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        return cls(status.st_mtime_ns, status.st_size, status.st_ino)


class Seen:
    """What this session has read or written, and how it looked then: who has not seen a change must not overwrite it."""

    def __init__(self) -> None:
        self._stamps: dict[str, Stamp] = {}
        self._lock = threading.Lock()  # reads are side by side

    def note(self, place: Place, stamp: Stamp) -> None:
        with self._lock:
            self._stamps.pop(place.path, None)
            self._stamps[place.path] = stamp
            if len(self._stamps) > _MOST_SEEN:
                del self._stamps[next(iter(self._stamps))]

    def check(self, place: Place, status: os.stat_result, *, unseen: bool) -> None:
        """`FILE_STALE` when it is not as it was last seen; `unseen`: one that was never seen will do."""
        stamp = self._stamps.get(place.path)
        if stamp is None and not unseen:
            raise Failed("FILE_STALE", f"{place.shown} was not read in this session", "read it first, then edit what it says now")
        if stamp is not None and stamp != Stamp.of(status):
            raise Failed("FILE_STALE", f"{place.shown} has changed since it was last read", "read it again, then change it")


class Spot:
    """A name in a folder that is held open."""

    def __init__(self, place: Place, folder: int) -> None:
        self.place = place
        self._folder = folder
        self._name = os.path.basename(place.path) or "."

    def status(self) -> os.stat_result | None:
        """Of the file there, None when there is none. `NOT_REGULAR_FILE` for what is no file."""
        try:
            status = os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        self._check_kind(status)
        return status

    def kind(self) -> str:
        """`file`, or what else it is."""
        try:
            status = os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError:
            raise self.missing() from None
        return "file" if stat.S_ISREG(status.st_mode) else _KINDS.get(stat.S_IFMT(status.st_mode), "no file")

    def read(self, most: int) -> tuple[bytes, os.stat_result]:
        """All of it, and how it looked. Never waits for whoever may be at the other end of what is no file."""
        if self.status() is None:  # before it is opened: opening a device or a pipe is already doing something with it
            raise self.missing()
        descriptor = os.open(self._name, FILE, dir_fd=self._folder)
        try:
            status = os.fstat(descriptor)
            self._check_kind(status)
            if status.st_size > most:
                raise self.too_large(status.st_size, most)
            data = _all(descriptor, most)
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if len(data) != status.st_size and after.st_size == status.st_size:
            # The kernel makes up what it says in /proc and /sys, some of it without end.
            hint = "look at it with bash"
            raise Failed(
                "NOT_REGULAR_FILE", f"{self.place.shown} holds something else than its size says: it is no plain file", hint
            )
        if len(data) > most:
            raise self.too_large(len(data), most)
        return data, after

    def replace(self, data: bytes, old: os.stat_result | None) -> Stamp:
        """Put a new file in the place of the `old` one, in one step: nobody ever sees half of it. Mode and owner stay."""
        if old is not None and not os.access(self._name, os.W_OK, dir_fd=self._folder):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))  # a new name would get around its mode
        temporary = f".serai-{secrets.token_hex(8)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o666 if old is None else 0o600, dir_fd=self._folder)
        try:
            try:
                _write(descriptor, data)
                if old is not None:
                    _keep(descriptor, old)
                os.fdatasync(descriptor)
                stamp = Stamp.of(os.fstat(descriptor))
            finally:
                os.close(descriptor)
            self._check_unchanged(old)
            os.rename(temporary, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except BaseException:
            os.unlink(temporary, dir_fd=self._folder)
            raise
        return stamp

    def missing(self) -> Failed:
        """That there is no such file, and which there are of nearly that name."""
        try:
            folder = os.open(".", FOLDER, dir_fd=self._folder)
            try:
                names = os.listdir(folder)[:_MOST_NAMES]
            finally:
                os.close(folder)
        except OSError:
            names = []
        return _missing(self.place.shown, self._name, names)

    def too_large(self, size: int, most: int) -> Failed:
        hint = "find the lines with grep, or take parts of it with bash (sed -n, head, tail)"
        return Failed("FILE_TOO_LARGE", f"{self.place.shown} has {size} bytes, and at most {most} are looked at", hint)

    def _check_kind(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no file")
            hint = "find shows what is in a folder" if stat.S_ISDIR(status.st_mode) else "name a plain file"
            raise Failed("NOT_REGULAR_FILE", f"{self.place.shown} is {kind}", hint)

    def _check_unchanged(self, old: os.stat_result | None) -> None:
        """Just before it is replaced: what somebody else wrote meanwhile is not lost."""
        now = self.status()
        if (old and Stamp.of(old)) != (now and Stamp.of(now)):
            raise Failed("FILE_STALE", f"{self.place.shown} was changed by somebody else just now", "read it again, then change it")


@contextmanager
def opened(place: Place, *, make: bool = False) -> Iterator[Spot]:
    """Hold a place's folder open; with `make`, missing folders are made. What the machine refuses meanwhile is `Failed`."""
    try:
        folder = descend(os.path.dirname(place.path), make=make)
    except OSError as error:
        raise _no_way(place, error) from None
    try:
        yield Spot(place, folder)
    except OSError as error:
        raise failed(error, place.shown) from None
    finally:
        os.close(folder)


def _no_way(place: Place, error: OSError) -> Failed:
    """Why the folder of a place cannot be reached."""
    way = str(error.filename or "/")
    if error.errno == errno.ENOENT:
        above, name = os.path.split(way)
        try:
            names = [entry for entry in os.listdir(above)[:_MOST_NAMES] if os.path.isdir(os.path.join(above, entry))]
        except OSError:
            names = []
        return _missing(f"{place.shown}: the folder {plain(way)}", name, names)
    if error.errno == errno.ENOTDIR and os.path.islink(way):
        return Failed("PERMISSION_DENIED", f"{place.shown}: a link was put in its way while it was looked for", "try again")
    return failed(error, place.shown)


def _missing(what: str, name: str, names: list[str]) -> Failed:
    """Names that differ in case alone come first: they are the usual mistake."""
    alike = [other for other in names if other.lower() == name.lower()]
    alike += [other for other in get_close_matches(name, names, 3) if other not in alike]
    near = ", ".join(map(plain, alike[:3]))
    hint = f"there is {near}" if near else "relative paths begin at the working directory; find shows what is there"
    return Failed("FILE_NOT_FOUND", f"{what} does not exist", hint)


def _all(descriptor: int, most: int) -> bytes:
    parts, size = [], 0
    while size <= most and (part := os.read(descriptor, _READ)):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _keep(descriptor: int, old: os.stat_result) -> None:
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(descriptor, old.st_uid, old.st_gid)
        except OSError:
            pass  # another's file in a folder that is ours: it becomes ours, as with any editor
    os.fchmod(descriptor, old.st_mode & 0o777)  # as any write does, it ends what ran as somebody else

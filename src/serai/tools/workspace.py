"""The files that tools work on: where a path leads and whether it may, files held open, copies for undo, and failures.

A path leads into the working directory, unless that call was allowed more. Links are followed once, when a path is resolved
(`Workspace`). From then on none is: the folder of a file that is read or replaced is held open, and a link that somebody puts on
the way between the check and the use ends the call.

`FileSnapshots` has copies of files from before they were changed, the newest of each (spec piglet 6.10). `ToolFailure` has the
codes of spec piglet 5.1.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Literal, NamedTuple, Self

from serai.atomic_file import write_all, write_atomically
from serai.errors import BadSettings, NoSnapshot, NotWritten
from serai.limits import ToolLimits
from serai.model.tools import ToolCall, ToolResult
from serai.paths import make_private_folder, state_folder
from serai.plain_text import escape_line, escape_surrogates, spell_literal
from serai.tools.programs.file_walk import FILE, FOLDER, open_folder

Code = Literal[
    "INVALID_ARGS", "FILE_NOT_FOUND", "FILE_STALE", "FILE_TOO_LARGE", "NOT_REGULAR_FILE", "PERMISSION_DENIED", "NOT_UNIQUE",
    "TIMEOUT", "EXIT_NONZERO", "IO_ERROR", "INTERNAL",
]  # fmt: skip


class ToolFailure(Exception):
    """Told to the model as an error result; it never leaves the box of tools."""

    def __init__(self, code: Code, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code: Code = code
        self.hint = hint

    def to_result(self) -> ToolResult:
        # What a model sent may be quoted in it, and half a character cannot be written down.
        text, hint = map(escape_surrogates, (str(self), self.hint))
        return ToolResult.error(text, code=self.code, hint=hint)


_CODES: dict[int, tuple[Code, str]] = {
    errno.ENOENT: ("FILE_NOT_FOUND", ""),
    errno.ENOTDIR: ("FILE_NOT_FOUND", "a part of the path is no folder"),
    errno.EACCES: ("PERMISSION_DENIED", "the machine does not allow it to this user"),
    errno.EPERM: ("PERMISSION_DENIED", "the machine does not allow it to this user"),
    errno.EROFS: ("PERMISSION_DENIED", "nothing can be changed there: it is mounted read-only"),
    errno.ELOOP: ("PERMISSION_DENIED", "a link on the way leads in circles, or was put there meanwhile"),
    errno.EISDIR: ("NOT_REGULAR_FILE", "it is a folder"),
    errno.ENXIO: ("NOT_REGULAR_FILE", "it is no file that can be read"),
    errno.EAGAIN: ("NOT_REGULAR_FILE", "it is no file that can be read at once"),
    errno.ENAMETOOLONG: ("INVALID_ARGS", "give a shorter path"),
    errno.ENOSPC: ("IO_ERROR", "make room on the disk"),
    errno.EDQUOT: ("IO_ERROR", "make room on the disk"),
}


def to_failure(error: OSError, shown: str) -> ToolFailure:
    """What the machine said about this path."""
    number = error.errno or 0
    code, hint = _CODES.get(number, ("IO_ERROR", ""))
    return ToolFailure(code, f"{shown}: {os.strerror(number) if number else error}", hint)


Outside = Callable[[ToolCall, str], bool]  # whether this very call was allowed to lead to this real path

_LONGEST = 4096  # bytes: the machine takes no longer path, and to follow its links would take for ever


class WorkspacePath(NamedTuple):
    """A path with every link followed, and as it is shown: from the working directory on where it is below."""

    path: str
    shown: str


class Workspace:
    """The folders that calls may look into and change things in."""

    def __init__(self, cwd: str | os.PathLike[str], also: Sequence[str | os.PathLike[str]], outside: Outside) -> None:
        self.cwd = os.path.realpath(cwd)
        if not os.path.isdir(self.cwd):
            raise BadSettings("the working directory of the tools is no folder", who=self.cwd, hint="name one that exists")
        self._roots = (self.cwd, *map(os.path.realpath, also))
        self._outside = outside

    def find(self, said: str, call: ToolCall) -> WorkspacePath:
        """The place that a call names. By its real path: what is opened later follows no link at all (`hold_file`)."""
        path = self._resolve(said)
        if not self._is_inside(path) and not self._outside(call, path):
            hint = f"stay below {to_text(self.cwd)}, or ask the person to allow this path"
            raise ToolFailure("PERMISSION_DENIED", f"{to_text(said)} leads to {to_text(path)}, outside the working directory", hint)
        return WorkspacePath(path, self.format_path(path))

    def find_outside(self, said: str) -> tuple[str, ...]:
        """The real path that it leads to, when that is outside of all folders."""
        path = self._resolve(said)
        return () if self._is_inside(path) else (path,)

    def format_path(self, path: str) -> str:
        return to_text(os.path.relpath(path, self.cwd) if _is_within(path, self.cwd) else path)

    def _is_inside(self, path: str) -> bool:
        return any(_is_within(path, root) for root in self._roots)

    def _resolve(self, said: str) -> str:
        if "\0" in said:
            raise ToolFailure("INVALID_ARGS", "no path has a NUL character in it")
        if not said.strip():
            raise ToolFailure("INVALID_ARGS", "the path is empty", "`.` is the working directory")
        try:
            size = len(os.fsencode(said))
        except UnicodeEncodeError:
            raise ToolFailure("INVALID_ARGS", "the path has half a character (a lone surrogate) in it") from None
        if size > _LONGEST:
            raise ToolFailure("INVALID_ARGS", f"the path has {size} bytes", "give a shorter path")
        try:
            # A home folder, as in a shell: nobody means a folder that is called `~`.
            return os.path.realpath(os.path.join(self.cwd, os.path.expanduser(said)))
        except OSError:  # a link that became something else while it was followed
            raise ToolFailure("PERMISSION_DENIED", f"{to_text(said)} changed while it was looked for", "try again") from None


def to_text(text: str) -> str:
    """A path for a message."""
    return escape_line(text if len(text) <= 300 else f"{text[:200]}…{text[-80:]}", spell_literal)


def _is_within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


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


class FileStamp(NamedTuple):
    """What a file looks like from outside; when it changes, so did the file."""

    modified: int
    size: int
    inode: int

    @classmethod
    def from_stat(cls, status: os.stat_result) -> FileStamp:
        return cls(status.st_mtime_ns, status.st_size, status.st_ino)


class SeenFiles:
    """What this session has read or written, and how it looked then: who has not seen a change must not overwrite it."""

    def __init__(self) -> None:
        self._stamps: dict[str, FileStamp] = {}
        self._lock = threading.Lock()  # reads are side by side

    def note(self, place: WorkspacePath, stamp: FileStamp) -> None:
        with self._lock:
            self._stamps.pop(place.path, None)
            self._stamps[place.path] = stamp
            if len(self._stamps) > _MOST_SEEN:
                del self._stamps[next(iter(self._stamps))]

    def check(self, place: WorkspacePath, status: os.stat_result, *, unseen: bool) -> None:
        """`FILE_STALE` when it is not as it was last seen; `unseen`: one that was never seen will do."""
        stamp = self._stamps.get(place.path)
        if stamp is None and not unseen:
            raise ToolFailure(
                "FILE_STALE", f"{place.shown} was not read in this session", "read it first, then edit what it says now"
            )
        if stamp is not None and stamp != FileStamp.from_stat(status):
            raise ToolFailure("FILE_STALE", f"{place.shown} has changed since it was last read", "read it again, then change it")


class HeldFile:
    """A name in a folder that is held open."""

    def __init__(self, place: WorkspacePath, folder: int) -> None:
        self.place = place
        self._folder = folder
        self._name = os.path.basename(place.path) or "."

    def stat(self) -> os.stat_result | None:
        """Of the file there, None when there is none. `NOT_REGULAR_FILE` for what is no file."""
        try:
            status = os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        self._check_kind(status)
        return status

    def find_kind(self) -> str:
        """`file`, or what else it is."""
        try:
            status = os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError:
            raise self.build_missing() from None
        return "file" if stat.S_ISREG(status.st_mode) else _KINDS.get(stat.S_IFMT(status.st_mode), "no file")

    def read(self, most: int) -> tuple[bytes, os.stat_result]:
        """All of it, and how it looked. Never waits for whoever may be at the other end of what is no file."""
        if self.stat() is None:  # before it is opened: opening a device or a pipe is already doing something with it
            raise self.build_missing()
        descriptor = os.open(self._name, FILE, dir_fd=self._folder)
        try:
            status = os.fstat(descriptor)
            self._check_kind(status)
            if status.st_size > most:
                raise self.build_too_large(status.st_size, most)
            data = _read_all(descriptor, most)
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        if len(data) != status.st_size and after.st_size == status.st_size:
            # The kernel makes up what it says in /proc and /sys, some of it without end.
            hint = "look at it with bash"
            raise ToolFailure(
                "NOT_REGULAR_FILE", f"{self.place.shown} holds something else than its size says: it is no plain file", hint
            )
        if len(data) > most:
            raise self.build_too_large(len(data), most)
        return data, after

    def replace(self, data: bytes, old: os.stat_result | None) -> FileStamp:
        """Put a new file in the place of the `old` one, in one step: nobody ever sees half of it. Mode and owner stay."""
        if old is not None and not os.access(self._name, os.W_OK, dir_fd=self._folder):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))  # a new name would get around its mode
        temporary = f".serai-{secrets.token_hex(8)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o666 if old is None else 0o600, dir_fd=self._folder)
        try:
            try:
                write_all(descriptor, data)
                if old is not None:
                    _copy_attributes(descriptor, old)
                os.fdatasync(descriptor)
                stamp = FileStamp.from_stat(os.fstat(descriptor))
            finally:
                os.close(descriptor)
            self._check_unchanged(old)
            os.rename(temporary, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except BaseException:
            os.unlink(temporary, dir_fd=self._folder)
            raise
        return stamp

    def build_missing(self) -> ToolFailure:
        """That there is no such file, and which there are of nearly that name."""
        try:
            folder = os.open(".", FOLDER, dir_fd=self._folder)
            try:
                names = os.listdir(folder)[:_MOST_NAMES]
            finally:
                os.close(folder)
        except OSError:
            names = []
        return _build_missing(self.place.shown, self._name, names)

    def build_too_large(self, size: int, most: int) -> ToolFailure:
        hint = "find the lines with grep, or take parts of it with bash (sed -n, head, tail)"
        return ToolFailure("FILE_TOO_LARGE", f"{self.place.shown} has {size} bytes, and at most {most} are looked at", hint)

    def _check_kind(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no file")
            hint = "find shows what is in a folder" if stat.S_ISDIR(status.st_mode) else "name a plain file"
            raise ToolFailure("NOT_REGULAR_FILE", f"{self.place.shown} is {kind}", hint)

    def _check_unchanged(self, old: os.stat_result | None) -> None:
        """Just before it is replaced: what somebody else wrote meanwhile is not lost."""
        now = self.stat()
        if (old and FileStamp.from_stat(old)) != (now and FileStamp.from_stat(now)):
            raise ToolFailure(
                "FILE_STALE", f"{self.place.shown} was changed by somebody else just now", "read it again, then change it"
            )


@contextmanager
def hold_file(place: WorkspacePath, *, make: bool = False) -> Iterator[HeldFile]:
    """Hold a place's folder open; with `make`, missing folders are made. What the machine refuses meanwhile is `Failed`."""
    try:
        folder = open_folder(os.path.dirname(place.path), make=make)
    except OSError as error:
        raise _build_folder_failure(place, error) from None
    try:
        yield HeldFile(place, folder)
    except OSError as error:
        raise to_failure(error, place.shown) from None
    finally:
        os.close(folder)


def _build_folder_failure(place: WorkspacePath, error: OSError) -> ToolFailure:
    """Why the folder of a place cannot be reached."""
    way = str(error.filename or "/")
    if error.errno == errno.ENOENT:
        above, name = os.path.split(way)
        try:
            names = [entry for entry in os.listdir(above)[:_MOST_NAMES] if os.path.isdir(os.path.join(above, entry))]
        except OSError:
            names = []
        return _build_missing(f"{place.shown}: the folder {to_text(way)}", name, names)
    if error.errno == errno.ENOTDIR and os.path.islink(way):
        return ToolFailure("PERMISSION_DENIED", f"{place.shown}: a link was put in its way while it was looked for", "try again")
    return to_failure(error, place.shown)


def _build_missing(what: str, name: str, names: list[str]) -> ToolFailure:
    """Names that differ in case alone come first: they are the usual mistake."""
    alike = [other for other in names if other.lower() == name.lower()]
    alike += [other for other in get_close_matches(name, names, 3) if other not in alike]
    near = ", ".join(map(to_text, alike[:3]))
    hint = f"there is {near}" if near else "relative paths begin at the working directory; find shows what is there"
    return ToolFailure("FILE_NOT_FOUND", f"{what} does not exist", hint)


def _read_all(descriptor: int, most: int) -> bytes:
    parts, size = [], 0
    while size <= most and (part := os.read(descriptor, _READ)):
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _copy_attributes(descriptor: int, old: os.stat_result) -> None:
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.fchown(descriptor, old.st_uid, old.st_gid)
        except OSError:
            pass  # another's file in a folder that is ours: it becomes ours, as with any editor
    os.fchmod(descriptor, old.st_mode & 0o777)  # as any write does, it ends what ran as somebody else


class FileSnapshots:
    """The copies in one folder: `<digest of the path>.snap`, and beside it the path in `.path`. For this user alone."""

    def __init__(self, folder: str | os.PathLike[str], *, limits: ToolLimits | None = None) -> None:
        self.folder = os.path.abspath(folder)
        self.most = (limits or ToolLimits()).undo

    @classmethod
    def usual(cls, environ: Mapping[str, str] = os.environ, *, limits: ToolLimits | None = None) -> Self:
        """Where Serai keeps its state."""
        return cls(os.path.join(state_folder(environ), "undo"), limits=limits)

    def snapshot(self, path: str | os.PathLike[str]) -> bool:
        """Copy a file that is about to be changed; False when there is none, it is no plain file, or too long for that.

        `NotWritten` when the copy cannot be made: then leave the file as it is.
        """
        real = os.path.realpath(path)
        try:
            with hold_file(WorkspacePath(real, to_text(real))) as held:
                data, _ = held.read(self.most)
        except ToolFailure as failed:
            if failed.code in ("FILE_NOT_FOUND", "NOT_REGULAR_FILE", "FILE_TOO_LARGE"):
                return False
            raise NotWritten(str(failed), hint=failed.hint) from None
        self.keep(real, data)
        return True

    def keep(self, path: str, data: bytes) -> None:
        """The same for whoever has read it already. On disk when this returns."""
        stem = self._build_stem(path)
        try:
            make_private_folder(self.folder)
            if not os.path.exists(f"{stem}.path"):  # it says the same for ever
                write_atomically(f"{stem}.path", os.fsencode(path), sync=True)
            write_atomically(f"{stem}.snap", data, sync=True)
        except OSError as error:
            why = f"no copy for undo can be made: {error.strerror}"
            raise NotWritten(why, who=path, hint=f"make room for it in {self.folder}") from None

    def list_snapshots(self) -> dict[str, int]:
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
            with open(f"{self._build_stem(real)}.snap", "rb") as file:
                data = file.read()
        except FileNotFoundError:
            raise NoSnapshot(f"no snapshot for path: {path}", hint="`snapshots()` tells which there are") from None
        try:
            with hold_file(WorkspacePath(real, to_text(real)), make=True) as held:
                held.replace(data, held.stat())
        except ToolFailure as failed:
            raise NotWritten(str(failed), hint=failed.hint) from None

    def _build_stem(self, path: str) -> str:
        return os.path.join(self.folder, hashlib.sha256(os.fsencode(path)).hexdigest()[:32])

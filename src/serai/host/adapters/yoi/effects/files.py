"""What `fs` does on the disk (spec yoi 6.2), in a thread of its own.

A path is walked component by component from the grant's root, each opened relative to the one before and none of them followed if
it is a symlink: what was checked is what is used, also when somebody changes names meanwhile.

Hard links: whoever made one inside a root could read the file already, so reading one is no escape; a write replaces the name and
never touches the file that other names share.
"""

from __future__ import annotations

import errno
import fcntl
import heapq
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import NamedTuple

from serai.atomic_file import write_all
from serai.dialects.yoi import host_api
from serai.dialects.yoi.host_api import Entry, FsRequest, HostCallDenied
from serai.host.adapters.yoi.effects.threads import ThreadCaller
from serai.plugins.grants import FsGrant

_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: a FIFO that takes a file's place between the look and the open must not hold us.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KERNEL = ("/proc", "/sys")  # no files at all: our own memory and environment are there
_OURS = ".serai"  # a project's settings and guests
_POLL = 0.005  # seconds between two looks at a lock
_UNLOCKABLE = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})


class _Job(NamedTuple):
    asked: FsRequest
    asker: ThreadCaller
    until: float
    own: OwnFolders


class OwnFolders(NamedTuple):
    """Serai's own folders by their paths, with what links in them lead to (dot files are often kept elsewhere), and by what they
    are: a mount may show them in another place."""

    paths: tuple[str, ...]
    ids: frozenset[tuple[int, int]]

    @classmethod
    def from_paths(cls, folders: Sequence[str]) -> OwnFolders:
        found = list(folders)
        for folder in folders:
            with suppress(OSError), os.scandir(folder) as entries:
                found += [os.path.realpath(entry.path) for entry in entries if entry.is_symlink()]
        ids = set()
        for path in found:
            with suppress(OSError):
                about = os.stat(path)
                ids.add((about.st_dev, about.st_ino))
        return cls(tuple(found), frozenset(ids))

    def check(self, found: os.stat_result, asked: FsRequest) -> os.stat_result:
        if (found.st_dev, found.st_ino) in self.ids:
            raise _build_own_denial(asked)
        return found


def perform(grants: Sequence[FsGrant], own: OwnFolders, asked: FsRequest, asker: ThreadCaller, until: float) -> str:
    """The answer of the first grant under which the path resolves, else the last one's refusal. `own` is kept out of."""
    act = {"read": _read, "list": _list, "write": _write}[asked.operation]
    refusal = HostCallDenied(f"host_api.fs {asked.operation} denied: no matching operation grant")
    for grant in grants:
        try:
            with _open_parent(grant, own, asked) as (folder, name):
                return act(folder, name, _Job(asked, asker, until, own))
        except HostCallDenied as denied:
            refusal = denied
        except OSError as error:
            refusal = _to_denial(asked, error)
    raise refusal


def _to_denial(asked: FsRequest, error: OSError) -> HostCallDenied:
    if error.errno == errno.ELOOP:  # it became one since we looked
        return _build_symlink_denial(asked)
    return HostCallDenied(f"FS {asked.operation} failed: {error.strerror or 'the machine would not do it'}: {asked.path}")


def _build_symlink_denial(asked: FsRequest) -> HostCallDenied:
    return HostCallDenied(f"FS path symlink escape is denied: {asked.path}")


@contextmanager
def _open_parent(grant: FsGrant, own: OwnFolders, asked: FsRequest) -> Iterator[tuple[int, str]]:
    """The folder that the path's last component is in, open, and that component's name: `.` for the root itself."""
    folder = _open_root(host_api.normalise_root(grant))
    try:
        _check_reserved(folder, own.paths, asked)
        own.check(os.fstat(folder), asked)
        *above, name = asked.parts or (".",)
        for part in above:
            inner = os.open(part, _LOOK, dir_fd=folder)
            os.close(folder)
            folder = inner
            if not stat.S_ISDIR(own.check(_check_followable(os.fstat(folder), asked), asked).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        yield folder, name
    finally:
        os.close(folder)


def _build_own_denial(asked: FsRequest) -> HostCallDenied:
    return HostCallDenied(f"FS {asked.operation} denied: Serai's own files are never granted: {asked.path}")


def _open_root(path: str) -> int:
    """The root, checked at every call: it may have become something else since it was granted."""
    try:
        folder = os.open(path, _LOOK)
    except OSError as error:
        raise HostCallDenied(f"FS grant root cannot be opened: {error.strerror}") from None
    mode = os.fstat(folder).st_mode
    if stat.S_ISDIR(mode):
        return folder
    os.close(folder)
    raise HostCallDenied(f"FS grant root is {'a symlink' if stat.S_ISLNK(mode) else 'not a directory'}")


def _check_reserved(root: int, own: Sequence[str], asked: FsRequest) -> None:
    """Two places no grant opens, however wide it is: the kernel's own, and Serai's, where grants and keys are kept.

    Below the root nothing is a symlink, so the real path of the target is that of the root and the components.
    """
    there = os.path.join(os.readlink(f"/proc/self/fd/{root}"), *asked.parts)
    if _is_inside(there, _KERNEL):
        raise _build_kernel_denial(asked)
    ours = asked.operation == "write" and _OURS in there.split("/")
    if ours or _is_inside(there, own):
        raise _build_own_denial(asked)


def _build_kernel_denial(asked: FsRequest) -> HostCallDenied:
    return HostCallDenied(f"FS {asked.operation} denied: the kernel's own files are never granted: {asked.path}")


def _is_inside(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _stat_leaf(folder: int, name: str, job: _Job) -> os.stat_result:
    """What the leaf is, without opening it: to open a device may do something."""
    return job.own.check(_check_followable(os.stat(name, dir_fd=folder, follow_symlinks=False), job.asked), job.asked)


def _check_followable(found: os.stat_result, asked: FsRequest) -> os.stat_result:
    """No symlink, and not on `/proc`, which may be mounted in other places too."""
    if stat.S_ISLNK(found.st_mode):
        raise _build_symlink_denial(asked)
    if found.st_dev == _get_proc_device():
        raise _build_kernel_denial(asked)
    return found


@cache
def _get_proc_device() -> int:
    """The number of that file system, which is one wherever it is mounted."""
    return os.stat("/proc").st_dev


def _read(folder: int, name: str, job: _Job) -> str:
    asked = job.asked
    trouble = HostCallDenied(f"FS read target is not a regular file: {asked.path}")
    if not stat.S_ISREG(_stat_leaf(folder, name, job).st_mode):
        raise trouble
    file = os.open(name, _READ, dir_fd=folder)
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode):
            raise trouble
        size = about.st_size  # less than that was read when a signal came between, or somebody writes it
        data = os.read(file, host_api.CONTENT + 1)
        while 0 < len(data) < min(size, host_api.CONTENT + 1) and (part := os.read(file, host_api.CONTENT + 1 - len(data))):
            data += part
    finally:
        os.close(file)
    return host_api.answer_read(asked, data)


def _list(folder: int, name: str, job: _Job) -> str:
    asked = job.asked
    if not stat.S_ISDIR(_stat_leaf(folder, name, job).st_mode):
        raise HostCallDenied(f"FS list target is not a directory: {asked.path}")
    opened = os.open(name, _READ | os.O_DIRECTORY, dir_fd=folder)
    try:
        with os.scandir(opened) as entries:
            # the first by name, however many there are, and no more of them in memory
            first = heapq.nsmallest(
                host_api.ENTRIES + 1, _iter_while_wanted(entries, job.asker), key=lambda entry: os.fsencode(entry.name)
            )
            shown = [
                Entry(os.fsencode(entry.name).decode(errors="replace"), _get_kind(entry)) for entry in first[: host_api.ENTRIES]
            ]
    finally:
        os.close(opened)
    return host_api.answer_list(asked, shown, len(first) > host_api.ENTRIES)


def _iter_while_wanted(entries: Iterator[os.DirEntry[str]], asker: ThreadCaller) -> Iterator[os.DirEntry[str]]:
    for entry in entries:
        if asker.gone:
            raise HostCallDenied("FS list was given up")
        yield entry


def _get_kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "symlink"
    if entry.is_dir(follow_symlinks=False):
        return "dir"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def _write(folder: int, name: str, job: _Job) -> str:
    """Into a new file beside it, synced, then renamed: whoever looks finds the old content or the new one."""
    parent = os.open(".", _READ | os.O_DIRECTORY, dir_fd=folder)
    temporary = f".serai-{os.urandom(8).hex()}.tmp"
    try:
        with _lock_folder(parent, job):
            mode = _check_replaceable(parent, name, job)
            file = os.open(temporary, _NEW, 0o600 if mode is not None else 0o666, dir_fd=parent)
            try:
                _write_content(file, job, mode)
                os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                _ignore_os_error(lambda: os.unlink(temporary, dir_fd=parent))
                raise
            finally:
                os.close(file)
            _ignore_os_error(lambda: os.fsync(parent))  # some file systems have no such thing for a folder
    finally:
        os.close(parent)
    return host_api.answer_write(job.asked)


def _check_replaceable(parent: int, name: str, job: _Job) -> int | None:
    """The mode of the file that is there, None if there is none. What we may not write we do not replace either."""
    try:
        found = _stat_leaf(parent, name, job)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise HostCallDenied(f"FS write target is not a regular file: {job.asked.path}")
    os.close(os.open(name, _WRITE, dir_fd=parent))
    return stat.S_IMODE(found.st_mode) & 0o777


def _write_content(file: int, job: _Job, mode: int | None) -> None:
    write_all(file, job.asked.content)
    if mode is not None:
        os.fchmod(file, mode)
    os.fsync(file)
    if job.asker.gone:  # it was told that this failed, so nothing is renamed
        raise HostCallDenied("FS write was given up")


@contextmanager
def _lock_folder(parent: int, job: _Job) -> Iterator[None]:
    """One write at a time in a folder, across plugins and processes. Where the file system knows no locks the rename has to do."""
    while True:
        try:
            fcntl.flock(parent, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() >= job.until:
                raise HostCallDenied(f"FS write timed out: another write goes on: {job.asked.path}") from None
            time.sleep(_POLL)
        except OSError as error:
            if error.errno not in _UNLOCKABLE:
                raise
            break
    yield  # closing the folder lets go of it


def _ignore_os_error(act: Callable[[], None]) -> None:
    try:
        act()
    except OSError:
        pass

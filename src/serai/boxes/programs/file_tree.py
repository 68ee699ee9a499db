"""The files of a box as its server sees them: found without leaving the box, written so that no other user can read them."""

from __future__ import annotations

import os
import stat

from serai.boxes.programs.frames import Refusal

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


class BoxFileTree:
    """All files under `root`. Inside a real box that is `/` and the kernel confines; else no symbolic link is followed."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.flags = os.O_CLOEXEC | os.O_NONBLOCK | (0 if root == "/" else os.O_NOFOLLOW)
        # No file of anybody's is there, but ways into our own descriptors and memory: a link of a base tree must not lead us there.
        self.forbidden = os.stat("/proc").st_dev if root == "/" and os.path.isdir("/proc") else None

    def resolve(self, path: str) -> str:
        """A path of the box as its commands have to say it."""
        return path if self.root == "/" else self.root + path

    def open_folder(self, path: str, *, make: bool) -> tuple[int, str]:
        """The folder that a path is in, opened, and the last name of the path. Missing folders are made: 0755, our own."""
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if not path.startswith("/") or path.endswith("/") or "\0" in path or ".." in parts or not parts:
            raise Refusal(f"{path!r} is no path: it must be absolute, without .. and without / at its end")
        flags = _FOLDER | self.flags & os.O_NOFOLLOW
        here = os.open(self.root, _FOLDER)
        try:
            for part in parts[:-1]:
                try:
                    there = os.open(part, flags, dir_fd=here)
                except FileNotFoundError:
                    if not make:
                        raise
                    os.mkdir(part, 0o755, dir_fd=here)
                    there = os.open(part, flags, dir_fd=here)
                os.close(here)
                here = there
        except BaseException:
            os.close(here)
            raise
        if os.fstat(here).st_dev == self.forbidden:
            os.close(here)
            raise Refusal(f"{path} is in /proc")
        return here, parts[-1]

    def open(self, path: str) -> int:
        """To read it; regular files only."""
        folder, name = self.open_folder(path, make=False)
        try:
            return check_regular(os.open(name, os.O_RDONLY | self.flags, dir_fd=folder), path)
        finally:
            os.close(folder)

    def write(self, path: str, content: bytes, mode: int, uid: int, gid: int, *, append: bool = False) -> None:
        """Write, chmod, chown, in this order (spec hooks 1.8); an existing file is emptied first, unless this is more of it."""
        folder, name = self.open_folder(path, make=True)
        try:
            descriptor, new = _open_for_writing(name, folder, append=append)
        finally:
            os.close(folder)
        check_regular(descriptor, path)
        try:
            if not new:
                os.fchmod(descriptor, 0o600)  # before its first byte: what it holds may be a secret
                os.lseek(descriptor, 0, os.SEEK_END) if append else os.ftruncate(descriptor, 0)
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fchmod(descriptor, mode & 0o777)
            set_owner(descriptor, uid, gid, new=new)
        finally:
            os.close(descriptor)


def _open_for_writing(name: str, folder: int, *, append: bool) -> tuple[int, bool]:
    """A descriptor, and whether the file is a new one. A link is replaced, not followed: what is written may be a secret."""
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    make = flags | os.O_CREAT | os.O_EXCL
    try:
        return os.open(name, make, 0o600, dir_fd=folder), True
    except FileExistsError:
        pass
    if not append and stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=folder)
        return os.open(name, make, 0o600, dir_fd=folder), True
    return os.open(name, flags, dir_fd=folder), False


def check_regular(descriptor: int, path: str) -> int:
    """The descriptor, if it is one of a regular file."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Refusal(f"{path} is not a regular file")
    return descriptor


def check_replaceable(name: str, folder: int, path: str) -> None:
    """Whether a new file may take that name; a link is replaced, not followed."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
        raise Refusal(f"{path} is not a regular file")


def set_owner(descriptor: int, uid: int, gid: int, *, new: bool) -> None:
    """Give a file to whom it is for. 0:0 is ourselves: a new file is ours already and is left alone (spec hooks 1.7),
    one that was there and belongs to somebody else is not (spec hooks 1.8): what is written for root must not stay theirs."""
    if max(uid, gid) >= 0xFFFFFFFF:  # which chown takes for "as it is"
        raise Refusal(f"there is no owner {uid}:{gid}")
    if uid or gid:
        os.fchown(descriptor, uid, gid)
    elif not new:
        info, own = os.fstat(descriptor), (os.geteuid(), os.getegid())
        if (info.st_uid, info.st_gid) != own:
            os.fchown(descriptor, *own)

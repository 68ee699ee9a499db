"""Remove a folder and all that is in it, whatever a box made of it."""

from __future__ import annotations

import contextlib
import os
import stat
from itertools import count

__all__ = ["remove_tree"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str) -> None:
    """Leave nothing of it; idempotent. No link is followed, and no depth is too deep: folders inside are moved up first.

    Folders without any permission are opened first, which their owner may. Nobody must be at work in it any more.
    """
    try:
        os.chmod(path, stat.S_IRWXU)
        top = os.open(path, _FOLDER)
    except FileNotFoundError:
        return
    try:
        names = count()
        while entries := os.listdir(top):
            for name in entries:
                with contextlib.suppress(FileNotFoundError):  # somebody else removes it, too
                    _remove(top, name, names)
    finally:
        os.close(top)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(path)


def _remove(top: int, name: str, names: count[int]) -> None:
    """An entry of the top folder; the folders in it become entries of the top folder."""
    if not _is_folder(top, name):
        os.unlink(name, dir_fd=top)
        return
    inner = os.open(name, _FOLDER, dir_fd=top)
    try:
        for entry in os.listdir(inner):
            if _is_folder(inner, entry):
                os.rename(entry, _free(top, names), src_dir_fd=inner, dst_dir_fd=top)
            else:
                os.unlink(entry, dir_fd=inner)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)


def _is_folder(at: int, name: str) -> bool:
    """Whether it is one; then it can be read and written from now on."""
    if not stat.S_ISDIR(os.lstat(name, dir_fd=at).st_mode):
        return False
    os.chmod(name, stat.S_IRWXU, dir_fd=at)
    return True


def _free(top: int, names: count[int]) -> str:
    """A name that is not taken there: a box may have thought of ours."""
    while True:
        name = f".serai-{next(names)}"
        try:
            os.lstat(name, dir_fd=top)
        except FileNotFoundError:
            return name

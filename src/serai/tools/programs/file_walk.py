"""Folders, name by name and no link followed: whatever is put on the way meanwhile leads nowhere."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC  # needs no right to list what is there

# What others keep there by the thousand: nobody looks for it by name.
SKIPPED = frozenset({".git", ".hg", ".svn", ".venv", "__pycache__", "node_modules"})


def open_folder(path: str, *, make: bool = False) -> int:
    """A descriptor of the folder with this absolute path, in which there is no link. It is for names below it, not for listing.

    `make`: what is missing is made. The `filename` of an error is how far the way went.
    """
    here, way = os.open("/", _STEP), ""
    for name in filter(None, path.split("/")):
        way += f"/{name}"
        try:
            below = _step(here, name, make=make)
        except OSError as error:
            error.filename = way
            raise
        finally:
            os.close(here)
        here = below
    return here


def _step(here: int, name: str, *, make: bool) -> int:
    try:
        return os.open(name, _STEP, dir_fd=here)
    except FileNotFoundError:
        if not make:
            raise
    try:
        os.mkdir(name, dir_fd=here)
    except FileExistsError:
        pass  # somebody was quicker
    return os.open(name, _STEP, dir_fd=here)


class FolderWalk:
    """Everything below a folder, each folder's names sorted. Links are named and not followed; `unread` counts what is closed."""

    def __init__(self, folder: int) -> None:
        self._folder = folder
        self.unread = 0

    def __iter__(self) -> Iterator[tuple[str, bool, int]]:
        """`(path below the folder, whether it is a folder, descriptor of the folder that it is in)`."""
        levels = [("", self._folder, iter(self._list_folder(self._folder)))]
        while levels:
            prefix, here, names = levels[-1]
            found = next(names, None)
            if found is None:
                levels.pop()
                if here != self._folder:
                    os.close(here)
                continue
            name, is_folder = found
            if is_folder and name in SKIPPED:
                continue
            yield prefix + name, is_folder, here
            if is_folder:
                try:
                    below = os.open(name, FOLDER, dir_fd=here)
                except OSError:  # closed to us, gone, a link by now, or more levels than there are descriptors
                    self.unread += 1
                else:
                    levels.append((f"{prefix}{name}/", below, iter(self._list_folder(below))))

    def _list_folder(self, folder: int) -> list[tuple[str, bool]]:
        try:
            with os.scandir(folder) as entries:
                return sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        except OSError:
            self.unread += 1
            return []

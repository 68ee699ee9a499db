"""Where Claude Code keeps its transcripts (spec agents 4.1): one folder for each project, one file for each session.

A folder's name is made from the project's path and tells nothing back: `/a/b.c` and `/a/b-c` share one. So names are made and
compared, never decoded. Nothing outside the root is opened, whatever links lead there.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from serai.agents.history.errors import InvalidPath, SessionNotFound

__all__ = ["INDEX", "LONGEST", "File", "Folder", "Root", "checked_id", "folder_name", "is_id", "real", "transcript_root"]

INDEX = "sessions-index.json"
SUFFIX = ".jsonl"
LONGEST = 200  # of a folder's name; then a hash follows, which not all programs make in the same way
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_START = re.compile(r"[0-9a-f]{4}[0-9a-f-]{0,32}", re.IGNORECASE | re.ASCII)
_OTHER = re.compile(r"[^A-Za-z0-9]")
# A FIFO of that name must not make anybody wait, and a link must not lead anywhere.
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW


def transcript_root(environ: Mapping[str, str] = os.environ) -> str:
    """Where the program itself looks."""
    if folder := environ.get("CLAUDE_CONFIG_DIR"):
        return os.path.join(folder, "projects")
    return os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".claude", "projects")


def real(path: str | os.PathLike[str]) -> str:
    """The project's path without links, as the program has it in its rows."""
    text = os.fspath(path)
    if not text:
        raise InvalidPath(text, "its path is empty")
    try:
        return os.path.realpath(text)
    except (OSError, ValueError) as error:
        raise InvalidPath(text, getattr(error, "strerror", None) or str(error)) from None


def folder_name(path: str) -> str:
    """A real path as the program writes it, not yet shortened. It counts in UTF-16, so one emoji is two dashes."""
    units = "".join("--" if char > "\uffff" else char for char in path)
    return _OTHER.sub("-", units)


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def checked_id(id: str) -> str:
    """The id, before it is made part of a path (spec agents 4.3)."""
    if not is_id(id):
        raise SessionNotFound(id, "this is no session id: they are UUIDs")
    return id


class File(NamedTuple):
    """A transcript as its folder lists it; `stamp` is the time of its last change, its size and its inode."""

    path: str
    id: str
    stamp: tuple[int, int, int]

    @property
    def modified(self) -> int:
        """Nanoseconds since 1970."""
        return self.stamp[0]

    def opened(self) -> int:
        """A descriptor of it, if it is still a file."""
        descriptor = os.open(self.path, _READ)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(f"{self.path} is no file")
        return descriptor


class Folder(NamedTuple):
    """A project's transcripts; `path` is real."""

    path: str

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    def files(self) -> Iterator[File]:
        """Its transcripts, in no order. Those of sub-agents are named otherwise, or lie deeper (spec agents 4.1)."""
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    stem = entry.name.removesuffix(SUFFIX)
                    if stem != entry.name and is_id(stem) and (file := _file(entry.path, stem)):
                        yield file
        except OSError:  # it went away, or is not ours to read
            return

    def file(self, id: str) -> File | None:
        return _file(os.path.join(self.path, checked_id(id) + SUFFIX), id)


def _file(path: str, id: str) -> File | None:
    try:
        about = os.lstat(path)
    except OSError:
        return None
    return File(path, id, (about.st_mtime_ns, about.st_size, about.st_ino)) if stat.S_ISREG(about.st_mode) else None


class Root:
    """The folder of the projects' folders, which need not be there."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.realpath(path)  # people have links to their whole configuration

    def folders(self) -> list[Folder]:
        """All of them, by name. A link among them leads to another of them, or out of here."""
        try:
            with os.scandir(self.path) as entries:
                return sorted(Folder(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise InvalidPath(self.path, error.strerror or "") from None

    def of(self, project: str) -> list[Folder]:
        """Where a project's transcripts may be: usually one folder. It takes a real path."""
        found: dict[str, Folder] = {}
        # The spec says that the path is composed first; 2.1.325 was seen leaving it as it is. Both are looked for.
        for name in map(folder_name, (project, unicodedata.normalize("NFC", project))):
            if len(name) <= LONGEST:
                some = [self._inside(name)]
            else:  # the hash differs between programs, so it is not made here but looked for (spec agents 4.1)
                start = name[:LONGEST] + "-"
                some = [self._inside(name), *(folder for folder in self.folders() if folder.name.startswith(start))]
            found |= {folder.path: folder for folder in some if folder is not None}
        return [*found.values()]

    def _inside(self, name: str) -> Folder | None:
        """The folder of that name; people who move a project leave a link, which may lead to another one here."""
        if len(name) > 255:
            return None
        path = os.path.realpath(os.path.join(self.path, name))
        return Folder(path) if os.path.dirname(path) == self.path and os.path.isdir(path) else None

    def file(self, id: str) -> File:
        """The transcript of that id in whatever project; the newest, when somebody copied it."""
        names = dict.fromkeys((checked_id(id), id.lower()))
        found = [file for folder in self.folders() for name in names if (file := folder.file(name))]
        if not found:
            raise SessionNotFound(id)
        return max(found, key=lambda file: file.modified)

    def beginning(self, start: str) -> str:
        """The one id that begins so; at least four digits of it."""
        if is_id(start):
            return self.file(start).id
        if not _START.fullmatch(start):
            raise SessionNotFound(start, "this is no session id, nor the start of one: they are UUIDs")
        ids = {file.id for folder in self.folders() for file in folder.files() if file.id.startswith(start.lower())}
        if len(ids) > 1:
            raise SessionNotFound(start, f"{len(ids)} sessions begin so", hint="give more of the id")
        if not ids:
            raise SessionNotFound(start, "no session begins so")
        return ids.pop()

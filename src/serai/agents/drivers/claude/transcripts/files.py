"""Where Claude Code keeps its transcripts (spec agents 4.1), and how they are read: for a list by both ends, or whole (spec agents
4.3).

There is one folder for each project and one file for each session. A folder's name is made from the project's path and tells
nothing back: `/a/b.c` and `/a/b-c` share one. So names are made and compared, never decoded. Nothing outside the root is opened,
whatever links lead there.

A list of thousands reads at most 64 KiB of each file's head and of its tail. A whole file is read line by line, so that a long one
costs time and no memory. A file may grow meanwhile, and its last line may be half written (spec agents 7.36). The errors have the
fields of the origin (spec agents 1.11).
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from serai.agents.drivers.claude.transcripts.metadata import MetadataBuilder
from serai.agents.drivers.claude.transcripts.rows import TranscriptRow, parse_row, recover_row
from serai.errors import BadSession, NoSession
from serai.limits import KIB
from serai.wire.stream import Framer, Oversize, split_lines


class SessionNotFound(NoSession):
    """No project has a transcript of that id, or it is none: ids are UUIDs. `id` is what was asked for."""

    default_hint = "`serai agent sessions --all` shows what there is"

    def __init__(self, id: str, message: str = "there is no such session", *, hint: str = "") -> None:
        super().__init__(message, who=id, id=id, hint=hint)


class ProjectNotFound(NoSession):
    """That folder has no transcripts. `path` is the folder."""

    default_hint = "`serai agent sessions --all` shows what there is"

    def __init__(self, path: str) -> None:
        super().__init__("the folder has no sessions", who=path)
        self.path = path


class InvalidSessionFormat(BadSession):
    """The file is no transcript, or cannot be read. `file` is its path, `cause` says why; nothing in it was changed."""

    def __init__(self, file: str, cause: str) -> None:
        super().__init__(f"this is no transcript: {cause}", who=file)
        self.file = file
        self.cause = cause


class InvalidPath(BadSession):
    """A folder that cannot be looked at. `cause` says why."""

    default_hint = "name the folder that the agent worked in"

    def __init__(self, path: str, cause: str) -> None:
        super().__init__(f"the folder cannot be looked at: {cause}", who=path)
        self.path = path
        self.cause = cause


INDEX = "sessions-index.json"
SUFFIX = ".jsonl"
LONGEST = 200  # of a folder's name; then a hash follows, which not all programs make in the same way
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_START = re.compile(r"[0-9a-f]{4}[0-9a-f-]{0,32}", re.IGNORECASE | re.ASCII)
_OTHER = re.compile(r"[^A-Za-z0-9]")
# A FIFO of that name must not make anybody wait, and a link must not lead anywhere.
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW


def find_transcript_root(environ: Mapping[str, str] = os.environ) -> str:
    """Where the program itself looks."""
    if folder := environ.get("CLAUDE_CONFIG_DIR"):
        return os.path.join(folder, "projects")
    return os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".claude", "projects")


def resolve_path(path: str | os.PathLike[str]) -> str:
    """The project's path without links, as the program has it in its rows."""
    text = os.fspath(path)
    if not text:
        raise InvalidPath(text, "its path is empty")
    try:
        return os.path.realpath(text)
    except (OSError, ValueError) as error:
        raise InvalidPath(text, getattr(error, "strerror", None) or str(error)) from None


def to_folder_name(path: str) -> str:
    """A real path as the program writes it, not yet shortened. It counts in UTF-16, so one emoji is two dashes."""
    units = "".join("--" if char > "\uffff" else char for char in path)
    return _OTHER.sub("-", units)


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def check_id(id: str) -> str:
    """The id, before it is made part of a path (spec agents 4.3)."""
    if not is_id(id):
        raise SessionNotFound(id, "this is no session id: they are UUIDs")
    return id


class TranscriptFile(NamedTuple):
    """A transcript as its folder lists it; `stamp` is the time of its last change, its size and its inode."""

    path: str
    id: str
    stamp: tuple[int, int, int]

    @property
    def modified(self) -> int:
        """Nanoseconds since 1970."""
        return self.stamp[0]

    def open(self) -> int:
        """A descriptor of it, if it is still a file."""
        descriptor = os.open(self.path, _READ)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(f"{self.path} is no file")
        return descriptor


class ProjectFolder(NamedTuple):
    """A project's transcripts; `path` is real."""

    path: str

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    def iter_files(self) -> Iterator[TranscriptFile]:
        """Its transcripts, in no order. Those of sub-agents are named otherwise, or lie deeper (spec agents 4.1)."""
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    stem = entry.name.removesuffix(SUFFIX)
                    if stem != entry.name and is_id(stem) and (file := _stat_file(entry.path, stem)):
                        yield file
        except OSError:  # it went away, or is not ours to read
            return

    def find_file(self, id: str) -> TranscriptFile | None:
        return _stat_file(os.path.join(self.path, check_id(id) + SUFFIX), id)


def _stat_file(path: str, id: str) -> TranscriptFile | None:
    try:
        about = os.lstat(path)
    except OSError:
        return None
    return TranscriptFile(path, id, (about.st_mtime_ns, about.st_size, about.st_ino)) if stat.S_ISREG(about.st_mode) else None


class TranscriptRoot:
    """The folder of the projects' folders, which need not be there."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.realpath(path)  # people have links to their whole configuration

    def list_folders(self) -> list[ProjectFolder]:
        """All of them, by name. A link among them leads to another of them, or out of here."""
        try:
            with os.scandir(self.path) as entries:
                return sorted(ProjectFolder(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise InvalidPath(self.path, error.strerror or "") from None

    def find_folders(self, project: str) -> list[ProjectFolder]:
        """Where a project's transcripts may be: usually one folder. It takes a real path."""
        found: dict[str, ProjectFolder] = {}
        # The spec says that the path is composed first; 2.1.325 was seen leaving it as it is. Both are looked for.
        for name in map(to_folder_name, (project, unicodedata.normalize("NFC", project))):
            if len(name) <= LONGEST:
                some = [self._find_folder(name)]
            else:  # the hash differs between programs, so it is not made here but looked for (spec agents 4.1)
                start = name[:LONGEST] + "-"
                some = [self._find_folder(name), *(folder for folder in self.list_folders() if folder.name.startswith(start))]
            found |= {folder.path: folder for folder in some if folder is not None}
        return [*found.values()]

    def _find_folder(self, name: str) -> ProjectFolder | None:
        """The folder of that name; people who move a project leave a link, which may lead to another one here."""
        if len(name) > 255:
            return None
        path = os.path.realpath(os.path.join(self.path, name))
        return ProjectFolder(path) if os.path.dirname(path) == self.path and os.path.isdir(path) else None

    def find_file(self, id: str) -> TranscriptFile:
        """The transcript of that id in whatever project; the newest, when somebody copied it."""
        names = dict.fromkeys((check_id(id), id.lower()))
        found = [file for folder in self.list_folders() for name in names if (file := folder.find_file(name))]
        if not found:
            raise SessionNotFound(id)
        return max(found, key=lambda file: file.modified)

    def resolve_id(self, start: str) -> str:
        """The one id that begins so; at least four digits of it."""
        if is_id(start):
            return self.find_file(start).id
        if not _START.fullmatch(start):
            raise SessionNotFound(start, "this is no session id, nor the start of one: they are UUIDs")
        ids = {file.id for folder in self.list_folders() for file in folder.iter_files() if file.id.startswith(start.lower())}
        if len(ids) > 1:
            raise SessionNotFound(start, f"{len(ids)} sessions begin so", hint="give more of the id")
        if not ids:
            raise SessionNotFound(start, "no session begins so")
        return ids.pop()


END = 64 * KIB  # of the head and of the tail
_CHUNK = 256 * KIB
_LONGEST = 4 * KIB  # characters of a text in a list: whoever wants more wants the session

# `os.pread`: a descriptor, so many bytes, from there.
Read = Callable[[int, int, int], bytes]


class FileEnds(NamedTuple):
    """Both ends of a file; `gap`: there is something between them."""

    head: bytes
    tail: bytes
    gap: bool


def read_ends(descriptor: int, read: Read = os.pread) -> FileEnds:
    size = os.fstat(descriptor).st_size
    head = read(descriptor, END, 0)
    if size <= END:
        return FileEnds(head, b"", gap=False)
    start = max(END, size - END)
    tail = read(descriptor, END, start)
    return FileEnds(head + tail, b"", gap=False) if start == END else FileEnds(head, tail, gap=True)


def read_summary(seen: FileEnds) -> MetadataBuilder | None:
    """What both ends tell; None when there is something and none of it is a transcript's. A first row may still be written."""
    builder = MetadataBuilder(_LONGEST)
    whole_lines, _, cut = seen.head.rpartition(b"\n") if seen.gap else (seen.head, b"", b"")
    _add_rows(builder, whole_lines)
    if seen.gap:
        if not builder.messages and cut.lstrip(b" \0").startswith(b"{"):
            row, text = recover_row(cut)
            if row.type:
                builder.add(TranscriptRow(timestamp=row.timestamp, cwd=row.cwd, version=row.version))
                builder.begin_with(text)
        builder.mark_gap()
        _add_rows(builder, seen.tail.partition(b"\n")[2])
    begun = not seen.gap and b"\n" not in seen.head and seen.head.startswith(b"{")
    return builder if builder.rows or begun or not seen.head.strip(b" \t\r\n\0") else None


def _add_rows(builder: MetadataBuilder, run: bytes) -> None:
    for line in split_lines(run):
        if (row := parse_row(clean(line))) is not None:
            builder.add(row)


def clean(line: bytes) -> bytes:
    """Without what a machine that lost its power leaves before a line."""
    return line.lstrip(b"\0") if line[:1] == b"\0" else line


def iter_lines(descriptor: int, limit: int, read: Read = os.pread) -> Iterator[bytes | None]:
    """Each line that is not blank, from the first; None for one that is longer than `limit`."""
    framer = Framer(limit)
    at = 0
    while True:
        chunk = read(descriptor, _CHUNK, at)
        at += len(chunk)
        for run in framer.feed(chunk) if chunk else framer.feed_eof():
            if isinstance(run, Oversize):
                yield None
            else:
                yield from map(clean, split_lines(run))
        if not chunk:
            return

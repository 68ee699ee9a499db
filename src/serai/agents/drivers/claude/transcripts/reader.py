"""Claude Code's own sessions: listed, summarised, read; so that one can be resumed (spec agents 4.3)."""

from __future__ import annotations

import os
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from serai.agents.drivers.claude.transcripts import files as transcript_files
from serai.agents.drivers.claude.transcripts.metadata import MetadataBuilder, SessionFilter, SessionMetadata
from serai.agents.drivers.claude.transcripts.rows import SessionEvent, parse_event, parse_row, to_string
from serai.limits import MIB, AgentLimits
from serai.wire.codec import BAD_INPUT, decode

_KEPT = 20_000  # transcripts of which the metadata is remembered
_INDEX = 4 * MIB


class Project(msgspec.Struct, frozen=True):
    """A folder in which the agent worked; `path` is "" when nobody knows it, `folder` is where its transcripts are."""

    path: str
    folder: str
    sessions: int  # as many as there are files


class TranscriptSummary(msgspec.Struct, frozen=True):
    """A session's metadata, its first events and its last; in a short session these may be the same."""

    metadata: SessionMetadata
    head: tuple[SessionEvent, ...]
    tail: tuple[SessionEvent, ...]


class _Index(msgspec.Struct):
    originalPath: object = ""  # noqa: N815 (the wire's name)


_index: msgspec.json.Decoder[_Index] = msgspec.json.Decoder(_Index)

# The path of a project, one of `list_projects`, or None for all of them.
Where = str | os.PathLike[str] | Project | None


def _is_never_live(_: str) -> bool:
    return False


class Transcripts:
    """The transcripts under one root, which need not be there. Nothing is ever written to it.

    `is_live` tells whether a process has the session open; `read` is how bytes are read. Listings read both ends of each file and
    remember them until the file changes; one session that is asked for is read whole.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] = os.environ,
        *,
        is_live: Callable[[str], bool] = _is_never_live,
        limits: AgentLimits | None = None,
        read: transcript_files.Read = os.pread,
    ) -> None:
        self.root = os.fspath(root) if root else transcript_files.find_transcript_root(environ)
        self._root = transcript_files.TranscriptRoot(self.root)
        self._is_live = is_live
        self._limit = (limits or AgentLimits()).frame
        self._read = read
        self._known: dict[str, tuple[tuple[int, int, int], SessionMetadata | None]] = {}

    # -- lists

    def list_projects(self) -> list[Project]:
        """Those with at least one transcript, the one with the latest change first."""
        found: list[tuple[int, Project]] = []
        for folder in self._root.list_folders():
            files = sorted(folder.iter_files(), key=_get_modified, reverse=True)
            sessions = (one for one in map(self._get_summary, files) if one is not None)
            if (latest := next(sessions, None)) is not None:
                path = latest.project_path or next((one.project_path for one in sessions if one.project_path), "")
                found.append((files[0].modified, Project(path, folder.path, len(files))))
        return [project for _, project in sorted(found, key=lambda one: one[0], reverse=True)]

    def list_sessions(self, project: Where) -> list[SessionMetadata]:
        """A project's sessions, or all with None; the newest first by the time they began. What cannot be read is left out."""
        return self.list_recent(project, 0, None)

    def list_recent(self, project: Where, limit: int, keep: SessionFilter | None) -> list[SessionMetadata]:
        """The first so many of those that the filter keeps; all with 0."""
        folders, path = self._find_folders(project)
        files = sorted((file for folder in folders for file in folder.iter_files()), key=_get_modified, reverse=True)
        found: list[SessionMetadata] = []
        for file in files:
            # No session began after its file was last changed; so files that were last changed before all that we have began
            # cannot get into the list, and need not be read.
            if 0 < limit <= len(found):
                found = sorted(found, key=_get_start, reverse=True)[:limit]
                if file.modified / 1e9 < _get_start(found[-1]):
                    break
            one = self._get_summary(file)
            if one is not None and _is_in_project(one, path) and (keep is None or keep(one)):
                found.append(one)
        found.sort(key=_get_start, reverse=True)
        return found[:limit] if limit > 0 else found

    # -- one session

    def resolve(self, start: str) -> str:
        """The id that begins so."""
        return self._root.resolve_id(start)

    def get_session(self, id: str) -> SessionMetadata:
        """A session's metadata, of all of its rows."""
        file = self._root.find_file(id)
        builder = MetadataBuilder()
        with self._lines(file) as lines:
            deque(_iter_rows(builder, lines), maxlen=0)
        return self._build_metadata(file, builder)

    def get_session_events(self, id: str, offset: int = 0, limit: int = 0) -> list[SessionEvent]:
        """Its events, from the line of that number on (blank lines do not count, broken ones do); all with a limit of 0."""
        found: list[SessionEvent] = []
        with self._lines(self._root.find_file(id)) as lines:
            for number, line in enumerate(lines):
                if number >= offset and line is not None and (event := parse_event(line)):
                    found.append(event)
                    if 0 < limit <= len(found):
                        break
        return found

    def get_session_summary(self, id: str, first_n: int, last_m: int) -> TranscriptSummary:
        """Its metadata, its first and its last events; none for a number below 1."""
        file = self._root.find_file(id)
        builder = MetadataBuilder()
        head: list[bytes] = []
        tail: deque[bytes] = deque(maxlen=max(0, last_m))
        with self._lines(file) as lines:
            for line in _iter_rows(builder, lines):
                if len(head) < first_n:
                    head.append(line)
                tail.append(line)
        return TranscriptSummary(self._build_metadata(file, builder), tuple(_iter_events(head)), tuple(_iter_events(tail)))

    @contextmanager
    def _lines(self, file: transcript_files.TranscriptFile) -> Iterator[Iterator[bytes | None]]:
        try:
            descriptor = file.open()
        except FileNotFoundError:
            raise transcript_files.SessionNotFound(file.id) from None
        except OSError as error:
            raise transcript_files.InvalidSessionFormat(file.path, error.strerror or str(error)) from None
        try:
            yield transcript_files.iter_lines(descriptor, self._limit, self._read)
        except OSError as error:
            raise transcript_files.InvalidSessionFormat(file.path, error.strerror or str(error)) from None
        finally:
            os.close(descriptor)

    def _build_metadata(self, file: transcript_files.TranscriptFile, builder: MetadataBuilder) -> SessionMetadata:
        if not builder.rows and self._read_summary(file) is None:
            raise transcript_files.InvalidSessionFormat(file.path, "none of its lines is a row of one")
        return self._to_metadata(file, builder, live=self._is_live(file.id))

    # -- what listings need

    def _find_folders(self, project: Where) -> tuple[Sequence[transcript_files.ProjectFolder], str]:
        """The folders to look at, and the project's real path when it matters."""
        if project is None:
            return self._root.list_folders(), ""
        if isinstance(project, Project):
            return [folder for folder in self._root.list_folders() if folder.path == project.folder], ""
        path = transcript_files.resolve_path(project)
        return self._root.find_folders(path), path

    def _get_summary(self, file: transcript_files.TranscriptFile) -> SessionMetadata | None:
        """What both ends of a transcript tell, read once for each change of it; None when it is none."""
        stamp, one = self._known.get(file.path, (None, None))
        if stamp != file.stamp:
            one = self._read_summary(file)
            self._known.pop(file.path, None)
            self._known[file.path] = (file.stamp, one)
            if len(self._known) > _KEPT:
                del self._known[next(iter(self._known))]
        if one is not None and one.status == "complete" and self._is_live(file.id):
            return msgspec.structs.replace(one, status="active")
        return one

    def _read_summary(self, file: transcript_files.TranscriptFile) -> SessionMetadata | None:
        try:
            descriptor = file.open()
            try:
                builder = transcript_files.read_summary(transcript_files.read_ends(descriptor, self._read))
            finally:
                os.close(descriptor)
        except OSError:
            return None
        if builder is None or (builder.aside and not builder.messages):  # no transcript, or that of a sub-agent
            return None
        return self._to_metadata(file, builder, live=False)

    def _to_metadata(self, file: transcript_files.TranscriptFile, builder: MetadataBuilder, *, live: bool) -> SessionMetadata:
        modified, size, _ = file.stamp
        one = builder.build(file.id, file=file.path, size=size, modified=modified, live=live)
        if not one.project_path and (path := self._read_index_path(transcript_files.ProjectFolder(os.path.dirname(file.path)))):
            return msgspec.structs.replace(one, project_path=path)
        return one

    def _read_index_path(self, folder: transcript_files.ProjectFolder) -> str:
        """The project's path as the folder's index has it (spec agents 4.1)."""
        index = transcript_files.TranscriptFile(os.path.join(folder.path, transcript_files.INDEX), "", (0, 0, 0))
        try:
            descriptor = index.open()
            try:
                return to_string(decode(_index, self._read(descriptor, _INDEX, 0)).originalPath)
            finally:
                os.close(descriptor)
        except (OSError, *BAD_INPUT):
            return ""


def _iter_rows(builder: MetadataBuilder, lines: Iterable[bytes | None]) -> Iterator[bytes]:
    """The lines that are rows, each given to the builder."""
    for line in lines:
        if line is not None and (row := parse_row(line)) is not None:
            builder.add(row)
            yield line


def _iter_events(lines: Iterable[bytes]) -> Iterator[SessionEvent]:
    return (event for line in lines if (event := parse_event(line)))


def _is_in_project(one: SessionMetadata, path: str) -> bool:
    """Whether it is this project's, and not that of another one whose path makes the same name."""
    if not path or not one.project_path:
        return True
    ours, other = (unicodedata.normalize("NFC", text) for text in (path, one.project_path))
    return (
        ours == other
        or transcript_files.to_folder_name(ours)[: transcript_files.LONGEST]
        != transcript_files.to_folder_name(other)[: transcript_files.LONGEST]
    )


def _get_start(one: SessionMetadata) -> float:
    at = one.start_time or one.end_time
    return at.timestamp() if at else 0.0


def _get_modified(file: transcript_files.TranscriptFile) -> int:
    return file.modified

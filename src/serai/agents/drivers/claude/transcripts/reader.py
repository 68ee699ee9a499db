"""Claude Code's own sessions: listed, summarised, read; so that one can be resumed (spec agents 4.3)."""

from __future__ import annotations

import os
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

import msgspec

from serai.agents.drivers.claude.transcripts.files import (
    INDEX,
    LONGEST,
    InvalidSessionFormat,
    ProjectFolder,
    ProjectNotFound,
    Read,
    SessionNotFound,
    TranscriptFile,
    TranscriptRoot,
    every_line,
    folder_name,
    read_summary,
    real,
    transcript_root,
    windows,
)
from serai.agents.drivers.claude.transcripts.metadata import MetadataBuilder, SessionFilter, SessionMetadata
from serai.agents.drivers.claude.transcripts.rows import SessionEvent, event_of, row_of, string
from serai.limits import MIB, Limits
from serai.wire.codec import BAD_INPUT, decode

_KEPT = 20_000  # transcripts of which the metadata is remembered
_INDEX = 4 * MIB


class Project(msgspec.Struct, frozen=True):
    """A folder in which the agent worked; `path` is "" when nobody knows it, `folder` is where its transcripts are."""

    path: str
    folder: str
    sessions: int  # as many as there are files


class SessionSummary(msgspec.Struct, frozen=True):
    """A session's metadata, its first events and its last; in a short session these may be the same."""

    metadata: SessionMetadata
    head: tuple[SessionEvent, ...]
    tail: tuple[SessionEvent, ...]


class ProjectStats(msgspec.Struct, frozen=True):
    """All sessions of a project together. Of long ones the sums are as a listing has them (see `SessionMetadata.partial`)."""

    project_path: str
    total_sessions: int
    active_sessions: int
    complete_sessions: int
    error_sessions: int
    unknown_sessions: int
    total_cost_usd: float
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    oldest: datetime | None
    newest: datetime | None


class _Index(msgspec.Struct):
    originalPath: object = ""  # noqa: N815 (the wire's name)


_index: msgspec.json.Decoder[_Index] = msgspec.json.Decoder(_Index)

# The path of a project, one of `list_projects`, or None for all of them.
Where = str | os.PathLike[str] | Project | None


def _nobody(_: str) -> bool:
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
        is_live: Callable[[str], bool] = _nobody,
        limits: Limits | None = None,
        read: Read = os.pread,
    ) -> None:
        self.root = os.fspath(root) if root else transcript_root(environ)
        self._root = TranscriptRoot(self.root)
        self._is_live = is_live
        self._limit = (limits or Limits()).frame
        self._read = read
        self._known: dict[str, tuple[tuple[int, int, int], SessionMetadata | None]] = {}

    # -- lists

    def list_projects(self) -> list[Project]:
        """Those with at least one transcript, the one with the latest change first."""
        found: list[tuple[int, Project]] = []
        for folder in self._root.folders():
            files = sorted(folder.files(), key=_modified, reverse=True)
            sessions = (one for one in map(self._glance, files) if one is not None)
            if (latest := next(sessions, None)) is not None:
                path = latest.project_path or next((one.project_path for one in sessions if one.project_path), "")
                found.append((files[0].modified, Project(path, folder.path, len(files))))
        return [project for _, project in sorted(found, key=lambda one: one[0], reverse=True)]

    def list_sessions(self, project: Where) -> list[SessionMetadata]:
        """A project's sessions, or all with None; the newest first by the time they began. What cannot be read is left out."""
        return self.recent_filtered(project, 0, None)

    def list_sessions_filtered(self, project: Where, keep: SessionFilter | None) -> list[SessionMetadata]:
        """Those that the filter keeps."""
        return self.recent_filtered(project, 0, keep)

    def get_recent_sessions(self, project: Where, limit: int) -> list[SessionMetadata]:
        """The first so many of the list; all with 0."""
        return self.recent_filtered(project, limit, None)

    def recent_filtered(self, project: Where, limit: int, keep: SessionFilter | None) -> list[SessionMetadata]:
        """The first so many of those that the filter keeps; all with 0."""
        folders, path = self._where(project)
        files = sorted((file for folder in folders for file in folder.files()), key=_modified, reverse=True)
        found: list[SessionMetadata] = []
        for file in files:
            # No session began after its file was last changed; so files that were last changed before all that we have began
            # cannot get into the list, and need not be read.
            if 0 < limit <= len(found):
                found = sorted(found, key=_begun, reverse=True)[:limit]
                if file.modified / 1e9 < _begun(found[-1]):
                    break
            one = self._glance(file)
            if one is not None and _is_of(one, path) and (keep is None or keep(one)):
                found.append(one)
        found.sort(key=_begun, reverse=True)
        return found[:limit] if limit > 0 else found

    def project_stats(self, project: Where) -> ProjectStats:
        """Counts and sums over a project's sessions."""
        sessions = self.list_sessions(project)
        path = project.path if isinstance(project, Project) else os.fspath(project or "")
        if not sessions:
            raise ProjectNotFound(path)
        status = [one.status for one in sessions]
        begun = [one.start_time for one in sessions if one.start_time is not None]
        return ProjectStats(
            project_path=path,
            total_sessions=len(sessions),
            active_sessions=status.count("active"),
            complete_sessions=status.count("complete"),
            error_sessions=status.count("error"),
            unknown_sessions=status.count(""),
            total_cost_usd=sum(one.total_cost_usd for one in sessions),
            input_tokens=sum(one.input_tokens for one in sessions),
            output_tokens=sum(one.output_tokens for one in sessions),
            cache_read_tokens=sum(one.cache_read_tokens for one in sessions),
            oldest=min(begun, default=None),
            newest=max(begun, default=None),
        )

    # -- one session

    def resolve(self, start: str) -> str:
        """The id that begins so."""
        return self._root.beginning(start)

    def get_session(self, id: str) -> SessionMetadata:
        """A session's metadata, of all of its rows."""
        file = self._root.file(id)
        gathering = MetadataBuilder()
        with self._lines(file) as lines:
            deque(_rows(gathering, lines), maxlen=0)
        return self._told(file, gathering)

    def get_session_events(self, id: str, offset: int = 0, limit: int = 0) -> list[SessionEvent]:
        """Its events, from the line of that number on (blank lines do not count, broken ones do); all with a limit of 0."""
        found: list[SessionEvent] = []
        with self._lines(self._root.file(id)) as lines:
            for number, line in enumerate(lines):
                if number >= offset and line is not None and (event := event_of(line)):
                    found.append(event)
                    if 0 < limit <= len(found):
                        break
        return found

    def get_session_summary(self, id: str, first_n: int, last_m: int) -> SessionSummary:
        """Its metadata, its first and its last events; none for a number below 1."""
        file = self._root.file(id)
        gathering = MetadataBuilder()
        head: list[bytes] = []
        tail: deque[bytes] = deque(maxlen=max(0, last_m))
        with self._lines(file) as lines:
            for line in _rows(gathering, lines):
                if len(head) < first_n:
                    head.append(line)
                tail.append(line)
        return SessionSummary(self._told(file, gathering), tuple(_events(head)), tuple(_events(tail)))

    @contextmanager
    def _lines(self, file: TranscriptFile) -> Iterator[Iterator[bytes | None]]:
        try:
            descriptor = file.opened()
        except FileNotFoundError:
            raise SessionNotFound(file.id) from None
        except OSError as error:
            raise InvalidSessionFormat(file.path, error.strerror or str(error)) from None
        try:
            yield every_line(descriptor, self._limit, self._read)
        except OSError as error:
            raise InvalidSessionFormat(file.path, error.strerror or str(error)) from None
        finally:
            os.close(descriptor)

    def _told(self, file: TranscriptFile, gathering: MetadataBuilder) -> SessionMetadata:
        if not gathering.rows and self._look(file) is None:
            raise InvalidSessionFormat(file.path, "none of its lines is a row of one")
        return self._metadata(file, gathering, live=self._is_live(file.id))

    # -- what listings need

    def _where(self, project: Where) -> tuple[Sequence[ProjectFolder], str]:
        """The folders to look at, and the project's real path when it matters."""
        if project is None:
            return self._root.folders(), ""
        if isinstance(project, Project):
            return [folder for folder in self._root.folders() if folder.path == project.folder], ""
        path = real(project)
        return self._root.of(path), path

    def _glance(self, file: TranscriptFile) -> SessionMetadata | None:
        """What both ends of a transcript tell, read once for each change of it; None when it is none."""
        stamp, one = self._known.get(file.path, (None, None))
        if stamp != file.stamp:
            one = self._look(file)
            self._known.pop(file.path, None)
            self._known[file.path] = (file.stamp, one)
            if len(self._known) > _KEPT:
                del self._known[next(iter(self._known))]
        if one is not None and one.status == "complete" and self._is_live(file.id):
            return msgspec.structs.replace(one, status="active")
        return one

    def _look(self, file: TranscriptFile) -> SessionMetadata | None:
        try:
            descriptor = file.opened()
            try:
                gathering = read_summary(windows(descriptor, self._read))
            finally:
                os.close(descriptor)
        except OSError:
            return None
        if gathering is None or (gathering.aside and not gathering.messages):  # no transcript, or that of a sub-agent
            return None
        return self._metadata(file, gathering, live=False)

    def _metadata(self, file: TranscriptFile, gathering: MetadataBuilder, *, live: bool) -> SessionMetadata:
        modified, size, _ = file.stamp
        one = gathering.metadata(file.id, file=file.path, size=size, modified=modified, live=live)
        if not one.project_path and (path := self._path_in_index(ProjectFolder(os.path.dirname(file.path)))):
            return msgspec.structs.replace(one, project_path=path)
        return one

    def _path_in_index(self, folder: ProjectFolder) -> str:
        """The project's path as the folder's index has it (spec agents 4.1)."""
        index = TranscriptFile(os.path.join(folder.path, INDEX), "", (0, 0, 0))
        try:
            descriptor = index.opened()
            try:
                return string(decode(_index, self._read(descriptor, _INDEX, 0)).originalPath)
            finally:
                os.close(descriptor)
        except (OSError, *BAD_INPUT):
            return ""


def _rows(gathering: MetadataBuilder, lines: Iterable[bytes | None]) -> Iterator[bytes]:
    """The lines that are rows, each told to the gathering."""
    for line in lines:
        if line is not None and (row := row_of(line)) is not None:
            gathering.tell(row)
            yield line


def _events(lines: Iterable[bytes]) -> Iterator[SessionEvent]:
    return (event for line in lines if (event := event_of(line)))


def _is_of(one: SessionMetadata, path: str) -> bool:
    """Whether it is this project's, and not that of another one whose path makes the same name."""
    if not path or not one.project_path:
        return True
    ours, other = (unicodedata.normalize("NFC", text) for text in (path, one.project_path))
    return ours == other or folder_name(ours)[:LONGEST] != folder_name(other)[:LONGEST]


def _begun(one: SessionMetadata) -> float:
    at = one.start_time or one.end_time
    return at.timestamp() if at else 0.0


def _modified(file: TranscriptFile) -> int:
    return file.modified

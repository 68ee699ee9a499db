"""The folder of sessions: new ones, a list of all, the one that is meant; and the one that everybody acts on."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol

import msgspec

from serai import paths
from serai.errors import NoSession, NotWritten, SeraiError
from serai.limits import StoreLimits
from serai.store import entries
from serai.store.entries import SessionMeta, find_meta
from serai.store.session_file import CHUNK, on_fork
from serai.store.stored_session import SUFFIX, StoredSession

DRAFT = SUFFIX + ".part"
_ABANDONED = 3600.0
_LOOK = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY  # a FIFO of that name must not make anybody wait


class SessionSummary(msgspec.Struct, frozen=True):
    """A session as the list shows it. `modified` is in seconds since 1970."""

    id: str
    path: str
    meta: SessionMeta
    size: int
    modified: float


class SessionListing(NamedTuple):
    """The newest first, and what could not be listed, with the reason."""

    sessions: list[SessionSummary]
    problems: list[str]


class SessionFolder:
    """The sessions in one folder, which need not be there yet."""

    def __init__(self, folder: str | os.PathLike[str], *, limits: StoreLimits | None = None) -> None:
        self.folder = os.path.abspath(folder)
        self._limits = limits or StoreLimits()

    @classmethod
    def usual(cls, environ: Mapping[str, str] = os.environ, *, limits: StoreLimits | None = None) -> SessionFolder:
        return cls(os.path.join(paths.state_folder(environ), "sessions"), limits=limits)

    def create(self, cwd: str, *, model: str = "", title: str = "", agent: str = "", agent_session: str = "") -> StoredSession:
        """An empty one. The folder is made when it is not there."""
        self._make_folder()
        self._clean()
        meta = SessionMeta(id="", cwd=cwd, model=model, title=title, agent=agent, agent_session=agent_session)
        return StoredSession.create(self.folder, meta, limits=self._limits)

    def open(self, wanted: str) -> StoredSession:
        """The one of that id, or the only one whose id begins so. Reads no more than its end."""
        return StoredSession(self.find(wanted), limits=self._limits)

    def find(self, wanted: str) -> str:
        """The path of its file."""
        names = [name for name in self._list_names() if wanted and name.startswith(wanted)]
        if wanted + SUFFIX in names:
            names = [wanted + SUFFIX]
        if len(names) > 1:
            raise NoSession(f"{len(names)} sessions are called {wanted}…: say more of the id", who=self.folder)
        if not names:
            raise NoSession(f"there is no session {wanted}", who=self.folder)
        return os.path.join(self.folder, names[0])

    def list(self) -> list[SessionSummary]:
        """All that can be listed, the newest first."""
        return self.scan().sessions

    def find_latest(self, cwd: str, *, begun: bool = False) -> SessionSummary | None:
        """The one of that folder in which something happened last. `begun`: not one in which nothing was said yet."""
        places = {os.path.abspath(cwd), os.path.realpath(cwd)}
        here = sorted((one for one in self.list() if one.meta.cwd in places), key=lambda one: -one.modified)
        return next((one for one in here if not begun or self._says_something(one)), None)

    def _says_something(self, one: SessionSummary) -> bool:
        try:
            with StoredSession(one.path, limits=self._limits) as session:
                return bool(session.leaf)
        except SeraiError:  # it is gone by now, or cannot be read
            return False

    def scan(self) -> SessionListing:
        """Look at the end of each file, else at its beginning, and never at all of it. One bad file hurts itself alone."""
        found, problems = [], []
        for name in self._list_names():
            try:
                found.append(_read_summary(os.path.join(self.folder, name), name.removesuffix(SUFFIX)))
            except OSError as error:
                problems.append(f"{name}: {error.strerror}")
            except ValueError as error:
                problems.append(f"{name}: {error}")
        found.sort(key=lambda one: (-entries.parse_time(one.meta.created), one.id))
        return SessionListing(found, problems)

    def _list_names(self) -> Iterator[str]:
        try:
            with os.scandir(self.folder) as names:
                yield from sorted(item.name for item in names if item.name.endswith(SUFFIX))
        except FileNotFoundError:
            return
        except OSError as error:
            raise NoSession(f"the sessions cannot be listed: {error.strerror}", who=self.folder) from None

    def _clean(self) -> None:
        """Drafts of somebody who was killed while making a session; a young one may still be under way."""
        with suppress(OSError), os.scandir(self.folder) as items:
            for item in items:
                if item.name.endswith(DRAFT) and item.stat(follow_symlinks=False).st_mtime < time.time() - _ABANDONED:
                    os.unlink(item.path)

    def _make_folder(self) -> None:
        """Of mode 0750 whatever the umask says (spec piglet 6.1); one that was there is never opened up, only closed to others."""
        try:
            if os.path.isdir(self.folder):
                mode = stat.S_IMODE(os.stat(self.folder).st_mode)
                if mode & 0o027:
                    os.chmod(self.folder, mode & 0o750)
                return
            paths.make_private_folder(self.folder)
            os.chmod(self.folder, 0o750)  # noqa: S103 (spec piglet 6.1)
        except OSError as error:
            raise NotWritten(f"the folder of sessions cannot be used: {error.strerror}", who=self.folder) from None


def _read_summary(path: str, id: str) -> SessionSummary:
    """What a session is about. A `ValueError` says why it cannot be told."""
    descriptor = os.open(path, _LOOK)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise ValueError("it is no regular file")
        start = max(0, about.st_size - CHUNK)
        last = os.pread(descriptor, CHUNK, start)
        found = find_meta(last[last.find(b"\n") + 1 :] if start else last)
        if found is None and start:
            first = os.pread(descriptor, CHUNK, 0)
            found = find_meta(first[: first.rfind(b"\n") + 1])
    finally:
        os.close(descriptor)
    if found is None:
        raise ValueError("session file has no metadata" if not start else "no metadata at its beginning or end")
    return SessionSummary(id, path, found[0], about.st_size, about.st_mtime)


class BufferedSessionWriter(Protocol):
    """Who writes into the current session, and may have something that is not written yet."""

    def flush(self) -> None: ...
    def write(self) -> None: ...
    def forget(self) -> None: ...


class CurrentSession:
    """The session that everybody acts on, also after another was loaded or forked (FIX-20).

    Who keeps a `Session` keeps one that may be closed under them; who keeps this asks for it each time. Nothing of one session gets
    into another: those who write into it (`writers`) finish what they have before it is left.
    """

    def __init__(self, session: StoredSession | None = None) -> None:
        self._session = session
        self.writers: list[BufferedSessionWriter] = []
        self.after_fork()
        on_fork(self)

    def after_fork(self) -> None:
        self.turn = threading.RLock()  # one writes, or another session becomes the current one

    @property
    def session(self) -> StoredSession:
        if self._session is None:
            raise NoSession("no active session", hint="start one, or load one of `serai session list`")
        return self._session

    def swap(self, session: StoredSession, *, force: bool = False) -> None:
        """From now on this one is meant; the old one gets what is still to be written to it, and is closed.

        When that cannot be written the old one stays, unless it is `force`d: then it is lost.
        """
        with self.turn:
            if session is self._session:
                return
            try:
                self._finish()
            except SeraiError:
                if not force:
                    raise
                for writer in self.writers:
                    writer.forget()
            self._replace(session)

    def fork(self) -> StoredSession:
        """Go on in a fork: a turn that is under way goes on there."""
        with self.turn:
            for writer in self.writers:
                writer.write()
            fork = self.session.fork()
            self.session.sync()
            self._replace(fork)
            return fork

    def close(self) -> None:
        """What can be written is; the session is closed in any case."""
        with self.turn:
            try:
                self._finish()
            finally:
                self._replace(None)

    def _finish(self) -> None:
        if self._session is not None:
            for writer in self.writers:
                writer.flush()
            if not self._session.closed:
                self._session.sync()

    def _replace(self, session: StoredSession | None) -> None:
        old, self._session = self._session, session
        if old is not None:
            old.close()

"""Sessions on disk: a list of them, another one, and what is written to the current one (spec piglet 6.1, 7.1)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from serai.app.services.router import Data, NoArguments, Operation
from serai.errors import BadRequest, NoSession, NotAllowed
from serai.store import entries
from serai.store.session_folder import CurrentSession, SessionSummary
from serai.store.session_folder import SessionFolder as Folder
from serai.store.session_tree import TreeRow
from serai.store.stored_session import SUFFIX, StoredSession


class PathArgs(msgspec.Struct, frozen=True):
    path: str


class TitleArgs(msgspec.Struct, frozen=True):
    title: str


class EntryArgs(msgspec.Struct, frozen=True):
    kind: str
    data: Any = None


class SearchArgs(msgspec.Struct, frozen=True):
    role: str
    content: str


class LabelArgs(msgspec.Struct, frozen=True):
    target_id: str
    label: str = ""


class BranchArgs(msgspec.Struct, frozen=True):
    entry_id: str
    summary: str | None = None


class SessionService:
    """`folder` has all sessions and `current` is the one that counts; without them there is no active session.

    `swap` makes another one the current one, `refresh` reads the current one again: both put the agent's conversation and the tools
    it is offered in order, for which nothing may work on it: `idle` raises otherwise. `titled` is told of a new title.
    """

    def __init__(
        self,
        folder: Folder | None,
        current: CurrentSession | None,
        *,
        swap: Callable[[StoredSession], Awaitable[object]],
        refresh: Callable[[], object],
        idle: Callable[[], None],
        titled: Callable[[str], object] = lambda _title: None,
    ) -> None:
        self._folder = folder
        self._current = current
        self._swap = swap
        self._refresh = refresh
        self._must_be_idle = idle
        self._titled = titled
        self.operations: Mapping[str, Operation[Any]] = {
            "list": Operation(NoArguments, self.list),
            "load": Operation(PathArgs, self.load),
            "fork": Operation(NoArguments, self.fork),
            "title": Operation(NoArguments, self.title),
            "set_title": Operation(TitleArgs, self.set_title),
            "append": Operation(EntryArgs, self.append),
            "say": Operation(SearchArgs, self.say),
            "label": Operation(LabelArgs, self.label),
            "branch": Operation(BranchArgs, self.branch),
            "reset": Operation(NoArguments, self.reset),
            "entries": Operation(NoArguments, self.entries),
            "tree": Operation(NoArguments, self.tree),
        }

    # -- which one

    async def list(self, _guest: str, _arguments: NoArguments) -> Data:
        """The newest first."""
        if self._folder is None:
            return {"sessions": []}
        return {"sessions": [_dump_summary(one) for one in await asyncio.to_thread(self._folder.list)]}  # there may be thousands

    async def load(self, guest: str, wanted: PathArgs) -> Data:
        """Go on in another session, of those in the folder of sessions."""
        if self._folder is None:
            raise _build_error()
        self._must_be_idle()
        await self._switch_to(self._folder.open(_path_to_id(wanted.path, self._folder.folder, guest)))
        return {}

    async def fork(self, _guest: str, _arguments: NoArguments) -> Data:
        """Go on in a copy of the conversation as it stands."""
        self._must_be_idle()
        parent = self._get_session()
        fork = parent.fork()
        data = {"parent_id": parent.id, "message_count": fork.meta.fork_point}
        await self._switch_to(fork, made=True)
        return data

    async def _switch_to(self, stored: StoredSession, *, made: bool = False) -> None:
        """`made`: for this alone, so that it goes when it cannot be."""
        try:
            await self._swap(stored)
        except BaseException:
            stored.close()
            if made:
                with suppress(OSError):
                    os.unlink(stored.file)
            raise

    # -- what is written to it

    async def title(self, _guest: str, _arguments: NoArguments) -> Data:
        try:
            return {"title": self._get_session().meta.title}
        except NoSession:
            return {"title": ""}

    async def set_title(self, _guest: str, wanted: TitleArgs) -> Data:
        self._get_session().set_title(wanted.title)
        self._titled(wanted.title)
        return {}

    async def append(self, _guest: str, wanted: EntryArgs) -> Data:
        """Something of the guest's own; no message."""
        return {"id": self._get_session().append_entry(wanted.kind, wanted.data).id}

    async def say(self, guest: str, wanted: SearchArgs) -> Data:
        """A message that is part of the conversation when it is read again."""
        if wanted.role not in ("user", "assistant"):
            raise BadRequest(f"say: the role is user or assistant, not {wanted.role!r}", who=guest)
        return {"id": self._get_session().append_custom(wanted.role, wanted.content).id}

    async def label(self, _guest: str, wanted: LabelArgs) -> Data:
        """A name for an entry; an empty one takes it away."""
        self._get_session().label(wanted.target_id, wanted.label)
        return {}

    async def branch(self, _guest: str, wanted: BranchArgs) -> Data:
        """Go on from that entry."""
        self._must_be_idle()
        self._get_session().branch(wanted.entry_id, wanted.summary or "")
        self._refresh()
        return {}

    async def reset(self, _guest: str, _arguments: NoArguments) -> Data:
        """Go on from nothing, in the same file."""
        self._must_be_idle()
        self._get_session().reset()
        self._refresh()
        return {}

    # -- what is in it

    async def entries(self, _guest: str, _arguments: NoArguments) -> Data:
        """The active path, from its root to the leaf."""
        return {"entries": [_dump_entry(row) for row in self._get_session().read_tree().list_rows() if row.active]}

    async def tree(self, _guest: str, _arguments: NoArguments) -> Data:
        return {"nodes": [_dump_entry(row) | _dump_node(row) for row in self._get_session().read_tree().list_rows()]}

    def _get_session(self) -> StoredSession:
        if self._current is None:
            raise _build_error()
        return self._current.session


def _path_to_id(path: str, folder: str, guest: str) -> str:
    """Links count as where they lead: nothing from elsewhere becomes a session."""
    real = "" if "\0" in path else os.path.realpath(path)  # which takes no NUL, and no file has one
    if os.path.dirname(real) != os.path.realpath(folder) or not real.endswith(SUFFIX):
        raise NotAllowed(f"{path} is no session of this person", who=guest, hint=f"only what is in {folder} is loaded")
    return os.path.basename(real).removesuffix(SUFFIX)


def _build_error() -> NoSession:
    return NoSession("no active session", hint="this run keeps none")


def _dump_summary(one: SessionSummary) -> Data:
    meta, created = one.meta, entries.parse_time(one.meta.created)
    data = {"id": one.id, "title": meta.title, "cwd": meta.cwd, "created_at": _format_time(created), "path": one.path}
    return data | ({"parent_id": meta.parent} if meta.parent else {})


def _format_time(ns: int) -> str:
    return entries.format_time(ns)[:19] + "Z" if ns else entries.ZERO


def _dump_entry(row: TreeRow) -> Data:
    data: Data = {"id": row.id, "type": row.type, "timestamp": row.ts, "children": row.children}
    return data | ({"parent_id": row.parent} if row.parent else {})


def _dump_node(row: TreeRow) -> Data:
    data: Data = {"on_active_path": row.active, "depth": row.depth}
    others = {"preview": row.preview, "label": row.label, "tokens_before": row.tokens_before}
    return data | {key: value for key, value in others.items() if value}

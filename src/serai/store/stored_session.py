"""A session that is open: what happens is appended to it, and what was said is read back (spec piglet 6.1).

The file is the truth. A handle remembers only where the file ended and what it ended with; when somebody else has appended since,
it looks at the end again before it appends, so that all of them make one chain.
"""

from __future__ import annotations

import logging
import os
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import msgspec
from msgspec import Raw

from serai.errors import BadSession, LimitHit, NoEntry, NotAllowed, NotWritten
from serai.limits import KIB, StoreLimits
from serai.store import entries, messages, session_tree
from serai.store.entries import ReadProblems, SessionEntry, SessionMeta
from serai.store.messages import Item, StoredMessage
from serai.store.session_file import SessionFile, create_session_file
from serai.store.session_tree import SessionTree, Until, decode_messages, list_raw_messages
from serai.wire import codec

SUFFIX = ".jsonl"
# What only the session itself writes.
RESERVED = frozenset(
    {"", "meta", "user", "assistant", "tool_result", "compact", "branch_summary", "custom_message", "label", "event", "plugins"}
)

# A meta is written again and again, and found only if it fits into what a list reads of a file beside `session_meta`.
_META = 16 * KIB

_log = logging.getLogger(__name__)


class UnfitEntry(NotWritten):
    """An entry that no session takes: it is too long, or no JSON. Keep less of it."""

    default_hint = "keep less in one entry, and only what JSON can say: other readers would skip it"


class StoredSession:
    """A handle on one session's file; several may be open, here and in other processes. Close it, or use it with `with`."""

    def __init__(self, path: str, *, limits: StoreLimits | None = None) -> None:
        """Reads no more than the end of the file."""
        self.file = os.path.abspath(path)
        self.id = os.path.basename(self.file).removesuffix(SUFFIX)
        self.problems: tuple[str, ...] = ()  # what the last reading had to skip
        self._limits = limits or StoreLimits()
        self._key = _compute_key(self.id)
        self._disk = SessionFile(self.file, self._limits)
        self._leaf = ""  # this and what follows was true when the file was as long as `_disk.seen`
        self._meta = SessionMeta(id=self.id)
        self._meta_at = 0
        try:
            known = self._read_end()
        except BaseException:
            self.close()
            raise
        if not known:
            self.close()
            raise BadSession("session file has no metadata", who=self.file)

    @classmethod
    def create(cls, folder: str, meta: SessionMeta | None = None, *, limits: StoreLimits | None = None) -> StoredSession:
        """A new one in that folder, which is there; it is on the disk when this returns. Its id and its time are made here."""
        id = str(uuid.uuid4())
        meta = msgspec.structs.replace(meta or SessionMeta(id=id), id=id, created=entries.format_time())
        path = os.path.join(folder, id + SUFFIX)
        create_session_file(path, iter([_encode_meta(meta, path)]))
        return cls(path, limits=limits)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """May be called again. Nothing waits to be written."""
        self._disk.close()

    @property
    def closed(self) -> bool:
        return self._disk.closed

    @property
    def meta(self) -> SessionMeta:
        """As of the last append or reading."""
        return self._meta

    @property
    def leaf(self) -> str:
        """The id of the last entry as of the last append; empty for an empty session."""
        return self._leaf

    # -- reading

    def read_messages(self) -> list[StoredMessage]:
        """The conversation as it stands, read from the end of the file; calls that were interrupted have a result saying so."""
        problems = ReadProblems()
        said = decode_messages(self._read_path("compact", problems), problems)
        self._report_problems(problems)
        return said

    def read_path(self) -> list[SessionEntry]:
        """All entries of the active path, from its root."""
        problems = ReadProblems()
        found = self._read_path("root", problems)
        self._report_problems(problems)
        return found

    def read_tree(self) -> SessionTree:
        """Everything that was ever written."""
        self._catch_up()
        problems = ReadProblems()
        tree = session_tree.load(self._disk, problems)
        self._report_problems(problems)
        return tree

    def _read_path(self, until: Until, problems: ReadProblems) -> list[SessionEntry]:
        self._catch_up()
        return session_tree.read_tail(self._disk, problems, until=until).path

    def _catch_up(self) -> None:
        """What others have changed is true for who reads, too."""
        with self._disk.hold_for_update() as outdated:
            if outdated:
                self._read_end()

    def _read_end(self) -> bool:
        """Learn how the file ends, and whether there is a meta at all."""
        problems = ReadProblems()
        size = self._disk.size
        end = session_tree.read_tail(self._disk, problems, until="leaf", meta=True)
        self._report_problems(problems)
        self._leaf = end.path[-1].id if end.path else ""
        if end.meta is None:
            self._meta_at = -self._limits.session_meta  # so that whatever is appended next brings it along
            return False
        self._meta, self._meta_at = end.meta, end.meta_at
        # What has no end yet may be half of something that is still being written: then look again before appending.
        self._disk.seen = -1 if self._disk.ends_open(size) else size
        return True

    def _report_problems(self, problems: ReadProblems) -> None:
        if problems.texts and problems.texts != self.problems:
            _log.warning("%s: %d lines were skipped; the first: %s", self.file, problems.count, problems.texts[0])
        self.problems = problems.texts

    # -- writing

    def say(self, message: StoredMessage, *, sync: bool = False) -> SessionEntry:
        """Append a message of whatever kind."""
        try:
            data = messages.encode(message)
        except ValueError as error:
            raise UnfitEntry(f"the message is no JSON: {error}", who=self.file) from None
        return self.append(messages.get_role(message), data, sync=sync)

    def append_user(self, text: str, blocks: Sequence[Item] = (), *, sync: bool = False) -> SessionEntry:
        """Append what a person said."""
        return self.say(messages.UserMessage(text, tuple(blocks), entries.format_time()), sync=sync)

    def append_custom(self, role: str, content: str) -> SessionEntry:
        """Append a guest's message: part of the conversation from the next reading on."""
        return self.append("custom_message", {"role": role, "content": content})

    def append_entry(self, type: str, data: object) -> SessionEntry:
        """Append something of an extension's own; no part of the conversation."""
        if type in RESERVED:
            hint = "choose a type of your own, such as ext:NAME:WHAT"
            raise NotAllowed(f"entries of type {type!r} are written by the session itself", who=self.file, hint=hint)
        return self.append(type, data)

    def compact(self, kept: Sequence[StoredMessage], tokens_before: int = 0) -> SessionEntry:
        """From here on the conversation is these messages; what was before stays in the tree."""
        data = [{"type": messages.get_role(message), "ts": entries.ZERO, "data": messages.encode(message)} for message in kept]
        return self.append("compact", data, tokens_before=tokens_before)

    def label(self, target: str, text: str) -> SessionEntry:
        """Give an entry a name, or with an empty text take it away."""
        with self._lock_for_write() as size:
            self._check_entry(target)
            return self._write(size, "label", {"targetId": target, "label": text}, self._leaf)

    def branch(self, to: str, summary: str = "") -> SessionEntry:
        """Go on from that entry; what came after it stays in the tree."""
        with self._lock_for_write() as size:
            self._check_entry(to)
            return self._write(size, "branch_summary", {"summary": summary, "fromId": self._leaf}, to)

    def reset(self, summary: str = "") -> SessionEntry:
        """Go on from nothing: an empty conversation beside the old one."""
        with self._lock_for_write() as size:
            return self._write(size, "branch_summary", {"summary": summary, "fromId": self._leaf}, "")

    def keep_plugins(self, plan: object) -> None:
        """Which plugins run in it, with what they were granted: who goes on with it has those again (spec yoi 10.2)."""
        self.update_meta(plugins=self.append("plugins", plan).id)

    def read_plugins(self) -> Raw | None:
        """What was kept of that last."""
        self._catch_up()
        found = session_tree.find_entry(self._disk, self._meta.plugins) if self._meta.plugins else None
        return found.raw if found is not None and found.type == "plugins" else None

    def set_title(self, text: str) -> None:
        self.update_meta(title=text)

    def set_model(self, name: str) -> None:
        self.update_meta(model=name)

    def update_meta(self, **changes: Any) -> None:
        """Change fields of the meta; what others have changed meanwhile stays."""
        with self._lock_for_write() as size:
            meta = msgspec.structs.replace(self._meta, **changes)
            start, gap = self._find_start(size)
            line = self._check_length(_encode_meta(meta, self.file))
            self._disk.write(gap + line, size)
            self._meta, self._meta_at, self._disk.seen = meta, start, start + len(line)

    def append(self, type: str, data: object, *, tokens_before: int = 0, sync: bool = False) -> SessionEntry:
        """Append a child of the leaf, which becomes the leaf. All of it is written, or nothing and an error is raised."""
        if type == "meta":
            raise NotAllowed("a meta is no entry of the tree", who=self.file, hint="`about` changes it")
        with self._lock_for_write() as size:
            entry = self._write(size, type, data, self._leaf, tokens_before)
        if sync:
            self.sync()
        return entry

    def sync(self) -> None:
        """All that was appended is on the disk when this returns."""
        self._disk.sync()

    def fork(self) -> StoredSession:
        """A new session that begins with this conversation as it stands after compaction (spec piglet 6.1)."""
        problems = ReadProblems()
        said = list(_as_messages(list_raw_messages(self._read_path("compact", problems))))
        self._report_problems(problems)
        id = str(uuid.uuid4())
        meta = SessionMeta(id=id, cwd=self._meta.cwd, model=self._meta.model, created=entries.format_time(), agent=self._meta.agent)
        path = os.path.join(os.path.dirname(self.file), id + SUFFIX)
        forked = msgspec.structs.replace(meta, parent=self.id, fork_point=len(said))
        create_session_file(path, self._iter_fork_lines([meta.encode_line(), forked.encode_line()], said, _compute_key(id)))
        fork = StoredSession(path, limits=self._limits)
        if (plan := self.read_plugins()) is not None:
            fork.keep_plugins(plan)
        return fork

    def _iter_fork_lines(self, metas: list[bytes], said: list[tuple[str, Raw]], key: int) -> Iterator[bytes]:
        """The lines of a fork: its metas, each message as a child of the one before, and the meta again when it is far by then."""
        yield from metas
        at, parent = sum(map(len, metas)), ""
        for type_, raw in said:
            entry = SessionEntry(type_, _compute_id(at, key, parent), parent, entries.format_time(), raw)
            line = self._encode_line(entry)
            yield line
            at, parent = at + len(line), entry.id
        if at > self._limits.session_meta:
            yield metas[-1]

    @contextmanager
    def _lock_for_write(self) -> Iterator[int]:
        """Hold the lock and know how the file ends; its size."""
        with self._disk.lock() as size:
            if size != self._disk.seen:
                self._read_end()
            yield size

    def _find_start(self, size: int) -> tuple[int, bytes]:
        """Where the next line begins, and what goes before it: an end for a line that somebody left without one."""
        return (size + 1, b"\n") if size != self._disk.seen and self._disk.ends_open(size) else (size, b"")

    def _write(self, size: int, type: str, data: object, parent: str, tokens_before: int = 0) -> SessionEntry:
        start, gap = self._find_start(size)
        id = _compute_id(start, self._key, self._leaf, parent)
        try:
            entry = SessionEntry(type, id, parent, entries.format_time(), entries.encode_data(data), tokens_before)
        except ValueError as error:
            raise UnfitEntry(f"the entry is no JSON: {error}", who=self.file) from None
        line = self._encode_line(entry)
        end = start + len(line)
        again = self._repeat_meta(type, end)
        self._disk.write(gap + line + again, size)
        self._leaf, self._disk.seen = entry.id, end + len(again)
        if again:
            self._meta_at = end
        return entry

    def _repeat_meta(self, type: str, end: int) -> bytes:
        """The meta, when it is far away by then or a compact has hidden it from who resumes.

        So the last 64 KiB of what we write always have one: who lists sessions, or resumes one, needs no more of the file. One to
        which others added a lot is left where it is: it would soon be all there is in the file.
        """
        if type != "compact" and end - self._meta_at <= self._limits.session_meta:
            return b""
        line = self._meta.encode_line()
        return line if len(line) <= _META else b""

    def _encode_line(self, entry: SessionEntry) -> bytes:
        try:
            return self._check_length(entries.encode(entry))
        except ValueError as error:
            raise UnfitEntry(f"the entry is no JSON: {error}", who=self.file) from None

    def _check_length(self, line: bytes) -> bytes:
        limit = LimitHit("session_line", self._limits.session_line)
        if len(line) > limit.value:
            raise UnfitEntry(f"an entry of {len(line)} bytes is too long for a session", who=self.file, limit=limit)
        return line

    def _check_entry(self, id: str) -> None:
        if not id or session_tree.find_entry(self._disk, id) is None:
            raise NoEntry(f"entry {id} not found", who=self.file, id=id)


def _compute_key(id: str) -> int:
    return zlib.crc32(id.encode(errors="surrogateescape"))


def _compute_id(offset: int, key: int, *taken: str) -> str:
    """8 hex digits for the entry that begins at this offset: of 100,000 random ids two are more likely equal than not.

    The factor is odd, so that within 4 GiB no other offset has the same ones. Those of other writers, and of entries that were cut
    off, may: what matters is that an entry is not its own parent.
    """
    while (id := f"{(offset * 0x9E3779B1 + key) & 0xFFFFFFFF:08x}") in taken:
        offset += 1
    return id


def _encode_meta(meta: SessionMeta, who: str) -> bytes:
    """Refused when what we say in it is too long; what others added to it is theirs."""
    length = len(msgspec.structs.replace(meta, others={}).encode_line())
    if length > _META:
        hint = "choose a shorter title"
        raise UnfitEntry(f"title, model and the like take {length} bytes: at most {_META} are kept", who=who, hint=hint)
    return meta.encode_line()


def _as_messages(said: Iterable[tuple[str, Raw]]) -> Iterator[tuple[str, Raw]]:
    """Without what is none; a guest's own is a message like any other from here on."""
    for type_, raw in said:
        try:
            message = messages.decode_message(type_, raw)
        except codec.BAD_INPUT:
            continue
        yield (messages.get_role(message), messages.encode(message)) if type_ == "custom_message" else (type_, raw)

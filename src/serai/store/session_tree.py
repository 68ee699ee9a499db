"""The entries of a session together: its tree, its active path, its messages (spec piglet 6.1); whole, or from the end of the
file.

A parent is searched *above* its child in the file, and the nearest entry of that id is meant; a missing one ends the path. So
there are no cycles, and a file read from its end gives the same path as one read from its beginning (spec piglet 10.19).

Resuming a conversation reads from the end. The same decoder decodes the same lines as when a file is read whole, and nothing is
guessed from their bytes; so both agree on every file. Entries from before there were ids get theirs by counting from the
beginning: then, and only then, all is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec
from msgspec import Raw

from serai.store import entries, messages
from serai.store.entries import (
    ReadProblems,
    SessionEntry,
    SessionMeta,
    decode_run,
    find_meta,
    find_newest_meta,
    may_have_meta,
    name_legacy,
)
from serai.store.messages import AssistantMessage, StoredMessage, StoredText, UserMessage
from serai.store.session_file import SessionFile
from serai.wire import codec

PREVIEW = 60
_TALK = frozenset({"user", "assistant", "tool_result", "custom_message"})


class _SubEntry(msgspec.Struct):
    """One message inside a compact."""

    type: str
    data: Raw = Raw(b"null")


class _Label(msgspec.Struct):
    targetId: str  # noqa: N815
    label: str | None = None


_raws: msgspec.json.Decoder[list[Raw] | None] = msgspec.json.Decoder(list[Raw] | None)
_sub_entry = msgspec.json.Decoder(_SubEntry)
_label = msgspec.json.Decoder(_Label)


def decode_compact(entry: SessionEntry) -> list[Raw] | None:
    """What a compact puts in the place of everything before it, or None: one that cannot be read must not cost the history.

    Other writers say null for an empty list.
    """
    if entry.type != "compact":
        return None
    try:
        return codec.decode(_raws, entry.raw) or []
    except codec.BAD_INPUT:
        return None


# How far back a path is wanted: the last entry only, to the compact that replaced what was before it, or to the root.
Until = Literal["leaf", "compact", "root"]


class ActivePath:
    """The active path, found by being told the entries from the last to the first. Metas and entries without id are not for it."""

    __slots__ = ("_until", "_wanted", "done", "newest_first")

    def __init__(self, until: Until) -> None:
        self.newest_first: list[SessionEntry] = []
        self.done = False
        self._until = until
        self._wanted = ""

    def add(self, entry: SessionEntry) -> None:
        if self.newest_first and entry.id != self._wanted:
            return
        self.newest_first.append(entry)
        self._wanted = entry.parent
        self.done = not entry.parent or self._until == "leaf" or (self._until == "compact" and decode_compact(entry) is not None)

    @property
    def path(self) -> list[SessionEntry]:
        return self.newest_first[::-1]


def list_raw_messages(branch: Iterable[SessionEntry]) -> Iterator[tuple[str, Raw]]:
    """Type and data of every message on a path, after compaction. Not all of the data needs to be readable."""
    found: list[tuple[str, Raw]] = []
    for entry in branch:
        if entry.type in _TALK:
            found.append((entry.type, entry.raw))
        elif (inside := decode_compact(entry)) is not None:
            found = list(_iter_compact(inside))
    return iter(found)


def _iter_compact(raws: list[Raw]) -> Iterator[tuple[str, Raw]]:
    for raw in raws:
        try:
            sub = codec.decode(_sub_entry, raw)
        except codec.BAD_INPUT:
            continue
        if sub.type in _TALK:
            yield sub.type, sub.data


def decode_messages(branch: Iterable[SessionEntry], problems: ReadProblems | None = None) -> list[StoredMessage]:
    """The conversation on a path, each result after its call; a call that was interrupted has one that says so."""
    found: list[StoredMessage] = []
    for type_, raw in list_raw_messages(branch):
        try:
            found.append(messages.decode_message(type_, raw))
        except codec.BAD_INPUT as error:  # an entry all the same: the tree shows it
            if problems is not None:
                problems.tell(f"the data of an entry of type {type_} is no message: {error}")
    return messages.place_results(found)


class TreeRow(msgspec.Struct, frozen=True):
    """One entry in the full tree. `children` counts the direct ones."""

    id: str
    parent: str
    type: str
    ts: str
    at: float
    depth: int
    children: int
    active: bool
    preview: str = ""
    label: str = ""
    tokens_before: int = 0


class SessionTree:
    """All entries of a session, in the order of the file."""

    def __init__(self, entries: list[SessionEntry], problems: tuple[str, ...] = ()) -> None:
        self.entries = name_legacy([entry for entry in entries if entry.type != "meta"])
        self.meta: SessionMeta | None = find_newest_meta([entry for entry in entries if entry.type == "meta"][::-1])
        self.problems = problems

    @property
    def leaf(self) -> SessionEntry | None:
        """What the next entry would be a child of."""
        return self.entries[-1] if self.entries else None

    def find_path(self, until: Until = "root") -> list[SessionEntry]:
        """From there to the leaf."""
        active = ActivePath(until)
        for entry in reversed(self.entries):
            active.add(entry)
            if active.done:
                break
        return active.path

    def decode_messages(self) -> list[StoredMessage]:
        return decode_messages(self.find_path("compact"))

    def get(self, id: str) -> SessionEntry | None:
        """The last entry of that id."""
        return next((entry for entry in reversed(self.entries) if entry.id == id), None)

    @property
    def labels(self) -> dict[str, str]:
        """The label of each entry that has one: the last that was written for it."""
        found: dict[str, str] = {}
        for entry in self.entries:
            if entry.type == "label":
                try:
                    written = codec.decode(_label, entry.raw)
                except codec.BAD_INPUT:
                    continue
                found[written.targetId] = written.label or ""
        return {target: text for target, text in found.items() if text}

    def list_rows(self) -> list[TreeRow]:
        """Depth first; roots by time; of the children the active one first, then by time."""
        children = self._map_children()
        active = self._find_active_places()
        labels = self.labels
        rows: list[TreeRow] = []
        waiting = [(place, 0) for place in reversed(self._sort_places(children.get(-1, []), set()))]
        while waiting:
            place, depth = waiting.pop()
            below = children.get(place, [])
            entry = self.entries[place]
            rows.append(
                TreeRow(
                    entry.id,
                    entry.parent,
                    entry.type,
                    entry.ts,
                    entry.at,
                    depth,
                    len(below),
                    place in active,
                    format_preview(entry),
                    labels.get(entry.id, ""),
                    entry.tokens_before,
                )
            )
            waiting += [(child, depth + 1) for child in reversed(self._sort_places(below, active))]
        return rows

    def _map_children(self) -> dict[int, list[int]]:
        """The places in `entries` of each entry's children; under -1 those of the roots."""
        nearest: dict[str, int] = {}
        children: dict[int, list[int]] = {}
        for place, entry in enumerate(self.entries):
            above = nearest.get(entry.parent, -1) if entry.parent else -1
            children.setdefault(above, []).append(place)
            nearest[entry.id] = place
        return children

    def _find_active_places(self) -> set[int]:
        """By place and not by id: an id may be there twice."""
        on_path = self.find_path()
        places: set[int] = set()
        for place in range(len(self.entries) - 1, -1, -1):
            if on_path and self.entries[place] is on_path[-1]:
                on_path.pop()
                places.add(place)
        return places

    def _sort_places(self, places: list[int], active: set[int]) -> list[int]:
        return sorted(places, key=lambda place: (place not in active, entries.parse_time(self.entries[place].ts)))


def format_preview(entry: SessionEntry) -> str:
    """The beginning of what was said, for a line in a list; empty for what is no text."""
    if entry.type not in ("user", "assistant"):
        return ""
    try:
        message = messages.decode_message(entry.type, entry.raw)
    except codec.BAD_INPUT:
        return ""
    text = ""
    if isinstance(message, UserMessage):
        text = message.content
    elif isinstance(message, AssistantMessage):
        text = next((item.text for item in message.content if isinstance(item, StoredText)), "")
    return text[:PREVIEW] + "..." if len(text) > PREVIEW else text


class SessionTail(NamedTuple):
    """The active path as far as it was wanted, and the newest meta with its offset in the file."""

    path: list[SessionEntry]
    meta: SessionMeta | None = None
    meta_at: int = 0


def load(file: SessionFile, problems: ReadProblems) -> SessionTree:
    """Everything."""
    entries: list[SessionEntry] = []
    for some in file.read_forwards(0, problems):
        entries += some
    return SessionTree(entries, problems.texts)


def read_tail(file: SessionFile, problems: ReadProblems, *, until: Until, meta: bool = False) -> SessionTail:
    """The path up to there, and the meta when that is wanted too."""
    active = ActivePath(until)
    found: tuple[SessionMeta, int] | None = None
    for at, run in file.read_backwards(problems):
        if active.done and not may_have_meta(run):  # then only the meta is missing
            continue
        entries = decode_run(run, at, problems)
        for entry in reversed(entries):
            if entry.type != "meta" and not active.done:
                if not entry.id:
                    return _read_all(file, until)
                active.add(entry)
        if meta and found is None:
            found = (last[0], at + last[1]) if (last := find_meta(run)) else None
        if active.done and (found or not meta):
            break
    return SessionTail(active.path, *(found or (None, 0)))


def _read_all(file: SessionFile, until: Until) -> SessionTail:
    tree = load(file, ReadProblems())
    return SessionTail(tree.find_path(until), tree.meta)


def find_entry(file: SessionFile, id: str) -> SessionEntry | None:
    """The last entry of that id."""
    for at, run in file.read_backwards(problems := ReadProblems()):
        for entry in reversed(decode_run(run, at, problems)):
            if entry.type == "meta":
                continue
            if not entry.id:
                return load(file, ReadProblems()).get(id)
            if entry.id == id:
                return entry
    return None

"""What the entries of a session say together: its tree, its active path, its messages (spec piglet 6.1). Pure.

A parent is looked for *above* its child in the file, and the nearest entry of that id is meant; what is not there ends the path. So
there are no cycles, and a file read from its end gives the same path as one read from its beginning (spec piglet 10.19).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec
from msgspec import Raw

from serai.store import messages, times
from serai.store.entries import Entry, Meta, Problems, name_legacy, newest_meta
from serai.store.messages import AssistantMessage, Message, Text, UserMessage
from serai.wire import codec

__all__ = ["Active", "Row", "Tree", "Until", "compacted", "messages_of", "spoken"]

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


def compacted(entry: Entry) -> list[Raw] | None:
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


class Active:
    """The active path, found by being told the entries from the last to the first. Metas and entries without id are not for it."""

    __slots__ = ("_until", "_wanted", "done", "newest_first")

    def __init__(self, until: Until) -> None:
        self.newest_first: list[Entry] = []
        self.done = False
        self._until = until
        self._wanted = ""

    def tell(self, entry: Entry) -> None:
        if self.newest_first and entry.id != self._wanted:
            return
        self.newest_first.append(entry)
        self._wanted = entry.parent
        self.done = not entry.parent or self._until == "leaf" or (self._until == "compact" and compacted(entry) is not None)

    @property
    def path(self) -> list[Entry]:
        return self.newest_first[::-1]


def spoken(branch: Iterable[Entry]) -> Iterator[tuple[str, Raw]]:
    """Type and data of every message on a path, after compaction. Not all of the data needs to be readable."""
    found: list[tuple[str, Raw]] = []
    for entry in branch:
        if entry.type in _TALK:
            found.append((entry.type, entry.raw))
        elif (inside := compacted(entry)) is not None:
            found = list(_inside(inside))
    return iter(found)


def _inside(raws: list[Raw]) -> Iterator[tuple[str, Raw]]:
    for raw in raws:
        try:
            sub = codec.decode(_sub_entry, raw)
        except codec.BAD_INPUT:
            continue
        if sub.type in _TALK:
            yield sub.type, sub.data


def messages_of(branch: Iterable[Entry], problems: Problems | None = None) -> list[Message]:
    """The conversation on a path, each result after its call; a call that was interrupted has one that says so."""
    found: list[Message] = []
    for type_, raw in spoken(branch):
        try:
            found.append(messages.decode_message(type_, raw))
        except codec.BAD_INPUT as error:  # an entry all the same: the tree shows it
            if problems is not None:
                problems.tell(f"the data of an entry of type {type_} is no message: {error}")
    return messages.with_results(found)


class Row(msgspec.Struct, frozen=True):
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


class Tree:
    """All entries of a session, in the order of the file."""

    def __init__(self, entries: list[Entry], problems: tuple[str, ...] = ()) -> None:
        self.entries = name_legacy([entry for entry in entries if entry.type != "meta"])
        self.meta: Meta | None = newest_meta([entry for entry in entries if entry.type == "meta"][::-1])
        self.problems = problems

    @property
    def leaf(self) -> Entry | None:
        """What the next entry would be a child of."""
        return self.entries[-1] if self.entries else None

    def path(self, until: Until = "root") -> list[Entry]:
        """From there to the leaf."""
        active = Active(until)
        for entry in reversed(self.entries):
            active.tell(entry)
            if active.done:
                break
        return active.path

    def messages(self) -> list[Message]:
        return messages_of(self.path("compact"))

    def get(self, id: str) -> Entry | None:
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

    def full(self) -> list[Row]:
        """Depth first; roots by time; of the children the active one first, then by time."""
        children = self._children()
        active = self._active_places()
        labels = self.labels
        rows: list[Row] = []
        waiting = [(place, 0) for place in reversed(self._in_order(children.get(-1, []), set()))]
        while waiting:
            place, depth = waiting.pop()
            below = children.get(place, [])
            entry = self.entries[place]
            rows.append(
                Row(
                    entry.id,
                    entry.parent,
                    entry.type,
                    entry.ts,
                    entry.at,
                    depth,
                    len(below),
                    place in active,
                    preview(entry),
                    labels.get(entry.id, ""),
                    entry.tokens_before,
                )
            )
            waiting += [(child, depth + 1) for child in reversed(self._in_order(below, active))]
        return rows

    def _children(self) -> dict[int, list[int]]:
        """The places in `entries` of each entry's children; under -1 those of the roots."""
        nearest: dict[str, int] = {}
        children: dict[int, list[int]] = {}
        for place, entry in enumerate(self.entries):
            above = nearest.get(entry.parent, -1) if entry.parent else -1
            children.setdefault(above, []).append(place)
            nearest[entry.id] = place
        return children

    def _active_places(self) -> set[int]:
        """By place and not by id: an id may be there twice."""
        on_path = self.path()
        places: set[int] = set()
        for place in range(len(self.entries) - 1, -1, -1):
            if on_path and self.entries[place] is on_path[-1]:
                on_path.pop()
                places.add(place)
        return places

    def _in_order(self, places: list[int], active: set[int]) -> list[int]:
        return sorted(places, key=lambda place: (place not in active, times.parse(self.entries[place].ts)))


def preview(entry: Entry) -> str:
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
        text = next((item.text for item in message.content if isinstance(item, Text)), "")
    return text[:PREVIEW] + "..." if len(text) > PREVIEW else text

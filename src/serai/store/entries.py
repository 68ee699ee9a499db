"""The lines of a session's file: entries, and the meta among them (spec piglet 6.1).

Every line is decoded by itself and only as deep as the tree needs it: an entry's `raw` data stays bytes until it is used. A line
that is not an entry is skipped, reported as a problem, and affects no other. Times are RFC 3339, in UTC, to the nanosecond.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from datetime import date
from io import BytesIO
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from serai.wire import codec

# What other writers put where no time was set.
ZERO = "0001-01-01T00:00:00Z"

_SECOND = 1_000_000_000
_FORM = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ]([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)(?:[.,](\d+))?(?:[Zz]|([+-])(\d\d):?([0-5]\d))?", re.ASCII
)
_EPOCH = date(1970, 1, 1).toordinal()


def format_time(ns: int | None = None) -> str:
    """A time in nanoseconds since 1970, or now."""
    seconds, rest = divmod(time.time_ns() if ns is None else ns, _SECOND)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:09}Z"


def parse_time(written: str) -> int:
    """Nanoseconds since 1970; 0 for the zero time and for what is no time: nobody chokes on those (spec piglet 6.2)."""
    match = _FORM.fullmatch(written)
    if match is None or written == ZERO:
        return 0
    year, month, day, hour, minute, second, fraction, sign, ahead, minutes = match.groups()
    try:
        days = date(int(year), int(month), int(day)).toordinal() - _EPOCH
    except ValueError:  # the 30th of February
        return 0
    seconds = ((days * 24 + int(hour)) * 60 + int(minute)) * 60 + int(second)
    if sign:
        offset = (int(ahead) * 60 + int(minutes)) * 60
        seconds += offset if sign == "-" else -offset
    return seconds * _SECOND + int((fraction or "0")[:9].ljust(9, "0"))


T = TypeVar("T")

NULL = Raw(b"null")


class SessionEntry(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One line. Only a meta has no `id`; only a root has no `parent`; `tokens_before` is a compact's."""

    type: str
    id: str = ""
    parent: str = msgspec.field(default="", name="parentId")
    ts: str = ""
    raw: Raw = msgspec.field(default=NULL, name="data")
    tokens_before: int = msgspec.field(default=0, name="tokensBefore")

    @property
    def data(self) -> Any:
        """What it carries, decoded anew each time; None when that cannot be."""
        try:
            return codec.decode(_anything, self.raw)
        except codec.BAD_INPUT:  # such as a number that no float holds
            return None

    @property
    def at(self) -> float:
        """Seconds since 1970; 0 when nobody set it."""
        return parse_time(self.ts) / 1e9


class _Loose(msgspec.Struct):
    """The same, where others write null for what is not there, and a float for a count."""

    type: str
    id: str | None = None
    parentId: str | None = None  # noqa: N815
    ts: str | None = None
    data: Raw = NULL
    tokensBefore: int | float | None = None  # noqa: N815


_anything: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_loose = msgspec.json.Decoder(_Loose)
_decode = msgspec.json.Decoder(SessionEntry).decode
members: msgspec.json.Decoder[dict[str, Raw]] = msgspec.json.Decoder(dict[str, Raw])


class ReadProblems:
    """What was skipped, and why. The first hundred are kept, the rest is counted: a file may have millions."""

    __slots__ = ("_kept", "count")
    MOST = 100

    def __init__(self) -> None:
        self._kept: list[str] = []
        self.count = 0

    def add(self, at: int, why: str) -> None:
        """Something at this offset in the file was skipped."""
        self.tell(f"byte {at}: {why}")

    def tell(self, text: str) -> None:
        self.count += 1
        if self.count <= self.MOST:
            self._kept.append(text)

    @property
    def texts(self) -> tuple[str, ...]:
        more = self.count - len(self._kept)
        return (*self._kept, f"and {more} more") if more else tuple(self._kept)


def decode_run(run: bytes, at: int, problems: ReadProblems) -> list[SessionEntry]:
    """The entries of whole lines that begin at offset `at`, in order.

    Not by msgspec's `decode_lines`: it also takes an object spread over lines and two on one line, which here are a torn entry
    and a corrupt line.
    """
    lines = BytesIO(run).readlines()
    rest = iter(lines)
    entries: list[SessionEntry] = []
    done = 0
    while True:
        before = len(entries)
        try:
            entries += map(_decode, rest)
            return entries
        except codec.BAD_INPUT:  # by one line; those before it are in the list, those after it still in `rest`
            bad = done + len(entries) - before
            at += sum(map(len, lines[done:bad]))
            if line := lines[bad].strip(b" \t\r\n"):
                entries += _repair_line(line, at, problems)
            at += len(lines[bad])
            done = bad + 1


def _repair_line(line: bytes, at: int, problems: ReadProblems) -> Iterator[SessionEntry]:
    """An entry that only its text or its nulls made unreadable, or nothing."""
    try:
        found = codec.decode(_loose, line)
        tokens = found.tokensBefore or 0
        if tokens != int(tokens):
            raise msgspec.ValidationError("tokensBefore is no whole number")
        yield SessionEntry(found.type, found.id or "", found.parentId or "", found.ts or "", found.data, int(tokens))
    except codec.BAD_INPUT as again:
        problems.add(at, f"a line that is no entry: {again}")


def encode(entry: SessionEntry) -> bytes:
    """Its line. Data that somebody laid out over several lines is closed up; what no reader would take is a `ValueError`."""
    try:
        line = codec.encode(entry)
        if line.count(b"\n") > 1:
            line = msgspec.json.format(line, indent=-1) + b"\n"
        _decode(line)
    except (*codec.BAD_INPUT, TypeError, OverflowError) as error:
        raise ValueError(str(error)) from None
    return line


def encode_data(data: object) -> Raw:
    """Any JSON data as an entry carries it."""
    if isinstance(data, Raw):
        return data
    try:
        return Raw(codec.encode(data)[:-1])
    except (*codec.BAD_INPUT, TypeError, OverflowError) as error:
        raise ValueError(str(error)) from None


def decode_fields(decoder: msgspec.json.Decoder[T], raw: Raw, *needed: str) -> T:
    """An object of optional fields. One that is odd is left out and does not cost the others, as long as those needed are sound."""
    try:
        return codec.decode(decoder, raw)
    except codec.BAD_INPUT:
        sound = {key: value for key, value in codec.decode(members, raw).items() if _is_sound(decoder, key, value)}
        if not sound.keys() >= {*needed}:
            raise
        return codec.decode(decoder, msgspec.json.encode(sound))


def _is_sound(decoder: msgspec.json.Decoder[T], key: str, value: Raw) -> bool:
    try:
        codec.decode(decoder, msgspec.json.encode({key: value}))
    except codec.BAD_INPUT:
        return False
    return True


def name_legacy(entries: list[SessionEntry]) -> list[SessionEntry]:
    """Entries from before there were ids become `L0`, `L1`, …, each the child of the one before it (spec piglet 6.1)."""
    if "" not in map(attrgetter("id"), entries):
        return entries
    named: list[SessionEntry] = []
    above, count = "", 0
    for entry in entries:
        if not entry.id:
            entry = msgspec.structs.replace(entry, id=f"L{count}", parent=above)  # noqa: PLW2901
            count += 1
        above = entry.id
        named.append(entry)
    return named


class _Known(msgspec.Struct):
    """The keys of a meta, as they stand in the file; ours are the last three."""

    id: str | None = None
    cwd: str | None = None
    model: str | None = None
    createdAt: str | None = None  # noqa: N815
    title: str | None = None
    parentId: str | None = None  # noqa: N815
    forkPoint: int | None = None  # noqa: N815
    agent: str | None = None
    agentSession: str | None = None  # noqa: N815
    plugins: str | None = None


_known = msgspec.json.Decoder(_Known)


class SessionMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is about; the last one in a file counts. `others` is what other writers say, kept as it came."""

    id: str
    cwd: str = ""
    model: str = ""
    created: str = ""
    title: str = ""
    parent: str = ""  # the session it was forked from, after so many messages
    fork_point: int | None = None
    agent: str = ""  # claude, resident, …
    agent_session: str = ""  # a driven agent's own id for it
    plugins: str = ""  # the entry that says which plugins it began with
    others: dict[str, Raw] = {}

    @property
    def at(self) -> float:
        return parse_time(self.created) / 1e9

    @classmethod
    def from_raw(cls, raw: Raw) -> SessionMeta:
        """Raises one of `codec.BAD_INPUT` when it is none."""
        known = decode_fields(_known, raw, "id")
        ours = {key for key in _Known.__struct_fields__ if getattr(known, key) is not None}
        others = {key: value.copy() for key, value in codec.decode(members, raw).items() if key not in ours and value != NULL}
        return cls(
            id=known.id or "",
            cwd=known.cwd or "",
            model=known.model or "",
            created=known.createdAt or "",
            title=known.title or "",
            parent=known.parentId or "",
            fork_point=known.forkPoint,
            agent=known.agent or "",
            agent_session=known.agentSession or "",
            plugins=known.plugins or "",
            others=others,
        )

    def encode_line(self) -> bytes:
        """It as an entry's line."""
        form: dict[str, object] = {"id": self.id, "cwd": self.cwd, "createdAt": self.created or ZERO}
        optional = {"model": self.model, "title": self.title, "parentId": self.parent, "agent": self.agent}
        form |= {key: value for key, value in optional.items() if value}
        if self.fork_point is not None:
            form["forkPoint"] = self.fork_point
        if self.agent_session:
            form["agentSession"] = self.agent_session
        if self.plugins:
            form["plugins"] = self.plugins
        return encode(SessionEntry("meta", ts=format_time(), raw=encode_data(self.others | form)))


def find_newest_meta(newest_first: Iterable[SessionEntry]) -> SessionMeta | None:
    """The first of them whose data is a meta's."""
    for entry in newest_first:
        if entry.type == "meta":
            try:
                return SessionMeta.from_raw(entry.raw)
            except codec.BAD_INPUT:
                continue  # as any other line that says nothing
    return None


def find_meta(run: bytes) -> tuple[SessionMeta, int] | None:
    """The last meta among whole lines, and where among them it begins. Only lines that may be one are decoded."""
    if not may_have_meta(run):
        return None
    at = len(run)
    for line in reversed(BytesIO(run).readlines()):
        at -= len(line)
        if may_have_meta(line) and (meta := find_newest_meta(decode_run(line, 0, ReadProblems()))):
            return meta, at
    return None


def may_have_meta(run: bytes) -> bool:
    """It would spell the word out, or escape it."""
    return b"meta" in run or b"\\u00" in run

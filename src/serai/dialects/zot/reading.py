"""Lines into the frames of one direction (spec zot 3.1 and 5.3).

Usually that is one strict decode. What it refuses gets a second, lenient look, since absence and null are the same in this
protocol; what still cannot be used is told apart and keeps its bytes.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw

from serai.dialects.zot.messages import kind_of
from serai.wire.codec import BAD_INPUT, Codec, Noise, Unknown, encode, repair, scan_head

__all__ = ["Broken", "Malformed", "Odd", "Reader", "Stray", "UnknownFrame", "shown_in"]


class Malformed(msgspec.Struct, frozen=True, gc=False):
    """A line that cannot be used: skipped, and worth a line in the log."""

    raw: bytes
    why: str


class UnknownFrame(msgspec.Struct, frozen=True, gc=False):
    """A frame of a type that this protocol does not have: kept as it came (design rule 4)."""

    kind: str
    raw: bytes

    @property
    def why(self) -> str:
        return f'unknown frame type "{self.kind}"'


class Stray(msgspec.Struct, frozen=True, gc=False):
    """A sound frame that fits nothing open: kept for the record."""

    raw: bytes
    why: str


class Broken(msgspec.Struct, frozen=True, gc=False):
    """A frame of a known type that cannot be read; `id` is empty when none is to be seen."""

    kind: str
    id: str
    raw: bytes
    why: str

    def malformed(self) -> Malformed:
        return Malformed(self.raw, f"{self.kind}: {self.why}")


Odd = Broken | UnknownFrame | Malformed
T = TypeVar("T")
_HEAD = 4096  # how far into a line that is no JSON its type and its id are looked for
_BOM = b"\xef\xbb\xbf"
# The one opaque member of a frame: null is a value there, not absence.
_OPAQUE = {
    "register_tool": "schema",
    "event_intercept_response": "modified_args",
    "tool_call": "args",
    "event": "tool_args",
    "event_intercept": "tool_args",
}

_members: msgspec.json.Decoder[dict[str, Raw]] = msgspec.json.Decoder(dict[str, Raw])
_items: msgspec.json.Decoder[list[Raw]] = msgspec.json.Decoder(list[Raw])
_string: msgspec.json.Decoder[str] = msgspec.json.Decoder(str)


class Reader(Generic[T]):
    """Reads the runs of one connection."""

    __slots__ = ("_codec", "_kinds", "_lines", "_odd")

    def __init__(self, codec: Codec[T], frames: Any) -> None:
        self._codec = codec
        self._kinds = frozenset(kind_of(frame) for frame in frames)
        self._lines = codec.reader()
        self._odd = 0  # lines that the strict decoder refused so far

    def read(self, run: bytes) -> list[T | Odd]:
        """The frames of a run, in order."""
        lines = self._lines
        found: list[Any] = lines.read(run)
        if lines.noise + lines.unknown != self._odd:
            self._odd = lines.noise + lines.unknown
            found = [self._explain(one) if isinstance(one, Unknown | Noise) else one for one in found]
        # Blank lines are malformed too; the codec drops them, so they are what is missing. A flood of them is one event.
        blank = run.count(b"\n") + (run[-1:] not in (b"\n", b"")) - len(found)
        if blank:
            found.append(Malformed(b"", "a blank line" if blank == 1 else f"{blank} blank lines"))
        return found

    def _explain(self, odd: Unknown | Noise) -> T | Odd:
        if isinstance(odd, Noise):
            kind, id = shown_in(odd.raw[:_HEAD])
            return Broken(kind, id, odd.raw, odd.why) if kind in self._kinds else Malformed(odd.raw, odd.why)
        if odd.kind is None:
            return Malformed(odd.raw, "its type is missing or no string")
        return self._read_leniently(odd, odd.kind) if odd.kind in self._kinds else UnknownFrame(odd.kind, odd.raw)

    def _read_leniently(self, odd: Unknown, kind: str) -> T | Broken:
        """Once more, with null as absence."""
        members = _members.decode(repair(odd.raw) or odd.raw)
        id = bytes(members.get("id", b""))
        if id[:1] not in (b'"', b"n", b""):  # neither a string nor null (spec zot 7.8)
            return Broken(kind, "", odd.raw, f"its id is no string: {id[:40].decode(errors='replace')}")
        kept = {name: _cleaned(name, raw) for name, raw in _without_nulls(members, _OPAQUE.get(kind)).items()}
        try:
            return self._codec.decoder.decode(encode(kept))
        except BAD_INPUT as error:
            return Broken(kind, _string_of(id), odd.raw, str(error))


def shown_in(head: bytes) -> tuple[str, str]:
    """The type and the id that the head of a line shows, each empty when it does not."""
    members = scan_head(head) if head.removeprefix(_BOM).lstrip(b" \t\r")[:1] == b"{" else {}
    return _string_of(members.get(b'"type"', b"")), _string_of(members.get(b'"id"', b""))


def _string_of(text: bytes) -> str:
    try:
        return _string.decode(text)
    except BAD_INPUT:
        return ""


def _is_null(raw: Raw) -> bool:
    return bytes(raw) == b"null"


def _without_nulls(members: dict[str, Raw], opaque: str | None = None) -> dict[str, Raw]:
    return {name: raw for name, raw in members.items() if name == opaque or not _is_null(raw)}


def _cleaned(name: str, raw: Raw) -> object:
    """The parts of the protocol that have members of their own, also without nulls; everything else as it is."""
    first = bytes(raw)[:1]
    if name == "open_panel" and first == b"{":
        return {inner: _strings(part) if inner == "lines" else part for inner, part in _without_nulls(_members.decode(raw)).items()}
    if name == "content" and first == b"[":
        return [_block(item) for item in _items.decode(raw)]
    return _strings(raw) if name in ("capabilities", "events", "intercept", "lines") else raw


def _block(raw: Raw) -> object:
    if _is_null(raw):
        return {}
    if bytes(raw)[:1] != b"{":
        return raw
    block = _without_nulls(_members.decode(raw))
    kind = _string_of(bytes(block.get("type", b"")))
    # Of a block of another type only the type is told (spec zot 4.1): whatever its members are, they spoil nothing.
    return block if kind in ("", "text", "image") else {"type": kind}


def _strings(raw: Raw) -> object:
    """A null in a list of strings is an empty one."""
    return ["" if _is_null(item) else item for item in _items.decode(raw)] if bytes(raw)[:1] == b"[" else raw

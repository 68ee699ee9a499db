"""Every frame of the zot protocol (spec zot 3.2 and 3.3), and lines as frames of one direction (spec zot 3.1 and 5.3).

Zero values of optional members are not written; required members always are. An absent member reads as its zero value, and so does
`null` (spec zot 3.1). Opaque members (a schema, arguments) stay bytes (`msgspec.Raw`) when they are read; when a frame is written
they may hold any JSON value.

`FrameReader` usually decodes a line once, strictly. A line that fails gets a second, lenient decode, since absence and null are
the same in this protocol; what still cannot be used is classified and keeps its bytes.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw

from serai.wire.codec import BAD_INPUT, Codec, Noise, Unknown, encode, repair, scan_head

PROTOCOL_VERSION = 1
MAX_LINE = 4 * 1024 * 1024  # with its newline, for either side (spec zot 3.1)
EVENTS = ("session_start", "turn_start", "turn_end", "tool_call", "assistant_message")
INTERCEPTABLE = ("tool_call", "turn_start", "assistant_message")

NOTHING = Raw()  # an opaque member that is absent


def _required_text() -> Any:
    """A required string. A factory's value is written even when it is empty; a plain default would be left out."""
    return msgspec.field(default_factory=str)


def _required_number() -> Any:
    return msgspec.field(default_factory=int)


def _required_json(text: bytes) -> Any:
    """A required opaque member, and what its absence means."""
    return msgspec.field(default_factory=lambda: Raw(text))


class Frame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    """One line. Only requests and answers have an `id`, but in every frame it must be a string if it is there (spec zot 3.1)."""

    id: str = ""


# -- guest to host (spec zot 3.2) -----------------------------------------------------------------------------------------------


class Hello(Frame, frozen=True, tag="hello", gc=False):
    """The first frame. The name must not be empty; the rest is advisory."""

    name: str = _required_text()
    version: str = _required_text()
    capabilities: tuple[str, ...] = ()


class RegisterCommand(Frame, frozen=True, tag="register_command", gc=False):
    """Bind `/name`; the name has no slash."""

    name: str = _required_text()
    description: str = ""


class RegisterTool(Frame, frozen=True, tag="register_tool", gc=False):
    """Offer a tool. The schema is any JSON here; a missing one reads as null."""

    name: str = _required_text()
    description: str = ""
    schema: Raw = _required_json(b"null")


class Subscribe(Frame, frozen=True, tag="subscribe", gc=False):
    """Hear of events, be asked at some. Repeatable; the sets are united."""

    events: tuple[str, ...] = ()
    intercept: tuple[str, ...] = ()


class Ready(Frame, frozen=True, tag="ready", gc=False):
    """The registration window may close."""


class PanelSpec(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A panel to open."""

    id: str = _required_text()
    title: str = ""
    lines: tuple[str, ...] = ()
    footer: str = ""


class CommandResponse(Frame, frozen=True, tag="command_response", gc=False):
    """The answer to `command_invoked`."""

    id: str = _required_text()
    action: str = _required_text()
    prompt: str = ""
    insert: str = ""
    display: str = ""
    open_panel: PanelSpec | None = None
    error: str = ""


class ContentBlock(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`text` with text, or `image` with mime_type and base64 data. One struct for all: an unknown type is data."""

    type: str = _required_text()
    text: str = ""
    mime_type: str = ""
    data: str = ""


class ToolResult(Frame, frozen=True, tag="tool_result", gc=False):
    """The answer to `tool_call`."""

    id: str = _required_text()
    content: tuple[ContentBlock, ...] = msgspec.field(default_factory=lambda: ())  # `tuple` itself would not be written
    is_error: bool = False


class EventInterceptResponse(Frame, frozen=True, tag="event_intercept_response", gc=False):
    """The answer to `event_intercept`."""

    id: str = _required_text()
    block: bool = False
    reason: str = ""
    modified_args: Raw = NOTHING
    replace_text: str = ""


class PanelRender(Frame, frozen=True, tag="panel_render", gc=False):
    """What the open panel shows now."""

    panel_id: str = _required_text()
    title: str = ""
    lines: tuple[str, ...] = ()
    footer: str = ""


class PanelClose(Frame, frozen=True, tag="panel_close", gc=False):
    """The panel is closed, or should be: the one frame that goes both ways."""

    panel_id: str = _required_text()


class Notify(Frame, frozen=True, tag="notify", gc=False):
    """A word to the person, at any time."""

    level: str = _required_text()
    message: str = _required_text()


class ShutdownAck(Frame, frozen=True, tag="shutdown_ack", gc=False):
    """Ignored: what counts is that the process ends."""


# -- host to guest (spec zot 3.3) -----------------------------------------------------------------------------------------------


class HelloAck(Frame, frozen=True, tag="hello_ack", gc=False):
    """The answer to `hello`."""

    protocol_version: int = msgspec.field(default_factory=lambda: PROTOCOL_VERSION)
    zot_version: str = _required_text()
    provider: str = _required_text()
    model: str = _required_text()
    cwd: str = _required_text()
    extension_dir: str = ""
    data_dir: str = ""


class CommandInvoked(Frame, frozen=True, tag="command_invoked", gc=False):
    """A person typed `/name args`."""

    id: str = _required_text()
    name: str = _required_text()
    args: str = ""


class ToolCall(Frame, frozen=True, tag="tool_call", gc=False):
    """Run a tool. The id is the host's own, not the model's."""

    id: str = _required_text()
    name: str = _required_text()
    args: Raw = _required_json(b"{}")


class Event(Frame, frozen=True, tag="event", gc=False):
    """Something happened; which members it has depends on the event (spec zot 4.3)."""

    event: str = _required_text()
    step: int = 0
    stop: str = ""
    error: str = ""
    tool_id: str = ""
    tool_name: str = ""
    tool_args: Raw = NOTHING
    text: str = ""


class EventIntercept(Frame, frozen=True, tag="event_intercept", gc=False):
    """Something is about to happen: may it (spec zot 4.4)?"""

    id: str = _required_text()
    event: str = _required_text()
    tool_id: str = ""
    tool_name: str = ""
    tool_args: Raw = NOTHING
    step: int = 0
    text: str = ""


class PanelKey(Frame, frozen=True, tag="panel_key", gc=False):
    """A key for the open panel; `text` goes with the key `rune` only."""

    panel_id: str = _required_text()
    key: str = _required_text()
    text: str = ""


class PanelResize(Frame, frozen=True, tag="panel_resize", gc=False):
    """The room that the panel has."""

    panel_id: str = _required_text()
    width: int = _required_number()
    height: int = _required_number()


class Shutdown(Frame, frozen=True, tag="shutdown", gc=False):
    """The end; the guest's input is closed right behind it."""


FromGuest = (
    Hello
    | RegisterCommand
    | RegisterTool
    | Subscribe
    | Ready
    | CommandResponse
    | ToolResult
    | EventInterceptResponse
    | PanelRender
    | PanelClose
    | Notify
    | ShutdownAck
)
FromHost = HelloAck | CommandInvoked | ToolCall | Event | EventIntercept | PanelKey | PanelResize | PanelClose | Shutdown

FROM_GUEST: Codec[FromGuest] = Codec(FromGuest)
FROM_HOST: Codec[FromHost] = Codec(FromHost)


def get_kind(frame: Frame | type[Frame]) -> str:
    """What the frame's `type` says on the wire."""
    tag = frame.__struct_config__.tag
    assert isinstance(tag, str)
    return tag


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

    def to_malformed(self) -> Malformed:
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


class FrameReader(Generic[T]):
    """Reads the runs of one connection."""

    __slots__ = ("_codec", "_kinds", "_lines", "_odd")

    def __init__(self, codec: Codec[T], frames: Any) -> None:
        self._codec = codec
        self._kinds = frozenset(get_kind(frame) for frame in frames)
        self._lines = codec.create_reader()
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
            kind, id = scan_kind_and_id(odd.raw[:_HEAD])
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
        kept = {name: _clean_member(name, raw) for name, raw in _drop_nulls(members, _OPAQUE.get(kind)).items()}
        try:
            return self._codec.decoder.decode(encode(kept))
        except BAD_INPUT as error:
            return Broken(kind, _decode_string(id), odd.raw, str(error))


def scan_kind_and_id(head: bytes) -> tuple[str, str]:
    """The type and the id that the head of a line shows, each empty when it does not."""
    members = scan_head(head) if head.removeprefix(_BOM).lstrip(b" \t\r")[:1] == b"{" else {}
    return _decode_string(members.get(b'"type"', b"")), _decode_string(members.get(b'"id"', b""))


def _decode_string(text: bytes) -> str:
    try:
        return _string.decode(text)
    except BAD_INPUT:
        return ""


def _is_null(raw: Raw) -> bool:
    return bytes(raw) == b"null"


def _drop_nulls(members: dict[str, Raw], opaque: str | None = None) -> dict[str, Raw]:
    return {name: raw for name, raw in members.items() if name == opaque or not _is_null(raw)}


def _clean_member(name: str, raw: Raw) -> object:
    """The parts of the protocol that have members of their own, also without nulls; everything else as it is."""
    first = bytes(raw)[:1]
    if name == "open_panel" and first == b"{":
        return {inner: _strings(part) if inner == "lines" else part for inner, part in _drop_nulls(_members.decode(raw)).items()}
    if name == "content" and first == b"[":
        return [_clean_block(item) for item in _items.decode(raw)]
    return _strings(raw) if name in ("capabilities", "events", "intercept", "lines") else raw


def _clean_block(raw: Raw) -> object:
    if _is_null(raw):
        return {}
    if bytes(raw)[:1] != b"{":
        return raw
    block = _drop_nulls(_members.decode(raw))
    kind = _decode_string(bytes(block.get("type", b"")))
    # Of a block of another type only the type is told (spec zot 4.1): whatever its members are, they spoil nothing.
    return block if kind in ("", "text", "image") else {"type": kind}


def _strings(raw: Raw) -> object:
    """A null in a list of strings is an empty one."""
    return ["" if _is_null(item) else item for item in _items.decode(raw)] if bytes(raw)[:1] == b"[" else raw

"""What goes over the wire of a hook, both ways, and how JSON becomes it (spec hooks 1.3 to 1.9).

Plain classes instead of dataclasses, `binascii` instead of `base64`: a hook's start should cost what `import json` costs.
No repr here shows content or state, which may be credentials.
"""

from __future__ import annotations

import binascii
import json
import re  # `json` has it loaded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Final, TypeAlias

    # Objects are tuples of their members: a name may come twice, and then the order counts.
    Json: TypeAlias = bool | int | float | str | list["Json"] | tuple[tuple[str, "Json"], ...] | None
    Readers: TypeAlias = dict[str, Callable[[str, Json], object]]

EVENT_BOX_CREATE: Final = "box.create"
EVENT_BOX_DESTROY: Final = "box.destroy"

DEFAULT_MODE: Final = 0o600
HIGHEST_MODE: Final = 0o7777
_INT64: Final = 2**63
_LONGEST_SHOWN: Final = 200

_BASE64 = re.compile(r"[A-Za-z0-9+/]*")
_MODE = re.compile(r"[+]?[0-7]+")
_SURROGATES = re.compile("[\ud800-\udfff]")


class Message:
    """A record of its slots: equal when they are, shown without what may be secret."""

    __slots__: tuple[str, ...] = ()
    _hidden: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # its values may be changed

    def __repr__(self) -> str:
        values = ((name, getattr(self, name)) for name in self.__slots__)
        parts = (f"{name}=…" if name in self._hidden else f"{name}={value!r}" for name, value in values if value)
        return f"{type(self).__name__}({', '.join(parts)})"


class Box(Message):
    """The box an event concerns. Best effort: each value may be empty."""

    __slots__ = ("box_id", "description", "image")

    def __init__(self, image: str = "", box_id: str = "", description: str = "") -> None:
        self.image = image
        self.box_id = box_id
        self.description = description


class Request(Message):
    """What a hook reads: the event, its box, and on `box.destroy` the state that this hook returned on `box.create`."""

    __slots__ = ("box", "event", "state")
    _hidden = ("state",)

    def __init__(self, event: str, box: Box | None = None, state: str = "") -> None:
        self.event = event
        self.box = box or Box()
        self.state = state


class File(Message):
    """A file to be put into the box. One of `content` and `content_base64` carries its bytes; `mode` is octal, such as `"0755"`."""

    __slots__ = ("content", "content_base64", "gid", "mode", "path", "uid")
    _hidden = ("content", "content_base64")

    def __init__(self, path: str, content: str = "", content_base64: str = "", mode: str = "", uid: int = 0, gid: int = 0) -> None:
        self.path = path
        self.content = content
        self.content_base64 = content_base64
        self.mode = mode
        self.uid = uid
        self.gid = gid

    def bytes(self) -> bytes:
        """What the file holds; `ValueError` when its base64 is none (spec hooks 1.5)."""
        if not self.content_base64:
            return replace_surrogates(self.content).encode()
        text = self.content_base64.replace("\r", "").replace("\n", "")
        body = text.rstrip("=")
        # `binascii` alone skips garbage, or when strict takes a surplus `=`. No pattern with groups: it would keep each step.
        if len(text) % 4 or len(text) - len(body) > 2 or not _BASE64.fullmatch(body):
            raise ValueError(f"decoding base64 content for {quote(self.path)}: illegal base64 data")
        return binascii.a2b_base64(text)

    def file_mode(self) -> int:
        """Its mode as asked for, 0600 when it was not; `ValueError` when that is no octal number (spec hooks 1.6)."""
        if not self.mode:
            return DEFAULT_MODE
        if not _MODE.fullmatch(self.mode):
            raise ValueError(f"parsing mode {quote(self.mode)} for {quote(self.path)}: not an octal number")
        mode = int(self.mode, 8)
        if mode > HIGHEST_MODE:
            raise ValueError(f"parsing mode {quote(self.mode)} for {quote(self.path)}: larger than 7777")
        return mode


class Response(Message):
    """What a hook answers on `box.create`: files for the box, and a state to be replayed when the box is destroyed."""

    __slots__ = ("files", "state")
    _hidden = ("state",)

    def __init__(self, files: Iterable[File] = (), state: str = "") -> None:
        self.files = tuple(files)
        self.state = state


def quote(text: str) -> str:
    """A text in quotes for a message: on one line, and not longer than a message should be."""
    return json.dumps(text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…", ensure_ascii=False)


def replace_surrogates(text: str) -> str:
    """Each lone surrogate, and so each byte that was no UTF-8, as one U+FFFD."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


# -- out --------------------------------------------------------------------------------------------------------------------------


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode  # made once: `json.dumps` makes one for each call


def dumps(value: object) -> bytes:
    """Compact JSON in UTF-8. Nothing is escaped that need not be: whoever reads it has a parser (spec hooks 1.3)."""
    return replace_surrogates(_encode(value)).encode()


def collect_members(message: Message, names: Iterable[str]) -> dict[str, object]:
    """The members that are not empty, by name."""
    return {name: value for name in names if (value := getattr(message, name))}


# -- in ---------------------------------------------------------------------------------------------------------------------------


def loads(data: bytes, *, alone: bool) -> Json:
    """One JSON value; `alone`: with nothing but white space after it. `ValueError` says what is wrong and shows none of it."""
    text = data.decode(errors="surrogateescape").lstrip(" \t\r\n")
    try:
        value, end = _DECODER.raw_decode(text)
    except json.JSONDecodeError as error:
        if error.pos >= len(text) or error.msg.startswith("Unterminated"):
            raise ValueError("unexpected end of JSON input") from None
        raise ValueError(f"invalid JSON at character {error.pos}: {error.msg}") from None
    except RecursionError:
        raise ValueError("exceeded max depth") from None
    if alone and text[end:].strip(" \t\r\n"):
        raise ValueError("more than one JSON value, or text after it")
    return value  # type: ignore[no-any-return]


def _parse_integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= 20 else float(digits)  # a long one is no integer of 64 bits, and slow to become one


def _reject_constant(name: str) -> object:
    raise ValueError(f"invalid JSON: {name} is no value")


_DECODER = json.JSONDecoder(object_pairs_hook=tuple, parse_int=_parse_integer, parse_constant=_reject_constant)


def read_members(what: str, value: Json, known: Readers) -> dict[str, object]:
    """The known members of an object, read.

    The last of each counts, `null` is absence, unknown ones are passed over (spec hooks 1.9).
    """
    if value is None:
        return {}
    if not isinstance(value, tuple):
        raise ValueError(f"{what} must be an object, not {_describe_kind(value)}")  # noqa: TRY004  (bad JSON is a ValueError here)
    found: dict[str, object] = {}
    for name, inner in value:
        key = name if name in known else fold_case(name)
        if key in known and inner is not None:
            found[key] = known[key](key, inner)
    return found


def fold_case(name: str) -> str:
    """A member's name in the letter case of the protocol. The two letters are what the origin's parser takes for s and k too."""
    return name.lower().replace("\u017f", "s").replace("\u212a", "k")


def read_text(name: str, value: Json) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string, not {_describe_kind(value)}")  # noqa: TRY004
    return replace_surrogates(value)


def read_integer(name: str, value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -_INT64 <= value < _INT64:
        raise ValueError(f"{name} must be an integer of 64 bits, not {_describe_kind(value)}")
    return value


def _describe_kind(value: Json) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "such a number" if isinstance(value, int) else "a number with a fraction, an exponent or too many digits"
    return "an object" if isinstance(value, tuple) else "an array" if isinstance(value, list) else "a string"

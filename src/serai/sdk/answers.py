"""What a handler can answer: actions of commands, events and shortcuts, verdicts of interceptors, the content of a tool's result.

Plain values of the standard library alone (a bundle has nothing else), made without `dataclasses`, whose import an extension's
start would wait for. Handlers of events and shortcuts answer with actions (spec piglet 5.4); `Display` and `Prompt`, the answers
of commands, are actions too; plain text is shown.

It ends with what turns what a handler returned, or raised, into the one answer that goes out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

from serai.sdk.current_call import Cancelled
from serai.sdk.stdio import format_error


class Value:
    """Equal to what has the same type and the same members."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._get_members() == other._get_members()

    def __hash__(self) -> int:
        return hash((type(self), *map(repr, self._get_members())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._get_members()))})"

    def _get_members(self) -> list[object]:
        return [getattr(self, name) for name in self.__slots__]


# -- answers to a command (spec zot 4.2) ----------------------------------------------------------------------------------------


class Prompt(Value):
    """Text for the agent, as if the person had typed it."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Insert(Value):
    """Text for the person's input line, not submitted."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Display(Value):
    """Text to show to the person; no model sees it."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class OpenPanel(Value):
    """A panel to open; `Panel.open` makes one."""

    __slots__ = ("id", "title", "lines", "footer")  # noqa: RUF023  (the order of the members)

    def __init__(self, id: str, title: str = "", lines: Iterable[str] = (), footer: str = "") -> None:
        self.id, self.title, self.lines, self.footer = id, title, tuple(lines), footer


class Nothing(Value):
    """All is done."""

    __slots__ = ()


class Failed(Value):
    """An error for the person to see. To raise any exception does the same."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


Answer = Prompt | Insert | Display | OpenPanel | Nothing | Failed


# -- verdicts of an interceptor (spec zot 4.4) ----------------------------------------------------------------------------------


class Allow(Value):
    """Go on, unchanged."""

    __slots__ = ()


class Block(Value):
    """Stop here; without a reason the host gives its own."""

    __slots__ = ("reason",)

    def __init__(self, reason: str = "") -> None:
        self.reason = reason


class Rewrite(Value):
    """Go on with this instead: all arguments of a tool call, or the text of a message."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


Verdict = Allow | Block | Rewrite


# -- a tool's result (spec zot 4.1) ---------------------------------------------------------------------------------------------


class Text(Value):
    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Image(Value):
    """An image; without a type its first bytes tell."""

    __slots__ = ("data", "mime")

    def __init__(self, data: bytes, mime: str = "") -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"an image is made of bytes, not of {type(data).__name__}")
        if not isinstance(mime, str):
            raise TypeError(f"the type of an image is text, not {type(mime).__name__}")
        self.data = bytes(data)
        self.mime = mime or _detect_mime(self.data)


Content = Text | Image


class ToolResult(Value):
    """What came of a call: texts and images, in order. An error may have a code and a hint for the model."""

    __slots__ = ("content", "is_error", "code", "hint")  # noqa: RUF023  (the order of the members)

    def __init__(self, *content: str | Content, is_error: bool = False, code: str = "", hint: str = "") -> None:
        self.content: tuple[Content, ...] = tuple(Text(one) if isinstance(one, str) else one for one in content)
        self.is_error = is_error
        self.code, self.hint = code, hint

    @classmethod
    def error(cls, text: str, *, code: str = "", hint: str = "") -> ToolResult:
        """With a code its text begins with it, in every dialect (spec piglet 5.1)."""
        return cls(Text(_add_code(text, code, hint)), is_error=True, code=code, hint=hint)

    @property
    def text(self) -> str:
        """All its text."""
        return "\n".join(one.text for one in self.content if isinstance(one, Text))


class ToolError(Exception):
    """Raise it in a handler: the model, or the person, is told its text, and no trace is written.

    A `code` such as FILE_NOT_FOUND or INVALID_ARGS and a `hint` what to try help a model to do better.
    """

    def __init__(self, *args: object, code: str = "", hint: str = "") -> None:
        super().__init__(*args)
        self.code, self.hint = code, hint


def _add_code(text: str, code: str, hint: str) -> str:
    if code and not text.startswith("[error:"):
        text = f"[error:{code}] {text}"
    return f"{text}\nhint: {hint}" if hint else text


def text(text: str) -> Text:
    """Text for a tool's result; a plain string does as well."""
    return Text(text)


def image(data: bytes, mime: str = "") -> Image:
    """An image for a tool's result, such as `image(Path("map.png").read_bytes())`."""
    return Image(data, mime)


_SIGNATURES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))


def _detect_mime(data: bytes) -> str:
    for start, mime in _SIGNATURES:
        if data.startswith(start):
            return mime
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    raise ValueError('the type of the image cannot be told from its first bytes: say it, as in image(data, "image/svg+xml")')


class Notify(Value):
    """A short word to the person."""

    __slots__ = ("message", "level")  # noqa: RUF023  (the order of the members)

    def __init__(self, message: str, level: str = "info") -> None:
        self.message, self.level = message, level


class SetStatus(Value):
    """A segment of the status line; an empty text takes it away."""

    __slots__ = ("key", "text")

    def __init__(self, key: str, text: str = "") -> None:
        self.key, self.text = key, text


class SetTitle(Value):
    """The session's title."""

    __slots__ = ("title",)

    def __init__(self, title: str) -> None:
        self.title = title


class AttachImage(Value):
    """An image for the next message of the person."""

    __slots__ = ("data", "mime")

    def __init__(self, data: bytes, mime: str = "") -> None:
        image = Image(data, mime)
        self.data, self.mime = image.data, image.mime


class DetachImage(Value):
    """Take that image away again."""

    __slots__ = ()


class Quit(Value):
    """End the program that the person talks to."""

    __slots__ = ()


class Handled(Value):
    """The answer of an input transformer that has done all there is to do: the agent is not asked."""

    __slots__ = ()


Action = Notify | Display | Prompt | SetStatus | SetTitle | AttachImage | DetachImage | Quit


class Returned(TypeError):
    """A handler returned what is no answer."""


class NoHandler(ToolError):
    """Nobody serves what was asked for."""

    def __init__(self, what: str, name: str) -> None:
        self.unknown = f"unknown {what}: {name[:100]}"
        super().__init__(f"no handler for /{name[:100]}" if what == "command" else f'no handler for {what} "{name[:100]}"')


# -- tools ------------------------------------------------------------------------------------------------------------------------


def to_tool_result(value: object) -> ToolResult:
    """Text, content, a result; any other JSON data is told as JSON."""
    if value is None:
        return ToolResult()
    if isinstance(value, str | Text | Image):
        value = ToolResult(value)
    elif isinstance(value, list | tuple) and any(isinstance(one, Text | Image) for one in value):
        value = ToolResult(*value)
    if not isinstance(value, ToolResult):
        return ToolResult(Text(_dump_json(value)))
    for one in value.content:
        if not isinstance(one.text if isinstance(one, Text) else one, str | Image):
            raise Returned(f"it returned a result with {describe_type(one)} in it; content is text and images")
    return value


def build_error_result(error: BaseException, name: str) -> ToolResult:
    code, hint = (error.code, error.hint) if isinstance(error, ToolError) else ("", "")
    return ToolResult.error(format_reason(error, name) or f"{name} failed and gave no reason", code=code, hint=hint)


# -- commands ---------------------------------------------------------------------------------------------------------------------


def to_answer(value: object) -> Answer:
    if value is None:
        return Nothing()
    if isinstance(value, str):
        return Display(value)
    if not isinstance(value, Prompt | Insert | Display | OpenPanel | Nothing | Failed):
        raise Returned(
            f"it returned {describe_type(value)}; a command returns text, nothing, Prompt, Insert, Display, OpenPanel or Failed"
        )
    members = [getattr(value, name) for name in value.__slots__]
    for text in [*members, *(value.lines if isinstance(value, OpenPanel) else ())]:
        if not isinstance(text, str | tuple):
            raise Returned(f"it returned {type(value).__name__} with {describe_type(text)} in it instead of text")
    return value


def build_error_answer(error: BaseException, name: str) -> Answer:
    return Failed(format_reason(error, f"/{name}") or "it failed and gave no reason")


# -- interceptors -----------------------------------------------------------------------------------------------------------------


def to_verdict(value: object, stage: str) -> Verdict:
    """Nothing, or yes, lets it pass; what is no verdict is an error, and so blocks."""
    if value is None or value is True:
        return Allow()
    if value is False:
        return Block()
    if isinstance(value, Rewrite):
        return _check_rewrite(value, stage)
    if isinstance(value, Allow) or (isinstance(value, Block) and isinstance(value.reason, str)):
        return value
    raise Returned(f"it returned {describe_type(value)}; an interceptor returns nothing, True, False, Allow, Block or Rewrite")


def _check_rewrite(rewrite: Rewrite, stage: str) -> Verdict:
    if stage == "tool_call" and isinstance(rewrite.value, dict):
        return rewrite
    if stage == "assistant_message" and isinstance(rewrite.value, str):
        return rewrite if rewrite.value else Block()  # an empty text on the wire would mean: no change (spec zot 4.4)
    takes = {"tool_call": "all arguments as a dict", "assistant_message": "a text"}.get(stage)
    needs = f"takes {takes}" if takes else "is not possible; it can only be blocked"
    raise Returned(f"it returned Rewrite of {describe_type(rewrite.value)}; at {stage} a rewrite {needs}")


def build_error_verdict(error: BaseException, stage: str) -> Verdict:
    """A guard that stumbles holds (spec zot 6), in contrast to a host that hears nothing from it."""
    return Block(format_reason(error, f"intercept {stage}"))


# -- all --------------------------------------------------------------------------------------------------------------------------


def was_cancelled(error: BaseException) -> bool:
    """As tasks are cancelled, too; asyncio is only asked where it is in use."""
    asyncio = sys.modules.get("asyncio")
    return isinstance(error, Cancelled) or (asyncio is not None and isinstance(error, asyncio.CancelledError))


def format_reason(error: BaseException, what: str) -> str:
    if isinstance(error, ToolError):
        return format_error(error, named=False)
    if was_cancelled(error):
        return f"{what} was cancelled"
    if isinstance(error, Returned):
        return f"{what} failed: {error}"
    return f"{what} failed: {format_error(error)}"


def describe_type(value: object) -> str:
    name = type(value).__name__
    return f"an {name}" if name[:1] in "aeiouAEIOU" else f"a {name}"


def _dump_json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_to_plain)
    except Returned:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise Returned(f"it returned {describe_type(value)} that cannot be told as JSON ({error})") from None


def _to_plain(value: Any) -> object:
    """What JSON has no word for and everybody writes in one way."""
    if hasattr(type(value), "__dataclass_fields__"):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    enum, pathlib, datetime = (sys.modules.get(name) for name in ("enum", "pathlib", "datetime"))
    if enum is not None and isinstance(value, enum.Enum):
        return value.value
    if pathlib is not None and isinstance(value, pathlib.PurePath):
        return str(value)
    if datetime is not None and isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    raise Returned(f"it returned {describe_type(value)}; a tool returns text, content, ToolResult, or data that JSON has")


def to_action(value: object) -> dict[str, Any] | None:
    """An action as it goes out; nothing is none."""
    match value:
        case None:
            return None
        case str() | Display():
            return _build_action("showMessage", text=value if isinstance(value, str) else value.text)
        case Prompt(text=text):
            return _build_action("sendMessage", content=text)
        case Notify(message=message, level=level):
            return _build_action("notify", message=message, level=level)
        case SetStatus(key=key, text=text):
            return _build_action("setStatus", key=key, text=text)
        case SetTitle(title=title):
            return _build_action("setSessionTitle", title=title)
        case AttachImage(data=data, mime=mime):
            from base64 import b64encode

            return _build_action("attachImage", data=b64encode(data).decode(), mimeType=mime)
        case DetachImage():
            return _build_action("detachImage")
        case Quit():
            return _build_action("quit")
    words = "nothing, text, Notify, Display, Prompt, SetStatus, SetTitle, AttachImage, DetachImage or Quit"
    raise Returned(f"it returned {describe_type(value)}; an action is {words}")


def _build_action(type: str, **payload: object) -> dict[str, Any]:
    for text in payload.values():
        if not isinstance(text, str):
            raise Returned(f"it returned the action {type} with {describe_type(text)} in it instead of text")
    return {"type": type, **({"payload": payload} if payload else {})}

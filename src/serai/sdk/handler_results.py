"""What a handler returned, or raised, as the one answer that goes out."""

from __future__ import annotations

import json
import sys
from typing import Any

from serai.sdk.answers import (
    Allow,
    Answer,
    AttachImage,
    Block,
    DetachImage,
    Display,
    Failed,
    Image,
    Insert,
    Nothing,
    Notify,
    OpenPanel,
    Prompt,
    Quit,
    Rewrite,
    SetStatus,
    SetTitle,
    Text,
    ToolError,
    ToolResult,
    Verdict,
)
from serai.sdk.current_call import Cancelled
from serai.sdk.stdio import error_text


class Returned(TypeError):
    """A handler returned what is no answer."""


class NoHandler(ToolError):
    """Nobody serves what was asked for."""

    def __init__(self, what: str, name: str) -> None:
        self.unknown = f"unknown {what}: {name[:100]}"
        super().__init__(f"no handler for /{name[:100]}" if what == "command" else f'no handler for {what} "{name[:100]}"')


# -- tools ------------------------------------------------------------------------------------------------------------------------


def resulted(value: object) -> ToolResult:
    """Text, content, a result; any other JSON data is told as JSON."""
    if value is None:
        return ToolResult()
    if isinstance(value, str | Text | Image):
        value = ToolResult(value)
    elif isinstance(value, list | tuple) and any(isinstance(one, Text | Image) for one in value):
        value = ToolResult(*value)
    if not isinstance(value, ToolResult):
        return ToolResult(Text(_json(value)))
    for one in value.content:
        if not isinstance(one.text if isinstance(one, Text) else one, str | Image):
            raise Returned(f"it returned a result with {kind_of(one)} in it; content is text and images")
    return value


def failed_result(error: BaseException, name: str) -> ToolResult:
    code, hint = (error.code, error.hint) if isinstance(error, ToolError) else ("", "")
    return ToolResult.error(reason(error, name) or f"{name} failed and gave no reason", code=code, hint=hint)


# -- commands ---------------------------------------------------------------------------------------------------------------------


def answered(value: object) -> Answer:
    if value is None:
        return Nothing()
    if isinstance(value, str):
        return Display(value)
    if not isinstance(value, Prompt | Insert | Display | OpenPanel | Nothing | Failed):
        raise Returned(
            f"it returned {kind_of(value)}; a command returns text, nothing, Prompt, Insert, Display, OpenPanel or Failed"
        )
    members = [getattr(value, name) for name in value.__slots__]
    for text in [*members, *(value.lines if isinstance(value, OpenPanel) else ())]:
        if not isinstance(text, str | tuple):
            raise Returned(f"it returned {type(value).__name__} with {kind_of(text)} in it instead of text")
    return value


def failed_answer(error: BaseException, name: str) -> Answer:
    return Failed(reason(error, f"/{name}") or "it failed and gave no reason")


# -- interceptors -----------------------------------------------------------------------------------------------------------------


def judged(value: object, stage: str) -> Verdict:
    """Nothing, or yes, lets it pass; what is no verdict is an error, and so blocks."""
    if value is None or value is True:
        return Allow()
    if value is False:
        return Block()
    if isinstance(value, Rewrite):
        return _rewritten(value, stage)
    if isinstance(value, Allow) or (isinstance(value, Block) and isinstance(value.reason, str)):
        return value
    raise Returned(f"it returned {kind_of(value)}; an interceptor returns nothing, True, False, Allow, Block or Rewrite")


def _rewritten(rewrite: Rewrite, stage: str) -> Verdict:
    if stage == "tool_call" and isinstance(rewrite.value, dict):
        return rewrite
    if stage == "assistant_message" and isinstance(rewrite.value, str):
        return rewrite if rewrite.value else Block()  # an empty text on the wire would mean: no change (spec zot 4.4)
    takes = {"tool_call": "all arguments as a dict", "assistant_message": "a text"}.get(stage)
    needs = f"takes {takes}" if takes else "is not possible; it can only be blocked"
    raise Returned(f"it returned Rewrite of {kind_of(rewrite.value)}; at {stage} a rewrite {needs}")


def failed_verdict(error: BaseException, stage: str) -> Verdict:
    """A guard that stumbles holds (spec zot 6), in contrast to a host that hears nothing from it."""
    return Block(reason(error, f"intercept {stage}"))


# -- all --------------------------------------------------------------------------------------------------------------------------


def was_cancelled(error: BaseException) -> bool:
    """As tasks are cancelled, too; asyncio is only asked where it is in use."""
    asyncio = sys.modules.get("asyncio")
    return isinstance(error, Cancelled) or (asyncio is not None and isinstance(error, asyncio.CancelledError))


def reason(error: BaseException, what: str) -> str:
    if isinstance(error, ToolError):
        return error_text(error, named=False)
    if was_cancelled(error):
        return f"{what} was cancelled"
    if isinstance(error, Returned):
        return f"{what} failed: {error}"
    return f"{what} failed: {error_text(error)}"


def kind_of(value: object) -> str:
    name = type(value).__name__
    return f"an {name}" if name[:1] in "aeiouAEIOU" else f"a {name}"


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except Returned:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise Returned(f"it returned {kind_of(value)} that cannot be told as JSON ({error})") from None


def _plain(value: Any) -> object:
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
    raise Returned(f"it returned {kind_of(value)}; a tool returns text, content, ToolResult, or data that JSON has")


def acted(value: object) -> dict[str, Any] | None:
    """An action as it goes out; nothing is none."""
    match value:
        case None:
            return None
        case str() | Display():
            return _action("showMessage", text=value if isinstance(value, str) else value.text)
        case Prompt(text=text):
            return _action("sendMessage", content=text)
        case Notify(message=message, level=level):
            return _action("notify", message=message, level=level)
        case SetStatus(key=key, text=text):
            return _action("setStatus", key=key, text=text)
        case SetTitle(title=title):
            return _action("setSessionTitle", title=title)
        case AttachImage(data=data, mime=mime):
            from base64 import b64encode

            return _action("attachImage", data=b64encode(data).decode(), mimeType=mime)
        case DetachImage():
            return _action("detachImage")
        case Quit():
            return _action("quit")
    words = "nothing, text, Notify, Display, Prompt, SetStatus, SetTitle, AttachImage, DetachImage or Quit"
    raise Returned(f"it returned {kind_of(value)}; an action is {words}")


def _action(type: str, **payload: object) -> dict[str, Any]:
    for text in payload.values():
        if not isinstance(text, str):
            raise Returned(f"it returned the action {type} with {kind_of(text)} in it instead of text")
    return {"type": type, **({"payload": payload} if payload else {})}

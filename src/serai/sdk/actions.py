"""What a handler of an event or a shortcut can have done (spec piglet 5.4), and what an input transformer can answer.

`Display` and `Prompt`, the words of commands, are actions too; plain text is shown.
"""

from __future__ import annotations

from typing import Any

from serai.sdk.answers import Display, Image, Prompt, Value
from serai.sdk.results import Returned, kind_of

__all__ = ["Action", "AttachImage", "DetachImage", "Handled", "Notify", "Quit", "SetStatus", "SetTitle", "acted"]


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

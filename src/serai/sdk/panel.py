"""A panel: text that the host shows, and the keys that are pressed while it is open (spec zot 4.6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from serai.errors import BadExtension
from serai.sdk.answers import OpenPanel
from serai.sdk.handlers import Function, Handler

if TYPE_CHECKING:
    from serai.sdk.adapters import Adapter

__all__ = ["Panel"]

F = TypeVar("F", bound=Function)


class Panel:
    """Made by `ext.panel`. It opens when a command returns `panel.open(…)`; after that it is drawn and closed at any time.

    Keys, sizes and the end come to their handlers one after the other, in the order in which they happened.
    """

    def __init__(self, say: Callable[[Callable[[Adapter], bytes]], None], id: str, title: str, footer: str) -> None:
        self._say = say
        self.id, self.title, self.footer = id, title, footer
        self.on_key: Handler | None = None
        self.on_resize: Handler | None = None
        self.on_close: Handler | None = None

    def __repr__(self) -> str:
        return f"<panel {self.id}>"

    def open(self, lines: Iterable[str] = (), *, title: str = "", footer: str | None = None) -> OpenPanel:
        """The answer of a command that opens it."""
        return OpenPanel(self.id, title or self.title, _lines(lines), self.footer if footer is None else footer)

    def render(self, lines: Iterable[str] = (), *, title: str = "", footer: str | None = None) -> None:
        """What it shows now: always all of it. Without a title it keeps its own, without a footer that of `ext.panel`."""
        shown = _lines(lines)
        last = self.footer if footer is None else footer
        for text in (title, last):
            if not isinstance(text, str):
                raise TypeError(f"a panel's title and footer are text, not {type(text).__name__}")
        self._say(lambda adapter: adapter.render(self.id, title, shown, last))

    def close(self) -> None:
        """Close it; its `closed` handler is for when somebody else does."""
        self._say(lambda adapter: adapter.close_panel(self.id))

    # -- handlers ---------------------------------------------------------------------------------------------------------------

    def __call__(self, function: Function) -> Panel:
        """`@ext.panel("id")` above a handler for keys; the name is then the panel's."""
        self.key(function)
        return self

    def key(self, function: F) -> F:
        """`handler(key, text)`: up, down, left, right, enter, tab, …, and `rune` with a character as text."""
        self.on_key = self._handler(function, self.on_key, "key", "key", "text")
        return function

    def resized(self, function: F) -> F:
        """`handler(width, height)`, from hosts that tell."""
        self.on_resize = self._handler(function, self.on_resize, "size", "width", "height")
        return function

    def closed(self, function: F) -> F:
        """`handler()`: the person or the host closed it."""
        self.on_close = self._handler(function, self.on_close, "end")
        return function

    def handlers(self) -> list[Handler]:
        return [handler for handler in (self.on_key, self.on_resize, self.on_close) if handler is not None]

    def _handler(self, function: Function, other: Handler | None, what: str, *offered: str) -> Handler:
        handler = Handler(function, f'panel "{self.id}", {what}', *offered)
        if other is not None:
            text = f'panel "{self.id}" has two handlers for its {what}: the one in {other.where} and the one in {handler.where}'
            raise BadExtension(text, hint="let one of them call the other")
        return handler


def _lines(lines: Iterable[str]) -> tuple[str, ...]:
    """A text is its lines; the host wraps nothing and cuts nothing."""
    shown = tuple(lines.split("\n")) if isinstance(lines, str) else tuple(lines)
    for line in shown:
        if not isinstance(line, str):
            raise TypeError(f"a panel's lines are text, not {type(line).__name__}")
    return shown

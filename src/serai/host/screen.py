"""What guests have put on the surface to stay: it goes with the process that put it there (spec piglet 8.0).

Widgets, overlays and status segments have a key each, which all guests share: who sets one last has it, and only from then on
does it go with that one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from serai.limits import KIB
from serai.model.actions import Action, CloseOverlay, NoAction, SetStatus, SetWidget, ShowOverlay

__all__ = ["Screen", "fitting"]

_MOST = 200  # things of one process: beyond it the oldest goes

_KEY = 200  # characters: a longer one is nobody's name for a thing
_CONTENT = 64 * KIB  # characters of one thing: nobody sees more of it

_Thing = tuple[Literal["widget", "overlay", "status"], str]


def fitting(action: Action) -> Action:
    """The same, no longer than it can be seen: what stays on the surface is kept there, and a guest may put much of it."""
    match action:
        case SetWidget(key=key) | SetStatus(key=key) | ShowOverlay(overlay=msgspec.Struct(key=key)) if len(key) > _KEY:
            return NoAction()
        case SetWidget(content=content) if len(content) > _CONTENT:
            return msgspec.structs.replace(action, content=f"{content[:_CONTENT]}…")
        case SetStatus(text=text) if len(text) > _CONTENT:
            return msgspec.structs.replace(action, text=f"{text[:_CONTENT]}…")
        case ShowOverlay(overlay=overlay) if max(len(overlay.content), len(overlay.title)) > _CONTENT:
            cut = msgspec.structs.replace(overlay, title=overlay.title[:_KEY], content=f"{overlay.content[:_CONTENT]}…")
            return ShowOverlay(cut)
    return action


class Screen:
    """Who has put what there; `show` is how it is taken away again."""

    def __init__(self, show: Callable[[Action], None]) -> None:
        self._show = show
        self._owners: dict[_Thing, tuple[object, Action]] = {}  # and what removes it; the oldest first

    def seen(self, owner: object, action: Action) -> None:
        """This one has it shown, before it is."""
        match action:
            case SetWidget(key=key, placement=placement, content=content):
                self._put(owner, ("widget", key), SetWidget(key, placement, ""), there=bool(content))
            case SetStatus(key=key, text=text):
                self._put(owner, ("status", key), SetStatus(key, ""), there=bool(text))
            case ShowOverlay(overlay=overlay):
                self._put(owner, ("overlay", overlay.key), CloseOverlay(overlay.key), there=True)
            case CloseOverlay(key=key):
                self._put(owner, ("overlay", key), action, there=False)
            case _:
                pass

    def clear(self, owner: object) -> None:
        """It is no longer there to change any of it. Idempotent."""
        for thing in [thing for thing, (who, _) in self._owners.items() if who is owner]:
            self._remove(thing)

    def _put(self, owner: object, thing: _Thing, removing: Action, *, there: bool) -> None:
        self._owners.pop(thing, None)
        if there:
            self._owners[thing] = (owner, removing)
            own = [thing for thing, (who, _) in self._owners.items() if who is owner]
            if len(own) > _MOST:
                self._remove(own[0])

    def _remove(self, thing: _Thing) -> None:
        _, removing = self._owners.pop(thing)
        self._show(removing)

"""The one panel slot of a host (spec zot 4.6), and what guests have put on the surface to stay (spec piglet 8.0).

A panel opens only because a command answered so. Esc and Ctrl+C never reach a guest: they close the panel. A crash or a reload of
the owner closes it too, and a displaced owner is told.

Widgets, overlays and status segments go with the process that put them there. They have a key each, which all guests share: the
last guest to set one owns it, and only from then on does it go with that guest.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import msgspec

from serai.limits import KIB
from serai.model.actions import Action, CloseOverlay, ClosePanel, NoAction, OpenPanel, Panel, SetStatus, SetWidget, ShowOverlay

if TYPE_CHECKING:
    from serai.host.guest_context import GuestContext

# What a key may be called; a guest of any dialect gets no others (spec zot 4.6, ours).
KEYS = frozenset(
    "up down left right enter tab backspace delete home end pageup pagedown rune unknown".split()  # noqa: SIM905
)
_CLOSING = frozenset({"esc", "ctrl+c"})


class PanelSlot:
    """At most one panel is open. The surface shows it; keys and sizes come from there."""

    def __init__(self, context: GuestContext) -> None:
        self._context = context
        self.open: Panel | None = None
        self.size: tuple[int, int] | None = None  # of the place where it is shown, once that is known

    def show(self, panel: Panel) -> None:
        """Open it for its owner; a displaced owner is told (ours). Nothing happens when the owner has died since it asked."""
        if self._context.find_running(panel.owner) is None:
            return
        before, self.open = self.open, panel
        if before is not None and (before.owner, before.id) != (panel.owner, panel.id):
            self._tell_closed(before)
        self._context.show(OpenPanel(self._add_title(panel)))
        if self.size is not None:
            self._resize()

    def render(self, owner: str, panel: str, change: Callable[[Panel], Panel]) -> None:
        """Its owner draws it anew; from anybody else, or for a stale one, nothing happens."""
        if self._is_open(owner, panel):
            assert self.open is not None
            self.open = change(self.open)
            self._context.show(OpenPanel(self._add_title(self.open)))

    def close_by_owner(self, owner: str, panel: str) -> None:
        """Its owner closes it: silently, no echo."""
        if self._is_open(owner, panel):
            self._close()

    def close_owned(self, owner: str) -> None:
        """Its owner crashed or is replaced."""
        if self.open is not None and self.open.owner == owner:
            self._close()

    def press(self, key: str, text: str = "") -> None:
        """A key from the person. A name that no guest knows is `unknown`; a rune is exactly one character."""
        if self.open is None:
            return
        if key in _CLOSING:
            self.dismiss()
        elif key == "rune":
            self.type(text)
        else:
            self._press(key if key in KEYS else "unknown")

    def type(self, text: str) -> None:
        """Typed or pasted text: one key for each character. A pasted Esc is no Esc, and nothing that can be typed either."""
        for char in text.replace("\r\n", "\n"):
            if char in "\r\n":
                self._press("enter")
            elif char == "\t":
                self._press("tab")
            elif unicodedata.category(char) in ("Cc", "Cs"):
                self._press("unknown")
            else:
                self._press("rune", char)

    def resize(self, width: int, height: int) -> None:
        """The place where panels are shown has this size now."""
        self.size = (width, height)
        if self.open is not None:
            self._resize()

    def dismiss(self) -> bool:
        """The person closes it; its owner is told. False when none is open."""
        panel = self.open
        if panel is None:
            return False
        self._close()
        self._tell_closed(panel)
        return True

    # -- inside -----------------------------------------------------------------------------------------------------------------

    def _is_open(self, owner: str, panel: str) -> bool:
        return self.open is not None and (self.open.owner, self.open.id) == (owner, panel)

    def _add_title(self, panel: Panel) -> Panel:
        """An empty title shows the guest's name."""
        if panel.title:
            return panel
        return Panel(panel.id, panel.owner.partition(":")[2], panel.lines, panel.footer, panel.owner)

    def _close(self) -> None:
        panel, self.open = self.open, None
        assert panel is not None
        self._context.show(ClosePanel(panel))

    def _press(self, key: str, text: str = "") -> None:
        panel = self.open
        if panel is not None and (running := self._context.find_running(panel.owner)) is not None:
            running.press(panel.id, key, text)

    def _resize(self) -> None:
        assert self.open is not None
        assert self.size is not None
        if (running := self._context.find_running(self.open.owner)) is not None:
            running.resize(self.open.id, *self.size)

    def _tell_closed(self, panel: Panel) -> None:
        if (running := self._context.find_running(panel.owner)) is not None:
            running.close_panel(panel.id)


_MOST = 200  # things of one process: beyond it the oldest goes

_KEY = 200  # characters: a longer one is nobody's name for a thing
_CONTENT = 64 * KIB  # characters of one thing: nobody sees more of it

_Thing = tuple[Literal["widget", "overlay", "status"], str]


def fit_action(action: Action) -> Action:
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


class ScreenItems:
    """Who has put what there; `show` is how it is taken away again."""

    def __init__(self, show: Callable[[Action], None]) -> None:
        self._show = show
        self._owners: dict[_Thing, tuple[object, Action]] = {}  # and what removes it; the oldest first

    def record(self, owner: object, action: Action) -> None:
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

"""The one panel slot of the house (spec zot 4.6): who owns it, how it looks, and where its keys go.

A panel opens only because a command answered so. Esc and Ctrl+C never reach a guest: they close the panel. A crash or a reload of
the owner closes it too, and whoever is displaced is told.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING

from serai.model.actions import ClosePanel, OpenPanel, Panel

if TYPE_CHECKING:
    from serai.host.house import House

__all__ = ["KEYS", "Panels"]

# What a key may be called; a guest of any dialect gets no others (spec zot 4.6, ours).
KEYS = frozenset(
    "up down left right enter tab backspace delete home end pageup pagedown rune unknown".split()  # noqa: SIM905
)
_CLOSING = frozenset({"esc", "ctrl+c"})


class Panels:
    """At most one panel is open. The surface shows it; keys and sizes come from there."""

    def __init__(self, house: House) -> None:
        self._house = house
        self.open: Panel | None = None
        self.size: tuple[int, int] | None = None  # of the place where it is shown, once that is known

    def show(self, panel: Panel) -> None:
        """Open it for its owner; a displaced owner is told (ours). Nothing happens when the owner has died since it asked."""
        if self._house.running(panel.owner) is None:
            return
        before, self.open = self.open, panel
        if before is not None and (before.owner, before.id) != (panel.owner, panel.id):
            self._tell_closed(before)
        self._house.show(OpenPanel(self._titled(panel)))
        if self.size is not None:
            self._resize()

    def rendered(self, owner: str, panel: str, change: Callable[[Panel], Panel]) -> None:
        """Its owner draws it anew; from anybody else, or for a stale one, nothing happens."""
        if self._is(owner, panel):
            assert self.open is not None
            self.open = change(self.open)
            self._house.show(OpenPanel(self._titled(self.open)))

    def closed_by(self, owner: str, panel: str) -> None:
        """Its owner closes it: silently, no echo."""
        if self._is(owner, panel):
            self._close()

    def close_of(self, owner: str) -> None:
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

    def _is(self, owner: str, panel: str) -> bool:
        return self.open is not None and (self.open.owner, self.open.id) == (owner, panel)

    def _titled(self, panel: Panel) -> Panel:
        """An empty title shows the guest's name."""
        if panel.title:
            return panel
        return Panel(panel.id, panel.owner.partition(":")[2], panel.lines, panel.footer, panel.owner)

    def _close(self) -> None:
        panel, self.open = self.open, None
        assert panel is not None
        self._house.show(ClosePanel(panel))

    def _press(self, key: str, text: str = "") -> None:
        panel = self.open
        if panel is not None and (running := self._house.running(panel.owner)) is not None:
            running.press(panel.id, key, text)

    def _resize(self) -> None:
        assert self.open is not None
        assert self.size is not None
        if (running := self._house.running(self.open.owner)) is not None:
            running.resize(self.open.id, *self.size)

    def _tell_closed(self, panel: Panel) -> None:
        if (running := self._house.running(panel.owner)) is not None:
            running.close_panel(panel.id)

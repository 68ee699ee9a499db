"""What is on the screen now: the sum of all actions so far. Pure, so that every surface and every test sees the same."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from serai.model.actions import (
    Action,
    AttachImage,
    CloseOverlay,
    ClosePanel,
    DetachImage,
    Insert,
    OpenPanel,
    Overlay,
    Panel,
    Placement,
    SetInput,
    SetStatus,
    SetTitle,
    SetWidget,
    ShowOverlay,
)
from serai.model.tools import ImageBlock

__all__ = ["Board"]

_NONE: dict[Placement, dict[str, str]] = {"above-input": {}, "below-status": {}}


class Board(msgspec.Struct, frozen=True):
    """Each kind in the order in which it came (spec piglet 6.11). `overlays` are from the lowest to the top."""

    statuses: dict[str, str] = msgspec.field(default_factory=dict)
    widgets: dict[Placement, dict[str, str]] = msgspec.field(default_factory=lambda: dict(_NONE))
    overlays: tuple[Overlay, ...] = ()
    panel: Panel | None = None
    title: str = ""
    image: ImageBlock | None = None  # that goes with the next prompt
    input: str = ""  # what stands in the person's input line without having been typed

    def apply(self, action: Action) -> Board:
        """The board after this action; what passes by and leaves nothing behind changes nothing."""
        match action:
            case SetStatus(key, text):
                return replace(self, statuses=_put(self.statuses, key, text))
            case SetWidget():
                return replace(self, widgets=self._placed(action))
            case ShowOverlay(overlay):
                return replace(self, overlays=(*self._overlays_but(overlay.key), overlay))
            case CloseOverlay(key):
                return replace(self, overlays=self._overlays_but(key))
            case OpenPanel(panel):
                return replace(self, panel=panel)
            case ClosePanel(panel):
                return replace(self, panel=None) if _is(self.panel, panel) else self
            case SetTitle(text):
                return replace(self, title=text) if text else self
            case AttachImage(image):
                return replace(self, image=image if self.image is None else None)  # a second one toggles (spec piglet 5.4)
            case DetachImage():
                return replace(self, image=None)
            case Insert(text):
                return replace(self, input=self.input + text)
            case SetInput(text):
                return replace(self, input=text)
            case _:
                return self

    def submitted(self) -> Board:
        """The board after the person's prompt has gone out, and its image with it."""
        return replace(self, image=None, input="")

    def _placed(self, widget: SetWidget) -> dict[Placement, dict[str, str]]:
        """The last word for a key counts, wherever it was before."""
        return {
            place: _put(texts, widget.key, widget.content if place == widget.placement else "")
            for place, texts in self.widgets.items()
        }

    def _overlays_but(self, key: str) -> tuple[Overlay, ...]:
        return tuple(overlay for overlay in self.overlays if overlay.key != key)


def _put(texts: dict[str, str], key: str, text: str) -> dict[str, str]:
    """With this text in the place that the key has, or at the end; without the key when the text is empty."""
    return {name: old for name, old in (texts | {key: text}).items() if old}


def _is(first: Panel | None, second: Panel) -> bool:
    return first is not None and (first.id, first.owner) == (second.id, second.owner)

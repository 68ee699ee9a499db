"""What a guest wants done: the answers of its commands, its event handlers and its shortcuts, and what it wants shown.

zot's five actions and piglet's action results in one list. A surface or the app carries them out; a guest never does so itself.
`ScreenState` is the sum of all actions so far. It is pure, so that every surface and every test sees the same.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec
from msgspec.structs import replace

from serai.model.tools import ImageBlock

Level = Literal["info", "success", "warn", "error"]
Placement = Literal["above-input", "below-status"]
_WIDTH = re.compile(r"([0-9]{1,6})(%?)")


class SubmitPrompt(msgspec.Struct, frozen=True, tag="prompt"):
    """Text for the agent, as if a person had typed it. Queued behind a running turn."""

    text: str


class Insert(msgspec.Struct, frozen=True, tag="insert"):
    """Text for the person's input line, at the cursor and not submitted."""

    text: str


class SetInput(msgspec.Struct, frozen=True, tag="set_input"):
    """Text for the person's input line in the place of what is there, not submitted."""

    text: str


class Display(msgspec.Struct, frozen=True, tag="display"):
    """Text to show; no model sees it. `source` is what the guest is called."""

    text: str
    source: str = ""

    def format_lines(self) -> list[str]:
        """As it is shown: each line with the guest's name (spec zot 7.24)."""
        return _prefix_lines(self.source, self.text)


class Notice(msgspec.Struct, frozen=True, tag="notice"):
    """A short word to the person, from a guest or from Serai itself."""

    text: str
    level: Level = "info"
    source: str = ""

    def format_lines(self) -> list[str]:
        """As it is shown: one note line per line (spec zot 4.5, 7.28)."""
        return _prefix_lines(self.source, self.text)


class Panel(msgspec.Struct, frozen=True, omit_defaults=True):
    """A modal text panel as it should look now. `owner` is the guest's id."""

    id: str
    title: str = ""
    lines: tuple[str, ...] = ()
    footer: str = ""
    owner: str = ""


class OpenPanel(msgspec.Struct, frozen=True, tag="open_panel"):
    panel: Panel


class ClosePanel(msgspec.Struct, frozen=True, tag="close_panel"):
    panel: Panel


class SetStatus(msgspec.Struct, frozen=True, tag="set_status"):
    """A segment of the status line; empty text removes it."""

    key: str
    text: str


class SetTitle(msgspec.Struct, frozen=True, tag="set_title"):
    """The session's title."""

    text: str


class SetWidget(msgspec.Struct, frozen=True, tag="set_widget"):
    """A text that stays in its place; empty content removes it. A key is there once, wherever it was last put."""

    key: str
    placement: Placement
    content: str


class Anchor(msgspec.Struct, frozen=True, omit_defaults=True):
    """The edge or corner of the screen that an overlay keeps to."""

    horizontal: Literal["left", "centre", "right"] = "centre"
    vertical: Literal["top", "centre", "bottom"] = "centre"


class Width(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of an overlay: so many per cent of the screen, or so many characters."""

    amount: int = 60
    unit: Literal["percent", "characters"] = "percent"


class Overlay(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text over everything else. One of the same key takes its place, and comes to the top."""

    key: str
    title: str = ""
    content: str = ""
    anchor: Anchor = Anchor()
    width: Width = Width()


class ShowOverlay(msgspec.Struct, frozen=True, tag="show_overlay"):
    overlay: Overlay


class CloseOverlay(msgspec.Struct, frozen=True, tag="close_overlay"):
    key: str


class AttachImage(msgspec.Struct, frozen=True, tag="attach_image"):
    """An image for the next prompt; when one is attached already, it is taken off instead (spec piglet 5.4)."""

    image: ImageBlock


class DetachImage(msgspec.Struct, frozen=True, tag="detach_image"):
    pass


class Quit(msgspec.Struct, frozen=True, tag="quit"):
    pass


class NoAction(msgspec.Struct, frozen=True, tag="nothing"):
    pass


Action = (
    SubmitPrompt
    | Insert
    | SetInput
    | Display
    | Notice
    | OpenPanel
    | ClosePanel
    | SetStatus
    | SetTitle
    | SetWidget
    | ShowOverlay
    | CloseOverlay
    | AttachImage
    | DetachImage
    | Quit
    | NoAction
)


def parse_anchor(text: str) -> Anchor:
    """What `top-right` or `Bottom_Left` means (spec piglet 6.11). Other words mean nothing; of two for one side the last counts."""
    anchor = Anchor()
    for word in re.split("[-_]", text.strip().lower()):
        match word:
            case "left" | "right":
                anchor = Anchor(word, anchor.vertical)
            case "top" | "bottom":
                anchor = Anchor(anchor.horizontal, word)
    return anchor


def parse_width(text: str) -> Width:
    """What `50%` or `40` means (spec piglet 6.11); all else is the usual width."""
    found = _WIDTH.fullmatch(text.strip())
    amount = int(found[1]) if found is not None else 0
    percent = found is not None and bool(found[2])
    if not amount or (percent and amount > 100):
        return Width()
    return Width(amount, "percent" if percent else "characters")


def _prefix_lines(source: str, text: str) -> list[str]:
    return [f"[{source}] {line}" if source else line for line in text.split("\n")]


class CommandResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of a command: an action, or an error as the person sees it, with a code for scripts."""

    action: Action
    error: str = ""
    code: str = ""


_NONE: dict[Placement, dict[str, str]] = {"above-input": {}, "below-status": {}}


class ScreenState(msgspec.Struct, frozen=True):
    """Each kind in the order in which it came (spec piglet 6.11). `overlays` are from the lowest to the top."""

    statuses: dict[str, str] = msgspec.field(default_factory=dict)
    widgets: dict[Placement, dict[str, str]] = msgspec.field(default_factory=lambda: dict(_NONE))
    overlays: tuple[Overlay, ...] = ()
    panel: Panel | None = None
    title: str = ""
    image: ImageBlock | None = None  # that goes with the next prompt
    input: str = ""  # what stands in the person's input line without having been typed

    def apply(self, action: Action) -> ScreenState:
        """The board after this action; what passes by and leaves nothing behind changes nothing."""
        match action:
            case SetStatus(key, text):
                return replace(self, statuses=_put_text(self.statuses, key, text))
            case SetWidget():
                return replace(self, widgets=self._place_widget(action))
            case ShowOverlay(overlay):
                return replace(self, overlays=(*self._drop_overlay(overlay.key), overlay))
            case CloseOverlay(key):
                return replace(self, overlays=self._drop_overlay(key))
            case OpenPanel(panel):
                return replace(self, panel=panel)
            case ClosePanel(panel):
                return replace(self, panel=None) if _is_same_panel(self.panel, panel) else self
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

    def submit(self) -> ScreenState:
        """The board after the person's prompt has gone out, and its image with it."""
        return replace(self, image=None, input="")

    def _place_widget(self, widget: SetWidget) -> dict[Placement, dict[str, str]]:
        """The last word for a key counts, wherever it was before."""
        return {
            place: _put_text(texts, widget.key, widget.content if place == widget.placement else "")
            for place, texts in self.widgets.items()
        }

    def _drop_overlay(self, key: str) -> tuple[Overlay, ...]:
        return tuple(overlay for overlay in self.overlays if overlay.key != key)


def _put_text(texts: dict[str, str], key: str, text: str) -> dict[str, str]:
    """With this text in the place that the key has, or at the end; without the key when the text is empty."""
    return {name: old for name, old in (texts | {key: text}).items() if old}


def _is_same_panel(first: Panel | None, second: Panel) -> bool:
    return first is not None and (first.id, first.owner) == (second.id, second.owner)

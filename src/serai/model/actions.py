"""What a guest wants done: the answers of its commands, and later of its event handlers and shortcuts.

zot's five actions and piglet's action results in one list. A surface or the app carries them out; a guest never does so itself.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from serai.model.tools import ImageBlock

__all__ = [
    "Action",
    "AttachImage",
    "ClosePanel",
    "DetachImage",
    "Display",
    "Insert",
    "Level",
    "Nothing",
    "Notice",
    "OpenPanel",
    "Outcome",
    "Panel",
    "Prompt",
    "Quit",
    "SetStatus",
    "SetTitle",
]

Level = Literal["info", "success", "warn", "error"]


class Prompt(msgspec.Struct, frozen=True, tag="prompt"):
    """Text for the agent, as if a person had typed it. Queued behind a running turn."""

    text: str


class Insert(msgspec.Struct, frozen=True, tag="insert"):
    """Text for the person's input line, at the cursor and not submitted."""

    text: str


class Display(msgspec.Struct, frozen=True, tag="display"):
    """Text to show; no model sees it. `source` is the guest's name."""

    text: str
    source: str = ""

    def lines(self) -> list[str]:
        """As it is shown: each line with the guest's name (spec zot 7.24)."""
        return _prefixed(self.source, self.text)


class Notice(msgspec.Struct, frozen=True, tag="notice"):
    """A short word to the person, from a guest or from Serai itself."""

    text: str
    level: Level = "info"
    source: str = ""

    def lines(self) -> list[str]:
        """As it is shown: one note line per line (spec zot 4.5, 7.28)."""
        return _prefixed(self.source, self.text)


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


class AttachImage(msgspec.Struct, frozen=True, tag="attach_image"):
    """An image for the next prompt."""

    image: ImageBlock


class DetachImage(msgspec.Struct, frozen=True, tag="detach_image"):
    pass


class Quit(msgspec.Struct, frozen=True, tag="quit"):
    pass


class Nothing(msgspec.Struct, frozen=True, tag="nothing"):
    pass


Action = (
    Prompt | Insert | Display | Notice | OpenPanel | ClosePanel | SetStatus | SetTitle | AttachImage | DetachImage | Quit | Nothing
)


def _prefixed(source: str, text: str) -> list[str]:
    return [f"[{source}] {line}" if source else line for line in text.split("\n")]


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of a command: an action, or an error as the person sees it, with a code for scripts."""

    action: Action
    error: str = ""
    code: str = ""

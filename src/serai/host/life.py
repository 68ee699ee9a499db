"""The states a guest can be in, and one start of it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from time import monotonic
from typing import TYPE_CHECKING

from serai.errors import SeraiError
from serai.host.adapter import Running
from serai.model.actions import Action, OpenPanel, Panel

if TYPE_CHECKING:
    from serai.host.supervising import Supervised

__all__ = ["Life", "State"]


class State(StrEnum):
    """The life of a guest."""

    FOUND = "found"
    STARTING = "starting"
    READY = "ready"
    FAILING = "failing"  # it has crashed and is being cleared away
    BACKING_OFF = "backing off"  # it is started again a little later
    STOPPED = "stopped"  # on purpose
    GONE = "gone"  # it could not be started, or crashed too often; a reload brings it back


class Life:
    """One start of a guest, from spawn to end. What an earlier life says late is heard by nobody."""

    def __init__(self, guest: Supervised, generation: int) -> None:
        self.guest = guest
        self.generation = generation
        self.running: Running | None = None
        self.since = monotonic()
        self.cause: SeraiError | None = None  # why it ended by itself
        self.release: Callable[[], None] = _nothing  # give back its place among those that start

    @property
    def current(self) -> bool:
        return self.guest.life is self

    def changed(self) -> None:
        if self.current:
            self.guest.changed()

    def acted(self, action: Action) -> None:
        if self.current or not isinstance(action, OpenPanel):  # who is replaced has nobody left to draw a panel
            self.guest.house.act(action, self)

    def rendered(self, panel: str, change: Callable[[Panel], Panel]) -> None:
        if self.current:
            self.guest.house.panels.rendered(self.guest.id, panel, change)

    def closed_panel(self, panel: str) -> None:
        if self.current:
            self.guest.house.panels.closed_by(self.guest.id, panel)

    def ended(self, cause: SeraiError) -> None:
        self.cause = cause
        self.guest.crashed(self, cause)


def _nothing() -> None:
    """What a life releases that holds no place."""

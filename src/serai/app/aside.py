"""What an agent does beside the turns that people want: turns that it begins by itself, and what it asks about work on the side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from serai.agents.turn import Turn, ask_surface, run_turn
from serai.app.joining import Counter
from serai.model.actions import Notice
from serai.model.approvals import Approval, Question
from serai.model.events import Event, RequestCancelled, TurnResult

if TYPE_CHECKING:
    from serai.app.opening import House

__all__ = ["Aside"]


class Aside:
    """One app's. What is asked here goes the way of everything that is asked."""

    def __init__(self, house: Callable[[], House]) -> None:
        self._house = house
        self._turns: set[asyncio.Task[TurnResult]] = set()
        self.asking: dict[str, asyncio.Task[None]] = {}  # by the id of the request; also what a turn has left open

    def begun(self, turn: Turn) -> None:
        """The agent began a turn."""
        house = self._house()
        turn.taken = True
        driving = run_turn(turn, Counter(house.surface, house.pipeline), house.surface.tell, left=self.asking)
        task = asyncio.get_running_loop().create_task(driving, name="a turn of the agent's own")
        self._turns.add(task)
        task.add_done_callback(self._played)

    def heard(self, event: Event, *, alone: bool) -> None:
        """Every event; `alone`: it belongs to no turn. What a turn has left open may be withdrawn in a later one."""
        if isinstance(event, RequestCancelled):
            if event.id in self.asking:
                self.asking[event.id].cancel()
        elif alone and isinstance(event, Approval | Question) and not event.answered:
            house = self._house()
            ask_surface(event, Counter(house.surface, house.pipeline), self.asking)

    def _played(self, task: asyncio.Task[TurnResult]) -> None:
        self._turns.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:  # nobody waits for it, so it is told
            self._house().surface.act(Notice(f"a turn that the agent began by itself failed: {error}", "error", "serai"))

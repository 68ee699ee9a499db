"""A driver whose turns are functions of the test, to see a session from both sides."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from serai.agents.driver import Capabilities, Driver, Prompt
from serai.agents.event_hub import EventHub
from serai.agents.session import Session
from serai.agents.turn import Turn
from serai.limits import Limits
from serai.model.events import Event, Text, TurnResult

ALL = Capabilities(deltas=True, approvals=True, questions=True, interrupt=True, multi_turn=True, steer=True, images=True)
Play = Callable[[EventHub, Prompt], Awaitable[TurnResult | None]]


class Scripted(Driver):
    """`play` is a turn; it is cancelled when the turn is interrupted, unless it is `deaf`."""

    name = "scripted"
    capabilities = ALL

    def __init__(self, play: Play, *, deaf: bool = False) -> None:
        self.session_id = "s1"
        self._play = play
        self._deaf = deaf
        self._task: asyncio.Task[TurnResult | None] | None = None
        self.hub: EventHub | None = None
        self.interrupts: list[str] = []
        self.steered: list[str] = []
        self.closed = 0

    async def open(self, hub: EventHub) -> None:
        self.hub = hub

    async def run(self, prompt: Prompt) -> TurnResult:
        assert self.hub is not None
        self._task = asyncio.ensure_future(self._play(self.hub, prompt))
        try:
            result = await asyncio.shield(self._task)
        except asyncio.CancelledError:
            if not self._task.cancelled():
                self._task.cancel()
                raise
            result = TurnResult(status="cancelled", error="interrupted")
        return result or TurnResult(status="success", text="done")

    async def interrupt(self, reason: str) -> None:
        self.interrupts.append(reason)
        if self._task is not None and not self._deaf:
            self._task.cancel()

    def steer(self, text: str) -> None:
        self.steered.append(text)

    async def close(self) -> None:
        self.closed += 1


def create_session(play: Play, *, limits: Limits | None = None, deaf: bool = False) -> Session:
    return Session(Scripted(play, deaf=deaf), limits=limits)


async def start_and_hang(hub: EventHub, prompt: Prompt) -> None:
    hub.emit(Text(text="on it"))
    await asyncio.Event().wait()


async def echo_prompt(hub: EventHub, prompt: Prompt) -> TurnResult:
    return TurnResult(status="success", text=prompt.text)


async def collect_events(turn: Turn) -> list[Event]:
    return [event async for event in turn]

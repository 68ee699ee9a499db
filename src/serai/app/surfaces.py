"""The surfaces of an app: the person's, with its failures caught; those of a turn's requests and of guests; and turns without a
prompt.

`ApprovalEvents` makes events of the session of what a person is asked. `AgentTurnRunner` plays turns that the agent begins by
itself, and asks about its work on the side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from serai.agents.event_hub import EventHub
from serai.agents.turn import Turn, ask_surface, run_turn
from serai.app.agent_tools import log
from serai.app.pipeline import ApprovalObserver, Pipeline
from serai.model.actions import Action, Notice
from serai.model.approvals import Approval, Decision, Question
from serai.model.events import Event, NoticeEvent, RequestCancelled, ToolCalled, TurnResult, TurnStarted
from serai.model.surface import PacedSurface, SelectiveSurface, Surface

if TYPE_CHECKING:
    from serai.app.assembly import Runtime


class SafeSurface:
    """A person's surface whose defects are its own: what it does not show is logged, and nobody suffers for it."""

    def __init__(self, surface: Surface) -> None:
        self._surface = surface
        self._paced = surface if isinstance(surface, PacedSurface) else None

    @property
    def interactive(self) -> bool:
        return self._surface.interactive

    def answers(self, request: Approval | Question) -> bool:
        return not isinstance(self._surface, SelectiveSurface) or self._surface.answers(request)

    @property
    def behind(self) -> bool:
        return self._paced is not None and self._paced.behind

    async def room(self) -> None:
        if self._paced is not None:
            await self._paced.room()

    async def ask(self, request: Approval | Question) -> Decision:
        return await self._surface.ask(request)

    def act(self, action: Action) -> None:
        try:
            self._surface.act(action)
        except Exception:
            log.exception("the surface failed on %s", type(action).__name__)

    def tell(self, event: Event) -> None:
        try:
            self._surface.tell(event)
        except Exception:
            log.exception("the surface failed on %s", type(event).__name__)


class ApprovalSurface:
    """Where a turn's own requests go: an agent's approvals through the pipeline, what only a person can answer to the approver."""

    def __init__(self, surface: SafeSurface, pipeline: Pipeline) -> None:
        self._surface = surface
        self._pipeline = pipeline

    @property
    def interactive(self) -> bool:
        return self._surface.interactive

    @property
    def behind(self) -> bool:
        return self._surface.behind

    async def room(self) -> None:
        await self._surface.room()

    async def ask(self, request: Approval | Question) -> Decision:
        if isinstance(request, Approval) and request.reason_type != "step":
            return (await self._pipeline.decide(request)).decision
        return await self._pipeline.ask(request)

    def act(self, action: Action) -> None:
        self._surface.act(action)

    def tell(self, event: Event) -> None:
        self._surface.tell(event)


class GuestSurface:
    """The surface that guests have: what they want done goes to the app, the rest to the person's surface."""

    def __init__(self, surface: Surface, do: Callable[[Action], bool]) -> None:
        """`do` says whether it was its to do."""
        self._surface = surface
        self._do = do

    @property
    def interactive(self) -> bool:
        return self._surface.interactive

    async def ask(self, request: Approval | Question) -> Decision:
        return await self._surface.ask(request)

    def act(self, action: Action) -> None:
        if not self._do(action):
            self._surface.act(action)

    def tell(self, event: Event) -> None:
        self._surface.tell(event)


class ApprovalEvents(ApprovalObserver):
    """What is asked of a person is an event of the session, and on its record."""

    def __init__(self, hub: EventHub) -> None:
        self._hub = hub
        self._called: set[str] = set()  # the calls of the turn that runs, by id
        hub.listeners.append(self._track_calls)

    def _track_calls(self, event: Event) -> None:
        if isinstance(event, ToolCalled) and not event.lane:
            self._called.add(event.call.id)
        elif isinstance(event, TurnStarted):
            self._called.clear()

    def report_request(self, request: Approval | Question) -> None:
        if isinstance(request, Approval) and not (request.call.asker == self._hub.agent and request.call.id in self._called):
            # A guest's, or one of work on the side: the model of this conversation has not made it.
            request = msgspec.structs.replace(request, call=msgspec.structs.replace(request.call, id=""))
        self._hub.report_request(request)

    def report_decision(self, request: Approval | Question, decision: Decision, *, withdrawn: str = "") -> None:
        self._hub.report_decision(request, decision, withdrawn=withdrawn)

    def report_no_person(self, request: Approval, hint: str) -> None:
        text = f"{request.tool} was denied, as nobody is there to approve it: {hint}"
        self._hub.emit(NoticeEvent(notice=Notice(text, "warn", "serai")))


class AgentTurnRunner:
    """One app's. What is asked here goes the way of everything that is asked."""

    def __init__(self, runtime: Callable[[], Runtime]) -> None:
        self._runtime = runtime
        self._turns: set[asyncio.Task[TurnResult]] = set()
        self.asking: dict[str, asyncio.Task[None]] = {}  # by the id of the request; also what a turn has left open

    def start_turn(self, turn: Turn) -> None:
        """The agent began a turn."""
        runtime = self._runtime()
        turn.taken = True
        driving = run_turn(turn, ApprovalSurface(runtime.surface, runtime.pipeline), runtime.surface.tell, left=self.asking)
        task = asyncio.get_running_loop().create_task(driving, name="a turn of the agent's own")
        self._turns.add(task)
        task.add_done_callback(self._finish_turn)

    def handle_event(self, event: Event, *, alone: bool) -> None:
        """Every event; `alone`: it belongs to no turn. What a turn has left open may be withdrawn in a later one."""
        if isinstance(event, RequestCancelled):
            if event.id in self.asking:
                self.asking[event.id].cancel()
        elif alone and isinstance(event, Approval | Question) and not event.answered:
            runtime = self._runtime()
            ask_surface(event, ApprovalSurface(runtime.surface, runtime.pipeline), self.asking)

    def _finish_turn(self, task: asyncio.Task[TurnResult]) -> None:
        self._turns.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:  # nobody waits for it, so it is told
            self._runtime().surface.act(Notice(f"a turn that the agent began by itself failed: {error}", "error", "serai"))

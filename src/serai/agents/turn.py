"""One prompt's work, as its reader sees it: events in order, an end, and a result that any number of callers may wait for.

`run_turn` runs one to its end: its requests go to a surface, its events to a sink (spec agents 1.13).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from serai.agents.driver import Prompt
from serai.errors import Closed
from serai.model.approvals import Approval, Decision, Deny, Question
from serai.model.events import Event, RequestCancelled, Stderr, Text, Thinking, ToolInput, ToolProgress, TurnResult, merge_fragments
from serai.model.surface import PacedSurface, Surface

if TYPE_CHECKING:
    from serai.agents.event_hub import EventHub

log = logging.getLogger("serai.agents")

# Pieces of text that nobody has read yet are joined up to so many characters: longer ones would be copied again and again.
_JOINED = 4096


class Turn:
    """A turn. It begins when somebody iterates, enters or awaits it.

    `async for event in turn` gives what happens and raises the turn's error after the last event. `async with` also ends it when
    the block is left early. `await turn` or `await turn.result()` waits for the end; when nobody iterates, nobody is there to
    approve anything either. Whoever is cancelled while awaiting the result interrupts the turn.
    """

    def __init__(
        self,
        prompt: Prompt,
        hub: EventHub,
        *,
        start: Callable[[Turn], None] | None = None,
        stop: Callable[[Turn, str], Awaitable[None]] | None = None,
    ) -> None:
        """`start` begins it, `stop` has it end; a turn that the agent begins has no `start`."""
        self.prompt = prompt
        self.outcome: TurnResult | None = None  # how it ended, also when it failed
        self.error: BaseException | None = None
        self.began = 0.0
        self.reason = ""  # why it was cancelled
        self.marks = True  # whether the model finds that in the conversation
        self.unheard = False  # nobody reads it
        self._hub = hub
        self._start = start
        self._stop = stop
        self._stopping: asyncio.Task[None] | None = None
        self._events: deque[Event] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._over: asyncio.Future[None] | None = None
        self._read = False  # somebody iterates
        self._awaited = 0  # so many wait for the result
        self.taken = False  # somebody means to read it
        self._raised = False
        self._most = hub.limits.waiting

    # -- for its reader

    def __aiter__(self) -> Self:
        self._read = self.taken = True
        self.unheard = False
        self.start()
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self.outcome is not None:
                if self.error is not None and not self._raised:
                    self._raised = True
                    raise self.error
                raise StopAsyncIteration
            if self._reader is not None:
                raise RuntimeError("a turn has one reader: somebody iterates it already")
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        event = self._events.popleft()
        if self._writer is not None and len(self._events) <= self._most // 2:
            _wake(self._writer)
        return event

    def unread(self) -> list[Event]:
        """What nobody has read of it so far; then that is read."""
        left = list(self._events)
        self._events.clear()
        return left

    async def __aenter__(self) -> Self:
        self.taken = True
        self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.cancel("it was left")

    def __await__(self) -> Generator[object, None, TurnResult]:
        return self.result().__await__()

    async def result(self) -> TurnResult:
        """What came of it, or the error it ended with: the same for every caller."""
        self.start()
        if not self._read:
            self.ignore()
        self._awaited += 1  # so it must get to its end, whether or not anybody reads on
        _wake(self._writer)
        try:
            await self.over()
        except asyncio.CancelledError:
            await self.cancel("one who waited for its result was cancelled")
            raise
        if self.error is not None:
            raise self.error
        assert self.outcome is not None
        return self.outcome

    async def cancel(self, reason: str = "cancelled", *, mark: bool = True) -> None:
        """Interrupt it and wait for its end; the conversation goes on. Any task may, any number of times: the first one counts.

        `mark`: the model finds in the conversation that it was interrupted, and why.
        """
        if self.outcome is not None:
            return
        if self.started and self._stop is not None:
            if self._stopping is None:
                self.reason, self.marks = reason, mark
                _wake(self._writer)
                self._stopping = asyncio.ensure_future(self._stop(self, reason))
            await asyncio.shield(self._stopping)
        elif not self.started:
            self.reason = reason
            self.end(TurnResult(status="cancelled", error=reason))

    async def answer(self, id: str, decision: Decision) -> None:
        """Answer an approval or a question of this turn, from any task."""
        if self.outcome is not None:
            raise Closed("the turn is over", who=self._hub.agent, id=id)
        await self._hub.answer(id, decision)

    @property
    def pending(self) -> tuple[Approval | Question, ...]:
        """What waits for an answer."""
        return tuple(self._hub.pending.values()) if self._hub.turn is self else ()

    def awaits(self, id: str) -> bool:
        """Whether a request that came in it is still open, also after its end."""
        return id in self._hub.pending

    @property
    def done(self) -> bool:
        return self.outcome is not None

    # -- for the session

    @property
    def started(self) -> bool:
        return self._start is None

    def start(self) -> None:
        """Begin it, once."""
        if self._start is not None and self.outcome is None:
            start, self._start = self._start, None
            try:
                start(self)
            except BaseException:
                self._start = start  # a session that is busy now may take it later
                raise

    def ignore(self) -> None:
        """Nobody reads it: events are dropped, and nobody is there to answer what waits."""
        self.unheard = True
        self._events.clear()
        _wake(self._writer)
        for request in self.pending:
            self._hub.refuse(request)

    def put(self, event: Event) -> None:
        if self.unheard or (self.crowded and not self._has_room_for(event)):
            return
        self._events.append(event)
        _wake(self._reader)

    def _has_room_for(self, event: Event) -> bool:
        """Pieces of a text become one with the last. What a tool says meanwhile is for whoever watches: who does not look gets the
        newest of it, if anything. So it is with stderr, whose last words are kept elsewhere. The rest is always told."""
        last = self._events[-1]
        if isinstance(event, Text | Thinking | ToolInput):
            if (
                isinstance(last, Text | Thinking | ToolInput)
                and len(last.text) < _JOINED
                and (joined := merge_fragments(last, event))
            ):
                self._events[-1] = joined
                return False
            return True
        if isinstance(event, ToolProgress) and isinstance(last, ToolProgress) and last.call.id == event.call.id:
            self._events[-1] = msgspec.structs.replace(event, text=(last.text + event.text)[-_JOINED:])
            return False
        return not isinstance(event, ToolProgress | Stderr) or len(self._events) < 2 * self._most

    @property
    def crowded(self) -> bool:
        return len(self._events) >= self._most

    async def room(self) -> None:
        """Until its reader has caught up. Nobody waits for that once it is to end."""
        while self.crowded and self._stopping is None and not self._awaited and not self.unheard:
            if self._writer is None or self._writer.done():
                self._writer = asyncio.get_running_loop().create_future()
            done, _ = await asyncio.wait([self._writer], timeout=self._hub.limits.model_idle)
            if not done:  # who has read nothing for so long has left
                self.ignore()

    def end(self, result: TurnResult, error: BaseException | None = None) -> None:
        if self.outcome is None:
            self.outcome = result
            self.error = error
            for waiting in (self._reader, self._over):
                _wake(waiting)

    async def over(self) -> None:
        """Until it has ended, however it does. Who is cancelled meanwhile harms nobody."""
        if self.outcome is None:
            self._over = self._over or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._over)


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


async def run_turn(
    turn: Turn, surface: Surface, sink: Callable[[Event], None] | None = None, *, left: dict[str, asyncio.Task[None]] | None = None
) -> TurnResult:
    """Play the turn; its result, or its error. A surface that is behind (`PacedSurface`) is waited for.

    Each request is put to the surface in a task of its own, as an agent may have several open and goes on meanwhile; one that is
    withdrawn is taken back from the surface. A surface that fails denies, with the text of its failure (design rule 7). What is
    still asked when the turn is over, on behalf of work on the side, goes on in `left`, if there is one.
    """
    asking: dict[str, asyncio.Task[None]] = {}
    paced = surface if isinstance(surface, PacedSurface) else None
    try:
        async with turn:
            async for event in turn:
                if isinstance(event, Approval | Question) and not event.answered:  # else it is asked elsewhere
                    asking[event.id] = ask_surface(event, surface)
                elif isinstance(event, RequestCancelled) and event.id in asking:
                    asking.pop(event.id).cancel()
                if sink is not None:
                    sink(event)
                if paced is not None and paced.behind and not turn.done:
                    await _wait_for_surface(paced, turn)
    finally:
        for id, task in asking.items():
            if left is not None and turn.awaits(id):
                left[id] = task
                task.add_done_callback(partial(_forget, left, id))
            else:
                task.cancel()
        if sink is not None:  # how it ends is seen also by whoever was cancelled meanwhile
            for event in turn.unread():
                sink(event)
        await asyncio.gather(*(task for task in asking.values() if task.cancelling()), return_exceptions=True)
    return await turn.result()


async def _wait_for_surface(paced: PacedSurface, turn: Turn) -> None:
    """Until the surface has caught up, or the turn is over: then nothing more comes than is there."""
    waiting = [asyncio.ensure_future(paced.room()), asyncio.ensure_future(turn.over())]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


def ask_surface(
    request: Approval | Question, surface: Surface, asking: dict[str, asyncio.Task[None]] | None = None
) -> asyncio.Task[None]:
    """Ask the surface, in a task, and tell whoever wants to know; among `asking` it is found by the request's id until then."""
    task = asyncio.get_running_loop().create_task(_request_decision(request, surface), name=f"ask {request.id}")
    if asking is not None:
        asking[request.id] = task
        task.add_done_callback(partial(_forget, asking, request.id))
    return task


def _forget(asking: dict[str, asyncio.Task[None]], id: str, task: asyncio.Task[None]) -> None:
    if asking.get(id) is task:
        del asking[id]


async def _request_decision(request: Approval | Question, surface: Surface) -> None:
    try:
        decision: Decision = await surface.ask(request)
        if not isinstance(decision, request.takes):
            decision = Deny(f"the surface answered {type(decision).__name__}, which is no answer to it")
    except Exception as error:
        log.warning("the surface failed when it was asked: %r", error)
        decision = Deny(str(error) or type(error).__name__)
    try:
        await request.decide(decision)
    except Closed:  # it was answered elsewhere, or withdrawn, in the meantime
        log.info("the answer to %s came too late", request.id)

"""One execution: a session that is opened for one prompt, its turn as the seed's handle, and an end that is kept (spec agents
1.9).

The end runs as a task of its own, so that the process is gone and the lifecycle store is told even if nobody waits (spec agents
1.8). `ControlledHandle` is held by its producer directly: for agents in this process, such as mocks (spec agents 1.12).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from time import monotonic
from types import TracebackType
from typing import NamedTuple, Self

import msgspec

from serai.agents.session import Session
from serai.agents.turn import Turn
from serai.compat.agentboot.errors import (
    Cancelled,
    DeadlineExceeded,
    HandleClosed,
    ProcessError,
    ResultError,
    UnknownRequestId,
    to_seed_error,
)
from serai.compat.agentboot.messages import (
    ApprovalRequestEvent,
    ApprovalResponse,
    AskRequestEvent,
    AskResponse,
    ControlResponse,
    ErrorEvent,
    RequestCancelled,
    Result,
    RunAccount,
    StateChanged,
    Stderr,
    StreamEvent,
    TurnCompleted,
    TurnStarted,
    Waited,
)
from serai.compat.agentboot.options import LifecycleStore
from serai.errors import AgentFailed, LimitHit
from serai.model import events as model
from serai.model.approvals import Allow, Answer, Approval, Decision, Deny, Question

log = logging.getLogger("serai.agents")


def check_response(asked: Approval | Question, response: ControlResponse) -> None:
    """A `TypeError` before anything is used up (spec agents 7.5)."""
    fitting = AskResponse if isinstance(asked, Question) else ApprovalResponse
    if not isinstance(response, fitting):
        raise TypeError(
            f"the answer to {type(asked).__name__.lower()} {asked.id} is {fitting.__name__}, not {type(response).__name__}"
        )


def build_decision(asked: Approval | Question, response: ControlResponse) -> Decision:
    """The same answer in our words."""
    if isinstance(response, ApprovalResponse):
        if not response.approved:
            return Deny(response.reason, interrupt=response.interrupt)
        changed = msgspec.UNSET if response.updated_input is None else response.updated_input
        return Allow(changed, remember="session" if response.remember else "once")
    if not response.approved:
        return Deny(response.reason or response.response)
    assert isinstance(asked, Question)
    answers = response.selection or (response.updated_input or {}).get("answers")
    if not isinstance(answers, dict) or not answers:
        answers = {asked.items[0].text: response.response} if response.response else {}
    return Answer(answers)


ResponseFn = Callable[[str, ControlResponse], Awaitable[None] | None]
Supplied = Waited | tuple[Result, BaseException | None]
WaitFn = Callable[[], Awaitable[Supplied] | Supplied]


class _QueuedEvent(NamedTuple):
    """An event in the queue. Whoever emitted it goes on once there is room for it, or without a buffer once it is taken."""

    event: StreamEvent
    accepted: asyncio.Future[None]


class ControlledHandle:
    """An `ExecutionHandle`; its producer has the `HandleControls`."""

    def __init__(self, buffer_size: int, response_fn: ResponseFn, cancel_fn: Callable[[], object], wait_fn: WaitFn) -> None:
        self._most = max(buffer_size, 0)
        self._response_fn = response_fn
        self._cancel_fn = cancel_fn
        self._wait_fn = wait_fn
        self._queue: deque[_QueuedEvent] = deque()
        self._pending: dict[str, type[ApprovalResponse | AskResponse]] = {}
        self._reader: asyncio.Future[None] | None = None
        self._closed = False
        self._cancelled = False
        self._waited: asyncio.Future[Supplied] | None = None

    def events(self) -> AsyncIterator[StreamEvent]:
        return self

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return self

    async def __anext__(self) -> StreamEvent:
        while not self._queue:
            if self._closed:
                raise StopAsyncIteration
            if self._reader is not None and not self._reader.done():
                raise RuntimeError("a handle has one reader: somebody reads its events already")
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        queued = self._queue.popleft()
        self._accept()
        _complete(queued.accepted)
        return queued.event

    async def respond(self, request_id: str, response: ControlResponse) -> None:
        if self._closed:
            raise HandleClosed(id=str(request_id))
        if request_id not in self._pending:
            raise UnknownRequestId(id=str(request_id))
        if not isinstance(response, self._pending[request_id]):
            raise TypeError(f"the answer to {request_id} is {self._pending[request_id].__name__}, not {type(response).__name__}")
        del self._pending[request_id]  # taken before it is handed on: nobody comes in between
        handed = self._response_fn(request_id, response)
        if inspect.isawaitable(handed):
            await handed

    async def wait(self) -> Waited:
        """What the agent says came of it; it is asked once."""
        if self._waited is None:
            self._waited = asyncio.ensure_future(self._call_wait_fn())
        return Waited(*await asyncio.shield(self._waited))

    async def _call_wait_fn(self) -> Supplied:
        supplied = self._wait_fn()
        return await supplied if inspect.isawaitable(supplied) else supplied

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._cancel_fn()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._closed:
            self.cancel()
        await self.wait()

    # -- for the controls

    async def _emit(self, event: StreamEvent) -> None:
        if self._closed:
            return
        if isinstance(event, ApprovalRequestEvent | AskRequestEvent):
            self._pending[event.id] = (
                AskResponse if isinstance(event, AskRequestEvent) else ApprovalResponse
            )  # before anybody sees it
        elif isinstance(event, RequestCancelled):
            self._pending.pop(event.id, None)
        queued = _QueuedEvent(event, asyncio.get_running_loop().create_future())
        self._queue.append(queued)
        self._accept()
        _complete(self._reader)
        try:
            await asyncio.shield(queued.accepted)
        except asyncio.CancelledError:
            if not queued.accepted.done():
                self._drop(queued)
            raise

    def _accept(self) -> None:
        for queued, _ in zip(self._queue, range(self._most), strict=False):
            _complete(queued.accepted)

    def _drop(self, queued: _QueuedEvent) -> None:
        self._queue.remove(queued)
        if isinstance(queued.event, ApprovalRequestEvent | AskRequestEvent):
            self._pending.pop(queued.event.id, None)

    def _close(self) -> None:
        """Who still waits for room goes on without: its event is dropped, as nobody can answer it any more."""
        self._closed = True
        for queued in [queued for queued in self._queue if not queued.accepted.done()]:
            self._drop(queued)
            _complete(queued.accepted)
        self._pending.clear()
        _complete(self._reader)


class HandleControls:
    """The producer's side of a handle."""

    def __init__(self, handle: ControlledHandle) -> None:
        self._handle = handle

    async def emit(self, event: StreamEvent) -> None:
        """Tell it; waits until the reader has room. Cancelled meanwhile, the event is dropped and its request is none."""
        await self._handle._emit(event)

    def close(self) -> None:
        """No more events: what was told is still read. Idempotent."""
        self._handle._close()


def new_controlled_handle(
    buffer_size: int, response_fn: ResponseFn, cancel_fn: Callable[[], object], wait_fn: WaitFn
) -> tuple[ControlledHandle, HandleControls]:
    """`response_fn` gets the answers, `cancel_fn` the wish to end, `wait_fn` tells the result and the error; both may be async."""
    handle = ControlledHandle(buffer_size, response_fn, cancel_fn, wait_fn)
    return handle, HandleControls(handle)


def _complete(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


NewControlledHandle = new_controlled_handle


Translate = Callable[[model.Event], Sequence[StreamEvent]]
Respond = Callable[[str, ControlResponse], Awaitable[None]]


class Execution:
    """What goes on behind a handle. The session is open; `begin` starts its turn."""

    def __init__(
        self,
        session: Session,
        account: RunAccount,
        *,
        translate: Translate,
        respond: Respond,
        began: float,
        timeout: float | None = None,
        store: LifecycleStore | None = None,
        session_id: str = "",
        folder: str = "",
    ) -> None:
        """`began` is monotonic: the clock on the wall may be set (spec agents 7.28). `folder` is where the agent works.

        The store is told of a session that the caller has named, and of no other.
        """
        self.session = session
        self.translate = translate
        self.respond = respond
        self.turns: list[Turn] = []  # ours, and those that the agent began by itself
        self.scope: BaseException | None = None  # why it was ended from here
        self.closed = False  # nothing can be answered any more
        self.finished: asyncio.Future[Waited] = asyncio.get_running_loop().create_future()
        self.changed = asyncio.Event()  # another turn, or the end
        self._account = account
        self._began = began
        self._timeout = timeout
        self._store = store if session_id else None
        self._session_id = session_id
        self._folder = folder
        self._heard = True  # somebody reads it, or may
        self._aside: set[asyncio.Future[object]] = set()
        self._side: asyncio.Future[None] | None = None  # the end of what the agent does besides
        self._skip_idle = False  # nobody waits for that

    async def begin(self, prompt: str) -> list[StreamEvent]:
        """Start it; what it has told until now, which is that it has begun."""
        if (store := self._store) is not None:
            notify_store(lambda: store.set_running(self._session_id))
        turn = self.session.turn(prompt)
        self.turns.append(turn)
        self.session.on_turn(self._on_turn)
        events = aiter(turn)
        self._run(self._finalise())
        try:
            return list(self.translate(await anext(events)))
        except BaseException:
            self.cancel()
            raise

    def cancel(self, scope: BaseException | None = None) -> None:
        """Have it end; the first reason counts. What has its result already keeps it (spec agents 7.14)."""
        if self.closed or self._account.settled:
            return
        if self.turns[0].done:
            self._skip_idle = True
            if self._side is not None:
                self._side.cancel()
            return
        self.scope = scope or Cancelled("the execution was cancelled", who=self.session.agent)
        self.closed = True
        self._run(self.turns[0].cancel(str(self.scope)))

    def listen(self) -> None:
        """Somebody reads it after all."""
        if not self._heard:
            self._heard = True
            for turn in self.turns:
                aiter(turn)

    def ignore(self) -> None:
        """Nobody reads it: it goes on all the same, and nobody is there to approve anything."""
        self._heard = False
        for turn in self.turns:
            turn.ignore()

    def drain_turns(self) -> None:
        """Somebody waits for the end: it is not held up by whoever reads no more."""
        for turn in self.turns:
            self._run(turn.result())

    # -- inside

    def _run(self, work: Awaitable[object]) -> None:
        task = asyncio.ensure_future(work)
        self._aside.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Future[object]) -> None:
        self._aside.discard(task)
        if not task.cancelled():
            task.exception()  # the turn's own, which is told elsewhere

    def _on_turn(self, turn: Turn) -> None:
        """The agent goes on by itself (spec agents 2.11)."""
        if self._heard and not self.closed:
            aiter(turn)
            self.turns.append(turn)
            self.changed.set()

    async def _finalise(self) -> None:
        turn = self.turns[0]
        try:
            async with asyncio.timeout(self._get_time_left()):
                await turn.over()
        except TimeoutError:
            limit = LimitHit("agent_turn", self._timeout or 0.0)
            self.cancel(DeadlineExceeded("deadline exceeded", who=self.session.agent, limit=limit))
            await turn.over()
        if turn.error is None and turn.outcome is not None and turn.outcome.ok and not self._skip_idle:
            await self._wait_until_idle()
        self.closed = True
        await self.session.close()
        error = self._build_error(turn)
        if isinstance(error, ProcessError):
            self._account.exit_code = error.exit_code
        await asyncio.to_thread(self._account.read)
        waited = Waited(self._account.build_result(monotonic() - self._began, error), error)
        self._store_result(waited)
        self.finished.set_result(waited)
        self.changed.set()

    def _get_time_left(self) -> float | None:
        """Of its time, in seconds."""
        return None if self._timeout is None else max(self._timeout - (monotonic() - self._began), 0.0)

    async def _wait_until_idle(self) -> None:
        """Sub-agents, and the turns that follow them: they belong to the run."""
        self._side = asyncio.ensure_future(self.session.idle())
        most, left = self.session.limits.agent_background, self._get_time_left()
        try:
            await asyncio.wait([self._side], timeout=most if left is None else min(most, left))
        finally:
            self._side.cancel()

    def _build_error(self, turn: Turn) -> BaseException | None:
        agent = self.session.agent
        if turn.error is not None:
            error = to_seed_error(turn.error, agent=agent)
            if isinstance(error, AgentFailed) and self._folder and not os.path.isdir(self._folder):
                error.kind = "cwd_unavailable"  # whatever it says itself (spec agents 7.23)
            return error
        if turn.outcome is None or turn.outcome.ok:
            return None
        if turn.outcome.status == "cancelled":
            return self.scope or Cancelled(turn.outcome.error or "the execution was cancelled", who=agent)
        kind = "permission_denied" if turn.outcome.status == "denied" else "error"
        why = turn.outcome.error
        return ResultError(f"returned an error result ({kind}): {why}", agent=agent, kind=kind, details=(why,) if why else ())

    def _store_result(self, waited: Waited) -> None:
        if (store := self._store) is None:
            return
        id = self._session_id
        if waited.error is not None:
            notify_store(lambda: store.set_failed(id, waited.result.error))
        else:
            notify_store(lambda: store.set_completed(id, waited.result.answer()))


def notify_store(call: Callable[[], object]) -> None:
    """Tell a lifecycle store. What goes wrong there is its own affair (spec agents 4.4)."""
    try:
        call()
    except Exception:
        log.exception("a lifecycle store failed")


def to_stream_events(event: model.Event, account: RunAccount) -> list[StreamEvent]:
    """What the events of every session mean to the seed; more is the business of whoever drives the agent."""
    match event:
        case Approval(native=ApprovalRequestEvent() as asked) | Question(native=AskRequestEvent() as asked):
            return [asked]
        case model.TurnStarted(prompt=prompt):
            return [TurnStarted(prompt)]
        case model.TurnEnded(result=result):
            return [TurnCompleted(account.build_result(result.seconds))]
        case model.RequestCancelled(id=id, reason=reason):
            return [RequestCancelled(id, reason)]
        case model.StateChanged(state=state):
            return [StateChanged(state)]
        case model.Stderr(line=line):
            return [Stderr(line)]
    return []


class Handle:
    """The seed's `ExecutionHandle` of an execution. Dropped without a word, the execution ends with it (spec agents 7.8)."""

    def __init__(self, execution: Execution, first: Sequence[StreamEvent]) -> None:
        self._execution = execution
        self._ready = deque(first)
        self._at = 0  # the turn that is read
        self._reading = False
        self._last_words = False
        self._loop = asyncio.get_running_loop()

    def events(self) -> AsyncIterator[StreamEvent]:
        self._reading = True
        self._execution.listen()
        return self

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return self.events()

    async def __anext__(self) -> StreamEvent:
        execution = self._execution
        while not self._ready:
            if self._at < len(execution.turns):
                await self._read(execution.turns[self._at])
            elif not execution.finished.done():
                execution.changed.clear()
                await execution.changed.wait()
            elif self._last_words:
                raise StopAsyncIteration
            else:
                self._last_words = True
                error = execution.finished.result().error
                if error is not None and not isinstance(error, ResultError | Cancelled):  # these were told (spec agents 1.8)
                    self._ready.append(ErrorEvent(error))
        return self._ready.popleft()

    async def _read(self, turn: Turn) -> None:
        try:
            self._ready.extend(self._execution.translate(await anext(turn)))
        except StopAsyncIteration:
            self._at += 1
        except Exception as error:
            if error is not turn.error:
                raise
            self._at += 1

    async def respond(self, request_id: str, response: ControlResponse) -> None:
        if not isinstance(response, ApprovalResponse | AskResponse):
            raise TypeError(f"an answer is an ApprovalResponse or an AskResponse, not {type(response).__name__}")
        if self._execution.closed:
            raise HandleClosed(who=self._execution.session.agent, id=str(request_id))
        await self._execution.respond(request_id, response)

    async def wait(self) -> Waited:
        if not self._execution.finished.done():
            if not self._reading:
                self._execution.ignore()
            self._execution.drain_turns()
        return await self.over()

    async def over(self) -> Waited:
        """The same, for who only wants to know when: nothing is dropped or denied because of it."""
        return await asyncio.shield(self._execution.finished)

    @property
    def finished(self) -> asyncio.Future[Waited]:
        """Its end, for who must not hold the handle."""
        return self._execution.finished

    def cancel(self) -> None:
        self._execution.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.cancel()
        await self.over()

    def __del__(self) -> None:
        execution = self._execution
        if not execution.finished.done() and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(execution.cancel)

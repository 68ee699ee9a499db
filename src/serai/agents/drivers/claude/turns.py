"""The turns of a Claude process: one that a prompt of ours began, or one that the agent began by itself; and the order of events.

Usually an event is emitted when it comes. While a guest intercepts messages, a text is emitted only when the guest has answered
(`assistant_message` interceptors govern what surface and store get), and everything behind it waits. The process is read all the
same.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal
from uuid import uuid4

import msgspec

from serai.agents.driver import Interceptors, Prompt, TurnFailed
from serai.agents.event_hub import EventHub
from serai.agents.turn import Turn
from serai.dialects.claude.neutral import ClaudeTurnOutcome
from serai.errors import SeraiError
from serai.model.actions import Notice
from serai.model.approvals import Deny
from serai.model.events import Event, Message, NoticeEvent, Text, TurnResult

log = logging.getLogger("serai.agents")


class EventSequencer:
    """Tells one session's events to its hub."""

    def __init__(self, hub: EventHub, interceptors: Interceptors) -> None:
        self._hub = hub
        self._interceptors = interceptors
        self._waiting: deque[Event | Callable[[], Awaitable[None] | None]] = deque()
        self._held: list[Text] = []  # pieces of a message of the main lane that is not whole yet
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._text = ""  # the last message of this turn, as it was told
        self.changed = False  # something in this turn was not told as it was said
        self.failure: Exception | None = None  # somebody must know of what happens, and could not be told

    @property
    def _can_emit_now(self) -> bool:
        """Whether nobody has to see it before all others do."""
        return self._task is None and not self._interceptors.hold_text and not self._held

    def emit(self, events: Sequence[Event]) -> None:
        if self._can_emit_now:
            for event in events:
                self._emit_now(event)
            return
        self._waiting += events
        self._start_work()

    def hold_until(self, over: Callable[[], Awaitable[None]]) -> None:
        """What comes from now on is told when this is over."""
        self._waiting.append(over)
        self._start_work()

    def _start_work(self) -> None:
        if self._task is None and self._waiting:
            self._task = asyncio.get_running_loop().create_task(self._process_waiting(), name="tell what claude says")

    def run_in_order(self, work: Callable[[], None]) -> None:
        """Have it done when all that has come so far is told: at once, as a rule."""
        if self._task is None:
            self._do(work)
        else:
            self._waiting.append(work)

    async def drain(self) -> None:
        """Until all that has come so far is told."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def close(self) -> None:
        self._closed = True
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    def end_turn(self) -> str | None:
        """What was last said to be seen in this turn, when some of it was not; else None. Pieces of no whole message are gone."""
        text = self._text if self.changed else None
        self._held.clear()
        self._text, self.changed = "", False
        return text

    def _emit_now(self, event: Event) -> None:
        if type(event) is Message and not event.lane:
            self._text = event.text
        try:
            self._hub.emit(event)
        except Exception as error:  # such as a full disk: the turn fails of it, and the process is read on
            self.failure = self.failure or error

    def _do(self, work: Callable[[], Awaitable[None] | None]) -> Awaitable[None] | None:
        try:
            return work()
        except Exception as error:  # such as a full disk at the beginning of a turn of its own
            self.failure = self.failure or error
            return None

    def take_failure(self) -> Exception | None:
        """What could not be told of this turn, once."""
        failure, self.failure = self.failure, None
        return failure

    async def _process_waiting(self) -> None:
        try:
            while self._waiting:
                what = self._waiting.popleft()
                if callable(what):
                    if (over := self._do(what)) is not None:
                        await over
                else:
                    await self._process_event(what)
        finally:
            self._task = None

    async def _process_event(self, event: Event) -> None:
        if isinstance(event, Text) and not event.lane:
            self._held.append(event)
        elif isinstance(event, Message) and not event.lane and event.text:
            shown = await self._intercept(event)
            held, self._held = self._held, []
            if shown is event:
                for piece in held:
                    self._emit_now(piece)
                self._emit_now(event)
                return
            self.changed, self._text = True, ""
            if shown is not None:
                self._emit_now(msgspec.structs.replace(shown, native=None))  # which has what was not to be seen
        else:
            self._emit_now(_strip_native(event))

    async def _intercept(self, said: Message) -> Message | None:
        try:
            return await self._interceptors.filter_message(said)
        except (Exception, asyncio.CancelledError) as error:  # what might be hidden is (design rule 7)
            if self._closed:
                raise
            log.exception("an interceptor failed")
            why = str(error) or type(error).__name__
            self._emit_now(NoticeEvent(notice=Notice(f"what the model said is not shown: {why}", "warn", "serai")))
            return None


class _Line(msgspec.Struct):
    type: str = ""


_SPOKEN = frozenset({"assistant", "stream_event", "result"})
_LINE = msgspec.json.Decoder(_Line | list[msgspec.Raw])


def _strip_native(event: Event) -> Event:
    """Without its line, where that may have words which are not to be seen: one line can be that of several events."""
    if event.lane or not isinstance(event.native, msgspec.Raw):
        return event
    line = _LINE.decode(event.native)
    if isinstance(line, _Line) and line.type not in _SPOKEN:
        return event
    return msgspec.structs.replace(event, native=None)  # pieces that came together are stream events


Status = Literal["success", "error", "denied", "cancelled"]


class PromptTurn:
    """From our prompt to the result that answers it."""

    def __init__(self) -> None:
        self.uuid = str(uuid4())  # which the result names again
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.interrupted = ""  # why we ended it
        self.answered = False  # its result has come, whether or not all before it is told
        self.error: SeraiError | None = None
        self._how: ClaudeTurnOutcome | None = None
        self._denied: Deny | None = None

    def end(self, how: ClaudeTurnOutcome, denied: Deny | None) -> None:
        self._how, self._denied = how, denied
        self._finish()

    def fail(self, error: SeraiError) -> None:
        if not self.answered:
            self.error = self.error or error
            self._finish()

    def withdraw(self) -> None:
        """It never began, because we ended it."""
        if not self.answered:
            self._finish()

    def _finish(self) -> None:
        if not self.over.done():
            self.over.set_result(None)

    def result(self, sequencer: EventSequencer) -> TurnResult:
        """What came of it, or `TurnFailed`. What ended it on purpose counts before what that looks like to the agent."""
        how, text = self._how, sequencer.end_turn()
        if (failure := sequencer.take_failure()) is not None:
            raise failure
        if self.error is not None:
            raise TurnFailed(self.error, _build_result("error", how, text, str(self.error)))
        if self.interrupted:
            return _build_result("cancelled", how, text, self.interrupted)
        if self._denied is not None:
            return _build_result("denied", how, text, self._denied.why)
        assert how is not None
        if how.error is not None:
            raise TurnFailed(how.error, _build_result("error", how, text, str(how.error)))
        return _build_result("success", how, text)


class CostCounter:
    """What it tells is what its process has cost so far; a turn has cost what is new (spec agents 1.15)."""

    def __init__(self) -> None:
        self._so_far = 0.0  # US dollars

    def count_turn(self, how: ClaudeTurnOutcome) -> ClaudeTurnOutcome:
        if (total := how.usage.cost_usd) is None:
            return how
        new, self._so_far = max(total - self._so_far, 0.0), total
        return msgspec.structs.replace(how, usage=msgspec.structs.replace(how.usage, cost_usd=new))


class AgentTurn:
    """A turn that the agent began: announced, so that somebody may read it and answer what it asks."""

    def __init__(self, hub: EventHub, stop: Callable[[str, asyncio.Future[None]], Awaitable[None]]) -> None:
        self._hub = hub
        self._interrupt = stop
        self.interrupted = ""
        self._turn = Turn(Prompt(""), hub, stop=self._stop)

    def begin(self) -> None:
        """Unless a prompt of ours was quicker: then what comes of it is told in that turn."""
        if self._hub.turn is None:
            self._hub.announce(self._turn)

    async def _stop(self, turn: Turn, reason: str) -> None:
        """As `Session` does with a turn of its own."""
        self.interrupted = reason
        over = asyncio.ensure_future(turn.over())
        await self._interrupt(reason, over)
        await over

    def end(self, how: ClaudeTurnOutcome, sequencer: EventSequencer) -> None:
        if self._hub.turn is not self._turn:
            return
        text = sequencer.end_turn()
        if (failure := sequencer.take_failure()) is not None:
            self._hub.end(self._turn, _build_result("error", how, text, str(failure)), failure)
        elif self.interrupted:
            self._hub.end(self._turn, _build_result("cancelled", how, text, self.interrupted))
        elif how.error is not None:
            self._hub.end(self._turn, _build_result("error", how, text, str(how.error)), how.error)
        else:
            self._hub.end(self._turn, _build_result("success", how, text))

    def fail(self, error: SeraiError, sequencer: EventSequencer) -> None:
        if self._hub.turn is self._turn:
            self._hub.end(self._turn, _build_result("error", None, sequencer.end_turn(), str(error)), error)


def _build_result(status: Status, how: ClaudeTurnOutcome | None, text: str | None, error: str = "") -> TurnResult:
    """`text` is what may be seen, where that is not what was said; then its own form is not to be seen either.

    How long it took is measured here, by a clock that nobody sets (spec agents 7.28).
    """
    result = TurnResult(status=status) if how is None else how.to_turn_result()
    changes: dict[str, Any] = {"status": status, "error": error, "seconds": 0.0}
    if text is not None:
        changes |= {"text": text, "native": None}
    return msgspec.structs.replace(result, **changes)

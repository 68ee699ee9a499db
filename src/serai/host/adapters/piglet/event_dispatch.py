"""What happens, told to a guest: neutral events as the 17 of piglet (spec piglet 6.3), in order and one at a time (FIX-16, 17)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import msgspec
from msgspec import Raw

from serai.dialects.piglet.messages import ActionResult
from serai.errors import FrameTooBig, SeraiError
from serai.host.adapters.piglet.provider_streams import to_guest_args
from serai.limits import HostLimits
from serai.model import events
from serai.model.approvals import Approval
from serai.model.events import Event
from serai.model.tools import Block, ToolCall
from serai.store import entries, messages
from serai.store.messages import STOPS
from serai.store.session_writer import StepDraft, to_content_items

log = logging.getLogger("serai.host")

Payload = dict[str, Any]


def _collect_kinds(*types: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset(str(type.__struct_config__.tag) for type in types)


# What the message of a step is gathered from; what says that the model begins it anew is part of that.
_STEP = _collect_kinds(
    *(events.StepStarted, events.Thinking, events.Message, events.ToolCalled, events.UsageReported, events.StepEnded),
    *(events.Retrying, events.Compacted),
)
# The 17, in the order of spec piglet 6.3, and the neutral events that each is made of.
_NEEDS: Final[dict[str, frozenset[str]]] = {
    "EventAgentStart": _collect_kinds(events.TurnStarted),
    "EventSessionLoad": _collect_kinds(events.TurnPrepared),
    "EventAgentInit": _collect_kinds(events.TurnPrepared),
    "EventPromptBuild": _collect_kinds(events.TurnPrepared),
    "EventMessagePre": _collect_kinds(events.TurnStarted, events.TurnPrepared),
    "EventTurnStart": _collect_kinds(events.StepStarted),
    "EventStreamDelta": _collect_kinds(events.Text, events.Thinking, events.ToolInput),
    "EventStreamDone": _STEP,
    "EventToolStart": _collect_kinds(events.ToolStarted),
    "EventToolUpdate": frozenset(),  # never: what a tool says meanwhile is on the bus (`bash.tail`)
    "EventToolEnd": _collect_kinds(events.ToolEnded),
    "EventTurnEnd": _STEP | _collect_kinds(events.ToolEnded, events.StepSettled, events.TurnEnded, events.TurnStarted),
    "EventRetry": _collect_kinds(events.Retrying),
    "EventMaxTurns": _collect_kinds(events.StepsExhausted),
    "EventStepWait": _collect_kinds(Approval),
    "EventCompact": _collect_kinds(events.Compacted),
    "EventAgentEnd": _collect_kinds(events.TurnEnded),
}
TYPES: Final = frozenset(_NEEDS)
_DELTAS: dict[type[Event], str] = {events.Text: "text", events.Thinking: "thinking", events.ToolInput: "toolcall"}
# Pieces of one stream that wait are sent as one, up to so many characters: a line must not become too long.
_JOINED = 16 * 1024
_REMARKS = 100  # on what went wrong in one life; the rest says nothing new


def find_kinds(types: Iterable[str] | None) -> frozenset[str]:
    """The neutral kinds that these event types are made of; no types: all 17 (spec piglet 10.15). An unknown type needs none."""
    return frozenset().union(*(_NEEDS.get(type, frozenset()) for type in types or TYPES))


def _accept_all(_type: str) -> bool:
    return True


class EventTranslator:
    """Neutral events in, piglet's out. It keeps what the step has said so far, for who wants to hear of it as a whole."""

    def __init__(self, wanted: Callable[[str], bool] = _accept_all) -> None:
        self._wanted = wanted
        self._prompt = ""
        self._open = False  # a turn in piglet's sense: a step of ours
        self._step = StepDraft()
        self._assistant: Raw | None = None
        self._calls: tuple[str, ...] = ()  # of the step that ended, in order
        self._results: dict[str, Raw] = {}  # by the id of the call

    def translate(self, event: Event) -> list[tuple[str, Payload]]:
        """What it is in piglet's words: one event, several or none. What a sub-agent does is not told (spec piglet 6.7)."""
        if event.lane:
            return []
        return [(type, data) for type, data in self._translate_event(event) if self._wanted(type)]

    def _translate_event(self, event: Event) -> list[tuple[str, Payload]]:
        match event:
            case events.Text() | events.Thinking() | events.ToolInput():
                if isinstance(event, events.Thinking) and self._gathers:
                    self._step.add_thinking(event.text)
                return [("EventStreamDelta", {"Kind": _DELTAS[type(event)], "Index": event.index, "Delta": event.text})]
            case events.ToolStarted(call=call):
                return [("EventToolStart", _encode_call(call))]
            case events.ToolEnded():
                return self._translate_tool_end(event)
            case Approval(reason_type="step", call=call):
                return [("EventStepWait", _encode_call(call))]
            case events.Retrying():
                self._step.restart()
                wait = round(event.wait * 1000)
                return [("EventRetry", {"Attempt": event.attempt, "Max": event.most, "DelayMs": wait, "Error": event.error})]
            case events.StepsExhausted():
                return [("EventMaxTurns", {"Count": event.count, "Max": event.most})]
            case events.Compacted():
                self._step.restart()
                self._step.usage = None  # of who made the summary
                return [("EventCompact", {"Before": event.before, "After": event.after, "TokensAtCompact": event.tokens})]
            case _:
                return self._translate_run_event(event)

    def _translate_run_event(self, event: Event) -> list[tuple[str, Payload]]:
        match event:
            case events.TurnStarted():
                self._prompt = event.prompt
                return [*self._end_turn(), ("EventAgentStart", {})]
            case events.TurnPrepared():
                return self._translate_prepared(event)
            case events.StepStarted():
                ended = self._end_turn()
                self._begin_step(is_open=True)
                return [*ended, ("EventTurnStart", {})]
            case events.StepEnded():
                return self._translate_step_end(event)
            case events.StepSettled():
                return self._end_turn()
            case events.TurnEnded():
                return [*self._end_turn(), ("EventAgentEnd", {"Messages": None})]  # who sends it knows the history
            case _:
                self._gather(event)
                return []

    def _translate_prepared(self, event: events.TurnPrepared) -> list[tuple[str, Payload]]:
        prompt, self._prompt = self._prompt, ""
        loaded = [("EventSessionLoad", {"MessageCount": event.messages})] if event.messages else []
        return [
            *loaded,
            ("EventAgentInit", {"ToolCount": event.tools}),
            ("EventPromptBuild", {"System": event.system}),
            ("EventMessagePre", {"Content": prompt}),
        ]

    # -- a step as a whole

    @property
    def _gathers(self) -> bool:
        """Only between the beginning of a step and its end: else what is gathered would never go."""
        return self._open and (self._wanted("EventStreamDone") or self._wanted("EventTurnEnd"))

    def _begin_step(self, *, is_open: bool) -> None:
        self._open = is_open
        self._step, self._assistant, self._calls = StepDraft(), None, ()
        self._results.clear()

    def _gather(self, event: Event) -> None:
        if not self._gathers:
            return
        match event:
            case events.Message():
                self._step.add_message(event)
            case events.ToolCalled(call=call):
                self._step.calls.setdefault(call.id, call)
            case events.UsageReported(usage=usage):
                self._step.usage = usage

    def _translate_step_end(self, event: events.StepEnded) -> list[tuple[str, Payload]]:
        if not self._gathers:
            return []
        step, self._step = self._step, StepDraft()
        provider, slash, model = step.model.partition("/")  # a model's key
        said = step.build_message(provider if slash else "", STOPS[event.stop], event.error)
        said = msgspec.structs.replace(said, model=model if slash else step.model, timestamp=_format_time(event))
        self._calls = tuple(step.calls)
        self._assistant = messages.encode(said, tagged=False)
        return [("EventStreamDone", {"Message": self._assistant})]

    def _translate_tool_end(self, event: events.ToolEnded) -> list[tuple[str, Payload]]:
        call, result = event.call, event.result
        if self._gathers and self._wanted("EventTurnEnd"):
            said = messages.ToolResultMessage(
                call.id, call.name, tuple(to_content_items(result.content)), result.is_error, _format_time(event), result.code
            )
            self._results[call.id] = messages.encode(said, tagged=False)
        told = _encode_blocks(result.content) if result.is_error else result.details
        return [("EventToolEnd", {"ToolCallID": call.id, "ToolName": call.name, "Result": told, "IsError": result.is_error})]

    def _end_turn(self) -> list[tuple[str, Payload]]:
        """Once for each that began, however it ends: a run that fails, and an agent that does not tell, settle nothing."""
        if not self._open:
            return []
        assistant, results = self._assistant, self._results
        in_order = [id for id in self._calls if id in results]  # of the calls, not of their ends
        told = [results[id] for id in dict.fromkeys((*in_order, *results))]
        self._begin_step(is_open=False)
        return [("EventTurnEnd", {"Assistant": assistant, "ToolResults": told or None})]


def _encode_call(call: ToolCall) -> Payload:
    return {"ToolCallID": call.id, "ToolName": call.name, "Args": to_guest_args(call)}


def _encode_blocks(content: tuple[Block, ...]) -> list[object]:
    """As messages have them (spec piglet 6.2), each with its `type`."""
    return [item.raw if isinstance(item, messages.StoredUnknown) else item for item in to_content_items(content)]


def _format_time(event: Event) -> str:
    return entries.format_time(round(event.at * 1e6) * 1000) if event.at else entries.ZERO


def _try_join(first: tuple[str, Payload], second: tuple[str, Payload]) -> bool:
    """Whether the first has taken up the second: pieces of one stream say the same together. It is nobody else's yet."""
    (type, data), (other, more) = first, second
    if not type == other == "EventStreamDelta" or (data["Kind"], data["Index"]) != (more["Kind"], more["Index"]):
        return False
    if len(data["Delta"]) + len(more["Delta"]) > _JOINED:
        return False
    data["Delta"] += more["Delta"]
    return True


def _estimate_size(told: tuple[str, Payload]) -> int:
    """About: what is a guest's own copy. Joined pieces do not count; they are short."""
    if told[0] == "EventStreamDelta":
        return 0
    parts = (part for value in told[1].values() for part in (value if isinstance(value, list) else [value]))
    return sum(len(part) for part in parts if isinstance(part, Raw))


class EventDispatcher:
    """Dispatches events to one guest, in order, each when the one before it was answered. The agent never waits for it.

    There is a task only while there is something to tell. `dispatch` sends one `event/dispatch` and waits for its answer, with a
    deadline; `acted` gets the action in it; `remark` what went wrong, which is all that comes of it (spec piglet 5.4); `history` is
    asked for the messages of `EventAgentEnd`.
    """

    def __init__(
        self,
        dispatch: Callable[[str, Any], Awaitable[ActionResult | None]],
        acted: Callable[[ActionResult], None],
        remark: Callable[[str], None],
        wanted: Callable[[str], bool],
        history: Callable[[], Awaitable[Any]],
        limits: HostLimits,
    ) -> None:
        self._dispatch = dispatch
        self._acted = acted
        self._remark = remark
        self._history = history
        self._most, self._most_bytes = limits.events, limits.backlog
        self._translator = EventTranslator(wanted)
        self._queue: deque[tuple[str, Payload]] = deque()
        self._bytes = 0  # of what waits
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._remarks = 0
        self._told_dropped = 0
        self.dropped = 0  # events that a guest which keeps up would have got

    def tell(self, event: Event) -> None:
        """Never waits and never raises: an event is news."""
        if self._closed:
            return
        try:
            told = self._translator.translate(event)
        except Exception as error:
            log.exception("an event has no words in piglet")
            self._log_error(f"an event of kind {type(event).__name__} was not told: {error}")
            return
        for one in told:
            self._put(one)
        if self._queue and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send_queued(), name="tell a piglet guest")

    def _put(self, told: tuple[str, Payload]) -> None:
        queue = self._queue
        if queue and _try_join(queue[-1], told):
            return
        queue.append(told)
        self._bytes += _estimate_size(told)
        while len(queue) > self._most or (self._bytes > self._most_bytes and len(queue) > 1):
            self._bytes -= _estimate_size(queue.popleft())
            self.dropped += 1

    async def flush(self, seconds: float) -> bool:
        """Wait until all was told and answered, at most so long; whether it was."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while self._task is not None:
            done, _ = await asyncio.wait([self._task], timeout=max(end - loop.time(), 0))
            if not done:
                self._log_error(f"the last events were not taken within {seconds:g} s: {len(self._queue)} more wait")
                return False
        return True

    def close(self) -> None:
        """Nothing more is told, nor waited for. Any number of times."""
        self._closed = True
        self._queue.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None  # one that has not begun never will
        self._log_dropped()

    # -- inside

    async def _send_queued(self) -> None:
        try:
            while self._queue:
                told = self._queue.popleft()
                self._bytes -= _estimate_size(told)
                await self._tell_next(*told)
            self._log_dropped()
        finally:
            self._task = None

    async def _tell_next(self, type: str, data: Payload) -> None:
        try:
            if type == "EventAgentEnd":
                action = await self._tell_end()
            else:
                action = await self._dispatch(type, data)
            if action is not None:
                self._acted(action)
        except SeraiError as error:
            self._log_error(f"{type} failed: {error}")
        except Exception as error:
            log.exception("%s could not be told", type)
            self._log_error(f"{type} failed: {error!r}")

    async def _tell_end(self) -> ActionResult | None:
        """The end of a run is told also when what was said in it is longer than a line may be."""
        try:
            return await self._dispatch("EventAgentEnd", {"Messages": await self._fetch_messages()})
        except FrameTooBig as error:
            self._log_error(f"EventAgentEnd has no messages: {error}")
            return await self._dispatch("EventAgentEnd", {"Messages": None})

    async def _fetch_messages(self) -> Any:
        """The end of a run is told also when nobody knows what was said in it."""
        try:
            return await self._history()
        except Exception as error:
            self._log_error(f"EventAgentEnd has no messages: {error}")
            return None

    def _log_error(self, text: str) -> None:
        """In its log, as long as that says something new."""
        self._remarks += 1
        if self._remarks <= _REMARKS:
            self._remark(text if self._remarks < _REMARKS else f"{text}; what further goes wrong with events is not told")

    def _log_dropped(self) -> None:
        if self.dropped > self._told_dropped:
            self._log_error(f"{self.dropped - self._told_dropped} events were dropped, for it was behind by more than {self._most}")
            self._told_dropped = self.dropped

"""What happens in a session, written as it happens: neutral events in, entries out. The same for every agent.

A person's text is written at once, what the model said when its step has ended, a tool's result when the tool has. Texts that come
in the middle of a step wait until its results are there (FIX-19): only so do calls and results stand together when the conversation
is resumed. On disk before it counts: at the end of a turn, and before a tool with side effects runs (design rule 14).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Raw

from serai.errors import NotWritten
from serai.model import events
from serai.model.ask import Decision
from serai.model.events import Event
from serai.model.tools import ToolCall
from serai.store import messages, neutral, times
from serai.store.entries import encode_data
from serai.store.messages import AssistantMessage, Call, Item, Message, Text, Thinking, ToolResultMessage, UserMessage
from serai.store.session import Session
from serai.store.sessions import Current
from serai.wire import codec

__all__ = ["Scribe"]

# Tools that change nothing: all others are announced to the disk first.
_HARMLESS = frozenset({"read", "grep", "find"})
# An agent's own form of an event is kept up to this many bytes: enough for ids and flags that no neutral word has. The recording
# has it in full; a second copy of every frame would make sessions slow to load.
_NATIVE = 2048
# What is kept of a result that is too long for a session.
_BEGINNING = 64 * 1024
# Pieces of what comes whole later, and what is over when it is told.
_PASSING = (events.Text, events.Thinking, events.ToolInput, events.ToolProgress, events.StepStarted, events.StateChanged)


class _Step:
    """What the model has said since its last step was written."""

    def __init__(self) -> None:
        self.content: list[Item] = []
        self.calls: list[ToolCall] = []
        self.text: list[str] = []  # streamed, for when no whole message comes
        self.thinking: list[str] = []
        self.model = ""
        self.usage: events.Usage | None = None

    @property
    def empty(self) -> bool:
        return not (self.content or self.calls or self.text or self.thinking)


class Scribe:
    """Writes one agent's events into the current session. Tell it each event before anybody acts on it."""

    def __init__(self, session: Session | Current, *, provider: str = "") -> None:
        self._current = session if isinstance(session, Current) else Current(session)
        self._provider = provider
        self._step = _Step()
        self._waiting: list[str] = []
        self._called: dict[str, ToolCall] = {}
        self._owed: list[tuple[str, Raw, Callable[[], Raw] | None]] = []  # type, data, and what to keep if that is too long

    @property
    def session(self) -> Session:
        return self._current.session

    def steered(self, text: str) -> None:
        """A person's text in the middle of a turn: written before the next step, or at the end of the turn."""
        self._waiting.append(text)

    def aborted(self, reason: str) -> None:
        """The turn was ended on purpose: the mark that the model finds of it."""
        self.steered(f"[Request interrupted: {reason}]")

    def decided(self, id: str, decision: Decision) -> None:
        """What an approval or a question was answered with."""
        self._put("event", encode_data({"type": "decided", "id": id, "decision": decision}))
        self._write()

    def tell(self, event: Event) -> None:
        """Write what is worth it. A `NotWritten` loses nothing: what could not be written is, before the next event."""
        self._take(event)
        self._write()
        if isinstance(event, events.TurnEnded) or (isinstance(event, events.ToolStarted) and event.call.name not in _HARMLESS):
            self.session.sync()

    def _take(self, event: Event) -> None:
        if event.lane:  # a sub-agent's words are no part of this conversation
            if not isinstance(event, _PASSING):
                self._keep(event)
            return
        match event:
            case events.SessionStarted():
                self._started(event)
            case events.TurnStarted():
                self._flush()
                if event.prompt:
                    self._say(UserMessage(event.prompt, (), times.text()))
            case events.StepStarted():
                self._flush()
            case events.Text():
                self._step.text.append(event.text)
            case events.Thinking():
                self._step.thinking.append(event.text)
            case events.Message():
                self._step.content += neutral.items_of(event.content)
                self._step.model = event.model or self._step.model
            case events.ToolCalled():
                self._step.calls.append(event.call)
            case events.UsageReported():
                self._used(event)
            case events.StepEnded():
                self._end_step(neutral.STOPS[event.stop], event.error)
            case events.ToolStarted():
                self._tool_started(event)
            case events.ToolEnded():
                self._tool_ended(event)
            case events.TurnEnded():
                self._turn_ended(event)
            case events.ToolInput() | events.ToolProgress() | events.StateChanged():
                pass
            case _:  # also that it was compacted: who does that to this conversation writes the compact itself
                self._keep(event)

    def _started(self, event: events.SessionStarted) -> None:
        """Whose session it is, and what its agent calls it: so that it can be resumed there."""
        meta = self.session.meta
        own = event.session if event.session != self.session.id else ""
        agent, agent_session = event.agent or meta.agent, own or meta.agent_session
        if (agent, agent_session) != (meta.agent, meta.agent_session):
            self.session.about(agent=agent, agent_session=agent_session)

    def _used(self, event: events.UsageReported) -> None:
        if self._step.empty or event.total is not None:
            self._keep(event)
        if not self._step.empty:
            self._step.usage = event.usage

    def _end_step(self, stop: messages.StopReason = "", error: str = "") -> None:
        step, self._step = self._step, _Step()
        if step.empty and not error:
            return
        content: list[Item] = [Thinking("".join(step.thinking))] if step.thinking else []
        content += step.content or ([Text("".join(step.text))] if step.text else [])
        content += (Call(call.id, call.name, call.arguments) for call in step.calls)
        self._called |= {call.id: call for call in step.calls}
        usage = neutral.usage_of(step.usage)
        self._say(AssistantMessage(tuple(content), step.model, self._provider, usage, stop, error, times.text()))

    def _tool_started(self, event: events.ToolStarted) -> None:
        if not self._step.empty:  # an agent that does not tell when its step ends
            self._end_step("toolUse")
        called = self._called.get(event.call.id)
        if called is not None and called.arguments != event.call.arguments:  # somebody rewrote them: this is what runs
            self._keep(event)

    def _tool_ended(self, event: events.ToolEnded) -> None:
        if not self._step.empty:
            self._end_step("toolUse")
        self._called.pop(event.call.id, None)
        result = event.result
        content = tuple(neutral.items_of(result.content))
        call = event.call
        message = ToolResultMessage(call.id, call.name, content, result.is_error, times.text(), result.code)
        # A call without a result would count as interrupted: of one that is too long the beginning is kept.
        self._say(message, shorter=lambda: messages.encode(_beginning(message)))

    def _turn_ended(self, event: events.TurnEnded) -> None:
        self._flush(aborted=event.result.status == "cancelled")
        self._called.clear()
        self._keep(msgspec.structs.replace(event, result=msgspec.structs.replace(event.result, text="", native=None)))

    def _flush(self, *, aborted: bool = False) -> None:
        """What the model had said, then what people had."""
        if not self._step.empty:
            self._end_step("aborted" if aborted else "")
        waiting, self._waiting = self._waiting, []
        for text in waiting:
            self._say(UserMessage(text, (), times.text()))

    def _keep(self, event: Event) -> None:
        """As an entry of its own, which is no message."""
        bare = msgspec.structs.replace(event, native=None)
        try:
            data = encode_data(_slim(event))
        except ValueError:  # an agent's own form that is no JSON
            data = encode_data(bare)
        self._put("event", data, shorter=lambda: encode_data(bare))

    def _say(self, message: Message, shorter: Callable[[], Raw] | None = None) -> None:
        self._put(messages.role_of(message), messages.encode(message), shorter)

    def _put(self, type: str, data: Raw, shorter: Callable[[], Raw] | None = None) -> None:
        self._owed.append((type, data, shorter))

    def _write(self) -> None:
        """All that is owed, in order. What a full disk keeps from being written stays owed."""
        while self._owed:
            type_, data, shorter = self._owed[0]
            try:
                self.session.append(type_, data)
            except NotWritten as error:
                if error.limit is None:
                    raise
                if shorter is None:  # too long for ever
                    del self._owed[0]
                    raise
                self._owed[0] = (type_, shorter(), None)
            else:
                del self._owed[0]


def _slim(event: Event) -> Event:
    """Without the agent's own form when that is long, unless it is all there is."""
    if event.native is None or isinstance(event, events.Other):
        return event
    try:
        small = len(codec.encode(event.native)) <= _NATIVE
    except (*codec.BAD_INPUT, TypeError, OverflowError):
        small = False
    return event if small else msgspec.structs.replace(event, native=None)


def _beginning(message: ToolResultMessage) -> ToolResultMessage:
    text = "".join(item.text for item in message.content if isinstance(item, Text))
    note = f"[the result was too long for the session; it began so:]\n{text[:_BEGINNING]}"
    return msgspec.structs.replace(message, content=(Text(note),))

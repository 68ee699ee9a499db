"""What happens in a session, written as it happens: neutral events in, entries out. The same for every agent.

A person's text is written at once, the model's when its step has ended, a tool's result when the tool has. Texts that come in the
middle of a turn wait until the step they interrupt and its results are there (FIX-19): only so do calls and results stand together
when the conversation is resumed. For the same reason a call that is still open when its turn is over gets a result that says so;
its tool's late answer is an event, and not part of the conversation (FIX-22). On disk before it counts: at the end of a turn, and
before a tool with side effects runs or may run (design rule 14).

A `StepDraft` is what a model says until its step is done; a message that is too large for a session is shortened.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from serai.model import events
from serai.model.approvals import Allow, Approval, Decision
from serai.model.events import Event
from serai.model.provider import ModelMessage
from serai.model.tools import Block, ToolCall
from serai.store import entries, messages
from serai.store import messages as stored
from serai.store.entries import encode_data
from serai.store.session_folder import CurrentSession
from serai.store.stored_session import StoredSession, UnfitEntry
from serai.wire import codec

_DEEP = 200  # what may be around a call's arguments where they are read, and in the reader: it counts these as one
UNFIT = "[this was too long, or of a form that the session cannot keep; it began so:]\n"


class StepDraft:
    """What the model has said since its last step was written."""

    def __init__(self) -> None:
        self.calls: dict[str, ToolCall] = {}
        self.content: list[stored.Item] = []
        self.model = ""
        self.provider = ""
        self.at = ""
        self.usage: events.Usage | None = None
        self._streamed: list[str] = []  # for when no whole message comes
        self._thinking: list[str] = []
        self.native: Any = None  # what a provider needs again
        self._whole = False  # all of it is known

    @property
    def empty(self) -> bool:
        return not (self.content or self.calls or self._streamed or self._thinking)

    def add_text(self, text: str) -> None:
        if not self._whole:
            self._streamed.append(text)

    def add_thinking(self, text: str) -> None:
        if not self._whole:
            self._thinking.append(text)

    def restart(self) -> None:
        """The model starts its answer anew: what had streamed of it counts no more."""
        self._streamed.clear()
        self._thinking.clear()

    def set_answer(self, message: ModelMessage, model: str) -> None:
        """The whole of it, calls aside, which are told one by one; nothing that is shown of it adds to that."""
        self._streamed.clear()
        self._thinking = [message.thinking] if message.thinking else []
        self.content = to_content_items(message.content)
        self.native = message.native
        self.model = model
        if (made := message.made) is not None:
            self.model, self.provider, self.at = made.model, made.provider, made.at
        self._whole = True

    def add_message(self, message: events.Message) -> None:
        """All of what streamed before, in its final form."""
        if self._whole:
            return
        if message.content:
            self._streamed.clear()
        self.content += to_content_items(message.content)
        self.model = message.model or self.model

    @property
    def text(self) -> str:
        return "".join(item.text for item in self.content if isinstance(item, stored.StoredText)) + "".join(self._streamed)

    def build_message(self, provider: str, stop: stored.StopReason, error: str) -> stored.AssistantMessage:
        content: list[stored.Item] = [stored.StoredThinking("".join(self._thinking))] if self._thinking else []
        content += self.content
        content += [stored.StoredText("".join(self._streamed))] if self._streamed else []
        content += map(_to_stored_call, self.calls.values())
        usage, now = messages.to_token_usage(self.usage), self.at or entries.format_time()
        return stored.AssistantMessage(tuple(content), self.model, self.provider or provider, usage, stop, error, now, self.native)


def to_content_items(blocks: Iterable[Block]) -> list[stored.Item]:
    """Neutral content as items; a block that is no JSON does not cost the others."""
    found: list[stored.Item] = []
    for block in blocks:
        try:
            found += messages.to_items((block,))
        except ValueError:
            found.append(stored.StoredText(UNFIT + _format_beginning(block, 1024)))
    return found


Cut = stored.AssistantMessage | stored.ToolResultMessage


def shorten_message(message: Cut, room: int) -> Cut:
    """The beginnings of what is long in it, and all of the rest: without its calls and results a conversation cannot go on."""
    short = msgspec.structs.replace(message, content=tuple(_shorten_item(item, room) for item in message.content))
    if isinstance(short, stored.AssistantMessage):
        short = msgspec.structs.replace(short, error=short.error[:room], native=None)
    return short


def _shorten_item(item: stored.Item, room: int) -> stored.Item:
    match item:
        case stored.StoredText():
            return item if len(item.text) <= room else stored.StoredText(UNFIT + item.text[:room])
        case stored.StoredThinking():
            return item if len(item.thinking) <= room else stored.StoredThinking(UNFIT + item.thinking[:room])
        case stored.StoredToolCall():
            return (
                item if _length(item.arguments) <= room else stored.StoredToolCall(item.id, item.name, _unfit(item.arguments, room))
            )
        case stored.StoredImage():
            return (
                item
                if len(item.data) <= room
                else stored.StoredText(f"[an image that was too long for the session: {len(item.data)} bytes]")
            )
        case stored.StoredUnknown():
            return (
                item if len(bytes(item.raw)) <= room else stored.StoredText(UNFIT + bytes(item.raw)[:room].decode(errors="replace"))
            )


def _to_stored_call(call: ToolCall) -> stored.StoredToolCall:
    """With arguments that can be read back."""
    sound = _length(call.arguments) >= 0
    return stored.StoredToolCall(call.id, call.name, call.arguments if sound else _unfit(call.arguments, 1024))


def _length(data: object) -> int:
    """Of its JSON; -1 when it has none, or is so deep that a reader may not take it."""
    try:
        text = bytes(encode_data(data))
        msgspec.json.decode(b"[" * _DEEP + text + b"]" * _DEEP)
    except (ValueError, RecursionError):
        return -1
    return len(text)


def _unfit(data: object, room: int) -> dict[str, str]:
    return {"unfit": UNFIT + _format_beginning(data, room)}


def _format_beginning(data: object, room: int) -> str:
    try:
        return json.dumps(data, default=repr, ensure_ascii=False)[:room]
    except (ValueError, TypeError, RecursionError):
        return ""


# Tools that change nothing: all others are announced to the disk first.
_HARMLESS = frozenset({"read", "grep", "find"})
# An agent's own form of an event is kept up to this many bytes: enough for ids and flags that no neutral word has. The recording
# has it in full; a second copy of every frame would make sessions slow to load.
_NATIVE = 2048
# What is kept of each part of a message that is too long for a session; the second when there are many parts.
_BEGINNINGS = (64 * 1024, 1024)
# Pieces of what comes whole later, and what is over when it is told.
_PASSING = (
    *(events.Text, events.Thinking, events.ToolInput, events.ToolProgress),
    *(events.StepStarted, events.StepSettled, events.StateChanged, events.TurnPrepared, events.Stderr),
)

# One way to write something. When a session does not take it as it is, the next way keeps less of it.
Attempt = Callable[[StoredSession], object]


class SessionWriter:
    """Writes one agent's events into the current session. Tell it each event before anybody acts on it; close it at the end."""

    def __init__(self, session: StoredSession | CurrentSession, *, provider: str = "") -> None:
        self._current = session if isinstance(session, CurrentSession) else CurrentSession(session)
        self._provider = provider
        self._owed: list[tuple[Attempt, ...]] = []  # what is not in the file yet
        self._in_turn = False
        self._step = StepDraft()
        self._open: dict[str, ToolCall] = {}  # calls in the file that have no result there
        self._over: dict[str, bool] = {}  # those that have one; true when that says that it was interrupted
        self._waiting: list[str] = []  # people's texts, for after the step
        self._said: list[str] = []  # by the model in this turn
        self._asked: dict[str, ToolCall] = {}  # by the id of the approval
        self._current.writers.append(self)

    @property
    def session(self) -> StoredSession:
        return self._current.session

    def record_steering(self, text: str) -> None:
        """A person's text: in the middle of a turn it is written before the next step, or at the end of the turn."""
        with self._current.turn:
            self._waiting.append(text)
            if not (self._in_turn or self._open) and self._step.empty:
                self._settle()
                self.write()

    def record_abort(self, reason: str) -> None:
        """The turn was ended on purpose: the mark that the model finds of it."""
        self.record_steering(f"[Request interrupted: {reason}]")

    def record_answer(self, message: ModelMessage, model: str) -> None:
        """All that the model said in this step, where its agent knows: what is shown of it may be less."""
        with self._current.turn:
            if not self._step.calls:  # some of it is written already
                self._step.set_answer(message, model)

    def record_decision(self, id: str, decision: Decision) -> None:
        """What an approval or a question was answered with; a yes is on the disk before the agent gets it."""
        with self._current.turn:
            call = self._asked.pop(id, None)
            form: dict[str, object] = {"type": "decided", "id": id}
            self._owe_event(form | {"decision": decision}, form | {"decision": _strip_decision(decision)})
            self.write()
            if isinstance(decision, Allow) and (call is None or call.name not in _HARMLESS):
                self.session.sync()

    def tell(self, event: Event) -> None:
        """Write what is worth it. A `NotWritten` loses nothing: what could not be written is, before the next event."""
        with self._current.turn:
            self._handle_event(event)
            self.write()
            if isinstance(event, events.TurnEnded) or (isinstance(event, events.ToolStarted) and event.call.name not in _HARMLESS):
                self.session.sync()

    def flush(self) -> None:
        """Nothing is under way any more: write all of it. For when the agent is gone, or the session is left."""
        with self._current.turn:
            self._settle()
            self._in_turn = False
            self.write()

    def close(self) -> None:
        """All that was told is on the disk when this returns. The session stays open."""
        with self._current.turn:
            if self in self._current.writers:
                self.flush()
                self.session.sync()
                self._current.writers.remove(self)

    def forget(self) -> None:
        """Give up what could not be written."""
        self._owed.clear()

    def write(self) -> None:
        """All that is owed, in order. What a full disk keeps from being written stays owed; what no session takes is told."""
        unfit: UnfitEntry | None = None
        while self._owed:
            *attempts, last = self._owed[0]
            try:
                if not any(self._try_attempt(attempt) for attempt in attempts):
                    last(self.session)
            except UnfitEntry as error:
                unfit = error
            del self._owed[0]
        if unfit is not None:
            raise unfit

    def _try_attempt(self, attempt: Attempt) -> bool:
        try:
            attempt(self.session)
        except UnfitEntry:
            return False
        return True

    # -- what happens

    def _handle_event(self, event: Event) -> None:
        if event.lane:  # a sub-agent's words are no part of this conversation
            if isinstance(event, Approval):
                self._asked[event.id] = event.call
            if not isinstance(event, _PASSING):
                self._keep(event)
            return
        match event:
            case events.SessionStarted():
                self._record_session_start(event)
            case events.TurnStarted():
                self._record_turn_start(event)
            case events.StepStarted():
                self._settle()
            case events.Text():
                self._step.add_text(event.text)
            case events.Thinking():
                self._step.add_thinking(event.text)
            case events.Message():
                self._step.add_message(event)
            case events.ToolCalled():
                self._add_call(event.call)
            case events.UsageReported():
                self._record_usage(event)
            case events.StepEnded():
                self._end_step(messages.STOPS[event.stop], event.error)
            case Approval():
                self._record_approval(event)
            case events.ToolStarted():
                self._record_tool_start(event)
            case events.ToolEnded():
                self._record_tool_end(event)
            case events.TurnEnded():
                self._record_turn_end(event)
            case events.Retrying():
                self._step.restart()
                self._keep(event)
            case _:  # also that it was compacted: who does that to this conversation writes the compact itself
                if not isinstance(event, _PASSING):
                    self._keep(event)

    def _record_session_start(self, event: events.SessionStarted) -> None:
        """A life of the agent begins. Whose session it is, and what its agent calls it: so that it can be resumed there."""
        self._settle()
        self._over.clear()
        self._asked.clear()
        self._owed.append((lambda session: _introduce(session, event),))

    def _record_turn_start(self, event: events.TurnStarted) -> None:
        self._settle()
        self._in_turn = True
        self._said.clear()
        if event.prompt or event.images:
            self._say(stored.UserMessage(event.prompt, tuple(to_content_items(event.images)), entries.format_time()))

    def _record_turn_end(self, event: events.TurnEnded) -> None:
        result = event.result
        self._settle("aborted" if result.status == "cancelled" else "", answer=result.text)
        self._in_turn = False
        self._over = {id: interrupted for id, interrupted in self._over.items() if interrupted}
        # The answer again, unless it is another than what was said.
        said = "".join("".join(self._said).split())
        text = "" if "".join(result.text.split()) in said else result.text
        self._said.clear()
        self._keep(msgspec.structs.replace(event, result=msgspec.structs.replace(result, text=text, native=None)))

    def _settle(self, stop: stored.StopReason = "", *, answer: str = "") -> None:
        """Nothing is open any more: what the model had said, a result for every call, then what people had said."""
        self._end_step(stop)
        for id, call in self._open.items():
            self._say(messages.build_interrupted_result(id, call.name, entries.format_time()))
            self._over[id] = True
        self._open.clear()
        if answer and self._in_turn and not self._said:  # an agent that tells its answer only with the result
            self._step.add_text(answer)
            self._end_step(stop)
        for text in self._waiting:
            self._say(stored.UserMessage(text, (), entries.format_time()))
        self._waiting.clear()

    def _record_usage(self, event: events.UsageReported) -> None:
        if self._step.empty or event.total is not None:
            self._keep(event)
        if not self._step.empty:
            self._step.usage = event.usage

    def _end_step(self, stop: stored.StopReason = "", error: str = "") -> None:
        step, self._step = self._step, StepDraft()
        if step.empty and not error:
            return
        self._open |= step.calls
        if step.text:
            self._said.append(step.text)
        self._say(step.build_message(self._provider, stop, error))

    def _add_call(self, call: ToolCall) -> None:
        if call.id not in self._open:
            self._over.pop(call.id, None)  # ids may be used again
            self._step.calls.setdefault(call.id, call)

    def _ensure_written(self, call: ToolCall) -> ToolCall:
        """The call as the model made it, of which something is told now. Some agents do not tell of calls, or of steps."""
        if call.id not in self._open:
            self._add_call(call)
            self._end_step("toolUse")
        return self._open[call.id]

    def _record_approval(self, event: Approval) -> None:
        """Once it is answered the agent goes on by itself: what it wants must be written before."""
        self._asked[event.id] = event.call
        if event.call.id:
            self._ensure_written(event.call)
        self._keep(event)

    def _record_tool_start(self, event: events.ToolStarted) -> None:
        called = self._ensure_written(event.call)
        if called.arguments != event.call.arguments:  # somebody rewrote them: this is what runs
            self._keep(event)

    def _record_tool_end(self, event: events.ToolEnded) -> None:
        call, result = event.call, event.result
        if call.id and call.id in self._over:
            self._keep(event)  # it has its result already (FIX-22)
            return
        self._ensure_written(call)
        del self._open[call.id]
        self._over[call.id] = False
        self._say(
            stored.ToolResultMessage(
                call.id, call.name, tuple(to_content_items(result.content)), result.is_error, entries.format_time(), result.code
            )
        )

    # -- what is owed

    def _say(self, message: stored.StoredMessage) -> None:
        """Of what is too long the beginnings are kept: a call without its result, or the other way round, spoils what follows."""
        if isinstance(message, stored.UserMessage):
            self._owed.append((_build_message_attempt(message),))
        else:
            self._owed.append((_build_message_attempt(message), *(_build_message_attempt(message, room) for room in _BEGINNINGS)))

    def _keep(self, event: Event) -> None:
        """As an entry of its own, which is no message."""
        bare = msgspec.structs.replace(event, native=None)
        self._owe_event(_slim_event(event), bare, {"type": events.event_kind(event), "unfit": True})

    def _owe_event(self, *forms: object) -> None:
        self._owed.append(tuple(map(_build_event_attempt, forms)))


def _build_message_attempt(message: stored.StoredMessage, room: int = 0) -> Attempt:
    if room and not isinstance(message, stored.UserMessage):
        return lambda session: session.say(shorten_message(message, room))
    return lambda session: session.say(message)


def _build_event_attempt(form: object) -> Attempt:
    return lambda session: session.append("event", form)


def _introduce(session: StoredSession, event: events.SessionStarted) -> None:
    meta = session.meta
    own = event.session if event.session != session.id else ""
    agent, agent_session = event.agent or meta.agent, own or meta.agent_session
    if (agent, agent_session) != (meta.agent, meta.agent_session):
        session.update_meta(agent=agent, agent_session=agent_session)


def _slim_event(event: Event) -> Event:
    """Without the agent's own form when that is long, unless it is all there is."""
    if event.native is None or isinstance(event, events.OtherEvent):
        return event
    try:
        small = len(codec.encode(event.native)) <= _NATIVE
    except (*codec.BAD_INPUT, TypeError, OverflowError):
        small = False
    return event if small else msgspec.structs.replace(event, native=None)


def _strip_decision(decision: Decision) -> dict[str, object]:
    """Only what was decided."""
    return {"type": str(type(decision).__struct_config__.tag)}

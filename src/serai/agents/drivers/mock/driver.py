"""The mock agent, `serai.agent("mock", script=[…])`: plays a script in this process, as a driven agent would. For tests and demos.

The events of a turn come in the order that every agent's turn has (see `agents.resident.run`).
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec

from serai.agents.driver import Capabilities, Driver, Prompt, TurnFailed
from serai.agents.drivers.mock import script
from serai.agents.drivers.mock.script import ASK_TOOL, Background, Script, Status, Step
from serai.agents.event_hub import EventHub
from serai.agents.session import Session
from serai.agents.turn import Turn
from serai.errors import AgentFailed, Closed, SeraiError
from serai.limits import AgentLimits
from serai.model import events
from serai.model import events as model_events
from serai.model.actions import Notice
from serai.model.approvals import Allow, Answer, Approval, Decision, Deny, Question, QuestionItem, QuestionOption
from serai.model.tools import NativeCall, TextBlock, ToolCall, ToolResult
from serai.store.messages import INTERRUPTED
from serai.store.session_folder import CurrentSession
from serai.store.stored_session import StoredSession as Stored

AGENT = "mock"
Message = dict[str, Any]


def to_message(type: str, **fields: Any) -> Message:
    """A message of that type; what is empty is left out, as the seed's JSON does. A yes or no never is."""
    return {"type": type} | {key: value for key, value in fields.items() if value or isinstance(value, bool)}


_STATUS: Mapping[Status, Literal["success", "error", "denied", "cancelled"]] = {
    "success": "success",
    "error": "error",
    "cancelled": "cancelled",
    "permission_denied": "denied",
    "ask_denied": "denied",
}
_DONE = ToolResult.of("done, as far as a mock agent does anything")
_INTERRUPTED = ToolResult.error(INTERRUPTED, code="TOOL_INTERRUPTED")


class _Over(Exception):
    """The script says that the turn is over, or somebody's no does."""

    def __init__(self, result: script.Result) -> None:
        super().__init__(result.status)
        self.result = result


class MockTurn:
    """Plays `steps`. `number` gives ids to calls that have none; `later` takes turns that it shall begin by itself."""

    def __init__(
        self,
        hub: EventHub,
        prompt: Prompt,
        steps: tuple[Step, ...],
        *,
        number: Callable[[], int],
        later: Callable[[script.Background], None],
    ) -> None:
        self._hub = hub
        self._prompt = prompt
        self._steps = steps
        self._number = number
        self._later = later
        self._step = 0
        self._open = False  # a step is
        self._told = False  # it has said something whole in this step
        self._ended = False  # and is done speaking
        self._pieces: list[str] = []  # of what it says
        self._calls: dict[str, ToolCall] = {}  # of this step, without a result
        self._running: set[str] = set()  # of them
        self._denied = False  # the latest call was
        self._text = ""  # what it said last
        self._failures: list[str] = []  # what should have been decided otherwise
        self._played = 0
        self._numbered = 0

    async def play(self) -> model_events.TurnResult:
        """To its end. `TurnFailed` says why it failed."""
        # What says how the conversation stands comes first, as Claude Code's `init` does at every turn (spec agents 5.3 Z5).
        total = max((step.total for step in self._steps if isinstance(step, script.Permission | script.Ask)), default=0)
        self._hub.emit(events.TurnPrepared(native=to_message("init", max_iterations=total)))
        try:
            for step in self._steps:
                await self._hub.wait_for_room()
                await asyncio.sleep(0)
                await self._play_step(step)
                self._played += 1
        except _Over as over:
            return self._build_result(over.result)
        except asyncio.CancelledError:
            self._settle("aborted", _INTERRUPTED)
            raise
        return self._build_result(script.Result())

    def build_cancelled(self, reason: str) -> model_events.TurnResult:
        """How it ends when somebody has interrupted it."""
        told = self._build_native_result(script.Result(status="cancelled", error=reason))
        return model_events.TurnResult(status="cancelled", text=self._text, error=reason, steps=self._step, native=told)

    async def _play_step(self, step: Step) -> None:
        match step:
            case script.Assistant():
                self._say(self._fill(step.text))
            case script.StreamDelta():
                self._emit_piece(events.Text(text=(text := self._fill(step.text)), native=to_message("stream_delta", delta=text)))
                self._pieces.append(text)
            case script.Thinking():
                self._emit_piece(events.Thinking(text=self._fill(step.text)))
            case script.ToolUse():
                self._add_call(step.tool, step.input, step.id, tell=True)
            case script.ToolResult():
                self._play_tool_result(step)
            case script.Permission():
                await self._play_permission(step)
            case script.Ask():
                await self._ask(step)
            case script.Error():
                self._hub.emit(
                    events.NoticeEvent(notice=Notice(step.message, "error", "mock"), native=to_message("error", error=step.message))
                )
            case script.Wait():
                await self._wait(step)
            case script.Background():
                self._later(step)
            case script.Result():
                self._played += 1
                raise _Over(step)
            case script.Fail():
                raise self._build_failure(step)

    def _fill(self, text: str) -> str:
        return text.replace("{prompt}", self._prompt.text)

    async def _wait(self, step: script.Wait) -> None:
        if step.reached is not None:
            step.reached.set()
        await (step.event.wait() if step.event is not None else asyncio.sleep(step.seconds))

    # -- what it says

    def _say(self, text: str) -> None:
        told = to_message("assistant", message=text)
        if self._pieces and "".join(self._pieces) == text:  # the whole of what came in pieces
            self._pieces.clear()
            self._emit_message(text, told)
            return
        self._flush_pieces()
        self._open_step()
        self._hub.emit(events.Text(text=text))
        self._emit_message(text, told)

    def _emit_piece(self, event: events.Text | events.Thinking) -> None:
        self._open_step()
        self._hub.emit(event)

    def _open_step(self) -> None:
        """In a step in which nothing whole was said yet, and no tool used."""
        if self._told or self._ended or self._calls:
            self._settle("end")
        if not self._open:
            self._step += 1
            self._open = True
            self._hub.emit(model_events.StepStarted(step=self._step))

    def _emit_message(self, text: str, native: dict[str, Any] | None = None) -> None:
        self._told, self._text = True, text
        content = (TextBlock(text),) if text else ()
        self._hub.emit(events.Message(content=content, model="mock", native=native))

    def _flush_pieces(self) -> None:
        """What came in pieces and was never said whole."""
        if self._pieces:
            text = "".join(self._pieces)
            self._pieces.clear()
            self._emit_message(text)

    def _end_step(self, stop: model_events.Stop) -> None:
        if self._open and not self._ended:
            self._flush_pieces()
            self._ended = True
            self._hub.emit(model_events.StepEnded(step=self._step, stop="tool_use" if self._calls and stop == "end" else stop))

    def _settle(self, stop: model_events.Stop = "end", result: ToolResult = _DONE) -> None:
        """The step is over: what runs has this result."""
        self._end_step(stop)
        for id in list(self._calls):
            self._finish(id, result)
        if self._open:
            self._hub.emit(model_events.StepSettled(step=self._step))
        self._open = self._told = self._ended = False

    # -- what it does

    def _add_call(self, tool: str, input: dict[str, Any], id: str, *, tell: bool) -> ToolCall:
        self._flush_pieces()
        if self._ended:
            self._settle()
        if not self._open:
            self._open_step()
        id = id or f"mock-{self._number()}"
        if id in self._calls:  # results are told apart by them
            id = f"{id}-{self._number()}"
        call = ToolCall(tool, dict(input), id, asker="mock", native=NativeCall(tool, dict(input)))
        self._calls[id] = call
        self._denied = False
        told = to_message("tool_use", tool_id=id, tool_name=tool, input=call.arguments) if tell else None
        self._hub.emit(model_events.ToolCalled(call=call, native=told))
        return call

    def _start_call(self, call: ToolCall) -> None:
        if call.id not in self._running:
            self._end_step("tool_use")
            self._running.add(call.id)
            self._calls[call.id] = call
            self._hub.emit(model_events.ToolStarted(call=call))

    def _finish(self, id: str, result: ToolResult, native: dict[str, Any] | None = None) -> None:
        """A call has its result; one that never ran because it was denied or interrupted did not start either."""
        if not result.code:
            self._start_call(self._calls[id])
        call = self._calls.pop(id)
        self._running.discard(id)
        self._hub.emit(model_events.ToolEnded(call=call, result=result, native=native))

    def _play_tool_result(self, step: script.ToolResult) -> None:
        id = step.id or next(reversed(self._calls), "")
        if id not in self._calls:
            if self._denied:  # it has its result, which is that no
                return
            id = self._add_call("mock_tool", {}, step.id, tell=False).id  # nobody said what for: of something
        result = ToolResult.error(step.text) if step.is_error else ToolResult.of(step.text)
        told = to_message("tool_result", tool_id=id, tool_name=self._calls[id].name, content=step.text, is_error=step.is_error)
        self._finish(id, result, told)

    # -- what it asks

    async def _play_permission(self, step: script.Permission) -> None:
        call = self._add_call(step.tool, step.input, step.id, tell=False)
        self._end_step("tool_use")
        id = self._hub.new_id("permission")
        told = to_message(
            "permission_request", request_id=id, tool_name=step.tool, input=step.input, reason=step.reason,
            step=step.step, total=step.total,
        )  # fmt: skip
        decision = await self._hub.ask(Approval(id=id, call=call, reason=step.reason, native=told))
        approved = isinstance(decision, Allow)
        self._emit_decision(id, decision, approved=approved)
        if step.expect_approved not in (None, approved):
            wanted, got = ("approved", "denied") if step.expect_approved else ("denied", "approved")
            self._failures.append(f"{step.tool} should have been {wanted} and was {got}")
        if isinstance(decision, Allow):
            final = call.arguments if decision.arguments is msgspec.UNSET else decision.arguments
            self._start_call(msgspec.structs.replace(call, arguments=final))
            self._numbered = max(self._numbered, step.step)
            return
        self._refuse(call, decision, "permission_denied", ends=step.on_deny_terminate)

    async def _ask(self, step: script.Ask) -> None:
        asked = [one if isinstance(one, dict) else {"question": one} for one in step.questions]
        call = self._add_call(ASK_TOOL, {"questions": asked}, step.id, tell=False)
        self._end_step("tool_use")
        id = self._hub.new_id("question")
        told = to_message(
            "permission_request", request_id=id, tool_name=ASK_TOOL, input=call.arguments, step=step.step, total=step.total
        )
        question = Question(id=id, items=tuple(map(_parse_item, asked)), tool=ASK_TOOL, call_id=call.id, native=told)
        decision = await self._hub.ask(question)
        answers = decision.answers if isinstance(decision, Answer) else {}
        self._emit_decision(id, decision, approved=bool(answers))
        self._check_answers(step, answers)
        if answers:
            self._start_call(call)
            self._finish(call.id, ToolResult.of("\n".join(f"{text}: {said}" for text, said in answers.items())))
            self._numbered = max(self._numbered, step.step)
            return
        self._refuse(call, decision, "ask_denied", ends=step.on_deny_terminate)

    def _check_answers(self, step: script.Ask, answers: Mapping[str, Any]) -> None:
        if step.expect_answers is None:
            return
        texts = [_parse_item(one if isinstance(one, dict) else {"question": one}).text for one in step.questions]
        places = {str(place): text for place, text in enumerate(texts) if str(place) not in texts}
        expected = {places.get(key, key): wanted for key, wanted in step.expect_answers.items()}
        for text in sorted(expected.keys() | answers.keys()):
            if expected.get(text) != answers.get(text):
                self._failures.append(f"{text!r} should have been answered {expected.get(text)!r}, not {answers.get(text)!r}")

    def _emit_decision(self, id: str, decision: Decision, *, approved: bool) -> None:
        why = decision.why if isinstance(decision, Deny) else ""
        remember = not isinstance(decision, Answer) and decision.remember != "once"
        told = to_message(
            "permission_result", request_id=id, approved=approved, reason=why, **({"remember": True} if remember else {})
        )
        self._hub.emit(model_events.OtherEvent(kind="permission_result", native=told))

    def _refuse(self, call: ToolCall, decision: Decision, status: Status, *, ends: bool) -> None:
        why = decision.why if isinstance(decision, Deny) else ""
        why = why or ("it was denied" if status == "permission_denied" else "nobody answered")
        self._finish(call.id, ToolResult.error(why, code="PERMISSION_DENIED"))
        self._denied = True
        if ends or (isinstance(decision, Deny) and decision.interrupt):
            self._played += 1
            raise _Over(script.Result(status=status, error=why))

    # -- how it ends

    def _build_native_result(self, said: script.Result) -> dict[str, Any]:
        failures = {"metadata": {"expectation_failures": list(self._failures)}} if self._failures else {}
        error = "; ".join(self._failures) or said.error
        return to_message(
            "result", status=said.status, message=said.message or self._text, cost_usd=said.cost_usd, duration_ms=said.duration_ms,
            steps_completed=self._numbered or self._played, is_error=bool(self._failures) or said.status == "error", error=error,
            **failures,
        )  # fmt: skip

    def _build_result(self, said: script.Result) -> model_events.TurnResult:
        self._settle("end")
        told = self._build_native_result(said)
        text, usage = said.message or self._text, events.Usage(cost_usd=said.cost_usd)
        status = "error" if self._failures else _STATUS[said.status]
        error = told.get("error", "")
        result = model_events.TurnResult(
            status=status, text=text, error=error, steps=self._step, usage=usage, seconds=said.duration_ms / 1000, native=told
        )
        if self._failures:
            hint = "look at what answered: a surface, a rule, a guard"
            details = tuple(self._failures)
            raise TurnFailed(
                AgentFailed(error, kind="expectation_failed", details=details, native=told, who="mock", hint=hint), result
            )
        if status == "error":
            raise TurnFailed(AgentFailed(error or text or "its script says so", native=told, who="mock"), result)
        return result

    def _build_failure(self, step: script.Fail) -> TurnFailed:
        self._settle("error")
        error = step.error
        failure = error if isinstance(error, SeraiError) else AgentFailed(error, kind=step.kind, who="mock")
        told = self._build_native_result(script.Result(status="error", error=str(failure)))
        result = model_events.TurnResult(status="error", text=self._text, error=str(failure), steps=self._step, native=told)
        return TurnFailed(failure, result)


def _parse_item(asked: dict[str, Any]) -> QuestionItem:
    """A question as Claude Code has it (spec agents 2.9)."""
    choices = []
    for option in asked.get("options", ()):
        named = option if isinstance(option, dict) else {"label": str(option)}
        choices.append(QuestionOption(str(named.get("label", "")), str(named.get("description", ""))))
    text, header = str(asked.get("question", "")), str(asked.get("header", ""))
    return QuestionItem(text, header, tuple(choices), several=bool(asked.get("multiSelect", False)))


class Mock(Driver):
    """Plays its script. It asks for what the script says it asks for, so a guard sees those calls and no others."""

    name = AGENT
    capabilities = Capabilities(
        deltas=True, approvals=True, questions=True, interrupt=True, multi_turn=True, choose_id=True, background=True,
        guards="asked-calls", rewrite=True,
    )  # fmt: skip

    def __init__(self, script: Script, *, session_id: str = "", before: int = 0) -> None:
        """`before` is how many messages the session has already."""
        self.script = script
        self.session_id = session_id or str(uuid.uuid4())
        self._before = before
        self._turns = 0
        self._ids = itertools.count(1)
        self._hub: EventHub | None = None
        self._playing: asyncio.Task[model_events.TurnResult] | None = None
        self._later: list[Background] = []  # turns that it begins by itself, not begun yet
        self._own: asyncio.Task[None] | None = None  # begins them

    @property
    def hub(self) -> EventHub:
        if self._hub is None:
            raise Closed("the mock agent is not open", who=self.name)
        return self._hub

    async def open(self, hub: EventHub) -> None:
        if self.script.fail_with:
            raise AgentFailed(self.script.fail_with, kind="exited", who=self.name)
        self._hub = hub
        hub.emit(model_events.SessionStarted(session=self.session_id, messages=self._before))

    async def run(self, prompt: Prompt) -> model_events.TurnResult:
        steps = self.script.get_steps(self._turns)
        self._turns += 1
        return await self._play(prompt, steps)

    async def _play(self, prompt: Prompt, steps: tuple[Step, ...]) -> model_events.TurnResult:
        play = MockTurn(self.hub, prompt, steps, number=lambda: next(self._ids), later=self._begin_later)
        turn = self.hub.turn
        if turn is not None and turn.reason:  # interrupted before it began
            return play.build_cancelled(turn.reason)
        self._playing = playing = asyncio.get_running_loop().create_task(play.play(), name="script of the mock agent")
        try:
            return await asyncio.shield(playing)
        except asyncio.CancelledError:
            if not playing.cancelled():  # not the script was ended, but we
                playing.cancel()
                await asyncio.wait([playing])
                raise
            return play.build_cancelled((turn.reason if turn is not None else "") or "interrupted")
        finally:
            self._playing = None

    async def interrupt(self, reason: str) -> None:  # noqa: ARG002
        if self._playing is not None:
            self._playing.cancel()

    # -- turns that it begins by itself

    def _begin_later(self, step: Background) -> None:
        self._later.append(step)
        if self._own is None or self._own.done():
            self._own = asyncio.get_running_loop().create_task(self._run_later_turns(), name="the mock agent's own turns")

    async def _run_later_turns(self) -> None:
        while self._later:
            while (running := self.hub.turn) is not None:
                await running.over()
            step = self._later.pop(0)
            turn = Turn(Prompt(step.prompt), self.hub, stop=self._stop)
            self.hub.announce(turn)
            error: BaseException | None = None
            try:
                result = await self._play(turn.prompt, step.steps)
            except asyncio.CancelledError:
                self.hub.end(turn, model_events.TurnResult(status="cancelled", error=turn.reason or "the session was closed"))
                raise
            except TurnFailed as failure:
                error, result = failure.error, failure.result
            except SeraiError as failure:  # what could not be told, such as a full disk
                error, result = failure, model_events.TurnResult(status="error", error=str(failure))
            self.hub.end(turn, result, error)

    async def _stop(self, turn: Turn, reason: str) -> None:
        await self.interrupt(reason)
        await turn.over()

    async def wait_idle(self) -> None:
        while self._own is not None and not self._own.done():
            await asyncio.wait([self._own])

    async def close(self) -> None:
        for task in (self._own, self._playing):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])


def mock(
    *,
    script: Script | str | bytes | Mapping[str, Any] | Iterable[Any] | None = None,
    store: Stored | CurrentSession | None = None,
    session_id: str = "",
    limits: AgentLimits | None = None,
    **_: Any,
) -> Session:
    """A session with the mock agent.

    * `script`: a `Script`, its steps as values or plain data, or TOML or JSON text; without one the linear script of five steps.
    * `store`: where the conversation is kept; `session_id`: what it is called.

    What the app hands to every agent (a model, tools, …) is nothing to a script; that is not told as an error.
    """
    stored = store.session if isinstance(store, CurrentSession) else store
    driver = Mock(
        Script.from_data(script),
        session_id=session_id or (stored.id if stored is not None else ""),
        before=len(stored.read_messages()) if stored is not None else 0,
    )
    return Session(driver, store=store, limits=limits)

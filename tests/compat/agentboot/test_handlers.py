"""Handlers answer requests: a prompter and its loop, what it remembers, callbacks and theirs (spec agents 1.13, 1.14)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from serai.compat.agentboot import (
    ApprovalRequestEvent,
    ApprovalResponse,
    AskRequest,
    AskRequestEvent,
    AskResponse,
    AskResult,
    CompletionResult,
    CompositeHandler,
    ControlResponse,
    ErrorEvent,
    FakeProcess,
    FakePrompter,
    LaunchSpec,
    MessageEvent,
    NewCompositeHandler,
    PermissionRequest,
    PermissionResult,
    ProcessError,
    RequestCancelled,
    Result,
    StreamEvent,
    Waited,
    new_controlled_handle,
    run_with_handler,
    run_with_prompter,
)
from serai.model.approvals import Allow
from tests.support.agentboot.toy_agent import exit_when_stdin_closes, play_frames, result, runner, say_frame

ASK: dict[str, Any] = {"type": "ask", "id": "a", "tool": "Bash", "input": {"command": "ls"}}


class ScriptedHandle:
    """An agent in this process that tells these events and remembers the answers; it is over when all requests are answered."""

    def __init__(self, *events: StreamEvent, error: BaseException | None = None) -> None:
        self.answers: dict[str, ControlResponse] = {}
        self.result = Result(output="over", error=str(error) if error else "")
        self._error = error
        self._asked = {event.id for event in events if isinstance(event, ApprovalRequestEvent | AskRequestEvent)}
        self._asked -= {event.id for event in events if isinstance(event, RequestCancelled)}
        self._events = events
        self._answered = asyncio.Event()
        self.handle, self._controls = new_controlled_handle(0, self._answer, lambda: None, self._wait)
        self._telling = asyncio.ensure_future(self._tell())

    def _answer(self, id: str, response: ControlResponse) -> None:
        self.answers[id] = response
        self._answered.set()

    async def _tell(self) -> None:
        for event in self._events:
            await self._controls.emit(event)
        while self._asked - self.answers.keys():
            self._answered.clear()
            await self._answered.wait()
        self._controls.close()

    async def _wait(self) -> Waited:
        await self._telling
        return Waited(self.result, self._error)


@pytest.mark.req("agents.scenario.Q1")
async def test_messages_go_to_the_sink_and_requests_to_the_prompter_and_back() -> None:
    told = ScriptedHandle(
        MessageEvent("one"),
        ApprovalRequestEvent(id="a", agent_type="toy", tool_name="Bash", input={"command": "ls"}, session_id="s", chat_id="c"),
        AskRequestEvent(id="q", message="Which?", platform="p", bot_uuid="b", call_id="t"),
        MessageEvent("two"),
    )
    prompter = FakePrompter(
        [PermissionResult(approved=True, updated_input={"command": "pwd"}, reason="fine", remember=True)],
        [AskResult(id="", approved=True, response="blue", selection={"Which?": "blue"})],
    )
    sunk: list[Any] = []
    waited = await run_with_prompter(told.handle, prompter, sunk.append)
    assert waited.result is told.result
    assert sunk == ["one", "two"]
    assert told.answers == {
        "a": ApprovalResponse(approved=True, updated_input={"command": "pwd"}, reason="fine", remember=True),
        "q": AskResponse(approved=True, response="blue", selection={"Which?": "blue"}),
    }
    (approval,), (question,) = prompter.approval_requests, prompter.ask_requests
    assert (approval.request_id, approval.tool_name, approval.session_id, approval.chat_id) == ("a", "Bash", "s", "c")
    assert approval.timestamp.endswith("Z")
    assert (question.id, question.type, question.message, question.platform) == ("q", "question", "Which?", "p")
    assert (question.bot_uuid, question.call_id) == ("b", "t")


@pytest.mark.req("agents.scenario.Q2")
async def test_an_error_goes_to_the_sink() -> None:
    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        process.finish_output()
        process.signal_exit(3)

    sunk: list[Any] = []
    waited = await run_with_prompter(await runner(play).execute("go"), FakePrompter(), sunk.append)
    assert isinstance(waited.error, ProcessError)
    assert sunk == [ErrorEvent(waited.error)]


@pytest.mark.req("agents.scenario.Q3")
async def test_a_prompter_that_fails_denies_with_the_text_of_its_failure() -> None:
    class Broken:
        async def on_approval(self, request: PermissionRequest) -> PermissionResult:
            raise RuntimeError("the line is dead")

        async def on_ask(self, request: AskRequest) -> AskResult:
            return PermissionResult(approved=True)  # type: ignore[return-value]

    told = ScriptedHandle(ApprovalRequestEvent(id="a"), AskRequestEvent(id="q"))
    await run_with_prompter(told.handle, Broken())
    assert told.answers["a"] == ApprovalResponse(approved=False, reason="the line is dead")
    assert told.answers["q"] == AskResponse(approved=False, reason="a question is answered with an AskResult, not PermissionResult")


@pytest.mark.req("agents.scenario.Q4")
async def test_without_a_sink_messages_are_dropped() -> None:
    told = ScriptedHandle(MessageEvent("one"), ErrorEvent(RuntimeError("x")), MessageEvent("two"))
    assert (await run_with_prompter(told.handle, FakePrompter(), None)).result is told.result


@pytest.mark.req("agents.rule.21")
async def test_each_request_is_asked_in_a_task_of_its_own() -> None:
    both = asyncio.Event()

    class Slow(FakePrompter):
        async def on_approval(self, request: PermissionRequest) -> PermissionResult:
            answer = await super().on_approval(request)
            if len(self.approval_requests) == 2:
                both.set()
            await both.wait()  # the first is answered only when the second is asked too
            return answer

    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        process.write_output({**ASK, "id": "a"})
        process.write_output({**ASK, "id": "b"})
        process.write_output(say_frame("meanwhile"))
        for number in (1, 2):
            await process.stdin_line(number)
        process.write_output(result())
        await exit_when_stdin_closes(process)

    sunk: list[Any] = []
    waited = await run_with_prompter(await runner(play).execute("go"), Slow(default=True), sunk.append)
    assert waited.error is None
    assert sunk == ["meanwhile"]


@pytest.mark.req("agents.rule.21")
async def test_a_request_that_is_withdrawn_is_taken_back_from_the_prompter() -> None:
    asked, taken = asyncio.Event(), asyncio.Event()

    class Waiting(FakePrompter):
        async def on_approval(self, request: PermissionRequest) -> PermissionResult:
            asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                taken.set()
            raise AssertionError

    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        process.write_output(ASK)
        await asked.wait()
        process.write_output({"type": "withdraw", "id": "a"})
        await taken.wait()
        process.write_output(result())
        await exit_when_stdin_closes(process)

    waited = await run_with_prompter(await runner(play).execute("go"), Waiting())
    assert waited.error is None


async def test_an_answer_that_comes_too_late_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    told = ScriptedHandle(ApprovalRequestEvent(id="a"), RequestCancelled("a"))

    class Deaf(FakePrompter):
        async def on_approval(self, request: PermissionRequest) -> PermissionResult:
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                pass
            return PermissionResult(approved=True)

    with caplog.at_level(logging.INFO):
        assert (await run_with_prompter(told.handle, Deaf())).result is told.result


# -- the fake one


async def test_a_fake_prompter_answers_from_its_script_and_else_by_default() -> None:
    request = PermissionRequest(request_id="a", agent_type="toy", tool_name="Bash", input={"command": "ls"})
    other = PermissionRequest(request_id="b", agent_type="toy", tool_name="Write", input={})
    assert not (await FakePrompter().on_approval(request)).approved
    assert await FakePrompter(default=True).on_approval(request) == PermissionResult(approved=True, updated_input={"command": "ls"})
    prompter = FakePrompter(
        [PermissionResult(approved=True, remember=True), PermissionResult(approved=False, reason="no")], always=["Read"]
    )
    assert (await prompter.on_approval(request)).approved
    assert (await prompter.on_approval(request)).approved  # remembered: the deny is still there
    assert (await prompter.on_approval(other)).reason == "no"
    assert not (await prompter.on_approval(other)).approved
    assert len(prompter.approval_requests) == 4
    asked = AskRequest(id="q", type="question", agent_type="toy", platform="", chat_id="", bot_uuid="")
    assert not (await prompter.on_ask(asked)).approved
    assert (await FakePrompter(default=True).on_ask(asked)).approved
    assert (await FakePrompter(asks=[AskResult(id="x", selection={"Which?": "A"})]).on_ask(asked)).id == "q"


async def test_a_fake_prompter_that_takes_its_time_can_be_cancelled() -> None:
    request = PermissionRequest(request_id="a", agent_type="toy", tool_name="Bash", input={})
    prompter = FakePrompter([PermissionResult(approved=True)], delay=100)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(prompter.on_approval(request), 0.01)
    assert len(prompter.approvals) == 1


# -- callbacks


@pytest.mark.req("agents.rule.24")
async def test_a_part_that_is_missing_denies_and_the_seeds_yes_has_to_be_chosen() -> None:
    request = PermissionRequest(request_id="a", agent_type="toy", tool_name="Bash", input={"command": "ls"})
    asked = AskRequest(id="q", type="question", agent_type="toy", platform="", chat_id="", bot_uuid="", input={"x": 1})
    empty = NewCompositeHandler()
    assert not (await empty.on_approval(request)).approved
    assert not (await empty.on_ask(asked)).approved
    assert empty.on_message("x") is None
    empty.on_error(RuntimeError("x"))
    empty.on_complete(CompletionResult())
    willing = CompositeHandler(default=Allow())
    assert await willing.on_approval(request) == PermissionResult(approved=True, updated_input={"command": "ls"})
    assert await willing.on_ask(asked) == AskResult(id="q", approved=True, updated_input={"x": 1})


async def test_the_parts_of_a_handler_are_called_in_their_order() -> None:
    calls: list[Any] = []

    class Part:
        def on_message(self, message: Any) -> None:
            calls.append(("message", message))

        def on_error(self, error: BaseException) -> None:
            calls.append(("first", str(error)))

        def on_complete(self, result: CompletionResult) -> None:
            calls.append(("complete", result.success))

        async def on_approval(self, request: PermissionRequest) -> PermissionResult:
            calls.append(("approval", request.tool_name))
            return PermissionResult(approved=True)

        def on_ask(self, request: AskRequest) -> AskResult:
            return AskResult(id=request.id, approved=True, response="blue")

    part = Part()
    handler = CompositeHandler().set_streamer(part).set_approval_handler(part).set_ask_handler(part)  # type: ignore[arg-type]
    assert handler.set_completion_callback(part) is handler
    handler.with_error_func(lambda error: calls.append(("second", str(error))))
    handle = await runner(play_frames(say_frame("hello"), ASK, {"type": "question", "id": "q"}, result())).execute("go")
    waited = await run_with_handler(handle, handler)
    assert waited.error is None
    assert calls == [("message", "hello"), ("approval", "Bash"), ("complete", True)]
    handler.on_error(RuntimeError("x"))
    assert calls[-2:] == [("second", "x"), ("first", "x")]
    handler.with_message_func(lambda message: calls.append(("instead", message)))
    handler.on_message("y")
    handler.on_error(RuntimeError("z"))
    assert calls[-3:] == [("instead", "y"), ("second", "z"), ("first", "z")]


async def test_a_completion_tells_how_it_went_and_a_failing_handler_ends_nothing() -> None:
    done: list[CompletionResult] = []
    errors: list[str] = []

    def refuse(message: Any) -> None:
        raise ValueError(f"not {message}")

    handler = CompositeHandler().with_message_func(refuse).with_error_func(lambda error: errors.append(str(error)))
    handler.with_completion_func(done.append)

    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        process.write_output(say_frame("hello"))
        process.finish_output()
        process.signal_exit(3)

    waited = await run_with_handler(await runner(play).execute("go"), handler)
    (completion,) = done
    assert errors == ["not hello", str(waited.error)]
    assert (completion.success, completion.error) == (False, waited.result.error)
    assert completion.duration_ms == round(waited.result.duration * 1000)


async def test_a_yes_that_is_not_to_be_remembered_is_not() -> None:
    prompter = FakePrompter([PermissionResult(approved=True)])
    request = PermissionRequest(request_id="1", agent_type="claude", tool_name="Bash", input={})
    assert (await prompter.on_approval(request)).approved
    assert not (await prompter.on_approval(request)).approved

"""What an agent asks in an execution, and how answers get back to it (spec agents 1.9, 1.10, 7)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from serai.compat.agentboot import (
    ApprovalRequestEvent,
    ApprovalResponse,
    AskRequestEvent,
    AskResponse,
    ExecutionOptions,
    FakeFactory,
    FakeProcess,
    Handle,
    LaunchSpec,
    MessageEvent,
    NotDelivered,
    ProcessError,
    RequestCancelled,
    RunnerConfig,
    StreamEvent,
    UnknownRequestId,
)
from serai.errors import ExitStatus
from serai.limits import Limits
from serai.model.approvals import Allow, Answer, Deny
from tests.support.agentboot.toy_agent import PATIENT, ToyTransport, exit_when_stdin_closes, play_frames, result, runner, say_frame

YES = ApprovalResponse(approved=True)
ASK: dict[str, Any] = {"type": "ask", "id": "a", "input": {"command": "ls"}}


async def start_run(play: Any, options: ExecutionOptions | None = None, **made: Any) -> tuple[Handle, FakeFactory]:
    factory = FakeFactory(play, limits=PATIENT)
    return await runner(factory=factory, **made).execute("go", options), factory


async def read_until(handle: Handle, *kinds: type[Any]) -> list[StreamEvent]:
    """The events up to the last of these."""
    left, events = list(kinds), []
    stream = handle.events()
    while left:
        event = await anext(stream)
        events.append(event)
        if isinstance(event, left[0]):
            left.pop(0)
    return events


@pytest.mark.req("agents.scenario.H1", "agents.rule.16")
async def test_a_request_keeps_its_place_among_the_messages_and_can_be_answered_at_once() -> None:
    handle, factory = await start_run(play_frames(say_frame("one"), ASK, say_frame("two"), result()))
    seen: list[Any] = []
    async for event in handle.events():
        if isinstance(event, MessageEvent):
            seen.append(event.raw)
        elif isinstance(event, ApprovalRequestEvent):
            seen.append(event.id)
            await handle.respond(event.id, YES)
    assert seen == ["one", "a", "two"]
    assert json.loads(await factory.processes[0].stdin_line(1)) == {
        "id": "a",
        "approved": True,
        "input": {"command": "ls"},
        "reason": "",
    }


@pytest.mark.req("agents.rule.21", "agents.edge.05")
async def test_several_are_open_at_once_and_are_answered_in_any_order() -> None:
    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        process.write_output({**ASK, "id": "one"})
        process.write_output({"type": "question", "id": "two", "text": "Which?"})
        process.write_output({**ASK, "id": "three"})
        process.write_output(say_frame("and it goes on"))
        for number in range(1, 4):
            await process.stdin_line(number)
        process.write_output(result())
        await exit_when_stdin_closes(process)

    handle, factory = await start_run(play)
    await read_until(handle, ApprovalRequestEvent, AskRequestEvent, ApprovalRequestEvent, MessageEvent)
    with pytest.raises(TypeError, match="AskResponse, not ApprovalResponse"):
        await handle.respond("two", YES)
    with pytest.raises(TypeError, match="not str"):
        await handle.respond("two", "yes")  # type: ignore[arg-type]
    await handle.respond("three", YES)
    await handle.respond("two", AskResponse(approved=True, response="blue"))
    await handle.respond("one", ApprovalResponse(approved=False, reason="no"))
    for id in ("one", "two", "never"):
        with pytest.raises(UnknownRequestId):
            await handle.respond(id, YES)
    assert (await handle.wait()).error is None
    lines = [json.loads(await factory.processes[0].stdin_line(number)) for number in range(1, 4)]
    assert [line["id"] for line in lines] == ["three", "two", "one"]
    assert lines[1]["answer"] == "blue"
    assert lines[2]["reason"] == "no"


@pytest.mark.req("agents.edge.18")
async def test_the_same_id_in_two_executions_and_the_id_0_are_ids() -> None:
    runs = [await start_run(play_frames({**ASK, "id": 0}, result())) for _ in range(2)]
    for handle, _ in runs:
        await read_until(handle, ApprovalRequestEvent)
    for approved, (handle, _) in enumerate(runs):
        await handle.respond(0, ApprovalResponse(approved=bool(approved)))  # type: ignore[arg-type]
    for approved, (handle, factory) in enumerate(runs):
        assert (await handle.wait()).error is None
        answer = json.loads(await factory.processes[0].stdin_line(1))
        assert (answer["id"], answer["approved"]) == (0, bool(approved))


@pytest.mark.req("agents.edge.19")
async def test_a_request_that_comes_again_is_presented_once() -> None:
    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        process.write_output(ASK)
        process.write_output(ASK)
        await process.stdin_line(1)
        process.write_output(ASK)  # also after its answer
        process.write_output(result())
        await exit_when_stdin_closes(process)

    handle, factory = await start_run(play)
    seen = []
    async for event in handle.events():
        if isinstance(event, ApprovalRequestEvent):
            seen.append(event.id)
            await handle.respond(event.id, YES)
    assert seen == ["a"]
    assert factory.processes[0].stdin_bytes.count(b"\n") == 2


@pytest.mark.req("agents.edge.20")
@pytest.mark.parametrize("updated", [None, {"command": "pwd"}])
async def test_who_is_shown_an_input_and_changes_it_changes_nothing(updated: dict[str, Any] | None) -> None:
    original = {"command": "ls", "more": {"deep": [1]}}
    handle, factory = await start_run(play_frames({**ASK, "input": original}, result()))
    event = (await read_until(handle, ApprovalRequestEvent))[-1]
    assert isinstance(event, ApprovalRequestEvent)
    event.input["command"] = "rm -rf /"
    event.input["more"]["deep"].append(2)
    await handle.respond("a", ApprovalResponse(approved=True, updated_input=updated))
    waited = await handle.wait()
    assert json.loads(await factory.processes[0].stdin_line(1))["input"] == (updated or original)
    assert waited.result.events[0].data["input"] == original


@pytest.mark.req("agents.rule.18", "agents.scenario.C1")
async def test_overlapping_runs_keep_their_own_stamps_and_none_gets_into_an_input() -> None:
    turn = asyncio.Event()

    def late(mine: asyncio.Event) -> Any:
        async def play(spec: LaunchSpec, process: FakeProcess) -> None:
            await process.stdin_line(0)
            await mine.wait()
            process.write_output(ASK)
            await process.stdin_line(1)
            process.write_output(result())
            await exit_when_stdin_closes(process)

        return play

    first_may = asyncio.Event()
    scripts = iter([late(first_may), late(turn)])

    def next_script(spec: LaunchSpec, process: FakeProcess) -> Any:
        return next(scripts)(spec, process)

    factory = FakeFactory(next_script, limits=PATIENT)
    agent = runner(factory=factory, transport=ToyTransport())  # one instance for both
    stamps: list[dict[str, Any]] = [
        {"session_id": f"s{n}", "chat_id": f"c{n}", "platform": f"p{n}", "bot_uuid": f"b{n}"} for n in (1, 2)
    ]
    handles = [await agent.execute("go", ExecutionOptions(**given)) for given in stamps]
    turn.set()
    second = (await read_until(handles[1], ApprovalRequestEvent))[-1]
    first_may.set()  # its request comes after the second has started
    first = (await read_until(handles[0], ApprovalRequestEvent))[-1]
    for event, given, handle in zip((first, second), stamps, handles, strict=True):
        assert isinstance(event, ApprovalRequestEvent)
        assert {name: getattr(event, name) for name in given} == given
        assert event.input == {"command": "ls"}
        await handle.respond("a", YES)
    for handle, process in zip(handles, factory.processes, strict=True):
        assert (await handle.wait()).result.is_success()
        assert json.loads(await process.stdin_line(1))["input"] == {"command": "ls"}


async def test_stamps_that_the_transport_left_out_are_filled_in() -> None:
    class Plain(ToyTransport):
        def set_execution_context(self, *_: str) -> None:
            pass

    handle, _ = await start_run(play_frames(ASK, result()), ExecutionOptions(session_id="s", chat_id="c"), transport=Plain)
    event = (await read_until(handle, ApprovalRequestEvent))[-1]
    assert isinstance(event, ApprovalRequestEvent)
    assert (event.agent_type, event.session_id, event.chat_id, event.platform) == ("toy", "s", "c", "")
    handle.cancel()
    await handle.wait()


async def test_a_request_that_the_agent_withdraws_is_told_and_gets_no_answer() -> None:
    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        process.write_output(ASK)
        process.write_output({"type": "withdraw", "id": "a"})
        process.write_output(say_frame("on we go"))
        process.write_output(result())
        await exit_when_stdin_closes(process)

    handle, factory = await start_run(play)
    events = await read_until(handle, ApprovalRequestEvent, RequestCancelled, MessageEvent)
    assert RequestCancelled("a", "the agent has withdrawn it") in events
    assert (await handle.wait()).error is None
    assert factory.processes[0].stdin_bytes.count(b"\n") == 1


@pytest.mark.req("agents.live.Z15", "agents.edge.06")
async def test_an_answer_into_a_broken_pipe_is_not_delivered_and_the_run_has_its_own_error() -> None:
    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        await process.stdin_line(0)
        process.write_output(ASK)
        process.child.stop_reading()
        await go_on.wait()
        process.write_stderr("out of memory\n")
        process.finish_output()
        process.signal_exit(9)

    go_on = asyncio.Event()
    handle, _ = await start_run(play)
    await read_until(handle, ApprovalRequestEvent)
    with pytest.raises(NotDelivered, match="not delivered"):
        await handle.respond("a", YES)
    with pytest.raises(UnknownRequestId):
        await handle.respond("a", YES)
    go_on.set()
    waited = await handle.wait()
    assert isinstance(waited.error, ProcessError)
    assert waited.error.exit_code == 9
    assert "out of memory" in waited.result.error


@pytest.mark.req("agents.edge.06")
async def test_an_answer_that_loses_the_race_with_the_end_is_not_delivered_or_comes_too_late() -> None:
    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        await process.stdin_line(0)
        process.write_output(ASK)
        await gone.wait()
        process.child.die(ExitStatus(code=3))

    gone = asyncio.Event()
    handle, factory = await start_run(play)
    await read_until(handle, ApprovalRequestEvent)
    gone.set()
    while factory.processes[0].exit_status is None:
        await asyncio.sleep(0)
    with pytest.raises((NotDelivered, UnknownRequestId)):
        await handle.respond("a", YES)
    waited = await handle.wait()
    assert isinstance(waited.error, ProcessError)
    assert waited.error.exit_code == 3


@pytest.mark.req("agents.edge.12")
async def test_one_that_does_not_read_its_input_holds_up_nobody_else_and_not_for_ever() -> None:
    async def play(spec: LaunchSpec, process: FakeProcess) -> None:
        process.write_output(ASK)
        process.write_output(say_frame("still talking"))
        await asyncio.Event().wait()

    limits = PATIENT.but(agent_control=0.05, agent_stop=0.05)
    factory = FakeFactory(play, limits=limits, deaf=True, reads=False)
    config = RunnerConfig(shutdown_grace_period=0.05)
    handle = await runner(factory=factory, limits=limits, config=config).execute("go")
    await read_until(handle, ApprovalRequestEvent)
    big = {"command": "x" * 4_000_000}  # more than a pipe takes
    answering = asyncio.ensure_future(handle.respond("a", ApprovalResponse(approved=True, updated_input=big)))
    await read_until(handle, MessageEvent)  # the reader goes on meanwhile
    with pytest.raises(NotDelivered, match="it does not read its input"):
        await answering
    handle.cancel()
    await handle.wait()
    assert factory.processes[0].exit_status is not None


async def test_nobody_answers_in_time_is_a_no() -> None:
    factory = FakeFactory(play_frames(ASK, result()), limits=PATIENT)
    handle = await runner(factory=factory, limits=PATIENT.but(approval=0.05)).execute("go")
    events = [event async for event in handle.events()]
    assert [event for event in events if isinstance(event, RequestCancelled)]
    answer = json.loads(await factory.processes[0].stdin_line(1))
    assert (answer["approved"], answer["reason"]) == (False, "nobody answered within 0.05 s")


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (Allow(), {"approved": True, "input": {"command": "ls"}}),
        (Allow({"command": "pwd"}), {"approved": True, "input": {"command": "pwd"}}),
        (Deny("not today"), {"approved": False, "reason": "not today"}),
    ],
)
async def test_whoever_decides_in_our_words_is_heard_in_the_agents(decision: Any, expected: dict[str, Any]) -> None:
    handle, factory = await start_run(play_frames(ASK, result()))
    await read_until(handle, ApprovalRequestEvent)
    await handle._execution.session.answer("a", decision)
    await handle.wait()
    answer = json.loads(await factory.processes[0].stdin_line(1))
    assert {key: answer[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (Answer({"Which?": "blue"}), {"approved": True, "answer": "blue", "selection": {"Which?": "blue"}}),
        (Answer({}), {"approved": False, "answer": ""}),
        (Deny("no"), {"approved": False}),
    ],
)
async def test_so_are_answers_to_questions(decision: Any, expected: dict[str, Any]) -> None:
    handle, factory = await start_run(play_frames({"type": "question", "id": "q", "text": "Which?"}, result()))
    await read_until(handle, AskRequestEvent)
    await handle._execution.session.answer("q", decision)
    await handle.wait()
    answer = json.loads(await factory.processes[0].stdin_line(1))
    assert {key: answer[key] for key in expected} == expected


async def test_a_transport_that_has_no_answer_is_told_of() -> None:
    class Mute(ToyTransport):
        def encode_control_response(self, *_: Any) -> Any:
            return None

    handle, _ = await start_run(play_frames(ASK, result()), transport=Mute, limits=Limits())
    await read_until(handle, ApprovalRequestEvent)
    with pytest.raises(NotDelivered, match="transport produced nil control response"):
        await handle.respond("a", YES)
    handle.cancel()
    await handle.wait()

"""Claude Code behind the seed's handle: the real driver, with a script for a program (spec agents 5.2 E, C)."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from serai.agents.drivers.claude.options import ClaudeOptions
from serai.agents.drivers.claude.transcripts.files import InvalidPath
from serai.compat.agentboot import (
    AgentNotAvailable,
    ApprovalRequestEvent,
    ApprovalResponse,
    AskRequestEvent,
    AskResponse,
    AssistantMessage,
    Cancelled,
    ClaudeAgent,
    ClaudeDriver,
    DeadlineExceeded,
    ErrorEvent,
    ExecutionOptions,
    FakePrompter,
    Handle,
    MessageEvent,
    NoiseEvent,
    NoTerminalResult,
    OutputFormat,
    PermissionResult,
    ProcessError,
    ProtocolError,
    RequestCancelled,
    ResultError,
    ResultMessage,
    RunnerConfig,
    SessionAgent,
    StreamEvent,
    TurnCompleted,
    UnknownRequestId,
    Waited,
    run_with_prompter,
)
from serai.compat.agentboot.claude_script import ClaudeScript, ClaudeScriptFactory
from serai.compat.agentboot.session_agents import build_options
from serai.errors import ExitStatus, NoAgent
from tests.support.agentboot.toy_agent import PATIENT, Store, collect_events

QUESTION: dict[str, Any] = {
    "questions": [
        {
            "question": "Which colour?",
            "header": "Colour",
            "multiSelect": False,
            "options": [{"label": "red", "description": ""}, {"label": "blue", "description": ""}],
        }
    ]
}
SESSION = "0a0a0a0a-0000-4000-8000-000000000001"


class Stdin:
    """The lines that a script was sent."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def __call__(self, line: bytes) -> None:
        self.lines.append(json.loads(line))

    def answers(self) -> list[dict[str, Any]]:
        return [line["response"]["response"] for line in self.lines if line["type"] == "control_response"]


def texts(events: list[StreamEvent]) -> list[str]:
    return [event.raw.text for event in events if isinstance(event, MessageEvent) and isinstance(event.raw, AssistantMessage)]


async def run_script(
    folder: Path, script: ClaudeScript, answer: ApprovalResponse | None = None, opts: ExecutionOptions | None = None, **made: Any
) -> tuple[list[StreamEvent], Waited, Stdin]:
    stdin = Stdin()
    agent = ClaudeScriptFactory(script, observe_stdin=stdin).agent(folder, limits=PATIENT, **made)
    handle = await agent.execute("go", opts or ExecutionOptions(project_path=str(folder)))
    return await collect_events(handle, answer), await handle.wait(), stdin


@pytest.mark.req("agents.scenario.E1")
async def test_a_plain_run_tells_its_messages_and_keeps_its_frames(tmp_path: Path) -> None:
    events, waited, _ = await run_script(tmp_path, ClaudeScript().system().assistant_text("hello").result("hello"))
    assert texts(events) == ["hello"]
    (told,) = [event.raw for event in events if isinstance(event, MessageEvent) and isinstance(event.raw, ResultMessage)]
    assert (told.status, told.message, told.is_success()) == ("success", "hello", True)
    assert waited.error is None
    assert [event for event in events if isinstance(event, ErrorEvent)] == []
    frames = [event.type for event in waited.result.events if event.type != "control_response"]
    assert frames == ["system", "assistant", "result"]
    assert (waited.result.text_output(), waited.result.answer(), waited.result.get_cost_usd()) == ("hello", "hello", 0.01)
    assert waited.result.get_session_id() == ClaudeScript().session_id
    assert isinstance(events[-1], TurnCompleted)


@pytest.mark.req("agents.scenario.E2")
async def test_after_a_permission_was_given_the_run_goes_on(tmp_path: Path) -> None:
    script = ClaudeScript().system().assistant_text("may I?").permission_request("r1", "Bash", {"command": "ls"})
    events, waited, stdin = await run_script(tmp_path, script.assistant_text("thanks").result(), ApprovalResponse(approved=True))
    assert texts(events) == ["may I?", "thanks"]
    assert stdin.answers() == [{"behavior": "allow", "updatedInput": {"command": "ls"}}]
    assert waited.error is None
    (asked,) = [event for event in events if isinstance(event, ApprovalRequestEvent)]
    assert (asked.id, asked.tool_name, asked.input, asked.tool_use_id) == ("r1", "Bash", {"command": "ls"}, "toolu_r1")


@pytest.mark.req("agents.scenario.E3")
async def test_a_deny_comes_after_the_prompt(tmp_path: Path) -> None:
    script = ClaudeScript().system().permission_request("r1", "Bash", {"command": "rm"}).result()
    _, waited, stdin = await run_script(tmp_path, script, ApprovalResponse(approved=False, reason="not today"))
    kinds = [line["type"] for line in stdin.lines]
    assert kinds == ["control_request", "user", "control_response"]
    assert stdin.lines[1]["message"]["content"] == "go"
    assert stdin.answers() == [{"behavior": "deny", "message": "not today"}]
    assert waited.error is None


@pytest.mark.req("agents.edge.20", "agents.rule.18")
async def test_what_the_caller_changes_is_what_claude_gets_and_no_stamp_is_in_it(tmp_path: Path) -> None:
    original = {"command": "ls", "description": "list", "run_in_background": False}
    script = ClaudeScript().system().permission_request("r1", "Bash", original).permission_request("r2", "Bash", original).result()
    stdin = Stdin()
    agent = ClaudeScriptFactory(script, observe_stdin=stdin).agent(tmp_path, limits=PATIENT)
    opts = ExecutionOptions(project_path=str(tmp_path), chat_id="c", platform="p", bot_uuid="b")
    handle = await agent.execute("go", opts)
    async for event in handle.events():
        if isinstance(event, ApprovalRequestEvent):
            assert (event.chat_id, event.platform, event.bot_uuid) == ("c", "p", "b")
            assert event.input == original
            event.input["command"] = "rm"
            updated = {**original, "command": "pwd"} if event.id == "r1" else None
            await handle.respond(event.id, ApprovalResponse(approved=True, updated_input=updated))
    assert [answer["updatedInput"] for answer in stdin.answers()] == [{**original, "command": "pwd"}, original]
    await handle.wait()


async def test_a_question_is_answered_by_the_text_of_it(tmp_path: Path) -> None:
    script = ClaudeScript().system().ask_question("q1", "t1", QUESTION).result()
    stdin = Stdin()
    handle = await ClaudeScriptFactory(script, observe_stdin=stdin).agent(tmp_path, limits=PATIENT).execute("go")
    async for event in handle.events():
        if isinstance(event, AskRequestEvent):
            assert (event.tool_name, event.call_id, event.input, event.message) == (
                "AskUserQuestion",
                "t1",
                QUESTION,
                "Which colour?",
            )
            with pytest.raises(TypeError):
                await handle.respond("q1", ApprovalResponse(approved=True))
            await handle.respond("q1", AskResponse(approved=True, selection={"Which colour?": "blue"}))
    assert stdin.answers() == [{"behavior": "allow", "updatedInput": {**QUESTION, "answers": {"Which colour?": "blue"}}}]
    assert (await handle.wait()).error is None


async def test_who_waits_and_does_not_read_approves_nothing(tmp_path: Path) -> None:
    script = ClaudeScript().system().permission_request("r1", "Bash", {"command": "ls"}).result()
    stdin = Stdin()
    handle = await ClaudeScriptFactory(script, observe_stdin=stdin).agent(tmp_path, limits=PATIENT).execute("go")
    assert (await handle.wait()).error is None
    assert stdin.answers()[0]["behavior"] == "deny"


@pytest.mark.req("agents.scenario.C1")
async def test_two_runs_of_one_agent_keep_their_own_stamps(tmp_path: Path) -> None:
    may = asyncio.Event()

    async def wait(_: object) -> None:
        await may.wait()

    first = ClaudeScript(session_id=SESSION).system().then(wait).permission_request("r", "Bash", {"command": "ls"}).result("first")
    second = ClaudeScript().system().permission_request("r", "Bash", {"command": "ls"}).result("second")
    agent = ClaudeScriptFactory(first, second).agent(tmp_path, limits=PATIENT)
    stamps: list[dict[str, Any]] = [{"chat_id": f"c{n}", "platform": f"p{n}", "bot_uuid": f"b{n}"} for n in (1, 2)]
    handles = [await agent.execute("go", ExecutionOptions(project_path=str(tmp_path), **given)) for given in stamps]

    async def asked(handle: Handle) -> ApprovalRequestEvent:
        async for event in handle.events():
            if isinstance(event, ApprovalRequestEvent):
                return event
        raise AssertionError

    requests = [await asked(handles[1])]
    may.set()
    requests.insert(0, await asked(handles[0]))
    for request, given, handle, text in zip(requests, stamps, handles, ("first", "second"), strict=True):
        assert {name: getattr(request, name) for name in given} == given
        assert request.input == {"command": "ls"}
        await handle.respond("r", ApprovalResponse(approved=True))
        assert (await handle.wait()).unwrap().answer() == text
    assert requests[0].session_id != requests[1].session_id


async def test_a_request_that_claude_withdraws_is_unknown(tmp_path: Path) -> None:
    seen = asyncio.Event()

    async def withdraw(player: Any) -> None:
        request = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}, "tool_use_id": "t"}
        player.send({"type": "control_request", "request_id": "r1", "request": request})
        await seen.wait()
        player.send({"type": "control_cancel_request", "request_id": "r1"})

    script = ClaudeScript().system().then(withdraw).assistant_text("never mind").result()
    handle = await ClaudeScriptFactory(script).agent(tmp_path, limits=PATIENT).execute("go")
    withdrawn = []
    async for event in handle.events():
        if isinstance(event, ApprovalRequestEvent):
            seen.set()
        elif isinstance(event, RequestCancelled):
            withdrawn.append(event.id)
            with pytest.raises(UnknownRequestId):
                await handle.respond("r1", ApprovalResponse(approved=True))
    assert withdrawn == ["r1"]


# -- when a run is over


def task_start(id: str, kind: str = "local_agent") -> dict[str, Any]:
    return {"type": "system", "subtype": "task_started", "task_id": id, "task_type": kind, "tool_use_id": "t", "description": "d"}


def task_end(id: str) -> dict[str, Any]:
    return {
        "type": "system",
        "subtype": "task_notification",
        "task_id": id,
        "status": "completed",
        "summary": "",
        "output_file": "",
    }


def state(name: str) -> dict[str, Any]:
    return {"type": "system", "subtype": "session_state_changed", "state": name}


async def _pause(_: object) -> None:
    await asyncio.sleep(0.05)


@pytest.mark.req("agents.rule.74")
@pytest.mark.parametrize("kind", ["local_agent", "local_workflow"])
async def test_a_run_is_not_over_while_a_sub_agent_works(tmp_path: Path, kind: str) -> None:
    script = ClaudeScript().system().raw(task_start("k1", kind)).assistant_text("it works").result("first").then(_pause)
    script.raw(task_end("k1")).system().permission_request("r1", "Bash", {"command": "ls"})
    script.assistant_text("it is done").result("second", origin={"kind": "task-notification"})
    events, waited, stdin = await run_script(tmp_path, script, ApprovalResponse(approved=True))
    assert texts(events) == ["it works", "it is done"]
    assert stdin.answers()[0]["behavior"] == "allow"  # its request was still answered
    assert len([event for event in events if isinstance(event, TurnCompleted)]) == 2
    assert waited.error is None


@pytest.mark.req("agents.rule.74")
async def test_a_shell_in_the_background_is_not_waited_for(tmp_path: Path) -> None:
    script = ClaudeScript().system().raw(task_start("k1", "local_bash")).result("first")
    _, waited, _ = await run_script(tmp_path, script)
    assert waited.unwrap().answer() == "first"


@pytest.mark.req("agents.rule.74")
async def test_a_run_is_not_over_before_it_is_idle_where_that_is_told(tmp_path: Path) -> None:
    script = ClaudeScript().system().raw(state("running")).assistant_text("one").result("first").then(_pause)
    script.system().assistant_text("two").result("second", origin={"kind": "task-notification"}).raw(state("idle"))
    events, waited, _ = await run_script(tmp_path, script)
    assert texts(events) == ["one", "two"]
    assert waited.error is None


@pytest.mark.req("agents.rule.74")
async def test_a_run_is_not_over_while_turns_are_queued(tmp_path: Path) -> None:
    script = ClaudeScript().system().assistant_text("one").result("first", queued_turn_count=1).then(_pause)
    script.system().assistant_text("two").result("second", queued_turn_count=0, origin={"kind": "task-notification"})
    events, waited, _ = await run_script(tmp_path, script)
    assert texts(events) == ["one", "two"]
    assert waited.error is None


async def test_to_cancel_it_when_it_has_its_result_ends_what_it_does_on_the_side(tmp_path: Path) -> None:
    factory = ClaudeScriptFactory(ClaudeScript().system().raw(task_start("k1")).assistant_text("it works").result("first"))
    handle = await factory.agent(tmp_path, limits=PATIENT).execute("go", ExecutionOptions(project_path=str(tmp_path)))
    async for event in handle.events():
        if isinstance(event, TurnCompleted):
            handle.cancel()
    waited = await handle.wait()
    assert waited.error is None
    assert waited.result.answer() == "first"
    assert factory.processes[-1].done.is_set()


async def test_what_it_does_on_the_side_has_the_time_of_the_run(tmp_path: Path) -> None:
    script = ClaudeScript().system().raw(task_start("k1")).assistant_text("it works").result("first")
    _, waited, _ = await run_script(tmp_path, script, opts=ExecutionOptions(project_path=str(tmp_path), timeout=1.0))
    assert waited.error is None
    assert waited.result.answer() == "first"


# -- how it fails


async def test_a_no_that_ends_the_turn_is_no_success(tmp_path: Path) -> None:
    script = ClaudeScript().system().permission_request("r1", "Bash", {"command": "rm"})
    script.result("aborted", ok=False, terminal_reason="aborted_tools")
    _, waited, stdin = await run_script(tmp_path, script, ApprovalResponse(approved=False, reason="stop it", interrupt=True))
    assert stdin.answers() == [{"behavior": "deny", "message": "stop it", "interrupt": True}]
    assert isinstance(waited.error, ResultError)
    assert (waited.error.subtype, waited.error.details) == ("permission_denied", ("stop it",))
    assert not waited.result.is_success()


async def test_a_result_that_is_an_error(tmp_path: Path) -> None:
    store = Store()
    script = ClaudeScript().system().result("too many turns", ok=False, subtype="error_max_turns")
    opts = ExecutionOptions(project_path=str(tmp_path), store=store, session_id=SESSION)
    events, waited, _ = await run_script(tmp_path, script, opts=opts)
    assert isinstance(waited.error, ResultError)
    assert (waited.error.subtype, waited.error.details) == ("error_max_turns", ("too many turns",))
    assert not waited.result.is_success()
    assert [event for event in events if isinstance(event, ErrorEvent)] == []
    assert store.calls == [("running", SESSION), ("failed", SESSION, waited.result.error)]


async def test_a_program_that_ends_in_the_middle(tmp_path: Path) -> None:
    async def crash(player: Any) -> None:
        player._process.write_stderr("out of memory\n")
        player._process.child.die(ExitStatus(code=7))

    script = ClaudeScript().system().assistant_text("hello").then(crash)
    events, waited, _ = await run_script(tmp_path, script)
    assert isinstance(waited.error, ProcessError)
    assert (waited.error.exit_code, waited.result.exit_code) == (7, 7)
    assert "out of memory" in waited.result.error
    assert [event.err for event in events if isinstance(event, ErrorEvent)] == [waited.error]


async def test_a_program_that_ends_well_and_gives_no_result(tmp_path: Path) -> None:
    async def leave(player: Any) -> None:
        player._process.child.die(ExitStatus(code=0))

    _, waited, _ = await run_script(tmp_path, ClaudeScript().system().then(leave))
    assert isinstance(waited.error, ProtocolError)
    assert isinstance(waited.error.cause, NoTerminalResult)


async def test_noise_is_told_and_counted(tmp_path: Path) -> None:
    async def grumble(player: Any) -> None:
        player._process.write_output("debugger attached\n")

    events, waited, _ = await run_script(tmp_path, ClaudeScript().system().then(grumble).result())
    assert [event.line for event in events if isinstance(event, NoiseEvent)] == [b"debugger attached"]
    assert waited.unwrap().metadata["noise"] == 1


async def test_to_cancel_it_and_its_time_out(tmp_path: Path) -> None:
    async def hang(_: object) -> None:
        await asyncio.Event().wait()

    limits = PATIENT.but(interrupt=0.1, agent_stop=0.1)
    factory = ClaudeScriptFactory(ClaudeScript().system().then(hang))
    agent = factory.agent(tmp_path, limits=limits, config=RunnerConfig(shutdown_grace_period=0.1))
    handle = await agent.execute("go", ExecutionOptions(project_path=str(tmp_path)))
    handle.cancel()
    assert isinstance((await handle.wait()).error, Cancelled)
    handle = await agent.execute("go", ExecutionOptions(project_path=str(tmp_path), timeout=0.05))
    assert handle._execution.session.limits.agent_turn is None  # one of the two watches its time
    assert isinstance((await handle.wait()).error, DeadlineExceeded)
    assert all(process.done.is_set() for process in factory.processes)


# -- how it is started


@pytest.mark.req("agents.edge.22")
@pytest.mark.parametrize("prompt", ["-rf /", "/clear", "--resume=x", "x" * 1_000_000])
async def test_a_prompt_goes_over_stdin_and_never_on_the_command_line(tmp_path: Path, prompt: str) -> None:
    stdin = Stdin()
    factory = ClaudeScriptFactory(ClaudeScript().system().result(), observe_stdin=stdin)
    handle = await factory.agent(tmp_path, limits=PATIENT).execute(prompt, ExecutionOptions(project_path=str(tmp_path)))
    assert (await handle.wait()).error is None
    assert not any(prompt in word for spec in factory.specs for word in spec.command)
    assert [line["message"]["content"] for line in stdin.lines if line["type"] == "user"] == [prompt]


@pytest.mark.req("agents.edge.22")
@pytest.mark.parametrize("prompt", ["", " \n\t"])
async def test_an_empty_prompt_starts_nothing(tmp_path: Path, prompt: str) -> None:
    factory = ClaudeScriptFactory(ClaudeScript())
    with pytest.raises(ValueError, match="an empty prompt asks nothing"):
        await factory.agent(tmp_path).execute(prompt, ExecutionOptions())
    assert factory.specs == []


@pytest.mark.req("agents.edge.23")
async def test_a_folder_that_is_none_starts_nothing(tmp_path: Path) -> None:
    factory = ClaudeScriptFactory(ClaudeScript())
    with pytest.raises(InvalidPath, match="it does not exist"):
        await factory.agent(tmp_path).execute("go", ExecutionOptions(project_path=str(tmp_path / "missing")))
    assert factory.specs == []


async def test_a_program_that_is_missing_is_told(tmp_path: Path) -> None:
    agent = ClaudeAgent(ClaudeOptions(path=str(tmp_path / "missing")), environ={"PATH": str(tmp_path), "HOME": str(tmp_path)})
    assert not agent.is_available()
    store = Store()
    with pytest.raises(NoAgent, match="missing") as raised:
        await agent.execute("go", ExecutionOptions(project_path=str(tmp_path), store=store, session_id=SESSION))
    assert "install" in raised.value.hint
    assert store.calls == [("failed", SESSION, str(raised.value))]
    with pytest.raises(AgentNotAvailable):
        ClaudeDriver(ClaudeOptions(path=str(tmp_path / "missing")), environ={}).prepare("go", ExecutionOptions())


async def test_in_text_format_it_prints_its_answer(tmp_path: Path) -> None:
    class Printing(ClaudeScriptFactory):
        async def _start(self, spec: Any, process: Any) -> None:
            if "--version" in spec.command:
                await super()._start(spec, process)
                return
            process.write_output(b"the answer\n")
            process.finish_output()
            process.signal_exit()

    factory = Printing(ClaudeScript())
    agent = factory.agent(tmp_path, limits=PATIENT)
    agent.set_default_format(OutputFormat.TEXT)
    assert agent.get_default_format() == OutputFormat.TEXT
    handle = await agent.execute("-what?", ExecutionOptions(project_path=str(tmp_path)))
    waited = await handle.wait()
    assert waited.error is None
    assert waited.result.output.strip() == "the answer"
    assert (waited.result.events, waited.result.metadata.get("noise")) == ([], None)
    assert factory.specs[-1].command[-2:] == ["--", "-what?"]


@pytest.mark.req("agents.rule.03")
def test_to_prepare_starts_nothing_and_says_the_same_each_time(tmp_path: Path) -> None:
    program = tmp_path / "claude"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    program.chmod(0o700)
    environ = {"PATH": f"{tmp_path}{os.pathsep}{os.defpath}", "HOME": str(tmp_path), "ANTHROPIC_API_KEY": "k"}
    driver = ClaudeDriver(environ=environ)
    opts = ExecutionOptions(
        project_path=str(tmp_path), session_id=SESSION, resume=True, model="m", max_turns=3, allowed_tools=["Read", "Bash"],
        mcp_servers={"a": {"command": "x"}}, append_system_prompt="be brief", permission_mode="plan", env=["A=b"], chat_id="secret",
    )  # fmt: skip
    specs = [driver.prepare("go", opts) for _ in range(3)]
    assert specs[0] == specs[1] == specs[2]
    assert driver.is_available()
    assert driver.type() == "claude"
    assert not (tmp_path / "started").exists()
    spec = specs[0]
    assert spec.command[0] == str(program)
    assert {f"--resume={SESSION}", "--model=m", "--max-turns=3", "--permission-mode=plan"} <= set(spec.command)
    assert spec.work_dir == str(tmp_path)
    assert spec.initial_input == ({"type": "user", "message": {"role": "user", "content": "go"}},)
    assert isinstance(spec.env, dict)
    assert (spec.env["A"], spec.env["ANTHROPIC_API_KEY"]) == ("b", "k")
    assert not any("secret" in word for word in [*spec.command, *spec.env.values()])
    assert driver.prepare("go", ExecutionOptions(output_format=OutputFormat.TEXT)).command[-1] == "go"


def test_every_option_of_the_seed_means_something_to_claude() -> None:
    opts = ExecutionOptions(
        env=["A=1"], session_id=SESSION, resume=True, chat_id="c", platform="p", bot_uuid="b", model="m", fallback_model="f",
        max_turns=2, allowed_tools=("Read",), disallowed_tools=("Bash",), mcp_servers={"s": {}}, strict_mcp_config=True,
        custom_system_prompt="x", append_system_prompt="y", permission_mode="plan", settings_path="/s",
        permission_prompt_tool="stdio",
    )  # fmt: skip
    options = build_options(opts, ClaudeOptions(model="other", env={"A": "0", "B": "2"}))
    assert options == ClaudeOptions(
        env={"A": "1", "B": "2"}, session_id=SESSION, resume=True, model="m", fallback_model="f", max_turns=2,
        allowed_tools=("Read",), disallowed_tools=("Bash",), mcp_servers={"s": {}}, strict_mcp=True, system_prompt="x",
        append_system_prompt="y", permission_mode="plan", settings="/s", permission_prompt_tool="stdio",
        metadata={"chat_id": "c", "platform": "p", "bot_uuid": "b"},
    )  # fmt: skip
    assert build_options(ExecutionOptions(), ClaudeOptions(model="kept")) == ClaudeOptions(model="kept")


async def test_a_prompter_drives_it(tmp_path: Path) -> None:
    script = (
        ClaudeScript().system().permission_request("r1", "Bash", {"command": "ls"}).ask_question("q1", "t1", QUESTION).result("bye")
    )
    stdin = Stdin()
    handle = await ClaudeScriptFactory(script, observe_stdin=stdin).agent(tmp_path, limits=PATIENT).execute("go")
    prompter = FakePrompter([PermissionResult(approved=False, reason="no")])
    waited = await run_with_prompter(handle, prompter)
    assert waited.unwrap().answer() == "bye"
    assert [answer["behavior"] for answer in stdin.answers()] == ["deny", "deny"]


async def test_any_agent_of_serais_is_one_of_the_seeds(tmp_path: Path) -> None:
    agent = SessionAgent("resident", model="parrot", environ={"HOME": str(tmp_path), "PATH": os.defpath})
    assert (agent.type(), agent.is_available()) == ("resident", True)
    assert not SessionAgent("nobody").is_available()
    handle = await agent.execute("hello there", ExecutionOptions(project_path=str(tmp_path)))
    events = await collect_events(handle)
    waited = await handle.wait()
    assert waited.error is None
    assert texts(events)
    assert "".join(texts(events)) == waited.result.text_output()


async def test_the_mock_agent_is_one_too(tmp_path: Path) -> None:
    handle = await SessionAgent("mock").execute("hello", ExecutionOptions(session_id=SESSION, chat_id="c"))
    events = await collect_events(handle, ApprovalResponse(approved=True))
    waited = await handle.wait()
    assert waited.error is None
    kinds = [event.type for event in waited.result.events]
    assert kinds[0] == "init"
    assert kinds[-1] == "result"
    asked = [event for event in events if isinstance(event, ApprovalRequestEvent)]
    assert kinds.count("permission_request") == kinds.count("permission_result") == len(asked) == 5
    assert {event.chat_id for event in asked} == {"c"}
    assert texts(events)[0] == "[Mock Step 1/5] Processing: hello"

"""The service: agents by their type, runs, and the sessions that a reader knows (spec agents 1.2, 5.2 V)."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serai.agents.drivers.claude.transcripts.files import SessionNotFound
from serai.agents.drivers.claude.transcripts.reader import Transcripts
from serai.compat.agentboot import (
    SECOND,
    AgentBoot,
    AgentNotRegistered,
    AgentNotSupported,
    AgentService,
    ApprovalRequestEvent,
    ApprovalResponse,
    Config,
    ControlledHandle,
    ExecutionHandle,
    ExecutionOptions,
    FakeFactory,
    FakePrompter,
    InvalidLaunch,
    MessageEvent,
    OutputFormat,
    ReaderNotConfigured,
    Result,
    RunnerConfig,
    RunRequest,
    SessionInUse,
    SessionUnknown,
    Waited,
    default_config,
    new,
    new_claude_store,
    new_controlled_handle,
)
from serai.limits import Limits
from tests.support.agentboot.toy_agent import Toy, ToyTransport, play_frames, result, runner, say_frame


class Agent:
    """Remembers what it is to do; tells one message."""

    def __init__(self, failure: Exception | None = None, type: str = "toy") -> None:
        self.asked: list[tuple[str, ExecutionOptions]] = []
        self.result = Result(output="the very one")
        self.format = OutputFormat.STREAM_JSON
        self._failure = failure
        self._type = type
        self.over = asyncio.Event()

    async def execute(self, prompt: str, opts: ExecutionOptions) -> ExecutionHandle:
        self.asked.append((prompt, opts))
        if self._failure is not None:
            raise self._failure
        handle, controls = new_controlled_handle(5, lambda *_: None, self.over.set, self._wait)
        await controls.emit(MessageEvent("working"))
        controls.close()
        return handle

    async def _wait(self) -> Waited:
        await self.over.wait()
        return Waited(self.result)

    def is_available(self) -> bool:
        return True

    def type(self) -> str:
        return self._type

    def set_default_format(self, format: OutputFormat) -> None:
        self.format = format

    def get_default_format(self) -> OutputFormat:
        return self.format


class Metadata(msgspec.Struct):
    session_id: str
    project_path: str


class Reader:
    """Answers with what it was asked."""

    def list_projects(self) -> Any:
        return ["a project"]

    def get_recent_sessions(self, project: Any, limit: int) -> Any:
        return ("sessions", project, limit)

    def get_session(self, id: str) -> Any:
        if id == "missing":
            raise SessionNotFound(id)
        return Metadata(id, "/where/it/was")

    def get_session_summary(self, id: str, first_n: int, last_m: int) -> Any:
        return ("summary", id, first_n, last_m)


def service(*agents: Agent, **given: Any) -> AgentService:
    made = AgentService(Config(default_agent=agents[0].type() if agents else ""), **given)
    for agent in agents:
        made.register_agent(agent.type(), agent)
    return made


# -- configuration


@pytest.mark.req("agents.scenario.V1", "agents.rule.43")
@pytest.mark.parametrize("given", [None, Config(), Config(stream_buffer_size=-1, shutdown_grace_period=-5)])
def test_an_empty_configuration_has_its_defaults(given: Config | None) -> None:
    config = AgentService(given).get_config()
    assert (config.default_agent, config.default_format) == ("claude", OutputFormat.STREAM_JSON)
    assert (config.stream_buffer_size, config.shutdown_grace_period) == (100, 5 * SECOND)
    assert config.default_execution_timeout == 3600 * SECOND
    assert config == default_config()


@pytest.mark.req("agents.rule.43")
def test_a_runners_buffer_and_grace_of_0_or_less_are_the_defaults() -> None:
    for buffer, grace in ((0, 0.0), (-3, -1.0)):
        limits = RunnerConfig(stream_buffer_size=buffer, shutdown_grace_period=grace).build_limits(Limits())
        assert (limits.waiting, limits.stop_polite) == (100, 5.0)
    limits = RunnerConfig(stream_buffer_size=7, shutdown_grace_period=1.5).build_limits(Limits())
    assert (limits.waiting, limits.stop_polite) == (7, 1.5)


@pytest.mark.req("agents.rule.01")
def test_the_configuration_that_is_given_out_is_a_copy() -> None:
    made = AgentService(Config(stream_buffer_size=7))
    given = made.get_config()
    given.stream_buffer_size = 1
    given.default_agent = "other"
    assert made.get_config().stream_buffer_size == 7
    assert made.default_agent == "claude"


# -- the registry


@pytest.mark.req("agents.scenario.V6")
def test_what_is_registered_is_listed_in_one_order() -> None:
    names = ["pi", "claude", "mock", "codex"]
    lists = []
    for order in (names, names[::-1]):
        made = AgentService()
        for name in order:
            made.register_agent(name, Agent(type=name))
        lists.append(made.list_agents())
    assert lists == [sorted(names)] * 2
    first, second = Agent(), Agent()
    made = AgentService()
    made.register_agent("pi", first)
    made.register_agent("pi", second)
    assert made.get_agent("pi") is second
    assert made.list_agents() == ["pi"]


@pytest.mark.req("agents.scenario.V7")
async def test_an_agent_that_is_not_registered_cannot_be_executed() -> None:
    made = service(Agent())
    with pytest.raises(AgentNotSupported, match="agent type not supported: codex") as raised:
        await made.execute("codex", "/", "go")
    assert raised.value.hint == "registered: toy"
    with pytest.raises(AgentNotSupported):
        made.must_get_agent("codex")


@pytest.mark.req("agents.scenario.V8")
async def test_the_default_is_what_an_empty_type_means() -> None:
    one, two = Agent(type="one"), Agent(type="two")
    made = service(one, two)
    assert made.get_default_agent() is one
    made.set_default_agent("two")
    assert made.get_default_agent() is two
    handle = await made.execute("", "", "go")
    assert [prompt for prompt, _ in two.asked] == ["go"]
    handle.cancel()
    await handle.wait()


@pytest.mark.req("agents.scenario.V9")
def test_a_default_has_to_be_registered() -> None:
    made = service(Agent())
    with pytest.raises(AgentNotRegistered, match="agent type not registered: codex"):
        made.set_default_agent("codex")
    assert made.default_agent == "toy"


@pytest.mark.req("agents.scenario.V10")
def test_many_threads_that_set_and_get_the_default_see_one_of_the_two() -> None:
    made = service(Agent(type="one"), Agent(type="two"))
    seen: set[str] = set()

    def work(number: int) -> None:
        for turn in range(100):
            made.set_default_agent("one" if (number + turn) % 2 else "two")
            seen.add(made.get_default_agent().type())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen <= {"one", "two"}
    assert seen


# -- runs


@pytest.mark.req("agents.scenario.V11")
async def test_a_run_hands_on_what_it_is_given_and_gives_the_very_result() -> None:
    agent = Agent()
    agent.over.set()
    messages: list[Any] = []
    request = RunRequest(project_path="/a/b", prompt="  do it\n", opts=ExecutionOptions(model="m"))
    waited = await service(agent).run(request, FakePrompter(), messages.append)
    ((prompt, opts),) = agent.asked
    assert (prompt, opts.project_path, opts.model) == ("  do it\n", "/a/b", "m")
    assert (opts.timeout, opts.output_format) == (3600.0, OutputFormat.STREAM_JSON)
    assert messages == ["working"]
    assert waited.result is agent.result


@pytest.mark.req("agents.scenario.V12")
async def test_without_an_agent_a_run_starts_nothing() -> None:
    factory = FakeFactory()
    made = AgentService()
    made.register_agent("toy", runner(factory=factory))
    with pytest.raises(AgentNotSupported, match="agent type not supported: claude"):
        await made.run(RunRequest(prompt="go"), FakePrompter())
    assert factory.specs == []


@pytest.mark.req("agents.scenario.V13")
async def test_what_an_agent_raises_reaches_the_caller_as_it_is() -> None:
    failure = RuntimeError("the moon is full")
    with pytest.raises(RuntimeError, match=r"^the moon is full$") as raised:
        await service(Agent(failure)).run(RunRequest(prompt="go"), FakePrompter())
    assert raised.value is failure


async def test_a_run_through_a_runner(tmp_path: Path) -> None:
    made = AgentService(Config(default_agent="toy"))
    factory = FakeFactory(play_frames(say_frame("hello"), {"type": "ask", "id": "a"}, result("bye")))
    made.register_agent("toy", runner(factory=factory))
    messages: list[Any] = []
    request = RunRequest(project_path=str(tmp_path), prompt="go")
    waited = await made.run(request, FakePrompter(default=True), messages.append)
    assert waited.unwrap().answer() == "bye"
    assert messages == ["hello"]
    assert factory.specs[0].work_dir == str(tmp_path)
    assert b'"approved":true' in await factory.processes[0].stdin_line(1)


@pytest.mark.req("agents.edge.24")
async def test_a_session_is_worked_on_by_one_run_at_a_time() -> None:
    agent = Agent()
    made = service(agent)
    first = await made.execute("", "", "go", made.resume_session("s1"))
    with pytest.raises(SessionInUse, match="another run works on this session"):
        await made.execute("", "", "go", made.resume_session("s1"))
    other = await made.execute("", "", "go", made.resume_session("s2"))
    assert len(agent.asked) == 2
    agent.over.set()
    for handle in (first, other):
        await handle.wait()
    again = await made.execute("", "", "go", made.resume_session("s1"))
    await again.wait()
    assert len(agent.asked) == 3


@pytest.mark.req("agents.edge.24")
async def test_a_run_that_could_not_start_leaves_its_session_free() -> None:
    agent = Agent(RuntimeError("no"))
    made = service(agent)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no"):
            await made.execute("", "", "go", made.resume_session("s1"))


@pytest.mark.req("agents.edge.24")
async def test_that_a_run_is_waited_for_by_the_service_denies_nothing() -> None:
    factory = FakeFactory(play_frames({"type": "ask", "id": "a"}, result()))
    made = AgentService(Config(default_agent="toy"))
    made.register_agent("toy", runner(factory=factory))
    handle = await made.execute("", "", "go", made.resume_session("s1"))

    events = handle.events()
    while not isinstance(await anext(events), ApprovalRequestEvent):
        pass
    await handle.respond("a", ApprovalResponse(approved=True))
    assert (await handle.wait()).error is None
    assert b'"approved":true' in await factory.processes[0].stdin_line(1)


def test_options_to_resume() -> None:
    opts = AgentService().resume_session("s1")
    assert (opts.session_id, opts.resume) == ("s1", True)


# -- sessions


@pytest.mark.req("agents.scenario.V2", "agents.scenario.V3")
async def test_without_a_reader_sessions_are_an_error_and_not_an_empty_list() -> None:
    made = AgentService()
    for asked in (
        made.list_sessions("/"),
        made.list_recent_sessions("/", 3),
        made.list_projects(),
        made.get_session("s1"),
        made.get_session_summary("s1", 1, 1),
    ):
        with pytest.raises(ReaderNotConfigured, match="session reader not configured"):
            await asked


@pytest.mark.req("agents.scenario.V4")
async def test_a_reader_is_asked_with_the_same_arguments() -> None:
    made: Any = AgentService(reader=Reader())
    assert await made.list_projects() == ["a project"]
    assert await made.list_sessions("/p", 3) == ("sessions", "/p", 3)
    assert await made.list_recent_sessions("/p", -1) == ("sessions", "/p", 0)
    assert await made.get_session("s1") == Metadata("s1", "/where/it/was")
    assert await made.get_session_summary("s1", 2, 4) == ("summary", "s1", 2, 4)


@pytest.mark.req("agents.scenario.V5")
def test_none_is_no_reader() -> None:
    with pytest.raises(TypeError, match="not None"):
        AgentService(reader=None)


@pytest.mark.req("agents.rule.02")
async def test_a_session_goes_on_where_it_was() -> None:
    agent = Agent()
    agent.over.set()
    made = service(agent, reader=Reader())
    await (await made.execute_session("s1", "go on", ExecutionOptions(model="m"))).wait()
    ((prompt, opts),) = agent.asked
    assert (prompt, opts.project_path, opts.session_id, opts.resume, opts.model) == ("go on", "/where/it/was", "s1", True, "m")
    with pytest.raises(SessionUnknown, match="session missing not found"):
        await made.execute_session("missing", "go on")
    with pytest.raises(AgentNotSupported):
        await made.execute_session_with_agent("codex", "s1", "go on")
    assert len(agent.asked) == 1


async def test_the_seeds_own_form_reads_the_folder_of_its_configuration(tmp_path: Path) -> None:
    boot = new(Config(claude_projects_dir=str(tmp_path)))
    assert isinstance(boot, AgentBoot)
    assert await boot.list_recent_sessions("/nowhere", 5) == []
    assert isinstance(new_claude_store(str(tmp_path)), Transcripts)
    assert new_claude_store(str(tmp_path)).root == str(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InvalidLaunch, match="the folder of Claude's projects is none"):
        new(Config(claude_projects_dir=str(tmp_path / "file")))
    with pytest.raises(ReaderNotConfigured):
        await AgentBoot().list_projects()


def test_the_toys_are_what_the_seed_calls_so() -> None:
    from serai.compat.agentboot import Agent as AgentRole
    from serai.compat.agentboot import AgentDriver, AgentTransport

    agent: AgentRole = Agent()
    driver: AgentDriver = Toy()
    transport: AgentTransport = ToyTransport()
    assert (agent.type(), driver.type()) == ("toy", "toy")
    assert transport.accumulate_message is not None
    assert issubclass(ControlledHandle, object)

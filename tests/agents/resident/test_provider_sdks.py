"""The resident over the official SDKs, against the fakes of their APIs: real sockets, real streams, real faults.

The fakes refuse what the real APIs refuse, such as a call without its result: that every next prompt is answered proves the repair.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import serai
from serai.agents.models.api_provider import ToolNameMap
from serai.agents.session import Session
from serai.agents.turn import Turn
from serai.errors import ModelFailed, TurnLimit
from serai.limits import Limits
from serai.model.approvals import Approval
from serai.model.events import Event, Message, Retrying, Text, ToolEnded, ToolStarted, TurnEnded
from serai.model.tools import ToolSpec
from serai.testing.models.reply import Fault
from serai.testing.models.server import FakeModels
from tests.support.agents.conversations import is_whole
from tests.support.agents.event_order import is_in_order
from tests.support.agents.scripted_models import Box, allow_call, conversation, echo, kinds, texts

QUICK = Limits().but(model_wait=0.001, model_wait_most=0.002, interrupt=5.0)
APIS = ["anthropic", "openai", "openai-responses"]


@pytest.fixture
async def server() -> AsyncIterator[FakeModels]:
    async with FakeModels(key="sk-test-1234") as server:
        yield server


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def resident(server: FakeModels, api: str, folder: Path, environ: dict[str, str], limits: Limits = QUICK) -> Session:
    (folder / "a.txt").write_text("hello\nworld\n")
    env = environ | {"SERAI_HOME": str(folder / "home")} | server.env()
    return serai.agent("resident", cwd=folder, model=server.model(api), decide=allow_call, environ=env, limits=limits)


async def read_turn(turn: Turn) -> tuple[list[Event], BaseException | None]:
    """All of it, and the error it ended with."""
    events: list[Event] = []
    try:
        async for event in turn:
            events.append(event)  # noqa: PERF401  (it may end in an error)
    except Exception as error:
        return events, error
    return events, None


async def check_continues(session: Session) -> None:
    """The conversation is one that the API takes."""
    assert is_whole(conversation(session))
    assert (await session.turn("are you there?\n>> say I am")).text == "I am"


@pytest.mark.req("piglet.rule.event-order", "resident.sdks.order")
async def test_the_events_of_a_run_come_in_their_order(
    server: FakeModels, api: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    async with resident(server, api, tmp_path, environ) as session:
        events, error = await read_turn(
            session.turn(
                "do it\n>> think what now\n>> say let me look\n"
                '>> call read {"path": "a.txt"}\n>> call nonsense {}\n>> call bash {"command": "exit 3"}\n'
                ">> say it said $results"
            )
        )
        assert error is None
        assert is_in_order(events)
        assert kinds(events).count("step_started") == 2
        assert next(event.text for event in events if isinstance(event, Message)) == "let me look"
        ended = {event.call.name: event.result for event in events if isinstance(event, ToolEnded)}
        assert ended["nonsense"].text == "unknown tool: nonsense"
        assert ended["bash"].code == "EXIT_NONZERO"
        assert "hello" in ended["read"].text
        end = events[-1]
        assert isinstance(end, TurnEnded)
        assert "hello" in end.result.text
        assert "unknown tool: nonsense" in end.result.text
        assert end.result.usage.input > 0
        assert end.result.usage.output > 0
        await check_continues(session)


@pytest.mark.req("resident.sdks.abort")
@pytest.mark.parametrize("moment", [Text, ToolStarted])
async def test_an_abort_leaves_nothing_running(
    moment: type[Event], server: FakeModels, api: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    script = "go\n>> say one\n>> hang" if moment is Text else 'go\n>> call bash {"command": "sleep 1000 & sleep 1001"}'
    async with resident(server, api, tmp_path, environ) as session:
        async with session.turn(script) as turn:
            events: list[Event] = []
            async for event in turn:
                events.append(event)
                if isinstance(event, moment):
                    await turn.cancel("enough")
        assert is_in_order(events)
        assert turn.outcome is not None
        assert turn.outcome.status == "cancelled"
        await server.until(lambda: server.open == 0)
        assert not find_processes(tmp_path)
        await check_continues(session)


def find_processes(folder: Path) -> list[str]:
    """The processes of which it is the working directory."""
    return [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit() and _cwd(entry) == str(folder)]


def _cwd(process: Path) -> str:
    try:
        return os.readlink(process / "cwd")
    except OSError:
        return ""


# -- faults of the provider


@pytest.mark.req("resident.sdks.faults")
@pytest.mark.parametrize(
    "fault",
    [
        Fault("status", status=429, retry_after="0.001"),
        Fault("error", status=500, after=1),
        Fault("status", status=529),
        Fault("cut", after=2),
        Fault("malformed", after=2),
        Fault("refuse"),
        Fault("close"),
    ],
    ids=lambda fault: fault.kind,
)
async def test_what_may_get_better_is_tried_again(
    fault: Fault, server: FakeModels, api: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    server.fault(fault)
    server.fault(fault)
    async with resident(server, api, tmp_path, environ) as session:
        events, error = await read_turn(session.turn("go\n>> say at last"))
        assert error is None
        assert is_in_order(events)
        assert len([event for event in events if isinstance(event, Retrying)]) == 2
        assert [event.text for event in events if isinstance(event, Message)] == ["at last"]
        await check_continues(session)


@pytest.mark.req("resident.sdks.faults")
@pytest.mark.parametrize("script", ["fail 500", "cut", "malformed"])
async def test_what_does_not_get_better_ends_the_turn_with_its_reason(
    script: str, server: FakeModels, api: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    async with resident(server, api, tmp_path, environ) as session:
        events, error = await read_turn(session.turn(f"go\n>> say half of it\n>> {script}"))
        assert isinstance(error, ModelFailed)
        assert error.temporary
        assert is_in_order(events)
        assert len([event for event in events if isinstance(event, Retrying)]) == 2
        await check_continues(session)


@pytest.mark.req("resident.sdks.faults")
async def test_a_wrong_key_is_told_at_once_and_never_shown(
    server: FakeModels, api: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    wrong = "sk-wrong-987654321"
    keys = {"ANTHROPIC_API_KEY": wrong, "OPENAI_API_KEY": wrong}
    env = environ | {"SERAI_HOME": str(tmp_path / "home")} | server.env() | keys
    async with serai.agent("resident", cwd=tmp_path, model=server.model(api), environ=env) as session:
        events, error = await read_turn(session.turn("go"))
        assert isinstance(error, ModelFailed)
        assert (error.status, error.temporary) == (401, False)
        assert "API_KEY" in error.hint
        assert not any(wrong in repr(event) for event in events)
        assert wrong not in f"{error!r} {error} {error.hint} {error.to_json()}"
        assert "retrying" not in kinds(events)


@pytest.mark.req("resident.sdks.faults")
async def test_a_model_that_falls_silent_is_given_up(server: FakeModels, api: str, tmp_path: Path, environ: dict[str, str]) -> None:
    """The turn that follows is another session's, which has time: to import the SDK alone takes seconds on a busy machine."""
    limits = QUICK.but(model_idle=1.0, model_attempts=1)
    async with resident(server, api, tmp_path, environ) as patient, resident(server, api, tmp_path, environ, limits) as session:
        await check_continues(patient)  # the SDK is there
        events, error = await read_turn(session.turn("go\n>> say so far\n>> hang"))
        assert isinstance(error, ModelFailed)
        assert error.limit is not None
        assert error.limit.name == "model_idle"
        assert is_in_order(events)
        await server.until(lambda: server.open == 0)
        conversation(patient)[:] = conversation(session)
        await check_continues(patient)


# -- a model that misbehaves


@pytest.mark.req("resident.bad.arguments", "resident.bad.unknown-tool")
async def test_a_model_that_calls_what_is_not_there_or_says_what_is_no_json_is_told_so(
    server: FakeModels, api: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    async with resident(server, api, tmp_path, environ) as session:
        script = 'go\n>> call read {"path": \n>> call rm {"all": true}\n>> call read {"path": 7}\n>> say $results'
        events, error = await read_turn(session.turn(script))
        assert error is None
        assert is_in_order(events)
        results = [event.result for event in events if isinstance(event, ToolEnded)]
        assert sorted(result.code for result in results) == ["", "INVALID_ARGS", "INVALID_ARGS"]
        await check_continues(session)


@pytest.mark.req("resident.bad.repeats")
async def test_a_model_that_repeats_for_ever_is_ended(
    server: FakeModels, api: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    async with resident(server, api, tmp_path, environ, QUICK.but(steps=5)) as session:
        events, error = await read_turn(session.turn('go\n>> call read {"path": "a.txt"}\n>> loop'))
        assert isinstance(error, TurnLimit)
        assert is_in_order(events)
        assert kinds(events)[-2:] == ["steps_exhausted", "turn_ended"]
        await check_continues(session)


@pytest.mark.req("resident.bad.flood")
async def test_a_model_that_streams_ten_megabytes_is_broken_off(
    server: FakeModels, api: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    async with resident(server, api, tmp_path, environ) as session:
        piece = "x" * 10_000
        events, error = await read_turn(session.turn(f"go\n>> repeat 1050 say {piece}"))
        assert isinstance(error, ModelFailed)
        assert error.limit is not None
        assert error.limit.name == "model_answer"
        assert is_in_order(events)
        await server.until(lambda: server.open == 0)
        assert sum(map(len, texts(conversation(session)))) < 100_000 + len(piece)
        await check_continues(session)


@pytest.mark.req("resident.bad.stops-mid-tool")
async def test_a_model_that_stops_in_the_middle_of_a_call_gets_an_error_for_it_and_goes_on(
    server: FakeModels, api: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    async with resident(server, api, tmp_path, environ) as session:
        script = 'go\n>> stop length\n>> call write {"path": "b.txt", "conte\n>> say I was cut off'
        events, error = await read_turn(session.turn(script))
        assert error is None
        assert is_in_order(events)
        [ended] = [event for event in events if isinstance(event, ToolEnded)]
        assert ended.result.code == "INVALID_ARGS"
        assert not (tmp_path / "b.txt").exists()
        await check_continues(session)


@pytest.mark.req("resident.bad.tool-hangs")
async def test_a_tool_that_hangs_is_ended_and_told(server: FakeModels, api: str, tmp_path: Path, environ: dict[str, str]) -> None:
    async with resident(server, api, tmp_path, environ) as session:
        events, error = await read_turn(session.turn('go\n>> call bash {"command": "sleep 1000", "timeout": 0.1}\n>> say $results'))
        assert error is None
        [ended] = [event for event in events if isinstance(event, ToolEnded)]
        assert ended.result.code == "TIMEOUT"
        assert not find_processes(tmp_path)
        await check_continues(session)


# -- steering, switching, approving


async def test_steering_reaches_the_model_before_its_next_step(
    server: FakeModels, api: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    async with resident(server, api, tmp_path, environ) as session:
        steered = False
        async for event in session.turn('go\n>> call bash {"command": "sleep 1000"}\n>> say I heard $prompt'):
            if isinstance(event, ToolStarted) and not steered:
                steered = True
                session.steer("stop that")
        assert texts(conversation(session))[2:] == [
            "tool: tool execution cancelled",
            "user: stop that",
            "assistant: I heard stop that",
        ]


async def test_the_model_can_be_switched_between_turns_and_the_conversation_goes_along(
    server: FakeModels, tmp_path: Path, environ: dict[str, str]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    models = [(api, server.model(api)) for api in APIS]
    described = "".join(
        f'[[models]]\nid = "fake-{api}"\nprovider = "{model.provider}"\napi = "{api}"\nbase_url = "{model.base_url}"\n'
        for api, model in models
    )
    (home / "models.toml").write_text(described)
    async with resident(server, "anthropic", tmp_path, environ) as session:
        await session.turn('go\n>> think hm\n>> call read {"path": "a.txt"}\n>> say $results')
        for api in APIS[1:] + APIS[:1]:
            assert (await session.set_model(f"fake-{api}")).endswith(f"fake-{api}")
            await session.turn(f'{api}\n>> think hm\n>> call read {{"path": "a.txt"}}\n>> say $results')
        paths = [request.path for request in server.requests]
        assert len(dict.fromkeys(paths)) == 3
        await check_continues(session)


async def test_whoever_reads_the_turn_approves(server: FakeModels, api: str, tmp_path: Path, environ: dict[str, str]) -> None:
    env = environ | {"SERAI_HOME": str(tmp_path / "home")} | server.env()
    (tmp_path / "a.txt").write_text("hello")
    async with serai.agent("resident", cwd=tmp_path, model=server.model(api), environ=env) as session:
        asked: list[str] = []
        async for event in session.turn('go\n>> call read {"path": "a.txt"}\n>> call bash {"command": "touch b"}\n>> say $results'):
            if isinstance(event, Approval):
                asked.append(event.tool)
                await asyncio.sleep(0)
                await (event.allow() if event.tool == "read" else event.deny("not today"))
        assert sorted(asked) == ["bash", "read"]
        assert not (tmp_path / "b").exists()
        assert "not today" in texts(conversation(session))[-1]


@pytest.mark.req("piglet.edge.33")
async def test_a_tool_whose_name_no_api_takes_is_called_by_its_own_name(
    server: FakeModels, api: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    env = environ | {"SERAI_HOME": str(tmp_path / "home")} | server.env()
    names = ["my tool.x", "my tool:x", "my_tool_x"]
    box = Box(**dict.fromkeys(names, echo))
    sent = ToolNameMap(ToolSpec(name) for name in names)
    async with serai.agent("resident", cwd=tmp_path, model=server.model(api), decide=allow_call, environ=env, tools=box) as session:
        script = "".join(f'\n>> call {sent.encode(name)} {{"n": {place}}}' for place, name in enumerate(names))
        heard, error = await read_turn(session.turn(f"go{script}\n>> say $results"))
        assert error is None
        await check_continues(session)  # the names of the calls before are sent again
    assert [(one.name, one.arguments) for one in box.calls] == [(name, {"n": place}) for place, name in enumerate(names)]
    assert [event.call.name for event in heard if isinstance(event, ToolEnded)] == names
    assert sent.encode("my_tool_x") == "my_tool_x"

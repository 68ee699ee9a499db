"""What a caller chooses when the resident is opened reaches the part that it is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

import serai
from serai.agents.driver import NoInterceptors
from serai.agents.models import providers as provider_pool
from serai.agents.resident import conversation as resident_conversation
from serai.agents.resident import factory
from serai.agents.resident.driver import Resident
from serai.agents.resident.run_context import RunContext
from serai.agents.session import Session
from serai.errors import BadSettings
from serai.limits import Limits
from serai.model.approvals import Approval
from serai.model.events import Event, SessionStarted, ToolCalled, ToolEnded
from serai.model.provider import Model, ModelMessage, ModelOptions
from serai.model.tools import ToolCall, ToolSpec
from serai.store import SessionFolder
from serai.tools import FileSnapshots
from serai.wire.plain_process import PlainSpawner
from tests.support.agents.scripted_models import MODEL, Answers, Box, allow_call, conversation, echo, reply, texts

Open = Callable[..., Session]


@pytest.fixture
def resident(tmp_path: Path, environ: dict[str, str]) -> Open:
    """In an empty folder, with no key and a home of its own."""
    (tmp_path / "work").mkdir()
    (tmp_path / "home").mkdir()
    env = environ | {"SERAI_HOME": str(tmp_path / "home")}
    return lambda **options: serai.agent("resident", **({"cwd": tmp_path / "work", "environ": env} | options))


def get_context(session: Session) -> RunContext:
    assert isinstance(session.driver, Resident)
    return session.driver.context


# -- what it works with


async def test_everything_that_is_given_is_used(resident: Open) -> None:
    async def compactor(messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
        return messages

    given = {
        "interceptors": NoInterceptors(),
        "compactor": compactor,
        "options": ModelOptions(temperature=0.5),
        "step_mode": True,
        "decide": allow_call,
        "limits": Limits().but(steps=7),
    }
    async with resident(provider=Answers([reply("ok")]), tools=Box(), session_id="mine", **given) as session:
        used = get_context(session)
        assert {name: getattr(used, name) for name in given} == given
        assert session.limits is used.limits
        assert session.id == "mine"


async def test_an_empty_system_prompt_is_none(resident: Open) -> None:
    provider = Answers([reply("ok")])
    async with resident(provider=provider, tools=Box(), system="") as session:
        await session.turn("go")
    assert provider.requests[0].system == ""


@pytest.mark.req("piglet.rule.prompt-order", "piglet.rule.tool-deferred")
async def test_a_small_model_finds_deferred_tools_in_its_prompt(resident: Open) -> None:
    small = msgspec.structs.replace(MODEL, base_url="http://127.0.0.1:9/v1")
    box = Box(rare=(ToolSpec("rare", "Seldom used.", deferred=True), echo))
    for model, found in ((small, True), (MODEL, False)):
        provider = Answers([reply("ok")])
        async with resident(model=model, provider=provider, tools=box) as session:
            await session.turn("go")
        assert ("# Available Tools\n\n- **rare**: Seldom used." in provider.requests[0].system) is found


async def test_what_was_said_elsewhere_goes_on_here(resident: Open) -> None:
    before = [resident_conversation.build_user_message("hello"), ModelMessage("assistant", (), (ToolCall("echo", {}, "c1"),))]
    session = resident(provider=Answers([reply("ok")]), tools=Box(), history=before)
    heard: list[Event] = []
    session.listen(heard.append)
    async with session:
        await session.turn("go")
    assert texts(conversation(session))[:2] == ["user: hello", "assistant: echo()"]
    [started] = [event for event in heard if isinstance(event, SessionStarted)]
    assert started.messages == 3  # with the result that was missing


async def test_which_model_it_is_is_told_at_the_beginning_and_when_it_changes() -> None:
    told: list[str] = []
    other = (msgspec.structs.replace(MODEL, id="m2"), Answers([reply("two")]))
    parts = RunContext(model=MODEL, provider=Answers([reply("one")]))
    async with Session(Resident(parts, Box(), switch=lambda _query: other, on_model=told.append)) as session:
        assert await session.set_model("m2") == "test/m2"
    assert told == ["test/m1", "test/m2"]


async def test_a_stored_session_says_which_model_it_is_with(resident: Open, tmp_path: Path) -> None:
    stored = SessionFolder(str(tmp_path / "sessions")).create(str(tmp_path / "work"))
    async with resident(store=stored, model=MODEL, provider=Answers([reply("ok")])):
        assert stored.meta.model == "test/m1"


@pytest.mark.parametrize("value", ["true", "1.5"])
async def test_the_place_of_a_section_is_a_whole_number(resident: Open, tmp_path: Path, value: str) -> None:
    (tmp_path / "home" / "config.toml").write_text(f"[prompt_order]\nLate = {value}\n")
    with pytest.raises(BadSettings, match="prompt_order has a number"):
        resident()


async def test_a_prompt_that_cannot_be_read_is_told(resident: Open, tmp_path: Path) -> None:
    (tmp_path / "home" / "prompt.md").mkdir()
    with pytest.raises(BadSettings, match="prompt.md"):
        resident()


# -- its tools


async def run_calls(session: Session, script: str, *, allow: bool = True) -> list[str]:
    """The codes of what its calls came to, in their order."""
    codes: dict[str, str] = {}
    async for event in session.turn(script):
        if isinstance(event, ToolCalled):
            codes[event.call.id] = "none"
        if isinstance(event, Approval):
            await (event.allow() if allow else event.deny())
        if isinstance(event, ToolEnded):
            codes[event.call.id] = event.result.code
    return list(codes.values())


@pytest.mark.req("resident.tools.confined")
async def test_other_folders_are_open_to_it_when_they_are_given(resident: Open, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt").write_text("hello")
    script = f'go\n>> call read {{"path": "{tmp_path / "other" / "a.txt"}"}}'
    async with resident(decide=allow_call) as session:
        assert await run_calls(session, script) == ["PERMISSION_DENIED"]
    async with resident(decide=allow_call, also=[tmp_path / "other"]) as session:
        assert await run_calls(session, script) == [""]


@pytest.mark.req("resident.open.outside")
async def test_a_yes_in_a_fork_counts_in_the_fork(resident: Open, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("top secret")
    script = f'go\n>> call read {{"path": "{tmp_path / "secret.txt"}"}}'
    async with resident() as session, session.fork() as fork:
        assert await run_calls(fork, script) == [""]
        assert await run_calls(session, script, allow=False) == ["PERMISSION_DENIED"]


async def test_the_limits_hold_for_the_tools_and_their_copies_too(
    resident: Open, tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spawners: list[Limits | None] = []

    class Recorded(PlainSpawner):
        def __init__(self, limits: Limits | None = None) -> None:
            spawners.append(limits)
            super().__init__(limits)

    monkeypatch.setattr(factory, "PlainSpawner", Recorded)
    for name in ("long.txt", "short.txt"):
        (tmp_path / "work" / name).write_text("x" * (200 if name == "long.txt" else 50))
    limits = Limits().but(read_file=100, undo=20)
    async with resident(decide=allow_call, limits=limits) as session:
        [long, short] = await run_calls(session, 'go\n>> call read {"path": "long.txt"}\n>> call read {"path": "short.txt"}')
        assert (bool(long), short) == (True, "")
        await run_calls(session, 'go\n>> call write {"path": "short.txt", "content": "y"}')
    assert FileSnapshots.usual({"SERAI_HOME": str(tmp_path / "home")}).list_snapshots() == {}
    assert spawners == [limits]


# -- who streams


class Closable(Answers):
    def __init__(self) -> None:
        super().__init__([reply("ok")])
        self.left = 0

    async def close(self) -> None:
        self.left += 1


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Model, Limits, Closable]]:
    """The providers that are made."""
    made: list[tuple[Model, Limits, Closable]] = []

    def provider_for(model: Model, *, environ: Mapping[str, str], limits: Limits) -> Closable:
        made.append((model, limits, Closable()))
        return made[-1][2]

    monkeypatch.setattr(provider_pool, "create_provider", provider_for)
    return made


async def test_there_is_one_provider_for_each_place_and_all_are_closed_at_the_end(
    made: list[tuple[Model, Limits, Closable]], environ: dict[str, str]
) -> None:
    limits = Limits().but(model_idle=7.0)
    pool = provider_pool.ProviderPool(environ, {}, limits)
    one = Model("m", provider="one", base_url="http://127.0.0.1:1/v1")
    others = [
        msgspec.structs.replace(one, provider="two"),
        msgspec.structs.replace(one, base_url="http://127.0.0.1:2/v1"),
        msgspec.structs.replace(one, api="anthropic"),
    ]
    providers = [pool.select(model, None)[1] for model in (one, *others)]
    assert len({id(provider) for provider in providers}) == 4  # a key never goes to another's address
    assert pool.select(one, None)[1] is providers[0]
    assert [limit for _, limit, _ in made] == [limits] * 4
    await pool.close()
    assert [provider.left for _, _, provider in made] == [1] * 4


async def test_a_provider_of_ours_is_closed_with_the_session_and_anothers_is_not(
    resident: Open, made: list[tuple[Model, Limits, Closable]]
) -> None:
    own = Closable()
    async with resident(model=MODEL, tools=Box()) as session:
        await session.turn("go")
    async with resident(model=MODEL, provider=own, tools=Box()) as session:
        await session.turn("go")
    assert [provider.left for _, _, provider in made] == [1]
    assert own.left == 0

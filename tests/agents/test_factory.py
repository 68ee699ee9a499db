"""`serai.agent`: one door to every agent, and the resident with what it needs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import serai
from serai.agents.resident.driver import Resident
from serai.agents.session import Session
from serai.errors import BadSettings, ModelFailed, NoAgent, NoModel, TurnLimit
from serai.limits import Limits
from serai.model.approvals import Allow, Approval, Deny
from serai.model.contributions import PromptSection
from serai.model.events import Event, NoticeEvent, ToolEnded, ToolProgress, ToolStarted
from serai.model.provider import Model
from serai.model.tools import ToolCall
from serai.store import SessionFolder
from serai.tools import FileSnapshots
from tests.support.agents.scripted_models import Answers, Box, allow_call, call, conversation, echo, reply, texts

Open = Callable[..., Session]


@pytest.fixture
def resident(tmp_path: Path, environ: dict[str, str]) -> Open:
    """In an empty folder, with no key and a home of its own."""
    (tmp_path / "work").mkdir()
    env = environ | {"SERAI_HOME": str(tmp_path / "home")}
    return lambda **options: serai.agent("resident", **({"cwd": tmp_path / "work", "environ": env} | options))


@pytest.mark.req("resident.open.design")
async def test_the_example_of_the_design_works(resident: Open, tmp_path: Path) -> None:
    (tmp_path / "work" / "notes.txt").write_text("remember the milk\n")
    printed = ""
    async with resident() as session:
        async for event in session.turn(
            'look\n>> call read {"path": "notes.txt"}\n>> call bash {"command": "touch x"}\n>> say $results'
        ):
            match event:
                case serai.Text(text=text):
                    printed += text
                case serai.Approval() as ask:
                    await ask.allow() if ask.tool == "read" else await ask.deny("not today")
    assert "remember the milk" in printed
    assert "not today" in printed
    assert not (tmp_path / "work" / "x").exists()


@pytest.mark.req("resident.models.parrot")
async def test_without_a_key_parrot_answers_and_says_so_once(resident: Open) -> None:
    async with resident() as session:
        first = [event async for event in session.turn("hello")]
        second = [event async for event in session.turn("again")]
    [notice] = [event.notice.text for event in first if isinstance(event, NoticeEvent)]
    assert "parrot" in notice
    assert "ANTHROPIC_API_KEY" in notice
    assert not any(isinstance(event, NoticeEvent) for event in second)
    assert texts(conversation(session))[1] == "assistant: You said: hello"


async def test_a_model_that_nobody_knows_and_one_without_a_key_are_told_before_anything_starts(resident: Open) -> None:
    with pytest.raises(NoModel, match="resolve provider: unknown model: nonsense"):
        resident(model="nonsense")
    with pytest.raises(ModelFailed, match="there is no key for it") as raised:
        resident(model="claude")
    assert "ANTHROPIC_API_KEY" in raised.value.hint


async def test_an_agent_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(NoAgent, match="there is no agent nonsense") as raised:
        serai.agent("nonsense")
    assert "resident" in raised.value.hint


async def test_a_working_directory_that_is_none_is_told(resident: Open, tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="no folder"):
        resident(cwd=tmp_path / "nowhere")


async def test_others_bring_their_agents_as_entry_points(monkeypatch: pytest.MonkeyPatch, resident: Open) -> None:
    module = type(sys)("other_agents")
    module.good = resident  # type: ignore[attr-defined]
    module.bad = lambda: "no session"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "other_agents", module)
    points = [EntryPoint(name, f"other_agents:{name}", "serai.agents") for name in ("good", "bad")]
    monkeypatch.setattr(metadata, "entry_points", lambda group: points)
    async with serai.agent("good") as session:
        assert (await session.turn("hi")).text == "You said: hi"
    with pytest.raises(TypeError, match="gave str, not a Session"):
        serai.agent("bad")


async def test_a_provider_and_tools_of_ones_own_are_used(resident: Open) -> None:
    provider = Answers([reply("", call("echo", "c1", a=1))], [reply("done")])
    box = Box(echo=echo)
    async with resident(provider=provider, tools=box, decide=allow_call, system="Be brief.") as session:
        assert (await session.turn("go")).text == "done"
    assert [done.name for done in box.calls] == ["echo"]
    assert provider.requests[0].system == "Be brief."


@pytest.mark.req("piglet.rule.prompt-order")
async def test_the_system_prompt_begins_with_what_the_person_has_written(resident: Open, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    sections = [PromptSection("Early", "one", 10), PromptSection("Late", "two", 20)]

    async def system() -> str:
        provider = Answers([reply("ok")])
        async with resident(provider=provider, tools=Box(), sections=sections) as session:
            await session.turn("go")
        return provider.requests[0].system

    assert (await system()).startswith("You are an assistant")
    (home / "config.toml").write_text('system_prompt = "Be brief."\n[prompt_order]\nLate = 1\n')
    assert await system() == "Be brief.\n\n# Late\n\ntwo\n\n# Early\n\none"
    (home / "prompt.md").write_text("Be kind.\n")
    assert (await system()).startswith("Be kind.\n\n# Late")
    (home / "prompt.md").write_text(" \n")
    assert (await system()).startswith("Be brief.")


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("system_prompt = 7", "system_prompt is a text"),
        ('[prompt_order]\nLate = "first"', "prompt_order has a number"),
        ("[limits]\npatience = 3", "limits: .*patience"),
        ("[limits]\nsteps = 0", "limits: .*steps"),
    ],
)
async def test_settings_that_cannot_be_are_told(resident: Open, tmp_path: Path, config: str, told: str) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(config)
    with pytest.raises(BadSettings, match=told):
        resident()


async def test_a_persons_limits_and_default_model_hold(resident: Open, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text('default_model = "parrot"\n[limits]\nsteps = 2\n')
    async with resident(decide=allow_call) as session:
        assert session.limits.steps == 2
        with pytest.raises(TurnLimit, match="limit steps = 2"):
            await session.turn('go\n>> call read {"path": "x"}\n>> loop')


# -- the built-in tools, confined


@pytest.mark.req("resident.open.outside")
async def test_outside_the_working_directory_only_a_persons_own_yes_counts(resident: Open, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("top secret")
    script = f'go\n>> call read {{"path": "{secret}"}}'
    for decide, code in ((allow_call, "PERMISSION_DENIED"), (None, "")):
        async with resident(decide=decide) as session:
            results = []
            async for event in session.turn(script):
                if isinstance(event, Approval):
                    await event.allow()
                if isinstance(event, ToolEnded):
                    results.append(event.result)
            assert [result.code for result in results] == [code]
            assert ("top secret" in results[0].text) is (code == "")


@pytest.mark.req("resident.open.outside")
async def test_a_person_is_told_where_a_call_really_leads(resident: Open, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("top secret")
    (tmp_path / "work" / "README.md").symlink_to(secret)
    async with resident() as session:
        asked: list[Approval] = []
        async for event in session.turn('go\n>> call read {"path": "README.md"}\n>> call read {"path": "missing"}'):
            if isinstance(event, Approval):
                asked.append(event)
                await event.deny()
    by_path = {approval.call.arguments["path"]: approval for approval in asked}
    assert by_path["README.md"].blocked_path == str(secret)
    assert str(secret) in by_path["README.md"].reason
    assert by_path["missing"].blocked_path == by_path["missing"].reason == ""


@pytest.mark.req("resident.open.outside")
async def test_a_yes_to_one_path_is_none_to_another_that_somebody_puts_in_its_place(resident: Open, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("top secret")
    (tmp_path / "work" / "notes.txt").write_text("harmless")

    async def decide(call: ToolCall) -> Allow | Deny:
        return Allow({"path": str(secret)})

    async with resident(decide=decide, step_mode=True) as session:
        async for event in session.turn('go\n>> call read {"path": "notes.txt"}'):
            if isinstance(event, Approval):
                await event.allow()
            if isinstance(event, ToolEnded):
                assert event.result.code == "PERMISSION_DENIED"


async def test_a_change_can_be_undone(resident: Open, tmp_path: Path) -> None:
    target = tmp_path / "work" / "a.txt"
    target.write_text("before")
    async with resident(decide=allow_call) as session:
        await session.turn('go\n>> call read {"path": "a.txt"}\n>> say read\n>> call write {"path": "a.txt", "content": "after"}')
    assert target.read_text() == "after"
    undo = FileSnapshots.usual({"SERAI_HOME": str(tmp_path / "home")})
    assert undo.list_snapshots() == {str(target): 6}
    undo.restore(str(target))
    assert target.read_text() == "before"


# -- kept


@pytest.mark.req("resident.open.resume")
async def test_a_kept_conversation_goes_on_where_it_was(resident: Open, tmp_path: Path) -> None:
    sessions = SessionFolder(str(tmp_path / "sessions"))
    stored = sessions.create(str(tmp_path / "work"))
    async with resident(store=stored, decide=allow_call) as session:
        assert session.id == stored.id
        assert (stored.meta.model, stored.meta.agent) == ("parrot/parrot", "resident")
        await session.turn('look\n>> say let me see\n>> call bash {"command": "echo one; exit 1"}\n>> say it said $results')
        before = texts(conversation(session))
    with sessions.open(stored.id) as again:
        async with resident(store=again) as session:
            events: list[Event] = []
            session.listen(events.append)
            assert texts(conversation(session)) == before
            await session.turn("and now?")
            after = texts(conversation(session))
    assert after[: len(before)] == before
    assert after[len(before) :] == ["user: and now?", "assistant: You said: and now?"]
    with sessions.open(stored.id) as again:
        assert len(again.read_messages()) == len(after)


@pytest.mark.req("piglet.rule.loop-interrupted", "resident.open.resume")
async def test_a_session_that_was_killed_in_the_middle_of_a_tool_goes_on(resident: Open, tmp_path: Path) -> None:
    sessions = SessionFolder(str(tmp_path / "sessions"))
    stored = sessions.create(str(tmp_path / "work"))
    async with resident(store=stored, decide=allow_call) as session:
        turn = await session.send('go\n>> say wait\n>> call bash {"command": "sleep 1000"}')
        turn.taken = True
        async for event in turn:
            if isinstance(event, ToolStarted):
                break
        with sessions.open(stored.id) as seen_by_another:  # as it would be after a kill at this moment
            killed = seen_by_another.fork()
    async with resident(store=killed) as session:
        assert [message.role for message in conversation(session)] == ["user", "assistant", "tool"]
        assert texts(conversation(session))[-1].startswith("tool: [error:TOOL_INTERRUPTED]")
        assert (await session.turn("go on\n>> say here I am")).text == "here I am"
    killed.close()


async def test_a_persons_decision_is_on_disk_before_it_has_an_effect(resident: Open, tmp_path: Path) -> None:
    sessions = SessionFolder(str(tmp_path / "sessions"))
    stored = sessions.create(str(tmp_path / "work"))
    async with resident(store=stored) as session:
        async for event in session.turn('go\n>> call bash {"command": "true"}'):
            if isinstance(event, Approval):
                await event.allow()
            if isinstance(event, ToolStarted):
                with sessions.open(stored.id) as seen_by_another:
                    written = [str(entry.data) for entry in seen_by_another.read_path() if entry.type == "event"]
                assert any("decided" in data and "allow" in data for data in written)


async def test_a_fork_goes_its_own_way(resident: Open) -> None:
    async with resident() as session:
        await session.turn("one")
        async with session.fork() as other:
            await other.turn("two")
            assert isinstance(other.driver, Resident)
            other.driver.context.step_mode = True
            assert isinstance(session.driver, Resident)
            assert not session.driver.context.step_mode
            assert len(conversation(other)) == 4
        assert len(conversation(session)) == 2
        assert (await session.turn("three")).text == "You said: three"
        assert other.id != session.id


async def test_leaving_it_leaves_no_process_and_no_task(resident: Open, tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with resident(decide=allow_call) as session:
        await session.turn('go\n>> call bash {"command": "sleep 1000 & echo started"}')
        assert isinstance(session.driver, Resident)
    assert asyncio.all_tasks() == before
    assert not [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and _cwd(entry) == str(tmp_path / "work")]


@pytest.mark.req("resident.sdks.abort")
async def test_a_command_that_ignores_its_end_is_gone_when_the_turn_is_cancelled(resident: Open, tmp_path: Path) -> None:
    ratio = 2.0 / 5.0  # of what a command and a turn usually have to end
    limits = Limits().but(interrupt=1.0, stop_term=ratio)
    async with resident(decide=allow_call, limits=limits) as session:
        async with session.turn('go\n>> call bash {"command": "trap \\"\\" TERM; echo on; while :; do sleep 0.02; done"}') as turn:
            async for event in turn:
                if isinstance(event, ToolProgress):
                    await turn.cancel("enough")
        assert not [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and _cwd(entry) == str(tmp_path / "work")]


def _cwd(process: Path) -> str:
    try:
        return str((process / "cwd").readlink())
    except OSError:
        return ""


async def test_a_model_of_ones_own_is_taken_as_it_is(resident: Open) -> None:
    model = Model("parrot", "Parrot", "parrot", "mine")
    async with resident(model=model) as session:
        events = [event async for event in session.turn("hi")]
    assert not any(isinstance(event, NoticeEvent) for event in events)

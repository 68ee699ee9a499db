"""The app treats every driven agent alike: here the mock, whose calls go through rules, guards and people; `serai run` plays it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serai.agents.drivers.mock.script import Assistant, Background, Permission, ToolResult
from serai.app.assembly import AppOptions
from serai.model.approvals import Allow, Approval, Deny
from serai.model.events import TurnEnded, TurnResult
from serai.model.surface import ScriptedSurface
from tests.support.app.apps import Person, open_app, sessions_of
from tests.support.cli.run_process import run
from tests.support.cli.shell import Shell
from tests.support.host.zot_guests import make
from tests.support.stored_sessions import show

GUARD = """
hello(subscribe(intercept=["tool_call"]))
for frame in frames():
    if frame["type"] == "event_intercept":
        args = frame["tool_args"]
        if args.get("command") == "evil":
            judge(frame["id"], block=True, reason="not that")
        else:
            judge(frame["id"], modified_args={**args, "command": "two"})
"""


def wants(command: str) -> Permission:
    return Permission(tool="bash", input={"command": command})


async def play_steps(tmp_path: Path, *steps: Any, person: Person, **choices: Any) -> Any:
    guests = choices.pop("guests", ())
    async with open_app(
        tmp_path, *guests, agent="mock", mode="manual", surface=person, options={"script": steps}, **choices
    ) as app:
        return await app.submit("go")


@pytest.mark.req("app.driven.guards")
async def test_its_approvals_go_the_way_of_all(tmp_path: Path) -> None:
    person = Person(Allow())
    guard = make(tmp_path / "guests", GUARD)
    steps = (wants("one"), Assistant(text="done"))
    result = await play_steps(tmp_path, *steps, person=person, guests=[guard])
    assert (result.status, result.text) == ("success", "done")
    [asked] = person.asked
    assert isinstance(asked, Approval)
    assert asked.call.arguments == {"command": "two"}


@pytest.mark.req("app.driven.guards")
async def test_a_rule_allows_and_a_guard_blocks_without_a_person(tmp_path: Path) -> None:
    person = Person()
    result = await play_steps(tmp_path, wants("ls"), Assistant(text="done"), person=person, allow=("bash:ls",))
    assert (result.status, person.asked) == ("success", [])
    guard = make(tmp_path / "guests", GUARD)
    result = await play_steps(tmp_path, wants("evil"), Assistant(text="done"), person=person, guests=[guard], allow=("bash",))
    assert person.asked == []
    assert "not that" in result.error


@pytest.mark.req("app.driven.own-turns", "app.driven.kept")
async def test_its_own_turns_are_seen_and_kept(tmp_path: Path) -> None:
    person = Person()
    steps = (Assistant(text="first"), Background(steps=(Assistant(text="second"),)))
    async with open_app(tmp_path, agent="mock", surface=person, options={"script": steps}) as app:
        await app.submit("go")
        await person.saw(lambda event: isinstance(event, TurnEnded) and event.result.text == "second")
        id = app.session.id
    with sessions_of(tmp_path).open(id) as stored:
        assert show(stored) == ["user: go", "assistant: first", "user: background", "assistant: second"]


LOOK = [Permission(tool="bash", input={"command": "git status"}), ToolResult(text="clean"), Assistant(text="It is clean.")]


async def submit(tmp_path: Path, *guests: Path, **choices: Any) -> TurnResult:
    wanted: AppOptions = {"agent": "mock", "mode": "manual", "options": {"script": LOOK}}
    wanted.update(choices)  # type: ignore[typeddict-item]
    async with open_app(tmp_path, *guests, **wanted) as app:
        result = await app.submit("look")
    assert result is not None
    return result


async def test_a_rule_answers_it(tmp_path: Path) -> None:
    surface = ScriptedSurface()
    result = await submit(tmp_path, surface=surface, allow=["bash:git status"])
    assert (result.status, result.text, surface.calls) == ("success", "It is clean.", 0)


async def test_a_person_answers_it(tmp_path: Path) -> None:
    surface = ScriptedSurface([Allow()])
    assert (await submit(tmp_path, surface=surface)).ok
    [asked] = surface.asked
    assert isinstance(asked, Approval)
    assert (asked.tool, asked.agent, asked.call.asker) == ("bash", "mock", "mock")
    result = await submit(tmp_path, surface=ScriptedSurface([Deny("not today")]))
    assert (result.status, result.error) == ("denied", "not today")


async def test_nobody_is_a_no(tmp_path: Path) -> None:
    assert (await submit(tmp_path)).status == "denied"


async def test_a_guard_sees_what_it_asks(tmp_path: Path) -> None:
    guarding = "remember(subscribe(intercept=['tool_call']), tool_call={'block': True, 'reason': 'not here'})"
    guard = make(tmp_path, guarding, name="guard", settings="guard = true\n")
    result = await submit(tmp_path, guard, surface=ScriptedSurface(default=Allow()))
    assert (result.status, result.error) == ("denied", "not here")


@pytest.mark.parametrize(
    ("more", "status", "said"), [(["--mode", "skip"], 0, 5), ([], 4, 0), (["--allow", "mock_tool_read"], 4, 1)]
)
def test_serai_run_plays_it(tmp_path: Path, more: list[str], status: int, said: int) -> None:
    ran = run(Shell(tmp_path), "--agent", "mock", *more, "the thing")
    assert ran.returncode == status, ran.stderr
    assert ran.stdout.splitlines() == [f"[Mock Step {step}/5] Processing: the thing" for step in range(1, said + 1)]

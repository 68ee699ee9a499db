"""The app treats every driven agent alike: here the mock, which has no program and asks about its calls itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serai.agents.drivers.mock.script import Assistant, Background, Permission
from serai.model.approvals import Allow, Approval
from serai.model.events import TurnEnded
from tests.app.houses import Person, opened, sessions_of
from tests.host.guests import make
from tests.store.helpers import said

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


async def played(tmp_path: Path, *steps: Any, person: Person, **choices: Any) -> Any:
    guests = choices.pop("guests", ())
    async with opened(tmp_path, *guests, agent="mock", mode="manual", surface=person, options={"script": steps}, **choices) as app:
        return await app.submit("go")


@pytest.mark.req("app.driven.guards")
async def test_its_approvals_go_the_way_of_all(tmp_path: Path) -> None:
    person = Person(Allow())
    guard = make(tmp_path / "guests", GUARD)
    steps = (wants("one"), Assistant(text="done"))
    result = await played(tmp_path, *steps, person=person, guests=[guard])
    assert (result.status, result.text) == ("success", "done")
    [asked] = person.asked
    assert isinstance(asked, Approval)
    assert asked.call.arguments == {"command": "two"}


@pytest.mark.req("app.driven.guards")
async def test_a_rule_allows_and_a_guard_blocks_without_a_person(tmp_path: Path) -> None:
    person = Person()
    result = await played(tmp_path, wants("ls"), Assistant(text="done"), person=person, allow=("bash:ls",))
    assert (result.status, person.asked) == ("success", [])
    guard = make(tmp_path / "guests", GUARD)
    result = await played(tmp_path, wants("evil"), Assistant(text="done"), person=person, guests=[guard], allow=("bash",))
    assert person.asked == []
    assert "not that" in result.error


@pytest.mark.req("app.driven.own-turns", "app.driven.kept")
async def test_its_own_turns_are_seen_and_kept(tmp_path: Path) -> None:
    person = Person()
    steps = (Assistant(text="first"), Background(steps=(Assistant(text="second"),)))
    async with opened(tmp_path, agent="mock", surface=person, options={"script": steps}) as app:
        await app.submit("go")
        await person.saw(lambda event: isinstance(event, TurnEnded) and event.result.text == "second")
        id = app.session.id
    with sessions_of(tmp_path).open(id) as stored:
        assert said(stored) == ["user: go", "assistant: first", "user: background", "assistant: second"]

"""The mock agent in the whole house: rules, guards and people answer what it asks; and `serai run` plays it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serai.agents.drivers.mock.script import Assistant, Permission, ToolResult
from serai.app.assembly import AppOptions
from serai.model.approvals import Allow, Approval, Deny
from serai.model.events import TurnResult
from serai.model.surface import ScriptedSurface
from tests.app.houses import opened
from tests.cli.guests import Shell
from tests.cli.runs import run
from tests.host.guests import make

LOOK = [Permission(tool="bash", input={"command": "git status"}), ToolResult(text="clean"), Assistant(text="It is clean.")]


async def submitted(tmp_path: Path, *guests: Path, **choices: Any) -> TurnResult:
    wanted: AppOptions = {"agent": "mock", "mode": "manual", "options": {"script": LOOK}}
    wanted.update(choices)  # type: ignore[typeddict-item]
    async with opened(tmp_path, *guests, **wanted) as app:
        result = await app.submit("look")
    assert result is not None
    return result


async def test_a_rule_answers_it(tmp_path: Path) -> None:
    surface = ScriptedSurface()
    result = await submitted(tmp_path, surface=surface, allow=["bash:git status"])
    assert (result.status, result.text, surface.calls) == ("success", "It is clean.", 0)


async def test_a_person_answers_it(tmp_path: Path) -> None:
    surface = ScriptedSurface([Allow()])
    assert (await submitted(tmp_path, surface=surface)).ok
    [asked] = surface.asked
    assert isinstance(asked, Approval)
    assert (asked.tool, asked.agent, asked.call.asker) == ("bash", "mock", "mock")
    result = await submitted(tmp_path, surface=ScriptedSurface([Deny("not today")]))
    assert (result.status, result.error) == ("denied", "not today")


async def test_nobody_is_a_no(tmp_path: Path) -> None:
    assert (await submitted(tmp_path)).status == "denied"


async def test_a_guard_sees_what_it_asks(tmp_path: Path) -> None:
    guarding = "remember(subscribe(intercept=['tool_call']), tool_call={'block': True, 'reason': 'not here'})"
    guard = make(tmp_path, guarding, name="guard", settings="guard = true\n")
    result = await submitted(tmp_path, guard, surface=ScriptedSurface(default=Allow()))
    assert (result.status, result.error) == ("denied", "not here")


@pytest.mark.parametrize(
    ("more", "status", "said"), [(["--mode", "skip"], 0, 5), ([], 4, 0), (["--allow", "mock_tool_read"], 4, 1)]
)
def test_serai_run_plays_it(tmp_path: Path, more: list[str], status: int, said: int) -> None:
    ran = run(Shell(tmp_path), "--agent", "mock", *more, "the thing")
    assert ran.returncode == status, ran.stderr
    assert ran.stdout.splitlines() == [f"[Mock Step {step}/5] Processing: the thing" for step in range(1, said + 1)]

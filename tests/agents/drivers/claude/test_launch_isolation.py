"""What is closed to others: no other hooks, folders, servers or askers come between what was judged and what runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import serai
from serai.agents.driver import NeedsApproval
from serai.agents.drivers.claude.options import ClaudeOptions
from serai.agents.session import Session
from serai.compat.agentboot import ClaudeDriver, ExecutionOptions
from serai.errors import BadSettings
from serai.host.trust import Trust
from serai.model.approvals import Allow, Approval, Deny
from serai.model.tools import ToolCall
from tests.support.agents.scripted_models import allow_call
from tests.support.claude.scripted_sessions import driver_of, play, poll, program

Json = dict[str, Any]


# -- two calls of one id

TWICE = """
greet()
init()
def hook(request, name, **input):
    about = {"hook_event_name": "PreToolUse", "tool_name": name, "tool_input": input, "permission_mode": "default"}
    said = ask(request, subtype="hook_callback", callback_id="guard", tool_use_id="t1", input=about)
    return said["hookSpecificOutput"]["permissionDecisionReason"]
def request(id, name, why, **input):
    about = {"tool_name": name, "tool_use_id": "t1", "decision_reason_type": "hook", "decision_reason": why}
    return ask(id, subtype="can_use_tool", input=input, **about)
first, second = hook("h1", "Bash", command="ls"), hook("h2", "mcp__notes__look", command="touch made")
result(json.dumps([request("r1", "Bash", first, command="ls"), request("r2", "mcp__notes__look", second, command="touch made")]))
rest()
"""


@pytest.mark.req("agents.driver.hook")
async def test_two_calls_of_one_id_each_run_with_what_was_judged_of_them(tmp_path: Path) -> None:
    async def judge(call: ToolCall) -> Allow | Deny | NeedsApproval:
        return Deny("no") if call.name == "bash" and call.arguments != {"command": "ls"} else Allow()

    async with program(tmp_path, TWICE, judge=judge) as session:
        seen = await play(session)
    first, second = json.loads(seen.result.text)
    assert first == {"behavior": "allow", "updatedInput": {"command": "ls"}}
    assert second == {"behavior": "allow", "updatedInput": {"command": "touch made"}}
    assert not seen.of(Approval)


# -- what the process is started with

# It tells what it was given: settings and servers as they are, wherever they stand.
TELLS = """
def given(flag):
    [value] = [word.partition("=")[2] for word in sys.argv if word.startswith(flag + "=")] or [""]
    if not value or value.startswith("{"):
        return {"said": json.loads(value or "null"), "file": ""}
    modes = [oct(os.stat(path).st_mode & 0o777) for path in (value, os.path.dirname(value))]
    return {"said": json.load(open(value)), "file": value, "modes": modes}

greet()
init()
stays = os.environ.get("CLAUDE_BASH_MAINTAIN_PROJECT_WORKING_DIR")
result(json.dumps({"argv": sys.argv, "settings": given("--settings"), "servers": given("--mcp-config"), "stays": stays}))
rest()
"""
SHUT = {"disableAllHooks": True, "disableSkillShellExecution": True}


async def read_result(session: Session) -> Json:
    async with session:
        seen = await play(session)
    assert seen.error is None
    said: Json = json.loads(seen.result.text)
    return said


def select_disabled(said: Json) -> Json:
    """What is said there of hooks and skills."""
    return {name: value for name, value in (said["settings"]["said"] or {}).items() if name.startswith("disable")}


@pytest.mark.req("agents.driver.hook")
@pytest.mark.parametrize(("more", "expected"), [({}, SHUT), ({"own_hooks": True}, {"disableSkillShellExecution": True})])
async def test_under_a_judge_nobody_elses_hooks_and_no_lines_of_skills_run(tmp_path: Path, more: Json, expected: Json) -> None:
    said = await read_result(program(tmp_path, TELLS, judge=allow_call, **more))
    assert select_disabled(said) == expected
    assert said["stays"] == "1"


async def test_without_a_judge_hooks_and_skills_are_the_persons_own_affair(tmp_path: Path) -> None:
    said = await read_result(program(tmp_path, TELLS))
    assert select_disabled(said) == {}
    assert said["stays"] is None


OWN = {"permissions": {"deny": ["WebFetch"]}, "disableAllHooks": False, "disableSkillShellExecution": False}


@pytest.mark.req("agents.driver.hook")
@pytest.mark.parametrize("form", ["inline", "file", "relative"])
async def test_the_callers_own_settings_hold_besides_and_open_nothing(tmp_path: Path, form: str) -> None:
    (tmp_path / "own.json").write_text(json.dumps(OWN))
    given = {"inline": json.dumps(OWN), "file": str(tmp_path / "own.json"), "relative": "own.json"}[form]
    said = await read_result(program(tmp_path, TELLS, judge=allow_call, options=ClaudeOptions(settings=given)))
    assert select_disabled(said) == SHUT
    assert said["settings"]["said"]["permissions"]["deny"] == ["WebFetch"]
    assert json.loads((tmp_path / "own.json").read_text()) == OWN


@pytest.mark.req("agents.driver.closed")
@pytest.mark.parametrize("given", ["missing.json", "{no json", "[1]", "broken.json", "list.json", "."])
async def test_settings_that_cannot_be_read_start_nothing(tmp_path: Path, given: str) -> None:
    (tmp_path / "broken.json").write_text('{"env": ')
    (tmp_path / "list.json").write_text("[]")
    session = program(tmp_path, "", judge=allow_call, options=ClaudeOptions(settings=given))
    (tmp_path / "bin" / "claude").write_text(f"#!/bin/sh\ntouch '{tmp_path}/started'\n")
    with pytest.raises(BadSettings, match="settings"):
        async with session:
            pass
    assert not (tmp_path / "started").exists()


@pytest.mark.req("agents.driver.closed")
@pytest.mark.parametrize("more", [{"permission_prompt_tool": "mcp__other__ask"}, {"permission_prompt_tool": ""},
                                  {"extra": {"permission-prompt-tool": "mcp__other__ask"}}])  # fmt: skip
def test_under_a_judge_nobody_else_answers_what_is_asked(tmp_path: Path, more: Json) -> None:
    with pytest.raises(BadSettings, match="somebody else would answer"):
        serai.agent("claude", cwd=tmp_path, environ={}, settings={}, judge=allow_call, **more)
    serai.agent("claude", cwd=tmp_path, environ={}, settings={}, **more)  # without one that is the caller's affair


# -- keys

KEY = "sk-0123"


@pytest.mark.parametrize("judge", [None, allow_call], ids=["alone", "judged"])
@pytest.mark.parametrize("ask_rule", [True, False])
@pytest.mark.parametrize("blank", ["", " \n"], ids=["", "after blanks"])
async def test_keys_in_settings_and_servers_are_in_no_command_line(tmp_path: Path, judge: Any, ask_rule: bool, blank: str) -> None:
    """However short they are: everybody on the machine can read that."""
    servers = {"a": {"type": "http", "url": "h", "headers": {"k": KEY}}}
    chosen = ClaudeOptions(settings=f'{blank}{{"env":{{"K":"{KEY}"}}}}', mcp_servers=servers, ask_rule=ask_rule)
    said = await read_result(program(tmp_path, TELLS, judge=judge, options=chosen))
    assert not [word for word in said["argv"] if KEY in word]
    assert said["settings"]["said"]["env"] == {"K": KEY}
    assert said["servers"]["said"]["mcpServers"] == servers
    for part in (said["settings"], said["servers"]):
        assert part["modes"] == ["0o600", "0o700"]
        assert not os.path.lexists(os.path.dirname(part["file"]))  # it went with the session


async def test_nor_are_those_in_flags_that_have_no_name_here(tmp_path: Path) -> None:
    extra = {"mcp-config": json.dumps({"mcpServers": {"a": {"env": {"K": KEY}}}})}
    said = await read_result(program(tmp_path, TELLS, options=ClaudeOptions(extra=extra)))
    assert not [word for word in said["argv"] if KEY in word]
    assert said["servers"]["said"] == json.loads(extra["mcp-config"])


# -- another folder

CALLS = """
greet()
init()
hook = {hook!r}
calls = [tool("t1", "Bash", command="ls", hook=hook), tool("t2", "Read", file_path="/x/a", hook=hook)]
calls += [tool("t3", "Grep", pattern="x", hook=hook), tool("t4", "Glob", pattern="x", hook=hook)]
result(json.dumps([call["request"]["behavior"] for call in calls]))
rest()
"""


@pytest.mark.req("agents.driver.ask")
@pytest.mark.parametrize(
    ("hook", "asked"),
    [
        ({"cwd": "/"}, ["bash", "read", "grep", "find"]),
        ({"cwd": "/", "permission_mode": "plan"}, ["bash", "read", "grep", "find"]),
        ({"permission_mode": "plan"}, ["bash"]),
        ({"cwd": "HERE", "permission_mode": "plan"}, ["bash"]),
        ({"cwd": "HERE"}, []),
        ({"cwd": ""}, []),
        ({"cwd": 7}, []),
        ({}, []),
    ],
)
async def test_rules_speak_of_one_folder_elsewhere_a_person_decides(tmp_path: Path, hook: Json, asked: list[str]) -> None:
    if hook.get("cwd") == "HERE":  # by another way: it is the same one
        (tmp_path / "link").symlink_to(tmp_path)
        hook = {**hook, "cwd": str(tmp_path / "link")}
    async with program(tmp_path, CALLS.format(hook=hook), judge=allow_call) as session:
        seen = await play(session, answer=lambda _: Deny("no"))
    approvals = seen.of(Approval)
    assert [one.call.name for one in approvals] == asked
    assert all(one.needs_person and one.reason for one in approvals)
    names = ["bash", "read", "grep", "find"]
    assert json.loads(seen.result.text) == ["deny" if name in asked else "allow" for name in names]


# -- trust

DIES = """
open("argv", "a").write(json.dumps(sys.argv[1:]) + "\\n")
prompt = greet()
init()
result("done", user_message_uuid=prompt["uuid"])
if os.path.exists("second"):
    rest()
open("second", "w").close()
hear()
os._exit(3)
"""


@pytest.mark.req("app.driven.trust")
async def test_a_project_that_changed_is_not_trusted_at_the_next_start(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "config" / "trust.json")
    trust.allow(tmp_path)
    async with program(tmp_path, DIES, trusted=lambda: not trust.check_agents(tmp_path)) as session:
        await play(session)
        (tmp_path / ".mcp.json").write_text("{}")
        driver_of(session).steer("go")
        await poll(lambda: driver_of(session)._over is not None)
        await play(session)
    first, second = (json.loads(line) for line in (tmp_path / "argv").read_text().splitlines())
    assert not [word for word in first if word.startswith("--setting-sources")]
    assert "--setting-sources=user" in second


@pytest.mark.parametrize(
    ("more", "sources"),
    [({}, ["--setting-sources=user"]), ({"trusted": False}, ["--setting-sources=user"]), ({"trusted": True}, [])],
)
def test_who_prepares_a_start_takes_nothing_from_a_project_that_is_not_trusted(tmp_path: Path, more: Json, sources: Any) -> None:
    path = tmp_path / "claude"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o700)
    driver = ClaudeDriver(ClaudeOptions(path=str(path)), environ={"HOME": str(tmp_path)}, **more)
    command = driver.prepare("go", ExecutionOptions(project_path=str(tmp_path))).command
    assert [word for word in command if word.startswith("--setting-sources")] == sources

"""From one turn to the next: what a person has set holds, also in the process that takes a dead one's place."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from serai.model.approvals import Approval, Deny
from serai.model.events import StateChanged
from tests.support.claude.scripted_sessions import driver_of, play, poll, program, wait_for

DIES = """
open("argv", "a").write(json.dumps(sys.argv[1:]) + "\\n")
prompt = greet()
init()
result("one", user_message_uuid=prompt["uuid"])
if not os.path.exists("second"):
    open("second", "w").close()
    for _ in range(2):
        reply(hear(), {"mode": "plan"})
    os._exit(3)
rest()
"""


@pytest.mark.req("agents.driver.controls")
async def test_what_was_set_holds_in_the_next_process(tmp_path: Path) -> None:
    async with program(tmp_path, DIES, permission_mode="acceptEdits", model="first") as session:
        await play(session)
        await session.set_mode("plan")
        await session.set_model("second")
        await poll(lambda: driver_of(session)._over is not None)
        await play(session)
    first, second = (tmp_path / "argv").read_text().splitlines()
    assert "--permission-mode=acceptEdits" in first
    assert "--model=first" in first
    assert "--permission-mode=plan" in second
    assert "--model=second" in second


PLANS = """
open("argv", "a").write(json.dumps(sys.argv[1:]) + "\\n")
prompt = greet()
say("system", subtype="init", claude_code_version="2.1.325", model="fake", permissionMode="plan")
if os.path.exists("second"):
    result("two", user_message_uuid=prompt["uuid"])
    rest()
open("second", "w").close()
say("system", subtype="status", permissionMode="default")
result("one", user_message_uuid=prompt["uuid"])
hear()
os._exit(3)
"""


async def test_so_does_what_it_has_changed_itself(tmp_path: Path) -> None:
    """The end of a plan."""
    async with program(tmp_path, PLANS, permission_mode="plan") as session:
        seen = await play(session)
        assert "mode:default" in [event.state for event in seen.of(StateChanged)]
        driver_of(session).steer("go")
        await poll(lambda: driver_of(session)._over is not None)
        await play(session)
    assert "--permission-mode=default" in (tmp_path / "argv").read_text().splitlines()[1]


SUB_AGENT = """
prompt = greet()
init()
result("one", user_message_uuid=prompt["uuid"])
hear()
use = {"type": "tool_use", "id": "t2", "name": "Bash", "input": {"command": "ls"}}
say("assistant", message={"id": "m5", "model": "fake", "content": [use]}, parent_tool_use_id="t1")
about = {"subtype": "can_use_tool", "tool_name": "Bash", "tool_use_id": "t2", "input": {"command": "ls"}, "agent_id": "a1"}
say("control_request", request_id="r1", request=about)
answer("r1")
second = hear()
init()
result("two", user_message_uuid=second["uuid"])
rest()
"""


async def test_a_no_of_before_is_not_the_next_turns(tmp_path: Path) -> None:
    async with program(tmp_path, SUB_AGENT) as session:
        assert (await play(session)).result.text == "one"
        told = asyncio.ensure_future(wait_for(session, lambda event: isinstance(event, Approval)))
        driver_of(session).steer("now")
        ask = await told
        assert isinstance(ask, Approval)
        await session.answer(ask.id, Deny("stop", interrupt=True))
        seen = await play(session)
    assert (seen.result.status, seen.result.text, seen.result.error) == ("success", "two", "")

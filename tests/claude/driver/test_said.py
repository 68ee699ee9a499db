"""What an approval has of what Claude said, and what becomes of requests that go wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serai.errors import PeerTimeout
from serai.model.approvals import Approval
from serai.testing.claude.script import Script
from tests.claude.driver.scenes import QUICK, given_to, play, program, scene


@pytest.mark.req("agents.rule.17", "agents.rule.68")
async def test_an_approval_has_all_that_claude_said_of_it_and_nothing_that_a_terminal_acts_upon(tmp_path: Path) -> None:
    said = {
        "title": "T\x1b[31m",
        "display_name": "Bash\x1b[0m",
        "description": "lists\x07",
        "blocked_path": "/x",
        "default_to_no": True,
        "requires_user_interaction": True,
        "suppress_always_allow_rule": True,
        "decision_reason": "a\x1b[31mred",
        "decision_reason_type": "rule",
        "permission_suggestions": [{"type": "addRules"}],
    }
    script = Script().init().tool("t1", "Bash", command="ls").asks("r1", "t1", command="ls").told("t1", "a").result("done")
    for row in script.rows:
        if row["dir"] == "out" and row["line"]["type"] == "control_request":
            row["line"]["request"] |= said
    _, session = scene(tmp_path, script)
    async with session:
        [ask] = (await play(session)).of(Approval)
    assert (ask.title, ask.display_name, ask.description, ask.blocked_path) == ("T", "Bash", "lists", "/x")
    assert (ask.reason, ask.reason_type, ask.suggestions) == ("ared", "rule", ({"type": "addRules"},))
    assert (ask.needs_person, ask.default_no, ask.no_always) == (True, True, True)
    assert ask.call.id == "t1"


async def test_what_goes_wrong_while_it_is_asked_is_a_no(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a disk that is full: the approval must be on it before anybody sees it (design rule 14)."""
    script = Script().init().tool("t1", "Bash", command="ls").asks("r1", "t1", command="ls").told("t1", "a").result("done")
    claude, session = scene(tmp_path, script)

    async def fails(*_: Any, **__: Any) -> Any:
        raise OSError("no space left")

    async with session:
        monkeypatch.setattr(session.hub, "ask", fails)
        assert (await play(session)).result.text == "done"
    payload = given_to(claude.given().answers(), "r1")
    assert payload["behavior"] == "deny"
    assert "no space left" in payload["message"]


@pytest.mark.req("agents.rule.64")
async def test_one_that_never_answers_initialize_is_given_up(tmp_path: Path) -> None:
    source = "hear()\nhear()\ninit()\nrest()\n"
    async with program(tmp_path, source, limits=QUICK.but(agent_control=1.0)) as session:
        seen = await play(session)
    assert isinstance(seen.error, PeerTimeout)
    assert seen.error.limit is not None
    assert seen.error.limit.name == "agent_control"

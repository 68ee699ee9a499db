"""Approvals and questions of Claude itself: each is answered once, in its own words; and what becomes of requests that fail."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from serai.agents.driver import NeedsApproval
from serai.errors import AgentFailed, Closed, NoApproval, PeerTimeout, SeraiError
from serai.model.approvals import Allow, Answer, Approval, Decision, Deny, Question, Remember
from serai.model.events import NoticeEvent, RequestCancelled, Text, ToolStarted
from serai.model.tools import ToolCall
from serai.testing.claude.script import Script
from tests.support.claude.captures import LIMITS
from tests.support.claude.scripted_sessions import (
    QUICK,
    Seen,
    driver_of,
    dump_json,
    get_payload,
    play,
    program,
    read,
    scripted_session,
    wait_for,
)

QUESTIONS: dict[str, Any] = {
    "questions": [
        {"question": "Which?", "header": "a", "multiSelect": False, "options": [{"label": "A"}, {"label": "B"}]},
        {"question": "All of?", "header": "b", "multiSelect": True, "options": [{"label": "C"}, {"label": "D"}]},
    ],
    "metadata": {"source": "x"},
}


# -- several at once


@pytest.mark.req("agents.rule.21")
async def test_each_is_asked_by_itself_and_the_reader_goes_on(tmp_path: Path) -> None:
    """Three are open at once, of either kind, and more is said meanwhile; they are answered in the other order."""
    script = (
        Script().init().tool("t1", "Bash", command="a").tool("t2", "Bash", command="b").tool("t3", "AskUserQuestion", **QUESTIONS)
    )
    script.asks("r1", "t1", answered=False, command="a").asks("r2", "t2", answered=False, command="b")
    script.asks("r3", "t3", "AskUserQuestion", answered=False, **QUESTIONS).text("I go on").answer("r3").answer("r2").answer("r1")
    script.told("t1", "").told("t2", "").told("t3", "").result("done")
    claude, session = scripted_session(tmp_path, script)
    asked: list[Approval | Question] = []
    said: list[str] = []
    async with session:
        turn = session.turn("go")
        async for event in turn:
            if isinstance(event, Approval | Question):
                asked.append(event)
            elif isinstance(event, Text):
                said.append(event.text)
            if len(asked) == 3 and said and not asked[0].answered:
                assert [one.id for one in session.pending] == ["r1", "r2", "r3"]
                for one in reversed(asked):
                    await one.decide(Answer({"Which?": "A", "All of?": "C"}) if isinstance(one, Question) else Allow())
        assert (await turn).text == "done"
    assert list(claude.given().answers()) == ["r3", "r2", "r1"]


# -- approvals

ASKS = Script().init().tool("t1", "Bash", command="ls").asks("r1", "t1", command="ls").told("t1", "a").result("done")
OTHER: dict[str, Any] = {"where": {"city": "Bern"}, "days": [1, 2]}
NATIVE = Script().init().tool("t1", "mcp__x__y", **OTHER).asks("r1", "t1", "mcp__x__y", **OTHER).told("t1", "a").result("done")
EDITS: dict[str, Any] = {"file_path": "/a", "edits": [{"old_string": "x", "new_string": "y"}]}
NEUTRAL = Script().init().tool("t1", "MultiEdit", **EDITS).asks("r1", "t1", "MultiEdit", **EDITS).told("t1", "a").result("done")


@pytest.mark.req("agents.edge.20")
@pytest.mark.parametrize(("script", "input"), [(NATIVE, OTHER), (NEUTRAL, EDITS)], ids=["in its own words", "in ours"])
async def test_who_changes_what_is_shown_changes_nothing(tmp_path: Path, script: Script, input: dict[str, Any]) -> None:
    def spoil(value: Any) -> None:
        for inner in list(value.values() if isinstance(value, dict) else value):
            if isinstance(inner, dict | list):
                spoil(inner)
        if isinstance(value, dict):
            value["evil"] = True
        else:
            value.append("evil")

    def answer(ask: Approval | Question) -> Decision:
        assert isinstance(ask, Approval)
        spoil(ask.call.arguments)
        assert ask.call.native is not None
        spoil(ask.call.native.arguments)
        return Allow()

    claude, session = scripted_session(tmp_path, script)
    async with session:
        seen = await play(session, answer=answer)
    payload = get_payload(claude.given().answers(), "r1")
    assert payload["behavior"] == "allow"
    assert payload.get("updatedInput", input) == input
    assert "evil" not in dump_json([event.call.arguments for event in seen.of(ToolStarted)])


@pytest.mark.req("agents.edge.20")
async def test_only_what_is_given_back_changes_it(tmp_path: Path) -> None:
    claude, session = scripted_session(tmp_path, ASKS)
    async with session:
        seen = await play(session, answer=lambda _: Allow({"command": "ls -l"}))
    assert get_payload(claude.given().answers(), "r1") == {"behavior": "allow", "updatedInput": {"command": "ls -l"}}
    assert [event.call.arguments for event in seen.of(ToolStarted)] == [{"command": "ls -l"}]


@pytest.mark.req("agents.driver.no")
@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (Deny("not today"), {"behavior": "deny", "message": "not today"}),
        (Deny(), {"behavior": "deny", "message": "User denied this request"}),
    ],
)
async def test_a_no_says_why(tmp_path: Path, decision: Deny, said: dict[str, Any]) -> None:
    claude, session = scripted_session(tmp_path, ASKS)
    async with session:
        seen = await play(session, answer=lambda _: decision)
    assert get_payload(claude.given().answers(), "r1") == said
    assert seen.result.status == "success"  # the model goes on and does something else


@pytest.mark.req("agents.driver.no")
async def test_a_no_that_ends_the_turn(tmp_path: Path) -> None:
    script = Script().init().tool("t1", "Bash", command="ls").asks("r1", "t1", command="ls")
    script.result(subtype="error_during_execution", is_error=True, errors=["x"], terminal_reason="aborted_tools")
    script.prompt().init().result("again")
    claude, session = scripted_session(tmp_path, script)
    async with session:
        seen = await play(session, answer=lambda _: Deny("stop it", interrupt=True))
        assert seen.error is None
        assert (seen.result.status, seen.result.error) == ("denied", "stop it")
        assert (await play(session)).result.status == "success"  # and not denied once more
    assert get_payload(claude.given().answers(), "r1") == {"behavior": "deny", "message": "stop it", "interrupt": True}
    assert claude.starts == 1


@pytest.mark.req("agents.driver.no")
async def test_nobody_is_a_no(tmp_path: Path) -> None:
    """Who only waits for the result is not there to be asked."""
    claude, session = scripted_session(tmp_path, ASKS)
    async with session:
        assert (await session.turn("go")).status == "success"
    assert get_payload(claude.given().answers(), "r1")["behavior"] == "deny"


@pytest.mark.req("agents.driver.no")
async def test_one_who_does_not_answer_is_a_no(tmp_path: Path) -> None:
    claude, session = scripted_session(tmp_path, ASKS, limits=LIMITS.but(approval=0.1))
    async with session:
        seen = await play(session, answer=None)
    assert get_payload(claude.given().answers(), "r1")["behavior"] == "deny"
    assert [event.id for event in seen.of(RequestCancelled)] == ["r1"]


async def test_what_is_withdrawn_is_not_answered(tmp_path: Path) -> None:
    script = Script().init().tool("t1", "Bash", command="ls").asks("r1", "t1", answered=False, command="ls")
    script.request("mcp_status").withdraws("r1").told("t1", "no").result("done")
    claude, session = scripted_session(tmp_path, script)

    async def answer(ask: Approval | Question) -> None:
        await driver_of(session).send_control("mcp_status")

    async with session:
        seen = await play(session, answer=answer)
        [approval] = seen.of(Approval)
        assert [event.id for event in seen.of(RequestCancelled)] == ["r1"]
        with pytest.raises(Closed):
            await approval.decide(Allow())
        with pytest.raises(NoApproval):
            await session.answer("r1", Allow())
    assert "r1" not in claude.given().answers()


# -- what is remembered

RULES = [
    {"type": "addRules", "rules": [{"toolName": "Bash"}], "behavior": "allow", "destination": "localSettings"},
    {"type": "addDirectories", "directories": ["/x"], "destination": "session"},
    {"type": "addRules", "rules": [{"toolName": "Bash"}], "behavior": "deny", "destination": "session"},
    "no object",
]


def suggest_rules(**more: Any) -> Script:
    script = Script().init().tool("t1", "Bash", command="ls").asks("r1", "t1", command="ls").told("t1", "a").result("done")
    for row in script.rows:
        if row["dir"] == "out" and row["line"]["type"] == "control_request":
            row["line"]["request"] |= {"permission_suggestions": RULES, **more}
    return script


@pytest.mark.req("agents.driver.remember")
@pytest.mark.parametrize(
    ("remember", "destination"), [("once", ""), ("session", "session"), ("project", "localSettings"), ("always", "userSettings")]
)
async def test_what_is_to_be_remembered_is_so_for_as_long_as_was_said(tmp_path: Path, remember: Remember, destination: str) -> None:
    claude, session = scripted_session(tmp_path, suggest_rules())
    async with session:
        seen = await play(session, answer=lambda _: Allow(remember=remember))
    rules = get_payload(claude.given().answers(), "r1").get("updatedPermissions", [])
    assert [rule["type"] for rule in rules] == (["addRules", "addDirectories"] if destination else [])
    assert {rule["destination"] for rule in rules} <= {destination}
    assert {rule.get("behavior", "allow") for rule in rules} <= {"allow"}
    assert len(seen.of(Approval)[0].suggestions) == 4


@pytest.mark.req("agents.driver.remember")
async def test_where_it_must_not_be_it_is_not(tmp_path: Path) -> None:
    claude, session = scripted_session(tmp_path, suggest_rules(suppress_always_allow_rule=True))
    async with session:
        seen = await play(session, answer=lambda _: Allow(remember="always"))
    assert "updatedPermissions" not in get_payload(claude.given().answers(), "r1")
    assert seen.of(Approval)[0].no_always


@pytest.mark.req("agents.driver.remember")
async def test_under_a_policy_of_ours_claude_remembers_nothing(tmp_path: Path) -> None:
    async def judge(call: ToolCall) -> NeedsApproval:
        return NeedsApproval(call)

    claude, session = scripted_session(tmp_path, suggest_rules(), judge=judge)
    async with session:
        await play(session, answer=lambda _: Allow(remember="always"))
    assert "updatedPermissions" not in get_payload(claude.given().answers(), "r1")


# -- questions


@pytest.mark.req("agents.rule.69")
async def test_a_question_is_answered_by_its_text(tmp_path: Path) -> None:
    script = Script().init().tool("t1", "AskUserQuestion", **QUESTIONS).asks("r1", "t1", "AskUserQuestion", **QUESTIONS)
    script.told("t1", "ok").result("done")
    claude, session = scripted_session(tmp_path, script)
    async with session:
        seen = await play(session, answer=lambda _: Answer({"Which?": "A", "All of?": ["C", "D"]}))
    [question] = seen.of(Question)
    assert not seen.of(Approval)
    assert (question.tool, question.call_id) == ("AskUserQuestion", "t1")
    assert [(item.text, item.several, [choice.label for choice in item.choices]) for item in question.items] == [
        ("Which?", False, ["A", "B"]),
        ("All of?", True, ["C", "D"]),
    ]
    answers = {"Which?": "A", "All of?": "C, D"}
    assert get_payload(claude.given().answers(), "r1") == {"behavior": "allow", "updatedInput": {**QUESTIONS, "answers": answers}}


@pytest.mark.req("agents.rule.69")
@pytest.mark.parametrize("decision", [Answer({}), Deny("ask somebody else"), None])
async def test_a_question_without_an_answer_is_a_no(tmp_path: Path, decision: Decision | None) -> None:
    script = Script().init().tool("t1", "AskUserQuestion", **QUESTIONS).asks("r1", "t1", "AskUserQuestion", **QUESTIONS)
    script.told("t1", "ok").result("done")
    claude, session = scripted_session(tmp_path, script, limits=LIMITS.but(approval=LIMITS.approval if decision else 0.1))
    async with session:
        await play(session, answer=lambda _: decision)
    payload = get_payload(claude.given().answers(), "r1")
    assert payload["behavior"] == "deny"
    assert payload["message"] == ("ask somebody else" if isinstance(decision, Deny) else "the question was not answered")


async def test_a_question_that_asks_nothing_is_an_approval(tmp_path: Path) -> None:
    script = Script().init().tool("t1", "AskUserQuestion").asks("r1", "t1", "AskUserQuestion").told("t1", "ok").result("done")
    claude, session = scripted_session(tmp_path, script)
    async with session:
        seen = await play(session, answer=lambda _: Deny("what?"))
    assert len(seen.of(Approval)) == 1
    assert get_payload(claude.given().answers(), "r1")["message"] == "what?"


# -- where the person is


@pytest.mark.req("agents.rule.42")
async def test_the_runs_metadata_is_stamped_on_what_is_asked_and_nowhere_else(tmp_path: Path) -> None:
    metadata = {"chat_id": "chat-4711", "platform": "pigeon", "bot_uuid": "bot-0815", "control": "left"}
    script = Script().init().tool("t1", "Bash", command="ls").asks("r1", "t1", command="ls").told("t1", "a")
    script.tool("t2", "AskUserQuestion", **QUESTIONS).asks("r2", "t2", "AskUserQuestion", **QUESTIONS).told("t2", "b").result(
        "done"
    )
    claude, session = scripted_session(tmp_path, script, metadata=metadata)
    async with session:
        seen = await play(session, answer=lambda ask: Answer({"Which?": "A"}) if isinstance(ask, Question) else Allow())
    assert [ask.routing for ask in (*seen.of(Approval), *seen.of(Question))] == [metadata, metadata]
    given = claude.given()
    for value in metadata.values():
        assert value not in dump_json([given.argv, given.env, given.lines])


# -- when it is gone

CLOSED = """
greet()
init()
called("t1", "Bash", command="ls")
os.close(0)
say("control_request", request_id="r1", request={"subtype": "can_use_tool", "tool_name": "Bash", "tool_use_id": "t1", "input": {}})
while not os.path.exists("go"):
    time.sleep(0.01)
os.write(2, b"it broke its leg\\n")
os._exit(3)
"""


@pytest.mark.req("agents.edge.06", "agents.live.Z15")
async def test_an_answer_that_nobody_reads_is_told_and_the_end_has_its_own_reason(tmp_path: Path) -> None:
    session = program(tmp_path, CLOSED)
    async with session:
        seen = Seen(session.turn("go"))
        told = asyncio.ensure_future(wait_for(session, lambda event: isinstance(event, NoticeEvent)))
        reading = asyncio.ensure_future(read(seen))
        notice = await told
        (tmp_path / "go").touch()
        await reading
    assert isinstance(notice, NoticeEvent)
    assert "not delivered" in notice.notice.text
    assert isinstance(seen.error, AgentFailed)
    assert seen.error.exit is not None
    assert seen.error.exit.code == 3
    assert "broke its leg" in seen.error.stderr
    assert "pipe" not in str(seen.error).lower()


@pytest.mark.req("agents.edge.06")
async def test_who_answers_after_its_end_is_told_so(tmp_path: Path) -> None:
    session = program(tmp_path, CLOSED.replace("os.close(0)\n", ""))
    async with session:
        seen = Seen(session.turn("go"))

        def answer(ask: Approval | Question) -> None:
            (tmp_path / "go").touch()

        await read(seen, answer)
        [approval] = seen.of(Approval)
        with pytest.raises(SeraiError, match="withdrawn"):
            await approval.decide(Allow())
    assert isinstance(seen.error, AgentFailed)
    assert seen.error.kind == "exited"
    assert [event.id for event in seen.of(RequestCancelled)] == ["r1"]


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
    _, session = scripted_session(tmp_path, script)
    async with session:
        [ask] = (await play(session)).of(Approval)
    assert (ask.title, ask.display_name, ask.description, ask.blocked_path) == ("T", "Bash", "lists", "/x")
    assert (ask.reason, ask.reason_type, ask.suggestions) == ("ared", "rule", ({"type": "addRules"},))
    assert (ask.needs_person, ask.default_no, ask.no_always) == (True, True, True)
    assert ask.call.id == "t1"


async def test_what_goes_wrong_while_it_is_asked_is_a_no(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a disk that is full: the approval must be on it before anybody sees it (design rule 14)."""
    script = Script().init().tool("t1", "Bash", command="ls").asks("r1", "t1", command="ls").told("t1", "a").result("done")
    claude, session = scripted_session(tmp_path, script)

    async def fails(*_: Any, **__: Any) -> Any:
        raise OSError("no space left")

    async with session:
        monkeypatch.setattr(session.hub, "ask", fails)
        assert (await play(session)).result.text == "done"
    payload = get_payload(claude.given().answers(), "r1")
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

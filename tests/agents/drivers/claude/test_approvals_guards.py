"""Guards and rules over every call: the hook, what it answers, and what happens where it could not hold."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serai.agents.driver import NeedsApproval
from serai.errors import AgentFailed
from serai.model.approvals import Allow, Answer, Approval, Deny, Question
from serai.model.events import ToolCalled, ToolStarted
from serai.model.tools import ToolCall
from serai.testing.claude.script import Script
from tests.support.claude.captures import LIMITS
from tests.support.claude.interceptors import make_judge
from tests.support.claude.scripted_sessions import QUICK, Seen, driver_of, get_payload, play, program, scripted_session

ONE = Script().init().tool("t1", "Bash", command="ls").hooked("h1", "t1", command="ls").told("t1", "a").result("done")


def verdict(answers: dict[str, dict[str, Any]], request: str = "h1") -> dict[str, Any]:
    output = get_payload(answers, request)["hookSpecificOutput"]
    assert output["hookEventName"] == "PreToolUse"
    return {name: value for name, value in output.items() if name != "hookEventName"}


@pytest.mark.req("agents.driver.hook")
async def test_every_call_is_judged_before_it_runs(tmp_path: Path) -> None:
    judged: list[ToolCall] = []
    claude, session = scripted_session(tmp_path, ONE, judge=make_judge(Deny("no listing"), seen=judged))
    async with session:
        seen = await play(session)
    assert [(call.name, call.arguments, call.id, call.asker) for call in judged] == [("bash", {"command": "ls"}, "t1", "claude")]
    assert verdict(claude.given().answers()) == {"permissionDecision": "deny", "permissionDecisionReason": "no listing"}
    assert seen.result.text == "done"
    assert not seen.of(Approval)


@pytest.mark.req("agents.driver.hook")
async def test_the_hook_is_asked_for_all_calls_and_blocks_when_it_fails(tmp_path: Path) -> None:
    claude, session = scripted_session(tmp_path, ONE, judge=make_judge(Deny()))
    async with session:
        await play(session)
    request = claude.given().frames[0]["request"]
    [matcher] = request["hooks"]["PreToolUse"]
    assert matcher["matcher"] is None
    assert matcher["onFailure"] == "block"
    assert matcher["timeout"] == LIMITS.agent_hook
    assert len(matcher["hookCallbackIds"]) == 1
    assert verdict(claude.given().answers())["permissionDecisionReason"]  # never empty: the model is told something


async def test_without_a_judge_no_hook_is_asked_for(tmp_path: Path) -> None:
    claude, session = scripted_session(tmp_path, Script().init().result("done"))
    async with session:
        await play(session)
    assert not claude.given().frames[0]["request"].get("hooks")


@pytest.mark.req("agents.driver.closed")
@pytest.mark.parametrize("failure", [RuntimeError("lost its head"), asyncio.CancelledError()], ids=["raises", "is cancelled"])
async def test_a_judge_that_fails_has_not_said_yes(tmp_path: Path, failure: BaseException) -> None:
    claude, session = scripted_session(tmp_path, ONE, judge=make_judge(failure))
    async with session:
        seen = await play(session)
    assert verdict(claude.given().answers())["permissionDecision"] == "deny"
    assert seen.result.text == "done"


HOOKS = """
greet()
init()
about = {{"subtype": "hook_callback", "callback_id": {callback!r}, "tool_use_id": "t1", "input": {input!r}}}
say("control_request", request_id="h1", request=about)
result(json.dumps(hear()["response"]["response"]["hookSpecificOutput"]))
while hear():
    pass
"""
SOUND = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}}


@pytest.mark.req("agents.driver.closed")
@pytest.mark.parametrize(
    ("callback", "input"),
    [
        ("another", SOUND),
        ("guard", {}),
        ("guard", {"tool_name": "Bash"}),
        ("guard", {"tool_name": "Bash", "tool_input": "ls"}),
        ("guard", {"tool_name": 7, "tool_input": {"command": "ls"}}),
    ],
)
async def test_a_hook_that_cannot_be_read_is_a_no_that_nobody_is_asked_about(
    tmp_path: Path, callback: str, input: dict[str, Any]
) -> None:
    judged: list[ToolCall] = []
    async with program(tmp_path, HOOKS.format(callback=callback, input=input), judge=make_judge(Allow(), seen=judged)) as session:
        seen = await play(session)
    assert msgspec.json.decode(seen.result.text)["permissionDecision"] == "deny"
    assert not judged


async def test_the_same_hook_when_it_can_be_read_is_judged(tmp_path: Path) -> None:
    judged: list[ToolCall] = []
    async with program(tmp_path, HOOKS.format(callback="guard", input=SOUND), judge=make_judge(Allow(), seen=judged)) as session:
        seen = await play(session)
    assert msgspec.json.decode(seen.result.text)["permissionDecision"] != "deny"
    assert len(judged) == 1


# -- where guards would not hold

# It answers `initialize` in some way, tells its version in some way, and acts when its stdin is closed: where it is let go in
# peace, it does what it was told.
UNGUARDED = """
first = hear()
{reply}
hear()
{init}
rest()
open("ran", "w").close()
result("did it")
time.sleep(60)
"""
REFUSED = 'say("control_response", response={"subtype": "error", "request_id": first["request_id"], "error": "hooks are off"})'
OLD = 'say("system", subtype="init", claude_code_version="2.0.9", model="fake")'
NONE = 'say("system", subtype="init", model="fake")'


@pytest.mark.req("agents.driver.unguarded")
@pytest.mark.parametrize(
    ("reply", "init"),
    [
        (REFUSED, "init()"),
        ('reply(first, {"hooks_applied": False})', "init()"),
        ("reply(first, {})", OLD),
        ("reply(first, {})", NONE),
    ],
    ids=["it refuses initialize", "it does not apply hooks", "an old version", "no version"],
)
async def test_one_that_would_not_ask_is_ended_at_once(tmp_path: Path, reply: str, init: str) -> None:
    """With all its time on the ladder: it must not have any of it."""
    source = UNGUARDED.format(reply=reply, init=init)
    async with program(tmp_path, source, judge=make_judge(Allow()), limits=LIMITS.but(agent_stop=40.0)) as session:
        seen = await play(session)
        assert isinstance(seen.error, AgentFailed)
        assert seen.error.kind == "not_guarded"
        assert seen.result.status == "error"
        assert "2.1.197" in seen.error.hint
    assert not (tmp_path / "ran").exists()


async def test_who_has_no_guards_may_use_an_old_one(tmp_path: Path) -> None:
    source = UNGUARDED.format(reply="reply(first, {})", init=OLD).replace("rest()", "")
    async with program(tmp_path, source, limits=QUICK) as session:
        assert (await play(session)).result.text == "did it"


# -- what goes back


def build_caller(*calls: str) -> str:
    """A program that makes these calls, and tells as its result what was said to them."""
    return f"greet()\ninit()\nresult(json.dumps([{', '.join(calls)}]))\nrest()\n"


def read_answers(seen: Seen) -> list[dict[str, Any]]:
    answers: list[dict[str, Any]] = msgspec.json.decode(seen.result.text)
    return answers


READ = 'tool("t1", "Read", file_path="/x/a", limit=3)'


@pytest.mark.req("agents.driver.rewrite")
async def test_what_was_changed_goes_back_in_the_agents_own_words(tmp_path: Path) -> None:
    changed = make_judge(lambda call: Allow({**call.arguments, "path": "/x/b"}))
    async with program(tmp_path, build_caller(READ), judge=changed) as session:
        seen = await play(session)
    [answers] = read_answers(seen)
    assert answers["hook"]["updatedInput"] == {"file_path": "/x/b", "limit": 3}
    assert answers["request"] == {"behavior": "allow", "updatedInput": {"file_path": "/x/b", "limit": 3}}
    assert [event.call.arguments for event in seen.of(ToolStarted)] == [{"path": "/x/b", "limit": 3}]
    assert [event.call.arguments for event in seen.of(ToolCalled)] == [{"path": "/x/a", "limit": 3}]
    assert not seen.of(Approval)


@pytest.mark.req("agents.driver.rewrite")
async def test_what_is_allowed_unchanged_runs_as_it_was_judged_and_nobody_is_asked(tmp_path: Path) -> None:
    """The hook itself never says yes: another hook could make something else of it afterwards."""
    other = 'tool("t2", "Bash", command="ls", request={"input": {"command": "rm"}})'
    async with program(tmp_path, build_caller(READ, other), judge=make_judge(Allow())) as session:
        seen = await play(session)
    first, second = read_answers(seen)
    assert first["hook"]["permissionDecision"] == second["hook"]["permissionDecision"] == "ask"
    assert first["request"] == {"behavior": "allow", "updatedInput": {"file_path": "/x/a", "limit": 3}}
    assert second["request"] == {"behavior": "allow", "updatedInput": {"command": "ls"}}
    assert not seen.of(Approval)


@pytest.mark.req("agents.driver.rewrite")
@pytest.mark.parametrize("arguments", [{"path": "/x/a", "recursive": True}, "ls", None])
async def test_a_change_that_cannot_be_told_to_it_is_a_no(tmp_path: Path, arguments: Any) -> None:
    async with program(tmp_path, build_caller(READ), judge=make_judge(Allow(arguments))) as session:
        [answers] = read_answers(await play(session))
    assert answers["hook"]["permissionDecision"] == "deny"
    assert "updatedInput" not in answers["hook"]


@pytest.mark.req("agents.driver.rewrite")
async def test_nor_can_a_person_make_such_a_change(tmp_path: Path) -> None:
    async with program(tmp_path, build_caller(READ), judge=make_judge(NeedsApproval)) as session:
        seen = await play(session, answer=lambda _: Allow({"path": "/x/a", "recursive": True}))
    [answers] = read_answers(seen)
    assert answers["request"]["behavior"] == "deny"
    assert not [event for event in seen.of(ToolStarted) if "recursive" in event.call.arguments]


# -- what a person decides


@pytest.mark.req("agents.driver.ask")
async def test_what_nobody_decided_is_asked_as_guards_made_it(tmp_path: Path) -> None:
    """Whatever the program says then: what is shown and what runs is what the guards have seen, the very same call."""
    made: list[ToolCall] = []

    def ask(call: ToolCall) -> NeedsApproval:
        made.append(msgspec.structs.replace(call, arguments={"command": "ls -a"}))
        return NeedsApproval(made[0])

    other = 'tool("t1", "Bash", command="ls", request={"input": {"command": "ls -l"}})'
    async with program(tmp_path, build_caller(other), judge=make_judge(ask)) as session:
        seen = await play(session)
    [approval] = seen.of(Approval)
    assert approval.call is made[0]
    assert not approval.needs_person
    assert not approval.reason
    [answers] = read_answers(seen)
    assert answers["hook"]["updatedInput"] == {"command": "ls -a"}
    assert answers["request"] == {"behavior": "allow", "updatedInput": {"command": "ls -a"}}


@pytest.mark.req("agents.driver.ask")
async def test_a_persons_no_is_the_answer(tmp_path: Path) -> None:
    async with program(tmp_path, build_caller('tool("t1", "Bash", command="ls")'), judge=make_judge(NeedsApproval)) as session:
        [answers] = read_answers(await play(session, answer=lambda _: Deny("not today")))
    assert answers["request"] == {"behavior": "deny", "message": "not today"}


@pytest.mark.req("agents.driver.ask")
@pytest.mark.parametrize(
    "reason",
    [
        {"decision_reason_type": "rule", "decision_reason": "a rule of its own"},
        {"decision_reason_type": "hook", "decision_reason": "a hook of its own"},
        {"decision_reason_type": "mode"},
        {"decision_reason_type": "", "decision_reason": ""},
    ],
)
async def test_what_claude_has_a_reason_of_its_own_to_ask_is_asked_although_rules_allow_it(
    tmp_path: Path, reason: dict[str, str]
) -> None:
    call = f'tool("t1", "Bash", command="ls", request={reason!r})'
    async with program(tmp_path, build_caller(call), judge=make_judge(Allow())) as session:
        seen = await play(session, answer=lambda _: Deny("no"))
    [approval] = seen.of(Approval)
    assert approval.needs_person
    assert read_answers(seen)[0]["request"]["behavior"] == "deny"


@pytest.mark.req("agents.driver.ask")
async def test_while_it_plans_rules_let_it_look_and_nothing_else(tmp_path: Path) -> None:
    calls = build_caller(READ.replace(")", ', mode="plan")'), 'tool("t2", "Bash", command="ls", mode="plan")')
    async with program(tmp_path, calls, judge=make_judge(Allow())) as session:
        seen = await play(session, answer=lambda _: Deny("it plans"))
    [approval] = seen.of(Approval)
    assert approval.call.name == "bash"
    assert approval.needs_person
    assert approval.reason_type == "mode"
    assert [answers["request"]["behavior"] for answers in read_answers(seen)] == ["allow", "deny"]


@pytest.mark.req("agents.driver.ask")
async def test_who_has_not_been_judged_is_asked_about(tmp_path: Path) -> None:
    """It asks about a call that did not come by the hook: no yes of before counts for it."""
    source = """
greet()
init()
tool("t1", "Bash", command="ls")
result(json.dumps(ask("r2", subtype="can_use_tool", tool_name="Bash", tool_use_id="t2", input={"command": "rm"})))
rest()
"""
    async with program(tmp_path, source, judge=make_judge(Allow())) as session:
        seen = await play(session, answer=lambda _: Deny("no"))
    assert [approval.call.arguments for approval in seen.of(Approval)] == [{"command": "rm"}]
    assert msgspec.json.decode(seen.result.text)["behavior"] == "deny"


QUESTIONS = {
    "questions": [{"question": "Which?", "header": "h", "multiSelect": False, "options": [{"label": "A"}, {"label": "B"}]}]
}
PERSONAL = build_caller(f'tool("t1", "AskUserQuestion", **{QUESTIONS!r})', 'tool("t2", "ExitPlanMode")')


@pytest.mark.req("agents.driver.person")
async def test_questions_and_plans_reach_a_person_whatever_was_judged(tmp_path: Path) -> None:
    async with program(tmp_path, PERSONAL, judge=make_judge(Allow())) as session:
        seen = await play(session, answer=lambda ask: Answer({"Which?": "A"}) if isinstance(ask, Question) else Deny("stay"))
    assert len(seen.of(Question)) == len(seen.of(Approval)) == 1
    question, plan = read_answers(seen)
    assert question["request"]["updatedInput"] == {**QUESTIONS, "answers": {"Which?": "A"}}
    assert plan["request"]["behavior"] == "deny"


@pytest.mark.req("agents.driver.person")
async def test_what_guards_refuse_reaches_nobody(tmp_path: Path) -> None:
    async with program(tmp_path, PERSONAL, judge=make_judge(Deny("no questions"))) as session:
        seen = await play(session)
    assert not seen.of(Question)
    assert not seen.of(Approval)
    assert [answers["hook"]["permissionDecision"] for answers in read_answers(seen)] == ["deny", "deny"]


# -- withdrawn


@pytest.mark.req("agents.driver.hook")
async def test_a_hook_that_is_withdrawn_is_judged_no_further_and_not_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked, ended = asyncio.Event(), asyncio.Event()

    async def judge(call: ToolCall) -> Allow | Deny | NeedsApproval:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    script = Script().init().tool("t1", "Bash", command="ls").hooked("h1", "t1", answered=False, command="ls")
    script.request("get_session_cost").withdraws("h1").told("t1", "no", is_error=True).result("done")
    claude, session = scripted_session(tmp_path, script, judge=judge)
    async with session:
        turn = session.turn("go")
        turn.start()
        await asked.wait()
        await driver_of(session).send_control("get_session_cost")
        assert (await turn).text == "done"
        async with asyncio.timeout(30):
            await ended.wait()
    assert "h1" not in claude.given().answers()
    assert "could not be judged" not in caplog.text  # nothing went wrong


@pytest.mark.req("agents.driver.hook")
async def test_what_was_judged_and_never_asked_is_not_kept_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a call that another hook denied."""
    monkeypatch.setattr("serai.agents.drivers.claude.approvals._MOST", 2)
    script = Script().init()
    for number in range(5):
        script.hooked(f"h{number}", f"t{number}", command="ls")
    _, session = scripted_session(tmp_path, script.result("done"), judge=make_judge(Allow()))
    async with session:
        await play(session)
        asking = driver_of(session)._approvals
        assert asking is not None
        assert [judged.call.id for judged in asking._judged.values()] == ["t3", "t4"]

"""What is asked of a person: answered once, whoever answers, and everything the agent said about it arrives."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.errors import Closed
from serai.model.approvals import Allow, Answer, Approval, Decision, Deny, Question, QuestionItem, stamp_request
from serai.model.events import Event
from serai.model.tools import ToolCall


def make_requests(decisions: list[Decision]) -> tuple[Approval, Question]:
    async def respond(decision: Decision) -> None:
        decisions.append(decision)

    approval = Approval(id="1", agent="claude", call=ToolCall("bash"))
    question = Question(id="2", items=(QuestionItem("Which?"),))
    approval.answer_with(respond)
    question.answer_with(respond)
    return approval, question


@pytest.mark.req("host.model.ask-once")
async def test_an_approval_is_answered_once_and_whoever_was_first_counts() -> None:
    decisions: list[Decision] = []
    approval, _ = make_requests(decisions)
    before = approval.answered
    await approval.deny("not today", interrupt=True)
    assert (before, approval.answered) == (False, True)
    with pytest.raises(Closed, match="claude: it was answered or withdrawn already"):
        await approval.allow()
    assert decisions == [Deny("not today", interrupt=True)]


async def test_an_approval_may_be_given_with_other_arguments_and_be_remembered() -> None:
    decisions: list[Decision] = []
    approval, _ = make_requests(decisions)
    await approval.allow({"command": "ls -l"}, remember="session")
    assert decisions == [Allow({"command": "ls -l"}, "session")]
    assert approval.tool == "bash"


@pytest.mark.req("host.model.ask-once")
@pytest.mark.parametrize("dismissed", [True, False])
async def test_a_question_is_answered_or_dismissed_once(dismissed: bool) -> None:
    decisions: list[Decision] = []
    _, question = make_requests(decisions)
    await (question.dismiss() if dismissed else question.answer({"Which?": "a"}))
    with pytest.raises(Closed):
        await question.answer({"Which?": "b"})
    assert decisions == [Answer({} if dismissed else {"Which?": "a"})]


async def test_an_ask_that_nobody_waits_for_cannot_be_answered_and_the_way_back_is_no_part_of_it() -> None:
    decisions: list[Decision] = []
    approval, _ = make_requests(decisions)
    twin = Approval(id="1", agent="claude", call=ToolCall("bash"))
    assert approval == twin
    assert "respond" not in repr(approval)
    with pytest.raises(Closed):
        await twin.allow()


# What an agent sends with an approval (spec agents 1.10), where it is found, and a value that is not the default.
CARRIED: dict[str, tuple[str, Any]] = {
    "title": ("title", "Run a command"),
    "display_name": ("display_name", "Shell"),
    "description": ("description", "lists the folder"),
    "suggestions": ("suggestions", ({"type": "setMode", "mode": "acceptEdits", "destination": "session"},)),
    "blocked_path": ("blocked_path", "/etc/passwd"),
    "decision_reason": ("reason", "outside of the working directory"),
    "decision_reason_type": ("reason_type", "workingDir"),
    "agent_id": ("lane", "helper-1"),
    "tool_use_id": ("call", ToolCall("bash", {"command": "ls"}, id="toolu_1")),
    "requires_user_interaction": ("needs_person", True),
    "default_to_no": ("default_no", True),
    "suppress_always_allow": ("no_always", True),
}


@pytest.mark.req("agents.rule.17")
def test_an_approval_carries_everything_that_the_agent_sent_with_it() -> None:
    sent: dict[str, Any] = dict(CARRIED.values())
    approval = Approval(id="1", **sent)
    again = msgspec.json.decode(msgspec.json.encode(approval), type=Event)
    assert isinstance(again, Approval)
    assert {field: getattr(again, field) for field in sent} == sent
    assert again.call.id == "toolu_1"


@pytest.mark.req("agents.rule.17")
def test_an_approval_carries_nothing_that_the_agent_did_not_send() -> None:
    approval = Approval(id="1", call=ToolCall("bash"))
    assert msgspec.to_builtins(approval) == {"type": "approval", "id": "1", "call": {"name": "bash"}}


# -- stamps -----------------------------------------------------------------------------------------------------------------------

RUN = {"chat_id": "42", "platform": "telegram", "bot_uuid": "b-1"}


@pytest.mark.req("agents.scenario.G7")
@pytest.mark.parametrize(
    "ask",
    [
        Approval(id="1", session="own", routing={"platform": "matrix", "chat_id": ""}, call=ToolCall("bash", {"command": "ls"})),
        Question(id="1", session="own", routing={"platform": "matrix", "chat_id": ""}, items=(QuestionItem("Which?"),)),
    ],
    ids=["approval", "question"],
)
def test_an_ask_keeps_its_own_stamps_and_takes_those_of_the_run_where_it_has_none(ask: Approval | Question) -> None:
    passed_on = stamp_request(ask, session="run", routing=RUN)
    assert passed_on.routing == {"chat_id": "42", "platform": "matrix", "bot_uuid": "b-1"}
    assert passed_on.session == "own"
    assert msgspec.structs.replace(passed_on, routing=ask.routing) == ask  # nothing else is another
    assert ask.routing == {"platform": "matrix", "chat_id": ""}


@pytest.mark.req("agents.scenario.G7")
def test_an_ask_without_stamps_takes_all_of_the_run_s_and_none_go_into_the_tool_s_arguments() -> None:
    approval = Approval(id="1", call=ToolCall("bash", {"command": "ls"}))
    passed_on = stamp_request(approval, session="run", routing=RUN)
    assert (passed_on.session, passed_on.routing) == ("run", RUN)
    assert passed_on.call.arguments == {"command": "ls"}
    assert stamp_request(approval) == approval


@pytest.mark.req("agents.scenario.G7", "host.model.ask-once")
@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("bound_first", [True, False])
async def test_an_ask_and_its_stamped_copies_are_answered_once_between_them(first: int, bound_first: bool) -> None:
    decisions: list[Decision] = []

    async def respond(decision: Decision) -> None:
        decisions.append(decision)

    approval = Approval(id="1", agent="claude", call=ToolCall("bash"))
    if bound_first:
        approval.answer_with(respond)
    copy = stamp_request(approval, routing=RUN)
    all_of_them = [approval, copy, stamp_request(copy, session="s")]
    if not bound_first:
        approval.answer_with(respond)
    assert [ask.answered for ask in all_of_them] == [False] * 3
    await all_of_them[first].allow()
    assert [ask.answered for ask in all_of_them] == [True] * 3
    for ask in all_of_them:
        with pytest.raises(Closed):
            await ask.deny("too late")
    assert decisions == [Allow()]


STAMPS = st.dictionaries(st.sampled_from(["chat_id", "platform", "bot_uuid", "thread"]), st.sampled_from(["", "x", "y"]))


@pytest.mark.req("agents.scenario.G7")
@given(own=STAMPS, run=STAMPS, session=st.sampled_from(["", "own"]))
def test_of_every_stamp_the_own_one_counts_before_the_run_s(own: dict[str, str], run: dict[str, str], session: str) -> None:
    found = stamp_request(Question(id="1", session=session, routing=own, items=()), session="run", routing=run)
    assert found.session == (session or "run")
    for name in own | run:
        assert found.routing.get(name, "") == (own.get(name) or run.get(name, ""))


# -- decisions --------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("agents.rule.51")
def test_a_decision_is_exactly_one_of_allow_deny_and_answer() -> None:
    assert set(get_args(Decision)) == {Allow, Deny, Answer}
    assert msgspec.json.decode(b'{"type":"allow"}', type=Decision) == Allow()
    for neither in (b'{"type":"maybe"}', b"{}", b"true", b"null", b'{"type":["allow","deny"]}'):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(neither, type=Decision)


@pytest.mark.req("agents.rule.51")
def test_an_allow_may_change_the_input_and_say_how_long_it_holds() -> None:
    assert Allow().arguments is msgspec.UNSET  # none is not the same as null
    assert Allow(None).arguments is None
    assert (Allow().remember, Allow({"command": "ls"}, "project").remember) == ("once", "project")
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"type":"allow","remember":"a while"}', type=Decision)


@pytest.mark.req("agents.rule.51")
def test_a_deny_has_a_message_and_goes_on_with_the_turn_unless_it_says_otherwise() -> None:
    assert (Deny("not today").why, Deny("not today").interrupt, Deny(interrupt=True).interrupt) == ("not today", False, True)


@pytest.mark.req("agents.rule.51")
def test_an_answer_has_a_value_for_each_question() -> None:
    answers = {"Which colour?": "Red", "Which sizes?": ["S", "L"]}
    assert msgspec.json.decode(msgspec.json.encode(Answer(answers)), type=Decision) == Answer(answers)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"type":"answer"}', type=Decision)

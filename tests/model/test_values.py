"""What the neutral values do by themselves."""

from __future__ import annotations

import pytest

import serai.model
from serai.errors import Closed
from serai.model.actions import Display, Notice
from serai.model.ask import Allow, Answer, Approval, Choice, Decision, Deny, Item, Question
from serai.model.events import Event, Message, StepStarted, Text, Thinking, ToolInput, TurnResult, kind_of, merged
from serai.model.provider import Model
from serai.model.surface import HeadlessSurface, ScriptedSurface, Surface
from serai.model.tools import ImageBlock, TextBlock, ToolCall, ToolResult, ToolSpec

APPROVAL = Approval(id="1", agent="claude", call=ToolCall("bash", {"command": "ls"}))
QUESTION = Question(id="2", items=(Item("Which?", choices=(Choice("a"), Choice("b"))),))


def test_everything_the_package_promises_is_there() -> None:
    assert all(getattr(serai.model, name) is not None for name in serai.model.__all__)


# -- tools ------------------------------------------------------------------------------------------------------------------------


def test_the_text_of_a_result_is_its_text_blocks() -> None:
    assert ToolResult((TextBlock("a"), ImageBlock(b""), TextBlock("b"))).text == "a\nb"
    assert ToolResult().text == ""
    assert ToolResult.error("no", code="DENIED", hint="ask") == ToolResult((TextBlock("no"),), True, "DENIED", "ask")


def test_a_tool_without_a_schema_takes_any_object_and_shares_it_with_no_other() -> None:
    first, second = ToolSpec("a"), ToolSpec("b")
    assert first.schema == {"type": "object"}
    assert first.schema is not second.schema
    assert ToolCall("a").arguments == {}


# -- actions ----------------------------------------------------------------------------------------------------------------------


def test_notes_carry_the_name_of_their_guest_on_each_line() -> None:
    assert Display("a\nb", "weather").lines() == ["[weather] a", "[weather] b"]
    assert Notice("a\n\nb", source="serai").lines() == ["[serai] a", "[serai] ", "[serai] b"]
    assert Notice("a").lines() == ["a"]


# -- events -----------------------------------------------------------------------------------------------------------------------


def test_an_event_and_its_type_have_the_same_kind() -> None:
    assert kind_of(StepStarted(step=1)) == kind_of(StepStarted) == "step_started"
    assert kind_of(APPROVAL) == "approval"


@pytest.mark.parametrize("kind", [Text, Thinking, ToolInput])
def test_pieces_of_one_stream_are_joined_and_keep_the_place_of_the_first(kind: type[Text]) -> None:
    first = kind(text="a", seq=1, at=1.0, session="s", index=2, native={"piece": 1})
    second = kind(text="b", seq=2, at=2.0, session="s", index=2, native={"piece": 2})
    assert merged(first, second) == kind(text="ab", seq=1, at=1.0, session="s", index=2)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Text(text="a"), Thinking(text="b")),
        (Text(text="a"), Text(text="b", index=1)),
        (Text(text="a"), Text(text="b", lane="sub")),
        (Text(text="a"), Text(text="b", session="other")),
        (Text(text="a"), Text(text="b", agent="other")),
        (StepStarted(step=1), StepStarted(step=1)),
        (Message(), Message()),
    ],
)
def test_everything_else_stays_apart(first: Event, second: Event) -> None:
    assert merged(first, second) is None


def test_a_turn_is_well_only_when_it_succeeded() -> None:
    assert TurnResult(status="success").ok
    assert not TurnResult(status="denied").ok


def test_a_model_is_known_by_its_provider_and_id() -> None:
    assert Model("opus", provider="anthropic").key == "anthropic/opus"


# -- asks -------------------------------------------------------------------------------------------------------------------------


def asking(decisions: list[Decision]) -> tuple[Approval, Question]:
    async def respond(decision: Decision) -> None:
        decisions.append(decision)

    approval = Approval(id="1", agent="claude", call=ToolCall("bash"))
    question = Question(id="2", items=(Item("Which?"),))
    approval.answer_with(respond)
    question.answer_with(respond)
    return approval, question


@pytest.mark.req("host.model.ask-once")
async def test_an_approval_is_answered_once_and_whoever_was_first_counts() -> None:
    decisions: list[Decision] = []
    approval, _ = asking(decisions)
    before = approval.answered
    await approval.deny("not today", interrupt=True)
    assert (before, approval.answered) == (False, True)
    with pytest.raises(Closed, match="claude: it was answered or withdrawn already"):
        await approval.allow()
    assert decisions == [Deny("not today", interrupt=True)]


async def test_an_approval_may_be_given_with_other_arguments_and_be_remembered() -> None:
    decisions: list[Decision] = []
    approval, _ = asking(decisions)
    await approval.allow({"command": "ls -l"}, remember="session")
    assert decisions == [Allow({"command": "ls -l"}, "session")]
    assert approval.tool == "bash"


@pytest.mark.req("host.model.ask-once")
@pytest.mark.parametrize("dismissed", [True, False])
async def test_a_question_is_answered_or_dismissed_once(dismissed: bool) -> None:
    decisions: list[Decision] = []
    _, question = asking(decisions)
    await (question.dismiss() if dismissed else question.answer({"Which?": "a"}))
    with pytest.raises(Closed):
        await question.answer({"Which?": "b"})
    assert decisions == [Answer({} if dismissed else {"Which?": "a"})]


async def test_an_ask_that_nobody_waits_for_cannot_be_answered_and_the_way_back_is_no_part_of_it() -> None:
    decisions: list[Decision] = []
    approval, _ = asking(decisions)
    twin = Approval(id="1", agent="claude", call=ToolCall("bash"))
    assert approval == twin
    assert "respond" not in repr(approval)
    with pytest.raises(Closed):
        await twin.allow()


# -- surfaces ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("host.model.nobody")
async def test_where_nobody_is_approvals_are_denied_and_questions_dismissed() -> None:
    surface: Surface = HeadlessSurface()
    assert not surface.interactive
    assert await surface.ask(APPROVAL) == Deny("nobody is there to approve it")
    assert await surface.ask(QUESTION) == Answer({})
    surface.act(Notice("unseen"))
    surface.tell(StepStarted(step=1))


async def test_a_script_is_followed_and_past_its_end_nobody_is_there() -> None:
    surface = ScriptedSurface([Allow(), lambda request: Deny(f"no {request.id}")])
    asked: Surface = surface
    assert asked.interactive
    assert [await surface.ask(APPROVAL) for _ in range(3)] == [Allow(), Deny("no 1"), Deny("nobody is there to approve it")]
    assert await surface.ask(QUESTION) == Answer({})
    assert surface.asked == [APPROVAL, APPROVAL, APPROVAL, QUESTION]
    surface.act(Notice("seen"))
    surface.tell(StepStarted(step=1))
    assert (surface.actions, surface.events) == ([Notice("seen")], [StepStarted(step=1)])

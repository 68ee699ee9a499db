"""Surfaces without a screen: nobody, a script, an embedder's own functions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from serai.model.actions import Action, Notice
from serai.model.approvals import Allow, Answer, Approval, Decision, Deny, Question, QuestionItem, QuestionOption
from serai.model.events import Event, StepStarted, TurnEnded, TurnResult
from serai.model.surface import CallbackSurface, HeadlessSurface, ScriptedSurface, SelectiveSurface, Surface
from serai.model.tools import ToolCall

LS = {"command": "ls"}
APPROVAL = Approval(id="1", agent="claude", call=ToolCall("bash", LS))
QUESTION = Question(id="2", items=(QuestionItem("Which?", choices=(QuestionOption("a"), QuestionOption("b"))),))
NOBODY = Deny("nobody is there to approve it")
HOUR = 3600.0  # a delay that no test waits for
INSTANT = 1e-9  # a delay that lets all others run, and no more


def approval(tool: str) -> Approval:
    return Approval(id=tool, call=ToolCall(tool, {"for": tool}))


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


# -- a script ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("agents.scenario.Q5")
async def test_a_script_allows_by_default_only_if_told_so_and_then_with_the_request_s_own_input() -> None:
    assert await ScriptedSurface(default=Allow()).ask(APPROVAL) == Allow(LS)
    assert await ScriptedSurface().ask(APPROVAL) == NOBODY


async def test_a_default_with_arguments_of_its_own_keeps_them() -> None:
    assert await ScriptedSurface(default=Allow({"command": "pwd"})).ask(APPROVAL) == Allow({"command": "pwd"})


@pytest.mark.parametrize(
    ("default", "approved", "answered"),
    [
        (Allow(), Allow(LS), Answer({})),  # a yes answers no question
        (Deny("closed"), Deny("closed"), Deny("closed")),
        (Answer({"Which?": "a"}), NOBODY, Answer({"Which?": "a"})),  # and an answer allows nothing
    ],
    ids=["allow", "deny", "answer"],
)
async def test_a_default_is_given_to_what_it_can_answer(default: Decision, approved: Decision, answered: Decision) -> None:
    surface = ScriptedSurface(default=default)
    assert [await surface.ask(APPROVAL), await surface.ask(QUESTION)] == [approved, answered]


@pytest.mark.req("agents.scenario.Q6")
async def test_a_script_is_used_up_first_in_first_out_and_then_comes_the_default() -> None:
    surface = ScriptedSurface([Deny("first"), Allow({"command": "second"}), Deny("third")], default=Allow())
    given = [await surface.ask(APPROVAL) for _ in range(5)]
    assert given == [Deny("first"), Allow({"command": "second"}), Deny("third"), Allow(LS), Allow(LS)]


@pytest.mark.req("agents.scenario.Q12")
async def test_a_question_gets_exactly_the_answer_that_was_scripted_and_leaves_approvals_theirs() -> None:
    surface = ScriptedSurface(
        [Deny("for the approval"), Answer({"Which?": ["b", "a"]}), Answer({"Which?": "else"})], default=Allow()
    )
    assert await surface.ask(QUESTION) == Answer({"Which?": ["b", "a"]})
    assert await surface.ask(APPROVAL) == Deny("for the approval")
    assert await surface.ask(QUESTION) == Answer({"Which?": "else"})
    assert await surface.ask(QUESTION) == Answer({})


@pytest.mark.req("agents.scenario.Q7")
async def test_a_script_that_takes_longer_than_the_deadline_raises() -> None:
    surface = ScriptedSurface([Allow()], delay=HOUR)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await surface.ask(APPROVAL)
    assert surface.calls == 1


@pytest.mark.req("agents.scenario.Q8")
async def test_a_script_that_is_cancelled_during_its_delay_raises() -> None:
    surface = ScriptedSurface([Allow()], delay=HOUR)
    asking = asyncio.create_task(surface.ask(APPROVAL))
    while not surface.calls:
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_a_cancelled_request_uses_up_no_answer() -> None:
    surface = ScriptedSurface([Allow({"command": "kept"})], delay=INSTANT)
    asking = asyncio.create_task(surface.ask(APPROVAL))
    while not surface.calls:
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled()
    assert await surface.ask(APPROVAL) == Allow({"command": "kept"})


@pytest.mark.req("agents.scenario.Q9")
@pytest.mark.parametrize("remembered", [Allow(remember="session"), lambda _: Allow(remember="always")], ids=["value", "function"])
async def test_a_remembered_allow_serves_its_tool_again_and_leaves_the_script_to_others(
    remembered: Decision | Callable[[Approval | Question], Decision],
) -> None:
    surface = ScriptedSurface([remembered, Deny("for the other")])
    await surface.ask(approval("read"))
    assert [await surface.ask(approval("read")) for _ in range(2)] == [Allow({"for": "read"})] * 2
    assert await surface.ask(approval("write")) == Deny("for the other")
    assert await surface.ask(approval("write")) == NOBODY


async def test_an_allow_for_once_is_not_remembered() -> None:
    surface = ScriptedSurface([Allow(), Deny("the second time")])
    assert [await surface.ask(APPROVAL) for _ in range(2)] == [Allow(), Deny("the second time")]


@pytest.mark.req("agents.scenario.Q10")
async def test_tools_may_be_allowed_from_the_start_without_using_up_the_script() -> None:
    surface = ScriptedSurface([Deny("for the other")], always=["read", "grep"])
    assert [await surface.ask(approval(tool)) for tool in ("read", "grep")] == [Allow({"for": "read"}), Allow({"for": "grep"})]
    assert await surface.ask(approval("write")) == Deny("for the other")


async def test_a_question_of_a_tool_that_is_always_allowed_is_still_asked() -> None:
    surface = ScriptedSurface([Answer({"Which?": "a"})], always=["AskUserQuestion"])
    assert await surface.ask(Question(id="1", tool="AskUserQuestion", items=QUESTION.items)) == Answer({"Which?": "a"})


@pytest.mark.req("agents.scenario.Q11")
async def test_ten_calls_at_once_are_all_answered_and_counted() -> None:
    surface = ScriptedSurface([Deny(str(number)) for number in range(10)], delay=INSTANT)
    asking = [asyncio.create_task(surface.ask(APPROVAL)) for _ in range(10)]
    given = await asyncio.gather(*asking)
    assert sorted(decision.why for decision in given if isinstance(decision, Deny)) == [str(number) for number in range(10)]
    assert surface.calls == len(surface.asked) == 10


# -- functions --------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("agents.rule.24")
async def test_without_handlers_approvals_and_questions_are_denied_and_the_rest_is_ignored() -> None:
    surface: Surface = CallbackSurface()
    assert not surface.interactive
    assert await surface.ask(APPROVAL) == NOBODY
    assert await surface.ask(QUESTION) == Deny("nobody is there to answer it")
    surface.tell(StepStarted(step=1))
    surface.tell(TurnEnded(result=TurnResult(status="success")))
    surface.act(Notice("unseen"))


@pytest.mark.req("agents.rule.24")
async def test_a_handler_of_the_one_kind_answers_nothing_of_the_other() -> None:
    assert await CallbackSurface(approval=lambda _: Allow()).ask(QUESTION) == Deny("nobody is there to answer it")
    assert await CallbackSurface(question=lambda _: Answer({})).ask(APPROVAL) == NOBODY


async def test_handlers_may_be_plain_or_coroutine_functions() -> None:
    async def answer(request: Question) -> Decision:
        await asyncio.sleep(0)
        return Answer({request.items[0].text: "b"})

    surface = CallbackSurface(approval=lambda request: Allow(request.call.arguments), question=answer)
    assert surface.interactive
    assert await surface.ask(APPROVAL) == Allow(LS)
    assert await surface.ask(QUESTION) == Answer({"Which?": "b"})


@pytest.mark.req("agents.scenario.G2")
async def test_a_question_of_a_tool_with_its_own_handler_goes_there_and_every_other_to_the_default() -> None:
    def own(request: Question) -> Decision:
        return Answer({"by": "its own"})

    surface = CallbackSurface(question=lambda _: Answer({"by": "default"}), by_tool={"AskUserQuestion": own})
    answers = [await surface.ask(Question(id="1", tool=tool, items=())) for tool in ("AskUserQuestion", "elicit", "")]
    assert answers == [Answer({"by": "its own"}), Answer({"by": "default"}), Answer({"by": "default"})]


async def test_an_approval_of_a_tool_with_its_own_handler_goes_there() -> None:
    surface = CallbackSurface(by_tool={"read": lambda _: Allow()})
    assert surface.interactive
    assert [await surface.ask(approval("read")), await surface.ask(approval("write"))] == [Allow(), NOBODY]


async def test_a_handler_that_raises_is_for_the_caller_to_deny() -> None:
    async def broken(request: Approval) -> Decision:
        raise RuntimeError("the chat is gone")

    with pytest.raises(RuntimeError, match="the chat is gone"):
        await CallbackSurface(approval=broken).ask(APPROVAL)


@pytest.mark.parametrize("returned", [None, True, "allow", Allow], ids=repr)
async def test_what_is_no_decision_is_said_to_be_none_and_is_no_yes(returned: object) -> None:
    surface = CallbackSurface(by_tool={"bash": lambda _: returned})  # type: ignore[dict-item, return-value]
    with pytest.raises(TypeError, match="a handler returns Allow, Deny or Answer, not "):
        await surface.ask(APPROVAL)


def test_every_event_and_the_result_of_each_turn_and_every_action_reach_their_handlers() -> None:
    events: list[Event] = []
    results: list[TurnResult] = []
    actions: list[Action] = []
    surface = CallbackSurface(message=events.append, completion=results.append, action=actions.append)
    done = TurnResult(status="success", text="done")
    told: list[Event] = [StepStarted(step=1), APPROVAL, TurnEnded(result=done)]
    for event in told:
        surface.tell(event)
    surface.act(Notice("seen"))
    assert (events, results, actions) == (told, [done], [Notice("seen")])
    assert not surface.interactive  # it watches; nobody can be asked


def test_a_handler_that_fails_on_an_event_is_logged_and_takes_nothing_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("the chat is gone")

    results: list[TurnResult] = []
    surface = CallbackSurface(message=broken, completion=results.append, action=broken)
    surface.tell(TurnEnded(result=TurnResult(status="success")))
    surface.act(Notice("unseen"))
    assert results == [TurnResult(status="success")]
    assert [record.message for record in caplog.records] == ["a handler failed on TurnEnded", "a handler failed on Notice"]


@pytest.mark.parametrize("name", ["message", "completion", "action"])
def test_a_handler_that_nobody_would_wait_for_is_refused(name: str) -> None:
    async def slow(_: object) -> None: ...

    with pytest.raises(TypeError, match=f"`{name}` is not waited for, so it must be a plain function"):
        CallbackSurface(**{name: slow})  # type: ignore[arg-type]


@pytest.mark.req("agents.rule.22")
def test_a_callback_surface_says_for_what_somebody_is_there() -> None:
    asked = Question(id="1", items=(QuestionItem("Which?"),), tool="AskUserQuestion")
    call = Approval(id="2", call=ToolCall("bash", {}))

    def no(_: object) -> Deny:
        return Deny()

    for surface, expected in (
        (CallbackSurface(), (False, False)),
        (CallbackSurface(question=no), (True, False)),
        (CallbackSurface(approval=no), (False, True)),
        (CallbackSurface(by_tool={"bash": no}), (False, True)),
        (CallbackSurface(by_tool={"AskUserQuestion": no}), (True, False)),
    ):
        assert isinstance(surface, SelectiveSurface)
        assert (surface.answers(asked), surface.answers(call)) == expected
    assert not isinstance(HeadlessSurface(), SelectiveSurface)

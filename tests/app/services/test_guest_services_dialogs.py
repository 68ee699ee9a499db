"""What guests ask the person."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from serai.app.services.guest_services import DialogService
from serai.errors import BadRequest
from serai.limits import Limits
from serai.model.approvals import Allow, Answer, Approval, Decision, Deny, Question
from serai.model.surface import HeadlessSurface, ScriptedSurface
from serai.policy import Approver, CallContext, Policy
from serai.policy.rules import Rules
from tests.support.app.service_requests import GUEST, ServiceCaller

ITEMS = [{"id": "b", "label": "Bern", "desc": "CH"}, {"id": "o", "label": "Oslo"}]


class Person:
    """Answers when the test says so; remembers what was on the screen."""

    def __init__(self) -> None:
        self.shown: list[Question] = []
        self.gone: list[str] = []
        self._answers: dict[str, asyncio.Future[Decision]] = {}

    async def ask(self, question: Question) -> Decision:
        self.shown.append(question)
        self._answers[question.id] = answer = asyncio.get_running_loop().create_future()
        try:
            decision: Decision = await answer
        except asyncio.CancelledError:
            self.gone.append(question.items[0].text)
            raise
        return decision

    def says(self, choice: str) -> None:
        question = self.shown[-1]
        self._answers[question.id].set_result(Answer({question.items[0].text: choice}))

    async def sees(self, count: int) -> None:
        while len(self.shown) < count:
            await asyncio.sleep(0)

    @property
    def texts(self) -> list[str]:
        return [question.items[0].text for question in self.shown]


def answer_with(answer: Callable[[Question], Decision]) -> ServiceCaller:
    async def ask(question: Question) -> Decision:
        return answer(question)

    return ServiceCaller(DialogService(ask, lambda: True))


def choose(choice: object) -> ServiceCaller:
    return answer_with(lambda question: Answer({question.items[0].text: choice}))


async def test_a_choice_is_the_answer_and_an_items_id_is_what_was_picked() -> None:
    assert await choose("yes")("ask", prompt="Send?", choices=["yes", "no"]) == {"selected": "yes", "cancelled": False}
    assert await choose("Oslo")("pick", title="City", items=ITEMS) == {"selected": "o"}


async def test_the_guest_is_named_in_what_it_asks() -> None:
    person = Person()
    asking = asyncio.ensure_future(ServiceCaller(DialogService(person.ask, lambda: True))("pick", title="City", items=ITEMS))
    await person.sees(1)
    [question] = person.shown
    [item] = question.items
    assert (question.agent, item.header, item.text) == (GUEST, GUEST, "City")
    assert [(choice.label, choice.description, choice.id) for choice in item.choices] == [("Bern", "CH", "b"), ("Oslo", "", "o")]
    person.says("Bern")
    assert await asking == {"selected": "b"}


@pytest.mark.parametrize(
    "decision", [Answer({}), Answer({"Send?": "maybe"}), Answer({"Send?": ["yes"]}), Answer({"Else?": "yes"}), Deny("no"), Allow()]
)
async def test_what_is_no_choice_is_a_dismissal(decision: Decision) -> None:
    ask = answer_with(lambda _: decision)
    assert await ask("ask", prompt="Send?", choices=["yes", "no"]) == {"selected": "", "cancelled": True}
    assert await ask("pick", title="Send?", items=[{"id": "1", "label": "no"}]) == {"selected": ""}


async def test_items_of_one_name_are_told_apart() -> None:
    seen: list[str] = []

    def answer(question: Question) -> Decision:
        seen.extend(choice.label for choice in question.items[0].choices)
        return Answer({question.items[0].text: seen[1]})

    items = [{"id": "x", "label": "Bern"}, {"id": "y", "label": "Bern"}, {"id": "z", "label": "Bern (y)"}, {"id": "only id"}]
    assert await answer_with(answer)("pick", title="City", items=items) == {"selected": "y"}
    assert len(set(seen)) == 4
    seen.clear()
    assert await answer_with(answer)("ask", prompt="?", choices=["a", "a"]) == {"selected": "a", "cancelled": False}


async def test_there_must_be_something_to_choose() -> None:
    with pytest.raises(BadRequest, match="choices must not be empty"):
        await choose("yes")("ask", prompt="Send?", choices=[])
    assert await choose("yes")("pick", title="City") == {"selected": ""}


@pytest.mark.req("piglet.fix.26")
async def test_where_nobody_is_every_dialog_is_dismissed_at_once() -> None:
    person = Person()  # who would let them wait
    guest = ServiceCaller(DialogService(person.ask, lambda: HeadlessSurface().interactive))
    async with asyncio.timeout(5):
        assert await guest("ask", prompt="Send?", choices=["yes"]) == {"selected": "", "cancelled": True}
        assert await guest("pick", title="City", items=ITEMS) == {"selected": ""}
    assert person.shown == []


async def test_an_approver_that_reaches_nobody_dismisses_too() -> None:
    caller = Approver(Policy(Rules()), HeadlessSurface())

    async def ask(question: Question) -> Decision:
        return (await caller.ask(question, CallContext(cwd="/"))).decision

    try:
        assert await ServiceCaller(DialogService(ask, lambda: True))("pick", title="City", items=ITEMS) == {"selected": ""}
    finally:
        await caller.close()


async def test_with_a_real_approver_a_person_answers_and_silence_dismisses() -> None:
    def yes(request: Approval | Question) -> Decision:
        return Answer({"Send?": "yes"})

    surface = ScriptedSurface([yes, lambda _: Answer({})])
    caller = Approver(Policy(Rules()), surface, limits=Limits().but(approval=5.0))

    async def ask(question: Question) -> Decision:
        return (await caller.ask(question, CallContext(cwd="/"))).decision

    try:
        guest = ServiceCaller(DialogService(ask, lambda: surface.interactive))
        assert await guest("ask", prompt="Send?", choices=["yes"]) == {"selected": "yes", "cancelled": False}
        assert await guest("ask", prompt="Send?", choices=["yes"]) == {"selected": "", "cancelled": True}
    finally:
        await caller.close()


@pytest.mark.req("piglet.fix.31")
async def test_dialogs_queue_up_and_each_is_answered_once() -> None:
    person = Person()
    dialogs = DialogService(person.ask, lambda: True)
    first, second = ServiceCaller(dialogs), ServiceCaller(dialogs, guest="fake:other")
    asked = [
        asyncio.ensure_future(guest("ask", prompt=f"{number}?", choices=["a", "b"]))
        for number, guest in enumerate((first, second, first), start=1)
    ]
    for number in (1, 2, 3):
        await person.sees(number)
        assert person.texts == [f"{shown}?" for shown in range(1, number + 1)]  # one at a time, in the order of asking
        person.says("b" if number == 2 else "a")
    assert [(await one)["selected"] for one in asked] == ["a", "b", "a"]
    assert [question.agent for question in person.shown] == [GUEST, "fake:other", GUEST]


async def test_a_dialog_that_nobody_waits_for_makes_room_for_the_next() -> None:
    person = Person()
    ask = ServiceCaller(DialogService(person.ask, lambda: True))
    first, second, third = (asyncio.ensure_future(ask("ask", prompt=f"{number}?", choices=["a"])) for number in (1, 2, 3))
    await person.sees(1)
    second.cancel()  # waits
    first.cancel()  # is on the screen
    await person.sees(2)
    assert (person.gone, person.texts) == (["1?"], ["1?", "3?"])
    person.says("a")
    assert (await third)["selected"] == "a"
    for one in (first, second):
        with pytest.raises(asyncio.CancelledError):
            await one


async def test_a_surface_that_breaks_costs_one_dialog() -> None:
    answers: list[Decision | Exception] = [RuntimeError("broken"), Answer({"?": "a"})]

    async def ask(question: Question) -> Decision:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    guest = ServiceCaller(DialogService(ask, lambda: True))
    with pytest.raises(Exception, match="RuntimeError"):
        await guest("ask", prompt="?", choices=["a"])
    assert await guest("ask", prompt="?", choices=["a"]) == {"selected": "a", "cancelled": False}

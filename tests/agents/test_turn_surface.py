"""A turn driven with a surface and a sink."""

from __future__ import annotations

import asyncio

import pytest

from serai.agents.driver import Prompt
from serai.agents.event_hub import EventHub
from serai.agents.turn import run_turn
from serai.errors import PeerGone
from serai.model.approvals import Allow, Answer, Approval, Decision, Deny, Question, QuestionItem
from serai.model.events import Event, Text, TurnResult, event_kind
from serai.model.surface import HeadlessSurface, ScriptedSurface
from serai.model.tools import ToolCall
from tests.support.agents.scripted_driver import create_session

CALL = ToolCall("bash", {"command": "ls"}, "c1")


async def ask_twice(hub: EventHub, prompt: Prompt) -> TurnResult:
    hub.emit(Text(text="hello"))
    may = await hub.ask(Approval(id="a", call=CALL))
    colour = await hub.ask(Question(id="q", items=(QuestionItem("colour?"),)))
    return TurnResult(status="success", text=f"{may} {colour}")


@pytest.mark.req("agents.scenario.Q1")
async def test_messages_go_to_the_sink_requests_to_the_surface_and_decisions_back() -> None:
    surface = ScriptedSurface([Allow({"command": "pwd"}), Answer({"colour?": "red"})])
    sunk: list[Event] = []
    async with create_session(ask_twice) as there:
        result = await run_turn(there.turn("go"), surface, sunk.append)
    assert result.text == f"{Allow({'command': 'pwd'})} {Answer({'colour?': 'red'})}"
    assert [event_kind(event) for event in sunk] == ["turn_started", "text", "approval", "question", "turn_ended"]
    assert [request.id for request in surface.asked] == ["a", "q"]


@pytest.mark.req("agents.scenario.Q4")
async def test_without_a_sink_messages_are_dropped() -> None:
    async with create_session(ask_twice) as there:
        result = await run_turn(there.turn("go"), HeadlessSurface(), None)
    assert result.text == f"{Deny('nobody is there to approve it')} {Answer({})}"


class Failing(HeadlessSurface):
    interactive = True

    async def ask(self, request: Approval | Question) -> Decision:
        raise OSError("the terminal is gone")


@pytest.mark.req("agents.scenario.Q3")
async def test_a_surface_that_raises_denies_with_its_own_words() -> None:
    async with create_session(ask_twice) as there:
        result = await run_turn(there.turn("go"), Failing())
    assert result.text == f"{Deny('the terminal is gone')} {Deny('the terminal is gone')}"


class Confused(HeadlessSurface):
    async def ask(self, request: Approval | Question) -> Decision:
        return Answer({}) if isinstance(request, Approval) else Allow()


async def test_an_answer_of_the_wrong_kind_denies() -> None:
    async with create_session(ask_twice) as there:
        result = await run_turn(there.turn("go"), Confused())
    assert result.text.count("which is no answer to it") == 2


async def test_requests_are_asked_side_by_side_and_a_withdrawn_one_is_taken_back() -> None:
    cancelled: list[str] = []
    asked: list[str] = []

    class Person(HeadlessSurface):
        async def ask(self, request: Approval | Question) -> Decision:
            asked.append(request.id)
            try:
                await asyncio.Event().wait() if request.id == "slow" else None
            except asyncio.CancelledError:
                cancelled.append(request.id)
                raise
            return Allow()

    async def play(hub: EventHub, prompt: Prompt) -> TurnResult:
        slow = asyncio.ensure_future(hub.ask(Approval(id="slow", call=CALL)))
        quick = await hub.ask(Approval(id="quick", call=CALL))
        hub.withdraw("slow", "not needed any more")
        with pytest.raises(asyncio.CancelledError):
            await slow
        hub.emit(Text(text="on"))
        return TurnResult(status="success", text=str(quick))

    async with create_session(play) as there:
        result = await run_turn(there.turn("go"), Person())
    assert sorted(asked) == ["quick", "slow"]
    assert cancelled == ["slow"]
    assert result.text == str(Allow())


async def test_the_error_of_the_turn_is_raised() -> None:
    async def breaks(hub: EventHub, prompt: Prompt) -> None:
        raise PeerGone("it went")

    async with create_session(breaks) as there:
        with pytest.raises(PeerGone):
            await run_turn(there.turn("go"), HeadlessSurface())


async def test_who_is_cancelled_while_driving_ends_the_turn_and_its_questions() -> None:
    asking = asyncio.Event()

    class Person(HeadlessSurface):
        async def ask(self, request: Approval | Question) -> Decision:
            asking.set()
            await asyncio.Event().wait()
            raise AssertionError

    before = asyncio.all_tasks()
    async with create_session(ask_twice) as there:
        driving = asyncio.ensure_future(run_turn(there.turn("go"), Person()))
        await asking.wait()
        driving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await driving
        assert there.state == "idle"
        assert asyncio.all_tasks() == before


class Slow(HeadlessSurface):
    """Takes two events, then nothing until somebody waits for it."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.waited = 0
        self.free = asyncio.Event()

    def tell(self, event: Event) -> None:
        self.taken.append(event_kind(event))

    @property
    def behind(self) -> bool:
        return len(self.taken) == 2 and not self.free.is_set()

    async def room(self) -> None:
        self.waited += 1
        await self.free.wait()


async def emit_many(hub: EventHub, _prompt: Prompt) -> TurnResult:
    for _ in range(5):
        hub.emit(Text(text="piece"))
        await asyncio.sleep(0)
    return TurnResult(status="success", text="done")


@pytest.mark.req("app.run.output")
async def test_a_surface_that_is_behind_is_waited_for() -> None:
    surface = Slow()
    async with create_session(emit_many) as there:
        driving = asyncio.create_task(run_turn(there.turn("go"), surface, surface.tell))
        while not surface.waited:
            await asyncio.sleep(0)
        surface.free.set()
        await driving
    assert surface.waited == 1
    assert surface.taken == ["turn_started", *["text"] * 5, "turn_ended"]


@pytest.mark.req("app.run.output")
async def test_a_surface_that_is_behind_for_ever_holds_up_no_end() -> None:
    surface = Slow()
    async with create_session(emit_many) as there, asyncio.timeout(30):
        result = await run_turn(there.turn("go"), surface, surface.tell)
    assert result.text == "done"
    assert surface.taken[-1] == "turn_ended"

"""The event hub: who is told, in which words, and what becomes of a question that nobody answers."""

from __future__ import annotations

import asyncio

import pytest

from serai.agents.driver import Prompt
from serai.agents.event_hub import EventHub
from serai.agents.session import Session
from serai.agents.turn import Turn
from serai.errors import NotWritten
from serai.limits import Limits
from serai.model.approvals import Allow, Approval, Deny
from serai.model.events import Event, RequestCancelled, Text, TurnEnded, TurnResult, event_kind
from serai.model.provider import ModelMessage
from serai.model.tools import ToolCall
from tests.support.agents.scripted_driver import Scripted, create_session, echo_prompt

CALL = ToolCall("bash", {"command": "ls"}, "c1")


# -- what is asked


@pytest.mark.parametrize(("wanted", "most", "patience"), [(0.01, 100.0, "0.01"), (100.0, 0.02, "0.02"), (None, 0.03, "0.03")])
async def test_a_driver_may_wait_less_for_an_answer_than_the_limit_and_never_more(
    wanted: float | None, most: float, patience: str
) -> None:
    hub = EventHub("scripted", "s1", Limits().but(approval=most))
    async with asyncio.timeout(5.0):
        decision = await hub.ask(Approval(id="a", call=CALL), timeout=wanted)
    assert decision == Deny(f"nobody answered within {patience} s")


async def test_what_a_driver_leaves_open_is_withdrawn_in_its_own_lane_before_the_end() -> None:
    left: list[asyncio.Task[object]] = []

    async def play(hub: EventHub, prompt: Prompt) -> None:
        left.append(asyncio.create_task(hub.ask(Approval(id="a", call=CALL, lane="sub"))))
        await asyncio.sleep(0)

    async with create_session(play) as there:
        turn = there.turn("go")
        events = [event async for event in turn]
        assert [event_kind(event) for event in events] == ["turn_started", "approval", "request_cancelled", "turn_ended"]
        cancelled = events[2]
        assert isinstance(cancelled, RequestCancelled)
        assert (cancelled.id, cancelled.lane, cancelled.reason) == ("a", "sub", "the turn is over")
        assert there.pending == ()
        [outcome] = await asyncio.gather(*left, return_exceptions=True)
        assert isinstance(outcome, asyncio.CancelledError)


async def test_a_request_is_withdrawn_although_somebody_cannot_be_told() -> None:
    def full(event: Event) -> None:
        if isinstance(event, RequestCancelled):
            raise NotWritten("no space left on device")

    async def play(hub: EventHub, prompt: Prompt) -> TurnResult:
        decision = await hub.ask(Approval(id="a", call=CALL), timeout=0.001)
        return TurnResult(status="success", text=repr(decision))

    async with create_session(play) as there:
        there.listen(full)
        turn = there.turn("go")
        events = [event async for event in turn]
        assert event_kind(events[-2]) == "request_cancelled"
        assert (await turn).text == repr(Deny("nobody answered within 0.001 s"))


async def test_who_asks_the_same_again_and_leaves_does_not_take_the_question_along() -> None:
    hub = EventHub("scripted", "s1", Limits())
    first, second = (asyncio.ensure_future(hub.ask(Approval(id="a", call=CALL))) for _ in range(2))
    for _ in range(3):
        await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    await hub.answer("a", Allow())
    assert await first == Allow()


# -- what is told


async def test_what_an_event_says_of_its_origin_stays() -> None:
    hub = EventHub("scripted", "s1", Limits())
    heard: list[Event] = []
    hub.listeners.append(heard.append)
    hub.emit(Text(text="theirs", agent="helper", session="s2", at=7.0))
    hub.emit(Text(text="ours"))
    theirs, ours = heard
    assert (theirs.agent, theirs.session, theirs.at, theirs.seq) == ("helper", "s2", 7.0, 1)
    assert (ours.agent, ours.session, ours.seq) == ("scripted", "s1", 2)


async def test_of_several_who_fail_the_first_is_heard() -> None:
    hub = EventHub("scripted", "s1", Limits())

    def fails(word: str) -> None:
        def listener(event: Event) -> None:
            raise NotWritten(word)

        hub.listeners.append(listener)

    fails("first")
    fails("second")
    with pytest.raises(NotWritten, match="first"):
        hub.emit(Text(text="x"))


async def test_the_end_of_a_turn_that_is_not_the_one_that_runs_changes_nothing() -> None:
    async with create_session(echo_prompt) as there:
        hub = there.hub
        old, now = Turn(Prompt("old"), hub), Turn(Prompt("now"), hub)
        hub.announce(now)
        heard: list[Event] = []
        there.listen(heard.append)
        hub.end(old, TurnResult(status="success"))
        assert (heard, hub.turn, old.outcome) == ([], now, None)
        hub.end(now, TurnResult(status="success"))


async def test_a_result_says_how_long_it_took_and_of_which_session_it_is() -> None:
    async with create_session(echo_prompt) as there:
        events = [event async for event in there.turn("go")]
    end = events[-1]
    assert isinstance(end, TurnEnded)
    assert end.result.seconds > 0
    assert end.result.session == "s1"


# -- when it is closed


async def test_after_the_end_of_a_session_nothing_is_told_kept_or_asked() -> None:
    async with create_session(echo_prompt) as there:
        heard: list[object] = []
        hub = there.hub
        there.listen(heard.append)
        hub.on_answer.append(lambda message, model: heard.append(message))
        hub.on_compact.append(lambda messages, tokens: heard.append(messages))
        waiting = asyncio.ensure_future(hub.ask(Approval(id="a", call=CALL)))
        await asyncio.sleep(0)
        assert there.pending
    assert not hub.pending
    assert [event_kind(event) for event in heard] == ["approval", "request_cancelled"]  # type: ignore[arg-type]
    [outcome] = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(outcome, asyncio.CancelledError)
    heard.clear()
    hub.emit(Text(text="late"))
    hub.report_answer(ModelMessage("assistant"), "m")
    hub.report_compaction((), 0)
    async with asyncio.timeout(5.0):
        assert isinstance(await hub.ask(Approval(id="b", call=CALL)), Deny)
    assert heard == []


async def test_an_id_that_is_known_only_once_the_agent_runs_is_the_sessions() -> None:
    class Late(Scripted):
        async def open(self, hub: EventHub) -> None:
            await super().open(hub)
            self.session_id = "given by the agent"

    driver = Late(echo_prompt)
    driver.session_id = ""
    async with Session(driver) as there:
        assert there.id == "given by the agent"
        [*_, end] = [event async for event in there.turn("go")]
    assert end.session == "given by the agent"

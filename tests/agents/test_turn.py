"""A turn as its reader sees it: events in order, answers from any task, one end for all who wait."""

from __future__ import annotations

import asyncio

import pytest

from serai.agents.driver import Prompt
from serai.agents.event_hub import EventHub
from serai.errors import Closed, NoApproval, PeerGone
from serai.limits import Limits
from serai.model.approvals import Allow, Answer, Approval, Deny, Question, QuestionItem
from serai.model.events import (
    Event,
    Message,
    RequestCancelled,
    StateChanged,
    Stderr,
    Text,
    ToolProgress,
    TurnEnded,
    TurnResult,
    TurnStarted,
    event_kind,
)
from serai.model.tools import ToolCall
from tests.support.agents.scripted_driver import collect_events, create_session

CALL = ToolCall("bash", {"command": "ls"}, "c1")


@pytest.mark.req("agents.scenario.H1", "agents.rule.46")
async def test_events_come_in_the_order_in_which_they_were_told_each_with_its_stamps() -> None:
    async def play(hub: EventHub, prompt: Prompt) -> None:
        for number in range(100):
            hub.emit(Text(text=str(number), native={"n": number}))
            if number % 10 == 0:
                await asyncio.sleep(0)

    async with create_session(play) as there:
        events = await collect_events(there.turn("go"))
    assert [event.text for event in events if isinstance(event, Text)] == [str(number) for number in range(100)]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert all(event.agent == "scripted" and event.session == "s1" and event.at > 0 and event.lane == "" for event in events)
    assert events[1].native == {"n": 0}


@pytest.mark.req("agents.rule.19")
async def test_a_turn_tells_its_beginning_its_end_states_stderr_and_withdrawn_requests() -> None:
    async def play(hub: EventHub, prompt: Prompt) -> TurnResult:
        hub.emit(StateChanged(state="busy"))
        hub.emit(Stderr(line="warning"))
        asking = asyncio.ensure_future(hub.ask(Approval(id="a", call=CALL)))
        await asyncio.sleep(0)
        hub.withdraw("a", "changed its mind")
        with pytest.raises(asyncio.CancelledError):
            await asking
        return TurnResult(status="success", text="bye")

    async with create_session(play) as there:
        events = await collect_events(there.turn("go"))
    assert [event_kind(event) for event in events] == [
        *("turn_started", "state_changed", "stderr", "approval", "request_cancelled", "turn_ended"),
    ]
    start, *_, cancelled, end = events
    assert isinstance(start, TurnStarted)
    assert start.prompt == "go"
    assert isinstance(cancelled, RequestCancelled)
    assert (cancelled.id, cancelled.reason) == ("a", "changed its mind")
    assert isinstance(end, TurnEnded)
    assert (end.result.text, end.result.session) == ("bye", "s1")


@pytest.mark.req("agents.scenario.H8", "agents.rule.15")
async def test_any_number_wait_before_and_after_the_end_and_get_the_same_result() -> None:
    supplied = TurnResult(status="success", text="42", session="other", seconds=1.5)
    go = asyncio.Event()

    async def play(hub: EventHub, prompt: Prompt) -> TurnResult:
        await go.wait()
        return supplied

    async with create_session(play) as there:
        turn = there.turn("go")
        early = [asyncio.ensure_future(turn.result()) for _ in range(3)]
        await asyncio.sleep(0)
        go.set()
        results = [*await asyncio.gather(*early), await turn, await turn.result()]
    assert all(result == supplied for result in results)
    assert turn.outcome == supplied


@pytest.mark.req("agents.rule.47", "agents.rule.15")
async def test_the_error_comes_after_the_last_event_and_to_everybody_who_waits() -> None:
    failure = PeerGone("it went", who="scripted")

    async def play(hub: EventHub, prompt: Prompt) -> None:
        hub.emit(Text(text="so far"))
        raise failure

    async with create_session(play) as there:
        turn = there.turn("go")
        events: list[Event] = []
        with pytest.raises(PeerGone) as raised:
            async for event in turn:
                events.append(event)  # noqa: PERF401  (it ends in an error)
        assert raised.value is failure
        assert [event_kind(event) for event in events] == ["turn_started", "text", "turn_ended"]
        for _ in range(2):
            with pytest.raises(PeerGone) as raised:
                await turn.result()
            assert raised.value is failure
        assert turn.outcome is not None
        assert (turn.outcome.status, turn.outcome.error) == ("error", "scripted: it went")
        assert await collect_events(turn) == []
        assert there.state == "idle"  # and the next one may begin


# -- answers


async def ask_approval(hub: EventHub, prompt: Prompt) -> TurnResult:
    decision = await hub.ask(Approval(id="a", call=CALL))
    return TurnResult(status="success", text=repr(decision))


@pytest.mark.req("agents.scenario.H3", "agents.rule.16")
async def test_a_request_can_be_answered_the_moment_it_is_seen_and_exactly_that_answer_arrives() -> None:
    decision = Allow({"command": "pwd"}, "session")
    async with create_session(ask_approval) as there:
        seen: list[str] = []

        def listener(event: Event) -> None:  # before anybody reads it
            if isinstance(event, Approval):
                seen.append(event.id)
                assert there.pending == (event,)

        there.listen(listener)
        turn = there.turn("go")
        async for event in turn:
            if isinstance(event, Approval):
                await turn.answer("a", decision)
        assert seen == ["a"]
        assert (await turn).text == repr(decision)


@pytest.mark.req("agents.scenario.H4", "agents.scenario.H5", "agents.scenario.H6", "agents.edge.05")
async def test_an_answer_to_nothing_is_told_apart_from_one_that_comes_too_late() -> None:
    async with create_session(ask_approval) as there:
        turn = there.turn("go")
        async for event in turn:
            if isinstance(event, Approval):
                with pytest.raises(NoApproval):
                    await turn.answer("never", Allow())
                with pytest.raises(TypeError, match="Allow or Deny"):
                    await turn.answer("a", Answer({}))
                await turn.answer("a", Deny("no"))
                with pytest.raises(NoApproval):
                    await turn.answer("a", Allow())
                with pytest.raises(Closed):
                    await event.allow()
        assert (await turn).text == repr(Deny("no"))
        with pytest.raises(Closed):
            await turn.answer("a", Allow())
        with pytest.raises(NoApproval):
            await there.answer("a", Allow())


@pytest.mark.req("agents.edge.05")
async def test_an_answer_to_what_was_withdrawn_changes_nothing() -> None:
    asked = asyncio.Event()

    async def play(hub: EventHub, prompt: Prompt) -> None:
        asking = asyncio.ensure_future(hub.ask(Approval(id="a", call=CALL)))
        await asked.wait()
        hub.withdraw("a", "gone")
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert hub.pending == {}

    async with create_session(play) as there:
        approval: Approval | None = None
        async for event in there.turn("go"):
            if isinstance(event, Approval):
                approval = event
                asked.set()
            if isinstance(event, RequestCancelled):
                assert approval is not None
                with pytest.raises(NoApproval):
                    await there.answer("a", Allow())
                with pytest.raises(Closed):
                    await approval.allow()


async def test_several_requests_are_open_at_once_and_answered_in_any_order() -> None:
    async def play(hub: EventHub, prompt: Prompt) -> TurnResult:
        first, second, third = await asyncio.gather(
            hub.ask(Approval(id="1", call=CALL)),
            hub.ask(Question(id="2", items=(QuestionItem("colour?"),))),
            hub.ask(Approval(id="3", call=CALL)),
        )
        return TurnResult(status="success", text=f"{first} {second} {third}")

    async with create_session(play) as there:
        turn = there.turn("go")
        open_: dict[str, Approval | Question] = {}
        async for event in turn:
            if isinstance(event, Approval | Question):
                open_[event.id] = event
            if len(open_) == 3 and not any(ask.answered for ask in open_.values()):
                assert [ask.id for ask in turn.pending] == ["1", "2", "3"]
                await turn.answer("3", Deny("three"))
                await turn.answer("2", Answer({"colour?": "blue"}))
                await asyncio.create_task(there.answer("1", Allow()))  # from another task
        assert (await turn).text == f"{Allow()} {Answer({'colour?': 'blue'})} {Deny('three')}"


async def test_silence_is_no() -> None:
    async with create_session(ask_approval, limits=Limits().but(approval=0.01)) as there:
        turn = there.turn("go")
        events = await collect_events(turn)
        assert [event_kind(event) for event in events] == ["turn_started", "approval", "request_cancelled", "turn_ended"]
        assert (await turn).text == repr(Deny("nobody answered within 0.01 s"))


async def test_without_a_reader_nobody_is_there_to_approve() -> None:
    async with create_session(ask_approval) as there:
        assert (await there.turn("go")).text == repr(Deny("nobody is there to approve it"))


async def test_who_awaits_the_result_only_after_an_approval_was_asked_answers_nothing() -> None:
    async with create_session(ask_approval) as there:
        turn = await there.send("go")
        while not there.pending:
            await asyncio.sleep(0)
        assert (await turn).text == repr(Deny("nobody is there to approve it"))


async def test_the_same_request_twice_is_presented_once() -> None:
    async def play(hub: EventHub, prompt: Prompt) -> TurnResult:
        twice = await asyncio.gather(hub.ask(Approval(id="0", call=CALL)), hub.ask(Approval(id="0", call=CALL)))
        return TurnResult(status="success", text=repr(twice))

    async with create_session(play) as there:
        turn = there.turn("go")
        asked = 0
        async for event in turn:
            if isinstance(event, Approval):
                asked += 1
                await event.allow()
        assert asked == 1
        assert (await turn).text == repr([Allow(), Allow()])


# -- its end


@pytest.mark.req("agents.scenario.H7", "agents.edge.07")
async def test_a_turn_is_cancelled_once_however_often_and_from_wherever_it_is_asked_for() -> None:
    async def play(hub: EventHub, prompt: Prompt) -> None:
        hub.emit(Text(text="on it"))
        await asyncio.Event().wait()

    async with create_session(play) as there:
        turn = there.turn("go")
        async for event in turn:
            if isinstance(event, Text):
                await asyncio.gather(*(asyncio.create_task(turn.cancel(word)) for word in ("first", "second", "third")))
        assert turn.outcome is not None
        assert turn.outcome.status == "cancelled"
        await turn.cancel("late")
        assert there.driver.interrupts == ["first"]  # type: ignore[attr-defined]


@pytest.mark.req("agents.edge.07")
async def test_a_turn_that_is_cancelled_before_it_began_never_begins() -> None:
    async def play(hub: EventHub, prompt: Prompt) -> None:
        raise AssertionError("it was cancelled")

    async with create_session(play) as there:
        turn = there.turn("go")
        await turn.cancel("never mind")
        assert await collect_events(turn) == []
        assert (await turn).status == "cancelled"
        assert there.state == "idle"


@pytest.mark.req("agents.scenario.H9", "agents.edge.34", "agents.edge.01")
async def test_who_waits_for_room_is_let_go_when_the_turn_is_cancelled_and_the_stream_ends() -> None:
    full = asyncio.Event()

    async def play(hub: EventHub, prompt: Prompt) -> None:
        while True:
            hub.emit(Message())
            if hub.turn is not None and hub.turn.crowded:
                full.set()
            await hub.wait_for_room()

    async with create_session(play, limits=Limits().but(waiting=10)) as there:
        turn = there.turn("go")
        turn.start()
        turn.taken = True
        await full.wait()
        await turn.cancel("enough")
        events = await collect_events(turn)
        assert len(events) == 10 + 1  # what there was room for, and the end
        assert isinstance(events[-1], TurnEnded)


@pytest.mark.req("agents.scenario.H9")
async def test_a_request_of_a_turn_that_is_cancelled_is_no_longer_pending() -> None:
    async with create_session(ask_approval) as there:
        turn = there.turn("go")
        async for event in turn:
            if isinstance(event, Approval):
                await turn.cancel("enough")
                assert there.pending == ()
                with pytest.raises(NoApproval):
                    await there.answer("a", Allow())
        assert turn.outcome is not None
        assert turn.outcome.status == "cancelled"


@pytest.mark.req("agents.scenario.H10")
async def test_a_turn_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()
    async with create_session(ask_approval) as there:
        async with there.turn("go") as turn:
            async for event in turn:
                if isinstance(event, Approval):
                    await event.allow()
        assert asyncio.all_tasks() == before
    assert asyncio.all_tasks() == before


@pytest.mark.req("agents.rule.49")
async def test_who_is_cancelled_while_awaiting_the_result_interrupts_the_turn() -> None:
    async def play(hub: EventHub, prompt: Prompt) -> None:
        await asyncio.Event().wait()

    async with create_session(play) as there:
        turn = there.turn("go")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(turn.result(), 0.01)
        assert turn.outcome is not None
        assert turn.outcome.status == "cancelled"
        assert len(there.driver.interrupts) == 1  # type: ignore[attr-defined]
        assert there.state == "idle"


@pytest.mark.req("agents.rule.49")
async def test_an_agent_that_does_not_heed_the_interrupt_is_ended_after_its_time() -> None:
    async def play(hub: EventHub, prompt: Prompt) -> None:
        await asyncio.Event().wait()

    async with create_session(play, deaf=True, limits=Limits().but(interrupt=0.05)) as there:
        turn = await there.send("go")
        await asyncio.sleep(0)
        await turn.cancel("now")
        assert turn.outcome is not None
        assert (turn.outcome.status, turn.outcome.error) == ("cancelled", "now")
        assert there.state == "idle"


async def test_leaving_the_block_early_ends_the_turn() -> None:
    async def play(hub: EventHub, prompt: Prompt) -> None:
        hub.emit(Text(text="on it"))
        await asyncio.Event().wait()

    async with create_session(play) as there:
        async with there.turn("go") as turn:
            async for event in turn:
                if isinstance(event, Text):
                    break
        assert turn.done
        assert there.state == "idle"


# -- who does not read


@pytest.mark.req("agents.edge.01")
async def test_while_nobody_reads_pieces_of_text_are_joined_and_no_request_is_lost() -> None:
    told = asyncio.Event()

    async def play(hub: EventHub, prompt: Prompt) -> TurnResult:
        for number in range(50_000):
            hub.emit(Text(text=f"{number},"))
        asking = asyncio.ensure_future(hub.ask(Approval(id="a", call=CALL)))
        await asyncio.sleep(0)
        told.set()
        return TurnResult(status="success", text=repr(await asking))

    async with create_session(play, limits=Limits().but(waiting=100)) as there:
        turn = await there.send("go")
        turn.taken = True
        await told.wait()
        text, held = "", 0
        async for event in turn:
            held += 1
            if isinstance(event, Text):
                text += event.text
            elif isinstance(event, Approval):
                await event.deny("seen")
        assert text == "".join(f"{number}," for number in range(50_000))
        assert held < 300
        assert (await turn).text == repr(Deny("seen"))


@pytest.mark.req("agents.edge.01")
async def test_what_tools_say_meanwhile_does_not_pile_up_for_who_does_not_look() -> None:
    async def play(hub: EventHub, prompt: Prompt) -> None:
        for number in range(10_000):
            hub.emit(ToolProgress(call=ToolCall("bash", {}, f"c{number % 3}"), text="x" * 100))

    async with create_session(play, limits=Limits().but(waiting=100)) as there:
        turn = await there.send("go")
        turn.taken = True
        while not turn.done:
            await asyncio.sleep(0)
        events = await collect_events(turn)
        assert len(events) <= 2 * 100 + 1
        assert isinstance(events[-1], TurnEnded)


async def test_who_stops_reading_and_waits_for_the_result_is_not_waited_for() -> None:
    async def play(hub: EventHub, prompt: Prompt) -> None:
        for _ in range(100):
            hub.emit(Message())
            await hub.wait_for_room()

    async with create_session(play, limits=Limits().but(waiting=10)) as there, there.turn("go") as turn:
        async for _ in turn:
            break
        assert (await turn).ok


async def test_a_turn_has_one_reader() -> None:
    async def play(hub: EventHub, prompt: Prompt) -> None:
        await asyncio.Event().wait()

    async with create_session(play) as there:
        turn = there.turn("go")
        reading = asyncio.ensure_future(collect_events(turn))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="one reader"):
            await collect_events(turn)
        await turn.cancel()
        await reading

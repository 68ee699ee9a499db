"""Who reads a turn, who stops reading, and who is in a hurry: none of them harms another."""

from __future__ import annotations

import asyncio

import pytest

from serai.agents.driver import Prompt
from serai.agents.event_hub import EventHub
from serai.agents.session import Session
from serai.limits import Limits
from serai.model.approvals import Approval
from serai.model.events import Message, Text, ToolProgress, TurnResult, event_kind
from serai.model.tools import ToolCall
from tests.support.agents.scripted_driver import Scripted, collect_events, create_session, start_and_hang

SHORT = Limits().but(waiting=10, interrupt=0.2)


# -- who is in a hurry


@pytest.mark.req("agents.scenario.H7")
async def test_who_stops_waiting_for_an_interrupt_does_not_stop_the_interrupt() -> None:
    asked, gate = asyncio.Event(), asyncio.Event()

    class Slow(Scripted):
        async def interrupt(self, reason: str) -> None:
            asked.set()
            await gate.wait()
            await super().interrupt(reason)

    async with Session(Slow(start_and_hang)) as there:
        turn = await there.send("go")
        cancelling = asyncio.ensure_future(turn.cancel("enough"))
        await asked.wait()
        cancelling.cancel()
        await asyncio.wait([cancelling])
        gate.set()
        async with asyncio.timeout(5.0):
            await turn.over()
        assert turn.outcome is not None
        assert turn.outcome.status == "cancelled"


async def test_who_stops_waiting_for_the_end_does_not_take_it_from_the_others() -> None:
    gate = asyncio.Event()

    async def play(hub: EventHub, prompt: Prompt) -> None:
        await gate.wait()

    async with create_session(play) as there:
        turn = await there.send("go")
        first, second = (asyncio.ensure_future(turn.over()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        assert not second.done()
        gate.set()
        await second
        assert (await turn).ok


async def test_a_reader_may_leave_and_another_go_on() -> None:
    gate = asyncio.Event()

    async def play(hub: EventHub, prompt: Prompt) -> None:
        await gate.wait()
        hub.emit(Text(text="later"))

    async with create_session(play) as there:
        turn = there.turn("go")
        reading = asyncio.ensure_future(collect_events(turn))
        for _ in range(5):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])
        gate.set()
        assert [event_kind(event) for event in await collect_events(turn)] == ["text", "turn_ended"]


async def test_a_turn_that_waits_for_its_turn_has_nothing_to_answer() -> None:
    async def asks(hub: EventHub, prompt: Prompt) -> None:
        await hub.ask(Approval(id="a", call=ToolCall("bash")))

    async with create_session(asks) as there:
        later, now = there.turn("later"), there.turn("now")
        async for event in now:
            if isinstance(event, Approval):
                assert now.pending == (event,)
                assert later.pending == ()
                await event.deny()


# -- who does not read


@pytest.mark.req("agents.edge.01")
async def test_pieces_are_joined_up_to_a_length_at_which_joining_is_cheap() -> None:
    async def play(hub: EventHub, prompt: Prompt) -> None:
        for _ in range(3000):
            hub.emit(Text(text="0123456789"))

    async with create_session(play, limits=SHORT) as there:
        turn = await there.send("go")
        turn.taken = True
        while not turn.done:
            await asyncio.sleep(0)
        pieces = [event.text for event in await collect_events(turn) if isinstance(event, Text)]
    assert sum(map(len, pieces)) == 30_000
    assert max(map(len, pieces)) < 4096 + 10


@pytest.mark.req("agents.edge.01")
async def test_of_what_a_tool_says_the_newest_is_left_and_nothing_of_it_is_said_to_be_anothers() -> None:
    async def play(hub: EventHub, prompt: Prompt) -> None:
        for _ in range(10):
            hub.emit(Message())
        for number in range(1000):
            hub.emit(ToolProgress(call=ToolCall("bash", {}, "c1"), text=f"{number:09d}\n"))
        hub.emit(ToolProgress(call=ToolCall("bash", {}, "c2"), text="mine"))

    async with create_session(play, limits=SHORT) as there:
        turn = await there.send("go")
        turn.taken = True
        while not turn.done:
            await asyncio.sleep(0)
        progress = [event for event in await collect_events(turn) if isinstance(event, ToolProgress)]
    assert [event.call.id for event in progress] == ["c1", "c2"]
    assert progress[0].text.endswith("000000998\n000000999\n")
    assert len(progress[0].text) <= 4096
    assert progress[1].text == "mine"


@pytest.mark.req("agents.scenario.H9")
@pytest.mark.parametrize("how", ["cancelled", "ignored"])
async def test_who_waits_for_a_reader_is_told_that_none_will_come(how: str) -> None:
    full = asyncio.Event()

    async def play(hub: EventHub, prompt: Prompt) -> TurnResult:
        for _ in range(20):
            hub.emit(Message())
        full.set()
        await hub.wait_for_room()
        return TurnResult(status="success", text="let go")

    async with create_session(play, deaf=True, limits=SHORT) as there:
        turn = await there.send("go")
        turn.taken = True
        await full.wait()
        await asyncio.sleep(0)
        if how == "cancelled":
            await turn.cancel("enough")
        else:
            turn.ignore()
            async with asyncio.timeout(5.0):
                await turn.over()
        assert turn.outcome is not None
        assert turn.outcome.text == "let go"


async def test_what_happened_before_somebody_only_awaited_the_result_is_forgotten() -> None:
    gate = asyncio.Event()

    async def play(hub: EventHub, prompt: Prompt) -> None:
        hub.emit(Text(text="before"))
        await gate.wait()
        hub.emit(Text(text="after"))

    async with create_session(play) as there:
        turn = await there.send("go")
        for _ in range(3):
            await asyncio.sleep(0)
        waiting = asyncio.ensure_future(turn.result())
        await asyncio.sleep(0)
        gate.set()
        await waiting
        assert await collect_events(turn) == []


async def test_who_reads_after_all_hears_what_comes_from_then_on() -> None:
    gate = asyncio.Event()

    async def play(hub: EventHub, prompt: Prompt) -> None:
        hub.emit(Text(text="before"))
        await gate.wait()
        hub.emit(Text(text="after"))

    async with create_session(play) as there:
        turn = await there.send("go")
        waiting = asyncio.ensure_future(turn.result())
        for _ in range(5):
            await asyncio.sleep(0)
        reading = asyncio.ensure_future(collect_events(turn))
        await asyncio.sleep(0)
        gate.set()
        events = await reading
        assert [event.text for event in events if isinstance(event, Text)] == ["after"]
        await waiting

"""How a guest is told what happens: in order, one event at a time, while nobody waits for it."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.dialects.piglet.messages import ActionResult
from serai.errors import FrameTooBig, Refused
from serai.host.adapters.piglet.event_dispatch import TYPES, EventDispatcher, EventTranslator
from serai.limits import Limits
from serai.model import events
from serai.model.events import Event
from serai.model.tools import TextBlock
from tests.support.piglet.translated_events import CALL, EVENTS, OK, RUN, decode_events, types


class Guest:
    """Is told, and answers when the test lets it."""

    def __init__(
        self, limits: Limits | None = None, *, free: bool = True, wanted: Callable[[str], bool] = TYPES.__contains__
    ) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.acted: list[ActionResult] = []
        self.remarks: list[str] = []
        self.free = asyncio.Event()
        self.asked = asyncio.Event()
        self.answer: ActionResult | BaseException | None = None
        self.at_once = 0
        self.most_at_once = 0
        self.past: Callable[[], Awaitable[Any]] = self.history
        if free:
            self.free.set()
        self.dispatcher = EventDispatcher(
            self.dispatch, self.acted.append, self.remarks.append, wanted, self.ask, limits or Limits()
        )

    async def ask(self) -> Any:
        return await self.past()

    async def history(self) -> Any:
        return [{"role": "user", "content": "hi"}]

    async def dispatch(self, type: str, data: Any) -> ActionResult | None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.heard += decode_events([(type, data)])
        self.asked.set()
        try:
            await self.free.wait()
            await asyncio.sleep(0)
        finally:
            self.at_once -= 1
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def tell(self, *happened: Event) -> None:
        for event in happened:
            self.dispatcher.tell(event)

    async def done(self) -> list[tuple[str, Any]]:
        assert await self.dispatcher.flush(15.0)
        return self.heard


def steps(count: int) -> list[Event]:
    return [events.StepStarted(step=number) for number in range(count)]


def list_compacted(heard: Sequence[tuple[str, Any]]) -> list[int]:
    return [data["Before"] for _, data in heard]


def build_numbered(count: int) -> list[Event]:
    """Events that are no pieces of a stream and tell their number."""
    return [events.Compacted(before=number, after=0) for number in range(count)]


async def test_events_are_told_in_order_and_one_at_a_time() -> None:
    guest = Guest()
    guest.tell(*(event for event, _ in RUN))
    heard = await guest.done()
    *expected, _ = [one for _, some in RUN for one in some]
    expected.append(("EventAgentEnd", {"Messages": [{"role": "user", "content": "hi"}]}))
    assert heard == expected
    assert guest.most_at_once == 1
    assert not guest.remarks


async def test_only_wanted_types_are_told() -> None:
    guest = Guest(wanted={"EventTurnStart", "EventAgentInit"}.__contains__)
    guest.tell(*(event for event, _ in RUN))
    assert types(await guest.done()) == ["AgentInit", "TurnStart"]


async def test_pieces_that_wait_are_joined_when_they_are_of_one_stream() -> None:
    guest = Guest(free=False)
    guest.tell(events.StepStarted(step=1))
    await guest.asked.wait()
    guest.tell(*(events.Text(text=letter) for letter in "abc"), events.Thinking(text="d"), events.Text(text="e", index=1))
    guest.tell(events.Text(text="f"), events.StepStarted(step=2), events.Text(text="g"))
    guest.free.set()
    pieces = [(data["Kind"], data["Index"], data["Delta"]) for type, data in await guest.done() if type == "EventStreamDelta"]
    assert pieces == [("text", 0, "abc"), ("thinking", 0, "d"), ("text", 1, "e"), ("text", 0, "f"), ("text", 0, "g")]


async def test_joined_pieces_do_not_make_a_line_that_is_too_long() -> None:
    guest = Guest(free=False)
    guest.tell(*[events.Text(text="x" * 1000)] * 100)
    guest.free.set()
    lengths = [len(data["Delta"]) for _, data in await guest.done()]
    assert sum(lengths) == 100_000
    assert max(lengths) <= 16 * 1024


async def test_of_too_many_the_oldest_go_and_that_is_told_once() -> None:
    guest = Guest(Limits().but(events=10), free=False)
    guest.tell(events.Compacted(before=-1, after=0))
    await guest.asked.wait()
    guest.tell(*build_numbered(25))
    guest.free.set()
    assert list_compacted(await guest.done()) == [-1, *range(15, 25)]
    assert guest.dispatcher.dropped == 15
    assert guest.remarks == ["15 events were dropped, for it was behind by more than 10"]


async def test_a_guest_that_hangs_costs_no_memory_for_what_happens() -> None:
    guest = Guest(free=False)
    guest.tell(*steps(1))
    await guest.asked.wait()
    guest.tell(*build_numbered(1000), *[events.Text(text="piece")] * 1000)  # as many as ever wait
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(64_000):
            guest.dispatcher.tell(events.Text(text="piece") if number % 2 else events.Compacted(before=1, after=0))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 2_000_000  # 2000 of them: 1000 payloads of a few hundred bytes
    assert guest.dispatcher.dropped > 60_000
    guest.dispatcher.close()


async def test_there_is_a_task_only_while_there_is_something_to_tell() -> None:
    guests = [Guest() for _ in range(300)]
    before = len(asyncio.all_tasks())
    for guest in guests:
        guest.tell(events.OtherEvent(kind="odd"), events.ToolProgress(call=CALL, text="…"))
    assert len(asyncio.all_tasks()) == before
    for guest in guests:
        guest.tell(*steps(1))
    assert len(asyncio.all_tasks()) == before + 300
    for guest in guests:
        await guest.done()
    assert len(asyncio.all_tasks()) == before


async def test_what_an_event_is_answered_with_is_handed_on() -> None:
    guest = Guest()
    guest.answer = ActionResult("quit")
    guest.tell(*steps(1))
    await guest.done()
    assert guest.acted == [ActionResult("quit")]


@pytest.mark.parametrize("error", [Refused("no such event"), ValueError("odd")])
async def test_an_error_is_only_remarked(error: Exception) -> None:
    guest = Guest()
    guest.answer = error
    guest.tell(*build_numbered(2))
    assert list_compacted(await guest.done()) == [0, 1]
    assert len(guest.remarks) == 2
    assert str(error) in guest.remarks[0]


async def test_a_guest_that_fails_every_event_does_not_fill_its_log() -> None:
    guest = Guest()
    guest.answer = Refused("no")
    guest.tell(*build_numbered(300))
    await guest.done()
    assert len(guest.remarks) == 100
    assert guest.remarks[-1].endswith("is not told")


async def test_who_acts_and_fails_does_not_stop_the_rest() -> None:
    guest = Guest()
    guest.answer = ActionResult("quit")

    def act(action: ActionResult) -> None:
        raise ValueError("odd")

    guest.dispatcher._acted = act
    guest.tell(*build_numbered(2))
    assert list_compacted(await guest.done()) == [0, 1]


async def test_the_end_of_a_run_is_told_also_without_its_history() -> None:
    async def gone() -> Any:
        raise Refused("no agent")

    guest = Guest()
    guest.past = gone
    guest.tell(events.TurnEnded(result=OK))
    assert await guest.done() == [("EventAgentEnd", {"Messages": None})]
    assert "no agent" in guest.remarks[0]


async def test_an_event_that_cannot_be_translated_is_only_remarked() -> None:
    guest = Guest()
    guest.tell(events.StepStarted(step=1), events.StepEnded(stop="odd"), *build_numbered(1))  # type: ignore[arg-type]
    assert types(await guest.done()) == ["TurnStart", "Compact"]
    assert "StepEnded was not told" in guest.remarks[0]


async def test_flushing_waits_for_the_last_answer_but_not_for_ever() -> None:
    guest = Guest(free=False)
    assert await guest.dispatcher.flush(0.01)  # nothing to wait for
    guest.tell(*build_numbered(3))
    assert not await guest.dispatcher.flush(0.01)
    assert "2 more wait" in guest.remarks[-1]
    guest.free.set()
    assert list_compacted(await guest.done()) == [0, 1, 2]
    guest.tell(*build_numbered(1))  # and on it goes
    assert len(await guest.done()) == 4


@pytest.mark.parametrize("begun", [True, False])
async def test_closed_it_tells_nothing_more(begun: bool) -> None:
    guest = Guest(free=False)
    guest.tell(*build_numbered(3))
    if begun:
        await guest.asked.wait()
    guest.dispatcher.close()
    guest.dispatcher.close()
    guest.tell(*build_numbered(3))
    assert await guest.dispatcher.flush(15.0)
    assert len(guest.heard) == begun
    assert guest.at_once == 0 or begun
    assert not guest.remarks


@given(st.lists(st.one_of(EVENTS, st.just("go on")), max_size=40))
def test_whatever_happens_and_whenever_it_is_heard_nothing_is_lost_or_out_of_order(moves: list[Event | str]) -> None:
    async def play() -> None:
        guest = Guest()
        translator = EventTranslator()
        expected: list[tuple[str, Any]] = []
        for move in moves:
            if isinstance(move, str):
                await asyncio.sleep(0)
            else:
                expected += decode_events(translator.translate(move))
                guest.tell(move)
        await guest.done()
        assert _streams(guest.heard) == _streams(expected)
        assert guest.most_at_once <= 1
        assert not guest.remarks

    asyncio.run(play())


def _streams(heard: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """With all adjacent pieces joined, and what a run had said at its end left out."""
    found: list[tuple[str, Any]] = []
    for type, data in heard:
        last, before = found[-1] if found else ("", {})
        if type == last == "EventStreamDelta" and (data["Kind"], data["Index"]) == (before["Kind"], before["Index"]):
            found[-1] = (type, {**before, "Delta": before["Delta"] + data["Delta"]})
        else:
            found.append((type, data if type != "EventAgentEnd" else {}))
    return found


async def test_the_end_of_a_run_is_told_also_when_what_was_said_is_too_long() -> None:
    guest = Guest()

    async def dispatch(type: str, data: Any) -> ActionResult | None:
        guest.heard.append((type, data))
        if data.get("Messages"):
            raise FrameTooBig("a frame of 5000000 bytes is not sent")
        return ActionResult("quit")

    guest.dispatcher._dispatch = dispatch
    guest.dispatcher.tell(events.TurnEnded(result=events.TurnResult(status="success")))
    assert await guest.dispatcher.flush(30)
    assert guest.heard[-1] == ("EventAgentEnd", {"Messages": None})
    assert [action.type for action in guest.acted] == ["quit"]
    assert any("EventAgentEnd has no messages" in remark for remark in guest.remarks)


async def test_what_waits_is_bounded_in_bytes_too() -> None:
    guest = Guest(Limits().but(backlog=1000), free=False)
    for _ in range(50):
        for event in (events.StepStarted(step=1), events.Message(content=(TextBlock("x" * 300),)), events.StepEnded(step=1)):
            guest.dispatcher.tell(event)
    waiting = [data for type, data in guest.dispatcher._queue if type == "EventStreamDone"]
    assert 1 <= len(waiting) <= 3
    assert guest.dispatcher.dropped > 40
    guest.free.set()
    assert await guest.dispatcher.flush(30)
    assert guest.dispatcher._bytes == 0

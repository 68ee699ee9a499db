"""Events: who is told, in which order, and that nobody waits for anybody."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from serai.model.contributions import Contributions, EventHandler
from serai.model.events import Message, OtherEvent, SessionStarted, StateChanged, StepEnded, StepStarted, Text, ToolCalled
from serai.model.tools import TextBlock, ToolCall
from tests.support.host.fake_guests import Fake, open_fake_host
from tests.support.host.zot_guests import Fifo, make, open_host, read_frames

ALL = "subscribe(events=['session_start', 'turn_start', 'turn_end', 'tool_call', 'assistant_message'])"
# Writes down what it heard when it is told to leave.
DIARY = """
hello(subscribe(events=["turn_start", "assistant_message"]))
{wait}
heard = [frame for frame in frames() if frame["type"] == "event"]
with open("diary.json", "w") as diary:
    json.dump([frame.get("step") or len(frame["text"]) for frame in heard], diary)
"""


def build_message(size: int) -> Message:
    return Message(content=(TextBlock("x" * size),))


async def test_a_guest_hears_what_it_subscribed_to_in_the_words_of_its_protocol(tmp_path: Path) -> None:
    some = make(tmp_path, "remember(subscribe(events=['turn_end']))", name="some")
    async with open_host(tmp_path, some) as host:
        for event in (StepStarted(step=1), Text(text="hi"), StepEnded(step=1), StateChanged(state="odd"), OtherEvent(kind="odd")):
            host.tell(event)
        events = [frame for frame in await read_frames(host) if frame["type"] == "event"]
    assert events == [{"type": "event", "event": "turn_end", "stop": "end"}]


async def test_each_event_has_its_members_and_no_id(tmp_path: Path) -> None:
    async with open_host(tmp_path, make(tmp_path, f"remember({ALL})")) as host:
        host.tell(SessionStarted())
        host.tell(StepStarted(step=3))
        host.tell(Message(content=(TextBlock("one"), TextBlock("two"))))
        host.tell(ToolCalled(call=ToolCall("bash", {"command": "ls"}, id="c1")))
        host.tell(StepEnded(step=3, stop="error", error="no"))
        events = [frame for frame in await read_frames(host) if frame["type"] == "event"]
    assert events == [
        {"type": "event", "event": "session_start"},
        {"type": "event", "event": "turn_start", "step": 3},
        {"type": "event", "event": "assistant_message", "text": "one\ntwo"},
        {"type": "event", "event": "tool_call", "tool_id": "c1", "tool_name": "bash", "tool_args": {"command": "ls"}},
        {"type": "event", "event": "turn_end", "stop": "error", "error": "no"},
    ]


@pytest.mark.req("zot.ours.4.3-fifo", "zot.edge.48")
@pytest.mark.parametrize("size", [1, 200_000], ids=["keeping up", "behind"])
async def test_events_and_requests_arrive_in_the_order_they_were_emitted(tmp_path: Path, size: int) -> None:
    with Fifo(tmp_path) as latch:
        folder = make(tmp_path, f"remember({ALL}, tools=('heard', 'echo'), latch={str(latch.path)!r})")
        async with open_host(tmp_path, folder) as host:
            calls = []
            for number in range(20):
                host.tell(StepStarted(step=number))
                calls.append(asyncio.create_task(host.call_tool("echo", {"number": number})))
                await asyncio.sleep(0)  # now it is emitted, too
                host.tell(build_message(size + number))
            latch.lift()
            await asyncio.gather(*calls)
            frames = (await read_frames(host))[1:-1]
    expected: list[object] = []
    for number in range(20):
        expected += [number or None, {"number": number}, size + number]  # a step of 0 is not written
    assert [frame.get("args") or (len(frame["text"]) if "text" in frame else frame.get("step")) for frame in frames] == expected


@pytest.mark.req("zot.ours.4.3-flush-before-shutdown", "zot.edge.48")
async def test_the_last_events_of_a_run_are_not_lost(tmp_path: Path) -> None:
    folder = make(tmp_path, DIARY.format(wait=""))
    async with open_host(tmp_path, folder) as host:
        for step in range(1, 101):
            host.tell(StepStarted(step=step))
    assert json.loads((folder / "diary.json").read_text()) == list(range(1, 101))


@pytest.mark.req("zot.ours.4.3-flush-before-shutdown", "zot.edge.48")
async def test_a_guest_that_is_behind_gets_all_that_waits_before_it_is_told_to_leave(tmp_path: Path) -> None:
    with Fifo(tmp_path) as latch:
        folder = make(tmp_path, DIARY.format(wait=f"wait({str(latch.path)!r})"))
        async with open_host(tmp_path, folder) as host:
            for number in range(20):
                host.tell(build_message(300_000 + number))
            closing = asyncio.create_task(host.close())
            await asyncio.sleep(0)
            latch.lift()
            await closing
    assert json.loads((folder / "diary.json").read_text()) == [300_000 + number for number in range(20)]


@pytest.mark.req("zot.ours.4.3-slow-reader", "zot.ours.4.3-drop-oldest-events")
async def test_a_guest_that_does_not_read_stalls_nobody_and_misses_its_oldest_events_but_no_request(tmp_path: Path) -> None:
    with Fifo(tmp_path) as latch:
        slow = make(tmp_path, f"remember({ALL}, tools=('heard', 'echo'), latch={str(latch.path)!r})", name="slow")
        quick = make(tmp_path, f"remember({ALL}, tools=('quick',))", name="quick")
        async with open_host(tmp_path, slow, quick, limits={"events": 10}) as host:
            call = asyncio.create_task(host.call_tool("echo", {"x": "x" * 3_000_000}))
            await asyncio.sleep(0)  # the pipe is full: from here on everything waits
            early = asyncio.create_task(host.call_tool("echo", {"early": True}))
            await asyncio.sleep(0)
            for step in range(1, 101):
                host.tell(StepStarted(step=step))
                assert (await host.call_tool("quick", {"step": step})).text == json.dumps({"step": step})
            late = asyncio.create_task(host.call_tool("echo", {"late": True}))
            await asyncio.sleep(0)
            latch.lift()
            assert not any(result.is_error for result in await asyncio.gather(call, early, late))
            frames = (await read_frames(host))[2:-1]  # without the hello, the long one and the last
    assert [frame.get("args") or frame["step"] for frame in frames] == [{"early": True}, *range(91, 101), {"late": True}]


# -- who comes first --------------------------------------------------------------------------------------------------------------


def build_handlers(*handlers: tuple[frozenset[str], int]) -> Contributions:
    return Contributions(event_handlers=tuple(EventHandler("it", events, priority) for events, priority in handlers))


@pytest.mark.req("host.call.priority")
async def test_a_lower_priority_is_told_first_and_each_guest_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    every, steps, other = frozenset({"*"}), frozenset({"step_started"}), frozenset({"state_changed"})
    order: list[str] = []

    class Noting(Fake):
        def tell(self, event: object) -> None:
            order.append(self.name)

    fakes = [
        Noting("late", build_handlers((steps, 10))),
        Noting("all", build_handlers((every, 5))),
        Noting("both", build_handlers((every, 20), (steps, 0))),
        Noting("same", build_handlers((steps, 0))),
        Noting("other", build_handlers((other, -100))),
    ]
    async with open_fake_host(monkeypatch, tmp_path, *fakes) as host:
        host.tell(StepStarted(step=1))
        assert order == ["both", "same", "all", "late"]
        order.clear()
        host.tell(Text(text="hi"))  # nobody named it
        assert order == ["all", "both"]
        order.clear()
        host.tell(StateChanged(state="odd"))
        assert order == ["other", "all", "both"]


async def test_a_guest_that_is_down_misses_what_happens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mortal = Fake("mortal", build_handlers((frozenset({"*"}), 0)))
    async with open_fake_host(monkeypatch, tmp_path, mortal) as host:
        host.tell(StepStarted(step=1))
        mortal.die()
        host.tell(StepStarted(step=2))
    assert mortal.told == [StepStarted(step=1)]


@pytest.mark.req("zot.rule.4.3-session-start")
async def test_a_guest_hears_of_the_session_once_also_when_another_one_begins(tmp_path: Path) -> None:
    async with open_host(tmp_path, make(tmp_path, "remember(subscribe(events=['session_start']))")) as host:
        host.tell(SessionStarted(session="a"))
        host.tell(SessionStarted(session="b"))
        assert [frame["event"] for frame in await read_frames(host) if frame["type"] == "event"] == ["session_start"]


async def test_a_guest_that_wants_every_event_hears_of_the_session_when_it_joins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = Fake("all", Contributions(event_handlers=(EventHandler("it"),)))
    async with open_fake_host(monkeypatch, tmp_path, fake) as host:
        host.tell(SessionStarted())
        fake.told.clear()
        await host.reload("all")
        assert fake.told == [SessionStarted()]

"""The way to one guest, on a real wire to a child that does not read until it is let go."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from serai.errors import FrameTooBig, PeerGone, PeerStalled, SeraiError
from serai.host.send_queue import SendQueue
from serai.limits import Limits
from serai.model.events import Event, StateChanged, StepStarted, Text, Thinking, ToolInput
from serai.wire.channel import Channel
from serai.wire.event_loop import Deadlines
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Launch
from serai.wire.stream import PendingCall, PendingCalls
from tests.conftest import PATIENT
from tests.support.host.zot_guests import Fifo
from tests.support.processes import Collector

pytestmark = pytest.mark.loops

LONG = b"x" * 3_000_000 + b"\n"  # more than a pipe takes, however large it grows
# Waits at the latch, then says back what it reads.
ECHO = """
import sys
with open(sys.argv[1], "rb", buffering=0) as latch:
    latch.read(1)
for line in sys.stdin.buffer:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
"""


def frame(event: Event) -> bytes | None:
    return None if isinstance(event, StateChanged) else msgspec.json.encode(event) + b"\n"


class Wire(Collector):
    """A mailbox, its wire and what came back."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: PendingCalls[str] = PendingCalls()
        self.mail: SendQueue

    def handle_loss(self, cause: SeraiError) -> None:
        self.mail.close()
        super().handle_loss(cause)

    def call(self, id: str) -> PendingCall[str]:
        return self.calls.start(id, "call", now=0.0, timeout=None)

    async def back(self, count: int) -> list[Event | str]:
        """So many lines as they arrived: events, or the first characters of a request."""
        lines = await self.wait_for(count)
        assert len(lines) == count
        return [msgspec.json.decode(line, type=Event) if line[:1] == b"{" else line[:10].decode() for line in lines]


@pytest.fixture
def latch(tmp_path: Path) -> Iterator[Fifo]:
    with Fifo(tmp_path) as latch:
        yield latch


async def open_wire(spawner: PlainSpawner, deadlines: Deadlines, latch: Fifo, **limits: float) -> Wire:
    child = await spawner.spawn(Launch(argv=[sys.executable, "-I", "-S", "-c", ECHO, str(latch.path)], env={}, who="zot:slow"))
    wire = Wire()
    changed: Limits = PATIENT.but(**limits)
    channel = Channel(child, wire, deadlines=deadlines, limits=changed)
    wire.mail = SendQueue(channel, frame, lambda call: call.id in wire.calls, changed)
    return wire


@pytest.mark.req("host.event.behind")
async def test_pieces_of_one_stream_are_joined_for_who_is_behind(spawner: PlainSpawner, deadlines: Deadlines, latch: Fifo) -> None:
    wire = await open_wire(spawner, deadlines, latch)
    wire.mail.tell(Text(text="alone, at once"))
    wire.mail.request(LONG)
    for number in range(1000):
        wire.mail.tell(Text(text=str(number % 10)))
    wire.mail.tell(Text(text="other", index=1))
    wire.mail.tell(Text(text=" block", index=1))
    wire.mail.tell(Thinking(text="hm"))
    wire.mail.tell(Thinking(text="m"))
    wire.mail.tell(Text(text="lane", lane="sub"))
    wire.mail.tell(Text(text="main"))
    wire.mail.tell(ToolInput(text="{"))
    wire.mail.request(b"a request\n")
    wire.mail.tell(ToolInput(text="}"))
    latch.lift()
    assert await wire.back(10) == [
        Text(text="alone, at once"),
        "xxxxxxxxxx",
        Text(text="0123456789" * 100),
        Text(text="other block", index=1),
        Thinking(text="hmm"),
        Text(text="lane", lane="sub"),
        Text(text="main"),
        ToolInput(text="{"),
        "a request\n".strip(),
        ToolInput(text="}"),
    ]
    assert wire.mail.dropped == 0


@pytest.mark.req("host.event.behind")
@pytest.mark.req("zot.ours.4.3-drop-oldest-events")
async def test_beyond_the_limit_the_oldest_events_go_and_no_request(
    spawner: PlainSpawner, deadlines: Deadlines, latch: Fifo
) -> None:
    wire = await open_wire(spawner, deadlines, latch, events=3)
    wire.mail.request(LONG)
    for step in range(5):
        wire.mail.tell(StepStarted(step=step))
        wire.mail.request(f"request {step}\n".encode())
    latch.lift()
    started = [StepStarted(step=step) for step in range(5)]
    assert await wire.back(9) == [
        "xxxxxxxxxx",
        "request 0",
        "request 1",
        started[2],
        "request 2",
        started[3],
        "request 3",
        started[4],
        "request 4",
    ]
    assert wire.mail.dropped == 2


@pytest.mark.req("host.event.behind")
async def test_beyond_the_bytes_of_the_backlog_the_oldest_events_go_and_no_request(
    spawner: PlainSpawner, deadlines: Deadlines, latch: Fifo
) -> None:
    wire = await open_wire(spawner, deadlines, latch, backlog=100_000)
    wire.mail.request(LONG)
    wire.mail.tell(Text(text="x" * 60_000))
    wire.mail.request(b"a request\n")
    wire.mail.tell(Text(text="y" * 60_000, index=1))
    assert wire.mail.dropped == 1
    long = Text(text="z" * 150_000, index=2)  # alone it may be longer
    wire.mail.tell(long)
    assert wire.mail.dropped == 2
    latch.lift()
    assert await wire.back(3) == ["xxxxxxxxxx", "a request", long]


async def test_pieces_are_joined_only_as_long_as_they_can_be_sent(spawner: PlainSpawner, deadlines: Deadlines, latch: Fifo) -> None:
    wire = await open_wire(spawner, deadlines, latch, send=len(LONG))
    wire.mail.request(LONG)
    for letter in "abcd":
        wire.mail.tell(Text(text=letter * 1_000_000))
    latch.lift()
    assert await wire.back(3) == [
        "xxxxxxxxxx",
        Text(text="a" * 1_000_000 + "b" * 1_000_000),
        Text(text="c" * 1_000_000 + "d" * 1_000_000),
    ]
    assert wire.mail.dropped == 0


async def test_what_the_guest_has_no_word_for_is_not_sent(spawner: PlainSpawner, deadlines: Deadlines, latch: Fifo) -> None:
    wire = await open_wire(spawner, deadlines, latch)
    wire.mail.tell(StateChanged(state="at once"))
    wire.mail.request(LONG)
    wire.mail.tell(StateChanged(state="later"))
    wire.mail.request(b"last\n")
    latch.lift()
    assert await wire.back(2) == ["xxxxxxxxxx", "last"]
    assert wire.mail.dropped == 0


async def test_a_request_that_nobody_waits_for_any_more_is_not_sent(
    spawner: PlainSpawner, deadlines: Deadlines, latch: Fifo
) -> None:
    wire = await open_wire(spawner, deadlines, latch)
    wire.mail.request(LONG)
    for id in ("a", "b", "c"):
        wire.mail.request(f"call {id}\n".encode(), wire.call(id))
    wire.calls.finish("b")
    latch.lift()
    assert await wire.back(3) == ["xxxxxxxxxx", "call a", "call c"]


async def test_too_much_and_too_long_is_refused_at_once_and_what_waits_still_goes(
    spawner: PlainSpawner, deadlines: Deadlines, latch: Fifo
) -> None:
    wire = await open_wire(spawner, deadlines, latch, send=len(LONG), backlog=100_000)
    wire.mail.request(LONG)
    with pytest.raises(FrameTooBig, match="limit send = 3000001"):
        wire.mail.request(LONG + b"\n")
    for number in range(9):
        wire.mail.request(b"%d" % number * 10_000 + b"\n")
    with pytest.raises(PeerStalled, match=r"90009 bytes wait .*limit backlog = 100000"):
        wire.mail.request(b"9" * 10_000 + b"\n")
    latch.lift()
    assert await wire.back(10) == ["xxxxxxxxxx", *(str(number) * 10 for number in range(9))]


async def test_a_request_that_waited_is_not_lost_to_the_wires_own_budget(
    spawner: PlainSpawner, deadlines: Deadlines, latch: Fifo
) -> None:
    # Alone a request may be longer than the backlog, and so it may behind events: but only once they are written.
    wire = await open_wire(spawner, deadlines, latch, backlog=100_000)
    wire.mail.request(LONG)
    events = [StepStarted(step=1), StepStarted(step=2), StepStarted(step=3)]
    for event in events:
        wire.mail.tell(event)
    wire.mail.request(b"y" * 150_000 + b"\n")
    wire.mail.tell(StepStarted(step=4))
    latch.lift()
    assert await wire.back(6) == ["xxxxxxxxxx", *events, "yyyyyyyyyy", StepStarted(step=4)]


async def test_once_the_wire_is_lost_requests_say_why_and_events_are_counted(
    spawner: PlainSpawner, deadlines: Deadlines, latch: Fifo
) -> None:
    wire = await open_wire(spawner, deadlines, latch)
    wire.mail.request(LONG)
    wire.mail.tell(StepStarted(step=1))
    (child,) = spawner.children
    await child.kill_tree()
    await wire.over
    wire.mail.tell(StepStarted(step=2))
    assert wire.mail.dropped == 1
    with pytest.raises(PeerGone, match="killed by SIGKILL"):
        wire.mail.request(b"too late\n")


async def test_whoever_waits_for_the_last_frame_is_told_of_a_loss_and_not_cancelled(
    spawner: PlainSpawner, deadlines: Deadlines, latch: Fifo
) -> None:
    wire = await open_wire(spawner, deadlines, latch)
    wire.mail.request(LONG)
    wire.mail.tell(StepStarted(step=1))
    flushing = asyncio.create_task(wire.mail.flush())
    await asyncio.sleep(0)
    (child,) = spawner.children
    await child.kill_tree()
    await wire.over
    with pytest.raises(PeerGone):
        await flushing


async def test_a_flush_ends_when_everything_is_on_the_wire(spawner: PlainSpawner, deadlines: Deadlines, latch: Fifo) -> None:
    wire = await open_wire(spawner, deadlines, latch)
    await wire.mail.flush()
    wire.mail.request(LONG)
    for step in range(100):
        wire.mail.tell(StepStarted(step=step))
    flushing = asyncio.create_task(wire.mail.flush())
    await asyncio.sleep(0)
    assert not flushing.done()
    latch.lift()
    await flushing
    assert len(await wire.back(101)) == 101

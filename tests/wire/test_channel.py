"""The hot path, on real children."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import F_GETPIPE_SZ, fcntl
from time import monotonic

import pytest

from serai.errors import Closed, ExitStatus, FrameTooBig, PeerGone, PeerStalled, SeraiError
from serai.limits import Limits
from serai.testing import faults
from serai.wire.channel import Channel
from serai.wire.event_loop import Deadlines
from serai.wire.plain_process import PlainChild, PlainSpawner
from serai.wire.process import Launch, stop_child
from tests.conftest import PATIENT, QUICK
from tests.support.processes import Collector, MemoryTap, lives

pytestmark = pytest.mark.loops


async def spawn_cat(spawner: PlainSpawner, environ: dict[str, str]) -> PlainChild:
    return await spawner.spawn(Launch(argv=["cat"], env=environ))


@contextmanager
def count_writes(monkeypatch: pytest.MonkeyPatch, descriptor: int) -> Iterator[list[bytes]]:
    """The system calls that write to a descriptor."""
    writes: list[bytes] = []
    real = os.write

    def write(fd: int, data: bytes) -> int:
        if fd == descriptor:
            writes.append(bytes(data))
        return real(fd, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        yield writes


@pytest.mark.req("wire.channel.write-through")
async def test_a_frame_that_is_alone_is_written_at_once(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = await spawn_cat(spawner, environ)
    collector = Collector()
    channel = Channel(child, collector, deadlines=deadlines)
    for count in range(1, 4):
        with count_writes(monkeypatch, child.stdin) as writes:
            channel.send(b'{"n":1}\n')
            assert writes == [b'{"n":1}\n']  # before the loop ran again
        await collector.wait_for(count)


@pytest.mark.req("wire.channel.write-through")
async def test_frames_of_one_tick_go_out_in_one_write(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = await spawn_cat(spawner, environ)
    collector = Collector()
    channel = Channel(child, collector, deadlines=deadlines)
    with count_writes(monkeypatch, child.stdin) as writes:
        for n in range(100):
            channel.send(b'{"n":%d}\n' % n)
        await collector.wait_for(100)
        assert len(writes) == 2  # the first alone, the others together
        for n in range(100):
            channel.send(b'{"n":%d}\n' % n)
        await collector.wait_for(200)
    assert len(writes) <= 4
    assert collector.lines() == [b'{"n":%d}' % n for n in range(100)] * 2


@pytest.mark.req("wire.channel.backlog")
async def test_a_child_that_never_reads_blocks_nobody_and_has_a_byte_budget(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]
) -> None:
    child = await spawner.spawn(Launch(argv=faults.peer("deaf"), env=environ, who="deaf"))
    channel = Channel(child, Collector(), deadlines=deadlines, limits=PATIENT.but(backlog=3_000_000))
    frame = b"x" * 999_999 + b"\n"
    start = monotonic()
    with pytest.raises(PeerStalled, match="deaf: .* bytes wait") as stalled:
        for _ in range(10):
            channel.send(frame)
    assert monotonic() - start < 30
    assert stalled.value.limit is not None
    assert stalled.value.limit.name == "backlog"


@pytest.mark.req("wire.channel.drain")
async def test_a_sender_can_wait_until_everything_was_taken(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    program = "import sys; go = sys.stdin.readline(); n = len(sys.stdin.read()); print(n, flush=True)"
    child = await spawner.spawn(Launch(argv=[*python, program], env=environ))
    collector = Collector()
    channel = Channel(child, collector, deadlines=deadlines)
    await channel.drain()  # nothing to wait for
    channel.send(b"go\n")
    for _ in range(20):
        channel.send(b"y" * 499_999 + b"\n")
    channel.end_input()  # only after all of it
    await channel.drain()
    assert await collector.wait_for(1) == [b"10000000"]
    with pytest.raises(Closed, match="input was closed"):
        channel.send(b"more\n")


@pytest.mark.req("wire.channel.drain")
async def test_a_waiting_sender_is_told_when_the_wire_is_lost(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]
) -> None:
    child = await spawner.spawn(Launch(argv=faults.peer("deaf"), env=environ))
    collector = Collector()
    channel = Channel(child, collector, deadlines=deadlines, limits=PATIENT)
    channel.send(b"x" * 10_000_000 + b"\n")
    waiting = asyncio.create_task(channel.drain())
    await asyncio.sleep(0)
    child.signal(9)
    with pytest.raises((PeerGone, Closed)):
        await waiting
    await collector.over
    with pytest.raises(PeerGone, match="SIGKILL"):
        await channel.drain()


@pytest.mark.req("wire.channel.send-limit")
async def test_a_frame_over_the_send_limit_is_refused_and_nothing_of_it_is_written(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]
) -> None:
    collector = Collector()
    channel = Channel(await spawn_cat(spawner, environ), collector, deadlines=deadlines, limits=PATIENT.but(send=100))
    with pytest.raises(FrameTooBig, match="101 bytes"):
        channel.send(b"x" * 100 + b"\n")
    channel.send(b"y" * 99 + b"\n")
    assert await collector.wait_for(1) == [b"y" * 99]


@pytest.mark.req("wire.channel.pause")
async def test_a_paused_channel_loses_nothing_even_when_the_child_ends_meanwhile(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]
) -> None:
    child = await spawner.spawn(Launch(argv=["sh", "-c", "read l; echo one; echo two; exit 4"], env=environ))
    collector = Collector()
    channel = Channel(child, collector, deadlines=deadlines, limits=PATIENT.but(drain_grace=0.01))
    channel.pause()
    channel.pause()
    channel.send(b"go\n")
    await child.exited
    looked = deadlines.watch(lambda now: done.set_result(None))
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    looked.schedule(monotonic() + 0.05)  # well after the grace
    await done
    assert (collector.runs, collector.causes) == ([], [])
    channel.resume()
    cause = await collector.over
    assert collector.lines() == [b"one", b"two"]
    assert cause.exit == ExitStatus(code=4)
    channel.resume()


@pytest.mark.req("wire.channel.lost-once")
async def test_the_end_is_told_once_and_last_with_status_and_stderr(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]
) -> None:
    child = await spawner.spawn(Launch(argv=["sh", "-c", "echo out; echo why >&2; exit 9"], env=environ, who="nine"))
    collector = Collector()
    channel = Channel(child, collector, deadlines=deadlines, limits=PATIENT)
    cause = await collector.over
    assert isinstance(cause, PeerGone)
    assert str(cause) == "nine: ended (exit status 9); stderr ended with: why"
    assert collector.lines() == [b"out"]
    channel.close()
    await stop_child(child, QUICK)
    assert collector.causes == [cause]
    with pytest.raises(PeerGone, match="exit status 9"):
        channel.send(b"{}\n")


async def test_closing_the_wire_on_purpose_is_told_as_such(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]
) -> None:
    collector = Collector()
    channel = Channel(await spawn_cat(spawner, environ), collector, deadlines=deadlines)
    channel.send(b"{}\n")
    channel.close()
    channel.close()
    assert [type(cause) for cause in collector.causes] == [Closed]
    with pytest.raises(Closed):
        channel.send(b"{}\n")


@pytest.mark.req("wire.channel.end-drains")
async def test_what_a_child_says_at_its_end_is_delivered_before_the_loss(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    """More than a pipe holds, written while it is being stopped, and a last line without a newline."""
    program = "import sys; sys.stdin.read(); print(*['line %d' % n for n in range(50_000)], sep='\\n', end='')"
    child = await spawner.spawn(Launch(argv=[*python, program], env=environ))
    collector = Collector()
    Channel(child, collector, deadlines=deadlines, limits=PATIENT)
    await stop_child(child, PATIENT)
    assert collector.over.done()
    assert collector.lines()[-1] == b"line 49999"
    assert len(collector.lines()) == 50_000


@pytest.mark.req("wire.channel.end-drains")
async def test_what_is_still_in_the_pipe_when_a_child_is_closed_is_delivered(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]
) -> None:
    child = await spawner.spawn(Launch(argv=["sh", "-c", "read l; echo last words; sleep 100"], env=environ))
    collector = Collector()
    channel = Channel(child, collector, deadlines=deadlines, limits=PATIENT)
    channel.pause()
    channel.send(b"go\n")
    while not await asyncio.to_thread(_is_readable, child.stdout):
        pass
    await child.close()
    assert collector.lines() == [b"last words"]
    assert len(collector.causes) == 1


def _is_readable(descriptor: int) -> bool:
    import select

    return bool(select.select([descriptor], [], [], 1.0)[0])


@pytest.mark.req("wire.channel.tap")
async def test_the_tap_sees_every_frame_both_ways_as_whole_frames_in_order(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]
) -> None:
    tap, collector = MemoryTap(), Collector()
    child = await spawn_cat(spawner, environ)
    start = monotonic()
    channel = Channel(child, collector, deadlines=deadlines, limits=PATIENT, tap=tap)
    frames = [b'{"n":%d,"pad":"%s"}\n' % (n, b"x" * (n * 37 % 2000)) for n in range(500)] + [b"y" * 300_000 + b"\n", b"z\n"]
    for frame in frames:
        channel.send(frame)
    await collector.wait_for(len(frames))
    channel.end_input()
    cause = await collector.over
    assert tap.all("sent") == tap.all("received") == b"".join(frames)
    assert all(run.endswith(b"\n") for _, _, run in tap.seen)
    times = [at for _, at, _ in tap.seen]
    assert times == sorted(times)
    assert start <= times[0]
    assert times[-1] <= monotonic()
    assert tap.ends == [cause]


@pytest.mark.req("wire.channel.tap")
async def test_the_tap_is_told_what_was_skipped_and_where(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]
) -> None:
    tap, collector = MemoryTap(), Collector()
    channel = Channel(await spawn_cat(spawner, environ), collector, deadlines=deadlines, limits=PATIENT.but(frame=10), tap=tap)
    channel.send(b"one\nfar too long\ntwo\n")
    await collector.wait_for(2)
    assert [run for _, _, run in tap.seen[1:]] == [b"one\n", b"two\n"]
    assert [(before, frame.size, frame.head) for before, frame in tap.skips] == [(2, 13, b"far too lo")]


async def test_a_wire_needs_an_output_and_refuses_to_send_without_an_input(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]
) -> None:
    child = await spawner.spawn(Launch(argv=["sh", "-c", "echo hi"], env=environ, stdin="null"))
    collector = Collector()
    channel = Channel(child, collector, deadlines=deadlines, limits=PATIENT)
    with pytest.raises(Closed, match="input"):
        channel.send(b"{}\n")
    await collector.over
    assert collector.lines() == [b"hi"]
    await child.close()
    with pytest.raises(Closed, match="no output"):
        Channel(child, collector, deadlines=deadlines)


async def test_output_taken_away_as_noise_ends_the_wire_on_it(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]
) -> None:
    child = await spawner.spawn(Launch(argv=faults.peer("flood"), env=environ))
    collector = Collector()
    channel = Channel(child, collector, deadlines=deadlines, limits=PATIENT)
    channel.send(b'{"id":1}\n')
    await collector.wait_for(1)
    child.drain_noise(child.stdout)
    assert [type(cause) for cause in collector.causes] == [Closed]
    assert lives(child.pid)


@pytest.mark.req("wire.channel.receiver-fails")
async def test_a_failing_receiver_does_not_end_the_wire(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    class Clumsy(Collector):
        def handle_run(self, run: bytes) -> None:
            super().handle_run(run)
            if b"first" in run:
                raise RuntimeError("clumsy")

        def tick(self, now: float) -> float | None:
            super().tick(now)
            looked.set_result(None)
            raise RuntimeError("late")

        def handle_loss(self, cause: object) -> None:
            raise RuntimeError("lost too")

    looked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    collector = Clumsy()
    child = await spawn_cat(spawner, environ)
    channel = Channel(child, collector, deadlines=deadlines)
    channel.send(b"first\n")
    await collector.wait_for(1)
    channel.wake_by(monotonic())
    await looked
    channel.send(b"second\n")
    assert await collector.wait_for(2) == [b"first", b"second"]
    channel.close()
    assert all(word in caplog.text for word in ("clumsy", "late", "lost too"))


@pytest.mark.req("wire.channel.tap-fails")
@pytest.mark.parametrize("method", ["frames", "skipped", "ended"])
async def test_a_failing_tap_is_dropped_and_the_wire_goes_on(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], caplog: pytest.LogCaptureFixture, method: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    tap, collector = MemoryTap(), Collector()
    setattr(tap, method, fail)
    channel = Channel(await spawn_cat(spawner, environ), collector, deadlines=deadlines, limits=PATIENT.but(frame=10), tap=tap)
    channel.send(b"one\nfar too long\ntwo\n")
    assert await collector.wait_for(2) == [b"one", b"two"]
    assert len(collector.oversized) == 1
    channel.end_input()
    assert isinstance(await collector.over, PeerGone)
    assert "the disk is full" in caplog.text


@pytest.mark.req("wire.channel.pieces")
async def test_a_run_of_very_many_lines_lets_others_have_their_turns(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    """Short lines are dear to read: a full pipe of them comes in pieces, whole and in order, also when paused and at the end."""
    program = "import sys; sys.stdin.readline(); sys.stdout.write('x\\n' * 30_000 + 'last'); sys.stdout.flush()"
    child = await spawner.spawn(Launch(argv=[*python, program], env=environ))
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        if not collector.over.done():
            asyncio.get_running_loop().call_soon(turn)

    class Pausing(Collector):
        def handle_run(self, run: bytes) -> None:
            super().handle_run(run)
            seen.append((run.count(b"\n"), turns))
            if len(seen) == 5:
                channel.pause()
                asyncio.get_running_loop().call_later(0.01, channel.resume)

    seen: list[tuple[int, int]] = []
    collector = Pausing()
    channel = Channel(child, collector, deadlines=deadlines, limits=PATIENT)
    channel.send(b"go\n")
    turn()
    await collector.over
    assert collector.lines() == [b"x"] * 30_000 + [b"last"]
    assert max(lines for lines, _ in seen) <= 1000
    assert len({at for _, at in seen}) >= len(seen) - 1  # a turn of the loop for each piece; the last line comes with the end


async def test_a_receiver_that_closes_the_wire_gets_nothing_after_its_end(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]
) -> None:
    class Leaving(Collector):
        def handle_run(self, run: bytes) -> None:
            super().handle_run(run)
            channel.close()

    collector = Leaving()
    channel = Channel(await spawn_cat(spawner, environ), collector, deadlines=deadlines, limits=PATIENT.but(frame=10))
    channel.send(b"one\nfar too long\ntwo\n")
    await collector.over
    assert (collector.lines(), collector.oversized) == ([b"one"], [])


@pytest.mark.req("wire.channel.lost-once")
@pytest.mark.parametrize("ends", ["by its exit", "by closing its input"])
async def test_the_end_is_told_also_when_it_comes_while_very_many_lines_are_handed_on(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str], ends: str
) -> None:
    exits = "if os.fork() == 0: signal.pause()\nos._exit(0)"
    unplugs = "os.close(0)\nsignal.pause()"
    program = f"import os, signal; os.read(0, 10); os.write(1, b'x\\n' * 20_000)\n{exits if ends == 'by its exit' else unplugs}"
    child = await spawner.spawn(Launch(argv=[*python, program], env=environ))
    collector = Collector()
    channel = Channel(child, collector, deadlines=deadlines, limits=QUICK)
    channel.send(b"go\n")
    await collector.wait_for(1)
    if ends == "by closing its input":
        while not channel._broken:
            channel.send(b"more\n")
            await asyncio.sleep(0)
    assert isinstance(await collector.over, PeerGone)
    assert len(collector.lines()) == 20_000


@pytest.mark.req("wire.channel.end-drains")
async def test_all_that_a_large_pipe_holds_is_delivered_when_its_child_is_closed(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    program = "import os, signal; os.write(1, (b'y' * 999 + b'\\n') * 1000); os.write(2, b'written'); signal.pause()"
    child = await spawner.spawn(Launch(argv=[*python, program], env=environ, pipe=1 << 20))
    collector = Collector()
    channel = Channel(child, collector, deadlines=deadlines, limits=PATIENT.but(pipe=1 << 17))
    channel.pause()
    written = asyncio.Event()
    child.stderr.on_chunk = lambda chunk: written.set()
    await written.wait()
    await child.close()
    assert len(collector.lines()) == 1000


@pytest.mark.req("wire.channel.end-drains")
async def test_a_loop_that_comes_late_still_finds_what_a_child_left_in_the_pipe(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    """The grace is long over when the loop gets to it, and a grandchild holds the pipe, so that no end of output comes."""
    program = "import os, signal; os.read(0, 10)\nif os.fork() == 0: signal.pause()\nos.write(1, b'line\\n' * 900)"
    child = await spawner.spawn(Launch(argv=[*python, program], env=environ))
    collector = Collector()
    channel = Channel(child, collector, deadlines=deadlines, limits=PATIENT.but(drain_grace=0.01))
    channel.pause()
    channel.send(b"go\n")
    await child.exited
    channel.resume()
    assert channel._finish_at is not None
    while monotonic() < channel._finish_at:  # the loop is busy with something else
        pass
    cause = await collector.over
    assert len(collector.lines()) == 900
    assert "holds its output open" in str(cause)


async def test_the_end_is_told_after_the_receiver_has_finished_with_what_came_before(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]
) -> None:
    class Closing(Collector):
        def handle_run(self, run: bytes) -> None:
            channel.close()
            order.append("still at it")
            super().handle_run(run)

        def handle_loss(self, cause: SeraiError) -> None:
            order.append("lost")
            super().handle_loss(cause)

    order: list[str] = []
    collector = Closing()
    channel = Channel(await spawn_cat(spawner, environ), collector, deadlines=deadlines)
    channel.send(b"x\n")
    await collector.over
    assert order == ["still at it", "lost"]


@pytest.mark.req("wire.channel.pause")
async def test_a_pause_holds_from_the_next_frame_on(spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]) -> None:
    class Pausing(Collector):
        def handle_run(self, run: bytes) -> None:
            super().handle_run(run)
            channel.pause()

    collector = Pausing()
    channel = Channel(await spawn_cat(spawner, environ), collector, deadlines=deadlines, limits=PATIENT.but(frame=10))
    channel.send(b"one\nfar too long\ntwo\n")
    assert await collector.wait_for(1) == [b"one"]
    await asyncio.sleep(0)
    assert (collector.lines(), collector.oversized) == ([b"one"], [])
    channel.resume()
    assert await collector.wait_for(2) == [b"one", b"two"]
    assert len(collector.oversized) == 1


@pytest.mark.req("wire.channel.drain")
async def test_who_waits_for_a_pipe_that_breaks_is_told_whose_doing_it_was(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]
) -> None:
    child = await spawner.spawn(Launch(argv=faults.peer("unplugged"), env=environ))
    collector = Collector()
    channel = Channel(child, collector, deadlines=deadlines, limits=PATIENT)
    channel.send(b'{"id":1}\n')
    channel.send(b"x" * 5_000_000 + b"\n")
    with pytest.raises(PeerGone, match="closed its input"):
        await channel.drain()
    with pytest.raises(PeerGone, match="closed its input"):
        await channel.drain()


@pytest.mark.req("wire.channel.backlog")
async def test_one_long_frame_may_exceed_the_backlog_when_nothing_waits(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]
) -> None:
    collector = Collector()
    channel = Channel(await spawn_cat(spawner, environ), collector, deadlines=deadlines, limits=PATIENT.but(backlog=1000))
    for count in (1, 2):
        channel.send(b"x" * 500_000 + b"\n")
        await collector.wait_for(count)


@pytest.mark.req("wire.channel.input-optional")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_child_may_ignore_its_input_once_we_have_said_all(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], when: str
) -> None:
    """As a box hook does: the request breaks on a closed pipe, and its answer counts all the same."""
    hold = "head -c 100000 >/dev/null; " if when == "after" else ""
    script = f"{hold}exec <&-; read go <&3; echo answer"
    child = await spawner.spawn(Launch(argv=["sh", "-c", script], env=environ, extra={3: "r"}))
    collector = Collector()
    channel = Channel(child, collector, deadlines=deadlines, limits=PATIENT.but(exit_grace=0.01))
    channel.send(b"x" * 1_000_000 + b"\n")
    channel.end_input()
    while not channel.outbox.closed:  # the pipe is broken
        await asyncio.sleep(0)
    looked = asyncio.Event()
    deadlines.watch(lambda now: looked.set()).schedule(monotonic() + 0.05)  # and the grace long over
    await looked.wait()
    os.write(child.extra[3], b"go\n")
    cause = await collector.over
    assert collector.lines() == [b"answer"]
    assert cause.exit == ExitStatus(code=0)


@pytest.mark.req("wire.channel.descriptor-reuse")
async def test_a_new_descriptor_with_an_old_number_belongs_to_its_new_owner(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]
) -> None:
    """The closed child's numbers are given to new pipes at once; the old channel must not read, write or remove them."""
    old = Collector()
    child = await spawner.spawn(Launch(argv=faults.peer("deaf"), env=environ))
    channel = Channel(child, old, deadlines=deadlines, limits=PATIENT)
    channel.send(b"x" * 1_000_000 + b"\n")  # so that it waits to write
    numbers = {child.stdin, child.stdout}
    await child.close()
    fresh = await spawn_cat(spawner, environ)
    assert numbers & {fresh.stdin, fresh.stdout}
    collector = Collector()
    renewed = Channel(fresh, collector, deadlines=deadlines)
    channel.close()
    channel.resume()
    channel.end_input()
    renewed.send(b"hello\n")
    assert await collector.wait_for(1) == [b"hello"]
    assert old.runs == []


@pytest.mark.req("wire.channel.fair")
async def test_a_flood_does_not_keep_another_wire_from_its_turn(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]
) -> None:
    flood = await spawner.spawn(Launch(argv=faults.peer("flood"), env=environ))
    noise, quiet = Collector(), Collector()
    noisy = Channel(flood, noise, deadlines=deadlines, limits=PATIENT)
    channel = Channel(await spawn_cat(spawner, environ), quiet, deadlines=deadlines)
    noisy.send(b'{"id":1}\n')
    await noise.wait_for(1000)
    for count in range(1, 50):
        before = len(noise.runs)
        channel.send(b"ping\n")
        await quiet.wait_for(count)
        assert len(noise.runs) - before < 500  # turns of the other in between, not its whole stream
        noise.runs.clear()
    noisy.close()


async def test_pipes_grow_for_a_wire_with_long_frames(spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]) -> None:
    child = await spawn_cat(spawner, environ)
    collector = Collector()
    channel = Channel(child, collector, deadlines=deadlines)
    assert fcntl(child.stdin, F_GETPIPE_SZ) == 65536
    channel.send(b"x" * 1_000_000 + b"\n")
    await collector.wait_for(1)
    assert fcntl(child.stdin, F_GETPIPE_SZ) == Limits().pipe
    assert fcntl(child.stdout, F_GETPIPE_SZ) == Limits().pipe


async def test_a_channel_can_use_the_extra_descriptors(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    program = "import os\nwhile data := os.read(3, 65536): os.write(4, data.upper())\nprint('noise')"
    child = await spawner.spawn(Launch(argv=[*python, program], env=environ, extra={3: "r", 4: "w"}))
    collector, noise = Collector(), Collector()
    channel = Channel(child, collector, deadlines=deadlines, limits=PATIENT, read=child.extra[4], write=child.extra[3])
    Channel(child, noise, deadlines=deadlines, limits=PATIENT)
    channel.send(b"shout\n")
    assert await collector.wait_for(1) == [b"SHOUT"]
    channel.end_input()
    cause = await collector.over
    assert cause.exit == ExitStatus(code=0)
    await noise.over
    assert noise.lines() == [b"noise"]

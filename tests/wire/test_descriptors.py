"""Many descriptors behind one: everybody is called, the busy ones move out; and drained ones, which never block."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from contextvars import ContextVar, copy_context

import pytest

from serai.wire import descriptors as module
from serai.wire.descriptors import DelayedReaders, Poller, Tail

pytestmark = pytest.mark.loops


@pytest.fixture
async def poller() -> AsyncIterator[Poller]:
    poller = Poller()
    yield poller
    poller.close()


class Pipe:
    """A pipe with something in it or not; its reader counts how often it was called."""

    def __init__(self, stack: ExitStack) -> None:
        self.read, self.write = os.pipe()
        stack.callback(os.close, self.read)
        stack.callback(os.close, self.write)
        self.calls = 0

    def fill(self) -> None:
        os.write(self.write, b"x")

    def readable(self) -> None:
        self.calls += 1
        os.read(self.read, 1)


async def wait_until(what: Callable[[], object], value: object) -> None:
    while what() != value:
        await asyncio.sleep(0)


@pytest.mark.req("wire.poller.fair")
async def test_each_is_called_when_it_can_be_read_also_more_than_one_turn_takes(poller: Poller) -> None:
    with ExitStack() as stack:
        pipes = [Pipe(stack) for _ in range(module._MOST + 10)]
        for pipe in pipes:
            poller.add_reader(pipe.read, pipe.readable)
            pipe.fill()
        await wait_until(lambda: [pipe.calls for pipe in pipes], [1] * len(pipes))
        poller.remove_reader(pipes[0].read)
        poller.remove_reader(pipes[0].read)
        for pipe in pipes[:2]:
            pipe.fill()
        await wait_until(lambda: pipes[1].calls, 2)
        assert pipes[0].calls == 1


@pytest.mark.req("wire.poller.close")
async def test_one_that_is_removed_in_the_same_turn_is_not_called(poller: Poller) -> None:
    with ExitStack() as stack:
        pipes = [Pipe(stack) for _ in range(2)]
        called: list[str] = []

        def only() -> None:
            called.append("one")
            for pipe in pipes:
                poller.remove_reader(pipe.read)

        for pipe in pipes:
            pipe.fill()
            poller.add_reader(pipe.read, only)
        await wait_until(lambda: len(called), 1)
        await asyncio.sleep(0)
        assert called == ["one"]


@pytest.mark.req("wire.poller.fair")
async def test_a_reader_that_fails_makes_nobody_deaf(poller: Poller, caplog: pytest.LogCaptureFixture) -> None:
    with ExitStack() as stack:
        bad, good = Pipe(stack), Pipe(stack)

        def fail() -> None:
            poller.remove_reader(bad.read)
            raise RuntimeError("a defect")

        poller.add_reader(bad.read, fail)
        poller.add_reader(good.read, good.readable)
        bad.fill()
        good.fill()
        await wait_until(lambda: good.calls, 1)
        await wait_until(lambda: "a defect" in caplog.text, True)


@pytest.mark.req("wire.poller.busy")
async def test_one_that_is_ready_alone_again_and_again_moves_to_the_loop_and_can_be_removed_there(poller: Poller) -> None:
    with ExitStack() as stack:
        busy, idle = Pipe(stack), Pipe(stack)
        poller.add_reader(busy.read, busy.readable)
        poller.add_reader(idle.read, idle.readable)
        for number in range(2 * module._BUSY):
            busy.fill()
            await wait_until(lambda: busy.calls, number + 1)
        assert poller._busy == {busy.read}
        busy.fill()
        assert poller._epoll.poll(0) == []  # it is no longer here
        await wait_until(lambda: busy.calls, 2 * module._BUSY + 1)
        poller.remove_reader(busy.read)
        poller.add_reader(busy.read, busy.readable)
        assert poller._busy == set()
        busy.fill()
        assert poller._epoll.poll(0) == [(busy.read, select.EPOLLIN)]
        await wait_until(lambda: busy.calls, 2 * module._BUSY + 2)


@pytest.mark.req("wire.poller.close")
async def test_closed_it_leaves_nothing_in_the_loop() -> None:
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        poller, pipe = Poller(), Pipe(stack)
        number = poller._epoll.fileno()
        poller.add_reader(pipe.read, pipe.readable)
        for count in range(module._BUSY):
            pipe.fill()
            await wait_until(lambda: pipe.calls, count + 1)
        assert poller._busy
        poller.close()
        poller.close()
        assert not loop.remove_reader(pipe.read)
        assert not loop.remove_reader(number)
        poller.remove_reader(pipe.read)


@pytest.mark.req("wire.poller.patient")
async def test_the_patient_one_watches_what_is_still_there_after_a_moment(poller: Poller) -> None:
    with ExitStack() as stack:
        patient, early, late, none = DelayedReaders(poller), Pipe(stack), Pipe(stack), Pipe(stack)
        for pipe in (early, late, none):
            patient.add_reader(pipe.read, pipe.readable)
            pipe.fill()
        patient.remove_reader(early.read)  # nobody watches it yet
        patient.remove_reader(early.read)
        assert poller._callbacks == {}
        await wait_until(lambda: (early.calls, late.calls, none.calls), (0, 1, 1))
        patient.remove_reader(none.read)  # and this one is watched
        for pipe in (late, none):
            pipe.fill()
        await wait_until(lambda: late.calls, 2)
        assert none.calls == 1
        assert patient._timer is None


@pytest.mark.req("wire.poller.patient")
async def test_the_patient_one_forgets_when_it_is_closed(poller: Poller) -> None:
    with ExitStack() as stack:
        patient, pipe = DelayedReaders(poller), Pipe(stack)
        patient.add_reader(pipe.read, pipe.readable)
        patient.close()
        patient.close()
        assert patient._timer is None
        patient.remove_reader(pipe.read)
        assert poller._callbacks == {}


@pytest.mark.req("wire.poller.fair")
async def test_each_is_called_in_the_context_of_who_added_it(poller: Poller) -> None:
    name: ContextVar[str] = ContextVar("name")
    seen: dict[str, str] = {}
    with ExitStack() as stack:
        pipes = {who: Pipe(stack) for who in ("one", "two")}

        def add(who: str) -> None:
            def readable() -> None:
                pipes[who].readable()
                seen[who] = name.get()

            name.set(who)
            poller.add_reader(pipes[who].read, readable)

        for who in pipes:
            copy_context().run(add, who)
        for count in range(module._BUSY + 2):  # in the poller, and after it moved to the loop
            seen.clear()
            pipes["one"].fill()
            await wait_until(lambda: pipes["one"].calls, count + 1)
            assert seen == {"one": "one"}
        pipes["two"].fill()
        await wait_until(lambda: seen.get("two"), "two")


@pytest.mark.req("wire.process.stderr")
async def test_only_the_last_bytes_are_kept_however_they_come() -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    tail = Tail(read, 10)
    for number in range(100):
        os.write(write, b"%02d" % number)
        await asyncio.sleep(0)
        tail.drain()
    assert (tail.last(), tail.total) == (b"9596979899", 200)
    os.close(write)
    tail.drain()
    assert tail.closed
    assert tail.text() == "9596979899"
    tail.close()
    tail.drain()


async def test_what_is_no_text_is_replaced() -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    tail = Tail(read, 100)
    os.write(write, b"caf\xe9")
    os.close(write)
    tail.drain()
    tail.close()
    assert tail.text() == "caf\ufffd"

"""An event has its place among a plugin's calls: behind those that came before it, before those that came after (spec yoi 15.1)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from serai.errors import SeraiError
from serai.host.adapters.yoi.guest import YoiGuest
from serai.host.guest import GuestState
from tests.support.host.zot_guests import wait_for_state
from tests.support.yoi.hosted_plugins import ID, INGRESS, Plugin, build_tools, event, guest_of, run_host, wait_until


def build_numbering() -> bytes:
    """Its answer to an event is how many calls it has had, those of its tool `count` among them; and the event."""
    guest = build_tools()
    head, middle = guest.text('{"at":'), guest.text(',"event":')
    body = (
        "(global.set $calls (i32.add (global.get $calls) (i32.const 1))) (call $begin (i32.const 512)) "
        f"(call $put {head}) (call $number (global.get $calls)) (call $put {middle}) "
        "(call $put (local.get $b) (local.get $m)) (call $byte (i32.const 125)) (call $done)"
    )
    return guest.on("handle-ingress", body).build()


@contextmanager
def pause_worker(guest: YoiGuest) -> Iterator[None]:
    """Its worker does nothing meanwhile: what is asked of it waits, however quick it is."""
    os.kill(guest.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(guest.pid, signal.SIGCONT)


async def wait_for_event(guest: YoiGuest) -> None:
    """The consumer has taken the event, and asked the worker."""
    while guest.instance.in_flight is None:
        await asyncio.sleep(0)


@pytest.mark.req("yoi.rule.071")
async def test_an_event_is_not_starved_by_tools_that_are_always_busy(tmp_path: Path) -> None:
    async with run_host(tmp_path, Plugin(tmp_path, build_numbering(), **INGRESS), bounds={"tool": 30.0, "ingress": 30.0}) as host:
        guest = guest_of(host)
        with pause_worker(guest):
            before = [asyncio.ensure_future(host.call_tool("count")) for _ in range(3)]
            while len(guest._waiting) < 3:
                await asyncio.sleep(0)
            work = asyncio.ensure_future(guest.dispatch("in", event()))
            await wait_for_event(guest)
            after = [asyncio.ensure_future(host.call_tool("count")) for _ in range(3)]
            while len(guest._waiting) < 6:
                await asyncio.sleep(0)
        assert (await work).output["at"] == 4
        assert [one.text for one in await asyncio.gather(*before, *after)] == [f"count\n{at}" for at in (1, 2, 3, 5, 6, 7)]


@pytest.mark.req("yoi.rule.071")
async def test_an_event_is_brought_while_its_tools_are_called_without_a_pause(tmp_path: Path) -> None:
    async with run_host(tmp_path, Plugin(tmp_path, build_numbering(), **INGRESS), bounds={"tool": 30.0, "ingress": 30.0}) as host:
        over = asyncio.Event()

        async def calling() -> None:
            while not over.is_set():
                assert not (await host.call_tool("count")).is_error

        callers = [asyncio.ensure_future(calling()) for _ in range(3)]
        try:
            async with asyncio.timeout(30):
                await asyncio.gather(*(guest_of(host).dispatch("in", event()) for _ in range(5)))
        finally:
            over.set()
            await asyncio.gather(*callers)


async def test_an_event_that_was_never_sent_comes_again_as_the_second_attempt(tmp_path: Path) -> None:
    """It waits in the worker's queue when that dies: no plugin has seen it, so it has not failed."""
    async with run_host(tmp_path, Plugin(tmp_path, build_numbering(), **INGRESS), bounds={"tool": 30.0, "ingress": 30.0}) as host:
        first = guest_of(host)
        os.kill(first.pid, signal.SIGSTOP)
        busy = asyncio.ensure_future(host.call_tool("count"))
        while not first._waiting:
            await asyncio.sleep(0)
        work = asyncio.ensure_future(first.dispatch("in", event(correlation_id="evt-9")))
        await wait_for_event(first)
        os.kill(first.pid, signal.SIGKILL)
        assert (await busy).code == "TOOL_UNAVAILABLE"
        with pytest.raises(SeraiError):
            await work
        (again,) = first.instance._queue
        assert (again.attempt, again.correlation_id) == (2, "evt-9")
        await wait_for_state(host, ID, GuestState.READY)
        status = await wait_until(guest_of(host), lambda status: status.dispatch_counters.dispatched == 1)
        assert (status.dispatch_counters.enqueued, status.dispatch_counters.failed, status.queue_depth) == (1, 0, 0)


async def test_an_event_that_cannot_be_sent_ends_this_life_and_comes_again_in_the_next(tmp_path: Path) -> None:
    """A worker that has closed its input and lives on: it must not be asked for ever, nor hold the event."""
    async with run_host(tmp_path, Plugin(tmp_path, build_numbering(), **INGRESS), bounds={"ingress": 30.0}) as host:
        first = guest_of(host)
        assert first.worker is not None
        first.worker._channel.outbox.close()
        with pytest.raises(SeraiError, match="its input was closed"):
            await first.dispatch("in", event(correlation_id="evt-9"))
        assert first.over is not None
        assert first.instance.in_flight is None
        assert [(one.attempt, one.correlation_id) for one in first.instance._queue] == [(2, "evt-9")]
        await wait_for_state(host, ID, GuestState.READY)
        status = await wait_until(guest_of(host), lambda status: status.dispatch_counters.dispatched == 1)
        assert (status.dispatch_counters.failed, status.queue_depth, status.restarts) == (0, 0, 1)
        assert (await guest_of(host).dispatch("in", event())).output["at"] == 2

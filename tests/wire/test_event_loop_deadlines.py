"""One timer, the earliest first, and no look at what was closed."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from itertools import pairwise
from time import monotonic
from typing import cast

import pytest

from serai.wire.event_loop import RESOLUTION, Deadlines

pytestmark = pytest.mark.loops

SOON = 0.02


class Timers:
    """The running loop, with its timers counted."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.all: list[asyncio.TimerHandle] = []
        self.rung = 0

    def call_later(self, delay: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        def ring() -> None:
            self.rung += 1
            callback()

        self.all.append(self.loop.call_later(delay, ring))
        return self.all[-1]

    @property
    def waiting(self) -> int:
        return sum(not timer.cancelled() for timer in self.all) - self.rung

    def deadlines(self) -> Deadlines:
        return Deadlines(cast("asyncio.AbstractEventLoop", self))


class Looks:
    """Who was looked at, in order; `done` once `last` was."""

    def __init__(self, last: str) -> None:
        self.last = last
        self.names: list[str] = []
        self.done = asyncio.Event()

    def at(self, name: str) -> Callable[[float], None]:
        def tick(now: float) -> None:
            self.names.append(name)
            if name == self.last:
                self.done.set()

        return tick

    async def seen(self) -> list[str]:
        async with asyncio.timeout(30):
            await self.done.wait()
        return self.names


# -- one timer


@pytest.mark.req("wire.deadlines.one-timer")
async def test_a_thousand_deadlines_each_earlier_than_the_last_have_one_timer() -> None:
    timers, now = Timers(), monotonic()
    deadlines = timers.deadlines()
    for n in range(1000):
        deadlines.watch(lambda now: None).schedule(now + 2000 - n)
    assert timers.waiting == 1
    deadlines.close()


@pytest.mark.req("wire.deadlines.one-timer")
async def test_later_deadlines_do_not_touch_the_timer() -> None:
    timers, now = Timers(), monotonic()
    deadlines = timers.deadlines()
    watch = deadlines.watch(lambda now: None)
    for n in range(1000):
        watch.schedule(now + 1000 + n)
        deadlines.watch(lambda now: None).schedule(now + 1000 + n)
    assert len(timers.all) == 1
    deadlines.close()


@pytest.mark.req("wire.deadlines.one-timer")
async def test_after_a_look_there_is_one_timer_for_all_that_is_left() -> None:
    timers, looks, now = Timers(), Looks(last="first"), monotonic()
    deadlines = timers.deadlines()
    for n in range(100):
        deadlines.watch(lambda now: now + 1000).schedule(now)
        deadlines.watch(lambda now: None).schedule(now + 1000 - n)
    deadlines.watch(looks.at("first")).schedule(now)
    await looks.seen()
    assert timers.rung >= 1
    assert timers.waiting == 1
    deadlines.close()


async def test_closing_leaves_no_timer_and_may_be_done_twice() -> None:
    timers = Timers()
    deadlines = timers.deadlines()
    deadlines.watch(lambda now: None).schedule(monotonic() + 1000)
    deadlines.close()
    deadlines.close()
    assert timers.waiting == 0


# -- in time


@pytest.mark.req("wire.deadlines.in-time")
async def test_a_watch_is_looked_at_when_its_time_has_come_and_not_before(deadlines: Deadlines) -> None:
    looked: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    when = monotonic() + SOON
    deadlines.watch(lambda now: None).schedule(when + 1000)  # neither a distant deadline delays it
    deadlines.watch(looked.set_result).schedule(when)
    deadlines.watch(lambda now: None).schedule(when - SOON)  # nor a nearer one hastens it
    async with asyncio.timeout(30):
        now = await looked
    assert when <= now <= monotonic()


@pytest.mark.req("wire.deadlines.in-time")
async def test_a_time_that_is_past_is_looked_at_at_once(deadlines: Deadlines) -> None:
    looks = Looks(last="late")
    deadlines.watch(looks.at("late")).schedule(monotonic() - 1000)
    assert looks.names == []  # not within the call
    assert await looks.seen() == ["late"]


@pytest.mark.req("wire.deadlines.in-time")
async def test_the_earliest_is_looked_at_first_whoever_came_first(deadlines: Deadlines) -> None:
    looks, now = Looks(last="last"), monotonic()
    deadlines.watch(looks.at("last")).schedule(now + 2 * SOON)
    deadlines.watch(looks.at("first")).schedule(now)
    deadlines.watch(looks.at("second")).schedule(now + SOON)
    assert await looks.seen() == ["first", "second", "last"]


@pytest.mark.req("wire.deadlines.in-time")
async def test_of_several_deadlines_that_are_due_together_the_earliest_is_looked_at_first(deadlines: Deadlines) -> None:
    looks, past = Looks(last="last"), monotonic() - 10
    for name, when in (("last", past + 3), ("first", past + 1), ("second", past + 2)):
        deadlines.watch(looks.at(name)).schedule(when)
    assert await looks.seen() == ["first", "second", "last"]


@pytest.mark.req("wire.deadlines.in-time")
async def test_an_earlier_deadline_replaces_a_later_one_and_not_the_other_way_round(deadlines: Deadlines) -> None:
    looks, now = Looks(last="end"), monotonic()
    watch = deadlines.watch(looks.at("once"))
    watch.schedule(now + SOON)
    watch.schedule(now + 1000)
    watch.schedule(None)
    assert watch.at == now + SOON
    watch.schedule(now)
    assert watch.at == now
    deadlines.watch(looks.at("end")).schedule(now + 2 * SOON)
    assert await looks.seen() == ["once", "end"]  # the first plan, made void by the earlier one, gave no second look


@pytest.mark.req("wire.deadlines.in-time")
async def test_a_look_returns_when_it_wants_the_next_one(deadlines: Deadlines) -> None:
    times: list[float] = []
    done = asyncio.Event()

    def tick(now: float) -> float | None:
        times.append(now)
        if len(times) < 3:
            return now + SOON
        done.set()
        return None

    watch = deadlines.watch(tick)
    watch.schedule(monotonic())
    async with asyncio.timeout(30):
        await done.wait()
    assert times[1] - times[0] >= SOON
    assert times[2] - times[1] >= SOON
    assert watch.at == float("inf")  # nothing planned: any time is earlier


@pytest.mark.req("wire.deadlines.in-time")
async def test_a_watch_that_was_looked_at_can_be_planned_again(deadlines: Deadlines) -> None:
    looks = Looks(last="look")
    watch = deadlines.watch(looks.at("look"))
    for times in (1, 2):
        looks.done.clear()
        watch.schedule(monotonic())
        assert await looks.seen() == ["look"] * times


async def test_looks_keep_their_distance_however_soon_the_next_is_wanted(deadlines: Deadlines) -> None:
    times: list[float] = []
    done = asyncio.Event()

    def tick(now: float) -> float | None:
        times.append(now)
        if len(times) < 4:
            return now
        done.set()
        return None

    deadlines.watch(tick).schedule(monotonic())
    async with asyncio.timeout(30):
        await done.wait()
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert min(gaps) > RESOLUTION / 2  # uvloop counts in whole milliseconds


@pytest.mark.req("wire.deadlines.in-time")
async def test_a_closed_watch_is_not_looked_at_and_cannot_be_planned_again(deadlines: Deadlines) -> None:
    looks, now = Looks(last="end"), monotonic()
    watch = deadlines.watch(looks.at("closed"))
    watch.schedule(now)
    watch.close()
    watch.close()
    watch.schedule(now)
    deadlines.watch(looks.at("end")).schedule(now + SOON)
    assert await looks.seen() == ["end"]


@pytest.mark.req("wire.deadlines.in-time")
async def test_a_watch_that_is_closed_in_its_own_look_is_not_looked_at_again(deadlines: Deadlines) -> None:
    looks, now = Looks(last="end"), monotonic()

    def tick(now: float) -> float:
        looks.names.append("once")
        watch.close()
        return now

    watch = deadlines.watch(tick)
    watch.schedule(now)
    deadlines.watch(looks.at("end")).schedule(now + SOON)
    assert await looks.seen() == ["once", "end"]


@pytest.mark.req("wire.deadlines.in-time")
async def test_a_watch_that_is_closed_by_another_due_at_the_same_time_is_not_looked_at(deadlines: Deadlines) -> None:
    looks, past = Looks(last="end"), monotonic() - 10
    victim = deadlines.watch(looks.at("closed"))
    deadlines.watch(lambda now: victim.close()).schedule(past)
    victim.schedule(past + 1)
    deadlines.watch(looks.at("end")).schedule(past + 2)
    assert await looks.seen() == ["end"]


async def test_a_closed_watch_keeps_nobody_alive(deadlines: Deadlines) -> None:
    class Party:
        def tick(self, now: float) -> None: ...

    party = Party()
    watch = deadlines.watch(party.tick)
    watch.schedule(monotonic() + 3600)
    watch.close()
    gone = weakref.ref(party)
    del party, watch
    gc.collect()
    assert gone() is None  # else every wire that was closed stays in memory until its last call would have timed out


async def test_closing_forgets_what_was_planned(deadlines: Deadlines) -> None:
    looks, now = Looks(last="end"), monotonic()
    deadlines.watch(looks.at("forgotten")).schedule(now)
    deadlines.close()
    deadlines.watch(looks.at("end")).schedule(now + SOON)
    assert await looks.seen() == ["end"]


@pytest.mark.req("wire.deadlines.one-fails")
async def test_one_party_that_fails_does_not_stop_the_deadlines_of_the_others(
    deadlines: Deadlines, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(now: float) -> None:
        raise RuntimeError("a defect")

    def arrive(now: float) -> None:
        arrived.set()

    arrived = asyncio.Event()
    now = monotonic()
    deadlines.watch(fail).schedule(now)
    deadlines.watch(fail).schedule(now + 0.001)
    deadlines.watch(arrive).schedule(now + 0.002)
    async with asyncio.timeout(30):
        await arrived.wait()
    assert "a defect" in caplog.text

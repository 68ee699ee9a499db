"""The table of waiting calls: each ends once, by its answer, its deadline or the loss of its peer."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serai.wire.stream import PendingCalls
from tests.support.profiles import examples


def test_a_call_is_finished_by_its_id_once() -> None:
    calls: PendingCalls[int] = PendingCalls()
    call = calls.start(1, "ping", now=10.0, timeout=5.0, waiter="mine")
    assert (call.id, call.what, call.sent, call.deadline, call.timeout, call.waiter) == (1, "ping", 10.0, 15.0, 5.0, "mine")
    assert calls.finish(1) is call
    assert calls.finish(1) is None


def test_finishing_a_call_leaves_the_others_waiting() -> None:
    calls: PendingCalls[str] = PendingCalls()
    for id in ("a", "b", "c"):
        calls.start(id, "ping", now=0.0, timeout=None)
    calls.finish("b")
    assert len(calls) == 2
    assert [id in calls for id in ("a", "b", "c")] == [True, False, True]


@pytest.mark.req("wire.jsonrpc.deadlines")
def test_a_call_expires_at_its_deadline_and_not_before() -> None:
    calls: PendingCalls[int] = PendingCalls()
    call = calls.start(1, "ping", now=10.0, timeout=5.0)
    assert calls.expire(14.999) == []
    assert calls.expire(15.0) == [call]
    assert calls.expire(15.0) == []
    assert calls.finish(1) is None


@pytest.mark.req("wire.jsonrpc.deadlines")
def test_a_call_without_a_timeout_has_no_deadline() -> None:
    calls: PendingCalls[int] = PendingCalls()
    call = calls.start(1, "ping", now=10.0, timeout=None)
    assert (call.deadline, call.timeout) == (inf, None)
    assert calls.next_deadline() is None
    assert calls.expire(1e300) == []
    assert calls.finish(1) is call


@pytest.mark.req("wire.jsonrpc.deadlines")
def test_a_timeout_of_zero_is_a_deadline() -> None:
    calls: PendingCalls[int] = PendingCalls()
    call = calls.start(1, "ping", now=10.0, timeout=0.0)
    assert calls.next_deadline() == 10.0
    assert calls.expire(10.0) == [call]


@pytest.mark.req("wire.jsonrpc.deadlines")
@settings(deadline=None, max_examples=examples(200))
@given(st.lists(st.none() | st.integers(0, 20).map(float), max_size=10), st.integers(0, 20).map(float))
def test_the_next_deadline_is_the_earliest_of_those_that_wait(timeouts: list[float | None], now: float) -> None:
    calls: PendingCalls[int] = PendingCalls()
    for id, timeout in enumerate(timeouts):
        calls.start(id, "ping", now=0.0, timeout=timeout)
    late = [id for id, timeout in enumerate(timeouts) if timeout is not None and timeout <= now]
    assert [call.id for call in calls.expire(now)] == late  # in the order they were made
    assert calls.next_deadline() == min((timeout for timeout in timeouts if timeout is not None and timeout > now), default=None)


@pytest.mark.req("wire.jsonrpc.lose")
def test_abandoning_gives_every_waiting_call_once_in_the_order_they_were_made() -> None:
    calls: PendingCalls[int] = PendingCalls()
    third, _, second = (calls.start(id, "ping", now=0.0, timeout=1.0) for id in (3, 1, 2))
    calls.finish(1)
    assert calls.abandon() == [third, second]
    assert calls.abandon() == []
    assert len(calls) == 0
    assert calls.expire(2.0) == []

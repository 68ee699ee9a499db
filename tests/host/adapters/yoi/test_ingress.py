"""Events from outside: the queue, its one consumer, and what becomes of an event (spec yoi 15)."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from serai.dialects.yoi.messages import Event
from serai.dialects.yoi.status import DiagnosticKind, Lifecycle
from serai.errors import PeerTimeout, Refused, SeraiError
from serai.host.guest import GuestState
from tests.support.host.zot_guests import wait_for_state
from tests.support.yoi import components
from tests.support.yoi.hosted_plugins import DOWN, ID, INGRESS, Plugin, build_tools, event, guest_of, mirror, run_host, wait_until


async def test_an_event_reaches_the_plugin_and_its_answer_is_reported(tmp_path: Path) -> None:
    async with run_host(tmp_path, Plugin(tmp_path, mirror(), **INGRESS)) as host:
        report = await guest_of(host).dispatch("in", event(payload={"accepted": True, "data": [1, "two"]}))
        output = report.output
        assert (output["accepted"], output["data"], output["queue_latency_ms"] >= 0) == (True, [1, "two"], True)
        assert (report.plugin_ref, report.ingress, report.accepted) == (f"user:{ID}", "in", True)
        assert (report.queue_depth, report.output_command_results) == (0, ())


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "source": ({"source": "  "}, "invalid plugin ingress event: source must not be blank"),
    "name": ({"ingress_name": "out"}, "invalid plugin ingress event: ingress_name `out` is not the ingress `in`"),
    "kind": ({"kind": " "}, "invalid plugin ingress event: kind must not be blank"),
    "created_at": ({"created_at": ""}, "invalid plugin ingress event: created_at must not be blank"),
    "attempt": ({"attempt": 0}, "invalid plugin ingress event: attempt must be at least 1"),
    "correlation_id": ({"correlation_id": "\t"}, "invalid plugin ingress event: correlation_id must not be blank"),
    "size": ({"payload": "x" * 65_536}, "invalid plugin ingress event: event envelope exceeds 65536 bytes"),
}


@pytest.mark.req("yoi.conform.44")
async def test_each_row_of_the_validation_refuses_with_its_own_text(tmp_path: Path) -> None:
    async with run_host(tmp_path, Plugin(tmp_path, mirror(), **INGRESS)) as host:
        guest = guest_of(host)
        for count, (said, text) in enumerate(BAD.values(), 1):
            with pytest.raises(Refused) as refused:
                await guest.dispatch("in", event(**said))
            status = guest.get_status()
            assert refused.value.message.startswith(text)
            assert (status.dispatch_counters.rejected, status.last_error) == (count, refused.value.message)
            assert status.lifecycle is Lifecycle.RUNNING
            assert status.diagnostics[-1].kind is DiagnosticKind.INVALID_EVENT
        with pytest.raises(Refused, match="requested ingress is not declared by plugin manifest"):
            await guest.dispatch("other", event(ingress_name="other"))
        assert guest.get_status().dispatch_counters.enqueued == 0
        assert (await guest.dispatch("in", event())).dispatch_counters.dispatched == 1


@pytest.mark.req("yoi.conform.44")
async def test_an_ingress_that_is_not_enabled_or_not_granted_takes_no_event(tmp_path: Path) -> None:
    off = Plugin(tmp_path, mirror(), id="off", **INGRESS)
    off.more["surfaces"] = ["tool", "service"]
    denied = Plugin(tmp_path, mirror(), id="denied", **{**INGRESS, "tools": ("other",)})
    denied.grants["permissions"] = [one for one in denied.grants["permissions"] if one.get("kind") != "ingress"]
    tools = Plugin(tmp_path, components.tool(), id="tools", world="yoi:plugin/tool@1.0.0", tools=("raw",))
    async with run_host(tmp_path, off, denied, tools) as host:
        with pytest.raises(Refused, match="plugin ingress surface is not enabled"):
            await guest_of(host, "off").dispatch("in", event())
        with pytest.raises(Refused, match="plugin ingress permission denied: granted ingress permission for `in` is missing"):
            await guest_of(host, "denied").dispatch("in", event())
        with pytest.raises(Refused):
            await guest_of(host, "tools").dispatch("in", event())


@pytest.mark.req("yoi.conform.45")
async def test_an_event_of_a_kind_that_is_not_declared_is_refused(tmp_path: Path) -> None:
    async with run_host(
        tmp_path, Plugin(tmp_path, mirror(), **{**INGRESS, "ingresses": {"in": {"event_kinds": ["test"]}}})
    ) as host:
        guest = guest_of(host)
        with pytest.raises(Refused, match="event kind `else` is not declared for ingress `in`"):
            await guest.dispatch("in", event(kind="else"))
        await guest.dispatch("in", event(kind="test"))


def twice(body: str) -> bytes:
    """It takes the first event of a life and does this at the second."""
    guest = build_tools()
    first = "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))"
    answer = guest.answer('{"accepted":true}')
    return guest.on("handle-ingress", f"{first} (if (i32.gt_u (global.get $calls) (i32.const 1)) (then {body})) {answer}").build()


@pytest.mark.req("yoi.conform.46")
@pytest.mark.parametrize("how", ["trap", "huge", "no json"])
async def test_after_a_failed_handler_events_are_refused_until_it_runs_again(tmp_path: Path, how: str) -> None:
    if how == "trap":
        component = components.traps("ingress")
    elif how == "huge":
        component = components.Guest(pages=3).on("handle-ingress", "(call $ret (i32.const 0) (i32.const 65537))").build()
    else:
        component = mirror()
    async with run_host(tmp_path, Plugin(tmp_path, component, services=("svc",), ingresses={"in": {}}), limits=DOWN) as host:
        plugin = guest_of(host)
        said = event() if how != "no json" else event(kind="tests")  # one byte more: half of it is no JSON
        with pytest.raises(SeraiError, match="plugin ingress dispatch failed closed: "):
            await plugin.dispatch("in", said)
        status = plugin.get_status()
        assert (status.lifecycle, status.dispatch_counters.failed) == (Lifecycle.FAILED, 1)
        assert DiagnosticKind.DISPATCH_FAILED in {one.kind for one in status.diagnostics}
        with pytest.raises(Refused, match="plugin service is failed for ingress dispatch: "):
            await plugin.dispatch("in", event())
        assert plugin.get_status().diagnostics[-1].kind is DiagnosticKind.SERVICE_FAILED
        assert host.guest(ID).state is GuestState.BACKING_OFF
        await host.reload(ID)
        if how == "no json":
            report = await guest_of(host).dispatch("in", event())
            assert (report.dispatch_counters.failed, report.dispatch_counters.dispatched) == (1, 1)  # it is one plugin's story


@pytest.mark.req("yoi.conform.47")
async def test_a_handler_is_interrupted_at_its_deadline_and_its_commands_are_gone(tmp_path: Path) -> None:
    async with run_host(
        tmp_path, Plugin(tmp_path, components.spin("ingress"), **INGRESS), bounds={"ingress": 0.3}, limits=DOWN
    ) as host:
        guest = guest_of(host)
        with pytest.raises(PeerTimeout, match=r"plugin ingress dispatch timed out after 0\.3s"):
            await guest.dispatch("in", event())
        status = guest.get_status()
        assert (status.dispatch_counters.timed_out, status.dispatch_counters.failed, status.dispatch_counters.dispatched) == (
            1,
            1,
            0,
        )
        assert status.lifecycle is Lifecycle.FAILED
        assert DiagnosticKind.DISPATCH_TIMEOUT in {one.kind for one in status.diagnostics}
        assert status.output_command_results == ()


def test_one_second_is_what_an_event_has() -> None:
    from serai.plugins.bounds import DEFAULT, UPSTREAM

    assert DEFAULT.ingress == UPSTREAM.ingress == 1.0


@pytest.mark.req("yoi.rule.081")
async def test_at_most_32_events_wait_and_one_consumer_brings_them(tmp_path: Path) -> None:
    async with run_host(tmp_path, Plugin(tmp_path, mirror(), **INGRESS)) as host:
        guest = guest_of(host)
        first = asyncio.ensure_future(guest.dispatch("in", event(payload=0)))
        await asyncio.sleep(0)  # it is with the consumer from the next round on
        while guest.instance.in_flight is None:
            await asyncio.sleep(0)
        waiting = [asyncio.ensure_future(guest.dispatch("in", event(payload=number))) for number in range(1, 33)]
        await asyncio.sleep(0)
        with pytest.raises(Refused, match=r"plugin ingress queue is full \(capacity 32\)"):
            await guest.dispatch("in", event())
        assert guest.get_status().diagnostics[-1].kind is DiagnosticKind.QUEUE_FULL
        reports = await asyncio.gather(first, *waiting)
        assert [report.output for report in reports] == list(range(33))
        assert guest.get_status().dispatch_counters.dispatched == 33


async def test_an_error_of_its_own_fails_the_event_and_not_the_instance(tmp_path: Path) -> None:
    async with run_host(tmp_path, Plugin(tmp_path, mirror(), **INGRESS)) as host:
        guest = guest_of(host)
        with pytest.raises(Refused, match="plugin ingress dispatch failed closed: "):
            await guest.dispatch("in", event(payload={"error": {"message": "not today"}}))
        status = guest.get_status()
        assert (status.lifecycle, status.dispatch_counters.failed) == (Lifecycle.RUNNING, 1)
        await guest.dispatch("in", event())


async def test_what_waited_when_it_failed_is_brought_to_the_next_life(tmp_path: Path) -> None:
    """Same id, and as its first attempt: no plugin has seen it (spec yoi 15.3, ours)."""
    async with run_host(tmp_path, Plugin(tmp_path, twice("unreachable"), **INGRESS)) as host:
        guest = guest_of(host)
        works = [asyncio.ensure_future(guest.dispatch("in", event(payload=number))) for number in range(4)]
        done = await asyncio.gather(*works, return_exceptions=True)
        assert [isinstance(one, SeraiError) for one in done] == [False, True, True, True]
        # 0 is taken, 1 traps; in the next life 2 is taken and 3 traps; what is left is nothing
        await wait_for_state(host, ID, GuestState.READY)
        while host.guest(ID).generation < 3 or host.guest(ID).state is not GuestState.READY:
            await wait_for_state(host, ID, GuestState.BACKING_OFF)
            await wait_for_state(host, ID, GuestState.READY)
        counters = guest_of(host).get_status().dispatch_counters
        assert (counters.enqueued, counters.dispatched, counters.failed) == (4, 2, 2)


async def test_an_event_that_its_worker_never_saw_is_brought_again(tmp_path: Path) -> None:
    """The worker dies while the event waits for its turn behind a tool: attempt 2, with the same id."""
    guest = build_tools()
    guest.tool("call", f"(call $forever) {guest.answer('{}')}")
    guest.on("handle-ingress", "(call $ret (local.get $b) (local.get $m))")
    async with run_host(tmp_path, Plugin(tmp_path, guest.build(), **{**INGRESS, "tools": ("call",)})) as host:
        first = guest_of(host)
        busy = asyncio.ensure_future(host.call_tool("call"))
        await asyncio.sleep(0)
        work = asyncio.ensure_future(first.dispatch("in", event(correlation_id="evt-9")))
        while first.instance.in_flight is None:
            await asyncio.sleep(0)
        seen_by = first.instance
        os.kill(first.pid, signal.SIGKILL)
        assert (await busy).code == "TOOL_UNAVAILABLE"
        with pytest.raises(SeraiError):
            await work
        (again,) = seen_by._queue
        assert isinstance(again, Event)
        assert (again.attempt, again.correlation_id) == (2, "evt-9")
        await wait_for_state(host, ID, GuestState.READY)
        status = await wait_until(guest_of(host), lambda status: status.dispatch_counters.dispatched == 1)
        assert (status.dispatch_counters.failed, status.queue_depth) == (0, 0)


async def test_a_stopped_plugin_takes_no_event(tmp_path: Path) -> None:
    async with run_host(tmp_path, Plugin(tmp_path, mirror(), **INGRESS)) as host:
        guest = guest_of(host)
        await guest.stop()
        with pytest.raises(Refused, match=r"rejects ingress while stopping/stopped \(state Stopped\)"):
            await guest.dispatch("in", event())


async def test_a_stop_drops_what_waits_and_tells_who_asked(tmp_path: Path) -> None:
    async with run_host(tmp_path, Plugin(tmp_path, mirror(), **INGRESS)) as host:
        guest = guest_of(host)
        works = [asyncio.ensure_future(guest.dispatch("in", event())) for _ in range(5)]
        await asyncio.sleep(0)
        await guest.stop()
        done = await asyncio.gather(*works, return_exceptions=True)
        assert all(isinstance(one, SeraiError) for one in done[1:])
        assert guest.get_status().queue_depth == 0

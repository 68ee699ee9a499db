"""Calls into a guest through its worker, and what the guest asks of the host."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import pytest

from serai.dialects.yoi import messages
from serai.dialects.yoi.host_api import HostCallDenied
from serai.errors import BadManifest, Closed, PeerTimeout, Refused, Trapped
from serai.plugins.bounds import Bounds
from serai.plugins.manifest import TOOL
from tests.support.yoi import components
from tests.support.yoi.workers import LONG, WorkerHarness, wait_forever


def content(text: str) -> str:
    value: str = json.loads(text)["content"]
    return value


@pytest.mark.req("yoi.rule.002")
@pytest.mark.req("yoi.conform.65")
async def test_the_five_exports_of_an_instance(harness: WorkerHarness) -> None:
    worker = await harness.open(components.echo())
    assert json.loads(await worker.call("start", ("null",), LONG)) == {"state": "running"}
    assert content(await harness.tool(worker, "echo", '{"a": "b"}')) == '{"a": "b"}'
    assert json.loads(await worker.call("handle-ingress", ("in", "{}"), LONG)) == {"accepted": True}
    assert json.loads(await worker.call("status", (), LONG)) == {"state": "running"}
    assert json.loads(await worker.call("stop", (), LONG)) == {"state": "running"}
    assert [content(await harness.tool(worker, "count")) for _ in range(2)] == ["1", "2"]  # one instance, its state kept
    assert harness.ends == []


@pytest.mark.req("yoi.rule.002")
@pytest.mark.req("yoi.rule.072")
async def test_the_tool_world_keeps_nothing_between_calls(harness: WorkerHarness) -> None:
    worker = await harness.open(components.tool(), world=TOOL)
    first = [content(await worker.call("call", ("count", "{}"), LONG)) for _ in range(3)]
    assert first == ["1", "1", "1"]


@pytest.mark.parametrize("text", ["", "\0", "é", "😀" * 100, '\\"\n\t\x1f\x7f\u2028', "x" * 65536, "é" * 32768], ids=len)
async def test_any_text_goes_in_and_out(harness: WorkerHarness, text: str) -> None:
    worker = await harness.open(components.echo())
    assert await harness.tool(worker, "raw", text) == text


async def test_a_lone_surrogate_is_refused_before_it_is_sent(harness: WorkerHarness) -> None:
    worker = await harness.open(components.echo())
    with pytest.raises(Refused, match="lone surrogate"):
        await harness.tool(worker, "raw", "\ud800")
    assert await harness.tool(worker, "raw", "fine") == "fine"


@pytest.mark.req("yoi.rule.001")
@pytest.mark.parametrize(
    ("interface", "function", "args"),
    [
        ("request", "request", ("what",)),
        ("websocket", "open", ("what",)),
        ("websocket", "send-text", (7, "text é")),
        ("websocket", "recv", (4294967295, 250)),
        ("websocket", "close", (1,)),
        ("fs", "read", ("what",)),
        ("fs", "list", ("what",)),
        ("fs", "write", ("",)),
    ],
)
async def test_every_host_function(harness: WorkerHarness, interface: str, function: str, args: tuple[str | int, ...]) -> None:
    worker = await harness.open(components.caller(interface, function, *args))
    assert worker.imports == (interface,)
    assert content(await harness.tool(worker)) == '{"done":true}'
    assert [asked[:3] for asked in harness.asked] == [(interface, function, args)]


async def test_a_host_function_gets_the_tools_input_and_its_reply_comes_back(harness: WorkerHarness) -> None:
    async def host(_interface: str, _function: str, args: Sequence[str | int], _remaining: float) -> str:
        return f"<{args[0]}> é\0\n" * 100

    worker = await harness.open(components.caller("fs", "read", components.INPUT), host=host)
    assert content(await harness.tool(worker, text='{"p": "é"}')) == '<{"p": "é"}> é\0\n' * 100


@pytest.mark.req("yoi.edge.30")
async def test_a_host_function_gets_the_time_that_is_left(harness: WorkerHarness) -> None:
    worker = await harness.open(components.caller("fs", "read", "x"))
    await harness.tool(worker, timeout=20.0)
    assert 10.0 < harness.asked[0][3] <= 20.0


@pytest.mark.req("yoi.edge.30")
async def test_a_host_function_that_takes_too_long_ends_with_its_call(harness: WorkerHarness) -> None:
    cancelled = asyncio.get_running_loop().create_future()

    async def host(*_: object) -> str:
        try:
            await wait_forever()
        finally:
            cancelled.set_result(None)
        raise AssertionError

    worker = await harness.open(components.caller("websocket", "recv", 1, 30000), host=host)
    with pytest.raises(PeerTimeout):
        await harness.tool(worker, timeout=0.3)
    await asyncio.wait_for(cancelled, LONG)
    assert isinstance(await asyncio.wait_for(harness.over, LONG), PeerTimeout)


@pytest.mark.req("yoi.rule.006")
async def test_a_denied_host_call_is_a_trap(harness: WorkerHarness) -> None:
    async def host(*_: object) -> str:
        raise HostCallDenied("fs path is outside of every grant é\ud800")

    worker = await harness.open(components.caller("fs", "read", "x"), host=host)
    with pytest.raises(Trapped, match="fs path is outside of every grant é") as caught:
        await harness.tool(worker)
    assert caught.value.kind == "denied"
    assert isinstance(await asyncio.wait_for(harness.over, LONG), Trapped)  # the end of that life


@pytest.mark.req("yoi.rule.003")
async def test_an_interface_without_a_grant_traps_when_it_is_called_and_only_then(harness: WorkerHarness) -> None:
    denied = {"fs": "not granted", "request": "not asked for"}
    worker = await harness.open(components.caller("fs", "read", "x", imports=("request", "websocket")), denied=denied)
    assert content(await harness.tool(worker, "echo", "{}")) == "{}"
    with pytest.raises(Trapped, match="plugin host API dispatch denied") as caught:
        await harness.tool(worker)
    assert caught.value.message == "plugin host API dispatch denied: not granted"
    assert harness.asked == []


@pytest.mark.req("yoi.rule.003")
async def test_strict_imports_refuse_before_anything_runs(harness: WorkerHarness) -> None:
    with pytest.raises(Refused, match="plugin host API dispatch denied: not granted"):
        await harness.open(components.all_imports(), denied={"fs": "not granted"}, bounds=Bounds(strict_imports=True))
    assert not any(b'"go"' in frame for frame in harness.wires.sent)


async def test_a_defect_of_the_host_is_told_without_its_words(harness: WorkerHarness) -> None:
    async def host(*_: object) -> str:
        raise ValueError("secret")

    worker = await harness.open(components.caller("fs", "read", "x"), host=host)
    with pytest.raises(Trapped, match="host function failed: ValueError") as caught:
        await harness.tool(worker)
    assert "secret" not in str(caught.value)


@pytest.mark.req("yoi.edge.27")
async def test_no_host_function_can_enter_the_guest_that_called_it(harness: WorkerHarness) -> None:
    """A call from within a host function waits for its turn, which comes when the guest has answered."""
    inner: list[asyncio.Future[str]] = []

    async def host(*_: object) -> str:
        inner.append(worker.call("handle-tool", ("count", "{}"), LONG))
        assert worker.busy
        assert not inner[0].done()
        return "outer"

    worker = await harness.open(components.caller("fs", "read", "x"), host=host)
    assert content(await harness.tool(worker)) == "outer"
    assert content(await inner[0]) == "1"
    calls = [json.loads(frame)["type"] for frame in harness.wires.sent]
    assert calls == ["load", "go", "call", "reply", "call"]


@pytest.mark.req("yoi.edge.27")
async def test_a_host_function_that_waits_for_its_own_guest_ends_with_the_time(harness: WorkerHarness) -> None:
    async def host(*_: object) -> str:
        return await worker.call("handle-tool", ("count", "{}"), LONG)

    worker = await harness.open(components.caller("fs", "read", "x"), host=host)
    with pytest.raises(PeerTimeout):
        await harness.tool(worker, timeout=0.3)
    assert [json.loads(frame)["type"] for frame in harness.wires.sent].count("call") == 1


async def test_one_at_a_time_in_order(harness: WorkerHarness) -> None:
    worker = await harness.open(components.echo())
    calls = [worker.call("handle-tool", ("count", "{}"), LONG) for _ in range(20)]
    assert worker.busy
    assert [content(await call) for call in calls] == [str(n) for n in range(1, 21)]
    await worker.idle()
    assert not worker.busy


async def test_to_wait_for_ones_turn_counts(harness: WorkerHarness) -> None:
    gate: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def host(*_: object) -> str:
        return await gate

    worker = await harness.open(components.caller("fs", "read", "x"), host=host)
    first = worker.call("handle-tool", ("call", "{}"), LONG)
    with pytest.raises(PeerTimeout):
        await worker.call("handle-tool", ("count", "{}"), 0.2)
    gate.set_result("late")
    assert content(await first) == "late"
    assert content(await harness.tool(worker, "count")) == "1"  # what was too late never began


async def test_who_gives_up_disturbs_nobody(harness: WorkerHarness) -> None:
    worker = await harness.open(components.echo())
    first, second, third = (worker.call("handle-tool", ("count", "{}"), LONG) for _ in range(3))
    first.cancel()
    second.cancel()
    assert content(await third) == "2"  # the first was under way; the second was not begun


@pytest.mark.req("yoi.edge.26")
async def test_a_wait_in_recv_is_ended_by_interrupt(harness: WorkerHarness) -> None:
    waits = asyncio.Event()

    async def host(*_: object) -> str:
        waits.set()
        return await wait_forever()

    worker = await harness.open(components.caller("websocket", "recv", 1, 30000), host=host)
    call = worker.call("handle-tool", ("call", "{}"), LONG)
    await waits.wait()
    assert worker.interrupt("it is being stopped")
    with pytest.raises(Trapped, match="it is being stopped"):
        await call
    assert not worker.interrupt("again")


async def test_a_host_call_that_is_interrupted_before_it_began_is_answered_too(harness: WorkerHarness) -> None:
    worker = await harness.open(components.caller("fs", "read", "x"))
    call = worker.call("handle-tool", ("call", "{}"), LONG)
    while not worker.interrupt("at once"):  # as soon as it was asked, before the task had its turn
        await asyncio.sleep(0)
    with pytest.raises(Trapped, match="at once"):
        await asyncio.wait_for(call, LONG)


@pytest.mark.req("yoi.edge.26")
async def test_a_wait_in_recv_does_not_hold_up_stop(harness: WorkerHarness) -> None:
    waits, gone = asyncio.Event(), asyncio.Event()

    async def host(*_: object) -> str:
        waits.set()
        try:
            return await wait_forever()
        finally:
            gone.set()

    worker = await harness.open(components.caller("websocket", "recv", 1, 30000), host=host)
    call = worker.call("handle-tool", ("call", "{}"), LONG)
    await waits.wait()
    await asyncio.wait_for(worker.stop(), LONG)
    with pytest.raises(Closed):
        await call
    await asyncio.wait_for(gone.wait(), LONG)
    assert harness.ends == []  # a deliberate stop is no end to be told of
    with pytest.raises(Closed):
        await worker.call("status", (), LONG)


async def test_a_host_call_in_the_core_start_function_is_asked_of_the_host_too(harness: WorkerHarness) -> None:
    guest = components.Guest(imports=("fs",))
    body = guest.host("fs", "read", "begin")
    component = guest.field(f"(func $begins {body} drop drop) (start $begins)").build()
    worker = await harness.open(component)
    assert [asked[:3] for asked in harness.asked] == [("fs", "read", ("begin",))]
    await worker.stop()
    with pytest.raises(Trapped, match="plugin host API dispatch denied: no"):
        await harness.open(component, denied={"fs": "no"})


@pytest.mark.req("yoi.rule.004")
async def test_further_exports_are_ignored(harness: WorkerHarness) -> None:
    worker = await harness.open(components.extra_export("init"))
    assert content(await harness.tool(worker, "count")) == "1"


def test_both_sides_have_the_same_functions() -> None:
    from serai.host.adapters.yoi.program import component

    kinds = {"string": str, "u32": int}
    assert {
        interface: {name: tuple(kinds[param] for param in params) for name, params in functions.items()}
        for interface, functions in component.HOST.items()
    } == messages.HOST


async def test_an_unknown_world_is_no_world(harness: WorkerHarness) -> None:
    with pytest.raises(BadManifest):
        await harness.open(components.echo(), world=TOOL)

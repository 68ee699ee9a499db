"""A call whose time begins with its turn: an event waits behind tools, and that is not its fault (spec yoi 15.1, 15.3)."""

from __future__ import annotations

import asyncio
import os
import signal
from time import monotonic

import msgspec
import pytest

from serai.errors import PeerTimeout
from serai.host.adapters.yoi import worker as module
from serai.plugins.bounds import Bounds
from tests.support.yoi import components
from tests.support.yoi.workers import LONG, WorkerHarness

pytestmark = pytest.mark.loops

SOON = 0.3


class Held:
    """A host function that answers when it is told to."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, *_: object) -> str:
        self.asked.set()
        await self.go.wait()
        return "{}"


@pytest.mark.req("yoi.rule.071")
async def test_its_time_is_not_used_up_by_the_wait(harness: WorkerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    held, late, begun = Held(), [0.0], list[int]()
    monkeypatch.setattr(module, "monotonic", lambda: monotonic() + late[0])
    worker = await harness.open(components.caller("fs", "read", "x"), host=held)
    tool = worker.call("handle-tool", ("call", "{}"), 3600.0)
    event = worker.call("handle-ingress", ("in", "{}"), LONG, begun=lambda: begun.append(len(harness.wires.sent)))
    behind = worker.call("handle-tool", ("count", "{}"), LONG)
    await held.asked.wait()
    assert not begun
    late[0] = 100.0  # more than the event has, and than the call behind it, for which waiting counts
    held.go.set()
    await tool
    assert await event == '{"accepted":true}'
    assert len(begun) == 1
    with pytest.raises(PeerTimeout):
        await behind
    sent = [frame for frame in map(msgspec.json.decode, harness.wires.sent) if frame["type"] == "call"]
    assert [frame["export"] for frame in sent] == ["handle-tool", "handle-ingress"]
    assert LONG / 2 < sent[1]["time"] <= LONG


@pytest.mark.req("yoi.rule.071", "yoi.rule.079")
async def test_from_its_turn_on_its_deadline_is_kept(harness: WorkerHarness) -> None:
    """By us, also when the worker hangs; the deadlines before it were far away."""
    held, guest = Held(), components.Guest(imports=("fs",))
    guest.tool("call", guest.output("read", guest.host("fs", "read", "x")))
    guest.on("handle-ingress", f"(call $forever) {guest.answer('{}')}")
    worker = await harness.open(guest.build(), host=held, bounds=Bounds(start=3600.0))
    tool = worker.call("handle-tool", ("call", "{}"), 3600.0)
    event = worker.call("handle-ingress", ("in", "{}"), SOON, begun=lambda: os.kill(worker.pid, signal.SIGSTOP))
    await held.asked.wait()
    held.go.set()
    await tool
    with pytest.raises(PeerTimeout) as caught:
        await asyncio.wait_for(event, LONG)
    assert caught.value.limit is not None
    assert caught.value.limit.value == SOON


async def test_who_is_not_begun_when_the_worker_dies_was_never_told_so(harness: WorkerHarness) -> None:
    begun: list[bool] = []
    worker = await harness.open(components.spin())
    tool = worker.call("handle-tool", ("call", "{}"), 3600.0)
    event = worker.call("handle-ingress", ("in", "{}"), LONG, begun=lambda: begun.append(True))
    os.kill(worker.pid, signal.SIGKILL)
    failures = await asyncio.gather(tool, event, return_exceptions=True)
    assert all(isinstance(one, Exception) for one in failures)
    assert begun == []

"""Every misbehaving peer, through the whole wire: a typed error or event with its cause, and the host goes on."""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from serai.errors import BadFrame, ExitStatus, OversizeFrame, PeerGone, PeerTimeout
from serai.limits import Limits
from serai.testing import faults
from serai.wire import jsonrpc
from serai.wire.codec import Noise
from serai.wire.event_loop import Deadlines
from serai.wire.jsonrpc_peer import JsonRpcPeer
from serai.wire.plain_process import PlainChild, PlainSpawner
from serai.wire.process import Launch, stop_child
from serai.wire.stream import Oversize
from tests.conftest import PATIENT, QUICK
from tests.support.processes import lives

pytestmark = pytest.mark.loops

OK = b'{"ok":true}'


class Harness:
    """A spawner with a well-behaved neighbour, to show that one bad peer hurts itself alone."""

    def __init__(self, spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]) -> None:
        self._spawner = spawner
        self._deadlines = deadlines
        self._environ = environ
        self.odd: list[object] = []
        self.neighbour: JsonRpcPeer

    async def take_in(self, fault: str, *, limits: Limits = PATIENT, after: int = 0, **options: Any) -> JsonRpcPeer:
        launch = Launch(argv=faults.peer(fault, after=after, **options), env=self._environ, who=fault)
        child = await self._spawner.spawn(launch)
        return JsonRpcPeer(child, deadlines=self._deadlines, limits=limits, odd=self.odd.append)

    async def goes_on(self) -> None:
        assert bytes(await self.neighbour.call("still there", {}, timeout=10)) == OK


@pytest.fixture
async def harness(spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]) -> AsyncIterator[Harness]:
    harness = Harness(spawner, deadlines, environ)
    harness.neighbour = await harness.take_in("none")
    yield harness
    await harness.goes_on()


@pytest.mark.req("wire.fault.silent", "wire.fault.others-go-on")
async def test_silent(harness: Harness) -> None:
    rpc = await harness.take_in("silent")
    with pytest.raises(PeerTimeout, match=r"silent: no answer to x \(limit call = 0.05\)"):
        await rpc.call("x", {}, timeout=0.05)


@pytest.mark.req("wire.fault.chatty")
async def test_chatty(harness: Harness) -> None:
    rpc = await harness.take_in("chatty", bytes=3_000_000)
    assert bytes(await rpc.call("x", {}, timeout=10)) == OK
    stderr = rpc.channel.child.stderr
    assert stderr.text().endswith("chatter ")
    assert len(stderr.last()) == QUICK.stderr_tail


@pytest.mark.req("wire.fault.banner")
async def test_banner(harness: Harness) -> None:
    rpc = await harness.take_in("banner")
    assert bytes(await rpc.call("x", {}, timeout=10)) == OK
    noise = [event.raw for event in harness.odd if isinstance(event, Noise)]
    assert noise == [b"Welcome to a program that likes to talk", b"[1, 2]", b"a log line, no frame"]
    assert rpc.connection.noise == len(noise)


@pytest.mark.req("wire.fault.huge")
async def test_huge(harness: Harness) -> None:
    rpc = await harness.take_in("huge", bytes=3_000_000, limits=PATIENT.but(frame=1 << 20))
    other = asyncio.create_task(rpc.call("also", {}, timeout=10))
    with pytest.raises(OversizeFrame, match=r"its answer to x had 3000000 bytes \(limit frame = 1048576\)"):
        await rpc.call("x", {}, timeout=10)
    with pytest.raises(OversizeFrame, match="its answer to also had 3000000 bytes"):
        await other
    assert [event.size for event in harness.odd if isinstance(event, Oversize)] == [3_000_000] * 2
    assert rpc.channel.cause is None  # the wire goes on


@pytest.mark.req("wire.fault.huge")
async def test_a_large_frame_under_the_limit_is_no_fault(harness: Harness) -> None:
    rpc = await harness.take_in("huge", bytes=20_000_000)
    assert len(bytes(await rpc.call("x", {}, timeout=20))) > 19_000_000


@pytest.mark.req("wire.fault.half")
async def test_half(harness: Harness) -> None:
    rpc = await harness.take_in("half")
    with pytest.raises(PeerGone, match=r"half: ended \(exit status 0\)"):
        await rpc.call("x", {}, timeout=10)
    assert [event.raw for event in harness.odd if isinstance(event, Noise)] == [b'{"jsonrpc":"2.0","id":1']


@pytest.mark.req("wire.fault.bad-utf8")
async def test_bad_utf8(harness: Harness) -> None:
    import msgspec

    from serai.wire.codec import decode

    rpc = await harness.take_in("bad-utf8")
    answer = await rpc.call("x", {}, timeout=10)
    assert decode(msgspec.json.Decoder(dict[str, str | bool]), answer) == {"ok": True, "text": "caf\ufffd \ufffd\ufffd"}


@pytest.mark.req("wire.fault.dies", "wire.errors.one-cause")
@pytest.mark.parametrize(
    ("options", "status"), [({"code": 3}, ExitStatus(code=3)), ({"signal": 11}, ExitStatus(signal=11))], ids=["code", "signal"]
)
async def test_dies(harness: Harness, options: dict[str, Any], status: ExitStatus) -> None:
    rpc = await harness.take_in("dies", after=1, **options)
    assert bytes(await rpc.call("well", {}, timeout=10)) == OK
    calls = [asyncio.create_task(rpc.call(f"call {n}", {})) for n in range(5)]  # an hour each
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [PeerGone] * 5
    for outcome in outcomes:
        assert isinstance(outcome, PeerGone)
        assert outcome.exit == status
        assert "fatal: the habit got the better of me" in outcome.stderr
        assert outcome.__cause__ is rpc.channel.cause


@pytest.mark.req("wire.fault.holder")
async def test_holder(harness: Harness, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    rpc = await harness.take_in("holder", limits=QUICK, pid_file=str(note))
    assert bytes(await rpc.call("x", {}, timeout=10)) == OK
    with pytest.raises(PeerGone, match="a process it started holds its output open"):
        await rpc.call("y", {}, timeout=10)
    grandchild = int(note.read_text())
    assert lives(grandchild)
    await stop_child(rpc.channel.child, QUICK)
    assert not lives(grandchild)


@pytest.mark.req("wire.fault.mute")
async def test_mute(harness: Harness) -> None:
    rpc = await harness.take_in("mute", limits=QUICK)
    with pytest.raises(PeerGone, match="mute: closed its output, but still runs"):
        await rpc.call("x", {}, timeout=10)
    assert lives(rpc.channel.child.pid)


@pytest.mark.req("wire.fault.unplugged")
async def test_unplugged(harness: Harness) -> None:
    rpc = await harness.take_in("unplugged", limits=QUICK)
    assert bytes(await rpc.call("x", {}, timeout=10)) == OK
    outcomes = await asyncio.gather(*(rpc.call(name, {}, timeout=10) for name in "yz"), return_exceptions=True)
    for outcome in outcomes:  # the one that broke the pipe, and the one that found it broken
        assert isinstance(outcome, PeerGone)
        assert "unplugged: closed its input, but still runs" in str(outcome)
    with pytest.raises(PeerGone):
        await rpc.call("later", {}, timeout=10)


@pytest.mark.req("wire.fault.deaf", "wire.channel.backlog")
async def test_deaf(harness: Harness) -> None:
    rpc = await harness.take_in("deaf")
    with pytest.raises(PeerTimeout):
        await rpc.call("x", {"pad": "x" * 1_000_000}, timeout=0.1)
    with pytest.raises(PeerTimeout):
        await rpc.call("y", {}, timeout=0.1)


@pytest.mark.slow
@pytest.mark.req("wire.fault.flood", "wire.channel.fair")
async def test_flood(harness: Harness) -> None:
    rpc = await harness.take_in("flood")
    tracemalloc.start()
    try:
        with pytest.raises(PeerTimeout):
            await rpc.call("x", {}, timeout=0.5)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20_000_000
    await harness.goes_on()
    assert (await stop_child(rpc.channel.child, QUICK)).exit is not None


@pytest.mark.req("wire.fault.flood")
async def test_an_answer_behind_a_flood_arrives(harness: Harness) -> None:
    rpc = await harness.take_in("flood", frames=100_000)
    assert bytes(await rpc.call("x", {}, timeout=20)) == OK


@pytest.mark.req("wire.fault.twice")
@pytest.mark.parametrize(("fault", "strays"), [("twice", 1), ("stranger", 3)])
async def test_twice_and_stranger(harness: Harness, fault: str, strays: int) -> None:
    rpc = await harness.take_in(fault)
    for _ in range(3):
        assert bytes(await rpc.call("x", {}, timeout=10)) == OK
    assert len([event for event in harness.odd if isinstance(event, jsonrpc.Stray)]) == 3 * strays


async def test_trickle(harness: Harness) -> None:
    rpc = await harness.take_in("trickle")
    assert bytes(await rpc.call("x", {}, timeout=10)) == OK


async def test_daemon(harness: Harness, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    rpc = await harness.take_in("daemon", pid_file=str(note))
    assert bytes(await rpc.call("x", {}, timeout=10)) == OK
    await stop_child(rpc.channel.child, QUICK)
    assert not lives(int(note.read_text()))


@pytest.mark.slow
@pytest.mark.req("wire.fault.others-go-on")
async def test_all_at_once_and_nothing_is_left(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], tmp_path: Path
) -> None:
    """Every fault in one host: each call ends, the good peer answers, and after the stop no process is left."""
    harness = Harness(spawner, deadlines, environ)
    harness.neighbour = await harness.take_in("none")
    peers = {fault: await harness.take_in(fault, limits=QUICK) for fault in faults.FAULTS}

    async def call(rpc: JsonRpcPeer) -> object:
        try:
            return bytes(await rpc.call("x", {"pad": "x" * 100_000}, timeout=1.0))
        except (PeerGone, PeerTimeout, BadFrame) as error:
            return error

    good = [asyncio.create_task(harness.goes_on()) for _ in range(50)]
    outcomes = await asyncio.gather(*(call(rpc) for rpc in peers.values()))
    await asyncio.gather(*good)
    assert len(outcomes) == len(faults.FAULTS)
    children: list[PlainChild] = list(spawner.children)
    await asyncio.gather(*(stop_child(child, QUICK) for child in children))
    assert not [child for child in children if lives(child.pid)]
    assert not os.listdir(tmp_path)

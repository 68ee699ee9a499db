"""JSON-RPC over a channel: calls, service, cancellation, with a real program at the other end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from serai.errors import PeerGone, PeerTimeout, Refused
from serai.testing import faults
from serai.wire import jsonrpc
from serai.wire.deadlines import Deadlines
from serai.wire.process import Launch, PlainSpawner
from serai.wire.rpc import Rpc
from serai.wire.stopping import stop
from tests.conftest import PATIENT, QUICK
from tests.wire.helpers import MemoryTap

# Calls back, refuses, echoes, and answers in an order of its own.
ODD_JOBS = r"""
import json, sys
def send(message): sys.stdout.write(json.dumps(message) + "\n"); sys.stdout.flush()
held = []
for line in sys.stdin:
    m = json.loads(line)
    method, id = m.get("method"), m.get("id")
    if method == "refuse": send({"id": id, "error": {"code": -32001, "message": "not today", "data": [1]}})
    elif method == "echo": send({"id": id, "result": m["params"]})
    elif method == "hold": held.append(id)
    elif method == "release":
        for other in reversed(held): send({"id": other, "result": "released"})
        send({"id": id, "result": len(held)}); held.clear()
    elif method == "ask-back":
        for n, name in enumerate(m["params"]): send({"jsonrpc": "2.0", "id": "their-%d" % n, "method": name, "params": {"n": n}})
        asked, got = id, []
        for _ in m["params"]: got.append(json.loads(sys.stdin.readline()))
        send({"method": "told", "params": {"before": "the answer"}})
        send({"id": asked, "result": got})
    elif method == "ask-and-cancel":
        ask, cancel = {"id": 0, "method": "slow"}, {"method": "$/cancelRequest", "params": {"id": 0}}
        sys.stdout.write(json.dumps(ask) + "\n" + json.dumps(cancel) + "\n"); sys.stdout.flush()
        send({"id": id, "result": json.loads(sys.stdin.readline())})
    elif method == "ask-then-cancel":
        send({"id": 0, "method": "slow"})
        assert json.loads(sys.stdin.readline())["method"] == "began"
        send({"method": "$/cancelRequest", "params": {"id": 0}})
        send({"id": id, "result": json.loads(sys.stdin.readline())})
    elif method == "ask-and-die":
        send({"id": 1, "method": "slow"}); sys.exit(6)
    elif method == "$/cancelRequest": send({"method": "saw-cancel", "params": m["params"]})
"""

Service = Callable[[jsonrpc.Request], Awaitable[object]]


class Bench:
    """An `Rpc` with a program behind it, and everything it was told."""

    def __init__(self) -> None:
        self.told: list[jsonrpc.Notification] = []
        self.odd: list[object] = []
        self.rpc: Rpc

    async def open(
        self, spawner: PlainSpawner, deadlines: Deadlines, argv: list[str], environ: dict[str, str], serve: Service | None = None
    ) -> Rpc:
        child = await spawner.spawn(Launch(argv=argv, env=environ, who="peer"))
        self.rpc = Rpc(child, deadlines=deadlines, limits=PATIENT, serve=serve, notified=self.told.append, odd=self.odd.append)
        return self.rpc


@pytest.mark.req("wire.channel.round-trip")
async def test_calls_get_their_own_answers_alone_and_many_at_once(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    rpc = await Bench().open(spawner, deadlines, [*python, ODD_JOBS], environ)
    assert json.loads(bytes(await rpc.call("echo", {"a": [1, 2.5, "ü"]}))) == {"a": [1, 2.5, "ü"]}
    answers = await asyncio.gather(*(rpc.call("echo", {"n": n}) for n in range(500)))
    assert [bytes(answer) for answer in answers] == [b'{"n": %d}' % n for n in range(500)]


async def test_answers_may_come_in_any_order(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    rpc = await Bench().open(spawner, deadlines, [*python, ODD_JOBS], environ)
    held = [asyncio.create_task(rpc.call("hold", {"n": n})) for n in range(3)]
    await asyncio.sleep(0)
    assert bytes(await rpc.call("release", {})) == b"3"
    assert [bytes(answer) for answer in await asyncio.gather(*held)] == [b'"released"'] * 3


async def test_a_refusal_is_neither_a_crash_nor_a_time_out(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    rpc = await Bench().open(spawner, deadlines, [*python, ODD_JOBS], environ)
    with pytest.raises(Refused, match="peer: not today") as refused:
        await rpc.call("refuse", {})
    assert (refused.value.code, refused.value.data) == (-32001, b"[1]")


@pytest.mark.req("wire.channel.serve")
async def test_requests_are_served_in_arrival_order_while_calls_are_outstanding(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    started: list[str] = []

    async def serve(request: jsonrpc.Request) -> object:
        started.append(request.method)
        if request.method == "refused":
            raise Refused("no", code=-32604)
        if request.method == "broken":
            raise RuntimeError("a defect")
        await asyncio.sleep(0)
        return {"served": request.method}

    bench = Bench()
    rpc = await bench.open(spawner, deadlines, [*python, ODD_JOBS], environ, serve)
    answer = bytes(await rpc.call("ask-back", ["first", "refused", "broken", "last"])).decode()
    assert started == ["first", "refused", "broken", "last"]
    assert '"served": "first"' in answer
    assert '"served": "last"' in answer
    assert '"code": -32604, "message": "no"' in answer
    assert "broken failed: a defect" in answer
    assert [note.method for note in bench.told] == ["told"]  # applied before the answer that followed it


@pytest.mark.req("wire.channel.serve")
async def test_requests_beyond_the_limit_are_refused_and_not_piled_up(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    async def serve(request: jsonrpc.Request) -> object:
        return await asyncio.wait_for(gate.wait(), 20)

    gate, tap = asyncio.Event(), MemoryTap()
    child = await spawner.spawn(Launch(argv=[*python, ODD_JOBS], env=environ))
    rpc = Rpc(child, deadlines=deadlines, limits=PATIENT.but(requests=3), serve=serve, tap=tap)
    asked = asyncio.create_task(rpc.call("ask-back", [f"m{n}" for n in range(10)]))
    while tap.all("received").count(b'"method"') < 10:
        await asyncio.sleep(0)
    gate.set()
    answer = bytes(await asked)
    assert (answer.count(b"too many open requests"), answer.count(b'"result": true')) == (7, 3)


async def test_without_a_service_every_request_is_refused(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    rpc = await Bench().open(spawner, deadlines, [*python, ODD_JOBS], environ)
    assert b"method not found: anything" in bytes(await rpc.call("ask-back", ["anything"]))


@pytest.mark.req("wire.channel.serve")
@pytest.mark.parametrize("method", ["ask-and-cancel", "ask-then-cancel"])
async def test_the_peer_can_cancel_what_it_asked_for_also_before_it_began(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str], method: str
) -> None:
    async def serve(request: jsonrpc.Request) -> object:
        rpc.notify("began", {})
        return await asyncio.Event().wait()

    rpc = await Bench().open(spawner, deadlines, [*python, ODD_JOBS], environ, serve)
    assert b"slow cancelled" in bytes(await rpc.call(method, {}))


async def test_a_result_that_cannot_be_encoded_is_answered_as_a_failure(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(request: jsonrpc.Request) -> object:
        return object()

    rpc = await Bench().open(spawner, deadlines, [*python, ODD_JOBS], environ, serve)
    assert b"thing failed" in bytes(await rpc.call("ask-back", ["thing"]))


@pytest.mark.req("wire.channel.serve")
async def test_the_work_for_a_peer_ends_with_it(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def serve(request: jsonrpc.Request) -> object:
        try:
            return await asyncio.Event().wait()
        finally:
            ended.set_result(None)

    rpc = await Bench().open(spawner, deadlines, [*python, ODD_JOBS], environ, serve)
    with pytest.raises(PeerGone, match="exit status 6"):
        await rpc.call("ask-and-die", {})
    await ended


@pytest.mark.req("wire.channel.cancel")
async def test_cancelling_a_call_tells_the_peer_and_its_late_answer_harms_nobody(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    bench = Bench()
    rpc = await bench.open(spawner, deadlines, [*python, ODD_JOBS], environ)
    held = asyncio.create_task(rpc.call("hold", {}))
    await asyncio.sleep(0)
    held.cancel()
    with pytest.raises(asyncio.CancelledError):
        await held
    assert bytes(await rpc.call("release", {})) == b"1"  # it answers the cancelled call first
    assert [(note.method, bytes(note.params)) for note in bench.told] == [("saw-cancel", b'{"id": 1}')]
    assert [type(event) for event in bench.odd] == [jsonrpc.Stray]


@pytest.mark.req("wire.fault.slow")
async def test_a_slow_answer_is_used_in_time_and_recorded_when_late(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]
) -> None:
    bench = Bench()
    rpc = await bench.open(spawner, deadlines, faults.peer("slow", seconds=0.1), environ)
    assert bytes(await rpc.call("x", {}, timeout=10)) == b'{"ok":true}'
    with pytest.raises(PeerTimeout, match=r"no answer to y \(limit call = 0.01\)"):
        await rpc.call("y", {}, timeout=0.01)
    assert bytes(await rpc.call("z", {}, timeout=10)) == b'{"ok":true}'
    assert [type(event) for event in bench.odd] == [jsonrpc.Stray]


async def test_a_call_that_cannot_be_sent_is_not_left_waiting(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], tmp_path: Path
) -> None:
    rpc = await Bench().open(spawner, deadlines, ["cat"], environ)
    await stop(rpc.channel.child, QUICK)
    with pytest.raises(PeerGone):
        await rpc.call("x", {})
    assert rpc.connection.next_deadline() is None

"""JSON-RPC over a channel: calls, service, cancellation, with a real program at the other end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from serai.errors import BadFrame, FrameTooBig, PeerGone, PeerTimeout, Refused
from serai.testing import faults
from serai.wire import jsonrpc
from serai.wire.event_loop import Deadlines
from serai.wire.jsonrpc_peer import JsonRpcPeer
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Launch, stop_child
from tests.conftest import PATIENT, QUICK
from tests.support.processes import MemoryTap

pytestmark = pytest.mark.loops

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
    """A `JsonRpcPeer` with a program behind it, and everything it was told."""

    def __init__(self) -> None:
        self.told: list[jsonrpc.Notification] = []
        self.odd: list[object] = []
        self.rpc: JsonRpcPeer

    async def open(
        self, spawner: PlainSpawner, deadlines: Deadlines, argv: list[str], environ: dict[str, str], serve: Service | None = None
    ) -> JsonRpcPeer:
        child = await spawner.spawn(Launch(argv=argv, env=environ, who="peer"))
        self.rpc = JsonRpcPeer(
            child, deadlines=deadlines, limits=PATIENT, serve=serve, notified=self.told.append, odd=self.odd.append
        )
        return self.rpc


@pytest.mark.req("wire.channel.round-trip")
async def test_calls_get_their_own_answers_alone_and_many_at_once(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    rpc = await Bench().open(spawner, deadlines, [*python, ODD_JOBS], environ)
    assert bytes(await rpc.call("release")) == b"0"  # without parameters
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
    rpc = JsonRpcPeer(child, deadlines=deadlines, limits=PATIENT.but(requests=3), serve=serve, tap=tap)
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
    os.kill(pid := rpc.channel.child.pid, signal.SIGSTOP)  # however late we look at the clock, it is later still
    os.waitid(os.P_PID, pid, os.WSTOPPED)
    with pytest.raises(PeerTimeout, match=r"no answer to y \(limit call = 0.01\)"):
        await rpc.call("y", {}, timeout=0.01)
    os.kill(pid, signal.SIGCONT)
    assert bytes(await rpc.call("z", {}, timeout=10)) == b'{"ok":true}'
    assert [type(event) for event in bench.odd] == [jsonrpc.Stray]


@pytest.mark.req("wire.channel.cancel")
async def test_a_call_that_timed_out_is_cancelled_at_the_peer_too(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    bench = Bench()
    rpc = await bench.open(spawner, deadlines, [*python, ODD_JOBS], environ)
    with pytest.raises(PeerTimeout):
        await rpc.call("hold", {}, timeout=0.01)
    assert bytes(await rpc.call("release", {})) == b"1"
    assert [(note.method, bytes(note.params)) for note in bench.told] == [("saw-cancel", b'{"id": 1}')]


@pytest.mark.req("wire.channel.callback-fails")
async def test_a_callback_that_fails_keeps_no_answer_from_its_caller(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Noise, a notification and the answer come in one run."""

    def fail(event: object) -> None:
        raise RuntimeError("a defect")

    program = """
import sys
sys.stdin.readline()
print('noise', '{"method":"note"}', '{"id":1,"result":2}', sep='\\n', flush=True)
"""
    child = await spawner.spawn(Launch(argv=[*python, program], env=environ))
    rpc = JsonRpcPeer(child, deadlines=deadlines, limits=PATIENT, notified=fail, odd=fail)
    assert bytes(await rpc.call("x", {}, timeout=20)) == b"2"
    assert caplog.text.count("whoever is told of its frames failed") == 2


UNREADABLE = {"NaN": '{"x":NaN}', "raw tab": '"a\tb"', "bad escape": '"\\x"', "deep": "[" * 50_000 + "]" * 50_000}


@pytest.mark.req("wire.jsonrpc.garbled")
@pytest.mark.parametrize("result", UNREADABLE.values(), ids=UNREADABLE)
async def test_an_answer_that_cannot_be_read_fails_its_call_at_once(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str], result: str
) -> None:
    program = """
import sys
sys.stdin.readline()
print('{"id":1,"result":' + sys.argv[1] + '}', flush=True)
input()
"""
    bench = Bench()
    rpc = await bench.open(spawner, deadlines, [*python, program, result], environ)
    with pytest.raises(BadFrame, match="its answer to x cannot be read"):
        await rpc.call("x", {})  # an hour, else
    assert len(bench.odd) == 1


@pytest.mark.req("wire.channel.serve")
async def test_a_peer_never_waits_for_an_answer_that_cannot_be_sent_or_a_request_that_was_too_long(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    async def serve(request: jsonrpc.Request) -> object:
        return "x" * 5000

    program = """
import json, sys
sys.stdin.readline()
print('{"id":"big","method":"give"}', flush=True)
print('{"id":7,"params":"%s","method":"take"}' % ("x" * 5000), flush=True)
got = sorted((json.loads(sys.stdin.readline()) for _ in range(2)), key=lambda m: str(m["id"]))
print(json.dumps({"id": 1, "result": got}), flush=True)
"""
    child = await spawner.spawn(Launch(argv=[*python, program], env=environ))
    rpc = JsonRpcPeer(child, deadlines=deadlines, limits=PATIENT.but(send=1000, frame=1000), serve=serve)
    answer = bytes(await rpc.call("x", {}, timeout=20)).decode()
    assert "the request had 5037 bytes; the limit is 1000" in answer
    assert "too long to send" in answer


async def test_a_refusal_with_text_that_is_none_still_reaches_the_peer(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serve(request: jsonrpc.Request) -> object:
        raise ValueError("caf\udce9")  # as from a file name

    monkeypatch.setattr("serai.wire.jsonrpc_peer.log.exception", lambda *_: None)  # a test report cannot carry that text either
    rpc = await Bench().open(spawner, deadlines, [*python, ODD_JOBS], environ, serve)
    assert b"thing failed: caf?" in bytes(await rpc.call("ask-back", ["thing"]))


async def test_once_the_wire_is_closed_nothing_is_served_but_every_answer_that_came_is_given(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    """A notification, a request and an answer in one run; the notification makes us leave."""
    program = """
import sys
sys.stdin.readline()
print('{"method":"leave"}', '{"id":"r","method":"serve"}', '{"id":1,"result":2}', sep='\\n', flush=True)
sys.stdin.read()
"""
    served: list[str] = []

    async def serve(request: jsonrpc.Request) -> object:
        served.append(request.method)
        return None

    child = await spawner.spawn(Launch(argv=[*python, program], env=environ))
    rpc = JsonRpcPeer(child, deadlines=deadlines, limits=PATIENT, serve=serve, notified=lambda note: rpc.channel.close())
    assert bytes(await rpc.call("x", {}, timeout=20)) == b"2"
    await asyncio.sleep(0)
    assert served == []


async def test_a_call_that_is_too_long_is_not_left_waiting(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]
) -> None:
    child = await spawner.spawn(Launch(argv=["cat"], env=environ))
    rpc = JsonRpcPeer(child, deadlines=deadlines, limits=PATIENT.but(send=100))
    with pytest.raises(FrameTooBig):
        await rpc.call("x", {"pad": "x" * 100})
    assert rpc.connection.next_deadline() is None


async def test_the_end_of_the_wire_is_told_also_when_nothing_is_asked(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]
) -> None:
    ended: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    child = await spawner.spawn(Launch(argv=["sh", "-c", "exit 4"], env=environ))
    JsonRpcPeer(child, deadlines=deadlines, limits=PATIENT, ended=ended.set_result)
    assert "exit status 4" in str(await ended)


async def test_the_wire_can_be_on_the_extra_descriptors(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    program = "import os; os.read(3, 1000); print('noise', flush=True); os.write(4, b'{\"id\":1,\"result\":3}\\n')"
    child = await spawner.spawn(Launch(argv=[*python, program], env=environ, extra={3: "r", 4: "w"}))
    rpc = JsonRpcPeer(child, deadlines=deadlines, limits=PATIENT, read=child.extra[4], write=child.extra[3])
    assert bytes(await rpc.call("x", {}, timeout=20)) == b"3"


async def test_a_call_that_cannot_be_sent_is_not_left_waiting(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], tmp_path: Path
) -> None:
    rpc = await Bench().open(spawner, deadlines, ["cat"], environ)
    await stop_child(rpc.channel.child, QUICK)
    with pytest.raises(PeerGone):
        await rpc.call("x", {})
    assert rpc.connection.next_deadline() is None

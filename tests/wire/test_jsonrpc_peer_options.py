"""What a dialect can change about a `JsonRpcPeer`: its connection, its way out, its words, and when it stops serving."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from serai.errors import PeerGone, PeerStalled, SeraiError
from serai.wire import jsonrpc
from serai.wire.event_loop import Deadlines
from serai.wire.jsonrpc_peer import JsonRpcPeer
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Launch
from serai.wire.stream import PendingCall
from tests.conftest import PATIENT
from tests.support.processes import MemoryTap

pytestmark = pytest.mark.loops

# Answers each request with the frames it got so far; "ask" makes it ask back first.
PEER = r"""
import json, sys
got = []
def send(message): sys.stdout.write(json.dumps(message) + "\n"); sys.stdout.flush()
for line in sys.stdin:
    message = json.loads(line); got.append(message)
    if message.get("method") == "ask": send({"id": "q", "method": "slow"})
    if message.get("method") == "ask-and-take-back":
        send({"id": "q", "method": "slow"}); send({"method": "$/cancelRequest", "params": {"id": "q"}})
    if message.get("method") == "got": send({"ID": message["id"], "Result": got})
"""


async def open_peer(spawner: PlainSpawner, environ: dict[str, str], python: list[str], **more: Any) -> JsonRpcPeer:
    child = await spawner.spawn(Launch(argv=[*python, PEER], env=environ, who="peer"))
    return JsonRpcPeer(child, limits=PATIENT, connection=jsonrpc.JsonRpcConnection(folded=True), **more)


async def call_got(rpc: JsonRpcPeer) -> list[dict[str, Any]]:
    frames: list[dict[str, Any]] = json.loads(bytes(await rpc.call("got", timeout=20)))
    return frames


async def test_a_dialect_brings_its_own_connection(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    rpc = await open_peer(spawner, environ, python, deadlines=deadlines)
    assert [frame["method"] for frame in await call_got(rpc)] == ["got"]  # its answer has keys in another case
    assert rpc.connection.take_id() == 2


@pytest.mark.req("wire.channel.cancel")
async def test_a_caller_that_gives_up_tells_the_peer_or_not_as_it_was_asked_to(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    rpc = await open_peer(spawner, environ, python, deadlines=deadlines)
    for cancel in (True, False):
        waiting = asyncio.create_task(rpc.call("wait", cancel=cancel))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert [frame["method"] for frame in await call_got(rpc)] == ["wait", "$/cancelRequest", "wait", "got"]


async def test_every_frame_goes_the_way_that_is_put_there(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    async def serve(request: jsonrpc.Request) -> object:
        return "served"

    put: list[tuple[str, PendingCall[Any] | None]] = []

    def note(frame: bytes, call: PendingCall[Any] | None) -> None:
        message = json.loads(frame)
        put.append((message.get("method") or message["id"], call))
        rpc.channel.send(frame)

    rpc = await open_peer(spawner, environ, python, deadlines=deadlines, serve=serve)
    await call_got(rpc)
    rpc.put = note
    rpc.notify("told")
    waiting = asyncio.create_task(rpc.call("ask"))
    await asyncio.sleep(0)
    while put[-1][0] != "q":
        await asyncio.sleep(0)
    assert rpc.connection.waits_for(put[1][1])  # type: ignore[arg-type]
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await call_got(rpc)
    assert [name for name, _ in put] == ["told", "ask", "q", "$/cancelRequest", "got"]
    assert [call.what for _, call in put if call is not None] == ["ask", "got"]


async def test_a_call_that_its_way_does_not_take_is_not_left_waiting(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    def full(frame: bytes, call: PendingCall[Any] | None) -> None:
        raise PeerGone("full")

    rpc = await open_peer(spawner, environ, python, deadlines=deadlines, put=full)
    with pytest.raises(SeraiError, match="full"):
        await rpc.call("x")
    assert rpc.connection.next_deadline() is None


async def test_the_answer_to_a_request_that_was_taken_back_is_worded_by_the_dialect(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    async def serve(request: jsonrpc.Request) -> object:
        return await asyncio.Event().wait()

    tap = MemoryTap()
    words = "{} cancelled: context canceled".format
    rpc = await open_peer(spawner, environ, python, deadlines=deadlines, serve=serve, tap=tap, cancelled=lambda r: words(r.method))
    rpc.notify("ask-and-take-back")
    while b'"id":"q"' not in tap.all("sent"):
        await asyncio.sleep(0)
    answer = (await call_got(rpc))[1]
    assert answer["error"] == {"code": -32603, "message": "slow cancelled: context canceled"}


@pytest.mark.req("wire.channel.serve")
async def test_when_serving_stops_the_work_ends_and_nothing_new_is_begun(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    began = asyncio.Event()
    ended: list[str] = []

    async def serve(request: jsonrpc.Request) -> object:
        began.set()
        try:
            return await asyncio.Event().wait()
        finally:
            ended.append(request.method)

    tap = MemoryTap()
    rpc = await open_peer(spawner, environ, python, deadlines=deadlines, serve=serve, tap=tap)
    rpc.notify("ask")
    await began.wait()
    rpc.stop_serving()
    while b'"id":"q"' not in tap.all("sent"):
        await asyncio.sleep(0)
    rpc.notify("ask")
    while tap.all("sent").count(b'"id":"q"') < 2:
        await asyncio.sleep(0)
    refusals = [frame["error"]["message"] for frame in await call_got(rpc) if "error" in frame]
    assert refusals == ["slow cancelled", "slow refused: nothing is served any more"]
    assert ended == ["slow"]


@pytest.mark.req("wire.channel.backlog")
async def test_an_answer_for_which_there_is_no_room_is_a_refusal(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    """Whoever asked and reads late must not wait for ever."""
    sent: list[dict[str, Any]] = []

    def full(frame: bytes, call: PendingCall[Any] | None) -> None:
        message = json.loads(frame)
        if message.get("result") == "served":
            raise PeerStalled("64 bytes wait for it to read", who="peer")
        sent.append(message)
        rpc.channel.send(frame)

    async def serve(request: jsonrpc.Request) -> object:
        return "served"

    rpc = await open_peer(spawner, environ, python, deadlines=deadlines, serve=serve, put=full)
    rpc.notify("ask")
    frames = await call_got(rpc)
    while not any("error" in frame for frame in frames):
        frames = await call_got(rpc)
    [refused] = [frame for frame in frames if "error" in frame]
    assert refused["id"] == "q"
    assert refused["error"]["message"] == "slow failed: it does not read, and 64 bytes wait for it to read"

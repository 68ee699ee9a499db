"""One measurement of piglet calls in a fresh process: `python -m bench.workers.piglet WHO PEER BYTES CALLS IN_FLIGHT HOW`.

WHO is `channel`: the leanest that decodes to types, has a deadline and a tap, on the child's standard streams; `rpc`: the same by
`JsonRpcPeer`, with the adapter's reading of an answer; `host`: `host.call_tool` through everything, the guest on descriptors 3 and
4; `go`: the same, and the guest answers in the keys of the Go SDK; or `guarded`: the first with two more guests, whose interceptors
see each call before and after. HOW is `asyncio` or `uvloop`. Prints the same JSON object as `roundtrip`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from bench.workers.guest import TIMEOUT, Guest
from bench.workers.host import Taps
from bench.workers.roundtrip import CountingTap
from bench.workers.timing import Call, Shape, measure
from serai.dialects.piglet.messages import ToolExecuteParams, ToolExecuteResult
from serai.dialects.piglet.methods import Method, decode_result
from serai.host.host import Host
from serai.model.tools import ToolCall
from serai.wire import event_loop
from serai.wire.channel import Channel
from serai.wire.codec import Codec, encode
from serai.wire.event_loop import Deadlines
from serai.wire.jsonrpc import OutgoingEnvelope
from serai.wire.jsonrpc_peer import JsonRpcPeer
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Child, Launch

__all__ = ["Peer", "codec", "environment", "extension"]


class Peer(Guest):
    """A bare child that speaks piglet: calls by id, answers of one type."""

    __slots__ = ()

    def __init__(self, answers: Codec[Any]) -> None:
        super().__init__()
        self.reader = answers.create_reader()

    def handle_run(self, run: bytes) -> None:
        message: Any
        for message in self.reader.read(run):
            call = self.calls.finish(message.id)
            if call is not None and not call.waiter.done():
                call.waiter.set_result(message)


def codec(result: Any) -> Codec[Any]:
    """Reads a whole answer at once, with its result of this type."""
    return Codec(msgspec.defstruct("Answer", [("id", int), ("result", result)], gc=False))


def extension(place: Path, peer: str, name: str, entry: str) -> Path:
    """A folder with a piglet extension whose program is `peer`, and which offers what `entry` says."""
    folder = place / name
    folder.mkdir()
    (folder / "manifest.yaml").write_text(f"name: {name}\nruntime: {peer}\nentry: {entry}\n")
    return folder


def environment(place: Path) -> dict[str, str]:
    """With homes of its own, so that nobody's settings matter."""
    return dict(os.environ) | {"SERAI_HOME": str(place / "home"), "XDG_CONFIG_HOME": str(place / "config")}


@asynccontextmanager
async def bare_child(peer: str) -> AsyncIterator[Child]:
    async with PlainSpawner() as spawner:
        yield await spawner.spawn(Launch(argv=[peer], env=dict(os.environ)))


@asynccontextmanager
async def by_channel(peer: str, text: str) -> AsyncIterator[Call]:
    guest, numbers = Peer(codec(ToolExecuteResult)), count(1)
    new_future = asyncio.get_running_loop().create_future

    def call() -> asyncio.Future[Any]:
        id: Any = next(numbers)
        frame = encode(OutgoingEnvelope("2.0", id, "tool/execute", ToolExecuteParams("", "echo", {"text": text})))
        return guest.call(id, frame, new_future())

    async with bare_child(peer) as child:
        guest.channel = Channel(child, guest, deadlines=Deadlines(), tap=CountingTap())
        assert (await call()).result.content[0].text == text
        yield call


@asynccontextmanager
async def by_rpc(peer: str, text: str) -> AsyncIterator[Call]:
    async def call() -> Any:
        params = ToolExecuteParams("", "echo", {"text": text})
        return decode_result(Method.TOOL_EXECUTE, await rpc.call(Method.TOOL_EXECUTE, params, timeout=TIMEOUT))

    async with bare_child(peer) as child:
        rpc = JsonRpcPeer(child, deadlines=Deadlines(), tap=CountingTap())
        assert (await call()).content[0].text == text
        yield call


@asynccontextmanager
async def by_host(peer: str, text: str, entry: str, guards: int) -> AsyncIterator[Call]:
    recorder: Any = Taps()
    with tempfile.TemporaryDirectory(prefix="serai-bench-") as folder:
        place = Path(folder)
        guests = [extension(place, peer, "echo", entry)]
        guests += [extension(place, peer, f"guard{number}", "guard") for number in range(guards)]
        async with Host.discover(place, guests=guests, environ=environment(place), config={}, recorder=recorder) as host:
            assert host.report.ok, host.report.to_lines()
            assert [len(host.table.chains[stage]) for stage in ("tool_call", "tool_result")] == [guards, guards]
            assert (await host.call_tool("echo", {"text": text})).text == text
            assert (await host.call_tool("echo", {"txt": text})).code == "INVALID_ARGS"
            call_tool = host.call_tool
            yield lambda: call_tool(ToolCall("echo", {"text": text}))


async def main(who: str, peer: str, shape: Shape) -> dict[str, float]:
    ways: dict[str, Callable[[str, str], AbstractAsyncContextManager[Call]]] = {
        "channel": by_channel,
        "rpc": by_rpc,
        "host": partial(by_host, entry="tool", guards=0),
        "go": partial(by_host, entry="gotool", guards=0),
        "guarded": partial(by_host, entry="tool", guards=2),
    }
    async with ways[who](peer, shape.text) as call:
        return await measure(call, shape)


def run(who: str, peer: str, shape: Shape, how: str) -> dict[str, float]:
    with asyncio.Runner(loop_factory=event_loop.find_loop_factory() if how == "uvloop" else None) as runner:
        return runner.run(main(who, peer, shape))


if __name__ == "__main__":
    who_, peer_, *shape_ = sys.argv[1:6]
    print(json.dumps(run(who_, peer_, Shape.of(shape_), sys.argv[6])))

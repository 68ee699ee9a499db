"""A worker that is killed at any moment hurts its own plugin alone, and that one comes back."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serai.dialects.yoi.status import Lifecycle
from serai.errors import PeerGone, SeraiError
from serai.host.guest import GuestState
from serai.wire.plain_process import PlainSpawner
from tests.support.host.zot_guests import wait_for_state
from tests.support.yoi import components
from tests.support.yoi.hosted_plugins import DOWN, ID, INGRESS, Plugin, build_tools, event, guest_of, mirror, run_host


class SilentServer:
    """A server that takes connections and says nothing."""

    def __init__(self) -> None:
        self.came = asyncio.Event()
        self.gone = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came.set()
        while await reader.read(1024):
            pass
        self.gone.set()
        writer.close()


@asynccontextmanager
async def serve_silently() -> AsyncIterator[tuple[SilentServer, dict[str, Any], str]]:
    """One, the target to be granted for it, and the descriptor that opens it."""
    handler = SilentServer()
    async with await asyncio.start_server(handler, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        url = f"ws://127.0.0.1:{port}/"
        yield handler, {"scheme": "ws", "host": "127.0.0.1", "port": port}, msgspec.json.encode({"url": url}).decode()


async def test_killed_in_start(tmp_path: Path, spawner: PlainSpawner) -> None:
    async with serve_silently() as (server, target, descriptor):
        component = components.caller("websocket", "open", descriptor, where="start")
        plugin = Plugin(tmp_path, component, tools=("echo",), apis=("websocket",), websocket=[target])

        async def kill() -> None:
            await server.came.wait()
            for child in list(spawner.children):
                os.kill(child.pid, signal.SIGKILL)

        killer = asyncio.ensure_future(kill())
        async with run_host(tmp_path, plugin, spawner=spawner) as host:
            await killer
            guest = host.guest(ID)
            assert (guest.state, list(host.tools)) == (GuestState.GONE, [])
            assert isinstance(guest.error, PeerGone)
            assert guest.error.message.startswith("plugin instance startup failed closed: ")
            await server.gone.wait()  # nothing of the host call is left
            assert not spawner.children


async def test_killed_in_a_call(tmp_path: Path) -> None:
    async with run_host(tmp_path, Plugin(tmp_path, components.spin(), tools=("call", "echo"))) as host:
        guest = guest_of(host)
        calls = [asyncio.ensure_future(host.call_tool("call")), asyncio.ensure_future(host.call_tool("echo"))]
        await asyncio.sleep(0)
        os.kill(guest.pid, signal.SIGKILL)
        first, second = await asyncio.gather(*calls)
        assert (first.code, second.code) == ("TOOL_UNAVAILABLE", "TOOL_UNAVAILABLE")
        assert "killed by SIGKILL" in first.text
        await wait_for_state(host, ID, GuestState.READY)
        assert not (await host.call_tool("echo")).is_error
        assert guest_of(host).get_status().restarts == 1


async def test_killed_in_a_host_call(tmp_path: Path) -> None:
    async with serve_silently() as (server, target, descriptor):
        component = components.caller("websocket", "open", descriptor)
        plugin = Plugin(tmp_path, component, tools=("call", "echo"), apis=("websocket",), websocket=[target])
        async with run_host(tmp_path, plugin) as host:
            guest = guest_of(host)
            call = asyncio.ensure_future(host.call_tool("call"))
            await server.came.wait()
            os.kill(guest.pid, signal.SIGKILL)
            assert (await call).code == "TOOL_UNAVAILABLE"
            await server.gone.wait()
            await wait_for_state(host, ID, GuestState.READY)
            assert not (await host.call_tool("echo")).is_error


async def test_killed_in_an_event(tmp_path: Path) -> None:
    async with run_host(
        tmp_path, Plugin(tmp_path, components.spin("ingress"), **INGRESS), bounds={"ingress": 30.0}, limits=DOWN
    ) as host:
        guest = guest_of(host)
        work = asyncio.ensure_future(guest.dispatch("in", event()))
        assert guest.worker is not None
        while not guest.worker.busy:
            await asyncio.sleep(0)
        os.kill(guest.pid, signal.SIGKILL)
        with pytest.raises(SeraiError, match="plugin ingress dispatch failed closed: "):
            await work
        status = guest.get_status()
        assert (status.lifecycle, status.dispatch_counters.failed, status.queue_depth) == (Lifecycle.FAILED, 1, 0)


async def test_killed_in_stop(tmp_path: Path) -> None:
    async with run_host(tmp_path, Plugin(tmp_path, components.spin("stop"), tools=("echo",))) as host:
        guest = guest_of(host)
        stopping = asyncio.ensure_future(guest.stop())
        assert guest.worker is not None
        while not guest.worker.busy:
            await asyncio.sleep(0)
        os.kill(guest.pid, signal.SIGKILL)
        await stopping
        assert guest.get_status().lifecycle is Lifecycle.FAILED


async def test_killed_while_it_does_nothing(tmp_path: Path) -> None:
    async with run_host(tmp_path, Plugin(tmp_path, mirror(), **INGRESS)) as host:
        for _ in range(3):
            before = guest_of(host)
            os.kill(before.pid, signal.SIGKILL)
            await wait_for_state(host, ID, GuestState.BACKING_OFF)
            await wait_for_state(host, ID, GuestState.READY)
            assert (await guest_of(host).dispatch("in", event(payload=7))).output == 7
        assert guest_of(host).get_status().restarts == 3


async def test_a_stop_that_does_not_end_is_ended(tmp_path: Path) -> None:
    async with run_host(tmp_path, Plugin(tmp_path, components.spin("stop"), tools=("echo",)), bounds={"start": 2.0}) as host:
        guest = guest_of(host)
        await guest.stop()
        assert guest.get_status().lifecycle is Lifecycle.FAILED


async def test_a_call_that_does_not_end_holds_up_no_stop(tmp_path: Path) -> None:
    async with run_host(tmp_path, Plugin(tmp_path, components.spin(), tools=("call", "echo")), limits={"stop_polite": 0.2}) as host:
        guest = guest_of(host)
        call = asyncio.ensure_future(host.call_tool("call"))
        await asyncio.sleep(0)
        await guest.stop()
        assert (await call).code == "TOOL_UNAVAILABLE"


async def test_a_caller_that_gives_up_leaves_the_plugin_as_it_is(tmp_path: Path) -> None:
    guest = build_tools()
    async with run_host(tmp_path, Plugin(tmp_path, guest.build(), tools=("echo", "count"))) as host:
        for _ in range(20):
            call = asyncio.ensure_future(host.call_tool("count"))
            await asyncio.sleep(0)
            call.cancel()
        assert not (await host.call_tool("echo")).is_error
        assert host.guest(ID).generation == 1

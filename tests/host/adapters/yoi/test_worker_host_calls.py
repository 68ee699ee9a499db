"""Host functions end to end: a guest that calls them, the worker, the broker and the net (spec yoi 2.4, 5, 13.1)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from serai.dialects.yoi.status import Lifecycle
from serai.host.guest import GuestState
from serai.plugins.manifest import TOOL
from tests.support.yoi import components
from tests.support.yoi.hosted_plugins import DOWN, ID, Plugin, guest_of, run_host
from tests.support.yoi.websockets import open_server

AFTER = '{"summary":"it went on"}'


def call_all(world: str, *steps: tuple[str, str, str | int, *tuple[str | int, ...]]) -> bytes:
    """Its tool `call` calls these host functions and then answers, whatever they said; `send` sends to the first handle."""
    guest = components.Guest(world, imports=tuple(dict.fromkeys(("websocket", *(step[0] for step in steps)))))
    calls = " ".join(f"{guest.host(*step)} drop drop" for step in steps)
    guest.tool("call", f"{calls} {guest.answer(AFTER)}")
    guest.tool("send", guest.output("sent", guest.host("websocket", "send-text", 1, "hello")))
    return guest.build()


async def closed_port() -> int:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


# -- the world `tool` -------------------------------------------------------------------------------------------------------------


@pytest.mark.req("yoi.rule.072", "yoi.conform.34")
async def test_in_the_tool_world_handles_end_with_their_call(tmp_path: Path) -> None:
    async with open_server() as server:
        component = call_all("tool", ("websocket", "open", json.dumps({"url": server.url})))
        plugin = Plugin(tmp_path, component, world=TOOL, tools=("call", "send"), apis=("websocket",), websocket=[server.target])
        async with run_host(tmp_path, plugin) as host:
            for _ in range(6):  # two more than there are handles
                result = await host.call_tool("call")
                assert (result.text, result.is_error) == ("it went on", False)
                connection = await server.next()
                async with asyncio.timeout(20):
                    await connection.wait_closed()
                result = await host.call_tool("send")  # nothing of the call before is left
                assert result.is_error
                assert result.text.endswith("unknown WebSocket handle 1")
            assert guest_of(host).get_status().lifecycle is Lifecycle.READY


@pytest.mark.req("yoi.rule.072", "yoi.conform.34")
async def test_also_those_of_a_call_that_trapped(tmp_path: Path) -> None:
    async with open_server() as server:
        opening = ("websocket", "open", json.dumps({"url": server.url}))
        component = call_all("tool", opening, ("websocket", "send-text", 9, "nobody"))
        plugin = Plugin(tmp_path, component, world=TOOL, tools=("call",), apis=("websocket",), websocket=[server.target])
        async with run_host(tmp_path, plugin) as host:
            for _ in range(6):
                assert (await host.call_tool("call")).text.endswith("unknown WebSocket handle 9")
                connection = await server.next()
                async with asyncio.timeout(20):
                    await connection.wait_closed()


@pytest.mark.req("yoi.rule.071")
async def test_in_the_instance_world_they_stay(tmp_path: Path) -> None:
    async with open_server() as server:
        component = call_all("instance", ("websocket", "open", json.dumps({"url": server.url})))
        plugin = Plugin(tmp_path, component, tools=("call", "send"), apis=("websocket",), websocket=[server.target])
        async with run_host(tmp_path, plugin) as host:
            assert not (await host.call_tool("call")).is_error
            connection = await server.next()
            assert not (await host.call_tool("send")).is_error
            assert await connection.recv() == "hello"


# -- a failure is a trap ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("yoi.rule.006")
async def test_a_receive_that_times_out_is_a_trap(tmp_path: Path) -> None:
    async with open_server() as server:
        component = call_all("instance", ("websocket", "open", json.dumps({"url": server.url})), ("websocket", "recv", 1, 50))
        plugin = Plugin(tmp_path, component, tools=("call",), apis=("websocket",), websocket=[server.target])
        async with run_host(tmp_path, plugin, limits=DOWN) as host:
            guest = guest_of(host)
            result = await host.call_tool("call")
            assert result.is_error
            assert result.text.endswith(" failed closed: WASM execution error: WebSocket receive timed out")
            assert (guest.get_status().lifecycle, host.guest(ID).state) == (Lifecycle.FAILED, GuestState.BACKING_OFF)


@pytest.mark.req("yoi.rule.006")
@pytest.mark.parametrize("api", ["request", "websocket"])
async def test_a_connection_that_fails_is_a_trap(tmp_path: Path, api: str) -> None:
    port = await closed_port()
    target = {"host": "127.0.0.1", "port": port}
    if api == "request":
        url, step = f"http://127.0.0.1:{port}/", "request"
        asked, targets = {"method": "GET", "url": url}, [{"scheme": "http", "methods": ["GET"], **target}]
    else:
        url, step = f"ws://127.0.0.1:{port}/", "open"
        asked, targets = {"url": url}, [{"scheme": "ws", **target}]
    plugin = Plugin(tmp_path, call_all("instance", (api, step, json.dumps(asked))), tools=("call",), apis=(api,), **{api: targets})
    async with run_host(tmp_path, plugin, limits=DOWN) as host:
        guest = guest_of(host)
        result = await host.call_tool("call")
        assert result.is_error
        words = f"request to {url} failed: " if api == "request" else f"WebSocket open to {url} failed: "
        assert f" failed closed: WASM execution error: {words}" in result.text
        assert (guest.get_status().lifecycle, host.guest(ID).state) == (Lifecycle.FAILED, GuestState.BACKING_OFF)

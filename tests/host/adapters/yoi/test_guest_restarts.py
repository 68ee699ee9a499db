"""Two lives of one plugin: what the earlier one may still do, and what the later one has of it (spec yoi 13.5, 15.3, 16)."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from serai.dialects.yoi.status import DiagnosticKind, Lifecycle
from serai.errors import Closed, PeerGone, Refused
from serai.host.adapters.yoi import ingress
from serai.host.adapters.yoi.ingress import Backoff
from serai.host.discovery import find_guests
from serai.host.guest import GuestState
from serai.host.guest_manifest import GuestManifest
from serai.host.host import Host
from serai.model.tools import ToolResult
from serai.plugins.manifest import TOOL
from tests.support.host.zot_guests import wait_for_state
from tests.support.yoi import components
from tests.support.yoi.hosted_plugins import ID, INGRESS, Plugin, build_tools, event, guest_of, mirror, run_host, wait_until
from tests.support.yoi.websockets import build_listening, list_texts, open_server

PATIENT = 30.0  # seconds: for what is expected to happen
SLOW = {"tool": 60.0, "ingress": 60.0}  # seconds: nothing here ends by its deadline


def build_spinning() -> bytes:
    """Its tool `call` does not end; events are taken."""
    guest = build_tools()
    return guest.tool("call", f"(call $forever) {guest.answer('{}')}").build()


async def begin_call(host: Host) -> asyncio.Future[ToolResult]:
    """A call of that tool, which the plugin has by now."""
    call = asyncio.ensure_future(host.call_tool("call"))
    worker = guest_of(host).worker
    assert worker is not None
    while not worker.busy:
        await asyncio.sleep(0)
    return call


# -- replaced ---------------------------------------------------------------------------------------------------------------------


async def test_a_replaced_life_listens_no_more_while_it_ends_what_it_has_begun(tmp_path: Path) -> None:
    async with open_server() as server:
        plugin = build_listening(tmp_path, server, build_spinning(), tools=("call",))
        async with run_host(tmp_path, plugin, bounds=SLOW, limits={"drain": 60.0}) as host:
            old = guest_of(host)
            first = await server.next()
            call = await begin_call(host)
            await host.reload(ID)
            new = guest_of(host)
            second = await server.next()
            async with asyncio.timeout(PATIENT):
                await first.wait_closed()
            assert not call.done()  # it still drains
            assert old._stopping is None
            await second.send("once")
            await wait_until(new, lambda status: status.dispatch_counters.dispatched == 1)
            assert old.get_status().dispatch_counters.enqueued == 0
            assert server.came.empty()  # and it is not opened again
            os.kill(old.pid, signal.SIGKILL)
            assert (await call).is_error


async def test_an_event_for_an_earlier_life_is_refused_and_the_one_that_serves_goes_on(tmp_path: Path) -> None:
    async with run_host(tmp_path, Plugin(tmp_path, mirror(), **INGRESS)) as host:
        old = guest_of(host)
        os.kill(old.pid, signal.SIGKILL)
        await wait_for_state(host, ID, GuestState.BACKING_OFF)
        await wait_for_state(host, ID, GuestState.READY)
        new = guest_of(host)
        assert new.instance is old.instance
        async with asyncio.timeout(PATIENT):
            with pytest.raises(Refused, match="this life of the plugin is over: another one serves, or none"):
                await old.dispatch("in", event(payload=1))
            assert [(await new.dispatch("in", event(payload=number))).output for number in (2, 3)] == [2, 3]
        status = new.get_status()
        assert (status.queue_depth, status.dispatch_counters.enqueued) == (0, 2)


# -- stopped ----------------------------------------------------------------------------------------------------------------------


async def test_a_stop_waits_for_no_event_that_waits_behind_a_tool(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path, build_spinning(), **{**INGRESS, "tools": ("call",)})
    async with run_host(tmp_path, plugin, bounds=SLOW) as host:
        guest = guest_of(host)
        call = await begin_call(host)
        work = asyncio.ensure_future(guest.dispatch("in", event()))
        while guest.instance.in_flight is None:
            await asyncio.sleep(0)
        stopping = asyncio.ensure_future(guest.stop())
        async with asyncio.timeout(PATIENT):
            with pytest.raises(Closed, match="it was stopped"):
                await work
        assert guest.worker is not None
        assert guest.worker.busy  # the tool is still at it
        os.kill(guest.pid, signal.SIGKILL)
        await stopping
        assert (await call).code == "TOOL_UNAVAILABLE"
        counters = guest.get_status().dispatch_counters
        assert (counters.failed, counters.dispatched, guest.get_status().queue_depth) == (1, 0, 0)


# -- another package --------------------------------------------------------------------------------------------------------------


def find_plugin(tmp_path: Path, plugin: Plugin) -> GuestManifest:
    """The plugin as the host would find it."""
    config = {"feature": {"plugins": {"enabled": True}}, "plugins": {"enabled": [plugin.enablement]}}
    environ = {"SERAI_HOME": str(tmp_path / "home"), "PATH": os.environ.get("PATH", os.defpath)}
    [manifest] = find_guests(cwd=tmp_path / "project", guests=[plugin.folder], config=config, environ=environ).guests
    return manifest


async def test_one_that_failed_and_is_mended_in_the_other_world_takes_events(tmp_path: Path) -> None:
    broken = Plugin(tmp_path / "broken", components.missing_export("call", world="tool"), world=TOOL, tools=("echo",))
    mended = Plugin(tmp_path / "mended", mirror(), **INGRESS)
    async with run_host(tmp_path, broken) as host:
        guest = host.guest(ID)
        assert guest.state is GuestState.GONE
        assert await guest.reload(find_plugin(tmp_path, mended))
        assert guest_of(host).get_status().lifecycle is Lifecycle.RUNNING
        assert (await guest_of(host).dispatch("in", event(payload=5))).output == 5


async def test_of_one_that_failed_nothing_is_told_of_another_record(tmp_path: Path) -> None:
    broken = Plugin(tmp_path / "broken", components.traps("start"), tools=("echo",))
    mended = Plugin(tmp_path / "mended", components.tool(), world=TOOL, tools=("echo",))
    async with run_host(tmp_path, broken) as host:
        guest = host.guest(ID)
        assert guest.state is GuestState.GONE
        assert await guest.reload(find_plugin(tmp_path, mended))
        status = guest_of(host).get_status()
        assert (status.lifecycle is Lifecycle.FAILED, status.last_error) == (False, None)
        assert not (await host.call_tool("echo")).is_error


async def test_one_that_ran_and_died_leaves_nothing_to_another_record(tmp_path: Path) -> None:
    first = Plugin(tmp_path / "first", mirror(), **INGRESS)
    second = Plugin(tmp_path / "second", mirror(), **INGRESS, description="another one")
    async with run_host(tmp_path, first, limits={"restart_wait": 60.0, "restart_wait_most": 60.0}) as host:
        await guest_of(host).dispatch("in", event())
        os.kill(guest_of(host).pid, signal.SIGKILL)
        await wait_for_state(host, ID, GuestState.BACKING_OFF)
        assert await host.guest(ID).reload(find_plugin(tmp_path, second))
        status = guest_of(host).get_status()
        assert (status.dispatch_counters.enqueued, status.restarts, status.last_error) == (0, 0, None)


# -- damaged code -----------------------------------------------------------------------------------------------------------------


def erase_code(path: Path) -> None:
    """Zeros where its instructions were, as after a crash of the machine: it is still a file of that form."""
    data = bytearray(path.read_bytes())
    table, size, count, names = (int.from_bytes(data[a:b], "little") for a, b in ((40, 48), (58, 60), (60, 62), (62, 64)))

    def number(section: int, at: int) -> int:
        return int.from_bytes(data[table + section * size + at :][:8], "little")

    strings = number(names, 24)
    for section in range(count):
        name = strings + (number(section, 0) & 0xFFFFFFFF)
        if data[name : name + 6] == b".text\0":
            begin, length = number(section, 24), number(section, 32)
            data[begin : begin + length] = bytes(length)
            break
    else:
        raise AssertionError(path)
    path.unlink()  # whoever has the old one open keeps it
    path.touch(0o600)
    path.write_bytes(data)


async def test_damaged_code_ends_one_start_and_the_next_makes_it_anew(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path, components.echo(), tools=("echo",))
    async with run_host(tmp_path, plugin):
        [code] = (tmp_path / "home").rglob("*.cwasm")
    whole = code.read_bytes()
    erase_code(code)
    async with run_host(tmp_path, plugin) as host:
        guest = host.guest(ID)
        assert guest.state is GuestState.GONE
        assert isinstance(guest.error, PeerGone)
        assert guest.error.exit is not None
        assert guest.error.exit.signal in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGTRAP)
        assert not code.exists()
        await host.reload(ID)
        assert not (await host.call_tool("echo")).is_error
    assert len(code.read_bytes()) == len(whole)


# -- lookups ----------------------------------------------------------------------------------------------------------------------


async def test_lookups_that_hang_get_no_more_than_four_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All tries of all connections of a plugin together; each of them gives up long before its lookup comes back."""
    let_go, real, before = threading.Event(), socket.getaddrinfo, set(threading.enumerate())

    def hanging(host: Any, *args: Any, **more: Any) -> Any:
        if host in (b"example.test", "example.test"):
            let_go.wait()
            raise OSError("nobody")
        return real(host, *args, **more)

    def threads() -> list[threading.Thread]:
        return [one for one in set(threading.enumerate()) - before if one.name.startswith("serai-name lookup")]

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    monkeypatch.setattr(ingress, "_SECONDS", 0.02)
    monkeypatch.setattr(ingress.HostWebSockets.__init__, "__defaults__", (lambda: Backoff(first=0.001, most=0.001),))
    target = {"scheme": "ws", "host": "example.test"}
    sources = {"in": {"sources": ["ws://example.test/1", "ws://example.test/2"]}}
    said = {**INGRESS, "ingresses": sources, "apis": ("websocket",), "websocket": [target]}
    busy = "name lookup is busy: 4 earlier calls have not come back"
    try:
        async with run_host(tmp_path, Plugin(tmp_path, build_tools().build(), **said)) as host:
            guest = guest_of(host)
            await wait_until(
                guest, lambda status: sum(busy in one for one in list_texts(status, DiagnosticKind.WEBSOCKET_ERROR)) >= 20
            )
            left = threads()
            assert len(left) == 4
            assert not (await host.call_tool("echo")).is_error
    finally:
        let_go.set()
    async with asyncio.timeout(PATIENT):
        while any(one.is_alive() for one in left):  # they end when they can
            await asyncio.sleep(0)

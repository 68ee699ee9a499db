"""The life of an instance: start, status, stop, and what follows a trap (spec yoi 13)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from websockets.asyncio.server import ServerConnection, serve

from serai.dialects.yoi.status import Lifecycle
from serai.errors import LimitHit, PeerGone
from serai.host.guest import GuestState
from tests.support.host.zot_guests import log_of, record_states, wait_for_state, wait_until
from tests.support.yoi import components
from tests.support.yoi.hosted_plugins import DOWN, ID, INGRESS, Plugin, build_tools, event, guest_of, mirror, run_host

STATUS = {"error": '{"error":{"message":"no licence"}}', "failed": '{"state":"failed"}', "none": "nothing"}


def build_answer(export: str, text: str) -> bytes:
    guest = build_tools()
    return guest.on(export, guest.answer(text)).build()


@pytest.mark.req("yoi.conform.40")
@pytest.mark.parametrize("how", ["trap", "error", "failed", "none", "spin"])
async def test_a_start_that_fails_registers_nothing(tmp_path: Path, how: str) -> None:
    component = {"trap": lambda: components.traps("start"), "spin": lambda: components.spin("start")}.get(
        how, lambda: build_answer("start", STATUS[how])
    )()
    async with run_host(tmp_path, Plugin(tmp_path, component, tools=("echo",)), bounds={"start": 1.0}) as host:
        guest = host.guest(ID)
        assert guest.state is GuestState.GONE
        assert not host.tools
        assert guest.error is not None
        assert guest.error.message.startswith("plugin instance startup failed closed: ")
        kept = guest._memory["yoi:plugin/instance@1.0.0"]
        assert kept.build_status().lifecycle is Lifecycle.FAILED
        assert kept.build_status().last_error
        if how in STATUS:
            assert "plugin component start " in guest.error.message


async def test_the_config_of_the_enablement_is_what_start_is_given(tmp_path: Path) -> None:
    guest = build_tools()
    guest.on("start", "(call $begin (i32.const 4096)) (call $put " + guest.text('{"state":"running","data":') + ") "
             "(call $put (local.get $a) (local.get $n)) (call $byte (i32.const 125)) (call $done)")  # fmt: skip
    component = guest.build()
    given = Plugin(tmp_path, component, id="given", tools=("echo",))
    given.more["config"] = {"level": "concise", "deep": [1, True]}
    plain = Plugin(tmp_path, component, id="plain", tools=("count",))
    async with run_host(tmp_path, given, plain) as host:
        assert guest_of(host, "given").get_status().component_status["data"] == {"level": "concise", "deep": [1, True]}
        assert guest_of(host, "plain").get_status().component_status["data"] is None


@pytest.mark.req("yoi.conform.41")
@pytest.mark.parametrize("how", ["trap", "error", "failed", "none"])
async def test_a_status_that_fails_is_the_end_of_the_instance(tmp_path: Path, how: str) -> None:
    component = components.traps("status") if how == "trap" else build_answer("status", STATUS[how])
    async with run_host(tmp_path, Plugin(tmp_path, component, tools=("echo",)), limits=DOWN) as host:
        guest = guest_of(host)
        status = await guest.refresh_status()
        assert status.lifecycle is Lifecycle.FAILED
        assert status.last_error
        assert host.guest(ID).state is GuestState.BACKING_OFF


async def test_a_status_is_asked_for_and_kept(tmp_path: Path) -> None:
    async with run_host(tmp_path, Plugin(tmp_path, build_answer("status", '{"state":"busy","data":[1]}'), tools=("echo",))) as host:
        guest = guest_of(host)
        assert guest.get_status().component_status == {"state": "running"}
        assert (await guest.refresh_status()).component_status == {"state": "busy", "data": [1]}
        assert guest.report()["component_status"]["state"] == "busy"


@pytest.mark.req("yoi.conform.42")
async def test_a_stopped_instance_is_not_stopped_again(tmp_path: Path) -> None:
    async with run_host(tmp_path, Plugin(tmp_path, components.echo(), tools=("echo",))) as host:
        guest = guest_of(host)
        await guest.stop()
        assert guest.get_status().lifecycle is Lifecycle.STOPPED
        told = guest.get_status().diagnostics
        await guest.stop()
        assert guest.get_status().diagnostics == told


@pytest.mark.req("yoi.rule.073")
async def test_stop_goes_through_stopping_and_tells_the_guest(tmp_path: Path) -> None:
    async with run_host(tmp_path, Plugin(tmp_path, build_answer("stop", '{"state":"stopped","data":"bye"}'), **INGRESS)) as host:
        guest = guest_of(host)
        await guest.stop()
        status = guest.get_status()
        assert [one.message for one in status.diagnostics[-2:]] == ["plugin instance is Stopping", "plugin instance is Stopped"]
        assert (status.component_status, status.queue_depth) == ({"state": "stopped", "data": "bye"}, 0)


async def test_in_its_stop_a_guest_may_put_things_in_order(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    component = components.caller("fs", "write", '{"path":"last.txt","content":"bye"}', where="stop")
    plugin = Plugin(tmp_path, component, tools=("echo",), apis=("fs",))
    plugin.grants["fs"] = [{"root": str(place), "operations": ["write"]}]
    async with run_host(tmp_path, plugin) as host:
        guest = guest_of(host)
        await guest.stop()
        assert guest.get_status().lifecycle is Lifecycle.STOPPED
        assert (place / "last.txt").read_text() == "bye"


async def test_what_waits_when_it_is_stopped_never_runs(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    component = components.caller("fs", "write", '{"path":"late.txt","content":"x"}')
    plugin = Plugin(tmp_path, component, tools=("call", "count"), apis=("fs",))
    plugin.grants["fs"] = [{"root": str(place), "operations": ["write"]}]
    async with run_host(tmp_path, plugin) as host:
        guest = guest_of(host)
        calls = [asyncio.ensure_future(host.call_tool(name)) for name in ("count", "call", "call")]
        await asyncio.sleep(0)
        stopping = asyncio.ensure_future(guest.stop())
        done = await asyncio.gather(*calls)
        await stopping
        assert {one.code for one in done[1:]} == {"TOOL_UNAVAILABLE"}
        assert guest.get_status().lifecycle is Lifecycle.STOPPED
        assert not (place / "late.txt").exists()


@pytest.mark.req("yoi.rule.073")
@pytest.mark.parametrize("how", ["trap", "error"])
async def test_a_guest_that_fails_in_stop_ends_failed(tmp_path: Path, how: str) -> None:
    component = components.traps("stop") if how == "trap" else build_answer("stop", STATUS[how])
    async with run_host(tmp_path, Plugin(tmp_path, component, tools=("echo",))) as host:
        guest = guest_of(host)
        await guest.stop()
        status = guest.get_status()
        assert status.lifecycle is Lifecycle.FAILED
        assert status.last_error
        assert "stop: " in log_of(host, ID)


@pytest.mark.req("yoi.conform.43")
async def test_after_a_trap_a_fresh_instance_serves_with_the_same_config(tmp_path: Path) -> None:
    guest = build_tools()
    guest.tool("call", "unreachable")
    guest.on("start", "(call $begin (i32.const 4096)) (call $put " + guest.text('{"state":"running","data":') + ") "
             "(call $put (local.get $a) (local.get $n)) (call $byte (i32.const 125)) (call $done)")  # fmt: skip
    plugin = Plugin(tmp_path, guest.build(), tools=("call", "count"))
    plugin.more["config"] = {"level": 3}
    async with run_host(tmp_path, plugin) as host:
        first = guest_of(host)
        assert (await host.call_tool("count")).text == "count\n1"
        waiting = asyncio.ensure_future(host.call_tool("count"))
        await asyncio.sleep(0)
        result = await host.call_tool("call")
        assert (result.code, "WASM execution error" in result.text) == ("FAILED", True)
        assert (await waiting).text == "count\n2"
        await wait_for_state(host, ID, GuestState.READY)
        second = guest_of(host)
        assert second is not first
        assert second.pid != first.pid
        assert (await host.call_tool("count")).text == "count\n1"
        status = second.get_status()
        assert (status.component_status["data"], status.restarts) == ({"level": 3}, 1)


@pytest.mark.req("yoi.rule.075")
async def test_the_one_supervisor_starts_it_again_and_gives_up(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path, components.traps(), tools=("call", "echo"))
    async with run_host(tmp_path, plugin, limits={"restarts": 2}) as host:
        seen = record_states(host, ID)
        for _ in range(2):
            await host.call_tool("call")
            await wait_for_state(host, ID, GuestState.READY)
        assert guest_of(host).get_status().restarts == 2
        await host.call_tool("call")
        guest = host.guest(ID)
        assert host.guest(ID).state is GuestState.GONE
        assert isinstance(guest.error, PeerGone)
        assert guest.error.limit == LimitHit("restarts", 2)
        assert seen.count(GuestState.BACKING_OFF) == 2
        assert (await host.call_tool("echo")).code == "TOOL_UNAVAILABLE"
        await host.reload(ID)  # by hand
        assert host.guest(ID).state is GuestState.READY
        assert not (await host.call_tool("echo")).is_error


@pytest.mark.req("yoi.rule.075")
async def test_the_limits_of_the_dialect_are_five_in_ten_minutes(tmp_path: Path) -> None:
    from serai.host.adapters.yoi import LIMITS

    assert (LIMITS["restarts"], LIMITS["restart_healthy"], LIMITS["restart_wait"], LIMITS["restart_wait_most"]) == (
        5,
        600.0,
        0.1,
        10.0,
    )


@pytest.mark.req("yoi.edge.26")
async def test_who_waits_in_recv_holds_up_neither_status_nor_stop(tmp_path: Path) -> None:
    came, gone = asyncio.Event(), asyncio.Event()

    async def mute(connection: ServerConnection) -> None:
        came.set()
        await connection.wait_closed()
        gone.set()

    async with serve(mute, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        url = f"ws://127.0.0.1:{port}/"
        guest = build_websocket_tools(url)
        target = {"scheme": "ws", "host": "127.0.0.1", "port": port}
        plugin = Plugin(tmp_path, guest, tools=("call", "echo"), apis=("websocket",), websocket=[target])
        async with run_host(tmp_path, plugin) as host:
            instance = guest_of(host)
            waiting = asyncio.ensure_future(host.call_tool("call"))
            await came.wait()
            assert instance.worker is not None
            assert instance.worker.busy
            async with asyncio.timeout(5):
                assert (await instance.refresh_status()).lifecycle is Lifecycle.RUNNING
                await instance.stop()
            assert (await waiting).code == "TOOL_UNAVAILABLE"
            assert instance.get_status().lifecycle is Lifecycle.STOPPED
            await gone.wait()


def build_websocket_tools(url: str) -> bytes:
    """Its tool `call` opens that websocket and waits for half a minute."""
    guest = components.Guest(imports=("websocket",))
    guest.tool("echo", guest.output("echo", "(local.get $b) (local.get $m)"))
    opened = guest.host("websocket", "open", msgspec.json.encode({"url": url}).decode())
    return guest.tool("call", f"{opened} drop drop {guest.output('recv', guest.host('websocket', 'recv', 1, 30_000))}").build()


@pytest.mark.req("yoi.rule.019")
async def test_the_status_for_the_operator(tmp_path: Path) -> None:
    async with run_host(tmp_path, Plugin(tmp_path, mirror(), **INGRESS)) as host:
        guest = guest_of(host)
        await guest.dispatch("in", event())
        report = guest.report()
        named = ("plugin_ref", "lifecycle", "queue_depth", "queue_capacity", "websocket_connections")
        assert {key: report[key] for key in named} == {
            "plugin_ref": f"user:{ID}", "lifecycle": "Running", "queue_depth": 0, "queue_capacity": 32, "websocket_connections": [],
        }  # fmt: skip
        assert report["dispatch_counters"] == {"enqueued": 1, "dispatched": 1, "rejected": 0, "failed": 0, "timed_out": 0}
        assert {one["kind"] for one in report["diagnostics"]} == {"Lifecycle"}


async def test_a_reload_starts_a_new_instance_and_lets_the_old_one_finish(tmp_path: Path) -> None:
    async with run_host(tmp_path, Plugin(tmp_path, components.echo())) as host:
        old = guest_of(host)
        await host.call_tool("count")
        await host.reload(ID)
        assert guest_of(host) is not old
        assert (await host.call_tool("count")).text == "count\n1"
        await wait_until(host, lambda: old._stopping is not None)
        await old.stop()
        assert old.get_status().lifecycle is Lifecycle.STOPPED
        assert guest_of(host).get_status().lifecycle is Lifecycle.RUNNING


async def test_a_plugin_of_which_nothing_is_enabled_runs_nothing(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path, components.echo())
    plugin.more["surfaces"] = ["wasm"]
    async with run_host(tmp_path, plugin) as host:
        assert (host.guest(ID).state, list(host.tools), guest_of(host).pid) == (GuestState.READY, [], 0)

"""Websockets that the host keeps open for a plugin: opened, read, lost and opened again (spec yoi 16)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from serai.dialects.yoi.status import CommandStatus, ConnectionState, DiagnosticKind, Lifecycle
from serai.host.adapters.yoi import ingress
from serai.host.adapters.yoi.ingress import Backoff, find_ingress_sources
from tests.support.yoi.hosted_plugins import guest_of, mirror, reflect, run_host, wait_until
from tests.support.yoi.websockets import WebsocketServer, build_listening, list_texts, open_server


@pytest.mark.req("yoi.rule.084")
async def test_a_frame_becomes_an_event_with_the_manifests_source(tmp_path: Path) -> None:
    async with open_server() as server:
        source = f"websocket:ws://127.0.0.1:{server.port}"  # without the slash of the normalised form
        async with run_host(tmp_path, build_listening(tmp_path, server, reflect(), source)) as host:
            connection = await server.next()
            await connection.send("hällo")
            status = await wait_until(guest_of(host), lambda status: status.dispatch_counters.dispatched == 1)
            said = status.component_status
            assert (said["kind"], said["source"], said["ingress_name"], said["attempt"]) == ("websocket_text", source, "in", 1)
            assert said["payload"] == {"url": server.url, "text": "hällo"}
            assert said["created_at"].endswith("Z")
            assert said["correlation_id"][14] == "7"
            (one,) = status.websocket_connections
            assert (one.url, one.state, one.received_text_frames) == (server.url, ConnectionState.CONNECTED, 1)
            assert one.last_frame_at is not None


@pytest.mark.req("yoi.rule.084")
async def test_what_is_refused_counts_as_a_drop(tmp_path: Path) -> None:
    async with open_server() as server:
        kinds = {"in": {"sources": [f"websocket:{server.url}"], "event_kinds": ["websocket_close"]}}
        async with run_host(tmp_path, build_listening(tmp_path, server, reflect(), ingresses=kinds)) as host:
            connection = await server.next()
            await connection.send("one")
            await connection.send("two")
            status = await wait_until(guest_of(host), lambda status: status.websocket_connections[0].queue_drops == 2)
            assert (status.dispatch_counters.rejected, status.dispatch_counters.enqueued) == (2, 0)
            assert status.websocket_connections[0].received_text_frames == 2


@pytest.mark.req("yoi.conform.51")
async def test_a_send_goes_out_on_the_connection_of_its_url(tmp_path: Path) -> None:
    async with open_server() as server:
        payload = msgspec.json.encode({"url": server.url.rstrip("/"), "text": "pong"}).decode()
        async with run_host(tmp_path, build_listening(tmp_path, server, reflect("websocket_send", payload))) as host:
            connection = await server.next()
            await connection.send("ping")
            assert await connection.recv() == "pong"
            status = await wait_until(guest_of(host), lambda status: len(status.output_command_results) == 1)
            (result,) = status.output_command_results
            assert (result.status, result.message) == (CommandStatus.RECORDED, f"websocket_send sent 4 bytes to {server.url}")
            assert status.websocket_connections[0].sent_text_frames == 1


@pytest.mark.req("yoi.rule.083")
async def test_they_open_only_with_service_and_ingress_enabled(tmp_path: Path) -> None:
    async with open_server() as server:
        for surfaces in (["ingress", "tool"], ["service", "tool"]):
            plugin = build_listening(tmp_path / "-".join(surfaces), server, reflect())
            plugin.more["surfaces"] = surfaces
            async with run_host(tmp_path / "-".join(surfaces), plugin) as host:
                assert guest_of(host).get_status().websocket_connections == ()
        assert server.came.empty()


@pytest.mark.req("yoi.rule.083")
async def test_at_most_four_are_opened_and_other_sources_are_ignored(tmp_path: Path) -> None:
    async with open_server() as server:
        sources = [
            f"websocket:{server.url}1",
            f"{server.url}2",
            "timer:5s",
            f"websocket:{server.url}3",
            f"{server.url}4",
            f"{server.url}5",
        ]
        bad = "websocket:not a url"
        async with run_host(tmp_path, build_listening(tmp_path, server, reflect(), *sources, bad)) as host:
            guest = guest_of(host)
            for _ in range(4):
                await server.next()
            status = await wait_until(
                guest, lambda status: [one.state for one in status.websocket_connections] == [ConnectionState.CONNECTED] * 4
            )
            assert [one.url for one in status.websocket_connections] == [f"{server.url}{number}" for number in (1, 2, 3, 4)]
            told = list_texts(status, DiagnosticKind.WEBSOCKET_ERROR)
            assert any(f"{server.url}5 is not opened for in" in one for one in told)
            assert any(one.startswith("invalid WebSocket ingress source for in: ") for one in told)
            assert server.came.empty()
        assert ingress._SECONDS == 5.0


@pytest.mark.req("yoi.rule.083")
async def test_one_that_is_not_granted_is_not_dialled(tmp_path: Path) -> None:
    async with open_server() as server:
        plugin = build_listening(tmp_path, server, reflect())
        plugin.grants["websocket"] = [{"scheme": "ws", "host": "example.com"}]
        plain = build_listening(tmp_path, server, reflect(), id="plain", tools=("other",))
        plain.grants["permissions"] = [one for one in plain.grants["permissions"] if one.get("kind") != "host_api"]
        async with run_host(tmp_path, plugin, plain) as host:
            for id, why in ((plugin.id, "is not covered by enabled WebSocket grants"), ("plain", "granted host_api.websocket")):
                status = await wait_until(
                    guest_of(host, id), lambda status: status.websocket_connections[0].state is ConnectionState.FAILED
                )
                error = status.websocket_connections[0].last_error or ""
                assert error.startswith("host-owned websocket not granted: ")
                assert why in error
        assert server.came.empty()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Reconnects come at once; how long the connection before had lived is noted."""
    lived: list[float] = []

    class Quick(Backoff):
        def compute_wait(self, lasted: float) -> float:
            lived.append(lasted)
            return super().compute_wait(lasted) / 100

    monkeypatch.setattr(ingress.HostWebSockets.__init__, "__defaults__", (Quick,))
    return lived


@pytest.mark.req("yoi.rule.085")
async def test_a_lost_connection_is_opened_again(tmp_path: Path, quick: list[float]) -> None:
    async with open_server() as server, run_host(tmp_path, build_listening(tmp_path, server, reflect())) as host:
        guest = guest_of(host)
        first = await server.next()
        await first.close()
        status = await wait_until(guest, lambda status: status.dispatch_counters.dispatched == 1)
        assert status.component_status["kind"] == "websocket_close"
        assert status.component_status["payload"]["reason"] == "host-owned WebSocket closed by peer"
        second = await server.next()
        await second.send("again")
        status = await wait_until(guest, lambda status: status.dispatch_counters.dispatched == 2)
        assert status.component_status["payload"]["text"] == "again"
        assert len(quick) == 1
        assert list_texts(status, DiagnosticKind.WEBSOCKET_CLOSED)


@pytest.mark.req("yoi.rule.084", "yoi.rule.085")
async def test_a_close_or_an_error_that_nobody_asked_for_is_refused_silently(tmp_path: Path, quick: list[float]) -> None:
    async with open_server() as server:
        ingresses = {"in": {"sources": [f"websocket:{server.url}"], "event_kinds": ["websocket_text"]}}
        async with run_host(tmp_path, build_listening(tmp_path, server, reflect(), ingresses=ingresses)) as host:
            guest = guest_of(host)
            await (await server.next()).close()
            await (await server.next()).send(b"binary: an error")
            third = await server.next()  # both are through
            await third.send("well")
            status = await wait_until(guest, lambda status: status.dispatch_counters.dispatched == 1)
            assert status.component_status["payload"]["text"] == "well"
            counters = status.dispatch_counters
            assert (counters.enqueued, counters.rejected, counters.failed) == (1, 0, 0)
            assert (status.last_error, status.websocket_connections[0].queue_drops) == (None, 0)
            assert DiagnosticKind.INVALID_EVENT not in {one.kind for one in status.diagnostics}


@pytest.mark.req("yoi.rule.084", "yoi.conform.45")
async def test_those_that_are_asked_for_come_and_a_text_that_is_not_counts(tmp_path: Path, quick: list[float]) -> None:
    async with open_server() as server:
        ingresses = {"in": {"sources": [f"websocket:{server.url}"], "event_kinds": ["websocket_close"]}}
        async with run_host(tmp_path, build_listening(tmp_path, server, reflect(), ingresses=ingresses)) as host:
            guest = guest_of(host)
            connection = await server.next()
            await connection.send("not asked for")
            status = await wait_until(guest, lambda status: status.websocket_connections[0].queue_drops == 1)
            assert status.dispatch_counters.rejected == 1
            await connection.close()
            status = await wait_until(guest, lambda status: status.dispatch_counters.dispatched == 1)
            assert status.component_status["kind"] == "websocket_close"


@pytest.mark.req("yoi.rule.085")
async def test_an_outage_is_told_of_once(tmp_path: Path, quick: list[float]) -> None:
    async with open_server() as server:
        gone = server.url
        async with run_host(tmp_path, build_listening(tmp_path, server, reflect())) as host:
            guest = guest_of(host)
            first = await server.next()
            await first.send(b"binary")
            status = await wait_until(guest, lambda status: status.dispatch_counters.dispatched == 1)
            assert status.component_status["kind"] == "websocket_error"
            assert "binary WebSocket messages are not supported" in status.component_status["payload"]["error"]
            second = await server.next()  # the outage is over
            await second.send("well")
            await wait_until(guest, lambda status: status.dispatch_counters.dispatched == 2)
            second.transport.abort()
            status = await wait_until(guest, lambda status: status.dispatch_counters.dispatched == 3)
            assert status.component_status["kind"] in ("websocket_error", "websocket_close")
            await server.next()
        assert gone


@pytest.mark.req("yoi.rule.085")
async def test_a_server_that_never_answers_gives_one_error(tmp_path: Path, quick: list[float]) -> None:
    closed = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = closed.sockets[0].getsockname()[1]
    closed.close()
    await closed.wait_closed()
    async with run_host(tmp_path, build_listening(tmp_path, WebsocketServer(port), reflect())) as host:
        guest = guest_of(host)
        status = await wait_until(guest, lambda status: len(list_texts(status, DiagnosticKind.WEBSOCKET_ERROR)) >= 3)
        assert (status.dispatch_counters.enqueued, status.dispatch_counters.rejected) == (1, 0)
        assert len(quick) >= 2
        assert set(quick) == {0.0}


@pytest.mark.req("yoi.rule.085")
def test_the_waits_double_with_jitter_and_begin_anew_after_a_stable_minute() -> None:
    most, least = Backoff(chance=lambda: 1.0), Backoff(chance=lambda: 0.0)
    assert [most.compute_wait(0.0) for _ in range(9)] == [0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    assert [least.compute_wait(0.0) for _ in range(3)] == [0.25, 0.5, 1]
    assert most.compute_wait(59.9) == 60
    assert (most.compute_wait(60.0), most.compute_wait(0.0)) == (0.5, 1)
    assert len({Backoff().compute_wait(0.0) for _ in range(20)}) > 1


@pytest.mark.req("yoi.rule.073")
async def test_stop_closes_them(tmp_path: Path) -> None:
    async with open_server() as server, run_host(tmp_path, build_listening(tmp_path, server, reflect())) as host:
        guest = guest_of(host)
        connection = await server.next()
        await guest.stop()
        await connection.wait_closed()
        status = guest.get_status()
        assert (status.lifecycle, status.websocket_connections[0].state) == (Lifecycle.STOPPED, ConnectionState.CLOSED)


async def test_a_flood_is_held_back_and_hurts_nobody(tmp_path: Path) -> None:
    async with open_server() as server, run_host(tmp_path, build_listening(tmp_path, server, reflect())) as host:
        guest = guest_of(host)
        connection = await server.next()
        for number in range(500):
            await connection.send(f"{number}")
        status = await wait_until(
            guest,
            lambda status: status.dispatch_counters.dispatched + status.websocket_connections[0].queue_drops == 500,
        )
        assert status.lifecycle is Lifecycle.RUNNING
        assert len(status.diagnostics) <= 256
        assert not (await host.call_tool("echo")).is_error


async def test_what_a_source_may_be(tmp_path: Path) -> None:
    async with open_server() as server, run_host(tmp_path, build_listening(tmp_path, server, mirror(), f"{server.url}")) as host:
        record = guest_of(host).record
        assert [one.source for one in find_ingress_sources(record, lambda _: None)] == [server.url]

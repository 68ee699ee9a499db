"""`request` on a real wire (spec yoi 4.4): servers on loopback, names of our own world. Connections as the machine sees them."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

import pytest

from serai.dialects.yoi.host_api import HostCallDenied, parse_api_url
from serai.host.adapters.yoi.effects.host_calls import HostCalls
from serai.host.adapters.yoi.effects.network import PluginNetwork
from serai.host.adapters.yoi.effects.websocket import dial
from serai.plugins.bounds import DEFAULT, UPSTREAM, Bounds
from serai.plugins.grants import ResolvedPlugin
from tests.support.yoi.host_calls import (
    PATIENT,
    RequestLog,
    Resolver,
    TlsContexts,
    Turns,
    do,
    encode,
    grant,
    open_calls,
    record,
    response,
    serve,
    target,
)
from tests.support.yoi.websockets import send_frames

LOOPBACK = record(declared=[target("127.0.0.1", scheme="http", methods=("GET", "POST", "DELETE"))])


def allow_api(**more: Any) -> ResolvedPlugin:
    """A plugin that may go to `api.example.com`, wherever that is."""
    return record(declared=[target(scheme="*", private=True, **more)])


async def get(effects: HostCalls, url: str, **more: Any) -> Any:
    return await do(effects, "request", "request", encode(url, **more))


@pytest.mark.req("yoi.rule.021", "yoi.rule.026", "yoi.edge.01")
@pytest.mark.parametrize("status", ["200 OK", "404 Not Found", "500 Oops"])
async def test_any_status_is_an_answer_and_the_normalised_url_is_sent(status: str) -> None:
    seen = RequestLog()
    async with serve(seen.answering(response(b"hello", "X-A: b", status=status))) as port, open_calls(LOOPBACK) as effects:
        answer = await get(effects, f"HTTP://0x7f.1:{port}\\v1\\..\\a\tb c?q=ü#frag", method="POST", body="in")
    assert answer == {
        "status": int(status[:3]), "headers": [{"name": "content-length", "value": "5"}, {"name": "x-a", "value": "b"}],
        "body": "hello", "truncated": False,
    }  # fmt: skip
    [head] = seen.heads
    assert head.splitlines()[0] == "POST /ab%20c?q=%C3%BC HTTP/1.1"
    assert f"host: 127.0.0.1:{port}\r\n" in head
    assert "user-agent: yoi-plugin-request-host-api/0.1\r\n" in head
    assert seen.bodies == [b"in"]


@pytest.mark.req("yoi.edge.02", "yoi.conform.25")
async def test_no_redirect_is_followed_and_no_proxy_used(monkeypatch: pytest.MonkeyPatch) -> None:
    other, seen = RequestLog(), RequestLog()
    async with serve(other.answering(response())) as elsewhere:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{elsewhere}")
        away = f"http://127.0.0.1:{elsewhere}/"
        moved = response(b"", f"Location: {away}", status="302 Found")
        async with serve(seen.answering(moved)) as port, open_calls(LOOPBACK) as effects:
            answer = await get(effects, f"http://127.0.0.1:{port}/")
    assert answer["status"] == 302
    assert {"name": "location", "value": away} in answer["headers"]
    assert len(seen.heads) == 1
    assert not other.heads


@pytest.mark.req("yoi.edge.03")
async def test_a_name_is_looked_up_once_and_its_address_connected_to(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    server, client = contexts
    names: list[str | None] = []
    server.sni_callback = lambda _socket, name, _context: names.append(name)
    seen, world = RequestLog(), Resolver(["127.0.0.1"], ["127.0.0.2"])  # the second answer is what a rebinding name would give
    async with (
        serve(seen.answering(response(b"tls")), ssl=server) as port,
        open_calls(allow_api(), world, tls=client) as effects,
    ):
        answer = await get(effects, f"https://API.example.com.:{port}/x")
    assert answer["body"] == "tls"
    assert world.asked == ["api.example.com"]
    assert names == ["api.example.com"]
    assert f"host: api.example.com.:{port}\r\n" in seen.heads[0]


@pytest.mark.req("yoi.edge.03")
async def test_a_certificate_for_somebody_else_is_refused(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    server, client = contexts
    plugin = record(declared=[target("other.example", private=True)])
    seen, world = RequestLog(), Resolver(["127.0.0.1"])
    async with serve(seen.answering(response()), ssl=server) as port, open_calls(plugin, world, tls=client) as effects:
        with pytest.raises(HostCallDenied, match=f"^request to https://other.example:{port}/ failed: "):
            await get(effects, f"https://other.example:{port}/")
    assert not seen.heads


async def test_the_addresses_of_a_name_are_tried_in_turn() -> None:
    seen, world = RequestLog(), Resolver(["127.0.0.2", "127.0.0.1"])  # nobody listens at the first
    async with serve(seen.answering(response(b"x"))) as port, open_calls(allow_api(), world) as effects:
        assert (await get(effects, f"http://api.example.com:{port}/"))["body"] == "x"


@pytest.mark.req("yoi.conform.26")
@pytest.mark.parametrize(("size", "cut"), [(65_536, False), (65_537, True), (1_000_000, True)])
async def test_a_long_body_is_cut(size: int, cut: bool) -> None:
    body = b"x" * size
    async with serve(RequestLog().answering(response(body))) as port, open_calls(LOOPBACK) as effects:
        answer = await get(effects, f"http://127.0.0.1:{port}/")
    assert len(answer["body"]) == min(size, 65_536)
    assert answer["truncated"] is cut


@pytest.mark.req("yoi.edge.12")
async def test_a_body_cut_in_a_character_stays_within_its_bound() -> None:
    async with (
        serve(RequestLog().answering(response(b"a" + "…".encode() * 30_000))) as port,
        open_calls(LOOPBACK) as effects,
    ):
        answer = await get(effects, f"http://127.0.0.1:{port}/")
    assert len(answer["body"].encode()) <= 65_536
    assert answer["truncated"] is True


@pytest.mark.req("yoi.conform.27")
async def test_headers_are_filtered_then_counted_then_redacted() -> None:
    secret = ["Set-Cookie: a=b", "X-API-Key: k", "authorization: c"]
    plain = [
        "X-Told: token=abcdef; x",
        f"X-Long: {'v' * 1500}",
        "X-Text: caf\xe9",
        *(f"X-{number}: {number}" for number in range(20)),
    ]
    async with serve(RequestLog().answering(response(b"", *secret, *plain))) as port, open_calls(LOOPBACK) as effects:
        headers = (await get(effects, f"http://127.0.0.1:{port}/"))["headers"]
    found = {header["name"]: header["value"] for header in headers}
    assert len(headers) == 15  # the first 16 that are no credentials, less the one that is no text
    assert list(found) == ["content-length", "x-told", "x-long", *(f"x-{number}" for number in range(12))]
    assert found["x-told"] == "token=<redacted>; x"
    assert found["x-long"] == "v" * 1024 + "…"


@pytest.mark.req("yoi.conform.28", "yoi.rule.027")
async def test_loopback_is_for_whom_it_is_declared_and_granted() -> None:
    seen = RequestLog()
    wide, there = target("*", scheme="http"), target("127.0.0.1", scheme="http")
    private = target("*", scheme="http", private=True)
    async with serve(seen.answering(response())) as port:
        url = f"http://127.0.0.1:{port}/"
        for declared, granted, said in [
            ([target("api.example.com")], [there], "is not declared by the plugin manifest"),
            ([there], [target("api.example.com")], "is not covered by enabled request grants"),
            ([there], [wide], "a private, loopback or link-local address"),  # a star is not that very address
            ([private], [wide], "a private, loopback or link-local address"),  # a manifest only asks
        ]:
            async with open_calls(record(declared=declared, granted=granted)) as effects:
                with pytest.raises(HostCallDenied, match=said):
                    await get(effects, url)
        assert not seen.heads
        for declared, granted in [([there], [there]), ([wide], [private])]:
            async with open_calls(record(declared=declared, granted=granted)) as effects:
                assert (await get(effects, url))["status"] == 200
    assert len(seen.heads) == 2


@pytest.mark.req("yoi.rule.027")
async def test_a_granted_name_that_leads_to_a_private_address_is_refused() -> None:
    public = record(declared=[target(scheme="http")])
    local = record(declared=[target("localhost", scheme="http")])
    seen = RequestLog()
    async with serve(seen.answering(response())) as port:
        url = f"http://api.example.com:{port}/"
        for address in ("127.0.0.1", "::ffff:127.0.0.1", "169.254.169.254", "10.0.0.1"):
            async with open_calls(public, Resolver([address])) as effects:
                with pytest.raises(HostCallDenied) as caught:
                    await get(effects, url)
            assert "a private, loopback or link-local address" in str(caught.value)
        assert not seen.heads
        async with open_calls(local, Resolver(["127.0.0.1"])) as effects:
            assert (await get(effects, f"http://localhost:{port}/"))["status"] == 200
        async with open_calls(allow_api(), Resolver(["127.0.0.1"])) as effects:  # `private = true`
            assert (await get(effects, url))["status"] == 200
        async with open_calls(public, Resolver(["127.0.0.1"]), bounds=UPSTREAM) as effects:  # the origin has no such rule
            assert (await get(effects, url))["status"] == 200


@pytest.mark.req("yoi.rule.027")
async def test_the_method_counts_for_a_private_address() -> None:
    grants = [target(scheme="http", methods=("GET",), private=True), target(scheme="http", methods=("POST",))]
    seen = RequestLog()
    async with (
        serve(seen.answering(response())) as port,
        open_calls(record(declared=grants), Resolver(api=["127.0.0.1"])) as effects,
    ):
        assert (await get(effects, f"http://api.example.com:{port}/"))["status"] == 200
        with pytest.raises(HostCallDenied, match="private"):
            await get(effects, f"http://api.example.com:{port}/", method="POST")


@pytest.mark.req("yoi.rule.026", "yoi.edge.30")
@pytest.mark.parametrize(("bounds", "remaining"), [(Bounds(request=0.5), PATIENT), (Bounds(request=PATIENT), 0.5)])
async def test_a_mute_server_is_given_up_and_its_socket_closed(bounds: Bounds, remaining: float) -> None:
    assert DEFAULT.request == 5.0
    seen = RequestLog()
    async with serve(seen.answering(stay=True)) as port, open_calls(LOOPBACK, bounds=bounds) as effects:
        with pytest.raises(HostCallDenied, match=rf"^request to http://127.0.0.1:{port}/x timed out$"):
            await do(effects, "request", "request", encode(f"http://127.0.0.1:{port}/x?q"), remaining=remaining)
        await asyncio.wait_for(seen.gone.wait(), PATIENT)


def drip(head: bytes, drop: bytes, *, every: float = 0.0) -> Any:
    """A server without an end."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head)
        while True:
            writer.write(drop)
            await writer.drain()
            await asyncio.sleep(every)

    return handler


@pytest.mark.parametrize(
    ("head", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"x-bomb: " + b"b" * 1000 + b"\r\n"),
        (b"HTTP/1.1 200 OK\r\nx-bomb: ", b"b" * 1000),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"),
        (b"", b"x" * 1000),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", b"x"),
    ],
    ids=["headers", "header", "100", "103", "noise", "101"],
)
async def test_a_head_without_an_end_is_a_failure(head: bytes, drop: bytes) -> None:
    async with serve(drip(head, drop)) as port, open_calls(LOOPBACK, bounds=Bounds(request=PATIENT)) as effects:
        with pytest.raises(HostCallDenied, match=f"^request to http://127.0.0.1:{port}/ failed: "):
            await get(effects, f"http://127.0.0.1:{port}/")


async def test_a_body_without_an_end_is_cut() -> None:
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    async with serve(drip(chunked, b"3e8\r\n" + b"x" * 1000 + b"\r\n")) as port, open_calls(LOOPBACK) as effects:
        answer = await get(effects, f"http://127.0.0.1:{port}/")
    assert len(answer["body"]) == 65_536
    assert answer["truncated"] is True


async def test_others_have_their_turn_while_small_chunks_are_read() -> None:
    """All of it is here before the first chunk is read: nothing but our own manners lets anybody else run."""
    chunks = 60_000
    answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * chunks + b"0\r\n\r\n"

    class Arrived(PluginNetwork):
        async def connect(self, *args: Any, **more: Any) -> Any:
            reader, writer = await super().connect(*args, **more)
            reader.feed_data(answer)
            return reader, writer

    async with serve(RequestLog().answering(stay=True)) as port:
        network = Arrived()
        effects = HostCalls(LOOPBACK, bounds=Bounds(request=PATIENT), network=network, own=())
        async with Turns() as turns:
            assert (await get(effects, f"http://127.0.0.1:{port}/"))["body"] == "x" * chunks
            assert turns.count >= chunks // 1000
        await effects.close()
        network.close()


async def test_a_body_that_only_drips_runs_out_of_time() -> None:
    slow = drip(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n", b"x", every=0.01)
    async with serve(slow) as port, open_calls(LOOPBACK, bounds=Bounds(request=0.3)) as effects:
        with pytest.raises(HostCallDenied, match="timed out$"):
            await get(effects, f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;" + b"e" * 70_000,
    ],
    ids=["short", "chunk", "extension"],
)
async def test_a_broken_body_is_told_as_such(answer: bytes) -> None:
    async with serve(RequestLog().answering(answer)) as port, open_calls(LOOPBACK) as effects:
        with pytest.raises(HostCallDenied, match="^request response read failed: "):
            await get(effects, f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx", b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n", b"SSH-2.0-x\r\n\r\n",
    ],
)  # fmt: skip
async def test_what_is_no_http_is_a_failure(answer: bytes) -> None:
    async with serve(RequestLog().answering(answer)) as port, open_calls(LOOPBACK) as effects:
        with pytest.raises(HostCallDenied, match=f"^request to http://127.0.0.1:{port}/ failed: "):
            await get(effects, f"http://127.0.0.1:{port}/")


async def test_the_troubles_of_names_and_connections_have_their_texts() -> None:
    async def failing(host: str, port: int) -> list[str]:
        raise OSError(2, "Name or service not known")

    async with serve(RequestLog().answering()) as port:
        pass  # nobody listens there any more
    async with open_calls(LOOPBACK) as effects:
        with pytest.raises(HostCallDenied, match=f"^request to http://127.0.0.1:{port}/ failed: "):
            await get(effects, f"http://127.0.0.1:{port}/")
    async with open_calls(allow_api(), Resolver()) as effects:
        with pytest.raises(HostCallDenied, match=r"^DNS lookup for api\.example\.com returned no addresses$"):
            await get(effects, "http://api.example.com/")
    effects = HostCalls(allow_api(), network=PluginNetwork(resolve=failing), own=())
    with pytest.raises(HostCallDenied, match=r"^DNS lookup failed for api\.example\.com: Name or service not known$"):
        await get(effects, "http://api.example.com/")
    await effects.close()


async def test_the_machines_own_lookup_knows_localhost_and_no_endless_label() -> None:
    long = "x" * 64 + ".localhost"
    plugin = record(declared=[target("localhost", scheme="http"), target(long, scheme="http")])
    seen = RequestLog()
    async with serve(seen.answering(response(b"here"))) as port:
        effects = HostCalls(plugin, own=())
        assert (await get(effects, f"http://localhost:{port}/"))["body"] == "here"
        with pytest.raises(HostCallDenied, match="^DNS lookup failed for x+"):
            await get(effects, f"http://{long}:{port}/")
        await effects.close()


async def test_a_lookup_that_hangs_runs_out_of_time() -> None:
    never = asyncio.Event()

    async def hanging(host: str, port: int) -> list[str]:
        await never.wait()
        return []

    effects = HostCalls(allow_api(), Bounds(request=0.1), network=PluginNetwork(resolve=hanging), own=())
    with pytest.raises(HostCallDenied, match=r"^request to http://api.example.com/ timed out$"):
        await get(effects, "http://api.example.com/")
    await effects.close()


@pytest.mark.req("yoi.edge.26")
async def test_a_cancelled_request_leaves_no_socket() -> None:
    seen, arrived = RequestLog(), asyncio.Event()
    inner = seen.answering(stay=True)

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await inner(reader, writer)

    async with serve(handler) as port, open_calls(LOOPBACK) as effects:
        task = asyncio.ensure_future(get(effects, f"http://127.0.0.1:{port}/"))
        await asyncio.wait_for(arrived.wait(), PATIENT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(seen.gone.wait(), PATIENT)


@pytest.mark.parametrize(
    ("interface", "function", "args"),
    [
        ("request", "request", []), ("request", "request", [1]), ("request", "open", ["{}"]), ("secrets", "read", ["{}"]),
        ("websocket", "recv", ["1", 0]), ("websocket", "recv", [True, 0]), ("fs", "remove", ["{}"]), ("fs", "__init__", []),
    ],
)  # fmt: skip
async def test_a_worker_that_asks_for_something_else_is_refused(interface: str, function: str, args: list[Any]) -> None:
    async with open_calls(record(declared=[target()], fs=[grant("/nowhere")])) as effects:
        with pytest.raises(HostCallDenied, match="^there is no such host function"):
            await effects.call(interface, function, args, 1.0)


async def test_half_a_character_from_a_worker_is_a_refusal() -> None:
    plugin = record(declared=[target(scheme="*")], fs=[grant("/nowhere")])
    async with open_calls(plugin) as effects:
        for interface, function in (("request", "request"), ("websocket", "open"), ("fs", "read")):
            with pytest.raises(HostCallDenied, match="not valid Unicode"):
                await effects.call(interface, function, ["\ud800"], 1.0)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_server_that_is_mute_from_the_beginning_of_tls_is_left(cancelled: bool) -> None:
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        try:
            while await reader.read(1000):
                pass
        finally:
            gone.set()

    bounds, tls = Bounds(request=PATIENT if cancelled else 1.0), ssl.create_default_context()
    async with (
        serve(handler) as port,
        open_calls(allow_api(), Resolver(["127.0.0.1"]), bounds=bounds, tls=tls) as effects,
    ):
        task = asyncio.ensure_future(get(effects, f"https://api.example.com:{port}/"))
        await asyncio.wait_for(arrived.wait(), PATIENT)
        if cancelled:
            task.cancel()
        with pytest.raises(asyncio.CancelledError if cancelled else HostCallDenied):
            await task
        await asyncio.wait_for(gone.wait(), PATIENT)


async def stay_quiet(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


def read_keepalive(writer: asyncio.StreamWriter) -> tuple[bool, int]:
    """Whether the machine asks after a silent peer, and after how many seconds it gives it up."""
    connection = writer.get_extra_info("socket")
    idle, every, count = (
        connection.getsockopt(socket.IPPROTO_TCP, option)
        for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
    )
    return connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0, idle + every * count


@pytest.mark.parametrize("secure", [False, True])
async def test_a_peer_that_vanishes_is_noticed_in_two_minutes(contexts: TlsContexts, secure: bool) -> None:
    server, client = contexts
    network = PluginNetwork(resolve=Resolver(api=["127.0.0.1"]).resolve, tls=client)
    async with serve(stay_quiet, ssl=server if secure else None) as port:
        url = parse_api_url(f"{'https' if secure else 'http'}://api.example.com:{port}/", what="request")
        _, writer = await network.connect(url, private=True, within=PATIENT)
        try:
            assert read_keepalive(writer) == (True, 120)
        finally:
            writer.transport.abort()
    network.close()


async def test_so_is_the_peer_of_a_websocket() -> None:
    async with serve(send_frames()) as port:
        plugin = record(declared=[target("127.0.0.1", scheme="ws")])
        opened = await dial(plugin, f"ws://127.0.0.1:{port}", bounds=DEFAULT, timeout=PATIENT)
        try:
            assert read_keepalive(opened._writer)[0]
        finally:
            opened.abort()

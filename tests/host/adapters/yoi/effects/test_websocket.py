"""`websocket` (spec yoi 5): against the server of `websockets`, and against one that sends whatever frames it likes."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from serai.dialects.yoi import host_api
from serai.dialects.yoi.host_api import HostCallDenied
from serai.host.adapters.yoi.effects.host_calls import HostCalls, WebSocketHandles
from serai.host.adapters.yoi.effects.network import PluginNetwork
from serai.host.adapters.yoi.effects.websocket import PluginWebSocket, ReceiveTimeout, dial
from serai.plugins.bounds import DEFAULT, UPSTREAM
from serai.plugins.targets import ParsedUrl
from tests.support.yoi.host_calls import PATIENT, RequestLog, Resolver, Turns, do, open_calls, record, response, serve, target
from tests.support.yoi.websockets import accept_raw, open_websocket, send_frames, serve_websocket

pytestmark = pytest.mark.loops

LOOPBACK = record(declared=[target("127.0.0.1", scheme="ws")])
NAMED = record(declared=[target(scheme="*", private=True, path_prefixes=("/v1/",))])
URL = "wss://api.example.com/v1/"


def text(data: str | bytes, *, fin: bool = True, opcode: Opcode = Opcode.TEXT) -> Frame:
    return Frame(opcode, data.encode() if isinstance(data, str) else data, fin)


def ping(data: bytes = b"") -> Frame:
    return Frame(Opcode.PING, data)


async def recv(effects: HostCalls, handle: int, milliseconds: int = 30_000) -> Any:
    return await do(effects, "websocket", "recv", handle, milliseconds)


@pytest.mark.req("yoi.rule.031")
async def test_a_conversation_has_its_documents() -> None:
    heads: list[Any] = []

    async def handler(connection: ServerConnection) -> None:
        assert connection.request is not None
        heads.append(connection.request)
        await connection.send(await connection.recv())
        await connection.close()

    async with serve_websocket(handler) as port, open_calls(LOOPBACK) as effects:
        url = f"ws://127.0.0.1:{port}/a b?token=x#f"
        answer = await do(effects, "websocket", "open", json.dumps({"url": url, "protocols": [], "headers": []}))
        assert answer == {"handle": 1, "url": f"ws://127.0.0.1:{port}/a%20b"}
        assert await do(effects, "websocket", "send-text", 1, "häj") == {"sent": True, "bytes": 4}
        assert await recv(effects, 1) == {"type": "text", "text": "häj"}
        assert await recv(effects, 1) == {"type": "closed"}
        assert await recv(effects, 1) == {"type": "closed"}
        with pytest.raises(HostCallDenied, match="^WebSocket send failed: closed$"):
            await effects.call("websocket", "send-text", [1, "x"], PATIENT)
        assert await do(effects, "websocket", "close", 1) == {"closed": True}
        assert await do(effects, "websocket", "close", 1) == {"closed": False}
    assert heads[0].path == "/a%20b?token=x"
    assert heads[0].headers["User-Agent"] == "yoi-plugin-host/1"
    assert heads[0].headers["Host"] == f"127.0.0.1:{port}"


FAULTS: list[tuple[str, str]] = [
    ("x" * 8193, "WebSocket open descriptor exceeds 8192 bytes"),
    ("[]", "invalid WebSocket open request JSON: "),
    (json.dumps({"url": URL, "more": 1}), "invalid WebSocket open request JSON: "),
    (f'{{"url": "{URL}", "url": "{URL}"}}', "invalid WebSocket open request JSON: "),
    (json.dumps({"url": URL, "headers": 1}), "invalid WebSocket open request JSON: "),
    (
        json.dumps({"url": "", "protocols": ["a"], "headers": [{}]}),
        "WebSocket subprotocol negotiation is not supported by host_api.websocket v1",
    ),
    (json.dumps({"url": "", "headers": [{}]}), "WebSocket handshake headers from guest memory are not supported; "),
    (json.dumps({"url": "ws://"}), "invalid WebSocket URL: "),
    (json.dumps({"url": "https://u@h/"}), "HTTP URLs are not supported by host_api.websocket"),
    (json.dumps({"url": "ftp://u@h/"}), 'unsupported WebSocket URL scheme "ftp"; only ws and wss are allowed'),
    (json.dumps({"url": "wss://u:p@h/"}), "WebSocket URLs with embedded credentials are not allowed"),
    (json.dumps({"url": "wss://api.example.com/v1/..%2fx"}), "WebSocket URL path has an encoded `..`: "),
    (
        json.dumps({"url": "wss://api.example.com/v1/../v2?q"}),
        "host_api.websocket target wss://api.example.com/v2 is not declared by the plugin manifest",
    ),
]


@pytest.mark.req("yoi.rule.032", "yoi.conform.29", "yoi.edge.16")
@pytest.mark.parametrize(("descriptor", "said"), FAULTS)
async def test_open_refuses_before_it_dials(descriptor: str, said: str) -> None:
    world = Resolver(["127.0.0.1"])
    async with open_calls(NAMED, world) as effects:
        with pytest.raises(HostCallDenied) as caught:
            await effects.call("websocket", "open", [descriptor], PATIENT)
    assert str(caught.value).startswith(said)
    assert not world.asked


@pytest.mark.req("yoi.rule.032")
async def test_open_asks_for_the_authorisation_first_and_the_grant_before_the_capacity() -> None:
    with pytest.raises(HostCallDenied, match="^WebSocket URL must include a host$"):  # no URL that parses comes there
        host_api._check_websocket_url(ParsedUrl("ws", "", 80, "/", "ws:///"))
    async with open_calls(record(declared=[target(scheme="wss")], apis=[])) as effects:
        with pytest.raises(HostCallDenied, match="^requested host_api.websocket permission is missing$"):
            await effects.call("websocket", "open", ["x" * 9000], PATIENT)
    narrow = record(declared=[target(scheme="*")], granted=[target("127.0.0.1", scheme="ws")])
    both = record(declared=[target(scheme="*"), target("127.0.0.1", scheme="ws")], granted=narrow.grants.websocket)
    async with serve_websocket() as port, open_calls(both) as effects:
        for _ in range(4):
            await open_websocket(effects, port)
        with pytest.raises(HostCallDenied) as caught:
            await effects.call("websocket", "open", [json.dumps({"url": URL})], PATIENT)
    assert str(caught.value) == f"host_api.websocket target {URL} is not covered by enabled WebSocket grants"


@pytest.mark.req("yoi.conform.29", "yoi.edge.24")
async def test_four_handles_are_the_limit_also_for_those_who_dial_at_once() -> None:
    async with serve_websocket() as port, open_calls(LOOPBACK) as effects:
        made = await asyncio.gather(*(open_websocket(effects, port) for _ in range(9)), return_exceptions=True)
        assert sorted(one for one in made if isinstance(one, int)) == [1, 2, 3, 4]
        refused = [str(one) for one in made if isinstance(one, HostCallDenied)]
        assert refused == ["host_api.websocket open connection limit (4) exceeded before dialing"] * 5
        assert await do(effects, "websocket", "close", 2) == {"closed": True}
        assert await open_websocket(effects, port) == 5


@pytest.mark.req("yoi.conform.30", "yoi.edge.24")
async def test_a_failed_dial_gives_its_slot_back() -> None:
    seen = RequestLog()
    moved = seen.answering(response(status="302 Found"))
    async with serve(moved) as dead, serve_websocket() as port, open_calls(LOOPBACK) as effects:
        for _ in range(6):
            with pytest.raises(HostCallDenied, match=rf"^WebSocket open to ws://127.0.0.1:{dead}/ failed: .*302"):
                await open_websocket(effects, dead)
        for handle in (1, 2, 3, 4):
            assert await open_websocket(effects, port) == handle


@pytest.mark.req("yoi.edge.24", "yoi.edge.26")
async def test_a_cancelled_dial_gives_its_slot_back_and_leaves_no_socket() -> None:
    seen, arrived = RequestLog(), asyncio.Event()
    inner = seen.answering(stay=True)

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await inner(reader, writer)

    async with serve(handler) as mute, serve_websocket() as port, open_calls(LOOPBACK) as effects:
        task = asyncio.ensure_future(open_websocket(effects, mute))
        await asyncio.wait_for(arrived.wait(), PATIENT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(seen.gone.wait(), PATIENT)
        assert [await open_websocket(effects, port) for _ in range(4)] == [1, 2, 3, 4]


@pytest.mark.req("yoi.edge.30")
async def test_a_mute_server_is_given_up() -> None:
    seen = RequestLog()
    async with serve(seen.answering(stay=True)) as port, open_calls(LOOPBACK) as effects:
        with pytest.raises(HostCallDenied, match=rf"^WebSocket open to ws://127.0.0.1:{port}/ timed out$"):
            await effects.call("websocket", "open", [json.dumps({"url": f"ws://127.0.0.1:{port}/"})], 0.5)
        await asyncio.wait_for(seen.gone.wait(), PATIENT)


@pytest.mark.req("yoi.conform.29")
async def test_the_sizes_hold_at_their_edge() -> None:
    halves = [text("a" * 32_768, fin=False), text("b" * 32_768, opcode=Opcode.CONT)]
    async with serve_websocket(max_size=None) as port, open_calls(LOOPBACK) as effects:
        handle = await open_websocket(effects, port)
        with pytest.raises(HostCallDenied, match="^WebSocket text frame exceeds 32768 bytes$"):
            await effects.call("websocket", "send-text", [handle, "ä" * 16_385], PATIENT)
        assert await do(effects, "websocket", "send-text", handle, "ä" * 16_384) == {"sent": True, "bytes": 32_768}
        assert (await recv(effects, handle))["text"] == "ä" * 16_384
        padding = 8192 - len(json.dumps({"url": f"ws://127.0.0.1:{port}/"}))
        assert await open_websocket(effects, port, "/" + "p" * padding) == 2
    async with serve(send_frames(*halves)) as port, open_calls(LOOPBACK) as effects:
        assert (await recv(effects, await open_websocket(effects, port)))["text"] == "a" * 32_768 + "b" * 32_768
    for frames in (
        [text("a" * 32_769)],
        [*halves[:1], text("b" * 32_768, fin=False, opcode=Opcode.CONT), text("c", opcode=Opcode.CONT)],
    ):
        async with serve(send_frames(*frames)) as port, open_calls(LOOPBACK) as effects:
            with pytest.raises(HostCallDenied, match="^WebSocket receive failed: "):
                await recv(effects, await open_websocket(effects, port))


@pytest.mark.req("yoi.conform.31")
def test_the_wait_of_a_receive_is_clamped() -> None:
    assert [host_api.get_recv_timeout(given) for given in (0, 1, 250, 30_000, 30_001, 2**32 - 1)] == [
        5.0,
        0.001,
        0.25,
        30.0,
        30.0,
        30.0,
    ]


@pytest.mark.req("yoi.conform.31", "yoi.rule.034", "yoi.edge.30")
async def test_a_receive_waits_no_longer_than_its_call_may() -> None:
    async with serve_websocket() as port, open_calls(LOOPBACK) as effects:
        handle = await open_websocket(effects, port)
        for milliseconds, remaining in ((0, 0.1), (2**32 - 1, 0.1), (100, PATIENT)):
            with pytest.raises(ReceiveTimeout, match="^WebSocket receive timed out$"):
                await effects.call("websocket", "recv", [handle, milliseconds], remaining)
        await effects.call("websocket", "send-text", [handle, "still there"], PATIENT)
        assert (await recv(effects, handle))["text"] == "still there"


@pytest.mark.req("yoi.rule.034")
async def test_control_frames_do_not_make_a_receive_longer() -> None:
    async def pinging(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(ping().serialize(mask=False))
            await writer.drain()
            await asyncio.sleep(0.1)

    async with serve(accept_raw(pinging)) as port, open_calls(LOOPBACK) as effects:
        handle = await open_websocket(effects, port)
        with pytest.raises(
            HostCallDenied, match="^WebSocket receive timed out$"
        ):  # by the third; sixteen would be too many only later
            await effects.call("websocket", "recv", [handle, 300], PATIENT)


@pytest.mark.req("yoi.rule.034")
async def test_parts_of_a_message_wait_for_the_next_receive() -> None:
    go = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text("one ", fin=False).serialize(mask=False))
        await go.wait()
        writer.write(text("two", opcode=Opcode.CONT).serialize(mask=False))
        await reader.read()

    async with serve(accept_raw(handler)) as port:
        socket = await dial(LOOPBACK, f"ws://127.0.0.1:{port}", bounds=DEFAULT, timeout=PATIENT)
        with pytest.raises(ReceiveTimeout):
            await socket.recv(0.1)
        go.set()
        assert await socket.recv(PATIENT) == "one two"
        socket.abort()


@pytest.mark.req("yoi.conform.32")
async def test_pings_are_answered_and_the_seventeenth_is_too_many() -> None:
    pongs: asyncio.Queue[bytes] = asyncio.Queue()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(ping(b"x").serialize(mask=False))
        pongs.put_nowait(await reader.readexactly(2 + 4 + 1))
        mixed = [ping(), Frame(Opcode.PONG, b"")] * 7 + [ping()]  # with the first one: sixteen
        writer.write(b"".join(frame.serialize(mask=False) for frame in [*mixed, text("ok"), *mixed, ping(), ping(), text("never")]))
        await reader.read()

    async with serve(accept_raw(handler)) as port, open_calls(LOOPBACK) as effects:
        handle = await open_websocket(effects, port)
        assert await recv(effects, handle) == {"type": "text", "text": "ok"}
        assert (await pongs.get())[0] == 0x8A
        with pytest.raises(HostCallDenied, match="^WebSocket receive exceeded bounded control-frame budget$"):
            await recv(effects, handle)


@pytest.mark.slow
@pytest.mark.parametrize(
    "frame", [ping(b"p" * 125), Frame(Opcode.PONG, b""), text("", fin=False, opcode=Opcode.CONT), text("flood")]
)
async def test_a_flood_waits_at_the_peers_end(frame: Frame) -> None:
    """Whatever comes without an end: a `recv` ends, and nothing is read that nobody asked for."""
    stalled = asyncio.Event()

    async def flooding(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text("", fin=False).serialize(mask=False) if frame.opcode is Opcode.CONT else b"")
        lump = frame.serialize(mask=False) * 2000
        while True:
            writer.write(lump)
            try:
                await asyncio.wait_for(writer.drain(), 0.5)
            except TimeoutError:
                stalled.set()  # what the machine holds is full, and ours takes no more
                await writer.drain()

    async with serve(accept_raw(flooding)) as port, open_calls(LOOPBACK) as effects:
        handle = await open_websocket(effects, port)
        await asyncio.wait_for(stalled.wait(), PATIENT)
        if frame.opcode is Opcode.TEXT:
            assert [(await recv(effects, handle))["text"] for _ in range(50)] == ["flood"] * 50
        else:
            with pytest.raises(HostCallDenied):
                await recv(effects, handle, 300)


@pytest.mark.req("yoi.conform.32")
@pytest.mark.parametrize("last", [text("end", opcode=Opcode.CONT), text("", opcode=Opcode.CONT)])
async def test_parts_without_content_are_counted_like_control_frames(last: Frame) -> None:
    empty = [text("", fin=False), *[text("", fin=False, opcode=Opcode.CONT)] * 14, ping()]  # sixteen
    many = [*empty, text("", fin=False, opcode=Opcode.CONT), last]
    async with serve(send_frames(*empty, last, *many)) as port, open_calls(LOOPBACK) as effects:
        handle = await open_websocket(effects, port)
        assert await recv(effects, handle) == {"type": "text", "text": bytes(last.data).decode()}
        with pytest.raises(HostCallDenied, match="^WebSocket receive exceeded bounded control-frame budget$"):
            await recv(effects, handle)


async def test_a_flood_of_parts_without_content_is_ended_by_the_budget() -> None:
    async def flooding(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text("", fin=False).serialize(mask=False))
        while True:
            writer.write(text("", fin=False, opcode=Opcode.CONT).serialize(mask=False) * 30_000)
            await writer.drain()

    async with serve(accept_raw(flooding)) as port:
        socket = await dial(LOOPBACK, f"ws://127.0.0.1:{port}", bounds=DEFAULT, timeout=PATIENT)
        with pytest.raises(HostCallDenied, match="^WebSocket receive exceeded bounded control-frame budget$"):
            await socket.recv(PATIENT)
        assert not socket.is_open


async def test_others_have_their_turn_while_the_parts_of_a_message_are_read() -> None:
    """All of it is here before the first part is read: nothing but our own manners lets anybody else run."""
    parts = 20_000
    message = [text("x", fin=False), *[text("x", fin=False, opcode=Opcode.CONT)] * parts, text("", opcode=Opcode.CONT)]
    async with serve(send_frames()) as port:
        socket = await dial(LOOPBACK, f"ws://127.0.0.1:{port}", bounds=DEFAULT, timeout=PATIENT)
        socket._reader.feed_data(b"".join(frame.serialize(mask=False) for frame in message))
        async with Turns() as turns:
            assert await socket.recv(PATIENT) == "x" * (parts + 1)
            assert turns.count >= parts // 2048
        socket.abort()


async def test_a_peer_that_pings_and_does_not_read_is_not_read_either() -> None:
    async def flooding(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(ping(b"p" * 125).serialize(mask=False) * 15 + text("x").serialize(mask=False))
            await writer.drain()

    async with serve(accept_raw(flooding), limit=1024) as port:
        socket = await dial(LOOPBACK, f"ws://127.0.0.1:{port}", bounds=DEFAULT, timeout=PATIENT)
        with pytest.raises(ReceiveTimeout):
            while True:  # our pongs fill what is between us, and then nothing more is taken
                await socket.recv(0.5)
        assert socket._writer.transport.get_write_buffer_size() < 1 << 20
        with pytest.raises(ReceiveTimeout):
            await socket.recv(0.1)
        socket.abort()


@pytest.mark.req("yoi.rule.035")
@pytest.mark.parametrize("frame", [Frame(Opcode.BINARY, b"x"), Frame(Opcode.BINARY, b"x", fin=False)])
async def test_binary_is_refused(frame: Frame) -> None:
    async with serve(send_frames(frame)) as port, open_calls(LOOPBACK) as effects:
        with pytest.raises(HostCallDenied, match="^binary WebSocket messages are not supported by host_api.websocket v1$"):
            await recv(effects, await open_websocket(effects, port))


@pytest.mark.parametrize(
    "data",
    [
        text(b"\xff").serialize(mask=False), text("masked").serialize(mask=True),
        text("", opcode=Opcode.CONT).serialize(mask=False),        b"\xc1\x01x", b"\x83\x00", b"\x81\xff" + b"\xff" * 8, b"",
    ],
    ids=["utf-8", "masked", "continuation", "compressed", "opcode", "huge", "end"],
)  # fmt: skip
async def test_what_is_no_websocket_fails_the_receive(data: bytes) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        writer.write_eof()
        await reader.read()

    async with serve(accept_raw(handler)) as port, open_calls(LOOPBACK) as effects:
        handle = await open_websocket(effects, port)
        with pytest.raises(HostCallDenied, match="^WebSocket receive failed: "):
            await recv(effects, handle)
        with pytest.raises(HostCallDenied):  # and stays failed
            await recv(effects, handle)


async def test_an_extension_that_nobody_asked_for_is_refused() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = ServerProtocol()
        wire.receive_data(await reader.readuntil(b"\r\n\r\n"))
        [request] = wire.events_received()
        assert isinstance(request, Request)
        accepted = wire.accept(request)
        accepted.headers["Sec-WebSocket-Extensions"] = "permessage-deflate"
        wire.send_response(accepted)
        writer.write(b"".join(wire.data_to_send()))
        await reader.read()

    async with serve(handler) as port, open_calls(LOOPBACK) as effects:
        with pytest.raises(HostCallDenied, match=f"^WebSocket open to ws://127.0.0.1:{port}/ failed: "):
            await open_websocket(effects, port)


@pytest.mark.req("yoi.rule.033", "yoi.conform.33", "yoi.edge.25")
async def test_a_handle_that_is_not_open_is_unknown() -> None:
    async with serve_websocket() as port, open_calls(LOOPBACK) as effects:
        assert await open_websocket(effects, port) == 1
        for handle in (0, 2, 2**32 - 1):
            for function, last in (("send-text", "x"), ("recv", 0)):
                with pytest.raises(HostCallDenied, match=f"^unknown WebSocket handle {handle}$"):
                    await effects.call("websocket", function, [handle, last], PATIENT)
            assert await do(effects, "websocket", "close", handle) == {"closed": False}


@pytest.mark.req("yoi.rule.033")
@pytest.mark.parametrize(("function", "args"), [("open", ["{}"]), ("send-text", [1, "x"]), ("recv", [1, 0]), ("close", [1])])
async def test_every_function_asks_for_the_authorisation(function: str, args: list[Any]) -> None:
    async with open_calls(record(declared=[target(scheme="ws")], apis=["fs"])) as effects:
        with pytest.raises(HostCallDenied, match="^requested host_api.websocket permission is missing$"):
            await effects.call("websocket", function, args, PATIENT)


@pytest.mark.req("yoi.edge.25")
async def test_handles_wrap_to_one_and_skip_those_that_are_open() -> None:
    handles = WebSocketHandles(lambda: 0.0)
    async with serve_websocket() as port:

        async def connect() -> PluginWebSocket:
            return await dial(LOOPBACK, f"ws://127.0.0.1:{port}", bounds=DEFAULT, timeout=PATIENT)

        assert (await handles.open(connect))[0] == 1
        handles._last = 2**32 - 2
        assert [(await handles.open(connect))[0] for _ in range(2)] == [2**32 - 1, 2]
        await handles.close_all(PATIENT)


@pytest.mark.req("yoi.rule.036")
async def test_an_old_handle_is_closed_at_the_next_access() -> None:
    now, gone = [0.0], asyncio.Event()

    async def handler(connection: ServerConnection) -> None:
        await connection.wait_closed()
        gone.set()

    async with serve_websocket(handler) as port, open_calls(LOOPBACK, clock=lambda: now[0]) as effects:
        old = await open_websocket(effects, port)
        now[0] = 900.0
        young = await open_websocket(effects, port)
        assert await do(effects, "websocket", "send-text", old, "x")
        now[0] = 900.1
        assert await do(effects, "websocket", "send-text", young, "x")
        await asyncio.wait_for(gone.wait(), PATIENT)
        with pytest.raises(HostCallDenied, match=f"^unknown WebSocket handle {old}$"):
            await effects.call("websocket", "send-text", [old, "x"], PATIENT)


@pytest.mark.req("yoi.conform.34", "yoi.edge.26")
async def test_all_handles_are_closed_with_the_instance_also_while_one_waits() -> None:
    ended: asyncio.Queue[int] = asyncio.Queue()

    async def handler(connection: ServerConnection) -> None:
        try:
            await connection.recv()
        except ConnectionClosed as closed:
            ended.put_nowait(closed.rcvd.code if closed.rcvd else 0)

    async with serve_websocket(handler) as port, open_calls(LOOPBACK) as effects:
        first, waiting = await open_websocket(effects, port), await open_websocket(effects, port)
        given_up = asyncio.ensure_future(recv(effects, first))
        task = asyncio.ensure_future(recv(effects, waiting))
        await asyncio.sleep(0)
        given_up.cancel()  # the host cancels what its guest waits for, at any moment
        with pytest.raises(asyncio.CancelledError):
            await given_up
        await effects.close()
        assert await task == {"type": "closed"}
        assert [await asyncio.wait_for(ended.get(), PATIENT) for _ in range(2)] == [1000, 1000]
        with pytest.raises(HostCallDenied):
            await open_websocket(effects, port)
        await effects.close()


async def test_a_peer_that_does_not_say_good_bye_is_left(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    server, client = contexts
    gone = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(1000):
                pass
        except ConnectionError:
            pass
        gone.set()

    world = Resolver(["127.0.0.1"])
    async with serve(accept_raw(handler), ssl=server) as port, open_calls(NAMED, world, tls=client) as effects:
        answer = await do(effects, "websocket", "open", json.dumps({"url": f"wss://api.example.com:{port}/v1/"}))
        assert await do(effects, "websocket", "close", answer["handle"], remaining=0.4) == {"closed": True}
        await asyncio.wait_for(gone.wait(), PATIENT)
    assert world.asked == ["api.example.com"]


@pytest.mark.req("yoi.rule.027")
async def test_a_private_address_needs_a_grant_that_says_so() -> None:
    public = record(declared=[target(scheme="ws")])
    async with serve_websocket() as port:
        url = f"ws://api.example.com:{port}/"
        network = PluginNetwork(resolve=Resolver(api=["127.0.0.1"]).resolve)
        with pytest.raises(HostCallDenied, match="a private, loopback or link-local address"):
            await dial(public, url, bounds=DEFAULT, timeout=PATIENT, network=network)
        for plugin, bounds in ((public, UPSTREAM), (record(declared=[target(scheme="ws", private=True)]), DEFAULT)):
            socket = await dial(plugin, url, bounds=bounds, timeout=PATIENT, network=network)
            await socket.send_text("hi", PATIENT)
            assert await socket.recv(PATIENT) == "hi"
            await socket.close(PATIENT)
            assert not socket.is_open
        network.close()
    with pytest.raises(HostCallDenied, match="^requested host_api.websocket permission is missing$"):
        await dial(record(declared=[target(scheme="ws")], apis=[]), "ws://api.example.com/", bounds=DEFAULT)

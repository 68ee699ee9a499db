"""Clients that mean harm, or are broken: each hurts itself alone, and memory stays bounded."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serai.agents.driven.tool_endpoint import TOKEN_VARIABLE, ToolEndpoint
from serai.dialects.mcp.events import Failed, Listed
from serai.limits import HOUR, KIB, MIB, Limits
from serai.model.tools import ToolSpec
from tests.support.mcp_endpoints import PROMPTLY, Box, Talker, open_endpoint
from tests.support.profiles import examples

CALL = b'{"jsonrpc":"2.0","id":"big","method":"tools/call","params":{"name":"add","arguments":{"text":"'


async def check_works(endpoint: ToolEndpoint) -> None:
    """Somebody else is served as ever."""
    talker = await Talker.greeted(endpoint)
    assert await talker.text("add", {"a": 20, "b": 22}) == "42"
    talker.close()


def measure_memory() -> int:
    """Bytes of memory in use at the most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB


@pytest.mark.req("app.mcp.hostile")
@pytest.mark.timeout(120)
async def test_a_line_of_a_gigabyte_is_refused_and_the_next_one_served() -> None:
    async with open_endpoint(Box(), limits=Limits().but(frame=MIB)) as endpoint:
        talker = await Talker.greeted(endpoint)
        before = measure_memory()
        talker.writer.write(CALL)
        piece = b"a" * MIB
        for _ in range(1024):
            talker.writer.write(piece)
            await talker.writer.drain()
        talker.put(b'"}}}')
        refused = json.loads(await asyncio.wait_for(talker.reader.readline(), PROMPTLY))
        assert refused["id"] == "big"
        assert refused["error"]["code"] == -32600
        assert str(1024 * MIB + len(CALL) + 5) in refused["error"]["message"]
        assert measure_memory() - before < 100 * MIB
        assert isinstance(await talker.ask(*talker.client.list_tools()), Listed)
        talker.close()


@pytest.mark.req("app.mcp.hostile")
async def test_a_first_line_without_end_is_not_listened_to() -> None:
    async with open_endpoint(Box(), limits=Limits().but(hello=HOUR)) as endpoint:
        reader, writer = await asyncio.open_unix_connection(endpoint.path)
        with suppress(ConnectionError):
            for _ in range(64):
                writer.write(b"a" * 64 * KIB)
                await writer.drain()
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), PROMPTLY) == b""
        assert endpoint.refused == 1
        writer.close()
        await check_works(endpoint)


@pytest.mark.req("app.mcp.hostile")
@pytest.mark.parametrize("half", [CALL, b'{"jsonrpc"', b"\xff\xfe", b"[[[[[[", b"{" * 5000])
async def test_half_a_frame_at_the_end_hurts_nobody(half: bytes) -> None:
    async with open_endpoint(Box()) as endpoint:
        talker = await Talker.greeted(endpoint)
        talker.writer.write(half)
        talker.writer.write_eof()
        rest = await talker.ended()
        assert b'"result"' not in rest
        talker.close()
        await check_works(endpoint)


@pytest.mark.req("app.mcp.hostile")
async def test_a_thousand_connections_do_not_keep_a_client_out() -> None:
    box = Box()
    async with open_endpoint(box, limits=Limits().but(mcp_clients=8)) as endpoint:
        friend = await Talker.greeted(endpoint)
        crowd: list[socket.socket] = []
        try:
            for number in range(1000):
                one = socket.socket(socket.AF_UNIX)
                one.setblocking(False)
                crowd.append(one)
                while True:
                    try:
                        one.connect(endpoint.path)
                        break
                    except BlockingIOError:  # many wait to be taken in
                        await asyncio.sleep(0)
                if len(crowd) > 300:  # what was dropped is closed on this side too
                    crowd.pop(0).close()
                if number % 250 == 100:
                    await check_works(endpoint)
            assert await friend.text("add", {"a": 1, "b": 2}) == "3"
            await check_works(endpoint)
            assert len(endpoint._unverified) <= 8
        finally:
            for one in crowd:
                one.close()
        friend.close()


@pytest.mark.req("app.mcp.hostile")
async def test_who_never_reads_is_not_read_from_and_then_hung_up_on() -> None:
    box = Box(*(ToolSpec(f"tool-{number}", "x" * 1000) for number in range(100)))
    async with open_endpoint(box, limits=Limits().but(mcp_stall=0.3)) as endpoint:
        talker = await Talker.come(endpoint)
        talker.reader._limit = 1  # type: ignore[attr-defined]  # what this end reads by itself is next to nothing
        before = measure_memory()
        request = talker.client.list_tools()[1]
        waiting = 0
        with suppress(ConnectionError, asyncio.TimeoutError):
            for number in range(200_000):
                talker.put(request.replace(b'"id":1', b'"id":%d' % number))
                await asyncio.wait_for(talker.writer.drain(), PROMPTLY)
                waiting = max([waiting, *(client._outbox.queued for client in endpoint._clients)])
        assert not endpoint.clients
        assert 0 < waiting < 3 * MIB
        assert measure_memory() - before < 100 * MIB
        talker.close()
        await check_works(endpoint)


@pytest.mark.req("app.mcp.hostile")
async def test_who_reads_slowly_gets_everything() -> None:
    box = Box(*(ToolSpec(f"tool-{number}", "x" * 1000) for number in range(100)))
    async with open_endpoint(box, limits=Limits().but(mcp_stall=5.0)) as endpoint:
        talker = await Talker.come(endpoint)
        calls = [talker.client.list_tools() for _ in range(100)]  # ten megabytes of answers
        for _, message in calls:
            talker.put(message)
        for call, _ in calls:
            assert isinstance(await talker.answer(call), Listed)
        talker.close()


@pytest.mark.req("app.mcp.hostile")
async def test_an_answer_too_long_to_be_sent_is_an_error() -> None:
    box = Box(ToolSpec("long"))
    async with open_endpoint(box, limits=Limits().but(send=10 * KIB)) as endpoint:
        talker = await Talker.greeted(endpoint)
        call, message = talker.client.call_tool("long", {"size": 20 * KIB})
        failed = await talker.ask(call, message)
        assert isinstance(failed, Failed)
        assert "not sent" in failed.text
        assert await talker.text("add", {"a": 1, "b": 1}) == "2"
        talker.close()


@pytest.mark.req("app.mcp.hostile")
async def test_a_flood_of_calls_that_are_taken_back_leaves_nothing() -> None:
    box = Box()
    async with open_endpoint(box) as endpoint:
        talker = await Talker.greeted(endpoint)
        for _ in range(500):
            call, message = talker.client.call_tool("hold")
            talker.put(message)
            talker.put(talker.client.cancel(call) or b"")
        assert await talker.text("add", {"a": 1, "b": 1}) == "2"
        assert not [task for task in endpoint._context.working if not task.cancelling()]
        talker.close()


@pytest.mark.req("app.mcp.hostile")
@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=200), max_size=8))
def test_any_bytes_end_at_most_their_own_connection(pieces: list[bytes]) -> None:
    async def play() -> None:
        async with open_endpoint(Box()) as endpoint:
            reader, writer = await asyncio.open_unix_connection(endpoint.path)
            writer.write(endpoint.launch.env[TOKEN_VARIABLE].encode() + b"\n")
            for piece in pieces:
                writer.write(piece)
            writer.write_eof()
            with suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), PROMPTLY)
            writer.close()
            await check_works(endpoint)

    asyncio.run(play())

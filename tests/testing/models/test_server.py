"""The server itself: what it keeps, whom it lets in, and that nothing is left of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys

import anthropic
import h11
import openai
import pytest

from serai.errors import Closed
from serai.limits import Limits
from serai.testing.models.connection import Connection
from serai.testing.models.server import FakeModels
from tests.support.model_clients import APIS, PATHS, Api, Clients, body, chunks, dial, request_bytes, send_raw

pytestmark = pytest.mark.loops

every_api = pytest.mark.parametrize("api", APIS)
KEY = "sk-only-this-one"


@pytest.mark.req("resident.fakes.key")
@every_api
async def test_only_its_own_key_is_taken(api: Api) -> None:
    async with FakeModels(key=KEY) as server:
        right, wrong = Clients(server, KEY), Clients(server, "sk-other")
        assert await right.text(api, "hello") == "You said: hello"
        with pytest.raises((anthropic.AuthenticationError, openai.AuthenticationError)):
            await wrong.text(api, "hello")
        await right.close()
        await wrong.close()


@pytest.mark.req("resident.fakes.key")
async def test_a_key_is_found_in_either_header_and_kept_of_none() -> None:
    async with FakeModels(key=KEY) as server:
        for header in (f"x-api-key: {KEY}", f"authorization: Bearer {KEY}"):
            reader, writer = await dial(server)
            writer.write(f"GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{header}\r\n\r\n".encode())
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
            writer.close()
            await writer.wait_closed()
        assert KEY not in repr(server.requests)
        assert "***" in repr(server.requests)


@pytest.mark.req("resident.fakes.recorded")
async def test_requests_are_kept_for_the_test_to_look_at(server: FakeModels, clients: Clients) -> None:
    await clients.text("anthropic", "hello")
    [seen] = server.requests
    assert (seen.method, seen.path, seen.body["messages"][0]["content"]) == ("POST", "/v1/messages", "hello")
    assert seen.headers["user-agent"].startswith("AsyncAnthropic")
    await send_raw(server, "/v1/messages?beta=true", b"{no json")
    assert (server.requests[-1].path, server.requests[-1].query, server.requests[-1].body) == ("/v1/messages", "beta=true", None)
    await send_raw(server, "/v1beta/models/x?alt=sse&key=secret", {})
    assert server.requests[-1].query == "alt=sse&key=***"


@pytest.mark.req("resident.fakes.recorded", "resident.fakes.bounds")
async def test_only_the_newest_thousand_are_kept(server: FakeModels) -> None:
    reader, writer = await dial(server)
    for number in range(1003):
        writer.write(request_bytes(f"/{number}", b"", close=False, method="GET"))
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.rpartition(b"content-length: ")[2]))
    writer.close()
    await writer.wait_closed()
    assert (len(server.requests), server.requests[0].path, server.requests[-1].path) == (1000, "/3", "/1002")


@pytest.mark.req("resident.fakes.bounds")
@pytest.mark.parametrize("stream", [True, False])
async def test_the_next_request_may_come_before_we_are_back_from_the_answer(
    server: FakeModels, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    """Other loops read before they go on with a task: a client that was quick and had much to say was cut off."""
    large = request_bytes("/v1/messages", json.dumps(body("anthropic", "x" * 200_000)).encode(), close=True)
    send = Connection._send

    def quick(connection: Connection, event: h11.Response | h11.Data | h11.EndOfMessage) -> None:
        send(connection, event)
        last = h11.EndOfMessage if stream else h11.Data  # what shows a client that it has all
        if isinstance(event, last) and len(server.requests) == 1:
            asyncio.get_running_loop().call_soon(connection.data_received, large)

    monkeypatch.setattr(Connection, "_send", quick)
    reader, writer = await dial(server)
    writer.write(request_bytes("/v1/messages", json.dumps(body("anthropic", "first", stream=stream)).encode(), close=False))
    answers = await asyncio.wait_for(reader.read(), 15)
    writer.close()
    await writer.wait_closed()
    assert answers.count(b"HTTP/1.1 200") == len(server.requests) == 2


async def test_who_asks_for_the_head_gets_it_alone_and_goes_on(server: FakeModels, caplog: pytest.LogCaptureFixture) -> None:
    """Claude Code looks so whether anybody is there."""
    reader, writer = await dial(server)
    writer.write(request_bytes("/api/hello", b"", close=False, method="HEAD"))
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 15)
    assert head.startswith(b"HTTP/1.1 404")
    assert b"content-length: 0" not in head
    writer.write(request_bytes("/v1/models", b"", close=True, method="GET"))
    assert (await asyncio.wait_for(reader.read(), 15)).startswith(b"HTTP/1.1 200")
    writer.close()
    await writer.wait_closed()
    assert not caplog.records


@pytest.mark.req("resident.fakes.deterministic")
@every_api
@pytest.mark.parametrize("stream", [True, False])
async def test_the_same_request_gets_the_same_bytes(server: FakeModels, api: Api, stream: bool) -> None:
    request = body(api, ">> think so\n>> say hello\n>> call read {}", stream=stream, tools=("read",))
    first, second = [await send_raw(server, PATHS[api], request) for _ in range(2)]
    other = await send_raw(server, PATHS[api], request | {"model": "another"})
    assert first == second
    assert first[0] == 200
    assert first != other


@pytest.mark.req("resident.fakes.leaving")
@every_api
async def test_a_client_that_leaves_in_mid_stream_ends_the_stream(server: FakeModels, clients: Clients, api: Api) -> None:
    """It would be far more than any buffer between the two holds."""
    answer = await clients.send(api, body(api, ">> repeat 50000000 say x ", stream=True))
    async for _ in answer:
        break
    assert server.open == 1
    await answer.close() if api == "anthropic" else await answer.response.aclose()
    await server.until(lambda: server.open == 0)


@pytest.mark.req("resident.fakes.leaving")
async def test_a_client_that_reads_nothing_makes_the_stream_wait(server: FakeModels) -> None:
    reader, writer = await dial(server)
    writer.write(request_bytes("/v1/messages", body("anthropic", ">> repeat 50000000 say x ", stream=True)))
    await reader.read(1)
    await server.until(lambda: server.open == 1)
    other = await send_raw(server, "/v1/models", b"", method="GET")  # meanwhile others are served
    assert other[0] == 200
    writer.transport.abort()
    await server.until(lambda: server.open == 0)


@pytest.mark.req("resident.fakes.bounds")
async def test_what_is_no_request_gets_a_status_and_the_end_of_its_connection(server: FakeModels) -> None:
    reader, writer = await dial(server)
    writer.write(b"please?\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 400")
    writer.close()
    await writer.wait_closed()


@pytest.mark.req("resident.fakes.bounds")
async def test_a_request_that_is_too_long_is_refused() -> None:
    async with FakeModels(limits=Limits().but(frame=1000)) as server:
        assert (await send_raw(server, "/v1/messages", b"x" * 1001))[0] == 413
        assert (await send_raw(server, "/v1/messages", b"x" * 1000))[0] == 400
        assert len(server.requests) == 1


async def has_ended(reader: asyncio.StreamReader) -> bool:
    """The end of a connection without a word: told as such, or as a reset."""
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


@pytest.mark.req("resident.fakes.bounds")
@pytest.mark.parametrize(
    "sent", [b"", b"POST /v1/messages HTTP/1.1\r\ncontent-le", b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf"]
)
async def test_a_client_that_says_nothing_or_half_is_not_waited_for(sent: bytes) -> None:
    async with FakeModels(limits=Limits().but(call=0.05, hello=0.05)) as server:
        reader, writer = await dial(server)
        writer.write(sent)
        assert await has_ended(reader)
        await server.until(lambda: server.connections == 0)
        writer.close()


@pytest.mark.req("resident.fakes.bounds")
async def test_a_client_that_does_not_read_is_not_waited_for() -> None:
    async with FakeModels(limits=Limits().but(call=0.2)) as server:
        reader, writer = await dial(server)
        writer.write(request_bytes("/v1/messages", body("anthropic", ">> repeat 50000000 say x ", stream=True)))
        await server.until(lambda: server.open == 1)
        await server.until(lambda: server.connections == 0)
        writer.transport.abort()
        assert not reader.at_eof()


@pytest.mark.req("resident.fakes.bounds")
async def test_a_hundred_connections_are_enough(server: FakeModels) -> None:
    made = [await dial(server) for _ in range(100)]
    await server.until(lambda: server.connections == 100)
    reader, writer = await dial(server)
    assert await has_ended(reader)
    assert server.connections == 100
    for _, one in [*made, (reader, writer)]:
        one.close()
    await server.until(lambda: server.connections == 0)


@pytest.mark.req("resident.fakes.wire")
async def test_requests_on_one_connection_are_answered_in_order(server: FakeModels) -> None:
    """Sent together, before the first is answered; the second asks to be told to go on."""
    reader, writer = await dial(server)
    second = request_bytes("/v1/messages", body("anthropic", ">> say second")).replace(
        b"host: fake", b"host: fake\r\nexpect: 100-continue"
    )
    writer.write(request_bytes("/v1/messages", body("anthropic", ">> say first"), close=False) + second)
    answers = await reader.read()
    assert answers.index(b'"text":"first"') < answers.index(b'"text":"second"')
    writer.close()
    await writer.wait_closed()


async def test_nobody_there_is_a_404_of_the_api(server: FakeModels) -> None:
    status, _, told = await send_raw(server, "/v1/poems", {})
    assert (status, json.loads(told)["error"]["message"]) == (404, "there is no POST /v1/poems here")
    status, _, told = await send_raw(server, "/v1/messages/batches", {})
    assert (status, json.loads(told)["error"]["type"]) == (404, "not_found_error")
    assert (await send_raw(server, "/v1/models", b"", method="HEAD"))[0] == 404


@pytest.mark.req("resident.fakes.closing")
async def test_closing_ends_what_is_under_way_and_twice_does_no_harm() -> None:
    server = FakeModels()
    async with server:
        clients = Clients(server)
        asking = asyncio.create_task(clients.text("openai", ">> say one\n>> hang"))
        await server.until(lambda: server.open == 1)
        await server.close()
        assert (server.open, server.connections) == (0, 0)
        with pytest.raises(openai.APIConnectionError):
            await asking
        with pytest.raises(Closed):
            _ = server.url
        await clients.close()
    await server.close()


async def test_waiting_in_vain_ends(server: FakeModels) -> None:
    with pytest.raises(TimeoutError):
        await server.until(lambda: server.open == 5, timeout=0.01)


async def test_it_tells_programs_and_our_own_providers_where_it_is(server: FakeModels) -> None:
    assert server.env() == {
        "ANTHROPIC_BASE_URL": server.url,
        "ANTHROPIC_API_KEY": "fake-key",
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "OPENAI_API_KEY": "fake-key",
    }
    for api in APIS:
        model = server.model(api)
        assert (model.api, model.base_url) == (api, server.url if api == "anthropic" else f"{server.url}/v1")
    with pytest.raises(ValueError, match="no API 'telepathy'"):
        server.model("telepathy")


@pytest.mark.req("resident.fakes.speed")
@every_api
async def test_small_events_are_written_together(server: FakeModels, api: Api) -> None:
    """Half a million a second go out so; one by one it would be a few thousand."""
    reader, writer = await dial(server)
    writer.write(request_bytes(PATHS[api], body(api, ">> repeat 20000 say x ", stream=True)))
    answer = await reader.read()
    sizes = chunks(answer.partition(b"\r\n\r\n")[2])
    assert answer.count(b"data: ") > 20_000
    assert len(sizes) < 100
    assert sum(sizes) / len(sizes) > 50_000
    writer.close()
    await writer.wait_closed()


@pytest.mark.req("resident.fakes.program")
@pytest.mark.parametrize("end", ["input", "signal"])
def test_it_runs_as_a_program_until_its_input_ends_or_a_signal(end: str) -> None:
    program = [sys.executable, "-m", "serai.testing.models", "--key", "k"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        told = json.loads(child.stdout.readline())
        assert told["env"]["ANTHROPIC_BASE_URL"] == told["url"]
        with anthropic.Anthropic(base_url=told["url"], api_key="k", max_retries=0) as client:
            assert "fake-1" in [model.id for model in client.models.list().data]
        if end == "input":
            child.stdin.close()
        else:
            os.kill(child.pid, signal.SIGTERM)
        assert (child.wait(20), child.stderr.read()) == (0, b"")

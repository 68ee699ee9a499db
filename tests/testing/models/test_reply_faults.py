"""Every fault, as the real SDKs see it: by the script of the prompt, and by the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from serai.agents.models.parrot import Cut, Hang, Malformed, Wait
from serai.testing.models.reply import FAULTS, Fault, Kind, apply_fault
from serai.testing.models.server import FakeModels
from tests.support.model_clients import APIS, PATHS, Api, Clients, body, dial, pieces, request_bytes, send_raw

every_api = pytest.mark.parametrize("api", APIS)

STATUS = (anthropic.APIStatusError, openai.APIStatusError)
# What a broken connection is: Anthropic's SDK passes on what its HTTP client raises in mid-stream.
BROKEN = (anthropic.APIConnectionError, openai.APIConnectionError, httpx2.TransportError)


@pytest.mark.req("resident.fakes.faults")
@every_api
@pytest.mark.parametrize(("status", "name"), [(400, "BadRequestError"), (401, "AuthenticationError"), (429, "RateLimitError")])
async def test_a_script_fails_with_a_status(clients: Clients, api: Api, status: int, name: str) -> None:
    with pytest.raises(STATUS) as error:
        await clients.text(api, f">> fail {status} retry-after=7 not today")
    told: Any = error.value
    assert (type(told).__name__, told.status_code, told.response.headers["retry-after"]) == (name, status, "7")
    assert "not today" in str(told)


@pytest.mark.req("resident.fakes.faults")
async def test_errors_have_the_body_of_their_api(server: FakeModels) -> None:
    status, _, told = await send_raw(server, PATHS["anthropic"], body("anthropic", ">> fail 529 busy"))
    answer = json.loads(told)
    assert (status, answer["type"], answer["error"]) == (529, "error", {"type": "overloaded_error", "message": "busy"})
    assert answer["request_id"].startswith("req_")
    for api in ("openai", "openai-responses"):
        status, _, told = await send_raw(server, PATHS[api], body(api, ">> fail 429 slow down"))
        error = {"message": "slow down", "type": "requests", "param": None, "code": "rate_limit_exceeded"}
        assert (status, json.loads(told)) == (429, {"error": error})


@pytest.mark.req("resident.fakes.faults")
@every_api
async def test_it_fails_twice_and_then_works(server: FakeModels, clients: Clients, api: Api) -> None:
    server.fault(Fault("status", status=500), Fault("status", status=503, retry_after="0.5", body=b"gone fishing"))
    with pytest.raises(STATUS) as first:
        await clients.text(api, "hello")
    with pytest.raises(STATUS) as second:
        await clients.text(api, "hello")
    told: list[Any] = [first.value, second.value]
    assert [error.status_code for error in told] == [500, 503]
    assert (told[1].response.text, told[1].response.headers["retry-after"]) == ("gone fishing", "0.5")
    assert await clients.text(api, "hello") == "You said: hello"


@pytest.mark.req("resident.fakes.faults")
@every_api
@pytest.mark.parametrize("by", ["script", "test"])
async def test_a_cut_stream_breaks_off_after_what_was_said(server: FakeModels, clients: Clients, api: Api, by: str) -> None:
    prompt = ">> say one two three\n>> cut\n>> say four"
    if by == "test":
        prompt = ">> say one two three four"
        server.fault(Fault("cut", after={"anthropic": 6, "openai": 4, "openai-responses": 7}[api]))
    said: list[str] = []
    answer = await clients.send(api, body(api, prompt, stream=True))
    with pytest.raises(BROKEN):
        async for event in answer:
            said += pieces(api, event)
    assert "".join(said).split() == ["one", "two", "three"]
    assert await clients.text(api, "hello") == "You said: hello"


@pytest.mark.req("resident.fakes.faults")
@every_api
@pytest.mark.parametrize("by", ["script", "test"])
async def test_a_malformed_event_is_no_json(server: FakeModels, clients: Clients, api: Api, by: str) -> None:
    if by == "test":
        server.fault(Fault("malformed", after=1))
    with pytest.raises(ValueError, match="Expecting value"):
        await clients.text(api, ">> say one\n>> malformed\n>> say two" if by == "script" else "hello")


@pytest.mark.req("resident.fakes.faults")
@every_api
async def test_without_a_stream_a_cut_leaves_half_and_what_is_malformed_is_half(clients: Clients, api: Api) -> None:
    with pytest.raises(BROKEN):
        await clients.text(api, ">> say one\n>> cut", stream=False)
    with pytest.raises((ValueError, anthropic.APIError, openai.APIError)):
        await clients.text(api, ">> say one\n>> malformed", stream=False)


@pytest.mark.req("resident.fakes.faults")
@every_api
async def test_an_error_can_come_in_mid_stream(server: FakeModels, clients: Clients, api: Api) -> None:
    server.fault(Fault("error", status=529, after=1))
    if api == "openai-responses":  # whose SDK takes it for an event like the others
        answer = await clients.send(api, body(api, "hello", stream=True))
        *_, last = [event async for event in answer]
        assert (last.type, last.code, last.sequence_number) == ("error", "server_error", 1)
        return
    with pytest.raises((anthropic.APIStatusError, openai.APIError)) as error:
        await clients.text(api, "hello")
    told: Any = error.value
    assert ("overloaded_error" if api == "anthropic" else "server_error") in str(told.body)


@pytest.mark.req("resident.fakes.faults", "resident.fakes.leaving")
@every_api
@pytest.mark.parametrize("stream", [True, False])
async def test_a_model_that_hangs_does_so_until_the_client_leaves(
    server: FakeModels, clients: Clients, api: Api, stream: bool
) -> None:
    asking = asyncio.create_task(clients.text(api, ">> say one\n>> hang", stream=stream))
    await server.until(lambda: server.open == 1)
    assert not asking.done()
    asking.cancel()
    await server.until(lambda: server.open == 0)
    with pytest.raises(asyncio.CancelledError):
        await asking


@pytest.mark.req("resident.fakes.faults")
@every_api
async def test_a_client_that_does_not_wait_sees_a_time_out(server: FakeModels, api: Api) -> None:
    server.fault(Fault("hang"))
    clients = Clients(server, timeout=0.05)
    with pytest.raises((anthropic.APITimeoutError, openai.APITimeoutError, httpx2.ReadTimeout)):
        await clients.text(api, "hello")
    await clients.close()
    await server.until(lambda: server.open == 0)


@pytest.mark.req("resident.fakes.faults")
@every_api
@pytest.mark.parametrize("kind", ["refuse", "close"])
async def test_a_connection_can_end_without_an_answer(server: FakeModels, clients: Clients, api: Api, kind: Kind) -> None:
    server.fault(Fault(kind))
    with pytest.raises((anthropic.APIConnectionError, openai.APIConnectionError)):
        await clients.text(api, "hello")
    assert len(server.requests) == (kind == "close")
    assert await clients.text(api, "hello") == "You said: hello"
    server.fault(Fault(kind))  # and one that is used again
    with pytest.raises((anthropic.APIConnectionError, openai.APIConnectionError)):
        await clients.text(api, "hello")


@pytest.mark.req("resident.fakes.faults")
@every_api
async def test_one_event_can_be_huge(server: FakeModels, clients: Clients, api: Api) -> None:
    server.fault(Fault("huge", bytes=3_000_000))
    answer = await clients.send(api, body(api, "hello", stream=True))
    longest = max([len(piece) async for event in answer for piece in pieces(api, event)])
    assert longest == 3_000_000


@pytest.mark.req("resident.fakes.faults")
@every_api
async def test_an_error_can_have_no_end_and_stops_when_the_client_leaves(server: FakeModels, api: Api) -> None:
    server.fault(Fault("endless", status=503))
    reader, writer = await dial(server)
    writer.write(request_bytes(PATHS[api], body(api, "hello")))
    assert (await reader.readline()).startswith(b"HTTP/1.1 503")
    await reader.readexactly(1_000_000)
    assert server.open == 1
    writer.transport.abort()
    await server.until(lambda: server.open == 0)


@pytest.mark.req("resident.fakes.faults")
async def test_an_error_can_have_headers_of_its_own(server: FakeModels) -> None:
    server.fault(Fault("status", status=307, headers=(("location", "http://elsewhere/"),), body=b""))
    status, head, told = await send_raw(server, PATHS["openai"], body("openai", "hello"))
    assert (status, told) == (307, b"")
    assert b"\r\nlocation: http://elsewhere/\r\n" in head


@pytest.mark.req("resident.fakes.faults")
@every_api
async def test_an_answer_can_be_slow_and_pause(server: FakeModels, clients: Clients, api: Api) -> None:
    server.fault(Fault("slow", seconds=0.001))
    assert await clients.text(api, ">> say one two \n>> wait 0.001\n>> say three") == "one two three"


@pytest.mark.req("resident.fakes.faults")
async def test_a_prompt_that_is_too_long_is_told_so() -> None:
    async with FakeModels(window=200) as server:
        clients = Clients(server)
        with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > 200 maximum"):
            await clients.text("anthropic", "word " * 300)
        for kind in ("openai", "openai-responses"):
            with pytest.raises(openai.BadRequestError) as error:
                await clients.text(kind, "word " * 300)
            assert error.value.code == "context_length_exceeded"
        assert await clients.text("anthropic", "word") == "You said: word"
        await clients.close()


def _two() -> Iterator[bytes]:
    yield b"1"
    yield b"2"


def test_faults_stand_among_the_events_where_they_were_put() -> None:
    def made(fault: Fault) -> list[object]:
        return list(apply_fault(_two(), fault, b"error"))

    assert made(Fault("none")) == [b"1", b"2"]
    assert made(Fault("cut")) == [Cut(), b"1", b"2"]
    assert made(Fault("hang", after=1)) == [b"1", Hang(), b"2"]
    assert made(Fault("malformed", after=1)) == [b"1", Malformed(), b"2"]
    assert made(Fault("error", after=1)) == [b"1", b"error"]
    assert made(Fault("slow", seconds=2)) == [b"1", Wait(2), b"2", Wait(2)]


def test_a_fault_that_there_is_not_is_told() -> None:
    assert "status" in FAULTS
    with pytest.raises(ValueError, match="no fault 'mood'; there are: none, status"):
        Fault("mood")  # type: ignore[arg-type]

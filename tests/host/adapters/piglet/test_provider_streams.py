"""What a guest streams for a model: pieces in order, the result that counts, and how it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from serai.agents.resident.model_call import ModelCall
from serai.agents.resident.run_context import RunOutput
from serai.dialects.piglet.messages import ProviderDeltaParams, ProviderStreamParams, ProviderStreamResult, ProviderToolCall
from serai.errors import (
    BadFrame,
    Closed,
    ExitStatus,
    FrameTooBig,
    LimitHit,
    ModelFailed,
    OversizeFrame,
    PeerGone,
    PeerStalled,
    PeerTimeout,
    Refused,
    SeraiError,
)
from serai.host.adapters.piglet.provider_streams import ProviderStreams, build_params
from serai.limits import Limits
from serai.model.events import Usage
from serai.model.provider import Chunk, Completion, Cost, Model, ModelMessage, ModelOptions, ModelRequest
from serai.model.tools import TextBlock, ToolCall, ToolSpec

MODEL = Model("m1", "M One", "anthropic", "acme", context_window=8000, max_tokens=500, cost=Cost(1.0, 2.0))
REQUEST = ModelRequest(MODEL, (ModelMessage("user", (TextBlock("hi"),)),), "S")
MESSAGE: dict[str, Any] = {
    "content": [{"text": "Hello"}],
    "model": "m1",
    "provider": "acme",
    "usage": {"inputTokens": 5, "outputTokens": 1, "cacheReadTokens": 2, "cacheWriteTokens": 3, "cost": 0},
    "stopReason": "stop",
    "timestamp": "2026-02-03T10:00:01Z",
}
LIMITS = Limits().but(interrupt=15.0)


def result(**changes: Any) -> ProviderStreamResult:
    return ProviderStreamResult(Raw(msgspec.json.encode(MESSAGE | changes)))


def delta(text: str, type: str = "text_delta", index: int = 0, id: int = 7) -> ProviderDeltaParams:
    return ProviderDeltaParams(id, type, index, text)


class Guest:
    """A wire that the test plays: it is asked, says pieces, and answers, refuses or is lost."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.streaming = ProviderStreams("acme-ext", limits)
        self.ids = iter(range(7, 1000))
        self.asked: list[ProviderStreamParams] = []
        self.envelope = 0
        self.answer: asyncio.Future[ProviderStreamResult] = asyncio.get_running_loop().create_future()
        self.cancelled = False
        self.begun = asyncio.Event()

    async def call(self, params: ProviderStreamParams) -> ProviderStreamResult:
        self.envelope = self.draw()
        self.asked.append(params)
        self.begun.set()
        try:
            return await self.answer
        except asyncio.CancelledError:
            self.cancelled = True
            raise

    def draw(self) -> int:
        return next(self.ids)

    def stream(self, request: ModelRequest = REQUEST) -> Any:
        return self.streaming.stream(self.call, self.draw, "anthropic", request)

    def say(self, *deltas: ProviderDeltaParams) -> None:
        for one in deltas:
            self.streaming.add_delta(one)

    async def all(self, play: Callable[[], object]) -> list[Chunk | Completion]:
        """The whole stream, while `play` is done as soon as the guest was asked."""
        reading = asyncio.ensure_future(_read(self.stream()))
        await self.begun.wait()
        play()
        return await reading


async def _read(stream: Any) -> list[Chunk | Completion]:
    return [piece async for piece in stream]


async def failure(guest: Guest, play: Callable[[], object]) -> ModelFailed:
    with pytest.raises(ModelFailed) as caught:
        await guest.all(play)
    assert caught.value.who == "acme/m1"
    return caught.value


# -- what is asked


async def test_the_number_of_the_stream_is_drawn_right_before_that_of_the_request() -> None:
    guest = Guest()
    await guest.all(lambda: guest.answer.set_result(result()))
    assert (guest.asked[0].request_id, guest.envelope) == (7, 8)


def test_a_request_is_that_of_the_spec() -> None:
    tool = ToolSpec("weather", "Forecast", {"type": "object"})
    options = ModelOptions(0.5, 100, "low", {"X-Trace": "1"})
    request = msgspec.structs.replace(REQUEST, tools=(tool,), options=options)
    assert msgspec.json.decode(msgspec.json.encode(build_params(18, "anthropic", request))) == {
        "requestId": 18,
        "model": {
            "id": "m1",
            "name": "M One",
            "api": "anthropic",
            "provider": "acme",
            "reasoning": False,
            "contextWindow": 8000,
            "maxTokens": 500,
            "cost": {"input": 1.0, "output": 2.0, "cacheRead": 0.0, "cacheWrite": 0.0},
        },
        "system": "S",
        "messages": [{"role": "user", "content": "hi", "timestamp": "0001-01-01T00:00:00Z"}],
        "tools": [{"name": "weather", "description": "Forecast", "parameters": {"type": "object"}}],
        "options": {"temperature": 0.5, "maxTokens": 100, "thinking": "low", "headers": {"X-Trace": "1"}},
    }


def test_without_tools_there_are_none_and_options_are_there_all_the_same() -> None:
    asked = msgspec.json.decode(msgspec.json.encode(build_params(18, "x", ModelRequest(Model("m1"), ()))))
    assert "tools" not in asked
    assert (asked["options"], asked["messages"]) == ({}, [])
    assert (asked["model"]["name"], asked["model"]["api"]) == ("m1", "x")


@pytest.mark.parametrize("name", ["Authorization", "x-api-key", "X-Goog-Api-Key", "Cookie", "X-Auth-Token", "proxy-authorization"])
def test_no_key_goes_out(name: str) -> None:
    headers = {name: "hush-hush", "X-Trace": "1", "X-Custom": "Bearer hush-hush"}
    model = msgspec.structs.replace(MODEL, headers=headers, base_url="https://me:hush-hush@acme.test/v1?version=2")
    asked = build_params(1, "x", msgspec.structs.replace(REQUEST, model=model, options=ModelOptions(headers=headers)))
    assert b"hush-hush" not in msgspec.json.encode(asked)
    assert asked.model["headers"] == asked.options["headers"] == {"X-Trace": "1"}
    assert asked.model["baseUrl"] == "https://acme.test/v1?version=2"


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://a.test/?api_key=hush", "https://a.test/"),
        ("https://a.test/v1?key=hush", "https://a.test/v1"),
        ("https://a.test/v1?a=1&X-Amz-Signature=hush&b=2", "https://a.test/v1"),
        ("https://a.test/v1?a=1;sig=hush", "https://a.test/v1"),
        ("https://a.test/v1?%6Bey=hush", "https://a.test/v1"),
        ("https://a.test/v1?CODE=hush", "https://a.test/v1"),
        ("https://a.test/v1?x=sk-hushhushhushhushhush", "https://a.test/v1"),
        ("https://a.test/v1?sk-hushhushhushhushhush", "https://a.test/v1"),
        ("https://a.test/v1?a=1#access_token=hush", "https://a.test/v1?a=1"),
        (
            "https://a.test/v1?api-version=2024-02-01&design=x&encode=y",
            "https://a.test/v1?api-version=2024-02-01&design=x&encode=y",
        ),
        ("http://[", ""),
        ("http://a.test", "http://a.test"),
    ],
)
def test_an_address_has_no_key_either(url: str, sent: str) -> None:
    request = msgspec.structs.replace(REQUEST, model=msgspec.structs.replace(MODEL, base_url=url))
    assert build_params(1, "x", request).model["baseUrl"] == sent


async def test_a_conversation_that_is_no_json_is_not_asked_about() -> None:
    guest = Guest()
    odd = ModelMessage("assistant", calls=(ToolCall("t", {"x": object()}),))
    with pytest.raises(ModelFailed, match="no JSON") as caught:
        await _read(guest.stream(msgspec.structs.replace(REQUEST, messages=(odd,))))
    assert not caught.value.temporary
    assert not guest.asked


# -- what is answered


async def test_pieces_come_as_they_are_said_and_the_result_counts() -> None:
    guest = Guest()
    stream = guest.stream()
    first = asyncio.ensure_future(anext(stream))
    await guest.begun.wait()
    guest.say(delta("Hel"))
    assert await first == Chunk("Hel")
    tool = ProviderDeltaParams(7, "toolcall_end", 1, tool=ProviderToolCall("t1", "weather", '{"city":"Bern"}'))
    guest.say(delta("hm", "thinking_delta", 1), delta('{"c', "toolcall_delta", 2), tool, delta("odd", "odd_delta"))
    guest.answer.set_result(result())
    guest.say(delta("lo"))  # was read before the one who waits for the result could go on
    *rest, last = await _read(stream)
    assert rest == [Chunk("hm", "thinking", 1), Chunk('{"c', "tool_input", 2), Chunk("lo")]
    assert last == Completion(ModelMessage("assistant", (TextBlock("Hello"),)), "end", Usage(5, 1, 2, 3))
    guest.say(delta("too late"))


async def test_each_stream_gets_its_own_pieces() -> None:
    one = Guest()
    two = Guest()
    two.streaming, two.ids = one.streaming, one.ids
    reading = [asyncio.ensure_future(_read(guest.stream())) for guest in (one, two)]
    await one.begun.wait()
    await two.begun.wait()
    numbers = [guest.asked[0].request_id for guest in (one, two)]
    one.say(*(delta(f"for {id}", id=id) for id in (*numbers, 999, one.envelope + 100)))
    for guest in (one, two):
        guest.answer.set_result(result())
    for number, read in zip(numbers, reading, strict=True):
        chunk, _ = await read
        assert chunk == Chunk(f"for {number}")


@pytest.mark.parametrize(
    ("reason", "content", "stop"),
    [
        ("stop", [], "end"),
        ("length", [], "length"),
        ("toolUse", [], "tool_use"),
        ("aborted", [], "aborted"),
        ("error", [], "error"),
        ("", [{"text": "x"}], "end"),
        ("", [{"id": "t1", "name": "weather", "arguments": None}], "tool_use"),
        ("odd", [], "end"),
    ],
)
async def test_why_it_stopped(reason: str, content: list[Any], stop: str) -> None:
    guest = Guest()
    [last] = await guest.all(lambda: guest.answer.set_result(result(stopReason=reason, content=content)))
    assert isinstance(last, Completion)
    assert last.stop == stop


async def test_its_calls_are_those_of_the_result() -> None:
    guest = Guest()
    content = [{"thinking": "hm"}, {"id": "t1", "name": "weather", "arguments": {"city": "Bern"}}]
    [last] = await guest.all(lambda: guest.answer.set_result(result(content=content)))
    assert isinstance(last, Completion)
    assert (last.message.thinking, last.message.calls) == ("hm", (ToolCall("weather", {"city": "Bern"}, "t1"),))


async def test_a_cost_that_it_tells_is_believed() -> None:
    guest = Guest()
    [last] = await guest.all(lambda: guest.answer.set_result(result(usage={"inputTokens": 1, "cost": 0.5})))
    assert isinstance(last, Completion)
    assert last.usage == Usage(1, cost_usd=0.5)


# Says a piece (a number), answers, or lets whoever waits go on.
Move = int | str


@given(st.lists(st.one_of(st.integers(0, 3), st.just("go on")), max_size=30), st.integers(0, 30))
def test_however_pieces_and_the_result_come_all_are_handed_on_in_order(moves: list[Move], place: int) -> None:
    async def play() -> None:
        guest = Guest()
        reading = asyncio.ensure_future(_read(guest.stream()))
        await guest.begun.wait()
        sent: list[Chunk] = []
        for at, move in enumerate(moves):
            if at == place:
                guest.answer.set_result(result())
                break
            if isinstance(move, int):
                sent.append(Chunk(f"{at}", index=move))
                guest.say(delta(f"{at}", index=move))
            else:
                await asyncio.sleep(0)
        if not guest.answer.done():
            guest.answer.set_result(result())
        *pieces, last = await reading
        assert pieces == sent
        assert isinstance(last, Completion)

    asyncio.run(play())


# -- how it fails


def build_peer_gone() -> PeerGone:
    return PeerGone("extension acme-ext closed", who="piglet:acme-ext", exit=ExitStatus(code=3), stderr="boom")


@pytest.mark.parametrize(
    ("error", "words", "temporary"),
    [
        (Refused("overloaded", code=-32603), "overloaded", True),
        (Refused("x" * 5000), "x" * 500 + "…", True),
        (build_peer_gone(), "extension acme-ext crashed", True),
        (Closed("it was stopped"), "extension acme-ext closed", True),
        (BadFrame("its answer cannot be read"), "its answer cannot be read", True),
        (PeerStalled("it does not read"), "it does not read", True),
        (OversizeFrame("5 MB"), "5 MB", False),
        (FrameTooBig("5 MB"), "5 MB", False),
        (PeerTimeout("no answer", limit=LimitHit("provider", 3600)), "no answer", False),
    ],
)
async def test_what_goes_wrong_on_the_wire_is_the_models_failure(error: SeraiError, words: str, temporary: bool) -> None:
    guest = Guest()
    failed = await failure(guest, lambda: guest.answer.set_exception(error))
    assert (failed.message, failed.temporary, failed.too_long) == (words, temporary, isinstance(error, FrameTooBig))
    assert (failed.exit, failed.stderr, failed.limit) == (error.exit, error.stderr, error.limit)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (ProviderStreamResult(error="rate limited"), "rate limited"),
        (ProviderStreamResult(Raw(msgspec.json.encode(MESSAGE)), "rate limited"), "rate limited"),
        (ProviderStreamResult(), "cannot be read"),
        (ProviderStreamResult(Raw(b'{"content":"no list"}')), "cannot be read"),
        (result(error="upstream is down", stopReason="error"), "upstream is down"),
    ],
)
async def test_an_answer_that_is_none_is_the_models_failure(answer: ProviderStreamResult, words: str) -> None:
    guest = Guest()
    failed = await failure(guest, lambda: guest.answer.set_result(answer))
    assert words in failed.message
    assert failed.temporary


async def test_when_the_guest_is_lost_what_it_said_is_handed_on_and_then_its_end_is_told() -> None:
    guest = Guest()
    stream = guest.stream()
    first = asyncio.ensure_future(anext(stream))
    await guest.begun.wait()
    guest.say(delta("one"), delta("two"))
    guest.streaming.fail_all(build_peer_gone())
    guest.answer.set_exception(build_peer_gone())
    assert [await first, await anext(stream)] == [Chunk("one"), Chunk("two")]
    with pytest.raises(ModelFailed, match="extension acme-ext crashed") as caught:
        await anext(stream)
    assert caught.value.exit == ExitStatus(code=3)


async def test_a_lost_guest_ends_its_streams_also_when_the_call_does_not_end() -> None:
    guest = Guest(Limits().but(interrupt=0.01))
    failed = await failure(guest, lambda: guest.streaming.fail_all(build_peer_gone()))
    assert (failed.message, failed.temporary) == ("extension acme-ext crashed", True)
    assert guest.cancelled


async def test_an_answer_that_came_before_the_end_counts() -> None:
    guest = Guest()

    def play() -> None:
        guest.say(delta("Hel"))
        guest.answer.set_result(result())
        guest.streaming.fail_all(build_peer_gone())

    first, last = await guest.all(play)
    assert (first, type(last)) == (Chunk("Hel"), Completion)


@pytest.mark.parametrize("pieces", [["x" * 600, "x" * 600], ["ä" * 600], ["x" * 1001]], ids=["together", "bytes", "one"])
async def test_an_answer_that_is_too_long_is_stopped(pieces: Sequence[str]) -> None:
    guest = Guest(LIMITS.but(model_answer=1000))
    failed = await failure(guest, lambda: guest.say(*map(delta, pieces)))
    assert failed.limit == LimitHit("model_answer", 1000)
    assert not failed.temporary
    assert guest.cancelled


async def test_pieces_that_nobody_takes_are_bounded_however_short_they_are() -> None:
    guest = Guest(LIMITS.but(model_answer=10_000))
    stream = guest.stream()
    first = asyncio.ensure_future(anext(stream))
    await guest.begun.wait()
    guest.say(delta("first"))
    await first
    guest.say(*[delta("")] * 200)
    with pytest.raises(ModelFailed, match="too long"):
        await _read(stream)
    assert guest.cancelled


async def test_who_gives_up_has_cancelled_the_call() -> None:
    guest = Guest()
    stream = guest.stream()
    first = asyncio.ensure_future(anext(stream))
    await guest.begun.wait()
    guest.say(delta("Hel"), delta("lo"))
    await first
    await stream.aclose()
    assert guest.cancelled
    guest.say(delta("too late"))
    assert guest.streaming._streams == {}


async def test_who_is_cancelled_while_waiting_has_cancelled_the_call() -> None:
    guest = Guest()
    reading = asyncio.ensure_future(_read(guest.stream()))
    await guest.begun.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert guest.cancelled


async def test_a_call_that_somebody_else_cancelled_is_a_failure_and_cancels_nobody() -> None:
    guest = Guest()
    failed = await failure(guest, guest.answer.cancel)
    assert failed.message == "extension acme-ext closed"


Way = Callable[[Guest], object]


@pytest.mark.parametrize(
    "fail",
    [
        lambda guest: guest.answer.set_exception(Refused("overloaded")),
        lambda guest: guest.answer.set_result(ProviderStreamResult(error="overloaded")),
        lambda guest: guest.answer.set_result(ProviderStreamResult(Raw(b"[]"))),
        lambda guest: guest.answer.set_exception(build_peer_gone()),
    ],
    ids=["RPC error", "error", "undecodable", "crashed"],
)
async def test_the_agent_tries_again(fail: Way) -> None:
    """Through the resident's own retries: the second attempt succeeds, and what the first had said is not said."""
    attempts: list[Guest] = []
    playing: list[asyncio.Task[None]] = []

    class Provider:
        async def models(self) -> Sequence[Model]:
            return [MODEL]

        def stream(self, request: ModelRequest) -> Any:
            attempts.append(guest := Guest())
            playing.append(asyncio.create_task(self.play(guest, len(attempts))))
            return guest.stream(request)

        async def play(self, guest: Guest, attempt: int) -> None:
            await guest.begun.wait()
            guest.say(delta("Hel"))
            if attempt == 1:
                fail(guest)
            else:
                guest.answer.set_result(result())

    answer: Awaitable[Completion] = ModelCall(RunOutput(), LIMITS.but(model_wait=0.001)).get(Provider(), REQUEST)
    assert (await answer).message.content == (TextBlock("Hello"),)
    assert len(attempts) == 2

"""Lines in and out: events of what came, values as lines (spec agents 1.6, 5.2 D)."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.compat.agentboot import Decoder, Encoder, EncoderClosed, Event
from serai.compat.agentboot import codec as agentboot_codec
from serai.compat.agentboot.codec import NOISE, parse_object
from serai.errors import Closed
from serai.limits import KIB, MIB, Limits
from serai.wire.stream import Oversize


async def decode(data: bytes, *, limits: Limits | None = None) -> list[Event]:
    decoder = Decoder(limits=limits)
    decoder.feed(data)
    decoder.feed_eof()
    return [event async for event in decoder]


@pytest.mark.req("agents.rule.07")
@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b'{"type":"system"}', "system"),
        (b'{"a":{"type":"inner"},"b":[1,{"type":"x"}],"type":"result"}', "result"),
        (b'{"no":"type"}', "unknown"),
        (b'{"type":7}', "unknown"),
        (b'{"type":null}', "unknown"),
        (b"{}", "unknown"),
        (b"nothing of the kind", NOISE),
        (b'["type","system"]', NOISE),
        (b"null", NOISE),
        (b'{"type":"cut', NOISE),
    ],
)
async def test_the_type_of_an_event_is_that_of_its_frame_wherever_it_is_written(line: bytes, kind: str) -> None:
    (event,) = await decode(line + b"\n")
    assert (event.type, event.raw) == (kind, line.decode())
    if kind != NOISE:
        assert event.data == json.loads(line)


async def test_a_line_that_is_no_frame_is_noise_and_those_after_it_are_read() -> None:
    events = await decode(b'{"type":"a"}\r\n\n  \ngarbage\n{"type":"b"}\n{"type":"last"}')
    assert [event.type for event in events] == ["a", NOISE, "b", "last"]
    assert await decode(b"") == []


async def test_text_that_no_strict_parser_reads_is_mended() -> None:
    (event,) = await decode(b'\xef\xbb\xbf{"type":"a","text":"\\ud83d \xff"}\n')
    assert (event.type, event.data["text"]) == ("a", "\ufffd \ufffd")


async def test_a_line_that_is_too_long_is_noise() -> None:
    events = await decode(b'{"type":"' + b"x" * 300 + b'"}\n{"type":"b"}\n', limits=Limits().but(frame=100))
    assert [event.type for event in events] == [NOISE, "b"]
    assert "a frame of 312 bytes was skipped: the limit frame is 100" in events[0].data["why"]
    decoder = Decoder()
    decoder.handle_oversize(Oversize(10, b"head", 5))
    assert (await anext(decoder)).raw == "head"
    assert decoder.noise == 1


@pytest.mark.req("agents.scenario.D5")
async def test_to_cancel_ends_the_stream_while_somebody_waits_for_more() -> None:
    decoder = Decoder()
    reading = asyncio.ensure_future(anext(decoder))
    await asyncio.sleep(0)
    assert not reading.done()
    decoder.cancel()
    with pytest.raises(StopAsyncIteration):
        await reading
    assert isinstance(decoder.error, asyncio.CancelledError)
    error = decoder.error
    decoder.cancel()
    assert decoder.error is error


async def test_an_end_that_comes_by_itself_is_no_error() -> None:
    decoder = Decoder()
    decoder.handle_run(b'{"type":"a"}\n')
    cause = Closed("over")
    decoder.handle_loss(cause)
    decoder.cancel()
    assert [event.type async for event in decoder] == ["a"]
    assert (decoder.error, decoder.cause) == (None, cause)


async def test_whoever_sends_much_waits_until_it_is_taken() -> None:
    class Source:
        def __init__(self) -> None:
            self.calls: list[str] = []

        def pause(self) -> None:
            self.calls.append("pause")

        def resume(self) -> None:
            self.calls.append("resume")

    source = Source()
    decoder = Decoder(source)
    line = b'{"type":"' + b"x" * 300 * KIB + b'"}\n'
    for _ in range(4):
        decoder.handle_run(line)
    assert source.calls == ["pause"]
    for _ in range(3):
        await anext(decoder)
    assert source.calls[-1] == "resume"


@pytest.mark.req("agents.edge.27")
async def test_a_long_line_is_parsed_in_a_thread_and_the_loop_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    parse = agentboot_codec.parse_event

    def seen(line: bytes) -> Event:
        threads.append(threading.get_ident())
        return parse(line)

    monkeypatch.setattr(agentboot_codec, "parse_event", seen)
    rows = [{"number": number, "name": f"row {number}"} for number in range(300_000)]
    line = json.dumps({"type": "long", "groups": [{"rows": rows[n : n + 1000]} for n in range(0, len(rows), 1000)]}).encode()
    assert len(line) > 8 * MIB
    decoder = Decoder()
    decoder.handle_run(b'{"type":"short"}\n')
    decoder.handle_run(line + b"\n")
    assert (await anext(decoder)).type == "short"
    reading = asyncio.ensure_future(anext(decoder))
    served = 0
    while not reading.done():
        await asyncio.sleep(0.001)
        served += 1
    assert (await reading).data == json.loads(line)
    assert threads[0] == threading.get_ident() != threads[1]
    assert served > 3


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=30,
)


@given(st.dictionaries(st.text(max_size=5), _JSON, max_size=6))
def test_what_is_parsed_in_pieces_is_what_it_is_as_a_whole(value: dict[str, Any]) -> None:
    line = json.dumps(value).encode()
    piece, agentboot_codec._PIECE = agentboot_codec._PIECE, 4
    try:
        assert parse_object(line) == value
    finally:
        agentboot_codec._PIECE = piece


@given(st.binary(max_size=60))
def test_no_line_whatever_raises(line: bytes) -> None:
    event = agentboot_codec.parse_event(line)
    assert isinstance(event.type, str)
    assert isinstance(event.data, dict)


# -- out


class Slow:
    """A destination that takes its time."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def write(self, data: bytes) -> None:
        half = len(data) // 2
        self.written += data[:half]
        await self.gate.wait()
        await asyncio.sleep(0)
        self.written += data[half:]

    async def close(self) -> None:
        self.closed += 1


@pytest.mark.req("agents.rule.08")
async def test_those_who_write_at_once_do_so_one_after_the_other() -> None:
    destination = Slow()
    encoder = Encoder(destination)
    await asyncio.gather(*(encoder.encode({"n": number, "text": "x" * number}) for number in range(20)))
    assert [json.loads(line)["n"] for line in destination.written.splitlines()] == list(range(20))
    assert destination.written.endswith(b"\n")


@pytest.mark.req("agents.rule.08")
async def test_the_end_waits_for_what_is_being_written() -> None:
    destination = Slow()
    destination.gate.clear()
    encoder = Encoder(destination)
    writing = asyncio.ensure_future(encoder.encode({"a": 1}))
    closing = asyncio.ensure_future(encoder.close())
    for _ in range(5):
        await asyncio.sleep(0)
    assert (closing.done(), destination.closed) == (False, 0)
    destination.gate.set()
    await asyncio.gather(writing, closing)
    assert (destination.written, destination.closed) == (b'{"a":1}\n', 1)


@pytest.mark.req("agents.scenario.D7")
async def test_to_close_it_twice_closes_once_and_then_nothing_is_written() -> None:
    destination = Slow()
    encoder = Encoder(destination)
    await encoder.encode({"a": 1})
    await encoder.close()
    await encoder.close()
    assert destination.closed == 1
    with pytest.raises(EncoderClosed):
        await encoder.encode({"b": 2})
    assert destination.written == b'{"a":1}\n'


async def test_what_is_no_json_writes_nothing() -> None:
    destination = Slow()
    encoder = Encoder(destination)
    with pytest.raises(TypeError):
        await encoder.encode({"a": object()})
    assert destination.written == b""

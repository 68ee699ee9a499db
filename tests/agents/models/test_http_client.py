"""Server-sent events, cut in every way."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.agents.models.http_client import EventTooLong, SseDecoder

STREAM = b'event: a\ndata: {"x": 1}\n\n: a comment\r\ndata:two\r\ndata: lines\r\n\r\nid: 7\n\ndata: last'
EVENTS = [b'{"x": 1}', b"two\nlines", b"last"]


def read(pieces: list[bytes], most: int = 1000) -> list[bytes]:
    events = SseDecoder(most)
    found = [data for piece in pieces for data in events.feed(piece)]
    return found + list(events.end())


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_events_are_the_same_however_the_stream_is_cut(cuts: list[int]) -> None:
    at = [0, *sorted(cuts), len(STREAM)]
    assert read([STREAM[start:end] for start, end in pairwise(at)]) == EVENTS


@given(st.lists(st.binary(max_size=50), max_size=20))
def test_any_bytes_are_read_or_too_long(pieces: list[bytes]) -> None:
    try:
        found = read(pieces, 100)
    except EventTooLong:
        assert sum(map(len, pieces)) > 100
    else:
        assert sum(map(len, found)) <= sum(map(len, pieces))


@pytest.mark.parametrize("piece", [b"x" * 10, b"data: " + b"x" * 10 + b"\n"], ids=["a line without end", "an event without end"])
def test_what_never_ends_is_not_held(piece: bytes) -> None:
    events = SseDecoder(1000)
    with pytest.raises(EventTooLong):
        for _ in range(200):
            list(events.feed(piece))


def test_comments_that_keep_the_connection_alive_are_not_counted() -> None:
    assert read([b": wait", b"ing\n\n"] * 1000 + [b"data: x\n\n"], 100) == [b"x"]


def test_many_events_are_not_too_long() -> None:
    assert len(read([b"data: 0123456789\n\n"] * 1000, 100)) == 1000

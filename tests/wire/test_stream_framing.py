"""The framer: bytes in any cut, whole lines out."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterator
from types import FrameType

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from serai.wire.stream import Framer, Oversize, split_lines
from tests.support.profiles import examples

KIB = 1024
# Few and short pieces, so that lines end, and chunks are cut, on both sides of the small limits below.
PIECES = st.sampled_from([b"a", b"bc", b"\r", b" ", b"\x00", b"\n", b"\n\n", b"dddddddd"])
CHUNKS = st.lists(st.lists(PIECES, max_size=8).map(b"".join), max_size=10)
LIMITS = st.integers(1, 16) | st.just(64 * KIB)


def read_frames(*chunks: bytes, limit: int = 64 * KIB, head: int = 4 * KIB) -> list[bytes | Oversize]:
    """Everything that comes out of a whole stream, runs taken apart into lines with their LF."""
    framer = Framer(limit, head)
    out = [item for chunk in chunks for item in framer.feed(chunk)]
    assert all(isinstance(item, Oversize) or item.endswith(b"\n") for item in out), "a run is made of whole lines"
    return [
        line for item in [*out, *framer.feed_eof()] for line in ([item] if isinstance(item, Oversize) else iter_with_ends(item))
    ]


def iter_with_ends(stream: bytes) -> Iterator[bytes]:
    *whole, last = stream.split(b"\n")
    yield from (line + b"\n" for line in whole)
    if last:
        yield last


def expect_frames(stream: bytes, limit: int, head: int) -> list[bytes | Oversize]:
    """The same by splitting what is there as a whole."""
    lines = iter_with_ends(stream)
    return [line if len(line) <= limit else Oversize(len(line), line[: min(head, limit)], limit) for line in lines]


def dribble_and_count(size: int, limit: int) -> int:
    """How many bytes are searched, split or counted while a line of `size` bytes comes in byte by byte."""
    searched = 0

    def profile(_frame: FrameType, event: str, function: object) -> None:
        nonlocal searched
        owner = getattr(function, "__self__", None)
        if event == "c_call" and isinstance(owner, bytes | bytearray):
            searched += len(owner)

    framer = Framer(limit)
    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        for _ in range(size):
            framer.feed(b"x")
    finally:
        sys.setprofile(before)
    assert framer.pending == size
    return searched


@pytest.mark.req("wire.framing.any-chunking", "wire.framing.oversize", "wire.framing.oversize-goes-on")
@settings(deadline=None, max_examples=examples(1500))
@given(chunks=CHUNKS, limit=LIMITS, head=st.integers(0, 20))
@example(chunks=[b"b"] * 60 + [b"\n", b"a", b"\n", b"b", b"c", b"\n"], limit=4, head=2)
@example(chunks=[b"a\n" * 9 + b"bc" * 9 + b"\na\n" + b"bc" * 9], limit=4, head=9)
@example(chunks=[b"abcd", b"ef\n123456\n"], limit=8, head=9)
def test_any_chunking_gives_the_lines_that_splitting_the_whole_stream_gives(chunks: list[bytes], limit: int, head: int) -> None:
    assert read_frames(*chunks, limit=limit, head=head) == expect_frames(b"".join(chunks), limit, head)


@settings(deadline=None, max_examples=examples(300))
@given(chunks=CHUNKS, limit=LIMITS)
def test_pending_is_the_length_of_the_unfinished_line_also_when_it_is_over_the_limit(chunks: list[bytes], limit: int) -> None:
    framer = Framer(limit)
    for chunk in chunks:
        framer.feed(chunk)
    assert framer.pending == len(b"".join(chunks).rpartition(b"\n")[2])
    framer.feed_eof()
    assert framer.pending == 0


@pytest.mark.req("wire.framing.crlf")
def test_a_carriage_return_before_the_newline_is_no_part_of_the_frame() -> None:
    [run] = Framer(64).feed(b'{"a":1}\r\n{"b":2}\r\n')
    assert isinstance(run, bytes)
    assert split_lines(run) == [b'{"a":1}', b'{"b":2}']


@pytest.mark.req("wire.framing.crlf")
def test_a_carriage_return_cut_off_from_its_newline_is_no_part_of_the_frame_either() -> None:
    assert [split_lines(line) for line in read_frames(b"one\r", b"\ntwo\r\n") if isinstance(line, bytes)] == [[b"one"], [b"two"]]


@pytest.mark.req("wire.framing.blank")
def test_blank_lines_give_no_frame() -> None:
    assert split_lines(b"\n\n \t\r\none\n\r\n   \ntwo\n\n") == [b"one", b"two"]
    assert split_lines(b"\n") == []


@pytest.mark.req("wire.framing.blank")
def test_only_json_white_space_makes_a_line_blank() -> None:
    assert split_lines(b"\f\n\v one \v\n\x00\n") == [b"\f", b"\v one \v", b"\x00"]


@pytest.mark.req("wire.framing.last-line")
@pytest.mark.parametrize("chunks", [[b"one\ntwo"], [b"one\nt", b"wo"], [b"one\n", b"two", b""]])
def test_a_last_line_without_a_newline_is_a_frame_when_the_input_ends(chunks: list[bytes]) -> None:
    framer = Framer(64)
    assert [item for chunk in chunks for item in framer.feed(chunk)] == [b"one\n"]
    assert framer.feed_eof() == [b"two"]
    assert framer.feed_eof() == []


@pytest.mark.req("wire.framing.last-line")
def test_the_end_of_input_after_a_newline_gives_nothing() -> None:
    framer = Framer(64)
    framer.feed(b"one\n")
    assert framer.feed_eof() == []


@pytest.mark.req("wire.framing.oversize")
def test_the_newline_counts_towards_the_limit() -> None:
    assert read_frames(b"1234567\n", limit=8) == [b"1234567\n"]
    assert read_frames(b"12345678\n", limit=8) == [Oversize(9, b"12345678", 8)]
    assert read_frames(b"12345678", limit=8) == [b"12345678"]
    assert read_frames(b"123456789", limit=8) == [Oversize(9, b"12345678", 8)]


@pytest.mark.req("wire.framing.oversize")
def test_an_oversize_line_keeps_its_place_and_tells_its_true_size_its_head_and_the_limit() -> None:
    stream = b"a\nb\n" + b"0123456789" * 5 + b"\nc\n"
    assert read_frames(stream, limit=8, head=4) == [b"a\n", b"b\n", Oversize(51, b"0123", 8), b"c\n"]


@pytest.mark.req("wire.framing.oversize-goes-on")
def test_after_an_oversize_line_the_next_lines_are_measured_anew() -> None:
    framer = Framer(8)
    assert framer.feed(b"x" * 20) == []
    assert framer.feed(b"x" * 20 + b"\n1234567\n1") == [Oversize(41, b"x" * 8, 8), b"1234567\n"]
    assert framer.feed(b"234567\n1234567\n") == [b"1234567\n1234567\n"]
    assert framer.feed(b"y" * 8 + b"\n" + b"z" * 9 + b"\n") == [Oversize(9, b"y" * 8, 8), Oversize(10, b"z" * 8, 8)]


@pytest.mark.req("wire.framing.oversize-memory")
def test_of_an_oversize_line_only_its_head_is_kept_in_memory() -> None:
    framer = Framer(1024 * KIB, head=4 * KIB)
    tracemalloc.start()
    try:
        for number in range(1024):  # 64 MiB in all, each chunk an object of its own
            framer.feed(b"%d" % (number % 10) * (64 * KIB))
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 64 * KIB
    assert peak < 4 * 1024 * KIB
    assert framer.feed(b"\nnext\n") == [Oversize(64 * 1024 * KIB + 1, b"0" * 4 * KIB, 1024 * KIB), b"next\n"]


@pytest.mark.req("wire.framing.oversize-memory")
def test_a_line_in_tiny_pieces_takes_little_more_memory_than_its_bytes() -> None:
    framer = Framer(1024 * KIB)
    tracemalloc.start()
    try:
        for number in range(100 * KIB):
            framer.feed(b"%d" % (number % 10) * 2)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 3 * 200 * KIB
    assert len(framer.feed(b"\n")[0]) == 200 * KIB + 1


@pytest.mark.req("wire.framing.linear")
@pytest.mark.parametrize("limit", [64 * KIB, 1000], ids=["within the limit", "far over the limit"])
def test_a_line_that_dribbles_in_byte_by_byte_is_searched_once(limit: int) -> None:
    searched = dribble_and_count(8000, limit)
    assert 8000 <= searched <= 2 * 8000  # the lower bound: the count does see the search


@pytest.mark.req("wire.framing.no-copy")
def test_a_chunk_that_ends_with_a_newline_comes_out_as_the_very_object_that_went_in() -> None:
    framer = Framer(64)
    one_line, many_lines, more_than_the_limit = b"one\n", b"two\nthree\n", b"four\n" * 50
    assert framer.feed(one_line)[0] is one_line
    assert framer.feed(many_lines)[0] is many_lines
    assert framer.feed(more_than_the_limit)[0] is more_than_the_limit


@pytest.mark.req("wire.framing.only-lf")
@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\u0085", "\f", "\v", "\0", "\x1c", "\r"])
def test_only_lf_ends_a_line(mark: str) -> None:
    line = f"before{mark}after".encode()
    assert read_frames(line[:8], line[8:] + b"\n") == [line + b"\n"]
    assert split_lines(line + b"\n") == [line]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_that_no_line_can_meet_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        Framer(limit)

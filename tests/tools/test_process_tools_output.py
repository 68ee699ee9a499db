"""What a program says, made fit to be read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.plain_text import strip_output
from serai.tools.process_tools import OutputReporter, join_ends, shorten

PIECES = st.lists(
    st.sampled_from(
        [
            "a",
            "ä",
            "€",
            "\n",
            "\r",
            "\r\n",
            "\x1b[1m",
            "\x1b]0;t\x07",
            "\x1b]0;t\x1b\\",
            "\x1b(B",
            "\x1bPq\x1b\\",
            "\x1b",
            "\x9b2K",
            "\0",
            "x" * 50,
        ]
    )
).map("".join)


@pytest.mark.req("resident.tools.bash-text")
@given(text=PIECES)
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    assert not {char for char in strip_output(text) if char != "\n" and not char.isprintable()}


@pytest.mark.req("resident.tools.bash-text")
@given(text=st.text(st.characters(exclude_categories=["Cc", "Cs"])))
def test_text_is_left_as_it_is(text: str) -> None:
    assert strip_output(text) == text


@pytest.mark.req("resident.tools.bash-bounded")
@given(data=st.binary(max_size=400), most=st.integers(20, 100))
def test_whatever_comes_it_is_bounded_and_can_be_written_down(data: bytes, most: int) -> None:
    text = join_ends(data[:most], data[-most:], len(data), most)
    text.encode()
    assert len(text.encode()) <= most + 3 * 60
    if len(data) > most:
        assert "left out" in text


@pytest.mark.req("resident.tools.bash-bounded")
@given(text=st.text(max_size=200), most=st.integers(4, 100))
def test_a_short_text_is_whole_and_a_long_one_says_what_is_missing(text: str, most: int) -> None:
    made = shorten(text, most)
    assert made == text if len(text.encode(errors="replace")) <= most else "left out" in made


@pytest.mark.req("resident.tools.bash-told")
@given(text=PIECES, sizes=st.lists(st.integers(1, 7), min_size=1))
def test_however_it_is_cut_who_watches_hears_the_same(text: str, sizes: list[int]) -> None:
    import asyncio

    told: list[str] = []

    async def tell() -> None:
        reporter, data, at, turn = OutputReporter(told.append), text.encode(), 0, 0
        while at < len(data):
            size = sizes[turn % len(sizes)]
            reporter.take(data[at : at + size])
            at, turn = at + size, turn + 1
        reporter.finish()

    asyncio.run(tell())
    assert "".join(told) == strip_output(text)


@pytest.mark.req("resident.tools.bash-told")
async def test_an_escape_that_never_ends_is_not_waited_for() -> None:
    told: list[str] = []
    reporter = OutputReporter(told.append)
    for _ in range(100):
        reporter.take(b"\x1b[" + b"0" * 1000)
    assert len(reporter._held) <= 1100
    reporter.finish()

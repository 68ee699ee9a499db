"""What each function of `plain_text` does with what is not text."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from serai import plain_text
from serai.plain_text import (
    UNFINISHED_ESCAPE,
    escape_line,
    escape_surrogates,
    escape_text,
    find_invisible,
    is_visible,
    spell_literal,
    strip_codes,
    strip_output,
    strip_steering,
    strip_text,
)


def escape_literal(text: str) -> str:
    return escape_line(text, spell_literal)


def escape_strictly(text: str) -> str:
    return escape_line(text, is_shown=is_visible)


STRIP = (strip_codes, strip_output, strip_text, strip_steering)
ESCAPE = (escape_line, escape_literal, escape_strictly, escape_text, escape_surrogates)
SAME = None  # the text is left as it is

# For each text what the functions make of it, in the order of STRIP and of ESCAPE.
TABLE: dict[str, tuple[str, tuple[str | None, ...], tuple[str | None, ...]]] = {
    "plain": ("añ 漢 🎈", (SAME, SAME, SAME, SAME), (SAME, SAME, SAME, SAME, SAME)),
    "CSI": (
        "a\x1b[1;31mb",
        ("ab", "ab", "ab", SAME),
        (r"a\x1b[1;31mb", r"a\x1b[1;31mb", r"a\x1b[1;31mb", r"a\x1b[1;31mb", SAME),
    ),
    "CSI without an end": ("a\x1b[31", ("a31", "a31", "a31", SAME), (r"a\x1b[31", r"a\x1b[31", r"a\x1b[31", r"a\x1b[31", SAME)),
    "CSI in 8 bits": ("a\x9b2Jb", ("ab", "ab", "ab", SAME), (r"a\x9b2Jb", r"a\x9b2Jb", r"a\x9b2Jb", r"a\x9b2Jb", SAME)),
    "OSC": (
        "a\x1b]0;t\x07b",
        ("ab", "ab", "ab", SAME),
        (r"a\x1b]0;t\x07b", r"a\x1b]0;t\x07b", r"a\x1b]0;t\x07b", r"a\x1b]0;t\x07b", SAME),
    ),
    "OSC that ends with ST": (
        "\x1b]8;;http://x\x1b\\b",
        ("b", "b", "b", SAME),
        (
            r"\x1b]8;;http://x\x1b" + "\\b",
            r"\x1b]8;;http://x\x1b" + "\\b",
            r"\x1b]8;;http://x\x1b" + "\\b",
            r"\x1b]8;;http://x\x1b" + "\\b",
            SAME,
        ),
    ),
    "OSC in 8 bits hides nothing": (
        "a\x9d0;t\x9cb",
        ("a0;tb", "a0;tb", "a0;tb", SAME),
        (r"a\x9d0;t\x9cb", r"a\x9d0;t\x9cb", r"a\x9d0;t\x9cb", r"a\x9d0;t\x9cb", SAME),
    ),
    "OSC without an end hides nothing": (
        "a\x1b]0;t\nb\x07",
        ("a0;t\nb", "a0;t\nb", "a0;t\nb", SAME),
        (r"a\x1b]0;t\x0ab\x07", r"a\x1b]0;t\nb\x07", r"a\x1b]0;t\x0ab\x07", "a\\x1b]0;t\nb\\x07", SAME),
    ),
    "DCS": (
        "\x1bPq#\x1b\\z",
        ("z", "z", "z", SAME),
        (r"\x1bPq#\x1b\z", r"\x1bPq#\x1b\z", r"\x1bPq#\x1b\z", r"\x1bPq#\x1b\z", SAME),
    ),
    "short escapes": ("\x1b(Bx\x1bcy\x1b", ("xy", "xy", "xy", SAME), (*[r"\x1b(Bx\x1bcy\x1b"] * 4, SAME)),
    "C0": ("a\x00\x08\x0b\x7fb", ("ab", "ab", "ab", SAME), (*[r"a\x00\x08\x0b\x7fb"] * 4, SAME)),
    "C1": ("a\x84\x85\x9cb", ("ab", "ab", "ab", SAME), (*[r"a\x84\x85\x9cb"] * 4, SAME)),
    "carriage return": ("a\rb", (SAME, "a\nb", "ab", SAME), (r"a\x0db", r"a\rb", r"a\x0db", r"a\x0db", SAME)),
    "end of a line in DOS": ("a\r\nb", (SAME, "a\nb", "a\nb", SAME), (r"a\x0d\x0ab", r"a\r\nb", r"a\x0d\x0ab", "a\nb", SAME)),
    "newline": ("a\nb", (SAME, SAME, SAME, SAME), (r"a\x0ab", r"a\nb", r"a\x0ab", SAME, SAME)),
    "tab": ("a\tb", (SAME, SAME, SAME, SAME), (r"a\x09b", r"a\tb", r"a\x09b", "a       b", SAME)),
    "bidi": (
        "a\u202eb\u2066\u200f",
        (SAME, SAME, "ab", "ab"),
        (r"a\x202eb\x2066\x200f", r"a\u202eb\u2066\u200f", r"a\x202eb\x2066\x200f", r"a\x202eb\x2066\x200f", SAME),
    ),
    "line separator": ("a\u2028b", (SAME, SAME, "ab", "ab"), (r"a\x2028b", r"a\u2028b", r"a\x2028b", r"a\x2028b", SAME)),
    "tags": ("a\U000e0041", (SAME, SAME, "a", "a"), (r"a\xe0041", r"a\U000e0041", r"a\xe0041", r"a\xe0041", SAME)),
    "zero width": ("a\u200b\u200d", (SAME, SAME, SAME, SAME), (r"a\x200b\x200d", r"a\u200b\u200d", *[r"a\x200b\x200d"] * 2, SAME)),
    "printed as nothing": ("⚠\ufe0f\u3164", (SAME, SAME, SAME, SAME), (SAME, SAME, r"⚠\xfe0f\x3164", SAME, SAME)),
    "half a character": (
        "a\ud800",
        (SAME, SAME, "a\ufffd", "a\ufffd"),
        (r"a\xd800", r"a\ud800", r"a\xd800", r"a\xd800", r"a\ud800"),
    ),
}
ROWS = [
    pytest.param(function, text, text if made is SAME else made, id=f"{function.__name__}-{name}")
    for name, (text, stripped, escaped) in TABLE.items()
    for function, made in zip(STRIP + ESCAPE, stripped + escaped, strict=True)
]


@pytest.mark.parametrize(("function", "text", "made"), ROWS)
def test_what_is_not_text_is_removed_or_spelt_out(function: Callable[[str], str], text: str, made: str) -> None:
    assert function(text) == made


@pytest.mark.parametrize("name", TABLE)
def test_only_plain_text_is_visible(name: str) -> None:
    assert is_visible(TABLE[name][0]) == (name == "plain")


@pytest.mark.parametrize(
    "start", ["\x1b]", "\x1bP", "\x90", "\x98", "\x9d", "\x9f", "\x9b", "\x9b0;", "\x1b[ ", "\x1b ", "\x1b]0;\x9d", "\x9d\x1b]"]
)
def test_a_megabyte_of_escapes_that_do_not_end_is_read_in_one_pass(start: str) -> None:
    hostile = start * (2**20 // len(start)) + "\n"  # in quadratic time each of them takes an hour
    assert not set(strip_output(hostile)) & {"\x1b", "\x90", "\x98", "\x9b", "\x9d", "\x9f"}
    assert UNFINISHED_ESCAPE.search(hostile) is None


def test_every_character_that_stripping_removes_is_one_that_cannot_be_seen() -> None:
    removed = [char for char in map(chr, range(0x110000)) if strip_text(char) != char]
    assert [char for char in removed if find_invisible(char) is None] == []
    assert plain_text.name_character("\u202e") == "U+202E (right-to-left override)"

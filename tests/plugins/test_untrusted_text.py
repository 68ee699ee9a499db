"""Text that others had a hand in: cut, redacted, shown."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.dialects.yoi.host_api import RESPONSE, answer_request
from serai.dialects.yoi.messages import BadDocument, parse_json
from serai.plugins import untrusted_text

anything = st.text(st.characters(), max_size=300)  # with halves of surrogate pairs
shown_bad = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@pytest.mark.req("yoi.rule.088")
def test_control_characters_become_spaces_but_newline_and_tab_stay() -> None:
    assert untrusted_text.bound_text("a\x00b\x1b[31mc\x7fd\x9be\r\nf\tg") == "a b [31mc d e \nf\tg"


@pytest.mark.req("yoi.rule.088", "yoi.edge.36")
@pytest.mark.parametrize("hidden", ["\u061c", "\u200e", "\u200f", "\u2028", "\u2029", "\u202a", "\u202e", "\u2066", "\u2069",
                                    "\U000e0000", "\U000e0041", "\U000e007f"])  # fmt: skip
def test_what_turns_text_around_or_hides_in_it_is_dropped_from_a_message(hidden: str) -> None:
    assert untrusted_text.bound_text(f"a{hidden}b\n\tc{hidden}") == "ab\n\tc"
    assert untrusted_text.operator_text(f"{hidden * 600}x") == "x"  # and takes no room


@pytest.mark.req("yoi.rule.088")
@pytest.mark.parametrize(
    ("text", "bounded"),
    [
        ("x" * 512, "x" * 512),
        ("x" * 513, "x" * 512 + "…"),
        ("x" + "é" * 256, "x" + "é" * 255 + "…"),  # 513 bytes: the cut falls into a character
        ("🎈" * 129, "🎈" * 128 + "…"),
        ("é" * 256, "é" * 256),
    ],
)
def test_a_message_is_cut_at_512_bytes_and_never_inside_a_character(text: str, bounded: str) -> None:
    assert untrusted_text.bound_text(text) == bounded


@pytest.mark.req("yoi.rule.088")
@given(anything, st.integers(0, 40))
def test_any_text_is_bounded_once_and_for_all(text: str, most: int) -> None:
    short = untrusted_text.bound_text(text, most)
    assert len(short.encode()) <= most + len("…".encode())
    assert untrusted_text.bound_text(short, most) == short
    assert short.removesuffix("…") in untrusted_text.bound_text(text, 10_000)


@pytest.mark.req("yoi.rule.089")
@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("Authorization: Bearer abc", "Authorization: <redacted>"),
        ("sent Authorization: Bearer abc\nnext line", "sent Authorization: <redacted>\nnext line"),
        ("PROXY-AUTHORIZATION=Basic a b", "PROXY-AUTHORIZATION=<redacted>"),
        ("set-cookie: a=1; b=2", "set-cookie: <redacted>"),
        ("x-api-key:\tabc def", "x-api-key:\t<redacted>"),
        ("x-auth-token: abc def", "x-auth-token: <redacted>"),
        ("token = abc, and more", "token = <redacted>, and more"),
        ("password: abc;rest", "password: <redacted>;rest"),
        ("/notes/secret=abc/x y", "/notes/secret=<redacted> y"),
        ('{"token":"abc"} y', '{"token":<redacted> y'),
        ('{"password": "hunter2"}', '{"password": <redacted>'),
        ("{'secret': 'abc', 'more': 1}", "{'secret': <redacted>, 'more': 1}"),
        ('{"token" : "abc", "more": 1}', '{"token" : <redacted>, "more": 1}'),
        ("the secret token abc stays out", "the secret token <redacted> stays out"),
        ("no such word: abc", "no such word: abc"),
    ],
)
def test_what_stands_behind_a_word_for_a_credential_is_redacted(text: str, redacted: str) -> None:
    assert untrusted_text.redact(text) == redacted
    assert untrusted_text.redact(redacted) == redacted
    assert untrusted_text.operator_text(text) == redacted


@pytest.mark.req("yoi.rule.089")
def test_our_own_sentence_about_a_header_stays_readable() -> None:
    text = (
        "request header `Authorization` is credential-like and must be supplied by an explicit future secret-ref grant, "
        "not guest memory"
    )
    assert untrusted_text.redact(text) == text


@pytest.mark.req("yoi.rule.089")
def test_a_text_is_redacted_before_it_is_cut() -> None:
    assert "abc" not in untrusted_text.operator_text("x" * 500 + " Authorization: abc" + "y" * 99)
    assert "abc" not in str(BadDocument("Authorization: Bearer abc"))


@pytest.mark.req("yoi.edge.36")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 🎈", "plain é 🎈"),
        ("a\r\nb\tc\n", "a\nb\tc\n"),
        ("\x1b[2J\x1b[1;31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07text", "]0;titletext"),
        ("\x1b\x1b[0m[31mred", "[31mred"),
        ("over\rwritten\x08", "overwritten"),
        ("abc\u202edcba\u2066", "abcdcba"),
        ("hidden\U000e0041\U000e0042", "hidden"),
        ("half \ud83c", "half \ufffd"),
    ],
)
def test_control_sequences_are_neutralised_before_a_text_is_shown(text: str, shown: str) -> None:
    assert untrusted_text.to_display_text(text) == shown


@pytest.mark.req("yoi.edge.36")
@given(anything)
def test_nothing_that_is_shown_steers_a_terminal(text: str) -> None:
    assert not shown_bad.search(untrusted_text.to_display_text(text))


@pytest.mark.req("yoi.edge.12")
@pytest.mark.parametrize("body", [b"x" * (RESPONSE - 1) + "é".encode(), b"\xff" * RESPONSE, "€".encode() * RESPONSE])
def test_a_body_cut_inside_a_character_is_bounded_again(body: bytes) -> None:
    document = parse_json(answer_request(200, (), body))
    assert len(document["body"].encode()) <= RESPONSE
    assert document["truncated"]


@pytest.mark.req("yoi.rule.014")
@pytest.mark.parametrize(("seconds", "text"), [(0, "1970-01-01T00:00:00.000Z"), (1767323045.678, "2026-01-02T03:04:05.678Z")])
def test_a_moment_is_written_in_utc_with_milliseconds(seconds: float, text: str) -> None:
    assert untrusted_text.format_timestamp(seconds) == text
    assert untrusted_text.is_timestamp(text)


@pytest.mark.req("yoi.rule.017")
@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("2026-01-02T03:04:05Z", True), ("2026-01-02t03:04:05.123456789z", True), ("2026-01-02 03:04:05+01:30", True),
        ("2026-01-02T03:04:05", False), ("2026-01-02", False), ("2026-02-30T03:04:05Z", False), ("2026-01-02T25:04:05Z", False),
        ("now", False), ("", False), ("2026-01-02T03:04:05Z\n", False), ("٢٠٢٦-01-02T03:04:05Z", False),
    ],
)  # fmt: skip
def test_a_timestamp_is_rfc_3339(text: str, good: bool) -> None:
    assert untrusted_text.is_timestamp(text) is good

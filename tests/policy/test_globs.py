"""Patterns over one text, against a reference that nobody could get wrong."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serai.policy.patterns import compile_glob, escape_glob, glob_pieces
from tests.support.profiles import examples


def meant(pattern: list[tuple[str, bool]], text: str) -> bool:
    """What a pattern means, by trying everything."""
    if not pattern:
        return not text
    (char, plain), rest = pattern[0], pattern[1:]
    if char == "*" and not plain:
        return any(meant(rest, text[at:]) for at in range(len(text) + 1))
    if char == "?" and not plain:
        return bool(text) and meant(rest, text[1:])
    return text[:1] == char and meant(rest, text[1:])


@settings(max_examples=examples(500), deadline=None)
@given(st.text("ab*?\\\n", max_size=8), st.text("ab*\\\n", max_size=8))
def test_a_pattern_matches_what_the_reference_matches(pattern: str, text: str) -> None:
    assert bool(compile_glob(pattern).fullmatch(text)) is meant(list(glob_pieces(pattern)), text)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=[]), max_size=10), st.text(st.characters(exclude_categories=[]), max_size=10))
def test_an_escaped_text_matches_itself_alone(text: str, other: str) -> None:
    assert compile_glob(escape_glob(text)).fullmatch(text)
    assert bool(compile_glob(escape_glob(text)).fullmatch(other)) is (text == other)


def test_upper_and_lower_case_are_apart() -> None:
    assert not compile_glob("Bash").fullmatch("bash")


@pytest.mark.req("policy.rule.linear")
@pytest.mark.timeout(20, method="signal")  # a pattern at work lets no other thread run
@pytest.mark.parametrize("pattern", ["*a*a*a*a*a*a*a*a*b", "*a*a*a*a*ac", "a*" * 20 + "b", "*?*?*?*?*?*?b", "*" * 50 + "b"])
def test_a_nasty_pattern_takes_no_longer_for_a_text_that_is_made_for_it(pattern: str) -> None:
    assert not compile_glob(pattern).fullmatch("a" * 1_000_000)

"""The text of a message, whichever way it was written (spec agents 4.2)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.agents.drivers.claude.transcripts.rows import prompt_text, said_text, text_of


def text(value: Any) -> dict[str, Any]:
    return {"type": "text", "text": value}


THINKING = {"type": "thinking", "thinking": "hmm", "signature": "s"}
CALL = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"text": "no text"}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "of a tool"}


@pytest.mark.req("agents.scenario.X15")
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([text("one"), text("two")], "onetwo"),
        ([text("one\n"), THINKING, CALL, text("two")], "one\ntwo"),
        ([THINKING], ""),
        ([text("")], ""),
        ([], ""),
        ("", ""),
        (None, ""),
        (7, ""),
        ([7, None, "x", {"type": "text"}, text(5), text("one")], "one"),
    ],
)
def test_blocks_are_joined_with_nothing_between_and_thinking_is_no_text(content: Any, expected: str) -> None:
    assert said_text(content) == text_of(content) == expected


@pytest.mark.req("agents.scenario.X13")
def test_a_tools_result_counts_when_there_is_nothing_else() -> None:
    assert text_of([RESULT]) == text_of([RESULT | {"content": [text("of a"), text(" tool")]}]) == "of a tool"
    assert text_of([RESULT, text("said")]) == "said"
    assert said_text([RESULT]) == prompt_text([RESULT]) == ""
    assert text_of([RESULT | {"content": None}]) == ""


@pytest.mark.req("agents.scenario.X16")
@given(st.text(), st.integers(1, 4))
def test_a_string_and_an_equal_list_of_text_blocks_are_the_same(said: str, pieces: int) -> None:
    size = -(-len(said) // pieces) or 1
    blocks = [text(said[at : at + size]) for at in range(0, len(said), size)]
    assert text_of(said) == text_of(blocks) == said_text(said) == said_text(blocks) == said
    if len(blocks) <= 1:
        assert prompt_text(said) == prompt_text(blocks)

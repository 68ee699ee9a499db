"""The text of a message, whichever way it was written (spec agents 4.2)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.agents.drivers.claude.transcripts.rows import extract_prompt, extract_said_text, extract_text


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
    assert extract_said_text(content) == extract_text(content) == expected


@pytest.mark.req("agents.scenario.X13")
def test_a_tools_result_counts_when_there_is_nothing_else() -> None:
    assert extract_text([RESULT]) == extract_text([RESULT | {"content": [text("of a"), text(" tool")]}]) == "of a tool"
    assert extract_text([RESULT, text("said")]) == "said"
    assert extract_said_text([RESULT]) == extract_prompt([RESULT]) == ""
    assert extract_text([RESULT | {"content": None}]) == ""


@pytest.mark.req("agents.scenario.X16")
@given(st.text(), st.integers(1, 4))
def test_a_string_and_an_equal_list_of_text_blocks_are_the_same(said: str, pieces: int) -> None:
    size = -(-len(said) // pieces) or 1
    blocks = [text(said[at : at + size]) for at in range(0, len(said), size)]
    assert extract_text(said) == extract_text(blocks) == extract_said_text(said) == extract_said_text(blocks) == said
    if len(blocks) <= 1:
        assert extract_prompt(said) == extract_prompt(blocks)

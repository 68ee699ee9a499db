"""What the neutral values do by themselves."""

from __future__ import annotations

import pytest

import serai.model
from serai.model.actions import Display, Notice
from serai.model.approvals import Approval
from serai.model.events import Event, Message, StepStarted, Text, Thinking, ToolInput, TurnResult, event_kind, merge_fragments
from serai.model.provider import Model
from serai.model.tools import ImageBlock, TextBlock, ToolCall, ToolResult, ToolSpec


def test_everything_the_package_promises_is_there() -> None:
    assert all(getattr(serai.model, name) is not None for name in dir(serai.model))


# -- tools ------------------------------------------------------------------------------------------------------------------------


def test_the_text_of_a_result_is_its_text_blocks() -> None:
    assert ToolResult((TextBlock("a"), ImageBlock(b""), TextBlock("b"))).text == "a\nb"
    assert ToolResult().text == ""
    assert ToolResult.error("no", code="DENIED", hint="ask") == ToolResult((TextBlock("no"),), True, "DENIED", "ask")


def test_a_tool_without_a_schema_takes_any_object_and_shares_it_with_no_other() -> None:
    first, second = ToolSpec("a"), ToolSpec("b")
    assert first.schema == {"type": "object"}
    assert first.schema is not second.schema
    assert ToolCall("a").arguments == {}


# -- actions ----------------------------------------------------------------------------------------------------------------------


def test_notes_carry_the_name_of_their_guest_on_each_line() -> None:
    assert Display("a\nb", "weather").format_lines() == ["[weather] a", "[weather] b"]
    assert Notice("a\n\nb", source="serai").format_lines() == ["[serai] a", "[serai] ", "[serai] b"]
    assert Notice("a").format_lines() == ["a"]


# -- events -----------------------------------------------------------------------------------------------------------------------


def test_an_event_and_its_type_have_the_same_kind() -> None:
    assert event_kind(StepStarted(step=1)) == event_kind(StepStarted) == "step_started"
    assert event_kind(Approval(id="1", call=ToolCall("bash"))) == "approval"


@pytest.mark.parametrize("kind", [Text, Thinking, ToolInput])
def test_pieces_of_one_stream_are_joined_and_keep_the_place_of_the_first(kind: type[Text]) -> None:
    first = kind(text="a", seq=1, at=1.0, session="s", index=2, native={"piece": 1})
    second = kind(text="b", seq=2, at=2.0, session="s", index=2, native={"piece": 2})
    assert merge_fragments(first, second) == kind(text="ab", seq=1, at=1.0, session="s", index=2)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Text(text="a"), Thinking(text="b")),
        (Text(text="a"), Text(text="b", index=1)),
        (Text(text="a"), Text(text="b", lane="sub")),
        (Text(text="a"), Text(text="b", session="other")),
        (Text(text="a"), Text(text="b", agent="other")),
        (StepStarted(step=1), StepStarted(step=1)),
        (Message(), Message()),
    ],
)
def test_everything_else_stays_apart(first: Event, second: Event) -> None:
    assert merge_fragments(first, second) is None


def test_a_turn_is_well_only_when_it_succeeded() -> None:
    assert TurnResult(status="success").ok
    assert not TurnResult(status="denied").ok


def test_a_model_is_known_by_its_provider_and_id() -> None:
    assert Model("opus", provider="anthropic").key == "anthropic/opus"

"""Neutral events in the words of piglet."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.host.adapters.piglet.event_dispatch import TYPES, EventTranslator, find_kinds
from serai.model import events
from serai.model.approvals import Approval
from serai.model.events import Event, Usage, event_kind
from serai.model.provider import Chunk
from serai.model.tools import OtherBlock, TextBlock, ToolCall, ToolResult
from tests.support.agents.scripted_models import QUICK, Answers, Box, call, echo, reply, resident
from tests.support.piglet.translated_events import CALL, EVENTS, OK, RUN, decode_events, translate, types


@pytest.mark.req("piglet.rule.event-order")
@pytest.mark.req("piglet.rule.event-types")
def test_each_of_the_17_has_its_payload() -> None:
    translator = EventTranslator()
    seen: set[str] = set()
    for event, expected in RUN:
        found = decode_events(translator.translate(event))
        assert found == expected
        seen.update(type for type, _ in found)
    # The one that is missing is never emitted; it is the shape of the bus topic `bash.tail`.
    assert len(TYPES) == 17
    assert seen == TYPES - {"EventToolUpdate"}


@pytest.mark.req("piglet.rule.event-order")
def test_without_history_no_session_was_loaded() -> None:
    found = translate(events.TurnStarted(prompt="go"), events.TurnPrepared())
    assert types(found) == ["AgentStart", "AgentInit", "PromptBuild", "MessagePre"]


def test_an_unknown_tool_ends_without_having_started() -> None:
    found = translate(events.ToolEnded(call=CALL, result=ToolResult.error("unknown tool: echo")))
    assert found[0][1]["Result"] == [{"type": "text", "text": "unknown tool: echo"}]
    assert types(found) == ["ToolEnd"]


def test_what_a_sub_agent_does_is_not_told() -> None:
    assert translate(*(msgspec.structs.replace(event, lane="sub") for event, _ in RUN)) == []


def test_what_piglet_has_no_word_for_is_not_told() -> None:
    odd = (
        events.SessionStarted(),
        events.Plan(),
        events.Stderr(line="x"),
        events.StateChanged(state="x"),
        events.OtherEvent(kind="x"),
    )
    assert translate(*odd) == []


def test_of_several_attempts_only_the_last_was_thought() -> None:
    found = translate(
        events.StepStarted(step=1),
        events.Thinking(text="first"),
        events.Retrying(attempt=1, most=3, wait=0.1),
        events.Thinking(text="second"),
        events.UsageReported(usage=Usage(1000)),  # of a summary, for the conversation was too long
        events.Compacted(before=9, after=3),
        events.Thinking(text="third"),
        events.Message(content=(TextBlock("ok"),), model="m1"),
        events.StepEnded(step=1),
    )
    message = found[-1][1]["Message"]
    assert message["content"] == [{"type": "thinking", "thinking": "third"}, {"type": "text", "text": "ok"}]
    assert message["usage"]["inputTokens"] == 0
    assert (message["provider"], message["model"]) == ("", "m1")


def test_a_step_that_failed_says_why_and_its_turn_ends_before_the_run() -> None:
    found = translate(events.StepStarted(step=1), events.StepEnded(step=1, stop="error", error="no"), events.TurnEnded(result=OK))
    assert types(found) == ["TurnStart", "StreamDone", "TurnEnd", "AgentEnd"]
    assert (found[1][1]["Message"]["stopReason"], found[1][1]["Message"]["error"]) == ("error", "no")
    assert found[2][1]["ToolResults"] is None


def test_a_turn_in_which_nothing_was_said_has_no_assistant() -> None:
    found = translate(events.StepStarted(step=1), events.StepStarted(step=2), events.TurnEnded(result=OK))
    assert types(found) == ["TurnStart", "TurnEnd", "TurnStart", "TurnEnd", "AgentEnd"]
    assert found[1][1] == {"Assistant": None, "ToolResults": None}


def test_content_that_is_no_json_does_not_cost_the_rest() -> None:
    odd = ToolResult((OtherBlock("odd", object()), TextBlock("ok")), is_error=True)
    found = translate(events.ToolEnded(call=CALL, result=odd))
    assert found[0][1]["Result"][1] == {"type": "text", "text": "ok"}


def test_what_nobody_wants_to_hear_is_not_gathered() -> None:
    translator = EventTranslator({"EventToolEnd", "EventTurnStart"}.__contains__)
    for event, _ in RUN * 2:
        translator.translate(event)
    assert (translator._results, translator._step.empty, translator._assistant) == ({}, True, None)


def test_outside_of_a_step_nothing_is_gathered_for_ever() -> None:
    translator = EventTranslator()
    for event, _ in RUN * 2:
        if not isinstance(event, events.StepStarted):
            translator.translate(event)
    assert (translator._results, translator._step.empty, translator._assistant) == ({}, True, None)


# -- who needs which


@pytest.mark.parametrize("type", sorted(TYPES))
def test_the_kinds_that_a_type_needs_are_enough_for_it(type: str) -> None:
    """Who is told only these kinds hears the same as who is told everything."""
    kinds = find_kinds([type])
    everything = translate(*(event for event, _ in RUN), wanted=type.__eq__)
    assert translate(*(event for event, _ in RUN if event_kind(event) in kinds), wanted=type.__eq__) == everything
    assert bool(everything) == bool(kinds)


@pytest.mark.parametrize("types", [None, [], frozenset(), TYPES])
def test_no_types_are_all(types: Any) -> None:
    assert find_kinds(types) == {event_kind(event) for event, expected in RUN if expected} | {"message", "tool_called", "usage"}


def test_unknown_types_need_nothing() -> None:
    assert find_kinds(["EventNever", "agentStart"]) == frozenset()
    assert find_kinds(["EventNever", "EventTurnStart"]) == {"step_started"}


# -- the resident's own events


async def test_a_whole_run_of_the_resident_is_one_of_the_spec() -> None:
    provider = Answers(
        [Chunk("hm", "thinking"), Chunk("lo"), Chunk("ok"), reply("look", call("echo", "c1", a=1), call("nope", "c2"))],
        [Chunk("done"), reply("done")],
    )
    found: list[tuple[str, Any]] = []
    translator = EventTranslator()
    async with resident(provider, step_mode=True) as session:
        for prompt in ("go", "again"):
            async for event in session.turn(prompt):
                found += decode_events(translator.translate(event))
                if isinstance(event, Approval):
                    await event.allow()
    first = types(found)[: types(found).index("AgentEnd") + 1]
    assert first == [
        *("AgentStart", "AgentInit", "PromptBuild", "MessagePre"),
        *("TurnStart", "StreamDelta", "StreamDelta", "StreamDelta", "StreamDone"),
        *("StepWait", "ToolStart", "ToolEnd", "ToolEnd", "TurnEnd"),
        *("TurnStart", "StreamDelta", "StreamDone", "TurnEnd", "AgentEnd"),
    ]
    assert ("EventSessionLoad", {"MessageCount": 5}) in found
    [end, *_] = [data for type, data in found if type == "EventTurnEnd"]
    assert [result["toolCallId"] for result in end["ToolResults"]] == ["c1", "c2"]
    assert end["ToolResults"][1]["content"] == [{"type": "text", "text": "unknown tool: nope"}]
    assert end["Assistant"]["usage"]["inputTokens"] == 100


async def test_a_run_that_is_interrupted_ends_its_turn() -> None:
    begun = asyncio.Event()

    async def hang(call: ToolCall, tell: Any) -> ToolResult:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    found: list[tuple[str, Any]] = []
    translator = EventTranslator()
    async with resident(Answers([reply("", call("hang"))]), Box(hang=hang, echo=echo), limits=QUICK) as session:
        turn = session.turn("go")
        reading = asyncio.ensure_future(_collect(turn))
        await begun.wait()
        await session.interrupt()
        for event in await reading:
            found += decode_events(translator.translate(event))
    assert types(found)[-3:] == ["ToolEnd", "TurnEnd", "AgentEnd"]
    [result] = found[-2][1]["ToolResults"]
    assert result["isError"]


async def _collect(turn: Any) -> list[Event]:
    return [event async for event in turn]


@given(st.lists(EVENTS, max_size=40))
def test_whatever_happens_has_words_and_turns_have_ends(happened: list[Event]) -> None:
    found = translate(*happened)
    assert {type for type, _ in found} <= TYPES
    turns = [type for type in types(found) if type in ("TurnStart", "TurnEnd")]
    assert turns == ["TurnStart", "TurnEnd"] * (len(turns) // 2) + ["TurnStart"] * (len(turns) % 2)

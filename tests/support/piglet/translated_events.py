"""A run in neutral words and in piglet's, and anything that may happen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

from serai.host.adapters.piglet.event_dispatch import TYPES, EventTranslator, Payload
from serai.model import events
from serai.model.approvals import Approval
from serai.model.events import Event, TurnResult, Usage
from serai.model.tools import ImageBlock, OtherBlock, TextBlock, ToolCall, ToolResult

CALL = ToolCall("echo", {"a": 1}, "c1")
BARE = ToolCall("echo", {}, "c2")
OK = TurnResult(status="success")
AT = 1_770_112_800.25
TIME = "2026-02-03T10:00:00.250000000Z"


def decode_events(told: Sequence[tuple[str, Payload]]) -> list[tuple[str, Any]]:
    """As they would arrive."""
    return [(type, msgspec.json.decode(msgspec.json.encode(data))) for type, data in told]


def translate(*told: Event, wanted: Callable[[str], bool] = TYPES.__contains__) -> list[tuple[str, Any]]:
    translator = EventTranslator(wanted)
    return decode_events([one for event in told for one in translator.translate(event)])


def types(told: Sequence[tuple[str, Any]]) -> list[str]:
    return [type.removeprefix("Event") for type, _ in told]


RUN: list[tuple[Event, list[tuple[str, Any]]]] = [
    (events.TurnStarted(prompt="go"), [("EventAgentStart", {})]),
    (
        events.TurnPrepared(messages=4, tools=2, system="S"),
        [
            ("EventSessionLoad", {"MessageCount": 4}),
            ("EventAgentInit", {"ToolCount": 2}),
            ("EventPromptBuild", {"System": "S"}),
            ("EventMessagePre", {"Content": "go"}),
        ],
    ),
    (events.StepStarted(step=1), [("EventTurnStart", {})]),
    (events.Thinking(text="hm", index=1), [("EventStreamDelta", {"Kind": "thinking", "Index": 1, "Delta": "hm"})]),
    (events.Text(text="lo"), [("EventStreamDelta", {"Kind": "text", "Index": 0, "Delta": "lo"})]),
    (events.ToolInput(text="{}", index=2), [("EventStreamDelta", {"Kind": "toolcall", "Index": 2, "Delta": "{}"})]),
    (events.Message(content=(TextBlock("look"),), model="test/m1"), []),
    (events.ToolCalled(call=CALL), []),
    (events.ToolCalled(call=BARE), []),
    (events.UsageReported(usage=Usage(5, 1, 2, 3, 0.5)), []),
    (
        events.StepEnded(step=1, stop="tool_use", at=AT),
        [
            (
                "EventStreamDone",
                {
                    "Message": (
                        message := {
                            "role": "assistant",
                            "content": [
                                {"type": "thinking", "thinking": "hm"},
                                {"type": "text", "text": "look"},
                                {"type": "tool_call", "id": "c1", "name": "echo", "arguments": {"a": 1}},
                                {"type": "tool_call", "id": "c2", "name": "echo", "arguments": {}},
                            ],
                            "model": "m1",
                            "provider": "test",
                            "usage": {
                                "inputTokens": 5,
                                "outputTokens": 1,
                                "cacheReadTokens": 2,
                                "cacheWriteTokens": 3,
                                "cost": 0.5,
                            },
                            "stopReason": "toolUse",
                            "timestamp": TIME,
                        }
                    )
                },
            )
        ],
    ),
    (
        Approval(id="a1", call=CALL, reason_type="step"),
        [("EventStepWait", {"ToolCallID": "c1", "ToolName": "echo", "Args": {"a": 1}})],
    ),
    (Approval(id="a2", call=CALL, reason_type="rule"), []),
    (events.ToolStarted(call=BARE), [("EventToolStart", {"ToolCallID": "c2", "ToolName": "echo", "Args": None})]),
    (events.ToolProgress(call=BARE, text="…"), []),
    (
        events.ToolEnded(call=BARE, result=ToolResult((TextBlock("fine"),), details={"files": 1}), at=AT),
        [("EventToolEnd", {"ToolCallID": "c2", "ToolName": "echo", "Result": {"files": 1}, "IsError": False})],
    ),
    (
        events.ToolEnded(call=CALL, result=ToolResult((TextBlock("no"), ImageBlock(b"x", "image/png")), is_error=True), at=AT),
        [
            (
                "EventToolEnd",
                {
                    "ToolCallID": "c1",
                    "ToolName": "echo",
                    "Result": [{"type": "text", "text": "no"}, {"type": "image", "data": "eA==", "mimeType": "image/png"}],
                    "IsError": True,
                },
            )
        ],
    ),
    (
        events.StepSettled(step=1),
        [
            (
                "EventTurnEnd",
                {
                    "Assistant": message,
                    "ToolResults": [
                        {
                            "role": "tool_result",
                            "toolCallId": "c1",
                            "toolName": "echo",
                            "content": [{"type": "text", "text": "no"}, {"type": "image", "data": "eA==", "mimeType": "image/png"}],
                            "isError": True,
                            "timestamp": TIME,
                        },
                        {
                            "role": "tool_result",
                            "toolCallId": "c2",
                            "toolName": "echo",
                            "content": [{"type": "text", "text": "fine"}],
                            "isError": False,
                            "timestamp": TIME,
                        },
                    ],
                },
            )
        ],
    ),
    (events.StepsExhausted(count=3, most=3), [("EventMaxTurns", {"Count": 3, "Max": 3})]),
    (
        events.Retrying(attempt=1, most=3, wait=0.5, error="busy"),
        [("EventRetry", {"Attempt": 1, "Max": 3, "DelayMs": 500, "Error": "busy"})],
    ),
    (events.Compacted(before=9, after=3, tokens=70), [("EventCompact", {"Before": 9, "After": 3, "TokensAtCompact": 70})]),
    (events.TurnEnded(result=OK), [("EventAgentEnd", {"Messages": None})]),
]


_CALLS = st.sampled_from([CALL, BARE, ToolCall("nope", "no json", "c3"), ToolCall("", None)])
_TEXTS = st.text(max_size=3)
_RESULTS = st.sampled_from(
    [ToolResult.of("ok"), ToolResult.error("no"), ToolResult(), ToolResult((OtherBlock("odd", object()),), True)]
)
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(events.TurnStarted, prompt=_TEXTS),
    st.builds(events.TurnPrepared, messages=st.integers(0, 3)),
    st.builds(events.StepStarted, step=st.integers(0, 3)),
    st.builds(events.Text, text=_TEXTS, index=st.integers(0, 1)),
    st.builds(events.Thinking, text=_TEXTS),
    st.builds(events.ToolInput, text=_TEXTS),
    st.builds(
        events.Message, content=st.tuples(st.builds(TextBlock, _TEXTS)), model=st.sampled_from(["", "m1", "a/b/c", "/", "a/"])
    ),
    st.builds(events.ToolCalled, call=_CALLS),
    st.builds(events.ToolStarted, call=_CALLS),
    st.builds(events.ToolEnded, call=_CALLS, result=_RESULTS),
    st.builds(events.UsageReported, usage=st.just(Usage(1))),
    st.builds(events.StepEnded, stop=st.sampled_from(["end", "length", "tool_use", "error", "aborted"]), error=_TEXTS),
    st.builds(events.StepSettled),
    st.builds(events.StepsExhausted, count=st.just(1), most=st.just(1)),
    st.builds(events.Retrying, attempt=st.just(1), most=st.just(1), wait=st.floats(0, 5)),
    st.builds(events.Compacted, before=st.just(2), after=st.just(1)),
    st.builds(Approval, id=_TEXTS, call=_CALLS, reason_type=st.sampled_from(["", "step"])),
    st.builds(events.TurnEnded, result=st.just(OK)),
    st.builds(events.OtherEvent, kind=_TEXTS, lane=st.sampled_from(["", "sub"])),
)

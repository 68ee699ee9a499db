"""What the real program wrote, as neutral events: the whole list, written down by hand from spec agents 2.5 and 2.10."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serai.model import events
from serai.model.events import (
    Event,
    Message,
    NoticeEvent,
    OtherEvent,
    Retrying,
    StateChanged,
    StepEnded,
    StepSettled,
    StepStarted,
    Stop,
    Text,
    Thinking,
    ToolCalled,
    ToolEnded,
    ToolInput,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Usage,
    UsageReported,
)
from serai.model.tools import NativeCall, TextBlock, ToolCall, ToolResult
from serai.store import SessionWriter
from serai.store.messages import AssistantMessage, StoredToolCall, ToolResultMessage
from serai.store.messages import StoredText as Words
from tests.support.claude.frames import CAPTURES, fold_capture, read_capture
from tests.support.stored_sessions import create, show

MODEL = "claude-opus-5-5"
ASKING = StateChanged(state="requesting")
RAN = {"stdout": "hi", "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}
WRITE_A_FILE = {"command": "echo hi > f.txt && cat f.txt", "description": "write a file"}


def native(name: str, arguments: Any, id: str = "toolu_1") -> ToolCall:
    return ToolCall(name, arguments, id, "claude", NativeCall(name, arguments))


def bash(arguments: dict[str, Any], id: str = "toolu_1") -> ToolCall:
    return ToolCall("bash", arguments, id, "claude", NativeCall("Bash", arguments))


def step(number: int, pieces: list[str], *, index: int = 0, stop: Stop = "end", inside: list[Event] | None = None) -> list[Event]:
    """A step in which the model only says something."""
    return [
        StepStarted(step=number),
        *(inside or []),
        *(Text(text=piece, index=index) for piece in pieces),
        Message(content=(TextBlock("".join(pieces)),), model=MODEL),
        UsageReported(usage=Usage(100, 20)),
        StepEnded(step=number, stop=stop),
    ]


def build_run(call: ToolCall, text: str, details: Any, *, error: bool = False) -> list[Event]:
    answer = ToolResult((TextBlock(text),), is_error=error, details=details)
    return [ToolStarted(call=call), ToolEnded(call=call, result=answer)]


WRITES: list[Event] = [  # the first step of many: it says what it does, and calls bash
    ASKING,
    StepStarted(step=1),
    Text(text="I will "),
    Text(text="write a"),
    Text(text=" file."),
    ToolInput(text='{"command": "echo hi > f.txt && cat f', index=1),
    ToolInput(text='.txt", "description": "write a file"}', index=1),
    Message(content=(TextBlock("I will write a file."),), model=MODEL),
    ToolCalled(call=bash(WRITE_A_FILE)),
    UsageReported(usage=Usage(100, 20)),
    StepEnded(step=1, stop="tool_use"),
]
DONE: list[Event] = [ASKING, StepSettled(step=1), *step(2, ["All", " do", "ne."]), StepSettled(step=2)]


def build_denial(text: str) -> ToolEnded:
    answer = ToolResult((TextBlock(text),), is_error=True, code="DENIED", details=f"Error: {text}")
    return ToolEnded(call=bash(WRITE_A_FILE), result=answer)


LOOKS = native(
    "Agent",
    {"description": "look around", "prompt": "Say hi from below", "subagent_type": "Explore", "run_in_background": False},
)
QUESTIONS = {
    "questions": [
        {
            "question": "Which colour?",
            "header": "Colour",
            "multiSelect": False,
            "options": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}],
        }
    ]
}
ASKS = native("AskUserQuestion", QUESTIONS)
ADDS = native("mcp__calc__add", {"a": 2, "b": 3})
SLEEPS = bash({"command": "python3 -c 'import time; time.sleep(30)'", "description": "sleep"})
A, B = (
    bash({"command": f"echo {name} > {name}.txt", "description": name}, id) for name, id in (("a", "toolu_1"), ("b", "toolu_2"))
)
SILENT = {"stdout": "", "stderr": "", "interrupted": False, "isImage": False, "noOutputExpected": False}
SILENCE = "(Bash completed with no output)"

WHOLE: dict[str, list[Event]] = {
    "text": [ASKING, *step(1, ["Hello fro", "m the fak", "e model."]), StepSettled(step=1)],
    # Without pieces: the text comes once all the same, and the usage is the only one that was told.
    "oneshot": [
        StepStarted(step=1),
        Text(text="Hello from the fake model."),
        Message(content=(TextBlock("Hello from the fake model."),), model=MODEL),
        UsageReported(usage=Usage(100, 1)),
        StepEnded(step=1),
        StepSettled(step=1),
    ],
    "think": [
        ASKING,
        *step(
            1,
            ["Though", "t abou", "t it."],
            index=1,
            inside=[StateChanged(state="thinking"), Thinking(text="pondering")],
        ),
        StepSettled(step=1),
    ],
    "tool-allow": [*WRITES, *build_run(bash(WRITE_A_FILE), "hi", RAN), *DONE],
    "tool-deny": [*WRITES, build_denial("No thanks, not today."), *DONE],
    "tool-errorresponse": [*WRITES, build_denial("Tool permission request failed: Error: callback blew up"), *DONE],
    "hooks-command": [
        *WRITES[:9],
        OtherEvent(kind="system/hook_started"),
        *WRITES[9:],
        OtherEvent(kind="system/hook_response"),
        *build_run(bash(WRITE_A_FILE), "hi", RAN),
        *DONE,
    ],
    "message-mid-turn": [
        ASKING,
        OtherEvent(kind="user/replay"),
        *WRITES[1:],
        *build_run(bash(WRITE_A_FILE), "hi", RAN),
        OtherEvent(kind="user/replay"),
        *DONE,
    ],
    "twotools": [
        ASKING,
        StepStarted(step=1),
        ToolInput(text='{"command": "echo a > a.'),
        ToolInput(text='txt", "description": "a"}'),
        ToolCalled(call=A),
        ToolInput(text='{"command": "echo b > b.', index=1),
        ToolInput(text='txt", "description": "b"}', index=1),
        ToolCalled(call=B),
        UsageReported(usage=Usage(100, 20)),
        StepEnded(step=1, stop="tool_use"),
        *build_run(A, SILENCE, SILENT),
        *build_run(B, SILENCE, SILENT),
        ASKING,
        StepSettled(step=1),
        *step(2, ["Both", " don", "e."]),
        StepSettled(step=2),
    ],
    "sdk-mcp": [
        ASKING,
        StepStarted(step=1),
        ToolInput(text='{"a": 2,'),
        ToolInput(text=' "b": 3}'),
        ToolCalled(call=ADDS),
        UsageReported(usage=Usage(100, 20)),
        StepEnded(step=1, stop="tool_use"),
        *build_run(ADDS, "5", [{"type": "text", "text": "5"}]),
        ASKING,
        StepSettled(step=1),
        *step(2, ["Fi", "ve", "."]),
        StepSettled(step=2),
    ],
    "ask": [
        ASKING,
        StepStarted(step=1),
        ToolInput(text='{"questions": [{"question": "Which colour?", "header": "Colour", "multiSelect": false, "opti'),
        ToolInput(text='ons": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}]}]}'),
        ToolCalled(call=ASKS),
        UsageReported(usage=Usage(100, 20)),
        StepEnded(step=1, stop="tool_use"),
        *build_run(
            ASKS,
            'Your questions have been answered: "Which colour?"="Blue". You can now continue with these answers in mind.',
            QUESTIONS | {"answers": {"Which colour?": "Blue"}},
        ),
        ASKING,
        StepSettled(step=1),
        *step(2, ["You ", "chos", "e."]),
        StepSettled(step=2),
    ],
    "interrupt-text": [
        ASKING,
        StepStarted(step=1),
        *[Text(text="word ")] * 10,
        OtherEvent(kind="retracted"),
        OtherEvent(kind="user/text"),
        UsageReported(usage=Usage(100, 1)),
        StepEnded(step=1, stop="aborted"),
        StepSettled(step=1),
    ],
    "cut": [
        ASKING,
        Retrying(attempt=1, most=1, wait=0.619, error="unknown"),
        StepStarted(step=1),
        Text(text="half of a sentence that never"),
        Message(content=(TextBlock("half of a sentence that never"),), model=MODEL),
        UsageReported(usage=Usage(100, 20)),
        StepEnded(step=1),
        StepSettled(step=1),
    ],
    "nokey": [
        ASKING,
        StepStarted(step=1),
        StepEnded(step=1, stop="error", error="Not logged in · Please run /login"),
        StepSettled(step=1),
    ],
    "noserver": [
        ASKING,
        Retrying(attempt=1, most=1, wait=0.0, error="unknown"),  # the wait is random: put in below
        StepStarted(step=1),
        StepEnded(
            step=1,
            stop="error",
            error="API Error: Connection refused — a firewall or proxy may be blocking it (ECONNREFUSED)",
        ),
        StepSettled(step=1),
    ],
    "resume-bad": [],
    "sigterm-tool": [  # it was told to end, and there is no result: the driver ends what is open
        ASKING,
        StepStarted(step=1),
        ToolInput(text='{"command": "python3 -c \'import time; t'),
        ToolInput(text='ime.sleep(30)\'", "description": "sleep"}'),
        ToolCalled(call=SLEEPS),
        UsageReported(usage=Usage(100, 20)),
        StepEnded(step=1, stop="tool_use"),
        *build_run(SLEEPS, "Exit code 137", "Error: Exit code 137", error=True),
        ASKING,
    ],
}


@pytest.mark.req("agents.live.Z7", "agents.rule.70", "agents.live.Z6")
@pytest.mark.parametrize("name", sorted(WHOLE))
def test_a_capture_is_these_events_and_no_others(name: str) -> None:
    found, fold = fold_capture(name)
    expected = WHOLE[name]
    if name == "noserver":
        [frame] = [frame for frame in read_capture(name) if frame.get("subtype") == "api_retry"]
        expected = [*expected]
        expected[1] = Retrying(attempt=1, most=1, wait=frame["retry_delay_ms"] / 1000, error="unknown")
    assert found == expected
    assert not fold.translator.tasks


@pytest.mark.req("agents.rule.73")
def test_a_sub_agent_is_in_a_lane_of_its_own() -> None:
    found, fold = fold_capture("subagent-forward")
    [below, result] = [frame for frame in read_capture("subagent-forward") if frame["type"] == "user"]
    assert below["parent_tool_use_id"] == "toolu_1"
    lane = "toolu_1"
    [block] = result["message"]["content"]
    report = ToolResult((TextBlock(block["content"][0]["text"]),), details=result["tool_use_result"])
    assert found == [
        ASKING,
        StepStarted(step=1),
        ToolInput(text='{"description": "look around", "prompt": "Say hi from belo'),
        ToolInput(text='w", "subagent_type": "Explore", "run_in_background": false}'),
        ToolCalled(call=LOOKS),
        OtherEvent(kind="system/task_started"),
        UsageReported(usage=Usage(100, 20)),
        StepEnded(step=1, stop="tool_use"),
        OtherEvent(kind="user/text", lane=lane),
        StepStarted(step=1, lane=lane),
        Text(text="Hi from below.", lane=lane),
        Message(content=(TextBlock("Hi from below."),), model=MODEL, lane=lane),
        UsageReported(usage=Usage(100, 1), lane=lane),
        StepEnded(step=1, lane=lane),
        StepSettled(step=1, lane=lane),
        OtherEvent(kind="system/task_updated"),
        OtherEvent(kind="system/task_notification"),
        ToolStarted(call=LOOKS),
        ToolEnded(call=LOOKS, result=report),
        ASKING,
        StepSettled(step=1),
        *step(2, ["Subage", "nt fin", "ished."]),
        StepSettled(step=2),
    ]
    assert not fold.translator.tasks
    assert fold.outcomes[0].text == "Subagent finished."


def test_who_is_not_allowed_by_claude_itself_is_told_to_the_person() -> None:
    found, _ = fold_capture("dontask")
    [frame] = [frame for frame in read_capture("dontask") if frame["type"] == "user"]
    answer = ToolResult(
        (TextBlock(frame["message"]["content"][0]["content"]),), is_error=True, code="DENIED", details=frame["tool_use_result"]
    )
    [notice] = [event.notice for event in found if isinstance(event, NoticeEvent)]
    assert (notice.level, notice.source) == ("warn", "claude")
    assert notice.text.startswith("Bash was not allowed: Permission to use Bash has been denied because")
    assert "\n" not in notice.text
    assert len(notice.text) < 400
    assert found == [*WRITES, NoticeEvent(notice=notice), ToolEnded(call=bash(WRITE_A_FILE), result=answer), *DONE]


@pytest.mark.parametrize("name", CAPTURES)
def test_only_what_has_no_neutral_word_is_other(name: str) -> None:
    words = {
        *("system/task_started", "system/task_updated", "system/task_notification", "system/ui_invalidate"),
        *("system/hook_started", "system/hook_response", "user/text", "user/replay", "retracted"),
    }
    found, fold = fold_capture(name)
    assert {event.kind for event in found if isinstance(event, OtherEvent)} <= words
    # What has begun has an end, and each lane's steps count from one.
    found += fold.translator.end(interrupted=True, gone=True)
    for lane in {event.lane for event in found}:
        steps = [event for event in found if event.lane == lane and isinstance(event, StepStarted | StepEnded | StepSettled)]
        assert [event.step for event in steps] == [number for number in range(1, len(steps) // 3 + 1) for _ in range(3)]
        assert [type(event) for event in steps] == [StepStarted, StepEnded, StepSettled] * (len(steps) // 3)
    called = [event.call.id for event in found if isinstance(event, ToolCalled)]
    assert sorted(called) == sorted(event.call.id for event in found if isinstance(event, ToolEnded))


@pytest.mark.parametrize("name", CAPTURES)
def test_a_store_reads_back_a_sound_conversation(name: str, tmp_path: Path) -> None:
    """Every call has its result right after it, and what was said stands there once."""
    with create(tmp_path) as session:
        writer = SessionWriter(session)
        found, fold = fold_capture(name)
        found += fold.translator.end(interrupted=True, gone=True)
        for event in [TurnStarted(prompt="go"), *found]:
            writer.tell(event)
        how = fold.outcomes[-1].to_turn_result() if fold.outcomes else events.TurnResult(status="error")
        writer.tell(TurnEnded(result=how))
        writer.close()
        messages = session.read_messages()
        answers = [message.content for message in messages if isinstance(message, AssistantMessage)]
        calls = [item.id for content in answers for item in content if isinstance(item, StoredToolCall)]
        results = [message.tool_call_id for message in messages if isinstance(message, ToolResultMessage)]
        assert sorted(calls) == sorted(results)
        assert len(set(results)) == len(results)
        kept = "".join(item.text for content in answers for item in content if isinstance(item, Words))
        told = "".join(event.text for event in found if isinstance(event, Text) and not event.lane)
        assert kept == (told or how.text)  # one form of output has nothing but the result
        if how.ok and how.text:
            assert kept.count(how.text) == 1
        if name == "tool-allow":
            assert show(session) == [
                "user: go",
                "assistant: I will write a file.[toolu_1 bash]",
                "toolu_1: hi",
                "assistant: All done.",
            ]

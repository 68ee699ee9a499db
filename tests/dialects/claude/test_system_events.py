"""All that happens beside the conversation, a session over several turns, and whatever else may come."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serai.dialects.claude.frame_reader import FrameReader
from serai.dialects.claude.neutral import FrameTranslator
from serai.model import events
from serai.model.actions import Notice
from serai.model.events import (
    Compacted,
    Event,
    NoticeEvent,
    OtherEvent,
    StateChanged,
    StepEnded,
    StepSettled,
    StepStarted,
    ToolCalled,
    ToolEnded,
)
from tests.support.claude.frames import (
    Fold,
    assistant,
    block_stop,
    call_start,
    delta,
    init,
    message_delta,
    message_start,
    message_stop,
    result,
    result_of,
    system,
    task_start,
    text,
    text_start,
    use,
    user,
)
from tests.support.profiles import examples


@pytest.mark.req("agents.live.Z5")
def test_an_init_at_each_turn_is_no_second_session() -> None:
    fold = Fold()
    assert fold(init("s1")) == []
    assert fold(init("s1")) == []
    assert (fold.translator.session, fold.translator.model, fold.translator.version, fold.translator.mode) == (
        "s1",
        "opus",
        "2.1.325",
        "default",
    )
    assert fold(init("s1", mode="plan")) == [StateChanged(state="mode:plan")]
    assert fold.translator.session == "s1"


@pytest.mark.req("agents.live.Z3")
def test_two_results_in_one_process_and_the_text_of_ours() -> None:
    fold = Fold()
    host = {"user_message_uuid": "p1", "user_message_uuids": ["p1"]}
    fold(init(), assistant(text("mine")), result("mine", **host, total_cost_usd=0.1))
    fold(init(), assistant(text("later"), id="m2"), result("later", origin={"kind": "task-notification"}, total_cost_usd=0.3))
    mine, later = fold.outcomes
    assert [how.answers("p1") for how in fold.outcomes] == [True, False]
    assert [how.answers() for how in fold.outcomes] == [True, False]
    assert (mine.text, later.text) == ("mine", "later")
    assert not mine.answers("p2")  # another prompt's


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (system("status", status="compacting"), [StateChanged(state="compacting")]),
        (system("status", status=None, permissionMode="plan"), [StateChanged(state="mode:plan")]),
        (system("status", status=None), []),
        (system("session_state_changed", state="idle"), [StateChanged(state="idle")]),
        (
            system("compact_boundary", compact_metadata={"trigger": "auto", "pre_tokens": 99}),
            [Compacted(before=0, after=0, tokens=99)],
        ),
        (system("informational", content="so", level="warning"), [NoticeEvent(notice=Notice("so", "warn", "claude"))]),
        (system("informational", content="\x1b[1mso\x1b[0m", level="notice"), [NoticeEvent(notice=Notice("so", "info", "claude"))]),
        (system("notification", key="k", text="look", priority="low"), [NoticeEvent(notice=Notice("look", "info", "claude"))]),
        (system("local_command_output", content="cost: 0"), [NoticeEvent(notice=Notice("cost: 0", "info", "claude"))]),
        (system("informational"), [OtherEvent(kind="system/informational")]),
        (
            system("permission_denied", tool_name="Bash", message="no\nmore", decision_reason="a \x1b[31mrule"),
            [NoticeEvent(notice=Notice("Bash was not allowed: a rule", "warn", "claude"))],
        ),
        (
            system("hook_response", hook_name="Stop", outcome="error", stderr="boom\nbang", exit_code=2),
            [NoticeEvent(notice=Notice("the hook Stop failed: boom", "warn", "claude"))],
        ),
        (system("hook_response", hook_name="Stop", outcome="success"), [OtherEvent(kind="system/hook_response")]),
        (system("brand_new", x=1), [OtherEvent(kind="system/brand_new")]),
        (
            {
                "type": "rate_limit_event",
                "rate_limit_info": {"status": "allowed_warning", "rateLimitType": "five_hour", "utilization": 0.9},
            },
            [NoticeEvent(notice=Notice("the rate limit (five_hour) is near: 90% of it is used", "warn", "claude"))],
        ),
        (
            {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected"}},
            [NoticeEvent(notice=Notice("the rate limit is reached", "error", "claude"))],
        ),
        ({"type": "rate_limit_event", "rate_limit_info": {"status": "allowed"}}, [OtherEvent(kind="rate_limit_event")]),
        ({"type": "brand_new"}, [OtherEvent(kind="brand_new")]),
        ({"type": "keep_alive"}, []),
        ({"type": "control_cancel_request", "request_id": "r"}, []),
        (user("said", isSynthetic=True), [OtherEvent(kind="user/synthetic")]),
    ],
)
def test_everything_else_in_neutral_words(frame: dict[str, Any], expected: list[Event]) -> None:
    assert Fold()(frame) == expected


def test_memory_stays_flat_however_long_a_turn_is() -> None:
    fold, reader = FrameTranslator(), FrameReader()
    piece = "x" * 10_000

    def turn(number: int) -> None:
        id = f"m{number}"
        frames = [
            message_start(id),
            text_start(0, None, id),
            *[delta(0, None, id, text=piece)] * 20,
            assistant(text(piece * 20), id=id),
            call_start(1, f"c{number}", "Bash") | {"api_message_id": id},
            *[delta(1, None, id, partial_json=piece)] * 20,
            assistant(use(f"c{number}", "Bash", command=piece * 20), id=id),
            message_delta("tool_use", None, id),
            message_stop(None, id),
            result_of(f"c{number}", piece * 20, tool_use_result={"stdout": piece * 20}),
        ]
        for frame in frames:
            for read, line in reader.read(msgspec.json.encode(frame) + b"\n"):
                fold.translate(read, line)

    turn(0)
    tracemalloc.start()
    try:
        for number in range(1, 4):
            turn(number)
        before, _ = tracemalloc.get_traced_memory()
        for number in range(4, 54):  # 60 MB of frames
            turn(number)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 1_000_000


# -- whatever comes

_ids = st.sampled_from(["c1", "c2", "a1"])
_lanes = st.sampled_from([None, "a1"])
_messages = st.sampled_from(["m1", "m2", ""])
_words = st.text(max_size=4)
_frames = st.one_of(
    st.builds(message_start, _messages, _lanes),
    st.builds(text_start, st.integers(0, 2), _lanes, _messages),
    st.builds(lambda index, call: call_start(index, call, "Bash"), st.integers(0, 2), _ids),
    st.builds(
        lambda index, lane, message, said: delta(index, lane, message, text=said), st.integers(0, 2), _lanes, _messages, _words
    ),
    st.builds(lambda index, said: delta(index, partial_json=said), st.integers(0, 2), _words),
    st.builds(block_stop, st.integers(0, 2), _lanes, _messages),
    st.builds(message_delta, st.sampled_from(["end_turn", "tool_use", None]), _lanes, _messages),
    st.builds(message_stop, _lanes, _messages),
    st.builds(lambda said, message, lane: assistant(text(said), id=message, lane=lane, uuid="u1"), _words, _messages, _lanes),
    st.builds(
        lambda call, message, lane: assistant(use(call, "Bash", command="ls"), id=message, lane=lane, uuid="u2"),
        _ids,
        _messages,
        _lanes,
    ),
    st.builds(lambda message: assistant(text("s"), id=message, supersedes=["u1", "u2"]), _messages),
    st.builds(lambda call, lane: result_of(call, lane=lane), _ids, _lanes),
    st.builds(lambda call: task_start("t1", call), _ids),
    st.just(system("task_notification", task_id="t1", status="completed")),
    st.just(system("api_retry", attempt=1)),
    st.just(user("hello")),
    st.just(init()),
    st.builds(result, _words),
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(_frames, max_size=30))
def test_whatever_comes_what_has_begun_has_an_end(frames: list[dict[str, Any]]) -> None:
    fold = Fold()
    found = [*fold(*frames), *fold.translator.end(interrupted=True, gone=True)]
    running: set[str] = set()
    steps: dict[str, list[str]] = {}
    for event in found:
        if isinstance(event, ToolCalled):
            assert event.call.id not in running
            running.add(event.call.id)
        elif isinstance(event, ToolEnded):
            running.remove(event.call.id)
        elif isinstance(event, StepStarted | StepEnded | StepSettled):
            steps.setdefault(event.lane, []).append(events.event_kind(event))
    assert not running
    for kinds in steps.values():
        assert kinds.count("step_started") == kinds.count("step_ended") >= kinds.count("step_settled")
        assert [kind for kind in kinds if kind != "step_settled"] == ["step_started", "step_ended"] * kinds.count("step_started")
    assert fold.translator.end(interrupted=True, gone=True) == []

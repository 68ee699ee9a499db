"""What the model says and calls, in whatever order its frames come."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from serai.model.events import (
    Message,
    Plan,
    PlanEntry,
    StepEnded,
    StepSettled,
    StepStarted,
    Text,
    Thinking,
    ToolCalled,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    Usage,
    UsageReported,
)
from serai.model.tools import ImageBlock, OtherBlock, TextBlock, ToolResult
from tests.support.claude.frames import (
    Fold,
    assistant,
    block_start,
    block_stop,
    call_start,
    delta,
    kinds,
    message_delta,
    message_start,
    message_stop,
    message_texts,
    result,
    result_of,
    text,
    text_start,
    texts,
    tool_results,
    use,
    user,
)


@pytest.mark.req("agents.live.Z6", "agents.rule.70")
def test_frames_of_one_message_are_one_message_and_their_usage_is_never_summed() -> None:
    fold = Fold()
    found = fold(
        assistant(text("One."), usage={"input_tokens": 7, "output_tokens": 1}),
        assistant(text("Two."), usage={"input_tokens": 7, "output_tokens": 2}),
        assistant(use("c1", "Bash", command="ls"), usage={"input_tokens": 7, "output_tokens": 3}),
        assistant(use("c2", "Bash", command="pwd"), usage={"input_tokens": 7, "output_tokens": 3}),
        result_of("c1"),
    )
    assert kinds(found) == [
        *("step_started", "text", "text", "message", "tool_called", "tool_called"),
        *("usage", "step_ended", "tool_started", "tool_ended"),
    ]
    assert found[3] == Message(content=(TextBlock("One."), TextBlock("Two.")), model="opus")
    assert found[6] == UsageReported(usage=Usage(7, 3))
    assert found[7] == StepEnded(step=1, stop="tool_use")


def test_what_is_said_after_a_call_is_a_message_at_the_end() -> None:
    found = Fold()(assistant(text("a"), use("c1", "Bash", command="ls"), text("b")), result())
    assert message_texts(found) == ["a", "b"]
    assert kinds(found)[:6] == ["step_started", "text", "message", "tool_called", "text", "message"]


@pytest.mark.req("agents.live.Z7")
@pytest.mark.parametrize("early", [True, False])
def test_a_text_that_streamed_and_came_whole_is_told_once(early: bool) -> None:
    """The whole of it comes before its stop (2.1.325) or after it."""
    whole, stop = assistant(text("Hello")), block_stop(0)
    last = [whole, stop] if early else [stop, whole]
    fold = Fold()
    found = fold(message_start(), text_start(), delta(0, text="Hel"), delta(0, text="lo"), *last, message_delta(), message_stop())
    assert texts(found) == ["Hel", "lo"]
    assert message_texts(found) == ["Hello"]


def test_the_full_frame_wins_over_what_streamed() -> None:
    found = Fold()(message_start(), text_start(), delta(0, text="Hel"), assistant(text("Hello")), message_delta())
    assert texts(found) == ["Hel", "lo"]
    assert message_texts(found) == ["Hello"]


def test_the_whole_frame_may_come_when_the_message_has_ended() -> None:
    fold = Fold()
    found = fold(
        message_start(), text_start(), delta(0, text="Hi"), block_stop(0), message_delta(), assistant(text("Hi")), message_stop()
    )
    assert kinds(found) == ["step_started", "text", "step_ended", "message"]


def test_two_texts_of_a_message_are_told_apart() -> None:
    fold = Fold()
    found = fold(
        message_start(),
        *(text_start(0), delta(0, text="a"), assistant(text("a")), block_stop(0)),
        *(text_start(1), delta(1, text="b"), assistant(text("b")), block_stop(1)),
        message_delta(),
    )
    assert [(event.text, event.index) for event in found if isinstance(event, Text)] == [("a", 0), ("b", 1)]
    assert found[3] == Message(content=(TextBlock("a"), TextBlock("b")), model="opus")


def test_pieces_whose_beginning_was_not_told_are_told() -> None:
    found = Fold()(delta(3, text="in the middle"), delta(3, text=" of it"))
    assert kinds(found) == ["step_started", "text", "text"]
    found = Fold()(delta(0, thinking="hm"), message_delta())
    assert kinds(found) == ["step_started", "thinking", "step_ended"]


def test_thinking_comes_once_and_is_no_part_of_the_message() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "x"}
    secret = {"type": "redacted_thinking", "data": "x"}
    assert kinds(Fold()(assistant(thinking, secret, text("a")), result())) == [
        *("step_started", "thinking", "text", "message", "step_ended", "step_settled"),
    ]
    fold = Fold()
    found = fold(message_start(), block_start(0, thinking | {"thinking": ""}), delta(0, thinking="hm"), assistant(thinking))
    assert [event.text for event in found if isinstance(event, Thinking)] == ["hm"]


def test_blocks_without_a_word_of_ours_are_kept_as_they_came() -> None:
    search = {"type": "server_tool_use", "id": "srv1", "name": "web_search", "input": {"query": "x"}}
    new = {"type": "hologram", "depth": 3}
    [message] = [event for event in Fold()(assistant(text("a"), search, new), result()) if isinstance(event, Message)]
    assert message.content == (TextBlock("a"), OtherBlock("server_tool_use", search), OtherBlock("hologram", new))


def test_the_last_word_on_usage_counts() -> None:
    fold = Fold()
    found = fold(
        message_start(input_tokens=9, output_tokens=1),
        assistant(text("a"), usage={"input_tokens": 9, "output_tokens": 1, "cache_read_input_tokens": 4}),
        message_delta("max_tokens", output_tokens=33),
        assistant(text("b"), usage={"input_tokens": 9, "output_tokens": 1}),
        result(),
    )
    assert [event.usage for event in found if isinstance(event, UsageReported)] == [Usage(9, 33, 4)]
    assert [event.stop for event in found if isinstance(event, StepEnded)] == ["length"]


@pytest.mark.parametrize(
    ("word", "stop"),
    [("end_turn", "end"), ("stop_sequence", "end"), ("max_tokens", "length"), ("refusal", "error"), ("tool_use", "tool_use")],
)
def test_why_a_message_ended(word: str, stop: str) -> None:
    [ended] = [event for event in Fold()(message_start(), message_delta(word)) if isinstance(event, StepEnded)]
    assert ended.stop == stop


def test_a_step_settles_when_the_next_one_begins() -> None:
    fold = Fold()
    found = fold(assistant(use("c1", "Bash", command="ls")), result_of("c1"), assistant(text("b"), id="m2"), result())
    assert [event for event in found if isinstance(event, StepStarted | StepEnded | StepSettled)] == [
        *(StepStarted(step=1), StepEnded(step=1, stop="tool_use"), StepSettled(step=1)),
        *(StepStarted(step=2), StepEnded(step=2), StepSettled(step=2)),
    ]
    assert fold(assistant(text("c"), id="m3"))[0] == StepStarted(step=1)  # in each turn from one


def test_messages_without_an_id_are_told_by_what_comes_between() -> None:
    found = Fold()(
        assistant(text("a"), id=""), assistant(use("c", "Bash", command="ls"), id=""), result_of("c"), assistant(text("b"), id="")
    )
    assert [event.step for event in found if isinstance(event, StepStarted)] == [1, 2]
    assert message_texts(found) == ["a"]


# -- calls


@pytest.mark.req("agents.rule.71")
def test_the_input_of_a_call_that_streamed_is_read_once_at_its_stop() -> None:
    fold = Fold()
    start = [message_start(), call_start(0, "c1", "Read"), delta(0, partial_json='{"file_path":'), delta(0, partial_json=' "/a"}')]
    assert "tool_called" not in kinds(fold(*start))
    [called] = fold(block_stop(0))
    assert isinstance(called, ToolCalled)
    assert (called.call.name, called.call.arguments) == ("read", {"path": "/a"})
    assert fold(assistant(use("c1", "Read", file_path="/a")), block_stop(0)) == []  # told already


@pytest.mark.req("agents.rule.71")
@pytest.mark.parametrize("broken", ['{"file_path": "/a', "nonsense", '{"a": 1} more', "[" * 100_000, '"\ud800'])
def test_input_that_is_no_json_raises_nothing(broken: str) -> None:
    fold = Fold()
    frame = delta(0, partial_json="?")
    fold(message_start(), call_start(0, "c1", "Read"))
    part = fold.translator._main.parts[0]  # half a character is nothing that a frame can have
    part.pieces.append(broken)
    [called] = fold(block_stop(0))
    assert isinstance(called, ToolCalled)
    assert (called.call.name, called.call.arguments) == ("read", broken)
    assert kinds(fold(frame)) == ["tool_input"]
    assert list(tool_results(fold.translator.end())) == ["c1"]


def test_a_call_without_arguments_has_none() -> None:
    fold = Fold()
    [called] = fold(message_start(), call_start(0, "c1", "CronList"), block_stop(0))[1:]
    assert isinstance(called, ToolCalled)
    assert (called.call.name, called.call.arguments) == ("CronList", {})


def test_an_open_call_is_there_with_its_native_form_until_it_ends() -> None:
    fold = Fold()
    fold(assistant(use("c1", "Write", file_path="/a", content="x")))
    call = fold.translator.find_call("c1")
    assert call is not None
    assert (call.name, call.arguments, call.asker) == ("write", {"path": "/a", "content": "x"}, "claude")
    assert call.native is not None
    assert (call.native.name, call.native.arguments) == ("Write", {"file_path": "/a", "content": "x"})
    fold(result_of("c1"))
    assert fold.translator.find_call("c1") is None
    assert fold.translator.find_call("never") is None


def test_a_call_starts_once_with_its_final_arguments() -> None:
    fold = Fold()
    fold(assistant(use("c1", "Bash", command="rm -rf x")))
    call = fold.translator.find_call("c1")
    assert call is not None
    final = msgspec.structs.replace(call, arguments={"command": "echo no"})
    assert fold.translator.start(final) == [ToolStarted(call=final)]
    assert fold.translator.start(final) == []
    assert fold(result_of("c1"))[-1] == ToolEnded(call=final, result=ToolResult.of("ok"))
    assert fold.translator.start(final) == []


def test_progress_says_that_it_runs() -> None:
    fold = Fold()
    fold(assistant(use("c1", "Bash", command="make")))
    call = fold.translator.find_call("c1")
    assert call is not None
    frame = {"type": "tool_progress", "tool_use_id": "c1", "tool_name": "Bash", "elapsed_time_seconds": 2.5}
    assert fold(frame) == [ToolStarted(call=call), ToolProgress(call=call, text="2.5 s")]
    assert fold(frame) == [ToolProgress(call=call, text="2.5 s")]
    assert kinds(fold(frame | {"tool_use_id": "c9", "parent_tool_use_id": "a1"})) == ["tool_progress"]


@pytest.mark.req("agents.scenario.T6")
def test_results_of_each_shape() -> None:
    fold = Fold()
    fold(assistant(*(use(f"c{number}", "Bash", command="ls") for number in range(6))))
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": base64.b64encode(b"png").decode()}}
    broken = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "?"}}
    found = fold(
        result_of("c0", "plain"),
        result_of("c1", [text("a"), text("b")], error=True),
        result_of("c2", [picture, broken]),
        user([{"type": "tool_result", "tool_use_id": "c3"}]),
        user([{"type": "tool_result", "tool_use_id": id, "content": id} for id in ("c4", "c5")], tool_use_result={"x": 1}),
    )
    assert tool_results(found) == {
        "c0": ToolResult.of("plain"),
        "c1": ToolResult((TextBlock("a"), TextBlock("b")), is_error=True),
        "c2": ToolResult((ImageBlock(b"png", "image/png"), OtherBlock("image", broken))),
        "c3": ToolResult(),
        "c4": ToolResult.of("c4"),
        "c5": ToolResult.of("c5"),
    }
    assert kinds(fold(result_of("c0"))) == ["other"]  # it has its result


def test_a_call_that_did_not_run_has_no_start() -> None:
    fold = Fold()
    fold(assistant(use("c1", "Bash", command="ls"), use("c2", "Bash", command="ls")))
    found = fold(result_of("c1", "no", error=True, tool_result_meta=[{"id": "c1", "permission_decision": {"decision": "reject"}}]))
    assert (kinds(found), tool_results(found)["c1"].code) == (["step_ended", "tool_ended"], "DENIED")
    found = fold(result_of("c2", "bad input", error=True, tool_result_meta=[{"id": "c2", "non_execution_kind": "invalid-input"}]))
    assert (kinds(found), tool_results(found)["c2"].code) == (["tool_ended"], "")


@pytest.mark.parametrize("why", ["Error: No such tool available: X", "InputValidationError: X failed due to the following issues"])
def test_a_call_that_was_turned_away_has_no_start_either(why: str) -> None:
    fold = Fold()
    fold(message_start(), assistant(use("c1", "X", a=1)))
    found = fold(result_of("c1", f"<tool_use_error>{why}</tool_use_error>", error=True))
    assert kinds(found) == ["tool_ended"]  # in the middle of the message, as the real program does
    fold(assistant(use("c2", "Edit", file_path="/a")))
    found = fold(result_of("c2", "<tool_use_error>String to replace not found</tool_use_error>", error=True))
    assert kinds(found) == ["tool_started", "tool_ended"]


def test_a_to_do_list_is_a_plan() -> None:
    todos: list[Any] = [
        {"content": "look", "status": "completed", "activeForm": "Looking"},
        {"content": "mend", "status": "in_progress"},
        {"content": "test", "status": "someday"},
        "odd",
    ]
    found = Fold()(assistant(use("c1", "TodoWrite", todos=todos)))
    assert kinds(found) == ["step_started", "tool_called", "plan"]
    assert found[-1] == Plan(entries=(PlanEntry("look", "completed"), PlanEntry("mend", "in_progress"), PlanEntry("test")))
    assert kinds(Fold()(assistant(use("c1", "TodoWrite", todos="odd")))) == ["step_started", "tool_called"]

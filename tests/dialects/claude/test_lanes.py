"""What has begun has an end: what is taken back, asked again, done by sub-agents, or cut off."""

from __future__ import annotations

import pytest

from serai.dialects.claude.lanes import INTERRUPTED
from serai.model import events
from serai.model.actions import Notice
from serai.model.events import (
    Message,
    NoticeEvent,
    OtherEvent,
    Retrying,
    StepEnded,
    StepSettled,
    StepStarted,
    Text,
    ToolCalled,
    ToolEnded,
)
from serai.model.tools import TextBlock, ToolResult
from tests.support.claude.frames import (
    Fold,
    assistant,
    block_stop,
    delta,
    init,
    kinds,
    message_delta,
    message_start,
    message_stop,
    message_texts,
    result,
    result_of,
    stream_event,
    system,
    task_start,
    text,
    text_start,
    texts,
    tool_results,
    use,
)


@pytest.mark.req("agents.rule.72")
def test_a_call_without_a_result_at_the_end_was_interrupted() -> None:
    fold = Fold()
    fold(message_start(), text_start(), delta(0, text="I"), assistant(use("c1", "Bash", command="ls")))
    found = fold.translator.end(interrupted=True)
    assert kinds(found) == ["step_ended", "tool_ended", "step_settled"]
    assert found[0] == StepEnded(step=1, stop="aborted")
    assert tool_results(found) == {"c1": INTERRUPTED}
    assert (INTERRUPTED.code, INTERRUPTED.is_error) == ("TOOL_INTERRUPTED", True)
    assert fold.translator.end(interrupted=True) == []


@pytest.mark.req("agents.rule.72")
def test_an_aborted_block_is_no_part_of_the_message() -> None:
    fold = Fold()
    found = fold(assistant(text("Kept."), uuid="u1"), assistant(text("Cut o"), uuid="u2", aborted=True), result())
    assert message_texts(found) == ["Kept."]
    assert OtherEvent(kind="retracted") in found
    assert StepEnded(step=1, stop="aborted") in found


@pytest.mark.req("agents.rule.72")
def test_what_a_frame_supersedes_is_taken_back() -> None:
    fold = Fold()
    fold(assistant(text("Wrong."), uuid="u1"), assistant(text("Right."), uuid="u2"))
    found = fold(assistant(text("Better."), uuid="u3", supersedes=["u1"], id="m2"), result())
    assert message_texts(found) == ["Right.", "Better."]
    assert found[0] == OtherEvent(kind="retracted")


@pytest.mark.req("agents.rule.72")
def test_a_call_that_is_taken_back_ends_and_one_that_runs_does_not() -> None:
    fold = Fold()
    fold(assistant(use("c1", "Bash", command="a"), uuid="u1"), assistant(use("c2", "Bash", command="b"), uuid="u2"))
    running = fold.translator.find_call("c2")
    assert running is not None
    fold.translator.start(running)
    frame = system("model_refusal_fallback", retracted_message_uuids=["u1", "u2"], original_model="opus", fallback_model="sonnet")
    found = fold(frame)
    assert {id: answer.code for id, answer in tool_results(found).items()} == {"c1": "TOOL_INTERRUPTED"}
    assert kinds(found) == ["other", "tool_ended", "noticed"]
    assert found[-1] == NoticeEvent(notice=Notice("opus would not answer; sonnet is asked instead", "warn", "claude"))


@pytest.mark.req("agents.rule.72")
def test_abandoned_blocks_are_taken_back_from_the_first_of_them_on() -> None:
    fold = Fold()
    frames = [message_start()]
    for index, word in enumerate("abc"):
        frames += [text_start(index), delta(index, text=word), assistant(text(word)), block_stop(index)]
    fold(*frames)
    found = fold(message_stop(abandoned_blocks={"api_message_id": "m1", "from_block_index": 1}))
    assert kinds(found) == ["other", "message", "step_ended"]
    assert message_texts(found) == ["a"]
    # Of another message, or of blocks that never were.
    fold(message_start("m2"), text_start(message="m2"), delta(0, text="x", message="m2"), assistant(text("x"), id="m2"))
    abandoned = [{"api_message_id": "m9", "from_block_index": 0}, {"from_block_index": 1}, {"from_block_index": "x"}, "odd"]
    for odd in abandoned[1:]:
        assert fold(stream_event({"type": "ping"}, message="m2", abandoned_blocks=odd)) == []
    assert message_texts(fold(message_stop(message="m2", abandoned_blocks=abandoned[0]))) == ["x"]


def test_an_interrupt_before_a_word_was_said_is_no_success_of_the_step() -> None:
    found = Fold()(message_start(), message_delta(None), message_stop(), result(subtype="error_during_execution", is_error=True))
    assert [event.stop for event in found if isinstance(event, StepEnded)] == ["aborted"]


# -- when the model is asked again


@pytest.mark.req("agents.live.Z20")
def test_a_retry_is_told_and_the_step_is_the_same_one() -> None:
    fold = Fold()
    fold(message_start(), text_start(), delta(0, text="half of"))
    retry = {"attempt": 2, "max_retries": 10, "retry_delay_ms": 1250, "error_status": 529, "error": "overloaded"}
    assert fold(system("api_retry", **retry)) == [Retrying(attempt=2, most=10, wait=1.25, error="overloaded (529)")]
    found = fold(message_start("m2"), text_start(message="m2"), delta(0, text="all", message="m2"), assistant(text("all"), id="m2"))
    assert kinds(found) == ["text"]
    found = fold(message_delta(message="m2"), result())
    assert kinds(found) == ["message", "step_ended", "step_settled"]
    assert (found[0], found[1]) == (Message(content=(TextBlock("all"),), model="opus"), StepEnded(step=1))


def test_a_retry_for_a_sub_agent_does_not_touch_what_was_said() -> None:
    fold = Fold()
    fold(
        message_start(),
        text_start(),
        assistant(text("a"), use("c1", "Agent", prompt="x")),
        message_delta("tool_use"),
        message_stop(),
    )
    fold(system("api_retry", attempt=1, max_retries=1, retry_delay_ms=1, error="unknown"))
    assert list(tool_results(fold(result_of("c1")))) == ["c1"]


def test_an_error_of_the_api_is_nothing_that_the_model_said() -> None:
    frame = assistant(text("API Error: 500"), error="server_error", is_api_error_message=True)
    frame["message"]["model"] = "<synthetic>"
    assert Fold()(frame) == [StepStarted(step=1), StepEnded(step=1, stop="error", error="API Error: 500")]
    frame = assistant(text("No response requested."))
    frame["message"]["model"] = "<synthetic>"
    assert texts(Fold()(frame)) == ["No response requested."]


# -- sub-agents


@pytest.mark.req("agents.rule.73")
def test_each_sub_agent_has_its_own_lane_and_its_own_steps() -> None:
    fold = Fold()
    fold(assistant(use("a1", "Agent", prompt="x"), use("a2", "Agent", prompt="y")))
    found = fold(
        message_start("n1", "a1"),
        message_start("n2", "a2"),
        text_start(0, "a1", "n1"),
        text_start(0, "a2", "n2"),
        delta(0, "a1", "n1", text="one"),
        delta(0, "a2", "n2", text="two"),
        assistant(text("one"), id="n1", lane="a1"),
        assistant(text("two"), id="n2", lane="a2"),
        assistant(use("b1", "Bash", command="ls"), id="n1", lane="a1"),
        result_of("b1", lane="a1"),
    )
    assert {event.lane for event in found} == {"a1", "a2"}
    assert [event for event in found if isinstance(event, Text)] == [Text(text="one", lane="a1"), Text(text="two", lane="a2")]
    assert [event.step for event in found if isinstance(event, StepStarted)] == [1, 1]
    assert fold.translator.find_lane("b1") == ""  # over
    assert fold.translator.find_lane("a1") == ""
    assert [event.lane for event in found if isinstance(event, ToolCalled)] == ["a1"]
    found = fold(result_of("a1"))
    assert [(event.lane, events.event_kind(event)) for event in found] == [
        ("", "step_ended"),
        ("", "tool_started"),
        ("a1", "step_ended"),
        ("a1", "step_settled"),
        ("", "tool_ended"),
    ]


def test_a_sub_agent_that_is_left_open_is_ended_with_its_call() -> None:
    fold = Fold()
    fold(assistant(use("a1", "Agent", prompt="x")), assistant(use("b1", "Bash", command="ls"), id="n1", lane="a1"))
    assert fold.translator.find_lane("b1") == "a1"
    found = fold(result_of("a1", "gave up", error=True))
    assert tool_results(found) == {"b1": INTERRUPTED, "a1": ToolResult((TextBlock("gave up"),), is_error=True)}
    assert [event.lane for event in found if isinstance(event, ToolEnded)] == ["a1", ""]


def test_a_sub_agent_in_the_background_outlives_the_turn() -> None:
    fold = Fold()
    fold(
        init(),
        assistant(use("a1", "Agent", prompt="x", run_in_background=True)),
        system("background_tasks_changed", tasks=[{"task_id": "t1", "task_type": "local_agent"}]),
        task_start(),
        result_of("a1", "launched"),
        assistant(use("b1", "Bash", command="ls"), id="n1", lane="a1"),
    )
    assert fold.translator.tasks == {"t1": "local_agent"}
    assert tool_results(fold(result())) == {}
    assert fold.translator.find_call("b1") is not None
    found = fold(result_of("b1", lane="a1"), assistant(text("from below"), id="n2", lane="a1"))
    assert [event.step for event in found if isinstance(event, StepStarted)] == [2]
    found = fold(system("task_updated", task_id="t1", patch={"status": "completed"}))
    assert kinds(found) == ["message", "step_ended", "step_settled", "other"]
    assert {event.lane for event in found[:3]} == {"a1"}
    assert fold.translator.tasks == {}
    assert kinds(fold(system("task_notification", task_id="t1", status="completed"))) == ["other"]


def test_a_sub_agent_that_was_part_of_the_turn_is_over_with_it() -> None:
    fold = Fold()
    fold(assistant(use("a1", "Agent", prompt="x")), task_start(background=False))
    fold(system("background_tasks_changed", tasks=[]))
    assert fold.translator.tasks == {"t1": "local_agent"}
    fold(result_of("a1"))
    assert fold.translator.tasks == {}
    fold(task_start("t2", "a2", background=False), result())
    assert fold.translator.tasks == {}
    fold(task_start("t3", "a3", background=False), system("task_updated", task_id="t3", patch={"is_backgrounded": True}), result())
    assert fold.translator.tasks == {"t3": "local_agent"}


@pytest.mark.parametrize("status", ["completed", "failed", "killed", "stopped"])
def test_tasks_are_counted_until_they_are_over(status: str) -> None:
    fold = Fold()
    fold(task_start("t1"), task_start("t2", "a2"), system("task_updated", task_id="t1", patch={"status": "running"}))
    assert set(fold.translator.tasks) == {"t1", "t2"}
    fold(system("task_updated", task_id="t1", patch={"status": status}))
    assert set(fold.translator.tasks) == {"t2"}
    fold(system("background_tasks_changed", tasks=[{"task_id": "t5", "task_type": "local_bash"}, "odd", {"task_id": 3}]))
    assert fold.translator.tasks == {"t5": "local_bash"}
    fold.translator.end(gone=True)
    assert fold.translator.tasks == {}


def test_when_the_program_is_gone_everything_has_an_end() -> None:
    fold = Fold()
    fold(assistant(use("a1", "Agent", prompt="x")), task_start(), result_of("a1", "launched"))
    fold(assistant(use("b1", "Bash", command="ls"), id="n1", lane="a1"))
    assert fold.translator.end() == [StepSettled(step=1)]
    found = fold.translator.end(interrupted=True, gone=True)
    assert tool_results(found) == {"b1": INTERRUPTED}
    assert {event.lane for event in found} == {"a1"}


def test_the_last_block_alone_may_be_abandoned() -> None:
    fold = Fold()
    fold(message_start(), text_start(0), delta(0, text="a"), assistant(text("a")), block_stop(0))
    found = fold(message_stop(abandoned_blocks={"api_message_id": "m1", "from_block_index": 0}))
    assert message_texts(found) == []

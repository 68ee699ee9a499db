"""The seed's messages and results, there and back (spec agents 1.15, 1.19)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.compat.agentboot import (
    AgentMessage,
    AssistantMessage,
    ContentBlock,
    Event,
    GenericMessage,
    InitMessage,
    OutputFormat,
    PermissionRequestMessage,
    Result,
    ResultMessage,
    StreamDeltaMessage,
    message_from_event,
    new_assistant_message,
    new_init_message,
    new_permission_request_message,
    new_permission_result_message,
    new_result_message,
    new_stream_delta_message,
)

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def event(type: str, **data: Any) -> Event:
    return Event(type, data, AT)


# -- messages


@pytest.mark.req("agents.rule.44")
def test_the_text_of_an_assistant_is_message_or_text_or_in_its_blocks() -> None:
    for data in (
        {"message": "hi"},
        {"text": "hi"},
        {"message": {"content": [{"type": "thinking", "thinking": "?"}, {"type": "text", "text": "hi"}]}},
        {"message": {"content": "hi"}},
    ):
        message = message_from_event(event("assistant", **data), "toy")
        assert isinstance(message, AssistantMessage)
        assert (message.get_text(), message.get_agent_type(), message.get_timestamp()) == ("hi", "toy", AT)
    tool = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
    message = message_from_event(event("assistant", message={"content": [tool]}, session_id="s", uuid="u"), "toy")
    assert isinstance(message, AssistantMessage)
    assert message.content == [ContentBlock(type="tool_use", tool_id="t1", tool_name="Bash", input={"command": "ls"})]
    assert (message.get_text(), message.get_session_id(), message.extra) == ("", "s", {"uuid": "u"})


@pytest.mark.req("agents.rule.44")
@pytest.mark.parametrize(
    ("data", "cost", "milliseconds"),
    [
        ({"total_cost_usd": 0.5, "cost_usd": 9, "duration_ms": 12.7}, 0.5, 12),
        ({"cost_usd": 2, "duration_ms": 12}, 2.0, 12),
        ({"total_cost_usd": 1, "duration_ms": "long"}, 1.0, 0),
        ({}, 0.0, 0),
    ],
)
def test_a_results_numbers_may_be_of_either_kind(data: dict[str, Any], cost: float, milliseconds: int) -> None:
    message = message_from_event(event("result", status="success", **data))
    assert isinstance(message, ResultMessage)
    assert (message.cost_usd, message.duration_ms) == (cost, milliseconds)
    assert isinstance(message.cost_usd, float)


@pytest.mark.req("agents.rule.44")
def test_a_time_that_was_never_set_is_now_and_an_unknown_type_is_generic() -> None:
    before = datetime.now(UTC)
    never = Event("init", {"max_iterations": 3.0}, datetime(1, 1, 1, tzinfo=UTC))
    message = message_from_event(never, "toy")
    assert isinstance(message, InitMessage)
    assert message.max_iterations == 3
    assert message.get_timestamp() >= before
    other = message_from_event(event("weather", temperature=16, session_id="s", agent_type="x"))
    assert isinstance(other, GenericMessage)
    assert (other.get_type(), other.get_session_id(), other.get_agent_type()) == ("weather", "s", "x")
    assert other.get_raw_data() == {"temperature": 16, "session_id": "s", "agent_type": "x"}
    assert other.to_event() == event("weather", temperature=16, session_id="s", agent_type="x")


@pytest.mark.req("agents.rule.45")
@pytest.mark.parametrize("status", ["success", "error", "cancelled", "permission_denied", "ask_denied"])
@pytest.mark.parametrize("is_error", [True, False])
def test_a_result_is_a_success_if_it_says_so_and_is_no_error(status: str, is_error: bool) -> None:
    message = ResultMessage(agent_type="toy", status=status, is_error=is_error)
    assert message.is_success() == (status == "success" and not is_error)
    back = message_from_event(message.to_event(), "toy")
    assert isinstance(back, ResultMessage)
    assert back.is_success() == message.is_success()


@pytest.mark.req("agents.rule.45")
def test_a_frame_of_claudes_is_a_result_too() -> None:
    frame = {"subtype": "success", "is_error": False, "result": "done", "num_turns": 3, "total_cost_usd": 0.1}
    message = message_from_event(event("result", **frame))
    assert isinstance(message, ResultMessage)
    assert (message.is_success(), message.message, message.steps_completed, message.cost_usd) == (True, "done", 3, 0.1)
    failed = message_from_event(event("result", **(frame | {"is_error": True})))
    assert isinstance(failed, ResultMessage)
    assert (failed.status, failed.is_success()) == ("error", False)


FAMILY: list[AgentMessage] = [
    new_init_message("toy", "s", 5),
    new_assistant_message("toy", "s", "hello"),
    AssistantMessage(agent_type="toy", content=[ContentBlock(type="text", text="a")], extra={"model": "m"}),
    new_permission_request_message("toy", "s", "r", "Bash", {"command": "ls"}, "why"),
    PermissionRequestMessage(agent_type="toy", request_id="r", tool_name="Bash", input={}, step=1, total=3),
    new_permission_result_message("toy", "s", "r", approved=True, reason="fine"),
    new_result_message("toy", "s", "success", "done"),
    new_stream_delta_message("toy", "s", "hel"),
]


@pytest.mark.parametrize("message", FAMILY, ids=lambda one: type(one).__name__)
def test_a_message_is_the_same_after_it_was_an_event(message: AgentMessage) -> None:
    back = message_from_event(message.to_event(), "toy")
    if isinstance(message, AssistantMessage) and not message.text:
        message = msgspec.structs.replace(message, text=message.get_text())
    assert back == message
    assert back.to_event().type == message.get_type()
    assert isinstance(message, AgentMessage)


def test_a_message_writes_what_is_required_and_leaves_out_what_is_empty() -> None:
    assert set(msgspec.to_builtins(new_assistant_message("toy"))) == {"type", "agent_type", "timestamp"}
    assert set(msgspec.to_builtins(PermissionRequestMessage(agent_type="toy"))) == {
        *("type", "agent_type", "timestamp", "request_id", "tool_name", "input"),
    }
    assert msgspec.to_builtins(new_permission_result_message("toy", "", "r", approved=False))["approved"] is False
    assert msgspec.to_builtins(StreamDeltaMessage(agent_type="toy"))["delta"] == ""
    assert new_assistant_message("toy", "s", "x").get_raw_data()["text"] == "x"


_VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.lists(st.integers(), max_size=2)
)
_KEYS = (
    "message",
    "text",
    "content",
    "extra",
    "session_id",
    "status",
    "cost_usd",
    "total_cost_usd",
    "duration_ms",
    "input",
    "approved",
    "delta",
)


@given(
    kind=st.sampled_from(["init", "assistant", "permission_request", "permission_result", "result", "stream_delta", "other"]),
    data=st.dictionaries(st.sampled_from(_KEYS), _VALUES | st.dictionaries(st.sampled_from(["content", "type"]), _VALUES)),
)
def test_whatever_an_event_holds_it_is_a_message_that_can_be_written(kind: str, data: dict[str, Any]) -> None:
    message = message_from_event(Event(kind, data, AT), "toy")
    assert message.get_type() == kind
    msgspec.json.encode(message.to_event())
    msgspec.json.encode(message)


# -- results


def assistant_event(text: Any, **more: Any) -> Event:
    return event("assistant", message={"content": [{"type": "text", "text": text}]}, **more)


@pytest.mark.req("agents.rule.25")
def test_the_text_of_a_run_is_what_the_agent_said_itself_in_order() -> None:
    events = [
        assistant_event("one "),
        event("user", message={"content": [{"type": "text", "text": "not this"}]}),
        assistant_event("not a sub-agent's", parent_tool_use_id="t1"),
        event("assistant", message={"content": [{"type": "tool_use", "name": "Bash"}, {"type": "text", "text": "two "}]}),
        event("assistant", message="three "),
        event("text_delta", delta="four "),
        event("text", text="five "),
        event("item.completed", item={"type": "agent_message", "text": "six"}),
        event("assistant", message=7),
        event("result", result="not this either"),
    ]
    result = Result(events=events)
    assert result.text_output() == "one two three four five six"
    assert result.answer() == "not this either"
    assert Result(events=events[:-1]).answer() == "one two three four five six"
    assert Result(output="plain", format=OutputFormat.TEXT, events=events).text_output() == "plain"


@pytest.mark.req("agents.rule.26")
@pytest.mark.parametrize(("code", "error", "success"), [(0, "", True), (1, "", False), (0, "x", False), (-1, "x", False)])
def test_a_run_is_a_success_if_its_exit_and_its_error_say_so(code: int, error: str, success: bool) -> None:
    assert Result(exit_code=code, error=error).is_success() is success


@pytest.mark.req("agents.rule.26")
def test_the_session_of_a_run_is_in_its_metadata_or_the_first_of_its_events() -> None:
    events = [event("system"), event("system", session_id=""), event("system", session_id="first"), event("x", session_id="last")]
    assert Result(events=events).get_session_id() == "first"
    assert Result(events=events, metadata={"session_id": "named"}).get_session_id() == "named"
    assert Result(events=[event("thread.started", thread_id="t")]).get_session_id() == "t"
    assert Result().get_session_id() == ""


@pytest.mark.req("agents.rule.27")
def test_tool_calls_and_results_are_found_in_the_blocks_of_frames() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}
    done = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
    events = [
        event("assistant", message={"content": [{"type": "text", "text": "x"}, call, {**call, "id": "t2"}]}),
        event("user", message={"content": [done]}),
        event("user", message={"content": "hello"}),
        event("tool_use", id="own"),
    ]
    result = Result(events=events)
    assert [one.data["id"] for one in result.get_tool_use_messages()] == ["t1", "t2", "own"]
    assert result.get_tool_use_messages()[0].data == call
    assert [one.data for one in result.get_tool_result_messages()] == [done]
    assert len(result.get_user_messages()) == 2
    assert len(result.get_assistant_messages()) == 1


def test_the_chain_of_a_run_is_what_was_said() -> None:
    kinds = ["system", "assistant", "control_request", "user", "control_response", "noise", "stream_event", "result"]
    result = Result(events=[event(kind) for kind in kinds])
    assert [one.type for one in result.get_message_chain()] == ["assistant", "user", "stream_event"]
    assert [one.type for one in result.get_messages_by_type("user")] == ["user"]


def test_cost_and_status_are_those_of_the_last() -> None:
    events = [event("result", total_cost_usd=1), event("result", total_cost_usd=2.5), event("result", total_cost_usd=True)]
    assert Result(events=events).get_cost_usd() == 2.5
    assert Result().get_cost_usd() == 0.0
    told = [event("status", status="running"), event("status", status="idle"), event("status")]
    assert Result(events=told).get_status() == "idle"
    assert Result(events=told, format=OutputFormat.TEXT).get_status() == "unknown"
    assert Result().get_status() == "unknown"

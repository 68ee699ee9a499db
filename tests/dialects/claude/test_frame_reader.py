"""What Claude Code writes is read, whatever it writes: known frames as types, all else as data, every line exactly once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from serai.dialects.claude import blocks, messages
from serai.dialects.claude.events import CanUseTool, Event, Odd, Told
from serai.dialects.claude.frame_reader import read_retry, read_stream_ids
from serai.dialects.claude.host_side import HostSide
from serai.dialects.claude.messages import Assistant, Result, System
from serai.wire.codec import Noise, Unknown
from serai.wire.stream import Framer
from tests.support.claude.wire import RESULT, SYSTEM, line

CAPTURES = sorted((Path(__file__).parents[2] / "captures" / "claude").glob("*.jsonl"))


def hear(*frames: bytes) -> list[Event]:
    return HostSide().receive(b"".join(frames))


def frame_of(value: dict[str, Any]) -> Any:
    """The one frame that it is told as."""
    [told] = hear(line(value))
    assert isinstance(told, Told)
    return told.frame


# -- what is known ----------------------------------------------------------------------------------------------------------------

ASSISTANT: dict[str, Any] = {
    "type": "assistant",
    "message": {"id": "msg_1", "role": "assistant", "content": [{"type": "text", "text": "Hi"}]},
}
ASKED = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}}
QUESTION = {"type": "control_request", "request_id": "r-1", "request": ASKED}


@pytest.mark.req("agents.scenario.D1")
def test_the_golden_lines_are_a_system_an_assistant_and_a_result_frame() -> None:
    told = hear(line(SYSTEM), line(ASSISTANT), line(RESULT))
    frames = [event.frame for event in told if isinstance(event, Told)]
    assert [type(frame) for frame in frames] == [System, Assistant, Result]
    assert [event.line for event in told] == [line(one).rstrip() for one in (SYSTEM, ASSISTANT, RESULT)]
    init, said, result = frames
    assert isinstance(init, System)
    assert (init.subtype, init.session_id, init.cwd, init.tools) == ("init", "s-1", "/w", ["Bash"])
    assert isinstance(said, Assistant)
    assert said.message.content == [blocks.Text("Hi")]
    assert isinstance(result, Result)
    assert result.result == "Hi"


@pytest.mark.req("agents.scenario.D2")
def test_a_control_request_tells_its_id_and_what_it_asks() -> None:
    [(frame, _)] = messages.FROM_CLI.create_reader().read_pairs(line(QUESTION))
    assert isinstance(frame, messages.ControlRequest)
    assert frame.request_id == "r-1"
    assert frame.request.__struct_config__.tag == "can_use_tool"
    [asked] = hear(line(QUESTION))
    assert isinstance(asked, CanUseTool)
    assert (asked.id, asked.request.tool_name) == ("r-1", "Bash")


@pytest.mark.req("agents.scenario.D3")
def test_of_no_input_nothing_is_heard() -> None:
    assert HostSide().receive(b"") == []
    assert Framer(1000).feed_eof() == []


@pytest.mark.req("agents.scenario.D4")
@pytest.mark.req("agents.live.Z11")
@pytest.mark.req("agents.edge.03")
@pytest.mark.parametrize("garbage", [b"oops", b"{oops", b'{"type":"result"', b"{}}", b"Warning: {", b"\x00\x01"])
def test_garbage_is_noise_and_the_frames_around_it_are_told(garbage: bytes) -> None:
    host = HostSide()
    first, noise, last = host.receive(line(SYSTEM) + garbage + b"\n" + line(RESULT))
    assert isinstance(first, Told)
    assert isinstance(noise, Odd)
    assert isinstance(noise.value, Noise)
    assert noise.value.raw == noise.line == garbage
    assert noise.value.why
    assert isinstance(last, Told)
    assert (host.noise, host.unknown) == (1, 0)


@pytest.mark.req("agents.edge.04")
@pytest.mark.parametrize("value", [b"null", b"17", b'"text"', b"[1, 2]", b'[{"type":"result"}]', b"true"])
def test_json_that_is_no_object_is_noise(value: bytes) -> None:
    host = HostSide()
    noise, told = host.receive(value + b"\n" + line(RESULT))
    assert isinstance(noise, Odd)
    assert noise.value == Noise(value, "not a JSON object")
    assert isinstance(told, Told)
    assert host.noise == 1


@pytest.mark.req("agents.rule.07")
def test_a_types_place_does_not_matter_and_without_one_it_is_unknown() -> None:
    for value in (RESULT, dict(reversed(RESULT.items())), {"type": "result"} | RESULT):
        assert isinstance(frame_of(value), Result)
    untyped: list[dict[str, Any]] = [{}, {"subtype": "init"}, {"type": 7}, {"type": None}, {"type": ["system"]}]
    for value in untyped:
        [odd] = hear(line(value))
        assert isinstance(odd, Odd)
        assert isinstance(odd.value, Unknown)
        assert odd.value.kind is None
        assert odd.value.raw == line(value).rstrip()


@pytest.mark.req("agents.scenario.T3")
@pytest.mark.parametrize(
    ("subtype", "is_error", "ok"),
    [("success", False, True), ("success", True, False), ("error_max_turns", True, False), ("error_max_turns", False, False)],
)
def test_a_result_is_a_success_when_both_its_members_say_so(subtype: str, is_error: bool, ok: bool) -> None:
    result = frame_of({**RESULT, "subtype": subtype, "is_error": is_error})
    assert result.ok is ok
    assert result.is_error is is_error


@pytest.mark.req("agents.scenario.T5")
def test_all_block_types_of_today_are_known() -> None:
    content: list[dict[str, Any]] = [
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "q"}},
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"type": "web_search_result", "url": "u"}]},
        {"type": "container_upload", "file_id": "file_1"},
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}},
        *({"type": f"{name}_tool_result", "tool_use_id": "x", "content": {}} for name in
          ("web_fetch", "code_execution", "bash_code_execution", "text_editor_code_execution", "tool_search", "advisor")),
        {"type": "image", "source": {"type": "base64"}},
        {"type": "document", "source": {"type": "text"}, "title": None},
    ]  # fmt: skip
    found = frame_of({"type": "assistant", "message": {"content": content}}).message.content
    assert [block.__struct_config__.tag for block in found] == [block["type"] for block in content]
    assert not any(isinstance(block, blocks.UnknownBlock) for block in found)
    assert found[0] == blocks.ServerToolUse("srv_1", "web_search", {"query": "q"})
    assert found[1] == blocks.RedactedThinking("xyz")
    assert json.loads(bytes(found[2].content)) == content[2]["content"]
    assert found[3] == blocks.ContainerUpload("file_1")


# -- what is not ------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("agents.rule.60")
@pytest.mark.parametrize("kind", ["command_lifecycle", "a_word_of_tomorrow", "?"])
def test_a_frame_of_another_type_is_unknown_and_keeps_its_line(kind: str) -> None:
    value = {"type": kind, "new": {"n": [1, 2.50]}, "session_id": "s"}
    host = HostSide()
    odd, told = host.receive(line(value) + line(RESULT))
    assert isinstance(odd, Odd)
    assert isinstance(odd.value, Unknown)
    assert (odd.value.kind, odd.value.raw, odd.line) == (kind, line(value).rstrip(), line(value).rstrip())
    assert isinstance(told, Told)
    assert host.unknown == (kind not in messages.RARE), "those that the spec knows are no surprise"


@pytest.mark.req("agents.rule.60")
def test_a_system_frame_of_another_subtype_is_told_with_its_line() -> None:
    value = {"type": "system", "subtype": "of_tomorrow", "new": 1, "session_id": "s"}
    [told] = hear(line(value))
    assert isinstance(told, Told)
    assert isinstance(told.frame, System)
    assert (told.frame.subtype, json.loads(told.line)) == ("of_tomorrow", value)


@pytest.mark.req("agents.rule.60")
def test_a_block_of_another_type_keeps_its_json_and_the_rest_of_the_frame_is_read() -> None:
    new = {"type": "hologram", "depth": 3}
    said = frame_of({"type": "assistant", "message": {"id": "m", "content": [{"type": "text", "text": "a"}, new]}, "uuid": "u"})
    first, unknown = said.message.content
    assert (said.uuid, said.message.id, first) == ("u", "m", blocks.Text("a"))
    assert isinstance(unknown, blocks.UnknownBlock)
    assert (unknown.kind, json.loads(bytes(unknown.raw))) == ("hologram", new)

    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "b"}, new], "is_error": True}
    [block] = frame_of({"type": "user", "message": {"role": "user", "content": [result]}}).message.content
    assert isinstance(block, blocks.ToolResult)
    assert (block.tool_use_id, block.is_error) == ("t", True)
    assert isinstance(block.content, list)
    assert [type(inner) for inner in block.content] == [blocks.Text, blocks.UnknownBlock]


@pytest.mark.req("agents.rule.60")
def test_a_stream_event_and_a_delta_of_another_type_keep_their_json() -> None:
    event = {"type": "message_sparkle", "n": 1}
    frame = frame_of({"type": "stream_event", "event": event, "parent_tool_use_id": "t"})
    assert frame.parent_tool_use_id == "t"
    assert (frame.event.kind, json.loads(bytes(frame.event.raw))) == ("message_sparkle", event)
    delta = {"type": "smell_delta", "smell": "pine"}
    frame = frame_of({"type": "stream_event", "event": {"type": "content_block_delta", "index": 2, "delta": delta}})
    assert frame.event.index == 2
    assert (frame.event.delta.kind, json.loads(bytes(frame.event.delta.raw))) == ("smell_delta", delta)
    start = {"type": "content_block_start", "index": 1, "content_block": {"type": "hologram"}}
    assert frame_of({"type": "stream_event", "event": start}).event.content_block.kind == "hologram"


def test_the_ids_of_a_stream_event_are_in_its_line() -> None:
    line = {"type": "stream_event", "uuid": "u", "api_message_id": "m"}
    assert read_stream_ids(json.dumps(line).encode()) == messages.StreamIds("u", "m")
    assert read_stream_ids(json.dumps({**line, "uuid": 7}).encode()) == messages.StreamIds("", "m")
    assert read_stream_ids(b'{"type":"stream_event"}') == messages.StreamIds()


@pytest.mark.req("agents.scenario.T4")
@pytest.mark.parametrize("wrong", [None, 17, -1.5, "text", True, [], [1], {}, {"a": 1}])
def test_a_member_of_the_wrong_type_reads_as_absent_and_the_others_are_kept(wrong: Any) -> None:
    """Whatever stands in whatever member, each of the others is read, and nothing raises."""
    for value in (SYSTEM, ASSISTANT, RESULT, {"type": "user", "message": {"role": "user", "content": "x"}, "uuid": "u"}):
        for name in set(value) - {"type"}:
            frame = frame_of({**value, name: wrong})
            sound = frame_of(value)
            for other in set(frame.__struct_fields__) - {name}:
                assert getattr(frame, other) == getattr(sound, other)
    result = frame_of({"type": "result", "num_turns": "three", "total_cost_usd": [], "usage": 4, "errors": "x", "subtype": 1})
    assert (result.num_turns, result.total_cost_usd, result.usage, result.errors, result.subtype) == (0, None, None, None, "")
    assert not result.ok
    usage = frame_of({"type": "result", "usage": {"input_tokens": "many", "output_tokens": 3}}).usage
    assert usage == blocks.Usage(output_tokens=3)


@pytest.mark.req("agents.scenario.T4")
def test_a_message_that_is_only_a_string_is_its_text() -> None:
    """The seed's shape (spec agents 2.10)."""
    assert frame_of({"type": "assistant", "message": "Hi"}).message.content == [blocks.Text("Hi")]
    assert frame_of({"type": "assistant", "message": {"content": "Hi"}}).message.content == [blocks.Text("Hi")]
    for message in ("Hi", {"content": "Hi"}):
        assert frame_of({"type": "user", "message": message}).message.content == "Hi"


@pytest.mark.req("agents.scenario.T1")
def test_a_retry_keeps_what_it_says_and_its_parts_are_found_under_every_spelling() -> None:
    value = {"type": "system", "subtype": "api_retry", "retryCount": 2, "delayMs": 1200, "message": "Overloaded", "reqId": "r"}
    [told] = hear(line(value))
    assert isinstance(told, Told)
    retry = read_retry(told.line)
    assert (retry.attempt, retry.delay_ms, retry.error) == (2, 1200, "Overloaded")
    assert retry.raw == value

    today = {"attempt": 2, "max_retries": 10, "retry_delay_ms": 1200, "error_status": 529, "error": "Overloaded"}
    retry = read_retry(line(today))
    assert (retry.attempt, retry.most, retry.delay_ms, retry.status, retry.error) == (2, 10, 1200, 529, "Overloaded")
    assert read_retry(line({"attempt": "two", "retry_delay_ms": True, "error": 7, "error_status": None})) == messages.Retry(
        raw={"attempt": "two", "retry_delay_ms": True, "error": 7, "error_status": None}
    )

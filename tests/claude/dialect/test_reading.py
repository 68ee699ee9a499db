"""What Claude Code writes is read, whatever it writes: known frames as types, all else as data, every line exactly once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from serai.dialects.claude import blocks, messages
from serai.dialects.claude.heard import CanUseTool, Heard, Odd, Stray, Told, Unsupported
from serai.dialects.claude.messages import Assistant, Result, StreamEvent, System, User
from serai.dialects.claude.ours import Ours
from serai.dialects.claude.reading import retry_of
from serai.dialects.claude.theirs import Passed, Theirs
from serai.record.replaying import describe
from serai.wire.codec import Noise, Unknown, encode
from serai.wire.framing import Framer

CAPTURES = sorted((Path(__file__).parents[2] / "captures" / "claude").glob("*.jsonl"))


def line(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def hear(*frames: bytes) -> list[Heard]:
    return Ours().receive(b"".join(frames))


def frame_of(value: dict[str, Any]) -> Any:
    """The one frame that it is told as."""
    [told] = hear(line(value))
    assert isinstance(told, Told)
    return told.frame


# -- what is known ----------------------------------------------------------------------------------------------------------------

SYSTEM = {"type": "system", "subtype": "init", "session_id": "s-1", "cwd": "/w", "tools": ["Bash"], "model": "m"}
ASSISTANT = {"type": "assistant", "message": {"id": "msg_1", "role": "assistant", "content": [{"type": "text", "text": "Hi"}]}}
RESULT = {"subtype": "success", "is_error": False, "result": "Hi", "num_turns": 1, "type": "result", "session_id": "s-1"}
QUESTION = {
    "type": "control_request",
    "request_id": "r-1",
    "request": {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}},
}


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
    [(frame, _)] = messages.FROM_CLI.reader().pairs(line(QUESTION))
    assert isinstance(frame, messages.ControlRequest)
    assert frame.request_id == "r-1"
    assert frame.request.__struct_config__.tag == "can_use_tool"
    [asked] = hear(line(QUESTION))
    assert isinstance(asked, CanUseTool)
    assert (asked.id, asked.request.tool_name) == ("r-1", "Bash")


@pytest.mark.req("agents.scenario.D3")
def test_of_no_input_nothing_is_heard() -> None:
    assert Ours().receive(b"") == []
    assert Framer(1000).eof() == []


@pytest.mark.req("agents.scenario.D4")
@pytest.mark.req("agents.live.Z11")
@pytest.mark.req("agents.edge.03")
@pytest.mark.parametrize("garbage", [b"oops", b"{oops", b'{"type":"result"', b"{}}", b"Warning: {", b"\x00\x01"])
def test_garbage_is_noise_and_the_frames_around_it_are_told(garbage: bytes) -> None:
    ours = Ours()
    first, noise, last = ours.receive(line(SYSTEM) + garbage + b"\n" + line(RESULT))
    assert isinstance(first, Told)
    assert isinstance(noise, Odd)
    assert isinstance(noise.value, Noise)
    assert noise.value.raw == noise.line == garbage
    assert noise.value.why
    assert isinstance(last, Told)
    assert (ours.noise, ours.unknown) == (1, 0)


@pytest.mark.req("agents.edge.04")
@pytest.mark.parametrize("value", [b"null", b"17", b'"text"', b"[1, 2]", b'[{"type":"result"}]', b"true"])
def test_json_that_is_no_object_is_noise(value: bytes) -> None:
    ours = Ours()
    noise, told = ours.receive(value + b"\n" + line(RESULT))
    assert isinstance(noise, Odd)
    assert noise.value == Noise(value, "not a JSON object")
    assert isinstance(told, Told)
    assert ours.noise == 1


@pytest.mark.req("agents.rule.07")
def test_a_types_place_does_not_matter_and_without_one_it_is_unknown() -> None:
    for value in (RESULT, dict(reversed(RESULT.items())), {"type": "result"} | RESULT):
        assert isinstance(frame_of(value), Result)
    for value in ({}, {"subtype": "init"}, {"type": 7}, {"type": None}, {"type": ["system"]}):
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
    content = [
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
    ours = Ours()
    odd, told = ours.receive(line(value) + line(RESULT))
    assert isinstance(odd, Odd)
    assert isinstance(odd.value, Unknown)
    assert (odd.value.kind, odd.value.raw, odd.line) == (kind, line(value).rstrip(), line(value).rstrip())
    assert isinstance(told, Told)
    assert ours.unknown == (kind not in messages.RARE), "those that the spec knows are no surprise"


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
    frame = frame_of({"type": "stream_event", "event": event, "api_message_id": "m"})
    assert frame.api_message_id == "m"
    assert (frame.event.kind, json.loads(bytes(frame.event.raw))) == ("message_sparkle", event)
    delta = {"type": "smell_delta", "smell": "pine"}
    frame = frame_of({"type": "stream_event", "event": {"type": "content_block_delta", "index": 2, "delta": delta}})
    assert frame.event.index == 2
    assert (frame.event.delta.kind, json.loads(bytes(frame.event.delta.raw))) == ("smell_delta", delta)
    start = {"type": "content_block_start", "index": 1, "content_block": {"type": "hologram"}}
    assert frame_of({"type": "stream_event", "event": start}).event.content_block.kind == "hologram"


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
    assert usage == messages.Usage(output_tokens=3)


@pytest.mark.req("agents.scenario.T4")
def test_a_message_that_is_only_a_string_is_its_text() -> None:
    """The seed's shape (2.10)."""
    assert frame_of({"type": "assistant", "message": "Hi"}).message.content == [blocks.Text("Hi")]
    assert frame_of({"type": "assistant", "message": {"content": "Hi"}}).message.content == [blocks.Text("Hi")]
    for message in ("Hi", {"content": "Hi"}):
        assert frame_of({"type": "user", "message": message}).message.content == "Hi"


@pytest.mark.req("agents.scenario.T1")
def test_a_retry_keeps_what_it_says_and_its_parts_are_found_under_every_spelling() -> None:
    value = {
        "type": "system",
        "subtype": "api_retry",
        "retryCount": 2,
        "delayMs": 1200,
        "message": "Overloaded",
        "requestId": "req_9",
    }
    [told] = hear(line(value))
    assert isinstance(told, Told)
    retry = retry_of(told.line)
    assert (retry.attempt, retry.delay_ms, retry.error) == (2, 1200, "Overloaded")
    assert retry.raw == value

    today = {
        "subtype": "api_retry",
        "attempt": 2,
        "max_retries": 10,
        "retry_delay_ms": 1200,
        "error_status": 529,
        "error": "Overloaded",
    }
    retry = retry_of(line(today))
    assert (retry.attempt, retry.most, retry.delay_ms, retry.status, retry.error) == (2, 10, 1200, 529, "Overloaded")
    assert retry_of(line({"attempt": "two", "retry_delay_ms": True, "error": 7, "error_status": None})) == messages.Retry(
        raw={"attempt": "two", "retry_delay_ms": True, "error": 7, "error_status": None}
    )


# -- lines ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("agents.live.Z10")
@pytest.mark.parametrize("step", [1 << 16, 100_003])
def test_a_line_of_800_kib_is_one_frame(step: int) -> None:
    value = {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "content": "x" * 800 * 1024}]}}
    told = through_framer(line(value) + line(RESULT), step)
    assert [type(event.frame) for event in told if isinstance(event, Told)] == [User, Result]
    assert told[0].line == line(value).rstrip()


@pytest.mark.req("agents.live.Z12")
def test_a_cut_last_line_is_noise_and_a_whole_one_is_a_frame() -> None:
    cut = line(RESULT)[:-9]
    *_, last = through_framer(line(SYSTEM) + cut, 7)
    assert isinstance(last, Odd)
    assert last.value.raw == cut
    *_, last = through_framer(line(SYSTEM) + line(RESULT).rstrip(), 7)
    assert isinstance(last, Told)
    assert isinstance(last.frame, Result)


@pytest.mark.req("agents.edge.02")
@pytest.mark.parametrize("step", [1, 2, 3, 1000])
def test_lines_end_at_line_feeds_only_and_bad_text_loses_no_frame(step: int) -> None:
    odd_text = {**RESULT, "result": "a\u2028b\u2029c\x85d\x0be\u00e9\U0001f600"}
    bad = line(RESULT).replace(b'"Hi"', b'"H\xffi"')
    lone = line(RESULT).replace(b'"Hi"', b'"\\ud83d"')
    run = (
        b"\xef\xbb\xbf"
        + line(RESULT)
        + line(odd_text)
        + bad
        + lone
        + line(RESULT).replace(b"\n", b"\r\n")
        + b"\r\n\n"
        + line(RESULT)
    )
    ours = Ours()
    events = through_framer(run, step, ours)
    texts = [event.frame.result for event in events if isinstance(event, Told) and isinstance(event.frame, Result)]
    assert texts == ["Hi", odd_text["result"], "H\ufffdi", "\ufffd", "Hi", "Hi"]
    assert (ours.repaired, ours.noise, ours.unknown) == (3, 0, 0)
    for event in events:  # what is kept goes into other JSON as it is
        assert json.loads(event.line)["type"] == "result"
        assert json.loads(encode({"native": msgspec.Raw(event.line)}))
        assert b"\n" not in event.line
        assert b"\r" not in event.line


@pytest.mark.req("agents.edge.02")
def test_bad_text_in_what_no_type_has_is_mended_in_the_line_too() -> None:
    [told] = hear(b'{"type":"keep_alive_not","x":1}\n'.replace(b"keep_alive_not", b"system").replace(b"1", b'"\xff\\udc00"'))
    assert isinstance(told, Told)
    assert json.loads(told.line)["x"] == "\ufffd\ufffd"


def through_framer(data: bytes, step: int, ours: Ours | None = None) -> list[Any]:
    framer, ours = Framer(64 * 1024 * 1024), ours or Ours()
    runs = [run for at in range(0, len(data), step) for run in framer.feed(data[at : at + step])] + framer.eof()
    return [event for run in runs if isinstance(run, bytes) for event in ours.receive(run)]


# -- anything at all --------------------------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**30) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
KINDS = st.sampled_from([str(kind.__struct_config__.tag) for kind in messages.FROM_CLI.decoder.type.__args__] + ["?", "hook", ""])
NAMES = st.sampled_from(
    ["message", "event", "request", "response", "request_id", "subtype", "session_id", "content", "delta", "is_error", "errors",
     "usage", "tools", "input", "tool_name", "status", "parent_tool_use_id", "content_block", "index", "result", "type"]
)  # fmt: skip
BLOCKS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "tool_result", "thinking", "?", "new", "content_block_delta", "text_delta"])},
    optional={"content": VALUES, "input": VALUES, "text": VALUES, "delta": VALUES, "id": VALUES, "source": VALUES},
)
REQUESTS = st.fixed_dictionaries(
    {
        "subtype": st.sampled_from(
            ["can_use_tool", "hook_callback", "mcp_message", "elicitation", "request_user_dialog", "?", "new"]
        )
    },
    optional={"tool_name": VALUES, "input": VALUES, "callback_id": VALUES, "message": VALUES, "request_id": VALUES},
)
PARTS = (
    VALUES | BLOCKS | REQUESTS | st.lists(BLOCKS, max_size=3) | st.builds(lambda content: {"content": content}, st.lists(BLOCKS))
)
FRAMES = st.builds(lambda kind, rest: {**rest, "type": kind}, KINDS, st.dictionaries(NAMES, PARTS, max_size=6))
LINES = FRAMES.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=30).map(lambda some: some.replace(b"\n", b""))


@settings(deadline=None, max_examples=1000)
@given(st.lists(LINES, max_size=6))
@example([b'{"type":"control_response","response":{"request_id":7}}', b'{"type":"control_request","request":{}}'])
@example(
    [b'{"type":"stream_event","event":{"type":"?"}}', b'{"type":"control_request","request_id":"a","request":{"subtype":"?"}}']
)
@example([b'{"type":"result","num_turns":' + b"[" * 100_000])
@pytest.mark.req("agents.rule.60")
@pytest.mark.req("agents.edge.03")
def test_each_line_that_is_not_blank_is_heard_once_whatever_it_is(lines: list[bytes]) -> None:
    ours = Ours()
    events = ours.receive(b"".join(one + b"\n" for one in lines))
    spoken = [one for one in lines if one.strip(b" \t\r")]
    assert len(events) == len(spoken)
    for event in events:
        if isinstance(event, Told | CanUseTool):
            assert isinstance(json.loads(event.line), dict)
        if isinstance(event, Odd):
            assert event.value.raw in [one.strip(b" \t\r") for one in spoken]
    odd = [event.value for event in events if isinstance(event, Odd)]
    assert ours.noise == sum(isinstance(one, Noise) for one in odd)
    # One by one they say the same as together, and a request that was heard has its answer or waits for one.
    alone = Ours()
    again = [event for one in lines for event in alone.receive(one + b"\n")]
    assert str([describe(event) for event in again]) == str([describe(event) for event in events])  # as text: nan is not itself
    waiting = {event.id for event in events if not isinstance(event, Told | Odd | Stray | Unsupported) and hasattr(event, "id")}
    assert set(ours.pending) <= waiting


@pytest.mark.req("agents.rule.60")
@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_every_line_that_the_real_program_was_heard_to_write_is_known(path: Path) -> None:
    ours, theirs = Ours(), Theirs()
    for text in path.read_bytes().splitlines():
        entry = json.loads(text)
        said = entry.get("line")
        if entry["dir"] == "in" and isinstance(said, dict):
            ours.sent(line(said), now=0.0)
            [event] = theirs.receive(line(said))
            assert not isinstance(event, Passed)
        elif entry["dir"] == "out" and isinstance(said, dict):
            [heard] = ours.receive(line(said))
            assert not isinstance(heard, Odd | Unsupported)
            replayed = said["type"] == "control_response" and "behavior" in said["response"].get("response", {})
            assert isinstance(heard, Stray) is replayed, "only our own answer that it repeats changes nothing"
    assert ours.noise == ours.unknown == 0


def test_there_are_recordings_to_look_at() -> None:
    assert CAPTURES


def test_partial_messages_take_the_fast_way() -> None:
    """No second look for what comes by the thousand: the strict types fit all that the program writes today."""
    theirs = Theirs()
    run = theirs.init() + theirs.streamed(["a", "b"]) + theirs.tool_result("t", "x") + theirs.result("ab")
    reader = messages.FROM_CLI.reader()
    assert {type(frame) for frame, _ in reader.pairs(run)} == {System, StreamEvent, Assistant, User, Result}
    assert reader.unknown == reader.noise == 0

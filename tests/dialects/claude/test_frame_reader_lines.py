"""Lines of Claude Code: of any length, with any text, and anything at all; each is heard exactly once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from serai.dialects.claude import messages
from serai.dialects.claude.events import CanUseTool, Event, Odd, Stray, Told, Unsupported
from serai.dialects.claude.host_side import HostSide
from serai.dialects.claude.messages import Assistant, Result, StreamEvent, System, User
from serai.dialects.claude.peer_side import Passed, PeerSide
from serai.record.recording import describe
from serai.wire.codec import Noise, encode
from serai.wire.stream import Framer
from tests.support.claude.wire import RESULT, SYSTEM, line
from tests.support.profiles import examples

CAPTURES = sorted((Path(__file__).parents[2] / "captures" / "claude").glob("*.jsonl"))


def hear(*frames: bytes) -> list[Event]:
    return HostSide().receive(b"".join(frames))


def frame_of(value: dict[str, Any]) -> Any:
    """The one frame that it is told as."""
    [told] = hear(line(value))
    assert isinstance(told, Told)
    return told.frame


# -- lines ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("agents.live.Z10")
@pytest.mark.parametrize("step", [1 << 16, 100_003])
def test_a_line_of_800_kib_is_one_frame(step: int) -> None:
    value = {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "content": "x" * 800 * 1024}]}}
    told = read_through_framer(line(value) + line(RESULT), step)
    assert [type(event.frame) for event in told if isinstance(event, Told)] == [User, Result]
    assert told[0].line == line(value).rstrip()


@pytest.mark.req("agents.live.Z12")
def test_a_cut_last_line_is_noise_and_a_whole_one_is_a_frame() -> None:
    cut = line(RESULT)[:-9]
    *_, last = read_through_framer(line(SYSTEM) + cut, 7)
    assert isinstance(last, Odd)
    assert last.value.raw == cut
    *_, last = read_through_framer(line(SYSTEM) + line(RESULT).rstrip(), 7)
    assert isinstance(last, Told)
    assert isinstance(last.frame, Result)


@pytest.mark.req("agents.edge.02")
@pytest.mark.parametrize("step", [1, 2, 3, 1000])
def test_lines_end_at_line_feeds_only_and_bad_text_loses_no_frame(step: int) -> None:
    odd_text = {**RESULT, "result": "a\u2028b\u2029c\x85d\x0be\u00e9\U0001f600"}
    bad = line(RESULT).replace(b'"Hi"', b'"H\xffi"')
    lone = line(RESULT).replace(b'"Hi"', b'"\\ud83d"')
    run = b"\xef\xbb\xbf" + line(RESULT) + line(odd_text) + bad + lone + line(RESULT)[:-1] + b"\r\n\r\n\n" + line(RESULT)
    host = HostSide()
    events = read_through_framer(run, step, host)
    texts = [event.frame.result for event in events if isinstance(event, Told) and isinstance(event.frame, Result)]
    assert texts == ["Hi", odd_text["result"], "H\ufffdi", "\ufffd", "Hi", "Hi"]
    assert (host.repaired, host.noise, host.unknown) == (3, 0, 0)
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


def read_through_framer(data: bytes, step: int, host: HostSide | None = None) -> list[Any]:
    framer, host = Framer(64 * 1024 * 1024), host or HostSide()
    runs = [run for at in range(0, len(data), step) for run in framer.feed(data[at : at + step])] + framer.feed_eof()
    return [event for run in runs if isinstance(run, bytes) for event in host.receive(run)]


# -- anything at all --------------------------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**30) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
KINDS = st.sampled_from([str(kind.__struct_config__.tag) for kind in get_args(messages.FromCli)] + ["?", "hook", ""])
NAMES = st.sampled_from(
    ["message", "event", "request", "response", "request_id", "subtype", "session_id", "content", "delta", "is_error", "errors",
     "usage", "tools", "input", "tool_name", "status", "parent_tool_use_id", "content_block", "index", "result", "type"]
)  # fmt: skip
BLOCKS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "tool_result", "thinking", "?", "new", "content_block_delta", "text_delta"])},
    optional={"content": VALUES, "input": VALUES, "text": VALUES, "delta": VALUES, "id": VALUES, "source": VALUES},
)
REQUESTS = st.fixed_dictionaries(
    {"subtype": st.sampled_from([str(kind.__struct_config__.tag) for kind in get_args(messages.CliRequest)] + ["new"])},
    optional={"tool_name": VALUES, "input": VALUES, "callback_id": VALUES, "message": VALUES, "request_id": VALUES},
)
SAID = st.builds(lambda content: {"content": content}, st.lists(BLOCKS, max_size=3))
PARTS = VALUES | BLOCKS | REQUESTS | st.lists(BLOCKS, max_size=3) | SAID
FRAMES = st.builds(lambda kind, rest: {**rest, "type": kind}, KINDS, st.dictionaries(NAMES, PARTS, max_size=6))
LINES = FRAMES.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=30).map(lambda some: some.replace(b"\n", b""))


@settings(deadline=None, max_examples=examples(1000))
@given(st.lists(LINES, max_size=6))
@example([b'{"type":"control_response","response":{"request_id":7}}', b'{"type":"control_request","request":{}}'])
@example([b'{"type":"stream_event","event":{"type":"?"}}'])
@example([b'{"type":"control_request","request_id":"a","request":{"subtype":"?"}}'])
@example([b'{"type":"result","num_turns":' + b"[" * 100_000])
@pytest.mark.req("agents.rule.60")
@pytest.mark.req("agents.edge.03")
def test_each_line_that_is_not_blank_is_heard_once_whatever_it_is(lines: list[bytes]) -> None:
    host = HostSide()
    events = host.receive(b"".join(one + b"\n" for one in lines))
    spoken = [one for one in lines if one.strip(b" \t\r")]
    assert len(events) == len(spoken)
    for event in events:
        if isinstance(event, Told | CanUseTool):
            assert isinstance(json.loads(event.line), dict)
        if isinstance(event, Odd):
            assert event.value.raw in [one.strip(b" \t\r") for one in spoken]
    odd = [event.value for event in events if isinstance(event, Odd)]
    assert host.noise == sum(isinstance(one, Noise) for one in odd)
    # One by one they say the same as together, and a request that was heard has its answer or waits for one.
    alone = HostSide()
    again = [event for one in lines for event in alone.receive(one + b"\n")]
    assert str([describe(event) for event in again]) == str([describe(event) for event in events])  # as text: nan is not itself
    waiting = {event.id for event in events if not isinstance(event, Told | Odd | Stray | Unsupported) and hasattr(event, "id")}
    assert set(host.pending) <= waiting


@pytest.mark.req("agents.rule.60")
@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_every_line_that_the_real_program_was_heard_to_write_is_known(path: Path) -> None:
    host, peer = HostSide(), PeerSide()
    for text in path.read_bytes().splitlines():
        entry = json.loads(text)
        said = entry.get("line")
        if entry["dir"] == "in" and isinstance(said, dict):
            host.note_sent(line(said), now=0.0)
            [event] = peer.receive(line(said))
            assert not isinstance(event, Passed)
        elif entry["dir"] == "out" and isinstance(said, dict):
            [heard] = host.receive(line(said))
            assert not isinstance(heard, Odd | Unsupported)
            replayed = said["type"] == "control_response" and "behavior" in said["response"].get("response", {})
            assert isinstance(heard, Stray) is replayed, "only our own answer that it repeats changes nothing"
    assert host.noise == host.unknown == 0


def test_there_are_recordings_to_look_at() -> None:
    assert CAPTURES


def test_partial_messages_take_the_fast_way() -> None:
    """No second look for what comes by the thousand: the strict types fit all that the program writes today."""
    peer = PeerSide()
    run = peer.init() + peer.stream_text(["a", "b"]) + peer.tool_result("t", "x") + peer.result("ab")
    reader = messages.FROM_CLI.create_reader()
    assert {type(frame) for frame, _ in reader.read_pairs(run)} == {System, StreamEvent, Assistant, User, Result}
    assert reader.unknown == reader.noise == 0

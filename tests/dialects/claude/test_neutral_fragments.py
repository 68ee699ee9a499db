"""Pieces of one block that come together are one event, and say what they say one by one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from serai.dialects.claude.host_side import HostSide
from serai.dialects.claude.neutral import FrameTranslator
from serai.model.events import Event, Text, Thinking, ToolCalled, ToolInput
from tests.support.claude.frames import CAPTURES, Fold, read_capture

PIECES = (Text, Thinking, ToolInput)


def translate_run(lines: list[dict[str, Any]]) -> tuple[list[Event], list[Event]]:
    """All events of a run that came at once, and those of them that were folded in one go."""
    host, translator = HostSide(), FrameTranslator()
    frames = host.read_frames(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    events: list[Event] = []
    quick: list[Event] = []
    while True:
        found, other = translator.translate_pieces(frames)
        assert len(found) <= 1
        events += found
        quick += found
        if other is None:
            return events, quick
        events += translator.translate(*other)


def natives(event: Event) -> list[bytes]:
    """The lines that an event came in."""
    line = bytes(event.native)
    return [bytes(one) for one in msgspec.json.decode(line, type=list[msgspec.Raw])] if line.startswith(b"[") else [line]


def plain(events: list[Event]) -> list[Event]:
    """However its pieces were cut."""
    found: list[Event] = []
    for event in events:
        here = msgspec.structs.replace(event, native=natives(event))
        last = found[-1] if found else None
        if isinstance(here, PIECES) and type(last) is type(here) and (last.index, last.lane) == (here.index, here.lane):
            found[-1] = msgspec.structs.replace(last, text=last.text + here.text, native=[*last.native, *here.native])
        else:
            found.append(here)
    return found


@pytest.mark.parametrize("name", CAPTURES)
def test_a_recording_that_comes_at_once_says_the_same_as_line_by_line(name: str) -> None:
    lines = [line for line in read_capture(name) if line["type"] not in ("control_request", "control_response")]
    slow, reader = FrameTranslator(), HostSide()
    expected: list[Event] = []
    for line in lines:
        [(frame, text)] = reader.read_frames(msgspec.json.encode(line) + b"\n")
        expected += slow.translate(frame, text)
    events, _ = translate_run(lines)
    assert plain(events) == plain(expected)


def stream(event: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "stream_event", "event": event, "session_id": "s-1", "parent_tool_use_id": None, "uuid": "u", **more}


def start_block(index: int, block: dict[str, Any]) -> dict[str, Any]:
    return stream({"type": "content_block_start", "index": index, "content_block": block})


def piece(index: int, **delta: Any) -> dict[str, Any]:
    return stream({"type": "content_block_delta", "index": index, "delta": delta})


BEGUN = stream({"type": "message_start", "message": {"id": "m-1", "model": "fake", "content": []}})
CALL = {"type": "tool_use", "id": "t-1", "name": "Bash", "input": {}}


def test_pieces_of_text_and_of_a_call_are_folded_in_one_go_and_nothing_else_is() -> None:
    events, quick = translate_run(
        [
            BEGUN,
            start_block(0, {"type": "text", "text": ""}),
            piece(0, type="text_delta", text="a"),
            piece(0, type="text_delta", text=""),
            piece(0, type="text_delta", text="b"),
            piece(3, type="text_delta", text="z"),  # of a block whose start was not told
            piece(0, type="text_delta", text="c"),
            start_block(1, CALL),
            piece(1, type="input_json_delta", partial_json='{"command":'),
            piece(1, type="input_json_delta", partial_json='"ls"}'),
            stream({"type": "content_block_stop", "index": 1}),
            piece(0, type="signature_delta", signature="x"),
            {**piece(0, type="text_delta", text="d"), "parent_tool_use_id": "t-9"},  # a sub-agent's
            start_block(4, {"type": "thinking", "thinking": ""}),
            piece(4, type="thinking_delta", thinking="e"),
            piece(4, type="thinking_delta", thinking="f"),
            {**piece(4, type="thinking_delta", thinking="g"), "parent_tool_use_id": "t-9"},
        ]
    )
    assert [event.text for event in quick if isinstance(event, PIECES)] == ["ab", "c", '{"command":"ls"}', "ef"]
    assert [(event.lane, event.index, event.text) for event in events if isinstance(event, PIECES)] == [
        ("", 0, "ab"),
        ("", 3, "z"),
        ("", 0, "c"),
        ("", 1, '{"command":"ls"}'),
        ("t-9", 0, "d"),
        ("", 4, "ef"),
        ("t-9", 4, "g"),
    ]
    [called] = [event.call for event in events if isinstance(event, ToolCalled)]  # made of its pieces
    assert called.arguments == {"command": "ls"}


def test_pieces_that_come_together_keep_all_their_lines_and_one_that_comes_alone_its_own() -> None:
    pieces = [piece(0, type="text_delta", text=text) for text in ("a", "", "ü")]
    _, [joined] = translate_run([BEGUN, start_block(0, {"type": "text", "text": ""}), *pieces])
    assert [msgspec.json.decode(line) for line in natives(joined)] == pieces
    _, [alone] = translate_run([BEGUN, start_block(0, {"type": "text", "text": ""}), pieces[0]])
    assert msgspec.json.decode(alone.native) == pieces[0]


def test_pieces_without_any_text_say_nothing() -> None:
    empty = piece(0, type="text_delta", text="")
    assert translate_run([BEGUN, start_block(0, {"type": "text", "text": ""}), empty, empty])[1] == []


def test_a_full_block_after_its_pieces_tells_only_the_rest() -> None:
    block = {"type": "text", "text": "abc"}
    whole = {"type": "assistant", "message": {"id": "m-1", "model": "fake", "content": [block]}, "uuid": "u-2"}
    events, _ = translate_run([BEGUN, start_block(0, {"type": "text", "text": ""}), piece(0, type="text_delta", text="ab"), whole])
    assert [event.text for event in events if isinstance(event, Text)] == ["ab", "c"]


def test_frames_come_whole_also_from_a_run_with_noise_in_it() -> None:
    fold = Fold()
    assert fold(BEGUN)
    host = HostSide()
    run = (
        b"Warning: old\n"
        + msgspec.json.encode(BEGUN)
        + b"\n\n"
        + msgspec.json.encode(piece(0, type="text_delta", text="a"))
        + b"\r\n"
    )
    assert [type(frame).__name__ for frame, _ in host.read_frames(run)] == ["Noise", "StreamEvent", "StreamEvent"]

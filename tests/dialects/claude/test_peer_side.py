"""The program's side: what fakes say is what Serai hears, and what a host says is taken as the real program takes it."""

from __future__ import annotations

import json

import pytest

from serai.dialects.claude import blocks
from serai.dialects.claude.events import Told
from serai.dialects.claude.host_side import HostSide
from serai.dialects.claude.messages import Assistant, Result, StreamEvent, System, User
from serai.dialects.claude.peer_side import Answered, Asked, Cancelled, Fatal, Passed, PeerSide, Prompted
from tests.support.claude.wire import hear


def test_a_turn_of_the_fake_is_told_in_full(host: HostSide, peer: PeerSide) -> None:
    run = (
        peer.init(model="m-2")
        + peer.tool_use("t-1", "Bash", {"command": "ls"})
        + peer.tool_result("t-1", "a.txt", tool_use_result={"stdout": "a.txt"})
        + peer.stream_text(["One ", "file"], id="msg_2")
        + peer.result("One file")
    )
    frames = [event.frame for event in host.receive(run) if isinstance(event, Told)]
    assert len(frames) == run.count(b"\n")
    init, call, answer, *streamed, result = frames
    assert isinstance(init, System)
    assert (init.model, init.session_id) == ("m-2", peer.session_id)
    assert isinstance(call, Assistant)
    assert call.message.content == [blocks.ToolUse("t-1", "Bash", {"command": "ls"})]
    assert isinstance(answer, User)
    assert json.loads(bytes(answer.tool_use_result)) == {"stdout": "a.txt"}
    parts = [frame.event for frame in streamed if isinstance(frame, StreamEvent)]
    deltas = [part.delta for part in parts if isinstance(part, blocks.ContentBlockDelta)]
    assert deltas == [blocks.TextDelta("One "), blocks.TextDelta("file")]
    whole = next(at for at, frame in enumerate(streamed) if isinstance(frame, Assistant))
    stop = next(at for at, f in enumerate(streamed) if isinstance(f, StreamEvent) and isinstance(f.event, blocks.ContentBlockStop))
    assert whole < stop, "the frame of a block comes before its stop, as from the program"
    assert isinstance(result, Result)
    assert (result.ok, result.result, result.result_index) == (True, "One file", 0)


def test_results_are_counted_and_errors_have_their_texts(host: HostSide, peer: PeerSide) -> None:
    hear(host, peer.result("one"))
    second = hear(host, peer.result("too many", subtype="error_max_turns", terminal_reason="max_turns")).frame
    assert (second.result_index, second.is_error, second.errors, second.terminal_reason) == (1, True, ["too many"], "max_turns")
    assert not second.ok


def test_the_same_script_says_the_same_twice() -> None:
    first, second = PeerSide(), PeerSide()
    assert first.init() + first.text("x") + first.ask("x")[1] == second.init() + second.text("x") + second.ask("x")[1]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b'{"type":"user","message":{"role":"user","content":"x"}}', Prompted),
        (b'{"type":"user","message":{"role":"user","content":[{"type":"text","text":"x"}]}}', Prompted),
        (b'{"type":"control_request","request_id":"1","request":{"subtype":"interrupt"}}', Asked),
        (b'{"type":"control_response","request_id":"1","response":{"subtype":"error","request_id":"1","error":"no"}}', Answered),
        (b'{"type":"control_cancel_request","request_id":"1"}', Cancelled),
        (b'{"type":"keep_alive"}', Passed),
        (b'{"type":"of_tomorrow"}', Passed),
        (b"[1, 2]", Passed),
        (b"this is not json", Fatal),
        (b"null", Fatal),
        (b"[1, 2", Fatal),
        (b'{"type":"user","message":{"role":"assistant","content":"x"}}', Fatal),
        (b'{"type":"control_request","request_id":"1"}', Fatal),
    ],
)
def test_what_a_host_says_is_taken_as_the_program_takes_it(peer: PeerSide, line: bytes, kind: type) -> None:
    [event] = peer.receive(b"\n" + line + b"\n")
    assert isinstance(event, kind)
    assert event.line == line
    if isinstance(event, Prompted):
        assert event.text == "x"
    if isinstance(event, Answered):
        assert event.error == "no"
    if isinstance(event, Fatal):
        assert event.why.startswith("Error parsing streaming input line")

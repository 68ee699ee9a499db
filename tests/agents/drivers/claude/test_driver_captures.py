"""Every recording of the real program, through the driver: neutral events, what is written back, and how the turn ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from serai.agents.session import Session
from serai.agents.turn import Turn
from serai.errors import AgentFailed
from serai.model.approvals import Allow, Approval, Deny, Question
from serai.model.events import Event, Message, Retrying, Stderr, Text, Thinking, ToolCalled, ToolEnded
from serai.model.tools import TextBlock, ToolCall, ToolResult, ToolSpec
from tests.support.claude.captures import LIMITS, NAMES, Capture, Played, play

# How each ends, where it is not with a result that says success: the words that its error has.
FAILS = {
    "agent-sdk-e401": "Invalid API key",
    "badjson": "Error parsing streaming input line",
    "bypass": "cannot be used with root/sudo privileges",
    "e400": "400",
    "e401-retry0": "Invalid API key",
    "e500": "500",
    "maxbudget": "budget",
    "nokey": "Not logged in",
    "noserver": "Unable to connect|ConnectionRefused|Connection",
    "resume-bad": "No conversation found with session ID",
    "sigint": "interrupted|error_during_execution|was aborted",
    "sigkill-group-tool": "SIGKILL|signal 9|-9",
    "sigkill-tool": "SIGKILL|signal 9|-9",
    "sigterm": "143",
    "sigterm-tool": "143",
}
# Somebody ends the turn, or its person says no and stops it.
ENDED = {"e401": "cancelled", "interrupt-approval": "cancelled", "interrupt-text": "cancelled", "tool-deny-interrupt": "denied"}
# The recorded host answered what ours never would: an invalid answer, an error, nothing.
ODD = {"tool-badanswer", "tool-errorresponse", "eof-approval-pending"}


def watch(name: str) -> Any:
    """What the recorded person did beside answering."""

    def interrupts(event: Event, _: Session, turn: Turn) -> Any:
        fits = isinstance(event, Text if name == "interrupt-text" else Approval)
        return turn.cancel("enough") if fits else None

    def leaves(event: Event, _: Session, turn: Turn) -> Any:
        return turn.cancel("enough") if isinstance(event, Retrying) and event.attempt == 8 else None

    def steers(event: Event, session: Session, _: Turn) -> Any:
        if isinstance(event, Approval):
            session.steer("also do this")

    return {"interrupt-text": interrupts, "interrupt-approval": interrupts, "e401": leaves, "message-mid-turn": steers}.get(name)


async def play_capture(name: str, place: Path, *options: str, **more: Any) -> tuple[Capture, Played]:
    capture = Capture(name)
    quick = LIMITS.but(interrupt=0.3, agent_stop=0.3)  # one that does not heed an interrupt is ended at once
    more = {"limits": quick, **more} if name == "e401" else more
    return capture, await play(capture, place, *options, watch=watch(name), **more)


@pytest.mark.req("agents.must.01")
@pytest.mark.parametrize("name", NAMES)
async def test_a_capture_through_the_driver(name: str, tmp_path: Path) -> None:
    capture, seen = await play_capture(name, tmp_path)
    result = seen.result
    assert result is not None
    if name in FAILS:
        assert result.status == "error"
        with pytest.raises(AgentFailed, match=FAILS[name]):
            raise seen.error or AssertionError("it did not fail")
    elif name in ENDED:
        assert result.status == ENDED[name]
    else:
        assert (result.status, seen.error) == ("success", None)
        assert capture.result is not None
        assert result.text == capture.result["result"]
        assert result.usage.output == capture.result["usage"]["output_tokens"]
    check_texts(capture, seen)
    check_calls(capture, seen)
    check_requests(capture, seen)


def check_texts(capture: Capture, seen: Played) -> None:
    """Once, in pieces or whole."""
    said = "".join(event.text for event in seen.of(Text))
    whole = "".join(block["text"] for block in capture.blocks("assistant", "text"))
    streamed = "".join(
        line["event"]["delta"].get("text", "")
        for line in capture.lines("out", "stream_event")
        if line["event"]["type"] == "content_block_delta" and not line.get("parent_tool_use_id")
    )
    if capture.name not in ("cut", "interrupt-text", "interrupt-approval", "sigint"):  # there a part of it is taken back
        assert said == (whole if len(whole) >= len(streamed) else streamed)
        kept = "".join(block.text for event in seen.of(Message) for block in event.content if isinstance(block, TextBlock))
        assert kept == whole
    thought = "".join(event.text for event in seen.of(Thinking))
    assert thought == "".join(block["thinking"] for block in capture.blocks("assistant", "thinking"))


def check_calls(capture: Capture, seen: Played) -> None:
    called = seen.of(ToolCalled, lane=None)
    assert [event.call.id for event in called] == [block["id"] for block in capture.blocks("assistant", "tool_use", main=False)]
    natives = [block["input"] for block in capture.blocks("assistant", "tool_use", main=False)]
    assert [event.call.native.arguments for event in called] == natives
    ended = {event.call.id: event.result for event in seen.of(ToolEnded, lane=None)}
    assert set(ended) == {event.call.id for event in called}
    for block in capture.blocks("user", "tool_result", main=False):
        assert ended[block["tool_use_id"]].is_error == bool(block.get("is_error"))


def check_requests(capture: Capture, seen: Played) -> None:
    """And the recorded answers are written back, by the same ids."""
    assert seen.given is not None
    kinds: dict[str, list[str]] = {"can_use_tool": []}
    for id, request in capture.asked.items():
        kinds.setdefault(request["subtype"], []).append(id)
    events = [event for event in seen.events if isinstance(event, Approval | Question)]
    assert [event.id for event in events] == kinds["can_use_tool"]
    answers = seen.given.answers()
    for id in kinds["can_use_tool"]:
        if capture.name in ODD or id not in capture.answers:
            continue
        ours, theirs = answers[id]["response"], capture.answers[id]["response"]
        assert ours["behavior"] == theirs["behavior"]
        if ours["behavior"] == "allow":
            assert ours["updatedInput"] == theirs.get("updatedInput", capture.asked[id]["input"])
            # Which settings they go to is chosen by whoever says yes, for all of them.
            assert _rules(ours) == _rules(theirs)
        else:
            assert ours["message"] == theirs["message"]
            assert bool(ours.get("interrupt")) == bool(theirs.get("interrupt"))
    if not capture.lines("in"):  # it was over before anybody could say anything
        return
    frames = seen.given.frames
    assert frames[0]["request"]["subtype"] == "initialize"
    assert frames[1]["type"] == "user"


def _rules(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**one, "destination": ""} for one in answer.get("updatedPermissions") or ()]


# -- some more closely


async def test_a_hook_of_the_recording_is_ours(tmp_path: Path) -> None:
    judged: list[ToolCall] = []

    async def judge(call: ToolCall) -> Allow | Deny:
        judged.append(call)
        return Allow()

    capture, seen = await play_capture("hooks", tmp_path, judge=judge)
    assert [call.arguments["command"] for call in judged] == ["echo hi > f.txt && cat f.txt"]
    hooks = [id for id, request in capture.asked.items() if request.get("callback_id") == "h0"]
    assert seen.given is not None
    [answer] = [response for id, response in seen.given.answers().items() if id in hooks]
    assert answer["response"]["hookSpecificOutput"]["hookEventName"] == "PreToolUse"
    assert seen.result is not None
    assert seen.result.status == "success"


class Sum:
    """A tool box with one tool."""

    def list(self) -> list[ToolSpec]:
        schema = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}
        return [ToolSpec("add", "adds", schema)]

    async def call(self, call: ToolCall, *, tell: Any = None) -> ToolResult:
        return ToolResult((TextBlock(str(call.arguments["a"] + call.arguments["b"])),))


async def test_our_tools_are_served_inside_the_protocol(tmp_path: Path) -> None:
    capture, seen = await play_capture("sdk-mcp", tmp_path, "--replace", "calc=serai", tools=Sum())
    assert seen.given is not None
    answers = seen.given.answers()
    called = {request["message"].get("method"): id for id, request in capture.asked.items() if request["subtype"] == "mcp_message"}
    served = {method: answers[id]["response"]["mcp_response"] for method, id in called.items()}
    assert served["initialize"]["result"]["serverInfo"]["name"] == "serai"
    assert [tool["name"] for tool in served["tools/list"]["result"]["tools"]] == ["add"]
    assert served["tools/call"]["result"]["content"] == [{"type": "text", "text": "5"}]
    assert [event.call.name for event in seen.of(ToolCalled)] == ["add"]
    given = json.loads(seen.given.option("--mcp-config") or "{}")
    assert given["mcpServers"]["serai"]["type"] == "sdk"
    assert seen.frames[0]["request"]["sdkMcpServers"] == ["serai"]


@pytest.mark.req("agents.must.07")
@pytest.mark.parametrize(("name", "kind"), [("bypass", "bad_flag"), ("badjson", ""), ("resume-bad", "")])
async def test_what_it_says_on_stderr_is_kept_and_told(name: str, kind: str, tmp_path: Path) -> None:
    capture, seen = await play_capture(name, tmp_path)
    [line] = [row["line"] for row in capture.rows if row["dir"] == "err"]
    assert line in [event.line for event in seen.events if isinstance(event, Stderr)]
    assert isinstance(seen.error, AgentFailed)
    assert kind in seen.error.kind

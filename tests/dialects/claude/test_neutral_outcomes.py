"""What came of a turn, why the program did not start, and texts that are safe to show."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.compat.agentboot.collected_messages import MessageCollector, ToolOutcome, UserText
from serai.dialects.claude.frame_reader import FrameReader
from serai.dialects.claude.messages import Assistant, Result, System
from serai.dialects.claude.neutral import ClaudeTurnOutcome, classify_start_failure, read_outcome
from serai.model.events import Usage
from serai.model.tools import TextBlock
from serai.plain_text import strip_text
from tests.support.claude.frames import assistant, init, read_capture, result, result_of, text, user


def read(value: dict[str, Any]) -> tuple[Any, bytes]:
    [(frame, line)] = FrameReader().read(msgspec.json.encode(value) + b"\n")
    return frame, line


def read_turn(value: dict[str, Any], **more: Any) -> ClaudeTurnOutcome:
    frame, line = read(value)
    assert isinstance(frame, Result)
    return read_outcome(frame, line, **more)


def read_captured_outcome(name: str) -> ClaudeTurnOutcome:
    [frame] = [frame for frame in read_capture(name) if frame["type"] == "result"]
    return read_turn(frame)


def test_a_success() -> None:
    how = read_captured_outcome("tool-allow")
    assert (how.status, how.text, how.error, how.steps, how.session_id) == ("success", "All done.", None, 2, "u1")
    assert how.usage == Usage(200, 40, cost_usd=0.0016)
    assert (how.queued, how.origin, how.uuids, how.interrupted) == (0, "", (), False)
    neutral = how.to_turn_result()
    assert (neutral.status, neutral.text, neutral.steps, neutral.session, neutral.error) == ("success", "All done.", 2, "u1", "")
    assert neutral.seconds == 0.263


@pytest.mark.req("agents.scenario.R6", "agents.rule.20")
def test_an_error_result_keeps_its_subtype_and_all_details() -> None:
    errors = ["Reached maximum number of turns (2)", "and more"]
    how = read_turn(
        result(subtype="error_max_turns", is_error=True, result=None, errors=errors, terminal_reason="max_turns"), stderr="tail"
    )
    error = how.error
    assert error is not None
    assert (how.status, error.kind, error.details) == ("error", "error_max_turns", tuple(errors))
    assert error.message == "returned an error result (error_max_turns): Reached maximum number of turns (2); and more"
    assert "raise the number of turns" in error.hint
    assert (error.who, error.stderr, how.reason) == ("claude", "tail", "max_turns")
    assert isinstance(error.native, msgspec.Raw)
    assert msgspec.json.decode(error.native)["errors"] == errors
    assert how.to_turn_result().ok is False


@pytest.mark.req("agents.rule.20")
@pytest.mark.parametrize(
    ("more", "details"),
    [
        ({"errors": ["a", "b"], "error": "c", "result": "d"}, ("a", "b")),
        ({"errors": [], "error": "c", "result": "d"}, ("c",)),
        ({"error": "", "result": "d"}, ("d",)),
        ({"error": {"code": 3}, "result": "d"}, ('{"code":3}',)),
        ({"errors": [{"code": 3}, "", None, "e"], "result": None}, ('{"code":3}', "e")),
        ({"result": None}, ()),
    ],
)
def test_details_are_the_errors_or_the_first_other_text(more: dict[str, Any], details: tuple[str, ...]) -> None:
    error = read_turn(result(**{"subtype": "error_during_execution", "is_error": True, "api_error_status": 500, **more})).error
    assert error is not None
    assert (error.details, error.status) == (details, 500)


@pytest.mark.req("agents.live.Z21")
@pytest.mark.parametrize(
    ("name", "kind", "status", "said"),
    [
        ("e400", "api_error", 400, "the model's API failed (status 400): API Error: 400 bad things"),
        ("e401-retry0", "api_error", 401, "the model's API failed (status 401): Invalid API key · Fix external API key"),
        ("nokey", "not_logged_in", 0, "it has no login: Not logged in · Please run /login"),
        ("noserver", "api_error", 0, "the model's API failed: API Error: Connection refused"),
    ],
)
def test_an_error_that_calls_itself_a_success_is_an_error(name: str, kind: str, status: int, said: str) -> None:
    [frame] = [frame for frame in read_capture(name) if frame["type"] == "result"]
    assert (frame["subtype"], frame["is_error"]) == ("success", True)
    how = read_turn(frame)
    assert how.error is not None
    assert (how.status, how.text, how.error.kind, how.error.status) == ("error", "", kind, status)
    assert how.error.message.startswith(said)
    assert how.error.hint
    assert "success" not in str(how.error)


@pytest.mark.req("agents.live.Z21")
def test_an_error_without_any_word_does_not_read_as_a_success() -> None:
    for more in ({}, {"terminal_reason": "completed"}, {"is_error": 1}):
        error = read_turn(result() | {"is_error": True, "result": None} | more).error
        assert error is not None
        assert error.message == "returned an error result (error)"


@pytest.mark.parametrize(
    ("name", "status", "kind", "reason", "message"),
    [
        (
            "interrupt-text",
            "cancelled",
            "error_during_execution",
            "aborted_streaming",
            "the turn was interrupted (aborted_streaming)",
        ),
        ("tool-deny-interrupt", "cancelled", "error_during_execution", "aborted_tools", "the turn was interrupted (aborted_tools)"),
        (
            "maxbudget",
            "error",
            "error_max_budget_usd",
            "budget_exhausted",
            "returned an error result (error_max_budget_usd): Reached maximum budget ($0.0005)",
        ),
    ],
)
def test_other_ends(name: str, status: str, kind: str, reason: str, message: str) -> None:
    how = read_captured_outcome(name)
    assert how.error is not None
    assert (how.status, how.error.kind, how.reason, how.error.message) == (status, kind, reason, message)
    assert how.interrupted == (status == "cancelled")


def test_an_unknown_session_is_an_error_with_its_text() -> None:
    how = read_captured_outcome("resume-bad")
    assert how.error is not None
    assert "No conversation found with session ID" in how.error.message
    assert "list" in how.error.hint


@pytest.mark.req("agents.live.Z22")
def test_the_cost_is_that_of_the_last_result() -> None:
    """It counts from the start of the program; the tokens are those of the turn."""
    costs = [read_turn(result(total_cost_usd=cost)).usage.cost_usd for cost in (0.1, 0.25)]
    assert costs == [0.1, 0.25]
    assert read_turn(result(total_cost_usd=None, usage=None)).usage == Usage()


def test_whose_prompt_it_was() -> None:
    how = read_turn(result(user_message_uuid="a", user_message_uuids=["a", "b"], origin={"kind": "human"}, queued_turn_count=2))
    assert (how.uuids, how.origin, how.queued) == (("a", "b"), "human", 2)
    assert [how.answers(uuid) for uuid in ("a", "b", "c", "")] == [True, True, False, True]
    how = read_turn(result(origin={"kind": "task-notification"}))
    assert (how.answers(), how.answers("a")) == (False, False)
    assert read_turn(result(origin=3)).answers("a")


def test_a_result_of_odd_types_is_still_one() -> None:
    odd: dict[str, Any] = {
        "usage": "x",
        "total_cost_usd": "x",
        "num_turns": "x",
        "duration_ms": None,
        "errors": 3,
        "origin": [],
        "user_message_uuids": 3,
    }
    how = read_turn(result("fine", **odd))
    assert (how.status, how.text, how.steps) == ("success", "fine", 0)
    assert read_turn({"type": "result"}).error is not None


# -- start-up


@pytest.mark.req("agents.rule.76")
@pytest.mark.parametrize(
    ("stderr", "kind"),
    [
        ("Error: Session ID 11111111-1111-4111-8111-111111111111 is already in use.\n", "session_in_use"),
        ("Error: Invalid session ID. Must be a valid UUID.\n", "bad_session_id"),
        ("No conversation found with session ID: 1111\n", "bad_session_id"),
        ("Not logged in · Please run /login\n", "not_logged_in"),
        ("Invalid API key · Please run /login\n", "not_logged_in"),
        ("error: unknown option '--nosuch'\n", "bad_flag"),
        ("error: option '--permission-mode <mode>' argument 'bogus' is invalid. Allowed choices are plan.\n", "bad_flag"),
        ("Error: When using --print, --output-format=stream-json requires --verbose\n", "bad_flag"),
        ("Error: --session-id can only be used with --continue or --resume if --fork-session is also specified.\n", "bad_flag"),
        ("--dangerously-skip-permissions cannot be used with root/sudo privileges for security reasons\n", "bad_flag"),
        ("Error: Invalid MCP configuration:\nMCP config file not found: /x\n", "bad_flag"),
        ("Error: Settings file not found: /x\n", "bad_flag"),
        (
            "The current directory no longer exists (it was deleted or moved). Start Claude Code from an existing directory.\n",
            "cwd_unavailable",
        ),
        ("Error: ENOENT: no such file or directory, uv_cwd\n", "cwd_unavailable"),
        ("some warning\n\x1b[31merror: unknown option '--x'\x1b[0m\n", "bad_flag"),
        ("Error parsing streaming input line (type=unknown, 16 chars): SyntaxError\n", ""),
        ("TypeError: undefined is not a function\n", ""),
        ("", ""),
    ],
)
def test_why_it_did_not_start(stderr: str, kind: str) -> None:
    assert classify_start_failure(stderr) == kind


# -- texts


@pytest.mark.req("agents.rule.68")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("plain — ünïcode", "plain — ünïcode"),
        ("a\x1b[31mred\x1b[0m", "ared"),
        ("a\x9b1mb", "ab"),
        ("\x1b]0;title\x07b", "b"),
        ("\x1b]8;;https://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;never ends", "0;never ends"),
        ("\x1bPq data\x1b\\z", "z"),
        ("\x1b(Bx\x1bcy\x1b", "xy"),
        ("one\ntwo\tthree\rfour", "one\ntwo\tthreefour"),
        ("safe\u202egnp.exe\x08\x00", "safegnp.exe"),
    ],
)
def test_nothing_is_shown_that_a_terminal_would_act_upon(given: str, expected: str) -> None:
    assert strip_text(given) == expected


@given(st.text(alphabet="\x1b\x9b\x9d\x07\\[]0;m1aP\u202e\n\t\x00", max_size=20))
def test_whatever_is_shown_is_printable(text: str) -> None:
    assert all(char.isprintable() or char in "\n\t" for char in strip_text(text))
    assert strip_text(strip_text(text)) == strip_text(text)


# -- messages of a run


@pytest.mark.req("agents.scenario.T2")
def test_frames_are_gathered_as_typed_messages() -> None:
    collector = MessageCollector()
    frames = [read(value)[0] for value in (init("s1"), assistant(text("hi")), {"type": "keep_alive"}, result("hi"))]
    for frame in frames:
        collector.add(frame)
    assert collector.session == "s1"
    assert [type(message) for message in collector.messages] == [System, Assistant, Result]
    assert [message.subtype for message in collector.list_messages("system")] == ["init"]
    assert [message.message.model for message in collector.list_messages("assistant")] == ["opus"]
    assert [message.result for message in collector.list_messages("result")] == ["hi"]
    assert collector.list_messages("user") == []
    collector.add(read(result() | {"session_id": "s2"})[0])
    assert collector.session == "s1"
    collector.add(read(init("s3"))[0])
    assert collector.session == "s3"
    collector.reset()
    assert (collector.messages, collector.session, collector.list_messages("system")) == ([], "", [])


@pytest.mark.req("agents.scenario.T6")
def test_user_frames_are_results_and_texts() -> None:
    collector = MessageCollector()

    def add(value: dict[str, Any]) -> list[Any]:
        return list(collector.add(read(value)[0]))

    assert add(result_of("c1", "out", error=True)) == [ToolOutcome("c1", (TextBlock("out"),), is_error=True)]
    assert add(result_of("c2", [text("a"), text("b")])) == [ToolOutcome("c2", (TextBlock("a"), TextBlock("b")))]
    assert add(user("plain")) == [UserText("plain")]
    assert add(user([text("in a"), text("list")])) == [UserText("in a\nlist")]
    assert add({"type": "user", "message": "the message itself"}) == [UserText("the message itself")]
    assert [message.text for message in collector.list_messages("user")] == ["plain", "in a\nlist", "the message itself"]
    assert [message.call_id for message in collector.list_messages("tool_result")] == ["c1", "c2"]

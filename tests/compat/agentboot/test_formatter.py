"""Claude Code's frames as text for people (spec agents 2.15, 5.2 F)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.compat.agentboot.formatter import TranscriptFormatter
from serai.dialects.claude.messages import FROM_CLI
from serai.wire.codec import Noise, Unknown
from tests.support.agentboot.formatter_frames import Frame, assistant, delta, result_of, system, text, use, user

pytestmark = pytest.mark.timeout(60)


def show(*frames: Any, **how: bool) -> list[str]:
    """What one formatter makes of them."""
    formatter = TranscriptFormatter(**how)
    return [formatter.show(frame) for frame in frames]


# -- what happens


@pytest.mark.req("agents.scenario.F1")
def test_init_is_shown_and_what_has_no_rule_is_not() -> None:
    init = system("init", model="claude-opus-5", cwd="/work", permissionMode="plan", claude_code_version="2.1.325", session_id="s")
    assert show(init) == ["[INIT] Claude Code 2.1.325, claude-opus-5, plan, /work"]
    hidden = [
        system(subtype) for subtype in ("status", "hook_started", "thinking_tokens", "session_state_changed", "unheard_of", "")
    ]
    assert show(*hidden, {"type": "system"}) == [""] * 7


@pytest.mark.req("agents.scenario.F2")
def test_a_task_is_shown_when_it_starts_and_when_it_is_over() -> None:
    about = {"task_id": "a1b2", "tool_use_id": "toolu_1"}
    started = system("task_started", description="look around", **about)
    over = system("task_notification", status="completed", summary="found it", **about)
    meanwhile = [system("task_progress", description="still looking", **about), system("task_updated", patch={}, **about)]
    assert show(started, *meanwhile, over) == ["[TASK] started: look around", "", "", "[TASK] completed: found it"]


@pytest.mark.req("agents.scenario.F3")
@pytest.mark.parametrize(
    "fields",
    [
        {"attempt": 2, "retry_delay_ms": 1500, "error": "overloaded"},
        {"retry": 2, "delay_ms": 1500, "message": "overloaded"},
        {"retryCount": 2, "delayMs": 1500.0, "reason": "overloaded"},
        {"retries": 2, "retry_after_ms": 1500, "error": "overloaded"},
    ],
)
@pytest.mark.parametrize("subtype", ["api_retry", "rate_limit"])
def test_a_retry_says_which_attempt_when_and_why(fields: Frame, subtype: str) -> None:
    [told] = show(system(subtype, **fields))
    assert told.startswith("[RETRY] ")
    assert told.endswith("(attempt 2), retry in 1.5s: overloaded")


@pytest.mark.req("agents.scenario.F3")
def test_a_retry_of_a_typed_frame_is_told_like_that_of_a_line() -> None:
    line = json.dumps(
        system("api_retry", attempt=1, max_retries=10, retry_delay_ms=800, error="rate_limit", error_status=429)
    ).encode()
    [typed] = FROM_CLI.create_reader().read(line + b"\n")
    assert not isinstance(typed, Unknown | Noise)
    assert show(typed) == show(line) == ["[RETRY] the model could not be asked (attempt 1), retry in 800ms: rate_limit (429)"]
    assert show(system("api_retry")) == ["[RETRY] the model could not be asked"]


@pytest.mark.parametrize(
    ("milliseconds", "told"), [(999, "999ms"), (1000, "1s"), (520.5, "520.5ms"), (61_000, "61s"), (1549, "1.5s")]
)
def test_delays(milliseconds: float, told: str) -> None:
    assert f"retry in {told}" in show(system("api_retry", retry_delay_ms=milliseconds))[0]


def test_a_limit_is_told_only_when_it_matters() -> None:
    def event(status: str) -> Frame:
        return {"type": "rate_limit_event", "rate_limit_info": {"status": status, "rateLimitType": "five_hour"}}

    assert show(event("allowed"), event("rejected")) == ["", "[RETRY] rate limit rejected: five_hour"]


# -- what is said


@pytest.mark.req("agents.scenario.F4", "agents.scenario.F13")
def test_text_is_shown_as_it_is_and_empty_text_is_nothing() -> None:
    said = "One line.\n\n  And another,\twith *marks*."
    assert show(assistant(text(said)), assistant(text("")), assistant(), {"type": "assistant"}) == [said, "", "", ""]
    assert show({"type": "assistant", "message": "as the seed has it"}) == ["as the seed has it"]


@pytest.mark.req("agents.scenario.F5")
def test_what_ran_at_the_provider_is_named() -> None:
    asked = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "weather in Bern"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "web_search_result"}] * 2}
    failed = found | {"content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}}
    nobodys = {"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_9", "content": {}}
    told = show(assistant(asked), assistant(found), assistant(failed), assistant(nobodys))
    assert told == [
        "web_search query=weather in Bern",
        "✓ web_search: 2 results",
        "✗ web_search: max_uses_exceeded",
        "✓ code_execution",
    ]


@pytest.mark.req("agents.scenario.F6")
def test_what_a_person_says_is_marked() -> None:
    assert show(user("hello"), user([text("hello"), text("again")])) == ["[USER] hello", "[USER] hello\n[USER] again"]
    assert show(user(""), user([]), user([text(" \n")]), user(None), {"type": "user"}) == [""] * 5
    assert show(user([{"type": "image", "source": {}}])) == ["[USER] [image]"]


@pytest.mark.req("agents.scenario.F7")
def test_a_command_is_shown_like_one_and_no_id_is() -> None:
    frames = [assistant(use("Bash", command="ls -la")), use("Grep", "toolu_2", pattern="x"), user([result_of(content="total 0")])]
    told = show(*frames)
    assert told[0] == "$ ls -la"
    assert not any("toolu" in one for one in told)


@pytest.mark.req("agents.scenario.F8")
def test_a_result_says_whether_it_went_well() -> None:
    called = assistant(use("Fly", to="Bern"))
    assert show(called, user([result_of(content="landed")]))[1] == "✓ Fly\n  landed"
    assert show(called, user([result_of(content="no wings", is_error=True)]))[1] == "✗ Fly\n  no wings"
    assert (
        show(called, result_of(content=[{"type": "text", "text": "by itself"}, {"type": "image"}]))[1]
        == "✓ Fly\n  by itself\n  [image]"
    )


@pytest.mark.req("agents.scenario.F9")
def test_the_result_of_a_turn_has_what_it_took() -> None:
    good = {"type": "result", "subtype": "success", "is_error": False, "duration_ms": 1234, "result": "All done.", "uuid": "u"}
    assert show(good) == ["[RESULT] SUCCESS 1234ms"]
    spent = good | {"total_cost_usd": 0.01234, "usage": {"input_tokens": 100, "output_tokens": 7}}
    assert show(spent) == ["[RESULT] SUCCESS 1234ms $0.0123 tokens 100 in, 7 out"]
    denied = good | {"permission_denials": [{"tool_name": "Bash", "tool_use_id": "toolu_1", "tool_input": {}}]}
    assert show(denied) == ["[RESULT] SUCCESS 1234ms\n  denied: Bash"]


def test_a_turn_that_failed_says_why_also_under_the_name_of_success() -> None:
    bad = {"type": "result", "subtype": "error_max_turns", "is_error": True, "duration_ms": 5, "errors": ["too many", {"code": 7}]}
    assert show(bad) == ['[RESULT] ERROR (error_max_turns) 5ms\n  too many\n  {"code":7}']
    api = {"type": "result", "subtype": "success", "is_error": True, "duration_ms": 5, "result": "API Error: 401"}
    assert show(api) == ["[RESULT] ERROR 5ms\n  API Error: 401"]


@pytest.mark.req("agents.scenario.F10")
def test_a_piece_is_shown_as_it_is() -> None:
    assert show(delta("Hel"), delta("lo\n"), {"type": "stream_delta", "delta": "!"}) == ["Hel", "lo\n", "!"]
    start = {"type": "stream_event", "event": {"type": "message_start", "message": {}}}
    assert show(start, delta('{"a', kind="partial_json"), {"type": "stream_event"}) == ["", "", ""]


def test_what_came_in_pieces_is_not_said_again_and_what_did_not_is() -> None:
    start = {
        "type": "stream_event",
        "event": {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    }
    frames = [start, delta("Hel"), delta("lo"), assistant(text("Hello")), assistant(text("Hello"))]
    assert show(*frames) == ["", "Hel", "lo", "", "Hello"]
    lane = {"parent_tool_use_id": "toolu_9"}  # what a sub-agent streams is not what the agent says
    assert show(start | lane, delta("Hello", **lane), assistant(text("Hello")), assistant(text("Hello"), **lane))[2:] == [
        "Hello",
        "",
    ]


@pytest.mark.req("agents.scenario.F11")
def test_thinking_is_for_those_who_want_it_and_what_is_redacted_for_nobody() -> None:
    frames = [
        assistant({"type": "thinking", "thinking": "hm", "signature": "sig"}),
        assistant({"type": "redacted_thinking", "data": "c2VjcmV0"}),
        delta("hm", kind="thinking"),
    ]
    assert show(*frames) == ["", "", ""]
    assert show(*frames, verbose=True) == ["[THINKING] hm", "", "hm"]


@pytest.mark.req("agents.scenario.F19")
def test_text_comes_before_tools() -> None:
    [told] = show(assistant(use("Bash", command="ls"), text("I look around.")))
    assert told == "I look around.\n$ ls"


# -- what it remembers


@pytest.mark.req("agents.scenario.F20")
def test_a_use_that_was_seen_in_a_message_is_not_shown_again() -> None:
    seen = use("Bash", command="ls")
    assert show(assistant(seen), seen, use("Bash", "toolu_2", command="pwd")) == ["$ ls", "", "$ pwd"]


@pytest.mark.req("agents.scenario.F21")
def test_a_result_is_called_by_the_tool_of_its_use() -> None:
    calls = assistant(use("Fly", "toolu_1"), use("Swim", "toolu_2"))
    results = [user([result_of("toolu_2", "wet")]), user([result_of("toolu_1", "high")]), user([result_of("toolu_3", "what?")])]
    assert show(calls, *results)[1:] == ["✓ Swim\n  wet", "✓ Fly\n  high", "✓ Result\n  what?"]


def test_the_newest_names_are_remembered_however_many_there_are() -> None:
    formatter = TranscriptFormatter()
    for number in range(20_000):
        formatter.show(assistant(use(f"Tool{number}", f"toolu_{number}")))
    assert formatter.show(user([result_of("toolu_19999", "x")])) == "✓ Tool19999\n  x"
    assert formatter.show(use("Tool19999", "toolu_19999")) == ""
    assert formatter.show(user([result_of("toolu_0", "x")])) == "✓ Result\n  x"


@pytest.mark.req("agents.scenario.F22")
def test_many_may_use_one_formatter_at_once() -> None:
    formatter = TranscriptFormatter(verbose=True, details=True)

    def stream(worker: int) -> list[str]:
        told = []
        for number in range(200):
            id, name = f"toolu_{worker}_{number}", f"Tool{worker}x{number}"
            formatter.show(assistant(text("so"), use(name, id, n=number)))
            formatter.show(delta("piece"))
            told.append(formatter.show(user([result_of(id, "x")])))
        return told

    with ThreadPoolExecutor(8) as pool:
        for worker, told in enumerate(pool.map(stream, range(8))):
            assert told == [f"✓ Tool{worker}x{number}\n  x" for number in range(200)]


# -- whatever comes

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
_TYPES = [
    "system",
    "assistant",
    "user",
    "stream_event",
    "result",
    "tool_use",
    "tool_result",
    "rate_limit_event",
    "stream_delta",
    "text",
]
_KEYS = [
    "message",
    "content",
    "event",
    "delta",
    "input",
    "name",
    "id",
    "subtype",
    "usage",
    "errors",
    "error",
    "duration_ms",
    "text",
]
_frames = st.recursive(
    _json,
    lambda inner: st.fixed_dictionaries(
        {"type": st.sampled_from([*_TYPES, "content_block_delta", "text_delta", "server_tool_use"])},
        optional={key: inner | st.lists(inner, max_size=3) for key in _KEYS},
    ),
    max_leaves=8,
)


@given(_frames)
def test_nothing_makes_it_raise(frame: Any) -> None:
    told = TranscriptFormatter(verbose=True, details=True).show(
        frame if isinstance(frame, dict) else {"type": "assistant", "message": frame}
    )
    assert isinstance(told, str)


@given(st.binary())
def test_lines_that_are_no_frames_show_nothing(line: bytes) -> None:
    assert isinstance(TranscriptFormatter().show(line), str)
    assert show(Noise(line, "no JSON"), Unknown(b'{"type":"command_lifecycle"}', "command_lifecycle", ""), b"[1]", "") == [""] * 4


@pytest.mark.parametrize(
    "nasty",
    ["\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x9b2J", "\x1b]8;;http://x\x1b\\", "a\x00b\x07", "\u202eabc", "\x9d0;t\x9c"],
)
def test_no_terminal_escape_gets_out(nasty: str) -> None:
    frames = [
        assistant(text(nasty), use(nasty, command=nasty), use("Bash", "toolu_2", command=nasty, description=nasty)),
        assistant(
            use("Edit", "toolu_3", file_path=nasty, old_string=nasty, new_string=nasty),
            use("TodoWrite", todos=[{"content": nasty}]),
        ),
        user(nasty),
        user([result_of(content=f"{nasty}\n{nasty}"), result_of("toolu_2", content=nasty, is_error=True)]),
        delta(nasty),
        system("init", model=nasty),
        system("api_retry", error=nasty),
        system("task_started", description=nasty),
        {"type": "result", "subtype": nasty, "is_error": True, "errors": [nasty, {nasty: nasty}]},
    ]
    told = "".join(show(*frames, verbose=True, details=True))
    assert told
    assert not {char for char in told if not char.isprintable()} - {"\n"}


def test_a_typed_frame_shows_what_its_line_does() -> None:
    frames = [
        assistant(text("hello"), use("Bash", command="ls"), {"type": "brand_new", "x": 1}),
        user([result_of(content="a\nb")], tool_use_result={"stdout": "a"}),
        delta("piece"),
        {"type": "result", "subtype": "success", "duration_ms": 3, "usage": {"input_tokens": 1, "output_tokens": 2}},
    ]
    typed = FROM_CLI.create_reader().read(b"".join(msgspec.json.encode(frame) + b"\n" for frame in frames))
    assert [type(one).__name__ for one in typed] == ["Unknown", "User", "StreamEvent", "Result"]  # a new block is no error
    assert show(*typed) == show(*frames)

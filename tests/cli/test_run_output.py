"""How a run is printed, for people and for programs."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import msgspec
import pytest

from serai.cli.run_output import JsonPrinter, TextPrinter, summarize_call
from serai.model.actions import Display, Insert, Notice, SetTitle
from serai.model.approvals import Approval
from serai.model.events import (
    Compacted,
    Event,
    Message,
    NoticeEvent,
    OtherEvent,
    Retrying,
    Stderr,
    StepsExhausted,
    StepStarted,
    Text,
    Thinking,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnResult,
    Usage,
)
from serai.model.tools import TextBlock, ToolCall, ToolResult

PATIENCE = 30.0  # seconds
BASH = ToolCall("bash", {"command": "make test"}, id="c1")
READ = ToolCall("read", {"path": "src/x.py"}, id="c2")
KEY = "sk-" + "a1b2" * 8
DONE = TurnEnded(result=TurnResult(status="success", text="done", steps=2, seconds=1.25, usage=Usage(1200, 34, 1000, 0, 0.0123)))


def print_text(*events: Event, **options: Any) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    printer = TextPrinter(out, err, **options)
    for event in events:
        printer.tell(event)
    printer.close()
    return out.getvalue(), err.getvalue()


@contextmanager
def open_terminal() -> Iterator[tuple[TextIO, Callable[[str], str]]]:
    """A real one, and what it shows up to some text."""
    ours, theirs = pty.openpty()

    def shown(end: str) -> str:
        seen = b""
        while not seen.endswith(end.replace("\n", "\r\n").encode()):
            assert select.select([ours], [], [], PATIENCE)[0], seen
            seen += os.read(ours, 65536)
        return seen.decode().replace("\r\n", "\n")

    with os.fdopen(theirs, "w", encoding="utf-8") as file:
        try:
            yield file, shown
        finally:
            os.close(ours)


# -- what the model says ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("app.printing.text")
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ([], ""),
        (["hel", "lo"], "hello\n"),
        (["hello\n"], "hello\n"),
        (["a\r\n\x1b[31mb\x00\u202e\n\n"], "a\r\n\x1b[31mb\x00\u202e\n\n"),  # byte for byte
    ],
)
def test_text_goes_into_a_pipe_as_it_is_and_ends_with_a_newline(said: list[str], expected: str) -> None:
    assert print_text(*(Text(text=piece) for piece in said), DONE) == (expected, "")


@pytest.mark.req("app.printing.text")
def test_what_two_steps_or_two_blocks_say_does_not_run_together() -> None:
    out, _ = print_text(
        StepStarted(step=1), Text(text="one"), Text(text="two", index=1), StepStarted(step=2), Text(text="three\n"),
        StepStarted(step=3), Text(text="four"), DONE, Text(text="five"),
    )  # fmt: skip
    assert out == "one\ntwo\nthree\nfour\nfive\n"


@pytest.mark.req("app.printing.text")
def test_a_message_that_did_not_stream_is_printed_and_one_that_did_is_not_printed_twice() -> None:
    whole = Message(content=(TextBlock("whole"),))
    assert print_text(StepStarted(step=1), whole, DONE)[0] == "whole\n"
    assert print_text(StepStarted(step=1), Text(text="whole"), whole, DONE)[0] == "whole\n"


@pytest.mark.req("app.printing.text")
def test_what_a_sub_agent_says_is_not_the_answer() -> None:
    assert print_text(Text(text="aside", lane="sub"), Text(text="answer"), Thinking(text="hm\n", lane="sub"), verbose=True) == (
        "answer\n",
        "",
    )


@pytest.mark.req("app.printing.text")
def test_a_terminal_shows_text_at_once_and_acts_upon_none_of_it() -> None:
    with open_terminal() as (file, shown):
        printer = TextPrinter(file, file, color=False)
        printer.tell(Text(text="tick"))
        assert shown("tick") == "tick"
        for piece in ("\ta\r", "\nb\r", "c\x1b[2J\x9b\u202e", "d"):
            printer.tell(Text(text=piece))
        printer.tell(ToolStarted(call=BASH))
        printer.tell(Text(text="on"))
        printer.close()
        assert shown("on\n") == "\ta\nb\\x0dc\\x1b[2J\\x9b\\x202ed\nbash  make test\non\n"


@pytest.mark.req("app.printing.text")
def test_what_is_held_back_comes_when_it_may() -> None:
    with open_terminal() as (file, shown):
        printer = TextPrinter(file, file, color=False)
        printer.tell(Text(text="before"))
        printer.hold()
        printer.tell(Text(text="after"))
        printer.act(Notice("hello", source="zot:weather"))
        assert shown("\n") == "before\n"
        printer.release()
        assert shown("hello\n") == "after\n[zot:weather] info: hello\n"


@pytest.mark.req("app.printing.text")
async def test_pieces_for_a_pipe_are_written_together_at_the_end_of_the_tick() -> None:
    out = io.StringIO()
    printer = TextPrinter(out, io.StringIO())
    printer.tell(Text(text="a"))
    printer.tell(Text(text="b"))
    assert out.getvalue() == ""
    await asyncio.sleep(0)
    assert out.getvalue() == "ab"
    printer.tell(Text(text="c" * 5000))
    assert out.getvalue().endswith("c")


# -- what happens meanwhile -------------------------------------------------------------------------------------------------------


@pytest.mark.req("app.printing.progress")
def test_tools_are_told_when_they_start_and_how_they_end() -> None:
    _, err = print_text(
        ToolStarted(call=BASH, at=10.0),
        ToolEnded(call=BASH, result=ToolResult.of("fine"), at=12.5),
        ToolStarted(call=BASH, lane="sub"),
        ToolStarted(call=READ),
        ToolEnded(call=READ, result=ToolResult.error("\nno such file\nat all")),
        ToolEnded(call=BASH, result=ToolResult.error("a guard said no", code="BLOCKED"), lane="sub"),
        ToolEnded(call=ToolCall("write", {"path": "y"}, id="c3"), result=ToolResult.error("not today", code="PERMISSION_DENIED")),
        ToolEnded(call=ToolCall("weather", {}, id="c4"), result=ToolResult.error("", code="TIMEOUT")),
        ToolEnded(call=ToolCall("tide", {}, id="c5"), result=ToolResult.of("not today")),  # stopped before it began, and no error
    )
    assert err.splitlines() == [
        "bash  make test",
        "  ok (2.5 s)",
        "  bash  make test",
        "read  src/x.py",
        "  error: no such file",
        "  bash  make test  blocked: a guard said no",
        "write  y  denied: not today",
        "weather  error: TIMEOUT",
        "tide  blocked: not today",
    ]


@pytest.mark.req("app.printing.progress")
def test_retries_compaction_and_notices_are_told_and_quiet_leaves_warnings() -> None:
    events = (
        Retrying(attempt=2, most=3, wait=0.5, error="overloaded\nmore"),
        Compacted(before=1200, after=12),
        StepsExhausted(count=30, most=30),
        NoticeEvent(notice=Notice("two\nlines", "success", "zot:weather")),
        NoticeEvent(notice=Notice("look out\n[serai] error: said by somebody", "warn")),
        Thinking(text="hm\n"),
        Stderr(line="noise"),
        DONE,
    )
    assert print_text(*events)[1].splitlines() == [
        "attempt 2 of 3 in 0.5 s: overloaded",
        "the conversation was shortened from 1,200 to 12 messages",
        "the model wanted to go on after 30 steps, and may not",
        "[zot:weather] success: two",
        "[zot:weather]   lines",
        "[serai] warn: look out",
        "  [serai] error: said by somebody",
    ]
    assert print_text(*events, quiet=True)[1] == "[serai] warn: look out\n  [serai] error: said by somebody\n"


@pytest.mark.req("app.printing.progress")
def test_thinking_and_usage_are_for_who_wants_to_know() -> None:
    said = (Thinking(text="let me "), Thinking(text="see\nso"), Stderr(line="noise", agent="codex"), DONE)
    assert print_text(*said)[1] == ""
    assert print_text(*said, verbose=True)[1].splitlines() == [
        "let me see",
        "so",
        "[codex] noise",
        "1,200 tokens in (1,000 cached), 34 out, $0.0123, 2 steps, 1.2 s",
    ]


@pytest.mark.req("app.printing.progress")
def test_what_others_chose_is_spelt_out_and_what_looks_like_a_secret_is_masked() -> None:
    _, err = print_text(
        ToolStarted(call=ToolCall("bash", {"command": f"\x1b[2Jcurl -H 'Authorization: Bearer {KEY}'"}, id="1")),
        ToolEnded(call=BASH, result=ToolResult.error(f"\x1b[31mbad key {KEY}")),
        NoticeEvent(notice=Notice(f"\x9b{KEY}", source="zot:\x07")),
        Retrying(attempt=2, most=3, wait=1.0, error=KEY),
    )
    assert KEY not in err
    assert "\\x1b[2J" in err
    assert "\\x1b[31mbad key ***" in err
    assert "[zot:\\x07] info: \\x9b***" in err
    assert err.replace("\n", "").isprintable()


@pytest.mark.req("app.printing.text")
def test_what_a_command_answers_is_a_result_on_lines_of_its_own() -> None:
    out, err = io.StringIO(), io.StringIO()
    printer = TextPrinter(out, err)
    printer.tell(Text(text="said"))
    printer.act(Display("a\nb", "zot:weather"))
    printer.act(Insert("c"))
    printer.act(SetTitle("title"))
    printer.close()
    assert (out.getvalue(), err.getvalue()) == ("said\n[zot:weather] a\n[zot:weather] b\nc\n", "")


@pytest.mark.req("app.printing.colors")
@pytest.mark.parametrize(("env", "colored"), [({"TERM": "xterm"}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colours_only_for_a_terminal_that_wants_them(monkeypatch: pytest.MonkeyPatch, env: dict[str, str], colored: bool) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in ({"TERM": "xterm"} | env).items():
        monkeypatch.setenv(name, value)
    with open_terminal() as (file, shown):
        TextPrinter(io.StringIO(), file).tell(ToolStarted(call=BASH))
        assert ("\x1b[" in shown("\n")) == colored
    assert "\x1b" not in print_text(ToolStarted(call=BASH))[1]


@pytest.mark.req("app.printing.glance")
@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (BASH, "bash  make test"),
        (ToolCall("bash", {"command": "make\n  test\t-k x"}), "bash  make test -k x"),
        (READ, "read  src/x.py"),
        (ToolCall("grep", {"pattern": "TODO", "path": "src"}), "grep  TODO  src"),
        (ToolCall("weather", {"city": "Bern"}), 'weather  {"city": "Bern"}'),
        (ToolCall("bash", {"cmd": 1}), 'bash  {"cmd": 1}'),
        (ToolCall("weather"), "weather"),
        (ToolCall("odd name\x1b"), '"odd name\\x1b"'),
        (ToolCall("x", "no json"), 'x  "no json"'),
        (ToolCall("x", {"a": object()}), "x"),
        (ToolCall("bash", {"command": "x" * 1_000_000}), "bash  " + "x" * 73 + "…"),
        (ToolCall("bash", {"command": "日" * 100}), "bash  " + "日" * 36 + "…"),
        (ToolCall("bash", {"command": f"echo {KEY}"}), "bash  echo " + "*" * len(KEY)),
    ],
)
def test_a_call_at_a_glance(call: ToolCall, expected: str) -> None:
    assert summarize_call(call) == expected


# -- for programs -----------------------------------------------------------------------------------------------------------------


def print_json(*events: Event) -> list[dict[str, Any]]:
    out = io.StringIO()
    printer = JsonPrinter(out)
    for event in events:
        printer.tell(event)
    printer.close()
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.mark.req("app.printing.json")
def test_each_event_is_a_line_of_json() -> None:
    found = print_json(
        Text(text="a\nb\u2028\x9b", seq=7, native=b"raw"),
        ToolStarted(call=BASH, native={"own": "form"}),
        Approval(id="1", call=BASH),
        OtherEvent(kind="odd", native=object()),
        OtherEvent(kind="raw", native=msgspec.Raw(b"{}")),
        Text(text="\ud800"),
        ToolStarted(call=ToolCall("x", {"a": object()}), seq=9),
    )
    assert found[:6] == [
        {"type": "text", "seq": 7, "text": "a\nb\u2028\x9b"},
        {"type": "tool_started", "native": {"own": "form"}, "call": {"name": "bash", "arguments": BASH.arguments, "id": "c1"}},
        {"type": "approval", "id": "1", "call": {"name": "bash", "arguments": BASH.arguments, "id": "c1"}},
        {"type": "other", "kind": "odd"},
        {"type": "other", "kind": "raw"},
        {"type": "text", "text": "\ud800"},
    ]
    assert found[6].keys() == {"type", "seq", "unreadable"}


@pytest.mark.req("app.printing.json")
def test_a_line_of_json_holds_nothing_that_a_terminal_would_act_upon() -> None:
    out = io.StringIO()
    JsonPrinter(out).tell(Text(text="\x1b[2J\x9b\u202e\u2028é"))
    assert out.getvalue() == '{"type":"text","text":"\\u001b[2J\\u009b\\u202e\\u2028é"}\n'


@pytest.mark.req("app.printing.json")
def test_the_last_line_is_the_result_and_notices_are_events() -> None:
    out = io.StringIO()
    printer = JsonPrinter(out)
    printer.act(Notice("hello", source="zot:weather"))
    printer.act(SetTitle("title"))
    printer.write_result(TurnResult(status="denied", text="t", session="s", error="no", usage=Usage(1, 2)))
    printer.close()
    notice, action, result = map(json.loads, out.getvalue().splitlines())
    assert notice == {"type": "noticed", "notice": {"type": "notice", "text": "hello", "level": "info", "source": "zot:weather"}}
    assert action == {"type": "action", "action": {"type": "set_title", "text": "title"}}
    assert list(result) == ["type", "status", "text", "session", "usage", "steps", "seconds", "error"]
    assert (result["type"], result["status"], result["usage"]["output"]) == ("result", "denied", 2)


# -- nowhere to write -------------------------------------------------------------------------------------------------------------


@pytest.mark.req("app.printing.lost")
@pytest.mark.parametrize("json", [True, False])
async def test_a_broken_pipe_is_told_once_and_raised_at_the_end(json: bool) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    lost: list[OSError] = []
    file = os.fdopen(writer, "w")
    printer = JsonPrinter(file, lost=lost.append) if json else TextPrinter(file, io.StringIO(), lost=lost.append)
    for _ in range(3):
        printer.tell(Text(text="x"))
        await asyncio.sleep(0)
    assert [type(error) for error in lost] == [BrokenPipeError]
    with pytest.raises(BrokenPipeError):
        printer.close()
    with suppress(BrokenPipeError):
        file.close()


@pytest.mark.req("app.printing.lost")
def test_a_full_disk_is_said_at_the_end() -> None:
    file = open("/dev/full", "w")
    printer = TextPrinter(file, io.StringIO())
    printer.tell(Text(text="x\n"))
    with pytest.raises(OSError, match="No space left"):
        printer.close()
    with pytest.raises(OSError, match="No space left"):
        file.close()

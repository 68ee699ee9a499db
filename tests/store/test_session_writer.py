"""What happens, written as it happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from serai.errors import NotWritten
from serai.limits import Limits
from serai.model import events
from serai.model.actions import Notice
from serai.model.approvals import Allow, Approval, Deny, Question, QuestionItem
from serai.model.events import Message, StepEnded, StepStarted, TurnEnded, TurnResult, TurnStarted, Usage
from serai.model.tools import TextBlock, ToolCall, ToolResult
from serai.store import CurrentSession, SessionWriter, StoredSession
from serai.store.messages import INTERRUPTED
from tests.support.session_events import BASH, READ, complete, finish, invoke, message, record_writes, start, tell, types
from tests.support.stored_sessions import create, lines_in, show


@pytest.mark.req("piglet.rule.session-persist")
def test_each_thing_is_written_when_it_has_happened(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        session_writer = SessionWriter(session, provider="p")
        session_writer.tell(TurnStarted(prompt="look"))
        assert show(session) == ["user: look"]
        tell(session_writer, StepStarted(step=1), events.Thinking(text="h"), events.Thinking(text="m"), events.Text(text="I l"))
        tell(session_writer, message("I look"), invoke(READ), invoke(BASH), events.UsageReported(usage=Usage(1, 2, 3, 4, 0.5)))
        assert show(session) == ["user: look"]
        session_writer.tell(StepEnded(step=1, stop="tool_use"))
        [_, assistant] = [entry.data for entry in session.read_path()]
        assert [item["type"] for item in assistant["content"]] == ["thinking", "text", "tool_call", "tool_call"]
        assert (assistant["model"], assistant["provider"], assistant["stopReason"]) == ("m1", "p", "toolUse")
        assert assistant["usage"] == {"inputTokens": 1, "outputTokens": 2, "cacheReadTokens": 3, "cacheWriteTokens": 4, "cost": 0.5}
        tell(session_writer, start(READ), start(BASH), complete(BASH))
        assert show(session)[2:] == [f"c1: {INTERRUPTED}", "c2: ok"]
        tell(session_writer, complete(READ), StepStarted(step=2), events.Text(text="by"), events.Text(text="e"), StepEnded(step=2))
        assert show(session)[1:] == ["assistant: (hm)I look[c1 read][c2 bash]", "c2: ok", "c1: ok", "assistant: bye"]
        session_writer.tell(TurnEnded(result=TurnResult(status="success", text=" bye\n")))
        assert types(session) == ["user", "assistant", "tool_result", "tool_result", "assistant", "event"]
        assert session.read_path()[-1].data == {"type": "turn_ended", "result": {"status": "success"}}


@pytest.mark.req("piglet.fix.19")
def test_steered_texts_and_the_mark_of_an_abort_come_after_the_step_they_interrupted(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        session_writer = SessionWriter(session)
        tell(session_writer, TurnStarted(prompt="go"), StepStarted(step=1), message("first"), invoke(BASH))
        session_writer.record_steering("not there")
        tell(session_writer, StepEnded(step=1, stop="tool_use"), start(BASH))
        session_writer.record_steering("over here")
        assert show(session)[-1] == f"c2: {INTERRUPTED}"
        tell(
            session_writer, complete(BASH), StepStarted(step=2), message("second"), invoke(READ), StepEnded(step=2, stop="tool_use")
        )
        session_writer.record_abort("plan mode")
        tell(session_writer, complete(READ), finish("cancelled"))
        assert show(session) == [
            "user: go",
            "assistant: first[c2 bash]",
            "c2: ok",
            "user: not there",
            "user: over here",
            "assistant: second[c1 read]",
            "c1: ok",
            "user: [Request interrupted: plan mode]",
        ]


@pytest.mark.req("piglet.fix.19")
def test_an_abort_in_the_middle_of_a_step_keeps_what_was_said(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        session_writer = SessionWriter(session)
        tell(session_writer, TurnStarted(prompt="go"), StepStarted(step=1), events.Text(text="I wou"))
        session_writer.record_abort("by hand")
        session_writer.tell(finish("cancelled"))
        assert show(session) == ["user: go", "assistant: I wou", "user: [Request interrupted: by hand]"]
        assert session.read_path()[1].data["stopReason"] == "aborted"


@pytest.mark.req("piglet.rule.session-persist", "store.file.sync")
def test_it_is_on_the_disk_at_the_end_of_a_turn_and_before_a_tool_that_changes_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create(tmp_path) as session:
        happened = record_writes(monkeypatch, session)
        session_writer = SessionWriter(session)
        tell(session_writer, TurnStarted(prompt="go"), StepStarted(step=1), invoke(READ), invoke(BASH), StepEnded(step=1))
        tell(session_writer, start(READ), complete(READ))
        assert happened == ["user", "assistant", "tool_result"]
        tell(session_writer, start(BASH))
        assert happened[3:] == ["sync"]
        tell(session_writer, complete(BASH), finish())
        assert happened[4:] == ["tool_result", "event", "sync"]


@pytest.mark.parametrize("tool", ["write", "edit", "bash", "fetch", "weather", "Read"])
def test_every_tool_that_is_not_known_to_be_harmless_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    with create(tmp_path) as session:
        happened = record_writes(monkeypatch, session)
        call = ToolCall(tool, {}, "c")
        tell(SessionWriter(session), invoke(call), start(call))  # from an agent that does not tell of steps
        assert happened == ["assistant", "sync"]


@pytest.mark.req("store.scribe.driven")
def test_a_driven_agents_session_keeps_its_own_id_and_neutral_events(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        session_writer = SessionWriter(session)
        approval = Approval(id="r1", call=BASH, agent="claude", native={"request": 1})
        tell(
            session_writer,
            events.SessionStarted(agent="claude", session="theirs"),
            events.SessionStarted(agent="claude", session="theirs"),
            TurnStarted(prompt="go"),
            approval,
            Question(id="q1", items=(QuestionItem("Which?"),)),
            events.Plan(entries=(events.PlanEntry("one"),)),
            events.NoticeEvent(notice=Notice("careful", "warn")),
            events.Retrying(attempt=1, most=3, wait=0.5),
            events.UsageReported(usage=Usage(1), total=Usage(2)),
            events.RequestCancelled(id="q1"),
            events.OtherEvent(kind="claude/rate_limit", native={"x": "y" * 5000}),
            events.Compacted(before=9, after=2),
            # and what is over when it is told
            events.StateChanged(state="busy"),
            events.ToolProgress(call=BASH, text="."),
            events.ToolInput(text="{"),
        )
        session_writer.record_decision("r1", Deny("no"))
        session_writer.record_decision("q1", Allow())
        assert (session.meta.agent, session.meta.agent_session) == ("claude", "theirs")
        assert len([form for form in lines_in(session.file) if form["type"] == "meta"]) == 2
        kept = [entry.data for entry in session.read_path() if entry.type == "event"]
        assert [data["type"] for data in kept] == [
            *("approval", "question", "plan", "noticed", "retrying", "usage", "request_cancelled", "other", "compacted"),
            *("decided", "decided"),
        ]
        assert msgspec.convert(kept[0], Approval) == approval
        assert len(kept[7]["native"]["x"]) == 5000  # which is all there is of it
        assert kept[9] == {"type": "decided", "id": "r1", "decision": {"type": "deny", "why": "no"}}
        assert show(session) == ["user: go", "assistant: [c2 bash]", f"c2: {INTERRUPTED}"]


@pytest.mark.req("store.scribe.driven")
def test_an_agents_own_form_is_kept_when_it_is_short(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        session_writer = SessionWriter(session)
        for native in ({"id": 7}, {"x": "y" * 5000}, object()):
            session_writer.tell(events.NoticeEvent(notice=Notice("n"), native=native))
        assert [entry.data.get("native") for entry in session.read_path()] == [{"id": 7}, None, None]


def test_a_sub_agents_words_are_no_part_of_the_conversation(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        session_writer = SessionWriter(session)
        tell(
            session_writer,
            TurnStarted(prompt="go"),
            Message(content=(TextBlock("inner"),), lane="sub"),
            events.Text(text="x", lane="sub"),
        )
        tell(session_writer, events.ToolEnded(call=READ, result=ToolResult.of("r"), lane="sub"), finish())
        assert show(session) == ["user: go"]
        assert [entry.data["type"] for entry in session.read_path()[1:]] == ["message", "tool_ended", "turn_ended"]


def test_arguments_that_somebody_rewrote_are_kept_beside_those_that_were_called(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        session_writer = SessionWriter(session)
        tell(session_writer, invoke(BASH), StepEnded(), start(ToolCall("bash", {"command": "ls -l"}, "c2")), complete(BASH))
        [_, event, _] = [entry.data for entry in session.read_path()]
        assert (event["type"], event["call"]["arguments"]) == ("tool_started", {"command": "ls -l"})


def test_a_step_that_failed_says_why(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        tell(SessionWriter(session), TurnStarted(prompt="go"), StepEnded(step=1, stop="error", error="overloaded"))
        data = session.read_path()[-1].data
        assert (data["stopReason"], data["error"], data["content"]) == ("error", "overloaded", [])


def test_a_result_that_is_too_long_keeps_its_beginning(tmp_path: Path) -> None:
    with create(tmp_path) as made, StoredSession(made.file, limits=Limits().but(session_line=100_000)) as session:
        session_writer = SessionWriter(session)
        tell(session_writer, invoke(BASH), StepEnded(), complete(BASH, "begin " + "x" * 200_000))
        session_writer.tell(events.OtherEvent(kind="huge", native="x" * 200_000))
        [_, result, other] = [entry.data for entry in session.read_path()]
        assert result["content"][0]["text"].startswith(
            "[this was too long, or of a form that the session cannot keep; it began so:]\nbegin xxx"
        )
        assert other == {"type": "other", "kind": "huge"}
        with pytest.raises(NotWritten):
            session_writer.tell(TurnStarted(prompt="x" * 200_000))
        session_writer.tell(TurnStarted(prompt="short"))
        assert show(session)[-1] == "user: short"


@pytest.mark.req("store.file.full-disk")
def test_what_a_full_disk_refused_is_written_when_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with create(tmp_path) as session:
        session_writer = SessionWriter(session)
        tell(session_writer, TurnStarted(prompt="go"), message("a"), invoke(BASH))
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", no)
            for event in (StepEnded(), complete(BASH), finish()):
                with pytest.raises(NotWritten, match="No space left"):
                    session_writer.tell(event)
            assert show(session) == ["user: go"]
        session_writer.tell(TurnStarted(prompt="on"))
        assert show(session) == ["user: go", "assistant: a[c2 bash]", "c2: ok", "user: on"]


@pytest.mark.req("piglet.fix.20")
def test_after_a_fork_the_scribe_writes_into_the_fork(tmp_path: Path) -> None:
    current = CurrentSession(create(tmp_path))
    session_writer = SessionWriter(current)
    session_writer.tell(TurnStarted(prompt="a"))
    old = current.session.file
    fork = current.fork()
    tell(session_writer, message("b"), StepEnded())
    assert show(fork) == ["user: a", "assistant: b"]
    assert len(lines_in(old)) == 2
    current.close()


WRITER = """
import sys
from serai.model.events import *
from serai.model.tools import *
from serai.store import SessionWriter, StoredSession
session_writer = SessionWriter(StoredSession(sys.argv[1]))
call = ToolCall("bash", {}, "c1")
for event in (TurnStarted(prompt="go"), Message(content=(TextBlock("run it"),)), ToolCalled(call=call), StepEnded()):
    session_writer.tell(event)
session_writer.tell(ToolStarted(call=call))
session_writer.tell(Text(text="half a sen"))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.req("piglet.rule.session-persist", "store.message.interrupted")
def test_who_is_killed_in_the_middle_of_a_tool_loses_only_what_had_not_ended(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        command = [sys.executable, "-c", WRITER, session.file]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ) as writer:
            assert writer.stdout
            assert writer.stdout.readline() == b"ready\n"
            writer.send_signal(signal.SIGKILL)
        before = Path(session.file).read_bytes()
        assert show(session) == ["user: go", "assistant: run it[c1 bash]", f"c1: {INTERRUPTED}"]
        assert Path(session.file).read_bytes() == before  # in memory only

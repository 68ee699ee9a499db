"""Turns that do not end tidily, agents that do not tell everything, and what cannot be written."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from serai.errors import NotWritten
from serai.limits import MIB, Limits
from serai.model import events
from serai.model.approvals import Allow, Approval, Deny
from serai.model.events import Message, StepEnded, StepStarted, TurnEnded, TurnResult, TurnStarted
from serai.model.tools import Block, OtherBlock, TextBlock, ToolCall, ToolResult
from serai.store import CurrentSession, SessionFolder, SessionWriter, StoredSession
from serai.store.messages import INTERRUPTED, AssistantMessage, StoredToolCall
from tests.support.session_events import BASH, READ, complete, finish, invoke, message, record_writes, start, tell, types
from tests.support.stored_sessions import create, show

LOST = f"c2: {INTERRUPTED}"


def fail_disk_full(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.req("store.scribe.driven")
def test_a_lock_that_somebody_holds_costs_nothing(tmp_path: Path) -> None:
    with create(tmp_path, Limits().but(session_lock=0.02)) as session:
        writer = SessionWriter(session)
        tell(writer, TurnStarted(prompt="go"), invoke(BASH), StepEnded())
        with open(session.file + ".lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for event in (complete(BASH, "x" * 100_000), TurnStarted(prompt="important")):
                with pytest.raises(NotWritten, match="session_lock"):
                    writer.tell(event)
        writer.tell(finish())
        assert show(session) == ["user: go", "assistant: [c2 bash]", "c2: " + "x" * 100_000, "user: important"]


@pytest.mark.req("store.scribe.driven")
def test_an_agent_that_tells_of_no_calls_has_them_written_all_the_same(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        writer = SessionWriter(session)
        tell(writer, TurnStarted(prompt="go"), start(BASH))
        assert show(session) == ["user: go", "assistant: [c2 bash]", LOST]  # before it runs
        tell(
            writer,
            start(BASH),
            complete(BASH),
            complete(READ, "text"),
            invoke(READ),
            invoke(READ),
            complete(READ, "more"),
            finish(),
        )
        assert show(session)[1:] == [
            *("assistant: [c2 bash]", "c2: ok", "assistant: [c1 read]", "c1: text", "assistant: [c1 read]", "c1: more")
        ]


@pytest.mark.req("piglet.fix.19")
@pytest.mark.parametrize("end", [finish("cancelled"), TurnStarted(prompt="two"), events.SessionStarted(), StepStarted(step=2)])
def test_a_call_that_is_open_when_its_turn_is_over_has_a_result_that_says_so(tmp_path: Path, end: events.Event) -> None:
    with create(tmp_path) as session:
        writer = SessionWriter(session)
        tell(writer, TurnStarted(prompt="go"), invoke(BASH), StepEnded(stop="tool_use"), start(BASH))
        writer.record_abort("by hand")
        writer.tell(end)
        written = [entry.data for entry in session.read_path() if entry.type == "tool_result"]
        assert [(data["toolCallId"], data["isError"], data["code"]) for data in written] == [("c2", True, "TOOL_INTERRUPTED")]
        after = [] if not isinstance(end, TurnStarted) else ["user: two"]
        talk = ["user: go", "assistant: [c2 bash]", LOST, "user: [Request interrupted: by hand]", *after]
        assert show(session) == talk
        # and what the tool answers later is no part of the conversation (FIX-22)
        writer.tell(complete(BASH, "late"))
        assert show(session) == (
            talk if not isinstance(end, events.SessionStarted) else [*talk, "assistant: [c2 bash]", "c2: late"]
        )
        if not isinstance(end, events.SessionStarted):
            last = session.read_path()[-1].data
            assert (last["type"], last["result"]["content"][0]["text"]) == ("tool_ended", "late")


def test_the_id_of_a_call_may_be_used_again(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        writer = SessionWriter(session)
        for number in ("1", "2"):
            tell(writer, TurnStarted(prompt=number), invoke(BASH), StepEnded(), start(BASH), finish("cancelled"))
            tell(writer, TurnStarted(prompt="on"), start(BASH), complete(BASH, number), finish())
            tell(writer, TurnStarted(prompt="and"), complete(BASH, "unannounced"), complete(BASH, "twice"), finish())
        turn = ["assistant: [c2 bash]", LOST, "user: on", "assistant: [c2 bash]", "c2: {}", "user: and", "assistant: [c2 bash]"]
        assert show(session) == [text.format(n) for n in "12" for text in (f"user: {n}", *turn, "c2: unannounced")]


@pytest.mark.req("store.scribe.driven")
def test_calls_at_once_of_an_agent_that_tells_no_steps_have_their_results(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        writer = SessionWriter(session)
        tell(writer, TurnStarted(prompt="go"), invoke(BASH), start(BASH), invoke(READ), start(READ), events.Text(text="al"))
        tell(writer, complete(READ, "r"), complete(BASH, "b"), events.Text(text="so"), finish())
        assert show(session) == ["user: go", "assistant: [c2 bash]", "c2: b", "assistant: [c1 read]", "c1: r", "assistant: also"]


def answer_event(text: str, status: Any = "success") -> TurnEnded:
    return TurnEnded(result=TurnResult(status=status, text=text))


def test_an_answer_that_only_the_result_has_is_said(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        writer = SessionWriter(session)
        tell(writer, TurnStarted(prompt="one"), answer_event("the answer"), TurnStarted(prompt="two"), invoke(BASH))
        writer.record_steering("hurry")
        tell(writer, answer_event("another"), answer_event("told twice"))
        assert show(session)[:2] == ["user: one", "assistant: the answer"]
        assert show(session)[2:] == ["user: two", "assistant: [c2 bash]", LOST, "assistant: another", "user: hurry"]
        results = [entry.data["result"].get("text") for entry in session.read_path() if entry.type == "event"]
        assert results == [None, None, "told twice"]


def test_a_result_that_differs_from_what_was_said_is_kept(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        tell(SessionWriter(session), TurnStarted(prompt="go"), message("a\nb"), StepEnded(), answer_event("in short: ab"))
        assert show(session) == ["user: go", "assistant: a\nb"]
        assert session.read_path()[-1].data["result"]["text"] == "in short: ab"


def test_what_streams_after_a_message_is_written_too(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        writer = SessionWriter(session)
        tell(
            writer, TurnStarted(prompt="go"), events.Text(text="A"), message("A"), events.Text(text="B ha"), events.Text(text="lf")
        )
        tell(writer, Message(), finish("cancelled"))
        assert show(session) == ["user: go", "assistant: AB half"]


@pytest.mark.req("piglet.fix.19")
def test_what_a_person_says_between_turns_is_written_at_once(tmp_path: Path) -> None:
    with create(tmp_path) as session:
        writer = SessionWriter(session)
        tell(writer, TurnStarted(prompt="go"), finish("cancelled"))
        writer.record_abort("by hand")
        writer.record_steering("and this")
        assert show(session) == ["user: go", "user: [Request interrupted: by hand]", "user: and this"]


def test_what_an_agent_that_died_had_said_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with create(tmp_path) as session:
        writer = SessionWriter(session)
        tell(writer, events.SessionStarted(session="one"), TurnStarted(prompt="go"), message("first life"))
        tell(writer, events.SessionStarted(session="two"), message("second life"), invoke(BASH))
        writer.record_steering("hello?")
        happened = record_writes(monkeypatch, session)
        writer.close()
        writer.close()
        assert happened == ["assistant", "tool_result", "user", "sync"]
        assert show(session)[1:] == ["assistant: first life", "assistant: second life[c2 bash]", LOST, "user: hello?"]
        assert session.meta.agent_session == "two"
        assert not session.closed


# -- another session


@pytest.mark.req("piglet.fix.20")
def test_nothing_of_a_session_gets_into_the_one_that_is_loaded_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = SessionFolder(tmp_path)
    first, second = sessions.create("/a"), sessions.create("/b")
    current = CurrentSession(first)
    writer = SessionWriter(current)
    tell(writer, TurnStarted(prompt="a's"), message("a's answer"), invoke(BASH))
    writer.record_steering("to a")
    happened = record_writes(monkeypatch, first)
    current.swap(second)
    assert happened[-1] == "sync"
    assert first.closed
    tell(writer, TurnStarted(prompt="b's"), complete(READ))
    assert show(second) == ["user: b's", "assistant: [c1 read]", "c1: ok"]
    current.close()
    with StoredSession(first.file) as again:
        assert show(again) == ["user: a's", "assistant: a's answer[c2 bash]", LOST, "user: to a"]


@pytest.mark.req("piglet.fix.20")
@pytest.mark.parametrize("force", [False, True])
def test_a_session_to_which_something_is_owed_is_not_left_unless_by_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, force: bool
) -> None:
    sessions = SessionFolder(tmp_path)
    first, second = sessions.create("/a"), sessions.create("/b")
    current = CurrentSession(first)
    writer = SessionWriter(current)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", fail_disk_full)
        with pytest.raises(NotWritten):
            writer.tell(TurnStarted(prompt="a's"))
        if force:
            current.swap(second, force=True)
        else:
            with pytest.raises(NotWritten):
                current.swap(second)
    assert current.session is (second if force else first)
    current.swap(second)
    writer.tell(TurnStarted(prompt="b's"))
    assert show(second) == ["user: b's"]
    current.close()
    with StoredSession(first.file) as again:
        assert show(again) == ([] if force else ["user: a's"])


@pytest.mark.req("piglet.fix.20")
def test_a_turn_goes_on_in_a_fork(tmp_path: Path) -> None:
    current = CurrentSession(create(tmp_path))
    writer = SessionWriter(current)
    tell(writer, TurnStarted(prompt="go"), invoke(BASH), StepEnded(), start(BASH), events.Text(text="in the mid"))
    writer.record_steering("on")
    fork = current.fork()
    tell(writer, complete(BASH), events.Text(text="dle"), finish())
    assert show(fork) == ["user: go", "assistant: [c2 bash]", "c2: ok", "assistant: in the middle", "user: on"]
    current.close()


@pytest.mark.req("piglet.fix.20")
def test_what_is_owed_to_a_session_is_in_it_and_in_its_fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    current = CurrentSession(create(tmp_path))
    first = current.session.file
    writer = SessionWriter(current)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", fail_disk_full)
        with pytest.raises(NotWritten):
            writer.tell(TurnStarted(prompt="go"))
        with pytest.raises(NotWritten):
            current.fork()
    assert current.session.file == first
    fork = current.fork()
    with StoredSession(first) as again:
        assert show(again) == show(fork) == ["user: go"]
    current.close()


@pytest.mark.req("piglet.fix.20")
def test_whoever_writes_while_a_session_is_swapped_writes_into_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = SessionFolder(tmp_path)
    first, second = sessions.create("/a"), sessions.create("/b")
    current = CurrentSession(first)
    writer = SessionWriter(current)
    writing = threading.Thread(target=writer.tell, args=(TurnStarted(prompt="go"),))

    def meanwhile() -> None:
        writing.start()
        writing.join(0.05)
        assert writing.is_alive()

    monkeypatch.setattr(first, "sync", meanwhile)
    current.swap(second)
    writing.join()
    assert show(second) == ["user: go"]
    current.close()


@pytest.mark.req("piglet.fix.20")
def test_a_session_is_not_swapped_in_the_middle_of_what_is_written(tmp_path: Path) -> None:
    sessions = SessionFolder(tmp_path)
    current = CurrentSession(sessions.create("/a"))
    writer = SessionWriter(current)
    stop, failed, count = threading.Event(), list[BaseException](), 0

    def write() -> None:
        nonlocal count
        try:
            while not stop.is_set():
                tell(writer, TurnStarted(prompt="x"), message("y"), StepEnded())
                count += 1
        except BaseException as error:
            failed.append(error)

    writing = threading.Thread(target=write)
    writing.start()
    for _ in range(30):
        current.swap(sessions.create("/b"))
    stop.set()
    writing.join()
    current.close()
    assert failed == []
    texts = []
    for one in sessions.list():
        with StoredSession(one.path) as session:
            texts += show(session)
            assert session.problems == ()
    assert (texts.count("user: x"), texts.count("assistant: y")) == (count, count)


# -- approvals


@pytest.mark.req("store.file.sync", "store.scribe.driven")
def test_what_an_agent_may_do_is_on_the_disk_before_it_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with create(tmp_path) as session:
        happened = record_writes(monkeypatch, session)
        writer = SessionWriter(session)
        tell(writer, TurnStarted(prompt="go"), message("I try"), invoke(BASH), Approval(id="r1", call=BASH))
        assert happened == ["user", "assistant", "event"]
        writer.record_decision("r1", Allow())
        assert happened[3:] == ["event", "sync"]
        tell(writer, StepEnded(), complete(BASH), Approval(id="r2", call=READ), Approval(id="r3", call=BASH, lane="sub"))
        del happened[:]
        writer.record_decision("r2", Allow())
        writer.record_decision("r4", Deny())
        assert happened == ["event", "event"]
        writer.record_decision("r3", Allow())
        writer.record_decision("unknown", Allow())
        assert happened[2:] == ["event", "sync", "event", "sync"]
        tell(writer, Approval(id="r5", call=ToolCall("bash", {})))  # of no call that is known
        assert show(session) == ["user: go", "assistant: I try[c2 bash]", "c2: ok", "assistant: [c1 read]", f"c1: {INTERRUPTED}"]


# -- what does not fit


def deep(levels: int) -> Any:
    data: Any = 1
    for _ in range(levels):
        data = [data]
    return data


@pytest.mark.req("store.file.limit")
@pytest.mark.parametrize("arguments", [{"x": "y" * 11 * MIB}, {"x": deep(850)}, {"x": deep(5000)}, {"x": object()}])
def test_arguments_that_do_not_fit_do_not_cost_the_step(tmp_path: Path, arguments: Any) -> None:
    call = ToolCall("write", arguments, "c9")
    with create(tmp_path) as session:
        writer = SessionWriter(session)
        tell(writer, TurnStarted(prompt="go"), message("I write it"), invoke(call), StepEnded(stop="tool_use"))
        tell(writer, start(call), Approval(id="r", call=call), complete(call, "written"))
        writer.record_decision("r", Allow(arguments))
        writer.tell(finish())
        assert show(session) == ["user: go", "assistant: I write it[c9 write]", "c9: written"]
        [_, assistant, _] = session.read_messages()
        assert isinstance(assistant, AssistantMessage)
        kept = assistant.content[1]
        assert isinstance(kept, StoredToolCall)
        assert "it began so" in kept.arguments["unfit"]
        assert os.path.getsize(session.file) < MIB
        decided = [entry.data for entry in session.read_path() if entry.type == "event" and entry.data["type"] == "decided"]
        assert decided[0]["decision"]["type"] == "allow"


@pytest.mark.req("store.file.limit")
def test_a_message_of_many_long_parts_is_cut_down_until_it_fits(tmp_path: Path) -> None:
    with create(tmp_path) as made, StoredSession(made.file, limits=Limits().but(session_line=100_000)) as session:
        blocks: tuple[Block, ...] = (*(TextBlock(f"{number} " + "x" * 70_000) for number in range(5)), OtherBlock("odd", object()))
        writer = SessionWriter(session)
        tell(writer, Message(content=blocks), invoke(BASH), StepEnded())
        writer.tell(events.ToolEnded(call=BASH, result=ToolResult(blocks)))
        for entry in session.read_path():
            texts = [item["text"] for item in entry.data["content"] if item["type"] == "text"]
            assert len(texts) == 6
            assert all("it began so" in text for text in texts)
            assert "\n4 xxx" in texts[4]


def test_what_comes_after_something_that_does_not_fit_is_written(tmp_path: Path) -> None:
    with create(tmp_path) as made, StoredSession(made.file, limits=Limits().but(session_line=100_000)) as session:
        writer = SessionWriter(session)
        tell(writer, TurnStarted(prompt="go"), message("said"))
        writer.record_steering("x" * 200_000)
        with pytest.raises(NotWritten, match="too long"):
            writer.tell(finish())
        assert types(session) == ["user", "assistant", "event"]
        writer.tell(TurnStarted(prompt="on"))
        assert show(session)[-1] == "user: on"


@pytest.mark.req("store.file.full-disk")
def test_the_agents_own_id_is_written_when_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with create(tmp_path) as session:
        writer = SessionWriter(session)
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", fail_disk_full)
            with pytest.raises(NotWritten):
                writer.tell(events.SessionStarted(agent="claude", session="theirs"))
        writer.tell(TurnStarted(prompt="go"))
        assert (session.meta.agent, session.meta.agent_session) == ("claude", "theirs")

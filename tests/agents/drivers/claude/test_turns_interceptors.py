"""Guests that hold back a turn or what the model says: what is hidden is seen nowhere, in no event and in no line."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serai.agents.drivers.claude.turns import EventSequencer
from serai.agents.event_hub import EventHub
from serai.errors import NotAllowed
from serai.limits import Limits
from serai.model.approvals import Approval
from serai.model.events import (
    Event,
    Message,
    NoticeEvent,
    OtherEvent,
    Text,
    Thinking,
    ToolCalled,
    ToolEnded,
    ToolInput,
    TurnEnded,
    event_kind,
)
from serai.model.tools import TextBlock
from serai.store import SessionFolder
from serai.testing.claude.script import Script, ScriptedClaude
from tests.support.claude.interceptors import ScriptedInterceptors
from tests.support.claude.scripted_sessions import Seen, play, poll, read, scripted_session

SECRET = "the word is xyzzy-plugh"
TALK = Script().init().text(SECRET).result(SECRET)
# A text and a call in one frame, then pieces, then the end.
BLOCKS = [{"type": "text", "text": SECRET}, {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}]
MESSAGE = {"id": "m1", "model": "fake", "content": BLOCKS, "stop_reason": "tool_use", "usage": {"input_tokens": 1}}


def stream_message(script: Script, id: str, *pieces: str) -> Script:
    """A message in pieces, then whole, then its end."""

    def event(**what: Any) -> None:
        script.says("stream_event", event=what, parent_tool_use_id=None)

    event(type="message_start", message={"id": id, "model": "fake", "content": [], "usage": {"input_tokens": 1}})
    event(type="content_block_start", index=0, content_block={"type": "text", "text": ""})
    for piece in pieces:
        event(type="content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
    message = {"id": id, "model": "fake", "content": [{"type": "text", "text": "".join(pieces)}], "stop_reason": None}
    script.says("assistant", message=message, parent_tool_use_id=None, uuid=f"u-{id}")
    event(type="content_block_stop", index=0)
    event(type="message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 3})
    event(type="message_stop")
    return script


def dump_events(events: list[Event]) -> str:
    """Everything in them, the lines they came in included."""
    return "\n".join(msgspec.json.encode(event, enc_hook=str).decode() for event in events)


def read_frames(claude: ScriptedClaude) -> list[Any]:
    try:
        return claude.given().frames
    except IndexError:  # it has only just been started
        return []


# -- before anything is sent


@pytest.mark.req("agents.driver.turn_start")
@pytest.mark.parametrize("refuse", ["not after midnight", RuntimeError("lost its head")])
async def test_a_turn_that_is_refused_is_not_sent(tmp_path: Path, refuse: str | BaseException) -> None:
    guests = ScriptedInterceptors(refuse=refuse)
    claude, session = scripted_session(tmp_path, TALK, interceptors=guests)
    async with session:
        seen = await play(session)
        assert isinstance(seen.error, NotAllowed)
        assert seen.result.status == "denied"
        assert str(refuse) in seen.result.error
        await poll(lambda: claude.starts and read_frames(claude))
    assert [frame["type"] for frame in claude.given().frames] == ["control_request"]
    assert guests.steps == [1]


# -- what the model says


@pytest.mark.req("agents.driver.hidden")
@pytest.mark.parametrize("show", [None, "a secret was here"], ids=["hidden", "replaced"])
@pytest.mark.parametrize(
    "script",
    [
        TALK,
        stream_message(Script().init(), "m1", SECRET[:10], SECRET[10:]).result(SECRET),
        Script()
        .init()
        .says("assistant", message=MESSAGE, parent_tool_use_id=None)
        .told("t1", "ran")
        .text("and " + SECRET)
        .result("and " + SECRET),
    ],
    ids=["in one", "in pieces", "with a call"],
)
async def test_what_is_not_to_be_seen_is_nowhere(tmp_path: Path, script: Script, show: str | None) -> None:
    """Neither among the events with the lines they came in, nor in the store, nor in the result."""

    def shown(message: Message) -> Message | None:
        return None if show is None else msgspec.structs.replace(message, content=(TextBlock(show),))

    stored = SessionFolder(tmp_path / "store").create(str(tmp_path))
    guests = ScriptedInterceptors(show=shown)
    _, session = scripted_session(tmp_path, script, interceptors=guests, store=stored)
    everything: list[Event] = []
    async with session:
        session.listen(everything.append)
        seen = await play(session)
    assert guests.messages
    assert "xyzzy" in "".join(guests.messages)
    assert "xyzzy" not in dump_events(everything)
    assert "xyzzy" not in msgspec.json.encode(seen.result, enc_hook=str).decode()
    assert seen.result.text == (show or "")
    assert seen.result.native is None
    assert seen.said == [show] * len(guests.messages) if show else not seen.said
    assert not seen.of(Text)
    assert "xyzzy" not in "".join(path.read_text() for path in (tmp_path / "store").rglob("*") if path.is_file())
    stored.close()


@pytest.mark.req("agents.driver.hidden")
@pytest.mark.parametrize("failure", [RuntimeError("lost its head"), asyncio.CancelledError()])
async def test_who_cannot_say_that_it_may_be_seen_has_not_said_it(tmp_path: Path, failure: BaseException) -> None:
    def shown(message: Message) -> Message | None:
        raise failure

    _, session = scripted_session(tmp_path, TALK, interceptors=ScriptedInterceptors(show=shown))
    async with session:
        seen = await play(session)
    assert "xyzzy" not in dump_events(seen.events)
    assert seen.result.text == ""
    assert [event for event in seen.of(NoticeEvent) if event.notice.level == "warn"]


@pytest.mark.req("agents.driver.hidden")
async def test_one_turns_secret_is_not_the_next_ones_business(tmp_path: Path) -> None:
    script = Script().init().text(SECRET).result(SECRET).prompt().init().text("hello").result("hello")
    guests = ScriptedInterceptors(show=lambda message: None if "xyzzy" in message.text else message)
    _, session = scripted_session(tmp_path, script, interceptors=guests)
    async with session:
        assert (await play(session)).result.text == ""
        second = await play(session)
    assert second.result.text == "hello"
    assert second.result.native is not None
    assert second.said == ["hello"]


def join(told: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pieces that come together may be told as one."""
    found: list[tuple[str, str]] = []
    for kind, text in told:
        if kind == "text" and found and found[-1][0] == "text":
            found[-1] = (kind, found[-1][1] + text)
        else:
            found.append((kind, text))
    return found


@pytest.mark.req("agents.driver.order")
async def test_what_may_be_seen_comes_as_it_was_said_and_in_order(tmp_path: Path) -> None:
    script = stream_message(Script().init(), "m1", "Let ", "me ", "look.").tool("t1", "Bash", command="ls").told("t1", "a")
    stream_message(script, "m3", "All ", "done.").result("All done.")
    _, plain = scripted_session(tmp_path / "a", script)
    _, held = scripted_session(tmp_path / "b", script, interceptors=ScriptedInterceptors())
    kinds = []
    for session in (plain, held):
        async with session:
            seen = await play(session)
            kinds.append(join([(event_kind(event), getattr(event, "text", "")) for event in seen.events if event.lane == ""]))
            assert seen.result.text == "All done."
    assert kinds[0] == kinds[1]


@pytest.mark.req("agents.driver.order")
async def test_nothing_overtakes_what_is_looked_at_and_the_process_is_read_meanwhile(tmp_path: Path) -> None:
    """It tells much more than a pipe holds, and asks something, while a guest thinks about its first words."""
    script = Script().init().text("first").tool("t1", "Bash", command="ls")
    for number in range(40):
        script.system("chatter", number=number, text="x" * 10_000)
    script.asks("r1", "t1", command="ls").told("t1", "a").result("first")
    guests = ScriptedInterceptors(waits=True)
    claude, session = scripted_session(tmp_path, script, interceptors=guests)
    async with session:
        seen = Seen(session.turn("go"))
        reading = asyncio.ensure_future(read(seen))
        await guests.asked.wait()
        # It has written all of that: it waits for an answer to its request.
        connection = session.driver._connection  # type: ignore[attr-defined]
        await poll(lambda: "r1" in connection.host_side.pending)
        assert not seen.of(Message)
        assert not seen.of(ToolCalled)
        assert not seen.of(Approval)
        guests.go.set()
        await reading
    kinds = [type(event) for event in seen.events]
    assert kinds.index(Message) < kinds.index(ToolCalled) < kinds.index(Approval) < kinds.index(ToolEnded) < kinds.index(TurnEnded)
    assert claude.given().answers()["r1"]["response"]["behavior"] == "allow"


async def test_a_sub_agents_words_are_its_own(tmp_path: Path) -> None:
    script = Script().init().tool("t1", "Task", description="x").text("from below", parent="t1").told("t1", "ok")
    guests = ScriptedInterceptors(show=lambda message: None)
    _, session = scripted_session(tmp_path, script.text("from above").result("from above"), interceptors=guests)
    async with session:
        seen = await play(session)
    assert guests.messages == ["from above"]
    assert [event.text for event in seen.of(Message, lane="t1")] == ["from below"]


@pytest.mark.req("agents.driver.hidden")
async def test_pieces_of_a_message_that_never_was_whole_are_not_seen(tmp_path: Path) -> None:
    script = Script().init()
    script.says("stream_event", event={"type": "message_start", "message": {"id": "m1", "model": "fake", "content": []}})
    script.says("stream_event", event={"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    script.says("stream_event", event={"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": SECRET}})
    script.exits(3)
    _, session = scripted_session(tmp_path, script, interceptors=ScriptedInterceptors(show=lambda message: None))
    async with session:
        seen = await play(session)
    assert seen.error is not None
    assert "xyzzy" not in dump_events(seen.events)


DELTA = b'{"type":"stream_event","event":{"type":"content_block_delta"}}'
STATUS = b'{"type":"system","subtype":"status"}'


@pytest.mark.req("agents.driver.hidden")
@pytest.mark.parametrize(
    ("line", "kept"), [(DELTA, False), (b"[" + DELTA + b"," + DELTA + b"]", False), (STATUS, True)], ids=["one", "many", "status"]
)
@pytest.mark.parametrize(
    "made", [Thinking(text="hm"), ToolInput(text="{}"), OtherEvent(kind="x")], ids=["thinking", "input", "other"]
)
async def test_lines_of_what_the_model_said_are_not_told_while_somebody_may_hide_it(line: bytes, kept: bool, made: Event) -> None:
    hub = EventHub("claude", "s1", Limits())
    told: list[Event] = []
    hub.listeners.append(told.append)
    telling = EventSequencer(hub, ScriptedInterceptors(show=lambda message: message))
    telling.emit([msgspec.structs.replace(made, native=msgspec.Raw(line))])
    await telling.drain()
    [event] = told
    assert type(event) is type(made)
    assert event.native == (msgspec.Raw(line) if kept else None)

"""What is kept of a conversation with Claude Code, and how it goes on: the store, its own id, the recording."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serai.app.assembly import LATEST
from serai.errors import BadSession, NoSession, NotAllowed
from serai.record import Recording, RecordingFolder
from serai.store.session_folder import SessionFolder, SessionSummary
from serai.testing.claude.script import Script
from tests.support.app.claude_apps import Harness, hello, read_conversation, shell
from tests.support.claude.transcripts import assistant, user
from tests.support.host.zot_guests import make

SECRET = "sk-ant-of-nobody-but-me-0123456789"
OWN = "0a1b2c3d-0000-4000-8000-000000000000"


def get_summary(harness: Harness) -> SessionSummary:
    [one] = SessionFolder.usual(harness.environ).list()
    return one


async def run_turn(harness: Harness, prompt: str = "go", **choices: Any) -> None:
    async with harness.opened(**choices) as app:
        await app.submit(prompt)


# -- the conversation


@pytest.mark.req("app.driven.kept")
async def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    harness = Harness(tmp_path, hello("first"), hello("second"), hello("third"))
    await run_turn(harness, "one")
    one = get_summary(harness)
    assert (one.meta.agent, one.meta.cwd) == ("claude", str(harness.project))
    assert harness.claude.given().option("--session-id") == one.id
    assert harness.claude.given().option("--resume") is None
    await run_turn(harness, "two", session=LATEST)
    await run_turn(harness, "three", session=one.id[:8])
    for start in (1, 2):
        assert harness.claude.given(start).option("--resume") == one.id
        assert harness.claude.given(start).option("--session-id") is None
    assert read_conversation(harness) == [
        *("user: one", "assistant: first"),
        *("user: two", "assistant: second"),
        *("user: three", "assistant: third"),
    ]


@pytest.mark.req("app.driven.kept")
async def test_calls_and_their_results_are_kept_in_neutral_words(tmp_path: Path) -> None:
    harness = Harness(tmp_path, shell("echo one"))
    await run_turn(harness, mode="skip")
    assert read_conversation(harness) == ["user: go", "assistant: [t1 bash]", "t1: one", "assistant: done"]


@pytest.mark.req("app.driven.kept")
async def test_a_conversation_that_the_agent_alone_has_kept_goes_on_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    harness = Harness(tmp_path, hello("first"), hello("second"))
    place = tmp_path / "person" / ".claude" / "projects" / "-somewhere"
    place.mkdir(parents=True)
    rows = (user("hello", sessionId=OWN), assistant("hi", sessionId=OWN))
    (place / f"{OWN}.jsonl").write_text("".join(f"{_json(row)}\n" for row in rows))
    await run_turn(harness, "one", session=OWN[:8])
    one = get_summary(harness)
    assert one.id != OWN
    assert (one.meta.agent, one.meta.agent_session) == ("claude", OWN)
    await run_turn(harness, "two", session=LATEST)
    for start in (0, 1):
        assert harness.claude.given(start).option("--resume") == OWN
    assert read_conversation(harness) == ["user: one", "assistant: first", "user: two", "assistant: second"]


def _json(row: object) -> str:
    import json

    return json.dumps(row)


async def test_one_that_nobody_has_is_told(tmp_path: Path) -> None:
    harness = Harness(tmp_path, hello())
    with pytest.raises(NoSession):
        await run_turn(harness, session="0a1b2c3d")
    assert harness.claude.starts == 0


@pytest.mark.req("app.driven.kept")
async def test_a_conversation_with_another_agent_is_not_taken_for_its_own(tmp_path: Path) -> None:
    harness = Harness(tmp_path, hello())
    async with harness.opened(agent="resident", model="parrot") as app:
        await app.submit("hello")
    with pytest.raises(BadSession, match="its conversation is with resident"):
        await run_turn(harness, session=LATEST)
    assert harness.claude.starts == 0


@pytest.mark.req("app.driven.kept")
async def test_an_id_that_the_agent_chooses_is_kept_for_the_next_time(tmp_path: Path) -> None:
    """As with a fork."""
    forked = "f0f0f0f0-0000-4000-8000-000000000000"
    harness = Harness(tmp_path, Script(forked).init().text("first").result("first"), hello("second"))
    await run_turn(harness, options={"resume": OWN, "fork": True})
    assert get_summary(harness).meta.agent_session == forked
    await run_turn(harness, session=LATEST)
    assert harness.claude.given(1).option("--resume") == forked


@pytest.mark.req("app.driven.kept")
async def test_what_never_reached_the_agent_is_not_resumed_there(tmp_path: Path) -> None:
    refuses = """
hello(subscribe(intercept=["turn_start"]))
for frame in frames():
    if frame["type"] == "event_intercept":
        judge(frame["id"], block=True, reason="closed")
"""
    harness = Harness(tmp_path, hello("first"), hello("second"))
    async with harness.opened(make(tmp_path / "guests", refuses)) as app:
        with pytest.raises(NotAllowed):
            await app.submit("one")
    await run_turn(harness, "two", session=LATEST)
    assert harness.claude.given(1).option("--session-id") == get_summary(harness).id
    assert harness.claude.given(1).option("--resume") is None


async def test_one_in_which_nothing_was_said_is_not_kept(tmp_path: Path) -> None:
    harness = Harness(tmp_path, hello())
    async with harness.opened():
        pass
    assert SessionFolder.usual(harness.environ).list() == []


async def test_what_is_kept_nowhere_is_kept_nowhere(tmp_path: Path) -> None:
    harness = Harness(tmp_path, hello())
    await run_turn(harness, keep=False)
    assert SessionFolder.usual(harness.environ).list() == []


# -- the recording


@pytest.mark.req("app.driven.recorded")
async def test_every_frame_is_on_record_and_secrets_are_not(tmp_path: Path) -> None:
    script = Script().init().text(f"the key is {SECRET}").calls("t1", command="echo one").result("done")
    harness = Harness(tmp_path, script)
    environ = {**harness.environ, "ANTHROPIC_API_KEY": SECRET}
    await run_turn(harness, "go", mode="skip", record=True, environ=environ)
    folder = RecordingFolder.usual(harness.environ)
    with Recording.open("", folder) as recording:
        [wire] = recording.wires.values()
        assert (wire.who, wire.kind, wire.dialect, wire.generation) == ("claude", "agent", "claude", 1)
        frames = [(item.way, item.type) for item in recording.iter_timeline() if item.what == "frame"]
        raw = b"".join(item.raw for item in recording.iter_timeline() if item.what == "frame")
    given = harness.claude.given()
    assert len([way for way, _ in frames if way == "sent"]) == len(given.lines)
    assert all(line.encode() in raw for line in given.lines)
    assert b'"subtype":"init"' in raw
    assert SECRET.encode() not in raw
    assert b"the key is ***" in raw
    files = [path for path in Path(folder.path).rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]


@pytest.mark.req("app.driven.recorded")
async def test_a_process_that_was_started_again_is_another_generation(tmp_path: Path) -> None:
    dies = hello("first").prompt().exits(3)
    harness = Harness(tmp_path, dies, hello("second"))
    async with harness.opened(record=True) as app:
        await app.submit("one")
        try:
            await app.submit("two")
        except Exception:  # the process died of it
            await app.submit("three")
    with Recording.open("", RecordingFolder.usual(harness.environ)) as recording:
        assert [(wire.who, wire.generation) for wire in recording.wires.values()] == [("claude", 1), ("claude", 2)]

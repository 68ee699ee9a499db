"""A real guest that shortens conversations: when it is asked, with what, and what becomes of its answer (spec piglet 5.8)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from serai.app.app import App
from serai.host.guest import GuestState
from serai.limits import MIB
from serai.model.events import Compacted, Event, NoticeEvent, Usage
from tests.support.agents.scripted_models import Answers, call, conversation, reply, texts
from tests.support.app.apps import PATIENT, open_app
from tests.support.host.zot_guests import pid_of, wait_for_state
from tests.support.piglet.journals import ONE_LOOP, SLOW_RESTART, read_messages, read_params, wait_for_note, write_config
from tests.support.piglet_guests.guest_folder import Answer, offer, write
from tests.support.piglet_guests.steps import crash, note, relay, result, say, tell, throw, wait

pytestmark = ONE_LOOP

SENT = Usage(100, 1)


def digest(tmp_path: Path, answer: Answer, *, threshold: int = 100, **more: Any) -> Path:
    """A guest whose compactor answers with this."""
    return write(
        tmp_path, "digest", compactor=offer(answer, name="digest", threshold=threshold), journal=tmp_path / "journal", **more
    )


def model() -> Answers:
    return Answers([reply("ok", usage=SENT)])


async def turns(app: App, *numbers: int) -> None:
    for number in numbers:
        await app.submit(f"prompt {number}")
        await app.resident.compaction.wait_finished()


def compactions(tmp_path: Path) -> list[Any]:
    """What it was given each time."""
    return [given["messages"] for given in read_params(tmp_path / "journal", "compact/execute")]


def entries(app: App) -> list[str]:
    """The kinds of entry that the session has on disk, beside events."""
    assert app.runtime.current is not None
    return [entry.type for entry in app.runtime.current.session.read_path() if entry.type != "event"]


@pytest.mark.req("piglet.method.compact/execute")
async def test_it_is_given_each_message_with_its_type_and_its_answer_is_the_history(tmp_path: Path) -> None:
    answer = {
        "messages": [
            {"type": "user", "data": {"content": "Summary: greeted.", "timestamp": "2026-02-03T10:00:00Z"}},
            {"type": "sermon", "data": {"content": "of an unknown type"}},
            {"type": "user", "data": {"content": ["no", "text"]}},
            {"type": "user", "data": "no object"},
            {"type": "assistant", "data": {"content": "no list"}},
            {"type": "tool_result", "data": {"toolCallId": 7}},
            {"type": "assistant", "data": {"content": [{"text": "Understood."}], "model": "m1", "stopReason": "stop"}},
        ]
    }
    heard: list[Event] = []
    look = [reply("", call("look", "c7", city="Bern"), usage=SENT)]
    answers = Answers(look, *[[reply("ok", usage=SENT)]] * 4)
    async with open_app(tmp_path, digest(tmp_path, [result(answer)], tools={"look": "fog"}), answers=answers) as app:
        app.session.listen(heard.append)
        await turns(app, 1, 2)
        assert compactions(tmp_path) == []
        await turns(app, 3)
        [given] = compactions(tmp_path)
        kinds = ["user", "assistant", "tool_result", "assistant", "user", "assistant", "user", "assistant"]
        assert [(sorted(one), one["type"]) for one in given] == [(["data", "type"], kind) for kind in kinds]
        assert [given[place]["data"]["content"] for place in (0, 4, 6)] == ["prompt 1", "prompt 2", "prompt 3"]
        [wanted] = given[1]["data"]["content"]
        assert (wanted["id"], wanted["name"], wanted["arguments"]) == ("c7", "look", {"city": "Bern"})
        told = given[2]["data"]
        assert (told["toolCallId"], told["toolName"], told["isError"]) == ("c7", "look", False)
        assert given[7]["data"]["usage"]["inputTokens"] == 100
        assert texts(conversation(app.session)) == ["user: Summary: greeted.", "assistant: Understood."]
        assert [(one.before, one.after, one.tokens) for one in heard if isinstance(one, Compacted)] == [(8, 2, 100)]
        assert entries(app)[-1] == "compact"
        await turns(app, 4)
        assert texts(answers.requests[-1].messages) == [
            "user: Summary: greeted.", "assistant: Understood.", "user: prompt 4",
        ]  # fmt: skip


@pytest.mark.req("piglet.method.compact/execute")
async def test_its_result_counts_as_it_is_written_also_when_nothing_of_it_is_left_out(tmp_path: Path) -> None:
    """A compactor that gives back what it was given changes nothing of it on the way."""
    async with open_app(tmp_path, digest(tmp_path, []), answers=model()) as app:
        await turns(app, 1, 2, 3)
        before = [*texts(conversation(app.session)), "user: prompt 4", "assistant: ok"]
        await turns(app, 4)
        assert len(compactions(tmp_path)) == 1
        assert texts(conversation(app.session)) == before


@pytest.mark.req("piglet.method.register/compactor", "piglet.rule.compact-auto")
@pytest.mark.parametrize(
    ("threshold", "setting", "asked"),
    [(100, 0, 1), (101, 0, 0), (0, 100, 1), (0, 101, 0), (0, 0, 0), (50, 500, 1), (None, 100, 1), (None, 0, 0)],
)
async def test_the_threshold_is_in_tokens_and_none_means_the_setting(
    tmp_path: Path, threshold: int | None, setting: int, asked: int
) -> None:
    write_config(tmp_path, f"compact_at = {setting}\n")
    given = {"name": "digest"} if threshold is None else {"name": "digest", "threshold": threshold}
    folder = write(tmp_path, "digest", at_init=[tell("register/compactor", given)], journal=tmp_path / "journal")
    async with open_app(tmp_path, folder, answers=model()) as app:
        await turns(app, 1, 2, 3)
        assert read_messages(tmp_path / "journal", "compact/execute") == []  # fewer than 8 messages
        await turns(app, 4)
        assert len(read_messages(tmp_path / "journal", "compact/execute")) == asked


@pytest.mark.req("piglet.method.register/compactor")
async def test_there_is_one_slot_and_the_last_registration_has_it(tmp_path: Path) -> None:
    first = [tell("register/compactor", {"name": "old", "threshold": 1})]
    one = digest(tmp_path, "of the first", at_init=first, threshold=100)
    two = write(tmp_path, "other", compactor=offer("of the other", name="other", threshold=100), tools={"host": [relay()]})
    async with open_app(tmp_path, one, answers=model()) as app:  # of one guest's two the last
        await turns(app, 1, 2, 3, 4)
        assert texts(conversation(app.session)) == ["user: of the first"]
    async with open_app(tmp_path, one, two, answers=model()) as app:  # of two guests' the later one's
        await turns(app, 1, 2, 3, 4)
        assert texts(conversation(app.session)) == ["user: of the other"]
        assert json.loads((await app.host.call_tool("host", {"method": "host/hasCompactor"})).text) == {"result": {"present": True}}
        await app.host.guest("other").stop()  # and the one that it had shadowed is there again
        await turns(app, 5, 6, 7, 8)
        assert texts(conversation(app.session))[0] == "user: of the first"


@pytest.mark.req("piglet.rule.compact-auto", "piglet.rule.compact-merge")
async def test_turns_go_on_meanwhile_nothing_is_asked_twice_and_what_was_said_follows(tmp_path: Path) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    async with open_app(tmp_path, digest(tmp_path, [note(begun), wait(go), say("in short")]), answers=model()) as app:
        for number in range(1, 5):
            await app.submit(f"prompt {number}")
        await wait_for_note(begun)
        await app.submit("prompt 5")
        await app.submit("prompt 6")
        assert len(compactions(tmp_path)) == 1
        go.touch()
        await app.resident.compaction.wait_finished()
        assert texts(conversation(app.session)) == [
            "user: in short", "user: prompt 5", "assistant: ok", "user: prompt 6", "assistant: ok",
        ]  # fmt: skip
        assert len(compactions(tmp_path)) == 1


BAD: dict[str, Answer] = {
    "none": [result({"messages": []})],
    "null": [result({"messages": None})],
    "nothing that can be read": [result({"messages": [{"type": "sermon", "data": {}}, {"type": "user", "data": 7}]})],
    "an error": [throw("no idea")],
    "no answer": [result({"messages": "none"})],
    "a crash": [crash()],
    "too long a line": [result({"messages": [{"type": "user", "data": {"content": "x" * 4 * MIB}}]})],
}


@pytest.mark.req("piglet.rule.compact-merge", "piglet.method.compact/execute")
@pytest.mark.parametrize("answer", BAD.values(), ids=BAD)
async def test_an_empty_or_failed_answer_leaves_the_history_as_it_is(tmp_path: Path, answer: Answer) -> None:
    heard: list[Event] = []
    async with open_app(tmp_path, digest(tmp_path, answer), answers=model(), limits={**PATIENT, **SLOW_RESTART}) as app:
        app.session.listen(heard.append)
        await turns(app, 1, 2, 3, 4)
        assert len(compactions(tmp_path)) == 1
        assert texts(conversation(app.session)) == [one for n in range(1, 5) for one in (f"user: prompt {n}", "assistant: ok")]
        assert not any(isinstance(event, Compacted) for event in heard)
        assert "compact" not in entries(app)
        await turns(app, 5)  # and it goes on
        assert len(conversation(app.session)) == 10


@pytest.mark.req("piglet.rule.compact-merge")
async def test_a_history_that_was_cleared_meanwhile_stays_cleared(tmp_path: Path) -> None:
    begun, go = tmp_path / "begun", tmp_path / "go"
    folder = digest(tmp_path, [note(begun), wait(go), say("in short")], tools={"host": [relay()]})
    async with open_app(tmp_path, folder, answers=model()) as app:
        for number in range(1, 5):
            await app.submit(f"prompt {number}")
        await wait_for_note(begun)
        await app.host.call_tool("host", {"method": "host/setConversationMessages", "params": {"messages": None}})
        go.touch()
        await app.resident.compaction.wait_finished()
        assert conversation(app.session) == []


@pytest.mark.req("piglet.rule.compact-auto")
async def test_after_three_failures_in_a_row_it_is_left_alone(tmp_path: Path) -> None:
    heard: list[Event] = []
    now = 1000.0
    async with open_app(tmp_path, digest(tmp_path, [throw("no idea")]), answers=model()) as app:
        app.session.listen(heard.append)
        app.resident.compaction.clock = lambda: now
        await turns(app, *range(1, 9))
        assert len(compactions(tmp_path)) == 3
        [told] = [event.notice.text for event in heard if isinstance(event, NoticeEvent)]
        assert told == "the compactor failed 3 times in a row and is not asked for 5 minutes: piglet:digest: no idea"
        now += 299.0
        await turns(app, 9)
        assert len(compactions(tmp_path)) == 3
        now += 1.0
        await turns(app, 10)
        assert len(compactions(tmp_path)) == 4


@pytest.mark.req("piglet.rule.compact-merge")
async def test_one_that_dies_amid_it_holds_nobody_up(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    limits = {**PATIENT, **SLOW_RESTART}
    async with open_app(tmp_path, digest(tmp_path, [note(begun), wait()]), answers=model(), limits=limits) as app:
        for number in range(1, 5):
            await app.submit(f"prompt {number}")
        await wait_for_note(begun)
        os.kill(pid_of(app.host, "digest"), signal.SIGKILL)
        async with asyncio.timeout(30.0):
            assert await app.resident.compaction.wait_finished() is False
        await wait_for_state(app.host, "digest", GuestState.BACKING_OFF)
        await app.submit("prompt 5")
        assert len(conversation(app.session)) == 10

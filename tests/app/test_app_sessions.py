"""Other conversations: nothing of one gets into another, and what is refused has not happened."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from serai.app.app import App
from serai.errors import NotWritten, TurnInFlight
from serai.model.approvals import Allow, Approval, Decision, Question
from serai.model.tools import ToolCall
from serai.policy import DecisionStore
from serai.store.stored_session import StoredSession as Stored
from tests.support.agents.scripted_models import Answers, conversation, reply, texts
from tests.support.app.apps import Gated, Helper, Person, bring, open_app, sessions_of

Monkey = pytest.MonkeyPatch
GUEST = "fake:helper"
CALL = ToolCall("bash", {"command": "true"})


class Slow(Person):
    """Answers yes when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asks, self.may = asyncio.Event(), asyncio.Event()

    async def ask(self, request: Approval | Question) -> Decision:
        self.asks.set()
        await self.may.wait()
        return Allow()


def read_session_files(app: App) -> dict[str, str]:
    """Every session that is kept, as it is on the disk."""
    assert app.runtime.sessions is not None
    return {file.name: file.read_text() for file in Path(app.runtime.sessions.folder).glob("*.jsonl")}


def file_of(app: App) -> Path:
    assert app.runtime.current is not None
    return Path(app.runtime.current.session.file)


async def ask(app: App, group: str, what: str, **arguments: Any) -> Any:
    return await app.runtime.services.ask(GUEST, group, what, arguments)


# -- refused means that nothing happened


@pytest.mark.req("app.swap.apart")
@pytest.mark.parametrize("what", ["reset", "branch", "fork", "load", "set"])
async def test_no_conversation_is_changed_while_somebody_is_asked_and_nothing_is_written(
    monkeypatch: Monkey, tmp_path: Path, what: str
) -> None:
    bring(monkeypatch, tmp_path, Helper())
    person = Slow()
    async with open_app(tmp_path, answers=Answers([reply("answer")]), surface=person, mode="manual") as app:
        await app.submit("first")
        [entry, *_] = (await ask(app, "sessions", "entries"))["entries"]
        with sessions_of(tmp_path).create(str(tmp_path)) as other:
            arguments: dict[str, dict[str, Any]] = {
                "branch": {"entry_id": entry["id"]},
                "load": {"path": other.file},
                "set": {"messages": None},
            }
        call = asyncio.create_task(app.call_tool(CALL))
        await person.asks.wait()
        id, before = app.session.id, read_session_files(app)
        with pytest.raises(TurnInFlight, match="asked something"):
            await ask(app, "conversation" if what == "set" else "sessions", what, **arguments.get(what, {}))
        assert read_session_files(app) == before
        assert texts(conversation(app.session)) == ["user: first", "assistant: answer"]
        person.may.set()
        assert not (await call).is_error
        assert app.session.id == id


@pytest.mark.req("app.swap.apart")
@pytest.mark.parametrize("what", ["reset", "fork", "set"])
async def test_no_conversation_is_changed_while_it_is_shortened_and_nothing_is_written(
    monkeypatch: Monkey, tmp_path: Path, what: str
) -> None:
    bring(monkeypatch, tmp_path, Helper())
    model = Gated([reply("x" * 4000)], [reply("brief")])
    async with open_app(tmp_path, answers=model) as app:
        model.go()
        await app.submit("first")
        await model.began.get()
        shortened = asyncio.create_task(ask(app, "control", "compact"))
        await model.began.get()
        before, said_before = read_session_files(app), list(conversation(app.session))
        with pytest.raises(TurnInFlight, match="shortened"):
            await ask(app, "conversation" if what == "set" else "sessions", what, **({"messages": None} if what == "set" else {}))
        assert (read_session_files(app), conversation(app.session)) == (before, said_before)
        model.go()
        await shortened


class Full:
    """Somebody who cannot write what they still have for the session that is left."""

    def flush(self) -> None:
        raise NotWritten("the disk is full")

    def write(self) -> None: ...
    def forget(self) -> None: ...


@pytest.mark.req("app.swap.apart")
async def test_a_fork_that_cannot_be_gone_on_with_is_gone(monkeypatch: Monkey, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Helper())
    async with open_app(tmp_path, answers=Answers([reply("answer")])) as app:
        await app.submit("first")
        assert app.runtime.current is not None
        id, before, full = app.session.id, read_session_files(app), Full()
        app.runtime.current.writers.append(full)
        with pytest.raises(NotWritten, match="the disk is full"):
            await ask(app, "sessions", "fork")
        app.runtime.current.writers.remove(full)
        assert read_session_files(app) == before
        await app.submit("second")
        assert app.session.id == id
        assert "second" in file_of(app).read_text()
        assert texts(conversation(app.session))[::2] == ["user: first", "user: second"]


@pytest.mark.req("app.swap.apart")
async def test_a_conversation_that_cannot_be_read_is_not_gone_on_with(monkeypatch: Monkey, tmp_path: Path) -> None:
    def unread(self: Stored) -> list[Any]:
        raise NotWritten("it cannot be read")

    bring(monkeypatch, tmp_path, Helper())
    async with open_app(tmp_path, answers=Answers([reply("answer")])) as app:
        await app.submit("first")
        id = app.session.id
        with sessions_of(tmp_path).create(str(tmp_path)) as other:
            other.append_custom("user", "of the other one")
        before = read_session_files(app)
        with monkeypatch.context() as broken:
            broken.setattr(Stored, "read_messages", unread)
            with pytest.raises(NotWritten, match="it cannot be read"):
                await ask(app, "sessions", "load", path=other.file)
        assert (app.session.id, file_of(app).stem, app.resident.session_id) == (id, id, id)
        assert read_session_files(app) == before
        await app.submit("second")  # the one that is open is still the one
        assert texts(conversation(app.session)) == ["user: first", "assistant: answer", "user: second", "assistant: answer"]
        await ask(app, "sessions", "load", path=other.file)  # and the other one is none the worse
        assert texts(conversation(app.session)) == ["user: of the other one"]


# -- nothing of one gets into the other


@pytest.mark.req("app.swap.apart", "app.pipeline.durable")
async def test_a_conversation_is_not_left_before_what_was_answered_is_kept(monkeypatch: Monkey, tmp_path: Path) -> None:
    settling, may, settle = threading.Event(), threading.Event(), DecisionStore.settle

    def slowly(self: DecisionStore, *arguments: Any) -> Any:
        settling.set()
        assert may.wait(60)
        return settle(self, *arguments)

    monkeypatch.setattr(DecisionStore, "settle", slowly)
    async with open_app(tmp_path, answers=Answers([reply("answer")]), surface=Person(Allow()), mode="manual") as app:
        await app.submit("first")
        left = file_of(app)
        call = asyncio.create_task(app.call_tool(CALL))
        await asyncio.to_thread(settling.wait, 60)
        other = sessions_of(tmp_path).create(str(tmp_path))
        try:
            assert app.runtime.approver.waiting == ()  # answered, and nobody is asked any more
            with pytest.raises(TurnInFlight, match="asked something"):
                await app.swap(other)
        finally:
            may.set()
        assert not (await call).is_error
        await app.swap(other)
        assert '"decided"' in left.read_text()
        assert '"decided"' not in file_of(app).read_text()


@pytest.mark.req("app.swap.apart")
async def test_what_runs_on_the_side_ends_with_its_conversation(tmp_path: Path) -> None:
    model, person = Gated([reply("answer")], [reply("found it")], [reply("of the other one")]), Person()
    async with open_app(tmp_path, answers=model, surface=person) as app:
        model.go()
        await app.submit("first")
        await model.began.get()
        app.resident.backgrounds.start("look for it")
        await model.began.get()
        await app.swap(sessions_of(tmp_path).create(str(tmp_path)))
        assert app.resident.backgrounds.running == ()
        model.go()
        model.go()
        await app.submit("second")
        await app.idle()
        assert "look for it" not in file_of(app).read_text()
        assert "second" in file_of(app).read_text()


@pytest.mark.req("app.swap.apart")
async def test_what_a_conversation_took_is_not_counted_in_another(monkeypatch: Monkey, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Helper())
    async with open_app(tmp_path, answers=Answers([reply("answer")])) as app:

        async def taken() -> tuple[int, int]:
            stats = await ask(app, "conversation", "stats")
            return stats["turn_count"], stats["total_input_tokens"]

        await app.submit("first")
        left = file_of(app)
        assert await taken() == (1, 100)
        await app.swap(sessions_of(tmp_path).create(str(tmp_path)))
        assert await taken() == (0, 0)
        await ask(app, "sessions", "load", path=str(left))
        assert await taken() == (1, 100)
        await ask(app, "conversation", "set", messages=None)
        assert await taken() == (0, 0)

"""What was mended once and is to stay so: prompts, aborts and notes, from the outside."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from serai.errors import Closed, NotAllowed
from serai.model.actions import Notice
from serai.model.contributions import TransformResult
from serai.model.tools import ToolCall
from tests.support.agents.scripted_models import Answers, conversation, reply
from tests.support.app.apps import Gated, Helper, Person, bring, open_app, prompts_in, sessions_of

Monkey = pytest.MonkeyPatch
GUEST = "fake:helper"


@pytest.mark.req("app.queue.during-turn")
async def test_who_sends_and_waits_has_waited_for_what_was_sent(monkeypatch: Monkey, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Helper())
    model = Answers([reply("answer")])
    async with open_app(tmp_path, answers=model) as app:
        await app.runtime.services.ask(GUEST, "control", "send", {"content": "go"})
        await app.runtime.services.ask(GUEST, "control", "wait_idle", {})
        assert len(model.requests) == 1


@pytest.mark.req("app.transform.typed")
@pytest.mark.parametrize("text", ["hello", ""], ids=["a word", "nothing"])
async def test_a_text_of_which_nothing_is_left_is_an_error_that_says_so(monkeypatch: Monkey, tmp_path: Path, text: str) -> None:
    bring(monkeypatch, tmp_path, Helper(transform=lambda _text: TransformResult("")))
    async with open_app(tmp_path) as app:
        with pytest.raises(NotAllowed, match="the prompt is empty"):
            await app.submit(text)


@pytest.mark.req("app.close.nothing-left")
async def test_a_fork_in_which_nothing_was_said_is_gone(monkeypatch: Monkey, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Helper())
    async with open_app(tmp_path) as app:
        await app.runtime.services.ask(GUEST, "sessions", "fork", {})
    assert sessions_of(tmp_path).list() == []


@pytest.mark.req("app.close.nothing-left")
async def test_a_tool_that_is_called_when_the_app_is_closed_is_told_so(tmp_path: Path) -> None:
    async with open_app(tmp_path, mode="manual") as app:
        pass
    with pytest.raises(Closed):
        await app.call_tool(ToolCall("bash", {"command": "true"}))


@pytest.mark.req("app.config.narrow")
async def test_rules_of_a_project_that_do_not_count_are_told(tmp_path: Path) -> None:
    rules = tmp_path / "project" / ".serai" / "policy.toml"
    rules.parent.mkdir(parents=True)
    rules.write_text('[[rule]]\nid = "all"\ntool = "bash"\ndecide = "allow"\n')
    person = Person()
    async with open_app(tmp_path, surface=person, mode="manual"):
        pass
    assert any("do not count" in action.text for action in person.actions if isinstance(action, Notice))


async def test_an_abort_of_a_guest_is_silent_in_memory_and_on_disk(monkeypatch: Monkey, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Helper())
    model = Gated([reply("answer")])
    async with open_app(tmp_path, answers=model) as app:
        turn = asyncio.create_task(app.submit("first"))
        await model.began.get()
        await app.runtime.services.ask(GUEST, "control", "abort", {})
        await turn
        assert prompts_in(conversation(app.session)) == ["first"]
        id = app.session.id
    async with open_app(tmp_path, answers=model, session=id) as app:
        assert prompts_in(conversation(app.session)) == ["first"]


@pytest.mark.req("app.pipeline.order")
async def test_a_file_is_put_back_only_where_it_might_be_written(monkeypatch: Monkey, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Helper())
    file, rules = tmp_path / "project" / "notes.txt", tmp_path / "rules.toml"
    file.parent.mkdir()
    file.write_text("before")
    rules.write_text('[[rule]]\nid = "no"\ntool = "write"\ndecide = "deny"\n')
    async with open_app(tmp_path) as app:
        assert not (await app.call_tool(ToolCall("write", {"path": "notes.txt", "content": "after"}))).is_error
    async with open_app(tmp_path, policy=rules) as app:
        with pytest.raises(NotAllowed):
            await app.runtime.services.ask(GUEST, "undo", "restore", {"path": str(file)})
    assert file.read_text() == "after"
    async with open_app(tmp_path) as app:
        await app.runtime.services.ask(GUEST, "undo", "restore", {"path": str(file)})
    assert file.read_text() == "before"

"""The small print of services: what counts as nothing, what is left behind, and what belongs to whom."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path
from typing import Any

import pytest

from serai.agents.models.catalogue import Catalogue
from serai.agents.resident.driver import BackgroundRuns
from serai.agents.resident.run_context import RunContext, ToolSet
from serai.app import settings_writer
from serai.app.services.agent_services import BackgroundService, ConversationService
from serai.app.services.guest_services import ConfigService, DialogService
from serai.app.services.model_services import ChatService, ModelService
from serai.errors import NotWritten
from serai.limits import MIB, Limits
from serai.model.actions import Action, SetStatus
from serai.model.approvals import Allow, Answer, Decision, Question
from serai.model.provider import Model, ModelMessage
from serai.model.tools import TextBlock, ToolCall
from tests.support.agents.conversations import get_driver
from tests.support.agents.scripted_models import MODEL, QUICK, Answers, Box, allow_call, call, conversation, echo, reply
from tests.support.app.apps import Helper, bring, open_app, prompts_in
from tests.support.app.service_requests import ServiceCaller, resident

Monkey = pytest.MonkeyPatch


# -- a model for guests


def chat(provider: Answers, box: Box | None = None, *, limits: Limits = QUICK, decide: Any = allow_call) -> ServiceCaller:
    harness = RunContext(model=Model("other"), provider=Answers([]), limits=limits, decide=decide)
    return ServiceCaller(ChatService(lambda _query: (MODEL, provider), lambda: harness, box or Box(echo=echo), limits))


@pytest.mark.parametrize("most", [0, -1, None])
async def test_no_number_of_tokens_is_the_models_own(most: int | None) -> None:
    provider = Answers([reply("x")])
    await chat(provider)("chat", messages=[{"content": "x"}], max_tokens=most)
    assert provider.requests[0].options.max_tokens is None


async def test_less_than_one_turn_is_as_many_as_usual() -> None:
    provider = Answers([reply("again", call("echo"))])
    for most in (0, -1):
        data = await chat(provider, limits=QUICK.but(steps=3))("run", task="x", tools="all", max_turns=most)
        assert (data["turns"], data["stopped"]) == (3, "max_turns")


async def test_a_private_agent_that_nobody_waits_for_begins_nothing_more_whoever_decides_late() -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def decide(_call: ToolCall) -> Allow:
        asked.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:  # it does not heed that
                pass
        return Allow()

    box = Box(echo=echo)
    ask = chat(Answers([reply("", call("echo"))]), box, limits=QUICK.but(interrupt=0.01), decide=decide)
    before = asyncio.all_tasks()
    asking = asyncio.create_task(ask("run", task="x", tools="all"))
    await asked.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    go.set()
    await asyncio.gather(*(asyncio.all_tasks() - before), return_exceptions=True)
    assert box.calls == []


# -- the conversation


async def test_a_snapshot_leaves_out_what_the_model_would_not_be_told() -> None:
    async with resident(Answers([reply("yes")])) as session:
        for number in range(5):
            await session.turn(f"question {number}")
        get_driver(session).context.limits = QUICK.but(history=4)
        ask = ServiceCaller(ConversationService(lambda: get_driver(session), session.must_be_idle))
        told = (await ask("snapshot"))["messages"]
        assert len((await ask("messages"))["messages"]) == 10
    assert [message["content"] for message in told if message["role"] == "user"] == ["question 0", "question 4"]
    assert len(told) == 4


async def test_a_text_that_is_empty_is_not_the_last_one() -> None:
    async with resident(Answers([reply("x")])) as session:
        conversation(session).append(ModelMessage("assistant", (TextBlock(""), TextBlock("here it is"))))
        ask = ServiceCaller(ConversationService(lambda: get_driver(session), session.must_be_idle))
        assert await ask("last_text") == {"text": "here it is"}


async def test_what_nobody_knows_the_cost_of_costs_nothing() -> None:
    async with resident(Answers([reply("x")])) as session:
        stats = await ServiceCaller(ConversationService(lambda: get_driver(session), session.must_be_idle))("stats")
    assert stats["total_cost"] == 0.0
    assert isinstance(stats["total_cost"], float)


# -- files


@pytest.mark.req("app.services.files")
async def test_no_number_of_tokens_leaves_a_model_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "models.toml").write_text('[[models]]\nid = "m1"\nprovider = "acme"\ncontext_window = 8000\nmax_tokens = 50\n')
    environ = {"SERAI_HOME": str(tmp_path)}

    async def switch(query: str) -> str:
        return query

    ask = ServiceCaller(ModelService(environ, lambda: "", switch, print))
    await ask("write", overrides={"acme/m1": {"name": "One", "context_window": 0, "max_tokens": 0}})
    model = Catalogue.load(environ).get("acme/m1")
    assert model is not None
    assert (model.name, model.context_window, model.max_tokens) == ("One", 8000, 50)


@pytest.mark.req("app.services.files")
def test_a_file_that_cannot_be_put_in_place_leaves_nothing_beside_the_old_one(monkeypatch: Monkey, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("record = false\n")

    def fail(*_paths: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(NotWritten, match="it cannot be written"):
        settings_writer.set_toml_value(str(path), "agent", "resident")
    assert os.listdir(tmp_path) == ["config.toml"]
    assert path.read_text() == "record = false\n"


async def test_a_guests_own_file_may_be_as_long_as_it_may_be(tmp_path: Path) -> None:
    (tmp_path / "long.md").write_bytes(b"x" * MIB)
    ask = ServiceCaller(ConfigService(dict, {"SERAI_HOME": str(tmp_path)}, lambda _guest: str(tmp_path)))
    assert len((await ask("read", name="long"))["content"]) == MIB


# -- work on the side


async def test_what_still_runs_on_the_side_is_shown_when_something_else_has_ended() -> None:
    first, never = asyncio.Event(), asyncio.Event()
    shown: list[Action] = []
    async with resident(Answers([first, reply("x")], [never])) as session:
        ask = ServiceCaller(BackgroundService(lambda: get_driver(session).backgrounds, shown.append))
        await ask("start", prompt="one")
        provider = get_driver(session).context.provider
        assert isinstance(provider, Answers)
        while not provider.requests:
            await asyncio.sleep(0)
        await ask("start", prompt="two")
        first.set()
        while len(shown) < 3:
            await asyncio.sleep(0)
        assert shown == [SetStatus("bg", f"bg: {key}") for key in ("one", "two", "two")]


async def test_work_whose_answer_cannot_be_told_is_nobodys_surprise() -> None:
    surprises: list[dict[str, Any]] = []
    shown: list[Action] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: surprises.append(context))

    def tell(_text: str) -> None:
        raise NotWritten("the disk is full")

    box = Box(echo=echo)
    backgrounds = BackgroundRuns(RunContext(model=MODEL, provider=Answers([reply("x")]), limits=QUICK), ToolSet(box), tell)
    backgrounds.ready = True
    await ServiceCaller(BackgroundService(lambda: backgrounds, shown.append))("start", prompt="one")
    while len(shown) < 2:
        await asyncio.sleep(0)
    gc.collect()
    assert shown[-1] == SetStatus("bg", "")
    assert surprises == []


# -- dialogs


@pytest.mark.parametrize("choices", [["A", "A", "A"], ["A (2)", "A", "A"], ["A", "A (1)", "A"]])
async def test_equal_choices_are_told_apart_however_many_there_are(choices: list[str]) -> None:
    for place in range(len(choices)):

        async def ask(question: Question, place: int = place) -> Decision:
            labels = [choice.label for choice in question.items[0].choices]
            assert len(set(labels)) == len(labels)
            return Answer({question.items[0].text: labels[place]})

        items = [{"id": "same", "label": label} for label in choices]
        dialogs = ServiceCaller(DialogService(ask, lambda: True))
        assert await dialogs("ask", prompt="Which?", choices=choices) == {"selected": choices[place], "cancelled": False}
        assert await dialogs("pick", title="Which?", items=items) == {"selected": "same"}


# -- over a whole app


async def test_settings_are_read_again_for_a_guest(monkeypatch: Monkey, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Helper())
    async with open_app(tmp_path, limits={}) as app:
        asked: list[Any] = []
        for steps in (3, 5):
            (tmp_path / "home" / "config.toml").write_text(f"[limits]\nsteps = {steps}\n")
            asked.append(await app.runtime.services.ask("fake:helper", "config", "get", {"keys": ["agent.max_turns"]}))
    assert asked == [{"values": {"agent.max_turns": steps}} for steps in (3, 5)]


@pytest.mark.req("piglet.fix.33")
async def test_an_abort_without_a_reason_is_marked_with_who_wanted_it(monkeypatch: Monkey, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Helper())
    async with open_app(tmp_path) as app:
        for arguments in ({}, {"reason": ""}, {"reason": "plan mode"}):
            assert await app.runtime.services.ask("fake:helper", "control", "abort_with_marker", arguments) == {}
        assert app.runtime.current is not None
        kept = [message.content for message in app.runtime.current.session.read_messages()]
    marks = [f"[Request interrupted: {reason}]" for reason in ("by fake:helper", "by fake:helper", "plan mode")]
    assert prompts_in(conversation(app.session)) == kept == marks


async def test_a_guest_is_told_where_guests_are(monkeypatch: Monkey, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Helper())
    async with open_app(tmp_path) as app:
        told = await app.runtime.services.ask("fake:helper", "guests", "folder", {})
    assert told == {"path": str(tmp_path / "home" / "guests"), "config": str(tmp_path / "home" / "extensions")}


@pytest.mark.req("app.services.bounded")
async def test_nothing_is_remembered_of_a_guest_that_asks_nothing_any_more(monkeypatch: Monkey, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Helper())
    async with open_app(tmp_path) as app:
        for _ in range(2):
            await app.runtime.services.ask("fake:helper", "guests", "folder", {})
        assert dict(app.runtime.services._open) == {}

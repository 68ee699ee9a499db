"""What must hold whatever happens: guards that are down, a conversation that is left, what nobody may read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from serai.errors import GuardDown, NotAllowed, TurnInFlight
from serai.model.actions import Display
from serai.model.approvals import Allow, Approval, Decision, Question
from serai.model.contributions import Compactor, Contributions, Interceptor
from serai.model.events import StepEnded, TurnEnded
from serai.model.provider import ModelMessage
from serai.model.tools import TextBlock, ToolCall
from tests.support.agents.scripted_models import Answers, reply
from tests.support.app.apps import Gated, Helper, Person, bring, build_environ, open_app, sessions_of
from tests.support.host.fake_guests import Fake

GATE = Contributions(interceptors=(Interceptor("gate", frozenset({"tool_call"})),))


# -- guards


@pytest.mark.req("app.guard.run")
async def test_nothing_begins_while_a_guard_is_down(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gate = Fake("gate", GATE, guard=True)
    bring(monkeypatch, tmp_path, gate, Helper(commands={"say": Display}))
    model = Answers([reply("done")])
    async with open_app(tmp_path, answers=model) as app:
        services = app.runtime.services
        gate.die()
        with pytest.raises(GuardDown):
            await app.submit("go")
        with pytest.raises(NotAllowed, match="refused: the guard"):
            await app.submit("/say hello")
        for group, what, arguments in (("chat", "run", {"task": "go"}), ("background", "start", {"prompt": "go"})):
            with pytest.raises(GuardDown):
                await services.ask("fake:helper", group, what, arguments)
        assert (await app.call_tool(ToolCall("read", {"path": "x"}))).code == "BLOCKED"
    assert model.requests == []


@pytest.mark.req("app.guard.run")
async def test_a_guard_that_dies_while_a_guest_looks_at_the_prompt_is_noticed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate = Fake("gate", GATE, guard=True)

    def inject(_text: str) -> str:
        gate.die()
        return ""

    bring(monkeypatch, tmp_path, gate, Helper(inject=inject))
    model = Answers([reply("done")])
    async with open_app(tmp_path, answers=model) as app:
        with pytest.raises(GuardDown):
            await app.submit("go")
    assert model.requests == []


# -- conversations


async def test_to_load_the_session_that_is_there_already_changes_nothing(tmp_path: Path) -> None:
    async with open_app(tmp_path) as app:
        id = app.session.id
        await app.swap(sessions_of(tmp_path).open(id))
        await app.submit(">> say kept")
        assert app.session.id == id
    with sessions_of(tmp_path).open(id) as stored:
        assert "kept" in repr(stored.read_messages())


async def test_a_conversation_is_not_left_while_it_is_shortened(tmp_path: Path) -> None:
    model = Gated([reply("x" * 4000)], [reply("brief")])
    async with open_app(tmp_path, answers=model) as app:
        turn = asyncio.create_task(app.submit("tell me"))
        await model.began.get()
        model.go()
        await turn
        shortened = asyncio.create_task(app.session.compact())
        await model.began.get()
        with pytest.raises(TurnInFlight):
            await app.swap(sessions_of(tmp_path).create(str(tmp_path)))
        with pytest.raises(TurnInFlight):
            await app.runtime.services.groups["conversation"].operations["set"].do("g", _nothing())
        model.go()
        await shortened


def _nothing() -> Any:
    from serai.app.services.agent_services import ReplacementArgs

    return ReplacementArgs(None)


async def test_a_conversation_is_not_left_while_somebody_is_asked_something(tmp_path: Path) -> None:
    asked = asyncio.Event()

    class Slow(Person):
        async def ask(self, request: Approval | Question) -> Decision:
            asked.set()
            await answered.wait()
            return Allow()

    answered = asyncio.Event()
    async with open_app(tmp_path, surface=Slow(), mode="manual") as app:
        call = asyncio.create_task(app.call_tool(ToolCall("bash", {"command": "true"})))
        await asked.wait()
        with pytest.raises(TurnInFlight, match="asked something"):
            await app.swap(sessions_of(tmp_path).create(str(tmp_path)))
        answered.set()
        assert not (await call).is_error


@pytest.mark.req("app.events.order")
async def test_who_gives_up_a_submission_has_its_end_shown_all_the_same(tmp_path: Path) -> None:
    model, person = Gated([reply("done")]), Person()
    async with open_app(tmp_path, answers=model, surface=person) as app:
        turn = asyncio.create_task(app.submit("go"))
        await model.began.get()
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert [type(event) for event in person.events if isinstance(event, StepEnded | TurnEnded)] == [StepEnded, TurnEnded]


async def test_a_guests_compactor_is_asked_from_the_first_moment_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Shortens(Fake):
        async def compact(self, messages: list[ModelMessage]) -> list[ModelMessage]:
            return [ModelMessage("user", (TextBlock("short"),))]

    bring(monkeypatch, tmp_path, Shortens("short", Contributions(compactors=(Compactor("short"),))))
    long = [ModelMessage("user", (TextBlock("long " * 1000),))]
    async with open_app(tmp_path, answers=Answers(), options={"history": long, **_model()}) as app:
        await app.session.compact()
        assert [message.content for message in app.resident.conversation.messages] == [(TextBlock("short"),)]


def _model() -> dict[str, Any]:
    from tests.support.agents.scripted_models import MODEL

    return {"model": MODEL, "provider": Answers()}


@pytest.mark.req("app.inject.turn")
async def test_what_hooks_add_is_told_to_the_model_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from tests.support.agents.scripted_models import call

    bring(monkeypatch, tmp_path, Helper(inject=lambda _text: "Today is Monday."))
    model = Answers([reply("", call("find"))], [reply("done")])
    async with open_app(tmp_path, answers=model) as app:
        await app.submit("go")
    assert ["Today is Monday." in request.system for request in model.requests] == [True, False]


@pytest.mark.req("app.run.continues")
async def test_what_a_session_took_counts_when_it_goes_on(tmp_path: Path) -> None:
    async with open_app(tmp_path) as app:
        await app.submit("hello")
        id, taken = app.session.id, app.resident.conversation.usage
    assert taken.input
    async with open_app(tmp_path, session=id) as app:
        stats = await app.runtime.services.groups["conversation"].operations["stats"].do("g", None)
    assert (stats["total_input_tokens"], stats["total_output_tokens"]) == (taken.input, taken.output)


# -- secrets


@pytest.mark.req("app.services.keys")
async def test_no_secret_is_in_the_repr_of_a_runtime(tmp_path: Path) -> None:
    environ = {**build_environ(tmp_path), "ANTHROPIC_API_KEY": "sk-ant-very-secret"}
    async with open_app(tmp_path, environ=environ) as app:
        assert "sk-ant-very-secret" not in repr(app.runtime) + repr(app)

"""What else an app promises: its end, the prompts of commands, step mode, the bus, and who is asked what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from serai.app.services.guest_services import BASH_TAIL
from serai.errors import Closed
from serai.model.actions import SubmitPrompt
from serai.model.approvals import Allow, Approval, Deny, Question
from serai.model.contributions import Compactor, Contributions, TransformResult
from serai.model.provider import ModelMessage
from serai.model.tools import TextBlock, ToolCall
from serai.store.messages import AssistantMessage, ToolResultMessage
from tests.agents.resident.parts import MODEL, Answers, call, conversation, said, texts
from tests.app.houses import Helper, Person, bring, opened, prompts_in, unopened
from tests.host.fakes import Fake

Monkey = pytest.MonkeyPatch


# -- its end


async def test_what_was_closed_before_it_was_opened_stays_closed(tmp_path: Path) -> None:
    app = unopened(tmp_path)
    await app.close()
    with pytest.raises(Closed, match="an app is opened once"):
        await app.open()


async def test_whoever_waits_for_the_end_of_an_app_is_told_of_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        assert not app.quitting.is_set()
    assert app.quitting.is_set()


@pytest.mark.req("app.close.nothing-left")
async def test_a_text_that_a_guest_still_looks_at_is_given_up_when_the_app_is_closed(monkeypatch: Monkey, tmp_path: Path) -> None:
    looking, given_up = asyncio.Event(), asyncio.Event()

    async def transform(text: str) -> TransformResult:
        looking.set()
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()
        return TransformResult(text)

    bring(monkeypatch, tmp_path, Helper(transform=transform))
    async with opened(tmp_path) as app:
        app.queue("hello")
        await looking.wait()
    assert given_up.is_set()


class Stubborn(Answers):
    """Does not let go of its second request before the test lets it."""

    def __init__(self) -> None:
        super().__init__([said("done")])
        self.began, self.go = asyncio.Event(), asyncio.Event()

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        if self.requests:
            self.began.set()
            try:
                await asyncio.Event().wait()
            finally:
                await self.go.wait()
        async for piece in super().stream(request):
            yield piece


async def test_the_last_turn_is_the_last_one_whose_end_is_known(tmp_path: Path) -> None:
    model = Stubborn()
    async with opened(tmp_path, answers=model) as app:
        first = await app.submit("first")
        second = asyncio.create_task(app.submit("second"))
        await model.began.wait()
        second.cancel()  # it asks the turn to end and waits for that
        await asyncio.sleep(0)
        second.cancel()  # it does not wait any more
        with pytest.raises(asyncio.CancelledError):
            await second
        assert app.last == first
        model.go.set()


# -- the prompts of commands


async def test_a_command_whose_prompt_is_blank_wants_nothing_said(monkeypatch: Monkey, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Helper(commands={"say": SubmitPrompt, "blank": lambda _args: SubmitPrompt(" \n")}))
    model = Answers([said("done")])
    async with opened(tmp_path, answers=model) as app:
        assert await app.submit("/blank") is None
        app.queue("/blank")
        await app.idle()
        assert model.requests == []
        assert await app.submit("/say hello") is not None


@pytest.mark.req("app.submit.order")
async def test_the_prompt_of_a_command_waits_for_those_that_were_submitted_before(monkeypatch: Monkey, tmp_path: Path) -> None:
    looking, go = asyncio.Event(), asyncio.Event()

    async def transform(text: str) -> TransformResult:
        looking.set()
        await go.wait()
        return TransformResult(text)

    bring(monkeypatch, tmp_path, Helper(transform=transform, commands={"say": SubmitPrompt}))
    async with opened(tmp_path) as app:
        first = asyncio.create_task(app.submit("first"))
        await looking.wait()
        second = asyncio.create_task(app.submit("/say second"))
        for _ in range(20):  # time enough to be quicker
            await asyncio.sleep(0)
        go.set()
        await asyncio.gather(first, second)
        assert prompts_in(conversation(app.session)) == ["first", "second"]


# -- who is asked


@pytest.mark.req("app.step.person")
async def test_in_step_mode_a_person_is_asked_whatever_the_rules_allow(monkeypatch: Monkey, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Helper())
    model = Answers([said("", call("find", "c1"))], [said("", call("find", "c2"))], [said("done")])
    person = Person(Deny("no"), Allow())
    async with opened(tmp_path, answers=model, surface=person, mode="skip") as app:
        assert await app.runtime.services.ask("fake:helper", "control", "step_mode", {}) == {"on": True}
        await app.submit("go")
        said_to_model = texts(conversation(app.session))
    assert [request.reason_type for request in person.asked if isinstance(request, Approval)] == ["step", "step"]
    assert said_to_model[2] == "tool: Tool execution skipped by user"
    assert said_to_model[4] != said_to_model[2]


class Picky(Person):
    """Has somebody for `bash` alone."""

    def answers(self, request: Approval | Question) -> bool:
        return isinstance(request, Approval) and request.tool == "bash"


async def test_a_surface_is_asked_only_what_it_has_somebody_for(tmp_path: Path) -> None:
    person = Picky(Allow(), Allow())
    async with opened(tmp_path, surface=person, mode="manual") as app:
        assert not (await app.call_tool(ToolCall("bash", {"command": "true"}))).is_error
        denied = await app.call_tool(ToolCall("write", {"path": "a", "content": ""}))
    assert denied.code == "PERMISSION_DENIED"
    assert "nobody is there" in denied.text
    assert [request.tool for request in person.asked] == ["bash"]


# -- what is told to others


@pytest.mark.req("piglet.rule.bus-bash-tail")
async def test_what_a_command_writes_is_published_on_the_bus(tmp_path: Path) -> None:
    heard: list[tuple[str, Any]] = []
    async with opened(tmp_path) as app:
        app.runtime.bus.subscribe("fake:helper", BASH_TAIL, lambda *told: heard.append(told))
        await app.submit('>> call bash {"command": "echo one; echo two"}\n>> say done')
    assert heard
    topic, data = heard[-1]
    assert topic == BASH_TAIL
    assert (data["ToolName"], data["Partial"], bool(data["ToolCallID"])) == ("bash", "two", True)


async def test_a_compactor_that_is_down_keeps_its_place_and_the_conversation_is_summarised(
    monkeypatch: Monkey, tmp_path: Path
) -> None:
    class Shortens(Fake):
        def __init__(self, name: str) -> None:
            super().__init__(name, Contributions(compactors=(Compactor(name),)))

        async def compact(self, messages: list[ModelMessage]) -> list[ModelMessage]:
            return [ModelMessage("user", (TextBlock(f"shortened by {self.name}"),))]

    first, second = Shortens("first"), Shortens("second")
    bring(monkeypatch, tmp_path, first, second)
    long = [ModelMessage("user", (TextBlock("long " * 1000),))]
    model = Answers([said("our own summary")])
    options = {"history": long, "model": MODEL, "provider": model}
    async with opened(tmp_path, options=options, limits={"restart_wait": 60.0, "restart_wait_most": 60.0}) as app:
        first.die()
        await app.session.compact()
        assert prompts_in(conversation(app.session)) == ["[Summary of the conversation so far]\nour own summary"]
    assert len(model.requests) == 1


# -- what is in memory


async def test_what_no_model_would_take_is_left_out_when_the_conversation_is_read_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        await app.submit("hello")
        assert app.runtime.current is not None
        stored = app.runtime.current.session
        stored.say(AssistantMessage())  # an answer without a word
        stored.say(ToolResultMessage("c1", "find"))  # and a result that nobody asked for
        assert len(stored.messages()) > 2
        app.refresh()
        assert texts(conversation(app.session)) == ["user: hello", "assistant: You said: hello"]

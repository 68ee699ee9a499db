"""The start and the end of an app: calls that come too early or too late, and what is left when one of the two fails."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from serai.app.app import App
from serai.app.services.guest_services import BASH_TAIL
from serai.errors import Closed, NoSession
from serai.model.actions import Notice, SubmitPrompt
from serai.model.approvals import Allow, Approval, Deny, Question
from serai.model.contributions import Compactor, Contributions, EventHandler, TransformResult
from serai.model.events import Event, SessionStarted
from serai.model.provider import ModelMessage
from serai.model.tools import TextBlock, ToolCall
from serai.record import RecordingFolder
from serai.store.messages import AssistantMessage, ToolResultMessage
from tests.support.agents.scripted_models import MODEL, Answers, call, conversation, reply, texts
from tests.support.app.apps import (
    Gated,
    Helper,
    Person,
    bring,
    build_environ,
    close_app,
    create_app,
    list_session_files,
    open_app,
    prompts_in,
    sessions_of,
)
from tests.support.host.fake_guests import Fake
from tests.support.host.zot_guests import Fifo, make

Monkey = pytest.MonkeyPatch


def open_files(tmp_path: Path) -> list[str]:
    """Files of this person that this process has open, but for guests' logs."""
    links = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:  # that of the listing itself
            continue
    return [link for link in links if link.startswith(str(tmp_path / "home")) and "/logs/" not in link]


# -- the beginning


class Eager(Helper):
    """Wants something said as soon as it hears of a session."""

    def __init__(self, *texts: str) -> None:
        super().__init__(offers=Contributions(event_handlers=(EventHandler("eager"),)))
        self._texts = texts

    def tell(self, event: Event) -> None:
        super().tell(event)
        if isinstance(event, SessionStarted):
            for text in self._texts:
                self.wants(SubmitPrompt(text))


@pytest.mark.loops
@pytest.mark.req("app.actions.done", "app.open.early")
async def test_what_a_guest_wants_said_at_the_beginning_of_a_session_is_said(monkeypatch: Monkey, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Eager("hello", "and welcome"))
    person = Person()
    async with open_app(tmp_path, answers=Answers([reply("answer")]), surface=person) as app:
        await app.idle()
        assert "\n\n".join(prompts_in(conversation(app.session))) == "hello\n\nand welcome"
    assert [action.text for action in person.actions if isinstance(action, Notice)] == []


@pytest.mark.loops
@pytest.mark.req("app.open.early")
async def test_more_than_may_wait_at_the_beginning_is_refused_and_the_app_is_open(monkeypatch: Monkey, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Eager("one", "two", "three"))
    person = Person()
    async with open_app(tmp_path, answers=Answers([reply("answer")]), surface=person, limits={"inputs": 2}) as app:
        await app.idle()
        assert "\n\n".join(prompts_in(conversation(app.session))) == "one\n\ntwo"
    assert ["too much waits already" in action.text for action in person.actions if isinstance(action, Notice)] == [True]


@pytest.mark.loops
@pytest.mark.req("app.open.nothing-left")
async def test_services_that_are_none_leave_nothing(tmp_path: Path) -> None:
    app = create_app(tmp_path, record=True, services=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        await app.open()
    assert open_files(tmp_path) == []
    assert list_session_files(tmp_path) == []
    assert not any(recording.live for recording in RecordingFolder.usual(build_environ(tmp_path)).list_runs())


@pytest.mark.loops
@pytest.mark.req("app.open.nothing-left")
async def test_an_app_that_is_closed_while_it_opens_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    with Fifo(tmp_path) as latch:
        app = create_app(tmp_path, make(tmp_path, f"wait({str(latch.path)!r})\nremember()"))
        opening = asyncio.create_task(app.open())
        await asyncio.sleep(0)  # it waits for the guest now
        await close_app(app)
        with pytest.raises(Closed, match="closed"):
            await opening
    assert list_session_files(tmp_path) == []


# -- the end


@pytest.mark.loops
@pytest.mark.req("app.submit.order", "app.quit.begins-nothing")
async def test_what_is_queued_begins_no_turn_once_somebody_wants_to_quit(tmp_path: Path) -> None:
    model, person = Gated([reply("answer")]), Person()
    async with open_app(tmp_path, answers=model, surface=person) as app:
        turn = asyncio.create_task(app.submit("first"))
        assert await model.began.get() == "first"
        app.queue("second")
        app.quit()
        await app.abort()
        result = await turn
        assert result is not None
        assert result.status == "cancelled"
        model.go()  # for whoever begins all the same
        await app.idle()
        assert model.began.empty()
        notices = [action.text for action in person.actions if isinstance(action, Notice)]
        assert notices == ["a prompt was not sent: the app is about to be closed"]


class Clings(Helper):
    """Does not let itself be stopped."""

    async def stop(self) -> None:
        await asyncio.Event().wait()


@pytest.mark.req("app.close.nothing-left")
@pytest.mark.parametrize("new_loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_an_app_whose_loop_ends_while_it_closes_leaves_neither_session_nor_recording_nor_decisions_open(
    monkeypatch: Monkey, tmp_path: Path, new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    async def leave() -> App:
        app = create_app(tmp_path, record=True)
        await app.open()
        await app.submit(">> say kept")
        assert open_files(tmp_path)
        closing = asyncio.create_task(app.close())
        await asyncio.sleep(0)
        closing.cancel()  # as a second Ctrl-C does; at its end the loop cancels the rest
        return app

    bring(monkeypatch, tmp_path, Clings())
    with asyncio.Runner(loop_factory=new_loop) as runner:
        app = runner.run(leave())
    assert open_files(tmp_path) == []
    assert app.runtime.current is not None
    with pytest.raises(NoSession):
        _ = app.runtime.current.session
    assert not any(recording.live for recording in RecordingFolder.usual(build_environ(tmp_path)).list_runs())
    with sessions_of(tmp_path).open(app.session.id) as stored:
        assert "kept" in repr(stored.read_messages())


# -- its end


async def test_what_was_closed_before_it_was_opened_stays_closed(tmp_path: Path) -> None:
    app = create_app(tmp_path)
    await app.close()
    with pytest.raises(Closed, match="an app is opened once"):
        await app.open()


async def test_whoever_waits_for_the_end_of_an_app_is_told_of_it(tmp_path: Path) -> None:
    async with open_app(tmp_path) as app:
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
    async with open_app(tmp_path) as app:
        app.queue("hello")
        await looking.wait()
    assert given_up.is_set()


class Stubborn(Answers):
    """Does not let go of its second request before the test lets it."""

    def __init__(self) -> None:
        super().__init__([reply("done")])
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
    async with open_app(tmp_path, answers=model) as app:
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
    model = Answers([reply("done")])
    async with open_app(tmp_path, answers=model) as app:
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
    async with open_app(tmp_path) as app:
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
    model = Answers([reply("", call("find", "c1"))], [reply("", call("find", "c2"))], [reply("done")])
    person = Person(Deny("no"), Allow())
    async with open_app(tmp_path, answers=model, surface=person, mode="skip") as app:
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
    async with open_app(tmp_path, surface=person, mode="manual") as app:
        assert not (await app.call_tool(ToolCall("bash", {"command": "true"}))).is_error
        denied = await app.call_tool(ToolCall("write", {"path": "a", "content": ""}))
    assert denied.code == "PERMISSION_DENIED"
    assert "nobody is there" in denied.text
    assert [request.tool for request in person.asked] == ["bash"]


# -- what is told to others


@pytest.mark.req("piglet.rule.bus-bash-tail")
async def test_what_a_command_writes_is_published_on_the_bus(tmp_path: Path) -> None:
    heard: list[tuple[str, Any]] = []
    async with open_app(tmp_path) as app:
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
    model = Answers([reply("our own summary")])
    options = {"history": long, "model": MODEL, "provider": model}
    async with open_app(tmp_path, options=options, limits={"restart_wait": 60.0, "restart_wait_most": 60.0}) as app:
        first.die()
        await app.session.compact()
        assert prompts_in(conversation(app.session)) == ["[Summary of the conversation so far]\nour own summary"]
    assert len(model.requests) == 1


# -- what is in memory


async def test_what_no_model_would_take_is_left_out_when_the_conversation_is_read_again(tmp_path: Path) -> None:
    async with open_app(tmp_path) as app:
        await app.submit("hello")
        assert app.runtime.current is not None
        stored = app.runtime.current.session
        stored.say(AssistantMessage())  # an answer without a word
        stored.say(ToolResultMessage("c1", "find"))  # and a result that nobody asked for
        assert len(stored.read_messages()) > 2
        app.refresh()
        assert texts(conversation(app.session)) == ["user: hello", "assistant: You said: hello"]

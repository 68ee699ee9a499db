"""What piglet's protocol says of a turn, seen from the agent's side, with guests that need no process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serai.errors import ModelFailed, NotAllowed, Refused
from serai.model.actions import Action, NoAction, Notice, SubmitPrompt
from serai.model.contributions import (
    Contributions,
    Interceptor,
    InterceptPoint,
    InterceptResult,
    MessageHook,
    Pass,
    Refuse,
    TransformResult,
)
from serai.model.events import Retrying, ToolEnded, ToolStarted
from serai.model.provider import Chunk
from serai.model.tools import ToolCall, ToolResult, ToolSpec
from tests.support.agents.scripted_models import Answers, Piece, call, conversation, reply, texts
from tests.support.app.apps import Gated, Helper, Person, bring, open_app, prompts_in
from tests.support.host.fake_guests import Fake

Monkey = pytest.MonkeyPatch


class Tooled(Fake):
    """Its tools are functions of the call; those of `block` are to be let finish."""

    def __init__(
        self, name: str = "tooled", *, block: str = "", replace: tuple[str, ...] = (), **tools: Callable[..., Any]
    ) -> None:
        specs = tuple(ToolSpec(tool, interrupt="block" if tool == block else "cancel") for tool in tools)
        super().__init__(name, Contributions(tools=specs), replace=replace)
        self.tools = tools
        self.ended: list[str] = []

    async def call_tool(self, call: ToolCall) -> ToolResult:
        try:
            result: ToolResult = await self.tools[call.name](call)
        except asyncio.CancelledError:
            self.ended.append(f"{call.name} cancelled")
            raise
        self.ended.append(f"{call.name} ended")
        return result


class Guard(Fake):
    """Judges every call by a function."""

    def __init__(self, judge: Callable[[ToolCall], InterceptResult]) -> None:
        stages: frozenset[InterceptPoint] = frozenset({"tool_call"})
        super().__init__("gate", Contributions(interceptors=(Interceptor("gate", stages),)), judge=lambda _stage, call: judge(call))


async def succeed(call: ToolCall) -> ToolResult:
    return ToolResult.of("fine")


async def fail(call: ToolCall) -> ToolResult:
    return ToolResult.error("no station", code="FILE_NOT_FOUND", hint="try a bigger town")


# -- injections (spec piglet 5.6)


def systems(model: Answers) -> list[str]:
    return [request.system for request in model.requests]


@pytest.mark.req("piglet.fix.18", "piglet.rule.message-hook-failure")
async def test_an_injection_is_there_for_the_first_call_of_the_model_and_its_retries_alone(
    monkeypatch: Monkey, tmp_path: Path
) -> None:
    seen: list[str] = []

    def inject(text: str) -> str:
        seen.append(text)
        return f"It is about {text}."

    bring(monkeypatch, tmp_path, Helper(inject=inject, transform=lambda text: TransformResult(text.upper())), Tooled(look=succeed))
    busy = ModelFailed("overloaded", temporary=True)
    first: list[Piece] = [Chunk("ha"), busy]
    model, person = Answers(first, [busy], [reply("", call("look"))], [reply("done")]), Person()
    async with open_app(tmp_path, answers=model, surface=person) as app:
        await app.submit("bees")
    assert seen == ["BEES"]  # after input transformation
    assert len(person.events_of(Retrying)) == 2
    assert [system.endswith("\n\nIt is about BEES.") for system in systems(model)] == [True, True, True, False]
    assert "bees" not in systems(model)[3].lower()


@pytest.mark.req("piglet.fix.18")
async def test_it_is_there_also_when_the_conversation_had_to_be_shortened_first(monkeypatch: Monkey, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Helper(inject=lambda text: f"About {text}."))
    too_long = ModelFailed("prompt is too long", status=400, too_long=True)
    model = Answers([reply("a" * 4000)], [too_long], [reply("a summary")], [reply("fits")])
    async with open_app(tmp_path, answers=model) as app:
        await app.submit("one")
        await app.submit("two")
    assert systems(model)[1].endswith("\n\nAbout two.")
    assert systems(model)[3].endswith("\n\nAbout two.")


async def test_a_prompt_that_waited_for_a_run_to_end_has_one_and_what_is_steered_has_none(
    monkeypatch: Monkey, tmp_path: Path
) -> None:
    seen: list[str] = []

    def inject(text: str) -> str:
        seen.append(text)
        return f"About {text}."

    bring(monkeypatch, tmp_path, Helper(inject=inject))
    model = Gated([reply("one")], [reply("two")], [reply("three")])
    async with open_app(tmp_path, answers=model) as app:
        turn = asyncio.create_task(app.submit("begin"))
        await model.began.get()
        app.steer("steered")  # before the model's answer: it is asked once more
        model.go()
        await model.began.get()
        app.queue("waited")
        model.go()
        await turn
        assert await model.began.get() == "waited"
        model.go()
        await app.idle()
    assert seen == ["begin", "waited"]
    assert [system.rpartition("\n\n")[2] for system in systems(model) if "About" in system] == ["About begin.", "About waited."]


@pytest.mark.req("piglet.rule.message-hook-failure")
async def test_a_hook_that_fails_loses_its_own_injection_alone(monkeypatch: Monkey, tmp_path: Path) -> None:
    def fails(_text: str) -> str:
        raise Refused("it forgot")

    class Later(Helper):
        def __init__(self) -> None:
            super().__init__("first", inject=lambda _text: "From the first.")
            self.contributions = Contributions(message_hooks=(MessageHook("first", -5),))

    bring(monkeypatch, tmp_path, Helper("broken", inject=fails), Helper("last", inject=lambda _text: "From the last."), Later())
    model, person = Answers([reply("done")]), Person()
    async with open_app(tmp_path, answers=model, surface=person) as app:
        assert await app.submit("hello")
    assert systems(model)[0].endswith("\n\nFrom the first.\n\nFrom the last.")
    assert Notice("broken could not add what it wanted to: it forgot", "warn", "serai") in person.actions


# -- input transformers (spec piglet 5.7)


@pytest.mark.req("piglet.rule.transformer-failure")
async def test_a_transformer_that_fails_fails_the_submission_in_its_protocols_words(monkeypatch: Monkey, tmp_path: Path) -> None:
    seen: list[str] = []

    def transform(text: str) -> TransformResult:
        seen.append(text)
        if text.startswith("bad"):
            raise Refused("input transform: not that")  # the wire's part of it is the adapter's
        return TransformResult(text)

    def say(args: str) -> Action:
        return SubmitPrompt(args) if args else NoAction()

    helper, person = Helper("alias", transform=transform, commands={"say": say}), Person()
    bring(monkeypatch, tmp_path, helper)
    model = Gated([reply("done")])
    async with open_app(tmp_path, answers=model, surface=person, limits={"restart_wait": 60.0, "restart_wait_most": 60.0}) as app:
        with pytest.raises(NotAllowed) as raised:
            await app.submit("bad one")
        assert raised.value.message == "input transformer alias: input transform: not that"
        assert conversation(app.session) == []
        model.go()
        await app.submit("/say bad from a command")
        assert await model.began.get() == "bad from a command"
        turn = asyncio.create_task(app.submit("good"))
        assert await model.began.get() == "good"
        app.queue("bad but queued")
        app.steer("bad but steered")
        for _ in range(3):  # with what was steered in, and then what was queued
            model.go()
        await turn
        await app.idle()
        assert [await model.began.get() for _ in range(2)] == ["bad but steered", "bad but queued"]
        assert [text for text in seen if text.startswith("bad")] == ["bad one"]
        helper.die()
        model.go()
        assert await app.submit("bad but nobody looks")
        assert "bad but nobody looks" in prompts_in(conversation(app.session))


# -- tools (spec piglet 5.1, 5.3, 6.4)


@pytest.mark.req("piglet.fix.12")
async def test_a_tool_that_says_it_failed_harms_no_sibling(monkeypatch: Monkey, tmp_path: Path) -> None:
    go = asyncio.Event()

    async def slow(call: ToolCall) -> ToolResult:
        await go.wait()
        return ToolResult.of("worked")

    guest, person = Tooled(wrong=fail, slow=slow), Person()
    bring(monkeypatch, tmp_path, guest)
    model = Answers([reply("", call("wrong", "c1"), call("slow", "c2"))], [reply("done")])
    async with open_app(tmp_path, answers=model, surface=person) as app:
        turn = asyncio.create_task(app.submit("go"))
        ended = await person.saw_a(ToolEnded)
        assert isinstance(ended, ToolEnded)
        assert (ended.call.name, ended.result.is_error) == ("wrong", True)
        go.set()
        await turn
        results = [message for message in conversation(app.session) if message.role == "tool"]
    assert [(message.call_id, message.is_error) for message in results] == [("c1", True), ("c2", False)]
    assert texts(results) == ["tool: [error:FILE_NOT_FOUND] no station\nhint: try a bigger town", "tool: worked"]
    assert guest.ended == ["wrong ended", "slow ended"]


@pytest.mark.req("piglet.edge.04")
async def test_a_blocked_call_gives_a_result_that_is_no_error(monkeypatch: Monkey, tmp_path: Path) -> None:
    guest, person = Tooled(look=succeed), Person()
    bring(monkeypatch, tmp_path, guest, Guard(lambda _call: Refuse("blocked by interceptor: gate", is_error=False)))
    async with open_app(tmp_path, answers=Answers([reply("", call("look"))], [reply("done")]), surface=person) as app:
        await app.submit("go")
        results = [message for message in conversation(app.session) if message.role == "tool"]
    assert texts(results) == ["tool: blocked by interceptor: gate"]
    assert [message.is_error for message in results] == [False]
    assert [event.result.is_error for event in person.events if isinstance(event, ToolEnded)] == [False]
    assert guest.ended == []


@pytest.mark.req("piglet.edge.35")
async def test_interceptors_decide_also_for_work_on_the_side_and_for_private_agents(monkeypatch: Monkey, tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []

    def judge(call: ToolCall) -> InterceptResult:
        asked.append((call.name, call.asker))
        return Refuse("not here", is_error=False) if call.name == "read" else Pass()

    bring(monkeypatch, tmp_path, Guard(judge), Tooled(look=succeed))
    model = Answers(
        [reply("", call("read", path="a.txt"))], [reply("side")], [reply("", call("read"), call("look", "c2"))], [reply("run")]
    )
    async with open_app(tmp_path, answers=model) as app:
        (tmp_path / "project" / "a.txt").write_text("secret")
        key = app.resident.backgrounds.start("look")
        assert (await app.resident.backgrounds.result(key)).endswith("side")
        app.runtime.provider_pool.select = lambda *_query, **_how: (app.resident.context.model, model, "")  # type: ignore[method-assign]
        run = await app.runtime.services.ask("fake:tooled", "chat", "run", {"task": "count", "tools": "all"})
        assert run["text"] == "run"
    assert asked == [("read", "resident"), ("read", "fake:tooled"), ("look", "fake:tooled")]
    results = [texts(request.messages)[2:] for request in model.requests if len(request.messages) > 2]
    assert results == [["tool: not here"], ["tool: not here", "tool: fine"]]


@pytest.mark.req("piglet.edge.38")
@pytest.mark.parametrize("granted", [True, False])
async def test_a_built_in_that_a_guest_has_replaced_is_no_tool_for_work_on_the_side(
    monkeypatch: Monkey, tmp_path: Path, granted: bool
) -> None:
    guest = Tooled(replace=("read",) if granted else (), read=succeed)
    bring(monkeypatch, tmp_path, guest)
    model = Answers([reply("", call("read", path="a.txt"))], [reply("done")])
    async with open_app(tmp_path, answers=model) as app:
        (tmp_path / "project" / "a.txt").write_text("ours")
        key = app.resident.backgrounds.start("look")
        await app.resident.backgrounds.result(key)
        offered = {tool.name for tool in model.requests[0].tools}
        assert ("read" in offered, "find" in offered) == (not granted, True)
        [_, _, result] = texts(model.requests[1].messages)
        assert ("unknown tool: read" in result, "ours" in result) == (granted, not granted)
        listed = await app.runtime.services.ask("fake:tooled", "tools", "list", {"filter": "background_safe"})
        assert ("read" in {tool["name"] for tool in listed["tools"]}) is not granted
    assert guest.ended == []


@pytest.mark.req("piglet.rule.cancel-block-tools")
@pytest.mark.parametrize("how", ["steer", "abort"])
async def test_a_tool_that_blocks_is_never_told_to_stop_because_somebody_steers_or_aborts(
    monkeypatch: Monkey, tmp_path: Path, how: str
) -> None:
    go, both = asyncio.Event(), asyncio.Semaphore(0)
    done = asyncio.Event()

    async def slow(call: ToolCall) -> ToolResult:
        both.release()
        await go.wait()
        done.set()
        return ToolResult.of("worked")

    guest, person = Tooled(block="careful", careful=slow, light=slow), Person()
    bring(monkeypatch, tmp_path, guest)
    model = Answers([reply("", call("careful", "c1"), call("light", "c2"))], [reply("done")], [reply("next")])
    async with open_app(tmp_path, answers=model, surface=person) as app:
        turn = asyncio.create_task(app.submit("go"))
        await both.acquire()
        await both.acquire()
        if how == "steer":
            app.steer("be quick")
        else:
            await app.abort()
            assert app.works_for("fake:tooled")  # it is at work all the same
            result = await turn
            assert result is not None
            assert result.status == "cancelled"
        go.set()
        await done.wait()
        if how == "steer":
            await turn
        else:
            await app.submit("next")
        said_ = texts(conversation(app.session))
        while app.works_for("fake:tooled"):
            await asyncio.sleep(0)
    assert sorted(guest.ended) == ["careful ended", "light cancelled"]
    assert ("tool: worked" in said_) is (how == "steer")  # its result counts only if the run is alive
    started = [event.call.name for event in person.events if isinstance(event, ToolStarted)]
    ended = [event.call.id for event in person.events if isinstance(event, ToolEnded)]
    assert (started, sorted(ended)) == (["careful", "light"], ["c1", "c2"])

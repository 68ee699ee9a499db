"""Calls that lead to calls: a guest's tool that wants a tool run, or an agent of its own, while the model waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from serai.agents.resident import conversation as resident_conversation
from serai.app.app import App
from serai.errors import Refused, TurnInFlight
from serai.host.guest_context import GuestContext
from serai.host.guest_manifest import GuestManifest
from serai.model.approvals import Allow
from serai.model.contributions import Contributions, Interceptor, Rewrite
from serai.model.events import ToolEnded
from serai.model.provider import ModelRequest
from serai.model.tools import ToolCall, ToolResult, ToolSpec
from serai.store.messages import to_model_message
from tests.agents.resident.parts import MODEL, Answers, call, conversation, said, texts
from tests.app.houses import Person, bring, opened
from tests.host.fakes import Fake

Monkey = pytest.MonkeyPatch
Work = Callable[[ToolCall], Awaitable[ToolResult]]
PROMPTLY = 10.0  # what would wait for itself waits an hour


class Worker(Fake):
    """A guest whose tools do what the test says; it asks the house of its own accord."""

    def __init__(self, name: str = "worker", *, gate: bool = False, **tools: Work) -> None:
        gates = (Interceptor(name, frozenset({"tool_call"})),) if gate else ()
        super().__init__(name, Contributions(tools=tuple(map(ToolSpec, tools)), interceptors=gates))
        self._tools = tools
        self.app: App | None = None

    async def call_tool(self, call: ToolCall) -> ToolResult:
        return await self._tools[call.name](call)

    async def ask(self, group: str, what: str, **arguments: Any) -> Any:
        assert self.app is not None
        return await self.app.runtime.services.ask(f"fake:{self.name}", group, what, arguments)

    def takes_model(self, app: App, model: Answers) -> None:
        """Agents of its own have the test's model too."""
        self.app = app
        app.runtime.services.groups["chat"]._take = lambda _query: (MODEL, model)  # type: ignore[attr-defined]


async def ok(_call: ToolCall) -> ToolResult:
    return ToolResult.of("ok")


def kept(app: App) -> list[str]:
    """The conversation as it goes on another time."""
    assert app.runtime.current is not None
    return texts(resident_conversation.repair_messages(map(to_model_message, app.runtime.current.session.messages())))


# -- what is kept is what the model said


@pytest.mark.req("app.services.decided", "app.swap.apart")
async def test_what_a_guest_has_run_between_two_turns_is_no_call_of_the_model(monkeypatch: Monkey, tmp_path: Path) -> None:
    guest, person = Worker(work=ok), Person(Allow())
    bring(monkeypatch, tmp_path, guest)
    async with opened(tmp_path, answers=Answers([said("answer")]), surface=person, mode="manual") as app:
        guest.app = app
        await app.submit("first")
        assert (await guest.ask("tools", "call", name="work", call_id="g1"))["is_error"] is False
        await app.submit("second")
        assert person.calls == 1
        id, remembered = app.session.id, texts(conversation(app.session))
        assert kept(app) == remembered == ["user: first", "assistant: answer", "user: second", "assistant: answer"]
    async with opened(tmp_path, answers=Answers([said("answer")]), session=id) as app:
        assert texts(conversation(app.session)) == remembered


@pytest.mark.req("app.services.decided", "app.swap.apart")
async def test_what_a_guest_has_run_in_a_turn_is_no_call_of_the_model(monkeypatch: Monkey, tmp_path: Path) -> None:
    async def outer(_call: ToolCall) -> ToolResult:
        answer = await guest.ask("tools", "call", name="inner", call_id="g1")
        return ToolResult.of(answer["content"][0]["text"])

    guest, person = Worker(outer=outer, inner=ok), Person(Allow(), Allow())
    bring(monkeypatch, tmp_path, guest)
    model = Answers([said("", call("outer"))], [said("done")])
    async with opened(tmp_path, answers=model, surface=person, mode="manual") as app:
        guest.app = app
        await app.submit("go")
        assert person.calls == 2
        assert kept(app) == texts(conversation(app.session)) == ["user: go", "assistant: outer()", "tool: ok", "assistant: done"]


@pytest.mark.req("app.services.decided", "app.swap.apart")
async def test_what_a_guests_own_agent_has_run_is_no_call_of_the_model(monkeypatch: Monkey, tmp_path: Path) -> None:
    guest, person = Worker(work=ok), Person(Allow())
    bring(monkeypatch, tmp_path, guest)
    model = Answers([said("answer")], [said("", call("work", "other"))], [said("done")])
    async with opened(tmp_path, answers=model, surface=person, mode="manual") as app:
        guest.takes_model(app, model)
        await app.submit("first")
        assert (await guest.ask("chat", "run", task="work", tools="all"))["text"] == "done"
        assert person.calls == 1
        assert kept(app) == texts(conversation(app.session)) == ["user: first", "assistant: answer"]


@pytest.mark.req("app.services.decided", "app.swap.apart")
@pytest.mark.parametrize("id", ["other", "c1"], ids=["its own id", "the id of another call"])
async def test_what_is_run_on_the_side_is_no_call_of_the_model(monkeypatch: Monkey, tmp_path: Path, id: str) -> None:
    person = Person(Allow(), Allow())
    guest = Worker(work=ok)
    guest.contributions = Contributions(tools=(ToolSpec("work", background=True),))
    bring(monkeypatch, tmp_path, guest)
    model = Answers([said("", call("work"))], [said("answer")], [said("", call("work", id))], [said("found")])
    async with opened(tmp_path, answers=model, surface=person, mode="manual") as app:
        await app.submit("first")
        key = app.resident.backgrounds.start("look")
        assert "found" in await app.resident.backgrounds.result(key)
        assert person.calls == 2
        assert (
            kept(app) == texts(conversation(app.session)) == ["user: first", "assistant: work()", "tool: ok", "assistant: answer"]
        )


# -- what leads to itself


@pytest.mark.req("app.services.bounded")
async def test_an_agent_whose_tool_has_another_agent_work_comes_to_an_end(monkeypatch: Monkey, tmp_path: Path) -> None:
    errors: list[str] = []

    async def delegate(_call: ToolCall) -> ToolResult:
        try:
            await guest.ask("chat", "run", task="go on", tools="all")
        except Refused as error:
            errors.append(str(error))
        return ToolResult.of("done")

    def answer(request: ModelRequest) -> list[Any]:
        return [said("", call("delegate"))] if request.messages[-1].role == "user" else [said("done")]

    guest, model = Worker(delegate=delegate), Answers(answer)
    bring(monkeypatch, tmp_path, guest)
    async with opened(tmp_path, answers=model) as app:
        guest.takes_model(app, model)
        for _ in range(2):  # those that have ended do not count
            model.requests.clear()
            result = await app.submit("go")
            assert result is not None
            assert result.text == "done"
            assert len(model.requests) == 2 * (1 + 1)
    assert len(errors) == 2
    assert "begins no agent of its own" in errors[0]


def one_by_one(monkeypatch: Monkey) -> None:
    """Every guest's protocol has one call after the other."""
    adapter = GuestContext.adapter
    monkeypatch.setattr(GuestContext, "adapter", lambda self, manifest: _one_by_one(adapter, self, manifest))


def _one_by_one(adapter: Callable[[GuestContext, GuestManifest], Any], context: GuestContext, manifest: GuestManifest) -> Any:
    return adapter(context, manifest)._replace(one_by_one=True)


@pytest.mark.req("app.services.bounded")
@pytest.mark.parametrize("way", ["itself", "an agent"])
async def test_a_call_that_would_wait_for_itself_is_refused(monkeypatch: Monkey, tmp_path: Path, way: str) -> None:
    async def outer(_call: ToolCall) -> ToolResult:
        if way == "itself":
            return ToolResult.of(str(await guest.ask("tools", "call", name="inner")))
        await guest.ask("chat", "run", task="go on", tools="all")
        return ToolResult.of(str(model.requests[-1].messages[-1].content))

    guest = Worker(outer=outer, inner=ok)
    model = Answers([said("", call("inner"))], [said("done")])
    bring(monkeypatch, tmp_path, guest)
    one_by_one(monkeypatch)
    async with opened(tmp_path, answers=model) as app, asyncio.timeout(PROMPTLY):
        guest.takes_model(app, model)
        assert "inner would wait for itself" in (await app.call_tool(ToolCall("outer"))).text
        assert (await guest.ask("tools", "call", name="inner"))["is_error"] is False  # nothing of it runs now


@pytest.mark.req("app.services.bounded")
async def test_two_calls_of_the_model_to_such_a_guest_still_wait_for_each_other(monkeypatch: Monkey, tmp_path: Path) -> None:
    runs: list[int] = []

    async def work(_call: ToolCall) -> ToolResult:
        runs.append(1)
        most.append(len(runs))
        await asyncio.sleep(0)
        runs.pop()
        return ToolResult.of("ok")

    most: list[int] = []
    guest, person = Worker(work=work), Person()
    bring(monkeypatch, tmp_path, guest)
    one_by_one(monkeypatch)
    model = Answers([said("", call("work", "1"), call("work", "2"))], [said("done")])
    async with opened(tmp_path, answers=model, surface=person) as app:
        await app.submit("go")
    assert [event.result.text for event in person.events if isinstance(event, ToolEnded)] == ["ok", "ok"]
    assert most == [1, 1]


@pytest.mark.req("app.services.bounded")
async def test_a_tool_that_waits_for_the_end_of_its_own_turn_is_refused(monkeypatch: Monkey, tmp_path: Path) -> None:
    async def wait(_call: ToolCall) -> ToolResult:
        with pytest.raises(TurnInFlight):
            await guest.ask("control", "wait_idle")
        return ToolResult.of("not waited")

    guest = Worker(wait=wait)
    bring(monkeypatch, tmp_path, guest)
    limits = {"interrupt": 0.1}
    model = Answers([said("", call("wait"))], [said("done")])
    async with opened(tmp_path, answers=model, limits=limits) as app, asyncio.timeout(PROMPTLY):
        guest.app = app
        await app.submit("go")
        assert texts(conversation(app.session))[2] == "tool: not waited"
        await guest.ask("control", "wait_idle")


# -- arguments that are shared


@pytest.mark.req("app.pipeline.rewrite", "app.pipeline.once")
async def test_two_calls_that_a_guest_rewrites_into_one_object_are_two_calls(monkeypatch: Monkey, tmp_path: Path) -> None:
    safe, both = {"safe": True}, asyncio.Barrier(2)

    async def work(call: ToolCall) -> ToolResult:
        await both.wait()
        return ToolResult.of(f"ran {call.arguments}")

    guest, person = Worker(gate=True, work=work), Person()
    guest.judge = lambda _stage, _call: Rewrite(safe)
    bring(monkeypatch, tmp_path, guest)
    model = Answers([said("", call("work", "1"), call("work", "2"))], [said("done")])
    async with opened(tmp_path, answers=model, surface=person) as app:
        await app.submit("go")
    assert [event.result.text for event in person.events if isinstance(event, ToolEnded)] == ["ran {'safe': True}"] * 2

"""Calls that lead to calls: a guest's tool that runs a tool or an agent while the model waits; each of them ends."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from serai.agents.resident import conversation as resident_conversation
from serai.app.app import App
from serai.errors import Refused, SeraiError, TurnInFlight
from serai.host.guest_context import GuestContext
from serai.host.guest_manifest import GuestManifest
from serai.model.actions import Action, Display
from serai.model.approvals import Allow
from serai.model.contributions import Contributions, Interceptor, Rewrite
from serai.model.events import ToolEnded
from serai.model.provider import ModelRequest
from serai.model.tools import ToolCall, ToolResult, ToolSpec
from serai.store.messages import to_model_message
from tests.support.agents.scripted_models import MODEL, Answers, call, conversation, reply, texts
from tests.support.app.apps import Helper, Person, bring, open_app
from tests.support.host.fake_guests import Fake

Monkey = pytest.MonkeyPatch
Work = Callable[[ToolCall], Awaitable[ToolResult]]
PROMPTLY = 10.0  # what would wait for itself waits an hour


class Worker(Fake):
    """A guest whose tools do what the test says; it also calls the host unasked."""

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


async def succeed(_call: ToolCall) -> ToolResult:
    return ToolResult.of("ok")


def reload(app: App) -> list[str]:
    """The conversation as it goes on another time."""
    assert app.runtime.current is not None
    return texts(resident_conversation.repair_messages(map(to_model_message, app.runtime.current.session.read_messages())))


# -- what is kept is what the model said


@pytest.mark.req("app.services.decided", "app.swap.apart")
async def test_what_a_guest_has_run_between_two_turns_is_no_call_of_the_model(monkeypatch: Monkey, tmp_path: Path) -> None:
    guest, person = Worker(work=succeed), Person(Allow())
    bring(monkeypatch, tmp_path, guest)
    async with open_app(tmp_path, answers=Answers([reply("answer")]), surface=person, mode="manual") as app:
        guest.app = app
        await app.submit("first")
        assert (await guest.ask("tools", "call", name="work", call_id="g1"))["is_error"] is False
        await app.submit("second")
        assert person.calls == 1
        id, remembered = app.session.id, texts(conversation(app.session))
        assert reload(app) == remembered == ["user: first", "assistant: answer", "user: second", "assistant: answer"]
    async with open_app(tmp_path, answers=Answers([reply("answer")]), session=id) as app:
        assert texts(conversation(app.session)) == remembered


@pytest.mark.req("app.services.decided", "app.swap.apart")
async def test_what_a_guest_has_run_in_a_turn_is_no_call_of_the_model(monkeypatch: Monkey, tmp_path: Path) -> None:
    async def outer(_call: ToolCall) -> ToolResult:
        answer = await guest.ask("tools", "call", name="inner", call_id="g1")
        return ToolResult.of(answer["content"][0]["text"])

    guest, person = Worker(outer=outer, inner=succeed), Person(Allow(), Allow())
    bring(monkeypatch, tmp_path, guest)
    model = Answers([reply("", call("outer"))], [reply("done")])
    async with open_app(tmp_path, answers=model, surface=person, mode="manual") as app:
        guest.app = app
        await app.submit("go")
        assert person.calls == 2
        assert reload(app) == texts(conversation(app.session)) == ["user: go", "assistant: outer()", "tool: ok", "assistant: done"]


@pytest.mark.req("app.services.decided", "app.swap.apart")
async def test_what_a_guests_own_agent_has_run_is_no_call_of_the_model(monkeypatch: Monkey, tmp_path: Path) -> None:
    guest, person = Worker(work=succeed), Person(Allow())
    bring(monkeypatch, tmp_path, guest)
    model = Answers([reply("answer")], [reply("", call("work", "other"))], [reply("done")])
    async with open_app(tmp_path, answers=model, surface=person, mode="manual") as app:
        guest.takes_model(app, model)
        await app.submit("first")
        assert (await guest.ask("chat", "run", task="work", tools="all"))["text"] == "done"
        assert person.calls == 1
        assert reload(app) == texts(conversation(app.session)) == ["user: first", "assistant: answer"]


@pytest.mark.req("app.services.decided", "app.swap.apart")
@pytest.mark.parametrize("id", ["other", "c1"], ids=["its own id", "the id of another call"])
async def test_what_is_run_on_the_side_is_no_call_of_the_model(monkeypatch: Monkey, tmp_path: Path, id: str) -> None:
    person = Person(Allow(), Allow())
    guest = Worker(work=succeed)
    guest.contributions = Contributions(tools=(ToolSpec("work", background=True),))
    bring(monkeypatch, tmp_path, guest)
    model = Answers([reply("", call("work"))], [reply("answer")], [reply("", call("work", id))], [reply("found")])
    async with open_app(tmp_path, answers=model, surface=person, mode="manual") as app:
        await app.submit("first")
        key = app.resident.backgrounds.start("look")
        assert "found" in await app.resident.backgrounds.result(key)
        assert person.calls == 2
        assert (
            reload(app) == texts(conversation(app.session)) == ["user: first", "assistant: work()", "tool: ok", "assistant: answer"]
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
        return [reply("", call("delegate"))] if request.messages[-1].role == "user" else [reply("done")]

    guest, model = Worker(delegate=delegate), Answers(answer)
    bring(monkeypatch, tmp_path, guest)
    async with open_app(tmp_path, answers=model) as app:
        guest.takes_model(app, model)
        for _ in range(2):  # those that have ended do not count
            model.requests.clear()
            result = await app.submit("go")
            assert result is not None
            assert result.text == "done"
            assert len(model.requests) == 2 * (1 + 1)
    assert len(errors) == 2
    assert "begins no agent of its own" in errors[0]


def run_one_by_one(monkeypatch: Monkey) -> None:
    """Every guest's protocol has one call after the other."""
    adapter = GuestContext.get_adapter
    monkeypatch.setattr(GuestContext, "get_adapter", lambda self, manifest: _one_by_one(adapter, self, manifest))


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

    guest = Worker(outer=outer, inner=succeed)
    model = Answers([reply("", call("inner"))], [reply("done")])
    bring(monkeypatch, tmp_path, guest)
    run_one_by_one(monkeypatch)
    async with open_app(tmp_path, answers=model) as app, asyncio.timeout(PROMPTLY):
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
    run_one_by_one(monkeypatch)
    model = Answers([reply("", call("work", "1"), call("work", "2"))], [reply("done")])
    async with open_app(tmp_path, answers=model, surface=person) as app:
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
    model = Answers([reply("", call("wait"))], [reply("done")])
    async with open_app(tmp_path, answers=model, limits=limits) as app, asyncio.timeout(PROMPTLY):
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
    model = Answers([reply("", call("work", "1"), call("work", "2"))], [reply("done")])
    async with open_app(tmp_path, answers=model, surface=person) as app:
        await app.submit("go")
    assert [event.result.text for event in person.events if isinstance(event, ToolEnded)] == ["ran {'safe': True}"] * 2


LEAVES = """\
import asyncio, os, select, sys
from pathlib import Path
from tests.support.app.apps import create_app
from tests.support.host.zot_guests import make, pid_of

place = Path(sys.argv[1])

async def leave():
    app = create_app(place, make(place, "remember()", name="guest"))
    await app.open()
    closing = asyncio.create_task(app.close())
    await asyncio.sleep(0)
    closing.cancel()
    return pid_of(app.host, "guest")

pid = asyncio.run(leave())
try:  # a killed process needs a moment; one that was not killed is there for as long as we are
    ended = select.select([os.pidfd_open(pid)], [], [], 15)[0]
    print("gone" if ended else "there", flush=True)
except ProcessLookupError:
    print("gone", flush=True)
os._exit(0)
"""


@pytest.mark.req("app.close.nothing-left")
def test_an_app_whose_loop_ends_while_it_closes_leaves_no_guest(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"}
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LEAVES, str(tmp_path)],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout == "gone\n"


class Waits(Helper):
    """Its command waits until nothing runs."""

    app: App | None = None

    async def run_command(self, name: str, args: str) -> Action:
        assert self.app is not None
        await self.app.runtime.services.ask("fake:helper", "control", "wait_idle", {})
        return Display("waited")


@pytest.mark.loops
@pytest.mark.req("app.services.bounded")
async def test_a_queued_command_that_waits_until_nothing_runs_does_not_wait_for_itself(monkeypatch: Monkey, tmp_path: Path) -> None:
    guest, person = Waits(commands={"go": Display}), Person()
    bring(monkeypatch, tmp_path, guest)
    async with open_app(tmp_path, surface=person) as app, asyncio.timeout(PROMPTLY):
        guest.app = app
        app.queue("/go")
        await app.idle()


@pytest.mark.loops
@pytest.mark.req("app.services.bounded")
async def test_a_model_that_never_stops_to_delegate_comes_to_an_end(monkeypatch: Monkey, tmp_path: Path) -> None:
    async def delegate(_call: ToolCall) -> ToolResult:
        try:
            return ToolResult.of(str(await guest.ask("chat", "run", task="go on", tools="all")))
        except SeraiError as error:
            return ToolResult.error(str(error))

    guest, model = Worker(delegate=delegate), Answers([reply("", call("delegate"))])
    bring(monkeypatch, tmp_path, guest)
    async with open_app(tmp_path, answers=model) as app:
        guest.takes_model(app, model)
        try:
            async with asyncio.timeout(PROMPTLY):
                with pytest.raises(SeraiError):
                    await app.submit("go")
        except TimeoutError:
            pytest.fail(f"no end after {len(model.requests)} calls of the model")

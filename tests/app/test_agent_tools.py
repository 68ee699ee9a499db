"""What an agent is offered: the tools of guests, each call decided like any other, and nothing else of the app."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serai.agents.driven.tool_endpoint import ToolEndpoint
from serai.app.agent_tools import GuestTools
from serai.app.app import App
from serai.dialects.mcp.events import Done, Failed, Listed
from serai.model.approvals import Allow, Approval, Deny
from serai.model.contributions import Contributions, Interceptor, InterceptResult, Refuse, Rewrite
from serai.model.tools import ToolCall, ToolSpec
from tests.support.app.apps import Person, bring, open_app
from tests.support.host.fake_guests import Fake
from tests.support.mcp_endpoints import Talker

Monkey = pytest.MonkeyPatch
WEATHER = Contributions(tools=(ToolSpec("weather"), ToolSpec("read"), ToolSpec("far.off/weather")))


def guests(app: App) -> GuestTools:
    return GuestTools(app.runtime.tools, lambda: app.runtime.host)


def guard(say: Any) -> Fake:
    """A guest that judges every call."""

    def judge(_stage: str, subject: Any) -> InterceptResult:
        verdict: InterceptResult = say(subject)
        return verdict

    return Fake("guard", Contributions(interceptors=(Interceptor("guard", frozenset({"tool_call"})),)), judge=judge)


async def call_tool(endpoint: ToolEndpoint, name: str, arguments: dict[str, Any] | None = None) -> Done | Failed:
    talker = await Talker.greeted(endpoint)
    heard = await talker.ask(*talker.client.call_tool(name, arguments))
    talker.close()
    assert isinstance(heard, Done | Failed)
    return heard


@pytest.mark.req("app.mcp.guests")
async def test_the_built_in_tools_are_not_offered_and_cannot_be_called(monkeypatch: Monkey, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Fake("clouds", WEATHER))
    async with open_app(tmp_path) as app:
        assert {"bash", "read", "weather"} <= {tool.name for tool in app.runtime.tools.list()}
        box = guests(app)
        assert {tool.name for tool in box.list()} == {"weather", "far.off/weather"}  # the built-in `read` has the name
        for name in ("bash", "read", "write", "none"):
            result = await box.call(ToolCall(name, {"command": "true", "path": "x"}))
            assert result.is_error
            assert result.code == "TOOL_UNAVAILABLE"
        async with ToolEndpoint(box, agent="claude") as endpoint:
            for name in ("bash", "read", "write", "edit", "host/chat"):
                assert isinstance(await call_tool(endpoint, name, {"command": "touch x"}), Failed)


@pytest.mark.req("app.mcp.guests")
async def test_a_guest_that_may_replace_a_built_in_has_its_own_offered(monkeypatch: Monkey, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Fake("clouds", WEATHER, replace=("read",)))
    async with open_app(tmp_path) as app:
        assert {tool.name for tool in guests(app).list()} == {"weather", "read", "far.off/weather"}
        assert "clouds ran read" in (await guests(app).call(ToolCall("read"))).text


@pytest.mark.req("app.mcp.guests", "app.mcp.names")
async def test_a_guests_tool_runs_under_its_safe_name(monkeypatch: Monkey, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Fake("clouds", WEATHER))
    async with open_app(tmp_path) as app, ToolEndpoint(guests(app), agent="claude") as endpoint:
        talker = await Talker.greeted(endpoint)
        listed = await talker.ask(*talker.client.list_tools())
        assert isinstance(listed, Listed)
        [safe] = [tool.name for tool in listed.tools if tool.name != "weather"]
        assert safe.startswith("far_off_weather_")
        assert await talker.text(safe, {"city": "Bern"}) == "clouds ran far.off/weather with {'city': 'Bern'}"
        talker.close()


@pytest.mark.req("app.mcp.decided")
async def test_a_guard_blocks_and_rewrites_what_comes_through_the_endpoint(monkeypatch: Monkey, tmp_path: Path) -> None:
    def say(call: ToolCall) -> InterceptResult:
        if call.arguments.get("city") == "Basel":
            return Refuse("not Basel")
        return Rewrite({"city": "Bern"})

    watch = guard(say)
    bring(monkeypatch, tmp_path, Fake("clouds", WEATHER), watch)
    async with open_app(tmp_path) as app, ToolEndpoint(guests(app), agent="claude") as endpoint:
        done = await call_tool(endpoint, "weather", {"city": "Basel"})
        assert isinstance(done, Done)
        assert "not Basel" in done.result.text
        assert "clouds ran" not in done.result.text
        done = await call_tool(endpoint, "weather", {"city": "Chur"})
        assert isinstance(done, Done)
        assert done.result.text == "clouds ran weather with {'city': 'Bern'}"
        assert len(watch.asked) == 2  # each call once


@pytest.mark.req("app.mcp.decided")
@pytest.mark.parametrize("answer", [Allow(), Deny("not today")])
async def test_a_person_is_asked_once_and_told_who_asks(monkeypatch: Monkey, tmp_path: Path, answer: Allow | Deny) -> None:
    bring(monkeypatch, tmp_path, Fake("clouds", WEATHER))
    person = Person(answer)
    async with open_app(tmp_path, surface=person, mode="manual") as app, ToolEndpoint(guests(app), agent="claude") as endpoint:
        done = await call_tool(endpoint, "weather", {"city": "Bern"})
        assert isinstance(done, Done)
        assert done.result.is_error is isinstance(answer, Deny)
        assert ("clouds ran" if isinstance(answer, Allow) else "not today") in done.result.text
        assert person.calls == 1
        assert [request.call.asker for request in person.asked if isinstance(request, Approval)] == ["claude"]


@pytest.mark.req("app.mcp.decided")
async def test_with_nobody_to_ask_it_is_a_no(monkeypatch: Monkey, tmp_path: Path) -> None:
    bring(monkeypatch, tmp_path, Fake("clouds", WEATHER))
    async with open_app(tmp_path, mode="manual") as app, ToolEndpoint(guests(app), agent="claude") as endpoint:
        done = await call_tool(endpoint, "weather")
        assert isinstance(done, Done)
        assert done.result.is_error
        assert "clouds ran" not in done.result.text

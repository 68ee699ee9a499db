"""Tools for guests: which there are, and calls on the same path as everybody's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from serai.agents.resident.run_context import ToolSet
from serai.app.services.tool_services import OPEN_CALLS, ToolService
from serai.errors import NotCapable, NoTool, SeraiError
from serai.model.contributions import Contributions, Interceptor, InterceptPoint, InterceptResult, Pass, Rewrite
from serai.model.tools import ImageBlock, TextBlock, ToolCall, ToolResult, ToolSpec
from tests.support.agents.scripted_models import Box, echo
from tests.support.app.service_requests import GUEST, ServiceCaller
from tests.support.host.fake_guests import Fake, open_fake_host

ZAP = ToolSpec("zap", "Zaps", {"type": "object", "properties": {"x": {"type": "integer"}}}, deferred=True)
READ = ToolSpec("look", "Looks", background=True)
BOX = Box(zap=(ZAP, echo), look=(READ, echo))


def caller(box: Box = BOX, agent: ToolSet | None = None, **options: Any) -> ServiceCaller:
    view = agent or ToolSet(box)
    return ServiceCaller(ToolService(box, box.call, lambda: view, **options))


async def test_tools_are_listed_by_name_with_all_there_is_to_know_of_them() -> None:
    assert await caller()("list") == {
        "tools": [
            {"name": "look", "description": "Looks", "schema": {"type": "object"}},
            {"name": "zap", "description": "Zaps", "schema": ZAP.schema, "deferred": True},
        ]
    }
    assert [tool["name"] for tool in (await caller()("list", filter="background_safe"))["tools"]] == ["look"]
    assert [tool["name"] for tool in (await caller()("list", filter="nobody knows"))["tools"]] == ["look", "zap"]
    assert (await caller()("names"))["tools"][0] == {"name": "look", "description": "Looks"}


async def test_a_call_is_the_guests_own_and_its_result_is_data() -> None:
    box = Box(echo=echo)
    result = await caller(box)("call", name="echo", arguments={"x": 1}, call_id="c9")
    assert result == {"content": [{"type": "text", "text": "echo: {'x': 1}"}], "is_error": False}
    assert box.calls == [ToolCall("echo", {"x": 1}, "c9", asker=GUEST)]
    await caller(box)("call", name="echo", arguments=None)
    assert box.calls[-1].arguments == {}


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (ToolResult.error("no", code="DENIED", hint="ask"), {"is_error": True, "code": "DENIED", "hint": "ask"}),
        (ToolResult.error("[error:NOT_FOUND] no such file"), {"is_error": True, "code": "NOT_FOUND"}),
        (ToolResult.error("[error:A] b", code="C"), {"is_error": True, "code": "C"}),
        (ToolResult.of("[error:NOT_FOUND] is what it says"), {"is_error": False}),
        (ToolResult((TextBlock("x"),), details={"files": 1}), {"is_error": False}),
    ],
)
async def test_what_a_tool_does_wrong_is_a_result(result: ToolResult, told: dict[str, Any]) -> None:
    async def work(call: ToolCall, tell: object) -> ToolResult:
        return result

    data = await caller(Box(work=work))("call", name="work")
    del data["content"]
    assert data == told


async def test_an_image_comes_in_base64() -> None:
    async def draw(call: ToolCall, tell: object) -> ToolResult:
        return ToolResult((ImageBlock(b"\x00\x01", "image/png"),))

    assert (await caller(Box(draw=draw))("call", name="draw"))["content"] == [
        {"type": "image", "data": "AAE=", "mime": "image/png"}
    ]


async def test_there_is_no_such_tool() -> None:
    with pytest.raises(NoTool, match="unknown tool: nope"):
        await caller()("call", name="nope")


async def test_a_deferred_tool_is_told_in_full_once_it_is_activated() -> None:
    agent = ToolSet(BOX)
    assert [tool.name for tool in agent.list_deferred(compact=True)] == ["zap"]
    assert await caller(agent=agent)("activate", name="zap") == {}
    assert agent.list_deferred(compact=True) == []
    for name in ("look", "nope"):
        with pytest.raises(NoTool, match=f"tool not found or not deferred: {name}"):
            await caller(agent=agent)("activate", name=name)


@pytest.mark.parametrize("nothing", [None, []])
async def test_a_filter_is_about_the_agent_alone_and_ends(nothing: list[str] | None) -> None:
    agent = ToolSet(BOX)
    ask = caller(agent=agent)
    await ask("filter", names=["look", "elsewhere"])
    assert [tool.name for tool in agent.list_offered()] == ["look"]
    assert len((await ask("list"))["tools"]) == 2
    assert not (await ask("call", name="zap"))["is_error"]
    await ask("filter", names=nothing)
    assert [tool.name for tool in agent.list_offered()] == ["look", "zap"]


async def test_no_filter_gives_the_agent_more_than_the_person_does() -> None:
    agent = ToolSet(BOX, only=["look"])
    ask = caller(agent=agent, allowed=lambda: ("look",))
    await ask("filter", names=["zap", "look"])
    assert [tool.name for tool in agent.list_offered()] == ["look"]
    await ask("filter", names=None)
    assert [tool.name for tool in agent.list_offered()] == ["look"]


async def test_who_has_an_agent_of_another_kind_can_call_and_not_filter() -> None:
    def driven() -> ToolSet:
        raise NotCapable("only the resident's")

    ask = ServiceCaller(ToolService(BOX, BOX.call, driven))
    assert not (await ask("call", name="look"))["is_error"]
    with pytest.raises(NotCapable):
        await ask("filter", names=[])


async def test_a_guests_call_meets_the_interceptors_and_reaches_another_guest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def judge(stage: InterceptPoint, subject: Any) -> InterceptResult:
        assert subject.asker == GUEST
        return Rewrite({"city": "Bern"})

    owner = Fake("owner", Contributions(tools=(ToolSpec("forecast"),)))
    guard = Fake("guard", Contributions(interceptors=(Interceptor("g", frozenset({"tool_call"})),)), judge=judge)
    async with open_fake_host(monkeypatch, tmp_path, owner, guard) as host:
        ask = ServiceCaller(ToolService(host, host.call_tool, lambda: ToolSet(host)))
        result = await ask("call", name="forecast", arguments={"city": "Basel"})
    assert result["content"] == [{"type": "text", "text": "owner ran forecast with {'city': 'Bern'}"}]
    assert [stage for stage, _ in guard.asked] == ["tool_call"]


class Circular(Fake):
    """A guard that calls its own tool whenever it is asked, each time as a request of its own, as over a wire."""

    depth = 0
    ask: ServiceCaller
    error: SeraiError | None = None

    async def intercept(self, interceptor: Interceptor, stage: InterceptPoint, subject: Any, /) -> InterceptResult:
        self.depth += 1
        try:
            await asyncio.ensure_future(self.ask("call", name="own"))
        except SeraiError as error:
            self.error = error
        return Pass()


@pytest.mark.req("app.services.bounded")
async def test_a_guard_that_calls_its_own_tool_for_ever_is_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    offers = Contributions(tools=(ToolSpec("own"),), interceptors=(Interceptor("g", frozenset({"tool_call"})),))
    guard = Circular("guard", offers, guard=True)
    async with open_fake_host(monkeypatch, tmp_path, guard) as host:
        guard.ask = ServiceCaller(ToolService(host, host.call_tool, lambda: ToolSet(host)), guest="fake:guard")
        assert not (await host.call_tool("own")).is_error
        assert guard.depth == OPEN_CALLS + 1
        assert "64 calls of tools are under way for it: does a call of own lead to itself?" in str(guard.error)
        assert not (await guard.ask("call", name="own"))["is_error"]  # and it may ask again

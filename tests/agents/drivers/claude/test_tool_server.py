"""Tools of ours that it may call: decided where they run, run once, told of, and ended when nobody wants them any more."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from serai.agents.driver import NeedsApproval
from serai.model.approvals import Allow, Approval, Deny
from serai.model.events import ToolCalled, ToolEnded, ToolProgress
from serai.model.tools import ProgressCallback, ToolCall, ToolResult, ToolSpec
from serai.testing.claude.script import Script
from tests.support.claude.scripted_sessions import QUICK, driver_of, dump_json, get_payload, play, program, scripted_session

Json = dict[str, Any]


class Box:
    """One tool, `weather`, which does what the test says."""

    def __init__(self, *, waits: bool = False, fails: BaseException | None = None) -> None:
        self.calls: list[ToolCall] = []
        self.begun, self.ended, self.go = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._waits = waits
        self._fails = fails
        self.broken = False

    def list(self) -> list[ToolSpec]:
        if self.broken:
            raise RuntimeError("lost its head")
        return [ToolSpec("weather", "How it is outside", {"type": "object", "properties": {"city": {"type": "string"}}})]

    async def call(self, call: ToolCall, *, tell: ProgressCallback | None = None) -> ToolResult:
        self.calls.append(call)
        self.begun.set()
        try:
            if tell is not None:
                tell("I look out of the window")
            if self._waits:
                await self.go.wait()
            if self._fails is not None:
                raise self._fails
        finally:
            self.ended.set()
        return ToolResult.of(f"{call.arguments['city']}: fog")


def rpc(id: int | None, method: str, **params: Any) -> Json:
    return {"jsonrpc": "2.0", **({} if id is None else {"id": id}), "method": method, "params": params}


HELLO = rpc(0, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "claude-code", "version": "2"})
CALL = rpc(2, "tools/call", name="weather", arguments={"city": "Bern"}, _meta={"claudecode/toolUseId": "t1", "progressToken": 2})
TOOL = "mcp__serai__weather"
OURS = {"name": "serai", "source": "sdk"}


def get_response(answers: dict[str, Json], request: str) -> Json:
    response: Json = get_payload(answers, request)["mcp_response"]
    return response


def call_tool(script: Script) -> Script:
    return script.tool("t1", TOOL, city="Bern").mcp("m9", CALL).told("t1", "Bern: fog").result("done")


@pytest.mark.req("agents.driver.serves")
async def test_our_tools_are_offered_and_run_once(tmp_path: Path) -> None:
    script = Script().init().mcp("m1", HELLO).mcp("m2", rpc(None, "notifications/initialized")).mcp("m3", rpc(1, "tools/list"))
    box = Box()
    claude, session = scripted_session(tmp_path, call_tool(script), tools=box)
    async with session:
        seen = await play(session)
    answers = claude.given().answers()
    assert claude.given().frames[0]["request"]["sdkMcpServers"] == ["serai"]
    assert get_response(answers, "m1")["result"]["protocolVersion"] == "2025-11-25"
    assert "result" in get_response(answers, "m2")
    assert [tool["name"] for tool in get_response(answers, "m3")["result"]["tools"]] == ["weather"]
    assert get_response(answers, "m9")["id"] == 2
    assert get_response(answers, "m9")["result"]["content"] == [{"type": "text", "text": "Bern: fog"}]
    [call] = box.calls
    assert (call.name, call.arguments, call.id, call.asker) == ("weather", {"city": "Bern"}, "t1", "claude")
    [progress] = seen.of(ToolProgress)
    assert (progress.text, progress.call.id) == ("I look out of the window", "t1")
    assert [event.call.name for event in (*seen.of(ToolCalled), *seen.of(ToolEnded))] == ["weather", "weather"]


async def test_without_tools_there_is_no_server(tmp_path: Path) -> None:
    claude, session = scripted_session(tmp_path, Script().init().mcp("m1", HELLO).result("done"))
    async with session:
        assert (await play(session)).result.text == "done"
    assert "sdkMcpServers" not in claude.given().frames[0]["request"]
    assert "error" in get_response(claude.given().answers(), "m1")


async def test_a_server_of_another_name_is_none_of_ours(tmp_path: Path) -> None:
    box = Box()
    claude, session = scripted_session(tmp_path, Script().init().mcp("m1", CALL, server="other").result("done"), tools=box)
    async with session:
        await play(session)
    assert "error" in get_response(claude.given().answers(), "m1")
    assert not box.calls


@pytest.mark.req("agents.driver.serves")
@pytest.mark.parametrize("failure", [RuntimeError("no window"), asyncio.CancelledError()])
async def test_a_tool_that_fails_is_an_answer(tmp_path: Path, failure: BaseException) -> None:
    claude, session = scripted_session(tmp_path, call_tool(Script().init()), tools=Box(fails=failure))
    async with session:
        await play(session)
    assert get_response(claude.given().answers(), "m9")["result"]["isError"] is True


@pytest.mark.req("agents.driver.serves")
async def test_a_box_that_fails_is_an_answer_too(tmp_path: Path) -> None:
    """It would wait for one for ever."""
    box = Box()
    claude, session = scripted_session(
        tmp_path, Script().init().mcp("m1", HELLO).mcp("m3", rpc(1, "tools/list")).result("done"), tools=box
    )
    async with session:
        box.broken = True
        assert (await play(session)).result.text == "done"
    assert "lost its head" in dump_json(claude.given().answers()["m3"])


# -- decided once


async def fail_if_judged(call: ToolCall) -> Allow | Deny | NeedsApproval:
    raise AssertionError("a tool of ours is judged where it runs")


@pytest.mark.req("agents.driver.ours")
async def test_a_tool_of_ours_is_let_through_to_where_it_is_decided(tmp_path: Path) -> None:
    """Whether it asks by the hook or by a request, and nobody else is asked."""
    source = f"""
greet()
init()
first = tool("t1", "{TOOL}", hook={{"mcp_server": {OURS!r}}}, city="Bern")
called("t2", "{TOOL}", city="Bern")
about = {{"subtype": "can_use_tool", "tool_name": "{TOOL}", "tool_use_id": "t2", "input": {{"city": "Bern"}}}}
second = ask("r2", mcp_server={OURS!r}, **about)
told("t2", "fog")
result(json.dumps([first["hook"]["permissionDecision"], second["behavior"]]))
rest()
"""
    async with program(tmp_path, source, judge=fail_if_judged, tools=Box()) as session:
        seen = await play(session, answer=lambda _: Deny("no"))
    assert json.loads(seen.result.text) == ["allow", "allow"]
    assert not seen.of(Approval)


@pytest.mark.req("agents.driver.ours")
@pytest.mark.parametrize(
    ("name", "server"),
    [
        (TOOL, None),
        (TOOL, {"name": "serai", "source": "project"}),
        (TOOL, {"name": "serai"}),
        ("mcp__serai__evil", OURS),
        ("mcp__other__weather", OURS),
        ("weather", OURS),
    ],
)
async def test_what_only_looks_like_ours_is_judged(tmp_path: Path, name: str, server: Json | None) -> None:
    judged: list[str] = []

    async def judge(call: ToolCall) -> Allow | Deny | NeedsApproval:
        judged.append(call.id)
        return Deny("not ours")

    source = f"""
greet()
init()
result(tool("t1", {name!r}, hook={{"mcp_server": {server!r}}}, city="Bern")["hook"]["permissionDecision"])
rest()
"""
    async with program(tmp_path, source, judge=judge, tools=Box()) as session:
        assert (await play(session)).result.text == "deny"
    assert judged == ["t1"]


@pytest.mark.req("agents.driver.ours")
async def test_without_a_judge_a_tool_of_ours_is_asked_about_like_any_other(tmp_path: Path) -> None:
    script = Script().init().tool("t1", TOOL, city="Bern").asks("r1", "t1", TOOL, city="Bern").told("t1", "no").result("done")
    claude, session = scripted_session(tmp_path, script, tools=Box())
    async with session:
        seen = await play(session, answer=lambda _: Deny("no"))
    assert [approval.call.name for approval in seen.of(Approval)] == ["weather"]
    assert get_payload(claude.given().answers(), "r1")["behavior"] == "deny"


# -- ended


@pytest.mark.req("agents.driver.serves")
async def test_a_call_that_is_withdrawn_ends_and_is_not_answered(tmp_path: Path) -> None:
    script = Script().init().tool("t1", TOOL, city="Bern").mcp("m9", CALL, answered=False).request("mcp_status").withdraws("m9")
    box = Box(waits=True)
    claude, session = scripted_session(tmp_path, script.told("t1", "no").result("done"), tools=box)
    async with session:
        turn = session.turn("go")
        turn.start()
        await box.begun.wait()
        await driver_of(session).send_control("mcp_status")
        await box.ended.wait()
        assert (await turn).text == "done"
    assert not box.go.is_set()
    assert "m9" not in claude.given().answers()


@pytest.mark.req("agents.driver.serves")
async def test_a_call_that_its_client_cancels_ends(tmp_path: Path) -> None:
    script = Script().init().tool("t1", TOOL, city="Bern").mcp("m9", CALL, answered=False).request("mcp_status")
    script.mcp("m10", rpc(None, "notifications/cancelled", requestId=2)).answer("m9")
    box = Box(waits=True)
    claude, session = scripted_session(tmp_path, script.told("t1", "no").result("done"), tools=box)
    async with session:
        turn = session.turn("go")
        turn.start()
        await box.begun.wait()
        await driver_of(session).send_control("mcp_status")
        assert (await turn).text == "done"
        assert box.ended.is_set()
    assert not box.go.is_set()
    assert "fog" not in dump_json(get_response(claude.given().answers(), "m9"))


@pytest.mark.req("agents.driver.serves")
async def test_a_call_ends_with_its_session(tmp_path: Path) -> None:
    box = Box(waits=True)
    _, session = scripted_session(tmp_path, call_tool(Script().init()), tools=box, limits=QUICK)
    async with session:
        turn = session.turn("go")
        turn.start()
        await box.begun.wait()
    assert box.ended.is_set()
    assert not box.go.is_set()


@pytest.mark.req("agents.driver.serves")
async def test_a_call_ends_with_its_process(tmp_path: Path) -> None:
    source = f"""
greet()
init()
about = {{"subtype": "mcp_message", "server_name": "serai", "message": {CALL!r}}}
say("control_request", request_id="m1", request=about)
while not os.path.exists("go"):
    time.sleep(0.01)
os._exit(3)
"""
    box = Box(waits=True)
    async with program(tmp_path, source, tools=box) as session:
        turn = session.turn("go")
        turn.start()
        await box.begun.wait()
        (tmp_path / "go").touch()
        async with asyncio.timeout(30):
            await box.ended.wait()

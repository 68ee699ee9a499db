"""Interceptors: in which order they are asked, what their answers do, and what no answer means."""

from __future__ import annotations

import json
import signal
from os import kill
from pathlib import Path
from typing import Any

import pytest

from serai.errors import PeerTimeout, Refused
from serai.host.adapters.zot import LIMITS as ZOT_LIMITS
from serai.host.guest import GuestState
from serai.model.contributions import Contributions, Interceptor, InterceptPoint, InterceptResult, Pass, Refuse, Rewrite
from serai.model.tools import ToolCall, ToolResult, ToolSpec
from tests.support.host.fake_guests import Fake, open_fake_host
from tests.support.host.zot_guests import Fifo, log_of, make, open_host, pid_of, read_frames, wait_for_state

ECHO = "remember(tools=('echo',))"
TOOL_CALL = "subscribe(intercept=['tool_call'])"

# Adds its own name to the list in the arguments, or blocks when it is told to.
LINK = """
hello(subscribe(intercept=["tool_call"]), tool("heard by " + {name!r}))
heard = []
for frame in frames():
    if frame["type"] == "event_intercept" and frame["tool_name"] == "echo":
        heard.append(frame["tool_args"])
        if frame["tool_args"].get("block") == {name!r}:
            judge(frame["id"], block=True, reason="stopped by " + {name!r}, modified_args={{"ignored": True}})
        else:
            judge(frame["id"], modified_args={{**frame["tool_args"], "by": frame["tool_args"]["by"] + [{name!r}]}})
    elif frame["type"] == "event_intercept":
        judge(frame["id"])
    elif frame["type"] == "tool_call":
        answer(frame["id"], json.dumps(heard))
"""


def write_links(tmp_path: Path, *names: str) -> list[Path]:
    return [make(tmp_path, LINK.format(name=name), name=name) for name in names]


@pytest.mark.req("zot.ours.4.4-load-order", "zot.rule.4.4-chain", "zot.rule.4.4-args-for-execution")
async def test_interceptors_are_asked_in_load_order_and_each_sees_what_the_one_before_made_of_it(tmp_path: Path) -> None:
    # Neither by name nor by who was ready first: the last one says so long before the others.
    folders = write_links(tmp_path, "zebra", "ant", "moose")
    async with open_host(tmp_path, make(tmp_path, ECHO), *folders) as host:
        call = ToolCall("echo", {"by": []})
        result = await host.call_tool(call)
        assert json.loads(result.text) == {"by": ["zebra", "ant", "moose"]}
        assert call.arguments == {"by": []}  # whoever keeps the transcript keeps the original
        assert json.loads((await host.call_tool("heard by moose")).text) == [{"by": ["zebra", "ant"]}]


@pytest.mark.req("zot.rule.4.4-chain")
async def test_the_first_block_ends_the_chain(tmp_path: Path) -> None:
    async with open_host(tmp_path, make(tmp_path, ECHO), *write_links(tmp_path, "a", "b", "c")) as host:
        result = await host.call_tool("echo", {"by": [], "block": "b"})
        assert (result.text, result.is_error, result.code) == ("stopped by b", True, "BLOCKED")
        assert json.loads((await host.call_tool("heard by a")).text) == [{"by": [], "block": "b"}]
        assert json.loads((await host.call_tool("heard by c")).text) == []


@pytest.mark.req("zot.edge.13", "zot.edge.14")
@pytest.mark.parametrize("modified", ["null", "[1, 2]", '"text"', "7", "true", '{ "b":[2],\n "a" : 1 }'.replace("\n", " ")])
async def test_what_is_no_other_object_is_no_rewrite(tmp_path: Path, modified: str) -> None:
    body = f"""
hello(subscribe(intercept=["tool_call"]), tool("echo"))
for frame in frames():
    if frame["type"] == "event_intercept":
        line = b'{{"type":"event_intercept_response","id":"%s","modified_args":%s}}\\n'
        raw(line % (frame["id"].encode(), {modified.encode()!r}))
    elif frame["type"] == "tool_call":
        answer(frame["id"], json.dumps(frame["args"]))
"""
    async with open_host(tmp_path, make(tmp_path, body)) as host:
        call = ToolCall("echo", {"a": 1, "b": [2]})
        assert await host.intercept("tool_call", call) is None
        assert json.loads((await host.call_tool(call)).text) == {"a": 1, "b": [2]}


# -- no answer ------------------------------------------------------------------------------------------------------------------

SILENT = f"hello({TOOL_CALL})\nfor frame in frames(): pass"
NONSENSE = f"""
hello({TOOL_CALL})
for frame in frames():
    if frame["type"] == "event_intercept":
        send(type="event_intercept_response", id=frame["id"], block="maybe")
"""


@pytest.mark.req("zot.ours.4.4-fails-open")
@pytest.mark.parametrize(("body", "why"), [(SILENT, "no answer to event_intercept"), (NONSENSE, "cannot be read")])
async def test_an_interceptor_without_a_usable_answer_lets_pass(tmp_path: Path, body: str, why: str) -> None:
    assert ZOT_LIMITS["intercept"] == 5
    intercept = 0.1 if body == SILENT else 30.0
    async with open_host(tmp_path, make(tmp_path, ECHO), make(tmp_path, body, name="odd"), limits={"intercept": intercept}) as host:
        assert json.loads((await host.call_tool("echo", {"a": 1})).text) == {"a": 1}
        assert f"intercept tool_call failed: {'no answer' if body == SILENT else 'its answer'}" in log_of(host, "odd")
        assert why in log_of(host, "odd")


@pytest.mark.req("zot.ours.4.4-fails-open")
async def test_an_interceptor_that_dies_while_it_is_asked_lets_pass_at_once(tmp_path: Path) -> None:
    mortal = make(tmp_path, f"hello({TOOL_CALL})\nfor frame in frames():\n    if 'tool_name' in frame: os._exit(3)", name="mortal")
    async with open_host(tmp_path, make(tmp_path, ECHO), mortal, limits={"restart_wait": 60.0, "restart_wait_most": 60.0}) as host:
        assert json.loads((await host.call_tool("echo", {"a": 1})).text) == {"a": 1}
        assert "intercept tool_call failed: ended (exit status 3)" in log_of(host, "mortal")


@pytest.mark.req("zot.ours.5.4-write-deadline", "zot.ours.4.4-fails-open")
@pytest.mark.parametrize("size", [100_000, 3_000_000])
async def test_a_question_that_is_not_read_ends_with_its_deadline(tmp_path: Path, size: int) -> None:
    with Fifo(tmp_path) as latch:
        deaf = make(tmp_path, f"remember({TOOL_CALL}, tools=(), latch={str(latch.path)!r})", name="deaf")
        async with open_host(tmp_path, make(tmp_path, ECHO), deaf, limits={"intercept": 0.2}) as host:
            assert len((await host.call_tool("echo", {"x": "x" * size})).text) > size
            assert "intercept tool_call failed: no answer" in log_of(host, "deaf")
            latch.lift()


# -- priorities and results: for dialects that have them -------------------------------------------------------------------------


def contribute(*stages: InterceptPoint, priority: int = 0, tools: tuple[str, ...] = (), **options: Any) -> Contributions:
    return Contributions(
        tools=tuple(ToolSpec(name) for name in tools),
        interceptors=(Interceptor("it", frozenset(stages), priority, **options),) if stages else (),
    )


@pytest.mark.req("host.call.priority")
async def test_a_higher_priority_is_asked_first_and_then_load_order_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    order: list[str] = []

    def noting(name: str, priority: int) -> Fake:
        def judge(stage: InterceptPoint, subject: Any) -> InterceptResult:
            order.append(name)
            return Pass()

        return Fake(name, contribute("tool_call", priority=priority), judge=judge)

    fakes = [noting("low", -5), noting("middle", 0), noting("high", 10), noting("also middle", 0)]
    async with open_fake_host(monkeypatch, tmp_path, *fakes, Fake("owner", contribute(tools=("echo",)))) as host:
        await host.call_tool("echo")
    assert order == ["high", "middle", "also middle", "low"]


@pytest.mark.req("host.call.after")
async def test_results_are_offered_to_interceptors_after_the_call_and_may_be_rewritten_in_turn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def adding(text: str) -> Any:
        def judge(stage: InterceptPoint, subject: tuple[ToolCall, ToolResult]) -> InterceptResult:
            return Rewrite(ToolResult.of(subject[1].text + text))

        return judge

    first = Fake("first", contribute("tool_result"), judge=adding(", seen"))
    quiet = Fake("quiet", contribute("tool_result"))
    last = Fake("last", contribute("tool_result"), judge=adding(" twice"))
    async with open_fake_host(monkeypatch, tmp_path, first, quiet, last, Fake("owner", contribute(tools=("echo",)))) as host:
        result = await host.call_tool("echo", {"a": 1})
    assert result.text == "owner ran echo with {'a': 1}, seen twice"
    assert quiet.asked == [("tool_result", (ToolCall("echo", {"a": 1}), ToolResult.of("owner ran echo with {'a': 1}, seen")))]


async def test_a_block_that_is_no_error_is_none_to_the_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocker = Fake("blocker", contribute("tool_call"), judge=lambda stage, subject: Refuse("not now", is_error=False))
    async with open_fake_host(monkeypatch, tmp_path, blocker, Fake("owner", contribute(tools=("echo",)))) as host:
        assert await host.call_tool("echo") == ToolResult.of("not now")


async def test_an_interceptor_that_fails_closed_refuses_while_its_guest_is_down_or_late(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def late(stage: InterceptPoint, subject: Any) -> InterceptResult:
        raise PeerTimeout("no answer", who="fake:strict")

    strict = Fake("strict", contribute("tool_call", on_failure="closed"), judge=late)
    async with open_fake_host(monkeypatch, tmp_path, strict, Fake("owner", contribute(tools=("echo",)))) as host:
        result = await host.call_tool("echo")
        assert (result.text, result.code) == (
            "tool_call refused: no answer from the interceptor (fake:strict: no answer)",
            "BLOCKED",
        )
        strict.die()
        result = await host.call_tool("echo")
        assert result.text == "tool_call refused: no answer from the interceptor (fake:strict is backing off: ended)"


@pytest.mark.req("zot.rule.5.2-stays-in-place")
async def test_while_a_guest_is_down_its_interceptor_lets_pass_and_is_asked_again_when_it_is_back(tmp_path: Path) -> None:
    blocker = make(tmp_path, f"remember({TOOL_CALL}, tools=(), tool_call={{'block': True, 'reason': 'no'}})", name="blocker")
    async with open_host(tmp_path, make(tmp_path, ECHO), blocker, limits={"restart_wait": 60.0, "restart_wait_most": 60.0}) as host:
        assert (await host.call_tool("echo")).text == "no"
        kill(pid_of(host, "blocker"), signal.SIGKILL)
        await wait_for_state(host, "blocker", GuestState.BACKING_OFF)
        assert (await host.call_tool("echo")).text == "{}"
        await host.reload("blocker")
        assert (await host.call_tool("echo")).text == "no"


async def test_the_question_has_the_members_of_its_event(tmp_path: Path) -> None:
    async with open_host(tmp_path, make(tmp_path, f"remember({TOOL_CALL})")) as host:
        await host.call_tool(ToolCall("heard", {"a": 1}, id="call_7"))
        frames = await read_frames(host)
    (asked,) = [frame for frame in frames if frame["type"] == "event_intercept" and frame.get("tool_id")]
    del asked["id"]
    assert asked == {
        "type": "event_intercept",
        "event": "tool_call",
        "tool_id": "call_7",
        "tool_name": "heard",
        "tool_args": {"a": 1},
    }


# -- results that there are none of, and interceptors that say nothing of them (spec piglet 5.3) -----------------------------------


class Hard(Fake):
    """Its tool fails hard, or answers with an error that looks like one."""

    async def call_tool(self, call: ToolCall) -> ToolResult:
        if call.name == "soft":
            return ToolResult.error("it says that it is not there", code="TOOL_UNAVAILABLE")
        raise Refused("it broke", who="fake:hard")


@pytest.mark.req("piglet.rule.interceptor-after")
async def test_no_interceptor_sees_the_result_of_a_call_that_was_blocked_or_failed_hard(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def judge(stage: InterceptPoint, subject: Any) -> InterceptResult:
        return Refuse("not this") if stage == "tool_call" and subject.arguments else Pass()

    watcher = Fake("watcher", contribute("tool_call", "tool_result"), judge=judge)
    hard = Hard("hard", contribute(tools=("break", "soft")))
    async with open_fake_host(monkeypatch, tmp_path, watcher, hard) as host:

        async def after(tool: str, **arguments: Any) -> list[str]:
            watcher.asked.clear()
            result = await host.call_tool(tool, arguments)
            return [result.code, *(stage for stage, _ in watcher.asked)]

        assert await after("break") == ["REFUSED", "tool_call"]
        assert await after("break", blocked=True) == ["BLOCKED", "tool_call"]
        assert await after("soft") == ["TOOL_UNAVAILABLE", "tool_call", "tool_result"]  # it has answered
        hard.die()
        assert await after("soft") == ["TOOL_UNAVAILABLE", "tool_call"]


@pytest.mark.req("piglet.rule.interceptor-after")
@pytest.mark.parametrize("guard", [False, True])
async def test_who_cannot_look_at_a_result_is_passed_over_unless_it_is_a_guard(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, guard: bool
) -> None:
    def late(stage: InterceptPoint, subject: Any) -> InterceptResult:
        raise PeerTimeout("no answer", who="fake:strict")

    strict = Fake("strict", contribute("tool_result", priority=1, on_failure="closed"), judge=late, guard=guard)
    rewriting = Fake("last", contribute("tool_result"), judge=lambda stage, subject: Rewrite(ToolResult.of("rewritten")))
    async with open_fake_host(monkeypatch, tmp_path, strict, rewriting, Fake("owner", contribute(tools=("echo",)))) as host:
        expected = ("tool_result refused: no answer from the guard (fake:strict: no answer)", "BLOCKED")
        result = await host.call_tool("echo")
        assert (result.text, result.code) == (expected if guard else ("rewritten", ""))
        strict.die()
        result = await host.call_tool("echo")
        assert (result.text, result.code) == (
            ("tool_result refused: no answer from the guard (fake:strict is backing off: ended)", "BLOCKED")
            if guard
            else ("rewritten", "")
        )

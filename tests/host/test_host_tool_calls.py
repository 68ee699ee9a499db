"""Calls of guests' tools through the host: answers of every kind, deadlines, cancellation, gates, schemas, environments."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable
from os import kill
from pathlib import Path
from typing import Any

import pytest

from serai.host.adapters.zot import LIMITS as ZOT_LIMITS
from serai.host.guest import GuestState
from serai.host.host import Host
from serai.limits import Limits
from serai.model.approvals import Allow, Answer, Decision, Deny
from serai.model.events import Message
from serai.model.tools import ImageBlock, ProgressCallback, TextBlock, ToolCall, ToolResult, ToolSpec
from tests.support.host.zot_guests import Fifo, log_of, make, open_host, pid_of, read_frames, wait_for_state

MORE_THAN_A_PIPE = 3_000_000  # one grows to a MiB when a frame does not fit

# Answers with what its arguments say, member by member; "later" holds a call until the command `go`.
OBEDIENT = """
hello(tool("say"), tool("later"), command("go"))
held = []
for frame in frames():
    if frame["type"] == "tool_call":
        if frame["name"] == "later":
            held.append(frame["id"])
        else:
            send(type="tool_result", id=frame["id"], **frame["args"])
    elif frame["type"] == "command_invoked":
        for id in held:
            answer(id, "at last")
        held.clear()
        respond(frame["id"])
"""


@pytest.mark.req("zot.edge.10", "zot.edge.11", "zot.edge.12")
@pytest.mark.parametrize(
    ("said", "content"),
    [
        ({}, (TextBlock("(extension returned no content)"),)),
        ({"content": None}, (TextBlock("(extension returned no content)"),)),
        (
            {"content": [{"type": "text", "text": ""}, {"type": "text", "text": ""}]},
            (TextBlock("(extension returned no content)"),),
        ),
        ({"content": [{"type": "image", "mime_type": "image/png", "data": ""}]}, (ImageBlock(b"", "image/png"),)),
        ({"content": [{"type": "image", "data": "+/8="}]}, (ImageBlock(b"\xfb\xff"),)),
    ],
    ids=["no content", "null", "empty texts", "empty image", "image"],
)
async def test_what_a_tool_leaves_out_is_no_error(tmp_path: Path, said: dict[str, Any], content: tuple[object, ...]) -> None:
    async with open_host(tmp_path, make(tmp_path, OBEDIENT)) as host:
        result = await host.call_tool("say", said)
    assert result.content == content
    assert not result.is_error


@pytest.mark.req("zot.edge.09")
async def test_a_second_answer_is_ignored_and_logged(tmp_path: Path) -> None:
    body = """
hello(tool("twice"))
for frame in frames():
    if frame["type"] == "tool_call":
        answer(frame["id"], "first of " + frame["id"])
        answer(frame["id"], "second of " + frame["id"])
"""
    async with open_host(tmp_path, make(tmp_path, body)) as host:
        assert (await host.call_tool("twice")).text == "first of 1"
        assert (await host.call_tool("twice")).text == "first of 2"
        assert 'tool_result for "1", which nobody waits for' in log_of(host, "probe")


@pytest.mark.req("zot.edge.09")
async def test_nobody_can_answer_for_another_guest(tmp_path: Path) -> None:
    thief = """
hello(tool("steal"))
for frame in frames():
    if frame["type"] == "tool_call":
        for id in range(1, 10):
            if str(id) != frame["id"]:
                answer(str(id), "stolen")
        raw(b'{"type":"command_response","id":"1","action":"display","display":"stolen"}\\n')
        answer(frame["id"], "done")
"""
    folders = make(tmp_path, OBEDIENT, name="honest"), make(tmp_path, thief, name="thief")
    async with open_host(tmp_path, *folders) as host:
        calls = [asyncio.create_task(host.call_tool("later")) for _ in range(3)]
        assert (await host.call_tool("say", {"content": [{"type": "text", "text": "here"}]})).text == "here"  # they are on the wire
        assert (await host.call_tool("steal")).text == "done"
        assert not any(call.done() for call in calls)
        await host.run_command("go")
        assert [(await call).text for call in calls] == ["at last"] * 3


@pytest.mark.req("zot.rule.4.1-timeout", "zot.edge.09")
async def test_a_late_tool_is_an_error_in_the_protocols_words_and_its_late_answer_a_stray(tmp_path: Path) -> None:
    assert ZOT_LIMITS["tool"] == 60
    async with open_host(tmp_path, make(tmp_path, OBEDIENT), limits={"tool": 0.1}) as host:
        result = await host.call_tool("later")
        assert result.text == "extension probe/later failed: timeout waiting for probe/later"
        assert (result.is_error, result.code) == (True, "TIMEOUT")
        assert not (await host.run_command("go")).error  # the guest answers the tool first, then the command
        assert 'tool_result for "1", which nobody waits for' in log_of(host, "probe")


@pytest.mark.req("zot.rule.4.1-unknown-tool", "zot.edge.17")
async def test_nobody_is_asked_about_a_tool_that_does_not_exist(tmp_path: Path) -> None:
    asked: list[ToolCall] = []
    async with open_host(tmp_path, make(tmp_path, 'remember(subscribe(intercept=["tool_call"]))')) as host:
        result = await host.call_tool("nope", gate=_gate(asked, Allow()))
        frames = await read_frames(host)
    assert result.text == 'unknown tool "nope"'
    assert (result.is_error, result.code) == (True, "UNKNOWN_TOOL")
    assert asked == []
    assert [frame["tool_name"] for frame in frames if frame["type"] == "event_intercept"] == ["heard"]


@pytest.mark.req("zot.edge.17")
async def test_interceptors_are_asked_about_the_tools_of_guests_their_own_included(tmp_path: Path) -> None:
    watcher = make(tmp_path, 'remember(subscribe(intercept=["tool_call"]))', name="watcher")
    async with open_host(tmp_path, make(tmp_path, OBEDIENT), watcher) as host:
        await host.call_tool(ToolCall("say", {"content": []}, id="the model's own"))
        frames = await read_frames(host)
    asked = [frame for frame in frames if frame["type"] == "event_intercept"]
    assert [(one["tool_name"], one.get("tool_id", "")) for one in asked] == [("say", "the model's own"), ("heard", "")]


@pytest.mark.req("zot.rule.3.1-atomic")
async def test_frames_of_concurrent_writers_are_never_mixed(tmp_path: Path) -> None:
    # A guest that reads one line that is no JSON ends at once. Some frames are longer than a pipe, and all wait for it at first.
    with Fifo(tmp_path) as latch:
        folder = make(tmp_path, f'remember(command("nothing"), tools=("heard", "echo"), latch={str(latch.path)!r})')
        async with open_host(tmp_path, folder) as host:
            sizes = [1, 70_000, 10, 300_000, 100, 40_000] * 5
            calls = [asyncio.create_task(host.call_tool("echo", {"n": n, "x": "x" * size})) for n, size in enumerate(sizes)]
            commands = [asyncio.create_task(host.run_command("nothing", "y" * size)) for size in sizes]
            await asyncio.sleep(0)
            latch.lift()
            results = await asyncio.gather(*calls)
            outcomes = await asyncio.gather(*commands)
    for n, (size, result) in enumerate(zip(sizes, results, strict=True)):
        assert json.loads(result.text) == {"n": n, "x": "x" * size}
    assert not any(outcome.error for outcome in outcomes)


# -- when the tool table is made --------------------------------------------------------------------------------------------------


@pytest.mark.req("zot.edge.47")
async def test_a_tool_registered_after_ready_waits_for_the_next_table(tmp_path: Path) -> None:
    body = """
hello(command("more"))
for frame in frames():
    if frame["type"] == "command_invoked":
        send(**tool("late"))
        respond(frame["id"])
    elif frame["type"] == "tool_call":
        answer(frame["id"], "here I am")
"""
    async with open_host(tmp_path, make(tmp_path, body)) as host:
        await host.run_command("more")
        assert [tool.name for tool in host.tools] == []
        assert (await host.call_tool("late")).code == "UNKNOWN_TOOL"
        host.rebuild_tools()
        assert [tool.name for tool in host.tools] == ["late"]
        assert (await host.call_tool("late")).text == "here I am"


@pytest.mark.req("zot.rule.2.2-live-registrations")
async def test_commands_and_subscriptions_work_whenever_they_arrive(tmp_path: Path) -> None:
    body = """
hello(tool("late"), command("more"))
asked = []
for frame in frames():
    if frame["type"] == "command_invoked" and frame["name"] == "more":
        send(**command("born late"))
        send(**subscribe(intercept=["tool_call"]))
        respond(frame["id"])
    elif frame["type"] == "command_invoked":
        respond(frame["id"], "display", display="yes")
    elif frame["type"] == "event_intercept":
        judge(frame["id"], block=True, reason="since now")
"""
    async with open_host(tmp_path, make(tmp_path, body)) as host:
        assert "born late" not in host.table.commands
        await host.run_command("more")
        assert (await host.call_tool("late")).text == "since now"
        outcome = await host.run_command("born late")
        assert outcome.action.text == "yes"  # type: ignore[union-attr]


# -- a guest that is down -------------------------------------------------------------------------------------------------------


@pytest.mark.req("zot.rule.5.2-stays-in-place")
async def test_a_guest_that_is_down_stays_in_place(tmp_path: Path) -> None:
    folders = (
        make(tmp_path, 'remember(subscribe(intercept=["tool_call"]), tools=("heard", "gone"))', name="mortal"),
        make(tmp_path, OBEDIENT),
    )
    async with open_host(tmp_path, *folders, limits={"restart_wait": 60.0, "restart_wait_most": 60.0}) as host:
        before = [tool.name for tool in host.tools]
        kill(pid_of(host, "mortal"), signal.SIGKILL)
        await wait_for_state(host, "mortal", GuestState.BACKING_OFF)
        assert [tool.name for tool in host.tools] == before
        result = await host.call_tool("gone")
        assert (result.is_error, result.code) == (True, "TOOL_UNAVAILABLE")
        assert "zot:mortal is backing off: ended (killed by SIGKILL)" in result.text
        # It would be asked about this one; while it is down it lets pass.
        assert (await host.call_tool("say", {"content": [{"type": "text", "text": "on"}]})).text == "on"


# -- cancellation -----------------------------------------------------------------------------------------------------------------


@pytest.mark.req("host.call.cancel")
async def test_a_cancelled_call_ends_at_once_and_its_late_answer_is_nobodys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_host(tmp_path, make(tmp_path, OBEDIENT)) as host:
        call = asyncio.create_task(host.call_tool("later"))
        await host.call_tool("say", {"content": []})  # the other is on the wire, too
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        other = asyncio.create_task(host.call_tool("later"))
        await host.call_tool("say", {"content": []})
        await host.run_command("go")  # the guest answers both
        assert (await other).text == "at last"
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.req("host.call.cancel")
async def test_a_call_that_is_cancelled_before_the_guest_could_read_it_is_never_sent(tmp_path: Path) -> None:
    with Fifo(tmp_path) as latch:
        folder = make(tmp_path, f'remember(tools=("heard", "echo"), latch={str(latch.path)!r})')
        async with open_host(tmp_path, folder) as host:
            first = asyncio.create_task(host.call_tool("echo", {"x": "x" * MORE_THAN_A_PIPE}))
            await asyncio.sleep(0)  # the next two wait behind it
            second = asyncio.create_task(host.call_tool("echo", {"unwanted": True}))
            third = asyncio.create_task(host.call_tool("echo", {"wanted": True}))
            await asyncio.sleep(0)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            latch.lift()
            assert len((await first).text) > MORE_THAN_A_PIPE
            assert json.loads((await third).text) == {"wanted": True}
            calls = [frame["args"] for frame in await read_frames(host) if frame["type"] == "tool_call"]
    assert [sorted(args) for args in calls] == [["x"], ["wanted"], []]


# -- a guest that does not read ---------------------------------------------------------------------------------------------------


@pytest.mark.req("zot.edge.38", "zot.ours.5.4-write-deadline")
@pytest.mark.parametrize("size", [1_000_000, MORE_THAN_A_PIPE])
async def test_a_frame_that_the_guest_does_not_read_counts_against_the_deadline_of_its_call(tmp_path: Path, size: int) -> None:
    with Fifo(tmp_path) as latch:
        body = f'remember(tools=("echo",), latch={str(latch.path)!r})'
        deaf = make(tmp_path, body, name="deaf", settings="limits = {tool = 0.2}")
        async with open_host(tmp_path, deaf, make(tmp_path, OBEDIENT)) as host:
            waiting = asyncio.create_task(host.call_tool("echo", {"x": "x" * size}))
            await asyncio.sleep(0)
            assert not (await host.call_tool("say", {"content": []})).is_error  # nobody else is held up
            result = await waiting
            assert result.text == "extension deaf/echo failed: timeout waiting for deaf/echo"
            latch.lift()  # so that it leaves by itself


async def test_more_than_the_backlog_for_a_guest_that_does_not_read_is_refused_at_once(tmp_path: Path) -> None:
    with Fifo(tmp_path) as latch:
        folder = make(tmp_path, f'remember(tools=("echo",), latch={str(latch.path)!r})')
        async with open_host(tmp_path, folder, limits={"backlog": 3_000_000}) as host:
            calls = [asyncio.create_task(host.call_tool("echo", {"x": "x" * 1_000_000})) for _ in range(6)]
            done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            refused = [call.result() for call in done]
            assert refused
            assert all(result.code == "TOOL_UNAVAILABLE" and "limit backlog = 3000000" in result.text for result in refused)
            latch.lift()
            results = await asyncio.gather(*calls)
    assert [result.is_error for result in results] == [False] * (6 - len(refused)) + [True] * len(refused)


async def test_a_call_longer_than_the_protocol_allows_says_so_and_hurts_no_other(tmp_path: Path) -> None:
    with Fifo(tmp_path) as latch:
        folder = make(tmp_path, f'remember(tools=("heard", "echo"), latch={str(latch.path)!r})')
        async with open_host(tmp_path, folder) as host:
            first = asyncio.create_task(host.call_tool("echo", {"x": "x" * MORE_THAN_A_PIPE}))
            await asyncio.sleep(0)
            waiting = asyncio.create_task(host.call_tool("echo", {"waits": True}))
            await asyncio.sleep(0)
            result = await host.call_tool("echo", {"x": "x" * (4 * 1024 * 1024)})
            assert "extension probe/echo failed" in result.text
            assert "limit send = 4194304" in result.text
            latch.lift()
            assert not (await first).is_error
            assert json.loads((await waiting).text) == {"waits": True}


# -- the gate ---------------------------------------------------------------------------------------------------------------------


def _gate(asked: list[ToolCall], decision: Decision) -> Callable[[ToolCall], Awaitable[Decision]]:
    async def decide(call: ToolCall) -> Decision:
        asked.append(call)
        return decision

    return decide


REWRITER = 'remember(subscribe(intercept=["tool_call"]), tools=("echo",), tool_call={"modified_args": {"by": "interceptor"}})'


@pytest.mark.req("host.call.gate")
async def test_the_gate_sees_the_final_call(tmp_path: Path) -> None:
    asked: list[ToolCall] = []
    async with open_host(tmp_path, make(tmp_path, REWRITER)) as host:
        result = await host.call_tool(ToolCall("echo", {"by": "model"}, id="7", asker="claude"), gate=_gate(asked, Allow()))
    assert asked == [ToolCall("echo", {"by": "interceptor"}, id="7", asker="claude")]
    assert json.loads(result.text) == {"by": "interceptor"}


@pytest.mark.req("host.call.gate")
@pytest.mark.parametrize(
    "decision", [Deny("not today"), Deny(), Answer({"a question": "yes"})], ids=["why", "no why", "no decision"]
)
async def test_what_the_gate_does_not_allow_does_not_run(tmp_path: Path, decision: Decision) -> None:
    async with open_host(tmp_path, make(tmp_path, "remember(tools=('heard', 'echo'))")) as host:
        result = await host.call_tool("echo", {"a": 1}, gate=_gate([], decision))
        called = [frame["name"] for frame in await read_frames(host) if frame["type"] == "tool_call"]
    assert (result.is_error, result.code) == (True, "DENIED")
    assert result.text == ("not today" if decision == Deny("not today") else "echo was denied")
    assert called == ["heard"]


@pytest.mark.req("host.call.gate")
async def test_the_gate_may_change_the_arguments_and_they_are_checked_again(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    body = f"hello(tool('n', {schema!r}))\nfor frame in frames():\n    if 'args' in frame: answer(frame['id'], str(frame['args']))"
    async with open_host(tmp_path, make(tmp_path, body)) as host:
        assert (await host.call_tool("n", {"n": 1}, gate=_gate([], Allow({"n": 2})))).text == "{'n': 2}"
        assert (await host.call_tool("n", {"n": 1}, gate=_gate([], Allow({"n": "two"})))).code == "INVALID_ARGS"


@pytest.mark.req("host.call.gate")
async def test_nobody_is_asked_about_arguments_that_cannot_run(tmp_path: Path) -> None:
    asked: list[ToolCall] = []
    schema = {"type": "object", "required": ["city"]}
    async with open_host(tmp_path, make(tmp_path, f"hello(tool('weather', {schema!r}))\nfor frame in frames(): pass")) as host:
        result = await host.call_tool("weather", {}, gate=_gate(asked, Allow()))
    assert (result.is_error, result.code) == (True, "INVALID_ARGS")
    assert "city" in result.text
    assert asked == []


# -- schemas ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("host.call.schema")
async def test_arguments_are_checked_against_the_schema_after_interceptors_and_before_the_guest(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"by": {"const": "model"}}}
    folder = make(tmp_path, REWRITER.replace('tools=("echo",)', "tools=()"), name="rewriter")
    tool = make(
        tmp_path, f"hello(tool('strict', {schema!r}))\nfor frame in frames():\n    if 'args' in frame: answer(frame['id'], 'ran')"
    )
    async with open_host(tmp_path, tool) as host:
        assert (await host.call_tool("strict", {"by": "model"})).text == "ran"
        assert (await host.call_tool("strict", {"by": "somebody"})).code == "INVALID_ARGS"
    async with open_host(tmp_path, tool, folder) as host:
        assert (await host.call_tool("strict", {"by": "model"})).code == "INVALID_ARGS"


@pytest.mark.req("host.call.schema-hostile")
@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"type": "object", "properties": {"a": {"type": "no type"}}},
        {"type": "object", "properties": {"a": {"pattern": "(?=x)(a+)+$"}}},
    ],
    ids=["a URL", "a file", "no schema", "a pattern that would backtrack"],
)
async def test_a_tool_with_a_hostile_schema_works_unvalidated_and_the_report_says_so(
    tmp_path: Path, schema: dict[str, Any]
) -> None:
    body = f"hello(tool('odd', {schema!r}))\nfor frame in frames():\n    if 'args' in frame: answer(frame['id'], 'ran')"
    async with open_host(tmp_path, make(tmp_path, body)) as host:
        (line,) = host.report.to_lines()
        assert line.startswith("zot:probe: its tool odd goes unvalidated: zot:probe/odd: its schema ")
        assert (await host.call_tool("odd", {"a": 1})).text == "ran"


# -- the environment --------------------------------------------------------------------------------------------------------------


@pytest.mark.req("zot.edge.50")
async def test_a_guest_gets_no_credentials_but_those_granted_by_name(tmp_path: Path) -> None:
    body = """
hello(tool("environ"))
for frame in frames():
    if frame["type"] == "tool_call":
        answer(frame["id"], json.dumps(dict(os.environ)))
"""
    environ = {"COLOUR": "blue", "GITHUB_TOKEN": "granted", "AWS_PROFILE": "kept", "OTHER_TOKEN": "asked for, not granted"}
    folder = make(tmp_path, body, settings='env = ["OTHER_TOKEN"]')
    async with open_host(tmp_path, folder, environ=environ, config={"guest": {"zot:probe": {"env": ["GITHUB_TOKEN"]}}}) as host:
        seen = json.loads((await host.call_tool("environ")).text)
        assert {name: seen.get(name) for name in environ} == {
            "COLOUR": "blue",
            "GITHUB_TOKEN": "granted",
            "AWS_PROFILE": None,
            "OTHER_TOKEN": None,
        }
        assert host.report.to_lines() == ['zot:probe: it asks for env OTHER_TOKEN; the settings under [guest."zot:probe"] grant it']


async def test_half_a_surrogate_pair_is_replaced_on_the_way_out(tmp_path: Path) -> None:
    """Such as from a file name that is no UTF-8: it has no encoding, and nothing fails for it."""
    body = "remember(subscribe(events=['assistant_message']), tools=('echo', 'heard'))"
    async with open_host(tmp_path, make(tmp_path, body)) as host:
        host.tell(Message(content=(TextBlock("a\ud800b"),)))
        assert not (await host.call_tool("echo", {"s": "\udc00", "\ud800": ["x"]})).is_error
        frames = await read_frames(host)
        assert [frame["text"] for frame in frames if frame["type"] == "event"] == ["a\ufffdb"]
        assert next(frame["args"] for frame in frames if frame["type"] == "tool_call") == {"s": "\ufffd", "\ufffd": ["x"]}


async def test_a_gate_may_be_a_plain_function_and_must_decide(tmp_path: Path) -> None:
    async with open_host(tmp_path, make(tmp_path, "remember(tools=('echo',))")) as host:
        assert (await host.call_tool("echo", gate=lambda _: Deny("not today"))).text == "not today"
        assert not (await host.call_tool("echo", gate=lambda _: Allow())).is_error
        wrong: Any = lambda _: True  # noqa: E731
        with pytest.raises(TypeError, match="a gate answers with Allow or Deny, not with True"):
            await host.call_tool("echo", gate=wrong)


async def test_a_built_in_that_fails_is_an_error_result(tmp_path: Path) -> None:
    class Box:
        def list(self) -> list[ToolSpec]:
            return [ToolSpec("broken")]

        async def call(self, call: ToolCall, *, tell: ProgressCallback | None = None) -> ToolResult:
            raise ZeroDivisionError("its defect")

    async with open_host(tmp_path, built_in=Box()) as host:
        result = await host.call_tool("broken")
    assert (result.code, result.text) == ("FAILED", "broken failed: ZeroDivisionError('its defect')")


async def test_more_names_than_a_guest_may_offer_are_not_taken_and_told(tmp_path: Path) -> None:
    body = "hello(*(tool(f't{n}') for n in range(30)), *(command(f'c{n}') for n in range(30)))\nfor frame in frames(): pass"
    async with open_host(tmp_path, make(tmp_path, body), limits={"registrations": 40}) as host:
        assert (len(host.tools), len(host.commands)) == (30, 10)
        (remark,) = host.report.guests[0].remarks
        assert remark == "its command c10 and what follows is not taken: it offers more than 40 names"


async def test_a_tool_that_is_not_taken_is_told_in_the_report(tmp_path: Path) -> None:
    async with open_host(tmp_path, make(tmp_path, "remember({'type': 'register_tool', 'name': 't', 'schema': 'x'})")) as host:
        (remark,) = host.report.guests[0].remarks
        assert remark.startswith("its tool t is not taken: its schema is no JSON object")


async def test_limits_are_given_by_name_as_a_record_or_in_the_settings(tmp_path: Path) -> None:
    folder = make(tmp_path, "remember()")
    config = {"limits": {"tool": 5, "command": 6}}
    environ = {"SERAI_HOME": str(tmp_path / "home")}
    usual = Limits().but(tool=7.0)
    async with Host.discover(tmp_path, guests=[folder], environ=environ, config=config, limits=usual) as host:
        limits = host.guest("probe").limits
    assert (limits.tool, limits.command, limits.intercept) == (7.0, 6, ZOT_LIMITS["intercept"])

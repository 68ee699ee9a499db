"""Guests that misbehave while they live: each hurts itself alone, with a clear word, and what can go on goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import monotonic

import pytest

from serai.host import guest_context
from serai.host.guest import GuestState
from serai.host.host import Host
from serai.model.tools import ToolResult
from tests.support.host.zot_guests import NOTE, STUBBORN, log_of, make, open_host, pid_of, pids, wait_for_state, wait_until_reaped
from tests.support.processes import lives

# Does what its tool is called, with one other tool that shows that it is well.
SERVE = """
def serve(**habits):
    hello(tool("well"), *(tool(name) for name in habits))
    for frame in frames():
        if frame["type"] == "tool_call":
            if frame["name"] == "well": answer(frame["id"], f"well: {os.getpid()}")
            else: habits[frame["name"]](frame["id"])
"""
OTHER = "hello(tool('other'))\nfor frame in frames():\n    if 'id' in frame: answer(frame['id'], 'fine')"
LINE = 4_194_304  # spec zot 3.1


async def call_tool(host: Host, name: str) -> ToolResult:
    result = await host.call_tool(name)
    assert not result.is_error, result
    return result


async def call_other_until(host: Host, while_: asyncio.Task[ToolResult], *, least: int = 1) -> int:
    """Ask another guest until the task is done; how often it answered."""
    count = 0
    while not while_.done() or count < least:
        assert (await call_tool(host, "other")).text == "fine"
        count += 1
    return count


async def test_a_guest_that_closes_its_output_but_lives_on_is_replaced(tmp_path: Path) -> None:
    folder = make(tmp_path, f"{NOTE}{SERVE}\ndef shut(id):\n    os.close(1)\n    time.sleep(1000)\nserve(shut=shut)")
    async with open_host(tmp_path, folder, limits=STUBBORN | {"exit_grace": 0.1}) as host:
        old = pid_of(host, "probe")
        result = await asyncio.wait_for(host.call_tool("shut"), 15)
        assert (result.code, result.is_error) == ("TOOL_UNAVAILABLE", True)
        assert "closed its output, but still runs" in result.text
        await wait_for_state(host, "probe", GuestState.READY)
        assert (await call_tool(host, "well")).text == f"well: {pids(folder)[1]}"
        await asyncio.wait_for(wait_until_reaped(old), 15)


async def test_a_process_that_holds_the_output_of_a_dead_guest_goes_with_it(tmp_path: Path) -> None:
    habit = """
def leave(id):
    if os.fork() == 0:
        with open("left~", "w") as file: file.write(str(os.getpid()))
        os.rename("left~", "left")
        time.sleep(1000)
    while not os.path.exists("left"): time.sleep(0.001)
    os._exit(6)
"""
    folder = make(tmp_path, f"{SERVE}{habit}\nserve(leave=leave)")
    async with open_host(tmp_path, folder, limits={"drain_grace": 0.1}) as host:
        result = await asyncio.wait_for(host.call_tool("leave"), 15)
        assert "ended, but a process it started holds its output open (exit status 6)" in result.text
        await wait_for_state(host, "probe", GuestState.READY)
        await call_tool(host, "well")
        left = int((folder / "left").read_text())
        while lives(left):
            await asyncio.sleep(0)


@pytest.mark.req("zot.edge.40")
async def test_a_flood_on_stderr_blocks_nobody_and_the_log_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_context, "_TRIM", 0.01)
    habit = """
def flood(id):
    for _ in range(300): os.write(2, b"far too much of it\\n" * 5000)
    answer(id, "done")
"""
    folder = make(tmp_path, f"{SERVE}{habit}\nserve(flood=flood)")
    limit = 100_000
    async with open_host(tmp_path, folder, make(tmp_path, OTHER, name="other"), limits={"log": limit}) as host:
        flood = asyncio.create_task(call_tool(host, "flood"))
        await call_other_until(host, flood)
        log = host.guest("probe").log
        assert log is not None
        while log.path.stat().st_size > limit:  # the host looks at it from time to time
            await asyncio.sleep(0)
        assert sum(file.stat().st_size for file in log.path.parent.glob("ext-probe.log*")) <= 2 * limit
        await call_tool(host, "well")


@pytest.mark.parametrize("when", ["serving", "starting"])
async def test_a_guest_that_fills_the_disk_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    monkeypatch.setattr(guest_context, "_TRIM", 0.01)
    flood = "while True: os.write(2, b'x' * 65536)\n"
    body = flood if when == "starting" else f"hello(tool('work'))\nfor frame in frames():\n    {flood}"
    limits = {"log": 100_000, "log_flood": 1_000_000, "restart_wait": 60.0, "hello": 30.0}
    async with open_host(tmp_path, make(tmp_path, body), limits=limits) as host:
        guest = host.guest("probe")
        if when == "serving":
            assert (await host.call_tool("work")).code == "TOOL_UNAVAILABLE"
            await wait_for_state(host, "probe", GuestState.BACKING_OFF)
        else:
            assert guest.state is GuestState.GONE
        assert guest.error is not None
        assert "was ended: it wrote " in str(guest.error)
        assert "limit log_flood = 1000000" in str(guest.error)


async def test_a_flood_of_lines_that_are_no_frames_is_counted_and_others_are_served_meanwhile(tmp_path: Path) -> None:
    habit = """
def flood(id):
    odd = b'{"type":"odd"}\\n' * 100 + b'{"type":"notify","message":5}\\n' * 10
    for _ in range(200): raw(b"no frame\\n" * 300 + b"\\n" * 100 + odd)
    answer(id, "done")
"""
    folder = make(tmp_path, f"{SERVE}{habit}\nserve(flood=flood)")
    async with open_host(tmp_path, folder, make(tmp_path, OTHER, name="other")) as host:
        flood = asyncio.create_task(call_tool(host, "flood"))
        assert await call_other_until(host, flood, least=3) >= 3
        assert (await flood).text == "done"
        await call_tool(host, "well")
        text = log_of(host, "probe")
        assert "malformed frame: " in text
        assert "further frames of this kind are not told one by one" in text
        assert text.count("\n") < 150


@pytest.mark.req("zot.edge.37", "zot.ours.5.3-oversize-survived", "zot.ours.5.3-oversize-logged", "zot.rule.5.3-oversize-call")
async def test_an_answer_of_5_mib_fails_its_own_call_alone_and_the_guest_lives(tmp_path: Path) -> None:
    habits = """
held = []
def hold(id): held.append(id)
def big(id):
    raw(json.dumps({"type": "tool_result", "id": id, "content": [{"type": "text", "text": "x" * (5 << 20)}]}).encode() + b"\\n")
    answer(held.pop(), "in time")
"""
    folder = make(tmp_path, f"{NOTE}{SERVE}{habits}\nserve(hold=hold, big=big)")
    async with open_host(tmp_path, folder) as host:
        hold = asyncio.create_task(call_tool(host, "hold"))
        await asyncio.sleep(0)
        result = await asyncio.wait_for(host.call_tool("big"), 15)
        assert (result.code, result.is_error) == ("BAD_ANSWER", True)
        assert "probe/big" in result.text
        assert f"(limit frame = {LINE})" in result.text
        assert (await hold).text == "in time"
        assert (await call_tool(host, "well")).text == f"well: {pids(folder)[0]}"
        assert f"bytes was skipped; the limit is {LINE}" in log_of(host, "probe")
        assert len(pids(folder)) == 1


@pytest.mark.req("zot.rule.5.3-oversize-call")
async def test_an_oversize_line_that_tells_no_id_fails_whatever_waits(tmp_path: Path) -> None:
    habits = "def hold(id): pass\ndef big(id): raw(b'x' * (5 << 20) + b'\\n')\n"
    async with open_host(tmp_path, make(tmp_path, f"{SERVE}{habits}\nserve(hold=hold, big=big)")) as host:
        results = await asyncio.wait_for(asyncio.gather(host.call_tool("hold"), host.call_tool("big")), 15)
        assert [result.code for result in results] == ["BAD_ANSWER", "BAD_ANSWER"]
        await call_tool(host, "well")


@pytest.mark.req("zot.rule.3.1-max-line")
async def test_the_longest_line_is_read_and_one_byte_more_is_not(tmp_path: Path) -> None:
    habits = """
def line(id, size):
    empty = json.dumps({"type": "tool_result", "id": id, "content": [{"type": "text", "text": ""}]}).encode()
    raw(empty.replace(b'""', b'"' + b"x" * (size - len(empty) - 1) + b'"') + b"\\n")
"""
    habits += f"serve(longest=lambda id: line(id, {LINE}), longer=lambda id: line(id, {LINE + 1}))"
    async with open_host(tmp_path, make(tmp_path, SERVE + habits)) as host:
        text = (await call_tool(host, "longest")).text
        assert LINE - 100 < len(text) < LINE
        assert (await host.call_tool("longer")).code == "BAD_ANSWER"


@pytest.mark.req("zot.edge.38")
async def test_a_guest_that_never_reads_costs_a_call_its_deadline_and_nobody_else_anything(tmp_path: Path) -> None:
    deaf = make(tmp_path, "hello(tool('deaf'))\ntime.sleep(1000)", name="deaf", settings="[limits]\ntool = 0.5\n")
    async with open_host(tmp_path, deaf, make(tmp_path, OTHER, name="other"), limits=STUBBORN) as host:
        call = asyncio.create_task(host.call_tool("deaf", {"text": "x" * 1_000_000}))
        assert await call_other_until(host, call) >= 1
        result = await call
        assert (result.code, result.is_error) == ("TIMEOUT", True)
        assert "timeout waiting for deaf/deaf" in result.text
        began = monotonic()
    assert monotonic() - began < 10


@pytest.mark.req("zot.rule.3.1-malformed", "zot.rule.3.1-wrong-field-type", "zot.edge.08", "zot.rule.5.3-unknown-type")
@pytest.mark.req("zot.ours.3.2-schema-not-object")
async def test_frames_with_wrong_types_are_dropped_one_by_one_and_named(tmp_path: Path) -> None:
    body = """
send(type="hello", name="probe", capabilities="all of them")
send(type="register_tool", name=5)
send(type="register_tool", name="listed", schema=[1])
send(type="register_command", name={"a": 1})
send(type="subscribe", events="turn_start")
send(type="notify", message=["no"])
send(type="ready", id=7)
send(type="greetings")
send(type=5)
raw(b"\\nnot a frame\\n")
send(**tool("fine"))
send(type="ready")
for frame in frames():
    if frame["type"] == "tool_call": answer(frame["id"], "fine")
"""
    good = body.replace(', capabilities="all of them"', "")
    async with open_host(tmp_path, make(tmp_path, good), limits={"ready_idle": 25.0}) as host:
        row = host.report.guests[0]
        assert (row.state, row.tools, row.commands, row.events) == ("ready", ("fine",), (), ())
        assert (await call_tool(host, "fine")).text == "fine"
        text = log_of(host, "probe")
        for word in (
            "malformed frame: register_tool: ",
            "its tool listed is not taken: its schema is no JSON object",
            "malformed frame: register_command: ",
            "malformed frame: subscribe: ",
            "malformed frame: notify: ",
            "malformed frame: ready: its id is no string: 7",
            'unknown frame type "greetings"',
            "malformed frame: its type is missing or no string",
            "malformed frame: not a JSON object: not a frame",
            "malformed frame: a blank line",
        ):
            assert word in text, word
    bad = make(tmp_path, body, name="bad")
    async with open_host(tmp_path, bad) as host:
        assert "parse hello: " in str(host.guest("bad").error)


async def test_answers_that_nobody_asked_for_are_noted_and_harm_nothing(tmp_path: Path) -> None:
    habit = """
def twice(id):
    answer("999", "who asked?")
    answer(id, "first")
    answer(id, "second")
"""
    async with open_host(tmp_path, make(tmp_path, f"{SERVE}{habit}\nserve(twice=twice)")) as host:
        assert (await call_tool(host, "twice")).text == "first"
        await call_tool(host, "well")
        assert log_of(host, "probe").count("stray frame: ") == 2

"""Every wire of every guest is on record: whose it was, which start, what was said; and no secret."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from serai.host.guest import GuestState
from serai.record import Recorder, Recording
from serai.record.recording import describe, replay
from tests.support.host.zot_guests import make, open_host, pid_of, wait_for_state
from tests.support.recordings import open_folder, read_all_bytes

SECRET = "tops3cret-0123456789-value"


@pytest.mark.req("host.cli.recorded")
async def test_each_start_of_a_guest_is_a_wire_of_its_own(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    with Recorder(folder) as recorder:
        async with open_host(
            tmp_path, make(tmp_path, "remember()"), make(tmp_path, "remember()", name="other"), recorder=recorder
        ) as host:
            running = {"zot:probe": [pid_of(host, "probe")], "zot:other": [pid_of(host, "other")]}
            os.kill(pid_of(host, "probe"), signal.SIGKILL)
            await wait_for_state(host, "probe", GuestState.BACKING_OFF)
            await wait_for_state(host, "probe", GuestState.READY)
            running["zot:probe"].append(pid_of(host, "probe"))
            await host.reload("other")
            running["zot:other"].append(pid_of(host, "other"))
    with Recording.open("", folder) as recording:
        seen: dict[str, list[int]] = {}
        for wire in sorted(recording.wires.values(), key=lambda wire: (wire.who, wire.generation)):
            assert (wire.kind, wire.dialect) == ("guest", "zot")
            seen.setdefault(wire.who, []).append(wire.pid)
            assert wire.generation == len(seen[wire.who])
            assert wire.ended > 0
        assert seen == running
        (crashed,) = (wire for wire in recording.wires.values() if wire.pid == running["zot:probe"][0])
        assert crashed.exit is not None
        assert crashed.exit.signal == signal.SIGKILL


async def test_a_failed_start_is_on_record_too(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    with Recorder(folder) as recorder:
        async with open_host(tmp_path, make(tmp_path, "raw(b'hi there\\n')\ntime.sleep(1000)"), recorder=recorder) as host:
            assert host.guest("probe").state is GuestState.GONE
    with Recording.open("", folder) as recording:
        (wire,) = recording.wires.values()
        assert (wire.who, wire.frames["received"]) == ("zot:probe", 1)
    assert b"hi there" in read_all_bytes(folder)


@pytest.mark.req("host.cli.recorded")
async def test_what_a_guest_was_granted_is_masked_on_the_way_in(tmp_path: Path) -> None:
    body = (
        "hello(tool('me'))\nfor frame in frames():\n    if 'id' in frame: answer(frame['id'], os.environ.get('MY_TOKEN', 'none'))"
    )
    folder = open_folder(tmp_path)
    config = {"guest": {"probe": {"env": ["MY_TOKEN"]}}}
    guests = (make(tmp_path, body), make(tmp_path, body.replace("'me'", "'you'"), name="other"))
    with Recorder(folder) as recorder:
        async with open_host(tmp_path, *guests, recorder=recorder, environ={"MY_TOKEN": SECRET}, config=config) as host:
            assert (await host.call_tool("me")).text == SECRET
            assert (await host.call_tool("you")).text == "none"
    content = read_all_bytes(folder)
    assert b"tool_result" in content
    assert SECRET.encode() not in content


@pytest.mark.parametrize("view", ["ours", "theirs"])
async def test_a_recorded_wire_replays_to_what_was_heard(tmp_path: Path, view: str) -> None:
    body = """
hello(tool("echo"), command("go"), subscribe(["turn_start"], ["turn_start"]))
for frame in frames():
    if frame["type"] == "tool_call": answer(frame["id"], frame["args"]["text"])
    if frame["type"] == "command_invoked": respond(frame["id"], "display", display="went")
    if frame["type"] == "event_intercept": judge(frame["id"], block=True, reason="not today")
"""
    folder = open_folder(tmp_path)
    with Recorder(folder) as recorder:
        async with open_host(tmp_path, make(tmp_path, body), recorder=recorder) as host:
            assert (await host.call_tool("echo", {"text": "hello"})).text == "hello"
            await host.run_command("go")
            await host.intercept("turn_start", 3)
    with Recording.open("", folder) as recording:
        (number,) = recording.wires
        events = [describe(one.event) for one in replay(recording, number, view=view)]  # type: ignore[arg-type]
    kinds = [event["event"] for event in events]
    if view == "ours":
        assert kinds == ["Hello", "ToolOffered", "CommandOffered", "Subscribed", "Ready", "Answered", "Answered", "Answered"]
        assert [event["call"]["what"] for event in events[-3:]] == [
            "tool_call echo",
            "command_invoked go",
            "event_intercept turn_start",
        ]
        assert events[-1]["frame"]["reason"] == "not today"
    else:
        assert kinds == ["Welcomed", "ToolCalled", "CommandInvoked", "Intercepted", "Shutdown"]

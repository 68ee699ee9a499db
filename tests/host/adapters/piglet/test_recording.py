"""A piglet guest on record: exactly the frames of the wire that it speaks on, which replay to what was heard (FIX-2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from serai.host.guest import GuestState
from serai.record import Recorder, Recording, RecordingFolder
from serai.record.recording import describe, replay
from serai.record.segment import Frames
from tests.support.host.zot_guests import open_host, pid_of, wait_for_state
from tests.support.piglet.journals import ONE_LOOP
from tests.support.piglet.raw_guests import write_bare_guest
from tests.support.piglet_guests.guest_folder import interceptor, write
from tests.support.piglet_guests.steps import ask, crash, fault
from tests.support.recordings import open_folder

pytestmark = ONE_LOOP


def frames(folder: RecordingFolder, number: int = 0) -> list[tuple[str, dict[str, Any]]]:
    """All frames of a wire, the only one unless told otherwise, as they were: which way, and what."""
    with Recording.open("", folder) as recording:
        (wire,) = (number,) if number else tuple(recording.wires)
        runs = [(entry.way, entry.run) for entry in recording.iter_entries() if isinstance(entry, Frames) and entry.wire == wire]
    return [(way, json.loads(line)) for way, run in runs for line in run.splitlines()]


@pytest.mark.parametrize("sdk", ["go", "typescript"])
async def test_the_frames_of_the_side_that_it_speaks_on_are_all_there_and_no_others(tmp_path: Path, sdk: Any) -> None:
    folder, journal = open_folder(tmp_path), tmp_path / "journal"
    noise = (
        [fault("stdout", text='{"jsonrpc":"2.0","method":"register/tool","params":{"name":"printed"}}\n')] if sdk == "go" else []
    )
    guest = write(
        tmp_path, "weather", sdk=sdk, at_start=noise, tools={"look": [*noise, ask("host/extensionsDir")]}, journal=journal
    )
    with Recorder(folder) as recorder:
        async with open_host(tmp_path, guest, recorder=recorder) as host:
            pid = pid_of(host, "weather")
            await host.call_tool("look")
    told = [json.loads(line) for line in journal.read_text().splitlines()]
    recorded = frames(folder)
    assert [frame for way, frame in recorded if way == "received"] == [line["out"] for line in told if "out" in line]
    assert [frame for way, frame in recorded if way == "sent"] == [line["in"] for line in told if "in" in line]
    assert [frame.get("method") for _, frame in recorded[:2]] == ["initialize", "register/tool"]
    with Recording.open("", folder) as recording:
        [wire] = recording.wires.values()
        assert (wire.who, wire.dialect, wire.pid, wire.generation) == ("piglet:weather", "piglet", pid, 1)
        assert wire.exit is not None
        assert wire.exit.code == 0


@pytest.mark.parametrize("view", ["ours", "theirs"])
async def test_it_replays_to_what_was_heard(tmp_path: Path, view: Any) -> None:
    folder = open_folder(tmp_path)
    guest = write(
        tmp_path,
        "weather",
        tools={"look": "fog", "ask": [ask("host/extensionsDir")]},
        interceptors={"gate": interceptor()},
        at_init=[fault("prose")],
    )
    with Recorder(folder) as recorder:
        async with open_host(tmp_path, guest, recorder=recorder) as host:
            assert (await host.call_tool("look")).text == "fog"
            await host.call_tool("ask")
    with Recording.open("", folder) as recording:
        (number,) = recording.wires
        events = [describe(one.event) for one in replay(recording, number, view=view)]
    kinds = [event["event"] for event in events]
    if view == "ours":
        assert kinds == ["Noise", *["Registered"] * 3, *["Answered"] * 5, "Asked", *["Answered"] * 2]
        answered = [event["call"]["what"] for event in events if event["event"] == "Answered"]
        assert answered == ["initialize", *["interceptor/before", "tool/execute", "interceptor/after"] * 2]
    else:
        assert kinds == [*["Asked"] * 6, "Failure", "Asked", "Told"]  # a host alone has no services
        assert [event["method"] for event in events if event["event"] == "Told"] == ["shutdown"]


async def test_a_start_that_fails_is_on_record_with_what_it_said(tmp_path: Path) -> None:
    """None of its sides has answered: the one on which it said something is shown."""
    folder = open_folder(tmp_path)
    body = """
next(lines(0))
say(1, tool("look"), {"jsonrpc": "2.0", "method": "log", "params": {"message": "last words"}})
os._exit(3)
"""
    with Recorder(folder) as recorder:
        async with open_host(tmp_path, write_bare_guest(tmp_path, body), recorder=recorder) as host:
            assert host.guest("bare").state is GuestState.GONE
    assert [(way, frame["method"]) for way, frame in frames(folder)] == [
        ("sent", "initialize"),
        ("received", "register/tool"),
        ("received", "log"),
    ]
    with Recording.open("", folder) as recording:
        [wire] = recording.wires.values()
        assert wire.exit is not None
        assert wire.exit.code == 3


async def test_each_start_is_a_wire_of_its_own(tmp_path: Path) -> None:
    folder = open_folder(tmp_path)
    with Recorder(folder) as recorder:
        async with open_host(tmp_path, write(tmp_path, "weather", tools={"die": [crash()]}), recorder=recorder) as host:
            await host.call_tool("die")
            await wait_for_state(host, "weather", GuestState.READY)
            await host.reload("weather")
    with Recording.open("", folder) as recording:
        wires = sorted(recording.wires.values(), key=lambda wire: wire.generation)
        assert [(wire.generation, wire.exit and wire.exit.code) for wire in wires] == [(1, 3), (2, 0), (3, 0)]
        for number, wire in recording.wires.items():
            said = [frame.get("method") for _, frame in frames(folder, number)]
            assert said[:2] == ["initialize", "register/tool"]
            assert (said[-1] == "shutdown") is (wire.generation > 1)

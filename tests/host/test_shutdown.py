"""The end: polite, bounded, for all at once, and nothing is left whatever happens."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

from serai.host.adapters import zot
from serai.host.guest import GuestState
from serai.model.events import StepStarted
from tests.support.host.zot_guests import NOTE, build_host, make, open_host, pid_of, pids, wait_for_state
from tests.support.processes import Ends, lives

pytestmark = pytest.mark.loops

# Notes what happens to it: frames, the end of its input, signals; leaves when its input has ended.
NOTES = """
import signal
def note(word):
    with open("notes", "a") as file: file.write(f"{word}\\n")
signal.signal(signal.SIGTERM, lambda *_: note("SIGTERM"))
"""
# Leaves neither at the end of its input nor at SIGTERM.
STUBBORN_BODY = NOTES + "hello(tool('me'))\nopen('up', 'w').close()\nwhile True: time.sleep(1000)"


def notes(folder: Path) -> list[str]:
    return (folder / "notes").read_text().split() if (folder / "notes").exists() else []


@pytest.mark.req("zot.rule.5.1-shutdown")
async def test_a_guest_is_told_its_input_ends_at_once_and_its_exit_is_waited_for(tmp_path: Path) -> None:
    body = """
hello()
for line in sys.stdin.buffer:
    note(json.loads(line)["type"])
note("end")
time.sleep(0.05)
note("exit")
"""
    folder = make(tmp_path, NOTES + body)
    async with open_host(tmp_path, folder) as host:
        pid = pid_of(host, "probe")
    assert notes(folder) == ["hello_ack", "shutdown", "end", "exit"]
    assert not lives(pid)
    assert host.guest("probe").state is GuestState.STOPPED


@pytest.mark.req("zot.edge.34")
async def test_what_a_guest_still_writes_after_its_shutdown_is_drained(tmp_path: Path) -> None:
    """More than any pipe holds: it could not get to its last line otherwise."""
    body = """
hello()
for frame in frames(): pass
for number in range(4000): send(type="notify", message="x" * 1000)
send(type="shutdown_ack")
note("done")
"""
    folder = make(tmp_path, NOTES + body)
    async with open_host(tmp_path, folder):
        pass
    assert notes(folder) == ["done"]


@pytest.mark.req("host.life.close")
@pytest.mark.req("zot.edge.35", "zot.rule.5.1-shutdown")
async def test_stubborn_guests_get_term_then_kill_all_at_the_same_time(tmp_path: Path) -> None:
    folders = [make(tmp_path, STUBBORN_BODY, name=f"stubborn{number}") for number in range(6)]
    async with open_host(tmp_path, *folders, limits={"stop_polite": 0.3, "stop_term": 2.5}) as host:
        running = [pid_of(host, folder.name) for folder in folders]
        began = monotonic()
        await host.close()
        took = monotonic() - began
    assert [notes(folder) for folder in folders] == [["SIGTERM"]] * 6
    assert not any(map(lives, running))
    assert 2.8 <= took < 6 * 2.8  # one after the other would take the latter
    assert (zot.LIMITS["stop_polite"], zot.LIMITS["stop_term"], zot._LEAST) == (2.0, 1.0, 0.1)


@pytest.mark.req("zot.rule.5.1-shutdown")
async def test_a_guest_that_does_not_read_still_gets_a_moment_to_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The farewell cannot be written, and yet it is not sent SIGTERM the moment its input is closed."""
    body = """
import select
hello(subscribe(["turn_start"]))
poll = select.poll()
poll.register(0, 0)  # only the hang-up
poll.poll()
note("hang-up")
"""
    monkeypatch.setattr(zot, "_LEAST", 15.0)
    folder = make(tmp_path, NOTES + body)
    async with open_host(tmp_path, folder, limits={"stop_polite": 15.2}) as host:
        for step in range(20_000):
            host.tell(StepStarted(step=step))
    assert notes(folder) == ["hang-up"]


@pytest.mark.req("host.life.close")
async def test_calls_that_wait_when_the_host_closes_fail_at_once(tmp_path: Path) -> None:
    """Not when the process has ended: it has plenty of time for that."""
    body = """
hello(tool("work"), command("work"), subscribe(intercept=["turn_start"]))
for frame in frames(): pass
open("go").read()
"""
    folder = make(tmp_path, body)
    os.mkfifo(folder / "go")
    async with open_host(tmp_path, folder) as host:
        pid = pid_of(host, "probe")
        waiting = asyncio.gather(host.call_tool("work"), host.run_command("work"), host.intercept("turn_start", 1))
        await asyncio.sleep(0)
        closing = asyncio.create_task(host.close())
        result, outcome, verdict = await asyncio.wait_for(waiting, 10)
        assert lives(pid)
        assert (result.code, outcome.code, verdict) == ("TOOL_UNAVAILABLE", "COMMAND_UNAVAILABLE", None)
        assert "it was stopped before it answered" in result.text
        assert not closing.done()
        await asyncio.to_thread((folder / "go").write_text, "on")
        await closing
        assert (await host.call_tool("work")).code == "TOOL_UNAVAILABLE"


@pytest.mark.req("host.life.close")
async def test_closing_twice_from_several_tasks_and_cancelled_is_closing_once(tmp_path: Path) -> None:
    folder = make(tmp_path, NOTES + "hello()\nfor line in sys.stdin.buffer: note(json.loads(line)['type'])")
    async with open_host(tmp_path, folder) as host:
        pid = pid_of(host, "probe")
        first = asyncio.create_task(host.close())
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await asyncio.gather(host.close(), host.close())
        assert not lives(pid)
        assert notes(folder).count("shutdown") == 1
        await host.close()


async def test_a_host_that_never_started_closes_too(tmp_path: Path) -> None:
    await build_host(tmp_path, make(tmp_path, "remember()")).close()


async def test_closing_in_the_moment_of_the_start_leaves_nobody(tmp_path: Path) -> None:
    """At every step of it, as far as turns of the loop tell them apart."""
    folders = [make(tmp_path, f"{NOTE}remember()", name=name) for name in ("one", "two")]
    for turns in (0, 1, 2, 3, 5, 8, 30):
        host = build_host(tmp_path, *folders)
        starting = asyncio.create_task(host.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        await host.close()
        await asyncio.wait([starting])
    assert [pid for folder in folders for pid in pids(folder) if lives(pid)] == []


HOST = """
import asyncio, sys
from serai.host.host import Host
async def main():
    async with Host.discover(sys.argv[1], guests=sys.argv[2:], config={}, installed=False) as host:
        print(*(guest.running.pid for guest in host.guests.values()), flush=True)
        await asyncio.sleep(1000)
asyncio.run(main())
"""


@pytest.mark.req("zot.edge.36")
def test_a_killed_host_leaves_no_guest_not_even_one_that_ignores_the_end_of_its_input(tmp_path: Path) -> None:
    well = make(tmp_path, NOTES + "hello()\nfor line in sys.stdin.buffer: pass\nnote('end')", name="well")
    stubborn = make(tmp_path, STUBBORN_BODY, name="stubborn")
    env = {**os.environ, "SERAI_HOME": str(tmp_path / "home")}
    argv = [sys.executable, "-c", HOST, str(tmp_path), str(well), str(stubborn)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            guests = [int(pid) for pid in process.stdout.readline().split()]
            assert len(guests) == 2
            with Ends(guests) as ends:
                process.kill()
                process.wait()
                assert ends.left_after(15) == set()
        finally:
            process.kill()
    assert notes(stubborn) == []


async def test_a_guest_that_becomes_ready_during_the_closing_does_not_stay(tmp_path: Path) -> None:
    slow = make(tmp_path, "open('up', 'w').close()\nopen('go').read()\nremember()", name="slow")
    os.mkfifo(slow / "go")
    host = build_host(tmp_path, slow)
    starting = asyncio.create_task(host.start())
    await asyncio.sleep(0)
    await wait_for_state(host, "slow", GuestState.STARTING)
    while not (slow / "up").exists():
        await asyncio.sleep(0)
    await asyncio.to_thread((slow / "go").write_text, "on")
    await host.close()
    await starting
    assert host.guest("slow").state is GuestState.STOPPED  # whether it came in just before, or never
    assert host.guest("slow").running is None

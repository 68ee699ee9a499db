"""The ladder, on real programs that deserve each of its steps."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import threading
from pathlib import Path
from time import monotonic

import pytest

from serai.errors import ExitStatus
from serai.testing import faults
from serai.wire import process_tree
from serai.wire.channel import Channel
from serai.wire.event_loop import Deadlines
from serai.wire.jsonrpc_peer import JsonRpcPeer
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Launch, StopResult, stop_child
from tests.conftest import PATIENT, QUICK
from tests.support.processes import Collector, lives

pytestmark = pytest.mark.loops


@pytest.mark.req("wire.stop.polite")
async def test_a_child_that_ends_with_its_input_is_not_signalled(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]
) -> None:
    script = 'trap "echo signalled" TERM; while read line; do echo "heard $line"; done; exit 7'
    child = await spawner.spawn(Launch(argv=["sh", "-c", script], env=environ))
    collector = Collector()
    channel = Channel(child, collector, deadlines=deadlines, limits=QUICK)

    channel.send(b"one\n")
    assert await stop_child(child, PATIENT, polite=lambda: channel.send_farewell(b"bye\n")) == StopResult(
        "polite", ExitStatus(code=7)
    )
    assert collector.lines() == [b"heard one", b"heard bye"]


@pytest.mark.req("wire.stop.polite")
async def test_a_child_that_reads_late_still_gets_everything_and_the_farewell(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    """Far more than a pipe holds waits when the ladder begins."""
    program = "import os, sys; os.read(3, 1); text = sys.stdin.read(); print(len(text), text[-4:].strip())"
    child = await spawner.spawn(Launch(argv=[*python, program], env=environ, extra={3: "r"}))
    collector = Collector()
    channel = Channel(child, collector, deadlines=deadlines, limits=PATIENT)
    for _ in range(40):
        channel.send(b"x" * 99_999 + b"\n")
    stopping = asyncio.create_task(stop_child(child, PATIENT, polite=lambda: channel.send_farewell(b"bye\n")))
    while not channel.outbox.ending:
        await asyncio.sleep(0)
    assert channel.outbox.queued > 1_000_000
    os.write(child.extra[3], b".")  # only now it begins to read
    assert (await stopping).step == "polite"
    assert collector.lines() == [b"4000004 bye"]


@pytest.mark.req("wire.stop.farewell-fails")
async def test_a_farewell_that_never_ends_is_bounded(spawner: PlainSpawner, environ: dict[str, str]) -> None:
    child = await spawner.spawn(Launch(argv=["cat"], env=environ))

    async def farewell() -> None:
        await asyncio.Event().wait()

    assert (await stop_child(child, QUICK.but(stop_term=15.0), polite=farewell)).exit is not None


@pytest.mark.req("wire.stop.busy")
async def test_a_stop_does_not_wait_for_other_people_s_threads(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]
) -> None:
    gate = threading.Event()
    loop = asyncio.get_running_loop()
    busy = [loop.run_in_executor(None, gate.wait) for _ in range(64)]
    try:
        child = await spawner.spawn(Launch(argv=faults.peer("stubborn"), env=environ))
        await JsonRpcPeer(child, deadlines=deadlines, limits=PATIENT).call("up", {})  # from now on it is stubborn
        assert (await stop_child(child, QUICK)).step == "kill"
    finally:
        gate.set()
        await asyncio.gather(*busy)


@pytest.mark.req("wire.stop.threads")
async def test_a_descendant_whose_main_thread_ended_is_still_killed(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], python: list[str]
) -> None:
    """It looks like a zombie, but its other thread runs on."""
    program = """
import ctypes, os, threading
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    def run():
        while True:
            os.write(1, b'%d\\n' % os.getpid()); threading.Event().wait(0.01)
    threading.Thread(target=run).start()
    ctypes.CDLL(None).pthread_exit(None)
os.wait(); input()
"""
    child = await spawner.spawn(Launch(argv=[*python, program], env=environ))
    collector = Collector()
    Channel(child, collector, deadlines=deadlines, limits=PATIENT)
    pid = int((await collector.wait_for(5))[0])
    await stop_child(child, QUICK)
    assert not lives(pid)


@pytest.mark.req("wire.stop.term")
async def test_a_child_that_ignores_the_end_of_its_input_gets_sigterm_in_its_whole_group(
    spawner: PlainSpawner, environ: dict[str, str]
) -> None:
    """The shell waits for its child, so it ends only because the child hears the signal too."""
    script = 'trap "" TERM; (trap - TERM; echo up; exec sleep 100); exit 5'
    child = await spawner.spawn(Launch(argv=["sh", "-c", script], env=environ))
    assert select.select([child.stdout], [], [], 30)[0]  # both hear signals as they want to by now
    assert await stop_child(child, PATIENT.but(stop_polite=0.2)) == StopResult("term", ExitStatus(code=5))


@pytest.mark.req("wire.stop.kill", "wire.fault.stubborn")
async def test_a_stubborn_child_is_killed_within_the_bounds(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]
) -> None:
    child = await spawner.spawn(Launch(argv=faults.peer("stubborn"), env=environ))
    rpc = JsonRpcPeer(child, deadlines=deadlines, limits=QUICK)
    await rpc.call("up", {})
    start = monotonic()
    assert await stop_child(child, QUICK) == StopResult("kill", ExitStatus(signal=signal.SIGKILL))
    assert QUICK.stop_polite + QUICK.stop_term <= monotonic() - start < 10
    assert process_tree.read_process(child.pid) is None


@pytest.mark.req("wire.stop.own-session")
async def test_a_descendant_with_its_own_session_dies_after_a_polite_end(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str], tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    child = await spawner.spawn(Launch(argv=faults.peer("daemon", pid_file=str(note)), env=environ))
    rpc = JsonRpcPeer(child, deadlines=deadlines, limits=QUICK)
    await rpc.call("fork", {})
    daemon = process_tree.read_process(int(note.read_text()))
    assert daemon is not None
    assert daemon.session != child.pid
    assert await stop_child(child, PATIENT) == StopResult("polite", ExitStatus(code=0))
    assert not lives(daemon.pid)


@pytest.mark.req("wire.stop.shielded")
async def test_a_cancelled_caller_leaves_the_ladder_to_finish(spawner: PlainSpawner, environ: dict[str, str]) -> None:
    """It ends with its SIGTERM, long after the caller left, and not by the kill of somebody who cleans up."""
    script = 'trap "exit 9" TERM; echo up; while :; do read line || sleep 0.02; done'
    child = await spawner.spawn(Launch(argv=["sh", "-c", script], env=environ))
    while not os.get_blocking(child.stdout) and not select.select([child.stdout], [], [], 10)[0]:
        pass
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await stop_child(child, PATIENT.but(stop_polite=0.1))
    assert await child.exited == ExitStatus(code=9)
    await child.close()


@pytest.mark.req("wire.stop.farewell-fails")
async def test_a_farewell_that_fails_does_not_stop_the_ladder(spawner: PlainSpawner, environ: dict[str, str]) -> None:
    child = await spawner.spawn(Launch(argv=["cat"], env=environ))

    async def farewell() -> None:
        raise BrokenPipeError

    assert await stop_child(child, PATIENT, polite=farewell) == StopResult("polite", ExitStatus(code=0))


async def test_stopping_what_has_ended_says_so(spawner: PlainSpawner, environ: dict[str, str]) -> None:
    child = await spawner.spawn(Launch(argv=["true"], env=environ))
    await child.exited
    assert await stop_child(child, QUICK) == StopResult("already", ExitStatus(code=0))
    assert await stop_child(child, QUICK) == StopResult("already", ExitStatus(code=0))


async def test_many_stubborn_children_cost_one_ladder_not_many(
    spawner: PlainSpawner, deadlines: Deadlines, environ: dict[str, str]
) -> None:
    limits = QUICK.but(stop_polite=0.5, stop_term=0.5)
    children = [await spawner.spawn(Launch(argv=faults.peer("stubborn"), env=environ)) for _ in range(30)]
    rpcs = [JsonRpcPeer(child, deadlines=deadlines, limits=PATIENT) for child in children]
    await asyncio.gather(*(rpc.call("up", {}) for rpc in rpcs))  # else it ends by the signal that it does not ignore yet
    start = monotonic()
    stopped = await asyncio.gather(*(stop_child(child, limits) for child in children))
    assert monotonic() - start < 30 * (limits.stop_polite + limits.stop_term) / 2  # one after the other would take twice that
    assert {how.step for how in stopped} == {"kill"}
    assert not [child for child in children if lives(child.pid)]

"""A host that dies leaves nobody behind, and nobody else is touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from serai.wire import proctree
from serai.wire.proctree import Process
from tests.wire.helpers import Ends, lives

PATIENCE = 15.0

# A host with one child per given fault; it tells what it started, then waits for orders: a line of further faults, or its end.
HOST = """
import asyncio, json, os, sys
from serai.limits import Limits
from serai.testing import faults
from serai.wire import Deadlines, Launch, PlainSpawner, Rpc

async def main():
    spawner = PlainSpawner(Limits().but(see=0.02))
    deadlines = Deadlines()
    loop = asyncio.get_running_loop()
    while True:
        line = await loop.run_in_executor(None, sys.stdin.readline)
        children = []
        for fault, options in json.loads(line):
            child = await spawner.spawn(Launch(argv=faults.peer(fault, **options), env=dict(os.environ)))
            await Rpc(child, deadlines=deadlines).call("up", {})
            children.append(child.pid)
        print(json.dumps([children, spawner._watchdog.pid, spawner.tag]), flush=True)

asyncio.run(main())
"""


class Started(NamedTuple):
    children: list[int]
    watchdog: int
    tag: str


class Host:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def start(self, *wanted: tuple[str, dict[str, object]]) -> Started:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(wanted) + "\n")
        self.process.stdin.flush()
        return Started(*json.loads(self.process.stdout.readline()))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def a_host() -> Iterator[Host]:
    with subprocess.Popen([sys.executable, "-c", HOST], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Host(process)
        finally:
            process.kill()


@pytest.mark.req("wire.watchdog.host-killed")
def test_a_killed_host_leaves_no_survivor_not_even_in_a_session_of_its_own(tmp_path: Path) -> None:
    note, held = tmp_path / "daemon", tmp_path / "holder"
    with a_host() as host:
        started = host.start(
            ("none", {}),
            ("stubborn", {}),
            ("daemon", {"pid_file": str(note)}),
            ("daemon", {"pid_file": str(held), "orphan": False, "clean": True}),
        )
        everyone = [*started.children, int(note.read_text()), int(held.read_text())]
        assert all(map(lives, everyone))
        with Ends([*everyone, started.watchdog]) as ends:
            host.kill()
            assert ends.left_after(PATIENCE) == set()


@pytest.mark.req("wire.watchdog.clean-environment")
def test_a_descendant_that_dropped_its_environment_and_lost_its_parent_was_seen_before(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    with a_host() as host:
        started = host.start(("daemon", {"pid_file": str(note), "orphan": False, "clean": True}))
        escaped = int(note.read_text())
        looks = _looks(started.watchdog)
        while _looks(started.watchdog) < looks + 3:  # it looks every 20 ms
            os.sched_yield()
        with Ends(started.children) as parent:
            os.kill(started.children[0], signal.SIGKILL)
            assert parent.left_after(PATIENCE) == set()
        process = proctree.read(escaped)
        assert process is not None
        assert process.parent not in started.children
        with Ends([escaped]) as ends:
            host.kill()
            assert ends.left_after(PATIENCE) == set()


def _looks(watchdog: int) -> int:
    """How often it went to sleep: once for each look."""
    with open(f"/proc/{watchdog}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches"))


@pytest.mark.req("wire.watchdog.nested")
def test_the_children_of_an_inner_host_die_with_the_outer_one() -> None:
    with a_host() as outer:
        tag = outer.start(("none", {})).tag
        os.environ[proctree.TAG] = f"{tag}.99"  # as a child of that host would have it
        try:
            with a_host() as inner:
                started = inner.start(("none", {}))
                assert started.tag.startswith(f"{tag}.99/")
                os.kill(started.watchdog, signal.SIGSTOP)  # only the outer one can help now
                with Ends([*started.children, inner.process.pid]) as ends:
                    outer.kill()
                    assert ends.left_after(PATIENCE) == set()
                os.kill(started.watchdog, signal.SIGKILL)
        finally:
            del os.environ[proctree.TAG]


@pytest.mark.req("wire.watchdog.one")
def test_there_is_one_watchdog_without_the_tag_and_it_ends_after_its_host() -> None:
    with a_host() as host:
        first = host.start(("none", {}))
        second = host.start(("none", {}), ("none", {}))
        assert first.watchdog == second.watchdog
        everyone = proctree.scan()
        assert everyone[first.watchdog].tag == ""
        assert everyone[first.children[0]].carries(first.tag)
        assert everyone[first.watchdog].session == first.watchdog
        os.kill(first.watchdog, signal.SIGTERM)  # not by a polite signal
        with Ends([first.watchdog]) as ends:
            assert ends.left_after(0.1) == {first.watchdog}
            host.kill()
            assert ends.left_after(PATIENCE) == set()


@pytest.mark.req("wire.watchdog.again")
def test_the_next_child_starts_another_watchdog_that_knows_the_living_ones(tmp_path: Path) -> None:
    with a_host() as host:
        first = host.start(("stubborn", {}))
        with Ends([first.watchdog]) as ends:
            os.kill(first.watchdog, signal.SIGKILL)
            assert ends.left_after(PATIENCE) == set()
        second = host.start(("none", {}))
        assert second.watchdog != first.watchdog
        with Ends([*first.children, *second.children]) as ends:
            host.kill()
            assert ends.left_after(PATIENCE) == set()


def everyone(*processes: Process) -> dict[int, Process]:
    return {process.pid: process for process in processes}


@pytest.mark.req("wire.watchdog.spares")
def test_we_and_our_ancestors_are_spared_whatever_tag_we_carry() -> None:
    me = os.getpid()
    table = everyone(
        Process(1, 0, 1, "S", 0),
        Process(50, 1, 50, "S", 5, "run"),
        Process(me, 50, 50, "S", 9, "run"),
        Process(7, me, 7, "S", 10, "run.1"),
    )
    assert [process.pid for process in proctree.tree(table, [], "run")] == [7]


@pytest.mark.req("wire.watchdog.spares")
def test_strangers_and_pids_given_to_others_are_left_alone() -> None:
    root = Process(10, 1, 10, "S", 100)
    reused = root._replace(started=999)
    table = everyone(reused, Process(11, 10, 10, "S", 1000), Process(12, 1, 12, "S", 50, "runner"), Process(13, 1, 13, "S", 1, ""))
    assert proctree.tree(table, [root], "run", known=[Process(13, 1, 13, "S", 2)]) == []


@pytest.mark.req("wire.watchdog.spares")
def test_a_pid_that_changed_hands_between_the_look_and_the_kill_is_not_killed() -> None:
    with subprocess.Popen(["sleep", "100"]) as stranger:
        actual = proctree.read(stranger.pid)
        assert actual is not None
        proctree.kill(actual._replace(started=actual.started - 1))
        assert lives(stranger.pid)
        proctree.kill(actual)
        assert stranger.wait(PATIENCE) == -signal.SIGKILL
        proctree.kill(actual)  # gone: nothing happens


def test_a_tree_is_found_by_parents_by_session_and_by_tag() -> None:
    root = Process(10, 1, 10, "Z", 100)
    table = everyone(
        root,
        Process(11, 10, 10, "S", 101),  # its child
        Process(12, 1, 10, "S", 102),  # lost its parent, kept the session
        Process(13, 1, 13, "S", 103, "run.1"),  # its own session, kept the tag
        Process(14, 13, 14, "S", 104),  # a child of that one
        Process(15, 1, 15, "S", 105, "run.1/inner.1"),  # of a host inside
        Process(16, 1, 16, "S", 106, "run.10"),  # another child of the run
        Process(17, 11, 10, "Z", 107),  # dead already
    )
    assert [process.pid for process in proctree.tree(table, [root], "run.1")] == [11, 12, 13, 14, 15]
    assert [process.pid for process in proctree.tree(table, [], "run")] == [13, 14, 15, 16]

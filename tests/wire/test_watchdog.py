"""A host that dies leaves nobody behind, and nobody else is touched."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from serai.wire import process_tree
from serai.wire.process_tree import Process
from serai.wire.watchdog_program import WatchedTree, _apply_lines
from tests.support.processes import Ends, lives

PATIENCE = 15.0

# A host with one child per given fault; it tells what it started, then waits for orders: a line of further faults, or its end.
HOST = """
import asyncio, json, os, signal, sys
from serai.limits import Limits
from serai.testing import faults
from serai.wire import Deadlines, Launch, PlainSpawner, JsonRpcPeer

async def main():
    spawner = PlainSpawner(Limits().but(see=0.02))
    deadlines = Deadlines()
    loop = asyncio.get_running_loop()
    while True:
        line = await loop.run_in_executor(None, sys.stdin.readline)
        if line.startswith("fork"):
            copy = os.fork()
            if copy == 0: signal.pause()
            print(json.dumps([copy]), flush=True)
            continue
        if line.startswith("close"):
            for child in list(spawner.children):
                if child.pid == int(line[6:]): await child.close()
            continue
        children = []
        for fault, options in json.loads(line):
            child = await spawner.spawn(Launch(argv=faults.peer(fault, **options), env=dict(os.environ)))
            await JsonRpcPeer(child, deadlines=deadlines).call("up", {})
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

    def fork(self) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("fork\n")
        self.process.stdin.flush()
        copy: int = json.loads(self.process.stdout.readline())[0]
        return copy

    def close(self, pid: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"close {pid}\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def start_host() -> Iterator[Host]:
    with subprocess.Popen([sys.executable, "-c", HOST], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Host(process)
        finally:
            process.kill()


@pytest.mark.req("wire.watchdog.host-killed")
def test_a_killed_host_leaves_no_survivor_not_even_in_a_session_of_its_own(tmp_path: Path) -> None:
    note, held = tmp_path / "daemon", tmp_path / "holder"
    with start_host() as host:
        started = host.start(
            ("none", {}),
            ("stubborn", {}),
            ("daemon", {"pid_file": str(note)}),
            ("daemon", {"pid_file": str(held), "orphan": False, "clean": True}),
        )
        everyone = [*started.children, int(note.read_text()), int(held.read_text())]
        assert all(map(lives, everyone))
        _wait_for_looks(started.watchdog)
        with Ends([*everyone, started.watchdog]) as ends:
            host.kill()
            assert ends.left_after(PATIENCE) == set()


@pytest.mark.req("wire.watchdog.clean-environment")
def test_a_descendant_that_dropped_its_environment_and_lost_its_parent_was_seen_before(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    with start_host() as host:
        started = host.start(("daemon", {"pid_file": str(note), "orphan": False, "clean": True}))
        escaped = int(note.read_text())
        _wait_for_looks(started.watchdog)
        with Ends(started.children) as parent:
            os.kill(started.children[0], signal.SIGKILL)
            assert parent.left_after(PATIENCE) == set()
        process = process_tree.read_process(escaped)
        assert process is not None
        assert process.parent not in started.children
        with Ends([escaped]) as ends:
            host.kill()
            assert ends.left_after(PATIENCE) == set()


def _wait_for_looks(watchdog: int) -> None:
    """It hears of a child within 20 ms, and looks every 20 ms."""
    looks = _count_looks(watchdog)
    while _count_looks(watchdog) < looks + 5:
        os.sched_yield()


def _count_looks(watchdog: int) -> int:
    """How often it went to sleep: once for each look."""
    with open(f"/proc/{watchdog}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches"))


@pytest.mark.req("wire.watchdog.nested")
def test_the_children_of_an_inner_host_die_with_the_outer_one() -> None:
    with start_host() as outer:
        tag = outer.start(("none", {})).tag
        os.environ[process_tree.TAG] = f"{tag}.99"  # as a child of that host would have it
        try:
            with start_host() as inner:
                started = inner.start(("none", {}))
                assert started.tag.startswith(f"{tag}.99/")
                os.kill(started.watchdog, signal.SIGSTOP)  # only the outer one can help now
                with Ends([*started.children, inner.process.pid, started.watchdog]) as ends:
                    outer.kill()
                    left = ends.left_after(PATIENCE)
                if started.watchdog in left:  # stopped as it is, it would stay for ever
                    os.kill(started.watchdog, signal.SIGKILL)
                assert left == set()
        finally:
            del os.environ[process_tree.TAG]


def ignores(pid: int, number: int) -> bool:
    [mask] = re.findall(r"^SigIgn:\t([0-9a-f]+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return bool(int(mask, 16) >> (number - 1) & 1)


@pytest.mark.req("wire.watchdog.one")
def test_there_is_one_watchdog_without_the_tag_and_it_ends_after_its_host() -> None:
    with start_host() as host:
        first = host.start(("none", {}))
        second = host.start(("none", {}), ("none", {}))
        assert first.watchdog == second.watchdog
        everyone = process_tree.scan_processes()
        assert everyone[first.watchdog].tag == ""
        assert everyone[first.children[0]].carries(first.tag)
        assert everyone[first.watchdog].session == first.watchdog
        with Ends([first.watchdog]) as ends:
            while not ignores(first.watchdog, signal.SIGTERM):  # it may still be starting
                assert ends.left_after(0.01) == {first.watchdog}
            os.kill(first.watchdog, signal.SIGTERM)  # not by a polite signal
            assert ends.left_after(0.1) == {first.watchdog}
            host.kill()
            assert ends.left_after(PATIENCE) == set()


@pytest.mark.req("wire.watchdog.again")
def test_the_next_child_starts_another_watchdog_that_knows_the_living_ones(tmp_path: Path) -> None:
    with start_host() as host:
        first = host.start(("stubborn", {}))
        with Ends([first.watchdog]) as ends:
            os.kill(first.watchdog, signal.SIGKILL)
            assert ends.left_after(PATIENCE) == set()
        second = host.start(("none", {}))
        assert second.watchdog != first.watchdog
        with Ends([*first.children, *second.children]) as ends:
            host.kill()
            assert ends.left_after(PATIENCE) == set()


@pytest.mark.req("wire.watchdog.clean-environment")
def test_what_only_the_watchdog_has_seen_of_a_child_dies_when_the_child_is_closed(tmp_path: Path) -> None:
    """In a host that lives on, and that keeps it busy with other children meanwhile."""
    note = tmp_path / "pid"
    with start_host() as host:
        started = host.start(("daemon", {"pid_file": str(note), "orphan": False, "clean": True}))
        escaped = int(note.read_text())
        looks = _count_looks(started.watchdog)
        while _count_looks(started.watchdog) < looks + 20:
            host.start(("none", {}))
        with Ends(started.children) as parent:
            os.kill(started.children[0], signal.SIGKILL)
            assert parent.left_after(PATIENCE) == set()
        assert lives(escaped)
        with Ends([escaped]) as ends:
            host.close(started.children[0])
            assert ends.left_after(PATIENCE) == set()


@pytest.mark.req("wire.watchdog.spares")
def test_the_children_of_a_stranger_with_a_pid_that_was_seen_are_not_taken_in(monkeypatch: pytest.MonkeyPatch) -> None:
    root, seen = Process(10, 1, 10, "S", 100), Process(11, 10, 10, "S", 101)
    now = {10: root, 11: seen._replace(started=999), 12: Process(12, 11, 11, "S", 1000)}
    children = {10: set(), 11: {12}}
    monkeypatch.setattr(process_tree, "read_process", now.get)
    monkeypatch.setattr(process_tree, "walk_children", lambda pids: set().union(*(children[pid] for pid in pids)))
    watched = WatchedTree(root)
    watched.seen = {11: seen}
    watched.look()
    assert watched.seen == {}


@pytest.mark.req("wire.watchdog.host-killed")
def test_a_forked_copy_of_the_host_that_holds_the_pipe_does_not_hide_its_death() -> None:
    with start_host() as host:
        started = host.start(("stubborn", {}))
        copy = host.fork()
        try:
            with Ends(started.children) as ends:
                host.kill()
                assert ends.left_after(PATIENCE) == set()
        finally:
            os.kill(copy, signal.SIGKILL)


@pytest.mark.req("wire.watchdog.spares")
def test_a_child_is_known_by_its_start_time_and_not_by_its_pid_alone() -> None:
    me = process_tree.read_process(os.getpid())
    assert me is not None
    roots: dict[int, WatchedTree] = {}
    assert _apply_lines(b"+%d %d\n+%d %d\nrest" % (me.pid, me.started - 1, me.pid, me.started + 1), roots) == b"rest"
    assert roots == {}
    _apply_lines(b"+%d %d\n" % (me.pid, me.started), roots)
    assert list(roots) == [me.pid]
    _apply_lines(b"-%d %d\n" % (me.pid, me.started + 1), roots)
    assert list(roots) == [me.pid]
    _apply_lines(b"-%d %d\n-%d %d\n" % (me.pid, me.started, me.pid, me.started), roots)
    assert roots == {}

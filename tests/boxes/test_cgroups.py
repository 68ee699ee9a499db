"""Control groups: limits that hold, freezing, killing, and finding them again; and what holds a box of a user who has none."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from serai.boxes.backend import BoxResources
from serai.boxes.cgroups import BoxCgroup, Cgroups
from tests.support.boxes.launched_boxes import AM_ROOT, PATIENCE, BoxLauncher, Way, launch_boxes, wait_until

GROUPS = Cgroups.probe()
can_limit = pytest.mark.skipif(not GROUPS.limiting.memory, reason="no control group with a limit of memory can be made here")
can_hold = pytest.mark.skipif(not GROUPS.trees, reason="no control group can be made here")
WAY = Way("own", AM_ROOT)


@pytest.fixture
def generation() -> str:
    return secrets.token_hex(8)


@pytest.fixture
def launch() -> Iterator[BoxLauncher]:
    with launch_boxes() as made:
        yield made


def read_group_file(group: BoxCgroup, file: str) -> str:
    return next(Path(folder, file).read_text().strip() for folder in group.folders if Path(folder, file).exists())


@can_hold
@pytest.mark.req("hooks.scenario.backend-02")
def test_groups_are_made_with_their_limits_found_again_and_removed(generation: str) -> None:
    allowance = BoxResources(memory=64 << 20 if GROUPS.limiting.memory else None, pids=7 if GROUPS.limiting.pids else None)
    group = GROUPS.make(generation, allowance)
    try:
        if GROUPS.limiting.memory:
            version_2 = any(Path(folder, "memory.max").exists() for folder in group.folders)
            assert read_group_file(group, "memory.max" if version_2 else "memory.limit_in_bytes") == str(64 << 20)
        if GROUPS.limiting.pids:
            assert read_group_file(group, "pids.max") == "7"
        assert Cgroups.probe().find(generation).folders == group.folders
        assert GROUPS.make(generation, allowance).folders == group.folders  # as after a pause
    finally:
        group.remove()
    group.remove()
    assert GROUPS.find(generation).folders == ()
    assert not any(os.path.exists(folder) for folder in group.folders)


@can_hold
def test_all_that_is_in_a_group_can_be_frozen_thawed_and_killed(generation: str) -> None:
    group = GROUPS.make(generation, BoxResources())
    child = subprocess.Popen(["/bin/sh", "-c", "read go; while :; do sh -c 'sleep 100 & sleep 100'; done"], stdin=subprocess.PIPE)
    try:
        for folder in group.folders:
            Path(folder, "cgroup.procs").write_text(str(child.pid))
        assert child.stdin is not None
        child.stdin.write(b"go\n")
        child.stdin.close()
        wait_until(lambda: len(group.list_pids()) >= 4)
        group.freeze()
        frozen = group.list_pids()
        group.freeze()
        group.thaw()
        group.thaw()
        assert frozen <= group.list_pids()
        group.freeze()
        assert group.kill()  # also what is frozen
        assert child.wait(PATIENCE) == -9
        assert group.list_pids() == set()
        assert group.kill()
    finally:
        group.kill()
        child.wait(PATIENCE)
        group.remove()


@can_limit
@pytest.mark.req("hooks.scenario.backend-02")
def test_a_memory_bomb_dies_alone(launch: BoxLauncher, generation: str) -> None:
    group = GROUPS.make(generation, BoxResources(memory=128 << 20))
    try:
        box = launch(WAY, cgroups=group.folders, generation=generation)
        bomb = box.python("data = []\nwhile True: data.append(bytearray(b'x') * (1 << 20))")
        assert bomb.code in (-1, 137), bomb
        assert box.sh("echo still here").stdout == "still here\n"
        assert box.python("print(len(bytearray(b'x') * (32 << 20)) >> 20)").stdout == "32\n"
        box.end()
    finally:
        group.kill()
        group.remove()


@pytest.mark.skipif(not GROUPS.limiting.pids, reason="no control group with a limit of processes can be made here")
@pytest.mark.req("hooks.scenario.backend-02")
def test_a_fork_bomb_stops_at_the_limit(launch: BoxLauncher, generation: str) -> None:
    group = GROUPS.make(generation, BoxResources(pids=40))
    try:
        box = launch(WAY, cgroups=group.folders, generation=generation)
        box.sh("b() { b | b & }; b >/dev/null 2>&1")
        wait_until(lambda: not read_group_file(group, "pids.events").endswith("max 0"))  # somebody was refused
        assert int(read_group_file(group, "pids.current")) <= 40
        assert len(group.list_pids()) <= 40
        box.end()
        wait_until(lambda: not group.list_pids())
    finally:
        group.kill()
        group.remove()


@pytest.mark.skipif(not GROUPS.limiting.cpus, reason="no control group with a limit of processor time can be made here")
@pytest.mark.req("hooks.scenario.backend-02")
def test_a_box_that_wants_more_processor_time_is_throttled(launch: BoxLauncher, generation: str) -> None:
    group = GROUPS.make(generation, BoxResources(cpus=0.2))
    try:
        box = launch(WAY, cgroups=group.folders, generation=generation)
        box.sh("n=0; while [ $n -lt 300000 ]; do n=$((n+1)); done")
        stat = dict(line.split() for line in read_group_file(group, "cpu.stat").splitlines())
        assert int(stat["nr_throttled"]) > 0
        box.end()
    finally:
        group.kill()
        group.remove()


@can_hold
def test_a_frozen_box_ends_with_its_lifeline(launch: BoxLauncher, generation: str) -> None:
    group = GROUPS.make(generation, BoxResources())
    try:
        box = launch(WAY, cgroups=group.folders, generation=generation)
        group.freeze()
        box.end()
        assert group.list_pids() == set()
    finally:
        group.kill()
        group.remove()


USER_LIMITS = pytest.mark.parametrize("mode", ["own", "bwrap"])


@USER_LIMITS
@pytest.mark.req("hooks.scenario.backend-02")
def test_without_control_groups_each_process_has_so_much_memory(launch: BoxLauncher, mode: str) -> None:
    way = Way("own", False) if mode == "own" else Way("bwrap", False)
    box = launch(way, rlimits={"AS": 256 << 20})
    assert "MemoryError" in box.python("bytearray(300 << 20)").stderr
    assert box.python("print(len(bytearray(32 << 20)) >> 20)").stdout == "32\n"


@USER_LIMITS
@pytest.mark.req("hooks.scenario.backend-02")
def test_without_control_groups_a_users_fork_bomb_still_stops(launch: BoxLauncher, mode: str) -> None:
    way = Way("own", False) if mode == "own" else Way("bwrap", False)
    box = launch(way, rlimits={"NPROC": 30})
    count = """
import os, signal
made = []
try:
    while len(made) < 200:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        made.append(pid)
except BlockingIOError:
    pass
for pid in made:
    os.kill(pid, signal.SIGKILL)
print(len(made))
"""
    assert 20 <= int(box.python(count).stdout) < 30
    other = launch(way, rlimits={"NPROC": 30})
    assert 20 <= int(other.python(count).stdout) < 30  # each box has its own count


V2 = "30 23 0:26 / {at} rw,nosuid - cgroup2 cgroup2 rw\n"


def test_groups_are_made_as_high_up_as_we_may_write(tmp_path: Path) -> None:
    """A tree as a session of an ordinary user has it: the upper part is the system's, below it is delegated."""
    at = tmp_path / "tree"
    for part in ("", "user", "user/mine", "user/mine/session"):
        (at / part).mkdir()
        for file in ("cgroup.procs", "cgroup.subtree_control", "cgroup.controllers"):
            (at / part / file).write_text("memory pids\n" if file != "cgroup.procs" else "")
    for part in ("", "user"):
        (at / part / "cgroup.procs").unlink()  # also root may not write what is not there
    (tmp_path / "mounts").write_text(V2.format(at=at))
    (tmp_path / "own").write_text("0::/user/mine/session\n")
    found = Cgroups.probe(str(tmp_path / "mounts"), str(tmp_path / "own"))
    assert [tree.folder for tree in found.trees] == [str(at / "user/mine/serai")]
    assert (found.limiting.memory, found.limiting.cpus, found.limiting.pids) == ("box", "", "box")
    assert found.freezes


def test_where_there_are_no_groups_nothing_is_claimed(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    found = Cgroups.probe(str(tmp_path / "empty"), str(tmp_path / "empty"))
    assert (found.trees, found.freezes) == ((), False)
    assert (found.limiting.memory, found.limiting.cpus, found.limiting.pids) == ("", "", "")
    assert found.make("abc", BoxResources()).folders == ()
    assert found.find("abc").kill()

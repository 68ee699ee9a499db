"""Which processes belong to a tree, on made-up process tables; their unique names; and killing only whom was meant."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from time import monotonic
from types import SimpleNamespace

import pytest

from serai.wire import process_tree
from serai.wire.process_tree import Process
from tests.support.processes import lives

PATIENCE = 15.0


def map_pids(*processes: Process) -> dict[int, Process]:
    return {process.pid: process for process in processes}


@pytest.mark.req("wire.watchdog.spares")
def test_we_and_our_ancestors_are_spared_whatever_tag_we_carry() -> None:
    me = os.getpid()
    table = map_pids(
        Process(1, 0, 1, "S", 0),
        Process(50, 1, 50, "S", 5, "run"),
        Process(me, 50, 50, "S", 9, "run"),
        Process(7, me, 7, "S", 10, "run.1"),
    )
    assert [process.pid for process in process_tree.find_tree(table, [], "run")] == [7]


@pytest.mark.req("wire.watchdog.spares")
def test_strangers_and_pids_given_to_others_are_left_alone() -> None:
    root = Process(10, 1, 10, "S", 100)
    reused = root._replace(started=999)
    table = map_pids(reused, Process(11, 10, 10, "S", 1000), Process(12, 1, 12, "S", 50, "runner"), Process(13, 1, 13, "S", 1, ""))
    assert process_tree.find_tree(table, [root], "run", known=[Process(13, 1, 13, "S", 2)]) == []


@pytest.mark.req("wire.watchdog.spares")
def test_a_pid_that_changed_hands_between_the_look_and_the_kill_is_not_killed() -> None:
    with subprocess.Popen(["sleep", "100"]) as stranger:
        actual = process_tree.read_process(stranger.pid)
        assert actual is not None
        process_tree.kill_process(actual._replace(started=actual.started - 1))
        assert lives(stranger.pid)
        process_tree.kill_process(actual)
        assert stranger.wait(PATIENCE) == -signal.SIGKILL
        process_tree.kill_process(actual)  # gone: nothing happens


def test_a_tree_is_found_by_parents_by_session_and_by_tag() -> None:
    root = Process(10, 1, 10, "Z", 100)
    table = map_pids(
        root,
        Process(11, 10, 10, "S", 101),  # its child
        Process(12, 1, 10, "S", 102),  # lost its parent, kept the session
        Process(13, 1, 13, "S", 103, "run.1"),  # its own session, kept the tag
        Process(14, 13, 14, "S", 104),  # a child of that one
        Process(15, 1, 15, "S", 105, "run.1/inner.1"),  # of a host inside
        Process(16, 1, 16, "S", 106, "run.10"),  # another child of the run
        Process(17, 11, 10, "Z", 107),  # dead already
    )
    assert [process.pid for process in process_tree.find_tree(table, [root], "run.1")] == [11, 12, 13, 14, 15]
    assert [process.pid for process in process_tree.find_tree(table, [], "run")] == [13, 14, 15, 16]


def test_a_process_is_read_whatever_its_name(tmp_path: Path) -> None:
    odd = tmp_path / "a) S 1 (b"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([str(odd), "100"]) as process:
        try:
            read = process_tree.read_process(process.pid)
            assert read is not None
            assert (read.pid, read.parent, read.alive) == (process.pid, os.getpid(), True)
            assert process.pid in process_tree.walk_children([os.getpid()])
        finally:
            process.kill()


def test_there_is_nothing_to_read_of_a_process_that_is_gone() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    assert process_tree.read_process(process.pid) is None
    assert process_tree.walk_children([process.pid]) == set()


TAG = f"{secrets.token_hex(8)}.1"  # no other worker of the tests has it


def make_zombie(*argv: str) -> Iterator[int]:
    """A program that has ended and is not reaped."""
    pid = os.posix_spawnp(argv[0], argv, {"PATH": os.environ["PATH"], process_tree.TAG: TAG}, setsid=True)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    yield pid
    os.waitpid(pid, 0)


class Numbers:
    """What the kernel tells of its numbers, as a test wants it: the last one, and how many there are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.last: int | None = None
        self.circle = 4_194_304
        self._contents = process_tree._read_contents
        monkeypatch.setattr(process_tree, "_read_contents", self.contents)
        monkeypatch.setattr(process_tree, "_FEW", 10_000)  # other tests start programs too
        process_tree._estimate_pid_cycle.cache_clear()

    def contents(self, path: str) -> bytes:
        if path == "/proc/sys/kernel/pid_max":
            return b"%d\n" % self.circle
        if path == "/proc/sys/kernel/ns_last_pid":
            if self.last is None:
                raise FileNotFoundError(path)
            return b"%d\n" % self.last
        return self._contents(path)


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Numbers]:
    yield Numbers(monkeypatch)
    process_tree._estimate_pid_cycle.cache_clear()


def is_proved_gone(pid: int, strangers: Container[int] = ()) -> bool:
    """Whether it left nobody. Other tests start programs too, and while one is in the middle of its exec nothing is proved."""
    end = monotonic() + PATIENCE
    while not (found := process_tree.has_no_descendants(pid, TAG, 0.001, strangers)) and monotonic() < end:
        os.sched_yield()
    return found


@pytest.mark.req("wire.process.short-look")
def test_when_no_number_was_given_since_it_left_nobody(numbers: Numbers) -> None:
    for pid in make_zombie("true"):
        numbers.last = pid
        assert process_tree.has_no_descendants(pid, TAG, 0.001)


@pytest.mark.req("wire.process.short-look")
def test_nobody_is_proved_only_when_nobody_was_born_meanwhile(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    for pid in make_zombie("true"):
        numbers.last = pid
        real = numbers.contents

        def hurried(path: str, real: Callable[[str], bytes] = real) -> bytes:
            answer = real(path)
            if path.endswith("ns_last_pid"):
                numbers.last = (numbers.last or 0) + 1
            return answer

        monkeypatch.setattr(process_tree, "_read_contents", hurried)
        assert not process_tree.has_no_descendants(pid, TAG, 0.001)


@pytest.mark.req("wire.process.short-look")
def test_nobody_is_proved_only_when_the_kernel_tells_and_the_numbers_cannot_have_gone_round(numbers: Numbers) -> None:
    for pid in make_zombie("true"):
        assert not process_tree.has_no_descendants(pid, TAG, 0.001)
        numbers.last = pid
        assert not process_tree.has_no_descendants(pid, TAG, 5.0)
        numbers.circle = 32768
        process_tree._estimate_pid_cycle.cache_clear()
        assert not process_tree.has_no_descendants(pid, TAG, 0.05)
        assert process_tree.has_no_descendants(pid, TAG, 0.005)
        numbers.last = pid + 10_001  # more than a short look takes
        assert not process_tree.has_no_descendants(pid, TAG, 0.005)
        numbers.last = 300  # went round
        assert not process_tree.has_no_descendants(pid, TAG, 0.005)


@pytest.mark.req("wire.process.short-look")
@pytest.mark.parametrize("script", ["setsid sleep 100 >&- 2>&- &", "env -i sleep 100 >&- 2>&- &"])
def test_who_is_left_is_seen_by_its_tag_or_its_session(numbers: Numbers, script: str) -> None:
    for pid in make_zombie("sh", "-c", script):
        while not (
            left := [
                one for one in process_tree.scan_processes().values() if one.alive and (one.session == pid or one.carries(TAG))
            ]
        ):
            os.sched_yield()  # it is on its way to become another program
        try:
            numbers.last = max(process.pid for process in left)
            assert not process_tree.has_no_descendants(pid, TAG, 0.001)
        finally:
            for process in left:
                process_tree.kill_process(process)


@pytest.mark.req("wire.process.short-look")
def test_strangers_that_are_younger_are_told_apart(numbers: Numbers) -> None:
    for pid in make_zombie("true"):
        with subprocess.Popen(["sleep", "100"]) as stranger:
            try:
                numbers.last = max(stranger.pid, pid)
                assert is_proved_gone(pid)
                assert is_proved_gone(pid, range(stranger.pid + 1))
            finally:
                stranger.kill()


def test_who_has_nothing_to_show_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each further look takes time: on a busy machine those of all the kernel's threads took seconds."""
    waits: list[float] = []
    monkeypatch.setattr(process_tree, "time", SimpleNamespace(monotonic=monotonic, sleep=waits.append))
    kernels = [
        one.pid for one in process_tree.scan_processes().values() if one.parent == 2
    ]  # none where we see our own processes alone
    assert {process_tree.read_proc_file(f"/proc/{pid}/environ") for pid in kernels} <= {b""}
    with subprocess.Popen(["sleep", "100"], env={}) as bare, subprocess.Popen(["true"]) as zombie:
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        try:
            while not process_tree.read_proc_file(f"/proc/{bare.pid}/cmdline"):
                continue
            waits.clear()
            assert (
                process_tree.read_proc_file(f"/proc/{bare.pid}/environ")
                == process_tree.read_proc_file(f"/proc/{zombie.pid}/environ")
                == b""
            )
        finally:
            bare.kill()
    assert waits == []


class MidExec:
    """A process that shows nothing of itself for so many looks, as one in the middle of its exec that waits for a core."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pid: int, looks: int) -> None:
        self.hidden = {f"/proc/{pid}/environ", f"/proc/{pid}/cmdline"}
        self.looks = looks
        self._contents = process_tree._read_contents
        monkeypatch.setattr(process_tree, "_read_contents", self.contents)

    def contents(self, path: str) -> bytes:
        if path in self.hidden and self.looks:
            self.looks -= 1
            return b""
        return self._contents(path)


@contextlib.contextmanager
def start_tagged(*argv: str) -> Iterator[int]:
    with subprocess.Popen(argv, env={"PATH": os.environ["PATH"], process_tree.TAG: TAG}, start_new_session=True) as process:
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.mark.req("wire.process.mid-exec")
def test_who_is_in_the_middle_of_its_exec_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty looks at once were over before the exec was, and a daemon that had just been started outlived its guest."""
    with start_tagged("sleep", "100") as pid:
        since = process_tree.read_process(os.getpid())
        assert since is not None
        slow = MidExec(monkeypatch, pid, 300)
        assert process_tree.scan_processes(since.started)[pid].tag == TAG
        assert slow.looks == 0
        slow.looks = 300
        assert process_tree.read_proc_file(f"/proc/{pid}/cmdline") == b"sleep\x00100\x00"


@pytest.mark.req("wire.process.mid-exec")
def test_who_hides_all_of_itself_delays_a_look_once_and_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    with start_tagged("sleep", "100") as one, start_tagged("sleep", "100") as other:
        waited: list[float] = []
        clock = SimpleNamespace(monotonic=lambda: sum(waited), sleep=waited.append)
        monkeypatch.setattr(process_tree, "time", clock)
        hidden = MidExec(monkeypatch, one, 1_000_000)
        hidden.hidden |= MidExec(monkeypatch, other, 1_000_000).hidden
        table = process_tree.scan_processes()
        assert [table[pid].tag for pid in (one, other)] == [None, None]
        assert not table[one].carries(TAG)
        assert 0.5 <= sum(waited) < 0.6


@pytest.mark.req("wire.process.mid-exec")
def test_nobody_is_proved_only_when_everybody_shows_who_it_is(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    for ended_pid in make_zombie("true"):
        with subprocess.Popen(["sleep", "100"]) as stranger:
            try:
                numbers.last = max(stranger.pid, ended_pid)
                assert is_proved_gone(ended_pid)
                hidden = MidExec(monkeypatch, stranger.pid, 2)
                assert not process_tree.has_no_descendants(ended_pid, TAG, 0.001)
                assert hidden.looks == 0  # it is the loop's own thread that looks: no waiting
            finally:
                stranger.kill()


def test_who_is_found_late_is_killed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the look alone may take longer than there is time."""
    now = iter(range(0, 1_000_000, 10))
    monkeypatch.setattr(process_tree, "time", SimpleNamespace(monotonic=lambda: next(now), sleep=lambda _seconds: None))
    with subprocess.Popen(["sleep", "100"]) as late:
        found = process_tree.read_process(late.pid)
        assert found is not None
        process_tree.kill_until_gone(lambda: [found] if late.poll() is None else [], seconds=5.0)
        assert late.wait() == -signal.SIGKILL


def test_survivors_are_told_when_the_time_is_up() -> None:
    stubborn = Process(2**22 - 1, 1, 1, "D", 1)  # a number no process has: killing it does nothing
    assert process_tree.kill_until_gone(lambda: [stubborn], seconds=0.01) == [stubborn]


def test_what_was_killed_is_waited_for_also_when_nothing_tells_whose_it_is_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process on its way out has no environment and may have lost its parent, so it is found once and then never again."""
    kills = []
    kill = process_tree.kill_process

    def slow(process: Process) -> None:  # the kernel's way of killing: some time later
        kills.append(process.pid)
        if len(kills) > 2:
            kill(process)

    monkeypatch.setattr(process_tree, "kill_process", slow)
    with subprocess.Popen(["sleep", "100"]) as process:
        seen = [[found] if (found := process_tree.read_process(process.pid)) else []]
        assert process_tree.kill_until_gone(lambda: seen.pop() if seen else [], seconds=PATIENCE) == []
        assert kills[:3] == [process.pid] * 3
        assert not lives(process.pid)
        process.wait()


def test_a_process_is_known_by_its_name_while_it_lives_and_is_gone_after() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        owner = process_tree.get_identity(child.pid)
        assert process_tree.parse_identity_pid(owner) == child.pid
        assert (process_tree.is_alive(owner), process_tree.is_gone(owner)) == (True, False)
        assert process_tree.is_alive(f"{owner}#its-own")
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert (process_tree.is_alive(owner), process_tree.is_gone(owner)) == (False, True)  # a zombie
    assert process_tree.is_gone(owner)


def test_of_a_process_in_another_container_nobody_can_say_that_it_is_gone() -> None:
    pid, started, boot, namespace = process_tree.get_own_identity().split(":")
    elsewhere = f"{pid}:{started}:{boot}:{int(namespace) + 1}"
    assert (process_tree.is_alive(elsewhere), process_tree.is_gone(elsewhere)) == (False, False)
    before_the_boot = f"{pid}:{started}:another-boot:{int(namespace) + 1}"
    assert (process_tree.is_alive(before_the_boot), process_tree.is_gone(before_the_boot)) == (False, True)


def test_a_name_without_a_namespace_is_of_this_one() -> None:
    older = process_tree.get_own_identity().rpartition(":")[0]
    assert (process_tree.is_alive(older), process_tree.is_gone(older)) == (True, False)
    pid, _, rest = older.partition(":")
    for dead in (f"{pid}:1:{rest.partition(':')[2]}", "", "x", f"{pid}:{rest.partition(':')[0]}:no-boot"):
        assert (process_tree.is_alive(dead), process_tree.is_gone(dead)) == (False, True)

"""The descendants of a process, and killing all of them (Linux `/proc`; standard library only, the watchdog program uses it too).

A child's tree is found three ways, because each alone can be escaped: by parent links, by the session the child leads, and by the
tag in the environment, which survives `setsid`, double forks and re-parenting. A process that drops its environment and is
re-parented at once escapes; the caller remembers what was seen before that and passes it in as `known`.

`get_identity` names a process so that a later one with the same pid is not taken for it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Container, Iterable
from functools import cache
from typing import NamedTuple, TypeGuard

TAG = "SERAI_RUN"
_ENTRY = f"\0{TAG}=".encode()
# So many seconds one look at all processes waits for those in the middle of their exec, and how often it looks again. They are
# over in a tenth of a millisecond, on a busy machine in ten; one that waits for a disk takes longer.
_PATIENCE, _PAUSE = 0.5, 0.0005
_READ = 16384
_PAIR = {"environ": "cmdline", "cmdline": "environ"}
# Flags of a process, as the kernel has them (PF_EXITING, PF_KTHREAD).
_EXITING, _KERNEL = 0x4, 0x200000
# To look at so many numbers one by one is still quicker than to look at all processes.
_FEW = 32
# No machine gives out a process number in less time than this, in seconds.
_NUMBER = 1e-6


class Process(NamedTuple):
    """A process at one moment. `(pid, started)` is its identity: a pid alone may be somebody else's by now.

    Its `tag` is None when it could not be told: in the middle of an exec there is nothing to see.
    """

    pid: int
    parent: int
    session: int
    state: str
    started: int
    tag: str | None = ""
    threads: int = 1

    @property
    def alive(self) -> bool:
        """A main thread that ended is a zombie while other threads run on."""
        return self.state not in "ZX" or self.threads > 1

    def carries(self, tag: str) -> bool:
        """Whether it has this tag, or one made beneath it: a child's (`tag.1`) or that of a host inside (`tag/…`)."""
        return self.tag is not None and (self.tag == tag or self.tag.startswith((tag + ".", tag + "/")))


def read_process(pid: int) -> Process | None:
    """The process, or None when there is none of that pid."""
    try:
        stat = _read_contents(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The name in parentheses may hold anything, also spaces and parentheses.
    fields = stat[stat.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    state, parent, session, threads, started = (fields[number] for number in (0, 1, 3, 17, 19))
    return Process(pid, int(parent), int(session), state.decode(), int(started), threads=int(threads))


def scan_processes(since: int = 0) -> dict[int, Process]:
    """All processes of the machine that we may see; with their tags those that started `since` then, in the kernel's ticks."""
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    until = exec_deadline()
    return {
        process.pid: process._replace(tag=_read_tag(process, until)) if process.started >= since else process
        for process in found
        if process is not None
    }


def _read_tag(process: Process, until: float) -> str | None:
    if process.state not in "ZX":
        return _read_tag_from(f"/proc/{process.pid}/environ", until)
    if process.threads == 1:
        return ""
    try:  # its main thread has ended and shows nothing; the others do
        threads = os.listdir(f"/proc/{process.pid}/task")
    except OSError:
        return ""
    return max((_read_tag_from(f"/proc/{process.pid}/task/{thread}/environ", 0) or "" for thread in threads), default="")


def _read_tag_from(path: str, until: float) -> str | None:
    contents = _read_proc_file(path, until)
    if contents is None:
        return None
    _, found, rest = (b"\0" + contents).partition(_ENTRY)
    return rest.partition(b"\0")[0].decode(errors="replace") if found else ""


def read_proc_file(path: str, until: float | None = None) -> bytes:
    """What a process shows of itself (environ, cmdline); nothing of one that is gone or somebody else's."""
    return _read_proc_file(path, exec_deadline() if until is None else until) or b""


def exec_deadline() -> float:
    """Until when a look that begins now waits for those in the middle of their exec: all of them together."""
    return time.monotonic() + _PATIENCE


def _read_proc_file(path: str, until: float) -> bytes | None:
    """What it shows, or None for one that was in the middle of its exec until then: a program shows neither for that moment.

    Time must pass between two looks: the exec may wait for a core or a disk, and to look fifty times at once took less than it.
    One that has nothing to show is looked at once.
    """
    folder, _, name = path.rpartition("/")
    try:
        while True:
            if contents := _read_contents(path):
                return contents
            if _read_contents(f"{folder}/{_PAIR[name]}"):  # its exec is over, perhaps since the look before
                return _read_contents(path)
            if _shows_nothing(_read_contents(f"{folder}/stat")):
                return b""
            if time.monotonic() >= until:
                return None
            time.sleep(_PAUSE)
    except OSError:
        return b""


def _shows_nothing(stat: bytes) -> bool:
    """Whether it never shows anything any more: a thread of the kernel, one that is on its way out, or a zombie."""
    state, *_, flags = stat[stat.rfind(b")") + 2 :].split()[:7]
    return state in b"ZX" or bool(int(flags) & (_EXITING | _KERNEL))


def _read_contents(path: str) -> bytes:
    """A whole file, as the kernel makes it up. Without a file object, which would take longer than the file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        chunks = [os.read(descriptor, _READ)]
        while len(chunks[-1]) == _READ:
            chunks.append(os.read(descriptor, _READ))
        return b"".join(chunks)
    finally:
        os.close(descriptor)


def walk_children(roots: Iterable[int]) -> set[int]:
    """The roots' descendants by the kernel's own child lists: cheap, but blind to what was re-parented."""
    seen: set[int] = set()
    queue = list(roots)
    while queue:
        pid = queue.pop()
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        for thread in threads:
            try:
                with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                    children = [int(child) for child in file.read().split()]
            except OSError:
                continue
            fresh = [child for child in children if child not in seen]
            seen.update(fresh)
            queue.extend(fresh)
    return seen


def find_tree(everyone: dict[int, Process], roots: Iterable[Process], tag: str, known: Iterable[Process] = ()) -> list[Process]:
    """The living members of the trees that the roots lead, that carry the tag, or that were seen before.

    A root counts as the leader of its session only while it exists (a zombie will do): after that its number is free.
    """
    leaders = {root.pid for root in roots if is_same_process(everyone.get(root.pid), root)}
    members = leaders | {process.pid for process in known if is_same_process(everyone.get(process.pid), process)}
    children: dict[int, list[int]] = {}
    for process in everyone.values():
        children.setdefault(process.parent, []).append(process.pid)
        if process.session in leaders or (process.tag and process.carries(tag)):
            members.add(process.pid)
    queue = list(members)
    while queue:
        fresh = [pid for pid in children.get(queue.pop(), ()) if pid not in members]
        members.update(fresh)
        queue.extend(fresh)
    return [everyone[pid] for pid in sorted(members - _find_ourselves(everyone)) if everyone[pid].alive]


def has_no_descendants(pid: int, tag: str, seconds: float, strangers: Container[int] = ()) -> bool:
    """Whether this program, which has ended and is not reaped, left nobody behind. A short proof: False means to look at everybody.

    The kernel gives out numbers in a circle. So whoever descends from it has one between its own and the last that was given,
    unless they went all the way round in the `seconds` since it was started. `strangers` are known not to descend from it.
    """
    try:
        last = int(_read_contents("/proc/sys/kernel/ns_last_pid"))
        young = seconds < _estimate_pid_cycle()
    except OSError:  # not every kernel tells
        return False
    if not young or not 0 <= last - pid <= _FEW:
        return False
    found = [process for number in range(pid + 1, last + 1) if number not in strangers and (process := read_process(number))]
    if found:
        ended = read_process(pid)
        everyone = {process.pid: process._replace(tag=_read_tag(process, 0)) for process in found}
        if ended is None or find_tree({pid: ended, **everyone}, [ended], tag) or any(one.tag is None for one in everyone.values()):
            return False
    # Nobody was born while we looked: one that was alive may have had a child and ended before its turn to be looked at.
    return int(_read_contents("/proc/sys/kernel/ns_last_pid")) == last


@cache
def _estimate_pid_cycle() -> float:
    """For so many seconds at least a number is not given out a second time."""
    return int(_read_contents("/proc/sys/kernel/pid_max")) * _NUMBER


def kill_until_gone(find: Callable[[], list[Process]], *, seconds: float) -> list[Process]:
    """SIGKILL what `find` finds until it finds nothing and nobody of them lives; the survivors when the time is up.

    Again and again, because a process may have forked between the look and the kill.
    """
    found = find()  # to look may take a while: the time is for those who are killed to go
    end = time.monotonic() + seconds
    pause = 0.001
    while found:
        for process in found:
            kill_process(process)
        if time.monotonic() >= end:
            return found
        time.sleep(pause)  # killed processes need a moment to go; there is nothing to wait on that is not our child
        pause = min(pause * 2, 0.05)
        found = add_survivors(find(), found)
    return []


def add_survivors(found: list[Process], before: list[Process]) -> list[Process]:
    """Those found now, and of those found before who is still alive.

    One that was killed gives up its environment some time before it ends, so its tag finds it no more.
    """
    numbers = {process.pid for process in found}
    rest = [process for process in before if process.pid not in numbers]
    return [*found, *(process for process in rest if is_same_process(now := read_process(process.pid), process) and now.alive)]


def kill_process(process: Process) -> None:
    """SIGKILL one process, through a descriptor, so that the process checked is the process killed."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        if is_same_process(read_process(process.pid), process):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def is_same_process(one: Process | None, other: Process) -> TypeGuard[Process]:
    """Whether a process found is the one that was known."""
    return one is not None and one.started == other.started


def _find_ourselves(everyone: dict[int, Process]) -> set[int]:
    """This process and its ancestors, never to be killed whatever tags they carry."""
    spared: set[int] = set()
    pid = os.getpid()
    while pid and pid not in spared:
        spared.add(pid)
        process = everyone.get(pid)
        pid = process.parent if process else 0
    return spared


def get_identity(pid: int) -> str:
    """The name of a process: its pid, when it started, since which boot of the machine that counts, and where pids mean that."""
    process = read_process(pid)
    return f"{pid}:{process.started if process else 0}:{_read_boot_id()}:{_read_namespace()}"


def get_own_identity() -> str:
    return get_identity(os.getpid())


def parse_identity_pid(owner: str) -> int:
    pid = owner.partition(":")[0]
    return int(pid) if pid.isdigit() else 0


def is_alive(owner: str) -> bool:
    """Whether it is seen to run; a zombie that nobody has reaped does not. What follows a `#` is the owner's own."""
    pid, started, boot, namespace = _split_identity(owner)
    if boot != _read_boot_id() or namespace != _read_namespace() or not pid.isdigit():
        return False
    process = read_process(int(pid))
    return process is not None and process.alive and str(process.started) == started


def is_gone(owner: str) -> bool:
    """Whether it certainly runs no more. Of one in another container of this machine nobody here can say that."""
    _, _, boot, namespace = _split_identity(owner)
    elsewhere = boot == _read_boot_id() and namespace != _read_namespace()
    return not elsewhere and not is_alive(owner)


def _split_identity(owner: str) -> tuple[str, str, str, str]:
    """A name without a namespace, as they once were, is of this one."""
    pid, started, boot, namespace = (*owner.partition("#")[0].split(":"), "", "", "", "")[:4]
    return pid, started, boot, namespace or _read_namespace()


@cache
def _read_boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def _read_namespace() -> str:
    """In which pids mean what they mean to us: each container has its own. Not kept: a fork may be in another."""
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return ""

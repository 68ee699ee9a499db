"""The watchdog: waits for its host to die, then kills what the host left. A program of its own, standard library only.

Standard input is a pipe from the host: `+PID STARTED` when a child has started, `-PID STARTED` when the host has closed it, end of
input when the host is gone. The host's pidfd is watched as well, because a forked copy of the host would hold the pipe open.

It looks at the children's descendants every so often and remembers them: one that later loses its parent, its session and its
environment is only known from then. Those of a child that was closed are killed at once.
"""

from __future__ import annotations

import os
import select
import signal
from time import monotonic

from serai.wire import process_tree
from serai.wire.process_tree import Process

KILL_SECONDS = 10.0
# A look may take this share of the time: with hundreds of children they are further apart.
SHARE = 50


class WatchedTree:
    """A child of the host, and every descendant of it that was ever seen and still lives."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.seen: dict[int, Process] = {}

    def look(self) -> None:
        """See who descends from it now. Only from those who still are who they were: a pid may have changed hands."""
        alive = [
            process
            for process in (self.process, *self.seen.values())
            if process_tree.is_same_process(process_tree.read_process(process.pid), process)
        ]
        found = (process_tree.read_process(pid) for pid in process_tree.walk_children(process.pid for process in alive))
        self.seen = {process.pid: process for process in (*alive, *found) if process is not None and process.alive}
        self.seen.pop(self.process.pid, None)

    def kill_seen(self) -> None:
        """The host has killed what it knew of; this is for what only we have seen."""
        if self.seen:
            known = list(self.seen.values())
            process_tree.kill_until_gone(
                lambda: process_tree.find_tree(process_tree.scan_processes(), [], "", known), seconds=KILL_SECONDS
            )


def main(tag: str, host: int, see: float) -> None:
    """Watch over the children of `host`, looking at their descendants every `see` seconds."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends by itself, once its host has
    poll = select.poll()
    poll.register(0, select.POLLIN)
    host_descriptor = _watch_host(host, poll)
    roots: dict[int, WatchedTree] = {}
    rest = b""
    next_look = monotonic() + see
    while host_descriptor >= 0:
        wait = max(next_look - monotonic(), 0) * 1000 if roots else None
        ready = {descriptor for descriptor, _ in poll.poll(wait)}
        if 0 in ready:
            chunk = os.read(0, 65536)
            if not chunk:
                break
            rest = _apply_lines(rest + chunk, roots)
        elif host_descriptor in ready:
            break
        now = monotonic()
        if now >= next_look:
            for root in roots.values():
                root.look()
            next_look = now + max(see, SHARE * (monotonic() - now))
    seen = [process for root in roots.values() for process in root.seen.values()]
    process_tree.kill_until_gone(
        lambda: process_tree.find_tree(process_tree.scan_processes(), [root.process for root in roots.values()], tag, seen),
        seconds=KILL_SECONDS,
    )


def _watch_host(host: int, poll: select.poll) -> int:
    """A descriptor of the host; -1 when it is dead already, which the pipe does not tell if a copy of it holds that."""
    try:
        descriptor = os.pidfd_open(host)
    except OSError:
        return -1
    if os.getppid() != host:  # the pid is another's by now
        return -1
    poll.register(descriptor, select.POLLIN)
    return descriptor


def _apply_lines(text: bytes, roots: dict[int, WatchedTree]) -> bytes:
    *lines, rest = text.split(b"\n")
    for line in lines:
        pid, started = map(int, line[1:].split())
        if line[:1] == b"-":
            if pid in roots and roots[pid].process.started == started:
                roots.pop(pid).kill_seen()
        elif (process := process_tree.read_process(pid)) and started == process.started:
            roots[pid] = WatchedTree(process)
    return rest

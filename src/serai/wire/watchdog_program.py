"""The watchdog: waits for its host to die, then kills what the host left. A program of its own, standard library only.

Standard input is a pipe from the host: `+PID` and `-PID` lines as children come and go, end of input when the host is gone. The
host's pidfd is watched as well, because a forked copy of the host would hold the pipe open.
"""

from __future__ import annotations

import os
import select
import signal

from serai.wire import proctree

__all__ = ["main"]

KILL_SECONDS = 10.0


def main(tag: str, host: int, see: float) -> None:
    """Watch over the children of `host`, looking at their descendants every `see` seconds."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends by itself, once its host has
    poll = select.poll()
    poll.register(0, select.POLLIN)
    host_descriptor = _watch(host, poll)
    roots: dict[int, proctree.Process] = {}
    seen: dict[int, proctree.Process] = {}
    rest = b""
    while True:
        ready = {descriptor for descriptor, _ in poll.poll(int(see * 1000) if roots else None)}
        if 0 in ready:
            chunk = os.read(0, 65536)
            if not chunk:
                break
            rest = _apply(rest + chunk, roots)
        elif host_descriptor in ready:
            break
        else:
            seen = _look(roots, seen)
    proctree.kill_all(
        lambda: proctree.tree(proctree.scan(), roots.values(), tag, seen.values()),
        seconds=KILL_SECONDS,
    )


def _look(roots: dict[int, proctree.Process], seen: dict[int, proctree.Process]) -> dict[int, proctree.Process]:
    """The living descendants, with those seen before: whoever lost its parent since is only known from then."""
    now = {pid: proctree.read(pid) for pid in proctree.walk({*roots, *seen}) | seen.keys()}
    return {pid: process for pid, process in now.items() if process and process.alive and _known(process, seen.get(pid))}


def _known(process: proctree.Process, before: proctree.Process | None) -> bool:
    return before is None or before.started == process.started


def _watch(host: int, poll: select.poll) -> int:
    try:
        descriptor = os.pidfd_open(host)
    except OSError:  # dead already: the pipe says so too
        return -1
    poll.register(descriptor, select.POLLIN)
    return descriptor


def _apply(text: bytes, roots: dict[int, proctree.Process]) -> bytes:
    *lines, rest = text.split(b"\n")
    for line in lines:
        pid = int(line[1:])
        if line[:1] == b"-":
            roots.pop(pid, None)
        elif process := proctree.read(pid):
            roots[pid] = process
    return rest

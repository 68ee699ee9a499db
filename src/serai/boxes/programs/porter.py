"""The porter: the program inside every box, which does there what we ask of it (spec hooks 4). Standard library only.

One thread, one edge-triggered poll. Each connection is a generator: it does what can be done now and yields when it has to wait,
with the time by which it wants to go on at the latest. Whatever happens to its descriptors or its command makes it go on.

Its process is forked into the box, where no module can be found any more: it and its neighbours (`connection`, `command`, `files`,
`frames`, `terminals`) import everything at the top.
"""

from __future__ import annotations

import errno
import os
import select
import sys
from time import monotonic

from serai.boxes.programs.connection import Connection
from serai.boxes.programs.files import Tree
from serai.boxes.programs.frames import Refusal, variables
from serai.boxes.programs.terminals import ask, make

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Mapping
    from typing import Any, NoReturn

    from serai.boxes.programs.command import Command
else:  # the public modules bring enumerations along, and they take as long to import as everything else here
    import _signal as signal
    import _socket as socket

__all__ = ["Porter", "main", "run"]


RETRY = 0.1  # seconds until somebody is admitted for whom there was no descriptor
LONGEST = 3600.0  # seconds in one poll
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
EDGES = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
LEFT = select.EPOLLHUP | select.EPOLLERR


class Porter:
    """All that a box's porter knows: who is connected, what runs for them, and what `init` said."""

    def __init__(self, listener: int, root: str, marks: Mapping[str, str], guard: int) -> None:
        self.tree = Tree(root)
        self.marks = marks
        self.guard = socket.socket(fileno=guard) if guard >= 0 else None
        self.env: dict[str, str] = {}  # as `init` gave it
        self.initialised = False
        self.busy = False  # with the init script
        self.uploads = 0
        self.connections: set[Connection] = set()
        self.owners: dict[int, Connection] = {}  # of descriptors
        self.children: dict[int, Command] = {}
        self.ready: dict[Connection, None] = {}  # those who can go on, in order
        self.retry: float | None = None
        for descriptor in (listener, guard):
            if descriptor >= 0:
                os.set_inheritable(descriptor, False)  # no command may have it
        self.listener = socket.socket(fileno=listener)
        self.listener.setblocking(False)
        self.alarm, alarm = os.pipe()
        os.set_blocking(alarm, False)
        os.set_blocking(self.alarm, False)
        signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)  # one byte in it is enough
        self.poll = select.epoll()
        self.poll.register(self.listener.fileno(), select.EPOLLIN | select.EPOLLET)
        self.poll.register(self.alarm, select.EPOLLIN)

    def run(self) -> NoReturn:
        while True:
            times = [one.until for one in self.connections if one.until is not None]
            if self.retry is not None:
                times.append(self.retry)
            wait = min(max(min(times) - monotonic(), 0), LONGEST) if times else None
            for descriptor, events in self.poll.poll(0 if self.ready else wait):
                self.happened(descriptor, events)
            now = monotonic()
            if self.retry is not None and now >= self.retry:
                self.admit()
            self.ready.update((one, None) for one in self.connections if one.until is not None and now >= one.until)
            turn, self.ready = self.ready, {}
            for one in turn:
                if one in self.connections:
                    one.step()

    def happened(self, descriptor: int, events: int) -> None:
        if descriptor == self.alarm:
            self.reap()
        elif descriptor == self.listener.fileno():
            self.admit()
        elif (one := self.owners.get(descriptor)) is not None:
            if events & LEFT and descriptor == one.peer.fileno():
                one.gone = True
            self.ready[one] = None

    def reap(self) -> None:
        """Everything that has ended: also what a program of the box has left behind, for which the porter stands in as parent."""
        os.read(self.alarm, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            command = self.children.pop(pid, None)
            if command is not None:
                command.status = status
                self.ready[command.owner] = None

    def admit(self) -> None:
        self.retry = None
        while True:
            try:
                peer = socket.socket(fileno=self.listener._accept()[0])  # type: ignore[attr-defined]
                one = Connection(self, peer)
                self.watch(peer.fileno(), one)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ECONNABORTED:  # no descriptor or no memory: later
                    self.retry = monotonic() + RETRY
                    return
            else:
                self.connections.add(one)
                self.ready[one] = None

    def part(self, one: Connection) -> None:
        self.connections.discard(one)
        self.owners.pop(one.peer.fileno(), None)
        one.peer.close()

    def watch(self, descriptor: int, one: Connection) -> None:
        os.set_blocking(descriptor, False)
        self.poll.register(descriptor, EDGES)
        self.owners[descriptor] = one

    def drop(self, descriptor: int) -> None:
        self.owners.pop(descriptor, None)
        os.close(descriptor)

    def environment(self, pairs: list[tuple[Any, Any]]) -> dict[str, str]:
        """What a command sees: this and nothing of the porter's own (spec hooks 3.6)."""
        return {"HOME": self.tree.within("/root"), "PATH": PATH, **self.env, **variables(pairs), **self.marks}

    def terminal(self) -> tuple[int, int]:
        return make() if self.guard is None else ask(self.guard)

    def enter(self, folder: str, *places: str) -> None:
        """Go where a command is to start: by the box's name for it, or the first of these that is there. We have one thread."""
        if folder:
            try:
                os.chdir(self.tree.within(folder))
            except OSError as error:
                raise Refusal(f"cwd {folder}: {error.strerror}") from None
            return
        for place in (*(places or (self.tree.within("/workspace"), self.environment([])["HOME"])), self.tree.root):
            try:
                os.chdir(place)
            except OSError:
                continue
            return


class NoModules:
    """Finds no module: what lies in a box is not ours to run."""

    @staticmethod
    def find_spec(name: str, *_: object) -> NoReturn:
        raise ImportError(name)


def run(listener: int, *, root: str = "/", marks: Mapping[str, str] = {}, guard: int = -1) -> NoReturn:
    """Serve a box on a listening socket until killed. `root` is where its files are.

    In a plain box all commands carry `marks`, variables by which they are found when everybody else is dead, and terminals come
    from its `guard`.

    A signal must not end it: Python would raise one in the middle of anything, and every process of the box may send them.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM):
        signal.signal(kind, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    os.umask(0o022)
    sys.meta_path[:] = [NoModules]
    reading, writing = os.pipe()
    for standard in (0, 1):  # there is nothing to read and nobody to print to, and no descriptor of a command may be one of these
        os.dup2(reading, standard)
    os.close(reading)
    os.close(writing)
    Porter(listener, root, marks, guard).run()


def main(arguments: list[str]) -> NoReturn:
    """`--fd N [--root DIR]`: for whoever cannot fork into a box."""
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    run(int(options["--fd"]), root=options.get("--root", "/"))

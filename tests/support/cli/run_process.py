"""`serai run` as a process of its own that a test can watch, signal and answer; forked like the commands of `fork_server`.

What forks is in a session of its own and has imported what a run needs: nobody's terminal is asked, unless a test gives it one.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import pty
import resource
import secrets
import select
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from serai.cli import main
from serai.store.session_folder import SessionFolder
from serai.wire import process_tree
from tests.support.cli import fork_server
from tests.support.cli.shell import Shell
from tests.support.stored_sessions import show

__all__ = ["Run", "find_left", "list_files", "open_sessions", "parse_lines", "read_result", "read_session", "run", "write_prompt"]

PATIENCE = 40.0  # seconds; the first run of a worker waits for all imports too
USED = (
    *("serai.cli.command_table", "serai.cli.run", "serai.cli.line_surface", "serai.cli.run_output"),
    *(
        "serai.app.app",
        "serai.agents.resident.factory",
        "serai.policy.suggested_rules",
        "serai.record.recorder",
        "serai.wire.event_loop",
    ),
    *("anthropic", "openai"),  # a second each
)
# What a run is given beside its descriptors: a terminal of its own, and how much it may write into a file.
TTY, FSIZE = "TEST_TTY", "TEST_FSIZE"


class RunServer(fork_server.ForkServer):
    """Forks runs, away from whatever terminal the tests run in."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = fork_server.select_startup_env(env)
        self.orders, theirs = socket.socketpair()
        command, pipe = [sys.executable, "-m", __name__, str(theirs.fileno())], subprocess.PIPE
        with theirs:
            self.process = subprocess.Popen(
                command,
                env={**env},
                cwd=fork_server.ROOT,
                pass_fds=[theirs.fileno()],
                stdin=pipe,
                stdout=pipe,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @staticmethod
    @cache
    def of_all() -> RunServer:
        return RunServer(os.environ | {"PYTHONUNBUFFERED": "1"}).keep()


class Run:
    """A run. Leaving it ends it, and sees that nothing which it started is left."""

    def __init__(
        self,
        shell: Shell,
        *arguments: str | Path,
        tty: bool = False,
        fsize: int = 0,
        pipe: int = 0,  # bytes that it can print before anybody reads them; 0: as many as usual
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.tag = secrets.token_hex(8)
        given = shell.env | {process_tree.TAG: self.tag, **(env or {})}
        (stdin, to), (self._out, stdout), (self._err, stderr), (self._told, tell) = (os.pipe() for _ in range(4))
        os.close(to)
        if pipe:
            fcntl.fcntl(stdout, fcntl.F_SETPIPE_SZ, pipe)
        self.terminal, self._theirs = pty.openpty() if tty else (-1, -1)
        if tty:
            given[TTY] = os.ttyname(self._theirs)
            termios.tcsetwinsize(self.terminal, (30, 100))
        if fsize:
            given[FSIZE] = str(fsize)
        order = os.memfd_create("order")
        os.write(order, json.dumps([["run", *map(str, arguments)], given, str(shell.cwd)]).encode())
        theirs = [stdin, stdout, stderr, tell, order]
        server = RunServer.of_all()
        assert fork_server.select_startup_env(given) == server.env
        socket.send_fds(server.orders, [b"!"], theirs)
        for descriptor in theirs:
            os.close(descriptor)
        self._numbers = b""
        self._open = {self._out, self._err, self._told}
        self.seen = dict.fromkeys((self._out, self._err, self.terminal), b"")
        self._until(lambda: len(self._numbers) >= fork_server.NUMBER, "it does not start")
        self.pid = self._number(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.status is None:
            self.signal(signal.SIGKILL)
            self._until(lambda: self.status is not None, "it cannot be killed")
        self.hang_up()
        for descriptor in (self._out, self._err, self._told):
            os.close(descriptor)
        assert not find_left(self.tag)

    # -- what it says

    @property
    def stdout(self) -> str:
        return self.seen[self._out].decode()

    @property
    def stderr(self) -> str:
        return self.seen[self._err].decode()

    @property
    def screen(self) -> str:
        return self.seen[self.terminal].decode().replace("\r\n", "\n")

    @property
    def status(self) -> int | None:
        return self._number(1) if len(self._numbers) >= 2 * fork_server.NUMBER else None

    def until(self, text: str, *, on: str = "stdout", times: int = 1) -> None:
        """Wait until it has said this there, so many times."""
        self._until(lambda: getattr(self, on).count(text) >= times, f"{text!r} does not come")

    def until_lines(self, count: int) -> None:
        """Wait until it has printed so many lines, or has ended."""
        self._until(lambda: self.stdout.count("\n") >= count or self.status is not None, f"{count} lines do not come")

    def ends(self) -> int:
        """Wait for its end and all that it said; its status."""
        self._until(lambda: self.status is not None and not self._open - {self.terminal}, "it does not end")
        assert self.status is not None
        return self.status

    # -- what is done to it

    def signal(self, number: int) -> None:
        """When it returns it has it: a second one of the same number would be lost before."""
        with suppress(ProcessLookupError, FileNotFoundError):
            os.kill(self.pid, number)
            while _read_pending_signals(self.pid) >> (number - 1) & 1:
                os.sched_yield()

    def insist(self, number: int) -> int:
        """Signal it, and again until it ends; its status. Two at once may be one to it: Python has one flag for each number."""
        self.signal(number)
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(self.pid)
            while not select.select([descriptor], [], [], 0.05)[0]:
                self.signal(number)
            os.close(descriptor)
        return self.ends()

    def type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def hang_up(self) -> None:
        if self.terminal >= 0:
            self.seen[-1] = self.seen.pop(self.terminal)
            for descriptor in (self.terminal, self._theirs):
                os.close(descriptor)
            self.terminal = -1

    def close_output(self) -> None:
        """Whoever read its output has read enough."""
        os.dup2(nowhere := os.open(os.devnull, os.O_RDONLY), self._out)
        os.close(nowhere)
        self._open.discard(self._out)

    def leave_output(self) -> None:
        """Whoever reads its output has something else to do: from now on it fills the pipe, and is full when this returns."""
        self._open.discard(self._out)
        end = time.monotonic() + PATIENCE
        while _count_waiting(self._out) <= fcntl.fcntl(self._out, fcntl.F_GETPIPE_SZ) - 4096:  # a page is not always full
            assert time.monotonic() < end, "it does not fill the pipe"
            # Not as often as we can: that would take the time from whom we wait for.
            assert not select.select([self._told], [], [], 0.001)[0], "it ends before it has filled the pipe"

    def read_on(self) -> None:
        self._open.add(self._out)

    def until_waits(self) -> None:
        """Until it has begun and sleeps: it waits for something that does not come."""
        end = time.monotonic() + PATIENCE
        while Path(f"/proc/{self.pid}/wchan").read_text() not in ("hrtimer_nanosleep", "do_nanosleep", "common_nsleep"):
            assert time.monotonic() < end, "it does not wait"
            os.sched_yield()

    def _number(self, place: int) -> int:
        return int.from_bytes(self._numbers[place * fork_server.NUMBER :][: fork_server.NUMBER], "big", signed=True)

    def _until(self, holds: Callable[[], bool], otherwise: str) -> None:
        end = time.monotonic() + PATIENCE
        while not holds():
            assert self._open, f"{otherwise}, and it has ended: {self.seen}"
            watched = [*self._open, *([self.terminal] if self.terminal >= 0 else [])]
            ready = select.select(watched, [], [], max(0.0, end - time.monotonic()))[0]
            assert ready, f"{otherwise}: {self.seen}"
            for descriptor in ready:
                self._read(descriptor)

    def _read(self, descriptor: int) -> None:
        data = os.read(descriptor, 65536)
        if not data:
            self._open.discard(descriptor)
        elif descriptor == self._told:
            self._numbers += data
        else:
            self.seen[descriptor] += data


def _count_waiting(descriptor: int) -> int:
    """The bytes in a pipe."""
    return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)


def _read_pending_signals(pid: int) -> int:
    """The signals that a process was sent and does not have yet, as bits."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("ShdPnd:")[2].split()[0], 16)


def find_left(tag: str) -> list[process_tree.Process]:
    """What a run with this tag has started and not ended. A watchdog may still be at it, for a moment."""
    end = time.monotonic() + PATIENCE
    while (
        there := [one for one in process_tree.scan_processes().values() if one.alive and one.carries(tag)]
    ) and time.monotonic() < end:
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(there[0].pid)
            select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
            os.close(descriptor)
    return there


def run(shell: Shell, *arguments: str | Path, input: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """A run with parrot to its end; nothing that it started is left."""
    tag = secrets.token_hex(8)
    given = shell.env | {process_tree.TAG: tag} | env
    words = ["run", "--model", "parrot", *map(str, arguments)]
    ran = RunServer.of_all().run(*words, env=given, cwd=shell.cwd, input=input, timeout=PATIENCE)
    assert not find_left(tag)
    return ran


def write_prompt(*directives: str) -> str:
    """A prompt that tells the model what to do."""
    return "\n".join(f">> {directive}" for directive in directives)


def parse_lines(text: str) -> list[dict[str, Any]]:
    """What `--json` printed; every line is JSON."""
    return [json.loads(line) for line in text.splitlines()]


def read_result(ran: subprocess.CompletedProcess[str] | Run) -> dict[str, Any]:
    """The last line, which says how it ended."""
    last = parse_lines(ran.stdout)[-1]
    assert last["type"] == "result"
    return last


def open_sessions(shell: Shell) -> SessionFolder:
    return SessionFolder(shell.home / "sessions")


def read_session(shell: Shell, id: str = "") -> list[str]:
    """What the only session says by now, or that of this id."""
    [path] = [one.path for one in open_sessions(shell).list() if one.id.startswith(id)]
    session = open_sessions(shell).open(os.path.basename(path).removesuffix(".jsonl"))
    try:
        return show(session)
    finally:
        session.close()


def list_files(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.exists() else []


# -- in the process that forks ----------------------------------------------------------------------------------------------------


def settle() -> None:
    """Take what the test gave beside descriptors."""
    if path := os.environ.pop(TTY, ""):
        os.setsid()
        terminal = os.open(path, os.O_RDWR)
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        os.close(terminal)
    if size := os.environ.pop(FSIZE, ""):
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), int(size)))


if __name__ == "__main__":
    for name in USED:
        import_module(name)
    gc.freeze()
    fork_server.serve(socket.socket(fileno=int(sys.argv[1])))
    settle()
    fork_server.end_with(main)

"""One run of a hook, as a check needs it: in a folder of its choice, with any bytes for a request, and with a look at what is left.

As with boxes, its stdout is a file like theirs and it leads a session of its own (spec hooks 1.11).
"""

from __future__ import annotations

import os
import secrets
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from signal import SIGTERM
from typing import IO, Literal, NamedTuple

from serai.boxes.hook_process import AnswerFile
from serai.errors import ExitStatus
from serai.wire import process_tree
from serai.wire.process import Launch, find_program, spawn_failed

__all__ = ["Patience", "Ran", "run"]

How = Literal["ended", "late", "too much"]

_LOOK = 0.1  # seconds between two looks at how much it has printed
_KILLED = 5.0  # for what is killed, to go


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a check waits for a hook, in seconds. The defaults are those of boxes (spec hooks 1.12)."""

    run: float = 60.0
    quick: float = 10.0  # beyond it a person who waits for a box notices
    terminate: float = 5.0
    leave: float = 1.0  # for what a hook has started, to end after it

    def shorter(self) -> Patience:
        """For what was waited for in vain once: a person need not sit through it a dozen times."""
        return replace(self, run=min(self.run, self.quick))


class Ran(NamedTuple):
    """What became of a run: how it ended, what it printed, what it took, and the names of the programs that it left behind."""

    how: How
    status: ExitStatus
    stdout: bytes
    stderr: str
    seconds: float
    left: tuple[str, ...]


class _Process:
    """A hook that runs."""

    def __init__(self, program: str, *, cwd: str, environ: Mapping[str, str], answer: AnswerFile, stderr: IO[bytes]) -> None:
        outer = environ.get(process_tree.TAG, "")
        self._tag = f"{outer}/{secrets.token_hex(8)}".lstrip("/")  # by which all that it starts is known
        self._answer, self._stderr = answer, stderr
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            [program],
            cwd=cwd,
            env={**environ, process_tree.TAG: self._tag},
            stdin=subprocess.PIPE,
            stdout=answer.writer,
            stderr=stderr,
            bufsize=0,
            start_new_session=True,
        )
        answer.handed_over()
        self._end = os.pidfd_open(self._process.pid)
        self._root = process_tree.read_process(self._process.pid)
        self._how: How = "late"
        self._seconds = 0.0
        self._left: tuple[str, ...] = ()

    def over(self, request: bytes, patience: Patience, most: int, slow: Callable[[], None]) -> None:
        """Give it the request and wait for its end, then for that of whatever it has started. `slow` is called if that takes."""
        self._how = self._feed(request, patience, most, slow)
        self._seconds = time.monotonic() - self._began
        if self._how == "ended":
            self._left = self._survivors(time.monotonic() + patience.leave)
        elif self._how == "late":
            os.killpg(self._process.pid, SIGTERM)
            _ends(self._end, patience.terminate)

    def close(self) -> None:
        """End what is left of it."""
        process_tree.kill_until_gone(self._members, seconds=_KILLED)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        os.close(self._end)

    def ran(self, most: int) -> Ran:
        """What became of it, once it is closed. Of what it printed, a little more than `most`, so that one sees that it is."""
        code = self._process.returncode
        status = ExitStatus(code=code) if code >= 0 else ExitStatus(signal=-code)
        stderr = os.pread(self._stderr.fileno(), most + 1, 0).decode(errors="replace")
        return Ran(self._how, status, self._answer.read()[: most + 1], stderr, self._seconds, self._left)

    def _feed(self, request: bytes, patience: Patience, most: int, slow: Callable[[], None]) -> How:
        """The request as it takes it: it may print before it reads, or not read at all (spec hooks 1.11)."""
        stdin, rest = self._process.stdin, memoryview(request)
        assert stdin is not None
        os.set_blocking(stdin.fileno(), False)
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        poll.register(number := stdin.fileno(), select.POLLOUT)
        quick, until = self._began + patience.quick, self._began + patience.run
        while (now := time.monotonic()) < until:
            if now > quick:
                quick = until
                slow()
            happened = dict(poll.poll(min(until - now, _LOOK) * 1000))
            if self._answer.size > most:
                return "too much"
            if self._end in happened:
                return "ended"
            if number in happened:
                try:
                    rest = rest[os.write(number, rest) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    rest = rest[:0]
                if not rest:
                    poll.unregister(number)
                    stdin.close()
        return "late"

    def _survivors(self, until: float) -> tuple[str, ...]:
        """The names of the programs that it has started and that are left by then."""
        while (left := self._members()) and (remaining := until - time.monotonic()) > 0:
            with suppress(ProcessLookupError):
                descriptor = os.pidfd_open(left[0].pid)
                _ends(descriptor, remaining)
                os.close(descriptor)
        return tuple(sorted(filter(None, map(_name, left))))

    def _members(self) -> list[process_tree.Process]:
        if self._root is None:
            return []
        return process_tree.find_tree(process_tree.scan_processes(self._root.started), [self._root], self._tag)


def run(
    launch: Launch, request: bytes, *, patience: Patience, most: int, keep: Callable[[Ran], None], slow: Callable[[], None]
) -> None:
    """Run a hook to its end, in its own folder if no other is named; nothing of it is left then. `SpawnFailed` if it cannot start.

    `keep` is given what became of it, also when somebody ends the wait with Ctrl-C: it may have answered with a state by then.
    `slow` is called when a person who waits should be told why.
    """
    program = find_program(launch)
    with closing(AnswerFile.in_memory()) as answer, tempfile.TemporaryFile() as stderr:
        try:
            cwd = launch.cwd or os.path.dirname(program)
            process = _Process(program, cwd=cwd, environ=launch.env, answer=answer, stderr=stderr)
        except (OSError, ValueError) as error:
            raise spawn_failed(launch, error) from None
        try:
            process.over(request, patience, most, slow)
        finally:
            process.close()
            keep(process.ran(most))


def _ends(descriptor: int, within: float) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.poll(within * 1000)


def _name(process: process_tree.Process) -> str:
    try:
        return Path("/proc", str(process.pid), "comm").read_text().strip()
    except OSError:
        return ""

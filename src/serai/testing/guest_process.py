"""A program with its pipes: how it is found and started, what it writes, how it ends.

Also the base of the strict stand-in hosts, whatever the dialect: bounded waits, and reports of what is wrong.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import NoReturn

SHOWN = 6  # of the last lines, where something is wrong
_LENGTH = 300  # of a line that is shown
_MARK = "SERAI_STAND_IN"  # the variable by which a guest and all that it starts are known, whatever session they are in
_EXEC = 0.5  # seconds for those that are becoming another program, which show nothing of themselves meanwhile
_OVER = 0x200004  # flags of a process that never shows anything: it is on its way out, or the kernel's
_GOING = 10.0  # seconds for those that are killed to be gone
_CHUNK = 1 << 16
_CHUNKS = 64  # in one go: who never stops talking does not keep us from looking at the clock


class Misbehaved(AssertionError):
    """The extension did what the protocol does not allow, or did not do what it asks for."""


def copy_environ() -> dict[str, str]:
    """Our environment, as a host has it: where `PYTHONUNBUFFERED` is set, nobody sees that a guest never flushes."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def with_python(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment in which `python3` is the Python that runs this, so that an extension finds what its tests find."""
    return {**environ, "PATH": os.pathsep.join([os.path.dirname(sys.executable), environ.get("PATH", os.defpath)])}


def find_command(path: Path | str, environ: Mapping[str, str]) -> tuple[Path, list[str]]:
    """The folder of an extension and the command that starts it: a folder, its manifest, or a Python program alone.

    A bare name comes from the PATH, all else is relative to the folder (spec zot 1.3).
    """
    path = Path(os.path.abspath(path))
    if not path.exists():
        raise Misbehaved(f"{path}: there is no such file or folder")
    if path.suffix in (".py", ".pyz") and not path.is_dir():
        return path.parent, build_python_command(path, environ)
    file = path / "extension.json" if path.is_dir() else path
    program, arguments = _read_manifest(file)
    found = os.path.join(file.parent, program) if "/" in program else shutil.which(program, path=environ.get("PATH", os.defpath))
    if found is None or not os.access(found, os.X_OK):
        raise Misbehaved(f"{file.parent.name} needs the program {program}: install it, or make it executable")
    return file.parent, [found, *arguments]


def build_python_command(path: Path, environ: Mapping[str, str]) -> list[str]:
    """What starts a Python program that has no manifest: this Python, or for a bundle any, which needs nothing but itself."""
    if path.suffix == ".pyz":
        return [shutil.which("python3", path=environ.get("PATH", os.defpath)) or "python3", "-S", "-E", path.name]
    return [sys.executable or "python3", path.name]


def _read_manifest(file: Path) -> tuple[str, list[str]]:
    """The program that a manifest names, and its arguments."""
    try:
        manifest = json.loads(file.read_bytes())
    except OSError as error:
        raise Misbehaved(f"{file}: it cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise Misbehaved(f"{file}: it is no JSON: {error}") from None
    program, arguments = (manifest.get("exec"), manifest.get("args") or []) if isinstance(manifest, dict) else (None, [])
    if not isinstance(program, str) or not program:
        raise Misbehaved(f"{file}: a manifest is an object, and its `exec` a text that names the program")
    if not isinstance(arguments, list) or not all(isinstance(argument, str) for argument in arguments):
        raise Misbehaved(f"{file}: `args` has to be a list of texts")
    return program, arguments


class GuestProcess:
    """A program with its pipes, in a session of its own. No wait is longer than it may be, and `kill` leaves nothing behind:
    neither what is in its session, nor what it has sent into another.
    """

    def __init__(self, argv: Sequence[str], *, cwd: Path, environ: Mapping[str, str]) -> None:
        self.transcript: list[tuple[str, bytes]] = []  # who said what: "host" or "guest", and a line or part of one
        self._token = uuid.uuid4().hex
        mark = f"{environ.get(_MARK, '')} {self._token}".strip()  # one that is tested by a guest of ours is that one's, too
        self._stderr = tempfile.TemporaryFile()  # no pipe: whoever fills it is not held up (spec zot 7.40)
        try:
            self._process = subprocess.Popen(
                argv,
                cwd=cwd,
                env={**environ, _MARK: mark},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                bufsize=0,
                start_new_session=True,
            )
        except BaseException:
            self._stderr.close()
            raise
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.pid, self.stdin, self.stdout = self._process.pid, self._process.stdin, self._process.stdout
        self._exit = os.pidfd_open(self.pid)
        self._lines: deque[bytes] = deque()
        self._begun: list[bytes] = []  # the pieces of a line that has no end yet
        self._ended = False
        os.set_blocking(self.stdin.fileno(), False)
        os.set_blocking(self.stdout.fileno(), False)

    def write(self, raw: bytes, within: float) -> None:
        """Write all of it, and read meanwhile. A `TimeoutError` when nobody takes it, a `BrokenPipeError` when nobody will."""
        self.transcript.append(("host", raw))
        view, deadline = memoryview(raw), time.monotonic() + within
        while view:
            try:
                view = view[os.write(self.stdin.fileno(), view) :]
            except BlockingIOError:
                if self.status is not None:  # a process that it left may hold the pipe
                    raise BrokenPipeError from None
                if not self._poll(deadline, writing=True, reading=not self._ended):
                    raise TimeoutError from None
                self._read()

    def read_line(self, within: float) -> bytes | None:
        """The next line, with its end; None at the end of output, which the end of the process is too. Else a `TimeoutError`."""
        deadline = time.monotonic() + within
        while not self._lines:
            self._read()
            if self._lines:
                break
            if self._ended or self.status is not None:
                self._read()  # what it wrote between the last look and its end
                if self._begun and not self._lines:
                    self._lines.append(self._take_line())
                if not self._lines:
                    return None
            elif time.monotonic() > deadline or not self._poll(deadline, reading=True):
                raise TimeoutError
        line = self._lines.popleft()
        self.transcript.append(("guest", line))
        return line

    def wait(self, within: float) -> int | None:
        """The exit status once it has one, negative for a signal; None when that takes too long. Its output is read meanwhile."""
        deadline = time.monotonic() + within
        while (status := self.status) is None and self._poll(deadline, reading=not self._ended):
            self._read()
            if time.monotonic() > deadline:
                return self.status
        return status

    def pause(self, seconds: float) -> None:
        """Read nothing for so long, or until it ends."""
        self._poll(time.monotonic() + seconds, reading=False)

    @property
    def silenced(self) -> bool:
        """Whether its output is at an end, although it may live."""
        return self._ended and not self._lines

    @property
    def status(self) -> int | None:
        """The exit status, negative for a signal. The process is not reaped yet: until then its session keeps its number."""
        ended = os.waitid(os.P_PIDFD, self._exit, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def find_survivors(self, within: float) -> list[str]:
        """The programs that it has started and that are left after so long."""
        deadline = time.monotonic() + within
        while (left := self._find_descendants()) and (remaining := deadline - time.monotonic()) > 0:
            with suppress(ProcessLookupError):
                descriptor = os.pidfd_open(next(iter(left)))
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                poll.poll(remaining * 1000)
                os.close(descriptor)
        return sorted(left.values())

    def kill(self) -> None:
        """End what is left of it, and let go of everything."""
        os.kill(self.pid, signal.SIGKILL)
        self.wait(60.0)
        deadline = time.monotonic() + _GOING
        while (family := self._find_descendants()) and _kill(family, deadline) and time.monotonic() < deadline:
            pass  # each may have started another in the meantime
        for file in (self.stdin, self.stdout, self._stderr):
            file.close()
        self._process.wait()
        os.close(self._exit)

    @property
    def stderr(self) -> str:
        return self.read_stderr_tail(sys.maxsize)

    def read_stderr_tail(self, most: int) -> str:
        """The end of its stderr, at most so many bytes."""
        end = os.fstat(self._stderr.fileno()).st_size
        start = max(0, end - most)
        return os.pread(self._stderr.fileno(), end - start, start).decode("utf-8", "replace")

    def note(self, what: str) -> None:
        """Put into the transcript what the host does without a frame."""
        self.transcript.append(("host", f"[{what}]".encode()))

    def format_tail(self, since: int = 0) -> list[str]:
        """The last of what was said: from the host (→) and from the guest (←)."""
        return [format_line(who, raw) for who, raw in self.transcript[since:][-SHOWN:]]

    def _find_descendants(self) -> dict[int, str]:
        """What it has started: its session, and whoever carries its mark in a session of their own. With their names."""
        members = {}
        until = time.monotonic() + _EXEC
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError, ValueError):
                name, _, rest = Path("/proc", pid, "stat").read_text(errors="replace").partition("(")[2].rpartition(")")
                state, _, _, session = rest.split()[:4]
                if int(pid) != self.pid and state not in "ZX" and (int(session) == self.pid or self._has_mark(pid, until)):
                    members[int(pid)] = name
        return members

    def _has_mark(self, pid: str, until: float) -> bool:
        folder, token = Path("/proc", pid), self._token.encode()
        while not (environ := (folder / "environ").read_bytes()):
            if (folder / "cmdline").read_bytes():  # it shows itself now, and perhaps an environment too
                return token in (folder / "environ").read_bytes()
            flags = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[6]
            if int(flags) & _OVER or time.monotonic() >= until:
                return False
            time.sleep(0.001)
        return token in environ

    def _poll(self, deadline: float, *, reading: bool, writing: bool = False) -> bool:
        """Whether something happened before the deadline; the end of the process is something, too."""
        poll = select.poll()
        poll.register(self._exit, select.POLLIN)
        if reading and not self.stdout.closed:
            poll.register(self.stdout, select.POLLIN)
        if writing:
            poll.register(self.stdin, select.POLLOUT)
        return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))

    def _read(self) -> None:
        """What there is to be read now. A long line is put together once, not with each piece that comes."""
        for _ in range(_CHUNKS):
            if self._ended or self.stdout.closed:
                return
            try:
                chunk = os.read(self.stdout.fileno(), _CHUNK)
            except BlockingIOError:
                return
            self._ended = not chunk
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                self._begun.append(end + b"\n")
                self._lines.append(self._take_line())
            if rest:
                self._begun.append(rest)

    def _take_line(self) -> bytes:
        """The line that was begun; the next one begins."""
        line, self._begun = b"".join(self._begun), []
        return line


def _kill(pids: Iterable[int], deadline: float) -> bool:
    """Kill them and wait for their end: one that was killed gives up its environment, and so its mark, before it is gone.

    False when there was nobody whom we may kill.
    """
    with ExitStack() as stack:
        ends = []
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):  # it has ended, or is another user's and not ours to end
                end = os.pidfd_open(pid)
                stack.callback(os.close, end)
                signal.pidfd_send_signal(end, signal.SIGKILL)
                ends.append(end)
        for end in ends:
            select.select([end], [], [], max(0.0, deadline - time.monotonic()))
        return bool(ends)


def format_line(who: str, raw: bytes) -> str:
    """A line as a person may read it, cut where it is long."""
    text = raw.decode("utf-8", "replace").rstrip("\r\n")
    return f"{'→' if who == 'host' else '←'} {text if len(text) <= _LENGTH else f'{text[:_LENGTH]}… ({len(raw)} bytes)'}"


_TAIL = 2000  # of stderr, where something is wrong


class StrictHost(ABC):
    """One extension, started; used as a context, which leaves no process behind."""

    process: GuestProcess
    patience: float  # seconds for what has to come

    @property
    @abstractmethod
    def who(self) -> str:
        """The name of the extension, in a complaint."""
        ...

    @abstractmethod
    def _handle_line(self, line: bytes | None) -> object:
        """Read a line of the extension."""
        ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.kill()

    @property
    def stderr(self) -> str:
        return self.process.stderr

    def write(self, raw: bytes) -> None:
        """Bytes as they are, for what is no frame."""
        try:
            self.process.write(raw, self.patience)
        except TimeoutError:
            self._complain("does not read its input")
        except BrokenPipeError:
            while (line := self._read_line("end", ends=True)) is not None:  # what it said last is the better complaint
                self._handle_line(line)
            self._complain("has closed its input")

    def _read_line(self, awaited: str, *, ends: bool = False) -> bytes | None:
        try:
            line = self.process.read_line(self.patience)
        except TimeoutError:
            self._complain(f"no {awaited} within {self.patience:g} s")
        if line is None and not ends:
            self._complain(f"ended without {awaited}, exit status {self.process.wait(self.patience)}")
        return line

    def _wait_for_exit(self) -> int:
        status = self.process.wait(self.patience)
        return self._complain(f"did not end within {self.patience:g} s") if status is None else status

    def _complain(self, why: str) -> NoReturn:
        stderr = self.stderr[-_TAIL:].strip()
        tail = [f"its stderr: {stderr}"] if stderr else []
        raise Misbehaved("\n".join([f"{self.who}: {why}", *self.process.format_tail(), *tail]))

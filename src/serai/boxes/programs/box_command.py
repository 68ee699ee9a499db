"""A command that the box server has started: its descriptors, its terminal, its end, and how to reach everything that it started.

In a plain box the server cannot open a terminal: a Landlock rule that lets it would be for all terminals of the machine, the
person's own among them. Its supervisor, which is outside, opens them and passes the descriptors on.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
import termios
from time import monotonic

from serai.boxes.programs.frames import PACKET, HungUp, Refusal, TooLarge, take_frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from typing import NoReturn
else:  # the public modules bring enumerations along, and they take as long to import as everything else here
    import _signal as signal
    import _socket as socket

_UNLOCK, _OTHER_END = 0x40045431, 0x5441  # TIOCSPTLCK, TIOCGPTPEER
_FLAGS = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC
_PAIR = struct.Struct("2i")
_CLOEXEC = 0x40000000  # MSG_CMSG_CLOEXEC


def make_terminal() -> tuple[int, int]:
    """A new terminal: our end of it, and the program's. By descriptor: its name may be out of reach."""
    ours = os.open("/dev/ptmx", _FLAGS)
    try:
        fcntl.ioctl(ours, _UNLOCK, b"\0\0\0\0")
        return ours, fcntl.ioctl(ours, _OTHER_END, _FLAGS)
    except BaseException:
        os.close(ours)
        raise


def request_terminal(supervisor: socket.socket) -> tuple[int, int]:
    """In the box server: the same, from its supervisor."""
    supervisor.send(b"?")
    said, passed, _, _ = supervisor.recvmsg(16, socket.CMSG_SPACE(_PAIR.size), _CLOEXEC)
    if not passed:
        number = int(said or b"5")  # EIO: there is no supervisor any more
        raise OSError(number, os.strerror(number))
    ours, theirs = _PAIR.unpack(passed[0][2])
    return ours, theirs


def serve_terminal(server: socket.socket, owner: int | None) -> bool:
    """In the supervisor: answer one question, with a terminal that belongs to `owner`. Whether there may be more."""
    if not server.recv(1):
        return False
    try:
        pair = make_terminal()
    except OSError as error:
        server.send(str(error.errno).encode())
        return True
    try:
        if owner is not None:
            os.fchown(pair[1], owner, owner)
        server.sendmsg([b"!"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, _PAIR.pack(*pair))])
    except BrokenPipeError:
        return False
    finally:
        for descriptor in pair:
            os.close(descriptor)
    return True


def spawn_on_terminal(path: str, argv: list[str], env: dict[str, str], terminal: int) -> int:
    """Like `posix_spawnp`, in a new session whose terminal is this one: that takes a call which no file action makes."""
    hear, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _adopt_terminal(terminal)
            _execute(path, argv, env)
        except OSError as error:
            os.write(tell, str(error.errno).encode())
        finally:
            os._exit(127)
    os.close(tell)
    problem = os.read(hear, 16)  # nothing, when it is executed: that closes the other end
    os.close(hear)
    if problem:
        os.waitpid(pid, 0)
        raise OSError(int(problem), os.strerror(int(problem)))
    return pid


def _adopt_terminal(terminal: int) -> None:
    signal.set_wakeup_fd(-1)
    for kind in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(kind, signal.SIG_DFL)
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    for standard in (0, 1, 2):
        os.dup2(terminal, standard)


def _execute(path: str, argv: list[str], env: dict[str, str]) -> NoReturn:
    """The first program of that name on the PATH; when there is none, the error that says the most."""
    if "/" in path:
        os.execve(path, argv, env)  # noqa: S606  (no shell is what we want)
    found: OSError = FileNotFoundError(2, "")
    for folder in env["PATH"].split(":"):
        try:
            os.execve(f"{folder or '.'}/{path}", argv, env)  # noqa: S606
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            found = error
    raise found


if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Generator
    from typing import Any, TypeAlias, TypeVar

    from serai.boxes.programs.box_server import ServedConnection
    from serai.boxes.programs.frames import Data

    T = TypeVar("T")
    Wait: TypeAlias = Generator[float | None, None, T]
else:  # the public modules bring enumerations along, and they take as long to import as everything else here
    import _signal as signal

OUTPUT = 64 << 10  # bytes that are kept of what a command prints
QUEUE = 256 << 10  # bytes that may wait for a caller who does not read, or for a program that does not
LINGER = 0.2  # seconds from its exit to its last output: what it left running may hold the pipe for ever
HANGUP = 1.0  # seconds from SIGHUP to SIGKILL when its caller has left
_NOBODY_S_FAULT = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)  # at least not the program's


class RunningCommand:
    """A program at work for one connection, in a session of its own, with pipes or (`size`: columns and rows) with a terminal."""

    def __init__(
        self,
        owner: ServedConnection,
        argv: list[str],
        env: dict[str, str],
        *,
        path: str = "",
        size: tuple[int, int] | None = None,
        merged: bool = False,
    ) -> None:
        self.owner, self.server = owner, owner.server
        self.status: int | None = None
        self.pending = bytearray()  # for its input
        self.ended = False  # and nothing more will be
        self.stdin = self.terminal = -1
        self.outputs: dict[int, int] = {}  # by descriptor: 1 for stdout, 2 for stderr
        theirs: list[int] = []
        try:
            if size:
                self._open_terminal(theirs, *size)
                self.pid = spawn_on_terminal(path or argv[0], argv, env, theirs[0])
            else:
                actions = self._open_pipes(theirs, 1 if merged else 2)
                os.environ["PATH"] = env["PATH"]  # where the C library looks for the program
                everything = signal.valid_signals()
                self.pid = os.posix_spawnp(
                    path or argv[0], argv, env, file_actions=actions, setsid=True, setsigmask=[], setsigdef=everything
                )
        except BaseException as error:
            self.close()
            if isinstance(error, OSError) and error.errno in _NOBODY_S_FAULT:
                raise Refusal(f"cannot start {argv[0]}: {os.strerror(error.errno)}") from None
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self.server.children[self.pid] = self

    def _open_pipes(self, theirs: list[int], last: int) -> list[Any]:
        for target in range(last + 1):
            reading, writing = os.pipe()
            theirs.append(writing if target else reading)
            if target:
                self.outputs[reading] = target
            else:
                self.stdin = writing
            self.server.watch(reading if target else writing, self.owner)
        return [(os.POSIX_SPAWN_DUP2, theirs[min(target, last)], target) for target in (0, 1, 2)]

    def _open_terminal(self, theirs: list[int], columns: int, rows: int) -> None:
        self.terminal, other = self.server.open_terminal()
        theirs.append(other)
        self.stdin = self.terminal
        self.outputs[self.terminal] = 1
        self.resize(columns, rows)
        self.server.watch(self.terminal, self.owner)

    def resize(self, columns: int, rows: int) -> None:
        if self.terminal >= 0:
            fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def converse(self, print_: Callable[[int, bytes], None], kinds: int, seconds: float | None = None) -> Wait[bool]:
        """Between it and its caller until it has ended and what it printed is read; whether its time was up.

        `kinds` is how many kinds of packets the caller may send: none for a plain one.
        """
        until = None if seconds is None else monotonic() + seconds
        late, last = False, 0.0
        try:
            while True:
                for descriptor, kind in list(self.outputs.items()):
                    if len(self.owner.outbox) <= QUEUE and (data := self.owner.pull(descriptor)) is not None:
                        print_(kind, data) if data else self.drop(descriptor)
                if kinds:
                    self.read_packets(kinds)
                self.feed()
                now = monotonic()
                if self.owner.gone:
                    yield from self.hang_up(signal.SIGHUP if kinds else signal.SIGKILL)
                elif self.status is not None:
                    if not last or len(self.owner.outbox) > QUEUE:  # as long as the caller is slow, nothing is lost
                        last = now + LINGER
                    if not self.outputs or now >= last:
                        return late
                    yield last
                elif until is not None and now >= until and not late:
                    late = True
                    self.signal_session(signal.SIGKILL)
                else:
                    yield None if late else until
        finally:
            self.close()

    def read_packets(self, kinds: int) -> None:
        """Take what the caller sends to it: 0 is input, 1 a new size, 2 a signal."""
        try:
            while len(self.pending) <= QUEUE and (frame := take_frame(self.owner.inbox, 5, PACKET)) is not None:
                kind, payload = frame[0], frame[5:]
                if kind == 0:
                    self.pending += payload
                    if not payload and kinds > 2:  # the end of input, which on a terminal is a key
                        self.ended = self.terminal < 0
                        self.pending += b"" if self.ended else b"\x04"
                elif kind == 1 and len(payload) == 4:
                    self.resize(*struct.unpack(">HH", payload))
                elif kind == 2 and kinds > 2 and len(payload) == 1:
                    self.signal(payload[0])
        except TooLarge:
            self.owner.gone = True
        if self.owner.eof and kinds > 2 and self.terminal < 0 and len(self.pending) <= QUEUE:
            self.ended = True

    def hang_up(self, kind: int) -> Wait[None]:
        """Its caller has left: end its whole session."""
        self.signal_session(kind)
        until = monotonic() + HANGUP
        while self.status is None and monotonic() < until:
            yield until
        self.signal_session(signal.SIGKILL)
        raise HungUp

    def feed(self) -> None:
        """Write its input. That it does not read it is no error."""
        if self.pending and not (self.stdin >= 0 and self.owner.push(self.stdin, self.pending)):
            self.pending.clear()
        if self.ended and not self.pending and self.stdin >= 0:
            self.drop(self.stdin)
            self.stdin = -1

    def drop(self, descriptor: int) -> None:
        self.outputs.pop(descriptor, None)
        if descriptor != self.terminal:  # which is input and output in one, and needed to the end
            self.server.drop(descriptor)

    def close(self) -> None:
        """Let go of its descriptors. What still runs has nobody to hear it, and lives on."""
        terminal, self.terminal = self.terminal, -1
        for descriptor in {*self.outputs, self.stdin, terminal} - {-1}:
            self.drop(descriptor)
        self.stdin = -1

    def signal(self, kind: int) -> None:
        """To its process group; with a terminal, to the group in the foreground."""
        group = self.pid
        if self.terminal >= 0:
            group = int.from_bytes(fcntl.ioctl(self.terminal, termios.TIOCGPGRP, b"\0\0\0\0"), sys.byteorder) or group
        if self.status is None and group > 1 and kind in signal.valid_signals():
            send_signal(-group, kind)

    def signal_session(self, kind: int) -> None:
        """To all of its session: a shell puts each job into a group of its own. What is forked meanwhile is met next."""
        if self.status is None:
            send_signal(-self.pid, kind)
        told: set[int] = set() if self.status is not None else {self.pid}
        while True:
            found = processes()
            if self.status is not None and any(pid == self.pid for pid, _, _ in found):
                return  # its number has passed to somebody else
            new = {pid for pid, _, session in found if session == self.pid} - told
            if not new:
                return
            for pid in new:
                send_signal(pid, kind)
            told |= new

    def describe_exit(self) -> Data:
        """How it ended; by a signal is -1 (spec hooks 3.6), and ours says by which."""
        code = os.waitstatus_to_exitcode(self.status or 0)
        return {"exit_code": code} if code >= 0 else {"exit_code": -1, "signal": -code}


class OutputHead:
    """Keeps the head of what a command prints, and a byte to tell that there was more; the rest goes, so that it never blocks."""

    def __init__(self) -> None:
        self.kept = {1: bytearray(), 2: bytearray()}

    def add(self, kind: int, data: bytes) -> None:
        self.kept[kind] += data[: OUTPUT + 1 - len(self.kept[kind])]

    def __getitem__(self, kind: int) -> bytes:
        kept = bytes(self.kept[kind])
        return kept[:OUTPUT] + b"\n... [output truncated]" if len(kept) > OUTPUT else kept


def processes() -> list[tuple[int, int, int]]:
    """Pid, parent and session of everything that is alive, as /proc tells; nothing where there is none."""
    found = []
    try:
        names = os.listdir("/proc")
    except OSError:
        return []
    for name in filter(str.isdigit, names):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent, _, session = file.read(1024).rpartition(b") ")[2].split()[:4]
        except (OSError, ValueError):
            continue  # it has just ended
        if state not in (b"Z", b"X"):
            found.append((int(name), int(parent), int(session)))
    return found


def send_signal(pid: int, kind: int) -> None:
    try:
        os.kill(pid, kind)
    except (ProcessLookupError, PermissionError):
        pass  # it has ended meanwhile, or is not ours

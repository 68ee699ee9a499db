"""Terminals for commands: where they come from, and how a program gets one as its controlling terminal.

In a plain box the porter cannot open one: a rule of Landlock's that lets it would be for all terminals of the machine, the person's
own among them. Its guard, which is outside, opens them and passes the descriptors on.
"""

from __future__ import annotations

import fcntl
import os
import struct
import termios

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from typing import NoReturn
else:  # the public modules bring enumerations along, and they take as long to import as everything else here
    import _signal as signal
    import _socket as socket

__all__ = ["ask", "give", "make", "start"]

_UNLOCK, _OTHER_END = 0x40045431, 0x5441  # TIOCSPTLCK, TIOCGPTPEER
_FLAGS = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC
_PAIR = struct.Struct("2i")
_CLOEXEC = 0x40000000  # MSG_CMSG_CLOEXEC


def make() -> tuple[int, int]:
    """A new terminal: our end of it, and the program's. By descriptor: its name may be out of reach."""
    ours = os.open("/dev/ptmx", _FLAGS)
    try:
        fcntl.ioctl(ours, _UNLOCK, b"\0\0\0\0")
        return ours, fcntl.ioctl(ours, _OTHER_END, _FLAGS)
    except BaseException:
        os.close(ours)
        raise


def ask(guard: socket.socket) -> tuple[int, int]:
    """In the porter: the same, from its guard."""
    guard.send(b"?")
    said, passed, _, _ = guard.recvmsg(16, socket.CMSG_SPACE(_PAIR.size), _CLOEXEC)
    if not passed:
        number = int(said or b"5")  # EIO: there is no guard any more
        raise OSError(number, os.strerror(number))
    ours, theirs = _PAIR.unpack(passed[0][2])
    return ours, theirs


def give(porter: socket.socket, owner: int | None) -> bool:
    """In the guard: answer one question, with a terminal that belongs to `owner`. Whether there may be more."""
    if not porter.recv(1):
        return False
    try:
        pair = make()
    except OSError as error:
        porter.send(str(error.errno).encode())
        return True
    try:
        if owner is not None:
            os.fchown(pair[1], owner, owner)
        porter.sendmsg([b"!"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, _PAIR.pack(*pair))])
    except BrokenPipeError:
        return False
    finally:
        for descriptor in pair:
            os.close(descriptor)
    return True


def start(path: str, argv: list[str], env: dict[str, str], terminal: int) -> int:
    """Like `posix_spawnp`, in a new session whose terminal is this one: that takes a call which no file action makes."""
    hear, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _take(terminal)
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


def _take(terminal: int) -> None:
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

"""The keeper of a kept box: one small process that outlives the command which made the box.

It starts the launcher, waits, and at the end (destroy, time to live, death of the box, SIGTERM) *becomes* the program that ends
the box (`serai.boxes.teardown`): destroy hooks, disk, record. Until then it needs the standard library alone and a few megabytes.
It has the environment of the process that made the box, because that is how hooks are configured (spec hooks 1.11); so nothing of
a box is ever forked from it.

Its creator holds the other end of its stdin until the box is registered and says so; a creator that dies before leaves a box that
nobody knows of, which is ended at once.

On `keeper.sock` it answers frames as the box server does: `state`, `stop` (end the box, leave its record alone: a create that
failed), `pause` (the same, marked as paused first, so that a death in between leaves no box half paused) and `destroy` (answered
at the end, by the program that it has become).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_FRAME = 1 << 20  # of a request; they are small
_PATIENCE = 1.0  # seconds for somebody who connected to say what they want
_LONGEST = 3_600_000.0  # milliseconds in one poll: it cannot take many more, and the clock may be set
_ENDED = "its keeper was told to end"


class Keeper:
    """`config`: folder, generation, launcher (argv), settle (argv; generation, reason and descriptor follow), expires_at, stop,
    and what to do when the creator is gone before it said that the box is registered (abandoned: settle or stop)."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.poll = select.poll()
        self.committed = False
        self.wakeup, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)  # so that it wakes us
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        self.listener = _listen(config["folder"])
        self._start()
        for descriptor in (0, self.ready, self.pidfd, self.wakeup, self.listener.fileno()):
            self.poll.register(descriptor, select.POLLIN)

    def _start(self) -> None:
        theirs, self.lifeline = os.pipe()
        self.ready, out = os.pipe()
        argv = self.config["launcher"]
        actions = [(os.POSIX_SPAWN_DUP2, theirs, 0), (os.POSIX_SPAWN_DUP2, out, 1)]
        env = {"SERAI_BOX": self.config["generation"]}
        every = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
        self.pid = os.posix_spawn(argv[0], argv, env, file_actions=actions, setsid=True, setsigdef=every, setsigmask=())
        self.pidfd = os.pidfd_open(self.pid)
        os.close(theirs)
        os.close(out)

    def run(self) -> NoReturn:
        while True:
            for descriptor, _ in self.poll.poll(self._compute_timeout()):
                if descriptor == self.wakeup:
                    self.settle(_ENDED)
                elif descriptor == self.pidfd:
                    self._handle_box_end()
                elif descriptor == self.ready:
                    self._relay()
                elif descriptor == 0:
                    self._handle_creator()
                else:
                    self._serve()
            if self.committed and self._compute_timeout() == 0:
                self.settle("its time to live is over")

    def _compute_timeout(self) -> float | None:
        """Milliseconds until its time to live is over, or it should be looked at again."""
        if self.config["expires_at"] is None or not self.committed:
            return None
        left: float = (self.config["expires_at"] - time.time()) * 1000
        return min(max(0.0, left), _LONGEST)

    # -- what can happen ----------------------------------------------------------------------------------------------------------

    def _relay(self) -> None:
        """The launcher's one line goes to the creator."""
        line = os.read(self.ready, 65536)
        if line:
            with contextlib.suppress(OSError):
                os.write(1, line)
        else:
            self.poll.unregister(self.ready)

    def _handle_creator(self) -> None:
        said = os.read(0, 64)
        if said.startswith(b"kept"):
            self.committed = True  # the box is registered, and we are its owner
            with open(os.devnull, "r+b", buffering=0) as null:
                os.dup2(null.fileno(), 0)
                os.dup2(null.fileno(), 1)
            self.poll.unregister(0)
        elif said or self.config["abandoned"] == "stop":  # told to; or a resume that came to nothing
            if not said:
                self._mark_paused()  # whoever resumed it may have taken the mark away already
            self._end()
            sys.exit(1)
        else:
            self.settle("whoever made it died before it was there")

    def _handle_box_end(self) -> None:
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        if not self.committed:
            self._relay()  # its last words
            sys.exit(1)  # the creator is there and cleans up
        code = os.waitstatus_to_exitcode(status)
        self.settle(f"its processes ended (exit status {code})" if code >= 0 else f"its launcher was killed by signal {-code}")

    def _serve(self) -> None:
        """Somebody asks. Whatever they send, and whether they wait for an answer, does the box no harm."""
        try:
            connection, _ = self.listener.accept()
        except OSError:
            return
        with connection:
            connection.settimeout(_PATIENCE)
            try:
                verb = _read_request(connection).get("verb")
            except Exception:
                return
            if _has_hung_up(connection):  # while we were stopped, perhaps: what was asked long ago may be wrong by now
                return
            if verb == "pause":
                self._mark_paused()
            if verb in ("pause", "stop"):
                self._end()
            elif verb == "destroy":
                self.settle("", connection)
            known = verb in ("pause", "state", "stop")
            data = {"pid": os.getpid(), "launcher": self.pid, "kept": self.committed}
            with contextlib.suppress(OSError):
                _send_answer(connection, {"data": data} if known else {"err": f"unknown verb {json.dumps(verb)}"})
            if verb in ("pause", "stop"):
                sys.exit(0)

    # -- the end ------------------------------------------------------------------------------------------------------------------

    def _mark_paused(self) -> None:
        """Paused, not crashed (spec hooks 3.5)."""
        descriptor = os.open(os.path.join(self.config["folder"], "paused"), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        os.fsync(descriptor)
        os.close(descriptor)

    def _end(self) -> None:
        """The launcher ends the box when its input ends; should it not, the kernel ends both."""
        if self.pid:
            os.close(self.lifeline)
            gone = select.poll()
            gone.register(self.pidfd, select.POLLIN)
            if not gone.poll(self.config["stop"] * 1000):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0

    def settle(self, reason: str, asked: socket.socket | None = None) -> NoReturn:
        """Become the one that settles the box: the same process, so that the record still names its owner."""
        self._end()
        descriptor = -1
        if asked is not None:
            asked.settimeout(None)
            descriptor = os.dup(asked.fileno())
            os.set_inheritable(descriptor, True)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        argv = [*self.config["settle"], self.config["generation"], reason, str(descriptor)]
        os.execv(argv[0], argv)  # noqa: S606  (that is the point)


def _listen(folder: str) -> socket.socket:
    """The path of a socket may have 108 bytes; a folder may have more."""
    at = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink("keeper.sock", dir_fd=at)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(f"/proc/self/fd/{at}/keeper.sock")
        os.chmod("keeper.sock", 0o600, dir_fd=at)
        listener.listen(8)
        return listener
    finally:
        os.close(at)


def _read_request(connection: socket.socket) -> dict[str, Any]:
    [size] = struct.unpack(">I", _read_exactly(connection, 4))
    if size > _FRAME:
        raise ValueError("frame too large")
    request = json.loads(_read_exactly(connection, size))
    if not isinstance(request, dict):
        raise ValueError("no request")  # noqa: TRY004  (theirs, not ours)
    return request


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ValueError("hung up")
        data += piece
    return data


def _has_hung_up(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        connection.settimeout(_PATIENCE)


def _send_answer(connection: socket.socket, answer: dict[str, Any]) -> None:
    body = json.dumps(answer).encode()
    connection.sendall(struct.pack(">I", len(body)) + body)


def main(config: str) -> NoReturn:
    Keeper(json.loads(config)).run()

"""The launcher: one for each box. It makes the box around the server, reports that it is ready, and ends it when its owner ends.

Standard input is a lifeline: its end means that the owner is gone, or wants the box gone. Standard output gets one line of JSON,
`{"ready": true, "pid": …}` or `{"error": …, "hint": …}`; standard error is the log of the box. Its exit status is the server's.

The server is forked, not executed: a box needs no Python, so any base tree will do. If the launcher itself is killed, the kernel
kills the server, and with it everything in its namespaces.

The processes of a box write their standard error to a pipe, not to the log file, and the log has a limit: a server that was taken
over could fill the disk of the machine. A resource limit would also hold for the files of the box.
"""

from __future__ import annotations

import os
import select
import stat

from serai.boxes.programs import box_server, confinement, namespace_box
from serai.boxes.programs.box_setup import BoxSetupError, Handshake, LaunchedBox, encode_line, join_cgroups, parse_json
from serai.kernel import syscalls

TYPE_CHECKING = False
LIMIT = 1 << 20  # bytes of a log, over all lives of its box
# More than a pipe can hold, so all that the dead have said; and an end, because the living may not stop.
_PIECE, _PIECES = 65536, 32
_FULL = b"\nserai: the log is full, the rest of what the box says is lost\n"


class Log:
    """From now on our standard error is the pipe, for those whom we start; `take_over` when they are started."""

    def __init__(self) -> None:
        self.said, pipe = os.pipe()
        os.set_blocking(self.said, False)
        self._file = os.dup(2)
        os.dup2(pipe, 2)
        os.close(pipe)
        info = os.fstat(self._file)
        self._room = max(LIMIT - (info.st_size if stat.S_ISREG(info.st_mode) else 0), 0)

    def take_over(self) -> None:
        """Have the file as our own standard error again, and copy what was said meanwhile."""
        os.dup2(self._file, 2)
        os.close(self._file)
        self.copy()

    def copy(self) -> bool:
        """What they have said by now goes to the file, as far as there is room. Whether there may be more."""
        for _ in range(_PIECES):
            try:
                some = os.read(self.said, _PIECE)
            except BlockingIOError:
                break
            if not some:
                return False
            if self._room:
                kept = some[: self._room]
                self._room -= len(kept)
                self._write(kept if self._room else kept + _FULL)
        return True

    @staticmethod
    def _write(data: bytes) -> None:
        try:
            os.write(2, data)
        except OSError:
            pass  # a full disk must not end the box


if TYPE_CHECKING:
    import signal
    import socket
    from typing import NoReturn

    from serai.boxes.programs.box_setup import Config
else:  # their public modules bring enumerations along, and they take as long as a box
    import _signal as signal
    import _socket as socket

SOCKET = "control.sock"
_BACKLOG = 128


def main(text: str) -> NoReturn:
    """Make the box that the configuration (`Config`) describes, and stay with it to its end; or only try, for `probe`."""
    if text == "probe":
        _probe()
    os.umask(0o022)  # ours may be anybody's, and the box's own folders are for everybody in it
    woken = _wake_on_term()
    log = Log()
    try:
        box = _start(parse_json(text))
    except BoxSetupError as error:
        log.take_over()
        _fail(str(error), error.hint)
    except OSError as error:
        log.take_over()
        _fail(f"{error.filename or 'the box'}: {error.strerror}")
    log.take_over()
    _report(encode_line(ready=True, pid=box.pid))
    asked = _wait_for_end(box, woken, log)
    code = box.wait()
    log.copy()
    if not asked:
        os.write(2, f"serai: the porter ended by itself, with exit status {code}\n".encode())
    os._exit(code)


def _start(config: Config) -> LaunchedBox:
    os.chdir(config["folder"])
    listener = _listen()
    try:
        if config["mode"] == "own":
            return _start_own(config, listener)
        if config["mode"] == "process":
            from serai.boxes.programs.plain_box import start_plain

            return start_plain(config, listener)
        from serai.boxes.programs.bubblewrap_box import start_bubblewrap

        return start_bubblewrap(config, listener)
    finally:
        os.close(listener)  # it is the box server's: when that ends, nobody listens


def _listen() -> int:
    """By its bare name, because the path of a socket may have 107 bytes only."""
    if os.path.lexists(SOCKET):  # from before a pause
        os.unlink(SOCKET)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(SOCKET)
    os.chmod(SOCKET, 0o666)  # noqa: S103  (its folder is for the owner alone)
    listener.listen(_BACKLOG)
    return listener.detach()


def _start_own(config: Config, listener: int) -> LaunchedBox:
    """Namespaces made by ourselves."""
    rootfs, first = config["rootfs"], config["ids"]
    if first is not None:
        namespace_box.prepare_as_root(rootfs, first)
        os.chdir("root")
    shake = Handshake()

    def run_server() -> NoReturn:
        namespace_box.enter_namespaces(config["box_id"], rootfs, config["shm"], prepared=first is not None)
        confinement.set_resource_limit(config["rlimits"])
        os.umask(0o022)
        confinement.set_process_title(b"porter")
        confinement.confine_in_namespaces(listener, shake)
        box_server.run(listener)

    def prepare_outside() -> None:
        namespace_box.map_ids(pid, first)
        join_cgroups(config["cgroups"], pid)

    pid = syscalls.clone(namespace_box.NAMESPACES)
    if pid == 0:
        shake.run_child(run_server)
    box = LaunchedBox(config, pid)
    shake.start_child(box, prepare_outside)
    return box


def _wait_for_end(box: LaunchedBox, woken: int, log: Log) -> bool:
    """Until the box server ends, or we are to end it: whether we did."""
    waiting = select.poll()
    for descriptor in (0, box.watch, woken, log.said):
        waiting.register(descriptor, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in waiting.poll()}
        if box.watch in ready:
            return False
        if woken in ready or (0 in ready and not os.read(0, 4096)):
            box.kill()
            return True
        if log.said in ready and not log.copy():
            waiting.unregister(log.said)


def _wake_on_term() -> int:
    """A descriptor that can be read once somebody asks us to end."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGTERM, lambda *_: None)
    return woken


def _report(text: bytes) -> None:
    try:
        os.write(1, text)
    except BrokenPipeError:
        pass  # an owner that is gone: the lifeline says so too
    null = os.open("/dev/null", os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def _fail(error: str, hint: str = "") -> NoReturn:
    _report(encode_line(error=error, hint=hint))
    os._exit(1)


def _probe() -> NoReturn:
    """Try what `own` needs, and say why it does not work: one line like that of a box, and then nothing is left."""
    shake = Handshake()
    first = namespace_box.FIRST_ID if os.geteuid() == 0 else None

    def run_probe() -> NoReturn:
        namespace_box.probe_namespaces()
        confinement.confine_in_namespaces(shake.told, shake)
        os._exit(0)

    try:
        if first is not None:
            syscalls.unshare(syscalls.CloneFlag.MOUNTS)
        pid = syscalls.clone(namespace_box.NAMESPACES)
        if pid == 0:
            shake.run_child(run_probe)
        shake.start_child(box := LaunchedBox(_NOTHING, pid), lambda: namespace_box.map_ids(pid, first))
        box.wait()
    except BoxSetupError as error:
        _fail(str(error), error.hint)
    except OSError as error:
        _fail(f"{error.filename or 'namespaces'}: {error.strerror}")
    _report(encode_line(ready=True))
    os._exit(0)


_NOTHING: Config = {
    "mode": "own",
    "folder": "",
    "box_id": "",
    "rootfs": None,
    "ids": None,
    "cgroups": [],
    "rlimits": {},
    "shm": "",
    "bwrap": [],
}

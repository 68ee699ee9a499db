"""The launcher: one for each box. It makes the box around the porter, tells that it is ready, and ends it when its owner does.

Standard input is a lifeline: its end means that the owner is gone, or wants the box gone. Standard output gets one line of JSON,
`{"ready": true, "pid": …}` or `{"error": …, "hint": …}`; standard error is the log of the box. Its exit status is the porter's.

The porter is forked, not executed: a box needs no Python, so any base tree will do. If the launcher itself is killed, the kernel
kills the porter, and with it everything in its namespaces.
"""

from __future__ import annotations

import os
import select

from serai.boxes.programs import confine, porter, space, syscalls
from serai.boxes.programs.logs import Log
from serai.boxes.programs.starting import Box, Failed, Handshake, join, line, parsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from typing import NoReturn

    from serai.boxes.programs.starting import Config
else:  # their public modules bring enumerations along, and they take as long as a box
    import _signal as signal
    import _socket as socket

__all__ = ["main"]

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
        box = _start(parsed(text))
    except Failed as error:
        log.take_over()
        _fail(str(error), error.hint)
    except OSError as error:
        log.take_over()
        _fail(f"{error.filename or 'the box'}: {error.strerror}")
    log.take_over()
    _say(line(ready=True, pid=box.pid))
    asked = _stay(box, woken, log)
    code = box.wait()
    log.copy()
    if not asked:
        os.write(2, f"serai: the porter ended by itself, with exit status {code}\n".encode())
    os._exit(code)


def _start(config: Config) -> Box:
    os.chdir(config["folder"])
    listener = _listen()
    try:
        if config["mode"] == "own":
            return _start_own(config, listener)
        if config["mode"] == "process":
            from serai.boxes.programs.plainly import start_plainly

            return start_plainly(config, listener)
        from serai.boxes.programs.bubblewrap import start_bubblewrap

        return start_bubblewrap(config, listener)
    finally:
        os.close(listener)  # it is the porter's: when that ends, nobody listens


def _listen() -> int:
    """By its bare name, because the path of a socket may have 107 bytes only."""
    if os.path.lexists(SOCKET):  # from before a pause
        os.unlink(SOCKET)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(SOCKET)
    os.chmod(SOCKET, 0o666)  # noqa: S103  (its folder is for the owner alone)
    listener.listen(_BACKLOG)
    return listener.detach()


def _start_own(config: Config, listener: int) -> Box:
    """Namespaces made by ourselves."""
    rootfs, first = config["rootfs"], config["ids"]
    if first is not None:
        space.prepare_as_root(rootfs, first)
        os.chdir("root")
    shake = Handshake()

    def inside() -> NoReturn:
        space.enter(config["box_id"], rootfs, config["shm"], prepared=first is not None)
        confine.set_limits(config["rlimits"])
        os.umask(0o022)
        confine.become(b"porter")
        confine.confine(listener, shake)
        porter.run(listener)

    def around() -> None:
        space.map_ids(pid, first)
        join(config["cgroups"], pid)

    pid = syscalls.clone(space.NAMESPACES)
    if pid == 0:
        shake.child(inside)
    box = Box(config, pid)
    shake.go(box, around)
    return box


def _stay(box: Box, woken: int, log: Log) -> bool:
    """Until the porter ends, or we are to end it: whether we did."""
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


def _say(text: bytes) -> None:
    try:
        os.write(1, text)
    except BrokenPipeError:
        pass  # an owner that is gone: the lifeline says so too
    null = os.open("/dev/null", os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def _fail(error: str, hint: str = "") -> NoReturn:
    _say(line(error=error, hint=hint))
    os._exit(1)


def _probe() -> NoReturn:
    """Try what `own` needs, and say why it does not work: one line like that of a box, and then nothing is left."""
    shake = Handshake()
    first = space.FIRST_ID if os.geteuid() == 0 else None

    def inside() -> NoReturn:
        space.attempt()
        confine.confine(shake.told, shake)
        os._exit(0)

    try:
        if first is not None:
            syscalls.unshare(syscalls.Clone.MOUNTS)
        pid = syscalls.clone(space.NAMESPACES)
        if pid == 0:
            shake.child(inside)
        shake.go(box := Box(_NOTHING, pid), lambda: space.map_ids(pid, first))
        box.wait()
    except Failed as error:
        _fail(str(error), error.hint)
    except OSError as error:
        _fail(f"{error.filename or 'namespaces'}: {error.strerror}")
    _say(line(ready=True))
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

"""A box without namespaces: a porter in a folder, as far as Landlock and seccomp confine it.

Without a process namespace nobody ends everything at once, so a guard stands between the launcher and the porter. All three
take in orphans (subreaper): whatever daemon a command leaves comes to one of them. When the launcher dies, the guard kills
all that is left; when the guard dies, the launcher does.
"""

from __future__ import annotations

import os
import select

from serai.boxes.programs import confine, porter
from serai.boxes.programs.furnishing import FOLDERS
from serai.boxes.programs.starting import Box, Handshake, exit_code, join, send_kill
from serai.boxes.programs.syscalls import Prctl, prctl

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import NoReturn

    from serai.boxes.programs.starting import Config
else:  # the public module brings enumerations along, and they take as long as a box
    import _signal as signal

__all__ = ["kill_descendants", "start_plainly"]


class PlainBox(Box):
    """Our child is the guard."""

    def __init__(self, config: Config, child: int, shake: Handshake) -> None:
        super().__init__(config, child)
        self._shake = shake

    def kill(self) -> None:
        self._shake.close()  # as if we were gone: the guard sees to the rest

    def wait(self) -> int:
        code = super().wait()
        kill_descendants()
        return code


def start_plainly(config: Config, listener: int) -> Box:
    root = os.path.join(config["folder"], "root")
    for name, mode in {"": 0o755, **FOLDERS}.items():
        if not os.path.isdir(path := os.path.join(root, name)):
            os.mkdir(path)
            os.chmod(path, mode)
    shake = Handshake()
    guarded, tell = os.pipe()
    prctl(Prctl.CHILD_SUBREAPER, 1)
    guard = os.fork()
    if guard == 0:
        os.close(guarded)
        _guard(config, root, listener, shake, tell)
    os.close(tell)
    box = PlainBox(config, guard, shake)
    box.pid = int(os.read(guarded, 16) or b"0")
    os.close(guarded)
    shake.go(box, lambda: join(config["cgroups"], box.pid))
    return box


def _guard(config: Config, root: str, listener: int, shake: Handshake, tell: int) -> NoReturn:
    def inside() -> NoReturn:
        os.setsid()
        prctl(Prctl.CHILD_SUBREAPER, 1)  # so that orphans come to the porter, as they do to the first process of a namespace
        confine.set_limits(config["rlimits"])
        os.umask(0o022)
        confine.become(b"porter")
        confine.confine_process(root, listener, shake)
        porter.run(listener, root=root)

    prctl(Prctl.CHILD_SUBREAPER, 1)
    child = os.fork()
    if child == 0:
        shake.child(inside)
    os.close(listener)
    shake.loosen()
    os.close(shake.told)
    os.write(tell, str(child).encode())
    os.close(tell)
    waiting = select.poll()
    waiting.register(shake.lifeline, 0)
    waiting.register(os.pidfd_open(child), select.POLLIN)
    waiting.poll()
    send_kill(child)
    code = exit_code(os.waitpid(child, 0)[1])
    kill_descendants()
    os._exit(code)


def kill_descendants() -> None:
    """Kill all that descends from us. Stopped first, so that none of them can make another while we look."""
    try:
        while True:
            known: set[int] = set()
            while new := _descendants(os.getpid()) - known:
                known |= new
                for pid in new:
                    _send(pid, signal.SIGSTOP)
            for pid in known:
                _send(pid, signal.SIGKILL)
            os.waitpid(-1, 0)
    except ChildProcessError:
        pass  # none is left


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # it has ended meanwhile


def _descendants(root: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read(1024).rpartition(b") ")[2].split()[1])
        except (OSError, ValueError):
            continue  # it has just ended
        children.setdefault(parent, []).append(int(name))
    found: set[int] = set()
    queue = [root]
    while queue:
        new = children.get(queue.pop(), [])
        found.update(new)
        queue.extend(new)
    return found

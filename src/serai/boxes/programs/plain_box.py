"""A box without namespaces: a server in a folder, as far as Landlock and seccomp confine it.

Without a process namespace nothing ends all processes at once, so a supervisor stands between the launcher and the server. All
three adopt orphans (subreaper): a daemon that a command leaves comes to one of them. When the launcher dies, the supervisor kills
all that is left; when the supervisor dies, the launcher does.
"""

from __future__ import annotations

import os
import select

from serai.boxes.programs import box_command, box_server, confinement
from serai.boxes.programs.box_setup import FOLDERS, Handshake, LaunchedBox, join_cgroups, send_kill, to_exit_code
from serai.kernel.syscalls import PrctlOption, prctl

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Mapping
    from typing import NoReturn

    from serai.boxes.programs.box_setup import Config
else:  # the public modules bring enumerations along, and they take as long as a box
    import _signal as signal
    import _socket as socket

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Variables that the launcher was started with, and that all commands get too: should launcher, supervisor and box server die at
# once, what a command is just starting becomes nobody's child, and is found by these.
_MARKS = ("SERAI_BOX", "SERAI_RUN")


class PlainBox(LaunchedBox):
    """Our child is the supervisor."""

    def __init__(self, config: Config, child: int, shake: Handshake) -> None:
        super().__init__(config, child)
        self._shake = shake

    def kill(self) -> None:
        self._shake.close()  # as if we were gone: the supervisor sees to the rest

    def wait(self) -> int:
        code = super().wait()
        kill_descendants()
        return code


def start_plain(config: Config, listener: int) -> LaunchedBox:
    root = os.path.join(config["folder"], "root")
    _prepare_folders(config["ids"])
    shake = Handshake()
    pid_pipe, tell = os.pipe()
    prctl(PrctlOption.CHILD_SUBREAPER, 1)
    supervisor = os.fork()
    if supervisor == 0:
        os.close(pid_pipe)
        _run_supervisor(config, root, listener, shake, tell)
    os.close(tell)
    box = PlainBox(config, supervisor, shake)
    box.pid = int(os.read(pid_pipe, 16) or b"0")
    os.close(pid_pipe)
    shake.start_child(box, lambda: join_cgroups(config["cgroups"], box.pid))
    return box


def _prepare_folders(owner: int | None) -> None:
    """The folders of a box in its own, the working directory. None is looked for through a link: a former life of the box may have
    left one to elsewhere in place of each."""
    top = os.open(".", _FOLDER)
    try:
        _make_folders(top, {"root": 0o755}, owner)
        inner = os.open("root", _FOLDER, dir_fd=top)
        try:
            _make_folders(inner, FOLDERS, owner)
        finally:
            os.close(inner)
    finally:
        os.close(top)


def _make_folders(at: int, wanted: Mapping[str, int], owner: int | None) -> None:
    """Make what is missing; the folder that a name has in front comes before it. What is there, of any kind, stays as it is."""
    for path, mode in wanted.items():
        above, _, name = path.rpartition("/")
        try:
            parent = os.open(above or ".", _FOLDER, dir_fd=at)
        except OSError:
            continue  # no folder any more: then there is no place for it
        try:
            os.mkdir(name, dir_fd=parent)
            made = os.open(name, _FOLDER, dir_fd=parent)
            if owner is not None:
                os.fchown(made, owner, owner)
            os.fchmod(made, mode)
            os.close(made)
        except FileExistsError:
            pass
        finally:
            os.close(parent)


def _run_supervisor(config: Config, root: str, listener: int, shake: Handshake, tell: int) -> NoReturn:
    user = config["ids"]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)

    def run_server() -> NoReturn:
        os.setsid()
        prctl(PrctlOption.CHILD_SUBREAPER, 1)  # orphans come to the box server, as to the first process of a namespace
        confinement.set_resource_limit(config["rlimits"])
        os.umask(0o022)
        confinement.set_process_title(b"porter")
        marks = {name: os.environ[name] for name in _MARKS if name in os.environ}
        supervisor = theirs.detach()
        confinement.confine_without_namespaces(root, user, listener, shake, supervisor)
        box_server.run(listener, root=root, marks=marks, supervisor=supervisor)

    prctl(PrctlOption.CHILD_SUBREAPER, 1)
    child = os.fork()
    if child == 0:
        shake.run_child(run_server)
    os.close(listener)
    theirs.close()
    shake.detach()
    os.close(shake.told)
    os.write(tell, str(child).encode())
    os.close(tell)
    _watch(child, shake.lifeline, ours, user)
    send_kill(child)
    code = to_exit_code(os.waitpid(child, 0)[1])
    kill_descendants()
    os._exit(code)


def _watch(child: int, lifeline: int, wire: socket.socket, user: int | None) -> None:
    """Until the box server ends or the launcher is gone; meanwhile terminals, when the box server asks for some."""
    waiting = select.poll()
    waiting.register(lifeline, 0)
    waiting.register(os.pidfd_open(child), select.POLLIN)
    waiting.register(wire.fileno(), select.POLLIN)
    while {descriptor for descriptor, _ in waiting.poll()} == {wire.fileno()}:
        if not box_command.serve_terminal(wire, user):
            waiting.unregister(wire.fileno())


def kill_descendants() -> None:
    """Kill all that descends from us. Stopped first, so that none of them can make another while we look."""
    try:
        while True:
            known: set[int] = set()
            while new := _find_descendants(os.getpid()) - known:
                known |= new
                for pid in new:
                    box_command.send_signal(pid, signal.SIGSTOP)
            for pid in known:
                box_command.send_signal(pid, signal.SIGKILL)
            os.waitpid(-1, 0)
    except ChildProcessError:
        pass  # none is left


def _find_descendants(root: int) -> set[int]:
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

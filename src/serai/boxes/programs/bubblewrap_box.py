"""A box made by bubblewrap: for users whose machine lets only that program make user namespaces.

It has the same layout and the same system call filter; it has no ranges of ids and no overlays. Its server cannot be forked: a
Python of the machine runs it inside, with our programs as an archive on its standard input: no folder of ours is visible there.
"""

from __future__ import annotations

import fcntl
import os
import select
from itertools import count

from serai.boxes.programs import box_setup
from serai.boxes.programs.confinement import build_box_filter
from serai.kernel.syscalls import MACHINE, PrctlOption, prctl

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Iterable, Mapping, Sequence
    from typing import NoReturn

    from serai.boxes.programs.box_setup import Config
else:  # the public module brings enumerations along, and they take as long as a box
    import _signal as signal

_LISTENER, _INFO, _FILTER, _COVERS = 3, 4, 5, 6  # _COVERS and above
# Files that tell the loader of programs to load more, or from elsewhere, and what is in them by default. In a box they would be of
# a former life of it, and what they name would be loaded into our box server. The other one is of musl.
_PRELOAD, _MUSL = {"/etc/ld.so.preload": ""}, {f"/etc/ld-musl-{MACHINE}.path": "/lib:/usr/local/lib:/usr/lib"}
# The numbers are PR_SET_DUMPABLE, so that nobody in the box looks into the box server, and the listener.
_BOOT = """
import ctypes, os, resource, sys
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
for name, value in {limits!r}.items():
    number = getattr(resource, "RLIMIT_" + name)
    hard = resource.getrlimit(number)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(number, (value, value))
sys.path.insert(0, "/proc/self/fd/0")
from serai.boxes.programs import box_server
os.write(1, b"ok")
os.closerange(4, 64)
os.environ.clear()
box_server.run(3)
"""


class BubblewrapBox(box_setup.LaunchedBox):
    """Our child is bubblewrap, which waits outside; the box server is the first process inside."""

    def __init__(self, config: Config, child: int, pid: int) -> None:
        super().__init__(config, child)
        self.pid = pid
        self._inside = os.pidfd_open(pid)

    def wait(self) -> int:
        """Its end is known before that of everything inside; the first process there ends last."""
        code = super().wait()
        waiting = select.poll()
        waiting.register(self._inside, select.POLLIN)
        waiting.poll()
        return code


def start_bubblewrap(config: Config, listener: int) -> box_setup.LaunchedBox:
    if not os.path.isdir("root"):
        os.mkdir("root", 0o755)
    os.chdir("root")
    machine = box_setup.MachineView()
    loading = _PRELOAD | (_MUSL if os.path.exists(f"/lib/ld-musl-{MACHINE}.so.1") else {})
    bwrap, python, *prefix = config["bwrap"]
    _remove_links([*machine.shared, *prefix, *loading])
    _restore_links(machine)
    os.umask(0)
    box_setup.make_root_folders(config["box_id"], machine)
    os.umask(0o022)
    boot = _BOOT.format(limits={"CORE": 0, **config["rlimits"]})
    argv = [bwrap, *build_options(config["box_id"], os.getcwd(), [*machine.shared, *prefix])]
    covers = {_COVERS + at: _create_memfd(text.encode()) for at, text in enumerate(loading.values())}
    for descriptor, path in zip(covers, loading, strict=True):
        argv += ["--ro-bind-data", str(descriptor), path]
    argv += ["--info-fd", str(_INFO), "--seccomp", str(_FILTER), "--", python, "-I", "-S", "-c", boot]
    program = _build_archive()
    rules = _create_memfd(build_box_filter())
    hear, told = os.pipe()
    inform, info = os.pipe()
    child = os.fork()
    if child == 0:
        _execute(argv, {0: program, 1: told, _LISTENER: listener, _INFO: info, _FILTER: rules, **covers})
    for descriptor in (program, rules, told, info, *covers.values()):
        os.close(descriptor)
    try:
        return _wait_until_ready(config, child, inform, hear)
    finally:
        os.close(inform)
        os.close(hear)


def build_options(box_id: str, root: str, shared: Sequence[str]) -> list[str]:
    """What bubblewrap is told of the layout: the box's folder as its root, the machine's programs over it."""
    made = ["--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    made += ["--uid", "0", "--gid", "0", "--hostname", box_id, "--die-with-parent", "--new-session", "--as-pid-1"]
    made += ["--bind", root, "/"]
    for path in shared:
        made += ["--ro-bind", path, path]
    return [*made, "--proc", "/proc", "--dev", "/dev", "--chdir", "/workspace"]


def _remove_links(mounted: Iterable[str]) -> None:
    """Places that are mounted over, or written, must be in the box: a former life of it may have left links to elsewhere there."""
    places = {*box_setup.FOLDERS, "dev", "proc", *(path[1:] for path in mounted)}
    parents = {"/".join(parts[:depth]) for place in places for parts in [place.split("/")] for depth in range(1, len(parts))}
    for place in sorted(places | parents):  # what is above comes first
        if os.path.islink(place):
            os.unlink(place)


def _restore_links(machine: box_setup.MachineView) -> None:
    """Where the machine has a link such as /lib64 -> usr/lib64, the loader and libraries of our box server are found through it.
    What a former life of the box put in its place is moved aside."""
    for path, target in machine.links.items():
        place = path[1:]
        if os.path.lexists(place) and not (os.path.islink(place) and os.readlink(place) == target):
            os.rename(place, next(name for number in count(1) if not os.path.lexists(name := f"{place}.moved-{number}")))


def _build_archive() -> int:
    """Our programs, as Python can import them from one file."""
    import io
    import zipfile

    buffer, folder = io.BytesIO(), os.path.dirname(os.path.abspath(__file__))
    with zipfile.ZipFile(buffer, "w") as archive:
        for package in ("serai", "serai/boxes"):
            archive.writestr(f"{package}/__init__.py", "")
        for name in os.listdir(folder):
            if name.endswith(".py"):
                archive.write(os.path.join(folder, name), f"serai/boxes/programs/{name}")
    return _create_memfd(buffer.getvalue())


def _create_memfd(data: bytes) -> int:
    descriptor = os.memfd_create("serai")
    os.write(descriptor, data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _execute(argv: list[str], descriptors: Mapping[int, int]) -> NoReturn:
    try:
        signal.set_wakeup_fd(-1)
        prctl(PrctlOption.PDEATHSIG, signal.SIGKILL)
        box_setup.prefer_oom_kill(os.getpid())
        # Out of the way first, so that none is overwritten while it is still needed.
        parked = {target: fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, 16) for target, ours in descriptors.items()}
        for target, ours in parked.items():
            os.dup2(ours, target)
        os.execve(argv[0], argv, {})  # noqa: S606  (no shell is what we want)
    finally:
        os._exit(127)


def _wait_until_ready(config: Config, child: int, inform: int, hear: int) -> box_setup.LaunchedBox:
    """A box once its box server is there; else nothing is left of it."""
    told = b""
    while piece := os.read(inform, 4096):
        told += piece
    if told and os.read(hear, len(box_setup.OK)) == box_setup.OK:
        return BubblewrapBox(config, child, box_setup.parse_json(told.decode().strip())["child-pid"])
    box_setup.send_kill(child)
    os.waitpid(child, 0)
    raise box_setup.BoxSetupError("bubblewrap could not make the box", "its log says why: `serai box logs`")

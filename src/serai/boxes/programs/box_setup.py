"""What all ways of making a box share: the launcher's configuration, the processes it watches, and how they begin together.

Also what a box finds on its disk when it starts: folders, a small /etc, and which parts of the machine it sees read-only.
"""

from __future__ import annotations

import os
import stat
from _json import encode_basestring_ascii, make_scanner

TYPE_CHECKING = False
# Programs and libraries: the machine's own. Where one is a link (/bin -> usr/bin) the box gets the same link.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Of /etc only what programs need to find their libraries, certificates and the time; nothing of it is secret.
_ETC = (
    *("/etc/alternatives", "/etc/ca-certificates", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/mime.types"),
    *("/etc/protocols", "/etc/services", "/etc/terminfo"),
)
# On disk, all of them: what a hook writes there must still be there after a pause (spec hooks 3.5).
FOLDERS = {
    "etc": 0o755,
    "home": 0o755,
    "root": 0o700,
    "run": 0o755,
    "tmp": 0o1777,
    "var": 0o755,
    "var/tmp": 0o1777,
    "workspace": 0o755,
}
_MOUNT_POINTS = {"dev": 0o755, "proc": 0o555}

_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1\tlocalhost {box_id}\n::1\tlocalhost {box_id}\n",
    "etc/hostname": "{box_id}\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
}


class MachineView:
    """What of this machine a box without a base tree sees, as it was before the box had a root of its own."""

    def __init__(self) -> None:
        self.links = {path: os.readlink(path) for path in SYSTEM if os.path.islink(path)}
        folders = {path: True for path in SYSTEM if os.path.isdir(path) and path not in self.links}
        self.shared = folders | {path: os.path.isdir(path) for path in _ETC if _is_public(path)}  # path: whether it is a folder


def _is_public(path: str) -> bool:
    try:
        return bool(os.stat(path).st_mode & stat.S_IROTH)
    except OSError:
        return False


def make_root_folders(box_id: str, machine: MachineView | None) -> None:
    """Make in the working directory, the root of the box, what is missing there. What is there stays: it may be of before a pause.

    Without a `machine`, over a base tree, only what cannot be done without.
    """
    for name, mode in (FOLDERS | _MOUNT_POINTS).items():
        _make_folder(name, mode)
    for name, text in _FILES.items():
        if machine is not None or name in {"etc/hosts", "etc/hostname"}:
            _make_file(name, text.format(box_id=box_id))
    if machine is None:
        return
    for path, target in machine.links.items():
        _make_link(target, path[1:])
    _make_link("../usr/lib/os-release", "etc/os-release")
    for path, is_folder in machine.shared.items():
        _make_mount_point(path[1:], is_folder=is_folder)


def _make_mount_point(name: str, *, is_folder: bool) -> None:
    """Something to mount over, and the folders on the way to it."""
    parts = name.split("/")
    for depth in range(1, len(parts)):
        _make_folder("/".join(parts[:depth]), 0o755)
    if is_folder:
        _make_folder(name, 0o755)
    else:
        _make_file(name, "")


# In each of these what is there stays; should it be something else, whoever needs the right thing will say so.


def _make_folder(name: str, mode: int) -> None:
    try:
        os.mkdir(name, mode)
        os.chmod(name, mode)
    except OSError:
        pass


def _make_link(target: str, name: str) -> None:
    try:
        os.symlink(target, name)
    except OSError:
        pass


def _make_file(name: str, text: str) -> None:
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except OSError:
        return
    os.write(descriptor, text.encode())
    os.close(descriptor)


if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Sequence
    from typing import Any, Literal, NoReturn, TypedDict

    class Config(TypedDict):
        """What the launcher is told, on its command line: everybody on the machine may read it, so nothing in it is secret."""

        mode: Literal["own", "bwrap", "process"]
        folder: str  # of the box: its disk and its socket are there
        box_id: str
        rootfs: str | None  # a base tree; else the machine's /usr
        ids: int | None  # the first of the box's 65536 ids on the machine, or of `process` its only one; None: our own
        cgroups: list[str]  # folders of the control groups to join
        rlimits: dict[str, int]  # by the name of the resource, such as NPROC
        shm: str  # how large /dev/shm may be: bytes, or a share of the machine's memory
        bwrap: list[str]  # the program bubblewrap and the Python to run inside; empty unless that is the mode
else:  # the public module brings enumerations along, and they take as long as a box
    import _signal as signal

OK = b"ok"
_RATHER = "500"


class _Reading:
    """How the scanner of JSON reads."""

    strict, object_hook, object_pairs_hook, parse_float, parse_int, parse_constant = True, None, None, float, int, float


def parse_json(text: str) -> Any:
    return make_scanner(_Reading)(text, 0)[0]  # type: ignore[arg-type]


def encode_line(**members: str | int) -> bytes:
    """A line of JSON."""
    items = (
        f'"{name}": {encode_basestring_ascii(value) if isinstance(value, str) else str(value).lower()}'
        for name, value in members.items()
    )
    return ("{" + ", ".join(items) + "}\n").encode()


class BoxSetupError(Exception):
    """The box cannot be made. The text is for people; `hint` says what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class LaunchedBox:
    """The processes of a box that has been started. `pid` is its box server's; `child` is our own child, often the same."""

    def __init__(self, config: Config, child: int) -> None:
        self.config = config
        self.child = child
        self.pid = child
        self.watch = os.pidfd_open(child)  # readable at its end

    def kill(self) -> None:
        """Kill the first process of its namespaces, and with it all of them."""
        send_kill(self.pid)
        for folder in self.config["cgroups"]:
            if os.path.exists(freezer := f"{folder}/freezer.state"):
                write(freezer, "THAWED")  # what is frozen does not die (version 1 of control groups)

    def wait(self) -> int:
        """Until all of it is gone; how our child ended, as an exit status."""
        return to_exit_code(os.waitpid(self.child, 0)[1])


def to_exit_code(status: int) -> int:
    """As a shell says it: 128 and the signal."""
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def join_cgroups(cgroups: Sequence[str], pid: int) -> None:
    """Count `pid` to the box."""
    for folder in cgroups:
        write(f"{folder}/cgroup.procs", str(pid))
    prefer_oom_kill(pid)


def prefer_oom_kill(pid: int) -> None:
    """When the machine runs out of memory, rather something in a box than anything else. The box may take it back, unless we have
    the right (CAP_SYS_RESOURCE) to make it final."""
    try:
        write(f"/proc/{pid}/oom_score_adj", _RATHER)
    except OSError:
        pass  # it is a wish only, and somebody may have wished for more


def write(path: str, text: str) -> None:
    """In one piece, as the kernel's own files want it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def send_kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has ended meanwhile


class Handshake:
    """Two pipes between the launcher and its child: "go" when all is set up around it, and what became of it.

    The launcher keeps its end of the first one open: when that is closed, the launcher is gone.
    """

    def __init__(self) -> None:
        self.lifeline, self._go = os.pipe()
        self._hear, self.told = os.pipe()

    def run_child(self, work: Callable[[], NoReturn]) -> NoReturn:
        """In the child: wait for "go", then work. What goes wrong is told, and ends it."""
        try:
            self.detach()
            if os.read(self.lifeline, 1):
                work()
        except BoxSetupError as error:
            self.tell(str(error), error.hint)
        except OSError as error:
            self.tell(f"{error.filename or 'the box'}: {error.strerror}")
        except BaseException as error:
            self.tell(f"{type(error).__name__}: {error}")
        finally:
            os._exit(1)

    def detach(self) -> None:
        """Be a process of our own: neither the launcher's ends of anything nor its signal handlers."""
        os.close(self._go)
        os.close(self._hear)
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.close(null)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def tell(self, error: str, hint: str = "") -> None:
        os.write(self.told, encode_line(error=error, hint=hint))

    def start_child(self, box: LaunchedBox, prepare: Callable[[], None]) -> None:
        """In the launcher: `prepare` around the child, let it go on, hear what became of it. A failure leaves nothing behind."""
        os.close(self.lifeline)
        os.close(self.told)
        try:
            prepare()
            try:
                os.write(self._go, b"g")
            except BrokenPipeError:
                pass  # it is dead already, and has told why
            self._wait_for_ok()
        except BaseException:
            box.kill()
            box.wait()
            raise

    def close(self) -> None:
        """Let the child know that we are gone."""
        os.close(self._go)

    def _wait_for_ok(self) -> None:
        heard = b""
        while piece := os.read(self._hear, 4096):
            heard += piece
        os.close(self._hear)
        if heard != OK:
            told = parse_json(heard.decode() or '{"error": "its first process died while the box was being made", "hint": ""}')
            raise BoxSetupError(told["error"], told["hint"])

"""The space of a box: its own root, devices, processes, network and users (spec hooks 8).

Nothing is ever mounted where the machine could see it. What a box gets of the machine is copied first as mounts that hang nowhere;
then its folder becomes the root and the machine's is gone; only then are they hung up. So a name inside the box, which may be a
link that a former life of the box left there, cannot lead out of it.

The folder of a box has `root` (its disk), and over a base tree `upper`, `work` and `lower` with `root` as the place of the overlay.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct

from serai.boxes.programs.box_setup import SYSTEM, BoxSetupError, MachineView, make_root_folders, send_kill, write
from serai.kernel import syscalls
from serai.kernel.syscalls import CloneFlag, MountAttr, attach_mount, create_mount, mount, mount_setattr, open_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
else:  # the public module brings enumerations along, and they take as long as a box
    import _socket as socket

NAMESPACES = CloneFlag.USER | CloneFlag.MOUNTS | CloneFlag.PIDS | CloneFlag.NET | CloneFlag.IPC | CloneFlag.UTS
RANGE = 65536  # ids of a box, when it has more than one
# Above those that distributions hand out to users, services and containers, below those that some programs take for negative.
FIRST_ID = 0x70000000

_SLAVE_ALL = 1 << 19 | 1 << 14  # MS_SLAVE, MS_REC: what the machine unmounts goes here too; nothing of ours goes there
_PLAIN = MountAttr.NOSUID | MountAttr.NODEV
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}
# What of /proc tells of the machine or steers it. Most is closed to a box anyway, having no owner there; this does not rest on it.
_HIDDEN = (
    "acpi",
    "asound",
    "kcore",
    "keys",
    "kmsg",
    "latency_stats",
    "sched_debug",
    "scsi",
    "sysrq-trigger",
    "timer_list",
    "timer_stats",
)
_TERMINALS = "256"  # at once; the machine has some thousands for all
_FIXED = ("bus", "fs", "irq", "sys")
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1  # SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP


def map_ids(pid: int, first: int | None) -> None:
    """Say who is who for the new user namespace of `pid`: a range from `first`, or only root, which is ourselves."""
    if first is None:
        write(f"/proc/{pid}/setgroups", "deny")  # or the kernel refuses a group from an ordinary user
    for kind, ours in (("uid", os.geteuid()), ("gid", os.getegid())):
        write(f"/proc/{pid}/{kind}_map", f"0 {ours} 1" if first is None else f"0 {first} {RANGE}")


def prepare_as_root(rootfs: str | None, first: int) -> None:
    """In the launcher, which is the machine's root: mounts of its own, and a root whose owners are those of the box."""
    syscalls.unshare(CloneFlag.MOUNTS)
    mount("none", "/", "", _SLAVE_ALL)
    _make_folders(rootfs)
    if rootfs is None:
        os.chown("root", first, first)
        return
    of_base = os.stat(rootfs)
    os.chown("upper", first + of_base.st_uid % RANGE, first + of_base.st_gid % RANGE)
    os.chmod("upper", stat.S_IMODE(of_base.st_mode))
    base = open_tree(rootfs, MountAttr.RDONLY | _PLAIN, recursive=False)
    try:
        _map_owners(first, base)
    except OSError as error:
        hint = "put the base tree on another file system, such as ext4, xfs or btrfs"
        raise BoxSetupError(f"owners cannot be shifted for the base tree {rootfs}: {error.strerror}", hint) from None
    attach_mount(base, "lower")
    os.close(base)
    _mount_overlay("")


def _prepare(rootfs: str | None) -> None:
    """In the box, when an ordinary user makes it: the same, with one owner."""
    _make_folders(rootfs)
    if rootfs is None:
        return
    if os.stat(rootfs).st_uid != os.geteuid():
        hint = "copy the tree, so that it is yours, or make the box as root"
        raise BoxSetupError(f"the base tree {rootfs} belongs to somebody else", hint)
    os.chmod("upper", stat.S_IMODE(os.stat(rootfs).st_mode) | stat.S_IRWXU)
    base = open_tree(rootfs, MountAttr.RDONLY)
    attach_mount(base, "lower")
    os.close(base)
    _mount_overlay(",userxattr")


def _make_folders(rootfs: str | None) -> None:
    for name in ("root",) if rootfs is None else ("root", "lower", "upper", "work"):
        if not os.path.isdir(name):  # from before a pause
            os.mkdir(name, 0o755)


def _mount_overlay(options: str) -> None:
    try:
        mount("serai", "root", "overlay", 0, f"lowerdir=lower,upperdir=upper,workdir=work{options}")
    except OSError as error:
        hint = "keep boxes on a file system such as ext4, xfs or btrfs, or make the box without a base tree"
        raise BoxSetupError(f"no overlay can be made over the base tree: {error.strerror}", hint) from None


def _map_owners(first: int, tree: int) -> None:
    """Show the owners in `tree` as ids of the box: through a user namespace that has them, held by a process that waits."""
    hold, held = os.pipe()
    pid = syscalls.clone(CloneFlag.USER)
    if pid == 0:
        os.close(held)
        os.read(hold, 1)
        os._exit(0)
    try:
        map_ids(pid, first)
        users = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        try:
            mount_setattr(tree, MountAttr.IDMAP, users=users, recursive=False)
        finally:
            os.close(users)
    finally:
        os.close(hold)
        os.close(held)
        send_kill(pid)
        os.waitpid(pid, 0)


def enter_namespaces(box_id: str, rootfs: str | None, shm: str, *, prepared: bool) -> None:
    """In the box, as the first process of its namespaces: on return its root is ours and the machine is out of reach."""
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    os.setsid()
    syscalls.unshare(CloneFlag.CGROUP)  # now that we are in the groups of the box: they are the root for it
    syscalls.sethostname(box_id)
    _enable_loopback()
    if prepared:
        os.setgroups([])
    else:
        mount("none", "/", "", _SLAVE_ALL)
        _prepare(rootfs)
        os.chdir("root")
    _switch_root(box_id, shm, base=rootfs is not None)
    # No user namespaces inside: most holes of the kernel's need one. Before /proc/sys is fixed.
    write("/proc/sys/user/max_user_namespaces", "0")
    _cover_proc()


def probe_namespaces() -> None:
    """Whether this machine lets us: the steps of `enter_namespaces` that some machines refuse, on nothing."""
    os.setresuid(0, 0, 0)
    mount("none", "/", "", _SLAVE_ALL)
    syscalls.sethostname("serai")
    _enable_loopback()
    for tree in (open_tree("/usr", MountAttr.RDONLY | _PLAIN), create_mount("tmpfs"), create_mount("devpts"), create_mount("proc")):
        os.close(tree)


def _switch_root(box_id: str, shm_size: str, *, base: bool) -> None:
    os.umask(0)
    root = open_tree(".", _PLAIN)
    machine = None if base else MachineView()
    shared = {path: open_tree(path, MountAttr.RDONLY | _PLAIN) for path in machine.shared} if machine else {}
    devices = {name: open_tree(f"/dev/{name}", MountAttr.NOSUID | MountAttr.NOEXEC, recursive=False) for name in _DEVICES}
    proc = create_mount("proc", _PLAIN | MountAttr.NOEXEC)
    dev = create_mount("tmpfs", MountAttr.NOSUID | MountAttr.NOEXEC, mode="755", size="64k", nr_inodes="1024")
    pts = create_mount("devpts", MountAttr.NOSUID | MountAttr.NOEXEC, ptmxmode="666", mode="620", max=_TERMINALS)
    shm = create_mount("tmpfs", _PLAIN, mode="1777", size=shm_size)
    attach_mount(root, ".")
    os.fchdir(root)
    syscalls.pivot_root()
    make_root_folders(box_id, machine)
    for path, tree in shared.items():
        try:
            attach_mount(tree, path)
        except OSError:
            if path in SYSTEM:
                raise  # a box without its /usr is none; without a file of /etc it is what a former life of it made of it
    attach_mount(proc, "/proc")
    attach_mount(dev, "/dev")
    _fill_dev(devices, pts, shm)
    for tree in (root, proc, dev, pts, shm, *shared.values(), *devices.values()):
        os.close(tree)


def _fill_dev(devices: dict[str, int], pts: int, shm: int) -> None:
    for name, tree in devices.items():
        os.close(os.open(f"/dev/{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        attach_mount(tree, f"/dev/{name}")
    for name, tree, mode in (("pts", pts, 0o755), ("shm", shm, 0o1777)):
        os.mkdir(f"/dev/{name}", mode)
        attach_mount(tree, f"/dev/{name}")
    os.symlink("pts/ptmx", "/dev/ptmx")
    for name, target in _DEVICE_LINKS.items():
        os.symlink(target, f"/dev/{name}")


def _cover_proc() -> None:
    for name in _HIDDEN:
        path = f"/proc/{name}"
        if os.path.isdir(path):
            tree = create_mount("tmpfs", _PLAIN | MountAttr.RDONLY | MountAttr.NOEXEC, size="4k", mode="555")
        elif os.path.exists(path):
            tree = open_tree("/dev/null", MountAttr.RDONLY, recursive=False)
        else:
            continue
        attach_mount(tree, path)
        os.close(tree)
    for name in _FIXED:
        if os.path.isdir(f"/proc/{name}"):
            tree = open_tree(f"/proc/{name}", MountAttr.RDONLY | _PLAIN | MountAttr.NOEXEC)
            attach_mount(tree, f"/proc/{name}")
            os.close(tree)


def _enable_loopback() -> None:
    any_socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    flags: int = struct.unpack("16sH14x", fcntl.ioctl(any_socket, _GET_FLAGS, struct.pack("16sH14x", b"lo", 0)))[1]
    fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP))
    any_socket.close()

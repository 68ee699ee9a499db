"""What a box server gives up before it serves, for itself and for everything that it will start.

The order matters: capabilities are needed for the steps before, a change of credentials clears the death signal, and nothing may
be left to do once the system call filter is in place.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select

from serai.boxes.programs.box_setup import OK
from serai.kernel import landlock, seccomp
from serai.kernel.syscalls import MACHINE, PrctlOption, capset, close_other_descriptors, prctl

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping

    from serai.boxes.programs.box_setup import Handshake
else:  # the public module brings enumerations along, and they take as long as a box
    import _signal as signal

# What the root of a box needs to set up files, users and services inside it. Each holds within its user namespace only.
_KEPT = {
    "chown": 0,
    "dac_override": 1,
    "fowner": 3,
    "fsetid": 4,
    "kill": 5,
    "setgid": 6,
    "setuid": 7,
    "setpcap": 8,
    "net_bind_service": 10,
    "sys_chroot": 18,
}
# A plain box made by root has a user of its own, who must get to its folder through folders that are root's alone: the first of
# these that root has itself (in containers often the second only). What it may open there is Landlock's to say.
_REACH = {"dac_read_search": 2, "dac_override": 1}
_AMBIENT_RAISE, _AMBIENT_CLEAR_ALL = 2, 4
_LAST_CAPABILITY = 63

# Programs and what they need to run; nothing here is secret. Not /proc: without a namespace it shows the machine's processes.
_READABLE = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ssl/certs", "/etc/ssl/openssl.cnf"),
    *("/etc/localtime", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/os-release"),
)
# Not /dev/pts: there are the terminals of the owner. /dev/tty is the one that a process has already.
_USABLE = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")

# Which system calls a box may not make. The list names what reaches out of a box or into the depths of the kernel: mounts,
# namespaces, modules, keys, clocks. Debuggers work inside a box (ptrace stays); the box server protects itself from them.
# Everything not named is allowed: a box runs any program.
# name: number on x86_64, number on aarch64 (-1: there is no such call)
_DENIED = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "open_by_handle_at": (304, 265),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "iopl": (172, -1),
    "ioperm": (173, -1),
    "modify_ldt": (154, -1),
    "uselib": (134, -1),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    "vhangup": (153, 58),
    "syslog": (103, 116),
    "fanotify_init": (300, 262),
}
# Its flags are in memory, where no filter can look: the C library then takes clone instead.
_UNKNOWN = {"clone3": (435, 435)}

# Without namespaces the owner's processes and files are in reach, and Landlock speaks of opening files alone. So what a plain box
# does without: other ways than pipes to meet a process (unknown to it, as on a kernel that has none of this), …
_UNKNOWN_IF_PLAIN = {
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmdt": (67, 197),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "mq_timedsend": (242, 182),
    "mq_timedreceive": (243, 183),
    "mq_notify": (244, 184),
    "mq_getsetattr": (245, 185),
    "inotify_init": (253, -1),  # it tells the names of all files that the owner touches
    "inotify_init1": (294, 26),
    "openat2": (437, 437),  # its mode is in memory, where no filter can look: programs take openat instead
}
# … attributes of files, which are lists of who may use them too, …
_UNSUPPORTED_IF_PLAIN = {
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
}

# All the CLONE_NEW… flags; NEWTIME (0x80) is part of the exit signal in clone, and a namespace in unshare.
_NAMESPACES = 0x7E020000
_NEW_TIME = 0x80
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # type into, or paste into, somebody's terminal
_PERSONALITIES = (0, 0x0040000, 0xFFFFFFFF)  # plain, without address randomisation (debuggers), and the question which
# unix, IPv4, IPv6, netlink (asked for the interfaces). Others, such as vsock, know no network namespace.
_FAMILIES = (1, 2, 10, 16)
_SET_IDS = 0o6000  # a program that runs as its owner, whoever starts it
_MAKES_A_FILE = 0o20000100  # O_CREAT, O_TMPFILE: only then is there a mode


def _build_value_tests(*values: int) -> tuple[seccomp.Test, ...]:
    """The first arguments, one by one."""
    last = len(values) - 1
    return tuple((at, seccomp.EQUAL, value, "allow" if at == last else "", "deny") for at, value in enumerate(values))


def _build_set_id_tests(mode_at: int, flags_at: int | None = None) -> tuple[seccomp.Test, ...]:
    test: seccomp.Test = (mode_at, seccomp.ANY_BIT, _SET_IDS, "deny", "allow")
    return (test,) if flags_at is None else ((flags_at, seccomp.ANY_BIT, _MAKES_A_FILE, "", "allow"), test)


# name: numbers, and what decides; each way ends in a verdict.
_BY_ARGUMENT: dict[str, tuple[seccomp.Columns, tuple[seccomp.Test, ...]]] = {
    "clone": ((56, 220), ((0, seccomp.ANY_BIT, _NAMESPACES, "deny", "allow"),)),
    "unshare": ((272, 97), ((0, seccomp.ANY_BIT, _NAMESPACES | _NEW_TIME, "deny", "allow"),)),
    "personality": ((135, 92), seccomp.build_value_tests(0, _PERSONALITIES, "deny")),
    "ioctl": ((16, 29), ((1, seccomp.EQUAL, _TIOCSTI, "deny", ""), (1, seccomp.EQUAL, _TIOCLINUX, "deny", "allow"))),
    "socket": ((41, 198), seccomp.build_value_tests(0, _FAMILIES, "no family")),
}
# … the limits and priorities of others (0 is oneself), and programs that run as the owner for whoever starts them.
_BY_ARGUMENT_IF_PLAIN = _BY_ARGUMENT | {
    # Of no kind: no network, and no way to the machine's daemons.
    "socket": ((41, 198), seccomp.build_value_tests(0, (), "no family")),
    "prlimit64": ((302, 261), _build_value_tests(0)),
    "sched_setparam": ((142, 118), _build_value_tests(0)),
    "sched_setscheduler": ((144, 119), _build_value_tests(0)),
    "sched_setattr": ((314, 274), _build_value_tests(0)),
    "sched_setaffinity": ((203, 122), _build_value_tests(0)),
    "setpriority": ((141, 140), _build_value_tests(0, 0)),
    "ioprio_set": ((251, 30), _build_value_tests(1, 0)),
    "chmod": ((90, -1), _build_set_id_tests(1)),
    "fchmod": ((91, 52), _build_set_id_tests(1)),
    "fchmodat": ((268, 53), _build_set_id_tests(2)),
    "fchmodat2": ((452, 452), _build_set_id_tests(2)),
    "creat": ((85, -1), _build_set_id_tests(1)),
    "mknod": ((133, -1), _build_set_id_tests(1)),
    "mknodat": ((259, 33), _build_set_id_tests(2)),
    "open": ((2, -1), _build_set_id_tests(2, flags_at=1)),
    "openat": ((257, 56), _build_set_id_tests(3, flags_at=2)),
}


def build_box_filter(machine: str = MACHINE, *, plain: bool = False) -> bytes:
    """The filter; for a `plain` box, which has no namespaces, a stricter one."""
    calls = [(_UNKNOWN, "unknown"), (_DENIED, "deny")]
    if plain:
        calls += [(_UNKNOWN_IF_PLAIN, "unknown"), (_UNSUPPORTED_IF_PLAIN, "unsupported")]
    return seccomp.assemble(machine, calls, _BY_ARGUMENT_IF_PLAIN if plain else _BY_ARGUMENT, otherwise="allow")


def set_process_title(name: bytes) -> None:
    """Show a name instead of the command line we were started with: it has paths of the machine, and /proc/1/cmdline is for all."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    first, last = int(fields[45]), int(fields[46])  # where the arguments lie in memory
    if 0 < first < last:
        ctypes.memset(first, 0, last - first)
        ctypes.memmove(first, name[: last - first - 1], min(len(name), last - first - 1))
    prctl(PrctlOption.NAME, name[:15] + b"\0")


def set_resource_limit(limits: Mapping[str, int]) -> None:
    """Resource limits by name, such as NPROC; never above what we have. A box leaves no core files on the machine."""
    for name, wanted in {"CORE": 0, **limits}.items():
        number: int = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(number)[1]
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(number, (value, value))


def confine_in_namespaces(listener: int, shake: Handshake) -> None:
    """The box server of a box with namespaces of its own: give up all but what its root needs inside."""
    drop_capabilities(sum(1 << number for number in _KEPT.values()))
    prctl(PrctlOption.NO_NEW_PRIVS, 1)
    seccomp.install_filter(build_box_filter())
    _finish_confinement(shake, listener)


def confine_without_namespaces(root: str, user: int | None, listener: int, shake: Handshake, supervisor: int) -> None:
    """A box server without namespaces: as far as Landlock and seccomp go. What they leave open, such as modes and times of files,
    only an owner may change: so it becomes `user`, when there is one for it."""
    if user is None:
        drop_capabilities(0)
    else:
        _become_user(user)
    prctl(PrctlOption.NO_NEW_PRIVS, 1)
    if landlock.get_abi_version() > 0:
        readable = ((path, landlock.READ) for path in _READABLE)
        usable = ((path, landlock.USE) for path in _USABLE)
        landlock.restrict([(root, landlock.EVERYTHING), *readable, *usable])
    if seccomp.is_supported():
        seccomp.install_filter(build_box_filter(plain=True))
    _finish_confinement(shake, listener, supervisor)


def _become_user(user: int) -> None:
    drop_bounding_set(sum(1 << number for number in _REACH.values()))
    prctl(PrctlOption.KEEP_CAPABILITIES, 1)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    for number in _REACH.values():
        try:
            capset(1 << number, passed_on=True)
        except PermissionError:
            continue  # root had it not
        prctl(PrctlOption.AMBIENT, _AMBIENT_RAISE, number)
        return
    capset(0)


def drop_capabilities(kept: int) -> None:
    drop_bounding_set(kept)
    capset(kept)


def drop_bounding_set(kept: int) -> None:
    try:
        prctl(PrctlOption.AMBIENT, _AMBIENT_CLEAR_ALL)
        for number in range(_LAST_CAPABILITY + 1):
            if not kept >> number & 1:
                prctl(PrctlOption.BOUNDING_DROP, number)
    except OSError as error:
        if error.errno != 22 and kept:  # 22: beyond the last one that this kernel has; and who has none, has none to drop
            raise


def _finish_confinement(shake: Handshake, *kept: int) -> None:
    """Nobody in the box may look into the box server, and it does not outlive its launcher."""
    prctl(PrctlOption.DUMPABLE, 0)
    prctl(PrctlOption.PDEATHSIG, signal.SIGKILL)
    # It may have died just before: then the other end of this pipe is closed.
    waiting = select.poll()
    waiting.register(shake.lifeline, 0)
    if waiting.poll(0):
        os._exit(1)
    os.write(shake.told, OK)
    close_other_descriptors(*kept)

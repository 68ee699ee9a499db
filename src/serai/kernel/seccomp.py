"""Which system calls a box may not make: a small table, and the filter that the kernel runs for each call.

The list names what reaches out of a box or into the depths of the kernel: mounts, namespaces, modules, keys, clocks. Debuggers
work inside a box (ptrace stays); the box server protects itself from them. Everything not named is allowed: a box runs any
program.
"""

from __future__ import annotations

import ctypes
import struct

from serai.kernel.syscalls import MACHINE, PrctlOption, prctl

# name: number on x86_64, number on aarch64 (0: there is no such call)
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
    "iopl": (172, 0),
    "ioperm": (173, 0),
    "modify_ldt": (154, 0),
    "uselib": (134, 0),
    "lookup_dcookie": (212, 18),
    "nfsservctl": (180, 42),
    "vhangup": (153, 58),
    "syslog": (103, 116),
    "fanotify_init": (300, 262),
}
_CLONE3 = 435

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
    "inotify_init": (253, 0),  # it tells the names of all files that the owner touches
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

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_X32 = 0x40000000  # the number of every call of the x32 interface has this bit

# All the CLONE_NEW… flags; NEWTIME (0x80) is part of the exit signal in clone, and a namespace in unshare.
_NAMESPACES = 0x7E020000
_NEW_TIME = 0x80
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # type into, or paste into, somebody's terminal
_PERSONALITIES = (0, 0x0040000, 0xFFFFFFFF)  # plain, without address randomisation (debuggers), and the question which
# unix, IPv4, IPv6, netlink (asked for the interfaces). Others, such as vsock, know no network namespace.
_FAMILIES = (1, 2, 10, 16)
_SET_IDS = 0o6000  # a program that runs as its owner, whoever starts it
_MAKES_A_FILE = 0o20000100  # O_CREAT, O_TMPFILE: only then is there a mode

_EPERM, _ENOSYS, _EOPNOTSUPP, _EAFNOSUPPORT = 1, 38, 95, 97
_KILL, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000

_LOAD, _EQUAL, _ABOVE, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16  # struct seccomp_data; the lower half of an argument comes first

Test = tuple[int, int, int, str, str]  # which argument, operation, operand, and where to go on yes and on no


def _one_of(values: tuple[int, ...], refusal: str) -> tuple[Test, ...]:
    return (*((0, _EQUAL, value, "allow", "") for value in values), (0, _ABOVE, 0, refusal, refusal))


def _must_be(*values: int) -> tuple[Test, ...]:
    """The first arguments, one by one."""
    last = len(values) - 1
    return tuple((at, _EQUAL, value, "allow" if at == last else "", "deny") for at, value in enumerate(values))


def _no_set_ids(mode_at: int, flags_at: int | None = None) -> tuple[Test, ...]:
    test: Test = (mode_at, _ANY_BIT, _SET_IDS, "deny", "allow")
    return (test,) if flags_at is None else ((flags_at, _ANY_BIT, _MAKES_A_FILE, "", "allow"), test)


# name: numbers, and what decides; each way ends in a verdict.
_BY_ARGUMENT: dict[str, tuple[tuple[int, int], tuple[Test, ...]]] = {
    "clone": ((56, 220), ((0, _ANY_BIT, _NAMESPACES, "deny", "allow"),)),
    "unshare": ((272, 97), ((0, _ANY_BIT, _NAMESPACES | _NEW_TIME, "deny", "allow"),)),
    "personality": ((135, 92), _one_of(_PERSONALITIES, "deny")),
    "ioctl": ((16, 29), ((1, _EQUAL, _TIOCSTI, "deny", ""), (1, _EQUAL, _TIOCLINUX, "deny", "allow"))),
    "socket": ((41, 198), _one_of(_FAMILIES, "no family")),
}
# … the limits and priorities of others (0 is oneself), and programs that run as the owner for whoever starts them.
_BY_ARGUMENT_IF_PLAIN = _BY_ARGUMENT | {
    "socket": ((41, 198), _one_of((), "no family")),  # of no kind: no network, and no way to the machine's daemons
    "prlimit64": ((302, 261), _must_be(0)),
    "sched_setparam": ((142, 118), _must_be(0)),
    "sched_setscheduler": ((144, 119), _must_be(0)),
    "sched_setattr": ((314, 274), _must_be(0)),
    "sched_setaffinity": ((203, 122), _must_be(0)),
    "setpriority": ((141, 140), _must_be(0, 0)),
    "ioprio_set": ((251, 30), _must_be(1, 0)),
    "chmod": ((90, 0), _no_set_ids(1)),
    "fchmod": ((91, 52), _no_set_ids(1)),
    "fchmodat": ((268, 53), _no_set_ids(2)),
    "fchmodat2": ((452, 452), _no_set_ids(2)),
    "creat": ((85, 0), _no_set_ids(1)),
    "mknod": ((133, 0), _no_set_ids(1)),
    "mknodat": ((259, 33), _no_set_ids(2)),
    "open": ((2, 0), _no_set_ids(2, flags_at=1)),
    "openat": ((257, 56), _no_set_ids(3, flags_at=2)),
}

Step = tuple[int, int, str, str]  # operation, operand, and where to go on yes and on no: a label, or the next step


class SeccompProgram:
    """Steps with labels, and then as the kernel has them: with distances."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.labels: dict[str, int] = {}

    def step(self, operation: int, operand: int, yes: str = "", no: str = "") -> None:
        self.steps.append((operation, operand, yes, no))

    def label(self, name: str) -> None:
        self.labels[name] = len(self.steps)

    def assembled(self) -> bytes:
        def distance(label: str, at: int) -> int:
            return self.labels[label] - at - 1 if label else 0

        return b"".join(
            struct.pack("=HBBI", operation, distance(yes, at), distance(no, at), operand)
            for at, (operation, operand, yes, no) in enumerate(self.steps)
        )


def is_supported() -> bool:
    """Whether the calls of this kind of machine are in the table."""
    return MACHINE in _ARCHITECTURES


def box_filter(machine: str = MACHINE, *, plain: bool = False) -> bytes:
    """The filter; for a `plain` box, which has no namespaces, a stricter one."""
    column, architecture = _ARCHITECTURES[machine]
    made = SeccompProgram()
    made.step(_LOAD, _ARCH_AT)
    made.step(_EQUAL, architecture, "", "kill")  # the other interface of the same kernel has other numbers
    made.step(_LOAD, _NUMBER_AT)
    if machine == "x86_64":
        made.step(_ABOVE, _X32, "deny")
    # The flags of clone3 are in memory, where no filter can look: the C library then takes clone instead.
    made.step(_EQUAL, _CLONE3, "unknown")
    for calls, verdict in (
        (_DENIED, "deny"),
        (_UNKNOWN_IF_PLAIN if plain else {}, "unknown"),
        (_UNSUPPORTED_IF_PLAIN if plain else {}, "unsupported"),
    ):
        for columns in calls.values():
            if columns[column]:
                made.step(_EQUAL, columns[column], verdict)
    for name, (columns, tests) in (_BY_ARGUMENT_IF_PLAIN if plain else _BY_ARGUMENT).items():
        if columns[column]:
            made.step(_EQUAL, columns[column], "", f"not {name}")
            for argument, operation, operand, yes, no in tests:
                made.step(_LOAD, _ARGUMENTS_AT + 8 * argument)
                made.step(operation, operand, yes, no)
            made.label(f"not {name}")
    for name, value in (
        ("allow", _ALLOW),
        ("deny", _ERRNO | _EPERM),
        ("unknown", _ERRNO | _ENOSYS),
        ("unsupported", _ERRNO | _EOPNOTSUPP),
        ("no family", _ERRNO | _EAFNOSUPPORT),
        ("kill", _KILL),
    ):
        made.label(name)
        made.step(_RETURN, value)
    return made.assembled()


def install_filter(*, plain: bool = False) -> None:
    """From now on, for this process and all that come from it. It must have no_new_privs already."""
    code = box_filter(plain=plain)
    buffer = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    prctl(PrctlOption.SECCOMP, 2, head)

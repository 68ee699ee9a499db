"""Which system calls a box may not make: a small table, and the filter that the kernel runs for each call.

The list names what reaches out of a box or into the depths of the kernel: mounts, namespaces, modules, keys, clocks. Debuggers
work inside a box (ptrace stays); the porter protects itself from them. Everything not named is allowed: a box runs any program.
"""

from __future__ import annotations

import ctypes
import struct

from serai.boxes.programs.syscalls import MACHINE, Prctl, prctl

__all__ = ["install", "known_here", "program"]

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
_BY_ARGUMENT = {"clone": (56, 220), "unshare": (272, 97), "personality": (135, 92), "ioctl": (16, 29), "socket": (41, 198)}

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_X32 = 0x40000000  # the number of every call of the x32 interface has this bit

# All the CLONE_NEW… flags; NEWTIME (0x80) is part of the exit signal in clone, and a namespace in unshare.
_NAMESPACES = 0x7E020000
_NEW_TIME = 0x80
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # type into, or paste into, somebody's terminal
_PERSONALITIES = (0, 0x0040000, 0xFFFFFFFF)  # plain, without address randomisation (debuggers), and the question which
# unix, IPv4, IPv6, netlink (asked for the interfaces). Others, such as vsock, know no network namespace.
_FAMILIES = (1, 2, 10, 16)

_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_KILL, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000

_LOAD, _EQUAL, _ABOVE, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16  # struct seccomp_data; the lower half of an argument comes first

Step = tuple[int, int, str, str]  # operation, operand, and where to go on yes and on no: a label, or the next step


class _Filter:
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


def known_here() -> bool:
    """Whether the calls of this kind of machine are in the table."""
    return MACHINE in _ARCHITECTURES


def program(machine: str = MACHINE, *, sockets: bool = True) -> bytes:
    """The filter. Without `sockets` none can be made, of any kind: then there is no network, and no way to the machine's."""
    column, architecture = _ARCHITECTURES[machine]
    number = {name: columns[column] for name, columns in _BY_ARGUMENT.items()}
    made = _Filter()
    made.step(_LOAD, _ARCH_AT)
    made.step(_EQUAL, architecture, "", "kill")  # the other interface of the same kernel has other numbers
    made.step(_LOAD, _NUMBER_AT)
    if machine == "x86_64":
        made.step(_ABOVE, _X32, "deny")
    for columns in _DENIED.values():
        if columns[column]:
            made.step(_EQUAL, columns[column], "deny")
    # Its flags are in memory, where no filter can look: the C library then takes clone instead.
    made.step(_EQUAL, _CLONE3, "unknown")
    for name, argument in (("clone", 0), ("unshare", 0), ("personality", 0), ("ioctl", 1), ("socket", 0)):
        made.step(_EQUAL, number[name], "", f"not {name}")
        made.step(_LOAD, _ARGUMENTS_AT + 8 * argument)
        _look(made, name, sockets=sockets)
        made.label(f"not {name}")
    for name, verdict in (
        ("allow", _ALLOW),
        ("deny", _ERRNO | _EPERM),
        ("unknown", _ERRNO | _ENOSYS),
        ("no family", _ERRNO | _EAFNOSUPPORT),
        ("kill", _KILL),
    ):
        made.label(name)
        made.step(_RETURN, verdict)
    return made.assembled()


def _look(made: _Filter, name: str, *, sockets: bool) -> None:
    """Decide by the argument that is loaded; each way ends in a verdict."""
    if name in {"clone", "unshare"}:
        made.step(_ANY_BIT, _NAMESPACES | (_NEW_TIME if name == "unshare" else 0), "deny", "allow")
    elif name == "ioctl":
        made.step(_EQUAL, _TIOCSTI, "deny")
        made.step(_EQUAL, _TIOCLINUX, "deny", "allow")
    else:
        good, refusal = (_PERSONALITIES, "deny") if name == "personality" else (_FAMILIES if sockets else (), "no family")
        for value in good:
            made.step(_EQUAL, value, "allow")
        made.step(_ABOVE, 0, refusal, refusal)


def install(*, sockets: bool = True) -> None:
    """From now on, for this process and all that come from it. It must have no_new_privs already."""
    code = program(sockets=sockets)
    buffer = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    prctl(Prctl.SECCOMP, 2, head)

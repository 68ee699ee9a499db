"""What Python's standard library does not offer of the kernel: namespaces, mounts, capabilities, prctl.

Every function raises `OSError` that says what was tried. Python 3.11 has no `os.unshare`, and none has the mount calls.
"""

from __future__ import annotations

import ctypes
import os

MACHINE = os.uname().machine

# The kernel's numbers where they differ; everything since 5.2 has the same number on both.
_NUMBERS = {
    "x86_64": {
        "clone": 56,
        "capset": 126,
        "pivot_root": 155,
        "mount": 165,
        "umount2": 166,
        "sethostname": 170,
        "unshare": 272,
        "seccomp": 317,
    },
    "aarch64": {
        "clone": 220,
        "capset": 91,
        "pivot_root": 41,
        "mount": 40,
        "umount2": 39,
        "sethostname": 161,
        "unshare": 97,
        "seccomp": 277,
    },
}
_SAME = {
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "close_range": 436,
    "mount_setattr": 442,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
}

# PyDLL keeps the interpreter's lock, so that a clone is the same thread in both processes.
_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.prctl.restype = ctypes.c_int

_HERE = -100  # AT_FDCWD
_EMPTY_PATH = 0x1000
_RECURSIVE = 0x8000
_OPEN_CLONE = 1
_OPEN_CLOEXEC = os.O_CLOEXEC
_MOVE_FROM_EMPTY = 0x4
_CLOEXEC = 1
_SET_STRING, _CREATE = 1, 6
_PRIVATE = 1 << 18
_DETACH = 2


class CloneFlag:
    """Which namespaces a new process gets for itself."""

    MOUNTS = 0x00020000
    CGROUP = 0x02000000
    UTS = 0x04000000
    IPC = 0x08000000
    USER = 0x10000000
    PIDS = 0x20000000
    NET = 0x40000000
    SIGCHLD = 17


class MountAttr:
    """What a mount allows; these only ever take away."""

    RDONLY = 0x1
    NOSUID = 0x2
    NODEV = 0x4
    NOEXEC = 0x8
    IDMAP = 0x00100000


class PrctlOption:
    PDEATHSIG = 1
    DUMPABLE = 4
    KEEP_CAPABILITIES = 8
    NAME = 15
    SECCOMP = 22
    BOUNDING_DROP = 24
    CHILD_SUBREAPER = 36
    NO_NEW_PRIVS = 38
    AMBIENT = 47


def syscall(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None, what: str = "") -> int:
    """A system call by name. `what` tells a person what it was about."""
    number = _SAME.get(name) or _NUMBERS.get(MACHINE, {}).get(name)
    if number is None:
        raise OSError(38, f"the call {name} is not known for {MACHINE} machines")
    given = (ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments)
    result: int = _libc.syscall(ctypes.c_long(number), *given)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), what or name)
    return result


def prctl(option: int, second: int | bytes = 0, third: int | bytes = 0) -> int:
    arguments = (ctypes.c_ulong(part) if isinstance(part, int) else ctypes.c_char_p(part) for part in (second, third))
    result: int = _libc.prctl(ctypes.c_int(option), *arguments, ctypes.c_ulong(0), ctypes.c_ulong(0))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), f"prctl {option}")
    return result


def clone(flags: int) -> int:
    """Fork into new namespaces: 0 in the child, its pid in the parent. The caller must have one thread only.

    Unlike `os.fork` it runs no handlers; the C library's idea of the thread's own id stays the parent's, which nothing here uses.
    """
    return syscall("clone", flags | CloneFlag.SIGCHLD, 0, 0, 0, 0, what="new namespaces")


def unshare(flags: int) -> None:
    syscall("unshare", flags, what="new namespaces")


def sethostname(name: str) -> None:
    raw = os.fsencode(name)
    syscall("sethostname", raw, len(raw), what="the hostname")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """The old call: for propagation and for overlays, whose options are names of folders in the working directory."""
    syscall("mount", os.fsencode(source), os.fsencode(target), kind.encode(), flags, options.encode(), what=f"mount {target}")


def open_tree(path: str, attributes: int = 0, *, recursive: bool = True) -> int:
    """A copy of what is mounted at `path`, hung up nowhere yet, with `attributes` taken away. A descriptor of it."""
    deep = _RECURSIVE if recursive else 0
    found = syscall("open_tree", _HERE, os.fsencode(path), _OPEN_CLONE | _OPEN_CLOEXEC | deep, what=f"open {path}")
    mount_setattr(found, attributes, recursive=recursive)
    return found


def create_mount(kind: str, attributes: int = 0, **options: str) -> int:
    """A fresh file system of a kind such as `proc`, hung up nowhere yet. A descriptor of it."""
    made = syscall("fsopen", kind.encode(), _CLOEXEC, what=f"a new {kind}")
    try:
        for key, value in options.items():
            syscall("fsconfig", made, _SET_STRING, key.encode(), value.encode(), 0, what=f"a new {kind}")
        syscall("fsconfig", made, _CREATE, None, None, 0, what=f"a new {kind}")
        return syscall("fsmount", made, _CLOEXEC, attributes, what=f"a new {kind}")
    finally:
        os.close(made)


def attach_mount(tree: int, target: str) -> None:
    """Hang a detached mount up at `target`; its descriptor stays open and is now the mounted one."""
    syscall("move_mount", tree, b"", _HERE, os.fsencode(target), _MOVE_FROM_EMPTY, what=f"mount {target}")


def mount_setattr(tree: int, attributes: int, *, users: int = 0, recursive: bool = True) -> None:
    """Take `attributes` away from a detached tree and keep it to itself; `users` is a user namespace to show owners by."""
    flags = _EMPTY_PATH | (_RECURSIVE if recursive else 0)
    fields = b"".join(number.to_bytes(8, "little") for number in (attributes, 0, _PRIVATE, users))
    syscall(
        "mount_setattr", tree, b"", flags, ctypes.create_string_buffer(fields, len(fields)), len(fields), what="mount attributes"
    )


def pivot_root() -> None:
    """Make the working directory, which must be a mount, the root; what was the root is gone afterwards."""
    syscall("pivot_root", b".", b".", what="the new root")
    detach_mount(".")  # the old root lies over the new one, and goes
    os.chdir("/")


def detach_mount(path: str) -> None:
    syscall("umount2", os.fsencode(path), _DETACH, what=f"unmount {path}")


def capset(kept: int, *, passed_on: bool = False) -> None:
    """Have these capabilities (a bit each) and no others. `passed_on`: a program that is executed may have them too."""
    header = (0x20080522).to_bytes(4, "little") + bytes(4)
    low, high = kept & 0xFFFFFFFF, kept >> 32
    # effective, permitted, inheritable; the lower halves first
    words = (low, low, low * passed_on, high, high, high * passed_on)
    data = b"".join(word.to_bytes(4, "little") for word in words)
    syscall("capset", ctypes.create_string_buffer(header, 8), ctypes.create_string_buffer(data, 24), what="capabilities")


def close_other_descriptors(*kept: int) -> None:
    """Close every descriptor above 2 except these."""
    first = 3
    for last in (*sorted(kept), 1 << 32):
        if first < last:
            syscall("close_range", first, last - 1, 0)
        first = last + 1

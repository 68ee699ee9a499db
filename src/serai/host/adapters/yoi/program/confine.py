"""What a process gives up before it runs a plugin's code: privileges, files, the network, other processes, most system calls.

A guest cannot make a system call; this is for the day when wasmtime has a hole. Each step that the kernel refuses is left out,
and who asked is told which held. Landlock comes before the second thread: it holds for who asks and for the threads it starts.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct

_MACHINE = os.uname().machine
_COLUMNS = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_SECCOMP = (317, 277)
# name: number on x86_64, on aarch64 (-1: there is no such call). To read and write what is open, memory, time, locks, and the end.
_ALLOWED = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "fstat": (5, 80), "poll": (7, -1), "ppoll": (271, 73), "lseek": (8, 62),
    "munmap": (11, 215), "brk": (12, 214), "mremap": (25, 216), "madvise": (28, 233),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "sigaltstack": (131, 132),
    "sched_yield": (24, 124), "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "clock_gettime": (228, 113),
    "getpid": (39, 172), "gettid": (186, 178), "futex": (202, 98), "restart_syscall": (219, 128), "set_robust_list": (273, 99),
    "rseq": (334, 293), "getrandom": (318, 278), "exit": (60, 93), "exit_group": (231, 94),
    # the image of a guest's first memory is kept in such a file
    "memfd_create": (319, 279),
}  # fmt: skip
_FTRUNCATE, _FCNTL = (77, 46), (72, 25)
_FCNTLS = (1, 2, 3, 1033, 1034)  # get and set close-on-exec, get the flags, seals: with others one signals other processes
_MAPPING = {"mmap": (9, 222), "mprotect": (10, 226)}
_THREADS = {"sched_getaffinity": (204, 123), "membarrier": (324, 283), "madvise": (28, 233)}
_CLONE, _CLONE3, _TGKILL = (56, 220), 435, (234, 131)
_CLONE_THREAD = 0x00010000
_PROT_EXEC = 4

_LOAD, _EQUAL, _ANY_BIT, _MORE, _RETURN = 0x20, 0x15, 0x45, 0x25, 0x06
_KILL, _EPERM, _ENOSYS, _ALLOW = 0x80000000, 0x00050001, 0x00050026, 0x7FFF0000
_NO_NEW_PRIVS = 38
_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446
# all rights to files that each version of Landlock knows
_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def set_resource_limit(name: str, value: int) -> bool:
    """A resource limit by name; never above what we have."""
    number: int = getattr(resource, f"RLIMIT_{name}")
    hard = resource.getrlimit(number)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    try:
        resource.setrlimit(number, (value, value))
    except (OSError, ValueError):
        return False
    return True


def raise_stack(wanted: int) -> None:
    """The stack of the first thread grows up to this; a wasm stack larger than it would end the process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    if soft != resource.RLIM_INFINITY and soft < wanted and (hard == resource.RLIM_INFINITY or hard >= wanted):
        resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))


def give_up_files() -> list[str]:
    """No new privileges, and no file, socket or signal to others by Landlock. What held."""
    held = []
    if _libc.prctl(_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0) == 0:
        held.append("no_new_privs")
        if _landlock():
            held.append("landlock")
    return held


def _landlock() -> bool:
    version = _libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return False
    rights = [_FILES[max(since for since in _FILES if since <= version)]]
    if version >= 4:
        rights.append(0b11)  # to bind and to connect
    if version >= 6:
        rights.append(0b11)  # abstract sockets of others, and signals to them
    packed = struct.pack(f"={len(rights)}Q", *rights)
    rules = _libc.syscall(_LANDLOCK_CREATE, packed, ctypes.c_size_t(len(packed)), 0)
    if rules < 0:
        return False
    try:
        return bool(_libc.syscall(_LANDLOCK_RESTRICT, rules, 0) == 0)
    finally:
        os.close(rules)


def filter_calls(*, compiler: bool = False) -> bool:
    """For all threads: everything but the list is refused. A `compiler` may start threads and make memory executable."""
    if _MACHINE not in _COLUMNS:
        return False
    code = _program(compiler=compiler)
    buffer = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    number = _SECCOMP[_COLUMNS[_MACHINE][0]]
    return bool(_libc.syscall(number, 1, 1, head) == 0)  # SET_MODE_FILTER, TSYNC


def _program(*, compiler: bool) -> bytes:
    column, architecture = _COLUMNS[_MACHINE]
    steps: list[tuple[int, int, int, int]] = []  # operation, on yes and on no so many further, operand

    def step(operation: int, operand: int, yes: int = 0, no: int = 0) -> None:
        steps.append((operation, yes, no, operand))

    def verdict(value: int) -> None:
        step(_RETURN, value)

    step(_LOAD, 4)
    step(_EQUAL, architecture, 1, 0)
    verdict(_KILL)  # the other interface of the same kernel has other numbers
    step(_LOAD, 0)
    allowed = _ALLOWED | (_THREADS | _MAPPING if compiler else {})
    for columns in allowed.values():
        if columns[column] >= 0:
            step(_EQUAL, columns[column], 0, 1)
            verdict(_ALLOW)
    if not compiler:  # what was loaded is executable already; nothing more becomes so
        for columns in _MAPPING.values():
            step(_EQUAL, columns[column], 0, 4)
            step(_LOAD, 16 + 8 * 2)
            step(_ANY_BIT, _PROT_EXEC, 0, 1)
            verdict(_EPERM)
            verdict(_ALLOW)
    else:  # the flags of clone3 are in memory, where no filter can look: the C library then takes clone
        step(_EQUAL, _CLONE3, 0, 1)
        verdict(_ENOSYS)
        step(_EQUAL, _CLONE[column], 0, 4)
        step(_LOAD, 16)
        step(_ANY_BIT, _CLONE_THREAD, 0, 1)
        verdict(_ALLOW)
        verdict(_EPERM)
    step(_EQUAL, _FTRUNCATE[column], 0, 4)  # of what it has made itself: 2 is its log
    step(_LOAD, 16)
    step(_MORE, 2, 0, 1)
    verdict(_ALLOW)
    verdict(_EPERM)
    step(_EQUAL, _FCNTL[column], 0, 2 + 2 * len(_FCNTLS))
    step(_LOAD, 16 + 8)
    for command in _FCNTLS:
        step(_EQUAL, command, 0, 1)
        verdict(_ALLOW)
    verdict(_EPERM)
    step(_EQUAL, _TGKILL[column], 0, 4)  # to abort is to signal oneself
    step(_LOAD, 16)
    step(_EQUAL, os.getpid(), 0, 1)
    verdict(_ALLOW)
    verdict(_EPERM)
    verdict(_EPERM)
    return b"".join(struct.pack("=HBBI", *each) for each in steps)

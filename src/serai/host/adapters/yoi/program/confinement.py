"""What a process gives up before it runs a plugin's code: privileges, files, the network, other processes, most system calls.

A guest cannot make a system call; this is for the day when wasmtime has a hole. Each step that the kernel refuses is left out,
and who asked is told which held. Landlock comes before the second thread: it holds for who asks and for the threads it starts.
"""

from __future__ import annotations

import os
import resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from serai.kernel import landlock, seccomp
    from serai.kernel.syscalls import MACHINE, PrctlOption, prctl
else:  # by its folder (`compiler.build_command`): a worker loads nothing else of `serai`
    from kernel import landlock, seccomp
    from kernel.syscalls import MACHINE, PrctlOption, prctl

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
_FCNTLS = (1, 2, 3, 1033, 1034)  # get and set close-on-exec, get the flags, seals: with others one signals other processes
_MAPPING = {"mmap": (9, 222), "mprotect": (10, 226)}
_THREADS = {"sched_getaffinity": (204, 123), "membarrier": (324, 283), "madvise": (28, 233)}
_CLONE_THREAD = 0x00010000
_PROT_EXEC = 4


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
    try:
        prctl(PrctlOption.NO_NEW_PRIVS, 1)
        held.append("no_new_privs")
        landlock.restrict()
        held.append("landlock")
    except OSError:
        pass
    return held


def filter_calls(*, compiler: bool = False) -> bool:
    """For all threads: everything but the list is refused. A `compiler` may start threads and make memory executable."""
    if not seccomp.is_supported():
        return False
    try:
        seccomp.install_filter(build_call_filter(compiler=compiler), all_threads=True)
    except OSError:
        return False
    return True


def build_call_filter(machine: str = MACHINE, *, compiler: bool) -> bytes:
    by_argument = {
        "ftruncate": ((77, 46), ((0, seccomp.AT_LEAST, 3, "allow", "deny"),)),  # of what it has made itself: 2 is its log
        "fcntl": ((72, 25), seccomp.build_value_tests(1, _FCNTLS, "deny")),
        "tgkill": ((234, 131), seccomp.build_value_tests(0, (os.getpid(),), "deny")),  # to abort is to signal oneself
    }
    calls = [(_ALLOWED, "allow")]
    if compiler:  # the flags of clone3 are in memory, where no filter can look: the C library then takes clone
        calls += [(_THREADS | _MAPPING, "allow"), ({"clone3": (435, 435)}, "unknown")]
        by_argument["clone"] = ((56, 220), ((0, seccomp.ANY_BIT, _CLONE_THREAD, "allow", "deny"),))
    else:  # what was loaded is executable already; nothing more becomes so
        for name, columns in _MAPPING.items():
            by_argument[name] = (columns, ((2, seccomp.ANY_BIT, _PROT_EXEC, "deny", "allow"),))
    return seccomp.assemble(machine, calls, by_argument, otherwise="deny")

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
from serai.kernel.syscalls import PrctlOption, capset, close_other_descriptors, prctl

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
    """The porter of a box with namespaces of its own: give up all but what its root needs inside."""
    drop_capabilities(sum(1 << number for number in _KEPT.values()))
    prctl(PrctlOption.NO_NEW_PRIVS, 1)
    seccomp.install_filter()
    _last_steps(shake, listener)


def confine_without_namespaces(root: str, user: int | None, listener: int, shake: Handshake, guard: int) -> None:
    """A porter without namespaces: as far as Landlock and seccomp go. What they leave open, such as modes and times of files, only
    an owner may change: so it becomes `user`, when there is one for it."""
    if user is None:
        drop_capabilities(0)
    else:
        _become_user(user)
    prctl(PrctlOption.NO_NEW_PRIVS, 1)
    if landlock.abi_version() > 0:
        landlock.restrict(root)
    if seccomp.is_supported():
        seccomp.install_filter(plain=True)
    _last_steps(shake, listener, guard)


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


def _last_steps(shake: Handshake, *kept: int) -> None:
    """Nobody in the box may look into the porter, and it does not outlive its launcher."""
    prctl(PrctlOption.DUMPABLE, 0)
    prctl(PrctlOption.PDEATHSIG, signal.SIGKILL)
    # It may have died just before: then the other end of this pipe is closed.
    waiting = select.poll()
    waiting.register(shake.lifeline, 0)
    if waiting.poll(0):
        os._exit(1)
    os.write(shake.told, OK)
    close_other_descriptors(*kept)

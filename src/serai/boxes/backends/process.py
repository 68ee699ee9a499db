"""The fall-back: a plain process in a folder of its own, as far as Landlock and seccomp confine it. Only when it is asked for.

It keeps work going where no namespaces can be had. A box sees the machine's programs and its own folder; what it does not hold back
is said in its capabilities.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from serai.boxes.backend import BackendCapabilities, BoxSpec, LimitScope
from serai.boxes.backends.local import ProbeResult
from serai.boxes.backends.namespaces import LocalLaunch, check_allowance, compute_only_id
from serai.boxes.programs.namespace_box import FIRST_ID
from serai.errors import BoxRefused

# What root needs to give a box a user of its own, to end that one's processes and to remove its files: chown, dac_override, fowner,
# kill, setgid, setuid. Root of a container has these, or has been denied them.
_POWERS = sum(1 << number for number in (0, 1, 3, 5, 6, 7))
_LAST_ID = FIRST_ID + 0x0FFFFFFF


def _can_change_user() -> bool:
    """Whether we are a root who can become anybody."""
    if os.geteuid() != 0:
        return False
    status = Path("/proc/self/status").read_text()
    powers = int(status.partition("CapEff:\t")[2].split()[0], 16)
    return powers & _POWERS == _POWERS and all(_has_ids(f"/proc/self/{kind}_map") for kind in ("uid", "gid"))


def _has_ids(path: str) -> bool:
    """Whether the ids of boxes are known in the user namespace that we are in."""
    rows = ([int(word) for word in row.split()] for row in Path(path).read_text().splitlines())
    return any(first <= FIRST_ID and first + size > _LAST_ID for first, _, size in rows)


class ProcessLaunch(LocalLaunch):
    name = "process"

    def probe(self) -> ProbeResult:
        if sys.platform != "linux":
            return ProbeResult("it needs Linux", BackendCapabilities(isolation="none"))
        from serai.kernel import landlock, seccomp

        version, filtered = landlock.get_abi_version(), seccomp.is_supported()
        notes = []
        if not version:
            notes.append("the kernel has no Landlock: a box can read and write whatever you can")
        if version and not landlock.can_scope_signals():
            notes.append("the kernel's Landlock is too old to keep a box from sending signals to your processes")
        if not filtered:
            notes.append("there is no filter of system calls for this kind of machine: a box uses the machine's network")
        if _can_change_user():
            notes.append("a box runs as a user of its own: nothing of the machine belongs to it")
        else:
            notes.append(
                "a box runs as you: it can change the modes, groups and times of your files, also of those that it cannot open"
            )
        notes.append("programs in a box make no terminals of their own, and use neither inotify nor extended attributes")
        notes.append("a box sees no /proc, and its files lie in a folder: absolute paths are the machine's")
        capabilities = BackendCapabilities(
            isolation="landlock" if version else "none",
            limits=self._get_limit_scope(),
            network="none" if filtered else "host",
            freeze=self._groups.freezes,
            dial=not filtered,
            notes=tuple(notes),
        )
        return ProbeResult("", capabilities)

    def _get_limit_scope(self) -> LimitScope:
        held = self._groups.limiting
        return LimitScope(memory=held.memory or "process", cpus=held.cpus, pids=held.pids)

    def check(self, wanted: BoxSpec) -> None:
        check_allowance(wanted, self._get_limit_scope())
        if wanted.rootfs is not None:
            hint = 'use the backend "namespaces", or make the box without a base tree'
            raise BoxRefused('a box of "process" takes no base tree', who=f"box {wanted.box_id}", hint=hint)

    def prepare(self, wanted: BoxSpec, folder: str) -> list[str]:
        self.check(wanted)
        ids = compute_only_id(wanted.generation) if _can_change_user() else None
        return self._build_command("process", wanted, folder, ids=ids, shm="", bwrap=[])

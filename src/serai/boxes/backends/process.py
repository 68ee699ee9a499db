"""The fall-back: a plain process in a folder of its own, as far as Landlock and seccomp confine it. Only when it is asked for.

It keeps work going where no namespaces can be had. A box sees the machine's programs and its own folder; what it does not hold back
is said in its capabilities.
"""

from __future__ import annotations

import json
import os
import sys
from functools import cached_property
from typing import TYPE_CHECKING

from serai.boxes.backend import Capabilities, Limiting, Wanted
from serai.boxes.backends.local import Probed
from serai.boxes.backends.namespaces import by_groups, check_allowance, release, resource_limits
from serai.boxes.booting import boot
from serai.boxes.cgroups import Cgroups
from serai.errors import BoxRefused

if TYPE_CHECKING:
    from serai.boxes.programs.starting import Config

__all__ = ["Process"]


class Process:
    name = "process"

    @cached_property
    def _groups(self) -> Cgroups:
        return Cgroups.probe()

    def probe(self) -> Probed:
        if sys.platform != "linux":
            return Probed("it needs Linux", Capabilities(isolation="none"))
        from serai.boxes.programs import landlock, seccomp

        version, filtered = landlock.version(), seccomp.known_here()
        notes = []
        if not version:
            notes.append("the kernel has no Landlock: a box can read and write whatever you can")
        if version and not landlock.confines_signals():
            notes.append("the kernel's Landlock is too old to keep a box from sending signals to your processes")
        if not filtered:
            notes.append("there is no filter of system calls for this kind of machine: a box uses the machine's network")
        notes.append("a box sees no /proc, and its files lie in a folder: absolute paths are the machine's")
        capabilities = Capabilities(
            isolation="landlock" if version else "none",
            limits=self._limiting(),
            network="none" if filtered else "host",
            freeze=self._groups.freezes,
            dial=not filtered,
            notes=tuple(notes),
        )
        return Probed("", capabilities)

    def _limiting(self) -> Limiting:
        held = self._groups.limiting
        return Limiting(memory=held.memory or "process", cpus=held.cpus, pids=held.pids)

    def check(self, wanted: Wanted) -> None:
        check_allowance(wanted, self._limiting())
        if wanted.rootfs is not None:
            hint = 'use the backend "namespaces", or make the box without a base tree'
            raise BoxRefused('a box of "process" takes no base tree', who=f"box {wanted.box_id}", hint=hint)

    def prepare(self, wanted: Wanted, folder: str) -> list[str]:
        self.check(wanted)
        group = self._groups.make(wanted.generation, by_groups(wanted.allowance, self._groups.limiting))
        config: Config = {
            "mode": "process",
            "folder": os.path.abspath(folder),
            "box_id": wanted.box_id,
            "rootfs": None,
            "ids": None,
            "cgroups": list(group.folders),
            "rlimits": resource_limits(wanted.allowance, self._groups.limiting),
            "bwrap": [],
        }
        return [*boot("programs.launcher"), json.dumps(config)]

    def release(self, generation: str, folder: str) -> None:
        release(self._groups, generation, folder)

    def freeze(self, generation: str) -> None:
        self._groups.find(generation).freeze()

    def thaw(self, generation: str) -> None:
        self._groups.find(generation).thaw()

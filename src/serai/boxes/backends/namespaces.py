"""The embedded backend: Linux namespaces, without a daemon and without root.

Our own launcher comes first: it knows overlays, ranges of ids, control groups and any base tree, and it is quicker. Bubblewrap is
for users whose machine lets only that program make user namespaces. As root it gives nothing that the launcher does not.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from serai.boxes.backend import BackendCapabilities, BoxResources, BoxSpec, LimitScope
from serai.boxes.backends.local import ProbeResult, remove_tree
from serai.boxes.cgroups import Cgroups
from serai.boxes.ownership import build_program_command
from serai.boxes.programs.namespace_box import FIRST_ID, RANGE
from serai.errors import BoxFailed, BoxRefused

if TYPE_CHECKING:
    from serai.boxes.programs.box_setup import Config

Launcher = Literal["auto", "own", "bwrap"]

# Each box has its own ids: even out of its namespaces it would be nobody to another.
_SLOTS = 0x0FFF
_PROBE_SECONDS = 20.0
# Below this the box server itself cannot work.
_LEAST = {"memory": 32 << 20, "cpus": 0.01, "pids": 4}
# The limit of processes is counted for each user namespace since this kernel; before, for the user on the whole machine.
_COUNTED_APART = (5, 14)


def compute_first_id(generation: str) -> int:
    """The machine's id for the root of a box. Two boxes may share it: they are still in namespaces of their own."""
    return FIRST_ID + zlib.crc32(generation.encode()) % _SLOTS * RANGE


def compute_only_id(generation: str) -> int:
    """The machine's id for all of a box without namespaces: above those of the others, which have many each."""
    return FIRST_ID + _SLOTS * RANGE + zlib.crc32(generation.encode()) % RANGE


class LocalLaunch:
    """What the kinds of boxes share that our launcher makes: its command line, and the control groups of a box."""

    @cached_property
    def _groups(self) -> Cgroups:
        return Cgroups.probe()

    def _build_command(
        self, mode: Literal["own", "bwrap", "process"], wanted: BoxSpec, folder: str, *, ids: int | None, shm: str, bwrap: list[str]
    ) -> list[str]:
        group = self._groups.make(wanted.generation, select_group_limits(wanted.allowance, self._groups.limiting))
        config: Config = {
            "mode": mode,
            "folder": os.path.abspath(folder),
            "box_id": wanted.box_id,
            "rootfs": os.path.abspath(wanted.rootfs) if wanted.rootfs is not None else None,
            "ids": ids,
            "cgroups": list(group.folders),
            "rlimits": select_rlimits(wanted.allowance, self._groups.limiting),
            "shm": shm,
            "bwrap": bwrap,
        }
        return [*build_program_command("programs.launcher"), json.dumps(config)]

    def release(self, generation: str, folder: str) -> None:
        """Leave no process, no control group and no folder of a box. Idempotent."""
        group = self._groups.find(generation)
        if not group.kill():
            raise BoxFailed(f"its processes {sorted(group.list_pids())} do not end", who=f"box {generation}")
        group.remove()
        remove_tree(folder)

    def freeze(self, generation: str) -> None:
        self._groups.find(generation).freeze()

    def thaw(self, generation: str) -> None:
        self._groups.find(generation).thaw()


class NamespacesLaunch(LocalLaunch):
    name = "namespaces"

    def __init__(self, launcher: Launcher = "auto") -> None:
        self._wanted = launcher

    @cached_property
    def _launcher(self) -> tuple[Literal["own", "bwrap"], str]:
        """Which one makes the boxes, and why it cannot."""
        reasons = {}
        mode: Literal["own", "bwrap"]
        for mode in ("own", "bwrap"):
            if self._wanted in ("auto", mode):
                reasons[mode] = _probe_own() if mode == "own" else _probe_bwrap()
                if not reasons[mode]:
                    return mode, ""
        return ("own" if "own" in reasons else "bwrap"), "; ".join(reasons.values())

    def probe(self) -> ProbeResult:
        mode, missing = self._launcher
        root = os.geteuid() == 0
        notes = []
        if not root:
            notes.append("a box has a single user: only root can give it more (files of hooks stay with the box's root)")
        if mode == "bwrap" and not missing:
            notes.append(
                "bubblewrap makes the boxes: no base tree can be given, /dev/shm and the number of terminals are not limited"
            )
        limits = self._get_limit_scope()
        notes += [f"{what} cannot be limited for a whole box: no control group can be made here" for what in _get_unlimited(limits)]
        return ProbeResult(
            missing,
            BackendCapabilities(
                isolation="namespaces",
                limits=limits,
                ownership="full" if root else "single",
                network="none",
                freeze=self._groups.freezes,
                rootfs=mode == "own",
                notes=tuple(notes),
            ),
        )

    def _get_limit_scope(self) -> LimitScope:
        """By control groups; else as far as resource limits go."""
        groups = self._groups.limiting
        apart = os.geteuid() != 0 and _read_kernel_version() >= _COUNTED_APART
        return LimitScope(memory=groups.memory or "process", cpus=groups.cpus, pids=groups.pids or ("box" if apart else ""))

    def check(self, wanted: BoxSpec) -> None:
        check_allowance(wanted, self._get_limit_scope())
        if wanted.rootfs is not None:
            _check_base(wanted, self._launcher[0])

    def prepare(self, wanted: BoxSpec, folder: str) -> list[str]:
        mode, missing = self._launcher
        if missing:
            raise BoxFailed(missing, who=f"box {wanted.box_id}")
        self.check(wanted)
        ids = compute_first_id(wanted.generation) if os.geteuid() == 0 else None
        programs = _find_bwrap_programs() if mode == "bwrap" else []
        return self._build_command(mode, wanted, folder, ids=ids, shm=_compute_shm_size(wanted.allowance), bwrap=programs)


def check_allowance(wanted: BoxSpec, limits: LimitScope) -> None:
    """What cannot be held is refused, not forgotten."""
    who, allowance = f"box {wanted.box_id}", wanted.allowance
    for name, least in _LEAST.items():
        value: float | None = getattr(allowance, name)
        if value is None:
            continue
        if not getattr(limits, name):
            hint = "make the box without it, or as a user who may make control groups (`serai box backends` tells)"
            raise BoxRefused(f"a limit of {name} cannot be held on this machine", who=who, hint=hint)
        if value < least:
            amount = f"{int(least) >> 20}M" if name == "memory" else least
            raise BoxRefused(f"{name} = {value} is too little for a box", who=who, hint=f"give it at least {amount}")


def select_group_limits(allowance: BoxResources, held: LimitScope) -> BoxResources:
    """What control groups hold of it."""
    return BoxResources(
        memory=allowance.memory if held.memory else None,
        cpus=allowance.cpus if held.cpus else None,
        pids=allowance.pids if held.pids else None,
    )


def select_rlimits(allowance: BoxResources, held: LimitScope) -> dict[str, int]:
    """What control groups do not hold: each process on its own."""
    limits = {}
    if allowance.memory is not None and not held.memory:
        limits["AS"] = allowance.memory
    if allowance.pids is not None and not held.pids:
        limits["NPROC"] = allowance.pids
    return limits


def _compute_shm_size(allowance: BoxResources) -> str:
    """How large /dev/shm may be: it is memory, and no end of a process frees it. So never all that the box has."""
    return "50%" if allowance.memory is None else str(allowance.memory // 2)


def _get_unlimited(limits: LimitScope) -> list[str]:
    return [name for name in ("memory", "cpus", "pids") if getattr(limits, name) != "box"]


def _check_base(wanted: BoxSpec, mode: str) -> None:
    who, rootfs = f"box {wanted.box_id}", wanted.rootfs or ""
    if mode == "bwrap":
        raise BoxRefused("bubblewrap, which makes the boxes here, takes no base tree", who=who, hint="make the box without it")
    if not os.path.isdir(rootfs):
        raise BoxRefused(f"there is no folder {rootfs} to be its base tree", who=who, hint="give the folder of an unpacked system")


def _read_kernel_version() -> tuple[int, ...]:
    return tuple(int("".join(filter(str.isdigit, part)) or 0) for part in os.uname().release.split(".")[:2])


def _probe_own() -> str:
    """Why our own launcher makes no box here, found by trying."""
    if os.uname().machine not in ("x86_64", "aarch64") or sys.platform != "linux":
        return f"there is no launcher for {os.uname().machine} machines with {sys.platform}"
    try:
        done = subprocess.run(  # noqa: S603  (our own program)
            [*build_program_command("programs.launcher"), "probe"], capture_output=True, timeout=_PROBE_SECONDS, env={}, check=False
        )
        told = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return f"the launcher does not work: {error}"
    return "" if told.get("ready") else _explain_failure(str(told.get("error")))


_SWITCHES = {
    "/proc/sys/user/max_user_namespaces": ("0", "user.max_user_namespaces = 0"),
    "/proc/sys/kernel/unprivileged_userns_clone": ("0", "kernel.unprivileged_userns_clone = 0"),
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": ("1", "kernel.apparmor_restrict_unprivileged_userns = 1"),
}


def _explain_failure(error: str) -> str:
    for path, (value, switch) in _SWITCHES.items():
        try:
            if Path(path).read_text().strip() == value:
                return f"user namespaces are switched off for you ({switch})"
        except OSError:
            continue
    return f"this machine does not let you make namespaces ({error})"


def _find_bwrap_programs() -> list[str]:
    """bubblewrap, the Python for the box server, and where that is when the box does not see it anyway."""
    bwrap = shutil.which("bwrap") or ""
    if os.access("/usr/bin/python3", os.X_OK):
        return [bwrap, "/usr/bin/python3"]
    prefix = os.path.realpath(sys.base_prefix)
    python = os.path.join(prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    return [bwrap, python] if prefix.startswith("/usr") else [bwrap, python, prefix]


def _probe_bwrap() -> str:
    bwrap, python, *prefix = _find_bwrap_programs()
    if os.geteuid() == 0:
        return "bubblewrap is for ordinary users: as root the own launcher gives more"
    if not bwrap:
        return "bubblewrap is not installed"
    from serai.boxes.programs.bubblewrap_box import build_options

    with tempfile.TemporaryDirectory(prefix="serai-probe-") as folder:
        os.mkdir(os.path.join(folder, "workspace"))
        for name in ("bin", "lib", "lib64"):
            if os.path.islink(f"/{name}"):
                os.symlink(os.readlink(f"/{name}"), os.path.join(folder, name))
        shared = [path for path in ("/usr", "/bin", "/lib", "/lib64") if os.path.isdir(path) and not os.path.islink(path)]
        try:
            done = subprocess.run(  # noqa: S603  (found on the PATH of the user)
                [bwrap, *build_options("probe", folder, [*shared, *prefix]), "--", python, "-I", "-S", "-c", ""],
                capture_output=True,
                timeout=_PROBE_SECONDS,
                env={},
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            return f"bubblewrap does not work: {error}"
    said = done.stderr.decode(errors="replace").strip()
    return "" if done.returncode == 0 else f"bubblewrap does not work: {said[-300:]}"

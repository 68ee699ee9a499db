"""Control groups: how much a box may use, to freeze it, and to kill all of it at once.

Which there are differs from machine to machine: one tree with all controllers (version 2), a tree for each (version 1), or both.
A box has a group named by its generation in each tree that it needs, all below one group `serai` as high up as we may write. So
every process of the same user finds it again, and a box that outlives the session which made it is not in that session's groups.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from serai.boxes.backend import BoxResources, LimitScope
from serai.boxes.programs import box_setup
from serai.limits import BoxLimits

_NAME = "serai"
_PERIOD = 100_000  # microseconds: of each such stretch the box gets its share of processor time
_LEAST = 1_000  # the kernel gives no smaller share
_CONTROLLERS = ("memory", "cpu", "pids")
_LOOK = 0.005  # seconds between looks at what the kernel is still doing
_LIMITS = BoxLimits()


@dataclass(frozen=True, slots=True)
class _Tree:
    """One hierarchy, and where in it our groups are."""

    folder: str  # …/serai
    version: int
    controllers: frozenset[str]  # of those that we use; "freezer" is one in version 1


class BoxCgroup:
    """The groups of one box, one for each tree. Everything is idempotent, also when they do not exist."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = tuple(folders)

    def freeze(self) -> None:
        """Stop all of it where it stands; on return it does."""
        for folder in self._find_folders("cgroup.freeze"):
            box_setup.write(f"{folder}/cgroup.freeze", "1")
            _wait_until(partial(_has_line, f"{folder}/cgroup.events", "frozen 1"))
            return
        for folder in self._find_folders("freezer.state"):
            box_setup.write(f"{folder}/freezer.state", "FROZEN")
            _wait_until(partial(_has_line, f"{folder}/freezer.state", "FROZEN"))

    def thaw(self) -> None:
        for folder in self._find_folders("cgroup.freeze"):
            box_setup.write(f"{folder}/cgroup.freeze", "0")
        for folder in self._find_folders("freezer.state"):
            box_setup.write(f"{folder}/freezer.state", "THAWED")

    def kill(self) -> bool:
        """Kill all that is in it, however many it makes meanwhile. Whether they are gone on return."""
        for folder in self._find_folders("cgroup.kill"):
            box_setup.write(f"{folder}/cgroup.kill", "1")
        end = time.monotonic() + _LIMITS.box_stop
        while pids := self.list_pids():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            self.thaw()  # what is frozen does not die (version 1)
            if time.monotonic() > end:
                return False
            _wait_for(pids)
        return True

    def list_pids(self) -> set[int]:
        return {int(pid) for folder in self.folders for pid in _read(f"{folder}/cgroup.procs").split()}

    def remove(self) -> None:
        """The empty groups. The kernel may hold one for a moment after its last process."""
        for folder in self.folders:
            _wait_until(partial(_try_remove, folder))
            _try_remove(os.path.dirname(folder))  # that of all boxes, when this was the last one

    def _find_folders(self, file: str) -> list[str]:
        return [folder for folder in self.folders if os.path.exists(f"{folder}/{file}")]


@dataclass(frozen=True, slots=True)
class Cgroups:
    """What can be had of them here."""

    trees: tuple[_Tree, ...] = ()
    limiting: LimitScope = field(default_factory=LimitScope)

    @classmethod
    def probe(cls, mounts: str = "/proc/self/mountinfo", own: str = "/proc/self/cgroup") -> Cgroups:
        """Look where groups can be made; nothing is left of looking."""
        trees = tuple(tree for tree in _find_trees(_read(mounts), _read(own)) if _is_usable(tree))
        known = {name for tree in trees for name in tree.controllers}
        limiting = LimitScope(
            memory="box" if "memory" in known else "", cpus="box" if "cpu" in known else "", pids="box" if "pids" in known else ""
        )
        return cls(trees, limiting)

    @property
    def freezes(self) -> bool:
        return any(tree.version == 2 or "freezer" in tree.controllers for tree in self.trees)

    def make(self, generation: str, allowance: BoxResources) -> BoxCgroup:
        """Groups for a box, those only that it needs: to kill and freeze it, and for its limits. Again after a pause."""
        wanted = _build_settings(allowance)
        holding = _find_holding_tree(self.trees)
        made = []
        for tree in self.trees:
            files = [(name, value) for controller in tree.controllers for name, value in wanted.get((controller, tree.version), ())]
            if not files and tree is not holding:
                continue
            folder = f"{tree.folder}/{generation}"
            made.append(folder)
            try:
                _make(tree, folder)
                for name, value in files:
                    if not name.startswith("?") or os.path.exists(f"{folder}/{name[1:]}"):  # not every kernel accounts for swap
                        box_setup.write(f"{folder}/{name.lstrip('?')}", value)
            except OSError:
                BoxCgroup(made).remove()
                raise
        return BoxCgroup(made)

    def find(self, generation: str) -> BoxCgroup:
        """The groups of a box that somebody made, perhaps another process long ago."""
        return BoxCgroup([folder for tree in self.trees if os.path.isdir(folder := f"{tree.folder}/{generation}")])


def _build_settings(allowance: BoxResources) -> Mapping[tuple[str, int], Sequence[tuple[str, str]]]:
    """Controller and version: which files get what. `?` before a name: if there is such a file."""
    settings: dict[tuple[str, int], Sequence[tuple[str, str]]] = {}
    if allowance.memory is not None:
        limit = str(allowance.memory)
        settings["memory", 2] = [("memory.max", limit), ("?memory.swap.max", "0")]
        settings["memory", 1] = [("memory.limit_in_bytes", limit), ("?memory.memsw.limit_in_bytes", limit)]
    if allowance.cpus is not None:
        quota = max(int(allowance.cpus * _PERIOD), _LEAST)
        settings["cpu", 2] = [("cpu.max", f"{quota} {_PERIOD}")]
        settings["cpu", 1] = [("cpu.cfs_period_us", str(_PERIOD)), ("cpu.cfs_quota_us", str(quota))]
    if allowance.pids is not None:
        settings["pids", 1] = settings["pids", 2] = [("pids.max", str(allowance.pids))]
    return settings


def _find_holding_tree(trees: Iterable[_Tree]) -> _Tree | None:
    """The tree by which a box is killed and frozen: version 2 does both at once, the freezer of version 1 holds its processes."""
    return next((tree for tree in trees if tree.version == 2), None) or next(
        (tree for tree in trees if "freezer" in tree.controllers), None
    )


def _find_trees(mounts: str, own: str) -> list[_Tree]:
    """Where each hierarchy is mounted, and the highest place on the way down to our own group at which we may make groups."""
    places = {tuple(sorted(names.split(","))): path for _, names, path in (line.split(":", 2) for line in own.splitlines())}
    found = []
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        root, mounted = before.split(" ")[3:5]
        if kind == "cgroup2":
            names, version = [""], 2
        elif kind == "cgroup":
            names, version = [name for name in options.split(",") if name in (*_CONTROLLERS, "freezer")], 1
        else:
            continue
        position = next((path for key, path in places.items() if set(names) & set(key)), None) if names else None
        if position is not None and (folder := _find_writable_folder(mounted, root, position, version)):
            controllers = names if version == 1 else _read(f"{folder}/cgroup.subtree_control").split()
            found.append(_Tree(f"{folder}/{_NAME}", version, frozenset(controllers) & {*_CONTROLLERS, "freezer"}))
    return found


def _find_writable_folder(mounted: str, root: str, position: str, version: int) -> str:
    """Empty when there is none."""
    way = os.path.relpath(position, root)
    steps = [] if way == "." or way.startswith("..") else way.split("/")
    for depth in range(len(steps) + 1):
        folder = os.path.join(mounted, *steps[:depth])
        if os.access(folder, os.W_OK) and os.access(f"{folder}/cgroup.procs", os.W_OK):
            if version == 2:
                _enable(folder)
            return folder
    return ""


def _enable(folder: str) -> None:
    """Hand the controllers down, as far as they are there and the kernel lets us: a group that has processes itself may not."""
    there, done = (set(_read(f"{folder}/cgroup.{file}").split()) for file in ("controllers", "subtree_control"))
    for name in there & set(_CONTROLLERS) - done:
        with contextlib.suppress(OSError):
            box_setup.write(f"{folder}/cgroup.subtree_control", f"+{name}")


def _is_usable(tree: _Tree) -> bool:
    """Whether a group can really be made there."""
    trial = f"{tree.folder}/probe-{os.getpid()}-{time.monotonic_ns()}"
    try:
        _make(tree, trial)
    except OSError:
        return False
    BoxCgroup([trial]).remove()
    return True


def _make(tree: _Tree, folder: str) -> None:
    for last in (False, False, False, True):
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(tree.folder, 0o755)
            if tree.version == 2:
                _enable(tree.folder)
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o755)
            return
        except FileNotFoundError:  # somebody's last box has just gone, and the group of all boxes with it
            if last:
                raise


def _try_remove(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _wait_for(pids: Iterable[int]) -> None:
    """Until they have ended, or for a moment: there may be new ones."""
    with contextlib.ExitStack() as stack:
        waiting = select.poll()
        count = 0
        for pid in pids:
            try:
                descriptor = os.pidfd_open(pid)
            except OSError:
                continue
            stack.callback(os.close, descriptor)
            waiting.register(descriptor, select.POLLIN)
            count += 1
        if count:
            waiting.poll(int(_LOOK * 1000))
        else:
            time.sleep(_LOOK)  # none of them is a process any more, and the kernel still lists them


def _has_line(path: str, line: str) -> bool:
    return line in _read(path).splitlines()


def _wait_until(done: Callable[[], bool]) -> bool:
    end = time.monotonic() + _LIMITS.box_stop
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(_LOOK)
    return True


def _read(path: str) -> str:
    """Empty when it is not there, or not for us."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""

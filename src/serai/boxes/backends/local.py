"""Boxes that are processes of this machine: what `namespaces` and `process` share.

Each box has a folder, named by its generation (a box id may be one character, or come again): `about.json`, its disk, the sockets
of its server and its keeper, the markers `paused` and `frozen`. So every process of this user finds every box again, and a paused
box is distinguished from one that crashed (spec hooks 3.2). `remove_tree` removes a folder, whatever a box made of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import operator
import os
import socket
import stat
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import count
from typing import Literal, NamedTuple, Protocol

from serai.atomic_file import write_atomically
from serai.boxes.backend import BackendCapabilities, BackendState, BoxObservation, BoxResources, BoxSpec
from serai.boxes.box_client import BoxClient
from serai.boxes.ownership import BoxHolder, HeldBox, KeptBox, run_to_completion
from serai.errors import BoxFailed, BoxNotFound, BoxRefused
from serai.limits import BoxLimits
from serai.paths import make_private_folder
from serai.wire import process_tree

log = logging.getLogger("serai.boxes")


class ProbeResult(NamedTuple):
    """What a kind of box gives here; `missing` says why it cannot be had at all."""

    missing: str
    capabilities: BackendCapabilities


class LaunchMethod(Protocol):
    """What differs: how the launcher is to make the box."""

    name: str

    def probe(self) -> ProbeResult: ...
    def check(self, wanted: BoxSpec) -> None:
        """`BoxRefused` for what cannot be had here."""
        ...

    def prepare(self, wanted: BoxSpec, folder: str) -> list[str]:
        """Make what the launcher needs, again after a pause; its command line."""
        ...

    def release(self, generation: str, folder: str) -> None:
        """Leave no process, no control group and no folder. Idempotent."""
        ...

    def freeze(self, generation: str) -> None: ...
    def thaw(self, generation: str) -> None: ...


def build_log_path(home: str, generation: str) -> str:
    """Beside the folders: it outlives the box, to tell why that ended."""
    return os.path.join(home, "logs", f"{generation}.log")


class LocalBackend:
    """`home` has the folders of all boxes. `control` makes the client of a box server from a socket's path and a box id."""

    def __init__(self, kind: LaunchMethod, home: str, limits: BoxLimits, control: Callable[[str, str], BoxClient]) -> None:
        self.kind = kind
        self.name = kind.name
        self.home = home
        self.limits = limits
        self.make_control = control
        self._instances: dict[str, LocalInstance] = {}  # those that we started or found: their wires are open

    @cached_property
    def _probed(self) -> ProbeResult:
        return self.kind.probe()

    @property
    def missing(self) -> str:
        return self._probed.missing

    @property
    def capabilities(self) -> BackendCapabilities:
        return self._probed.capabilities

    def check(self, wanted: BoxSpec) -> None:
        if self.missing:
            raise BoxFailed(f"the backend {self.name} does not work here: {self.missing}", who=f"box {wanted.box_id}")
        self.kind.check(wanted)

    async def provision(self, wanted: BoxSpec, holder: BoxHolder) -> LocalInstance:
        self.check(wanted)
        if any(wanted.generation == seen.generation or wanted.box_id == seen.box_id for seen in await self.list()):
            raise BoxRefused(
                f'box ID "{wanted.box_id}" is already in use on "{self.name}"; choose a different box ID', who=wanted.box_id
            )
        instance = LocalInstance(self, wanted)
        try:
            make_private_folder(instance.folder)
            self._instances[wanted.generation] = instance
            about = json.dumps({"backend": self.name, **asdict(wanted)})
            write_atomically(os.path.join(instance.folder, "about.json"), about.encode(), sync=True)
            await instance.start(holder)
        except BaseException as error:
            await run_to_completion(instance.destroy())
            if isinstance(error, OSError) and not isinstance(error, TimeoutError):
                raise BoxFailed(f"its folder cannot be made: {error.strerror}", who=f"box {wanted.box_id}") from None
            raise
        return instance

    async def list(self) -> Sequence[BoxObservation]:
        return [instance.observe() for instance in self._list_instances()]

    async def find(self, name: str) -> LocalInstance:
        everyone = self._list_instances()
        for name_of in (operator.attrgetter("generation"), operator.attrgetter("box_id")):  # an id may look like a generation
            for instance in everyone:
                if name_of(instance) == name:
                    return instance
        raise BoxNotFound(f'no box found with box ID "{name}"', who=name)

    async def close(self) -> None:
        for instance in self._instances.values():
            instance.disconnect()
            if isinstance(instance.held, KeptBox):
                instance.held.forget()
        self._instances.clear()

    def forget(self, generation: str) -> None:
        if (instance := self._instances.pop(generation, None)) is not None:
            instance.disconnect()

    def _list_instances(self) -> Sequence[LocalInstance]:
        try:
            names = sorted(os.listdir(self.home))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise BoxFailed(f"the boxes of {self.name} cannot be listed: {error.strerror}", who=self.home) from None
        for gone in [name for name, instance in self._instances.items() if name not in names and instance.held is None]:
            self.forget(gone)  # ended by another process
        return [instance for name in names if (instance := self._find_instance(name)) is not None]

    def _find_instance(self, name: str) -> LocalInstance | None:
        """The box in that folder, when it is one of ours."""
        try:
            with open(os.path.join(self.home, name, "about.json"), "rb") as file:
                about = json.load(file)
            if about.pop("backend") != self.name:
                return None
            wanted = BoxSpec(**{**about, "allowance": BoxResources(**about["allowance"])})
        except (OSError, ValueError, KeyError, TypeError):  # another kind of folder, or a box that is being made or removed
            return None
        if name not in self._instances:
            self._instances[name] = LocalInstance(self, wanted)
        return self._instances[name]


class LocalInstance:
    """One box."""

    def __init__(self, backend: LocalBackend, wanted: BoxSpec) -> None:
        self._backend = backend
        self.wanted = wanted
        self.folder = os.path.join(backend.home, wanted.generation)
        self.held: HeldBox | None = None  # None also when another process holds it
        self._control: BoxClient | None = None
        self._destroying: asyncio.Task[None] | None = None

    @property
    def box_id(self) -> str:
        return self.wanted.box_id

    @property
    def generation(self) -> str:
        return self.wanted.generation

    @property
    def halted(self) -> Literal["paused", "frozen", ""]:
        marker: Literal["paused", "frozen"]
        for marker in ("paused", "frozen"):
            if os.path.exists(os.path.join(self.folder, marker)):
                return marker
        return ""

    def observe(self) -> BoxObservation:
        return BoxObservation(box_id=self.box_id, generation=self.generation, name=f"serai-{self.generation}", state=self._state())

    def get_client(self) -> BoxClient:
        if self._control is None:
            self._control = self._backend.make_control(os.path.join(self.folder, "control.sock"), self.box_id)
        return self._control

    async def start(self, holder: BoxHolder) -> None:
        argv = self._backend.kind.prepare(self.wanted, self.folder)
        path = build_log_path(self._backend.home, self.generation)
        make_private_folder(os.path.dirname(path))
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            self.held = await holder.start(argv, box_id=self.box_id, generation=self.generation, folder=self.folder, log=descriptor)
        finally:
            os.close(descriptor)

    async def pause(self) -> None:
        """The marker first: whoever finds the box without processes meanwhile must not take it for a crash (spec hooks 3.5).

        A keeper sets it itself: so it is there exactly when the box is about to be stopped, also if we die.
        """
        marker = os.path.join(self.folder, "paused")
        try:
            await self.thaw()  # what is frozen cannot end
            held = self.held or KeptBox(self.folder, self._backend.limits)
            if not (isinstance(held, KeptBox) and await held.pause()):
                write_atomically(marker, b"", sync=True)
            await self._stop()
        except BaseException as error:
            if _is_listening(self.folder):  # it was not stopped; else it is paused, whatever went wrong
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(marker)
            if isinstance(error, OSError) and not isinstance(error, TimeoutError):
                raise BoxFailed(f"it cannot be paused: {error.strerror}", who=f"box {self.box_id}") from None
            raise

    async def resume(self, holder: BoxHolder) -> None:
        await self.start(holder)

    def mark_resumed(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.folder, "paused"))

    async def freeze(self) -> None:
        if self.halted == "paused":
            raise BoxRefused(f'box "{self.box_id}" is paused: there is nothing to freeze', who=self.box_id)
        if not self._backend.capabilities.freeze:
            raise BoxRefused(f'boxes of "{self._backend.name}" cannot be frozen here', who=self.box_id, hint="pause it instead")
        write_atomically(os.path.join(self.folder, "frozen"), b"", sync=True)
        self._backend.kind.freeze(self.generation)

    async def thaw(self) -> None:
        if self._backend.capabilities.freeze:
            self._backend.kind.thaw(self.generation)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.folder, "frozen"))

    async def destroy(self) -> None:
        """Once at a time, however many ask; again after it failed."""
        if self._destroying is None or (self._destroying.done() and self._destroying.exception() is not None):
            self._destroying = asyncio.create_task(self._destroy(), name=f"destroy box {self.box_id}")
        await asyncio.shield(self._destroying)

    async def _destroy(self) -> None:
        try:
            await self._stop()
            await asyncio.to_thread(self._backend.kind.release, self.generation, self.folder)
        except OSError as error:
            if isinstance(error, TimeoutError):
                raise
            raise BoxFailed(f"its disk cannot be removed: {error}", who=f"box {self.box_id}") from None
        self._backend.forget(self.generation)

    def disconnect(self) -> None:
        """Hang up."""
        if self._control is not None:
            self._control.close()
            self._control = None

    async def _stop(self) -> None:
        """No process of it is left on return, whoever started it and whatever became of them."""
        await self.thaw()  # what is frozen cannot end
        self.disconnect()
        held = self.held or KeptBox(self.folder, self._backend.limits)
        self.held = None
        await held.end()
        if isinstance(held, KeptBox):  # who started it may be dead, and what they started may not
            limit = self._backend.limits.box_stop
            left = await asyncio.to_thread(process_tree.kill_until_gone, lambda: find_processes(self.generation), seconds=limit)
            if left:
                raise BoxFailed(f"its processes {[process.pid for process in left]} do not end", who=f"box {self.box_id}")

    def _state(self) -> BackendState:
        if self.halted == "paused":
            return "paused"
        return (self.halted or "running") if _is_listening(self.folder) else "exited"


def find_processes(generation: str) -> list[process_tree.Process]:
    """The launcher and the box server of a box, by a variable they were started with: when all that we knew of them is lost."""
    wanted = f"SERAI_BOX={generation}".encode()
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    until = process_tree.exec_deadline()
    holders = (pid for pid in pids if wanted in process_tree.read_proc_file(f"/proc/{pid}/environ", until).split(b"\0"))
    return [process for pid in holders if (process := process_tree.read_process(pid)) and process.alive]


def _is_listening(folder: str) -> bool:
    """Whether somebody listens at its control socket: the box server, for as long as it lives."""
    try:
        at = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(f"/proc/self/fd/{at}/control.sock")
        except BlockingIOError:  # it is busy, so it is there
            return True
        except OSError:
            return False
        finally:
            os.close(at)
    return True


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str) -> None:
    """Leave nothing of it; idempotent. No link is followed, and no depth is too deep: folders inside are moved up first.

    Folders without any permission are opened first, which their owner may. Nobody must be at work in it any more.
    """
    try:
        os.chmod(path, stat.S_IRWXU)
        top = os.open(path, _FOLDER)
    except FileNotFoundError:
        return
    try:
        names = count()
        while entries := os.listdir(top):
            for name in entries:
                with contextlib.suppress(FileNotFoundError):  # somebody else removes it, too
                    _remove_entry(top, name, names)
    finally:
        os.close(top)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(path)


def _remove_entry(top: int, name: str, names: count[int]) -> None:
    """An entry of the top folder; the folders in it become entries of the top folder."""
    if not _is_folder(top, name):
        os.unlink(name, dir_fd=top)
        return
    inner = os.open(name, _FOLDER, dir_fd=top)
    try:
        for entry in os.listdir(inner):
            if _is_folder(inner, entry):
                os.rename(entry, _find_free_name(top, names), src_dir_fd=inner, dst_dir_fd=top)
            else:
                os.unlink(entry, dir_fd=inner)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)


def _is_folder(at: int, name: str) -> bool:
    """Whether it is one; then it can be read and written from now on."""
    if not stat.S_ISDIR(os.lstat(name, dir_fd=at).st_mode):
        return False
    os.chmod(name, stat.S_IRWXU, dir_fd=at)
    return True


def _find_free_name(top: int, names: count[int]) -> str:
    """A name that is not taken there: a box may have thought of ours."""
    while True:
        name = f".serai-{next(names)}"
        try:
            os.lstat(name, dir_fd=top)
        except FileNotFoundError:
            return name

"""The interface of every backend of boxes, and a record of what a backend really gives (spec hooks 8).

A backend starts boxes and finds them again; it knows nothing of hooks, records or time to live. All of that is the manager's
(`serai.boxes.manager`); commands inside a box go through `serai.boxes.box_client`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from serai.errors import BoxRefused

if TYPE_CHECKING:
    from serai.boxes.box_client import BoxClient
    from serai.boxes.ownership import BoxHolder, HeldBox
    from serai.limits import BoxLimits

BackendState = Literal["running", "paused", "frozen", "exited"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitScope:
    """Of what a limit holds: the `box` as a whole, or each `process` in it; empty when it cannot be limited."""

    memory: Literal["box", "process", ""] = ""
    cpus: Literal["box", ""] = ""
    pids: Literal["box", ""] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendCapabilities:
    """What a backend gives on this machine, for this user. Nothing is claimed that no test has seen."""

    isolation: Literal["none", "landlock", "namespaces", "container", "gvisor", "microvm"]
    limits: LimitScope = field(default_factory=LimitScope)
    ownership: Literal["full", "single"] = "single"  # whether a hook's uid and gid can be honoured
    network: Literal["none", "bridge", "host"] = "host"
    freeze: bool = False
    dial: bool = True  # whether a port inside the box can be reached through the box server
    rootfs: bool = False  # whether a base tree can be given
    notes: tuple[str, ...] = ()  # what is missing here and why, one sentence each


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxResources:
    """How much a box may use; None is unlimited."""

    memory: int | None = None  # bytes
    cpus: float | None = None
    pids: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxSpec:
    """The box to be provisioned."""

    box_id: str
    generation: str
    rootfs: str | None = None
    allowance: BoxResources = field(default_factory=BoxResources)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxObservation:
    """What a backend sees of one of its boxes."""

    box_id: str
    generation: str
    name: str  # its own name for it
    state: BackendState
    image: str = ""


class BackendBox(Protocol):
    """One box of a backend."""

    @property
    def box_id(self) -> str: ...
    @property
    def generation(self) -> str: ...
    @property
    def held(self) -> HeldBox | None:
        """Who holds its processes; None while it has none."""
        ...

    @property
    def halted(self) -> Literal["paused", "frozen", ""]:
        """Why no command can be run in it although it is there; quickly, each command asks."""
        ...

    def observe(self) -> BoxObservation: ...
    def get_client(self) -> BoxClient:
        """The wire to its box server."""
        ...

    async def pause(self) -> None:
        """Stop its processes, keep its disk."""
        ...

    async def resume(self, holder: BoxHolder) -> None:
        """Start it again from its disk; the box server answers on return. It counts as paused until `mark_resumed`."""
        ...

    def mark_resumed(self) -> None:
        """All that belongs to it is done: it is not paused any more."""
        ...

    async def freeze(self) -> None: ...
    async def thaw(self) -> None: ...
    async def destroy(self) -> None:
        """Leave nothing of it, neither a process nor a file. Idempotent."""
        ...


class Backend(Protocol):
    """Starts boxes and finds them again."""

    name: str

    @property
    def missing(self) -> str:
        """Why no box can be started here; empty when it works."""
        ...

    @property
    def capabilities(self) -> BackendCapabilities: ...
    def check(self, wanted: BoxSpec) -> None:
        """Whether such a box can be had here: asked before any hook runs for it. `BoxRefused` or `BoxFailed` says why not."""
        ...

    async def provision(self, wanted: BoxSpec, holder: BoxHolder) -> BackendBox:
        """Start a box; the box server answers on return. A failure leaves nothing behind."""
        ...

    async def list(self) -> Sequence[BoxObservation]:
        """All boxes that are its own, also stopped ones."""
        ...

    async def find(self, name: str) -> BackendBox:
        """By box id or generation, exactly; else `BoxNotFound`."""
        ...

    async def close(self) -> None:
        """Let go of what it holds on the machine; boxes run on."""
        ...


DEFAULT = "namespaces"
# Name, and what it is in a line.
BACKENDS = {
    "namespaces": "Linux namespaces: no daemon, no root needed",
    "process": "a plain process in a folder of its own, as far as Landlock and seccomp confine it; only when you ask for it",
}


def open_backend(name: str, home: str, limits: BoxLimits, control: Callable[[str, str], BoxClient]) -> Backend:
    """The backend of that name; an unknown one is an error that lists the known (spec hooks 8)."""
    from serai.boxes.backends.local import LaunchMethod, LocalBackend

    kind: LaunchMethod
    if name == "namespaces":
        from serai.boxes.backends.namespaces import NamespacesLaunch

        kind = NamespacesLaunch()
    elif name == "process":
        from serai.boxes.backends.process import ProcessLaunch

        kind = ProcessLaunch()
    else:
        raise BoxRefused(f"there is no backend {name!r}", hint=f"there is {', '.join(BACKENDS)}")
    return LocalBackend(kind, home, limits, control)

"""What every backend of boxes is: one small interface, and a record of what it really gives (spec hooks 8).

A backend starts boxes and finds them again; it knows nothing of hooks, records or time to live. All of that is the manager's
(`serai.boxes.manager`), and the commands inside a box are its porter's (`serai.boxes.control`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from serai.boxes.control import Control
    from serai.boxes.holding import Held, Holder

__all__ = ["Allowance", "Backend", "Capabilities", "Instance", "Limiting", "Seen", "State", "Wanted"]

State = Literal["running", "paused", "frozen", "exited"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limiting:
    """Of what a limit holds: the `box` as a whole, or each `process` in it; empty when it cannot be limited."""

    memory: Literal["box", "process", ""] = ""
    cpus: Literal["box", ""] = ""
    pids: Literal["box", ""] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a backend gives on this machine, for this user. Nothing is claimed that no test has seen."""

    isolation: Literal["none", "landlock", "namespaces", "container", "gvisor", "microvm"]
    limits: Limiting = field(default_factory=Limiting)
    ownership: Literal["full", "single"] = "single"  # whether a hook's uid and gid can be honoured
    network: Literal["none", "bridge", "host"] = "host"
    freeze: bool = False
    dial: bool = True  # whether a port inside the box can be reached through its porter
    rootfs: bool = False  # whether a base tree can be given
    notes: tuple[str, ...] = ()  # what is missing here and why, one sentence each


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """How much a box may use; None is unlimited."""

    memory: int | None = None  # bytes
    cpus: float | None = None
    pids: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The box to be provisioned."""

    box_id: str
    generation: str
    rootfs: str | None = None
    allowance: Allowance = field(default_factory=Allowance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a backend sees of one of its boxes."""

    box_id: str
    generation: str
    name: str  # its own name for it
    state: State
    image: str = ""


class Instance(Protocol):
    """One box of a backend."""

    @property
    def box_id(self) -> str: ...
    @property
    def generation(self) -> str: ...
    @property
    def held(self) -> Held | None:
        """Who holds its processes; None while it has none."""
        ...

    @property
    def halted(self) -> Literal["paused", "frozen", ""]:
        """Why no command can be run in it although it is there; quickly, each command asks."""
        ...

    def meta(self) -> Seen: ...
    def control(self) -> Control:
        """Its porter's wire."""
        ...

    async def pause(self) -> None:
        """Stop its processes, keep its disk."""
        ...

    async def resume(self, holder: Holder) -> None:
        """Start it again from its disk; its porter answers on return. It counts as paused until `resumed`."""
        ...

    def resumed(self) -> None:
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
    def capabilities(self) -> Capabilities: ...
    def check(self, wanted: Wanted) -> None:
        """Whether such a box can be had here: asked before any hook runs for it. `BoxRefused` or `BoxFailed` says why not."""
        ...

    async def provision(self, wanted: Wanted, holder: Holder) -> Instance:
        """Start a box; its porter answers on return. A failure leaves nothing behind."""
        ...

    async def list(self) -> Sequence[Seen]:
        """All boxes that are its own, also stopped ones."""
        ...

    async def find(self, name: str) -> Instance:
        """By box id or generation, exactly; else `BoxNotFound`."""
        ...

    async def close(self) -> None:
        """Let go of what it holds on the machine; boxes run on."""
        ...

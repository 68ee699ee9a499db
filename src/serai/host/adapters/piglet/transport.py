"""Both ways to a guest, until its first answer tells which one it speaks (spec piglet FIX-2).

`initialize` goes to descriptor 3 and to stdin. The side that answers it is the wire; what came there before counts, and what came
on the other side does not. The other side loses its input and is drained into the guest's log for the rest of its life.

Before the answer, registrations are kept for each side (`GuestRegistrations`, spec piglet 4: which of two equal names counts, and
how many are allowed). Requests are served on the side they came from, as a guest may need one before it can answer. Other
notifications on descriptor 4, where nobody prints by chance, are handled at once; on stdout, where anything may be printed, they
are kept and handled in order once that side is the wire. Log messages go to the guest's log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

from msgspec import Raw

from serai.dialects.piglet import neutral
from serai.dialects.piglet.host_side import HostSide
from serai.dialects.piglet.messages import InitializeParams, RegisterEventHandlerParams, RegisterShortcutParams, Wire
from serai.dialects.piglet.methods import Method
from serai.errors import BadFrame, LimitHit, Refused, SeraiError
from serai.host.adapters.piglet.event_dispatch import TYPES, find_kinds
from serai.host.guest_log import GuestLog
from serai.host.send_queue import SendQueue
from serai.limits import MIB, HostLimits
from serai.model.contributions import (
    Command,
    Compactor,
    Contributions,
    EventHandler,
    InputTransformer,
    Interceptor,
    MessageHook,
    PromptSection,
    Provider,
    Shortcut,
)
from serai.model.tools import ToolSpec
from serai.wire.channel import Channel, Tap
from serai.wire.event_loop import Deadlines
from serai.wire.jsonrpc_peer import JsonRpcPeer
from serai.wire.process import Child
from serai.wire.stream import Oversize

_COMPLAINTS = 10  # of the first few the report tells; all are in the log


class GuestRegistrations:
    """What is beyond `limits.registrations`, or in bytes beyond `limits.registered`, is not kept."""

    def __init__(self, limits: HostLimits) -> None:
        self._limits = limits
        self._sizes: dict[tuple[type, str], int] = {}  # of those of which the last counts
        self._size = 0  # of all
        self._named: dict[type, dict[str, Any]] = {ToolSpec: {}, Command: {}, Shortcut: {}, Compactor: {}}  # of two the last counts
        self._listed: dict[type, list[Any]] = {}  # all count
        self._types: frozenset[str] = frozenset()
        self._spelt: dict[str, str] = {}  # its keys as it writes them, by their one spelling here
        self._made: Contributions | None = None  # made when somebody looks
        self._full = False
        self.complaints: tuple[str, ...] = ()

    def add(self, method: str, params: Wire, size: int) -> str:
        """Take one, of so many bytes; why not, or nothing."""
        if self._count() >= self._limits.registrations:
            if self._full:
                return f"{method} is not taken: it offers too much"
            self._full = True
            most = self._limits.registrations
            return self.complain(f"its {method} and what follows is not taken: it offers more than {most} things")
        if self._size + size > self._limits.registered:
            limit = LimitHit("registered", self._limits.registered)
            return self.complain(f"its {method} of {size} bytes is not taken: with it, it offers too much ({limit})")
        unknown: list[str] = []
        if isinstance(params, RegisterEventHandlerParams):
            types = frozenset(params.events or TYPES)
            unknown = sorted(types.difference(TYPES))
            self._types |= types
            offered: Any = EventHandler(params.name, find_kinds(types), params.priority)
        else:
            offered = neutral.to_contribution(params)
            if isinstance(params, RegisterShortcutParams):
                self._spelt[offered.key] = params.key
        self._keep(offered, size)
        self._made = None
        return f"it wants events that never come: {', '.join(unknown)[:200]}" if unknown else ""

    def complain(self, text: str) -> str:
        """For a person to read in the report; the same text."""
        self.complaints = (*self.complaints, text) if len(self.complaints) < _COMPLAINTS else self.complaints
        return text

    def wants(self, type: str) -> bool:
        """Whether a handler of it wants events of this type."""
        return type in self._types

    def find_spelling(self, key: str) -> str:
        """A key in the guest's own spelling, by which it knows its handler."""
        return self._spelt.get(key, key)

    def is_blocking(self, tool: str) -> bool:
        """Whether a call of this tool is let finish, whoever gives up (spec piglet 2.6)."""
        spec = self._named[ToolSpec].get(tool)
        return spec is not None and spec.interrupt == "block"

    @property
    def contributions(self) -> Contributions:
        if self._made is None:
            named = {kind: tuple(some.values()) for kind, some in self._named.items()}
            listed = {kind: tuple(some) for kind, some in self._listed.items()}
            self._made = Contributions(
                tools=named[ToolSpec],
                commands=named[Command],
                interceptors=listed.get(Interceptor, ()),
                event_handlers=listed.get(EventHandler, ()),
                prompt_sections=listed.get(PromptSection, ()),
                shortcuts=named[Shortcut],
                message_hooks=listed.get(MessageHook, ()),
                input_transformers=listed.get(InputTransformer, ()),
                compactors=named[Compactor],
                providers=listed.get(Provider, ()),
            )
        return self._made

    def _keep(self, offered: Any, size: int) -> None:
        kind = type(offered)
        self._size += size
        if kind not in self._named:
            self._listed.setdefault(kind, []).append(offered)
            return
        name = "" if kind is Compactor else offered.key if kind is Shortcut else offered.name  # of the first there is one slot
        self._named[kind].pop(name, None)  # the last counts, in its own place
        self._named[kind][name] = offered
        self._size -= self._sizes.get((kind, name), 0)
        self._sizes[kind, name] = size

    def _count(self) -> int:
        return sum(map(len, self._named.values())) + sum(map(len, self._listed.values()))


Way = Literal["fd", "stdio"]
EXTRA: dict[int, Literal["r", "w"]] = {3: "r", 4: "w"}  # the child's ends (spec piglet 2.1)
# What is kept of a side that may turn out to be the wire. Nobody says as much before the first answer.
_KEPT = 8 * MIB
_LEAST = 200  # bytes that the smallest thing takes


class GuestWire:
    """One way to the guest, and what came over it."""

    def __init__(self, way: Way, registrations: GuestRegistrations, tap: DeferredTap | None) -> None:
        self.way = way
        self.registrations = registrations
        self.tap = tap
        self.host_side = HostSide()
        self.later: DeferredActions | None = None  # until it is known whether this is the wire
        self.rpc: JsonRpcPeer
        self.mail: SendQueue
        self.ends: dict[int, Callable[[], None]] = {}  # how each of its subscriptions is ended

    def unsubscribe(self) -> None:
        """Nobody listens here any more (spec piglet FIX-32)."""
        ends, self.ends = self.ends, {}
        for end in ends.values():
            end()

    def close(self, cause: SeraiError) -> None:
        """Nothing is asked or served here any more; whoever waits is told why."""
        self.unsubscribe()
        self.mail.close()
        self.rpc.handle_loss(cause)


class WireChoice:
    """The sides of one guest, in the order in which they are preferred should both have answered."""

    def __init__(self, child: Child, sides: list[GuestWire], log: GuestLog) -> None:
        self._child = child
        self._sides = sides
        self._log = log

    async def wait_for_answer(self, params: InitializeParams, timeout: float) -> tuple[GuestWire, Raw]:
        """The side that answers, and what. Raises `Refused` when it says no, and the cause when none answers."""
        loop = asyncio.get_running_loop()
        asked = {
            loop.create_task(
                side.rpc.call(Method.INITIALIZE, params, timeout=timeout, cancel=False), name=f"initialize {side.way}"
            ): side
            for side in self._sides
        }
        failures: list[BaseException] = []
        try:
            while asked:
                await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in asked if task.done()]:
                    side, error = asked.pop(task), task.exception()
                    if error is None or isinstance(error, Refused | BadFrame):
                        self._choose(side)
                        return side, Raw(b"null") if isinstance(error, BadFrame) else task.result()
                    failures.append(error)
        finally:
            for task in asked:
                task.cancel()
        self._choose(max(self._sides, key=lambda side: 0 if side.tap is None else side.tap.heard), alone=True)
        raise max(failures, key=lambda error: getattr(error, "exit", None) is not None)

    def _choose(self, chosen: GuestWire, *, alone: bool = False) -> None:
        """`alone`: none has answered; the one that said most is what the recording shows."""
        for side in self._sides:
            if side.tap is not None:
                side.tap.choose(chosen=side is chosen)
            if side.later is not None:
                later, side.later = side.later, None
                later.choose(chosen=side is chosen and not alone)
            if side is not chosen and not alone:
                self._drop(side)

    def _drop(self, side: GuestWire) -> None:
        channel = side.rpc.channel
        channel.receiver = StdoutDrain(self._log)
        side.unsubscribe()
        side.rpc.stop_serving()
        for call in side.rpc.connection.lose():
            call.waiter.cancel()
        child = self._child
        # A guest that has closed its own end has taken ours with it.
        child.close_descriptor(child.stdin if side.way == "stdio" else child.extra.get(3, -1))


class StdoutDrain:
    """Drains what nobody speaks on, such as the stdout of a guest whose wire is elsewhere: it never blocks (spec piglet 10.10)."""

    def __init__(self, log: GuestLog) -> None:
        self._log = log

    def handle_run(self, run: bytes) -> None:
        self._log.write_output(run)

    def handle_oversize(self, frame: Oversize) -> None:
        self._log.remark(f"it printed a line of {frame.size} bytes, which is not kept")

    def handle_loss(self, cause: SeraiError) -> None:
        """Its end is told by its wire."""

    def tick(self, now: float) -> None:  # noqa: ARG002
        return None


def drain(child: Child, log: GuestLog, deadlines: Deadlines) -> Channel:
    """The stdout of a guest that is told to speak on its descriptors alone."""
    return Channel(child, StdoutDrain(log), deadlines=deadlines, write=-1)


class DeferredActions:
    """Keeps what is to be done should a side be the wire; beyond the bound nothing more."""

    def __init__(self) -> None:
        self._later: list[Callable[[], None]] = []
        self._chosen: bool | None = None
        self._size = 0

    def choose(self, *, chosen: bool) -> None:
        if self._chosen is None:
            self._chosen = chosen
            for do in self._later if chosen else ():
                do()
            self._later = []

    def do(self, do: Callable[[], None], size: int = 0) -> bool:
        """Now, later or never; False when it would have been kept, and there is too much."""
        if self._chosen is None:
            self._size += size + _LEAST
            if self._size > _KEPT:
                return False
            self._later.append(do)
        elif self._chosen:
            do()
        return True


class DeferredTap(DeferredActions):
    """Keeps what a side says until it is known whether it is the wire."""

    def __init__(self, tap: Tap) -> None:
        super().__init__()
        self._tap = tap
        self.heard = 0  # bytes that the guest said here

    def frames(self, direction: Literal["sent", "received"], at: float, run: bytes) -> None:
        self.heard += len(run) if direction == "received" else 0
        self.do(lambda: self._tap.frames(direction, at, run), len(run))

    def skipped(self, at: float, frame: Oversize) -> None:
        self.do(lambda: self._tap.skipped(at, frame))

    def ended(self, at: float, cause: SeraiError) -> None:
        self.do(lambda: self._tap.ended(at, cause))

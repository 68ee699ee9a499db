"""Both ways to a guest, until its first answer tells which one it speaks (spec piglet FIX-2).

`initialize` goes to descriptor 3 and to stdin. The side that answers it is the wire; what came there before counts, and what came
on the other side does not. The other side loses its input and is drained into the guest's log for the rest of its life.

Before the answer: registrations are kept in the side's own book. Requests are served on the side they came from, as a guest may
need one before it can answer. What else a guest tells on descriptor 4, where nobody prints by chance, is done at once; on stdout,
where anything may be printed, it is kept, and done in order once that side is the wire. What goes to the guest's log goes there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

from msgspec import Raw

from serai.dialects.piglet.host_side import HostSide
from serai.dialects.piglet.messages import InitializeParams
from serai.dialects.piglet.methods import Method
from serai.errors import BadFrame, Refused, SeraiError
from serai.host.adapters.piglet.book import Book
from serai.host.logs import GuestLog
from serai.host.mailbox import Mailbox
from serai.limits import MIB
from serai.wire.channel import Channel, Tap
from serai.wire.event_loop import Deadlines
from serai.wire.jsonrpc_peer import JsonRpcPeer
from serai.wire.process import Child
from serai.wire.stream import Oversize

__all__ = ["EXTRA", "LateTap", "Later", "Printed", "Side", "Way", "Ways", "drained"]

Way = Literal["fd", "stdio"]
EXTRA: dict[int, Literal["r", "w"]] = {3: "r", 4: "w"}  # the child's ends (spec piglet 2.1)
# What is kept of a side that may turn out to be the wire. Nobody says as much before the first answer.
_KEPT = 8 * MIB
_LEAST = 200  # bytes that the smallest thing takes


class Side:
    """One way to the guest, and what came over it."""

    def __init__(self, way: Way, book: Book, tap: LateTap | None) -> None:
        self.way = way
        self.book = book
        self.tap = tap
        self.ours = HostSide()
        self.later: Later | None = None  # until it is known whether this is the wire
        self.rpc: JsonRpcPeer
        self.mail: Mailbox
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
        self.rpc.lost(cause)


class Ways:
    """The sides of one guest, in the order in which they are preferred should both have answered."""

    def __init__(self, child: Child, sides: list[Side], log: GuestLog) -> None:
        self._child = child
        self._sides = sides
        self._log = log

    async def first(self, params: InitializeParams, timeout: float) -> tuple[Side, Raw]:
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

    def _choose(self, chosen: Side, *, alone: bool = False) -> None:
        """`alone`: none has answered; the one that said most is what the recording shows."""
        for side in self._sides:
            if side.tap is not None:
                side.tap.choose(chosen=side is chosen)
            if side.later is not None:
                later, side.later = side.later, None
                later.choose(chosen=side is chosen and not alone)
            if side is not chosen and not alone:
                self._drop(side)

    def _drop(self, side: Side) -> None:
        channel = side.rpc.channel
        channel.receiver = Printed(self._log)
        side.unsubscribe()
        side.rpc.stop_serving()
        for call in side.rpc.connection.lose():
            call.waiter.cancel()
        child = self._child
        # A guest that has closed its own end has taken ours with it.
        child.close_descriptor(child.stdin if side.way == "stdio" else child.extra.get(3, -1))


class Printed:
    """Drains what nobody speaks on, such as the stdout of a guest whose wire is elsewhere: it never blocks (spec piglet 10.10)."""

    def __init__(self, log: GuestLog) -> None:
        self._log = log

    def received(self, run: bytes) -> None:
        self._log.printed(run)

    def oversize(self, frame: Oversize) -> None:
        self._log.remark(f"it printed a line of {frame.size} bytes, which is not kept")

    def lost(self, cause: SeraiError) -> None:
        """Its end is told by its wire."""

    def tick(self, now: float) -> None:  # noqa: ARG002
        return None


def drained(child: Child, log: GuestLog, deadlines: Deadlines) -> Channel:
    """The stdout of a guest that is told to speak on its descriptors alone."""
    return Channel(child, Printed(log), deadlines=deadlines, write=-1)


class Later:
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


class LateTap(Later):
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

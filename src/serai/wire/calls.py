"""Calls that wait for an answer (sans-IO): by id, each with its deadline.

One table for every dialect that correlates by id. Time is an argument. Expiry looks at all waiting calls, which is cheap
because it happens only when the earliest deadline has come, not per call (design rule 3).
"""

from __future__ import annotations

from collections.abc import Hashable
from math import inf
from typing import Any, Generic, TypeVar

import msgspec

__all__ = ["Call", "Calls"]

K = TypeVar("K", bound=Hashable)


class Call(msgspec.Struct, Generic[K], eq=False):
    """One call under way. `waiter` is the owner's: a future on a live wire, nothing in a replay."""

    id: K
    what: str
    sent: float
    deadline: float
    timeout: float | None
    waiter: Any = None


class Calls(Generic[K]):
    """The calls of one connection that wait for their answers, in the order they were made.

    `waiting` has them by id: a hot path may put one in and take it out by itself.
    """

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: dict[K, Call[K]] = {}

    def __len__(self) -> int:
        return len(self.waiting)

    def __contains__(self, id: K) -> bool:
        return id in self.waiting

    def start(self, id: K, what: str, *, now: float, timeout: float | None, waiter: Any = None) -> Call[K]:
        """Begin to wait; no time-out means no deadline."""
        call = Call(id, what, now, inf if timeout is None else now + timeout, timeout, waiter)
        self.waiting[id] = call
        return call

    def finish(self, id: K) -> Call[K] | None:
        """The call that `id` answers, taken out; None when nobody waits for it: late, repeated or never asked."""
        return self.waiting.pop(id, None)

    def expire(self, now: float) -> list[Call[K]]:
        """The calls whose deadline has passed, taken out."""
        late = [call for call in self.waiting.values() if call.deadline <= now]
        for call in late:
            del self.waiting[call.id]
        return late

    def next_deadline(self) -> float | None:
        """The earliest deadline, or None when none is set."""
        earliest = min((call.deadline for call in self.waiting.values()), default=inf)
        return None if earliest == inf else earliest

    def abandon(self) -> list[Call[K]]:
        """All of them, taken out: their peer is gone."""
        lost = list(self.waiting.values())
        self.waiting.clear()
        return lost

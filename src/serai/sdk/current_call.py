"""The running call, for a handler that wants to know of it."""

from __future__ import annotations

from _contextvars import ContextVar  # what `contextvars` has, without the import
from collections.abc import Callable


class Cancelled(Exception):
    """Nobody waits for this call any more. A handler lets it pass, or cleans up and raises it again."""


class Call:
    """What runs now. A handler gets it in the parameter that is annotated with `Call`; the model does not see that one.

    Async handlers are cancelled as tasks are. A sync one looks now and then, or waits with `wait`:

        while not call.wait(1.0):   # a second, or until nobody waits for the answer any more
            ...
    """

    __slots__ = ("_acts", "_cancelled", "_lock", "id", "name")

    def __init__(self, id: str, name: str) -> None:
        from threading import Event, Lock  # after hello: nothing runs before

        self.id = id  # the host's own
        self.name = name
        self._cancelled = Event()
        self._lock = Lock()
        self._acts: list[Callable[[], object]] = []  # how its task is cancelled, and what it waits for

    @property
    def cancelled(self) -> bool:
        """Whether the answer is still of use: no more once the host leaves, took the call back, or its time is over."""
        return self._cancelled.is_set()

    def check(self) -> None:
        """Raise `Cancelled` if it is."""
        if self.cancelled:
            raise Cancelled(f"{self.name} was cancelled")

    def wait(self, seconds: float) -> bool:
        """Wait, but no longer than the call lives; whether it was cancelled."""
        return self._cancelled.wait(seconds)

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        with self._lock:
            self._cancelled.set()
            acts, self._acts = self._acts, []
        for act in acts:
            act()

    def when_cancelled(self, act: Callable[[], object]) -> None:
        """For the engine: do this then, or now if it is."""
        with self._lock:
            if not self.cancelled:
                self._acts.append(act)
                return
        act()

    def forget(self, act: Callable[[], object]) -> None:
        """For the engine: that is done."""
        with self._lock:
            if act in self._acts:
                self._acts.remove(act)


# The call that the running handler serves; each thread and each task has its own.
current: ContextVar[Call | None] = ContextVar("current", default=None)

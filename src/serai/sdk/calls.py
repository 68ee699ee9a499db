"""The running call, for a handler that wants to know of it."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Call", "Cancelled"]


class Cancelled(Exception):
    """Nobody waits for this call any more. A handler lets it pass, or cleans up and raises it again."""


class Call:
    """What runs now. A handler gets it in the parameter that is annotated with `Call`; the model does not see that one.

    Async handlers are cancelled as tasks are. A sync one looks now and then, or waits with `wait`:

        while not call.wait(1.0):   # a second, or until nobody waits for the answer any more
            ...
    """

    __slots__ = ("_cancelled", "_on_cancel", "id", "name")

    def __init__(self, id: str, name: str) -> None:
        from threading import Event  # after hello: nothing runs before

        self.id = id  # the host's own
        self.name = name
        self._cancelled = Event()
        self._on_cancel: Callable[[], object] | None = None  # how its task is cancelled, if it has one

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
        self._cancelled.set()
        if self._on_cancel is not None:
            self._on_cancel()

    def when_cancelled(self, act: Callable[[], object]) -> None:
        """For the engine: do this then, or now if it is."""
        self._on_cancel = act
        if self.cancelled:
            act()

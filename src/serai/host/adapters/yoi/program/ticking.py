"""Ends a guest that runs past its time: a thread that looks every few milliseconds while calls come, and sleeps when none do.

wasmtime stops a guest when the engine's epoch has passed the store's. The epoch is moved only when a call's time is over, so a call
costs nothing but a note of its deadline; and a thread that is awake anyway is not woken for each call.
"""

from __future__ import annotations

import _thread
from math import inf
from time import monotonic, sleep

from wasmtime import Engine, Store

__all__ = ["Ticker"]

_EVERY = 0.02  # seconds
_QUIET = 10  # looks without a call: then it sleeps until there is one


class Ticker:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = _thread.allocate_lock()
        self._wake = _thread.allocate_lock()
        self._wake.acquire()
        self._deadline = inf
        self._calls = 0
        self._asleep = False

    def start(self) -> None:
        _thread.start_new_thread(self._run, ())

    def begin(self, store: Store, seconds: float) -> None:
        """From now on the store has so long. Under the lock: else the end of the call before could hit this one."""
        with self._lock:
            self._deadline = monotonic() + seconds
            self._calls += 1
            store.set_epoch_deadline(1)
            if self._asleep:
                self._asleep = False
                self._wake.release()

    def end(self) -> None:
        self._deadline = inf

    def _run(self) -> None:
        seen, quiet = -1, 0
        while True:
            with self._lock:
                if monotonic() >= self._deadline:
                    self._deadline = inf
                    self._engine.increment_epoch()
                quiet = quiet + 1 if self._calls == seen and self._deadline == inf else 0
                seen = self._calls
                self._asleep = asleep = quiet >= _QUIET
            if asleep:
                quiet = 0
                self._wake.acquire()
            else:
                sleep(_EVERY)

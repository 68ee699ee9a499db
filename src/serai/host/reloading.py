"""Reloading: when guests are looked for again, and what that means for those that are there already."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import monotonic

from serai.errors import SeraiError
from serai.host.finding import Found
from serai.host.guest import Guest
from serai.host.manifest import Manifest
from serai.host.watching import Watcher, sources_of

__all__ = ["HotReload", "put_in_order", "why_kept"]

log = logging.getLogger("serai.host")


# So many hot reloads within so many seconds are not a person's doing.
_MANY, _SOON = 10, 30.0


def why_kept(found: Found, guest: Guest) -> str:
    """Why one that is no longer among the found stays as it is, or nothing: its folder is there and cannot be used just now.

    A manifest half written, a change nobody has trusted yet: the process that runs goes on (lesson L11).
    """
    folder = guest.manifest.folder
    reasons = {problem.folder: problem.reason for problem in found.problems}
    reasons |= {aside.manifest.folder: aside.reason for aside in found.untrusted}
    return reasons.get(folder, "") if os.path.isdir(folder) else ""


def put_in_order(guests: list[Guest], ids: Sequence[str]) -> None:
    """As they were found; one that is kept stays behind whoever came before it."""
    place = {id: order for order, id in enumerate(ids)}
    before = -1
    for guest in guests:
        before = place.setdefault(guest.id, before)
    guests.sort(key=lambda guest: place[guest.id])  # stable
    for order, guest in enumerate(guests):
        guest.order = order


class HotReload:
    """Calls `reload` with the ids of guests whose files have changed and come to rest; never when it is not switched on.

    A guest's folder is its data folder too. So what counts is settled before its first process starts: the sources that lie there
    then, and whatever its manifest names, now or later. A source that appears afterwards may be the guest's own work.
    """

    def __init__(self, reload: Callable[..., Awaitable[object]], *, on: bool, debounce: float) -> None:
        self._reload = reload
        self._on = on
        self._watcher = Watcher(self._changed, debounce=debounce)
        self._settled: dict[str, frozenset[Path]] = {}
        self._times: dict[str, deque[float]] = {}  # of its last hot reloads
        self._tasks: set[asyncio.Task[None]] = set()

    def watch(self, manifest: Manifest) -> None:
        """Before each start of the guest, so that no change is missed."""
        if not (self._on and manifest.settings.watch):
            self.forget(manifest.id)
            return
        if manifest.id not in self._settled:
            self._settled[manifest.id] = sources_of(manifest.folder, manifest.sources)
        self._watcher.watch(manifest.id, self._settled[manifest.id].union(manifest.sources))

    def forget(self, id: str) -> None:
        if self._settled.pop(id, None) is not None:
            self._watcher.forget(id)

    async def close(self) -> None:
        await self._watcher.close()
        for task in self._tasks:
            task.cancel()

    def _changed(self, ids: frozenset[str]) -> None:
        task = asyncio.get_running_loop().create_task(self._start_anew(ids), name="hot reload")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _loops(self, id: str) -> bool:
        """Whether its files change again and again by themselves: then it writes them, and is watched no more."""
        times = self._times.setdefault(id, deque(maxlen=_MANY))
        times.append(monotonic())
        if len(times) < _MANY or times[-1] - times[0] > _SOON:
            return False
        log.warning("%s: its files have changed %d times within %g s: hot reload is off for it", id, _MANY, times[-1] - times[0])
        self.forget(id)
        return True

    async def _start_anew(self, ids: frozenset[str]) -> None:
        known = [id for id in ids if id in self._settled and not self._loops(id)]
        try:
            if known:
                await self._reload(*known)
        except SeraiError as error:  # a manifest half written: the next change comes soon
            log.warning("hot reload: %s", error)

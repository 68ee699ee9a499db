"""Reloading: when guests are looked for again, and what that means for those that are there already."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic

from serai.errors import SeraiError
from serai.host.adapters import DIALECTS, by_name, watches_named_only
from serai.host.discovery import DiscoveryProblem, DiscoveryResult
from serai.host.file_watcher import FileWatcher, find_sources
from serai.host.guest import Guest
from serai.host.guest_manifest import GuestManifest

log = logging.getLogger("serai.host")


# So many hot reloads within so many seconds are not a person's doing.
_MANY, _SOON = 10, 30.0
_MANIFESTS = tuple(row.manifest for row in DIALECTS.values())


def explain_kept(found: DiscoveryResult, guest: Guest) -> str:
    """Why one that is no longer among the found stays as it is, or nothing: its folder is there and cannot be used just now.

    A manifest half written, a change nobody has trusted or granted yet: the process that runs goes on (design rule 9).
    """
    folder = guest.manifest.folder
    reasons = {problem.folder: problem.reason for problem in found.problems}
    reasons |= {aside.manifest.folder: aside.reason for aside in (*found.untrusted, *found.refused)}
    return reasons.get(folder, "") if os.path.exists(folder) else ""


def keep_names(found: DiscoveryResult, guests: Sequence[Guest]) -> DiscoveryResult:
    """What was found, but a guest whose manifest is who it is and says another name now has an invalid one (spec piglet FIX-35)."""
    names = {guest.manifest.folder: guest.manifest for guest in guests if by_name(guest.manifest.dialect)}
    problems = {
        manifest.id: DiscoveryProblem(manifest.folder, f"its name is {manifest.name} now, and no reload renames {known.name}")
        for manifest in found.guests
        if (known := names.get(manifest.folder)) is not None and known.id != manifest.id
    }
    if not problems:
        return found
    left = tuple(manifest for manifest in found.guests if manifest.id not in problems)
    return replace(found, guests=left, problems=(*found.problems, *problems.values()))


def put_in_order(guests: list[Guest], ids: Sequence[str]) -> None:
    """As they were found; one that is kept stays behind whoever came before it."""
    place = {id: order for order, id in enumerate(ids)}
    before = -1
    for guest in guests:
        before = place.setdefault(guest.id, before)
    guests.sort(key=lambda guest: place[guest.id])  # stable
    for order, guest in enumerate(guests):
        guest.order = order


def _list_candidates(path: Path) -> tuple[Path, ...]:
    """What may make a guest of it."""
    return (path,) if os.path.isfile(path) else tuple(path / name for name in _MANIFESTS)


class HotReload:
    """Calls `reload` with the folders whose files have changed and come to rest; never when it is not switched on.

    A guest's folder is its data folder too. So what counts is settled before its first process starts: the sources that lie there
    then, and whatever its manifest names, now or later. A source that appears afterwards may be the guest's own work.
    """

    def __init__(
        self, reload: Callable[[frozenset[Path]], Awaitable[object]], tell: Callable[[str], None], *, on: bool, debounce: float
    ) -> None:
        self._reload = reload
        self._tell = tell
        self._on = on
        self._watcher = FileWatcher(self._handle_change, debounce=debounce)
        self._settled: dict[Path, frozenset[Path]] = {}
        self._times: dict[Path, deque[float]] = {}  # of its last hot reloads
        self._later: dict[Path, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def watch(self, manifest: GuestManifest) -> None:
        """Before each start of the guest, so that no change is missed."""
        if self._on and manifest.settings.watch:
            if watches_named_only(manifest.dialect):
                self._settled[manifest.folder] = frozenset()
            self._watch(manifest.folder, manifest.sources)
        else:
            self.forget(manifest.folder)

    def watch_others(self, found: DiscoveryResult) -> None:
        """Folders that give no guest now may give one when they change: disabled, broken or not trusted, under whatever name."""
        if self._on:
            others = {manifest.folder: manifest.sources for manifest in found.disabled}
            others |= {aside.manifest.folder: aside.manifest.sources for aside in (*found.untrusted, *found.refused)}
            others |= {problem.folder: _list_candidates(problem.folder) for problem in found.problems}
            for folder, sources in others.items():
                if folder not in self._settled:
                    self._watch(folder, sources)

    def forget(self, folder: Path) -> None:
        if self._settled.pop(folder, None) is not None:
            self._watcher.forget(str(folder))

    async def close(self) -> None:
        await self._watcher.close()
        for timer in self._later.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()

    def _watch(self, folder: Path, sources: Sequence[Path]) -> None:
        if folder not in self._settled:
            self._settled[folder] = find_sources(folder, sources)
        self._watcher.watch(str(folder), self._settled[folder].union(sources))

    def _handle_change(self, folders: frozenset[str]) -> None:
        self._begin(frozenset(folder for folder in map(Path, folders) if folder in self._settled and not self._should_wait(folder)))

    def _begin(self, folders: frozenset[Path]) -> None:
        for folder in folders:
            self._later.pop(folder, None)
        if folders:
            task = asyncio.get_running_loop().create_task(self._run_reload(folders), name="hot reload")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _should_wait(self, folder: Path) -> bool:
        """Whether it is too soon: files that change again and again by themselves are slowed down, and their last change counts."""
        if folder in self._later:
            return True
        times = self._times.setdefault(folder, deque(maxlen=_MANY))
        times.append(monotonic())
        if len(times) < _MANY or times[-1] - times[0] > _SOON:
            return False
        self._tell(f"{folder} has changed {_MANY} times within {_SOON:g} s: its next reload is in {_SOON:g} s")
        times.clear()
        self._later[folder] = asyncio.get_running_loop().call_later(_SOON, self._begin, frozenset({folder}))
        return True

    async def _run_reload(self, folders: frozenset[Path]) -> None:
        try:
            await self._reload(folders)
        except SeraiError as error:  # a manifest half written: the next change comes soon
            log.warning("hot reload: %s", error)

"""What the guests of one host share: how they are started, where they are shown, who is told of them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from serai import paths
from serai.host.adapter import Adapter, GuestConnection, HostInfo, NoServices, Services
from serai.host.adapters import load_adapter
from serai.host.discovery import find_piglet_home
from serai.host.guest import Guest, GuestRun
from serai.host.guest_log import LOOK, GuestLog
from serai.host.guest_manifest import GuestManifest
from serai.host.panels import PanelSlot, ScreenItems, fit_action
from serai.limits import KIB, MIB, HostLimits, Limits
from serai.model.actions import Action, Display, Level, NoAction, Notice, OpenPanel
from serai.model.surface import Surface
from serai.record.recorder import Recorder
from serai.wire import process
from serai.wire.channel import Tap
from serai.wire.event_loop import Deadlines
from serai.wire.process import Spawner

log = logging.getLogger("serai.host")

T = TypeVar("T")

# Notes that nobody has seen yet, or cleared, and how long they are together: the oldest go.
_NOTES = 1000
_NOTED = 8 * MIB
# Characters of a notice, which is a short word, and of what else is shown: nobody reads more of it.
_LONGEST: dict[type[Action], int] = {Notice: 16 * KIB, Display: 1 * MIB}
# How long a guest that says nothing keeps others from starting, in seconds.
_MOMENT = 1.0
_TRIM = LOOK


class GuestContext:
    """What the guests of one host share. The host opens and closes it."""

    def __init__(
        self,
        *,
        spawner: Spawner,
        about: HostInfo,
        variables: Mapping[str, str],
        limits: Mapping[str, float | None],
        services: Services | None = None,
        recorder: Recorder | None = None,
        surface: Surface | None = None,
        trusts: Callable[[GuestManifest], str] | None = None,
        on_change: Callable[[], None],
        on_join: Callable[[Guest], None],
    ) -> None:
        self.spawner = spawner
        self.about = about
        self.environ = variables
        self.services: Services = services or NoServices()
        self.guests: dict[str, Guest] = {}
        self.deadlines = Deadlines()
        self._slots = asyncio.Semaphore(2 * (os.cpu_count() or 1))  # design rule 9
        self.panels = PanelSlot(self)
        self.notes: _Newest[str] = _Newest(_NOTES, _NOTED)  # note lines, until a person clears them (spec zot 4.2)
        self.screen = ScreenItems(self.show)
        self._limits = limits
        self._limits_of: dict[str, HostLimits] = {}  # by dialect
        self._envs: dict[tuple[str, ...], Mapping[str, str]] = {}
        self._recorder = recorder
        self._surface = surface
        self._unseen: _Newest[Action] = _Newest(_NOTES, _NOTED)
        self.trusts = trusts or _trust_all
        self._on_change = on_change
        self._on_join = on_join
        self._trimmer: asyncio.TimerHandle | None = None

    # -- how they are started -----------------------------------------------------------------------------------------------------

    def get_adapter(self, manifest: GuestManifest) -> Adapter:
        return load_adapter(manifest.dialect)

    @property
    def limits(self) -> HostLimits:
        """The person's for all."""
        return Limits().but(**self._limits)

    def get_limits(self, manifest: GuestManifest) -> HostLimits:
        """The dialect's, then the person's for all, which are made once; then what its settings make of that."""
        if manifest.dialect not in self._limits_of:
            self._limits_of[manifest.dialect] = Limits().but(**{**self.get_adapter(manifest).limits, **self._limits})
        return manifest.settings.apply_limits(self._limits_of[manifest.dialect])

    def get_env(self, manifest: GuestManifest) -> Mapping[str, str]:
        """What it may know of our environment (design rule 13); made once for all that were granted the same."""
        grants = manifest.settings.env
        if grants not in self._envs:
            self._envs[grants] = process.build_guest_env(self.environ, grants=grants)
        return self._envs[grants]

    def find_config_root(self, manifest: GuestManifest) -> str:
        """The folder of settings that it belongs to: the person's, or piglet's home for a guest from there (spec piglet 1.1)."""
        return str(find_piglet_home(self.environ)) if manifest.scope == "piglet home" else paths.config_folder(self.environ)

    def find_config_folder(self, manifest: GuestManifest) -> str:
        """Where its own settings are (spec piglet 1.1)."""
        return os.path.join(self.find_config_root(manifest), "extensions", manifest.name)

    @asynccontextmanager
    async def slot(self, run: GuestRun) -> AsyncIterator[None]:
        """A place among those that start: at most twice as many at once as there are cores (design rule 9).

        It is given back with the guest's first word, or after a moment: to start takes the machine, to wait does not, and the
        waits of many must not add up (spec zot 2.2).
        """
        await self._slots.acquire()
        held = [True]

        def release() -> None:
            if held:
                held.clear()
                self._slots.release()

        run.release = release
        timer = asyncio.get_running_loop().call_later(_MOMENT, release)
        try:
            yield
        finally:
            timer.cancel()
            release()

    def open_log(self, manifest: GuestManifest) -> GuestLog:
        return GuestLog(Path(paths.state_folder(self.environ)) / "logs", manifest.name, limit=self.get_limits(manifest).log)

    def open_tap(self, manifest: GuestManifest, generation: int, pid: int) -> Tap | None:
        if self._recorder is None:
            return None
        # What it was granted is known to be secret: masked before it is written (design rule 13).
        self._recorder.secrets.add(*((name, value) for name in manifest.settings.env if (value := self.environ.get(name))))
        return self._recorder.open_tap(manifest.id, kind="guest", dialect=manifest.dialect, generation=generation, pid=pid)

    # -- who is told --------------------------------------------------------------------------------------------------------------

    def find_running(self, guest: str) -> GuestConnection | None:
        """The live process of a guest, by its id."""
        return None if guest not in self.guests else self.guests[guest].running

    def report_change(self) -> None:
        """Somebody's state or offer is another now."""
        self._on_change()

    def report_join(self, guest: Guest) -> None:
        """A process of this guest has just become the one that serves."""
        self._on_join(guest)

    def notify(self, level: Level, text: str) -> None:
        """A word of Serai's own."""
        self.act(Notice(text, level, "serai"))

    def act(self, action: Action, by: GuestRun | None = None) -> None:
        """Something is to be shown or done; `by` is the process that wants it."""
        action = fit_action(action)
        if by is not None:
            self.screen.record(by, action)
        if isinstance(action, Notice | Display):
            if len(action.text) > (longest := _LONGEST[type(action)]):
                action = msgspec.structs.replace(action, text=f"{action.text[:longest]}…")
            if action.text:  # an empty one is ignored (spec zot 4.5)
                for line in action.format_lines()[-_NOTES:]:
                    self.notes.append(line)
                self.show(action)
        elif isinstance(action, OpenPanel):
            self.panels.show(action.panel)
        elif not isinstance(action, NoAction):
            self.show(action)

    def show(self, action: Action) -> None:
        """To the surface, or kept until there is one (spec zot 2.2, ours)."""
        if self._surface is None:
            self._unseen.append(action)
            return
        try:
            self._surface.act(action)
        except Exception:  # a surface's defect must not reach the guest that wanted to be seen
            log.exception("the surface failed on %s", type(action).__name__)

    def attach(self, surface: Surface) -> None:
        """From now on there is somebody to see; what was kept is shown first, in order."""
        self._surface = surface
        while self._unseen:
            self.show(self._unseen.popleft())

    def handle_escape(self) -> bool:
        """The person pressed Esc: the panel goes first, then the notes; False when there was nothing of the kind."""
        if self.panels.dismiss():
            return True
        seen = bool(self.notes)
        self.notes.clear()
        return seen

    def trim_logs(self) -> None:
        """Now and from now on."""
        for guest in self.guests.values():
            guest.trim_log()
        self._trimmer = asyncio.get_running_loop().call_later(_TRIM, self.trim_logs)

    def close(self) -> None:
        if self._trimmer is not None:
            self._trimmer.cancel()
        self.deadlines.close()


class _Newest(Generic[T]):
    """The newest of some things: at most so many, and so much of them. The very last is there however long it is."""

    def __init__(self, most: int, much: int) -> None:
        self._most = most
        self._much = much
        self._kept: deque[tuple[T, int]] = deque()
        self._size = 0

    def append(self, thing: T) -> None:
        self._kept.append((thing, size := _measure(thing)))
        self._size += size
        while len(self._kept) > self._most or (self._size > self._much and len(self._kept) > 1):
            self.popleft()

    def popleft(self) -> T:
        thing, size = self._kept.popleft()
        self._size -= size
        return thing

    def clear(self) -> None:
        self._kept.clear()
        self._size = 0

    def __iter__(self) -> Iterator[T]:
        return (thing for thing, _ in self._kept)

    def __len__(self) -> int:
        return len(self._kept)


def _measure(thing: object) -> int:
    """Characters and bytes in it."""
    if isinstance(thing, str | bytes):
        return len(thing)
    if isinstance(thing, msgspec.Struct):
        return sum(_measure(getattr(thing, name)) for name in thing.__struct_fields__)
    return sum(map(_measure, thing)) if isinstance(thing, tuple) else 0


def _trust_all(_manifest: GuestManifest) -> str:
    return ""

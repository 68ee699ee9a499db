"""What the guests of one host share: how they are started, where they are shown, who is told of them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from serai import home
from serai.host.adapter import About, Adapter, Running
from serai.host.adapters import adapter
from serai.host.finding import piglet_home
from serai.host.guest import Guest
from serai.host.life import Life
from serai.host.logs import GuestLog
from serai.host.manifest import Manifest
from serai.host.panels import Panels
from serai.host.screen import Screen
from serai.host.services import NoServices, Services
from serai.limits import KIB, Limits
from serai.model.actions import Action, Display, Level, Nothing, Notice, OpenPanel
from serai.model.surface import Surface
from serai.record.recorder import Recorder
from serai.wire import environ
from serai.wire.channel import Tap
from serai.wire.deadlines import Deadlines
from serai.wire.process import Spawner

__all__ = ["House"]

log = logging.getLogger("serai.host")

# Notes that nobody has seen yet, or cleared: the oldest go.
_NOTES = 1000
# Characters of a notice, which is a short word: nobody reads more of it.
_LONGEST = 16 * KIB
# How long a guest that says nothing keeps others from starting, in seconds.
_MOMENT = 1.0
# How often the guests' logs are looked at, in seconds: nobody counts what a guest writes into its own.
_TRIM = 0.5


class House:
    """The place where guests live. The host opens and closes it."""

    def __init__(
        self,
        *,
        spawner: Spawner,
        about: About,
        variables: Mapping[str, str],
        limits: Mapping[str, float | None],
        services: Services | None = None,
        recorder: Recorder | None = None,
        surface: Surface | None = None,
        trusts: Callable[[Manifest], str] | None = None,
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
        self.panels = Panels(self)
        self.notes: deque[str] = deque(maxlen=_NOTES)  # note lines, until a person clears them (spec zot 4.2)
        self.screen = Screen(self.show)
        self._limits = limits
        self._limits_of: dict[str, Limits] = {}  # by dialect
        self._envs: dict[tuple[str, ...], Mapping[str, str]] = {}
        self._recorder = recorder
        self._surface = surface
        self._unseen: deque[Action] = deque(maxlen=_NOTES)
        self.trusts = trusts or _nobody_asked
        self._on_change = on_change
        self._on_join = on_join
        self._trimmer: asyncio.TimerHandle | None = None

    # -- how they are started -----------------------------------------------------------------------------------------------------

    def adapter(self, manifest: Manifest) -> Adapter:
        return adapter(manifest.dialect)

    @property
    def limits(self) -> Limits:
        """The person's for all."""
        return Limits().but(**self._limits)

    def limits_of(self, manifest: Manifest) -> Limits:
        """The dialect's, then the person's for all, which are made once; then what its settings make of that."""
        if manifest.dialect not in self._limits_of:
            self._limits_of[manifest.dialect] = Limits().but(**{**self.adapter(manifest).limits, **self._limits})
        return manifest.settings.limits_on(self._limits_of[manifest.dialect])

    def env_of(self, manifest: Manifest) -> Mapping[str, str]:
        """What it may know of our environment (design rule 13); made once for all that were granted the same."""
        grants = manifest.settings.env
        if grants not in self._envs:
            self._envs[grants] = environ.for_guest(self.environ, grants=grants)
        return self._envs[grants]

    def config_root(self, manifest: Manifest) -> str:
        """The folder of settings that it belongs to: the person's, or piglet's home for a guest from there (spec piglet 1.1)."""
        return str(piglet_home(self.environ)) if manifest.scope == "piglet home" else home.config_folder(self.environ)

    def config_of(self, manifest: Manifest) -> str:
        """Where its own settings are (spec piglet 1.1)."""
        return os.path.join(self.config_root(manifest), "extensions", manifest.name)

    @asynccontextmanager
    async def slot(self, life: Life) -> AsyncIterator[None]:
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

        life.release = release
        timer = asyncio.get_running_loop().call_later(_MOMENT, release)
        try:
            yield
        finally:
            timer.cancel()
            release()

    def open_log(self, manifest: Manifest) -> GuestLog:
        return GuestLog(Path(home.state_folder(self.environ)) / "logs", manifest.name, limit=self.limits_of(manifest).log)

    def tap(self, manifest: Manifest, generation: int, pid: int) -> Tap | None:
        if self._recorder is None:
            return None
        # What it was granted is known to be secret: masked before it is written (design rule 13).
        self._recorder.secrets.add(*((name, value) for name in manifest.settings.env if (value := self.environ.get(name))))
        return self._recorder.wire(manifest.id, kind="guest", dialect=manifest.dialect, generation=generation, pid=pid)

    # -- who is told --------------------------------------------------------------------------------------------------------------

    def running(self, guest: str) -> Running | None:
        """The live process of a guest, by its id."""
        return None if guest not in self.guests else self.guests[guest].running

    def changed(self) -> None:
        """Somebody's state or offer is another now."""
        self._on_change()

    def joined(self, guest: Guest) -> None:
        """A process of this guest has just become the one that serves."""
        self._on_join(guest)

    def notify(self, level: Level, text: str) -> None:
        """A word of Serai's own."""
        self.act(Notice(text, level, "serai"))

    def act(self, action: Action, by: Life | None = None) -> None:
        """Something is to be shown or done; `by` is the process that wants it."""
        if by is not None:
            self.screen.seen(by, action)
        if isinstance(action, Notice) and len(action.text) > _LONGEST:
            action = msgspec.structs.replace(action, text=f"{action.text[:_LONGEST]}…")
        if isinstance(action, Notice | Display):
            if action.text:  # an empty one is ignored (spec zot 4.5)
                self.notes.extend(action.lines())
                self.show(action)
        elif isinstance(action, OpenPanel):
            self.panels.show(action.panel)
        elif not isinstance(action, Nothing):
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

    def escape(self) -> bool:
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


def _nobody_asked(_manifest: Manifest) -> str:
    return ""

"""The supervision of a guest's process, one for all dialects (design rule 9).

A crash is followed by another start, later each time and not for ever; a reload starts the new process first, swaps in one step
and lets the old one finish.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from time import monotonic
from typing import TYPE_CHECKING, Any

from serai.errors import Closed, LimitHit, NotTrusted, PeerGone, SeraiError, SpawnFailed
from serai.host.adapter import Running, Taking
from serai.host.life import Life, State
from serai.host.logs import GuestLog
from serai.host.manifest import Manifest
from serai.host.seeding import seed
from serai.limits import Limits
from serai.model.contributions import Contributions, InterceptPoint
from serai.model.tools import ToolSpec

if TYPE_CHECKING:
    from serai.host.house import House

__all__ = ["Supervised"]

log = logging.getLogger("serai.host")

_NOTHING = Contributions()


class _Reload:
    """A reload that somebody wants: from what, and whether the person is told of it."""

    task: asyncio.Task[bool]

    def __init__(self, manifest: Manifest | None, told: bool) -> None:
        self.manifest = manifest
        self.told = told


class Supervised:
    """A guest's processes, one after the other; `serai.host.guest.Guest` is what is asked of the one that serves."""

    def __init__(self, house: House, manifest: Manifest, order: int) -> None:
        self.house = house
        self.manifest = manifest
        self.order = order  # load order: ad hoc, project, user; then name
        self.state = State.FOUND
        self.error: SeraiError | None = None  # why it is not ready, or why its last life ended
        self.life: Life | None = None
        self.running: Running | None = None  # the process that serves
        self.generation = 0
        self.failures = 0
        self.seconds = 0.0  # what its last start took
        self.tools: tuple[ToolSpec, ...] = ()  # as of the last look: a tool offered later waits for the next (spec zot 2.2)
        self.ever_ready = False
        self.judging: set[object] = set()  # what it was asked as an interceptor and has not answered
        self.log: GuestLog | None = None  # from its first start on
        self._held: frozenset[InterceptPoint] = frozenset()  # what it intercepted before it crashed
        self._why: SeraiError | None = None  # why we ended it
        self._last = _NOTHING  # what it offered when it was last seen
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._ending = False  # it is stopped, for good
        self._launching: asyncio.Task[None] | None = None
        self._restarting: set[asyncio.Task[None]] = set()
        self._leaving: set[asyncio.Task[None]] = set()  # earlier processes of it, on their way out
        self._draining: set[asyncio.Task[None]] = set()  # what those still have under way
        self._reloading: set[asyncio.Task[bool]] = set()
        self._next: _Reload | None = None  # the one that waits for the one under way
        self._memory: dict[str, Any] = {}  # its adapter's own
        self.unseeded: tuple[str, ...] = ()  # what of its defaults could not be put in place (spec piglet 1.5)

    def __repr__(self) -> str:
        return f"<{self.id} {self.state}>"

    @property
    def id(self) -> str:
        return self.manifest.id

    @property
    def guard(self) -> bool:
        """Whether it must hold: then every failure of its interceptors is a no (design rule 8)."""
        return self.manifest.settings.guard

    @property
    def limits(self) -> Limits:
        return self.house.limits_of(self.manifest)

    @property
    def contributions(self) -> Contributions:
        """What it offers, or last offered when it is down."""
        running = self.running
        if running is not None:
            self._last = running.contributions
        return self._last

    def remark(self, text: str) -> None:
        """A line in its log."""
        log.info("%s: %s", self.id, text)
        if self.log is not None:
            self.log.remark(text)

    def why_down(self) -> str:
        """Its id, its state and the one cause."""
        return f"{self.id} is {self.state}" + (f": {self.cause(self.error)}" if self.error is not None else "")

    def cause(self, error: SeraiError) -> str:
        """What happened, for whoever knows already whose it is."""
        return str(error).removeprefix(f"{self.id}: ")

    # -- its life ---------------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """The first start; a failure is final until a reload (`state` and `error` tell)."""
        async with self._lock:
            if self.state is not State.FOUND:
                return
            try:
                self._take(await self._launch(self.manifest))
            except SeraiError as error:
                self._gone(error)

    async def reload(self, manifest: Manifest | None = None, *, told: bool = False) -> bool:
        """Start it anew, with what its folder says now. When that fails the old one goes on, if there is one.

        At most one reload waits for the one under way, and whoever wants another joins it (spec piglet 8.0). `told`: the person
        is, as nobody looks at a report. Whoever is cancelled does not stop it.
        """
        if (wanted := self._next) is not None:
            wanted.manifest, wanted.told = manifest or wanted.manifest, told or wanted.told
            return await asyncio.shield(wanted.task)
        wanted = _Reload(manifest, told)
        wanted.task = asyncio.get_running_loop().create_task(self._reload(wanted), name=f"reload {self.id}")
        if self._lock.locked() or self._reloading:
            self._next = wanted
        self._reloading.add(wanted.task)
        wanted.task.add_done_callback(self._reloading.discard)
        return await asyncio.shield(wanted.task)

    async def _reload(self, wanted: _Reload) -> bool:
        self._cancel_timer()
        async with self._lock:
            if self._next is wanted:
                self._next = None
            manifest, told = wanted.manifest or self.manifest, wanted.told
            self._cancel_timer()
            if told:
                self.house.notify("info", f"Reloading {self.manifest.shown}...")
            old, self.failures = self.life, 0
            if old is not None and manifest.settings.exclusive:  # two of it must not run at once: stop first
                self._leave(State.STARTING)
                await self._retire(old)
                old = None
            try:
                life = await self._launch(manifest)
            except SeraiError as error:
                self._keep(error)
                if told and not self._ending:
                    self.tell_kept(self.cause(error))
                return False
            self.manifest = manifest
            self._held = frozenset()  # what is new may intercept less
            self._take(life)
            if old is not None:
                self.house.panels.close_of(self.id)
                self.house.screen.clear(old)
                self._background(self._leaving, self._drain(old))
            if told:
                self.house.notify("info", f"{self.manifest.shown} reloaded")
            return True

    def tell_kept(self, why: str) -> None:
        """The person is told that a reload has failed (spec piglet 8.0)."""
        self.house.notify("error", f"{self.manifest.shown} reload failed: {why}")

    async def stop(self) -> None:
        """On purpose and for good: what it offered is no longer there. Idempotent."""
        self._ending = True
        self._cancel_timer()
        for work in (self._launching, *self._draining):  # nobody waits for what will not be used any more
            if work is not None:
                work.cancel()
        async with self._lock:
            self._cancel_timer()
            life = self.life
            self._leave(State.STOPPED)
            if life is not None:
                self._background(self._leaving, self._retire(life))  # to its end, also when whoever waits is cancelled
        if others := self._restarting | self._leaving:
            await asyncio.wait(others)
        if self.log is not None:
            self.log.close()
            self.log = None

    def changed(self) -> None:
        """The process that serves offers something else now."""
        if self.house.adapter(self.manifest).late_tools:
            self.tools = self.contributions.tools
        self.house.changed()

    def crashed(self, life: Life, cause: SeraiError) -> None:
        """Its process ended by itself. Whoever waited was told already."""
        running, life.running = life.running, None
        if running is not None:
            self._background(self._leaving, running.stop())
        self.house.screen.clear(life)
        if life is not self.life:
            return
        cause, self._why = self._why or cause, None
        if monotonic() - life.since >= self.limits.restart_healthy:
            self.failures = 0
        self._last = running.contributions if running is not None else self._last
        self.error = cause
        self._leave(State.FAILING)
        self._held |= self._stages()
        self.remark(f"crashed: {self.cause(cause)}")
        self._again(cause)

    def _stages(self) -> frozenset[InterceptPoint]:
        return frozenset(stage for one in self.contributions.interceptors for stage in one.stages)

    # -- inside -----------------------------------------------------------------------------------------------------------------

    def _again(self, cause: SeraiError) -> None:
        """Start it again a little later, unless it failed too often."""
        if self._ending:
            return
        limits = self.limits
        self.failures += 1
        if self.failures > limits.restarts:
            limit = LimitHit("restarts", limits.restarts)
            text = "crashed too often and is not started again"
            hint = "its log says more: `serai guest logs`; a change of its files starts it anew"
            self._gone(PeerGone(text, who=self.id, exit=cause.exit, stderr=cause.stderr, limit=limit, hint=hint))
            self.house.notify("error", f"{self.manifest.shown} crashed and could not be restarted")
            return
        wait = min(limits.restart_wait * 2 ** (self.failures - 1), limits.restart_wait_most)
        self._set(State.BACKING_OFF)
        if self.failures == 1:
            self.house.notify("warn", f"{self.manifest.shown} crashed, restarting...")
        self._timer = asyncio.get_running_loop().call_later(wait, lambda: self._background(self._restarting, self._restart()))

    async def _restart(self) -> None:
        async with self._lock:
            if self.state is not State.BACKING_OFF:
                return
            try:
                self._take(await self._launch(self.manifest))
            except NotTrusted as error:  # to try again would not help: somebody has to say yes
                self.remark(f"not started again: {self.cause(error)}")
                self._gone(error)
            except SeraiError as error:
                self.error = error
                self.remark(f"start again failed: {self.cause(error)}")
                self._again(error)

    async def _launch(self, manifest: Manifest) -> Life:
        """A new process, up to ready; the one that serves is not touched. A task of its own, so that `stop` can end it."""
        if manifest.settings.exclusive and self._leaving:
            await asyncio.wait(self._leaving)
        if self._ending:
            raise Closed("it was stopped", who=self.id)
        self.generation += 1
        life = Life(self, self.generation)
        before = self.state
        if self.life is None:
            self._set(State.STARTING)
        self._launching = launching = asyncio.get_running_loop().create_task(self._started(manifest, life), name=f"start {self.id}")
        failure: BaseException | None = Closed("it was stopped while it started", who=self.id)
        try:
            await asyncio.wait([launching])
            if launching.cancelled():
                failure, self._why = self._why or failure, None
            else:
                failure = launching.exception() or life.cause  # ready and dead before it could serve: a failure too
        finally:
            launching.cancel()  # should we be the ones who are no longer wanted
            self._launching = None
            if failure is not None:
                self.state = before if self.state is State.STARTING else self.state  # whoever called decides
                self._background(self._leaving, self._give_up(launching, life))
        if failure is not None:
            raise failure
        return life

    async def _started(self, manifest: Manifest, life: Life) -> None:
        house = self.house
        async with house.slot(life):  # its deadlines count from its own spawn
            life.since = monotonic()
            if manifest.scope == "project" and (why := house.trusts(manifest)):  # it may have changed since it was found
                raise NotTrusted(why, who=self.id)
            try:
                self.log = self.log or house.open_log(manifest)
                await self._seed(manifest)
                life.running = await house.adapter(manifest).start(self._taking(manifest, life, self.log))
            except SeraiError:
                raise
            except Exception as error:  # a defect of its adapter hurts this guest alone (design rule 9)
                log.exception("%s: its adapter failed", self.id)
                raise SpawnFailed(f"its adapter failed: {error!r}", who=self.id) from error
        self.seconds = monotonic() - life.since

    async def _seed(self, manifest: Manifest) -> None:
        """Put its defaults in place, where they are not there yet; a file that cannot be had is its own to miss."""
        if manifest.seeds:
            self.unseeded = await asyncio.to_thread(seed, manifest, self.house.config_root(manifest))
            for line in self.unseeded:
                self.remark(line)

    def _taking(self, manifest: Manifest, life: Life, guest_log: GuestLog) -> Taking:
        house = self.house
        return Taking(
            manifest=manifest,
            limits=house.limits_of(manifest),
            env=house.env_of(manifest),
            spawner=house.spawner,
            deadlines=house.deadlines,
            log=guest_log,
            about=house.about,
            services=house.services,
            listener=life,
            tap=lambda pid: house.tap(manifest, life.generation, pid),
            config=house.config_of(manifest),
            greeted=life.release,
            environ=house.environ,
            memory=self._memory,
        )

    def _take(self, life: Life) -> None:
        """Swap it in, in one step: from here on it is the one that is asked."""
        self._cancel_timer()
        self.life = life
        self.running = life.running
        self.error = None
        self.ever_ready = True
        self.tools = self.contributions.tools
        self._set(State.READY)
        self.house.changed()
        self._joined()

    def _joined(self) -> None:
        """A process of it has just become the one that serves."""

    def _leave(self, state: State) -> None:
        """It no longer serves; what it offered is remembered, so that its place is kept."""
        self._last = self.contributions
        if self.life is not None:
            self.house.screen.clear(self.life)
        self.life = self.running = None
        self.house.panels.close_of(self.id)
        self._set(state)

    def _keep(self, error: SeraiError) -> None:
        """A reload has failed: whoever served before goes on."""
        self.remark(f"reload failed: {self.cause(error)}")
        if self.life is not None:
            self.error = error
            self._set(State.READY)
        elif self._timer is None:  # else it crashed meanwhile, and is started again anyway
            self._gone(error)

    def _gone(self, error: SeraiError) -> None:
        self.error = error
        self._set(State.STOPPED if self._ending else State.GONE)

    def _set(self, state: State) -> None:
        self.state = state
        self.house.changed()

    async def _drain(self, life: Life) -> None:
        """What the replaced one has under way may end, for a while."""
        if life.running is not None:
            idle: asyncio.Task[None] = asyncio.get_running_loop().create_task(life.running.idle(), name=f"drain {self.id}")
            self._draining.add(idle)
            await asyncio.wait([idle], timeout=self.limits.drain)
            self._draining.discard(idle)
            idle.cancel()
        await self._retire(life)

    async def _give_up(self, launching: asyncio.Task[None], life: Life) -> None:
        await asyncio.wait([launching])
        await self._retire(life)

    async def _retire(self, life: Life) -> None:
        running, life.running = life.running, None
        if running is not None:
            await running.stop()
        self.house.screen.clear(life)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _background(self, tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"guest {self.id}")
        tasks.add(task)
        task.add_done_callback(tasks.discard)

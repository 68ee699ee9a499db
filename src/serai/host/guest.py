"""One guest: its place in the house, whatever state it is in, and the supervision of its process.

A guest that is down stays in place (design rule 8): its tools answer `TOOL_UNAVAILABLE`, its interceptors answer by their
`on_failure`. One supervisor for all dialects (rule 9): a crash is followed by another start, later each time and not for ever; a
reload starts the new process first, swaps in one step and lets the old one finish.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from time import monotonic
from typing import TYPE_CHECKING, Any

from serai.errors import Closed, LimitHit, NotTrusted, PeerGone, SeraiError, SpawnFailed
from serai.host.adapter import Running, Taking
from serai.host.life import Life, State
from serai.host.logs import GuestLog
from serai.host.manifest import Manifest
from serai.host.outcomes import code_of, command_code
from serai.limits import Limits
from serai.model.actions import Nothing, OpenPanel, Outcome
from serai.model.contributions import Contributions, Interceptor, Pass, Refuse, Stage, Verdict
from serai.model.events import Event
from serai.model.tools import ToolCall, ToolResult, ToolSpec

if TYPE_CHECKING:
    from serai.host.house import House

__all__ = ["Guest", "State"]

log = logging.getLogger("serai.host")

_PASS = Pass()
_NOTHING = Contributions()


class Guest:
    """A guest as the host knows it."""

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
        self.log: GuestLog | None = None  # from its first start on
        self._held: frozenset[Stage] = frozenset()  # what it intercepted before it crashed
        self._why: SeraiError | None = None  # why we ended it
        self._last = _NOTHING  # what it offered when it was last seen
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._ending = False  # it is stopped, for good
        self._launching: asyncio.Task[None] | None = None
        self._restarting: set[asyncio.Task[None]] = set()
        self._leaving: set[asyncio.Task[None]] = set()  # earlier processes of it, on their way out
        self._draining: set[asyncio.Task[None]] = set()  # what those still have under way

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

    # -- what it is asked -------------------------------------------------------------------------------------------------------

    def way(self) -> Callable[[ToolCall], Awaitable[ToolResult]]:
        """What runs its tools at this moment; what goes wrong raises, and `failed` says what is told of it."""
        return self._unavailable if self.running is None else self.running.call_tool

    def failed(self, call: ToolCall, error: SeraiError) -> ToolResult:
        """An error result with a code of its own for each kind of failure (design rule 7), in the words of the dialect."""
        explain = self.house.adapter(self.manifest).explain
        return ToolResult.error(explain("tool", self.manifest.name, call.name, error), code=code_of(error), hint=error.hint)

    async def run_command(self, name: str, args: str) -> Outcome:
        running = self.running
        if running is None:
            return Outcome(Nothing(), f"extension /{name}: {self.why_down()}", "COMMAND_UNAVAILABLE")
        try:
            action = await running.run_command(name, args)
            if isinstance(action, OpenPanel) and running is not self.running:  # replaced meanwhile: who would draw it?
                action = Nothing()
            return Outcome(action)
        except SeraiError as error:
            explain = self.house.adapter(self.manifest).explain
            return Outcome(Nothing(), explain("command", self.manifest.name, name, error), command_code(error))

    async def intercept(self, interceptor: Interceptor, stage: Stage, subject: Any) -> Verdict:
        """Its verdict; what no verdict means is said by `on_failure`, or by its being a guard."""
        running = self.running
        if running is None:
            return self._no_verdict(interceptor, stage, self.why_down())
        try:
            return await running.intercept(interceptor, stage, subject)
        except SeraiError as error:
            self.remark(f"intercept {stage} failed: {self._cause(error)}")
            return self._no_verdict(interceptor, stage, f"{self.id}: {self._cause(error)}")

    def tell(self, event: Event) -> None:
        if (running := self.running) is not None:
            running.tell(event)

    def unheld(self) -> str:
        """Why it is a guard and does not hold, or "". While it is down, its interceptors refuse by themselves.

        One that has not subscribed holds nothing: not before its first word, and after a crash not before it has said all of it
        again (design rule 8).
        """
        if not self.guard or self.state is State.STOPPED:
            return ""
        if not self.ever_ready:
            return self.why_down()
        stages = self._stages()
        if not stages:
            return f"{self.id} intercepts nothing"
        if missing := self._held - stages:
            return f"{self.id} does not intercept {', '.join(sorted(missing))} again yet"
        return ""

    def _stages(self) -> frozenset[Stage]:
        return frozenset(stage for one in self.contributions.interceptors for stage in one.stages)

    def remark(self, text: str) -> None:
        """A line in its log."""
        log.info("%s: %s", self.id, text)
        if self.log is not None:
            self.log.remark(text)

    def trim_log(self) -> None:
        """Keep its log small. One that fills the disk between two looks is ended at once, and started again as after any crash."""
        if self.log is None or (written := os.fstat(self.log.descriptor).st_size) <= self.log.limit:
            return
        self.log.trim()
        if written > self.limits.log_flood and not self._leaving:  # one that leaves may be the one, and ends anyway
            limit = LimitHit("log_flood", self.limits.log_flood)
            self._why = PeerGone(f"was ended: it wrote {written} bytes into its log at once", who=self.id, limit=limit)
            if self.running is not None:
                os.kill(self.running.pid, signal.SIGKILL)
            elif self._launching is not None:
                self._launching.cancel()

    def why_down(self) -> str:
        """Its id, its state and the one cause."""
        return f"{self.id} is {self.state}" + (f": {self._cause(self.error)}" if self.error is not None else "")

    def _cause(self, error: SeraiError) -> str:
        return str(error).removeprefix(f"{self.id}: ")  # whoever reads it knows already whose it is

    def _no_verdict(self, interceptor: Interceptor, stage: Stage, why: str) -> Verdict:
        if not self.guard and interceptor.on_failure == "open":
            return _PASS
        return Refuse(f"{stage} refused: no answer from the {'guard' if self.guard else 'interceptor'} ({why})")

    async def _unavailable(self, call: ToolCall) -> ToolResult:
        hint = "the guest is down: try again later, or do without this tool"
        return ToolResult.error(f"{call.name} is not available: {self.why_down()}", code="TOOL_UNAVAILABLE", hint=hint)

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

    async def reload(self, manifest: Manifest | None = None) -> bool:
        """Start it anew, with what its folder says now. When that fails the old one goes on, if there is one."""
        self._cancel_timer()
        async with self._lock:
            self._cancel_timer()
            manifest = manifest or self.manifest
            old, self.failures = self.life, 0
            if old is not None and manifest.settings.exclusive:  # two of it must not run at once: stop first
                self._leave(State.STARTING)
                await self._retire(old)
                old = None
            try:
                life = await self._launch(manifest)
            except SeraiError as error:
                self._keep(error)
                return False
            self.manifest = manifest
            self._held = frozenset()  # what is new may intercept less
            self._take(life)
            if old is not None:
                self.house.panels.close_of(self.id)
                self._background(self._leaving, self._drain(old))
            return True

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
                await self._retire(life)
        if others := self._restarting | self._leaving:
            await asyncio.wait(others)
        if self.log is not None:
            self.log.close()
            self.log = None

    def crashed(self, life: Life, cause: SeraiError) -> None:
        """Its process ended by itself. Whoever waited was told already."""
        running, life.running = life.running, None
        if running is not None:
            self._background(self._leaving, running.stop())
        if life is not self.life:
            return
        cause, self._why = self._why or cause, None
        if monotonic() - life.since >= self.limits.restart_healthy:
            self.failures = 0
        self._last = running.contributions if running is not None else self._last
        self.error = cause
        self._leave(State.FAILING)
        self._held |= self._stages()
        self.remark(f"crashed: {self._cause(cause)}")
        self._again(cause)

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
                self.remark(f"not started again: {self._cause(error)}")
                self._gone(error)
            except SeraiError as error:
                self.error = error
                self.remark(f"start again failed: {self._cause(error)}")
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
                life.running = await house.adapter(manifest).start(self._taking(manifest, life, self.log))
            except SeraiError:
                raise
            except Exception as error:  # a defect of its adapter hurts this guest alone (design rule 9)
                log.exception("%s: its adapter failed", self.id)
                raise SpawnFailed(f"its adapter failed: {error!r}", who=self.id) from error
        self.seconds = monotonic() - life.since

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
        self.house.joined(self)

    def _leave(self, state: State) -> None:
        """It no longer serves; what it offered is remembered, so that its place is kept."""
        self._last = self.contributions
        self.life = self.running = None
        self.house.panels.close_of(self.id)
        self.house.services.drop(self.id)
        self._set(state)

    def _keep(self, error: SeraiError) -> None:
        """A reload has failed: whoever served before goes on."""
        self.remark(f"reload failed: {self._cause(error)}")
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

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _background(self, tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"guest {self.id}")
        tasks.add(task)
        task.add_done_callback(tasks.discard)

"""One guest: its state, the supervision of its process, and calls to it.

A guest that is down stays registered (design rule 8): its tools answer `TOOL_UNAVAILABLE`, its interceptors answer by their
`on_failure`.

Supervision is the same for all dialects (design rule 9). A crash is followed by another start, later each time and not for ever; a
reload starts the new process first, swaps in one step and lets the old one finish. A `GuestRun` is one start.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from enum import StrEnum
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from serai.errors import Closed, LimitHit, NotTrusted, PeerGone, SeraiError, SpawnFailed
from serai.host.adapter import GuestConnection, StartContext, SupportsShortcuts, get_command_error_code, get_error_code
from serai.host.guest_log import GuestLog, check_flood
from serai.host.guest_manifest import GuestManifest, write_default_files
from serai.limits import HostLimits
from serai.model.actions import Action, CommandResult, NoAction, OpenPanel, Panel
from serai.model.contributions import Contributions, Interceptor, InterceptPoint, InterceptResult, Pass, Refuse
from serai.model.events import Event
from serai.model.tools import ToolCall, ToolResult, ToolSpec

if TYPE_CHECKING:
    from serai.host.guest_context import GuestContext

log = logging.getLogger("serai.host")


class GuestState(StrEnum):
    """The life of a guest."""

    FOUND = "found"
    STARTING = "starting"
    READY = "ready"
    FAILING = "failing"  # it has crashed and is being cleared away
    BACKING_OFF = "backing off"  # it is started again a little later
    STOPPED = "stopped"  # on purpose
    GONE = "gone"  # it could not be started, or crashed too often; a reload brings it back


class GuestRun:
    """One start of a guest, from spawn to end. What an earlier life says late is heard by nobody."""

    def __init__(self, guest: Guest, generation: int) -> None:
        self.guest = guest
        self.generation = generation
        self.running: GuestConnection | None = None
        self.since = monotonic()
        self.cause: SeraiError | None = None  # why it ended by itself
        self.release: Callable[[], None] = _do_nothing  # give back its place among those that start

    @property
    def current(self) -> bool:
        return self.guest.run is self

    def on_change(self) -> None:
        if self.current:
            self.guest.report_change()

    def on_action(self, action: Action) -> None:
        if self.current or not isinstance(action, OpenPanel):  # who is replaced has nobody left to draw a panel
            self.guest.context.act(action, self)

    def on_panel_render(self, panel: str, change: Callable[[Panel], Panel]) -> None:
        if self.current:
            self.guest.context.panels.render(self.guest.id, panel, change)

    def on_panel_close(self, panel: str) -> None:
        if self.current:
            self.guest.context.panels.close_by_owner(self.guest.id, panel)

    def on_end(self, cause: SeraiError) -> None:
        self.cause = cause
        self.guest.handle_crash(self, cause)


def _do_nothing() -> None:
    """What a life releases that holds no place."""


_NOTHING = Contributions()


class _Reload:
    """A reload that somebody wants: from what, and whether the person is told of it."""

    task: asyncio.Task[bool]

    def __init__(self, manifest: GuestManifest | None, told: bool) -> None:
        self.manifest = manifest
        self.told = told


_PASS = Pass()


class Guest:
    """A guest as the host knows it."""

    def __init__(self, context: GuestContext, manifest: GuestManifest, order: int) -> None:
        self.context = context
        self.manifest = manifest
        self.order = order  # load order: ad hoc, project, user; then name
        self.state = GuestState.FOUND
        self.error: SeraiError | None = None  # why it is not ready, or why its last life ended
        self.run: GuestRun | None = None
        self.running: GuestConnection | None = None  # the process that serves
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
    def limits(self) -> HostLimits:
        return self.context.get_limits(self.manifest)

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

    def explain_down(self) -> str:
        """Its id, its state and the one cause."""
        return f"{self.id} is {self.state}" + (f": {self.describe_cause(self.error)}" if self.error is not None else "")

    def describe_cause(self, error: SeraiError) -> str:
        """What happened, for whoever knows already whose it is."""
        return str(error).removeprefix(f"{self.id}: ")

    # -- its life ---------------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """The first start; a failure is final until a reload (`state` and `error` tell)."""
        async with self._lock:
            if self.state is not GuestState.FOUND:
                return
            try:
                self._swap_in(await self._launch(self.manifest))
            except SeraiError as error:
                self._set_gone(error)

    async def reload(self, manifest: GuestManifest | None = None, *, told: bool = False) -> bool:
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
                self.context.notify("info", f"Reloading {self.manifest.shown}...")
            old, self.failures = self.run, 0
            if old is not None and manifest.settings.exclusive:  # two of it must not run at once: stop first
                self._leave(GuestState.STARTING)
                await self._retire(old)
                old = None
            try:
                run = await self._launch(manifest)
            except SeraiError as error:
                self._keep_serving(error)
                if told and not self._ending:
                    self.report_reload_failure(self.describe_cause(error))
                return False
            self.manifest = manifest
            self._held = frozenset()  # what is new may intercept less
            self._swap_in(run)
            if old is not None:
                self.context.panels.close_owned(self.id)
                self.context.screen.clear(old)
                self._run_background(self._leaving, self._drain(old))
            if told:
                self.context.notify("info", f"{self.manifest.shown} reloaded")
            return True

    def report_reload_failure(self, why: str) -> None:
        """The person is told that a reload has failed (spec piglet 8.0)."""
        self.context.notify("error", f"{self.manifest.shown} reload failed: {why}")

    async def stop(self) -> None:
        """On purpose and for good: what it offered is no longer there. Idempotent."""
        self._ending = True
        self._cancel_timer()
        for work in (self._launching, *self._draining):  # nobody waits for what will not be used any more
            if work is not None:
                work.cancel()
        async with self._lock:
            self._cancel_timer()
            run = self.run
            self._leave(GuestState.STOPPED)
            if run is not None:
                self._run_background(self._leaving, self._retire(run))  # to its end, also when whoever waits is cancelled
        if others := self._restarting | self._leaving:
            await asyncio.wait(others)
        if self.log is not None:
            self.log.close()
            self.log = None

    def report_change(self) -> None:
        """The process that serves offers something else now."""
        if self.context.get_adapter(self.manifest).late_tools:
            self.tools = self.contributions.tools
        self.context.report_change()

    def handle_crash(self, run: GuestRun, cause: SeraiError) -> None:
        """Its process ended by itself. Whoever waited was told already."""
        running, run.running = run.running, None
        if running is not None:
            self._run_background(self._leaving, running.stop())
        self.context.screen.clear(run)
        if run is not self.run:
            return
        cause, self._why = self._why or cause, None
        if monotonic() - run.since >= self.limits.restart_healthy:
            self.failures = 0
        self._last = running.contributions if running is not None else self._last
        self.error = cause
        self._leave(GuestState.FAILING)
        self._held |= self._list_stages()
        self.remark(f"crashed: {self.describe_cause(cause)}")
        self._schedule_restart(cause)

    def _list_stages(self) -> frozenset[InterceptPoint]:
        return frozenset(stage for one in self.contributions.interceptors for stage in one.stages)

    # -- inside -----------------------------------------------------------------------------------------------------------------

    def _schedule_restart(self, cause: SeraiError) -> None:
        """Start it again a little later, unless it failed too often."""
        if self._ending:
            return
        limits = self.limits
        self.failures += 1
        if self.failures > limits.restarts:
            limit = LimitHit("restarts", limits.restarts)
            text = "crashed too often and is not started again"
            hint = "its log says more: `serai guest logs`; a change of its files starts it anew"
            self._set_gone(PeerGone(text, who=self.id, exit=cause.exit, stderr=cause.stderr, limit=limit, hint=hint))
            self.context.notify("error", f"{self.manifest.shown} crashed and could not be restarted")
            return
        wait = min(limits.restart_wait * 2 ** (self.failures - 1), limits.restart_wait_most)
        self._set_state(GuestState.BACKING_OFF)
        if self.failures == 1:
            self.context.notify("warn", f"{self.manifest.shown} crashed, restarting...")
        self._timer = asyncio.get_running_loop().call_later(wait, lambda: self._run_background(self._restarting, self._restart()))

    async def _restart(self) -> None:
        async with self._lock:
            if self.state is not GuestState.BACKING_OFF:
                return
            try:
                self._swap_in(await self._launch(self.manifest))
            except NotTrusted as error:  # to try again would not help: somebody has to say yes
                self.remark(f"not started again: {self.describe_cause(error)}")
                self._set_gone(error)
            except SeraiError as error:
                self.error = error
                self.remark(f"start again failed: {self.describe_cause(error)}")
                self._schedule_restart(error)

    async def _launch(self, manifest: GuestManifest) -> GuestRun:
        """A new process, up to ready; the one that serves is not touched. A task of its own, so that `stop` can end it."""
        if manifest.settings.exclusive and self._leaving:
            await asyncio.wait(self._leaving)
        if self._ending:
            raise Closed("it was stopped", who=self.id)
        self.generation += 1
        run = GuestRun(self, self.generation)
        before = self.state
        if self.run is None:
            self._set_state(GuestState.STARTING)
        self._launching = launching = asyncio.get_running_loop().create_task(self._spawn(manifest, run), name=f"start {self.id}")
        failure: BaseException | None = Closed("it was stopped while it started", who=self.id)
        try:
            await asyncio.wait([launching])
            if launching.cancelled():
                failure, self._why = self._why or failure, None
            else:
                failure = launching.exception() or run.cause  # ready and dead before it could serve: a failure too
        finally:
            launching.cancel()  # should we be the ones who are no longer wanted
            self._launching = None
            if failure is not None:
                self.state = before if self.state is GuestState.STARTING else self.state  # whoever called decides
                self._run_background(self._leaving, self._give_up(launching, run))
        if failure is not None:
            raise failure
        return run

    async def _spawn(self, manifest: GuestManifest, run: GuestRun) -> None:
        context = self.context
        async with context.slot(run):  # its deadlines count from its own spawn
            run.since = monotonic()
            if manifest.scope == "project" and (why := context.trusts(manifest)):  # it may have changed since it was found
                raise NotTrusted(why, who=self.id)
            try:
                self.log = self.log or context.open_log(manifest)
                await self._write_defaults(manifest)
                run.running = await context.get_adapter(manifest).start(self._build_start_context(manifest, run, self.log))
            except SeraiError:
                raise
            except Exception as error:  # a defect of its adapter hurts this guest alone (design rule 9)
                log.exception("%s: its adapter failed", self.id)
                raise SpawnFailed(f"its adapter failed: {error!r}", who=self.id) from error
        self.seconds = monotonic() - run.since

    async def _write_defaults(self, manifest: GuestManifest) -> None:
        """Put its defaults in place, where they are not there yet; a file that cannot be had is its own to miss."""
        if manifest.seeds:
            self.unseeded = await asyncio.to_thread(write_default_files, manifest, self.context.find_config_root(manifest))
            for line in self.unseeded:
                self.remark(line)

    def _build_start_context(self, manifest: GuestManifest, run: GuestRun, guest_log: GuestLog) -> StartContext:
        context = self.context
        return StartContext(
            manifest=manifest,
            limits=context.get_limits(manifest),
            env=context.get_env(manifest),
            spawner=context.spawner,
            deadlines=context.deadlines,
            log=guest_log,
            about=context.about,
            services=context.services,
            listener=run,
            tap=lambda pid: context.open_tap(manifest, run.generation, pid),
            config=context.find_config_folder(manifest),
            greeted=run.release,
            environ=context.environ,
            memory=self._memory,
        )

    def _swap_in(self, run: GuestRun) -> None:
        """Swap it in, in one step: from here on it is the one that is asked."""
        self._cancel_timer()
        self.run = run
        self.running = run.running
        self.error = None
        self.ever_ready = True
        self.tools = self.contributions.tools
        self._set_state(GuestState.READY)
        self.context.report_change()
        self._report_join()

    def _leave(self, state: GuestState) -> None:
        """It no longer serves; what it offered is remembered, so that its place is kept."""
        self._last = self.contributions
        if self.run is not None:
            self.context.screen.clear(self.run)
        self.run = self.running = None
        self.context.panels.close_owned(self.id)
        self._set_state(state)

    def _keep_serving(self, error: SeraiError) -> None:
        """A reload has failed: whoever served before goes on."""
        self.remark(f"reload failed: {self.describe_cause(error)}")
        if self.run is not None:
            self.error = error
            self._set_state(GuestState.READY)
        elif self._timer is None:  # else it crashed meanwhile, and is started again anyway
            self._set_gone(error)

    def _set_gone(self, error: SeraiError) -> None:
        self.error = error
        self._set_state(GuestState.STOPPED if self._ending else GuestState.GONE)

    def _set_state(self, state: GuestState) -> None:
        self.state = state
        self.context.report_change()

    async def _drain(self, run: GuestRun) -> None:
        """What the replaced one has under way may end, for a while."""
        if run.running is not None:
            idle: asyncio.Task[None] = asyncio.get_running_loop().create_task(run.running.idle(), name=f"drain {self.id}")
            self._draining.add(idle)
            await asyncio.wait([idle], timeout=self.limits.drain)
            self._draining.discard(idle)
            idle.cancel()
        await self._retire(run)

    async def _give_up(self, launching: asyncio.Task[None], run: GuestRun) -> None:
        await asyncio.wait([launching])
        await self._retire(run)

    async def _retire(self, run: GuestRun) -> None:
        running, run.running = run.running, None
        if running is not None:
            await running.stop()
        self.context.screen.clear(run)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run_background(self, tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"guest {self.id}")
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    @property
    def down(self) -> bool:
        return self.running is None

    def get_runner(self) -> Callable[[ToolCall], Awaitable[ToolResult]]:
        """What runs its tools at this moment; what goes wrong raises, and `build_error_result` says what is told of it."""
        return self._answer_unavailable if self.running is None else self.running.call_tool

    def build_error_result(self, call: ToolCall, error: SeraiError) -> ToolResult:
        """An error result with a code of its own for each kind of failure (design rule 7), in the words of the dialect."""
        explain = self.context.get_adapter(self.manifest).explain
        return ToolResult.error(explain("tool", self.manifest.name, call.name, error), code=get_error_code(error), hint=error.hint)

    async def run_command(self, name: str, args: str) -> CommandResult:
        running = self.running
        if running is None:
            return CommandResult(NoAction(), f"extension /{name}: {self.explain_down()}", "COMMAND_UNAVAILABLE")
        try:
            action = await running.run_command(name, args)
            if isinstance(action, OpenPanel) and running is not self.running:  # replaced meanwhile: who would draw it?
                action = NoAction()
            return CommandResult(action)
        except SeraiError as error:
            explain = self.context.get_adapter(self.manifest).explain
            return CommandResult(NoAction(), explain("command", self.manifest.name, name, error), get_command_error_code(error))

    async def run_shortcut(self, key: str) -> CommandResult:
        """A pressed shortcut; what goes wrong is told at once, as nobody waits for it (spec piglet 5.5)."""
        running = self.running
        why, code = self.explain_down(), "COMMAND_UNAVAILABLE"
        if running is not None:
            try:
                return CommandResult(await cast("SupportsShortcuts", running).run_shortcut(key))
            except SeraiError as error:
                why, code = self.describe_cause(error), get_command_error_code(error)
        text = f"ext {self.manifest.shown} shortcut {key}: {why}"
        self.context.notify("error", text)
        return CommandResult(NoAction(), text, code)

    async def intercept(self, interceptor: Interceptor, stage: InterceptPoint, subject: Any) -> InterceptResult:
        """Its verdict; what no verdict means is said by `on_failure`, or by its being a guard."""
        running = self.running
        if running is None:
            return self._build_no_verdict(interceptor, stage, self.explain_down())
        asked = object()
        self.judging.add(asked)
        try:
            return await running.intercept(interceptor, stage, subject)
        except SeraiError as error:
            self.remark(f"intercept {stage} failed: {self.describe_cause(error)}")
            return self._build_no_verdict(interceptor, stage, f"{self.id}: {self.describe_cause(error)}")
        finally:
            self.judging.discard(asked)

    def tell(self, event: Event) -> None:
        if (running := self.running) is not None:
            running.tell(event)

    def explain_unheld(self) -> str:
        """Why it is a guard and does not hold, or "". While it is down, its interceptors refuse by themselves.

        One that has not subscribed holds nothing: not before its first word, and after a crash not before it has said all of it
        again (design rule 8).
        """
        if not self.guard or self.state is GuestState.STOPPED:
            return ""
        if not self.ever_ready:
            return self.explain_down()
        stages = self._list_stages()
        if not stages:
            return f"{self.id} intercepts nothing"
        if missing := self._held - stages:
            return f"{self.id} does not intercept {', '.join(sorted(missing))} again yet"
        return ""

    def trim_log(self) -> None:
        """Keep its log small. One that fills the disk between two looks is ended at once, and started again as after any crash."""
        if self.log is None or not (written := self.log.check_size()):
            return
        flood = check_flood(written, self.limits.log_flood, self.id)
        if flood is not None and not self._leaving:  # one that leaves may be the one, and ends anyway
            self._why = flood
            if self.running is not None and self.running.pid > 0:  # 0: it has no process, and to us it would be our own group
                os.kill(self.running.pid, signal.SIGKILL)
            elif self._launching is not None:
                self._launching.cancel()

    def _build_no_verdict(self, interceptor: Interceptor, stage: InterceptPoint, why: str) -> InterceptResult:
        # A result is there already: who cannot look at it is passed over, but for a guard (spec piglet 5.3).
        if not self.guard and (interceptor.on_failure == "open" or stage == "tool_result"):
            return _PASS
        return Refuse(f"{stage} refused: no answer from the {'guard' if self.guard else 'interceptor'} ({why})")

    def _report_join(self) -> None:
        self.context.report_join(self)

    async def _answer_unavailable(self, call: ToolCall) -> ToolResult:
        hint = "the guest is down: try again later, or do without this tool"
        return ToolResult.error(f"{call.name} is not available: {self.explain_down()}", code="TOOL_UNAVAILABLE", hint=hint)

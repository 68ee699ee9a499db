"""The host: finds guests, takes them in, and brings calls, commands and events to them. Neutral: no dialect is known here.

async with Host.discover() as host:
    print([tool.name for tool in host.tools])
    result = await host.call_tool("weather", {"city": "Bern"})
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from serai import home
from serai.errors import Closed, GuardDown, NoCommand, NoGuest, SeraiError
from serai.host.adapter import About
from serai.host.commands import parse
from serai.host.finding import Found, find
from serai.host.guest import Guest, State
from serai.host.house import House
from serai.host.registry import Registry, Shadowed, Table
from serai.host.reloading import HotReload, put_in_order, why_kept
from serai.host.report import LoadReport
from serai.host.services import Services
from serai.host.settings import guards_named
from serai.limits import Limits
from serai.model.actions import Action, Outcome
from serai.model.ask import Allow, Answer, Decision
from serai.model.contributions import Refuse, Rewrite, Stage
from serai.model.events import Event, SessionStarted, kind_of
from serai.model.surface import Surface
from serai.model.tools import ToolBox, ToolCall, ToolResult, ToolSpec
from serai.record.recorder import Recorder
from serai.wire.process import PlainSpawner, Spawner

__all__ = ["BuiltInCommand", "Gate", "Host"]

log = logging.getLogger("serai.host")

Gate = Callable[[ToolCall], Awaitable[Decision]]
BuiltInCommand = Callable[[str], Awaitable[Action]]

# How often the guests' logs are looked at, in seconds: nobody counts what a guest writes into its own.
_TRIM = 2.0


class Host:
    """Takes guests in. A plain object: `async with` outside, idempotent `close` inside, usable from any task of its loop."""

    def __init__(
        self,
        search: Callable[[], Found],
        *,
        about: About | None = None,
        environ: Mapping[str, str] | None = None,
        limits: Mapping[str, float | None] | None = None,
        built_in: ToolBox | None = None,
        commands: Mapping[str, BuiltInCommand] | None = None,
        services: Services | None = None,
        surface: Surface | None = None,
        recorder: Recorder | None = None,
        spawner: Spawner | None = None,
        guards: frozenset[str] = frozenset(),
        watch: bool = False,
    ) -> None:
        """`search` is asked at the start and at every reload, so that both look in the same places."""
        self._search = search
        self._about = about or About(cwd=os.getcwd())
        self._environ = os.environ if environ is None else environ
        self._limits = limits or {}
        self._built_in = built_in
        self._built_in_commands = dict(commands or {})
        self._services = services
        self._surface = surface
        self._recorder = recorder
        self._given_spawner = spawner
        self._guards = guards
        self._spawner: PlainSpawner | None = None
        self._hot = HotReload(self.reload, on=watch, debounce=Limits().but(**self._limits).reload_wait)
        self._session: SessionStarted | None = None
        self._closing: asyncio.Task[None] | None = None
        self._trimmer: asyncio.TimerHandle | None = None
        self.found = Found()
        self._absent = ""  # which guard cannot be there
        self._in_order: list[Guest] = []
        self._registry = Registry(self._in_order, built_in, self._built_in_commands, self._shadowed)
        self._house: House | None = None

    @classmethod
    def discover(
        cls,
        cwd: str | Path | None = None,
        *,
        guests: Sequence[str | Path] = (),
        installed: bool = True,
        environ: Mapping[str, str] | None = None,
        config: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Host:
        """A host for the guests of this folder, of this person, and those at the given paths.

        `installed=False` means only the given ones. `config` are the person's settings, read from `config.toml` by default.
        """
        env = os.environ if environ is None else environ
        folder = Path(os.path.abspath(cwd or os.getcwd()))
        settings = home.settings(env) if config is None else config
        paths = [Path(os.path.abspath(path)) for path in guests]

        def search() -> Found:
            return find(cwd=folder, guests=paths, installed=installed, config=settings, environ=env)

        about = options.pop("about", None) or About(cwd=str(folder))
        return cls(search, about=about, environ=env, guards=guards_named(settings), **options)

    # -- its life -----------------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> LoadReport:
        """Find the guests and start them side by side; back when each is ready or has failed. One bad guest hurts itself alone."""
        spawner: Spawner | None = self._given_spawner
        if spawner is None:
            spawner = self._spawner = PlainSpawner(Limits().but(**self._limits))
        self._house = House(
            spawner=spawner,
            about=self._about,
            variables=self._environ,
            limits=self._limits,
            services=self._services,
            recorder=self._recorder,
            surface=self._surface,
            on_change=self._registry.forget,
            on_join=self._joined,
        )
        try:
            self._look_around()
            for manifest in self.found.guests:
                self._add(Guest(self._house, manifest, len(self._in_order)))
            await asyncio.gather(*(guest.start() for guest in self._in_order))
        except BaseException:  # whoever is cancelled here has no `async with` yet that would close
            await self.close()
            raise
        if self._closing is None:
            self._trim()
        return self.report

    async def close(self) -> None:
        """Stop all guests at once, within their time. Idempotent; a cancelled caller does not stop it."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(), name="close the host")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self._trimmer is not None:
            self._trimmer.cancel()
        await self._hot.close()
        await asyncio.gather(*(guest.stop() for guest in self._in_order), return_exceptions=True)
        if self._spawner is not None:
            await self._spawner.close()
        if self._house is not None:
            self._house.close()

    # -- what there is ----------------------------------------------------------------------------------------------------------

    @property
    def house(self) -> House:
        if self._house is None:
            raise RuntimeError("the host is not started: use `async with`")
        return self._house

    @property
    def guests(self) -> Mapping[str, Guest]:
        """By id, in load order."""
        return self.house.guests

    @property
    def table(self) -> Table:
        return self._registry.table

    @property
    def tools(self) -> Sequence[ToolSpec]:
        return [tool.spec for tool in self.table.tools.values()]

    @property
    def report(self) -> LoadReport:
        """How the guests came in, and what was found and not taken."""
        return LoadReport.of(self)

    def guest(self, id: str) -> Guest:
        """By id, or by name when only one dialect has it."""
        fitting = [guest for guest in self._in_order if id in (guest.id, guest.manifest.name)]
        if len(fitting) != 1:
            there = ", ".join(self.guests) or "none"
            raise NoGuest(
                f"there is no guest {id}" if not fitting else f"{id} is the name of several guests", hint=f"guests: {there}"
            )
        return fitting[0]

    # -- tools ------------------------------------------------------------------------------------------------------------------

    def list(self) -> Sequence[ToolSpec]:
        """The `ToolBox` protocol."""
        return self.tools

    async def call(self, call: ToolCall) -> ToolResult:
        """The `ToolBox` protocol."""
        return await self.call_tool(call)

    async def call_tool(self, call: ToolCall | str, arguments: Any = None, *, gate: Gate | None = None) -> ToolResult:
        """Interceptors, then `gate` on the final call if there is one, then the owner. Never raises for what a guest does wrong."""
        if isinstance(call, str):
            call = ToolCall(call, {} if arguments is None else arguments)
        table = self._registry.made or self._registry.table
        tool = table.tools.get(call.name)
        if tool is None:
            return ToolResult.error(f'unknown tool "{call.name}"', code="UNKNOWN_TOOL")
        if not table.plain or gate is not None or self._absent:
            decided = await self.decide(call, gate)
            if isinstance(decided, ToolResult):
                return decided
            call = decided
        if problem := tool.check(call.arguments):
            return _invalid(call, problem)
        try:
            result = await tool.run(call)
        except SeraiError as error:
            result = tool.owner.failed(call, error)
        return result if table.plain else await self._after(call, result)

    async def decide(self, call: ToolCall, gate: Gate | None = None) -> ToolCall | ToolResult:
        """The final call, or the result that says why it does not run."""
        verdict = await self.intercept("tool_call", call)
        if isinstance(verdict, Refuse):
            return _refused(verdict)
        if isinstance(verdict, Rewrite):
            call = verdict.value
        if gate is None:
            return call
        tool = self.table.tools.get(call.name)
        if tool is not None and (problem := tool.check(call.arguments)):  # nobody is asked about what cannot run
            return _invalid(call, problem)
        decision = await gate(call)
        if isinstance(decision, Allow):
            return call if not isinstance(decision.arguments, dict) else _with(call, decision.arguments)
        why = decision.why if not isinstance(decision, Answer) else ""
        return ToolResult.error(why or f"{call.name} was denied", code="DENIED")

    async def intercept(self, stage: Stage, subject: Any) -> Refuse | Rewrite | None:
        """Ask the interceptors of a stage, one after the other; each sees what the one before made of it.

        None means: unchanged. A guard that is not there is a refusal (design rule 8).
        """
        table = self._registry.table
        if down := self.guards_down():
            return Refuse(f"{stage} refused: {down}")
        changed = subject
        for guest, interceptor in table.chains[stage]:
            verdict = await guest.intercept(interceptor, stage, changed)
            if isinstance(verdict, Refuse):
                return verdict
            if isinstance(verdict, Rewrite):
                changed = _with(changed, verdict.value) if stage == "tool_call" else verdict.value
        return None if changed is subject else Rewrite(changed)

    async def _after(self, call: ToolCall, result: ToolResult) -> ToolResult:
        for guest, interceptor in self.table.chains["tool_result"]:
            verdict = await guest.intercept(interceptor, "tool_result", (call, result))
            if isinstance(verdict, Refuse):
                return _refused(verdict)
            if isinstance(verdict, Rewrite):
                result = verdict.value
        return result

    # -- guards -------------------------------------------------------------------------------------------------------------------

    def guards_down(self) -> str:
        """Why nothing may run, or "": a guard that is not ready yet, failed before it was ever ready, is hidden or not found."""
        missing = self.table.missing
        return self._absent or (f"the guard {missing[0].why_down()}" if missing else "")

    def require_guards(self) -> None:
        """A run does not start before its guards are ready (design rule 8)."""
        down = self.guards_down()
        if not down:
            down = next((f"the guard {g.why_down()}" for g in self._in_order if g.guard and g.state is not State.READY), "")
        if down:
            raise GuardDown(down)

    # -- commands ---------------------------------------------------------------------------------------------------------------

    async def run_command(self, name: str, args: str = "") -> Outcome:
        """Serai's own first, then guests'. What it wants shown is shown; what it wants done is the caller's to do."""
        if built_in := self._built_in_commands.get(name):
            return Outcome(await built_in(args))
        owner = self.table.commands.get(name)
        if owner is None:
            raise NoCommand(f"unknown command /{name}", hint="type /help to see the list, or `serai guest list`")
        outcome = await owner[0].run_command(name, args)
        self.house.act(outcome.action)
        return outcome

    async def typed(self, text: str) -> Outcome | None:
        """What a person typed: run as a command, or None when it is for the model."""
        typed = parse(text)
        return None if typed is None else await self.run_command(*typed)

    # -- events -----------------------------------------------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """To all guests that want it, in order for each, without anybody waiting."""
        if isinstance(event, SessionStarted):
            self._session = event
        handlers = self._registry.table.handlers
        for guest in handlers.get(kind_of(event), handlers["*"]):
            guest.tell(event)

    def attach(self, surface: Surface) -> None:
        """From now on guests are seen there, and what they said before is shown first."""
        self.house.attach(surface)

    # -- reload -----------------------------------------------------------------------------------------------------------------

    async def reload(self, *ids: str) -> LoadReport:
        """Look into the same places again; start anew what is named, or everything, and take in or let go what came or went."""
        if self._closing is not None:
            raise Closed("the host is closed")
        self._look_around()
        fresh = {manifest.id: manifest for manifest in self.found.guests}
        wanted = {id if id in fresh else self.guest(id).id for id in ids} or {*fresh, *self.guests}
        gone = [guest for guest in self._in_order if guest.id in wanted - fresh.keys() and not self._stays(guest)]
        for guest in gone:
            self._remove(guest)
        works: list[Awaitable[Any]] = [guest.stop() for guest in gone]
        for manifest in fresh.values():
            if manifest.id not in wanted:
                continue
            if known := self.guests.get(manifest.id):
                self._hot.watch(manifest)
                works.append(known.reload(manifest))
            else:
                guest = Guest(self.house, manifest, 0)
                self._add(guest)
                works.append(guest.start())
        put_in_order(self._in_order, list(fresh))
        self.house.guests = {guest.id: guest for guest in self._in_order}
        await asyncio.gather(*works)
        self.rebuild_tools()
        return self.report

    def rebuild_tools(self) -> None:
        """Offer also what guests registered since they became ready (spec zot 2.2)."""
        for guest in self._in_order:
            guest.tools = guest.contributions.tools
        self._registry.forget()

    # -- inside -----------------------------------------------------------------------------------------------------------------

    def _look_around(self) -> None:
        """Find what there is, and whether a guard cannot be among it: hidden by a project, or named in the settings and nowhere."""
        self.found = found = self._search()
        there = {name for manifest in (*found.guests, *found.disabled) for name in (manifest.id, manifest.name)}
        hidden = next(map(str, found.hidden_guards), "")
        lost = next(iter(sorted(self._guards - there)), "")
        self._absent = hidden or (f"the guard {lost} is named in the settings and was not found" if lost else "")

    def _add(self, guest: Guest) -> None:
        self.house.guests[guest.id] = guest
        self._in_order.append(guest)
        self._hot.watch(guest.manifest)
        self._registry.forget()

    def _remove(self, guest: Guest) -> None:
        del self.house.guests[guest.id]
        self._in_order.remove(guest)
        self._hot.forget(guest.id)
        self._registry.forget()

    def _stays(self, guest: Guest) -> bool:
        if why := why_kept(self.found, guest):
            guest.remark(f"not reloaded: {why}")
        return bool(why)

    def _joined(self, guest: Guest) -> None:
        """A fresh process hears of the session that runs already (spec zot 5.5, ours)."""
        handlers = self.table.handlers
        if self._session is not None and guest in handlers.get(kind_of(self._session), handlers["*"]):
            guest.tell(self._session)

    def _shadowed(self, entry: Shadowed) -> None:
        if guest := self.guests.get(entry.guest):
            guest.remark(str(entry))

    def _trim(self) -> None:
        for guest in self._in_order:
            if guest.log is not None:
                guest.log.trim()
        self._trimmer = asyncio.get_running_loop().call_later(_TRIM, self._trim)


def _with(call: ToolCall, arguments: Any) -> ToolCall:
    return ToolCall(call.name, arguments, call.id, call.asker, call.native)


def _refused(verdict: Refuse) -> ToolResult:
    return ToolResult.error(verdict.reason, code="BLOCKED") if verdict.is_error else ToolResult.of(verdict.reason)


def _invalid(call: ToolCall, problem: str) -> ToolResult:
    return ToolResult.error(f"{call.name}: {problem}", code="INVALID_ARGS", hint="correct the arguments and call again")

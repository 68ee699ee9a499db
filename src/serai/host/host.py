"""The host: finds guests, starts them, and brings calls, commands and events to them. Neutral: no dialect is known here.

    async with Host.discover() as host:
        print([tool.name for tool in host.tools])
        result = await host.call_tool("weather", {"city": "Bern"})

The owner of a tool, command, shortcut or model is looked up at the moment of the call. Of a typed text, `/name args` is a command
and everything else is for the model (spec zot 4.2).

`LoadReport` says who came in, who did not, and why; one root cause for each (design rule 9).
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple, Self, TypedDict, Unpack, cast

import msgspec

from serai import paths as serai_paths
from serai.errors import Closed, ModelFailed, NoCommand, NoGuest, SeraiError
from serai.host.adapter import HostInfo, Services, SupportsStream
from serai.host.contribution_table import ContributionTable, ShadowedName, TableBuilder
from serai.host.discovery import DiscoveryResult, find_guests
from serai.host.guest import Guest, GuestState
from serai.host.guest_context import GuestContext
from serai.host.guest_manifest import GuestManifest
from serai.host.guest_settings import get_limit_changes, read_person_settings
from serai.host.hot_reload import HotReload, explain_kept, keep_names, put_in_order
from serai.host.interceptors import FinalCheck, InterceptorChain, TextHooks, build_invalid_result
from serai.host.panels import PanelSlot
from serai.host.trust import Trust
from serai.limits import HostLimits, Limits
from serai.model.actions import Action, CommandResult, NoAction
from serai.model.contributions import Command, InterceptPoint, Refuse, Rewrite, Shortcut
from serai.model.events import Event, SessionStarted, event_kind
from serai.model.provider import Chunk, Completion, Model, ModelProvider, ModelRequest
from serai.model.surface import Surface
from serai.model.tools import ProgressCallback, ToolBox, ToolCall, ToolResult, ToolSpec
from serai.record.recorder import Recorder
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Spawner

log = logging.getLogger("serai.host")

_COMMAND = re.compile(r"/([A-Za-z0-9_-]+)(?:\s+(.*))?", re.DOTALL)
_WORD = re.compile(r"/(\S+)(?:\s+(.*))?", re.DOTALL)


class TypedCommand(NamedTuple):
    """A command as it was typed: its inner white space is kept."""

    name: str
    args: str


def parse_command(text: str, known: Callable[[str], bool] = lambda _name: False) -> TypedCommand | None:
    """The command in a line, or None: such a line goes to the model, as one that begins with a path does.

    A name with another character is one only if it is `known`: in some dialects a command may have such a name (spec piglet 5.2).
    """
    line = text.strip()
    match = _COMMAND.fullmatch(line)
    if match is None and (match := _WORD.fullmatch(line)) is not None and not known(match[1]):
        return None
    return None if match is None else TypedCommand(match[1], (match[2] or "").strip())


BuiltInCommand = Callable[[str], Awaitable[Action | None]]


class GuestProvider:
    """The guest that streams the models of an API, whichever process of whichever guest that is when it is asked."""

    def __init__(self, api: str, builder: TableBuilder) -> None:
        self.api = api
        self._builder = builder

    async def models(self) -> Sequence[Model]:
        """None of its own: it serves those of the catalogue."""
        return ()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Completion, None]:
        guest = self._builder.table.providers.get(self.api)
        if guest is None:
            raise ModelFailed(f"no guest streams models of the API {self.api} any more", hint="choose another model")
        if guest.running is None:
            hint = "it is started again by itself; or choose another model"
            raise ModelFailed(guest.explain_down(), who=guest.id, temporary=True, hint=hint)
        answer = cast("SupportsStream", guest.running).stream(self.api, request)
        async with aclosing(cast("AsyncGenerator[Chunk | Completion, None]", answer)) as pieces:
            async for piece in pieces:
                yield piece


class Options(TypedDict, total=False):
    """What else a host can be given: the keywords of `Host` that `Host.discover` hands on."""

    about: HostInfo
    limits: Mapping[str, float | None] | HostLimits
    built_in: ToolBox
    commands: Mapping[str, BuiltInCommand]
    services: Services
    surface: Surface | None
    recorder: Recorder | None
    spawner: Spawner
    watch: bool


class Host:
    """Takes guests in. A plain object: `async with` outside, idempotent `close` inside, usable from any task of its loop."""

    def __init__(
        self,
        search: Callable[[], DiscoveryResult],
        *,
        about: HostInfo | None = None,
        environ: Mapping[str, str] | None = None,
        limits: Mapping[str, float | None] | HostLimits | None = None,
        built_in: ToolBox | None = None,
        commands: Mapping[str, BuiltInCommand] | None = None,
        services: Services | None = None,
        surface: Surface | None = None,
        recorder: Recorder | None = None,
        spawner: Spawner | None = None,
        trusts: Callable[[GuestManifest], str] | None = None,
        watch: bool = False,
    ) -> None:
        """`search` is asked at the start and at every reload, so that both look in the same places.

        `trusts` says why a project's guest may not start, or nothing; it is asked again before every process.
        """
        self._search = search
        self._about = about or HostInfo(cwd=os.getcwd())
        self._environ = os.environ if environ is None else environ
        self._limits = get_limit_changes(limits)
        self._built_in = built_in
        self._built_in_commands = dict(commands or {})
        self._services = services
        self._surface = surface
        self._recorder = recorder
        self._given_spawner = spawner
        self._trusts = trusts
        self._spawner: PlainSpawner | None = None
        self._hot_reload = HotReload(
            self._reload,
            lambda text: self.context.notify("warn", text),
            on=watch,
            debounce=Limits().but(**self._limits).reload_wait,
        )
        self._reloads: set[asyncio.Task[LoadReport]] = set()
        self._session: SessionStarted | None = None
        self._closing: asyncio.Task[None] | None = None
        self.found = DiscoveryResult()
        self._in_order: list[Guest] = []
        self._builder = TableBuilder(self._in_order, built_in, self._built_in_commands, self._remark_shadowed)
        self._interceptors = InterceptorChain(self._builder)
        self._context: GuestContext | None = None

    @classmethod
    def discover(
        cls,
        cwd: str | Path | None = None,
        *,
        guests: Sequence[str | Path] = (),
        installed: bool = True,
        environ: Mapping[str, str] | None = None,
        config: Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> Host:
        """A host for the guests of this folder, of this person, and those at the given paths.

        `installed=False` means only the given ones. `config` are the person's settings, read from `config.toml` by default.
        """
        env = os.environ if environ is None else environ
        folder = Path(os.path.abspath(cwd or os.getcwd()))
        settings = serai_paths.read_settings(env) if config is None else config
        paths = [Path(serai_paths.absolute_path(path)) for path in guests]

        trust = Trust.usual(env)

        def search() -> DiscoveryResult:
            return find_guests(cwd=folder, guests=paths, installed=installed, config=settings, environ=env, trust=trust)

        options.setdefault("about", HostInfo(cwd=str(folder)))
        options["limits"] = {**read_person_settings(settings).limits, **get_limit_changes(options.get("limits"))}
        return cls(search, environ=env, trusts=trust.check, **options)

    # -- its life -----------------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> LoadReport:
        """Find the guests and start them side by side; back when each is ready or has failed. One bad guest hurts itself alone.

        Once: a host that was closed, or could not be started, is not started again.
        """
        if self._context is not None or self._closing is not None:
            raise Closed("the host was started before", hint="make a new one for each run")
        spawner: Spawner | None = self._given_spawner
        if spawner is None:
            spawner = self._spawner = PlainSpawner(Limits().but(**self._limits))
        self._context = GuestContext(
            spawner=spawner,
            about=self._about,
            variables=self._environ,
            limits=self._limits,
            services=self._services,
            recorder=self._recorder,
            surface=self._surface,
            trusts=self._trusts,
            on_change=self._builder.invalidate,
            on_join=self._tell_session,
        )
        self._context.trim_logs()
        try:
            self._search_guests()
            for manifest in self.found.guests:
                self._add(Guest(self._context, manifest, len(self._in_order)))
            self._hot_reload.watch_others(self.found)
            await asyncio.gather(*(guest.start() for guest in self._in_order))
        except BaseException:  # whoever is cancelled here has no `async with` yet that would close
            await self.close()
            raise
        return self.report

    async def close(self) -> None:
        """Stop all guests at once, within their time. Idempotent; a cancelled caller does not stop it."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(), name="close the host")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._hot_reload.close()
        await asyncio.gather(*(guest.stop() for guest in self._in_order), return_exceptions=True)
        await asyncio.gather(*self._reloads, return_exceptions=True)
        if self._spawner is not None:
            await self._spawner.close()
        if self._context is not None:
            self._context.close()

    # -- what there is ----------------------------------------------------------------------------------------------------------

    @property
    def context(self) -> GuestContext:
        if self._context is None:
            raise RuntimeError("the host is not started: use `async with`")
        return self._context

    @property
    def guests(self) -> Mapping[str, Guest]:
        """By id, in load order."""
        return self.context.guests

    @property
    def table(self) -> ContributionTable:
        return self._builder.table

    @property
    def texts(self) -> TextHooks:
        """What guests have to say to a prompt and to the system prompt."""
        return TextHooks(self._builder)

    @property
    def panels(self) -> PanelSlot:
        """The one panel slot: keys and sizes go in here, what is to be seen comes to the surface."""
        return self.context.panels

    @property
    def report(self) -> LoadReport:
        """How the guests came in, and what was found and not taken."""
        return LoadReport.from_host(self)

    def guest(self, id: str) -> Guest:
        """By id, or by name when only one dialect has it."""
        fitting = [guest for guest in self._in_order if id in (guest.id, guest.manifest.name)]
        if len(fitting) != 1:
            there = ", ".join(self.guests) or "none"
            why = f"{id} is the name of several guests" if fitting else f"there is no guest {id}"
            raise NoGuest(why, hint=f"guests: {there}")
        return fitting[0]

    # -- events -----------------------------------------------------------------------------------------------------------------

    def tell(self, event: Event) -> None:
        """To all guests that want it, in order for each, without anybody waiting."""
        if isinstance(event, SessionStarted):
            self._session = event
        handlers = self._builder.table.handlers
        for guest in handlers.get(event_kind(event), handlers["*"]):
            guest.tell(event)

    def attach(self, surface: Surface) -> None:
        """From now on guests are seen there, and what they said before is shown first."""
        self.context.attach(surface)

    def _explain_shut(self) -> str:
        return "not started" if self._context is None else "closed" if self._closing is not None else ""

    # -- reload -----------------------------------------------------------------------------------------------------------------

    async def reload(self, *ids: str) -> LoadReport:
        """Look into the same places again; start anew what is named, or everything, and take in or let go what came or went.

        Who is cancelled meanwhile does not stop it: a guest is never left between two processes.
        """
        return await self._reload(frozenset(self.guest(id).manifest.folder for id in ids) if ids else None)

    async def _reload(self, folders: frozenset[Path] | None) -> LoadReport:
        if self._closing is not None:
            raise Closed("the host is closed")
        task = asyncio.get_running_loop().create_task(self._look_again(folders), name="reload")
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)
        return await asyncio.shield(task)

    async def _look_again(self, folders: frozenset[Path] | None) -> LoadReport:
        """By folder, not by id: what lies in it may have another name now."""
        self._search_guests()
        fresh = {manifest.id: manifest for manifest in self.found.guests}
        concerned = [guest for guest in self._in_order if folders is None or guest.manifest.folder in folders]
        told = folders is not None  # somebody wants those, or their files have changed: of all at once a report tells
        gone = [guest for guest in concerned if guest.id not in fresh and not self._stays(guest, told)]
        for guest in gone:
            self._remove(guest)
        self._hot_reload.watch_others(self.found)
        works: list[Awaitable[Any]] = [guest.stop() for guest in gone]
        for manifest in fresh.values():
            known = self.guests.get(manifest.id)
            if folders is not None and manifest.folder not in folders and known not in concerned:
                continue
            if known is not None:
                self._hot_reload.watch(manifest)
                works.append(known.reload(manifest, told=told))
            else:
                guest = Guest(self.context, manifest, 0)
                self._add(guest)
                works.append(guest.start())
        put_in_order(self._in_order, list(fresh))
        self.context.guests = {guest.id: guest for guest in self._in_order}
        await asyncio.gather(*works)
        self.rebuild_tools()
        return self.report

    def rebuild_tools(self) -> None:
        """Offer also what guests registered since they became ready (spec zot 2.2)."""
        for guest in self._in_order:
            guest.tools = guest.contributions.tools
        self._builder.invalidate()

    # -- inside -----------------------------------------------------------------------------------------------------------------

    def _search_guests(self) -> None:
        """Find what there is, and whether a guard cannot be among it."""
        self.found = keep_names(self._search(), self._in_order)
        self._builder.absent = next(map(str, self.found.hidden_guards), "")

    def _add(self, guest: Guest) -> None:
        self.context.guests[guest.id] = guest
        self._in_order.append(guest)
        self._hot_reload.watch(guest.manifest)
        self._builder.invalidate()

    def _remove(self, guest: Guest) -> None:
        del self.context.guests[guest.id]
        self._in_order.remove(guest)
        self._hot_reload.forget(guest.manifest.folder)
        self._builder.invalidate()

    def _stays(self, guest: Guest, told: bool) -> bool:
        if why := explain_kept(self.found, guest):
            guest.remark(f"not reloaded: {why}")
            if told:
                guest.report_reload_failure(why)
        return bool(why)

    def _tell_session(self, guest: Guest) -> None:
        """A fresh process hears of the session that runs already (spec zot 5.5, ours)."""
        if self._session is not None:  # first: to look who wants it takes as long as many have come
            handlers = self.table.handlers
            if guest in handlers.get(event_kind(self._session), handlers["*"]):
                guest.tell(self._session)

    def _remark_shadowed(self, entry: ShadowedName) -> None:
        if guest := self.guests.get(entry.guest):
            guest.remark(str(entry))

    # -- tools ------------------------------------------------------------------------------------------------------------------

    @property
    def tools(self) -> Sequence[ToolSpec]:
        return [tool.spec for tool in self._builder.table.tools.values()]

    def list(self) -> Sequence[ToolSpec]:
        """The `ToolBox` protocol."""
        return self.tools

    async def call(self, call: ToolCall, *, tell: ProgressCallback | None = None) -> ToolResult:
        """The `ToolBox` protocol."""
        return await self.call_tool(call, tell=tell)

    async def call_tool(
        self, call: ToolCall | str, arguments: Any = None, *, gate: FinalCheck | None = None, tell: ProgressCallback | None = None
    ) -> ToolResult:
        """Interceptors, then `gate` on the final call if there is one, then the owner. Never raises for what a guest does wrong."""
        if type(call) is not ToolCall:
            assert isinstance(call, str)
            call = ToolCall(call, {} if arguments is None else arguments)
        table = self._builder.made or self._builder.table
        if call.name not in table.tools:
            return self._build_no_tool(call.name)
        if not table.plain or gate is not None:
            decided = await self._interceptors.decide(call, gate)
            if isinstance(decided, ToolResult):
                return decided
            call = decided
        return await self.run_tool(call, tell=tell)

    async def run_tool(
        self, call: ToolCall, *, tell: ProgressCallback | None = None, leave: Callable[[], None] | None = None
    ) -> ToolResult:
        """The owner, then the interceptors of results: for a call that was decided elsewhere (`serai.app.pipeline`).

        A tool that did not run to an answer has no result to look at (spec piglet 5.3). `leave` is called before others look at
        it: the owner is done.
        """
        table = self._builder.made or self._builder.table
        tool = table.tools.get(call.name)
        if tool is None:
            return self._build_no_tool(call.name)
        if problem := tool.check(call.arguments):
            return build_invalid_result(call, problem)
        plain = table.plain or tool.owner.down
        try:
            result = await (tool.run(call) if tell is None else tool.run_watched(call, tell))
        except SeraiError as error:
            return tool.owner.build_error_result(call, error)
        if plain:
            return result
        if leave is not None:
            leave()
        return await self._interceptors.intercept_result(call, result)

    def _build_no_tool(self, name: str) -> ToolResult:
        if why := self._explain_shut():
            return ToolResult.error(f"{name} is not available: the host is {why}", code="TOOL_UNAVAILABLE")
        return ToolResult.error(f'unknown tool "{name}"', code="UNKNOWN_TOOL")

    # -- who may say no -----------------------------------------------------------------------------------------------------------

    async def intercept(self, stage: InterceptPoint, subject: Any) -> Refuse | Rewrite | None:
        """What the interceptors of a stage make of this: for whoever runs a model. None: they let it pass unchanged."""
        return await self._interceptors.intercept(stage, subject)

    def guards_down(self) -> str:
        """Why nothing may run, or ""."""
        return self._interceptors.guards_down()

    def not_guarded(self) -> str:
        """The same, and a guard that was ready and will be back: why nothing may begin."""
        return self._interceptors.explain_down()

    def require_guards(self) -> None:
        """Raises `GuardDown` unless every guard is ready: a run does not start before (design rule 8)."""
        self._interceptors.require_guards()

    # -- commands and shortcuts ---------------------------------------------------------------------------------------------------

    @property
    def commands(self) -> Sequence[Command]:
        """What guests offer for a person to type, beside Serai's own."""
        return [command for _, command in self._builder.table.commands.values()]

    async def run_command(self, name: str, args: str = "") -> CommandResult:
        """Serai's own first, then guests'. What it wants shown is shown; what it wants done is the caller's to do."""
        name = name.removeprefix("/")
        if built_in := self._built_in_commands.get(name):
            outcome = CommandResult(await built_in(args) or NoAction())
            self.context.act(outcome.action)
            return outcome
        owner = self._builder.table.commands.get(name)
        if owner is None:
            raise NoCommand(f"unknown command /{name}")
        if down := self._interceptors.explain_down():
            return CommandResult(NoAction(), f"/{name} refused: {down}", "BLOCKED")
        return await owner[0].run_command(name, args.strip())

    def parse(self, text: str) -> TypedCommand | None:
        """The command that a person typed, whether or not somebody has it; None when it is for the model."""

        def is_known(name: str) -> bool:
            owner = self._builder.table.commands.get(name)
            return owner is not None and self.context.get_adapter(owner[0].manifest).free_names

        return parse_command(text, is_known)

    async def typed(self, text: str) -> CommandResult | None:
        """What a person typed: run as a command, or None when it is for the model."""
        typed = self.parse(text)
        return None if typed is None else await self.run_command(*typed)

    @property
    def shortcuts(self) -> Sequence[Shortcut]:
        """The keys that guests want to be told of."""
        return [shortcut for _, shortcut in self._builder.table.shortcuts.values()]

    async def run_shortcut(self, key: str) -> CommandResult:
        """A key such as `ctrl+g` was pressed. What goes wrong is told as a notice too: nobody waits for a key (spec piglet 5.5)."""
        owner = self._builder.table.shortcuts.get(key)
        if owner is None:
            raise NoCommand(f"no guest has the shortcut {key}")
        if down := self._interceptors.explain_down():
            refused = f"shortcut {key} refused: {down}"
            self.context.notify("error", refused)
            return CommandResult(NoAction(), refused, "BLOCKED")
        return await owner[0].run_shortcut(key)

    # -- models -----------------------------------------------------------------------------------------------------------------

    def provider(self, api: str) -> ModelProvider | None:
        """Who streams the models of this API, if a guest does (spec piglet 5.9)."""
        return GuestProvider(api, self._builder) if api in self._builder.table.providers else None


# A start that took longer is worth a word, in seconds.
_SLOW = 2.0
_TRUST = "`serai trust` in that folder lets it start"


class LoadReportRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One guest."""

    id: str
    state: str
    folder: str
    scope: str
    version: str = ""
    guard: bool = False
    seconds: float = 0.0
    pid: int = 0
    tools: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    intercepts: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    why: str = ""  # the error in one paragraph, with exit status, limit and the last of its stderr
    error: dict[str, Any] | None = None
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.error is None:
            return f"{self.id} {self.state}" + (f" (slow: {self.seconds:.1f} s)" if self.seconds > _SLOW else "")
        return f"{self.folder}: {self.id} is {self.state}: {self.why}"


class LoadReport(msgspec.Struct, frozen=True):
    """All of them, in load order; `problems` are folders that gave no guest, `untrusted` those that nobody has allowed.

    `refused` are those that were granted as something else than they are now.
    """

    guests: tuple[LoadReportRow, ...] = ()
    problems: tuple[str, ...] = ()
    untrusted: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    guards_down: str = ""

    @classmethod
    def from_host(cls, host: Host) -> LoadReport:
        found = host.found
        remarks: dict[str, list[str]] = {}
        for entry in host.table.shadowed:
            remarks.setdefault(entry.guest, []).append(str(entry))
        for name, tool in host.table.tools.items():
            if tool.problem:
                remarks.setdefault(tool.owner.id, []).append(f"its tool {name} goes unvalidated: {tool.problem}")
        return cls(
            guests=tuple(_build_row(guest, remarks.get(guest.id, [])) for guest in host.guests.values()),
            problems=tuple(map(str, found.problems)),
            untrusted=tuple(f"{aside.manifest.id} in {aside.manifest.folder}: {aside.reason}" for aside in found.untrusted),
            refused=tuple(f"{aside.manifest.id} in {aside.manifest.folder}: {aside.reason}" for aside in found.refused),
            disabled=tuple(manifest.id for manifest in found.disabled),
            guards_down=host.guards_down(),
        )

    @property
    def failed(self) -> tuple[LoadReportRow, ...]:
        return tuple(row for row in self.guests if row.state != GuestState.READY)

    @property
    def ok(self) -> bool:
        """Nothing to tell: everybody found is ready."""
        return not (self.failed or self.problems or self.refused or self.guards_down)

    def to_lines(self) -> list[str]:
        """What a person should know, one thing a line; nothing when all is well."""
        told = [f"extension load: {problem}" for problem in self.problems]
        told += [f"extension load: {row}{_format_hint(row)}" for row in self.failed]
        told += [f"{row.id}: {remark}" for row in self.guests for remark in row.remarks]
        told += [f"not trusted: {one}; {_TRUST}" for one in self.untrusted]
        told += [f"refused: {one}" for one in self.refused]
        return told + ([f"guard: {self.guards_down}"] if self.guards_down else [])


def _format_hint(row: LoadReportRow) -> str:
    """What to do about it, if that is known."""
    hint = "" if row.error is None else row.error.get("hint", "")
    return f"; {hint}" if hint else ""


def _build_row(guest: Guest, remarks: list[str]) -> LoadReportRow:
    manifest, offers = guest.manifest, guest.contributions
    running = guest.running
    if running is not None:
        remarks += running.complaints
    remarks += guest.unseeded
    if asked := manifest.settings.asked:
        remarks.append(f'it asks for {", ".join(asked)}; the settings under [guest."{guest.id}"] grant it')
    why = "" if guest.error is None else str(guest.error).removeprefix(f"{guest.id}: ")
    if why and guest.state is GuestState.READY:
        remarks.append(f"its reload failed, so the earlier process serves on: {why}")
    return LoadReportRow(
        id=guest.id,
        state=str(guest.state),
        folder=str(manifest.folder),
        scope=manifest.scope,
        version=manifest.version,
        guard=guest.guard,
        seconds=round(guest.seconds, 3),
        pid=0 if running is None else running.pid,
        tools=tuple(spec.name for spec in guest.tools),
        commands=tuple(command.name for command in offers.commands),
        intercepts=tuple(sorted({stage for one in offers.interceptors for stage in one.stages})),
        events=tuple(sorted({kind for one in offers.event_handlers for kind in one.events})),
        why=why,
        error=None if guest.error is None else guest.error.to_json(),
        remarks=tuple(remarks),
    )

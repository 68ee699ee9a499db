"""The seed's own objects over Serai's: a host of one process, its supervisor, and `load_all` (seed 004).

For callers that know the origin's package; there is no second mechanism behind them. What a guest offers comes in Serai's neutral
types, what it answers in those of the wire. Names are as Python has them: `NewHost(m, cwd)` is `Host(m, cwd)`, and calls that take
a context there can be cancelled here.

`Host` and `Supervisor` start what they are given, as in the origin, and check no trust. `load_all` loads everything of piglet's
folders with Serai's host, its trust and its settings: of a project it starts only what is trusted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from serai import paths
from serai.dialects.piglet import messages
from serai.dialects.piglet.messages import ActionResult, CompactMessage, ToolExecuteResult
from serai.dialects.piglet.methods import Method
from serai.errors import BadManifest, BadSettings, Closed, SeraiError
from serai.host import file_watcher
from serai.host.adapter import HostInfo, Services, StartContext
from serai.host.adapters.piglet import ADAPTER
from serai.host.adapters.piglet.guest import PigletGuest
from serai.host.discovery import DiscoveryProblem, DiscoveryResult, find_guests, find_piglet_home
from serai.host.guest import GuestState
from serai.host.guest_context import GuestContext
from serai.host.guest_log import LOOK, GuestLog, check_flood
from serai.host.guest_manifest import GuestFolder, GuestManifest, list_folders, read_manifest
from serai.host.guest_settings import DISABLED, AuthorSettings, PersonSettings, get_limit_changes, read_person_settings
from serai.host.host import Host as SeraiHost
from serai.host.trust import Trust
from serai.limits import HostLimits, Limits
from serai.model.actions import Action, Panel
from serai.model.contributions import Contributions
from serai.model.surface import Surface
from serai.wire.plain_process import PlainSpawner

log = logging.getLogger("serai.host")


# -- folders (spec piglet 1) ------------------------------------------------------------------------------------------------------


def load_manifest(folder: str | Path) -> GuestManifest:
    """The guest of a folder, or `BadManifest`."""
    return read_manifest(GuestFolder(Path(os.path.abspath(folder)), "piglet", (), AuthorSettings()), "ad hoc", PersonSettings())


def discover_extensions(base: str | Path) -> list[GuestManifest]:
    """The guests of a place, by folder; one that cannot be read is passed over with a warning (spec piglet 1.2).

    Of any place, also of a project that nobody trusts: what is started of it is for the caller to judge.
    """
    found = []
    for folder in list_folders(Path(os.path.abspath(base))):
        if os.path.lexists(folder / "manifest.yaml"):
            try:
                found.append(load_manifest(folder))
            except BadManifest as error:
                log.warning("%s", error)
    return found


# -- one process ------------------------------------------------------------------------------------------------------------------


class Host:
    """One life of one guest: from its start to its end, whoever brings that about. `async with` outside, `stop` inside.

    It starts what it is given and asks no trust.
    """

    def __init__(
        self,
        manifest: GuestManifest,
        cwd: str | Path,
        *,
        services: Services | None = None,
        surface: Surface | None = None,
        environ: Mapping[str, str] | None = None,
        limits: Mapping[str, float | None] | Limits | None = None,
    ) -> None:
        """`services` answer what it asks, `surface` is where it is seen; without them it is told that there are none."""
        self.manifest = manifest
        self.closed = asyncio.Event()  # it is over
        self.cause: SeraiError | None = None  # why, if it ended by itself
        self._cwd = str(cwd)
        self._services, self._surface = services, surface
        self._environ = os.environ if environ is None else environ
        self._changes = get_limit_changes(limits)
        self._limits: HostLimits = Limits()
        self._begun = False  # it is started once
        self._guest: PigletGuest | None = None
        self._patience: asyncio.Timeout | None = None  # while it starts
        self._flood: SeraiError | None = None  # why we ended it
        self._leaving = False
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def name(self) -> str:
        return self.manifest.name

    async def start(self) -> None:
        """Its process, up to its answer to `initialize`; what goes wrong is raised, and nothing is left then. Once."""
        if self._begun:
            raise Closed("it was started before", who=self.manifest.id, hint="make a new one")
        self._begun = True
        try:
            start_context = await self._build_start_context()
            async with asyncio.timeout(None) as self._patience:
                running = await ADAPTER.start(start_context)
        except BaseException as error:
            await self.stop()
            if isinstance(error, TimeoutError) and self._flood is not None:
                raise self._flood from None
            raise
        assert isinstance(running, PigletGuest)
        self._guest = running

    async def _build_start_context(self) -> StartContext:
        manifest = self.manifest
        spawner = await self._open.enter_async_context(PlainSpawner(Limits().but(**self._changes)))
        context = GuestContext(
            spawner=spawner,
            about=HostInfo(cwd=self._cwd),
            variables=self._environ,
            limits=self._changes,
            services=self._services,
            surface=self._surface,
            on_change=_do_nothing,
            on_join=lambda _: None,
        )
        self._open.callback(context.close)
        guest_log = context.open_log(manifest)
        self._open.callback(guest_log.close)
        self._limits = context.get_limits(manifest)
        self._check_log(guest_log)
        return StartContext(
            manifest=manifest,
            limits=self._limits,
            env=context.get_env(manifest),
            spawner=spawner,
            deadlines=context.deadlines,
            log=guest_log,
            about=context.about,
            services=context.services,
            listener=_HostListener(self, context),
            tap=lambda _: None,
            config=context.find_config_folder(manifest),
            greeted=_do_nothing,
        )

    def _check_log(self, guest_log: GuestLog) -> None:
        """Now and from now on: its log stays small, and one that fills the disk is ended."""
        if guest_log.descriptor < 0:
            return
        loop = asyncio.get_running_loop()
        loop.call_later(LOOK, self._check_log, guest_log)
        flood = check_flood(guest_log.check_size(), self._limits.log_flood, self.manifest.id)
        if flood is None or self._flood is not None or self._leaving or self.closed.is_set():  # one that leaves ends anyway
            return
        self._flood = flood
        if self._guest is not None:
            os.kill(self._guest.pid, signal.SIGKILL)
        elif self._patience is not None:
            self._patience.reschedule(loop.time())

    async def stop(self) -> None:
        """Say goodbye and see to its end (spec piglet 8.0). Idempotent."""
        self._leaving = True
        if self._guest is not None:
            await self._guest.stop()
        self.closed.set()
        await self._open.aclose()

    # -- what it is asked (spec piglet 5)

    async def execute_tool(self, call_id: str, name: str, args: Mapping[str, Any] | None) -> ToolExecuteResult:
        params = messages.ToolExecuteParams(call_id, name, args)
        result: ToolExecuteResult = await self._call_guest(Method.TOOL_EXECUTE, params, self._limits.tool)
        return result

    async def execute_command(self, name: str, args: str = "") -> None:
        await self._call_guest(Method.COMMAND_EXECUTE, messages.CommandExecuteParams(name, args), self._limits.command)

    async def intercept_before(
        self, name: str, tool_name: str, args: Mapping[str, Any] | None
    ) -> tuple[bool, dict[str, Any] | None, str]:
        """Whether the call may go on, with which arguments (None: those it has), and the preview."""
        params = messages.InterceptorBeforeParams(name, tool_name, args)
        answer = await self._call_guest(Method.INTERCEPTOR_BEFORE, params, self._limits.intercept)
        return answer.allow, answer.args, answer.preview

    async def intercept_after(self, name: str, tool_name: str, details: Any = None) -> Any:
        params = messages.InterceptorAfterParams(name, tool_name, details)
        return (await self._call_guest(Method.INTERCEPTOR_AFTER, params, self._limits.intercept)).details

    async def dispatch_event(self, type: str, data: Any = None) -> ActionResult | None:
        action: ActionResult | None = (
            await self._call_guest(Method.EVENT_DISPATCH, messages.EventDispatchParams(type, data), self._limits.event)
        ).action
        return action

    async def handle_shortcut(self, key: str) -> ActionResult | None:
        answer = await self._call_guest(Method.SHORTCUT_HANDLE, messages.ShortcutHandleParams(key), self._limits.shortcut)
        action: ActionResult | None = answer.action
        return action

    async def on_message(self, message: str) -> str:
        return await self._get_guest().inject(message)

    async def transform_input(self, text: str) -> tuple[str, bool]:
        changed = await self._get_guest().transform(text)
        return changed.text, changed.handled

    async def execute_compact(self, said: Sequence[CompactMessage]) -> list[CompactMessage]:
        answer = await self._call_guest(Method.COMPACT_EXECUTE, messages.CompactExecuteParams(list(said)), self._limits.compact)
        return list(answer.messages or ())

    @property
    def contributions(self) -> Contributions:
        """What it has registered: tools, commands, prompt sections, interceptors and all the others, each kind in its order."""
        return self._get_guest().contributions

    async def _call_guest(self, method: str, params: messages.Wire, timeout: float | None) -> Any:
        return await self._get_guest().call(method, params, timeout=timeout)

    def _get_guest(self) -> PigletGuest:
        if self._guest is None:
            raise Closed("it is not started", who=self.manifest.id)
        return self._guest

    def _on_end(self, cause: SeraiError) -> None:
        self.cause = self._flood or cause
        self.closed.set()


class _HostListener:
    """Hears what the guest of a host does."""

    def __init__(self, host: Host, context: GuestContext) -> None:
        self._host = host
        self._context = context

    def on_change(self) -> None:
        pass

    def on_action(self, action: Action) -> None:
        self._context.act(action)

    def on_panel_render(self, panel: str, change: Callable[[Panel], Panel]) -> None:
        pass

    def on_panel_close(self, panel: str) -> None:
        pass

    def on_end(self, cause: SeraiError) -> None:
        self._host._on_end(cause)


# -- all its lives ----------------------------------------------------------------------------------------------------------------


class Supervisor:
    """One guest that is started again when it crashes: `host` is Serai's own, with this one in it.

    It starts what lies in its folder, each time anew, and asks no trust.
    """

    def __init__(self, manifest: GuestManifest, cwd: str | Path, **options: Any) -> None:
        """`options` are those of `serai.Host`: `services`, `surface`, `limits`, `watch` and so on."""
        self.manifest = manifest
        self.host = SeraiHost(self._discover, about=HostInfo(cwd=str(cwd)), **options)

    def _discover(self) -> DiscoveryResult:
        """What its folder says now (FIX-35)."""
        try:
            return DiscoveryResult(guests=(replace(load_manifest(self.manifest.folder), settings=self.manifest.settings),))
        except BadManifest as error:
            return DiscoveryResult(problems=(DiscoveryProblem(self.manifest.folder, error.message),))

    @property
    def name(self) -> str:
        return self.manifest.name

    async def start(self) -> None:
        """Raises why it did not come up, which is final; nothing is left then."""
        report = await self.host.start()
        if not report.ok:
            error = next((guest.error for guest in self.host.guests.values()), None)
            await self.host.close()
            raise error or BadManifest("; ".join(report.problems), who=str(self.manifest.folder))

    async def stop(self) -> None:
        await self.host.close()

    async def reload(self) -> None:
        """Start it anew; at most one reload waits for the one under way. What goes wrong is told, and the old one serves on."""
        await self.host.reload(f"piglet:{self.name}")


class Watcher(file_watcher.FileWatcher):
    """Tells which guests' files have changed: `watch` says which ones matter."""

    async def stop(self) -> None:
        await self.close()


def _do_nothing() -> None:
    pass


_PROJECT = os.path.join(".piglet", "extensions")
_NOT_HERE = "this guard is not one of piglet's own, and load_all starts no other: use serai.Host"


def extensions_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """`<config>/extensions`, in piglet's own home."""
    return find_piglet_home(environ) / "extensions"


def project_extensions_dir(cwd: str | Path) -> str:
    """`<cwd>/.piglet/extensions`; empty when `cwd` is."""
    return os.path.join(cwd, _PROJECT) if str(cwd) else ""


class Cleanup(NamedTuple):
    """Stops the watcher first, then all guests at once, and waits for them. `host` is where they are."""

    host: SeraiHost

    async def __call__(self) -> None:
        await self.host.close()


class Loaded(NamedTuple):
    """How many guests serve; what ends them; and why there is none at all, if nothing could be looked for."""

    loaded: int
    cleanup: Cleanup
    error: SeraiError | None


async def load_all(
    services: Services | None = None,
    *,
    disabled: Sequence[str] = (),
    project_dir: str | Path = "",
    cwd: str | Path = "",
    environ: Mapping[str, str] | None = None,
    **options: Any,
) -> Loaded:
    """Start everything in piglet's home, and in the project's folder of guests as far as that is trusted, and watch their files.

    The person's settings count as they do everywhere, with piglet's home switched on and those of `disabled` off. A guard that lies
    elsewhere is not taken in here, and then nothing runs. Who fails hurts nobody else: `cleanup.host.report` tells. `options` are
    those of `serai.Host`.
    """
    env = os.environ if environ is None else environ
    limits, trust = get_limit_changes(options.pop("limits", None)), Trust.usual(env)
    search: Callable[[], DiscoveryResult] = DiscoveryResult
    error: SeraiError | None = None
    try:
        project, config = _find_project(project_dir), paths.read_settings(env)
        person = read_person_settings(config, who=os.path.join(paths.config_folder(env), paths.CONFIG))
        config |= {"guests": {"homes": [*person.homes, "piglet"]}, DISABLED: [*config.get(DISABLED, ()), *disabled]}
        discover = partial(find_guests, cwd=project or extensions_dir(env), config=config, environ=env, trust=trust)
        scopes = ("project", "piglet home") if project else ("piglet home",)
        discover()  # what is wrong now is told; later, whoever serves goes on
        limits, search, cwd = {**person.limits, **limits}, lambda: _select_guests(discover(), scopes), cwd or project or ""
    except SeraiError as problem:
        error = problem
    given = {"about": HostInfo(cwd=str(cwd or os.getcwd())), "environ": env, "services": services, "trusts": trust.check}
    host = SeraiHost(search, **{"watch": True, **options, **given}, limits=limits)
    report = await host.start()
    return Loaded(sum(row.state == GuestState.READY for row in report.guests), Cleanup(host), error)


def _select_guests(found: DiscoveryResult, scopes: Sequence[str]) -> DiscoveryResult:
    """Of those places and that dialect alone. A guard among the others is missed: it holds nothing here (design rule 8)."""
    taken = [one for one in found.guests if one.dialect == "piglet" and one.scope in scopes]
    missed = [DiscoveryProblem(one.folder, _NOT_HERE) for one in found.guests if one not in taken and one.settings.guard]
    return replace(found, guests=tuple(taken), hidden_guards=(*found.hidden_guards, *missed))


def _find_project(folder: str | Path) -> Path | None:
    """The project whose folder of guests this is; None if none is named."""
    if not str(folder):
        return None
    if not (path := os.path.abspath(folder)).endswith(f"{os.sep}{_PROJECT}"):
        raise BadSettings(f"a project's guests lie in its {_PROJECT}", who=str(folder))
    return Path(path).parents[1]

"""The seed's own objects over Serai's: a host of one process, its supervisor, and everything of a folder at once (seed 004).

For whoever knows the origin's package and wants its calls; there is no second mechanism behind them. What a guest offers comes in
Serai's neutral words, what it answers in those of the wire. Names are as Python has them: `NewHost(m, cwd)` is `Host(m, cwd)`, and
what takes a context there can be cancelled here.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from serai.dialects.piglet import messages
from serai.dialects.piglet.messages import ActionResult, CompactMessage, ToolExecuteResult
from serai.dialects.piglet.methods import Method
from serai.errors import BadManifest, BadSettings, Closed, SeraiError
from serai.host import watching
from serai.host.adapter import About, Taking
from serai.host.adapters.piglet import ADAPTER, PigletGuest
from serai.host.finding import Found, Problem, find, piglet_home
from serai.host.guest import State
from serai.host.host import Host as WholeHost
from serai.host.house import House
from serai.host.manifest import Folder, Manifest, folders_in, read
from serai.host.services import Services
from serai.host.settings import DISABLED, Author, Person, changes_of
from serai.limits import Limits
from serai.model.actions import Action, Panel
from serai.model.contributions import Contributions
from serai.model.surface import Surface
from serai.wire.process import PlainSpawner

__all__ = [
    "Cleanup", "Host", "Loaded", "Supervisor", "Watcher", "discover_extensions", "extensions_dir", "load_all", "load_manifest",
    "project_extensions_dir",
]  # fmt: skip

log = logging.getLogger("serai.host")

_PROJECT = os.path.join(".piglet", "extensions")


# -- folders (spec piglet 1) ------------------------------------------------------------------------------------------------------


def extensions_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """`<config>/extensions`, in piglet's own home."""
    return piglet_home(environ) / "extensions"


def project_extensions_dir(cwd: str | Path) -> str:
    """`<cwd>/.piglet/extensions`; empty when `cwd` is."""
    return os.path.join(cwd, _PROJECT) if str(cwd) else ""


def load_manifest(folder: str | Path) -> Manifest:
    """The guest of a folder, or `BadManifest`."""
    return read(Folder(Path(os.path.abspath(folder)), "piglet", (), Author()), "ad hoc", Person())


def discover_extensions(base: str | Path) -> list[Manifest]:
    """The guests of a place, by folder; one that cannot be read is passed over with a warning (spec piglet 1.2)."""
    found = []
    for folder in folders_in(Path(os.path.abspath(base))):
        if os.path.lexists(folder / "manifest.yaml"):
            try:
                found.append(load_manifest(folder))
            except BadManifest as error:
                log.warning("%s", error)
    return found


# -- one process ------------------------------------------------------------------------------------------------------------------


class Host:
    """One life of one guest: from its start to its end, whoever brings that about. `async with` outside, `stop` inside."""

    def __init__(
        self,
        manifest: Manifest,
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
        self._changes = changes_of(limits)
        self._limits = Limits()
        self._guest: PigletGuest | None = None
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
        if self._guest is not None or self.closed.is_set():
            raise Closed("it was started before", who=self.manifest.id, hint="make a new one")
        try:
            running = await ADAPTER.start(await self._taking())
        except BaseException:
            await self.stop()
            raise
        assert isinstance(running, PigletGuest)
        self._guest = running

    async def _taking(self) -> Taking:
        manifest = self.manifest
        spawner = await self._open.enter_async_context(PlainSpawner(Limits().but(**self._changes)))
        house = House(
            spawner=spawner,
            about=About(cwd=self._cwd),
            variables=self._environ,
            limits=self._changes,
            services=self._services,
            surface=self._surface,
            on_change=_nothing,
            on_join=lambda _: None,
        )
        self._open.callback(house.close)
        guest_log = house.open_log(manifest)
        self._open.callback(guest_log.close)
        self._limits = house.limits_of(manifest)
        return Taking(
            manifest=manifest,
            limits=self._limits,
            env=house.env_of(manifest),
            spawner=spawner,
            deadlines=house.deadlines,
            log=guest_log,
            about=house.about,
            services=house.services,
            listener=_Ear(self, house),
            tap=lambda _: None,
            config=house.config_of(manifest),
            greeted=_nothing,
        )

    async def stop(self) -> None:
        """Say goodbye and see to its end (spec piglet 8.0). Idempotent."""
        if self._guest is not None:
            await self._guest.stop()
        self.closed.set()
        await self._open.aclose()

    # -- what it is asked (spec piglet 5)

    async def execute_tool(self, call_id: str, name: str, args: Mapping[str, Any] | None) -> ToolExecuteResult:
        params = messages.ToolExecuteParams(call_id, name, args)
        result: ToolExecuteResult = await self._ask(Method.TOOL_EXECUTE, params, self._limits.tool)
        return result

    async def execute_command(self, name: str, args: str = "") -> None:
        await self._ask(Method.COMMAND_EXECUTE, messages.CommandExecuteParams(name, args), self._limits.command)

    async def intercept_before(
        self, name: str, tool_name: str, args: Mapping[str, Any] | None
    ) -> tuple[bool, dict[str, Any] | None, str]:
        """Whether the call may go on, with which arguments (None: those it has), and the preview."""
        params = messages.InterceptorBeforeParams(name, tool_name, args)
        answer = await self._ask(Method.INTERCEPTOR_BEFORE, params, self._limits.intercept)
        return answer.allow, answer.args, answer.preview

    async def intercept_after(self, name: str, tool_name: str, details: Any = None) -> Any:
        params = messages.InterceptorAfterParams(name, tool_name, details)
        return (await self._ask(Method.INTERCEPTOR_AFTER, params, self._limits.intercept)).details

    async def dispatch_event(self, type: str, data: Any = None) -> ActionResult | None:
        action: ActionResult | None = (
            await self._ask(Method.EVENT_DISPATCH, messages.EventDispatchParams(type, data), self._limits.event)
        ).action
        return action

    async def handle_shortcut(self, key: str) -> ActionResult | None:
        answer = await self._ask(Method.SHORTCUT_HANDLE, messages.ShortcutHandleParams(key), self._limits.shortcut)
        action: ActionResult | None = answer.action
        return action

    async def on_message(self, message: str) -> str:
        return await self._running().inject(message)

    async def transform_input(self, text: str) -> tuple[str, bool]:
        changed = await self._running().transform(text)
        return changed.text, changed.handled

    async def execute_compact(self, said: Sequence[CompactMessage]) -> list[CompactMessage]:
        answer = await self._ask(Method.COMPACT_EXECUTE, messages.CompactExecuteParams(list(said)), self._limits.compact)
        return list(answer.messages or ())

    @property
    def contributions(self) -> Contributions:
        """What it has registered: tools, commands, prompt sections, interceptors and all the others, each kind in its order."""
        return self._running().contributions

    async def _ask(self, method: str, params: messages.Wire, timeout: float | None) -> Any:
        return await self._running().call(method, params, timeout=timeout)

    def _running(self) -> PigletGuest:
        if self._guest is None:
            raise Closed("it is not started", who=self.manifest.id)
        return self._guest

    def _ended(self, cause: SeraiError) -> None:
        self.cause = cause
        self.closed.set()


class _Ear:
    """Hears what the guest of a host does."""

    def __init__(self, host: Host, house: House) -> None:
        self._host = host
        self._house = house

    def changed(self) -> None:
        pass

    def acted(self, action: Action) -> None:
        self._house.act(action)

    def rendered(self, panel: str, change: Callable[[Panel], Panel]) -> None:
        pass

    def closed_panel(self, panel: str) -> None:
        pass

    def ended(self, cause: SeraiError) -> None:
        self._host._ended(cause)


# -- all its lives ----------------------------------------------------------------------------------------------------------------


class Supervisor:
    """One guest that is started again when it crashes: `host` is Serai's own, with this one in it."""

    def __init__(self, manifest: Manifest, cwd: str | Path, **options: Any) -> None:
        """`options` are those of `serai.Host`: `services`, `surface`, `limits`, `watch` and so on."""
        self.manifest = manifest
        self.host = WholeHost(self._look, about=About(cwd=str(cwd)), **options)

    def _look(self) -> Found:
        """What its folder says now (FIX-35)."""
        try:
            return Found(guests=(replace(load_manifest(self.manifest.folder), settings=self.manifest.settings),))
        except BadManifest as error:
            return Found(problems=(Problem(self.manifest.folder, error.message),))

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


class Watcher(watching.Watcher):
    """Tells which guests' files have changed: `watch` says which ones matter."""

    async def stop(self) -> None:
        await self.close()


class Cleanup(NamedTuple):
    """Stops the watcher first, then all guests at once, and waits for them. `host` is where they are."""

    host: WholeHost

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

    Who fails hurts nobody else: `cleanup.host.report` tells. `options` are those of `serai.Host`.
    """
    env = os.environ if environ is None else environ
    project = _project_of(project_dir)
    error: SeraiError | None = None

    def search() -> Found:
        nonlocal error
        try:
            if project is None and project_dir:
                raise BadSettings(f"a project's guests lie in its {_PROJECT}", who=str(project_dir))
            config = {"guests": {"homes": ["piglet"]}, DISABLED: list(disabled)}
            found = find(cwd=project or extensions_dir(env), config=config, environ=env)
        except SeraiError as problem:
            error = problem
            return Found()
        scopes = ("project", "piglet home") if project is not None else ("piglet home",)
        return replace(found, guests=tuple(one for one in found.guests if one.dialect == "piglet" and one.scope in scopes))

    about = About(cwd=str(cwd or project or os.getcwd()))
    host = WholeHost(search, **{"watch": True, **options, "about": about, "environ": env, "services": services})
    report = await host.start()
    return Loaded(sum(row.state == State.READY for row in report.guests), Cleanup(host), error)


def _project_of(folder: str | Path) -> Path | None:
    """The project whose folder of guests this is."""
    path = os.path.abspath(folder) if str(folder) else ""
    return Path(path).parents[1] if path.endswith(f"{os.sep}{_PROJECT}") else None


def _nothing() -> None:
    pass

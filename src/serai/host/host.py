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
from typing import Any, Self, TypedDict, Unpack

from serai import paths as serai_paths
from serai.errors import Closed, NoGuest
from serai.host.adapter import About
from serai.host.asking import Asking, BuiltInCommand
from serai.host.finding import Found, find
from serai.host.guest import Guest
from serai.host.house import House
from serai.host.judging import Judge
from serai.host.manifest import Manifest
from serai.host.panels import Panels
from serai.host.registry import Registry, Shadowed, Table
from serai.host.reloading import HotReload, keeping_names, put_in_order, why_kept
from serai.host.report import LoadReport
from serai.host.services import Services
from serai.host.settings import changes_of, read_person
from serai.host.texts import Texts
from serai.host.trust import Trust
from serai.limits import Limits
from serai.model.events import Event, SessionStarted, event_kind
from serai.model.surface import Surface
from serai.model.tools import ToolBox
from serai.record.recorder import Recorder
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Spawner

__all__ = ["BuiltInCommand", "Host", "Options"]

log = logging.getLogger("serai.host")


class Options(TypedDict, total=False):
    """What else a host can be given: the keywords of `Host` that `Host.discover` hands on."""

    about: About
    limits: Mapping[str, float | None] | Limits
    built_in: ToolBox
    commands: Mapping[str, BuiltInCommand]
    services: Services
    surface: Surface | None
    recorder: Recorder | None
    spawner: Spawner
    watch: bool


class Host(Asking):
    """Takes guests in. A plain object: `async with` outside, idempotent `close` inside, usable from any task of its loop."""

    def __init__(
        self,
        search: Callable[[], Found],
        *,
        about: About | None = None,
        environ: Mapping[str, str] | None = None,
        limits: Mapping[str, float | None] | Limits | None = None,
        built_in: ToolBox | None = None,
        commands: Mapping[str, BuiltInCommand] | None = None,
        services: Services | None = None,
        surface: Surface | None = None,
        recorder: Recorder | None = None,
        spawner: Spawner | None = None,
        trusts: Callable[[Manifest], str] | None = None,
        watch: bool = False,
    ) -> None:
        """`search` is asked at the start and at every reload, so that both look in the same places.

        `trusts` says why a project's guest may not start, or nothing; it is asked again before every process.
        """
        self._search = search
        self._about = about or About(cwd=os.getcwd())
        self._environ = os.environ if environ is None else environ
        self._limits = changes_of(limits)
        self._built_in = built_in
        self._built_in_commands = dict(commands or {})
        self._services = services
        self._surface = surface
        self._recorder = recorder
        self._given_spawner = spawner
        self._trusts = trusts
        self._spawner: PlainSpawner | None = None
        self._hot = HotReload(
            self._reload, lambda text: self.house.notify("warn", text), on=watch, debounce=Limits().but(**self._limits).reload_wait
        )
        self._reloads: set[asyncio.Task[LoadReport]] = set()
        self._session: SessionStarted | None = None
        self._closing: asyncio.Task[None] | None = None
        self.found = Found()
        self._in_order: list[Guest] = []
        self._registry = Registry(self._in_order, built_in, self._built_in_commands, self._shadowed)
        self._judge = Judge(self._registry)
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

        def search() -> Found:
            return find(cwd=folder, guests=paths, installed=installed, config=settings, environ=env, trust=trust)

        options.setdefault("about", About(cwd=str(folder)))
        options["limits"] = {**read_person(settings).limits, **changes_of(options.get("limits"))}
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
        if self._house is not None or self._closing is not None:
            raise Closed("the host was started before", hint="make a new one for each run")
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
            trusts=self._trusts,
            on_change=self._registry.forget,
            on_join=self._joined,
        )
        self._house.trim_logs()
        try:
            self._look_around()
            for manifest in self.found.guests:
                self._add(Guest(self._house, manifest, len(self._in_order)))
            self._hot.watch_others(self.found)
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
        await self._hot.close()
        await asyncio.gather(*(guest.stop() for guest in self._in_order), return_exceptions=True)
        await asyncio.gather(*self._reloads, return_exceptions=True)
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
    def texts(self) -> Texts:
        """What guests have to say to a prompt and to the system prompt."""
        return Texts(self._registry)

    @property
    def panels(self) -> Panels:
        """The one panel slot: keys and sizes go in here, what is to be seen comes to the surface."""
        return self.house.panels

    @property
    def report(self) -> LoadReport:
        """How the guests came in, and what was found and not taken."""
        return LoadReport.of(self)

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
        handlers = self._registry.table.handlers
        for guest in handlers.get(event_kind(event), handlers["*"]):
            guest.tell(event)

    def attach(self, surface: Surface) -> None:
        """From now on guests are seen there, and what they said before is shown first."""
        self.house.attach(surface)

    def _why_shut(self) -> str:
        return "not started" if self._house is None else "closed" if self._closing is not None else ""

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
        self._look_around()
        fresh = {manifest.id: manifest for manifest in self.found.guests}
        concerned = [guest for guest in self._in_order if folders is None or guest.manifest.folder in folders]
        told = folders is not None  # somebody wants those, or their files have changed: of all at once a report tells
        gone = [guest for guest in concerned if guest.id not in fresh and not self._stays(guest, told)]
        for guest in gone:
            self._remove(guest)
        self._hot.watch_others(self.found)
        works: list[Awaitable[Any]] = [guest.stop() for guest in gone]
        for manifest in fresh.values():
            known = self.guests.get(manifest.id)
            if folders is not None and manifest.folder not in folders and known not in concerned:
                continue
            if known is not None:
                self._hot.watch(manifest)
                works.append(known.reload(manifest, told=told))
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
        """Find what there is, and whether a guard cannot be among it."""
        self.found = keeping_names(self._search(), self._in_order)
        self._registry.absent = next(map(str, self.found.hidden_guards), "")

    def _add(self, guest: Guest) -> None:
        self.house.guests[guest.id] = guest
        self._in_order.append(guest)
        self._hot.watch(guest.manifest)
        self._registry.forget()

    def _remove(self, guest: Guest) -> None:
        del self.house.guests[guest.id]
        self._in_order.remove(guest)
        self._hot.forget(guest.manifest.folder)
        self._registry.forget()

    def _stays(self, guest: Guest, told: bool) -> bool:
        if why := why_kept(self.found, guest):
            guest.remark(f"not reloaded: {why}")
            if told:
                guest.tell_kept(why)
        return bool(why)

    def _joined(self, guest: Guest) -> None:
        """A fresh process hears of the session that runs already (spec zot 5.5, ours)."""
        if self._session is not None:  # first: to look who wants it takes as long as many have come
            handlers = self.table.handlers
            if guest in handlers.get(event_kind(self._session), handlers["*"]):
                guest.tell(self._session)

    def _shadowed(self, entry: Shadowed) -> None:
        if guest := self.guests.get(entry.guest):
            guest.remark(str(entry))

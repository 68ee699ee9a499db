"""One plugin alone in a host: what `serai guest run`, `status` and `restart` do."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click
import msgspec

from serai.cli import telling
from serai.cli.opening import Options, Status, status_of
from serai.cli.plugin_flags import Given, granted
from serai.cli.tool import parsed, print_result
from serai.errors import NoGuest, NoTool
from serai.host import installation
from serai.host.discovery import DiscoveryResult
from serai.host.guest_manifest import GuestManifest
from serai.host.host import Host
from serai.model.tools import ToolCall
from serai.paths import absolute_path
from serai.plugins.grants import ResolvedPlugin
from serai.plugins.manifest import Permission

if TYPE_CHECKING:
    from serai.app.config import Config
    from serai.host.guest import Guest
    from serai.plugins.package import Package

__all__ = ["Wanted", "call", "show_status", "status", "status_lines"]


class Wanted(NamedTuple):
    """Which tool of which package is to be called, and what it is given for that."""

    package: str
    tool: str
    given: Given
    external_write: bool = False


async def call(wanted: Wanted, arguments: str, config: str, *, as_json: bool) -> Status:
    """Call it once, in a host with nobody else in it."""
    from serai.app.config import Config
    from serai.cli import plugin_reports

    asked = ToolCall(wanted.tool, parsed(arguments), asker="person")
    config_value = parsed(config) if config else None
    loaded = Config.load(os.getcwd())
    path = Path(absolute_path(wanted.package))
    package = plugin_reports.opened(path, loaded)
    manifest = _manifest(path, package, wanted, config_value, plugin_reports.bounds_of(loaded))
    async with _host(lambda: DiscoveryResult(guests=(manifest,)), loaded, command=f"serai guest run {package.manifest.id}") as host:
        known = host.table.tools.get(asked.name)
        if known is None:
            if host.guests[manifest.id].running is None:  # why was told already
                return Status.UNAVAILABLE
            raise NoTool(f"{package.manifest.id} offers no tool {asked.name}", hint=telling.similar(asked.name, host.table.tools))
        result = await host.call_tool(asked)
        if as_json:
            form = {"tool": asked.name, "owner": known.owner.id, "is_error": False} | msgspec.to_builtins(result)
            click.echo(telling.as_json(form))
        else:
            print_result(result)
    return status_of(result.code) if result.is_error else Status.OK


def _manifest(path: Path, package: Package, wanted: Wanted, config: Any, bounds: Any = None) -> GuestManifest:
    """The plugin with just that: the one tool, and what the flags give."""
    said = package.manifest
    if wanted.tool not in (tool.name for tool in said.tools):
        raise NoTool(f"{said.id} has no tool {wanted.tool}", hint=telling.similar(wanted.tool, [tool.name for tool in said.tools]))
    wanted.given.check(said)
    identity = f"user:{said.id}"
    grants = granted(said, wanted.given, ("tool",), identity=identity, digest=package.digest)
    apis = {api for api in ("fs", "request", "websocket") if getattr(wanted.given, api)}
    mine = tuple(one for one in grants.permissions if _given(one, wanted, apis))
    record = ResolvedPlugin(
        identity=identity,
        source="user",
        package_path=str(path),
        package_label=path.name,
        digest=package.digest,
        version=said.version,
        manifest=said,
        enabled_surfaces=("tool",),
        grants=_only(grants, permissions=mine, apis=apis),
        config=config,
    )
    file = path / "plugin.toml" if path.is_dir() else path
    return GuestManifest(
        dialect="yoi",
        name=said.id,
        folder=path,
        file=file,
        scope="ad hoc",
        argv=(),
        version=said.version,
        description=said.description,
        plan=record,
        bounds=bounds,
    )


def _only(grants: Any, *, permissions: tuple[Permission, ...], apis: set[str]) -> Any:
    """The same for these interfaces alone: a plugin's own targets are none of the flags'."""
    without = {api: () for api in ("fs", "request", "websocket") if api not in apis}
    return msgspec.structs.replace(grants, permissions=permissions, **without)


def _given(permission: Permission, wanted: Wanted, apis: set[str]) -> bool:
    if permission.kind == "external_write":
        return wanted.external_write
    return permission.kind != "host_api" or permission.api in apis


@asynccontextmanager
async def _host(search: Callable[[], DiscoveryResult], config: Config, *, command: str) -> AsyncIterator[Host]:
    """A host for what `search` finds, on record as `command`; what went wrong is told on stderr."""
    from serai.host.adapter import HostInfo
    from serai.host.guest_settings import read_person_settings
    from serai.host.trust import Trust
    from serai.record import Recorder

    recorder = Recorder.start(command=command, limits=config.limits)
    with recorder or nullcontext():
        host = Host(
            search,
            about=HostInfo(cwd=config.cwd),
            limits=read_person_settings(config.settings).limits,
            surface=telling.Notices(),
            recorder=recorder,
            trusts=Trust.usual().check,
        )
        try:
            report = await host.start()
            for line in report.lines():
                telling.tell(line)
            yield host
        finally:
            await host.close()


# -- one that lives ---------------------------------------------------------------------------------------------------------------


async def status(name: str, options: Options, *, again: bool, as_json: bool) -> Status:
    """How this plugin is after its start, or after one more by hand."""
    from serai.app.config import Config

    found = options.find()
    manifest = _choose(found, name)
    if manifest.dialect != "yoi":
        raise NoGuest(f"{manifest.id} is no plugin", hint=f"`serai guest show {manifest.name}` shows it")
    if manifest not in found.guests:
        raise NoGuest(
            f"{manifest.id} is not started: it is not granted, or not as it is now", hint="`serai guest grant` lets it in"
        )

    def search() -> DiscoveryResult:
        now = options.find()
        return replace(now, guests=tuple(one for one in now.guests if one.id == manifest.id), problems=(), untrusted=())

    verb = "restart" if again else "status"
    async with _host(search, Config.load(options.cwd), command=f"serai guest {verb} {manifest.name}") as host:
        if again:
            await host.reload(manifest.id)
        guest = host.guests[manifest.id]
        return await show_status(guest, as_json=as_json)


def _choose(found: DiscoveryResult, name: str) -> GuestManifest:
    """By a guest's name, or by a plugin's reference."""
    for manifest in found.guests:
        if manifest.plan is not None and manifest.plan.identity == name:
            return manifest
    return installation.choose(found, name)


async def show_status(guest: Guest, *, as_json: bool) -> Status:
    """The operator's report of an instance (spec yoi 3.8)."""
    running = cast(Any, guest.running)
    if running is None:
        telling.tell(f"{guest.id}: {guest.why_down()}")
        return Status.UNAVAILABLE
    form: dict[str, Any] = telling.masked(msgspec.to_builtins(await running.fresh_status()))
    if as_json:
        click.echo(telling.as_json(form))
    else:
        for line in status_lines(form):
            telling.say(line)
    return Status.UNAVAILABLE if form["lifecycle"] == "Failed" else Status.OK


def status_lines(form: dict[str, Any]) -> Iterator[str]:
    """The same for people: what is empty is left out."""
    yield f"{form['plugin_ref']}: {form['lifecycle']}"
    if (said := form.get("component_status")) is not None:
        yield f"  says {telling.as_json(said)}"
    if error := form.get("last_error"):
        yield f"  last error: {error}"
    counts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in form["dispatch_counters"].items() if count)
    waiting = f"{form['queue_depth']} of {form['queue_capacity']} waiting"
    yield f"  events: {', '.join(filter(None, (waiting, counts)))}"
    for one in form["websocket_connections"]:
        traffic = f"{one['received_text_frames']} received, {one['sent_text_frames']} sent"
        yield f"  websocket {one['url']} for {one['ingress_name']}: {one['state']}, {traffic}"
    for one in form["output_command_results"]:
        yield f"  command {one.get('command_id') or '?'} {one.get('kind') or '?'}: {one['status']}, {one['message']}"
    for one in form["diagnostics"]:
        yield f"  {one['kind']}: {one['message']}"

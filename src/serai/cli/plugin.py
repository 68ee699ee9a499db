"""`serai guest pack`, `wit`, `run`, `status` and `restart`: the commands for plugins alone (spec yoi 19).

The last three open a host with one plugin in it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click
import msgspec

from serai.cli import console
from serai.cli.completion import complete_guests
from serai.cli.options import JSON, ExitCode, GuestOptions, NonEmptyPath, add_guest_options, run_async, to_exit_code
from serai.cli.plugin_grants import GrantOptions, grant_options, to_grants
from serai.cli.tool import print_result, read_arguments
from serai.errors import NoGuest, NoTool, NotWritten
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


class ToolRun(NamedTuple):
    """Which tool of which package is to be called, and what it is given for that."""

    package: str
    tool: str
    given: GrantOptions
    external_write: bool = False


async def call(wanted: ToolRun, arguments: str, config: str, *, as_json: bool) -> ExitCode:
    """Call it once, in a host with nobody else in it."""
    from serai.app.config import Config
    from serai.authoring import plugin_package

    asked = ToolCall(wanted.tool, read_arguments(arguments), asker="person")
    config_value = read_arguments(config) if config else None
    loaded = Config.load(os.getcwd())
    path = Path(absolute_path(wanted.package))
    package = plugin_package.open_package(path, loaded)
    manifest = _build_manifest(path, package, wanted, config_value, plugin_package.read_bounds(loaded))
    async with _host(lambda: DiscoveryResult(guests=(manifest,)), loaded, command=f"serai guest run {package.manifest.id}") as host:
        known = host.table.tools.get(asked.name)
        if known is None:
            if host.guests[manifest.id].running is None:  # why was told already
                return ExitCode.UNAVAILABLE
            raise NoTool(f"{package.manifest.id} offers no tool {asked.name}", hint=console.suggest(asked.name, host.table.tools))
        result = await host.call_tool(asked)
        if as_json:
            form = {"tool": asked.name, "owner": known.owner.id, "is_error": False} | msgspec.to_builtins(result)
            click.echo(console.dump_json(form))
        else:
            print_result(result)
    return to_exit_code(result.code) if result.is_error else ExitCode.OK


def _build_manifest(path: Path, package: Package, wanted: ToolRun, config: Any, bounds: Any = None) -> GuestManifest:
    """The plugin with just that: the one tool, and what the flags give."""
    said = package.manifest
    if wanted.tool not in (tool.name for tool in said.tools):
        raise NoTool(f"{said.id} has no tool {wanted.tool}", hint=console.suggest(wanted.tool, [tool.name for tool in said.tools]))
    wanted.given.check(said)
    identity = f"user:{said.id}"
    grants = to_grants(said, wanted.given, ("tool",), identity=identity, digest=package.digest)
    apis = {api for api in ("fs", "request", "websocket") if getattr(wanted.given, api)}
    mine = tuple(one for one in grants.permissions if _is_given(one, wanted, apis))
    record = ResolvedPlugin(
        identity=identity,
        source="user",
        package_path=str(path),
        package_label=path.name,
        digest=package.digest,
        version=said.version,
        manifest=said,
        enabled_surfaces=("tool",),
        grants=_restrict_grants(grants, permissions=mine, apis=apis),
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


def _restrict_grants(grants: Any, *, permissions: tuple[Permission, ...], apis: set[str]) -> Any:
    """The same for these interfaces alone: a plugin's own targets are none of the flags'."""
    without = {api: () for api in ("fs", "request", "websocket") if api not in apis}
    return msgspec.structs.replace(grants, permissions=permissions, **without)


def _is_given(permission: Permission, wanted: ToolRun, apis: set[str]) -> bool:
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
            surface=console.NoticeSurface(),
            recorder=recorder,
            trusts=Trust.usual().check,
        )
        try:
            report = await host.start()
            for line in report.to_lines():
                console.err(line)
            yield host
        finally:
            await host.close()


# -- one that lives ---------------------------------------------------------------------------------------------------------------


async def run_status(name: str, options: GuestOptions, *, again: bool, as_json: bool) -> ExitCode:
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


async def show_status(guest: Guest, *, as_json: bool) -> ExitCode:
    """The operator's report of an instance (spec yoi 3.8)."""
    running = cast(Any, guest.running)
    if running is None:
        console.err(f"{guest.id}: {guest.explain_down()}")
        return ExitCode.UNAVAILABLE
    form: dict[str, Any] = console.mask_strings(msgspec.to_builtins(await running.refresh_status()))
    if as_json:
        click.echo(console.dump_json(form))
    else:
        for line in render_status(form):
            console.out(line)
    return ExitCode.UNAVAILABLE if form["lifecycle"] == "Failed" else ExitCode.OK


def render_status(form: dict[str, Any]) -> Iterator[str]:
    """The same for people: what is empty is left out."""
    yield f"{form['plugin_ref']}: {form['lifecycle']}"
    if (said := form.get("component_status")) is not None:
        yield f"  says {console.dump_json(said)}"
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


# -- packages and texts -----------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("folder", type=NonEmptyPath())
@click.option("-o", "--output", type=NonEmptyPath(), help="The file; FOLDER.yoi-plugin beside the folder by default.")
@JSON
def pack(folder: str, *, output: str | None, as_json: bool) -> None:
    """Make one file of a plugin's folder: the same files give the same bytes.

    Left out are target/, node_modules/, .git/ and other packages. What is packed was checked, and never executed; a file that is
    there already is replaced.
    """
    from serai.authoring import plugin_package

    report = plugin_package.pack(folder, output)
    if as_json:
        click.echo(console.dump_json(report))
        return
    package = report["package"]
    console.out(f"packed {package['package']} {package['version']}: {report['output_path']}")
    console.out(f"  {package['digest']}, {len(package['entries'])} files")


@click.command()
@click.option("--into", type=NonEmptyPath(file_okay=False, path_type=Path), help="Write the files into this folder.")
@JSON
def wit(*, into: Path | None, as_json: bool) -> None:
    """Print the interfaces of plugins as WIT: the two worlds, and what a host offers them."""
    files = dict(_read_wit_files())
    if into is None:
        if as_json:
            click.echo(console.dump_json({"files": files}))
        else:
            for name, text in files.items():
                click.echo(f"// {name}\n{text}")
        return
    for name, text in files.items():
        file = into / name
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        except OSError as error:
            raise NotWritten(f"cannot be written: {error.strerror}", who=str(file)) from None
        if not as_json:
            console.out(f"wrote {file}")
    if as_json:
        click.echo(console.dump_json({"folder": str(into.absolute()), "files": list(files)}))


def _read_wit_files() -> list[tuple[str, str]]:
    """By their paths, as tool chains want them below one folder."""
    from importlib.resources import files

    root = files("serai.dialects.yoi") / "wit"
    found, waiting = [], [("", root)]
    while waiting:
        prefix, folder = waiting.pop()
        for entry in folder.iterdir():
            if entry.is_dir():
                waiting.append((f"{prefix}{entry.name}/", entry))
            elif entry.name.endswith(".wit"):
                found.append((f"{prefix}{entry.name}", entry.read_text(encoding="utf-8")))
    return sorted(found)


# -- one call ---------------------------------------------------------------------------------------------------------------------


@click.command("run")
@click.argument("package", type=NonEmptyPath())
@click.argument("tool")
@click.argument("arguments", default="{}", metavar="[JSON]")
@grant_options
@click.option("--external-write", is_flag=True, help="It may change things elsewhere, where its tool says that it does.")
@click.option("--config", metavar="JSON", default="", help="What it is started with.")
@JSON
def run_(package: str, tool: str, arguments: str, *, given: GrantOptions, external_write: bool, config: str, as_json: bool) -> None:
    """Call one tool of a plugin, which has nothing but what is given here.

    PACKAGE is a plugin's folder or file; nothing of your settings is granted to it. JSON are the arguments, {} by default; - reads
    them from stdin and @FILE from a file. Your own act, on record; the status is that of `serai tool call`.
    """

    wanted = ToolRun(package, tool, given, external_write=external_write)
    run_async(call(wanted, arguments, config, as_json=as_json))


# -- one that lives ---------------------------------------------------------------------------------------------------------------

NAME = click.argument("name", shell_complete=complete_guests)


@click.command()
@NAME
@add_guest_options
@JSON
def status(name: str, *, options: GuestOptions, as_json: bool) -> None:
    """Start this plugin, and show how it is.

    It is a fresh instance in this very process, not one that another command runs: what it shows is how a start goes.
    """

    run_async(run_status(name, options, again=False, as_json=as_json))


@click.command()
@NAME
@add_guest_options
@JSON
def restart(name: str, *, options: GuestOptions, as_json: bool) -> None:
    """Start this plugin, start it once more by hand, and show how it is.

    Both are instances of this very process: one that another command runs has its own supervisor, and is left alone.
    """

    run_async(run_status(name, options, again=True, as_json=as_json))

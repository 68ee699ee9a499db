"""`serai guest`, and its alias `serai ext`: which guests there are, how they come and go, and their logs (spec zot 1.4)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from serai import paths
from serai.cli import telling
from serai.cli.authoring import bundle, new
from serai.cli.checking import check
from serai.cli.completion import complete_guests
from serai.cli.guest_logs import logs
from serai.cli.main import Lazy
from serai.cli.opening import JSON, PATH, Options, Status, opened, run, with_options
from serai.cli.showing import show
from serai.errors import BadSettings
from serai.host import installation

if TYPE_CHECKING:
    from serai.host.discovery import DiscoveryResult
    from serai.host.guest_manifest import GuestManifest
    from serai.host.load_report import LoadReportRow

__all__ = ["ext", "guest"]

NAME = click.argument("name", shell_complete=complete_guests)
_COLUMNS = ("scope", "name", "version", "enabled", "language", "dir")
# Imported when they are called, as in `serai.cli.main`.
PLUGINS = {
    "build": ("serai.cli.building:build", "Make the component of the plugin in FOLDER, the file that its plugin.toml names."),
    "grant": (
        "serai.cli.plugin_grants:grant",
        "Let a plugin in, with what it may do; shows first what it asks for, and what has changed since the last time.",
    ),
    "pack": ("serai.cli.plugins:pack", "Make one file of a plugin's folder: the same files give the same bytes."),
    "restart": ("serai.cli.plugins:restart", "Start this plugin, start it once more by hand, and show how it is."),
    "revoke": (
        "serai.cli.plugin_grants:revoke",
        "Take from a plugin what `serai guest grant` gave it: it stays, and is not started.",
    ),
    "run": ("serai.cli.plugins:run_", "Call one tool of a plugin, which has nothing but what is given here."),
    "status": ("serai.cli.plugins:status", "Start this plugin, and show how it is."),
    "wit": ("serai.cli.plugins:wit", "Print the interfaces of plugins as WIT: the two worlds, and what a host offers them."),
}
_NOBODY = "there are no guests; `serai guest add PATH` adds one"
_LIVE = ("scope", "name", "version", "state", "seconds", "tools", "commands", "dir")


@click.group()
def guest() -> None:
    """Show, add, remove and switch guests, read their logs; begin and check one of your own.

    NAME is a guest's id, the name in its manifest, or that of its folder.
    """


# -- what there is ----------------------------------------------------------------------------------------------------------------


@guest.command("list")
@with_options
@click.option("--live", is_flag=True, help="Start them, and show how that went and what each offers.")
@JSON
def list_(*, options: Options, live: bool, as_json: bool) -> None:
    """The guests there are; starts none unless it is to show them live."""
    if live:
        run(_list_live(options, as_json=as_json))
        return
    found = options.find()
    plugins = _plugins(options, found)
    _tell(found, frozenset(one["message"] for item in plugins for one in item["diagnostics"]))
    states = [entry for entry in _states(found) if entry[0].dialect != "yoi"]
    _show(states, {}, as_json=as_json)
    if plugins:
        from serai.cli import plugin_items

        plugin_items.show_list(plugins, str(options.cwd), as_json=as_json)
    elif not states:
        click.echo(_NOBODY, err=True)


def _plugins(options: Options, found: DiscoveryResult) -> list[dict[str, Any]]:
    """They have a report of their own (spec yoi 19). Who has none does not pay for the import."""
    from serai.app.config import Config

    seen = bool(found.problems) or any(one.dialect == "yoi" for one in found.all())
    if not seen and "plugins" not in Config.load(options.cwd).settings:
        return []
    from serai.cli import plugin_items

    return plugin_items.listed(plugin_items.Search.of(options, found))


async def _list_live(options: Options, *, as_json: bool) -> Status:
    async with opened(options, command="serai guest list --live") as host:
        states = _states(host.found)
        _show(states, {row.id: row for row in host.report.guests}, as_json=as_json)
        if not states:
            click.echo(_NOBODY, err=True)
    return Status.OK


def _show(states: list[tuple[GuestManifest, str, str]], live: dict[str, LoadReportRow], *, as_json: bool) -> None:
    if as_json:
        for manifest, state, reason in states:
            form = _form(manifest) | {"state": state} | ({"reason": reason} if reason else {})
            row = live.get(manifest.id) if state == "found" else None
            click.echo(telling.as_json(form | (_live_form(row) if row else {})))
    elif states and live:
        telling.table([_LIVE, *(_live_row(manifest, state, live) for manifest, state, _ in states)])
    elif states:
        telling.table([_COLUMNS, *(_row(manifest) for manifest, _, _ in states)])


def _states(found: DiscoveryResult) -> list[tuple[GuestManifest, str, str]]:
    """Every guest, whether it would be started, and why not."""
    states = [(manifest, "found", "") for manifest in found.guests]
    states += [(manifest, "disabled", "") for manifest in found.disabled]
    states += [(aside.manifest, "refused", aside.reason) for aside in found.refused]
    states += [(aside.manifest, "untrusted", aside.reason) for aside in found.untrusted]
    return states + [(aside.manifest, "shadowed", aside.reason) for aside in found.shadowed]


def _row(manifest: GuestManifest) -> tuple[str, ...]:
    enabled = "yes" if manifest.active else "no"
    language = manifest.language or "-"
    return manifest.scope, manifest.name, manifest.version or "-", enabled, language, str(manifest.folder)


def _live_row(manifest: GuestManifest, state: str, live: dict[str, LoadReportRow]) -> tuple[str, ...]:
    cells = [manifest.scope, manifest.name, manifest.version or "-"]
    row = live.get(manifest.id) if state == "found" else None
    if row is None:
        return (*cells, state, "-", "-", "-", str(manifest.folder))
    tools, commands = (", ".join(names) or "-" for names in (row.tools, row.commands))
    return (*cells, row.state, f"{row.seconds:.2f}", tools, commands, str(manifest.folder))


def _live_form(row: LoadReportRow) -> dict[str, Any]:
    """How it went; what may quote a guest's stderr is masked as on stderr."""
    form: dict[str, Any] = msgspec.to_builtins(row)
    return form | {key: telling.masked(form[key]) for key in ("why", "error", "remarks") if key in form}


def _form(manifest: GuestManifest) -> dict[str, Any]:
    settings = manifest.settings
    return {
        "id": manifest.id,
        "name": manifest.name,
        "dialect": manifest.dialect,
        "scope": manifest.scope,
        "version": manifest.version,
        "language": manifest.language,
        "description": manifest.description,
        "folder": str(manifest.folder),
        "command": manifest.argv,
        "enabled": manifest.active,
        "guard": settings.guard,
        "asks": {"env": settings.asked_env, "replace": settings.asked_replace, "keys": settings.asked_keys},
    }


def _tell(found: DiscoveryResult, told: frozenset[str] = frozenset()) -> None:
    """Who does not come in as it should; what is told elsewhere is left out."""
    for problem in found.problems:
        if any(text in problem.reason for text in told):
            continue
        telling.tell(f"extension load: {problem}")
    for aside in found.untrusted:
        what = f"{aside.manifest.id} in {aside.manifest.folder}: {aside.reason}"
        telling.tell(f"not trusted: {what}; `serai trust` in that folder lets it start")
    for aside in found.shadowed:
        telling.tell(f"shadowed: {aside.manifest.id} in {aside.manifest.folder}: {aside.reason}")
    for hidden in found.hidden_guards:
        telling.tell(f"guard: {hidden}; nothing runs without it")


# -- coming and going -------------------------------------------------------------------------------------------------------------


@guest.command()
@click.argument("source", type=PATH, metavar="PATH|URL")
@click.option("--name", default="", help="The name of its folder among your guests; that of PATH or URL by default.")
@with_options
@JSON
def add(source: str, *, name: str, options: Options, as_json: bool) -> None:
    """Copy or clone a guest to your own guests, and tell what it asks for."""
    if installation.is_url(source):
        run(_clone(source, name, options, as_json=as_json))
    else:
        _added(installation.add(source, name=name), options, as_json=as_json)


async def _clone(url: str, name: str, options: Options, *, as_json: bool) -> Status:
    _added(await installation.add_url(url, name=name), options, as_json=as_json)
    return Status.OK


def _added(folder: Path, options: Options, *, as_json: bool) -> None:
    found = replace(options, installed=True).find()
    manifest, state, reason = next((entry for entry in _states(found) if entry[0].folder == folder), (None, "", ""))
    if as_json:
        click.echo(telling.as_json({"folder": str(folder)} | (_form(manifest) if manifest else {})))
    else:
        telling.say(f"added {manifest.id if manifest else folder.name}: {folder}")
    for problem in found.problems:
        if problem.folder == folder:
            telling.tell(f"it cannot be started: {problem.reason}")
    if manifest is not None and manifest.dialect == "yoi" and manifest.plan is None:
        telling.tell(f"it was granted nothing yet: `serai guest grant {manifest.name}` shows what it asks for, and lets it in")
    elif state == "disabled":
        telling.tell(f"it is disabled; `serai guest enable {folder.name}` switches it on")
    elif state == "shadowed":
        telling.tell(f"it is not started here: {reason}")
    if manifest is not None and manifest.settings.asked:
        telling.tell(f"it asks for {', '.join(manifest.settings.asked)}; to grant that, write into {_settings()}:")
        for line in _grants(manifest):
            click.echo(telling.safe(line), err=True)


def _grants(manifest: GuestManifest) -> Iterator[str]:
    """The lines of settings that would give a guest all it asks for."""
    yield f"[guest.{telling.as_json(manifest.id)}]"
    wants = manifest.settings
    for key, names in (("env", wants.asked_env), ("replace", wants.asked_replace), ("keys", wants.asked_keys)):
        if names:
            yield f"{key} = {telling.as_json(names)}"


def _settings() -> str:
    return os.path.join(paths.config_folder(), "config.toml")


@guest.command()
@NAME
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@with_options
@JSON
def remove(name: str, *, yes: bool, options: Options, as_json: bool) -> None:
    """Delete a guest's folder."""
    manifest = installation.choose(options.find(), name)
    yes = yes or manifest.scope == "ad hoc" or _confirmed(manifest.folder)  # an ad hoc one is refused anyway
    if yes:
        installation.remove(manifest)
    else:
        click.echo("aborted", err=True)
    if as_json:
        click.echo(telling.as_json({"id": manifest.id, "folder": str(manifest.folder), "removed": yes}))
    elif yes:
        telling.say(f"removed {manifest.id}: {manifest.folder}")


def _confirmed(folder: Path) -> bool:
    click.echo(f"remove {telling.safe(str(folder))} ? [y/N] ", nl=False, err=True)
    return sys.stdin.readline().strip() in ("y", "Y")


@guest.command()
@NAME
@with_options
@JSON
def enable(name: str, *, options: Options, as_json: bool) -> None:
    """Switch a guest on in its manifest, or in your settings where its manifest has no switch."""
    _switch(name, options, enabled=True, as_json=as_json)


@guest.command()
@NAME
@with_options
@JSON
def disable(name: str, *, options: Options, as_json: bool) -> None:
    """Switch a guest off in its manifest, or in your settings where its manifest has no switch: it stays, and is not started."""
    _switch(name, options, enabled=False, as_json=as_json)


def _switch(name: str, options: Options, *, enabled: bool, as_json: bool) -> None:
    manifest = installation.choose(options.find(), name)
    in_settings = not installation.has_switch(manifest)
    if in_settings:
        from serai.app.settings_writer import set_guest_enabled

        set_guest_enabled(_settings(), manifest.id, enabled=enabled)
        _must_be_on(manifest, options, enabled)
    else:
        installation.set_enabled(manifest, enabled)
    if as_json:
        form = {"id": manifest.id, "folder": str(manifest.folder), "enabled": enabled}
        click.echo(telling.as_json(form | ({"settings": _settings()} if in_settings else {})))
    else:
        where = f"in {_settings()}" if in_settings else str(manifest.folder)
        telling.say(f"{'enabled' if enabled else 'disabled'} {manifest.id}: {where}")
    for aside in options.find().untrusted:
        if aside.manifest.folder == manifest.folder:  # its manifest is another now, so it is another guest
            telling.tell(f"{manifest.id}: {aside.reason}; `serai trust` lets it in")


def _must_be_on(manifest: GuestManifest, options: Options, enabled: bool) -> None:
    """A list of those that are off is stronger than a switch: it may have been written by somebody else (spec piglet 1.2)."""
    if enabled and any(other.folder == manifest.folder for other in options.find().disabled):
        raise BadSettings(
            f"{manifest.id} is still off",
            who=_settings(),
            hint=f"take {manifest.name} from `disabled_extensions`, here or in piglet's config.yaml, or see what the project sets",
        )


# -- for authors ------------------------------------------------------------------------------------------------------------------

for command in (show, logs, new, check, bundle):
    guest.add_command(command)
for name, (place, line) in PLUGINS.items():
    guest.add_command(Lazy(name, place, line))

ext = click.Group("ext", commands={**guest.commands, "install": add, "rm": remove})
ext.help = """The same as `serai guest`, in the words of extensions' authors.

NAME is a guest's id, the name in its manifest, or that of its folder. `install` is `add`, `rm` is `remove`."""

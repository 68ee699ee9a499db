"""`serai guest`, and its alias `serai ext`: list, show, add, remove, enable and disable guests, and their logs (spec zot 1.4).

`serai guest logs` prints what a guest has written to stderr, and the host's remarks about it; `serai guest show` one guest, its
settings and all that it offers.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any

import click
import msgspec

from serai import paths
from serai.cli import console
from serai.cli.command_table import LazyCommand
from serai.cli.completion import complete_guests
from serai.cli.guest_authoring import bundle, check, new
from serai.cli.options import JSON, PATH, ExitCode, GuestOptions, add_guest_options, open_host, run_async
from serai.errors import BadSettings, NoGuest
from serai.host import installation
from serai.host.guest_log import build_log_path, open_log
from serai.model.contributions import Contributions
from serai.plain_text import escape_text
from serai.record import secret_patterns

if TYPE_CHECKING:
    from serai.host.discovery import DiscoveryResult
    from serai.host.guest_manifest import GuestManifest
    from serai.host.host import LoadReportRow

# How often a log that is followed is looked at, in seconds: quick for an eye, nothing for the machine.
_LOOK = 0.2
# A key that begins in a text and has not ended with it, and the least that begins one (as `secret_patterns` knows it).
_IN_KEY = re.compile(rb"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----[^\"'-]*+\Z")
_KEY = b"-----BEGIN " + b"PRIVATE KEY-----\n"


@click.command()
@click.argument("name", shell_complete=complete_guests)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on, until Ctrl-C.")
@click.option("--lines", "count", type=click.IntRange(0), help="Only so many, at the end.")
@add_guest_options
@JSON
def logs(name: str, *, follow: bool, count: int | None, options: GuestOptions, as_json: bool) -> None:
    """Print a guest's log: its stderr, and the host's remarks. What looks like a secret is masked."""
    path, guest = _find_log(name, options)
    older, newer = _read_log(path.with_name(f"{path.name}.1")), _read_log(path)
    whole, rest = _split_lines(older + newer) if follow else (older + newer, b"")
    readable = _LogMask()
    lines = list(readable.mask_lines(whole))
    for line in lines if count is None else lines[max(len(lines) - count, 0) :]:
        _print_log_line(line, guest, as_json=as_json)
    if follow:
        for whole in _follow(path, len(newer), rest):
            for line in readable.mask_lines(whole):
                _print_log_line(line, guest, as_json=as_json)


def _read_log(file: Path) -> bytes:
    if not file.is_file():  # a pipe would be waited for, for ever
        return b""
    try:
        with open_log(file) as opened:
            return opened.read()
    except OSError as error:
        raise NoGuest(f"the log cannot be read: {error.strerror}", who=str(file), hint="make it readable for you") from None


def _find_log(name: str, options: GuestOptions) -> tuple[Path, str]:
    """Where the log of that guest lies, and the guest's name. One that was removed has its log still, by the name it had."""
    nobody = None
    try:
        known = installation.choose(options.find(), name).name
    except NoGuest as error:
        known, nobody = name.partition(":")[2] or name, error
    path = build_log_path(Path(paths.state_folder()) / "logs", known)
    if not path.is_file():
        hint = f"{nobody.message}\n{nobody.hint}" if nobody else "it was never started"
        raise NoGuest(f'no log for "{name}" at {path}', hint=hint)
    return path, known


def _print_log_line(line: str, guest: str, *, as_json: bool) -> None:
    click.echo(console.dump_json({"guest": guest, "line": line}) if as_json else escape_text(line))


class _LogMask:
    """The lines of a log, each masked by itself, but for a key: that goes over several, which may not all be written yet."""

    def __init__(self) -> None:
        self._key = b""  # where a key began that has not ended, else nothing

    def mask_lines(self, text: bytes) -> Iterator[str]:
        masked = b"".join(map(self._mask_line, text.splitlines(keepends=True)))
        if masked:
            yield from masked.decode(errors="backslashreplace").removesuffix("\n").split("\n")

    def _mask_line(self, line: bytes) -> bytes:
        begun, text = len(self._key), self._key + line
        self._key = _KEY if _IN_KEY.search(text) else b""
        return secret_patterns.mask(text)[begun:]  # as long as it was


def _split_lines(text: bytes) -> tuple[bytes, bytes]:
    """Whole lines, and the beginning of the next."""
    end = text.rfind(b"\n") + 1
    return text[:end], text[end:]


def _follow(path: Path, place: int, rest: bytes) -> Iterator[bytes]:
    """What is written behind `place` from now on, in whole lines. A log may be cut, or another file take its name: that goes on."""
    inode = None
    while True:
        sleep(_LOOK)
        try:
            with open_log(path) as file:
                now = os.fstat(file.fileno())
                if inode not in (None, now.st_ino) or now.st_size < place:
                    place, rest = 0, b""
                file.seek(place)
                fresh = file.read()
        except OSError:  # it may come back
            continue
        inode, place = now.st_ino, place + len(fresh)
        whole, rest = _split_lines(rest + fresh)
        yield whole


_WIDE = 100  # characters of what is said of a contribution; all of it is for --json


@click.command()
@click.argument("name", shell_complete=complete_guests)
@add_guest_options
@click.option("--live", is_flag=True, help="Start a plugin too, and show how it is.")
@JSON
def show(name: str, *, options: GuestOptions, live: bool, as_json: bool) -> None:
    """Start the guests, and show all that this one offers and what counts for it.

    One that is off, or that nobody trusts, is not started for that. A plugin is only looked at, and nothing is started, unless it
    is to be shown live.
    """
    found = options.find()
    try:
        manifest = installation.choose(found, name)
    except NoGuest:  # a plugin also goes by its reference, and may be missing or broken
        if not _show_plugin(name, options, found, live=live, as_json=as_json):
            raise
        return
    if manifest.dialect == "yoi" and _show_plugin(name, options, found, live=live, as_json=as_json):
        return
    if manifest in found.guests:
        run_async(_show_live(manifest, options, as_json=as_json))
    else:
        _show_guest(manifest, _explain_not_started(found, manifest), Contributions(), as_json=as_json)


def _show_plugin(name: str, options: GuestOptions, found: DiscoveryResult, *, live: bool, as_json: bool) -> bool:
    """Its report (spec yoi 19); whether there is such a plugin."""
    from serai.cli import plugin_report

    item = plugin_report.find_item(plugin_report.PluginSearch.of(options, found), name)
    if item is None:
        return False
    plugin_report.show_item(item, as_json=as_json)
    if live:
        from serai.cli import plugin

        run_async(plugin.run_status(item["reference"], options, again=False, as_json=as_json))
    return True


async def _show_live(manifest: GuestManifest, options: GuestOptions, *, as_json: bool) -> ExitCode:
    async with open_host(options, command=f"serai guest show {manifest.name}") as host:
        guest = host.guests[manifest.id]
        status = ExitCode.OK if guest.running is not None else ExitCode.UNAVAILABLE
        _show_guest(manifest, str(guest.state), guest.contributions, as_json=as_json)
    return status


def _explain_not_started(found: DiscoveryResult, manifest: GuestManifest) -> str:
    asides = (*found.refused, *found.untrusted, *found.shadowed)
    reasons = [aside.reason for aside in asides if aside.manifest == manifest]
    return f"not started: {reasons[0]}" if reasons else "disabled"


def _show_guest(manifest: GuestManifest, state: str, offers: Contributions, *, as_json: bool) -> None:
    settings = manifest.settings
    if as_json:
        about = {"id": manifest.id, "scope": manifest.scope, "version": manifest.version, "folder": str(manifest.folder)}
        treated = {"command": manifest.argv, "guard": settings.guard, "has": settings.grants, "asks": settings.asked}
        offered = {kind: [_dump_contribution(one) for one in records] for kind, records in _iter_kinds(offers)}
        click.echo(console.dump_json({**about, "state": state, **treated, "offers": offered}))
        return
    console.out(f"{manifest.id} {manifest.version}".rstrip() + f": {state}" + (", a guard" if settings.guard else ""))
    console.out(f"  {manifest.scope}, in {manifest.folder}; runs {shlex.join(manifest.argv)}")
    for what, names in (("has", settings.grants), ("asks for", settings.asked)):
        if names:
            console.out(f"  {what} {', '.join(names)}")
    for kind, records in _iter_kinds(offers):
        for one in records:
            console.out(f"  {kind.removesuffix('s').replace('_', ' ')} {_format_contribution(one)}")


def _iter_kinds(offers: Contributions) -> Iterator[tuple[str, tuple[msgspec.Struct, ...]]]:
    """Each kind of which there is something, in the order of the record."""
    for field in offers.__struct_fields__:
        if what := getattr(offers, field):
            yield field, what


def _dump_contribution(one: msgspec.Struct) -> dict[str, Any]:
    form: dict[str, Any] = msgspec.to_builtins(one, order="sorted")
    return form


def _format_contribution(one: msgspec.Struct) -> str:
    """Its name first, then what is said of it; long texts are cut, a schema is for --json."""
    form = _dump_contribution(one)
    name = form.pop("name", None) or form.pop("key", None) or form.pop("title", None) or form.pop("api", "")
    form.pop("schema", None)
    about = " ".join(str(form.pop("description", "") or form.pop("content", "")).split())
    about = about if len(about) <= _WIDE else about[: _WIDE - 1] + "…"
    said = [_format_field(key, value) for key, value in form.items() if value not in ("", 0, False, [], None)]
    return f"{name}: {about}".removesuffix(": ") + (f" ({'; '.join(said)})" if said else "")


def _format_field(key: str, value: object) -> str:
    key = key.replace("_", " ")
    return key if value is True else f"{key} {', '.join(map(str, value)) if isinstance(value, list) else value}"


NAME = click.argument("name", shell_complete=complete_guests)
_COLUMNS = ("scope", "name", "version", "enabled", "language", "dir")
# Imported when they are called, as in `serai.cli.command_table`.
PLUGINS = {
    "build": (
        "serai.cli.guest_authoring:build",
        "Make the component of the plugin in FOLDER, the file that its plugin.toml names.",
    ),
    "grant": (
        "serai.cli.plugin_grants:grant",
        "Let a plugin in, with what it may do; shows first what it asks for, and what has changed since the last time.",
    ),
    "pack": ("serai.cli.plugin:pack", "Make one file of a plugin's folder: the same files give the same bytes."),
    "restart": ("serai.cli.plugin:restart", "Start this plugin, start it once more by hand, and show how it is."),
    "revoke": (
        "serai.cli.plugin_grants:revoke",
        "Take from a plugin what `serai guest grant` gave it: it stays, and is not started.",
    ),
    "run": ("serai.cli.plugin:run_", "Call one tool of a plugin, which has nothing but what is given here."),
    "status": ("serai.cli.plugin:status", "Start this plugin, and show how it is."),
    "wit": ("serai.cli.plugin:wit", "Print the interfaces of plugins as WIT: the two worlds, and what a host offers them."),
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
@add_guest_options
@click.option("--live", is_flag=True, help="Start them, and show how that went and what each offers.")
@JSON
def list_(*, options: GuestOptions, live: bool, as_json: bool) -> None:
    """The guests there are; starts none unless it is to show them live."""
    if live:
        run_async(_list_live(options, as_json=as_json))
        return
    found = options.find()
    plugins = _list_plugins(options, found)
    _report_problems(found, frozenset(one["message"] for item in plugins for one in item["diagnostics"]))
    states = [entry for entry in _list_states(found) if entry[0].dialect != "yoi"]
    _print_states(states, {}, as_json=as_json)
    if plugins:
        from serai.cli import plugin_report

        plugin_report.show_list(plugins, str(options.cwd), as_json=as_json)
    elif not states:
        click.echo(_NOBODY, err=True)


def _list_plugins(options: GuestOptions, found: DiscoveryResult) -> list[dict[str, Any]]:
    """They have a report of their own (spec yoi 19). Who has none does not pay for the import."""
    from serai.app.config import Config

    seen = bool(found.problems) or any(one.dialect == "yoi" for one in found.iter_all())
    if not seen and "plugins" not in Config.load(options.cwd).settings:
        return []
    from serai.cli import plugin_report

    return plugin_report.list_plugins(plugin_report.PluginSearch.of(options, found))


async def _list_live(options: GuestOptions, *, as_json: bool) -> ExitCode:
    async with open_host(options, command="serai guest list --live") as host:
        states = _list_states(host.found)
        _print_states(states, {row.id: row for row in host.report.guests}, as_json=as_json)
        if not states:
            click.echo(_NOBODY, err=True)
    return ExitCode.OK


def _print_states(states: list[tuple[GuestManifest, str, str]], live: dict[str, LoadReportRow], *, as_json: bool) -> None:
    if as_json:
        for manifest, state, reason in states:
            form = _dump_manifest(manifest) | {"state": state} | ({"reason": reason} if reason else {})
            row = live.get(manifest.id) if state == "found" else None
            click.echo(console.dump_json(form | (_dump_live(row) if row else {})))
    elif states and live:
        console.print_table([_LIVE, *(_build_live_row(manifest, state, live) for manifest, state, _ in states)])
    elif states:
        console.print_table([_COLUMNS, *(_build_row(manifest) for manifest, _, _ in states)])


def _list_states(found: DiscoveryResult) -> list[tuple[GuestManifest, str, str]]:
    """Every guest, whether it would be started, and why not."""
    states = [(manifest, "found", "") for manifest in found.guests]
    states += [(manifest, "disabled", "") for manifest in found.disabled]
    states += [(aside.manifest, "refused", aside.reason) for aside in found.refused]
    states += [(aside.manifest, "untrusted", aside.reason) for aside in found.untrusted]
    return states + [(aside.manifest, "shadowed", aside.reason) for aside in found.shadowed]


def _build_row(manifest: GuestManifest) -> tuple[str, ...]:
    enabled = "yes" if manifest.active else "no"
    language = manifest.language or "-"
    return manifest.scope, manifest.name, manifest.version or "-", enabled, language, str(manifest.folder)


def _build_live_row(manifest: GuestManifest, state: str, live: dict[str, LoadReportRow]) -> tuple[str, ...]:
    cells = [manifest.scope, manifest.name, manifest.version or "-"]
    row = live.get(manifest.id) if state == "found" else None
    if row is None:
        return (*cells, state, "-", "-", "-", str(manifest.folder))
    tools, commands = (", ".join(names) or "-" for names in (row.tools, row.commands))
    return (*cells, row.state, f"{row.seconds:.2f}", tools, commands, str(manifest.folder))


def _dump_live(row: LoadReportRow) -> dict[str, Any]:
    """How it went; what may quote a guest's stderr is masked as on stderr."""
    form: dict[str, Any] = msgspec.to_builtins(row)
    return form | {key: console.mask_strings(form[key]) for key in ("why", "error", "remarks") if key in form}


def _dump_manifest(manifest: GuestManifest) -> dict[str, Any]:
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


def _report_problems(found: DiscoveryResult, told: frozenset[str] = frozenset()) -> None:
    """Who does not come in as it should; what is told elsewhere is left out."""
    for problem in found.problems:
        if any(text in problem.reason for text in told):
            continue
        console.err(f"extension load: {problem}")
    for aside in found.untrusted:
        what = f"{aside.manifest.id} in {aside.manifest.folder}: {aside.reason}"
        console.err(f"not trusted: {what}; `serai trust` in that folder lets it start")
    for aside in found.shadowed:
        console.err(f"shadowed: {aside.manifest.id} in {aside.manifest.folder}: {aside.reason}")
    for hidden in found.hidden_guards:
        console.err(f"guard: {hidden}; nothing runs without it")


# -- coming and going -------------------------------------------------------------------------------------------------------------


@guest.command()
@click.argument("source", type=PATH, metavar="PATH|URL")
@click.option("--name", default="", help="The name of its folder among your guests; that of PATH or URL by default.")
@add_guest_options
@JSON
def add(source: str, *, name: str, options: GuestOptions, as_json: bool) -> None:
    """Copy or clone a guest to your own guests, and tell what it asks for."""
    if installation.is_url(source):
        run_async(_clone(source, name, options, as_json=as_json))
    else:
        _report_added(installation.add(source, name=name), options, as_json=as_json)


async def _clone(url: str, name: str, options: GuestOptions, *, as_json: bool) -> ExitCode:
    _report_added(await installation.add_url(url, name=name), options, as_json=as_json)
    return ExitCode.OK


def _report_added(folder: Path, options: GuestOptions, *, as_json: bool) -> None:
    found = replace(options, installed=True).find()
    manifest, state, reason = next((entry for entry in _list_states(found) if entry[0].folder == folder), (None, "", ""))
    if as_json:
        click.echo(console.dump_json({"folder": str(folder)} | (_dump_manifest(manifest) if manifest else {})))
    else:
        console.out(f"added {manifest.id if manifest else folder.name}: {folder}")
    for problem in found.problems:
        if problem.folder == folder:
            console.err(f"it cannot be started: {problem.reason}")
    if manifest is not None and manifest.dialect == "yoi" and manifest.plan is None:
        console.err(f"it was granted nothing yet: `serai guest grant {manifest.name}` shows what it asks for, and lets it in")
    elif state == "disabled":
        console.err(f"it is disabled; `serai guest enable {folder.name}` switches it on")
    elif state == "shadowed":
        console.err(f"it is not started here: {reason}")
    if manifest is not None and manifest.settings.asked:
        console.err(f"it asks for {', '.join(manifest.settings.asked)}; to grant that, write into {_get_config_file()}:")
        for line in _render_grants(manifest):
            click.echo(escape_text(line), err=True)


def _render_grants(manifest: GuestManifest) -> Iterator[str]:
    """The lines of settings that would give a guest all it asks for."""
    yield f"[guest.{console.dump_json(manifest.id)}]"
    wants = manifest.settings
    for key, names in (("env", wants.asked_env), ("replace", wants.asked_replace), ("keys", wants.asked_keys)):
        if names:
            yield f"{key} = {console.dump_json(names)}"


def _get_config_file() -> str:
    return os.path.join(paths.config_folder(), "config.toml")


@guest.command()
@NAME
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@add_guest_options
@JSON
def remove(name: str, *, yes: bool, options: GuestOptions, as_json: bool) -> None:
    """Delete a guest's folder."""
    manifest = installation.choose(options.find(), name)
    yes = yes or manifest.scope == "ad hoc" or _confirm(manifest.folder)  # an ad hoc one is refused anyway
    if yes:
        installation.remove(manifest)
    else:
        click.echo("aborted", err=True)
    if as_json:
        click.echo(console.dump_json({"id": manifest.id, "folder": str(manifest.folder), "removed": yes}))
    elif yes:
        console.out(f"removed {manifest.id}: {manifest.folder}")


def _confirm(folder: Path) -> bool:
    click.echo(f"remove {escape_text(str(folder))} ? [y/N] ", nl=False, err=True)
    return sys.stdin.readline().strip() in ("y", "Y")


@guest.command()
@NAME
@add_guest_options
@JSON
def enable(name: str, *, options: GuestOptions, as_json: bool) -> None:
    """Switch a guest on in its manifest, or in your settings where its manifest has no switch."""
    _switch(name, options, enabled=True, as_json=as_json)


@guest.command()
@NAME
@add_guest_options
@JSON
def disable(name: str, *, options: GuestOptions, as_json: bool) -> None:
    """Switch a guest off in its manifest, or in your settings where its manifest has no switch: it stays, and is not started."""
    _switch(name, options, enabled=False, as_json=as_json)


def _switch(name: str, options: GuestOptions, *, enabled: bool, as_json: bool) -> None:
    manifest = installation.choose(options.find(), name)
    in_settings = not installation.has_switch(manifest)
    if in_settings:
        from serai.app.settings_writer import set_guest_enabled

        set_guest_enabled(_get_config_file(), manifest.id, enabled=enabled)
        _check_enabled(manifest, options, enabled)
    else:
        installation.set_enabled(manifest, enabled)
    if as_json:
        form = {"id": manifest.id, "folder": str(manifest.folder), "enabled": enabled}
        click.echo(console.dump_json(form | ({"settings": _get_config_file()} if in_settings else {})))
    else:
        where = f"in {_get_config_file()}" if in_settings else str(manifest.folder)
        console.out(f"{'enabled' if enabled else 'disabled'} {manifest.id}: {where}")
    for aside in options.find().untrusted:
        if aside.manifest.folder == manifest.folder:  # its manifest is another now, so it is another guest
            console.err(f"{manifest.id}: {aside.reason}; `serai trust` lets it in")


def _check_enabled(manifest: GuestManifest, options: GuestOptions, enabled: bool) -> None:
    """A list of those that are off is stronger than a switch: it may have been written by somebody else (spec piglet 1.2)."""
    if enabled and any(other.folder == manifest.folder for other in options.find().disabled):
        raise BadSettings(
            f"{manifest.id} is still off",
            who=_get_config_file(),
            hint=f"take {manifest.name} from `disabled_extensions`, here or in piglet's config.yaml, or see what the project sets",
        )


# -- for authors ------------------------------------------------------------------------------------------------------------------

for command in (show, logs, new, check, bundle):
    guest.add_command(command)
for name, (place, line) in PLUGINS.items():
    guest.add_command(LazyCommand(name, place, line))

ext = click.Group("ext", commands={**guest.commands, "install": add, "rm": remove})
ext.help = """The same as `serai guest`, in the words of extensions' authors.

NAME is a guest's id, the name in its manifest, or that of its folder. `install` is `add`, `rm` is `remove`."""

"""`serai guest grant` and `serai guest revoke`: what a plugin asks for, what it gets, and what has changed (spec yoi 10).

A grant is bound to id, version and digest: what changes later is another plugin, whose difference is shown before anybody says yes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from serai.cli import telling
from serai.cli.completion import complete_guests
from serai.cli.opening import JSON, Options, Status, with_options
from serai.cli.plugin_flags import Given, granted, surfaces_of, with_grants
from serai.cli.plugin_paths import ENDING, is_plugin
from serai.errors import BadSettings, NoGuest
from serai.plugins.manifest import SURFACES

if TYPE_CHECKING:
    from serai.cli.plugin_file import PluginFile
    from serai.plugins.grants import Enablement
    from serai.plugins.package import Package

__all__ = ["grant", "revoke"]

_APIS: tuple[Literal["request", "websocket"], ...] = ("request", "websocket")


class _Chosen(NamedTuple):
    """The plugin that is meant: as who, where it lies, and what is in it."""

    identity: str
    path: Path
    package: Package


@click.command()
@click.argument("name", metavar="NAME|PATH", shell_complete=complete_guests)
@with_grants
@click.option(
    "--surface",
    "surfaces",
    type=click.Choice(SURFACES),
    multiple=True,
    help="Only these contributions; all by default. Repeatable.",
)
@click.option("--config", metavar="JSON", default="", help="What it is started with.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--print", "only_print", is_flag=True, help="Print what would be written into your settings, and write nothing.")
@with_options
@JSON
def grant(
    name: str,
    *,
    given: Given,
    surfaces: tuple[str, ...],
    config: str,
    yes: bool,
    only_print: bool,
    options: Options,
    as_json: bool,
) -> None:
    """Let a plugin in, with what it may do; shows first what it asks for, and what has changed since the last time.

    It gets all permissions that it requests and the targets that it names itself, unless --request or --websocket name others; of
    your files nothing, unless --fs gives it a folder: --fs /data:read,list. It is written into plugins.toml beside your settings.
    """
    from serai.cli.plugin_file import PluginFile
    from serai.plugins import grants

    chosen = _choose(name, options)
    file = PluginFile.usual()
    file.read()  # whether it can be written is known before anybody is asked
    before = _before(chosen.identity, options)
    enablement = _enablement(chosen, given, surfaces, config)
    try:
        snippet = grants.enablement_toml(enablement)
    except ValueError as error:  # of all that is in it only the config can be of any form
        raise click.UsageError(f"--config: {telling.safe(str(error))}") from None
    if only_print:
        click.echo(telling.safe(snippet), nl=False)
        return
    form = _form(chosen, enablement, before)
    lines = list(_lines(form, chosen, enablement))
    if not as_json:
        for line in lines:
            telling.say(line)
    sure = yes or _confirmed(chosen.identity, lines, seen=not as_json and sys.stdout.isatty())
    if sure:
        _write(file, chosen, enablement)
    if as_json:
        click.echo(telling.as_json(form | {"file": str(file.path), "granted": sure}))
    elif sure:
        telling.say(f"granted {chosen.identity}: {file.path}")
    else:
        click.echo("aborted", err=True)
    if sure:
        _warn(chosen, options)
    else:
        raise click.exceptions.Exit(Status.FAILED)


def _before(identity: str, options: Options) -> Enablement | None:
    """What counts for it so far, whoever wrote it: of several the last (spec yoi 10)."""
    from serai.app.config import Config
    from serai.plugins import resolution

    known = resolution.read_plugin_settings(Config.load(options.cwd).settings).enabled
    return next((one for one in reversed(known) if one.id == identity), None)


def _enablement(chosen: _Chosen, given: Given, names: Sequence[str], config: str) -> Enablement:
    from serai.cli.tool import parsed
    from serai.plugins.grants import Enablement

    manifest, digest = chosen.package.manifest, chosen.package.digest
    given.check(manifest)
    surfaces = surfaces_of(manifest, names)
    return Enablement(
        id=chosen.identity,
        version=manifest.version,
        digest=digest,
        surfaces=surfaces,
        config=parsed(config) if config else None,
        grants=granted(manifest, given, surfaces, identity=chosen.identity, digest=digest),
    )


def _choose(name: str, options: Options) -> _Chosen:
    """By path, or among those that lie in the stores. A bare word means one of these first: what is granted must not depend on what
    lies in the folder where somebody happens to stand."""
    from serai.cli import plugin_items
    from serai.cli.plugin_reports import opened

    if "/" in name or name.endswith(ENDING):
        return _by_path(name, options)
    search = plugin_items.Search.of(options)
    if plugin_items.one_of(name, (one.identity for one in search.discovered)) is None and is_plugin(name):
        return _by_path(name, options)
    discovered = search.choose(name)
    return _Chosen(discovered.identity, Path(discovered.path), opened(Path(discovered.path)))


def _by_path(name: str, options: Options) -> _Chosen:
    from serai import paths
    from serai.cli.plugin_reports import opened

    path = Path(paths.absolute_path(name))
    if not path.exists():
        raise NoGuest("there is no such plugin", who=str(path), hint="name a plugin's folder, or its file")
    package = opened(path)
    store = os.path.join(options.cwd, ".serai", "guests")
    source = "project" if os.path.realpath(path.parent) == os.path.realpath(store) else "user"
    return _Chosen(f"{source}:{package.manifest.id}", path, package)


# -- what is shown ----------------------------------------------------------------------------------------------------------------


def _form(chosen: _Chosen, enablement: Enablement, before: Enablement | None) -> dict[str, Any]:
    from serai.plugins import grants

    manifest = chosen.package.manifest
    return {
        "id": chosen.identity,
        "version": manifest.version,
        "digest": chosen.package.digest,
        "package_path": str(chosen.path),
        "asks": grants.requested_lines(manifest),
        "gets": grants.granted_lines(enablement.grants),
        "surfaces": list(enablement.surfaces) or sorted(manifest.declared),
        "before": "" if before is None else _digest(before),
        "difference": [] if before is None else _difference(chosen, before, enablement),
    }


def _digest(enablement: Enablement) -> str:
    """For which contents it was; one without grants need not say so."""
    return enablement.digest or enablement.grants.digest or "any contents"


def _difference(chosen: _Chosen, before: Enablement, now: Enablement) -> list[str]:
    """Of the package, as far as the old one is known, and of the grants."""
    from serai.plugins import grants, package_store

    lines: list[str] = []
    if (digest := _digest(before)) != now.digest:
        old = package_store.copy_of(digest, os.environ)
        if old is None:
            lines.append(f"the package is another, and no copy of {digest} is left to compare it with")
        else:
            lines += grants.contents_diff(old, chosen.package)
    had, has = grants.granted_lines(before.grants), grants.granted_lines(now.grants)
    lines += [f"it gets no more: {one}" for one in had if one not in has]
    lines += [f"it gets now: {one}" for one in has if one not in had]
    if before.config != now.config:
        lines.append("it is started with another config")
    return lines


def _lines(form: dict[str, Any], chosen: _Chosen, enablement: Enablement) -> Iterator[str]:
    yield f"{form['id']} {form['version']}: {form['package_path']}"
    yield f"  {form['digest']}"
    for what in ("asks", "gets"):
        yield f"  {what} for:" if what == "asks" else "  gets:"
        for line in form[what] or ["nothing"]:
            yield f"    {line}"
    yield from (f"  {line}" for line in _lacking(chosen, enablement))
    if form["before"]:
        yield "  changed since it was granted:" if form["difference"] else "  the same as before"
        for line in form["difference"]:
            yield f"    {line}"


def _lacking(chosen: _Chosen, enablement: Enablement) -> Iterator[str]:
    """What it asks for and would still not have, and what it would have in vain."""
    from serai.plugins import targets

    grants, manifest = enablement.grants, chosen.package.manifest
    apis = {permission.api for permission in grants.permissions}
    if "fs" in apis and not grants.fs:
        yield "it asks for files and gets none: --fs ROOT:read,list gives it a folder"
    for api in _APIS:
        own = getattr(manifest, api)
        if api in apis and not own:
            yield f"it asks for host_api.{api} and names no target, so it reaches none"
        for target in getattr(grants, api):
            if own and not any(targets.intersects(target, one, api) for one in own):
                yield f"host_api.{api} to {targets.label(target, api)} is in vain: it declares nothing there"
    for root in grants.fs:
        if os.path.islink(root.root) or not os.path.isdir(root.root):
            yield f"{root.root} is no folder now: it reads nothing there until it is one"


def _confirmed(identity: str, lines: Sequence[str], *, seen: bool) -> bool:
    """Nothing defaults to yes (design rule 7), and nobody says yes to what went into a file and was not seen."""
    if not sys.stdin.isatty():
        raise BadSettings(f"nobody is there to say yes to {identity}", hint="look at what it gets, then say --yes")
    for line in () if seen else lines:
        telling.tell(line)
    click.echo(f"grant that to {telling.safe(identity)} ? [y/N] ", nl=False, err=True)
    return sys.stdin.readline().strip() in ("y", "Y")


# -- what is written --------------------------------------------------------------------------------------------------------------


def _write(file: PluginFile, chosen: _Chosen, enablement: Enablement) -> None:
    """A copy is kept of what was seen: the next difference is shown against it, and a session goes on with it (spec yoi 10.2)."""
    from serai.plugins import package_store

    package_store.keep_copy(chosen.package, os.environ)
    file.put(enablement)


def _warn(chosen: _Chosen, options: Options) -> None:
    """What stands between it and its start."""
    from serai.cli import plugin_items

    found = plugin_items.Search.of(options)
    if not found.settings.on:
        telling.tell("plugins are switched off: `enabled = false` under [feature.plugins] in your config.toml")
    others = [one for one in found.settings.enabled if one.id == chosen.identity]
    if len(others) > 1:
        telling.tell(f"{chosen.identity} is enabled in your config.toml or the project's too: take it out there")
    there = [one for one in found.discovered if one.identity == chosen.identity]
    if not there:
        telling.tell(f"it is not among your guests: `serai guest add {chosen.path}`, or name it with --guest each time")
    elif all(one.digest != chosen.package.digest for one in there):
        telling.tell(f"what lies in {there[0].path} is another, and is refused now: put this one there, or name it with --guest")


@click.command()
@click.argument("name", shell_complete=complete_guests)
@with_options
@JSON
def revoke(name: str, *, options: Options, as_json: bool) -> None:
    """Take from a plugin what `serai guest grant` gave it: it stays, and is not started."""
    from serai.cli import plugin_items
    from serai.cli.plugin_file import PluginFile

    file = PluginFile.usual()
    known = [one.id for one in file.read()]
    identity = plugin_items.one_of(name, known)
    if identity is None:
        hint = telling.similar(name, known) or "`serai guest list` shows what there is"
        if plugin_items.one_of(name, [one.id for one in plugin_items.Search.of(options).settings.enabled]):
            hint = "it is enabled in config.toml: take it out there"
        raise NoGuest(f"nothing was granted to {name}", who=str(file.path), hint=hint)
    file.drop(identity)
    if as_json:
        click.echo(telling.as_json({"id": identity, "file": str(file.path), "revoked": True}))
    else:
        telling.say(f"revoked {identity}: {file.path}")

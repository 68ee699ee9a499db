"""`serai guest grant` and `serai guest revoke`: what a plugin asks for, what it gets, and what has changed (spec yoi 10).

A grant is bound to id, version and digest: what changes later is another plugin, and the difference is shown before anybody
agrees. The grant options are also those of `serai guest run`. A plugin never has more than it asks for (spec yoi 1), so an option
for what its manifest does not request is an error.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, get_args

import click

from serai.cli import console
from serai.cli.completion import complete_guests
from serai.cli.options import ENDING, JSON, ExitCode, GuestOptions, add_guest_options, is_plugin
from serai.errors import BadSettings, NoGuest
from serai.paths import absolute_path
from serai.plain_text import escape_text
from serai.plugins.grants import FsGrant, Grants, Operation
from serai.plugins.manifest import SURFACES, ContributionKind, HostApi, Permission, PluginManifest, Target
from serai.plugins.targets import METHODS

if TYPE_CHECKING:
    from serai.plugins.grants import Enablement
    from serai.plugins.grants_file import GrantsFile
    from serai.plugins.package import Package

_OPERATIONS: tuple[Operation, ...] = get_args(Operation)
# A target is no URL: it has a scheme, a host, perhaps a port, and the beginning of a path (spec yoi 4.5).
_TARGET = re.compile(
    r"(?P<scheme>\*|[A-Za-z][A-Za-z0-9+.-]*)://(?P<host>\*|\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?"
    r"(?P<path>/[^\s?#\\]*)?"
)
_UP = re.compile(r"(?:^|/)(?:\.|%2e){1,2}(?:/|$)", re.IGNORECASE)
_PORTS = 65535


@dataclass(frozen=True, slots=True)
class GrantOptions:
    """What the flags say, each already a grant."""

    fs: tuple[FsGrant, ...] = ()
    request: tuple[Target, ...] = ()
    websocket: tuple[Target, ...] = ()
    private: bool = False

    def check(self, manifest: PluginManifest) -> None:
        """Nothing is given that nobody asked for: it would have no effect, and whoever gives it believes otherwise."""
        asked = {permission.api for permission in manifest.permissions if permission.kind == "host_api"}
        gives: tuple[tuple[HostApi, object], ...] = (("fs", self.fs), ("request", self.request), ("websocket", self.websocket))
        for api, given in gives:
            if given and api not in asked:
                raise click.UsageError(f"--{api}: {manifest.id} does not ask for host_api.{api}, so it could not use it")

    def get_targets(self, manifest: PluginManifest, api: HostApi) -> tuple[Target, ...]:
        """Those of the flags, or else the plugin's own."""
        given, own = (self.request, manifest.request) if api == "request" else (self.websocket, manifest.websocket)
        return tuple(_set_private(target, self.private) for target in given or own)


def _set_private(target: Target, private: bool) -> Target:
    """`private` of a manifest is a wish and none of ours: only the person's flag makes it a grant."""
    return Target(
        scheme=target.scheme,
        host=target.host,
        port=target.port,
        methods=target.methods,
        path_prefixes=target.path_prefixes,
        private=private,
    )


_DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def grant_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options `--fs`, `--request`, `--websocket` and `--private`; the command gets them as one `given`."""

    @wraps(command)
    def wrapped(
        *arguments: Any,
        fs: Sequence[FsGrant],
        request: Sequence[Target],
        websocket: Sequence[Target],
        private: bool,
        **others: Any,
    ) -> None:
        command(*arguments, given=GrantOptions(tuple(fs), tuple(request), tuple(websocket), private), **others)

    made: Callable[..., None] = wrapped
    for option in (
        click.option("--private", is_flag=True, help="Those targets may be private, loopback and link-local addresses too."),
        click.option(
            "--websocket", metavar="URL", multiple=True, callback=_map(_parse_websocket), help="ws or wss to this host; repeatable."
        ),
        click.option(
            "--request",
            metavar="'METHODS URL'",
            multiple=True,
            callback=_map(_parse_request),
            help="Such as 'GET,POST https://host/prefix': these methods there; repeatable.",
        ),
        click.option(
            "--fs",
            metavar="ROOT:OPERATIONS",
            multiple=True,
            callback=_map(_parse_fs),
            help=f"This folder for {', '.join(_OPERATIONS)}, as many as are named; repeatable.",
        ),
    ):
        made = option(made)
    return made


def _map(read: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, Sequence[str]], tuple[Any, ...]]:
    def callback(context: click.Context, parameter: click.Parameter, texts: Sequence[str]) -> tuple[Any, ...]:
        found = []
        for text in texts:
            try:
                _check_text(text)
                found.append(read(text))
            except ValueError as error:
                raise click.BadParameter(f"{escape_text(text)}: {error}", context, parameter) from None
        return tuple(found)

    return callback


def _check_text(text: str) -> None:
    """An argument may hold any bytes, settings may not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it is no text in UTF-8, as settings have to be") from None
    if "\0" in text:
        raise ValueError("there is a NUL in it")


def _parse_fs(text: str) -> FsGrant:
    root, colon, operations = text.rpartition(":")
    named = tuple(part.strip() for part in operations.split(","))
    if not colon or not root or not set(named) <= set(_OPERATIONS):
        raise ValueError(f"it has to be ROOT:OPERATIONS, such as /data:read,list; the operations are {', '.join(_OPERATIONS)}")
    found = tuple(operation for operation in _OPERATIONS if operation in named)
    return FsGrant(root=absolute_path(root), operations=found)


def _parse_request(text: str) -> Target:
    methods, _, url = text.strip().partition(" ")
    named = tuple(method.upper() for method in methods.split(","))
    if not url.strip() or not set(named) <= set(METHODS):
        raise ValueError(f"it has to be METHODS URL, such as 'GET,POST https://host/prefix'; the methods are {', '.join(METHODS)}")
    return _parse_target(url.strip(), ("http", "https"), named)


def _parse_websocket(text: str) -> Target:
    return _parse_target(text.strip(), ("ws", "wss"), ())


def _parse_target(url: str, schemes: tuple[str, ...], methods: tuple[str, ...]) -> Target:
    found = _TARGET.fullmatch(url)
    if found is None or found["scheme"].lower() not in (*schemes, "*"):
        raise ValueError(
            f"it has to begin with {' or '.join(f'{scheme}://HOST' for scheme in schemes)}, without user, query or fragment"
        )
    path = found["path"] or ""
    if _UP.search(path):
        raise ValueError("a path is compared without `.` and `..`, so with them it would match nothing")
    # as a URL means it: without a port in its target a plugin would reach every one, on `localhost` too
    port = int(found["port"]) if found["port"] else _DEFAULT_PORTS.get(found["scheme"].lower())
    if port is not None and not 0 < port <= _PORTS:
        raise ValueError(f"there is no port {port}")
    return Target(
        scheme=found["scheme"].lower(),
        host=found["host"].strip("[]").lower(),
        port=port,
        methods=methods,
        path_prefixes=(path,) if path else (),
    )


def select_surfaces(manifest: PluginManifest, names: Sequence[str]) -> tuple[ContributionKind, ...]:
    """The contributions of `--surface`, in their order; a plugin has to declare them."""
    for name in names:
        if name not in manifest.declared:
            there = ", ".join(sorted(manifest.declared)) or "none"
            raise click.UsageError(f"--surface {name}: {manifest.id} does not declare it; there is {there}")
    return tuple(surface for surface in SURFACES if surface in names)


def to_grants(
    manifest: PluginManifest, given: GrantOptions, surfaces: Sequence[ContributionKind], *, identity: str, digest: str
) -> Grants:
    """All that the manifest requests, less what is for contributions that were not chosen."""
    permissions = tuple(one for one in manifest.permissions if not surfaces or _get_surface(one) in (None, *surfaces))
    if not permissions:  # nothing to bind
        return Grants()
    apis = {permission.api for permission in permissions}
    return Grants(
        id=identity,
        version=manifest.version,
        digest=digest,
        permissions=permissions,
        request=given.get_targets(manifest, "request") if "request" in apis else (),
        websocket=given.get_targets(manifest, "websocket") if "websocket" in apis else (),
        fs=given.fs,
    )


def _get_surface(permission: Permission) -> ContributionKind | None:
    """For which kind of contribution it is; None: for all."""
    match permission.kind:
        case "surface":
            return permission.surface
        case "tool" | "tool_namespace" | "external_write":
            return "tool"
        case "service" | "ingress":
            return cast(ContributionKind, permission.kind)
    return None


_APIS: tuple[Literal["request", "websocket"], ...] = ("request", "websocket")


class _Chosen(NamedTuple):
    """The plugin that is meant: as who, where it lies, and what is in it."""

    identity: str
    path: Path
    package: Package


@click.command()
@click.argument("name", metavar="NAME|PATH", shell_complete=complete_guests)
@grant_options
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
@add_guest_options
@JSON
def grant(
    name: str,
    *,
    given: GrantOptions,
    surfaces: tuple[str, ...],
    config: str,
    yes: bool,
    only_print: bool,
    options: GuestOptions,
    as_json: bool,
) -> None:
    """Let a plugin in, with what it may do; shows first what it asks for, and what has changed since the last time.

    It gets all permissions that it requests and the targets that it names itself, unless --request or --websocket name others; of
    your files nothing, unless --fs gives it a folder: --fs /data:read,list. It is written into plugins.toml beside your settings.
    """
    from serai.plugins import grants
    from serai.plugins.grants_file import GrantsFile

    chosen = _choose(name, options)
    file = GrantsFile.usual()
    file.read()  # whether it can be written is known before anybody is asked
    before = _find_enablement(chosen.identity, options)
    enablement = _build_enablement(chosen, given, surfaces, config)
    try:
        snippet = grants.format_enablement(enablement)
    except ValueError as error:  # of all that is in it only the config can be of any form
        raise click.UsageError(f"--config: {escape_text(str(error))}") from None
    if only_print:
        click.echo(escape_text(snippet), nl=False)
        return
    form = _dump_grant(chosen, enablement, before)
    lines = list(_render_grant(form, chosen, enablement))
    if not as_json:
        for line in lines:
            console.out(line)
    sure = yes or _confirm(chosen.identity, lines, seen=not as_json and sys.stdout.isatty())
    if sure:
        _write(file, chosen, enablement)
    if as_json:
        click.echo(console.dump_json(form | {"file": str(file.path), "granted": sure}))
    elif sure:
        console.out(f"granted {chosen.identity}: {file.path}")
    else:
        click.echo("aborted", err=True)
    if sure:
        _warn(chosen, options)
    else:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _find_enablement(identity: str, options: GuestOptions) -> Enablement | None:
    """What counts for it so far, whoever wrote it: of several the last (spec yoi 10)."""
    from serai.app.config import Config
    from serai.plugins import resolution

    known = resolution.read_plugin_settings(Config.load(options.cwd).settings).enabled
    return next((one for one in reversed(known) if one.id == identity), None)


def _build_enablement(chosen: _Chosen, given: GrantOptions, names: Sequence[str], config: str) -> Enablement:
    from serai.cli.tool import read_arguments
    from serai.plugins.grants import Enablement

    manifest, digest = chosen.package.manifest, chosen.package.digest
    given.check(manifest)
    surfaces = select_surfaces(manifest, names)
    return Enablement(
        id=chosen.identity,
        version=manifest.version,
        digest=digest,
        surfaces=surfaces,
        config=read_arguments(config) if config else None,
        grants=to_grants(manifest, given, surfaces, identity=chosen.identity, digest=digest),
    )


def _choose(name: str, options: GuestOptions) -> _Chosen:
    """By path, or among those that lie in the stores. A bare word means one of these first: what is granted must not depend on what
    lies in the folder where somebody happens to stand."""
    from serai.authoring.plugin_package import open_package
    from serai.cli import plugin_report

    if "/" in name or name.endswith(ENDING):
        return _open_by_path(name, options)
    search = plugin_report.PluginSearch.of(options)
    if plugin_report.find_reference(name, (one.identity for one in search.discovered)) is None and is_plugin(name):
        return _open_by_path(name, options)
    discovered = search.choose(name)
    return _Chosen(discovered.identity, Path(discovered.path), open_package(Path(discovered.path)))


def _open_by_path(name: str, options: GuestOptions) -> _Chosen:
    from serai import paths
    from serai.authoring.plugin_package import open_package

    path = Path(paths.absolute_path(name))
    if not path.exists():
        raise NoGuest("there is no such plugin", who=str(path), hint="name a plugin's folder, or its file")
    package = open_package(path)
    store = os.path.join(options.cwd, ".serai", "guests")
    source = "project" if os.path.realpath(path.parent) == os.path.realpath(store) else "user"
    return _Chosen(f"{source}:{package.manifest.id}", path, package)


# -- what is shown ----------------------------------------------------------------------------------------------------------------


def _dump_grant(chosen: _Chosen, enablement: Enablement, before: Enablement | None) -> dict[str, Any]:
    from serai.plugins import grants

    manifest = chosen.package.manifest
    return {
        "id": chosen.identity,
        "version": manifest.version,
        "digest": chosen.package.digest,
        "package_path": str(chosen.path),
        "asks": grants.format_requested(manifest),
        "gets": grants.format_granted(enablement.grants),
        "surfaces": list(enablement.surfaces) or sorted(manifest.declared),
        "before": "" if before is None else _get_digest(before),
        "difference": [] if before is None else _describe_changes(chosen, before, enablement),
    }


def _get_digest(enablement: Enablement) -> str:
    """For which contents it was; one without grants need not say so."""
    return enablement.digest or enablement.grants.digest or "any contents"


def _describe_changes(chosen: _Chosen, before: Enablement, now: Enablement) -> list[str]:
    """Of the package, as far as the old one is known, and of the grants."""
    from serai.plugins import grants, package_store

    lines: list[str] = []
    if (digest := _get_digest(before)) != now.digest:
        old = package_store.find_copy(digest, os.environ)
        if old is None:
            lines.append(f"the package is another, and no copy of {digest} is left to compare it with")
        else:
            lines += grants.diff_contents(old, chosen.package)
    had, has = grants.format_granted(before.grants), grants.format_granted(now.grants)
    lines += [f"it gets no more: {one}" for one in had if one not in has]
    lines += [f"it gets now: {one}" for one in has if one not in had]
    if before.config != now.config:
        lines.append("it is started with another config")
    return lines


def _render_grant(form: dict[str, Any], chosen: _Chosen, enablement: Enablement) -> Iterator[str]:
    yield f"{form['id']} {form['version']}: {form['package_path']}"
    yield f"  {form['digest']}"
    for what in ("asks", "gets"):
        yield f"  {what} for:" if what == "asks" else "  gets:"
        for line in form[what] or ["nothing"]:
            yield f"    {line}"
    yield from (f"  {line}" for line in _render_gaps(chosen, enablement))
    if form["before"]:
        yield "  changed since it was granted:" if form["difference"] else "  the same as before"
        for line in form["difference"]:
            yield f"    {line}"


def _render_gaps(chosen: _Chosen, enablement: Enablement) -> Iterator[str]:
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
                yield f"host_api.{api} to {targets.format_target(target, api)} is in vain: it declares nothing there"
    for root in grants.fs:
        if os.path.islink(root.root) or not os.path.isdir(root.root):
            yield f"{root.root} is no folder now: it reads nothing there until it is one"


def _confirm(identity: str, lines: Sequence[str], *, seen: bool) -> bool:
    """Nothing defaults to yes (design rule 7), and nobody says yes to what went into a file and was not seen."""
    if not sys.stdin.isatty():
        raise BadSettings(f"nobody is there to say yes to {identity}", hint="look at what it gets, then say --yes")
    for line in () if seen else lines:
        console.err(line)
    click.echo(f"grant that to {escape_text(identity)} ? [y/N] ", nl=False, err=True)
    return sys.stdin.readline().strip() in ("y", "Y")


# -- what is written --------------------------------------------------------------------------------------------------------------


def _write(file: GrantsFile, chosen: _Chosen, enablement: Enablement) -> None:
    """A copy is kept of what was seen: the next difference is shown against it, and a session goes on with it (spec yoi 10.2)."""
    from serai.plugins import package_store

    package_store.keep_copy(chosen.package, os.environ)
    file.put(enablement)


def _warn(chosen: _Chosen, options: GuestOptions) -> None:
    """What stands between it and its start."""
    from serai.cli import plugin_report

    found = plugin_report.PluginSearch.of(options)
    if not found.settings.on:
        console.err("plugins are switched off: `enabled = false` under [feature.plugins] in your config.toml")
    others = [one for one in found.settings.enabled if one.id == chosen.identity]
    if len(others) > 1:
        console.err(f"{chosen.identity} is enabled in your config.toml or the project's too: take it out there")
    there = [one for one in found.discovered if one.identity == chosen.identity]
    if not there:
        console.err(f"it is not among your guests: `serai guest add {chosen.path}`, or name it with --guest each time")
    elif all(one.digest != chosen.package.digest for one in there):
        console.err(f"what lies in {there[0].path} is another, and is refused now: put this one there, or name it with --guest")


@click.command()
@click.argument("name", shell_complete=complete_guests)
@add_guest_options
@JSON
def revoke(name: str, *, options: GuestOptions, as_json: bool) -> None:
    """Take from a plugin what `serai guest grant` gave it: it stays, and is not started."""
    from serai.cli import plugin_report
    from serai.plugins.grants_file import GrantsFile

    file = GrantsFile.usual()
    known = [one.id for one in file.read()]
    identity = plugin_report.find_reference(name, known)
    if identity is None:
        hint = console.suggest(name, known) or "`serai guest list` shows what there is"
        if plugin_report.find_reference(name, [one.id for one in plugin_report.PluginSearch.of(options).settings.enabled]):
            hint = "it is enabled in config.toml: take it out there"
        raise NoGuest(f"nothing was granted to {name}", who=str(file.path), hint=hint)
    file.drop(identity)
    if as_json:
        click.echo(console.dump_json({"id": identity, "file": str(file.path), "revoked": True}))
    else:
        console.out(f"revoked {identity}: {file.path}")

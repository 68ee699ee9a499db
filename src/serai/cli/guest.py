"""`serai guest`, and its alias `serai ext`: which guests there are, how they come and go, and their logs (spec zot 1.4)."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any

import click
import msgspec

from serai import home
from serai.cli import telling
from serai.cli.authoring import bundle, new
from serai.cli.checking import check
from serai.cli.completion import complete_guests
from serai.cli.opening import JSON, PATH, Options, Status, opened, run, with_options
from serai.cli.showing import show
from serai.errors import BadSettings, NoGuest
from serai.host import installing
from serai.host.logs import log_file, open_log
from serai.record import lookalikes

if TYPE_CHECKING:
    from serai.host.finding import Found
    from serai.host.manifest import Manifest
    from serai.host.report import Row

__all__ = ["ext", "guest"]

NAME = click.argument("name", shell_complete=complete_guests)
# How often a log that is followed is looked at, in seconds: quick for an eye, nothing for the machine.
_LOOK = 0.2
# A key that begins in a text and has not ended with it, and the least that begins one (as `lookalikes` knows it).
_IN_KEY = re.compile(rb"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----[^\"'-]*+\Z")
_KEY = b"-----BEGIN " + b"PRIVATE KEY-----\n"
_COLUMNS = ("scope", "name", "version", "enabled", "language", "dir")
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
    _tell(found)
    _show(found, {}, as_json=as_json)


async def _list_live(options: Options, *, as_json: bool) -> Status:
    async with opened(options, command="serai guest list --live") as host:
        _show(host.found, {row.id: row for row in host.report.guests}, as_json=as_json)
    return Status.OK


def _show(found: Found, live: dict[str, Row], *, as_json: bool) -> None:
    states = _states(found)
    if as_json:
        for manifest, state, reason in states:
            form = _form(manifest) | {"state": state} | ({"reason": reason} if reason else {})
            row = live.get(manifest.id) if state == "found" else None
            click.echo(telling.as_json(form | (_live_form(row) if row else {})))
    elif states and live:
        telling.table([_LIVE, *(_live_row(manifest, state, live) for manifest, state, _ in states)])
    elif states:
        telling.table([_COLUMNS, *(_row(manifest) for manifest, _, _ in states)])
    if not states:
        click.echo("there are no guests; `serai guest add PATH` adds one", err=True)


def _states(found: Found) -> list[tuple[Manifest, str, str]]:
    """Every guest, whether it would be started, and why not."""
    states = [(manifest, "found", "") for manifest in found.guests]
    states += [(manifest, "disabled", "") for manifest in found.disabled]
    states += [(aside.manifest, "untrusted", aside.reason) for aside in found.untrusted]
    return states + [(aside.manifest, "shadowed", aside.reason) for aside in found.shadowed]


def _row(manifest: Manifest) -> tuple[str, ...]:
    enabled = "yes" if manifest.active else "no"
    language = manifest.language or "-"
    return manifest.scope, manifest.name, manifest.version or "-", enabled, language, str(manifest.folder)


def _live_row(manifest: Manifest, state: str, live: dict[str, Row]) -> tuple[str, ...]:
    cells = [manifest.scope, manifest.name, manifest.version or "-"]
    row = live.get(manifest.id) if state == "found" else None
    if row is None:
        return (*cells, state, "-", "-", "-", str(manifest.folder))
    tools, commands = (", ".join(names) or "-" for names in (row.tools, row.commands))
    return (*cells, row.state, f"{row.seconds:.2f}", tools, commands, str(manifest.folder))


def _live_form(row: Row) -> dict[str, Any]:
    """How it went; what may quote a guest's stderr is masked as on stderr."""
    form: dict[str, Any] = msgspec.to_builtins(row)
    return form | {key: telling.masked(form[key]) for key in ("why", "error", "remarks") if key in form}


def _form(manifest: Manifest) -> dict[str, Any]:
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


def _tell(found: Found) -> None:
    """Who does not come in as it should."""
    for problem in found.problems:
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
    if installing.is_url(source):
        run(_clone(source, name, options, as_json=as_json))
    else:
        _added(installing.add(source, name=name), options, as_json=as_json)


async def _clone(url: str, name: str, options: Options, *, as_json: bool) -> Status:
    _added(await installing.add_url(url, name=name), options, as_json=as_json)
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
    if state == "disabled":
        telling.tell(f"it is disabled; `serai guest enable {folder.name}` switches it on")
    elif state == "shadowed":
        telling.tell(f"it is not started here: {reason}")
    if manifest is not None and manifest.settings.asked:
        telling.tell(f"it asks for {', '.join(manifest.settings.asked)}; to grant that, write into {_settings()}:")
        for line in _grants(manifest):
            click.echo(telling.safe(line), err=True)


def _grants(manifest: Manifest) -> Iterator[str]:
    """The lines of settings that would give a guest all it asks for."""
    yield f"[guest.{telling.as_json(manifest.id)}]"
    wants = manifest.settings
    for key, names in (("env", wants.asked_env), ("replace", wants.asked_replace), ("keys", wants.asked_keys)):
        if names:
            yield f"{key} = {telling.as_json(names)}"


def _settings() -> str:
    return os.path.join(home.config_folder(), "config.toml")


@guest.command()
@NAME
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@with_options
@JSON
def remove(name: str, *, yes: bool, options: Options, as_json: bool) -> None:
    """Delete a guest's folder."""
    manifest = installing.choose(options.find(), name)
    yes = yes or manifest.scope == "ad hoc" or _confirmed(manifest.folder)  # an ad hoc one is refused anyway
    if yes:
        installing.remove(manifest)
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
    manifest = installing.choose(options.find(), name)
    in_settings = not installing.has_switch(manifest)
    if in_settings:
        from serai.app.services.writing import switch_guest

        switch_guest(_settings(), manifest.id, enabled=enabled)
        _must_be_on(manifest, options, enabled)
    else:
        installing.set_enabled(manifest, enabled)
    if as_json:
        form = {"id": manifest.id, "folder": str(manifest.folder), "enabled": enabled}
        click.echo(telling.as_json(form | ({"settings": _settings()} if in_settings else {})))
    else:
        where = f"in {_settings()}" if in_settings else str(manifest.folder)
        telling.say(f"{'enabled' if enabled else 'disabled'} {manifest.id}: {where}")
    for aside in options.find().untrusted:
        if aside.manifest.folder == manifest.folder:  # its manifest is another now, so it is another guest
            telling.tell(f"{manifest.id}: {aside.reason}; `serai trust` lets it in")


def _must_be_on(manifest: Manifest, options: Options, enabled: bool) -> None:
    """A list of those that are off is stronger than a switch: it may have been written by somebody else (spec piglet 1.2)."""
    if enabled and any(other.folder == manifest.folder for other in options.find().disabled):
        raise BadSettings(
            f"{manifest.id} is still off",
            who=_settings(),
            hint=f"take {manifest.name} from `disabled_extensions`, here or in piglet's config.yaml, or see what the project sets",
        )


# -- logs -------------------------------------------------------------------------------------------------------------------------


@guest.command()
@NAME
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on, until Ctrl-C.")
@click.option("--lines", "count", type=click.IntRange(0), help="Only so many, at the end.")
@with_options
@JSON
def logs(name: str, *, follow: bool, count: int | None, options: Options, as_json: bool) -> None:
    """Print a guest's log: its stderr, and the host's remarks. What looks like a secret is masked."""
    path, guest = _log_of(name, options)
    older, newer = _content(path.with_name(f"{path.name}.1")), _content(path)
    whole, rest = _whole(older + newer) if follow else (older + newer, b"")
    readable = _Readable()
    lines = list(readable.lines(whole))
    for line in lines if count is None else lines[max(len(lines) - count, 0) :]:
        _print(line, guest, as_json=as_json)
    if follow:
        for whole in _follow(path, len(newer), rest):
            for line in readable.lines(whole):
                _print(line, guest, as_json=as_json)


def _content(file: Path) -> bytes:
    if not file.is_file():  # a pipe would be waited for, for ever
        return b""
    try:
        with open_log(file) as opened:
            return opened.read()
    except OSError as error:
        raise NoGuest(f"the log cannot be read: {error.strerror}", who=str(file), hint="make it readable for you") from None


def _log_of(name: str, options: Options) -> tuple[Path, str]:
    """Where the log of that guest lies, and the guest's name. One that was removed has its log still, by the name it had."""
    nobody = None
    try:
        known = installing.choose(options.find(), name).name
    except NoGuest as error:
        known, nobody = name.partition(":")[2] or name, error
    path = log_file(Path(home.state_folder()) / "logs", known)
    if not path.is_file():
        hint = f"{nobody.message}\n{nobody.hint}" if nobody else "it was never started"
        raise NoGuest(f'no log for "{name}" at {path}', hint=hint)
    return path, known


def _print(line: str, guest: str, *, as_json: bool) -> None:
    click.echo(telling.as_json({"guest": guest, "line": line}) if as_json else telling.safe(line))


class _Readable:
    """The lines of a log, each masked by itself, but for a key: that goes over several, which may not all be written yet."""

    def __init__(self) -> None:
        self._key = b""  # where a key began that has not ended, else nothing

    def lines(self, text: bytes) -> Iterator[str]:
        masked = b"".join(map(self._masked, text.splitlines(keepends=True)))
        if masked:
            yield from masked.decode(errors="backslashreplace").removesuffix("\n").split("\n")

    def _masked(self, line: bytes) -> bytes:
        begun, text = len(self._key), self._key + line
        self._key = _KEY if _IN_KEY.search(text) else b""
        return lookalikes.mask(text)[begun:]  # as long as it was


def _whole(text: bytes) -> tuple[bytes, bytes]:
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
        whole, rest = _whole(rest + fresh)
        yield whole


# -- for authors ------------------------------------------------------------------------------------------------------------------

for command in (show, new, check, bundle):
    guest.add_command(command)

ext = click.Group("ext", commands={**guest.commands, "install": add, "rm": remove})
ext.help = """The same as `serai guest`, in the words of extensions' authors.

NAME is a guest's id, the name in its manifest, or that of its folder. `install` is `add`, `rm` is `remove`."""

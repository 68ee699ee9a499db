"""`serai guest show`: one guest, what counts for it, and all that it offers."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
import msgspec

from serai.cli import telling
from serai.cli.completion import complete_guests
from serai.cli.opening import JSON, Options, Status, opened, run, with_options
from serai.errors import NoGuest
from serai.host import installation
from serai.model.contributions import Contributions

if TYPE_CHECKING:
    from serai.host.discovery import DiscoveryResult
    from serai.host.guest_manifest import GuestManifest

__all__ = ["show"]

_WIDE = 100  # characters of what is said of a contribution; all of it is for --json


@click.command()
@click.argument("name", shell_complete=complete_guests)
@with_options
@click.option("--live", is_flag=True, help="Start a plugin too, and show how it is.")
@JSON
def show(name: str, *, options: Options, live: bool, as_json: bool) -> None:
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
        run(_live(manifest, options, as_json=as_json))
    else:
        _show(manifest, _why_not(found, manifest), Contributions(), as_json=as_json)


def _show_plugin(name: str, options: Options, found: DiscoveryResult, *, live: bool, as_json: bool) -> bool:
    """Its report (spec yoi 19); whether there is such a plugin."""
    from serai.cli import plugin_items

    item = plugin_items.find_item(plugin_items.Search.of(options, found), name)
    if item is None:
        return False
    plugin_items.show_item(item, as_json=as_json)
    if live:
        from serai.cli import plugin_running

        run(plugin_running.status(item["reference"], options, again=False, as_json=as_json))
    return True


async def _live(manifest: GuestManifest, options: Options, *, as_json: bool) -> Status:
    async with opened(options, command=f"serai guest show {manifest.name}") as host:
        guest = host.guests[manifest.id]
        status = Status.OK if guest.running is not None else Status.UNAVAILABLE
        _show(manifest, str(guest.state), guest.contributions, as_json=as_json)
    return status


def _why_not(found: DiscoveryResult, manifest: GuestManifest) -> str:
    asides = (*found.refused, *found.untrusted, *found.shadowed)
    reasons = [aside.reason for aside in asides if aside.manifest == manifest]
    return f"not started: {reasons[0]}" if reasons else "disabled"


def _show(manifest: GuestManifest, state: str, offers: Contributions, *, as_json: bool) -> None:
    settings = manifest.settings
    if as_json:
        about = {"id": manifest.id, "scope": manifest.scope, "version": manifest.version, "folder": str(manifest.folder)}
        treated = {"command": manifest.argv, "guard": settings.guard, "has": settings.has, "asks": settings.asked}
        offered = {kind: [_form(one) for one in records] for kind, records in _kinds(offers)}
        click.echo(telling.as_json({**about, "state": state, **treated, "offers": offered}))
        return
    telling.say(f"{manifest.id} {manifest.version}".rstrip() + f": {state}" + (", a guard" if settings.guard else ""))
    telling.say(f"  {manifest.scope}, in {manifest.folder}; runs {shlex.join(manifest.argv)}")
    for what, names in (("has", settings.has), ("asks for", settings.asked)):
        if names:
            telling.say(f"  {what} {', '.join(names)}")
    for kind, records in _kinds(offers):
        for one in records:
            telling.say(f"  {kind.removesuffix('s').replace('_', ' ')} {_line(one)}")


def _kinds(offers: Contributions) -> Iterator[tuple[str, tuple[msgspec.Struct, ...]]]:
    """Each kind of which there is something, in the order of the record."""
    for field in offers.__struct_fields__:
        if what := getattr(offers, field):
            yield field, what


def _form(one: msgspec.Struct) -> dict[str, Any]:
    form: dict[str, Any] = msgspec.to_builtins(one, order="sorted")
    return form


def _line(one: msgspec.Struct) -> str:
    """Its name first, then what is said of it; long texts are cut, a schema is for --json."""
    form = _form(one)
    name = form.pop("name", None) or form.pop("key", None) or form.pop("title", None) or form.pop("api", "")
    form.pop("schema", None)
    about = " ".join(str(form.pop("description", "") or form.pop("content", "")).split())
    about = about if len(about) <= _WIDE else about[: _WIDE - 1] + "…"
    said = [_said(key, value) for key, value in form.items() if value not in ("", 0, False, [], None)]
    return f"{name}: {about}".removesuffix(": ") + (f" ({'; '.join(said)})" if said else "")


def _said(key: str, value: object) -> str:
    key = key.replace("_", " ")
    return key if value is True else f"{key} {', '.join(map(str, value)) if isinstance(value, list) else value}"

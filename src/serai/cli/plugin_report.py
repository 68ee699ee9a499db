"""The plugins that are there or configured, each with its status: for `serai guest list` and `show` (spec yoi 19, 11.5).

All of it is static: packages are read, nothing is executed, compiled or written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from serai import paths
from serai.authoring.plugin_package import TEXT_WIDTH
from serai.cli import console
from serai.cli.options import is_plugin
from serai.errors import NoGuest
from serai.plugins import authorization, resolution, targets
from serai.plugins.grants import Enablement, Grants, ResolvedPlugin, Source, split_identity
from serai.plugins.package import ENDING
from serai.plugins.resolution import DiscoveredPackage, PackageDiagnostic

if TYPE_CHECKING:
    from serai.cli.options import GuestOptions
    from serai.host.discovery import DiscoveryResult
    from serai.plugins.authorization import Inspection
    from serai.plugins.bounds import Bounds
    from serai.plugins.resolution import PluginSettings

_MOST = 128  # items that are printed
_IN_LIST, _IN_SHOW = 3, 48  # diagnostics of each
_TEXT = 240  # characters of a message for people (spec yoi 17.2)
_GLOBAL = "<global>"
_COLUMNS = ("plugin", "status", "version", "offers", "package")

Item = dict[str, Any]


def find_reference(name: str, references: Iterable[str]) -> str | None:
    """The reference that is meant: in full, as a guest's id, or by the local id where only one has it."""
    known = list(dict.fromkeys(references))
    if name in known:
        return name
    local = name.removeprefix("yoi:")
    fitting = [one for one in known if one.partition(":")[2] == local]
    if len(fitting) > 1:
        raise NoGuest(f"{name} may be {' or '.join(sorted(fitting))}", hint="say which, by its reference")
    return fitting[0] if fitting else None


@dataclass(frozen=True, slots=True)
class PluginSearch:
    """What was found in the stores, and what the settings say of it."""

    settings: PluginSettings
    discovered: tuple[DiscoveredPackage, ...]
    diagnostics: tuple[PackageDiagnostic, ...]
    aside: Mapping[str, str]  # why a package is not started although it could be, by its path: not trusted, or switched off

    @classmethod
    def of(cls, options: GuestOptions, found: DiscoveryResult | None = None) -> PluginSearch:
        """Look where guests are looked for; what a command line names comes before a store's of the same identity."""
        from serai.app.config import Config
        from serai.host.adapters.yoi import finder
        from serai.plugins.resolution import read_plugin_settings as settings_of

        settings = settings_of(Config.load(options.cwd).settings)
        named, told = _read_named(options.guests, settings.bounds)
        there: tuple[DiscoveredPackage, ...] = ()
        if options.installed:
            stores: tuple[tuple[Source, Path], ...] = (
                ("user", Path(paths.config_folder()) / "guests"),
                ("project", options.cwd / ".serai" / "guests"),
            )
            there, wrong = finder.discover(stores, settings.bounds)
            told += wrong
        known = {one.identity for one in named}
        return cls(
            settings=settings,
            discovered=(*named, *(one for one in there if one.identity not in known)),
            diagnostics=tuple(told),
            aside=_explain_aside(found or options.find()),
        )

    def choose(self, name: str) -> DiscoveredPackage:
        """The package of that name."""
        reference = find_reference(name, (one.identity for one in self.discovered))
        fitting = [one for one in self.discovered if one.identity == reference]
        if not fitting:
            hint = console.suggest(name, [one.manifest.id for one in self.discovered]) or "`serai guest list` shows what there is"
            raise NoGuest(f"there is no plugin {name}", hint=hint)
        if len(fitting) > 1:
            paths = " and ".join(one.path for one in fitting)
            raise NoGuest(f"{reference} is there twice: {paths}", hint="remove one of them")
        return fitting[0]

    def list_items(self) -> list[Item]:
        """All of them by reference."""
        plan = resolution.plan(self.settings.counting, self.discovered)
        told: dict[str, list[PackageDiagnostic]] = {}
        for one in (*self.diagnostics, *plan.diagnostics):
            told.setdefault(_get_reference(one), []).append(one)
        references = {one.identity for one in self.discovered} | {one.id for one in self.settings.enabled} | told.keys()
        records = {record.identity: record for record in plan.records if record.package_path not in self.aside}
        return [self._build_item(reference, records.get(reference), told.get(reference, [])) for reference in sorted(references)]

    def _build_item(self, reference: str, record: ResolvedPlugin | None, told: list[PackageDiagnostic]) -> Item:
        package = next((one for one in self.discovered if one.identity == reference), None)
        enablement = next((one for one in reversed(self.settings.counting) if one.id == reference), None)
        inspection = authorization.inspect(record) if record else None
        found = [(str(one.kind), one.message) for one in told]
        found += [("grant", message) for message in (inspection.diagnostics if inspection else ())]
        if package is not None and (why := self.aside.get(package.path)):
            found.append(("grant", why))
        if any(one.id == reference for one in self.settings.enabled) and not self.settings.on:
            found.append(("grant", "plugins are switched off: `enabled` of [feature.plugins] is not true"))
        item: Item = {"reference": reference}
        if (parts := split_identity(reference)) is not None:
            item |= {"local_ref": parts[1]}
        item |= {"status": "", **_dump_package(package, reference)}
        item |= {
            "configured": enablement is not None,
            "discovered": package is not None,
            "resolved": record is not None,
            "static_eligible": inspection is not None and inspection.eligible,
            "declared_surfaces": sorted(package.manifest.declared) if package else [],
            "enabled_surfaces": list(record.enabled_surfaces) if record else [],
            "requested_permissions": [one.label for one in package.manifest.permissions] if package else [],
            **_dump_grants(enablement.grants if enablement else Grants()),
            "tools": _dump_tools(inspection, package),
        }
        if inspection is not None:
            item["static_runtime"] = msgspec.to_builtins(inspection)
        item["diagnostics"] = [{"kind": kind, "message": message} for kind, message in sorted(set(found))]
        return item | {"status": _get_status(item, told)}


def _dump_package(package: DiscoveredPackage | None, reference: str) -> Item:
    """What is known of the package; of one that is missing only where it would have been."""
    if package is None:
        parts = split_identity(reference)
        return {} if parts is None else {"source": parts[0]}
    about = package.manifest
    return {
        "source": package.source,
        "package": package.label,
        "package_path": package.path,
        "version": about.version,
        "schema_version": about.schema_version,
        "api_version": about.schema_version,  # one number for both (spec yoi 8)
        "digest": package.digest,
    }


def _dump_tools(inspection: Inspection | None, package: DiscoveredPackage | None) -> list[Item]:
    """Of one that nobody has granted anything: what it declares, and that it may not."""
    if inspection is None and package is not None:
        bare = resolution.resolve(Enablement(id=package.identity), [package])
        inspection = authorization.inspect(bare) if isinstance(bare, ResolvedPlugin) else None
    keys = ("name", "permission", "requested", "granted", "eligible", "external_write", "diagnostic")
    rows = inspection.tools if inspection else ()
    return [{key: value for key in keys if (value := getattr(row, key)) is not None} for row in rows]


def _dump_grants(grants: Grants) -> Item:
    return {
        "configured_grants": [one.label for one in grants.permissions],
        "configured_request_grants": [targets.format_target(one, "request") for one in grants.request],
        "configured_websocket_grants": [targets.format_target(one, "websocket") for one in grants.websocket],
        "configured_fs_grants": [f"{one.root} {','.join(one.operations)}" for one in grants.fs],
    }


def _read_named(paths: Iterable[Path], bounds: Bounds) -> tuple[tuple[DiscoveredPackage, ...], tuple[PackageDiagnostic, ...]]:
    """The plugins among what the command line names, and what is wrong with them."""
    from serai.plugins import package_store

    found, told = [], []
    for path in paths:
        if not is_plugin(str(path)):
            continue
        try:
            found.append(
                DiscoveredPackage.of(package_store.read_package(path, bounds), source="user", path=str(path), label=path.name)
            )
        except ValueError as error:
            kind: resolution.Kind = getattr(error, "kind", "malformed")
            told.append(PackageDiagnostic(kind=kind, phase="discovery", source="user", package=path.name, message=str(error)))
    return tuple(found), tuple(told)


def _explain_aside(found: DiscoveryResult) -> dict[str, str]:
    aside = {str(one.manifest.folder): f"{one.reason}; `serai trust` in that folder lets it start" for one in found.untrusted}
    why = "it is switched off in your settings: `enabled` of its [guest.…], or disabled_extensions"
    off = {str(one.folder): why for one in found.disabled if one.plan}
    return aside | off


def _get_reference(told: PackageDiagnostic) -> str:
    """To which item it belongs: one that could not be read has only its file's name (spec yoi 19)."""
    if told.identity:
        return told.identity
    if told.source and told.package:
        return f"{told.source}:{told.package.removesuffix(ENDING)}"
    return _GLOBAL


def _get_status(item: Item, told: list[PackageDiagnostic]) -> str:
    if item["resolved"]:
        usable = any(tool["eligible"] for tool in item["tools"])
        if usable and item["diagnostics"]:
            return "partial"
        return "active" if usable or (item["static_eligible"] and item["enabled_surfaces"]) else "rejected"
    if item["discovered"] and not item["configured"]:
        return "disabled"
    broken = any(one.kind != "missing" for one in told)  # a broken package is there, and may be the one that is missed
    return "missing" if item["configured"] and not item["discovered"] and not broken else "rejected"


# -- for people -------------------------------------------------------------------------------------------------------------------


def list_plugins(search: PluginSearch) -> list[Item]:
    """As many as are printed, each with its first diagnostics."""
    return [_limit_diagnostics(item, _IN_LIST) for item in search.list_items()[:_MOST]]


def show_list(items: list[Item], workspace: str, *, as_json: bool) -> None:
    """All of them; as JSON one object."""
    if as_json:
        click.echo(console.dump_json({"workspace": workspace, "items": items}))
        return
    console.print_table([_COLUMNS, *map(_build_row, items)])
    for item in items:
        for one in item["diagnostics"]:
            console.err(f"{item['reference']}: {_format_diagnostic(one, item['reference'])}")


def _build_row(item: Item) -> tuple[str, ...]:
    offers = ", ".join([*item["declared_surfaces"], *(tool["name"] for tool in item["tools"])])
    return item["reference"], item["status"], item.get("version", "-"), offers or "-", item.get("package_path", "-")


def find_item(search: PluginSearch, name: str) -> Item | None:
    """The item that is meant, or None."""
    items = {item["reference"]: item for item in search.list_items()}
    reference = find_reference(name, items)
    return None if reference is None else _limit_diagnostics(items[reference], _IN_SHOW)


def show_item(item: Item, *, as_json: bool) -> None:
    if as_json:
        click.echo(console.dump_json(item))
        return
    console.out(f"{item['reference']} {item.get('version', '')}".rstrip() + f": {item['status']}")
    if "package_path" in item:
        console.out(f"  {item['source']}, in {item['package_path']}")
        console.out(f"  {item['digest']}")
    for what, key in (
        ("declares", "declared_surfaces"),
        ("enabled", "enabled_surfaces"),
        ("asks for", "requested_permissions"),
        ("has", "configured_grants"),
        ("may request", "configured_request_grants"),
        ("may open", "configured_websocket_grants"),
        ("may use", "configured_fs_grants"),
    ):
        if item[key]:
            console.out(f"  {what} {', '.join(item[key])}")
    for tool in item["tools"]:
        told = "" if tool["eligible"] else f": not offered, {tool.get('diagnostic', '')}"
        console.out(f"  tool {tool['name']}{' (writes elsewhere)' if tool['external_write'] else ''}{told}")
    for one in item["diagnostics"]:
        console.out(f"  {_format_diagnostic(one, item['reference'])}")


def _limit_diagnostics(item: Item, most: int) -> Item:
    return item | {"diagnostics": item["diagnostics"][:most]}


def _format_diagnostic(diagnostic: Item, reference: str) -> str:
    from serai.host.adapters.yoi.finder import suggest_repair

    text = f"{diagnostic['kind']}: {_shorten(diagnostic['message'])}"
    return f"{text}; {suggest_repair(reference)}" if diagnostic["kind"] == "missing" else text


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _TEXT else line[: _TEXT - 1] + "…"


def show_check(report: dict[str, Any]) -> None:
    """The same for people."""
    package = report.get("package")
    name = f"{package['package']} {package['version']}" if package else report["input_path"]
    console.out(f"{report['status']}  yoi:{name}" if package else f"{report['status']}  {name}")
    if package:
        console.out(f"  {package['digest']}, {len(package['entries'])} files")
        for what, key in (("offers", "surfaces"), ("tools", "tools"), ("asks for", "permissions")):
            if package[key]:
                console.out(f"  {what}: {', '.join(package[key])}")
    for one in report["diagnostics"]:
        console.out(f"  {one['kind']} ({one['phase']}): {one['message'][:TEXT_WIDTH]}")
    for step in report["next_steps"]:
        console.out(f"next: {step}")

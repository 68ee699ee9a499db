"""Plugins as they lie on the disk: packages in files and folders, what of them the person has enabled, and copies of what ran.

Finding reads and does nothing else: nothing is compiled, run or written (spec yoi 9). What a package is says its manifest, and
which one it is its digest: an enablement that was given to another content gives nothing. A session that goes on has a plan
already, and then nobody looks into the stores.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from serai.errors import BadManifest
from serai.host.guest_manifest import GuestManifest, Scope, inspect_folder, list_folders
from serai.host.guest_settings import AuthorSettings, PersonSettings, merge_settings
from serai.limits import MIB
from serai.plugins import resolution
from serai.plugins.bounds import DEFAULT, Bounds
from serai.plugins.grants import Enablement, ResolvedPlugin, Source
from serai.plugins.manifest import ManifestError
from serai.plugins.package import ENDING, MANIFEST, BadArchive
from serai.plugins.package_store import GRANT_HINT, read_package
from serai.plugins.resolution import DiscoveredPackage, PackageDiagnostic, PluginSettings

DIALECT = "yoi"
_ESCAPES = "plugin package path escapes its source store"
_PROJECTS = 256 * MIB  # of all packages of a project, expanded: some seconds


# -- stores -----------------------------------------------------------------------------------------------------------------------


class _Item(NamedTuple):
    """A package of a store, and which files it has."""

    found: DiscoveredPackage
    sources: tuple[Path, ...]
    size: int = 0  # bytes of all its files


def discover(
    stores: Iterable[tuple[Source, Path]], bounds: Bounds = DEFAULT
) -> tuple[tuple[DiscoveredPackage, ...], tuple[PackageDiagnostic, ...]]:
    """What lies in these stores, and what is wrong there; one bad package hides no other (spec yoi 9)."""
    items: list[_Item] = []
    told: list[PackageDiagnostic] = []
    for source, store in stores:
        found, wrong = _discover_store(store, source, bounds)
        items += found
        told += wrong
    return tuple(item.found for item in items), tuple(told)


def _discover_store(store: Path, source: Source, bounds: Bounds) -> tuple[list[_Item], list[PackageDiagnostic]]:
    items: list[_Item] = []
    told: list[PackageDiagnostic] = []
    candidates = list(_iter_candidates(store))
    if len(candidates) > bounds.packages:
        message = f"plugin store has more than {bounds.packages} packages: the others are left out"
        told.append(PackageDiagnostic(kind="bounds", phase="discovery", source=source, message=message))
    left = _PROJECTS if source == "project" else None  # a stranger's is read before anybody trusts it, at every look
    for path in candidates[: bounds.packages]:
        if left is not None and left <= 0:
            message = f"plugin store has more than {_PROJECTS} bytes of packages: this one is left out"
            told.append(PackageDiagnostic(kind="bounds", phase="discovery", source=source, package=_shown(path), message=message))
            continue
        try:
            items.append(_read_item(path, source, store, bounds))
            left = left and left - items[-1].size
        except ValueError as error:
            phase: resolution.Phase = "manifest" if isinstance(error, ManifestError) else "discovery"
            kind: resolution.Kind = getattr(error, "kind", "malformed")
            left = left and left - _estimate_size(path, bounds)
            told.append(PackageDiagnostic(kind=kind, phase=phase, source=source, package=_shown(path), message=str(error)))
    return items, [*told, *_find_duplicates(item.found for item in items)]


def _iter_candidates(store: Path) -> Iterator[Path]:
    """By path, not recursively. A place that cannot be searched is told of by whoever searches it for all guests."""
    try:
        inside = list_folders(store, endings=(ENDING,))
    except BadManifest:
        return
    for path in inside:
        try:
            folder = inspect_folder(path)
        except BadManifest:
            continue  # likewise
        if folder is not None and folder.dialect == DIALECT:
            yield path


def _find_duplicates(found: Iterable[DiscoveredPackage]) -> Iterator[PackageDiagnostic]:
    """Both stay, and nobody knows which of them is meant."""
    by_identity: dict[str, list[DiscoveredPackage]] = {}
    for one in found:
        by_identity.setdefault(one.identity, []).append(one)
    for identity, twins in by_identity.items():
        for one in twins if len(twins) > 1 else ():
            yield PackageDiagnostic(
                kind="duplicate", phase="discovery", source=one.source, identity=identity, package=_shown(Path(one.path)),
                digest=one.digest, message=f"several plugin packages have the identity {identity}",
            )  # fmt: skip


def _read_item(path: Path, source: Source, store: Path | None, bounds: Bounds) -> _Item:
    """A package where it lies. In a store it has to lie there really: whoever sends a project may have put links into it."""
    real = Path(os.path.realpath(path))
    if store is not None and real.parent != Path(os.path.realpath(store)):
        raise BadArchive("traversal", _ESCAPES)
    package = read_package(real, bounds)
    in_folder = os.path.isdir(real)
    sources = tuple(path / name for name in package.files) if in_folder else (path,)
    return _Item(
        DiscoveredPackage.of(package, source=source, path=str(path), label=_shown(path)),
        sources,
        sum(map(len, package.files.values())),
    )


def _estimate_size(path: Path, bounds: Bounds) -> int:
    """Nobody knows how far a broken one was read; a small file cannot have been much."""
    try:
        about = path.stat()
    except OSError:
        return 0
    return min(bounds.expanded, about.st_size * max(bounds.ratio, 1)) if stat.S_ISREG(about.st_mode) else bounds.expanded


def _shown(path: Path) -> str:
    """The name of a file, as text that can be written down."""
    return os.fsencode(path.name).decode(errors="replace")


# -- as guests: what `host.discovery`, `host.trust` and `host.installation` ask ----------------------------------------------------


def read_settings(config: Mapping[str, Any], who: str) -> PluginSettings:
    """`[feature.plugins]` and `[plugins]`; a `BadSettings` says what is wrong there."""
    return resolution.read_plugin_settings(config, who=who)


def read(path: Path, scope: Scope, person: PersonSettings, author: AuthorSettings) -> GuestManifest:
    """One guest, or `BadManifest`. Whether it is enabled is `resolve_plans`'s to say."""
    source: Source = "project" if scope == "project" else "user"
    try:
        item = _read_item(path, source, None if scope == "ad hoc" else path.parent, _get_settings(person).bounds)
    except ValueError as error:
        raise BadManifest(str(error), who=str(path)) from None
    return _build_manifest(item, scope, person, author)


def find_in(place: Path, scope: Scope, person: PersonSettings) -> tuple[list[GuestManifest], list[tuple[Path, str]]]:
    """The guests in one of Serai's own places, settled, and what is wrong there by its path."""
    source: Source = "project" if scope == "project" else "user"
    items, told = _discover_store(place, source, _get_settings(person).bounds)
    found = [_build_manifest(item, scope, person, _read_author(Path(item.found.path))) for item in items]
    wrong = [(place / one.package if one.package else place, one.message) for one in told]
    return resolve_plans(found, person), wrong


def resolve_plans(manifests: Sequence[GuestManifest], person: PersonSettings) -> list[GuestManifest]:
    """Those of one place with what was resolved for each: a plan, or off, or refused (spec yoi 10.1)."""
    said = _get_settings(person)
    about = {manifest.folder: cast(DiscoveredPackage, manifest.about) for manifest in manifests}
    there = {one.identity for one in about.values()}
    wanted = [one for one in said.enabled if one.id in there] if said.on else []
    plan = resolution.plan(wanted, list(about.values()))
    records = {record.identity: record for record in plan.records}
    reasons = {one.identity: one for one in plan.diagnostics}
    found = []
    for manifest in manifests:
        identity = about[manifest.folder].identity
        if record := records.get(identity):
            found.append(replace(manifest, plan=record))
        elif why := reasons.get(identity):
            hint = f"; {GRANT_HINT}" if why.kind in ("digest", "version", "grant") else ""
            found.append(replace(manifest, refused=f"{why.message}{hint}"))
        else:
            found.append(replace(manifest, enabled=False))
    return found


def suggest_repair(id: str) -> str:
    """What to do about a plugin that was granted and is nowhere."""
    return f"`serai guest add` its folder or file, or `serai guest revoke {id}`"


def describe_missing(manifests: Iterable[GuestManifest], person: PersonSettings, project: Path) -> list[str]:
    """What is wrong with enablements that are no package's. Those of a project count where it has a place for guests."""
    said = _get_settings(person)
    if said.on and said.resolved is not None:  # nobody looked; but who enabled one since wonders where it is
        known = {record.identity for record in said.resolved.records}
        later = dict.fromkeys(one.id for one in said.enabled if one.id not in known)
        return [f"plugin {id}: this session began without it; a new one looks for it" for id in later]
    found = [cast(DiscoveredPackage, manifest.about) for manifest in manifests if manifest.about is not None]
    there = {one.identity for one in found}
    told = []
    for one in said.enabled if said.on else ():
        if one.id in there or (one.id.startswith("project:") and not os.path.isdir(project / ".serai" / "guests")):
            continue
        if isinstance(why := resolution.resolve(one, found), PackageDiagnostic):
            told.append(f"plugin {one.id}: {why.message}" + ("; " + suggest_repair(one.id) if why.kind == "missing" else ""))
    return told


def restore_guests(person: PersonSettings, store: Path) -> list[GuestManifest] | None:
    """The guests of the plan that the settings hold, for which nobody looks anywhere (spec yoi 10.2); None if they hold none.

    One that is enabled no longer is not among them: who revokes a grant does not mean new sessions alone (design rule 7).
    """
    said = _get_settings(person)
    if said.resolved is None:
        return None
    counting = tuple(said.counting)
    enabled = {one.id for one in counting}
    records = [_apply_grants(record, counting) for record in said.resolved.records if record.identity in enabled]
    return [_restore_guest(record, person, store) for record in records]


def _apply_grants(record: ResolvedPlugin, counting: Sequence[Enablement]) -> ResolvedPlugin:
    """A session has what the person grants now to the contents that it began with: who narrows a grant means this one too.

    Of several the last counts (`resolution.plan`). What is granted to other contents alone says nothing of these.
    """
    fitting = [one for one in counting if one.id == record.identity and resolution.applies(one, record)]
    if not fitting:
        return record
    now = fitting[-1]
    surfaces = tuple(sorted(set(now.surfaces) or record.manifest.declared))
    return msgspec.structs.replace(record, grants=now.grants, enabled_surfaces=surfaces, config=now.config)


def build_plan(manifests: Iterable[GuestManifest]) -> dict[str, Any] | None:
    """What was resolved for these guests, to be kept with a session and given back as `plugins.resolved`; None: there is none."""
    records = [manifest.plan for manifest in manifests if manifest.dialect == DIALECT and manifest.plan is not None]
    return {"records": msgspec.to_builtins(records)} if records else None


def _get_settings(person: PersonSettings) -> PluginSettings:
    said = person.own.get(DIALECT)
    return said if isinstance(said, PluginSettings) else resolution.read_plugin_settings({})


def _read_author(path: Path) -> AuthorSettings:
    try:
        folder = inspect_folder(path)
    except BadManifest:
        folder = None
    return AuthorSettings() if folder is None else folder.author


def _build_manifest(item: _Item, scope: Scope, person: PersonSettings, author: AuthorSettings) -> GuestManifest:
    found, path = item.found, Path(item.found.path)
    return GuestManifest(
        dialect=DIALECT,
        name=found.manifest.id,
        folder=path,
        file=path / MANIFEST if os.path.isdir(path) else path,
        scope=scope,
        argv=(),
        version=found.manifest.version,
        language="wasm",
        description=found.manifest.description or found.manifest.name,
        sources=item.sources,
        digest=found.digest,
        about=found,
        bounds=_get_settings(person).bounds,
        settings=merge_settings(author, person, dialect=DIALECT, name=found.manifest.id),
    )


def _restore_guest(record: ResolvedPlugin, person: PersonSettings, store: Path) -> GuestManifest:
    path = Path(record.package_path)
    scope: Scope = "project" if record.source == "project" else "user" if path.parent == store else "ad hoc"
    found = DiscoveredPackage(
        source=record.source, path=record.package_path, label=record.package_label, manifest=record.manifest, digest=record.digest
    )
    return replace(_build_manifest(_Item(found, ()), scope, person, AuthorSettings()), plan=record)

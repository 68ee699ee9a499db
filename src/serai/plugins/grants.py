"""Enablement and grants: which plugins are enabled, and what each may have of what it requests (spec yoi 10).

Enablements are written as TOML, and each is read back as proof. A grant is pinned to contents; a person who is asked to grant
again sees what has changed. Lines of that difference begin with `+`, `-` or `~`, and what a stranger has written in them cannot
begin a line of its own.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from serai.plugins.manifest import ContributionKind, Permission, PluginManifest, Target, check_permission, check_targets, is_safe_id
from serai.plugins.package import Package
from serai.plugins.targets import format_target
from serai.plugins.untrusted_text import bound_text, to_display_text, to_json_value
from serai.toml_writer import to_toml

Source = Literal["user", "project", "builtin"]
SOURCES: tuple[Source, ...] = ("user", "project", "builtin")
Operation = Literal["read", "list", "write"]


class _Strict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    pass


class FsGrant(_Strict, frozen=True, kw_only=True):
    root: str
    operations: tuple[Operation, ...] = ()

    @property
    def usable(self) -> bool:
        """An absolute root and an operation (spec yoi 11.4)."""
        return self.root.startswith("/") and bool(self.operations)


class Grants(_Strict, frozen=True, kw_only=True):
    """All three bindings are required as soon as anything is granted."""

    id: str = ""
    version: str = ""
    digest: str = ""
    permissions: tuple[Permission, ...] = ()
    request: tuple[Target, ...] = ()
    websocket: tuple[Target, ...] = ()
    fs: tuple[FsGrant, ...] = ()

    @property
    def empty(self) -> bool:
        return not (self.permissions or self.request or self.websocket or self.fs)


class Enablement(_Strict, frozen=True, kw_only=True):
    """One `[[plugins.enabled]]`."""

    id: str
    version: str = ""
    digest: str = ""
    surfaces: tuple[ContributionKind, ...] = ()
    config: Any = None
    grants: Grants = Grants()


class ResolvedPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """What an enablement resolved to, kept with the session (spec yoi 10.1): from here on nothing is looked up again."""

    identity: str  # `<source>:<id>`, the plugin's ref
    source: Source
    package_path: str
    package_label: str  # the file's name
    digest: str
    version: str
    manifest: PluginManifest
    enabled_surfaces: tuple[ContributionKind, ...]  # sorted
    grants: Grants = Grants()
    config: Any = None


_DIGEST = "sha256:"


def is_pinned(pin: str, digest: str) -> bool:
    """Whether a pin means this digest: with its prefix and to the letter (spec yoi 7.1)."""
    return pin.startswith(_DIGEST) and len(pin) > len(_DIGEST) and pin == digest


def split_identity(text: str) -> tuple[Source, str] | None:
    """`<source>:<id>` in its parts, or None if it is not one."""
    source, colon, local = text.partition(":")
    known = next((one for one in SOURCES if one == source), None)
    return (known, local) if known is not None and colon and is_safe_id(local) else None


def find_binding_fault(grants: Grants, *, identity: str, digest: str, version: str) -> str:
    """Why these grants are not for this package, or nothing.

    Empty ones need no binding, and give nothing (spec yoi 10.1 step 5).
    """
    if grants.empty:
        return ""
    if not grants.id:
        return "plugin grant is missing a source-qualified package id binding"
    if split_identity(grants.id) is None:
        return "plugin grant package id binding is not a valid source-qualified plugin id"
    if grants.id != identity:
        return "plugin grant package id binding does not match enabled package"
    if not grants.digest:
        return "plugin grant is missing a deterministic digest binding"
    if not is_pinned(grants.digest, digest):
        return "plugin grant digest binding does not match enabled package digest"
    if not grants.version:
        return "plugin grant is missing an exact package version binding"
    return "" if grants.version == version else "plugin grant version binding does not match enabled package version"


def check_grants(grants: Grants) -> None:
    """What types cannot say; a `ValueError` says why."""
    for permission in grants.permissions:
        check_permission(permission)
    check_targets(grants.request, "request")
    check_targets(grants.websocket, "websocket")


_LISTS = ("request", "websocket", "fs")


def to_enablement(record: ResolvedPlugin) -> Enablement:
    """The enablement that resolves to this record."""
    declared = record.manifest.declared
    return Enablement(
        id=record.identity,
        version=record.version,
        digest=record.digest,
        surfaces=() if frozenset(record.enabled_surfaces) == declared else record.enabled_surfaces,
        config=record.config,
        grants=record.grants,
    )


def format_enablement(of: Enablement | ResolvedPlugin) -> str:
    """One `[[plugins.enabled]]` with its grants. A `ValueError` says of a `config` that TOML has no form for it."""
    enablement = of if isinstance(of, Enablement) else to_enablement(of)
    enablement = msgspec.structs.replace(enablement, config=to_json_value(enablement.config))
    text = "".join(f"{line}\n" for line in _iter_lines(enablement))
    read = msgspec.convert(tomllib.loads(text)["plugins"]["enabled"][0], Enablement)
    if read != enablement or _encode_exactly(read.config) != _encode_exactly(enablement.config):
        raise ValueError("the enablement cannot be written as TOML")
    return text


def _encode_exactly(config: Any) -> bytes:
    return msgspec.json.encode(config, order="deterministic")  # where true is not 1, nor 1 1.0


def format_grants(enablements: Iterable[Enablement]) -> str:
    """A whole file of them, which switches plugins on."""
    return "\n".join(["[feature.plugins]\nenabled = true\n", *map(format_enablement, enablements)])


def _iter_lines(enablement: Enablement) -> Iterator[str]:
    written = msgspec.to_builtins(enablement)
    yield "[[plugins.enabled]]"
    yield from _iter_scalars(written)
    if enablement.config is not None:
        yield f"config = {to_toml(enablement.config, few_dots=True)}"
    grants = written.get("grants", {})
    if not grants:
        return
    yield ""
    yield "[plugins.enabled.grants]"
    yield from _iter_scalars(grants)
    if permissions := grants.get("permissions"):
        yield "permissions = ["
        yield from (f"  {to_toml(permission, few_dots=True)}," for permission in permissions)
        yield "]"
    for name in _LISTS:
        for table in grants.get(name, ()):
            yield ""
            yield f"[[plugins.enabled.grants.{name}]]"
            yield from _iter_scalars(table, table)


def _iter_scalars(table: Mapping[str, Any], keys: Iterable[str] = ("id", "version", "digest", "surfaces")) -> Iterator[str]:
    return (f"{key} = {to_toml(table[key], few_dots=True)}" for key in keys if key in table)


_LONGEST = 160  # bytes of a stranger's text in a line
_UNIT = 1000


def diff_contents(old: Package | ResolvedPlugin, new: Package) -> list[str]:
    """From the old to the new; empty if the contents are the same. A record has no files, so only their digest is compared."""
    if old.digest == new.digest:
        return []
    lines = list(_diff_manifests(old.manifest, new.manifest))
    files = list(_diff_files(old.files, new.files)) if isinstance(old, Package) else []
    return lines + (files or [f"~ contents ({_shorten_digest(old.digest)} -> {_shorten_digest(new.digest)})"])


def _diff_manifests(old: PluginManifest, new: PluginManifest) -> Iterator[str]:
    for key in ("id", "version", "name", "description"):
        if getattr(old, key) != getattr(new, key):
            yield f"{key} {_format_text(getattr(old, key))} -> {_format_text(getattr(new, key))}"
    if _format_runtime(old) != _format_runtime(new):
        yield f"runtime {_format_runtime(old)} -> {_format_runtime(new)}"
    yield from _diff_sets("surface", sorted(old.declared), sorted(new.declared))
    yield from _diff_tables("tool", _index_by(old.tools, "name"), _index_by(new.tools, "name"))
    yield from _diff_tables("service", _index_by(old.services, "name"), _index_by(new.services, "name"))
    yield from _diff_tables("ingress", _index_by(old.ingresses, "name"), _index_by(new.ingresses, "name"))
    yield from _diff_tables("hook", _index_by(old.hooks, "id"), _index_by(new.hooks, "id"))
    yield from _diff_sets("permission", [one.label for one in old.permissions], [one.label for one in new.permissions])
    yield from _diff_sets("request target", _format_requests(old.request), _format_requests(new.request))
    yield from _diff_sets("websocket target", _format_websockets(old.websocket), _format_websockets(new.websocket))


def _diff_sets(what: str, old: Iterable[str], new: Iterable[str]) -> Iterator[str]:
    before, after = dict.fromkeys(old), dict.fromkeys(new)
    yield from (f"+ {what} {_format_text(one)}" for one in after if one not in before)
    yield from (f"- {what} {_format_text(one)}" for one in before if one not in after)


def _diff_tables(what: str, old: Mapping[str, dict[str, Any]], new: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    yield from _diff_sets(what, old, new)
    for name, table in new.items():
        if name in old and old[name] != table:
            keys = sorted(key for key in {**table, **old[name]} if table.get(key) != old[name].get(key))
            yield f"~ {what} {_format_text(name)} ({', '.join(keys)})"


def _index_by(items: Iterable[msgspec.Struct], key: str) -> dict[str, dict[str, Any]]:
    return {getattr(item, key): msgspec.to_builtins(item) for item in items}


def _diff_files(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> Iterator[str]:
    for path in sorted({**old, **new}):
        if path not in old:
            yield f"+ {_format_text(path)} ({_format_size(len(new[path]))})"
        elif path not in new:
            yield f"- {_format_text(path)} ({_format_size(len(old[path]))})"
        elif old[path] != new[path]:
            before, after = _format_size(len(old[path])), _format_size(len(new[path]))
            yield f"~ {_format_text(path)} ({f'{before} -> {after}' if before != after else f'{after}, other contents'})"


def _format_runtime(manifest: PluginManifest) -> str:
    return "none" if manifest.runtime is None else _format_text(f"{manifest.runtime.world} {manifest.runtime.component}")


def _format_requests(targets: Iterable[Target]) -> list[str]:
    return [format_target(target, "request") for target in targets]


def _format_websockets(targets: Iterable[Target]) -> list[str]:
    return [format_target(target, "websocket") for target in targets]


def _format_text(text: str) -> str:
    """A stranger's words within one line of ours."""
    return bound_text(" ".join(to_display_text(text).split()), _LONGEST) or '""'


def _shorten_digest(digest: str) -> str:
    return digest[: len("sha256:") + 12] + "…"


def _format_size(size: float) -> str:
    if size < _UNIT:
        return f"{size:.0f} B"
    for unit in ("kB", "MB"):
        size /= _UNIT
        if size < _UNIT:
            return f"{size:.1f} {unit}"
    return f"{size / _UNIT:.1f} GB"


def format_requested(manifest: PluginManifest) -> list[str]:
    """What a plugin asks for, a line each."""
    lines = [f"permission {_format_text(one.label)}" for one in manifest.permissions]
    lines += [f"request target {_format_text(text)}" for text in _format_requests(manifest.request)]
    return lines + [f"websocket target {_format_text(text)}" for text in _format_websockets(manifest.websocket)]


def format_granted(grants: Grants) -> list[str]:
    """What grants give, likewise."""
    lines = [f"permission {_format_text(one.label)}" for one in grants.permissions]
    private: Callable[[Target], str] = lambda target: " [private addresses too]" if target.private else ""  # noqa: E731
    lines += [f"request target {_format_text(format_target(one, 'request'))}{private(one)}" for one in grants.request]
    lines += [f"websocket target {_format_text(format_target(one, 'websocket'))}{private(one)}" for one in grants.websocket]
    return lines + [f"fs {_format_text(one.root)} {','.join(one.operations) or 'nothing'}" for one in grants.fs]


def propose_enablement(
    package: Package,
    source: Source,
    *,
    request: tuple[Target, ...] | None = None,
    websocket: tuple[Target, ...] | None = None,
    fs: tuple[FsGrant, ...] = (),
    surfaces: tuple[ContributionKind, ...] = (),
    config: Any = None,
) -> Enablement:
    """An enablement pinned to these very contents: all that is asked for, its own targets unless others are given, no folder."""
    manifest = package.manifest
    identity = f"{source}:{manifest.id}"
    grants = Grants(
        permissions=manifest.permissions,
        request=manifest.request if request is None else request,
        websocket=manifest.websocket if websocket is None else websocket,
        fs=fs,
    )
    if not grants.empty:
        grants = msgspec.structs.replace(grants, id=identity, version=manifest.version, digest=package.digest)
    return Enablement(id=identity, version=manifest.version, digest=package.digest, surfaces=surfaces, config=config, grants=grants)

"""Enablement and grants: which plugins are enabled, and what each may have of what it requests (spec yoi 10).

Enablements are written as TOML, and each is read back as proof. A grant is pinned to contents; a person who is asked to grant
again sees what has changed. Lines of that difference begin with `+`, `-` or `~`, and what a stranger has written in them cannot
begin a line of its own.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from serai.plugins.manifest import Permission, PluginManifest, Surface, Target, check_permission, check_targets, is_safe_id
from serai.plugins.package import Package
from serai.plugins.targets import label
from serai.plugins.untrusted_text import bounded, display_text, json_value

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
    surfaces: tuple[Surface, ...] = ()
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
    enabled_surfaces: tuple[Surface, ...]  # sorted
    grants: Grants = Grants()
    config: Any = None

    @property
    def local_id(self) -> str:
        return self.manifest.id


_DIGEST = "sha256:"


def pinned(pin: str, digest: str) -> bool:
    """Whether a pin means this digest: with its prefix and to the letter (spec yoi 7.1)."""
    return pin.startswith(_DIGEST) and len(pin) > len(_DIGEST) and pin == digest


def split_identity(text: str) -> tuple[Source, str] | None:
    """`<source>:<id>` in its parts, or None if it is not one."""
    source, colon, local = text.partition(":")
    known = next((one for one in SOURCES if one == source), None)
    return (known, local) if known is not None and colon and is_safe_id(local) else None


def binding(grants: Grants, *, identity: str, digest: str, version: str) -> str:
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
    if not pinned(grants.digest, digest):
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


_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_DOTS = 20  # in a text: a line with more than 50 is refused by whoever reads it
_SCALARS = ("id", "version", "digest", "surfaces")
_LISTS = ("request", "websocket", "fs")


def enablement_of(record: ResolvedPlugin) -> Enablement:
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


def enablement_toml(of: Enablement | ResolvedPlugin) -> str:
    """One `[[plugins.enabled]]` with its grants. A `ValueError` says of a `config` that TOML has no form for it."""
    enablement = of if isinstance(of, Enablement) else enablement_of(of)
    enablement = msgspec.structs.replace(enablement, config=json_value(enablement.config))
    text = "".join(f"{line}\n" for line in _lines(enablement))
    read = msgspec.convert(tomllib.loads(text)["plugins"]["enabled"][0], Enablement)
    if read != enablement or _exactly(read.config) != _exactly(enablement.config):
        raise ValueError("the enablement cannot be written as TOML")
    return text


def _exactly(config: Any) -> bytes:
    return msgspec.json.encode(config, order="deterministic")  # where true is not 1, nor 1 1.0


def grants_toml(enablements: Iterable[Enablement]) -> str:
    """A whole file of them, which switches plugins on."""
    return "\n".join(["[feature.plugins]\nenabled = true\n", *map(enablement_toml, enablements)])


def _lines(enablement: Enablement) -> Iterator[str]:
    said = msgspec.to_builtins(enablement)
    yield "[[plugins.enabled]]"
    yield from (f"{key} = {_value(said[key])}" for key in _SCALARS if key in said)
    if enablement.config is not None:
        yield f"config = {_value(enablement.config)}"
    grants = said.get("grants", {})
    if not grants:
        return
    yield ""
    yield "[plugins.enabled.grants]"
    yield from (f"{key} = {_value(grants[key])}" for key in _SCALARS if key in grants)
    if permissions := grants.get("permissions"):
        yield "permissions = ["
        yield from (f"  {_value(permission)}," for permission in permissions)
        yield "]"
    for name in _LISTS:
        for table in grants.get(name, ()):
            yield ""
            yield f"[[plugins.enabled.grants.{name}]]"
            yield from (f"{key} = {_value(value)}" for key, value in table.items())


def _value(value: Any) -> str:
    """Inline, on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    raise ValueError("TOML has no null: leave the key out")


def _float(value: float) -> str:
    text = repr(value)  # `1.0`, `1e+16`, `1e-07`: all of them TOML too
    return text if "." in text or "e" in text else f"{text}.0"


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    """Basic, on one line; all that cannot be seen is written as what it is."""
    many = text.count(".") > _DOTS
    return '"' + "".join(_character(character, many) for character in text) + '"'


def _character(character: str, many: bool) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable() and not (many and character == "."):
        return character
    code = ord(character)
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"


_LONGEST = 160  # bytes of a stranger's text in a line
_UNIT = 1000


def contents_diff(old: Package | ResolvedPlugin, new: Package) -> list[str]:
    """From the old to the new; empty if the contents are the same. A record has no files, so only their digest is compared."""
    if old.digest == new.digest:
        return []
    lines = list(_manifests(old.manifest, new.manifest))
    files = list(_files(old.files, new.files)) if isinstance(old, Package) else []
    return lines + (files or [f"~ contents ({_digest(old.digest)} -> {_digest(new.digest)})"])


def _manifests(old: PluginManifest, new: PluginManifest) -> Iterator[str]:
    for key in ("id", "version", "name", "description"):
        if getattr(old, key) != getattr(new, key):
            yield f"{key} {_said(getattr(old, key))} -> {_said(getattr(new, key))}"
    if _runtime(old) != _runtime(new):
        yield f"runtime {_runtime(old)} -> {_runtime(new)}"
    yield from _sets("surface", sorted(old.declared), sorted(new.declared))
    yield from _tables("tool", _by(old.tools, "name"), _by(new.tools, "name"))
    yield from _tables("service", _by(old.services, "name"), _by(new.services, "name"))
    yield from _tables("ingress", _by(old.ingresses, "name"), _by(new.ingresses, "name"))
    yield from _tables("hook", _by(old.hooks, "id"), _by(new.hooks, "id"))
    yield from _sets("permission", [one.label for one in old.permissions], [one.label for one in new.permissions])
    yield from _sets("request target", _requests(old.request), _requests(new.request))
    yield from _sets("websocket target", _websockets(old.websocket), _websockets(new.websocket))


def _sets(what: str, old: Iterable[str], new: Iterable[str]) -> Iterator[str]:
    before, after = dict.fromkeys(old), dict.fromkeys(new)
    yield from (f"+ {what} {_said(one)}" for one in after if one not in before)
    yield from (f"- {what} {_said(one)}" for one in before if one not in after)


def _tables(what: str, old: Mapping[str, dict[str, Any]], new: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    yield from _sets(what, old, new)
    for name, table in new.items():
        if name in old and old[name] != table:
            keys = sorted(key for key in {**table, **old[name]} if table.get(key) != old[name].get(key))
            yield f"~ {what} {_said(name)} ({', '.join(keys)})"


def _by(items: Iterable[msgspec.Struct], key: str) -> dict[str, dict[str, Any]]:
    return {getattr(item, key): msgspec.to_builtins(item) for item in items}


def _files(old: Mapping[str, bytes], new: Mapping[str, bytes]) -> Iterator[str]:
    for path in sorted({**old, **new}):
        if path not in old:
            yield f"+ {_said(path)} ({_size(len(new[path]))})"
        elif path not in new:
            yield f"- {_said(path)} ({_size(len(old[path]))})"
        elif old[path] != new[path]:
            before, after = _size(len(old[path])), _size(len(new[path]))
            yield f"~ {_said(path)} ({f'{before} -> {after}' if before != after else f'{after}, other contents'})"


def _runtime(manifest: PluginManifest) -> str:
    return "none" if manifest.runtime is None else _said(f"{manifest.runtime.world} {manifest.runtime.component}")


def _requests(targets: Iterable[Target]) -> list[str]:
    return [label(target, "request") for target in targets]


def _websockets(targets: Iterable[Target]) -> list[str]:
    return [label(target, "websocket") for target in targets]


def _said(text: str) -> str:
    """A stranger's words within one line of ours."""
    return bounded(" ".join(display_text(text).split()), _LONGEST) or '""'


def _digest(digest: str) -> str:
    return digest[: len("sha256:") + 12] + "…"


def _size(size: float) -> str:
    if size < _UNIT:
        return f"{size:.0f} B"
    for unit in ("kB", "MB"):
        size /= _UNIT
        if size < _UNIT:
            return f"{size:.1f} {unit}"
    return f"{size / _UNIT:.1f} GB"


def requested_lines(manifest: PluginManifest) -> list[str]:
    """What a plugin asks for, a line each."""
    lines = [f"permission {_said(one.label)}" for one in manifest.permissions]
    lines += [f"request target {_said(text)}" for text in _requests(manifest.request)]
    return lines + [f"websocket target {_said(text)}" for text in _websockets(manifest.websocket)]


def granted_lines(grants: Grants) -> list[str]:
    """What grants give, likewise."""
    lines = [f"permission {_said(one.label)}" for one in grants.permissions]
    private: Callable[[Target], str] = lambda target: " [private addresses too]" if target.private else ""  # noqa: E731
    lines += [f"request target {_said(label(one, 'request'))}{private(one)}" for one in grants.request]
    lines += [f"websocket target {_said(label(one, 'websocket'))}{private(one)}" for one in grants.websocket]
    return lines + [f"fs {_said(one.root)} {','.join(one.operations) or 'nothing'}" for one in grants.fs]


def propose_enablement(
    package: Package,
    source: Source,
    *,
    request: tuple[Target, ...] | None = None,
    websocket: tuple[Target, ...] | None = None,
    fs: tuple[FsGrant, ...] = (),
    surfaces: tuple[Surface, ...] = (),
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

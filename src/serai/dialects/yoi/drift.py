"""What has changed between the contents that were granted and those that are there now, in lines for people.

A grant is pinned to contents; whoever is asked to grant again sees what is new. Lines begin with `+`, `-` or `~`, and what a
stranger has written in them cannot begin a line of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from serai.dialects.yoi.grants import Enablement, FsGrant, Grants, Record, Source
from serai.dialects.yoi.manifest import PluginManifest, Surface, Target
from serai.dialects.yoi.package import Package
from serai.dialects.yoi.targets import label
from serai.dialects.yoi.texts import bounded, shown
from serai.dialects.yoi.writing import document, enablement_of, snippet

__all__ = ["asked", "difference", "document", "enablement_of", "granted", "proposal", "snippet"]

_LONGEST = 160  # bytes of a stranger's text in a line
_UNIT = 1000


def difference(old: Package | Record, new: Package) -> list[str]:
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
    return bounded(" ".join(shown(text).split()), _LONGEST) or '""'


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


def asked(manifest: PluginManifest) -> list[str]:
    """What a plugin asks for, a line each."""
    lines = [f"permission {_said(one.label)}" for one in manifest.permissions]
    lines += [f"request target {_said(text)}" for text in _requests(manifest.request)]
    return lines + [f"websocket target {_said(text)}" for text in _websockets(manifest.websocket)]


def granted(grants: Grants) -> list[str]:
    """What grants give, likewise."""
    lines = [f"permission {_said(one.label)}" for one in grants.permissions]
    private: Callable[[Target], str] = lambda target: " [private addresses too]" if target.private else ""  # noqa: E731
    lines += [f"request target {_said(label(one, 'request'))}{private(one)}" for one in grants.request]
    lines += [f"websocket target {_said(label(one, 'websocket'))}{private(one)}" for one in grants.websocket]
    return lines + [f"fs {_said(one.root)} {','.join(one.operations) or 'nothing'}" for one in grants.fs]


def proposal(
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

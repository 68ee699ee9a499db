"""Enablement and grants: which plugin is on, and what of that which it asks for it has (spec yoi 10)."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from serai.dialects.yoi.manifest import Permission, PluginManifest, Surface, Target, check_permission, check_targets, is_safe_id

__all__ = [
    "SOURCES", "Enablement", "FsGrant", "Grants", "Operation", "Record", "Source", "binding", "check_grants", "pinned",
    "split_identity",
]  # fmt: skip

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


class Record(msgspec.Struct, frozen=True, kw_only=True):
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

"""A plugin with everything, and records of it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from serai.plugins.grants import Enablement, FsGrant, Grants, ResolvedPlugin
from serai.plugins.manifest import Permission, PluginManifest, Target, parse
from serai.plugins.package import Package
from serai.plugins.resolution import DiscoveredPackage, resolve

DIGEST = "sha256:" + "a1" * 32
OTHER = "sha256:" + "b2" * 32
IDENTITY = "project:example.echo"

HEAD = """\
schema_version = 1
id = "example.echo"
name = "Echo"
version = "0.1.0"
"""
RUNTIME = """
[runtime]
kind = "wasm-component"
world = "yoi:plugin/instance@1.0.0"
component = "plugin.component.wasm"
"""
FULL = (
    HEAD
    + 'description = "says it again"\nsurfaces = ["tool"]\n'
    + RUNTIME
    + """
[[hooks]]
id = "notes"
file = "hooks/a.md"

[[tools]]
name = "example_echo"
description = "Echo."
input_schema = { type = "object", properties = { text = { type = "string" } }, required = ["text"] }

[[tools]]
name = "example_write"
external_write = true
timeout_ms = 1500
input_schema = { type = "object" }

[[services]]
name = "svc"
lifecycle = "host-managed"

[[ingresses]]
name = "ws"
event_kinds = ["websocket_text"]
sources = ["websocket:wss://example.com/socket"]

[[permissions]]
kind = "surface"
surface = "tool"
[[permissions]]
kind = "surface"
surface = "service"
[[permissions]]
kind = "surface"
surface = "ingress"
[[permissions]]
kind = "tool_namespace"
namespace = "example_"
[[permissions]]
kind = "service"
name = "svc"
[[permissions]]
kind = "ingress"
name = "ws"
[[permissions]]
kind = "external_write"
[[permissions]]
kind = "host_api"
api = "request"
[[permissions]]
kind = "host_api"
api = "websocket"
[[permissions]]
kind = "host_api"
api = "fs"

[[request]]
scheme = "https"
host = "api.example.com"
methods = ["GET", "post"]
path_prefixes = ["/v1"]

[[websocket]]
scheme = "wss"
host = "example.com"
path_prefixes = ["/socket"]
"""
)
MANIFEST = parse(FULL.encode())
FS = FsGrant(root="/data", operations=("read", "list"))
GRANTS = Grants(
    id=IDENTITY, version="0.1.0", digest=DIGEST, permissions=MANIFEST.permissions, request=MANIFEST.request,
    websocket=MANIFEST.websocket, fs=(FS,),
)  # fmt: skip


def discover(manifest: PluginManifest = MANIFEST, **changes: Any) -> DiscoveredPackage:
    fields: dict[str, Any] = {
        "source": "project",
        "path": "/p/.serai/guests/e.yoi-plugin",
        "label": "e.yoi-plugin",
        "digest": DIGEST,
    }
    return DiscoveredPackage(manifest=manifest, **fields | changes)


def enablement(**changes: Any) -> Enablement:
    fields: dict[str, Any] = {"id": IDENTITY, "version": "0.1.0", "digest": DIGEST, "grants": GRANTS}
    return Enablement(**fields | changes)


def record(manifest: PluginManifest = MANIFEST, grants: Grants = GRANTS, **changes: Any) -> ResolvedPlugin:
    """Resolved, then changed: also what no resolution gives."""
    resolved = resolve(Enablement(id=IDENTITY), [discover(manifest)])
    assert isinstance(resolved, ResolvedPlugin)
    return msgspec.structs.replace(resolved, grants=grants, **changes)


def permissions(*wanted: str) -> tuple[Permission, ...]:
    """By label, such as `surfaces.tool` or `tool.echo`."""
    made = []
    for label in wanted:
        kind, _, rest = label.partition(".")
        field = {"surfaces": "surface", "tool_namespace": "namespace", "host_api": "api"}.get(kind, "name")
        made.append(msgspec.convert({"kind": kind.replace("surfaces", "surface")} | ({field: rest} if rest else {}), Permission))
    return tuple(made)


def plugin(manifest: str = FULL, digest: str = DIGEST, files: Mapping[str, bytes] = MappingProxyType({})) -> Package:
    text = manifest.encode()
    return Package({"plugin.toml": text, "plugin.component.wasm": b"\0asm", **files}, parse(text), digest)


def target(**fields: Any) -> Target:
    return Target(**{"scheme": "https", "host": "h.example", "methods": ("GET",)} | fields)

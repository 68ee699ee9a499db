"""A plugin with one ingress, one event for it, and one command that answers it."""

from __future__ import annotations

from typing import Any

from serai.dialects.yoi.host_side import HostSide
from serai.dialects.yoi.messages import Event, PluginStatus
from serai.plugins.grants import Grants, ResolvedPlugin
from serai.plugins.manifest import INSTANCE, ContributionKind, Ingress, Permission, PluginManifest, Runtime, Target

URL = "wss://chat.example/socket"
NOW = "2026-01-02T03:04:05.678Z"
DIGEST = "sha256:" + "0" * 64
RUNNING = PluginStatus("ready", None, {"state": "ready", "data": None})

PERMISSIONS = (
    Permission(kind="surface", surface="ingress"),
    Permission(kind="ingress", name="chat"),
    Permission(kind="host_api", api="websocket"),
    Permission(kind="host_api", api="request"),
)
SOCKETS = (Target(scheme="wss", host="chat.example"),)
REQUESTS = (Target(scheme="https", host="api.example", methods=("POST",)),)


def record(
    *,
    surfaces: tuple[ContributionKind, ...] = ("ingress", "service"),
    kinds: tuple[str, ...] = ("websocket_text",),
    granted: tuple[Permission, ...] = PERMISSIONS,
) -> ResolvedPlugin:
    manifest = PluginManifest(
        schema_version=1, id="chatter", name="Chatter", version="1.0.0", runtime=Runtime(kind="wasm-component", world=INSTANCE),
        ingresses=(Ingress(name="chat", event_kinds=kinds, sources=(f"websocket:{URL}",)),),
        permissions=PERMISSIONS, websocket=SOCKETS, request=REQUESTS,
    )  # fmt: skip
    grants = Grants(
        id="user:chatter", version="1.0.0", digest=DIGEST, permissions=granted, websocket=SOCKETS, request=REQUESTS,
    )  # fmt: skip
    return ResolvedPlugin(
        identity="user:chatter", source="user", package_path="/plugins/chatter.yoi-plugin", package_label="chatter.yoi-plugin",
        digest=DIGEST, version="1.0.0", manifest=manifest, enabled_surfaces=surfaces, grants=grants,
    )  # fmt: skip


def event(**changes: Any) -> Event:
    fields: dict[str, Any] = {
        "kind": "websocket_text", "source": f"websocket:{URL}", "ingress_name": "chat", "payload": {"url": URL, "text": "hi"},
        "created_at": NOW, "correlation_id": "event-1",
    }  # fmt: skip
    return Event(**{**fields, **changes})


def command(**changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "correlation_id": "event-1:reply", "source_event_id": "event-1", "command_id": "reply", "kind": "websocket_send",
        "payload": {"url": URL, "text": "hello"}, "requested_at": NOW,
    }  # fmt: skip
    return {**fields, **changes}


def start_instance(capacity: int = 32) -> HostSide:
    instance = HostSide("user:chatter", INSTANCE, capacity)
    assert instance.begin_start()
    assert instance.finish_start(RUNNING)
    return instance

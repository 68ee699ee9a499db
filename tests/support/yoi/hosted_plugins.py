"""Plugins for the tests of the adapter: a folder with a manifest and a component, grants for it, and a host that takes it in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec

from serai.dialects.yoi.messages import Event
from serai.dialects.yoi.status import DispatchReport, InstanceStatus
from serai.host.adapters.yoi.guest import YoiGuest
from serai.host.host import Host
from serai.plugins import bounds, package_store
from serai.plugins.manifest import INSTANCE
from serai.plugins.package import compute_digest
from tests.support.host.zot_guests import open_host
from tests.support.yoi import components
from tests.support.yoi.plugin_packages import format_toml

ID = "example.echo"
SCHEMA: dict[str, Any] = {"type": "object", "properties": {}}


def manifest(
    *,
    id: str = ID,
    world: str = INSTANCE,
    tools: Sequence[str | Mapping[str, Any]] = ("echo", "count", "raw"),
    services: Sequence[str] = (),
    ingresses: Mapping[str, Mapping[str, Any]] | None = None,
    apis: Sequence[str] = (),
    permissions: Sequence[Mapping[str, Any]] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A `plugin.toml` that asks for all that it declares, unless `permissions` are given."""
    usual = {"input_schema": SCHEMA}
    declared = [
        {"name": one, "description": f"it does {one}", **usual} if isinstance(one, str) else {**usual, **one} for one in tools
    ]
    asked: list[Mapping[str, Any]] = []
    for surface, names in (("tool", [one["name"] for one in declared]), ("service", services), ("ingress", ingresses or {})):
        if names:
            asked.append({"kind": "surface", "surface": surface})
            asked += [{"kind": surface, "name": name} for name in names]
    asked += [{"kind": "host_api", "api": api} for api in apis]
    return {
        "schema_version": 1, "id": id, "name": id, "version": "0.1.0",
        "runtime": {"kind": "wasm-component", "world": world, "component": "plugin.component.wasm"},
        "tools": declared,
        "services": [{"name": name, "description": f"the service {name}"} for name in services],
        "ingresses": [{"name": name, "description": f"the ingress {name}", **said} for name, said in (ingresses or {}).items()],
        "permissions": asked if permissions is None else list(permissions),
        **more,
    }  # fmt: skip


class Plugin:
    """A package in a folder, and what it is granted: by default all that it asks for."""

    def __init__(self, place: Path, component: bytes, **said: Any) -> None:
        self.said = manifest(**said)
        self.folder = place / self.said["id"]
        self.folder.mkdir(parents=True)
        self.files = {"plugin.toml": format_toml(self.said).encode(), "plugin.component.wasm": component}
        for name, content in self.files.items():
            (self.folder / name).write_bytes(content)
        self.id = self.said["id"]
        self.grants: dict[str, Any] = {"permissions": self.said["permissions"]}
        for api in ("request", "websocket"):
            if api in self.said:
                self.grants[api] = [{**target, "private": True} for target in self.said[api]]
        self.more: dict[str, Any] = {}  # of its enablement

    @property
    def enablement(self) -> dict[str, Any]:
        id = f"user:{self.id}"
        bound = {"id": id, "version": self.said["version"], "digest": compute_digest(self.files), **self.grants}
        return {"id": id, "grants": bound, **self.more}


@asynccontextmanager
async def run_host(
    tmp_path: Path, *plugins: Plugin | Folder, bounds: Mapping[str, Any] | None = None, **options: Any
) -> AsyncIterator[Host]:
    """A host with these plugins, enabled and granted."""
    config: dict[str, Any] = {
        "feature": {"plugins": {"enabled": True}},
        "plugins": {"enabled": [one.enablement for one in plugins], "bounds": dict(bounds or {})},
        **options.pop("settings", {}),
    }
    folders = [one.folder for one in plugins] + options.pop("others", [])
    async with open_host(tmp_path, *folders, config=config, **options) as host:
        yield host


# Nothing starts again before a test is over.
DOWN: dict[str, float | None] = {"restart_wait": 60.0, "restart_wait_most": 60.0}


def guest_of(host: Host, id: str = ID) -> YoiGuest:
    """The plugin that serves at this moment."""
    found = host.guest(id).running
    assert found is not None, host.guest(id).explain_down()
    return cast(YoiGuest, found)


def event(**said: Any) -> Event:
    """An event for the ingress `in`."""
    usual = {
        "kind": "test", "source": "test:here", "ingress_name": "in", "payload": None,
        "created_at": "2026-01-01T00:00:00.000Z", "correlation_id": "evt-1",
    }  # fmt: skip
    return Event(**{**usual, **said})


# -- guests that take events ------------------------------------------------------------------------------------------------------

_HEAD = len('{"kind":"test","source":"test:here","ingress_name":"in","payload":')
_TAIL = len(',"created_at":"2026-01-01T00:00:00.000Z","attempt":1,"correlation_id":"evt-1"}')
_ID = 36  # bytes of an id of the host's own; it is the last thing in the envelope
INGRESS: dict[str, Any] = {"tools": ("echo", "count"), "services": ("svc",), "ingresses": {"in": {}}}


def build_tools() -> components.Guest:
    guest = components.Guest()
    guest.tool("echo", guest.output("echo", "(local.get $b) (local.get $m)"))
    return guest.tool("count", guest.counter())


def mirror() -> bytes:
    """Its answer to an event of `event` is that event's payload, byte for byte."""
    guest = build_tools()
    at = f"(i32.add (local.get $b) (i32.const {_HEAD}))"
    return guest.on("handle-ingress", f"(call $ret {at} (i32.sub (local.get $m) (i32.const {_HEAD + _TAIL})))").build()


def reflect(kind: str = "diagnostic_status_update", payload: str = '{"message":"seen","status":EVENT}') -> bytes:
    """It answers each event of the host's own with one command; `EVENT` in its payload is the event."""
    guest = build_tools()
    id = f"(i32.sub (i32.add (local.get $b) (local.get $m)) (i32.const {_ID + 2})) (i32.const {_ID})"
    before, _, after = payload.partition("EVENT")
    head = '{"accepted":true,"output_commands":[{"correlation_id":"c-1","source_event_id":"'
    middle = f'","command_id":"one","requested_at":"2026-01-01T00:00:00Z","kind":"{kind}","payload":{before}'
    event = "(call $put (local.get $b) (local.get $m))" if "EVENT" in payload else ""
    body = (
        f"(call $begin (i32.add (i32.mul (local.get $m) (i32.const 2)) (i32.const 4096))) (call $put {guest.text(head)}) "
        f"(call $put {id}) (call $put {guest.text(middle)}) {event} (call $put {guest.text(after + '}]}')}) (call $done)"
    )
    return guest.on("handle-ingress", body).build()


def command(**said: Any) -> dict[str, Any]:
    """An output command for an event of `event`."""
    usual = {
        "correlation_id": "c-1", "source_event_id": "evt-1", "command_id": "one", "kind": "diagnostic_status_update",
        "payload": {"message": "well"}, "requested_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    return {**usual, **said}


async def wait_until(guest: YoiGuest, fits: Callable[[InstanceStatus], bool]) -> InstanceStatus:
    """Wait until what is known of an instance fits; looked at whenever something has changed."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    instance = guest.instance

    def look() -> None:
        if not done.done() and fits(guest.get_status()):
            done.set_result(None)

    def wrap(owner: Any, name: str) -> None:
        before = getattr(owner, name)

        def after(*args: Any, **more: Any) -> Any:
            loop.call_soon(look)
            return before(*args, **more)

        setattr(owner, name, after)

    for owner, name in ((instance, "note"), (instance, "_count"), (instance, "update_status"), (instance.connections, "_change")):
        wrap(owner, name)
    look()
    async with asyncio.timeout(30):
        await done
    return guest.get_status()


EXAMPLES = Path(__file__).parents[3] / "examples" / "yoi"


class Folder:
    """A plugin in its folder, which is granted all that it asks for, and files below a root."""

    def __init__(
        self,
        folder: Path,
        root: Path | None = None,
        operations: Sequence[str] = ("read", "list", "write"),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        package = package_store.read_package(folder, bounds.DEFAULT)
        about = package.manifest
        id = f"user:{about.id}"
        granted: dict[str, Any] = {"permissions": msgspec.to_builtins(about.permissions)}
        for key in ("request", "websocket"):
            granted[key] = msgspec.to_builtins(getattr(about, key))
        if root is not None:
            granted["fs"] = [{"root": str(root), "operations": list(operations)}]
        self.enablement: dict[str, Any] = {
            "id": id,
            "grants": {"id": id, "version": about.version, "digest": package.digest, **granted},
        }
        if config is not None:
            self.enablement["config"] = config


async def dispatch_text(host: Host, id: str, ingress: str, text: str) -> DispatchReport:
    """Have a text come in."""
    event = Event(
        kind="text", source="test", ingress_name=ingress, payload={"text": text}, created_at="2026-01-01T00:00:00.000Z",
        correlation_id="event-1",
    )  # fmt: skip
    return await guest_of(host, id).dispatch(ingress, event)

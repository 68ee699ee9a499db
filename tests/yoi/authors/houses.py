"""Plugins from their folders in a host, with a folder of notes granted to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec

from serai.dialects.yoi.messages import Event
from serai.dialects.yoi.status import DispatchReport
from serai.host.adapters.yoi.guest import YoiGuest
from serai.host.host import Host
from serai.plugins import bounds, package_store
from tests.host.guests import opened

__all__ = ["EXAMPLES", "Folder", "harness", "kept", "running"]

EXAMPLES = Path(__file__).parents[3] / "examples" / "yoi"


class Folder:
    """A plugin in its folder, which is granted all that it asks for, and files below a root."""

    def __init__(self, folder: Path, root: Path | None = None, operations: Sequence[str] = ("read", "list", "write")) -> None:
        self.folder = folder
        package = package_store.read_package(folder, bounds.DEFAULT)
        about = package.manifest
        id = f"user:{about.id}"
        granted: dict[str, Any] = {"permissions": msgspec.to_builtins(about.permissions)}
        for key in ("request", "websocket"):
            granted[key] = msgspec.to_builtins(getattr(about, key))
        if root is not None:
            granted["fs"] = [{"root": str(root), "operations": list(operations)}]
        self.enablement = {"id": id, "grants": {"id": id, "version": about.version, "digest": package.digest, **granted}}


@asynccontextmanager
async def harness(tmp_path: Path, *folders: Folder, config: Any = None) -> AsyncIterator[Host]:
    more = {} if config is None else {"config": config}
    settings = {
        "feature": {"plugins": {"enabled": True}},
        "plugins": {"enabled": [one.enablement | more for one in folders]},
    }
    async with opened(tmp_path, *(one.folder for one in folders), config=settings) as host:
        yield host


def running(host: Host, id: str) -> YoiGuest:
    found = host.guest(id).running
    assert found is not None, host.guest(id).why_down()
    return cast(YoiGuest, found)


async def kept(host: Host, id: str, ingress: str, text: str) -> DispatchReport:
    """Have a text come in."""
    event = Event(
        kind="text", source="test", ingress_name=ingress, payload={"text": text}, created_at="2026-01-01T00:00:00.000Z",
        correlation_id="event-1",
    )  # fmt: skip
    return await running(host, id).dispatch(ingress, event)

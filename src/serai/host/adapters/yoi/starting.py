"""The start of a plugin: its package is read, a worker is opened for it, and `start` is called (spec yoi 13.1)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from serai import paths
from serai.dialects.yoi.host_side import HostSide
from serai.errors import BadManifest, SeraiError
from serai.host.adapter import Taking
from serai.host.adapters.yoi.guest import YoiGuest
from serai.host.adapters.yoi.life import APIS, register, reworded
from serai.host.adapters.yoi.worker import open_worker
from serai.plugins import authorization, package_store
from serai.plugins.bounds import DEFAULT, Bounds
from serai.plugins.grants import ResolvedPlugin
from serai.plugins.manifest import INSTANCE
from serai.plugins.untrusted_text import operator_text

__all__ = ["start"]


async def start(taking: Taking) -> YoiGuest:
    """Whatever fails, no process is left."""
    manifest = taking.manifest
    record: ResolvedPlugin | None = manifest.plan
    if record is None or record.manifest.runtime is None:
        raise BadManifest("it has nothing that runs", who=taking.who)
    taking.log.remark(f"starts {manifest.name} {manifest.version}".rstrip())
    bounds: Bounds = manifest.bounds or DEFAULT
    offer = register(record, bounds, taking.limits.tool, taking.who)
    for line in offer.denied:
        taking.log.remark(line)
    had, kept = taking.memory.pop("record", None), taking.memory.pop(INSTANCE, None)  # of another package nothing fits any more
    instance: HostSide = kept if kept and had == record else HostSide(record.identity, record.manifest.runtime.world)
    guest = YoiGuest(taking, record, bounds, offer, instance)
    if offer.empty:  # nothing of it is enabled: no instance is made (spec yoi 12.3)
        return guest
    try:
        await _begin(guest, taking, record, bounds)
    except BaseException as error:
        taking.memory["record"], taking.memory[INSTANCE] = record, instance
        await guest.abandon()
        if isinstance(error, SeraiError):
            raise reworded(error, f"plugin instance startup failed closed: {operator_text(error.message)}") from error
        raise
    return guest


async def _begin(guest: YoiGuest, taking: Taking, record: ResolvedPlugin, bounds: Bounds) -> None:
    component = await asyncio.to_thread(_component, record, taking.environ, bounds)
    assert record.manifest.runtime is not None
    worker = await open_worker(
        spawner=taking.spawner,
        deadlines=taking.deadlines,
        limits=taking.limits,
        tap=taking.tap,
        stderr=taking.log.descriptor,
        who=taking.who,
        component=component,
        digest=record.digest,
        world=record.manifest.runtime.world,
        bounds=bounds,
        cache=os.path.join(paths.state_folder(taking.environ), "wasm"),
        denied={api: why for api in APIS if (why := authorization.host_api_refusal(record, api))},
        host=guest.host_call,
        ended=guest.failed,
    )
    taking.greeted()
    await guest.begin(worker)


def _component(record: ResolvedPlugin, environ: Mapping[str, str], bounds: Bounds) -> bytes:
    """The very bytes whose digest was granted (spec yoi 10.2, 21.34); a copy is kept for later runs of this session."""
    package = package_store.package_for(record, environ, bounds)
    package_store.keep_copy(package, environ)
    assert record.manifest.runtime is not None
    return package.files[record.manifest.runtime.component]

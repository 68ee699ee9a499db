"""The start of a plugin: its package is read, a worker is opened for it, and `start` is called (spec yoi 13.1)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from serai import paths
from serai.dialects.yoi import authorising
from serai.dialects.yoi.bounds import DEFAULT, Bounds
from serai.dialects.yoi.grants import Record
from serai.dialects.yoi.manifest import INSTANCE
from serai.dialects.yoi.ours import Instance
from serai.dialects.yoi.texts import told
from serai.errors import BadManifest, SeraiError
from serai.host import plugins
from serai.host.adapter import Taking
from serai.host.adapters.yoi.guest import YoiGuest
from serai.host.adapters.yoi.life import APIS, register, reworded
from serai.host.adapters.yoi.worker import open_worker

__all__ = ["start"]


async def start(taking: Taking) -> YoiGuest:
    """Whatever fails, no process is left."""
    manifest = taking.manifest
    record: Record | None = manifest.plan
    if record is None or record.manifest.runtime is None:
        raise BadManifest("it has nothing that runs", who=taking.who)
    taking.log.remark(f"starts {manifest.name} {manifest.version}".rstrip())
    bounds: Bounds = manifest.bounds or DEFAULT
    offer = register(record, bounds, taking.limits.tool, taking.who)
    for line in offer.denied:
        taking.log.remark(line)
    had, kept = taking.memory.pop("record", None), taking.memory.pop(INSTANCE, None)  # of another package nothing fits any more
    instance: Instance = kept if kept and had == record else Instance(record.identity, record.manifest.runtime.world)
    guest = YoiGuest(taking, record, bounds, offer, instance)
    if offer.empty:  # nothing of it is enabled: no instance is made (spec yoi 12.3)
        return guest
    try:
        await _begin(guest, taking, record, bounds)
    except BaseException as error:
        taking.memory["record"], taking.memory[INSTANCE] = record, instance
        await guest.abandon()
        if isinstance(error, SeraiError):
            raise reworded(error, f"plugin instance startup failed closed: {told(error.message)}") from error
        raise
    return guest


async def _begin(guest: YoiGuest, taking: Taking, record: Record, bounds: Bounds) -> None:
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
        denied={api: why for api in APIS if (why := authorising.host_api(record, api))},
        host=guest.host_call,
        ended=guest.failed,
    )
    taking.greeted()
    await guest.begin(worker)


def _component(record: Record, environ: Mapping[str, str], bounds: Bounds) -> bytes:
    """The very bytes whose digest was granted (spec yoi 10.2, 21.34); a copy is kept for later runs of this session."""
    package = plugins.package_for(record, environ, bounds)
    plugins.keep_copy(package, environ)
    assert record.manifest.runtime is not None
    return package.files[record.manifest.runtime.component]

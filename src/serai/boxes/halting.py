"""Pause and resume. Once begun they go on to their end, and neither costs a box its disk, whatever goes wrong (spec hooks 3.5)."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from serai.boxes import making, owners
from serai.boxes.holding import to_its_end
from serai.boxes.store import Store
from serai.errors import BoxRefused
from serai.wire import process_tree

if TYPE_CHECKING:
    from serai.boxes.box import Box
    from serai.boxes.manager import Boxes
    from serai.boxes.record import BoxRecord

__all__ = ["pause", "resume"]


async def pause(boxes: Boxes, box: Box) -> BoxRecord:
    """Its time to live is written first: then it is known, whoever dies over the rest."""
    if box.instance.halted == "paused":
        raise BoxRefused(f'box "{box.id}" is paused already', who=box.id)
    _check_free(boxes, box.record)
    expires = box.record.expires_at
    await boxes.do(Store.change, box.generation, time_left=None if expires is None else max(0.0, expires - time.time()))
    box.disarm()
    try:
        await box.instance.pause()
    except BaseException:
        if not _is_paused(box) and boxes.owned(box.generation):
            boxes.owns(box)  # it was not stopped: its time goes on
        raise
    return await box.refresh(owner="" if box.record.kept else boxes.owner, expires_at=None)


async def resume(boxes: Boxes, box: Box) -> BoxRecord:
    """The marker goes last, when all is on record; until then it is a paused box, for us and for everybody."""
    if not _is_paused(box):
        raise BoxRefused(f'box "{box.id}" is not paused', who=box.id)
    record = box.record
    if record.kept and not await boxes.claim(record):  # one at a time; and while it is ours nobody takes it for nobody's
        raise BoxRefused(f'box "{box.id}" is being resumed or destroyed by somebody else', who=box.id)
    _check_free(boxes, await boxes.record(box.generation))
    expires = record.expires_at if record.time_left is None else time.time() + record.time_left
    try:
        await box.instance.resume(boxes.holder(replace(record, expires_at=expires), abandoned="stop"))
        await box.instance.control().init([], env=record.env)
        await making.register(boxes, box, time_left=None, expires_at=expires)
    except BaseException:
        await to_its_end(_still_paused(boxes, box))
        raise
    return await box.refresh()


async def _still_paused(boxes: Boxes, box: Box) -> None:
    """A resume that came to nothing leaves the box as it was."""
    try:
        await box.instance.pause()
    finally:
        if box.record.kept:
            await boxes.do(Store.change, box.generation, owner="")


def _is_paused(box: Box) -> bool:
    return box.instance.halted == "paused"


def _check_free(boxes: Boxes, record: BoxRecord) -> None:
    """Whether we may halt it: its keeper's it may be, but no other manager's."""
    if record.owner != boxes.owner and owners.is_manager(record.owner) and process_tree.is_alive(record.owner):
        pid = process_tree.identity_pid(record.owner)
        raise BoxRefused(f'box "{record.box_id}" belongs to the running process {pid}', who=record.box_id)

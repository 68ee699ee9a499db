"""How a box comes to be, one durable step after the other (spec hooks 3.3):

the id is taken and the intent written; each hook runs and its state is written; the box starts; files and script go in; the record
says it is there. Whatever fails on the way, and whoever is killed, what is on disk by then is enough to undo the rest.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from serai.boxes import settling
from serai.boxes.box import Box
from serai.boxes.holding import to_its_end
from serai.boxes.record import BoxRecord, now
from serai.boxes.store import Store
from serai.dialects import hookproto
from serai.dialects.hookproto.ours import Injection
from serai.wire import process_tree

if TYPE_CHECKING:
    from serai.boxes.backend import Backend
    from serai.boxes.hooks import Runner
    from serai.boxes.manager import Boxes

__all__ = ["make", "register"]

log = logging.getLogger("serai.boxes")


async def make(boxes: Boxes, record: BoxRecord, token: str, files: Sequence[Injection], script: bytes | None) -> Box:
    """The box, or an error and nothing of it."""
    backend = boxes.backend(record.backend)
    backend.check(record.wanted)  # before any hook mints something for a box that cannot be
    await backend.list()  # a backend that cannot even be asked is not given a box
    runner = boxes.runner(record.hooks)
    states: dict[str, str] = {}
    try:
        await boxes.do(Store.reserve, record, boxes.most)
        injected = [*files, *await _ask_hooks(boxes, runner, record, states)]
        box = Box(boxes, record, await backend.provision(record.wanted, boxes.holder(record)), token)
        told = await box.instance.control().init(
            _ownable(_last_wins(injected), backend), env=record.env, script=script, script_timeout=boxes.limits.box_script
        )
        trouble = {}
        if told.script_failed:  # the box stays, for somebody to look at it (spec hooks 2.4)
            trouble = {"status": "broken", "last_error": f"{told.script_error}\n\n{told.script_output}".strip()}
        await register(boxes, box, **trouble)
    except BaseException:
        await to_its_end(_roll_back(boxes, replace(record, hook_state=states)))
        raise
    return box


async def register(boxes: Boxes, box: Box, **changes: object) -> None:
    """It is there: on record with its owner, and only then left to that owner."""
    held = box.instance.held
    assert held is not None
    owner = boxes.owner if held.owner_pid == os.getpid() else process_tree.identity_of(held.owner_pid)
    seen = box.instance.meta()
    observed = {"observed_name": seen.name, "observed_image": seen.image, "observed_state": seen.state, "observed_at": now()}
    await boxes.do(Store.register, box.generation, owner=owner, **observed, **changes)
    box.record = await boxes.record(box.generation)
    box.instance.resumed()  # before it is left to its keeper, who marks it again should we die just now
    held.commit()
    if not box.record.kept:
        boxes.owns(box)


async def _ask_hooks(boxes: Boxes, runner: Runner, record: BoxRecord, states: dict[str, str]) -> Sequence[Injection]:
    """Run the create hooks; each state is on disk before anything is made of the answer that brought it (design rule 14)."""

    async def written(key: str, state: str) -> None:
        states[key] = state
        await boxes.do(Store.change, record.generation, hook_state=states)

    about = hookproto.Box(box_id=record.box_id, description=record.description, image=record.observed_image)
    outcome = await runner.create(about, settling.answers(boxes, record), written)
    if outcome.error is not None:
        raise outcome.error
    return outcome.files


async def _roll_back(boxes: Boxes, record: BoxRecord) -> None:
    """Undo what was done. What goes wrong here is logged: the caller's error stays what it was (spec hooks 2.4)."""
    try:
        await boxes.end(record)
    except Exception as error:
        log.warning("box %s: the roll-back of its create failed, the next start tries again: %s", record.box_id, error)


def _ownable(files: Sequence[Injection], backend: Backend) -> list[Injection]:
    """Where a box has one user only, everything in it is that user's: better a box with that than none."""
    if backend.capabilities.ownership == "full":
        return list(files)
    for file in files:
        if file.uid or file.gid:
            log.warning(
                "%s is for %d:%d, but boxes of %s have one user here, who gets it", file.path, file.uid, file.gid, backend.name
            )
    return [replace(file, uid=0, gid=0) for file in files]


def _last_wins(files: Sequence[Injection]) -> list[Injection]:
    """Of several files for one path the last counts (spec hooks 1.8)."""
    return list({file.path: file for file in files}.values())

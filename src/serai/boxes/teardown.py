"""How a box ends, and how another process ends it when its owner cannot any more.

One order for all: processes and disk, then the destroy hooks, each noted when it has run, then the record. After a kill on the
way, the next process resumes from there; hooks may be told twice of an end, never not at all (spec hooks 2.3).

As a program this is what a keeper becomes (`serai.boxes.programs.keeper`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import struct
import time
from typing import TYPE_CHECKING

from serai.boxes import ownership
from serai.boxes.backend import BACKENDS, BoxObservation
from serai.boxes.backends.local import build_log_path
from serai.boxes.box_records import BoxRecord, BoxStore, format_time, now
from serai.boxes.hooks import list_answer_places
from serai.boxes.ownership import build_program_command
from serai.dialects import hookproto
from serai.errors import BadSettings, BoxFailed, BoxNotFound, BoxRefused, NotRecorded, NotWritten, SeraiError
from serai.limits import Limits
from serai.wire import process_tree

if TYPE_CHECKING:
    from serai.boxes.manager import Boxes

log = logging.getLogger("serai.boxes")

_DAY = 86400
_LOOK = 0.02  # seconds between looks at a box that somebody else is ending


class BoxTeardown:
    """Ends the boxes of a `Boxes`: its own, each once, and those that others left."""

    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes
        self._ending: dict[str, asyncio.Task[str]] = {}  # by generation

    async def claim(self, record: BoxRecord) -> bool:
        """Become the owner of a box whose owner is gone, or was this process before. One only does."""
        if record.owner == self._boxes.owner:
            return True
        if process_tree.is_alive(record.owner) and (ownership.is_manager(record.owner) or not ownership.is_here(record.owner)):
            return False
        return await self._boxes.do(BoxStore.claim, record.generation, record.owner, self._boxes.owner)

    async def end(self, record: BoxRecord, reason: str = "") -> str:
        """End a box that is ours. With a reason it leaves a tombstone. Once, however many ask."""
        task = self._ending.get(record.generation)
        if task is None:
            task = asyncio.create_task(self._end(record, reason), name=f"end box {record.box_id}")
            self._ending[record.generation] = task
            task.add_done_callback(lambda _: self._ending.pop(record.generation, None))
        return await asyncio.shield(task)  # a cancelled caller does not leave half a box

    async def finish(self) -> None:
        """Wait for the ends that are under way."""
        if self._ending:
            await asyncio.wait(self._ending.values())

    async def _end(self, record: BoxRecord, reason: str = "") -> str:
        """Leave nothing of a box but, with a reason, a tombstone. Returns what went wrong with its hooks.

        Raises an error of its backend. The box must be the caller's (`claim`): so nobody else is at it. A create that is rolled
        back may have lost its record; then what the caller knows of it counts.
        """
        fresh = await self._boxes.do(BoxStore.find_by_generation, record.generation)
        if fresh is None and record.lifecycle != "creating":
            return ""
        record = await self._recover_answers(fresh) if fresh else record
        if record.unreadable:
            raise NotWritten(f"box {record.box_id} is not ended without its hooks: {record.unreadable}", who=self._boxes.home)
        owned = self._boxes.owned(record.generation)
        with contextlib.suppress(BoxNotFound):
            instance = owned.instance if owned else await self._boxes.backend(record.backend).find(record.generation)
            if instance.generation == record.generation:
                await instance.destroy()
        failed = await self._tell_hooks(record)
        shutil.rmtree(os.path.join(self._boxes.home, record.generation), ignore_errors=True)
        self._boxes.disown(record.generation)
        with contextlib.suppress(BoxNotFound):
            if reason and record.lifecycle == "running":
                gone = {"lifecycle": "terminated", "last_error": reason, "owner": "", "observed_at": now()}
                await self._boxes.do(BoxStore.change, record.generation, **gone)
            else:
                await self._boxes.do(BoxStore.delete, record.generation)
                self._remove_log(record)
        return failed

    async def destroy(self, name: str) -> str:
        """End a box by its name, whoever looks after it: ourselves, its keeper, or nobody any more."""
        until = time.monotonic() + 3 * self._boxes.limits.box_stop + 2 * self._boxes.limits.hook_timeout
        while True:
            record = await self._boxes.do(BoxStore.get, name)
            if record is None:
                return await self._destroy_unknown(name)
            if record.lifecycle == "terminated":  # its hooks ran when it became a tombstone
                await self._boxes.do(BoxStore.delete, record.generation)
                self._remove_log(record)
                return ""
            if await self._boxes.give_up_making(record.generation):
                return ""
            if await self.claim(record):
                return await self.end(record)
            _check_takeable(record)
            if not ownership.is_manager(record.owner):
                hooks = len(record.hooks) * (self._boxes.limits.hook_timeout + self._boxes.limits.hook_grace)
                folder = os.path.join(self._boxes.home, record.generation)
                answer = await ownership.ask_keeper(folder, "destroy", timeout=3 * self._boxes.limits.box_stop + hooks)
                if answer is not None:
                    self._boxes.forget(record)
                    return str(answer.get("failed", ""))
            if time.monotonic() > until:  # somebody is at it already
                hint = f"kill {process_tree.parse_identity_pid(record.owner)}, then try again"
                raise BoxFailed("whoever ends it does not come to an end", who=f"box {record.box_id}", hint=hint)
            await asyncio.sleep(_LOOK)

    async def _destroy_unknown(self, name: str) -> str:
        """Without a record a backend may still have it (spec hooks 3.4)."""
        for backend in map(self._boxes.backend, BACKENDS):
            with contextlib.suppress(BoxNotFound):
                await (await backend.find(name)).destroy()
        return ""

    async def _recover_answers(self, record: BoxRecord) -> BoxRecord:
        """A manager that was killed between a hook's answer and the record of it left the answer in a file."""
        if record.lifecycle != "creating":
            return record
        runner, keys = self._boxes.runner(record.hooks), [hook.key for hook in record.hooks]
        for place in list_answer_places(self._boxes.home, record.generation):
            if lost := await runner.recover(place, keys):
                await self._boxes.do(BoxStore.change, record.generation, hook_state={**lost, **record.hook_state})
            runner.forget(place)
        return await self._boxes.do(BoxStore.find_by_generation, record.generation) or record

    async def _tell_hooks(self, record: BoxRecord) -> str:
        done = list(record.hooks_done)

        async def store_done(key: str) -> None:
            done.append(key)
            with contextlib.suppress(BoxNotFound):
                await self._boxes.do(BoxStore.change, record.generation, hooks_done=done)

        # After a normal life only the id (spec hooks 1.3); after a create that failed what it was to be.
        undone = record.description if record.lifecycle == "creating" else ""
        about = hookproto.Box(box_id=record.box_id, description=undone)
        failed = await self._boxes.runner(record.hooks).destroy(about, record.hook_state, done=frozenset(done), on_done=store_done)
        untold = [hook.key for hook in record.hooks if record.hook_state.get(hook.key) and hook.key not in done]
        if untold:  # the machine would not start it: that is no answer of the hook's, so it is still to be told
            raise BoxFailed(f"its hook {untold[0]} could not be run: {failed}", who=f"box {record.box_id}", hint="destroy it again")
        return str(failed) if failed is not None else ""

    async def recover(self) -> None:
        """End every box whose owner is dead and forget old tombstones, at the next start. One bad box does not keep the others."""
        old = format_time(time.time_ns() - self._boxes.limits.box_tombstone * _DAY * 1_000_000_000)
        for record in await self._boxes.do(BoxStore.list_all):
            try:
                if record.lifecycle == "terminated":
                    if (record.observed_at or "") < old:
                        await self._boxes.do(BoxStore.delete, record.generation)
                        self._remove_log(record)
                elif not process_tree.is_alive(record.owner) and not await self._is_paused(record):
                    await self._settle(record)
            except SeraiError as error:
                log.warning("box %s cannot be settled now: %s", record.box_id, error)

    async def _settle(self, record: BoxRecord) -> None:
        if await self.claim(record):
            log.info("box %s: its owner is gone, it is settled now", record.box_id)
            await self.end(record, "its keeper died" if record.kept else "")

    async def _is_paused(self, record: BoxRecord) -> bool:
        """A kept box that is paused needs nobody, and nobody may take it away (spec hooks 3.5)."""
        if not record.kept or record.lifecycle != "running":
            return False
        try:
            return (await self._boxes.backend(record.backend).find(record.generation)).halted == "paused"
        except BoxNotFound:
            return False

    async def sync(self) -> None:
        """Fold in what the backends see now (spec hooks 3.8). A backend that cannot be asked concludes nothing."""
        records = await self._boxes.do(BoxStore.list_all)
        for name in {record.backend for record in records}:
            try:
                seen = {box.generation: box for box in await self._boxes.backend(name).list()}
            except SeraiError as error:
                log.warning("the boxes of %s cannot be listed: %s", name, error)
                continue
            mine = [record for record in records if record.backend == name]
            for stranger in seen.keys() - {record.generation for record in mine}:
                log.warning("%s has a box without a record, which is left alone: %s", name, seen[stranger].box_id)
            for record in mine:
                try:
                    await self._apply_observation(record, seen.get(record.generation))
                except SeraiError as error:
                    log.warning("box %s: %s", record.box_id, error)

    async def _apply_observation(self, record: BoxRecord, seen: BoxObservation | None) -> None:
        if seen is None:
            young = record.created_at > format_time(time.time_ns() - int(self._boxes.limits.box_missing * 1e9))
            if record.lifecycle == "running" and not young:
                await self._handle_vanished(record)
            return
        observed: dict[str, object] = {
            "observed_name": seen.name, "observed_image": seen.image, "observed_state": seen.state, "observed_at": now(),
        }  # fmt: skip
        if record.lifecycle == "terminated":
            if seen.state == "exited":
                return
            observed |= {"lifecycle": "running", "last_error": "", "hooks_done": []}  # it lives after all, and will end again
        await self._boxes.do(BoxStore.change, record.generation, **observed)

    async def _handle_vanished(self, record: BoxRecord) -> None:
        """Its backend does not have it any more: a tombstone, once, by whoever looks after it."""
        if record.owner == self._boxes.owner or (not process_tree.is_alive(record.owner) and await self.claim(record)):
            await self.end(record, "it is gone from its backend")
        elif record.kept and not ownership.is_manager(record.owner):
            os.kill(
                process_tree.parse_identity_pid(record.owner), signal.SIGTERM
            )  # its keeper settles it; one that does so already is a manager

    def _remove_log(self, record: BoxRecord) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(build_log_path(self._boxes.home, record.generation))

    def build_command(self) -> list[str]:
        """How a keeper becomes the one that settles. No secret is in it: it shows in a process list."""
        config = {"home": self._boxes.home, "limits": self._boxes.limits.changes(), "key_file": self._boxes.key_file}
        return [*build_program_command("teardown", alone=False), json.dumps(config)]


def _check_takeable(record: BoxRecord) -> None:
    """Whether a box that somebody else looks after may be ended by us."""
    pid = process_tree.parse_identity_pid(record.owner)
    if record.lifecycle == "creating":
        raise BoxRefused(f'box "{record.box_id}" is being created by the process {pid}', who=record.box_id)
    if not record.kept:
        raise BoxRefused(f'box "{record.box_id}" belongs to the running process {pid} and ends with it', who=record.box_id)


# -- as a program -----------------------------------------------------------------------------------------------------------------


def main(config: str, generation: str, reason: str, descriptor: str) -> None:
    """Settle one box and tell whoever asked for it."""
    logging.basicConfig(format="%(asctime)s %(message)s")
    try:
        answer: dict[str, object] = {"data": {"failed": asyncio.run(_main(json.loads(config), generation, reason))}}
    except SeraiError as error:
        answer = {"err": str(error)}
        log.error("%s", error)
    if int(descriptor) >= 0:
        body = json.dumps(answer).encode()
        with contextlib.suppress(OSError), open(int(descriptor), "wb") as file:
            file.write(struct.pack(">I", len(body)) + body)


async def _main(config: dict[str, object], generation: str, reason: str) -> str:
    from serai.boxes.manager import Boxes
    from serai.record import Recorder

    limits = Limits().but(**config["limits"])  # type: ignore[arg-type]
    try:
        recorder = Recorder.start(command=f"the end of box {generation}", limits=limits)
    except (NotRecorded, BadSettings) as error:  # a full disk must not keep a box that would make room
        log.warning("%s", error)
        recorder = None
    boxes = Boxes(str(config["home"]), key_file=config["key_file"], limits=limits, recorder=recorder)  # type: ignore[arg-type]
    with recorder or contextlib.nullcontext():
        await boxes.open(settle=False)
        try:
            record = await boxes.do(BoxStore.find_by_generation, generation)
            if record is None or not await boxes.teardown.claim(record):  # whoever makes it lives, and sees to it
                return ""
            return await boxes.teardown.end(record, reason)
        finally:
            await boxes.close()

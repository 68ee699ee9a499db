"""Boxes: made, found, halted and ended; what each step leaves on disk lets another process finish it.

    async with Boxes.usual() as boxes:
        async with boxes.box("web", hooks=[Hook("./mint-token")]) as box:
            print((await box.exec("cat /root/.token")).stdout)

How a box is made is in `making`, how it ends in `settling`. No lock is held anywhere: an id is taken by its row in the store, and
boxes are made side by side (spec hooks 3.3).
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from serai import paths as places
from serai.boxes import backends, halting, making, owners, settling
from serai.boxes.backend import Allowance, Backend
from serai.boxes.backends.local import LocalBackend
from serai.boxes.box import Box
from serai.boxes.control import Control
from serai.boxes.holding import Holder, Keeping, Owning
from serai.boxes.hooks import Hook, Runner
from serai.boxes.record import BoxRecord, check_id, new_token, now, token_hash
from serai.boxes.sealing import KeyFile
from serai.boxes.store import Store
from serai.dialects.hookproto.ours import Injection
from serai.errors import BoxNotFound, BoxRefused, Closed, SeraiError
from serai.limits import Limits
from serai.wire import process_tree
from serai.wire.plain_process import PlainSpawner

if TYPE_CHECKING:
    from serai.record import Recorder

__all__ = ["Boxes"]

T = TypeVar("T")
log = logging.getLogger("serai.boxes")


class Boxes:
    """All boxes of this user in one `home`. `async with` settles what others left; what is made in it ends with it, or is kept."""

    def __init__(
        self,
        home: str | None = None,
        *,
        backend: str = backends.DEFAULT,
        hooks: Sequence[Hook] = (),
        most: int = 0,
        key_file: str | None = None,
        limits: Limits | None = None,
        recorder: Callable[[], Recorder | None] | Recorder | None = None,
    ) -> None:
        """`hooks` run for every box; `most` boxes at once, 0 for any number; `key_file` encrypts hook state at rest.

        `recorder` may be a function that starts one when the first wire is opened: many commands open none.
        """
        self.home = home or os.path.join(places.state_folder(), "boxes")
        self.backend_name = backend
        self.hooks = tuple(hook.settled() for hook in hooks)
        self.most = most
        self.key_file = key_file
        self.limits = limits or Limits()
        self._recorder = recorder
        self.spawner = PlainSpawner(self.limits)
        self.owner = owners.new_manager()
        self._backends: dict[str, Backend] = {}
        self._thread = ThreadPoolExecutor(1, "serai-boxes")  # SQLite may wait for another process; the loop must not
        self._store: Store | None = None
        self._owned: dict[str, Box] = {}
        self._making: dict[str, asyncio.Task[Box]] = {}  # by generation
        self._ending: dict[str, asyncio.Task[str]] = {}
        self._steady: set[asyncio.Task[Any]] = set()  # what goes on to its end, whoever gives up waiting for it
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    def usual(cls, **changes: Any) -> Boxes:
        """As the person's settings have it (`[boxes]` of config.toml), with these changes."""
        from serai.boxes.settings import read

        return cls(**{**read(places.read_settings()), **changes})

    @property
    def recorder(self) -> Recorder | None:
        if callable(self._recorder):
            self._recorder = self._recorder()
        return self._recorder

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self, *, settle: bool = True) -> None:
        loop = asyncio.get_running_loop()
        try:
            sealer = KeyFile(self.key_file).looked_at() if self.key_file else None
            self._store = await loop.run_in_executor(self._thread, Store, self.home, sealer)
            if settle:
                await settling.settle(self)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Owned boxes end, with their hooks; kept ones go on. Idempotent; a cancelled caller does not stop it."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="close the boxes")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        for task in self._making.values():
            task.cancel()
        if waiting := [*self._making.values(), *self._steady]:
            await asyncio.wait(waiting)
        for box in list(self._owned.values()):
            await self._tell(self.end(box.record))
        if self._ending:
            await asyncio.wait(self._ending.values())
        for backend in self._backends.values():
            await backend.close()
        await self.spawner.close()
        if self._store is not None:
            await self.do(Store.close)
            self._store = None
        self._thread.shutdown(wait=False)

    # -- making -------------------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def box(self, box_id: str = "", **wishes: object) -> AsyncIterator[Box]:
        """A box of our own: it dies at the end of the block, with its destroy hooks. The options are those of `create`."""
        box = await self.create(box_id or f"box-{secrets.token_hex(4)}", **wishes)  # type: ignore[arg-type]
        try:
            yield box
        finally:
            if box.generation in self._owned:  # else it has ended by itself
                await box.destroy()

    async def create(
        self,
        box_id: str,
        *,
        description: str = "",
        backend: str = "",
        rootfs: str | None = None,
        memory: int | None = None,
        cpus: float | None = None,
        pids: int | None = None,
        hooks: Sequence[Hook] = (),
        files: Sequence[Injection] = (),
        env: Mapping[str, str] | None = None,
        script: bytes | None = None,
        ttl: float | None = None,
        kept: bool = False,
    ) -> Box:
        """Make a box; it answers on return. `kept`: it outlives us, held by a keeper. `ttl`: it ends after so many seconds.

        A failed init script is no failure: the box is there, `broken`, with the output in `box.record.last_error` (spec hooks 2.4).
        """
        self._check_open()
        check_id(box_id)
        if ttl is not None and not ttl > 0:
            raise BoxRefused(f"a time to live of {ttl} s is none", who=box_id)
        token = new_token()
        record = BoxRecord(
            token_hash=token_hash(token),
            generation=secrets.token_hex(8),
            box_id=box_id,
            backend=backend or self.backend_name,
            created_at=now(),
            description=description,
            hooks=(*self.hooks, *(hook.settled() for hook in hooks)),
            owner=self.owner,
            kept=kept,
            expires_at=None if ttl is None else time.time() + ttl,
            rootfs=None if rootfs is None else places.absolute_path(rootfs),
            allowance=Allowance(memory=memory, cpus=cpus, pids=pids),
            env=env or {},
        )
        task = asyncio.create_task(making.make(self, record, token, files, script), name=f"make box {box_id}")
        self._making[record.generation] = task
        task.add_done_callback(lambda _: self._making.pop(record.generation, None))
        try:
            return await task  # whoever cancels us cancels it
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and caller is not None and not caller.cancelling():
                raise BoxRefused(f'box "{box_id}" was destroyed while it was being made', who=box_id) from None
            raise

    # -- finding ------------------------------------------------------------------------------------------------------------------

    async def list(self) -> list[BoxRecord]:
        """From the records, refreshed by what the backends see now (spec hooks 3.8); the newest first."""
        await settling.sync(self)
        return await self.do(Store.all)

    async def get(self, name: str) -> Box:
        """A box by its id or generation, also one that another process made."""
        record = await self._named(name)
        if record.lifecycle == "terminated":
            raise BoxRefused(f'box "{record.box_id}" is terminated (it no longer exists): {record.last_error}', who=record.box_id)
        if record.lifecycle == "creating":
            raise BoxRefused(f'box "{record.box_id}" is still being created', who=record.box_id)
        if record.generation in self._owned:
            return self._owned[record.generation]
        return Box(self, record, await self.backend(record.backend).find(record.generation))

    async def record(self, name: str) -> BoxRecord:
        """What is on record of a box, by its generation or its id."""
        return await self.do(Store.by_generation, name) or await self._named(name)

    async def _named(self, name: str) -> BoxRecord:
        found = await self.do(Store.get, name)
        if found is None:
            raise BoxNotFound(f'no box found with box ID "{name}" (it may have expired, or was created without a box ID)', who=name)
        return found

    # -- halting ------------------------------------------------------------------------------------------------------------------

    async def pause(self, name: str) -> BoxRecord:
        """Stop its processes, keep its disk; its time to live stands still meanwhile."""
        return await self._steadily(halting.pause(self, await self.get(name)))

    async def resume(self, name: str) -> BoxRecord:
        """Start it again from its disk. Its init script does not run again; injected files are on the disk (spec hooks 3.5)."""
        return await self._steadily(halting.resume(self, await self.get(name)))

    async def freeze(self, name: str) -> BoxRecord:
        """Let its processes stand still where they are; memory is kept. Not a pause."""
        box = await self.get(name)
        await box.instance.freeze()
        return await box.refresh()

    async def thaw(self, name: str) -> BoxRecord:
        box = await self.get(name)
        await box.instance.thaw()
        return await box.refresh()

    # -- ending -------------------------------------------------------------------------------------------------------------------

    async def destroy(self, name: str) -> str:
        """End a box, by id or generation: processes, disk, destroy hooks, record. Unknown is fine (spec hooks 3.4).

        The answer is what went wrong with its hooks, which never keeps a box (spec hooks 2.3); empty when all is well.
        """
        if self._closing is not None and self._closing.done():
            return ""  # all that was ours has ended
        return await self._steadily(settling.destroy(self, name))

    async def claim(self, record: BoxRecord) -> bool:
        """Become the owner of a box whose owner is gone, or was this process before. One only does."""
        if record.owner == self.owner:
            return True
        if process_tree.is_alive(record.owner) and (owners.is_manager(record.owner) or not owners.is_here(record.owner)):
            return False
        return await self.do(Store.claim, record.generation, record.owner, self.owner)

    async def end(self, record: BoxRecord, reason: str = "") -> str:
        """End a box that is ours. With a reason it leaves a tombstone. Once, however many ask."""
        task = self._ending.get(record.generation)
        if task is None:
            task = asyncio.create_task(settling.end(self, record, reason), name=f"end box {record.box_id}")
            self._ending[record.generation] = task
            task.add_done_callback(lambda _: self._ending.pop(record.generation, None))
        return await asyncio.shield(task)  # a cancelled caller does not leave half a box

    # -- for making and settling --------------------------------------------------------------------------------------------------

    async def do(self, call: Callable[..., T], *arguments: object, **named: object) -> T:
        """A method of the store, in the store's thread. Cancelled, it is done all the same before that is told."""
        if self._store is None:
            raise Closed("these boxes are closed")
        work = asyncio.get_running_loop().run_in_executor(self._thread, partial(call, self._store, *arguments, **named))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise

    def backend(self, name: str) -> Backend:
        if name not in self._backends:
            self._backends[name] = backends.make(name, self.home, self.limits, self._control)
        return self._backends[name]

    def runner(self, hooks: Sequence[Hook]) -> Runner:
        return Runner(hooks, spawner=self.spawner, limits=self.limits, recorder=self.recorder if hooks else None)

    def holder(self, record: BoxRecord, *, abandoned: Literal["settle", "stop"] = "settle") -> Holder:
        if not record.kept:
            return Owning(self.spawner, self.limits)
        settle, expires = settling.command(self), record.expires_at
        return Keeping(self.limits, environ=os.environ, settle=settle, expires_at=expires, abandoned=abandoned)

    def owns(self, box: Box) -> None:
        """From now on the box ends with us, or when its time is over, or when its processes end."""
        self._owned[box.generation] = box
        box.arm(self._end_later)

    async def give_up_making(self, generation: str) -> bool:
        """Cancel a create of ours that is under way and wait for its roll-back; False when there is none."""
        task = self._making.get(generation)
        if task is None:
            return False
        task.cancel()
        await asyncio.wait([task])
        return True

    def owned(self, generation: str) -> Box | None:
        return self._owned.get(generation)

    def disown(self, generation: str) -> None:
        if (box := self._owned.pop(generation, None)) is not None:
            box.disarm()

    def _end_later(self, record: BoxRecord, reason: str) -> None:
        """Its time is over, or it died: somebody should know of this end, but nobody waits for it."""
        if record.generation in self._owned and self._closing is None:
            self._steadily_in_background(self._tell(self.end(record, reason)))

    async def _tell(self, ending: Awaitable[str]) -> None:
        try:
            if failed := await ending:
                log.warning("a destroy hook failed: %s", failed)
        except SeraiError as error:
            log.warning("a box could not be ended: %s", error)

    async def _steadily(self, work: Coroutine[Any, Any, T]) -> T:
        """What must not stop half-way goes on to its end when the caller is cancelled; closing waits for it."""
        try:
            self._check_open()
        except Closed:
            work.close()
            raise
        return await asyncio.shield(self._steadily_in_background(work))

    def _steadily_in_background(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._steady.add(task)
        task.add_done_callback(self._steady.discard)
        return task

    def _control(self, address: str, box_id: str) -> Control:
        who = f"box:{box_id}"
        tap = self.recorder.wire(who, kind="box", dialect="porter", framing="bodies") if self.recorder else None
        return Control(address, who=who, limits=self.limits, tap=tap)

    def forget(self, record: BoxRecord) -> None:
        """Another process ended it."""
        if isinstance(backend := self.backend(record.backend), LocalBackend):
            backend.forget(record.generation)

    def _check_open(self) -> None:
        if self._store is None or self._closing is not None:
            raise Closed("these boxes are closed")

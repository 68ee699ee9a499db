"""Boxes: created, found, paused and ended; what each step leaves on disk lets another process finish it.

    async with Boxes.usual() as boxes:
        async with boxes.box("web", hooks=[Hook("./mint-token")]) as box:
            print((await box.exec("cat /root/.token")).stdout)

A box is created in durable steps (spec hooks 3.3): the id is taken and the intent written; each hook runs and its state is
written; the box starts; files and script go in; the record says that it is there. Whatever fails on the way, what is on disk by
then is enough to undo the rest. `BoxTeardown` ends a box. No lock is held anywhere: an id is taken by its row in the store, and
boxes are created side by side.

Pause and resume run to their end once begun, and neither costs a box its disk, whatever goes wrong (spec hooks 3.5).

The settings are `[boxes]` of the person's config.toml. An unknown key is an error: a hook that does not run would not be missed.
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
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

import msgspec

from serai import paths
from serai.boxes import ownership
from serai.boxes.backend import DEFAULT, Backend, BackendBox, BoxResources, open_backend
from serai.boxes.backends.local import LocalBackend
from serai.boxes.box_client import BoxClient, ExecResult
from serai.boxes.box_records import BoxRecord, BoxStore, KeyFile, check_id, hash_token, make_token, now
from serai.boxes.hooks import Hook, HookRunner, choose_answer_place
from serai.boxes.ownership import BoxHolder, DirectHolder, KeeperHolder, run_to_completion
from serai.boxes.teardown import BoxTeardown
from serai.dialects import hookproto
from serai.dialects.hookproto.host_side import BoxFile
from serai.errors import BadSettings, BoxNotFound, BoxRefused, Closed, SeraiError
from serai.limits import BoxLimits, Limits
from serai.wire import process_tree
from serai.wire.plain_process import PlainSpawner

if TYPE_CHECKING:
    from serai.record import Recorder

log = logging.getLogger("serai.boxes")


class Box:
    """A handle: any number may exist of one box, also in other processes. `async with` destroys it at the end."""

    def __init__(self, boxes: Boxes, record: BoxRecord, instance: BackendBox, token: str = "") -> None:
        self._boxes = boxes
        self.record = record
        self.instance = instance
        self.token = token  # only who made it has it
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<box {self.id} {self.generation}: {self.record.state}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.destroy()

    @property
    def id(self) -> str:
        return self.record.box_id

    @property
    def generation(self) -> str:
        return self.record.generation

    @property
    def control(self) -> BoxClient:
        """The wire to its box server, for all that has no method here: streams, terminals, files, ports, signals."""
        halted = self.instance.halted
        if halted:
            verb = {"paused": "resume", "frozen": "thaw"}[halted]
            raise BoxRefused(f'box "{self.id}" is {halted}; {verb} it before running commands', who=self.id)
        return self.instance.get_client()

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        stdin: bytes = b"",
    ) -> ExecResult:
        """Run a command to its end: a text in `/bin/sh -c`, a sequence as it is. A non-zero exit is a result (spec hooks 3.6)."""
        if isinstance(command, str):
            if not command.strip():
                raise BoxRefused("command is required", who=self.id)
            command = ["/bin/sh", "-c", command]
        return await self.control.exec(command, env=env or {}, cwd=cwd, timeout=timeout, stdin=stdin)

    async def pause(self) -> None:
        self.record = await self._boxes.pause(self.generation)

    async def resume(self) -> None:
        self.record = await self._boxes.resume(self.generation)

    async def freeze(self) -> None:
        self.record = await self._boxes.freeze(self.generation)

    async def thaw(self) -> None:
        self.record = await self._boxes.thaw(self.generation)

    async def destroy(self) -> str:
        """Idempotent. The answer is what went wrong with its hooks."""
        return await self._boxes.destroy(self.generation)

    async def refresh(self, **changes: object) -> BoxRecord:
        """Put on record what its backend sees of it now."""
        seen = self.instance.observe()
        observed = {"observed_name": seen.name, "observed_image": seen.image, "observed_state": seen.state, "observed_at": now()}
        await self._boxes.do(BoxStore.change, self.generation, **observed, **changes)
        self.record = await self._boxes.record(self.generation)
        return self.record

    def arm(self, end: Callable[[BoxRecord, str], None]) -> None:
        """Have it end when its time to live is over, or when its processes do so by themselves."""
        self.disarm()
        if self.record.expires_at is not None:
            left = max(0.0, self.record.expires_at - time.time())
            self._timer = asyncio.get_running_loop().call_later(left, end, self.record, "its time to live is over")
        held = self.instance.held
        if held is not None:
            held.on_exit(lambda: end(self.record, "its processes ended") if self.instance.held is held else None)

    def disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


T = TypeVar("T")


class Boxes:
    """All boxes of this user in one `home`. `async with` settles what others left; what is made in it ends with it, or is kept."""

    def __init__(
        self,
        home: str | None = None,
        *,
        backend: str = DEFAULT,
        hooks: Sequence[Hook] = (),
        most: int = 0,
        key_file: str | None = None,
        limits: BoxLimits | None = None,
        recorder: Callable[[], Recorder | None] | Recorder | None = None,
    ) -> None:
        """`hooks` run for every box; `most` boxes at once, 0 for any number; `key_file` encrypts hook state at rest.

        `recorder` may be a function that starts one when the first wire is opened: many commands open none.
        """
        self.home = home or os.path.join(paths.state_folder(), "boxes")
        self.backend_name = backend
        self.hooks = tuple(hook.settled() for hook in hooks)
        self.most = most
        self.key_file = key_file
        self.limits = limits or BoxLimits()
        self._recorder = recorder
        self.spawner = PlainSpawner(self.limits)
        self.owner = ownership.make_manager_name()
        self._backends: dict[str, Backend] = {}
        self._thread = ThreadPoolExecutor(1, "serai-boxes")  # SQLite may wait for another process; the loop must not
        self._store: BoxStore | None = None
        self._owned: dict[str, Box] = {}
        self._making: dict[str, asyncio.Task[Box]] = {}  # by generation
        self.teardown = BoxTeardown(self)
        self._steady: set[asyncio.Task[Any]] = set()  # what goes on to its end, whoever gives up waiting for it
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    def usual(cls, **changes: Any) -> Boxes:
        """As the person's settings have it (`[boxes]` of config.toml), with these changes."""
        return cls(**{**read_settings(paths.read_settings()), **changes})

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
            sealer = KeyFile(self.key_file).check() if self.key_file else None
            self._store = await loop.run_in_executor(self._thread, BoxStore, self.home, sealer)
            if settle:
                await self.teardown.recover()
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
            await self._log_end(self.teardown.end(box.record))
        await self.teardown.finish()
        for backend in self._backends.values():
            await backend.close()
        await self.spawner.close()
        if self._store is not None:
            await self.do(BoxStore.close)
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
        files: Sequence[BoxFile] = (),
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
        token = make_token()
        record = BoxRecord(
            token_hash=hash_token(token),
            generation=secrets.token_hex(8),
            box_id=box_id,
            backend=backend or self.backend_name,
            created_at=now(),
            description=description,
            hooks=(*self.hooks, *(hook.settled() for hook in hooks)),
            owner=self.owner,
            kept=kept,
            expires_at=None if ttl is None else time.time() + ttl,
            rootfs=None if rootfs is None else paths.absolute_path(rootfs),
            allowance=BoxResources(memory=memory, cpus=cpus, pids=pids),
            env=env or {},
        )
        task = asyncio.create_task(self._make(record, token, files, script), name=f"make box {box_id}")
        self._making[record.generation] = task
        task.add_done_callback(lambda _: self._making.pop(record.generation, None))
        try:
            return await task  # whoever cancels us cancels it
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if task.cancelled() and caller is not None and not caller.cancelling():
                raise BoxRefused(f'box "{box_id}" was destroyed while it was being made', who=box_id) from None
            raise

    async def _make(self, record: BoxRecord, token: str, files: Sequence[BoxFile], script: bytes | None) -> Box:
        """The box, or an error and nothing of it."""
        backend = self.backend(record.backend)
        backend.check(record.wanted)  # before any hook mints something for a box that cannot be
        await backend.list()  # a backend that cannot even be asked is not given a box
        runner = self.runner(record.hooks)
        states: dict[str, str] = {}
        try:
            await self.do(BoxStore.reserve, record, self.most)
            injected = [*files, *await self._ask_hooks(runner, record, states)]
            box = Box(self, record, await backend.provision(record.wanted, self.holder(record)), token)
            told = await box.instance.get_client().init(
                _adapt_owners(_deduplicate(injected), backend), env=record.env, script=script, script_timeout=self.limits.box_script
            )
            trouble = {}
            if told.script_failed:  # the box stays, for somebody to look at it (spec hooks 2.4)
                trouble = {"status": "broken", "last_error": f"{told.script_error}\n\n{told.script_output}".strip()}
            await self._register(box, **trouble)
        except BaseException:
            await run_to_completion(self._roll_back(replace(record, hook_state=states)))
            raise
        return box

    async def _register(self, box: Box, **changes: object) -> None:
        """It is there: on record with its owner, and only then left to that owner."""
        held = box.instance.held
        assert held is not None
        owner = self.owner if held.owner_pid == os.getpid() else process_tree.get_identity(held.owner_pid)
        seen = box.instance.observe()
        observed = {"observed_name": seen.name, "observed_image": seen.image, "observed_state": seen.state, "observed_at": now()}
        await self.do(BoxStore.register, box.generation, owner=owner, **observed, **changes)
        box.record = await self.record(box.generation)
        box.instance.mark_resumed()  # before it is left to its keeper, who marks it again should we die just now
        held.commit()
        if not box.record.kept:
            self.owns(box)

    async def _ask_hooks(self, runner: HookRunner, record: BoxRecord, states: dict[str, str]) -> Sequence[BoxFile]:
        """Run the create hooks; each state is on disk before anything is made of the answer that brought it (design rule 14)."""

        async def store_state(key: str, state: str) -> None:
            states[key] = state
            await self.do(BoxStore.change, record.generation, hook_state=states)

        about = hookproto.Box(box_id=record.box_id, description=record.description, image=record.observed_image)
        outcome = await runner.create(about, choose_answer_place(self.home, record.generation, self.limits), store_state)
        if outcome.error is not None:
            raise outcome.error
        return outcome.files

    async def _roll_back(self, record: BoxRecord) -> None:
        """Undo what was done. What goes wrong here is logged: the caller's error stays what it was (spec hooks 2.4)."""
        try:
            await self.teardown.end(record)
        except Exception as error:
            log.warning("box %s: the roll-back of its create failed, the next start tries again: %s", record.box_id, error)

    # -- finding ------------------------------------------------------------------------------------------------------------------

    async def list(self) -> list[BoxRecord]:
        """From the records, refreshed by what the backends see now (spec hooks 3.8); the newest first."""
        await self.teardown.sync()
        return await self.do(BoxStore.list_all)

    async def get(self, name: str) -> Box:
        """A box by its id or generation, also one that another process made."""
        record = await self._find_record(name)
        if record.lifecycle == "terminated":
            raise BoxRefused(f'box "{record.box_id}" is terminated (it no longer exists): {record.last_error}', who=record.box_id)
        if record.lifecycle == "creating":
            raise BoxRefused(f'box "{record.box_id}" is still being created', who=record.box_id)
        if record.generation in self._owned:
            return self._owned[record.generation]
        return Box(self, record, await self.backend(record.backend).find(record.generation))

    async def record(self, name: str) -> BoxRecord:
        """What is on record of a box, by its generation or its id."""
        return await self.do(BoxStore.find_by_generation, name) or await self._find_record(name)

    async def _find_record(self, name: str) -> BoxRecord:
        found = await self.do(BoxStore.get, name)
        if found is None:
            raise BoxNotFound(f'no box found with box ID "{name}" (it may have expired, or was created without a box ID)', who=name)
        return found

    # -- halting ------------------------------------------------------------------------------------------------------------------

    async def pause(self, name: str) -> BoxRecord:
        """Stop its processes, keep its disk; its time to live stands still meanwhile."""
        return await self._run_shielded(self._pause(await self.get(name)))

    async def resume(self, name: str) -> BoxRecord:
        """Start it again from its disk. Its init script does not run again; injected files are on the disk (spec hooks 3.5)."""
        return await self._run_shielded(self._resume(await self.get(name)))

    async def freeze(self, name: str) -> BoxRecord:
        """Let its processes stand still where they are; memory is kept. Not a pause."""
        box = await self.get(name)
        await box.instance.freeze()
        return await box.refresh()

    async def thaw(self, name: str) -> BoxRecord:
        box = await self.get(name)
        await box.instance.thaw()
        return await box.refresh()

    async def _pause(self, box: Box) -> BoxRecord:
        """Its time to live is written first: then it is known, whoever dies over the rest."""
        if box.instance.halted == "paused":
            raise BoxRefused(f'box "{box.id}" is paused already', who=box.id)
        self._check_free(box.record)
        expires = box.record.expires_at
        await self.do(BoxStore.change, box.generation, time_left=None if expires is None else max(0.0, expires - time.time()))
        box.disarm()
        try:
            await box.instance.pause()
        except BaseException:
            if not _is_paused(box) and self.owned(box.generation):
                self.owns(box)  # it was not stopped: its time goes on
            raise
        return await box.refresh(owner="" if box.record.kept else self.owner, expires_at=None)

    async def _resume(self, box: Box) -> BoxRecord:
        """The marker goes last, when all is on record; until then it is a paused box, for us and for everybody."""
        if not _is_paused(box):
            raise BoxRefused(f'box "{box.id}" is not paused', who=box.id)
        record = box.record
        # One at a time; and while it is ours nobody takes it for nobody's.
        if record.kept and not await self.teardown.claim(record):
            raise BoxRefused(f'box "{box.id}" is being resumed or destroyed by somebody else', who=box.id)
        self._check_free(await self.record(box.generation))
        expires = record.expires_at if record.time_left is None else time.time() + record.time_left
        try:
            await box.instance.resume(self.holder(replace(record, expires_at=expires), abandoned="stop"))
            await box.instance.get_client().init([], env=record.env)
            await self._register(box, time_left=None, expires_at=expires)
        except BaseException:
            await run_to_completion(self._pause_again(box))
            raise
        return await box.refresh()

    async def _pause_again(self, box: Box) -> None:
        """A resume that came to nothing leaves the box as it was."""
        try:
            await box.instance.pause()
        finally:
            if box.record.kept:
                await self.do(BoxStore.change, box.generation, owner="")

    def _check_free(self, record: BoxRecord) -> None:
        """Whether we may halt it: its keeper's it may be, but no other manager's."""
        if record.owner != self.owner and ownership.is_manager(record.owner) and process_tree.is_alive(record.owner):
            pid = process_tree.parse_identity_pid(record.owner)
            raise BoxRefused(f'box "{record.box_id}" belongs to the running process {pid}', who=record.box_id)

    # -- ending -------------------------------------------------------------------------------------------------------------------

    async def destroy(self, name: str) -> str:
        """End a box, by id or generation: processes, disk, destroy hooks, record. Unknown is fine (spec hooks 3.4).

        The answer is what went wrong with its hooks, which never keeps a box (spec hooks 2.3); empty when all is well.
        """
        if self._closing is not None and self._closing.done():
            return ""  # all that was ours has ended
        return await self._run_shielded(self.teardown.destroy(name))

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
            self._backends[name] = open_backend(name, self.home, self.limits, self._open_client)
        return self._backends[name]

    def runner(self, hooks: Sequence[Hook]) -> HookRunner:
        return HookRunner(hooks, spawner=self.spawner, limits=self.limits, recorder=self.recorder if hooks else None)

    def holder(self, record: BoxRecord, *, abandoned: Literal["settle", "stop"] = "settle") -> BoxHolder:
        if not record.kept:
            return DirectHolder(self.spawner, self.limits)
        settle, expires = self.teardown.build_command(), record.expires_at
        return KeeperHolder(self.limits, environ=os.environ, settle=settle, expires_at=expires, abandoned=abandoned)

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
            self._run_in_background(self._log_end(self.teardown.end(record, reason)))

    async def _log_end(self, ending: Awaitable[str]) -> None:
        try:
            if failed := await ending:
                log.warning("a destroy hook failed: %s", failed)
        except SeraiError as error:
            log.warning("a box could not be ended: %s", error)

    async def _run_shielded(self, work: Coroutine[Any, Any, T]) -> T:
        """What must not stop half-way goes on to its end when the caller is cancelled; closing waits for it."""
        try:
            self._check_open()
        except Closed:
            work.close()
            raise
        return await asyncio.shield(self._run_in_background(work))

    def _run_in_background(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._steady.add(task)
        task.add_done_callback(self._steady.discard)
        return task

    def _open_client(self, address: str, box_id: str) -> BoxClient:
        who = f"box:{box_id}"
        tap = self.recorder.open_tap(who, kind="box", dialect="porter", framing="bodies") if self.recorder else None
        return BoxClient(address, who=who, limits=self.limits, tap=tap)

    def forget(self, record: BoxRecord) -> None:
        """Another process ended it."""
        if isinstance(backend := self.backend(record.backend), LocalBackend):
            backend.forget(record.generation)

    def _check_open(self) -> None:
        if self._store is None or self._closing is not None:
            raise Closed("these boxes are closed")


def _adapt_owners(files: Sequence[BoxFile], backend: Backend) -> list[BoxFile]:
    """Where a box has one user only, everything in it is that user's: better a box with that than none."""
    if backend.capabilities.ownership == "full":
        return list(files)
    for file in files:
        if file.uid or file.gid:
            log.warning(
                "%s is for %d:%d, but boxes of %s have one user here, who gets it", file.path, file.uid, file.gid, backend.name
            )
    return [replace(file, uid=0, gid=0) for file in files]


def _deduplicate(files: Sequence[BoxFile]) -> list[BoxFile]:
    """Of several files for one path the last counts (spec hooks 1.8)."""
    return list({file.path: file for file in files}.values())


def _is_paused(box: Box) -> bool:
    return box.instance.halted == "paused"


class _Hook(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    name: str = ""
    env: dict[str, str] = {}
    env_clear: bool = False


class _Boxes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`hooks` are paths, or tables with `path`, `name`, `env`, `env_clear`; they run for every box in this order."""

    backend: str = DEFAULT
    hooks: list[str | _Hook] = []
    max_boxes: Annotated[int, msgspec.Meta(ge=0)] = 0  # 0: as many as one likes
    key_file: str = ""


def read_settings(config: Mapping[str, Any], *, who: str = "") -> dict[str, Any]:
    """What `Boxes` takes, from the settings. Limits are those of the person."""
    who = who or os.path.join(paths.config_folder(), "config.toml")
    try:
        found = msgspec.convert(config.get("boxes", {}), _Boxes)
        limits = Limits().but(**config.get("limits", {}))
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise BadSettings(f"[boxes]: {error}", who=who) from None
    folder = os.path.dirname(who)
    return {
        "backend": found.backend,
        "hooks": tuple(_build_hook(hook, folder) for hook in found.hooks),
        "most": found.max_boxes,
        "key_file": os.path.join(folder, os.path.expanduser(found.key_file)) if found.key_file else None,
        "limits": limits,
    }


def _build_hook(given: str | _Hook, folder: str) -> Hook:
    """Its path begins where the settings are, not where somebody happens to be."""
    hook = _Hook(given) if isinstance(given, str) else given
    return Hook(os.path.expanduser(hook.path), hook.name, hook.env, hook.env_clear).settled(folder)

"""The parent's end of a plugin's worker process: calls into the guest, one at a time, and the guest's host calls (spec yoi 2.4).

The worker has no authority: whatever comes from it is treated as if the guest had written it, and each host call is checked and
done here. Deadlines are kept here: at a call's deadline the worker is to stop the guest by itself, and a moment later it is
killed.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from math import inf
from time import monotonic
from typing import Any

import msgspec

from serai.dialects.yoi import messages
from serai.dialects.yoi.host_api import HostCallDenied
from serai.errors import BadFrame, BadManifest, Closed, LimitHit, OversizeFrame, PeerGone, PeerTimeout, Refused, SeraiError, Trapped
from serai.host.adapters.yoi.compiler import CompiledCodeCache, CompileLimits, build_command, compile_component
from serai.host.guest_log import REMARK
from serai.limits import MIB, HostLimits
from serai.plugins.bounds import DOCUMENT, STACK_MOST, Bounds
from serai.plugins.manifest import INSTANCE
from serai.wire.channel import Channel, Tap
from serai.wire.event_loop import Deadlines
from serai.wire.process import Child, Launch, Spawner
from serai.wire.stream import Oversize

log = logging.getLogger("serai.host")

HostCall = Callable[[str, str, Sequence[str | int], float], Awaitable[str]]

_DENIAL = 4096  # characters of a refusal that the guest's trap carries


class HostCallBroker:
    """Every question is answered, once, whatever happens to who answers it."""

    def __init__(self, who: str, denied: Mapping[str, str], host: HostCall, send: Callable[[bytes], None]) -> None:
        self._who = who
        self._denied = denied
        self._host = host
        self._send = send
        self._asked: messages.HostAsked | None = None
        self._work: asyncio.Future[str] | None = None
        self._count = 0  # questions of this life, by their number
        self.denial = ""  # why the guest traps now, in our words

    @property
    def busy(self) -> bool:
        return self._work is not None

    def take(self, frame: messages.HostAsked, deadline: float) -> str:
        """Begin with it; what is wrong with it, or nothing. The worker's word for it is not enough."""
        if self._work is not None or frame.n != self._count + 1:
            return "it asks the host twice, or out of order"
        if not frame.fits():
            return "it asks the host for what there is not"
        self._count = frame.n
        self._asked = frame
        try:  # a future needs no task: of the quick functions most give one
            self._work = work = asyncio.ensure_future(
                self._host(frame.api, frame.function, frame.args, self._compute_remaining(frame, deadline))
            )
        except Exception as error:
            self._reply_failure(frame, error)
        else:
            work.add_done_callback(partial(self._reply_result, frame))
        return ""

    def interrupt(self, why: str) -> bool:
        """End what is under way, if something is; the guest traps with that reason."""
        if self._work is None or self._work.done():
            return False
        self.denial = why
        self._work.cancel()
        return True

    def close(self) -> None:
        """Nobody is there any more to hear an answer."""
        self._asked = None
        if self._work is not None:
            self._work.cancel()

    def _reply_result(self, frame: messages.HostAsked, work: asyncio.Future[str]) -> None:
        """It may be cancelled before it has begun, and is answered then, too."""
        self._work = None
        if work.cancelled():
            self._deny()
        elif (failure := work.exception()) is not None:
            self._reply_failure(frame, failure)
        else:
            try:
                reply = messages.encode(messages.Reply(id=frame.id, n=frame.n, text=work.result()))
            except (UnicodeEncodeError, msgspec.MsgspecError) as error:
                self._reply_failure(frame, error)
                return
            self.denial = ""
            if self._asked is not None:
                self._send(reply)

    def _reply_failure(self, frame: messages.HostAsked, error: BaseException) -> None:
        if not isinstance(error, HostCallDenied):
            log.error("%s: %s.%s failed", self._who, frame.api, frame.function, exc_info=error)
        why = str(error) if isinstance(error, HostCallDenied | SeraiError) else f"host function failed: {type(error).__name__}"
        # on one line: what a guest has asked for may be in it, and is no line of ours in a report or a log (spec yoi 21.36)
        self.denial = " ".join(why.splitlines()).encode(errors="replace").decode()[:_DENIAL]
        self._deny()

    def _deny(self) -> None:
        asked = self._asked
        if asked is not None:
            self.denial = self.denial or "the host broke off"
            self._send(messages.encode(messages.Reply(id=asked.id, n=asked.n, denied=self.denial)))

    def _compute_remaining(self, frame: messages.HostAsked, deadline: float) -> float:
        """How much time is left for it; the host's functions have no other clock (spec yoi 21.30)."""
        reason = self._denied.get(frame.api)
        if reason is not None:
            raise HostCallDenied(f"plugin host API dispatch denied: {reason}")
        remaining = deadline - monotonic()
        if remaining <= 0:
            raise HostCallDenied("the time of its call is over")
        return remaining


GRACE = 0.5  # seconds from a call's deadline to the end of its worker
_FRAME = 4 * MIB  # a text of 256 Ki characters, each escaped
_TRAP = 2000  # characters of what a worker says of a trap
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGTRAP)  # of code that is not what was compiled
_TOOLS = ("handle-tool", "call")
_BOUNDS = ("memory", "table_elements", "instances", "tables", "memories", "fuel")


async def open_worker(
    *,
    spawner: Spawner,
    deadlines: Deadlines,
    limits: HostLimits,
    tap: Callable[[int], Tap | None] | None,
    stderr: int,
    who: str,
    component: bytes,
    digest: str,
    world: str,
    bounds: Bounds,
    cache: str,
    denied: Mapping[str, str],
    host: HostCall,
    ended: Callable[[SeraiError], None],
    compiling: CompileLimits | None = None,
) -> Worker:
    """A worker that is ready for calls: compiled, checked, and instantiated where the world keeps an instance.

    `denied` says of which interfaces the guest may use none, and why; of the others `host` decides at every call. `ended` is called
    once if the life of the guest ends without `stop`. Whatever fails here, no process is left.
    """
    folder = CompiledCodeCache(cache)
    for last in (False, True):
        key = await compile_component(component, spawner=spawner, cache=folder, fuel=bounds.fuel > 0, who=who, bounds=compiling)
        child = await spawner.spawn(Launch(argv=build_command("main"), env={}, cwd="/", who=who, stderr=stderr, remarks=REMARK))
        worker: Worker | None = None
        try:
            given = (child, deadlines, limits.but(frame=_FRAME, send=_FRAME, backlog=2 * _FRAME), tap)
            worker = Worker(*given, who=who, world=world, bounds=bounds, denied=denied, host=host, ended=ended)
            worker.damaged = partial(folder.drop, key)
            await worker._begin(folder.get_path(key), digest)
        except BaseException as error:
            if worker is not None:
                worker._kill_process()
            await child.close()
            if not isinstance(error, _Stale):
                raise
            if last:
                raise BadManifest(f"component is incompatible: {error}", who=who) from None
            folder.drop(key)  # made for another engine, or damaged: compiled anew, once
        else:
            return worker
    raise AssertionError  # the second round returns or raises


class _Stale(Exception):
    """What was compiled does not fit."""


class _Call:
    __slots__ = ("args", "begun", "deadline", "export", "id", "timeout", "waiter")

    def __init__(self, id: int, export: str, args: tuple[str, ...], timeout: float, waiter: asyncio.Future[Any]) -> None:
        self.id = id
        self.export = export
        self.args = args
        self.timeout = timeout
        self.deadline = monotonic() + timeout
        self.waiter = waiter
        self.begun: Callable[[], None] | None = None  # told when it is its turn; its time begins there


class Worker:
    """The channel's receiver, and what the adapter asks. Made by `open_worker`."""

    def __init__(
        self,
        child: Child,
        deadlines: Deadlines,
        limits: HostLimits,
        tap: Callable[[int], Tap | None] | None,
        *,
        who: str,
        world: str,
        bounds: Bounds,
        denied: Mapping[str, str],
        host: HostCall,
        ended: Callable[[SeraiError], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._who = who
        self._world = world
        self._lasting = world == INSTANCE  # one store for all calls, which does not outlive a trap
        self._bounds = bounds
        self._denied = denied
        self._told_end = ended
        self._hello = limits.hello
        self._opened: asyncio.Future[Any] = self._loop.create_future()  # of the step under way until it is ready
        self._queue: deque[_Call] = deque()
        self._current: _Call | None = None
        self._count = 0
        self._broker = HostCallBroker(who, denied, host, self._reply)
        self._ready = False
        self._stopped = False
        self._closing: asyncio.Task[None] | None = None
        self._idle: asyncio.Future[None] | None = None
        self.cause: SeraiError | None = None  # why this life is over
        self.damaged: Callable[[], None] = lambda: None  # what is compiled may not be what it was: the next start makes it anew
        self.after: Callable[[], None] | None = None  # of each call whose store is gone with it (world `tool`)
        self.imports: tuple[str, ...] = ()
        self.confined: tuple[str, ...] = ()  # what of its confinement holds on this machine
        self._channel = Channel(child, self, deadlines=deadlines, limits=limits, tap=tap(child.pid) if tap else None)
        self._watch = self._channel.watch

    # -- what the adapter asks --------------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self._channel.child.pid

    @property
    def busy(self) -> bool:
        return self._current is not None

    def call(
        self, export: str, args: Sequence[str], timeout: float, *, begun: Callable[[], None] | None = None
    ) -> asyncio.Future[str]:
        """One after another; to wait for one's turn counts, unless `begun` is told of it.

        Who gives up cancels the future: the guest goes on to its deadline, for it can only be ended, not taken back. Fails with
        `Trapped`, `PeerTimeout`, `BadFrame`, `OversizeFrame` or `PeerGone`."""
        waiter: asyncio.Future[str] = self._loop.create_future()
        if self.cause is not None or self._stopped:
            waiter.set_exception(self._build_ended_error())
            return waiter
        self._count += 1
        call = _Call(self._count, export, tuple(args), timeout, waiter)
        if begun is not None:
            call.begun, call.deadline = begun, inf
        if self._current is None:
            self._send(call)
        else:
            self._queue.append(call)
        if call.deadline < self._watch.at:
            self._watch.schedule(call.deadline)
        return waiter

    def interrupt(self, why: str) -> bool:
        """End the host call that the guest waits for, if it does: its call traps with that reason (spec yoi 21.26)."""
        return self._broker.interrupt(why)

    async def idle(self) -> None:
        """Wait until no answer is waited for any more."""
        while self._current is not None:
            self._idle = self._idle or self._loop.create_future()
            await asyncio.shield(self._idle)

    async def stop(self) -> None:
        """Kill it: it holds nothing that could be lost. Idempotent."""
        self._stopped = True
        self._end(Closed("it was stopped before it answered", who=self._who))
        assert self._closing is not None
        await asyncio.shield(self._closing)

    # -- beginning --------------------------------------------------------------------------------------------------------------

    async def _begin(self, path: str, digest: str) -> None:
        bounds = {name: getattr(self._bounds, name) for name in _BOUNDS} | {"stack": min(self._bounds.stack, STACK_MOST)}
        load = messages.Load(path=path, world=self._world, digest=digest, fresh=not self._lasting, most=DOCUMENT, bounds=bounds)
        self._channel.send(messages.encode(load))
        loaded = await self._wait_loaded()
        self.imports, self.confined = loaded.imports, loaded.confined
        if self._bounds.strict_imports and (refused := [name for name in loaded.imports if name in self._denied]):
            raise Refused(f"plugin host API dispatch denied: {self._denied[refused[0]]}", who=self._who)
        seconds = self._bounds.start
        self._opened = self._loop.create_future()
        self._current = _Call(0, "instantiate", (), seconds, self._opened)
        self._channel.send(messages.encode(messages.Go(id=0, time=seconds)))
        self._watch.schedule(self._current.deadline)
        await self._opened
        if self.cause is not None:  # it said too much, right behind
            raise self.cause
        self._ready = True

    async def _wait_loaded(self) -> Any:
        opened = self._opened
        await asyncio.wait([opened], timeout=self._hello)
        if not opened.done():
            raise PeerTimeout("its worker did not begin in time", who=self._who, limit=LimitHit("hello", self._hello))
        loaded = opened.result()  # first: who is unfit says so and ends
        if self.cause is not None:
            raise self.cause
        return loaded

    # -- the channel's receiver -------------------------------------------------------------------------------------------------

    def handle_run(self, run: bytes) -> None:
        decode = messages.decoder.decode
        for line in run.removesuffix(b"\n").split(b"\n"):
            if self.cause is not None:
                return
            try:
                frame = decode(line)  # a blank line is none: our program writes none, and a flood of them would have no end
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                self._end_on_breach(f"what it says cannot be read: {error}")
            else:
                self._take(frame)

    def handle_oversize(self, frame: Oversize) -> None:
        self._end_on_breach(f"a frame of {frame.size} bytes")

    def handle_loss(self, cause: SeraiError) -> None:
        self._end(cause)

    def tick(self, now: float) -> float | None:
        current = self._current
        if current is not None and now >= current.deadline:
            self.interrupt("the time of its call is over")
            if now >= current.deadline + GRACE:
                self._end(self._build_timeout(current))
                return None
        for call in [call for call in self._queue if now >= call.deadline]:
            self._queue.remove(call)
            _fail(call, self._build_timeout(call))
        return self._find_next_deadline(now)

    def _find_next_deadline(self, now: float) -> float | None:
        times = [call.deadline for call in self._queue if call.begun is None]
        if self._current is not None:
            times.append(self._current.deadline + (0.0 if now < self._current.deadline else GRACE))
        return min(times, default=None)

    # -- what the worker says ---------------------------------------------------------------------------------------------------

    def _take(self, frame: messages.FromWorker) -> None:
        current = self._current
        if isinstance(frame, messages.Ok | messages.Big | messages.Trap):
            if current is None or frame.id != current.id or self._broker.busy:
                self._end_on_breach("an answer to nothing")
            elif isinstance(frame, messages.Ok):
                self._handle_ok(current, frame.text)
            elif isinstance(frame, messages.Big):
                self._handle_big(current, frame.size)
            else:
                self._handle_trap(current, frame)
        elif type(frame) is messages.HostAsked:
            if current is None or frame.id != current.id:
                self._end_on_breach("it asks the host while it has no call")
            elif wrong := self._broker.take(frame, current.deadline):
                self._end_on_breach(wrong)
        elif self._ready or self._opened.done():
            self._end_on_breach("it begins twice")
        elif type(frame) is messages.Ready and current is not None:
            self._current = None
            self._opened.set_result(frame)
        elif type(frame) is messages.Loaded and current is None:
            self._opened.set_result(frame)
        elif type(frame) is messages.Unfit and current is None:
            hint = "its author has to build it anew, for this world and without other imports"
            self._opened.set_exception(BadManifest(frame.text, who=self._who, hint=hint))
        elif type(frame) is messages.Stale and current is None:
            self._opened.set_exception(_Stale(frame.text))
        else:
            self._end_on_breach("it begins in another order")

    def _handle_ok(self, call: _Call, text: str) -> None:
        if call.id == 0 or len(text) > DOCUMENT or (not text.isascii() and len(text.encode()) > DOCUMENT):
            self._end_on_breach("an answer that it may not give")
            return
        if not call.waiter.done():
            call.waiter.set_result(text)
        self._start_next()

    def _handle_big(self, call: _Call, size: int) -> None:
        what = "guest" if call.export in _TOOLS else f"plugin component {call.export}"  # spec yoi 3.2, 3.3, 3.5
        hint = f"it gave {size} bytes, which were not taken over: its author has to make it shorter"
        _fail(call, OversizeFrame(f"{what} output exceeds {DOCUMENT} bytes", who=self._who, hint=hint))
        self._start_next()

    def _handle_trap(self, call: _Call, frame: messages.Trap) -> None:
        if frame.kind == "timeout" or monotonic() >= call.deadline:
            error: SeraiError = self._build_timeout(call)
        elif frame.kind == "output":
            utf8 = call.export in _TOOLS and "utf-8" in frame.text
            what = "guest output is not UTF-8" if utf8 else f"the output of {call.export} is none"
            error = BadFrame(f"{what}: {frame.text}", who=self._who)
        elif self._broker.denial:  # by our own words, whatever it makes of them
            error = Trapped(self._broker.denial, kind="denied", who=self._who)
        else:
            error = Trapped(" ".join(frame.text.split())[:_TRAP], kind=frame.kind[:20], who=self._who)
        if self._lasting or not self._ready:  # the store is of no more use (spec yoi 21.28)
            self._end(error)
        else:
            _fail(call, error)
            self._start_next()

    def _reply(self, reply: bytes) -> None:
        try:
            self._channel.send(reply)
        except SeraiError as error:  # it does not read what it asked for
            self._end(error)

    # -- inside -----------------------------------------------------------------------------------------------------------------

    def _send(self, call: _Call) -> bool:
        """Whether it is under way now."""
        if call.begun is not None:
            call.deadline = monotonic() + call.timeout
        left = call.deadline - monotonic()
        try:
            self._channel.send(messages.encode(messages.Call(id=call.id, export=call.export, args=call.args, time=left)))
        except UnicodeEncodeError:
            _fail(call, Refused(f"the input of {call.export} has a lone surrogate: it is no text", who=self._who))
            return False
        except SeraiError as error:
            _fail(call, error)
            return False
        self._current = call
        if call.begun is not None:
            call.begun()
            self._watch.schedule(call.deadline)
        return True

    def _start_next(self) -> None:
        self._current = None
        self._broker.denial = ""
        if self.after is not None and not self._lasting:
            self.after()
        now = monotonic()
        while self._queue:
            call = self._queue.popleft()
            if now >= call.deadline:
                _fail(call, self._build_timeout(call))
            elif not call.waiter.done() and self._send(call):
                return
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)
            self._idle = None

    def _build_timeout(self, call: _Call) -> PeerTimeout:
        return PeerTimeout(f"no answer to {call.export}", who=self._who, limit=LimitHit("time", call.timeout))

    def _build_ended_error(self) -> SeraiError:
        cause = self.cause
        if cause is None or isinstance(cause, Closed):
            return Closed("it was stopped", who=self._who)
        return PeerGone(f"it has ended: {cause.message}", who=self._who, exit=cause.exit, stderr=cause.stderr, limit=cause.limit)

    def _end_on_breach(self, what: str) -> None:
        """Its worker is not what we started any more: nothing it says counts from here on."""
        self._end(BadFrame(f"its worker breaks the protocol: {what}", who=self._who))

    def _end(self, cause: SeraiError) -> None:
        """The end of this life, whatever ended it: once."""
        if self.cause is not None:
            return
        self.cause = cause
        if cause.exit is not None and cause.exit.signal in _CRASHES:
            self.damaged()
        self._broker.close()
        current, self._current = self._current, None
        waiting, self._queue = self._queue, deque()
        if current is not None:
            _fail(current, cause)
        if not self._opened.done():
            self._opened.set_exception(cause)
            self._opened.exception()  # who was to hear it may have gone
        for call in waiting:
            _fail(call, self._build_ended_error())
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)
        self._kill_process()
        if self._ready and not self._stopped:
            self._told_end(cause)

    def _kill_process(self) -> None:
        """The process is killed at once; what is left of it is cleared away in a task of its own."""
        if self._closing is None:
            child = self._channel.child
            child.signal(signal.SIGKILL)
            self._channel.close()
            self._closing = self._loop.create_task(child.close(), name=f"close the worker of {self._who}")


def _fail(call: _Call, error: SeraiError) -> None:
    if not call.waiter.done():
        call.waiter.set_exception(error)

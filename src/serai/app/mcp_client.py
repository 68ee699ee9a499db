"""One client at the MCP endpoint: its socket, its token, its calls. Bounded in everything it can make us keep."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from time import monotonic
from typing import Literal

from serai.agents.tool_results import fit_for_model
from serai.dialects.mcp.events import Called, Cancelled, PeerEvent, Reply
from serai.dialects.mcp.peer_side import PeerSide
from serai.errors import Closed, FrameTooBig, PeerGone, SeraiError
from serai.limits import MIB, Limits
from serai.model.tools import ToolBox, ToolCall, ToolResult
from serai.wire import jsonrpc
from serai.wire.channel import Outbox, Tap
from serai.wire.stream import Framer, Oversize

__all__ = ["Client", "Door"]

log = logging.getLogger("serai.app")

_WORD = 256  # bytes: who has not ended its first line by then has no token
_WAITS = 1 * MIB  # of answers it does not take: then it is not read from any more


@dataclass(slots=True, kw_only=True)
class Door:
    """What all clients of an endpoint have in common."""

    tools: ToolBox
    agent: str
    name: str
    version: str
    limits: Limits
    tap: Callable[[], Tap | None] | None
    opens: Callable[[Client, bytes], bool]
    left: Callable[[Client], None]
    working: set[asyncio.Task[ToolResult]] = field(default_factory=set)


class Client:
    """One connection. It says its token, then it is served; whatever is odd about it ends it alone."""

    def __init__(self, door: Door, connection: socket.socket) -> None:
        self._door = door
        self._limits = door.limits
        self._connection = connection
        self._descriptor = connection.fileno()
        connection.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._word = b""
        self._server: PeerSide | None = None  # once it has shown its token
        self._tap: Tap | None = None
        self._framer = Framer(self._limits.frame, self._limits.frame_head)
        self._held: deque[bytes | Oversize] = deque()  # read, and not looked at: it takes no answers at the moment
        self._tasks: dict[bytes, asyncio.Task[ToolResult]] = {}
        self._reading = False
        self._eof = False
        self._closed = False
        self._given = 0  # bytes for it, so far
        self._resuming: asyncio.Task[None] | None = None
        self._stalls: asyncio.TimerHandle | None = None
        self._timer = self._loop.call_later(self._limits.hello, self.close)
        self._outbox = Outbox(
            self._descriptor,
            self._limits,
            who=self.who,
            on_sent=partial(self._record, "sent"),
            on_broken=self._broken,
            why=self._why,
        )

    @property
    def who(self) -> str:
        return f"the MCP client of {self._door.agent}"

    def start(self) -> None:
        """Read at once: most say who they are in the moment they come."""
        self._read_on()
        self._readable()

    def tools_changed(self) -> None:
        """Said once, however often, to one that is behind."""
        message = None if self._server is None or self._outbox.queued > _WAITS else self._server.list_changed()
        if message is not None and not self._eof:
            self._send(message)

    def close(self, cause: SeraiError | None = None) -> None:
        """Hang up; its calls are cancelled. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._stop_reading()
        self._timer.cancel()
        if self._stalls is not None:
            self._stalls.cancel()
        self._held.clear()
        self._outbox.close()
        self._connection.close()
        self._leave_calls()
        self._tell_tap("ended", Closed("hung up on", who=self.who) if cause is None else cause)
        self._door.left(self)

    # -- in ---------------------------------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        try:
            data = self._connection.recv(self._limits.read)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(PeerGone(f"reading: {error.strerror}", who=self.who))
            return
        if not data:
            self._end_of_input()
            return
        if self._server is None:
            data = self._admitted(data)
        if data:
            self._hold(self._framer.feed(data))
            self._work()

    def _admitted(self, data: bytes) -> bytes:
        """What follows the token. Whoever has another one is told nothing."""
        self._word += data
        word, end, rest = self._word.partition(b"\n")
        if not end and len(word) <= _WORD:
            return b""
        self._word = b""
        if not end or len(word) > _WORD or not self._door.opens(self, word.rstrip(b"\r")):
            self.close()
            return b""
        self._timer.cancel()
        self._server = PeerSide(self._door.name, self._door.version, self._door.tools.list)
        self._tap = None if self._door.tap is None else self._door.tap()
        return rest

    def _hold(self, read: list[bytes | Oversize]) -> None:
        for item in read:
            self._held += [item] if isinstance(item, Oversize) else BytesIO(item).readlines()

    def _work(self) -> None:
        """Look at what was read, as long as the answers are taken."""
        while self._held and not self._closed and self._outbox.queued <= _WAITS:
            item = self._held.popleft()
            assert self._server is not None
            if isinstance(item, Oversize):
                self._tell_tap("skipped", item)
                self._heard(self._server.oversize(item))
            elif item.strip():
                self._record("received", item)
                self._heard(self._server.receive(item))
        if self._closed:
            return
        if self._held:
            self._stop_reading()
            if self._resuming is None:
                self._resuming = self._loop.create_task(self._resume())
        elif self._eof:
            self._end()

    async def _resume(self) -> None:
        """Go on when everything was taken."""
        try:
            await self._outbox.drain()
        except SeraiError:  # it is gone
            return
        finally:
            self._resuming = None
        if not self._eof:
            self._read_on()
        self._work()

    def _end_of_input(self) -> None:
        """It says no more. What it asked is still looked at, and what is ready is still sent; what runs has lost its asker."""
        self._eof = True
        self._stop_reading()
        if self._server is None:
            self.close()
            return
        self._hold(self._framer.eof())
        self._work()

    def _end(self) -> None:
        self._leave_calls()
        self._outbox.end()  # `_broken(None)` once all is written

    def _read_on(self) -> None:
        if not self._reading and not self._closed:
            self._reading = True
            self._loop.add_reader(self._descriptor, self._readable)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._descriptor)

    # -- calls ------------------------------------------------------------------------------------------------------------------

    def _heard(self, heard: PeerEvent) -> None:
        match heard:
            case Reply(message=message):
                self._send(message)
            case Called():
                self._begin(heard)
            case Cancelled(id=id):
                if (task := self._tasks.get(id)) is not None:
                    task.cancel()

    def _begin(self, called: Called) -> None:
        assert self._server is not None
        if len(self._tasks) >= self._limits.requests:
            why = f"{len(self._tasks)} calls run already (limit requests)"
            self._answer(called.id, ToolResult.error(why, code="BUSY", hint="wait for some of them"))
            return
        task = self._loop.create_task(self._run(called), name=f"{self._door.agent} {called.name}")
        self._tasks[called.id] = task
        self._door.working.add(task)
        # A callback and not the task itself answers: a task that is cancelled before its first step never runs.
        task.add_done_callback(lambda task: self._ran(called, task))

    async def _run(self, called: Called) -> ToolResult:
        call = ToolCall(called.name, called.arguments, called.tool_use, self._door.agent)
        limit = asyncio.timeout(self._limits.call)
        try:
            async with limit:
                return fit_for_model(await self._door.tools.call(call), self._limits.tool_result)
        except TimeoutError:
            if not limit.expired():
                raise
            return ToolResult.error(f"{called.name} did not end in {self._limits.call:g} s (limit call)", code="TIMEOUT")

    def _ran(self, called: Called, task: asyncio.Task[ToolResult]) -> None:
        self._door.working.discard(task)
        if self._tasks.get(called.id) is task:
            del self._tasks[called.id]
        if task.cancelled():
            self._answer(called.id, ToolResult.error(f"{called.name} was cancelled", code="CANCELLED"))
        elif (error := task.exception()) is None:
            self._answer(called.id, task.result())
        else:
            log.error("%s: running %s failed", self.who, called.name, exc_info=error)
            self._answer(called.id, ToolResult.error(f"{called.name} failed: {error!r}", code="FAILED"))

    def _answer(self, id: bytes, result: ToolResult) -> None:
        """Nothing when nobody waits for it any more."""
        if self._server is None or self._closed or self._eof:
            return
        try:
            message = self._server.answer(id, result)
        except Exception as error:  # a guest's block that is no JSON
            log.exception("%s: a result cannot be sent", self.who)
            message = self._server.fail(id, jsonrpc.INTERNAL_ERROR, f"the result cannot be sent: {error}")
        if message is not None:
            self._send(message, id)

    def _leave_calls(self) -> None:
        """Nobody waits for them any more."""
        if self._server is not None:
            self._server.lose()
        for task in self._tasks.values():
            task.cancel()

    # -- out --------------------------------------------------------------------------------------------------------------------

    def _send(self, message: bytes, id: bytes = b"") -> None:
        if self._closed:
            return
        try:
            self._put(message)
        except FrameTooBig as error:
            self._put_short(id, error)
        except SeraiError as error:  # it does not read, and too much waits for it
            self.close(error)

    def _put_short(self, id: bytes, error: FrameTooBig) -> None:
        assert self._server is not None
        try:
            self._put(PeerSide.refusal(id or b"null", jsonrpc.INTERNAL_ERROR, error.message))
        except SeraiError as other:
            self.close(other)

    def _put(self, message: bytes) -> None:
        self._outbox.send(frame := message + b"\n")
        self._given += len(frame)
        if self._outbox.queued and self._stalls is None:
            self._watch()

    def _watch(self) -> None:
        """Every wait has an end: who takes nothing for a while, although something waits, is hung up on (design rule 6)."""
        taken = self._given - self._outbox.queued

        def look() -> None:
            self._stalls = None
            if self._closed or not self._outbox.queued:
                return
            if self._given - self._outbox.queued <= taken:
                log.warning("%s takes nothing: %d bytes wait for it", self.who, self._outbox.queued)
                self.close(PeerGone("it does not read", who=self.who))
            else:
                self._watch()

        self._stalls = self._loop.call_later(self._limits.mcp_stall, look)

    def _broken(self, error: OSError | None) -> None:
        self.close(PeerGone("hung up" if error is None else f"writing: {error.strerror}", who=self.who))

    def _why(self) -> SeraiError:
        return Closed("the connection is closed", who=self.who)

    # -- the tap ----------------------------------------------------------------------------------------------------------------

    def _record(self, direction: Literal["sent", "received"], run: bytes) -> None:
        if self._tap is not None:
            try:
                self._tap.frames(direction, monotonic(), run)
            except Exception as error:
                self._lose_tap(error)

    def _tell_tap(self, method: Literal["skipped", "ended"], what: Oversize | SeraiError) -> None:
        if self._tap is not None:
            try:
                getattr(self._tap, method)(monotonic(), what)
            except Exception as error:
                self._lose_tap(error)

    def _lose_tap(self, error: Exception) -> None:
        log.error("%s: its tap failed and is not called again", self.who, exc_info=error)
        self._tap = None

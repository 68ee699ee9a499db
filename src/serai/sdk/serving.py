"""The engine: what was heard goes to its handler, and every request gets exactly one answer, whatever becomes of the handler.

The read loop only reads. Sync handlers run on threads, async ones on one event loop; questions, commands and tools have threads of
their own, so that one kind which hangs holds up no other (spec zot 7.52). Events and panel keys come one after the other.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Condition
from time import monotonic
from typing import TYPE_CHECKING, Any

from serai.sdk import heard
from serai.sdk.answers import ToolError
from serai.sdk.calls import Cancelled
from serai.sdk.handlers import Handler
from serai.sdk.loops import OwnLoop
from serai.sdk.work import KINDS, Work
from serai.sdk.workers import Alarms, Workers

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine
    from concurrent.futures import Future

    from serai.sdk.adapters import Adapter
    from serai.sdk.book import Book
    from serai.sdk.host import Host
    from serai.sdk.remarks import Remarks
    from serai.sdk.stdio import Source, Writer

__all__ = ["GRACE", "SHORT_GRACE", "Serving"]

GRACE = 1.0  # seconds that cancelled handlers have to clean up; hosts wait for two (spec zot 5.1)
SHORT_GRACE = 0.5  # after a signal: hosts wait for one
_LAST = 0.2  # and what is then left to write has to be taken
_QUICK = 32  # commands, and questions, at once
_HEAD = 4096  # of a line that is too long: type and id are in front


class Serving:
    """One extension at work, from its opening to its end."""

    def __init__(self, book: Book, adapter: Adapter, host: Host, writer: Writer, remarks: Remarks, concurrency: int) -> None:
        self._book, self._adapter, self._host, self._writer, self._remarks = book, adapter, host, writer, remarks
        self._pid = os.getpid()
        self._open: dict[tuple[str, str], Work] = {}
        self._changed = Condition()
        self._reading: Source | None = None
        self._leaving = False
        self._hurry = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._own_loop: OwnLoop | None = None
        self._coroutines: set[Future[None]] = set()  # of the lanes
        self._alarms = Alarms()
        self._tools = Workers("tools", concurrency)
        self._commands = Workers("commands", _QUICK)
        self._questions = Workers("questions", _QUICK)
        self._events = Workers("events", 1)
        self._keys = Workers("panels", 1)

    # -- from the opening to the end ----------------------------------------------------------------------------------------------

    def begin(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Async handlers run on this loop, or on one of our own, which is there before the first of them is called."""
        if loop is not None:
            self._loop = loop
        elif any(handler.is_async for handler in self._book.handlers()):
            self._the_loop()

    def read(self, stream: Source) -> bool:
        """Serve until the host wants an end, or is gone; whether it said so."""
        limit = self._adapter.max_line
        self._reading = stream
        while line := _line(stream, limit + 1):
            too_long = len(line) > limit
            for item in self._adapter.too_long(line[:_HEAD], _skip(stream, line)) if too_long else self._adapter.hear(line):
                if isinstance(item, heard.Left):
                    return True
                self._take(item)
        return False

    @property
    def is_hearing(self) -> bool:
        """Whether the host has said what was not heard yet, as far as one can see."""
        return self._reading is None or bool(getattr(self._reading, "behind", False))

    def leave(self, grace: float = GRACE) -> bool:
        """Cancel what still runs and give it a moment; whether all of it ended. Every request is answered before, or now."""
        self._leaving = True
        deadline = monotonic() + grace
        self._writer.give_up_by(deadline + _LAST)
        for work in list(self._open.values()):
            work.call.cancel()
        lanes = (self._events, self._keys)
        if not all(lane.idle(deadline - grace / 2) for lane in lanes):  # the last events are worth half of the moment
            self._hurry = True
            for coroutine in list(self._coroutines):
                coroutine.cancel()
        with self._changed:
            while self._open and (left := deadline - monotonic()) > 0:
                self._changed.wait(left)
            stuck = list(self._open.values())
        for work in stuck:
            work.fail(Cancelled())
        ended = all(workers.idle(deadline) for workers in (self._tools, self._commands, self._questions, *lanes))
        return (self._own_loop is None or self._own_loop.stop(deadline)) and ended

    def farewell(self) -> None:
        self._writer.give_up_by(monotonic() + GRACE)
        self._writer.write(self._adapter.farewell())

    # -- what was heard -----------------------------------------------------------------------------------------------------------

    def _take(self, item: heard.Heard) -> None:
        match item:
            case heard.ToolCalled():
                self._call_tool(item)
            case heard.CommandInvoked():
                self._run_command(item)
            case heard.Asked():
                self._ask(item)
            case heard.TooLong(id=id, kind=kind, why=why):
                self._refuse(kind, id, f"the request could not be read: {why}")
            case heard.Happened(event=event):
                self._in_turn(self._events, self._book.events.get(event.name), f"handler of {event.name}", event)
            case heard.KeyPressed() | heard.PanelResized() | heard.PanelClosed():
                self._panel(item)
            case heard.TakenBack(id=id):
                for work in list(self._open.values()):
                    if work.id == id:
                        work.call.cancel()
            case heard.Welcomed(about=about):
                self._host.welcome(about)
            case heard.Odd(why=why):
                self._remarks.say(why)

    def _work(self, kind: str, id: str, name: str) -> Work | None:
        """What is owed an answer from now on. A request that comes twice is served once."""
        work = KINDS[kind](id, name, self._adapter, self._remarks, self._answer)
        with self._changed:
            other = self._open.get((kind, id))
            first = other is None or other.claimed  # a host may use an id again the moment it has read the answer
            if first:
                self._open[kind, id] = work
        if not first:
            self._remarks.say(f"a second {kind} with the open id {id!r} is passed over")
        elif self._leaving:
            work.fail(Cancelled())
        else:
            return work
        return None

    def _answer(self, work: Work, frame: bytes) -> None:
        """Once: whoever comes second is too late. It is open until it is written, so that no end overtakes it."""
        with self._changed:
            if work.claimed:
                return
            work.claimed = True
        self._writer.write(frame)
        with self._changed:
            if self._open.get((work.kind, work.id)) is work:
                del self._open[work.kind, work.id]
            self._changed.notify_all()

    def _refuse(self, kind: str, id: str, why: str) -> None:
        if work := self._work(kind, id, "request"):
            work.fail(ToolError(why))

    def _call_tool(self, call: heard.ToolCalled) -> None:
        tool = self._book.tools.get(call.name)
        if tool is None:
            self._refuse("tool", call.id, f'no handler for tool "{call.name[:100]}"')
            return
        work = self._work("tool", call.id, call.name)
        if work is None:
            return

        def run() -> Any:
            if tool.bind is None:
                return tool.function(*tool.given(call.args))
            arguments = tool.bind(call.args)
            if tool.call:
                arguments[tool.call] = work.call
            return tool.function(**arguments)

        if tool.timeout is not None:
            seconds = tool.timeout
            self._alarms.after(seconds, lambda: work.expire(seconds))
        self._run(work, run, self._tools, on_loop=tool.is_async)

    def _run_command(self, command: heard.CommandInvoked) -> None:
        handler = self._book.commands.get(command.name)
        if handler is None:
            self._refuse("command", command.id, f"no handler for /{command.name[:100]}")
        elif work := self._work("command", command.id, command.name):
            self._run(work, lambda: handler.function(*handler.given(command.args)), self._commands, on_loop=handler.is_async)

    def _ask(self, asked: heard.Asked) -> None:
        handler, work = self._book.interceptors.get(asked.stage), self._work("question", asked.id, asked.stage)
        if work is None:
            return
        if handler is None:  # nobody here minds
            work.settle(None)
            return
        self._run(work, lambda: handler.function(*handler.given(asked.subject)), self._questions, on_loop=handler.is_async)

    def _panel(self, item: heard.KeyPressed | heard.PanelResized | heard.PanelClosed) -> None:
        panel = self._book.panels.get(item.panel)
        if panel is None:
            return
        match item:
            case heard.KeyPressed(key=key, text=text):
                self._in_turn(self._keys, panel.on_key, f"key handler of panel {panel.id}", key, text)
            case heard.PanelResized(width=width, height=height):
                self._in_turn(self._keys, panel.on_resize, f"size handler of panel {panel.id}", width, height)
            case heard.PanelClosed():
                self._in_turn(self._keys, panel.on_close, f"close handler of panel {panel.id}")

    # -- handlers at work ---------------------------------------------------------------------------------------------------------

    def _run(self, work: Work, run: Callable[[], Any], workers: Workers, *, on_loop: bool) -> None:
        if on_loop:
            self._start_task(work, run)
        elif not workers.put(lambda: self._run_here(work, run)):
            work.fail(ToolError("too many requests wait already"))

    def _run_here(self, work: Work, run: Callable[[], Any]) -> None:
        try:
            work.call.check()  # it may have waited long for its turn
            value = run()
            waits = _can_wait(value)
        except BaseException as error:  # SystemExit too: a library's exit ends this request, not the extension
            self._end_copy(error)
            work.fail(error)
            return
        self._end_copy()
        if waits:  # an async function in disguise
            self._start_task(work, lambda: value)
        else:
            work.settle(value)

    def _start_task(self, work: Work, run: Callable[[], Any]) -> None:
        loop = self._the_loop()

        async def served() -> None:
            try:
                value = await run()
            except BaseException as error:
                self._end_copy(error)
                work.fail(error)
            else:
                self._end_copy()
                work.settle(value)

        def start() -> None:
            task = loop.create_task(served())
            work.call.when_cancelled(lambda: loop.call_soon_threadsafe(task.cancel))

        try:
            loop.call_soon_threadsafe(start)
        except RuntimeError as error:  # it is closed: the end is near
            work.fail(error)

    def _in_turn(self, lane: Workers, handler: Handler | None, what: str, *offered: object) -> None:
        """For what needs no answer: one after the other, and what goes wrong is told."""
        if handler is None:
            return

        def run() -> None:
            try:
                value = handler.function(*handler.given(*offered))
                if _can_wait(value):
                    self._wait_for(value, what)
            except BaseException as error:
                self._end_copy(error)
                self._remarks.trace(f"{what} raised", error)

        if not lane.put(run):
            self._remarks.say(f"{what} was not called: too much waits for it already")

    def _wait_for(self, coroutine: Coroutine[Any, Any, Any], what: str) -> None:
        import asyncio
        from concurrent.futures import CancelledError

        async def told() -> None:
            try:
                await coroutine
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # SystemExit would end the loop
                self._remarks.trace(f"{what} raised", error)

        future = asyncio.run_coroutine_threadsafe(told(), self._the_loop())
        self._coroutines.add(future)
        try:
            if self._hurry:
                future.cancel()
            future.result()
        except CancelledError:  # the end
            pass
        finally:
            self._coroutines.discard(future)

    def _the_loop(self) -> asyncio.AbstractEventLoop:
        with self._changed:
            if self._loop is None:
                self._own_loop = OwnLoop(self._remarks)
                self._loop = self._own_loop.loop
            return self._loop

    def _end_copy(self, error: BaseException | None = None) -> None:
        """A handler that forked has run twice. The copy has no wire, and must not go on as a second extension."""
        if os.getpid() != self._pid:
            os._exit(error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else int(error is not None))


def _can_wait(value: object) -> bool:
    return hasattr(type(value), "__await__")


def _line(stream: Source, limit: int) -> bytes:
    try:
        return stream.readline(limit)
    except (OSError, ValueError):  # the host is gone, or somebody closed the stream
        return b""


def _skip(stream: Source, line: bytes) -> int:
    """Read on to the end of a line that is too long; its size. Nothing of it is kept."""
    size = len(line)
    while not line.endswith(b"\n") and (line := _line(stream, 1 << 20)):
        size += len(line)
    return size

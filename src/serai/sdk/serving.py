"""The engine: what was heard goes to its handler, and every request gets exactly one answer, whatever becomes of the handler.

The read loop only reads. Sync handlers run on threads, async ones on one event loop; commands and questions have threads of their
own, so that tools which hang hold up nothing else (spec zot 7.52). Events and panel keys come one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, BinaryIO

from serai.sdk import heard
from serai.sdk.adapters import Adapter
from serai.sdk.answers import ToolError
from serai.sdk.calls import Cancelled
from serai.sdk.handlers import Handler
from serai.sdk.work import KINDS, Work
from serai.sdk.workers import Workers

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from serai.sdk.book import Book
    from serai.sdk.host import Host
    from serai.sdk.remarks import Remarks
    from serai.sdk.stdio import Writer

__all__ = ["Serving"]

GRACE = 1.0  # seconds that cancelled handlers have to clean up; hosts wait for two (spec zot 5.1)
_LEAST = 0.05  # seconds for an event loop that has nothing to do any more
_QUICK = 32  # commands and questions at once
_HEAD = 4096  # of a line that is too long: type and id are in front


class Serving:
    """One extension at work, from its opening to its end."""

    def __init__(self, book: Book, adapter: Adapter, host: Host, writer: Writer, remarks: Remarks, concurrency: int) -> None:
        self._book, self._adapter, self._host, self._writer = book, adapter, host, writer
        self._remarks = remarks
        self._open: dict[tuple[str, str], Work] = {}
        self._changed = Condition()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._own_loop: Thread | None = None
        self._tools = Workers("tools", concurrency)
        self._quick = Workers("requests", _QUICK)
        self._events = Workers("events", 1)
        self._keys = Workers("panels", 1)

    # -- from the opening to the end ----------------------------------------------------------------------------------------------

    def begin(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Async handlers run on this loop, or on one of our own, which is there before the first of them is called."""
        self._loop = loop
        if loop is None and any(handler.is_async for handler in self._book.handlers()):
            self._start_loop()

    def read(self, stream: BinaryIO) -> bool:
        """Serve until the host wants an end, or is gone; whether it said so."""
        limit = self._adapter.max_line
        while line := stream.readline(limit + 1):
            too_long = len(line) > limit
            for item in self._adapter.too_long(line[:_HEAD], _skip(stream, line)) if too_long else self._adapter.hear(line):
                if isinstance(item, heard.Left):
                    return True
                self._take(item)
        return False

    def leave(self) -> bool:
        """Cancel what still runs and give it a moment; whether all of it ended. Every request is answered before, or now."""
        deadline = monotonic() + GRACE
        for work in list(self._open.values()):
            work.call.cancel()
        with self._changed:
            while self._open and (left := deadline - monotonic()) > 0:
                self._changed.wait(left)
            stuck = list(self._open.values())
        for work in stuck:
            work.fail(Cancelled())
        ended = all(workers.idle(deadline) for workers in (self._tools, self._quick, self._events, self._keys))
        if self._own_loop is None or self._loop is None:
            return ended
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._own_loop.join(max(deadline - monotonic(), _LEAST))
        return ended and not self._own_loop.is_alive()

    def farewell(self) -> None:
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
            if other is None or other.claimed:  # a host may use an id again the moment it has read the answer
                self._open[kind, id] = work
                return work
        self._remarks.say(f"a second {kind} with the open id {id!r} is passed over")
        return None

    def _answer(self, work: Work, frame: bytes) -> None:
        """Once: whoever comes second is too late. It is open until it is written, so that no end overtakes it."""
        with self._changed:
            if work.claimed:
                return
            work.claimed = True
        work.ended()
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
            self._refuse("tool", call.id, f'no handler for tool "{call.name}"')
            return
        work = self._work("tool", call.id, call.name)
        if work is None:
            return

        def run() -> Any:
            if tool.bind is None:
                return tool.function(call.args)
            arguments = tool.bind(call.args)
            if tool.call:
                arguments[tool.call] = work.call
            return tool.function(**arguments)

        if tool.timeout is not None:
            work.within(tool.timeout)
        self._run(work, run, self._tools, on_loop=tool.is_async)

    def _run_command(self, command: heard.CommandInvoked) -> None:
        handler = self._book.commands.get(command.name)
        if handler is None:
            self._refuse("command", command.id, f"no handler for /{command.name}")
        elif work := self._work("command", command.id, command.name):
            self._run(work, lambda: handler.function(*handler.given(command.args)), self._quick, on_loop=handler.is_async)

    def _ask(self, asked: heard.Asked) -> None:
        handler, work = self._book.interceptors.get(asked.stage), self._work("question", asked.id, asked.stage)
        if work is None:
            return
        if handler is None:  # nobody here minds
            work.settle(None)
            return
        self._run(work, lambda: handler.function(*handler.given(asked.subject)), self._quick, on_loop=handler.is_async)

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
        except BaseException as error:  # SystemExit too: a library's exit ends this request, not the extension
            work.fail(error)
            return
        if hasattr(value, "__await__"):  # an async function in disguise
            self._start_task(work, lambda: value)
        else:
            work.settle(value)

    def _start_task(self, work: Work, run: Callable[[], Any]) -> None:
        loop = self._loop or self._start_loop()

        async def served() -> None:
            try:
                work.settle(await run())
            except BaseException as error:
                work.fail(error)

        def start() -> None:
            task = loop.create_task(served())
            work.call.when_cancelled(lambda: loop.call_soon_threadsafe(task.cancel))

        loop.call_soon_threadsafe(start)

    def _in_turn(self, lane: Workers, handler: Handler | None, what: str, *offered: object) -> None:
        """For what needs no answer: one after the other, and what goes wrong is told."""
        if handler is None:
            return

        def run() -> None:
            try:
                value = handler.function(*handler.given(*offered))
                if hasattr(value, "__await__"):
                    self._wait_for(value)
            except BaseException as error:
                self._remarks.trace(f"{what} raised", error)

        if not lane.put(run):
            self._remarks.say(f"{what} was not called: too much waits for it already")

    def _wait_for(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        import asyncio

        loop = self._loop or self._start_loop()
        asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    def _start_loop(self) -> asyncio.AbstractEventLoop:
        import asyncio

        with self._changed:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._own_loop = Thread(target=_run_loop, args=(self._loop,), name="async handlers", daemon=True)
                self._own_loop.start()
            return self._loop


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Until it is stopped; then what handlers have left running on it is cancelled and has its moment, as with `asyncio.run`."""
    import asyncio

    loop.run_forever()
    if tasks := asyncio.all_tasks(loop):
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.wait(tasks, timeout=GRACE))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def _skip(stream: BinaryIO, line: bytes) -> int:
    """Read on to the end of a line that is too long; its size. Nothing of it is kept."""
    size = len(line)
    while not line.endswith(b"\n") and (line := stream.readline(1 << 20)):
        size += len(line)
    return size

"""The dispatcher: each request goes to its handler and gets exactly one answer, whatever becomes of the handler.

The read loop only reads. Sync handlers run on threads, async ones on one event loop, which starts when the first of them is
called. Interceptors, commands and tools have threads of their own, so that one kind which hangs delays no other (spec zot 7.52).
Events and panel keys come one after the other.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Condition
from time import monotonic
from typing import TYPE_CHECKING, Any

from serai.sdk import events
from serai.sdk.answers import Allow, Block, Rewrite, ToolError, Verdict
from serai.sdk.current_call import Cancelled, current
from serai.sdk.handler_results import NoHandler, judged
from serai.sdk.registrations import Handler
from serai.sdk.workers import Alarms, HandlerLoop, PendingAnswer, Workers

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine
    from concurrent.futures import Future

    from serai.sdk.adapters import Adapter
    from serai.sdk.host import Host
    from serai.sdk.host_requests import PendingRequests
    from serai.sdk.optional_requests import OptionalRequests
    from serai.sdk.registrations import Registrations
    from serai.sdk.stdio import Source, StderrLog, Writer


def _can_wait(value: object) -> bool:
    return hasattr(type(value), "__await__")


GRACE = 1.0  # seconds that cancelled handlers have to clean up; hosts wait for two (spec zot 5.1)
SHORT_GRACE = 0.5  # after a signal: hosts wait for one
_LAST = 0.2  # and what is then left to write has to be taken
_QUICK = 32  # commands, and questions, at once
_HEAD = 4096  # of a line that is too long: type and id are in front


class Dispatcher:
    """One extension at work, from its opening to its end.

    Whatever becomes of a handler, its request is answered once, and no other request is held up.
    """

    def __init__(
        self, book: Registrations, adapter: Adapter, host: Host, writer: Writer, remarks: StderrLog, concurrency: int
    ) -> None:
        self._remarks = remarks
        self._pid = os.getpid()
        self._changed = Condition()
        self._hurry = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._own_loop: HandlerLoop | None = None
        self._coroutines: set[Future[None]] = set()  # of the lanes
        self._answers = Workers("answers", 1)  # that need no handler
        self._book, self._host, self._writer = book, host, writer
        self._starts = book.starts
        self.further: OptionalRequests | None = None  # what only some dialects have
        self.line: PendingRequests | None = None  # to the host's services
        self.on_first: Callable[[bytes], None] | None = None  # is told the first line: it may show another dialect
        self.speak(adapter)
        self._open: dict[tuple[str, str], PendingAnswer] = {}
        self._reading: Source | None = None
        self._leaving = False
        self._alarms = Alarms()
        self._tools = Workers("tools", concurrency)
        self._commands = Workers("commands", _QUICK)
        self._questions = Workers("questions", _QUICK)
        self._events = Workers("events", 1)
        self._keys = Workers("panels", 1)
        self._bus = Workers("bus", 1)

    def _run(self, work: PendingAnswer, run: Callable[[], Any], workers: Workers, *, on_loop: bool) -> None:
        if on_loop:
            self._start_task(work, run)
        else:
            self.put(work, run, workers)

    def called(self, handler: Handler, *offered: Any) -> Any:
        """Call it on this thread, and wait for it if it is async; who cancels the call that runs here cancels it, too."""
        value = handler.function(*handler.given(*offered))
        self._end_copy()  # before the next handler is called, or waited for on a loop that a copy does not have
        return self._waited(value) if _can_wait(value) else value

    def _waited(self, value: Any) -> Any:
        import asyncio
        from concurrent.futures import CancelledError

        async def outcome() -> tuple[Any, BaseException | None]:
            try:
                found = await value
            except BaseException as error:
                self._end_copy(error)
                if isinstance(error, asyncio.CancelledError):
                    raise
                return None, error  # SystemExit would end the loop
            self._end_copy()
            return found, None

        future = asyncio.run_coroutine_threadsafe(outcome(), self._the_loop())
        if (call := current.get()) is not None:
            call.when_cancelled(future.cancel)
        try:
            found, error = future.result()
        except CancelledError:
            raise Cancelled("it was cancelled") from None
        if error is not None:
            raise error
        return found

    def soon(self, act: Callable[[], None]) -> None:
        """Answer without a handler, on a thread: who reads must not wait for a host that does not, or its end is never seen.

        Only with thousands of answers behind, none of which is taken, reading waits as well.
        """
        if not self._answers.put(act):
            act()

    def put(self, work: PendingAnswer, run: Callable[[], Any], workers: Workers) -> None:
        """Have it run on a thread of these."""
        if not workers.put(lambda: self._run_here(work, run)):
            self.soon(lambda: work.fail(ToolError("too many requests wait already")))

    def _run_here(self, work: PendingAnswer, run: Callable[[], Any]) -> None:
        token = current.set(work.call)
        try:
            self._run_now(work, run)
        finally:
            current.reset(token)

    def _run_now(self, work: PendingAnswer, run: Callable[[], Any]) -> None:
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

    def _start_task(self, work: PendingAnswer, run: Callable[[], Any]) -> None:
        loop = self._the_loop()

        async def served() -> None:
            current.set(work.call)
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

    def _in_turn(
        self, lane: Workers, handler: Handler | None, what: str, *offered: object, take: Callable[[], object] | None = None
    ) -> None:
        """For what needs no answer: one after the other, and what goes wrong is told."""
        if handler is None:
            return

        def run() -> None:
            try:
                given = offered if take is None else (take(),)
                value = handler.function(*handler.given(*given))
                self._end_copy()
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
            except BaseException as error:
                self._end_copy(error)
                if isinstance(error, asyncio.CancelledError):
                    raise
                self._remarks.trace(f"{what} raised", error)  # SystemExit would end the loop
            self._end_copy()

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
                self._own_loop = HandlerLoop(self._remarks)
                self._loop = self._own_loop.loop
            return self._loop

    def _end_copy(self, error: BaseException | None = None) -> None:
        """A handler that forked has run twice. The copy has no wire, and must not go on as a second extension."""
        if os.getpid() != self._pid:
            os._exit(error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else int(error is not None))

    def speak(self, adapter: Adapter) -> None:
        """This dialect, from now on."""
        self._adapter, self._works = adapter, adapter.works()

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
            if self.on_first is not None and line.strip():
                told, self.on_first = self.on_first, None
                told(line)
            too_long = len(line) > limit
            for item in self._adapter.too_long(line[:_HEAD], _skip(stream, line)) if too_long else self._adapter.hear(line):
                if isinstance(item, events.ShutdownRequested):
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
        if self.line is not None:
            self.line.lost()
        self._writer.give_up_by(deadline + _LAST)
        for work in list(self._open.values()):
            work.call.cancel()
        lanes = (self._events, self._keys, self._bus)
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
        others = [self.further.workers] if self.further is not None else []
        ended = all(
            workers.idle(deadline) for workers in (self._tools, self._commands, self._questions, self._answers, *others, *lanes)
        )
        return (self._own_loop is None or self._own_loop.stop(deadline)) and ended

    def farewell(self) -> None:
        self._writer.give_up_by(monotonic() + GRACE)
        self._writer.write(self._adapter.farewell())

    # -- what was heard -----------------------------------------------------------------------------------------------------------

    def _take(self, item: events.Heard) -> None:
        match item:
            case events.ToolCalled():
                self._call_tool(item)
            case events.CommandInvoked():
                self._run_command(item)
            case events.InterceptRequest():
                self._ask(item)
            case events.OversizeRequest(id=id, kind=kind, why=why):
                self._refuse(kind, id, ToolError(f"the request could not be read: {why}"))
            case events.EventReceived(event=event):
                self.happened(event)
            case events.KeyPressed() | events.PanelResized() | events.PanelClosed():
                self._panel(item)
            case events.CancelRequested(id=id):
                for work in list(self._open.values()):
                    if work.id == id:
                        work.call.cancel()
            case events.HandshakeDone(about=about):
                self._host.welcome(about)
                starts, self._starts = self._starts, []
                for start in starts:  # once, though a host may say again who it is
                    self._in_turn(self._events, start, "on_init")
            case events.Unrecognized(why=why):
                self._remarks.say(why)
            case events.ReplyReceived() if self.line is not None:
                self.line.answered(item)
            case events.TopicPublished() if self.line is not None:
                self.line.published(item)
            case _ if self.further is not None:
                self.further.take(item)

    def tell(self, method: str, params: dict[str, Any]) -> None:
        assert self.line is not None
        self.line.tell(method, params)

    def happened(self, event: events.Event) -> None:
        self._in_turn(self._events, self._book.events.get(event.name), f"handler of {event.name}", event)

    def in_order(self, work: PendingAnswer, run: Callable[[], Any]) -> None:
        """After the events that came before it."""
        self.put(work, run, self._events)

    def deliver(self, handler: Handler, what: str, take: Callable[[], object]) -> None:
        """Call it with what can be taken then, after all that was to be delivered before."""
        self._in_turn(self._bus, handler, what, take=take)

    def work(self, kind: str, id: str, name: str) -> PendingAnswer | None:
        """What is owed an answer from now on. A request that comes twice is served once."""
        work = self._works[kind](id, name, self._adapter, self._remarks, self._answer)
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

    def _answer(self, work: PendingAnswer, frame: bytes) -> None:
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

    def _refuse(self, kind: str, id: str, error: ToolError) -> None:
        if work := self.work(kind, id, "request"):
            self.soon(lambda: work.fail(error))

    def _call_tool(self, call: events.ToolCalled) -> None:
        tool = self._book.tools.get(call.name)
        if tool is None:
            self._refuse("tool", call.id, NoHandler("tool", call.name))
            return
        work = self.work("tool", call.id, call.name)
        if work is None:
            return
        work.call.id = call.call or call.id

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

    def _run_command(self, command: events.CommandInvoked) -> None:
        handler = self._book.commands.get(command.name)
        if handler is None:
            self._refuse("command", command.id, NoHandler("command", command.name))
        elif work := self.work("command", command.id, command.name):
            self._run(work, lambda: handler.function(*handler.given(command.args)), self._commands, on_loop=handler.is_async)

    def _ask(self, asked: events.InterceptRequest) -> None:
        work = self.work("question", asked.id, asked.stage)
        if work is None:
            return
        handlers = self._book.asked(asked.stage, asked.guard)
        if not handlers:  # nobody here minds
            self.soon(lambda: work.settle(None))
        elif len(handlers) == 1:
            handler = handlers[0]
            self._run(work, lambda: handler.function(*handler.given(asked.subject)), self._questions, on_loop=handler.is_async)
        else:
            self._run(work, lambda: self._ask_all(handlers, asked.subject), self._questions, on_loop=False)

    def _ask_all(self, handlers: list[Handler], call: events.ToolCall) -> Verdict:
        """One after the other, each with what the one before made of it; who blocks has the last word."""
        verdict: Verdict = Allow()
        for handler in handlers:
            one = judged(self.called(handler, call), "tool_call")
            if isinstance(one, Block):
                return one
            if isinstance(one, Rewrite):
                verdict, call = one, call._replace(args=one.value)
        return verdict

    def _panel(self, item: events.KeyPressed | events.PanelResized | events.PanelClosed) -> None:
        panel = self._book.panels.get(item.panel)
        if panel is None:
            return
        match item:
            case events.KeyPressed(key=key, text=text):
                self._in_turn(self._keys, panel.on_key, f"key handler of panel {panel.id}", key, text)
            case events.PanelResized(width=width, height=height):
                self._in_turn(self._keys, panel.on_resize, f"size handler of panel {panel.id}", width, height)
            case events.PanelClosed():
                self._in_turn(self._keys, panel.on_close, f"close handler of panel {panel.id}")


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

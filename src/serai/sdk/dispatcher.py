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
from serai.sdk.answers import Allow, Block, NoHandler, Rewrite, ToolError, Verdict, to_verdict
from serai.sdk.current_call import Cancelled, current
from serai.sdk.registrations import Handler
from serai.sdk.workers import Alarms, HandlerLoop, PendingAnswer, Workers

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine
    from concurrent.futures import Future

    from serai.sdk.adapters import Adapter
    from serai.sdk.host import Host
    from serai.sdk.host_requests import OptionalRequests, PendingRequests
    from serai.sdk.registrations import Registrations
    from serai.sdk.stdio import Source, StderrLog, Writer


def _is_awaitable(value: object) -> bool:
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
        self, registry: Registrations, adapter: Adapter, host: Host, writer: Writer, remarks: StderrLog, concurrency: int
    ) -> None:
        self._remarks = remarks
        self._pid = os.getpid()
        self._changed = Condition()
        self._hurry = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._own_loop: HandlerLoop | None = None
        self._coroutines: set[Future[None]] = set()  # of the lanes
        self._answers = Workers("answers", 1)  # that need no handler
        self._registry, self._host, self._writer = registry, host, writer
        self._starts = registry.starts
        self.further: OptionalRequests | None = None  # what only some dialects have
        self.line: PendingRequests | None = None  # to the host's services
        self.on_first: Callable[[bytes], None] | None = None  # is told the first line: it may show another dialect
        self.set_adapter(adapter)
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

    def _schedule(self, work: PendingAnswer, run: Callable[[], Any], workers: Workers, *, on_loop: bool) -> None:
        if on_loop:
            self._start_task(work, run)
        else:
            self.put(work, run, workers)

    def call_handler(self, handler: Handler, *offered: Any) -> Any:
        """Call it on this thread, and wait for it if it is async; who cancels the call that runs here cancels it, too."""
        value = handler.function(*handler.select(*offered))
        self._exit_if_forked()  # before the next handler is called, or waited for on a loop that a copy does not have
        return self._await_on_loop(value) if _is_awaitable(value) else value

    def _await_on_loop(self, value: Any) -> Any:
        import asyncio
        from concurrent.futures import CancelledError

        async def await_value() -> tuple[Any, BaseException | None]:
            try:
                found = await value
            except BaseException as error:
                self._exit_if_forked(error)
                if isinstance(error, asyncio.CancelledError):
                    raise
                return None, error  # SystemExit would end the loop
            self._exit_if_forked()
            return found, None

        future = asyncio.run_coroutine_threadsafe(await_value(), self._get_loop())
        if (call := current.get()) is not None:
            call.when_cancelled(future.cancel)
        try:
            found, error = future.result()
        except CancelledError:
            raise Cancelled("it was cancelled") from None
        if error is not None:
            raise error
        return found

    def run_soon(self, act: Callable[[], None]) -> None:
        """Answer without a handler, on a thread: who reads must not wait for a host that does not, or its end is never seen.

        Only with thousands of answers behind, none of which is taken, reading waits as well.
        """
        if not self._answers.put(act):
            act()

    def put(self, work: PendingAnswer, run: Callable[[], Any], workers: Workers) -> None:
        """Have it run on a thread of these."""
        if not workers.put(lambda: self._run_in_context(work, run)):
            self.run_soon(lambda: work.fail(ToolError("too many requests wait already")))

    def _run_in_context(self, work: PendingAnswer, run: Callable[[], Any]) -> None:
        token = current.set(work.call)
        try:
            self._run_now(work, run)
        finally:
            current.reset(token)

    def _run_now(self, work: PendingAnswer, run: Callable[[], Any]) -> None:
        try:
            work.call.check()  # it may have waited long for its turn
            value = run()
            waits = _is_awaitable(value)
        except BaseException as error:  # SystemExit too: a library's exit ends this request, not the extension
            self._exit_if_forked(error)
            work.fail(error)
            return
        self._exit_if_forked()
        if waits:  # an async function in disguise
            self._start_task(work, lambda: value)
        else:
            work.settle(value)

    def _start_task(self, work: PendingAnswer, run: Callable[[], Any]) -> None:
        loop = self._get_loop()

        async def serve() -> None:
            current.set(work.call)
            try:
                value = await run()
            except BaseException as error:
                self._exit_if_forked(error)
                work.fail(error)
            else:
                self._exit_if_forked()
                work.settle(value)

        def start() -> None:
            task = loop.create_task(serve())
            work.call.when_cancelled(lambda: loop.call_soon_threadsafe(task.cancel))

        try:
            loop.call_soon_threadsafe(start)
        except RuntimeError as error:  # it is closed: the end is near
            work.fail(error)

    def _call_in_turn(
        self, lane: Workers, handler: Handler | None, what: str, *offered: object, take: Callable[[], object] | None = None
    ) -> None:
        """For what needs no answer: one after the other, and what goes wrong is told."""
        if handler is None:
            return

        def run() -> None:
            try:
                given = offered if take is None else (take(),)
                value = handler.function(*handler.select(*given))
                self._exit_if_forked()
                if _is_awaitable(value):
                    self._wait_for(value, what)
            except BaseException as error:
                self._exit_if_forked(error)
                self._remarks.trace(f"{what} raised", error)

        if not lane.put(run):
            self._remarks.say(f"{what} was not called: too much waits for it already")

    def _wait_for(self, coroutine: Coroutine[Any, Any, Any], what: str) -> None:
        import asyncio
        from concurrent.futures import CancelledError

        async def await_coroutine() -> None:
            try:
                await coroutine
            except BaseException as error:
                self._exit_if_forked(error)
                if isinstance(error, asyncio.CancelledError):
                    raise
                self._remarks.trace(f"{what} raised", error)  # SystemExit would end the loop
            self._exit_if_forked()

        future = asyncio.run_coroutine_threadsafe(await_coroutine(), self._get_loop())
        self._coroutines.add(future)
        try:
            if self._hurry:
                future.cancel()
            future.result()
        except CancelledError:  # the end
            pass
        finally:
            self._coroutines.discard(future)

    def _get_loop(self) -> asyncio.AbstractEventLoop:
        with self._changed:
            if self._loop is None:
                self._own_loop = HandlerLoop(self._remarks)
                self._loop = self._own_loop.loop
            return self._loop

    def _exit_if_forked(self, error: BaseException | None = None) -> None:
        """A handler that forked has run twice. The copy has no wire, and must not go on as a second extension."""
        if os.getpid() != self._pid:
            os._exit(error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else int(error is not None))

    def set_adapter(self, adapter: Adapter) -> None:
        """This dialect, from now on."""
        self._adapter, self._works = adapter, adapter.get_answer_types()

    # -- from the opening to the end ----------------------------------------------------------------------------------------------

    def begin(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Async handlers run on this loop, or on one of our own, which is there before the first of them is called."""
        if loop is not None:
            self._loop = loop
        elif any(handler.is_async for handler in self._registry.handlers()):
            self._get_loop()

    def read(self, stream: Source) -> bool:
        """Serve until the host wants an end, or is gone; whether it said so."""
        limit = self._adapter.max_line
        self._reading = stream
        while line := _read_line(stream, limit + 1):
            if self.on_first is not None and line.strip():
                told, self.on_first = self.on_first, None
                told(line)
            too_long = len(line) > limit
            for item in (
                self._adapter.parse_oversized(line[:_HEAD], _skip_line(stream, line))
                if too_long
                else self._adapter.parse_line(line)
            ):
                if isinstance(item, events.ShutdownRequested):
                    return True
                self._handle(item)
        return False

    @property
    def has_unread_input(self) -> bool:
        """Whether the host has said what was not heard yet, as far as one can see."""
        return self._reading is None or bool(getattr(self._reading, "behind", False))

    def leave(self, grace: float = GRACE) -> bool:
        """Cancel what still runs and give it a moment; whether all of it ended. Every request is answered before, or now."""
        self._leaving = True
        deadline = monotonic() + grace
        if self.line is not None:
            self.line.close()
        self._writer.give_up_by(deadline + _LAST)
        for work in list(self._open.values()):
            work.call.cancel()
        lanes = (self._events, self._keys, self._bus)
        if not all(lane.drain(deadline - grace / 2) for lane in lanes):  # the last events are worth half of the moment
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
            workers.drain(deadline) for workers in (self._tools, self._commands, self._questions, self._answers, *others, *lanes)
        )
        return (self._own_loop is None or self._own_loop.stop(deadline)) and ended

    def send_shutdown_ack(self) -> None:
        self._writer.give_up_by(monotonic() + GRACE)
        self._writer.write(self._adapter.encode_shutdown_ack())

    # -- what was heard -----------------------------------------------------------------------------------------------------------

    def _handle(self, item: events.Heard) -> None:
        match item:
            case events.ToolCalled():
                self._call_tool(item)
            case events.CommandInvoked():
                self._run_command(item)
            case events.InterceptRequest():
                self._intercept(item)
            case events.OversizeRequest(id=id, kind=kind, why=why):
                self._refuse(kind, id, ToolError(f"the request could not be read: {why}"))
            case events.EventReceived(event=event):
                self.dispatch_event(event)
            case events.KeyPressed() | events.PanelResized() | events.PanelClosed():
                self._handle_panel(item)
            case events.CancelRequested(id=id):
                for work in list(self._open.values()):
                    if work.id == id:
                        work.call.cancel()
            case events.HandshakeDone(about=about):
                self._host.update(about)
                starts, self._starts = self._starts, []
                for start in starts:  # once, though a host may say again who it is
                    self._call_in_turn(self._events, start, "on_init")
            case events.Unrecognized(why=why):
                self._remarks.say(why)
            case events.ReplyReceived() if self.line is not None:
                self.line.settle_reply(item)
            case events.TopicPublished() if self.line is not None:
                self.line.deliver_message(item)
            case _ if self.further is not None:
                self.further.handle(item)

    def notify_host(self, method: str, params: dict[str, Any]) -> None:
        assert self.line is not None
        self.line.notify_host(method, params)

    def dispatch_event(self, event: events.Event) -> None:
        self._call_in_turn(self._events, self._registry.events.get(event.name), f"handler of {event.name}", event)

    def run_after_events(self, work: PendingAnswer, run: Callable[[], Any]) -> None:
        """After the events that came before it."""
        self.put(work, run, self._events)

    def deliver(self, handler: Handler, what: str, take: Callable[[], object]) -> None:
        """Call it with what can be taken then, after all that was to be delivered before."""
        self._call_in_turn(self._bus, handler, what, take=take)

    def open_request(self, kind: str, id: str, name: str) -> PendingAnswer | None:
        """What is owed an answer from now on. A request that comes twice is served once."""
        work = self._works[kind](id, name, self._adapter, self._remarks, self._send_answer)
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

    def _send_answer(self, work: PendingAnswer, frame: bytes) -> None:
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
        if work := self.open_request(kind, id, "request"):
            self.run_soon(lambda: work.fail(error))

    def _call_tool(self, call: events.ToolCalled) -> None:
        tool = self._registry.tools.get(call.name)
        if tool is None:
            self._refuse("tool", call.id, NoHandler("tool", call.name))
            return
        work = self.open_request("tool", call.id, call.name)
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
            self._alarms.call_later(seconds, lambda: work.expire(seconds))
        self._schedule(work, run, self._tools, on_loop=tool.is_async)

    def _run_command(self, command: events.CommandInvoked) -> None:
        handler = self._registry.commands.get(command.name)
        if handler is None:
            self._refuse("command", command.id, NoHandler("command", command.name))
        elif work := self.open_request("command", command.id, command.name):
            self._schedule(work, lambda: handler.function(*handler.select(command.args)), self._commands, on_loop=handler.is_async)

    def _intercept(self, asked: events.InterceptRequest) -> None:
        work = self.open_request("question", asked.id, asked.stage)
        if work is None:
            return
        handlers = self._registry.find_interceptors(asked.stage, asked.guard)
        if not handlers:  # nobody here minds
            self.run_soon(lambda: work.settle(None))
        elif len(handlers) == 1:
            handler = handlers[0]
            self._schedule(
                work, lambda: handler.function(*handler.select(asked.subject)), self._questions, on_loop=handler.is_async
            )
        else:
            self._schedule(work, lambda: self._intercept_all(handlers, asked.subject), self._questions, on_loop=False)

    def _intercept_all(self, handlers: list[Handler], call: events.ToolCall) -> Verdict:
        """One after the other, each with what the one before made of it; who blocks has the last word."""
        verdict: Verdict = Allow()
        for handler in handlers:
            one = to_verdict(self.call_handler(handler, call), "tool_call")
            if isinstance(one, Block):
                return one
            if isinstance(one, Rewrite):
                verdict, call = one, call._replace(args=one.value)
        return verdict

    def _handle_panel(self, item: events.KeyPressed | events.PanelResized | events.PanelClosed) -> None:
        panel = self._registry.panels.get(item.panel)
        if panel is None:
            return
        match item:
            case events.KeyPressed(key=key, text=text):
                self._call_in_turn(self._keys, panel.on_key, f"key handler of panel {panel.id}", key, text)
            case events.PanelResized(width=width, height=height):
                self._call_in_turn(self._keys, panel.on_resize, f"size handler of panel {panel.id}", width, height)
            case events.PanelClosed():
                self._call_in_turn(self._keys, panel.on_close, f"close handler of panel {panel.id}")


def _read_line(stream: Source, limit: int) -> bytes:
    try:
        return stream.readline(limit)
    except (OSError, ValueError):  # the host is gone, or somebody closed the stream
        return b""


def _skip_line(stream: Source, line: bytes) -> int:
    """Read on to the end of a line that is too long; its size. Nothing of it is kept."""
    size = len(line)
    while not line.endswith(b"\n") and (line := _read_line(stream, 1 << 20)):
        size += len(line)
    return size

"""The engine: what was heard goes to its handler, and every request gets exactly one answer, whatever becomes of the handler.

The read loop only reads. Sync handlers run on threads, async ones on one event loop; questions, commands and tools have threads of
their own, so that one kind which hangs holds up no other (spec zot 7.52). Events and panel keys come one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from serai.sdk import heard
from serai.sdk.answers import Allow, Block, Rewrite, ToolError, Verdict
from serai.sdk.calls import Cancelled
from serai.sdk.handlers import Handler
from serai.sdk.results import NoHandler, judged
from serai.sdk.running import Running
from serai.sdk.work import Work
from serai.sdk.workers import Alarms, Workers

if TYPE_CHECKING:
    import asyncio

    from serai.sdk.adapters import Adapter
    from serai.sdk.asking import Line
    from serai.sdk.book import Book
    from serai.sdk.further import Further
    from serai.sdk.host import Host
    from serai.sdk.remarks import Remarks
    from serai.sdk.stdio import Source, Writer

__all__ = ["GRACE", "SHORT_GRACE", "Serving"]

GRACE = 1.0  # seconds that cancelled handlers have to clean up; hosts wait for two (spec zot 5.1)
SHORT_GRACE = 0.5  # after a signal: hosts wait for one
_LAST = 0.2  # and what is then left to write has to be taken
_QUICK = 32  # commands, and questions, at once
_HEAD = 4096  # of a line that is too long: type and id are in front


class Serving(Running):
    """One extension at work, from its opening to its end."""

    def __init__(self, book: Book, adapter: Adapter, host: Host, writer: Writer, remarks: Remarks, concurrency: int) -> None:
        super().__init__(remarks)
        self._book, self._host, self._writer = book, host, writer
        self._starts = book.starts
        self.further: Further | None = None  # what only some dialects have
        self.line: Line | None = None  # to the host's services
        self.on_first: Callable[[bytes], None] | None = None  # is told the first line: it may show another dialect
        self.speak(adapter)
        self._open: dict[tuple[str, str], Work] = {}
        self._reading: Source | None = None
        self._leaving = False
        self._alarms = Alarms()
        self._tools = Workers("tools", concurrency)
        self._commands = Workers("commands", _QUICK)
        self._questions = Workers("questions", _QUICK)
        self._events = Workers("events", 1)
        self._keys = Workers("panels", 1)
        self._bus = Workers("bus", 1)

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

    def _take(self, item: heard.Heard) -> None:
        match item:
            case heard.ToolCalled():
                self._call_tool(item)
            case heard.CommandInvoked():
                self._run_command(item)
            case heard.Asked():
                self._ask(item)
            case heard.TooLong(id=id, kind=kind, why=why):
                self._refuse(kind, id, ToolError(f"the request could not be read: {why}"))
            case heard.Happened(event=event):
                self.happened(event)
            case heard.KeyPressed() | heard.PanelResized() | heard.PanelClosed():
                self._panel(item)
            case heard.TakenBack(id=id):
                for work in list(self._open.values()):
                    if work.id == id:
                        work.call.cancel()
            case heard.Welcomed(about=about):
                self._host.welcome(about)
                starts, self._starts = self._starts, []
                for start in starts:  # once, though a host may say again who it is
                    self._in_turn(self._events, start, "on_init")
            case heard.Odd(why=why):
                self._remarks.say(why)
            case heard.Answered() if self.line is not None:
                self.line.answered(item)
            case heard.Published() if self.line is not None:
                self.line.published(item)
            case _ if self.further is not None:
                self.further.take(item)

    def tell(self, method: str, params: dict[str, Any]) -> None:
        assert self.line is not None
        self.line.tell(method, params)

    def happened(self, event: heard.Event) -> None:
        self._in_turn(self._events, self._book.events.get(event.name), f"handler of {event.name}", event)

    def in_order(self, work: Work, run: Callable[[], Any]) -> None:
        """After the events that came before it."""
        self.put(work, run, self._events)

    def deliver(self, handler: Handler, what: str, take: Callable[[], object]) -> None:
        """Call it with what can be taken then, after all that was to be delivered before."""
        self._in_turn(self._bus, handler, what, take=take)

    def work(self, kind: str, id: str, name: str) -> Work | None:
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

    def _refuse(self, kind: str, id: str, error: ToolError) -> None:
        if work := self.work(kind, id, "request"):
            self.soon(lambda: work.fail(error))

    def _call_tool(self, call: heard.ToolCalled) -> None:
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

    def _run_command(self, command: heard.CommandInvoked) -> None:
        handler = self._book.commands.get(command.name)
        if handler is None:
            self._refuse("command", command.id, NoHandler("command", command.name))
        elif work := self.work("command", command.id, command.name):
            self._run(work, lambda: handler.function(*handler.given(command.args)), self._commands, on_loop=handler.is_async)

    def _ask(self, asked: heard.Asked) -> None:
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

    def _ask_all(self, handlers: list[Handler], call: heard.ToolCall) -> Verdict:
        """One after the other, each with what the one before made of it; who blocks has the last word."""
        verdict: Verdict = Allow()
        for handler in handlers:
            one = judged(self.called(handler, call), "tool_call")
            if isinstance(one, Block):
                return one
            if isinstance(one, Rewrite):
                verdict, call = one, call._replace(args=one.value)
        return verdict

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

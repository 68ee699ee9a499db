"""An extension, as its author writes it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, overload

from serai.errors import BadExtension
from serai.sdk import adapters, stdio
from serai.sdk.book import Book, check_stage
from serai.sdk.handlers import Function, Handler, Tool
from serai.sdk.host import Host
from serai.sdk.panel import Panel
from serai.sdk.remarks import Remarks

if TYPE_CHECKING:
    import logging
    from pathlib import Path

    from serai.sdk.adapters import Adapter
    from serai.sdk.serving import Serving

__all__ = ["BadExtension", "Extension"]

F = TypeVar("F", bound=Function)
LEVELS = ("info", "success", "warn", "error")
_CALLABLE = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch  # what models call and people type (spec zot 3.2)

_BY_HAND = """\
{name} is an extension: a host starts it and talks to it over its standard input and output.
To try it, go to its folder and say

    serai tool list --guest .      # what it offers
    serai guest check .            # whether it does what a host expects
"""


class Extension:
    """What a host takes in: handlers under names. `main` serves them.

    `concurrency` is how many sync tools run at once, each on a thread; async ones share one event loop and have no limit.
    `stdin` and `stdout` are binary streams to use instead of the program's own.
    """

    def __init__(
        self, name: str, version: str = "", *, concurrency: int = 32, stdin: BinaryIO | None = None, stdout: BinaryIO | None = None
    ) -> None:
        if not str(name).strip():
            raise BadExtension(f"an extension needs a name, not {name!r}", hint='write Extension("weather")')
        if concurrency < 1:
            raise BadExtension(f"concurrency is {concurrency}", who=name, hint="1 runs one tool at a time")
        self.name = name
        self.version = str(version)
        self.host = Host()
        self._book = Book(name, self.version)
        self._concurrency = concurrency
        self._remarks = Remarks(name)
        self._stdin, self._stdout = stdin, stdout
        self._adapter: Adapter | None = None
        self._writer: stdio.Writer | None = None
        self._early: list[Callable[[Adapter], bytes]] = []  # what was said before there was a host
        self._log: logging.Logger | None = None
        self._folder = os.getcwd()  # a host starts a program in its folder (spec zot 2.1)
        # The module that is run as a program: from here on nothing it prints may get on the wire.
        if not (stdin or stdout) and sys._getframe(1).f_globals.get("__name__") == "__main__" and stdio.from_host():
            stdio.take()

    def __repr__(self) -> str:
        return f"<extension {self.name}>"

    # -- what it offers ---------------------------------------------------------------------------------------------------------

    @overload
    def tool(self, name: F, /) -> F: ...
    @overload
    def tool(
        self, name: str = "", *, description: str = "", schema: dict[str, Any] | None = None, timeout: float | None = None
    ) -> Callable[[F], F]: ...

    def tool(
        self, name: Any = "", *, description: str = "", schema: dict[str, Any] | None = None, timeout: float | None = None
    ) -> Any:
        """`@ext.tool`, or with a name and more. The schema comes from the signature, the description from the docstring.

        With a `schema` of its own the handler gets the arguments as they came, whatever JSON that is, as its one parameter.
        `timeout` seconds after the call came the model is told so, and the call is cancelled.
        """

        def add(function: F) -> F:
            called = _named("tool", name, function)
            if not _CALLABLE(called):
                text = f'tool "{called}" cannot be called by models: a name has at most 64 letters, digits, "-" and "_"'
                raise BadExtension(text, hint="rename it")
            if schema is not None and not isinstance(schema, dict):
                raise BadExtension(f'tool "{called}": a schema is an object, not {schema!r}', hint='write {"type": "object", …}')
            self._book.add_tool(Tool(function, called, description, schema, timeout))
            return function

        return _decorate(add, name)

    @overload
    def command(self, name: F, /) -> F: ...
    @overload
    def command(self, name: str = "", description: str = "") -> Callable[[F], F]: ...

    def command(self, name: Any = "", description: str = "") -> Any:
        """`/name` for a person to type: `handler(args)` with what stands behind it, or `handler()`.

        It returns text to show, `Prompt`, `Insert`, `Display`, `OpenPanel`, `Failed`, or nothing.
        """

        def add(function: F) -> F:
            called = _named("command", name, function)
            if not _CALLABLE(called):
                text = f'command "{called}" cannot be typed: a name has at most 64 letters, digits, "-" and "_"'
                raise BadExtension(text, hint="rename it; the slash is not part of it")
            self._book.add_command(called, description or _first_line(function), Handler(function, f"command /{called}", "args"))
            return function

        return _decorate(add, name)

    def on(self, event: str) -> Callable[[F], F]:
        """Hear of an event: `handler(event)`, one after the other in the order of the events."""

        def add(function: F) -> F:
            self._book.add_event(event, Handler(function, f"event {event}", "event"))
            return function

        return add

    def intercept(self, event: str) -> Callable[[F], F]:
        """Be asked before it happens: tool_call with a `ToolCall`, turn_start with its step, assistant_message with its text.

        Nothing, `True` or `Allow()` lets it pass; `False` or `Block(reason)` stops it; `Rewrite(…)` changes it. A handler that
        raises blocks. The host waits five seconds for all of it (spec zot 4.4).
        """
        given = check_stage(event)

        def add(function: F) -> F:
            self._book.add_interceptor(event, Handler(function, f"interceptor of {event}", given))
            return function

        return add

    def intercept_tool_call(self, function: F) -> F:
        return self.intercept("tool_call")(function)

    def intercept_turn_start(self, function: F) -> F:
        return self.intercept("turn_start")(function)

    def intercept_assistant_message(self, function: F) -> F:
        return self.intercept("assistant_message")(function)

    def panel(self, id: str, *, title: str = "", footer: str = "") -> Panel:
        """A panel under this id; see `Panel`. Also a decorator above its handler for keys."""
        panel = Panel(self._say, id, title, footer)
        self._book.add_panel(panel)
        return panel

    # -- what it can say and ask --------------------------------------------------------------------------------------------------

    def notify(self, level: str, message: str) -> None:
        """A short word to the person, at any time: info, success, warn or error."""
        if level not in LEVELS:
            raise ValueError(f"{level!r} is no level of a notice: there are {', '.join(LEVELS)}")
        if not isinstance(message, str):
            raise TypeError(f"a notice is text, not {type(message).__name__}")
        self._say(lambda adapter: adapter.notify(level, message))

    @property
    def log(self) -> logging.Logger:
        """A logger of the standard library, to stderr, where the host keeps a log."""
        if self._log is None:
            import logging

            self._log = logging.getLogger(f"serai.extension.{self.name}")
            if not self._log.handlers:
                handler = logging.StreamHandler()
                handler.setFormatter(logging.Formatter(f"[{self.name.replace('%', '%%')}] %(levelname)s %(message)s"))
                self._log.addHandler(handler)
                self._log.setLevel(logging.INFO)
                self._log.propagate = False
        return self._log

    @property
    def data_dir(self) -> Path:
        """Where it may keep what it wants to find again: as the host says, else its own folder."""
        from pathlib import Path

        return Path(self.host.data_dir or self.host.extension_dir or self._folder)

    def _say(self, frame: Callable[[Adapter], bytes]) -> None:
        if self._adapter is None or self._writer is None:  # nothing goes out before hello
            self._early.append(frame)
            return
        line = frame(self._adapter)
        if len(line) > self._adapter.max_line:
            raise ValueError(f"this has {len(line)} bytes, and {self._adapter.dialect} carries {self._adapter.max_line}")
        self._writer.write(line)

    # -- its life -----------------------------------------------------------------------------------------------------------------

    def main(self) -> None:
        """Serve until the host says goodbye: the last statement of a program. What stands behind it runs when all has ended."""
        if self._stdin is None and os.isatty(0):
            sys.stderr.write(_BY_HAND.format(name=self.name))
            sys.exit(2)
        status, ended = 0, True
        restore = _on_sigterm()
        try:
            reading = self._open()
            serving = self._serving()
            serving.begin()
            try:
                if serving.read(reading):
                    serving.farewell()
            finally:
                ended = serving.leave()
        except BadExtension as error:
            sys.exit(f"[{self.name}] {error}; {error.hint}")
        except KeyboardInterrupt:
            status = 130
        except _Terminated:
            status = 143
        finally:
            restore()
        if not ended:
            _leave_now(status)
        if status:
            sys.exit(status)

    run = main

    async def arun(self) -> None:
        """`run` inside a running event loop, which the async handlers then share."""
        import asyncio
        from threading import Thread

        reading = self._open()
        serving = self._serving()
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        serving.begin(loop)

        def read() -> None:
            if serving.read(reading):
                serving.farewell()
            try:
                loop.call_soon_threadsafe(over.set)
            except RuntimeError:  # it is closed: nobody waits any more
                pass

        Thread(target=read, name="reader", daemon=True).start()
        try:
            await over.wait()
        finally:
            await asyncio.shield(asyncio.to_thread(serving.leave))

    def _open(self) -> BinaryIO:
        """Say hello and all the rest, before anything else is imported (lesson L10)."""
        reading, writing = self._stdin or stdio.take()[0], self._stdout or stdio.take()[1]
        name = adapters.choose(sys.argv[1:], os.environ, lambda: _first_bytes(reading))
        self._adapter = adapter = adapters.load(name)
        self.host.dialect = adapter.dialect
        self._writer = stdio.Writer(writing)
        self._writer.write(adapter.opening(self._book) + b"".join(early(adapter) for early in self._early))
        self._early.clear()
        return reading

    def _serving(self) -> Serving:
        from serai.sdk.serving import Serving

        assert self._adapter is not None
        assert self._writer is not None
        return Serving(self._book, self._adapter, self.host, self._writer, self._remarks, self._concurrency)


def _decorate(add: Callable[[Any], Any], name: object) -> Any:
    """With and without parentheses."""
    return add(name) if callable(name) else add


def _named(what: str, name: object, function: Function) -> str:
    called = name if isinstance(name, str) and name else getattr(function, "__name__", "")
    if not isinstance(called, str) or not called.strip() or called == "<lambda>":
        raise BadExtension(f"a {what} needs a name: {function!r} has none", hint=f'write @ext.{what}("name")')
    return called


def _first_line(function: Function) -> str:
    return (getattr(function, "__doc__", None) or "").strip().partition("\n")[0]


def _first_bytes(stream: BinaryIO) -> bytes:
    """What is there already, without waiting for it: a host that speaks first has spoken while Python started."""
    peek, fileno = getattr(stream, "peek", None), getattr(stream, "fileno", None)
    if peek is None or fileno is None:
        return b""
    import select

    try:
        waits = select.select([fileno()], [], [], 0)[0]
    except (OSError, ValueError):  # not a descriptor that can be asked
        return b""
    return bytes(peek(1)) if waits else b""


class _Terminated(BaseException):
    """SIGTERM came."""


def _on_sigterm() -> Callable[[], None]:
    """SIGTERM ends the program as a goodbye does, with its own status; how to undo that."""
    import signal

    def leave(_number: int, _frame: object) -> None:
        raise _Terminated

    try:
        before = signal.signal(signal.SIGTERM, leave)
    except ValueError:  # not the main thread: whoever runs that decides
        return lambda: None

    def restore() -> None:
        signal.signal(signal.SIGTERM, before)

    return restore


def _leave_now(status: int) -> None:
    """A handler that ignores its end runs on a thread, which at Python's own end may hold a lock of stderr: no waiting for that."""
    import atexit

    atexit._run_exitfuncs()
    os._exit(status)

"""An extension, as its author writes it."""

from __future__ import annotations

import os
import re
import sys
from _thread import allocate_lock  # what `threading.Lock` is, without the import
from collections.abc import Callable, Iterator
from types import FrameType
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
    from serai.sdk.ending import Ending
    from serai.sdk.serving import Serving

__all__ = ["BadExtension", "Extension"]

F = TypeVar("F", bound=Function)
LEVELS = ("info", "success", "warn", "error")
_LONGEST = 1_000_000  # seconds of a time-out: no call lives for days
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
        if not _text(name, "the name of an extension").strip():
            raise BadExtension("an extension needs a name", hint='write Extension("weather")')
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
        self._writer: stdio.Writer | None = None  # once hello is out
        self._opening = allocate_lock()
        self._early: list[Callable[[Adapter], bytes]] = []  # what was said before there was a host
        self._log: logging.Logger | None = None
        self._folder = os.getcwd()  # a host starts a program in its folder (spec zot 2.1)
        caller = sys._getframe(1)
        if _is_second_copy(caller):
            self._remarks.say("the program is imported a second time, and what that offers is not served: move `ext` to a module")
        if stdin is stdout is None and caller.f_globals.get("__name__") == "__main__" and stdio.from_host():
            stdio.take()  # a program: from here on nothing that it prints may get on the wire

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
            if schema is not None and not isinstance(schema, dict):
                raise BadExtension(f'tool "{called}": a schema is an object, not {schema!r}', hint='write {"type": "object", …}')
            tool = Tool(function, called, _text(description, "a description"), schema, _timeout(timeout, called))
            self._book.add_tool(tool)
            return function

        return _decorate(add, name, "tool")

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
            about = _text(description, "a description") or _first_line(function)
            self._book.add_command(called, about, Handler(function, f"command /{called}", "args"))
            return function

        return _decorate(add, name, "command")

    def on(self, event: str) -> Callable[[F], F]:
        """Hear of an event: `handler(event)`, one after the other in the order of the events."""

        event = _event_name(event, "on")

        def add(function: F) -> F:
            self._book.add_event(event, Handler(function, f"event {event}", "event"))
            return function

        return add

    def intercept(self, event: str) -> Callable[[F], F]:
        """Be asked before it happens: tool_call with a `ToolCall`, turn_start with its step, assistant_message with its text.

        Nothing, `True` or `Allow()` lets it pass; `False` or `Block(reason)` stops it; `Rewrite(…)` changes it. A handler that
        raises blocks. The host waits five seconds for all of it (spec zot 4.4).
        """
        event = _event_name(event, "intercept")
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
        panel = Panel(self._say, _text(id, "the id of a panel"), _text(title, "a title"), _text(footer, "a footer"))
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
        if self._writer is None:
            with self._opening:
                if self._writer is None:  # nothing goes out before hello
                    self._early.append(frame)
                    return
        assert self._adapter is not None
        line = frame(self._adapter)
        if len(line) > self._adapter.max_line:
            raise ValueError(f"this has {len(line)} bytes, and {self._adapter.dialect} carries {self._adapter.max_line}")
        self._writer.write(line)

    # -- its life -----------------------------------------------------------------------------------------------------------------

    def main(self) -> None:
        """Serve until the host says goodbye: the last statement of a program. What stands behind it runs when all has ended.

        At the end of a module that is only imported, as by a test, it does nothing.
        """
        caller = sys._getframe(1)
        if self._stdin is None and caller.f_code.co_name == "<module>" and caller.f_globals.get("__name__") != "__main__":
            return
        self.run()

    def run(self) -> None:
        """`main` without a look at who calls."""
        if self._stdin is None and os.isatty(0):
            sys.stderr.write(_BY_HAND.format(name=self.name))
            sys.exit(2)
        try:
            reading, ending = self._open(watch=True)
        except BadExtension as error:
            sys.exit(f"[{self.name}] {error}; {error.hint}")
        from serai.sdk.ending import serve

        serve(self._serving(), reading, ending)

    async def arun(self) -> None:
        """`run` inside a running event loop, which the async handlers then share."""
        from serai.sdk.ending import serve_on_loop

        reading, ending = self._open(watch=False)
        await serve_on_loop(self._serving(), reading, ending)

    def _open(self, *, watch: bool) -> tuple[stdio.Source, Ending]:
        """Say hello and all the rest, before anything else is imported (lesson L10)."""
        from serai.sdk.ending import Ending

        reading: stdio.Source = stdio.take()[0] if self._stdin is None else self._stdin
        writer = stdio.take()[1] if self._stdout is None else stdio.Writer(self._stdout)
        first = reading.waiting if isinstance(reading, stdio.Reader) else bytes
        self._adapter = adapter = adapters.load(adapters.choose(sys.argv[1:], os.environ, first))
        self.host.dialect = adapter.dialect
        ending = Ending(writer)
        if watch:
            ending.watch()
        with self._opening:  # who has something to say meanwhile says it behind
            opening = adapter.opening(self._book)
            if (longest := max(map(len, opening.splitlines(keepends=True)), default=0)) > adapter.max_line:
                text = f"one of its tools has a registration of {longest} bytes, and {adapter.dialect} carries {adapter.max_line}"
                raise BadExtension(text, hint="shorten its schema or its description")
            writer.write(opening + b"".join(self._early_frames(adapter)))
            self._writer = writer
        return reading, ending

    def _early_frames(self, adapter: Adapter) -> Iterator[bytes]:
        for early in self._early:
            if len(line := early(adapter)) <= adapter.max_line:
                yield line
            else:
                self._remarks.say(f"what was said before there was a host has {len(line)} bytes and is left out")

    def _serving(self) -> Serving:
        from serai.sdk.serving import Serving

        assert self._adapter is not None
        assert self._writer is not None
        return Serving(self._book, self._adapter, self.host, self._writer, self._remarks, self._concurrency)


def _decorate(add: Callable[[Any], Any], name: object, what: str) -> Any:
    """With and without parentheses. What is wrong is told where the author stands, not where we found it."""

    def added(function: Any) -> Any:
        try:
            return add(function)
        except BadExtension as error:
            raise error.with_traceback(None) from None

    if isinstance(name, str):
        return added
    if not callable(name):
        raise BadExtension(f"{name!r} is neither a name nor a function", hint=f'write @ext.{what} or @ext.{what}("name")')
    return added(name)


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise BadExtension(f"{what} is text, not {value!r}", hint="write it in quotes")
    return value


def _event_name(event: object, what: str) -> str:
    if not isinstance(event, str):
        raise BadExtension(f"@ext.{what} needs the name of an event", hint=f'write @ext.{what}("tool_call") above the handler')
    return event


def _named(what: str, name: object, function: Function) -> str:
    called = name if isinstance(name, str) and name else getattr(function, "__name__", "")
    if not isinstance(called, str) or not called.strip() or called == "<lambda>":
        raise BadExtension(f"a {what} needs a name: {function!r} has none", hint=f'write @ext.{what}("name")')
    if not _CALLABLE(called):
        use = "called by models" if what == "tool" else "typed"
        text = f'{what} "{called}" cannot be {use}: a name has at most 64 letters, digits, "-" and "_"'
        raise BadExtension(text, hint="rename it; the slash is not part of it" if what == "command" else "rename it")
    return called


def _first_line(function: Function) -> str:
    return (getattr(function, "__doc__", None) or "").strip().partition("\n")[0]


def _timeout(seconds: object, name: str) -> float | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= _LONGEST:
        raise BadExtension(f'tool "{name}": {seconds!r} is no time-out', hint="write seconds, as in timeout=20")
    return float(seconds)


def _is_second_copy(caller: FrameType) -> bool:
    """Whether a module that is the program already is imported under its own name as well."""
    name, file = caller.f_globals.get("__name__"), caller.f_globals.get("__file__")
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    return name not in ("__main__", "__mp_main__") and file is not None and program is not None and os.path.abspath(program) == file

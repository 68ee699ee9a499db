"""An extension, as its author writes it: `Extension`, its decorators, and the checks of names, texts and numbers."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeVar, overload

from serai.errors import BadExtension
from serai.sdk import adapters, stdio
from serai.sdk.current_call import Call, current
from serai.sdk.host import Host
from serai.sdk.registrations import Function, Handler, Ingress, Panel, RankedHandler, Registrations, Service, Tool, check_stage
from serai.sdk.stdio import OrderedOutput, StderrLog

if TYPE_CHECKING:
    import logging
    from pathlib import Path

    from serai.sdk.adapters import Adapter
    from serai.sdk.dispatcher import Dispatcher
    from serai.sdk.stdio import ProgramEnd

_LONGEST = 1_000_000  # seconds of a time-out: no call lives for days
_CALLABLE = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch  # what models call and people type (spec zot 3.2)


def decorate(add: Callable[[Any], Any], name: object, what: str) -> Any:
    """With and without parentheses. What is wrong is told where the author stands, not where we found it."""

    def apply(function: Any) -> Any:
        try:
            return add(function)
        except BadExtension as error:
            raise error.with_traceback(None) from None

    if isinstance(name, str):
        return apply
    if not callable(name):
        raise BadExtension(f"{name!r} is neither a name nor a function", hint=f'write @ext.{what} or @ext.{what}("name")')
    return apply(name)


def check_text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise BadExtension(f"{what} is text, not {value!r}", hint="write it in quotes")
    return value


def check_event_name(event: object, what: str) -> str:
    if not isinstance(event, str):
        raise BadExtension(f"@ext.{what} needs the name of an event", hint=f'write @ext.{what}("tool_call") above the handler')
    return event


def choose_name(what: str, name: object, function: Function) -> str:
    called = name if isinstance(name, str) and name else getattr(function, "__name__", "")
    if not isinstance(called, str) or not called.strip() or called == "<lambda>":
        raise BadExtension(f"a {what} needs a name: {function!r} has none", hint=f'write @ext.{what}("name")')
    if not _CALLABLE(called):
        use = "called by models" if what == "tool" else "typed"
        text = f'{what} "{called}" cannot be {use}: a name has at most 64 letters, digits, "-" and "_"'
        raise BadExtension(text, hint="rename it; the slash is not part of it" if what == "command" else "rename it")
    return called


def get_summary(function: Function) -> str:
    return (getattr(function, "__doc__", None) or "").strip().partition("\n")[0]


def check_timeout(seconds: object, name: str) -> float | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= _LONGEST:
        raise BadExtension(f'tool "{name}": {seconds!r} is no time-out', hint="write seconds, as in timeout=20")
    return float(seconds)


def check_number(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadExtension(f"{what} is a whole number, not {value!r}", hint="write it as in priority=10")
    return value


def choose_label(name: object, function: Function, kind: str, taken: Callable[[str], bool]) -> str:
    """What it is called in a host's log: as it was named, else as its function is, and with a number if that is taken."""
    if check_text(name, f"the name of a {kind}"):
        return str(name)
    base = str(getattr(function, "__name__", "")).strip("<>") or kind
    many = 1
    while taken(called := base if many == 1 else f"{base} {many}"):
        many += 1
    return called


F = TypeVar("F", bound=Function)
Schema = dict[str, Any]
_SHORTCUT = re.compile(r"(ctrl\+|alt\+|shift\+)(alt\+|shift\+)*[a-z0-9]+|f[0-9]{1,2}").fullmatch
_SAFE = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,128}(?<!\.)", re.ASCII).fullmatch


def _check_id(name: object, what: str) -> str:
    """As a manifest takes it (spec yoi 8)."""
    if not _SAFE(check_text(name, f"the name of a {what}")):
        text = f'"{name}" cannot be the name of a {what}: at most 128 letters, digits, ".", "_" and "-", and no "." at an end'
        raise BadExtension(text, hint=f'write ext.{what}("chat")')
    return str(name)


LEVELS = ("info", "success", "warn", "error")

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
        if not check_text(name, "the name of an extension").strip():
            raise BadExtension("an extension needs a name", hint='write Extension("weather")')
        if concurrency < 1:
            raise BadExtension(f"concurrency is {concurrency}", who=name, hint="1 runs one tool at a time")
        self.name = name
        self.version = str(version)
        self.host = Host()
        self._remarks = StderrLog(name)
        self._registry = Registrations(name, self.version)
        self._say = OrderedOutput(self._registry, self._remarks)
        self._concurrency = concurrency
        self._stdin, self._stdout = stdin, stdout
        self._log: logging.Logger | None = None
        self._folder = os.getcwd()  # a host starts a program in its folder (spec zot 2.1, piglet 2.1)
        self._choice = adapters.choose(sys.argv[1:], os.environ)
        if stdin is not None or stdout is not None:
            self._choice = self._choice._replace(descriptors=(0, 1))
        caller = sys._getframe(1)
        if _is_second_copy(caller):
            self._remarks.say("the program is imported a second time, and what that offers is not served: move `ext` to a module")
        wire = self._choice.descriptors
        if stdin is stdout is None and caller.f_globals.get("__name__") == "__main__" and stdio.is_started_by_host(wire):
            stdio.take_wire(wire)  # a program: from here on nothing that it prints may get on the wire

    def __repr__(self) -> str:
        return f"<extension {self.name}>"

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
    def call(self) -> Call | None:
        """What the running handler serves, whatever kind it is; nothing where nobody waits for an answer."""
        return current.get()

    @property
    def data_dir(self) -> Path:
        """Where it may keep what it wants to find again: as the host says, else its own folder. It may have to be made."""
        from pathlib import Path

        return Path(self.host.data_dir or self.host.extension_dir or self._folder)

    @property
    def config_dir(self) -> Path:
        """Where a person's settings for it are: as the host says, else `data_dir`."""
        from pathlib import Path

        return Path(self.host.config_dir) if self.host.config_dir else self.data_dir

    @property
    def cwd(self) -> Path:
        """Where the agent works, once the host has said so; until then where the program runs."""
        from pathlib import Path

        return Path(self.host.cwd or self._folder)

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
        if self._stdin is None and self._choice.descriptors == (0, 1) and os.isatty(0):
            sys.stderr.write(_BY_HAND.format(name=self.name))
            sys.exit(2)
        try:
            reading, writer, adapter, ending = self._open(watch=True)
        except BadExtension as error:
            sys.exit(f"[{self.name}] {error}; {error.hint}")
        from serai.sdk.stdio import serve

        serve(self._build_dispatcher(writer, adapter), reading, ending)

    async def arun(self) -> None:
        """`run` inside a running event loop, which the async handlers then share."""
        from serai.sdk.stdio import serve_on_loop

        reading, writer, adapter, ending = self._open(watch=False)
        await serve_on_loop(self._build_dispatcher(writer, adapter), reading, ending)

    def _open(self, *, watch: bool) -> tuple[stdio.Source, stdio.Writer, Adapter, ProgramEnd]:
        """Say hello and all the rest, before anything slow is imported; or wait for the host, if that comes first."""
        from serai.sdk.stdio import ProgramEnd

        wire = self._choice.descriptors
        reading: stdio.Source = stdio.take_wire(wire)[0] if self._stdin is None else self._stdin
        writer = stdio.take_wire(wire)[1] if self._stdout is None else stdio.Writer(self._stdout)
        if not self._choice.named and isinstance(reading, stdio.Reader) and (first := adapters.recognise(reading.peek())):
            self._choice = adapters.DialectChoice(first)
        adapter = adapters.load(self._choice.dialect)
        self.host.dialect = adapter.dialect
        ending = ProgramEnd(writer)
        if watch:
            ending.watch()
        if not adapter.host_first:
            self._say.open(adapter, writer, offer=True)
        return reading, writer, adapter, ending

    def _build_dispatcher(self, writer: stdio.Writer, adapter: Adapter) -> Dispatcher:
        from serai.sdk.dispatcher import Dispatcher

        dispatcher = Dispatcher(self._registry, adapter, self.host, writer, self._remarks, self._concurrency)
        if not self._choice.named:
            dispatcher.on_first = lambda line: self._recognise(line, dispatcher, writer)
        self._connect_services(dispatcher, adapter, writer)
        return dispatcher

    def _recognise(self, line: bytes, dispatcher: Dispatcher, writer: stdio.Writer) -> None:
        """A host that speaks first did so after we had said hello, which means nothing to it (spec piglet FIX-2)."""
        name = adapters.recognise(line)
        if name and adapters.DIALECTS[name].module:
            adapter = adapters.load(name)
            self.host.dialect = adapter.dialect
            self._say.pause()
            dispatcher.set_adapter(adapter)
            self._connect_services(dispatcher, adapter, writer)

    def _connect_services(self, dispatcher: Dispatcher, adapter: Adapter, writer: stdio.Writer) -> None:
        """What the dialect has beyond tools, commands, questions, events and panels; what it has not is told once."""
        for missing in adapter.list_unsupported(self._registry):
            self._remarks.say(f"the host speaks {adapter.dialect}: {missing}")
        if adapter.requests is None:
            return
        from serai.sdk.host_requests import OptionalRequests, PendingRequests
        from serai.sdk.services import Services

        dispatcher.line = line = PendingRequests(self._say, adapter.requests)
        line.deliver, line.remark = dispatcher.deliver, self._remarks.say
        self.host.set_services(Services(line))
        further = OptionalRequests(dispatcher, self._registry, adapter, self.host, writer)
        further.begin = lambda: self._say.open(adapter, writer, offer=False)
        further.offer = self._say.offer
        dispatcher.further = further

    # -- tools and commands -----------------------------------------------------------------------------------------------------

    @overload
    def tool(self, name: F, /) -> F: ...
    @overload
    def tool(
        self,
        name: str = "",
        *,
        description: str = "",
        schema: Schema | None = None,
        timeout: float | None = None,
        deferred: bool = False,
        prompt_hint: str = "",
        interrupt: Literal["cancel", "block"] = "cancel",
    ) -> Callable[[F], F]: ...

    def tool(
        self,
        name: Any = "",
        *,
        description: str = "",
        schema: Schema | None = None,
        timeout: float | None = None,
        deferred: bool = False,
        prompt_hint: str = "",
        interrupt: str = "cancel",
    ) -> Any:
        """`@ext.tool`, or with a name and more. The schema comes from the signature, the description from the docstring.

        With a `schema` of its own the handler gets the arguments as they came, whatever JSON that is, as its one parameter.
        `timeout` seconds after the call came the model is told so, and the call is cancelled.

        For hosts that know of it: a `deferred` tool is shown to small models without its parameters until it is activated,
        `prompt_hint` is a line in the system prompt, and `interrupt="block"` keeps it from being cancelled by a new word.
        """
        if interrupt not in ("cancel", "block"):
            raise BadExtension(f'interrupt is "cancel" or "block", not {interrupt!r}', hint='write interrupt="block"')

        def add(function: F) -> F:
            called = choose_name("tool", name, function)
            if schema is not None and not isinstance(schema, dict):
                raise BadExtension(f'tool "{called}": a schema is an object, not {schema!r}', hint='write {"type": "object", …}')
            tool = Tool(function, called, check_text(description, "a description"), schema, check_timeout(timeout, called))
            hint = check_text(prompt_hint, "a prompt hint")
            behaviour = "block" if interrupt == "block" else ""
            tool.extras = {"prompt_hint": hint, "deferred": bool(deferred), "interrupt_behavior": behaviour}
            self._registry.add_tool(tool)
            self._say.offer_later()
            return function

        return decorate(add, name, "tool")

    @overload
    def command(self, name: F, /) -> F: ...
    @overload
    def command(self, name: str = "", description: str = "", *, immediate: bool = False) -> Callable[[F], F]: ...

    def command(self, name: Any = "", description: str = "", *, immediate: bool = False) -> Any:
        """`/name` for a person to type: `handler(args)` with what stands behind it, or `handler()`.

        It returns text to show, `Prompt`, `Insert`, `Display`, `OpenPanel`, `Failed`, or nothing. An `immediate` one may run
        while the agent works, where the host can do that.
        """

        def add(function: F) -> F:
            called = choose_name("command", name, function)
            about = check_text(description, "a description") or get_summary(function)
            self._registry.add_command(called, about, Handler(function, f"command /{called}", "args"), immediate=bool(immediate))
            self._say.offer_later()
            return function

        return decorate(add, name, "command")

    def shortcut(self, key: str, description: str = "") -> Callable[[F], F]:
        """A key for a person to press, such as `ctrl+g`: `handler()` returns an action, text to show, or nothing."""
        if not _SHORTCUT(check_text(key, "a shortcut")):
            text = f'"{key}" is no shortcut: modifiers come in the order ctrl, alt, shift, then one key'
            raise BadExtension(text, hint='write @ext.shortcut("ctrl+g")')

        def add(function: F) -> F:
            about = check_text(description, "a description") or get_summary(function)
            self._registry.add_shortcut(key, about, Handler(function, f"shortcut {key}"))
            self._say.offer_later()
            return function

        return add

    # -- before and after tool calls, and around a turn -------------------------------------------------------------------------

    def intercept(self, event: str = "tool_call", *, name: str = "", priority: int = 0) -> Callable[[F], F]:
        """Be asked before it happens: tool_call with a `ToolCall`, turn_start with its step, assistant_message with its text.

        Nothing, `True` or `Allow()` lets it pass; `False` or `Block(reason)` stops it; `Rewrite(…)` changes it. A handler that
        raises blocks. The host waits five seconds for all of it (spec zot 4.4), thirty in piglet.

        There can be several of tool calls, each with a `name`: the highest `priority` is asked first.
        """
        event = check_event_name(event, "intercept")
        given = check_stage(event)

        def add(function: F) -> F:
            handler = Handler(function, f"interceptor of {event}", given)
            if event == "tool_call":
                self._add_guard(name, priority, handler, after=False)
            elif name or priority:
                text = f"an interceptor of {event} has neither name nor priority"
                raise BadExtension(text, hint="only those of tool_call have")
            else:
                self._registry.add_interceptor(event, handler)
                self._say.offer_later()
            return function

        return add

    def intercept_tool_call(self, function: F) -> F:
        return self.intercept("tool_call")(function)

    def intercept_turn_start(self, function: F) -> F:
        return self.intercept("turn_start")(function)

    def intercept_assistant_message(self, function: F) -> F:
        return self.intercept("assistant_message")(function)

    @overload
    def after(self, function: F, /) -> F: ...
    @overload
    def after(self, *, name: str = "", priority: int = 0) -> Callable[[F], F]: ...

    def after(self, function: Any = None, *, name: str = "", priority: int = 0) -> Any:
        """See what came of a tool call: `handler(done)` with a `ToolDone`. Nothing leaves it as it is.

        Text or a `ToolResult` takes the place of what the model reads, any other data that of the details; `Rewrite(None)`
        takes the details away. With the name and priority of an interceptor it is part of that.
        """

        def add(function: F) -> F:
            self._add_guard(name, priority, Handler(function, "function after tool calls", "done"), after=True)
            return function

        return add if function is None else add(function)

    def _add_guard(self, name: str, priority: int, handler: Handler, *, after: bool) -> None:
        called = check_text(name, "the name of an interceptor")
        self._registry.add_guard(called, check_number(priority, "a priority"), handler, after=after)
        self._say.offer_later()

    # -- events -----------------------------------------------------------------------------------------------------------------

    def on(self, event: str) -> Callable[[F], F]:
        """Hear of an event: `handler(event)`, one after the other in the order of the events."""
        event = check_event_name(event, "on")

        def add(function: F) -> F:
            self._registry.add_event(event, Handler(function, f"event {event}", "event"))
            self._say.offer_later()
            return function

        return add

    def on_event(self, *events: str, name: str = "", priority: int = 0) -> Callable[[F], F]:
        """Hear of events under the names that piglet has for them, such as `EventTurnEnd`; without one, of all.

        `handler(event)` returns an action for the host, or nothing. The lowest priority is called first, and the first that
        wants something done is the last.
        """
        for event in events:
            check_event_name(event, "on_event")

        def add(function: F) -> F:
            return self._add_ranked("event handler", name, priority, function, "event", events)

        return add

    def on_init(self, function: F) -> F:
        """When the host has begun: `handler()` may ask it for things, and what it offers is offered with the rest.

        Under piglet the host waits for it, and an exception is the end of the start.
        """
        self._registry.starts.append(Handler(function, "on_init"))
        return function

    # -- what a person says, and what a model reads -----------------------------------------------------------------------------

    def prompt_section(self, title: str, content: str, *, order: int = 0, tokens: int = 0) -> None:
        """A part of the system prompt; sections come by `order`. `tokens` is about how long it is, 0 means unknown."""
        if not check_text(title, "the title of a prompt section").strip():
            raise BadExtension("a prompt section needs a title", hint='write ext.prompt_section("Units", "Use metric.")')
        text = check_text(content, "the content of a prompt section")
        self._registry.add_section(title, text, check_number(order, "an order"), check_number(tokens, "a number of tokens"))
        self._say.offer_later()

    @overload
    def message_hook(self, function: F, /) -> F: ...
    @overload
    def message_hook(self, *, name: str = "", priority: int = 0) -> Callable[[F], F]: ...

    def message_hook(self, function: Any = None, *, name: str = "", priority: int = 0) -> Any:
        """Add to the system prompt of one run: `handler(message)` with what the person said returns text, or nothing."""

        def add(function: F) -> F:
            return self._add_ranked("message hook", name, priority, function, "message")

        return add if function is None else add(function)

    @overload
    def input_transformer(self, function: F, /) -> F: ...
    @overload
    def input_transformer(self, *, name: str = "", priority: int = 0) -> Callable[[F], F]: ...

    def input_transformer(self, function: Any = None, *, name: str = "", priority: int = 0) -> Any:
        """Change what a person typed: `handler(text)` returns another, nothing, or `Handled()` when no agent is needed."""

        def add(function: F) -> F:
            return self._add_ranked("input transformer", name, priority, function, "text")

        return add if function is None else add(function)

    @overload
    def compactor(self, function: F, /) -> F: ...
    @overload
    def compactor(self, *, name: str = "", threshold: int = 0) -> Callable[[F], F]: ...

    def compactor(self, function: Any = None, *, name: str = "", threshold: int = 0) -> Any:
        """Make a long conversation short: `handler(messages)`, each `{"type": …, "data": …}`, returns fewer of them, or a text.

        The host asks at `threshold` tokens; 0 leaves that to its settings.
        """

        def add(function: F) -> F:
            called = choose_label(name, function, "compactor", lambda _: False)
            self._registry.add_compactor(called, check_number(threshold, "a threshold"), Handler(function, "compactor", "messages"))
            self._say.offer_later()
            return function

        return add if function is None else add(function)

    def provider(self, api: str) -> Callable[[F], F]:
        """Serve models whose `api` is this: `handler(request, deltas)` writes what comes into `deltas`, and returns the message."""
        if not check_text(api, "the API of a provider"):
            raise BadExtension("a provider needs an API", hint='write @ext.provider("acme")')

        def add(function: F) -> F:
            self._registry.add_provider(api, Handler(function, f"provider of {api}", "request", "deltas"))
            self._say.offer_later()
            return function

        return add

    def _add_ranked(self, kind: str, name: str, priority: int, function: F, given: str, events: tuple[str, ...] = ()) -> F:
        handler = Handler(function, kind, given)
        called = choose_label(name, function, kind, lambda one: self._registry.has_ranked(kind, one))
        self._registry.add_ranked(kind, RankedHandler(called, check_number(priority, "a priority"), handler, events))
        self._say.offer_later()
        return function

    # -- what a host of yoi runs and feeds ----------------------------------------------------------------------------------------

    def service(self, name: str, *, description: str = "") -> Service:
        """Something that the host keeps running, under this name; see `Service`. Only yoi has them."""
        service = Service(_check_id(name, "service"), check_text(description, "a description"))
        self._registry.add_service(service)
        self._say.offer_later()
        return service

    def ingress(
        self, name: str, *, description: str = "", kinds: Iterable[str] = (), sources: Iterable[str] = ()
    ) -> Callable[[F], F]:
        """A way in for events: `handler(event)` with an `IngressEvent` returns data for the operator, or nothing. yoi alone has it.

        Without `kinds` all are taken; `sources` such as `websocket:wss://example.com/feed` are opened by the host.
        """
        wanted = tuple(check_text(kind, "the kind of an event") for kind in kinds)
        fed = tuple(check_text(source, "the source of an ingress") for source in sources)

        def add(function: F) -> F:
            about = check_text(description, "a description") or get_summary(function)
            handler = Handler(function, f'ingress "{name}"', "event")
            self._registry.add_ingress(Ingress(_check_id(name, "ingress"), about, wanted, fed, handler))
            self._say.offer_later()
            return function

        return add

    # -- panels -----------------------------------------------------------------------------------------------------------------

    def panel(self, id: str, *, title: str = "", footer: str = "") -> Panel:
        """A panel under this id; see `Panel`. Also a decorator above its handler for keys."""
        words = check_text(id, "the id of a panel"), check_text(title, "a title"), check_text(footer, "a footer")
        panel = Panel(self._say, *words)
        self._registry.add_panel(panel)
        return panel


def _is_second_copy(caller: FrameType) -> bool:
    """Whether a module that is the program already is imported under its own name as well."""
    name, file = caller.f_globals.get("__name__"), caller.f_globals.get("__file__")
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    return name not in ("__main__", "__mp_main__") and file is not None and program is not None and os.path.abspath(program) == file

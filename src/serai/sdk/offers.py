"""What an extension offers: the decorators of `Extension`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from serai.errors import BadExtension
from serai.sdk.book import Book, Ranked, check_stage
from serai.sdk.handlers import Function, Handler, Tool
from serai.sdk.ingress import Ingress, Service
from serai.sdk.named import checked_text, decorate, event_name, first_line, label, named, number, timeout_of
from serai.sdk.panel import Panel

if TYPE_CHECKING:
    from serai.sdk.speaking import Speaking

__all__ = ["Offers"]

F = TypeVar("F", bound=Function)
Schema = dict[str, Any]
_SHORTCUT = re.compile(r"(ctrl\+|alt\+|shift\+)(alt\+|shift\+)*[a-z0-9]+|f[0-9]{1,2}").fullmatch
_SAFE = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,128}(?<!\.)", re.ASCII).fullmatch


class Offers:
    """Each of these may also be used while the extension runs; hosts of some dialects then learn of it at once."""

    def __init__(self, book: Book, speaking: Speaking) -> None:
        self._book = book
        self._say = speaking

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
            called = named("tool", name, function)
            if schema is not None and not isinstance(schema, dict):
                raise BadExtension(f'tool "{called}": a schema is an object, not {schema!r}', hint='write {"type": "object", …}')
            tool = Tool(function, called, checked_text(description, "a description"), schema, timeout_of(timeout, called))
            hint = checked_text(prompt_hint, "a prompt hint")
            behaviour = "block" if interrupt == "block" else ""
            tool.extras = {"prompt_hint": hint, "deferred": bool(deferred), "interrupt_behavior": behaviour}
            self._book.add_tool(tool)
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
            called = named("command", name, function)
            about = checked_text(description, "a description") or first_line(function)
            self._book.add_command(called, about, Handler(function, f"command /{called}", "args"), immediate=bool(immediate))
            self._say.offer_later()
            return function

        return decorate(add, name, "command")

    def shortcut(self, key: str, description: str = "") -> Callable[[F], F]:
        """A key for a person to press, such as `ctrl+g`: `handler()` returns an action, text to show, or nothing."""
        if not _SHORTCUT(checked_text(key, "a shortcut")):
            text = f'"{key}" is no shortcut: modifiers come in the order ctrl, alt, shift, then one key'
            raise BadExtension(text, hint='write @ext.shortcut("ctrl+g")')

        def add(function: F) -> F:
            about = checked_text(description, "a description") or first_line(function)
            self._book.add_shortcut(key, about, Handler(function, f"shortcut {key}"))
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
        event = event_name(event, "intercept")
        given = check_stage(event)

        def add(function: F) -> F:
            handler = Handler(function, f"interceptor of {event}", given)
            if event == "tool_call":
                self._guard(name, priority, handler, after=False)
            elif name or priority:
                text = f"an interceptor of {event} has neither name nor priority"
                raise BadExtension(text, hint="only those of tool_call have")
            else:
                self._book.add_interceptor(event, handler)
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
            self._guard(name, priority, Handler(function, "function after tool calls", "done"), after=True)
            return function

        return add if function is None else add(function)

    def _guard(self, name: str, priority: int, handler: Handler, *, after: bool) -> None:
        called = checked_text(name, "the name of an interceptor")
        self._book.add_guard(called, number(priority, "a priority"), handler, after=after)
        self._say.offer_later()

    # -- events -----------------------------------------------------------------------------------------------------------------

    def on(self, event: str) -> Callable[[F], F]:
        """Hear of an event: `handler(event)`, one after the other in the order of the events."""
        event = event_name(event, "on")

        def add(function: F) -> F:
            self._book.add_event(event, Handler(function, f"event {event}", "event"))
            self._say.offer_later()
            return function

        return add

    def on_event(self, *events: str, name: str = "", priority: int = 0) -> Callable[[F], F]:
        """Hear of events under the names that piglet has for them, such as `EventTurnEnd`; without one, of all.

        `handler(event)` returns an action for the host, or nothing. The lowest priority is called first, and the first that
        wants something done is the last.
        """
        for event in events:
            event_name(event, "on_event")

        def add(function: F) -> F:
            return self._ranked("event handler", name, priority, function, "event", events)

        return add

    def on_init(self, function: F) -> F:
        """When the host has begun: `handler()` may ask it for things, and what it offers is offered with the rest.

        Under piglet the host waits for it, and an exception is the end of the start.
        """
        self._book.starts.append(Handler(function, "on_init"))
        return function

    # -- what a person says, and what a model reads -----------------------------------------------------------------------------

    def prompt_section(self, title: str, content: str, *, order: int = 0, tokens: int = 0) -> None:
        """A part of the system prompt; sections come by `order`. `tokens` is about how long it is, 0 means unknown."""
        if not checked_text(title, "the title of a prompt section").strip():
            raise BadExtension("a prompt section needs a title", hint='write ext.prompt_section("Units", "Use metric.")')
        text = checked_text(content, "the content of a prompt section")
        self._book.add_section(title, text, number(order, "an order"), number(tokens, "a number of tokens"))
        self._say.offer_later()

    @overload
    def message_hook(self, function: F, /) -> F: ...
    @overload
    def message_hook(self, *, name: str = "", priority: int = 0) -> Callable[[F], F]: ...

    def message_hook(self, function: Any = None, *, name: str = "", priority: int = 0) -> Any:
        """Add to the system prompt of one run: `handler(message)` with what the person said returns text, or nothing."""

        def add(function: F) -> F:
            return self._ranked("message hook", name, priority, function, "message")

        return add if function is None else add(function)

    @overload
    def input_transformer(self, function: F, /) -> F: ...
    @overload
    def input_transformer(self, *, name: str = "", priority: int = 0) -> Callable[[F], F]: ...

    def input_transformer(self, function: Any = None, *, name: str = "", priority: int = 0) -> Any:
        """Change what a person typed: `handler(text)` returns another, nothing, or `Handled()` when no agent is needed."""

        def add(function: F) -> F:
            return self._ranked("input transformer", name, priority, function, "text")

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
            called = label(name, function, "compactor", lambda _: False)
            self._book.add_compactor(called, number(threshold, "a threshold"), Handler(function, "compactor", "messages"))
            self._say.offer_later()
            return function

        return add if function is None else add(function)

    def provider(self, api: str) -> Callable[[F], F]:
        """Serve models whose `api` is this: `handler(request, deltas)` writes what comes into `deltas`, and returns the message."""
        if not checked_text(api, "the API of a provider"):
            raise BadExtension("a provider needs an API", hint='write @ext.provider("acme")')

        def add(function: F) -> F:
            self._book.add_provider(api, Handler(function, f"provider of {api}", "request", "deltas"))
            self._say.offer_later()
            return function

        return add

    def _ranked(self, kind: str, name: str, priority: int, function: F, given: str, events: tuple[str, ...] = ()) -> F:
        handler = Handler(function, kind, given)
        called = label(name, function, kind, lambda one: self._book.has_ranked(kind, one))
        self._book.add_ranked(kind, Ranked(called, number(priority, "a priority"), handler, events))
        self._say.offer_later()
        return function

    # -- what a host of yoi runs and feeds ----------------------------------------------------------------------------------------

    def service(self, name: str, *, description: str = "") -> Service:
        """Something that the host keeps running, under this name; see `Service`. Only yoi has them."""
        service = Service(_safe_id(name, "service"), checked_text(description, "a description"))
        self._book.add_service(service)
        self._say.offer_later()
        return service

    def ingress(
        self, name: str, *, description: str = "", kinds: Iterable[str] = (), sources: Iterable[str] = ()
    ) -> Callable[[F], F]:
        """A way in for events: `handler(event)` with an `IngressEvent` returns data for the operator, or nothing. yoi alone has it.

        Without `kinds` all are taken; `sources` such as `websocket:wss://example.com/feed` are opened by the host.
        """
        wanted = tuple(checked_text(kind, "the kind of an event") for kind in kinds)
        fed = tuple(checked_text(source, "the source of an ingress") for source in sources)

        def add(function: F) -> F:
            about = checked_text(description, "a description") or first_line(function)
            handler = Handler(function, f'ingress "{name}"', "event")
            self._book.add_ingress(Ingress(_safe_id(name, "ingress"), about, wanted, fed, handler))
            self._say.offer_later()
            return function

        return add

    # -- panels -----------------------------------------------------------------------------------------------------------------

    def panel(self, id: str, *, title: str = "", footer: str = "") -> Panel:
        """A panel under this id; see `Panel`. Also a decorator above its handler for keys."""
        words = checked_text(id, "the id of a panel"), checked_text(title, "a title"), checked_text(footer, "a footer")
        panel = Panel(self._say, *words)
        self._book.add_panel(panel)
        return panel


def _safe_id(name: object, what: str) -> str:
    """As a manifest takes it (spec yoi 8)."""
    if not _SAFE(checked_text(name, f"the name of a {what}")):
        text = f'"{name}" cannot be the name of a {what}: at most 128 letters, digits, ".", "_" and "-", and no "." at an end'
        raise BadExtension(text, hint=f'write ext.{what}("chat")')
    return str(name)

"""Everything that an extension offers, in the order it was written. Two things under one name are an error that says where both
are.

A `Handler` is an author's function, how it is called and where it stands; what is wrong with one is reported when it is imported.
`Service` and `Ingress` are what a host of the dialect yoi runs and feeds with events (spec yoi 8.3, 8.4). A `Panel` is text that
the host shows, and the keys that are pressed while it is open (spec zot 4.6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from serai.errors import BadExtension
from serai.sdk.answers import OpenPanel

if TYPE_CHECKING:
    from serai.sdk.adapters import Adapter

Function = Callable[..., Any]

_COROUTINE = 0x80  # CO_COROUTINE, without the import of inspect
_VARARGS = 0x04


class Handler:
    """A function that is called with at most so many arguments, and gets as many of them as it takes."""

    __slots__ = ("count", "function", "is_async", "where")

    def __init__(self, function: Function, what: str, *offered: str) -> None:
        if not callable(function):
            raise BadExtension(f"{what}: {function!r} is no function", hint="put the decorator above a function")
        least, most = _count_positional(function, what)
        if least > len(offered):
            given = f"({', '.join(offered)})" if offered else "nothing"
            text = f"{what}: its handler in {find_place(function)} needs {least} arguments and is given {given}"
            raise BadExtension(text, hint=f"write it as `def {_get_name(function)}({', '.join(offered)})`, or with fewer")
        self.function = function
        self.count = min(most, len(offered))
        self.is_async = is_async(function)
        self.where = find_place(function)

    def select(self, *offered: Any) -> tuple[Any, ...]:
        return offered[: self.count]


class Tool:
    """A tool and what serves it. `bind` makes keyword arguments of what a model sent, or is None: then it gets that as it is."""

    __slots__ = ("bind", "call", "description", "extras", "function", "given", "is_async", "name", "schema", "timeout", "where")

    def __init__(
        self, function: Function, name: str, description: str, schema: dict[str, Any] | None, timeout: float | None
    ) -> None:
        self.function, self.name, self.timeout = function, name, timeout
        self.is_async, self.where = is_async(function), find_place(function)
        self.extras: dict[str, Any] = {}  # what only some dialects can tell of it
        self.call = ""  # the parameter that wants the running call
        self.bind: Callable[[object], dict[str, Any]] | None = None
        self.given: Callable[..., tuple[Any, ...]] = lambda *offered: offered
        if schema is None:
            from serai.sdk.schema.parameters import derive_parameters

            derived = derive_parameters(function, name)
            self.schema, self.bind, self.call = derived.schema, derived.bind, derived.call
            self.description = description or derived.description
        else:
            self.given = Handler(function, f'tool "{name}" with a schema of its own', "args").select
            self.schema = schema
            self.description = description or (getattr(function, "__doc__", None) or "").strip()


def is_async(function: Function) -> bool:
    """A function in disguise may still return something to wait for: that is looked at when it has."""
    code = getattr(_unwrap(function), "__code__", None)
    return code is not None and bool(code.co_flags & _COROUTINE)


def find_place(function: Function) -> str:
    code = getattr(_unwrap(function), "__code__", None)
    if code is None:
        return repr(function)
    return f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}"


def _unwrap(function: Any) -> Any:
    """The function inside a partial, a method or an object that can be called."""
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    function = getattr(function, "__func__", function)
    return function if hasattr(function, "__code__") else getattr(type(function), "__call__", function)  # noqa: B004


def _get_name(function: Function) -> str:
    name = getattr(function, "__name__", "handler")
    return str(name) if str(name).isidentifier() else "handler"


def _count_positional(function: Function, what: str) -> tuple[int, int]:
    """How many positional arguments it needs, and how many it can take."""
    code = getattr(function, "__code__", None)
    if code is None or hasattr(function, "__wrapped__"):
        return _inspect_positional(function, what)
    if code.co_kwonlyargcount > len(function.__kwdefaults__ or {}):
        raise BadExtension(f"{what}: its handler in {find_place(function)} has keyword-only parameters", hint="give them defaults")
    most = code.co_argcount - hasattr(function, "__func__")  # a method has its object already
    least = most - len(function.__defaults__ or ())
    return least, 99 if code.co_flags & _VARARGS else most


def _inspect_positional(function: Function, what: str) -> tuple[int, int]:
    import inspect

    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise BadExtension(f"{what}: how {function!r} is called cannot be told ({error})", hint="wrap it in a function") from None
    by_place = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    least = sum(one.default is one.empty for one in by_place)
    return least, 99 if any(one.kind is one.VAR_POSITIONAL for one in parameters) else len(by_place)


EVENTS = ("session_start", "turn_start", "turn_end", "tool_call", "assistant_message")
STAGES = {"tool_call": "call", "turn_start": "step", "assistant_message": "text"}  # and what its interceptor is given


class Guard:
    """An interceptor of tool calls: what is asked before, and what sees the result afterwards. One name has one of each."""

    __slots__ = ("after", "before", "name", "priority")

    def __init__(self, name: str, priority: int) -> None:
        self.name, self.priority = name, priority
        self.before: Handler | None = None
        self.after: Handler | None = None


class RankedHandler(NamedTuple):
    """A handler with its place among others of its kind; `events` are those that it wants, none means all."""

    name: str
    priority: int
    handler: Handler
    events: tuple[str, ...] = ()


class Registration(NamedTuple):
    """One thing that was offered, for a dialect that registers them in the order in which they were written."""

    kind: str
    name: str
    about: dict[str, Any]


class Registrations:
    def __init__(self, name: str, version: str) -> None:
        self.name = name
        self.version = version
        self.offers: list[Registration] = []
        self.tools: dict[str, Tool] = {}
        self.registered: list[tuple[str, str]] = []  # every use of `command`: name and description (spec zot 6)
        self.commands: dict[str, Handler] = {}  # the last handler of a name serves it
        self.events: dict[str, Handler] = {}
        self.interceptors: dict[str, Handler] = {}
        self.guards: dict[str, Guard] = {}  # the interceptors of tool calls, by name
        self.panels: dict[str, Panel] = {}
        # What zot has no word for (spec piglet 4).
        self.starts: list[Handler] = []
        self.listeners: list[RankedHandler] = []
        self.shortcuts: dict[str, Handler] = {}
        self.message_hooks: list[RankedHandler] = []
        self.transformers: list[RankedHandler] = []
        self.compactor: Handler | None = None
        self.providers: dict[str, Handler] = {}
        # What yoi alone has (spec yoi 8.3, 8.4).
        self.services: dict[str, Service] = {}
        self.ingresses: dict[str, Ingress] = {}

    def add_tool(self, tool: Tool) -> None:
        if (other := self.tools.get(tool.name)) is not None:
            raise _clash(f'tools are named "{tool.name}"', other.where, tool.where, "rename one of them")
        self.tools[tool.name] = tool
        about = {"description": tool.description, "parameters": tool.schema, **tool.extras}
        self.offers.append(Registration("tool", tool.name, about))

    def add_command(self, name: str, description: str, handler: Handler, *, immediate: bool = False) -> None:
        self.registered.append((name, description))
        self.commands[name] = handler
        self.offers.append(Registration("command", name, {"description": description, "immediate": immediate}))

    def add_section(self, title: str, content: str, order: int, tokens: int) -> None:
        self.offers.append(Registration("prompt section", title, {"content": content, "order": order, "token_hint": tokens}))

    def add_event(self, event: str, handler: Handler) -> None:
        if event not in EVENTS:
            raise _build_unknown_error("event", event, EVENTS)
        _set(self.events, event, handler, "handlers are for the event")
        self.offers.append(Registration("event", event, {}))

    def add_interceptor(self, stage: str, handler: Handler) -> None:
        _set(self.interceptors, stage, handler, "interceptors are for")
        self.offers.append(Registration("interceptor", stage, {}))

    def add_guard(self, name: str, priority: int, handler: Handler, *, after: bool) -> None:
        guard = self.guards.get(name)
        if guard is None:
            guard = self.guards[name] = Guard(name, priority)
            self.offers.append(Registration("guard", name, {"priority": priority}))
        other = guard.after if after else guard.before
        if other is not None:
            what = "interceptors are for tool_call" if not after else "functions see what came of tool calls"
            raise _clash(f'{what} under the name "{name}"' if name else what, other.where, handler.where, "give one a name")
        if guard.priority != priority:
            text = f'the interceptor "{name}" has two priorities, {guard.priority} and {priority}'
            raise BadExtension(text, hint="write the same at both")
        if after:
            guard.after = handler
        else:
            guard.before = handler
            self.interceptors.setdefault("tool_call", handler)

    def sort_guards(self) -> list[Guard]:
        """In the order in which hosts ask: the highest priority first (spec piglet 4)."""
        return sorted(self.guards.values(), key=lambda guard: -guard.priority)

    def find_interceptors(self, stage: str, guard: str) -> list[Handler]:
        """Whom a question is for. Guards go by their name, where hosts know it; without one all are asked (spec piglet 8.1)."""
        if stage != "tool_call":
            return [self.interceptors[stage]] if stage in self.interceptors else []
        return [found.before for found in self.find_guards(guard) if found.before is not None]

    def find_guards(self, name: str) -> list[Guard]:
        """Empty means all; one without a name of its own has the extension's."""
        return [guard for guard in self.sort_guards() if not name or name == (guard.name or self.name)]

    def add_ranked(self, kind: str, ranked: RankedHandler) -> None:
        """An event handler, a message hook or an input transformer: the lowest priority first (spec piglet 4)."""
        among = self._get_ranked(kind)
        for other in among:
            if other.name == ranked.name:
                text = f'{kind}s are named "{ranked.name}"'
                raise _clash(text, other.handler.where, ranked.handler.where, "give one another name")
        among.append(ranked)
        among.sort(key=lambda one: one.priority)
        events = {"events": list(ranked.events)} if ranked.events else {}
        self.offers.append(Registration(kind, ranked.name, {"priority": ranked.priority, **events}))

    def has_ranked(self, kind: str, name: str) -> bool:
        return any(other.name == name for other in self._get_ranked(kind))

    def _get_ranked(self, kind: str) -> list[RankedHandler]:
        return {"event handler": self.listeners, "message hook": self.message_hooks, "input transformer": self.transformers}[kind]

    def add_shortcut(self, key: str, description: str, handler: Handler) -> None:
        _set(self.shortcuts, key, handler, "handlers are for the shortcut")
        self.offers.append(Registration("shortcut", key, {"description": description}))

    def add_compactor(self, name: str, threshold: int, handler: Handler) -> None:
        if self.compactor is not None:
            raise _clash("functions compact the conversation", self.compactor.where, handler.where, "a host takes one: choose")
        self.compactor = handler
        self.offers.append(Registration("compactor", name, {"threshold": threshold}))

    def add_provider(self, api: str, handler: Handler) -> None:
        _set(self.providers, api, handler, "providers are for the API")
        self.offers.append(Registration("provider", api, {}))

    def add_service(self, service: Service) -> None:
        if service.name in self.services:
            raise BadExtension(f'two services are named "{service.name}"', hint="keep what `ext.service` gave, and use that twice")
        self.services[service.name] = service
        self.offers.append(Registration("service", service.name, {"description": service.description}))

    def add_ingress(self, ingress: Ingress) -> None:
        if (other := self.ingresses.get(ingress.name)) is not None:
            raise _clash(f'ingresses are named "{ingress.name}"', other.handler.where, ingress.handler.where, "rename one of them")
        self.ingresses[ingress.name] = ingress
        about = {"description": ingress.description, "event_kinds": list(ingress.kinds), "sources": list(ingress.sources)}
        self.offers.append(Registration("ingress", ingress.name, about))

    def add_panel(self, panel: Panel) -> None:
        if panel.id in self.panels:
            raise BadExtension(f'two panels have the id "{panel.id}"', hint="keep what `ext.panel` gave, and use that twice")
        self.panels[panel.id] = panel

    def handlers(self) -> list[Handler | Tool]:
        panels = [handler for panel in self.panels.values() for handler in panel.handlers()]
        guards = [handler for guard in self.guards.values() for handler in (guard.before, guard.after) if handler is not None]
        ranked = [one.handler for one in (*self.listeners, *self.message_hooks, *self.transformers)]
        single = [self.compactor] if self.compactor is not None else []
        named = (self.commands, self.events, self.interceptors, self.shortcuts, self.providers)
        by_name = [handler for handlers in named for handler in handlers.values()]
        fed = [ingress.handler for ingress in self.ingresses.values()]
        served = [handler for service in self.services.values() for handler in service.handlers()]
        return [*self.tools.values(), *by_name, *guards, *ranked, *single, *self.starts, *panels, *served, *fed]


def check_stage(stage: str) -> str:
    """What an interceptor of that stage is given."""
    if stage not in STAGES:
        raise _build_unknown_error("question", stage, tuple(STAGES))
    return STAGES[stage]


def _set(handlers: dict[str, Handler], name: str, handler: Handler, what: str) -> None:
    if (other := handlers.get(name)) is not None:
        raise _clash(f"{what} {name}", other.where, handler.where, "let one of them call the other")
    handlers[name] = handler


def _clash(what: str, one: str, other: str, hint: str) -> BadExtension:
    return BadExtension(f"two {what}: the one in {one} and the one in {other}", hint=hint)


def _build_unknown_error(what: str, name: str, known: tuple[str, ...]) -> BadExtension:
    return BadExtension(f'there is no {what} "{name}"', hint=f"there are {', '.join(known)}")


F = TypeVar("F", bound=Function)


class Service:
    """Made by `ext.service`. Its handlers are called when the host starts it, asks how it is, and stops it."""

    def __init__(self, name: str, description: str) -> None:
        self.name, self.description = name, description
        self.on_start: Handler | None = None
        self.on_status: Handler | None = None
        self.on_stop: Handler | None = None

    def __repr__(self) -> str:
        return f"<service {self.name}>"

    def start(self, function: F) -> F:
        """`handler(config)`, with what the person configured for this plugin, or None. An exception is the end of the start."""
        self.on_start = self._build_handler(function, self.on_start, "start", "config")
        return function

    def status(self, function: F) -> F:
        """`handler()` returns data for the operator. An exception means that it has failed."""
        self.on_status = self._build_handler(function, self.on_status, "status")
        return function

    def stop(self, function: F) -> F:
        """`handler()`: it has to end."""
        self.on_stop = self._build_handler(function, self.on_stop, "stop")
        return function

    def handlers(self) -> list[Handler]:
        return [handler for handler in (self.on_start, self.on_status, self.on_stop) if handler is not None]

    def _build_handler(self, function: Function, other: Handler | None, what: str, *offered: str) -> Handler:
        handler = Handler(function, f'service "{self.name}", {what}', *offered)
        if other is not None:
            text = f'service "{self.name}" has two handlers for its {what}: the one in {other.where} and the one in {handler.where}'
            raise BadExtension(text, hint="let one of them call the other")
        return handler


class Ingress:
    """A way in for events, and who takes them."""

    __slots__ = ("description", "handler", "kinds", "name", "sources")

    def __init__(self, name: str, description: str, kinds: tuple[str, ...], sources: tuple[str, ...], handler: Handler) -> None:
        self.name, self.description = name, description
        self.kinds, self.sources = kinds, sources
        self.handler = handler


class IngressEvent:
    """What came in. What its methods ask for, the host does when the handler has returned: all of it, or nothing.

    `kind` is `websocket_text` for what a websocket said; `text` and `url` are then what was said, and where.
    """

    __slots__ = ("attempt", "commands", "correlation_id", "created_at", "ingress_name", "kind", "payload", "source")

    def __init__(
        self,
        kind: str,
        source: str,
        ingress_name: str = "",
        payload: Any = None,
        created_at: str = "",
        attempt: int = 1,
        correlation_id: str = "",
    ) -> None:
        self.kind, self.source, self.ingress_name, self.payload = kind, source, ingress_name, payload
        self.created_at, self.attempt, self.correlation_id = created_at, attempt, correlation_id
        self.commands: list[tuple[str, str, dict[str, Any]]] = []  # id, kind, payload

    def __repr__(self) -> str:
        return f"<event {self.kind} from {self.source}>"

    @property
    def text(self) -> str:
        """What a websocket said; else nothing."""
        found = self.payload.get("text") if isinstance(self.payload, dict) else None
        return found if isinstance(found, str) else ""

    @property
    def url(self) -> str:
        """Where an answer goes: the source of a websocket's event (spec yoi 20)."""
        return self.source.removeprefix("websocket:")

    def reply(self, text: str) -> None:
        """Say this on the websocket that the event came from."""
        self.send(self.url, text)

    def send(self, url: str, text: str) -> None:
        """Say this on the websocket of that URL, which is one of the plugin's sources."""
        if not isinstance(text, str):
            raise TypeError(f"what goes over a websocket is text, not {type(text).__name__}")
        self._add_command("websocket_send", {"url": url, "text": text})

    def request(self, method: str, url: str, *, headers: dict[str, str] | None = None, body: str | None = None) -> None:
        """Have this HTTP request made; hosts may not do that yet, and say so to the operator alone."""
        named = [{"name": name, "value": value} for name, value in (headers or {}).items()]
        self._add_command("host_request_dispatch", {"method": method, "url": url, "headers": named, "body": body})

    def report(self, message: str = "", **status: Any) -> None:
        """A word for the operator, and a status that takes the place of the plugin's own."""
        payload: dict[str, Any] = {"message": message} if message else {}
        self._add_command("diagnostic_status_update", payload | ({"status": status} if status else {}))

    def _add_command(self, kind: str, payload: dict[str, Any]) -> None:
        self.commands.append((f"{len(self.commands) + 1}", kind, payload))


class Panel:
    """Made by `ext.panel`. It opens when a command returns `panel.open(…)`; after that it is drawn and closed at any time.

    Keys, sizes and the end come to their handlers one after the other, in the order in which they happened.
    """

    def __init__(self, say: Callable[[Callable[[Adapter], bytes]], None], id: str, title: str, footer: str) -> None:
        self._say = say
        self.id, self.title, self.footer = id, title, footer
        self.on_key: Handler | None = None
        self.on_resize: Handler | None = None
        self.on_close: Handler | None = None

    def __repr__(self) -> str:
        return f"<panel {self.id}>"

    def open(self, lines: Iterable[str] = (), *, title: str = "", footer: str | None = None) -> OpenPanel:
        """The answer of a command that opens it."""
        return OpenPanel(self.id, title or self.title, _split_lines(lines), self.footer if footer is None else footer)

    def render(self, lines: Iterable[str] = (), *, title: str = "", footer: str | None = None) -> None:
        """What it shows now: always all of it. Without a title it keeps its own, without a footer that of `ext.panel`."""
        shown = _split_lines(lines)
        last = self.footer if footer is None else footer
        for text in (title, last):
            if not isinstance(text, str):
                raise TypeError(f"a panel's title and footer are text, not {type(text).__name__}")
        self._say(lambda adapter: adapter.render(self.id, title, shown, last))

    def close(self) -> None:
        """Close it; its `closed` handler is for when somebody else does."""
        self._say(lambda adapter: adapter.close_panel(self.id))

    # -- handlers ---------------------------------------------------------------------------------------------------------------

    def __call__(self, function: Function) -> Panel:
        """`@ext.panel("id")` above a handler for keys; the name is then the panel's."""
        self.key(function)
        return self

    def key(self, function: F) -> F:
        """`handler(key, text)`: up, down, left, right, enter, tab, …, and `rune` with a character as text."""
        self.on_key = self._build_handler(function, self.on_key, "key", "key", "text")
        return function

    def resized(self, function: F) -> F:
        """`handler(width, height)`, from hosts that tell."""
        self.on_resize = self._build_handler(function, self.on_resize, "size", "width", "height")
        return function

    def closed(self, function: F) -> F:
        """`handler()`: the person or the host closed it."""
        self.on_close = self._build_handler(function, self.on_close, "end")
        return function

    def handlers(self) -> list[Handler]:
        return [handler for handler in (self.on_key, self.on_resize, self.on_close) if handler is not None]

    def _build_handler(self, function: Function, other: Handler | None, what: str, *offered: str) -> Handler:
        handler = Handler(function, f'panel "{self.id}", {what}', *offered)
        if other is not None:
            text = f'panel "{self.id}" has two handlers for its {what}: the one in {other.where} and the one in {handler.where}'
            raise BadExtension(text, hint="let one of them call the other")
        return handler


def _split_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """A text is its lines; the host wraps nothing and cuts nothing."""
    shown = tuple(lines.split("\n")) if isinstance(lines, str) else tuple(lines)
    for line in shown:
        if not isinstance(line, str):
            raise TypeError(f"a panel's lines are text, not {type(line).__name__}")
    return shown

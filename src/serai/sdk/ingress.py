"""Services and ingresses: what a host of the dialect yoi runs and feeds with events (spec yoi 8.3, 8.4)."""

from __future__ import annotations

from typing import Any, TypeVar

from serai.errors import BadExtension
from serai.sdk.handlers import Function, Handler

__all__ = ["Ingress", "IngressEvent", "Service"]

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
        self.on_start = self._handler(function, self.on_start, "start", "config")
        return function

    def status(self, function: F) -> F:
        """`handler()` returns data for the operator. An exception means that it has failed."""
        self.on_status = self._handler(function, self.on_status, "status")
        return function

    def stop(self, function: F) -> F:
        """`handler()`: it has to end."""
        self.on_stop = self._handler(function, self.on_stop, "stop")
        return function

    def handlers(self) -> list[Handler]:
        return [handler for handler in (self.on_start, self.on_status, self.on_stop) if handler is not None]

    def _handler(self, function: Function, other: Handler | None, what: str, *offered: str) -> Handler:
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
        self._command("websocket_send", {"url": url, "text": text})

    def request(self, method: str, url: str, *, headers: dict[str, str] | None = None, body: str | None = None) -> None:
        """Have this HTTP request made; hosts may not do that yet, and say so to the operator alone."""
        named = [{"name": name, "value": value} for name, value in (headers or {}).items()]
        self._command("host_request_dispatch", {"method": method, "url": url, "headers": named, "body": body})

    def report(self, message: str = "", **status: Any) -> None:
        """A word for the operator, and a status that takes the place of the plugin's own."""
        payload: dict[str, Any] = {"message": message} if message else {}
        self._command("diagnostic_status_update", payload | ({"status": status} if status else {}))

    def _command(self, kind: str, payload: dict[str, Any]) -> None:
        self.commands.append((f"{len(self.commands) + 1}", kind, payload))

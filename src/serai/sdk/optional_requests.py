"""Requests to what only some dialects have: the beginning, results, events, shortcuts, message hooks, input, compaction, models.

Each runs on a thread; async handlers among them run on the event loop, and the thread waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from serai.sdk import events
from serai.sdk.adapters.piglet import EVENTS, Piglet
from serai.sdk.answers import Handled, Image, Rewrite, Text, ToolResult
from serai.sdk.handler_results import NoHandler, Returned, acted, kind_of
from serai.sdk.host_records import Deltas, StreamRequest, folded, message_of
from serai.sdk.registrations import Handler
from serai.sdk.workers import Workers

if TYPE_CHECKING:
    from serai.sdk.adapters import Adapter
    from serai.sdk.dispatcher import Dispatcher
    from serai.sdk.host import Host
    from serai.sdk.registrations import Registrations
    from serai.sdk.stdio import Writer

_MOST = 32  # at once
_STOPS = {"stop": "end", "toolUse": "tool_use"}  # zot's words for why a turn ended; the others are the same


class OptionalRequests:
    def __init__(self, serving: Dispatcher, book: Registrations, adapter: Adapter, host: Host, writer: Writer) -> None:
        assert isinstance(adapter, Piglet)
        self._serving, self._book, self._adapter, self._host, self._writer = serving, book, adapter, host, writer
        self.workers = Workers("further", _MOST)
        self.begin: Callable[[], None] = lambda: None  # the host has spoken: now it can be spoken to
        self.offer: Callable[[], None] = lambda: None  # say all that is offered
        self._begun = False
        self._step = 0

    def take(self, item: events.Heard) -> None:
        match item:
            case events.HandshakeStarted():
                self._begin(item)
            case events.UnsupportedRequest(id=id, code=code, why=why):
                self._serving.soon(lambda: self._writer.write(self._adapter.failure(id, code, why)))
            case events.OptionalRequest():
                self._serve(item)

    def _begin(self, item: events.HandshakeStarted) -> None:
        """The host waits for the answer: first what the author wants done at the start, then the offers (spec piglet 3)."""
        work = self._serving.work("request", item.id, "initialize")
        if work is None:
            return
        first, self._begun = not self._begun, True
        about = {"name": self._book.name, "version": self._book.version}
        if not first:
            self._serving.soon(lambda: work.settle(about))
            return
        self._host.welcome(item.about)

        def run() -> dict[str, str]:
            self.begin()
            for start in self._book.starts:
                self._serving.called(start)
            self.offer()
            self._serving.happened(events.Event("session_start", {}))  # now, for with the answer other events may come
            return about

        self._serving.put(work, run, self.workers)

    def _serve(self, item: events.OptionalRequest) -> None:
        work = self._serving.work("request", item.id, f"{item.kind} {item.name}".strip())
        if work is None:
            return
        kinds: dict[str, Callable[[str, Any], dict[str, Any]]] = {
            "after": self._after,
            "event": self._event,
            "shortcut": self._shortcut,
            "message": self._message,
            "input": self._input,
            "compact": self._compact,
            "stream": self._stream,
        }
        serve = kinds[item.kind]
        if item.kind == "event":
            self._serving.in_order(work, lambda: serve(item.name, item.given))
        else:
            self._serving.put(work, lambda: serve(item.name, item.given), self.workers)

    # -- what came of a tool call -------------------------------------------------------------------------------------------------

    def _after(self, name: str, done: events.ToolDone) -> dict[str, Any]:
        """Nobody's word leaves it as it is; what is not sent back would be gone (spec piglet 5.3)."""
        for guard in self._book.named_guards(name):
            if guard.after is not None and (value := self._serving.called(guard.after, done)) is not None:
                done = done._replace(details=self._details(value))
        return {"details": done.details}

    def _details(self, value: object) -> Any:
        if isinstance(value, Rewrite):
            return value.value
        if isinstance(value, str | Text | Image):
            value = ToolResult(value)
        if isinstance(value, ToolResult):
            return self._adapter.content(value)
        return value

    # -- events and shortcuts -----------------------------------------------------------------------------------------------------

    def _event(self, type: str, data: Any) -> dict[str, Any]:
        """The first handler that wants something done is the last that is called (spec piglet 8.1)."""
        if (event := self._as_zot(type, data)) is not None and (handler := self._book.events.get(event.name)) is not None:
            self._serving.called(handler, event)
        event = events.Event(type, data if isinstance(data, dict) else {})
        for listener in self._book.listeners:
            if listener.events and type not in listener.events:
                continue
            if (action := acted(self._serving.called(listener.handler, event))) is not None:
                return {"action": action}
        return {}

    def _as_zot(self, type: str, data: Any) -> events.Event | None:
        """The event of `ext.on` that this is."""
        if type == "EventAgentStart":
            self._step = 0
            return None
        name = next((name for name, types in EVENTS.items() if type in types), "")
        match name:
            case "turn_start":
                self._step += 1
                return events.Event(name, {"step": self._step})
            case "turn_end":
                told = folded(folded(data, ("Assistant",)).get("Assistant"), ("stopReason", "error"))
                stop = str(told.get("stopReason") or "")
                return events.Event(name, {"stop": _STOPS.get(stop, stop), "error": told.get("error") or ""})
            case "tool_call":
                call = folded(data, ("ToolCallID", "ToolName", "Args"))
                members = {"tool_id": call.get("ToolCallID"), "tool_name": call.get("ToolName"), "tool_args": call.get("Args")}
                return events.Event(name, members)
            case "assistant_message":
                content = folded(folded(data, ("Message",)).get("Message"), ("content",)).get("content")
                blocks = [folded(one, ("text",)).get("text") for one in content] if isinstance(content, list) else [content]
                return events.Event(name, {"text": "\n".join(text for text in blocks if isinstance(text, str))})
        return None

    def _shortcut(self, key: str, _: object) -> dict[str, Any]:
        handler = self._book.shortcuts.get(key)
        if handler is None:
            raise NoHandler("shortcut", key)
        return {"action": acted(self._serving.called(handler))}

    # -- what a person says -------------------------------------------------------------------------------------------------------

    def _message(self, _: str, message: str) -> dict[str, Any]:
        texts = [self._text(hook.handler, message, "message hook") for hook in self._book.message_hooks]
        return {"injection": "\n".join(text for text in texts if text)}

    def _text(self, handler: Handler, given: str, what: str) -> str:
        value = self._serving.called(handler, given)
        if value is not None and not isinstance(value, str):
            raise Returned(f"it returned {kind_of(value)}; a {what} returns text, or nothing")
        return value or ""

    def _input(self, _: str, text: str) -> dict[str, Any]:
        for transformer in self._book.transformers:
            value = self._serving.called(transformer.handler, text)
            if isinstance(value, Handled):
                return {"output": text, "handled": True}
            if value is not None and not isinstance(value, str):
                raise Returned(f"it returned {kind_of(value)}; an input transformer returns text, Handled, or nothing")
            text = text if value is None else value
        return {"output": text, "handled": False}

    # -- models -------------------------------------------------------------------------------------------------------------------

    def _compact(self, _: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """A text is a summary in place of all; nothing means that there is nothing to compact (spec piglet 5.8)."""
        if self._book.compactor is None:
            raise NoHandler("compactor", "")
        value = self._serving.called(self._book.compactor, messages)
        if isinstance(value, str):
            value = [{"type": "user", "data": {"content": value}}]
        if value is not None and not (isinstance(value, list | tuple) and all(isinstance(one, dict) for one in value)):
            raise Returned(f"it returned {kind_of(value)}; a compactor returns messages, a text, or nothing")
        return {"messages": list(value or ())}

    def _stream(self, api: str, given: tuple[object, StreamRequest]) -> dict[str, Any]:
        number, request = given
        handler = self._book.providers.get(api)
        if handler is None and len(self._book.providers) == 1 and not api:
            handler = next(iter(self._book.providers.values()))
        if handler is None:
            raise NoHandler("provider", api)
        deltas = Deltas(self._serving.tell, int(number) if isinstance(number, int | float) else 0)
        return {"message": message_of(self._serving.called(handler, request, deltas), request, deltas)}

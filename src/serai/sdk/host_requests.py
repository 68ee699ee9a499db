"""The requests of an extension to its host: each has a number of its own and one answer (spec piglet 2.3, 2.6).

A `Subscription` is to a topic of the host's bus.

A request to what only some dialects have runs on a thread; an async handler runs on the event loop, and the thread waits.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import Future
from itertools import count
from threading import Condition, Event, Lock
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from serai.errors import PeerGone, Refused
from serai.sdk import events
from serai.sdk.adapters.piglet import EVENTS, Piglet
from serai.sdk.answers import Handled, Image, NoHandler, Returned, Rewrite, Text, ToolResult, describe_type, to_action
from serai.sdk.current_call import Cancelled, current
from serai.sdk.host_records import Deltas, StreamRequest, build_message, fold_keys
from serai.sdk.registrations import Handler
from serai.sdk.stdio import format_error
from serai.sdk.workers import Workers

if TYPE_CHECKING:
    import asyncio

    from serai.sdk.adapters import Adapter, RequestsHost
    from serai.sdk.dispatcher import Dispatcher
    from serai.sdk.events import ReplyReceived, TopicPublished
    from serai.sdk.host import Host
    from serai.sdk.registrations import Handler, Registrations
    from serai.sdk.stdio import Writer

LATE = 0.05  # seconds in which an answer that is not wanted any more may still come (spec piglet 2.6)

T = TypeVar("T")


class Reply(Generic[T]):
    """What the host answers. The request is on its way already: `await` this, or in a sync handler say `.result(timeout)`.

    Who is cancelled while waiting takes the request back. `Refused` is the host's no, `PeerGone` its end.
    """

    def __init__(self, what: str, take_back: Callable[[], None], forget: Callable[[], object]) -> None:
        self._what, self._take_back, self._forget = what, take_back, forget
        self._future: Future[T] = Future()
        self._woken = Event()  # by the answer, or because nobody waits for it any more
        self._future.add_done_callback(lambda _: self._woken.set())

    def __repr__(self) -> str:
        return f"<{'answer' if self.done else 'no answer yet'} to {self._what}>"

    @property
    def done(self) -> bool:
        return self._future.done()

    def result(self, timeout: float | None = None) -> T:
        """Wait for it on this thread; `TimeoutError` when it takes longer."""
        call = current.get()
        if call is not None:
            call.when_cancelled(self._woken.set)
        try:
            self._woken.wait(timeout)
        finally:
            if call is not None:
                call.forget(self._woken.set)
        if not self.done:
            self._take_back()
            self._wait_a_moment()
            if call is not None and call.cancelled:
                self._give_up(Cancelled(f"{call.name} was cancelled"))
            else:
                self._give_up(TimeoutError(f"the host did not answer {self._what} in {timeout} seconds"))
        return self._future.result(0)

    def cancel(self) -> bool:
        """It is not wanted any more; whether it never came. An answer that comes at once is kept."""
        if not self.done:
            self._take_back()
            if not _has_running_loop():
                self._wait_a_moment()
        return self._give_up(Cancelled(f"{self._what} was cancelled"))

    def __await__(self) -> Generator[Any, None, T]:
        return self._await_result().__await__()

    async def _await_result(self) -> T:
        import asyncio

        waiter = asyncio.wrap_future(self._future)
        waiter.add_done_callback(lambda done: done.cancelled() or done.exception())  # or one that nobody waits for is told
        try:
            return await asyncio.shield(waiter)
        except asyncio.CancelledError:
            if not self.done:
                self._take_back()
                await asyncio.wait([waiter], timeout=LATE)
                self._give_up(Cancelled(f"{self._what} was cancelled"))
            raise

    def settle(self, value: T) -> None:
        """For the engine: this is the answer."""
        self._settle_once(lambda: self._future.set_result(value))

    def fail(self, error: BaseException) -> None:
        """For the engine: there is none, and this is why."""
        self._settle_once(lambda: self._future.set_exception(error))

    def when_failed(self, act: Callable[[BaseException], None]) -> None:
        """For the engine: tell this, on whatever thread finds out, why there is no answer."""

        def report_error(done: Future[T]) -> None:
            if (error := done.exception()) is not None:
                act(error)

        self._future.add_done_callback(report_error)

    def _settle_once(self, act: Callable[[], None]) -> bool:
        from concurrent.futures import InvalidStateError

        try:
            act()
        except InvalidStateError:  # two came at once, and the other was first
            return False
        return True

    def _give_up(self, error: BaseException) -> bool:
        self._forget()
        return self._settle_once(lambda: self._future.set_exception(error))

    def _wait_a_moment(self) -> None:
        late = Event()
        self._future.add_done_callback(lambda _: late.set())
        late.wait(LATE)


class PendingRequests:
    """Requests that wait for their answer, and subscriptions; from any thread."""

    def __init__(self, say: Callable[[Callable[[Adapter], bytes]], None], requests: RequestsHost) -> None:
        self._say, self._requests = say, requests
        self._lock = Lock()
        self._numbers = count(1)
        self._waiting: dict[int, tuple[Reply[Any], Callable[[Any], Any]]] = {}
        self._subscriptions: dict[int, Subscription] = {}
        self._lost: PeerGone | None = None
        self.deliver: Callable[[Handler, str, Callable[[], object]], None] = lambda *_: None  # how functions are called in turn
        self.remark: Callable[[str], None] = lambda _: None  # for the author

    def ask(self, method: str, params: dict[str, Any], made: Callable[[Any], T]) -> Reply[T]:
        """Send it now. `made` makes the answer of what came; it runs where lines are read, so that nothing overtakes it."""
        with self._lock:
            number = next(self._numbers)
            reply: Reply[T] = Reply(method, lambda: self._take_back(number), lambda: self._forget(number))
            if self._lost is not None:
                reply.fail(self._lost)
                return reply
            self._waiting[number] = reply, made
        try:
            self._say(lambda _: self._requests.encode_request(number, method, params))
        except BaseException:  # too long, or no JSON: the author's error, told here
            self._forget(number)
            raise
        return reply

    def notify_host(self, method: str, params: dict[str, Any]) -> None:
        self._say(lambda _: self._requests.encode_notification(method, params))

    def add_subscription(self, id: int, subscription: Subscription) -> None:
        self._subscriptions[id] = subscription

    def remove_subscription(self, id: int) -> None:
        """There is no such word on the wire (spec piglet 8.1): what comes for it goes nowhere."""
        self._subscriptions.pop(id, None)

    # -- from the read loop -------------------------------------------------------------------------------------------------------

    def settle_reply(self, item: ReplyReceived) -> None:
        """Unknown numbers are passed over (spec piglet 10.37)."""
        waiting = self._forget(item.id)
        if waiting is None:
            return
        reply, made = waiting
        if item.error is not None:
            code, why = item.error
            reply.fail(Refused(why or "the host gave no reason", code=code))
            return
        try:
            value = made(item.result)
        except Exception as error:
            reply.fail(error)
        else:
            reply.settle(value)

    def deliver_message(self, item: TopicPublished) -> None:
        if (subscription := self._subscriptions.get(item.subscription)) is not None:
            subscription.put(item.topic, item.data)

    def close(self) -> None:
        """The host is gone, or goes: nothing more is answered."""
        with self._lock:
            self._lost = PeerGone("the host has left", hint="nothing can be asked of it any more")
            waiting, self._waiting = self._waiting, {}
        for reply, _ in waiting.values():
            reply.fail(self._lost)
        for subscription in list(self._subscriptions.values()):
            subscription.close()

    def _forget(self, number: int) -> tuple[Reply[Any], Callable[[Any], Any]] | None:
        with self._lock:
            return self._waiting.pop(number, None)

    def _take_back(self, number: int) -> None:
        if number in self._waiting:
            self.notify_host("$/cancelRequest", {"id": number})


def _has_running_loop() -> bool:
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


DEEP = 64  # messages that wait for whoever listens; what comes then is dropped (spec piglet 8.1)


class Published(NamedTuple):
    topic: str
    data: Any


class Subscription:
    """What is published under a topic, from `ext.host.bus.subscribe`: `async for`, `for`, or `get(timeout)`.

    `await` it, or say `.ready(timeout)`, to know that the host has it; `Refused` when it does not want to, which whoever
    listens is told as well: nothing would ever come.
    """

    def __init__(self, topic: str, line: PendingRequests) -> None:
        self.topic = topic
        self.dropped = 0  # messages for which there was no room
        self._line = line
        self.on_message: Callable[[], None] | None = None  # for the engine: a function is to be called for each
        self._waiting: deque[Published] = deque()
        self._changed = Condition()
        self._wakers: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._closed = False
        self._error: BaseException | None = None  # why the host does not have it
        self._id = 0
        self.reply: Reply[None] | None = None

    def __repr__(self) -> str:
        return f"<subscription to {self.topic}>"

    def __await__(self) -> Any:
        assert self.reply is not None
        return self.reply.__await__()

    def ready(self, timeout: float | None = None) -> Subscription:
        assert self.reply is not None
        self.reply.result(timeout)
        return self

    def get(self, timeout: float | None = None) -> Published | None:
        """The next one; nothing when there is none in that time, or no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed, timeout)
            if self._error is not None:
                raise self._error
            return self._waiting.popleft() if self._waiting else None

    def __iter__(self) -> Iterator[Published]:
        while (one := self.get()) is not None:
            yield one

    async def __aiter__(self) -> AsyncIterator[Published]:
        import asyncio

        loop = asyncio.get_running_loop()
        woken = loop.create_future()
        while True:
            with self._changed:
                if self._waiting:
                    one: Published | None = self._waiting.popleft()
                elif self._error is not None:
                    raise self._error
                elif self._closed:
                    return
                else:
                    one = None
                    woken = loop.create_future()
                    self._wakers.append((loop, woken))
            if one is None:
                await woken
            else:
                yield one

    def close(self) -> None:
        """Hear no more. The host goes on sending; that goes nowhere."""
        self._line.remove_subscription(self._id)
        with self._changed:
            self._closed, self._error = True, None  # it has ended, whether or not the host's no came before
            self._wake()

    def opened(self, id: int) -> None:
        """For the engine: the host has it under this number."""
        self._id = id
        if not self._closed:
            self._line.add_subscription(id, self)

    def failed(self, error: BaseException) -> None:
        """For the engine: the host does not have it, and nothing will come. Its end is an end as for all others, and no error."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._error = wrong = None if isinstance(error, PeerGone) else error
            self._wake()
        if wrong is not None and self.on_message is not None:  # nobody waits who could be told
            self._line.remark(f"the subscription to {self.topic} failed, and its function is never called: {format_error(error)}")

    def put(self, topic: str, data: Any) -> None:
        """For the engine: the host sent this."""
        with self._changed:
            if len(self._waiting) >= DEEP or self._closed:
                self.dropped += 1
                return
            self._waiting.append(Published(topic, data))
            self._wake()
        if self.on_message is not None:
            self.on_message()

    def _wake(self) -> None:
        self._changed.notify_all()
        wakers, self._wakers = self._wakers, []
        for loop, woken in wakers:
            try:
                loop.call_soon_threadsafe(lambda woken=woken: woken.done() or woken.set_result(None))  # type: ignore[misc]
            except RuntimeError:  # the loop is closed
                pass


_MOST = 32  # at once
_STOPS = {"stop": "end", "toolUse": "tool_use"}  # zot's words for why a turn ended; the others are the same


class OptionalRequests:
    def __init__(self, dispatcher: Dispatcher, registry: Registrations, adapter: Adapter, host: Host, writer: Writer) -> None:
        assert isinstance(adapter, Piglet)
        self._dispatcher, self._registry, self._adapter, self._host, self._writer = dispatcher, registry, adapter, host, writer
        self.workers = Workers("further", _MOST)
        self.begin: Callable[[], None] = lambda: None  # the host has spoken: now it can be spoken to
        self.offer: Callable[[], None] = lambda: None  # say all that is offered
        self._begun = False
        self._step = 0

    def handle(self, item: events.Heard) -> None:
        match item:
            case events.HandshakeStarted():
                self._initialize(item)
            case events.UnsupportedRequest(id=id, code=code, why=why):
                self._dispatcher.run_soon(lambda: self._writer.write(self._adapter.encode_error(id, code, why)))
            case events.OptionalRequest():
                self._serve(item)

    def _initialize(self, item: events.HandshakeStarted) -> None:
        """The host waits for the answer: first what the author wants done at the start, then the offers (spec piglet 3)."""
        work = self._dispatcher.open_request("request", item.id, "initialize")
        if work is None:
            return
        first, self._begun = not self._begun, True
        about = {"name": self._registry.name, "version": self._registry.version}
        if not first:
            self._dispatcher.run_soon(lambda: work.settle(about))
            return
        self._host.update(item.about)

        def run() -> dict[str, str]:
            self.begin()
            for start in self._registry.starts:
                self._dispatcher.call_handler(start)
            self.offer()
            self._dispatcher.dispatch_event(events.Event("session_start", {}))  # now, for with the answer other events may come
            return about

        self._dispatcher.put(work, run, self.workers)

    def _serve(self, item: events.OptionalRequest) -> None:
        work = self._dispatcher.open_request("request", item.id, f"{item.kind} {item.name}".strip())
        if work is None:
            return
        kinds: dict[str, Callable[[str, Any], dict[str, Any]]] = {
            "after": self._run_after,
            "event": self._dispatch_event,
            "shortcut": self._run_shortcut,
            "message": self._run_message_hooks,
            "input": self._transform_input,
            "compact": self._compact,
            "stream": self._stream,
        }
        serve = kinds[item.kind]
        if item.kind == "event":
            self._dispatcher.run_after_events(work, lambda: serve(item.name, item.given))
        else:
            self._dispatcher.put(work, lambda: serve(item.name, item.given), self.workers)

    # -- what came of a tool call -------------------------------------------------------------------------------------------------

    def _run_after(self, name: str, done: events.ToolDone) -> dict[str, Any]:
        """Nobody's word leaves it as it is; what is not sent back would be gone (spec piglet 5.3)."""
        for guard in self._registry.find_guards(name):
            if guard.after is not None and (value := self._dispatcher.call_handler(guard.after, done)) is not None:
                done = done._replace(details=self._to_details(value))
        return {"details": done.details}

    def _to_details(self, value: object) -> Any:
        if isinstance(value, Rewrite):
            return value.value
        if isinstance(value, str | Text | Image):
            value = ToolResult(value)
        if isinstance(value, ToolResult):
            return self._adapter.build_content(value)
        return value

    # -- events and shortcuts -----------------------------------------------------------------------------------------------------

    def _dispatch_event(self, type: str, data: Any) -> dict[str, Any]:
        """The first handler that wants something done is the last that is called (spec piglet 8.1)."""
        if (event := self._as_zot(type, data)) is not None and (handler := self._registry.events.get(event.name)) is not None:
            self._dispatcher.call_handler(handler, event)
        event = events.Event(type, data if isinstance(data, dict) else {})
        for listener in self._registry.listeners:
            if listener.events and type not in listener.events:
                continue
            if (action := to_action(self._dispatcher.call_handler(listener.handler, event))) is not None:
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
                told = fold_keys(fold_keys(data, ("Assistant",)).get("Assistant"), ("stopReason", "error"))
                stop = str(told.get("stopReason") or "")
                return events.Event(name, {"stop": _STOPS.get(stop, stop), "error": told.get("error") or ""})
            case "tool_call":
                call = fold_keys(data, ("ToolCallID", "ToolName", "Args"))
                members = {"tool_id": call.get("ToolCallID"), "tool_name": call.get("ToolName"), "tool_args": call.get("Args")}
                return events.Event(name, members)
            case "assistant_message":
                content = fold_keys(fold_keys(data, ("Message",)).get("Message"), ("content",)).get("content")
                blocks = [fold_keys(one, ("text",)).get("text") for one in content] if isinstance(content, list) else [content]
                return events.Event(name, {"text": "\n".join(text for text in blocks if isinstance(text, str))})
        return None

    def _run_shortcut(self, key: str, _: object) -> dict[str, Any]:
        handler = self._registry.shortcuts.get(key)
        if handler is None:
            raise NoHandler("shortcut", key)
        return {"action": to_action(self._dispatcher.call_handler(handler))}

    # -- what a person says -------------------------------------------------------------------------------------------------------

    def _run_message_hooks(self, _: str, message: str) -> dict[str, Any]:
        texts = [self._call_for_text(hook.handler, message, "message hook") for hook in self._registry.message_hooks]
        return {"injection": "\n".join(text for text in texts if text)}

    def _call_for_text(self, handler: Handler, given: str, what: str) -> str:
        value = self._dispatcher.call_handler(handler, given)
        if value is not None and not isinstance(value, str):
            raise Returned(f"it returned {describe_type(value)}; a {what} returns text, or nothing")
        return value or ""

    def _transform_input(self, _: str, text: str) -> dict[str, Any]:
        for transformer in self._registry.transformers:
            value = self._dispatcher.call_handler(transformer.handler, text)
            if isinstance(value, Handled):
                return {"output": text, "handled": True}
            if value is not None and not isinstance(value, str):
                raise Returned(f"it returned {describe_type(value)}; an input transformer returns text, Handled, or nothing")
            text = text if value is None else value
        return {"output": text, "handled": False}

    # -- models -------------------------------------------------------------------------------------------------------------------

    def _compact(self, _: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """A text is a summary in place of all; nothing means that there is nothing to compact (spec piglet 5.8)."""
        if self._registry.compactor is None:
            raise NoHandler("compactor", "")
        value = self._dispatcher.call_handler(self._registry.compactor, messages)
        if isinstance(value, str):
            value = [{"type": "user", "data": {"content": value}}]
        if value is not None and not (isinstance(value, list | tuple) and all(isinstance(one, dict) for one in value)):
            raise Returned(f"it returned {describe_type(value)}; a compactor returns messages, a text, or nothing")
        return {"messages": list(value or ())}

    def _stream(self, api: str, given: tuple[object, StreamRequest]) -> dict[str, Any]:
        number, request = given
        handler = self._registry.providers.get(api)
        if handler is None and len(self._registry.providers) == 1 and not api:
            handler = next(iter(self._registry.providers.values()))
        if handler is None:
            raise NoHandler("provider", api)
        deltas = Deltas(self._dispatcher.notify_host, int(number) if isinstance(number, int | float) else 0)
        return {"message": build_message(self._dispatcher.call_handler(handler, request, deltas), request, deltas)}

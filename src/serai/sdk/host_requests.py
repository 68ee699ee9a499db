"""The requests of an extension to its host: each has a number of its own and one answer (spec piglet 2.3, 2.6).

A `Subscription` is to a topic of the host's bus.
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
from serai.sdk.current_call import Cancelled, current
from serai.sdk.stdio import error_text

if TYPE_CHECKING:
    import asyncio

    from serai.sdk.adapters import Adapter, RequestsHost
    from serai.sdk.events import ReplyReceived, TopicPublished
    from serai.sdk.registrations import Handler

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
            if not _on_a_loop():
                self._wait_a_moment()
        return self._give_up(Cancelled(f"{self._what} was cancelled"))

    def __await__(self) -> Generator[Any, None, T]:
        return self._awaited().__await__()

    async def _awaited(self) -> T:
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
        self._end(lambda: self._future.set_result(value))

    def fail(self, error: BaseException) -> None:
        """For the engine: there is none, and this is why."""
        self._end(lambda: self._future.set_exception(error))

    def when_failed(self, act: Callable[[BaseException], None]) -> None:
        """For the engine: tell this, on whatever thread finds out, why there is no answer."""

        def look(done: Future[T]) -> None:
            if (error := done.exception()) is not None:
                act(error)

        self._future.add_done_callback(look)

    def _end(self, act: Callable[[], None]) -> bool:
        from concurrent.futures import InvalidStateError

        try:
            act()
        except InvalidStateError:  # two came at once, and the other was first
            return False
        return True

    def _give_up(self, error: BaseException) -> bool:
        self._forget()
        return self._end(lambda: self._future.set_exception(error))

    def _wait_a_moment(self) -> None:
        late = Event()
        self._future.add_done_callback(lambda _: late.set())
        late.wait(LATE)


class PendingRequests:
    """Requests that wait for their answer, and subscriptions; from any thread."""

    def __init__(self, say: Callable[[Callable[[Adapter], bytes]], None], asking: RequestsHost) -> None:
        self._say, self._asking = say, asking
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
            self._say(lambda _: self._asking.request(number, method, params))
        except BaseException:  # too long, or no JSON: the author's error, told here
            self._forget(number)
            raise
        return reply

    def tell(self, method: str, params: dict[str, Any]) -> None:
        self._say(lambda _: self._asking.note(method, params))

    def keep(self, id: int, subscription: Subscription) -> None:
        self._subscriptions[id] = subscription

    def drop(self, id: int) -> None:
        """There is no such word on the wire (spec piglet 8.1): what comes for it goes nowhere."""
        self._subscriptions.pop(id, None)

    # -- from the read loop -------------------------------------------------------------------------------------------------------

    def answered(self, item: ReplyReceived) -> None:
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

    def published(self, item: TopicPublished) -> None:
        if (subscription := self._subscriptions.get(item.subscription)) is not None:
            subscription.put(item.topic, item.data)

    def lost(self) -> None:
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
            self.tell("$/cancelRequest", {"id": number})


def _on_a_loop() -> bool:
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
        self._line.drop(self._id)
        with self._changed:
            self._closed, self._error = True, None  # it has ended, whether or not the host's no came before
            self._wake()

    def opened(self, id: int) -> None:
        """For the engine: the host has it under this number."""
        self._id = id
        if not self._closed:
            self._line.keep(id, self)

    def failed(self, error: BaseException) -> None:
        """For the engine: the host does not have it, and nothing will come. Its end is an end as for all others, and no error."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._error = wrong = None if isinstance(error, PeerGone) else error
            self._wake()
        if wrong is not None and self.on_message is not None:  # nobody waits who could be told
            self._line.remark(f"the subscription to {self.topic} failed, and its function is never called: {error_text(error)}")

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

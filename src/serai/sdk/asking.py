"""What an extension asks of its host: each request has a number of its own and one answer (spec piglet 2.3, 2.6)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from concurrent.futures import Future
from itertools import count
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from serai.errors import PeerGone, Refused
from serai.sdk.calls import Cancelled, current

if TYPE_CHECKING:
    from serai.sdk.adapters import Adapter, Asking
    from serai.sdk.bus import Subscription
    from serai.sdk.handlers import Handler
    from serai.sdk.heard import Answered, Published

__all__ = ["LATE", "Line", "Reply"]

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


class Line:
    """Requests that wait for their answer, and subscriptions; from any thread."""

    def __init__(self, say: Callable[[Callable[[Adapter], bytes]], None], asking: Asking) -> None:
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

    def answered(self, item: Answered) -> None:
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

    def published(self, item: Published) -> None:
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

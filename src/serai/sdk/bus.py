"""A subscription to a topic of the host's bus."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from threading import Condition
from typing import TYPE_CHECKING, Any, NamedTuple

from serai.errors import PeerGone
from serai.sdk.remarks import told

if TYPE_CHECKING:
    import asyncio

    from serai.sdk.asking import Line, Reply

__all__ = ["DEEP", "Published", "Subscription"]

DEEP = 64  # messages that wait for whoever listens; what comes then is dropped (spec piglet 8.1)


class Published(NamedTuple):
    topic: str
    data: Any


class Subscription:
    """What is published under a topic, from `ext.host.bus.subscribe`: `async for`, `for`, or `get(timeout)`.

    `await` it, or say `.ready(timeout)`, to know that the host has it; `Refused` when it does not want to, which whoever
    listens is told as well: nothing would ever come.
    """

    def __init__(self, topic: str, line: Line) -> None:
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
            self._line.remark(f"the subscription to {self.topic} failed, and its function is never called: {told(error)}")

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

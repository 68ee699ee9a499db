"""Handlers at work: sync ones on threads, async ones on one event loop, which is there when the first of them is called."""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Condition
from typing import TYPE_CHECKING, Any

from serai.sdk.answers import ToolError
from serai.sdk.calls import Cancelled, current
from serai.sdk.handlers import Handler
from serai.sdk.loops import OwnLoop
from serai.sdk.work import Work
from serai.sdk.workers import Workers

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine
    from concurrent.futures import Future

    from serai.sdk.remarks import Remarks

__all__ = ["Running"]


class Running:
    """Whatever becomes of a handler, its request is answered once, and nobody else's is held up."""

    def __init__(self, remarks: Remarks) -> None:
        self._remarks = remarks
        self._pid = os.getpid()
        self._changed = Condition()
        self._hurry = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._own_loop: OwnLoop | None = None
        self._coroutines: set[Future[None]] = set()  # of the lanes
        self._answers = Workers("answers", 1)  # that need no handler

    def _run(self, work: Work, run: Callable[[], Any], workers: Workers, *, on_loop: bool) -> None:
        if on_loop:
            self._start_task(work, run)
        else:
            self.put(work, run, workers)

    def called(self, handler: Handler, *offered: Any) -> Any:
        """Call it on this thread, and wait for it if it is async; who cancels the call that runs here cancels it, too."""
        value = handler.function(*handler.given(*offered))
        self._end_copy()  # before the next handler is called, or waited for on a loop that a copy does not have
        return self._waited(value) if _can_wait(value) else value

    def _waited(self, value: Any) -> Any:
        import asyncio
        from concurrent.futures import CancelledError

        async def outcome() -> tuple[Any, BaseException | None]:
            try:
                found = await value
            except BaseException as error:
                self._end_copy(error)
                if isinstance(error, asyncio.CancelledError):
                    raise
                return None, error  # SystemExit would end the loop
            self._end_copy()
            return found, None

        future = asyncio.run_coroutine_threadsafe(outcome(), self._the_loop())
        if (call := current.get()) is not None:
            call.when_cancelled(future.cancel)
        try:
            found, error = future.result()
        except CancelledError:
            raise Cancelled("it was cancelled") from None
        if error is not None:
            raise error
        return found

    def soon(self, act: Callable[[], None]) -> None:
        """Answer without a handler, on a thread: who reads must not wait for a host that does not, or its end is never seen.

        Only with thousands of answers behind, none of which is taken, reading waits as well.
        """
        if not self._answers.put(act):
            act()

    def put(self, work: Work, run: Callable[[], Any], workers: Workers) -> None:
        """Have it run on a thread of these."""
        if not workers.put(lambda: self._run_here(work, run)):
            self.soon(lambda: work.fail(ToolError("too many requests wait already")))

    def _run_here(self, work: Work, run: Callable[[], Any]) -> None:
        token = current.set(work.call)
        try:
            self._run_now(work, run)
        finally:
            current.reset(token)

    def _run_now(self, work: Work, run: Callable[[], Any]) -> None:
        try:
            work.call.check()  # it may have waited long for its turn
            value = run()
            waits = _can_wait(value)
        except BaseException as error:  # SystemExit too: a library's exit ends this request, not the extension
            self._end_copy(error)
            work.fail(error)
            return
        self._end_copy()
        if waits:  # an async function in disguise
            self._start_task(work, lambda: value)
        else:
            work.settle(value)

    def _start_task(self, work: Work, run: Callable[[], Any]) -> None:
        loop = self._the_loop()

        async def served() -> None:
            current.set(work.call)
            try:
                value = await run()
            except BaseException as error:
                self._end_copy(error)
                work.fail(error)
            else:
                self._end_copy()
                work.settle(value)

        def start() -> None:
            task = loop.create_task(served())
            work.call.when_cancelled(lambda: loop.call_soon_threadsafe(task.cancel))

        try:
            loop.call_soon_threadsafe(start)
        except RuntimeError as error:  # it is closed: the end is near
            work.fail(error)

    def _in_turn(
        self, lane: Workers, handler: Handler | None, what: str, *offered: object, take: Callable[[], object] | None = None
    ) -> None:
        """For what needs no answer: one after the other, and what goes wrong is told."""
        if handler is None:
            return

        def run() -> None:
            try:
                given = offered if take is None else (take(),)
                value = handler.function(*handler.given(*given))
                self._end_copy()
                if _can_wait(value):
                    self._wait_for(value, what)
            except BaseException as error:
                self._end_copy(error)
                self._remarks.trace(f"{what} raised", error)

        if not lane.put(run):
            self._remarks.say(f"{what} was not called: too much waits for it already")

    def _wait_for(self, coroutine: Coroutine[Any, Any, Any], what: str) -> None:
        import asyncio
        from concurrent.futures import CancelledError

        async def told() -> None:
            try:
                await coroutine
            except BaseException as error:
                self._end_copy(error)
                if isinstance(error, asyncio.CancelledError):
                    raise
                self._remarks.trace(f"{what} raised", error)  # SystemExit would end the loop
            self._end_copy()

        future = asyncio.run_coroutine_threadsafe(told(), self._the_loop())
        self._coroutines.add(future)
        try:
            if self._hurry:
                future.cancel()
            future.result()
        except CancelledError:  # the end
            pass
        finally:
            self._coroutines.discard(future)

    def _the_loop(self) -> asyncio.AbstractEventLoop:
        with self._changed:
            if self._loop is None:
                self._own_loop = OwnLoop(self._remarks)
                self._loop = self._own_loop.loop
            return self._loop

    def _end_copy(self, error: BaseException | None = None) -> None:
        """A handler that forked has run twice. The copy has no wire, and must not go on as a second extension."""
        if os.getpid() != self._pid:
            os._exit(error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else int(error is not None))


def _can_wait(value: object) -> bool:
    return hasattr(type(value), "__await__")

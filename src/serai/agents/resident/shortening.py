"""A guest's compactor at work (spec piglet 5.8): asked in the background when a step has settled, or when somebody wants it now.

What it answers takes the place of what it was given; messages that came meanwhile follow. That happens only where the conversation
in memory and the one on disk say the same: between a step's end and the next answer, or between two turns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple

from serai.agents.resident import history
from serai.agents.resident.conversation import Conversation
from serai.agents.resident.house import House
from serai.agents.stage import Stage
from serai.errors import LimitHit, NotCapable, PeerTimeout, Refused, TurnInFlight
from serai.model.actions import Notice
from serai.model.events import Compacted, Event, NoticeEvent, StepSettled, TurnEnded
from serai.model.provider import ModelMessage

__all__ = ["Counts", "Shortening"]

log = logging.getLogger("serai.agents")

_LEAST = 8  # messages: fewer are left as they are
_FAILURES, _PAUSE = 3, 300.0  # so many in a row, and it is left alone for so many seconds


class Counts(NamedTuple):
    """Messages before and after."""

    before: int
    after: int


class Shortening:
    """One agent's. `conversation` is that of this moment; `quiet` says whether memory and disk agree now."""

    def __init__(self, house: House, conversation: Callable[[], Conversation], quiet: Callable[[], bool]) -> None:
        self._house = house
        self._conversation = conversation
        self._quiet = quiet
        self._stage: Stage | None = None
        self._working: asyncio.Task[Counts] | None = None  # one at a time
        self._moved = asyncio.Event()  # it may be quiet now
        self._failures = 0
        self._paused = float("-inf")  # until then
        self.clock: Callable[[], float] = monotonic

    def open(self, stage: Stage) -> None:
        self._stage = stage
        stage.listeners.append(self._heard)

    async def close(self) -> None:
        if self._is_working():
            assert self._working is not None
            self._working.cancel()
            await asyncio.wait([self._working])

    async def now(self) -> Counts:
        """Have it done, whatever the threshold and earlier failures say. A `SeraiError` says why it was not."""
        if self._is_working():
            raise TurnInFlight("the conversation is being shortened already", who=self._house.asker)
        if not self._quiet():
            raise TurnInFlight("a conversation is not shortened while tools run", who=self._house.asker)
        working = self._begin()
        try:
            await asyncio.wait([working])
        finally:
            working.cancel()
        if working.cancelled():
            raise Refused("nobody is there any more who wants it")
        return working.result()

    async def finished(self, *, in_step: bool = False) -> bool | None:
        """Wait for what is under way: whether it shortened the conversation. None: nothing was.

        `in_step`: what was over already, but was begun or under way when the latest step settled, counts too.
        """
        working = self._working
        if working is None or (working.done() and not in_step):
            return None
        await asyncio.wait([working])
        return not working.cancelled() and working.exception() is None

    # -- when

    def _heard(self, event: Event) -> None:
        if isinstance(event, StepSettled | TurnEnded) and not event.lane:
            asyncio.get_running_loop().call_soon(self._moved.set)  # it is quiet when whoever tells this is done
            if isinstance(event, StepSettled):
                self._step_settled()

    def _step_settled(self) -> None:
        if not self._is_working():
            self._working = None  # what came of it was for the steps before
            if self._is_due():
                self._begin().add_done_callback(self._over)

    def _is_due(self) -> bool:
        at = self._house.compact_at()
        if self._house.compactor is None or at <= 0 or self.clock() < self._paused:
            return False
        return len(self._conversation().messages) >= _LEAST and self._sent() >= at

    def _sent(self) -> int:
        """Tokens that the latest answer was given; with those of its provider's cache, which are counted beside `input`."""
        newest = next((one for one in reversed(self._conversation().messages) if one.role == "assistant"), None)
        if newest is None or newest.made is None:
            return 0
        usage = newest.made.usage
        return usage.input + usage.cache_read + usage.cache_write

    def _is_working(self) -> bool:
        return self._working is not None and not self._working.done()

    def _over(self, working: asyncio.Task[Counts]) -> None:
        """Of what nobody waits for: who fails again and again is left alone for a while."""
        if working.cancelled():
            return
        if (error := working.exception()) is None or isinstance(error, TurnInFlight):
            self._failures = 0  # a conversation that changed meanwhile is nobody's failure
            return
        log.warning("the compactor failed: %r", error)
        self._failures += 1
        if self._failures >= _FAILURES:
            self._failures = 0
            self._paused = self.clock() + _PAUSE
            text = f"the compactor failed {_FAILURES} times in a row and is not asked for {_PAUSE / 60:g} minutes: {error}"
            self._tell(NoticeEvent(notice=Notice(text, "warn", "serai")))

    # -- how

    def _begin(self) -> asyncio.Task[Counts]:
        old = tuple(self._conversation().messages)
        work = self._work(old, self._sent())
        self._working = working = asyncio.get_running_loop().create_task(work, name="compact the conversation")
        return working

    async def _work(self, old: tuple[ModelMessage, ...], tokens: int) -> Counts:
        new = await self._asked(old)
        while not self._quiet():
            self._moved.clear()
            await self._moved.wait()
        return self._put(old, new, tokens)

    async def _asked(self, old: tuple[ModelMessage, ...]) -> list[ModelMessage]:
        compactor, limit = self._house.compactor, self._house.limits.compact
        if compactor is None:
            raise NotCapable("no compactor registered", who=self._house.asker)
        deadline = asyncio.timeout(limit)
        try:
            async with deadline:
                new = history.repaired(await compactor(old))
        except TimeoutError as error:
            if not deadline.expired():  # its own
                raise
            raise PeerTimeout(f"it did not answer within {limit:g} s", limit=LimitHit("compact", limit)) from error
        if not new:
            raise Refused("it gave no messages")
        return new

    def _put(self, old: tuple[ModelMessage, ...], new: list[ModelMessage], tokens: int) -> Counts:
        conversation = self._conversation()
        now = conversation.messages
        if len(now) < len(old) or any(one is not other for one, other in zip(old, now, strict=False)):
            raise TurnInFlight("the conversation was changed meanwhile")  # it shrank, or is another one
        counts, messages = Counts(len(now), len(now) - len(old) + len(new)), [*new, *now[len(old) :]]
        if self._stage is not None:
            self._stage.compacted(tuple(messages), tokens)  # first: what cannot be kept is not done
        conversation.replace(messages)
        self._tell(Compacted(before=counts.before, after=counts.after, tokens=tokens))
        return counts

    def _tell(self, event: Compacted | NoticeEvent) -> None:
        try:
            if self._stage is not None:
                self._stage.emit(event)
        except Exception:  # a listener's, such as a full disk: it is done all the same
            log.exception("%s could not be told to everybody", type(event).__name__)

"""A conversation that grows too long for its model is shortened: by a guest's compactor, else by a summary of the model's own.

The newest messages stay as they are. When nobody can summarise, the oldest go: a conversation that cannot go on helps nobody.

A guest's compactor (spec piglet 5.8) is asked in the background when a step has settled, or on request. Its answer replaces what
it was given; messages that came meanwhile follow. That happens only where the conversation in memory and the one on disk say the
same: between a step's end and the next answer, or between two turns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from textwrap import indent
from time import monotonic
from typing import NamedTuple

from serai.agents.event_hub import EventHub
from serai.agents.resident import conversation
from serai.agents.resident import conversation as resident_conversation
from serai.agents.resident.conversation import Conversation
from serai.agents.resident.model_call import ModelCall
from serai.agents.resident.run_context import RunContext, RunOutput
from serai.errors import LimitHit, ModelFailed, NotCapable, PeerTimeout, Refused, TurnInFlight
from serai.model.actions import Notice
from serai.model.events import Compacted, Event, NoticeEvent, StepSettled, TurnEnded, UsageReported
from serai.model.provider import ModelMessage, ModelRequest
from serai.model.tools import TextBlock

log = logging.getLogger("serai.agents")

_LEAST = 8  # messages: fewer are left as they are
_FAILURES, _PAUSE = 3, 300.0  # so many in a row, and it is left alone for so many seconds


class MessageCounts(NamedTuple):
    """Messages before and after."""

    before: int
    after: int


class GuestCompaction:
    """One agent's. `conversation` is that of this moment; `quiet` says whether memory and disk agree now."""

    def __init__(self, context: RunContext, conversation: Callable[[], Conversation], quiet: Callable[[], bool]) -> None:
        self._context = context
        self._conversation = conversation
        self._quiet = quiet
        self._hub: EventHub | None = None
        self._working: asyncio.Task[MessageCounts] | None = None  # one at a time
        self._moved = asyncio.Event()  # it may be quiet now
        self._failures = 0
        self._paused = float("-inf")  # until then
        self.clock: Callable[[], float] = monotonic

    def open(self, hub: EventHub) -> None:
        self._hub = hub
        hub.listeners.append(self._on_event)

    async def close(self) -> None:
        if self._is_working():
            assert self._working is not None
            self._working.cancel()
            await asyncio.wait([self._working])

    async def compact(self) -> MessageCounts:
        """Have it done, whatever the threshold and earlier failures say. A `SeraiError` says why it was not."""
        if self._is_working():
            raise TurnInFlight("the conversation is being shortened already", who=self._context.asker)
        if not self._quiet():
            raise TurnInFlight("a conversation is not shortened while tools run", who=self._context.asker)
        working = self._begin()
        try:
            await asyncio.wait([working])
        finally:
            working.cancel()
        if working.cancelled():
            raise Refused("nobody is there any more who wants it")
        return working.result()

    async def wait_finished(self, *, in_step: bool = False) -> bool | None:
        """Wait for what is under way: whether it shortened the conversation. None: nothing was.

        `in_step`: what was over already, but was begun or under way when the latest step settled, counts too.
        """
        working = self._working
        if working is None or (working.done() and not in_step):
            return None
        await asyncio.wait([working])
        return not working.cancelled() and working.exception() is None

    # -- when

    def _on_event(self, event: Event) -> None:
        if isinstance(event, StepSettled | TurnEnded) and not event.lane:
            asyncio.get_running_loop().call_soon(self._moved.set)  # it is quiet when whoever tells this is done
            if isinstance(event, StepSettled):
                self._on_step_settled()

    def _on_step_settled(self) -> None:
        if not self._is_working():
            self._working = None  # what came of it was for the steps before
            if self._is_due():
                self._begin().add_done_callback(self._on_done)

    def _is_due(self) -> bool:
        at = self._context.compact_at()
        if self._context.compactor is None or at <= 0 or self.clock() < self._paused:
            return False
        return len(self._conversation().messages) >= _LEAST and self._count_sent() >= at

    def _count_sent(self) -> int:
        """Tokens that the latest answer was given; with those of its provider's cache, which are counted beside `input`."""
        newest = next((one for one in reversed(self._conversation().messages) if one.role == "assistant"), None)
        if newest is None or newest.made is None:
            return 0
        usage = newest.made.usage
        return usage.input + usage.cache_read + usage.cache_write

    def _is_working(self) -> bool:
        return self._working is not None and not self._working.done()

    def _on_done(self, working: asyncio.Task[MessageCounts]) -> None:
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
            self._emit(NoticeEvent(notice=Notice(text, "warn", "serai")))

    # -- how

    def _begin(self) -> asyncio.Task[MessageCounts]:
        old = tuple(self._conversation().messages)
        work = self._work(old, self._count_sent())
        self._working = working = asyncio.get_running_loop().create_task(work, name="compact the conversation")
        return working

    async def _work(self, old: tuple[ModelMessage, ...], tokens: int) -> MessageCounts:
        new = await self._ask_compactor(old)
        while not self._quiet():
            self._moved.clear()
            await self._moved.wait()
        return self._apply(old, new, tokens)

    async def _ask_compactor(self, old: tuple[ModelMessage, ...]) -> list[ModelMessage]:
        compactor, limit = self._context.compactor, self._context.limits.compact
        if compactor is None:
            raise NotCapable("no compactor registered", who=self._context.asker)
        deadline = asyncio.timeout(limit)
        try:
            async with deadline:
                new = conversation.repair_messages(await compactor(old))
        except TimeoutError as error:
            if not deadline.expired():  # its own
                raise
            raise PeerTimeout(f"it did not answer within {limit:g} s", limit=LimitHit("compact", limit)) from error
        if not new:
            raise Refused("it gave no messages")
        return new

    def _apply(self, old: tuple[ModelMessage, ...], new: list[ModelMessage], tokens: int) -> MessageCounts:
        conversation = self._conversation()
        now = conversation.messages
        if len(now) < len(old) or any(one is not other for one, other in zip(old, now, strict=False)):
            raise TurnInFlight("the conversation was changed meanwhile")  # it shrank, or is another one
        counts, messages = MessageCounts(len(now), len(now) - len(old) + len(new)), [*new, *now[len(old) :]]
        if self._hub is not None:
            self._hub.report_compaction(tuple(messages), tokens)  # first: what cannot be kept is not done
        conversation.replace(messages)
        self._emit(Compacted(before=counts.before, after=counts.after, tokens=tokens))
        return counts

    def _emit(self, event: Compacted | NoticeEvent) -> None:
        try:
            if self._hub is not None:
                self._hub.emit(event)
        except Exception:  # a listener's, such as a full disk: it is done all the same
            log.exception("%s could not be told to everybody", type(event).__name__)


_FULL = 0.8  # of the context window: then it is time
_KEPT = 0.2  # of it: the newest messages, as they are
_PIECE = 2000  # characters of each message that the one who summarises gets to see
_SUMMARY = "[Summary of the conversation so far]\n"
_TASK = """\
Summarise the conversation below for a colleague who has to go on with it and sees nothing else of it. Keep: what the person wants,
in their words where they matter; what was decided and why; what was changed, with the paths of files and the commands; what was
found; what is still to be done. Leave out pleasantries. Answer with the summary alone."""


class Compaction:
    """Shortens one conversation."""

    def __init__(
        self, context: RunContext, output: RunOutput, conversation: Conversation, compaction: GuestCompaction | None = None
    ) -> None:
        """`compaction` is a guest's compactor that may be at work on it already."""
        self._guest_compaction = compaction
        self._context = context
        self._output = output
        self._conversation = conversation

    async def compact_if_needed(self) -> None:
        """Between two steps, when the model will soon not take it any more."""
        if self._is_full():
            await self.compact(when_full=True)

    def _is_full(self) -> bool:
        window = self._context.model.context_window
        return bool(window) and self._conversation.count_tokens() > window * _FULL

    async def compact(self, *, when_full: bool = False) -> bool:
        """Whether it is shorter now. `when_full`: not if a guest's compactor, at work already, makes room enough."""
        guests = self._guest_compaction
        done = None if guests is None else await guests.wait_finished(in_step=when_full)  # one at a time
        if done and not (when_full and self._is_full()):
            return True
        conversation = self._conversation
        old = list(conversation.messages)
        tokens = conversation.count_tokens()
        asked = [] if done is not None else await self._ask_compactor(old)  # who has just failed, or not helped, is not asked again
        new = asked or await self._summarise(old)
        if resident_conversation.estimate_tokens(new) >= resident_conversation.estimate_tokens(old):
            return False
        self._output.report_compaction(tuple(new), tokens)  # first: what cannot be kept is not done
        conversation.replace(new)
        self._output.emit(Compacted(before=len(old), after=len(new), tokens=tokens))
        return True

    async def _ask_compactor(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        """Empty when there is none, or it failed."""
        if self._context.compactor is None:
            return []
        try:
            async with asyncio.timeout(self._context.limits.compact):
                return resident_conversation.repair_messages(await self._context.compactor(messages))
        except Exception as error:
            log.warning("the compactor failed: %r", error)
            self._warn(f"the compactor failed, the conversation is summarised instead: {_format_error(error)}")
            return []

    async def _summarise(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        cut = self._find_cut(messages)
        older, newest = messages[:cut], messages[cut:]
        if not older:
            return messages
        if all(message.role != "user" for message in newest):  # what the person wants now is never only summarised
            newest = [message for message in older[1:] if message.role == "user"][-1:] + newest
        try:
            summary = await self._ask_summary(older)
        except Exception as error:
            log.warning("no summary: %r", error)
            self._warn(f"the conversation could not be summarised, its oldest part is left out: {_format_error(error)}")
            return resident_conversation.repair_messages([*older[:1], *newest])
        return resident_conversation.repair_messages([resident_conversation.build_user_message(_SUMMARY + summary), *newest])

    def _find_cut(self, messages: Sequence[ModelMessage]) -> int:
        """Where the newest part begins: at a message that needs none before it."""
        room = int(self._context.model.context_window * _KEPT) or resident_conversation.estimate_tokens(messages) // 4
        cut, kept = len(messages), 0
        while cut and kept <= room:
            cut -= 1
            kept += resident_conversation.estimate_tokens(messages[cut : cut + 1])
        if kept > room:
            cut += 1
        while cut < len(messages) and messages[cut].role == "tool":
            cut += 1
        return cut

    async def _ask_summary(self, messages: Sequence[ModelMessage]) -> str:
        context = self._context
        room = int(context.model.context_window * _FULL * 2) or 400_000  # characters; half of what fits, to be safe
        told = "\n\n".join(map(_format_message, messages))
        if len(told) > room:
            told = told[: room // 2] + "\n\n[…]\n\n" + told[-room // 2 :]
        prompt = resident_conversation.build_user_message(f"{_TASK}\n\n<conversation>\n{told}\n</conversation>")
        request = ModelRequest(context.model, (prompt,), options=context.options)
        completion = await ModelCall(RunOutput(), context.limits).get(context.provider, request)
        usage = resident_conversation.with_cost(context.model, completion.usage)
        self._conversation.usage = resident_conversation.add_usage(self._conversation.usage, usage)
        self._output.emit(UsageReported(usage=usage, total=self._conversation.usage))
        text = "".join(block.text for block in completion.message.content if isinstance(block, TextBlock)).strip()
        if not text:
            raise ModelFailed("it gave no summary", who=context.model.key)
        return text

    def _warn(self, text: str) -> None:
        self._output.emit(NoticeEvent(notice=Notice(text, "warn", "serai")))


def _format_error(error: Exception) -> str:
    return str(error) or type(error).__name__


def _format_message(message: ModelMessage) -> str:
    """One message for the one who summarises, so that nothing it says looks like somebody else's words."""
    texts = [block.text for block in message.content if isinstance(block, TextBlock)]
    texts += [f"calls {call.name} {call.arguments}" for call in message.calls]
    who = {"user": "Person", "assistant": "Assistant", "tool": "Tool"}[message.role]
    said = "\n".join(texts)
    return f"{who}:\n{indent(said if len(said) <= _PIECE else f'{said[:_PIECE]}…', '  ', lambda _line: True)}"

"""A conversation that grows too long for its model is shortened: by a registered compactor, else by a summary of the model's own.

The newest messages stay as they are. When nobody can summarise, the oldest go: a conversation that cannot go on helps nobody.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from textwrap import indent

from serai.agents.resident import history, spending
from serai.agents.resident.asking import Answering
from serai.agents.resident.conversation import Conversation
from serai.agents.resident.house import House
from serai.agents.resident.scene import Scene
from serai.agents.resident.shortening import Shortening
from serai.errors import ModelFailed
from serai.model.actions import Notice
from serai.model.events import Compacted, NoticeEvent, UsageReported
from serai.model.provider import ModelMessage, ModelRequest
from serai.model.tools import TextBlock

__all__ = ["Compacting"]

log = logging.getLogger("serai.agents")

_FULL = 0.8  # of the context window: then it is time
_KEPT = 0.2  # of it: the newest messages, as they are
_PIECE = 2000  # characters of each message that the one who summarises gets to see
_SUMMARY = "[Summary of the conversation so far]\n"
_TASK = """\
Summarise the conversation below for a colleague who has to go on with it and sees nothing else of it. Keep: what the person wants,
in their words where they matter; what was decided and why; what was changed, with the paths of files and the commands; what was
found; what is still to be done. Leave out pleasantries. Answer with the summary alone."""


class Compacting:
    """Shortens one conversation."""

    def __init__(self, house: House, scene: Scene, conversation: Conversation, shortening: Shortening | None = None) -> None:
        """`shortening` is a guest's compactor that may be at work on it already."""
        self._shortening = shortening
        self._house = house
        self._scene = scene
        self._conversation = conversation

    async def when_needed(self) -> None:
        """Between two steps, when the model will soon not take it any more."""
        if self._is_full():
            await self.now(when_full=True)

    def _is_full(self) -> bool:
        window = self._house.model.context_window
        return bool(window) and self._conversation.tokens() > window * _FULL

    async def now(self, *, when_full: bool = False) -> bool:
        """Whether it is shorter now. `when_full`: not if a guest's compactor, at work already, makes room enough."""
        done = None if self._shortening is None else await self._shortening.finished(in_step=when_full)  # one at a time
        if done and not (when_full and self._is_full()):
            return True
        conversation = self._conversation
        old = list(conversation.messages)
        tokens = conversation.tokens()
        asked = [] if done is not None else await self._by_compactor(old)  # who has just failed, or not helped, is not asked again
        new = asked or await self._by_summary(old)
        if history.tokens(new) >= history.tokens(old):
            return False
        self._scene.compacted(tuple(new), tokens)  # first: what cannot be kept is not done
        conversation.replace(new)
        self._scene.emit(Compacted(before=len(old), after=len(new), tokens=tokens))
        return True

    async def _by_compactor(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        """Empty when there is none, or it failed."""
        if self._house.compactor is None:
            return []
        try:
            async with asyncio.timeout(self._house.limits.compact):
                return history.repaired(await self._house.compactor(messages))
        except Exception as error:
            log.warning("the compactor failed: %r", error)
            self._tell(f"the compactor failed, the conversation is summarised instead: {_words(error)}")
            return []

    async def _by_summary(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        cut = self._cut(messages)
        older, newest = messages[:cut], messages[cut:]
        if not older:
            return messages
        if all(message.role != "user" for message in newest):  # what the person wants now is never only summarised
            newest = [message for message in older[1:] if message.role == "user"][-1:] + newest
        try:
            summary = await self._summary(older)
        except Exception as error:
            log.warning("no summary: %r", error)
            self._tell(f"the conversation could not be summarised, its oldest part is left out: {_words(error)}")
            return history.repaired([*older[:1], *newest])
        return history.repaired([history.user(_SUMMARY + summary), *newest])

    def _cut(self, messages: Sequence[ModelMessage]) -> int:
        """Where the newest part begins: at a message that needs none before it."""
        room = int(self._house.model.context_window * _KEPT) or history.tokens(messages) // 4
        cut, kept = len(messages), 0
        while cut and kept <= room:
            cut -= 1
            kept += history.tokens(messages[cut : cut + 1])
        if kept > room:
            cut += 1
        while cut < len(messages) and messages[cut].role == "tool":
            cut += 1
        return cut

    async def _summary(self, messages: Sequence[ModelMessage]) -> str:
        house = self._house
        room = int(house.model.context_window * _FULL * 2) or 400_000  # characters; half of what fits, to be safe
        told = "\n\n".join(map(_told, messages))
        if len(told) > room:
            told = told[: room // 2] + "\n\n[…]\n\n" + told[-room // 2 :]
        prompt = history.user(f"{_TASK}\n\n<conversation>\n{told}\n</conversation>")
        request = ModelRequest(house.model, (prompt,), options=house.options)
        completion = await Answering(Scene(), house.limits).get(house.provider, request)
        usage = spending.priced(house.model, completion.usage)
        self._conversation.usage = spending.together(self._conversation.usage, usage)
        self._scene.emit(UsageReported(usage=usage, total=self._conversation.usage))
        text = "".join(block.text for block in completion.message.content if isinstance(block, TextBlock)).strip()
        if not text:
            raise ModelFailed("it gave no summary", who=house.model.key)
        return text

    def _tell(self, text: str) -> None:
        self._scene.emit(NoticeEvent(notice=Notice(text, "warn", "serai")))


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def _told(message: ModelMessage) -> str:
    """One message for the one who summarises, so that nothing it says looks like somebody else's words."""
    texts = [block.text for block in message.content if isinstance(block, TextBlock)]
    texts += [f"calls {call.name} {call.arguments}" for call in message.calls]
    who = {"user": "Person", "assistant": "Assistant", "tool": "Tool"}[message.role]
    said = "\n".join(texts)
    return f"{who}:\n{indent(said if len(said) <= _PIECE else f'{said[:_PIECE]}…', '  ', lambda _line: True)}"

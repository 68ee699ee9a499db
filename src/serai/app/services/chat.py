"""A model for guests: one answer, or a private agent that works for them (spec piglet 7.1). Nothing of it is told or kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from serai.agents.driver import Prompt
from serai.agents.resident import conversation
from serai.agents.resident.conversation import Conversation
from serai.agents.resident.model_call import ModelCall
from serai.agents.resident.run import Run
from serai.agents.resident.run_context import DEFAULT, PromptParts, RunContext, RunOutput, ToolSet
from serai.app.services.group import Data, Operation
from serai.errors import BadRequest, Refused, TurnLimit
from serai.limits import Limits
from serai.model.events import Event, Message, Usage
from serai.model.provider import Model, ModelMessage, ModelOptions, ModelProvider, ModelRequest
from serai.model.tools import TextBlock, ToolBox

__all__ = ["Chat"]

_RUNS = 8  # agents that work for one guest: one whose tool has another work for it would never come to an end
Take = Callable[[str], tuple[Model, ModelProvider]]


class Said(msgspec.Struct, frozen=True):
    content: str
    role: str = "user"  # `assistant`; everything else is the user's


class Ask(msgspec.Struct, frozen=True):
    messages: list[Said]
    system: str | None = None
    model: str | None = None
    max_tokens: int | None = None


class Task(msgspec.Struct, frozen=True):
    task: str
    system: str | None = None
    tools: str | None = None  # `all`; everything else means those that may run in the background
    model: str | None = None
    max_turns: int | None = None


class Chat:
    """`take` finds the model that a query means; `house` is what the resident works with, and `box` has its tools.

    `allowed` are those that the person lets agents have, None for all. `ready` raises while a guard is down; `nested` says whether
    a tool of that guest runs for a guest.
    """

    def __init__(
        self,
        take: Take,
        house: Callable[[], RunContext],
        box: ToolBox,
        limits: Limits,
        *,
        allowed: Callable[[], Collection[str] | None] = lambda: None,
        ready: Callable[[], None] = lambda: None,
        nested: Callable[[str], bool] = lambda _guest: False,
    ) -> None:
        self._nested = nested
        self._take = take
        self._ready = ready
        self._open: Counter[str] = Counter()  # agents that work, by guest
        self._house = house
        self._box = box
        self._limits = limits
        self._allowed = allowed
        self.operations: Mapping[str, Operation[Any]] = {
            "chat": Operation(Ask, self.chat),
            "run": Operation(Task, self.run),
        }

    async def chat(self, guest: str, ask: Ask) -> Data:
        """One call of a model, without tools; one that fails is not tried again."""
        if not ask.messages:
            raise BadRequest("chat: messages must not be empty", who=guest)
        model, provider = self._take(ask.model or "")
        options = ModelOptions(max_tokens=ask.max_tokens if ask.max_tokens and ask.max_tokens > 0 else None)
        request = ModelRequest(model, tuple(map(_message, ask.messages)), ask.system or "", options=options)
        answer = await ModelCall(RunOutput(), self._limits.but(model_attempts=1)).get(provider, request)
        text = "".join(block.text for block in answer.message.content if isinstance(block, TextBlock))
        return {"text": text, "usage": _usage(answer.usage)}

    async def run(self, guest: str, task: Task) -> Data:
        """All that a private agent said. Its calls are the guest's, and are decided like everybody's (spec piglet 10.35).

        A model that fails is an error (FIX-29). One that was stopped has said something all the same: `stopped` tells why.
        """
        if not task.task.strip():
            raise BadRequest("run: the task is empty", who=guest)
        self._ready()
        if self._open[guest] >= _RUNS:
            raise Refused(f"{_RUNS} agents work for it already: does one of them lead to another?", who=guest)
        if self._nested(guest):  # each of its steps could begin as many again
            raise Refused("what works for a guest begins no agent of its own", who=guest)
        self._open[guest] += 1
        try:
            return await self._run(guest, task)
        finally:
            self._open[guest] -= 1

    async def _run(self, guest: str, task: Task) -> Data:
        model, provider = self._take(task.model or "")
        house = replace(
            self._house(), model=model, provider=provider, parts=lambda: PromptParts(base=task.system or DEFAULT), asker=guest
        )
        most = task.max_turns if task.max_turns and task.max_turns > 0 else self._limits.steps
        scene = _Heard()
        tools = ToolSet(self._box, only=self._allowed(), background=task.tools != "all")
        run = Run(house, scene, Conversation(), tools, most=most)
        run.begin(Prompt(task.task))
        stopped = ""
        try:
            result = await run.play()
            stopped = "denied" if result.status == "denied" else ""
        except TurnLimit as limit:
            result, stopped = run.result("error", str(limit)), "max_turns"
        finally:
            run.stop()
        data = {"text": "\n".join(scene.texts), "turns": result.steps, "usage": _usage(result.usage)}
        return data | ({"stopped": stopped} if stopped else {})


class _Heard(RunOutput):
    """Nobody is told; what may be seen of the model's words is kept for the one who asked."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, event: Event) -> None:
        if isinstance(event, Message):
            self.texts += [block.text for block in event.content if isinstance(block, TextBlock)]


def _message(said: Said) -> ModelMessage:
    return ModelMessage("assistant", (TextBlock(said.content),)) if said.role == "assistant" else conversation.user(said.content)


def _usage(usage: Usage) -> Data:
    return {"input": usage.input, "output": usage.output}

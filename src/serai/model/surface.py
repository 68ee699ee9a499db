"""Where a person is reached: the line, the terminal, the web, or nowhere.

A surface shows what guests and agents want shown and answers what is asked. Without a person the answer is no (design rule 7).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec

from serai.model.actions import Action
from serai.model.approvals import Allow, Answer, Approval, Decision, Deny, Question
from serai.model.events import Event, TurnEnded, TurnResult

log = logging.getLogger("serai.model")

# Of an approval, of a question, or of either: whoever registers it for a tool knows which that tool raises.
Handler = Callable[[Any], Decision | Awaitable[Decision]]
Told = TypeVar("Told")


class Surface(Protocol):
    """What the application needs of the person's side."""

    @property
    def interactive(self) -> bool:
        """Whether there is a person who can answer."""
        ...

    async def ask(self, request: Approval | Question) -> Decision:
        """Put it to the person. Cancelled when nobody waits any more."""
        ...

    def act(self, action: Action) -> None:
        """Show or do what a guest wants done: notices, displays, panels, status. Must be quick and not raise."""
        ...

    def tell(self, event: Event) -> None:
        """Something happened in the session. Must be quick and not raise."""
        ...


@runtime_checkable
class SelectiveSurface(Protocol):
    """A surface that is there for some requests only says for which."""

    def answers(self, request: Approval | Question) -> bool:
        """Whether there is somebody to answer this one."""
        ...


@runtime_checkable
class PacedSurface(Protocol):
    """A surface that may be slower than an agent: whoever tells it waits while it is behind, and the agent with them."""

    @property
    def behind(self) -> bool:
        """Whether much of what it was told is not shown yet."""
        ...

    async def room(self) -> None:
        """Until it has caught up."""
        ...


class HeadlessSurface:
    """Nobody is there: approvals are denied, questions dismissed, the rest goes unseen."""

    interactive = False

    async def ask(self, request: Approval | Question) -> Decision:
        return Answer({}) if isinstance(request, Question) else Deny("nobody is there to approve it")

    def act(self, action: Action) -> None:
        pass

    def tell(self, event: Event) -> None:
        pass


class CallbackSurface:
    """A surface made of functions, for whoever embeds Serai (spec agents 1.14).

    `approval` and `question` get what is asked and return the decision; they may be coroutine functions. `by_tool` has handlers of
    its own for some tools, such as `AskUserQuestion`; they come first. What has no handler is denied (design rule 7), and a handler
    that raises leaves it to the caller to deny.

    `message` gets every event, `completion` the result of each turn, `action` what guests want shown. These are called in order and
    not waited for, so they are plain functions; if one fails, that is logged.
    """

    def __init__(
        self,
        *,
        approval: Callable[[Approval], Decision | Awaitable[Decision]] | None = None,
        question: Callable[[Question], Decision | Awaitable[Decision]] | None = None,
        by_tool: Mapping[str, Handler] | None = None,
        message: Callable[[Event], object] | None = None,
        completion: Callable[[TurnResult], object] | None = None,
        action: Callable[[Action], object] | None = None,
    ) -> None:
        for name, told in (("message", message), ("completion", completion), ("action", action)):
            if inspect.iscoroutinefunction(told):
                raise TypeError(f"`{name}` is not waited for, so it must be a plain function: let it put what it gets into a queue")
        self._approval = approval
        self._question = question
        self._by_tool = dict(by_tool or {})
        self._message = message
        self._completion = completion
        self._action = action

    @property
    def interactive(self) -> bool:
        return bool(self._by_tool) or self._approval is not None or self._question is not None

    def answers(self, request: Approval | Question) -> bool:
        return self._find_handler(request) is not None

    def _find_handler(self, request: Approval | Question) -> Handler | None:
        return self._by_tool.get(request.tool, self._question if isinstance(request, Question) else self._approval)

    async def ask(self, request: Approval | Question) -> Decision:
        handler = self._find_handler(request)
        if handler is None:
            return Deny(f"nobody is there to {'answer' if isinstance(request, Question) else 'approve'} it")
        decision = handler(request)
        if inspect.isawaitable(decision):
            decision = await decision
        if not isinstance(decision, Allow | Deny | Answer):
            raise TypeError(f"a handler returns Allow, Deny or Answer, not {decision!r}")
        return decision

    def act(self, action: Action) -> None:
        _call_handler(self._action, action)

    def tell(self, event: Event) -> None:
        _call_handler(self._message, event)
        if isinstance(event, TurnEnded):
            _call_handler(self._completion, event.result)


def _call_handler(handler: Callable[[Told], object] | None, value: Told) -> None:
    """Nobody who tells a surface something is to suffer from it."""
    if handler is None:
        return
    try:
        handler(value)
    except Exception:
        log.exception("a handler failed on %s", type(value).__name__)


class ScriptedSurface:
    """Answers from a script and remembers what it was shown: for tests and demonstrations.

    * `answers`: decisions, first in first out. An approval takes the first `Allow` or `Deny` that is left, a question the first
      `Answer`; a function of the request serves either.
    * `default`: what follows them. `Allow()` allows each call with its own arguments and answers no question; without a default it
      is as if nobody were there.
    * `always`: tools that are allowed without using up an answer. An `Allow` to be remembered adds its tool.
    * `delay`: seconds that each answer takes. A request that is cancelled meanwhile uses up none.
    """

    interactive = True

    def __init__(
        self,
        answers: Iterable[Decision | Callable[[Approval | Question], Decision]] = (),
        *,
        default: Decision | None = None,
        delay: float = 0.0,
        always: Iterable[str] = (),
    ) -> None:
        self._answers = list(answers)
        self._default = default
        self._delay = delay
        self.always = set(always)
        self.asked: list[Approval | Question] = []
        self.actions: list[Action] = []
        self.events: list[Event] = []

    @property
    def calls(self) -> int:
        """How often it was asked."""
        return len(self.asked)

    async def ask(self, request: Approval | Question) -> Decision:
        self.asked.append(request)
        if self._delay:
            await asyncio.sleep(self._delay)
        if isinstance(request, Approval) and request.tool in self.always:
            return Allow(request.call.arguments)
        decision = self._take_answer(request) or await self._answer_by_default(request)
        if isinstance(request, Approval) and isinstance(decision, Allow) and decision.remember != "once":
            self.always.add(request.tool)
        return decision

    def _take_answer(self, request: Approval | Question) -> Decision | None:
        fitting = (Answer,) if isinstance(request, Question) else (Allow, Deny)
        for place, answer in enumerate(self._answers):
            if callable(answer) or isinstance(answer, fitting):
                del self._answers[place]
                return answer(request) if callable(answer) else answer
        return None

    async def _answer_by_default(self, request: Approval | Question) -> Decision:
        match self._default, request:
            case Allow(arguments=msgspec.UNSET) as allow, Approval(call=call):
                return msgspec.structs.replace(allow, arguments=call.arguments)
            case (Allow() as decision, Approval()) | (Answer() as decision, Question()) | (Deny() as decision, _):
                return decision
            case _:
                return await HeadlessSurface().ask(request)

    def act(self, action: Action) -> None:
        self.actions.append(action)

    def tell(self, event: Event) -> None:
        self.events.append(event)

"""Where a person is reached: the line, the terminal, the web, or nowhere.

A surface shows what guests and agents want shown and answers what is asked. Without a person the answer is no (design rule 7).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from serai.model.actions import Action
from serai.model.ask import Answer, Approval, Decision, Deny, Question
from serai.model.events import Event

__all__ = ["HeadlessSurface", "ScriptedSurface", "Surface"]


class Surface(Protocol):
    """What the house needs of whoever stands at the counter."""

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


class HeadlessSurface:
    """Nobody is there: approvals are denied, questions dismissed, the rest goes unseen."""

    interactive = False

    async def ask(self, request: Approval | Question) -> Decision:
        return Answer({}) if isinstance(request, Question) else Deny("nobody is there to approve it")

    def act(self, action: Action) -> None:
        pass

    def tell(self, event: Event) -> None:
        pass


class ScriptedSurface:
    """Answers from a script and remembers what it was shown: for tests and demonstrations.

    Each answer is a decision, or a function of the request. Past the end of the script it is as if nobody were there.
    """

    interactive = True

    def __init__(self, answers: Iterable[Decision | Callable[[Approval | Question], Decision]] = ()) -> None:
        self._answers = deque(answers)
        self.asked: list[Approval | Question] = []
        self.actions: list[Action] = []
        self.events: list[Event] = []

    async def ask(self, request: Approval | Question) -> Decision:
        self.asked.append(request)
        if not self._answers:
            return await HeadlessSurface().ask(request)
        answer = self._answers.popleft()
        return answer(request) if callable(answer) else answer

    def act(self, action: Action) -> None:
        self.actions.append(action)

    def tell(self, event: Event) -> None:
        self.events.append(event)

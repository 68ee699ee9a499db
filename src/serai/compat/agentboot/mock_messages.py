"""The mock agent's own messages: the neutral family of the seed (spec agents 1.19).

An event of the mock agent carries its message as `native`, a `TurnEnded` that of its result, so whoever wants that family takes it
from the events: `seed_event` and `seed_events`. `played` runs a prompt and hands them out as they come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from serai.agents.drivers.mock.driver import AGENT, Message
from serai.agents.session import Session
from serai.agents.turn import run_turn
from serai.errors import SeraiError
from serai.model.events import Event, TurnEnded, TurnResult
from serai.model.surface import HeadlessSurface, Surface


def seed_event(event: Event) -> Message | None:
    """The message that an event of the mock agent stands for; None: it stands for none, being part of another's."""
    native = event.result.native if isinstance(event, TurnEnded) else event.native
    if event.agent != AGENT or not isinstance(native, dict) or "type" not in native:
        return None
    return {**native, "agent_type": event.agent, "session_id": event.session, "timestamp": event.at}


def seed_events(events: Iterable[Event]) -> list[Message]:
    """All of them, in order."""
    return [one for event in events if (one := seed_event(event)) is not None]


class Played(msgspec.Struct):
    """What came of a prompt in the seed's words: its messages, the error's text, and what else is known of it."""

    messages: list[Message]
    error: str = ""
    metadata: dict[str, Any] = {}
    outcome: TurnResult | None = None

    @property
    def status(self) -> str:
        """The one of the result."""
        return str(self.messages[-1].get("status", "")) if self.messages else ""


async def played(
    session: Session,
    prompt: str,
    surface: Surface | None = None,
    *,
    on_message: Callable[[Message], object] = lambda _message: None,
    on_error: Callable[[str], object] = lambda _error: None,
) -> Played:
    """Play a prompt to its end. `on_error` gets the text of each error: of an error step, and of a turn that failed."""
    run = Played([])

    def tell(event: Event) -> None:
        if isinstance(event, TurnEnded):
            run.outcome = event.result
        if (one := seed_event(event)) is None:
            return
        run.messages.append(one)
        on_message(one)
        if one["type"] == "error":
            on_error(one["error"])

    turn = session.turn(prompt)
    try:
        await run_turn(turn, surface or HeadlessSurface(), tell)
    except SeraiError as error:
        run.error = str(error)
        on_error(run.error)
    if run.messages:
        run.metadata = run.messages[-1].get("metadata", {})
    return run

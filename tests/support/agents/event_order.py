"""The order of spec piglet 6.3, as an expression over the kinds of events."""

from __future__ import annotations

import re
from collections.abc import Sequence

from serai.model.events import Event, ToolEnded, ToolStarted, event_kind

_LETTERS = {
    "turn_started": "(",
    "noticed": "n",
    "turn_prepared": "p",
    "step_started": "<",
    "text": "t",
    "thinking": "t",
    "tool_input": "t",
    "retrying": "r",
    "message": "m",
    "tool_called": "c",
    "usage": "u",
    "step_ended": "e",
    "approval": "a",
    "request_cancelled": "x",
    "tool_started": "s",
    "tool_progress": "g",
    "tool_ended": "d",
    "step_settled": ">",
    "steps_exhausted": "!",
    "compacted": "k",
    "turn_ended": ")",
}
_STEP = "<(t*r)*t*m?c*u?e[asgdx]*>!?u?n*k?"
_BROKEN = "<(t*r)*t*m?c*u?e?[asgdx]*"  # the last one of a turn that failed or was cancelled
_TURN = re.compile(rf"\(n*p({_STEP})*({_BROKEN})?\)")


def is_in_order(events: Sequence[Event]) -> bool:
    """Whether they are one turn as the spec has it: a tool ends at most once, and if it starts, before it ends."""
    letters = "".join(_LETTERS[event_kind(event)] for event in events)
    started: set[str] = set()
    ended: set[str] = set()
    for event in events:
        if isinstance(event, ToolStarted):
            if event.call.id in started | ended:
                return False
            started.add(event.call.id)
        elif isinstance(event, ToolEnded):
            if event.call.id in ended:
                return False
            ended.add(event.call.id)
    return _TURN.fullmatch(letters) is not None and started <= ended

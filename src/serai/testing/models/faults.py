"""What a test lets go wrong, beside what a prompt's own script says: a queue, used up one per request.

server.fault(Fault("status", status=529), Fault("status", status=529))    # fails twice, then works
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from serai.agents.models.model_script import Cut, Hang, Malformed, Wait
from serai.testing.models.answering import Control, Piece, Text

__all__ = ["FAULTS", "Fault", "faulted", "huge"]

Kind = Literal["none", "status", "error", "cut", "malformed", "slow", "huge", "hang", "close", "refuse", "endless"]

# What each does, by the options it reads.
FAULTS: dict[Kind, str] = {
    "none": "works, so that a later request has the next fault",
    "status": "answers with this HTTP `status`, `retry_after` and `headers`; `body` instead of the API's own",
    "endless": "answers with this HTTP `status` and a body that has no end, until the client leaves",
    "error": "tells an error of this `status` as an event, `after` so many others",
    "cut": "closes the connection `after` so many events",
    "malformed": "an event that is no JSON, `after` so many others; then it goes on",
    "slow": "so many `seconds` between two events",
    "huge": "a text of so many `bytes`, in one event",
    "hang": "says nothing more `after` so many events, until the client leaves",
    "close": "closes the connection when it has read the request, before any answer",
    "refuse": "resets the next connection before it reads a byte; one that is used again, before it answers",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong with one request; `FAULTS` tells of each kind."""

    kind: Kind
    _: KW_ONLY
    status: int = 500
    retry_after: str = ""  # the header's value: seconds, or a date
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    after: int = 0
    seconds: float = 0.01
    bytes: int = 1_000_000

    def __post_init__(self) -> None:
        if self.kind not in FAULTS:
            raise ValueError(f"no fault {self.kind!r}; there are: {', '.join(FAULTS)}")


NONE = Fault("none")

_IN_STREAM: dict[Kind, Control] = {"cut": Cut(), "malformed": Malformed(), "hang": Hang()}


def faulted(events: Iterator[bytes | Control], fault: Fault, error: bytes) -> Iterator[bytes | Control]:
    """The events with the fault among them; `error` is the API's own event for one, after which nothing comes."""
    if fault.kind == "slow":
        for event in events:
            yield event
            yield Wait(fault.seconds)
        return
    if fault.kind not in _IN_STREAM and fault.kind != "error":
        yield from events
        return
    sent = 0
    for event in events:
        if sent == fault.after:
            yield error if fault.kind == "error" else _IN_STREAM[fault.kind]
            if fault.kind == "error":
                return
        sent += isinstance(event, bytes)
        yield event


def huge(fault: Fault) -> Iterator[Piece]:
    yield Text("x" * fault.bytes)

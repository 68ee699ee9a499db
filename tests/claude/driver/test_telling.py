"""What is told while a guest looks at messages: what may have hidden words in it goes without its lines."""

from __future__ import annotations

import msgspec
import pytest

from serai.agents.drivers.claude.turns import EventSequencer
from serai.agents.event_hub import EventHub
from serai.limits import Limits
from serai.model.events import Event, OtherEvent, Thinking, ToolInput
from tests.claude.driver.guests import Guests

DELTA = b'{"type":"stream_event","event":{"type":"content_block_delta"}}'
STATUS = b'{"type":"system","subtype":"status"}'


@pytest.mark.req("agents.driver.hidden")
@pytest.mark.parametrize(
    ("line", "kept"), [(DELTA, False), (b"[" + DELTA + b"," + DELTA + b"]", False), (STATUS, True)], ids=["one", "many", "status"]
)
@pytest.mark.parametrize(
    "made", [Thinking(text="hm"), ToolInput(text="{}"), OtherEvent(kind="x")], ids=["thinking", "input", "other"]
)
async def test_lines_of_what_the_model_said_are_not_told_while_somebody_may_hide_it(line: bytes, kept: bool, made: Event) -> None:
    hub = EventHub("claude", "s1", Limits())
    told: list[Event] = []
    hub.listeners.append(told.append)
    telling = EventSequencer(hub, Guests(show=lambda message: message))
    telling.tell([msgspec.structs.replace(made, native=msgspec.Raw(line))])
    await telling.told()
    [event] = told
    assert type(event) is type(made)
    assert event.native == (msgspec.Raw(line) if kept else None)

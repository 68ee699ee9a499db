"""The bus: what guests tell each other, by topic (spec piglet 7.1)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec

from serai.app.services.group import Data, Operation
from serai.errors import LimitHit, Refused
from serai.limits import Limits
from serai.model.events import ToolProgress

__all__ = ["BASH_TAIL", "Bus", "BusGroup", "Deliver", "bash_tail"]

log = logging.getLogger("serai.app")

BASH_TAIL = "bash.tail"
_TAIL = 80  # code points

# Takes topic, the id of the subscription and the data. Must not wait: a slow reader is not the publisher's affair.
Deliver = Callable[[str, int, Any], None]


class _Subscription(NamedTuple):
    guest: str
    topic: str
    deliver: Deliver


class Bus:
    """Topics are exact. Each publication is delivered before `publish` returns, in the order of the subscriptions."""

    def __init__(self) -> None:
        self._subscriptions: dict[int, _Subscription] = {}
        self._last = 0

    def publish(self, topic: str, data: Any) -> int:
        """To all subscribers, the publisher included; how many got it. One that fails harms nobody."""
        reached = 0
        for id, one in tuple(self._subscriptions.items()):
            if one.topic != topic or id not in self._subscriptions:  # it may have gone in the meantime
                continue
            try:
                one.deliver(topic, id, data)
                reached += 1
            except Exception:
                log.exception("%s could not be told of %s", one.guest, topic)
        return reached

    def subscribe(self, guest: str, topic: str, deliver: Deliver) -> int:
        """From now on; the id of the subscription. Each call makes another one."""
        self._last += 1
        self._subscriptions[self._last] = _Subscription(guest, topic, deliver)
        return self._last

    def drop(self, guest: str) -> None:
        """A guest is gone, and so are its subscriptions (FIX-32)."""
        self._subscriptions = {id: one for id, one in self._subscriptions.items() if one.guest != guest}

    def count(self, guest: str) -> int:
        return sum(one.guest == guest for one in self._subscriptions.values())


def bash_tail(event: ToolProgress) -> Data | None:
    """What the app publishes as `bash.tail`: the end of the last line that a command wrote (spec piglet 6.3, 7.1)."""
    lines = [line for line in event.text.splitlines() if line.strip()]
    if event.call.name != "bash" or not lines:
        return None
    return {"ToolCallID": event.call.id, "ToolName": event.call.name, "Partial": lines[-1][-_TAIL:]}


class Publication(msgspec.Struct, frozen=True):
    topic: str
    data: Any = None


class Topic(msgspec.Struct, frozen=True):
    topic: str


class BusGroup:
    """The bus for guests. `deliver` brings something to a guest: whoever serves its wire knows how. None: nobody does."""

    def __init__(self, bus: Bus, deliver: Callable[[str, str, int, Any], None] | None, limits: Limits | None = None) -> None:
        self._bus = bus
        self._deliver = deliver
        self._most = (limits or Limits()).registrations
        self.operations: Mapping[str, Operation[Any]] = {
            "publish": Operation(Publication, self.publish),
            "subscribe": Operation(Topic, self.subscribe),
        }

    async def publish(self, _guest: str, wanted: Publication) -> Data:
        self._bus.publish(wanted.topic, wanted.data)
        return {}

    async def subscribe(self, guest: str, wanted: Topic) -> Data:
        if (deliver := self._deliver) is None:
            raise Refused(f"{wanted.topic} cannot be brought to it: its dialect has no frame for that", who=guest)
        if self._bus.count(guest) >= self._most:
            raise Refused(f"it has too many subscriptions ({LimitHit('registrations', self._most)})", who=guest)
        return {"subscription_id": self._bus.subscribe(guest, wanted.topic, partial(deliver, guest))}

    def drop(self, guest: str) -> None:
        self._bus.drop(guest)

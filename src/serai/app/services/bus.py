"""The bus: what guests tell each other, by topic (spec piglet 7.1)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
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

# Takes the topic and the data. Must not wait: a slow reader is not the publisher's affair.
Deliver = Callable[[str, Any], None]


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
                one.deliver(topic, data)
                reached += 1
            except Exception:
                log.exception("%s could not be told of %s", one.guest, topic)
        return reached

    def subscribe(self, guest: str, topic: str, deliver: Deliver) -> Callable[[], None]:
        """From now on, until what this gives back is called. Each call makes another subscription."""
        self._last += 1
        id = self._last
        self._subscriptions[id] = _Subscription(guest, topic, deliver)

        def end() -> None:
            self._subscriptions.pop(id, None)

        return end

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


class BusGroup:
    """The bus for guests. To subscribe is no operation: its answers come later and more than once, so it is asked by a call of its
    own (`host.services.Services.subscribe`).
    """

    def __init__(self, bus: Bus, limits: Limits | None = None) -> None:
        self._bus = bus
        self._most = (limits or Limits()).registrations
        self.operations: Mapping[str, Operation[Any]] = {"publish": Operation(Publication, self.publish)}

    async def publish(self, _guest: str, wanted: Publication) -> Data:
        self._bus.publish(wanted.topic, wanted.data)
        return {}

    def subscribe(self, guest: str, topic: str, deliver: Deliver) -> Callable[[], None]:
        if self._bus.count(guest) >= self._most:
            raise Refused(f"it has too many subscriptions ({LimitHit('registrations', self._most)})", who=guest)
        return self._bus.subscribe(guest, topic, deliver)

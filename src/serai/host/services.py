"""What a guest may ask of Serai. The app answers; a host that is used alone answers nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from serai.errors import Refused

__all__ = ["GROUPS", "NoServices", "Services"]

# Services come in groups, so that a person can say which ones a guest may use.
GROUPS = (
    "tools", "config", "credentials", "chat", "conversation", "sessions", "models", "background", "control", "dialogs", "undo",
    "bus", "guests",
)  # fmt: skip


class Services(Protocol):
    """Host services, whatever dialect the asking guest speaks."""

    async def ask(self, guest: str, group: str, what: str, arguments: Mapping[str, Any]) -> Any:
        """Do it and give the result as JSON data; `Refused` says why not.

        Whoever is cancelled here ends what they asked for: the process of the guest is gone, or does not want it any more.
        """
        ...

    def subscribe(self, guest: str, topic: str, deliver: Callable[[str, Any], None]) -> Callable[[], None]:
        """Have `deliver(topic, data)` called for what is published, in order, until what this gives back is called.

        It belongs to one process of the guest, whose adapter ends it: a reload must not mix two. `Refused` says why not.
        """
        ...


class NoServices:
    """Nobody is there to serve."""

    async def ask(self, guest: str, group: str, what: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ARG002
        raise Refused(f"{group}.{what} is not to be had: this host runs without an app", who=guest)

    def subscribe(self, guest: str, topic: str, deliver: Callable[[str, Any], None]) -> Callable[[], None]:  # noqa: ARG002
        raise Refused(f"{topic} is not to be had: this host runs without an app", who=guest)

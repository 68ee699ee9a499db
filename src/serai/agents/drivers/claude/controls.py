"""What the control protocol can do besides turns (spec agents 2.7)."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any
from uuid import uuid4

import msgspec

from serai.agents.driver import Driver
from serai.agents.drivers.claude.connection import Connection
from serai.agents.drivers.claude.house import House
from serai.dialects.claude.neutral import FrameTranslator

__all__ = ["Controls", "object_of"]


class Controls(Driver):
    """A driver that has a connection; each of these raises what it refuses with, or why there is none."""

    house: House
    folding: FrameTranslator

    @abstractmethod
    def connected(self) -> Connection: ...

    def steer(self, text: str) -> None:
        """With an id of its own: when it comes too late and makes a turn, the result of that is not taken for another's."""
        connection = self.connected()
        connection.send(connection.ours.prompt(text, uuid=str(uuid4()), relayed=True))

    async def set_model(self, query: str) -> str:
        reply = object_of(await self.connected().request("set_model", {"model": query or None}))
        self.keep(model=query)
        return str(reply.get("model") or query)

    async def set_mode(self, mode: str) -> None:
        await self.connected().request("set_permission_mode", {"mode": mode})
        self.keep(permission_mode=mode)
        self.folding.mode = mode

    def keep(self, **choice: str) -> None:
        """A process that takes this one's place has it too, and a fork: nobody gets back what a person has tightened."""
        self.house.options = msgspec.structs.replace(self.house.options, **choice)

    async def stop_task(self, task_id: str) -> None:
        """End something that it does on the side."""
        await self.connected().request("stop_task", {"task_id": task_id})

    async def control(self, subtype: str, **fields: Any) -> Any:
        """Whatever else its control protocol has, such as `get_context_usage`; its answer."""
        return object_of(await self.connected().request(subtype, fields))


def object_of(raw: msgspec.Raw) -> dict[str, Any]:
    """An answer that should be an object."""
    try:
        value = msgspec.json.decode(raw) if bytes(raw) else {}
    except msgspec.MsgspecError:
        return {}
    return value if isinstance(value, dict) else {}

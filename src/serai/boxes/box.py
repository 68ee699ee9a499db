"""One box, as its user has it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from serai.boxes.backend import Instance
from serai.boxes.control import Control, ExecResult
from serai.boxes.record import BoxRecord, now
from serai.boxes.store import Store
from serai.errors import BoxRefused

if TYPE_CHECKING:
    from serai.boxes.manager import Boxes

__all__ = ["Box"]


class Box:
    """A handle: any number may exist of one box, also in other processes. `async with` destroys it at the end."""

    def __init__(self, boxes: Boxes, record: BoxRecord, instance: Instance, token: str = "") -> None:
        self._boxes = boxes
        self.record = record
        self.instance = instance
        self.token = token  # only who made it has it
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<box {self.id} {self.generation}: {self.record.state}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.destroy()

    @property
    def id(self) -> str:
        return self.record.box_id

    @property
    def generation(self) -> str:
        return self.record.generation

    @property
    def control(self) -> Control:
        """Its porter's wire, for all that has no method here: streams, terminals, files, ports, signals."""
        halted = self.instance.halted
        if halted:
            verb = {"paused": "resume", "frozen": "thaw"}[halted]
            raise BoxRefused(f'box "{self.id}" is {halted}; {verb} it before running commands', who=self.id)
        return self.instance.control()

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        stdin: bytes = b"",
    ) -> ExecResult:
        """Run a command to its end: a text in `/bin/sh -c`, a sequence as it is. A non-zero exit is a result (spec hooks 3.6)."""
        if isinstance(command, str):
            if not command.strip():
                raise BoxRefused("command is required", who=self.id)
            command = ["/bin/sh", "-c", command]
        return await self.control.exec(command, env=env or {}, cwd=cwd, timeout=timeout, stdin=stdin)

    async def pause(self) -> None:
        self.record = await self._boxes.pause(self.generation)

    async def resume(self) -> None:
        self.record = await self._boxes.resume(self.generation)

    async def freeze(self) -> None:
        self.record = await self._boxes.freeze(self.generation)

    async def thaw(self) -> None:
        self.record = await self._boxes.thaw(self.generation)

    async def destroy(self) -> str:
        """Idempotent. The answer is what went wrong with its hooks."""
        return await self._boxes.destroy(self.generation)

    async def refresh(self, **changes: object) -> BoxRecord:
        """Put on record what its backend sees of it now."""
        seen = self.instance.meta()
        observed = {"observed_name": seen.name, "observed_image": seen.image, "observed_state": seen.state, "observed_at": now()}
        await self._boxes.do(Store.change, self.generation, **observed, **changes)
        self.record = await self._boxes.record(self.generation)
        return self.record

    def arm(self, end: Callable[[BoxRecord, str], None]) -> None:
        """Have it end when its time to live is over, or when its processes do so by themselves."""
        self.disarm()
        if self.record.expires_at is not None:
            left = max(0.0, self.record.expires_at - time.time())
            self._timer = asyncio.get_running_loop().call_later(left, end, self.record, "its time to live is over")
        held = self.instance.held
        if held is not None:
            held.on_exit(lambda: end(self.record, "its processes ended") if self.instance.held is held else None)

    def disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

"""A program that runs for one call: what it says, within its time. When the call ends, so does its tree, as `wire` ends one."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from serai.errors import ExitStatus
from serai.limits import Limits
from serai.tools.output import Teller, both_ends
from serai.wire.process import Launch, Spawner, stop_child

__all__ = ["Ran", "run"]

_AT_ONCE = 0.001  # it has no input that it could end with


class Ran(NamedTuple):
    """What came of it: `status` is None when its time was over before."""

    status: ExitStatus | None
    output: str
    stderr: str
    total: int  # bytes that it wrote


async def run(spawner: Spawner, launch: Launch, seconds: float, limits: Limits, teller: Teller | None = None) -> Ran:
    """Run it to its end. Then, and at the end of its time, and when the call is cancelled, its whole tree is ended.

    However much it writes, `limits.tool_output` is kept. `SpawnFailed` when it cannot be started.
    """
    child = await spawner.spawn(launch)
    try:
        head = bytearray()
        tail = child.to_noise(child.stdout, limits.tool_output)

        def heard(chunk: bytes) -> None:
            if len(head) < limits.tool_output:
                head.extend(chunk[: limits.tool_output - len(head)])
            if teller is not None:
                teller.take(chunk)

        tail.on_chunk = heard
        exited = child.exited
        await asyncio.wait([exited], timeout=seconds)
        status = child.status
        exited.cancel()  # ours alone
    finally:
        await stop_child(child, limits.but(stop_polite=_AT_ONCE))
        if teller is not None:
            teller.finish()
    return Ran(status, both_ends(bytes(head), tail.last(), tail.total, limits.tool_output), child.stderr.text(), tail.total)

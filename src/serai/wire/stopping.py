"""The stop ladder: ask, close its input, SIGTERM, SIGKILL the tree. Every step is bounded, the last one always runs.

The whole ladder is its own task: a caller that is cancelled, or times out, leaves the ladder to finish alone (design rule 11). The
tree is swept even after a polite end, because a program may leave descendants behind that nobody asked for.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Literal, NamedTuple

from serai.errors import ExitStatus
from serai.limits import Limits
from serai.wire.process import Child

__all__ = ["Stopped", "stop"]

log = logging.getLogger("serai.wire")

Step = Literal["already", "polite", "term", "kill", "survived"]


class Stopped(NamedTuple):
    """How a child ended: the step of the ladder that did it, and its exit status (None if it would not die)."""

    step: Step
    exit: ExitStatus | None


Polite = Callable[[], Awaitable[None]]


async def stop(child: Child, limits: Limits, *, polite: Polite | None = None) -> Stopped:
    """Stop a child and everything it started.

    `polite` says goodbye in the dialect's way, such as `lambda: channel.farewell(frame)`; it shares its time with the child's end.
    """
    ladder = asyncio.get_running_loop().create_task(_ladder(child, limits, polite), name=f"stop {child.who}")
    return await asyncio.shield(ladder)


async def _ladder(child: Child, limits: Limits, polite: Polite | None) -> Stopped:
    step: Step = "already"
    try:
        if child.status is None:
            step = await _down(child, limits, polite)
    finally:
        await child.close()
    return Stopped("survived" if child.status is None else step, child.status)


async def _down(child: Child, limits: Limits, polite: Polite | None) -> Step:
    end = monotonic() + limits.stop_polite
    if polite is not None:
        try:
            async with asyncio.timeout(limits.stop_polite):
                await polite()
        except Exception as error:  # a full or broken pipe, a child that does not read: the next step does not need it
            log.debug("%s: no farewell: %s", child.who, error)
    child.close_descriptor(child.stdin)
    if await _exits(child, max(end - monotonic(), 0)):
        return "polite"
    # The group, so that a program behind a shell hears it too; what made its own session is for the last step.
    child.signal(signal.SIGTERM, group=True)
    if await _exits(child, limits.stop_term):
        return "term"
    return "kill"


async def _exits(child: Child, seconds: float) -> bool:
    exited = child.exited
    done, _ = await asyncio.wait([exited], timeout=seconds)
    exited.cancel()  # ours alone: what was waited for in vain is not kept
    return bool(done)

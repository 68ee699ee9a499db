"""What a driver watches of an agent's process: whether it is silent for too long (spec agents 2.14, 7.35), and its stderr."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Literal

from serai.limits import AgentLimits

_LINE = 65536


class SilenceTimer:
    """From its start to its first frame, and between the frames of a turn."""

    def __init__(self, limits: AgentLimits) -> None:
        self._limits = limits
        self.first_by = 0.0  # when it must have said something; 0: it has
        self._last = 0.0
        self._stalled = False

    def start(self) -> float:
        """It was started now; when to look."""
        self.first_by = monotonic() + self._limits.agent_first
        return self.first_by

    def record_activity(self) -> None:
        self.first_by = 0.0
        self._last = monotonic()
        self._stalled = False

    def start_turn(self) -> float:
        """A turn begins now; when to look."""
        self._last, self._stalled = monotonic(), False
        return self._last + self._limits.agent_silent

    def check(self, now: float, *, playing: bool, asking: bool) -> tuple[Literal["", "mute", "stalled"], float | None]:
        """What is wrong, and when to look again. While somebody is asked it waits for us, and not the other way round."""
        if self.first_by and now >= self.first_by:
            self.first_by = 0.0
            return "mute", None
        if not playing:
            return "", self.first_by or None
        at = self._last + self._limits.agent_silent
        if now < at:
            return "", min(at, self.first_by or at)
        again = now + self._limits.agent_silent
        if asking or self._stalled:  # which is told once, until it says something
            return "", again
        self._stalled = True
        return "stalled", again


async def wait_until(there: Callable[[], bool], changed: asyncio.Event, seconds: float) -> bool:
    """Whether it came about in time; looked at whenever something has changed."""
    try:
        async with asyncio.timeout(seconds):
            while not there():
                changed.clear()
                await changed.wait()
    except TimeoutError:
        return False
    return True


class StderrLines:
    """Chunks of stderr into lines, each told when it is whole; the beginning of a very long one is lost."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest[-_LINE:]
        for line in lines:
            self._tell(line.decode(errors="replace"))

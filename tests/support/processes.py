"""Receivers and taps that remember, for tests of the channel."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from collections.abc import Iterable
from time import monotonic
from typing import Literal, Self

from serai.errors import SeraiError
from serai.wire import process_tree
from serai.wire.stream import Oversize, split_lines


def lives(pid: int) -> bool:
    """Whether the process runs; an orphan's zombie waits for the machine's init and does not."""
    process = process_tree.read_process(pid)
    return process is not None and process.alive


class Ends:
    """Waits for processes that are not our children to end, by their descriptors."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._descriptors: dict[int, int] = {}
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                self._descriptors[os.pidfd_open(pid)] = pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)

    def left_after(self, seconds: float) -> set[int]:
        """The pids that still run when the time is up; returns as soon as there are none."""
        end = monotonic() + seconds
        left = dict(self._descriptors)
        while left and (remaining := end - monotonic()) > 0:
            ready, _, _ = select.select(list(left), [], [], remaining)
            for descriptor in ready:
                del left[descriptor]
        return set(left.values())


class Collector:
    """A receiver that keeps what it was given; `over` is done when the wire is lost."""

    def __init__(self) -> None:
        self.runs: list[bytes] = []
        self.oversized: list[Oversize] = []
        self.causes: list[SeraiError] = []
        self.ticks: list[float] = []
        self.over: asyncio.Future[SeraiError] = asyncio.get_running_loop().create_future()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def handle_run(self, run: bytes) -> None:
        self.runs.append(run)
        for count, future in self._waiting:
            if len(self.lines()) >= count and not future.done():
                future.set_result(None)

    def handle_oversize(self, frame: Oversize) -> None:
        self.oversized.append(frame)

    def handle_loss(self, cause: SeraiError) -> None:
        self.causes.append(cause)
        if not self.over.done():
            self.over.set_result(cause)

    def tick(self, now: float) -> float | None:
        self.ticks.append(now)
        return None

    def lines(self) -> list[bytes]:
        return [line for run in self.runs for line in split_lines(run)]

    async def wait_for(self, count: int) -> list[bytes]:
        """So many lines, as soon as they are there."""
        if len(self.lines()) < count:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((count, future))
            await future
        return self.lines()


class MemoryTap:
    """A tap that keeps everything."""

    def __init__(self) -> None:
        self.seen: list[tuple[Literal["sent", "received"], float, bytes]] = []
        self.skips: list[tuple[int, Oversize]] = []  # with how many runs came before
        self.ends: list[SeraiError] = []

    def frames(self, direction: Literal["sent", "received"], at: float, run: bytes) -> None:
        self.seen.append((direction, at, run))

    def skipped(self, at: float, frame: Oversize) -> None:
        self.skips.append((len(self.seen), frame))

    def ended(self, at: float, cause: SeraiError) -> None:
        self.ends.append(cause)

    def all(self, direction: Literal["sent", "received"]) -> bytes:
        return b"".join(run for way, _, run in self.seen if way == direction)

"""What tests of desks need: nothing left behind, and time that is up when a test says so."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.support.policy.approvals import MOMENT


@pytest.fixture(scope="module")
def _what_was_before() -> None:
    """It is no garbage of the tests here, and to walk it again for each of them takes longer than they do."""
    gc.collect()
    gc.freeze()


@pytest.fixture
async def nothing_left(_what_was_before: None) -> AsyncIterator[None]:
    """No task is left, and nothing went wrong that nobody looked at."""
    told: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context))
    before = asyncio.all_tasks()
    yield
    for _ in range(3):
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    gc.collect()
    await asyncio.sleep(0)
    assert not left
    assert not told


@pytest.fixture
def time_is_up(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Ends the time of what has the time-out MOMENT, which does not end by itself."""
    real = asyncio.timeout
    made: list[asyncio.Timeout] = []

    def timeout(seconds: float | None) -> asyncio.Timeout:
        if seconds != MOMENT:
            return real(seconds)
        made.append(real(None))
        return made[-1]

    monkeypatch.setattr(asyncio, "timeout", timeout)
    return lambda: made[-1].reschedule(asyncio.get_running_loop().time())

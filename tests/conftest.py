"""What all tests share: both event loops, and a house that is clean after each test."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

import pytest
import uvloop
from hypothesis import HealthCheck, settings

from serai.limits import Limits
from serai.wire.deadlines import Deadlines
from serai.wire.process import PlainSpawner
from tests.kept import KEPT

# For what is expected to happen: generous, so that a busy machine does not turn it into something else.
PATIENT = Limits().but(exit_grace=15.0, drain_grace=15.0, stop_polite=15.0, stop_term=15.0)
# For what never happens: short, so that waiting for it in vain is quick.
QUICK = Limits().but(exit_grace=0.2, drain_grace=0.2, stop_polite=0.2, stop_term=0.2)

# The suite starts thousands of interpreters, and whoever forbids them to keep what they compiled waits half as long again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Whoever starts the suite in the background (`&`, `nohup`) has it ignore these, and so would every program that is started in it. A
# handler of Python's is none of theirs.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)

# One example may come when the machine is busy with something else: how long it takes says nothing about it.
settings.register_profile("serai", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("serai")

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, LoopFactory]:
    """Every async test runs on asyncio and on uvloop."""
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """`-n auto`: one more than there are cores, for many tests wait for somebody else, who is busy or deliberately slow."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was made so far stays until the end: the garbage collector, which some tests call, need not walk ten thousand tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_descriptor_is_left() -> Iterator[None]:
    """A test that leaks a descriptor fails; sync tests only, a loop's own descriptors come and go outside of this."""
    before = set(os.listdir("/proc/self/fd"))
    yield
    left = set(os.listdir("/proc/self/fd")) - before - KEPT
    assert len(left) <= 1 + 4, f"descriptors left open: {sorted(left)}"  # the listing's own, and a loop's


@pytest.fixture
def environ() -> dict[str, str]:
    """A small environment that finds the machine's programs."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}


@pytest.fixture
def python() -> list[str]:
    """The quickest start of this interpreter."""
    return [sys.executable, "-I", "-S", "-c"]


@pytest.fixture
async def spawner() -> AsyncIterator[PlainSpawner]:
    async with PlainSpawner(QUICK) as spawner:
        yield spawner
    assert not spawner.children


@pytest.fixture
async def deadlines() -> AsyncIterator[Deadlines]:
    deadlines = Deadlines()
    yield deadlines
    deadlines.close()

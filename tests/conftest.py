"""What all tests share: event loops, skips for what is missing, and a check that each test leaves no descriptors open."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping

import pytest
import uvloop

from serai.limits import Limits
from serai.wire.event_loop import Deadlines
from serai.wire.plain_process import PlainSpawner
from tests.support import needs, profiles
from tests.support.memory_disk import make_memory_folder
from tests.support.open_descriptors import KEPT

# For what is expected to happen: generous, so that a busy machine does not turn it into something else.
PATIENT = Limits().but(exit_grace=15.0, drain_grace=15.0, stop_polite=15.0, stop_term=15.0)
# For what never happens: short, so that waiting for it in vain is quick.
QUICK = Limits().but(exit_grace=0.2, drain_grace=0.2, stop_polite=0.2, stop_term=0.2)

# The suite starts thousands of interpreters, and whoever forbids them to keep what they compiled waits half as long again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# A guest's `python3` is the one that runs the tests: others are slower to start where a version manager's script finds them.
os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])

# Whoever starts the suite in the background (`&`, `nohup`) has it ignore these, and so would every program that is started in it. A
# handler of Python's is none of theirs.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)

profiles.load_profile()

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--loops",
        choices=("marked", "both"),
        default="marked",
        help="which async tests run on uvloop, too: those marked `loops` (the default), or all",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Temporary folders are in memory where there is room, but for the deep profile, which is for the disk, too."""
    if config.option.basetemp is None and os.environ.get("HYPOTHESIS_PROFILE") != "deep":
        config.option.basetemp = make_memory_folder()


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, LoopFactory]:
    """Async tests run on asyncio. Those that are marked `loops` run on uvloop, too; with `--loops both` all do."""
    if config.getoption("--loops") == "both" or item.get_closest_marker("loops"):
        return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.SelectorEventLoop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests whose needs this machine does not meet."""
    for item in items:
        if reason := needs.missing(name for marker in item.iter_markers("needs") for name in marker.args):
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for all skipped tests: what is missing, and what to install."""
    reports = terminalreporter.getreports("skipped")
    if line := needs.summary(report.longrepr[2] for report in reports if isinstance(report.longrepr, tuple)):
        terminalreporter.line(line)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """`-n auto`: two more than there are cores, because many tests wait for a process that is busy or deliberately slow."""
    return len(os.sched_getaffinity(0)) + 2


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The ten thousand tests stay until the end: the garbage collector, which some tests call, need not walk them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
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

"""The extra `fast`: what it does where it is installed, and that nothing happens where nobody asked."""

from __future__ import annotations

import asyncio
import ctypes
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import uvloop

from serai.wire import event_loop
from tests.support.fresh_interpreters import run_fresh

# glibc tells how many blocks it has from the kernel one by one, and how much it could give back. The thresholds also
# move by themselves when a block is freed, and belong to the process: so each look has a process of its own.
LOOK = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
from serai.wire import event_loop

NAMES = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
Info = type("Info", (ctypes.Structure,), {"_fields_": [(name, ctypes.c_int) for name in NAMES]})
mallinfo = ctypes.CDLL(None).mallinfo
mallinfo.restype = Info
if sys.argv[2] == "raised":
    assert event_loop.raise_malloc_thresholds()
before = mallinfo().hblks
block = bytearray(4 * event_loop.MIB)
alone = mallinfo().hblks - before
del block
print(alone, mallinfo().keepcost >= 4 * event_loop.MIB)
"""

IMPORT_ALL = """
import sys
sys.path.insert(0, sys.argv[1])
from importlib import import_module
from pkgutil import iter_modules
import serai.wire

modules = sorted(module.name for module in iter_modules(serai.wire.__path__))
assert "channel" in modules
for name in modules:
    import_module(f"serai.wire.{name}")
print("uvloop" in sys.modules)
from serai.wire import event_loop
print("uvloop" in sys.modules)
event_loop.find_loop_factory()
print("uvloop" in sys.modules)
"""


# What wakes a loop when a signal comes, while it sleeps, to another thread; and who is woken by signals afterwards. In a process of
# its own, as the kernel interrupts who sleeps for other reasons, too, where uvloop has been at work.
WAKE = """
import sys
sys.path.insert(0, sys.argv[1])
if sys.argv[2] == "none":
    sys.modules["uvloop"] = None
import asyncio, os, signal, threading
from serai.wire import event_loop

woken, done = [], threading.Event()

def sleeps():
    with open(f"/proc/self/task/{os.getpid()}/syscall") as file:
        call = file.read().split()  # its number and its arguments: a descriptor, where to put events, how many, the time
    try:
        return int(call[4], 16) and "eventpoll" in os.readlink(f"/proc/self/fd/{int(call[1], 16)}")
    except (IndexError, OSError):
        return False

def signalled():
    while not sleeps():
        pass
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
    done.wait()

async def main():
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    def came(what):
        woken.append(what)
        over.set()
    signal.signal(signal.SIGUSR1, lambda *_: loop.call_soon_threadsafe(came, "signal"))
    timer = loop.call_later(20, came, "timer")  # which wakes it as well
    loop.call_soon(threading.Thread(target=signalled).start)
    await over.wait()
    timer.cancel()
    done.set()
    return type(loop).__module__.partition(".")[0]

print(event_loop.run(main()), *woken, signal.set_wakeup_fd(-1))
"""


async def get_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


@pytest.fixture
def raised(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which times the thresholds were raised, instead of doing it to the process of the tests."""
    times: list[str] = []
    monkeypatch.setattr(event_loop, "raise_malloc_thresholds", lambda: times.append("raised"))
    return times


@pytest.fixture
def without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)  # what the import system takes as: there is none


@pytest.mark.req("wire.fast.loop")
def test_the_loop_is_uvloops() -> None:
    with asyncio.Runner(loop_factory=event_loop.find_loop_factory()) as runner:
        assert isinstance(runner.get_loop(), uvloop.Loop)


@pytest.mark.req("wire.fast.loop")
@pytest.mark.usefixtures("without_uvloop")
def test_without_uvloop_there_is_no_factory() -> None:
    assert event_loop.find_loop_factory() is None


@pytest.mark.req("wire.fast.malloc")
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="not glibc")
def test_with_raised_thresholds_a_large_block_is_the_heaps_own_and_is_kept() -> None:
    assert run_fresh(LOOK, "as it is") == ["1", "False"]
    assert run_fresh(LOOK, "raised") == ["0", "True"]


@pytest.mark.req("wire.fast.malloc-absent")
@pytest.mark.parametrize("error", [OSError, TypeError])
def test_without_a_c_library_nothing_is_raised(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def cdll(name: None) -> None:
        raise error

    monkeypatch.setattr(ctypes, "CDLL", cdll)
    assert event_loop.raise_malloc_thresholds() is False


@pytest.mark.req("wire.fast.malloc-absent")
def test_without_mallopt_nothing_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    assert event_loop.raise_malloc_thresholds() is False


@pytest.mark.req("wire.fast.malloc-absent")
@pytest.mark.parametrize("taken", [set(), {-1}, {-3}, {-1, -3}])
def test_it_is_true_only_when_both_were_taken(monkeypatch: pytest.MonkeyPatch, taken: set[int]) -> None:
    asked: list[int] = []

    def mallopt(which: int, value: int) -> int:
        asked.append(which)
        return int(which in taken)

    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    assert event_loop.raise_malloc_thresholds() is (taken == {-1, -3})
    assert set(asked) == {-1, -3}


@pytest.mark.req("wire.fast.run")
def test_run_has_both_when_the_extra_is_installed(raised: list[str]) -> None:
    assert isinstance(event_loop.run(get_loop()), uvloop.Loop)
    assert raised == ["raised"]


@pytest.mark.req("wire.fast.run")
@pytest.mark.usefixtures("without_uvloop")
def test_run_is_plain_asyncio_without_the_extra(raised: list[str]) -> None:
    loop = event_loop.run(get_loop())
    assert isinstance(loop, asyncio.SelectorEventLoop)
    assert loop.is_closed()
    assert not raised


@pytest.mark.req("wire.fast.signals")
@pytest.mark.parametrize("extra", ["fast", "none"])
def test_a_signal_that_another_thread_gets_wakes_the_loop(extra: str) -> None:
    assert run_fresh(WAKE, extra) == [{"fast": "uvloop", "none": "asyncio"}[extra], "signal", "-1"]


@pytest.mark.usefixtures("without_uvloop")
def test_a_run_on_another_thread_takes_no_signals(raised: list[str]) -> None:
    with ThreadPoolExecutor(1) as pool:
        assert isinstance(pool.submit(event_loop.run, get_loop()).result(), asyncio.SelectorEventLoop)


@pytest.mark.req("wire.fast.run")
def test_run_hands_on_what_was_raised(raised: list[str]) -> None:
    async def fails() -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        event_loop.run(fails())


@pytest.mark.req("wire.fast.asked")
def test_the_wire_loads_uvloop_only_when_asked() -> None:
    assert run_fresh(IMPORT_ALL) == ["False", "False", "True"]

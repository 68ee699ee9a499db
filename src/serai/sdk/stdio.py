"""The standard streams of an extension: stdout is the wire, and nothing else may get on it.

Frames have copies of descriptors 0 and 1 for themselves; 1 then leads to stderr and 0 to nothing, so that neither a `print`, nor a
library, nor a child process can write to the wire or read from it. A forked copy of the program loses the wire. A host of piglet
talks over descriptors 3 and 4 instead, which are hidden in the same way (spec piglet 2.1). No file objects here: at Python's end
one that a thread still reads from would be fatal.

`StderrLog` writes to stderr, where the host keeps a log. `OrderedOutput` keeps the order: hello comes first, or the host does.

`ProgramEnd` is how a program ends: its host says so, is gone, or a signal comes. A signal handler that raised could break off a
frame, or be swallowed by a destructor: these only leave word.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from _thread import allocate_lock
from collections.abc import Callable, Iterator
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from serai.errors import BadExtension

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from serai.sdk.adapters import Adapter
    from serai.sdk.dispatcher import Dispatcher
    from serai.sdk.registrations import Registrations

_CHUNK = 65536
_LOOK = 0.1  # seconds between two looks whether a writer that is held up should give up


class Source(Protocol):
    """Where lines come from: of a binary stream no more is used."""

    def readline(self, limit: int, /) -> bytes: ...


class Reader:
    """The lines of a descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = bytearray()
        self._looked = 0  # so far there is no line end in the rest

    def readline(self, limit: int, /) -> bytes:
        """The next line, at most so many bytes of it; nothing at the end, which a host that is gone is too."""
        while True:
            end = self._rest.find(b"\n", self._looked) + 1
            if end or len(self._rest) >= limit:
                return self._cut(min(end or limit, limit))
            self._looked = len(self._rest)
            chunk = self._read()
            if not chunk:
                return self._cut(len(self._rest))
            self._rest += chunk

    def peek(self) -> bytes:
        """What is there already, without waiting for more."""
        if self._is_readable():
            self._rest += self._read()
        return bytes(self._rest)

    @property
    def behind(self) -> bool:
        """Whether there is more than was read; from any thread."""
        return bool(self._rest) or self._is_readable()

    def _is_readable(self) -> bool:
        import select

        return bool(select.select([self._descriptor], [], [], 0)[0])

    def _cut(self, length: int) -> bytes:
        line = bytes(self._rest[:length])
        del self._rest[:length]
        self._looked = 0
        return line

    def _read(self) -> bytes:
        while True:
            try:
                return os.read(self._descriptor, _CHUNK)
            except BlockingIOError:  # somebody who shares the pipe made it so
                import select

                select.select([self._descriptor], [], [])
            except OSError:
                return b""


class Writer:
    """Whole frames, from any thread. When the host is gone, or takes nothing until `give_up_by`, they go nowhere."""

    def __init__(self, stream: BinaryIO | int) -> None:
        from _thread import allocate_lock  # what `threading.Lock` is, without the import

        self._lock = allocate_lock()
        self._gone = False
        self._deadline: float | None = None
        self._stream = stream
        if isinstance(stream, int):
            os.set_blocking(stream, False)  # or a host that reads nothing could not be left

    def give_up_by(self, deadline: float) -> None:
        """For a signal handler, too."""
        self._deadline = deadline

    def abandon(self) -> None:
        """Write no more: this is a forked copy."""
        from _thread import allocate_lock

        self._lock, self._gone = allocate_lock(), True
        if isinstance(self._stream, int):
            os.close(self._stream)

    def write(self, frame: bytes) -> None:
        with self._lock:
            left = memoryview(frame)
            while left and not self._gone:
                try:
                    left = left[self._write_some(left) :]
                except BlockingIOError:
                    self._wait_writable()
                except (OSError, ValueError):  # a broken pipe, or a stream that was closed
                    self._gone = True

    def _write_some(self, data: memoryview) -> int:
        if isinstance(self._stream, int):
            return os.write(self._stream, data)
        written: int | None = self._stream.write(data)
        if written is None:  # a raw stream that would have to wait
            raise BlockingIOError
        self._stream.flush()
        return written

    def _wait_writable(self) -> None:
        """Wait until the host takes more. After half a frame nothing may follow, so giving up is for good."""
        import select

        if self._deadline is not None and monotonic() >= self._deadline:
            self._gone = True
            return
        select.select([], [self._stream], [], _LOOK)


# The streams belong to the process, so what was taken of them does too: a second extension in one program finds it here.
_taken: dict[tuple[int, int], tuple[Reader, Writer]] = {}


def take_wire(descriptors: tuple[int, int] = (0, 1)) -> tuple[Reader, Writer]:
    """The wire, input and output. The first call moves everybody else away from it."""
    if descriptors in _taken:
        return _taken[descriptors]
    from fcntl import F_DUPFD_CLOEXEC, fcntl

    standard = descriptors == (0, 1)
    try:
        reading, writing = (fcntl(number, F_DUPFD_CLOEXEC, 3) for number in descriptors)  # 2 may be free, and is not ours to take
    except OSError:
        what = (
            "its standard input or output"
            if standard
            else "descriptor {} or {}, where its host was to be heard,".format(*descriptors)
        )
        raise BadExtension(f"{what} is closed", hint="a host starts it with pipes at both") from None
    if standard:
        _redirect_to_stderr()
    else:  # whoever prints keeps its stdout, which the host logs; nobody else needs these two, least of all a child process
        for number in descriptors:
            os.close(number)
        _redirect_to_null(0)
    # What was printed before and is still buffered goes out now, and what follows gets there line by line.
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(line_buffering=True)
    reader, writer = Reader(reading), Writer(writing)

    def close_in_child() -> None:
        writer.abandon()
        os.close(reading)

    os.register_at_fork(after_in_child=close_in_child)
    _taken[descriptors] = reader, writer
    return reader, writer


def _redirect_to_stderr() -> None:
    """Standard input is nothing and standard output is stderr from now on; without one both are nothing."""
    _redirect_to_null(0)
    try:
        os.dup2(2, 1)
    except OSError:
        _redirect_to_null(1, 2)


def _redirect_to_null(*numbers: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in numbers:
        os.dup2(nothing, number)
    if nothing > 2:
        os.close(nothing)


def is_started_by_host(descriptors: tuple[int, int] = (0, 1)) -> bool:
    """Whether a program was started by another one that talks to it: both streams are pipes or sockets."""
    import stat

    try:
        modes = [os.fstat(number).st_mode for number in descriptors]
    except OSError:
        return False
    return all(stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) for mode in modes)


_FRAMES = 6  # of a trace: the last ones are the author's
_TEXT = 2000


class StderrLog:
    def __init__(self, name: str) -> None:
        self._name = name

    def say(self, text: str) -> None:
        try:
            sys.stderr.write("".join(f"[{self._name}] {line}\n" for line in text.split("\n")))
            sys.stderr.flush()
        except (AttributeError, OSError, ValueError):  # there is no stderr, or it was closed: nobody reads it anyway
            pass

    def trace(self, what: str, error: BaseException) -> None:
        """What went wrong, and the few lines of code that lead there."""
        lines = [f"{what}: {format_error(error)}", *_format_frames(error.__traceback__)]
        if (cause := error.__cause__) is not None:
            lines += [f"  because of {format_error(cause)}", *_format_frames(cause.__traceback__)]
        self.say("\n".join(lines))


def format_error(error: BaseException, *, named: bool = True) -> str:
    """An exception for whoever asked, a model or a person."""
    try:
        text = str(error)
    except Exception:  # an exception's own defect must not hide it
        text, named = "", True
    if not named:
        return text
    name = type(error).__name__
    return f"{name}: {text[:_TEXT]}" if text else name


def _format_frames(trace: TracebackType | None) -> list[str]:
    import traceback

    here = __file__.rpartition("/")[0]
    frames = [frame for frame in traceback.extract_tb(trace) if not frame.filename.startswith(here)]
    return [f"  {frame.filename.rpartition('/')[2]}:{frame.lineno} in {frame.name}: {frame.line}" for frame in frames[-_FRAMES:]]


Frame = Callable[["Adapter"], bytes]


class OrderedOutput:
    """What goes out, from any thread. What is said before there is a host to hear it waits."""

    def __init__(self, registry: Registrations, remarks: StderrLog) -> None:
        self._registry, self._remarks = registry, remarks
        self._lock = allocate_lock()
        self._early: list[Frame] = []
        self._adapter: Adapter | None = None
        self._writer: Writer | None = None  # once something may be said
        self._offered = 0  # how many of the offers are out
        self._offering = False
        self._mute = False

    def __call__(self, frame: Frame) -> None:
        if self._mute:
            return
        writer, adapter = self._writer, self._adapter
        if writer is None or adapter is None:
            with self._lock:
                writer, adapter = self._writer, self._adapter
                if writer is None or adapter is None:
                    self._early.append(frame)
                    return
        line = frame(adapter)
        if len(line) > adapter.max_line:
            raise ValueError(f"this has {len(line)} bytes, and {adapter.dialect} carries {adapter.max_line}")
        writer.write(line)

    def open(self, adapter: Adapter, writer: Writer, *, offer: bool) -> None:
        """From now on everything goes out at once: first, perhaps, what is offered, and then what was said before."""
        with self._lock:  # who has something to say meanwhile says it behind
            self._adapter = adapter
            if offer:
                self._write_offers(adapter, writer)
            early, self._early = self._early, []
            for line in self._iter_fitting(adapter, early):
                writer.write(line)
            self._writer = writer

    def pause(self) -> None:
        """It was another host than was thought: nothing more goes out until that has spoken."""
        with self._lock:
            self._writer, self._offering = None, False

    def silence(self) -> None:
        """There is no wire, and will be none: what is said is dropped."""
        self._mute, self._early = True, []

    def offer(self) -> None:
        """Say all that is offered; what comes later is said as it comes."""
        assert self._adapter is not None
        assert self._writer is not None
        with self._lock:
            self._write_offers(self._adapter, self._writer)

    def offer_later(self) -> None:
        """Something was added: if the others are out already, it follows them."""
        with self._lock:
            adapter, writer = self._adapter, self._writer
            if not self._offering or adapter is None or writer is None:
                return
            for late in self._registry.offers[self._offered :]:
                self._offered += 1
                line = adapter.encode_registration(late, self._registry)
                self._check_size(adapter, line)
                if line:
                    writer.write(line)
                else:
                    text = f"{adapter.dialect} takes nothing more once it is ready"
                    self._remarks.say(f"the {late.kind} {late.name} is not offered: {text}")

    def _write_offers(self, adapter: Adapter, writer: Writer) -> None:
        opening = adapter.encode_opening(self._registry)
        self._check_size(adapter, opening)
        self._offered, self._offering = len(self._registry.offers), True
        writer.write(opening)

    def _check_size(self, adapter: Adapter, opening: bytes) -> None:
        if (longest := max(map(len, opening.splitlines(keepends=True)), default=0)) > adapter.max_line:
            text = f"one of its tools has a registration of {longest} bytes, and {adapter.dialect} carries {adapter.max_line}"
            raise BadExtension(text, hint="shorten its schema or its description")

    def _iter_fitting(self, adapter: Adapter, early: list[Frame]) -> Iterator[bytes]:
        for frame in early:
            if len(line := frame(adapter)) <= adapter.max_line:
                yield line
            else:
                self._remarks.say(f"what was said before there was a host has {len(line)} bytes and is left out")


_TAKEN = 0.9  # seconds after a signal in which a host has to take what is still to be written
_HEARD = 0.2  # seconds after a signal in which what the host has said already is heard
_AT_EXIT = 0.2  # seconds for `atexit` functions when a handler hangs


class ProgramEnd:
    """What ends the program. The first signal decides the exit status; further ones change nothing, for the end has a deadline.

    The system may give a signal to any thread, and only the main one runs Python's handler: a pipe wakes it (`set_wakeup_fd`).
    """

    def __init__(self, writer: Writer) -> None:
        self.status = 0
        self.reason = ""  # what the reader says
        self._writer = writer
        self._wake, self._waking = os.pipe()
        self._before: dict[int, Any] = {}
        self._woken_before = -1

    def watch(self) -> None:
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, lambda number, _frame: self.handle_signal(number))
        except ValueError:  # not the main thread: whoever runs that decides
            return
        os.set_blocking(self._waking, False)
        self._woken_before = signal.set_wakeup_fd(self._waking, warn_on_full_buffer=False)

    def handle_signal(self, number: int) -> None:
        self.status = self.status or 128 + number
        self._writer.give_up_by(monotonic() + _TAKEN)

    def report_end(self, reason: str) -> None:
        """The reader has come to an end; from its thread."""
        self.reason = reason
        os.write(self._waking, b"\0")

    def wait(self, dispatcher: Dispatcher) -> str:
        """Until there is something; "signal", or what the reader said."""
        while not (self.reason or self.status):
            os.read(self._wake, 64)
        deadline = monotonic() + _HEARD
        while not self.reason and dispatcher.has_unread_input and (left := deadline - monotonic()) > 0:
            select.select([self._wake], [], [], min(left, _HEARD / 10))
        return self.reason or "signal"

    def restore(self) -> None:
        if self._before:
            signal.set_wakeup_fd(self._woken_before)
        for number, before in self._before.items():
            signal.signal(number, before)


def serve(dispatcher: Dispatcher, reading: Source, ending: ProgramEnd) -> None:
    """Until the end; then the program goes on, or leaves with a status."""
    from threading import Thread

    Thread(target=lambda: ending.report_end(_read_to_end(dispatcher, reading)), name="reader", daemon=True).start()
    dispatcher.begin()
    if ending.wait(dispatcher) == "goodbye":
        dispatcher.send_shutdown_ack()
    ended = dispatcher.leave(_get_grace(ending))
    ending.restore()
    status = ending.status or int(ending.reason == "broken")
    if not ended:
        _exit_now(status)
    if status:
        sys.exit(status)


async def serve_on_loop(dispatcher: Dispatcher, reading: Source, ending: ProgramEnd) -> None:
    """The same on a loop that is somebody else's. A status is raised as `SystemExit`."""
    import asyncio
    from threading import Thread

    loop = asyncio.get_running_loop()
    over = loop.create_future()

    def finish(reason: str) -> None:
        if not over.done():
            over.set_result(reason)

    def on_signal() -> None:
        ending.handle_signal(signal.SIGTERM)
        finish("signal")

    def read() -> None:
        reason = _read_to_end(dispatcher, reading)
        try:
            loop.call_soon_threadsafe(finish, reason)
        except RuntimeError:  # it is closed: nobody waits any more
            pass

    before = signal.getsignal(signal.SIGTERM)
    try:
        loop.add_signal_handler(signal.SIGTERM, on_signal)
    except (NotImplementedError, RuntimeError, ValueError):  # not the main thread
        before = None
    dispatcher.begin(loop)
    Thread(target=read, name="reader", daemon=True).start()
    reason = ""
    try:
        reason = await over
        if reason == "goodbye":
            await _run_on_thread(dispatcher.send_shutdown_ack)
    finally:
        await _run_on_thread(lambda: dispatcher.leave(_get_grace(ending)))
        if before is not None:
            loop.remove_signal_handler(signal.SIGTERM)
            signal.signal(signal.SIGTERM, before)
    if status := ending.status or int(reason == "broken"):
        raise SystemExit(status)


def _get_grace(ending: ProgramEnd) -> float:
    from serai.sdk.dispatcher import GRACE, SHORT_GRACE

    return SHORT_GRACE if ending.status else GRACE


def _read_to_end(dispatcher: Dispatcher, reading: Source) -> str:
    try:
        return "goodbye" if dispatcher.read(reading) else "gone"
    except BaseException:  # our own defect: told, and the end all the same
        import traceback

        traceback.print_exc()
        return "broken"


def _run_on_thread(act: Any) -> Awaitable[None]:
    """On a thread of its own: those of the loop may all be busy."""
    import asyncio
    from threading import Thread

    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def finish() -> None:
        if not done.done():
            done.set_result(None)

    def run() -> None:
        act()
        loop.call_soon_threadsafe(finish)

    Thread(target=run, name="leaving", daemon=True).start()
    return asyncio.shield(done)


def _exit_now(status: int) -> None:
    """A handler that ignores its end runs on a thread, which at Python's own end may hold a lock of stderr: no waiting for that."""
    import atexit
    from threading import Thread

    last = Thread(target=atexit._run_exitfuncs, name="at exit", daemon=True)
    last.start()
    last.join(_AT_EXIT)
    os._exit(status)

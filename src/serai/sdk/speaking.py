"""When what may be said: hello comes first, or the host does."""

from __future__ import annotations

from _thread import allocate_lock  # what `threading.Lock` is, without the import
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from serai.errors import BadExtension

if TYPE_CHECKING:
    from serai.sdk.adapters import Adapter
    from serai.sdk.book import Book
    from serai.sdk.remarks import Remarks
    from serai.sdk.stdio import Writer

__all__ = ["Speaking"]

Frame = Callable[["Adapter"], bytes]


class Speaking:
    """What goes out, from any thread. What is said before there is a host to hear it waits."""

    def __init__(self, book: Book, remarks: Remarks) -> None:
        self._book, self._remarks = book, remarks
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
            for line in self._fitting(adapter, early):
                writer.write(line)
            self._writer = writer

    def wait(self) -> None:
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
            for late in self._book.offers[self._offered :]:
                self._offered += 1
                line = adapter.registration(late, self._book)
                self._check(adapter, line)
                if line:
                    writer.write(line)
                else:
                    text = f"{adapter.dialect} takes nothing more once it is ready"
                    self._remarks.say(f"the {late.kind} {late.name} is not offered: {text}")

    def _write_offers(self, adapter: Adapter, writer: Writer) -> None:
        opening = adapter.opening(self._book)
        self._check(adapter, opening)
        self._offered, self._offering = len(self._book.offers), True
        writer.write(opening)

    def _check(self, adapter: Adapter, opening: bytes) -> None:
        if (longest := max(map(len, opening.splitlines(keepends=True)), default=0)) > adapter.max_line:
            text = f"one of its tools has a registration of {longest} bytes, and {adapter.dialect} carries {adapter.max_line}"
            raise BadExtension(text, hint="shorten its schema or its description")

    def _fitting(self, adapter: Adapter, early: list[Frame]) -> Iterator[bytes]:
        for frame in early:
            if len(line := frame(adapter)) <= adapter.max_line:
                yield line
            else:
                self._remarks.say(f"what was said before there was a host has {len(line)} bytes and is left out")

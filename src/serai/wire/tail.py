"""Descriptors that must always be drained, of which the last bytes are kept.

An undrained stderr blocks its writer after 64 KiB and looks like a time-out; a discarded one hides the only reason for a
crash (design rule 2).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable

from serai.wire.pipes import capacity
from serai.wire.poller import Readers

__all__ = ["FileTail", "Tail"]

log = logging.getLogger("serai.wire")
_READ = 65536


class Tail:
    """Reads a descriptor until its end, keeps at most `limit` last bytes, and hands each chunk on as it comes."""

    __slots__ = ("_descriptor", "_kept", "_limit", "_readers", "on_chunk", "total")

    def __init__(self, descriptor: int, limit: int, readers: Readers | None = None) -> None:
        self._descriptor = descriptor
        self._limit = limit
        self._kept = bytearray()
        self.total = 0
        self.on_chunk: Callable[[bytes], None] | None = None
        self._readers = readers or asyncio.get_running_loop()
        self._readers.add_reader(descriptor, self._readable)

    @property
    def closed(self) -> bool:
        return self._descriptor < 0

    def last(self) -> bytes:
        """The last bytes, at most `limit` of them."""
        return bytes(self._kept[-self._limit :])

    def text(self) -> str:
        """The same as text; what is no UTF-8 is replaced."""
        return self.last().decode(errors="replace")

    def drain(self) -> None:
        """Take what is there now, up to a pipe's worth: for the moment a peer's end is reported. Somebody may write without end."""
        reads = 0 if self.closed else max(self._limit, capacity(self._descriptor)) // _READ + 1
        for _ in range(reads):
            if not self._readable():
                return

    def close(self) -> None:
        """Stop reading; what was kept stays. Idempotent."""
        if not self.closed:
            self._readers.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _readable(self) -> bool:
        try:
            chunk = os.read(self._descriptor, _READ)
        except BlockingIOError:
            return False
        except OSError as error:
            log.debug("reading descriptor %d: %s", self._descriptor, error)
            chunk = b""
        if not chunk:
            self.close()
            return False
        self._keep(chunk)
        return True

    def _keep(self, chunk: bytes) -> None:
        self.total += len(chunk)
        self._kept += chunk
        if len(self._kept) > 2 * self._limit:  # cut seldom, so that each byte is moved at most once
            del self._kept[: -self._limit]
        if self.on_chunk is not None:
            try:
                self.on_chunk(chunk)
            except Exception:
                log.exception("a listener to a drained descriptor failed")


class FileTail(Tail):
    """The end of a file that its writer appends to by itself: nothing to drain, however much it writes (spec zot 7.40).

    Only what comes after the descriptor's position counts. Should somebody make the file shorter meanwhile, it starts anew.
    """

    __slots__ = ("_remarks", "_start")

    def __init__(self, descriptor: int, limit: int, remarks: bytes = b"") -> None:
        """Lines that begin with `remarks` are somebody else's and left out."""
        self._remarks = remarks
        self._descriptor = descriptor
        self._limit = limit
        self._kept = bytearray()
        self._start = os.lseek(descriptor, 0, os.SEEK_CUR)
        self.on_chunk = None

    @property
    def total(self) -> int:  # type: ignore[override]
        return len(self._kept) if self.closed else max(os.fstat(self._descriptor).st_size - self._start, 0)

    def last(self) -> bytes:
        self.drain()
        if not self._remarks or self._remarks not in self._kept:
            return bytes(self._kept)
        return b"".join(line for line in self._kept.splitlines(keepends=True) if not line.startswith(self._remarks))

    def drain(self) -> None:
        """See what is there now."""
        if self.closed:
            return
        size = os.fstat(self._descriptor).st_size
        self._start = self._start if size >= self._start else 0
        begin = max(self._start, size - self._limit)
        self._kept = bytearray(os.pread(self._descriptor, size - begin, begin))

    def close(self) -> None:
        if not self.closed:
            self.drain()
            os.close(self._descriptor)
            self._descriptor = -1

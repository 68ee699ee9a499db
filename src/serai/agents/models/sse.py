"""Server-sent events, sans-IO: bytes in, the data of each event out. Names, ids and comments are of no use here."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["EventTooLong", "Events"]


class EventTooLong(Exception):
    """One event is longer than everything the answer may hold."""


class Events:
    """Cuts a stream into the data of its events. The SDKs' own decoders hold a line of any length; this one does not."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._line: list[bytes] = []  # of a line whose end has not come: joined once, however many pieces it has
        self._begun = 0  # bytes of that line
        self._data: list[bytes] = []  # of an event whose end has not come
        self._held = 0  # bytes of that event

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The data of every event that is complete with this piece."""
        *lines, rest = piece.split(b"\n")
        for line in lines:
            if self._line:
                self._line.append(line)
                whole = b"".join(self._line)
                self._line.clear()
                self._begun = 0
            else:
                whole = line
            whole = whole.removesuffix(b"\r")
            if whole:
                self._take(whole)
            elif self._data:
                yield self._event()
        if rest:
            self._line.append(rest)
            self._begun += len(rest)
            self._check()

    def end(self) -> Iterator[bytes]:
        """What was complete but for its empty line: servers have been seen to leave the last one out."""
        whole = b"".join(self._line).removesuffix(b"\r")
        self._line.clear()
        self._begun = 0
        if whole:
            self._take(whole)
        if self._data:
            yield self._event()

    def _take(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            data = line[6:] if line[5:6] == b" " else line[5:]
            self._data.append(data)
            self._held += len(data)
            self._check()

    def _check(self) -> None:
        if self._begun + self._held > self._most:
            raise EventTooLong

    def _event(self) -> bytes:
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        self._data.clear()
        self._held = 0
        return data

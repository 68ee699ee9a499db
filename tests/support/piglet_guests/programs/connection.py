"""The wire of a stand-in guest: lines of JSON to and from its host, and the requests that it has open there."""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

Message = dict[str, Any]
LONGEST = 4 * 1024 * 1024  # bytes of a line (spec piglet 2.2)
FD, STDIO = (3, 4), (0, 1)
_LATE = 0.05  # seconds for an answer to a request that was taken back, as the Go SDK waits (spec piglet 2.6)
_LOOK = 0.002
_LOOK_UP = 0.2


class Connection:
    """Two descriptors, a lock for what is written, and the answers that are waited for. All threads of the guest use it."""

    def __init__(self, reading: int, writing: int, journal: str = "") -> None:
        self.reading, self.writing = reading, writing
        self.seen: list[Message] = []  # every message of the host, in order
        self.strange: list[Message] = []  # those that the Go SDK drops for their id
        self._journal = open(journal, "a", buffering=1) if journal else None
        self._lock = threading.Lock()
        self._heard = threading.Condition()
        self._last = 0
        self._answers: dict[int, Message | None] = {}

    # -- to the host -----------------------------------------------------------------------------------------------------------

    def write(self, raw: bytes) -> None:
        """One line or several, whole: nobody writes in between."""
        with self._lock:
            rest = memoryview(raw)
            while rest:
                rest = rest[os.write(self.writing, rest) :]

    def send(self, **members: object) -> None:
        message = {"jsonrpc": "2.0", **members}
        self._note("out", message)
        self.write(json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace") + b"\n")

    def notify(self, method: str, params: object = None) -> None:
        self.send(method=method, **({} if params is None else {"params": params}))

    def request(self, method: str, params: object = None, *, cancelled: threading.Event, when: str = "") -> Message:
        """The answer of the host, raw: `{"result": …}` or `{"error": …}`.

        Taken back when the caller's own request is cancelled, or when there is a file `when`.
        """
        with self._heard:
            self._last += 1
            id = self._last
            self._answers[id] = None
        self.send(id=id, method=method, **({} if params is None else {"params": params}))
        given_up, deadline = False, 0.0
        with self._heard:
            while (answer := self._answers[id]) is None:
                if not given_up and (cancelled.is_set() or (when and os.path.exists(when))):
                    self.notify("$/cancelRequest", {"id": id})
                    given_up, deadline = True, time.monotonic() + (60.0 if when else _LATE)
                if given_up and time.monotonic() > deadline:
                    answer = {"error": {"code": 0, "message": "context canceled"}}
                    break
                self._heard.wait(_LOOK)
            del self._answers[id]
        return {key: answer[key] for key in ("result", "error") if key in answer}

    def heard(self, method: str, count: int, cancelled: threading.Event) -> list[Message]:
        """The messages of one method so far; waits until there are so many."""
        with self._heard:
            while len(found := [message for message in self.seen if message.get("method") == method]) < count:
                if cancelled.is_set():
                    break
                self._heard.wait(_LOOK)
        return found

    def answered(self, id: object, cancelled: threading.Event) -> Message:
        """The answer under an id that is no integer: only a stand-in asks under one."""
        while not (found := [message for message in self.strange if message.get("id") == id]):
            if cancelled.wait(_LOOK):
                return {}
        return found[-1]

    # -- from the host ---------------------------------------------------------------------------------------------------------

    def messages(self) -> Iterator[Message]:
        """Requests and notifications, as they come; answers go to whoever waits for them. Ends with the input."""
        for line in self._lines():
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if not isinstance(message, dict):
                continue
            self._note("in", message)
            with self._heard:
                if not _is_usable(message.get("id")):
                    self.strange.append(message)
                    continue
                self.seen.append(message)
                if not message.get("method"):
                    if message.get("id") in self._answers:
                        self._answers[message["id"]] = message
                    message = {}
                self._heard.notify_all()
            if message:
                yield message

    def _lines(self) -> Iterator[bytes]:
        """A long line is put together once, not with each piece that comes."""
        pieces: list[bytes] = []
        length = 0
        while chunk := self._read():
            *ends, rest = chunk.split(b"\n")
            for end in ends:
                length += len(end)
                if length > LONGEST:
                    sys.exit("a line of the host is too long")
                yield b"".join([*pieces, end])
                pieces, length = [], 0
            pieces.append(rest)
            length += len(rest)
            if length > LONGEST:
                sys.exit("a line of the host is too long")
        if length:
            yield b"".join(pieces)

    def _read(self) -> bytes:
        """A signal that comes just before we sleep, or that another thread gets, does not wake us: so look up now and then.

        A pipe for that (`set_wakeup_fd`) would be a descriptor more than the host has given us, and tests look at those.
        """
        while not select.select([self.reading], [], [], _LOOK_UP)[0]:
            pass
        return os.read(self.reading, 1 << 16)

    def _note(self, way: str, message: Mapping[str, object]) -> None:
        if self._journal:
            self._journal.write(json.dumps({way: message}) + "\n")


def _is_usable(id: object) -> bool:
    """The Go SDK reads ids as integers, and drops a message with another one (spec piglet 2.3)."""
    return id is None or (isinstance(id, int) and not isinstance(id, bool))


def wait_for(path: str, cancelled: threading.Event) -> bool:
    """Wait for a file, or for ever without one. False when it was cancelled meanwhile."""
    while not (path and os.path.exists(path)):
        if cancelled.wait(_LOOK):
            return False
    return True

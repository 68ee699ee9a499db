"""An extension and a test that plays its host, in one process over two pipes."""

from __future__ import annotations

import asyncio
import json
import os
import select
import threading
from time import monotonic
from typing import Any

from serai.sdk import Extension

Frame = dict[str, Any]
PATIENCE = 30.0  # for what is expected to happen: a busy machine is no failure
ANSWERS = {"tool_call": "tool_result", "command_invoked": "command_response", "event_intercept": "event_intercept_response"}


class Talk:
    """`ext` is offered things before `start`; at the end every request must have had exactly one answer."""

    def __init__(self, concurrency: int = 32) -> None:
        theirs, self._input = os.pipe()
        self._output, writing = os.pipe()
        self._files = [os.fdopen(theirs, "rb"), os.fdopen(writing, "wb", buffering=0)]
        self.ext = Extension("probe", "1", concurrency=concurrency, stdin=self._files[0], stdout=self._files[1])  # type: ignore[arg-type]
        self._thread = threading.Thread(target=lambda: asyncio.run(self.ext.arun()), daemon=True)
        self._rest = b""
        self._asked: dict[tuple[str, str], str] = {}
        self.opening: list[Frame] = []
        self.answers: dict[tuple[str, str], Frame] = {}
        self.said: list[Frame] = []  # what answers nothing

    def start(self) -> list[Frame]:
        """All that it says first."""
        self._thread.start()
        while not self.opening or self.opening[-1]["type"] != "ready":
            self.opening.append(self._next())
        return self.opening

    def send(self, type: str, **members: Any) -> None:
        self.write(json.dumps({"type": type, **members}).encode() + b"\n")

    def write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._input, left) :]

    def ask(self, type: str, id: str = "", **members: Any) -> tuple[str, str]:
        """Send a request; what `answer` takes."""
        key = (ANSWERS[type], id or f"{type} {len(self._asked)}")
        self._asked[key] = type
        self.send(type, id=key[1], **members)
        return key

    def answer(self, key: tuple[str, str]) -> Frame:
        while key not in self.answers:
            self._take(self._next())
        return self.answers[key]

    def call(self, name: str, args: Any = None) -> Frame:
        return self.answer(self.ask("tool_call", name=name, args={} if args is None else args))

    def text(self, name: str, args: Any = None) -> str:
        """What the tool told, whether or not it is an error."""
        return "\n".join(block["text"] for block in self.call(name, args)["content"])

    def command(self, name: str, args: str = "") -> Frame:
        return self.answer(self.ask("command_invoked", name=name, args=args))

    def question(self, event: str, **members: Any) -> Frame:
        frame = self.answer(self.ask("event_intercept", event=event, **members))
        return {key: value for key, value in frame.items() if key not in ("type", "id")}

    def hear(self, type: str) -> Frame:
        """The oldest frame of a type that answers nothing."""
        while not (found := [frame for frame in self.said if frame["type"] == type]):
            self._take(self._next())
        self.said.remove(found[0])
        return found[0]

    def end(self) -> None:
        """The host says no more; what is still owed is heard."""
        if self._input < 0:
            return
        os.close(self._input)
        self._input = -1
        if not self._thread.ident:  # it was never started
            return
        while (frame := self._next(at_end=True)) is not None:
            self._take(frame)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        assert self.answers.keys() == self._asked.keys()

    def close(self) -> None:
        self.end()
        os.close(self._output)
        for file in self._files:
            file.close()

    def _take(self, frame: Frame) -> None:
        key = (frame["type"], frame.get("id", ""))
        if frame["type"] in ANSWERS.values():
            assert key in self._asked, f"nobody asked for {frame}"
            assert key not in self.answers, f"answered twice: {frame}"
            self.answers[key] = frame
        else:
            self.said.append(frame)

    def _next(self, *, at_end: bool = False) -> Any:
        deadline = monotonic() + PATIENCE
        while b"\n" not in self._rest:
            if at_end and not self._thread.is_alive() and not select.select([self._output], [], [], 0)[0]:
                return None
            ready, _, _ = select.select([self._output], [], [], 0.05 if at_end else max(deadline - monotonic(), 0))
            assert ready or monotonic() < deadline, "nothing was said"
            self._rest += os.read(self._output, 1 << 16) if ready else b""
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)


class ReleaseEvent:
    """Handlers wait at it; the test lifts it."""

    def __init__(self) -> None:
        self._lifted = threading.Event()
        self._arrived = threading.Semaphore(0)

    def wait(self) -> None:
        self._arrived.release()
        assert self._lifted.wait(PATIENCE)

    def arrived(self, count: int = 1) -> None:
        """Wait until so many more are there."""
        for _ in range(count):
            assert self._arrived.acquire(timeout=PATIENCE)

    def lift(self) -> None:
        self._lifted.set()

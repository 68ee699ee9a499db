"""A guest's adapter in little: what `roundtrip` and `crowd` put on a channel. Calls by id, typed answers, a deadline on each."""

from __future__ import annotations

import asyncio
from time import monotonic

import msgspec

from serai.errors import SeraiError
from serai.wire.channel import Channel
from serai.wire.codec import Codec
from serai.wire.stream import Oversize, PendingCalls

__all__ = ["Call", "Guest", "Result"]

TIMEOUT = 60.0


class Block(msgspec.Struct, gc=False):
    type: str
    text: str


class Result(msgspec.Struct, tag_field="type", tag="tool_result", gc=False):
    id: str
    content: list[Block]


class Note(msgspec.Struct, tag_field="type", tag="notify", gc=False):
    text: str


class Call(msgspec.Struct, tag_field="type", tag="tool_call", gc=False):
    id: str
    name: str
    args: dict[str, str]


CODEC: Codec[Result | Note] = Codec(Result | Note)


class Guest:
    """What is kept of one child: the calls that wait, and the wire."""

    __slots__ = ("calls", "channel", "reader")

    def __init__(self) -> None:
        self.calls: PendingCalls[str] = PendingCalls()
        self.reader = CODEC.create_reader()
        self.channel: Channel

    def call(self, id: str, frame: bytes, waiter: asyncio.Future[Result]) -> asyncio.Future[Result]:
        call = self.calls.start(id, "echo", now=monotonic(), timeout=TIMEOUT, waiter=waiter)
        self.channel.send(frame)
        self.channel.wake_by(call.deadline)
        return waiter

    def handle_run(self, run: bytes) -> None:
        for message in self.reader.read(run):
            if type(message) is Result:
                call = self.calls.finish(message.id)
                if call is not None and not call.waiter.done():
                    call.waiter.set_result(message)

    def handle_oversize(self, frame: Oversize) -> None:
        raise AssertionError(frame)

    def tick(self, now: float) -> float | None:
        assert not self.calls.expire(now)
        return self.calls.next_deadline()

    def handle_loss(self, cause: SeraiError) -> None:
        for call in self.calls.abandon():
            call.waiter.set_exception(cause.for_call(call.id))

"""Drained descriptors: nothing blocks, the last bytes stay."""

from __future__ import annotations

import asyncio
import os

import pytest

from serai.wire.descriptors import Tail

pytestmark = pytest.mark.loops


@pytest.mark.req("wire.process.stderr")
async def test_only_the_last_bytes_are_kept_however_they_come() -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    tail = Tail(read, 10)
    for number in range(100):
        os.write(write, b"%02d" % number)
        await asyncio.sleep(0)
        tail.drain()
    assert (tail.last(), tail.total) == (b"9596979899", 200)
    os.close(write)
    tail.drain()
    assert tail.closed
    assert tail.text() == "9596979899"
    tail.close()
    tail.drain()


async def test_what_is_no_text_is_replaced() -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)
    tail = Tail(read, 100)
    os.write(write, b"caf\xe9")
    os.close(write)
    tail.drain()
    tail.close()
    assert tail.text() == "caf\ufffd"

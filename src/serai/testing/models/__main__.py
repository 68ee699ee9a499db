"""The fakes as a program: prints where they are as one line of JSON, and runs until its input ends or it gets SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import threading

import msgspec

from serai.testing.models.server import FakeModels
from serai.wire import event_loop


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m serai.testing.models", description="Fakes of the model APIs on loopback.")
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--key", default="", help="the only key that is taken; without it every key is")
    options = parser.parse_args()
    event_loop.run(_serve(options.port, options.key))


async def _serve(port: int, key: str) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    async with FakeModels(port=port, key=key) as server:
        sys.stdout.write(msgspec.json.encode({"url": server.url, "env": server.env()}).decode() + "\n")
        sys.stdout.flush()
        # A thread, because its input may be anything: a pipe, a file, a terminal. It dies with the process.
        threading.Thread(target=_read_to_the_end, args=(loop, ended), daemon=True).start()
        await ended.wait()


def _read_to_the_end(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    try:
        while os.read(0, 65536):
            pass
    except OSError:  # it was closed from the start
        pass
    try:
        loop.call_soon_threadsafe(ended.set)
    except RuntimeError:  # the loop is closed: a signal was quicker
        pass


main()

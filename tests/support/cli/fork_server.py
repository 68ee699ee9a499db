"""The command as a process of its own, without the time that Python takes to start and to import.

A process that has imported the commands forks for each call. What it becomes has arguments, descriptors, environment, folder,
signals and an end of its own, as if it had been started. Only a start shows what a start does: `Shell.argv` is for that.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import NoReturn, Self

import serai.cli
from serai.cli import main
from tests.support.open_descriptors import KEPT

__all__ = ["end_with", "run"]

ROOT = Path(__file__).parents[3]
# How the names of variables begin at which Python looks when it starts, and not afterwards.
STARTUP_NAMES = ("PYTHON", "LANG", "LC_")
# What fits into a pipe before anybody reads it.
ROOM = 65536  # bytes
# What commands import when they run, beside what `serai.cli` consists of.
USED = (
    *("serai.authoring.bundle", "serai.boxes.backends.namespaces", "serai.boxes.manager", "serai.host.host"),
    *("serai.host.adapters.piglet", "serai.host.adapters.zot", "serai.record.recorder", "serai.testing.conformance"),
    *("serai.wire.event_loop", "_strptime", "jsonschema_rs", "uvloop"),
)
NUMBER = 4  # bytes


def run(
    *arguments: str, env: Mapping[str, str], cwd: Path, input: str = "", timeout: float = 50.0
) -> subprocess.CompletedProcess[str]:
    """The command with pipes and text; started afresh where nothing less gives it what it is to have."""
    server = ForkServer.of_this_process()
    if server.suits(env, input):
        return server.run(*arguments, env=env, cwd=cwd, input=input, timeout=timeout)
    command = [sys.executable, "-m", "serai", *arguments]
    return subprocess.run(command, env=env, cwd=cwd, input=input, capture_output=True, text=True, timeout=timeout, check=False)


class ForkServer:
    """A process that becomes the command, again and again. It ends when its end of the wire is closed: with us at the latest."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = select_startup_env(env)
        self.orders, theirs = socket.socketpair()
        command = [sys.executable, "-m", __name__, str(theirs.fileno())]
        pipe = subprocess.PIPE  # its streams are those of a command
        with theirs:
            self.process = subprocess.Popen(
                command, env={**env}, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT
            )

    @staticmethod
    @functools.cache
    def of_this_process() -> ForkServer:
        """One serves all tests of a worker."""
        return ForkServer(os.environ | {"PYTHONUNBUFFERED": "1"}).keep()

    def keep(self) -> Self:
        """Until the worker ends: the test that comes first leaks nothing."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        KEPT.update(str(held.fileno()) for held in (self.orders, self.process.stdin, self.process.stdout))
        return self

    def suits(self, env: Mapping[str, str], input: str) -> bool:
        return select_startup_env(env) == self.env and len(input.encode()) <= ROOM

    def run(
        self, *arguments: str, env: Mapping[str, str], cwd: Path, input: str, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run` with pipes and text."""
        (stdin, to), (out, stdout), (err, stderr), (told, tell) = (os.pipe() for _ in range(4))
        order = os.memfd_create("order")
        os.write(order, json.dumps([arguments, {**env}, str(cwd)]).encode())
        os.write(to, input.encode())
        os.close(to)
        socket.send_fds(self.orders, [b"!"], theirs := [stdin, stdout, stderr, tell, order])
        for descriptor in theirs:
            os.close(descriptor)
        printed, complaints, numbers = read_all(out, err, told, timeout=timeout)
        assert self.process.poll() is None, self.process.communicate()[0].decode()
        pid, status = (int.from_bytes(numbers[at : at + NUMBER], "big", signed=True) for at in (0, NUMBER))
        if len(numbers) < 2 * NUMBER:
            if pid:
                os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(arguments, timeout, printed, complaints)
        return subprocess.CompletedProcess(arguments, status, decode_text(printed), decode_text(complaints))


def select_startup_env(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(STARTUP_NAMES)}


def decode_text(data: bytes) -> str:
    return data.decode().replace("\r\n", "\n").replace("\r", "\n")


def read_all(*descriptors: int, timeout: float) -> list[bytes]:
    """What comes from these until all end, or the time is up; they are closed."""
    read = dict.fromkeys(descriptors, b"")
    end = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map() and (left := end - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                read[key.fd] += (data := os.read(key.fd, ROOM))
                if not data:
                    selector.unregister(key.fd)
    for descriptor in descriptors:
        os.close(descriptor)
    return [*read.values()]


# -- in that process --------------------------------------------------------------------------------------------------------------


def serve(orders: socket.socket) -> None:
    """Fork for every order. It returns in a process that is to be the command, and nowhere else."""
    interrupt = signal.signal(signal.SIGINT, signal.SIG_DFL)  # without a word
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait
    while True:
        _, descriptors, _, _ = socket.recv_fds(orders, 1, 5)
        if not descriptors:
            os._exit(0)
        if os.fork():
            for descriptor in descriptors:
                os.close(descriptor)
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, interrupt)
        orders.close()
        *standard, tell, order = descriptors
        pid = os.fork()
        if not pid:
            os.close(tell)
            become(standard, order)
            return
        for descriptor in (*standard, order):
            os.close(descriptor)
        os.write(tell, pid.to_bytes(NUMBER, "big"))
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(tell, status.to_bytes(NUMBER, "big", signed=True))
        os._exit(0)


def become(standard: list[int], order: int) -> None:
    """What a start with these descriptors and that order would have given."""
    arguments, env, cwd = json.loads(os.pread(order, os.fstat(order).st_size, 0))
    os.close(order)
    for number, descriptor in enumerate(standard):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    os.chdir(cwd)
    sys.argv[1:] = arguments
    sys.path[0] = cwd


def end_with(main: Callable[[], None]) -> NoReturn:
    """The command and the end of its process, but for the modules: to tear them down copies all memory that forks share."""
    try:
        main()
        status: object = 0
    except SystemExit as end:
        status = end.code
    gc.collect()  # what complains when it is collected does so here
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status if isinstance(status, int) else 1)


if __name__ == "__main__":
    for name in (*(f"serai.cli.{module.name}" for module in pkgutil.iter_modules(serai.cli.__path__)), *USED):
        import_module(name)
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
    end_with(main)

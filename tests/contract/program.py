"""Runs the `serai` program many times without starting an interpreter each time.

One child process imports the command line through its entry point and forks once per run. Each fork has its own arguments,
environment, working directory, standard streams, clock and exit status. The child imports no module of Serai by name except
`serai.cli`, the package of the entry point.
"""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import json
import os
import pkgutil
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.support.cli.fork_server import end_with

__all__ = ["ROOT", "Program", "Ran"]

ROOT = Path(__file__).parents[2]
COLUMNS = 100
PATIENCE = 25.0  # seconds for one run; a busy machine needs a tenth of it


class Ran(NamedTuple):
    """How one run of the program ended."""

    arguments: tuple[str, ...]
    status: int
    stdout: str
    stderr: str

    @property
    def objects(self) -> list[Any]:
        """The lines of `--json`."""
        return [json.loads(line) for line in self.stdout.splitlines()]


class Program:
    """The `serai` program; a context manager that ends the child process."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="serai-contract-")
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # no terminal: nothing is asked
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()
        self._folder.cleanup()

    def run(
        self,
        *arguments: str | Path,
        env: Mapping[str, str],
        cwd: Path,
        input: str = "",
        clock: float = 0.0,
        signal_after: tuple[int, str] | None = None,
    ) -> Ran:
        """Run one command to its end.

        `clock` stops the time of day at that second; 0 leaves the clock alone. `signal_after` sends a signal as soon as stdout
        contains a text.
        """
        streams = [os.path.join(self._folder.name, name) for name in ("stdin", "stdout", "stderr")]
        for path, text in zip(streams, (input, "", ""), strict=True):
            Path(path).write_text(text)
        words = [str(argument) for argument in arguments]
        self._send({"arguments": words, "env": dict(env), "cwd": str(cwd), "streams": streams, "clock": clock})
        pid = self._receive()
        if signal_after is not None:
            number, text = signal_after
            deadline = time.monotonic() + PATIENCE
            while text not in Path(streams[1]).read_text() and time.monotonic() < deadline:
                time.sleep(0.01)
            os.kill(pid, number)
        self._send({})
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], PATIENCE)[0]:
            os.kill(pid, signal.SIGKILL)
        status = self._receive()
        return Ran(tuple(words), status, Path(streams[1]).read_text(), Path(streams[2]).read_text())

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def _receive(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


# -- in the child process ---------------------------------------------------------------------------------------------------------


_clock = [0.0]
_time = time.time


def _stop_clock() -> None:
    """Replace the time of day before anything imports it; elapsed time and file times stay real."""
    time.time = lambda: _clock[0] or _time()
    time.time_ns = lambda: int(time.time() * 1e9)


def _serve() -> None:
    """Fork for each request on stdin. Returns in the fork, which then is the command; ends the server process otherwise."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    while line := requests.readline():
        request = json.loads(line)
        pid = os.fork()
        if not pid:
            requests.close()
            answers.close()
            _become(request)
            return
        print(pid, file=answers, flush=True)
        requests.readline()  # the caller may send signals before this
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=answers, flush=True)
    os._exit(0)


def _become(request: Mapping[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, path in enumerate(request["streams"]):
        descriptor = os.open(path, os.O_RDWR)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    _clock[0] = request["clock"]
    os.chdir(request["cwd"])
    sys.argv[1:] = request["arguments"]
    sys.path[0] = request["cwd"]


if __name__ == "__main__":
    _stop_clock()
    [script] = importlib.metadata.entry_points(group="console_scripts", name="serai")
    main = script.load()
    package = importlib.import_module("serai.cli")
    for module in pkgutil.iter_modules(package.__path__, "serai.cli."):
        importlib.import_module(module.name)
    gc.freeze()
    _serve()
    end_with(main)

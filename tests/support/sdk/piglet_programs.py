"""A host of piglet on raw pipes, for real programs: as little as can be, and none of Serai's own code (spec piglet 2, 3)."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

Message = dict[str, Any]
PATIENCE = 30.0  # for what is expected to happen: a busy machine is no failure
LAST = "\next.main()\n"


def write_program(place: Path, body: str, *, end: str = LAST) -> Path:
    """The folder of an extension with this body."""
    folder = place / "probe"
    folder.mkdir()
    (folder / "probe.py").write_text(f"from serai.sdk import *\next = Extension('probe', '1.2')\n{body}\n{end}")
    return folder


class Driven:
    """One process, spoken to over descriptors 3 and 4, or over its standard streams."""

    def __init__(
        self,
        folder: Path,
        *,
        fd: bool = True,
        file: str = "probe.py",
        environ: Mapping[str, str] | None = None,
        opening: bytes = b"",
    ) -> None:
        env = {key: value for key, value in os.environ.items() if key not in ("PIGLET_FD", "SERAI_DIALECT")}
        env |= {"PIGLET_FD": "1"} if fd else {}
        env |= environ or {}
        argv = [sys.executable, file]
        theirs, self._input = os.pipe()
        self._output, writing = os.pipe()
        self._err = (folder.parent / "stderr").open("w+b")
        self._out = (folder.parent / "stdout").open("w+b")
        os.set_blocking(self._input, False)  # or a program that does not read would hold up its test
        if opening:
            os.write(self._input, opening)  # before it has begun
        if fd:
            self.process = self._start_at_3_and_4(argv, folder, env, theirs, writing)
        else:
            self.process = subprocess.Popen(argv, cwd=folder, env=env, stdin=theirs, stdout=writing, stderr=self._err)
        os.close(theirs)
        os.close(writing)
        self._rest = b""
        self._next_id = 0
        self.said: list[Message] = []  # what is neither an answer nor was asked for yet
        self.answers: dict[Any, Message] = {}

    def _start_at_3_and_4(self, argv: list[str], folder: Path, env: Mapping[str, str], reading: int, writing: int) -> Any:
        helper = (
            "import os, sys; r, w = int(sys.argv[1]), int(sys.argv[2]); "
            "r, w = (__import__('fcntl').fcntl(n, 0, 20) for n in (r, w)); "
            "os.dup2(r, 3); os.dup2(w, 4); os.closerange(5, 64); os.execv(sys.argv[3], sys.argv[3:])"
        )
        line = [sys.executable, "-I", "-S", "-c", helper, str(reading), str(writing), *argv]
        return subprocess.Popen(
            line, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._err, pass_fds=(reading, writing)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.end()
        os.close(self._output)
        for file in (self._err, self._out):
            file.close()

    # -- what is said to it -------------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            _, ready, _ = select.select([], [self._input], [], PATIENCE)
            assert ready, f"it does not read: {len(left)} bytes are left; stderr: {self.stderr}"
            left = left[os.write(self._input, left) :]

    def send(self, message: Mapping[str, Any]) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def note(self, method: str, params: Any = None) -> None:
        self.send({"method": method, **({} if params is None else {"params": params})})

    def ask(self, method: str, params: Any = None, id: Any = None) -> Any:
        """Send a request; its id, which `answer` takes."""
        if id is None:
            self._next_id += 1
            id = self._next_id
        self.send({"id": id, "method": method, "params": params})
        return id

    def begin(self, **params: str) -> list[Message]:
        """Initialize; what came before the answer."""
        id = self.ask("initialize", {"protocolVersion": "5", "cwd": "/work", "configDir": "/config/probe", **params})
        self.answer(id)
        said, self.said = self.said, []
        return said

    def call(self, method: str, /, **params: Any) -> Any:
        """Ask, and the result; an error is raised."""
        answer = self.answer(self.ask(method, params))
        assert "error" not in answer, answer
        return answer["result"]

    def error(self, method: str, /, **params: Any) -> Any:
        return self.answer(self.ask(method, params))["error"]

    def text(self, name: str, /, **args: Any) -> str:
        return "\n".join(block["text"] for block in self.call("tool/execute", callId="c1", name=name, args=args)["content"])

    # -- what it says -------------------------------------------------------------------------------------------------------------

    def answer(self, id: Any) -> Message:
        while id not in self.answers:
            self._take(self._message())
        return self.answers.pop(id)

    def hear(self, method: str) -> Message:
        """The oldest request or notification of this method."""
        while not (found := [message for message in self.said if message["method"] == method]):
            self._take(self._message())
        self.said.remove(found[0])
        return found[0]

    def serve(self, method: str, result: Any) -> Any:
        """Answer a request of its own; the parameters."""
        asked = self.hear(method)
        self.send({"id": asked["id"], "result": result})
        return asked["params"]

    def end(self) -> int:
        """The end of input; how it exited. What it still said is heard."""
        if self._input >= 0:
            os.close(self._input)
            self._input = -1
        try:
            while chunk := self._read(PATIENCE):
                self._rest += chunk
            status: int = self.process.wait(PATIENCE)
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        for line in self._rest.splitlines():
            self._take(json.loads(line))
        self._rest = b""
        return status

    def end_unheard(self) -> int:
        """The end of input, with nothing of what it says taken; how it exited."""
        os.close(self._input)
        self._input = -1
        status: int = self.process.wait(PATIENCE)
        while chunk := self._read(PATIENCE):
            self._rest += chunk
        self._rest = self._rest[: self._rest.rfind(b"\n") + 1]  # it may have given up in the middle of a line
        return status

    @property
    def stderr(self) -> str:
        return Path(self._err.name).read_text()

    @property
    def stdout(self) -> str:
        return Path(self._out.name).read_text()

    def _take(self, message: Message) -> None:
        assert message["jsonrpc"] == "2.0", message
        if "method" in message:
            self.said.append(message)
        else:
            assert message["id"] not in self.answers, f"answered twice: {message}"
            self.answers[message["id"]] = message

    def _message(self) -> Message:
        deadline = monotonic() + PATIENCE
        while b"\n" not in self._rest:
            chunk = self._read(deadline - monotonic())
            assert chunk, f"nothing was said; stderr: {self.stderr}"
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        message: Message = json.loads(line)
        return message

    def _read(self, seconds: float) -> bytes:
        ready, _, _ = select.select([self._output], [], [], max(seconds, 0))
        assert ready, f"nothing was said in time; stderr: {self.stderr}"
        return os.read(self._output, 1 << 16)

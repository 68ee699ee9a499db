"""A real box server in a process of its own, for tests: on a real socket, over a folder that is its box."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import serai

SOURCES = str(Path(serai.__file__).parent.parent)
BOOT = f"import sys; sys.path.insert(0, {SOURCES!r}); from serai.boxes.programs.box_server import main; main(sys.argv[1:])"
PATIENCE = 30.0  # seconds; what a test waits for is expected to happen


class ServerProcess:
    """The process, the folder that its paths are under, and where it listens."""

    def __init__(self, process: subprocess.Popen[bytes], root: Path, address: Path) -> None:
        self.process = process
        self.root = root
        self.address = address

    def connect(self) -> Wire:
        return Wire(self.address)

    def ask(self, verb: str, **data: Any) -> dict[str, Any]:
        """One request on a connection of its own: its data, or a `Refusal`."""
        with self.connect() as wire:
            return wire.ask(verb, **data)

    def sh(self, script: str, **data: Any) -> dict[str, Any]:
        return self.ask("exec", cmd=["/bin/sh", "-c", script], **data)

    @property
    def log(self) -> str:
        return (self.address.parent / "log").read_text()

    def kill(self) -> None:
        """Without a process namespace its commands outlive it: only they have this home."""
        self.process.kill()
        self.process.wait()
        home = f"HOME={self.root}/root".encode()
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                if home in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    os.kill(int(name), signal.SIGKILL)


class Refusal(Exception):
    """The box server's `err`."""


class Wire:
    """One connection, byte by byte."""

    def __init__(self, address: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        here = os.open(address.parent, os.O_PATH)
        try:
            self.socket.connect(f"/proc/self/fd/{here}/{address.name}")
        finally:
            os.close(here)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, verb: str, data: object = None, rest: bytes = b"") -> None:
        """A request, and right behind it what is no frame."""
        self.send_body(json.dumps({"verb": verb, "data": data}).encode(), rest)

    def send_body(self, body: bytes, rest: bytes = b"") -> None:
        self.socket.sendall(len(body).to_bytes(4, "big") + body + rest)

    def end(self) -> None:
        """Nothing more from us; the box server may have closed already."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def packet(self, kind: int, payload: bytes) -> None:
        self.socket.sendall(bytes([kind]) + len(payload).to_bytes(4, "big") + payload)

    def read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            some = self.socket.recv(min(size - len(data), 1 << 20))
            if not some:
                raise EOFError(f"{len(data)} of {size} bytes, then the end")
            data += some
        return data

    def read_all(self) -> bytes:
        """Until the other end closes."""
        data = b""
        while some := self._some():
            data += some
        return data

    def _some(self) -> bytes:
        try:
            return self.socket.recv(1 << 20)
        except ConnectionResetError:  # closed with bytes of ours unread
            return b""

    def read_until(self, text: bytes) -> bytes:
        data = b""
        while text not in data:
            data += self.read(1)
        return data

    def read_packet(self) -> tuple[int, bytes]:
        head = self.read(5)
        return head[0], self.read(int.from_bytes(head[1:], "big"))

    def answer(self) -> dict[str, Any]:
        answer = json.loads(self.read(int.from_bytes(self.read(4), "big")))
        if "err" in answer:
            raise Refusal(answer["err"])
        data = answer["data"]
        assert isinstance(data, dict)
        return data

    def ask(self, verb: str, **data: Any) -> dict[str, Any]:
        self.send(verb, data)
        return self.answer()


def file(path: str, content: bytes = b"", **more: object) -> dict[str, object]:
    """A file as `init` takes it."""
    return {"Path": path, "Content": base64.b64encode(content).decode(), **more}


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@contextmanager
def start_server(
    folder: Path, *, boot: str = BOOT, env: Mapping[str, str] | None = None, umask: int = -1
) -> Iterator[ServerProcess]:
    """A box server whose box is the folder `root` in `folder`, with a home and a workspace."""
    root = folder / "root"
    for place in (root / "root", root / "workspace"):
        place.mkdir(parents=True)
    address = folder / "control.sock"
    here = os.open(folder, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as listener, (folder / "log").open("wb") as log:
        listener.bind(f"/proc/self/fd/{here}/control.sock")
        os.close(here)
        listener.listen(64)
        number = listener.fileno()
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", boot, "--fd", str(number), "--root", str(root)],
            pass_fds=[number],
            env={"SECRET_OF_THE_PORTER": "x"} if env is None else env,
            stdin=subprocess.DEVNULL,
            stderr=log,
            umask=umask,
        )
    server = ServerProcess(process, root, address)
    try:
        yield server
    finally:
        server.kill()

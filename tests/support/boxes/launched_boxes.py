"""Real boxes for tests, straight from the launcher: as root and as an ordinary user, whoever runs the tests."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import serai
from serai.boxes.backends.local import remove_tree
from serai.boxes.backends.namespaces import compute_first_id, compute_only_id
from serai.wire import process_tree
from tests.support import needs

SOMEBODY = 65534  # an ordinary user, when the tests are root's
PATIENCE = 20.0
SOURCE = str(Path(serai.__file__).parents[1])
PYTHON = "/usr/bin/python3"  # the machine's, which boxes without a base tree see too

Mode = Literal["own", "bwrap", "process"]


class Way(NamedTuple):
    """How a box is made, and by whom."""

    mode: Mode
    root: bool

    def __str__(self) -> str:
        return f"{self.mode}-{'root' if self.root else 'user'}"


AM_ROOT = os.geteuid() == 0
USER = SOMEBODY if AM_ROOT else os.geteuid()
NAMESPACES = [way for way in (Way("own", True), Way("own", False), Way("bwrap", False)) if AM_ROOT or not way.root]
PROCESSES = [way for way in (Way("process", True), Way("process", False)) if AM_ROOT or not way.root]
WAYS = NAMESPACES + PROCESSES

# The interpreter of the tests may lie where only root can look: it becomes somebody else once everything is imported.
_BECOME = f"""
import os, sys
sys.path.insert(0, {SOURCE!r})
from serai.boxes.programs import bubblewrap_box, launcher, plain_box
from serai.kernel import syscalls
import io, zipfile, encodings.cp437
uid = int(sys.argv[2])
if uid != os.geteuid():
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    syscalls.prctl(syscalls.PrctlOption.DUMPABLE, 1)
launcher.main(sys.argv[1])
"""


class Answer(NamedTuple):
    stdout: str
    stderr: str
    code: int

    @property
    def all(self) -> str:
        return self.stdout + self.stderr


@dataclass
class LaunchedBox:
    """A launcher that has told its line."""

    process: subprocess.Popen[bytes]
    folder: str
    told: dict[str, Any]
    log: str

    @property
    def pid(self) -> int:
        """Of the box server, as the machine sees it."""
        return int(self.told["pid"])

    def run(self, *argv: str) -> Answer:
        """A command in the box."""
        at = os.open(self.folder, os.O_PATH | os.O_DIRECTORY)
        try:
            with socket.socket(socket.AF_UNIX) as wire:
                wire.settimeout(PATIENCE)
                wire.connect(f"/proc/self/fd/{at}/control.sock")
                request = json.dumps({"verb": "exec", "data": {"cmd": list(argv)}}).encode()
                wire.sendall(struct.pack(">I", len(request)) + request)
                answer = json.loads(_read_exactly(wire, struct.unpack(">I", _read_exactly(wire, 4))[0]))
        finally:
            os.close(at)
        assert "data" in answer, answer
        return Answer(answer["data"]["stdout"], answer["data"]["stderr"], answer["data"]["exit_code"])

    def sh(self, script: str) -> Answer:
        return self.run("/bin/sh", "-c", script)

    def python(self, program: str, *arguments: str) -> Answer:
        return self.run(PYTHON, "-I", "-c", program, *arguments)

    def end(self) -> int:
        """Cut the lifeline; its exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(PATIENCE)

    def left_running(self) -> str:
        """Start something in the box that runs on; a word by which it is found on the machine."""
        word = f"3600.{time.monotonic_ns()}"
        assert self.sh(f"(setsid sleep {word} >/dev/null 2>&1 &); setsid sleep {word} >/dev/null 2>&1 &").code == 0
        wait_until(lambda: len(find_by_argument(word)) == 2)
        return word


def _read_exactly(wire: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = wire.recv(size - len(data))
        assert piece, "the porter hung up"
        data += piece
    return data


@dataclass
class BoxLauncher:
    """Starts boxes and leaves none."""

    # What a box's users follow from: those of another worker's boxes must not be the same, nor count together.
    generation: str = field(default_factory=lambda: secrets.token_hex(8))
    folders: list[str] = field(default_factory=list)
    started: list[LaunchedBox] = field(default_factory=list)

    def folder(self, way: Way) -> str:
        """For a box, or for anything: of whoever makes the box."""
        made = tempfile.mkdtemp(prefix="serai-test-")
        if AM_ROOT and not way.root:
            os.chown(made, USER, USER)
        self.folders.append(made)
        return made

    def __call__(
        self,
        way: Way,
        *,
        folder: str | None = None,
        box_id: str = "a-box",
        generation: str = "",
        rootfs: str | None = None,
        cgroups: Sequence[str] = (),
        rlimits: dict[str, int] | None = None,
        shm: str = "50%",
        env: dict[str, str] | None = None,
    ) -> LaunchedBox:
        if way.mode == "bwrap":
            needs.require("bwrap")
        if way.mode != "process":
            needs.require("namespaces" if way.root else "user-namespaces")
        folder = folder or self.folder(way)
        config = {
            "mode": way.mode,
            "folder": folder,
            "box_id": box_id,
            "rootfs": rootfs,
            "ids": {"own": compute_first_id, "process": compute_only_id}[way.mode](generation or self.generation)
            if way.root
            else None,
            "cgroups": list(cgroups),
            "rlimits": rlimits or {},
            "shm": shm,
            "bwrap": [shutil.which("bwrap"), PYTHON] if way.mode == "bwrap" else [],
        }
        argv = [sys.executable, "-I", "-S", "-c", _BECOME, json.dumps(config), str(0 if way.root else USER)]
        return self.start(argv, folder, env)

    def start(self, argv: Sequence[str], folder: str, env: dict[str, str] | None = None) -> LaunchedBox:
        log = f"{folder}.log"
        with open(log, "ab") as errors:
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=env or {}, start_new_session=True
            )
        assert process.stdout is not None
        line = process.stdout.readline()
        box = LaunchedBox(process, folder, json.loads(line) if line else {}, log)
        self.started.append(box)
        return box

    def close(self) -> None:
        for box in self.started:
            if box.process.poll() is None:
                box.end()
            for pipe in (box.process.stdin, box.process.stdout):
                if pipe is not None:
                    pipe.close()
            Path(box.log).unlink(missing_ok=True)
        for folder in self.folders:
            remove_tree(folder)


@contextmanager
def launch_boxes() -> Iterator[BoxLauncher]:
    made = BoxLauncher()
    try:
        yield made
    finally:
        made.close()


def wait_until(done: Callable[[], object]) -> None:
    """Wait for what must happen, not for a time."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, "it did not happen"
        os.sched_yield()


def find_by_argument(word: str) -> list[int]:
    """Processes of the machine, those in boxes too, that have `word` as an argument."""
    return [pid for pid, arguments in _list_processes() if word.encode() in arguments.split(b"\0")]


def find_by_text(text: str) -> list[int]:
    """Processes of the machine that have `text` anywhere in their arguments, as every launcher has its folder."""
    return [pid for pid, arguments in _list_processes() if text.encode() in arguments]


def _list_processes() -> list[tuple[int, bytes]]:
    """The processes of the machine with their arguments; one in the middle of its exec shows none, and is looked at again."""
    return [(int(name), process_tree.read_proc_file(f"/proc/{name}/cmdline")) for name in os.listdir("/proc") if name.isdigit()]


def find_zombies(pid: int) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, parent = Path(f"/proc/{name}/stat").read_bytes().rpartition(b") ")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if int(parent) == pid and state == b"Z":
            found.append(int(name))
    return found


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def write_base_tree(folder: str, *programs: str) -> str:
    """A small system: some programs of this machine and the libraries they need."""
    for program in ("sh", *programs):
        found = shutil.which(program)
        assert found, program
        listed = subprocess.run(["ldd", found], capture_output=True, text=True, check=False).stdout
        libraries = [word for line in listed.splitlines() for word in line.split() if word.startswith("/")]
        for source, target in ((found, f"/bin/{program}"), *((library, library) for library in libraries)):
            os.makedirs(os.path.dirname(folder + target), exist_ok=True)
            shutil.copy(source, folder + target)
    return folder

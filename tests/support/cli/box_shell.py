"""What the tests of `serai box` share: the command in a home of its own, hooks, terminals, and a look at what is left of a box."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import pytest

from serai.boxes import Boxes
from serai.boxes.box_client import BoxClient
from serai.boxes.manager import read_settings
from serai.wire import process_tree
from tests.support import needs
from tests.support.boxes.harness import write_script
from tests.support.cli.shell import Shell, parse_objects

__all__ = ["HALF", "BoxShell", "Terminal", "boxes", "find_by_words", "shared", "wait_until_gone", "web"]

PATIENCE = 30.0  # seconds
# Of its own session and with the terminal as its own, as a shell of a person has it.
_OWN_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
# A hook that makes something and cannot take it back.
HALF = """case $(cat) in *box.create*) echo '{"state":"s"}';; *) echo cannot revoke >&2; exit 4;; esac"""
# In the arguments of a keeper that has become the one who settles.
_SETTLING = '(*sys.argv[1:])\0{"home"'
Ran = subprocess.CompletedProcess[str]


class BoxShell(Shell):
    """`serai box …` as a person calls it."""

    def box(self, *arguments: str | Path, input: str = "", **env: str) -> Ran:
        return self("box", *arguments, input=input, cwd=None, **env)

    def good(self, *arguments: str | Path, input: str = "", **env: str) -> str:
        """What a command that must go well prints; nothing may be told beside it."""
        ran = self.box(*arguments, input=input, **env)
        assert (ran.stderr, ran.returncode) == ("", 0), ran
        return ran.stdout

    def make(self, *arguments: str | Path, **env: str) -> str:
        """Make a box; its generation."""
        return str(json.loads(self.good("create", "--json", *arguments, **env))["generation"])

    def show(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.good("show", "--json", name))
        return found

    def sh(self, name: str, line: str) -> str:
        """What a line for the shell in the box prints."""
        return self.good("exec", name, line)

    def raw(self, *arguments: str | Path, input: bytes = b"", pass_fds: tuple[int, ...] = ()) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            self.argv("box", *arguments),
            env=self.env,
            cwd=self.cwd,
            input=input,
            capture_output=True,
            timeout=PATIENCE,
            check=False,
            pass_fds=pass_fds,
        )

    @contextmanager
    def started(self, *arguments: str | Path) -> Iterator[subprocess.Popen[bytes]]:
        """A command under way, with pipes; it is ended here at the latest."""
        argv, pipe = self.argv("box", *arguments), subprocess.PIPE
        child = subprocess.Popen(argv, env=self.env, cwd=self.cwd, stdin=pipe, stdout=pipe, stderr=pipe)
        with child:
            try:
                yield child
            finally:
                child.kill()

    def hook(self, name: str, text: str) -> Path:
        return write_script(self.cwd / name, f"#!/bin/sh\n{text}\n")

    def settings(self, text: str) -> Path:
        self.home.mkdir(exist_ok=True)
        path = self.home / "config.toml"
        path.write_text(text)
        return path

    @property
    def folder(self) -> Path:
        return self.home / "boxes"

    @property
    def generations(self) -> list[str]:
        """Of boxes that have a folder."""
        names = os.listdir(self.folder) if self.folder.exists() else []
        return [name for name in names if not name.startswith("boxes.db") and name not in ("logs", "answers")]

    @property
    def recordings(self) -> list[str]:
        """The commands that made one."""
        return [form["command"] for form in parse_objects(self("record", "list", "--json"))]

    def gives(self, name: str = "namespaces") -> dict[str, Any]:
        """What a backend gives on this machine."""
        return asdict(Boxes(str(self.folder)).backend(name).capabilities)

    def left(self, generation: str) -> list[str]:
        """What is left of a box on this machine: processes, groups, mounts, folders. Whoever settled it may still be ending."""
        wait_until_gone(_SETTLING, generation)
        found = [f"process {pid}: {line!r}" for pid, line in find_by_words(generation).items()]
        found += [folder for folder, _, _ in os.walk("/sys/fs/cgroup") if generation in folder]
        found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if generation in line]
        found += [
            str(path) for path in (*self.folder.rglob(f"*{generation}*"), *Path("/dev/shm").glob(f"serai-*/**/*{generation}*"))
        ]
        return found


@pytest.fixture
def boxes(tmp_path: Path) -> Iterator[BoxShell]:
    """The command, in a home that has no box left afterwards."""
    needs.require("namespaces")
    yield from clean_up_after(BoxShell(tmp_path))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoxShell]:
    """A home with a box `web` for all tests of a module that leave it running: to make one for each takes most of their time."""
    needs.require("namespaces")
    shell = BoxShell(tmp_path_factory.mktemp("shared"))
    shell.make("web")
    yield from clean_up_after(shell)


@pytest.fixture
def web(shared: BoxShell, tmp_path: Path) -> BoxShell:
    """With a box `web`, whose /workspace is empty, and an empty folder to stand in."""
    shell = BoxShell(tmp_path)
    shell.home = shared.home
    asyncio.run(empty_workspace(shell))
    return shell


async def empty_workspace(shell: BoxShell) -> None:
    [generation] = shell.generations
    control = BoxClient(str(shell.folder / generation / "control.sock"))
    try:
        assert (await control.exec(["find", "/workspace", "-mindepth", "1", "-delete"])).exit_code == 0
    finally:
        control.close()


async def destroy(shell: BoxShell, made: list[str]) -> None:
    """As the command does it, without the time that a command takes to start."""
    path = shell.home / "config.toml"
    settings = tomllib.loads(path.read_text()) if path.exists() else {}
    async with Boxes(str(shell.folder), **read_settings(settings, who=str(path))) as boxes:
        await asyncio.gather(*map(boxes.destroy, made))


def clean_up_after(shell: BoxShell) -> Iterator[BoxShell]:
    yield shell
    made = shell.generations
    if made:
        asyncio.run(destroy(shell, made))
    assert [line for generation in made for line in shell.left(generation) if "/logs/" not in line] == []


def find_by_words(*words: str) -> dict[int, bytes]:
    """Processes of this machine, those in boxes too, that have all these words in their arguments or environment; not ourselves."""
    found = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()):
        # A keeper that becomes the one who settles the box shows none for a moment.
        arguments = process_tree.read_proc_file(f"/proc/{pid}/cmdline")
        told = arguments + b"\0" + process_tree.read_proc_file(f"/proc/{pid}/environ")  # only root reads that of what is in a box
        if all(word.encode() in told for word in words):
            found[pid] = arguments
    return found


def wait_until_gone(*words: str) -> None:
    """Wait until no process has those words in its arguments or environment any more."""
    while pids := find_by_words(*words):
        for pid in pids:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            try:
                assert select.select([descriptor], [], [], PATIENCE)[0], f"{pid} does not end: {pids[pid]!r}"
            finally:
                os.close(descriptor)


class Terminal:
    """A command on a real terminal of its own."""

    def __init__(self, shell: BoxShell, *arguments: str, columns: int = 100, rows: int = 30) -> None:
        self.ours, self.theirs = pty.openpty()
        self.size(columns, rows)
        self.before = termios.tcgetattr(self.theirs)
        self.seen = b""
        argv = [sys.executable, "-I", "-S", "-c", _OWN_TERMINAL, *shell.argv("box", *arguments)]
        env = shell.env | {"TERM": "dumb"}
        self.child = subprocess.Popen(argv, env=env, cwd=shell.cwd, stdin=self.theirs, stdout=self.theirs, stderr=self.theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self.child.wait()
        os.close(self.ours)
        os.close(self.theirs)

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def size(self, columns: int, rows: int) -> None:
        """As when somebody draws the window larger: the kernel tells whoever is in the foreground."""
        termios.tcsetwinsize(self.ours, (rows, columns))

    def expect(self, text: str) -> str:
        """Read until it shows this; all that came up to there since the last time."""
        while text.encode() not in self.seen:
            assert select.select([self.ours], [], [], PATIENCE)[0], f"{text!r} does not come: {self.seen!r}"
            self.seen += os.read(self.ours, 65536)
        before, found, self.seen = self.seen.partition(text.encode())
        return (before + found).decode()

    def status(self) -> int:
        """Its exit status at its end; what it still shows is read meanwhile, or it could not end."""
        descriptor = os.pidfd_open(self.child.pid)
        try:
            while True:
                ready = select.select([self.ours, descriptor], [], [], PATIENCE)[0]
                assert ready, "it does not end"
                if descriptor in ready:
                    return self.child.wait()
                self.seen += os.read(self.ours, 65536)
        finally:
            os.close(descriptor)

    def signal(self, number: signal.Signals) -> None:
        self.child.send_signal(number)

    def is_restored(self) -> bool:
        return termios.tcgetattr(self.theirs) == self.before

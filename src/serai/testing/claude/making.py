"""Makes a `claude` that can be started, and reads what it was given."""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from serai.testing.claude import program
from serai.testing.claude.script import Script

__all__ = ["Given", "ScriptedClaude"]

_LAUNCHER = """\
import os, sys
sys.path.insert(0, {folder!r})
import program
argv = sys.argv[1:]
if "--version" in argv or "-v" in argv:
    program.main([], argv)
else:
    number = 0
    while True:
        given = os.path.join({place!r}, f"given-{{number}}.jsonl")
        try:
            os.close(os.open(given, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            break
        except FileExistsError:
            number += 1
    plays = {plays!r}
    program.main([*plays[min(number, len(plays) - 1)], "--given", given], argv)
"""


@dataclass(frozen=True, slots=True)
class Given:
    """What one start of it was given."""

    argv: list[str]
    env: list[str]  # names
    cwd: str
    pid: int
    lines: list[str] = field(default_factory=list)  # of stdin
    eof: bool = False
    grandchild: int = 0

    @property
    def frames(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    def answers(self) -> dict[str, dict[str, Any]]:
        """The host's answers to its requests, by their id."""
        found = [frame["response"] for frame in self.frames if frame.get("type") == "control_response"]
        return {response["request_id"]: response for response in found}

    def option(self, name: str) -> str | None:
        """The value of an option, `--name value` or `--name=value`; empty for a bare one."""
        for n, word in enumerate(self.argv):
            if word.startswith(f"{name}="):
                return word.partition("=")[2]
            if word == name:
                after = self.argv[n + 1] if n + 1 < len(self.argv) else ""
                return "" if after.startswith("-") else after
        return None


class ScriptedClaude:
    """A `claude` in a folder. Each start plays the next of `scripts`, and the last again.

        claude = ScriptedClaude(tmp_path, Script().init().text("hello").result("hello"))
        PATH = claude.folder

    `options` are those of `python -m serai.testing.claude`: "--noise", "--die", "3", …
    """

    def __init__(self, folder: Path, *scripts: Script | Path, options: tuple[str, ...] = (), name: str = "claude") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.path = folder / name
        self._place = folder / f".{name}"
        self._place.mkdir()
        plays = [[str(self._script(number, script)), *options] for number, script in enumerate(scripts or (Script(),))]
        launcher = self._place / "launch.py"
        here = os.path.dirname(program.__file__)
        launcher.write_text(_LAUNCHER.format(folder=here, place=str(self._place), plays=plays), "utf-8")
        command = shlex.join([sys.executable, "-ISB", str(launcher)])
        self.path.write_text(f'#!/bin/sh\nexec {command} "$@"\n', "utf-8")
        self.path.chmod(0o755)

    def _script(self, number: int, script: Script | Path) -> Path:
        return script if isinstance(script, Path) else script.write(self._place / f"script-{number}.jsonl")

    @property
    def starts(self) -> int:
        return len(list(self._place.glob("given-*.jsonl")))

    def given(self, start: int = 0) -> Given:
        """What a start was given so far."""
        rows = [json.loads(line) for line in (self._place / f"given-{start}.jsonl").read_text("utf-8").splitlines()]
        first = rows[0]
        return Given(
            first["argv"],
            first["env"],
            first["cwd"],
            first["pid"],
            [row["line"] for row in rows if "line" in row],
            any("eof" in row for row in rows),
            next((row["grandchild"] for row in rows if "grandchild" in row), 0),
        )

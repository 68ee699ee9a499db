"""A place where real shells run a text and see only stub programs, which write down how they were called."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

SHELLS = [shell for name in ("bash", "dash") if (shell := shutil.which(name))]
STUBS = ("git", "status", "rm", "a", "ls", "cat", "reboot")
# Programs that really run others; found by a link, so that nothing else of the machine is in the path.
REAL = (
    *("env", "xargs", "timeout", "nice", "nohup", "setsid", "stdbuf", "find", "sh", "bash", "dash"),
    *("script", "flock", "split", "tar"),
)


class Place(NamedTuple):
    folder: Path  # where texts run; empty
    calls: Path
    environ: dict[str, str]

    def run(self, shell: str, text: str) -> list[list[str]]:
        """What the text really runs in this shell."""
        self.calls.write_text("")
        with subprocess.Popen(
            [shell, *(("--norc", "--noprofile") if shell.endswith("bash") else ()), "-c", text],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:  # a broken text may be a loop without end; what it ran by then is told
                pass
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return [json.loads(line) for line in self.calls.read_text().splitlines()]


def make_place(home: Path) -> Place:
    programs, folder, calls, empty = home / "bin", home / "work", home / "calls", home / "empty"
    for made in (programs, folder, empty):  # an empty home: a shell with a prompt reads no file of ours
        made.mkdir()
    for name in STUBS:
        _stub(programs / name, calls)
    for name in REAL:
        if found := shutil.which(name):
            (programs / name).symlink_to(found)
    return Place(folder, calls, {"PATH": str(programs), "LC_ALL": "C.UTF-8", "HOME": str(empty)})


def _stub(path: Path, calls: Path) -> None:
    """A script of builtins only that writes its words as JSON; a word that would need escapes is only told as odd."""
    path.write_text(
        "#!/bin/sh\n"
        'line="[\\"${0##*/}\\""\n'
        'for word in "$@"; do\n'
        '    case $word in *[!A-Za-z0-9._/=-]*) word="(odd)";; esac\n'
        '    line="$line, \\"$word\\""\n'
        "done\n"
        f"printf '%s]\\n' \"$line\" >> '{calls}'\n"
    )
    path.chmod(0o755)

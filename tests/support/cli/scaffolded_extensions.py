"""Extensions that `serai guest new` wrote: their languages, what their tools are given, and their own tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.cli.shell import Shell

LANGUAGES = ["python", "node", "shell"]
ADA = '{"name":"Ada"}'
BAD = '{"name":"rm -rf /"}'


def run_own_tests(shell: Shell, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The tests that came with an extension, as its author runs them."""
    env = {name: value for name, value in shell.env.items() if not name.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(folder)]
    return subprocess.run(command, env=env, cwd=shell.cwd, capture_output=True, text=True, timeout=55, check=False)


def write_programs(folder: Path, **scripts: str) -> str:
    """A PATH with these programs, which are shell scripts, and no others."""
    folder.mkdir()
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return str(folder)

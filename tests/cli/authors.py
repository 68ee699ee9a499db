"""What the tests of `serai guest new` and `serai guest bundle` share."""

from __future__ import annotations

import subprocess
import sys

from tests.cli.guests import Shell

PROGRAM = """
import os, resource, sys
most = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
os.execv(sys.argv[2], sys.argv[2:])
"""


def limited(shell: Shell, most: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command where no file can be longer than that: as on a full disk, writing fails in the middle."""
    command = [sys.executable, "-c", PROGRAM, str(most), *shell.argv(*arguments)]
    env = shell.env | {"PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, env=env, cwd=shell.cwd, capture_output=True, text=True, timeout=50, check=False)

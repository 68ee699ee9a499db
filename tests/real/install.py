"""Gets the real Claude Code: the pinned wheel from whatever index pip is set up with, into a cache folder. Prints where it is.

`python tests/real/install.py` is what `make test-agents` runs. Again it only looks; two at a time wait for each other. The cache is
`serai-tests` in $XDG_CACHE_HOME, or `.cache` of this repository.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

PACKAGE = "claude-agent-sdk"
VERSION = "0.2.182"  # has Claude Code 2.1.325 inside
PROGRAM = Path("claude_agent_sdk", "_bundled", "claude")


def cache() -> Path:
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given, "serai-tests") if given else Path(__file__).parents[2] / ".cache"


def find_installed() -> Path | None:
    """The program, if it is there."""
    path = cache() / f"{PACKAGE}-{VERSION}" / PROGRAM
    return path if os.access(path, os.X_OK) else None


def install() -> Path:
    cache().mkdir(parents=True, exist_ok=True)
    with open(cache() / f"{PACKAGE}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path := find_installed():
            return path
        place = cache() / f"{PACKAGE}-{VERSION}"
        part = place.with_suffix(".part")
        for left in (part, place):
            shutil.rmtree(left, ignore_errors=True)
        print(f"installing {PACKAGE} {VERSION} into {place} (350 MB)", file=sys.stderr)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "install", "--no-deps", "--no-compile"]
        subprocess.run([*pip, "--target", str(part), f"{PACKAGE}=={VERSION}"], check=True)
        os.rename(part, place)
        path = find_installed()
        if path is None:
            sys.exit(f"{PACKAGE} {VERSION} has no {PROGRAM} for this machine")
        return path


if __name__ == "__main__":
    print(install())

"""Gets the tool chains for plugins: componentize-py and zig from whatever index pip is set up with, componentize-qjs by npm.

`python tests/real/toolchains/install.py` is what `make test-plugins` runs. Again it only looks; two at a time wait for each other.
They go into `serai-tests` in $XDG_CACHE_HOME, or into `.cache` of this repository.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

PYTHON = {"componentize-py": "0.25.1", "ziglang": "0.17.0"}
NPM = {"componentize-qjs": "0.4.5"}


def cache() -> Path:
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given, "serai-tests") if given else Path(__file__).parents[3] / ".cache"


def _place() -> Path:
    return cache() / "plugins"


def find_installed() -> Path | None:
    """The folder of all of them, if these versions are there."""
    try:
        there = json.loads((_place() / "versions.json").read_text())
    except (OSError, ValueError):
        return None
    return _place() if there == PYTHON | NPM else None


def programs() -> Path:
    """Where the programs from PyPI are."""
    return _place() / "venv" / "bin"


def packages() -> Path:
    """The folder from which node finds the packages of npm."""
    return _place() / "npm"


def install() -> Path:
    cache().mkdir(parents=True, exist_ok=True)
    with open(cache() / "plugins.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if place := find_installed():
            return place
        place = _place()
        shutil.rmtree(place, ignore_errors=True)
        print(f"installing {', '.join([*PYTHON, *NPM])} into {place} (600 MB)", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(place / "venv")], check=True)
        pip = [str(programs() / "python"), "-m", "pip", "--disable-pip-version-check", "-q", "install", "--no-compile"]
        subprocess.run([*pip, *(f"{name}=={version}" for name, version in PYTHON.items())], check=True)
        packages().mkdir()
        (packages() / "package.json").write_text('{"private": true}\n')
        # In that folder and without --prefix, which would make npm look for the machine's own settings there, too.
        npm = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run([*npm, *(f"{name}@{version}" for name, version in NPM.items())], check=True, cwd=packages())
        (place / "versions.json").write_text(json.dumps(PYTHON | NPM))  # last: what is there without it is half
        return place


if __name__ == "__main__":
    print(install())

"""What happens to somebody who may not do everything: tests often run as root, who may."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534

# Imported before the privileges go: the interpreter may lie where nobody else may look.
PRELUDE = f"""
import os, sys, tomllib
from pathlib import Path
import serai.dialects.zot.manifest
from serai.errors import SeraiError
from serai.host import discovery, installation, trust
os.chdir(sys.argv[1])
if os.geteuid() == 0:
    os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})
os.umask(0o022)
environ = {{"SERAI_HOME": os.path.abspath("home"), "HOME": os.path.abspath(".")}}
def find(): return discovery.find_guests(cwd=os.path.abspath("project"), environ=environ)
"""


@contextmanager
def make_folder() -> Iterator[Path]:
    """An empty folder of that somebody's own, with a home and a project."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as path:
        for inner in (path, f"{path}/home", f"{path}/home/guests", f"{path}/project"):
            os.makedirs(inner, exist_ok=True)
            if os.geteuid() == 0:
                os.chown(inner, NOBODY, NOBODY)
        yield Path(path)


def run(folder: Path, script: str) -> str:
    """What the script prints when somebody without privileges runs it there."""
    argv = [sys.executable, "-c", PRELUDE + script, str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout

"""Programs in an interpreter of their own, which has imported nothing but what they import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import serai

SOURCE = str(Path(serai.__file__).parents[1])

COUNT_IMPORTS = """
import sys
sys.path.insert(0, sys.argv[1])
before = set(sys.modules)
__import__(sys.argv[2])
print(*(set(sys.modules) - before))
"""


def run_fresh(program: str, *arguments: str) -> list[str]:
    """What a program printed, in a process of its own."""
    argv = [sys.executable, "-I", "-c", program, SOURCE, *arguments]
    return subprocess.run(argv, env={}, capture_output=True, text=True, check=True, timeout=30).stdout.split()


def list_imports(module: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after importing this one alone."""
    return set(run_fresh(COUNT_IMPORTS, module))

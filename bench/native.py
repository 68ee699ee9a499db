"""Builds the C programs of the bench with gcc, when their source is newer."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE / "build"


def build(name: str) -> str:
    """The path of the program `name`, built from `c/name.c`."""
    source, program = HERE / "c" / f"{name}.c", BUILD / name
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        gcc = shutil.which("gcc") or shutil.which("cc")
        if gcc is None:
            sys.exit("the bench compares with C and needs gcc")
        BUILD.mkdir(exist_ok=True)
        subprocess.run([gcc, "-O2", "-Wall", "-Werror", "-o", str(program), str(source)], check=True)
    return str(program)

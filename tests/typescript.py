"""TypeScript on whatever this machine has: as it is where node takes the types out by itself, else with esbuild."""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path

import pytest

__all__ = ["runnable", "typed_node"]


@functools.cache
def _is_typed() -> bool:
    """Whether this machine's node runs TypeScript as it is, as 22.18 and newer do."""
    node = shutil.which("node")
    if node is None:
        pytest.fail("node does not start: install it", pytrace=False)
    asked = [node, "-e", "process.exit(process.features.typescript ? 0 : 1)"]
    return subprocess.run(asked, capture_output=True, timeout=60, check=False).returncode == 0


def runnable(folder: Path, target: Path) -> Path:
    """A copy of an extension's folder that this machine's node can run: the same files, the same names."""
    shutil.copytree(folder, target)
    if not _is_typed():
        for program in target.glob("*.ts"):
            _untyped(program)
    return target


def _untyped(program: Path) -> None:
    """An older node takes a name it does not know for a script, as long as no package says otherwise."""
    command = ["esbuild", "--format=cjs", "--log-level=warning", "--allow-overwrite", f"--outfile={program}", str(program)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    except FileNotFoundError:
        pytest.fail("this node runs no TypeScript, and esbuild does not start: install one of them", pytrace=False)


def typed_node(folder: Path) -> Path:
    """A folder for the PATH with a `node` that runs TypeScript: this machine's own, or one that has the types taken out first."""
    node, esbuild = shutil.which("node"), shutil.which("esbuild")
    script = f'#!/bin/sh\nexec "{node}" "$@"\n'
    if not _is_typed():
        if esbuild is None:
            pytest.fail("this node runs no TypeScript, and esbuild does not start: install one of them", pytrace=False)
        script = f"""#!/bin/sh
[ "$1" = -e ] && exit 0
out=$(mktemp -d "{folder}/XXXXXX")/main.js
"{esbuild}" --format=cjs --log-level=warning --outfile="$out" "$1" && exec "{node}" "$out"
"""
    (folder / "node").write_text(script)
    (folder / "node").chmod(0o755)
    return folder

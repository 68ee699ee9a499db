"""TypeScript on whatever this machine has: as it is where node takes the types out by itself, else with esbuild."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.support import needs

__all__ = ["copy_runnable", "write_node"]


def copy_runnable(folder: Path, target: Path) -> Path:
    """A copy of an extension's folder that this machine's node can run: the same files, the same names."""
    needs.require("typescript")
    shutil.copytree(folder, target)
    if not needs.runs_typescript():
        for program in target.glob("*.ts"):
            _strip_types(program)
    return target


def _strip_types(program: Path) -> None:
    """An older node takes a name it does not know for a script, as long as no package says otherwise."""
    command = ["esbuild", "--format=cjs", "--log-level=warning", "--allow-overwrite", f"--outfile={program}", str(program)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def write_node(folder: Path) -> Path:
    """A folder for the PATH with a `node` that runs TypeScript: this machine's own, or one that has the types taken out first."""
    needs.require("typescript")
    node, esbuild = shutil.which("node"), shutil.which("esbuild")
    script = f'#!/bin/sh\nexec "{node}" "$@"\n'
    if not needs.runs_typescript():
        script = f"""#!/bin/sh
[ "$1" = -e ] && exit 0
out=$(mktemp -d "{folder}/XXXXXX")/main.js
"{esbuild}" --format=cjs --log-level=warning --outfile="$out" "$1" && exec "{node}" "$out"
"""
    (folder / "node").write_text(script)
    (folder / "node").chmod(0o755)
    return folder

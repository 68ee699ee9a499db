"""Tool chains for plugins: found where they are, never installed by us, and run as bounded child processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import click

from serai.cli import telling
from serai.errors import BadExtension, PeerTimeout, SpawnFailed
from serai.limits import KIB
from serai.wire import child_environment
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Launch

__all__ = ["beside_or_on_path", "componentize_py", "componentize_qjs", "ran", "zig"]

_PATIENCE = 600.0  # seconds: a Python component takes half a minute, on a busy machine some
_SHOWN = 64 * KIB  # of what a tool said


def componentize_py() -> list[str]:
    return [_found("componentize-py", "to build a plugin in Python: pip install componentize-py")]


def componentize_qjs(folder: Path) -> list[str]:
    """The package is looked for as node does, from the plugin's folder upwards."""
    hint = "to build a plugin in JavaScript: install Node 18 or newer, and in the plugin's folder say npm install componentize-qjs"
    node = shutil.which("node")
    if node is None:
        raise SpawnFailed("node is not on your PATH", who=str(folder), hint=hint)
    for place in (folder, *folder.parents):
        program = place / "node_modules" / ".bin" / "componentize-qjs"
        if program.is_file():
            return [node, str(program.resolve())]
    return [_found("componentize-qjs", hint)]


def zig() -> list[str]:
    """The compiler, which PyPI has as `ziglang`."""
    if find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang"]
    for name in ("zig", "python-zig"):
        if program := beside_or_on_path(name):
            return [program]
    raise SpawnFailed("there is no zig, which compiles C", hint="to build a plugin in C: pip install ziglang")


def beside_or_on_path(name: str) -> str:
    """A program of the environment that runs us, or one on the PATH; else nothing."""
    beside = os.path.join(_own_folder(), name)
    return beside if os.access(beside, os.X_OK) else shutil.which(name) or ""


def _own_folder() -> str:
    return os.path.dirname(sys.executable)


def _found(name: str, hint: str) -> str:
    if program := beside_or_on_path(name):
        return program
    raise SpawnFailed(f"{name} is not installed, or not on your PATH", hint=hint)


async def ran(
    argv: Sequence[str], *, cwd: Path, who: str, what: str, more: Mapping[str, str] | None = None, patience: float = _PATIENCE
) -> None:
    """Run a tool to its end. What it said is shown if it failed, and then whoever called is told what that means."""
    # Without what makes Python tools look elsewhere: a component gets what is in its folder, and nothing of our own environment.
    hidden = {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "PIPENV_ACTIVE"}
    env = {name: value for name, value in child_environment.guest_environment(os.environ).items() if name not in hidden} | dict(
        more or {}
    )
    async with PlainSpawner() as spawner:
        child = await spawner.spawn(Launch(argv=argv, env=env, cwd=str(cwd), who=what, stdin="null"))
        said = child.to_noise(child.stdout, _SHOWN)
        try:
            async with asyncio.timeout(patience):
                status = await child.exited
        except TimeoutError:
            _show(said.text(), child.stderr.text())
            hint = "the machine may be busy: try again"
            raise PeerTimeout(f"{what} did not end within {patience:.0f} seconds", who=who, hint=hint) from None
        if not status.ok:
            _show(said.text(), child.stderr.text())
            raise BadExtension(f"{what} could not build it ({status})", who=who, hint="correct what it says above")


def _show(said: str, errors: str) -> None:
    for text in (said, errors):
        if text.strip():
            click.echo(telling.safe(text.rstrip("\n")), err=True)

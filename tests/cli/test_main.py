"""The command line as a person starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

import serai
from serai.cli.command_table import serai as root
from tests.cli.inside import Inside


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "serai", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=os.environ | env)


def test_it_tells_its_version() -> None:
    assert run("--version").stdout == f"serai {serai.__version__}\n"


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_the_commands(flag: str) -> None:
    assert "demo " in run(flag).stdout


def test_help_does_not_import_what_only_commands_need() -> None:
    heavy = "('asyncio', 'msgspec', 'serai.wire')"
    program = f"import sys; from serai.cli.command_table import serai; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize(("term", "no_color", "coloured"), [("xterm", "", True), ("xterm", "1", False), ("dumb", "", False)])
def test_no_command_has_colours_when_somebody_wants_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, term: str, no_color: str, coloured: bool
) -> None:
    paint = click.Command("paint", callback=lambda: click.secho("red", fg="red"))
    monkeypatch.setitem(root.commands, "paint", paint)
    shell = Inside(tmp_path)
    shell.coloured = True
    assert ("\x1b[" in shell("paint", TERM=term, NO_COLOR=no_color).stdout) is coloured


def test_an_unknown_command_is_refused_with_a_usage_error() -> None:
    ran = run("nonsense")
    assert ran.returncode == 2
    assert "No such command" in ran.stderr

"""The command line as a person starts it. Sub-commands are imported when they are called, and the help knows them all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import serai
from serai.cli.command_table import COMMANDS, LazyCommand
from serai.cli.command_table import serai as root
from tests.support.cli.in_process_shell import InProcessShell


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
    shell = InProcessShell(tmp_path)
    shell.coloured = True
    assert ("\x1b[" in shell("paint", TERM=term, NO_COLOR=no_color).stdout) is coloured


def test_an_unknown_command_is_refused_with_a_usage_error() -> None:
    ran = run("nonsense")
    assert ran.returncode == 2
    assert "No such command" in ran.stderr


# The help, and on stderr what was imported for it.
HELP = """
import sys
from serai.cli import main

sys.argv = ["serai", "--help"]
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def test_help_has_a_line_for_each_command() -> None:
    shown = CliRunner().invoke(root, ["--help"], terminal_width=200).output
    for name, (_, line) in COMMANDS.items():
        assert f"{name} " in shown
        assert line in shown


def test_help_imports_none_of_them() -> None:
    homes = {home.split(":")[0] for home, _ in COMMANDS.values()}
    ran = subprocess.run([sys.executable, "-c", HELP], capture_output=True, text=True, check=True, timeout=30)
    assert "Commands:" in ran.stdout
    assert not homes & set(ran.stderr.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_its_line_is_the_first_of_its_own_help(name: str) -> None:
    stands_for = root.commands[name]
    assert isinstance(stands_for, LazyCommand)
    command = stands_for.load()
    assert command.name == name
    assert (command.help or "").splitlines()[0].rstrip() == stands_for.short_help


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_shows_its_own_help_and_options(name: str) -> None:
    ran = CliRunner().invoke(root, [name, "--help"])
    assert ran.exit_code == 0
    assert ran.output.startswith(f"Usage: serai {name}")

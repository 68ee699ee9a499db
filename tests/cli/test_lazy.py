"""Sub-commands are imported when they are called, and the help knows them all the same."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from serai.cli.command_table import COMMANDS, LazyCommand, serai

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
    shown = CliRunner().invoke(serai, ["--help"], terminal_width=200).output
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
    stands_for = serai.commands[name]
    assert isinstance(stands_for, LazyCommand)
    command = stands_for.load()
    assert command.name == name
    assert (command.help or "").splitlines()[0].rstrip() == stands_for.short_help


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_shows_its_own_help_and_options(name: str) -> None:
    ran = CliRunner().invoke(serai, [name, "--help"])
    assert ran.exit_code == 0
    assert ran.output.startswith(f"Usage: serai {name}")

"""The command line as a person starts it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import serai
from serai.cli.main import serai as root
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
    program = (
        "import sys; from serai.cli.main import serai; print([m for m in ('asyncio', 'msgspec', 'serai.wire') if m in sys.modules])"
    )
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


def test_the_demo_tells_no_lies_and_leaves_nothing(tmp_path: Path) -> None:
    ran = run("demo", NO_COLOR="1", HOME=str(tmp_path))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "\x1b" not in ran.stdout
    for words in ("OversizeFrame: huge", "PeerGone: dies: ended (killed by SIGSEGV)", "stopped by: kill (killed by SIGKILL)"):
        assert words in ran.stdout
    for words in (
        "weather of Paris, which the guard rewrites:\n    Bern: 16 degrees, fog\n",
        "BLOCKED: weather: rm -rf is not run here",
        "INVALID_ARGS: weather:",
        "the guard is killed; weather of Bern:\n    BLOCKED: tool_call refused: no answer from the guard (zot:guard is ",
        "the guard is back; weather of Bern:\n    Bern: 16 degrees, fog\n",
        "[harbours] picked Bergen",
    ):
        assert words in ran.stdout
    assert "\nProcesses of this run that are left: 0\n" in ran.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.req("record.cli.demo")
def test_the_demo_ends_with_the_timeline_of_its_own_recording(tmp_path: Path) -> None:
    ran = run("demo", NO_COLOR="1", HOME=str(tmp_path), TMPDIR=str(tmp_path))
    _, found, shown = ran.stdout.partition("\nWhat is on record")
    assert found
    lines = [re.sub(r"^  [\d:.]+ +\d+  (\S+) +", r"\1 ", line) for line in shown.splitlines()]
    assert 'dies → first 1 {"jsonrpc":"2.0","id":1,"method":"first","params":{}}' in lines
    assert "dies · end: ended (exit status 3); the last on stderr: fatal: the habit got the better of me" in lines
    [secret] = re.findall(r'"my token":"([0-9a-f]{24})"', ran.stdout)  # once: where the answer is shown, not on record
    assert secret not in shown
    assert '"my token":"************************"' in shown
    assert any(line.startswith("zot:guard · end: ended (killed by SIGKILL)") for line in lines)
    assert any(line.startswith("zot:guard · open:") and "generation 2" in line for line in lines)
    assert list(tmp_path.iterdir()) == []

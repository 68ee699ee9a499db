"""A command that was forked has all that a command has that was started; many tests here rely on it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.boxes.harness import write_script
from tests.support.cli.fork_server import ForkServer
from tests.support.cli.shell import EXAMPLES, Shell

# A hook tells what its command has: environment, time zone, folder, descriptors, signals, group and session.
MIRROR = r"""#!/bin/sh
cat > /dev/null
{
    tr '\0' '\n' < /proc/$$/environ | sort
    date +%z
    readlink /proc/$PPID/cwd
    ls /proc/$PPID/fd
    readlink /proc/$PPID/fd/0 /proc/$PPID/fd/1 /proc/$PPID/fd/2 | cut -d: -f1
    grep 'Sig[BIC]' /proc/$PPID/status
    cut -d' ' -f5,6 /proc/$PPID/stat
} > "$MIRROR"
"""


def run_both(shell: Shell, *arguments: str, input: str = "", **env: str) -> list[subprocess.CompletedProcess[str]]:
    """As it is started, and as it is forked."""
    forked, env, cwd = ForkServer.of_this_process(), shell.env | env, shell.cwd
    assert forked.suits(env, input)
    command, pipe = shell.argv(*arguments), subprocess.PIPE
    started = subprocess.run(command, env=env, cwd=cwd, input=input, stdout=pipe, stderr=pipe, text=True, timeout=50, check=False)
    return [started, forked.run(*arguments, env=env, cwd=cwd, input=input, timeout=50.0)]


@pytest.mark.parametrize(
    ("arguments", "input", "status"),
    [
        (["--version"], "", 0),
        (["guest", "list", "--no-such-option"], "", 2),
        (["guest", "remove", "nobody"], "", 1),
        (["tool", "call", "weather", "-", "-e", str(EXAMPLES / "weather-python")], '{"city": "Bern"}', 0),
    ],
)
def test_it_reads_prints_and_ends_alike(shell: Shell, arguments: list[str], input: str, status: int) -> None:
    started, forked = run_both(shell, *arguments, input=input)
    assert (forked.stdout, forked.stderr, forked.returncode) == (started.stdout, started.stderr, started.returncode)
    assert forked.returncode == status


def test_it_has_the_same_surroundings(shell: Shell, tmp_path: Path) -> None:
    hook, seen = write_script(tmp_path / "hook", MIRROR), tmp_path / "seen"
    told = []
    for ran in run_both(shell, "hook", "run", str(hook), "destroy", MIRROR=str(seen), TZ="XXX-05:30", ONLY="here"):
        assert ran.returncode == 0, ran.stderr
        told.append(seen.read_text())
    started, forked = told
    assert forked == started
    assert "ONLY=here" in started


def test_what_kills_it_is_its_status(shell: Shell, tmp_path: Path) -> None:
    hook = write_script(tmp_path / "hook", "#!/bin/sh\nkill -KILL $PPID\n")
    started, forked = run_both(shell, "hook", "run", str(hook), "destroy")
    assert forked.returncode == started.returncode == -9


@pytest.mark.parametrize("env", [{"PYTHONUTF8": "0"}, {"LC_ALL": "C"}, {"PYTHONPATH": "/nowhere"}])
def test_what_only_a_start_sees_is_started(shell: Shell, env: dict[str, str]) -> None:
    assert not ForkServer.of_this_process().suits(shell.env | env, "")

"""How a command ends when somebody ends it, or when there is nowhere to write: quietly, with its status, and nothing is left."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import IO

import pytest

from tests.support.cli.shell import EXAMPLES, Shell, build_text, write_guest
from tests.support.processes import lives

WEATHER = EXAMPLES / "weather-python"
BERN = '{"city":"Bern"}'
SIGNALS = [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143)]

# Python imports this first. The signal comes at the very moment at which the interpreter does what `AT` says.
SIGNAL_AT = """
import os, signal, sys

def hook(event, arguments):
    if arguments and f"{event} {arguments[0]}".endswith(os.environ["AT"]):
        signal.raise_signal(int(os.environ["SIGNAL"]))

sys.addaudithook(hook)
"""
# Instead of git: begins to write, tells who it is, and does not come to an end.
GIT = """#!/bin/sh
for target; do :; done
mkdir "$target"
echo $$ > "$TELLS"
exec sleep 600
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """What `PYTHONPATH` has to be for `AT` and `SIGNAL` to count."""
    folder = tmp_path / "at"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SIGNAL_AT)
    return folder


@pytest.mark.req("host.cli.interrupt")
@pytest.mark.parametrize(("number", "status"), SIGNALS)
@pytest.mark.parametrize(
    "at",
    ["import click", "import serai.cli.options", "/config.toml", "shutil.copytree {source}", "shutil.copyfile {source}/says.json"],
    ids=["in the first import", "in an import of its own", "while finding", "before copying", "while copying"],
)
def test_a_signal_ends_a_command_wherever_it_is(
    shell: Shell, tmp_path: Path, place: Path, at: str, number: int, status: int
) -> None:
    source = write_guest(tmp_path / "source")
    shell.home.mkdir()
    (shell.home / "config.toml").write_text("")
    arguments = ("list",) if at == "/config.toml" else ("add", source)
    ran = shell("guest", *arguments, PYTHONPATH=str(place), AT=at.format(source=source), SIGNAL=str(int(number)))
    assert (ran.stdout, ran.stderr, ran.returncode) == ("", "", status)
    guests = shell.home / "guests"
    assert not guests.exists() or os.listdir(guests) == []


@pytest.mark.req("host.cli.interrupt")
@pytest.mark.parametrize(("number", "status"), SIGNALS)
def test_a_signal_ends_a_command_just_before_its_loop_runs(shell: Shell, place: Path, number: int, status: int) -> None:
    ran = shell("tool", "list", PYTHONPATH=str(place), AT="import asyncio", SIGNAL=str(int(number)))
    assert (ran.stdout, ran.stderr, ran.returncode) == ("", "", status)


@pytest.mark.req("host.cli.interrupt")
@pytest.mark.parametrize(("number", "status"), SIGNALS)
def test_a_signal_ends_a_command_that_reads_its_input(shell: Shell, number: int, status: int) -> None:
    process = start(shell, "tool", "call", "weather", "-", "-e", str(WEATHER))
    assert process.stdin is not None
    process.stdin.write(b" ")
    while count_waiting_bytes(process.stdin) or read_state(process) != "S":
        os.sched_yield()  # until it has read that and sleeps, which is in its next read
    process.send_signal(number)
    assert wait_for_end(process) == (b"", b"", status)


@pytest.mark.req("host.cli.interrupt")
def test_an_interrupt_at_the_question_removes_nothing(shell: Shell) -> None:
    folder = write_guest(shell.home / "guests" / "one")
    process = start(shell, "guest", "remove", "one")
    assert process.stderr is not None
    question = f"remove {folder} ? [y/N] ".encode()
    assert process.stderr.read(len(question)) == question
    process.send_signal(signal.SIGINT)
    assert wait_for_end(process) == (b"", b"", 130)
    assert folder.is_dir()


@pytest.mark.req("host.cli.interrupt")
@pytest.mark.parametrize(("number", "status"), SIGNALS)
def test_a_clone_that_is_ended_leaves_neither_git_nor_half_a_guest(shell: Shell, tmp_path: Path, number: int, status: int) -> None:
    tells = tmp_path / "tells"
    os.mkfifo(tells)
    (tmp_path / "bin").mkdir()
    git = tmp_path / "bin" / "git"
    git.write_text(GIT)
    git.chmod(0o755)
    path = f"{git.parent}:{os.environ['PATH']}"
    process = start(shell, "guest", "add", "https://example.invalid/one.git", PATH=path, TELLS=str(tells))
    pid = int(tells.read_text())
    assert len(os.listdir(shell.home / "guests")) == 1
    process.send_signal(number)
    assert wait_for_end(process) == (b"", b"", status)
    assert os.listdir(shell.home / "guests") == []
    assert not lives(pid)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_in_a_background_where_ctrl_c_is_ignored_a_termination_still_counts(
    shell: Shell, tmp_path: Path, place: Path, loop: str
) -> None:
    if loop == "asyncio":
        (place / "uvloop.py").write_text("raise ImportError")
    (place / "sitecustomize.py").unlink()
    working = {"type": "notify", "level": "info", "message": "at work as $pid"}
    deaf = write_guest(tmp_path / "deaf", tools=["wait"], answers={"tool_call wait": [working]})
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *shell.argv("tool", "call", "wait", "-e", deaf)]
    process = start(shell, argv=ignoring, PYTHONPATH=str(place))
    assert process.stderr is not None
    pid = int(process.stderr.readline().removeprefix(b"[deaf] info: at work as "))
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    assert wait_for_end(process) == (b"", b"", 143)
    assert not lives(pid)


def test_a_signal_that_was_ignored_before_stays_ignored(shell: Shell, place: Path) -> None:
    argv = ["sh", "-c", 'trap "" HUP; exec "$@"', "nohup", *shell.argv("guest", "list", "-e", WEATHER)]
    process = start(shell, argv=argv, PYTHONPATH=str(place), AT="/config.toml", SIGNAL=str(int(signal.SIGHUP)))
    out, err, status = wait_for_end(process)
    assert (err, status) == (b"", 0)
    assert str(WEATHER).encode() in out


# -- nowhere to write -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_without_its_standard_descriptors_a_call_is_made_all_the_same(shell: Shell, tmp_path: Path, closed: str) -> None:
    one = write_guest(tmp_path / "one", tools=["ping"], answers={"tool_call ping": [build_text("pong")]})
    ran = run_redirected(shell, closed, "tool", "call", "ping", "-e", str(one))
    assert (ran.stdout, ran.stderr, ran.returncode) == (b"" if ">&-" in closed.split() else b"pong\n", b"", 0)


@pytest.mark.parametrize(
    "words", [("guest", "list", "-e", str(WEATHER)), ("guest", "list", "--json"), ("--help",), ("record", "list")]
)
def test_without_a_place_for_its_output_a_command_is_done(shell: Shell, words: tuple[str, ...]) -> None:
    ran = run_redirected(shell, ">&- 2>&-", *words)
    assert (ran.stdout, ran.stderr, ran.returncode) == (b"", b"", 0)


def test_without_an_input_there_are_no_arguments_to_read(shell: Shell) -> None:
    ran = run_redirected(shell, "<&-", "tool", "call", "weather", "-")
    assert ran.returncode == 2
    assert b"Error: stdin: not JSON: " in ran.stderr


# Everybody's on most machines.
needs_full = pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="this machine keeps /dev/full for root")


def test_an_error_that_nobody_can_be_told_has_its_status(shell: Shell) -> None:
    assert run_redirected(shell, "2>&-", "guest", "remove", "nobody").returncode == 1


@needs_full
def test_an_error_that_cannot_be_written_has_its_status(shell: Shell) -> None:
    assert run_redirected(shell, "2>/dev/full", "guest", "remove", "nobody").returncode == 1


@needs_full
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "words",
    [("--version",), ("guest", "list", "-e", str(WEATHER)), ("tool", "call", "weather", BERN, "--json", "-e", str(WEATHER))],
)
def test_a_full_disk_is_told_in_one_line(shell: Shell, words: tuple[str, ...], unbuffered: str) -> None:
    ran = run_redirected(shell, ">/dev/full", *words, PYTHONUNBUFFERED=unbuffered)
    *_, last = ran.stderr.decode().splitlines()
    assert last == f"serai: cannot write: {os.strerror(errno.ENOSPC)}"
    assert b"Traceback" not in ran.stderr
    assert ran.returncode == 1


# A command whose output is not yet written when it ends.
LATE = """
import sys, click
from serai.cli import main
from serai.cli.command_table import serai

serai.add_command(click.Command("late", callback=lambda: print("late")))
sys.argv = ["serai", "late"]
main()
"""


@needs_full
def test_what_was_not_yet_written_at_the_end_counts_too(shell: Shell) -> None:
    with open("/dev/full", "wb") as full:
        ran = run_late(shell, full)
    assert (ran.stderr, ran.returncode) == (f"serai: cannot write: {os.strerror(errno.ENOSPC)}\n".encode(), 1)


def test_a_reader_that_has_left_at_the_end_hears_no_complaint(shell: Shell) -> None:
    readable, writable = os.pipe()
    os.close(readable)
    with open(writable, "wb") as pipe:
        ran = run_late(shell, pipe)
    assert (ran.stderr, ran.returncode) == (b"", 1)


def run_late(shell: Shell, stdout: IO[bytes]) -> subprocess.CompletedProcess[bytes]:
    argv, env = [sys.executable, "-c", LATE], shell.env | {"PYTHONUNBUFFERED": ""}
    return subprocess.run(argv, env=env, cwd=shell.cwd, stdout=stdout, stderr=subprocess.PIPE, timeout=50, check=False)


# -- helpers ----------------------------------------------------------------------------------------------------------------------


def start(shell: Shell, *arguments: str, argv: list[str] | None = None, **env: str) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        argv or shell.argv(*arguments), env=shell.env | env, cwd=shell.cwd, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0
    )


def count_waiting_bytes(pipe: IO[bytes]) -> int:
    """How much of what was written nobody has read yet."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def read_state(process: subprocess.Popen[bytes]) -> str:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2][0]


def wait_for_end(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes, int]:
    """What it said from now on, and its status. Its input stays open until it has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.wait(30)
    with process.stdin, process.stdout as out, process.stderr as err:
        return out.read(), err.read(), process.returncode


def run_redirected(shell: Shell, redirections: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """The command as a shell starts it with these redirections."""
    argv = ["sh", "-c", f'exec "$@" {redirections}', "sh", *shell.argv(*arguments)]
    return subprocess.run(argv, env=shell.env | env, cwd=shell.cwd, capture_output=True, timeout=50, check=False)


@pytest.mark.parametrize(("soft", "after"), [(256, 512), (512, 512)])
def test_a_shell_that_allows_few_descriptors_does_not_keep_guests_out(soft: int, after: int) -> None:
    program = """
import resource
from serai.cli import entry
entry.raise_descriptor_limit()
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    shell = f'ulimit -Sn {soft} && ulimit -Hn 512 && exec "$@"'
    ran = subprocess.run(
        ["sh", "-c", shell, "sh", sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    assert ran.stdout == f"({after}, 512)\n"

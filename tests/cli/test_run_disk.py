"""What fails under a run: the disk of its session, of its recording, of its approvals. A clear error, and nothing corrupted."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.support.cli.run_process import Run, open_sessions, read_result, read_session, run, write_prompt
from tests.support.cli.shell import Shell

PARROT = ("--model", "parrot")


def write_long_session(shell: Shell) -> Path:
    """A session that is the longest file by far; so a limit on the length of files is its alone to feel."""
    assert run(shell, "-q", "-", input="a" * 60_000).returncode == 0
    for _ in range(2):
        assert run(shell, "-q", "-c", "-", input="a" * 60_000).returncode == 0
    [one] = open_sessions(shell).list()
    return Path(one.path)


@pytest.mark.req("app.run.faults", "app.run.status")
@pytest.mark.parametrize(
    ("room", "prompt"),
    [
        (10, "hi"),
        (400, write_prompt("say so far", "repeat 500 say word ", "say end")),
        (1500, write_prompt("say one", 'call bash {"command":"echo two"}', "repeat 1000 say word ")),
    ],
    ids=["not even the prompt", "not the answer", "not what comes after a tool"],
)
def test_a_full_disk_is_told_and_the_session_stays_sound(shell: Shell, room: int, prompt: str) -> None:
    path = write_long_session(shell)
    before, size = read_session(shell), path.stat().st_size
    with Run(shell, *PARROT, "--json", "-c", "--allow", "bash", prompt, fsize=size + room) as going:
        assert going.ends() == 3
        told = f"serai: {path}: the session cannot be written: {os.strerror(errno.EFBIG)}"
        assert [line for line in going.stderr.splitlines() if str(path) in line] == [told]
        last = read_result(going)
        assert (last["status"], last["session"]) == ("error", path.stem)
        assert os.strerror(errno.EFBIG) in last["error"]
    assert path.stat().st_size <= size + room
    after = read_session(shell)
    assert after[: len(before)] == before
    assert run(shell, "-q", "-c", write_prompt("say on")).stdout == "on\n"
    assert read_session(shell)[-1] == "assistant: on"


@pytest.mark.req("app.run.faults", "app.run.status")
def test_a_disk_that_is_full_from_the_start_is_told_and_nothing_begins(shell: Shell) -> None:
    with Run(shell, *PARROT, "--json", "hi", fsize=100) as going:
        assert going.ends() == 1
        assert "Traceback" not in going.stderr
        assert (read_result(going)["status"], read_result(going)["session"]) == ("error", "")
        assert read_result(going)["error"] in going.stderr
    assert run(shell, "-q", "hi").stdout == "You said: hi\n"

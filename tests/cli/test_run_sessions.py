"""A conversation over several runs: it goes on where it was, also after a run that was killed at whatever moment."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

from tests.support.cli.run_process import Run, open_sessions, read_result, read_session, run, write_prompt
from tests.support.cli.shell import Shell
from tests.support.host.zot_guests import make

PARROT = ("--model", "parrot")


@pytest.mark.req("app.run.continues")
def test_a_run_goes_on_with_the_newest_session_of_its_folder_or_with_one_by_name(shell: Shell) -> None:
    first = read_result(run(shell, "--json", "one"))["session"]
    again = read_result(run(shell, "--json", "--continue", "two"))
    assert (again["session"], again["status"]) == (first, "success")
    other = read_result(run(shell, "--json", "three"))["session"]
    assert other != first
    assert read_result(run(shell, "--json", "--session", first[:8], "four"))["session"] == first
    said = ["one", "You said: one", "two", "You said: two", "four", "You said: four"]
    assert read_session(shell, first) == [f"{'assistant' if n % 2 else 'user'}: {text}" for n, text in enumerate(said)]
    assert read_session(shell, other) == ["user: three", "assistant: You said: three"]


@pytest.mark.req("app.run.continues")
def test_the_model_sees_what_was_said_before(shell: Shell) -> None:
    run(shell, write_prompt("say a1", "say a2", 'call read {"path":"nothing"}', "say the third step", "say and no more"))
    events = run(shell, "--json", "--continue", "next").stdout
    assert '"type":"turn_prepared"' in events
    prepared = next(line for line in events.splitlines() if '"turn_prepared"' in line)
    assert '"messages":4' in prepared


@pytest.mark.req("app.run.continues")
def test_two_runs_at_once_on_one_session_both_keep_what_was_said(shell: Shell) -> None:
    id = read_result(run(shell, "--json", "one"))["session"]
    os.mkfifo(shell.cwd / "latch")
    first, second = write_prompt('call bash {"command":"cat latch"}', "say first"), write_prompt("say second")
    with Run(shell, *PARROT, "--session", id, "--json", "--allow", "bash", first) as going:
        going.until('"type":"tool_started"')
        assert run(shell, "-q", "--session", id, second).stdout == "second\n"
        (shell.cwd / "latch").write_text("lifted")
        assert going.ends() == 0
        assert read_result(going)["text"] == "first"
    now = read_session(shell, id)
    for text in (f"user: {first}", f"user: {second}", "assistant: second", "assistant: first"):
        assert now.count(text) == 1, now
    assert run(shell, "-q", "--session", id, write_prompt("say third")).stdout == "third\n"


TOOLED = """
hello(tool("slow"), subscribe(events=["turn_start"], intercept=["tool_call"]))
for frame in frames():
    if frame["type"] == "event_intercept":
        judge(frame["id"])
    elif frame["type"] == "tool_call":
        time.sleep(0.005)
        answer(frame["id"], "slowly")
"""


@pytest.mark.slow
@pytest.mark.req("app.run.killed")
@pytest.mark.timeout(240)  # two dozen runs: half a minute where others are busy too
def test_a_run_that_is_killed_at_any_moment_loses_nothing_but_its_turn(shell: Shell, tmp_path: Path) -> None:
    guest = make(tmp_path, TOOLED, name="tooled")
    chance = random.Random(9)
    finished = say_and_read(shell, "begin")
    options = (*PARROT, "-e", guest, "--allow", "slow", "--allow", "bash", "--continue", "--json")
    ended = 0
    for number in range(20):
        prompt = write_prompt("say one", "call slow {}", "say two", 'call bash {"command":"echo done"}', f"say end {number}")
        with Run(shell, *options, prompt) as going:
            going.until_lines(chance.randrange(40))
            going.signal(signal.SIGKILL)
            ended += going.ends() == 0
        assert read_session(shell)[: len(finished)] == finished
        if number % 5 == 4:
            finished = say_and_read(shell, f"after {number}", "--continue")
            assert finished[-1] == f"assistant: after {number}"
    assert ended < 10
    assert len(open_sessions(shell).list()) == 1


def say_and_read(shell: Shell, text: str, *options: str) -> list[str]:
    ran = run(shell, "-q", *options, write_prompt(f"say {text}"))
    assert (ran.stdout, ran.stderr, ran.returncode) == (f"{text}\n", "", 0)
    return read_session(shell)

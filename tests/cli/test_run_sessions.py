"""A conversation over several runs: it goes on where it was, also after a run that was killed at whatever moment."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

from tests.cli.guests import Shell
from tests.cli.runs import Run, kept, result, run, script, sessions
from tests.host.guests import make

PARROT = ("--model", "parrot")


@pytest.mark.req("app.run.continues")
def test_a_run_goes_on_with_the_newest_session_of_its_folder_or_with_one_by_name(shell: Shell) -> None:
    first = result(run(shell, "--json", "one"))["session"]
    again = result(run(shell, "--json", "--continue", "two"))
    assert (again["session"], again["status"]) == (first, "success")
    other = result(run(shell, "--json", "three"))["session"]
    assert other != first
    assert result(run(shell, "--json", "--session", first[:8], "four"))["session"] == first
    said = ["one", "You said: one", "two", "You said: two", "four", "You said: four"]
    assert kept(shell, first) == [f"{'assistant' if n % 2 else 'user'}: {text}" for n, text in enumerate(said)]
    assert kept(shell, other) == ["user: three", "assistant: You said: three"]


@pytest.mark.req("app.run.continues")
def test_the_model_sees_what_was_said_before(shell: Shell) -> None:
    run(shell, script("say a1", "say a2", 'call read {"path":"nothing"}', "say the third step", "say and no more"))
    events = run(shell, "--json", "--continue", "next").stdout
    assert '"type":"turn_prepared"' in events
    prepared = next(line for line in events.splitlines() if '"turn_prepared"' in line)
    assert '"messages":4' in prepared


@pytest.mark.req("app.run.continues")
def test_two_runs_at_once_on_one_session_both_keep_what_was_said(shell: Shell) -> None:
    id = result(run(shell, "--json", "one"))["session"]
    os.mkfifo(shell.cwd / "latch")
    first, second = script('call bash {"command":"cat latch"}', "say first"), script("say second")
    with Run(shell, *PARROT, "--session", id, "--json", "--allow", "bash", first) as going:
        going.until('"type":"tool_started"')
        assert run(shell, "-q", "--session", id, second).stdout == "second\n"
        (shell.cwd / "latch").write_text("lifted")
        assert going.ends() == 0
        assert result(going)["text"] == "first"
    now = kept(shell, id)
    for text in (f"user: {first}", f"user: {second}", "assistant: second", "assistant: first"):
        assert now.count(text) == 1, now
    assert run(shell, "-q", "--session", id, script("say third")).stdout == "third\n"


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
    finished = said_and_kept(shell, "begin")
    options = (*PARROT, "-e", guest, "--allow", "slow", "--allow", "bash", "--continue", "--json")
    ended = 0
    for number in range(20):
        prompt = script("say one", "call slow {}", "say two", 'call bash {"command":"echo done"}', f"say end {number}")
        with Run(shell, *options, prompt) as going:
            going.until_lines(chance.randrange(40))
            going.signal(signal.SIGKILL)
            ended += going.ends() == 0
        assert kept(shell)[: len(finished)] == finished
        if number % 5 == 4:
            finished = said_and_kept(shell, f"after {number}", "--continue")
            assert finished[-1] == f"assistant: after {number}"
    assert ended < 10
    assert len(sessions(shell).list()) == 1


def said_and_kept(shell: Shell, text: str, *options: str) -> list[str]:
    ran = run(shell, "-q", *options, script(f"say {text}"))
    assert (ran.stdout, ran.stderr, ran.returncode) == (f"{text}\n", "", 0)
    return kept(shell)

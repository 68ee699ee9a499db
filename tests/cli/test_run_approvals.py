"""Who lets a call run: rules of the command line and of files, a person at a terminal, and nobody."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from contextlib import closing
from datetime import date, datetime, timedelta

import pytest

from serai.policy import DecisionStore
from tests.support.cli.run_process import Run, parse_lines, read_result, read_session, run, write_prompt
from tests.support.cli.shell import Shell

TOUCH = write_prompt('call bash {"command":"touch made"}', "say $results")
ASKS = "May it run? [y]es / [N]o / [s]top the turn"


def list_pending(shell: Shell) -> list[tuple[str, str]]:
    """Which tools were asked for, and what became of that."""
    decisions = DecisionStore(str(shell.home / "policy.db"))
    try:
        return [(getattr(one.request, "tool", ""), one.state) for one in decisions.list_pending()]
    finally:
        decisions.close()


def run_with_answers(shell: Shell, *arguments: str, answers: Sequence[str] = ()) -> Run:
    """A run at a terminal, with these answers to what it asks, one after the other."""
    going = Run(shell, "--model", "parrot", *arguments, tty=True)
    for number, answer in enumerate(answers, start=1):
        going.until(ASKS, on="screen", times=number)
        going.type(answer)
    return going


@pytest.mark.req("app.run.headless")
def test_without_a_rule_and_without_a_person_it_is_a_no_that_says_what_would_allow_it(shell: Shell) -> None:
    ran = run(shell, TOUCH)
    assert "allow it with --allow 'bash:touch made', or with a rule in --policy FILE\n" in ran.stderr
    assert "bash needs an approval, and nobody is there to give it" in ran.stdout
    assert not (shell.cwd / "made").exists()
    assert ran.returncode == 0
    assert run(shell, TOUCH, "--allow", "bash:touch made").returncode == 0
    assert (shell.cwd / "made").exists()


@pytest.mark.req("app.run.rules")
@pytest.mark.parametrize(
    ("words", "runs"),
    [
        (["--allow", "bash"], True),
        (["--allow", "bash:touch *"], True),
        (["--allow", "bash:ls *"], False),
        (["--policy", "yes.toml"], True),
        (["--policy", "yes.toml", "--policy", "no.toml"], False),
        (["--allow", "bash", "--policy", "no.toml"], False),
        (["--mode", "skip"], True),
        (["--mode", "manual"], False),
    ],
)
def test_rules_and_the_mode_decide(shell: Shell, words: list[str], runs: bool) -> None:
    (shell.cwd / "yes.toml").write_text('[[rule]]\nid = "yes"\ntool = "bash"\ndecide = "allow"\n')
    (shell.cwd / "no.toml").write_text('[[rule]]\nid = "no"\ntool = "bash"\ndecide = "deny"\n')
    assert run(shell, TOUCH, *words).returncode == 0
    assert (shell.cwd / "made").exists() is runs


@pytest.mark.req("app.run.asks")
@pytest.mark.parametrize(("answer", "runs"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_a_person_at_the_terminal_is_asked(shell: Shell, answer: str, runs: bool) -> None:
    with run_with_answers(shell, TOUCH, answers=[answer]) as going:
        assert going.ends() == 0
        assert "bash, asked by resident\n  command | touch made\n" in going.screen
        assert ASKS not in going.stdout + going.stderr
    assert (shell.cwd / "made").exists() is runs
    assert list_pending(shell) == []


@pytest.mark.req("app.run.asks", "app.run.status")
def test_who_says_no_and_stop_ends_the_turn_as_refused(shell: Shell) -> None:
    with run_with_answers(shell, "--json", TOUCH, answers=["s enough\n"]) as going:
        assert going.ends() == 4
        assert (read_result(going)["status"], read_result(going)["error"]) == ("denied", "enough")
        assert "serai: enough\n" in going.stderr


@pytest.mark.req("app.run.asks")
def test_always_is_for_the_next_run_too(shell: Shell) -> None:
    with run_with_answers(shell, TOUCH, answers=["a\n"]) as going:
        assert going.ends() == 0
    (shell.cwd / "made").unlink()
    with run_with_answers(shell, "--continue", TOUCH) as going:
        assert going.ends() == 0
        assert ASKS not in going.screen
    assert (shell.cwd / "made").exists()


@pytest.mark.req("app.run.asks", "app.line.always")
def test_always_is_shown_for_as_long_as_the_settings_keep_it(shell: Shell) -> None:
    shell.home.mkdir()
    (shell.home / "config.toml").write_text("[limits]\nremember = 3650\n")
    with run_with_answers(shell, TOUCH, answers=["a\n"]) as going:
        assert going.ends() == 0
    with closing(DecisionStore(str(shell.home / "policy.db"))) as kept:
        [one] = kept.list_decisions()
    assert one.expires is not None
    said = re.search(r"until (\d{4}-\d\d-\d\d) ", going.screen.replace("\n    :+", ""))
    assert said is not None
    until = datetime.fromtimestamp(one.expires).astimezone().date()
    assert abs(until - date.fromisoformat(said[1])) <= timedelta(days=1)  # it may be midnight


@pytest.mark.req("app.run.interrupt")
def test_an_interrupt_at_the_question_is_no_yes_and_nothing_waits(shell: Shell) -> None:
    with run_with_answers(shell, "--json", TOUCH) as going:
        going.until(ASKS, on="screen")
        going.type("\x03")  # to all in the foreground, as a person does it
        assert going.ends() == 130
        assert read_result(going)["status"] == "cancelled"
    assert not (shell.cwd / "made").exists()
    assert list_pending(shell) == []


@pytest.mark.req("app.run.faults")
def test_a_terminal_that_hangs_up_at_the_question_ends_the_run(shell: Shell) -> None:
    with run_with_answers(shell, "--json", TOUCH) as going:
        going.until(ASKS, on="screen")
        going.hang_up()
        assert going.ends() == 129
        assert (read_result(going)["status"], read_result(going)["error"]) == ("cancelled", "its terminal is gone (SIGHUP)")
    assert not (shell.cwd / "made").exists()
    assert list_pending(shell) == []


@pytest.mark.req("app.run.killed")
def test_what_was_asked_when_a_run_was_killed_is_known(shell: Shell) -> None:
    with run_with_answers(shell, TOUCH) as going:
        going.until(ASKS, on="screen")
        going.signal(signal.SIGKILL)
        assert going.ends() == -9
    assert list_pending(shell) == [("bash", "lost")]
    shown = shell("policy", "pending")
    assert "bash" in shown.stdout
    assert "touch made" in shown.stdout
    again = run(shell, "--continue", write_prompt("say and now?"))
    assert "an approval still waits from a run that was killed: bash" in again.stderr
    assert again.stdout == "and now?\n"
    assert read_session(shell)[0] == f"user: {TOUCH}"


@pytest.mark.req("app.run.asks")
def test_what_is_asked_and_answered_is_an_event(shell: Shell) -> None:
    with run_with_answers(shell, "--json", TOUCH, answers=["y\n"]) as going:
        assert going.ends() == 0
        kinds = [line["type"] for line in parse_lines(going.stdout)]
    assert kinds.index("tool_called") < kinds.index("approval") < kinds.index("tool_started") < kinds.index("tool_ended")

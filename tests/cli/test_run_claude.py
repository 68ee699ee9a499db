"""`serai run --agent claude`, as a person starts it, with a scripted Claude Code."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
from pathlib import Path

import pytest

from serai.testing.claude.script import Script, ScriptedClaude
from serai.wire import process_tree
from tests.support.app.claude_apps import hello
from tests.support.claude.transcripts import assistant, user
from tests.support.cli.run_process import PATIENCE, Run, RunServer, find_left, parse_lines, read_result, read_session
from tests.support.cli.shell import Shell
from tests.support.host.zot_guests import make

CLAUDE = ("--agent", "claude")
ASKS = "May it run? [y]es / [N]o / [s]top the turn"
QUESTION = {
    "questions": [
        {"question": "Which one?", "header": "Pick", "options": [{"label": "Red"}, {"label": "Blue"}], "multiSelect": False}
    ]
}
OWN = "0a1b2c3d-0000-4000-8000-000000000000"


def install_claude(shell: Shell, *scripts: Script, options: tuple[str, ...] = ()) -> ScriptedClaude:
    """The Claude Code of this person's settings."""
    claude = ScriptedClaude(shell.home.parent / "bin", *scripts, options=options)
    shell.home.mkdir(exist_ok=True)
    (shell.home / "config.toml").write_text(f'[agents.claude]\npath = "{claude.path}"\n[limits]\nagent_first = 50\n')
    return claude


def run(shell: Shell, *arguments: str | Path, input: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """A run to its end; nothing that it started is left."""
    tag = secrets.token_hex(8)
    given = shell.env | {process_tree.TAG: tag} | env
    ran = RunServer.of_all().run("run", *CLAUDE, *map(str, arguments), env=given, cwd=shell.cwd, input=input, timeout=PATIENCE)
    assert not find_left(tag)
    return ran


def build_touch_script(text: str = "done") -> Script:
    return Script().init().calls("t1", command="touch made").text(text).result(text)


# -- what is printed, and how it ends


@pytest.mark.req("app.driven.run")
def test_what_it_says_is_printed(shell: Shell) -> None:
    claude = install_claude(
        shell, Script().init().text("Let me look.").calls("t1", command="echo one").text("It is one.").result("It is one.")
    )
    ran = run(shell, "--allow", "bash:echo *", "look", "there")
    assert (ran.stdout, ran.returncode) == ("Let me look.\nIt is one.\n", 0)
    assert "bash  echo one\n" in ran.stderr
    assert claude.given().frames[1]["message"]["content"] == "look there"
    assert read_session(shell) == [
        "user: look there",
        "assistant: Let me look.",
        "assistant: [t1 bash]",
        "t1: one",
        "assistant: It is one.",
    ]


@pytest.mark.req("app.driven.run")
def test_without_a_person_and_without_a_rule_it_is_a_no_that_says_what_would_allow_it(shell: Shell) -> None:
    install_claude(shell, build_touch_script())
    ran = run(shell, "go")
    assert (ran.stdout, ran.returncode) == ("done\n", 0)
    assert "allow it with --allow 'bash:touch made', or with a rule in --policy FILE\n" in ran.stderr
    assert not (shell.cwd / "made").exists()


@pytest.mark.req("app.driven.run")
@pytest.mark.parametrize(("rule", "runs"), [("bash:touch *", True), ("bash", True), ("bash:ls *", False)])
def test_rules_of_the_command_line_count(shell: Shell, rule: str, runs: bool) -> None:
    install_claude(shell, build_touch_script())
    assert run(shell, "--allow", rule, "go").returncode == 0
    assert (shell.cwd / "made").exists() is runs


@pytest.mark.req("app.driven.run")
def test_as_json_every_event_is_a_line(shell: Shell) -> None:
    install_claude(shell, build_touch_script())
    ran = run(shell, "--json", "--mode", "skip", "go")
    kinds = [line["type"] for line in parse_lines(ran.stdout)]
    assert kinds.index("tool_called") < kinds.index("tool_started") < kinds.index("tool_ended") < kinds.index("turn_ended")
    last = read_result(ran)
    assert (last["status"], last["text"]) == ("success", "done")
    assert last["usage"]["cost_usd"] == 0.001
    assert read_session(shell, last["session"])[0] == "user: go"


@pytest.mark.req("app.driven.run")
def test_a_turn_that_fails_has_the_status_of_one(shell: Shell) -> None:
    install_claude(shell, Script().init().result(subtype="error_max_turns", is_error=True, errors=["3 turns are enough"]))
    ran = run(shell, "go")
    assert ran.returncode == 3
    assert "serai: claude: " in ran.stderr
    assert "3 turns are enough" in ran.stderr


@pytest.mark.req("app.driven.run")
def test_a_program_that_dies_is_told_with_its_last_words(shell: Shell) -> None:
    install_claude(shell, Script().init().err("it hurts").exits(7))
    ran = run(shell, "go")
    assert ran.returncode == 3
    assert "it hurts" in ran.stderr
    assert "exit status 7" in ran.stderr


@pytest.mark.req("app.driven.run")
def test_one_that_is_not_there_could_not_begin_and_says_how_to_have_it(shell: Shell) -> None:
    install_claude(shell)
    (shell.home.parent / "bin" / "claude").unlink()
    ran = run(shell, "go")
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert "it does not exist" in ran.stderr
    assert "install the package claude-agent-sdk from PyPI" in ran.stderr
    assert read_result(run(shell, "--json", "go"))["hint"].startswith("correct `path` under [agents.claude]")


@pytest.mark.req("app.driven.run")
def test_a_guard_that_blocks_the_turn_is_a_refusal(shell: Shell, tmp_path: Path) -> None:
    refuses = """
hello(subscribe(intercept=["turn_start"]))
for frame in frames():
    if frame["type"] == "event_intercept":
        judge(frame["id"], block=True, reason="closed on Sundays")
"""
    install_claude(shell, hello())
    ran = run(shell, "-e", make(tmp_path / "guests", refuses), "go")
    assert (ran.stdout, ran.returncode) == ("", 4)
    assert "closed on Sundays" in ran.stderr


# -- somebody at a terminal


@pytest.mark.req("app.driven.run", "agents.scenario.B3")
@pytest.mark.parametrize(("answer", "runs"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_a_person_at_the_terminal_is_asked(shell: Shell, answer: str, runs: bool) -> None:
    install_claude(shell, build_touch_script())
    with Run(shell, *CLAUDE, "go", tty=True) as going:
        going.until(ASKS, on="screen")
        assert "bash, asked by claude\n  command | touch made\n" in going.screen
        going.type(answer)
        assert going.ends() == 0
        assert going.stdout == "done\n"
    assert (shell.cwd / "made").exists() is runs


@pytest.mark.req("app.driven.run")
def test_who_says_no_and_stop_ends_the_turn_as_refused(shell: Shell) -> None:
    script = Script().init().calls("t1", command="touch made")
    stopped = script.result(subtype="error_during_execution", is_error=True, terminal_reason="aborted_tools")
    install_claude(shell, stopped)
    with Run(shell, *CLAUDE, "--json", "go", tty=True) as going:
        going.until(ASKS, on="screen")
        going.type("s enough\n")
        assert going.ends() == 4
        assert (read_result(going)["status"], read_result(going)["error"]) == ("denied", "enough")


@pytest.mark.req("agents.scenario.B6")
def test_a_question_is_answered_by_the_number_that_is_typed(shell: Shell) -> None:
    claude = install_claude(
        shell, Script().init().calls("t1", "AskUserQuestion", told="ok", **QUESTION).text("thanks").result("thanks")
    )
    with Run(shell, *CLAUDE, "ask me", tty=True) as going:
        going.until("Your answer", on="screen")
        assert "| [Pick] Which one?\n          | 1. Red\n          | 2. Blue\n" in going.screen
        going.type("2\n")
        assert going.ends() == 0
        assert going.stdout == "thanks\n"
    answer = claude.given().answers()["ask-t1"]["response"]
    assert answer["behavior"] == "allow"
    assert answer["updatedInput"]["answers"] == {"Which one?": "Blue"}


@pytest.mark.req("app.driven.run")
def test_a_question_that_nobody_is_there_for_is_not_answered(shell: Shell) -> None:
    claude = install_claude(shell, Script().init().calls("t1", "AskUserQuestion", told="ok", **QUESTION).result("thanks"))
    assert run(shell, "--mode", "skip", "ask me").returncode == 0
    assert claude.given().answers()["ask-t1"]["response"]["behavior"] == "deny"


# -- Ctrl-C


@pytest.mark.req("app.driven.run")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_one_signal_interrupts_it(shell: Shell, number: int, status: int) -> None:
    claude = install_claude(shell, Script().init().text("at work").interrupted())
    with Run(shell, *CLAUDE, "--json", "go") as going:
        going.until("at work")
        going.signal(number)
        assert going.ends() == status
        assert read_result(going)["status"] == "cancelled"
    subtypes = [frame["request"]["subtype"] for frame in claude.given().frames if frame["type"] == "control_request"]
    assert subtypes[-1] == "interrupt"


@pytest.mark.req("app.driven.run")
def test_a_second_one_ends_it_at_once(shell: Shell) -> None:
    claude = install_claude(shell, Script().init().text("at work").exits("killed"), options=("--stay", "--ignore-term"))
    (shell.home / "config.toml").write_text(f'[agents.claude]\npath = "{claude.path}"\n[limits]\ninterrupt = 600\n')
    with Run(shell, *CLAUDE, "--json", "go") as going:
        going.until("at work")
        assert going.insist(signal.SIGINT) == -signal.SIGINT  # by the signal itself


# -- conversations, the recording


@pytest.mark.req("app.driven.kept")
def test_it_goes_on_with_continue_and_with_an_id_of_ours_or_its_own(shell: Shell, tmp_path: Path) -> None:
    claude = install_claude(shell, hello("first"), hello("second"), hello("third"), hello("fourth"))
    place = tmp_path / "person" / ".claude" / "projects" / "-somewhere"
    place.mkdir(parents=True)
    (place / f"{OWN}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (user("hello"), assistant("hi"))))
    first = read_result(run(shell, "--json", "one"))["session"]
    home = {"HOME": str(tmp_path / "person")}
    assert read_result(run(shell, "--json", "--continue", "two"))["session"] == first
    assert read_result(run(shell, "--json", "--session", first[:8], "three"))["session"] == first
    run(shell, "--session", OWN[:8], "four", **home)
    assert [claude.given(start).option("--resume") for start in range(4)] == [None, first, first, OWN]
    ran = run(shell, "--session", "ffffffff", "five", **home)
    assert ran.returncode == 1
    assert claude.starts == 4


@pytest.mark.req("app.driven.recorded")
def test_its_wire_is_on_record(shell: Shell) -> None:
    install_claude(shell, build_touch_script())
    assert run(shell, "--mode", "skip", "go").returncode == 0
    listed = shell("record", "list")
    assert "serai run" in listed.stdout
    shown = shell("record", "show")
    assert shown.returncode == 0
    assert "claude" in shown.stdout
    assert "can_use_tool" in shown.stdout
    rows = [json.loads(line) for line in shell("record", "show", "--json").stdout.splitlines()]
    assert any(row.get("wire") for row in rows)

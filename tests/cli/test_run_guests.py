"""zot guests inside a run: their tools, commands, events and guards."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.support.cli.run_process import Run, list_files, parse_lines, read_result, read_session, run, write_prompt
from tests.support.cli.shell import EXAMPLES, Shell
from tests.support.host.zot_guests import NOTE, make, pids

WEATHER = ("-e", EXAMPLES / "weather-python", "--allow", "weather")
GUARD = ("-e", EXAMPLES / "guard-python")

# Serves whatever it is asked for; each event and question it hears is a line of the file `heard`.
LISTENER = """
heard = open("heard", "a", buffering=1)
hello(
    tool("echo"),
    command("ask", "asks the agent"),
    command("show", "shows its arguments"),
    command("fail", "cannot"),
    subscribe(events=["session_start", "turn_start", "tool_call", "assistant_message", "turn_end"]),
)
for frame in frames():
    heard.write(json.dumps(frame) + "\\n")
    if frame["type"] == "tool_call":
        answer(frame["id"], "echo " + json.dumps(frame["args"]))
    elif frame["type"] == "command_invoked" and frame["name"] == "ask":
        respond(frame["id"], "prompt", prompt="please " + frame["args"])
    elif frame["type"] == "command_invoked" and frame["name"] == "show":
        respond(frame["id"], "display", display="you typed " + frame["args"])
    elif frame["type"] == "command_invoked":
        respond(frame["id"], error="not today")
heard.write('{"type": "goodbye"}\\n')
"""


def read_log(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "heard").read_text().splitlines()]


@pytest.mark.req("app.run.guests")
def test_a_guests_tool_is_the_models(shell: Shell) -> None:
    ran = run(shell, *WEATHER, write_prompt('call weather {"city":"Bern"}'))
    assert ran.stdout.startswith("The tools said: Bern: ")
    assert 'weather  {"city": "Bern"}\n  ok\n' in ran.stderr
    assert ran.returncode == 0


@pytest.mark.req("app.run.guests")
def test_a_guest_hears_what_happens_and_is_told_goodbye(shell: Shell, tmp_path: Path) -> None:
    folder = make(tmp_path, LISTENER, name="listener")
    ran = run(shell, "-e", folder, "--allow", "echo", write_prompt('call echo {"a":1}', "say done"))
    assert (ran.stdout, ran.returncode) == ("done\n", 0)
    told = [frame.get("event", frame["type"]) for frame in read_log(folder)]
    assert told == [
        *("hello_ack", "session_start"),
        *("turn_start", "assistant_message", "tool_call", "turn_end", "tool_call"),  # told of the call, then called
        *("turn_start", "assistant_message", "turn_end", "goodbye"),
    ]


@pytest.mark.req("app.run.command")
def test_a_commands_answer_is_on_stdout_and_its_prompt_is_the_turn(shell: Shell, tmp_path: Path) -> None:
    folder = make(tmp_path, LISTENER, name="listener")
    shown = run(shell, "-e", folder, "/show two words")
    assert (shown.stdout, shown.stderr, shown.returncode) == ("[listener] you typed two words\n", "", 0)
    asked = run(shell, "-e", folder, "/ask for tea")
    assert (asked.stdout, asked.stderr, asked.returncode) == ("You said: please for tea\n", "", 0)
    assert read_session(shell) == ["user: please for tea", "assistant: You said: please for tea"]
    failed = run(shell, "-e", folder, "/fail")
    assert (failed.stdout, failed.returncode) == ("", 3)
    assert "not today" in failed.stderr
    printed = parse_lines(run(shell, "-e", folder, "--json", "/show this").stdout)
    assert {"type": "action", "action": {"type": "display", "text": "you typed this", "source": "listener"}} in printed


@pytest.mark.req("app.run.guard")
def test_a_guard_blocks_a_call_and_the_model_is_told_why(shell: Shell) -> None:
    ran = run(shell, *GUARD, "--allow", "bash", write_prompt('call bash {"command":"rm -rf /tmp/nothing"}'))
    assert "bash  rm -rf /tmp/nothing  blocked: " in ran.stderr
    assert "rm -rf is not run here" in ran.stdout
    assert ran.returncode == 0


@pytest.mark.req("app.run.guard")
def test_a_guard_rewrites_a_call_and_what_it_made_of_it_runs(shell: Shell) -> None:
    ran = run(shell, *GUARD, *WEATHER, write_prompt('call weather {"city":"Paris"}'))
    assert ran.stdout.startswith("The tools said: Bern: ")
    assert 'weather  {"city": "Bern"}' in ran.stderr


@pytest.mark.req("app.run.guard")
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_what_a_guard_replaces_is_never_shown(shell: Shell, form: list[str]) -> None:
    ran = run(shell, *GUARD, *form, write_prompt("say my password is hunter2, you know"))
    assert "hunter2" not in (ran.stdout + ran.stderr).replace(">> say my password is hunter2", "")
    assert "my password is *******, you know" in ran.stdout
    assert ran.returncode == 0


HIDER = """
hello(subscribe(intercept=["assistant_message"]))
for frame in frames():
    if frame["type"] == "event_intercept":
        judge(frame["id"], block=True)
"""


@pytest.mark.req("app.run.guard")
def test_a_message_that_is_held_back_is_not_shown(shell: Shell, tmp_path: Path) -> None:
    ran = run(shell, "-e", make(tmp_path, HIDER, name="hider"), write_prompt("say a secret"))
    assert (ran.stdout, ran.returncode) == ("", 0)


BLOCKER = """
hello(subscribe(intercept=["turn_start"]))
for frame in frames():
    if frame["type"] == "event_intercept":
        judge(frame["id"], block=True, reason="it is Sunday")
"""


@pytest.mark.req("app.run.status", "zot.edge.21")
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_turn_that_is_blocked_is_refused_and_what_was_said_stays(shell: Shell, tmp_path: Path, form: list[str]) -> None:
    folder = make(tmp_path, BLOCKER, name="blocker")
    ran = run(shell, "-e", folder, *form, "make it so")
    assert ran.returncode == 4
    assert "it is Sunday" in ran.stderr
    if form:
        assert (read_result(ran)["status"], "it is Sunday" in read_result(ran)["error"]) == ("denied", True)
    assert read_session(shell)[0] == "user: make it so"


@pytest.mark.req("app.run.status", "app.run.guard")
@pytest.mark.parametrize("prompt", ["hi", "/show this"])
def test_a_run_does_not_start_without_its_guard(shell: Shell, tmp_path: Path, prompt: str) -> None:
    keeper = make(tmp_path, "raise SystemExit(7)", name="keeper", settings="guard = true\n")
    ran = run(shell, "-e", keeper, "-e", make(tmp_path, LISTENER, name="listener"), "--json", prompt)
    assert read_result(ran)["status"] == "denied"
    assert "keeper" in ran.stderr
    assert "exit status 7" in ran.stderr
    assert ran.returncode == 4
    assert list_files(shell.home / "sessions") == []


# Dies at the question of the kind that it is named for.
DYING = """
kind = os.path.basename(os.getcwd())
hello(tool("die"), tool("live"), subscribe(events=["turn_start"], intercept=[kind] if kind in ("tool_call", "turn_start") else []))
for frame in frames():
    if frame["type"] == "event_intercept" or frame["type"] == kind or (frame["type"] == "tool_call" and frame["name"] == "die"):
        sys.stderr.write("out of breath\\n")
        os._exit(7)
    if frame["type"] == "tool_call":
        answer(frame["id"], "alive")
"""


LIVING = """
hello(tool("ping"))
for frame in frames():
    if frame["type"] == "tool_call":
        answer(frame["id"], "alive")
"""


@pytest.mark.req("app.run.guard", "app.run.faults")
@pytest.mark.parametrize(
    ("name", "guard", "said", "status"),
    [
        ("tool_call", True, "tool_call refused: no answer from the guard", 0),  # the call alone is refused
        ("tool_call", False, "alive", 0),
        ("turn_start", True, "", 4),
        ("turn_start", False, "alive", 0),
        ("event", False, "alive", 0),
    ],
)
def test_a_guest_that_dies_when_it_is_asked(shell: Shell, tmp_path: Path, name: str, guard: bool, said: str, status: int) -> None:
    """An open one lets pass, a guard does not; in an event nobody waits for it."""
    folder = make(tmp_path, DYING, name=name, settings="guard = true\n" if guard else "")
    live = make(tmp_path, LIVING, name="live")
    ran = run(shell, "-e", folder, "-e", live, "--allow", "ping", write_prompt("call ping {}", "say $results"))
    assert said == ran.stdout.strip() or (guard and said in ran.stdout), ran
    assert ran.returncode == status, ran


@pytest.mark.req("app.run.faults")
def test_a_guest_that_dies_in_its_tool_is_an_error_of_that_call(shell: Shell, tmp_path: Path) -> None:
    folder = make(tmp_path, DYING, name="dying")
    ran = run(shell, "-e", folder, "--allow", "die", write_prompt("call die {}", "say it said $results"))
    assert "exit status 7" in ran.stdout
    assert ran.returncode == 0


@pytest.mark.req("app.run.guard", "app.run.faults")
def test_a_guard_that_is_killed_in_the_middle_ends_what_it_guarded(shell: Shell, tmp_path: Path) -> None:
    shell.home.mkdir()
    (shell.home / "config.toml").write_text("[limits]\nrestart_wait = 30\nrestart_wait_most = 30\n")
    folder = make(tmp_path, f"{NOTE}remember(subscribe(intercept=['tool_call']))", name="keeper", settings="guard = true\n")
    os.mkfifo(shell.cwd / "latch")
    first, second = 'call bash {"command":"cat latch; touch first"}', 'call bash {"command":"touch second"}'
    options = ("--model", "parrot", "-e", folder, "--allow", "bash", "--json")
    with Run(shell, *options, write_prompt(first, "say between", second, "say $results")) as going:
        going.until('"type":"tool_started"')
        os.kill(pids(folder)[0], signal.SIGKILL)
        (shell.cwd / "latch").write_text("")
        assert going.ends() == 0
        assert "refused" in read_result(going)["text"]
    assert (shell.cwd / "first").exists()
    assert not (shell.cwd / "second").exists()

"""`serai hook` as a person calls it: what it shows of a hook, what it never shows, and what its exit status tells."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from serai.cli.command_table import COMMANDS
from serai.cli.hook import hook
from serai.testing.conformance import hook as conformance
from tests.support.cli.shell import Shell

TOKEN = "tok_0123456789abcdef"
STATE = "sta_fedcba9876543210"
# The beginning of a hook; the rest is a test's.
HEAD = f"#!{sys.executable} -IS\nimport json, os, signal, sys\nrequest = json.load(sys.stdin)\n"
MINTS = f"""
if request["event"] == "box.create":
    print(json.dumps({{"files": [{{"path": "/root/token", "content": "{TOKEN}"}}], "state": "{STATE}"}}))
"""


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine's own settings is seen, and what is kept is kept here."""
    monkeypatch.setenv("SERAI_HOME", str(tmp_path / "home"))
    (tmp_path / "kept").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "kept"))


def write_hook(folder: Path, body: str, name: str = "hook") -> Path:
    path = folder / name
    path.write_text(HEAD + body)
    path.chmod(0o755)
    return path


def write_answering_hook(folder: Path, answer: object) -> Path:
    return write_hook(folder, f"print({json.dumps(answer)!r})\n")


def run_hook(*arguments: str | Path, input: str | None = None) -> Result:
    return CliRunner().invoke(hook, [str(argument) for argument in arguments], input=input, catch_exceptions=False)


def parse_object(result: Result) -> dict[str, Any]:
    [line] = result.stdout.splitlines()
    form: dict[str, Any] = json.loads(line)
    return form


def test_the_help_of_all_commands_has_the_first_line_of_this_one() -> None:
    assert run_hook("--help").stdout.splitlines()[2].strip() == COMMANDS["hook"][1]


# -- a run ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("hooks.hook.run")
def test_a_run_shows_each_file_and_never_what_is_in_it(tmp_path: Path) -> None:
    files = [
        {"path": "/root/token", "content": TOKEN},
        {"path": "/home//node/./key", "content_base64": "/////w==", "mode": "0440", "uid": 1000, "gid": 100},
        {"path": "/etc/empty", "mode": "0644"},
    ]
    path = write_answering_hook(tmp_path, {"files": files, "state": STATE})
    result = run_hook("run", path, "create")
    assert result.exit_code == 0
    head, *rows, state = result.stdout.splitlines()
    assert re.fullmatch(r"box\.create of sample: done in \d+\.\d\d s", head)
    assert [row.split() for row in rows] == [
        ["/root/token", "0600", "0:0", "20", "bytes", "text"],
        ["/home/node/key", "0440", "1000:100", "4", "bytes", "binary"],
        ["/etc/empty", "0644", "0:0", "0", "bytes", "text"],
    ]
    assert state == "state: 20 bytes, not shown"
    assert TOKEN not in result.output
    assert STATE not in result.output


def test_as_json_it_is_one_object_without_secrets(tmp_path: Path) -> None:
    result = run_hook(
        "run", write_hook(tmp_path, MINTS), "box.create", "--json", "--description", "a box", "--image", "base", "--box-id", "b1"
    )
    form = parse_object(result)
    [kept] = (tmp_path / "kept").iterdir()
    assert form.pop("seconds") > 0
    assert form == {
        "hook": str(tmp_path / "hook"),
        "event": "box.create",
        "box": {"image": "base", "box_id": "b1", "description": "a box"},
        "ok": True,
        "files": [{"path": "/root/token", "mode": "0600", "uid": 0, "gid": 0, "bytes": 20, "kind": "text"}],
        "state_bytes": 20,
        "warnings": [],
        "stderr": "",
        "state_file": str(kept),
    }
    assert TOKEN not in result.output
    assert STATE not in result.output


def test_what_a_create_has_made_can_be_taken_back_with_the_file_that_it_tells(tmp_path: Path) -> None:
    path = write_hook(tmp_path, MINTS + "else:\n    open(os.path.dirname(__file__) + '/seen', 'w').write(json.dumps(request))\n")
    result = run_hook("run", path, "create")
    [kept] = (tmp_path / "kept").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert (
        result.stderr.splitlines()[0] == f"the hook really ran; to undo it: serai hook run {path} box.destroy --state-file {kept}"
    )
    words = result.stderr.splitlines()[0].partition("serai hook ")[2].split()
    undone = run_hook(*words)
    assert (undone.exit_code, undone.stderr) == (0, "")
    assert json.loads((tmp_path / "seen").read_text()) == {"event": "box.destroy", "box": {"box_id": "sample"}, "state": STATE}


@pytest.mark.parametrize("as_json", [False, True])
def test_who_asks_for_the_state_gets_it_and_can_give_it_back(tmp_path: Path, as_json: bool) -> None:
    path = write_hook(tmp_path, MINTS + f"else:\n    assert request['state'] == '{STATE}'\n")
    result = run_hook("run", path, "create", "--show-secrets", *(["--json"] if as_json else []))
    shown = parse_object(result)["state"] if as_json else result.stdout.splitlines()[-1]
    assert shown == (STATE if as_json else f"state: {STATE}")
    assert TOKEN not in result.output
    assert list((tmp_path / "kept").iterdir()) == []
    assert result.stderr == f"the hook really ran; to undo it: serai hook run {path} box.destroy --state …\n"
    assert run_hook("run", path, "destroy", "--state", STATE).exit_code == 0
    assert run_hook("run", path, "destroy", "--state-file", "-", input=f"{STATE}\n").exit_code == 0
    assert run_hook("run", path, "destroy", "--state", "another").exit_code == 3


def test_a_hook_without_a_state_is_not_called_again(tmp_path: Path) -> None:
    result = run_hook("run", write_answering_hook(tmp_path, {}), "create")
    assert result.stderr == "the hook really ran. It has no state, so boxes will not run it on box.destroy\n"
    assert list((tmp_path / "kept").iterdir()) == []
    assert "boxes run no hook on box.destroy that answered without one" in run_hook("run", tmp_path / "hook", "destroy").stderr


@pytest.mark.parametrize("event", ["box.paused", "Grüße", ""])
def test_any_other_event_is_sent_as_it_is(tmp_path: Path, event: str) -> None:
    path = write_hook(tmp_path, "print(json.dumps({'state': 'x'})); sys.stderr.write(request['event'])")
    result = run_hook("run", path, event, "--json")
    form = parse_object(result)
    assert (form["event"], form["stderr"], form["ok"]) == (event, event, True)
    assert form["warnings"] == [f"files and state count on box.create only; at {event} they are dropped"]
    assert form["state_bytes"] == 0
    assert result.stderr == ""


def test_what_the_hook_says_on_stderr_is_told_without_secrets(tmp_path: Path) -> None:
    path = write_hook(tmp_path, MINTS + f"sys.stderr.write('minted {TOKEN} as {STATE}\\n\\x1b[2Jdone\\n')")
    result = run_hook("run", path, "create")
    stars = "*" * 20
    assert result.stderr.splitlines()[:2] == [f"stderr: minted {stars} as {stars}", "stderr: \\x1b[2Jdone"]
    assert TOKEN not in run_hook("run", path, "create", "--json").output


def test_what_is_passed_over_is_told(tmp_path: Path) -> None:
    files = [{"path": "/a", "content": "x", "content_base64": "eA=="}, {"path": "/b", "mode": "4755"}]
    result = run_hook("run", write_answering_hook(tmp_path, {"files": files}), "create")
    assert result.exit_code == 0
    assert [line for line in result.stderr.splitlines() if line.startswith("warning: ")] == [
        'warning: "/a" has both content and content_base64: the latter counts',
        'warning: "/b" was to have mode 4755: set-id and sticky bits are never set, it gets 0755',
    ]


# -- failures ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ({"path": "token"}, 'invalid path "token": it is not absolute'),
        ({"path": "/proc/1/mem"}, 'invalid path "/proc/1/mem": hooks may not write there'),
        ({"path": "/t", "mode": "0o600"}, 'parsing mode "0o600" for "/t": not an octal number'),
        ({"path": "/t", "content_base64": "aGk"}, 'decoding base64 content for "/t": illegal base64 data'),
        ({"path": "/t", "uid": -1}, 'owner of "/t": uid -1 is not between 0 and 4294967294'),
    ],
)
def test_a_file_that_a_box_would_refuse_is_shown_with_the_reason(tmp_path: Path, file: dict[str, object], why: str) -> None:
    path = write_answering_hook(tmp_path, {"files": [{"path": "/fine"}, file], "state": STATE})
    result = run_hook("run", path, "create")
    assert result.exit_code == 3
    assert result.stdout.splitlines()[2].endswith(f"refused: {why}")
    assert f"a box would not be made: hook {path}: {why}\n" in result.stderr
    assert "to undo it: " in result.stderr  # the state of such a hook counts
    form = parse_object(run_hook("run", path, "create", "--json"))
    assert form["files"][1]["refused"] == why
    assert (form["ok"], form["error"]) == (False, f"hook {path}: {why}")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("sys.exit('no luck')", "exit status 1: no luck"),
        ("os.kill(os.getpid(), 9)", "signal: killed"),
        ("print()", "decoding response: unexpected end of JSON input"),
        ("print('[]')", "decoding response: the response must be an object, not an array"),
        ('print(\'{"files":[{"path":"/t","mode":384}]}\')', "decoding response: mode must be a string, not such a number"),
        (
            "print(json.dumps({'state': 'x' * 1048577}))",
            "its state has too many bytes: 1048577 of at most 1048576 (limit hook_state)",
        ),
        (
            "print(json.dumps({'files': [{'path': '/t'}] * 4097}))",
            "there are too many files: 4097 of at most 4096 (limit max_inject_files)",
        ),
    ],
)
def test_a_hook_that_fails_has_status_3_and_says_why(tmp_path: Path, body: str, why: str) -> None:
    path = write_hook(tmp_path, body)
    result = run_hook("run", path, "create")
    assert result.exit_code == 3
    assert result.stdout.startswith("box.create of sample: failed in ")
    assert f"a box would not be made: hook {path}: {why}" in result.stderr


def test_a_hook_that_takes_too_long_is_ended_and_what_it_answered_can_be_taken_back(tmp_path: Path) -> None:
    path = write_hook(tmp_path, MINTS + "sys.stdout.flush(); signal.pause()")
    result = run_hook("run", path, "create", "--timeout", "2")
    assert result.exit_code == 3
    assert f"hook {path}: timed out after 2s\n" in result.stderr
    assert "to undo it: " in result.stderr


@pytest.mark.req("hooks.rule.1.11-lookup")
@pytest.mark.parametrize("event", ["create", "destroy"])
def test_a_hook_that_cannot_be_started_is_looked_up_as_boxes_do_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    write_hook(tmp_path, MINTS, "my-hook")
    monkeypatch.chdir(tmp_path)
    result = run_hook("run", "my-hook", event)
    assert result.exit_code == 3
    assert 'hook my-hook: exec: "my-hook": executable file not found in $PATH\n' in result.stderr
    assert result.stderr.endswith("without a slash it is looked up in the PATH: name it ./my-hook\n")
    assert run_hook("run", "./my-hook", event).exit_code == 0
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert run_hook("run", "my-hook", event).exit_code == 0
    (tmp_path / "my-hook").chmod(0o644)
    refused = run_hook("run", "./my-hook", event)
    assert f"hook {tmp_path}/my-hook: fork/exec {tmp_path}/my-hook: permission denied\n" in refused.stderr
    assert refused.stderr.endswith(f"make it executable: chmod +x {tmp_path}/my-hook\n")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([""], "the path is empty"),
        (["hook"], "Missing argument"),
        (["hook", "create", "--state", "x"], "a state goes with box.destroy only"),
        (["hook", "box.other", "--state-file", "-"], "a state goes with box.destroy only"),
        (["hook", "destroy", "--state", "x", "--state-file", "-"], "give --state or --state-file, not both"),
        (["hook", "destroy", "--state-file", "nowhere"], "No such file"),
        (["hook", "create", "--timeout", "0"], "0"),
    ],
)
def test_a_wrong_command_line_has_status_2_and_runs_nothing(arguments: list[str], complaint: str) -> None:
    result = run_hook("run", *arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert result.stdout == ""


def test_a_state_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"\xff")
    result = run_hook("run", write_hook(tmp_path, MINTS), "destroy", "--state-file", tmp_path / "state")
    assert (result.exit_code, "no text in UTF-8" in result.stderr) == (2, True)


def test_who_ends_a_run_is_told_how_to_take_back_what_it_made(tmp_path: Path, shell: Shell) -> None:
    said = tmp_path / "said"
    os.mkfifo(said)
    path = write_hook(tmp_path, MINTS + f"sys.stdout.flush(); open({str(said)!r}, 'w').close(); signal.pause()")
    env = shell.env | {"TMPDIR": str(tmp_path / "kept")}
    command = subprocess.Popen(shell.argv("hook", "run", path, "create"), env=env, stderr=subprocess.PIPE, text=True)
    with command:
        said.open().close()  # it has answered
        command.send_signal(signal.SIGINT)
        _, stderr = command.communicate(timeout=40)
    assert command.returncode == 130
    [kept] = (tmp_path / "kept").iterdir()
    assert stderr == f"it had answered by then; to undo it: serai hook run {path} box.destroy --state-file {kept}\n"
    assert kept.read_text() == f"{STATE}\n"


# -- a check ----------------------------------------------------------------------------------------------------------------------

WARNING = "the hook is really run, for a dozen boxes; every state that it answers with is given back with box.destroy\n"


def test_a_good_hook_has_a_line_for_each_rule_a_summary_and_status_0(tmp_path: Path) -> None:
    result = run_hook("check", write_answering_hook(tmp_path, {}))
    *lines, summary = result.stdout.splitlines()
    assert [line.split()[1] for line in lines] == list(conformance.RULES)
    assert summary == "hookproto:hook: 20 passed, 0 warned, 0 failed, 3 skipped"
    assert (result.exit_code, result.stderr) == (0, WARNING)


def test_what_is_wrong_is_shown_with_what_to_do_and_has_status_1(tmp_path: Path) -> None:
    path = write_answering_hook(tmp_path, {"files": [{"path": "token", "content": TOKEN}]})
    result = run_hook("check", path, "--rule", "paths")
    lines = result.stdout.splitlines()
    assert lines[0] == 'failed   paths  invalid path "token": it is not absolute'
    assert lines[1].strip().startswith("what to do: a path is absolute")
    assert lines[-1] == "hookproto:hook: 0 passed, 0 warned, 1 failed, 0 skipped"
    assert (result.exit_code, TOKEN in result.output) == (1, False)


def test_a_warning_is_a_failure_only_when_one_is_strict(tmp_path: Path) -> None:
    path = write_answering_hook(tmp_path, {"version": 1})
    usual, strict = (run_hook("check", path, "--rule", "names", *more) for more in ((), ("--strict",)))
    assert usual.stdout.startswith('warned   names  "version" in the response means nothing, and is passed over\n')
    assert (usual.exit_code, strict.exit_code) == (0, 1)


def test_as_json_each_finding_is_an_object_and_the_last_is_the_summary(tmp_path: Path) -> None:
    result = run_hook("check", tmp_path / "nowhere", "--json")
    *findings, last = map(json.loads, result.stdout.splitlines())
    assert [finding["rule"] for finding in findings] == list(conformance.RULES)
    assert findings[0] | {"requirements": []} == {
        "rule": "start",
        "status": "failed",
        "why": f"{tmp_path}/nowhere does not exist",
        "hint": "correct the path, or install what it belongs to",
        "requirements": [],
    }
    assert last["summary"] == {
        "guest": "nowhere",
        "dialect": "hookproto",
        "ok": False,
        "passed": 0,
        "warned": 0,
        "failed": 1,
        "skipped": 22,
    }
    assert result.exit_code == 1


def test_a_rule_that_there_is_not_is_a_wrong_command_line() -> None:
    result = run_hook("check", "hook", "--rule", "manners")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "there is no rule manners" in result.stderr


def test_a_check_takes_the_limits_of_the_person(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text("[limits]\nhook_timeout = 0.3\nhook_grace = 0.3\n")
    result = run_hook("check", write_hook(tmp_path, "signal.pause()"), "--rule", "answer")
    assert result.stdout.startswith("failed   answer  it did not end within 0.3 s\n")

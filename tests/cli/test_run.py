"""`serai run` with the offline model: what goes where, and what its exit status says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.cli.in_process_shell import InProcessShell
from tests.support.cli.run_process import Run, list_files, parse_lines, read_result, read_session, run, write_prompt
from tests.support.cli.shell import Shell

FIELDS = {"type", "status", "text", "session", "usage", "steps", "seconds"}


@pytest.mark.req("app.run.streams")
def test_what_the_model_says_is_on_stdout_and_nothing_else(shell: Shell) -> None:
    (shell.cwd / "a.txt").write_text("one\n")
    ran = run(shell, write_prompt("say I look.", 'call read {"path":"a.txt"}', "say It says $results"))
    assert ran.stdout.startswith("I look.\nIt says ")
    assert ran.stdout.endswith("one\n")
    assert "read  a.txt\n  ok\n" in ran.stderr
    assert ran.returncode == 0


@pytest.mark.req("app.run.streams")
def test_text_is_there_while_the_model_still_speaks(shell: Shell) -> None:
    with Run(shell, "--model", "parrot", write_prompt("say first", "hang")) as going:
        going.until("first")
        assert going.status is None


def test_a_quiet_run_says_nothing_beside_and_a_verbose_one_more(shell: Shell) -> None:
    (shell.cwd / "a.txt").write_text("one\n")
    prompt = write_prompt("think hm", 'call read {"path":"a.txt"}', "say done")
    assert (ran := run(shell, "-q", prompt)).stderr == "", ran.stderr
    verbose = run(shell, "-v", prompt).stderr
    assert "hm\n" in verbose
    assert "tokens in" in verbose


@pytest.mark.req("app.run.json")
def test_json_is_an_event_per_line_and_the_result_last(shell: Shell) -> None:
    ran = run(shell, "--json", "hello", "world")
    *events, last = parse_lines(ran.stdout)
    assert [event["type"] for event in events if event["type"] != "text"] == [
        *("session_started", "turn_started", "turn_prepared", "step_started", "message"),
        *("usage", "step_ended", "step_settled", "turn_ended"),
    ]
    assert set(last) == FIELDS
    assert (last["type"], last["status"], last["text"], last["steps"]) == ("result", "success", "You said: hello world", 1)
    assert last["session"] == events[0]["session"]
    assert last["usage"]["input"] > 0
    assert last["usage"]["cost_usd"] == 0.0
    assert (ran.stderr, ran.returncode) == ("", 0)


@pytest.mark.parametrize(
    ("words", "input", "said"),
    [
        (["make", "it", "so"], "", "You said: make it so\n"),
        (["-"], "from a pipe\n", "You said: from a pipe\n"),
        ([], "from a pipe\n", "You said: from a pipe\n"),
        (["--", "-v"], "", "You said: -v\n"),
        (["not", "-"], "unread", "You said: not -\n"),
    ],
)
def test_the_prompt_is_what_is_said_or_what_is_piped(shell: Shell, words: list[str], input: str, said: str) -> None:
    ran = run(shell, "-q", *words, input=input)
    assert (ran.stdout, ran.stderr, ran.returncode) == (said, "", 0)


@pytest.mark.req("app.run.status")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["  "], "the prompt is empty"),
        ([], "the prompt is empty"),
        (["hi", "--continue", "--session", "x"], "--continue and --session exclude each other"),
        (["hi", "-q", "-v"], "--quiet and --verbose exclude each other"),
        (["hi", "--session", ""], "Invalid value for '--session': it is empty"),
        (["hi", "--agent", ""], "Invalid value for '--agent': it is empty"),
        (["hi", "--model="], "Invalid value for '--model': it is empty"),
        (["hi", "--allow", "read", "--allow", ""], "Invalid value for '--allow': it is empty"),
        (["hi", "--max-turns", "0"], "0 is not in the range x>=1"),
        (["hi", "--timeout", "0"], "--timeout is a number of seconds"),
        (["hi", "--timeout", "nan"], "--timeout is a number of seconds"),
        (["hi", "--timeout", "1e300"], "--timeout is a number of seconds"),
        (["hi", "--mode", "yolo"], "'yolo' is not one of"),
        (["hi", "--policy", ""], "the path is empty"),
        (["hi", "--image", "nowhere.png"], "nowhere.png: No such file or directory"),
        (["hi", "--image", "a.txt"], "a.txt: an image is one of .png"),
    ],
)
def test_a_wrong_command_line_is_told_and_nothing_begins(shell: Shell, words: list[str], complaint: str) -> None:
    ran = run(shell, *words)
    assert complaint in ran.stderr
    assert (ran.stdout, ran.returncode) == ("", 2)
    assert not shell.home.exists()


def test_a_prompt_that_is_too_long_is_refused_and_not_cut(tmp_path: Path) -> None:
    ran = InProcessShell(tmp_path)("run", "--model", "parrot", input="é" * (4 * 1024 * 1024 + 1))
    assert "the prompt is longer than 8388608 bytes" in ran.stderr
    assert ran.returncode == 2


def test_images_go_with_the_prompt(shell: Shell) -> None:
    (shell.cwd / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    started = parse_lines(run(shell, "--json", "--image", "a.png", "look").stdout)[1]
    assert (started["type"], [image["mime"] for image in started["images"]]) == ("turn_started", ["image/png"])


BEFORE_IT_BEGINS = [
    (["--agent", "nobody"], "serai: there is no agent nobody\nagents: "),
    (["--model", "no-such"], "serai: resolve provider: unknown model: no-such\n"),
    (["--model", "anthropic/claude-sonnet-5-5"], "there is no key for it\nset ANTHROPIC_API_KEY\n"),
    (["--policy", "none.toml"], "none.toml: cannot be read: No such file or directory\n"),
    (["--policy", "bad.toml"], "bad.toml: "),
    (["--allow", ":x"], "--allow"),
    (["--session", "nothing"], "there is no session nothing\n`serai session list` shows what there is\n"),
    (["--continue"], "there is no session of this folder yet\nbegin one without --continue\n"),
]


@pytest.mark.req("app.run.status", "app.run.nothing_began")
@pytest.mark.parametrize(("words", "complaint"), BEFORE_IT_BEGINS)
def test_what_cannot_begin_is_told_and_nothing_is_left(shell: Shell, words: list[str], complaint: str) -> None:
    (shell.cwd / "bad.toml").write_text("[[rule]]\ndecide = 'perhaps'\n")
    ran = run(shell, "hi", *words, ANTHROPIC_API_KEY="")
    assert complaint in ran.stderr
    assert "Traceback" not in ran.stderr
    assert (ran.stdout, ran.returncode) == ("", 1)
    assert list_files(shell.home / "sessions") == []
    assert list_files(shell.home / "recordings") == []


@pytest.mark.req("app.run.json")
@pytest.mark.parametrize("words", [words for words, _ in BEFORE_IT_BEGINS])
def test_json_has_its_result_also_when_nothing_began(shell: Shell, words: list[str]) -> None:
    (shell.cwd / "bad.toml").write_text("[[rule]]\ndecide = 'perhaps'\n")
    ran = run(shell, "hi", "--json", *words, ANTHROPIC_API_KEY="")
    [only] = parse_lines(ran.stdout)
    assert FIELDS | {"error"} <= set(only) <= FIELDS | {"error", "hint"}
    assert (only["type"], only["status"], only["text"], only["session"]) == ("result", "error", "", "")
    assert only["error"] in ran.stderr
    assert ran.returncode == 1


@pytest.mark.req("app.run.status")
@pytest.mark.parametrize(
    ("words", "status", "name", "error"),
    [
        ([write_prompt("fail 400 no")], 3, "error", "parrot/parrot: HTTP 400: no"),
        ([write_prompt("say half", "cut")], 3, "error", "parrot/parrot: "),
        ([write_prompt("stop refusal")], 3, "error", "parrot/parrot: it would not go on with this"),
        (["--max-turns", "1", write_prompt('call read {"path":"a"}')], 3, "error", "(limit steps = 1)"),
        (["--timeout", "0.2", write_prompt("say so far", "hang")], 5, "cancelled", "it took longer than 0.2 s (--timeout)"),
        (["/nothing"], 1, "error", "unknown command /nothing"),
    ],
)
def test_the_status_says_how_it_ended(shell: Shell, words: list[str], status: int, name: str, error: str) -> None:
    shell.home.mkdir()
    (shell.home / "config.toml").write_text("[limits]\nmodel_attempts = 1\n")
    text, json = run(shell, *words), run(shell, "--json", *words)
    assert (text.returncode, json.returncode) == (status, status)
    assert error in text.stderr
    last = read_result(json)
    assert (last["status"], error in last["error"]) == (name, True)


def test_help_says_what_each_status_means(shell: Shell) -> None:
    ran = shell("run", "--help")
    _, _, table = ran.stdout.partition("Exit status:\n")
    numbers = [line.split()[0] for line in table.splitlines()]
    assert numbers == ["0", "1", "2", "3", "4", "5", "129"]
    assert "130 after Ctrl-C, 143 after SIGTERM" in table


def test_a_home_that_cannot_be_written_is_told_also_as_json(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    ran = run(shell, "hi", "--json")
    assert read_result(ran)["status"] == "error"
    assert "Traceback" not in ran.stderr
    assert ran.returncode == 1


def test_a_command_of_our_own_begins_no_session(shell: Shell) -> None:
    ran = run(shell, "/model")
    assert (ran.stdout, ran.stderr, ran.returncode) == ("parrot/parrot\n", "", 0)
    assert read_result(run(shell, "--json", "/quit"))["status"] == "success"
    assert list_files(shell.home / "sessions") == []


@pytest.mark.req("app.run.kept")
def test_what_was_said_before_a_failure_is_kept(shell: Shell) -> None:
    run(shell, write_prompt("say half", "fail 400 no"))
    assert read_session(shell)[0].startswith("user: >> say half")


@pytest.mark.req("app.run.status")
@pytest.mark.parametrize("kind", ["pipe", "folder", "missing", "odd"])
def test_what_is_no_image_is_a_wrong_command_line_and_nobody_waits_for_it(kind: str, shell: Shell) -> None:
    path = shell.cwd / ("image.txt" if kind == "odd" else "image.png")
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    ran = shell("run", "--model", "parrot", "--image", str(path), "look")
    assert ran.returncode == 2
    assert path.name in ran.stderr

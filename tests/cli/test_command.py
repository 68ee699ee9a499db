"""`serai command …` as a person calls it: real guests, real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.cli.shell import EXAMPLES, Frame, Shell, parse_objects, write_guest

WEATHER, PANEL = EXAMPLES / "weather-python", EXAMPLES / "panel-python"
OPEN = "[weather] info: the weather station is open\n"


def write_command_guest(folder: Path, **answer: Any) -> Path:
    """A guest whose command `go` answers so."""
    return write_guest(folder, commands=["go"], answers={"command_invoked go": [{"type": "command_response", **answer}]})


@pytest.mark.parametrize(
    ("answer", "out", "err"),
    [
        ({"action": "display", "display": "one\ntwo"}, "[go] one\n[go] two\n", ""),
        ({"action": "prompt", "prompt": "do it"}, "do it\n", "would send to the agent:\n"),
        ({"action": "prompt", "prompt": " "}, "", ""),
        ({"action": "insert", "insert": "text"}, "text\n", ""),
        ({"action": "noop"}, "", ""),
    ],
)
def test_what_a_command_wants_done_is_printed(shell: Shell, tmp_path: Path, answer: Frame, out: str, err: str) -> None:
    ran = shell("command", "run", "go", "-e", write_command_guest(tmp_path / "go", **answer))
    assert (ran.stdout, ran.stderr, ran.returncode) == (out, err, 0)


def test_a_panel_is_printed_as_it_stands(shell: Shell, tmp_path: Path) -> None:
    ran = shell("command", "run", "/pick", "B", "-e", PANEL)
    assert ran.stdout == "Harbours\n> Bergen\n\nfilter: B_  enter pick  esc close\n"
    nameless = write_command_guest(tmp_path / "plain", action="open_panel", open_panel={"id": "p", "lines": ["a", "b"]})
    assert shell("command", "run", "go", "-e", nameless).stdout == "plain\na\nb\n"


@pytest.mark.req("host.cli.json")
def test_an_outcome_as_json_has_the_action(shell: Shell, tmp_path: Path) -> None:
    go = write_command_guest(tmp_path / "go", action="prompt", prompt="do it")
    assert parse_objects(shell("command", "run", "go", "--json", "-e", go)) == [{"action": {"type": "prompt", "text": "do it"}}]


@pytest.mark.parametrize(
    ("typed", "handed"),
    [(["a", "b"], "a b"), (["  a   b "], "a   b"), ([], None), (["--", "-e", "--json"], "-e --json")],
)
def test_arguments_are_joined_and_one_alone_is_handed_on_as_it_is(
    shell: Shell, tmp_path: Path, typed: list[str], handed: str | None
) -> None:
    assert shell("command", "run", "-e", write_command_guest(tmp_path / "go", action="noop"), "go", *typed).returncode == 0
    items = parse_objects(shell("record", "show", "--json", "--type", "command_invoked"))
    [frame] = [item["frame"] for item in items if item["what"] == "frame"]
    assert (frame["name"], frame.get("args")) == ("go", handed)


def test_a_command_that_answers_with_an_error_has_a_status_for_it(shell: Shell) -> None:
    ran = shell("command", "run", "weather", "-e", WEATHER)
    assert (ran.stdout, ran.returncode) == ("", 3)
    assert ran.stderr == OPEN + "extension /weather: which city? As in: /weather Bern\n"
    ran = shell("command", "run", "weather", "--json", "-e", WEATHER)
    [form] = parse_objects(ran)
    assert form["error"] == "extension /weather: which city? As in: /weather Bern"
    assert (form["action"], ran.returncode) == ({"type": "nothing"}, 3)


def test_a_guest_that_dies_during_its_command_gives_no_answer(shell: Shell, tmp_path: Path) -> None:
    weak = write_guest(tmp_path / "weak", commands=["go"], answers={"command_invoked go": [{"die": 3}]})
    ran = shell("command", "run", "go", "-e", weak)
    assert (ran.stdout, ran.returncode) == ("", 5)
    assert "extension /go: " in ran.stderr
    assert "exit status 3" in ran.stderr


@pytest.mark.req("host.guard.missing")
def test_without_its_guards_no_command_runs(shell: Shell, tmp_path: Path) -> None:
    shell.home.mkdir()
    (shell.home / "config.toml").write_text("[guest.gate]\nguard = true\n")
    go = write_command_guest(tmp_path / "go", action="display", display="it ran")
    ran = shell("command", "run", "go", "-e", go)
    assert (ran.stdout, ran.returncode) == ("", 4)
    assert "gate" in ran.stderr.splitlines()[-1]
    [form] = parse_objects(shell("command", "run", "go", "--json", "-e", go))
    assert (form["action"], form["code"]) == ({"type": "nothing"}, "BLOCKED")


def test_an_unknown_command_is_told_with_similar_names(shell: Shell) -> None:
    ran = shell("command", "run", "/wether", "-e", WEATHER)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("", OPEN + "serai: there is no command /wether\nthere is weather\n", 1)
    assert "`serai command list` shows what there is" in shell("command", "run", "xyz", "-e", WEATHER).stderr


def test_the_list_has_all_commands_with_their_owners(shell: Shell, tmp_path: Path) -> None:
    one = write_guest(tmp_path / "one", commands=["go", "longer"])
    bad = write_guest(tmp_path / "bad", exec="./missing")
    ran = shell("command", "list", "-e", bad, "-e", one)
    assert ran.stdout == "/go      zot:one  the command go\n/longer  zot:one  the command longer\n"
    assert ran.stderr.startswith(f"extension load: {bad}: zot:bad is gone: ")
    forms = parse_objects(shell("command", "list", "--json", "-e", one))
    assert forms[0] == {"name": "go", "owner": "zot:one", "description": "the command go", "state": "ready"}
    assert "there are no commands" in shell("command", "list").stderr


def test_a_run_is_on_record(shell: Shell) -> None:
    shell("command", "run", "/weather", "Bern", "-e", WEATHER)
    [run] = parse_objects(shell("record", "list", "--json"))
    assert run["command"] == "serai command run weather"

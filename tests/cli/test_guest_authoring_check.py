"""`serai guest check` as a person calls it: what it prints, and what its exit status tells."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from serai.cli.guest_authoring import check
from serai.testing import conformance
from serai.testing.conformance import checker
from tests.support.cli.shell import EXAMPLES

OWN_PYTHON = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
BROKEN = Path(__file__).parents[1] / "broken_guests"
WELL = BROKEN / "well.py"
TOKEN = "ghp" + "_abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture(autouse=True)
def _own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest gets the PATH of the person who checks it."""
    monkeypatch.setenv("PATH", OWN_PYTHON)


def run_check(*arguments: str | Path) -> Result:
    return CliRunner().invoke(check, [str(argument) for argument in arguments], catch_exceptions=False)


def parse_objects(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.req("sdk.check.cli")
def test_a_good_guest_has_a_line_for_each_rule_a_summary_and_status_0() -> None:
    result = run_check(EXAMPLES / "weather-python", "--call", 'weather={"city":"Bern"}', "--command", "weather Bern")
    *lines, summary = result.stdout.splitlines()
    assert [line.split()[1] for line in lines] == [rule.name for rule in checker.rules("zot")]
    assert {line.split()[0] for line in lines} == {"passed", "skipped"}
    assert summary == "zot:weather: 24 passed, 0 warned, 0 failed, 1 skipped"
    assert (result.exit_code, result.stderr) == (0, "")


def test_who_gives_no_real_call_is_told_what_was_not_tried() -> None:
    result = run_check(EXAMPLES / "weather-python", "--rule", "hello")
    assert result.exit_code == 0
    assert result.stderr == "none of its tools and commands was run for real; --call and --command name those that may be\n"
    assert run_check(EXAMPLES / "weather-python", "--rule", "hello", "--json").stderr == ""


@pytest.mark.req("sdk.check.cli", "sdk.check.broken")
def test_what_failed_is_shown_with_its_frames_and_what_to_do_and_has_status_1() -> None:
    result = run_check(BROKEN / "trusting", "--rule", "odd-arguments", "--rule", "hello")
    lines = result.stdout.splitlines()
    assert lines[0] == "passed   hello          it opens with a hello that has a name, in time, and stays"
    assert lines[1] == "failed   odd-arguments  the tool call shout ended it, exit status 1"
    assert lines[2].strip() == '→ {"type":"tool_call","id":"064818707086","name":"shout","args":null}'
    assert [line for line in lines if line.strip().startswith("stderr: TypeError: ")]
    assert lines[-2].strip().startswith("what to do: ")
    assert lines[-1] == "zot:trusting: 1 passed, 0 warned, 1 failed, 0 skipped"
    assert result.exit_code == 1


@pytest.mark.req("sdk.check.cli")
def test_a_warning_is_a_failure_only_when_one_is_strict() -> None:
    usual, strict = (run_check(BROKEN / "nulls", "--rule", "frames", *more) for more in ((), ("--strict",)))
    assert usual.stdout.startswith("warned   frames  capabilities is null: leave out what is not set\n")
    assert usual.stdout == strict.stdout
    assert (usual.exit_code, strict.exit_code) == (0, 1)


@pytest.mark.req("sdk.check.cli")
def test_as_json_each_finding_is_an_object_and_the_last_is_the_summary() -> None:
    result = run_check(BROKEN / "banner", "--json")
    *findings, last = parse_objects(result)
    assert [finding["rule"] for finding in findings] == [rule.name for rule in checker.rules("zot")]
    [failed] = [finding for finding in findings if finding["status"] == "failed"]
    assert failed["rule"] == "hello"
    assert failed["frames"] == ["← banner extension, version 1.0"]
    assert failed["hint"].startswith("write ")
    assert failed["requirements"] == ["zot.edge.01", "zot.edge.02", "zot.frame.hello"]
    summary = {"guest": "banner", "dialect": "zot", "ok": False, "passed": 1, "warned": 0, "failed": 1, "skipped": 23}
    assert last == {"summary": summary}
    assert result.exit_code == 1


@pytest.mark.req("sdk.check.cli")
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nowhere"], "does not exist"),
        ([""], "the path is empty"),
        ([__file__ + "x"], "does not exist"),
        ([WELL, "--rule", "manners"], "there is no rule manners"),
        ([WELL, "--call", "shout"], "it has to be NAME=JSON"),
        ([WELL, "--call", "shout={"], "not JSON"),
        ([WELL, "--call", 'shout={"text":NaN}'], "not JSON"),
        ([WELL, "--call", "shout=-Infinity"], "not JSON"),
        ([WELL, "--call", "shout=1e999"], "not JSON"),
        ([WELL, "--call", 'shout="\\ud800"'], "not JSON"),
        ([WELL, "--call", 'shout="\udc80"'], "not JSON"),
        ([WELL, "--call", "shout=" + "[" * 100_000], "not JSON"),
        ([WELL, "--call", "sh\udc80ut=1"], "it has to be NAME=JSON"),
        ([WELL, "--command", "pick \udc80"], "it is no text"),
        ([BROKEN / "leaves-a-child" / "guest.sh"], "neither a guest's folder"),
    ],
)
def test_a_wrong_command_line_has_status_2_and_starts_nobody(arguments: list[str | Path], complaint: str) -> None:
    result = run_check(*arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert result.stdout == ""


def test_nothing_that_a_guest_says_gets_through_to_the_terminal_and_what_looks_like_a_secret_is_masked(tmp_path: Path) -> None:
    (tmp_path / "guest.py").write_text(f"import sys\nprint('\\x1b[2J {TOKEN}', flush=True)\nprint('{TOKEN}', file=sys.stderr)\n")
    for more in ((), ("--json",)):
        result = run_check(tmp_path / "guest.py", "--rule", "hello", *more)
        assert result.exit_code == 1
        assert "\x1b" not in result.stdout
        assert TOKEN not in result.stdout
        assert "*" * len(TOKEN) in result.stdout


@pytest.mark.req("sdk.check.cli")
def test_a_rule_that_cannot_be_tried_is_no_success() -> None:
    result = run_check(BROKEN / "crashes", "--rule", "events")
    assert result.stdout.startswith("failed   events  it does not open: it ended before its hello, exit status 1\n")
    assert result.exit_code == 1


def test_a_mistake_inside_a_check_is_no_mistake_of_the_person(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("a mistake")

    monkeypatch.setattr(conformance, "check", broken)
    with pytest.raises(ValueError, match="a mistake"):
        run_check(WELL)


def test_a_key_on_stderr_is_masked_however_long_it_is(tmp_path: Path) -> None:
    lines = [f"MIIE{number:02}+DANBgkqhkiG/w0BAQEFAASCBKYwggSiAgEAAoIBAQDZ5OTrw2csa0mq" for number in range(26)]
    key = "\n".join(["-----BEGIN " + "PRIVATE KEY-----", *lines, "-----END " + "PRIVATE KEY-----"])
    (tmp_path / "guest.py").write_text(f"import sys\nsys.exit({key!r})\n")
    for more in ((), ("--json",)):
        result = run_check(tmp_path / "guest.py", *more)
        assert "-----END " in result.stdout
        assert not [line for line in lines if line[-20:] in result.stdout]


def test_a_guest_is_started_with_the_python_of_the_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    python.chmod(0o755)
    (tmp_path / "guest.py").write_text('from serai.sdk import Extension\nExtension("x").main()\n')
    (tmp_path / "extension.json").write_text('{"name":"x","exec":"python3","args":["guest.py"]}')
    assert run_check(tmp_path, "--rule", "hello").exit_code == 0
    monkeypatch.setenv("PATH", str(python.parent))
    result = run_check(tmp_path, "--rule", "hello")
    assert result.exit_code == 1
    assert "what to do: the Python that starts it has no serai" in result.stdout
    assert run_check(tmp_path / "guest.py", "--rule", "hello").exit_code == 0


def test_a_guest_is_not_helped_with_its_buffers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    text = WELL.read_text().replace("import json\n", "import json, os\nassert 'PYTHONUNBUFFERED' not in os.environ\n", 1)
    (tmp_path / "guest.py").write_text(text)
    assert run_check(tmp_path / "guest.py", "--rule", "hello").exit_code == 0


def test_the_help_says_that_what_is_given_is_done_many_times() -> None:
    said = " ".join(run_check("--help").stdout.split())
    assert "A harmless tool call, to be made dozens of times" in said
    assert "A harmless command, to be run dozens of times" in said
    assert "give only what does no harm" in said


def test_a_variable_that_looks_like_a_credential_has_to_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATION_TOKEN", "hush")
    (tmp_path / "guest.py").write_text(
        f"import os\nos.environ['STATION_TOKEN']\n{WELL.read_text().replace('from __future__ import annotations', '')}"
    )
    assert run_check(tmp_path / "guest.py", "--rule", "hello").exit_code == 1
    assert run_check(tmp_path / "guest.py", "--rule", "hello", "--env", "STATION_TOKEN").exit_code == 0

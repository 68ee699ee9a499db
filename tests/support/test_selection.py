"""The helpers that decide which tests run, and how the skipped ones are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import needs, profiles, skips

MIXED = "4 skipped: this machine lacks node (2), jq (1), root (1), other things (1, shown by -rs)"


@pytest.mark.parametrize(
    ("reasons", "line"),
    [
        ([], ""),
        (["needs jq"], "1 skipped: this machine lacks jq (1); to run them: apt-get install jq"),
        (
            ["Skipped: needs jq, node", "needs node", "needs root", "no Landlock"],
            f"{MIXED}; to run them: apt-get install nodejs jq; run as root",
        ),
        (["no Landlock"], "1 skipped: this machine lacks other things (1, shown by -rs)"),
    ],
)
def test_one_line_reports_all_skips_and_their_remedies(reasons: list[str], line: str) -> None:
    assert needs.summary(reasons) == line


def test_an_unknown_need_is_an_error() -> None:
    with pytest.raises(pytest.UsageError, match="'nodejs' is unknown"):
        needs.missing(["nodejs"])


def test_a_program_that_is_missing_skips_the_test(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert needs.missing(["jq", "node", "jq"]) == "needs jq, node"
    with pytest.raises(pytest.skip.Exception, match="needs typescript"):
        needs.require("typescript")


@pytest.mark.parametrize(("profile", "numbers"), [("quick", [2, 5, 60]), ("ci", [2, 8, 120]), ("deep", [2, 100, 1500])])
def test_a_profile_sets_the_share_of_the_examples(monkeypatch: pytest.MonkeyPatch, profile: str, numbers: list[int]) -> None:
    monkeypatch.setattr(profiles, "_profile", profile)
    assert [profiles.examples(number) for number in (2, 100, 1500)] == numbers


def test_a_test_that_is_skipped_in_every_run_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def report(**tests: str) -> str:
        cases = "".join(f'<testcase classname="a" name="{name}">{result}</testcase>' for name, result in tests.items())
        (tmp_path / str(len(tests))).write_text(f"<suite>{cases}</suite>")
        return str(tmp_path / str(len(tests)))

    skip = '<skipped message="needs root"/>'
    first, second, third = report(one="", two=skip, three=skip), report(one=skip, three=""), report(two="")
    assert skips.main([first, second]) == 1
    assert capsys.readouterr().out == "skipped in every run: a::two: needs root\n"
    assert skips.main([first, second, third]) == 0

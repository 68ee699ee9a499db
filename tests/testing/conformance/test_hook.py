"""The conformance kit finds what is wrong with each of the broken hooks, by the rule that it breaks, and passes the good ones."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.dialects.hookproto.messages import Box, Request
from serai.dialects.hookproto.peer_side import read_request
from serai.limits import Limits
from serai.testing.conformance import checker, hook
from serai.testing.conformance.findings import Report
from serai.testing.conformance.hook.examination import Patience, examine
from serai.testing.conformance.hook.rules import FORMS
from tests.requirements import manifest
from tests.support.broken_hooks import TABLE, broken, well
from tests.support.conformance_reports import find_rules

# For what has to happen: generous, so that a busy machine does not turn it into something else.
PATIENT: dict[str, float] = {"run": 40.0, "quick": 40.0, "terminate": 40.0, "leave": 30.0}

SECRET = re.compile(r"(tok|sta)_[0-9a-f]{16}")


def run_check(path: Path | str, waits: Mapping[str, float] = {}, **options: Any) -> Report:
    return hook.check(path, patience=Patience(**{**PATIENT, **waits}), **options)


# -- the broken and the good ------------------------------------------------------------------------------------------------------


def test_every_rule_finds_something() -> None:
    found = {rule for one in TABLE.values() for rule in f"{one.failed} {one.warned}".split()}
    assert found | {"start"} == set(hook.RULES)


def test_every_rule_names_the_requirements_that_it_stands_on() -> None:
    known = {requirement.id for requirement in manifest.load("hooks")}
    for rule in hook.rules():
        assert rule.text
        assert rule.requirements
        assert set(rule.requirements) <= known, rule.name


@pytest.mark.slow
@pytest.mark.req("hooks.hook.check")
@pytest.mark.parametrize("name", TABLE)
def test_a_broken_hook_is_found_by_the_rule_that_it_breaks_and_by_no_other(name: str, tmp_path: Path) -> None:
    about = TABLE[name]
    report = run_check(broken(tmp_path, name), about.waits)
    assert (find_rules(report, "failed"), find_rules(report, "warned")) == (set(about.failed.split()), set(about.warned.split())), (
        str(report)
    )
    assert report.ok is not bool(about.failed)
    for finding in report.of("failed", "warned"):
        assert finding.why
        assert finding.hint
        assert all(frame[:2] in ("→ ", "← ") for frame in finding.frames)
    assert not SECRET.search(str(report) + repr(report))


def test_a_good_hook_passes_every_rule(tmp_path: Path) -> None:
    report = run_check(well(tmp_path))
    assert find_rules(report, "passed") == set(hook.RULES), str(report)
    assert list(report.rules()) == list(hook.RULES)
    assert (report.guest, report.dialect, report.ok) == ("well", "hookproto", True)


SH = """#!/bin/sh
while read -r line; do request="$request$line"; done
printf '%s' "$request" | jq -c 'if .event == "box.create" then {files: [{path: "/a"}], state: .box.box_id} else {} end'
"""


@pytest.mark.needs("jq")
def test_a_shell_loop_over_lines_loses_the_request(tmp_path: Path) -> None:
    path = tmp_path / "hook.sh"
    path.write_text(SH)
    path.chmod(0o755)
    report = run_check(path)
    assert find_rules(report, "failed") == {"newline"}, str(report)
    assert "`request=$(cat)`" in str(report)


# -- starting ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "mode", "why", "hint"),
    [
        (None, 0, "does not exist", "correct the path"),
        ("#!/bin/sh\n", 0o644, "is not an executable file", "chmod +x"),
        ("#!/nowhere/sh\n", 0o755, "cannot start", "interpreter"),
        ("echo {}\n", 0o755, "cannot start", "#! line"),
    ],
)
def test_what_cannot_be_started_is_found_by_one_rule(tmp_path: Path, text: str | None, mode: int, why: str, hint: str) -> None:
    path = tmp_path / "hook"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    report = run_check(path)
    [finding] = report.of("failed")
    assert finding.rule == "start"
    assert why in finding.why
    assert hint in finding.hint
    assert find_rules(report, "skipped") == set(hook.RULES) - {"start"}
    assert not run_check(path, only=["in-time"]).ok


def test_a_name_without_a_slash_is_looked_up_in_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    well(tmp_path)
    monkeypatch.chdir(tmp_path)
    environ = {"PATH": "/usr/bin:/bin"}
    [finding] = run_check("well", only=["start"], environ=environ).findings
    assert finding.hint == "without a slash it is looked up in the PATH: name it ./well"
    for path, search in (("well", f"{tmp_path}:/usr/bin:/bin"), ("./well", "/usr/bin:/bin"), (Path("well"), "/usr/bin:/bin")):
        assert run_check(path, only=["answer"], environ={"PATH": search}).ok


def test_a_hook_whose_python_has_no_serai_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "hook.py"
    path.write_text(f"#!{sys.executable} -IS\nfrom serai.sdk.hook import main\n")
    path.chmod(0o755)
    [finding] = run_check(path, only=["answer"]).findings
    assert finding.why == "it ended with exit status 1"
    assert finding.hint.startswith("the python3 in the PATH has no serai")


# -- states -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.req("hooks.hook.check")
@pytest.mark.parametrize(
    "name", ["", "mints-always", "mode-is-a-number", "banner", "chatty", "capitals", "relative", "large-state"]
)
def test_every_state_is_given_back(name: str, tmp_path: Path) -> None:
    path = broken(tmp_path, name) if name else well(tmp_path)
    diary = tmp_path / "diary"
    run_check(path, environ=os.environ | {"DIARY": str(diary)})
    notes = [line.split() for line in diary.read_text().splitlines()]
    given = [state for what, state in notes if what == "gave"]
    assert given
    assert set(given) == {state for what, state in notes if what == "got"}


@pytest.mark.slow
def test_the_state_of_one_that_was_too_late_is_given_back(tmp_path: Path) -> None:
    path = well(tmp_path)
    path.write_text(
        path.read_text().replace("    pass", "    def say(self, answer): super().say(answer); answer and signal.pause()")
    )
    diary = tmp_path / "diary"
    report = run_check(path, {"run": 3.0}, only=["answer"], environ=os.environ | {"DIARY": str(diary)})
    assert "it did not end within 3 s" in str(report)
    notes = [line.split() for line in diary.read_text().splitlines()]
    assert {state for what, state in notes if what == "gave"} == {state for what, state in notes if what == "got"} != set()


@pytest.mark.slow
def test_after_a_box_destroy_that_hangs_nobody_waits_so_long_again_and_is_told_for_what(tmp_path: Path) -> None:
    path = well(tmp_path)
    path.write_text(path.read_text().replace("    pass", "    def destroy(self, request): signal.pause()"))
    told: list[str] = []
    patience = Patience(run=4.0, quick=0.2, terminate=40.0, leave=30.0)
    with examine(str(path), os.environ, patience, Limits(), told.append) as examination:
        for _ in range(2):
            with examination.create_box():
                pass
    assert [run.why for run in examination.iter_destroys()] == [f"it did not end within {n} s" for n in ("4", "0.2", "0.2")]
    assert told.count("waiting for it to end at box.destroy, at most 4 s") == 1
    assert "waiting for it to end at box.destroy, at most 0.2 s" not in told


INTERRUPTED = """
    def say(self, answer):
        super().say(answer)
        if answer:
            open(os.environ["SAID"], "w").close()  # blocks until the test looks
            signal.pause()
"""


def test_who_ends_a_check_leaves_nothing_behind(tmp_path: Path) -> None:
    path, said, diary = well(tmp_path), tmp_path / "said", tmp_path / "diary"
    path.write_text(path.read_text().replace("    pass", INTERRUPTED))
    os.mkfifo(said)
    environ = os.environ | {"SAID": str(said), "DIARY": str(diary), "SERAI_HOME": str(tmp_path / "home")}
    with subprocess.Popen([sys.executable, "-m", "serai", "hook", "check", path], env=environ, stdout=subprocess.PIPE) as check:
        said.open().close()
        check.send_signal(signal.SIGINT)
        assert check.wait(40) == 128 + signal.SIGINT
    [(gave, one), (got, other)] = [line.split() for line in diary.read_text().splitlines()]
    assert (gave, got) == ("gave", "got")
    assert one == other


def test_what_it_prints_is_appended_as_with_boxes_whatever_way_it_takes(tmp_path: Path) -> None:
    """Else the answer would be written over the line that spoils it."""
    path = tmp_path / "hook.sh"
    path.write_text('#!/bin/sh\ncat > /dev/null\necho minted > /dev/stdout\necho \'{"files": [{"path": "/root/token"}]}\'\n')
    path.chmod(0o755)
    assert find_rules(run_check(path), "failed") == {"stdout"}


# -- limits -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_who_prints_more_than_boxes_read_is_ended(tmp_path: Path) -> None:
    path = well(tmp_path)
    path.write_text(
        path.read_text().replace("    pass", "    def say(self, answer): [os.write(1, b'x' * 65536) for _ in iter(int, 1)]")
    )
    report = run_check(path, limits=Limits().but(hook_max_output=100_000))
    assert find_rules(report, "failed") == {"answer"}
    assert "it printed more than 100000 bytes" in str(report)


def test_the_time_is_that_of_the_limits(tmp_path: Path) -> None:
    path = broken(tmp_path, "never-ends")
    [finding] = hook.check(path, only=["answer"], limits=Limits().but(hook_timeout=0.2, hook_grace=0.2)).findings
    assert finding.why == "it did not end within 0.2 s"


# -- what a finding shows ---------------------------------------------------------------------------------------------------------


def test_a_finding_shows_the_request_and_the_answer_without_what_may_be_secret(tmp_path: Path) -> None:
    [finding] = run_check(broken(tmp_path, "more-members"), only=["names"]).findings
    request, answer = finding.frames
    assert json.loads(request.removeprefix("→ "))["event"] == "box.create"
    told = json.loads(answer.removeprefix("← "))
    assert told == {"files": [{"path": "/root/token", "content": "*" * 21, "mode": "0600"}], "state": "*" * 20}


def test_stderr_is_shown_without_what_the_hook_was_given_or_has_answered(tmp_path: Path) -> None:
    path = well(tmp_path)
    path.write_text(
        path.read_text().replace("    pass", "    def destroy(self, request): sys.exit('cannot revoke ' + request['state'])")
    )
    report = run_check(path)
    assert find_rules(report, "failed") == {"destroy", "secrets"}
    for finding in report.of("failed"):
        assert finding.stderr == "cannot revoke " + "*" * 20


def test_what_the_hook_was_told_is_no_secret(tmp_path: Path) -> None:
    path = well(tmp_path)
    says = "    def state(self, box): print('for', box['box_id'], file=sys.stderr); return box['box_id']"
    path.write_text(path.read_text().replace("    pass", says))
    assert run_check(path).rules()["secrets"] == "passed"


def test_a_rule_that_cannot_be_tried_is_no_success(tmp_path: Path) -> None:
    report = run_check(broken(tmp_path, "fails"), only=["large"])
    assert not report.ok
    assert "it does not answer: it ended with exit status 3" in str(report)


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(checker.UnknownRule, match="there is no rule manners; there are: start, "):
        hook.check("x", only=["manners"])


@pytest.mark.parametrize("rule", ["answer", "destroy"])
def test_for_pytest_a_failure_is_an_assertion(rule: str, tmp_path: Path) -> None:
    assert hook.assert_conforms(well(tmp_path), rule).ok
    with pytest.raises(AssertionError, match="exit status"):
        hook.assert_conforms(broken(tmp_path, "fails" if rule == "answer" else "fails-at-destroy"), rule)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)


@given(TEXTS, TEXTS, st.sampled_from(sorted(FORMS)))
def test_every_form_of_a_request_says_the_same(event: str, description: str, how: str) -> None:
    request = Request(event, Box(box_id="x", description=description))
    assert read_request(FORMS[how](request)) == request

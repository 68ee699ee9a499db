"""Calls that say what a rule speaks of, and something else besides: another call behind the same words."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from serai.errors import BadSettings
from serai.model.approvals import Allow
from serai.model.tools import ToolCall
from serai.policy.call_facts import CallContext, CallFacts
from serai.policy.patterns import parse_host
from serai.policy.rules import load_default_rules, read_toml
from serai.policy.suggested_rules import build_rule
from tests.support.policy.rules import HERE, check, judge_call, policy, rule

SECRET = os.path.expanduser("~/.ssh/id")


@pytest.mark.req("policy.rule.beside")
@pytest.mark.parametrize(
    "more",
    [
        {"absolute_path": "/etc/shadow"},
        {"ranges": [{"path": "/etc/shadow"}]},
        {"Path": "setup.py"},
        {"edits": [{"old": "a", "new": "b", "path": "/etc/passwd"}]},
        {"options": {"follow": True}},
    ],
)
@pytest.mark.parametrize("tool", ["read", "write", "edit", "copy"])
def test_a_rule_over_paths_speaks_of_all_that_a_call_says(tool: str, more: dict[str, Any]) -> None:
    inside = rule("allow", tool=tool, path="./**")
    assert check(inside, tool, {"path": "a"}).answer == "yes"
    found = check(inside, tool, {"path": "a", **more})
    name = next(iter(more))
    assert (found.answer, found.why.startswith(f"the call also says `{name}")) == ("no", True), found


@pytest.mark.req("policy.rule.beside", "policy.decide.default")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read", {"path": "a", "offset": 3, "limit": 10}),
        ("grep", {"pattern": "x", "path": ".", "glob": "*.py", "-n": True, "output_mode": "content"}),
        ("find", {"pattern": "**/*.py", "path": "src", "limit": 5}),
    ],
)
def test_what_known_tools_say_besides_their_path_changes_nothing(tool: str, arguments: dict[str, Any]) -> None:
    assert judge_call(policy(*load_default_rules().rules), tool, arguments).decision == "allow"


@pytest.mark.req("policy.rule.beside")
def test_edits_of_one_file_are_about_that_file() -> None:
    inside = rule("allow", tool="edit", path="./**")
    assert check(inside, "edit", {"path": "a", "edits": [{"old": "x", "new": "y"}, {"old": "p", "new": "q"}]}).answer == "yes"


@pytest.mark.req("policy.rule.beside", "policy.rule.input")
def test_a_rule_over_fields_speaks_of_all_fields() -> None:
    staging = rule("allow", tool="deploy", input={"environment": "staging", "options.replicas": "?"})
    said = {"environment": "staging", "options": {"replicas": 3}}
    assert check(staging, "deploy", said).answer == "yes"
    assert check(staging, "deploy", {**said, "override_environment": "production"}).answer == "no"
    assert check(staging, "deploy", {**said, "options": {"replicas": 3, "force": True}}).why.startswith(
        "the call also says `options.force`"
    )
    whole = rule("allow", tool="deploy", input={"environment": "staging", "options": "*"})
    assert check(whole, "deploy", {**said, "options": {"force": True}}).answer == "yes"  # it speaks of all options
    others = rule("allow", tool="deploy", input={"environment": "staging", "*": ["?", "true"]})
    assert check(others, "deploy", {**said, "force": True}).answer == "yes"
    assert check(others, "deploy", {**said, "force": "now"}).answer == "no"
    assert check(rule("allow", tool="deploy"), "deploy", {"anything": "goes"}).answer == "yes"  # it speaks of none


@pytest.mark.req("policy.rule.beside", "policy.remember.narrow")
def test_what_a_person_saw_is_all_that_is_remembered() -> None:
    for tool, seen, more in (
        ("fetch", {"url": "https://example.com/a"}, {"method": "POST", "body": "secret"}),
        ("read", {"path": "/etc/hosts"}, {"filepath": "/etc/shadow"}),
        ("bash", {"command": "make test"}, {"env": {"LD_PRELOAD": "x.so"}}),
    ):
        again = build_rule(CallFacts(ToolCall(tool, seen), HERE), Allow())
        assert check(again, tool, seen).answer == "yes"
        assert check(again, tool, {**seen, **more}).answer == "no", tool


@pytest.mark.req("policy.rule.cwd")
def test_a_command_elsewhere_is_another_command(tmp_path: Path) -> None:
    (tmp_path / "vendor").mkdir()
    here = CallContext(cwd=str(tmp_path), session="one")
    make = {"command": "make test"}
    for each in (rule("allow", tool="bash", command="make test"), build_rule(CallFacts(ToolCall("bash", make), here), Allow())):
        assert check(each, "bash", make, here).answer == "yes"
        assert check(each, "bash", {**make, "cwd": "vendor"}, here).answer == "no"
    below = rule("allow", tool="bash", command="make test", cwd="./**")
    assert check(below, "bash", {**make, "cwd": "vendor"}, here).answer == "yes"


@pytest.mark.req("policy.decide.maybe")
@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"command": "git", "args": ["push", "--force"]}, "maybe"),
        ({"command": "git log", "env": {"GIT_PAGER": "rm x"}}, "maybe"),
        ({"cmd": "git log"}, "maybe"),
        ({}, "maybe"),
        ({"cmd": "git push -f --force"}, "yes"),
        ({"script": "cd x\ngit push --force"}, "yes"),
        ({"command": "git log", "timeout": 3, "description": "look"}, "no"),
    ],
)
def test_a_rule_against_a_command_sees_more_than_the_command(arguments: dict[str, Any], answer: str) -> None:
    assert check(rule("deny", tool="bash", command="git push ** --force* **"), "bash", arguments).answer == answer


@pytest.mark.req("policy.rule.path", "policy.decide.maybe")
@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"path": SECRET}, "yes"),
        ({"path": "@ " + SECRET}, "yes"),
        ({"path": "$HOME/.ssh/id"}, "yes"),
        ({"location": SECRET}, "maybe"),
        ({"absolute_path": SECRET}, "maybe"),
        ({"Path": "~/.ssh/id"}, "maybe"),
        ({"request": {"path": SECRET}}, "maybe"),
        ({"uri": f"file://{SECRET}"}, "maybe"),
        ({"path": "a", "note": "a word"}, "no"),
        ({"path": "a", "content": f"see\n{SECRET}"}, "no"),
    ],
)
def test_a_rule_against_a_path_finds_it_under_any_name(arguments: dict[str, Any], answer: str) -> None:
    assert check(rule("deny", path="~/.ssh/**"), "read", arguments).answer == answer


def test_variables_in_a_path_lead_out_of_the_working_directory() -> None:
    assert check(rule("allow", tool="read", path="./**"), "read", {"path": "$HOME/.ssh/id"}).answer == "no"


@pytest.mark.req("policy.rule.host")
@pytest.mark.parametrize("port", ["00000008080", "080", "0", "65536", "0000000443"])
def test_a_port_that_is_not_plainly_written_is_none(port: str) -> None:
    with pytest.raises(ValueError, match="port"):
        parse_host(f"http://localhost:{port}/")


@pytest.mark.req("policy.rule.linear")
def test_more_paths_than_can_be_followed_are_never_allowed() -> None:
    many = {"paths": ["/".join("a" * 1900)] * 400}
    assert check(rule("allow", tool="read", path="**"), "read", many).why == "it has more paths than can be followed"
    assert check(rule("deny", path="~/.ssh/**"), "read", many).answer == "maybe"


@pytest.mark.req("policy.rule.strict")
def test_a_rule_that_allows_says_what() -> None:
    for keys in ("", 'who = "claude"', 'path = "./**"'):
        with pytest.raises(BadSettings, match="names its `tool`, or the `owner`"):
            read_toml(f'[[rule]]\nid = "x"\ndecide = "allow"\n{keys}'.encode(), "rules.toml")
    read_toml(b'[[rule]]\nid = "x"\ndecide = "deny"', "rules.toml")

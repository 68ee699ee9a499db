"""A call as rules look at it, whatever a model puts into its arguments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serai.model.approvals import Allow, Deny
from serai.model.tools import ToolCall
from serai.policy.call_facts import CallContext, CallFacts
from serai.policy.engine import match_rule
from serai.policy.suggested_rules import build_flag, build_rule
from tests.support.policy.rules import HERE, check, judge_call, policy, rule, subject

DENIES = {
    "command": rule("deny", command="rm *"),
    "path": rule("deny", path="/secret/**"),
    "host": rule("deny", host="evil.com"),
    "input": rule("deny", input={"city": "Bern"}),
}
ALLOWS = {
    "command": rule("allow", command="*"),
    "path": rule("allow", path="/**"),
    "host": rule("allow", host="*"),
    "input": rule("allow", input={"city": "*"}),
    "tool": rule("allow", tool="*"),
    "cwd": rule("allow", cwd="/**"),
}


def nest(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


DEEP = nest(5000)


@pytest.mark.parametrize("arguments", [["rm -rf /"], "rm -rf /", 7, 1.5, True, [{"command": "rm x", "city": "Bern"}]], ids=ascii)
def test_arguments_that_are_no_object_are_allowed_by_no_rule_and_asked_where_one_denies(arguments: object) -> None:
    for name, allows in ALLOWS.items():
        assert check(allows, "bash", arguments).answer == "no", name
    for name, denies in DENIES.items():
        why = "it has arguments that are no object of names and values"
        assert check(denies, "bash", arguments) == ("maybe", why, True), name
    assert check(rule("deny", tool="bash"), "bash", arguments).answer == "yes"
    assert judge_call(policy(*ALLOWS.values()), "bash", arguments).decision == "ask"


def test_no_arguments_are_an_empty_object() -> None:
    assert check(ALLOWS["tool"], "bash", None).answer == "yes"
    assert check(DENIES["command"], "bash", None).answer == "maybe"  # a shell that runs what nobody can see
    assert check(DENIES["command"], "weather", None).answer == "no"


def test_a_field_that_is_no_json_or_too_deep_for_it_is_odd() -> None:
    for odd in (DEEP, {"a": "\ud800"}):
        why = "it has a `city` that is nested too deep, or no JSON"
        assert check(ALLOWS["input"], "weather", {"city": odd}) == ("no", why, True)
        assert check(DENIES["input"], "weather", {"city": odd}) == ("maybe", why, True)


def test_arguments_that_cannot_be_written_down_are_like_nothing_else() -> None:
    for odd in (DEEP, "\ud800"):
        assert subject("x", {"a": odd}).digest != subject("x", {"a": odd}).digest
    assert subject("x", {"a": 1, "b": 2}).digest == subject("x", {"b": 2, "a": 1}).digest
    assert subject("x", {"a": 1}).digest != subject("x", {"a": "1"}).digest


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=[]), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
ODD: list[Any] = [DEEP, {"path": DEEP}, "x" * 1_000_000, ["x"] * 5000, "\0", "\ud800", "~\ud800", "http://\ud800", 10**400, ""]
NAMES = ["command", "path", "paths", "url", "urls", "cwd", "workdir", "pattern", "glob", "city", "file", "env"]
EVERY = (*DENIES.values(), *ALLOWS.values(), rule("ask", path="**/x", command="x", host="x", input={"a.b": "x"}, cwd="/x/**"))


@settings(deadline=None)
@given(
    st.sampled_from(["bash", "read", "find", "grep", "fetch", "weather", "", "\ud800"]),
    st.dictionaries(st.sampled_from(NAMES), JSON | st.sampled_from(ODD), max_size=4) | JSON,
)
def test_judging_and_remembering_never_fail_whatever_the_arguments(tool: str, arguments: Any) -> None:
    call = ToolCall(tool, arguments)
    for mode in ("manual", "skip"):
        assert policy(*EVERY, mode=mode).judge(call, HERE).decision in ("allow", "deny", "ask")
    for each in EVERY:
        match_rule(each, CallFacts(call, HERE))
    for decision in (Allow(), Deny("\ud800")):
        build_rule(CallFacts(call, HERE), decision)
    assert build_flag(CallFacts(call, HERE)).startswith("--allow ") or not build_flag(CallFacts(call, HERE))


@pytest.mark.req("policy.rule.cwd")
def test_a_call_may_say_where_it_runs_in_several_words(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "out").symlink_to("/etc")
    here = CallContext(cwd=str(tmp_path))
    assert subject("bash", {"command": "x"}, here).cwds == ((str(tmp_path),), "")
    assert subject("bash", {"cwd": "", "workdir": None}, here).cwds == ((str(tmp_path),), "")
    assert subject("bash", {"cwd": "sub"}, here).cwds == ((f"{tmp_path}/sub",), "")
    assert subject("bash", {"cwd": "out"}, here).cwds == ((os.path.realpath("/etc"),), "")
    assert subject("bash", {"cwd": "sub", "workdir": "/etc"}, here).cwds.values == (f"{tmp_path}/sub", os.path.realpath("/etc"))
    assert os.path.expanduser("~") in subject("bash", {"cwd": "~"}, here).cwds.values
    for odd in (7, ["sub"], "a\0"):
        assert subject("bash", {"cwd": odd}, here).cwds.odd


def test_a_situation_knows_whose_a_decision_is(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    here = CallContext(cwd="/x", project=str(tmp_path / "link"), session="one")
    assert [here.get_scope_key(scope) for scope in ("once", "session", "project", "always")] == ["", "one", f"{tmp_path}/real", ""]
    assert CallContext(cwd=str(tmp_path / "link")).get_scope_key("project") == f"{tmp_path}/real"

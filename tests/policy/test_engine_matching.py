"""Whether a rule means a call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serai.policy.call_facts import CallContext
from serai.policy.rules import Decide
from tests.support.policy.rules import HERE, check, rule

GUESTS = CallContext(cwd="/nowhere", agent="claude", owner="zot:weather")


@pytest.mark.req("policy.rule.who")
@pytest.mark.parametrize(
    ("who", "matches"),
    [
        ("claude", {"claude"}),
        ("c*", {"claude", "codex"}),
        ("agent", {"claude", "codex", "", "agent"}),
        ("guest", {"zot:weather", "piglet:x"}),
        ("zot:*", {"zot:weather"}),
        ("person", {"person"}),
        ("*", {"claude", "codex", "", "zot:weather", "piglet:x", "person", "agent"}),
    ],
)
@pytest.mark.parametrize("decide", ["allow", "deny"])
def test_who_asks(who: str, matches: set[str], decide: Decide) -> None:
    askers = ("claude", "codex", "", "zot:weather", "piglet:x", "person", "agent")
    nobody = CallContext(cwd="/nowhere")
    asked = rule(decide, who=who)
    assert {asker for asker in askers if check(asked, "x", {}, nobody, asker=asker).answer == "yes"} == matches


def test_without_an_asker_it_is_the_sessions_agent() -> None:
    assert check(rule("allow", who="claude"), "x", {}).answer == "yes"
    assert check(rule("allow", who="claude"), "x", {}, asker="zot:weather").answer == "no"


@pytest.mark.req("policy.rule.who")
@pytest.mark.parametrize(
    ("owner", "built_in", "guests"),
    [
        ("built-in", "yes", "no"),
        ("guest", "no", "yes"),
        ("zot:*", "no", "yes"),
        ("*", "no", "yes"),
        ("piglet:*", "no", "no"),
        (["built-in", "zot:weather"], "yes", "yes"),
    ],
)
def test_whose_tool_it_is(owner: object, built_in: str, guests: str) -> None:
    asked = rule("allow", owner=owner)
    assert (check(asked, "x", {}).answer, check(asked, "x", {}, GUESTS).answer) == (built_in, guests)


@pytest.mark.req("policy.rule.native")
def test_an_agents_own_name_counts_for_what_denies_or_asks_alone() -> None:
    for decide, answer in {"deny": "yes", "ask": "yes", "allow": "no"}.items():
        named: Any = decide
        assert check(rule(named, tool="NotebookEdit"), "edit", {}, native="NotebookEdit").answer == answer
        assert check(rule(named, tool="edit"), "edit", {}, native="NotebookEdit").answer == "yes"
        assert check(rule(named, tool="Read"), "edit", {}, native="NotebookEdit").answer == "no"


@pytest.mark.req("policy.rule.input")
@pytest.mark.parametrize(
    ("name", "pattern", "arguments", "allows", "denies"),
    [
        ("city", "Bern", {"city": "Bern"}, "yes", "yes"),
        ("city", "Bern", {"city": "bern"}, "no", "no"),
        ("city", "Bern", {"city": ["Bern", "Thun"]}, "no", "yes"),
        ("city", "*", {"city": ["Bern", "Thun"]}, "yes", "yes"),
        ("city", "*", {}, "no", "no"),
        ("city", "*", {"city": None}, "no", "no"),
        ("city", "*", {"city": []}, "no", "no"),
        ("count", "1?", {"count": 12}, "yes", "yes"),
        ("force", "true", {"force": True}, "yes", "yes"),
        ("a.b", "x", {"a": {"b": "x"}}, "yes", "yes"),
        ("a.b", "x", {"a": [{"b": "x"}, {"b": "y"}]}, "no", "yes"),
        ("a.b", "x", {"a": "b"}, "no", "no"),
        ("a", '{"b":"x"}', {"a": {"b": "x"}}, "yes", "yes"),
        ("a", "*\n*", {"a": "x\ny"}, "yes", "yes"),
    ],
)
def test_any_field_may_be_named(name: str, pattern: str, arguments: Any, allows: str, denies: str) -> None:
    assert check(rule("allow", input={name: pattern}), "x", arguments).answer == allows
    assert check(rule("deny", input={name: pattern}), "x", arguments).answer == denies


def test_of_several_fields_each_has_to_match() -> None:
    both = {"city": "Bern", "days": "3"}
    for decide in ("allow", "deny"):
        named: Any = decide
        assert check(rule(named, input=both), "x", {"city": "Bern", "days": 3}).answer == "yes"
        assert check(rule(named, input=both), "x", {"city": "Bern", "days": 4}) == ("no", "`days` is not `3`", True)


@pytest.mark.req("policy.rule.cwd")
def test_where_it_would_run(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "out").symlink_to("/etc")
    here = CallContext(cwd=str(tmp_path))

    def allowed(said: object, **keys: Any) -> str:
        return check(rule("allow", tool="bash", **keys), "bash", {"command": "make", "cwd": said}, here).answer

    assert [allowed(cwd) for cwd in (None, ".", str(tmp_path))] == ["yes"] * 3
    assert [allowed(cwd) for cwd in ("sub", "..", "out", "/", "~", f"{tmp_path}x", 7, "a\0")] == ["no"] * 8
    assert [allowed(cwd, cwd="/etc/**") for cwd in ("out", "/etc", "/etc/x", None, "sub")] == ["yes", "yes", "yes", "no", "no"]
    assert [allowed(cwd, cwd="./sub") for cwd in ("sub", None, "..")] == ["yes", "no", "no"]
    said = check(rule("allow", tool="bash"), "bash", {"command": "make", "cwd": "/"}, here)
    assert said == ("no", "it would run in /, and the rule names no `cwd`", True)

    denies = rule("deny", cwd="/etc/**")
    assert [check(denies, "bash", {"cwd": cwd}, here).answer for cwd in ("out", "sub", None, 7)] == ["yes", "no", "no", "maybe"]
    assert check(rule("deny", cwd="./**"), "bash", {"cwd": "/"}, here).answer == "yes"  # asked from there


@pytest.mark.req("policy.rule.beside")
def test_a_call_that_says_more_than_its_command_is_another_call() -> None:
    status = rule("allow", tool="bash", command="git status")
    assert check(status, "bash", {"command": "git status"}).answer == "yes"
    for beside in ("description", "timeout", "timeout_ms", "background", "run_in_background"):
        assert check(status, "bash", {"command": "git status", beside: "x"}).answer == "yes", beside
    for beside in ("env", "stdin", "user", "shell", "sandbox"):
        said = check(status, "bash", {"command": "git status", beside: "x"})
        assert said == ("no", f"the call also says `{beside}`, of which the rule says nothing", True)
    quiet = rule("allow", tool="bash", command="git status", input={"env.PAGER": "cat"})
    assert check(quiet, "bash", {"command": "git status", "env": {"PAGER": "cat"}}).answer == "yes"
    assert check(quiet, "bash", {"command": "git status", "env": {"PAGER": "evil"}}).answer == "no"
    assert check(rule("deny", command="git *"), "bash", {"command": "git status", "env": {}}).answer == "yes"


@pytest.mark.parametrize(
    ("command", "allows", "denies"),
    [
        ("rm x", "yes", "yes"),
        (["rm", "x"], "yes", "yes"),
        ("ls; rm x", "no", "yes"),
        ("$x y", "no", "maybe"),
        ("ls 'x", "no", "maybe"),
        (7, "no", "maybe"),
        ([["rm"]], "no", "maybe"),
        (None, "no", "maybe"),
        ("ls", "no", "no"),
    ],
)
def test_a_command_is_certain_for_what_allows_and_found_anywhere_for_what_denies(command: Any, allows: str, denies: str) -> None:
    assert check(rule("allow", command="rm *"), "bash", {"command": command}).answer == allows
    assert check(rule("deny", command="rm *"), "bash", {"command": command}).answer == denies


def test_a_maybe_holds_only_when_everything_else_matches() -> None:
    asked = {"command": "$x y", "path": "a\0"}
    assert check(rule("deny", command="rm *", tool="read"), "bash", asked, HERE).answer == "no"
    assert check(rule("deny", command="rm *", input={"a": "b"}), "bash", asked, HERE).answer == "no"
    assert check(rule("deny", command="rm *", path="/x"), "bash", asked, HERE).answer == "maybe"


def test_a_rule_says_why_it_is_about_something_else() -> None:
    other = rule("allow", tool="bash", who="codex", owner="zot:*")
    assert check(other, "read", {}) == ("no", "it is about the tool `bash`", False)
    assert check(other, "bash", {}) == ("no", "it is about what `codex` asks for", False)
    assert check(other, "bash", {}, asker="codex") == ("no", "it is about tools of `zot:*`", False)

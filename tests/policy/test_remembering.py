"""What a remembered decision is about: the same again, and nothing else."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from serai.limits import Limits
from serai.model.ask import Allow, Deny
from serai.model.tools import ToolCall
from serai.policy.matching import match
from serai.policy.memory import Decisions
from serai.policy.remembering import flag_for, remember, rule_as, rule_for
from serai.policy.rules import Rule, read_flag, read_rule
from serai.policy.subject import Situation, Subject
from tests.policy.helpers import HERE, matched, subject


def kept(rule: Rule) -> Rule:
    """Written down and read again, as the memory does it."""
    form = json.loads(msgspec.json.encode(rule.to_json()))
    exactly = form.pop("exactly", "")
    return replace(read_rule(form, "memory"), exactly=exactly)


def of(call: ToolCall, situation: Situation = HERE, decision: Allow | Deny | None = None) -> Rule:
    return kept(rule_for(Subject(call, situation), decision or Allow()))


@pytest.mark.req("policy.remember.narrow")
@pytest.mark.parametrize(
    ("tool", "arguments", "keys"),
    [
        ("bash", {"command": "git  status", "timeout": 5}, {"command": "git status"}),
        ("bash", {"command": "echo 'a * b'"}, {"command": "echo 'a * b'"}),
        ("bash", {"command": ["echo", "*", "it's"]}, {"command": "echo '*' 'it'\"'\"'s'"}),
        ("bash", {"command": "make", "cwd": "/elsewhere"}, {"command": "make", "cwd": "/elsewhere"}),
        ("read", {"path": "a*b", "offset": 3}, {"path": "/nowhere/project/a\\*b"}),
        ("write", {"path": "x", "content": "y"}, {"path": "/nowhere/project/x"}),
        ("grep", {"pattern": "x", "path": ["a", "b"]}, {"path": ["/nowhere/project/a", "/nowhere/project/b"]}),
        ("fetch", {"url": "https://Example.com/x"}, {"host": "example.com:443"}),
        ("fetch", {"url": "http://[::1]:8080/"}, {"host": "[::1]:8080"}),
    ],
)
def test_a_decision_is_about_words_a_place_or_a_host(tool: str, arguments: dict[str, Any], keys: dict[str, Any]) -> None:
    form = of(ToolCall(tool, arguments)).to_json()
    assert form.pop("id").startswith("remembered-")
    assert form == {"decide": "allow", "who": "claude", "owner": "built-in", "tool": tool, **keys}


@pytest.mark.req("policy.remember.narrow")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("bash", {"command": "make; ls"}),
        ("bash", {"command": "$x"}),
        ("bash", {"command": "make", "env": {"A": "b"}}),
        ("bash", {"command": ["printf", "a\nb"]}),
        ("bash", {"command": "echo " + "x " * 100}),
        ("bash", {}),
        ("read", {}),
        ("fetch", {"url": "https://example.com", "method": "POST"}),
        ("fetch", {"url": "https://user@example.com"}),
        ("weather", {"city": "Bern"}),
        ("weather", {}),
        ("weather", {"path": "x"}),
    ],
)
def test_anything_else_is_about_its_very_arguments(tool: str, arguments: dict[str, Any]) -> None:
    made = of(ToolCall(tool, arguments))
    assert made.exactly == subject(tool, arguments).digest
    assert matched(made, tool, arguments).answer == "yes"
    assert matched(made, tool, {**arguments, "more": 1}) == ("no", "it was about other arguments", True)


WORDS = st.text(st.characters(categories=["L", "N", "P", "S", "Zs", "Cc"]), max_size=8)
COMMANDS = st.lists(WORDS, min_size=1, max_size=4) | st.lists(
    st.sampled_from(["git", "*", "**", "a b", "'", "-x", "?"]), min_size=1
)
TEXTS = st.lists(st.sampled_from(["git", "status", "'a b'", ";", "$x", "*", '"*"', "-m", "\u00fc"]), min_size=1).map(" ".join)
NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=6)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join) | st.lists(NAMES, max_size=3).map(lambda names: "/" + "/".join(names))
HOSTS = st.sampled_from(["a.com", "b.com", "A.com", "127.1", "[::1]", "x.a.com", "b\u00fc.com", "1.2.3.4"])
URLS = st.builds("http{}://{}{}/{}".format, st.sampled_from(["", "s"]), HOSTS, st.sampled_from(["", ":80", ":81"]), NAMES)
CALLS = (
    st.builds(lambda command: ToolCall("bash", {"command": command}), COMMANDS | TEXTS)
    | st.builds(lambda command, cwd: ToolCall("bash", {"command": command, "cwd": cwd}), TEXTS, PATHS)
    | st.builds(lambda tool, path: ToolCall(tool, {"path": path}), st.sampled_from(["read", "write", "edit", "grep"]), PATHS)
    | st.builds(lambda pattern: ToolCall("find", {"pattern": pattern}), PATHS)
    | st.builds(lambda url: ToolCall("fetch", {"url": url}), URLS)
    | st.builds(lambda city: ToolCall("weather", {"city": city}), WORDS | st.integers())
)


def odd(call: ToolCall) -> bool:
    found = Subject(call, HERE)
    return bool(found.places.odd or found.cwds.odd or found.hosts.odd)


@pytest.mark.req("policy.remember.narrow")
@given(CALLS, st.sampled_from([Allow(), Deny("no")]))
def test_the_same_call_is_decided_again_and_for_nobody_else(call: ToolCall, decision: Allow | Deny) -> None:
    assume(not odd(call))
    made = of(call, decision=decision)
    assert made.decide == ("allow" if isinstance(decision, Allow) else "deny")
    assert match(made, Subject(call, HERE)).answer == "yes"
    for other in (
        Subject(msgspec.structs.replace(call, asker="codex"), HERE),
        Subject(msgspec.structs.replace(call, asker="zot:weather"), HERE),
        Subject(call, Situation(cwd=HERE.cwd)),
        Subject(call, msgspec.structs.replace(HERE, owner="zot:weather")),
        Subject(msgspec.structs.replace(call, name=f"{call.name}x"), HERE),
    ):
        assert match(made, other).answer == "no"


def meant(call: ToolCall) -> object:
    """What tells calls apart for a person: the words, the places, the hosts, the arguments; and where it runs."""
    found = Subject(call, HERE)
    if found.reading is not None:
        return call.name, found.reading.simple or call.arguments["command"], found.cwds.values
    if call.name == "fetch":
        return call.name, found.hosts.values
    return call.name, set(found.places.values) or call.arguments


@pytest.mark.req("policy.remember.narrow")
@given(CALLS, CALLS)
def test_another_call_is_not_allowed_by_it(call: ToolCall, other: ToolCall) -> None:
    assume(not odd(call) and not odd(other) and meant(call) != meant(other))
    if match(of(call), Subject(other, HERE)).answer == "yes":
        first, second = Subject(call, HERE), Subject(other, HERE)
        assert call.name == other.name
        if second.reading is not None:  # the same words, in a folder below
            assert first.reading is not None
            assert first.reading.simple == second.reading.simple
            assert all(cwd.startswith(f"{HERE.cwd}/") for cwd in second.cwds.values)
        else:  # less than was allowed
            assert set(second.places.values) < set(first.places.values)


def test_a_place_is_where_it_leads_and_not_how_it_is_called(tmp_path: Path) -> None:
    here = Situation(cwd=str(tmp_path))
    made = of(ToolCall("read", {"path": "new"}, asker="claude"), here)
    same = ToolCall("read", {"path": str(tmp_path / "new")}, asker="claude")
    assert match(made, Subject(same, here)).answer == "yes"
    assert match(made, Subject(same, Situation(cwd="/"))).answer == "yes"
    (tmp_path / "new").symlink_to("/etc/passwd")
    assert match(made, Subject(same, here)).answer == "no"
    denied = of(ToolCall("read", {"path": "new"}, asker="claude"), here, Deny())
    (tmp_path / "new").unlink()
    (tmp_path / "other").symlink_to("/etc/passwd")
    assert match(denied, Subject(ToolCall("read", {"path": "other"}, asker="claude"), here)).answer == "yes"


@pytest.mark.parametrize("name", ["agent", "guest", "person", "built-in", "*", "a?c", "\\"])
def test_one_whose_name_is_a_word_of_rules_is_still_one(name: str) -> None:
    made = of(ToolCall(name, {}, asker=name), Situation(cwd="/nowhere", owner=name))
    for asker in ("claude", "zot:x", "", "abc"):
        assert match(made, Subject(ToolCall(name, {}, asker=asker), Situation(cwd="/nowhere", owner=name))).answer == "no"
    for owner in ("", "zot:x", "abc"):
        assert match(made, Subject(ToolCall(name, {}, asker=name), Situation(cwd="/nowhere", owner=owner))).answer == "no"
    assert match(made, Subject(ToolCall(name, {}, asker=name), Situation(cwd="/nowhere", owner=name))).answer == "yes"


@pytest.mark.parametrize("tool", ["", "\ud800"])
def test_a_tool_without_a_proper_name_is_remembered_as_nothing(tool: str) -> None:
    made = of(ToolCall(tool, {"path": "\udcff"}), decision=Deny("\ud800"))
    assert match(made, Subject(ToolCall(tool, {"path": "\udcff"}), HERE)).answer == "no"


def test_a_place_that_is_no_text_cannot_be_kept_but_its_refusal_does_not_fail() -> None:
    assert of(ToolCall("read", {"path": "\udcff"})).path == ()


@pytest.mark.req("policy.remember.narrow")
def test_a_person_may_say_a_wider_rule() -> None:
    wide = rule_as("bash:make *", Allow())
    assert (wide.decide, wide.command, wide.who, wide.because) == ("allow", ("make *",), (), "")
    assert kept(wide).command == ("make *",)
    bare = rule_as("bash", Deny("never"))
    assert (bare.decide, bare.tool, bare.because) == ("deny", ("bash",), "never")


@given(CALLS)
def test_the_flag_that_is_named_allows_that_very_call(call: ToolCall) -> None:
    assume(not odd(call) and Subject(call, HERE).cwds.values == (HERE.cwd,))
    option, flag = shlex.split(flag_for(Subject(call, HERE)))
    assert option == "--allow"
    assert match(read_flag(flag), Subject(call, HERE)).answer == "yes"


def test_a_decision_without_a_scope_to_hold_in_is_not_kept() -> None:
    decisions = Decisions.in_memory()
    made = of(ToolCall("x", {}))
    nameless = Situation(cwd="/nowhere")
    assert not remember(decisions, made, HERE, "once", Limits())
    assert not remember(decisions, made, nameless, "session", Limits())
    assert decisions.decisions() == ()
    assert [remember(decisions, made, HERE, scope, Limits()) for scope in ("session", "project", "always")] == [True] * 3
    assert {(one.scope, one.key, one.expires is None) for one in decisions.decisions()} == {
        ("session", "one", False),
        ("project", "/nowhere/project", False),
        ("always", "", True),
    }
    decisions.close()

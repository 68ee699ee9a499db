"""What a remembered decision is about: the same again, and nothing else."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from serai.limits import Limits
from serai.model.approvals import Allow, Deny
from serai.model.tools import ToolCall
from serai.policy.call_facts import CallContext, CallFacts
from serai.policy.decision_store import DecisionStore
from serai.policy.engine import Policy, RememberedDecision, match_rule
from serai.policy.rules import Rule, Rules, parse_rule_flag, read_rule
from serai.policy.suggested_rules import advise, build_flag, build_rule, build_wider_rule, remember_decision
from tests.support.policy.rules import HERE, check, subject


def store_and_read(rule: Rule) -> Rule:
    """Written down and read again, as the memory does it."""
    form = json.loads(msgspec.json.encode(rule.to_json()))
    exactly = form.pop("exactly", "")
    return replace(read_rule(form, "memory"), exactly=exactly)


def suggest_rule(call: ToolCall, situation: CallContext = HERE, decision: Allow | Deny | None = None) -> Rule:
    return store_and_read(build_rule(CallFacts(call, situation), decision or Allow()))


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
    form = suggest_rule(ToolCall(tool, arguments)).to_json()
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
    made = suggest_rule(ToolCall(tool, arguments))
    assert made.exactly == subject(tool, arguments).digest
    assert check(made, tool, arguments).answer == "yes"
    assert check(made, tool, {**arguments, "more": 1}) == ("no", "it was about other arguments", True)


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


def is_odd(call: ToolCall) -> bool:
    found = CallFacts(call, HERE)
    return bool(found.places.odd or found.cwds.odd or found.hosts.odd)


@pytest.mark.req("policy.remember.narrow")
@settings(deadline=None)
@given(CALLS, st.sampled_from([Allow(), Deny("no")]))
def test_the_same_call_is_decided_again_and_for_nobody_else(call: ToolCall, decision: Allow | Deny) -> None:
    assume(not is_odd(call))
    made = suggest_rule(call, decision=decision)
    assert made.decide == ("allow" if isinstance(decision, Allow) else "deny")
    assert match_rule(made, CallFacts(call, HERE)).answer == "yes"
    for other in (
        CallFacts(msgspec.structs.replace(call, asker="codex"), HERE),
        CallFacts(msgspec.structs.replace(call, asker="zot:weather"), HERE),
        CallFacts(call, CallContext(cwd=HERE.cwd)),
        CallFacts(call, msgspec.structs.replace(HERE, owner="zot:weather")),
        CallFacts(msgspec.structs.replace(call, name=f"{call.name}x"), HERE),
    ):
        assert match_rule(made, other).answer == "no"


def get_meaning(call: ToolCall) -> object:
    """What tells calls apart for a person: the words, the places, the hosts, the arguments; and where it runs."""
    found = CallFacts(call, HERE)
    if found.reading is not None:
        return call.name, found.reading.simple or call.arguments["command"], found.cwds.values
    if call.name == "fetch":
        return call.name, found.hosts.values
    return call.name, set(found.places.values) or call.arguments


@pytest.mark.req("policy.remember.narrow")
@settings(deadline=None)
@given(CALLS, CALLS)
def test_another_call_is_not_allowed_by_it(call: ToolCall, other: ToolCall) -> None:
    assume(not is_odd(call) and not is_odd(other) and get_meaning(call) != get_meaning(other))
    if match_rule(suggest_rule(call), CallFacts(other, HERE)).answer == "yes":
        first, second = CallFacts(call, HERE), CallFacts(other, HERE)
        assert call.name == other.name
        if second.reading is not None:  # the same words, in a folder below
            assert first.reading is not None
            assert first.reading.simple == second.reading.simple
            assert all(cwd.startswith(f"{HERE.cwd}/") for cwd in second.cwds.values)
        else:  # less than was allowed
            assert set(second.places.values) < set(first.places.values)


def test_a_place_is_where_it_leads_and_not_how_it_is_called(tmp_path: Path) -> None:
    here = CallContext(cwd=str(tmp_path))
    made = suggest_rule(ToolCall("read", {"path": "new"}, asker="claude"), here)
    same = ToolCall("read", {"path": str(tmp_path / "new")}, asker="claude")
    assert match_rule(made, CallFacts(same, here)).answer == "yes"
    assert match_rule(made, CallFacts(same, CallContext(cwd="/"))).answer == "yes"
    (tmp_path / "new").symlink_to("/etc/passwd")
    assert match_rule(made, CallFacts(same, here)).answer == "no"
    denied = suggest_rule(ToolCall("read", {"path": "new"}, asker="claude"), here, Deny())
    (tmp_path / "new").unlink()
    (tmp_path / "other").symlink_to("/etc/passwd")
    assert match_rule(denied, CallFacts(ToolCall("read", {"path": "other"}, asker="claude"), here)).answer == "yes"


@pytest.mark.parametrize("name", ["agent", "guest", "person", "built-in", "*", "a?c", "\\"])
def test_one_whose_name_is_a_word_of_rules_is_still_one(name: str) -> None:
    made = suggest_rule(ToolCall(name, {}, asker=name), CallContext(cwd="/nowhere", owner=name))
    for asker in ("claude", "zot:x", "", "abc"):
        assert match_rule(made, CallFacts(ToolCall(name, {}, asker=asker), CallContext(cwd="/nowhere", owner=name))).answer == "no"
    for owner in ("", "zot:x", "abc"):
        assert match_rule(made, CallFacts(ToolCall(name, {}, asker=name), CallContext(cwd="/nowhere", owner=owner))).answer == "no"
    assert match_rule(made, CallFacts(ToolCall(name, {}, asker=name), CallContext(cwd="/nowhere", owner=name))).answer == "yes"


@pytest.mark.parametrize("tool", ["", "\ud800"])
def test_a_tool_without_a_proper_name_is_remembered_as_nothing(tool: str) -> None:
    made = suggest_rule(ToolCall(tool, {"path": "\udcff"}), decision=Deny("\ud800"))
    assert match_rule(made, CallFacts(ToolCall(tool, {"path": "\udcff"}), HERE)).answer == "no"


def test_a_place_that_is_no_text_cannot_be_kept_but_its_refusal_does_not_fail() -> None:
    assert suggest_rule(ToolCall("read", {"path": "\udcff"})).path == ()


@pytest.mark.req("policy.remember.narrow")
def test_a_person_may_say_a_wider_rule() -> None:
    asked = CallFacts(ToolCall("bash", {"command": "make x"}, asker="claude"), HERE)
    wide = build_wider_rule("bash:make *", Allow(), asked)
    assert (wide.decide, wide.command, wide.who, wide.owner, wide.because) == ("allow", ("make *",), ("claude",), ("built-in",), "")
    assert store_and_read(wide).command == ("make *",)
    bare = build_wider_rule("bash", Deny("never"), asked)
    assert (bare.decide, bare.tool, bare.because) == ("deny", ("bash",), "never")


@pytest.mark.req("policy.remember.narrow")
def test_a_wider_rule_is_still_for_the_one_who_asked() -> None:
    wide = build_wider_rule("bash:make *", Allow(), CallFacts(ToolCall("bash", {"command": "make x"}, asker="claude"), HERE))
    other = CallContext(cwd=HERE.cwd, session="one", owner="zot:evil")
    assert match_rule(wide, CallFacts(ToolCall("bash", {"command": "make y"}, asker="claude"), HERE)).answer == "yes"
    assert match_rule(wide, CallFacts(ToolCall("bash", {"command": "make y"}, asker="zot:evil"), HERE)).answer == "no"
    assert match_rule(wide, CallFacts(ToolCall("bash", {"command": "make y"}, asker="claude"), other)).answer == "no"


@pytest.mark.req("policy.remember.narrow")
def test_a_command_is_remembered_for_its_folder_unless_it_is_for_everywhere(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    here = CallContext(cwd=str(tmp_path), project=str(tmp_path), session="one")
    there = CallContext(cwd=str(tmp_path / "sub"), project=str(tmp_path), session="one")
    call = ToolCall("bash", {"command": "make test"}, asker="claude")
    for scope, elsewhere in (("session", "ask"), ("project", "ask"), ("always", "allow")):
        decisions = DecisionStore.in_memory()
        assert remember_decision(decisions, build_rule(CallFacts(call, here), Allow()), here, scope, Limits())  # type: ignore[arg-type]
        judging = Policy(Rules(), memory=decisions)
        assert [judging.judge(call, where).decision for where in (here, there)] == ["allow", elsewhere], scope
        decisions.close()


@pytest.mark.req("policy.remember.narrow")
def test_a_call_that_says_more_than_its_path_is_remembered_as_it_is() -> None:
    call = ToolCall("read", {"path": "/etc/hosts", "weird": 1})
    made = build_rule(CallFacts(call, HERE), Allow())
    assert made.exactly
    assert match_rule(made, CallFacts(call, HERE)).answer == "yes"
    assert match_rule(made, CallFacts(ToolCall("read", {"path": "/etc/hosts", "weird": 2}), HERE)).answer == "no"


@settings(deadline=None)
@given(CALLS)
def test_the_flag_that_is_named_allows_that_very_call(call: ToolCall) -> None:
    assume(not is_odd(call) and CallFacts(call, HERE).cwds.values == (HERE.cwd,))
    option, flag = shlex.split(build_flag(CallFacts(call, HERE)))
    assert option == "--allow"
    assert match_rule(parse_rule_flag(flag), CallFacts(call, HERE)).answer == "yes"


def test_a_decision_without_a_scope_to_hold_in_is_not_kept() -> None:
    decisions = DecisionStore.in_memory()
    made = suggest_rule(ToolCall("x", {}))
    nameless = CallContext(cwd="/nowhere")
    assert not remember_decision(decisions, made, HERE, "once", Limits())
    assert not remember_decision(decisions, made, nameless, "session", Limits())
    assert decisions.list_decisions() == ()
    assert [remember_decision(decisions, made, HERE, scope, Limits()) for scope in ("session", "project", "always")] == [True] * 3
    assert {(one.scope, one.key, one.expires is None) for one in decisions.list_decisions()} == {
        ("session", "one", False),
        ("project", "/nowhere/project", False),
        ("always", "", True),
    }
    decisions.close()


# -- advice -----------------------------------------------------------------------------------------------------------------------

RULES = (
    Rule(id="no", decide="deny", tool=("bash",), command=("rm *",), source="own.toml"),
    Rule(id="please", decide="ask", tool=("bash",), command=("make *",)),
    Rule(id="yes", decide="allow", tool=("bash",), command=("ls *",)),
)


@pytest.mark.req("policy.decide.nobody")
@pytest.mark.parametrize(
    ("tool", "arguments", "flag", "wider", "why_not", "remember_"),
    [
        ("bash", {"command": "ls -l"}, "", False, "", False),  # it is allowed
        ("bash", {"command": "git status"}, "--allow 'bash:git status'", False, "", True),
        ("bash", {"command": "echo grüß"}, "--allow 'bash:echo grüß'", False, "", True),
        ("bash", {"command": "git status && ls"}, "--allow bash", True, "", True),
        ("bash", {"command": "git status", "cwd": "/etc"}, "", False, "no flag can say it", True),
        ("weather", {"city": "Bern"}, "--allow weather", True, "", True),
        ("we*ther", {"city": "Bern"}, "--allow 'we\\*ther'", True, "", True),
        ("mcp:foo", {"x": "y"}, "", False, "no flag can say it", True),
        ("mcp:a=b", {}, "", False, "no flag can say it", True),
        ("", {}, "", False, "no flag can say it", False),
        ("bash", {"command": "rm x"}, "", False, "change the rule `no` of own.toml: nothing else", False),
        ("bash", {"command": "$X y"}, "", False, "or change the rule `no` of own.toml: what it cannot see", True),
        ("bash", {"command": "make x"}, "", False, "change the rule `please`: rules that ask", True),
        ("sh", {"command": "echo 'open"}, "", False, "write it more plainly", True),
        ("other", {"x": "\ud800"}, "--allow other", True, "", False),  # what is no JSON is like nothing else
    ],
)
def test_the_advice_is_what_really_lets_the_call_through(
    tool: str, arguments: dict[str, Any], flag: str, wider: bool, why_not: str, remember_: bool
) -> None:
    call = ToolCall(tool, arguments, asker="claude")
    judged = Policy(Rules(rules=RULES)).judge(call, HERE)
    found = advise(call, HERE, judged)
    assert (found.flag, found.wider, found.remember) == (flag, wider, remember_)
    assert why_not in found.why_not
    assert bool(found.why_not) is bool(why_not)
    if flag:
        more = parse_rule_flag(shlex.split(flag)[1])
        assert Policy(Rules(rules=(*RULES, more))).judge(call, HERE).decision == "allow"
        other = ToolCall(tool, {"command": "another"}, asker="claude")
        assert Policy(Rules(rules=(*RULES, more))).judge(other, HERE).decision == ("allow" if wider else "ask")
    known = RememberedDecision("x", build_rule(CallFacts(call, HERE), Allow()), "always")
    again = Policy(Rules(rules=RULES), memory=Knows(known)).judge(call, HERE).decision
    assert (again == "allow") is (remember_ or judged.decision == "allow")
    person = Policy(Rules(rules=RULES)).judge(call, HERE, needs_person=True)
    assert advise(call, HERE, person, needs_person=True).flag == ""


class Knows:
    """A memory of one decision."""

    def __init__(self, one: RememberedDecision) -> None:
        self._one = one

    def list_decisions(self) -> tuple[RememberedDecision, ...]:
        return (self._one,)


def test_the_advice_about_a_remembered_no_is_to_forget_it() -> None:
    call = ToolCall("bash", {"command": "git push"}, asker="claude")
    known = RememberedDecision("7f", build_rule(CallFacts(call, HERE), Deny("no")), "always")
    found = advise(call, HERE, Policy(Rules(), memory=Knows(known)).judge(call, HERE))
    assert (found.flag, found.remember) == ("", False)
    assert found.why_not == "a person said no for the next time too: serai policy forget 7f"

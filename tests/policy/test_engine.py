"""Which stage decides a call, and what is said about it."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from serai.model.approvals import Allow, Answer, Approval, Question, QuestionItem
from serai.model.surface import ScriptedSurface
from serai.model.tools import ToolCall
from serai.policy.approver import Approver
from serai.policy.call_facts import CallContext, CallFacts
from serai.policy.engine import Policy, RememberedDecision, map_agent_mode
from serai.policy.rules import MODES, Decide, Rule, Rules, load_default_rules
from serai.policy.suggested_rules import build_rule
from tests.support.policy.rules import HERE, NOW, Known, judge_call, policy, rule

BASH = {"command": "make test"}


def stage_rules(decide: Decide) -> Rule:
    return rule(decide, tool="bash", command="make *")


# What each stage says when it is there, in the order that the issue names.
STAGES: dict[str, tuple[dict[str, Any], str]] = {
    "deny rule": ({"rules": (stage_rules("deny"),)}, "deny"),
    "remembered deny": ({"remembered": (stage_rules("deny"),)}, "deny"),
    "remembered allow": ({"remembered": (stage_rules("allow"),)}, "allow"),
    "ask rule": ({"rules": (stage_rules("ask"),)}, "ask"),
    "allow rule": ({"rules": (stage_rules("allow"),)}, "allow"),
    "auto": ({"mode": "auto"}, "allow"),
    "manual": ({}, "ask"),
}
STAGE = {
    "deny rule": "deny rules",
    "remembered deny": "remembered",
    "remembered allow": "remembered",
    "ask rule": "ask rules",
    "allow rule": "allow rules",
}


def build_policy(names: list[str]) -> Policy:
    """The later ones first, so that it is not the order of the rules that decides."""
    known = [STAGES[name][0] for name in reversed(names)]
    rules = [one for keys in known for one in keys.get("rules", ())]
    remembered = tuple(one for keys in known for one in keys.get("remembered", ()))
    return policy(*rules, remembered=remembered, mode=next((keys["mode"] for keys in known if "mode" in keys), ""))


@pytest.mark.req("policy.decide.order", "agents.must.10")
@pytest.mark.parametrize("first", STAGES)
def test_each_stage_decides_before_all_that_come_after_it(first: str) -> None:
    order = list(STAGES)
    after = order[order.index(first) + 1 :]
    for later in [[], after, *([one] for one in after), *(list(pair) for pair in combinations(after, 2))]:
        verdict = judge_call(build_policy([first, *later]), "bash", BASH)
        assert (verdict.decision, verdict.stage) == (STAGES[first][1], STAGE.get(first, "mode")), later


@pytest.mark.req("policy.decide.order")
@pytest.mark.parametrize("mode", MODES)
def test_without_any_rule_the_mode_decides(mode: str) -> None:
    assert judge_call(policy(mode=mode), "bash", BASH).decision == ("ask" if mode == "manual" else "allow")


def test_of_several_rules_of_one_stage_the_first_decides() -> None:
    one, two = rule("deny", tool="bash"), rule("deny", command="make *")
    assert judge_call(policy(one, two), "bash", BASH).rule is one
    assert judge_call(policy(two, one), "bash", BASH).rule is two


# -- doubts -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("policy.decide.maybe")
@pytest.mark.parametrize("way", ["allow rule", "auto", "skip", "remembered"])
def test_what_a_deny_rule_cannot_see_is_asked(way: str) -> None:
    rm = rule("deny", command="rm *")
    wide = rule("allow", tool="bash")
    made = {
        "allow rule": policy(rm, wide),
        "auto": policy(rm, mode="auto"),
        "skip": policy(rm, mode="skip"),
        "remembered": policy(rm, remembered=(wide,)),
    }[way]
    assert judge_call(made, "bash", {"command": "ls"}).decision == "allow"
    verdict = judge_call(made, "bash", {"command": "$tool x"})
    assert (verdict.decision, verdict.rule) == ("ask", rm)
    assert verdict.why.startswith(f"the rule `{rm.id}` may deny it: ")
    assert made.find_denial(ToolCall("bash", {"command": "$tool x"}), HERE) is None


@pytest.mark.req("policy.decide.maybe")
def test_who_saw_exactly_this_may_allow_it_although_a_deny_rule_cannot_see() -> None:
    rm = rule("deny", command="rm *")
    same = ToolCall("bash", {"command": "$tool x"})
    seen = policy(rm, remembered=(build_rule(CallFacts(same, HERE), Allow()),))
    assert seen.judge(same, HERE).decision == "allow"
    assert judge_call(seen, "bash", {"command": "$tool y"}).decision == "ask"


def test_a_certain_deny_counts_although_another_rule_only_may_mean_it() -> None:
    made = policy(rule("deny", command="rm *"), rule("deny", tool="bash"))
    assert judge_call(made, "bash", {"command": "$tool x"}).decision == "deny"


@pytest.mark.req("policy.decide.unread")
@pytest.mark.parametrize("command", ["echo 'x", "echo \x07", "x" * 100_000, 7, ["ls", 7]])
def test_a_command_that_does_not_parse_is_asked(command: object) -> None:
    for made in (policy(rule("allow", tool="bash")), policy(mode="auto"), policy(mode="skip")):
        verdict = judge_call(made, "bash", {"command": command})
        assert (verdict.decision, verdict.stage) == ("ask", "ask rules")
        assert verdict.why.startswith("the command ")


# -- what is shipped --------------------------------------------------------------------------------------------------------------


@pytest.mark.req("policy.decide.default")
@pytest.mark.parametrize(
    ("tool", "arguments", "owner", "decision"),
    [
        ("read", {"path": "file"}, "", "allow"),
        ("grep", {"pattern": "x"}, "", "allow"),
        ("grep", {"pattern": "x", "path": "sub"}, "", "allow"),
        ("find", {"pattern": "**/*.py"}, "", "allow"),
        ("read", {"path": "../file"}, "", "ask"),
        ("read", {"path": "/etc/passwd"}, "", "ask"),
        ("read", {"path": "link/passwd"}, "", "ask"),
        ("grep", {"pattern": "x", "path": "/etc"}, "", "ask"),
        ("find", {"pattern": "/etc/*"}, "", "ask"),
        ("read", {"path": "a\0"}, "", "ask"),
        ("read", {}, "", "ask"),
        ("write", {"path": "file", "content": ""}, "", "ask"),
        ("edit", {"path": "file"}, "", "ask"),
        ("bash", {"command": "ls"}, "", "ask"),
        ("fetch", {"url": "https://example.com"}, "", "ask"),
        ("skill", {"name": "x"}, "", "ask"),
        ("weather", {"city": "Bern"}, "zot:weather", "ask"),
        ("read", {"path": "file"}, "zot:reader", "ask"),
        ("Read", {"path": "file"}, "", "ask"),
    ],
)
def test_as_shipped(tmp_path: Path, tool: str, arguments: dict[str, Any], owner: str, decision: str) -> None:
    (tmp_path / "link").symlink_to("/etc")
    here = CallContext(cwd=str(tmp_path), owner=owner)
    assert judge_call(Policy(load_default_rules()), tool, arguments, here).decision == decision


# -- modes ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("policy.decide.mode", "agents.rule.31")
def test_a_mode_is_a_sessions_own_else_its_profiles_else_the_default() -> None:
    made = Policy(Rules(mode="auto", profiles={"careful": "manual"}))
    careful = CallContext(cwd="/nowhere", session="one", profile="careful")
    plain = CallContext(cwd="/nowhere", session="one")
    assert (judge_call(made, "x", {}, plain).decision, judge_call(made, "x", {}, careful).decision) == ("allow", "ask")
    made.set_mode("one", "skip")
    assert judge_call(made, "x", {}, careful).decision == "allow"
    assert judge_call(made, "x", {}, CallContext(cwd="/nowhere", session="two", profile="careful")).decision == "ask"
    assert (made.get_mode("one"), made.get_mode("two", "careful"), made.get_mode("two", "?")) == ("skip", "manual", "auto")


@pytest.mark.req("policy.decide.mode")
def test_nobody_chose_so_it_is_manual() -> None:
    assert Policy(Rules()).get_mode("one") == "manual" == Policy(load_default_rules()).get_mode("one", "profile")
    assert judge_call(Policy(Rules()), "x", {}).decision == "ask"


@pytest.mark.req("agents.rule.31")
def test_an_unknown_mode_denies_and_is_an_error() -> None:
    made = policy(rule("allow", tool="read"))
    made.set_mode("one", "yolo")
    verdict = judge_call(made, "bash", BASH)
    assert (verdict.decision, verdict.stage) == ("deny", "mode")
    assert verdict.error == verdict.why == "unknown mode 'yolo': there are manual, auto, skip"
    assert verdict.to_json()["error"] == verdict.error
    assert judge_call(made, "read", {}).decision == "allow"  # a rule decides before any mode


@pytest.mark.req("agents.scenario.B9")
def test_a_session_without_a_mode_of_its_own_has_its_profiles_and_again_when_its_own_is_switched_off() -> None:
    made = Policy(Rules(profiles={"work": "auto"}))
    here = CallContext(cwd="/nowhere", session="one", profile="work")
    for empty in (None, ""):
        made.set_mode("one", "manual")
        assert judge_call(made, "x", {}, here).decision == "ask"
        made.set_mode("one", empty)
        assert judge_call(made, "x", {}, here).decision == "allow"
        assert made.get_mode("one") == "manual"  # without the profile


@pytest.mark.req("agents.scenario.B8")
@pytest.mark.parametrize("native", ["bypassPermissions", "acceptEdits", "auto", "default", "dontAsk", "plan", "manual", "skip", ""])
async def test_only_an_agents_bypass_allows_without_asking_and_questions_are_asked_in_every_mode(native: str) -> None:
    made = Policy(load_default_rules())
    made.set_mode("one", map_agent_mode(native))
    surface = ScriptedSurface([Answer({"which?": "this"})])
    approver = Approver(made, surface)
    question = Question(id="q", items=(QuestionItem("which?"),))
    assert (await approver.ask(question, HERE)).decision == Answer({"which?": "this"})
    ruling = await approver.decide(Approval(id="a", call=ToolCall("bash", BASH)), HERE)
    assert (ruling.allowed, ruling.by) == ((True, "policy") if native == "bypassPermissions" else (False, "person"))
    assert surface.calls == (1 if native == "bypassPermissions" else 2)
    await approver.close()


# -- a person ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("policy.decide.person")
def test_what_only_a_person_can_answer_goes_to_one_unless_it_is_denied() -> None:
    allows = rule("allow", tool="bash")
    for made in (policy(allows), policy(remembered=(allows,)), policy(mode="auto"), policy(mode="skip")):
        assert judge_call(made, "bash", BASH).decision == "allow"
        verdict = judge_call(made, "bash", BASH, needs_person=True)
        assert (verdict.decision, verdict.why) == ("ask", "only a person can answer this")
    for made in (policy(rule("deny", tool="bash")), policy(remembered=(rule("deny", tool="bash"),))):
        assert judge_call(made, "bash", BASH, needs_person=True).decision == "deny"


# -- what is remembered -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("policy.remember.deny")
def test_a_remembered_deny_holds_before_a_remembered_allow_whatever_their_order() -> None:
    allows, denies = rule("allow", tool="bash"), rule("deny", command="make *")
    for both in ((allows, denies), (denies, allows)):
        assert judge_call(policy(remembered=both), "bash", BASH).decision == "deny"
        assert judge_call(policy(remembered=both), "bash", {"command": "ls"}).decision == "allow"


def test_a_remembered_decision_holds_in_its_scope_and_its_time() -> None:
    allows = rule("allow", tool="bash")

    def holds(scope: Any, key: str = "", *, at: float = NOW - 1, expires: float | None = None) -> bool:
        memory = Known()
        memory._known = (RememberedDecision("r", allows, scope, key, at, expires),)
        made = Policy(Rules(), memory=memory, clock=lambda: NOW)
        return judge_call(made, "bash", BASH).decision == "allow"

    assert holds("always")
    assert holds("session", "one")
    assert holds("project", "/nowhere/project")
    assert holds("always", expires=NOW + 1)
    assert not holds("session", "two")
    assert not holds("session")
    assert not holds("project", "/nowhere")
    assert not holds("once")
    assert not holds("always", expires=NOW)
    assert not holds("always", at=NOW + 1)  # the clock was set back


# -- the explanation --------------------------------------------------------------------------------------------------------------


def explain(made: Policy, tool: str, arguments: Any, **asked: Any) -> tuple[str, list[str]]:
    verdict = judge_call(made, tool, arguments, **asked)
    return verdict.why, [f"{step.stage}: {step.said}" for step in verdict.steps]


@pytest.mark.req("policy.decide.explain")
def test_an_explanation_says_what_each_stage_said_and_why_near_rules_did_not_match() -> None:
    made = policy(
        Rule(id="no-rm", decide="deny", command=("rm *",), because="files are precious"),
        Rule(id="push", decide="ask", tool=("bash",), command=("git push *",)),
        Rule(id="tests", decide="allow", tool=("bash",), command=("make test",), because="they change nothing"),
        Rule(id="reads", decide="allow", tool=("read",)),
    )
    assert explain(made, "bash", {"command": "make all"}) == (
        "no rule decides it, and in the mode `manual` a person is asked",
        [
            "deny rules: the only one, `no-rm`, does not match: the command does not run `rm *`",
            "remembered: no person has decided this call before",
            "ask rules: the only one, `push`, does not match: the command does not run `git push *`",
            "allow rules: none of 2 matches; `tests` does not: the command is not `make test`",
            "mode: no rule decides it, and in the mode `manual` a person is asked",
        ],
    )
    assert explain(made, "bash", {"command": "make test && rm x"}) == (
        "the rule `no-rm` denies it: files are precious",
        ["deny rules: the rule `no-rm` denies it: files are precious"],
    )
    assert explain(made, "bash", {"command": "make test"})[0] == "the rule `tests` allows it: they change nothing"
    assert explain(made, "bash", {"command": "git push"})[0] == "the rule `push` asks a person"
    assert explain(made, "bash", {"command": "make test; make all"})[1][-2] == (
        "allow rules: none of 2 matches; `tests` does not: the command is not one simple command"
    )
    assert explain(made, "read", {"path": "x"}, needs_person=True)[1][-2:] == [
        "allow rules: the rule `reads` allows it",
        "allow rules: only a person can answer this",
    ]


@pytest.mark.req("policy.decide.explain")
def test_an_explanation_names_a_few_near_rules_and_counts_the_others() -> None:
    made = policy(*(Rule(id=f"n{at}", decide="deny", command=(f"x{at}",)) for at in range(9)), mode="auto")
    why, steps = explain(made, "bash", BASH)
    assert why == "no rule decides it, and the mode `auto`, which somebody chose, allows the rest"
    assert steps[0].endswith("`n2` does not: the command does not run `x2`; nor do 6 more for this tool")
    assert steps[2] == "ask rules: there are none"


@pytest.mark.req("policy.decide.explain")
def test_an_explanation_names_the_only_rule_of_a_stage_also_when_it_is_about_another_tool() -> None:
    _, steps = explain(policy(Rule(id="reads", decide="allow", tool=("read", "grep"))), "bash", BASH)
    assert steps[3] == "allow rules: the only one, `reads`, does not match: it is about the tool `read` or `grep`"


@pytest.mark.req("policy.decide.explain")
def test_a_judgement_as_json_names_rule_and_file() -> None:
    denies = rule("deny", tool="bash")
    assert judge_call(policy(denies), "bash", BASH).to_json() == {
        "decision": "deny",
        "stage": "deny rules",
        "why": f"the rule `{denies.id}` denies it",
        "rule": denies.id,
        "source": "rules.toml",
        "steps": [{"stage": "deny rules", "said": f"the rule `{denies.id}` denies it"}],
    }
    known = judge_call(policy(remembered=(denies,)), "bash", BASH).to_json()
    assert (known["remembered"], known["why"]) == ("memory-0", "a person denied this before, for always")
    assert "rule" not in known


def test_deny_rules_can_be_asked_alone() -> None:
    made = policy(rule("deny", tool="bash"), rule("ask", tool="read"), mode="auto", remembered=(rule("deny", tool="write"),))
    assert made.find_denial(ToolCall("bash"), HERE) is not None
    assert [made.find_denial(ToolCall(tool), HERE) for tool in ("read", "write", "edit")] == [None, None, None]

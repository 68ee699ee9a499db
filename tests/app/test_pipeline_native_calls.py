"""What the pipeline says of a call that a driven agent runs itself, before anybody is asked and when somebody is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serai.agents.driver import NeedsApproval
from serai.app import pipeline as pipelines
from serai.app.pipeline import CallDecision
from serai.model.approvals import Allow, Approval, Decision, Deny, Question
from serai.model.contributions import InterceptResult, Pass, Refuse, Rewrite
from serai.model.surface import ScriptedSurface
from serai.model.tools import NativeCall, ToolCall
from tests.support.app.pipelines import PipelineHarness, guard, open_pipeline, station

Monkey = pytest.MonkeyPatch
RULES = """
rule = [
  { id = "echo", decide = "allow", tool = "bash", input = { command = "echo *" } },
  { id = "no-rm", decide = "deny", tool = "bash", input = { command = "rm *" }, because = "nothing is removed" },
]
"""


def bash(command: str, **more: Any) -> ToolCall:
    """A call of Claude's own, as its driver makes it."""
    given = {"command": command, **more}
    return ToolCall("bash", given, id="t1", asker="claude", native=NativeCall("Bash", dict(given)))


def replace_in_command(old: str, new: str) -> Callable[[ToolCall], InterceptResult]:
    def judge(call: ToolCall) -> InterceptResult:
        command = call.arguments["command"]
        return Rewrite({**call.arguments, "command": command.replace(old, new)}) if old in command else Pass()

    return judge


def approval(call: ToolCall) -> Approval:
    return Approval(id="r1", agent="claude", call=call, description="what the agent says of it")


async def judge_call(the: PipelineHarness, call: ToolCall) -> NeedsApproval:
    verdict = await the.pipeline.judge(call)
    assert isinstance(verdict, NeedsApproval)
    return verdict


def get_arguments(decided: CallDecision) -> Any:
    """The arguments that it may run with; None: it may not."""
    return decided.decision.arguments if isinstance(decided.decision, Allow) else None


# -- without a person


@pytest.mark.req("app.driven.judged")
@pytest.mark.parametrize(("command", "verdict"), [("rm x", Deny), ("echo hello", Allow), ("touch x", NeedsApproval)])
async def test_rules_say_yes_or_no_or_that_a_person_is_to_be_asked(
    monkeypatch: Monkey, tmp_path: Path, command: str, verdict: type
) -> None:
    surface = ScriptedSurface(default=Allow())
    async with open_pipeline(monkeypatch, tmp_path, rules=RULES, surface=surface) as the:
        said = await the.pipeline.judge(bash(command))
    assert isinstance(said, verdict)
    if isinstance(said, Deny):
        assert "nothing is removed" in said.why
    elif isinstance(said, Allow):
        assert said.arguments == {"command": command}
    elif isinstance(said, NeedsApproval):
        assert said.call.arguments == {"command": command}
        assert said.call.native == NativeCall("Bash", {"command": command})
    assert surface.asked == []  # that is for whoever puts it to a person


@pytest.mark.req("app.driven.judged")
async def test_what_a_rule_forbids_no_guard_is_asked_about(monkeypatch: Monkey, tmp_path: Path) -> None:
    gate = guard(lambda _call: Rewrite({"command": "echo fine"}))
    async with open_pipeline(monkeypatch, tmp_path, gate, rules=RULES) as the:
        assert isinstance(await the.pipeline.judge(bash("rm x")), Deny)
    assert gate.asked == []


@pytest.mark.req("app.driven.judged")
async def test_a_guard_blocks_what_a_rule_allows(monkeypatch: Monkey, tmp_path: Path) -> None:
    async with open_pipeline(monkeypatch, tmp_path, guard(lambda _call: Refuse("not here")), rules=RULES) as the:
        assert await the.pipeline.judge(bash("echo hello")) == Deny("not here")


@pytest.mark.req("app.driven.judged")
@pytest.mark.parametrize(("to", "verdict"), [("echo", Allow), ("rm", Deny), ("mv", NeedsApproval)])
async def test_rules_judge_what_a_guard_made_of_it(monkeypatch: Monkey, tmp_path: Path, to: str, verdict: type) -> None:
    async with open_pipeline(monkeypatch, tmp_path, guard(replace_in_command("touch", to)), rules=RULES) as the:
        said = await the.pipeline.judge(bash("touch x", timeout=5))
    assert isinstance(said, verdict)
    made = {"command": f"{to} x", "timeout": 5}
    if not isinstance(said, Deny):
        assert (said.arguments if isinstance(said, Allow) else said.call.arguments) == made


@pytest.mark.req("app.driven.judged")
async def test_while_a_guard_is_down_nothing_runs(monkeypatch: Monkey, tmp_path: Path) -> None:
    gate = guard(lambda _call: Pass(), guard=True)
    async with open_pipeline(monkeypatch, tmp_path, gate, rules=RULES) as the:
        assert isinstance(await the.pipeline.judge(bash("echo hello")), Allow)
        gate.die()
        said = await the.pipeline.judge(bash("echo hello"))
    assert isinstance(said, Deny)
    assert said.why.startswith("bash refused: the guard fake:gate is ")


async def test_what_is_nested_too_deep_to_be_looked_at_is_a_no(monkeypatch: Monkey, tmp_path: Path) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    async with open_pipeline(monkeypatch, tmp_path, rules=RULES) as the:
        assert await the.pipeline.judge(bash("echo hello", deep=deep)) == Deny("its arguments are nested too deep")


@pytest.mark.req("app.driven.judged")
async def test_a_guests_tool_of_the_same_name_has_no_say(monkeypatch: Monkey, tmp_path: Path) -> None:
    """Its schema is not that of the agent's own, and neither is its owner the one whose rules count."""
    rules = '[[rule]]\nid = "station"\ndecide = "allow"\nowner = "fake:station"\n'
    wanted = ToolCall("weather", {"where": 1}, id="t1", asker="claude", native=NativeCall("Weather", {"where": 1}))
    async with open_pipeline(monkeypatch, tmp_path, station(), rules=rules, surface=ScriptedSurface([Allow()])) as the:
        decided = await the.pipeline.decide(approval((await judge_call(the, wanted)).call))
    assert get_arguments(decided) == {"where": 1}
    assert (decided.by, decided.owner) == ("person", "")


# -- when a person is asked about it


@pytest.mark.req("app.driven.once")
async def test_what_the_guards_have_seen_they_are_not_shown_again(monkeypatch: Monkey, tmp_path: Path) -> None:
    gate, surface = guard(replace_in_command("one", "two")), ScriptedSurface([Allow()])
    async with open_pipeline(monkeypatch, tmp_path, gate, rules=RULES, surface=surface) as the:
        ask = await judge_call(the, bash("touch one"))
        assert ask.call.arguments == {"command": "touch two"}
        decided = await the.pipeline.decide(approval(ask.call))
    assert get_arguments(decided) == {"command": "touch two"}
    assert len(gate.asked) == 1
    [shown] = surface.asked
    assert isinstance(shown, Approval)
    assert (shown.call.arguments, shown.description) == ({"command": "touch two"}, "what the agent says of it")


@pytest.mark.req("app.driven.once")
async def test_a_no_of_a_person_is_one(monkeypatch: Monkey, tmp_path: Path) -> None:
    async with open_pipeline(monkeypatch, tmp_path, rules=RULES, surface=ScriptedSurface([Deny("never", interrupt=True)])) as the:
        ask = await judge_call(the, bash("touch x"))
        decided = await the.pipeline.decide(approval(ask.call))
    assert decided.decision == Deny("never", interrupt=True)


@pytest.mark.req("app.driven.once")
async def test_what_was_judged_is_what_runs_whatever_becomes_of_what_was_shown(monkeypatch: Monkey, tmp_path: Path) -> None:
    shown: list[ToolCall] = []

    def meanwhile(request: Approval | Question) -> Decision:
        assert isinstance(request, Approval)
        for call in (*shown, request.call):
            call.arguments["command"] = "curl evil"
        return Allow()

    wanted = bash("touch x")
    async with open_pipeline(
        monkeypatch, tmp_path, guard(lambda _call: Pass()), rules=RULES, surface=ScriptedSurface([meanwhile])
    ) as the:
        ask = await judge_call(the, wanted)
        shown += [wanted, ask.call]
        ask.call.arguments["command"] = "rm everything"  # also before it comes back
        decided = await the.pipeline.decide(approval(ask.call))
    assert get_arguments(decided) == {"command": "touch x"}


@pytest.mark.req("app.driven.once")
async def test_what_a_person_makes_of_it_the_guards_see_too(monkeypatch: Monkey, tmp_path: Path) -> None:
    gate = guard(lambda call: Refuse("not that") if "evil" in call.arguments["command"] else Pass())
    surface = ScriptedSurface([Allow({"command": "curl evil"}), Allow({"command": "touch y"}), Allow({"command": "rm y"})])
    async with open_pipeline(monkeypatch, tmp_path, gate, rules=RULES, surface=surface) as the:
        evil, other, gone = [await the.pipeline.decide(approval((await judge_call(the, bash("touch x"))).call)) for _ in range(3)]
    assert evil.decision == Deny("not that")
    assert get_arguments(other) == {"command": "touch y"}
    assert isinstance(gone.decision, Deny)
    assert "nothing is removed" in gone.decision.why
    assert [call.arguments["command"] for _, call in gate.asked][:4] == ["touch x", "curl evil", "touch x", "touch y"]


@pytest.mark.req("app.driven.once")
async def test_a_call_that_nobody_judged_is_shown_to_the_guards(monkeypatch: Monkey, tmp_path: Path) -> None:
    """Equal arguments are not those that were judged; and what was judged is good for one approval."""
    gate = guard(lambda _call: Pass())
    async with open_pipeline(monkeypatch, tmp_path, gate, rules=RULES, surface=ScriptedSurface(default=Allow())) as the:
        ask = await judge_call(the, bash("touch x"))
        assert get_arguments(await the.pipeline.decide(approval(bash("touch x")))) == {"command": "touch x"}
        assert len(gate.asked) == 2
        await the.pipeline.decide(approval(ask.call))
        assert len(gate.asked) == 2
        await the.pipeline.decide(approval(ask.call))
        assert len(gate.asked) == 3


@pytest.mark.req("app.driven.once")
async def test_a_guard_that_is_down_by_then_holds_it_all_the_same(monkeypatch: Monkey, tmp_path: Path) -> None:
    gate, surface = guard(lambda _call: Pass(), guard=True), ScriptedSurface(default=Allow())
    async with open_pipeline(monkeypatch, tmp_path, gate, rules=RULES, surface=surface) as the:
        ask = await judge_call(the, bash("touch x"))
        gate.die()
        decided = await the.pipeline.decide(approval(ask.call))
    assert isinstance(decided.decision, Deny)
    assert surface.asked == []


async def test_of_very_many_that_nobody_came_back_for_the_oldest_is_shown_again(monkeypatch: Monkey, tmp_path: Path) -> None:
    monkeypatch.setattr(pipelines, "_SEEN", 2)
    gate = guard(lambda _call: Pass())
    async with open_pipeline(monkeypatch, tmp_path, gate, rules=RULES, surface=ScriptedSurface(default=Allow())) as the:
        asks = [await judge_call(the, bash(f"touch {number}")) for number in range(3)]
        for ask in asks:
            await the.pipeline.decide(approval(ask.call))
    assert [call.arguments["command"] for _, call in gate.asked] == ["touch 0", "touch 1", "touch 2", "touch 0"]

"""The one path of every call: what is asked in which order, and every way in which a rewrite might escape."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serai.app import agent_tools
from serai.app.agent_tools import AgentTools
from serai.model.approvals import Allow, Approval, Decision, Deny, Question
from serai.model.contributions import Contributions, Interceptor, InterceptResult, Pass, Refuse, Rewrite
from serai.model.surface import ScriptedSurface, Surface
from serai.model.tools import NativeCall, ToolCall, ToolResult, ToolSpec
from serai.tools import BuiltInTools
from serai.wire.plain_process import PlainSpawner
from tests.support.app.pipelines import RULES, SCHEMA, WEATHER, PipelineHarness, guard, open_pipeline, station
from tests.support.host.fake_guests import Fake


def rewrite_to(**arguments: Any) -> Callable[[Any], InterceptResult]:
    return lambda _call: Rewrite(arguments)


# -- the order


@pytest.mark.req("app.pipeline.order")
async def test_a_deny_rule_speaks_before_any_interceptor_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gate = guard(lambda _call: Pass())
    async with open_pipeline(monkeypatch, tmp_path, station(), gate) as the:
        decided = await the.decide("Atlantis")
    assert isinstance(decided.decision, Deny)
    assert "it does not exist" in decided.decision.why
    assert decided.by == "policy"
    assert gate.asked == []


@pytest.mark.req("app.pipeline.order")
async def test_a_block_ends_it_before_the_policy_or_a_person_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    surface = ScriptedSurface(default=Allow())
    async with open_pipeline(monkeypatch, tmp_path, station(), guard(lambda _call: Refuse("not today")), surface=surface) as the:
        decided = await the.decide("Paris")
    assert decided.by == "guest"
    assert decided.to_result() == ToolResult.error("not today", code="BLOCKED")
    assert surface.asked == []


@pytest.mark.req("app.pipeline.order")
async def test_a_block_that_is_no_error_to_the_model_stays_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with open_pipeline(monkeypatch, tmp_path, station(), guard(lambda _call: Refuse("preview", is_error=False))) as the:
        decided = await the.decide("Bern")
        assert not decided.allowed
        assert decided.to_result() == ToolResult.of("preview")
        assert await the.tools.decide(ToolCall("weather", {"city": "Bern"})) == ToolResult.of("preview")


@pytest.mark.req("app.pipeline.order")
async def test_what_a_rule_allows_is_asked_of_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    surface = ScriptedSurface()
    async with open_pipeline(monkeypatch, tmp_path, station(), surface=surface) as the:
        decided = await the.decide("Bern")
    assert decided.allowed
    assert decided.by == "policy"
    assert surface.asked == []


@pytest.mark.req("app.pipeline.order", "app.pipeline.asker")
async def test_what_no_rule_decides_is_asked_of_a_person_with_the_asker_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    surface = ScriptedSurface([Allow()])
    async with open_pipeline(monkeypatch, tmp_path, station(), surface=surface) as the:
        decided = await the.pipeline.decide(ToolCall("weather", {"city": "Paris"}, id="c1", asker="zot:planner"))
    [asked] = surface.asked
    assert isinstance(asked, Approval)
    assert (asked.call.asker, asked.agent, asked.session) == ("zot:planner", "resident", "s")
    assert decided.allowed
    assert decided.by == "person"
    assert the.told.asked_of == [asked]
    [(id, decision, withdrawn)] = the.told.decisions
    assert (id, withdrawn) == (asked.id, "")
    assert isinstance(decision, Allow)


@pytest.mark.req("app.pipeline.order")
async def test_without_a_person_it_is_denied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with open_pipeline(monkeypatch, tmp_path, station()) as the:
        decided = await the.decide("Paris")
    assert isinstance(decided.decision, Deny)
    assert decided.by == "nobody"
    [(tool, hint)] = the.told.hints  # whoever reads along is told what would have allowed it
    assert tool == "weather"
    assert "--allow" in hint


@pytest.mark.req("app.pipeline.order")
async def test_nobody_is_asked_about_what_cannot_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    surface = ScriptedSurface(default=Allow())
    async with open_pipeline(monkeypatch, tmp_path, station(), surface=surface) as the:
        decided = await the.decide(7)
    assert decided.by == "schema"
    assert decided.to_result().code == "INVALID_ARGS"
    assert surface.asked == []


@pytest.mark.req("app.pipeline.order")
async def test_a_guard_that_is_down_refuses_every_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gate = guard(lambda _call: Pass(), guard=True)
    async with open_pipeline(monkeypatch, tmp_path, station(), gate) as the:
        assert (await the.decide("Bern")).allowed
        gate.die()
        decided = await the.decide("Bern")
    assert decided.by == "guest"
    assert "guard" in decided.to_result().text


@pytest.mark.req("app.pipeline.order")
async def test_while_any_guard_is_down_nothing_runs_whatever_it_looks_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    looks_at_results = Interceptor("after", frozenset({"tool_result"}))
    gate = Fake("gate", Contributions(interceptors=(looks_at_results,)), guard=True)
    async with open_pipeline(monkeypatch, tmp_path, station(), gate) as the:
        assert (await the.decide("Bern")).allowed
        gate.die()
        decided = await the.decide("Bern")
    assert decided.to_result().code == "BLOCKED"
    assert "fake:gate" in decided.to_result().text


@pytest.mark.req("app.pipeline.approvals")
async def test_an_agents_approval_takes_the_same_path_and_keeps_what_it_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    surface = ScriptedSurface([Allow()])
    call = ToolCall("bash", {"command": "make"}, id="t1", asker="claude", native=NativeCall("Bash", {"command": "make"}))
    wanted = Approval(id="req-1", agent="claude", call=call, title="Run make", suggestions=("remember it",))
    gate = guard(lambda call: Rewrite({"command": "make -n"}) if call.name == "bash" else Pass())
    async with open_pipeline(monkeypatch, tmp_path, gate, surface=surface) as the:
        decided = await the.pipeline.decide(wanted)
    [asked] = surface.asked
    assert isinstance(asked, Approval)
    assert (asked.id, asked.title, asked.suggestions) == ("req-1", "Run make", ("remember it",))
    assert asked.call.arguments == {"command": "make -n"}
    assert decided.decision == Allow({"command": "make -n"})
    assert the.told.asked_of == []  # whoever raised it tells of it


@pytest.mark.req("app.pipeline.approvals")
async def test_an_agents_own_tool_is_not_taken_for_a_guests_of_the_same_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rules = RULES + '[[rule]]\nid = "station"\ndecide = "allow"\nowner = "fake:station"\n'
    call = ToolCall("weather", {"anything": 1}, id="t1", asker="claude", native=NativeCall("Weather", {"anything": 1}))
    async with open_pipeline(monkeypatch, tmp_path, station(), rules=rules) as the:
        assert (await the.decide("Paris")).by == "policy"
        decided = await the.pipeline.decide(call)
    assert decided.by == "nobody"  # neither the schema of that tool nor the rule for its owner has anything to say


# -- the ways out for a rewrite


@pytest.mark.req("app.pipeline.rewrite")
async def test_a_rewrite_into_what_a_rule_denies_is_denied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with open_pipeline(monkeypatch, tmp_path, station(), guard(rewrite_to(city="Atlantis"))) as the:
        decided = await the.decide("Bern")
    assert isinstance(decided.decision, Deny)
    assert "it does not exist" in decided.decision.why


@pytest.mark.req("app.pipeline.rewrite")
async def test_a_rule_that_allows_the_original_does_not_allow_its_rewrite(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    surface = ScriptedSurface([Deny("no")])
    async with open_pipeline(monkeypatch, tmp_path, station(), guard(rewrite_to(city="Paris")), surface=surface) as the:
        decided = await the.decide("Bern")
    [asked] = surface.asked
    assert isinstance(asked, Approval)
    assert asked.call.arguments == {"city": "Paris"}  # the person sees what would run
    assert not decided.allowed


@pytest.mark.req("app.pipeline.rewrite")
async def test_a_remembered_yes_to_the_original_is_none_to_its_rewrite(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gate = guard(lambda call: Pass())
    surface = ScriptedSurface([Allow(remember="session")])
    async with open_pipeline(monkeypatch, tmp_path, station(), gate, surface=surface) as the:
        assert (await the.decide("Paris")).allowed
        surface.always.clear()  # the surface's own memory; the policy's stays
        assert (await the.decide("Paris")).by == "policy"
        gate.judge = lambda _stage, _call: Rewrite({"city": "London"})
        assert not (await the.decide("Paris")).allowed


@pytest.mark.req("app.pipeline.rewrite")
async def test_a_second_interceptor_cannot_take_back_what_policy_will_see(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first, second = guard(rewrite_to(city="Bern"), "first"), guard(rewrite_to(city="Atlantis"), "second")
    async with open_pipeline(monkeypatch, tmp_path, station(), first, second) as the:
        decided = await the.decide("Rome")
    assert second.asked[0][1].arguments == {"city": "Bern"}  # each sees what the one before made of it
    assert isinstance(decided.decision, Deny)


@pytest.mark.req("app.pipeline.rewrite")
@pytest.mark.parametrize("value", [{"town": "Bern"}, {"city": None}, {"city": ["Bern"]}, ["Bern"], "Bern", None, 7])
async def test_a_rewrite_into_what_the_tool_does_not_take_does_not_run(
    value: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with open_pipeline(
        monkeypatch, tmp_path, station(), guard(lambda _call: Rewrite(value)), surface=ScriptedSurface(default=Allow())
    ) as the:
        decided = await the.decide("Bern")
    assert decided.by == "schema"


@pytest.mark.req("app.pipeline.rewrite")
async def test_a_rewrite_changes_the_arguments_and_never_the_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with open_pipeline(
        monkeypatch, tmp_path, station(), guard(rewrite_to(city="Bern", name="bash", id="x")), rules=""
    ) as the:
        decided = await the.decide("Rome")
    assert (decided.call.name, decided.call.id, decided.call.asker) == ("weather", "c1", "resident")


@pytest.mark.req("app.pipeline.rewrite")
async def test_what_a_person_makes_of_a_call_is_judged_by_the_deny_rules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with open_pipeline(monkeypatch, tmp_path, station(), surface=ScriptedSurface([Allow({"city": "Atlantis"})])) as the:
        decided = await the.decide("Paris")
    assert isinstance(decided.decision, Deny)
    assert "it does not exist" in decided.decision.why


@pytest.mark.req("app.pipeline.rewrite")
async def test_what_a_person_makes_of_a_call_is_seen_by_the_interceptors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gate = guard(lambda call: Refuse("not Rome") if call.arguments["city"] == "Rome" else Pass())
    async with open_pipeline(monkeypatch, tmp_path, station(), gate, surface=ScriptedSurface([Allow({"city": "Rome"})])) as the:
        decided = await the.decide("Paris")
    assert decided.by == "guest"
    assert decided.to_result().text == "not Rome"


@pytest.mark.req("app.pipeline.rewrite")
async def test_what_a_person_makes_of_a_call_and_nobody_minds_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gate = guard(lambda _call: Pass())
    async with open_pipeline(monkeypatch, tmp_path, station(), gate, surface=ScriptedSurface([Allow({"city": "Rome"})])) as the:
        decided = await the.decide("Paris")
    assert decided.decision == Allow({"city": "Rome"})
    assert decided.call.arguments == {"city": "Rome"}


@pytest.mark.req("app.pipeline.rewrite")
async def test_a_guest_that_changes_what_a_person_approved_has_it_asked_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate = guard(lambda call: Rewrite({"city": "Oslo"}) if call.arguments["city"] == "Rome" else Pass())
    surface = ScriptedSurface([Allow({"city": "Rome"}), Deny("not Oslo")])
    async with open_pipeline(monkeypatch, tmp_path, station(), gate, surface=surface) as the:
        decided = await the.decide("Paris")
    assert [asked.call.arguments["city"] for asked in surface.asked if isinstance(asked, Approval)] == ["Paris", "Oslo"]
    assert decided.decision == Deny("not Oslo")


@pytest.mark.req("app.pipeline.rewrite")
async def test_a_person_and_a_guest_who_never_agree_end_in_a_no(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gate = guard(lambda call: Rewrite({"city": call.arguments["city"] + "!"}))
    surface = CallingSurface(lambda request: Allow({"city": request.call.arguments["city"] + "?"}))
    async with open_pipeline(monkeypatch, tmp_path, station(), gate, surface=surface) as the:
        decided = await the.decide("Paris")
    assert not decided.allowed
    assert "again and again" in decided.to_result().text


class CallingSurface(ScriptedSurface):
    def __init__(self, answer: Callable[[Approval], Decision]) -> None:
        super().__init__()
        self._answer = answer

    async def ask(self, request: Approval | Question) -> Decision:
        assert isinstance(request, Approval)
        self.asked.append(request)
        return self._answer(request)


@pytest.mark.req("app.pipeline.rewrite")
async def test_a_surface_that_changes_what_it_was_shown_changes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def answer(request: Approval) -> Decision:
        request.call.arguments["city"] = "Atlantis"
        return Allow()

    async with open_pipeline(monkeypatch, tmp_path, station(), surface=CallingSurface(answer)) as the:
        decided = await the.decide("Paris")
    assert decided.call.arguments == {"city": "Paris"}
    assert decided.decision == Allow({"city": "Paris"})


@pytest.mark.req("app.pipeline.rewrite")
async def test_who_made_a_call_cannot_change_it_once_it_is_decided(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with open_pipeline(monkeypatch, tmp_path, station()) as the:
        call = ToolCall("weather", {"city": "Bern", "more": {"list": ["a"]}}, id="c1")
        decision = await the.tools.decide(ToolCall("weather", {"city": "Bern"}, id="c1"))
        assert isinstance(decision, Allow)
        decided = await the.pipeline.decide(call)
        call.arguments["city"] = "Atlantis"
        call.arguments["more"]["list"].append("b")
    assert decided.call.arguments == {"city": "Bern", "more": {"list": ["a"]}}


@pytest.mark.req("app.pipeline.rewrite")
async def test_who_rewrote_a_call_cannot_change_it_while_a_person_looks_at_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mine = {"city": "Paris"}

    def answer(_request: Approval) -> Decision:
        mine["city"] = "Atlantis"
        return Allow()

    async with open_pipeline(
        monkeypatch, tmp_path, station(), guard(lambda _call: Rewrite(mine)), surface=CallingSurface(answer)
    ) as the:
        decided = await the.decide("Rome")
    assert decided.call.arguments == {"city": "Paris"}


@pytest.mark.req("app.pipeline.once")
async def test_who_is_told_of_a_decided_call_cannot_change_what_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with open_pipeline(monkeypatch, tmp_path, station()) as the:
        call = ToolCall("weather", {"city": "Bern"}, id="c1")
        decision = await the.tools.decide(call)
        assert isinstance(decision, Allow)
        final = msgspec.structs.replace(call, arguments=decision.arguments)
        final.arguments["city"] = "Atlantis"  # as a listener might that was told of its start
        result = await the.tools.call(final)
    assert result.text == "station ran weather with {'city': 'Bern'}"


@pytest.mark.req("app.pipeline.rewrite")
async def test_arguments_nested_to_death_do_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    async with open_pipeline(monkeypatch, tmp_path, station(), surface=ScriptedSurface(default=Allow())) as the:
        decided = await the.decide("Bern", more=deep)
    assert not decided.allowed
    assert "nested too deep" in decided.to_result().text


@pytest.mark.req("app.pipeline.rewrite")
async def test_two_calls_with_one_id_need_two_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    surface = ScriptedSurface([Allow(), Deny("once is enough")])
    async with open_pipeline(monkeypatch, tmp_path, station(), surface=surface) as the:
        both = await asyncio.gather(the.decide("Paris"), the.decide("Rome"))
    assert sorted(one.allowed for one in both) == [False, True]
    assert len({asked.id for asked in surface.asked}) == 2


# -- from the decision to the run


@pytest.mark.req("app.pipeline.once")
async def test_a_call_that_was_decided_runs_without_being_asked_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    surface = ScriptedSurface([Allow()])
    async with open_pipeline(monkeypatch, tmp_path, station(), surface=surface) as the:
        call = ToolCall("weather", {"city": "Paris"}, id="c1")
        decision = await the.tools.decide(call)
        assert isinstance(decision, Allow)
        result = await the.tools.call(msgspec.structs.replace(call, arguments=decision.arguments))
        assert "Paris" in result.text
        assert len(surface.asked) == 1
        again = await the.tools.call(msgspec.structs.replace(call, arguments=decision.arguments))
    assert again.is_error  # a decision is used up by its call


@pytest.mark.req("app.pipeline.once")
async def test_a_call_that_nobody_decided_is_decided_where_it_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = station()
    async with open_pipeline(monkeypatch, tmp_path, fake) as the:
        denied = await the.tools.call(ToolCall("weather", {"city": "Paris"}))
        allowed = await the.tools.call(ToolCall("weather", {"city": "Bern"}))
    assert denied.code == "PERMISSION_DENIED"
    assert allowed.text == "station ran weather with {'city': 'Bern'}"


@pytest.mark.req("app.pipeline.once")
async def test_a_decision_is_for_its_very_arguments_and_not_for_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with open_pipeline(monkeypatch, tmp_path, station(), surface=ScriptedSurface([Allow()])) as the:
        call = ToolCall("weather", {"city": "Paris"}, id="c1")
        await the.tools.decide(call)
        result = await the.tools.call(ToolCall("weather", {"city": "Rome"}, id="c1"))
    assert result.code == "PERMISSION_DENIED"


@pytest.mark.req("app.pipeline.once")
async def test_two_calls_that_share_their_arguments_are_two_calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shared = {"city": "Bern"}
    async with open_pipeline(monkeypatch, tmp_path, station()) as the:
        results = await asyncio.gather(*(the.tools.call(ToolCall("weather", shared, id=str(n))) for n in range(3)))
    assert [result.is_error for result in results] == [False, False, False]


@pytest.mark.req("app.pipeline.once")
async def test_a_decision_about_one_tool_is_none_about_another_with_the_same_arguments(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = Fake("other", Contributions(tools=(ToolSpec("storm", "", SCHEMA),)))
    async with open_pipeline(monkeypatch, tmp_path, station(), other, surface=ScriptedSurface([Allow()])) as the:
        call = ToolCall("weather", {"city": "Paris"}, id="c1")
        decision = await the.tools.decide(call)
        assert isinstance(decision, Allow)
        result = await the.tools.call(ToolCall("storm", decision.arguments, id="c1"))
    assert result.code == "PERMISSION_DENIED"


@pytest.mark.req("app.pipeline.once")
async def test_decisions_that_are_never_used_do_not_pile_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(agent_tools, "_PASSES", 2)
    surface = ScriptedSurface([Allow()] * 3)
    async with open_pipeline(monkeypatch, tmp_path, station(), surface=surface) as the:
        calls = [ToolCall("weather", {"city": city}, id=city) for city in ("Paris", "Rome", "Oslo")]
        decisions = [await the.tools.decide(call) for call in calls]
        finals = [
            msgspec.structs.replace(call, arguments=decision.arguments)
            for call, decision in zip(calls, decisions, strict=True)
            if isinstance(decision, Allow)
        ]
        results = [await the.tools.call(call) for call in finals]
    assert [result.is_error for result in results] == [True, False, False]  # the oldest has to be decided again


@pytest.mark.req("app.pipeline.once")
async def test_a_yes_to_one_guests_tool_is_none_to_anothers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first, second = station(), Fake("other", Contributions(tools=(WEATHER,)))
    async with open_pipeline(monkeypatch, tmp_path, first, second, surface=ScriptedSurface([Allow()])) as the:
        call = ToolCall("weather", {"city": "Paris"}, id="c1")
        decision = await the.tools.decide(call)
        assert isinstance(decision, Allow)
        await the.host.guest("station").stop()  # from now on the name is the other's
        result = await the.tools.call(msgspec.structs.replace(call, arguments=decision.arguments))
    assert result.code == "TOOL_UNAVAILABLE"
    assert "fake:other" in result.text


# -- durable first


@pytest.mark.req("app.pipeline.durable")
async def test_nobody_is_asked_when_that_cannot_be_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    surface = ScriptedSurface(default=Allow())
    async with open_pipeline(monkeypatch, tmp_path, station(), surface=surface) as the:
        the.told.fails = "asked"
        decided = await the.decide("Paris")
    assert not decided.allowed
    assert "no room" in decided.to_result().text
    assert surface.asked == []


@pytest.mark.req("app.pipeline.durable")
async def test_a_yes_that_cannot_be_kept_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with open_pipeline(monkeypatch, tmp_path, station(), surface=ScriptedSurface(default=Allow())) as the:
        the.told.fails = "decided"
        decided = await the.decide("Paris")
    assert not decided.allowed
    assert "no room" in decided.to_result().text


@pytest.mark.req("app.pipeline.durable")
async def test_a_request_that_nobody_wants_any_more_is_told_as_withdrawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = asyncio.Event()

    class Hangs(ScriptedSurface):
        async def ask(self, request: Approval | Question) -> Decision:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

    async with open_pipeline(monkeypatch, tmp_path, station(), surface=Hangs()) as the:
        task = asyncio.ensure_future(the.decide("Paris"))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        [(_, decision, withdrawn)] = the.told.decisions
    assert isinstance(decision, Deny)
    assert withdrawn


# -- paths that lead outside


@asynccontextmanager
async def open_workspace(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *fakes: Fake, surface: Surface | None = None, rules: str = ""
) -> AsyncIterator[PipelineHarness]:
    """With the built-in tools in a folder, and something to read beside it."""
    inside = tmp_path / "project"
    inside.mkdir()
    (tmp_path / "secret.txt").write_text("a secret")
    async with PlainSpawner() as spawner:
        holder: list[AgentTools] = []

        def outside(call: ToolCall, path: str) -> bool:
            return holder[0].may_reach(call, path)

        box = BuiltInTools(inside, spawner=spawner, outside=outside)
        async with open_pipeline(
            monkeypatch, tmp_path, *fakes, surface=surface, rules=rules, leads=box.leads_outside, built_in=box
        ) as the:
            the.cwd = str(inside)
            holder.append(the.tools)
            yield the


@pytest.mark.req("app.pipeline.outside")
async def test_a_person_is_told_where_a_path_leads_and_their_yes_opens_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    surface = ScriptedSurface([Allow()])
    async with open_workspace(monkeypatch, tmp_path, surface=surface) as the:
        result = await the.tools.call(ToolCall("read", {"path": "../secret.txt"}))
    [asked] = surface.asked
    assert isinstance(asked, Approval)
    assert asked.blocked_path == str(tmp_path / "secret.txt")
    assert "outside the working directory" in asked.reason
    assert "a secret" in result.text


@pytest.mark.req("app.pipeline.outside")
async def test_a_rule_that_names_the_path_opens_it_and_nothing_beside_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rules = f'[[rule]]\nid = "one"\ndecide = "allow"\ntool = "read"\npath = "{tmp_path}/secret.txt"\n'
    (tmp_path / "other.txt").write_text("another")
    async with open_workspace(monkeypatch, tmp_path, rules=rules) as the:
        assert "a secret" in (await the.tools.call(ToolCall("read", {"path": "../secret.txt"}))).text
        assert (await the.tools.call(ToolCall("read", {"path": "../other.txt"}))).code == "PERMISSION_DENIED"


@pytest.mark.req("app.pipeline.outside")
async def test_a_link_that_is_turned_outside_after_the_rules_have_looked_leads_nowhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rules = '[[rule]]\nid = "in"\ndecide = "allow"\ntool = "read"\npath = "./**"\n'
    async with open_workspace(monkeypatch, tmp_path, rules=rules) as the:
        inside = tmp_path / "project"
        (inside / "plain.txt").write_text("plain")
        link = inside / "link"
        link.symlink_to("plain.txt")
        call = ToolCall("read", {"path": "link"})
        decision = await the.tools.decide(call)
        assert isinstance(decision, Allow)
        link.unlink()
        link.symlink_to("../secret.txt")
        result = await the.tools.call(msgspec.structs.replace(call, arguments=decision.arguments))
    assert "a secret" not in result.text
    assert result.is_error


@pytest.mark.req("app.pipeline.outside")
async def test_a_link_that_leads_elsewhere_while_the_rules_look_opens_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rules = '[[rule]]\nid = "in"\ndecide = "allow"\ntool = "read"\npath = "./**"\n'
    secret = str(tmp_path / "secret.txt")
    async with open_workspace(monkeypatch, tmp_path, rules=rules) as the:
        the.pipeline._leads_outside = lambda _call: (secret,)  # as it was a moment before the rules looked
        decided = await the.pipeline.decide(ToolCall("read", {"path": "plain.txt"}))
    assert decided.allowed
    assert decided.outside == frozenset()


@pytest.mark.req("app.pipeline.outside", "app.pipeline.rewrite")
async def test_a_rewrite_that_leads_outside_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rules = '[[rule]]\nid = "in"\ndecide = "allow"\ntool = "read"\npath = "./**"\n'
    gate = guard(lambda call: Rewrite({"path": "../secret.txt"}))
    async with open_workspace(monkeypatch, tmp_path, gate, rules=rules) as the:
        (tmp_path / "project" / "plain.txt").write_text("plain")
        result = await the.tools.call(ToolCall("read", {"path": "plain.txt"}))
    assert result.code == "PERMISSION_DENIED"

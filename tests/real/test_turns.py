"""The real program's turns: text, approvals, questions, conversations."""

from __future__ import annotations

import json

import pytest

from serai.model.approvals import Allow, Answer, Approval, Deny, Question
from serai.model.events import Message, Text, ToolCalled, ToolEnded, UsageReported
from tests.support.claude.real_claude import Real, collect_events, select_events

WRITE = '>> call Bash {"command": "echo one > made; cat made"}\n>> say done'


@pytest.mark.req("agents.scenario.E4", "agents.must.11")
async def test_a_prompt_gets_an_answer(real: Real) -> None:
    async with real.agent() as session:
        turn = session.turn(">> say hello")
        seen = await collect_events(turn)
        result = await turn
    assert result.status == "success"
    assert result.text == "hello"
    assert "".join(event.text for event in select_events(seen, Text)) == "hello"
    assert len(select_events(seen, Message)) == 1
    assert select_events(seen, UsageReported)


async def test_a_yes_lets_the_call_run(real: Real) -> None:
    async with real.agent() as session:
        turn = session.turn(WRITE)
        seen = await collect_events(turn, lambda ask: Allow())
        result = await turn
    [approval] = select_events(seen, Approval)
    assert approval.call.name == "bash"
    assert approval.call.arguments["command"] == "echo one > made; cat made"
    assert approval.suggestions
    assert result.text == "done"
    [ended] = select_events(seen, ToolEnded)
    assert ended.result.content[0].text == "one"
    assert (real.cwd / "made").read_text() == "one\n"


async def test_a_no_keeps_it_from_running_and_the_model_is_told_why(real: Real) -> None:
    async with real.agent() as session:
        turn = session.turn(WRITE)
        seen = await collect_events(turn, lambda ask: Deny("not on a Sunday"))
        result = await turn
    [ended] = select_events(seen, ToolEnded)
    assert ended.result.is_error
    assert "not on a Sunday" in ended.result.content[0].text
    assert result.status == "success"
    assert not (real.cwd / "made").exists()


async def test_a_yes_may_change_what_runs(real: Real) -> None:
    async with real.agent() as session:
        turn = session.turn(WRITE)
        seen = await collect_events(turn, lambda ask: Allow({"command": "echo two > made; cat made"}))
        await turn
    [ended] = select_events(seen, ToolEnded)
    assert ended.result.content[0].text == "two"
    assert (real.cwd / "made").read_text() == "two\n"


async def test_a_question_gets_its_answer(real: Real) -> None:
    asked = (
        '{"questions": [{"question": "Which one?", "header": "One", "multiSelect": false, "options": '
        '[{"label": "Left", "description": "l"}, {"label": "Right", "description": "r"}]}]}'
    )
    async with real.agent() as session:
        turn = session.turn(f">> call AskUserQuestion {asked}\n>> say $results")
        seen = await collect_events(turn, lambda ask: Answer({"Which one?": "Right"}))
        result = await turn
    [question] = select_events(seen, Question)
    assert [choice.label for choice in question.items[0].choices] == ["Left", "Right"]
    assert not select_events(seen, Approval)
    assert '"Which one?"="Right"' in result.text


async def test_several_turns_have_one_process_and_one_conversation(real: Real) -> None:
    async with real.agent() as session:
        first = await session.turn(">> say one")
        before = real.processes()
        second = await session.turn(">> say two")
        assert real.processes() == before
    assert (first.text, second.text) == ("one", "two")
    assert first.session == second.session == session.id
    said = [request.body for request in real.models.requests if request.path == "/v1/messages"][-1]["messages"]
    assert [message["role"] for message in said if message["role"] != "system"][-3:] == ["user", "assistant", "user"]


async def test_sub_agents_are_on_a_lane_of_their_own(real: Real) -> None:
    script = '>> call Bash {"command": "echo sub > made"}\n>> say sub is done'
    given = {"description": "d", "prompt": script, "subagent_type": "general-purpose", "run_in_background": False}
    async with real.agent() as session:
        turn = session.turn(f">> call Agent {json.dumps(given)}\n>> say done")
        seen = await collect_events(turn, lambda ask: Allow())
        result = await turn
    assert result.text == "done"
    agent, bash = select_events(seen, ToolCalled)
    assert (agent.lane, bash.lane) == ("", agent.call.id)
    [approval] = [one for one in select_events(seen, Approval) if one.call.name == "bash"]
    assert approval.lane == agent.call.id
    assert (real.cwd / "made").exists()

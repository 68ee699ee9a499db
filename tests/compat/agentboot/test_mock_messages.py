"""The mock agent in the seed's words (spec agents 5.2 M)."""

from __future__ import annotations

from typing import Any

import pytest

import serai
from serai.agents.drivers.mock.script import (
    Ask,
    Assistant,
    Error,
    Permission,
    Result,
    Script,
    StreamDelta,
    ToolResult,
    ToolUse,
    build_linear,
)
from serai.compat.agentboot.fakes import MockRun, run_prompt
from serai.model.approvals import Allow, Answer, Approval, Decision, Deny, Question
from serai.model.surface import ScriptedSurface, Surface

LOOK = [
    Assistant(text="I look at {prompt}"),
    Permission(tool="bash", input={"command": "ls"}, expect_approved=True),
    ToolResult(text="a.txt"),
    Assistant(text="There is a.txt"),
]


async def play(script: Any, surface: Surface, prompt: str = "it") -> tuple[MockRun, list[str]]:
    """What came of it, and what the error callback was told."""
    errors: list[str] = []
    heard: list[dict[str, Any]] = []
    async with serai.agent("mock", script=script) as session:
        run = await run_prompt(session, prompt, surface, on_message=heard.append, on_error=errors.append)
    assert heard == run.messages
    return run, errors


def types(run: MockRun) -> list[str]:
    return [message["type"] for message in run.messages]


def accept(request: Approval | Question) -> Decision:
    """To everything, and the first choice of every question."""
    if isinstance(request, Question):
        return Answer({item.text: item.choices[0].label for item in request.items})
    return Allow()


@pytest.mark.req("agents.scenario.M1")
async def test_a_script_is_played_in_its_order() -> None:
    run, errors = await play(LOOK, ScriptedSurface(default=Allow()))
    assert types(run) == ["init", "assistant", "permission_request", "permission_result", "tool_result", "assistant", "result"]
    assert [message["message"] for message in run.messages if message["type"] == "assistant"] == ["I look at it", "There is a.txt"]
    asked, decided = run.messages[2:4]
    assert (asked["tool_name"], asked["input"]) == ("bash", {"command": "ls"})
    assert (decided["request_id"], decided["approved"]) == (asked["request_id"], True)
    assert run.messages[4]["content"] == "a.txt"
    assert (run.status, run.messages[-1]["is_error"], run.error, errors) == ("success", False, "", [])
    assert {message["agent_type"] for message in run.messages} == {"mock"}
    assert len({message["session_id"] for message in run.messages}) == 1
    assert all(message["timestamp"] > 0 for message in run.messages)


@pytest.mark.req("agents.scenario.M2")
async def test_a_no_ends_it() -> None:
    script = [Permission(tool="bash"), Assistant(text="never said")]
    run, errors = await play(script, ScriptedSurface(default=Deny("not today")))
    assert types(run) == ["init", "permission_request", "permission_result", "result"]
    assert run.messages[2]["approved"] is False
    assert run.messages[2]["reason"] == "not today"
    assert (run.status, run.messages[-1]["error"]) == ("permission_denied", "not today")
    assert errors == []  # a no is no error
    assert run.outcome is not None
    assert (run.outcome.status, run.outcome.error) == ("denied", "not today")


@pytest.mark.req("agents.scenario.M2")
async def test_a_no_does_not_end_it_where_the_script_says_so_and_the_result_of_what_was_denied_is_left_out() -> None:
    script = [Permission(tool="bash", on_deny_terminate=False), ToolResult(text="of that"), Assistant(text="Then not.")]
    run, _ = await play(script, ScriptedSurface(default=Deny("no")))
    assert types(run) == ["init", "permission_request", "permission_result", "assistant", "result"]
    assert run.status == "success"
    run, _ = await play(script, ScriptedSurface(default=Deny("no", interrupt=True)))
    assert run.status == "permission_denied"  # a person who wants the end gets it


async def test_nobody_is_no() -> None:
    run, _ = await play([Permission(tool="bash")], ScriptedSurface())
    assert run.status == "permission_denied"
    run, _ = await play([Ask(questions=("why?",))], ScriptedSurface())
    assert (run.status, run.messages[-1]["error"]) == ("ask_denied", "nobody answered")


@pytest.mark.req("agents.scenario.M3")
@pytest.mark.parametrize("wanted", [True, False])
async def test_a_decision_that_was_not_expected_makes_it_fail(wanted: bool) -> None:
    script = [Permission(tool="bash", expect_approved=wanted, on_deny_terminate=False), Assistant(text="on it goes")]
    run, errors = await play(script, ScriptedSurface(default=Deny("no") if wanted else Allow()))
    should, was = ("approved", "denied") if wanted else ("denied", "approved")
    assert run.metadata["expectation_failures"] == [f"bash should have been {should} and was {was}"]
    assert run.metadata["expectation_failures"][0] in run.error
    assert run.messages[-1]["error"] == run.metadata["expectation_failures"][0]
    assert run.messages[-1]["is_error"] is True
    assert errors == [run.error]
    run, errors = await play(script, ScriptedSurface(default=Allow() if wanted else Deny("no")))
    assert (run.error, run.metadata, errors) == ("", {}, [])


@pytest.mark.req("agents.scenario.M4")
async def test_an_error_step_is_told_once_and_it_goes_on() -> None:
    run, errors = await play([Error(message="the disk is slow"), Assistant(text="never mind")], ScriptedSurface())
    assert types(run) == ["init", "error", "assistant", "result"]
    assert errors == ["the disk is slow"]
    assert run.status == "success"


@pytest.mark.req("agents.scenario.M5")
@pytest.mark.parametrize("key", ["Which colour?", "0"])
async def test_an_answer_that_was_not_expected_makes_it_fail(key: str) -> None:
    asked = {"question": "Which colour?", "options": [{"label": "Red"}, {"label": "Blue"}]}
    script = [Ask(questions=(asked,), expect_answers={key: "Red"})]
    run, errors = await play(script, ScriptedSurface([Answer({"Which colour?": "Blue"})]))
    assert run.metadata["expectation_failures"] == ["'Which colour?' should have been answered 'Red', not 'Blue'"]
    assert errors == [run.error]
    run, errors = await play(script, ScriptedSurface([Answer({"Which colour?": "Red"})]))
    assert (run.status, run.metadata, errors) == ("success", {}, [])


@pytest.mark.req("agents.scenario.M6")
@pytest.mark.parametrize(("steps", "question_every", "events"), [(3, 0, 11), (4, 2, 14)])
async def test_the_linear_script_has_so_many_events(steps: int, question_every: int, events: int) -> None:
    surface = ScriptedSurface([accept] * steps)
    run, _ = await play(build_linear(steps, question_every=question_every), surface, "the thing")
    assert len(run.messages) == events
    assert [type(request) for request in surface.asked].count(Question) == (2 if question_every else 0)
    said = [message["message"] for message in run.messages if message["type"] == "assistant"]
    assert said == [f"[Mock Step {step}/{steps}] Processing: the thing" for step in range(1, steps + 1)]
    assert run.messages[0]["max_iterations"] == steps
    assert run.messages[-1]["steps_completed"] == steps


async def test_without_a_script_it_is_the_linear_one_of_five_tools() -> None:
    surface = ScriptedSurface(default=Allow())
    run, _ = await play(None, surface)
    tools = [request.tool for request in surface.asked]
    assert tools == ["mock_tool_read", "mock_tool_write", "mock_tool_execute", "mock_tool_search", "mock_tool_analyze"]
    assert run.status == "success"


async def test_pieces_uses_and_results_of_ones_own() -> None:
    script = Script(
        (
            StreamDelta(text="Hel"),
            StreamDelta(text="lo"),
            Assistant(text="Hello"),
            ToolUse(tool="read", input={"path": "a"}),
            ToolResult(text="no such file", is_error=True),
            Result(message="that is it", cost_usd=0.25, duration_ms=1500),
            Assistant(text="never said"),
        )
    )
    run, _ = await play(script, ScriptedSurface())
    assert types(run) == ["init", "stream_delta", "stream_delta", "assistant", "tool_use", "tool_result", "result"]
    assert run.messages[5]["is_error"] is True
    assert run.messages[5]["tool_id"] == run.messages[4]["tool_id"]
    result = run.messages[-1]
    assert (result["message"], result["cost_usd"], result["duration_ms"]) == ("that is it", 0.25, 1500)
    assert run.outcome is not None
    assert (run.outcome.text, run.outcome.usage.cost_usd, run.outcome.seconds) == ("that is it", 0.25, 1.5)


@pytest.mark.parametrize(("status", "ours"), [("cancelled", "cancelled"), ("ask_denied", "denied"), ("error", "error")])
async def test_a_script_may_end_in_any_way(status: Any, ours: str) -> None:
    run, errors = await play([Result(status=status, error="as it is")], ScriptedSurface())
    assert run.outcome is not None
    assert (run.status, run.outcome.status, run.outcome.error) == (status, ours, "as it is")
    assert len(errors) == (status == "error")

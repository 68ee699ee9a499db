"""A run of Claude Code on a surface, as a person sees it (spec agents 5.2, bot-level)."""

from __future__ import annotations

from pathlib import Path

import pytest

from serai.errors import AgentFailed
from serai.model.approvals import Allow, Answer, Approval, Deny, Question
from serai.model.events import Message, Text, TurnEnded
from serai.testing.claude.script import Script
from tests.support.app.apps import Person
from tests.support.app.claude_apps import Harness, hello, join_text, list_results, messages, read_conversation, read_outcomes, shell

QUESTION = {
    "questions": [
        {"question": "Which one?", "header": "Pick", "options": [{"label": "Red"}, {"label": "Blue"}], "multiSelect": False}
    ]
}


def build_question_script() -> Script:
    return Script().init().calls("t1", "AskUserQuestion", told="answered", **QUESTION).text("thanks").result("thanks")


@pytest.mark.req("agents.scenario.B1", "agents.scenario.B2")
async def test_the_text_comes_once_then_the_end_and_the_session_is_kept(tmp_path: Path) -> None:
    harness, person = Harness(tmp_path, hello("hello there")), Person()
    async with harness.opened(surface=person) as app:
        result = await app.submit("say hello")
    assert result is not None
    assert (result.status, result.text) == ("success", "hello there")
    assert join_text(person) == "hello there"
    assert messages(person) == ["hello there"]
    kinds = [type(event) for event in person.events if isinstance(event, Text | Message | TurnEnded)]
    assert kinds == [Text, Message, TurnEnded]
    assert [event.result.status for event in person.events if isinstance(event, TurnEnded)] == ["success"]
    assert read_conversation(harness) == ["user: say hello", "assistant: hello there"]
    assert read_outcomes(harness) == ["success"]


@pytest.mark.req("agents.scenario.B3")
async def test_what_a_person_allows_runs_and_the_run_completes(tmp_path: Path) -> None:
    harness, person = Harness(tmp_path, shell("echo one > made; cat made")), Person(Allow())
    async with harness.opened(surface=person) as app:
        result = await app.submit("make it")
    assert result is not None
    assert result.status == "success"
    [asked] = person.asked
    assert isinstance(asked, Approval)
    assert (asked.tool, asked.call.arguments) == ("bash", {"command": "echo one > made; cat made"})
    assert harness.answer("ask-t1")["behavior"] == "allow"
    assert list_results(person) == ["one"]
    assert (harness.project / "made").read_text() == "one\n"


@pytest.mark.req("agents.scenario.B4")
async def test_a_no_before_a_failure_is_a_failed_run_and_nothing_empty_is_shown(tmp_path: Path) -> None:
    script = Script().init().calls("t1", command="echo no").text("").result(subtype="error_during_execution", is_error=True)
    harness, person = Harness(tmp_path, script), Person(Deny("not that"))
    async with harness.opened(surface=person) as app:
        with pytest.raises(AgentFailed):
            await app.submit("go")
        assert app.last is not None
        assert app.last.status == "error"
    answer = harness.answer("ask-t1")
    assert (answer["behavior"], answer["message"]) == ("deny", "not that")
    assert read_outcomes(harness) == ["error"]
    assert [event.result.status for event in person.events if isinstance(event, TurnEnded)] == ["error"]
    assert not [event for event in person.events if isinstance(event, Text | Message) and not event.text]


@pytest.mark.req("agents.scenario.B5")
async def test_a_question_that_is_answered_by_an_option_reaches_the_agent_as_its_label(tmp_path: Path) -> None:
    def second(request: Approval | Question) -> Answer:
        assert isinstance(request, Question)
        [item] = request.items
        return Answer({item.text: item.choices[1].label})

    harness, person = Harness(tmp_path, build_question_script()), Person(second)
    async with harness.opened(surface=person) as app:
        result = await app.submit("ask me")
    assert result is not None
    assert result.text == "thanks"
    answer = harness.answer("ask-t1")
    assert answer["behavior"] == "allow"
    assert answer["updatedInput"]["answers"] == {"Which one?": "Blue"}

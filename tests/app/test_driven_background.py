"""What Claude Code does beside the turns that people want: turns of its own, and what it asks about work on the side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serai.model.actions import Notice
from serai.model.approvals import Allow, Approval, Decision, Deny, Question
from serai.model.events import Event, Message, RequestCancelled, TurnEnded, TurnStarted
from serai.testing.claude.script import Script
from tests.support.app.apps import Person
from tests.support.app.claude_apps import Harness, hello, list_results, messages, read_conversation, read_outcomes
from tests.support.cli.shell import EXAMPLES
from tests.support.host.zot_guests import make


class Slow(Person):
    """Answers when the test says so; knows what was taken back."""

    def __init__(self) -> None:
        super().__init__()
        self.open: dict[str, asyncio.Future[Decision]] = {}
        self.taken_back: list[str] = []
        self._news = asyncio.Event()

    async def ask(self, request: Approval | Question) -> Decision:
        self.asked.append(request)
        self.open[request.id] = asyncio.get_running_loop().create_future()
        self._news.set()
        try:
            return await self.open[request.id]
        except asyncio.CancelledError:
            self.taken_back.append(request.id)
            self._news.set()
            raise

    async def until(self, there: Callable[[], bool]) -> None:
        while not there():
            self._news.clear()
            await self._news.wait()

    async def was_asked(self, id: str) -> None:
        await self.until(lambda: id in self.open)

    async def had_it_taken(self, id: str) -> None:
        await self.until(lambda: id in self.taken_back)


def side(request: str, tool_use: str = "s1", command: str = "echo side") -> dict[str, Any]:
    """A sub-agent's request."""
    asks = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": command}, "tool_use_id": tool_use}
    return {"type": "control_request", "request_id": request, "request": {**asks, "agent_id": "a1"}}


def is_message(text: str) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, Message) and event.text == text


def is_end(text: str) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, TurnEnded) and event.result.text == text


# -- turns of its own


@pytest.mark.req("app.driven.own-turns")
async def test_a_turn_that_it_begins_itself_is_seen_kept_and_decided_like_others(tmp_path: Path) -> None:
    script = hello("first").init().calls("t2", command="echo two").text("second").result("second")
    harness, person = Harness(tmp_path, script), Person(Allow())
    async with harness.opened(surface=person) as app:
        await app.submit("go")
        await person.saw(is_end("second"))
    assert [event.prompt for event in person.events if isinstance(event, TurnStarted)] == ["go", ""]
    assert messages(person) == ["first", "second"]
    assert [request.tool for request in person.asked] == ["bash"]
    assert list_results(person) == ["two"]
    assert read_conversation(harness) == ["user: go", "assistant: first", "assistant: [t2 bash]", "t2: two", "assistant: second"]
    assert read_outcomes(harness) == ["success", "success"]


@pytest.mark.req("app.driven.own-turns")
async def test_guards_see_the_calls_of_such_a_turn(tmp_path: Path) -> None:
    guard = """
hello(subscribe(intercept=["tool_call"]))
for frame in frames():
    if frame["type"] == "event_intercept":
        judge(frame["id"], block=True, reason="no")
"""
    harness, person = Harness(tmp_path, hello("first").init().calls("t2", command="echo two").result("second")), Person()
    async with harness.opened(make(tmp_path / "guests", guard), surface=person, mode="skip") as app:
        await app.submit("go")
        await person.saw(is_end("second"))
    assert list_results(person) == ["no"]


@pytest.mark.req("app.driven.own-turns")
async def test_one_that_fails_is_told(tmp_path: Path) -> None:
    script = hello("first").init().result(subtype="error_during_execution", is_error=True, errors=["the model is gone"])
    harness, person = Harness(tmp_path, script), Person()
    async with harness.opened(surface=person) as app:
        await app.submit("go")
        notice = await person.shown(lambda action: isinstance(action, Notice) and action.level == "error")
    assert isinstance(notice, Notice)
    assert notice.text.startswith("a turn that the agent began by itself failed: ")
    assert "the model is gone" in notice.text


@pytest.mark.req("app.driven.own-turns")
async def test_a_prompt_waits_for_its_end_and_somebody_may_interrupt_it(tmp_path: Path) -> None:
    script = hello("first").init().text("thinking").interrupted().prompt().init().text("third").result("third")
    harness, person = Harness(tmp_path, script), Person()
    async with harness.opened(surface=person) as app:
        await app.submit("go")
        await person.saw(is_message("thinking"))
        third = asyncio.create_task(app.submit("and now?"))
        await asyncio.sleep(0)
        assert harness.prompts() == ["go"]
        await app.abort("enough")
        result = await third
    assert result is not None
    assert result.text == "third"
    assert read_outcomes(harness) == ["success", "cancelled", "success"]


@pytest.mark.req("app.driven.own-turns")
async def test_one_that_begins_while_the_last_words_are_still_looked_at_comes_behind_them(tmp_path: Path) -> None:
    """A guest that judges what is said makes the first turn end later than its result comes."""
    harness, person = Harness(tmp_path, hello("first").init().text("second").result("second")), Person()
    async with harness.opened(EXAMPLES / "guard-python", surface=person) as app:
        result = await app.submit("go")
        await person.saw(is_end("second"))
    assert result is not None
    assert result.text == "first"
    told = [event for event in person.events if isinstance(event, TurnStarted | Message | TurnEnded)]
    assert [type(event) for event in told] == [TurnStarted, Message, TurnEnded] * 2
    assert read_outcomes(harness) == ["success", "success"]


# -- work on the side


@pytest.mark.req("app.driven.on-the-side")
@pytest.mark.parametrize("decision", [Allow(), Deny("not on the side")])
async def test_what_outlives_its_turn_is_still_asked_and_answered(tmp_path: Path, decision: Decision) -> None:
    script = Script().init().raw(side("r1")).text("first").result("first").answer("r1").init().result("second")
    harness, person = Harness(tmp_path, script), Slow()
    async with harness.opened(surface=person) as app:
        await app.submit("go")
        await person.was_asked("r1")
        assert person.taken_back == []
        person.open["r1"].set_result(decision)
        await person.saw(is_end("second"))
    answer = harness.answer("r1")
    if isinstance(decision, Allow):
        assert (answer["behavior"], answer["updatedInput"]) == ("allow", {"command": "echo side"})
    else:
        assert (answer["behavior"], answer["message"]) == ("deny", "not on the side")


@pytest.mark.req("app.driven.on-the-side")
async def test_what_comes_when_no_turn_runs_is_asked_like_anything_else(tmp_path: Path) -> None:
    script = hello("first").raw(side("r1")).answer("r1").raw(side("r2", "s2", "echo allowed")).answer("r2").init().result("second")
    harness, person = Harness(tmp_path, script), Slow()
    async with harness.opened(surface=person, allow=("bash:echo allowed",)) as app:
        await app.submit("go")
        await person.was_asked("r1")
        [seen] = person.asked
        assert isinstance(seen, Approval)
        assert seen.call.arguments == {"command": "echo side"}
        person.open["r1"].set_result(Deny("no"))
        await person.saw(is_end("second"))
    assert harness.answer("r1")["behavior"] == "deny"
    assert harness.answer("r2")["behavior"] == "allow"  # by the rule, and nobody was asked
    assert len(person.asked) == 1


@pytest.mark.req("app.driven.withdrawn")
async def test_what_is_withdrawn_in_its_turn_is_taken_back_from_the_surface(tmp_path: Path) -> None:
    script = Script().init().tool("t1", "Bash", command="sleep").asks("r1", "t1", answered=False, command="sleep")
    harness, person = Harness(tmp_path, script.request("mcp_status").withdraws("r1").text("first").result("first")), Slow()
    async with harness.opened(surface=person) as app:
        turn = asyncio.create_task(app.submit("go"))
        await person.was_asked("r1")
        await app.session.driver.send_control("mcp_status")  # type: ignore[attr-defined]
        await person.had_it_taken("r1")
        await turn
    assert [event.id for event in person.events if isinstance(event, RequestCancelled)] == ["r1"]
    assert "r1" not in harness.claude.given().answers()


@pytest.mark.req("app.driven.withdrawn")
@pytest.mark.parametrize("asked", ["in the turn", "after it"])
async def test_what_is_withdrawn_after_its_turn_is_taken_back_too(tmp_path: Path, asked: str) -> None:
    script = Script().init()
    script = script.raw(side("r1")).result("first") if asked == "in the turn" else script.result("first").raw(side("r1"))
    harness, person = Harness(tmp_path, script.request("mcp_status").withdraws("r1").init().result("second")), Slow()
    async with harness.opened(surface=person) as app:
        await app.submit("go")
        await person.was_asked("r1")
        await app.session.driver.send_control("mcp_status")  # type: ignore[attr-defined]
        await person.had_it_taken("r1")
        await person.saw(is_end("second"))
    assert [event.id for event in person.events if isinstance(event, RequestCancelled)] == ["r1"]
    assert "r1" not in harness.claude.given().answers()


@pytest.mark.req("app.driven.withdrawn")
@pytest.mark.parametrize("asked", ["in the first turn", "between them"])
async def test_what_is_withdrawn_in_a_later_turn_is_taken_back_too(tmp_path: Path, asked: str) -> None:
    script = Script().init()
    script = script.raw(side("r1")).result("first") if asked == "in the first turn" else script.result("first").raw(side("r1"))
    harness, person = Harness(tmp_path, script.prompt().init().withdraws("r1").text("taken").result("second")), Slow()
    async with harness.opened(surface=person) as app:
        await app.submit("go")
        await person.was_asked("r1")
        await app.submit("and now?")
        await person.had_it_taken("r1")
    assert "r1" not in harness.claude.given().answers()


@pytest.mark.req("app.driven.withdrawn")
async def test_nobody_is_asked_once_the_app_closes(tmp_path: Path) -> None:
    harness, person = Harness(tmp_path, Script().init().raw(side("r1")).result("first")), Slow()
    async with harness.opened(surface=person) as app:
        await app.submit("go")
        await person.was_asked("r1")
    await person.had_it_taken("r1")

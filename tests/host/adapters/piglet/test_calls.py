"""What the host asks of guests for the model and the person: tools, commands, keys (spec piglet 5.1, 5.2, 5.5)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from serai.errors import NoCommand, Refused
from serai.host.guest import GuestState
from serai.model.actions import Display, Notice, SetStatus
from serai.model.approvals import Answer, Question
from serai.model.events import ToolEnded
from serai.model.tools import ImageBlock, TextBlock, ToolCall
from tests.support.agents.scripted_models import Answers, call, conversation, reply, texts
from tests.support.app.apps import Person, open_app
from tests.support.host import zot_guests
from tests.support.host.zot_guests import wait_for_state
from tests.support.piglet.journals import ONE_LOOP, SLOW_RESTART, read_messages, read_params, wait_for_note
from tests.support.piglet_guests.guest_folder import offer, write
from tests.support.piglet_guests.steps import ask, crash, echo, fail, note, result, say, tell, throw, wait

pytestmark = ONE_LOOP
ANY: dict[str, Any] = {"type": "object"}
PIXEL = "iVBORw0KGgo="


# -- tools


@pytest.mark.req("piglet.method.tool/execute")
async def test_a_call_goes_to_the_guest_and_all_that_it_answers_comes_back(tmp_path: Path) -> None:
    blocks = [{"type": "text", "text": "no station"}, {"type": "image", "data": PIXEL, "mime": "image/png"}]
    answer = {"content": blocks, "isError": True, "errorCode": "FILE_NOT_FOUND", "errorHint": "try a bigger town"}
    journal = tmp_path / "journal"
    folder = write(tmp_path, "weather", tools={"weather": offer(answer, parameters=ANY), "fine": "16 degrees"}, journal=journal)
    async with zot_guests.open_host(tmp_path, folder, limits=SLOW_RESTART) as host:
        found = await host.call_tool(ToolCall("weather", {"city": "Bern", "Deep": {"A": [1.5, None]}}, "call_8f"))
        assert (found.is_error, found.code, found.hint) == (True, "FILE_NOT_FOUND", "try a bigger town")
        text = TextBlock("[error:FILE_NOT_FOUND] no station\nhint: try a bigger town")
        assert found.content == (text, ImageBlock(b"\x89PNG\r\n\x1a\n", "image/png"))
        plain = await host.call_tool(ToolCall("fine", {}, "call_9"))
        assert (plain.content, plain.is_error, plain.code, plain.hint) == ((TextBlock("16 degrees"),), False, "", "")
    asked = [{"callId": "call_8f", "name": "weather", "args": {"city": "Bern", "Deep": {"A": [1.5, None]}}}]
    assert read_params(journal, "tool/execute") == [*asked, {"callId": "call_9", "name": "fine", "args": None}]


@pytest.mark.req("piglet.method.tool/execute")
async def test_a_guest_that_is_down_answers_that_it_is_without_a_request(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    folder = write(tmp_path, "weather", tools={"weather": "fog", "fatal": [crash()]}, journal=journal)
    async with zot_guests.open_host(tmp_path, folder, limits=SLOW_RESTART) as host:
        await host.call_tool("fatal")
        await wait_for_state(host, "weather", GuestState.BACKING_OFF)
        before = len(read_messages(journal))
        found = await host.call_tool("weather")
        assert (found.is_error, found.code) == (True, "TOOL_UNAVAILABLE")
        assert found.text.startswith("weather is not available: piglet:weather is backing off")
        assert "weather" in {tool.name for tool in host.tools}  # it keeps its place
    assert len(read_messages(journal)) == before


@pytest.mark.req("piglet.edge.13")
async def test_a_model_call_without_arguments_sends_null(tmp_path: Path) -> None:
    folder = write(tmp_path, "weather", tools={"look": "fine"}, journal=tmp_path / "journal")
    async with open_app(tmp_path, folder, answers=Answers([reply("", call("look", "c7"))], [reply("done")])) as app:
        await app.submit("go")
    assert read_params(tmp_path / "journal", "tool/execute") == [{"callId": "c7", "name": "look", "args": None}]


@pytest.mark.req("piglet.rule.tool-failure-text")
async def test_what_goes_wrong_with_a_tool_is_told_in_the_origins_words(tmp_path: Path) -> None:
    folder = write(tmp_path, "weather", tools={"broken": [throw("no station")], "fatal": [crash(7)]})
    person, model = Person(), Answers([reply("", call("broken"))], [reply("", call("fatal"))], [reply("done")])
    async with open_app(tmp_path, folder, answers=model, surface=person, limits=SLOW_RESTART) as app:
        direct = await app.call_tool(ToolCall("broken", {}))
        await app.submit("go")
        results = [message for message in conversation(app.session) if message.role == "tool"]
    broken, fatal = "ext weather tool broken: tool broken: no station", "ext weather tool fatal: extension weather closed"
    assert (direct.text, direct.is_error) == (broken, True)
    assert [message.is_error for message in results] == [True, True]
    ended = [event.result for event in person.events if isinstance(event, ToolEnded)]
    assert [one.is_error for one in ended] == [True, True]
    for text in (ended[0].text, texts(results)[0]):
        assert broken in text
    for text in (ended[1].text, texts(results)[1]):
        assert f"{fatal} (exit status 7" in text


@pytest.mark.req("piglet.fix.04", "piglet.edge.01")
@pytest.mark.parametrize("sdk", ["go", "typescript"])
async def test_what_each_sdk_writes_its_own_way_is_read_the_same(tmp_path: Path, sdk: Any) -> None:
    """The Go SDK spells blocks `{Type, Text, Data, Mime}`; here whole messages are spelt so, and what is opaque is left alone."""
    inner = {"Path": "A", "path": "a", "Type": "x"}
    registration = {"NAME": "shout", "Description": "Loud", "PARAMETERS": {**ANY, "Properties": inner, "properties": {}}}
    shown = {"Text": "not this", "text": "exact", "TEXT": "nor this"}
    folder = write(
        tmp_path,
        "weather",
        sdk=sdk,
        at_init=[tell("register/tool", registration)],
        tools={"look": offer("$city: fog", parameters=ANY), "echo": offer([echo()], parameters=ANY)},
        commands={"go": [tell("showMessage", shown)]},
        journal=tmp_path / "journal",
    )
    person = Person()
    async with open_app(tmp_path, folder, surface=person) as app:
        tools = {tool.name: tool for tool in app.host.tools}
        assert tools["shout"].description == "Loud"
        assert tools["shout"].schema == registration["PARAMETERS"]
        found = await app.call_tool(ToolCall("look", {"city": "Bern"}))
        assert found.content == (TextBlock("Bern: fog"),)
        sent = json.loads((await app.call_tool(ToolCall("echo", inner))).text)
        assert sent["args"] == inner
        await app.submit("/go")
        assert Display("exact", "weather") in person.actions
    spelt = '"Type": "text"' if sdk == "go" else '"type": "text"'
    assert spelt in (tmp_path / "journal").read_text()


@pytest.mark.req("piglet.fix.04")
async def test_capitals_are_read_in_envelopes_results_and_actions_too(tmp_path: Path) -> None:
    action = {"Action": {"TYPE": "setStatus", "Payload": {"KEY": "meter", "Text": "3 calls"}}}
    folder = write(
        tmp_path,
        "weather",
        tools={"fails": {"Content": [{"TYPE": "text", "TEXT": "no"}], "ISERROR": True, "ErrorCode": "TIMEOUT"}},
        interceptors={"gate": {"Allow": True}},
        shortcuts={"ctrl+g": action},
    )
    person = Person()
    async with open_app(tmp_path, folder, surface=person) as app:
        found = await app.call_tool(ToolCall("fails", {}))
        assert (found.text, found.is_error, found.code) == ("[error:TIMEOUT] no", True, "TIMEOUT")
        await app.shortcut("ctrl+g")
        assert SetStatus("meter", "3 calls") in person.actions


@pytest.mark.req("piglet.fix.12")
async def test_a_tool_that_says_it_failed_is_an_error_everywhere_and_harms_no_sibling(tmp_path: Path) -> None:
    go = tmp_path / "go"
    ended = tmp_path / "ended"
    folder = write(
        tmp_path,
        "weather",
        tools={"wrong": [fail("no station")], "slow": [wait(go), say("worked")]},
        handlers={"meter": offer([note(ended, "one has ended")], events=["EventToolEnd"])},
        journal=tmp_path / "journal",
    )
    model = Answers([reply("", call("wrong", "c1"), call("slow", "c2"))], [reply("done")])
    async with open_app(tmp_path, folder, answers=model) as app:
        turn = asyncio.create_task(app.submit("go"))
        await wait_for_note(ended)
        go.touch()
        await turn
        results = [message for message in conversation(app.session) if message.role == "tool"]
    assert [(one.call_id, one.is_error) for one in results] == [("c1", True), ("c2", False)]
    assert texts(results) == ["tool: no station", "tool: worked"]
    told = {one["data"]["ToolCallID"]: one["data"]["IsError"] for one in read_params(tmp_path / "journal", "event/dispatch")}
    assert told == {"c1": True, "c2": False}
    assert read_messages(tmp_path / "journal", "$/cancelRequest") == []


@pytest.mark.req("piglet.edge.33")
async def test_a_tool_may_have_any_name(tmp_path: Path) -> None:
    names = ["my tool.v2", "größe/м", 'a"b']
    folder = write(tmp_path, "weather", tools=dict.fromkeys(names, "$name"), journal=tmp_path / "journal")
    async with open_app(tmp_path, folder) as app:
        assert [(await app.call_tool(ToolCall(name, {}))).text for name in names] == names
    assert [one["name"] for one in read_params(tmp_path / "journal", "tool/execute")] == names


@pytest.mark.req("piglet.edge.05", "piglet.edge.06")
async def test_a_guest_may_run_its_own_tool_while_its_command_is_pending(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    inner = {"name": "look", "args": {"city": "Bern"}, "callId": "inner"}
    folder = write(
        tmp_path,
        "weather",
        tools={"look": offer("$city: fog", parameters=ANY)},
        commands={"go": [ask("host/extensionsDir", quiet=True), ask("host/executeTool", inner)]},
        journal=journal,
    )
    person = Person()
    async with open_app(tmp_path, folder, surface=person) as app:
        assert await app.submit("/go") is None
        [shown] = [json.loads(one.text) for one in person.actions if isinstance(one, Display)]
    assert [block["text"] for block in shown["result"]["content"]] == ["Bern: fog"]
    assert [message["method"] for message in read_messages(journal)][:3] == ["initialize", "command/execute", "tool/execute"]
    assert read_params(journal, "tool/execute") == [{"callId": "inner", "name": "look", "args": {"city": "Bern"}}]
    asked = [line["out"] for line in map(json.loads, journal.read_text().splitlines()) if "method" in line.get("out", {})]
    ids = {one["method"]: one["id"] for one in (*asked, *read_messages(journal)) if "id" in one}
    assert ids["host/executeTool"] == ids["command/execute"] == 2  # at the same time, one each way


# -- commands


@pytest.mark.req("piglet.method.command/execute")
async def test_a_command_is_run_by_its_guest_and_its_error_shown(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    folder = write(tmp_path, "weather", commands={"forecast": [], "broken": [throw("no station")]}, journal=journal)
    person = Person()
    async with open_app(tmp_path, folder, surface=person) as app:
        outcome = await app.host.run_command("forecast", "Bern 3")
        assert (outcome.error, outcome.code) == ("", "")
        outcome = await app.host.run_command("broken")
        assert outcome.error == "Command error: command broken: no station"
        with pytest.raises(Refused) as raised:
            await app.submit("/broken now")
        assert raised.value.message == "Command error: command broken: no station"
        app.queue("/broken")
        await app.idle()
        assert Notice("Command error: command broken: no station", "error", "weather") in person.actions
    assert read_params(journal, "command/execute") == [
        {"name": "forecast", "args": "Bern 3"},
        {"name": "broken", "args": ""},
        {"name": "broken", "args": "now"},
        {"name": "broken", "args": ""},
    ]


@pytest.mark.req("piglet.rule.command-line")
async def test_a_typed_line_is_split_and_joined_again(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    folder = write(tmp_path, "weather", commands=["forecast", "mem:clear"], journal=journal)
    async with open_app(tmp_path, folder) as app:
        await app.submit("  /forecast   Bern \t 3\n days  ")
        await app.submit("/mem:clear")
        assert read_params(journal, "command/execute") == [
            {"name": "forecast", "args": "Bern 3 days"},
            {"name": "mem:clear", "args": ""},
        ]
        with pytest.raises(NoCommand, match="^unknown command /forecasts$"):
            await app.submit("/forecasts  Bern")
        assert not app.quitting.is_set()
        await app.submit("/exit")
        assert app.quitting.is_set()
        assert conversation(app.session) == []


@pytest.mark.req("piglet.rule.command-line")
@pytest.mark.parametrize("word", ["exit", "quit"])
async def test_no_guest_gets_the_word_that_ends_the_run(tmp_path: Path, word: str) -> None:
    folder = write(tmp_path, "weather", commands=["exit", "quit"], journal=tmp_path / "journal")
    async with open_app(tmp_path, folder) as app:
        app.queue(f"/{word}")
        async with asyncio.timeout(30.0):
            await app.quitting.wait()
    assert read_messages(tmp_path / "journal", "command/execute") == []


# -- tasks, and what comes before what


class Patient(Person):
    """Answers when the test says so: `asked_now` has what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_now: asyncio.Queue[tuple[str, asyncio.Future[str]]] = asyncio.Queue()

    async def ask(self, request: Any) -> Any:
        assert isinstance(request, Question)
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        prompt = request.items[0].text
        self.asked_now.put_nowait((prompt, answer))
        return Answer({prompt: await answer})

    def shows(self) -> list[str]:
        return [one.text for one in self.actions if isinstance(one, Display)]


@pytest.mark.req("piglet.fix.13")
@pytest.mark.parametrize("how", ["command", "shortcut"])
async def test_a_handler_may_ask_the_person_before_it_answers_and_others_go_on_meanwhile(tmp_path: Path, how: str) -> None:
    answers = tmp_path / "answers"
    asking = [
        tell("showMessage", {"text": "before"}),
        ask("host/askUser", {"prompt": "Send?", "choices": ["yes", "no"]}, quiet=True),
        tell("showMessage", {"text": "between"}),
        ask("host/showPicker", {"title": "City", "items": [{"id": "b", "label": "Bern"}]}, quiet=True),
        note(answers),
    ]
    folder = write(
        tmp_path,
        "weather",
        commands={"go": asking, "other": "meanwhile"},
        shortcuts={"ctrl+g": asking, "ctrl+o": [tell("showMessage", {"text": "a key meanwhile"})]},
        journal=tmp_path / "journal",
    )
    person = Patient()
    async with open_app(tmp_path, folder, surface=person) as app:

        async def handled() -> None:
            await (app.submit("/go") if how == "command" else app.shortcut("ctrl+g"))

        pending = asyncio.create_task(handled())
        prompt, answer = await person.asked_now.get()
        assert (prompt, person.shows(), pending.done()) == ("Send?", ["before"], False)  # it was shown as it came
        await app.submit("/other")
        await app.shortcut("ctrl+o")
        assert (person.shows(), pending.done()) == (["before", "meanwhile", "a key meanwhile"], False)
        answer.set_result("yes")
        prompt, answer = await person.asked_now.get()
        assert (prompt, person.shows()[3:], pending.done()) == ("City", ["between"], False)
        answer.set_result("Bern")
        await pending
        assert answers.exists()
    results = [json.loads(line)["in"].get("result") for line in (tmp_path / "journal").read_text().splitlines() if '"in"' in line]
    assert [result for result in results if result] == [{"selected": "yes", "cancelled": False}, {"selected": "b"}]


@pytest.mark.req("piglet.rule.notification-order")
async def test_what_was_said_before_an_answer_is_there_before_its_caller_goes_on(tmp_path: Path) -> None:
    """Of all that a handler says, in its order; also what needs a service of the app, such as a text for the next turn."""
    words = [tell("showMessage", {"text": f"word {n}"}) for n in range(200)]
    folder = write(
        tmp_path,
        "weather",
        tools={"look": [*words, say("fine")]},
        commands={"go": words},
        shortcuts={"ctrl+g": words},
        interceptors={"gate": [*words, result({"allow": True})]},
        hooks={"clock": [tell("steer", {"content": "and be quick"}), *words]},
        transformers={"alias": words},
    )
    person, model = Person(), Answers([reply("", call("look"))], [reply("done")])

    def shown() -> list[str]:
        found = [one.text for one in person.actions if isinstance(one, Display)]
        person.actions.clear()
        return found

    expected = [f"word {n}" for n in range(200)]
    async with open_app(tmp_path, folder, answers=model, surface=person) as app:
        running: Any = app.host.guest("weather").running
        person.actions.clear()
        await app.host.run_command("go")
        assert shown() == expected
        await app.host.run_shortcut("ctrl+g")
        assert shown() == expected
        await running.call_tool(ToolCall("look", {}))
        assert shown() == expected
        await app.host.intercept("tool_call", ToolCall("look", {}))
        assert shown() == expected
        await app.host.texts.transform("typed")
        assert shown() == expected
        await app.submit("hello")
    assert texts(model.requests[0].messages) == ["user: hello\n\nand be quick"]

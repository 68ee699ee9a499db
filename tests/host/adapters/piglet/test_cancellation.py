"""Who gives up, and who dies: how far that reaches, on the wires of real guests (spec piglet 2.6, 8.0)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from serai.app.app import App
from serai.host.guest import GuestState
from serai.model.approvals import Answer, Approval, Decision, Question
from serai.model.events import ToolEnded
from tests.support.agents.scripted_models import Answers, call, conversation, reply, texts
from tests.support.app.apps import PATIENT, Person, open_app
from tests.support.host import zot_guests
from tests.support.host.zot_guests import pid_of, wait_for_state
from tests.support.piglet.journals import ONE_LOOP, SLOW_RESTART, read_messages, read_params, wait_for_note
from tests.support.piglet.raw_guests import write_bare_guest
from tests.support.piglet_guests.guest_folder import interceptor, offer, write
from tests.support.piglet_guests.steps import ask, note, say, wait

pytestmark = ONE_LOOP


# -- in depth


SLOW: dict[str, dict[str, Any]] = {
    "tool/execute": {"tools": {"look": "WAIT"}},
    "interceptor/before": {"tools": {"look": "fog"}, "interceptors": {"guard": interceptor(before="WAIT")}},
    "interceptor/after": {"tools": {"look": "fog"}, "interceptors": {"guard": interceptor(after="WAIT")}},
    "messageHook/onMessage": {"hooks": {"clock": "WAIT"}},
    "inputTransformer/transform": {"transformers": {"alias": "WAIT"}},
}


def fill_steps(offers: Any, steps: list[Any]) -> Any:
    """These offers, with steps in place of the word WAIT."""
    if isinstance(offers, dict):
        return {key: fill_steps(value, steps) for key, value in offers.items()}
    if hasattr(offers, "answers"):
        return type(offers)(fill_steps(offers.answers, steps), offers.params)
    return steps if offers == "WAIT" else offers


@pytest.mark.req("piglet.rule.cancel-outgoing")
@pytest.mark.parametrize("method", SLOW)
async def test_who_does_not_want_a_turn_any_more_takes_back_whatever_it_waits_for(tmp_path: Path, method: str) -> None:
    begun, over, journal = tmp_path / "begun", tmp_path / "over", tmp_path / "journal"
    offers = fill_steps(SLOW[method], [note(begun), wait(), note(over)])
    folder = write(tmp_path, "weather", journal=journal, commands={"still": "here"}, **offers)
    model = Answers([reply("", call("look"))], [reply("done")])
    async with open_app(tmp_path, folder, answers=model) as app:
        turn = asyncio.create_task(app.submit("go"))
        await wait_for_note(begun)
        turn.cancel()
        await asyncio.wait([turn])
        await wait_for_note(over)  # its handler was told
        [asked] = read_messages(journal, method)
        assert read_params(journal, "$/cancelRequest") == [{"id": asked["id"]}]
        assert app.host.guest("weather").state is GuestState.READY
        await app.host.run_command("still")


@pytest.mark.req("piglet.rule.cancel-outgoing")
async def test_an_abort_reaches_through_guests_that_work_for_each_other(tmp_path: Path) -> None:
    """The agent waits for one guest's tool, that for another's, and that for a model which a third one streams."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "models.toml").write_text('[[models]]\nid = "m1"\nprovider = "acme"\napi = "acme-api"\n')
    begun, over = tmp_path / "begun", tmp_path / "over"
    journals = {name: tmp_path / f"{name}.journal" for name in ("first", "second", "third")}
    chat = {"messages": [{"role": "user", "content": "hi"}], "model": "acme/m1"}
    folders = (
        write(tmp_path, "first", tools={"one": [ask("host/executeTool", {"name": "two", "args": {}})]}, journal=journals["first"]),
        write(tmp_path, "second", tools={"two": [ask("host/chat", chat)]}, journal=journals["second"]),
        write(tmp_path, "third", providers={"acme-api": [note(begun), wait(), note(over)]}, journal=journals["third"]),
    )
    model = Answers([reply("", call("one"))], [reply("done")])
    async with open_app(tmp_path, *folders, answers=model) as app:
        turn = asyncio.create_task(app.submit("go"))
        await wait_for_note(begun)
        await app.abort()
        result = await turn
        assert result is not None
        assert result.status == "cancelled"
        await wait_for_note(over)
        methods = {"first": "tool/execute", "second": "tool/execute", "third": "provider/stream"}
        for name, method in methods.items():
            [asked] = read_messages(journals[name], method)
            assert read_params(journals[name], "$/cancelRequest") == [{"id": asked["id"]}]
        for name in methods:
            running = app.host.guest(name).running
            assert running is not None
            await running.idle()


@pytest.mark.req("piglet.rule.cancel-block-tools")
@pytest.mark.parametrize("how", ["steer", "abort"])
async def test_a_tool_that_blocks_is_let_finish_and_counts_if_the_run_is_alive(tmp_path: Path, how: str) -> None:
    go, over, journal = tmp_path / "go", tmp_path / "over", tmp_path / "journal"
    begun = [tmp_path / "careful-begun", tmp_path / "light-begun"]
    tools = {
        "careful": offer([note(begun[0]), wait(go), say("worked"), note(over)], interruptBehavior="block"),
        "light": [note(begun[1]), wait()],
    }
    model, person = Answers([reply("", call("careful", "c1"), call("light", "c2"))], [reply("done")]), Person()
    async with open_app(tmp_path, write(tmp_path, "weather", tools=tools, journal=journal), answers=model, surface=person) as app:
        turn = asyncio.create_task(app.submit("go"))
        for path in begun:
            await wait_for_note(path)
        if how == "steer":
            app.steer("be quick")
            await person.saw(lambda event: isinstance(event, ToolEnded) and event.call.name == "light")
        else:
            await app.abort()
            await turn
        go.touch()
        await wait_for_note(over)
        await turn
        while app.works_for("piglet:weather"):
            await asyncio.sleep(0)
        assert ("tool: worked" in texts(conversation(app.session))) is (how == "steer")
    ids = {one["params"]["name"]: one["id"] for one in read_messages(journal, "tool/execute")}
    assert read_params(journal, "$/cancelRequest") == [{"id": ids["light"]}]


@pytest.mark.req("piglet.rule.cancel-block-tools")
async def test_a_host_without_an_app_lets_it_finish_too(tmp_path: Path) -> None:
    begun, go, over, journal = (tmp_path / name for name in ("begun", "go", "over", "journal"))
    careful = offer([note(begun), wait(go), note(over)], interruptBehavior="block")
    folder = write(tmp_path, "weather", tools={"careful": careful, "look": "fog"}, journal=journal)
    async with zot_guests.open_host(tmp_path, folder) as host:
        call = asyncio.create_task(host.call_tool("careful"))
        await wait_for_note(begun)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        go.touch()
        await wait_for_note(over)
        assert (await host.call_tool("look")).text == "fog"
    assert read_messages(journal, "$/cancelRequest") == []


# -- questions


class Absent(Person):
    """A person who reads what is asked, and has not answered yet."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[Approval | Question] = []
        self.looks: asyncio.Queue[Question] = asyncio.Queue()
        self.gone: asyncio.Queue[Question] = asyncio.Queue()
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def ask(self, request: Approval | Question) -> Decision:
        assert isinstance(request, Question)
        self.open.append(request)
        self.looks.put_nowait(request)
        try:
            return Answer({request.items[0].text: await asyncio.shield(self.answer)})
        finally:
            self.open.remove(request)
            self.gone.put_nowait(request)


QUESTIONS = {
    "host/askUser": {"prompt": "Send?", "choices": ["yes", "no"]},
    "host/showPicker": {"title": "Send?", "items": [{"id": "y", "label": "yes"}]},
}


@pytest.mark.req("piglet.edge.30")
@pytest.mark.parametrize("method", QUESTIONS)
async def test_a_question_whose_guest_dies_is_taken_away_and_nobody_answers_it(
    tmp_path: Path, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    person = Absent()
    asks, other = {"asks": [ask(method, QUESTIONS[method])]}, {"asks too": [ask(method, QUESTIONS[method])]}
    folders = write(tmp_path, "weather", tools=asks), write(tmp_path, "other", tools=other)
    async with open_app(tmp_path, *folders, surface=person, limits={**PATIENT, **SLOW_RESTART}) as app:
        calls = [asyncio.create_task(app.host.call_tool("asks")) for _ in range(2)]
        shown = await person.looks.get()
        assert (shown.agent, shown.items[0].text) == ("piglet:weather", "Send?")
        behind = asyncio.create_task(app.host.call_tool("asks too"))  # one dialog at a time
        await _wait_for_dialogs(app, 3)
        running: Any = app.host.guest("weather").running
        sent: list[bytes] = []
        running._wire.rpc.put = lambda frame, call: sent.append(frame)
        os.kill(pid_of(app.host, "weather"), signal.SIGKILL)
        assert await person.gone.get() is shown
        for result in await asyncio.gather(*calls):
            assert "extension weather closed" in result.text
        await wait_for_state(app.host, "weather", GuestState.BACKING_OFF)
        assert sent == []  # no reply was attempted
        # Of the dead one's nothing is asked any more: the next is the other's, and that is answered.
        assert (await person.looks.get()).agent == "piglet:other"
        assert [one.agent for one in person.open] == ["piglet:other"]
        person.answer.set_result("yes")
        assert json.loads((await behind).text)["result"]["selected"] in ("yes", "y")
        assert person.looks.empty()
    assert not [record for record in caplog.records if record.exc_info]


async def _wait_for_dialogs(app: App, count: int) -> None:
    dialogs: Any = app.runtime.services.groups["dialogs"]
    while dialogs._count < count:
        await asyncio.sleep(0)


# -- numbers


# Asks under numbers and words of its own choice; those of the host's own requests are among them.
ASKER = """
say(4, tool("ask"), hello())
asked, said, call = [0, "seven", "", 2, 1, -3, 12345678901234567890], [], None
for m in lines(3):
    if m.get("method") == "tool/execute":
        call = m["id"]
        say(4, *({"jsonrpc": "2.0", "id": id, "method": "host/extensionsDir"} for id in asked))
    elif not m.get("method") and call is not None:
        said.append([m["id"], "result" in m])
        if len(said) == len(asked):
            say(4, answer(call, json.dumps(said)))
"""


@pytest.mark.req("piglet.rule.envelope-ids")
async def test_a_guest_may_number_its_requests_as_it_likes(tmp_path: Path) -> None:
    async with open_app(tmp_path, write_bare_guest(tmp_path, ASKER)) as app:
        said = json.loads((await app.host.call_tool("ask")).text)
        assert sorted(map(str, said)) == sorted(str([id, True]) for id in [0, "seven", "", 2, 1, -3, 12345678901234567890])

"""Host services over the wire: what runs, what is waited for, what the person is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from serai.host.adapters.piglet import LIMITS
from serai.limits import HOUR, Limits
from serai.model.actions import SetStatus
from serai.model.approvals import Allow, Answer, Approval, Question
from serai.model.events import NoticeEvent
from tests.support.agents.scripted_models import Answers, call, reply, texts
from tests.support.app.apps import PATIENT, Gated, Person
from tests.support.piglet.journals import ONE_LOOP, read_messages, wait_for_note
from tests.support.piglet.service_clients import ID, ServiceClient, SilentPerson, error_of, open_client
from tests.support.piglet_guests.guest_folder import interceptor
from tests.support.piglet_guests.steps import ask, fault, note, result, say, tell, throw

pytestmark = ONE_LOOP


# -- work on the side


@pytest.mark.req("piglet.method.host/runBackground")
@pytest.mark.req("piglet.method.host/cancelBackground")
@pytest.mark.req("piglet.method.host/isBackgroundRunning")
@pytest.mark.req("piglet.fix.28")
async def test_an_agent_works_on_the_side_until_it_is_done_or_cancelled(tmp_path: Path) -> None:
    model = Gated([reply("all is well")])
    async with open_client(tmp_path, answers=model) as host:
        assert await host("cancelBackground") == {}  # also when there is none
        assert await host("isBackgroundRunning") == {"running": False}
        assert await host("runBackground", prompt="summarise TODOs") == {}
        assert await model.began.get() == "summarise TODOs"
        assert await host("isBackgroundRunning") == {"running": True}
        assert SetStatus("bg", "bg: summarise TODOs") in host.person.actions
        assert await host.fails("runBackground", prompt="summarise TODOs") == (
            -32603, 'run background: background task "summarise TODOs" already running'
        )  # fmt: skip
        assert await host("runBackground", prompt="another one") == {}  # beside it
        await model.began.get()
        model.go()
        told = await host.person.saw(lambda event: isinstance(event, NoticeEvent) and "Background task" in event.notice.text)
        assert isinstance(told, NoticeEvent)
        assert told.notice.text == "Background task: summarise TODOs\n\nall is well"
        assert await host("isBackgroundRunning") == {"running": True}
        assert await host("cancelBackground") == {}
        assert await host("isBackgroundRunning") == {"running": False}
        assert {"host", "read", "write"} & {tool.name for tool in model.requests[0].tools} == {"read"}
        assert await host.fails("runBackground", prompt=" ") == (-32603, "run background: the prompt is empty")
        assert not [entry for entry in host.entries() if entry["type"] in ("user", "assistant", "tool_result")]


# -- waiting


@pytest.mark.req("piglet.method.host/waitForIdle")
@pytest.mark.req("piglet.fix.27")
async def test_idle_means_that_neither_a_run_nor_work_on_the_side_is_left(tmp_path: Path) -> None:
    model = Gated([reply("done")])
    async with open_client(tmp_path, answers=model) as host, asyncio.TaskGroup() as tasks:
        assert await host.raw("host/waitForIdle") == {"result": {}}  # before the first run, without parameters
        assert await host.raw("host/waitForIdle", {}) == {"result": {}}
        first = tasks.create_task(host.app.submit("first"))
        await model.began.get()
        waiting = tasks.create_task(host.aside("waitForIdle"))
        id = await host.asked("waitForIdle", 3)

        await host("runBackground", prompt="look")
        await model.began.get()
        model.go()
        await first
        assert await host("isBackgroundRunning") == {"running": True}
        assert host.answered(id) == []  # the end of the run is held back

        second = tasks.create_task(host.app.submit("second"))
        await model.began.get()
        model.go()  # the work on the side, which asked before
        await host.app.resident.backgrounds.wait_idle()
        assert await host("isBackgroundRunning") == {"running": False}
        assert host.answered(id) == []  # another run has begun meanwhile

        model.go()
        await second
        assert await waiting == {"result": {}}
        assert await host.raw("host/waitForIdle") == {"result": {}}


@pytest.mark.req("piglet.method.host/waitForIdle")
async def test_to_wait_for_idle_fails_when_the_guests_host_stops(tmp_path: Path) -> None:
    model = Gated([reply("done")])
    async with open_client(tmp_path, answers=model, limits={**PATIENT, "drain": 0.01}) as host, asyncio.TaskGroup() as tasks:
        turn = tasks.create_task(host.app.submit("go"))
        await model.began.get()
        tasks.create_task(host.app.host.call_tool("host", {"method": "host/waitForIdle"}))
        id = await host.asked("waitForIdle")
        await host.app.host.reload(ID)
        async with asyncio.timeout(30.0):
            while not read_messages(host.journal, "shutdown"):  # its process is stopped, and with it what it waits for
                await asyncio.sleep(0.002)
        [failed] = host.answered(id)
        assert failed["error"] == {"code": -32603, "message": "wait for idle: context canceled"}
        model.go()
        await turn
        assert await host.raw("host/waitForIdle") == {"result": {}}  # the new one


@pytest.mark.req("piglet.method.host/waitForIdle")
@pytest.mark.req("piglet.method.host/showPicker")
@pytest.mark.req("piglet.method.host/askUser")
async def test_nobody_waits_longer_than_an_hour(tmp_path: Path) -> None:
    assert Limits().call == HOUR
    assert "call" not in LIMITS
    model, person = Gated([reply("done")]), SilentPerson()
    limits = {**PATIENT, "call": 0.2}
    async with open_client(tmp_path, answers=model, person=person, limits=limits) as host, asyncio.TaskGroup() as tasks:
        dialogs: list[tuple[str, dict[str, Any]]] = [
            ("showPicker", {"title": "City", "items": [{"id": "b", "label": "Bern"}]}),
            ("askUser", {"prompt": "Send?", "choices": ["yes"]}),
        ]
        for method, params in dialogs:
            assert (await host.fails(method, **params))[0] == -32603
        assert (len(person.asked), person.closed) == (2, 2)
        turn = tasks.create_task(host.app.submit("go"))
        await model.began.get()
        code, why = error_of(await host.aside("waitForIdle"))
        assert (code, why) == (-32603, "wait for idle: context deadline exceeded")
        model.go()
        await turn


# -- the run


@pytest.mark.req("piglet.method.host/toggleStepMode")
async def test_step_mode_has_the_person_asked_before_every_call(tmp_path: Path) -> None:
    model = Answers([reply("", call("read", path="a.txt"))], [reply("done")])
    person = Person(Allow(), Allow())
    async with open_client(tmp_path, answers=model, person=person) as host:
        for on, asked in ((True, 1), (False, 1), (True, 2)):
            assert await host("toggleStepMode") == {"on": on}
            model.answers[:0] = [[reply("", call("read", path="a.txt"))]] if len(model.answers) == 1 else []
            await host.app.submit("go")
            assert len(person.asked) == asked
        assert {request.reason_type for request in person.asked if isinstance(request, Approval)} == {"step"}


@pytest.mark.req("piglet.method.host/requestQuit")
async def test_to_quit_ends_what_works_on_the_side_first(tmp_path: Path) -> None:
    model = Gated([reply("done")])
    async with open_client(tmp_path, answers=model) as host, asyncio.TaskGroup() as tasks:

        async def at_the_end() -> tuple[str, ...]:
            await host.app.quitting.wait()
            return host.app.resident.backgrounds.running

        running = tasks.create_task(at_the_end())
        await host("runBackground", prompt="look")
        await model.began.get()
        assert not host.app.quitting.is_set()
        assert await host("requestQuit") == {}
        assert await running == ()


@pytest.mark.req("piglet.method.host/abort")
async def test_a_run_is_aborted_without_a_word(tmp_path: Path) -> None:
    model = Gated([reply("done")])
    async with open_client(tmp_path, answers=model) as host:
        assert await host("abort") == {}  # nothing runs
        turn = asyncio.ensure_future(host.app.submit("go"))
        await model.began.get()
        assert await host.aside("abort") == {"result": {}}
        ended = await turn
        assert ended is not None
        assert ended.status == "cancelled"
        assert texts(host.app.resident.conversation.messages) == ["user: go"]
        assert not [entry for entry in host.entries() if "Request interrupted" in str(entry)]
        assert await host.raw("host/waitForIdle") == {"result": {}}


# -- compaction


@pytest.mark.req("piglet.method.host/hasCompactor")
@pytest.mark.req("piglet.method.host/triggerCompact")
@pytest.mark.req("piglet.fix.30")
async def test_a_guests_compactor_shortens_the_conversation_at_once(tmp_path: Path) -> None:
    async with open_client(tmp_path) as host:
        assert await host("hasCompactor") == {"present": False}
        assert await host.fails("triggerCompact") == (-32603, "no compactor registered")
    async with open_client(tmp_path, offers={"compactor": "Summary: greeted."}) as host:
        assert await host("hasCompactor") == {"present": True}
        await host.app.submit(">> say Hello")
        assert await host("triggerCompact") == {"before": 2, "after": 1}
        assert await _contents(host) == ["Summary: greeted."]
        [compact] = [entry for entry in host.entries() if entry["type"] == "compact"]
        assert [part["data"]["content"] for part in compact["data"]] == ["Summary: greeted."]
    failing: dict[str, Any] = {"digest is out of order": [throw("digest is out of order")], "": [result({"messages": []})]}
    for why, answer in failing.items():
        async with open_client(tmp_path, offers={"compactor": answer}) as host:
            await host.app.submit(">> say Hello")
            code, told = await host.fails("triggerCompact")
            assert (code, told.startswith("compact failed: "), why in told) == (-32603, True, True), told
            assert len(await _contents(host)) == 2  # as it was
            assert not [entry for entry in host.entries() if entry["type"] == "compact"]


async def _contents(host: ServiceClient) -> list[Any]:
    return [message["content"] for message in (await host("conversationMessages"))["messages"]]


# -- dialogs


@pytest.mark.req("piglet.method.host/showPicker")
@pytest.mark.req("piglet.method.host/askUser")
async def test_the_person_chooses_or_dismisses(tmp_path: Path) -> None:
    items = [{"id": "b", "label": "Bern", "desc": "CH"}, {"id": "o", "label": "Oslo"}]
    person = Person(Answer({"City": "Bern"}), Answer({}), Answer({"Send?": "yes"}), Answer({}), Answer({"Send?": "maybe"}))
    async with open_client(tmp_path, person=person) as host:
        assert await host("showPicker", title="City", items=items) == {"selected": "b"}
        assert await host("showPicker", title="City", items=items) == {"selected": ""}
        asked = {"prompt": "Send?", "choices": ["yes", "no"]}
        assert await host("askUser", **asked) == {"selected": "yes", "cancelled": False}
        assert await host("askUser", **asked) == {"selected": "", "cancelled": True}
        assert await host("askUser", **asked) == {"selected": "", "cancelled": True}  # nothing that was to be chosen
        picker, *_ = person.asked
        assert isinstance(picker, Question)
        assert [(one.label, one.description, one.id) for one in picker.items[0].choices] == [("Bern", "CH", "b"), ("Oslo", "", "o")]
        nothing: list[dict[str, Any]] = [{"choices": []}, {"choices": None}, {}]
        for none in nothing:
            assert await host.fails("askUser", prompt="?", **none) == (-32602, "askUser: choices must not be empty")
        assert await host("showPicker", title="City", items=[]) == {"selected": ""}
        assert len(person.asked) == 5


SCHEDULED = [fault("raw", line='{"jsonrpc":"2.0","id":777,"method":"host/waitForIdle"}'), say("scheduled")]


@pytest.mark.req("piglet.method.host/waitForIdle")
async def test_a_tool_may_wait_for_the_end_of_the_run_that_it_is_part_of(tmp_path: Path) -> None:
    """As one does that has a thread of its own for what comes after the run: the tool itself has ended by then."""
    model = Gated([reply("", call("later"))], [reply("done")])
    async with open_client(tmp_path, offers={"tools": {"later": SCHEDULED}}, answers=model) as host, asyncio.timeout(60):
        turn = asyncio.ensure_future(host.app.submit("go"))
        for _ in range(2):
            await model.began.get()
            assert host.answered(777) == []
            model.go()
        await turn
        await host.app.idle()
        await host.raw("host/extensionsDir")  # whatever was sent before it has come
        assert host.answered(777) == [{"jsonrpc": "2.0", "id": 777, "result": {}}]


@pytest.mark.req("piglet.method.host/waitForIdle")
async def test_a_command_that_was_sent_to_the_queue_does_not_wait_for_itself(tmp_path: Path) -> None:
    journal = tmp_path / "asked"
    commands = {"hand": [ask("host/waitForIdle", quiet=True), note(journal, "over")]}
    offers = {"commands": commands, "tools": {"send": [tell("sendMessage", {"content": "/hand y"})]}}
    async with open_client(tmp_path, offers=offers) as host, asyncio.timeout(60):
        await host.app.host.call_tool("send")
        await wait_for_note(journal)
        await host.app.idle()


@pytest.mark.req("app.services.bounded")
async def test_who_judges_a_call_and_waits_for_the_end_of_the_run_is_told_so(tmp_path: Path) -> None:
    waits = interceptor(before=[ask("host/waitForIdle", quiet=True), result({"allow": True})])
    model = Answers([reply("", call("look"))], [reply("done")])
    offers = {"tools": {"look": "fog"}, "interceptors": {"waits": waits}}
    limits = {**PATIENT, "interrupt": 0.1, "intercept": 60.0}
    async with open_client(tmp_path, offers=offers, answers=model, limits=limits) as host, asyncio.timeout(30):
        ended = await host.app.submit("go")
        assert ended is not None
        assert ended.text == "done"

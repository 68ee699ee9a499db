"""What people type while a turn runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from serai.agents.driver import Prompt
from serai.agents.event_hub import EventHub
from serai.agents.inbox import Inbox
from serai.agents.session import Session
from serai.agents.turn import Turn
from serai.errors import Closed, NotAllowed
from serai.limits import Limits
from serai.model.events import ToolEnded
from serai.model.tools import ToolCall, ToolResult
from tests.support.agents.scripted_driver import Scripted, create_session


class Person:
    """Types, and sees what comes of it."""

    def __init__(self, inbox: Inbox, session: Session, driver: Scripted, log: list[str]) -> None:
        self.inbox = inbox
        self.session = session
        self.driver = driver
        self.log = log


@asynccontextmanager
async def open_person(gate: asyncio.Event, tool: asyncio.Event, *, limits: Limits | None = None) -> AsyncIterator[Person]:
    """Each turn waits for `gate`; when `tool` is set before, a tool ends first."""
    log: list[str] = []

    async def play(hub: EventHub, prompt: Prompt) -> None:
        log.append(f"turn: {prompt.text}")
        if prompt.text == "break":
            raise ValueError("broken")
        waiting = [asyncio.ensure_future(event.wait()) for event in (gate, tool)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if tool.is_set() and not gate.is_set():
                hub.emit(ToolEnded(call=ToolCall("t"), result=ToolResult()))
            await gate.wait()
        finally:
            for one in waiting:
                one.cancel()

    async def listen(turn: Turn) -> None:
        await turn.result()

    async def command(text: str) -> None:
        log.append(f"command: {text}")
        if text == "/break":
            raise ValueError("broken")

    async with create_session(play, limits=limits) as there:
        assert isinstance(there.driver, Scripted)
        inbox = Inbox(
            there,
            listen,
            command=command,
            is_command=lambda text: text.startswith("/"),
            is_immediate=lambda text: text.startswith("/now"),
        )
        yield Person(inbox, there, there.driver, log)
        await inbox.close()


async def wait_begun(person: Person) -> None:
    while not person.log:
        await asyncio.sleep(0)


@pytest.mark.req("piglet.rule.input-queue")
async def test_at_a_tools_end_what_was_typed_is_steered_in_as_one_text() -> None:
    gate, tool = asyncio.Event(), asyncio.Event()
    async with open_person(gate, tool) as person:
        person.inbox.submit("go")
        await wait_begun(person)
        person.inbox.submit("one")
        person.inbox.submit("/later")
        person.inbox.submit("two")
        assert list(person.inbox.waiting) == ["one", "/later", "two"]
        tool.set()
        while not person.driver.steered:
            await asyncio.sleep(0)
        assert person.driver.steered == ["one\n\ntwo"]
        assert list(person.inbox.waiting) == ["/later"]
        gate.set()
        await person.inbox.wait_idle()
        assert person.log == ["turn: go", "command: /later"]


@pytest.mark.req("piglet.rule.input-queue")
async def test_at_the_end_commands_run_first_then_the_texts_as_one_turn() -> None:
    gate = asyncio.Event()
    async with open_person(gate, asyncio.Event()) as person:
        person.inbox.submit("go")
        await wait_begun(person)
        for text in ("one", "/a", "two", "  ", "/b"):
            person.inbox.submit(text)
        gate.set()
        await person.inbox.wait_idle()
        assert person.log == ["turn: go", "command: /a", "command: /b", "turn: one\n\ntwo"]
        assert not person.inbox.busy


@pytest.mark.req("piglet.rule.input-queue")
async def test_an_immediate_command_does_not_wait() -> None:
    gate = asyncio.Event()
    async with open_person(gate, asyncio.Event()) as person:
        person.inbox.submit("go")
        await wait_begun(person)
        person.inbox.submit("/now")
        while len(person.log) < 2:
            await asyncio.sleep(0)
        assert person.log == ["turn: go", "command: /now"]
        assert person.inbox.busy
        gate.set()
        await person.inbox.wait_idle()


@pytest.mark.req("piglet.rule.input-queue")
async def test_beyond_fifty_it_is_refused_and_what_waits_is_kept() -> None:
    gate = asyncio.Event()
    async with open_person(gate, asyncio.Event()) as person:
        person.inbox.submit("go")
        await wait_begun(person)
        for number in range(50):
            person.inbox.submit(str(number))
        with pytest.raises(NotAllowed, match=r"limit inputs = 50"):
            person.inbox.submit("one too many")
        assert len(person.inbox.waiting) == 50
        gate.set()
        await person.inbox.wait_idle()
        assert person.log[1] == "turn: " + "\n\n".join(map(str, range(50)))


@pytest.mark.req("piglet.rule.input-queue")
async def test_no_more_immediate_commands_run_at_once_than_texts_may_wait() -> None:
    gate = asyncio.Event()
    async with open_person(gate, asyncio.Event()) as person:
        person.inbox.submit("go")
        await wait_begun(person)
        for number in range(50):
            person.inbox.submit(str(number))
        for _ in range(50):  # what waits keeps nobody from these
            person.inbox.submit("/now")
        with pytest.raises(NotAllowed, match=r"too many commands run already .*limit inputs = 50"):
            person.inbox.submit("/now too many")
        while len(person.log) < 51:
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # they have run, and now are over
        person.inbox.submit("/now again")
        gate.set()
        await person.inbox.wait_idle()
        assert (person.log.count("command: /now"), person.log.count("command: /now again")) == (50, 1)
        assert "command: /now too many" not in person.log


async def test_what_fails_does_not_stop_what_waits(caplog: pytest.LogCaptureFixture) -> None:
    gate = asyncio.Event()
    gate.set()
    async with open_person(gate, asyncio.Event()) as person:
        person.inbox.submit("break")
        await wait_begun(person)
        person.inbox.submit("/break")
        person.inbox.submit("fine")
        await person.inbox.wait_idle()
        assert person.log == ["turn: break", "command: /break", "turn: fine"]
    assert "a command failed" in caplog.text


@pytest.mark.req("piglet.rule.input-queue")
async def test_what_cannot_be_steered_in_any_more_is_the_next_turn() -> None:
    gate, tool = asyncio.Event(), asyncio.Event()
    async with open_person(gate, tool) as person:

        def refuse(text: str) -> None:
            raise Closed("the turn is about to end")

        person.driver.steer = refuse  # type: ignore[method-assign]
        person.inbox.submit("go")
        await wait_begun(person)
        person.inbox.submit("one")
        person.inbox.submit("/later")
        tool.set()
        for _ in range(10):
            await asyncio.sleep(0)
        assert list(person.inbox.waiting) == ["one", "/later"]
        gate.set()
        await person.inbox.wait_idle()
        assert person.log == ["turn: go", "command: /later", "turn: one"]


@pytest.mark.req("piglet.rule.input-queue")
async def test_somebody_elses_turn_is_waited_for() -> None:
    gate = asyncio.Event()
    async with open_person(gate, asyncio.Event()) as person:
        other = await person.session.send("theirs")
        await wait_begun(person)
        person.inbox.submit("mine")
        assert person.inbox.busy
        for _ in range(10):
            await asyncio.sleep(0)
        assert person.log == ["turn: theirs"]
        gate.set()
        await other
        await person.inbox.wait_idle()
        assert person.log == ["turn: theirs", "turn: mine"]


async def test_a_command_may_close_the_inbox_it_came_through() -> None:
    gate = asyncio.Event()
    gate.set()
    async with open_person(gate, asyncio.Event()) as person:
        ended: list[str] = []

        async def command(text: str) -> None:
            await person.inbox.close()
            ended.append(text)

        person.inbox._command = command
        person.inbox.submit("/quit")
        await person.inbox.wait_idle()
        assert ended == ["/quit"]


async def test_close_forgets_what_waits() -> None:
    gate = asyncio.Event()
    before = asyncio.all_tasks()
    async with open_person(gate, asyncio.Event()) as person:
        person.inbox.submit("go")
        await wait_begun(person)
        person.inbox.submit("more")
        await person.inbox.close()
        assert not person.inbox.waiting
    assert person.log == ["turn: go"]
    assert asyncio.all_tasks() == before

"""The inbox between a person who types whenever they like and a session that takes one prompt at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from serai.agents.driver import Capabilities, Prompt
from serai.agents.event_hub import EventHub
from serai.agents.inbox import Inbox
from serai.agents.session import Session
from serai.agents.turn import Turn
from serai.limits import Limits
from serai.model.events import ToolEnded
from serai.model.tools import ToolCall, ToolResult
from tests.support.agents.scripted_driver import Scripted
from tests.support.agents.scripted_models import Answers, conversation, reply, resident, texts


class GatedSession:
    """An inbox, what it did, and the gate behind which each turn waits."""

    def __init__(self, *, capabilities: Capabilities | None = None, limits: Limits | None = None) -> None:
        self.gate = asyncio.Event()
        self.log: list[str] = []
        self.lane: str | None = None  # in which a tool ends during a turn, if one does
        self.ended: list[str] = []
        self.command_gate = asyncio.Event()
        self.command_gate.set()
        self.driver = Scripted(self._turn)
        if capabilities is not None:
            self.driver.capabilities = capabilities
        self.session = Session(self.driver, limits=limits)

    async def _turn(self, hub: EventHub, prompt: Prompt) -> None:
        self.log.append(f"turn: {prompt.text}")
        await self.gate.wait()
        if self.lane is not None:
            hub.emit(ToolEnded(call=ToolCall("t"), result=ToolResult(), lane=self.lane))

    async def command(self, text: str) -> None:
        self.log.append(f"command: {text}")
        try:
            await self.command_gate.wait()
        finally:
            self.ended.append(text)

    async def begun(self, count: int = 1) -> None:
        async with asyncio.timeout(5.0):
            while len(self.log) < count:
                await asyncio.sleep(0)

    @asynccontextmanager
    async def open(self, *, immediate: Callable[[str], bool] = lambda text: text.startswith("/now")) -> AsyncIterator[Inbox]:
        async with self.session:
            inbox = Inbox(
                self.session,
                Turn.result,
                command=self.command,
                is_command=lambda text: text.startswith("/"),
                is_immediate=immediate,
            )
            yield inbox
            await inbox.close()


async def wait_idle(inbox: Inbox) -> None:
    async with asyncio.timeout(5.0):
        await inbox.wait_idle()


# -- what is steered in


@pytest.mark.req("piglet.rule.input-queue")
@pytest.mark.parametrize(("lane", "steered"), [("", ["more"]), ("helper", [])])
async def test_only_a_tool_of_the_agent_itself_lets_texts_in(lane: str, steered: list[str]) -> None:
    gated = GatedSession()
    gated.lane = lane
    async with gated.open() as inbox:
        inbox.submit("go")
        await gated.begun()
        inbox.submit("more")
        gated.gate.set()
        await wait_idle(inbox)
    assert gated.driver.steered == steered
    assert gated.log == ["turn: go", *([] if steered else ["turn: more"])]


async def test_an_agent_that_cannot_be_steered_gets_the_texts_as_its_next_turn() -> None:
    gated = GatedSession(capabilities=Capabilities(interrupt=True, multi_turn=True))
    gated.lane = ""
    async with gated.open() as inbox:
        inbox.submit("go")
        await gated.begun()
        turn = gated.session.hub.turn
        assert turn is not None
        inbox.submit("more")
        gated.gate.set()
        await wait_idle(inbox)
        assert (await turn).ok
    assert gated.log == ["turn: go", "turn: more"]


# -- commands


@pytest.mark.req("piglet.rule.input-queue")
async def test_during_somebody_elses_turn_a_command_waits_and_an_immediate_one_does_not() -> None:
    gated = GatedSession()
    async with gated.open() as inbox:
        theirs = await gated.session.send("theirs")
        await gated.begun()
        inbox.submit("/now")
        inbox.submit("/later")
        await gated.begun(2)
        for _ in range(5):
            await asyncio.sleep(0)
        assert gated.log == ["turn: theirs", "command: /now"]
        gated.gate.set()
        await theirs
        await wait_idle(inbox)
    assert gated.log == ["turn: theirs", "command: /now", "command: /later"]


@pytest.mark.req("piglet.rule.input-queue")
async def test_only_a_command_is_immediate() -> None:
    gated = GatedSession()
    async with gated.open(immediate=lambda _text: True) as inbox:
        inbox.submit("go")
        await gated.begun()
        inbox.submit("a text")
        assert inbox.waiting == ("a text",)
        gated.gate.set()
        await wait_idle(inbox)
    assert gated.log == ["turn: go", "turn: a text"]


@pytest.mark.req("piglet.rule.input-queue")
async def test_an_immediate_command_needs_no_room() -> None:
    gated = GatedSession(limits=Limits().but(inputs=1))
    async with gated.open() as inbox:
        inbox.submit("go")
        await gated.begun()
        inbox.submit("the only one")
        inbox.submit("/now")
        await gated.begun(2)
        assert gated.log == ["turn: go", "command: /now"]
        gated.gate.set()
        await wait_idle(inbox)


async def test_when_nothing_runs_an_immediate_command_is_one_like_any_other_and_what_follows_waits_for_it() -> None:
    gated = GatedSession()
    gated.gate.set()
    gated.command_gate.clear()
    async with gated.open() as inbox:
        inbox.submit("/now")
        inbox.submit("go")
        await gated.begun()
        for _ in range(5):
            await asyncio.sleep(0)
        assert gated.log == ["command: /now"]
        gated.command_gate.set()
        await wait_idle(inbox)
    assert gated.log == ["command: /now", "turn: go"]


async def test_without_anybody_to_run_them_commands_are_dropped_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    gated = GatedSession()
    gated.gate.set()
    async with gated.session:
        inbox = Inbox(gated.session, Turn.result, is_command=lambda text: text.startswith("/"))
        inbox.submit("/nothing")
        inbox.submit("go")
        await wait_idle(inbox)
    assert gated.log == ["turn: go"]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


# -- until it is idle


async def test_it_is_idle_when_the_commands_beside_a_turn_have_ended_too() -> None:
    gated = GatedSession()
    gated.command_gate.clear()
    async with gated.open() as inbox:
        inbox.submit("go")
        await gated.begun()
        inbox.submit("/now")
        await gated.begun(2)
        gated.gate.set()
        waiting = asyncio.ensure_future(inbox.wait_idle())
        while inbox.busy:
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        gated.command_gate.set()
        await waiting
        assert gated.ended == ["/now"]
        assert not inbox._immediate  # nothing of it is kept


async def test_it_is_not_idle_when_somebody_types_the_moment_it_ends() -> None:
    gated = GatedSession()
    gated.gate.set()
    async with gated.open() as inbox:
        inbox.submit("one")
        assert inbox._working is not None
        inbox._working.add_done_callback(lambda _task: inbox.submit("two"))
        await wait_idle(inbox)
        assert gated.log == ["turn: one", "turn: two"]
        assert not inbox.busy


# -- who is quicker


@pytest.mark.req("piglet.rule.input-queue")
async def test_when_somebody_is_quicker_the_texts_wait_in_their_order() -> None:
    gated = GatedSession()
    async with gated.session:
        inbox = Inbox(gated.session, Turn.result)
        inbox.submit("first")
        await gated.session.send("theirs")  # before the inbox had its turn
        inbox.submit("second")
        await gated.begun()
        gated.gate.set()
        await wait_idle(inbox)
        await inbox.close()
    assert gated.log == ["turn: theirs", "turn: first", "turn: second"]  # the first did not come in the middle of anything


async def test_what_is_typed_while_a_conversation_is_shortened_is_said_afterwards() -> None:
    gate = asyncio.Event()
    async with resident(Answers([reply("x" * 4000)], [gate, reply("brief")], [reply("ok")])) as session:
        await session.turn("tell me")
        shortening = asyncio.ensure_future(session.compact())
        inbox = Inbox(session, Turn.result)
        await asyncio.sleep(0)
        inbox.submit("and now")
        for _ in range(5):
            await asyncio.sleep(0)
        gate.set()
        await shortening
        await wait_idle(inbox)
        await inbox.close()
        assert texts(conversation(session))[-2:] == ["user: and now", "assistant: ok"]


# -- the end


async def test_closing_ends_the_commands_that_run_and_listens_no_more() -> None:
    gated = GatedSession()
    gated.command_gate.clear()
    async with gated.open() as inbox:
        listeners = len(gated.session.hub.listeners)
        inbox.submit("go")
        await gated.begun()
        inbox.submit("/now")
        await gated.begun(2)
        await inbox.close()
        assert gated.ended == ["/now"]  # it has tidied up
        assert len(gated.session.hub.listeners) == listeners - 1


async def test_a_command_that_does_not_end_does_not_keep_the_inbox_from_closing() -> None:
    gated = GatedSession(limits=Limits().but(interrupt=0.02))
    release, running = asyncio.Event(), asyncio.Event()

    async def stubborn(text: str) -> None:
        while not release.is_set():
            running.set()
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async with gated.session:
        inbox = Inbox(gated.session, Turn.result, command=stubborn, is_command=lambda _text: True)
        inbox.submit("/stay")
        await running.wait()
        try:
            async with asyncio.timeout(5.0):
                await inbox.close()
        finally:
            release.set()
        await wait_idle(inbox)

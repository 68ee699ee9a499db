"""A session's end and what it refuses: agents that cannot be interrupted, disks that are full, callers who come too late."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from serai.agents.driver import Capabilities, Prompt
from serai.agents.event_hub import EventHub
from serai.agents.session import Session
from serai.agents.turn import Turn
from serai.errors import Closed, NotCapable, NotWritten, SeraiError
from serai.limits import Limits
from serai.model.events import Event, Text, TurnResult, event_kind
from serai.store import AssistantMessage, SessionFolder, UserMessage
from serai.store.session_folder import CurrentSession
from tests.support.agents.scripted_driver import Scripted, create_session, echo_prompt, start_and_hang
from tests.support.agents.scripted_models import QUICK, Answers, reply, resident

SHORT = Limits().but(interrupt=0.05)
EVERYTHING = Capabilities(interrupt=True, multi_turn=True, fork=True, steer=True, switch_model=True, modes=True, compact=True)


# -- interrupts


@pytest.mark.req("agents.rule.49")
async def test_an_agent_that_cannot_be_interrupted_is_ended_and_its_last_words_are_heard() -> None:
    class Broken(Scripted):
        async def run(self, prompt: Prompt) -> TurnResult:
            assert self.hub is not None
            if prompt.text == "go on":
                return TurnResult(status="success", text="here")
            self.hub.emit(Text(text="on it"))
            try:
                await asyncio.Event().wait()
            finally:
                self.hub.emit(Text(text="last words"))
            raise AssertionError

        async def interrupt(self, reason: str) -> None:
            raise RuntimeError("the wire is broken")

    async with Session(Broken(echo_prompt), limits=SHORT) as there:
        turn = there.turn("go")
        events: list[Event] = []
        async with asyncio.timeout(5.0):
            async for event in turn:
                events.append(event)
                if isinstance(event, Text) and event.text == "on it":
                    await turn.cancel("enough")
        assert [event.text for event in events if isinstance(event, Text)] == ["on it", "last words"]
        assert event_kind(events[-1]) == "turn_ended"
        assert turn.outcome is not None
        assert (turn.outcome.status, turn.outcome.error) == ("cancelled", "enough")
        assert (await there.turn("go on")).text == "here"


async def test_an_agent_without_interrupts_is_not_interrupted() -> None:
    driver = Scripted(start_and_hang)
    driver.capabilities = Capabilities()
    async with Session(driver, limits=SHORT) as there:
        turn = await there.send("go")
        with pytest.raises(NotCapable, match="interrupt"):
            await there.interrupt()
        assert not turn.done


async def test_the_mark_of_an_interrupt_is_kept_once_also_when_the_agent_ends_later(tmp_path: Path) -> None:
    release = asyncio.Event()

    class Stubborn(Scripted):
        async def run(self, prompt: Prompt) -> TurnResult:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            return TurnResult(status="cancelled", error="at last")

    stored = SessionFolder(str(tmp_path)).create("/app")
    async with Session(Stubborn(echo_prompt), store=stored, limits=SHORT) as there:
        turn = await there.send("go")
        await asyncio.sleep(0)
        await turn.cancel("enough")
        over = turn.done  # whatever the agent does
        release.set()
        assert over
        assert there._playing is not None
        await asyncio.wait([there._playing])
    with SessionFolder(str(tmp_path)).open(stored.id) as again:
        said = [message.content for message in again.read_messages() if isinstance(message, UserMessage)]
    assert said == ["go", "[Request interrupted: enough]"]


async def test_when_the_mark_cannot_be_kept_the_turn_ends_with_that_error(tmp_path: Path) -> None:
    async def leaves(hub: EventHub, prompt: Prompt) -> TurnResult:
        return TurnResult(status="cancelled", error="by itself")

    def full(reason: str) -> None:
        raise NotWritten("no space left on device")

    async with Session(Scripted(leaves), store=SessionFolder(str(tmp_path)).create("/app")) as there:
        assert there._persistence is not None
        there._persistence.aborted = full
        async with asyncio.timeout(5.0):
            with pytest.raises(NotWritten):
                await there.turn("go")
        assert there.state == "idle"


# -- steering


async def test_without_a_turn_nothing_is_steered() -> None:
    async with create_session(echo_prompt) as there:
        with pytest.raises(Closed, match="no turn runs"):
            there.steer("left")
        assert there.driver.steered == []  # type: ignore[attr-defined]


async def wait_begun(turn: Turn) -> None:
    while not turn.began:
        await asyncio.sleep(0)


async def test_half_a_character_is_not_steered_in() -> None:
    async with create_session(start_and_hang) as there:
        turn = await there.send("go")
        await wait_begun(turn)
        there.steer("half \udc80")
        [text] = there.driver.steered  # type: ignore[attr-defined]
        assert text.encode().startswith(b"half ")
        await turn.cancel()


async def test_what_the_agent_refuses_to_be_told_is_not_kept_as_said(tmp_path: Path) -> None:
    class Busy(Scripted):
        def steer(self, text: str) -> None:
            raise Closed("the turn is about to end")

    stored = SessionFolder(str(tmp_path)).create("/app")
    async with Session(Busy(start_and_hang), store=stored) as there:
        turn = await there.send("go")
        await wait_begun(turn)
        with pytest.raises(Closed):
            there.steer("too late")
        await turn.cancel("enough")
    with SessionFolder(str(tmp_path)).open(stored.id) as again:
        assert "too late" not in str(again.read_messages())


# -- the end


async def test_after_the_end_every_door_says_that_it_is_closed() -> None:
    driver = Scripted(echo_prompt)
    driver.capabilities = EVERYTHING
    there = Session(driver)
    async with there:
        pass
    for enter in (there.compact, lambda: there.set_model("m"), lambda: there.set_mode("plan")):
        with pytest.raises(Closed, match="the session is closed"):
            await enter()
    for call in (there.fork, lambda: there.steer("left")):
        with pytest.raises(Closed, match="the session is closed"):
            call()


async def test_an_agent_is_closed_when_its_start_has_been_given_up() -> None:
    order: list[str] = []

    class Slow(Scripted):
        async def open(self, hub: EventHub) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                order.append("given up")

        async def close(self) -> None:
            order.append("closed")

    there = Session(Slow(echo_prompt))
    opening = asyncio.ensure_future(there.open())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await there.close()
    with pytest.raises(Closed):
        await opening
    assert order == ["given up", "closed"]


async def test_a_session_is_idle_when_its_turn_is_over() -> None:
    gate = asyncio.Event()

    async def play(hub: EventHub, prompt: Prompt) -> None:
        await gate.wait()

    async with create_session(play) as there:
        await there.idle()
        turn = await there.send("go")
        idle = asyncio.ensure_future(there.idle())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not idle.done()
        gate.set()
        await idle
        assert turn.done


async def test_who_is_no_longer_told_of_turns_is_not() -> None:
    async with create_session(echo_prompt) as there:
        begun: list[Turn] = []
        stop = there.on_turn(begun.append)
        stop()
        stop()
        turn = Turn(Prompt("by myself"), there.hub)
        there.hub.announce(turn)
        there.hub.end(turn, TurnResult(status="success"))
        assert begun == []


async def test_a_fork_has_the_limits_of_its_parent() -> None:
    async with resident(Answers([reply("ok")]), limits=QUICK.but(steps=7)) as there:
        assert there.fork().limits.steps == 7


# -- what is kept


async def test_what_was_said_outside_of_turns_is_on_disk_at_the_end_and_nobody_writes_any_more(tmp_path: Path) -> None:
    class Greets(Scripted):
        async def open(self, hub: EventHub) -> None:
            await super().open(hub)
            hub.emit(Text(text="hello"))

    sessions = SessionFolder(str(tmp_path))
    current = CurrentSession(sessions.create("/app"))
    async with Session(Greets(echo_prompt), store=current):
        assert len(current.writers) == 1
    assert current.writers == []
    with sessions.open(current.session.id) as again:
        [message] = again.read_messages()
    assert isinstance(message, AssistantMessage)
    assert "hello" in str(message.content)


async def test_an_end_that_cannot_be_written_is_told_and_the_session_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise NotWritten("no space left on device")

    stored = SessionFolder(str(tmp_path)).create("/app")
    async with Session(Scripted(echo_prompt), store=stored) as there:
        stored.sync = full  # type: ignore[method-assign]
    assert there.state == "closed"
    assert "could not be written" in caplog.text
    with pytest.raises(SeraiError):
        await there.turn("more")

"""What guests may do to the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from serai.agents.resident import conversation as resident_conversation
from serai.agents.resident.driver import Resident
from serai.agents.session import Session
from serai.app.services.agent_services import ControlService
from serai.errors import BadRequest, NotCapable, Refused, TurnInFlight
from serai.model.provider import ModelMessage
from serai.store.messages import UserMessage
from serai.store.session_folder import SessionFolder
from tests.support.agents.conversations import get_driver
from tests.support.agents.scripted_models import Answers, call, conversation, reply, texts
from tests.support.app.service_requests import ServiceCaller, resident


class Harness:
    """What stands for the app: it aborts as the app does."""

    def __init__(self, session: Session, registered: Callable[[], bool] = lambda: False) -> None:
        self.session = session
        self.queued: list[str] = []
        self.steered: list[str] = []
        self.quits = 0
        self.ask = ServiceCaller(
            ControlService(
                session,
                lambda: get_driver(session),
                queue=self.queued.append,
                steer=self.steered.append,
                idle=lambda _guest: session.idle(),
                registered=registered,
                abort=self.abort,
                quit=self.quit,
            )
        )

    async def abort(self, reason: str, *, mark: bool) -> None:
        if self.session.hub.turn is not None:
            await self.session.interrupt(reason, mark=mark)
        elif mark:
            self.session.aborted(reason)
            conversation(self.session).append(resident_conversation.build_abort_marker(reason))

    def quit(self) -> None:
        self.quits += 1


@pytest.mark.req("piglet.fix.27")
async def test_before_the_first_turn_nothing_runs_and_nobody_waits() -> None:
    async with resident(Answers([reply("x")])) as session, asyncio.timeout(30):
        assert await Harness(session).ask("wait_idle") == {}


async def test_who_waits_for_the_end_of_a_turn_is_told_of_it() -> None:
    go = asyncio.Event()
    async with resident(Answers([go, reply("x")])) as session:
        turn = await session.send("hi")
        waiting = asyncio.ensure_future(Harness(session).ask("wait_idle"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        go.set()
        assert (await turn).ok
        assert await waiting == {}


async def test_step_mode_is_switched_on_and_off() -> None:
    async with resident(Answers([reply("x")])) as session:
        ask = Harness(session).ask
        assert await ask("step_mode") == {"on": True}
        assert get_driver(session).context.step_mode
        assert await ask("step_mode") == {"on": False}


async def test_texts_go_where_they_are_meant_to() -> None:
    async with resident(Answers([reply("x")])) as session:
        harness = Harness(session)
        assert await harness.ask("send", content="check the alert") == {}
        assert await harness.ask("steer", content="use metric") == {}
        assert await harness.ask("quit") == {}
        assert (harness.queued, harness.steered, harness.quits) == (["check the alert"], ["use metric"], 1)
        for what in ("send", "steer"):
            with pytest.raises(BadRequest, match=f"{what}: the content is empty"):
                await harness.ask(what, content="\n")


async def test_an_abort_ends_the_turn_and_is_nothing_when_none_runs() -> None:
    async with resident(Answers([asyncio.Event()])) as session:
        harness = Harness(session)
        assert await harness.ask("abort") == {}
        assert conversation(session) == []
        turn = await session.send("hi")
        assert await harness.ask("abort") == {}
        assert (await turn).status == "cancelled"


@pytest.mark.req("piglet.fix.33")
@pytest.mark.parametrize("running", [True, False])
async def test_the_mark_of_an_abort_is_in_memory_and_on_disk(tmp_path: Path, running: bool) -> None:
    with SessionFolder(tmp_path).create(str(tmp_path)) as stored:
        async with resident(Answers([asyncio.Event()] if running else [reply("x")]), store=stored) as session:
            turn = await session.send("hi")
            if not running:
                await turn
            assert await Harness(session).ask("abort_with_marker", reason="plan mode") == {}
            if running:
                assert (await turn).status == "cancelled"
            assert texts(conversation(session))[-1] == "user: [Request interrupted: plan mode]"
            said_ = [message.content for message in stored.read_messages() if isinstance(message, UserMessage)]
            assert said_ == ["hi", "[Request interrupted: plan mode]"]


@pytest.mark.req("piglet.fix.30")
async def test_a_conversation_that_is_shortened_is_shorter_on_disk_too(tmp_path: Path) -> None:
    with SessionFolder(tmp_path).create(str(tmp_path)) as stored:
        long = reply("word " * 2000)
        async with resident(Answers([long], [long], [long], [reply("In short.")]), store=stored) as session:
            ask = Harness(session).ask
            assert await ask("has_compactor") == {"present": True, "registered": False}
            for prompt in ("one", "two", "three"):
                await session.turn(prompt)
            counts = await ask("compact")
            assert counts == {"before": 6, "after": len(conversation(session))}
            assert counts["after"] < 6
            assert [entry.type for entry in stored.read_path() if entry.type != "event"][-1] == "compact"
            assert len(stored.read_messages()) == counts["after"]


async def test_who_wants_a_guests_compactor_gets_no_summary_of_ours_instead() -> None:
    there = [False]
    long = reply("word " * 2000)

    async def digest(messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
        if len(messages) > 1:
            return [resident_conversation.build_user_message("In short.")]
        raise Refused("it is short enough")

    async with resident(Answers([long]), compactor=digest) as session:
        ask = Harness(session, registered=lambda: there[0]).ask
        await session.turn("hi")
        with pytest.raises(NotCapable, match="no compactor registered"):
            await ask("compact", registered=True)
        there[0] = True
        assert await ask("has_compactor") == {"present": True, "registered": True}
        assert await ask("compact", registered=True) == {"before": 2, "after": 1}
        with pytest.raises(Refused, match="it is short enough"):
            await ask("compact", registered=True)
        assert texts(conversation(session)) == ["user: In short."]


async def test_who_wants_the_run_ended_ends_what_works_on_the_side_first() -> None:
    async with resident(Answers([asyncio.Event()])) as session:
        harness = Harness(session)
        get_driver(session).backgrounds.start("long")
        assert await harness.ask("quit") == {}
        assert (get_driver(session).backgrounds.running, harness.quits) == ((), 1)


async def test_nothing_is_shortened_while_a_turn_runs() -> None:
    go = asyncio.Event()
    async with resident(Answers([reply("", call("echo")), go], [reply("x")])) as session:
        turn = await session.send("hi")
        with pytest.raises(TurnInFlight):
            await Harness(session).ask("compact")
        go.set()
        await turn


async def test_of_an_agent_that_is_not_ours_nothing_is_claimed() -> None:
    async with resident(Answers([reply("word " * 2000)], [reply("x")])) as session:
        await session.turn("hi")

        def driven() -> Resident:
            raise NotCapable("only the resident's")

        harness = Harness(session)

        async def idle(_guest: str) -> None:
            await session.idle()

        ask = ServiceCaller(
            ControlService(session, driven, queue=print, steer=print, idle=idle, abort=harness.abort, quit=harness.quit)
        )
        assert await ask("compact") == {"before": 0, "after": 0}
        with pytest.raises(NotCapable):
            await ask("step_mode")
        assert await ask("quit") == {}
        assert harness.quits == 1

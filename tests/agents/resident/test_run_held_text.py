"""Text that is held back until somebody has looked at it: nothing of it gets out on any other way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from serai.agents.session import Session
from serai.errors import ModelFailed
from serai.model.events import Event, Message, Text, Thinking
from serai.model.provider import Chunk
from serai.store import SessionFolder
from tests.support.agents.scripted_models import QUICK, Answers, call, conversation, kinds, reply, resident, texts


class Holding:
    """Looks at every message, as long as it likes."""

    def __init__(self, *, hold: bool = True, hide: str = "") -> None:
        self.hold_text = hold
        self.hide = hide
        self.seen: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def before_step(self, step: int) -> str:
        return ""

    async def filter_message(self, message: Message) -> Message | None:
        self.seen.append(message.text)
        await self.gate.wait()
        return None if message.text == self.hide else message


async def test_after_another_attempt_it_is_told_once() -> None:
    cut = ModelFailed("broke off", temporary=True)
    provider = Answers([Chunk("half of"), cut], [Chunk("who"), Chunk("le"), reply("whole")])
    async with resident(provider, interceptors=Holding()) as session:
        events = [event async for event in session.turn("go")]
    assert "".join(event.text for event in events if isinstance(event, Text)) == "whole"


@pytest.mark.parametrize("how", ["cancelled", "failed"])
async def test_what_nobody_has_looked_at_is_not_seen_when_the_turn_ends_early(how: str, tmp_path: Path) -> None:
    stored = SessionFolder(str(tmp_path)).create("/app")
    end = asyncio.Event() if how == "cancelled" else ModelFailed("bad request", status=400)
    made = resident(Answers([Chunk("the secret"), Chunk("hm", "thinking"), end]), interceptors=Holding())
    async with Session(made.driver, store=stored, limits=QUICK) as session:
        events: list[Event] = []
        turn = session.turn("go")
        try:
            async with asyncio.timeout(5.0):
                async for event in turn:
                    events.append(event)
                    if isinstance(event, Thinking) and how == "cancelled":
                        await turn.cancel("enough")
        except ModelFailed:
            pass
        assert "thinking" in kinds(events)
        assert "secret" not in repr(events)
        assert "secret" not in repr(conversation(session))
        with SessionFolder(str(tmp_path)).open(stored.id) as again:
            assert "secret" not in repr(again.read_messages())


async def test_thinking_is_not_held_back() -> None:
    gate = asyncio.Event()
    provider = Answers([Chunk("hm", "thinking"), Chunk("text"), gate, reply("text")])
    async with resident(provider, interceptors=Holding()) as session:
        async with asyncio.timeout(5.0):
            async for event in session.turn("go"):
                if isinstance(event, Thinking):
                    gate.set()


async def test_the_result_of_a_turn_has_nothing_of_what_is_hidden_and_nothing_of_the_step_before() -> None:
    provider = Answers([reply("one", call("echo"))], [reply("two")])
    async with resident(provider, interceptors=Holding(hide="two")) as session:
        result = await session.turn("go")
    assert result.text == ""
    assert texts(conversation(session))[-1] == "assistant: two"


async def test_a_message_without_text_is_shown_to_nobody_first() -> None:
    holding = Holding()
    async with resident(Answers([reply("", call("echo"))], [reply("done")]), interceptors=holding) as session:
        await session.turn("go")
    assert holding.seen == ["done"]


@pytest.mark.req("piglet.rule.loop-interrupted")
async def test_what_had_been_seen_stays_when_it_is_cancelled_while_somebody_looks_at_the_whole() -> None:
    holding = Holding(hold=False)
    holding.gate.clear()
    async with resident(Answers([Chunk("so far"), reply("so far")]), interceptors=holding) as session:
        turn = await session.send("go")
        turn.taken = True
        while not holding.seen:
            await asyncio.sleep(0)
        await turn.cancel("enough")
    assert texts(conversation(session)) == ["user: go", "assistant: so far", "user: [Request interrupted: enough]"]

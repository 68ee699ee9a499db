"""A surface that is slow, late, mute or untidy does no harm to the turn that asks it."""

from __future__ import annotations

import asyncio
import logging

import pytest

from serai.agents.driver import Prompt
from serai.agents.event_hub import EventHub
from serai.agents.turn import run_turn
from serai.model.approvals import Allow, Approval, Decision, Deny, Question
from serai.model.events import Event, TurnResult, event_kind
from serai.model.surface import HeadlessSurface
from serai.model.tools import ToolCall
from tests.support.agents.scripted_driver import create_session

CALL = ToolCall("bash", {"command": "ls"}, "c1")


async def ask_approval(hub: EventHub, prompt: Prompt) -> TurnResult:
    decision = await hub.ask(Approval(id="a", call=CALL))
    await asyncio.sleep(0)
    return TurnResult(status="success", text=repr(decision))


class Slow(HeadlessSurface):
    """Answers when it is let, and has something to tidy up."""

    def __init__(self) -> None:
        self.asked, self.gate = asyncio.Event(), asyncio.Event()
        self.tidy = False

    async def ask(self, request: Approval | Question) -> Decision:
        self.asked.set()
        try:
            await self.gate.wait()
        finally:
            await asyncio.sleep(0)
            self.tidy = True
        return Allow()


async def test_an_answer_that_comes_after_somebody_elses_is_only_noted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "serai.agents")
    surface = Slow()

    async def play(hub: EventHub, prompt: Prompt) -> TurnResult:
        decision = await hub.ask(Approval(id="a", call=CALL))
        surface.gate.set()
        while not surface.tidy:
            await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)
        return TurnResult(status="success", text=repr(decision))

    async with create_session(play) as there:
        driving = asyncio.ensure_future(run_turn(there.turn("go"), surface))
        await surface.asked.wait()
        await there.answer("a", Deny("first"))
        assert (await driving).text == repr(Deny("first"))
    assert "the answer to a came too late" in caplog.text


async def test_when_a_turn_has_been_driven_nobody_is_asked_any_more() -> None:
    surface = Slow()
    async with create_session(ask_approval) as there:
        turn = there.turn("go")
        driving = asyncio.ensure_future(run_turn(turn, surface))
        await surface.asked.wait()
        await turn.cancel("enough")
        assert (await driving).status == "cancelled"
        assert surface.tidy

    surface = Slow()
    async with create_session(ask_approval) as there:
        driving = asyncio.ensure_future(run_turn(there.turn("go"), surface))
        await surface.asked.wait()
        await there.answer("a", Allow())
        assert (await driving).ok
        assert surface.tidy


async def test_a_surface_that_fails_without_a_word_denies_with_the_name_of_its_failure() -> None:
    class Mute(HeadlessSurface):
        async def ask(self, request: Approval | Question) -> Decision:
            raise TimeoutError

    async with create_session(ask_approval) as there:
        assert (await run_turn(there.turn("go"), Mute())).text == repr(Deny("TimeoutError"))


async def test_the_sink_is_told_of_what_was_withdrawn() -> None:
    async def play(hub: EventHub, prompt: Prompt) -> None:
        await hub.ask(Approval(id="a", call=CALL), timeout=0.001)

    sunk: list[Event] = []
    async with create_session(play) as there:
        await run_turn(there.turn("go"), Slow(), sunk.append)
    assert [event_kind(event) for event in sunk] == ["turn_started", "approval", "request_cancelled", "turn_ended"]

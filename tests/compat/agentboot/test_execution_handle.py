"""A handle that its producer holds: events in order, answers by their id, one end for all who wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.compat.agentboot import (
    ApprovalRequestEvent,
    ApprovalResponse,
    AskRequestEvent,
    AskResponse,
    ControlledHandle,
    ControlResponse,
    ErrHandleClosed,
    ErrUnknownRequestID,
    HandleClosed,
    HandleControls,
    MessageEvent,
    RequestCancelled,
    Result,
    StreamEvent,
    UnknownRequestId,
    Waited,
    new_controlled_handle,
)


class Agent:
    """In this process: remembers what it is told."""

    def __init__(self, buffer: int = 10, *, waited: Waited | None = None) -> None:
        self.answers: list[tuple[str, ControlResponse]] = []
        self.cancels = 0
        self.waits = 0
        self._waited = waited or Waited(Result())
        self.handle, self.controls = new_controlled_handle(buffer, self._answer, self._cancel, self._wait)

    def _answer(self, id: str, response: ControlResponse) -> None:
        self.answers.append((id, response))

    def _cancel(self) -> None:
        self.cancels += 1

    def _wait(self) -> Waited:
        self.waits += 1
        return self._waited


async def emit_all(controls: HandleControls, *events: StreamEvent) -> None:
    for event in events:
        await controls.emit(event)
    controls.close()


YES = ApprovalResponse(approved=True)


@pytest.mark.req("agents.scenario.H1")
async def test_events_come_in_the_order_in_which_they_were_told() -> None:
    agent = Agent(2)
    telling = asyncio.ensure_future(emit_all(agent.controls, *(MessageEvent(number) for number in range(50))))
    assert [event.raw async for event in agent.handle.events() if isinstance(event, MessageEvent)] == list(range(50))
    await telling


@pytest.mark.req("agents.scenario.H2")
async def test_to_close_twice_does_no_harm_and_what_was_told_is_still_read() -> None:
    agent = Agent()
    await agent.controls.emit(MessageEvent("last"))
    agent.controls.close()
    agent.controls.close()
    assert [event async for event in agent.handle.events()] == [MessageEvent("last")]
    await agent.controls.emit(MessageEvent("too late"))
    assert [event async for event in agent.handle.events()] == []


@pytest.mark.req("agents.scenario.H3", "agents.rule.16")
async def test_an_answer_gets_to_the_agent_under_its_id_also_from_whoever_answers_at_once() -> None:
    agent = Agent(0)
    telling = asyncio.ensure_future(emit_all(agent.controls, ApprovalRequestEvent(id="a"), AskRequestEvent(id="q")))
    asked = AskResponse(approved=True, response="blue")
    async for event in agent.handle.events():
        if isinstance(event, ApprovalRequestEvent):
            await agent.handle.respond(event.id, YES)
        elif isinstance(event, AskRequestEvent):
            await agent.handle.respond(event.id, asked)
    await telling
    assert agent.answers == [("a", YES), ("q", asked)]
    assert agent.answers[0][1] is YES


@pytest.mark.req("agents.scenario.H4", "agents.scenario.H5", "agents.edge.05")
async def test_an_id_that_waits_for_nothing_is_unknown_and_nobody_is_called() -> None:
    agent = Agent()
    await agent.controls.emit(ApprovalRequestEvent(id="a"))
    with pytest.raises(UnknownRequestId, match="agentboot: unknown request id"):
        await agent.handle.respond("b", YES)
    await agent.handle.respond("a", YES)
    with pytest.raises(ErrUnknownRequestID):
        await agent.handle.respond("a", YES)
    assert agent.answers == [("a", YES)]


@pytest.mark.req("agents.scenario.H6", "agents.edge.05")
async def test_after_the_end_nothing_can_be_answered() -> None:
    agent = Agent()
    await agent.controls.emit(ApprovalRequestEvent(id="a"))
    agent.controls.close()
    with pytest.raises(HandleClosed, match="agentboot: execution handle closed"):
        await agent.handle.respond("a", YES)
    with pytest.raises(ErrHandleClosed):
        await agent.handle.respond("never", YES)
    assert agent.answers == []


@pytest.mark.req("agents.edge.05")
async def test_an_answer_of_the_wrong_kind_uses_nothing_up() -> None:
    agent = Agent()
    await agent.controls.emit(ApprovalRequestEvent(id="a"))
    with pytest.raises(TypeError, match="the answer to a is ApprovalResponse, not AskResponse"):
        await agent.handle.respond("a", AskResponse(approved=True))
    await agent.handle.respond("a", YES)
    assert agent.answers == [("a", YES)]


@pytest.mark.req("agents.edge.05")
async def test_a_request_that_was_withdrawn_is_unknown() -> None:
    agent = Agent()
    await agent.controls.emit(ApprovalRequestEvent(id="a"))
    await agent.controls.emit(RequestCancelled("a", "changed its mind"))
    with pytest.raises(UnknownRequestId):
        await agent.handle.respond("a", YES)


@pytest.mark.req("agents.scenario.H7")
async def test_to_cancel_three_times_calls_the_agent_once() -> None:
    agent = Agent()
    for _ in range(3):
        agent.handle.cancel()
    assert agent.cancels == 1


@pytest.mark.req("agents.scenario.H8", "agents.rule.15")
async def test_all_who_wait_get_the_very_result_and_error() -> None:
    supplied = Waited(Result(output="42"), ValueError("and yet"))
    agent = Agent(waited=supplied)
    early = [asyncio.ensure_future(agent.handle.wait()) for _ in range(3)]
    agent.controls.close()
    for result, error in [*await asyncio.gather(*early), await agent.handle.wait()]:
        assert result is supplied.result
        assert error is supplied.error
    assert agent.waits == 1
    with pytest.raises(ValueError, match="and yet"):
        (await agent.handle.wait()).unwrap()


@pytest.mark.req("agents.scenario.H9")
@pytest.mark.parametrize("buffer", [0, 1])
async def test_who_is_cancelled_while_it_waits_for_room_has_told_nothing(buffer: int) -> None:
    agent = Agent(buffer)
    if buffer:
        await agent.controls.emit(MessageEvent("fills it"))
    telling = asyncio.ensure_future(agent.controls.emit(ApprovalRequestEvent(id="a")))
    await asyncio.sleep(0)
    assert not telling.done()
    telling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await telling
    with pytest.raises(UnknownRequestId):
        await agent.handle.respond("a", YES)
    agent.controls.close()
    assert [event async for event in agent.handle.events()] == [MessageEvent("fills it")] * buffer


@pytest.mark.req("agents.scenario.H9")
async def test_the_end_lets_those_go_who_wait_for_room() -> None:
    agent = Agent(0)
    telling = asyncio.ensure_future(agent.controls.emit(ApprovalRequestEvent(id="a")))
    await asyncio.sleep(0)
    agent.controls.close()
    await telling
    assert [event async for event in agent.handle.events()] == []


@pytest.mark.req("agents.scenario.H10")
async def test_nothing_is_left_of_an_execution_once_its_stream_has_ended() -> None:
    before = asyncio.all_tasks()
    agent = Agent(1)
    events = (MessageEvent(1), ApprovalRequestEvent(id="a"), MessageEvent(2), AskRequestEvent(id="q"), MessageEvent(3))
    telling = asyncio.ensure_future(emit_all(agent.controls, *events))
    async with agent.handle as handle:
        async for event in handle.events():
            if isinstance(event, ApprovalRequestEvent):
                await handle.respond(event.id, YES)
    await telling
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_an_agent_may_be_async() -> None:
    heard: list[Any] = []

    async def respond(id: str, response: ControlResponse) -> None:
        await asyncio.sleep(0)
        heard.append((id, response))

    async def wait() -> tuple[Result, BaseException | None]:
        await asyncio.sleep(0)
        return Result(output="late"), None

    handle, controls = new_controlled_handle(1, respond, lambda: heard.append("cancel"), wait)
    await controls.emit(ApprovalRequestEvent(id="a"))
    await handle.respond("a", YES)
    async with handle:
        pass
    assert heard == [("a", YES), "cancel"]
    assert (await handle.wait()).unwrap().output == "late"


async def test_a_handle_has_one_reader() -> None:
    agent = Agent()
    first = asyncio.ensure_future(anext(agent.handle.events()))
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="one reader"):
        await anext(agent.handle.events())
    await agent.controls.emit(MessageEvent("for the first"))
    assert await first == MessageEvent("for the first")


Action = Callable[[ControlledHandle, HandleControls, list[int]], Any]


@given(buffer=st.integers(0, 3), actions=st.lists(st.sampled_from(["tell", "take", "drop", "close"]), max_size=40))
def test_whatever_happens_what_is_read_is_what_was_accepted_in_order(buffer: int, actions: list[str]) -> None:
    async def play() -> None:
        agent = Agent(buffer)
        told: list[tuple[int, asyncio.Future[None]]] = []
        read: list[Any] = []
        for number, action in enumerate(actions):
            if action == "tell":
                told.append((number, asyncio.ensure_future(agent.controls.emit(MessageEvent(number)))))
            elif action == "take" and agent.handle._queue:
                read.append(await anext(agent.handle.events()))
            elif action == "drop" and told:
                told[-1][1].cancel()
            elif action == "close":
                agent.controls.close()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        agent.controls.close()
        read += [event async for event in agent.handle.events()]
        await asyncio.gather(*(task for _, task in told), return_exceptions=True)
        numbers = [event.raw for event in read]
        dropped = {number for number, task in told if task.cancelled()}
        assert numbers == sorted(numbers)
        assert not dropped & set(numbers)

    asyncio.run(play())

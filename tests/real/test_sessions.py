"""Conversations of the real program: gone on with, forked, chosen; turns that it begins by itself."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import uuid4

from serai.agents.turn import Turn
from serai.model.approvals import Allow, Approval
from tests.support.claude.real_claude import Real, collect_events, select_events


def read_last_request(real: Real) -> str:
    """What the newest request of the model had in it."""
    return json.dumps([request.body for request in real.models.requests if request.path == "/v1/messages"][-1]["messages"])


async def test_a_conversation_goes_on_in_another_process(real: Real) -> None:
    async with real.agent() as session:
        first = await session.turn(">> say remember the otter")
    async with real.agent(resume=first.session) as session:
        second = await session.turn(">> say I do")
    assert second.session == first.session
    assert "remember the otter" in read_last_request(real)


async def test_the_newest_conversation_of_the_folder_goes_on(real: Real) -> None:
    async with real.agent() as session:
        first = await session.turn(">> say remember the otter")
    async with real.agent(latest=True) as session:
        second = await session.turn(">> say I do")
    assert second.session == first.session == session.id
    assert "remember the otter" in read_last_request(real)


async def test_a_fork_leaves_the_first_as_it_was(real: Real) -> None:
    async with real.agent() as session:
        first = await session.turn(">> say remember the otter")
    async with real.agent(resume=first.session, fork=True) as session:
        fork = await session.turn(">> say in the fork")
        assert session.id == fork.session
    assert fork.session != first.session
    assert "remember the otter" in read_last_request(real)
    async with real.agent(resume=first.session) as session:
        await session.turn(">> say again")
    assert "in the fork" not in read_last_request(real)


async def test_a_session_is_forked_while_it_is_open(real: Real) -> None:
    async with real.agent() as session:
        await session.turn(">> say remember the otter")
        async with session.fork() as fork:
            await fork.turn(">> say in the fork")
            assert "remember the otter" in read_last_request(real)
            assert fork.id not in ("", session.id)
        assert (await session.turn(">> say on")).session == session.id


async def test_a_conversation_has_the_id_that_was_chosen(real: Real) -> None:
    id = str(uuid4())
    async with real.agent(session_id=id) as session:
        assert (await session.turn(">> say hello")).session == id
        assert session.id == id


async def test_the_mode_and_the_model_are_changed_while_it_runs(real: Real) -> None:
    async with real.agent() as session:
        await session.turn(">> say hello")
        await session.set_model("claude-haiku-4-5")
        await session.set_mode("acceptEdits")
        turn = session.turn('>> call Write {"file_path": "made", "content": "x"}\n>> say done')
        seen = await collect_events(turn)
        await turn
    assert not select_events(seen, Approval)
    assert (real.cwd / "made").exists()
    assert [request.body for request in real.models.requests if request.path == "/v1/messages"][-1]["model"] == "claude-haiku-4-5"


async def test_what_an_agent_of_the_background_asks_after_the_result_is_answered(real: Real) -> None:
    """And the turn that begins by itself when that has ended is announced (spec agents 2.11)."""
    script = '>> wait 1\n>> call Bash {"command": "echo sub > made"}\n>> say sub is done'
    call: dict[str, Any] = {"description": "d", "prompt": script, "subagent_type": "general-purpose", "run_in_background": True}
    own: asyncio.Queue[Turn] = asyncio.Queue()
    approvals: list[Approval] = []
    async with real.agent() as session:
        session.on_turn(own.put_nowait)

        def listen(event: Any) -> None:
            if isinstance(event, Approval):
                approvals.append(event)

        session.listen(listen)
        result = await session.turn(f">> call Agent {json.dumps(call)}\n>> say done")
        assert result.text == "done"
        await real.until(lambda: bool(session.pending))
        [pending] = session.pending
        await pending.decide(Allow())
        turn = await asyncio.wait_for(own.get(), 30)
        await asyncio.wait_for(turn.over(), 30)
        await session.idle()
        assert turn.outcome is not None
        assert turn.outcome.status == "success"
        assert (real.cwd / "made").exists()
        assert (await session.turn(">> say on")).text == "on"

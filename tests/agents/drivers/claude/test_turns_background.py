"""What it does beside our turns: turns of its own, sub-agents and what they ask, and until when one must wait for it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from serai.agents.session import Session
from serai.agents.turn import Turn
from serai.errors import AgentFailed, TurnInFlight
from serai.model.approvals import Allow, Approval, Question
from serai.model.events import Event, RequestCancelled, TurnEnded
from serai.testing.claude.script import Script
from tests.support.claude.captures import LIMITS
from tests.support.claude.scripted_sessions import (
    AGENT,
    ASKS,
    QUICK,
    Answering,
    Seen,
    driver_of,
    play,
    poll,
    program,
    read,
    scripted_session,
    wait_for,
)

ANSWERED = 'decided = answer("r1")'


def is_approval(event: Event) -> bool:
    return isinstance(event, Approval)


@pytest.mark.req("agents.live.Z4")
async def test_what_a_sub_agent_asks_before_the_result_can_be_answered_after_it(tmp_path: Path) -> None:
    async with program(tmp_path, AGENT.format(before=ASKS, after=ANSWERED)) as session:
        seen = await play(session, answer=None)
        assert seen.result.text == "it looks"
        [approval] = seen.of(Approval, lane=None)
        assert approval.lane == "t1"
        assert [one.id for one in session.pending] == ["r1"]
        ended = asyncio.ensure_future(wait_for(session, lambda event: isinstance(event, TurnEnded)))
        await asyncio.sleep(0)
        await approval.allow()
        last = await ended
        await session.idle()
    assert isinstance(last, TurnEnded)
    assert '"allow"' in last.result.text
    assert not [event for event in seen.events if isinstance(event, RequestCancelled)]


@pytest.mark.req("agents.live.Z4")
async def test_what_a_sub_agent_asks_when_no_turn_runs_can_be_answered(tmp_path: Path) -> None:
    async with program(tmp_path, AGENT.format(before="", after=f"hear()\n{ASKS}\n{ANSWERED}")) as session:
        assert (await play(session)).result.text == "it looks"
        told = asyncio.ensure_future(wait_for(session, is_approval))
        ended = asyncio.ensure_future(wait_for(session, lambda event: isinstance(event, TurnEnded)))
        driver_of(session).steer("go on")  # which it waits for
        approval = await told
        assert session.hub.turn is None
        assert isinstance(approval, Approval)
        await session.answer(approval.id, Allow())
        last = await ended
    assert isinstance(last, TurnEnded)
    assert '"allow"' in last.result.text


@pytest.mark.req("agents.live.Z4")
async def test_what_was_asked_on_the_side_is_withdrawn_when_the_process_is_gone(tmp_path: Path) -> None:
    source = AGENT.format(before=ASKS, after='hear()\nos._exit(3)\ndecided = ""')
    async with program(tmp_path, source) as session:
        seen = await play(session, answer=None)
        [approval] = seen.of(Approval, lane=None)
        gone = asyncio.ensure_future(wait_for(session, lambda event: isinstance(event, RequestCancelled)))
        await asyncio.sleep(0)
        driver_of(session).steer("go on")
        await gone
        assert approval.answered
        assert not session.pending


# -- turns of its own


OWN = """
prompt = greet()
init()
result("one", user_message_uuid=prompt["uuid"])
hear()
init()
{own}
rest()
"""
SAYS = """
block = {"type": "text", "text": "by myself"}
say("assistant", message={"id": "m9", "model": "fake", "content": [block], "stop_reason": "end_turn"})
"""


class Own:
    """Reads the turns that the agent begins."""

    def __init__(self, session: Session, answer: Answering = lambda _: Allow()) -> None:
        self._answer = answer
        self.seen: list[Seen] = []
        self.reading: list[asyncio.Future[Seen]] = []
        session.on_turn(self._on_turn)

    def _on_turn(self, turn: Turn) -> None:
        turn.taken = True
        seen = Seen(turn)
        self.seen.append(seen)
        self.reading.append(asyncio.ensure_future(read(seen, self._answer)))


async def test_a_turn_that_it_begins_is_announced_and_read(tmp_path: Path) -> None:
    own = f'{SAYS}\ndecided = ask("r1", subtype="can_use_tool", tool_name="Bash", tool_use_id="t7", input={{"command": "ls"}})\n'
    source = OWN.format(own=own + 'result(decided["behavior"], origin={"kind": "task-notification"})')
    async with program(tmp_path, source) as session:

        async def answer(ask: Approval | Question) -> Allow:
            with pytest.raises(TurnInFlight):
                await session.turn("meanwhile")
            return Allow()

        turns = Own(session, answer)
        await play(session)
        driver_of(session).steer("now")
        await poll(lambda: turns.seen)
        seen = await turns.reading[0]
    assert seen.said == ["by myself"]
    assert seen.result.text == "allow"
    assert isinstance(seen.events[-1], TurnEnded)


async def test_a_turn_that_it_begins_can_be_ended(tmp_path: Path) -> None:
    ends = 'result("", subtype="error_during_execution", is_error=True, terminal_reason="aborted_tools")'
    then = 'second = hear()\ninit()\nresult("two", user_message_uuid=second["uuid"])'
    source = OWN.format(own=f"{SAYS}\nreply(hear(), {{}})\n{ends}\n{then}")
    async with program(tmp_path, source) as session:
        turns = Own(session)
        await play(session)
        driver_of(session).steer("now")
        await poll(lambda: turns.seen and turns.seen[0].said)
        await session.interrupt("enough")
        seen = await turns.reading[0]
        assert (seen.result.status, seen.result.error) == ("cancelled", "enough")
        assert (await play(session)).result.text == "two"


async def test_one_that_does_not_heed_that_is_ended(tmp_path: Path) -> None:
    async with program(tmp_path, OWN.format(own=SAYS), limits=QUICK) as session:
        turns = Own(session)
        await play(session)
        driver_of(session).steer("now")
        await poll(lambda: turns.seen and turns.seen[0].said)
        await session.interrupt("enough")
        seen = await turns.reading[0]
        assert seen.result.status == "error"
        assert isinstance(seen.error, AgentFailed)
        await session.idle()


async def test_a_turn_of_its_own_fails_with_its_process(tmp_path: Path) -> None:
    async with program(tmp_path, OWN.format(own=f"{SAYS}\nos._exit(3)")) as session:
        turns = Own(session)
        await play(session)
        driver_of(session).steer("now")
        await poll(lambda: turns.seen)
        seen = await turns.reading[0]
    assert isinstance(seen.error, AgentFailed)
    assert seen.error.kind == "exited"


# -- until when

STATES = """
prompt = greet()
say("system", subtype="session_state_changed", state="running")
init()
{work}
result("one", user_message_uuid=prompt["uuid"]{queued})
hear()
{rest}
rest()
"""
TASK = 'say("system", subtype="task_started", task_id="a1", tool_use_id="t1", task_type="{kind}", is_backgrounded=True)'
IDLE = 'say("system", subtype="session_state_changed", state="idle")'
DONE = 'say("system", subtype="task_notification", task_id="a1", status="completed")\n'
NEXT = 'init()\nresult("two")\n'


@pytest.mark.req("agents.rule.74")
@pytest.mark.parametrize(
    ("work", "queued", "rest"),
    [
        ("", "", IDLE),
        (TASK.format(kind="local_agent") + "\n" + IDLE, "", DONE),
        (TASK.format(kind="local_workflow") + "\n" + IDLE, "", DONE),
        (TASK.format(kind="local_agent") + "\n" + IDLE, "", "os._exit(0)"),
        (IDLE, ", queued_turn_count=1", NEXT),
    ],
    ids=["its state", "a sub-agent", "a workflow", "until it ends", "a prompt that waits"],
)
async def test_a_run_is_over_only_when_nothing_is_under_way(tmp_path: Path, work: str, queued: str, rest: str) -> None:
    async with program(tmp_path, STATES.format(work=work, queued=queued, rest=rest)) as session:
        await play(session)
        idle = asyncio.ensure_future(session.idle())
        for _ in range(20):  # whatever could end it has had its turn
            await asyncio.sleep(0)
        assert not idle.done()
        driver_of(session).steer("now")
        async with asyncio.timeout(30):
            await idle


@pytest.mark.req("agents.rule.74")
@pytest.mark.parametrize("work", [IDLE, TASK.format(kind="local_bash") + "\n" + IDLE], ids=["nothing", "a shell"])
async def test_otherwise_it_is_over_with_its_result(tmp_path: Path, work: str) -> None:
    async with program(tmp_path, STATES.format(work=work, queued="", rest="")) as session:
        await play(session)
        async with asyncio.timeout(30):
            await session.idle()


@pytest.mark.req("agents.rule.74")
async def test_where_it_tells_no_state_its_result_is_enough(tmp_path: Path) -> None:
    _, session = scripted_session(tmp_path, Script().init().result("one"))
    async with session:
        await play(session)
        async with asyncio.timeout(30):
            await session.idle()


@pytest.mark.req("agents.rule.74")
async def test_nobody_waits_for_ever(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    work = TASK.format(kind="local_agent")
    async with program(tmp_path, STATES.format(work=work, queued="", rest=""), limits=LIMITS.but(agent_background=0.1)) as session:
        await play(session)
        async with asyncio.timeout(30):
            await session.idle()
    assert "still works on the side" in caplog.text


@pytest.mark.req("agents.rule.74")
async def test_a_turn_that_it_began_is_waited_for(tmp_path: Path) -> None:
    source = OWN.format(own=f'{SAYS}\nhear()\nresult("two", origin={{"kind": "task-notification"}})')
    async with program(tmp_path, source) as session:
        turns = Own(session)
        await play(session)
        driver_of(session).steer("now")
        await poll(lambda: turns.seen and turns.seen[0].said)
        idle = asyncio.ensure_future(session.driver.wait_idle())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not idle.done()
        session.steer("go on")
        async with asyncio.timeout(30):
            await idle
        assert (await turns.reading[0]).result.text == "two"

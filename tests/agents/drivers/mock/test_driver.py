"""The mock agent is an agent like any other: its turns are in order, it can be interrupted, kept, and begins turns by itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import serai
from serai.agents.drivers.mock.script import (
    Ask,
    Assistant,
    Background,
    Fail,
    Permission,
    Script,
    StreamDelta,
    Thinking,
    ToolResult,
    ToolUse,
    Wait,
    build_linear,
)
from serai.agents.session import Session
from serai.agents.turn import Turn, run_turn
from serai.errors import AgentFailed, BadSettings, ModelFailed, NotCapable, TurnInFlight
from serai.model.approvals import Allow, Answer, Approval, Deny, Question
from serai.model.events import Event, Message, StepStarted, Text, ToolEnded, ToolStarted, TurnEnded, event_kind
from serai.model.surface import ScriptedSurface
from serai.store import SessionFolder
from tests.support.agents.scripted_models import Box, kinds


def mock(*steps: Any, **options: Any) -> Session:
    return serai.agent("mock", script=steps, **options)


async def collect_events(turn: Turn) -> list[Event]:
    """Everything that it tells; what it asks is allowed."""
    told: list[Event] = []
    async for event in turn:
        told.append(event)
        if isinstance(event, Approval):
            await event.allow()
        if isinstance(event, Question):
            await event.answer({event.items[0].text: "yes"})
    return told


async def test_a_turn_is_told_in_the_order_of_every_agents() -> None:
    script = [Thinking(text="hm"), Assistant(text="I look"), Permission(tool="bash"), ToolResult(text="x"), Assistant(text="done")]
    async with mock(*script) as session:
        told = await collect_events(session.turn("go"))
    assert kinds(told) == [
        *("turn_started", "turn_prepared"),
        *("step_started", "thinking", "text", "message", "tool_called", "step_ended"),
        *("approval", "other", "tool_started", "tool_ended", "step_settled"),
        *("step_started", "text", "message", "step_ended", "step_settled", "turn_ended"),
    ]
    assert [event.seq for event in told] == sorted(event.seq for event in told)


async def test_text_comes_exactly_once_and_every_call_has_one_result() -> None:
    script = [
        StreamDelta(text="a"), StreamDelta(text="b"), Assistant(text="ab"),
        StreamDelta(text="c"), Assistant(text="d"),
        ToolUse(tool="one", id="1"), ToolUse(tool="two", id="2"), ToolResult(id="1", text="x"), ToolResult(id="2"),
        ToolUse(tool="three"), StreamDelta(text="e"), ToolUse(tool="four"), Ask(questions=("sure?",)),
    ]  # fmt: skip
    async with mock(*script) as session:
        told = await collect_events(session.turn("go"))
    assert "".join(event.text for event in told if isinstance(event, Text)) == "abcde"
    messages = [event.text for event in told if isinstance(event, Message)]
    assert messages == ["ab", "c", "d", "e"]
    started = [event.call.id for event in told if isinstance(event, ToolStarted)]
    ended = [event.call.id for event in told if isinstance(event, ToolEnded)]
    assert started == ended
    assert len(set(ended)) == len(ended) == 5
    for step in {event.step for event in told if isinstance(event, StepStarted)}:
        of = [event_kind(event) for event in told if getattr(event, "step", 0) == step]
        assert of == ["step_started", "step_ended", "step_settled"]


async def test_what_somebody_makes_of_a_call_is_what_runs() -> None:
    async with mock(Permission(tool="bash", input={"command": "rm x"}), ToolResult(text="ok")) as session:
        surface = ScriptedSurface([Allow({"command": "ls"})])
        told: list[Event] = []
        await run_turn(session.turn("go"), surface, told.append)
    [started] = [event.call for event in told if isinstance(event, ToolStarted)]
    assert started.arguments == {"command": "ls"}
    assert started.native is not None
    assert started.native.arguments == {"command": "rm x"}


async def test_it_says_honestly_what_it_can_do() -> None:
    async with mock(Assistant(text="x")) as session:
        can = session.capabilities
        assert (can.approvals, can.questions, can.interrupt, can.background, can.guards, can.rewrite) == (
            *(True, True, True, True, "asked-calls", True),
        )
        with pytest.raises(NotCapable):
            session.fork()
        with pytest.raises(NotCapable):
            await session.set_model("other")
        with pytest.raises(NotCapable):
            session.steer("other")


async def test_what_the_app_hands_to_every_agent_is_taken(tmp_path: Path) -> None:
    options = {
        "cwd": tmp_path,
        "model": "m",
        "environ": {},
        "settings": {},
        "provider_pool": None,
        "tools": Box(),
        "decide": None,
        "trusted": True,
    }
    async with mock(Assistant(text="hi"), **options, session_id="chosen") as session:
        assert (session.id, session.agent) == ("chosen", "mock")
        assert (await session.turn("x")).text == "hi"


# -- how it ends


async def test_an_interrupt_ends_it_where_it_is_and_the_next_prompt_is_played() -> None:
    reached, go = asyncio.Event(), asyncio.Event()
    script = Script(turns=((ToolUse(tool="slow"), Wait(reached=reached, event=go)), (Assistant(text="here"),)))
    async with serai.agent("mock", script=script) as session:
        turn = await session.send("go")
        turn.taken = True
        await reached.wait()
        await session.interrupt("enough")
        told = await collect_events(turn)
        assert kinds(told)[-4:] == ["step_ended", "tool_ended", "step_settled", "turn_ended"]
        [ended] = [event.result for event in told if isinstance(event, ToolEnded)]
        assert ended.code == "TOOL_INTERRUPTED"
        assert turn.outcome is not None
        assert (turn.outcome.status, turn.outcome.error) == ("cancelled", "enough")
        assert turn.outcome.native["status"] == "cancelled"
        assert (await session.turn("again")).text == "here"
        assert (await session.turn("and again")).text == "here"


async def test_an_interrupt_before_it_began_is_heeded() -> None:
    async with mock(Wait(event=asyncio.Event())) as session:
        turn = await session.send("go")
        await turn.cancel("changed my mind")
        assert turn.outcome is not None
        assert (turn.outcome.status, turn.outcome.error) == ("cancelled", "changed my mind")


async def test_leaving_while_it_asks_leaves_nothing() -> None:
    before = asyncio.all_tasks()
    async with mock(Permission(tool="bash")) as session:
        turn = session.turn("go")
        async for event in turn:
            if isinstance(event, Approval):
                break
    assert asyncio.all_tasks() == before
    assert turn.outcome is not None
    assert turn.outcome.status == "cancelled"


async def test_a_script_may_fail_with_any_error() -> None:
    for error, kind, raised in (("boom", "api_error", AgentFailed), (ModelFailed("no key"), "error", ModelFailed)):
        async with mock(Assistant(text="until here"), Fail(error=error, kind=kind)) as session:
            turn = session.turn("go")
            with pytest.raises(raised) as failed:
                await turn
            assert getattr(failed.value, "kind", "") in (kind, "")
            assert turn.outcome is not None
            assert (turn.outcome.status, turn.outcome.text) == ("error", "until here")


async def test_one_that_cannot_be_opened() -> None:
    session = serai.agent("mock", script=Script(fail_with="it is not installed"))
    with pytest.raises(AgentFailed, match="not installed"):
        await session.open()
    assert session.state == "closed"


# -- turns of its own


async def test_a_turn_that_it_begins_by_itself_is_announced_read_and_over() -> None:
    reached, go = asyncio.Event(), asyncio.Event()
    later = Background(
        steps=(Assistant(text="by the way"), Wait(reached=reached, event=go), Permission(tool="bash")), prompt="news"
    )
    async with mock(Assistant(text="first"), later) as session:
        announced: list[Turn] = []

        def take(turn: Turn) -> None:
            turn.taken = True
            announced.append(turn)

        session.on_turn(take)
        assert (await session.turn("go")).text == "first"
        await reached.wait()
        with pytest.raises(TurnInFlight, match="news"):
            await session.turn("meanwhile")
        go.set()
        [turn] = announced
        told = await collect_events(turn)
        assert [event.text for event in told if isinstance(event, Text)] == ["by the way"]
        assert [event.result.status for event in told if isinstance(event, TurnEnded)] == ["success"]
        await session.idle()
        assert session.state == "idle"


async def test_a_turn_of_its_own_that_nobody_takes_gets_no_approval_and_can_be_interrupted() -> None:
    reached, over = asyncio.Event(), asyncio.Event()
    script = Script(
        turns=(
            (Background(steps=(Permission(tool="bash"),)), Background(steps=(Fail(error="boom"),))),
            (Background(steps=(Wait(reached=reached, event=over),)),),
        )
    )
    async with serai.agent("mock", script=script) as session:
        ended: list[str] = []
        session.listen(lambda event: ended.append(event.result.status) if isinstance(event, TurnEnded) else None)
        await session.turn("go")
        await session.idle()
        assert ended == ["success", "denied", "error"]
        await session.turn("again")
        await reached.wait()
        await session.interrupt("enough")
        await session.idle()
        assert ended[-1] == "cancelled"
        reached.clear()
        await session.turn("and again")
        await reached.wait()  # and closed in the middle
    assert ended[-1] == "cancelled"


# -- many, kept, read


async def test_fifty_sessions_with_approvals_at_once() -> None:
    async def one(number: int) -> int:
        surface = ScriptedSurface(default=Allow())
        async with serai.agent("mock", script=build_linear()) as session:
            result = await run_turn(session.turn(f"number {number}"), surface)
            assert result.text == f"[Mock Step 5/5] Processing: number {number}"
        return surface.calls

    assert await asyncio.gather(*map(one, range(50))) == [5] * 50


async def test_it_is_kept_like_any_other(tmp_path: Path) -> None:
    sessions = SessionFolder(str(tmp_path))
    stored = sessions.create(str(tmp_path))
    async with mock(
        Assistant(text="I look"), Permission(tool="bash"), ToolResult(text="x"), Assistant(text="done"), store=stored
    ) as session:
        assert session.id == stored.id
        await run_turn(session.turn("go"), ScriptedSurface([Allow()]))
    with sessions.open(stored.id) as again:
        assert again.meta.agent == "mock"
        kept = [type(message).__name__ for message in again.read_messages()]
        assert kept == ["UserMessage", "AssistantMessage", "ToolResultMessage", "AssistantMessage"]


TOML = """
[[steps]]
type = "assistant"
text = "You said {prompt}"

[[steps]]
type = "ask"
questions = [{ question = "Sure?", options = [{ label = "Yes" }, "No"], multiSelect = true }]
"""


@pytest.mark.parametrize("text", [TOML, TOML.encode(), '[{"type": "assistant", "text": "You said {prompt}"}]', ' {"steps": []} '])
async def test_a_script_may_be_a_text(text: str | bytes) -> None:
    surface = ScriptedSurface([Answer({"Sure?": ["Yes", "No"]})])
    async with serai.agent("mock", script=text) as session:
        result = await run_turn(session.turn("hi"), surface)
    assert result.text in ("You said hi", "")
    for request in surface.asked:
        assert isinstance(request, Question)
        assert [choice.label for choice in request.items[0].choices] == ["Yes", "No"]
        assert request.items[0].several


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("{", "neither TOML nor JSON"),
        ("nonsense", "neither TOML nor JSON"),
        (b"\xff", "neither TOML nor JSON"),
        ('[[steps]]\ntype = "dance"', "dance"),
        ([{"type": "assistant", "words": "x"}], "words"),
        ([{"type": "permission"}], "tool"),
        ([{"type": "wait", "seconds": -1}], "seconds"),
        ([{"type": "wait", "event": "x"}], "asyncio.Events"),
        ([{"type": "fail", "error": 7}], "error"),
        ({"steps": [{"type": "thinking", "text": "x"}], "turns": [[{"type": "thinking", "text": "x"}]]}, "or `turns`"),
        (7, "array"),
    ],
)
def test_a_script_that_cannot_be_is_told(script: Any, why: str) -> None:
    with pytest.raises(BadSettings, match=why):
        serai.agent("mock", script=script)


async def test_a_wait_of_a_text_is_in_seconds() -> None:
    async with serai.agent("mock", script='[{"type": "wait", "seconds": 0.001}, {"type": "tool_result"}]') as session:
        result = await session.turn("go")
    assert result.ok


async def test_a_denied_question_ends_it_and_a_dismissed_one_that_may_does_not() -> None:
    async with mock(Ask(questions=("why?",))) as session:
        turn = session.turn("go")
        assert (await run_turn(turn, ScriptedSurface(default=Deny("no")))).status == "denied"
    async with mock(Ask(questions=("why?",), on_deny_terminate=False), Assistant(text="so be it")) as session:
        assert (await run_turn(session.turn("go"), ScriptedSurface())).text == "so be it"

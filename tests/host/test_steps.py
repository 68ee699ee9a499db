"""A turn as guests see it: events and questions around every call of the model, in their order."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from serai.host.host import Host
from serai.host.steps import Prompts, Steps
from serai.model.actions import Prompt
from serai.model.contributions import Contributions, Refuse
from serai.model.events import Event, Message, StepEnded, StepStarted, Text, ToolCalled
from serai.model.tools import Block, ImageBlock, TextBlock, ToolCall, ToolResult, ToolSpec
from tests.host.fakes import Fake, fake_house
from tests.host.guests import heard, make, opened

EVENTS = "events=['session_start', 'turn_start', 'turn_end', 'tool_call', 'assistant_message']"
ALL = f"subscribe({EVENTS}, intercept=['tool_call', 'turn_start', 'assistant_message'])"


def message(*texts: str) -> Message:
    return Message(content=tuple(TextBlock(text) for text in texts))


async def told(host: Host) -> list[dict[str, Any]]:
    """What a guest heard of the turn, without ids and without our own questions for it."""
    frames = [frame for frame in await heard(host) if frame["type"].startswith("event") and frame.get("tool_name") != "heard"]
    return [{key: value for key, value in frame.items() if key != "id"} for frame in frames]


def sketch(frames: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [("asked" if frame["type"] == "event_intercept" else "told", frame["event"]) for frame in frames]


@pytest.mark.req("zot.rule.4.3-order", "zot.edge.20", "zot.edge.22")
async def test_a_turn_of_two_steps_in_its_order(tmp_path: Path) -> None:
    async with opened(tmp_path, make(tmp_path, f"remember({ALL}, tools=('heard', 'echo'))")) as host:
        shown: list[Event] = []
        steps = Steps(host, shown.append)
        assert await steps.start() is None
        calls = [ToolCall("echo", {"n": 1}, id="a"), ToolCall("echo", {"n": 2}, id="b")]
        await steps.message(message("let me look"), calls, stop="tool_use")
        assert [json.loads(result.text) for result in await steps.run(calls)] == [{"n": 1}, {"n": 2}]
        assert await steps.start() is None
        await steps.message(message("done"))
        frames = await told(host)
    one_step = [("told", "turn_start"), ("asked", "turn_start"), ("asked", "assistant_message"), ("told", "assistant_message")]
    assert sketch(frames) == [
        *one_step,
        ("told", "tool_call"),
        ("told", "tool_call"),
        ("told", "turn_end"),
        ("asked", "tool_call"),
        ("asked", "tool_call"),
        *one_step,
        ("told", "turn_end"),
    ]
    assert [frame["step"] for frame in frames if "step" in frame] == [1, 1, 2, 2]
    assert [frame["stop"] for frame in frames if "stop" in frame] == ["tool_use", "end"]
    assert [type(event) for event in shown] == [
        StepStarted,
        Message,
        ToolCalled,
        ToolCalled,
        StepEnded,
        StepStarted,
        Message,
        StepEnded,
    ]


@pytest.mark.req("zot.rule.4.1-sequential")
async def test_the_calls_of_one_message_run_one_after_the_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Careful(Fake):
        running = 0

        async def call_tool(self, call: ToolCall) -> ToolResult:
            self.running += 1
            for _ in range(10):  # others would get their turn here
                await asyncio.sleep(0)
            result = ToolResult.of(f"{call.name}, {self.running} at once")
            self.running -= 1
            return result

    careful = Careful("careful", Contributions(tools=(ToolSpec("first"), ToolSpec("second"))))
    async with fake_house(monkeypatch, tmp_path, careful) as host:
        calls = [ToolCall("second"), ToolCall("first"), ToolCall("unknown"), ToolCall("second")]
        results = await Steps(host, lambda event: None).run(calls)
    texts = ["second, 1 at once", "first, 1 at once", 'unknown tool "unknown"', "second, 1 at once"]
    assert [result.text for result in results] == texts


@pytest.mark.req("zot.edge.18")
async def test_nobody_is_asked_about_a_message_without_text_but_all_are_told(tmp_path: Path) -> None:
    async with opened(tmp_path, make(tmp_path, f"remember({ALL})")) as host:
        steps = Steps(host, lambda event: None)
        await steps.start()
        await steps.message(Message(), [ToolCall("heard", id="a")], stop="tool_use")
        frames = await told(host)
    assert ("asked", "assistant_message") not in sketch(frames)
    assert [frame for frame in frames if frame["event"] == "assistant_message"] == [{"type": "event", "event": "assistant_message"}]


@pytest.mark.req("zot.edge.19")
async def test_a_suppressed_message_is_not_told_and_its_calls_run(tmp_path: Path) -> None:
    body = f"remember({ALL}, tools=('heard', 'echo'), assistant_message={{'block': True}})"
    async with opened(tmp_path, make(tmp_path, body)) as host:
        shown: list[Event] = []
        steps = Steps(host, shown.append)
        await steps.start()
        original, call = message("a secret"), ToolCall("echo", {"n": 1})
        assert await steps.message(original, [call], stop="tool_use") is None
        assert original == message("a secret")  # what the caller's transcript keeps
        (result,) = await steps.run([call])
        assert json.loads(result.text) == {"n": 1}
        frames = await told(host)
    assert ("told", "assistant_message") not in sketch(frames)
    assert ("told", "tool_call") in sketch(frames)
    assert [type(event) for event in shown] == [StepStarted, ToolCalled, StepEnded]


@pytest.mark.req("zot.ours.4.4-text-joined")
async def test_text_blocks_are_joined_with_newlines_in_question_and_event(tmp_path: Path) -> None:
    async with opened(tmp_path, make(tmp_path, f"remember({ALL})")) as host:
        steps = Steps(host, lambda event: None)
        await steps.start()
        await steps.message(message("one", "two"))
        texts = [frame["text"] for frame in await told(host) if "text" in frame]
    assert texts == ["one\ntwo", "one\ntwo"]


@pytest.mark.req("zot.rule.4.3-turn-end", "zot.rule.4.3-before-interception")
async def test_a_blocked_turn_is_told_from_its_start_to_its_end(tmp_path: Path) -> None:
    body = f"remember({ALL}, turn_start={{'block': True, 'reason': 'enough'}})"
    async with opened(tmp_path, make(tmp_path, body)) as host:
        assert await Steps(host, lambda event: None).start() == Refuse("enough")
        frames = await told(host)
    assert sketch(frames) == [("told", "turn_start"), ("asked", "turn_start"), ("told", "turn_end")]
    assert frames[-1] == {"type": "event", "event": "turn_end", "stop": "error", "error": "enough"}


@pytest.mark.req("zot.rule.4.3-turn-end")
@pytest.mark.parametrize("partial", [True, False])
async def test_a_turn_that_the_person_stopped_ends_as_aborted(tmp_path: Path, partial: bool) -> None:
    async with opened(tmp_path, make(tmp_path, f"remember({ALL})")) as host:
        steps = Steps(host, lambda event: None)
        await steps.start()
        if partial:
            await steps.message(message("as far as I"), stop="aborted")
        else:
            steps.failed("", stop="aborted")
        frames = await told(host)
    assert frames[-1] == {"type": "event", "event": "turn_end", "stop": "aborted", "error": "context canceled"}
    assert (("asked", "assistant_message") in sketch(frames)) is partial


async def test_a_turn_whose_model_failed_says_so_and_shows_nothing_of_what_was_held(tmp_path: Path) -> None:
    async with opened(tmp_path, make(tmp_path, f"remember({ALL})")) as host:
        shown: list[Event] = []
        steps = Steps(host, shown.append)
        await steps.start()
        steps.text(Text(text="half"))
        steps.failed("overloaded")
        await steps.start()
        await steps.message(message("whole"))
        frames = await told(host)
    assert {"type": "event", "event": "turn_end", "stop": "error", "error": "overloaded"} in frames
    assert Text(text="half") not in shown


@pytest.mark.req("zot.rule.4.3-before-interception", "zot.rule.4.4-args-for-execution")
async def test_the_event_of_a_call_has_its_original_arguments_also_when_it_is_rewritten_or_refused(tmp_path: Path) -> None:
    body = f"remember({ALL}, tools=('heard', 'echo'), tool_call={{'modified_args': {{'n': 2}}}})"
    async with opened(tmp_path, make(tmp_path, body)) as host:
        steps = Steps(host, lambda event: None)
        call = ToolCall("echo", {"n": 1}, id="a")
        await steps.start()
        await steps.message(message("hm"), [call], stop="tool_use")
        (result,) = await steps.run([call])
        assert json.loads(result.text) == {"n": 2}
        assert call.arguments == {"n": 1}
        frames = await told(host)
    assert [frame["tool_args"] for frame in frames if frame["type"] == "event" and "tool_args" in frame] == [{"n": 1}]


# -- what is seen -----------------------------------------------------------------------------------------------------------------


async def stream(steps: Steps, *blocks: Block) -> Message | None:
    await steps.start()
    for index, block in enumerate(blocks):
        if isinstance(block, TextBlock):
            for char in block.text:
                steps.text(Text(text=char, index=index))
    return await steps.message(Message(content=blocks))


def seen(shown: list[Event]) -> list[Event]:
    return [event for event in shown if isinstance(event, Text | Message)]


@pytest.mark.req("zot.ours.4.4-streaming-held")
@pytest.mark.parametrize(
    ("verdict", "result"),
    [("'block': True", []), ("'replace_text': 'nicer'", [Message(content=(TextBlock("nicer"),))])],
    ids=["blocked", "replaced"],
)
async def test_what_is_blocked_or_replaced_is_never_seen(tmp_path: Path, verdict: str, result: list[Event]) -> None:
    async with opened(tmp_path, make(tmp_path, f"remember({ALL}, assistant_message={{{verdict}}})")) as host:
        shown: list[Event] = []
        await stream(Steps(host, shown.append), TextBlock("ugly"))
        assert seen(shown) == result
        assert [frame.get("text") for frame in await told(host) if frame["type"] == "event" and "text" in frame] == (
            ["nicer"] if result else []
        )


@pytest.mark.req("zot.ours.4.4-streaming-held")
async def test_text_is_held_back_while_somebody_intercepts_and_streams_when_nobody_does(tmp_path: Path) -> None:
    pieces = [Text(text="h"), Text(text="i")]
    async with opened(tmp_path, make(tmp_path, f"remember({ALL})")) as host:
        shown: list[Event] = []
        steps = Steps(host, shown.append)
        await steps.start()
        for piece in pieces:
            steps.text(piece)
        assert seen(shown) == []
        await steps.message(message("hi"))
        assert seen(shown) == [*pieces, message("hi")]
    async with opened(tmp_path, make(tmp_path, f"remember(subscribe({EVENTS}))", name="only told")) as host:
        shown = []
        steps = Steps(host, shown.append)
        await steps.start()
        for piece in pieces:
            steps.text(piece)
        assert seen(shown) == pieces


async def test_a_replacement_stands_where_the_first_text_stood_and_what_is_no_text_stays(tmp_path: Path) -> None:
    async with opened(tmp_path, make(tmp_path, f"remember({ALL}, assistant_message={{'replace_text': 'new'}})")) as host:
        image, other = ImageBlock(b"1"), ImageBlock(b"2")
        shown = await stream(Steps(host, lambda event: None), image, TextBlock("a"), other, TextBlock("b"))
    assert shown == Message(content=(image, TextBlock("new"), other))


# -- prompts ----------------------------------------------------------------------------------------------------------------------


class Turns:
    """A resident that runs a turn until it is let go, and would notice a second one."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.done: list[str] = []
        self.go = asyncio.Semaphore(0)
        self.began: asyncio.Queue[str] = asyncio.Queue()

    async def __call__(self, text: str) -> None:
        assert not self.running, "two loops on one transcript"
        self.running.append(text)
        self.began.put_nowait(text)
        try:
            await self.go.acquire()
            if text == "fail":
                raise RuntimeError("the model is gone")
            self.done.append(text)
        finally:
            self.running.remove(text)


@pytest.fixture
async def turns() -> Turns:
    return Turns()


@pytest.mark.req("zot.edge.27", "zot.ours.4.2-prompt-queued")
async def test_a_command_works_while_a_turn_runs_and_its_prompt_waits_for_the_end(tmp_path: Path, turns: Turns) -> None:
    body = """
hello(command("ask"))
for frame in frames():
    if frame["type"] == "command_invoked":
        respond(frame["id"], "prompt", prompt="and then this")
"""
    prompts = Prompts(turns)
    async with opened(tmp_path, make(tmp_path, body)) as host:
        prompts.submit("first this")
        assert await turns.began.get() == "first this"
        outcome = await host.run_command("ask")
        assert isinstance(outcome.action, Prompt)
        prompts.submit(outcome.action.text)
        assert turns.running == ["first this"]
        turns.go.release()
        assert await turns.began.get() == "and then this"
        assert turns.done == ["first this"]
        turns.go.release()
        await prompts.idle()
    assert turns.done == ["first this", "and then this"]
    assert not prompts.busy


async def test_a_turn_that_fails_does_not_keep_the_next_from_running(turns: Turns) -> None:
    prompts = Prompts(turns)
    for text in ("fail", " \n", "go on"):
        prompts.submit(text)
    assert prompts.busy
    turns.go.release()
    turns.go.release()
    with pytest.raises(RuntimeError, match="the model is gone"):
        await prompts.idle()
    assert turns.done == ["go on"]
    prompts.submit("again")
    turns.go.release()
    await prompts.idle()
    assert turns.done == ["go on", "again"]

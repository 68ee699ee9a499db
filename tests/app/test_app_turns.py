"""A turn as guests see it: events and questions around every call of the model, in their order."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from serai.app.app import App
from serai.errors import ModelFailed, NotAllowed
from serai.model.actions import Notice
from serai.model.events import Event, Message, StepEnded, StepStarted, Text, ToolCalled, TurnStarted
from serai.model.provider import Chunk, Completion, ModelMessage
from serai.model.tools import Block, ImageBlock, TextBlock, ToolCall
from tests.support.agents.scripted_models import Answers, call, conversation, reply, texts
from tests.support.app.apps import Gated, Person, open_app
from tests.support.app.claude_apps import list_results
from tests.support.host.zot_guests import make

GUARD = Path(__file__).parents[2] / "examples" / "zot" / "guard-python"
EVENTS = "events=['session_start', 'turn_start', 'turn_end', 'tool_call', 'assistant_message']"
ALL = f"subscribe({EVENTS}, intercept=['tool_call', 'turn_start', 'assistant_message'])"


def message(*blocks: Block | str) -> Completion:
    content = tuple(TextBlock(block) if isinstance(block, str) else block for block in blocks)
    return Completion(ModelMessage("assistant", content), "end")


async def read_frames(app: App) -> list[dict[str, Any]]:
    """What a guest heard of the turn, without ids. Nobody is asked whether it may tell us."""
    result = await app.host.run_tool(ToolCall("heard"))
    frames = [frame for frame in json.loads(result.text) if frame["type"].startswith("event") and frame["event"] != "session_start"]
    return [{key: value for key, value in frame.items() if key != "id"} for frame in frames]


def sketch(frames: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [("asked" if frame["type"] == "event_intercept" else "told", frame["event"]) for frame in frames]


def strip_texts(person: Person) -> list[Event]:
    """What of the model's words is seen, as values that can be compared."""
    seen: list[Event] = []
    for event in person.events:
        if isinstance(event, Text):
            seen.append(Text(text=event.text))
        elif isinstance(event, Message):
            seen.append(Message(content=event.content))
    return seen


@pytest.mark.req("zot.rule.4.3-order", "zot.edge.20", "zot.edge.22")
async def test_a_turn_of_two_steps_in_its_order(tmp_path: Path) -> None:
    person = Person()
    async with open_app(tmp_path, make(tmp_path, f"remember({ALL}, tools=('heard', 'echo'))"), surface=person) as app:
        await app.submit('>> say let me look\n>> call echo {"n": 1}\n>> call echo {"n": 2}\n>> say done')
        frames = await read_frames(app)
    assert [json.loads(text) for text in list_results(person)] == [{"n": 1}, {"n": 2}]
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
    assert [type(event) for event in person.events_of(StepStarted, Message, ToolCalled, StepEnded)] == [
        StepStarted,
        Message,
        ToolCalled,
        ToolCalled,
        StepEnded,
        StepStarted,
        Message,
        StepEnded,
    ]


# Says of each call whether another one came before it was answered.
ALONE = """\
import select
hello(tool("first"), tool("second"))
lines = open(0, "rb", buffering=0)  # reads no further than a line
for line in iter(lines.readline, b""):
    frame = json.loads(line)
    if frame["type"] == "shutdown":
        break
    if frame["type"] == "tool_call":
        more = select.select([lines], [], [], 0.1)[0]
        answer(frame["id"], frame["name"] + (" and another at once" if more else " alone"))
"""


@pytest.mark.req("zot.rule.4.1-sequential")
async def test_the_calls_of_one_message_reach_a_guest_one_after_the_other(tmp_path: Path) -> None:
    person = Person()
    async with open_app(tmp_path, make(tmp_path, ALONE), surface=person, mode="auto") as app:
        await app.submit("\n".join(f">> call {name}" for name in ("second", "first", "unknown", "second")))
    assert sorted(list_results(person)) == ["first alone", "second alone", "second alone", "unknown tool: unknown"]
    assert [text for text in list_results(person) if "alone" in text] == ["second alone", "first alone", "second alone"]


@pytest.mark.req("zot.edge.18")
async def test_nobody_is_asked_about_a_message_without_text_but_all_are_told(tmp_path: Path) -> None:
    async with open_app(tmp_path, make(tmp_path, f"remember({ALL}, tools=('heard', 'echo'), turn_start={{}})")) as app:
        await app.submit(">> call echo")
        frames = await read_frames(app)
    first = frames[: sketch(frames).index(("told", "turn_end"))]
    assert ("asked", "assistant_message") not in sketch(first)
    assert [frame for frame in first if frame["event"] == "assistant_message"] == [{"type": "event", "event": "assistant_message"}]


@pytest.mark.req("zot.edge.19")
async def test_a_suppressed_message_is_not_told_and_its_calls_run(tmp_path: Path) -> None:
    body = f"remember({ALL}, tools=('heard', 'echo'), assistant_message={{'block': True}})"
    person = Person()
    async with open_app(tmp_path, make(tmp_path, body), surface=person) as app:
        result = await app.submit('>> say a secret\n>> call echo {"n": 1}\n>> say another')
        assert texts(conversation(app.session))[1] == "assistant: a secret echo()"
        frames = await read_frames(app)
        assert app.runtime.current is not None
        assert "a secret" in repr(app.runtime.current.session.read_messages())
    assert result is not None
    assert result.text == ""
    assert [json.loads(text) for text in list_results(person)] == [{"n": 1}]
    assert ("told", "assistant_message") not in sketch(frames)
    assert ("told", "tool_call") in sketch(frames)
    assert strip_texts(person) == []


@pytest.mark.req("zot.ours.4.4-text-joined")
async def test_text_blocks_are_joined_with_newlines_in_question_and_event(tmp_path: Path) -> None:
    async with open_app(tmp_path, make(tmp_path, f"remember({ALL})"), answers=Answers([message("one", "two")])) as app:
        await app.submit("go")
        assert [frame["text"] for frame in await read_frames(app) if "text" in frame] == ["one\ntwo", "one\ntwo"]


@pytest.mark.req("zot.rule.4.3-turn-end", "zot.rule.4.3-before-interception")
async def test_a_blocked_turn_is_told_from_its_start_to_its_end(tmp_path: Path) -> None:
    body = f"remember({ALL}, turn_start={{'block': True, 'reason': 'enough'}})"
    answers = Answers([reply("never")])
    async with open_app(tmp_path, make(tmp_path, body), answers=answers) as app:
        with pytest.raises(NotAllowed, match="enough"):
            await app.submit("go")
        assert app.last is not None
        assert (app.last.status, app.last.error) == ("denied", "test/m1: enough")
        assert texts(conversation(app.session)) == ["user: go"]
        frames = await read_frames(app)
    assert answers.requests == []
    assert sketch(frames) == [("told", "turn_start"), ("asked", "turn_start"), ("told", "turn_end")]
    assert frames[-1] == {"type": "event", "event": "turn_end", "stop": "error", "error": "enough"}


@pytest.mark.req("zot.rule.4.3-turn-end")
@pytest.mark.parametrize("partial", [True, False])
async def test_a_turn_that_the_person_stopped_ends_as_aborted(tmp_path: Path, partial: bool) -> None:
    pieces: list[Chunk | asyncio.Event] = [Chunk("as far as I"), asyncio.Event()] if partial else [asyncio.Event()]
    person = Person()
    guest = make(tmp_path, f"remember(subscribe({EVENTS}))")
    async with open_app(tmp_path, guest, answers=Answers(pieces), surface=person) as app:
        turn = asyncio.create_task(app.submit("go"))
        await person.saw_a(Text if partial else StepStarted)
        await app.abort()
        result = await turn
        assert result is not None
        assert result.status == "cancelled"
        frames = await read_frames(app)
    assert frames[-1] == {"type": "event", "event": "turn_end", "stop": "aborted", "error": "context canceled"}
    assert [frame["text"] for frame in frames if "text" in frame] == (["as far as I"] if partial else [])


@pytest.mark.req("zot.rule.4.3-turn-end")
async def test_a_turn_that_is_stopped_while_a_guest_thinks_about_it_has_an_end_too(tmp_path: Path) -> None:
    body = """
hello(tool("heard"), subscribe(events=["turn_start", "turn_end"], intercept=["turn_start"]))
heard = []
for frame in frames():
    heard.append(frame)
    if frame["type"] == "event_intercept":
        send(type="notify", level="info", message="let me think")
    elif frame["type"] == "tool_call":
        answer(frame["id"], json.dumps(heard))
"""
    person = Person()
    async with open_app(tmp_path, make(tmp_path, body), surface=person) as app:
        turn = asyncio.create_task(app.submit("go"))
        await person.shown(lambda action: isinstance(action, Notice))
        await app.abort()
        await turn
        frames = await read_frames(app)
    assert sketch(frames) == [("told", "turn_start"), ("asked", "turn_start"), ("told", "turn_end")]
    assert frames[-1] == {"type": "event", "event": "turn_end", "stop": "aborted", "error": "context canceled"}


async def test_a_turn_whose_model_failed_says_so_and_shows_nothing_of_what_was_held(tmp_path: Path) -> None:
    answers = Answers([Chunk("half"), ModelFailed("overloaded")], [reply("whole")])
    person = Person()
    async with open_app(tmp_path, make(tmp_path, f"remember({ALL})"), answers=answers, surface=person) as app:
        with pytest.raises(ModelFailed, match="overloaded"):
            await app.submit("go")
        await app.submit("again")
        frames = await read_frames(app)
    assert {"type": "event", "event": "turn_end", "stop": "error", "error": "overloaded"} in frames
    assert strip_texts(person) == [Message(content=(TextBlock("whole"),))]


@pytest.mark.req("zot.rule.4.3-before-interception", "zot.rule.4.4-args-for-execution")
async def test_the_event_of_a_call_has_its_original_arguments_also_when_it_is_rewritten(tmp_path: Path) -> None:
    body = f"remember({ALL}, tools=('heard', 'echo'), tool_call={{'modified_args': {{'n': 2}}}})"
    person = Person()
    answers = Answers([reply("hm", call("echo", n=1))], [reply("done")])
    async with open_app(tmp_path, make(tmp_path, body), answers=answers, surface=person) as app:
        await app.submit("go")
        frames = await read_frames(app)
        (made,) = conversation(app.session)[1].calls
    assert [json.loads(text) for text in list_results(person)] == [{"n": 2}]
    assert made.arguments == {"n": 1}  # what the model and the transcript keep
    assert answers.requests[1].messages[1].calls[0].arguments == {"n": 1}
    assert [frame["tool_args"] for frame in frames if frame["type"] == "event" and "tool_args" in frame] == [{"n": 1}]


@pytest.mark.req("zot.rule.4.3-before-interception")
async def test_a_call_that_is_refused_is_told_before(tmp_path: Path) -> None:
    body = f"remember({ALL}, tools=('heard', 'echo'), tool_call={{'block': True, 'reason': 'not that'}})"
    person = Person()
    async with open_app(tmp_path, make(tmp_path, body), surface=person) as app:
        await app.submit('>> call echo {"n": 1}')
        frames = [frame for frame in await read_frames(app) if frame["event"] == "tool_call"]
    assert sketch(frames) == [("told", "tool_call"), ("asked", "tool_call")]
    assert [frame["tool_args"] for frame in frames] == [{"n": 1}, {"n": 1}]
    assert list_results(person) == ["[error:BLOCKED] not that"]


# -- what is seen -----------------------------------------------------------------------------------------------------------------


@pytest.mark.req("zot.ours.4.4-streaming-held")
@pytest.mark.parametrize(
    ("verdict", "result"),
    [("'block': True", []), ("'replace_text': 'nicer'", [Message(content=(TextBlock("nicer"),))])],
    ids=["blocked", "replaced"],
)
async def test_what_is_blocked_or_replaced_is_never_seen(tmp_path: Path, verdict: str, result: list[Event]) -> None:
    person = Person()
    guest = make(tmp_path, f"remember({ALL}, assistant_message={{{verdict}}})")
    async with open_app(tmp_path, guest, surface=person) as app:
        ended = await app.submit(">> say ugly words")
        assert ended is not None
        assert ended.text == ("nicer" if result else "")
        assert strip_texts(person) == result
        assert [frame.get("text") for frame in await read_frames(app) if frame["type"] == "event" and "text" in frame] == (
            ["nicer"] if result else []
        )


@pytest.mark.req("zot.ours.4.4-streaming-held")
@pytest.mark.parametrize("intercepts", [True, False])
async def test_text_is_held_back_while_somebody_intercepts_and_streams_when_nobody_does(tmp_path: Path, intercepts: bool) -> None:
    gate, person = asyncio.Event(), Person()
    answers = Answers([Chunk("h"), Chunk("i"), Chunk("hm", "thinking"), gate, reply("hi")])
    guest = make(tmp_path, f"remember({ALL if intercepts else f'subscribe({EVENTS})'})")
    pieces = [Text(text="h"), Text(text="i")]
    async with open_app(tmp_path, guest, answers=answers, surface=person) as app:
        turn = asyncio.create_task(app.submit("go"))
        await person.saw(lambda event: getattr(event, "text", "") == "hm")  # thinking is nobody's to intercept
        assert strip_texts(person) == ([] if intercepts else pieces)
        gate.set()
        await turn
        assert strip_texts(person) == [*pieces, Message(content=(TextBlock("hi"),))]


async def test_a_replacement_stands_where_the_first_text_stood_and_what_is_no_text_stays(tmp_path: Path) -> None:
    image, other, person = ImageBlock(b"1"), ImageBlock(b"2"), Person()
    guest = make(tmp_path, f"remember({ALL}, assistant_message={{'replace_text': 'new'}})")
    async with open_app(tmp_path, guest, answers=Answers([message(image, "a", other, "b")]), surface=person) as app:
        await app.submit("go")
    assert strip_texts(person) == [Message(content=(image, TextBlock("new"), other))]


async def test_the_guard_of_the_examples_masks_what_the_model_says(tmp_path: Path) -> None:
    person = Person()
    async with open_app(tmp_path, GUARD, surface=person) as app:
        result = await app.submit(">> say the password is hunter2")
    assert result is not None
    assert result.text == "the password is *******"
    assert "hunter2" not in repr([event for event in person.events if not isinstance(event, TurnStarted)])  # which has the prompt


# -- prompts of commands ----------------------------------------------------------------------------------------------------------

ASK = """
hello(command("ask"), tool("ping"))
for frame in frames():
    if frame["type"] == "command_invoked":
        respond(frame["id"], "prompt", prompt="and then this")
    elif frame["type"] == "tool_call":
        answer(frame["id"], "pong")
"""


@pytest.mark.req("zot.edge.27", "zot.ours.4.2-prompt-queued")
@pytest.mark.parametrize("way", ["submitted", "queued"])
async def test_a_command_works_while_a_turn_runs_and_its_prompt_waits_for_the_end(tmp_path: Path, way: str) -> None:
    model = Gated([reply("done")])
    async with open_app(tmp_path, make(tmp_path, ASK), answers=model) as app:
        first = asyncio.create_task(app.submit("first this"))
        assert await model.began.get() == "first this"
        if way == "submitted":
            command = asyncio.create_task(app.submit("/ask"))
        else:
            app.queue("/ask")
            command = asyncio.create_task(asyncio.sleep(0))
        await asyncio.sleep(0)
        await app.host.run_tool(ToolCall("ping"))  # behind the command on the wire: that is answered by now
        for _ in range(10):  # a second loop on the same transcript would begin here
            await asyncio.sleep(0)
        assert model.began.empty()
        model.go()
        assert await model.began.get() == "and then this"
        assert first.done()
        model.go()
        await command
        await app.idle()
        said_so_far = texts(conversation(app.session))
    assert said_so_far == ["user: first this", "assistant: done", "user: and then this", "assistant: done"]


async def test_a_turn_that_fails_does_not_keep_the_next_from_running(tmp_path: Path) -> None:
    answers = Answers([ModelFailed("the model is gone")], [reply("on")])
    async with open_app(tmp_path, answers=answers) as app:
        failing, next_one = asyncio.create_task(app.submit("fail")), asyncio.create_task(app.submit("go on"))
        with pytest.raises(ModelFailed, match="the model is gone"):
            await failing
        result = await next_one
        assert result is not None
        assert result.text == "on"

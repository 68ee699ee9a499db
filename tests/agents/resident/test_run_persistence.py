"""What is said, steered or left open at the last moment of a turn."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from serai.agents.driver import Prompt
from serai.agents.session import Session
from serai.errors import ModelFailed, NotWritten
from serai.model.approvals import Allow, Deny
from serai.model.events import Event, Message, StepEnded, Text, ToolStarted, TurnPrepared, Usage
from serai.model.provider import Chunk, Completion, Model, ModelRequest
from serai.model.tools import ToolCall
from serai.store import SessionFolder, to_model_message
from tests.support.agents.conversations import read_stored_texts
from tests.support.agents.scripted_models import MODEL, QUICK, Answers, Box, call, conversation, hang, kinds, reply, resident, texts

SHORT = QUICK.but(interrupt=0.1)
SMALL = msgspec.structs.replace(MODEL, context_window=1000)


# -- said


@pytest.mark.req("piglet.rule.loop-interrupted")
async def test_what_the_model_had_said_when_it_was_cancelled_stays_said(tmp_path: Path) -> None:
    stored = SessionFolder(str(tmp_path)).create("/app")
    made = resident(Answers([Chunk("so "), Chunk("far"), asyncio.Event()]))
    async with Session(made.driver, store=stored, limits=QUICK) as session:
        events: list[Event] = []
        turn = session.turn("go")
        async for event in turn:
            events.append(event)
            if isinstance(event, Text) and event.text == "far":
                await turn.cancel("enough")
    assert texts(conversation(session)) == ["user: go", "assistant: so far", "user: [Request interrupted: enough]"]
    assert read_stored_texts(tmp_path, stored.id) == texts(conversation(session))
    assert [event.text for event in events if isinstance(event, Message)] == ["so far"]
    assert [event.stop for event in events if isinstance(event, StepEnded)] == ["aborted"]


@pytest.mark.req("resident.bad.flood")
@pytest.mark.parametrize("what", ["text", "thinking"])
async def test_of_an_answer_that_is_too_long_the_disk_has_the_beginning_that_memory_has(
    what: Literal["text", "thinking"], tmp_path: Path
) -> None:
    stored = SessionFolder(str(tmp_path)).create("/app")
    made = resident(Answers([*[Chunk("x" * 1000, what)] * 200, reply("never")]), limits=QUICK.but(model_answer=100_000))
    async with Session(made.driver, store=stored, limits=QUICK) as session:
        with pytest.raises(ModelFailed, match="too long"):
            await session.turn("go")
    _, partial = conversation(session)
    assert len(texts([partial])[0]) + len(partial.thinking) == len("assistant: ") + 64 * 1024
    with SessionFolder(str(tmp_path)).open(stored.id) as again:
        assert [to_model_message(message) for message in again.read_messages()][1] == partial


@pytest.mark.req("piglet.rule.loop-interrupted")
async def test_what_was_said_before_a_tool_is_said_once_when_the_tool_is_cancelled() -> None:
    async with resident(Answers([Chunk("so far"), reply("so far", call("hang"))]), Box(hang=hang)) as session:
        turn = session.turn("go")
        async for event in turn:
            if isinstance(event, ToolStarted):
                await turn.cancel("enough")
    assert texts(conversation(session))[:2] == ["user: go", "assistant: so far hang()"]
    assert [message.role for message in conversation(session)] == ["user", "assistant", "tool", "user"]


async def test_a_turn_cancelled_without_a_reason_is_marked_alike_in_memory_and_on_disk(tmp_path: Path) -> None:
    stored = SessionFolder(str(tmp_path)).create("/app")
    made = resident(Answers([asyncio.Event()]))
    async with Session(made.driver, store=stored, limits=QUICK) as session:
        turn = await session.send("go")
        while "turn_prepared" not in kinds(list(turn._events)):
            await asyncio.sleep(0)
        await turn.cancel("")
    assert texts(conversation(session)) == ["user: go", "user: [Request interrupted: interrupted]"]
    assert read_stored_texts(tmp_path, stored.id) == texts(conversation(session))


async def test_words_for_one_turn_are_said_in_that_turn_alone() -> None:
    provider = Answers([reply("ok")])
    async with resident(provider) as session:
        await session.turn(Prompt("go", system="Answer in verse."))
        await session.turn("go on")
    first, second = (request.system for request in provider.requests)
    assert first.endswith("\n\nAnswer in verse.")
    assert "verse" not in second


# -- steered


async def test_what_was_steered_in_when_the_model_failed_is_in_the_conversation() -> None:
    gate = asyncio.Event()
    async with resident(Answers([Chunk("x"), gate, ModelFailed("bad request")], [reply("ok")])) as session:
        with pytest.raises(ModelFailed):
            async for event in session.turn("go"):
                if isinstance(event, Text):
                    session.steer("and this")
                    gate.set()
        assert texts(conversation(session)) == ["user: go", "assistant: x", "user: and this"]


async def test_a_text_right_behind_a_prompt_belongs_to_that_prompt_in_each_turn() -> None:
    async with resident(Answers([reply("ok")])) as session:
        for number in range(3):
            turn = await session.send(f"prompt {number}")
            if number < 2:
                session.steer(f"text {number}")
            await turn
        assert [text for text in texts(conversation(session)) if text.startswith("user")] == [
            *("user: prompt 0\n\ntext 0", "user: prompt 1\n\ntext 1", "user: prompt 2"),
        ]


async def test_a_text_right_behind_a_prompt_that_could_not_be_kept_is_not_lost() -> None:
    def full(event: Event) -> None:
        if isinstance(event, TurnPrepared):
            raise NotWritten("no space left on device")

    async with resident(Answers([reply("ok")])) as session:
        stop = session.listen(full)
        turn = await session.send("go")
        session.steer("and this")
        with pytest.raises(NotWritten):
            await turn
        assert texts(conversation(session)) == ["user: go\n\nand this"]
        stop()
        assert (await session.turn("go on")).text == "ok"


# -- asked once, and no more


async def test_a_conversation_that_stays_too_long_is_shortened_once_in_a_step() -> None:
    too_long = ModelFailed("prompt is too long", status=400, too_long=True)
    provider = Answers([reply("a" * 2000)], [too_long], [reply("summary")], [too_long])
    async with resident(provider) as session:
        await session.turn("first")
        with pytest.raises(ModelFailed, match="too long"):
            await session.turn("second")
    assert len(provider.requests) == 4


async def test_a_turn_that_was_denied_asks_for_nothing_more() -> None:
    async def stop(call: ToolCall) -> Allow | Deny:
        return Deny("stop", interrupt=True)

    provider = Answers([reply("a" * 4000, call("echo"), usage=Usage(900, 10))])
    async with resident(provider, model=SMALL, decide=stop) as session:
        await session.turn("go")
    assert len(provider.requests) == 1


# -- left behind


class Stubborn:
    """A provider that ignores being cancelled so many times, then ends as it is told."""

    def __init__(self, ignores: int, end: BaseException | None = None) -> None:
        self.ignores = ignores
        self.end = end
        self.release, self.ended = asyncio.Event(), asyncio.Event()

    async def models(self) -> Sequence[Model]:
        return ()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk | Completion]:
        try:
            yield Chunk("hm")
            while True:
                try:
                    await self.release.wait()
                    break
                except asyncio.CancelledError:
                    self.ignores -= 1
                    if self.ignores < 0:
                        raise
            if self.end is not None:
                raise self.end
            yield reply("too late")
        finally:
            self.ended.set()


async def run_cancelled(session: Session) -> None:
    turn = session.turn("go")
    async for event in turn:
        if isinstance(event, Text):
            session.steer("and this")
            await turn.cancel("enough")
    assert turn.outcome is not None
    assert turn.outcome.status == "cancelled"


async def test_a_run_that_heeds_only_the_second_word_is_told_twice() -> None:
    before = asyncio.all_tasks()
    async with resident(Stubborn(1), limits=SHORT) as session:  # type: ignore[arg-type]
        await run_cancelled(session)
        for _ in range(5):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == before


@pytest.mark.req("piglet.fix.22")
@pytest.mark.parametrize("end", [None, RuntimeError("at last"), asyncio.CancelledError()], ids=repr)
async def test_nobody_is_bothered_with_how_a_run_ends_that_was_left_behind(end: BaseException | None, tmp_path: Path) -> None:
    bothered: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: bothered.append(context))
    stored = SessionFolder(str(tmp_path)).create("/app")
    provider = Stubborn(10, end)
    made = resident(provider, limits=SHORT)  # type: ignore[arg-type]
    async with Session(made.driver, store=stored, limits=SHORT) as session:
        await run_cancelled(session)
        provider.release.set()
        await provider.ended.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        gc.collect()
        assert bothered == []
        said_so_far = ["user: go", "assistant: hm", "user: and this", "user: [Request interrupted: enough]"]
        assert texts(conversation(session)) == said_so_far
        with SessionFolder(str(tmp_path)).open(stored.id) as again:
            assert texts([to_model_message(message) for message in again.read_messages()]) == said_so_far

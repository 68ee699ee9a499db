"""Whoever swallows their cancellation begins nothing more; a yes is for one call; nothing that a person wants is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest

from serai.agents.driver import Prompt
from serai.agents.inbox import Inbox
from serai.agents.resident.driver import Resident, SharedResources
from serai.agents.session import Session
from serai.agents.tool_results import fit_for_model
from serai.agents.turn import Turn
from serai.errors import Closed, ModelFailed, NotWritten, TurnInFlight
from serai.model.approvals import Allow, Approval, Deny
from serai.model.events import Event, Text, ToolStarted, TurnEnded, TurnResult, Usage
from serai.model.provider import Chunk, Completion, Model, ModelMessage, ModelRequest
from serai.model.tools import ImageBlock, ProgressCallback, TextBlock, ToolCall, ToolResult, ToolSpec
from serai.store import SessionFolder, to_model_message
from tests.support.agents.scripted_models import MODEL, QUICK, Answers, Box, call, conversation, echo, reply, resident, texts

pytestmark = pytest.mark.loops

SHORT = QUICK.but(interrupt=0.1)
SMALL = msgspec.structs.replace(MODEL, context_window=1000)


class Swallowing:
    """A provider that hears nothing of being cancelled, and then answers after all."""

    def __init__(self, *answers: Completion) -> None:
        self.answers = list(answers)
        self.release = asyncio.Event()
        self.requests = 0

    async def models(self) -> Sequence[Model]:
        return ()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk | Completion]:
        self.requests += 1
        yield Chunk("hm")
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                continue
        yield self.answers.pop(0)


async def yield_often(count: int = 30) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.req("piglet.fix.22")
async def test_a_run_whose_provider_swallows_the_cancel_calls_no_tool_and_no_model_afterwards() -> None:
    provider = Swallowing(reply("now", call("echo")), reply("never"))
    box = Box(echo=echo)
    async with resident(provider, box, limits=SHORT) as session:  # type: ignore[arg-type]
        async with session.turn("go") as turn:
            async for event in turn:
                if isinstance(event, Text):
                    await turn.cancel("enough")
        provider.release.set()
        await yield_often()
        assert box.calls == []
        assert provider.requests == 1


async def test_a_run_that_is_cancelled_goes_no_further_although_its_provider_answers() -> None:
    provider = Swallowing(reply("now", call("echo")), reply("never"))
    box = Box(echo=echo)
    async with resident(provider, box, limits=QUICK) as session:  # type: ignore[arg-type]
        async with session.turn("go") as turn:
            async for event in turn:
                if isinstance(event, Text):
                    cancelling = asyncio.ensure_future(turn.cancel("enough"))
                    await asyncio.sleep(0)
                    provider.release.set()
                    await cancelling
        assert turn.outcome is not None
        assert turn.outcome.status == "cancelled"
        assert box.calls == []
        assert provider.requests == 1


async def test_a_yes_that_comes_after_the_end_begins_nothing() -> None:
    release = asyncio.Event()

    async def late(call: ToolCall) -> Allow | Deny:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return Allow()

    box = Box(echo=echo)
    async with resident(Answers([reply("", call("echo"))]), box, limits=SHORT, decide=late) as session:
        turn = await session.send("go")
        while not session.driver._run or not session.driver._run._tool_calls:  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        await turn.cancel("enough")
        release.set()
        await yield_often()
        assert box.calls == []


async def test_work_on_the_side_that_swallows_its_cancel_does_nothing_after_the_end() -> None:
    provider = Swallowing(reply("now", call("look")), reply("never"))
    box = Box(look=(ToolSpec("look", background=True), echo))
    async with resident(provider, box, limits=SHORT) as session:  # type: ignore[arg-type]
        assert isinstance(session.driver, Resident)
        session.driver.backgrounds.start("go")
        while not provider.requests:
            await asyncio.sleep(0)
    provider.release.set()
    await yield_often()
    assert box.calls == []
    assert provider.requests == 1


# -- a yes


async def test_what_runs_on_the_side_takes_nobodys_yes_away() -> None:
    gate, during = asyncio.Event(), []

    async def look(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        await gate.wait()
        during.append(dict(session.driver.context.approved))  # type: ignore[attr-defined]
        return ToolResult.of("seen")

    box = Box(look=look, peek=(ToolSpec("peek", background=True), echo))
    provider = Answers([reply("", call("look", ""))], [reply("", call("peek", ""))], [reply("done")])
    async with resident(provider, box, decide=None, leads_outside=lambda _call: ("/out",)) as session:
        async for event in session.turn("go"):
            if isinstance(event, Approval):
                await event.allow()
            if isinstance(event, ToolStarted):
                side = session.driver.backgrounds  # type: ignore[attr-defined]
                await side.result(side.start("on the side"))
                gate.set()
        assert list(during[0].values()) == [{"/out"}]
        assert session.driver.context.approved == {}  # type: ignore[attr-defined]


async def test_a_fork_has_the_filter_of_its_parent_and_one_that_is_never_opened_holds_nothing() -> None:
    closed: list[str] = []

    async def close() -> None:
        closed.append("closed")

    made = resident(Answers([reply("ok")]))
    assert isinstance(made.driver, Resident)
    made.driver._shared = SharedResources(close)
    async with made as session:
        assert isinstance(session.driver, Resident)
        session.driver.tools.restrict({"echo"})
        session.driver.tools.activate("rare")
        fork = session.fork().driver
        assert isinstance(fork, Resident)
        assert fork.tools.filter == frozenset({"echo"})
        assert fork.tools._activated == {"rare"}
    assert closed == ["closed"]
    await fork.close()
    await made.driver.close()
    assert closed == ["closed"]


# -- shortening


async def test_what_the_person_wants_now_is_never_only_summarised() -> None:
    provider = Answers([reply("first answer")], [reply("second", usage=Usage(900, 10))], [reply("summary")])
    async with resident(provider, model=SMALL) as session:
        await session.turn("first " + "a" * 1200)
        await session.turn("SECOND " + "b" * 1200)
        kept = texts(conversation(session))
    assert kept[0].endswith("summary")
    assert any(text.startswith("user: SECOND") for text in kept)


async def test_nor_is_it_lost_when_nobody_can_summarise() -> None:
    too_long = ModelFailed("prompt is too long", status=400, too_long=True)
    provider = Answers([reply("x" * 3000)], [too_long], [ModelFailed("down")], [reply("I see")])
    async with resident(provider, model=SMALL) as session:
        await session.turn("first")
        assert (await session.turn("SECOND " + "b" * 2000)).text == "I see"
        sent = texts(provider.requests[-1].messages)
    assert sent[0] == "user: first"
    assert sent[-1].startswith("user: SECOND")


async def test_what_could_not_be_kept_is_not_shortened(tmp_path: Path) -> None:
    stored = SessionFolder(str(tmp_path)).create("/app")
    made = resident(Answers([reply("x" * 4000)], [reply("brief")]))
    async with Session(made.driver, store=stored, limits=QUICK) as session:
        await session.turn("tell me")

        def full(messages: tuple[ModelMessage, ...], tokens: int) -> None:
            raise NotWritten("no space left on device")

        session.hub.on_compact.append(full)
        with pytest.raises(NotWritten):
            await session.compact()
        assert len(conversation(session)) == 2


async def test_a_conversation_is_not_shortened_while_an_agent_still_works_on_what_was_cancelled() -> None:
    provider = Swallowing(reply("late"), reply("brief"))
    async with resident(provider, limits=SHORT) as session:  # type: ignore[arg-type]
        async with session.turn("go") as turn:
            async for event in turn:
                if isinstance(event, Text):
                    await turn.cancel("enough")
        provider.release.set()
        await session.compact()  # the resident lets go of what does not end: it is free

    class Holding(Resident):
        async def run(self, prompt: Prompt) -> TurnResult:
            while not released.is_set():
                try:
                    await released.wait()
                except asyncio.CancelledError:
                    continue
            return TurnResult(status="success")

    released = asyncio.Event()
    there = resident(Answers([reply("ok")]), limits=SHORT)
    there.driver.__class__ = Holding
    async with there:
        turn = await there.send("go")
        await asyncio.sleep(0)
        await turn.cancel("enough")
        with pytest.raises(TurnInFlight, match="does not heed"):
            await there.compact()
        free = asyncio.ensure_future(there.free())
        await yield_often()
        assert not free.done()
        released.set()
        await free


# -- the inbox


async def test_the_inbox_waits_for_a_conversations_being_shortened_without_asking_again_and_again() -> None:
    gate, played = asyncio.Event(), 0
    async with resident(Answers([reply("x" * 4000)], [gate, reply("brief")], [reply("ok")])) as session:
        await session.turn("tell me")
        shortening = asyncio.ensure_future(session.compact())
        await asyncio.sleep(0)

        async def play(turn: Turn) -> None:
            nonlocal played
            played += 1
            await turn.result()

        inbox = Inbox(session, play)
        inbox.submit("and now")
        await yield_often(100)
        assert played == 0
        gate.set()
        await shortening
        await inbox.wait_idle()
        assert played == 1


async def test_a_turn_that_was_played_is_not_played_again_whatever_its_player_raises(caplog: pytest.LogCaptureFixture) -> None:
    played: list[str] = []
    async with resident(Answers([reply("ok")])) as session:

        async def play(turn: Turn) -> None:
            played.append(turn.prompt.text)
            await turn.result()
            raise TurnInFlight("something else")

        inbox = Inbox(session, play)
        inbox.submit("once")
        await inbox.wait_idle()
    assert played == ["once"]


async def test_what_waits_when_the_session_is_closed_is_left() -> None:
    async with resident(Answers([asyncio.Event()])) as session:
        inbox = Inbox(session, Turn.result)
        await session.send("theirs")
        inbox.submit("mine")
        await asyncio.sleep(0)
    await inbox.wait_idle()
    assert list(inbox.waiting) == ["mine"]


# -- steering at the edges


async def test_a_text_right_behind_the_prompt_is_kept_in_its_order(tmp_path: Path) -> None:
    stored = SessionFolder(str(tmp_path)).create("/app")
    made = resident(Answers([reply("ok")]))
    async with Session(made.driver, store=stored, limits=QUICK) as session:
        turn = await session.send("go")
        session.steer("and this")
        await turn
        with SessionFolder(str(tmp_path)).open(stored.id) as again:
            assert texts([to_model_message(message) for message in again.read_messages()]) == texts(conversation(session))


async def test_a_text_at_the_very_end_does_not_get_into_the_next_turn() -> None:
    refused: list[str] = []
    async with resident(Answers([reply("ok")])) as session:

        def listener(event: Event) -> None:
            if isinstance(event, TurnEnded):
                try:
                    session.steer("late")
                except Closed:
                    refused.append("late")

        session.listen(listener)
        await session.turn("one")
        await session.turn("two")
        assert refused == ["late", "late"]
        assert texts(conversation(session)) == ["user: one", "assistant: ok", "user: two", "assistant: ok"]


async def test_in_the_last_step_nothing_is_steered_in_and_the_turn_ends_as_it_would() -> None:
    gate = asyncio.Event()
    async with resident(Answers([Chunk("x"), gate, reply("done")]), limits=QUICK.but(steps=1)) as session:
        async for event in session.turn("go"):
            if isinstance(event, Text):
                with pytest.raises(Closed, match="about to end"):
                    session.steer("more")
                gate.set()
        assert texts(conversation(session))[-1] == "assistant: done"


# -- small things


async def test_a_providers_own_time_out_is_told_as_such() -> None:
    async with resident(Answers([TimeoutError("dns")])) as session:
        with pytest.raises(ModelFailed, match="its provider failed: TimeoutError: dns") as caught:
            await session.turn("go")
        assert caught.value.limit is None


def test_a_small_image_stays_beside_a_long_text() -> None:
    image = ImageBlock(b"x" * 10, "image/png")
    [text, kept] = fit_for_model(ToolResult((TextBlock("a" * 300), image)), 100).content
    assert isinstance(text, TextBlock)
    assert len(text.text) < 200
    assert kept == image
    small = ToolResult((TextBlock("a" * 50), TextBlock("b" * 40)))
    assert fit_for_model(small, 100).content == small.content

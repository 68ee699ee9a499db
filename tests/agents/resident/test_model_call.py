"""An answer on its way: cut off, begun anew, slow, long, and faster than whoever reads it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from serai.agents.resident import model_call
from serai.agents.resident.model_call import ModelCall
from serai.agents.resident.run_context import RunOutput
from serai.errors import Closed, ModelFailed
from serai.model.events import Retrying, Text
from serai.model.provider import Chunk, Completion, ModelMessage, ModelRequest
from tests.support.agents.scripted_models import MODEL, QUICK, Answers, conversation, reply, resident, texts

REQUEST = ModelRequest(MODEL, ())


async def test_of_several_attempts_only_the_last_has_been_said() -> None:
    busy = ModelFailed("broke off", temporary=True)
    provider = Answers([Chunk("half of "), busy], [Chunk("another "), Chunk("half"), ModelFailed("bad request")])
    async with resident(provider) as session:
        with pytest.raises(ModelFailed, match="bad request"):
            await session.turn("go")
    assert texts(conversation(session)) == ["user: go", "assistant: another half"]


async def test_a_model_that_says_nothing_is_asked_again() -> None:
    provider = Answers([asyncio.Event()], [reply("ok")])
    async with resident(provider, limits=QUICK.but(model_idle=0.02)) as session:
        events = [event async for event in session.turn("go")]
    [retry] = [event for event in events if isinstance(event, Retrying)]
    assert "nothing for too long" in retry.error


async def test_what_a_provider_says_in_our_own_words_stays() -> None:
    async with resident(Answers([Closed("the provider is closed", who="test/m1")])) as session:
        with pytest.raises(Closed, match="the provider is closed"):
            await session.turn("go")


async def test_what_the_machine_says_of_a_connection_is_the_models_failure() -> None:
    async with resident(Answers([ConnectionResetError("reset by peer")])) as session:
        with pytest.raises(ModelFailed, match="its provider failed: ConnectionResetError: reset by peer"):
            await session.turn("go")


async def test_thinking_that_comes_at_once_is_bounded_too() -> None:
    thinks = Completion(ModelMessage("assistant", thinking="x" * 2000))
    async with resident(Answers([thinks]), limits=QUICK.but(model_answer=1000)) as session:
        with pytest.raises(ModelFailed, match="too long"):
            await session.turn("go")


async def test_pieces_are_counted_together() -> None:
    provider = Answers([*[Chunk("x" * 400)] * 3, reply("never")])
    async with resident(provider, limits=QUICK.but(model_answer=1000)) as session:
        with pytest.raises(ModelFailed, match="too long"):
            await session.turn("go")


# -- who reads it


class Slow(RunOutput):
    """Whoever reads is behind all the time, and takes `seconds` to catch up."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    @property
    def crowded(self) -> bool:
        return True

    async def wait_for_room(self) -> None:
        await asyncio.sleep(self.seconds)


async def test_a_slow_reader_is_no_silent_model() -> None:
    provider = Answers([Chunk("a"), Chunk("b"), reply("ab")])
    limits = QUICK.but(model_idle=0.01, model_attempts=1)
    completion = await ModelCall(Slow(0.02), limits).get(provider, REQUEST)
    assert completion == reply("ab")


async def test_a_model_that_falls_silent_after_its_reader_was_slow_is_given_up() -> None:
    provider = Answers([Chunk("a"), asyncio.Event()])
    async with asyncio.timeout(5.0):
        with pytest.raises(ModelFailed, match="nothing for too long"):
            await ModelCall(Slow(0.0), QUICK.but(model_idle=0.02, model_attempts=1)).get(provider, REQUEST)


async def test_each_piece_gives_the_model_its_time_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[float | None] = []

    class Recorded(asyncio.Timeout):  # type: ignore[misc]
        def reschedule(self, when: float | None) -> None:
            moved.append(when)
            super().reschedule(when)

    monkeypatch.setattr(asyncio, "timeout_at", Recorded)
    monkeypatch.setattr(model_call, "_LOOK", -1.0)  # at every piece, not once a second
    loop = asyncio.get_running_loop()
    before = loop.time()
    await ModelCall(RunOutput(), QUICK.but(model_idle=60.0)).get(Answers([Chunk("a"), Chunk("b"), reply("ab")]), REQUEST)
    _, first, second = moved  # the first is its beginning
    assert first is not None
    assert second is not None
    assert before + 60.0 <= first <= second <= loop.time() + 60.0


class Counting:
    """A provider that says how far it has come."""

    def __init__(self, pieces: int) -> None:
        self.pieces = pieces
        self.given = 0

    async def models(self) -> list[Any]:
        return []

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk | Completion]:
        for number in range(self.pieces):
            self.given += 1
            yield Chunk("x", "text", number)  # each a text of its own, so that they are not joined
        yield reply("done")


async def test_a_model_does_not_run_far_ahead_of_its_reader() -> None:
    provider = Counting(500)
    async with resident(provider, limits=QUICK.but(waiting=20)) as session:  # type: ignore[arg-type]
        read, ahead = 0, 0
        async for event in session.turn("go"):
            if isinstance(event, Text):
                read += 1
                ahead = max(ahead, provider.given - read)
                for _ in range(5):  # it has other things to do
                    await asyncio.sleep(0)
    assert read == 500
    assert ahead <= 25


async def test_a_model_that_nobody_reads_lets_others_work_meanwhile() -> None:
    provider = Counting(500)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with resident(provider, limits=QUICK.but(waiting=20)) as session:  # type: ignore[arg-type]
        turn = session.turn("go")
        async for event in turn:
            if isinstance(event, Text):
                break
        others = asyncio.ensure_future(other())
        await turn
        others.cancel()
    assert turns > 400


@pytest.mark.req("app.stream.yields")
async def test_a_provider_that_has_it_all_at_hand_leaves_the_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_call, "_SLICE", -1.0)  # it is over with every piece
    rounds, seen = 0, list[int]()

    async def others() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    class AtHand(Answers):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk | Completion]:
            for _ in range(5):
                seen.append(rounds)
                yield Chunk("word ")
            yield reply("done")

    working = asyncio.ensure_future(others())
    await ModelCall(RunOutput(), QUICK).get(AtHand(), REQUEST)
    working.cancel()
    assert all(after - before >= 3 for before, after in pairwise(seen)), seen

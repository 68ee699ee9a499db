"""A guest's compactor: asked in the background, its answer put in place where nothing is under way (spec piglet 5.8)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from serai.agents.resident import conversation as resident_conversation
from serai.agents.resident.compaction import MessageCounts
from serai.agents.session import Session
from serai.errors import NotCapable, NotWritten, PeerTimeout, Refused, TurnInFlight
from serai.limits import Limits
from serai.model.events import Compacted, Event, NoticeEvent, StepStarted, TurnEnded, Usage
from serai.model.provider import ModelMessage
from serai.model.tools import ProgressCallback, ToolCall, ToolResult
from serai.store import SessionFolder, to_model_message
from tests.support.agents.conversations import get_driver, is_whole
from tests.support.agents.scripted_models import (
    MODEL,
    QUICK,
    Answers,
    Box,
    Piece,
    call,
    conversation,
    echo,
    kinds,
    reply,
    resident,
    texts,
)

AUTO = pytest.mark.req("piglet.rule.compact-auto")
MERGE = pytest.mark.req("piglet.rule.compact-merge")
SENT = Usage(100, 10)  # of every answer in these tests


class Shortens:
    """A compactor that the test lets go. What it gives, or raises, is `gives`."""

    def __init__(self, *gives: Sequence[ModelMessage] | Exception, free: bool = True) -> None:
        self.gives = list(gives) or [[resident_conversation.build_user_message("in short")]]
        self.asked: list[list[str]] = []
        self.begun: asyncio.Queue[None] = asyncio.Queue()
        self.go = asyncio.Event()
        if free:
            self.go.set()

    async def __call__(self, messages: Sequence[ModelMessage]) -> Sequence[ModelMessage]:
        self.asked.append(texts(messages))
        self.begun.put_nowait(None)
        await self.go.wait()
        given = self.gives.pop(0) if len(self.gives) > 1 else self.gives[0]
        if isinstance(given, Exception):
            raise given
        return given


def agent(
    compactor: Shortens | None, *answers: Sequence[Piece], at: int = 100, box: Box | None = None, limits: Limits = QUICK
) -> Session:
    """A session whose compactor is asked from `at` tokens on."""
    return resident(
        Answers(*(answers or ([reply("ok", usage=SENT)],))), box, limits=limits, compactor=compactor, compact_at=lambda: at
    )


async def run_turns(session: Session, *numbers: int) -> None:
    for number in numbers:
        await session.turn(f"prompt {number}")


async def wait_settled(session: Session) -> bool | None:
    return await get_driver(session).compaction.wait_finished(in_step=True)


# -- when


@AUTO
async def test_it_is_asked_after_a_step_when_there_are_eight_messages_and_so_many_tokens_were_sent() -> None:
    compactor, heard = Shortens(), list[Event]()
    async with agent(compactor) as session:
        session.listen(heard.append)
        await run_turns(session, 1, 2, 3)
        assert (compactor.asked, len(conversation(session))) == ([], 6)
        await run_turns(session, 4)
        await wait_settled(session)
        assert [len(asked) for asked in compactor.asked] == [8]
        assert texts(conversation(session)) == ["user: in short"]
        [compacted] = [event for event in heard if isinstance(event, Compacted)]
        assert (compacted.before, compacted.after, compacted.tokens) == (8, 1, 100)


@AUTO
@pytest.mark.parametrize(
    ("at", "usage", "asked"), [(101, SENT, 0), (100, SENT, 1), (0, SENT, 0), (100, Usage(1, 5, 90, 9), 1), (10, Usage(0, 99), 0)]
)
async def test_what_counts_is_what_the_latest_answer_was_given(at: int, usage: Usage, asked: int) -> None:
    compactor = Shortens()
    async with agent(
        compactor,
        [reply("ok", usage=SENT)],
        [reply("ok", usage=SENT)],
        [reply("ok", usage=SENT)],
        [reply("ok", usage=usage)],
        at=at,
    ) as session:
        await run_turns(session, 1, 2, 3, 4)
        await wait_settled(session)
        assert len(compactor.asked) == asked


async def test_without_a_compactor_nobody_is_asked() -> None:
    async with agent(None) as session:
        await run_turns(session, 1, 2, 3, 4)
        assert await wait_settled(session) is None
        assert len(conversation(session)) == 8


@AUTO
async def test_the_turn_does_not_wait_for_it_and_nothing_is_asked_twice() -> None:
    compactor = Shortens(free=False)
    async with agent(compactor) as session:
        await run_turns(session, 1, 2, 3, 4, 5, 6)
        assert len(compactor.asked) == 1
        compactor.go.set()
        await wait_settled(session)
        assert texts(conversation(session)) == [
            "user: in short", "user: prompt 5", "assistant: ok", "user: prompt 6", "assistant: ok",
        ]  # fmt: skip


@AUTO
async def test_after_three_failures_in_a_row_it_is_left_alone_for_five_minutes() -> None:
    compactor, heard, now = Shortens(Refused("no idea")), list[Event](), 1000.0
    async with agent(compactor) as session:
        session.listen(heard.append)
        get_driver(session).compaction.clock = lambda: now
        await run_turns(session, 1, 2, 3)
        for number in range(4, 9):
            await run_turns(session, number)
            await wait_settled(session)
        assert len(compactor.asked) == 3
        [told] = [event.notice.text for event in heard if isinstance(event, NoticeEvent)]
        assert told == "the compactor failed 3 times in a row and is not asked for 5 minutes: no idea"
        now += 299.0
        await run_turns(session, 9)
        assert len(compactor.asked) == 3
        now += 1.0
        for number in range(10, 15):
            await run_turns(session, number)
            await wait_settled(session)
        assert len(compactor.asked) == 6


@AUTO
async def test_failures_count_only_when_they_come_one_after_the_other() -> None:
    fine = [resident_conversation.build_user_message("short"), *([resident_conversation.build_user_message("x")] * 7)]
    compactor = Shortens(Refused("a"), [], fine, Refused("b"), Refused("c"), fine)
    async with agent(compactor) as session:
        await run_turns(session, 1, 2, 3)
        for number in range(4, 11):
            await run_turns(session, number)
            await wait_settled(session)
        assert len(compactor.asked) == 7


# -- what becomes of its answer


@MERGE
async def test_what_was_said_meanwhile_follows_in_memory_and_on_disk(tmp_path: Path) -> None:
    compactor = Shortens(free=False)
    stored = SessionFolder(str(tmp_path)).create("/app")
    async with Session(agent(compactor).driver, store=stored, limits=QUICK) as session:
        await run_turns(session, 1, 2, 3, 4, 5)
        compactor.go.set()
        await wait_settled(session)
        assert texts(conversation(session)) == ["user: in short", "user: prompt 5", "assistant: ok"]
        await run_turns(session, 6)
        now = texts(conversation(session))
        assert [entry.type for entry in stored.read_path() if entry.type != "event"][-3:] == ["compact", "user", "assistant"]
    with SessionFolder(str(tmp_path)).open(stored.id) as again:
        assert texts([to_model_message(message) for message in again.read_messages()]) == now


@MERGE
async def test_while_tools_run_it_waits_for_their_results(tmp_path: Path) -> None:
    compactor, begun, go = Shortens(free=False), asyncio.Event(), asyncio.Event()

    async def slow(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        begun.set()
        await go.wait()
        return ToolResult.of("worked")

    stored = SessionFolder(str(tmp_path)).create("/app")
    answers = [*([reply("ok", usage=SENT)] for _ in range(4)), [reply("", call("echo", "a"), call("slow", "b"))], [reply("done")]]
    made = agent(compactor, *answers, box=Box(echo=echo, slow=slow))
    async with Session(made.driver, store=stored, limits=QUICK) as session:
        await run_turns(session, 1, 2, 3, 4)
        turn = await session.send("prompt 5")
        await begun.wait()
        compactor.go.set()
        await asyncio.sleep(0)
        session.steer("and be quick")
        assert len(conversation(session)) == 10  # with the calls, whose results are not there
        with pytest.raises(TurnInFlight):
            await get_driver(session).compaction.compact()
        go.set()
        await turn
        await wait_settled(session)
        now = texts(conversation(session))
        assert now[:2] == ["user: in short", "user: prompt 5"]
        assert "user: and be quick" in now
        assert is_whole(conversation(session))
    with SessionFolder(str(tmp_path)).open(stored.id) as again:
        assert texts([to_model_message(message) for message in again.read_messages()]) == now


@MERGE
async def test_a_turn_that_is_cancelled_meanwhile_is_part_of_what_follows(tmp_path: Path) -> None:
    compactor, streaming = Shortens(free=False), asyncio.Event()
    stored = SessionFolder(str(tmp_path)).create("/app")
    answers: list[Sequence[Piece]] = [*([reply("ok", usage=SENT)] for _ in range(4)), [asyncio.Event()]]
    async with Session(agent(compactor, *answers).driver, store=stored, limits=QUICK) as session:
        await run_turns(session, 1, 2, 3, 4)
        session.listen(lambda event: streaming.set() if isinstance(event, StepStarted) else None)
        turn = await session.send("prompt 5")
        await streaming.wait()
        await turn.cancel("enough")
        compactor.go.set()
        await wait_settled(session)
        now = texts(conversation(session))
        assert now == ["user: in short", "user: prompt 5", "user: [Request interrupted: enough]"]
    with SessionFolder(str(tmp_path)).open(stored.id) as again:
        assert texts([to_model_message(message) for message in again.read_messages()]) == now


@MERGE
@pytest.mark.parametrize("gives", [[], Refused("no"), RuntimeError("a defect")])
async def test_an_empty_or_failed_answer_leaves_it_as_it_is(gives: Sequence[ModelMessage] | Exception) -> None:
    compactor, heard = Shortens(gives), list[Event]()
    async with agent(compactor) as session:
        session.listen(heard.append)
        await run_turns(session, 1, 2, 3, 4)
        await wait_settled(session)
        assert (len(compactor.asked), len(conversation(session))) == (1, 8)
        assert "compacted" not in kinds(heard)


@MERGE
@pytest.mark.parametrize("left", [0, 3, 8, 12])
async def test_a_history_that_shrank_or_became_another_one_meanwhile_stays(left: int) -> None:
    compactor = Shortens(free=False)
    async with agent(compactor) as session:
        await run_turns(session, 1, 2, 3, 4)
        await compactor.begun.get()
        get_driver(session).conversation.replace([resident_conversation.build_user_message(f"other {n}") for n in range(left)])
        compactor.go.set()
        await wait_settled(session)
        assert texts(conversation(session)) == [f"user: other {n}" for n in range(left)]


async def test_what_it_says_wrongly_is_repaired() -> None:
    broken = [resident_conversation.build_user_message("short"), ModelMessage("assistant", (), (ToolCall("echo", {}, "c9"),))]
    async with agent(Shortens(broken)) as session:
        await run_turns(session, 1, 2, 3, 4)
        await wait_settled(session)
        assert is_whole(conversation(session))
        assert len(conversation(session)) == 3


async def test_one_that_takes_too_long_is_given_up() -> None:
    compactor = Shortens(free=False)
    async with agent(compactor, limits=QUICK.but(compact=0.02)) as session:
        await run_turns(session, 1, 2, 3, 4)
        assert await wait_settled(session) is False
        assert len(conversation(session)) == 8
        with pytest.raises(PeerTimeout, match=r"did not answer within 0\.02 s"):
            await get_driver(session).compaction.compact()


async def test_what_cannot_be_kept_is_not_done() -> None:
    async with agent(Shortens()) as session:

        def full(messages: tuple[ModelMessage, ...], tokens: int) -> None:
            raise NotWritten("the disk is full")

        session.hub.on_compact.append(full)
        await run_turns(session, 1, 2, 3, 4)
        assert await wait_settled(session) is False
        assert len(conversation(session)) == 8


async def test_a_session_that_is_closed_waits_for_no_compactor() -> None:
    compactor = Shortens(free=False)
    async with asyncio.timeout(10.0), agent(compactor) as session:
        await run_turns(session, 1, 2, 3, 4)
        await compactor.begun.get()
    assert await wait_settled(session) is False


# -- now


@pytest.mark.req("piglet.fix.30")
async def test_somebody_may_want_it_now_and_it_is_kept(tmp_path: Path) -> None:
    stored = SessionFolder(str(tmp_path)).create("/app")
    async with Session(agent(Shortens(), at=0).driver, store=stored, limits=QUICK) as session:
        await run_turns(session, 1, 2)
        assert await get_driver(session).compaction.compact() == MessageCounts(4, 1)
        assert [entry.type for entry in stored.read_path() if entry.type != "event"][-1] == "compact"
        assert len(stored.read_messages()) == len(conversation(session)) == 1


async def test_it_may_be_wanted_while_the_model_answers() -> None:
    asked, go = asyncio.Event(), asyncio.Event()
    async with agent(Shortens(), [reply("ok", usage=SENT)], [go, reply("later")], at=0) as session:
        await run_turns(session, 1)
        session.listen(lambda event: asked.set() if isinstance(event, StepStarted) else None)
        turn = await session.send("prompt 2")
        await asked.wait()
        assert await get_driver(session).compaction.compact() == MessageCounts(3, 1)
        go.set()
        await turn
        assert texts(conversation(session)) == ["user: in short", "assistant: later"]


async def test_why_it_could_not_be_done_is_told() -> None:
    async with agent(None) as session:
        with pytest.raises(NotCapable, match="no compactor registered"):
            await get_driver(session).compaction.compact()
    compactor = Shortens(Refused("no idea"), [])
    async with agent(compactor, at=0) as session:
        await run_turns(session, 1)
        with pytest.raises(Refused, match="no idea"):
            await get_driver(session).compaction.compact()
        with pytest.raises(Refused, match="no messages"):
            await get_driver(session).compaction.compact()
        assert len(conversation(session)) == 2


async def test_two_do_not_shorten_it_at_once() -> None:
    compactor = Shortens(free=False)
    async with agent(compactor, at=0) as session:
        await run_turns(session, 1)
        first = asyncio.create_task(get_driver(session).compaction.compact())
        await compactor.begun.get()
        with pytest.raises(TurnInFlight, match="already"):
            await get_driver(session).compaction.compact()
        first.cancel()
        await asyncio.wait([first])
        assert len(conversation(session)) == 2
        compactor.go.set()
        assert await get_driver(session).compaction.compact() == MessageCounts(2, 1)


# -- a model that is nearly full


SMALL = msgspec.structs.replace(MODEL, context_window=1000)
FULL = Usage(900, 10)


@pytest.mark.parametrize("works", [True, False])
async def test_at_a_full_window_the_one_under_way_is_waited_for_and_a_summary_is_the_last_resort(works: bool) -> None:
    compactor = Shortens([resident_conversation.build_user_message("in short")] if works else Refused("no idea"), free=False)
    answers = Answers(*([reply("x" * 300, usage=SENT)] for _ in range(3)), [reply("full", usage=FULL)], [reply("a summary")])
    heard: list[Event] = []
    async with resident(answers, model=SMALL, compactor=compactor, compact_at=lambda: 500) as session:
        session.listen(heard.append)
        await run_turns(session, 1, 2, 3)
        turn = await session.send("prompt 4")
        await compactor.begun.get()
        assert not any(isinstance(event, TurnEnded) for event in heard[-1:])
        compactor.go.set()
        await turn
        assert len(compactor.asked) == 1
        assert len(answers.requests) == (4 if works else 5)
        assert texts(conversation(session))[0] == (
            "user: in short" if works else "user: [Summary of the conversation so far]\na summary"
        )
        assert kinds(heard).count("compacted") == 1


async def test_work_on_the_side_is_nobodys_to_shorten() -> None:
    compactor = Shortens()
    box = Box(echo=echo)
    answers = [*([reply("", call("echo", f"c{n}"))] for n in range(4)), [reply("done", usage=SENT)]]
    async with agent(compactor, *answers, box=box, at=1) as session:
        key = get_driver(session).backgrounds.start("work")
        await get_driver(session).backgrounds.result(key)
        assert compactor.asked == []

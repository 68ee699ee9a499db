"""An approver whose file is held by others, fails, or comes back: the event loop goes on, and nothing waits for ever."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from serai.errors import NoApproval, NotWritten, PeerTimeout
from serai.limits import Limits
from serai.model.approvals import Allow, Decision, Deny
from serai.policy.approver import ApprovalOutcome
from serai.policy.decision_store import NAME, DecisionStore, PendingApproval
from tests.support.policy.approvals import (
    HERE,
    SECRET,
    AskedSurface,
    approval,
    block,
    make_approver,
    question,
    read_disk,
    start_deciding,
)

pytestmark = pytest.mark.usefixtures("nothing_left")

LONG = 40.0  # others are waited for longer than any test takes
SOON = 0.01


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / NAME)


@pytest.fixture
def kept(file: str) -> Iterator[DecisionStore]:
    decisions = DecisionStore(file, busy=LONG)
    yield decisions
    decisions.close()


@contextmanager
def open_transaction(file: str, how: str = "BEGIN IMMEDIATE") -> Iterator[None]:
    """Another process in the middle of a transaction."""
    other = sqlite3.connect(file, isolation_level=None)
    other.execute(how)
    other.execute("SELECT * FROM approvals").fetchall()
    try:
        yield
    finally:
        other.close()


# -- held by others ---------------------------------------------------------------------------------------------------------------


async def test_while_another_writes_the_loop_goes_on_and_sees_what_is_remembered(file: str, kept: DecisionStore) -> None:
    at = make_approver(AskedSurface(lambda _: Allow()), decisions=kept)
    with open_transaction(file):
        deciding = asyncio.create_task(at.decide(approval(), HERE))  # whose thread waits for the file
        while not kept._lock.locked():
            await asyncio.sleep(0)
        for look in (kept.list_decisions, kept.read_stamp, kept.list_pending, kept.list_ids, lambda: kept.find_answered(["x"])):
            look()
        assert not deciding.done()
    assert (await deciding).allowed  # else it would have been waited for


async def test_an_answer_of_the_caller_waits_for_the_file_and_not_the_loop(file: str, kept: DecisionStore) -> None:
    surface = AskedSurface(lambda _: block())
    at = make_approver(surface, decisions=kept)
    deciding = await start_deciding(at, surface, approval(SECRET))
    with open_transaction(file):
        answering = asyncio.create_task(at.answer("1", Allow()))
        while not at._turn.locked():
            await asyncio.sleep(0)
        assert not answering.done()
    await answering
    assert (await deciding).allowed


@pytest.mark.req("policy.pending.secret")
async def test_who_reads_for_long_holds_up_nobody_and_what_was_settled_is_scrubbed_later(file: str, kept: DecisionStore) -> None:
    at = make_approver(AskedSurface(lambda _: Allow()), decisions=kept)
    await at.decide(approval("first"), HERE)
    with open_transaction(file, "BEGIN"):
        assert (await asyncio.wait_for(at.decide(approval(SECRET), HERE), LONG / 2)).allowed
        assert SECRET.encode() in read_disk(file)  # in SQLite's log, while the other may still look there
    kept.forget([])
    assert SECRET.encode() not in read_disk(file)


@pytest.mark.req("policy.pending.side-by-side")
async def test_the_time_of_an_approval_is_over_also_while_it_cannot_be_written_down(file: str, kept: DecisionStore) -> None:
    surface = AskedSurface(lambda _: pytest.fail("asked"))
    at = make_approver(surface, decisions=kept, limits=Limits().but(exit_grace=LONG))
    with open_transaction(file):
        asking = [at.ask(approval(id=str(number), call=str(number)), HERE, timeout=SOON) for number in range(8)]
        rulings = await asyncio.wait_for(asyncio.gather(*asking), LONG / 2)
    assert {(ruling.by, ruling.decision) for ruling in rulings} == {("timeout", Deny("Request timed out"))}
    for ruling in rulings:
        assert isinstance(ruling.error, PeerTimeout)
        assert "another process holds the file" in ruling.error.hint
    await at.close()
    assert {one.state for one in kept.list_pending(everything=True)} <= {"timed out"}
    assert len(kept.list_pending(everything=True)) <= 1  # of the others none was begun


@pytest.mark.req("policy.pending.withdrawn")
async def test_a_cancelled_caller_is_let_go_at_once_and_its_row_is_settled_when_that_is_possible(
    file: str, kept: DecisionStore
) -> None:
    surface = AskedSurface(lambda _: block())
    at = make_approver(surface, decisions=kept, limits=Limits().but(exit_grace=LONG))
    deciding = await start_deciding(at, surface, approval(SECRET))
    with open_transaction(file):
        deciding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(deciding, LONG / 2)
        assert at.waiting == ()
        assert [one.state for one in kept.list_pending()] == ["waiting"]
    await at.close()
    assert [one.state for one in kept.list_pending(everything=True)] == ["withdrawn"]


async def test_closing_waits_for_nobody_for_long(file: str, kept: DecisionStore) -> None:
    surface = AskedSurface(lambda _: block())
    at = make_approver(surface, decisions=kept, limits=Limits().but(exit_grace=SOON))
    deciding = await start_deciding(at, surface, approval(SECRET))
    [one] = at._waiting
    with open_transaction(file):
        await asyncio.wait_for(at.close(), LONG / 2)
        assert one.ended.done()
        assert (await asyncio.wait_for(deciding, LONG / 2)).by == "withdrawn"
        assert [one.state for one in kept.list_pending()] == ["waiting"]
    await asyncio.gather(*at._followers)  # it is settled yet
    assert [one.state for one in kept.list_pending(everything=True)] == ["withdrawn"]


@pytest.mark.req("policy.pending.durable")
async def test_a_yes_that_is_not_on_disk_in_time_is_a_no(file: str, kept: DecisionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serai.policy.approver._PATIENCE", SOON)
    surface = AskedSurface(lambda _: block())
    at = make_approver(surface, decisions=kept)
    deciding = await start_deciding(at, surface, approval(SECRET))
    with open_transaction(file):
        at._waiting[0].settle(ApprovalOutcome(decision=Allow(), by="person"))  # as a surface does
        ruling = await asyncio.wait_for(deciding, LONG / 2)
    assert (ruling.allowed, ruling.by, type(ruling.error)) == (False, "not written", NotWritten)
    await asyncio.gather(*at._followers)
    assert kept.list_pending() == []
    await at.close()


# -- that fails -------------------------------------------------------------------------------------------------------------------


@contextmanager
def open_unwritable(kept: DecisionStore) -> Iterator[None]:
    kept._db.rows.execute("PRAGMA query_only = ON")
    try:
        yield
    finally:
        kept._db.rows.execute("PRAGMA query_only = OFF")


@pytest.mark.req("policy.pending.durable", "policy.pending.secret")
@pytest.mark.parametrize("then", ["it gets better", "it is closed"])
async def test_an_answer_that_cannot_be_written_down_does_not_run_and_its_row_is_settled_as_soon_as_that_is_possible(
    file: str, kept: DecisionStore, then: str
) -> None:
    surface = AskedSurface(lambda _: block())
    at = make_approver(surface, decisions=kept, limits=Limits().but(exit_grace=SOON))
    deciding = await start_deciding(at, surface, approval(SECRET))
    [one] = kept.list_pending()
    with open_unwritable(kept):
        at._waiting[0].settle(ApprovalOutcome(decision=Allow(), by="person"))  # as a surface does
        ruling = await deciding
        assert (ruling.allowed, ruling.by, type(ruling.error)) == (False, "not written", NotWritten)
        assert kept.find(one.id).state == "waiting"
    if then == "it is closed":
        await at.close()
    await asyncio.gather(*at._followers)
    assert kept.find(one.id).state == "failed"
    with pytest.raises(NoApproval, match="not waiting any more: failed"):
        kept.answer(one.id, Allow(), "somebody")
    assert SECRET.encode() not in read_disk(file)
    await at.close()


@pytest.mark.req("policy.pending.durable")
async def test_an_answer_of_another_process_that_cannot_be_taken_from_the_file_is_an_error_and_not_their_no(
    kept: DecisionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise NotWritten("the disk is full")

    at = make_approver(decisions=kept, park=True)
    deciding = asyncio.create_task(at.decide(approval(), HERE))
    while not at.waiting:
        await asyncio.sleep(0)
    monkeypatch.setattr(kept, "settle", full)
    kept.answer(kept.list_pending()[0].id, Allow(), "me")
    ruling = await deciding
    assert (ruling.allowed, ruling.by, ruling.why) == (False, "not written", "the disk is full")
    assert isinstance(ruling.error, NotWritten)
    await at.close()


async def test_a_no_stays_what_it_is_when_it_cannot_be_written_down(kept: DecisionStore) -> None:
    surface = AskedSurface(lambda _: block())
    at = make_approver(surface, decisions=kept, limits=Limits().but(exit_grace=LONG))
    deciding = await start_deciding(at, surface, approval(SECRET))
    with open_unwritable(kept):
        assert await at.withdraw("1", "taken back") is True
        assert ((await deciding).by, (await deciding).decision) == ("withdrawn", Deny("taken back"))
    await at.close()
    assert [one.state for one in kept.list_pending(everything=True)] == ["withdrawn"]


async def test_a_disk_that_fails_while_it_looks_for_answers_is_tried_again_and_told_once(
    kept: DecisionStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    troubles = ["the disk is gone"] * 3 + ["the disk is full"]
    stamp = kept.read_stamp

    def broken() -> object:
        if troubles:
            raise NotWritten(troubles.pop(0))
        return stamp()

    monkeypatch.setattr(kept, "read_stamp", broken)
    at = make_approver(decisions=kept, park=True)
    deciding = asyncio.create_task(at.decide(approval(), HERE))
    while troubles:
        await asyncio.sleep(0)
    kept.answer(kept.list_pending()[0].id, Allow(), "me")
    assert (await deciding).allowed
    told = [record.getMessage() for record in caplog.records if "cannot be seen" in record.getMessage()]
    assert [text.rpartition(": ")[2] for text in told] == ["the disk is gone", "the disk is full"]
    await at.close()


async def test_a_file_that_is_taken_away_is_made_anew_and_what_is_asked_then_others_see(file: str, kept: DecisionStore) -> None:
    surface = AskedSurface(lambda _: answers.pop(0))
    answers: list[Decision] = [Allow(remember="always"), Deny("asked anew")]
    at = make_approver(surface, decisions=kept)
    assert (await at.decide(approval(), HERE)).allowed
    assert (await at.decide(approval(), HERE)).by == "policy"
    for name in os.listdir(Path(file).parent):
        os.unlink(Path(file).parent / name)
    assert (await at.decide(approval(), HERE)).decision == Deny("asked anew")  # nothing is remembered any more
    assert [one.state for one in read_pending(file)] == ["used"]
    os.rename(file, f"{file}.old")
    at = make_approver(decisions=kept, park=True)
    asking = asyncio.create_task(at.ask(question(), HERE))
    while not at.waiting:
        await asyncio.sleep(0)
    assert [one.state for one in read_pending(file)] == ["waiting"]
    assert await at.withdraw("q")
    assert (await asking).by == "withdrawn"
    await at.close()


def read_pending(file: str) -> list[PendingApproval]:
    """As another process sees it."""
    other = DecisionStore(file)
    found = other.list_pending(everything=True)
    other.close()
    return found

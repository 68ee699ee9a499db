"""Approvals between real processes: asked in one, answered in another, and what a kill leaves behind."""

from __future__ import annotations

import json
import os
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from serai.model.approvals import Allow, Deny
from serai.model.surface import ScriptedSurface
from serai.policy.call_facts import CallContext
from serai.policy.decision_store import NAME, DecisionStore, PendingApproval
from tests.support.policy.approvals import HERE, SECRET, approval, make_approver, open_asker, read, say

COMMAND = f"deploy {SECRET}"


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / NAME)


def get_pending(kept: DecisionStore) -> PendingApproval:
    [one] = kept.list_pending()
    return one


@pytest.mark.req("policy.pending.process", "policy.pending.durable")
def test_what_one_process_asks_another_answers_and_the_first_goes_on_with_it(file: str) -> None:
    kept = DecisionStore(file)
    with open_asker(file, "ask", COMMAND) as child:
        assert read(child) == "asked"
        one = get_pending(kept)  # on disk before its surface had it
        assert (one.state, one.request.call.arguments) == ("waiting", {"command": COMMAND})  # type: ignore[union-attr]
        kept.answer(one.id, Allow({"command": "deploy --dry-run"}), "somebody")
        assert json.loads(read(child)) == ["person", {"type": "allow", "arguments": {"command": "deploy --dry-run"}}, "NoneType"]
    assert kept.find(one.id).state == "used"
    kept.close()


def kill_asker(file: str, kept: DecisionStore, answer: Allow | Deny | None = None) -> str:
    """The id of what a process asked that was killed; before it could see an answer, if there is one."""
    with open_asker(file, "ask", COMMAND) as child:
        assert read(child) == "asked"
        id = get_pending(kept).id
        os.kill(child.pid, signal.SIGSTOP)
        if answer is not None:
            kept.answer(id, answer, "somebody")
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    return id


@pytest.mark.req("policy.pending.crash")
@pytest.mark.parametrize("when", ["before the kill", "after the kill"])
async def test_the_answer_to_what_a_killed_process_asked_is_taken_once_by_who_comes_after_it(file: str, when: str) -> None:
    """Killed while it waits, or between the answer and its use."""
    kept = DecisionStore(file)
    answer = Allow({"command": "other"})
    id = kill_asker(file, kept, answer if when == "before the kill" else None)
    if when == "after the kill":
        assert (get_pending(kept).id, get_pending(kept).state) == (id, "lost")
        kept.answer(id, answer, "somebody")
    assert kept.list_pending() == []
    surface = ScriptedSurface([Deny("asked anew"), Deny("asked anew")])
    at = make_approver(surface, decisions=kept)
    other = approval(COMMAND, call="call-2")
    assert (await at.decide(other, HERE)).decision == Deny("asked anew")  # another call with the same arguments
    ruling = await at.decide(approval(COMMAND, id="new"), HERE)
    assert (ruling.decision, ruling.by, ruling.allowed) == (answer, "person", True)
    assert (await at.decide(approval(COMMAND, id="new"), HERE)).decision == Deny("asked anew")
    assert [asked.call.id for asked in surface.asked] == ["call-2", "call-1"]  # type: ignore[union-attr]
    assert kept.find(id).state == "used"
    folder = Path(file).parent
    assert SECRET.encode() not in b"".join((folder / name).read_bytes() for name in os.listdir(folder))
    await at.close()
    kept.close()


@pytest.mark.req("policy.pending.crash")
@pytest.mark.parametrize(
    "where",
    [
        CallContext(cwd="/", session="s2", agent="claude"),
        CallContext(cwd="/", session="", agent="claude"),
        CallContext(cwd="/tmp", session="s1", agent="claude"),
        CallContext(cwd="/", session="s1", agent="claude", owner="zot:deploy"),
    ],
)
async def test_nobody_else_gets_that_answer(file: str, where: CallContext) -> None:
    kept = DecisionStore(file)
    kill_asker(file, kept, Allow())
    at = make_approver(ScriptedSurface([Deny("asked anew")]), decisions=kept)
    assert (await at.decide(approval(COMMAND), where)).decision == Deny("asked anew")
    await at.close()
    kept.close()


@pytest.mark.req("policy.pending.crash")
@pytest.mark.parametrize("answered", [False, True])
async def test_what_a_living_process_asks_nobody_takes_over_also_while_it_is_stopped(file: str, answered: bool) -> None:
    kept = DecisionStore(file)
    with open_asker(file, "ask", COMMAND) as child:
        assert read(child) == "asked"
        one = get_pending(kept)
        for stop in (False, True):
            if stop:
                os.kill(child.pid, signal.SIGSTOP)
                if answered:
                    kept.answer(one.id, Allow(), "somebody")
            at = make_approver(ScriptedSurface([Deny("asked anew")]), decisions=kept)
            assert (await at.decide(approval(COMMAND), HERE)).decision == Deny("asked anew")
            assert kept.find(one.id).state == ("answered" if stop and answered else "waiting")
            await at.close()
        os.kill(child.pid, signal.SIGCONT)
        if answered:
            assert json.loads(read(child))[:2] == ["person", {"type": "allow"}]
    kept.close()


@pytest.mark.req("policy.pending.crash")
async def test_what_was_lost_is_asked_again_under_the_id_it_had(file: str) -> None:
    kept = DecisionStore(file)
    id = kill_asker(file, kept)
    at = make_approver(ScriptedSurface([Deny("no")]), decisions=kept)
    assert (await at.decide(approval(COMMAND), HERE)).decision == Deny("no")
    assert [(one.id, one.state) for one in kept.list_pending(everything=True)] == [(id, "used")]
    await at.close()
    kept.close()


@pytest.mark.req("policy.pending.once")
@pytest.mark.parametrize("lost", [False, True])
def test_of_processes_that_answer_at_once_one_wins_and_the_others_are_told(file: str, lost: bool) -> None:
    kept = DecisionStore(file)
    id = kill_asker(file, kept) if lost else kept.ask(approval(), HERE, "d", 60).id
    with ExitStack() as stack:
        children = [stack.enter_context(open_asker(file, "answer", id, name)) for name in ("anna", "bert", "carl")]
        assert [read(child) for child in children] == ["ready"] * 3
        for child in children:
            say(child, "go")
        said = [read(child) for child in children]
    winner = kept.find(id).answered_by
    assert sorted(said) == sorted(["won", *[f"it is not waiting any more: answered by {winner}"] * 2])
    assert said[["anna", "bert", "carl"].index(winner)] == "won"
    assert kept.find(id).decision == Deny(winner)
    kept.close()


@pytest.mark.req("policy.pending.durable")
def test_without_room_on_the_disk_it_is_denied_with_the_error_and_nobody_is_asked(file: str) -> None:
    kept = DecisionStore(file)
    with open_asker(file, "ask-without-room", "x" * 100_000) as child:
        by, decision, error = json.loads(read(child))
    assert (by, decision["type"], error) == ("not written", "deny", "NotWritten")
    assert decision["why"].startswith(f"{file}: approvals and decisions cannot be used: ")
    assert kept.list_pending(everything=True) == []
    kept.close()

"""What is remembered and what waits, in one file that processes share."""

from __future__ import annotations

import gc
import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serai.errors import NoApproval, NotWritten
from serai.limits import Limits
from serai.model.approvals import Allow, Answer, Approval, Decision, Deny, Remember
from serai.model.tools import ToolCall
from serai.policy.call_facts import CallContext, CallFacts
from serai.policy.decision_store import NAME, DecisionStore, PendingApproval, is_valid_answer
from serai.policy.engine import Policy
from serai.policy.rules import Rule, Rules
from serai.policy.suggested_rules import build_rule, remember_decision
from tests.support.policy.approvals import HERE, SECRET, Clock, approval, question, read_disk

DAY = 86400.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "state" / NAME)


@pytest.fixture
def kept(file: str, clock: Clock) -> Iterator[DecisionStore]:
    decisions = DecisionStore(file, clock)
    yield decisions
    decisions.close()


def rule(tool: str = "bash", decide: Any = "allow", **more: Any) -> Rule:
    return Rule(id=f"r-{tool}", decide=decide, tool=(tool,), **more)


def ask(
    kept: DecisionStore, request: Any = None, *, where: CallContext = HERE, digest: str = "d", seconds: float = 60.0
) -> PendingApproval:
    return kept.ask(request or approval(), where, digest, seconds)


# -- what is remembered -----------------------------------------------------------------------------------------------------------


def judge_command(kept: DecisionStore, clock: Clock, where: CallContext, command: str = "make test", tool: str = "bash") -> str:
    call = ToolCall(tool, {"command": command}, asker="claude")
    return Policy(Rules(), memory=kept, clock=clock).judge(call, where).decision


ELSEWHERE = CallContext(cwd="/tmp", project="/tmp", session="s2", agent="claude")  # another session of another project
NEXT = CallContext(cwd="/", project="/", session="s2", agent="claude")  # another session of the same


@pytest.mark.req("policy.remember.scope", "agents.edge.29")
@pytest.mark.parametrize(
    ("scope", "here", "next_", "elsewhere"),
    [
        ("once", "ask", "ask", "ask"),
        ("session", "allow", "ask", "ask"),
        ("project", "allow", "allow", "ask"),
        ("always",) + ("allow",) * 3,
    ],
)
def test_a_decision_holds_in_its_scope_alone_and_for_its_tool(
    kept: DecisionStore, clock: Clock, scope: Remember, here: str, next_: str, elsewhere: str
) -> None:
    subject = CallFacts(approval().call, HERE)
    assert remember_decision(kept, build_rule(subject, Allow()), HERE, scope, Limits()) is (scope != "once")
    assert [judge_command(kept, clock, where) for where in (HERE, NEXT, ELSEWHERE)] == [here, next_, elsewhere]
    assert judge_command(kept, clock, HERE, "make install") == "ask"
    assert judge_command(kept, clock, HERE, tool="other") == "ask"


@pytest.mark.req("policy.remember.scope")
def test_a_session_without_a_name_cannot_be_known_again_so_nothing_is_remembered_for_it(kept: DecisionStore) -> None:
    nameless = CallContext(cwd="/", agent="claude")
    assert remember_decision(kept, rule(), nameless, "session", Limits()) is False
    assert kept.list_decisions() == ()


@pytest.mark.req("policy.remember.scope", "agents.edge.29")
def test_the_end_of_a_session_takes_its_decisions_along_and_no_others(kept: DecisionStore) -> None:
    for scope, key in (("session", "s1"), ("session", "s2"), ("project", "/"), ("always", "")):
        kept.remember(rule(), scope, key, None)  # type: ignore[arg-type]
    assert kept.forget_all("session", "s1") == 1
    assert {(one.scope, one.key) for one in kept.list_decisions()} == {("session", "s2"), ("project", "/"), ("always", "")}
    assert kept.forget_all() == 3
    assert kept.list_decisions() == ()


@pytest.mark.req("policy.remember.expiry", "agents.edge.29")
def test_sessions_and_projects_forget_after_the_limit_and_always_does_not(kept: DecisionStore, clock: Clock) -> None:
    limits = Limits().but(remember=2)
    for scope in ("session", "project", "always"):
        remember_decision(kept, rule(tool=scope), HERE, scope, limits)

    def known() -> set[str]:
        return {one.scope for one in kept.list_decisions()}

    clock.now += 2 * DAY - 1
    assert known() == {"session", "project", "always"}
    clock.now += 1
    assert known() == {"always"}
    clock.now += 1000 * DAY
    assert known() == {"always"}


@pytest.mark.req("policy.remember.expiry")
def test_a_clock_that_is_set_back_makes_nothing_valid_again(file: str, kept: DecisionStore, clock: Clock) -> None:
    remember_decision(kept, build_rule(CallFacts(approval().call, HERE), Allow()), HERE, "session", Limits())
    began = clock.now
    assert judge_command(kept, clock, HERE) == "allow"
    clock.now = began - 1  # before it was decided
    assert judge_command(kept, clock, HERE) == "ask"
    clock.now = began + DAY  # over, and seen to be so
    assert judge_command(kept, clock, HERE) == "ask"
    clock.now = began + 1
    assert judge_command(kept, clock, HERE) == "ask"
    kept.remember(rule(), "always", "", None)  # with the next that is written it is gone from the file too
    other = DecisionStore(file, clock)
    assert [one.scope for one in other.list_decisions()] == ["always"]
    other.close()


@pytest.mark.req("policy.remember.shared")
def test_what_one_remembers_or_forgets_another_knows_at_its_next_call(file: str, kept: DecisionStore, clock: Clock) -> None:
    other = DecisionStore(file, clock)
    assert other.list_decisions() == ()
    one = kept.remember(rule(), "always", "", None)
    assert [known.id for known in other.list_decisions()] == [one.id]
    assert other.list_decisions()[0].rule == one.rule.__class__(**{**_fields(one.rule), "source": f"remembered {one.id}"})
    assert other.forget([one.id, "nothing"]) == [one.id]
    assert kept.list_decisions() == ()
    other.close()


def _fields(rule: Rule) -> dict[str, Any]:
    return {name: getattr(rule, name) for name in ("id", "decide", "tool", "exactly")}


def test_what_nobody_changed_is_not_read_again(kept: DecisionStore) -> None:
    kept.remember(rule(), "always", "", None)
    assert kept.list_decisions()[0] is kept.list_decisions()[0]


def test_the_same_decision_again_takes_the_place_of_the_older_whatever_it_was(kept: DecisionStore, clock: Clock) -> None:
    kept.remember(rule(decide="deny", because="no"), "session", "s1", None)
    kept.remember(rule(), "session", "s2", None)
    clock.now += 1
    newer = kept.remember(rule(), "session", "s1", None)
    assert [(one.key, one.rule.decide) for one in kept.list_decisions()] == [("s1", "allow"), ("s2", "allow")]
    assert kept.list_decisions()[0].id == newer.id


def test_the_newest_comes_first(kept: DecisionStore, clock: Clock) -> None:
    for tool in "abc":
        clock.now += 1
        kept.remember(rule(tool), "always", "", None)
    assert [one.rule.tool for one in kept.list_decisions()] == [("c",), ("b",), ("a",)]


def test_a_remembered_rule_by_its_very_arguments_comes_back_from_disk(file: str, kept: DecisionStore, clock: Clock) -> None:
    kept.remember(rule(exactly="abc"), "always", "", None)
    other = DecisionStore(file, clock)
    assert other.list_decisions()[0].rule.exactly == "abc"
    other.close()


# -- what waits -------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("policy.pending.durable", "policy.pending.process")
def test_what_is_asked_is_in_a_private_file_that_another_reads(file: str, kept: DecisionStore, clock: Clock) -> None:
    asked = ask(kept, approval(title="Run it", reason="because", routing={"chat_id": "7"}))
    clock.now += 1
    ask(kept, question(), digest="e")
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    other = DecisionStore(file, clock)
    found, second = other.list_pending()
    other.close()
    assert found == asked
    assert (found.state, found.until, found.situation) == ("waiting", asked.asked + 60, HERE)
    assert second.request == question()


@pytest.mark.req("policy.pending.once")
@pytest.mark.parametrize(
    ("ended", "told"),
    [
        ("answered", "answered by me"),
        ("used", "answered by person"),
        ("timed out", "timed out"),
        ("withdrawn", "withdrawn"),
        ("failed", "failed"),
    ],
)
def test_an_answer_to_what_was_settled_is_told_how_that_ended(kept: DecisionStore, ended: Any, told: str) -> None:
    id = ask(kept).id
    if ended == "answered":
        kept.answer(id, Allow(), "me")
    else:
        kept.settle(id, ended, Deny(), "person" if ended == "used" else "")
    with pytest.raises(NoApproval) as caught:
        kept.answer(id, Deny(), "me")
    assert caught.value.message == f"it is not waiting any more: {told}"
    assert kept.list_pending() == []
    assert [one.state for one in kept.list_pending(everything=True)] == [ended]


@pytest.mark.req("policy.pending.once")
def test_who_settles_after_an_answer_gets_that_answer_once(kept: DecisionStore) -> None:
    id = ask(kept).id
    kept.answer(id, Allow({"command": "other"}), "me")
    assert kept.find_answered([id, "nothing"]) == [id]
    found = kept.settle(id, "timed out", Deny("Request timed out"), "")
    assert (found.state, found.decision, found.answered_by) == ("answered", Allow({"command": "other"}), "me")
    assert kept.find(id).state == "used"
    assert kept.settle(id, "timed out", Deny(), "").state == "used"


def test_what_is_out_of_time_is_told_so_and_not_listed(kept: DecisionStore, clock: Clock) -> None:
    id = ask(kept).id
    clock.now += 60
    assert kept.list_pending() == []
    assert kept.find(id).state == "timed out"
    with pytest.raises(NoApproval, match="out of time"):
        kept.answer(id, Allow(), "me")


@pytest.mark.parametrize(
    ("request_", "decision", "good"),
    [
        (approval(), Allow(), True),
        (approval(), Allow({"command": "x"}), True),
        (approval(), Deny("no", interrupt=True), True),
        (approval(), Answer({}), False),
        (approval(), Allow(["x"]), False),
        (approval(), Allow({"x": object()}), False),
        (approval(), Allow({"x": "\ud800"}), False),
        (approval(), Allow(remember="for ever"), False),  # type: ignore[arg-type]
        (approval(), Deny(why=7), False),  # type: ignore[arg-type]
        (approval(), None, False),
        (approval(), True, False),
        (approval(), "allow", False),
        (question(), Answer({"Which?": "this"}), True),
        (question(), Answer({}), True),
        (question(), Deny(), True),
        (question(), Allow(), False),
        (question(), Answer("this"), False),  # type: ignore[arg-type]
    ],
)
def test_an_answer_has_to_fit_what_is_asked(kept: DecisionStore, request_: Any, decision: Any, good: bool) -> None:
    assert is_valid_answer(decision, request_) is good
    id = ask(kept, request_).id
    if good:
        assert kept.answer(id, decision, "me").decision == decision
    else:
        with pytest.raises(NoApproval, match="it wants (allow or deny|an answer or a deny)"):
            kept.answer(id, decision, "me")
        assert kept.find(id).state == "waiting"


def test_an_approval_is_found_by_the_start_of_its_id_if_that_is_enough(kept: DecisionStore) -> None:
    ids = [ask(kept, digest=str(number)).id for number in range(40)]  # more than there are first digits
    first = next(id for id in ids if sum(one[0] == id[0] for one in ids) > 1)
    assert kept.find(ids[0]).id == ids[0]
    assert kept.find(ids[0][:7]).id == ids[0]
    with pytest.raises(NoApproval, match="approvals begin with"):
        kept.find(first[0])
    for unknown in ("", "x", "%", "_", ids[0] + "0"):
        with pytest.raises(NoApproval, match="there is no approval"):
            kept.find(unknown)


def test_the_stamp_changes_with_every_writer_also_with_oneself(file: str, kept: DecisionStore, clock: Clock) -> None:
    other = DecisionStore(file, clock)
    id = ask(kept).id
    stamps = [kept.read_stamp()]
    assert kept.read_stamp() == stamps[0]
    kept.remember(rule(), "always", "", None)
    stamps.append(kept.read_stamp())
    other.answer(id, Allow(), "me")
    stamps.append(kept.read_stamp())
    other.close()
    assert len(set(map(str, stamps))) == 3


def test_what_was_settled_a_month_ago_is_forgotten_and_what_waits_is_not(file: str, clock: Clock) -> None:
    kept = DecisionStore(file, clock)
    old = ask(kept).id
    kept.settle(old, "withdrawn", Deny(), "")
    clock.now += 29 * DAY
    young = ask(kept, seconds=3600).id
    kept.close()
    for wait, left in ((0.0, {old, young}), (DAY, {young}), (31 * DAY, set())):
        clock.now += wait
        kept = DecisionStore(file, clock)
        assert {one.id for one in kept.list_pending(everything=True)} == left
        kept.close()


# -- what a dead process asked ----------------------------------------------------------------------------------------------------

DEAD = "1:1:another boot"


def ask_from_dead_process(kept: DecisionStore, request: Any, answer: Decision | None = None) -> str:
    id = ask(kept, request).id
    kept._db.rows.execute("UPDATE approvals SET owner = ?", [DEAD])
    if answer is not None:
        kept.answer(id, answer, "me")
    return id


@pytest.mark.req("policy.pending.crash")
@pytest.mark.parametrize(
    ("request_", "taken"),
    [
        (approval(), True),
        (approval(call=""), False),  # whose calls have no ids: they may be another's
        (msgspec.structs.replace(question(), call_id="toolu_1"), True),
        (question(), False),
    ],
)
def test_only_a_call_that_can_be_told_from_others_takes_over_what_a_dead_process_asked(
    kept: DecisionStore, request_: Any, taken: bool
) -> None:
    answer: Decision = Allow() if isinstance(request_, Approval) else Answer({"Which?": "this"})
    id = ask_from_dead_process(kept, request_, answer)
    found = ask(kept, request_)
    assert (found.id == id, found.decision) == (taken, answer if taken else None)


@pytest.mark.req("policy.pending.crash", "policy.pending.secret")
@pytest.mark.parametrize("answer", [Allow({"command": SECRET}), None])
def test_after_a_day_nobody_comes_back_for_it(file: str, kept: DecisionStore, clock: Clock, answer: Decision | None) -> None:
    id = ask_from_dead_process(kept, approval(SECRET), answer)
    clock.now += 60 + DAY - 1
    assert kept.find(id).state == ("answered" if answer else "lost")
    clock.now += 1
    assert kept.list_pending() == []
    if answer is None:
        with pytest.raises(NoApproval, match="out of time|there is no approval"):
            kept.answer(id, Allow(), "me")
    assert ask(kept, approval(SECRET)).id != id
    assert id not in {one.id for one in kept.list_pending(everything=True)}


def test_what_a_living_process_asks_is_not_taken_away_however_the_clock_goes(kept: DecisionStore, clock: Clock) -> None:
    id = ask(kept).id
    clock.now += 2 * DAY  # as after a long sleep of the machine
    ask(kept, digest="other")
    assert kept.settle(id, "used", Allow(), "person").answered_by == "person"


# -- texts that are no UTF-8 ------------------------------------------------------------------------------------------------------

ODD = os.fsdecode(b"/tmp/\xff")


def test_in_a_folder_whose_name_is_no_utf_8_it_is_asked_answered_and_taken_over(kept: DecisionStore) -> None:
    where = CallContext(cwd=ODD, project=ODD, session=ODD, agent="claude")
    id = ask(kept, where=where).id
    assert kept.find(id).situation.cwd == "/tmp/\\udcff"
    kept._db.rows.execute("UPDATE approvals SET owner = ?", [DEAD])
    answered = kept.answer(id, Deny(ODD), ODD)
    assert (answered.decision, answered.answered_by) == (Deny("/tmp/\\udcff"), "/tmp/\\udcff")
    assert ask(kept, where=where).decision == Deny("/tmp/\\udcff")


def test_ids_and_keys_that_are_no_utf_8_are_not_known_and_no_crash(kept: DecisionStore) -> None:
    with pytest.raises(NoApproval, match="there is no approval"):
        kept.find(ODD)
    with pytest.raises(NoApproval, match="there is no approval"):
        kept.answer(ODD, Allow(), "me")
    assert kept.forget([ODD]) == []
    kept.remember(rule(), "project", ODD, None)
    assert kept.forget_all("project", ODD) == 1


# -- secrets ----------------------------------------------------------------------------------------------------------------------


def secretive(length: int) -> Approval:
    """Everything that may tell of its arguments does."""
    text = f"curl -H {SECRET} " + "x" * length
    return approval(text, title=text, description=text, reason=text, blocked_path=text, suggestions=(text,), native={"input": text})


@pytest.mark.req("policy.pending.secret")
@pytest.mark.parametrize("length", [0, 100_000])
@pytest.mark.parametrize("ended", ["used", "timed out", "withdrawn", "failed"])
def test_when_it_is_settled_its_arguments_are_in_no_file(file: str, kept: DecisionStore, length: int, ended: Any) -> None:
    other = DecisionStore(file)  # so that the log stays
    id = ask(kept, secretive(length)).id
    assert SECRET.encode() in read_disk(file)
    kept.settle(id, ended, Allow({"command": SECRET}), "person")
    assert SECRET.encode() not in read_disk(file)
    found = kept.find(id).request
    assert isinstance(found, Approval)
    assert (found.id, found.agent, found.tool, found.call.id, found.call.arguments) == ("1", "claude", "bash", "call-1", {})
    other.close()


@pytest.mark.req("policy.pending.secret")
@pytest.mark.parametrize("decision", [Allow({"command": SECRET}), Answer({"Which?": SECRET})])
def test_an_answer_of_another_process_is_gone_from_the_files_once_it_is_used(
    file: str, kept: DecisionStore, clock: Clock, decision: Decision
) -> None:
    other = DecisionStore(file, clock)
    request = question(SECRET) if isinstance(decision, Answer) else secretive(10)
    id = ask(kept, request).id
    other.answer(id, decision, "me")
    assert kept.settle(id, "timed out", Deny(), "").decision == decision
    assert SECRET.encode() not in read_disk(file)
    other.close()


# -- when the disk will not -------------------------------------------------------------------------------------------------------


def test_a_place_that_cannot_be_written_is_an_error_that_names_it_and_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "broken.db").write_bytes(b"no database at all " * 1000)
    gc.collect()  # what others left would be closed in between
    before = len(os.listdir("/proc/self/fd"))
    for path in (str(tmp_path / "file" / NAME), str(tmp_path / "broken.db")):
        with pytest.raises(NotWritten) as caught:
            DecisionStore(path)
        assert caught.value.who == path
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_of_something_else_is_told_and_not_left_open(tmp_path: Path) -> None:
    path = str(tmp_path / "x.db")
    rows = sqlite3.connect(path)
    rows.executescript("CREATE TABLE decisions (id TEXT); INSERT INTO decisions VALUES ('mine')")
    rows.close()
    gc.collect()  # what others left would be closed in between
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(NotWritten, match="approvals and decisions cannot be used"):
        DecisionStore(path)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("column", ["request", "situation"])
def test_a_row_that_nobody_can_read_is_told_with_the_file(file: str, kept: DecisionStore, column: str) -> None:
    id = ask(kept).id
    kept._db.rows.execute(f"UPDATE approvals SET {column} = '{{}}'")
    for look in (kept.list_pending, lambda: kept.find(id), lambda: kept.settle(id, "used", Deny(), "")):
        with pytest.raises(NotWritten, match="cannot be read") as caught:
            look()
        assert caught.value.who == file


def test_a_remembered_rule_of_a_newer_serai_is_told_and_not_passed_over(file: str, kept: DecisionStore) -> None:
    kept.remember(rule(decide="deny"), "always", "", None)
    kept._db.rows.execute("""UPDATE decisions SET rule = '{"id": "x", "decide": "deny", "moon": "full"}'""")
    kept._changes += 1
    with pytest.raises(NotWritten, match="moon") as caught:
        kept.list_decisions()
    assert caught.value.who == file
    assert "forget it" in caught.value.hint
    assert kept.forget(kept.list_ids()) != []
    assert kept.list_decisions() == ()


def test_what_nobody_can_read_does_not_keep_others_from_being_remembered(kept: DecisionStore) -> None:
    first = kept.remember(rule(), "always", "", None)
    kept._db.rows.execute("UPDATE decisions SET rule = 'no JSON'")
    second = kept.remember(rule(), "always", "", None)
    assert set(kept.list_ids()) == {first.id, second.id}


@pytest.mark.parametrize("arguments", [{"x": "\ud800"}, {"x": object()}])
def test_what_is_no_json_is_not_asked(kept: DecisionStore, arguments: dict[str, Any]) -> None:
    request = Approval(id="1", call=ToolCall("bash", arguments))
    with pytest.raises(NotWritten, match="cannot be written as JSON"):
        ask(kept, request)
    assert kept.list_pending() == []


def test_who_holds_the_file_is_waited_for_only_so_long(file: str, kept: DecisionStore) -> None:
    other = DecisionStore(file, busy=0.01)
    with kept._db.transaction(), pytest.raises(NotWritten, match="locked"):
        ask(other)
    assert ask(other).state == "waiting"
    other.close()


# -- threads ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("policy.pending.once")
def test_many_threads_use_one_file_through_two_doors_and_each_approval_is_answered_once(
    file: str, kept: DecisionStore, clock: Clock
) -> None:
    other = DecisionStore(file, clock)
    ids = [ask(kept, digest=str(number)).id for number in range(6)]
    won: list[tuple[str, str]] = []
    failed: list[Exception] = []
    together = threading.Barrier(8)

    def work(name: str, store: DecisionStore) -> None:
        try:
            together.wait()
            for id in ids:
                store.list_pending()
                store.list_decisions()
                try:
                    won.append((id, store.answer(id, Deny(name), name).answered_by))
                except NoApproval:
                    store.remember(rule(tool=name), "always", "", None)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(str(number), (kept, other)[number % 2])) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert sorted(id for id, _ in won) == sorted(ids)
    assert {one.id: one.answered_by for one in kept.list_pending(everything=True)} == dict(won)
    other.close()


def test_usual_is_in_the_state_folder_and_in_memory_nowhere(tmp_path: Path) -> None:
    usual = DecisionStore.usual({"SERAI_HOME": str(tmp_path / "home")})
    usual.close()
    assert os.listdir(tmp_path / "home") == [NAME]
    gone = DecisionStore.in_memory()
    gone.remember(rule(), "always", "", None)
    assert len(gone.list_decisions()) == 1
    gone.close()

"""Where calls are decided: the policy, a person, or nobody; with surfaces that hang, break and lie."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from serai.errors import NoApproval, NotAllowed, NotWritten, PeerTimeout, SpawnFailed, SurfaceFailed
from serai.limits import Limits
from serai.model.approvals import Allow, Answer, Approval, Decision, Deny, Question
from serai.model.surface import CallbackSurface, HeadlessSurface, ScriptedSurface
from serai.model.tools import ToolCall
from serai.policy.approver import ApprovalOutcome, Approver
from serai.policy.call_facts import CallContext
from serai.policy.decision_store import NAME, DecisionStore
from serai.policy.engine import Policy
from serai.policy.rules import Rule, Rules, load_default_rules, parse_rule_flag
from tests.support.policy.approvals import HERE, MOMENT, AskedSurface, approval, block, make_approver, question, start_deciding

Up = Callable[[], None]  # `time_is_up`

pytestmark = pytest.mark.usefixtures("nothing_left")

SOON = 0.01  # a product's deadline that is meant to pass


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / NAME)


@pytest.fixture
def kept(file: str) -> Iterator[DecisionStore]:
    decisions = DecisionStore(file)
    yield decisions
    decisions.close()


def rules(*given: Rule) -> Rules:
    return Rules(rules=given)


def a_rule(decide: Any, command: str = "", **more: Any) -> Rule:
    return Rule(id=decide, decide=decide, tool=("bash",), command=(command,) if command else (), **more)


async def start_and_hang(first: Up) -> Any:
    first()
    await block()


# -- the policy, and nobody -------------------------------------------------------------------------------------------------------


@pytest.mark.req("agents.must.10")
async def test_what_the_policy_decides_no_surface_is_asked() -> None:
    surface = AskedSurface(lambda _: pytest.fail("asked"))
    at = make_approver(surface, rules=rules(a_rule("allow", "make *"), a_rule("deny", "rm *", because="it stays")))
    allowed = await at.decide(approval("make test"), HERE)
    assert (allowed.allowed, allowed.by, allowed.error) == (True, "policy", None)
    denied = await at.decide(approval("rm -r /"), HERE)
    assert (denied.allowed, denied.by, denied.why) == (False, "policy", "the rule `deny` denies it: it stays")
    assert isinstance(denied.error, NotAllowed)


@pytest.mark.req("agents.rule.22")
async def test_without_a_surface_and_a_rule_an_approval_is_denied_and_a_question_too(kept: DecisionStore) -> None:
    at = make_approver(decisions=kept)
    for ruling in (await at.decide(approval(), HERE), await at.ask(question(), HERE)):
        assert (ruling.allowed, ruling.by) == (False, "nobody")
        assert isinstance(ruling.decision, Deny)
        assert isinstance(ruling.error, NotAllowed)
    assert kept.list_pending(everything=True) == []


@pytest.mark.req("policy.decide.nobody")
@pytest.mark.parametrize(
    ("tool", "arguments", "other"),
    [
        ("bash", {"command": "make test"}, {"command": "make install"}),
        ("bash", {"command": "echo 'a b' \"c*\""}, {"command": "echo 'a b' cd"}),
        ("bash", {"command": "echo grüß"}, {"command": "echo gruss"}),
        ("write", {"path": "notes/a b*?.txt", "content": "x"}, {"path": "notes/a bcd.txt", "content": "x"}),
        ("write", {"path": "/etc/hosts", "content": "x"}, {"path": "/etc/host", "content": "x"}),
        ("read", {"path": "/etc/passwd"}, {"path": "/etc/shadow"}),
        ("fetch", {"url": "https://example.org:8443/x?y=1"}, {"url": "https://example.org/x?y=1"}),
        ("fetch", {"url": "http://[::1]/"}, {"url": "http://[::2]/"}),
        # What no pattern of a flag can say: then it says that it is wide.
        ("bash", {"command": "make test | tee log"}, None),
        ("weather", {"city": "Bern"}, None),
        ("mcp__x__do", {}, None),
        ("we*ther", {"city": "Bern"}, None),
    ],
)
async def test_the_error_names_the_flag_that_would_allow_that_very_call(
    tool: str, arguments: dict[str, Any], other: dict[str, Any] | None
) -> None:
    where = CallContext(cwd="/usr", agent="claude")

    async def decided(given: dict[str, Any], tool: str = tool, *more: Rule) -> ApprovalOutcome:
        request = Approval(id="1", agent="claude", call=ToolCall(tool, given, asker="claude"))
        return await Approver(Policy(load_default_rules() + rules(*more)), HeadlessSurface()).decide(request, where)

    denied = await decided(arguments)
    assert isinstance(denied.error, NotAllowed)
    assert denied.by == "nobody"
    wide = f" (every call of {tool})" if other is None else ""
    flag = denied.error.hint.removeprefix("allow it with ").removesuffix(f"{wide}, or with a rule in --policy FILE")
    option, value = shlex.split(flag)
    assert option == "--allow"
    rule = parse_rule_flag(value)
    assert (await decided(arguments, tool, rule)).allowed
    assert (await decided(other or {"path": "anything"}, tool, rule)).allowed is (other is None)
    assert not (await decided(arguments, "another", rule)).allowed


@pytest.mark.req("policy.decide.nobody")
@pytest.mark.parametrize(
    ("request_", "hint"),
    [
        (approval("make install"), "change the rule `ask` of own.toml: rules that ask come before those that allow"),
        (approval("$X -r /"), "write the call more plainly, or change the rule `deny`: what it cannot see is always asked"),
        (
            approval("echo 'open", tool="sh"),
            "a command that cannot be read is always asked, whatever rule allows it: write it more plainly",
        ),
        (approval("ls", tool="mcp:foo"), "no flag can say it: allow it with a rule in --policy FILE"),
        (approval("ls", needs_person=True), "only a person can answer it"),
    ],
)
async def test_where_no_flag_helps_the_error_says_what_does(request_: Approval, hint: str) -> None:
    at = make_approver(rules=rules(a_rule("ask", "make install", source="own.toml"), a_rule("deny", "rm *")))
    denied = await at.decide(request_, HERE)
    assert isinstance(denied.error, NotAllowed)
    assert (denied.by, denied.error.hint) == ("nobody", f"{hint}; or run it where somebody can answer")


@pytest.mark.req("agents.rule.22")
async def test_a_surface_that_only_answers_questions_is_nobody_for_an_approval(kept: DecisionStore) -> None:
    at = make_approver(CallbackSurface(question=lambda _: Answer({"Which?": "this"})), decisions=kept)
    denied = await at.decide(approval(), HERE)
    assert (denied.allowed, denied.by, type(denied.error)) == (False, "nobody", NotAllowed)
    assert kept.list_pending(everything=True) == []
    assert (await at.ask(question(), HERE)).by == "person"
    only = make_approver(CallbackSurface(by_tool={"bash": lambda _: Allow()}))
    assert (await only.decide(approval(), HERE)).allowed
    assert (await only.decide(approval(tool="other"), HERE)).by == "nobody"


# -- a person, in time or not -----------------------------------------------------------------------------------------------------


@pytest.mark.req("policy.pending.durable")
async def test_it_is_on_disk_when_the_surface_sees_it_and_settled_when_it_is_decided(kept: DecisionStore) -> None:
    seen: list[str] = []

    def answer(request: Approval | Question) -> Decision:
        seen.extend(one.state for one in kept.list_pending() if one.request == request)
        return Allow()

    ruling = await make_approver(AskedSurface(answer), decisions=kept).decide(approval(reason="it asks"), HERE)
    assert (ruling.allowed, ruling.by, ruling.error) == (True, "person", None)
    assert seen == ["waiting"]
    assert [(one.state, one.answered_by) for one in kept.list_pending(everything=True)] == [("used", "person")]


async def test_who_is_asked_hears_why_if_the_agent_does_not_say() -> None:
    surface = ScriptedSurface([Deny(), Deny()])
    at = make_approver(surface)
    await at.decide(approval(), HERE)
    await at.decide(approval(reason="its own"), HERE)
    first, second = surface.asked
    assert isinstance(first, Approval)
    assert isinstance(second, Approval)
    assert "a person is asked" in first.reason
    assert second.reason == "its own"


@pytest.mark.req("agents.rule.80", "agents.scenario.Q7", "agents.rule.36")
async def test_without_an_answer_in_time_it_is_denied(kept: DecisionStore, time_is_up: Up) -> None:
    at = make_approver(AskedSurface(lambda _: start_and_hang(time_is_up)), decisions=kept, limits=Limits().but(approval=MOMENT))
    ruling = await at.decide(approval(), HERE)
    assert (ruling.decision, ruling.by) == (Deny("Request timed out"), "timeout")
    assert isinstance(ruling.error, PeerTimeout)
    assert str(ruling.error) == "claude: Request timed out (limit approval = 77)"
    assert [one.state for one in kept.list_pending(everything=True)] == ["timed out"]
    await at.close()


@pytest.mark.req("agents.rule.80")
@pytest.mark.parametrize(("configured", "own", "until"), [(300, None, 300), (1e9, None, 3600), (300, 1e9, 3600), (300, 20, 20)])
async def test_the_time_is_five_minutes_or_what_is_configured_or_asked_and_never_above_an_hour(
    file: str, configured: float, own: float | None, until: float
) -> None:
    assert Limits().approval == 300
    kept = DecisionStore(file, lambda: 1000.0)
    surface = AskedSurface(lambda _: Deny(str(kept.list_pending()[0].until - 1000)))
    ruling = await make_approver(surface, decisions=kept, limits=Limits().but(approval=configured)).decide(
        approval(), HERE, timeout=own
    )
    assert ruling.why == str(float(until))
    kept.close()


@pytest.mark.req("agents.rule.23")
async def test_a_question_that_times_out_is_denied_and_not_answered_with_its_first_choice() -> None:
    at = make_approver(AskedSurface(lambda _: block()))
    ruling = await at.ask(question(), HERE, timeout=SOON)
    assert (ruling.decision, ruling.by) == (Deny("Request timed out"), "timeout")
    assert isinstance(ruling.error, PeerTimeout)


async def test_a_question_is_answered() -> None:
    ruling = await make_approver(ScriptedSurface([Answer({"Which?": "this"})])).ask(question(), HERE)
    assert (ruling.decision, ruling.by, ruling.error) == (Answer({"Which?": "this"}), "person", None)


@pytest.mark.req("policy.pending.withdrawn", "agents.scenario.Q8")
async def test_a_cancelled_approval_is_taken_from_the_surface_and_cannot_be_answered_any_more(kept: DecisionStore) -> None:
    taken = asyncio.Event()

    async def hang() -> Any:
        try:
            await block()
        finally:
            taken.set()

    surface = AskedSurface(lambda _: hang())
    at = make_approver(surface, decisions=kept)
    deciding = asyncio.create_task(at.decide(approval(), HERE))
    await surface.reached.wait()
    [one] = kept.list_pending()
    deciding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deciding
    await taken.wait()
    with pytest.raises(NoApproval, match="not waiting any more: withdrawn"):
        kept.answer(one.id, Allow(), "me")
    with pytest.raises(NoApproval):
        await at.answer("1", Allow())
    assert kept.find(one.id).decision == Deny("Context cancelled")
    assert at.waiting == ()
    await at.close()


@pytest.mark.req("policy.pending.withdrawn")
async def test_who_leaves_while_it_is_written_down_leaves_nothing_to_answer(kept: DecisionStore) -> None:
    at = make_approver(AskedSurface(lambda _: pytest.fail("asked")), decisions=kept, limits=Limits().but(exit_grace=40))
    with kept._lock:  # the disk takes its time
        deciding = asyncio.create_task(at.ask(approval(), HERE))
        behind = asyncio.create_task(at.ask(question(), HERE))
        for _ in range(5):
            await asyncio.sleep(0)
        deciding.cancel()
        await asyncio.sleep(0)
        assert await at.withdraw("q")  # whose turn it is not yet
        assert (await behind).by == "withdrawn"
    with pytest.raises(asyncio.CancelledError):
        await deciding
    await at.close()
    assert [one.state for one in kept.list_pending(everything=True)] == ["withdrawn"]


@pytest.mark.req("policy.pending.withdrawn", "policy.pending.once")
async def test_a_withdrawn_approval_is_denied_with_the_reason_and_an_answer_comes_too_late(kept: DecisionStore) -> None:
    surface = AskedSurface(lambda _: block())
    at = make_approver(surface, decisions=kept)
    deciding = await start_deciding(at, surface)
    [one] = kept.list_pending()
    assert await at.withdraw("1", "the agent took it back") is True
    with pytest.raises(NoApproval, match="not waiting any more: withdrawn"):
        kept.answer(one.id, Allow(), "me")
    assert await at.withdraw("1") is False
    with pytest.raises(NoApproval):
        await at.answer("1", Allow())
    ruling = await deciding
    assert (ruling.decision, ruling.by) == (Deny("the agent took it back"), "withdrawn")
    assert isinstance(ruling.error, NotAllowed)
    await at.close()


@pytest.mark.req("policy.pending.once")
async def test_who_withdraws_after_an_answer_is_told_and_that_answer_counts(kept: DecisionStore) -> None:
    """Whoever answered was told that it is."""
    surface = AskedSurface(lambda _: block())
    at = make_approver(surface, decisions=kept)
    deciding = await start_deciding(at, surface)
    [one] = kept.list_pending()
    assert kept.answer(one.id, Allow(), "me").state == "answered"
    assert await at.withdraw("1", "the agent took it back") is False
    ruling = await deciding
    assert (ruling.decision, ruling.by, ruling.error) == (Allow(), "person", None)
    assert (kept.find(one.id).state, kept.find(one.id).answered_by) == ("used", "me")
    await at.close()


# -- answered once ----------------------------------------------------------------------------------------------------------------


@pytest.mark.req("policy.pending.once")
async def test_the_caller_may_answer_once_and_who_is_second_is_told(kept: DecisionStore) -> None:
    surface = AskedSurface(lambda _: block())
    at = make_approver(surface, decisions=kept)
    deciding = await start_deciding(at, surface)
    [one] = kept.list_pending()
    assert at.waiting == tuple(surface.asked)
    with pytest.raises(NoApproval, match="no answer to it"):
        await at.answer("1", Answer({}))
    await at.answer("1", Allow({"command": "other"}))
    with pytest.raises(NoApproval):
        await at.answer("1", Deny())
    with pytest.raises(NoApproval, match="answered by person"):
        kept.answer(one.id, Deny(), "me")
    assert (await deciding).decision == Allow({"command": "other"})
    await at.close()


@pytest.mark.req("policy.pending.once")
async def test_the_caller_who_comes_after_another_process_is_told_although_the_approver_has_not_looked_yet(
    kept: DecisionStore,
) -> None:
    surface = AskedSurface(lambda _: block())
    at = make_approver(surface, decisions=kept)
    deciding = await start_deciding(at, surface)
    kept.answer(kept.list_pending()[0].id, Deny("theirs"), "me")
    with pytest.raises(NoApproval, match="answered by me"):
        await at.answer("1", Allow())
    assert (await deciding).decision == Deny("theirs")
    await at.close()


@pytest.mark.req("policy.pending.once")
@pytest.mark.parametrize("mine", ["answer", "time-out", "error"])
async def test_when_another_process_was_first_its_answer_counts(kept: DecisionStore, mine: str, time_is_up: Up) -> None:
    """The surface answers, fails or is out of time a moment later."""

    async def later(_: object) -> Decision:
        kept.answer(kept.list_pending()[0].id, Deny("theirs"), "me")
        if mine == "time-out":
            await start_and_hang(time_is_up)
        if mine == "error":
            raise ValueError
        return Allow()

    at = make_approver(AskedSurface(later), decisions=kept)
    ruling = await at.decide(approval(), HERE, timeout=MOMENT if mine == "time-out" else None)
    assert (ruling.decision, ruling.by, ruling.error) == (Deny("theirs"), "person", None)
    await at.close()


@pytest.mark.req("policy.pending.process")
@pytest.mark.parametrize("door", ["the same", "another"])
async def test_parked_without_a_surface_it_waits_for_who_answers_through_the_file(
    file: str, kept: DecisionStore, door: str
) -> None:
    other = kept if door == "the same" else DecisionStore(file)
    at = make_approver(decisions=kept, park=True)
    deciding = asyncio.create_task(at.decide(approval(), HERE))
    while not (found := other.list_pending()):
        await asyncio.sleep(0)
    other.answer(found[0].id, Allow(), "me")
    assert (await deciding).allowed
    await at.close()
    if other is not kept:
        other.close()


@pytest.mark.req("policy.pending.once")
async def test_an_answer_after_the_time_out_is_told_so_while_that_is_still_being_written(
    kept: DecisionStore, time_is_up: Up
) -> None:
    surface = AskedSurface(lambda _: block())
    at = make_approver(surface, decisions=kept)
    deciding = asyncio.create_task(at.decide(approval(), HERE, timeout=MOMENT))
    await surface.reached.wait()
    with kept._lock:
        time_is_up()
        while at.waiting:
            await asyncio.sleep(0)
        with pytest.raises(NoApproval):
            await at.answer("1", Allow())
    assert (await deciding).by == "timeout"
    await at.close()


# -- surfaces that misbehave ------------------------------------------------------------------------------------------------------


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


async def raise_cancelled() -> Any:
    raise asyncio.CancelledError


def raise_error(error: BaseException) -> Any:
    raise error


@pytest.mark.req("agents.rule.36", "policy.pending.side-by-side")
@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize(
    ("answer", "by", "why"),
    [
        (lambda _: raise_error(SpawnFailed("no such program", who="zenity")), "surface failed", "zenity: no such program"),
        (lambda _: raise_error(TimeoutError()), "surface failed", "TimeoutError"),
        (lambda _: raise_error(Unspeakable()), "surface failed", "Unspeakable"),
        (lambda _: raise_cancelled(), "surface failed", "the surface gave up"),
        (lambda _: None, "bad answer", "the surface gave a bad answer, of the type NoneType"),
        (lambda _: True, "bad answer", "the surface gave a bad answer, of the type bool"),
        (lambda _: Unspeakable(), "bad answer", "the surface gave a bad answer, of the type Unspeakable"),
        (lambda _: Answer({"x": "yes"}), "bad answer", "the surface gave a bad answer, of the type Answer"),
        (lambda _: Allow("everything"), "bad answer", "the surface gave a bad answer, of the type Allow"),
        (lambda _: Allow({"x": "\ud800"}), "bad answer", "the surface gave a bad answer, of the type Allow"),
        (lambda _: Deny("no"), "person", "no"),
        (lambda _: block(), "timeout", "Request timed out"),
    ],
)
async def test_a_surface_that_fails_lies_refuses_or_hangs_is_a_no_of_its_own_kind(
    kept: DecisionStore, answer: Any, by: str, why: str, durable: bool, time_is_up: Up
) -> None:
    at = make_approver(surface := AskedSurface(answer), decisions=kept if durable else None)
    deciding = asyncio.create_task(at.decide(approval(), HERE, timeout=MOMENT))
    await surface.reached.wait()
    if by == "timeout":
        time_is_up()
    ruling = await deciding
    assert (ruling.allowed, ruling.by, ruling.decision) == (False, by, Deny(why))
    kinds = {"surface failed": SurfaceFailed, "bad answer": SurfaceFailed, "timeout": PeerTimeout, "person": type(None)}
    assert type(ruling.error) is kinds[by]
    states = {"surface failed": "failed", "bad answer": "failed", "timeout": "timed out", "person": "used"}
    assert [one.state for one in kept.list_pending(everything=True)] == [states[by]] * durable
    await at.close()


@pytest.mark.req("agents.edge.30", "policy.pending.side-by-side")
async def test_one_that_hangs_fails_or_lies_holds_up_no_other(kept: DecisionStore) -> None:
    bad: dict[str, Any] = {"hang": block, "fail": lambda: raise_error(ValueError("broken")), "lie": lambda: 7}
    surface = AskedSurface(lambda request: bad[request.id]() if request.id in bad else Allow())
    at = make_approver(surface, decisions=kept)
    tasks = {id: asyncio.create_task(at.decide(approval(id=id, call=id), HERE, timeout=30)) for id in (*bad, "good", "fine")}
    assert (await tasks["good"]).allowed
    assert (await tasks["fine"]).allowed
    assert (await tasks["fail"]).by == "surface failed"
    assert (await tasks["lie"]).by == "bad answer"
    assert not tasks["hang"].done()
    assert [asked.id for asked in at.waiting] == ["hang"]
    await at.answer("hang", Deny("enough"))
    assert (await tasks["hang"]).decision == Deny("enough")
    await at.close()


@pytest.mark.req("agents.edge.30")
async def test_a_surface_that_swallows_its_cancellation_is_left_behind_and_its_late_answer_is_nothing(
    kept: DecisionStore, time_is_up: Up
) -> None:
    release = asyncio.Event()

    async def stubborn(_: object) -> Decision:
        time_is_up()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                pass
        return Allow()

    at = make_approver(AskedSurface(stubborn), decisions=kept, limits=Limits().but(exit_grace=SOON))
    ruling = await at.decide(approval(), HERE, timeout=MOMENT)
    assert ruling.by == "timeout"
    await at.close()
    [left] = at._asking
    release.set()
    await left
    assert [one.state for one in kept.list_pending(everything=True)] == ["timed out"]


@pytest.mark.req("policy.pending.withdrawn")
async def test_closing_withdraws_what_waits_on_disk_too_and_asks_nothing_more(kept: DecisionStore) -> None:
    surface = AskedSurface(lambda _: block())
    at = make_approver(surface, decisions=kept, limits=Limits().but(exit_grace=40))
    deciding = [asyncio.create_task(at.decide(approval(id=str(number), call=str(number)), HERE)) for number in range(3)]
    while len(surface.asked) < 3:
        await asyncio.sleep(0)
    await at.close()
    assert [one.state for one in kept.list_pending(everything=True)] == ["withdrawn"] * 3
    assert [(await task).by for task in deciding] == ["withdrawn"] * 3
    after = await at.decide(approval(), HERE)
    assert (after.by, after.decision) == ("withdrawn", Deny("Context cancelled"))
    assert len(surface.asked) == 3
    await at.close()


# -- when the disk will not -------------------------------------------------------------------------------------------------------


@pytest.mark.req("policy.pending.durable")
async def test_what_cannot_be_written_down_is_denied_with_the_error_and_nobody_is_asked(file: str, kept: DecisionStore) -> None:
    at = make_approver(AskedSurface(lambda _: pytest.fail("asked")), decisions=(other := DecisionStore(file, busy=SOON)))
    with kept._db.transaction():  # somebody holds the file
        ruling = await at.decide(approval(), HERE)
    assert (ruling.allowed, ruling.by) == (False, "not written")
    assert isinstance(ruling.error, NotWritten)
    assert ruling.error.who == file
    other.close()
    assert (await at.decide(approval(), HERE)).by == "not written"  # nor what is remembered read


async def test_a_row_that_somebody_took_away_is_a_no(kept: DecisionStore) -> None:
    def answer(_: object) -> Decision:
        kept._db.rows.execute("DELETE FROM approvals")
        return Allow()

    ruling = await make_approver(AskedSurface(answer), decisions=kept).decide(approval(), HERE)
    assert (ruling.allowed, ruling.by) == (False, "not written")
    at = make_approver(surface := AskedSurface(lambda _: block()), decisions=kept)
    deciding = await start_deciding(at, surface)
    answer(None)
    deciding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deciding


@pytest.mark.parametrize("arguments", [{"x": "\ud800"}, {"x": object()}, []])
async def test_arguments_that_are_no_json_are_a_no_and_no_crash(kept: DecisionStore, arguments: Any) -> None:
    for _ in range(10_000):
        arguments = [arguments] if isinstance(arguments, list) else arguments
    request = Approval(id="1", call=ToolCall("other", arguments))
    ruling = await make_approver(ScriptedSurface([Allow()]), decisions=kept).ask(request, HERE)
    assert (ruling.allowed, ruling.by) == (False, "not written")


# -- after an answer --------------------------------------------------------------------------------------------------------------


@pytest.mark.req("policy.pending.changed")
async def test_arguments_that_a_person_changed_are_judged_by_the_deny_rules_again() -> None:
    surface = ScriptedSurface([Allow({"command": "rm -r /"}), Allow({"command": "ls"})])
    at = make_approver(surface, rules=rules(a_rule("deny", "rm *", because="it stays")))
    denied = await at.decide(approval(), HERE)
    assert (denied.allowed, denied.by, denied.why) == (False, "policy", "the rule `deny` denies it: it stays")
    assert isinstance(denied.error, NotAllowed)
    assert "as changed" in str(denied.error)
    assert (await at.decide(approval(), HERE)).decision == Allow({"command": "ls"})


@pytest.mark.req("policy.pending.changed")
async def test_a_forbidden_change_is_not_remembered_and_a_good_one_for_what_it_became(kept: DecisionStore) -> None:
    surface = ScriptedSurface([Allow({"command": "rm x"}, "session"), Allow({"command": "ls"}, "session"), Deny("asked")])
    at = make_approver(surface, decisions=kept, rules=rules(a_rule("deny", "rm *")))
    await at.decide(approval(), HERE)
    assert kept.list_decisions() == ()
    surface.always.clear()
    await at.decide(approval(), HERE)
    surface.always.clear()
    assert (await at.decide(approval("ls"), HERE)).by == "policy"
    assert (await at.decide(approval(), HERE)).decision == Deny("asked")


@pytest.mark.req("policy.remember.deny")
@pytest.mark.parametrize("decision", [Allow(remember="session"), Deny("never", remember="session")])
async def test_a_decision_to_be_remembered_is_not_asked_again_in_its_session(kept: DecisionStore, decision: Decision) -> None:
    surface = AskedSurface(lambda _: decision)
    at = make_approver(surface, decisions=kept)
    first = await at.decide(approval(), HERE)
    second = await at.decide(approval(id="2", call="2"), HERE)
    assert [first.by, second.by] == ["person", "policy"]
    assert first.allowed is second.allowed is isinstance(decision, Allow)
    await at.decide(approval(), CallContext(cwd="/", session="s2"))
    await at.decide(approval("make install"), HERE)
    assert len(surface.asked) == 3


@pytest.mark.req("policy.remember.deny")
async def test_a_remembered_deny_holds_before_a_remembered_allow(kept: DecisionStore) -> None:
    surface = AskedSurface(lambda _: decisions.pop(0))
    at = make_approver(surface, decisions=kept)
    decisions: list[Decision] = [Deny("no", remember="session"), Allow(remember="always")]
    await at.decide(approval(), HERE)
    await at.decide(approval(), CallContext(cwd="/", session="s2"))
    assert len(kept.list_decisions()) == 2
    assert not (await at.decide(approval(), HERE)).allowed
    assert (await at.decide(approval(), CallContext(cwd="/", session="s3"))).allowed
    assert decisions == []


@pytest.mark.req("policy.remember.deny")
@pytest.mark.parametrize(("decision", "kept_"), [(Allow(remember="always"), 0), (Deny(remember="always"), 1)])
async def test_an_agent_s_wish_not_to_be_remembered_is_kept_for_allows(kept: DecisionStore, decision: Decision, kept_: int) -> None:
    ruling = await make_approver(AskedSurface(lambda _: decision), decisions=kept).decide(approval(no_always=True), HERE)
    assert ruling.by == "person"
    assert len(kept.list_decisions()) == kept_


async def test_what_cannot_be_remembered_holds_this_once_and_the_error_says_so(kept: DecisionStore, monkeypatch: Any) -> None:
    def full(*_: object) -> None:
        raise NotWritten("the disk is full")

    monkeypatch.setattr(kept, "remember", full)
    ruling = await make_approver(AskedSurface(lambda _: Allow(remember="always")), decisions=kept).decide(approval(), HERE)
    assert (ruling.allowed, ruling.by, type(ruling.error)) == (True, "person", NotWritten)


@pytest.mark.req("agents.rule.36")
async def test_what_only_a_person_can_answer_goes_to_one_and_a_handler_that_raises_denies() -> None:
    async def broken(_: Approval) -> Decision:
        raise ValueError("no display")

    at = make_approver(CallbackSurface(approval=broken), rules=rules(a_rule("allow")))
    assert (await at.decide(approval(), HERE)).by == "policy"
    ruling = await at.decide(approval(needs_person=True), HERE)
    assert (ruling.by, ruling.decision) == ("surface failed", Deny("no display"))

"""Seed 002's permissions: its JSON, and its algorithm step by step (spec agents 1.16)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from serai.compat.agentboot.permissions import (
    SECOND,
    AskRequest,
    AskResult,
    PermissionConfig,
    PermissionHandler,
    PermissionRequest,
    PermissionResponse,
    PermissionResult,
)
from serai.errors import NoApproval, NotAllowed, NotWritten, PeerTimeout, SurfaceFailed
from serai.model.approvals import Allow, Answer, Approval, Decision, Deny, Question
from serai.model.surface import HeadlessSurface, ScriptedSurface, Surface
from serai.policy.decision_store import DecisionStore
from tests.support.policy.approvals import AskedSurface, Clock, block

Make = Callable[..., PermissionHandler]
ROUTING: dict[str, Any] = {"bot_uuid": "b", "chat_id": "c", "platform": "telegram"}


@pytest.fixture
async def permissions() -> AsyncIterator[Make]:
    """Makes them, and closes them."""
    made: list[PermissionHandler] = []

    def make(surface: Surface | None = None, *, table: bool = False, **more: Any) -> PermissionHandler:
        own = {name: more.pop(name) for name in ("decisions", "clock", "cwd") if name in more}
        made.append(PermissionHandler(PermissionConfig(**more), surface=surface, table=table, **own))
        return made[-1]

    yield make
    for one in made:
        await one.close()


def request(tool: str = "Bash", *, id: str = "r1", session: str = "s1", **arguments: Any) -> PermissionRequest:
    given = arguments or {"command": "make test"}
    return PermissionRequest(request_id=id, agent_type="claude", tool_name=tool, input=given, session_id=session)


def question(type: str = "question", **more: Any) -> AskRequest:
    return AskRequest(id="q1", type=type, agent_type="claude", session_id="s1", **ROUTING, **more)


async def start_request(permissions: PermissionHandler, asked: PermissionRequest | AskRequest, **more: Any) -> asyncio.Task[Any]:
    """It waits in the table."""
    before = len(permissions.pending())
    work = permissions.check(asked, **more) if isinstance(asked, PermissionRequest) else permissions.ask(asked, **more)
    task = asyncio.create_task(work)
    while len(permissions.pending()) == before:
        assert not task.done(), "it does not wait"
        await asyncio.sleep(0)
    return task


def no_surface() -> AskedSurface:
    return AskedSurface(lambda _: pytest.fail("asked"))


# -- the types --------------------------------------------------------------------------------------------------------------------

NEVER = "0001-01-01T00:00:00Z"
FULL_ASK = {
    "id": "1", "type": "question", "platform": "telegram", "chat_id": "c", "bot_uuid": "b", "session_id": "s",
    "agent_type": "claude", "tool_name": "Bash", "input": {"x": 1}, "message": "m",
    "call_id": "toolu", "reason": "r", "metadata": {"y": 2},
}  # fmt: skip
FULL_REQUEST = {
    "request_id": "1", "agent_type": "claude", "tool_name": "Bash", "input": {"x": 1}, "reason": "r", "session_id": "s",
    "timestamp": "2026-01-02T03:04:05.123456789+01:00", "bot_uuid": "b", "chat_id": "c", "platform": "telegram",
}  # fmt: skip
FULL_RESULT = {
    "id": "1", "approved": True, "response": "yes", "selection": {"a": "b"}, "remember": True, "reason": "r",
    "updated_input": {"x": 1},
}  # fmt: skip


@pytest.mark.req("agents.rule.37")
@pytest.mark.parametrize(
    ("kind", "form"),
    [
        (PermissionRequest, FULL_REQUEST),
        (PermissionRequest, {"request_id": "1", "agent_type": "claude", "tool_name": "Bash", "input": {}, "timestamp": NEVER}),
        (PermissionRequest, {"request_id": "1", "agent_type": "claude", "tool_name": "Bash", "input": None, "timestamp": NEVER}),
        (PermissionResponse, {"request_id": "1", "approved": True, "reason": "r", "timestamp": "2026-01-02T03:04:05Z"}),
        (PermissionResponse, {"request_id": "1", "approved": False, "timestamp": NEVER}),
        (PermissionResult, {"approved": True, "reason": "r", "updated_input": {"x": 1}, "remember": True}),
        (PermissionResult, {"approved": False}),
        (AskRequest, FULL_ASK),
        (AskRequest, {"id": "1", "type": "permission", "platform": "", "chat_id": "", "bot_uuid": "", "agent_type": "claude"}),
        (AskResult, FULL_RESULT),
        (AskResult, {"id": "1"}),
    ],
)
def test_types_are_read_and_written_with_the_seed_s_names_and_empty_optional_fields_are_left_out(
    kind: type[msgspec.Struct], form: dict[str, Any]
) -> None:
    value = msgspec.json.decode(json.dumps(form | {"a_field_of_tomorrow": 1}), type=kind)
    assert json.loads(msgspec.json.encode(value)) == form


@pytest.mark.req("agents.rule.37")
@pytest.mark.parametrize(
    "empty",
    [
        PermissionRequest(request_id="1", agent_type="claude", tool_name="x", input={}, timestamp=NEVER, reason="", session_id=""),
        AskRequest(id="1", type="question", agent_type="claude", platform="", chat_id="", bot_uuid="", input={}, metadata={}),
        AskResult(id="1", approved=False, response="", selection={}, remember=False, reason="", updated_input={}),
        PermissionResult(approved=False, reason="", updated_input=None, remember=False),
        PermissionResponse(request_id="1", approved=False, reason=""),
    ],
)
def test_what_is_set_to_nothing_is_left_out_too(empty: msgspec.Struct) -> None:
    optional = {"reason", "session_id", "metadata", "response", "selection", "remember", "updated_input", "tool_name", "message"}
    written = json.loads(msgspec.json.encode(empty))
    assert not {name for name, value in written.items() if name in optional and not value}


@pytest.mark.req("agents.rule.28")
def test_the_configuration_asks_by_default_and_is_written_whole_in_nanoseconds() -> None:
    assert json.loads(msgspec.json.encode(PermissionConfig())) == {
        "default_mode": "manual",
        "timeout": 3_600_000_000_000,
        "enable_whitelist": False,
        "whitelist": [],
        "blacklist": [],
        "remember_decisions": True,
        "decision_duration": 86_400_000_000_000,
    }


async def test_the_seed_writes_empty_lists_as_null_and_that_is_read(permissions: Make) -> None:
    config = msgspec.json.decode(b'{"default_mode":"auto","whitelist":null,"blacklist":null}', type=PermissionConfig)
    result, error = await permissions(**msgspec.structs.asdict(config)).check(request())
    assert (result.approved, error) == (True, None)


# -- step 1: the lists ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("agents.rule.29", "agents.must.10")
@pytest.mark.parametrize("mode", ["auto", "skip", "manual"])
async def test_the_blacklist_beats_the_whitelist_the_cache_and_every_mode(permissions: Make, mode: str) -> None:
    kept = DecisionStore.in_memory()
    remembering = permissions(ScriptedSurface([Allow(remember="session")]), decisions=kept)
    assert (await remembering.check(request()))[0].approved
    assert len(kept.list_decisions()) == 1
    strict = permissions(no_surface(), decisions=kept, blacklist=["Bash"], whitelist=["Bash"], default_mode=mode)
    result, error = await strict.check(request())
    assert result == PermissionResult(approved=False, reason="Tool 'Bash' is blacklisted")
    assert isinstance(error, NotAllowed)
    kept.close()


@pytest.mark.req("agents.rule.29", "agents.must.10")
@pytest.mark.parametrize("arguments", [{}, {"command": "$(("}, {"command": "ls", "cwd": "/etc"}, {"path": "a\0b"}])
async def test_a_whitelisted_tool_is_allowed_without_asking_and_whatever_is_cached(
    permissions: Make, arguments: dict[str, Any]
) -> None:
    kept = DecisionStore.in_memory()
    remembering = permissions(ScriptedSurface([Deny("no", remember="session")]), decisions=kept)
    assert not (await remembering.check(request(**arguments)))[0].approved
    result, error = await permissions(no_surface(), decisions=kept, whitelist=["Bash"]).check(request(**arguments))
    assert (result.approved, error) == (True, None)
    kept.close()


@pytest.mark.req("agents.rule.29")
async def test_the_lists_are_names_and_no_patterns(permissions: Make) -> None:
    listed = permissions(whitelist=["*", "Ba?h", "bash"], blacklist=["B*"])
    result, error = await listed.check(request())
    assert "blacklisted" not in result.reason
    assert isinstance(error, NotAllowed)


# -- step 2: the cache ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("agents.rule.30", "agents.edge.29", "agents.rule.35")
@pytest.mark.parametrize("approved", [True, False])
async def test_a_cached_decision_is_used_for_its_call_and_session_until_its_duration_is_over(
    permissions: Make, approved: bool
) -> None:
    clock = Clock()
    surface = AskedSurface(lambda _: Allow(remember="session") if approved else Deny("no", remember="session"))
    asked = permissions(surface, clock=clock, decision_duration=10 * SECOND)

    async def times(given: PermissionRequest) -> int:
        before = len(surface.asked)
        assert (await asked.check(given))[0].approved is approved
        return len(surface.asked) - before

    assert [await times(request(id=id)) for id in ("1", "2")] == [1, 0]
    assert await times(request(command="make install")) == 1  # never by the bare name of the tool
    assert await times(request("Other")) == 1
    assert await times(request(session="s2")) == 1
    clock.now += 9.9
    assert await times(request()) == 0
    clock.now += 0.2
    assert await times(request()) == 1


@pytest.mark.req("agents.rule.35")
async def test_without_remember_decisions_nothing_is_cached_and_what_is_cached_is_not_used(permissions: Make) -> None:
    kept = DecisionStore.in_memory()
    surface = AskedSurface(lambda _: Allow(remember="session"))
    forgetful = permissions(surface, decisions=kept, remember_decisions=False)
    assert [(await forgetful.check(request()))[0].approved for _ in range(2)] == [True, True]
    assert len(surface.asked) == 2
    assert kept.list_decisions() == ()
    await permissions(surface, decisions=kept).check(request())
    assert len(kept.list_decisions()) == 1
    await forgetful.check(request())
    assert len(surface.asked) == 4
    kept.close()


# -- step 3: modes ----------------------------------------------------------------------------------------------------------------


@pytest.mark.req("agents.must.10")
async def test_a_mode_is_the_session_s_own_or_the_default_and_an_unknown_one_denies_with_an_error(permissions: Make) -> None:
    modes = permissions(no_surface(), default_mode="auto")
    assert (await modes.check(request()))[0].approved
    modes.set_mode("s1", "yolo")
    assert [modes.get_mode("s1"), modes.get_mode("s2")] == ["yolo", "auto"]
    result, error = await modes.check(request())
    assert not result.approved
    assert isinstance(error, NotAllowed)
    assert "unknown mode 'yolo'" in str(error)
    modes.set_mode("s1", "skip")
    assert (await modes.check(request()))[0].approved
    modes.set_mode("s1", None)
    assert modes.get_mode("s1") == "auto"
    silent = permissions(default_mode="auto")
    silent.set_mode("s1", "manual")
    assert not (await silent.check(request()))[0].approved
    assert (await silent.check(request(session="s2")))[0].approved


@pytest.mark.req("agents.rule.36")
async def test_in_manual_mode_the_surface_decides_and_sees_what_was_asked(permissions: Make) -> None:
    surface = AskedSurface(lambda _: answers.pop(0))
    answers: list[Decision] = [Allow({"command": "other"}, "session"), Deny("not now")]
    asked = permissions(surface)
    given = PermissionRequest(
        request_id="r1", agent_type="claude", tool_name="Bash", input={"command": "x"}, reason="why", session_id="s1", **ROUTING
    )
    result, error = await asked.check(given)
    assert (result, error) == (PermissionResult(approved=True, updated_input={"command": "other"}, remember=True), None)
    assert await asked.check(given) == (PermissionResult(approved=False, reason="not now"), None)
    first = surface.asked[0]
    assert isinstance(first, Approval)
    assert (first.id, first.agent, first.session, first.tool, first.reason) == ("r1", "claude", "s1", "Bash", "why")
    assert (first.call.arguments, first.routing) == ({"command": "x"}, ROUTING)  # routing is never among the arguments


@pytest.mark.req("agents.rule.36")
async def test_a_surface_that_fails_is_a_deny_and_an_error(permissions: Make) -> None:
    def fail(_: object) -> Decision:
        raise ValueError("no display")

    result, error = await permissions(AskedSurface(fail)).check(request())
    assert result == PermissionResult(approved=False, reason="no display")
    assert isinstance(error, SurfaceFailed)


# -- step 4: the table ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("agents.rule.32")
async def test_with_a_table_a_request_waits_for_its_result(permissions: Make) -> None:
    table = permissions(table=True)
    deciding = await start_request(table, request())
    assert table.pending() == [request()]
    await table.submit_result("r1", PermissionResult(approved=True, updated_input={}))
    assert await deciding == (PermissionResult(approved=True, updated_input={}), None)
    assert table.pending() == []
    deciding = await start_request(table, request())
    await table.submit_result("r1", PermissionResult(approved=False, reason="no"))
    assert await deciding == (PermissionResult(approved=False, reason="no"), None)


@pytest.mark.req("agents.rule.32", "agents.rule.22")
async def test_with_neither_surface_nor_table_it_is_denied_at_once(permissions: Make) -> None:
    for surface in (None, HeadlessSurface()):
        result, error = await permissions(surface).check(request())
        assert not result.approved
        assert isinstance(error, NotAllowed)


@pytest.mark.req("agents.rule.33")
@pytest.mark.parametrize(("configured", "own"), [(SECOND // 100, None), (3600 * SECOND, 0.01)])
async def test_a_parked_request_that_is_out_of_time_is_denied_with_an_error(permissions: Make, configured: int, own: Any) -> None:
    result, error = await permissions(table=True, timeout=configured).check(request(), timeout=own)
    assert result == PermissionResult(approved=False, reason="Request timed out")
    assert isinstance(error, PeerTimeout)


@pytest.mark.req("agents.rule.33")
async def test_a_cancelled_request_is_denied(permissions: Make) -> None:
    table = permissions(table=True)
    deciding = await start_request(table, request())
    assert await table.cancel("r1") is True
    result, error = await deciding
    assert result == PermissionResult(approved=False, reason="Context cancelled")
    assert isinstance(error, NotAllowed)
    assert await table.cancel("r1") is False
    last = await start_request(table, request())
    await table.close()
    assert (await last)[0].reason == "Context cancelled"


@pytest.mark.req("agents.rule.34")
async def test_an_unknown_id_and_a_second_result_are_errors(permissions: Make) -> None:
    table = permissions(table=True)
    with pytest.raises(NoApproval):
        await table.submit_result("r1", PermissionResult(approved=True))
    deciding = await start_request(table, request())
    await table.submit_result("r1", PermissionResult(approved=False))
    with pytest.raises(NoApproval):
        await table.submit_result("r1", PermissionResult(approved=True))
    assert not (await deciding)[0].approved
    with pytest.raises(NoApproval):
        await table.submit_result("r1", PermissionResult(approved=True))


@pytest.mark.req("agents.rule.34")
async def test_of_two_requests_of_one_id_nobody_can_say_which_is_meant(permissions: Make) -> None:
    table = permissions(table=True)
    tasks = [await start_request(table, request())]
    tasks.append(await start_request(table, request(command="other")))
    while len(table._approver.waiting) < 2:
        await asyncio.sleep(0)
    with pytest.raises(NoApproval, match="2 of the id 'r1' wait"):
        await table.submit_result("r1", PermissionResult(approved=True))
    assert await table.cancel("r1")
    assert [(await task)[0].approved for task in tasks] == [False, False]


# -- step 5: remembering ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("agents.rule.35")
@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("remember", [True, False])
async def test_what_is_to_be_remembered_goes_to_the_lists_that_are_switched_on(
    permissions: Make, enabled: bool, cached: bool, approved: bool, remember: bool
) -> None:
    kept = DecisionStore.in_memory()
    table = permissions(table=True, decisions=kept, enable_whitelist=enabled, remember_decisions=cached)
    deciding = await start_request(table, request())
    await table.submit_result("r1", PermissionResult(approved=approved, remember=remember))
    result, _ = await deciding
    assert (result.approved, result.remember) == (approved, remember and approved)
    assert table.whitelist == ({"Bash"} if approved and remember and enabled else set())
    assert [one.rule.decide for one in kept.list_decisions()] == ["allow" if approved else "deny"] * (cached and remember)
    if approved and remember and enabled:
        assert (await table.check(request(command="anything")))[0].approved
    kept.close()


# -- what is asked besides --------------------------------------------------------------------------------------------------------


async def test_a_permission_that_is_asked_is_checked(permissions: Make) -> None:
    asked = permissions(ScriptedSurface([Allow({"x": 2}, "session")]), blacklist=["Write"], default_mode="manual")
    given = question("permission", tool_name="Bash", input={"x": 1}, reason="why")
    assert await asked.ask(given) == (AskResult(id="q1", approved=True, remember=True, updated_input={"x": 2}), None)
    denied, error = await asked.ask(question("permission", tool_name="Write"))
    assert denied == AskResult(id="q1", reason="Tool 'Write' is blacklisted")
    assert isinstance(error, NotAllowed)


@pytest.mark.parametrize(
    ("given", "answer", "approved", "response"),
    [
        (question(message="Which?"), Answer({"Which?": "this"}), True, "this"),
        (question(input={"questions": [{"question": "Which?", "options": ["a", "b"]}]}), Answer({"Which?": "a"}), True, "a"),
        (question("text_input", message="Name?"), Answer({"Name?": "x"}), True, "x"),
        (question("confirmation", message="Sure?"), Answer({"Sure?": "Yes"}), True, "Yes"),
        (question("confirmation", message="Sure?"), Answer({"Sure?": "No"}), False, "No"),
        (question("confirmation", message="Sure?"), Answer({"Sure?": "whatever"}), False, "whatever"),
        (question(message="Which?"), Answer({}), False, ""),
        (question(message="Which?"), Deny("busy"), False, ""),
    ],
)
async def test_anything_else_is_put_to_a_person_whatever_the_mode(
    permissions: Make, given: AskRequest, answer: Decision, approved: bool, response: str
) -> None:
    surface = AskedSurface(lambda _: answer)
    result, error = await permissions(surface, default_mode="auto").ask(given)
    assert (result.approved, result.response, error) == (approved, response, None)
    [asked] = surface.asked
    assert isinstance(asked, Question)
    assert asked.routing == ROUTING


@pytest.mark.req("agents.rule.23")
async def test_a_question_nobody_answers_is_no(permissions: Make) -> None:
    given = question(input={"questions": [{"question": "Which?", "options": ["a", "b"]}]})
    result, error = await permissions(AskedSurface(lambda _: block())).ask(given, timeout=0.01)
    assert result == AskResult(id="q1", reason="Request timed out")
    assert isinstance(error, PeerTimeout)
    result, error = await permissions(default_mode="auto").ask(given)
    assert not result.approved
    assert isinstance(error, NotAllowed)


@pytest.mark.parametrize(
    ("asked", "submitted", "approved", "response", "reason"),
    [
        (question(message="Which?"), AskResult(id="q1", approved=True, response="this"), True, "this", ""),
        (question(message="Which?"), AskResult(id="q1", approved=True, selection={"Which?": "that"}), True, "that", ""),
        (question(message="Which?"), AskResult(id="q1", approved=False, response="no thanks"), False, "no thanks", ""),
        (question(message="Which?"), AskResult(id="q1", reason="busy"), False, "", "busy"),
        (question(message="Which?"), PermissionResult(approved=False, reason="busy"), False, "", "busy"),
        (question("text_input", message="Name?"), AskResult(id="q1", approved=True, response="x"), True, "x", ""),
        (question("confirmation", message="Sure?"), AskResult(id="q1", approved=True), True, "Yes", ""),
        (question("confirmation", message="Sure?"), AskResult(id="q1", approved=True, response="yes"), True, "yes", ""),
        (question("confirmation", message="Sure?"), AskResult(id="q1", response="No"), False, "No", ""),
        (question("confirmation", message="Sure?"), PermissionResult(approved=True), True, "Yes", ""),
        (question("confirmation", message="Sure?"), PermissionResult(approved=False, reason="no"), False, "", "no"),
        (question("permission", message="May I?"), AskResult(id="q1", approved=True), True, "Yes", ""),
    ],
)
async def test_what_is_submitted_for_a_parked_question_is_what_comes_back(
    permissions: Make, asked: AskRequest, submitted: Any, approved: bool, response: str, reason: str
) -> None:
    table = permissions(table=True)
    asking = await start_request(table, asked)
    assert table.pending() == [asked]
    await table.submit_result("q1", submitted)
    result, error = await asking
    assert (result.id, result.approved, result.response, result.reason, error) == ("q1", approved, response, reason, None)


async def test_a_yes_is_no_answer_to_a_question_and_what_was_not_taken_does_not_come_back(permissions: Make) -> None:
    table = permissions(table=True)
    asking = await start_request(table, question(message="Which?"))
    for nothing in (PermissionResult(approved=True), AskResult(id="q1", approved=True)):
        with pytest.raises(NoApproval, match="no answer"):
            await table.submit_result("q1", nothing)
    assert await table.cancel("q1")
    assert (await asking)[0] == AskResult(id="q1", reason="Context cancelled")


async def test_what_was_submitted_and_could_not_be_used_does_not_come_back(
    permissions: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = DecisionStore.in_memory()
    table = permissions(table=True, decisions=kept)

    def full(*_: object) -> None:
        raise NotWritten("the disk is full")

    asking = await start_request(table, question(message="Which?"))
    monkeypatch.setattr(kept, "settle", full)
    await table.submit_result("q1", AskResult(id="q1", approved=True, response="this"))
    result, error = await asking
    assert (result, type(error)) == (AskResult(id="q1", reason="the disk is full"), NotWritten)
    await table.close()
    kept.close()


@pytest.mark.req("agents.rule.35")
@pytest.mark.parametrize("approved", [True, False])
async def test_without_a_session_what_is_remembered_is_so_for_the_folder(permissions: Make, approved: bool) -> None:
    kept = DecisionStore.in_memory()
    table = permissions(table=True, decisions=kept, cwd="/usr")
    deciding = await start_request(table, request(session=""))
    await table.submit_result("r1", PermissionResult(approved=approved, remember=True))
    assert (await deciding)[0].approved is approved
    assert [(one.scope, one.key) for one in kept.list_decisions()] == [("project", "/usr")]
    assert (await permissions(no_surface(), decisions=kept, cwd="/usr").check(request(session="")))[0].approved is approved
    result, error = await permissions(decisions=kept, cwd="/etc").check(request(session=""))
    assert isinstance(error, NotAllowed)
    assert "nobody is there" in result.reason
    kept.close()


@pytest.mark.req("policy.pending.crash")
@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize(
    ("asked", "other", "answer"),
    [
        (request(), request(id="r2"), Allow()),
        (question(message="Which?"), msgspec.structs.replace(question(message="Which?"), id="q2"), Answer({"Which?": "this"})),
    ],
)
async def test_only_the_same_request_takes_the_answer_to_what_a_dead_process_asked(
    permissions: Make, asked: Any, other: Any, answer: Decision, same: bool
) -> None:
    kept = DecisionStore.in_memory()
    lost = await start_request(permissions(table=True, decisions=kept), asked)
    row = dict(kept._db.rows.execute("SELECT * FROM approvals").fetchone())
    lost.cancel()
    with pytest.raises(asyncio.CancelledError):
        await lost
    row |= {"state": "answered", "decision": msgspec.json.encode(answer).decode(), "owner": "1:1:another boot"}
    kept._db.rows.execute(f"REPLACE INTO approvals ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values()))
    after = permissions(AskedSurface(lambda _: Deny("asked anew")), decisions=kept)
    given = asked if same else other
    result, error = await (after.check(given) if isinstance(given, PermissionRequest) else after.ask(given))
    assert (result.approved, result.reason, error) == (same, "" if same else "asked anew", None)
    kept.close()

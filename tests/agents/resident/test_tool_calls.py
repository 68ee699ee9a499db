"""Calls at bad moments: steered, denied, late, allowed by somebody who saw something else."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import msgspec
import pytest

from serai.agents.resident.driver import Resident
from serai.errors import NotWritten
from serai.model.approvals import Allow, Approval, Deny
from serai.model.events import Event, ToolEnded, ToolProgress, ToolStarted
from serai.model.tools import ProgressCallback, ToolCall, ToolResult, ToolSpec
from tests.support.agents.scripted_models import QUICK, Answers, Box, call, conversation, echo, hang, kinds, reply, resident, texts

SHORT = QUICK.but(interrupt=0.2)


# -- steered


@pytest.mark.req("piglet.rule.loop-steering")
async def test_a_call_that_has_not_begun_does_not_begin_once_somebody_has_steered() -> None:
    box = Box(hang=hang, echo=echo)
    provider = Answers([reply("", call("hang", "c1"), call("echo", "c2"))], [reply("ok")])
    async with resident(provider, box, limits=QUICK.but(tools_at_once=1)) as session:
        async for event in session.turn("go"):
            if isinstance(event, ToolStarted):
                session.steer("never mind")
    assert [done.name for done in box.calls] == ["hang"]
    assert texts(conversation(session))[2:5] == [*["tool: tool execution cancelled"] * 2, "user: never mind"]


@pytest.mark.req("piglet.rule.loop-steering")
async def test_a_call_that_waits_to_be_approved_does_not_begin_once_somebody_has_steered() -> None:
    box = Box(echo=echo)
    async with resident(Answers([reply("", call("echo"))], [reply("ok")]), box, decide=None) as session:
        events: list[Event] = []
        async for event in session.turn("go"):
            events.append(event)
            if isinstance(event, Approval):
                session.steer("never mind")
    assert box.calls == []
    assert "request_cancelled" in kinds(events)
    assert texts(conversation(session))[2:4] == ["tool: tool execution cancelled", "user: never mind"]


# -- late


@pytest.mark.req("piglet.fix.22")
async def test_what_is_said_in_the_name_of_a_call_that_is_over_is_not_heard() -> None:
    over = asyncio.Event()
    tells: list[ProgressCallback] = []

    async def quick(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        assert tell is not None
        tells.append(tell)
        return ToolResult.of("done")

    async def slow(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        await over.wait()
        tells[0]("too late")
        return ToolResult.of("done")

    provider = Answers([reply("", call("quick", "c1"), call("slow", "c2"))], [reply("ok")])
    async with resident(provider, Box(quick=quick, slow=slow)) as session:
        events: list[Event] = []
        async for event in session.turn("go"):
            events.append(event)
            if isinstance(event, ToolEnded):
                over.set()
    assert not any(isinstance(event, ToolProgress) for event in events)


@pytest.mark.req("resident.bad.tool-hangs")
async def test_a_tool_that_was_too_slow_has_tidied_up_when_its_result_is_told_and_is_not_heard_meanwhile() -> None:
    order: list[str] = []

    async def slow(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        assert tell is not None
        try:
            await asyncio.Event().wait()
        finally:
            tell("tidying up")
            await asyncio.sleep(0)
            order.append("tidy")
        raise AssertionError

    async with resident(Answers([reply("", call("slow"))], [reply("ok")]), Box(slow=slow), limits=QUICK.but(tool=0.01)) as session:
        session.listen(lambda event: order.append("told") if isinstance(event, ToolEnded) else None)
        events = [event async for event in session.turn("go")]
    assert order == ["tidy", "told"]
    assert not any(isinstance(event, ToolProgress) for event in events)


async def test_when_a_turn_is_over_its_tools_have_tidied_up() -> None:
    tidy: list[str] = []

    async def slow(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            tidy.append(call.id)
        raise AssertionError

    provider = Answers([reply("", call("slow", "c1"), call("slow", "c2"))], [reply("ok")])
    async with resident(provider, Box(slow=slow)) as session:
        turn = session.turn("go")
        begun = 0
        async for event in turn:
            begun += isinstance(event, ToolStarted)
            if begun == 2 and isinstance(event, ToolStarted):
                await turn.cancel("enough")
                assert tidy == ["c1", "c2"]


async def test_nobody_is_bothered_with_how_a_tool_ends_that_was_left_behind() -> None:
    release, ended = asyncio.Event(), asyncio.Event()

    async def stubborn(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        ended.set()
        raise RuntimeError("at last")

    bothered: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: bothered.append(context))
    async with resident(
        Answers([reply("", call("stubborn"))], [reply("ok")]), Box(stubborn=stubborn), limits=QUICK.but(tool=0.01, interrupt=0.1)
    ) as session:
        await session.turn("go")
        release.set()
        await ended.wait()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()
    assert bothered == []


# -- denied


async def test_of_two_who_end_the_turn_the_first_says_why() -> None:
    async def decide(call: ToolCall) -> Allow | Deny:
        if call.id == "c1":
            await asyncio.sleep(0)
            return Deny("first", interrupt=True)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return Deny("second", interrupt=True)
        raise AssertionError

    async with resident(Answers([reply("", call("echo", "c1"), call("echo", "c2"))]), decide=decide) as session:
        result = await session.turn("go")
    assert (result.status, result.error) == ("denied", "first")


async def test_a_no_without_a_reason_is_told_as_one() -> None:
    async def decide(call: ToolCall) -> Allow | Deny:
        return Deny()

    async with resident(Answers([reply("", call("echo"))], [reply("ok")]), decide=decide) as session:
        await session.turn("go")
    assert texts(conversation(session))[2] == "tool: [error:PERMISSION_DENIED] it was denied"


@pytest.mark.req("resident.bad.unknown-tool")
async def test_nobody_is_asked_about_a_tool_that_is_not_there() -> None:
    asked: list[str] = []

    async def decide(call: ToolCall) -> Allow | Deny:
        asked.append(call.name)
        return Allow()

    async with resident(Answers([reply("", call("nonsense"))], [reply("ok")]), decide=decide) as session:
        await session.turn("go")
    assert asked == []


@pytest.mark.req("piglet.fix.23")
async def test_a_tool_that_goes_while_somebody_decides_is_unknown() -> None:
    box = Box(echo=echo)

    async def decide(call: ToolCall) -> Allow | Deny:
        del box.tools["echo"]
        return Allow()

    async with resident(Answers([reply("", call("echo"))], [reply("ok")]), box, decide=decide) as session:
        events = [event async for event in session.turn("go")]
    assert box.calls == []
    assert "tool_started" not in kinds(events)
    assert texts(conversation(session))[2] == "tool: unknown tool: echo"


@pytest.mark.req("piglet.rule.loop-step-mode")
async def test_a_yes_in_step_mode_is_none_to_what_policy_forbids() -> None:
    async def decide(call: ToolCall) -> Allow | Deny:
        return Deny("not allowed")

    box = Box(echo=echo)
    async with resident(Answers([reply("", call("echo"))], [reply("ok")]), box, step_mode=True, decide=decide) as session:
        async for event in session.turn("go"):
            if isinstance(event, Approval):
                await event.allow()
    assert box.calls == []
    assert texts(conversation(session))[2] == "tool: [error:PERMISSION_DENIED] not allowed"


async def test_of_several_results_that_cannot_be_kept_the_first_failure_is_the_turns() -> None:
    failures = iter(("first", "second"))

    def full(event: Event) -> None:
        if isinstance(event, ToolEnded):
            raise NotWritten(next(failures))

    async with resident(Answers([reply("", call("echo", "c1"), call("echo", "c2"))])) as session:
        session.listen(full)
        with pytest.raises(NotWritten, match="first"):
            await session.turn("go")


# -- outside


class Outside:
    """A tool whose paths lead outside, and what it was allowed when it was called."""

    def __init__(self) -> None:
        self.leads: dict[str, list[str]] = {}  # to several places, one after the other: somebody moves the link
        self.allowed: list[object] = []
        self.session: Any = None

    def leads_outside(self, call: ToolCall) -> tuple[str, ...]:
        path = call.arguments["path"]
        places = self.leads.get(path, [path])
        place = places.pop(0) if len(places) > 1 else places[0]
        return (place,) if place.startswith("/") else ()

    async def look(self, call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        driver = self.session.driver
        assert isinstance(driver, Resident)
        self.allowed.append(driver.context.approved.get(id(call)))
        return ToolResult.of("seen")

    def open(self, *paths: str, **harness: object) -> Any:
        calls = [call("look", f"c{number}", path=path) for number, path in enumerate(paths)]
        box = Box(look=(ToolSpec("look"), self.look))
        options = {"decide": None, "leads_outside": self.leads_outside} | harness
        self.session = resident(Answers([reply("", *calls)], [reply("ok")]), box, **options)  # type: ignore[arg-type]
        return self.session


@pytest.mark.req("resident.open.outside")
async def test_a_yes_is_to_the_place_that_was_shown_and_lasts_as_long_as_its_call() -> None:
    outside = Outside()
    outside.leads["link"] = ["/harmless", "/secret"]
    async with outside.open("link") as session:
        async for event in session.turn("go"):
            if isinstance(event, Approval):
                assert event.blocked_path == "/harmless"
                await event.allow()
        assert outside.allowed == [{"/harmless"}]
        assert session.driver.context.approved == {}


@pytest.mark.req("resident.open.outside")
async def test_who_writes_another_path_allows_that_one() -> None:
    outside = Outside()
    async with outside.open("/shown") as session:
        async for event in session.turn("go"):
            if isinstance(event, Approval):
                await event.allow({"path": "/written"})
    assert outside.allowed == [{"/written"}]


@pytest.mark.req("resident.open.outside", "piglet.rule.loop-step-mode")
@pytest.mark.parametrize("step_mode", [True, False])
async def test_a_person_is_told_why_they_are_asked(step_mode: bool) -> None:
    outside = Outside()
    async with outside.open("/out", "inside", step_mode=step_mode) as session:
        asked: dict[str, Approval] = {}
        async for event in session.turn("go"):
            if isinstance(event, Approval):
                asked[event.call.arguments["path"]] = event
                await event.deny()
    out, inside = asked["/out"], asked["inside"]
    where = "it leads outside the working directory: /out"
    assert (out.reason, out.reason_type) == ((f"step mode; {where}", "step") if step_mode else (where, "path"))
    assert (inside.reason, inside.reason_type) == (("step mode", "step") if step_mode else ("", ""))
    assert out.no_always is inside.no_always is step_mode


# -- ids


async def test_calls_without_ids_have_others_in_each_step() -> None:
    nameless = [reply("", call("echo", ""), call("echo", ""))]
    async with resident(Answers(nameless, nameless, [reply("ok")])) as session:
        await session.turn("go")
    ids = [message.call_id for message in conversation(session) if message.role == "tool"]
    assert len(ids) == len(set(ids)) == 4
    for message in conversation(session):
        msgspec.json.encode(message)

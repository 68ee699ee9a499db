"""One prompt's work: the order of its events, its end, and a conversation that a model will take."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from serai.errors import Closed, ModelFailed, TurnLimit
from serai.limits import Limits
from serai.model.approvals import Allow, Approval, Deny
from serai.model.events import (
    Event,
    Message,
    Retrying,
    StepEnded,
    StepSettled,
    StepsExhausted,
    StepStarted,
    Text,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    TurnEnded,
    TurnPrepared,
    UsageReported,
)
from serai.model.provider import Chunk, ModelMessage
from serai.model.tools import ImageBlock, OtherBlock, ProgressCallback, TextBlock, ToolCall, ToolResult, ToolSpec
from tests.support.agents.scripted_models import QUICK, Answers, Box, call, conversation, echo, hang, kinds, reply, resident, texts

INTERRUPTED = "[error:TOOL_INTERRUPTED] tool execution did not complete before session was interrupted; result unavailable"


@pytest.mark.req("piglet.rule.event-order")
async def test_the_events_of_a_run_come_in_their_order() -> None:
    provider = Answers(
        [
            Chunk("let me ", "thinking"),
            Chunk("lo"),
            Chunk("ok"),
            Chunk("{}", "tool_input", 1),
            reply("look", call("echo", "c1", a=1)),
        ],
        [Chunk("done"), reply("done")],
    )
    async with resident(provider) as session:
        events = [event async for event in session.turn("go")]
    assert kinds(events) == [
        *("turn_started", "turn_prepared"),
        *("step_started", "thinking", "text", "text", "tool_input", "message", "tool_called", "usage", "step_ended"),
        *("tool_started", "tool_ended", "step_settled"),
        *("step_started", "text", "message", "usage", "step_ended", "step_settled"),
        "turn_ended",
    ]
    prepared = events[1]
    assert isinstance(prepared, TurnPrepared)
    assert (prepared.messages, prepared.tools) == (0, 1)
    assert prepared.system.startswith("You are")
    assert [event.step for event in events if isinstance(event, StepStarted)] == [1, 2]
    assert [event.stop for event in events if isinstance(event, StepEnded)] == ["tool_use", "end"]
    assert texts(conversation(session)) == ["user: go", "assistant: look echo()", "tool: echo: {'a': 1}", "assistant: done"]
    end = events[-1]
    assert isinstance(end, TurnEnded)
    assert (end.result.status, end.result.text, end.result.steps) == ("success", "done", 2)


async def test_a_second_turn_tells_how_much_was_said_before() -> None:
    async with resident(Answers([reply("hi")])) as session:
        await session.turn("one")
        events = [event async for event in session.turn("two")]
    [prepared] = [event for event in events if isinstance(event, TurnPrepared)]
    assert prepared.messages == 2


@pytest.mark.req("piglet.rule.event-order")
async def test_an_unknown_tool_ends_without_having_started() -> None:
    provider = Answers([reply("", call("nonsense"))], [reply("sorry")])
    async with resident(provider) as session:
        events = [event async for event in session.turn("go")]
    assert "tool_started" not in kinds(events)
    [ended] = [event for event in events if isinstance(event, ToolEnded)]
    assert (ended.result.text, ended.result.is_error) == ("unknown tool: nonsense", True)
    assert texts(conversation(session))[2:] == ["tool: unknown tool: nonsense", "assistant: sorry"]


async def test_arguments_that_are_no_json_are_an_error_of_the_call_and_the_model_may_try_again() -> None:
    provider = Answers(
        [reply("", ToolCall("echo", '{"a": ', "c1"), stop="length")], [reply("", call("echo", "c2"))], [reply("done")]
    )
    box = Box(echo=echo)
    async with resident(provider, box) as session:
        events = [event async for event in session.turn("go")]
    first = next(event for event in events if isinstance(event, ToolEnded))
    assert first.result.code == "INVALID_ARGS"
    assert first.result.text.startswith("[error:INVALID_ARGS] the arguments of echo are no JSON\nhint: ")
    assert [done.id for done in box.calls] == ["c2"]


async def test_usage_and_cost_are_told_after_each_step_and_add_up() -> None:
    provider = Answers([reply("", call("echo"))], [reply("done")])
    async with resident(provider) as session:
        events = [event async for event in session.turn("go")]
        more = [event async for event in session.turn("more")]
    first, second = (event for event in events if isinstance(event, UsageReported))
    assert (first.usage.input, first.usage.output) == (100, 10)
    assert first.usage.cost_usd == pytest.approx(0.00012)
    assert second.total is not None
    assert second.total.input == 200
    assert second.total.cost_usd == pytest.approx(0.00024)
    end, later = events[-1], more[-1]
    assert isinstance(end, TurnEnded)
    assert isinstance(later, TurnEnded)
    assert (end.result.usage.input, later.result.usage.input) == (200, 100)
    [third] = [event for event in more if isinstance(event, UsageReported)]
    assert third.total is not None
    assert third.total.input == 300


# -- its tools


async def test_tools_run_side_by_side_and_their_results_keep_the_order_of_the_calls() -> None:
    together = asyncio.Barrier(3)
    released = [asyncio.Event() for _ in range(3)]

    async def work(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        await together.wait()  # all three, or nobody gets on
        number = call.arguments["n"]
        if number < 2:
            await released[number + 1].wait()
        released[number].set()
        return ToolResult.of(f"result {number}")

    provider = Answers([reply("", *(call("work", f"c{n}", n=n) for n in range(3)))], [reply("done")])
    async with resident(provider, Box(work=work)) as session:
        events = [event async for event in session.turn("go")]
    assert [event.call.id for event in events if isinstance(event, ToolEnded)] == ["c2", "c1", "c0"]
    assert [message.call_id for message in conversation(session) if message.role == "tool"] == ["c0", "c1", "c2"]
    assert texts(conversation(session))[2:5] == ["tool: result 0", "tool: result 1", "tool: result 2"]


@pytest.mark.req("piglet.rule.loop-limits")
@pytest.mark.parametrize(("step_mode", "most"), [(False, 10), (True, 1)])
async def test_so_many_tools_run_at_once(step_mode: bool, most: int) -> None:
    running = peak = 0

    async def work(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        for _ in range(20):
            await asyncio.sleep(0)
        running -= 1
        return ToolResult.of("ok")

    provider = Answers([reply("", *(call("work", f"c{n}") for n in range(25)))], [reply("done")])
    async with resident(provider, Box(work=work), step_mode=step_mode) as session:
        async for event in session.turn("go"):
            if isinstance(event, Approval):
                await event.allow()
    assert peak == most


@pytest.mark.req("piglet.rule.loop-siblings")
async def test_a_hard_failure_cancels_the_other_calls_of_the_step() -> None:
    started = asyncio.Event()

    async def waits(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def breaks(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        await started.wait()
        raise RuntimeError("the wire is broken")

    async def quick(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        return ToolResult.of("done before")

    provider = Answers([reply("", call("quick", "c0"), call("waits", "c1"), call("breaks", "c2"))], [reply("I see")])
    async with resident(provider, Box(waits=waits, breaks=breaks, quick=quick)) as session:
        result = await session.turn("go")
    assert result.text == "I see"
    assert texts(conversation(session))[2:5] == [
        "tool: done before",
        "tool: tool execution cancelled",
        "tool: [error:INTERNAL] breaks failed: RuntimeError: the wire is broken",
    ]
    assert [message.is_error for message in conversation(session)[2:5]] == [False, True, True]


@pytest.mark.req("piglet.rule.loop-siblings")
async def test_a_call_that_has_not_even_begun_is_cancelled_too() -> None:
    async def breaks(call: ToolCall) -> Allow | Deny:
        raise RuntimeError("nobody can tell")

    provider = Answers([reply("", call("echo", "c0"), call("echo", "c1"))], [reply("I see")])
    box = Box(echo=echo)
    async with resident(provider, box, decide=breaks) as session:
        await session.turn("go")
    assert box.calls == []  # who cannot decide has not allowed it
    assert texts(conversation(session))[2:4] == [
        "tool: [error:INTERNAL] echo failed: RuntimeError: nobody can tell",
        "tool: tool execution cancelled",
    ]


async def test_an_error_result_is_no_hard_failure() -> None:
    async def unavailable(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        return ToolResult.error("it is down", code="TOOL_UNAVAILABLE", hint="start it")

    provider = Answers([reply("", call("unavailable", "c1"), call("echo", "c2"))], [reply("ok")])
    async with resident(provider, Box(unavailable=unavailable, echo=echo)) as session:
        await session.turn("go")
    assert texts(conversation(session))[2:4] == ["tool: [error:TOOL_UNAVAILABLE] it is down\nhint: start it", "tool: echo: {}"]


async def test_a_tool_that_hangs_ends_at_its_deadline() -> None:
    provider = Answers([reply("", call("hang"))], [reply("too slow")])
    async with resident(provider, Box(hang=hang), limits=QUICK.but(tool=0.02)) as session:
        result = await session.turn("go")
    assert result.text == "too slow"
    assert texts(conversation(session))[2] == "tool: [error:TIMEOUT] hang did not end within 0.02 s"


async def test_what_a_tool_says_meanwhile_is_told() -> None:
    async def work(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        assert tell is not None
        tell("half")
        return ToolResult.of("whole")

    async with resident(Answers([reply("", call("work"))], [reply("ok")]), Box(work=work)) as session:
        events = [event async for event in session.turn("go")]
    assert [event.text for event in events if isinstance(event, ToolProgress)] == ["half"]


@pytest.mark.req("piglet.fix.22")
async def test_what_a_tool_says_or_answers_after_its_turn_is_never_heard() -> None:
    release = asyncio.Event()
    late = asyncio.Event()

    async def stubborn(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        assert tell is not None
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        tell("too late")
        late.set()
        return ToolResult.of("too late")

    provider = Answers([reply("", call("stubborn"))], [Chunk("again"), reply("again")])
    async with resident(provider, Box(stubborn=stubborn), limits=QUICK.but(interrupt=0.05)) as session:
        async with session.turn("go") as turn:
            async for event in turn:
                if isinstance(event, ToolStarted):
                    await turn.cancel("enough")
        events = []
        async for event in session.turn("next"):
            events.append(event)
            if isinstance(event, Text):
                release.set()
                await late.wait()
        assert kinds(events) == [
            *(
                "turn_started",
                "turn_prepared",
                "step_started",
                "text",
                "message",
                "usage",
                "step_ended",
                "step_settled",
                "turn_ended",
            )
        ]
        assert texts(conversation(session))[2:4] == [f"tool: {INTERRUPTED}", "user: [Request interrupted: enough]"]


@pytest.mark.req("piglet.fix.23")
async def test_a_tool_is_looked_up_when_it_is_called() -> None:
    async def old(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        return ToolResult.of("old process")

    async def new(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        return ToolResult.of("new process")

    box = Box(work=old)
    async with resident(
        Answers([reply("", call("work"))], [reply("ok")], [reply("", call("work"))], [reply("ok")]), box
    ) as session:
        await session.turn("one")
        box.tools["work"] = (ToolSpec("work"), new)
        await session.turn("two")
    assert [text for text in texts(conversation(session)) if text.startswith("tool")] == ["tool: old process", "tool: new process"]


async def test_a_long_result_is_cut_in_the_middle() -> None:
    async def long(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        return ToolResult.of("a" * 1000 + "b" * 1000)

    async with resident(
        Answers([reply("", call("long"))], [reply("ok")]), Box(long=long), limits=QUICK.but(tool_result=100)
    ) as session:
        await session.turn("go")
    [block] = conversation(session)[2].content
    assert isinstance(block, TextBlock)
    assert block.text == "a" * 50 + "\n[… 1900 characters left out …]\n" + "b" * 50


async def test_images_and_other_things_of_a_result_are_bounded_too() -> None:
    async def work(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        return ToolResult((TextBlock("seen"), ImageBlock(b"x" * 6_000_000, "image/png"), OtherBlock("video", {"a": "y" * 1000})))

    async def small(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        return ToolResult((ImageBlock(b"x" * 1000, "image/png"), OtherBlock("video", {"a": 1})))

    provider = Answers([reply("", call("work", "c1"), call("small", "c2"))], [reply("ok")])
    async with resident(provider, Box(work=work, small=small), limits=QUICK.but(tool_result=900)) as session:
        await session.turn("go")
    first, second = (message.content for message in conversation(session)[2:4])
    assert [type(block) for block in first] == [TextBlock, TextBlock, TextBlock]
    assert [type(block) for block in second] == [ImageBlock, OtherBlock]


# -- who decides


async def test_a_decision_may_deny_or_rewrite_a_call() -> None:
    async def decide(call: ToolCall) -> Allow | Deny:
        assert call.asker == "resident"  # whatever the provider says
        return Deny("not that one") if call.arguments.get("a") == 1 else Allow({"a": "rewritten"})

    box = Box(echo=echo)
    forged = ToolCall("echo", {"a": 1}, "c1", "person")
    provider = Answers([reply("", forged, call("echo", "c2", a=2))], [reply("ok")])
    async with resident(provider, box, decide=decide) as session:
        events = [event async for event in session.turn("go")]
    assert [done.arguments for done in box.calls] == [{"a": "rewritten"}]
    [started] = [event for event in events if isinstance(event, ToolStarted)]
    assert (started.call.id, started.call.arguments) == ("c2", {"a": "rewritten"})
    assert texts(conversation(session))[2:4] == ["tool: [error:PERMISSION_DENIED] not that one", "tool: echo: {'a': 'rewritten'}"]


async def test_a_deny_that_interrupts_ends_the_turn_as_denied() -> None:
    async def decide(call: ToolCall) -> Allow | Deny:
        return Deny("stop it", interrupt=True)

    provider = Answers([reply("", call("echo", "c1"), call("echo", "c2"))], [reply("never asked")])
    async with resident(provider, decide=decide) as session:
        result = await session.turn("go")
    assert (result.status, result.error) == ("denied", "stop it")
    assert len(provider.requests) == 1
    assert [message.role for message in conversation(session)] == ["user", "assistant", "tool", "tool"]


async def test_without_a_callable_whoever_reads_the_turn_is_asked() -> None:
    provider = Answers([reply("", call("echo", "c1"), call("echo", "c2"))], [reply("ok")])
    async with resident(provider, decide=None) as session:
        async for event in session.turn("go"):
            if isinstance(event, Approval):
                await (event.allow() if event.call.id == "c1" else event.deny("no"))
    assert texts(conversation(session))[2:4] == ["tool: echo: {}", "tool: [error:PERMISSION_DENIED] no"]


# -- step mode


@pytest.mark.req("piglet.rule.loop-step-mode")
async def test_in_step_mode_each_tool_waits_to_be_approved_skipped_or_aborted() -> None:
    box = Box(echo=echo)
    provider = Answers([reply("", *(call("echo", f"c{n}", n=n) for n in range(4)))], [reply("never asked")])
    async with resident(provider, box, step_mode=True) as session:
        events: list[Event] = []
        async for event in session.turn("go"):
            events.append(event)
            if isinstance(event, Approval):
                assert event.reason_type == "step"
                assert len(session.pending) == 1  # one at a time
                number = event.call.arguments["n"]
                await (event.allow() if number == 0 else event.deny() if number == 1 else event.deny("abort", interrupt=True))
    assert [done.arguments["n"] for done in box.calls] == [0]
    assert texts(conversation(session))[2:] == [
        "tool: echo: {'n': 0}",
        "tool: Tool execution skipped by user",
        "tool: [error:PERMISSION_DENIED] abort",
        "tool: tool execution cancelled",
    ]
    order = [kind for kind in kinds(events) if kind in ("approval", "tool_started", "tool_ended")]
    assert order[:4] == ["approval", "tool_started", "tool_ended", "approval"]


@pytest.mark.req("piglet.rule.loop-step-mode")
async def test_what_a_person_makes_of_a_call_in_step_mode_is_what_is_decided_and_run() -> None:
    seen: list[object] = []

    async def decide(call: ToolCall) -> Allow | Deny:
        seen.append(call.arguments)
        return Allow()

    box = Box(echo=echo)
    async with resident(Answers([reply("", call("echo", a=1))], [reply("ok")]), box, step_mode=True, decide=decide) as session:
        async for event in session.turn("go"):
            if isinstance(event, Approval):
                await event.allow({"a": "safe"})
    assert seen == [{"a": "safe"}]
    assert [done.arguments for done in box.calls] == [{"a": "safe"}]


@pytest.mark.parametrize("ids", [["x-1-2", "x", "x"], ["", "", "call-1-0"], ["a", "a", "a-1", "a-1"], ["", "call-1-0", ""]])
async def test_a_yes_to_one_call_is_none_to_another_whatever_ids_the_model_gives(ids: list[str]) -> None:
    box = Box(echo=echo)
    calls = [call("echo", id, n=number) for number, id in enumerate(ids)]
    async with resident(Answers([reply("", *calls)], [reply("ok")]), box, decide=None) as session:
        asked: list[int] = []
        async for event in session.turn("go"):
            if isinstance(event, Approval):
                asked.append(event.call.arguments["n"])
                await (event.allow() if event.call.arguments["n"] == 0 else event.deny("no"))
    assert sorted(asked) == list(range(len(ids)))
    assert [done.arguments["n"] for done in box.calls] == [0]
    results = [message.call_id for message in conversation(session) if message.role == "tool"]
    assert len(set(results)) == len(ids)


# -- steering


@pytest.mark.req("piglet.rule.loop-steering")
async def test_a_text_that_comes_while_the_model_talks_is_said_before_its_next_step() -> None:
    steered = asyncio.Event()
    provider = Answers([Chunk("thinking"), steered, reply("first")], [reply("second")])
    async with resident(provider) as session:
        async for event in session.turn("go"):
            if isinstance(event, Text):
                session.steer("also this")
                steered.set()
    assert texts(conversation(session)) == ["user: go", "assistant: first", "user: also this", "assistant: second"]
    assert texts(provider.requests[1].messages)[-1] == "user: also this"


async def test_a_text_that_no_later_step_would_take_is_refused_and_not_lost() -> None:
    async with resident(Answers([Chunk("quick"), reply("quick")]), limits=QUICK.but(steps=1)) as session:
        async for event in session.turn("go"):
            if isinstance(event, StepSettled):
                with pytest.raises(Closed, match="about to end"):
                    session.steer("too late")
    assert texts(conversation(session)) == ["user: go", "assistant: quick"]


@pytest.mark.req("piglet.rule.loop-steering")
async def test_a_text_that_comes_during_tools_cancels_those_that_may_be_cancelled() -> None:
    release = asyncio.Event()

    async def finishes(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        await release.wait()
        return ToolResult.of("finished")

    box = Box(hang=hang, finishes=(ToolSpec("finishes", interrupt="block"), finishes))
    provider = Answers([reply("", call("hang", "c1"), call("finishes", "c2"))], [reply("ok")])
    async with resident(provider, box) as session:
        started = 0
        async for event in session.turn("go"):
            started += isinstance(event, ToolStarted)
            if started == 2 and isinstance(event, ToolStarted):
                session.steer("look here")
            if isinstance(event, ToolEnded):
                release.set()
    assert texts(conversation(session))[2:5] == ["tool: tool execution cancelled", "tool: finished", "user: look here"]


# -- bounds


@pytest.mark.req("piglet.rule.loop-limits")
async def test_a_model_that_repeats_itself_for_ever_is_ended_after_its_steps() -> None:
    assert (Limits().steps, Limits().background_steps, Limits().history, Limits().tools_at_once) == (30, 5, 200, 10)
    provider = Answers([reply("again", call("echo"))])
    async with resident(provider, limits=QUICK.but(steps=4)) as session:
        turn = session.turn("go")
        events: list[Event] = []
        with pytest.raises(TurnLimit, match=r"limit steps = 4"):
            async for event in turn:
                events.append(event)  # noqa: PERF401  (it ends in an error)
        assert kinds(events)[-3:] == ["step_settled", "steps_exhausted", "turn_ended"]
        exhausted = events[-2]
        assert isinstance(exhausted, StepsExhausted)
        assert (exhausted.count, exhausted.most) == (4, 4)
        assert turn.outcome is not None
        assert (turn.outcome.status, turn.outcome.steps, turn.outcome.usage.input) == ("error", 4, 400)
        assert len(provider.requests) == 4
        assert conversation(session)[-1].role == "tool"
        assert session.state == "idle"


@pytest.mark.req("piglet.rule.loop-limits")
async def test_a_model_is_sent_the_first_message_and_the_newest() -> None:
    async with resident(Answers([reply("ok")]), limits=QUICK.but(history=5)) as session:
        for number in range(6):
            await session.turn(f"prompt {number}")
        provider = session.driver.context.provider  # type: ignore[attr-defined]
        sent = texts(provider.requests[-1].messages)
    assert sent == ["user: prompt 0", "assistant: ok", "user: prompt 4", "assistant: ok", "user: prompt 5"][-5:]


async def test_an_answer_that_is_too_long_is_broken_off_and_its_beginning_kept() -> None:
    provider = Answers([*[Chunk("x" * 1000)] * 200, reply("never")], [reply("ok")])
    async with resident(provider, limits=QUICK.but(model_answer=100_000)) as session:
        with pytest.raises(ModelFailed, match=r"too long.*limit model_answer = 100000") as raised:
            await session.turn("go")
        assert not raised.value.temporary
        assert provider.closed == 1
        assert len(texts(conversation(session))[1]) <= len("assistant: ") + 64 * 1024
        assert (await session.turn("go on")).text == "ok"


# -- failures of the model


@pytest.mark.req("piglet.rule.loop-limits")
async def test_a_temporary_failure_is_tried_again_with_growing_waits_and_then_told() -> None:
    busy = ModelFailed("overloaded", who="test/m1", status=529, temporary=True)
    limits = Limits().but(model_wait=0.001, model_wait_most=0.0015)
    assert (Limits().model_attempts, Limits().model_wait, Limits().model_wait_most) == (3, 0.5, 5.0)
    provider = Answers([busy], [busy], [Chunk("at last"), reply("at last")], [busy])
    async with resident(provider, limits=limits) as session:
        events = [event async for event in session.turn("go")]
        retries = [(event.attempt, event.most, event.wait) for event in events if isinstance(event, Retrying)]
        assert retries == [(1, 3, 0.001), (2, 3, 0.0015)]
        assert kinds(events)[2:6] == ["step_started", "retrying", "retrying", "text"]
        with pytest.raises(ModelFailed, match="overloaded"):
            await session.turn("again")
        assert len(provider.requests) == 6
        assert texts(conversation(session)) == ["user: go", "assistant: at last", "user: again"]


async def test_what_cannot_get_better_is_not_tried_again() -> None:
    provider = Answers([ModelFailed("invalid key", status=401)])
    async with resident(provider) as session:
        with pytest.raises(ModelFailed, match="invalid key"):
            await session.turn("go")
    assert len(provider.requests) == 1


async def test_a_provider_that_asks_for_patience_gets_it_up_to_a_limit() -> None:
    soon = ModelFailed("slow down", status=429, temporary=True, wait=0.003)
    provider = Answers([soon], [reply("ok")], [ModelFailed("slow down", status=429, temporary=True, wait=3600.0)])
    async with resident(provider) as session:
        events = [event async for event in session.turn("go")]
        assert [event.wait for event in events if isinstance(event, Retrying)] == [0.003]
        with pytest.raises(ModelFailed, match="slow down"):
            await session.turn("again")
        assert len(provider.requests) == 3


async def test_a_stream_that_breaks_off_is_begun_anew_and_its_half_forgotten() -> None:
    cut = ModelFailed("broke off", temporary=True)
    provider = Answers([Chunk("half of"), cut], [Chunk("whole"), reply("whole")])
    async with resident(provider) as session:
        events = [event async for event in session.turn("go")]
    assert [event.text for event in events if isinstance(event, Message)] == ["whole"]
    assert texts(conversation(session)) == ["user: go", "assistant: whole"]


async def test_a_stream_without_an_end_and_a_provider_with_a_defect_are_failures_of_the_model() -> None:
    async with resident(Answers([Chunk("half")], [Chunk("half")], [Chunk("half")], [KeyError("oops")])) as session:
        with pytest.raises(ModelFailed, match="has no end"):
            await session.turn("go")
        with pytest.raises(ModelFailed, match="KeyError"):
            await session.turn("go")


async def test_a_model_that_says_nothing_for_too_long_has_failed() -> None:
    provider = Answers([Chunk("hm"), asyncio.Event()])
    async with resident(provider, limits=QUICK.but(model_idle=0.02, model_attempts=1)) as session:
        with pytest.raises(ModelFailed, match=r"nothing for too long.*limit model_idle = 0.02"):
            await session.turn("go")
    assert provider.closed == 1


async def test_what_a_failed_model_had_said_stays_in_the_conversation() -> None:
    provider = Answers([Chunk("as far as "), Chunk("this"), ModelFailed("bad request", status=400)])
    async with resident(provider) as session:
        events: list[Event] = []
        with pytest.raises(ModelFailed):
            async for event in session.turn("go"):
                events.append(event)  # noqa: PERF401  (it ends in an error)
    assert texts(conversation(session)) == ["user: go", "assistant: as far as this"]
    [ended] = [event for event in events if isinstance(event, StepEnded)]
    assert (ended.stop, "bad request" in ended.error) == ("error", True)


# -- abort


def orphans(messages: Sequence[ModelMessage]) -> int:
    calls = {call.id for message in messages for call in message.calls}
    return len(calls ^ {message.call_id for message in messages if message.role == "tool"})


@pytest.mark.req("piglet.rule.loop-interrupted")
@pytest.mark.parametrize(
    "moment",
    ["turn_prepared", "step_started", "text", "message", "tool_called", "step_ended", "tool_started", "tool_ended", "retrying"],
)
async def test_whenever_it_is_aborted_nothing_runs_on_and_the_conversation_is_whole(moment: str) -> None:
    before = asyncio.all_tasks()
    if moment == "retrying":
        provider = Answers([ModelFailed("busy", temporary=True)], [reply("ok")])
    else:
        provider = Answers([Chunk("so "), Chunk("far"), reply("so far", call("echo", "c1"), call("hang", "c2"))], [reply("ok")])
    limits = QUICK.but(model_wait=100.0, model_wait_most=100.0)
    async with resident(provider, Box(echo=echo, hang=hang), limits=limits) as session:
        async with session.turn("go") as turn:
            events: list[Event] = []
            async for event in turn:
                events.append(event)
                if kinds([event]) == [moment]:
                    await turn.cancel("enough")
        assert moment in kinds(events)
        assert kinds(events)[-1] == "turn_ended"
        assert turn.outcome is not None
        assert (turn.outcome.status, turn.outcome.error) == ("cancelled", "enough")
        started = {event.call.id for event in events if isinstance(event, ToolStarted)}
        assert started <= {event.call.id for event in events if isinstance(event, ToolEnded)}
        assert orphans(conversation(session)) == 0
        assert texts(conversation(session))[-1] == "user: [Request interrupted: enough]"
        assert provider.closed == len(provider.requests)
        assert asyncio.all_tasks() == before
        assert (await session.turn("go on")).text in ("ok", "so far")

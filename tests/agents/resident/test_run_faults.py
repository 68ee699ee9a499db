"""A turn's life and end at bad moments: what is stubborn, what is late, what fails; and a disk that says the same as memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from serai.agents.driver import Prompt
from serai.agents.resident.driver import Resident, SharedResources
from serai.agents.resident.run_context import RunContext
from serai.agents.session import Session
from serai.errors import Closed, ModelFailed, NotAllowed, NotWritten, TurnInFlight, TurnLimit
from serai.model.approvals import Allow, Deny
from serai.model.events import Event, Message, NoticeEvent, Retrying, StepEnded, Text, ToolEnded, ToolStarted, UsageReported
from serai.model.provider import Chunk, Completion, Cost, Model, ModelMessage, ModelRequest
from serai.model.tools import ImageBlock, ProgressCallback, TextBlock, ToolCall, ToolResult, ToolSpec
from serai.store import SessionFolder, to_model_message
from tests.support.agents.conversations import is_whole, read_stored_texts
from tests.support.agents.event_order import is_in_order
from tests.support.agents.scripted_models import (
    MODEL,
    QUICK,
    Answers,
    Box,
    call,
    conversation,
    echo,
    hang,
    kinds,
    reply,
    resident,
    texts,
)

SHORT = QUICK.but(interrupt=0.2)


def make_stubborn_tool(release: asyncio.Event) -> object:
    """A tool that does not let itself be cancelled."""

    async def work(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return ToolResult.of("too late")

    return work


class Clinging:
    """A provider whose stream does not let itself be ended."""

    def __init__(self, release: asyncio.Event) -> None:
        self.release = release
        self.requests = 0

    async def models(self) -> Sequence[Model]:
        return ()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk | Completion]:
        self.requests += 1
        if self.requests == 1:
            yield Chunk("partial")
            while not self.release.is_set():
                try:
                    await self.release.wait()
                except asyncio.CancelledError:
                    continue
            raise asyncio.CancelledError
        if self.requests == 2:
            yield reply("calling", call("slow", "c2"))
        else:
            yield reply("done")


@pytest.mark.req("piglet.fix.22", "agents.edge.34")
async def test_a_run_that_does_not_end_is_not_heard_and_changes_nothing_in_the_next_turn() -> None:
    release, finish = asyncio.Event(), asyncio.Event()

    async def slow(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        await finish.wait()
        return ToolResult.of("RESULT")

    provider = Clinging(release)
    async with resident(provider, Box(slow=slow), limits=SHORT) as session:  # type: ignore[arg-type]
        async with session.turn("one") as first:
            async for event in first:
                if isinstance(event, Text):
                    await first.cancel("enough")
        assert first.outcome is not None
        assert first.outcome.status == "cancelled"
        events: list[Event] = []
        async for event in session.turn("two"):
            events.append(event)
            if isinstance(event, ToolStarted):
                release.set()  # now the old run wakes up and tidies
                for _ in range(20):
                    await asyncio.sleep(0)
                finish.set()
        assert is_in_order(events)
        assert [event.text for event in events if isinstance(event, Message)] == ["calling", "done"]
        assert is_whole(conversation(session))
        assert texts(conversation(session)) == [
            *("user: one", "assistant: partial", "user: [Request interrupted: enough]", "user: two"),
            *("assistant: calling slow()", "tool: RESULT", "assistant: done"),
        ]


@pytest.mark.parametrize("busy", [False, True])
async def test_a_tool_that_does_not_end_has_a_result_all_the_same_also_on_a_busy_loop(busy: bool) -> None:
    release = asyncio.Event()
    box = Box(stubborn=make_stubborn_tool(release), echo=echo)  # type: ignore[arg-type]
    provider = Answers([reply("", call("stubborn", "c1"), call("echo", "c2"))], [reply("ok")])

    async def hog() -> None:
        loop = asyncio.get_running_loop()
        while True:
            end = loop.time() + 0.005
            while loop.time() < end:
                pass
            await asyncio.sleep(0)

    async with resident(provider, box, limits=SHORT) as session:
        hogging = asyncio.ensure_future(hog()) if busy else None
        async with session.turn("go") as turn:
            events: list[Event] = []
            async for event in turn:
                events.append(event)
                if isinstance(event, ToolStarted) and event.call.name == "stubborn":
                    await turn.cancel("enough")
        if hogging is not None:
            hogging.cancel()
        assert is_in_order(events)
        assert is_whole(conversation(session))
        assert texts(conversation(session))[-1] == "user: [Request interrupted: enough]"
        release.set()
        assert (await session.turn("go on")).text == "ok"


@pytest.mark.req("resident.bad.tool-hangs")
async def test_the_limit_of_a_tool_holds_against_one_that_does_not_let_itself_be_cancelled() -> None:
    release = asyncio.Event()
    box = Box(stubborn=make_stubborn_tool(release))  # type: ignore[arg-type]
    async with resident(Answers([reply("", call("stubborn"))], [reply("ok")]), box, limits=SHORT.but(tool=0.05)) as session:
        await session.turn("go")
        assert texts(conversation(session))[2] == "tool: [error:TIMEOUT] stubborn did not end within 0.05 s"
        release.set()


async def test_steering_does_not_wait_for_a_tool_that_does_not_let_itself_be_cancelled() -> None:
    release = asyncio.Event()
    box = Box(stubborn=make_stubborn_tool(release))  # type: ignore[arg-type]
    async with resident(Answers([reply("", call("stubborn"))], [reply("ok")]), box, limits=SHORT) as session:
        async for event in session.turn("go"):
            if isinstance(event, ToolStarted):
                session.steer("never mind")
        assert texts(conversation(session))[2:4] == ["tool: tool execution cancelled", "user: never mind"]
        release.set()


async def test_a_provider_that_hangs_when_it_is_closed_and_one_that_cannot_be_closed_have_answered() -> None:
    class Hanging(Answers):
        async def stream(self, request: ModelRequest) -> AsyncIterator[Chunk | Completion]:
            try:
                yield reply("here")
            finally:
                await asyncio.Event().wait()

    class Plain:
        """An iterator, and nothing else."""

        def __init__(self) -> None:
            self.left = [reply("here")]

        async def models(self) -> Sequence[Model]:
            return ()

        def stream(self, request: ModelRequest) -> AsyncIterator[Chunk | Completion]:
            return self

        def __aiter__(self) -> AsyncIterator[Chunk | Completion]:
            return self

        async def __anext__(self) -> Chunk | Completion:
            return self.left.pop()

    for provider in (Hanging([reply("here")]), Plain()):
        async with resident(provider, limits=SHORT) as session:  # type: ignore[arg-type]
            assert (await session.turn("go")).text == "here"


@pytest.mark.req("piglet.rule.loop-interrupted")
async def test_a_turn_that_is_cancelled_at_once_leaves_its_prompt_and_the_mark() -> None:
    async with resident(Answers([reply("ok")])) as session:
        turn = await session.send("my prompt")
        await turn.cancel("nope")
        assert texts(conversation(session)) in (
            ["user: my prompt", "user: [Request interrupted: nope]"],
            ["user: my prompt", "assistant: ok"],  # it was quicker
        )


async def test_a_text_right_behind_the_prompt_is_steered_in() -> None:
    async with resident(Answers([reply("ok")])) as session:
        turn = await session.send("go")
        session.steer("and this")
        await turn
        assert texts(conversation(session)) == ["user: go\n\nand this", "assistant: ok"]


async def stop_it(call: ToolCall) -> Allow | Deny:
    return Deny("stop", interrupt=True)


@pytest.mark.req("piglet.rule.loop-steering")
@pytest.mark.parametrize("why", ["the last step", "denied", "cancelled"])
async def test_what_is_steered_into_a_turn_that_is_about_to_end_is_refused(why: str) -> None:
    box = Box(echo=echo, hang=hang)
    limits = QUICK.but(steps=1) if why == "the last step" else QUICK
    name = "hang" if why == "cancelled" else "echo"
    refused: list[str] = []
    options: dict[str, Any] = {"decide": stop_it} if why == "denied" else {}
    async with resident(Answers([reply("", call(name))]), box, limits=limits, **options) as session:

        def listener(event: Event) -> None:
            if isinstance(event, ToolEnded):
                with pytest.raises(Closed, match="about to end"):
                    session.steer("hello?")
                refused.append(why)

        session.listen(listener)
        turn = session.turn("go")
        try:
            async for event in turn:
                if isinstance(event, ToolStarted) and why == "cancelled":
                    await turn.cancel("enough")
        except TurnLimit:
            pass
        assert refused == [why]
        assert "hello?" not in str(conversation(session))


async def test_the_model_of_a_step_is_the_one_that_answered_it() -> None:
    gate = asyncio.Event()
    cheap = Answers([Chunk("x"), gate, reply("cheap", call("echo"))], [reply("never")])
    dear = Answers([reply("dear")])
    models = {"dear": (Model("m2", provider="test", cost=Cost(1000.0, 1000.0)), dear)}
    session = resident(cheap)
    assert isinstance(session.driver, Resident)
    session.driver._switch = models.__getitem__
    async with session:
        events: list[Event] = []
        async for event in session.turn("go"):
            events.append(event)
            if isinstance(event, Text):
                assert await session.set_model("dear") == "test/m2"
                gate.set()
        assert [event.model for event in events if isinstance(event, Message)] == ["test/m1", "test/m2"]
        costs = [event.usage.cost_usd for event in events if isinstance(event, UsageReported)]
        assert costs == [pytest.approx(0.00012), pytest.approx(0.11)]


async def test_a_model_that_refuses_calls_nothing() -> None:
    box = Box(echo=echo)
    async with resident(Answers([reply("I will not", call("echo"), stop="error")]), box) as session:
        events: list[Event] = []
        with pytest.raises(ModelFailed, match="would not go on"):
            async for event in session.turn("go"):
                events.append(event)  # noqa: PERF401  (it ends in an error)
        assert is_in_order(events)
        assert "tool_called" not in kinds(events)
        assert box.calls == []
        assert texts(conversation(session)) == ["user: go", "assistant: I will not"]


async def test_a_providers_calls_are_bounded_in_number_and_depth_whoever_it_is() -> None:
    deep: object = 1
    for _ in range(2000):
        deep = [deep]
    box = Box(echo=echo)
    many = [call("echo", f"c{number}") for number in range(11)]
    provider = Answers([reply("", ToolCall("echo", {"a": deep}, "c1"))], [reply("ok")], [reply("", *many)])
    async with resident(provider, box, limits=QUICK.but(model_calls=10)) as session:
        await session.turn("go")
        assert texts(conversation(session))[2].startswith("tool: [error:INVALID_ARGS]")
        assert box.calls == []
        with pytest.raises(ModelFailed, match="limit model_calls = 10"):
            await session.turn("more")
        assert is_whole(conversation(session))


async def test_half_a_character_does_not_spoil_a_session() -> None:
    async def odd(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        return ToolResult.of("half \ud83d")

    async with resident(Answers([reply("", call("odd"))], [reply("ok")]), Box(odd=odd)) as session:
        await session.turn("half \udc80 a character")
        for message in conversation(session):
            msgspec.json.encode(message)
        assert texts(conversation(session))[0] == "user: half \ufffd a character"


# -- interceptors


class Watching:
    """Answers as it is told."""

    def __init__(self, *, hold: bool = True, refuse: str = "", show: object = "as it is") -> None:
        self.hold_text = hold
        self.refuse = refuse
        self.show = show

    async def before_step(self, step: int) -> str:
        if self.refuse == "break":
            raise RuntimeError("broken")
        return self.refuse

    async def filter_message(self, message: Message) -> Message | None:
        if isinstance(self.show, Exception):
            raise self.show
        if self.show == "as it is":
            return message
        return None if self.show is None else msgspec.structs.replace(message, content=(TextBlock(str(self.show)),))


@pytest.mark.parametrize(("refuse", "told"), [("not now", "not now"), ("break", "an interceptor failed: broken")])
async def test_a_step_that_is_refused_is_not_made_and_says_why(refuse: str, told: str) -> None:
    provider = Answers([reply("never")])
    async with resident(provider, interceptors=Watching(refuse=refuse)) as session:
        events: list[Event] = []
        with pytest.raises(NotAllowed, match=told):
            async for event in session.turn("go"):
                events.append(event)  # noqa: PERF401  (it ends in an error)
        assert provider.requests == []
        [ended] = [event for event in events if isinstance(event, StepEnded)]
        assert (ended.stop, ended.error) == ("error", told)


@pytest.mark.parametrize("show", ["as it is", "replaced", None, RuntimeError("broken")], ids=str)
async def test_what_is_held_back_is_seen_as_it_may_be_and_kept_as_it_was(show: object, tmp_path: Path) -> None:
    stored = SessionFolder(str(tmp_path)).create("/app")
    provider = Answers([Chunk("sec"), Chunk("ret"), reply("secret", call("echo"))], [reply("")])
    made = resident(provider, interceptors=Watching(show=show))
    async with Session(made.driver, store=stored, limits=QUICK) as session:
        events = [event async for event in session.turn("go")]
        seen = "".join(event.text for event in events if isinstance(event, Text))
        messages = [event.text for event in events if isinstance(event, Message) and event.text]
        assert seen == ("secret" if show == "as it is" else "")
        assert messages == ({"as it is": ["secret"], "replaced": ["replaced"]}.get(str(show), []))
        assert any(isinstance(event, NoticeEvent) for event in events) is isinstance(show, Exception)
        assert texts(conversation(session))[:2] == ["user: go", "assistant: secret echo()"]
        assert read_stored_texts(tmp_path, stored.id) == texts(conversation(session))


# -- the disk says the same


ENDINGS: dict[str, list[list[object]]] = {
    "success": [[Chunk("a"), reply("a", call("echo"))], [reply("b")]],
    "an empty result": [[reply("", call("empty"))], [reply("b")]],
    "thinking at the end": [[Completion(ModelMessage("assistant", (TextBlock("b"),), thinking="hm", native={"api": "x"}))]],
    "partial": [[Chunk("hm", "thinking"), Chunk("so far"), ModelFailed("bad request")]],
    "partial thinking": [[Chunk("hm", "thinking"), ModelFailed("bad request")]],
    "a retry": [[Chunk("half"), ModelFailed("busy", temporary=True)], [Chunk("whole"), reply("whole")]],
    "an unknown tool": [[reply("", call("nonsense"))], [reply("b")]],
    "a hard failure": [[reply("", call("breaks", "c1"), call("echo", "c2"))], [reply("b")]],
    "a refusal": [[reply("no", call("echo"), stop="error")]],
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_however_it_ends_the_disk_has_what_memory_has(ending: str, tmp_path: Path) -> None:
    async def empty(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        return ToolResult()

    async def breaks(call: ToolCall, tell: ProgressCallback | None) -> ToolResult:
        raise RuntimeError("broken")

    stored = SessionFolder(str(tmp_path)).create("/app")
    made = resident(Answers(*ENDINGS[ending]), Box(echo=echo, empty=empty, breaks=breaks))  # type: ignore[arg-type]
    async with Session(made.driver, store=stored, limits=QUICK) as session:
        try:
            await session.turn("go")
        except ModelFailed:
            pass
        with SessionFolder(str(tmp_path)).open(stored.id) as again:
            kept = [to_model_message(message) for message in again.read_messages()]
        memory = conversation(session)
        assert texts(kept) == texts(memory)
        assert [(m.role, m.thinking, m.native, m.is_error, m.call_id) for m in kept] == [
            (m.role, m.thinking, m.native, m.is_error, m.call_id) for m in memory
        ]


async def test_images_of_a_prompt_are_kept(tmp_path: Path) -> None:
    image = ImageBlock(b"\x89PNG", "image/png")
    stored = SessionFolder(str(tmp_path)).create("/app")
    made = resident(Answers([reply("nice")]))
    async with Session(made.driver, store=stored, limits=QUICK) as session:
        await session.turn("look", images=[image])
        await session.turn(Prompt("", (image,)))
        with SessionFolder(str(tmp_path)).open(stored.id) as again:
            kept = [to_model_message(message).content for message in again.read_messages()]
        assert kept == [message.content for message in conversation(session)]
        assert kept[0] == (TextBlock("look"), image)
        assert kept[2] == (image,)


async def test_an_answer_that_comes_at_once_is_bounded_too() -> None:
    async with resident(Answers([reply("x" * 2000)]), limits=QUICK.but(model_answer=1000)) as session:
        with pytest.raises(ModelFailed, match="too long"):
            await session.turn("go")


async def test_who_cannot_keep_a_result_ends_the_turn_and_the_reader_has_seen_it() -> None:
    async with resident(
        Answers([reply("", call("echo", "c1"), call("hang", "c2"))], [reply("never")]), Box(echo=echo, hang=hang)
    ) as session:

        def full(event: Event) -> None:
            if isinstance(event, ToolEnded):
                raise NotWritten("no space left on device")

        session.listen(full)
        events: list[Event] = []
        with pytest.raises(NotWritten):
            async for event in session.turn("go"):
                events.append(event)
                if isinstance(event, ToolEnded) and event.call.id == "c1":
                    session.steer("go on")  # ends the one that hangs
        assert {event.call.id for event in events if isinstance(event, ToolEnded)} == {"c1", "c2"}
        assert is_whole(conversation(session))


# -- beside a turn


async def test_a_conversation_is_not_shortened_while_it_is_shortened_nor_prompted() -> None:
    gate = asyncio.Event()
    async with resident(Answers([reply("x" * 4000)], [gate, reply("brief")], [reply("ok")])) as session:
        await session.turn("tell me")
        shortening = asyncio.ensure_future(session.compact())
        await asyncio.sleep(0)
        with pytest.raises(TurnInFlight, match="being shortened"):
            await session.turn("IMPORTANT")
        with pytest.raises(TurnInFlight):
            await session.compact()
        gate.set()
        await shortening
        assert (await session.turn("IMPORTANT")).text == "ok"
        assert texts(conversation(session))[-2:] == ["user: IMPORTANT", "assistant: ok"]


async def test_closing_ends_a_conversations_being_shortened(tmp_path: Path) -> None:
    stored = SessionFolder(str(tmp_path)).create("/app")
    made = resident(Answers([reply("x" * 4000)], [asyncio.Event()]))
    async with Session(made.driver, store=stored, limits=QUICK) as session:
        await session.turn("tell me")
        shortening = asyncio.ensure_future(session.compact())
        await asyncio.sleep(0)
    with pytest.raises(Closed, match="closed meanwhile"):
        await shortening
    assert len(read_stored_texts(tmp_path, stored.id)) == 2


@pytest.mark.parametrize("answer", [None, [None], ["text"], []])
async def test_a_compactor_that_answers_rubbish_is_replaced_by_a_summary(answer: object) -> None:
    async def compactor(messages: Sequence[ModelMessage]) -> object:
        return answer

    provider = Answers([reply("x" * 4000)], [reply("brief")])
    async with resident(provider, compactor=compactor) as session:
        await session.turn("tell me")
        await session.compact()
        assert texts(conversation(session))[0].endswith("brief")


async def test_a_summary_is_tried_again_like_any_answer() -> None:
    busy = ModelFailed("busy", temporary=True)
    async with resident(Answers([reply("x" * 4000)], [busy], [reply("brief")])) as session:
        await session.turn("tell me")
        heard: list[Event] = []
        session.listen(heard.append)
        await session.compact()
        assert texts(conversation(session))[0].endswith("brief")
        assert not any(isinstance(event, Retrying) for event in heard)


async def test_a_fork_has_its_own_model_and_outlives_its_parent() -> None:
    closed: list[str] = []

    other = (msgspec.structs.replace(MODEL, id="m2"), Answers([reply("two")]))

    async def close() -> None:
        closed.append("closed")

    driver = Resident(
        RunContext(model=MODEL, provider=Answers([reply("one")]), limits=QUICK),
        Box(echo=echo),
        switch=lambda _query: other,
        shared=SharedResources(close),
    )
    async with Session(driver, limits=QUICK) as session:
        fork = session.fork()
        await fork.open()
        await fork.set_model("m2")
        assert (await session.turn("who")).text == "one"
    assert closed == []
    assert (await fork.turn("who")).text == "two"
    await fork.close()
    assert closed == ["closed"]


# -- on the side


@pytest.mark.req("piglet.rule.background-key")
async def test_what_is_cancelled_before_it_began_is_gone() -> None:
    async with resident(Answers([reply("ok")])) as session:
        assert isinstance(session.driver, Resident)
        side = session.driver.backgrounds
        await side.cancel(side.start("do it"))
        assert not side.running
        await side.wait_idle()
        assert (await side.result(side.start("do it"))).endswith("ok")


async def test_nothing_is_begun_on_the_side_before_a_session_is_open_or_after_it() -> None:
    session = resident(Answers([reply("ok")]))
    assert isinstance(session.driver, Resident)
    with pytest.raises(NotAllowed, match="agent not ready"):
        session.driver.backgrounds.start("early")
    async with session:
        pass
    with pytest.raises(NotAllowed, match="agent not ready"):
        session.driver.backgrounds.start("late")


@pytest.mark.req("piglet.rule.background-tools")
async def test_the_agents_filter_holds_on_the_side_too() -> None:
    provider = Answers([reply("", call("look"))], [reply("ok")])
    async with resident(provider, Box(look=(ToolSpec("look", background=True), echo))) as session:
        assert isinstance(session.driver, Resident)
        session.driver.tools.restrict([])
        await session.driver.backgrounds.result(session.driver.backgrounds.start("go"))
        assert provider.requests[0].tools == ()
        assert texts(provider.requests[1].messages)[-1] == "tool: unknown tool: look"


async def test_a_session_is_idle_when_nothing_runs_on_the_side_either() -> None:
    gate = asyncio.Event()
    async with resident(Answers([gate, reply("ok")])) as session:
        assert isinstance(session.driver, Resident)
        session.driver.backgrounds.start("go")
        idle = asyncio.ensure_future(session.idle())
        for _ in range(50):
            await asyncio.sleep(0)
        assert not idle.done()
        gate.set()
        await idle
        assert not session.driver.backgrounds.running

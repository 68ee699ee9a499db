"""A session: one prompt at a time, open until it is left, and nothing behind it."""

from __future__ import annotations

import asyncio

import pytest

from serai.agents.driver import Capabilities, Prompt
from serai.agents.event_hub import EventHub
from serai.agents.session import Session
from serai.agents.turn import Turn
from serai.errors import Closed, NotCapable, NotWritten, SpawnFailed, TurnInFlight
from serai.limits import Limits
from serai.model.approvals import Approval
from serai.model.events import Event, Message, Text, TurnEnded, TurnResult, TurnStarted, event_kind
from serai.model.tools import ImageBlock, ToolCall
from serai.store import SessionFolder, UserMessage
from tests.support.agents.scripted_driver import Scripted, create_session, start_and_hang


async def shout_prompt(hub: EventHub, prompt: Prompt) -> TurnResult:
    return TurnResult(status="success", text=prompt.text.upper())


@pytest.mark.req("agents.scenario.B7")
async def test_a_second_prompt_is_refused_and_the_first_goes_on() -> None:
    async with create_session(start_and_hang) as there:
        turn = await there.send("first")
        with pytest.raises(TurnInFlight, match="busy with .first."):
            await there.send("second")
        with pytest.raises(TurnInFlight):
            await there.turn("third")
        states = [there.state]
        assert not turn.done
        await turn.cancel()
        assert [*states, there.state] == ["running", "idle"]


async def test_a_turn_that_was_refused_may_begin_later() -> None:
    async with create_session(shout_prompt) as there:
        first, second = there.turn("first"), there.turn("second")
        first.start()
        with pytest.raises(TurnInFlight):
            second.start()
        assert (await first).text == "FIRST"
        assert (await second).text == "SECOND"


@pytest.mark.req("agents.scenario.N5", "agents.scenario.H2")
async def test_after_close_which_may_be_repeated_nothing_more_is_taken() -> None:
    there = create_session(shout_prompt)
    turn = there.turn("before it is open")
    with pytest.raises(Closed, match="not open yet") as early:
        turn.start()
    assert "async with" in early.value.hint
    async with there:
        assert (await turn).text == "BEFORE IT IS OPEN"
    await there.close()
    await asyncio.gather(there.close(), there.close())
    assert there.driver.closed == 1  # type: ignore[attr-defined]
    with pytest.raises(Closed, match="closed"):
        await there.send("late")
    with pytest.raises(Closed):
        there.steer("late")
    with pytest.raises(Closed):
        await there.answer("a", None)  # type: ignore[arg-type]
    with pytest.raises(Closed):
        await there.open()


async def test_leaving_a_session_ends_the_turn_that_runs() -> None:
    async with create_session(start_and_hang) as there:
        turn = await there.send("go")
        turn.taken = True
    assert turn.outcome is not None
    assert (turn.outcome.status, turn.outcome.error) == ("cancelled", "interrupted")
    assert [event_kind(event) async for event in turn] == ["turn_started", "text", "turn_ended"]


async def test_an_agent_that_cannot_be_started_leaves_nothing() -> None:
    class Broken(Scripted):
        async def open(self, hub: EventHub) -> None:
            raise SpawnFailed("there is no such program", who="scripted")

    there = Session(Broken(shout_prompt))
    with pytest.raises(SpawnFailed):
        async with there:
            raise AssertionError("it is not open")
    assert there.driver.closed == 1  # type: ignore[attr-defined]
    assert there.state == "closed"


async def test_close_is_not_stopped_half_way() -> None:
    release = asyncio.Event()

    class Slow(Scripted):
        async def close(self) -> None:
            await release.wait()
            await super().close()

    there = Session(Slow(shout_prompt))
    await there.open()
    closing = asyncio.ensure_future(there.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    release.set()
    await there.close()
    assert there.driver.closed == 1  # type: ignore[attr-defined]


@pytest.mark.req("agents.rule.50")
async def test_what_an_agent_lacks_is_an_error_of_its_own() -> None:
    driver = Scripted(shout_prompt)
    driver.capabilities = Capabilities(deltas=True)
    async with Session(driver) as there:
        flags = there.capabilities
        assert (flags.deltas, flags.approvals, flags.questions, flags.interrupt) == (True, False, False, False)
        assert (flags.multi_turn, flags.fork, flags.choose_id) == (False, False, False)
        with pytest.raises(NotCapable, match="fork"):
            there.fork()
        with pytest.raises(NotCapable, match="steer"):
            there.steer("left")
        with pytest.raises(NotCapable, match="switch_model"):
            await there.set_model("m")
        with pytest.raises(NotCapable, match="modes"):
            await there.set_mode("plan")
        with pytest.raises(NotCapable, match="compact"):
            await there.compact()
        with pytest.raises(NotCapable, match="images"):
            there.turn("look", images=[ImageBlock(b"x", "image/png")])


@pytest.mark.parametrize("text", ["", " \n"])
async def test_an_empty_prompt_is_refused_at_once(text: str) -> None:
    async with create_session(shout_prompt) as there:
        with pytest.raises(ValueError, match="empty prompt"):
            there.turn(text)


@pytest.mark.req("agents.scenario.N1")
async def test_a_turn_that_the_agent_begins_is_announced_read_and_ended_and_a_prompt_meanwhile_is_refused() -> None:
    async with create_session(shout_prompt) as there:
        begun: list[Turn] = []
        there.on_turn(begun.append)
        hub = there.hub
        turn = Turn(Prompt("background work"), hub)

        def take(turn: Turn) -> None:
            turn.taken = True

        there.on_turn(take)
        hub.announce(turn)
        assert begun == [turn]
        with pytest.raises(TurnInFlight):
            await there.send("mine")
        hub.emit(Text(text="by myself"))
        hub.end(turn, TurnResult(status="success", text="by myself"))
        assert [event_kind(event) async for event in turn] == ["turn_started", "text", "turn_ended"]
        assert (await turn).text == "by myself"
        assert (await there.turn("mine")).text == "MINE"


@pytest.mark.req("agents.scenario.N1")
async def test_a_turn_that_nobody_takes_is_played_unheard_and_approves_nothing() -> None:
    async with create_session(shout_prompt) as there:
        turn = Turn(Prompt("background work"), there.hub)
        there.hub.announce(turn)
        decision = await there.hub.ask(Approval(id="a", call=ToolCall("bash")))
        assert "nobody is there" in str(decision)
        there.hub.end(turn, TurnResult(status="success"))
        assert there.state == "idle"


async def test_a_listener_hears_everything_before_the_reader_and_can_stop() -> None:
    async with create_session(shout_prompt) as there:
        heard: list[Event] = []
        stop = there.listen(heard.append)
        async for event in there.turn("one"):
            assert heard[-1].seq >= event.seq
        assert [event_kind(event) for event in heard] == ["turn_started", "turn_ended"]
        stop()
        stop()
        await there.turn("two")
        assert len(heard) == 2


async def test_a_listener_that_cannot_keep_what_happened_ends_the_turn_with_its_error() -> None:
    def full(event: Event) -> None:
        if isinstance(event, Text):
            raise NotWritten("no space left on device", who="session.jsonl")

    async with create_session(start_and_hang) as there:
        there.listen(full)
        with pytest.raises(NotWritten):
            await there.turn("go")
        assert there.state == "idle"


async def test_a_listener_that_fails_at_the_very_end_is_the_error_of_the_turn() -> None:
    def full(event: Event) -> None:
        if event_kind(event) in ("turn_ended", "request_cancelled"):
            raise NotWritten("no space left on device", who="session.jsonl")

    async with create_session(shout_prompt) as there:
        there.listen(full)
        with pytest.raises(NotWritten):
            await there.turn("go")
        assert there.state == "idle"


async def test_everybody_is_told_also_behind_one_who_fails_and_one_who_leaves() -> None:
    heard: list[str] = []
    async with create_session(shout_prompt) as there:

        def fails(event: Event) -> None:
            if event_kind(event) == "turn_ended":
                raise NotWritten("no space left on device")

        def leaves(event: Event) -> None:
            stop()

        there.listen(fails)
        stop = there.listen(leaves)
        there.listen(lambda event: heard.append(event_kind(event)))
        read: list[str] = []
        with pytest.raises(NotWritten):
            async for event in there.turn("go"):
                read.append(event_kind(event))  # noqa: PERF401  (it ends in an error)
        assert heard == read == ["turn_started", "turn_ended"]


async def test_a_turn_ends_once_and_the_next_one_waits_until_a_stubborn_agent_has_let_go() -> None:
    release = asyncio.Event()

    class Stubborn(Scripted):
        async def run(self, prompt: Prompt) -> TurnResult:
            while prompt.text == "one" and not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            return TurnResult(status="success", text=prompt.text)

    async with Session(Stubborn(shout_prompt), limits=Limits().but(interrupt=0.05)) as there:
        ends: list[str] = []
        there.listen(lambda event: ends.append(event.result.text) if isinstance(event, TurnEnded) else None)
        first = await there.send("one")
        await asyncio.sleep(0)
        await first.cancel("enough")
        assert first.outcome is not None
        assert first.outcome.status == "cancelled"
        with pytest.raises(TurnInFlight, match="does not heed"):
            await there.turn("two")
        release.set()
        while there._playing is not None and not there._playing.done():
            await asyncio.sleep(0)
        assert (await there.turn("two")).text == "two"
        assert ends == ["", "two"]


async def test_closing_is_bounded() -> None:
    class Slow(Scripted):
        async def close(self) -> None:
            await asyncio.Event().wait()

    short = Limits().but(interrupt=0.01, stop_polite=0.01, stop_term=0.01, stop_kill=0.01)
    async with Session(Slow(shout_prompt), limits=short) as there:
        pass
    assert there.state == "closed"


async def test_closing_while_it_is_opened_ends_that_and_leaves_nothing() -> None:
    class Slow(Scripted):
        async def open(self, hub: EventHub) -> None:
            await asyncio.Event().wait()

    there = Session(Slow(shout_prompt))
    opening = asyncio.ensure_future(there.open())
    await asyncio.sleep(0)
    assert there.state == "new"
    await there.close()
    with pytest.raises(Closed, match="while it was opened"):
        await opening
    assert there.driver.closed == 1  # type: ignore[attr-defined]


async def test_who_stops_reading_for_good_does_not_hold_the_turn_for_ever() -> None:
    async def floods(hub: EventHub, prompt: Prompt) -> None:
        for _ in range(100):
            hub.emit(Message())
            await hub.wait_for_room()

    async with create_session(floods, limits=Limits().but(waiting=10, model_idle=0.02)) as there:
        turn = there.turn("go")
        async for _ in turn:
            break
        await turn.over()
        assert turn.unheard
        assert there.state == "idle"


async def test_a_driver_with_a_defect_ends_the_turn_and_not_the_session(caplog: pytest.LogCaptureFixture) -> None:
    async def breaks(hub: EventHub, prompt: Prompt) -> TurnResult:
        if prompt.text == "break":
            raise KeyError("oops")
        return TurnResult(status="success", text="fine")

    async with create_session(breaks) as there:
        turn = there.turn("break")
        with pytest.raises(KeyError):
            await turn
        assert turn.outcome is not None
        assert turn.outcome.error == "KeyError: 'oops'"
        assert (await there.turn("go on")).text == "fine"
    assert "the driver of scripted failed" in caplog.text


async def test_a_conversation_is_kept_where_the_caller_says(tmp_path: object) -> None:
    async def talks(hub: EventHub, prompt: Prompt) -> TurnResult:
        hub.emit(Text(text="hel"))
        hub.emit(Text(text="lo"))
        return TurnResult(status="success", text="hello")

    stored = SessionFolder(str(tmp_path)).create("/app")
    async with Session(Scripted(talks), store=stored) as there:
        await there.turn("hi")
    with SessionFolder(str(tmp_path)).open(stored.id) as again:
        user, assistant = again.read_messages()
    assert isinstance(user, UserMessage)
    assert user.content == "hi"
    assert [item.text for item in assistant.content] == ["hello"]  # type: ignore[union-attr]


async def test_the_mark_of_an_interrupted_turn_is_kept_after_what_was_said(tmp_path: object) -> None:
    stored = SessionFolder(str(tmp_path)).create("/app")
    async with Session(Scripted(start_and_hang), store=stored) as there, there.turn("hi") as turn:
        async for event in turn:
            if isinstance(event, TurnStarted):
                there.steer("and quickly")
            if isinstance(event, Text):
                await turn.cancel("it took too long")
    with SessionFolder(str(tmp_path)).open(stored.id) as again:
        texts = [message.content if isinstance(message, UserMessage) else "assistant" for message in again.read_messages()]
    assert texts == ["hi", "assistant", "and quickly", "[Request interrupted: it took too long]"]

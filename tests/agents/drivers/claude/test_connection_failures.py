"""What goes wrong with the process: it dies, is silent, does not read or does not heed; the turn has its end in any case."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from time import monotonic

import pytest

import serai
from serai.errors import AgentFailed, BadSettings, Closed, FrameTooBig, PeerTimeout, SeraiError
from serai.limits import MIB, Limits
from serai.model.approvals import Approval
from serai.model.events import Retrying, StateChanged, Stderr, Text
from serai.testing.claude.script import Script
from serai.wire.plain_process import PlainSpawner
from tests.support.claude.captures import LIMITS
from tests.support.claude.scripted_sessions import QUICK, Seen, driver_of, play, poll, program, read, scripted_session
from tests.support.processes import Ends, lives

TALK = Script().init().text("hello").result("hello")


# -- it dies


@pytest.mark.req("agents.scenario.N4")
@pytest.mark.parametrize("how", [-9, 3])
async def test_a_crash_in_the_middle_is_the_turns_error_and_is_told(tmp_path: Path, how: int) -> None:
    script = Script().init().text("one moment").err("it broke").exits(how)
    _, session = scripted_session(tmp_path, script)
    over: list[SeraiError] = []
    async with session:
        driver_of(session).on_terminated.append(over.append)
        turn = session.turn("go")
        waiting = [asyncio.ensure_future(turn.result()) for _ in range(2)]
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert len(over) == 1
    for error in (*results, *over):
        assert isinstance(error, AgentFailed)
        assert error.kind == "exited"
        assert error.exit is not None
        assert (error.exit.signal or error.exit.code) == abs(how)
        assert "it broke" in error.stderr
    assert len(over) == 1  # and not once more when the session was closed
    assert turn.outcome is not None
    assert turn.outcome.status == "error"


@pytest.mark.req("agents.live.Z13")
async def test_an_exit_of_143_without_a_result_is_no_success(tmp_path: Path) -> None:
    _, session = scripted_session(tmp_path, Script().init().text("one moment").exits(143))
    async with session:
        seen = await play(session)
    assert isinstance(seen.error, AgentFailed)
    assert seen.error.exit is not None
    assert seen.error.exit.code == 143
    assert seen.result.status == "error"


async def test_a_good_exit_without_a_result_is_no_success_either(tmp_path: Path) -> None:
    _, session = scripted_session(tmp_path, Script().init().text("one moment").exits(0))
    async with session:
        seen = await play(session)
    assert isinstance(seen.error, AgentFailed)
    assert seen.error.kind == "no_result"


async def test_a_conversation_goes_on_after_its_process_died(tmp_path: Path) -> None:
    """When there was a result: before that there is nothing to go on with."""
    second = Script().init().text("two").result("two", total_cost_usd=0.5)
    claude, session = scripted_session(tmp_path, Script().init().text("one").result("one", total_cost_usd=0.25).exits(3), second)
    async with session:
        assert (await play(session)).result.text == "one"
        await poll(lambda: driver_of(session)._over is not None)
        seen = await play(session)
        assert (seen.result.text, seen.result.usage.cost_usd) == ("two", 0.5)
        assert claude.given(1).option("--resume") == session.id
    assert claude.starts == 2


@pytest.mark.loops
async def test_the_next_process_begins_when_the_last_is_gone(tmp_path: Path) -> None:
    """Two must not write one conversation: the first takes its time on the ladder."""
    source = """
if os.path.exists("pid"):
    lives = os.path.exists("/proc/" + open("pid").read())
    greet()
    init()
    result("it lives" if lives else "it is gone")
    rest()
else:
    open("pid", "w").write(str(os.getpid()))
    greet()
    init()
    result("one")
    hear()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    init()
    block = {"type": "text", "text": "busy"}
    say("assistant", message={"id": "m1", "model": "fake", "content": [block], "stop_reason": "end_turn"})
    while True:
        time.sleep(60)
"""
    async with program(tmp_path, source, limits=QUICK.but(agent_stop=0.5)) as session:
        assert (await play(session)).result.text == "one"
        seen = Seen(session.turn("go"))
        reading = asyncio.ensure_future(read(seen))
        await poll(lambda: seen.said)
        await session.interrupt("enough")
        await reading
        assert (await play(session)).result.text == "it is gone"


async def test_one_that_cannot_be_started_again_says_so_each_time(tmp_path: Path) -> None:
    claude, session = scripted_session(tmp_path, Script().init().text("one").result("one").exits(3))
    async with session:
        await play(session)
        await poll(lambda: driver_of(session)._over is not None)
        claude.path.unlink()
        for _ in range(2):
            seen = await play(session)
            assert isinstance(seen.error, SeraiError)
            assert seen.result.status == "error"


async def test_before_its_first_result_there_is_nothing_to_go_on_with(tmp_path: Path) -> None:
    claude, session = scripted_session(tmp_path, Script().init().exits(3))
    async with session:
        for _ in range(2):
            assert isinstance((await play(session)).error, AgentFailed)
    assert claude.starts == 1


# -- its streams


@pytest.mark.loops
@pytest.mark.req("agents.edge.09")
@pytest.mark.parametrize("stubborn", [False, True])
async def test_one_that_closes_its_stdout_and_stays_is_ended(tmp_path: Path, stubborn: bool) -> None:
    options = ("--close-stdout", *(("--ignore-term",) if stubborn else ()))
    claude, session = scripted_session(
        tmp_path, Script().init().text("hm").exits(0), options=options, limits=QUICK.but(exit_grace=0.2)
    )
    async with session:
        seen = await play(session)
        assert isinstance(seen.error, AgentFailed)
        assert seen.result.status == "error"
        with Ends([claude.given().pid]) as ends:
            assert not await asyncio.to_thread(ends.left_after, 15.0)


@pytest.mark.req("agents.edge.10")
async def test_a_grandchild_that_holds_its_stdout_holds_nobody_up(tmp_path: Path) -> None:
    assert Limits().drain_grace == 1.0
    limits = LIMITS.but(drain_grace=0.3, agent_turn=None)
    claude, session = scripted_session(tmp_path, Script().init().text("hm").exits(0), options=("--grandchild",), limits=limits)
    async with session:
        seen = await play(session)  # or it would hang
        assert isinstance(seen.error, AgentFailed)
        assert seen.error.exit is not None
        assert seen.error.exit.code == 0
        assert seen.said == ["hm"]  # what was in the pipe counts
        with Ends([claude.given().grandchild]) as ends:
            assert not await asyncio.to_thread(ends.left_after, 15.0)


@pytest.mark.req("agents.edge.12")
async def test_one_that_does_not_read_holds_up_neither_the_reader_nor_the_close(tmp_path: Path) -> None:
    """It says things while a megabyte waits for it, ends the turn without having read it, and is closed in bounded time."""
    script = Script(greeted=False).init().text("I do not read").result("done")
    claude, session = scripted_session(tmp_path, script, options=("--deaf", "--stay", "--ignore-term"), limits=QUICK)
    async with session:
        seen = await play(session, "x" * 4_000_000)
        assert seen.result.text == "done"
        assert driver_of(session)._connection.channel.outbox.queued  # type: ignore[union-attr]
        pid = claude.given().pid
    assert not lives(pid)


@pytest.mark.req("agents.edge.12")
async def test_a_prompt_that_nobody_reads_ends_with_its_turns_time(tmp_path: Path) -> None:
    script = Script(greeted=False)
    claude, session = scripted_session(tmp_path, script, options=("--deaf", "--stay"), limits=QUICK.but(agent_turn=0.3))
    async with session:
        seen = await play(session, "x" * 4_000_000)
        assert isinstance(seen.error, PeerTimeout)
    assert not lives(claude.given().pid)


@pytest.mark.req("agents.edge.13")
async def test_a_broken_pipe_at_the_first_prompt_tells_the_exit_and_stderr(tmp_path: Path) -> None:
    """It closes its stdin before it has read anything, and ends when the prompt was written in vain."""
    source = """
os.close(0)
open("closed", "w").close()
while not os.path.exists("go"):
    time.sleep(0.01)
os.write(2, b"it has no legs\\n")
os._exit(7)
"""
    session = program(tmp_path, source)
    async with session:
        await poll((tmp_path / "closed").exists)
        seen = Seen(session.turn("go"))
        reading = asyncio.ensure_future(read(seen))
        await poll(lambda: driver_of(session)._connection.channel.outbox.closed)  # type: ignore[union-attr]
        (tmp_path / "go").touch()
        await reading
    assert isinstance(seen.error, AgentFailed)
    assert seen.error.exit is not None
    assert seen.error.exit.code == 7
    assert "it has no legs" in seen.error.stderr
    assert "pipe" not in str(seen.error).lower()


@pytest.mark.req("agents.edge.13")
async def test_so_does_a_prompt_to_one_that_has_ended_already(tmp_path: Path) -> None:
    claude, session = scripted_session(tmp_path, Script(greeted=False).err("Error: Session ID x is already in use.").exits(1))
    async with session:
        await poll(lambda: driver_of(session)._over is not None)
        seen = await play(session)
    assert isinstance(seen.error, AgentFailed)
    assert seen.error.kind == "session_in_use"
    assert claude.starts == 1


async def test_a_prompt_that_is_too_long_to_be_sent_fails_alone(tmp_path: Path) -> None:
    _, session = scripted_session(tmp_path, TALK, limits=LIMITS.but(send=100_000))
    async with session:
        seen = await play(session, "x" * 200_000)
        assert isinstance(seen.error, FrameTooBig)
        assert (await play(session, "go")).result.text == "hello"


@pytest.mark.req("agents.edge.26")
async def test_a_flood_on_stderr_blocks_nobody_and_only_its_end_is_kept(tmp_path: Path) -> None:
    script = Script().init().text("hm").err("the last line").exits(3)
    _, session = scripted_session(tmp_path, script, options=("--flood", str(8 * MIB)))
    lines = 0

    def count(event: object) -> None:
        nonlocal lines
        lines += isinstance(event, Stderr)

    async with session:
        session.listen(count)
        seen = await play(session)
    assert isinstance(seen.error, AgentFailed)
    assert "the last line" in seen.error.stderr
    assert len(seen.error.stderr) <= LIMITS.stderr_tail
    assert lines > 100_000


@pytest.mark.req("agents.edge.26")
async def test_a_line_without_an_end_on_stderr_is_bounded_too(tmp_path: Path) -> None:
    source = 'greet()\ninit()\nfor _ in range(64):\n    os.write(2, b"x" * 65536)\nos.write(2, b"\\n")\nresult("done")\nrest()\n'
    told: list[int] = []
    async with program(tmp_path, source) as session:
        session.listen(lambda event: told.append(len(event.line)) if isinstance(event, Stderr) else None)
        assert (await play(session)).result.text == "done"
        await poll(lambda: told)
    assert told[0] <= 131_072


# -- where it works


@pytest.mark.req("agents.edge.23")
@pytest.mark.parametrize("kind", ["missing", "a file", "a link to nowhere"])
async def test_a_folder_that_is_none_is_told_before_anything_is_started(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "place"
    if kind == "a file":
        place.touch()
    elif kind == "a link to nowhere":
        place.symlink_to(tmp_path / "nowhere")
    claude, _ = scripted_session(tmp_path, TALK)
    session = serai.agent("claude", cwd=place, environ={"PATH": os.defpath}, settings={}, path=str(claude.path), limits=LIMITS)
    with pytest.raises(BadSettings, match="no folder"):
        await session.open()
    assert claude.starts == 0


@pytest.mark.req("agents.edge.23")
async def test_a_folder_that_goes_during_the_run_has_a_kind_of_its_own(tmp_path: Path) -> None:
    text = "Error: ENOENT: no such file or directory, uv_cwd"
    _, session = scripted_session(tmp_path, Script().init().err(text).exits(1))
    async with session:
        seen = await play(session)
    assert isinstance(seen.error, AgentFailed)
    assert seen.error.kind == "cwd_unavailable"


async def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    claude, session = scripted_session(tmp_path, TALK)
    claude.path.unlink()
    with pytest.raises(SeraiError) as caught:
        await session.open()
    assert not isinstance(caught.value, Closed)
    assert str(claude.path) in str(caught.value)


# -- it is silent


@pytest.mark.req("agents.rule.79")
async def test_one_that_never_says_anything_is_given_up_and_the_limit_is_named(tmp_path: Path) -> None:
    assert Limits().agent_first == 60.0
    script = Script(greeted=False).raw("this is no frame")
    claude, session = scripted_session(tmp_path, script, options=("--deaf", "--stay"), limits=QUICK.but(agent_first=1.5))
    async with session:
        seen = await play(session)
        assert isinstance(seen.error, PeerTimeout)
        assert seen.error.limit is not None
        assert seen.error.limit.name == "agent_first"
    assert not claude.starts or not lives(claude.given().pid)


@pytest.mark.req("agents.rule.79")
async def test_one_that_has_answered_and_has_nothing_to_do_is_not_silent(tmp_path: Path) -> None:
    source = 'first = hear()\nreply(first, {})\nhear()\ninit()\nresult("here")\nrest()\n'
    async with program(tmp_path, source) as session:
        driver = driver_of(session)
        assert driver._initialized is not None
        await asyncio.wait([driver._initialized])
        assert driver.on_tick(monotonic() + 1000) is None
        assert (await play(session)).result.text == "here"


@pytest.mark.req("agents.edge.35")
async def test_a_storm_of_retries_ends_with_the_turns_time(tmp_path: Path) -> None:
    """It says something all the time; only the clock on the wall ends it. It is interrupted first, and heeds that."""
    source = """
import threading
prompt = greet()
init()
over = threading.Event()
def storm():
    n = 0
    while not over.wait(0.02):
        n += 1
        say("system", subtype="api_retry", attempt=n, max_retries=10, retry_delay_ms=500, error_status=529, error="overloaded")
thread = threading.Thread(target=storm)
thread.start()
request = hear()
over.set()
thread.join()
reply(request, {})
result("", subtype="error_during_execution", is_error=True, terminal_reason="aborted_streaming", user_message_uuid=prompt["uuid"])
second = hear()
init()
result(request["request"]["subtype"], user_message_uuid=second["uuid"])
rest()
"""
    async with program(tmp_path, source, limits=LIMITS.but(agent_turn=1.5)) as session:
        seen = await play(session)
        assert isinstance(seen.error, PeerTimeout)
        assert seen.error.limit is not None
        assert seen.error.limit.name == "agent_turn"
        assert seen.result.status == "error"
        assert seen.of(Retrying)
        driver_of(session).context.limits = LIMITS
        assert (await play(session)).result.text == "interrupt"  # the same process


@pytest.mark.req("agents.edge.35")
async def test_a_silence_is_told(tmp_path: Path) -> None:
    script = Script().init().request("mcp_status").result("done")
    _, session = scripted_session(tmp_path, script, limits=LIMITS.but(agent_silent=0.3))
    asked: list[asyncio.Future[object]] = []
    async with session:
        turn = session.turn("go")
        async for event in turn:
            if isinstance(event, StateChanged) and event.state == "stalled" and not asked:
                asked.append(asyncio.ensure_future(driver_of(session).send_control("mcp_status")))  # it waits for that
        assert (await turn).text == "done"
    assert asked


@pytest.mark.req("agents.edge.35")
async def test_a_silence_is_told_once_until_it_says_something(tmp_path: Path) -> None:
    script = Script().init().text("hm").request("mcp_status").text("hm again").request("mcp_status").result("done")
    _, session = scripted_session(tmp_path, script, limits=LIMITS.but(agent_silent=1000.0))
    stalled = 0
    async with session:
        driver = driver_of(session)
        turn = session.turn("go")
        async for event in turn:
            if isinstance(event, Text):
                for after in (999.0, 1001.0, 2500.0):
                    assert driver.on_tick(monotonic() + after) is not None  # and is looked at again
                await driver.send_control("mcp_status")
            elif isinstance(event, StateChanged):
                stalled += event.state == "stalled"
        assert (await turn).text == "done"
    assert stalled == 2


@pytest.mark.req("agents.edge.35")
async def test_while_a_person_is_asked_it_is_not_the_agent_that_is_silent(tmp_path: Path) -> None:
    script = Script().init().tool("t1", "Bash", command="ls").asks("r1", "t1", command="ls").result("done")
    _, session = scripted_session(tmp_path, script, limits=LIMITS.but(agent_silent=1000.0))
    states: list[str] = []
    async with session:
        session.listen(lambda event: states.append(event.state) if isinstance(event, StateChanged) else None)

        async def answer(ask: object) -> None:
            driver = driver_of(session)
            for after in (1001.0, 5000.0, 9000.0):
                assert driver.on_tick(monotonic() + after) is not None
            assert isinstance(ask, Approval)
            await ask.deny("no")

        await play(session, answer=answer)
    assert not [state for state in states if state == "stalled"]


# -- it does not heed


@pytest.mark.req("agents.scenario.N2")
async def test_an_interrupted_turn_leaves_the_process_for_the_next_one(tmp_path: Path) -> None:
    script = Script().init().tool("t1", "Bash", command="ls").asks("r1", "t1", answered=False, command="ls").interrupted()
    claude, session = scripted_session(tmp_path, script.prompt().init().text("two").result("two"))
    async with session:
        seen = Seen(session.turn("go"))

        async def answer(ask: object) -> None:
            asyncio.ensure_future(session.interrupt("enough"))  # noqa: RUF006

        await read(seen, answer)
        assert (seen.result.status, seen.result.error, seen.error) == ("cancelled", "enough", None)
        assert (await play(session)).result.text == "two"
    assert claude.starts == 1
    assert [frame["request"]["subtype"] for frame in claude.given().frames if frame["type"] == "control_request"] == [
        "initialize",
        "interrupt",
    ]
    assert "r1" not in claude.given().answers()


DEAF = """
import subprocess
greet()
init()
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(300)"], start_new_session=True)
open("child", "w").write(str(child.pid))
os.rename("child", "tool")
signal.signal(signal.SIGTERM, signal.SIG_IGN)
block = {"type": "text", "text": "busy"}
say("assistant", message={"id": "m1", "model": "fake", "content": [block], "stop_reason": "end_turn"})
while True:
    time.sleep(60)
"""


@pytest.mark.req("agents.driver.deaf")
@pytest.mark.parametrize("why", ["time", "person", "waiter"])
async def test_one_that_does_not_heed_an_interrupt_is_ended_with_all_it_started(tmp_path: Path, why: str) -> None:
    """A time-out, a person, or that whoever awaits the turn is cancelled: it is interrupted first in each case."""
    limits = QUICK.but(agent_turn=1.5 if why == "time" else 60.0)
    async with program(tmp_path, DEAF, limits=limits) as session:
        pid = driver_of(session)._connection.child.pid  # type: ignore[union-attr]
        if why == "time":
            seen = await play(session)
            assert isinstance(seen.error, PeerTimeout)
        elif why == "person":
            seen = Seen(session.turn("go"))
            reading = asyncio.ensure_future(read(seen))
            await poll(lambda: seen.said)
            await session.interrupt("enough")
            await reading
            assert seen.result.status == "cancelled"
        else:
            turn = session.turn("go")
            waiting = asyncio.ensure_future(turn.result())
            await poll((tmp_path / "tool").exists)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert turn.outcome is not None
            assert turn.outcome.status == "cancelled"
        await poll((tmp_path / "tool").exists)
        tool = int((tmp_path / "tool").read_text())
        with Ends([pid, tool]) as ends:  # without the session's being closed
            assert not await asyncio.to_thread(ends.left_after, 15.0)


@pytest.mark.req("agents.driver.deaf")
async def test_who_loses_patience_while_a_time_out_is_dealt_with_ends_it_too(tmp_path: Path) -> None:
    """The turn's task is cancelled while it waits for the interrupt to be heeded."""
    limits = QUICK.but(agent_turn=0.5, interrupt=30.0)
    async with PlainSpawner(QUICK) as spawner, program(tmp_path, DEAF, limits=limits, spawner=spawner) as session:
        turn = session.turn("go")
        turn.start()
        driver = driver_of(session)
        await poll(lambda: driver._play is not None and driver._play.error is not None)
        assert session._playing is not None
        session._playing.cancel()
        await asyncio.wait([session._playing])
        [child] = spawner.children
        assert driver._over is not None
        with Ends([child.pid]) as ends:
            assert not await asyncio.to_thread(ends.left_after, 15.0)

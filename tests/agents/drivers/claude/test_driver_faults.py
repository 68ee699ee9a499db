"""A program that misbehaves, as a real child process: what it says is used as far as it goes, and nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from serai.errors import AgentFailed, SeraiError
from serai.limits import Limits
from serai.model.approvals import Allow, Approval
from serai.model.events import OtherEvent, Stderr, Text
from serai.testing.claude.script import Script, ScriptedClaude
from serai.wire.plain_process import PlainSpawner
from tests.conftest import QUICK
from tests.support.claude.captures import LIMITS, Capture, play, session
from tests.support.processes import Ends, lives

TALK = Script().init().text("hello").result("hello")
ASKS = (
    Script().init().tool("t1", "Bash", command="ls").asks("r1", "t1", command="ls").told("t1", "a.txt").text("done").result("done")
)
HOST = """
import asyncio, sys, serai

async def main():
    async with serai.agent("claude", cwd=sys.argv[2], path=sys.argv[1], settings={}) as session:
        print((await session.turn("go")).text, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""
STUBBORN = LIMITS.but(agent_stop=0.2, interrupt=0.2, drain_grace=0.2)


async def test_lines_that_are_no_frames_do_no_harm(tmp_path: Path) -> None:
    seen = await play(Capture("tool-allow"), tmp_path, "--noise")
    assert seen.result is not None
    assert seen.result.text == "All done."
    assert [event for event in seen.events if isinstance(event, OtherEvent) and event.kind == "noise"]


async def test_a_huge_line_is_one_frame(tmp_path: Path) -> None:
    seen = await play(Capture("text"), tmp_path, "--huge", str(800 * 1024))
    [huge] = [event for event in seen.events if isinstance(event, OtherEvent) and event.kind == "system/huge"]
    assert len(bytes(huge.native)) in (800 * 1024, 800 * 1024 - 1)
    assert seen.result is not None
    assert seen.result.status == "success"


async def test_a_line_that_ends_in_the_middle_is_no_result(tmp_path: Path) -> None:
    seen = await play(Capture("text"), tmp_path, "--truncate")
    assert seen.result is not None
    assert seen.result.status == "error"
    assert isinstance(seen.error, AgentFailed)
    assert seen.of(Text)


@pytest.mark.parametrize("how", [-9, -15, 0, 3])
async def test_one_that_dies_in_the_middle_ends_its_turn(tmp_path: Path, how: int) -> None:
    seen = await play(Capture("tool-allow"), tmp_path, "--die", "8", f"--die-with={how}")
    assert isinstance(seen.error, AgentFailed)
    assert seen.result is not None
    assert seen.result.status == "error"
    assert seen.of(Text)


@pytest.mark.req("agents.live.Z13")
async def test_a_status_of_143_without_a_result_is_told_as_it_is(tmp_path: Path) -> None:
    seen = await play(Capture("sigterm"), tmp_path)
    assert isinstance(seen.error, AgentFailed)
    assert seen.error.exit is not None
    assert seen.error.exit.code == 143
    assert seen.result is not None
    assert seen.result.status == "error"


@pytest.mark.req("agents.live.Z8", "agents.must.07")
async def test_a_conversation_in_use_is_told_by_its_kind(tmp_path: Path) -> None:
    script = Script(greeted=False).err("Error: Session ID 1-2-3 is already in use.").exits(1)
    async with session(ScriptedClaude(tmp_path / "bin", script), tmp_path) as opened:
        with pytest.raises(AgentFailed, match="already in use") as caught:
            await opened.turn("go")
    assert caught.value.kind == "session_in_use"
    assert caught.value.exit is not None
    assert caught.value.exit.code == 1


@pytest.mark.req("agents.live.Z9")
async def test_an_unknown_conversation_is_an_error_of_its_result(tmp_path: Path) -> None:
    seen = await play(Capture("resume-bad"), tmp_path, resume="0-0-0")
    assert isinstance(seen.error, AgentFailed)
    assert "No conversation found with session ID: " in str(seen.error)
    assert seen.given is not None
    assert seen.given.option("--resume") == "0-0-0"


async def test_a_flood_on_stderr_holds_nobody_up(tmp_path: Path) -> None:
    seen = await play(Capture("text"), tmp_path, "--flood", str(4 * 1024 * 1024))
    assert seen.result is not None
    assert seen.result.status == "success"
    assert [event for event in seen.events if isinstance(event, Stderr)]


async def test_one_that_reads_nothing_can_still_be_left(tmp_path: Path) -> None:
    claude = ScriptedClaude(tmp_path / "bin", TALK, options=("--deaf", "--stay"))
    async with session(claude, tmp_path, limits=STUBBORN) as opened:
        await opened.turn("x" * 1_000_000)
        pid = claude.given().pid
    assert not lives(pid)


# -- stopping


@pytest.mark.req("agents.rule.77")
def test_the_ladders_steps_take_five_seconds_each() -> None:
    assert Limits().agent_stop == 5.0


@pytest.mark.req("agents.rule.77", "agents.must.08")
async def test_its_stdin_is_closed_first(tmp_path: Path) -> None:
    claude = ScriptedClaude(tmp_path / "bin", TALK)
    async with session(claude, tmp_path) as opened:
        await opened.turn("go")
        assert not claude.given().eof
    assert claude.given().eof
    assert not lives(claude.given().pid)


@pytest.mark.req("agents.rule.77", "agents.must.08")
@pytest.mark.parametrize("options", [("--stay",), ("--stay", "--ignore-term"), ("--close-stdout", "--ignore-term")])
async def test_then_it_is_told_and_then_killed_and_always_reaped(tmp_path: Path, options: tuple[str, ...]) -> None:
    claude = ScriptedClaude(tmp_path / "bin", TALK, options=options)
    async with PlainSpawner(QUICK) as spawner:
        async with session(claude, tmp_path, limits=STUBBORN, spawner=spawner) as opened:
            assert (await opened.turn("go")).text == "hello"
            [child] = spawner.children
        assert child.status is not None
        assert (child.status.signal or child.status.code) == (9 if "--ignore-term" in options else 143)
        assert not spawner.children
    assert not os.path.exists(f"/proc/{claude.given().pid}")  # not even a zombie


@pytest.mark.req("agents.rule.77", "agents.must.08")
async def test_whoever_has_a_session_of_its_own_is_ended_too(tmp_path: Path) -> None:
    """Also when it holds the stdout that is read here."""
    claude = ScriptedClaude(tmp_path / "bin", TALK, options=("--grandchild",))
    async with session(claude, tmp_path, limits=STUBBORN) as opened:
        await opened.turn("go")
        grandchild = claude.given().grandchild
        assert lives(grandchild)
    with Ends([grandchild]) as ends:
        assert not ends.left_after(15.0)


@pytest.mark.req("agents.rule.78")
async def test_a_ladder_that_nobody_waits_for_is_finished(tmp_path: Path) -> None:
    claude = ScriptedClaude(tmp_path / "bin", TALK, options=("--stay", "--ignore-term", "--grandchild"))
    opened = session(claude, tmp_path, limits=STUBBORN)
    await opened.open()
    await opened.turn("go")
    closing = asyncio.ensure_future(opened.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    given = claude.given()
    with Ends([given.pid, given.grandchild]) as ends:
        await opened.close()
        assert not await asyncio.to_thread(ends.left_after, 15.0)


@pytest.mark.req("agents.rule.78")
async def test_nothing_of_it_is_left_when_its_host_is_killed(tmp_path: Path) -> None:
    claude = ScriptedClaude(tmp_path / "bin", TALK, options=("--stay", "--ignore-term", "--grandchild"))
    command = [sys.executable, "-c", HOST, str(claude.path), str(tmp_path)]
    host = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert host.stdout is not None
    assert await host.stdout.readline() == b"hello\n"
    given = claude.given()
    with Ends([given.pid, given.grandchild]) as ends:
        host.kill()
        await host.wait()
        assert not await asyncio.to_thread(ends.left_after, 30.0)


async def test_a_crash_leaves_nothing(tmp_path: Path) -> None:
    claude = ScriptedClaude(tmp_path / "bin", TALK, options=("--grandchild", "--die", "2"))
    async with session(claude, tmp_path, limits=STUBBORN) as opened:
        with pytest.raises(SeraiError):
            await opened.turn("go")
        with Ends([claude.given().grandchild]) as ends:
            assert not await asyncio.to_thread(ends.left_after, 15.0)


async def test_an_interrupt_that_is_not_heeded_ends_it(tmp_path: Path) -> None:
    claude = ScriptedClaude(tmp_path / "bin", Script().init().tool("t1", "Bash", command="ls").asks("r1", "t1", command="ls"))
    async with session(claude, tmp_path, limits=STUBBORN) as opened:
        turn = opened.turn("go")
        async with turn:
            async for event in turn:
                if isinstance(event, Approval):
                    break
        assert turn.outcome is not None
        assert turn.outcome.status in ("cancelled", "error")
        with Ends([claude.given().pid]) as ends:
            assert not await asyncio.to_thread(ends.left_after, 15.0)


async def test_one_asks_and_another_answers_at_the_same_time(tmp_path: Path) -> None:
    """Two requests are open at once, and answered in the other order."""
    script = Script().init().tool("t1", "Read", file_path="a").tool("t2", "Read", file_path="b")
    script.asks("r1", "t1", "Read", answered=False, file_path="a").asks("r2", "t2", "Read", answered=False, file_path="b")
    script.answer("r2").told("t2", "B").answer("r1").told("t1", "A").result("done")
    claude = ScriptedClaude(tmp_path / "bin", script)
    async with session(claude, tmp_path) as opened:
        turn = opened.turn("go")
        asked: list[Approval] = []
        async for event in turn:
            if isinstance(event, Approval):
                asked.append(event)
                if len(asked) == 2:
                    for one in reversed(asked):
                        await one.decide(Allow())
        assert (await turn).text == "done"
    assert list(claude.given().answers()) == ["r2", "r1"]

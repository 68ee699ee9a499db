"""The end of a session: whenever it comes, the process and all of its own are gone, and so is everything here."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from serai.agents.driver import NeedsApproval
from serai.errors import Closed, SeraiError
from serai.model.approvals import Allow, Approval, Deny
from serai.model.events import Message, RequestCancelled
from serai.model.tools import ProgressCallback, ToolCall, ToolResult, ToolSpec
from serai.store import AssistantMessage, SessionFolder, UserMessage
from serai.testing.claude.script import Script
from serai.wire.plain_process import PlainSpawner
from tests.support.claude.captures import session as opened
from tests.support.claude.interceptors import ScriptedInterceptors
from tests.support.claude.scripted_sessions import QUICK, Seen, play, poll, program, read, scripted_session
from tests.support.processes import Ends, lives

pytestmark = pytest.mark.loops

TALK = Script().init().text("hello").result("hello")
ASKS = Script().init().text("hm").tool("t1", "Bash", command="ls").asks("r1", "t1", command="ls").told("t1", "a").result("done")


@asynccontextmanager
async def check_leftovers() -> AsyncIterator[PlainSpawner]:
    """No task, no descriptor, no process is more than before."""
    before = set(asyncio.all_tasks())
    async with PlainSpawner(QUICK) as warm:  # what a loop and the watchdog open once
        pass
    assert not warm.children
    open_before = descriptors()
    async with PlainSpawner(QUICK) as spawner:
        yield spawner
        assert not spawner.children
    for _ in range(5):
        await asyncio.sleep(0)
    assert set(asyncio.all_tasks()) - before == set()
    assert descriptors() - open_before == set()


def descriptors() -> set[tuple[str, str]]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add((name, os.readlink(f"/proc/self/fd/{name}")))
        except OSError:
            pass
    return {(name, where) for name, where in found if not where.startswith(("/proc/", "anon_inode:[eventpoll]"))}


@pytest.mark.req("agents.rule.48", "agents.edge.11")
@pytest.mark.parametrize("stay", [False, True])
async def test_leaving_it_leaves_nothing_and_what_was_said_is_kept(tmp_path: Path, stay: bool) -> None:
    stored = SessionFolder(tmp_path / "store").create(str(tmp_path))
    async with check_leftovers() as spawner:
        options = ("--stay", "--ignore-term", "--grandchild") if stay else ()
        claude, session = scripted_session(tmp_path, TALK, options=options, limits=QUICK, spawner=spawner, store=stored)
        async with session:
            await play(session)
            given = claude.given()
            ends = Ends([given.pid, *([given.grandchild] if stay else [])])
        with ends:
            assert not ends.left_after(15.0)
        assert not os.path.exists(f"/proc/{given.pid}")  # reaped
        assert session.state == "closed"
        assert (stored.meta.agent, stored.meta.agent_session or stored.id) == ("claude", given.option("--session-id"))
        assert [type(message) for message in stored.read_messages()] == [UserMessage, AssistantMessage]
        stored.close()


@pytest.mark.req("agents.driver.close")
async def test_it_is_closed_while_it_is_opened(tmp_path: Path) -> None:
    async with check_leftovers() as spawner:
        claude, session = scripted_session(tmp_path, TALK, limits=QUICK, spawner=spawner)
        opening = asyncio.ensure_future(session.open())
        await poll(lambda: spawner.children)
        await session.close()
        with pytest.raises(Closed):
            await opening
        with pytest.raises(Closed):
            await session.turn("go")
    assert not claude.starts or not lives(claude.given().pid)


@pytest.mark.req("agents.driver.close", "agents.edge.11")
async def test_who_opens_it_is_cancelled(tmp_path: Path) -> None:
    async with check_leftovers() as spawner:
        _, session = scripted_session(tmp_path, TALK, limits=QUICK, spawner=spawner)
        opening = asyncio.ensure_future(session.open())
        await poll(lambda: spawner.children)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert session.state == "closed"


@pytest.mark.req("agents.edge.11")
@pytest.mark.parametrize("how", ["no such program", "no program at all"])
async def test_a_start_that_fails_leaves_nothing(tmp_path: Path, how: str) -> None:
    async with check_leftovers() as spawner:
        claude, session = scripted_session(tmp_path, TALK, spawner=spawner)
        if how == "no such program":
            claude.path.unlink()
        else:
            claude.path.write_text("#!/no/such/interpreter\n")
        with pytest.raises(SeraiError):
            await session.open()
        assert session.state == "closed"


@pytest.mark.req("agents.driver.close")
async def test_it_is_closed_during_a_turn_twice_and_from_two_tasks(tmp_path: Path) -> None:
    async with check_leftovers() as spawner:
        claude, session = scripted_session(tmp_path, ASKS, limits=QUICK, spawner=spawner)
        await session.open()
        seen = Seen(session.turn("go"))
        asked = asyncio.Event()

        def answer(ask: object) -> None:
            asked.set()

        reading = asyncio.ensure_future(read(seen, answer))
        await asked.wait()
        await asyncio.gather(session.close(), session.close())
        await session.close()
        await reading
        assert seen.result.status == "cancelled"
        assert [event.id for event in seen.of(RequestCancelled)] == ["r1"]
        [approval] = seen.of(Approval)
        with pytest.raises(Closed):
            await approval.decide(Allow())
        with pytest.raises(Closed):
            await session.answer("r1", Allow())
        assert not lives(claude.given().pid)


@pytest.mark.req("agents.driver.close", "agents.edge.11")
async def test_whoever_reads_a_turn_and_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    async with check_leftovers() as spawner:
        claude, session = scripted_session(tmp_path, ASKS, limits=QUICK, spawner=spawner)
        asked = asyncio.Event()

        async def work() -> None:
            async with session:
                async for event in session.turn("go"):
                    if isinstance(event, Approval):
                        asked.set()

        working = asyncio.ensure_future(work())
        await asked.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert not lives(claude.given().pid)


@pytest.mark.req("agents.edge.11")
def test_a_loop_that_ends_leaves_nothing(tmp_path: Path) -> None:
    """Its tasks are cancelled when it is shut down; nobody has closed anything."""
    claude, _ = scripted_session(tmp_path, ASKS, options=("--stay", "--grandchild"), limits=QUICK)

    async def main() -> None:
        session = opened(claude, tmp_path, limits=QUICK)

        async def work() -> None:
            async with session:
                async for event in session.turn("go"):
                    if isinstance(event, Approval):
                        asked.set()

        asked = asyncio.Event()
        asyncio.ensure_future(work())  # noqa: RUF006  (left behind on purpose)
        await asked.wait()

    asyncio.run(main())
    given = claude.given()
    with Ends([given.pid, given.grandchild]) as ends:
        assert not ends.left_after(15.0)
    assert not os.path.exists(f"/proc/{given.pid}")


# -- those who hold it up


class Stubborn:
    """A tool that does not let itself be cancelled."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go = asyncio.Event()

    def list(self) -> list[ToolSpec]:
        return [ToolSpec("slow")]

    async def call(self, call: ToolCall, *, tell: ProgressCallback | None = None) -> ToolResult:
        self.begun.set()
        while not self.go.is_set():
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                continue
        return ToolResult.of("at last")


@pytest.mark.req("agents.driver.close")
async def test_a_guard_that_does_not_let_go_does_not_keep_the_process(tmp_path: Path) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def judge(call: ToolCall) -> Allow | Deny | NeedsApproval:
        begun.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        return Allow()

    script = Script().init().tool("t1", "Bash", command="ls").hooked("h1", "t1", command="ls").result("done")
    claude, session = scripted_session(tmp_path, script, limits=QUICK, judge=judge)
    await session.open()
    turn = session.turn("go")
    turn.start()
    await begun.wait()
    await session.close()
    assert not lives(claude.given().pid)
    go.set()
    await turn.over()


@pytest.mark.req("agents.driver.close")
async def test_nor_does_a_tool(tmp_path: Path) -> None:
    box = Stubborn()
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow", "arguments": {}}}
    claude, session = scripted_session(tmp_path, Script().init().mcp("m1", call).result("done"), limits=QUICK, tools=box)
    await session.open()
    turn = session.turn("go")
    turn.start()
    await box.begun.wait()
    await session.close()
    assert not lives(claude.given().pid)
    box.go.set()
    await turn.over()


@pytest.mark.req("agents.driver.close")
async def test_nor_does_a_guard_that_was_asked_when_no_turn_ran(tmp_path: Path) -> None:
    """Nobody else ends the process then: the session's close does, in its own time."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def judge(call: ToolCall) -> Allow | Deny | NeedsApproval:
        begun.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        return Allow()

    source = """
greet()
init()
result("one")
about = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}, "agent_id": "a1"}
request = {"subtype": "hook_callback", "callback_id": "guard", "tool_use_id": "t1", "input": about}
say("control_request", request_id="h1", request=request)
rest()
time.sleep(300)
"""
    async with PlainSpawner(QUICK) as spawner:
        session = program(tmp_path, source, limits=QUICK.but(stop_kill=1.0), judge=judge, spawner=spawner)
        await session.open()
        await play(session)
        await begun.wait()
        try:
            await session.close()
            assert not spawner.children
        finally:
            go.set()


@pytest.mark.req("agents.driver.close")
async def test_a_conversation_that_is_being_shortened_is_left(tmp_path: Path) -> None:
    async with check_leftovers() as spawner:
        claude, session = scripted_session(tmp_path, Script().init().result("one").prompt().init(), limits=QUICK, spawner=spawner)
        await session.open()
        await play(session)
        shortening = asyncio.ensure_future(session.compact())
        await poll(lambda: len(claude.given().frames) == 3)
        await session.close()
        with pytest.raises(Closed):
            await shortening
        assert not lives(claude.given().pid)


@pytest.mark.req("agents.driver.close")
async def test_a_guest_that_thinks_about_a_message_is_not_waited_for(tmp_path: Path) -> None:
    async with check_leftovers() as spawner:
        guests = ScriptedInterceptors(waits=True)
        claude, session = scripted_session(tmp_path, TALK, limits=QUICK, spawner=spawner, interceptors=guests)
        await session.open()
        seen = Seen(session.turn("go"))
        reading = asyncio.ensure_future(read(seen))
        await guests.asked.wait()
        await session.close()
        await reading
        assert not seen.of(Message)
        assert seen.result.status == "cancelled"
        assert not lives(claude.given().pid)


async def test_a_fork_has_a_process_of_its_own_to_leave(tmp_path: Path) -> None:
    claude, session = scripted_session(tmp_path, TALK, TALK)
    async with session:
        await play(session)
        async with session.fork() as fork:
            await play(fork)
        assert not lives(claude.given(1).pid)
        assert lives(claude.given(0).pid)
    assert not lives(claude.given(0).pid)


async def test_it_is_closed_before_it_was_opened(tmp_path: Path) -> None:
    claude, session = scripted_session(tmp_path, TALK)
    await session.close()
    assert claude.starts == 0

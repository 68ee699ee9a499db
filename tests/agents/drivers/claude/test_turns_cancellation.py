"""Ends that come early: what was not sent never is, work on the side is told to stop, and nobody pays for another's failure."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from serai.agents.session import Session
from serai.agents.turn import Turn
from serai.model.approvals import Approval
from serai.model.events import Event, Message, NoticeEvent, Stderr, TurnEnded, TurnStarted
from serai.testing.claude.script import Script
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Child, Launch
from tests.support.claude.captures import LIMITS
from tests.support.claude.scripted_sessions import QUICK, Seen, driver_of, play, poll, program, read, scripted_session, wait_for

pytestmark = pytest.mark.loops

FULL = OSError(28, "No space left on device")


class Steps:
    """An interceptor of `turn_start` that says nothing before it may."""

    hold_text = False

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def before_step(self, step: int) -> str:
        self.asked.set()
        await self.go.wait()
        return ""

    async def filter_message(self, message: Message) -> Message | None:
        return message


class Slow:
    """Starts programs; Claude's second start is held up until it may."""

    def __init__(self, spawner: PlainSpawner) -> None:
        self._spawner = spawner
        self._starts = 0
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def spawn(self, launch: Launch) -> Child:
        if "--version" not in launch.argv:
            self._starts += 1
            if self._starts == 2:
                self.asked.set()
                await self.go.wait()
        return await self._spawner.spawn(launch)


def read_lines(place: Path) -> list[Any]:
    """What a program of ours was sent, as far as it has kept that."""
    kept = place / "kept"
    return [json.loads(line) for line in kept.read_text("utf-8").splitlines()] if kept.exists() else []


def kinds(place: Path) -> list[str]:
    return [line["request"]["subtype"] if "request" in line else line["type"] for line in read_lines(place)]


# Keeps what it hears after its greeting, and says when its input has ended.
KEEPS = """
def keep(line):
    with open("kept", "a") as file:
        file.write(json.dumps(line or {"type": "eof"}) + "\\n")
    return line
"""


# -- interrupted before it began

WITHDRAWS = """
prompt = greet()
os.write(2, b"there\\n")
request = hear()
queued = [prompt["uuid"]]
cancelled = queued if request["request"].get("cancel_queued") else []
reply(request, {"cancelled": cancelled, "still_queued": [] if cancelled else queued})
second = hear()
init()
result(f"pid {os.getpid()}", user_message_uuid=second["uuid"])
rest()
"""


async def test_a_prompt_that_was_still_queued_is_cancelled_at_once(tmp_path: Path) -> None:
    """There is no result for it (spec agents 2.7): who waited for one would end the process at last."""
    async with program(tmp_path, WITHDRAWS) as session:
        there = asyncio.ensure_future(wait_for(session, lambda event: isinstance(event, Stderr) and event.line == "there"))
        await asyncio.sleep(0)
        turn = await session.send("go")
        await there
        child = driver_of(session).require_connection().child
        await session.interrupt("enough")
        assert turn.outcome is not None
        assert (turn.outcome.status, turn.outcome.error) == ("cancelled", "enough")
        assert driver_of(session)._over is None
        assert (await play(session)).result.text == f"pid {child.pid}"


async def end_turn(session: Session, how: str) -> asyncio.Task[None]:
    """Somebody interrupts or closes, and has been heard."""
    turn = session.hub.turn
    assert turn is not None
    ending = asyncio.ensure_future(session.interrupt("enough") if how == "interrupt" else session.close())
    await poll(lambda: driver_of(session)._interrupted)
    return ending


@pytest.mark.parametrize("how", ["interrupt", "close"])
async def test_what_is_ended_while_an_interceptor_is_asked_is_not_sent(tmp_path: Path, how: str) -> None:
    guests = Steps()
    claude, session = scripted_session(tmp_path, Script().init().result("two"), interceptors=guests)
    async with session:
        turn = await session.send("the first")
        await guests.asked.wait()
        ending = await end_turn(session, how)
        guests.go.set()
        await ending
        assert turn.outcome is not None
        assert turn.outcome.status == "cancelled"
        assert turn.error is None
        if how == "interrupt":
            assert (await play(session, "the second")).result.text == "two"
    sent = [frame for frame in claude.given().frames if frame["type"] == "user"] if claude.starts else []
    assert [frame["message"]["content"] for frame in sent] == (["the second"] if how == "interrupt" else [])
    if claude.starts:
        asked = [frame["request"]["subtype"] for frame in claude.given().frames if frame["type"] == "control_request"]
        assert asked == ["initialize"]  # there was nothing to interrupt


@pytest.mark.parametrize("how", ["interrupt", "close"])
async def test_what_is_ended_while_it_is_started_again_is_not_sent(tmp_path: Path, how: str) -> None:
    async with PlainSpawner(LIMITS) as plain:
        slow = Slow(plain)
        first, second = Script().init().result("one").exits(3), Script().init().result("two")
        claude, session = scripted_session(tmp_path, first, second, spawner=slow)
        async with session:
            assert (await play(session)).result.text == "one"
            await poll(lambda: driver_of(session)._over is not None)
            turn = await session.send("the first")
            await slow.asked.wait()
            ending = await end_turn(session, how)
            slow.go.set()
            await ending
            assert turn.outcome is not None
            assert turn.outcome.status == "cancelled"
            assert turn.error is None
            if how == "interrupt":
                assert (await play(session, "the second")).result.text == "two"
    sent = [frame for frame in claude.given(1).frames if frame["type"] == "user"] if claude.starts > 1 else []
    assert [frame["message"]["content"] for frame in sent] == (["the second"] if how == "interrupt" else [])


# -- closed while it works on the side

SIDE = """
prompt = greet()
init()
{side}
result("one", user_message_uuid=prompt["uuid"], **{more})
while (line := keep(hear())):
    if line["type"] == "control_request":
        reply(line, {{}})
"""
TASK = 'say("system", subtype="task_started", task_id="a1", tool_use_id="t1", task_type="{}", is_backgrounded=True)'


@pytest.mark.parametrize(
    ("side", "more", "told"),
    [
        (TASK.format("local_agent"), "{}", ["interrupt", "eof"]),
        ("", '{"queued_turn_count": 1}', ["interrupt", "eof"]),
        (TASK.format("local_bash"), "{}", ["eof"]),  # which may be a server, and ends with it
        ("", "{}", ["eof"]),
    ],
    ids=["sub-agent", "queued", "shell", "nothing"],
)
async def test_what_it_does_on_the_side_ends_with_it(tmp_path: Path, side: str, more: str, told: list[str]) -> None:
    """At the end of its input alone it would finish that first, and ask its model for more."""
    async with program(tmp_path, KEEPS + SIDE.format(side=side, more=more)) as session:
        assert (await play(session)).result.text == "one"
    assert kinds(tmp_path) == told
    assert all(line["request"]["cancel_queued"] is True for line in read_lines(tmp_path) if "request" in line)


# -- turns of its own, and those who cannot bear them

OWN = """
prompt = greet()
init()
result("one", user_message_uuid=prompt["uuid"])
hear()
init()
called("t1", "Bash", command="ls")
about = {"subtype": "can_use_tool", "tool_name": "Bash", "tool_use_id": "t1", "input": {"command": "ls"}}
decided = ask("r1", **about)
told("t1", "a.txt")
result(decided["behavior"], origin={"kind": "task-notification"})
second = hear()
init()
result("two", user_message_uuid=second["uuid"])
rest()
"""


async def read_own_turn(session: Session) -> Seen:
    """The turn that it begins, read to its end by somebody who allows everything."""
    begun: asyncio.Future[Seen] = asyncio.get_running_loop().create_future()

    def take(turn: Turn) -> None:
        turn.taken = True
        begun.set_result(Seen(turn))

    session.on_turn(take)
    driver_of(session).steer("go")
    async with asyncio.timeout(30):
        seen = await begun
        try:
            return await read(seen)
        except OSError:  # which the turn keeps
            return seen


async def test_a_turn_of_its_own_that_cannot_be_kept_fails_and_the_next_does_not(tmp_path: Path) -> None:
    async with program(tmp_path, OWN) as session:
        assert (await play(session)).result.text == "one"

        def keep(event: Event) -> None:
            if isinstance(event, TurnStarted) and not event.prompt:
                raise FULL

        session.listen(keep)
        seen = await read_own_turn(session)
        assert seen.turn.error is FULL
        assert (seen.result.status, seen.result.error) == ("error", str(FULL))
        assert [event.id for event in seen.of(Approval)] == ["r1"]  # what came behind it was read all the same
        after = await play(session)
        assert (after.result.status, after.result.text) == ("success", "two")


async def test_who_fails_when_told_of_a_turn_fails_alone(tmp_path: Path) -> None:
    async with program(tmp_path, OWN) as session:
        assert (await play(session)).result.text == "one"

        def bad(turn: Turn) -> None:
            raise RuntimeError(f"not {turn}")

        session.on_turn(bad)
        seen = await read_own_turn(session)
        assert (seen.result.status, seen.result.text, seen.turn.error) == ("success", "allow", None)
        assert isinstance(seen.events[0], TurnStarted)
        assert isinstance(seen.events[-1], TurnEnded)
        assert (await play(session)).result.text == "two"


# -- a process that we end ourselves

DEAF = (Script().init().result("zero").prompt().init().text("one").exits("killed"), Script().init().result("two"))


def collect_notices(session: Session) -> list[str]:
    found: list[str] = []
    session.listen(lambda event: found.append(event.notice.text) if isinstance(event, NoticeEvent) else None)
    return found


def watch_termination(session: Session) -> Callable[[], Awaitable[object]]:
    over = asyncio.Event()
    driver_of(session).on_terminated.append(lambda _: over.set())
    return over.wait


async def interrupt_turn(session: Session) -> Turn:
    """A turn that does not heed an interrupt."""
    turn = await session.send("go")
    turn.taken = True
    await wait_for(session, lambda event: isinstance(event, Message))
    await session.interrupt("enough")
    return turn


async def test_what_could_not_be_kept_of_a_turn_that_was_cut_short_is_not_the_next_ones(tmp_path: Path) -> None:
    _, session = scripted_session(tmp_path, *DEAF, limits=QUICK)
    async with session:
        assert (await play(session)).result.text == "zero"

        def keep(event: Event) -> None:
            if isinstance(event, Message):
                raise FULL

        stop = session.listen(keep)
        turn = await interrupt_turn(session)
        assert turn.outcome is not None
        assert turn.outcome.status == "cancelled"
        stop()
        after = await play(session)
        assert (after.result.status, after.result.text) == ("success", "two")


async def test_of_a_process_that_we_have_ended_nobody_is_told_that_it_ended(tmp_path: Path) -> None:
    _, session = scripted_session(tmp_path, *DEAF, limits=QUICK)
    async with session:
        assert (await play(session)).result.text == "zero"
        told, over = collect_notices(session), watch_termination(session)
        await interrupt_turn(session)
        await over()
        assert (await play(session)).result.text == "two"
    assert [text for text in told if "ended" in text] == []


async def test_of_one_that_ended_by_itself_everybody_is(tmp_path: Path) -> None:
    source = 'prompt = greet()\ninit()\nresult("one", user_message_uuid=prompt["uuid"])\nhear()\nos._exit(3)\n'
    async with program(tmp_path, source) as session:
        assert (await play(session)).result.text == "one"
        told, over = collect_notices(session), watch_termination(session)
        driver_of(session).steer("now")
        await over()
    assert [text for text in told if "it ended between two turns" in text]


# -- what nobody reads

TALKS = """
import fcntl, termios
prompt = greet()
init()
data = b"".join(b"line %d\\n" % n for n in range(5000))
while data:
    data = data[os.write(2, data):]
while fcntl.ioctl(2, termios.FIONREAD, bytes(4)) != bytes(4):  # until all of it was read
    time.sleep(0.001)
result("one", user_message_uuid=prompt["uuid"])
rest()
"""


@pytest.mark.req("agents.edge.01")
async def test_lines_of_stderr_do_not_pile_up_for_who_does_not_look(tmp_path: Path) -> None:
    async with program(tmp_path, TALKS, limits=LIMITS.but(waiting=50)) as session:
        last = asyncio.ensure_future(wait_for(session, lambda event: isinstance(event, Stderr) and event.line == "line 4999"))
        await asyncio.sleep(0)
        turn = await session.send("go")
        turn.taken = True
        await turn.over()
        await last  # whoever listens is told of each
        events = turn.unread()
        assert driver_of(session).require_connection().child.stderr.text().rstrip().endswith("line 4999")
    rows = [event.line for event in events if isinstance(event, Stderr)]
    assert 0 < len(rows) <= 2 * 50
    assert rows == [f"line {number}" for number in range(len(rows))]
    assert isinstance(events[-1], TurnEnded)

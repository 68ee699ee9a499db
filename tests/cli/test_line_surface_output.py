"""A real terminal, in one process: what is typed while it is held up, what is printed meanwhile, which row is shown."""

from __future__ import annotations

import array
import asyncio
import fcntl
import io
import os
import pty
import termios
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Self

import pytest

from serai.cli.line_surface import LineSurface, Terminal
from serai.cli.run_output import TextPrinter
from serai.model.approvals import Allow, Approval, Deny
from serai.model.events import Retrying, Text, ToolEnded, ToolStarted
from serai.model.tools import ToolCall, ToolResult
from serai.policy import CallContext, DecisionStore

PATIENCE = 30.0  # seconds
PROMPT = "May it run? [y]es / [N]o / [s]top the turn"
BASH = ToolCall("bash", {"command": "make test"}, id="c1")
REQUEST = Approval(id="1", agent="resident", session="s1", call=BASH)
DEAD = "1:1:another boot"  # a process that certainly runs no more


class Front(Terminal):
    """Not the terminal of this session, but we are whom one types to."""

    @property
    def foreground(self) -> bool:
        return True


class Screen:
    """A terminal with somebody before it."""

    def __init__(self) -> None:
        self._ours, self.theirs = pty.openpty()
        os.set_blocking(self._ours, False)
        termios.tcsetwinsize(self._ours, (30, 200))
        terminal = Front.open(os.ttyname(self.theirs))
        assert terminal is not None
        self.terminal = terminal
        self.file = os.fdopen(os.dup(self.theirs), "w")
        self.seen = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.terminal.close()
        self.file.close()
        for descriptor in (self._ours, self.theirs):
            os.close(descriptor)

    def hold(self) -> None:
        """As Ctrl-S does."""
        termios.tcflow(self.theirs, termios.TCOOFF)

    def go_on(self) -> None:
        termios.tcflow(self.theirs, termios.TCOON)

    async def type(self, text: str) -> None:
        """When it returns, whoever reads has it: a line."""
        os.write(self._ours, text.encode())
        waiting = array.array("i", [0])
        async with asyncio.timeout(PATIENCE):
            while waiting[0] < len(text):
                fcntl.ioctl(self.theirs, termios.FIONREAD, waiting)
                await asyncio.sleep(0)

    def answer(self, text: str) -> None:
        os.write(self._ours, text.encode())

    async def shows(self, text: str) -> str:
        """All that it has shown since the last time, up to this."""
        async with asyncio.timeout(PATIENCE):
            while text not in self.seen:
                try:
                    self.seen += os.read(self._ours, 65536).decode().replace("\r\n", "\n")
                except BlockingIOError:
                    await asyncio.sleep(0)
        before, found, self.seen = self.seen.partition(text)
        return before + found


@pytest.fixture
def screen() -> Iterator[Screen]:
    with Screen() as screen:
        yield screen


def build_surface(screen: Screen, decisions: DecisionStore | None = None) -> LineSurface:
    return LineSurface(screen.terminal, TextPrinter(screen.file, screen.file, color=False), decisions=decisions, color=False)


# -- asking


@pytest.mark.req("app.line.typed-ahead")
async def test_what_is_typed_while_the_terminal_is_held_up_answers_nothing(screen: Screen) -> None:
    screen.hold()
    asking = asyncio.create_task(screen.terminal.ask("May it run? "))
    while screen.terminal._wake is None:  # until it cannot show what it asks
        await asyncio.sleep(0)
    await screen.type("y\n")
    screen.go_on()
    await screen.shows("May it run? ")
    screen.answer("n\n")
    assert await asking == "n"


@pytest.mark.req("app.line.in-turn")
async def test_what_is_printed_while_something_is_asked_waits_for_the_answer(screen: Screen) -> None:
    line = build_surface(screen)
    line.tell(Text(text="before", session="s1"))
    asking = asyncio.create_task(line.ask(REQUEST))
    assert (await screen.shows(PROMPT)).startswith("before\n")
    line.tell(Text(text="in between", session="s1"))
    line.tell(ToolStarted(call=BASH, session="s1"))
    screen.answer("y\n")
    shown = await screen.shows("bash  make test\n")
    assert await asking == Allow()
    assert shown == ": y\nin between\nbash  make test\n"


@pytest.mark.req("app.line.shown")
@pytest.mark.parametrize("newest", ["waits too", "is lost"])
async def test_of_two_requests_that_are_the_same_the_newest_that_waits_is_shown(
    screen: Screen, tmp_path: Path, newest: str
) -> None:
    with closing(DecisionStore(str(tmp_path / "policy.db"))) as decisions:
        rows = [decisions.ask(REQUEST, CallContext(cwd=cwd, session="s1"), cwd, 600.0) for cwd in ("/first", "/second")]
        decisions._db.rows.execute("UPDATE approvals SET asked = asked + 1 WHERE id = ?", [rows[1].id])  # clocks are coarse
        if newest == "is lost":
            decisions._db.rows.execute("UPDATE approvals SET owner = ? WHERE id = ?", [DEAD, rows[1].id])
        asking = asyncio.create_task(build_surface(screen, decisions).ask(REQUEST))
        shown = await screen.shows(PROMPT)
        screen.answer("n\n")
        assert await asking == Deny("the person said no")
    assert f"\n  in {'/first' if newest == 'is lost' else '/second'}\n" in shown


# -- printing


def print_text(*events: Text | Retrying | ToolStarted | ToolEnded) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    printer = TextPrinter(out, err)
    for event in events:
        printer.tell(event)
    printer.close()
    return out.getvalue(), err.getvalue()


@pytest.mark.req("app.printing.progress")
@pytest.mark.parametrize(("seconds", "line"), [(0.9, "  ok"), (1.0, "  ok (1.0 s)")])
def test_how_long_a_call_took_is_told_when_it_took_long(seconds: float, line: str) -> None:
    _, err = print_text(ToolStarted(call=BASH, at=10.0), ToolEnded(call=BASH, result=ToolResult.of("x"), at=10.0 + seconds))
    assert err == f"bash  make test\n{line}\n"


@pytest.mark.req("app.printing.text")
def test_what_is_said_again_begins_on_a_line_of_its_own() -> None:
    again = Retrying(attempt=2, most=3, wait=0.5, error="overloaded")
    out, err = print_text(Text(text="half of", index=0), again, Text(text="half of it", index=0))
    assert (out, err) == ("half of\nhalf of it\n", "attempt 2 of 3 in 0.5 s: overloaded\n")

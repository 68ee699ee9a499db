"""Who is asked on a terminal: a real one, which belongs to a shell that has the run in its foreground."""

from __future__ import annotations

import asyncio
import fcntl
import math
import multiprocessing
import os
import pty
import re
import select
import signal
import sys
import termios
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import pytest
import uvloop

from serai.cli import line_surface
from serai.cli.line_surface import LineSurface, Terminal
from serai.cli.run_output import TextPrinter
from serai.limits import Limits
from serai.model.approvals import Allow, Answer, Approval, Decision, Deny, Question, QuestionItem, QuestionOption
from serai.model.events import Text
from serai.model.tools import ToolCall
from serai.policy import Approver, CallContext, DecisionStore, Policy
from serai.policy.rules import Rules

pytestmark = pytest.mark.loops

PATIENCE = 30.0  # seconds
PROMPT = "May it run? [y]es / [N]o / [s]top the turn: "
ANSWER = "Your answer (Enter dismisses it): "
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}

# Forks from a process that has imported all this and nothing else, for each terminal.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload([__name__])


def build_approval(id: str = "1", tool: str = "bash", **arguments: Any) -> Approval:
    return Approval(id=id, agent="resident", call=ToolCall(tool, arguments or {"command": "make test"}, id=id))


@dataclass(frozen=True, slots=True)
class Play:
    """What the run does: ask all of these at once. `folder`: through an approver that writes there."""

    requests: tuple[Approval | Question, ...]
    loop: str
    env: dict[str, str] = field(default_factory=dict)
    folder: str = ""
    says: str = ""  # on stdout, while it asks
    remember: int = 1  # days
    withdraws: int | None = None  # so many of the first when it is interrupted; None: all
    moment: float = math.inf  # after something was withdrawn, in seconds; inf: until it is ordered to go on


# -- in other processes -----------------------------------------------------------------------------------------------------------


def run_shell(path: str, play: Play, orders: Connection, said: Connection) -> None:
    """Has the terminal as its own, and puts the run into the foreground or the background as it is told."""
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    terminal = os.open(path, os.O_RDWR)
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})  # for which the run waits
    job = os.fork()
    if not job:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        run(play, orders, said, terminal)
        os._exit(0)
    with suppress(OSError):
        os.setpgid(job, job)
    os.tcsetpgrp(terminal, job)
    said.send("ready")
    with suppress(EOFError):
        while True:
            match orders.recv():
                case "background":
                    os.tcsetpgrp(terminal, os.getpgrp())
                    said.send("done")
                case "foreground":
                    os.tcsetpgrp(terminal, job)
                    said.send("done")
                case "read":
                    said.send(os.read(terminal, 4096))
                case "interrupt":
                    os.kill(job, signal.SIGUSR1)
                case "go":
                    os.kill(job, signal.SIGUSR2)
    with suppress(ProcessLookupError):
        os.kill(job, signal.SIGKILL)
    os.waitpid(job, 0)


def run(play: Play, orders: Connection, said: Connection, terminal: int) -> None:
    orders.close()
    os.environ.update({"TERM": "dumb"} | play.env)
    signal.sigwait({signal.SIGUSR2})
    os.dup2(terminal, 1)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    with asyncio.Runner(loop_factory=LOOPS[play.loop]) as runner:
        said.send(runner.run(ask_at_terminal(play)))
    said.close()


async def sleep_until(seconds: float, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
    """Without an end by the clock, a test has typed before the end however slow it is."""
    await (asyncio.to_thread(signal.sigwait, {signal.SIGUSR2}) if seconds == math.inf else sleep(seconds))


async def ask_at_terminal(play: Play) -> list[tuple[bool, Decision | None]]:
    """Whether somebody could be asked, and what they said; None: it was withdrawn."""
    decisions = DecisionStore(os.path.join(play.folder, "policy.db")) if play.folder else None
    printer = TextPrinter(sys.stdout, sys.stdout)
    limits = Limits(remember=play.remember)
    line_surface._MOMENT = play.moment
    pytest.MonkeyPatch().setattr(asyncio, "sleep", sleep_until)
    surface = LineSurface(Terminal.open(), printer, decisions=decisions, limits=lambda: limits)
    approver = Approver(Policy(Rules(), memory=decisions), surface, decisions=decisions, limits=limits)
    situation = CallContext(cwd=play.folder or "/", session="s1", agent="resident")

    async def one(request: Approval | Question) -> tuple[bool, Decision | None]:
        interactive = surface.interactive
        try:
            if decisions is not None and isinstance(request, Approval):
                return interactive, (await approver.decide(request, situation)).decision
            return interactive, await surface.ask(request)
        except asyncio.CancelledError:
            return interactive, None

    tasks = [asyncio.create_task(one(request)) for request in play.requests]
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: [task.cancel() for task in tasks[: play.withdraws]])
    await asyncio.sleep(0)
    if play.says:
        surface.tell(Text(text=play.says))
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        await approver.close()
        surface.close()
        printer.close()
        if decisions is not None:
            decisions.close()


# -- here -------------------------------------------------------------------------------------------------------------------------


class Screen:
    """A terminal with somebody before it."""

    def __init__(self, play: Play, columns: int) -> None:
        self.ours, self.theirs = pty.openpty()
        termios.tcsetwinsize(self.ours, (30, columns))
        self.before = termios.tcgetattr(self.theirs)
        self.orders, orders = processes.Pipe()
        said, self.said = processes.Pipe()
        self.seen = b""
        self.all = b""
        args = (os.ttyname(self.theirs), play, orders, said)
        self.shell = processes.Process(target=run_shell, args=args, daemon=True)
        self.shell.start()
        orders.close()
        said.close()
        assert self.heard() == "ready"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.orders.close()
        self.shell.join(PATIENCE)
        self.shell.kill()
        self.shell.join()
        self.shell.close()
        self.said.close()
        self.hang_up()
        os.close(self.theirs)

    def order(self, what: str) -> None:
        self.orders.send(what)

    def heard(self) -> Any:
        assert self.said.poll(PATIENCE), f"nothing is said: {self.all!r}"
        return self.said.recv()

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def expect(self, text: str) -> str:
        """Read until it shows this; all that came up to there since the last time."""
        while text.encode() not in self.seen:
            assert select.select([self.ours], [], [], PATIENCE)[0], f"{text!r} does not come: {self.seen!r}"
            self.seen += (data := os.read(self.ours, 65536))
            self.all += data
        before, found, self.seen = self.seen.partition(text.encode())
        return (before + found).decode().replace("\r\n", "\n")

    def hang_up(self) -> None:
        if self.ours >= 0:
            os.close(self.ours)
            self.ours = -1

    def decisions(self) -> list[Decision | None]:
        told: list[tuple[bool, Decision | None]] = self.heard()
        return [decision for _, decision in told]

    def is_restored(self) -> bool:
        return termios.tcgetattr(self.theirs) == self.before


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def open_screen(loop: str, *requests: Approval | Question, columns: int = 100, go: bool = True, **more: Any) -> Screen:
    made = Screen(Play(requests, loop, **more), columns)
    if go:
        made.order("go")
    return made


@pytest.mark.req("app.line.no")
@pytest.mark.parametrize(
    ("typed", "decision"),
    [
        ("y\n", Allow()),
        ("YES\n", Allow()),
        ("\n", Deny("Enter alone is a no")),
        ("  \n", Deny("Enter alone is a no")),
        ("n\n", Deny("the person said no")),
        ("n because it is late\n", Deny("it is late")),
        ("no, not today\n", Deny("not today")),
        ("s\n", Deny("the person said no and stopped the turn", interrupt=True)),
        ("s enough\n", Deny("enough", interrupt=True)),
        ("\x04", Deny("the input was ended without an answer")),
        ("y\x04\x04", Deny("the input was ended without an answer")),
    ],
)
def test_only_a_clear_yes_is_one(loop: str, typed: str, decision: Decision) -> None:
    with open_screen(loop, build_approval()) as terminal:
        shown = terminal.expect(PROMPT)
        assert "\nbash, asked by resident\n  command | make test\n" in shown
        terminal.type(typed)
        assert terminal.decisions() == [decision]
        assert terminal.is_restored()


@pytest.mark.req("app.line.no")
def test_what_is_not_understood_is_asked_again_and_the_third_time_it_is_a_no(loop: str) -> None:
    with open_screen(loop, build_approval()) as terminal:
        for typed in ("what\n", "y please\n", "a\n"):  # nothing can be remembered here
            terminal.expect(PROMPT)
            terminal.type(typed)
            terminal.expect("That is no answer.")
        assert terminal.decisions() == [Deny("3 answers were not understood")]


@pytest.mark.req("app.line.typed-ahead")
def test_what_was_typed_before_the_question_approves_nothing(loop: str) -> None:
    with open_screen(loop, build_approval(), go=False) as terminal:
        terminal.type("y\ny")
        terminal.expect("y\r\ny")  # it is there: the terminal has echoed it
        terminal.order("go")
        terminal.expect(PROMPT)
        terminal.type("\n")
        assert terminal.decisions() == [Deny("Enter alone is a no")]


@pytest.mark.req("app.line.typed-ahead")
def test_a_pasted_row_of_answers_answers_one_question(loop: str) -> None:
    with open_screen(loop, build_approval("1"), build_approval("2")) as terminal:
        terminal.expect(PROMPT)
        terminal.type("y\ny\ny\n")
        terminal.expect(PROMPT)
        terminal.type("n\n")
        assert terminal.decisions() == [Allow(), Deny("the person said no")]


@pytest.mark.req("app.line.in-turn")
def test_several_are_asked_one_after_the_other_in_their_order(loop: str) -> None:
    requests = [build_approval(str(number), command=f"make {number}") for number in range(4)]
    with open_screen(loop, *requests) as terminal:
        for number in range(4):
            shown = terminal.expect(PROMPT)
            assert re.findall(r"make \d", shown) == [f"make {number}"]
            terminal.type("y\n" if number % 2 else "n\n")
        assert terminal.decisions() == [Deny("the person said no"), Allow()] * 2


@pytest.mark.req("app.line.in-turn")
def test_nothing_else_is_shown_while_something_is_asked(loop: str) -> None:
    with open_screen(loop, build_approval(), says="in between") as terminal:
        assert "in between" not in terminal.expect(PROMPT)
        terminal.type("y\n")
        assert "in between" in terminal.expect("in between\r\n")
        assert terminal.decisions() == [Allow()]


@pytest.mark.req("app.line.in-turn")
def test_what_is_withdrawn_says_so_and_takes_what_was_typed_along(loop: str) -> None:
    with open_screen(loop, build_approval()) as terminal:
        terminal.expect(PROMPT)
        terminal.type("y")
        terminal.expect("y")
        terminal.order("interrupt")
        terminal.expect("withdrawn: nobody waits for the answer any more\r\n")
        assert terminal.decisions() == [None]
        assert terminal.is_restored()
        terminal.order("background")
        assert terminal.heard() == "done"
        terminal.order("read")
        terminal.type("next\n")
        assert terminal.heard() == b"next\n"


DIALOG = Question(
    id="d", agent="fake:fun", items=(QuestionItem("Shall I tell a joke?", choices=(QuestionOption("y"), QuestionOption("n"))),)
)


@pytest.mark.req("app.line.typed-ahead")
def test_what_was_meant_for_a_question_that_is_withdrawn_approves_nothing(loop: str) -> None:
    with open_screen(loop, DIALOG, build_approval(), withdraws=1) as terminal:
        terminal.expect(ANSWER)
        terminal.order("interrupt")
        terminal.expect("withdrawn: nobody waits for the answer any more\r\n")
        terminal.expect(PROMPT)
        terminal.type("y\n")  # nobody is so quick
        terminal.expect("y\r\n")  # it is there: the terminal has echoed it
        terminal.order("go")
        terminal.expect(PROMPT)
        terminal.type("n\n")
        assert terminal.decisions() == [None, Deny("the person said no")]


@pytest.mark.req("app.line.typed-ahead")
def test_a_moment_after_a_question_was_withdrawn_the_next_is_answered_as_always(loop: str) -> None:
    with open_screen(loop, DIALOG, build_approval("1"), build_approval("2"), withdraws=1, moment=0.01) as terminal:
        terminal.expect(ANSWER)
        terminal.order("interrupt")
        terminal.expect(PROMPT)
        terminal.expect(f"\r\n{PROMPT}")
        terminal.type("y\n")
        assert terminal.expect(PROMPT).count("May it run?") == 1
        terminal.type("y\n")
        assert terminal.decisions() == [None, Allow(), Allow()]


# -- what is shown ----------------------------------------------------------------------------------------------------------------

FAKE = (
    "make test\n\nread, asked by resident\n  path | x\r\x1b[2J\x1b[Hread, asked by resident\n"
    + PROMPT
    + "\u202e\u200b\x9b2J"
    + "z" * 300
)


@pytest.mark.req("app.line.shown")
@pytest.mark.parametrize("columns", [40, 100])
def test_what_is_asked_for_cannot_be_taken_for_the_question(loop: str, columns: int) -> None:
    with open_screen(loop, build_approval(command=FAKE, **{FAKE: FAKE}), columns=columns, env={"COLUMNS": "400"}) as terminal:
        shown = terminal.expect(f"\n{PROMPT}".replace("\n", "\r\n"))
        terminal.type("n\n")
        head, *rows, last = shown.strip("\n").split("\n")
        assert (head, last) == ("bash, asked by resident", PROMPT)
        assert [row for row in rows if not row.startswith("  ") or len(row) >= columns] == []
        assert [
            row
            for row in rows
            if not re.match(
                r"  (command \|| +\||\"|the next is called:| +:|… [0-9,]+ characters left out …|not all of it is shown;)", row
            )
        ] == []
        assert shown.replace("\n", "").isprintable()
        assert terminal.decisions() == [Deny("the person said no")]


@pytest.mark.req("app.line.shown")
def test_a_very_long_argument_is_shown_by_both_ends_and_where_to_see_all_of_it(loop: str, tmp_path: Path) -> None:
    content = "the beginning" + "\n" * 400_000 + "\x1b" * 600_000 + "the end"
    with open_screen(loop, build_approval(tool="write", path="x", content=content), folder=str(tmp_path)) as terminal:
        shown = terminal.expect("[a]lways, as said: ")
        assert "content | the beginning\n" in shown
        assert "the end\n" in shown
        [left] = re.findall(r"… ([0-9,]+) characters left out …", shown)
        assert 950_000 < int(left.replace(",", "")) < len(content)
        assert len(shown.splitlines()) < 250
        with closing(DecisionStore(str(tmp_path / "policy.db"))) as kept:
            [one] = kept.list_pending()
        assert f"serai policy pending {one.id}\n" in shown
        terminal.type("n\n")
        assert terminal.decisions() == [Deny("the person said no")]


@pytest.mark.req("app.line.shown")
def test_who_asks_why_and_what_is_in_the_way_are_told(loop: str) -> None:
    call = ToolCall("read", {"path": "../x", "lines": [1, 2]}, id="1", asker="zot:weather")
    request = Approval(id="1", agent="claude", lane="sub", session="s1", call=call, reason="because\x07", blocked_path="/srv/x")
    other = Approval(id="2", agent="claude", session="s2", call=call)
    with open_screen(loop, request, other) as terminal:
        shown = terminal.expect(PROMPT)
        assert "read, asked by zot:weather through claude, sub-agent sub\n" in shown
        assert "  path | ../x\n  lines | [1,2]\n" in shown
        assert "  the path in the way: /srv/x\n  asked because: because\\x07\n" in shown
        terminal.type("n\n")
        assert "read, asked by zot:weather through claude, session s2\n" in terminal.expect(PROMPT)
        terminal.type("n\n")
        terminal.decisions()


@pytest.mark.req("app.line.colors")
@pytest.mark.parametrize(("env", "bold"), [({"TERM": "xterm"}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colours_are_heeded(loop: str, env: dict[str, str], bold: bool) -> None:
    with open_screen(loop, build_approval(), env={"TERM": "xterm", "NO_COLOR": ""} | env) as terminal:
        assert ("\x1b[1mbash, asked by" in terminal.expect(PROMPT)) == bold
        terminal.type("\n")
        terminal.decisions()


# -- what is remembered -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("app.line.always")
def test_always_remembers_what_was_said_and_nothing_else(loop: str, tmp_path: Path) -> None:
    with open_screen(loop, build_approval(), folder=str(tmp_path)) as terminal:
        shown = terminal.expect("/ [a]lways, as said: ").replace("\n    :+", "")
        terminal.type("a\n")
        assert terminal.decisions() == [Allow(remember="project")]
    with closing(DecisionStore(str(tmp_path / "policy.db"))) as kept:
        [one] = kept.list_decisions()
    folder = os.path.realpath(tmp_path)
    said = f"  always: who resident, owner built-in, tool bash, command make test, cwd {folder}; in {folder}, until "
    assert said in shown, shown
    assert (one.scope, one.key, one.rule.command, one.rule.cwd) == ("project", folder, ("make test",), (folder,))


@pytest.mark.req("app.line.always")
def test_always_is_kept_for_as_long_as_was_said(loop: str, tmp_path: Path) -> None:
    with open_screen(loop, build_approval(), folder=str(tmp_path), remember=365) as terminal:
        shown = terminal.expect("/ [a]lways, as said: ").replace("\n    :+", "")
        terminal.type("a\n")
        assert terminal.decisions() == [Allow(remember="project")]
    with closing(DecisionStore(str(tmp_path / "policy.db"))) as kept:
        [one] = kept.list_decisions()
    said = re.search(r"until (\d{4}-\d\d-\d\d) ", shown)
    assert said is not None
    assert one.expires is not None
    until = datetime.fromtimestamp(one.expires).astimezone().date()
    assert abs(until - date.fromisoformat(said[1])) <= timedelta(days=1)  # it may be midnight


@pytest.mark.req("app.line.always")
@pytest.mark.parametrize("what", ["no_always", "needs_person"])
def test_always_is_not_offered_where_it_would_not_hold(loop: str, tmp_path: Path, what: str) -> None:
    flag: dict[str, Any] = {what: True}
    request = Approval(id="1", agent="resident", call=ToolCall("bash", {"command": "make"}), **flag)
    with open_screen(loop, request, folder=str(tmp_path)) as terminal:
        assert "  always: " not in terminal.expect(PROMPT)
        terminal.type("a\n")
        terminal.expect(f"That is no answer. Type y, n, n and why, s; Enter alone is a no.\r\n{PROMPT}")
        terminal.type("\x04")
        assert terminal.decisions() == [Deny("the input was ended without an answer")]


# -- questions --------------------------------------------------------------------------------------------------------------------

COLOR = QuestionItem("Which colour?", "Colour", (QuestionOption("red"), QuestionOption("blue", "like the sky")))
NAME = QuestionItem("Which name?\n" + ANSWER)


@pytest.mark.req("app.line.question")
def test_a_question_is_asked_part_by_part(loop: str) -> None:
    with open_screen(loop, Question(id="1", agent="claude", items=(COLOR, NAME))) as terminal:
        shown = terminal.expect(ANSWER)
        assert "a question (1 of 2), asked by claude\n  it asks | [Colour] Which colour?\n" in shown
        assert "| 1. red\n" in shown
        terminal.type("2\n")
        shown = terminal.expect(f"\r\n{ANSWER}")
        assert f"| {ANSWER}" in shown
        terminal.type("Zoë, or not\n")
        assert terminal.decisions() == [Answer({COLOR.text: "blue", NAME.text: "Zoë, or not"})]


@pytest.mark.req("app.line.question")
@pytest.mark.parametrize(("typed", "decision"), [("\n", Answer({})), ("\x04", Deny("the input was ended without an answer"))])
def test_a_question_without_an_answer_is_dismissed(loop: str, typed: str, decision: Decision) -> None:
    with open_screen(loop, Question(id="1", items=(COLOR, NAME))) as terminal:
        terminal.expect(ANSWER)
        terminal.type(typed)
        assert terminal.decisions() == [decision]


# -- without a person -------------------------------------------------------------------------------------------------------------


@pytest.mark.req("app.line.background")
def test_in_the_background_nobody_is_asked_and_nothing_is_stopped(loop: str) -> None:
    with open_screen(loop, build_approval(), go=False) as terminal:
        terminal.order("background")
        assert terminal.heard() == "done"
        terminal.order("go")
        assert terminal.heard() == [(False, Deny("the run is in the background, where nobody can be asked"))]


@pytest.mark.req("app.line.background")
def test_what_is_typed_to_the_shell_meanwhile_is_no_answer(loop: str) -> None:
    with open_screen(loop, build_approval()) as terminal:
        terminal.expect(PROMPT)
        terminal.order("background")
        assert terminal.heard() == "done"
        terminal.type("y\n")
        terminal.expect("y\r\n")
        terminal.order("read")
        assert terminal.heard() == b"y\n"
        terminal.order("foreground")
        assert terminal.heard() == "done"
        terminal.type("n\n")
        assert terminal.decisions() == [Deny("the person said no")]


@pytest.mark.req("app.line.no")
def test_a_terminal_that_hangs_up_is_a_no_also_to_what_comes_after(loop: str) -> None:
    with open_screen(loop, build_approval("1"), build_approval("2")) as terminal:
        terminal.expect(PROMPT)
        terminal.hang_up()
        assert terminal.decisions() == [Deny("the terminal is gone")] * 2


@pytest.mark.req("app.line.no")
async def test_without_a_terminal_or_once_it_is_closed_the_answer_is_no(tmp_path: Path) -> None:
    assert Terminal.open(str(tmp_path / "none")) is None
    ours, theirs = pty.openpty()  # nobody's controlling terminal
    try:
        terminal = Terminal(os.dup(theirs))
        for surface in (LineSurface(terminal, Quiet()), LineSurface(None, Quiet())):
            assert not surface.interactive
            assert await surface.ask(build_approval()) == Deny("the terminal is gone")
            surface.close()
            surface.close()
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.req("app.line.no")
async def test_a_terminal_that_is_closed_under_a_question_ends_it() -> None:
    ours, theirs = pty.openpty()
    os.set_blocking(theirs, False)
    try:
        terminal = Terminal(os.dup(theirs))
        waiting = asyncio.create_task(terminal.ask("so? "))
        await asyncio.get_running_loop().run_in_executor(None, partial(os.read, ours, 100))
        terminal.close()
        with pytest.raises(Exception, match="the terminal is gone"):
            await waiting
    finally:
        os.close(ours)
        os.close(theirs)


class Quiet:
    """Prints nothing."""

    def tell(self, event: object) -> None: ...

    def act(self, action: object) -> None: ...

    def hold(self) -> None: ...

    def release(self) -> None: ...

    behind = False

    async def room(self) -> None: ...

"""The surface of `serai run`: a person at a terminal, asked one thing at a time. Nothing but a clear yes is one (design rule 7).

They are asked on the controlling terminal, whatever stdin and stdout are, and only while they type to us: in the background of a
shell nobody is asked. What they typed before they saw a question is no answer to it: where one was withdrawn, what they type next
may still be meant for that one, and is forgotten for a moment. The modes of the terminal stay as they are.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import termios
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Final

import click

from serai.cli import approval_text as words
from serai.cli.run_output import RunPrinter, wants_color
from serai.errors import NotWritten
from serai.limits import KIB, Limits
from serai.model import approvals
from serai.model.actions import Action
from serai.model.events import Event
from serai.plain_text import escape_surrogates

if TYPE_CHECKING:
    from serai.policy import DecisionStore, PendingApproval, RememberedDecision

_TRIES = 3
_LOOK = 0.2  # seconds between two looks whether we are in the foreground again
_MOMENT = 1.0  # seconds: so long after a question was withdrawn nobody has seen yet that the next one is another
_READ = 4 * KIB
_LONGEST = 64 * KIB  # characters of an answer; a terminal in its usual mode gives less
_WIDE = 80  # columns of a terminal that does not know

_BACKGROUND: Final = "the run is in the background, where nobody can be asked"
_GONE: Final = "the terminal is gone"
_ENDED: Final = "the input was ended without an answer"
_ENTER: Final = "Enter alone is a no"
_SAID_NO: Final = "the person said no"
_STOPPED: Final = "the person said no and stopped the turn"
_NOT_UNDERSTOOD: Final = f"{_TRIES} answers were not understood"
_STOP: Final = ("s", "stop")
_REPLY = re.compile(r"\s*(\w+)(?:[\s,:;]+(.*?))?\s*", re.DOTALL)
_BECAUSE = re.compile(r"because\b\s*", re.IGNORECASE)


class _NoAnswer(Exception):
    """There will be none; the text says why."""


class Terminal:
    """A terminal to ask on. The descriptor is ours alone: that it does not block is nobody else's affair."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._wake: Callable[[], None] | None = None  # whoever waits for it
        self._withdrawn = False  # the last question, while somebody may have been answering it

    @classmethod
    def open(cls, path: str = "/dev/tty") -> Terminal | None:
        """The controlling terminal; None where there is none, as in a service."""
        try:
            return cls(os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK))
        except OSError:
            return None

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if self._wake is not None:
            self._wake()
        if descriptor >= 0:
            os.close(descriptor)

    @property
    def foreground(self) -> bool | None:
        """Whether what is typed there is for us; None when the terminal is gone."""
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:
            return None

    @property
    def columns(self) -> int:
        try:
            return os.get_terminal_size(self._descriptor).columns or _WIDE
        except OSError:
            return _WIDE

    async def ask(self, prompt: str) -> str:
        """The line that is typed once the prompt is there; what was typed before is forgotten."""
        await self._write_prompt(prompt)
        if self._withdrawn:
            await asyncio.sleep(_MOMENT)
            await self._write_prompt(f"\n{prompt}")  # also where nothing was typed: a terminal does not tell of half a line
            self._withdrawn = False
        return await self._read_line()

    async def _write_prompt(self, text: str) -> None:
        self.discard_input()
        if await self.write(text):  # the terminal was held up, and the prompt not seen, until now
            self.discard_input()

    async def write(self, text: str) -> bool:
        """Show it; whether that had to be waited for."""
        data = memoryview(text.encode(errors="backslashreplace"))
        waited = False
        while data:
            try:
                with _block_stop_signals():
                    data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # Ctrl-S
                waited = True
                await self._wait_until_ready(write=True)
            except OSError:
                raise _NoAnswer(_GONE) from None
        return waited

    def discard_input(self) -> None:
        """What was typed and not read is nobody's answer."""
        if self.foreground:  # else it is for whoever is
            with suppress(termios.error), _block_stop_signals():
                termios.tcflush(self._descriptor, termios.TCIFLUSH)

    def withdraw(self, text: str) -> None:
        """Say so in one line, if that is possible at once."""
        self._withdrawn = True
        self.discard_input()
        with suppress(OSError), _block_stop_signals():
            os.write(self._descriptor, f"\n{text}\n".encode())

    async def _read_line(self) -> str:
        """Up to Enter, and no further: what follows in the same breath is no answer to anything."""
        typed = b""
        while len(typed) < _LONGEST:
            await self._wait_until_ready()
            try:
                with _block_stop_signals():
                    data = os.read(self._descriptor, _READ)
            except BlockingIOError:  # somebody else has read it
                continue
            except OSError:
                if self.foreground is None:
                    raise _NoAnswer(_GONE) from None
                await asyncio.sleep(_LOOK)  # we are in the background, or were: what is typed there is for the shell
                continue
            if not data:
                raise _NoAnswer(await self._explain_end())
            typed += data.replace(b"\r", b"\n")  # a terminal that another program left in a mode of its own
            if b"\n" in data or b"\r" in data:
                break
        return typed.partition(b"\n")[0].decode(errors="backslashreplace")

    async def _explain_end(self) -> str:
        """Why there is no more: Ctrl-D, or the terminal is not there any more."""
        if self.foreground is None:
            return _GONE
        await self.write("\n")
        return _ENDED

    async def _wait_until_ready(self, *, write: bool = False) -> None:
        loop, descriptor = asyncio.get_running_loop(), self._descriptor
        if descriptor < 0:
            raise _NoAnswer(_GONE)
        ready = loop.create_future()
        watch, unwatch = (loop.add_writer, loop.remove_writer) if write else (loop.add_reader, loop.remove_reader)

        def wake() -> None:
            unwatch(descriptor)
            self._wake = None
            if not ready.done():
                ready.set_result(None)

        self._wake = wake
        watch(descriptor, wake)
        try:
            await ready
        finally:
            if self._wake is wake:
                wake()


@contextmanager
def _block_stop_signals() -> Iterator[None]:
    """Whoever touches the terminal from the background is stopped, unless these are blocked: then reading fails."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTIN, signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class LineSurface:
    """Asks on the terminal and prints the rest. Whoever asks through it sets the deadline, as the approver does, by cancelling.

    `decisions` is where the approver has written down what it asks: with it the person is told what an answer that is remembered
    would mean, and where to see what is too long for a terminal. Without it nothing is remembered. `limits` are the approver's, by
    the time something is asked.
    """

    def __init__(
        self,
        terminal: Terminal | None,
        printer: RunPrinter,
        *,
        decisions: DecisionStore | None = None,
        limits: Callable[[], Limits] = Limits,
        color: bool | None = None,
    ) -> None:
        self._terminal = terminal
        self._printer = printer
        self._decisions = decisions
        self._limits = limits
        self._color = wants_color() if color is None else color
        self._ask_lock = asyncio.Lock()  # its waiters have their turn in the order in which they came
        self._session = ""
        self._several = False  # sessions

    @property
    def interactive(self) -> bool:
        return self._terminal is not None and self._terminal.foreground is True

    def act(self, action: Action) -> None:
        self._printer.act(action)

    def tell(self, event: Event) -> None:
        if event.session != self._session:
            self._note_session(event.session)
        self._printer.tell(event)

    @property
    def behind(self) -> bool:
        return self._printer.behind

    async def room(self) -> None:
        await self._printer.room()

    def close(self) -> None:
        if self._terminal is not None:
            self._terminal.close()

    def _note_session(self, session: str) -> None:
        if session:
            self._several |= bool(self._session)
            self._session = session

    async def ask(self, request: approvals.Approval | approvals.Question) -> approvals.Decision:
        if request.session != self._session:
            self._note_session(request.session)
        async with self._ask_lock:
            terminal = self._terminal
            if terminal is None or not terminal.foreground:
                return approvals.Deny(_GONE if terminal is None or terminal.foreground is None else _BACKGROUND)
            self._printer.hold()
            try:
                return await (
                    self._ask_approval(terminal, request)
                    if isinstance(request, approvals.Approval)
                    else self._ask_question(terminal, request)
                )
            except _NoAnswer as none:
                return approvals.Deny(str(none))
            except asyncio.CancelledError:
                terminal.withdraw("  withdrawn: nobody waits for the answer any more")
                raise
            finally:
                self._printer.release()

    # -- approvals ----------------------------------------------------------------------------------------------------------------

    async def _ask_approval(self, terminal: Terminal, request: approvals.Approval) -> approvals.Decision:
        row = self._find_row(request)
        kept = self._preview_remembered(request, row)
        await self._show(terminal, self._render_approval(request, row, kept, terminal.columns))
        always = " / [a]lways, as said" if kept else ""
        prompt = f"May it run? [y]es / [N]o / [s]top the turn{always}: "
        for _ in range(_TRIES):
            if (decision := _parse_decision(await terminal.ask(prompt), remembers=kept is not None)) is not None:
                return decision
            also = ", a" if kept else ""
            await terminal.write(f"  That is no answer. Type y, n, n and why, s{also}; Enter alone is a no.\n")
        return approvals.Deny(_NOT_UNDERSTOOD)

    def _render_approval(
        self, request: approvals.Approval, row: PendingApproval | None, kept: RememberedDecision | None, columns: int
    ) -> Iterator[str]:
        yield from self._render_head(f"{words.quote_name(request.tool, words.TOOL)}, asked by {self._name_asker(request)}", columns)
        cut = yield from words.render_call(request, "ends", columns=columns)
        if row is not None:
            yield from words.fold_line(f"  in {row.situation.cwd}", columns=columns)
        if cut:
            yield from self._render_full_hint(row, columns)
        if kept is not None:
            yield from words.fold_line(f"  always: {words.format_rule(kept.rule)}; {words.format_lifetime(kept)}", columns=columns)

    def _find_row(self, request: approvals.Approval | approvals.Question) -> PendingApproval | None:
        """Where the approver has written it down; an id is the agent's own, so that it alone does not tell which."""
        if self._decisions is None:
            return None
        try:
            rows = [one for one in self._decisions.list_pending() if one.state == "waiting"]
        except NotWritten:
            return None
        found = [one for one in rows if _build_key(one.request) == _build_key(request)]
        return found[-1] if found else None

    def _preview_remembered(self, request: approvals.Approval, row: PendingApproval | None) -> RememberedDecision | None:
        """What would be remembered, as the approver remembers it: it is tried where it is forgotten again."""
        from serai.policy import DecisionStore, remember_decision
        from serai.policy.call_facts import CallFacts
        from serai.policy.suggested_rules import build_rule

        if row is None or request.no_always or request.needs_person:
            return None
        with closing(DecisionStore.in_memory()) as trial:
            rule = build_rule(CallFacts(request.call, row.situation), approvals.Allow())
            return trial.list_decisions()[0] if remember_decision(trial, rule, row.situation, "project", self._limits()) else None

    # -- questions ----------------------------------------------------------------------------------------------------------------

    async def _ask_question(self, terminal: Terminal, request: approvals.Question) -> approvals.Decision:
        """Each part in turn; whoever does not answer one dismisses all."""
        answers = {}
        for number, item in enumerate(request.items, start=1):
            part = f" ({number} of {len(request.items)})" if len(request.items) > 1 else ""
            head = f"a question{part}, asked by {self._name_asker(request)}"
            await self._show(terminal, self._render_part(request, head, approvals.format_questions([item]), terminal.columns))
            answer = approvals.parse_typed_answer(item, escape_surrogates(await terminal.ask("Your answer (Enter dismisses it): ")))
            if answer is None:
                return approvals.Answer({})
            answers[item.text] = answer
        return approvals.Answer(answers)

    def _render_part(self, request: approvals.Question, head: str, text: str, columns: int) -> Iterator[str]:
        yield from self._render_head(head, columns)
        if (yield from words.fold_ends("it asks |", text, columns=columns)):
            yield from self._render_full_hint(self._find_row(request), columns)

    # -- both ---------------------------------------------------------------------------------------------------------------------

    async def _show(self, terminal: Terminal, rows: Iterator[str]) -> None:
        await terminal.write("\n" + "".join(f"{row}\n" for row in rows))

    def _render_head(self, text: str, columns: int) -> Generator[str, None, None]:
        for row in words.fold_line(text, columns=columns):
            yield click.style(row, bold=True) if self._color else row

    def _name_asker(self, request: approvals.Approval | approvals.Question) -> str:
        """Who wants it, through whom, and in which session where there are several."""
        asker = request.call.asker if isinstance(request, approvals.Approval) else request.tool
        who = words.quote_name(asker or request.agent or "somebody")
        if request.agent and asker and asker != request.agent:
            who += f" through {words.quote_name(request.agent)}"
        if request.lane:
            who += f", sub-agent {words.quote_name(request.lane)}"
        return who + (f", session {words.quote_name(request.session)}" if self._several and request.session else "")

    def _render_full_hint(self, row: PendingApproval | None, columns: int) -> Iterator[str]:
        id = f" {row.id}" if row is not None else ""
        yield from words.fold_line(f"  not all of it is shown; in another terminal: serai policy pending{id}", columns=columns)


def _build_key(asked: approvals.Approval | approvals.Question) -> tuple[object, ...]:
    return (asked.id, asked.session, asked.agent, asked.call if isinstance(asked, approvals.Approval) else None)


def _parse_decision(typed: str, *, remembers: bool) -> approvals.Allow | approvals.Deny | None:
    """What a reply says; None when it says nothing. A no may have its reason, a yes stands alone."""
    if not typed.strip():
        return approvals.Deny(_ENTER)
    found = _REPLY.fullmatch(typed)
    if found is None:
        return None
    word, rest = found[1].lower(), escape_surrogates(found[2] or "")
    why = _BECAUSE.sub("", rest, count=1) if _BECAUSE.match(rest) else rest
    if word in _STOP:
        return approvals.Deny(why or _STOPPED, interrupt=True)
    reply = approvals.parse_approval_reply(word)
    if reply == "deny":
        return approvals.Deny(why or _SAID_NO)
    if reply == "allow" and not rest:
        return approvals.Allow()
    return approvals.Allow(remember="project") if reply == "always" and not rest and remembers else None

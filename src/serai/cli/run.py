"""`serai run`: one prompt, done by an agent with the guests of this folder, under the policy, recorded.

A run ends early by a signal, by its time limit, or when the reader of its output has left.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import click

from serai.cli import console
from serai.cli.completion import complete_agents, complete_models, complete_sessions
from serai.cli.options import JSON, PATH, ExitCode, GuestOptions, add_guest_options, run_async
from serai.errors import GuardDown, NotAllowed, Refused, SeraiError
from serai.paths import read_regular_file
from serai.plain_text import escape_text

if TYPE_CHECKING:
    from serai.app.app import App
    from serai.app.assembly import AppOptions
    from serai.cli.run_output import JsonPrinter, TextPrinter
    from serai.model.events import TurnResult
    from serai.model.surface import Surface
    from serai.model.tools import ImageBlock
    from serai.policy import DecisionStore

_FLUSH = 0.2  # seconds for the recording, when all has to end at once
WORDS: Final = {
    signal.SIGINT: "interrupted (Ctrl-C)",
    signal.SIGTERM: "terminated (SIGTERM)",
    signal.SIGHUP: "its terminal is gone (SIGHUP)",
}


class RunStop:
    """Who wants the run to end, and how. The first signal is a polite word, the second one is none."""

    def __init__(self) -> None:
        self.reason = ""
        self.status: ExitCode | None = None
        self.lost = False  # its output takes no more, and that is why it ends
        self.over = asyncio.Event()
        self._signalled = False
        self._cancelled = False
        self._app: App | None = None
        self._main: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, app: App) -> None:
        """It is open: from now on it is asked to end."""
        self._app = app
        if self.status is not None:
            app.quit()

    def request_end(self, reason: str, status: ExitCode) -> None:
        if self.status is None:
            self.reason, self.status = reason, status
        self.over.set()
        if self._app is not None:
            self._app.quit()
        elif self._main is not None and not self._cancelled:  # still being opened
            self._cancelled = True
            self._main.cancel()

    def uncancel(self) -> bool:
        """Whether it was us who cancelled the run, which then is not cancelled any more."""
        if self._cancelled and self._main is not None:
            self._main.uncancel()
        return self._cancelled

    @contextmanager
    def limit_time(self, seconds: float | None) -> Iterator[None]:
        """The run ends when so much time is over; what closing it takes is not counted."""
        if seconds is not None:
            reason = f"it took longer than {seconds:g} s (--timeout)"
            self._timer = asyncio.get_running_loop().call_later(seconds, self.request_end, reason, ExitCode.UNAVAILABLE)
        try:
            yield
        finally:
            self.cancel_timer()

    def cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @contextmanager
    def handle_signals(self) -> Iterator[None]:
        """The first is told to the loop, the second needs none: one that stands still must not keep anybody from ending it.

        A signal that was ignored stays so (`nohup`).
        """
        self._main = asyncio.current_task()
        loop = asyncio.get_running_loop()

        def handle(number: int, _frame: object) -> None:
            which = signal.Signals(number)
            if self._signalled:
                self._die_by_signal(which)
            self._signalled = True
            loop.call_soon_threadsafe(self.request_end, WORDS[which], ExitCode(128 + number))

        before = {number: handler for number in WORDS if (handler := signal.getsignal(number)) is not signal.SIG_IGN}
        for number in before:
            signal.signal(number, handle)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _die_by_signal(self, number: signal.Signals) -> None:
        """At once, by the signal itself, as a shell expects. The watchdog ends what we started, and the session is on disk."""
        if self._app is not None and (recorder := self._app.runtime.recorder) is not None:
            flushing = Thread(target=recorder.flush, daemon=True)  # whom we have interrupted may hold its lock
            flushing.start()
            flushing.join(_FLUSH)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


_MODES = ("manual", "auto", "skip")
_LONGEST = 8 * 1024 * 1024  # bytes of a prompt from stdin; no session keeps a much longer one
_MOST_LOGGED = 100  # lines
_PATIENCE = 1.0  # seconds for a reader, once somebody wants the end
_LONGEST_TIMEOUT = 30 * 86400.0  # seconds; a loop's clock ends somewhere
_IMAGE = 32 * 1024 * 1024  # bytes of an image: no provider takes a longer one
_IMAGES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}
# A turn that is cancelled by nobody at the command line was ended by a guest: it has not done what it was to do.
_STATUS: Final = {"success": ExitCode.OK, "error": ExitCode.ERROR, "denied": ExitCode.REFUSED, "cancelled": ExitCode.ERROR}
_Command = Callable[..., None]
_EPILOG: Final = """\b
Exit status:
  0    it is done
  1    it could not begin: no such agent, model, session or command, bad settings
  2    the command line is wrong
  3    the turn failed: the model, a limit such as --max-turns, a full disk
  4    refused: a guard is down, a guest blocked the turn, you said no and stopped it
  5    --timeout was over
  129  its terminal is gone; 130 after Ctrl-C, 143 after SIGTERM
"""


def _check_not_empty(_context: click.Context, _option: click.Parameter, value: Any) -> Any:
    """An empty value is none: often a variable is not set, and then something else would be done than was meant."""
    if value == "" or (isinstance(value, tuple) and "" in value):
        raise click.BadParameter("it is empty")
    return "" if value is None else value


def _option(*names: str, **more: Any) -> Callable[[_Command], _Command]:
    return click.option(*names, callback=_check_not_empty, **more)


@click.command("run", epilog=_EPILOG)
@click.argument("prompt", nargs=-1)
@add_guest_options
@_option("--agent", metavar="NAME", shell_complete=complete_agents, help="Which agent; the resident by default.")
@_option("--model", metavar="M", shell_complete=complete_models, help="Which model: a name or a part of one.")
@JSON
@click.option("--policy", "policies", type=PATH, multiple=True, metavar="FILE", help="Also the rules of this file; repeatable.")
@_option("--allow", multiple=True, metavar="TOOL[:PATTERN]", help="Also allow this, such as 'bash:git status'; repeatable.")
@click.option("--mode", type=click.Choice(_MODES), default=None, help="What happens to what no rule decides; manual by default.")
@click.option("--continue", "-c", "latest", is_flag=True, help="Go on with the newest session of this folder.")
@_option("--session", metavar="ID", shell_complete=complete_sessions, help="Go on with this session.")
@click.option("--image", "images", type=PATH, multiple=True, metavar="FILE", help="With this image; repeatable.")
@click.option("--max-turns", type=click.IntRange(1), metavar="N", help="At most so many calls of the model.")
@click.option("--timeout", type=float, metavar="S", help="End it after so many seconds.")
@click.option("--verbose", "-v", is_flag=True, help="Also the model's thinking, and what the run took.")
@click.option("--quiet", "-q", is_flag=True, help="Only what the model says, warnings and errors.")
def run_command(prompt: tuple[str, ...], *, options: GuestOptions, **given: Any) -> None:
    """Have an agent do something, with the guests of this place.

    PROMPT is what it shall do, or a command of a guest (/name); - or none at all reads it from stdin. What the agent says is on
    stdout, what happens meanwhile on stderr; you are asked on the terminal, and whatever is no clear yes is a no. Ctrl-C
    interrupts the agent, a second one stops everything at once.
    """
    if given["latest"] and given["session"]:
        raise click.UsageError("--continue and --session exclude each other")
    if given["quiet"] and given["verbose"]:
        raise click.UsageError("--quiet and --verbose exclude each other")
    if (seconds := given["timeout"]) is not None and not 0 < seconds <= _LONGEST_TIMEOUT:
        raise click.UsageError(f"--timeout is a number of seconds from above 0 to {_LONGEST_TIMEOUT:.0f}, not {seconds:g}")
    wanted = RunArguments(options=options, prompt=_prompt(prompt), images=tuple(map(_read_image, given.pop("images"))), given=given)
    run_async(_run(wanted))


@dataclass(frozen=True, slots=True)
class RunArguments:
    """What the command line says."""

    options: GuestOptions
    prompt: str
    images: tuple[ImageBlock, ...]
    given: Mapping[str, Any] = field(repr=False)

    def to_app_options(self, surface: Surface, decisions: DecisionStore) -> AppOptions:
        from serai.app.assembly import LATEST

        given, options = self.given, self.options
        return {
            "cwd": options.cwd,
            "guests": options.guests,
            "installed": options.installed,
            "agent": given["agent"],
            "model": given["model"],
            "policy": given["policies"],
            "allow": given["allow"],
            "mode": given["mode"] or "",
            "session": LATEST if given["latest"] else given["session"],
            "limits": {"steps": given["max_turns"]} if given["max_turns"] else {},
            "command": "serai run",
            "surface": surface,
            "decisions": decisions,
        }


def _prompt(words: tuple[str, ...]) -> str:
    text = " ".join(words)
    if text in ("", "-"):
        if sys.stdin.isatty():
            raise click.UsageError("say what is to be done: serai run PROMPT")
        data = sys.stdin.buffer.read(_LONGEST + 1)
        if len(data) > _LONGEST:
            raise click.UsageError(f"the prompt is longer than {_LONGEST} bytes: put it into a file, and say which")
        text = data.decode(errors="replace")
    if not text.strip():
        raise click.UsageError("the prompt is empty")
    return text


def _read_image(path: str) -> ImageBlock:
    from serai.model.tools import ImageBlock

    mime = _IMAGES.get(os.path.splitext(path)[1].lower())
    if mime is None:
        raise click.UsageError(f"{escape_text(path)}: an image is one of {', '.join(_IMAGES)}")
    try:
        return ImageBlock(read_regular_file(path, _IMAGE), mime)
    except OSError as error:
        raise click.UsageError(f"{escape_text(path)}: {error.strerror}") from None


# -- the run ----------------------------------------------------------------------------------------------------------------------


async def _run(wanted: RunArguments) -> ExitCode:
    ending = RunStop()
    printer = _build_printer(wanted.given, ending)
    with ending.handle_signals(), _collect_log(verbose=wanted.given["verbose"]) as logged:
        outcome = await _run_app(wanted, printer, ending)
        await _print_result(printer, outcome, ending)
    try:
        _print_errors(outcome, logged)
        printer.close()  # which raises what came in the way of writing
    except OSError:
        if ending.status is None or ending.lost:  # else it was ended anyway: a terminal that hangs up takes both
            raise
    if outcome.error is not None and not isinstance(outcome.error, SeraiError):
        raise outcome.error  # a defect: whoever reports it needs to see where
    return outcome.status


@dataclass(slots=True)
class RunOutcome:
    """How the run ended."""

    status: ExitCode
    result: TurnResult
    error: Exception | None = None


async def _run_app(wanted: RunArguments, printer: TextPrinter | JsonPrinter, ending: RunStop) -> RunOutcome:
    from serai.app.app import App
    from serai.cli.line_surface import LineSurface, Terminal
    from serai.limits import Limits
    from serai.policy import DecisionStore

    def limits() -> Limits:
        return Limits() if app is None else app.runtime.limits

    app: App | None = None
    error: Exception | None = None
    result: TurnResult | None = None
    try:
        with (
            closing(DecisionStore.usual()) as decisions,
            closing(LineSurface(Terminal.open(), printer, decisions=decisions, limits=limits)) as surface,
            ending.limit_time(wanted.given["timeout"]),
        ):
            app = App(**wanted.to_app_options(surface, decisions))
            async with app:
                ending.watch(app)
                result = await _submit(app, wanted, ending)
    except asyncio.CancelledError:
        if not ending.uncancel():
            raise
    except Exception as failure:
        error = failure
    return _build_outcome(app, result, error, ending)


async def _run_prompt(app: App, wanted: RunArguments) -> TurnResult | None:
    """The prompt, and what guests have queued behind it meanwhile (spec piglet 6.8)."""
    result = await app.submit(wanted.prompt, images=wanted.images)
    await app.idle()
    return result


async def _submit(app: App, wanted: RunArguments, ending: RunStop) -> TurnResult | None:
    """Done, or ended by somebody: a signal, the time, a guest that quits."""
    work = asyncio.ensure_future(_run_prompt(app, wanted))
    quitting = asyncio.ensure_future(app.quitting.wait())
    try:
        await asyncio.wait([work, quitting], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            if app.session.state == "running":
                await app.abort(ending.reason or "a guest ended the run")
            elif ending.status is not None:
                work.cancel()  # a command, or a guest that looks at the prompt: nothing has begun
            await asyncio.wait([work], timeout=app.runtime.limits.interrupt)
        return work.result() if work.done() and not work.cancelled() else None
    finally:
        ending.cancel_timer()
        for task in (work, quitting):
            task.cancel()
        await asyncio.gather(work, quitting, return_exceptions=True)


def _build_outcome(app: App | None, result: TurnResult | None, error: Exception | None, ending: RunStop) -> RunOutcome:
    """Which status, and what is said of it."""
    import msgspec

    from serai.model.events import TurnResult

    turn = result or (app.last if app is not None else None)
    result = turn or TurnResult(status="success")
    status = _STATUS[result.status]
    if error is not None:
        refused = isinstance(error, GuardDown | NotAllowed)
        began = turn is not None or isinstance(error, Refused)  # which is what a command of a guest said
        status = ExitCode.REFUSED if refused else ExitCode.ERROR if began else ExitCode.FAILED
        said = str(error) if isinstance(error, SeraiError) else f"{type(error).__name__}: {error}"
        result = msgspec.structs.replace(result, status="denied" if refused else "error", error=said)
    if ending.status is not None:
        status, error = ending.status, None
        result = msgspec.structs.replace(result, status="cancelled", error=ending.reason)
    return RunOutcome(status, msgspec.structs.replace(result, session=_find_session_id(app)), error)


def _find_session_id(app: App | None) -> str:
    """Its id, if there is anything to go on with: one in which nothing was said is not kept."""
    try:
        if app is not None and (sessions := app.runtime.sessions) is not None:
            sessions.find(app.session.id)
            return app.session.id
    except SeraiError:  # nothing was opened, or nothing is left
        pass
    return ""


def _build_printer(given: Mapping[str, Any], ending: RunStop) -> TextPrinter | JsonPrinter:
    from serai.cli.run_output import JsonPrinter, TextPrinter

    def handle_lost(error: OSError) -> None:
        if error.errno == errno.EIO:  # its terminal is gone
            ending.request_end(WORDS[signal.SIGHUP], ExitCode.HUNG_UP)
            return
        ending.lost = ending.status is None  # whoever read has read enough; a full disk is told by `close`
        ending.request_end("", ExitCode.FAILED)

    if given["as_json"]:
        return JsonPrinter(sys.stdout, lost=handle_lost)
    return TextPrinter(sys.stdout, sys.stderr, quiet=given["quiet"], verbose=given["verbose"], lost=handle_lost)


@contextmanager
def _collect_log(*, verbose: bool) -> Iterator[list[str]]:
    """What goes wrong beside the run itself, as it is logged; with where it did, if `verbose`."""
    import logging

    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if len(lines) < _MOST_LOGGED and record.name != "serai.guests":  # theirs are in their own logs
                lines.extend((self.format(record) if verbose else record.getMessage()).splitlines())

    handler, logger = Handler(logging.WARNING), logging.getLogger("serai")
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


async def _print_result(printer: TextPrinter | JsonPrinter, outcome: RunOutcome, ending: RunStop) -> None:
    """The result, and until whoever reads has taken all of it: they may take their time, unless somebody wants the end."""
    from serai.cli.run_output import JsonPrinter

    if isinstance(printer, JsonPrinter):
        hint = outcome.error.hint if isinstance(outcome.error, SeraiError) else ""
        printer.write_result(outcome.result, **({"hint": hint} if hint else {}))
    taken, over = asyncio.ensure_future(printer.drain()), asyncio.ensure_future(ending.over.wait())
    await asyncio.wait([taken, over], return_when=asyncio.FIRST_COMPLETED)
    if not taken.done():
        await asyncio.wait([taken], timeout=_PATIENCE)
    if not taken.done():
        printer.discard()
    for task in (taken, over):
        task.cancel()
    if outcome.status is ExitCode.OK and ending.status is not None:  # ended while it was being read
        outcome.status = ending.status


def _print_errors(outcome: RunOutcome, logged: list[str]) -> None:
    """On stderr: what went wrong beside the run, then the run's own error."""
    result, error = outcome.result, outcome.error
    for line in logged:
        if not result.error or result.error not in line:  # that is told below
            console.err(line)
    if outcome.status is not ExitCode.OK and result.error:
        console.err(f"serai: {result.error}")
        for line in error.hint.splitlines() if isinstance(error, SeraiError) else ():
            console.err(line)

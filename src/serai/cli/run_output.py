"""The output of a run: the model's text on stdout and what happens meanwhile on stderr, or every event as a line of JSON.

Printing must neither raise nor be slow: text goes through a small buffer, to a terminal at once, else in larger pieces, and what
cannot be written is kept as an error for the end. A pipe that nobody reads and a terminal that is stopped (Ctrl-S) must not block
guests, time-outs and Ctrl-C. So both are opened once more, without blocking, which affects no other holder; what they do not take
waits, and the writer is told to wait (`behind`, `room`).
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import stat
from collections.abc import Callable
from typing import Any, Final, Protocol, TextIO

import click
import msgspec

from serai.cli import approval_text as words
from serai.cli.console import dump_json, escape_json, render_notice
from serai.limits import KIB
from serai.model import events
from serai.model.actions import Action, Display, Insert, NoAction, Notice
from serai.model.tools import ToolCall, ToolResult
from serai.plain_text import escape_line
from serai.record import secret_patterns

_ROOM = 4 * KIB  # characters that wait to be written together
_BEHIND = 256 * KIB  # bytes that wait for whoever reads: then the agent does too
_PIECE = 64 * KIB  # bytes of one write

OutputLost = Callable[[OSError], None]


class OutputStream:
    """One of stdout and stderr. `lost` is told once when it takes no more."""

    def __init__(self, file: TextIO, lost: OutputLost | None = None) -> None:
        self.tty = file.isatty()
        self.failed: OSError | None = None
        self._file = file
        self._lost = lost
        self._texts: list[str] = []
        self._size = 0
        self._held = False
        self._ticking = False
        self._descriptor = _reopen(file)  # -1: it is written as it is, and may block
        self._bytes = bytearray()  # what the descriptor has not taken yet
        self._loop: asyncio.AbstractEventLoop | None = None  # that tells us when it takes more
        self._waiters: list[asyncio.Future[None]] = []

    def write(self, text: str) -> None:
        self._texts.append(text)
        self._size += len(text)
        if self.tty or self._size >= _ROOM or "\n" in text:
            self.flush()
        elif not self._ticking:
            self._flush_soon()

    def flush(self) -> None:
        if self._held or not self._texts:
            return
        text = "".join(self._texts)
        self._texts.clear()
        self._size = 0
        if self.failed is not None:
            return
        try:
            if self._descriptor < 0:
                self._file.write(text)
                self._file.flush()
            else:
                self._bytes += text.encode(self._file.encoding or "utf-8", self._file.errors or "strict")
                self._push()
        except OSError as error:  # whoever read has read enough, or the disk is full
            self._fail(error)

    def hold(self) -> None:
        """A terminal gets nothing for now."""
        self.flush()
        self._held = self.tty

    def release(self) -> None:
        self._held = False
        self.flush()

    # -- who is slow

    @property
    def behind(self) -> bool:
        return len(self._bytes) > _BEHIND

    async def room(self) -> None:
        """Until it has taken most of it."""
        while self.behind and self.failed is None:
            await self._wait()

    async def drain(self) -> None:
        """Until it has taken all of it."""
        self.flush()
        while self._bytes and self.failed is None:
            await self._wait()

    def discard(self) -> None:
        """Nobody waits any longer for what it has not taken."""
        self._texts.clear()
        self._bytes.clear()

    def close(self) -> None:
        """What it has not taken by now is waited for, by everybody."""
        self._unwatch()
        while self._bytes and self.failed is None:
            select.select([], [self._descriptor], [])
            self._push()
            self._unwatch()
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    # -- inside

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def _push(self) -> None:
        try:
            while self._bytes:
                with memoryview(self._bytes) as view:
                    written = os.write(self._descriptor, view[:_PIECE])
                del self._bytes[:written]
        except BlockingIOError:
            self._watch()
        except OSError as error:
            self._fail(error)
        else:
            self._unwatch()
        if not self.behind:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _watch(self) -> None:
        if self._loop is not None:
            return
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:  # nobody else waits for us
            select.select([], [self._descriptor], [])
            self._push()
        else:
            self._loop.add_writer(self._descriptor, self._push)

    def _unwatch(self) -> None:
        if self._loop is not None:
            self._loop.remove_writer(self._descriptor)
            self._loop = None

    def _fail(self, error: OSError) -> None:
        self._unwatch()
        self._bytes.clear()
        if self.failed is None:
            self.failed = error
            if self._lost is not None:
                self._lost(error)

    def _flush_soon(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.flush()
            return
        self._ticking = True
        loop.call_soon(self._tick)

    def _tick(self) -> None:
        self._ticking = False
        self.flush()


def _reopen(file: TextIO) -> int:
    """The same pipe or terminal with a description of its own, that does not block; -1 for what never does, or cannot be had so."""
    try:
        file.flush()
        descriptor = file.fileno()
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode) or os.isatty(descriptor):
            return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError):  # a file in memory; a pipe of somebody else's; a reader that is gone
        pass
    return -1


_WIDE = 80  # columns of what a call is about
_LOOKED_AT = 1000  # characters of an argument, for that
# What a call is mainly about, by the neutral names of tools.
_MAIN: Final = {
    "bash": ("command",),
    "read": ("path",),
    "write": ("path",),
    "edit": ("path",),
    "grep": ("pattern", "path"),
    "find": ("pattern", "path"),
    "fetch": ("url",),
}
_REFUSED: Final = {"BLOCKED": "blocked", "DENIED": "denied", "PERMISSION_DENIED": "denied"}
_COLORS: Final = {"warn": "yellow", "error": "red"}


class RunPrinter(Protocol):
    """What a line surface shows a run with. While it asks something, nothing else appears on the terminal."""

    def tell(self, event: events.Event) -> None: ...

    def act(self, action: Action) -> None: ...

    def hold(self) -> None: ...

    def release(self) -> None: ...

    @property
    def behind(self) -> bool: ...

    async def room(self) -> None: ...


def wants_color() -> bool:
    """Whether a terminal may have colours."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def summarize_call(call: ToolCall) -> str:
    """What a call is about, in one line of at most 80 columns."""
    return words.fit_line(f"{words.quote_name(call.name)}  {secret_patterns.mask_text(_find_main_argument(call))}".rstrip(), _WIDE)


def _find_main_argument(call: ToolCall) -> str:
    arguments = call.arguments
    if isinstance(arguments, dict):
        texts = [arguments.get(key) for key in _MAIN.get(call.name, ())]
        if texts and isinstance(texts[0], str):
            return "  ".join(" ".join(text[:_LOOKED_AT].split()) for text in texts if isinstance(text, str))
    if not arguments:
        return ""
    try:
        return json.dumps(msgspec.to_builtins(arguments), ensure_ascii=False)[:_LOOKED_AT]
    except (TypeError, ValueError, RecursionError):  # no JSON at all
        return ""


class TextPrinter:
    """A run for a person. `quiet`: only what the model says, warnings and errors; `verbose`: also its thinking and what it used.

    `lost` is told once when stdout takes no more; `close` then raises the error.
    """

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        *,
        color: bool | None = None,
        quiet: bool = False,
        verbose: bool = False,
        lost: OutputLost | None = None,
    ) -> None:
        self._out = OutputStream(out, lost)
        self._err = OutputStream(err)
        self._color = err.isatty() and wants_color() if color is None else color
        self._quiet = quiet
        self._verbose = verbose
        self._same_screen = self._out.tty and self._err.tty
        self._open = False  # a line of text has begun and not ended
        self._index: int | None = None  # of the text that streams; None when a step has said nothing yet
        self._return = ""  # a carriage return whose newline may be in the next piece
        self._thought = ""  # a line of thinking that has not ended
        self._started: dict[str, float] = {}  # calls that run, by id, and since when
        self._last = ""  # the id of the call whose start was the last line

    # -- what happens -------------------------------------------------------------------------------------------------------------

    def tell(self, event: events.Event) -> None:
        if type(event) is events.Text:  # by far the most
            if not event.lane:
                self._say(event.text, event.index)
            return
        if self._thought and not isinstance(event, events.Thinking):
            self._end_thought()
        if isinstance(event, events.Retrying) and not event.lane:
            self._end_line()  # what was said so far comes again
        match event:
            case events.StepStarted(lane=""):
                self._index = None
            case events.Message(lane="", text=text) if self._index is None:  # it did not stream
                self._say(text, 0)
            case events.TurnEnded(lane="", result=result):
                self._show_turn_end(result)
            case events.NoticeEvent(notice=notice):
                self.act(notice)
            case _ if not self._quiet:
                self._show_progress(event)

    def _show_progress(self, event: events.Event) -> None:
        match event:
            case events.ToolStarted(call=call, at=at):
                self._started[call.id] = at
                self._note(f"{_indent(event.lane)}{summarize_call(call)}", dim=True)
                self._last = call.id
            case events.ToolEnded(call=call, result=result):
                self._show_tool_end(event.lane, call, result, event.at)
            case events.Retrying(attempt=attempt, most=most, wait=wait, error=error):
                self._note(f"attempt {attempt} of {most} in {wait:g} s: {_get_first_line(error)}", fg="yellow")
            case events.Compacted(before=0):  # not every agent tells how many messages that were
                self._note("the conversation was shortened", dim=True)
            case events.Compacted(before=before, after=after):
                self._note(f"the conversation was shortened from {before:,} to {after:,} messages", dim=True)
            case events.StepsExhausted(most=most):
                self._note(f"the model wanted to go on after {words.format_count(most, 'step')}, and may not", fg="yellow")
            case events.Thinking(lane="", text=text) if self._verbose:
                *lines, self._thought = (self._thought + text).split("\n")
                for line in lines:
                    self._note(line, dim=True)
            case events.Stderr(line=line, agent=agent) if self._verbose:
                self._note(f"[{agent or 'agent'}] {line}", dim=True)

    def _show_tool_end(self, lane: str, call: ToolCall, result: ToolResult, at: float) -> None:
        """Right below the line that says that it began, else with what it is about again."""
        since = self._started.pop(call.id, None)
        about = "" if since is not None and self._last == call.id else f"{summarize_call(call)}  "
        if result.is_error:
            text, fg = (
                f"{_REFUSED.get(result.code, 'error')}: {_get_first_line(result.text) or result.code or 'it said nothing'}",
                "red",
            )
        elif since is None:  # it never began: a block of piglet's is no error to the model, but shown (spec piglet 5.3)
            text, fg = f"blocked: {_get_first_line(result.text) or 'nothing is said'}", "yellow"
        else:
            text, fg = "ok", None
        took = f" ({at - since:.1f} s)" if since and at - since >= 1 else ""
        self._note(f"{_indent(lane)}{about or '  '}{text}{took}", fg=fg, dim=fg is None)

    def _show_turn_end(self, result: events.TurnResult) -> None:
        self._end_line()
        self._index = None
        if self._verbose:
            usage = result.usage
            cost = "" if usage.cost_usd is None else f", ${usage.cost_usd:.4f}"
            cached = f" ({usage.cache_read:,} cached)" if usage.cache_read else ""
            steps = words.format_count(result.steps, "step")
            self._note(f"{usage.input:,} tokens in{cached}, {usage.output:,} out{cost}, {steps}, {result.seconds:.1f} s", dim=True)

    def act(self, action: Action) -> None:
        """A notice, or what a command answers; for the rest there is no room on a line."""
        match action:
            case Notice(level=level) if not self._quiet or level in _COLORS:
                for line in render_notice(action):
                    self._note(line, fg=_COLORS.get(level))
            case Display():
                self._display("\n".join(action.format_lines()))
            case Insert(text=text):  # there is no input line: whoever wants it finds it among the results
                self._display(text)
            case _:
                pass

    # -- on what ------------------------------------------------------------------------------------------------------------------

    def _say(self, text: str, index: int) -> None:
        if not text:
            return
        if index != self._index:
            self._end_line()
            self._index = index
        if self._out.tty:
            text = self._escape(text)
        self._out.write(text)
        self._open = not text.endswith("\n") if text else self._open
        self._last = ""

    def _display(self, text: str) -> None:
        """What a command answers, on lines of its own."""
        self._end_line()
        self._out.write((self._escape(text) if self._out.tty else text) + "\n")
        self._last = ""

    def _escape(self, text: str) -> str:
        """As a terminal may show it: lines and tabs are as they are, a carriage return before a newline goes."""
        if text.isprintable() and not self._return:
            return text
        text = self._return + text
        self._return = "\r" if text.endswith("\r") else ""
        lines = text.removesuffix("\r").replace("\r\n", "\n").split("\n")
        return "\n".join("\t".join(map(escape_line, line.split("\t"))) for line in lines)

    def _end_line(self) -> None:
        """What comes next begins on a line of its own."""
        self._return = ""
        if self._open:
            self._out.write("\n")
            self._open = False

    def _end_thought(self) -> None:
        line, self._thought = self._thought, ""
        self._note(line, dim=True)

    def _note(self, text: str, *, fg: str | None = None, dim: bool = False) -> None:
        if self._same_screen:
            self._end_line()
        self._out.flush()
        line = escape_line(secret_patterns.mask_text(text.expandtabs().removesuffix("\r")))
        self._err.write((click.style(line, fg=fg, dim=dim or None) if self._color else line) + "\n")
        self._last = ""

    def hold(self) -> None:
        if self._out.tty:
            self._end_line()
        self._out.hold()
        self._err.hold()

    def release(self) -> None:
        self._out.release()
        self._err.release()

    @property
    def behind(self) -> bool:
        return self._out.behind or self._err.behind

    async def room(self) -> None:
        await self._out.room()
        await self._err.room()

    async def drain(self) -> None:
        """Until all that was said is taken; it ends with a newline."""
        self._finish()
        await self._out.drain()
        await self._err.drain()

    def discard(self) -> None:
        """Nobody waits any longer for what was not taken."""
        self._out.discard()
        self._err.discard()

    def close(self) -> None:
        """All that was said is written, and ends with a newline. Raises what came in the way of that."""
        self._finish()
        self._out.close()
        self._err.close()
        if self._out.failed is not None:
            raise self._out.failed

    def _finish(self) -> None:
        if self._thought:
            self._end_thought()
        self._end_line()
        self.release()


class JsonPrinter:
    """A run for a program: each event is a line of JSON, and the last line is the result."""

    def __init__(self, out: TextIO, *, lost: OutputLost | None = None) -> None:
        self._out = OutputStream(out, lost)

    def tell(self, event: events.Event) -> None:
        self._out.write(_encode_event(event) + "\n")

    def act(self, action: Action) -> None:
        if isinstance(action, Notice):
            self.tell(events.NoticeEvent(notice=action))
        elif not isinstance(action, NoAction):
            self._out.write(dump_json({"type": "action", "action": action}) + "\n")

    def write_result(self, result: events.TurnResult, **more: Any) -> None:
        form: dict[str, Any] = {"type": "result", "status": result.status, "text": result.text, "session": result.session}
        form |= {"usage": msgspec.structs.asdict(result.usage), "steps": result.steps, "seconds": round(result.seconds, 3)}
        if result.error:
            form["error"] = result.error
        self._out.write(dump_json(form | more) + "\n")

    def hold(self) -> None:
        self._out.hold()

    def release(self) -> None:
        self._out.release()

    @property
    def behind(self) -> bool:
        return self._out.behind

    async def room(self) -> None:
        await self._out.room()

    async def drain(self) -> None:
        self.release()
        await self._out.drain()

    def discard(self) -> None:
        self._out.discard()

    def close(self) -> None:
        self.release()
        self._out.close()
        if self._out.failed is not None:
            raise self._out.failed


_encoder = msgspec.json.Encoder()
_NO_JSON = (TypeError, ValueError, OverflowError, RecursionError)


def _encode_event(event: events.Event) -> str:
    """In the words of the model. An agent's own form of it is left out where it is bytes, or nothing that JSON has."""
    if isinstance(event.native, bytes | bytearray | memoryview | msgspec.Raw):
        event = msgspec.structs.replace(event, native=None)
    try:
        return escape_json(_encoder.encode(event).decode())
    except _NO_JSON:
        pass
    try:
        return dump_json(msgspec.structs.replace(event, native=None))  # which takes texts that are no UTF-8
    except _NO_JSON as error:
        return dump_json({"type": events.event_kind(event), "seq": event.seq, "unreadable": str(error)})


def _indent(lane: str) -> str:
    """What a sub-agent does stands further in."""
    return "  " if lane else ""


def _get_first_line(text: str) -> str:
    return next((line.strip() for line in text[:_LOOKED_AT].splitlines() if line.strip()), "")

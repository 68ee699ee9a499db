"""The tools that run a program: `bash`, `grep` and `find`.

A program runs for one call, within its time. When the call ends, so does the program's tree, as `wire` ends one; SECURITY.md says
what can get away. Its output is bounded, text, and without escapes.

For `grep` and `find` a program of our own searches (`programs.search`): a model's regular expression may take for ever and a tree
may be huge, and the program ends with the call, and at its time. No shell and no git: a project's settings may run programs of the
project's choice.
"""

from __future__ import annotations

import asyncio
import codecs
import errno
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from msgspec import UNSET, Meta, UnsetType

from serai.errors import ExitStatus, SpawnFailed
from serai.limits import KIB, ToolLimits
from serai.model.tools import ProgressCallback, TextBlock, ToolResult
from serai.plain_text import RETURN, UNFINISHED_ESCAPE, strip_codes, strip_output
from serai.tools.programs.file_walk import SKIPPED
from serai.tools.programs.search import BAD_PATTERN, NO_WAY, Search
from serai.tools.tool import BuiltInTool, ToolArguments, ToolJob, make_tool
from serai.tools.workspace import ToolFailure, WorkspacePath, hold_file, to_failure
from serai.wire.process import Launch, Spawner, build_guest_env, stop_child

log = logging.getLogger("serai.tools")

_PAUSE = 0.05  # seconds between two pieces for whoever watches
_LONGEST = 256  # characters of an escape that is waited for
_PIECE = 16 * 1024  # characters: of more only the newest are shown


def join_ends(head: bytes, tail: bytes, total: int, most: int) -> str:
    """What was said, of which `head` are the first bytes and `tail` the last; at most about `most` bytes of it."""
    if total <= len(tail):
        return shorten(strip_output(tail.decode(errors="replace")), most)
    head, tail = head[: most // 2], tail[-(most // 2) :]
    # At ends of lines where there are some, so that no line is taken for another; never within a character.
    if head.rfind(b"\n") >= len(head) // 2:
        head = head[: head.rfind(b"\n") + 1]
    if 0 <= tail.find(b"\n") < len(tail) // 2:
        tail = tail[tail.find(b"\n") + 1 :]
    first = codecs.getincrementaldecoder("utf-8")("replace").decode(head)
    last = tail.lstrip(bytes(range(0x80, 0xC0))) if tail[:1] > b"\x7f" else tail
    left_out = total - len(head) - len(tail)
    beginning = shorten(strip_output(first), most // 2)
    ending = shorten(strip_output(last.decode(errors="replace")), most // 2)
    return f"{beginning}\n{_format_gap(left_out)}\n{ending}"


def shorten(text: str, most: int) -> str:
    """At most so many bytes, its beginning and its end."""
    data = text.encode(errors="replace")
    if len(data) <= most:
        return text
    first, last = data[: most // 2].decode(errors="ignore"), data[-(most // 2) :].decode(errors="ignore")
    return f"{first}\n{_format_gap(len(data) - most)}\n{last}"


def _format_gap(count: int) -> str:
    return f"[… {count} bytes left out …]"


class OutputReporter:
    """Tells whoever watches what a program says, as text and not too often; of a flood the newest."""

    def __init__(self, tell: ProgressCallback) -> None:
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""  # the beginning of an escape
        self._returns = ""  # carriage returns: what follows says what they mean
        self._waiting = ""
        self._left_out = 0
        self._timer: asyncio.TimerHandle | None = None

    def take(self, chunk: bytes) -> None:
        self._add(self._decoder.decode(chunk))
        if self._timer is None:
            self._flush()
            self._timer = self._loop.call_later(_PAUSE, self._on_timer)

    def finish(self) -> None:
        """Tell the rest."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._add(self._decoder.decode(b"", final=True), last=True)
        self._flush()

    def _on_timer(self) -> None:
        self._timer = None
        if self._waiting:
            self._flush()
            self._timer = self._loop.call_later(_PAUSE, self._on_timer)

    def _add(self, text: str, *, last: bool = False) -> None:
        text = self._held + text
        unfinished = None if last else UNFINISHED_ESCAPE.search(text)
        cut = unfinished.start() if unfinished else len(text)
        if len(text) - cut > _LONGEST:  # it never ends
            cut = len(text)
        self._held = text[cut:]
        bare = self._returns + strip_codes(text[:cut])
        rest = bare if last else bare.rstrip("\r")
        self._returns = "\r" if len(rest) < len(bare) else ""
        self._waiting += RETURN.sub("\n", rest)
        if len(self._waiting) > _PIECE:
            self._left_out += len(self._waiting) - _PIECE
            self._waiting = self._waiting[-_PIECE:]

    def _flush(self) -> None:
        text, self._waiting = self._waiting, ""
        if self._left_out:
            text = f"\n[… {self._left_out} characters not shown …]\n{text}"
            self._left_out = 0
        try:
            if text:
                self._tell(text)
        except Exception:  # theirs; the program goes on
            log.exception("whoever watches a tool failed")


_AT_ONCE = 0.001  # it has no input that it could end with


class ProgramResult(NamedTuple):
    """What came of it: `status` is None when its time was over before."""

    status: ExitStatus | None
    output: str
    stderr: str
    total: int  # bytes that it wrote


async def run_program(
    spawner: Spawner, launch: Launch, seconds: float, limits: ToolLimits, reporter: OutputReporter | None = None
) -> ProgramResult:
    """Run it to its end. Then, and at the end of its time, and when the call is cancelled, its whole tree is ended.

    However much it writes, `limits.tool_output` is kept. `SpawnFailed` when it cannot be started.
    """
    child = await spawner.spawn(launch)
    try:
        head = bytearray()
        tail = child.drain_noise(child.stdout, limits.tool_output)

        def collect(chunk: bytes) -> None:
            if len(head) < limits.tool_output:
                head.extend(chunk[: limits.tool_output - len(head)])
            if reporter is not None:
                reporter.take(chunk)

        tail.on_chunk = collect
        exited = child.exited
        await asyncio.wait([exited], timeout=seconds)
        status = child.status
        exited.cancel()  # ours alone
    finally:
        await stop_child(child, limits.but(stop_polite=_AT_ONCE))
        if reporter is not None:
            reporter.finish()
    return ProgramResult(
        status, join_ends(bytes(head), tail.last(), tail.total, limits.tool_output), child.stderr.text(), tail.total
    )


# One pipe for both, so that the order is what it was. Where there is no bash, its elder sister does.
_SHELL = ("/bin/sh", "-c", 'exec 2>&1; command -v bash >/dev/null && exec bash -c -- "$1"; exec sh -c -- "$1"', "sh")

# Nobody is there to answer: what would ask a person, or show one page at a time, does not.
_NOBODY: Mapping[str, str] = {
    "DEBIAN_FRONTEND": "noninteractive",
    "GIT_EDITOR": "true",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "MANPAGER": "cat",
    "PAGER": "cat",
    "PIP_NO_INPUT": "1",
    "SSH_ASKPASS_REQUIRE": "never",
    "TERM": "dumb",
}


class Bash(ToolArguments, frozen=True):
    command: Annotated[str, Meta(min_length=1)]
    timeout: Annotated[float, Meta(gt=0, description="seconds")] | UnsetType = UNSET
    timeout_ms: Annotated[float, Meta(gt=0)] | UnsetType = UNSET
    description: str = ""
    cwd: str = ""
    workdir: str = ""

    def get_path(self) -> str:
        return self.cwd or self.workdir


def make_bash_tool(limits: ToolLimits) -> BuiltInTool:
    about = (
        f"Run a command with bash in the working directory; stdout and stderr together. "
        f"It has no input and {limits.shell:g} s unless timeout says otherwise (at most {limits.shell_most:g}). "
        f"What it starts is ended with it, also in the background: leave nothing running for later. "
        f"Of long output the first and the last {limits.tool_output // 2 // KIB} KiB are kept."
    )
    return make_tool("bash", Bash, _bash, about)


def build_environment(environ: Mapping[str, str], grants: Sequence[str]) -> dict[str, str]:
    """What a command sees: no credentials, and nobody to ask."""
    return {**_NOBODY, **build_guest_env(environ, grants=grants)}


async def _bash(arguments: Bash, job: ToolJob) -> ToolResult:
    limits = job.context.limits
    seconds = _parse_timeout(arguments, limits)
    reporter = OutputReporter(job.tell) if job.tell is not None else None
    cwd = await job.run_read(lambda: _find_folder(said, job)) if (said := arguments.get_path()) else job.context.workspace.cwd
    launch = Launch(argv=[*_SHELL, _check_command(arguments)], env=job.context.environ, cwd=cwd, who="bash", stdin="null")
    try:
        ran = await run_program(job.context.spawner, launch, seconds, limits, reporter)
    except SpawnFailed as error:
        if error.errno == errno.E2BIG:
            raise ToolFailure("INVALID_ARGS", "the command is too long", "write it to a file, and run that") from None
        raise ToolFailure("IO_ERROR", f"no shell can be started: {error.message}", error.hint) from None
    return _build_result(ran, seconds)


def _build_result(ran: ProgramResult, seconds: float) -> ToolResult:
    """Without details: so guests may shorten what it says (spec piglet FIX-14)."""
    output = ran.output.rstrip("\n")
    if ran.status is None:
        end = f"[ended after {seconds:g} s, with everything it started]"
        hint = "make it quicker, or give it more time with timeout"
        return ToolResult((_build_text(output, end),), is_error=True, code="TIMEOUT", hint=hint)
    if not ran.status.ok:
        return ToolResult((_build_text(output, f"[{ran.status}]"),), is_error=True, code="EXIT_NONZERO")
    return ToolResult((TextBlock(output or "(no output)"),))


def _build_text(output: str, end: str) -> TextBlock:
    return TextBlock(f"{output}\n{end}" if output else end)


def _parse_timeout(arguments: Bash, limits: ToolLimits) -> float:
    seconds = limits.shell
    if isinstance(arguments.timeout, float):
        seconds = arguments.timeout
    elif isinstance(arguments.timeout_ms, float):
        seconds = arguments.timeout_ms / 1000
    if not seconds <= limits.shell_most:
        raise ToolFailure("INVALID_ARGS", f"bash: `timeout` is at most {limits.shell_most:g} seconds, not {seconds:g}")
    return seconds


def _check_command(arguments: Bash) -> str:
    if "\0" in arguments.command:
        raise ToolFailure("INVALID_ARGS", "bash: `command` has a NUL character in it", "no program can be given one")
    try:
        arguments.command.encode()
    except UnicodeEncodeError:
        raise ToolFailure("INVALID_ARGS", "bash: `command` has half a character (a lone surrogate) in it") from None
    return arguments.command


def _find_folder(said: str, job: ToolJob) -> str:
    place = job.resolve_path(said)
    with hold_file(place) as held:
        if held.find_kind() != "a folder":
            raise ToolFailure("INVALID_ARGS", f"bash: {place.shown} is no folder", "`cwd` is the folder to run it in")
    return place.path


_HOME = str(Path(__file__).parents[2])
_BOOT = "import sys; sys.path.insert(0, sys.argv.pop(1)); from serai.tools.programs.search import main; main(sys.argv[1])"


class Grep(ToolArguments, frozen=True):
    pattern: Annotated[str, Meta(min_length=1, description="regular expression of Python, for one line")]
    path: Annotated[str, Meta(description="folder or file")] = "."
    glob: Annotated[str, Meta(description="only files like *.py or src/**/*.{ts,tsx}")] = ""
    ignore_case: bool = False
    literal: Annotated[bool, Meta(description="pattern is plain text")] = False
    context: Annotated[int, Meta(ge=0, le=20, description="lines around each match")] = 0
    limit: Annotated[int, Meta(ge=1, le=2000, description="matching lines at most")] = 100


class Find(ToolArguments, frozen=True):
    pattern: Annotated[str, Meta(min_length=1, description="glob such as *.py (a name at any depth) or src/**/test_*.py")]
    path: Annotated[str, Meta(description="folder")] = "."
    type: Literal["file", "directory", "any"] = "any"
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 500


_NOT_THERE = f"Not looked into: {', '.join(sorted(SKIPPED))}"


def make_grep_tool(_: ToolLimits) -> BuiltInTool:
    about = f"Search the lines of text files below a folder. Answers path:number: line, sorted. {_NOT_THERE}; binary files, links."
    return make_tool("grep", Grep, _grep, about, background=True)


def make_find_tool(_: ToolLimits) -> BuiltInTool:
    about = f"Find files and folders by their names, sorted; folders end in /. {_NOT_THERE}; links are not followed."
    return make_tool("find", Find, _find, about, background=True)


async def _grep(arguments: Grep, job: ToolJob) -> ToolResult:
    place, kind = await job.run_read(lambda: _find_start(arguments.path, job))
    if kind not in ("file", "a folder"):
        raise ToolFailure("NOT_REGULAR_FILE", f"{place.shown} is {kind}", "name a folder or a plain file")
    asked = Search(
        tool="grep", path=place.path, shown=_prefix(place), most=job.context.limits.tool_output, pattern=arguments.pattern,
        glob=arguments.glob, ignore_case=arguments.ignore_case, literal=arguments.literal, context=arguments.context,
        limit=arguments.limit, longest=job.context.limits.read_file,
    )  # fmt: skip
    return await _search(asked, job)


async def _find(arguments: Find, job: ToolJob) -> ToolResult:
    place, kind = await job.run_read(lambda: _find_start(arguments.path, job))
    if kind != "a folder":
        raise ToolFailure("INVALID_ARGS", f"find: `path` is a folder to look in, and {place.shown} is {kind}")
    asked = Search(
        tool="find", path=place.path, shown=_prefix(place), most=job.context.limits.tool_output, pattern="", glob=arguments.pattern,
        limit=arguments.limit, kind=arguments.type,
    )  # fmt: skip
    return await _search(asked, job)


def _find_start(said: str, job: ToolJob) -> tuple[WorkspacePath, str]:
    place = job.resolve_path(said)
    with hold_file(place) as held:
        return place, held.find_kind()


def _prefix(place: WorkspacePath) -> str:
    return "" if place.shown == "." else place.shown


async def _search(asked: Search, job: ToolJob) -> ToolResult:
    limits = job.context.limits
    argv = [sys.executable, "-I", "-S", "-W", "ignore", "-c", _BOOT, _HOME, json.dumps(asked)]
    launch = Launch(argv=argv, env={"LANG": "C.UTF-8"}, cwd="/", who=asked["tool"], stdin="null")
    try:
        ran = await run_program(job.context.spawner, launch, limits.search, limits)
    except SpawnFailed as error:
        if error.errno == errno.E2BIG:
            raise ToolFailure("INVALID_ARGS", f"{asked['tool']}: `pattern` is too long") from None
        raise ToolFailure("IO_ERROR", f"the search cannot be started: {error.message}", error.hint) from None
    if ran.status is None:
        text = f"{ran.output}[ended after {limits.search:g} s: not everything was looked at]"
        hint = "look in a smaller folder, or for something simpler"
        return ToolResult((TextBlock(text),), is_error=True, code="TIMEOUT", hint=hint)
    if ran.status.code == BAD_PATTERN:
        raise ToolFailure("INVALID_ARGS", f"{asked['tool']}: {ran.output}", "with literal=true the pattern is plain text")
    if ran.status.code == NO_WAY:
        raise to_failure(OSError(int(ran.output), ""), asked["shown"] or ".")
    if not ran.status.ok:
        raise ToolFailure("INTERNAL", f"the search broke down ({ran.status}): {ran.stderr.strip()[-300:]}")
    return ToolResult.of(ran.output.rstrip("\n"))

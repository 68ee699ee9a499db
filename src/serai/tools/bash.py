"""The tool `bash`: a command line, run to its end. What it started ends with it; SECURITY.md says what can get away."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from serai.errors import SpawnFailed
from serai.limits import KIB, Limits
from serai.model.tools import TextBlock, ToolResult
from serai.tools.failing import Failed
from serai.tools.files import opened
from serai.tools.output import Teller
from serai.tools.running import Ran, run
from serai.tools.tool import Arguments, Job, Tool, make_tool
from serai.wire.child_environment import guest_environment
from serai.wire.process import Launch

__all__ = ["environment", "tool"]

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


class Bash(Arguments, frozen=True):
    command: Annotated[str, Meta(min_length=1)]
    timeout: Annotated[float, Meta(gt=0, description="seconds")] | UnsetType = UNSET
    timeout_ms: Annotated[float, Meta(gt=0)] | UnsetType = UNSET
    description: str = ""
    cwd: str = ""
    workdir: str = ""

    def leads(self) -> str:
        return self.cwd or self.workdir


def tool(limits: Limits) -> Tool:
    about = (
        f"Run a command with bash in the working directory; stdout and stderr together. "
        f"It has no input and {limits.shell:g} s unless timeout says otherwise (at most {limits.shell_most:g}). "
        f"What it starts is ended with it, also in the background: leave nothing running for later. "
        f"Of long output the first and the last {limits.tool_output // 2 // KIB} KiB are kept."
    )
    return make_tool("bash", Bash, _bash, about)


def environment(environ: Mapping[str, str], grants: Sequence[str]) -> dict[str, str]:
    """What a command sees: no credentials, and nobody to ask."""
    return {**_NOBODY, **guest_environment(environ, grants=grants)}


async def _bash(arguments: Bash, job: Job) -> ToolResult:
    limits = job.shop.limits
    seconds = _seconds(arguments, limits)
    teller = Teller(job.tell) if job.tell is not None else None
    cwd = await job.look(lambda: _folder(said, job)) if (said := arguments.leads()) else job.shop.places.cwd
    launch = Launch(argv=[*_SHELL, _command(arguments)], env=job.shop.environ, cwd=cwd, who="bash", stdin="null")
    try:
        ran = await run(job.shop.spawner, launch, seconds, limits, teller)
    except SpawnFailed as error:
        if error.errno == errno.E2BIG:
            raise Failed("INVALID_ARGS", "the command is too long", "write it to a file, and run that") from None
        raise Failed("IO_ERROR", f"no shell can be started: {error.message}", error.hint) from None
    return _result(ran, seconds)


def _result(ran: Ran, seconds: float) -> ToolResult:
    """Without details: so guests may shorten what it says (spec piglet FIX-14)."""
    output = ran.output.rstrip("\n")
    if ran.status is None:
        end = f"[ended after {seconds:g} s, with everything it started]"
        hint = "make it quicker, or give it more time with timeout"
        return ToolResult((_text(output, end),), is_error=True, code="TIMEOUT", hint=hint)
    if not ran.status.ok:
        return ToolResult((_text(output, f"[{ran.status}]"),), is_error=True, code="EXIT_NONZERO")
    return ToolResult((TextBlock(output or "(no output)"),))


def _text(output: str, end: str) -> TextBlock:
    return TextBlock(f"{output}\n{end}" if output else end)


def _seconds(arguments: Bash, limits: Limits) -> float:
    seconds = limits.shell
    if isinstance(arguments.timeout, float):
        seconds = arguments.timeout
    elif isinstance(arguments.timeout_ms, float):
        seconds = arguments.timeout_ms / 1000
    if not seconds <= limits.shell_most:
        raise Failed("INVALID_ARGS", f"bash: `timeout` is at most {limits.shell_most:g} seconds, not {seconds:g}")
    return seconds


def _command(arguments: Bash) -> str:
    if "\0" in arguments.command:
        raise Failed("INVALID_ARGS", "bash: `command` has a NUL character in it", "no program can be given one")
    try:
        arguments.command.encode()
    except UnicodeEncodeError:
        raise Failed("INVALID_ARGS", "bash: `command` has half a character (a lone surrogate) in it") from None
    return arguments.command


def _folder(said: str, job: Job) -> str:
    place = job.place(said)
    with opened(place) as spot:
        if spot.kind() != "a folder":
            raise Failed("INVALID_ARGS", f"bash: {place.shown} is no folder", "`cwd` is the folder to run it in")
    return place.path

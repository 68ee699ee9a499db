"""The tools `grep` and `find`.

A model's regular expression may take for ever and a tree may be huge, so a program of its own does it (`programs.search`): it ends
with the call, and at its time. No shell and no git: a project's settings may run programs of the project's choice.
"""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from serai.errors import SpawnFailed
from serai.limits import Limits
from serai.model.tools import TextBlock, ToolResult
from serai.tools.failing import Failed, failed
from serai.tools.files import opened
from serai.tools.places import Place
from serai.tools.programs.search import BAD_PATTERN, NO_WAY, Search
from serai.tools.programs.walking import SKIPPED
from serai.tools.running import run
from serai.tools.tool import Arguments, Job, Tool, make_tool
from serai.wire.process import Launch

__all__ = ["find", "grep"]

_HOME = str(Path(__file__).parents[2])
_BOOT = "import sys; sys.path.insert(0, sys.argv.pop(1)); from serai.tools.programs.search import main; main(sys.argv[1])"


class Grep(Arguments, frozen=True):
    pattern: Annotated[str, Meta(min_length=1, description="regular expression of Python, for one line")]
    path: Annotated[str, Meta(description="folder or file")] = "."
    glob: Annotated[str, Meta(description="only files like *.py or src/**/*.{ts,tsx}")] = ""
    ignore_case: bool = False
    literal: Annotated[bool, Meta(description="pattern is plain text")] = False
    context: Annotated[int, Meta(ge=0, le=20, description="lines around each match")] = 0
    limit: Annotated[int, Meta(ge=1, le=2000, description="matching lines at most")] = 100


class Find(Arguments, frozen=True):
    pattern: Annotated[str, Meta(min_length=1, description="glob such as *.py (a name at any depth) or src/**/test_*.py")]
    path: Annotated[str, Meta(description="folder")] = "."
    type: Literal["file", "directory", "any"] = "any"
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 500


_NOT_THERE = f"Not looked into: {', '.join(sorted(SKIPPED))}"


def grep(_: Limits) -> Tool:
    about = f"Search the lines of text files below a folder. Answers path:number: line, sorted. {_NOT_THERE}; binary files, links."
    return make_tool("grep", Grep, _grep, about, background=True)


def find(_: Limits) -> Tool:
    about = f"Find files and folders by their names, sorted; folders end in /. {_NOT_THERE}; links are not followed."
    return make_tool("find", Find, _find, about, background=True)


async def _grep(arguments: Grep, job: Job) -> ToolResult:
    place, kind = await job.look(lambda: _start(arguments.path, job))
    if kind not in ("file", "a folder"):
        raise Failed("NOT_REGULAR_FILE", f"{place.shown} is {kind}", "name a folder or a plain file")
    asked = Search(
        tool="grep", path=place.path, shown=_prefix(place), most=job.shop.limits.tool_output, pattern=arguments.pattern,
        glob=arguments.glob, ignore_case=arguments.ignore_case, literal=arguments.literal, context=arguments.context,
        limit=arguments.limit, longest=job.shop.limits.read_file,
    )  # fmt: skip
    return await _searched(asked, job)


async def _find(arguments: Find, job: Job) -> ToolResult:
    place, kind = await job.look(lambda: _start(arguments.path, job))
    if kind != "a folder":
        raise Failed("INVALID_ARGS", f"find: `path` is a folder to look in, and {place.shown} is {kind}")
    asked = Search(
        tool="find", path=place.path, shown=_prefix(place), most=job.shop.limits.tool_output, pattern="", glob=arguments.pattern,
        limit=arguments.limit, kind=arguments.type,
    )  # fmt: skip
    return await _searched(asked, job)


def _start(said: str, job: Job) -> tuple[Place, str]:
    place = job.place(said)
    with opened(place) as spot:
        return place, spot.kind()


def _prefix(place: Place) -> str:
    return "" if place.shown == "." else place.shown


async def _searched(asked: Search, job: Job) -> ToolResult:
    limits = job.shop.limits
    argv = [sys.executable, "-I", "-S", "-W", "ignore", "-c", _BOOT, _HOME, json.dumps(asked)]
    launch = Launch(argv=argv, env={"LANG": "C.UTF-8"}, cwd="/", who=asked["tool"], stdin="null")
    try:
        ran = await run(job.shop.spawner, launch, limits.search, limits)
    except SpawnFailed as error:
        if error.errno == errno.E2BIG:
            raise Failed("INVALID_ARGS", f"{asked['tool']}: `pattern` is too long") from None
        raise Failed("IO_ERROR", f"the search cannot be started: {error.message}", error.hint) from None
    if ran.status is None:
        text = f"{ran.output}[ended after {limits.search:g} s: not everything was looked at]"
        hint = "look in a smaller folder, or for something simpler"
        return ToolResult((TextBlock(text),), is_error=True, code="TIMEOUT", hint=hint)
    if ran.status.code == BAD_PATTERN:
        raise Failed("INVALID_ARGS", f"{asked['tool']}: {ran.output}", "with literal=true the pattern is plain text")
    if ran.status.code == NO_WAY:
        raise failed(OSError(int(ran.output), ""), asked["shown"] or ".")
    if not ran.status.ok:
        raise Failed("INTERNAL", f"the search broke down ({ran.status}): {ran.stderr.strip()[-300:]}")
    return ToolResult.of(ran.output.rstrip("\n"))

"""What a built-in tool is, and what all of them share.

File work has threads of its own: a slow disk must not stop the loop, nor other users of threads.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from serai.limits import ToolLimits
from serai.model.tools import ProgressCallback, ToolCall, ToolResult, ToolSpec
from serai.tools.workspace import FileSnapshots, SeenFiles, ToolFailure, Workspace, WorkspacePath
from serai.wire.process import Spawner

log = logging.getLogger("serai.tools")

_THREADS = 4

T = TypeVar("T")


class CallAbandoned(Exception):
    """Nobody waits for this work any more."""


class CancelCheck:
    """Whether somebody still waits for a call. Whoever works on it in a thread looks between its steps."""

    def __init__(self) -> None:
        self._over = threading.Event()

    def end(self) -> None:
        self._over.set()

    def check(self) -> None:
        """`CallAbandoned` when nobody does."""
        if self._over.is_set():
            raise CallAbandoned


class FileThreads:
    """The threads of one box of tools. None of them ever waits for another: who has to wait does so in the loop."""

    def __init__(self, patience: float) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, "serai-tools")
        self._patience = patience  # seconds, with work that was given up
        self._changing = asyncio.Lock()  # one change of a file at a time: each looks, then replaces

    async def run_read(self, work: Callable[[], T], wanted: CancelCheck) -> T:
        """Work that changes nothing. When this is cancelled, it is left to itself and ends at its next look."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except asyncio.CancelledError:
            wanted.end()
            raise

    async def run_write(self, work: Callable[[], T], wanted: CancelCheck) -> T:
        """Work that changes a file. When this is cancelled and it has not begun, it never does; what has begun is waited for."""
        await self._changing.acquire()
        begun = self._pool.submit(work)
        done = asyncio.wrap_future(begun)
        done.add_done_callback(lambda _: self._changing.release())  # not before, even when nobody waits for it any more
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            wanted.end()
            if not begun.cancel():
                await asyncio.wait([done], timeout=self._patience)
                if not done.done():
                    log.error("a change of a file does not end: the disk does not answer")
            raise


class ToolArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a tool; its schema is made of this too."""

    def get_path(self) -> str:
        """The path that the call leads to; empty for the working directory."""
        return str(getattr(self, "path", ""))


A = TypeVar("A", bound=ToolArguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What the tools of one session share."""

    workspace: Workspace
    spawner: Spawner
    limits: ToolLimits
    environ: Mapping[str, str]  # of the commands that they run
    undo: FileSnapshots | None
    seen: SeenFiles
    threads: FileThreads


@dataclass(frozen=True, slots=True)
class ToolJob:
    """One call of a tool."""

    context: ToolContext
    call: ToolCall
    tell: ProgressCallback | None = None
    wanted: CancelCheck = field(default_factory=CancelCheck)

    def resolve_path(self, said: str) -> WorkspacePath:
        return self.context.workspace.find(said, self.call)

    async def run_read(self, work: Callable[[], T]) -> T:
        """In a thread, which a slow disk may stop."""
        return await self.context.threads.run_read(work, self.wanted)


class BuiltInTool(NamedTuple):
    """A tool: what is told of it, what it takes, and what it does."""

    spec: ToolSpec
    takes: type[ToolArguments]
    run: Callable[[Any, ToolJob], Awaitable[ToolResult]]

    def parse_arguments(self, said: object) -> ToolArguments:
        """The arguments of a call, checked. A null is the same as nothing: some models name everything they might say."""
        if said is not None and not isinstance(said, dict):
            raise ToolFailure("INVALID_ARGS", f"the arguments of {self.spec.name} are no JSON object", self._build_hint())
        given = {name: value for name, value in (said or {}).items() if value is not None}
        try:
            return msgspec.convert(given, self.takes)
        except UnicodeEncodeError:
            raise ToolFailure(
                "INVALID_ARGS", f"{self.spec.name}: half a character (a lone surrogate) in a name", self._build_hint()
            ) from None
        except (msgspec.ValidationError, RecursionError, OverflowError) as error:
            raise ToolFailure("INVALID_ARGS", f"{self.spec.name}: {str(error).replace('$.', '')}", self._build_hint()) from None

    def _build_hint(self) -> str:
        names = (f"{field.name}{'' if field.required else '?'}" for field in msgspec.structs.fields(self.takes))
        return f"the arguments are {', '.join(names)}"


def make_tool(
    name: str,
    takes: type[A],
    run: Callable[[A, ToolJob], Awaitable[ToolResult]],
    description: str,
    *,
    hint: str = "",
    interrupt: Literal["cancel", "block"] = "cancel",
    background: bool = False,
) -> BuiltInTool:
    spec = ToolSpec(
        name=name, description=description, schema=_build_schema(takes), hint=hint, interrupt=interrupt, background=background
    )
    return BuiltInTool(spec, takes, run)


def wrap_read(run: Callable[[A, ToolJob], ToolResult]) -> Callable[[A, ToolJob], Awaitable[ToolResult]]:
    """For a tool that looks into files, in a thread."""

    async def look(arguments: A, job: ToolJob) -> ToolResult:
        return await job.run_read(lambda: run(arguments, job))

    return look


def wrap_write(run: Callable[[A, ToolJob], ToolResult]) -> Callable[[A, ToolJob], Awaitable[ToolResult]]:
    """For one that changes a file. It calls `job.wanted.check` right before it begins to."""

    async def change(arguments: A, job: ToolJob) -> ToolResult:
        return await job.context.threads.run_write(lambda: run(arguments, job), job.wanted)

    return change


def _build_schema(takes: type[ToolArguments]) -> dict[str, Any]:
    """Without references, which not every model's provider takes; and without titles and empty defaults, which only cost."""
    (schema,), parts = msgspec.json.schema_components([takes], ref_template="{name}")

    def inline(value: Any) -> Any:
        if isinstance(value, list):
            return [inline(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            return inline({key: item for key, item in parts[value["$ref"]].items() if key not in ("title", "description")})
        return {key: inline(item) for key, item in value.items() if key != "default" or item}

    found = inline(schema)
    assert isinstance(found, dict)
    return found

"""What a built-in tool is, and what all of them share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from serai.limits import Limits
from serai.model.tools import ProgressCallback, ToolCall, ToolResult, ToolSpec
from serai.tools.failing import Failed
from serai.tools.files import Seen
from serai.tools.places import Place, Places
from serai.tools.undo import Undo
from serai.tools.working import Threads, Wanted
from serai.wire.process import Spawner

__all__ = ["Arguments", "Job", "Tool", "Workshop", "changing", "looking", "make_tool"]


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a tool; its schema is made of this too."""

    def leads(self) -> str:
        """The path that the call leads to; empty for the working directory."""
        return str(getattr(self, "path", ""))


A = TypeVar("A", bound=Arguments)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """What the tools of one session share."""

    places: Places
    spawner: Spawner
    limits: Limits
    environ: Mapping[str, str]  # of the commands that they run
    undo: Undo | None
    seen: Seen
    threads: Threads


@dataclass(frozen=True, slots=True)
class Job:
    """One call of a tool."""

    shop: Workshop
    call: ToolCall
    tell: ProgressCallback | None = None
    wanted: Wanted = field(default_factory=Wanted)

    def place(self, said: str) -> Place:
        return self.shop.places.find(said, self.call)

    async def look(self, work: Callable[[], T]) -> T:
        """In a thread, which a slow disk may stop."""
        return await self.shop.threads.look(work, self.wanted)


class Tool(NamedTuple):
    """A tool: what is told of it, what it takes, and what it does."""

    spec: ToolSpec
    takes: type[Arguments]
    run: Callable[[Any, Job], Awaitable[ToolResult]]

    def read(self, said: object) -> Arguments:
        """The arguments of a call, checked. A null is the same as nothing: some models name everything they might say."""
        if said is not None and not isinstance(said, dict):
            raise Failed("INVALID_ARGS", f"the arguments of {self.spec.name} are no JSON object", self._hint())
        given = {name: value for name, value in (said or {}).items() if value is not None}
        try:
            return msgspec.convert(given, self.takes)
        except UnicodeEncodeError:
            raise Failed("INVALID_ARGS", f"{self.spec.name}: half a character (a lone surrogate) in a name", self._hint()) from None
        except (msgspec.ValidationError, RecursionError, OverflowError) as error:
            raise Failed("INVALID_ARGS", f"{self.spec.name}: {str(error).replace('$.', '')}", self._hint()) from None

    def _hint(self) -> str:
        names = (f"{field.name}{'' if field.required else '?'}" for field in msgspec.structs.fields(self.takes))
        return f"the arguments are {', '.join(names)}"


def make_tool(
    name: str,
    takes: type[A],
    run: Callable[[A, Job], Awaitable[ToolResult]],
    description: str,
    *,
    hint: str = "",
    interrupt: Literal["cancel", "block"] = "cancel",
    background: bool = False,
) -> Tool:
    spec = ToolSpec(
        name=name, description=description, schema=_schema(takes), hint=hint, interrupt=interrupt, background=background
    )
    return Tool(spec, takes, run)


def looking(run: Callable[[A, Job], ToolResult]) -> Callable[[A, Job], Awaitable[ToolResult]]:
    """For a tool that looks into files, in a thread."""

    async def look(arguments: A, job: Job) -> ToolResult:
        return await job.look(lambda: run(arguments, job))

    return look


def changing(run: Callable[[A, Job], ToolResult]) -> Callable[[A, Job], Awaitable[ToolResult]]:
    """For one that changes a file. It calls `job.wanted.check` right before it begins to."""

    async def change(arguments: A, job: Job) -> ToolResult:
        return await job.shop.threads.change(lambda: run(arguments, job), job.wanted)

    return change


def _schema(takes: type[Arguments]) -> dict[str, Any]:
    """Without references, which not every model's provider takes; and without titles and empty defaults, which only cost."""
    (schema,), parts = msgspec.json.schema_components([takes], ref_template="{name}")

    def inlined(value: Any) -> Any:
        if isinstance(value, list):
            return [inlined(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            return inlined({key: item for key, item in parts[value["$ref"]].items() if key not in ("title", "description")})
        return {key: inlined(item) for key, item in value.items() if key != "default" or item}

    found = inlined(schema)
    assert isinstance(found, dict)
    return found

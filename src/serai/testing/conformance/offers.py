"""What a guest of any dialect offers, and whether it can be used: names, schemas, and arguments that do not fit them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from serai.host.argument_schemas import ArgumentChecker, SchemaCost, SchemaRejected, build_checker, measure
from serai.limits import KIB
from serai.testing.conformance.probing import Flawed
from serai.testing.conformance.report import Finding, failed, warned

__all__ = ["ODD_ARGUMENTS", "by_reason", "command_name", "schema", "tool_name", "unfit"]

# What model APIs take as the name of a tool, and what a person can type as that of a command (spec zot 3.2).
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_COMMAND_NAME = re.compile(r"[A-Za-z0-9_-]+")
_NAME = "use ASCII letters, digits, - and _ (at most 64)"
ODD_ARGUMENTS: tuple[object, ...] = (None, [], [{"serai": "check"}], "serai check", 7)


def tool_name(name: str, shown: Sequence[str]) -> Iterator[Finding]:
    if not _TOOL_NAME.fullmatch(name):
        yield failed(f"no model can call the name {name!r}", hint=_NAME, frames=shown)


def command_name(name: str, shown: Sequence[str]) -> Iterator[Finding]:
    if not _COMMAND_NAME.fullmatch(name):
        yield failed(f"nobody can type the name {name!r}", hint=_NAME, frames=shown)


def schema(name: str, schema: object, shown: Sequence[str]) -> Iterator[Finding]:
    """What is wrong with the schema of a tool."""
    if schema is None:
        hint = 'give one, {"type":"object","properties":{}} at least: some models refuse a tool without'
        yield warned(f"the tool {name} has no schema", hint=hint, frames=shown)
    elif not isinstance(schema, dict):
        yield failed(
            f"the schema of {name} is not an object", hint='write a JSON Schema: {"type":"object","properties":{…}}', frames=shown
        )
    elif (problem := build_checker(schema, who=name).problem) and _builds(schema):
        why = f"the schema of {name} has patterns that Serai cannot check: it has no look-around, no back-references, and a limit"
        yield warned(
            why, hint="write them without, or check what they say in the tool: here its arguments go unchecked", frames=shown
        )
    elif problem:
        why = problem.removesuffix(", so its arguments go unchecked")
        yield failed(why, hint="make it a JSON Schema that any validator takes; nothing outside of it is fetched", frames=shown)
    elif "type" in schema and "object" not in (schema["type"] if isinstance(schema["type"], list) else [schema["type"]]):
        yield failed(
            f"the schema of {name} takes no object", hint='a model gives arguments as an object: "type":"object"', frames=shown
        )


def _builds(schema: dict[str, Any]) -> bool:
    """Whether it would do with patterns that backtrack. Serai's own do not, so that no text makes them run for ever."""
    import jsonschema_rs

    try:
        measure(schema, depth=64, length=256 * KIB)
        SchemaCost(schema)  # beyond this, building it may take for ever, too
        jsonschema_rs.validator_for(json.dumps(schema), offline=True, ignore_unknown_formats=True)
    except (SchemaRejected, ValueError, jsonschema_rs.ReferencingError):
        return False
    return True


def unfit(schema: object, *, given: bool) -> list[object]:
    """Arguments that do not fit. None for a tool that needs no arguments: it would do its work, unless that is `given`.

    Never what fits the schema (design rule 7).
    """
    check: ArgumentChecker | None = build_checker(schema, who="") if isinstance(schema, dict) else None
    if check is None or check.problem or not (given or (isinstance(schema, dict) and schema.get("required"))):
        return []
    return [args for args in ODD_ARGUMENTS if check.check(args)]


def by_reason(flaws: Iterable[Flawed]) -> Iterator[tuple[str, list[str]]]:
    """Each reason once, with the first line that shows it."""
    first: dict[str, Flawed] = {}
    for flawed in flaws:
        first.setdefault(flawed.why, flawed)
    for why, flawed in first.items():
        yield why, [flawed.shown]

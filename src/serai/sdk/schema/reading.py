"""One reading of what a model sent: where we are in it, what is wrong so far, and how a value is shown in an error."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

if TYPE_CHECKING:
    from serai.sdk.schema.kinds import Kind

__all__ = ["LOOSE", "SAME", "VALID", "Attempt", "Reading", "cut", "inside", "shown"]

# How far a value may be from its hint: of its very type; as the schema has it (5.0 is an integer); or with coercion.
SAME, VALID, LOOSE = range(3)

_SHOWN = 80  # characters of a value in an error
_WHERE = 200  # characters of a path
_PROBLEMS = 25  # of which there may be a million: beyond these they are counted

_NAME = r"[^\W\d]\w{0,79}"  # compiled when something is read: an extension's start waits for this module


class Attempt(NamedTuple):
    """What came of reading a value as one of several kinds. An alien is not of that kind at all."""

    value: Any
    problems: list[str]
    alien: bool
    kept: object  # the value that was read: while it lives nothing else has its identity


class _Memory:
    """What is known already of the values that were read, by their identity."""

    __slots__ = ("attempts", "texts")

    def __init__(self) -> None:
        self.attempts: dict[tuple[int, int, int], Attempt] = {}  # by kind, value and level
        self.texts: dict[int, tuple[str, object]] = {}  # a text, kept as above, and what it stands for


class Reading:
    """What is wrong so far. A kind that finds something wrong says so here and returns anything: nobody will look at it."""

    __slots__ = ("_alien", "_memory", "_root", "count", "level", "problems")

    def __init__(self, level: int = LOOSE, root: str = "", memory: _Memory | None = None) -> None:
        self.level = level
        self.problems: list[str] = []
        self.count = 0
        self._root = root
        self._alien = False
        self._memory = memory or _Memory()

    @property
    def is_full(self) -> bool:
        """Whether more problems are only counted: nobody needs to put them into words."""
        return len(self.problems) >= _PROBLEMS

    def wrong(self, where: str, problem: str) -> None:
        self.count += 1
        if not self.is_full:
            self.problems.append(f"{cut(where, _WHERE) or 'the arguments'} {problem}")

    def misfit(self, where: str, wanted: str, value: object) -> None:
        """The value is no such thing at all."""
        self._alien |= where == self._root
        self.wrong(where, "" if self.is_full else f"must be {wanted}, not {shown(value)}")

    def repeat(self, attempt: Attempt) -> None:
        """What was wrong with an attempt is what is wrong."""
        self.count += len(attempt.problems)
        self.problems += attempt.problems[: _PROBLEMS - len(self.problems)]

    def attempt(self, kind: Kind, value: object, where: str, level: int) -> Attempt:
        """Read a value without obligation.

        Each list and object, or text of one, is tried once per kind: a union of unions would otherwise take time exponential in
        their depth.
        """
        key = (id(kind), id(value), level)
        attempt = self._memory.attempts.get(key)
        if attempt is None:
            reading = Reading(level, where, self._memory)
            attempt = Attempt(kind.read(value, where, reading), reading.problems, reading._alien, value)
            if isinstance(value, dict | list) or _may_be_json(value):
                self._memory.attempts[key] = attempt
        return attempt

    def untexted(self, value: object) -> object:
        """The list or object whose JSON text a value is, where coercion is allowed: models write them so now and then.

        Each text is parsed once, so that what is in it is the same for all who try to read it.
        """
        if self.level < LOOSE or not _may_be_json(value):
            return value
        if id(value) not in self._memory.texts:
            self._memory.texts[id(value)] = value, _parsed(value)
        return self._memory.texts[id(value)][1]

    def text(self) -> str:
        """All that is wrong, for the model; empty when nothing is."""
        if not self.count:
            return ""
        more = self.count - len(self.problems)
        lines = [*self.problems, *([f"and {more} more"] if more else [])]
        text = "invalid arguments:" + (f" {lines[0]}" if len(lines) == 1 else "".join(f"\n- {line}" for line in lines))
        return text.encode(errors="replace").decode()  # a lone surrogate could not be sent


def _may_be_json(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and value.lstrip()[:1] in ("[", "{")


def _parsed(text: str) -> object:
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError:
        return text


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


def inside(where: str, key: str | int) -> str:
    """The path of a member: `trip.stops[2].city`."""
    if isinstance(key, str) and re.fullmatch(_NAME, key):
        return f"{where}.{key}" if where else key
    return f"{where}[{shown(key)}]"


def shown(value: object) -> str:
    """A value as JSON, cut short; no more of a large one is looked at than is shown."""
    if isinstance(value, str):
        value = value[: _SHOWN + 1]
    text = ""
    try:
        for piece in json.JSONEncoder(ensure_ascii=False, default=repr).iterencode(value):
            text += piece[: _SHOWN + 1]
            if len(text) > _SHOWN:
                break
    except (ValueError, RecursionError):  # an integer of too many digits to be written
        text += "…"
    return cut(text, _SHOWN)


def cut(text: str, length: int) -> str:
    """Its beginning, if it is longer."""
    return text if len(text) <= length else text[: length - 1] + "…"

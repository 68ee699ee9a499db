"""One reading of what a model sent: the place in it, what is wrong so far, and how a value is shown in an error.

Authors add keywords of JSON Schema to a hint: `Annotated[int, {"minimum": 1, "maximum": 7}]`. Those that say which values are
valid are also checked when arguments are read, so that a schema never promises more than the handler gets. The others explain.
Those that the hint itself decides (`type`, `enum`, `items`, …) are refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

if TYPE_CHECKING:
    from serai.sdk.schema.values import ValueKind

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


class Validation:
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

    def add_problem(self, where: str, problem: str) -> None:
        self.count += 1
        if not self.is_full:
            self.problems.append(f"{shorten(where, _WHERE) or 'the arguments'} {problem}")

    def add_misfit(self, where: str, wanted: str, value: object) -> None:
        """The value is no such thing at all."""
        self._alien |= where == self._root
        self.add_problem(where, "" if self.is_full else f"must be {wanted}, not {to_text(value)}")

    def merge(self, attempt: Attempt) -> None:
        """What was wrong with an attempt is what is wrong."""
        self.count += len(attempt.problems)
        self.problems += attempt.problems[: _PROBLEMS - len(self.problems)]

    def attempt(self, kind: ValueKind, value: object, where: str, level: int) -> Attempt:
        """Read a value without obligation.

        Each list and object, or text of one, is tried once per kind: a union of unions would otherwise take time exponential in
        their depth.
        """
        key = (id(kind), id(value), level)
        attempt = self._memory.attempts.get(key)
        if attempt is None:
            reading = Validation(level, where, self._memory)
            attempt = Attempt(kind.read(value, where, reading), reading.problems, reading._alien, value)
            if isinstance(value, dict | list) or _may_be_json(value):
                self._memory.attempts[key] = attempt
        return attempt

    def decode_text(self, value: object) -> object:
        """The list or object whose JSON text a value is, where coercion is allowed: models write them so now and then.

        Each text is parsed once, so that what is in it is the same for all who try to read it.
        """
        if self.level < LOOSE or not _may_be_json(value):
            return value
        if id(value) not in self._memory.texts:
            self._memory.texts[id(value)] = value, _parse_json(value)
        return self._memory.texts[id(value)][1]

    def format_problems(self) -> str:
        """All that is wrong, for the model; empty when nothing is."""
        if not self.count:
            return ""
        more = self.count - len(self.problems)
        lines = [*self.problems, *([f"and {more} more"] if more else [])]
        text = "invalid arguments:" + (f" {lines[0]}" if len(lines) == 1 else "".join(f"\n- {line}" for line in lines))
        return text.encode(errors="replace").decode()  # a lone surrogate could not be sent


def _may_be_json(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and value.lstrip()[:1] in ("[", "{")


def _parse_json(text: str) -> object:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except ValueError:
        return text


def _refuse_constant(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


def join_path(where: str, key: str | int) -> str:
    """The path of a member: `trip.stops[2].city`."""
    if isinstance(key, str) and re.fullmatch(_NAME, key):
        return f"{where}.{key}" if where else key
    return f"{where}[{to_text(key)}]"


def to_text(value: object) -> str:
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
    return shorten(text, _SHOWN)


def shorten(text: str, length: int) -> str:
    """Its beginning, if it is longer."""
    return text if len(text) <= length else text[: length - 1] + "…"


class Underivable(Exception):
    """No schema can be made of a hint. Says what is wrong and what to write instead."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


class _Rule(NamedTuple):
    applies: str  # the JSON type that it is about; values of others always pass, as in JSON Schema
    limit: str  # what its own value must be
    holds: Callable[[Any, Any], bool]
    must: str


def _is_multiple(value: float, limit: float) -> bool:
    if isinstance(value, int) and isinstance(limit, int):
        return value % limit == 0
    from fractions import Fraction  # decimal fractions are meant: 0.3 is three times 0.1

    exact = [Fraction(one if isinstance(one, int) else repr(one)) for one in (value, limit)]
    return (exact[0] / exact[1]).denominator == 1


def _matches(value: str, limit: str) -> bool:
    return _compile_pattern(limit).search(value) is not None


_RULES: dict[str, _Rule] = {
    "minimum": _Rule("number", "a number", lambda value, limit: value >= limit, "be at least {}"),
    "maximum": _Rule("number", "a number", lambda value, limit: value <= limit, "be at most {}"),
    "exclusiveMinimum": _Rule("number", "a number", lambda value, limit: value > limit, "be greater than {}"),
    "exclusiveMaximum": _Rule("number", "a number", lambda value, limit: value < limit, "be less than {}"),
    "multipleOf": _Rule("number", "a number above zero", _is_multiple, "be a multiple of {}"),
    "minLength": _Rule("string", "a count", lambda value, limit: len(value) >= limit, "be at least {} characters long"),
    "maxLength": _Rule("string", "a count", lambda value, limit: len(value) <= limit, "be at most {} characters long"),
    "pattern": _Rule("string", "a pattern", _matches, "match the pattern {}"),
    "minItems": _Rule("array", "a count", lambda value, limit: len(value) >= limit, "have at least {} items"),
    "maxItems": _Rule("array", "a count", lambda value, limit: len(value) <= limit, "have at most {} items"),
    "uniqueItems": _Rule("array", "true or false", lambda value, limit: not limit or are_unique(value), "have no two equal items"),
    "minProperties": _Rule("object", "a count", lambda value, limit: len(value) >= limit, "have at least {} members"),
    "maxProperties": _Rule("object", "a count", lambda value, limit: len(value) <= limit, "have at most {} members"),
}

_EXPLAINING: dict[str, str] = {
    "title": "text",
    "description": "text",
    "format": "text",
    "contentEncoding": "text",
    "contentMediaType": "text",
    "$comment": "text",
    "examples": "a list",
    "deprecated": "true or false",
    "readOnly": "true or false",
    "writeOnly": "true or false",
}

_WANTED: dict[str, Callable[[Any], bool]] = {
    "text": lambda limit: isinstance(limit, str),
    "a list": lambda limit: isinstance(limit, list),
    "true or false": lambda limit: isinstance(limit, bool),
    "a number": lambda limit: get_json_type(limit) == "number",
    "a number above zero": lambda limit: get_json_type(limit) == "number" and limit > 0,
    "a count": lambda limit: type(limit) is int and limit >= 0,
    "a pattern": lambda limit: isinstance(limit, str),
}

# What the type hint says, with what says it.
_BY_THE_HINT = {
    "type": "the type itself",
    "const": "Literal",
    "enum": "Literal or an Enum",
    "items": "list[…]",
    "prefixItems": "tuple[…]",
    "properties": "a dataclass or a TypedDict",
    "required": "a dataclass or a TypedDict",
    "additionalProperties": "dict[str, …]",
    "anyOf": "a union",
    "oneOf": "a union",
    "default": "a default",
}
# What would have to be checked, and is not.
_UNCHECKED = [
    "$anchor",
    "$defs",
    "$dynamicAnchor",
    "$dynamicRef",
    "$id",
    "$ref",
    "$schema",
    "allOf",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "patternProperties",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
]


class Check(NamedTuple):
    """One keyword and its limit."""

    keyword: str
    limit: Any

    def find_problem(self, value: object) -> str:
        """What is wrong with a JSON value; empty when it passes."""
        rule = _RULES[self.keyword]
        if get_json_type(value) != rule.applies or rule.holds(value, self.limit):
            return ""
        return f"must {rule.must.format(self.limit)}, not {to_text(value)}"


def build_checks(keywords: Mapping[str, Any]) -> list[Check]:
    return [Check(keyword, limit) for keyword, limit in keywords.items() if keyword in _RULES]


def check_keywords(keywords: Mapping[str, Any], types: frozenset[str], taken: frozenset[str]) -> dict[str, Any]:
    """An author's keywords for a kind of these JSON types, that says the taken ones itself; raises `Underivable`."""
    found: dict[str, Any] = {}
    for keyword, given in keywords.items():
        rule = _RULES.get(keyword)
        wanted = rule.limit if rule else _EXPLAINING.get(keyword, "")
        if keyword in _BY_THE_HINT:
            raise Underivable(f"has the keyword {keyword!r}, which its hint decides", f"say it with {_BY_THE_HINT[keyword]}")
        if keyword in _UNCHECKED or not isinstance(keyword, str):
            raise Underivable(
                f"has the keyword {keyword!r}, which cannot be checked for a hint",
                "leave it out and check it in the handler, or give the tool a schema of your own: @ext.tool(schema={…})",
            )
        try:
            limit = normalize(given)
        except ValueError as error:
            raise Underivable(f"has the keyword {keyword!r} with a value that is not JSON: {error}", "write JSON") from None
        if wanted and not _WANTED[wanted](limit):
            raise Underivable(f"has the keyword {keyword!r} with {to_text(limit)}", f"its value must be {wanted}")
        if keyword == "pattern":
            _check_pattern(limit)
        if rule and rule.applies not in types:
            raise Underivable(
                f"has the keyword {keyword!r}, which says nothing about its type", f"it is for {_PLURAL[rule.applies]}"
            )
        if keyword in taken:
            raise Underivable(f"has the keyword {keyword!r}, which its hint says already", f"leave {keyword!r} out")
        found[keyword] = limit
    return found


_PLURAL = {"number": "numbers", "string": "strings", "array": "lists", "object": "objects"}


def normalize(value: object) -> Any:
    """A value as JSON has it, with lists for tuples; raises `ValueError` if it is not JSON."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def get_json_type(value: object) -> str:
    """The JSON type of a value, integers being numbers; empty when it has none."""
    if isinstance(value, float) and not math.isfinite(value):
        return ""
    return _TYPES.get(type(value), "")


_TYPES = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}


def are_unique(values: list[Any]) -> bool:
    """Whether no two are equal as JSON has it: 1 and 1.0 are, 1 and true are not.

    They are compared as text, whose hash nobody can foresee: numbers can be chosen so that all have the same.
    """
    return len({_canonicalize(value) for value in values}) == len(values)


def _canonicalize(value: Any) -> str:
    """A text that two values share if they are equal."""
    out: list[str] = []
    _write_canonical(value, out)
    return "".join(out)


def _write_canonical(value: Any, out: list[str]) -> None:
    if isinstance(value, list):
        out.append("[")
        for item in value:
            _write_canonical(item, out)
            out.append(",")
        out.append("]")
    elif isinstance(value, dict):
        out.append("{")
        for name in sorted(value):
            out.append(f"{name!r}:")
            _write_canonical(value[name], out)
            out.append(",")
        out.append("}")
    elif type(value) is int or (type(value) is float and value.is_integer()):
        out.append(hex(int(value)))  # the digits of a long one would take too long
    else:
        out.append(repr(value))


def find_non_finite(value: object) -> str:
    """NaN or infinity, wherever in a value it is; empty when there is none. JSON does not have them and Python lets them in."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, list):
            left += one
        elif isinstance(one, dict):
            left += one.values()
        elif isinstance(one, float) and not math.isfinite(one):
            return to_text(one)
    return ""


def _check_pattern(pattern: str) -> None:
    """Raises `Underivable` if Python does not, or nobody else."""
    try:
        _compile_pattern(pattern)
    except (ValueError, RecursionError, OverflowError) as error:
        raise Underivable(f"has the pattern {to_text(pattern)}: {error}", "write it as JSON Schema has it (ECMA 262)") from None


@lru_cache(maxsize=512)  # as `re` keeps its own
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    """A pattern of JSON Schema for Python: `$` is the very end, classes are about ASCII; what Python alone reads is refused.

    Python matches by trying, so a quantifier inside another, as in `^(a+)+$`, makes it slow for its own author.
    """
    pieces = re.findall(r"\\.|\[(?:\\.|[^\]\\])*\]|\(\?.?|[*+?}]\+|.", pattern, re.DOTALL)
    for piece in pieces:
        group = piece[:2] == "(?" and piece[2:] not in (":", "=", "!", "<")
        if group or piece in (r"\A", r"\Z", "*+", "++", "?+", "}+"):
            raise ValueError(f"{piece} is something that only Python reads")
    try:
        return re.compile("".join(r"\Z" if piece == "$" else piece for piece in pieces), re.ASCII)
    except re.error as error:
        raise ValueError(str(error)) from None

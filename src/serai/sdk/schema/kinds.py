"""What values a hint lets in: each `Kind` has a schema, and reads a JSON value into what the handler gets.

Models are sloppy, so values are coerced where their meaning is plain. What the schema accepts is never changed in meaning.

    wanted                  came                            the handler gets
    ----------------------  ------------------------------  ---------------------------------
    an integer              5.0, "5"                        5
    a number                5, "1.5"                        5.0, 1.5
    true or false           "true", "False"                 True, False
    a string                5, 1.5                          "5", "1.5"
    one of several values   what has the same text          that value
    a list, an object       its JSON text                   the list, the object
    a set                   a list with equal items         each of them once
    what has a default      null, where null does not fit   the default

Never: a boolean as a number or as text, or NaN and infinity at all. Of a union the member that fits as it is wins; then one that
fits by the schema (5.0 for an integer); coercion comes last, in the order of the members.

Here are the kinds of single values; `serai.sdk.schema.shapes` has those that are made of others.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from serai.sdk.schema.keywords import Check, json_type, not_json
from serai.sdk.schema.reading import LOOSE, SAME, VALID, Reading, cut, shown

__all__ = ["MISFIT", "Anything", "Boolean", "Integer", "Kind", "Never", "Null", "Number", "OneOf", "Parsed", "Schema", "String"]

Schema = dict[str, Any]

MISFIT: Any = object()  # what a value becomes that is not of a kind at all

# Compiled when a text comes: an extension's start waits for this module.
_INTEGER = r"[+-]?[0-9]+(\.0*)?"
_NUMBER = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"
_OPTIONS = 600  # characters of a list of options in an error


class Kind:
    """A kind of values."""

    word = ""  # for errors: "must be a string"
    schema_type = ""  # its type in a schema
    types: frozenset[str] = frozenset()  # the JSON types that keywords are about and that its values can have
    says: frozenset[str] = frozenset()  # the keywords that belong to the kind itself
    nests = False  # whether it is a list or an object, which may come as text
    hashable = True  # so that it can be in a set
    scattered = False  # whether nobody can choose many values of it that have one hash

    def __init__(self) -> None:
        self.keywords: Schema = {}
        self.checks: list[Check] = []

    def annotated(self, keywords: Schema, checks: Iterable[Check]) -> Self:
        """The same, with more keywords in its schema and more to check."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        replaced = keywords.keys() & self.keywords.keys()
        copy.keywords = {**self.keywords, **keywords}
        kept = [check for check in self.checks if check.keyword not in replaced]
        copy.checks = sorted([*kept, *checks], key=lambda check: check.keyword == "pattern")  # that may be slow: it comes last
        return copy

    def schema(self, defs: Schema) -> Schema:
        """Its JSON Schema; what refers to itself goes to the definitions."""
        return {**self._shape(defs), **self.keywords}

    def read(self, value: object, where: str, reading: Reading) -> Any:
        """The value for the handler; what is wrong is said to the reading."""
        plain = self._plain(reading.untexted(value) if self.nests else value, reading.level)
        if plain is MISFIT:
            reading.misfit(where, self.word, value)
            return None
        before = reading.count
        for check in self.checks:
            if check.keyword == "pattern" and reading.count > before:
                break  # what is too long is not matched
            if problem := check.problem(plain):
                reading.wrong(where, problem)
        return self._made(plain, where, reading)

    def _shape(self, defs: Schema) -> Schema:
        """The schema without the author's keywords."""
        del defs
        return {"type": self.schema_type} if self.schema_type else {}

    def _plain(self, value: object, level: int) -> Any:
        """The JSON value of this kind that is meant, or `MISFIT`."""
        del level
        return value

    def _made(self, plain: Any, where: str, reading: Reading) -> Any:
        """What the handler gets for it."""
        del where, reading
        return plain


class Anything(Kind):
    word = "any value"
    types = frozenset({"number", "string", "array", "object"})
    hashable = False

    def _made(self, plain: Any, where: str, reading: Reading) -> Any:
        if number := not_json(plain):
            reading.wrong(where, f"must be JSON, which has no {number}")
        return plain


class Never(Kind):
    """No value at all: a name that is taken."""

    word = "left out"

    def _shape(self, defs: Schema) -> Schema:
        del defs
        return {"not": {}}

    def _plain(self, value: object, level: int) -> Any:
        del value, level
        return MISFIT


class Null(Kind):
    word = schema_type = "null"
    scattered = True

    def _plain(self, value: object, level: int) -> Any:
        del level
        return None if value is None else MISFIT


class Boolean(Kind):
    word, schema_type = "true or false", "boolean"
    scattered = True

    def _plain(self, value: object, level: int) -> Any:
        if level == LOOSE and isinstance(value, str):
            return {"true": True, "false": False}.get(value.strip().lower(), MISFIT)
        return value if isinstance(value, bool) else MISFIT


class Integer(Kind):
    word, schema_type = "an integer", "integer"
    types = frozenset({"number"})

    def _plain(self, value: object, level: int) -> Any:
        if type(value) is int:
            return value
        if level >= VALID and type(value) is float and value.is_integer():  # as JSON Schema has it
            return int(value)
        if level == LOOSE and isinstance(value, str) and re.fullmatch(_INTEGER, text := value.strip()):
            try:
                return int(text.partition(".")[0])
            except ValueError:  # more digits than Python reads
                return MISFIT
        return MISFIT


class Number(Kind):
    word, schema_type = "a number", "number"
    types = frozenset({"number"})

    def _plain(self, value: object, level: int) -> Any:
        try:
            if type(value) is int and level >= VALID:
                return float(value)
        except OverflowError:  # beyond what a float holds
            return MISFIT
        if level == LOOSE and isinstance(value, str) and re.fullmatch(_NUMBER, text := value.strip()):
            value = float(text)
        return value if type(value) is float and math.isfinite(value) else MISFIT


class String(Kind):
    word, schema_type = "a string", "string"
    types = frozenset({"string"})
    scattered = True  # Python salts the hash of text, and of what is made of it

    def _plain(self, value: object, level: int) -> Any:
        if level == LOOSE and json_type(value) == "number":
            return _text(value) or MISFIT
        return value if isinstance(value, str) else MISFIT


class Parsed(String):
    """A string that stands for something else: a path, a date."""

    def __init__(self, word: str, parse: Callable[[str], object], format: str = "") -> None:
        super().__init__()
        self.word, self._parse, self._format = word, parse, format

    def _shape(self, defs: Schema) -> Schema:
        return {**super()._shape(defs), **({"format": self._format} if self._format else {})}

    def _made(self, plain: Any, where: str, reading: Reading) -> Any:
        try:
            return self._parse(plain)
        except (ValueError, OverflowError):
            reading.misfit(where, self.word, plain)
            return None


class OneOf(Kind):
    """Certain values and no others: a `Literal`, an Enum. The handler gets what each stands for."""

    scattered = True

    def __init__(self, options: Sequence[tuple[Any, object]]) -> None:
        super().__init__()
        self._options = options
        self.types = frozenset(json_type(value) for value, _ in options)
        self.word = cut(("one of " if len(options) > 1 else "") + ", ".join(shown(value) for value, _ in options), _OPTIONS)

    def _shape(self, defs: Schema) -> Schema:
        del defs
        values = [value for value, _ in self._options]
        types = {"integer" if type(value) is int else json_type(value) for value in values}
        return {**({"type": types.pop()} if len(types) == 1 else {}), "enum": values}

    def _plain(self, value: object, level: int) -> Any:
        for option, _ in self._options:
            if _equal(option, value) and (level > SAME or type(option) is type(value)):
                return option
        if level == LOOSE and (text := _text(value)):
            alike = [option for option, _ in self._options if _text(option) == text]
            return alike[0] if len(alike) == 1 else MISFIT
        return MISFIT

    def _made(self, plain: Any, where: str, reading: Reading) -> Any:
        del where, reading
        return next(stands_for for option, stands_for in self._options if _equal(option, plain))


def _equal(one: object, other: object) -> bool:
    """As JSON has it: 1 and 1.0 are, 1 and true are not."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _text(value: object) -> str:
    """The text of a single value; empty when it has none."""
    if isinstance(value, str):
        return value
    try:
        return "" if json_type(value) in ("", "array", "object") else json.dumps(value)
    except ValueError:  # an integer of too many digits to be written
        return ""

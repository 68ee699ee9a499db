"""The values that a hint accepts: each `ValueKind` has a schema, and reads a JSON value into what the handler gets.

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
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self

from serai.sdk.schema.validation import (
    LOOSE,
    SAME,
    VALID,
    Attempt,
    Check,
    Validation,
    are_unique,
    build_checks,
    find_non_finite,
    get_json_type,
    join_path,
    shorten,
    to_text,
)

Schema = dict[str, Any]

MISFIT: Any = object()  # what a value becomes that is not of a kind at all

# Compiled when a text comes: an extension's start waits for this module.
_INTEGER = r"[+-]?[0-9]+(\.0*)?"
_NUMBER = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"
_OPTIONS = 600  # characters of a list of options in an error


class ValueKind:
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

    def annotate(self, keywords: Schema, checks: Iterable[Check]) -> Self:
        """The same, with more keywords in its schema and more to check."""
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        replaced = keywords.keys() & self.keywords.keys()
        copy.keywords = {**self.keywords, **keywords}
        kept = [check for check in self.checks if check.keyword not in replaced]
        copy.checks = sorted([*kept, *checks], key=lambda check: check.keyword == "pattern")  # that may be slow: it comes last
        return copy

    def build_schema(self, defs: Schema) -> Schema:
        """Its JSON Schema; what refers to itself goes to the definitions."""
        return {**self._build_shape(defs), **self.keywords}

    def read(self, value: object, where: str, reading: Validation) -> Any:
        """The value for the handler; what is wrong is said to the reading."""
        plain = self._to_plain(reading.decode_text(value) if self.nests else value, reading.level)
        if plain is MISFIT:
            reading.add_misfit(where, self.word, value)
            return None
        before = reading.count
        for check in self.checks:
            if check.keyword == "pattern" and reading.count > before:
                break  # what is too long is not matched
            if problem := check.find_problem(plain):
                reading.add_problem(where, problem)
        return self._convert(plain, where, reading)

    def _build_shape(self, defs: Schema) -> Schema:
        """The schema without the author's keywords."""
        del defs
        return {"type": self.schema_type} if self.schema_type else {}

    def _to_plain(self, value: object, level: int) -> Any:
        """The JSON value of this kind that is meant, or `MISFIT`."""
        del level
        return value

    def _convert(self, plain: Any, where: str, reading: Validation) -> Any:
        """What the handler gets for it."""
        del where, reading
        return plain


class Anything(ValueKind):
    word = "any value"
    types = frozenset({"number", "string", "array", "object"})
    hashable = False

    def _convert(self, plain: Any, where: str, reading: Validation) -> Any:
        if number := find_non_finite(plain):
            reading.add_problem(where, f"must be JSON, which has no {number}")
        return plain


class Never(ValueKind):
    """No value at all: a name that is taken."""

    word = "left out"

    def _build_shape(self, defs: Schema) -> Schema:
        del defs
        return {"not": {}}

    def _to_plain(self, value: object, level: int) -> Any:
        del value, level
        return MISFIT


class Null(ValueKind):
    word = schema_type = "null"
    scattered = True

    def _to_plain(self, value: object, level: int) -> Any:
        del level
        return None if value is None else MISFIT


class Boolean(ValueKind):
    word, schema_type = "true or false", "boolean"
    scattered = True

    def _to_plain(self, value: object, level: int) -> Any:
        if level == LOOSE and isinstance(value, str):
            return {"true": True, "false": False}.get(value.strip().lower(), MISFIT)
        return value if isinstance(value, bool) else MISFIT


class Integer(ValueKind):
    word, schema_type = "an integer", "integer"
    types = frozenset({"number"})

    def _to_plain(self, value: object, level: int) -> Any:
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


class Number(ValueKind):
    word, schema_type = "a number", "number"
    types = frozenset({"number"})

    def _to_plain(self, value: object, level: int) -> Any:
        try:
            if type(value) is int and level >= VALID:
                return float(value)
        except OverflowError:  # beyond what a float holds
            return MISFIT
        if level == LOOSE and isinstance(value, str) and re.fullmatch(_NUMBER, text := value.strip()):
            value = float(text)
        return value if type(value) is float and math.isfinite(value) else MISFIT


class String(ValueKind):
    word, schema_type = "a string", "string"
    types = frozenset({"string"})
    scattered = True  # Python salts the hash of text, and of what is made of it

    def _to_plain(self, value: object, level: int) -> Any:
        if level == LOOSE and get_json_type(value) == "number":
            return _to_text(value) or MISFIT
        return value if isinstance(value, str) else MISFIT


class Parsed(String):
    """A string that stands for something else: a path, a date."""

    def __init__(self, word: str, parse: Callable[[str], object], format: str = "") -> None:
        super().__init__()
        self.word, self._parse, self._format = word, parse, format

    def _build_shape(self, defs: Schema) -> Schema:
        return {**super()._build_shape(defs), **({"format": self._format} if self._format else {})}

    def _convert(self, plain: Any, where: str, reading: Validation) -> Any:
        try:
            return self._parse(plain)
        except (ValueError, OverflowError):
            reading.add_misfit(where, self.word, plain)
            return None


class OneOf(ValueKind):
    """Certain values and no others: a `Literal`, an Enum. The handler gets what each stands for."""

    scattered = True

    def __init__(self, options: Sequence[tuple[Any, object]]) -> None:
        super().__init__()
        self._options = options
        self.types = frozenset(get_json_type(value) for value, _ in options)
        self.word = shorten(("one of " if len(options) > 1 else "") + ", ".join(to_text(value) for value, _ in options), _OPTIONS)

    def _build_shape(self, defs: Schema) -> Schema:
        del defs
        values = [value for value, _ in self._options]
        types = {"integer" if type(value) is int else get_json_type(value) for value in values}
        return {**({"type": types.pop()} if len(types) == 1 else {}), "enum": values}

    def _to_plain(self, value: object, level: int) -> Any:
        for option, _ in self._options:
            if _are_equal(option, value) and (level > SAME or type(option) is type(value)):
                return option
        if level == LOOSE and (text := _to_text(value)):
            alike = [option for option, _ in self._options if _to_text(option) == text]
            return alike[0] if len(alike) == 1 else MISFIT
        return MISFIT

    def _convert(self, plain: Any, where: str, reading: Validation) -> Any:
        del where, reading
        return next(stands_for for option, stands_for in self._options if _are_equal(option, plain))


def _are_equal(one: object, other: object) -> bool:
    """As JSON has it: 1 and 1.0 are, 1 and true are not."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _to_text(value: object) -> str:
    """The text of a single value; empty when it has none."""
    if isinstance(value, str):
        return value
    try:
        return "" if get_json_type(value) in ("", "array", "object") else json.dumps(value)
    except ValueError:  # an integer of too many digits to be written
        return ""


# A set finds its items by their hash, and numbers can be chosen so that each stands in the way of all others: to make a set of them
# takes time quadratic in their count. So sets of what is not text have a limit, and fewer items of the very same hash.
_SET = 10_000
_CROWD = 64


class ListKind(ValueKind):
    """A JSON array of equals; the handler gets what `make` makes of the list."""

    word = "a list"
    types = frozenset({"array"})
    nests = True

    def __init__(self, items: ValueKind, make: Callable[[list[Any]], object] = list) -> None:
        super().__init__()
        self._items, self._make = items, make
        self._is_set = make in (set, frozenset)
        if self._is_set and not items.scattered:  # an author who says a `maxItems` knows better
            self.keywords = {"maxItems": _SET}
            self.checks = build_checks(self.keywords)
        self.says = frozenset({"uniqueItems"} if self._is_set else ())
        self.hashable = make in (tuple, frozenset) and items.hashable

    def _build_shape(self, defs: Schema) -> Schema:
        items = self._items.build_schema(defs)
        return {"type": "array", **({"items": items} if items else {}), **({"uniqueItems": True} if self._is_set else {})}

    def _to_plain(self, value: object, level: int) -> Any:
        if not isinstance(value, list) or (self._is_set and level < LOOSE and not are_unique(value)):
            return MISFIT
        return value

    def _convert(self, plain: Any, where: str, reading: Validation) -> Any:
        values = [self._items.read(value, f"{where}[{index}]", reading) for index, value in enumerate(plain)]
        if self._is_set and not reading.count and not self._items.scattered and _is_crowded(values):
            reading.add_problem(where, "has too many items of one hash; no set is made of them")
        return None if reading.count else self._make(values)


class Tuple(ValueKind):
    """A JSON array with a kind for each place."""

    types = frozenset({"array"})
    nests = True
    says = frozenset({"minItems", "maxItems"})

    def __init__(self, places: Sequence[ValueKind]) -> None:
        super().__init__()
        self._places = places
        self.word = f"a list of {len(places)}"
        self.hashable = all(kind.hashable for kind in places)

    def _build_shape(self, defs: Schema) -> Schema:
        places = [kind.build_schema(defs) for kind in self._places]
        length = len(places)
        return {"type": "array", **({"prefixItems": places} if places else {}), "minItems": length, "maxItems": length}

    def _to_plain(self, value: object, level: int) -> Any:
        del level
        return value if isinstance(value, list) and len(value) == len(self._places) else MISFIT

    def _convert(self, plain: Any, where: str, reading: Validation) -> Any:
        pairs = enumerate(zip(self._places, plain, strict=True))
        return tuple([kind.read(value, f"{where}[{index}]", reading) for index, (kind, value) in pairs])


class MapKind(ValueKind):
    """A JSON object with any names."""

    word = "an object"
    types = frozenset({"object"})
    nests = True
    hashable = False

    def __init__(self, values: ValueKind) -> None:
        super().__init__()
        self._values = values

    def _build_shape(self, defs: Schema) -> Schema:
        values = self._values.build_schema(defs)
        return {"type": "object", **({"additionalProperties": values} if values else {})}

    def _to_plain(self, value: object, level: int) -> Any:
        del level
        return value if isinstance(value, dict) else MISFIT

    def _convert(self, plain: Any, where: str, reading: Validation) -> Any:
        return {name: self._values.read(value, join_path(where, name), reading) for name, value in plain.items()}


class Field(NamedTuple):
    """One member of a record."""

    name: str
    kind: ValueKind
    required: bool
    notes: Schema  # what its schema says besides: description, default


class ObjectKind(ValueKind):
    """A JSON object with certain names: a dataclass, a TypedDict, the arguments of a tool.

    It is made empty and filled afterwards, so that it can be one of its own fields; it is `recursive` from the moment it is.
    """

    word = "an object"
    types = frozenset({"object"})
    nests = True

    def __init__(self, name: str, make: Callable[[dict[str, Any]], object], *, hashable: bool = False) -> None:
        super().__init__()
        self.fields: dict[str, Field] = {}
        self.rest: ValueKind | None = None  # what further members are; None: there are none
        self.recursive = False
        self.hashable = hashable
        self._name, self._make = name, make

    def _build_shape(self, defs: Schema) -> Schema:
        if not self.recursive:
            return self._build_object(defs)
        if self._name not in defs:
            defs[self._name] = {}  # it is coming
            defs[self._name] = self._build_object(defs)
        return {"$ref": f"#/$defs/{self._name}"}

    def _build_object(self, defs: Schema) -> Schema:
        properties = {field.name: {**field.kind.build_schema(defs), **field.notes} for field in self.fields.values()}
        required = [field.name for field in self.fields.values() if field.required]
        return {
            "type": "object",
            "properties": properties,
            **({"required": required} if required else {}),
            "additionalProperties": False if self.rest is None else self.rest.build_schema(defs) or True,
        }

    def _to_plain(self, value: object, level: int) -> Any:
        del level
        return value if isinstance(value, dict) else MISFIT

    def _convert(self, plain: Any, where: str, reading: Validation) -> Any:
        before = reading.count
        values: dict[str, Any] = {}
        for name, field in self.fields.items():
            if name not in plain:
                if field.required:
                    reading.add_problem(join_path(where, name), f"is required ({field.kind.word})")
            elif not _is_default(field, plain[name], reading):
                values[name] = field.kind.read(plain[name], join_path(where, name), reading)
        for name in [name for name in plain if name not in self.fields]:
            if self.rest is None:
                reading.add_problem(join_path(where, name), "" if reading.is_full else self._describe_unknown(name))
            else:
                values[name] = self.rest.read(plain[name], join_path(where, name), reading)
        return self._build(values, where, reading) if reading.count == before else None

    def _build(self, values: dict[str, Any], where: str, reading: Validation) -> Any:
        try:
            return self._make(values)
        except (RecursionError, MemoryError):
            raise
        except Exception as error:  # the author's own checks, such as in `__post_init__`
            reading.add_problem(where, f"does not fit: {str(error) or type(error).__name__}")
            return None

    def _describe_unknown(self, name: str) -> str:
        from difflib import get_close_matches

        if close := get_close_matches(name[:80].lower(), self.fields, 1):
            return f"is unknown; did you mean {close[0]}?"
        return f"is unknown; known are {', '.join(self.fields)}" if self.fields else "is unknown; nothing can be given here"


class Union(ValueKind):
    """One of several kinds; their order counts where a value fits none as it is."""

    def __init__(self, kinds: Sequence[ValueKind]) -> None:
        super().__init__()
        self._kinds = kinds
        self.types = frozenset().union(*(kind.types for kind in kinds))
        self.hashable = all(kind.hashable for kind in kinds)
        self.scattered = all(kind.scattered for kind in kinds)
        *first, last = dict.fromkeys(kind.word for kind in kinds)
        self.word = f"{', '.join(first)} or {last}" if first else last

    def annotate(self, keywords: Schema, checks: Iterable[Check]) -> Self:
        """The keywords are its own; what they say is checked where a value is read."""
        checks = list(checks)
        copy = super().annotate(keywords, ())
        copy._kinds = [kind.annotate({}, checks) for kind in self._kinds]
        return copy

    def _build_shape(self, defs: Schema) -> Schema:
        return {"anyOf": [kind.build_schema(defs) for kind in self._kinds]}

    def read(self, value: object, where: str, reading: Validation) -> Any:
        attempts: list[Attempt] = []
        for level in range(reading.level + 1):
            attempts.clear()
            for kind in self._kinds:
                attempt = reading.attempt(kind, value, where, level)
                if not attempt.problems:
                    return attempt.value
                attempts.append(attempt)
        # What is wrong is told of the member that was meant, as far as one can see.
        nearest = min((attempt for attempt in attempts if not attempt.alien), key=lambda one: len(one.problems), default=None)
        if nearest is None:
            reading.add_misfit(where, self.word, value)
        else:
            reading.merge(nearest)
        return None


def make_nullable(kind: ValueKind) -> ValueKind:
    """The same or null, as `city: str = None` means it."""
    if not Validation().attempt(kind, None, "", LOOSE).problems:
        return kind
    kind = kind.annotate({}, ())
    union = Union([kind, Null()])
    if "description" in kind.keywords:  # it is about both
        union.keywords["description"] = kind.keywords.pop("description")
    return union


def _is_default(field: Field, value: object, reading: Validation) -> bool:
    """Whether it is a null that stands for the default."""
    if value is not None or field.required or reading.level < LOOSE:
        return False
    return bool(reading.attempt(field.kind, None, "", LOOSE).problems)


def _is_crowded(values: list[Any]) -> bool:
    """Whether many that differ have the same hash."""
    places: dict[str, set[Any]] = {}  # by text: the hashes themselves would crowd a table of numbers
    for value in values if len(values) > _CROWD else ():
        place = places.setdefault(str(hash(value)), set())
        place.add(value)
        if len(place) > _CROWD:
            return True
    return False

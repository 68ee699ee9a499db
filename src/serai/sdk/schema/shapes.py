"""The kinds that are made of others: lists, objects, unions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self

from serai.sdk.schema.keywords import Check, checks, unique
from serai.sdk.schema.kinds import MISFIT, Kind, Null, Schema
from serai.sdk.schema.reading import LOOSE, Attempt, Reading, inside

__all__ = ["Field", "Listing", "Map", "Record", "Tuple", "Union", "nullable"]

# A set finds its items by their hash, and numbers can be chosen so that each stands in the way of all others: to make a set of them
# takes time quadratic in their count. So sets of what is not text have a limit, and fewer items of the very same hash.
_SET = 10_000
_CROWD = 64


class Listing(Kind):
    """A JSON array of equals; the handler gets what `make` makes of the list."""

    word = "a list"
    types = frozenset({"array"})
    nests = True

    def __init__(self, items: Kind, make: Callable[[list[Any]], object] = list) -> None:
        super().__init__()
        self._items, self._make = items, make
        self._is_set = make in (set, frozenset)
        if self._is_set and not items.scattered:  # an author who says a `maxItems` knows better
            self.keywords = {"maxItems": _SET}
            self.checks = checks(self.keywords)
        self.says = frozenset({"uniqueItems"} if self._is_set else ())
        self.hashable = make in (tuple, frozenset) and items.hashable

    def _shape(self, defs: Schema) -> Schema:
        items = self._items.schema(defs)
        return {"type": "array", **({"items": items} if items else {}), **({"uniqueItems": True} if self._is_set else {})}

    def _plain(self, value: object, level: int) -> Any:
        if not isinstance(value, list) or (self._is_set and level < LOOSE and not unique(value)):
            return MISFIT
        return value

    def _made(self, plain: Any, where: str, reading: Reading) -> Any:
        values = [self._items.read(value, f"{where}[{index}]", reading) for index, value in enumerate(plain)]
        if self._is_set and not reading.count and not self._items.scattered and _is_crowded(values):
            reading.wrong(where, "has too many items of one hash; no set is made of them")
        return None if reading.count else self._make(values)


class Tuple(Kind):
    """A JSON array with a kind for each place."""

    types = frozenset({"array"})
    nests = True
    says = frozenset({"minItems", "maxItems"})

    def __init__(self, places: Sequence[Kind]) -> None:
        super().__init__()
        self._places = places
        self.word = f"a list of {len(places)}"
        self.hashable = all(kind.hashable for kind in places)

    def _shape(self, defs: Schema) -> Schema:
        places = [kind.schema(defs) for kind in self._places]
        length = len(places)
        return {"type": "array", **({"prefixItems": places} if places else {}), "minItems": length, "maxItems": length}

    def _plain(self, value: object, level: int) -> Any:
        del level
        return value if isinstance(value, list) and len(value) == len(self._places) else MISFIT

    def _made(self, plain: Any, where: str, reading: Reading) -> Any:
        pairs = enumerate(zip(self._places, plain, strict=True))
        return tuple([kind.read(value, f"{where}[{index}]", reading) for index, (kind, value) in pairs])


class Map(Kind):
    """A JSON object with any names."""

    word = "an object"
    types = frozenset({"object"})
    nests = True
    hashable = False

    def __init__(self, values: Kind) -> None:
        super().__init__()
        self._values = values

    def _shape(self, defs: Schema) -> Schema:
        values = self._values.schema(defs)
        return {"type": "object", **({"additionalProperties": values} if values else {})}

    def _plain(self, value: object, level: int) -> Any:
        del level
        return value if isinstance(value, dict) else MISFIT

    def _made(self, plain: Any, where: str, reading: Reading) -> Any:
        return {name: self._values.read(value, inside(where, name), reading) for name, value in plain.items()}


class Field(NamedTuple):
    """One member of a record."""

    name: str
    kind: Kind
    required: bool
    notes: Schema  # what its schema says besides: description, default


class Record(Kind):
    """A JSON object with certain names: a dataclass, a TypedDict, the arguments of a tool.

    It is made empty and filled afterwards, so that it can be one of its own fields; it is `recursive` from the moment it is.
    """

    word = "an object"
    types = frozenset({"object"})
    nests = True

    def __init__(self, name: str, make: Callable[[dict[str, Any]], object], *, hashable: bool = False) -> None:
        super().__init__()
        self.fields: dict[str, Field] = {}
        self.rest: Kind | None = None  # what further members are; None: there are none
        self.recursive = False
        self.hashable = hashable
        self._name, self._make = name, make

    def _shape(self, defs: Schema) -> Schema:
        if not self.recursive:
            return self._object(defs)
        if self._name not in defs:
            defs[self._name] = {}  # it is coming
            defs[self._name] = self._object(defs)
        return {"$ref": f"#/$defs/{self._name}"}

    def _object(self, defs: Schema) -> Schema:
        properties = {field.name: {**field.kind.schema(defs), **field.notes} for field in self.fields.values()}
        required = [field.name for field in self.fields.values() if field.required]
        return {
            "type": "object",
            "properties": properties,
            **({"required": required} if required else {}),
            "additionalProperties": False if self.rest is None else self.rest.schema(defs) or True,
        }

    def _plain(self, value: object, level: int) -> Any:
        del level
        return value if isinstance(value, dict) else MISFIT

    def _made(self, plain: Any, where: str, reading: Reading) -> Any:
        before = reading.count
        values: dict[str, Any] = {}
        for name, field in self.fields.items():
            if name not in plain:
                if field.required:
                    reading.wrong(inside(where, name), f"is required ({field.kind.word})")
            elif not _is_default(field, plain[name], reading):
                values[name] = field.kind.read(plain[name], inside(where, name), reading)
        for name in [name for name in plain if name not in self.fields]:
            if self.rest is None:
                reading.wrong(inside(where, name), "" if reading.is_full else self._unknown(name))
            else:
                values[name] = self.rest.read(plain[name], inside(where, name), reading)
        return self._build(values, where, reading) if reading.count == before else None

    def _build(self, values: dict[str, Any], where: str, reading: Reading) -> Any:
        try:
            return self._make(values)
        except (RecursionError, MemoryError):
            raise
        except Exception as error:  # the author's own checks, such as in `__post_init__`
            reading.wrong(where, f"does not fit: {str(error) or type(error).__name__}")
            return None

    def _unknown(self, name: str) -> str:
        from difflib import get_close_matches

        if close := get_close_matches(name[:80].lower(), self.fields, 1):
            return f"is unknown; did you mean {close[0]}?"
        return f"is unknown; known are {', '.join(self.fields)}" if self.fields else "is unknown; nothing can be given here"


class Union(Kind):
    """One of several kinds; their order counts where a value fits none as it is."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        super().__init__()
        self._kinds = kinds
        self.types = frozenset().union(*(kind.types for kind in kinds))
        self.hashable = all(kind.hashable for kind in kinds)
        self.scattered = all(kind.scattered for kind in kinds)
        *first, last = dict.fromkeys(kind.word for kind in kinds)
        self.word = f"{', '.join(first)} or {last}" if first else last

    def annotated(self, keywords: Schema, checks: Iterable[Check]) -> Self:
        """The keywords are its own; what they say is checked where a value is read."""
        checks = list(checks)
        copy = super().annotated(keywords, ())
        copy._kinds = [kind.annotated({}, checks) for kind in self._kinds]
        return copy

    def _shape(self, defs: Schema) -> Schema:
        return {"anyOf": [kind.schema(defs) for kind in self._kinds]}

    def read(self, value: object, where: str, reading: Reading) -> Any:
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
            reading.misfit(where, self.word, value)
        else:
            reading.repeat(nearest)
        return None


def nullable(kind: Kind) -> Kind:
    """The same or null, as `city: str = None` means it."""
    if not Reading().attempt(kind, None, "", LOOSE).problems:
        return kind
    kind = kind.annotated({}, ())
    union = Union([kind, Null()])
    if "description" in kind.keywords:  # it is about both
        union.keywords["description"] = kind.keywords.pop("description")
    return union


def _is_default(field: Field, value: object, reading: Reading) -> bool:
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

"""How big values are, and what a schema's check will cost at most: found before anything is built or checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from serai.limits import MIB

__all__ = ["Json", "Shape", "Size", "Unfit", "cut", "measure"]

Json = dict[str, Any]

_CHAIN = 250  # subschemas in each other, through references
_UNFOLDED = 50_000  # checks of one value when no reference is shared: some milliseconds
_DEPTH = 100  # of arguments
# Subschemas on the library's stack at once: measured, these fit in 2 MiB, and a thread has 8.
_STACK = 8_000
_NODES = 10 * MIB
_PIECE = 180  # of a text that is quoted

SCALARS = frozenset({str, int, float, bool, type(None)})
_CONTAINERS = (dict, list, tuple)


class Unfit(Exception):
    """Why something cannot be used, as the rest of a sentence that begins with what it is."""


class Size(NamedTuple):
    """`text` is what patterns may have to look at: the bytes of all strings, and one for each part."""

    depth: int
    nodes: int
    text: int


def measure(value: object, *, depth: int, length: int, nodes: int = _NODES) -> Size:
    """How deep and how big a value is, level by level: what is too deep for a recursion is not too deep for this."""
    level: list[Any] = [value if isinstance(value, _CONTAINERS) else (value,)]
    levels, count, characters = 0, 1, 0
    while level:
        levels += 1
        if levels > depth:
            raise Unfit(f"nested more than {depth} levels deep")
        inner = []
        for item in level:
            count += len(item)
            parts = item
            if isinstance(item, dict):
                characters += sum([_bytes(key) for key in item if type(key) is str])
                parts = item.values()
            for part in parts:
                if (kind := type(part)) is str:
                    characters += _bytes(part)
                elif kind not in SCALARS and isinstance(part, _CONTAINERS):
                    inner.append(part)
            if characters + count > length:
                raise Unfit(f"longer than {length} bytes")
            if count > nodes:
                raise Unfit(f"of more than {nodes} parts")
        level = inner
    return Size(levels, count, characters + count)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def cut(text: str, most: int = _PIECE) -> str:
    """One line of printable characters, not longer than that."""
    line = "".join(character if character.isprintable() else " " for character in text[: most + 1])
    return line if len(line) <= most else line[: most - 1] + "…"


# -- the shape of a schema --------------------------------------------------------------------------------------------------------

# Where a schema has schemas: as the value, as the values of a list, or (True) under names.
_APPLIED = dict.fromkeys(
    (
        *("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "items", "prefixItems", "additionalItems", "contains"),
        *("additionalProperties", "propertyNames", "unevaluatedItems", "unevaluatedProperties", "contentSchema"),
    ),
    False,
) | dict.fromkeys(("properties", "patternProperties", "dependentSchemas", "dependencies"), True)
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class _Weight(NamedTuple):
    """Of one value's check with every reference unfolded: the checks, how many go round again, how deep alternatives are nested,
    and how many patterns look at its text."""

    checks: int
    loops: int
    alternatives: int
    patterns: int


class Shape:
    """What a check will cost at most, found by going through every schema that a check can reach, each once."""

    def __init__(self, root: Json) -> None:
        self._root = root
        self._id = "id" if "draft-04" in str(root.get("$schema")) else "$id"
        self._base = str(root.get(self._id, "")).rstrip("#")
        self._anchors = _anchors(root)
        self._path: set[int] = set()
        self._done: dict[int, _Weight] = {}
        self.patterns = 0  # to be compiled
        self._unevaluated = False
        self.weight = self._visit(root)
        # The patterns that look at one field alone, by its name; the others may look at all there is.
        self.own = {} if self.weight.loops else self._patterns_of_fields()
        self.everywhere = self.weight.patterns - sum(self.own.values())
        # Each schema stands on the stack at most once for each level of the arguments; without a cycle, once.
        self.depth = min(_DEPTH, _STACK // len(self._done) - 1) if self.weight.loops else _DEPTH
        if self.depth < 1:
            raise Unfit("refers to itself through too many parts")
        if self.weight.loops and self._unevaluated:
            # To find what was evaluated the library goes round once more at each level, and forgets what it found.
            raise Unfit("refers to itself and has `unevaluatedProperties` or `unevaluatedItems`, which may take for ever")

    def cost(self, size: Size) -> int:
        """The checks that saying why may take. A cycle that is entered twice is entered four times one level below; and an error
        has in it those of each alternative, which are copied again for each alternative around it."""
        checks, loops, alternatives, _ = self.weight
        rounds = max(1, loops) ** size.depth
        return int(size.nodes * checks * rounds * (1 + alternatives * (size.depth if loops else 1)))

    def seen(self, arguments: object, size: Size) -> int:
        """The bytes that patterns look at in such arguments, each counted once for each pattern."""
        fields = arguments if isinstance(arguments, Mapping) else {}
        own = (
            most * measure(fields[name], depth=_DEPTH, length=size.text).text for name, most in self.own.items() if name in fields
        )
        return self.everywhere * size.text + sum(own)

    def _patterns_of_fields(self) -> dict[str, int]:
        fields = self._root.get("properties")
        schemas = fields.items() if isinstance(fields, dict) else ()
        counts = {name: self._done[id(schema)].patterns for name, schema in schemas if isinstance(schema, dict)}
        return {name: count for name, count in counts.items() if count}

    def _visit(self, schema: Json) -> _Weight:
        if (known := self._done.get(id(schema))) is not None:
            return known
        if id(schema) in self._path:
            return _Weight(1, 1, 0, 0)
        if len(self._path) == _CHAIN:
            raise Unfit(f"has more than {_CHAIN} schemas in each other")
        if schema is not self._root and isinstance(schema.get(self._id), str) and not schema[self._id].startswith("#"):
            raise Unfit(f"has a schema of its own in it ({cut(schema[self._id])}), which is not supported")
        self._path.add(id(schema))
        parts = [self._visit(part) for part in self._parts(schema)]
        inner = max((part.alternatives for part in parts), default=0)
        weight = _Weight(
            checks=1 + sum(part.checks for part in parts),
            loops=sum(part.loops for part in parts),
            alternatives=inner + ("anyOf" in schema or "oneOf" in schema),
            patterns=_patterns(schema, twice=True) + sum(part.patterns for part in parts),
        )
        if weight.checks > _UNFOLDED:
            raise Unfit(f"unfolds into more than {_UNFOLDED} checks")
        self._path.discard(id(schema))
        self._done[id(schema)] = weight
        return weight

    def _parts(self, schema: Json) -> Iterator[Json]:
        self._unevaluated |= "unevaluatedProperties" in schema or "unevaluatedItems" in schema
        self.patterns += _patterns(schema)
        for key, value in schema.items():
            if key in _REFERENCES:
                yield from self._resolve(value)
            elif (named := _APPLIED.get(key)) is not None:
                parts = value.values() if named and isinstance(value, dict) else value if isinstance(value, list) else (value,)
                yield from (part for part in parts if isinstance(part, dict))

    def _resolve(self, reference: object) -> list[Json]:
        """What is referred to. Nothing outside is looked at, however it is written."""
        text = reference if isinstance(reference, str) else ""
        if self._base:
            text = text.removeprefix(self._base)
        found: object = None
        if text in {"", "#"} and isinstance(reference, str):
            found = self._root
        elif text.startswith("#/"):
            found = self._root
            for step in text[2:].split("/"):
                found = _step(found, unquote(step).replace("~1", "/").replace("~0", "~"))
        elif text.startswith("#"):
            found = self._anchors.get(text[1:])
        else:
            raise Unfit(f"refers to {cut(str(reference))}, and nothing outside of a schema is ever fetched")
        if found is None:
            raise Unfit(f"refers to {cut(text)}, which it does not have")
        return [item for item in (found if isinstance(found, list) else [found]) if isinstance(item, dict)]


def _patterns(schema: Json, *, twice: bool = False) -> int:
    """The patterns of a schema itself. Those of names look at each name again to tell which are additional."""
    names = schema.get("patternProperties")
    return ("pattern" in schema) + (len(names) if isinstance(names, dict) else 0) * (2 if twice else 1)


def _step(value: object, name: str) -> object:
    if isinstance(value, dict):
        return value.get(name)
    if isinstance(value, list) and name.isascii() and name.isdigit() and int(name[:6]) < len(value):
        return value[int(name[:6])]
    return None


def _anchors(root: Json) -> dict[str, list[Json]]:
    """All named places. A name that stands twice, or in a mere value, costs a look too many and nothing else."""
    found: dict[str, list[Json]] = {}
    waiting: list[object] = [root]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            for key in ("$anchor", "$dynamicAnchor", "$id", "id"):
                if isinstance(name := item.get(key), str):
                    found.setdefault(name.removeprefix("#"), []).append(item)
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
    return found

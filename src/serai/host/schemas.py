"""Checks a tool's arguments against the schema that its guest gave.

A schema is a program that a guest sends us: it may be huge, point at the network, or make a check last for ever. So before it is
built it is measured (`_measure`) and its shape is judged (`_Shape`); what does not pass is reported and the tool goes unvalidated
(design rule 9). What the library leaves open and is closed here:

1. It fetches references: never, `offline`; and a reference that leaves the schema does not get as far.
2. It backtracks in patterns: never, the linear engine with size limits; what only a backtracking one can do does not build.
3. It recurses on the machine's stack with schema and arguments: both are limited, and so is the product of the two.
4. It unfolds references that no cycle goes through at each use: 40 definitions that name the next one twice are a million million
   checks. The unfolded size is limited.
5. It remembers what it has checked when it says yes or no, and not when it says why: so it is asked why only where that is cheap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote

import msgspec

from serai.limits import KIB, MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

__all__ = ["Checked", "Checker", "checker"]

Json = dict[str, Any]

# Of a schema. The largest in use have some hundred nodes; the rest is room.
_SCHEMA_BYTES = 256 * KIB
_SCHEMA_DEPTH = 64
_SCHEMA_NODES = 10_000
_CHAIN = 250  # subschemas in each other, through references
_UNFOLDED = 50_000  # checks of one value when no reference is shared: some milliseconds
_PATTERNS = 16 * MIB  # all compiled patterns together; each has an equal share

# Of arguments.
_DEPTH = 100
_LENGTH = 10 * MIB
# Subschemas on the library's stack at once: measured, these fit in 2 MiB, and a thread has 8.
_STACK = 8_000
# Checks after which saying why would take longer than a tenth of a second.
_EXPLAINED = 20_000

# Of a message.
_ERRORS = 3
_TEXT = 600
_PIECE = 180

_SCALARS = frozenset({str, int, float, bool, type(None)})
_CONTAINERS = (dict, list, tuple)
# Flat arguments with fewer fields than this, and no longer text in one, need no measuring.
_FLAT_FIELDS = 100
_FLAT_TEXT = 64 * KIB
_MASK = "the value"  # stands for what was given, which may be long or secret


class Checker(Protocol):
    """What the registry needs of a tool's schema."""

    @property
    def problem(self) -> str: ...

    def check(self, arguments: object) -> str: ...


class Checked:
    """A schema, ready to check with; or none, and `problem` says why the tool goes unvalidated."""

    __slots__ = ("_is_valid", "_shape", "_validator", "problem")

    def __init__(self, validator: Validator | None, shape: _Shape | None, problem: str = "") -> None:
        self._validator = validator
        self._is_valid = validator.is_valid if validator is not None else _yes
        self._shape = shape
        self.problem = problem

    def check(self, arguments: object) -> str:
        """Empty when they are valid, else what is wrong with them, for a model to act on."""
        # The usual arguments are a few flat fields: they need no measuring, and this is once per call.
        if type(arguments) is dict and len(arguments) < _FLAT_FIELDS:
            for value in arguments.values():
                if (kind := type(value)) not in _SCALARS or (kind is str and len(value) > _FLAT_TEXT):
                    return self._check_measured(arguments)
            try:
                if self._is_valid(arguments):
                    return ""
            except BaseException as error:
                return _unchecked(error)
        return self._check_measured(arguments)

    def _check_measured(self, arguments: object) -> str:
        try:
            size = _measure(arguments, depth=_DEPTH, length=_LENGTH)
        except _Unfit as unfit:
            return f"the arguments are {unfit}"
        if self._validator is None or self._shape is None:
            return ""
        if size.depth > (most := self._shape.depth):
            return f"the arguments are nested {size.depth} levels deep, and this tool's schema can be checked to {most}"
        try:
            return "" if self._is_valid(arguments) else self._explain(self._validator, arguments, self._shape.cost(size))
        except BaseException as error:
            return _unchecked(error)

    def _explain(self, validator: Validator, arguments: object, cost: int) -> str:
        if cost <= _EXPLAINED:
            return _cut("; ".join(_told(list(validator.iter_errors(arguments)))), _TEXT)
        if self._shape is not None and not self._shape.weight.alternatives:
            try:
                validator.validate(arguments)  # ends at the first error
            except ValueError as error:
                return _cut("; ".join(_told([error])), _TEXT) if hasattr(error, "instance_path") else _unchecked(error)
        return "the arguments do not fit the tool's schema; they are too many, or nested too deep, to say where"


def checker(schema: Mapping[str, Any], *, who: str) -> Checked:
    """Build the check of a tool's arguments, once, when it is registered. Never raises: see `Checked.problem`."""
    try:
        encoded = _encoded(dict(schema))
        shape = _Shape(msgspec.json.decode(encoded))
        return Checked(_build(encoded, shape), shape)
    except _Unfit as unfit:
        return Checked(None, None, f"{who}: its schema {unfit}, so its arguments go unchecked")


def _encoded(schema: Json) -> bytes:
    """A copy that nobody can change, of a size that costs nothing."""
    try:
        _measure(schema, depth=_SCHEMA_DEPTH, length=_SCHEMA_BYTES, nodes=_SCHEMA_NODES)
    except _Unfit as unfit:
        raise _Unfit(f"is {unfit}") from None
    try:
        encoded = msgspec.json.encode(schema)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise _Unfit(f"is no JSON: {_cut(str(error), _PIECE)}") from None
    if len(encoded) > _SCHEMA_BYTES:
        raise _Unfit(f"is longer than {_SCHEMA_BYTES} bytes")
    return encoded


def _build(encoded: bytes, shape: _Shape) -> Validator:
    import jsonschema_rs  # only when a guest has a tool: its import is no part of our start

    share = _PATTERNS // max(1, shape.patterns)
    try:
        return jsonschema_rs.validator_for(
            encoded.decode(),
            offline=True,
            mask=_MASK,
            ignore_unknown_formats=True,
            pattern_options=jsonschema_rs.RegexOptions(size_limit=share, dfa_size_limit=share),
        )
    except jsonschema_rs.ValidationError as error:
        where = _path(error.instance_path)
        if error.kind.name == "format":
            raise _Unfit(f"has a pattern at {where} that is wrong, too big, or needs look-around or back-references") from None
        raise _Unfit(f"does not build: {f'at {where}: ' if where else ''}{_cut(error.message, _PIECE)}") from None
    except BaseException as error:
        _let_through(error)
        raise _Unfit(f"does not build: {_cut(str(error), _PIECE)}") from None


# -- sizes ----------------------------------------------------------------------------------------------------------------------


class _Unfit(Exception):
    """Why something cannot be used, as the rest of a sentence that begins with what it is."""


class _Size(NamedTuple):
    depth: int
    nodes: int


def _measure(value: object, *, depth: int, length: int, nodes: int = _LENGTH) -> _Size:
    """How deep and how big a value is, level by level: what is too deep for a recursion is not too deep for this."""
    level: list[Any] = [value if isinstance(value, _CONTAINERS) else (value,)]
    levels, count, characters = 0, 1, 0
    while level:
        levels += 1
        if levels > depth:
            raise _Unfit(f"nested more than {depth} levels deep")
        inner = []
        for item in level:
            count += len(item)
            parts = item
            if isinstance(item, dict):
                characters += sum([len(key) for key in item if type(key) is str])
                parts = item.values()
            for part in parts:
                if (kind := type(part)) is str:
                    characters += len(part)
                elif kind not in _SCALARS and isinstance(part, _CONTAINERS):
                    inner.append(part)
            if characters + count > length:
                raise _Unfit(f"longer than {length} bytes")
            if count > nodes:
                raise _Unfit(f"of more than {nodes} parts")
        level = inner
    return _Size(levels, count)


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
    """Of one value's check with every reference unfolded: the checks, how many go round again, how deep alternatives are nested."""

    checks: int
    loops: int
    alternatives: int


class _Shape:
    """What a check will cost at most, found by going through every schema that a check can reach, each once."""

    def __init__(self, root: Json) -> None:
        self._root = root
        self._id = "id" if "draft-04" in str(root.get("$schema")) else "$id"
        self._base = str(root.get(self._id, "")).rstrip("#")
        self._anchors = _anchors(root)
        self._path: set[int] = set()
        self._done: dict[int, _Weight] = {}
        self.patterns = 0
        self._unevaluated = False
        self.weight = self._visit(root)
        # Each schema stands on the stack at most once for each level of the arguments; without a cycle, once.
        self.depth = min(_DEPTH, _STACK // len(self._done) - 1) if self.weight.loops else _DEPTH
        if self.depth < 1:
            raise _Unfit("refers to itself through too many parts")
        if self.weight.loops and self._unevaluated:
            # To find what was evaluated the library goes round once more at each level, and forgets what it found.
            raise _Unfit("refers to itself and has `unevaluatedProperties` or `unevaluatedItems`, which may take for ever")

    def cost(self, size: _Size) -> int:
        """The checks that saying why may take. A cycle that is entered twice is entered four times one level below; and an error
        has in it those of each alternative, which are copied again for each alternative around it."""
        checks, loops, alternatives = self.weight
        rounds = max(1, loops) ** size.depth
        return int(size.nodes * checks * rounds * (1 + alternatives * (size.depth if loops else 1)))

    def _visit(self, schema: Json) -> _Weight:
        if (known := self._done.get(id(schema))) is not None:
            return known
        if id(schema) in self._path:
            return _Weight(1, 1, 0)
        if len(self._path) == _CHAIN:
            raise _Unfit(f"has more than {_CHAIN} schemas in each other")
        if schema is not self._root and isinstance(schema.get(self._id), str) and not schema[self._id].startswith("#"):
            raise _Unfit(f"has a schema of its own in it ({_cut(schema[self._id], _PIECE)}), which is not supported")
        self._path.add(id(schema))
        parts = [self._visit(part) for part in self._parts(schema)]
        inner = max((part.alternatives for part in parts), default=0)
        weight = _Weight(
            checks=1 + sum(part.checks for part in parts),
            loops=sum(part.loops for part in parts),
            alternatives=inner + ("anyOf" in schema or "oneOf" in schema),
        )
        if weight.checks > _UNFOLDED:
            raise _Unfit(f"unfolds into more than {_UNFOLDED} checks")
        self._path.discard(id(schema))
        self._done[id(schema)] = weight
        return weight

    def _parts(self, schema: Json) -> Iterator[Json]:
        self._unevaluated |= "unevaluatedProperties" in schema or "unevaluatedItems" in schema
        self.patterns += "pattern" in schema
        for key, value in schema.items():
            if key in _REFERENCES:
                yield from self._resolve(value)
            elif (named := _APPLIED.get(key)) is not None:
                parts = value.values() if named and isinstance(value, dict) else value if isinstance(value, list) else (value,)
                yield from (part for part in parts if isinstance(part, dict))
                self.patterns += len(value) if key == "patternProperties" and isinstance(value, dict) else 0

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
            raise _Unfit(f"refers to {_cut(str(reference), _PIECE)}, and nothing outside of a schema is ever fetched")
        if found is None:
            raise _Unfit(f"refers to {_cut(text, _PIECE)}, which it does not have")
        return [item for item in (found if isinstance(found, list) else [found]) if isinstance(item, dict)]


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


# -- words ------------------------------------------------------------------------------------------------------------------------


def _told(errors: list[Any]) -> list[str]:
    texts = list(dict.fromkeys(map(_tell, errors[:_ERRORS])))
    if len(errors) > _ERRORS:
        texts.append(f"and {len(errors) - _ERRORS} more")
    return texts


def _tell(error: ValidationError) -> str:
    where = _path(error.instance_path)
    return f"{where or 'the arguments'}: {_cut(_reason(error), _PIECE)}"


def _reason(error: ValidationError) -> str:
    kind: Any = error.kind
    match type(kind).__name__:
        case "Enum":
            return f"{_MASK} is not one of {_listed(kind.options)}"
        case "AnyOf" | "OneOfNotValid" if branches := [branch[0] for branch in kind.context if branch]:
            inner = dict.fromkeys(
                f"{_path(each.instance_path[len(error.instance_path) :])} {each.message}".strip() for each in branches
            )
            return f"{_MASK} fits no alternative: {' | '.join(_cut(text, 60) for text in inner)}"
    return error.message


def _listed(options: list[Any]) -> str:
    shown = ", ".join(_cut(msgspec.json.encode(option).decode(), 40) for option in options[:8])
    return shown if len(options) <= 8 else f"{shown} or {len(options) - 8} others"


def _path(steps: list[str | int]) -> str:
    """`items[2].name`; the end of it when it is long."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{_cut(step, 40)}" for step in steps[-12:])
    return ("…" if len(steps) > 12 else "") + text.removeprefix(".")


def _cut(text: str, most: int) -> str:
    """One line of printable characters, not longer than that."""
    line = "".join(character if character.isprintable() else " " for character in text[: most + 1])
    return line if len(line) <= most else line[: most - 1] + "…"


def _unchecked(error: BaseException) -> str:
    """What to say when the library itself gave up: such arguments are not let through (design rule 7)."""
    _let_through(error)
    return f"the arguments could not be checked: {_cut(str(error), _PIECE)}"


def _let_through(error: BaseException) -> None:
    """A defect in the library's machine code is a BaseException of its own (a "panic"); a person's Ctrl-C is none of these."""
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit | MemoryError):
        raise error


def _yes(_arguments: object) -> bool:
    return True

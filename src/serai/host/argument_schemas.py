"""Checks a tool's arguments against the schema that its guest gave, and bounds the cost of such a check beforehand.

A schema is a program that a guest sends us: it may be huge, point at the network, or make a check last for ever. So before it is
built it is measured (`measure`) and its shape is judged (`SchemaCost`); what does not pass is reported and the tool goes
unvalidated (design rule 9). What the library leaves open and is closed here:

1. It fetches references: never, `offline`; and a reference that leaves the schema does not get as far.
2. It backtracks in patterns: never, the linear engine; what only a backtracking one can do does not build. Linear means size of
   the pattern times length of the text, so the size is found out, and the text limited to what that leaves.
3. It recurses on the machine's stack with schema and arguments: both are limited, and so is the product of the two.
4. It unfolds references that no cycle goes through at each use: 40 definitions that name the next one twice are a million million
   checks. The unfolded size is limited.
5. It remembers what it has checked when it says yes or no, and not when it says why: so it is asked why only where that is cheap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

from serai.limits import KIB, MIB
from serai.plain_text import escape_line, utf8_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

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


class SchemaRejected(Exception):
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
            raise SchemaRejected(f"nested more than {depth} levels deep")
        inner = []
        for item in level:
            count += len(item)
            parts = item
            if isinstance(item, dict):
                characters += sum([utf8_size(key) for key in item if type(key) is str])
                parts = item.values()
            for part in parts:
                if (kind := type(part)) is str:
                    characters += utf8_size(part)
                elif kind not in SCALARS and isinstance(part, _CONTAINERS):
                    inner.append(part)
            if characters + count > length:
                raise SchemaRejected(f"longer than {length} bytes")
            if count > nodes:
                raise SchemaRejected(f"of more than {nodes} parts")
        level = inner
    return Size(levels, count, characters + count)


def cut(text: str, most: int = _PIECE) -> str:
    """One line of printable characters, not longer than that."""
    line = escape_line(text[: most + 1], lambda _: " ")
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


class SchemaCost:
    """What a check will cost at most, found by going through every schema that a check can reach, each once."""

    def __init__(self, root: Json) -> None:
        self._root = root
        self._id = "id" if "draft-04" in str(root.get("$schema")) else "$id"
        self._base = str(root.get(self._id, "")).rstrip("#")
        self._anchors = _find_anchors(root)
        self._path: set[int] = set()
        self._done: dict[int, _Weight] = {}
        self.patterns = 0  # to be compiled
        self._unevaluated = False
        self.weight = self._visit(root)
        # The patterns that look at one field alone, by its name; the others may look at all there is.
        self.own = {} if self.weight.loops else self._count_field_patterns()
        self.everywhere = self.weight.patterns - sum(self.own.values())
        # Each schema stands on the stack at most once for each level of the arguments; without a cycle, once.
        self.depth = min(_DEPTH, _STACK // len(self._done) - 1) if self.weight.loops else _DEPTH
        if self.depth < 1:
            raise SchemaRejected("refers to itself through too many parts")
        if self.weight.loops and self._unevaluated:
            # To find what was evaluated the library goes round once more at each level, and forgets what it found.
            raise SchemaRejected("refers to itself and has `unevaluatedProperties` or `unevaluatedItems`, which may take for ever")

    def estimate(self, size: Size) -> int:
        """The checks that saying why may take. A cycle that is entered twice is entered four times one level below; and an error
        has in it those of each alternative, which are copied again for each alternative around it."""
        checks, loops, alternatives, _ = self.weight
        rounds = max(1, loops) ** size.depth
        return int(size.nodes * checks * rounds * (1 + alternatives * (size.depth if loops else 1)))

    def count_seen_bytes(self, arguments: object, size: Size) -> int:
        """The bytes that patterns look at in such arguments, each counted once for each pattern."""
        fields = arguments if isinstance(arguments, Mapping) else {}
        own = (
            most * measure(fields[name], depth=_DEPTH, length=size.text).text for name, most in self.own.items() if name in fields
        )
        return self.everywhere * size.text + sum(own)

    def _count_field_patterns(self) -> dict[str, int]:
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
            raise SchemaRejected(f"has more than {_CHAIN} schemas in each other")
        if schema is not self._root and isinstance(schema.get(self._id), str) and not schema[self._id].startswith("#"):
            raise SchemaRejected(f"has a schema of its own in it ({cut(schema[self._id])}), which is not supported")
        self._path.add(id(schema))
        parts = [self._visit(part) for part in self._iter_parts(schema)]
        inner = max((part.alternatives for part in parts), default=0)
        weight = _Weight(
            checks=1 + sum(part.checks for part in parts),
            loops=sum(part.loops for part in parts),
            alternatives=inner + ("anyOf" in schema or "oneOf" in schema),
            patterns=_count_patterns(schema, twice=True) + sum(part.patterns for part in parts),
        )
        if weight.checks > _UNFOLDED:
            raise SchemaRejected(f"unfolds into more than {_UNFOLDED} checks")
        self._path.discard(id(schema))
        self._done[id(schema)] = weight
        return weight

    def _iter_parts(self, schema: Json) -> Iterator[Json]:
        self._unevaluated |= "unevaluatedProperties" in schema or "unevaluatedItems" in schema
        self.patterns += _count_patterns(schema)
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
                found = _follow_step(found, unquote(step).replace("~1", "/").replace("~0", "~"))
        elif text.startswith("#"):
            found = self._anchors.get(text[1:])
        else:
            raise SchemaRejected(f"refers to {cut(str(reference))}, and nothing outside of a schema is ever fetched")
        if found is None:
            raise SchemaRejected(f"refers to {cut(text)}, which it does not have")
        return [item for item in (found if isinstance(found, list) else [found]) if isinstance(item, dict)]


def _count_patterns(schema: Json, *, twice: bool = False) -> int:
    """The patterns of a schema itself. Those of names look at each name again to tell which are additional."""
    names = schema.get("patternProperties")
    return ("pattern" in schema) + (len(names) if isinstance(names, dict) else 0) * (2 if twice else 1)


def _follow_step(value: object, name: str) -> object:
    if isinstance(value, dict):
        return value.get(name)
    if isinstance(value, list) and name.isascii() and name.isdigit() and int(name[:6]) < len(value):
        return value[int(name[:6])]
    return None


def _find_anchors(root: Json) -> dict[str, list[Json]]:
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


# Of a schema. The largest in use have some hundred nodes; the rest is room.
_SCHEMA_BYTES = 256 * KIB
_SCHEMA_DEPTH = 64
_SCHEMA_NODES = 10_000

# Of patterns. The largest sensible ones, such as an identifier of up to 64 characters, compile to 10 KiB.
_SIZES = (1 * KIB, 4 * KIB, 16 * KIB, 64 * KIB)  # of one, compiled: tried in turn
_COMPILED = 16 * MIB  # all together
_TABLES = 1 * MIB  # of one, made while it matches
_WORK = 150_000_000  # bytes compiled x bytes looked at: measured, 0.2 ns each at worst, so 30 ms
_LEAST_TEXT = 2_000  # bytes: a schema whose patterns leave less room than this is no help
_LENGTH = 10 * MIB
# Checks after which saying why would take longer than a tenth of a second.
_EXPLAINED = 20_000

# Of a message.
_ERRORS = 3
_TEXT = 600

# Flat arguments with fewer fields than this, and no longer text in one, need no measuring.
_FLAT_FIELDS = 100
_FLAT_TEXT = 64 * KIB
_MASK = "the value"  # stands for what was given, which may be long or secret


class ArgumentChecker:
    """A schema, ready to check with; or none, and `problem` says why the tool goes unvalidated."""

    __slots__ = ("_flat_fields", "_flat_text", "_is_valid", "_room", "_shape", "_validator", "problem")

    def __init__(self, validator: Validator | None, shape: SchemaCost | None, problem: str = "", *, room: int = 0) -> None:
        """`room`: the bytes that the schema's patterns may look at, each counted once for each pattern."""
        self._validator = validator
        self._is_valid = validator.is_valid if validator is not None else _accept_all
        self._shape = shape
        self._room = room
        self.problem = problem
        self._flat_fields, self._flat_text = _FLAT_FIELDS, _FLAT_TEXT
        if shape is not None and shape.weight.patterns:
            self._flat_fields = _FLAT_FIELDS if not shape.everywhere else 0  # names count too
            self._flat_text = min(_FLAT_TEXT, room // 4 // shape.weight.patterns - 1)  # a character has up to 4 bytes

    def check(self, arguments: object) -> str:
        """Empty when they are valid, else what is wrong with them, for a model to act on."""
        # The usual arguments are a few flat fields: they need no measuring, and this is once per call.
        longest = self._flat_text
        if type(arguments) is dict and len(arguments) < self._flat_fields:
            for value in arguments.values():
                kind = type(value)
                if len(value) > longest if kind is str else kind not in SCALARS:
                    return self._check_measured(arguments)
            try:
                if self._is_valid(arguments):
                    return ""
            except BaseException as error:
                return _note_unchecked(error)
        return self._check_measured(arguments)

    def _check_measured(self, arguments: object) -> str:
        try:
            size = measure(arguments, depth=_DEPTH, length=_LENGTH)
        except SchemaRejected as unfit:
            return f"the arguments are {unfit}"
        if self._validator is None or self._shape is None:
            return ""
        if size.depth > (most := self._shape.depth):
            return f"the arguments are nested {size.depth} levels deep, and this tool's schema can be checked to {most}"
        seen = self._shape.count_seen_bytes(arguments, size) if self._shape.weight.patterns else 0
        if seen > self._room:
            return (
                f"the arguments are too long for the patterns of this tool's schema ({seen} bytes to look at, at most {self._room})"
            )
        try:
            return "" if self._is_valid(arguments) else self._explain(self._validator, arguments, self._estimate_cost(size, seen))
        except BaseException as error:
            return _note_unchecked(error)

    def _estimate_cost(self, size: Size, seen: int) -> int:
        """The checks that saying why may take; where patterns have much to do, more than it may."""
        if self._shape is None or seen > self._room // 8:
            return _EXPLAINED + 1
        return self._shape.estimate(size)

    def _explain(self, validator: Validator, arguments: object, cost: int) -> str:
        if cost <= _EXPLAINED:
            return cut("; ".join(_format_errors(list(validator.iter_errors(arguments)))), _TEXT)
        if self._shape is not None and not self._shape.weight.alternatives:
            try:
                validator.validate(arguments)  # ends at the first error
            except ValueError as error:
                return cut("; ".join(_format_errors([error])), _TEXT) if hasattr(error, "instance_path") else _note_unchecked(error)
        return "the arguments do not fit the tool's schema; they are too many, or nested too deep, to say where"


def build_checker(schema: Mapping[str, Any], *, who: str) -> ArgumentChecker:
    """Build the check of a tool's arguments, once, when it is registered. Never raises: see `ArgumentChecker.problem`."""
    try:
        encoded = _encode(dict(schema))
        shape = SchemaCost(msgspec.json.decode(encoded))
        return _build(encoded, shape)
    except SchemaRejected as unfit:
        return ArgumentChecker(None, None, f"{who}: its schema {unfit}, so its arguments go unchecked")


def _encode(schema: Json) -> bytes:
    """A copy that nobody can change, of a size that costs nothing."""
    try:
        measure(schema, depth=_SCHEMA_DEPTH, length=_SCHEMA_BYTES, nodes=_SCHEMA_NODES)
    except SchemaRejected as unfit:
        raise SchemaRejected(f"is {unfit}") from None
    try:
        encoded = msgspec.json.encode(schema)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise SchemaRejected(f"is no JSON: {cut(str(error))}") from None
    if len(encoded) > _SCHEMA_BYTES:
        raise SchemaRejected(f"is longer than {_SCHEMA_BYTES} bytes")
    return encoded


class _BadPattern(SchemaRejected):
    """It may only be too big for the size that was tried."""


def _build(encoded: bytes, shape: SchemaCost) -> ArgumentChecker:
    """With the smallest size that all patterns fit in: the smaller they are, the longer the text may be."""
    share = _COMPILED // max(1, shape.patterns)
    together = shape.everywhere + max(shape.own.values(), default=0)  # patterns that look at the same text
    problem = SchemaRejected(f"has too many patterns, up to {together} for the same text")
    for size in _SIZES:
        if size > share or size * together * _LEAST_TEXT > _WORK:
            break
        try:
            return ArgumentChecker(_compile(encoded, size, min(share, _TABLES)), shape, room=_WORK // size)
        except _BadPattern as error:
            problem = error
    raise problem


def _compile(encoded: bytes, size: int, tables: int) -> Validator:
    import jsonschema_rs  # only when a guest has a tool: its import is no part of our start

    try:
        return jsonschema_rs.validator_for(
            encoded.decode(),
            offline=True,
            mask=_MASK,
            ignore_unknown_formats=True,
            pattern_options=jsonschema_rs.RegexOptions(size_limit=size, dfa_size_limit=tables),
        )
    except jsonschema_rs.ValidationError as error:
        where = _format_path(error.instance_path)
        if error.kind.name == "format":
            raise _BadPattern(f"has a pattern at {where} that is wrong, too big, or needs look-around or back-references") from None
        raise SchemaRejected(f"does not build: {f'at {where}: ' if where else ''}{cut(error.message)}") from None
    except BaseException as error:
        _reraise_fatal(error)
        raise SchemaRejected(f"does not build: {cut(str(error))}") from None


# -- words ------------------------------------------------------------------------------------------------------------------------


def _format_errors(errors: list[Any]) -> list[str]:
    texts = list(dict.fromkeys(map(_describe_error, errors[:_ERRORS])))
    if len(errors) > _ERRORS:
        texts.append(f"and {len(errors) - _ERRORS} more")
    return texts


def _describe_error(error: ValidationError) -> str:
    where = _format_path(error.instance_path)
    return f"{where or 'the arguments'}: {cut(_format_reason(error))}"


def _format_reason(error: ValidationError) -> str:
    kind: Any = error.kind
    match type(kind).__name__:
        case "Enum":
            return f"{_MASK} is not one of {_format_options(kind.options)}"
        case "AnyOf" | "OneOfNotValid" if branches := [branch[0] for branch in kind.context if branch]:
            inner = dict.fromkeys(
                f"{_format_path(each.instance_path[len(error.instance_path) :])} {each.message}".strip() for each in branches
            )
            return f"{_MASK} fits no alternative: {' | '.join(cut(text, 60) for text in inner)}"
    return error.message


def _format_options(options: list[Any]) -> str:
    shown = ", ".join(cut(msgspec.json.encode(option).decode(), 40) for option in options[:8])
    return shown if len(options) <= 8 else f"{shown} or {len(options) - 8} others"


def _format_path(steps: list[str | int]) -> str:
    """`items[2].name`; the end of it when it is long."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{cut(step, 40)}" for step in steps[-12:])
    return ("…" if len(steps) > 12 else "") + text.removeprefix(".")


def _note_unchecked(error: BaseException) -> str:
    """What to say when the library itself gave up: such arguments are not let through (design rule 7)."""
    _reraise_fatal(error)
    return f"the arguments could not be checked: {cut(str(error))}"


def _reraise_fatal(error: BaseException) -> None:
    """A defect in the library's machine code is a BaseException of its own (a "panic"); a person's Ctrl-C is none of these."""
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit | MemoryError):
        raise error


def _accept_all(_arguments: object) -> bool:
    return True

"""Checks a tool's arguments against the schema that its guest gave.

A schema is a program that a guest sends us: it may be huge, point at the network, or make a check last for ever. So before it is
built it is measured (`measure`) and its shape is judged (`Shape`); what does not pass is reported and the tool goes unvalidated
(design rule 9). What the library leaves open and is closed here:

1. It fetches references: never, `offline`; and a reference that leaves the schema does not get as far.
2. It backtracks in patterns: never, the linear engine; what only a backtracking one can do does not build. Linear means size of
   the pattern times length of the text, so the size is found out, and the text limited to what that leaves.
3. It recurses on the machine's stack with schema and arguments: both are limited, and so is the product of the two.
4. It unfolds references that no cycle goes through at each use: 40 definitions that name the next one twice are a million million
   checks. The unfolded size is limited.
5. It remembers what it has checked when it says yes or no, and not when it says why: so it is asked why only where that is cheap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from serai.host.schema_shape import SCALARS, Json, Shape, Size, Unfit, cut, measure
from serai.limits import KIB, MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

__all__ = ["Checked", "Checker", "checker"]

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

# Of arguments.
_DEPTH = 100
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


class Checker(Protocol):
    """What the registry needs of a tool's schema."""

    @property
    def problem(self) -> str: ...

    def check(self, arguments: object) -> str: ...


class Checked:
    """A schema, ready to check with; or none, and `problem` says why the tool goes unvalidated."""

    __slots__ = ("_flat_fields", "_flat_text", "_is_valid", "_room", "_shape", "_validator", "problem")

    def __init__(self, validator: Validator | None, shape: Shape | None, problem: str = "", *, room: int = 0) -> None:
        """`room`: the bytes that the schema's patterns may look at, each counted once for each pattern."""
        self._validator = validator
        self._is_valid = validator.is_valid if validator is not None else _yes
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
                return _unchecked(error)
        return self._check_measured(arguments)

    def _check_measured(self, arguments: object) -> str:
        try:
            size = measure(arguments, depth=_DEPTH, length=_LENGTH)
        except Unfit as unfit:
            return f"the arguments are {unfit}"
        if self._validator is None or self._shape is None:
            return ""
        if size.depth > (most := self._shape.depth):
            return f"the arguments are nested {size.depth} levels deep, and this tool's schema can be checked to {most}"
        seen = self._shape.seen(arguments, size) if self._shape.weight.patterns else 0
        if seen > self._room:
            return (
                f"the arguments are too long for the patterns of this tool's schema ({seen} bytes to look at, at most {self._room})"
            )
        try:
            return "" if self._is_valid(arguments) else self._explain(self._validator, arguments, self._cost(size, seen))
        except BaseException as error:
            return _unchecked(error)

    def _cost(self, size: Size, seen: int) -> int:
        """The checks that saying why may take; where patterns have much to do, more than it may."""
        if self._shape is None or seen > self._room // 8:
            return _EXPLAINED + 1
        return self._shape.cost(size)

    def _explain(self, validator: Validator, arguments: object, cost: int) -> str:
        if cost <= _EXPLAINED:
            return cut("; ".join(_told(list(validator.iter_errors(arguments)))), _TEXT)
        if self._shape is not None and not self._shape.weight.alternatives:
            try:
                validator.validate(arguments)  # ends at the first error
            except ValueError as error:
                return cut("; ".join(_told([error])), _TEXT) if hasattr(error, "instance_path") else _unchecked(error)
        return "the arguments do not fit the tool's schema; they are too many, or nested too deep, to say where"


def checker(schema: Mapping[str, Any], *, who: str) -> Checked:
    """Build the check of a tool's arguments, once, when it is registered. Never raises: see `Checked.problem`."""
    try:
        encoded = _encoded(dict(schema))
        shape = Shape(msgspec.json.decode(encoded))
        return _build(encoded, shape)
    except Unfit as unfit:
        return Checked(None, None, f"{who}: its schema {unfit}, so its arguments go unchecked")


def _encoded(schema: Json) -> bytes:
    """A copy that nobody can change, of a size that costs nothing."""
    try:
        measure(schema, depth=_SCHEMA_DEPTH, length=_SCHEMA_BYTES, nodes=_SCHEMA_NODES)
    except Unfit as unfit:
        raise Unfit(f"is {unfit}") from None
    try:
        encoded = msgspec.json.encode(schema)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise Unfit(f"is no JSON: {cut(str(error))}") from None
    if len(encoded) > _SCHEMA_BYTES:
        raise Unfit(f"is longer than {_SCHEMA_BYTES} bytes")
    return encoded


class _BadPattern(Unfit):
    """It may only be too big for the size that was tried."""


def _build(encoded: bytes, shape: Shape) -> Checked:
    """With the smallest size that all patterns fit in: the smaller they are, the longer the text may be."""
    share = _COMPILED // max(1, shape.patterns)
    together = shape.everywhere + max(shape.own.values(), default=0)  # patterns that look at the same text
    problem = Unfit(f"has too many patterns, up to {together} for the same text")
    for size in _SIZES:
        if size > share or size * together * _LEAST_TEXT > _WORK:
            break
        try:
            return Checked(_compiled(encoded, size, min(share, _TABLES)), shape, room=_WORK // size)
        except _BadPattern as error:
            problem = error
    raise problem


def _compiled(encoded: bytes, size: int, tables: int) -> Validator:
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
        where = _path(error.instance_path)
        if error.kind.name == "format":
            raise _BadPattern(f"has a pattern at {where} that is wrong, too big, or needs look-around or back-references") from None
        raise Unfit(f"does not build: {f'at {where}: ' if where else ''}{cut(error.message)}") from None
    except BaseException as error:
        _let_through(error)
        raise Unfit(f"does not build: {cut(str(error))}") from None


# -- words ------------------------------------------------------------------------------------------------------------------------


def _told(errors: list[Any]) -> list[str]:
    texts = list(dict.fromkeys(map(_tell, errors[:_ERRORS])))
    if len(errors) > _ERRORS:
        texts.append(f"and {len(errors) - _ERRORS} more")
    return texts


def _tell(error: ValidationError) -> str:
    where = _path(error.instance_path)
    return f"{where or 'the arguments'}: {cut(_reason(error))}"


def _reason(error: ValidationError) -> str:
    kind: Any = error.kind
    match type(kind).__name__:
        case "Enum":
            return f"{_MASK} is not one of {_listed(kind.options)}"
        case "AnyOf" | "OneOfNotValid" if branches := [branch[0] for branch in kind.context if branch]:
            inner = dict.fromkeys(
                f"{_path(each.instance_path[len(error.instance_path) :])} {each.message}".strip() for each in branches
            )
            return f"{_MASK} fits no alternative: {' | '.join(cut(text, 60) for text in inner)}"
    return error.message


def _listed(options: list[Any]) -> str:
    shown = ", ".join(cut(msgspec.json.encode(option).decode(), 40) for option in options[:8])
    return shown if len(options) <= 8 else f"{shown} or {len(options) - 8} others"


def _path(steps: list[str | int]) -> str:
    """`items[2].name`; the end of it when it is long."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{cut(step, 40)}" for step in steps[-12:])
    return ("…" if len(steps) > 12 else "") + text.removeprefix(".")


def _unchecked(error: BaseException) -> str:
    """What to say when the library itself gave up: such arguments are not let through (design rule 7)."""
    _let_through(error)
    return f"the arguments could not be checked: {cut(str(error))}"


def _let_through(error: BaseException) -> None:
    """A defect in the library's machine code is a BaseException of its own (a "panic"); a person's Ctrl-C is none of these."""
    if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit | MemoryError):
        raise error


def _yes(_arguments: object) -> bool:
    return True

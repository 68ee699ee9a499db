"""From a type hint to the kind of values it lets in.

What makes a hint's class (dataclasses, enum, pathlib, datetime) is looked up among the modules that are imported already and never
imported here: if the author uses it, it is there, and otherwise nobody should wait for it.
"""

from __future__ import annotations

import builtins
import collections.abc
import re
import sys
import types
import typing
from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from serai.sdk.schema import values as schema_values
from serai.sdk.schema.validation import Underivable, build_checks, check_keywords, get_json_type, normalize, to_text

_NAME_ABOVE = "import or define the name above, and not only for type checkers"
_UNION_OUTSIDE = "before Python 3.13 the union goes inside: write Annotated[int | None, {…}]"
_OWN_SCHEMA = "give the tool a schema of your own: @ext.tool(schema={…})"

_SINGLE: dict[Any, type[schema_values.ValueKind]] = {
    str: schema_values.String,
    int: schema_values.Integer,
    float: schema_values.Number,
    bool: schema_values.Boolean,
    type(None): schema_values.Null,
    object: schema_values.Anything,
}

_LISTS: dict[Any, Callable[[list[Any]], object]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    collections.abc.Collection: list,
    collections.abc.Iterable: list,
    collections.abc.MutableSequence: list,
    collections.abc.MutableSet: set,
    collections.abc.Sequence: list,
    collections.abc.Set: frozenset,
}

_MAPS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)

_BARE_TUPLES = (tuple, typing.Tuple)  # noqa: UP006  (they have no arguments, as `tuple[()]`, and mean something else)
UNIONS = (typing.Union, types.UnionType)
_MARKS = (typing.Required, typing.NotRequired, getattr(typing, "ReadOnly", typing.Required))  # of the members of a TypedDict

# What authors write that JSON does not have, with what to write instead.
_INSTEAD = {
    "bytes": "write str, and let it be base64",
    "bytearray": "write str, and let it be base64",
    "complex": "write tuple[float, float]",
    "Decimal": "write float, or str to keep every digit",
    "UUID": "write str",
    "time": "write str",
    "timedelta": "write float, and say of what unit",
    "tuple": "write tuple[str, …]",
}


class Scope(NamedTuple):
    """Where the names in a hint that is text are looked up: around the function or class, in its module, in the class itself."""

    around: Mapping[str, Any]
    module: Mapping[str, Any]
    inside: Mapping[str, Any] = {}

    def enter_class(self, cls: type) -> Scope:
        """The same for the hints of a class."""
        around = self.around if "<locals>" in cls.__qualname__ else {}
        return Scope(around, vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else self.module, vars(cls))

    def merge_names(self, elsewhere: Mapping[str, Any]) -> Mapping[str, Any]:
        # What is inside comes late: the default of a field has the field's name there, which may be that of a type.
        return ChainMap(*map(dict, (self.around, self.module, vars(builtins), self.inside, elsewhere)))


class Hints:
    """The kinds for the hints of one function: a class that comes twice has one kind, and can be part of itself."""

    def __init__(self) -> None:
        self._records: dict[type, schema_values.ObjectKind] = {}
        self._open: list[object] = []  # what is being looked at, from the outside in
        self._names: set[str] = set()

    def derive_kind(self, hint: Any, scope: Scope) -> schema_values.ValueKind:
        """The kind for a hint; raises `Underivable`."""
        hint = evaluate(hint, scope)
        if hint is Any or hint is None:
            return schema_values.Null() if hint is None else schema_values.Anything()
        origin = typing.get_origin(hint) or (hint if isinstance(hint, type) else None)
        args = typing.get_args(hint)
        if origin in _SINGLE:
            return _SINGLE[origin]()
        if origin is typing.Annotated:
            return self._derive_annotated(self.derive_kind(args[0], scope), args[1:])
        if origin in UNIONS:
            return schema_values.Union([self.derive_kind(arg, scope) for arg in args])
        if origin is typing.Literal:
            return _derive_literal(args)
        if origin in _LISTS:
            return self._list(hint, _LISTS[origin], args, scope)
        if origin is tuple:
            return schema_values.ListKind(schema_values.Anything(), tuple) if hint in _BARE_TUPLES else self._tuple(args, scope)
        if origin in _MAPS:
            return self._derive_map(hint, args, scope)
        if origin in _MARKS:
            return self.derive_kind(args[0], scope)
        return self._derive_named(hint, scope)

    def _derive_annotated(self, kind: schema_values.ValueKind, metadata: tuple[object, ...]) -> schema_values.ValueKind:
        """A text is the description, a mapping has further keywords; what else is there is for others."""
        keywords: schema_values.Schema = {}
        for one in metadata:
            if isinstance(one, str):
                keywords["description"] = one
            elif isinstance(one, Mapping):
                keywords |= one
        keywords = check_keywords(keywords, kind.types, kind.says)
        return kind.annotate(keywords, build_checks(keywords))

    def _list(self, hint: Any, make: Callable[[list[Any]], object], args: tuple[Any, ...], scope: Scope) -> schema_values.ValueKind:
        items = self.derive_kind(args[0], scope) if args else schema_values.Anything()
        if make in (set, frozenset) and not items.hashable:
            raise Underivable(
                f"is {_format_hint(hint)}, and not every such item can be in a set", "write list[…], or set[str] and the like"
            )
        return schema_values.ListKind(items, make)

    def _tuple(self, args: tuple[Any, ...], scope: Scope) -> schema_values.ValueKind:
        if len(args) == 2 and args[1] is Ellipsis:
            return schema_values.ListKind(self.derive_kind(args[0], scope), tuple)
        return schema_values.Tuple([self.derive_kind(arg, scope) for arg in args])

    def _derive_map(self, hint: Any, args: tuple[Any, ...], scope: Scope) -> schema_values.ValueKind:
        names, values = args or (Any, Any)
        kind = self.derive_kind(names, scope)
        if type(kind) not in (schema_values.String, schema_values.Anything) or kind.checks:
            raise Underivable(f"is {_format_hint(hint)}, and names in JSON are text", "write dict[str, …]")
        return schema_values.MapKind(self.derive_kind(values, scope))

    def _derive_named(self, hint: Any, scope: Scope) -> schema_values.ValueKind:
        """A class, or a name that stands for another hint."""
        if hasattr(hint, "__supertype__"):  # NewType
            return self.derive_kind(hint.__supertype__, scope)
        if type(hint).__name__ == "TypeAliasType":  # `type Stops = list[str]`, since Python 3.12
            return self._derive_alias(hint, scope)
        if not isinstance(hint, type):
            raise _build_unknown_error(hint)
        if hasattr(hint, "__dataclass_fields__"):
            return self._derive_record(hint, _read_dataclass(hint), scope)
        if issubclass(hint, dict) and hasattr(hint, "__required_keys__"):
            return self._derive_record(hint, _read_typed_dict(hint), scope)
        return _derive_class(hint)

    def _derive_alias(self, alias: Any, scope: Scope) -> schema_values.ValueKind:
        if alias in self._open:
            raise Underivable(f"is {alias}, which is part of itself", "write a dataclass for it")
        self._open.append(alias)
        try:
            return self.derive_kind(alias.__value__, scope)
        finally:
            self._open.pop()

    def _derive_record(self, cls: type, members: list[_Member], scope: Scope) -> schema_values.ObjectKind:
        if (record := self._records.get(cls)) is not None:
            record.recursive |= cls in self._open
            return record
        hashable = cls.__hash__ is not None
        record = self._records[cls] = schema_values.ObjectKind(
            self._reserve_name(cls.__name__), lambda values: cls(**values), hashable=hashable
        )
        self._open.append(cls)
        for member in members:
            try:
                record.fields[member.name] = self._derive_field(member, scope.enter_class(member.home))
            except Underivable as error:
                raise Underivable(f'has the field "{member.name}" of {cls.__name__}, which {error.problem}', error.hint) from None
        self._open.pop()
        record.hashable = hashable and all(field.kind.hashable for field in record.fields.values())
        return record

    def _derive_field(self, member: _Member, scope: Scope) -> schema_values.Field:
        hint, required = evaluate(member.hint, scope), member.required
        while (mark := typing.get_origin(hint)) in _MARKS:  # the class does not see them in hints that are text
            required = mark is typing.Required or (required and mark is not typing.NotRequired)
            hint = evaluate(typing.get_args(hint)[0], scope)
        if _is_a(type(hint), "dataclasses", "InitVar"):
            hint = hint.type
        kind = self.derive_kind(hint, scope)
        if member.notes == {"default": None}:
            kind = schema_values.make_nullable(kind)
        return schema_values.Field(member.name, kind, required, member.notes)

    def _reserve_name(self, name: str) -> str:
        """A name for the definitions of a schema that no other class has."""
        name = re.sub(r"[^A-Za-z0-9_]", "_", name)
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name


class _Member(NamedTuple):
    name: str
    hint: Any
    home: type  # the class where the hint was written
    required: bool
    notes: schema_values.Schema


def _read_dataclass(cls: Any) -> list[_Member]:
    dataclasses = sys.modules["dataclasses"]
    members = []
    for field in cls.__dataclass_fields__.values():
        if field.init and field._field_type is not dataclasses._FIELD_CLASSVAR:
            home = next((one for one in cls.__mro__ if field.name in getattr(one, "__annotations__", ())), cls)
            required = field.default is field.default_factory is dataclasses.MISSING
            notes = {} if field.default is dataclasses.MISSING else describe_default(field.default)
            members.append(_Member(field.name, field.type, home, required, notes))
    return members


def _read_typed_dict(cls: Any) -> list[_Member]:
    return [_Member(name, hint, cls, name in cls.__required_keys__, {}) for name, hint in cls.__annotations__.items()]


def evaluate(hint: Any, scope: Scope) -> Any:
    """A hint that is text (all are, after `from __future__ import annotations`), as the type that it names."""
    for _ in range(9):  # text may name text; not for ever
        if not isinstance(hint, str | typing.ForwardRef):
            break
        text = hint if isinstance(hint, str) else hint.__forward_arg__
        home = sys.modules.get(getattr(hint, "__forward_module__", None) or "")  # that of a TypedDict's base may be another
        try:
            hint = eval(text, {}, scope.merge_names(vars(home) if home else {}))  # noqa: S307  (the author's own code)
        except Exception as error:
            why = f"has the hint {text!r}, which cannot be resolved: {error}"
            raise Underivable(why, _UNION_OUTSIDE if "unhashable" in str(error) else _NAME_ABOVE) from None
    return hint


def describe_default(default: object) -> schema_values.Schema:
    """What a schema says of a default: nothing when it is not JSON."""
    if _is_a(type(default), "enum", "Enum"):
        default = default.value  # type: ignore[attr-defined]  # it is one
    try:
        return {"default": normalize(default)}
    except ValueError:
        return {}


def _derive_class(cls: Any) -> schema_values.ValueKind:
    """A class of the standard library that has a text, or an author's Enum."""
    if _is_a(cls, "enum", "Enum"):
        return _derive_options([(member.value, member) for member in cls], cls.__name__)
    if _is_a(cls, "pathlib", "PurePath"):
        return schema_values.Parsed("a path", cls)
    if _is_a(cls, "datetime", "datetime"):
        word = 'a date and time such as "2025-03-09T16:30:00Z"'
        return schema_values.Parsed(
            word, lambda text: cls.fromisoformat(text.upper()), "date-time"
        )  # RFC 3339 lets `t` and `z` be small
    if _is_a(cls, "datetime", "date"):
        return schema_values.Parsed('a date such as "2025-03-09"', cls.fromisoformat, "date")
    raise _build_unknown_error(cls)


def _derive_literal(values: tuple[Any, ...]) -> schema_values.ValueKind:
    return _derive_options([(value.value if _is_a(type(value), "enum", "Enum") else value, value) for value in values], "a Literal")


def _derive_options(options: list[tuple[Any, object]], what: str) -> schema_values.ValueKind:
    if not options:
        raise Underivable(f"is {what}, which has no members", "give it some")
    for value, _ in options:
        if get_json_type(value) in ("", "array", "object"):
            raise Underivable(f"is {what} with {to_text(value)}, which is no JSON value", "let its values be text or numbers")
    return schema_values.OneOf(options)


def _is_a(cls: Any, module: str, name: str) -> bool:
    """Whether it is a subclass of a class whose module is imported, if so."""
    found = getattr(sys.modules.get(module), name, None)
    return found is not None and isinstance(cls, type) and issubclass(cls, found)


def _format_hint(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")


def _build_unknown_error(hint: Any) -> Underivable:
    name = _format_hint(hint)
    if isinstance(hint, typing.TypeVar):
        return Underivable(f"is the type variable {name}", "write the type that is meant")
    instead = _INSTEAD.get(name.rpartition(".")[2], f"write a dataclass, a TypedDict or a plain type for it, or {_OWN_SCHEMA}")
    return Underivable(f"is {name}, which no JSON value stands for", instead)

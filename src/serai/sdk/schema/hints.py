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

from serai.sdk.schema.validation import Underivable, checks, json_type, normal, shown, validated
from serai.sdk.schema.values import (
    Anything,
    Boolean,
    Field,
    Integer,
    ListKind,
    MapKind,
    Null,
    Number,
    ObjectKind,
    OneOf,
    Parsed,
    Schema,
    String,
    Tuple,
    Union,
    ValueKind,
    nullable,
)

_NAME_ABOVE = "import or define the name above, and not only for type checkers"
_UNION_OUTSIDE = "before Python 3.13 the union goes inside: write Annotated[int | None, {…}]"
_OWN_SCHEMA = "give the tool a schema of your own: @ext.tool(schema={…})"

_SINGLE: dict[Any, type[ValueKind]] = {str: String, int: Integer, float: Number, bool: Boolean, type(None): Null, object: Anything}

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

    def of(self, cls: type) -> Scope:
        """The same for the hints of a class."""
        around = self.around if "<locals>" in cls.__qualname__ else {}
        return Scope(around, vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else self.module, vars(cls))

    def names(self, elsewhere: Mapping[str, Any]) -> Mapping[str, Any]:
        # What is inside comes late: the default of a field has the field's name there, which may be that of a type.
        return ChainMap(*map(dict, (self.around, self.module, vars(builtins), self.inside, elsewhere)))


class Hints:
    """The kinds for the hints of one function: a class that comes twice has one kind, and can be part of itself."""

    def __init__(self) -> None:
        self._records: dict[type, ObjectKind] = {}
        self._open: list[object] = []  # what is being looked at, from the outside in
        self._names: set[str] = set()

    def kind(self, hint: Any, scope: Scope) -> ValueKind:
        """The kind for a hint; raises `Underivable`."""
        hint = evaluated(hint, scope)
        if hint is Any or hint is None:
            return Null() if hint is None else Anything()
        origin = typing.get_origin(hint) or (hint if isinstance(hint, type) else None)
        args = typing.get_args(hint)
        if origin in _SINGLE:
            return _SINGLE[origin]()
        if origin is typing.Annotated:
            return self._annotated(self.kind(args[0], scope), args[1:])
        if origin in UNIONS:
            return Union([self.kind(arg, scope) for arg in args])
        if origin is typing.Literal:
            return _literal(args)
        if origin in _LISTS:
            return self._list(hint, _LISTS[origin], args, scope)
        if origin is tuple:
            return ListKind(Anything(), tuple) if hint in _BARE_TUPLES else self._tuple(args, scope)
        if origin in _MAPS:
            return self._map(hint, args, scope)
        if origin in _MARKS:
            return self.kind(args[0], scope)
        return self._named(hint, scope)

    def _annotated(self, kind: ValueKind, metadata: tuple[object, ...]) -> ValueKind:
        """A text is the description, a mapping has further keywords; what else is there is for others."""
        keywords: Schema = {}
        for one in metadata:
            if isinstance(one, str):
                keywords["description"] = one
            elif isinstance(one, Mapping):
                keywords |= one
        keywords = validated(keywords, kind.types, kind.says)
        return kind.annotated(keywords, checks(keywords))

    def _list(self, hint: Any, make: Callable[[list[Any]], object], args: tuple[Any, ...], scope: Scope) -> ValueKind:
        items = self.kind(args[0], scope) if args else Anything()
        if make in (set, frozenset) and not items.hashable:
            raise Underivable(
                f"is {_name(hint)}, and not every such item can be in a set", "write list[…], or set[str] and the like"
            )
        return ListKind(items, make)

    def _tuple(self, args: tuple[Any, ...], scope: Scope) -> ValueKind:
        if len(args) == 2 and args[1] is Ellipsis:
            return ListKind(self.kind(args[0], scope), tuple)
        return Tuple([self.kind(arg, scope) for arg in args])

    def _map(self, hint: Any, args: tuple[Any, ...], scope: Scope) -> ValueKind:
        names, values = args or (Any, Any)
        kind = self.kind(names, scope)
        if type(kind) not in (String, Anything) or kind.checks:
            raise Underivable(f"is {_name(hint)}, and names in JSON are text", "write dict[str, …]")
        return MapKind(self.kind(values, scope))

    def _named(self, hint: Any, scope: Scope) -> ValueKind:
        """A class, or a name that stands for another hint."""
        if hasattr(hint, "__supertype__"):  # NewType
            return self.kind(hint.__supertype__, scope)
        if type(hint).__name__ == "TypeAliasType":  # `type Stops = list[str]`, since Python 3.12
            return self._alias(hint, scope)
        if not isinstance(hint, type):
            raise _unknown(hint)
        if hasattr(hint, "__dataclass_fields__"):
            return self._record(hint, _dataclass_members(hint), scope)
        if issubclass(hint, dict) and hasattr(hint, "__required_keys__"):
            return self._record(hint, _typed_dict_members(hint), scope)
        return _from_class(hint)

    def _alias(self, alias: Any, scope: Scope) -> ValueKind:
        if alias in self._open:
            raise Underivable(f"is {alias}, which is part of itself", "write a dataclass for it")
        self._open.append(alias)
        try:
            return self.kind(alias.__value__, scope)
        finally:
            self._open.pop()

    def _record(self, cls: type, members: list[_Member], scope: Scope) -> ObjectKind:
        if (record := self._records.get(cls)) is not None:
            record.recursive |= cls in self._open
            return record
        hashable = cls.__hash__ is not None
        record = self._records[cls] = ObjectKind(self._unique(cls.__name__), lambda values: cls(**values), hashable=hashable)
        self._open.append(cls)
        for member in members:
            try:
                record.fields[member.name] = self._field(member, scope.of(member.home))
            except Underivable as error:
                raise Underivable(f'has the field "{member.name}" of {cls.__name__}, which {error.problem}', error.hint) from None
        self._open.pop()
        record.hashable = hashable and all(field.kind.hashable for field in record.fields.values())
        return record

    def _field(self, member: _Member, scope: Scope) -> Field:
        hint, required = evaluated(member.hint, scope), member.required
        while (mark := typing.get_origin(hint)) in _MARKS:  # the class does not see them in hints that are text
            required = mark is typing.Required or (required and mark is not typing.NotRequired)
            hint = evaluated(typing.get_args(hint)[0], scope)
        if _is_a(type(hint), "dataclasses", "InitVar"):
            hint = hint.type
        kind = self.kind(hint, scope)
        if member.notes == {"default": None}:
            kind = nullable(kind)
        return Field(member.name, kind, required, member.notes)

    def _unique(self, name: str) -> str:
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
    notes: Schema


def _dataclass_members(cls: Any) -> list[_Member]:
    dataclasses = sys.modules["dataclasses"]
    members = []
    for field in cls.__dataclass_fields__.values():
        if field.init and field._field_type is not dataclasses._FIELD_CLASSVAR:
            home = next((one for one in cls.__mro__ if field.name in getattr(one, "__annotations__", ())), cls)
            required = field.default is field.default_factory is dataclasses.MISSING
            notes = {} if field.default is dataclasses.MISSING else default_note(field.default)
            members.append(_Member(field.name, field.type, home, required, notes))
    return members


def _typed_dict_members(cls: Any) -> list[_Member]:
    return [_Member(name, hint, cls, name in cls.__required_keys__, {}) for name, hint in cls.__annotations__.items()]


def evaluated(hint: Any, scope: Scope) -> Any:
    """A hint that is text (all are, after `from __future__ import annotations`), as the type that it names."""
    for _ in range(9):  # text may name text; not for ever
        if not isinstance(hint, str | typing.ForwardRef):
            break
        text = hint if isinstance(hint, str) else hint.__forward_arg__
        home = sys.modules.get(getattr(hint, "__forward_module__", None) or "")  # that of a TypedDict's base may be another
        try:
            hint = eval(text, {}, scope.names(vars(home) if home else {}))  # noqa: S307  (the author's own code)
        except Exception as error:
            why = f"has the hint {text!r}, which cannot be resolved: {error}"
            raise Underivable(why, _UNION_OUTSIDE if "unhashable" in str(error) else _NAME_ABOVE) from None
    return hint


def default_note(default: object) -> Schema:
    """What a schema says of a default: nothing when it is not JSON."""
    if _is_a(type(default), "enum", "Enum"):
        default = default.value  # type: ignore[attr-defined]  # it is one
    try:
        return {"default": normal(default)}
    except ValueError:
        return {}


def _from_class(cls: Any) -> ValueKind:
    """A class of the standard library that has a text, or an author's Enum."""
    if _is_a(cls, "enum", "Enum"):
        return _options([(member.value, member) for member in cls], cls.__name__)
    if _is_a(cls, "pathlib", "PurePath"):
        return Parsed("a path", cls)
    if _is_a(cls, "datetime", "datetime"):
        word = 'a date and time such as "2025-03-09T16:30:00Z"'
        return Parsed(word, lambda text: cls.fromisoformat(text.upper()), "date-time")  # RFC 3339 lets `t` and `z` be small
    if _is_a(cls, "datetime", "date"):
        return Parsed('a date such as "2025-03-09"', cls.fromisoformat, "date")
    raise _unknown(cls)


def _literal(values: tuple[Any, ...]) -> ValueKind:
    return _options([(value.value if _is_a(type(value), "enum", "Enum") else value, value) for value in values], "a Literal")


def _options(options: list[tuple[Any, object]], what: str) -> ValueKind:
    if not options:
        raise Underivable(f"is {what}, which has no members", "give it some")
    for value, _ in options:
        if json_type(value) in ("", "array", "object"):
            raise Underivable(f"is {what} with {shown(value)}, which is no JSON value", "let its values be text or numbers")
    return OneOf(options)


def _is_a(cls: Any, module: str, name: str) -> bool:
    """Whether it is a subclass of a class whose module is imported, if so."""
    found = getattr(sys.modules.get(module), name, None)
    return found is not None and isinstance(cls, type) and issubclass(cls, found)


def _name(hint: Any) -> str:
    return hint.__qualname__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")


def _unknown(hint: Any) -> Underivable:
    name = _name(hint)
    if isinstance(hint, typing.TypeVar):
        return Underivable(f"is the type variable {name}", "write the type that is meant")
    instead = _INSTEAD.get(name.rpartition(".")[2], f"write a dataclass, a TypedDict or a plain type for it, or {_OWN_SCHEMA}")
    return Underivable(f"is {name}, which no JSON value stands for", instead)

"""Any object of the protocol, and the same written in another way."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import Raw, inspect

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
opaque = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | text | st.sampled_from([1.0, 2.5]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text | st.sampled_from(["Name", "name", "ID"]), inner, max_size=2),
    max_leaves=5,
)


def objects(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Any value of this struct."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return st.builds(kind, **{field.name: _values(field.type) for field in info.fields})


def _values(info: inspect.Type) -> st.SearchStrategy[Any]:
    match info:
        case inspect.StrType():
            return text
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return st.integers(-(2**53), 2**53)
        case inspect.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
        case inspect.NoneType():
            return st.none()
        case inspect.RawType():
            return opaque.map(lambda value: Raw(msgspec.json.encode(value)))
        case inspect.AnyType():
            return opaque
        case inspect.StructType(cls=cls):
            return objects(cls)
        case inspect.ListType(item_type=item):
            return st.lists(_values(item), max_size=2)
        case inspect.VarTupleType(item_type=item):
            return st.lists(_values(item), max_size=2).map(tuple)
        case inspect.DictType(value_type=value):
            return st.dictionaries(text, _values(value), max_size=2)
        case inspect.UnionType(types=types):
            return st.one_of([_values(one) for one in types])
    raise AssertionError(info)


class VariantWriter:
    """Writes an object with the protocol's keys in any case, its whole numbers as fractions, and opaque data as it is."""

    def __init__(self, case: Callable[[str], str], *, fractions: bool) -> None:
        self._case = case
        self._fractions = fractions

    def write(self, value: object) -> bytes:
        return self._value(value, inspect.type_info(type(value))).encode()

    def _value(self, value: Any, info: inspect.Type) -> str:
        if isinstance(info, inspect.UnionType):
            info = next(one for one in info.types if isinstance(one, inspect.NoneType) == (value is None))
        match info:
            case inspect.StructType(fields=fields):
                members = [(field.encode_name, self._value(getattr(value, field.name), field.type)) for field in fields]
                return "{" + ",".join(f"{json.dumps(self._case(key))}:{text}" for key, text in members) + "}"
            case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
                return "[" + ",".join(self._value(one, item) for one in value) + "]"
            case inspect.DictType(value_type=of) if not isinstance(of, inspect.AnyType):
                return "{" + ",".join(f"{json.dumps(key)}:{self._value(one, of)}" for key, one in value.items()) + "}"
            case inspect.IntType() if self._fractions:
                return f"{value}.0"
        return msgspec.json.encode(value).decode()

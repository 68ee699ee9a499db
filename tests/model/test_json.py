"""Every value of the model has a JSON form that says all of it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import inspect

from serai.model.actions import Action
from serai.model.approvals import Allow, Decision
from serai.model.contributions import InterceptResult
from serai.model.events import Event
from serai.model.provider import Chunk, Completion
from serai.model.tools import Block, ImageBlock, ToolCall, ToolResult, ToolSpec
from tests.support.json_values import JSON

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no defect
MODULES = ("actions", "approvals", "contributions", "events", "provider", "tools")
SIMPLE: dict[type[inspect.Type], st.SearchStrategy[Any]] = {
    inspect.AnyType: JSON,
    inspect.NoneType: st.none(),
    inspect.BoolType: st.booleans(),
    inspect.IntType: st.integers(-(2**63), 2**63 - 1),
    inspect.FloatType: st.floats(allow_nan=False, allow_infinity=False),
    inspect.StrType: st.text(),
    inspect.BytesType: st.binary(),
}


def structs() -> list[type[msgspec.Struct]]:
    """All of them, as they stand in the modules."""
    found: list[type[msgspec.Struct]] = []
    for name in MODULES:
        module = import_module(f"serai.model.{name}")
        found += [
            kind
            for kind in vars(module).values()
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__
        ]
    return found


def values(info: inspect.Type) -> st.SearchStrategy[Any]:
    """Any value of a type."""
    match info:
        case inspect.StructType(cls=cls, fields=fields):
            return st.builds(cls, **{field.name: values(field.type) for field in fields})
        case inspect.UnionType(types=types):
            return st.one_of([values(one) for one in types])
        case inspect.LiteralType(values=words):
            return st.sampled_from(words)
        case inspect.VarTupleType(item_type=item):
            return st.lists(values(item), max_size=3).map(tuple)
        case inspect.FrozenSetType(item_type=item):
            return st.frozensets(values(item), max_size=3)
        case inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(values(key), values(value), max_size=3)
        case _:
            return SIMPLE[type(info)]


def check_round_trip(value: Any, kind: Any) -> None:
    assert msgspec.json.decode(msgspec.json.encode(value), type=kind) == value


@pytest.mark.req("host.model.json")
@pytest.mark.parametrize("kind", structs(), ids=lambda kind: kind.__name__)
@UNHURRIED
@given(data=st.data())
def test_every_value_is_the_same_after_a_round_trip(kind: type[msgspec.Struct], data: st.DataObject) -> None:
    check_round_trip(data.draw(values(inspect.type_info(kind))), kind)


UNIONS = {
    "event": Event,
    "action": Action,
    "decision": Decision,
    "verdict": InterceptResult,
    "block": Block,
    "piece": Chunk | Completion,
}


@pytest.mark.parametrize("union", UNIONS.values(), ids=UNIONS.keys())
@UNHURRIED
@given(data=st.data())
def test_a_value_of_a_union_tells_what_it_is(union: Any, data: st.DataObject) -> None:
    value = data.draw(values(inspect.type_info(union)))
    check_round_trip(value, union)
    assert type(msgspec.json.decode(msgspec.json.encode(value), type=union)) is type(value)


@pytest.mark.req("host.model.json")
def test_every_value_is_frozen() -> None:
    assert [kind.__name__ for kind in structs() if not kind.__struct_config__.frozen] == []


def test_what_is_not_said_is_not_written() -> None:
    assert msgspec.json.encode(Allow()) == b'{"type":"allow"}'
    assert msgspec.json.encode(Allow(None)) == b'{"type":"allow","arguments":null}'
    assert msgspec.json.encode(ToolCall("weather", {"city": "Bern"})) == b'{"name":"weather","arguments":{"city":"Bern"}}'
    assert (
        msgspec.json.encode(ToolSpec("weather")) == b'{"name":"weather","schema":{"type":"object"}}'
    )  # what it takes is always said
    assert msgspec.json.encode(ToolResult.of("sun")) == b'{"content":[{"type":"text","text":"sun"}]}'
    assert msgspec.json.encode(ImageBlock(b"\xff")) == b'{"type":"image","data":"/w==","mime":""}'

"""From a signature to a schema: every hint, every default, and what is said when there is none."""

from __future__ import annotations

import enum
import functools
import json
import re
import subprocess
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import KW_ONLY, InitVar, dataclass, field
from datetime import date, datetime
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, Generic, Literal, NewType, NotRequired, Optional, Required, TypedDict, TypeVar

import jsonschema_rs
import pytest

from serai.errors import BadExtension
from serai.sdk.current_call import Call
from serai.sdk.schema.parameters import Parameters, derive_parameters

T = TypeVar("T")
City = NewType("City", str)
SelfReferring = "SelfReferring"


class Unit(enum.Enum):
    CELSIUS = "c"
    KELVIN = 1


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Empty(enum.Enum):
    pass


class Odd(enum.Enum):
    PAIR = (1, 2)


@dataclass
class Stop:
    city: Annotated[str, "where"]
    nights: int = 1


@dataclass
class Trip:
    stops: list[Stop]
    unit: Unit = Unit.CELSIUS
    tags: list[str] = field(default_factory=list)
    home: Stop | None = None
    cache: str = field(default="", init=False)
    known: ClassVar[int] = 3


@dataclass
class Tree:
    value: int
    left: Tree | None = None
    right: Annotated[Tree | None, "the other side"] = None
    forest: Forest | None = None


@dataclass
class Forest:
    trees: list[Tree]


class Base(TypedDict):
    id: int


class Options(Base, total=False):
    name: Required[str]
    note: str
    depth: NotRequired[int]


class Total(TypedDict):
    name: str
    note: NotRequired[Annotated[str, "a note"]]


@dataclass(frozen=True)
class Point:
    x: int
    y: int


@dataclass(frozen=True)
class Bag:
    things: list[int]


@dataclass
class Box(Generic[T]):
    inside: T


def derive_for(hint: object) -> Parameters:
    """The parameters of a tool that takes a value of that hint."""

    def tool(value: object) -> None: ...

    tool.__annotations__ = {"value": hint}
    return derive_parameters(tool, "tool")


def schema_of(hint: object) -> dict[str, Any]:
    schema = derive_for(hint).schema
    jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
    jsonschema_rs.validator_for(schema)
    assert json.loads(json.dumps(schema)) == schema
    properties: dict[str, dict[str, Any]] = schema["properties"]
    return properties["value"]


def error_of(make: Callable[[], object]) -> BadExtension:
    with pytest.raises(BadExtension) as caught:
        make()
    assert caught.value.hint
    return caught.value


STRING, INTEGER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
LEVEL = {"type": "integer", "enum": [1, 2]}
STOP = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "where"}, "nights": {"type": "integer", "default": 1}},
    "required": ["city"],
    "additionalProperties": False,
}


# -- hints ------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("sdk.schema.hints")
@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, STRING),
        (int, INTEGER),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, NULL),
        (Any, {}),
        (object, {}),
        (City, STRING),
        (list, {"type": "array"}),
        (list[int], {"type": "array", "items": INTEGER}),
        (typing.List[int], {"type": "array", "items": INTEGER}),  # noqa: UP006
        (Sequence[int], {"type": "array", "items": INTEGER}),
        (Iterable[int], {"type": "array", "items": INTEGER}),
        (set[str], {"type": "array", "items": STRING, "uniqueItems": True}),
        (set[Level | Path | None], {"type": "array", "items": {"anyOf": [LEVEL, STRING, NULL]}, "uniqueItems": True}),
        (set[int], {"type": "array", "items": INTEGER, "uniqueItems": True, "maxItems": 10_000}),
        (Annotated[set[int], {"maxItems": 20_000}], {"type": "array", "items": INTEGER, "uniqueItems": True, "maxItems": 20_000}),
        (frozenset[float], {"type": "array", "items": {"type": "number"}, "uniqueItems": True, "maxItems": 10_000}),
        (
            AbstractSet[Point | str],
            {"type": "array", "items": {"anyOf": [schema_of(Point), STRING]}, "uniqueItems": True, "maxItems": 10_000},
        ),
        (tuple, {"type": "array"}),
        (typing.Tuple, {"type": "array"}),  # noqa: UP006
        (tuple[int, ...], {"type": "array", "items": INTEGER}),
        (tuple[int, str], {"type": "array", "prefixItems": [INTEGER, STRING], "minItems": 2, "maxItems": 2}),
        (tuple[()], {"type": "array", "minItems": 0, "maxItems": 0}),
        (dict, {"type": "object"}),
        (dict[str, int], {"type": "object", "additionalProperties": INTEGER}),
        (Mapping[str, Any], {"type": "object"}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Literal[1, "a", None, True], {"enum": [1, "a", None, True]}),  # noqa: PYI061
        (Literal[Unit.KELVIN], {"type": "integer", "enum": [1]}),
        (Unit, {"enum": ["c", 1]}),
        (Level, LEVEL),
        (int | str, {"anyOf": [INTEGER, STRING]}),
        (Optional[int], {"anyOf": [INTEGER, NULL]}),  # noqa: UP045
        (Path, STRING),
        (PurePosixPath, STRING),
        (date, {"type": "string", "format": "date"}),
        (datetime, {"type": "string", "format": "date-time"}),
        (Stop, STOP),
    ],
)
def test_a_hint_has_its_schema(hint: object, schema: dict[str, Any]) -> None:
    assert schema_of(hint) == schema


@pytest.mark.req("sdk.schema.hints")
def test_a_text_in_annotated_describes_and_a_mapping_adds_keywords() -> None:
    hint = Annotated[int, "how many", {"minimum": 1, "examples": [3]}, object(), {"maximum": 7, "x-unit": "days"}]
    assert schema_of(hint) == {
        "type": "integer",
        "description": "how many",
        "minimum": 1,
        "examples": [3],
        "maximum": 7,
        "x-unit": "days",
    }
    assert schema_of(Annotated[int | None, {"minimum": 1}]) == {"anyOf": [INTEGER, NULL], "minimum": 1}
    assert schema_of(list[Annotated[str, {"pattern": "^a"}]])["items"] == {"type": "string", "pattern": "^a"}


@pytest.mark.req("sdk.schema.hints")
def test_a_dataclass_is_an_object_with_its_fields_and_their_defaults() -> None:
    assert schema_of(Trip) == {
        "type": "object",
        "properties": {
            "stops": {"type": "array", "items": STOP},
            "unit": {"enum": ["c", 1], "default": "c"},
            "tags": {"type": "array", "items": STRING},
            "home": {"anyOf": [STOP, NULL], "default": None},
        },
        "required": ["stops"],
        "additionalProperties": False,
    }


@pytest.mark.req("sdk.schema.hints")
def test_a_dataclass_may_take_values_that_are_no_fields_or_by_name_only() -> None:
    @dataclass
    class Odds:
        seed: InitVar[int]
        _: KW_ONLY
        city: str = None  # type: ignore[assignment]

    schema = schema_of(Odds)
    assert schema["properties"] == {"seed": INTEGER, "city": {"anyOf": [STRING, NULL], "default": None}}
    assert schema["required"] == ["seed"]


@pytest.mark.req("sdk.schema.hints")
def test_what_is_part_of_itself_becomes_a_definition() -> None:
    schema = derive_for(Tree).schema
    tree = {"$ref": "#/$defs/Tree"}
    forest = {"type": "object", "properties": {"trees": {"type": "array", "items": tree}}, "required": ["trees"]}
    assert schema["properties"]["value"] == tree
    assert schema["$defs"]["Tree"]["properties"] == {
        "value": INTEGER,
        "left": {"anyOf": [tree, NULL], "default": None},
        "right": {"anyOf": [tree, NULL], "description": "the other side", "default": None},
        "forest": {"anyOf": [{**forest, "additionalProperties": False}, NULL], "default": None},
    }
    validator = jsonschema_rs.validator_for(schema)
    assert validator.is_valid({"value": {"value": 1, "forest": {"trees": [{"value": 2}]}}})
    assert not validator.is_valid({"value": {"value": 1, "forest": {"trees": [{"value": "2"}]}}})


class First:
    @dataclass
    class Node:
        next: First.Node | None


class Second:
    @dataclass
    class Node:
        next: Second.Node | None


def test_two_recursive_classes_of_one_name_are_two_definitions() -> None:
    schema = schema_of(tuple[First.Node, Second.Node, First.Node])
    assert schema["prefixItems"] == [{"$ref": "#/$defs/Node"}, {"$ref": "#/$defs/Node_"}, {"$ref": "#/$defs/Node"}]


@pytest.mark.req("sdk.schema.hints")
def test_a_typed_dict_says_itself_what_is_required() -> None:
    assert schema_of(Options) == {
        "type": "object",
        "properties": {"id": INTEGER, "name": STRING, "note": STRING, "depth": INTEGER},
        "required": ["id", "name"],
        "additionalProperties": False,
    }
    total = schema_of(Total)
    assert total["required"] == ["name"]
    assert total["properties"]["note"] == {"type": "string", "description": "a note"}


# -- signatures -------------------------------------------------------------------------------------------------------------


@pytest.mark.req("sdk.schema.hints")
def test_defaults_are_in_the_schema_if_they_are_json_and_make_a_parameter_optional() -> None:
    def tool(
        city: str,
        days: int = 1,
        unit: Unit = Unit.KELVIN,
        where: Path = Path(),
        size: tuple[int, int] = (1, 2),
        ratio: float = float("nan"),
        note: str = None,  # type: ignore[assignment]  # noqa: RUF013
        *,
        deep: bool = False,
        exact: bool,
    ) -> None: ...

    schema = derive_parameters(tool, "tool").schema
    defaults = {name: one["default"] for name, one in schema["properties"].items() if "default" in one}
    assert defaults == {"days": 1, "unit": 1, "size": [1, 2], "note": None, "deep": False}
    assert schema["required"] == ["city", "exact"]
    assert schema["properties"]["note"]["anyOf"] == [STRING, NULL]
    assert schema["additionalProperties"] is False


@pytest.mark.req("sdk.schema.hints")
def test_a_parameter_without_a_hint_has_the_type_of_its_default() -> None:
    def tool(a=1, b=1.5, c="x", d=True): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202

    properties = derive_parameters(tool, "tool").schema["properties"]
    assert [one["type"] for one in properties.values()] == ["integer", "number", "string", "boolean"]


def test_a_tool_that_takes_nothing_has_an_empty_object() -> None:
    assert derive_parameters(lambda: None, "tool").schema == {"type": "object", "properties": {}, "additionalProperties": False}


def test_further_arguments_are_allowed_by_two_stars() -> None:
    def untyped(**more): ...  # type: ignore[no-untyped-def]  # noqa: ANN003, ANN202

    def typed(**more: int) -> None: ...

    assert derive_parameters(untyped, "tool").schema["additionalProperties"] is True
    assert derive_parameters(typed, "tool").schema["additionalProperties"] == INTEGER


@pytest.mark.parametrize("hint", [Call, "Call", Call | None, "Call | None", Annotated[Call, "running"]])
def test_the_parameter_for_the_running_call_is_not_in_the_schema(hint: object) -> None:
    def tool(city: str, running: object = None) -> None: ...

    tool.__annotations__ = {"city": str, "running": hint}
    derived = derive_parameters(tool, "tool")
    assert derived.call == "running"
    assert list(derived.schema["properties"]) == ["city"]
    assert derive_for(str).call == ""


class Station:
    """A station."""

    def weather(self, city: City, days: int = 1) -> None:
        """Of a city."""

    @staticmethod
    def fixed(city: City, days: int = 1) -> None:
        """Of a city."""

    def __call__(self, city: City, days: int = 1) -> None:
        """Of a city."""


class Nameless:
    """Of a city."""

    def __call__(self, city: City, days: int = 1) -> None: ...


def plain(city: City, days: int = 1) -> None:
    """Of a city."""


@functools.wraps(plain)
def wrapped(*args: Any, **kwargs: Any) -> None: ...


def three(start: object, city: City, days: int = 1) -> None:
    """Of a city."""


@pytest.mark.req("sdk.schema.hints")
@pytest.mark.parametrize(
    "function",
    [plain, Station().weather, Station.fixed, Station(), Nameless(), wrapped, functools.partial(three, None)],
    ids=["function", "method", "static method", "object", "object whose class has the docstring", "decorated", "partial"],
)
def test_whatever_can_be_called_has_a_schema_and_a_description(function: Callable[..., object]) -> None:
    derived = derive_parameters(function, "tool")
    assert derived.schema == {
        "type": "object",
        "properties": {"city": STRING, "days": {"type": "integer", "default": 1}},
        "required": ["city"],
        "additionalProperties": False,
    }
    assert derived.description == "Of a city."


@pytest.mark.req("sdk.schema.docstrings")
def test_a_docstring_describes_parameters_unless_their_hint_does() -> None:
    def tool(city: str, days: Annotated[int, "how many"] = 1, note: Annotated[str, "any"] = None) -> None:  # type: ignore[assignment]  # noqa: RUF013
        """Of a city.

        Args:
            city: which one
            days: other words
            nobody: is this
        """

    derived = derive_parameters(tool, "tool")
    described = {name: one["description"] for name, one in derived.schema["properties"].items()}
    assert described == {"city": "which one", "days": "how many", "note": "any"}
    assert derived.description == "Of a city."


# -- hints that are text ------------------------------------------------------------------------------------------------------


@pytest.mark.req("sdk.schema.hints")
def test_names_are_found_around_a_function_that_is_made_inside_others() -> None:
    Number = NewType("Number", int)

    class Kind(enum.Enum):
        A = "a"

    @dataclass
    class Item:
        kind: Kind
        count: Number
        inner: Inner

        class Inner(TypedDict):
            name: str

    def tool(a: Number, b: list[Item], c: list["Kind"]) -> None: ...  # noqa: UP037

    properties = derive_parameters(tool, "tool").schema["properties"]
    kind = {"type": "string", "enum": ["a"]}
    assert properties["a"] == INTEGER
    assert properties["b"]["items"]["properties"]["kind"] == kind
    assert properties["b"]["items"]["properties"]["count"] == INTEGER
    assert properties["b"]["items"]["properties"]["inner"]["required"] == ["name"]
    assert properties["c"]["items"] == kind


def test_names_are_found_in_the_body_of_a_class_that_is_being_made() -> None:
    here = []

    class Local:
        Inner = int

        def tool(a: Inner) -> None: ...  # type: ignore[valid-type]  # noqa: N805

        here.append(derive_parameters(tool, "tool").schema["properties"]["a"])

    assert here == [INTEGER]


def test_a_field_may_have_the_name_of_its_type() -> None:
    @dataclass
    class Day:
        str: str = "x"
        list: list[int] = field(default_factory=list)

    assert schema_of(Day)["properties"] == {
        "str": {"type": "string", "default": "x"},
        "list": {"type": "array", "items": INTEGER},
    }


# -- what cannot be -------------------------------------------------------------------------------------------------------------


@pytest.mark.req("sdk.schema.underivable")
@pytest.mark.parametrize(
    ("hint", "problem", "instead"),
    [
        (bytes, "is bytes, which no JSON value stands for", "base64"),
        (complex, "is complex", "tuple[float, float]"),
        (list[Call], "is Call, which no JSON value stands for", "dataclass"),
        (Callable[[int], str], "which no JSON value stands for", "@ext.tool(schema={…})"),
        (T, "is the type variable", "the type that is meant"),
        (Box[int], "Box[int], which no JSON value stands for", "dataclass"),
        (Box, 'has the field "inside" of Box, which is the type variable', "the type that is meant"),
        (5, "is 5", "dataclass"),
        ([int], "which no JSON value stands for", "dataclass"),
        (dict[int, str], "names in JSON are text", "dict[str, …]"),
        (dict[Annotated[str, {"minLength": 1}], int], "names in JSON are text", "dict[str, …]"),
        (set[list[int]], "not every such item can be in a set", "list[…]"),
        (set, "not every such item can be in a set", "set[str]"),
        (set[Stop], "not every such item can be in a set", "list[…]"),
        (frozenset[Bag], "not every such item can be in a set", "list[…]"),
        (Literal[b"x"], "is a Literal with", "text or numbers"),
        (Empty, "is Empty, which has no members", "give it some"),
        (Odd, "is Odd with [1, 2], which is no JSON value", "text or numbers"),
        ("Nowhere", "has the hint 'Nowhere', which cannot be resolved", "import or define the name above"),
        ("list[Nowhere]", "has the hint 'list[Nowhere]', which cannot be resolved", "import or define the name above"),
        (list["Nowhere"], "has the hint 'Nowhere', which cannot be resolved", "import or define the name above"),  # type: ignore[name-defined]  # noqa: F821
        ("in valid", "cannot be resolved", "import or define the name above"),
        ("SelfReferring", "SelfReferring", "dataclass"),
        pytest.param(
            "Annotated[int, {'minimum': 1}] | None",
            "cannot be resolved: unhashable",
            "Annotated[int | None, {…}]",
            marks=pytest.mark.skipif(sys.version_info >= (3, 13), reason="Python can join them by then"),
        ),
        (Annotated[int, {"minLength": 1}], "'minLength', which says nothing about its type", "for strings"),
        (Annotated[str, {"minimum": 1}], "'minimum', which says nothing about its type", "for numbers"),
        (Annotated[bool, {"maxItems": 1}], "'maxItems', which says nothing about its type", "for lists"),
        (Annotated[str | None, {"minProperties": 1}], "says nothing about its type", "for objects"),
        (Annotated[str, {"pattern": 5}], "'pattern' with 5", "a pattern"),
        (Annotated[int, {"minimum": "1"}], "'minimum' with \"1\"", "a number"),
        (Annotated[int, {"minimum": True}], "'minimum' with true", "a number"),
        (Annotated[int, {"multipleOf": 0}], "'multipleOf' with 0", "a number above zero"),
        (Annotated[str, {"minLength": -1}], "'minLength' with -1", "a count"),
        (Annotated[list[int], {"uniqueItems": 1}], "'uniqueItems' with 1", "true or false"),
        (Annotated[int, {"examples": 1}], "'examples' with 1", "a list"),
        (Annotated[int, {"x-set": {1}}], "a value that is not JSON", "write JSON"),
        (Annotated[float, {"minimum": float("inf")}], "a value that is not JSON", "write JSON"),
        (Annotated[int, {"enum": [1]}], "'enum', which its hint decides", "Literal"),
        (Annotated[int, {"type": "string"}], "'type', which its hint decides", "the type itself"),
        (Annotated[int, {"not": {}}], "'not', which cannot be checked", "@ext.tool(schema={…})"),
        (Annotated[int, {5: 6}], "the keyword 5", "leave it out"),
        (Annotated[tuple[int, int], {"minItems": 1}], "'minItems', which its hint says already", "leave"),
        (Annotated[set[int], {"uniqueItems": False}], "'uniqueItems', which its hint says already", "leave"),
    ],
)
def test_a_hint_without_a_schema_is_an_error_that_names_the_parameter_and_the_way_out(
    hint: object, problem: str, instead: str
) -> None:
    error = error_of(lambda: derive_for(hint))
    assert re.match(r'tool "tool" \(test_parameters\.py:\d+\): the parameter "value" ', str(error))
    assert problem in str(error)
    assert instead in error.hint


@pytest.mark.req("sdk.schema.underivable")
def test_what_is_wrong_in_a_class_names_the_field_as_well() -> None:
    @dataclass
    class Inner:
        raw: bytes

    @dataclass
    class Outer:
        inner: list[Inner]

    class Lost(TypedDict):
        there: Nowhere  # type: ignore[name-defined]  # noqa: F821

    where = 'the parameter "value" has the field "inner" of Outer, which has the field "raw" of Inner, which is bytes'

    def tool(value: Outer) -> None: ...

    assert where in str(error_of(lambda: derive_parameters(tool, "tool")))
    assert 'the field "there" of Lost, which has the hint' in str(error_of(lambda: derive_for(Lost)))


@pytest.mark.req("sdk.schema.underivable")
def test_a_parameter_that_a_model_cannot_give_is_an_error() -> None:
    def unhinted(city): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202

    def none(city=None): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202

    def by_place(city: str, /) -> None: ...

    def call_by_place(call: Call, /) -> None: ...

    def many(*cities: str) -> None: ...

    def calls(one: Call, two: Call) -> None: ...

    def undecorated(*args: Any, **kwargs: Any) -> None: ...

    def says(function: Callable[..., object]) -> tuple[str, str]:
        error = error_of(lambda: derive_parameters(function, "weather"))
        code = function.__code__
        where = f'tool "weather" (test_parameters.py:{code.co_firstlineno}): '
        assert str(error).startswith(where)
        return str(error).removeprefix(where), error.hint

    assert says(unhinted) == ('the parameter "city" has no type hint', "write `city: str`, or whatever it is")
    assert says(none)[0].endswith("has no type hint")
    assert says(by_place)[0].startswith('the parameter "city" is positional-only')
    assert says(call_by_place)[0].startswith('the parameter "call" is positional-only')
    assert says(many)[0].startswith('the parameter "cities" takes any number of values by place')
    assert says(calls)[0] == 'the parameter "two" wants the running call, and so does "one"'
    assert "functools.wraps" in says(undecorated)[1]


@pytest.mark.req("sdk.schema.underivable")
def test_an_error_names_the_place_of_the_function_inside_what_was_registered() -> None:
    def decorated(function: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> object:
            return function(*args, **kwargs)

        return wrapper

    def tool(start: object, city: bytes) -> None: ...

    place = f"(test_parameters.py:{tool.__code__.co_firstlineno})"
    for function in (tool, decorated(tool), functools.partial(tool, None), functools.partial(decorated(tool), None)):
        error = error_of(functools.partial(derive_parameters, function, "weather"))
        assert str(error).startswith(f'tool "weather" {place}: ')


@pytest.mark.req("sdk.schema.underivable")
@pytest.mark.parametrize("name", ["self", "cls"])
def test_a_method_that_is_not_bound_yet_is_an_error_that_says_how_it_is_registered(name: str) -> None:
    names: dict[str, Any] = {}
    exec(f"def weather({name}, city: str): ...", names)
    error = error_of(lambda: derive_parameters(names["weather"], "weather"))
    assert f'the parameter "{name}" has no type hint' in str(error)
    assert "register the bound one, as in ext.tool(station.weather)" in error.hint


# -- patterns -------------------------------------------------------------------------------------------------------------------


def pattern_of(pattern: str) -> dict[str, Any]:
    return schema_of(Annotated[str, {"pattern": pattern}])


@pytest.mark.req("sdk.schema.underivable")
@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        (r"\Aabc$", r"\A is something that only Python reads"),
        (r"^abc\Z", r"\Z is something that only Python reads"),
        (r"(?P<n>a)", "(?P is something"),
        (r"(a)(?(1)b|c)", "(?( is something"),
        (r"(?>a)b", "(?> is something"),
        (r"(?i)abc", "(?i is something"),
        (r"(?i:abc)", "(?i is something"),
        (r"a++", "++ is something"),
        (r"a{2}+", "}+ is something"),
        (r"(?<n>a)", "unknown extension"),
        (r"*a", "nothing to repeat"),
        (r"(a", "missing )"),
        (r"[a", "unterminated character set"),
        ("a\\", "bad escape"),
        (r"\p{L}", "bad escape"),
        ("(" * 100_000, ""),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_pattern_that_nobody_or_only_python_reads_is_an_error(pattern: str, problem: str) -> None:
    error = error_of(lambda: pattern_of(pattern))
    assert 'the parameter "value" has the pattern ' in str(error)
    assert problem in str(error)
    assert "ECMA 262" in error.hint


@pytest.mark.req("sdk.schema.hints")
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "pattern",
    ["", "^$", r"^[a-z][a-z0-9-]{0,62}$", r"^\d{4}-\d{2}$", r"^(?:a|b|)+?c??$", r"^[^\s,;]+@[\w.-]+$", r"\bfoo\b", r"[$+]+\}+\$"],
)
def test_a_pattern_that_all_read_goes_out_as_it_is_and_our_host_finds_it_valid(pattern: str) -> None:
    schema = pattern_of(pattern)
    assert schema == {"type": "string", "pattern": pattern}
    jsonschema_rs.validator_for(schema, offline=True, pattern_options=jsonschema_rs.RegexOptions())  # the linear engine


@pytest.mark.req("sdk.schema.underivable")
@pytest.mark.parametrize("function", [dict.update, type, iter])
def test_what_does_not_tell_its_parameters_is_an_error(function: Callable[..., object]) -> None:
    assert str(error_of(lambda: derive_parameters(function, "weather"))).startswith(f'tool "weather" ({function!r}): ')


def test_a_function_that_wraps_itself_is_no_endless_loop() -> None:
    def tool(city: str) -> None: ...

    tool.__wrapped__ = tool  # type: ignore[attr-defined]
    assert "cannot be told" in str(error_of(lambda: derive_parameters(tool, "weather")))


def test_a_type_alias_is_what_it_stands_for() -> None:
    """As `type Cities = list[str]` makes one since Python 3.12."""

    class TypeAliasType:
        __value__: Any = list[str]

    assert schema_of(TypeAliasType()) == {"type": "array", "items": STRING}
    round_alias = TypeAliasType()
    round_alias.__value__ = list[round_alias]  # type: ignore[valid-type]
    assert "part of itself" in str(error_of(lambda: derive_for(round_alias)))
    if sys.version_info >= (3, 12):
        names: dict[str, Any] = {}
        exec("type Cities = list[str]\ntype Round = list[Round]", names)
        assert schema_of(names["Cities"]) == {"type": "array", "items": STRING}
        assert "part of itself" in str(error_of(lambda: derive_for(names["Round"])))


# -- the start ------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("sdk.schema.hints")
def test_a_plain_function_gets_its_schema_without_an_import_of_what_is_slow() -> None:
    program = """
import sys, typing
from serai.sdk.schema.parameters import derive_parameters
def weather(city: typing.Annotated[str, "which", {"minLength": 1}], days: list[int] | None = None, *, deep: bool = False) -> str:
    "Of a city."
class Station:
    def weather(self, city: str) -> str: "Of a city."
derive_parameters(weather, "weather"), derive_parameters(Station().weather, "weather")
slow = "inspect dataclasses pathlib datetime asyncio threading logging traceback difflib fractions decimal msgspec".split()
print([name for name in slow if name in sys.modules])
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert ran.stdout.strip() == "[]"

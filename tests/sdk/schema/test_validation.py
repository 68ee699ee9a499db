"""From what a model sends to what a handler gets: coercion, errors, and that the schema keeps its word."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import json
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serai.sdk.answers import ToolError
from serai.sdk.current_call import Call
from serai.sdk.schema.parameters import Parameters, derive_parameters
from serai.sdk.schema.validation import VALID, Validation, are_unique
from serai.sdk.schema.values import ValueKind
from tests.support.profiles import examples

HUGE = 10**5000  # more digits than Python writes


class Unit(enum.Enum):
    CELSIUS = "c"
    KELVIN = 1


@dataclass
class Stop:
    city: str
    nights: int = 1


@dataclass
class Trip:
    stops: list[Stop]
    tags: list[str] = field(default_factory=lambda: ["new"])


@dataclass(frozen=True)
class Point:
    x: int
    y: int

    def __post_init__(self) -> None:
        if self.x > 90:
            raise ValueError("x is at most 90")
        if self.y > 90:
            raise AssertionError


@dataclass
class Tree:
    value: int
    left: Tree | None = None
    right: Tree | None = None


@dataclass
class Add:
    left: Add | Times | int
    right: Add | Times | int


@dataclass
class Times:
    left: Add | Times | int
    right: Add | Times | int


class Options(TypedDict):
    name: str
    depth: NotRequired[int]


@dataclass
class Circle:
    kind: Literal["circle"]
    radius: float


@dataclass
class Square:
    kind: Literal["square"]
    side: float
    turn: float


def derive_for(hint: object) -> Parameters:
    """The parameters of a tool that takes a value of that hint."""

    def tool(value: object) -> None: ...

    tool.__annotations__ = {"value": hint}
    return derive_parameters(tool, "tool")


def bind_value(hint: object, value: object) -> Any:
    """What a handler with that hint gets for a value."""
    return derive_for(hint).bind({"value": value})["value"]


def get_refusal(hint: object, value: object) -> str:
    """What a model is told that sent such a value."""
    with pytest.raises(ToolError) as caught:
        bind_value(hint, value)
    return str(caught.value).removeprefix("invalid arguments: ")


def get_tool_error(function: Callable[..., object], arguments: object) -> str:
    with pytest.raises(ToolError) as caught:
        derive_parameters(function, "tool").bind(arguments)
    return str(caught.value)


# -- coercion -----------------------------------------------------------------------------------------------------------------


@pytest.mark.req("sdk.args.coerced")
@pytest.mark.parametrize(
    ("hint", "sent", "got"),
    [
        (int, 5, 5),
        (int, 5.0, 5),
        (int, "5", 5),
        (int, " -5 ", -5),
        (int, "5.0", 5),
        (float, 1.5, 1.5),
        (float, 5, 5.0),
        (float, "1.5", 1.5),
        (float, "-2e3", -2000.0),
        (bool, True, True),
        (bool, "true", True),
        (bool, "False", False),
        (str, "5", "5"),
        (str, 5, "5"),
        (str, 1.5, "1.5"),
        (None, None, None),
        (Any, {"a": [1]}, {"a": [1]}),
        (list[int], [1, "2"], [1, 2]),
        (list[int], "[1, 2]", [1, 2]),
        (list[str], ' ["a"]', ["a"]),
        (tuple[int, ...], ["1"], (1,)),
        (tuple[int, str], ["1", 2], (1, "2")),
        (Iterable[int], [1], [1]),
        (set[int], [1, "1", 2], {1, 2}),
        (frozenset[Point], [{"x": 1, "y": 2}], frozenset({Point(1, 2)})),
        (dict[str, float], {"a": 1}, {"a": 1.0}),
        (Mapping[str, int], '{"a": "1"}', {"a": 1}),
        (Literal["a", "b"], "a", "a"),
        (Literal[1, 2], "2", 2),
        (Literal["1", "2"], 2, "2"),
        (Literal[True, "x"], "true", True),
        (Unit, "c", Unit.CELSIUS),
        (Unit, 1, Unit.KELVIN),
        (Unit, 1.0, Unit.KELVIN),
        (Unit, "1", Unit.KELVIN),
        (Literal[Unit.KELVIN], 1, Unit.KELVIN),
        (Path, "a/b", Path("a/b")),
        (date, "2025-03-09", date(2025, 3, 9)),
        (datetime, "2025-03-09t16:30:00z", datetime(2025, 3, 9, 16, 30, tzinfo=UTC)),
        (Trip, {"stops": [{"city": "Bern", "nights": "2"}]}, Trip([Stop("Bern", 2)])),
        (Trip, '{"stops": [{"city": "Bern"}]}', Trip([Stop("Bern")])),
        (Trip, {"stops": [], "tags": None}, Trip([], ["new"])),
        (Options, {"name": "a", "depth": "3"}, {"name": "a", "depth": 3}),
        (Options, {"name": "a", "depth": None}, {"name": "a"}),
        (Tree, {"value": 1, "left": {"value": "2", "left": {"value": 3}}}, Tree(1, Tree(2, Tree(3)))),
        (Annotated[int, {"minimum": 5}], "5", 5),
    ],
)
def test_a_value_arrives_as_the_type_of_its_hint(hint: object, sent: object, got: object) -> None:
    arrived = bind_value(hint, sent)
    assert arrived == got
    assert repr(arrived) == repr(got)  # 5 is equal to 5.0 and True to 1, and they are not the same


@pytest.mark.req("sdk.args.coerced")
@pytest.mark.parametrize(
    ("hint", "sent", "got"),
    [
        (int | str, "5", "5"),
        (str | int, 5, 5),
        (int | float, 5.0, 5.0),
        (float | int, 5, 5),
        (bool | str, "true", "true"),
        (str | list[str], '["a"]', '["a"]'),
        (list[int] | list[str], ["1"], ["1"]),
        (list[str] | list[int], [1.0], [1]),
        (Stop | Options, {"name": "a"}, {"name": "a"}),
        (Stop | Options, {"city": "a"}, Stop("a")),
        (Circle | Square, {"kind": "square", "side": 1, "turn": 2}, Square("square", 1.0, 2.0)),
        (int | None, None, None),
        (int | None, "5", 5),
        (int | bool, "true", True),
        (Literal["5"] | int, 5, 5),
        (dict[str, int] | list[dict[str, int]], '[{"a": 1}]', [{"a": 1}]),
    ],
)
def test_in_a_union_what_fits_as_it_is_wins_over_any_coercion(hint: object, sent: object, got: object) -> None:
    arrived = bind_value(hint, sent)
    assert arrived == got
    assert repr(arrived) == repr(got)


@pytest.mark.req("sdk.args.coerced")
def test_null_is_the_default_where_null_does_not_fit() -> None:
    def tool(city: str, days: int = 3, note: str | None = "n", old: str = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    assert derive_parameters(tool, "tool").bind({"city": "Bern", "days": None, "note": None, "old": None}) == {
        "city": "Bern",
        "note": None,
        "old": None,
    }
    assert get_tool_error(tool, {"city": None}) == "invalid arguments: city must be a string, not null"


def test_what_was_not_sent_is_left_to_the_function() -> None:
    def tool(city: str, days: int = 3, *, deep: bool = False) -> None: ...

    assert derive_parameters(tool, "tool").bind({"city": "Bern"}) == {"city": "Bern"}


def test_further_arguments_are_handed_through_but_not_in_the_place_of_the_call() -> None:
    def tool(city: str, call: Call, **more: int) -> None: ...

    derived = derive_parameters(tool, "tool")
    assert derived.bind({"city": "Bern", "a": "1", "b": 2}) == {"city": "Bern", "a": 1, "b": 2}
    assert get_tool_error(tool, {"city": "Bern", "a": "x", "call": 1}) == (
        'invalid arguments:\n- call must be left out, not 1\n- a must be an integer, not "x"'
    )
    assert not jsonschema_rs.is_valid(derived.schema, {"city": "Bern", "call": 1})


class Station:
    def bound(self, city: str = "", **more: object) -> dict[str, object]:
        return more

    def by_place(self, /, **more: object) -> dict[str, object]:
        return more

    @functools.lru_cache  # noqa: B019  (any decorator that keeps what it wraps)
    def decorated(self, **more: object) -> dict[str, object]:
        return more

    def __call__(self, **more: object) -> dict[str, object]:
        return more


def started(start: int, **more: object) -> dict[str, object]:
    return more


@pytest.mark.req("sdk.args.errors")
@pytest.mark.parametrize(
    ("function", "name"),
    [
        (Station().bound, "self"),
        (Station().decorated, "self"),
        (Station(), "self"),
        (functools.partial(started, 1), "start"),
        (functools.partial(Station.bound, Station()), "self"),
    ],
    ids=["method", "decorated method", "object", "partial", "partial of a method"],
)
def test_further_arguments_do_not_come_in_the_place_of_what_a_function_has_already(
    function: Callable[..., object], name: str
) -> None:
    derived = derive_parameters(function, "tool")
    assert function(**derived.bind({"other": 1})) == {"other": 1}
    assert get_tool_error(function, {name: 1, "other": 1}) == f"invalid arguments: {name} must be left out, not 1"
    assert not jsonschema_rs.is_valid(derived.schema, {name: 1})


def test_a_self_that_is_only_given_by_place_leaves_its_name_to_others() -> None:
    station = Station()
    assert station.by_place(**derive_parameters(station.by_place, "tool").bind({"self": 1})) == {"self": 1}


def test_arguments_as_json_text_or_null_are_what_they_mean() -> None:
    def tool(city: str = "Bern") -> None: ...

    derived = derive_parameters(tool, "tool")
    assert derived.bind('{"city": "Chur"}') == {"city": "Chur"}
    assert derived.bind(None) == {}


# -- errors -------------------------------------------------------------------------------------------------------------------


@pytest.mark.req("sdk.args.errors")
@pytest.mark.parametrize(
    ("hint", "sent", "says"),
    [
        (int, "many", 'value must be an integer, not "many"'),
        (int, 1.5, "value must be an integer, not 1.5"),
        (int, True, "value must be an integer, not true"),
        (int, "9" * 5000, f'value must be an integer, not "{"9" * 78}…'),
        (int, None, "value must be an integer, not null"),
        (float, True, "value must be a number, not true"),
        (float, math.nan, "value must be a number, not NaN"),
        (int, math.inf, "value must be an integer, not Infinity"),
        (Any, math.nan, "value must be JSON, which has no NaN"),
        (object, [{"a": {"b": -math.inf}}], "value must be JSON, which has no -Infinity"),
        (list, [1, math.inf], "value[1] must be JSON, which has no Infinity"),
        (dict[str, Any], {"a": [math.nan]}, "value.a must be JSON, which has no NaN"),
        (dict[str, Any], '{"a": [1e999]}', "value.a must be JSON, which has no Infinity"),
        (dict[str, Any] | None, {"a": math.nan}, "value.a must be JSON, which has no NaN"),
        (Annotated[Any, {"minimum": 1}], math.nan, "value must be JSON, which has no NaN"),
        (float, "inf", 'value must be a number, not "inf"'),
        (float, "1e999", 'value must be a number, not "1e999"'),
        pytest.param(float, HUGE, "value must be a number, not …", id="float-huge"),
        (str, True, "value must be a string, not true"),
        pytest.param(str, HUGE, "value must be a string, not …", id="str-huge"),
        (str, math.inf, "value must be a string, not Infinity"),
        (str, ["a"], 'value must be a string, not ["a"]'),
        (bool, 1, "value must be true or false, not 1"),
        (bool, "yes", 'value must be true or false, not "yes"'),
        (None, 0, "value must be null, not 0"),
        (list[int], "[1", 'value must be a list, not "[1"'),
        (list[float], "[NaN]", 'value must be a list, not "[NaN]"'),
        (list[int], 5, "value must be a list, not 5"),
        (list[int], "{}", 'value must be a list, not "{}"'),
        (tuple[int, str], [1], "value must be a list of 2, not [1]"),
        (dict[str, int], [], "value must be an object, not []"),
        (Literal["a", 1], "b", 'value must be one of "a", 1, not "b"'),
        (Literal[1], True, "value must be 1, not true"),
        (Literal[1, "1"], [1], 'value must be one of 1, "1", not [1]'),
        (Unit, "f", 'value must be one of "c", 1, not "f"'),
        (date, "soon", 'value must be a date such as "2025-03-09", not "soon"'),
        (datetime, "", 'value must be a date and time such as "2025-03-09T16:30:00Z", not ""'),
        (int | None, "x", 'value must be an integer or null, not "x"'),
        (int | str | None, [], "value must be an integer, a string or null, not []"),
        (Stop, {}, "value.city is required (a string)"),
        (Stop, {"city": "a", "night": 1}, "value.night is unknown; did you mean nights?"),
        (Stop, {"city": "a", "zzz": 1}, "value.zzz is unknown; known are city, nights"),
        (Stop, {"city": "a", "NIGHTS": 1}, "value.NIGHTS is unknown; did you mean nights?"),
        (Point, {"x": 91, "y": 0}, "value does not fit: x is at most 90"),
        (Point, {"x": 0, "y": 91}, "value does not fit: AssertionError"),
        (Circle | Square, {"kind": "circle"}, "value.radius is required (a number)"),
        (Stop | None, {"city": []}, "value.city must be a string, not []"),
        (list[Stop] | None, [{"city": "a"}, {}], "value[1].city is required (a string)"),
        (dict[str, int], {"a b": "x"}, 'value["a b"] must be an integer, not "x"'),
        (dict[str, dict[str, int]], {"a": {"": "x"}}, 'value.a[""] must be an integer, not "x"'),
    ],
)
def test_what_does_not_fit_is_named_with_what_was_expected_and_what_came(hint: object, sent: object, says: str) -> None:
    assert get_refusal(hint, sent) == says


@pytest.mark.req("sdk.args.errors")
@pytest.mark.parametrize(
    ("hint", "good", "bad", "says"),
    [
        (Annotated[int, {"minimum": 1}], 1, 0, "must be at least 1, not 0"),
        (Annotated[float, {"maximum": 1.5}], 1.5, 2, "must be at most 1.5, not 2.0"),
        (Annotated[int, {"exclusiveMinimum": 1}], 2, 1, "must be greater than 1, not 1"),
        (Annotated[int, {"exclusiveMaximum": 1}], 0, 1, "must be less than 1, not 1"),
        (Annotated[int, {"multipleOf": 3}], 6, 7, "must be a multiple of 3, not 7"),
        (Annotated[float, {"multipleOf": 0.1}], 0.3, 0.35, "must be a multiple of 0.1, not 0.35"),
        (Annotated[str, {"minLength": 2}], "ab", "a", 'must be at least 2 characters long, not "a"'),
        (Annotated[str, {"maxLength": 1}], "ü", "ab", 'must be at most 1 characters long, not "ab"'),
        (Annotated[str, {"pattern": "^[a-z]+$"}], "ab", "AB", 'must match the pattern ^[a-z]+$, not "AB"'),
        (Annotated[str, {"pattern": "^[a-z]+$"}], "ab", "ab\n", "must match the pattern"),
        (Annotated[str, {"pattern": r"^\d+$"}], "12", "\u0663", "must match the pattern"),
        (Annotated[str, {"pattern": r"^\w+$"}], "a_1", "é", "must match the pattern"),
        (Annotated[str, {"pattern": r"^[$]\$$"}], "$$", "$$\n", "must match the pattern"),
        pytest.param(Annotated[int, {"multipleOf": 2.5}], HUGE, HUGE + 1, "must be a multiple of 2.5, not …", id="huge"),
        (Annotated[list[int], {"minItems": 1}], [1], [], "must have at least 1 items, not []"),
        (Annotated[set[int], {"maxItems": 1}], {1}, [1, 2], "must have at most 1 items, not [1, 2]"),
        (Annotated[list[Any], {"uniqueItems": True}], [1, True, [1], [True], {"a": 1}], [{"a": [1]}, {"a": [1.0]}], "no two equal"),
        (Annotated[dict[str, int], {"minProperties": 1}], {"a": 1}, {}, "must have at least 1 members, not {}"),
        (Annotated[dict[str, int], {"maxProperties": 0}], {}, {"a": 1}, "must have at most 0 members"),
        (Annotated[int | str, {"minimum": 1, "minLength": 2}], "ab", "a", 'must be at least 2 characters long, not "a"'),
        (Annotated[int | None, {"minimum": 1}], None, 0, "must be at least 1, not 0"),
        (Annotated[Any, {"minimum": 1}], "a", 0, "must be at least 1, not 0"),
        (Annotated[Literal[1, 2], {"minimum": 2}], 2, 1, "must be at least 2, not 1"),
        (Annotated[Annotated[int, {"minimum": 5}], {"minimum": 1}], 1, 0, "must be at least 1, not 0"),
        (list[Annotated[int, {"minimum": 1}]], [1], [0], "value[0] must be at least 1, not 0"),
    ],
)
def test_the_keywords_of_annotated_are_checked(hint: object, good: object, bad: object, says: str) -> None:
    assert bind_value(hint, list(good) if isinstance(good, set) else good) == good
    assert says in get_refusal(hint, bad)


@pytest.mark.req("sdk.args.errors")
@pytest.mark.parametrize(
    "hint",
    [
        Annotated[str, {"pattern": "^(a+)+$", "maxLength": 20}],
        Annotated[Annotated[str, {"pattern": "^(a+)+$"}], {"maxLength": 20}],
    ],
)
def test_what_is_too_long_is_not_matched_with_a_pattern_that_may_be_slow(hint: object) -> None:
    assert get_refusal(hint, "a" * 20 + "b") == f'value must be at most 20 characters long, not "{"a" * 20}b"'
    assert get_refusal(hint, "ab") == 'value must match the pattern ^(a+)+$, not "ab"'


@pytest.mark.req("sdk.args.errors")
def test_everything_that_is_wrong_is_told_at_once() -> None:
    def tool(city: str, days: int, trip: Trip, deep: bool = False) -> None: ...

    trip = {"stops": [{"city": "a"}, {"city": "b", "nights": "two"}, {}], "tag": []}
    assert get_tool_error(tool, {"citty": "Bern", "days": [], "trip": trip}).split("\n- ") == [
        "invalid arguments:",
        "city is required (a string)",
        "days must be an integer, not []",
        'trip.stops[1].nights must be an integer, not "two"',
        "trip.stops[2].city is required (a string)",
        "trip.tag is unknown; did you mean tags?",
        "citty is unknown; did you mean city?",
    ]


@pytest.mark.req("sdk.args.errors", "zot.edge.51")
@pytest.mark.parametrize("sent", [None, 5, 1.5, True, "text", "[1]", [], [{"city": "Bern"}]])
def test_arguments_that_are_no_object_are_an_error_that_says_so(sent: object) -> None:
    def tool(city: str) -> None: ...

    assert get_tool_error(tool, sent).startswith("invalid arguments: the arguments must be an object, not ")


def test_a_tool_that_takes_nothing_says_so() -> None:
    assert get_tool_error(lambda: None, {"city": "Bern"}) == "invalid arguments: city is unknown; nothing can be given here"


@pytest.mark.req("sdk.args.errors")
def test_an_error_stays_short_whatever_came() -> None:
    wide = [{"k" * 10_000: "v" * 10_000}] * 10_000
    assert len(get_refusal(int, wide)) < 200
    assert len(get_refusal(dict[str, int], {"k" * 10_000: "v" * 10_000})) < 300
    many = get_refusal(list[int], ["x"] * 10_000)
    assert many.count("\n") == 26
    assert many.endswith("\n- and 9975 more")
    assert len(get_tool_error(lambda: None, {f"name{number}": 1 for number in range(10_000)})) < 3000
    assert len(get_refusal(Literal[tuple(f"option{number}" for number in range(1000))], "x")) < 800


def test_an_error_can_be_sent_whatever_came() -> None:
    assert get_refusal(int, "\ud800") == 'value must be an integer, not "?"'
    assert get_refusal(dict[str, int], {"\ud800": "x"}) == 'value["?"] must be an integer, not "x"'


def nest(depth: int, inner: object, wrap: Callable[[object], object]) -> object:
    for _ in range(depth):
        inner = wrap(inner)
    return inner


@pytest.mark.req("sdk.args.errors")
@pytest.mark.parametrize("end", [{"value": 1}, {"value": "x"}, {}, 5])
def test_what_is_nested_too_deep_is_an_error_like_any_other(end: object) -> None:
    deep = nest(50_000, end, lambda inner: {"value": 1, "left": inner})
    assert "nested too deep" in get_refusal(Tree, deep)
    text = '{"value":1,"left":' * 50_000 + "null" + "}" * 50_000
    assert "nested too deep" in get_refusal(Tree, text)
    assert len(get_refusal(int, deep)) < 200
    while isinstance(deep, dict):  # to be freed link by link
        deep = deep.pop("left", None)


@pytest.mark.req("sdk.args.errors")
@pytest.mark.timeout(20)
@pytest.mark.parametrize(("end", "says"), [(1, ""), ([], "must be an object or an integer, not []")])
def test_unions_within_unions_take_no_more_time_than_there_is_to_read(end: object, says: str) -> None:
    sent = nest(60, end, lambda inner: {"left": inner, "right": 1})  # 2^60 ways to read it
    if says:
        assert get_refusal(Add | Times, sent).endswith(says)
    else:
        assert isinstance(bind_value(Add | Times, sent), Add)


@pytest.mark.req("sdk.args.errors")
@pytest.mark.parametrize("width", [2, 4])
def test_text_within_text_is_read_once_for_each_kind_it_may_be(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [dataclasses.make_dataclass(f"Made{number}", [("inner", "Either")]) for number in range(width)]
    either = functools.reduce(operator.or_, kinds)
    for kind in kinds:
        kind.Either = either  # type: ignore[attr-defined]  # where its hint is looked up
    depth = 6
    sent = nest(depth, "end", lambda inner: json.dumps({"inner": inner}))
    derived = derive_for(either)
    reads = parses = 0
    read, loads = ValueKind.read, json.loads

    def counted(kind: ValueKind, value: object, where: str, reading: Validation) -> Any:
        nonlocal reads
        reads += 1
        return read(kind, value, where, reading)

    def parsed(*args: Any, **kwargs: Any) -> Any:
        nonlocal parses
        parses += 1
        return loads(*args, **kwargs)

    monkeypatch.setattr(ValueKind, "read", counted)
    monkeypatch.setattr(json, "loads", parsed)
    with pytest.raises(ToolError, match='inner must be an object, not "end"'):
        derived.bind({"value": sent})
    assert parses == depth
    # Each text is tried as every kind at each of three levels; the end, which is no JSON, once for each kind of the last text.
    assert reads <= 1 + 3 * width * depth + 3 * width * width


def test_two_texts_that_are_equal_are_two_places() -> None:
    texts = json.loads(json.dumps(['{"city": 1.5, "nights": []}'] * 2))
    assert get_refusal(list[Stop | None], texts).split("\n- ")[1:] == [
        "value[0].nights must be an integer, not []",
        "value[1].nights must be an integer, not []",
    ]


# -- numbers that are chosen to be slow -------------------------------------------------------------------------------------------

PRIME = 2**61 - 1  # Python's hash of a number is its remainder


class Counted(int):
    """Counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


@dataclass(frozen=True)
class Spot:
    """Its hash is that of a number, however it is compared."""

    at: int

    def __hash__(self) -> int:
        return hash(Counted(self.at))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spot) and Counted(self.at) == other.at


@pytest.mark.req("sdk.args.errors")
@pytest.mark.parametrize(
    ("hint", "item"),
    [
        (set[int], lambda number: number),
        (frozenset[int | str], lambda number: number),
        (set[tuple[int, str]], lambda number: [number, "a"]),
        (set[Point], lambda number: {"x": -abs(number), "y": 0}),
        (set[Spot], lambda number: {"at": number}),
    ],
)
def test_no_set_is_made_of_items_that_are_in_each_others_way(hint: object, item: Callable[[int], object]) -> None:
    Counted.compared = 0
    alike = [item(PRIME * number) for number in range(9000)]
    assert get_refusal(hint, alike) == "value has too many items of one hash; no set is made of them"
    assert Counted.compared < 10_000  # and not the square of their count
    assert len(bind_value(hint, [item(number) for number in range(-9000, 0)])) == 9000
    assert len(bind_value(hint, alike[:64])) == 64
    assert len(bind_value(hint, alike[:5] * 1000)) == 5  # there are few that differ


@pytest.mark.req("sdk.args.errors", "sdk.args.agree")
def test_a_set_has_a_limit_unless_it_is_of_text_or_its_author_says_another() -> None:
    numbers = list(range(10_001))
    assert get_refusal(set[int], numbers).startswith("value must have at most 10000 items, not [0, 1, ")
    assert not jsonschema_rs.is_valid(derive_for(set[int]).schema, {"value": numbers})
    assert len(bind_value(set[int], numbers[1:])) == 10_000
    assert len(bind_value(Annotated[set[int], {"maxItems": 20_000}], numbers)) == 10_001
    assert len(bind_value(set[str], [str(number) for number in numbers])) == 10_001
    assert len(bind_value(list[int], numbers)) == 10_001


@pytest.mark.req("sdk.args.errors")
@pytest.mark.parametrize("deep", [lambda number: number, lambda number: [{"a": number}]], ids=["numbers", "in others"])
def test_unique_items_are_compared_by_a_hash_that_nobody_can_foresee(deep: Callable[[object], object]) -> None:
    Counted.compared = 0
    values = [deep(Counted(PRIME * number)) for number in range(2000)]
    assert are_unique(values)
    assert not are_unique([*values, deep(Counted(PRIME * 1999))])
    assert Counted.compared == 0


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True),
        (0, -0.0, True),
        (1, True, False),
        (0, None, False),
        ("1", 1, False),
        ("a", "b", False),
        pytest.param(HUGE, HUGE + 1, False, id="huge"),
        (0.1, 0.1, True),
        (2**53 + 1, float(2**53), False),
        ([1, [2]], [1.0, [2.0]], True),
        ([1, 2], [[1], 2], False),
        ([[], []], [[[]]], False),
        (["a,b"], ["a", "b"], False),
        ({"a": 1, "b": 2}, {"b": 2.0, "a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a:1,b": 1}, {"a": 1, "b": 1}, False),
        ({}, [], False),
        ("[]", [], False),
    ],
)
def test_items_are_equal_as_json_has_it(one: object, other: object, equal: bool) -> None:
    assert are_unique([one, other]) is not equal


# -- the schema keeps its word ----------------------------------------------------------------------------------------------------


NAMES = st.sampled_from(["a", "b", "city"])
WORDS = st.sampled_from(["", "a", "ab", "5", "true", "null", "[]", "{}", '["a"]', "1.5", "c"]) | st.text(max_size=3)
NUMBERS = (
    st.integers(-3, 9) | st.sampled_from([0.0, 1.0, 0.5, -2.5, 1e300, 2**53 + 1]) | st.floats(allow_nan=False, allow_infinity=False)
)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
)

LEAVES: list[Any] = [
    str,
    int,
    float,
    bool,
    None,
    Any,
    Unit,
    Literal["a", "ab"],
    Literal[1, "1", True, None],  # noqa: PYI061
    Annotated[str, {"minLength": 1, "maxLength": 2}],
    Annotated[str, {"pattern": "[a-c]"}],
    Annotated[int, {"minimum": 0, "exclusiveMaximum": 5}],
    Annotated[float, {"multipleOf": 0.5}],
    Annotated[float, {"exclusiveMinimum": 0, "maximum": 9}],
    set[str],
    frozenset[int],
    Tree,
    Options,
    Stop,
    int | str,
    str | int | None,
    bool | float | int,
    list[str] | list[int],
    Stop | dict[str, int | str],
]


def _record(pairs: list[tuple[Any, bool]]) -> Any:
    return dataclasses.make_dataclass(
        "Made",
        [(f"f{place}", hint, field(default=None) if has else field()) for place, (hint, has) in enumerate(pairs)],
        kw_only=True,
    )


def _compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda one: list[one]),  # type: ignore[valid-type]
        inner.map(lambda one: Annotated[list[one], {"minItems": 1, "maxItems": 2, "uniqueItems": True}]),  # type: ignore[valid-type]
        inner.map(lambda one: dict[str, one]),  # type: ignore[valid-type]
        inner.map(lambda one: tuple[one, ...]),  # type: ignore[valid-type]
        st.lists(inner, max_size=2).map(lambda some: tuple[tuple(some)]),  # type: ignore[misc]
        st.lists(st.tuples(inner, st.booleans()), min_size=1, max_size=3).map(_record),
        st.lists(inner, min_size=2, max_size=3).map(_union),
    )


def _union(hints: list[Any]) -> Any:
    try:
        joined = hints[0] | hints[1] if hints[0] is not None or hints[1] is not None else None
    except TypeError:  # Python 3.11 joins no hints with keywords
        return hints[0]
    return Annotated[joined, {"description": "either"}]


HINTS = st.recursive(st.sampled_from(LEAVES), _compound, max_leaves=5)


def fitting(schema: Any, defs: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Values of which many fit a schema: what Serai's schemas say, and nothing else, is understood."""
    if "$ref" in schema:
        return st.deferred(lambda: fitting(defs[schema["$ref"].rpartition("/")[2]], defs))
    if "anyOf" in schema:
        return st.one_of([fitting(one, defs) for one in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "array" if "prefixItems" in schema:
            return st.tuples(*(fitting(one, defs) for one in schema["prefixItems"])).map(list)
        case "array":
            return st.lists(
                fitting(schema.get("items", {}), defs), min_size=schema.get("minItems", 0), max_size=schema.get("maxItems", 2)
            )
        case "object" if "properties" in schema:
            members = {name: fitting(one, defs) for name, one in schema["properties"].items()}
            required = set(schema.get("required", ()))
            some = {name: one for name, one in members.items() if name in required}
            return st.fixed_dictionaries(some, optional={name: one for name, one in members.items() if name not in required})
        case "object":
            return st.dictionaries(NAMES, fitting(schema.get("additionalProperties", {}), defs), max_size=2)
        case str() as type:
            simple = {
                "string": WORDS,
                "integer": st.integers(-3, 9),
                "number": NUMBERS,
                "boolean": st.booleans(),
                "null": st.none(),
            }
            return simple[type]
        case _:
            return JSON


def list_near_misses(value: Any) -> list[Any]:
    """What is almost that value."""
    if isinstance(value, bool) or value is None:
        return [int(bool(value)), str(value).lower(), None, not value]
    if isinstance(value, int | float):
        return [float(value), bool(value), str(value), value + 0.5, -value]
    if isinstance(value, str):
        return [value + "a", value[1:], [value], 5]
    if isinstance(value, list):
        return [
            json.dumps(value),
            value + value,
            value[1:],
            [*value, *map(float, filter(_is_int, value))],
            [*value, 1, True, [1], [True]],
        ]
    return [json.dumps(value), {**value, "zzz": 1}, dict(list(value.items())[1:]), list(value)]


def _is_int(value: Any) -> bool:
    return type(value) is int


def spoil(value: Any, draw: st.DrawFn) -> Any:
    """A value with something else in one place."""
    members: list[Any] = list(range(len(value))) if isinstance(value, list) else sorted(value) if isinstance(value, dict) else []
    if not members or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(list_near_misses(value)) | JSON)
    place = draw(st.sampled_from(members))
    copy = value.copy()
    copy[place] = spoil(value[place], draw)
    return copy


@st.composite
def cases(draw: st.DrawFn) -> tuple[Parameters, dict[str, Any]]:
    derived = derive_for(draw(HINTS))
    sent = draw(fitting(derived.schema, derived.schema.get("$defs", {})))
    return derived, spoil(sent, draw) if draw(st.booleans()) else sent


def encode(value: Any) -> Any:
    """What a handler got, as JSON again."""
    if dataclasses.is_dataclass(value):
        return {name: encode(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, set | frozenset | tuple | list):
        return [encode(one) for one in value]
    return {name: encode(one) for name, one in value.items()} if isinstance(value, dict) else value


def same(sent: Any, got: Any) -> bool:
    """Whether it is what was sent; defaults may have come in, and sets have no order."""
    if isinstance(sent, bool) or isinstance(got, bool) or sent is None:
        return sent is got
    if isinstance(sent, list) and isinstance(got, list):
        return len(sent) == len(got) and all(any(same(one, other) for other in got) for one in sent)
    if isinstance(sent, dict) and isinstance(got, dict):
        return all(name in got and same(one, got[name]) for name, one in sent.items())
    return bool(sent == got or (isinstance(sent, int) and float(sent) == got))


@pytest.mark.req("sdk.args.agree", "sdk.schema.hints")
@settings(max_examples=examples(400), deadline=None)
@given(cases())
def test_what_the_schema_accepts_is_what_the_handler_gets_and_nothing_else_fits_without_coercion(
    case: tuple[Parameters, dict[str, Any]],
) -> None:
    derived, sent = case
    jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **derived.schema})
    valid = jsonschema_rs.is_valid(derived.schema, sent)
    exact = Validation(VALID)
    derived._record.read(sent, "", exact)
    assert (exact.count == 0) == valid, (derived.schema, sent, exact.problems)
    if valid:
        assert same(sent, encode(derived.bind(sent))), (derived.schema, sent)


ATOMS = [
    *"ab1_-,é ",
    *(r"\d", r"\D", r"\w", r"\W", r"\.", r"\$", r"\n", r"\x41", r"\u00e9", "^", "$"),
    *("[a-c]", "[^a]", r"[\w-]", r"[\D]", r"[^\]\-]", "[$]"),
]
PATTERNS = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map("".join),
        st.tuples(st.sampled_from(["(", "(?:"]), inner, st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", ""])).map(
            lambda parts: f"{parts[0]}{parts[1]}){parts[2]}"
        ),
        st.tuples(inner, inner).map("|".join),
    ),
    max_leaves=6,
)
TEXTS = st.text("ab1_-.,$é \n\tA\u0663\U0001f600", max_size=6)


@pytest.mark.req("sdk.args.agree", "sdk.schema.hints")
@pytest.mark.filterwarnings("error")
@settings(max_examples=examples(300), deadline=None)
@given(PATTERNS, st.lists(TEXTS, min_size=1, max_size=5))
def test_a_pattern_means_to_us_what_it_means_to_our_host(pattern: str, texts: list[str]) -> None:
    derived = derive_for(Annotated[str, {"pattern": pattern}])
    validator = jsonschema_rs.validator_for(derived.schema, offline=True, pattern_options=jsonschema_rs.RegexOptions())
    for text in texts:
        exact = Validation(VALID)
        derived._record.read({"value": text}, "", exact)
        assert (exact.count == 0) == validator.is_valid({"value": text}), (pattern, text)


@pytest.mark.req("sdk.args.errors")
@settings(max_examples=examples(200), deadline=None)
@given(HINTS, st.dictionaries(st.just("value") | NAMES, JSON, max_size=2) | JSON)
def test_whatever_comes_is_refused_or_becomes_what_the_schema_accepts(hint: Any, sent: Any) -> None:
    derived = derive_for(hint)
    before = json.dumps(sent)
    with contextlib.suppress(ToolError):
        bound = encode(derived.bind(sent))
        if "uniqueItems" not in json.dumps(derived.schema):  # what differs when it comes may be equal afterwards
            assert jsonschema_rs.is_valid(derived.schema, bound)
    assert json.dumps(sent) == before

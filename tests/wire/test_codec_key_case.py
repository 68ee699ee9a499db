"""Case-folded keys: they match wherever the protocol defines an object, and nowhere else."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from serai.wire.codec import FoldingDecoder
from tests.support.profiles import examples


class Text(msgspec.Struct, tag="text", forbid_unknown_fields=True, frozen=True):
    text: str


class Image(msgspec.Struct, tag="image", forbid_unknown_fields=True, frozen=True, rename="camel"):
    mime_type: str
    data: str = ""


class Point(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    x: int = 0
    y: int = 0


class Tool(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    name: str
    schema: Raw = Raw(b"{}")
    hints: dict[str, Any] = {}
    at: Point | None = None


class Turn(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    role: str = ""
    content: str | list[Text | Image] = ""
    tools: dict[str, Tool] = {}
    path: tuple[Point, ...] = ()
    block: Text | Image | None = None
    tool: Tool | None = None


TURNS: FoldingDecoder[Turn] = FoldingDecoder(Turn)
TOOLS: FoldingDecoder[Tool] = FoldingDecoder(Tool)
POINTS: FoldingDecoder[Point] = FoldingDecoder(Point)

WORDS = st.sampled_from(["", "type", "Type", "TEXT", "name", "X", "é", '"}{'])
OPAQUE = st.recursive(
    WORDS | st.integers(-9, 9), lambda inner: st.dictionaries(WORDS, inner, max_size=3) | st.lists(inner, max_size=2)
)
BLOCKS = st.builds(Text, text=WORDS) | st.builds(Image, mime_type=WORDS, data=WORDS)
POINT_VALUES = st.builds(Point, x=st.integers(-9, 9), y=st.integers(-9, 9))
TOOL_VALUES = st.builds(
    Tool,
    name=WORDS,
    schema=OPAQUE.map(lambda value: Raw(json.dumps(value, indent=1).encode())),
    hints=st.dictionaries(WORDS, OPAQUE, max_size=3),
    at=st.none() | POINT_VALUES,
)
TURN_VALUES = st.builds(
    Turn,
    role=WORDS,
    content=WORDS | st.lists(BLOCKS, max_size=3),
    tools=st.dictionaries(WORDS, TOOL_VALUES, max_size=2),
    path=st.lists(POINT_VALUES, max_size=2).map(tuple),
    block=st.none() | BLOCKS,
    tool=st.none() | TOOL_VALUES,
)


class Writer:
    """Writes protocol objects as JSON with each key in a random case; opaque data and names as they are."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def value(self, value: object) -> str:
        if isinstance(value, msgspec.Struct):
            config = value.__struct_config__
            members = {} if config.tag_field is None else {config.tag_field: json.dumps(config.tag)}
            for field in msgspec.structs.fields(value):
                inner = getattr(value, field.name)
                members[field.encode_name] = json.dumps(inner) if field.name == "hints" else self.value(inner)
            return "{" + ", ".join(f"{json.dumps(self.case(key))} : {text}" for key, text in members.items()) + "}"
        if isinstance(value, dict):
            return "{" + ",".join(f"{json.dumps(key)}:{self.value(inner)}" for key, inner in value.items()) + "}"
        if isinstance(value, list | tuple):
            return "[" + ",".join(map(self.value, value)) + "]"
        return bytes(value).decode() if isinstance(value, Raw) else json.dumps(value)

    def case(self, key: str) -> str:
        return self.draw(st.sampled_from([key, key.upper(), key.title(), key.lower(), key.swapcase()]))


@st.composite
def turns_in_any_case(draw: st.DrawFn) -> tuple[Turn, bytes]:
    turn = draw(TURN_VALUES)
    return turn, Writer(draw).value(turn).encode()


@pytest.mark.req("wire.codec.folding", "wire.codec.folding-opaque")
@settings(deadline=None, max_examples=examples(500))
@given(turns_in_any_case())
def test_a_message_with_its_keys_in_any_case_reads_as_the_one_with_exact_keys(pair: tuple[Turn, bytes]) -> None:
    turn, text = pair
    assert TURNS.decode(text) == msgspec.json.decode(msgspec.json.encode(turn), type=Turn)


@pytest.mark.req("wire.codec.folding")
@pytest.mark.parametrize(
    ("text", "turn"),
    [
        (b'{"ROLE":"user"}', Turn(role="user")),
        (b'{"Tool":{"NAME":"ls","At":{"X":1}}}', Turn(tool=Tool("ls", at=Point(1)))),
        (b'{"tool":{"name":"ls","at":{"x":1,"Y":2}}}', Turn(tool=Tool("ls", at=Point(1, 2)))),
        (b'{"content":[{"Type":"text","TEXT":"a"},{"type":"image","MIMETYPE":"b"}]}', Turn(content=[Text("a"), Image("b")])),
        (b'{"Content":"just text"}', Turn(content="just text")),
        (b'{"Tools":{"Ls":{"Name":"ls"}}}', Turn(tools={"Ls": Tool("ls")})),
        (b'{"Path":[{"X":1},{"Y":2}]}', Turn(path=(Point(1), Point(0, 2)))),
        (b'{"Block":null,"Tool":null}', Turn()),
        (b'{"block":{"TEXT":"a","TYPE":"text"}}', Turn(block=Text("a"))),
    ],
    ids=["object", "nested", "innermost only", "list of a union", "text beside a list", "dict", "tuple", "null", "tag last"],
)
def test_keys_match_in_any_case_in_every_place_the_protocol_defines(text: bytes, turn: Turn) -> None:
    assert TURNS.decode(text) == turn
    assert TURNS.decode(Raw(text)) == turn


@pytest.mark.req("wire.codec.folding")
def test_keys_match_in_any_case_in_every_member_of_a_union() -> None:
    either: FoldingDecoder[Point | list[Point]] = FoldingDecoder(Point | list[Point])
    assert either.decode(b'{"X":1}') == Point(1)
    assert either.decode(b'[{"X":1}]') == [Point(1)]


@pytest.mark.req("wire.codec.folding")
def test_values_are_never_folded_not_even_the_tag() -> None:
    assert TURNS.decode(b'{"Role":"USER"}') == Turn(role="USER")
    with pytest.raises(msgspec.ValidationError, match="Invalid value 'TEXT'"):
        TURNS.decode(b'{"block":{"type":"TEXT","text":"a"}}')


@pytest.mark.req("wire.codec.folding")
def test_unknown_members_are_dropped_with_and_without_folding() -> None:
    assert POINTS.decode(b'{"x":1,"new":{"x":5}}') == Point(1)
    assert POINTS.decode(b'{"X":1,"new":{"x":5}}') == Point(1)


@pytest.mark.req("wire.codec.folding-exact-wins")
@pytest.mark.parametrize(
    ("text", "x"),
    [
        (b'{"x":1,"X":2}', 1),
        (b'{"X":2,"x":1}', 1),
        (b'{"Y":0,"X":2,"x":1,"X":3}', 1),
        (b'{"x":1,"x":2,"X":3}', 2),
    ],
)
def test_an_exact_key_wins_over_a_folded_one_wherever_it_stands(text: bytes, x: int) -> None:
    assert POINTS.decode(text).x == x


@pytest.mark.req("wire.codec.folding-exact-wins")
@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b'{"NAME":"1","Name":"2"}', "2"),
        (b'{"Name":"1","NAME":"2"}', "2"),
        (b'{"NAME":"1","Name":"2","nAME":"3"}', "3"),
    ],
)
def test_of_several_folded_keys_the_last_wins(text: bytes, name: str) -> None:
    assert TOOLS.decode(text).name == name


@pytest.mark.req("wire.codec.folding-exact-wins")
def test_fields_that_differ_in_case_only_get_their_exact_keys() -> None:
    class Odd(msgspec.Struct, forbid_unknown_fields=True):
        id: int
        ID: int

    odd: FoldingDecoder[Odd] = FoldingDecoder(Odd)
    assert odd.decode(b'{"id":1,"ID":2,"unknown":0}') == Odd(1, 2)


@pytest.mark.req("wire.codec.folding-exact-wins")
def test_the_tag_follows_the_same_rule() -> None:
    assert TURNS.decode(b'{"block":{"TYPE":"image","type":"text","TEXT":"a"}}') == Turn(block=Text("a"))
    assert TURNS.decode(b'{"block":{"TYPE":"image","Type":"text","TEXT":"a"}}') == Turn(block=Text("a"))


@pytest.mark.req("wire.codec.folding-opaque")
def test_keys_inside_opaque_data_are_never_folded() -> None:
    schema = b'{"Name" : {"NAME":1e400}, "name":2,  "AT":{"X":[{"X":1}]}}'
    tool = TOOLS.decode(b'{"NAME":"ls","Schema":' + schema + b',"Hints":{"Name":{"AT":{"X":1}},"name":2}}')
    assert bytes(tool.schema) == schema
    assert tool.hints == {"Name": {"AT": {"X": 1}}, "name": 2}


@pytest.mark.req("wire.codec.folding-opaque")
def test_the_names_in_a_dict_of_protocol_objects_are_data() -> None:
    assert list(TURNS.decode(b'{"Tools":{"NAME":{"Name":"a"},"name":{"Name":"b"},"Name":{"name":"c"}}}').tools) == [
        "NAME",
        "name",
        "Name",
    ]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b'{"Tools":[]}', "`$.tools`"),
        (b'{"Path":{}}', "`$.path`"),
        (b'{"Block":7}', "`$.block`"),
        (b'{"Block":{"Type":7}}', "`$.block`"),
        (b'{"Block":{"Text":"a"}}', "`$.block`"),
        (b'{"Tool":"ls"}', "`$.tool`"),
        (b'{"Tool":{"NAME":{}}}', "`$.tool.name`"),
        (b"[]", "got `array`"),
    ],
)
def test_what_does_not_fit_even_when_folded_is_told_with_its_place_in_the_protocol(text: bytes, place: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=re.escape(place)):
        TURNS.decode(text)


@pytest.mark.parametrize("text", [b"", b"banner", b'{"X":1', b'{"X":1}}', b'{"X":1 "Y":2}'])
def test_text_that_is_no_json_is_a_decode_error(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        POINTS.decode(text)


def test_a_type_without_protocol_objects_is_only_decoded() -> None:
    plain: FoldingDecoder[dict[str, int]] = FoldingDecoder(dict[str, int])
    assert plain.decode(b'{"A":1,"a":2}') == {"A": 1, "a": 2}
    with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
        plain.decode(b'{"A":"1"}')


def test_a_struct_that_would_drop_other_cases_silently_is_refused() -> None:
    class Lax(msgspec.Struct):
        x: int = 0

    with pytest.raises(TypeError, match="Lax needs forbid_unknown_fields=True"):
        FoldingDecoder(list[Lax])


class Node(msgspec.Struct, forbid_unknown_fields=True):
    name: str = ""
    children: list[Node] = []


@pytest.mark.req("wire.codec.folding")
def test_keys_match_in_any_case_in_a_struct_that_contains_itself() -> None:
    nodes: FoldingDecoder[Node] = FoldingDecoder(Node)
    deep = nodes.decode(b'{"Name":"a","CHILDREN":[{"NAME":"b","children":[{"naMe":"c"}]}]}')
    assert deep == Node("a", [Node("b", [Node("c")])])


# -- null and whole numbers, on the slow way ------------------------------------------------------------------------------------


class Loose(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    name: str = "default"
    count: int = 7
    maybe: int | None = 8
    many: list[int] = []
    named: dict[str, int] = {}
    ratio: float = 0.5
    either: int | float = 0
    whatever: Any = "unset"
    raw: Raw = Raw(b"unset")
    inner: Point = Point(3, 4)


LOOSE: FoldingDecoder[Loose] = FoldingDecoder(Loose)


@pytest.mark.req("piglet.edge.14")
@pytest.mark.parametrize(
    ("text", "loose"),
    [
        (b'{"count":4242.0}', Loose(count=4242)),
        (b'{"Count":-3.0}', Loose(count=-3)),
        (b'{"count":4e3}', Loose(count=4000)),
        (b'{"maybe":5.0}', Loose(maybe=5)),
        (b'{"many":[1.0,2,3.00]}', Loose(many=[1, 2, 3])),
        (b'{"named":{"a":1.0}}', Loose(named={"a": 1})),
        (b'{"inner":{"x":1.0}}', Loose(inner=Point(1))),
        (b'{"count":9007199254740993}', Loose(count=9007199254740993)),
        (b'{"COUNT":9007199254740993}', Loose(count=9007199254740993)),
    ],
)
def test_a_whole_number_may_be_written_as_a_fraction(text: bytes, loose: Loose) -> None:
    decoded = LOOSE.decode(text)
    assert decoded == loose
    assert type(decoded.count) is int


def test_fractions_stay_fractions_where_they_may_be_some() -> None:
    decoded = LOOSE.decode(b'{"RATIO":2.0,"Either":3.0,"WhatEver":4.0,"Raw":5.0,"count":6.0}')
    assert (decoded.ratio, decoded.whatever, bytes(decoded.raw), decoded.count) == (2.0, 4.0, b"5.0", 6)
    assert type(decoded.either) is float
    assert type(decoded.whatever) is float


@pytest.mark.parametrize("number", [b"4242.5", b'"4242"', b"true", b"1e400", b"1e300", b"[]"])
def test_what_is_no_whole_number_is_refused(number: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        LOOSE.decode(b'{"count":' + number + b"}")


def test_null_counts_as_absent_only_where_the_field_takes_none() -> None:
    text = b'{"name":null,"Count":null,"many":null,"inner":null,"maybe":null,"whatever":null,"raw":null,"ratio":null}'
    assert LOOSE.decode(text) == Loose(maybe=None, whatever=None, raw=Raw(b"null"))
    assert LOOSE.decode(b'{"name":null,"NAME":"x"}').name == "x"


def test_null_does_not_stand_for_what_is_required() -> None:
    with pytest.raises(msgspec.ValidationError, match="missing required field `name`"):
        TOOLS.decode(b'{"name":null}')


@given(st.integers(-(2**53), 2**53), st.booleans())
def test_every_whole_number_that_a_fraction_can_be_is_read_as_itself(number: int, capital: bool) -> None:
    key = b"COUNT" if capital else b"count"
    assert LOOSE.decode(b'{"%s":%s}' % (key, json.dumps(float(number)).encode())).count == number
    assert LOOSE.decode(b'{"%s":%d}' % (key, number)).count == number

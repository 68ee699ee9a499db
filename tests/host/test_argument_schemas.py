"""Schemas come from guests: what they may do to us, and what a model reads when arguments do not fit."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serai.host import argument_schemas
from serai.host.argument_schemas import ArgumentChecker, build_checker

WHO = "zot:weather/forecast"
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2},
        "days": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "unit": {"enum": ["C", "F", "K"]},
        "items": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
    },
    "required": ["city"],
    "additionalProperties": False,
}


def build(schema: dict[str, Any]) -> ArgumentChecker:
    checked = build_checker(schema, who=WHO)
    assert checked.problem == ""
    return checked


def get_problem(schema: dict[str, Any]) -> str:
    """The problem with a schema; and the tool goes on without one."""
    checked = build_checker(schema, who=WHO)
    assert checked.problem.startswith(f"{WHO}: its schema ")
    assert checked.problem.isprintable()
    assert len(checked.problem) < 500
    assert checked.check({"any": "thing"}) == ""
    return checked.problem


def nest(levels: int, leaf: object = 1) -> Any:
    for _ in range(levels):
        leaf = [leaf]
    return leaf


def definitions(count: int, keyword: str, last: dict[str, Any]) -> dict[str, Any]:
    """Each definition names the next one twice."""
    steps = {f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]} for i in range(count)}
    return {"$ref": "#/$defs/d0", "$defs": {**steps, f"d{count}": last}}


@pytest.mark.parametrize(
    "arguments",
    [
        {"city": "Bern"},
        {"city": "Bern", "days": None, "unit": "K"},
        {"city": "Bern", "items": [{"name": "a"}, {"name": "b", "more": [1]}]},
        OrderedDict(city="Bern"),
        {"city": "x" * 100_000},
    ],
)
def test_arguments_that_fit_pass(arguments: dict[str, Any]) -> None:
    assert build(WEATHER).check(arguments) == ""


@pytest.mark.req("host.call.schema")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"city": 3}, 'city: the value is not of type "string"'),
        ({"city": "B"}, "city: the value is shorter than 2 characters"),
        ({}, 'the arguments: "city" is a required property'),
        ({"city": "Bern", "unit": "R"}, 'unit: the value is not one of "C", "F", "K"'),
        (
            {"city": "Bern", "items": [{"name": "a"}, {"name": "b"}, {"name": 3}]},
            'items[2].name: the value is not of type "string"',
        ),
        (
            {"city": "Bern", "days": "x"},
            'days: the value fits no alternative: the value is not of type "integer" | the value is not of type "null"',
        ),
        ({"city": "Bern", "wind": 1}, "the arguments: Additional properties are not allowed ('wind' was unexpected)"),
        ([1], 'the arguments: the value is not of type "object"'),
        ("x", 'the arguments: the value is not of type "object"'),
        (None, 'the arguments: the value is not of type "object"'),
    ],
)
def test_a_message_says_which_field_is_wrong_and_how(arguments: object, message: str) -> None:
    assert build(WEATHER).check(arguments) == message


def test_a_value_that_fits_several_of_one_alternative_is_told_so() -> None:
    message = build({"oneOf": [{"type": "object"}, {"minProperties": 0}]}).check({})
    assert "more than one" in message


def test_a_message_tells_three_errors_and_how_many_more_there_are() -> None:
    checked = build({"properties": {name: {"type": "string"} for name in "abcdef"}})
    message = checked.check(dict.fromkeys("abcdef", 1))
    assert message.count("is not of type") == 3
    assert message.endswith("; and 3 more")


@pytest.mark.req("host.call.schema")
def test_a_message_never_shows_what_was_given_and_is_short() -> None:
    secret = "hunter2" * 1000
    checked = build(
        {"properties": {"a": {"maxLength": 3}, "b": {"enum": ["x" * 1000] * 20}, "c": {"const": 1}}, "maxProperties": 2}
    )
    message = checked.check({"a": secret, "b": secret, "c": secret, "n" * 5000: 1})
    assert "hunter2" not in message
    assert 0 < len(message) <= 600


def test_a_message_is_one_line_whatever_fields_are_called() -> None:
    checked = build({"additionalProperties": {"type": "string"}})
    message = checked.check({"a\n\x1b[31mb": 1, "k" * 9000: 2})
    assert message.isprintable()
    assert len(message) <= 600


# -- what a schema may not do -----------------------------------------------------------------------------------------------------


@pytest.mark.req("host.call.schema-offline")
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef", "$recursiveRef", "$schema", "$id"])
@pytest.mark.parametrize("where", ["root", "property", "unreached"])
def test_nothing_is_fetched_from_a_url(keyword: str, where: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        pointing = {keyword: f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"}
        forms: dict[str, dict[str, Any]] = {
            "root": pointing,
            "property": {"type": "object", "properties": {"a": pointing}},
            "unreached": {"$defs": {"a": pointing}},
        }
        checked = build_checker(forms[where], who=WHO)
        checked.check({"a": {"b": 1}})
        if keyword == "$ref" or (where != "unreached" and "Ref" in keyword):
            assert checked.problem
        with pytest.raises(BlockingIOError):  # nobody has called
            server.accept()


@pytest.mark.req("host.call.schema-offline")
@pytest.mark.parametrize("where", ["root", "unreached"])
def test_no_file_is_read(tmp_path: Path, where: str) -> None:
    (tmp_path / "real.json").write_text('{"type": "string"}')
    pointing = {"$ref": (tmp_path / "real.json").as_uri()}
    problem = get_problem(pointing if where == "root" else {"$defs": {"a": pointing}})
    assert "real.json" in problem


def test_the_library_too_is_told_to_fetch_nothing_and_to_match_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    real = jsonschema_rs.validator_for

    def spy(schema: str, **options: Any) -> jsonschema_rs.Validator:
        asked.update(options)
        return real(schema, **options)

    monkeypatch.setattr(jsonschema_rs, "validator_for", spy)
    build({"pattern": "a"})
    assert asked["offline"] is True
    assert isinstance(asked["pattern_options"], jsonschema_rs.RegexOptions)


@pytest.mark.req("host.call.schema-hostile")
@pytest.mark.parametrize(
    ("schema", "cause"),
    [
        ({"enum": ["x" * 300_000]}, "is longer than 262144 bytes"),
        ({"enum": ["\x00" * 100_000]}, "is longer than 262144 bytes"),  # six bytes each, once encoded
        ({"enum": list(range(20_000))}, "is of more than 10000 parts"),
        ({"default": nest(64)}, "is nested more than 64 levels deep"),
        ({"default": nest(100_000)}, "is nested more than 64 levels deep"),
        ({"type": "wrong"}, "does not build: at type: "),
        ({"properties": {"a": {"minLength": "x"}}}, "does not build: at properties.a.minLength: "),
        ({"$ref": "#/$defs/none"}, "refers to #/$defs/none, which it does not have"),
        ({"$ref": "#none"}, "refers to #none, which it does not have"),
        ({"$ref": "other.json"}, "refers to other.json, and nothing outside of a schema is ever fetched"),
        ({"$ref": 7}, "refers to 7, and nothing"),
        ({"properties": {"a": {"$id": "urn:other"}}}, "has a schema of its own in it (urn:other)"),
        ({"const": "\ud800"}, "is no JSON: "),
        ({"const": object()}, "is no JSON: "),
        ({"properties": {"a": {"pattern": "(?=a)b"}}}, "has a pattern at properties.a.pattern that "),
        ({"pattern": r"(a)\1"}, "has a pattern at pattern that "),
        ({"patternProperties": {"(?<!x)y": {}}}, "has a pattern at patternProperties.(?<!x)y that "),
        ({"pattern": "a{1000}{1000}{1000}"}, "has a pattern at pattern that "),
        ({"properties": {f"p{i}": {"pattern": r"\p{L}{200}" + str(i)} for i in range(2000)}}, "has a pattern at "),
        (definitions(40, "allOf", {"type": "object"}), "unfolds into more than "),
        (definitions(40, "anyOf", {"type": "string"}), "unfolds into more than "),
        ({"$ref": "#/$defs/0", "$defs": {str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(3000)}}, "schemas in each other"),
        ({"items": {"$ref": "#"}, "unevaluatedItems": False}, "refers to itself and has `unevaluated"),
    ],
)
def test_a_hostile_or_broken_schema_is_reported_and_the_tool_goes_unvalidated(schema: dict[str, Any], cause: str) -> None:
    assert cause in get_problem(schema)


def test_words_that_are_data_are_no_references() -> None:
    checked = build({"properties": {"$ref": {"type": "string"}, "$id": {"type": "string"}}, "default": {"$id": "x"}})
    assert checked.check({"$ref": "http://example.org/"}) == ""
    assert checked.check({"$ref": 1}) == '$ref: the value is not of type "string"'


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a~1b%25", "$defs": {"a/b%": {"required": ["q"]}}},
        {"$ref": "#here", "$defs": {"a": {"$anchor": "here", "required": ["q"]}}},
        {"$dynamicRef": "#here", "$defs": {"a": {"$dynamicAnchor": "here", "required": ["q"]}}},
        {"allOf": [{"$ref": "#/anyOf/1"}], "anyOf": [True, {"required": ["q"]}]},
        {"$id": "urn:tool", "$ref": "urn:tool#/$defs/a", "$defs": {"a": {"required": ["q"]}}},
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$ref": "#/definitions/a",
            "definitions": {"a": {"required": ["q"]}},
        },
        {"$schema": "http://json-schema.org/draft-04/schema#", "id": "urn:tool", "required": ["q"]},
    ],
)
def test_references_inside_a_schema_work(schema: dict[str, Any]) -> None:
    assert build(schema).check({}) == 'the arguments: "q" is a required property'


# -- what a check may cost --------------------------------------------------------------------------------------------------------


@pytest.mark.req("host.call.schema-offline")
def test_a_catastrophic_pattern_is_matched_in_linear_time() -> None:
    evil = "a" * 50_000 + "b"
    names = build({"patternProperties": {"^(a+)+$": {"type": "string"}}, "additionalProperties": False})
    assert names.check({evil: 1}).startswith("the arguments: Additional properties")
    assert build({"properties": {"a": {"pattern": "^(a+)+$"}}}).check({"a": evil}).startswith("a: the value does not match")


LARGE = "(?:[ab]*a[ab]{40}){5}x"  # linear too, and some thousand steps for each character


@pytest.mark.req("host.call.schema-hostile")
@pytest.mark.parametrize(
    ("schema", "cause"),
    [
        (
            {"properties": {"a": {"pattern": "(?:[ab]*a[ab]{900}){20}x"}}},
            "has a pattern at properties.a.pattern that is wrong, too big",
        ),
        ({"patternProperties": {f"a{i}": {} for i in range(4500)}}, "has too many patterns, up to 9000 for the same text"),
        ({"allOf": [{"$ref": "#/$defs/p"}] * 500, "$defs": {"p": {"pattern": "a"}}}, "has too many patterns, up to 500 for"),
        (definitions(12, "allOf", {"pattern": "a"}), "has too many patterns, up to 4096 for the same text"),
        ({"properties": {"a": {"allOf": [{"pattern": LARGE}] * 20}}}, "has a pattern at "),
    ],
)
def test_patterns_that_would_take_too_long_go_unvalidated(schema: dict[str, Any], cause: str) -> None:
    assert cause in get_problem(schema)


@pytest.mark.req("host.call.schema-hostile")
@pytest.mark.parametrize(
    ("schema", "field"),
    [
        ({"properties": {"a": {"pattern": LARGE}}}, "a"),
        ({"properties": {"a": {"items": {"pattern": LARGE}}}}, "a"),
        ({"additionalProperties": {"pattern": LARGE}}, "a"),
        ({"propertyNames": {"pattern": LARGE}}, "x" * 50_000),
        ({"properties": {"a": {"$ref": "#/$defs/p"}}, "$defs": {"p": {"pattern": LARGE, "not": {"$ref": "#/$defs/p"}}}}, "a"),
    ],
)
def test_text_that_is_too_long_for_the_patterns_is_refused(schema: dict[str, Any], field: str) -> None:
    checked = build(schema)
    for long in ("ab" * 25_000, ["ab" * 25] * 1000, ["é" * 5000]):
        assert "too long for the patterns of this tool's schema" in checked.check({field: long})


def test_a_pattern_of_one_field_limits_that_field_alone() -> None:
    checked = build({"properties": {"path": {"pattern": "^[a-z/.]{1,64}$"}, "content": {"type": "string"}}})
    assert checked.check({"path": "src/main.c", "content": "x" * 5_000_000}) == ""
    assert checked.check({"path": "src/main.c", "content": ["x"] * 500}) == 'content: the value is not of type "string"'
    assert checked.check({"path": "SRC"}).startswith("path: the value does not match")
    assert "too long for the patterns" in checked.check({"path": "x" * 50_000})


@pytest.mark.parametrize("pattern", [r"^\S", "^[a-z]+$", r"^\d{4}-\d{2}-\d{2}$", r"^https?://[^\s]+$", "^[0-9a-f]{8}-[0-9a-f]{4}$"])
def test_usual_patterns_leave_room_for_long_texts(pattern: str) -> None:
    assert "too long" not in build({"properties": {"a": {"pattern": pattern}}}).check({"a": "x" * 30_000})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/a"}]}}},
    ],
)
def test_references_in_a_circle_end(schema: dict[str, Any]) -> None:
    build_checker(schema, who=WHO).check({"a": nest(50)})


@pytest.mark.parametrize("levels", [2, 12, 40, 99])
def test_a_recursive_schema_with_alternatives_is_checked_without_trying_all_ways(levels: int) -> None:
    again = {"type": "array", "items": {"$ref": "#/$defs/tree"}}
    tree = {"anyOf": [{"type": "string"}, again, again | {"minItems": 0}]}
    checked = build({"properties": {"tree": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": tree}})
    assert checked.check({"tree": nest(levels, "leaf")}) == ""
    message = checked.check({"tree": nest(levels, 1)})
    assert ("do not fit" in message) if levels > 2 else message.startswith("tree: ")


def test_many_errors_are_told_by_the_first() -> None:
    checked = build({"properties": {"a": {"items": {"type": "string"}}}})
    assert checked.check({"a": [1] * 200_000}) == 'a[0]: the value is not of type "string"'


@pytest.mark.req("host.call.schema-hostile")
@pytest.mark.parametrize("levels", [101, 100_000])
@pytest.mark.parametrize("schema", [{}, {"items": {"$ref": "#"}}, {"$ref": "https://example.org/"}])
def test_arguments_nested_too_deep_are_refused(schema: dict[str, Any], levels: int) -> None:
    """Also where the tool goes unvalidated: deeper down other recursions wait for them."""
    assert build_checker(schema, who=WHO).check(nest(levels)) == "the arguments are nested more than 100 levels deep"


def test_arguments_that_contain_themselves_are_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    assert "nested more than 100" in build({}).check({"a": circle})


def test_arguments_that_are_too_long_are_refused() -> None:
    refused = "the arguments are longer than 10485760 bytes"
    assert build({}).check({"a": "x" * (10 << 20)}) == refused
    assert build({}).check({str(i): "x" * 60_000 for i in range(200)}) == refused
    assert build({}).check({"x" * (11 << 20): [1]}) == refused
    assert build({}).check("x" * (11 << 20)) == refused


@pytest.mark.parametrize("arguments", [{"a": object()}, {"a": b"bytes"}, {1: 2}, {"a": {"b": {1, 2}}}, {"a": [{1: 2}]}])
def test_arguments_that_are_no_json_are_refused(arguments: dict[Any, Any]) -> None:
    assert build({"properties": {"a": {"type": "string"}}, "additionalProperties": False}).check(arguments)


ROUND = """
import threading
from serai.host.argument_schemas import build_checker

def nested(levels, x):
    for _ in range(levels): x = [x]
    return x

forms = [
    lambda ref: {"allOf": [ref]}, lambda ref: {"anyOf": [ref, False]}, lambda ref: {"oneOf": [ref, False]},
    lambda ref: {"if": True, "then": ref}, lambda ref: {"not": {"not": ref}}, lambda ref: ref,
]

def check_all():
    for form in forms:
        for count in (1, 10, 30, 60, 110):
            steps = {f"d{i}": form({"$ref": f"#/$defs/d{i + 1}"}) for i in range(count)}
            end = {f"d{count}": {"items": {"$ref": "#/$defs/d0"}, "type": ["array", "integer"]}}
            checked = build_checker({"$ref": "#/$defs/d0", "$defs": {**steps, **end}}, who="x")
            for levels in (1, 5, 20, 30, 35, 50, 70, 75, 99, 100):
                right, wrong = checked.check(nested(levels, 1)), checked.check(nested(levels, "x"))
                print(not checked.problem and not right and bool(wrong))

threading.stack_size(STACK)
thread = threading.Thread(target=check_all)
thread.start()
thread.join()
"""


def test_a_long_way_round_at_each_level_does_not_use_up_the_stack() -> None:
    """In a process of its own, for the library's end would be its end; with a quarter of the stack that threads have."""
    ended = subprocess.run(
        [sys.executable, "-c", ROUND.replace("STACK", "2 << 20")], capture_output=True, text=True, timeout=50, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split().count("True") > 200  # of 300: the others are refused


def test_arguments_deeper_than_an_entangled_schema_allows_are_refused_by_name_of_the_limit() -> None:
    steps = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}]} for i in range(100)}
    checked = build({"$ref": "#/$defs/d0", "$defs": {**steps, "d100": {"items": {"$ref": "#/$defs/d0"}}}})
    assert checked.check(nest(10)) == ""
    assert "are nested 99 levels deep, and this tool's schema can be checked to " in checked.check(nest(99))


class Panic(BaseException):
    """What a defect in machine code looks like from here: no Exception."""


class Panicking:
    def is_valid(self, _arguments: object) -> bool:
        raise Panic("index out of bounds")


def test_a_panic_of_the_library_when_it_builds_leaves_the_tool_unvalidated(monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(*_: object, **__: object) -> None:
        raise Panic("index out of bounds")

    monkeypatch.setattr(jsonschema_rs, "validator_for", panic)
    assert "does not build: index out of bounds" in get_problem({"type": "object"})


@pytest.mark.parametrize("arguments", [{"a": 1}, {"a": [1]}])
def test_a_panic_of_the_library_when_it_checks_refuses_the_arguments(
    monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]
) -> None:
    monkeypatch.setattr(jsonschema_rs, "validator_for", lambda *_, **__: Panicking())
    assert build({}).check(arguments) == "the arguments could not be checked: index out of bounds"


def test_an_interrupt_is_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(jsonschema_rs, "validator_for", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build_checker({}, who=WHO)


def test_the_library_is_imported_when_the_first_schema_is_built() -> None:
    program = """
import sys, serai.host.argument_schemas
assert "jsonschema_rs" not in sys.modules
serai.host.argument_schemas.build_checker({}, who="x")
assert "jsonschema_rs" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=50)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
words = st.sampled_from(
    ["type", "properties", "items", "anyOf", "$ref", "$defs", "enum", "pattern", "not", "required", "#", "#/$defs/a", "object", "a"]
)
schema_like = st.recursive(
    json_values | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.req("host.call.schema-hostile")
@given(st.dictionaries(words, schema_like, max_size=5), json_values)
def test_nothing_escapes_whatever_the_schema_and_the_arguments(schema: dict[str, Any], arguments: Any) -> None:
    checked = build_checker(schema, who=WHO)
    message = checked.check(arguments)
    assert len(message) <= 600
    if checked.problem:
        assert message == ""


@given(json_values)
def test_yes_and_no_are_the_librarys(arguments: Any) -> None:
    assert (build(WEATHER).check(arguments) == "") is jsonschema_rs.is_valid(WEATHER, arguments)


def test_the_schema_is_taken_as_it_was() -> None:
    schema: dict[str, Any] = {"type": "object", "required": ["a"]}
    checked = build(schema)
    schema["required"].clear()
    assert checked.check({}) != ""


def test_the_check_of_small_flat_arguments_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(*_: object, **__: object) -> None:
        raise AssertionError("once per call is too often")

    checked = build(WEATHER)
    monkeypatch.setattr(argument_schemas, "measure", measured)
    assert checked.check({"city": "Bern", "days": 3}) == ""

"""The schema subset, node by node."""

from __future__ import annotations

import re
from typing import Any

import pytest

from serai.plugins.manifest import KEYWORDS, TYPES, check_schema


def wrap(node: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"query": node}}


@pytest.mark.req("yoi.conform.13")
@pytest.mark.parametrize("kind", TYPES)
def test_every_type(kind: str) -> None:
    assert len(TYPES) == 7
    assert len(KEYWORDS) == 8
    check_schema(wrap({"type": kind, "title": "t", "description": "d", "enum": ["a", "b"]}))


@pytest.mark.req("yoi.conform.13")
def test_every_keyword() -> None:
    check_schema(
        {
            "type": "object", "title": "t", "description": "d", "required": ["a"], "additionalProperties": {"type": "string"},
            "properties": {"a": {"type": "array", "items": {"type": "integer", "enum": [1, True, "1"]}}},
        }
    )  # fmt: skip
    check_schema({"type": "object", "additionalProperties": False, "required": ["anything"]})


@pytest.mark.req("yoi.conform.13")
@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({}, "$: a schema must have a `type`"),
        ([], "$: a schema must be an object"),
        ({"type": "string"}, "$: the root schema must have the type `object`"),
        ({"type": "object", "$ref": "#"}, "$: unsupported schema keyword `$ref`"),
        ({"type": "object", "\x1b": 1}, "$: unsupported schema keyword of that name, which cannot be shown"),
        (wrap({"type": "string", "minLength": 1}), "$.properties.query: unsupported schema keyword `minLength`"),
        (wrap(7), "$.properties.query: a schema must be an object"),
        (wrap({"type": "any"}), "$.properties.query: `type` must be one of " + ", ".join(TYPES)),
        (wrap({"type": ["string"]}), "$.properties.query: `type` must be one of " + ", ".join(TYPES)),
        (wrap({"type": "string", "title": 1}), "$.properties.query: `title` must be a string"),
        (wrap({"type": "string", "properties": {}}), "$.properties.query: `properties` is only for the type `object`"),
        (wrap({"type": "array", "required": []}), "$.properties.query: `required` is only for the type `object`"),
        (
            wrap({"type": "null", "additionalProperties": True}),
            "$.properties.query: `additionalProperties` is only for the type `object`",
        ),
        (wrap({"type": "object", "items": {"type": "null"}}), "$.properties.query: `items` is only for the type `array`"),
        (wrap({"type": "array", "items": True}), "$.properties.query.items: a schema must be an object"),
        ({"type": "object", "properties": []}, "$: `properties` must be an object"),
        ({"type": "object", "required": "a"}, "$: `required` must be an array of strings"),
        ({"type": "object", "required": [1]}, "$: `required` must be an array of strings"),
        ({"type": "object", "required": ["a", "a"]}, "$: `required` has an entry twice"),
        (
            wrap({"type": "object", "properties": {}, "required": ["b"]}),
            "$.properties.query: `required` has `b`, which is not among the properties",
        ),
        (
            {"type": "object", "additionalProperties": {"type": "x"}},
            "$.additionalProperties: `type` must be one of " + ", ".join(TYPES),
        ),
        ({"type": "object", "additionalProperties": 1}, "$.additionalProperties: a schema must be an object"),
        (wrap({"type": "string", "enum": []}), "$.properties.query: `enum` must be a non-empty array"),
        (wrap({"type": "string", "enum": "ab"}), "$.properties.query: `enum` must be a non-empty array"),
        (
            wrap({"type": "string", "enum": [{"a": 1, "b": 2}, {"b": 2, "a": 1}]}),
            "$.properties.query: `enum` has an entry twice",
        ),
    ],
)
def test_what_it_has_not(schema: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        check_schema(schema)


def test_it_is_no_bomb() -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(100):
        schema = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(ValueError, match="nested too deep"):
        check_schema(schema)

"""The part of JSON Schema that a tool's `input_schema` may use (spec yoi 8.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from serai.dialects.yoi.reading import DEEPEST, quoted

__all__ = ["KEYWORDS", "TYPES", "check"]

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
KEYWORDS = ("type", "title", "description", "properties", "required", "additionalProperties", "items", "enum")
_ONLY = {"properties": "object", "required": "object", "additionalProperties": "object", "items": "array"}


def check(schema: Any) -> None:
    """Node by node; a `ValueError` begins with the path of the node, such as `$.properties.query: …`."""
    _node(schema, "$", DEEPEST)
    if schema["type"] != "object":
        raise ValueError("$: the root schema must have the type `object`")


def _node(node: Any, path: str, depth: int) -> None:
    if depth < 0:
        raise ValueError("$: the schema is nested too deep")
    if not isinstance(node, Mapping):
        raise ValueError(f"{path}: a schema must be an object")  # noqa: TRY004 - of somebody else's text
    for key in node:
        if key not in KEYWORDS:
            raise ValueError(f"{path}: unsupported schema keyword {quoted(key)}")
    kind = node.get("type")
    if "type" not in node:
        raise ValueError(f"{path}: a schema must have a `type`")
    if not isinstance(kind, str) or kind not in TYPES:
        raise ValueError(f"{path}: `type` must be one of {', '.join(TYPES)}")
    for key in node:
        if _ONLY.get(key, kind) != kind:
            raise ValueError(f"{path}: `{key}` is only for the type `{_ONLY[key]}`")
    for key in ("title", "description"):
        if not isinstance(node.get(key, ""), str):
            raise ValueError(f"{path}: `{key}` must be a string")  # noqa: TRY004
    _required(node, path)
    _enum(node, path)
    for name, inner in _below(node, path):
        _node(inner, f"{path}.{name}", depth - 1)


def _below(node: Mapping[str, Any], path: str) -> list[tuple[str, Any]]:
    properties, others = node.get("properties", {}), node.get("additionalProperties", False)
    if not isinstance(properties, Mapping):
        raise ValueError(f"{path}: `properties` must be an object")  # noqa: TRY004
    found = [(f"properties.{_step(name)}", inner) for name, inner in properties.items()]
    if not isinstance(others, bool):
        found.append(("additionalProperties", others))
    if "items" in node:
        found.append(("items", node["items"]))
    return found


def _step(name: str) -> str:
    return name if name.isprintable() and len(name) <= 80 else "…"


def _required(node: Mapping[str, Any], path: str) -> None:
    required = node.get("required", [])
    if not isinstance(required, list | tuple) or not all(isinstance(name, str) for name in required):
        raise ValueError(f"{path}: `required` must be an array of strings")
    if len(set(required)) < len(required):
        raise ValueError(f"{path}: `required` has an entry twice")
    properties = node.get("properties", required)
    if isinstance(properties, Mapping | list | tuple) and (lost := [name for name in required if name not in properties]):
        raise ValueError(f"{path}: `required` has {quoted(lost[0])}, which is not among the properties")


def _enum(node: Mapping[str, Any], path: str) -> None:
    if "enum" not in node:
        return
    values = node["enum"]
    if not isinstance(values, list | tuple) or not values:
        raise ValueError(f"{path}: `enum` must be a non-empty array")
    if len({msgspec.json.encode(value, order="deterministic") for value in values}) < len(values):  # where true is not 1
        raise ValueError(f"{path}: `enum` has an entry twice")

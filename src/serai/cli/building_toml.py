"""What an extension in Python offers as the tables of a plugin.toml: its author has written all of it once already."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["ingress_text", "service_text", "subset", "tool_text"]

_KEPT = ("type", "title", "description", "properties", "required", "additionalProperties", "items", "enum")  # spec yoi 8.2
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def tool_text(offered: Mapping[str, Any]) -> str:
    schema = subset(offered["parameters"])
    lines = ["[[tools]]", *_lines(offered, "name", "description"), f"input_schema = {toml(schema)}"]
    permission = {"kind": "tool", "name": offered["name"]}
    return "\n".join([*lines, f"# and to the permissions: {toml(permission)}"])


def service_text(offered: Mapping[str, Any]) -> str:
    permission = {"kind": "service", "name": offered["name"]}
    lines = ["[[services]]", *_lines(offered, "name", "description"), 'lifecycle = "host-managed"']
    return "\n".join([*lines, f"# and to the permissions: {toml(permission)}"])


def ingress_text(offered: Mapping[str, Any]) -> str:
    permission = {"kind": "ingress", "name": offered["name"]}
    lines = ["[[ingresses]]", *_lines(offered, "name", "description", "event_kinds", "sources")]
    return "\n".join([*lines, f"# and to the permissions: {toml(permission)}"])


def _lines(offered: Mapping[str, Any], *keys: str) -> list[str]:
    return [f"{key} = {toml(offered[key])}" for key in keys if offered.get(key)]


def subset(schema: Mapping[str, Any], defs: Mapping[str, Any] | None = None, depth: int = 0) -> dict[str, Any]:
    """A schema with the keywords that a manifest may have: what a model is told; the extension itself checks all of it."""
    defs = schema.get("$defs", {}) if defs is None else defs
    if "$ref" in schema:
        named = defs.get(str(schema["$ref"]).rpartition("/")[2], {})
        return subset(named, defs, depth + 1) if depth < 16 else {"type": "object"}
    for key in ("anyOf", "oneOf", "allOf"):
        if branches := [one for one in schema.get(key, ()) if one.get("type") != "null"]:
            return subset({**branches[0], **_worded(schema)}, defs, depth + 1)
    kept = {key: schema[key] for key in _KEPT if key in schema}
    if "const" in schema:
        kept["enum"] = [schema["const"]]
    kind = kept.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    kept["type"] = kind or _kind_of(kept)
    if "properties" in kept:
        kept["properties"] = {name: subset(one, defs, depth + 1) for name, one in kept["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = subset(kept[key], defs, depth + 1)
    return kept


def _worded(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: schema[key] for key in ("title", "description") if key in schema}


def _kind_of(schema: Mapping[str, Any]) -> str:
    if values := schema.get("enum"):
        kinds = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
        return kinds.get(type(values[0]), "object")
    return "array" if "items" in schema else "object"


def toml(value: Any) -> str:
    """A JSON value as TOML in one line; JSON's strings are TOML's, but for one character."""
    if isinstance(value, dict):
        inner = ", ".join(f"{_key(key)} = {toml(one)}" for key, one in value.items() if one is not None)
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(toml(one) for one in value if one is not None)}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else toml(key)

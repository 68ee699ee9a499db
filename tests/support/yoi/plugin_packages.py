"""Plugins as they lie on a disk, and what enables them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serai.plugins.package import compute_digest, pack


def files(
    id: str = "echo", version: str = "0.1.0", *, component: bytes = b"\0asm", tool: str = "echo", more: str = "", **others: bytes
) -> dict[str, bytes]:
    """A package with one tool."""
    text = f"""
schema_version = 1
id = "{id}"
name = "Echo"
version = "{version}"
{more}
[runtime]
kind = "wasm-component"
world = "yoi:plugin/tool@1.0.0"
component = "plugin.component.wasm"

[[tools]]
name = "{tool}"
description = "says it again"
input_schema = {{ type = "object" }}

[[permissions]]
kind = "surface"
surface = "tool"

[[permissions]]
kind = "tool"
name = "{tool}"
"""
    return {"plugin.toml": text.encode(), "plugin.component.wasm": component, **others}


def write_package(store: Path, name: str = "echo.yoi-plugin", content: dict[str, bytes] | None = None, **about: Any) -> Path:
    """A package file; what it holds is `files(…)` unless told otherwise."""
    store.mkdir(parents=True, exist_ok=True)
    path = store / name
    path.write_bytes(pack(content or files(**about)))
    return path


def write_folder(folder: Path, content: dict[str, bytes] | None = None, **about: Any) -> Path:
    for name, data in (content or files(**about)).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def enable(*entries: dict[str, Any], **plugins: Any) -> dict[str, Any]:
    """Settings with these enablements, and the switch on."""
    return {"feature": {"plugins": {"enabled": True}}, "plugins": {"enabled": list(entries), **plugins}}


def grant(identity: str, content: dict[str, bytes], *, version: str = "0.1.0", tool: str = "echo", **more: Any) -> dict[str, Any]:
    """An enablement that gives a package of one tool what it asks for."""
    bound = {"id": identity, "version": version, "digest": compute_digest(content)}
    permissions = [{"kind": "surface", "surface": "tool"}, {"kind": "tool", "name": tool}]
    return {**bound, "grants": {**bound, "permissions": permissions}, **more}


def enable_ids(*identities: str) -> dict[str, Any]:
    """Settings that enable these without granting anything."""
    return enable(*({"id": identity} for identity in identities))


def format_toml(said: Mapping[str, Any]) -> str:
    """Settings as they are written."""
    return "".join(f"{key} = {_value(value)}\n" for key, value in said.items())


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_value(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)

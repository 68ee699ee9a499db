"""The WIT text of both packages, and a world cut down to what a plugin asks for (spec yoi 2)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib.resources import files
from typing import Final

from serai.plugins.manifest import INSTANCE, TOOL

PLUGIN_FILE: Final = "yoi-plugin.wit"
HOST_FILE: Final = "deps/yoi-host/host.wit"

# Each function takes these and gives a string (spec yoi 2.1, 2.2).
Parameters = tuple[tuple[str, str], ...]
_JSON: Final[Parameters] = (("request-json", "string"),)
HOST: Final[Mapping[str, Mapping[str, Parameters]]] = {
    "request": {"request": _JSON},
    "websocket": {
        "open": _JSON,
        "send-text": (("handle", "u32"), ("text", "string")),
        "recv": (("handle", "u32"), ("timeout-ms", "u32")),
        "close": (("handle", "u32"),),
    },
    "fs": {"read": _JSON, "list": _JSON, "write": _JSON},
}
EXPORTS: Final[Mapping[str, Mapping[str, Parameters]]] = {
    "tool": {"call": (("tool-name", "string"), ("input-json", "string"))},
    "instance": {
        "start": (("config-json", "string"),),
        "handle-tool": (("name", "string"), ("input-json", "string")),
        "handle-ingress": (("name", "string"), ("event-json", "string")),
        "status": (),
        "stop": (),
    },
}
WORLDS: Final[Mapping[str, str]] = {TOOL: "tool", INSTANCE: "instance"}  # by the id that a manifest has


def format_import(api: str) -> str:
    """As it stands in a component."""
    return f"yoi:host/{api}@1.0.0"


def read_wit() -> dict[str, str]:
    """Both packages, by the path from the folder that tools are given."""
    folder = files("serai.dialects.yoi").joinpath("wit")
    return {name: folder.joinpath(*name.split("/")).read_text(encoding="utf-8") for name in (PLUGIN_FILE, HOST_FILE)}


def trim_world(world: str, apis: Collection[str]) -> dict[str, str]:
    """One world with these host interfaces alone: a component for it imports no other, used or not.

    Tool chains for Python and JavaScript keep what they do not use, and a strict host refuses an import that is not
    granted (spec yoi 2.3).
    """
    if world not in EXPORTS:
        raise ValueError(f"there is no world {world!r}: there are {', '.join(EXPORTS)}")
    if unknown := sorted(set(apis) - set(HOST)):
        raise ValueError(f"there is no host interface {unknown[0]!r}: there are {', '.join(HOST)}")
    both = read_wit()
    head, *worlds = both[PLUGIN_FILE].split("\n\n/// ")
    [own] = [part for part in worlds if f"\nworld {world} {{" in part]
    gone = tuple(f"import {format_import(api)};" for api in HOST if api not in apis)
    lines = [line for line in f"{head}\n\n/// {own.rstrip()}\n".splitlines(keepends=True) if line.strip() not in gone]
    plugin = "".join(lines).replace("{\n\n", "{\n")
    return {PLUGIN_FILE: plugin} | ({HOST_FILE: both[HOST_FILE]} if apis else {})

"""What a component must be before any code of it runs (spec yoi 2.3): its imports, and its exports with their types."""

from __future__ import annotations

from typing import Any

from wasmtime import Engine
from wasmtime.component import U32, Component, FuncType, String

__all__ = ["HOST", "Unfit", "check"]

PREFIX, SUFFIX = "yoi:host/", "@1.0.0"
_KINDS: dict[str, Any] = {"string": String, "u32": U32}
# interface -> function -> parameters; every one gives a string (spec yoi 2.1)
HOST: dict[str, dict[str, tuple[str, ...]]] = {
    "request": {"request": ("string",)},
    "websocket": {"open": ("string",), "send-text": ("u32", "string"), "recv": ("u32", "u32"), "close": ("u32",)},
    "fs": {"read": ("string",), "list": ("string",), "write": ("string",)},
}
# world -> function -> number of strings it takes; every one gives a string (spec yoi 2.2)
WORLDS: dict[str, dict[str, int]] = {
    "yoi:plugin/instance@1.0.0": {"start": 1, "handle-tool": 2, "handle-ingress": 2, "status": 0, "stop": 0},
    "yoi:plugin/tool@1.0.0": {"call": 2},
}


class Unfit(Exception):
    """Why this component is not run."""


def check(engine: Engine, component: Component, world: str) -> list[str]:
    """Which of the host's interfaces it imports. Further exports are nobody's business."""
    kind = component.type
    imports = [_import(engine, name, item) for name, item in kind.imports(engine).items()]
    exports: dict[str, Any] = kind.exports(engine)
    for name, texts in WORLDS[world].items():
        item = exports.get(name)
        if item is None:
            raise Unfit(f"component does not export expected `{world}` {name} function: there is no such export")
        wanted = ("string",) * texts
        if not _fits(item, wanted):
            detail = f"it must be func({', '.join(wanted)}) -> string"
            raise Unfit(f"component does not export expected `{world}` {name} function: {detail}")
    return sorted(imports)


def _import(engine: Engine, name: str, item: Any) -> str:
    interface = name[len(PREFIX) : -len(SUFFIX)] if name.startswith(PREFIX) and name.endswith(SUFFIX) else ""
    known = HOST.get(interface)
    if known is None:
        why = "no WASI filesystem, ambient network, environment, or other imports are available"
        raise Unfit(f"unsupported component import `{name}`; {why}")
    exports = getattr(_kind(item), "exports", None)
    if exports is None:
        raise Unfit(f"component is incompatible: its import `{name}` is no interface")
    for function, kind in exports(engine).items():
        if function not in known:
            raise Unfit(f"component is incompatible: there is no {function} in `{name}`")
        if not _fits(kind, known[function]):  # wasmtime does not look: our functions take what comes
            kinds = ", ".join(known[function])
            raise Unfit(f"component is incompatible: {function} in `{name}` is func({kinds}) -> string, not what it says")
    return interface


def _fits(item: Any, params: tuple[str, ...]) -> bool:
    found = _kind(item)
    return (
        isinstance(found, FuncType)
        and [type(kind) for _, kind in found.params] == [_KINDS[param] for param in params]
        and isinstance(found.result, String)
    )


def _kind(item: Any) -> Any:
    """What it is; None for what the library has no name for."""
    try:
        return getattr(item, "ty", item)
    except TypeError:
        return None

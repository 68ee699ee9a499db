"""Plugins for the tests of the commands: a manifest of parts, and a component."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.cli.in_process_shell import InProcessShell
from tests.support.cli.shell import parse_objects
from tests.support.yoi import components

TOOL, INSTANCE = "yoi:plugin/tool@1.0.0", "yoi:plugin/instance@1.0.0"
EMPTY = b"\0asm\x0d\0\x01\0"  # a component with nothing in it: no world has it
CORE = b"\0asm\x01\0\0\0"  # a core module, which is none
SAFETY = {"no_network": True, "no_plugin_execution": True, "no_enablement_config_mutation": True, "no_secrets_generated": True}


def permission(label: str) -> str:
    """`tool.echo` and the like as TOML."""
    kind, _, what = label.partition(".")
    field = {"surfaces": "surface", "tool_namespace": "namespace", "host_api": "api", "external_write": ""}.get(kind, "name")
    kind = "surface" if kind == "surfaces" else kind
    return f'{{ kind = "{kind}"' + (f', {field} = "{what}" }}' if field else " }")


def manifest(
    *more: str,
    id: str = "acme.echo",
    version: str = "1.0.0",
    world: str | None = INSTANCE,
    tools: tuple[str, ...] = ("echo",),
    permissions: tuple[str, ...] | None = None,
    keys: str = "",
) -> str:
    """The text of a `plugin.toml`; `more` are whole tables. By default it asks for what its tools need."""
    if permissions is None:
        permissions = ("surfaces.tool", *(f"tool.{name}" for name in tools)) if tools else ()
    parts = [f'schema_version = 1\nid = "{id}"\nname = "Echo"\nversion = "{version}"\n{keys}']
    parts.append(f"permissions = [{', '.join(map(permission, permissions))}]")
    if world is not None:
        parts.append(f'[runtime]\nkind = "wasm-component"\nworld = "{world}"\ncomponent = "plugin.component.wasm"')
    parts += [f'[[tools]]\nname = "{name}"\ndescription = "d"\ninput_schema = {{ type = "object" }}' for name in tools]
    return "\n\n".join([*parts, *more]) + "\n"


@cache
def build_component(world: str | None) -> bytes:
    """A component that does what its world wants."""
    return components.echo("tool" if world == TOOL else "instance")


def write_plugin(folder: Path, *more: str, component: bytes | None = None, **parts: Any) -> Path:
    """The folder of a plugin."""
    component = build_component(parts.get("world")) if component is None else component
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plugin.toml").write_text(manifest(*more, **parts))
    (folder / "plugin.component.wasm").write_bytes(component)
    return folder


def parse_report(ran: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The one object that `--json` printed."""
    [form] = parse_objects(ran)
    assert isinstance(form, dict)
    return form


def check_plugin(shell: InProcessShell, path: Path, *more: str, status: int = 0) -> dict[str, Any]:
    ran = shell("guest", "check", path, "--json", *more)
    assert ran.returncode == status, ran.stderr
    return parse_report(ran)

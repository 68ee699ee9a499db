"""A plugin in Python: the extension, the SDK and an interpreter in one component (componentize-py).

The tables of its plugin.toml come from what the extension offers, which its author has written once already.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import serai
from serai.authoring import build, bundle
from serai.authoring.build import read_output, write_wit
from serai.dialects.yoi import worlds
from serai.errors import BadExtension
from serai.toml_writer import to_toml, to_toml_pairs

if TYPE_CHECKING:
    from serai.authoring.build import BuildPlan

_KEPT = ("type", "title", "description", "properties", "required", "additionalProperties", "items", "enum")  # spec yoi 8.2


def format_tool(offered: Mapping[str, Any]) -> str:
    return _format_declaration(
        "tool", {**_select_keys(offered, "name", "description"), "input_schema": _drop_nulls(reduce_schema(offered["parameters"]))}
    )


def format_service(offered: Mapping[str, Any]) -> str:
    return _format_declaration("service", {**_select_keys(offered, "name", "description"), "lifecycle": "host-managed"})


def format_ingress(offered: Mapping[str, Any]) -> str:
    return _format_declaration("ingress", _select_keys(offered, "name", "description", "event_kinds", "sources"))


def _format_declaration(kind: str, table: Mapping[str, Any]) -> str:
    permission = to_toml({"kind": kind, "name": table["name"]})
    return f"[[{'ingresses' if kind == 'ingress' else f'{kind}s'}]]\n{to_toml_pairs(table)}# and to the permissions: {permission}"


def _select_keys(offered: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: offered[key] for key in keys if offered.get(key)}


def _drop_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _drop_nulls(item) for key, item in value.items() if item is not None}
    return [_drop_nulls(item) for item in value if item is not None] if isinstance(value, list | tuple) else value


def reduce_schema(schema: Mapping[str, Any], defs: Mapping[str, Any] | None = None, depth: int = 0) -> dict[str, Any]:
    """A schema with the keywords that a manifest may have: what a model is told; the extension itself checks all of it."""
    defs = schema.get("$defs", {}) if defs is None else defs
    if "$ref" in schema:
        named = defs.get(str(schema["$ref"]).rpartition("/")[2], {})
        return reduce_schema(named, defs, depth + 1) if depth < 16 else {"type": "object"}
    for key in ("anyOf", "oneOf", "allOf"):
        if branches := [one for one in schema.get(key, ()) if one.get("type") != "null"]:
            return reduce_schema({**branches[0], **_select_texts(schema)}, defs, depth + 1)
    kept = {key: schema[key] for key in _KEPT if key in schema}
    if "const" in schema:
        kept["enum"] = [schema["const"]]
    kind = kept.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    kept["type"] = kind or _infer_type(kept)
    if "properties" in kept:
        kept["properties"] = {name: reduce_schema(one, defs, depth + 1) for name, one in kept["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = reduce_schema(kept[key], defs, depth + 1)
    return kept


def _select_texts(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: schema[key] for key in ("title", "description") if key in schema}


def _infer_type(schema: Mapping[str, Any]) -> str:
    if values := schema.get("enum"):
        kinds = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
        return kinds.get(type(values[0]), "object")
    return "array" if "items" in schema else "object"


_ENTRY = "serai_component"  # the module that has the world's exports
_LEFT_OUT = (".wasm", ".yoi-plugin", ".toml", ".md", ".js", ".wat", ".c", ".h")
_PATIENCE = 60.0  # seconds, to import an extension
_LOOK = """\
import sys
sys.path[:0] = [{stage!r}]
import json
from serai.sdk.adapters.yoi import described, found_in
import {module} as program
with open({output!r}, "w", encoding="utf-8") as file:
    json.dump(described(found_in(program)), file)
"""
_CLASS = '''\
"""Made by `serai guest build`: the exports of the world {world}."""

import wit_world
{imports}import {module} as program
from serai.sdk.adapters.yoi import exports, found_in
from serai.sdk.adapters.yoi import seal

_exports = exports(found_in(program), {{{functions}}})


class WitWorld(wit_world.WitWorld):
{methods}

seal()
'''


async def build_python(plan: BuildPlan) -> bytes:
    module = plan.program.stem
    seen = bundle.scan_imports(plan.program)
    plan.warnings.extend(warning for warning in seen.warnings if "__file__" not in warning)
    tool = build.find_componentize_py()
    with TemporaryDirectory(prefix="serai-build-") as scratch:
        stage = Path(scratch, "stage")
        _stage_files(plan, seen.modules, stage)
        offered = await _inspect_extension(plan, module, stage, Path(scratch, "offered.json"))
        _compare(plan, offered)
        (stage / f"{_ENTRY}.py").write_text(format_entry(module, plan.world, plan.apis), encoding="utf-8")
        write_wit(plan, Path(scratch, "wit"))
        output = Path(scratch, "component.wasm")
        argv = [*tool, "-q", "-d", str(Path(scratch, "wit")), "-w", plan.world, "componentize", "--stub-wasi", _ENTRY]
        argv += ["-p", str(stage), "-o", str(output)]
        await build.run_tool_chain(argv, cwd=Path(scratch), who=str(plan.program), what="componentize-py", show=plan.show)
        return read_output(output, plan)


def format_entry(module: str, world: str, apis: Iterable[str]) -> str:
    """The module that componentize-py takes: a class with the exports, each handed to the kit."""
    apis = list(apis)
    methods = []
    for name, parameters in worlds.EXPORTS[world].items():
        called = name.replace("-", "_")
        taken = [parameter.replace("-", "_") for parameter, _ in parameters]
        methods.append(f"    def {called}({', '.join(['self', *taken])}):\n        return _exports.{called}({', '.join(taken)})\n")
    return _CLASS.format(
        world=world,
        module=module,
        imports="".join(f"from wit_world.imports import {api} as host_{api}\n" for api in apis),
        functions=", ".join(f'"{api}": host_{api}' for api in apis),
        methods="\n".join(methods),
    )


def _stage_files(plan: BuildPlan, modules: Iterable[str], stage: Path) -> None:
    """The extension's files and the SDK in a folder of their own: nothing else can be imported into the component."""
    skipped: list[str] = []
    own = [name for name in bundle.iter_own_files(plan.folder, skipped) if not name.endswith(_LEFT_OUT)]
    plan.warnings.extend(skipped)
    package = Path(serai.__file__).parent
    files = {name: plan.folder / name for name in {*own, *modules}}
    for name in files:
        if name.split("/")[0].removesuffix(".py") in ("serai", "wit_world", _ENTRY):
            raise BadExtension("the component has a module of that name already", who=str(plan.folder / name), hint="rename it")
    files |= {f"serai/{file.relative_to(package).as_posix()}": file for file in bundle.list_carried_files()}
    for name, file in files.items():
        target = stage / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)


async def _inspect_extension(plan: BuildPlan, module: str, stage: Path, output: Path) -> dict[str, Any]:
    """What the extension offers, from importing it as a component's build does."""
    text = _LOOK.format(stage=str(stage), module=module, output=str(output))
    argv = [sys.executable, "-I", "-S", "-B", "-c", text]
    await build.run_tool_chain(argv, cwd=stage, who=str(plan.program), what=f"import {module}", show=plan.show, patience=_PATIENCE)
    offered: dict[str, Any] = json.loads(read_output(output, plan))
    return offered


def _compare(plan: BuildPlan, offered: Mapping[str, Any]) -> None:
    """A host goes by the manifest: what stands there must be offered, and what is offered is only called if it stands there."""
    declared = {
        "tool": {tool.name for tool in plan.manifest.tools},
        "service": {service.name for service in plan.manifest.services},
        "ingress": {ingress.name for ingress in plan.manifest.ingresses},
    }
    texts = {"tool": format_tool, "service": format_service, "ingress": format_ingress}
    for kind, names in declared.items():
        here = {one["name"]: one for one in offered[kind]}
        if missing := sorted(names - here.keys()):
            text = f"plugin.toml declares the {kind} {missing[0]!r}, which {plan.program.name} does not offer"
            hint = f"it offers {', '.join(here) or 'none'}: correct the name on one side"
            raise BadExtension(text, who=str(plan.folder), hint=hint)
        for name in here.keys() - names:
            added = texts[kind](here[name])
            plan.warnings.append(f"the {kind} {name!r} is not in plugin.toml, so no host will know of it; add\n{added}")
    for kind, count in offered["missing"].items():
        plan.warnings.append(f"yoi has no {kind}: {count} {'is' if count == 1 else 'are'} left out")

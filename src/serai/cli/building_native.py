"""Plugins in JavaScript (componentize-qjs), in C (zig's compiler) and as component text."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from serai.cli import building_tools, components
from serai.dialects.yoi import worlds
from serai.errors import BadExtension, SpawnFailed

if TYPE_CHECKING:
    from serai.cli.building import Plan

__all__ = ["build_c", "build_js", "build_wat", "read_output", "write_wit"]

# No library, no start function; what is exported says so itself.
_C = (
    "cc",
    "-target",
    "wasm32-freestanding",
    "-nostdlib",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Wno-unused-function",
    "-Wl,--no-entry,--strip-all",
)


async def build_js(plan: Plan) -> bytes:
    """On QuickJS, without WASI and without the async ABI, which hosts of plugins do not have."""
    plan.source()
    folder = plan.folder.resolve()
    tool = building_tools.componentize_qjs(folder)
    with TemporaryDirectory(prefix="serai-build-") as scratch:
        write_wit(plan, Path(scratch, "wit"))
        output = Path(scratch, "component.wasm")
        argv = [*tool, "--wit", str(Path(scratch, "wit")), "--world", plan.world, "--js", str(folder / plan.program.name)]
        argv += ["--module-root", str(folder), "--stub-wasi", "--sync", "--output", str(output)]
        await building_tools.ran(argv, cwd=folder, who=str(plan.program), what="componentize-qjs")
        return read_output(output, plan)


async def build_c(plan: Plan) -> bytes:
    """A core module, around which the component is put here (`components.around`)."""
    plan.source()
    folder = plan.folder.resolve()
    with TemporaryDirectory(prefix="serai-build-") as scratch:
        output = Path(scratch, "core.wasm")
        argv = [*building_tools.zig(), *_C, f"-I{folder}", "-o", str(output), str(folder / plan.program.name)]
        more = {"ZIG_LOCAL_CACHE_DIR": str(Path(scratch, "cache"))}
        await building_tools.ran(argv, cwd=Path(scratch), who=str(plan.program), what="zig cc", more=more)
        core = read_output(output, plan)
    try:
        return _valid(components.around(core, plan.world))
    except BadExtension as error:
        raise BadExtension(error.message, who=str(plan.program), hint=error.hint) from None


async def build_wat(plan: Plan) -> bytes:
    try:
        text = plan.source().decode()
    except UnicodeDecodeError:
        raise BadExtension("it is no text", who=str(plan.program), hint="write it as UTF-8") from None
    try:
        return _valid(components.assembled(text))
    except BadExtension as error:
        raise BadExtension(error.message, who=str(plan.program), hint=error.hint) from None


def _valid(component: bytes) -> bytes:
    """Small ones are compiled once here, so that their author hears of what no host would take."""
    if not component.startswith(components.COMPONENT):
        raise BadExtension("it is a core module, not a component", hint="its text begins with (component")
    try:
        from wasmtime import Engine, WasmtimeError
        from wasmtime.component import Component
    except ImportError:
        raise SpawnFailed("wasmtime is not installed", hint="pip install 'serai[wasm]'") from None
    try:
        Component(Engine(), component)
    except WasmtimeError as error:
        raise BadExtension(f"it is no valid component: {error}", hint="correct it") from None
    return component


def write_wit(plan: Plan, folder: Path) -> None:
    """The world that the manifest asks for, and no more: a tool chain keeps every import that it sees."""
    for name, text in worlds.trimmed(plan.world, plan.apis).items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def read_output(output: Path, plan: Plan) -> bytes:
    try:
        return output.read_bytes()
    except OSError as error:
        hint = "try another version of the tool"
        raise BadExtension(
            f"the tool said that all went well, and gave nothing: {error.strerror}", who=str(plan.program), hint=hint
        ) from None

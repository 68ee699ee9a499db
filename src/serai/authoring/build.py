"""`serai guest build`: a plugin's component from its source, with the tool chain of its language (spec yoi 20).

Here are JavaScript (componentize-qjs), C (zig's compiler) and component text. Tool chains are found where they are, never
installed by us, and run as bounded child processes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from serai import atomic_file
from serai.authoring import component as authoring_component
from serai.dialects.yoi import worlds
from serai.errors import BadExtension, BadManifest, NotWritten, PeerTimeout, SpawnFailed
from serai.limits import KIB, MIB
from serai.wire import process
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Launch

if TYPE_CHECKING:
    from serai.plugins.manifest import PluginManifest

PROGRAMS: Mapping[str, str] = {"python": "extension.py", "js": "extension.js", "c": "extension.c", "wat": "extension.wat"}
_SOURCE = 4 * MIB


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """What is to be built, and of what."""

    folder: Path
    manifest: PluginManifest
    language: str
    world: str  # instance or tool
    apis: tuple[str, ...]  # the host interfaces that the manifest asks for
    component: str  # the file, from the folder
    show: Callable[[str], None]  # what a tool chain printed, if it failed
    warnings: list[str] = field(default_factory=list)

    @property
    def program(self) -> Path:
        return self.folder / PROGRAMS[self.language]

    def read_source(self) -> bytes:
        try:
            with open(self.program, "rb") as file:
                source = file.read(_SOURCE + 1)
        except OSError as error:
            raise BadExtension(
                f"cannot be read: {error.strerror}", who=str(self.program), hint="make it readable for you"
            ) from None
        if len(source) > _SOURCE:
            raise BadExtension(f"it has more than {_SOURCE // MIB} MiB", who=str(self.program), hint="it is no source then")
        return source


def plan_build(folder: Path, language: str | None = None, *, show: Callable[[str], None]) -> BuildPlan:
    """Look at a plugin's folder; `BadManifest` and `BadExtension` say what it lacks."""
    from serai.dialects.yoi import worlds
    from serai.plugins import manifest as manifests

    file = folder / "plugin.toml"
    try:
        manifest = manifests.parse(file.read_bytes())
    except FileNotFoundError:
        hint = "`serai guest new NAME --dialect yoi` begins a plugin"
        raise BadManifest("there is no plugin.toml", who=str(folder), hint=hint) from None
    except OSError as error:
        raise BadManifest(f"cannot be read: {error.strerror}", who=str(file)) from None
    except ValueError as error:
        raise BadManifest(str(error), who=str(file)) from None
    if manifest.runtime is None:
        raise BadManifest("it has no [runtime], so there is nothing to build", who=str(file), hint="say kind, world and component")
    apis = tuple(api for api in worlds.HOST if any(permission.api == api for permission in manifest.permissions))
    return BuildPlan(
        folder,
        manifest,
        language or _find_language(folder),
        worlds.WORLDS[manifest.runtime.world],
        apis,
        manifest.runtime.component,
        show,
    )


def _find_language(folder: Path) -> str:
    there = [language for language, program in PROGRAMS.items() if (folder / program).is_file()]
    if len(there) == 1:
        return there[0]
    found = " and ".join(PROGRAMS[language] for language in there)
    text = f"it has {found}" if there else f"it has none of {', '.join(PROGRAMS.values())}"
    hint = f"say which with --lang {'|'.join(there)}" if there else "its source has to be one of these"
    raise BadExtension(text, who=str(folder), hint=hint)


async def build_component(planned: BuildPlan) -> bytes:
    """The component. It is looked at, but not run."""
    component = await _find_builder(planned.language)(planned)
    _check(planned, component)
    return component


def _find_builder(language: str) -> Callable[[BuildPlan], Awaitable[bytes]]:
    match language:
        case "python":
            from serai.authoring.build_python import build_python

            return build_python
        case "js":
            return build_js
        case "c":
            return build_c
        case _:
            return build_wat


def _check(planned: BuildPlan, component: bytes) -> None:
    """As a host looks at it before it runs (spec yoi 2.3)."""
    from serai.dialects.yoi import worlds

    who = str(planned.program)
    try:
        found = authoring_component.read_interface_names(component)
    except ValueError as error:
        raise BadExtension(f"what was built is no component: {error}", who=who, hint="its text begins with (component") from None
    if (wrong := authoring_component.find_mismatch(found, planned.world)) is not None:
        raise BadExtension(f"the component {wrong[0]}", who=who, hint=wrong[1])
    known = {worlds.format_import(api): api for api in worlds.HOST}
    for name in found.imports:
        if known[name] not in planned.apis:
            permission = f'{{ kind = "host_api", api = "{known[name]}" }}'
            planned.warnings.append(f"it imports {name} without asking for it: add the permission {permission} to plugin.toml")


def write_component(component: bytes, target: Path) -> None:
    """The file is there whole, or as it was."""
    try:
        atomic_file.write_atomically(target, component, mode=0o644)
    except OSError as error:
        raise NotWritten(f"cannot be written: {error.strerror}", who=str(target)) from None


_PATIENCE = 600.0  # seconds: a Python component takes half a minute, on a busy machine some
_SHOWN = 64 * KIB  # of what a tool said


def find_componentize_py() -> list[str]:
    return [_require_program("componentize-py", "to build a plugin in Python: pip install componentize-py")]


def find_componentize_qjs(folder: Path) -> list[str]:
    """The package is looked for as node does, from the plugin's folder upwards."""
    hint = "to build a plugin in JavaScript: install Node 18 or newer, and in the plugin's folder say npm install componentize-qjs"
    node = shutil.which("node")
    if node is None:
        raise SpawnFailed("node is not on your PATH", who=str(folder), hint=hint)
    for place in (folder, *folder.parents):
        program = place / "node_modules" / ".bin" / "componentize-qjs"
        if program.is_file():
            return [node, str(program.resolve())]
    return [_require_program("componentize-qjs", hint)]


def find_zig() -> list[str]:
    """The compiler, which PyPI has as `ziglang`."""
    if find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang"]
    for name in ("zig", "python-zig"):
        if program := find_program(name):
            return [program]
    raise SpawnFailed("there is no zig, which compiles C", hint="to build a plugin in C: pip install ziglang")


def find_program(name: str) -> str:
    """A program of the environment that runs us, or one on the PATH; else nothing."""
    beside = os.path.join(_get_python_folder(), name)
    return beside if os.access(beside, os.X_OK) else shutil.which(name) or ""


def _get_python_folder() -> str:
    return os.path.dirname(sys.executable)


def _require_program(name: str, hint: str) -> str:
    if program := find_program(name):
        return program
    raise SpawnFailed(f"{name} is not installed, or not on your PATH", hint=hint)


async def run_tool_chain(
    argv: Sequence[str],
    *,
    cwd: Path,
    who: str,
    what: str,
    show: Callable[[str], None],
    more: Mapping[str, str] | None = None,
    patience: float = _PATIENCE,
) -> None:
    """Runs a tool to its end. If it fails, `show` gets what it printed."""
    # Without what makes Python tools look elsewhere: a component gets what is in its folder, and nothing of our own environment.
    hidden = {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "PIPENV_ACTIVE"}
    env = {name: value for name, value in process.build_guest_env(os.environ).items() if name not in hidden} | dict(more or {})
    async with PlainSpawner() as spawner:
        child = await spawner.spawn(Launch(argv=argv, env=env, cwd=str(cwd), who=what, stdin="null"))
        said = child.drain_noise(child.stdout, _SHOWN)
        try:
            async with asyncio.timeout(patience):
                status = await child.exited
        except TimeoutError:
            _show(show, said.text(), child.stderr.text())
            hint = "the machine may be busy: try again"
            raise PeerTimeout(f"{what} did not end within {patience:.0f} seconds", who=who, hint=hint) from None
        if not status.ok:
            _show(show, said.text(), child.stderr.text())
            raise BadExtension(f"{what} could not build it ({status})", who=who, hint="correct what it says above")


def _show(show: Callable[[str], None], *printed: str) -> None:
    for text in printed:
        if text.strip():
            show(text.rstrip("\n"))


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


async def build_js(plan: BuildPlan) -> bytes:
    """On QuickJS, without WASI and without the async ABI, which hosts of plugins do not have."""
    plan.read_source()
    folder = plan.folder.resolve()
    tool = find_componentize_qjs(folder)
    with TemporaryDirectory(prefix="serai-build-") as scratch:
        write_wit(plan, Path(scratch, "wit"))
        output = Path(scratch, "component.wasm")
        argv = [*tool, "--wit", str(Path(scratch, "wit")), "--world", plan.world, "--js", str(folder / plan.program.name)]
        argv += ["--module-root", str(folder), "--stub-wasi", "--sync", "--output", str(output)]
        await run_tool_chain(argv, cwd=folder, who=str(plan.program), what="componentize-qjs", show=plan.show)
        return read_output(output, plan)


async def build_c(plan: BuildPlan) -> bytes:
    """A core module, around which the component is put here (`component.wrap_module`)."""
    plan.read_source()
    folder = plan.folder.resolve()
    with TemporaryDirectory(prefix="serai-build-") as scratch:
        output = Path(scratch, "core.wasm")
        argv = [*find_zig(), *_C, f"-I{folder}", "-o", str(output), str(folder / plan.program.name)]
        more = {"ZIG_LOCAL_CACHE_DIR": str(Path(scratch, "cache"))}
        await run_tool_chain(argv, cwd=Path(scratch), who=str(plan.program), what="zig cc", show=plan.show, more=more)
        core = read_output(output, plan)
    try:
        return _validate(authoring_component.wrap_module(core, plan.world))
    except BadExtension as error:
        raise BadExtension(error.message, who=str(plan.program), hint=error.hint) from None


async def build_wat(plan: BuildPlan) -> bytes:
    try:
        text = plan.read_source().decode()
    except UnicodeDecodeError:
        raise BadExtension("it is no text", who=str(plan.program), hint="write it as UTF-8") from None
    try:
        return _validate(authoring_component.assemble(text))
    except BadExtension as error:
        raise BadExtension(error.message, who=str(plan.program), hint=error.hint) from None


def _validate(component: bytes) -> bytes:
    """Small ones are compiled once here, so that their author hears of what no host would take."""
    if not component.startswith(authoring_component.COMPONENT):
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


def write_wit(plan: BuildPlan, folder: Path) -> None:
    """The world that the manifest asks for, and no more: a tool chain keeps every import that it sees."""
    for name, text in worlds.trim_world(plan.world, plan.apis).items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def read_output(output: Path, plan: BuildPlan) -> bytes:
    try:
        return output.read_bytes()
    except OSError as error:
        hint = "try another version of the tool"
        raise BadExtension(
            f"the tool said that all went well, and gave nothing: {error.strerror}", who=str(plan.program), hint=hint
        ) from None

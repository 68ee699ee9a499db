"""`serai guest build`: a plugin's component from its source, with the tool chain of its language (spec yoi 20)."""

from __future__ import annotations

import os
import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from serai import atomic_file
from serai.cli import components, telling
from serai.cli.opening import JSON, NamedPath, Status, run
from serai.errors import BadExtension, BadManifest, NotWritten
from serai.limits import KIB, MIB

if TYPE_CHECKING:
    from serai.plugins.manifest import PluginManifest

__all__ = ["PROGRAMS", "Plan", "build", "built", "plan"]

PROGRAMS: Mapping[str, str] = {"python": "extension.py", "js": "extension.js", "c": "extension.c", "wat": "extension.wat"}
_SOURCE = 4 * MIB


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be built, and of what."""

    folder: Path
    manifest: PluginManifest
    language: str
    world: str  # instance or tool
    apis: tuple[str, ...]  # the host interfaces that the manifest asks for
    component: str  # the file, from the folder
    warnings: list[str] = field(default_factory=list)

    @property
    def program(self) -> Path:
        return self.folder / PROGRAMS[self.language]

    def source(self) -> bytes:
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


@click.command()
@click.argument("folder", type=NamedPath(exists=True, file_okay=False, path_type=Path), default=".")
@click.option(
    "--lang", "language", type=click.Choice(list(PROGRAMS)), help="What it is written in; else the file extension.* in it tells."
)
@JSON
def build(folder: Path, *, language: str | None, as_json: bool) -> None:
    """Make the component of the plugin in FOLDER, the file that its plugin.toml names.

    Its source is extension.py, .js, .c or .wat; the tool chain is found on this machine, or you are told what to install. Only the
    host interfaces that plugin.toml asks for are built in.

    Building runs the folder's own code as you, with no sandbox around it: build only what you would run.
    """
    run(_build(folder, language, as_json=as_json))


async def _build(folder: Path, language: str | None, *, as_json: bool) -> Status:
    planned = plan(folder, language)
    component = await built(planned)
    _write(component, planned.folder / planned.component)
    _tell(planned, component, as_json=as_json)
    return Status.OK


def _tell(planned: Plan, component: bytes, *, as_json: bool) -> None:
    target = planned.folder / planned.component
    found = components.names(component)
    if as_json:
        form = {"id": f"yoi:{planned.manifest.id}", "file": os.path.abspath(target), "size": len(component)}
        form |= {"language": planned.language, "world": planned.world, "imports": found.imports, "warnings": planned.warnings}
        click.echo(telling.as_json(form))
    else:
        telling.say(f"built yoi:{planned.manifest.id}: {target}, {len(component) // KIB} KiB")
        telling.say(f"it imports {', '.join(found.imports) or 'nothing'}")
        path = shlex.quote(str(planned.folder))
        telling.say(f"next: serai guest check {path}; serai guest add {path}; serai guest grant {path}")
    for warning in planned.warnings:
        telling.tell(warning)


def plan(folder: Path, language: str | None = None) -> Plan:
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
    return Plan(
        folder, manifest, language or _language(folder), worlds.WORLDS[manifest.runtime.world], apis, manifest.runtime.component
    )


def _language(folder: Path) -> str:
    there = [language for language, program in PROGRAMS.items() if (folder / program).is_file()]
    if len(there) == 1:
        return there[0]
    found = " and ".join(PROGRAMS[language] for language in there)
    text = f"it has {found}" if there else f"it has none of {', '.join(PROGRAMS.values())}"
    hint = f"say which with --lang {'|'.join(there)}" if there else "its source has to be one of these"
    raise BadExtension(text, who=str(folder), hint=hint)


async def built(planned: Plan) -> bytes:
    """The component. It is looked at, but not run."""
    component = await _builder(planned.language)(planned)
    _check(planned, component)
    return component


def _builder(language: str) -> Callable[[Plan], Awaitable[bytes]]:
    match language:
        case "python":
            from serai.cli.building_python import build_python

            return build_python
        case "js":
            from serai.cli.building_native import build_js

            return build_js
        case "c":
            from serai.cli.building_native import build_c

            return build_c
        case _:
            from serai.cli.building_native import build_wat

            return build_wat


def _check(planned: Plan, component: bytes) -> None:
    """As a host looks at it before it runs (spec yoi 2.3)."""
    from serai.dialects.yoi import worlds

    who = str(planned.program)
    try:
        found = components.names(component)
    except ValueError as error:
        raise BadExtension(f"what was built is no component: {error}", who=who, hint="its text begins with (component") from None
    if (wrong := components.misfit(found, planned.world)) is not None:
        raise BadExtension(f"the component {wrong[0]}", who=who, hint=wrong[1])
    known = {worlds.import_name(api): api for api in worlds.HOST}
    for name in found.imports:
        if known[name] not in planned.apis:
            permission = f'{{ kind = "host_api", api = "{known[name]}" }}'
            planned.warnings.append(f"it imports {name} without asking for it: add the permission {permission} to plugin.toml")


def _write(component: bytes, target: Path) -> None:
    """The file is there whole, or as it was."""
    try:
        atomic_file.write_atomically(target, component, mode=0o644)
    except OSError as error:
        raise NotWritten(f"cannot be written: {error.strerror}", who=str(target)) from None

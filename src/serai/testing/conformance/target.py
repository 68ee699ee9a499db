"""What is to be checked: a guest's folder, its manifest, or a Python program alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from serai.errors import BadManifest, NoGuest
from serai.host.adapters import DIALECTS
from serai.host.guest_manifest import GuestFolder, GuestManifest, inspect_folder, read_manifest
from serai.host.guest_settings import AuthorSettings, PersonSettings
from serai.testing.conformance.report import Finding, Patience, failed, warned
from serai.testing.zot_host.process import python_program

__all__ = ["Target", "Task"]

PROGRAMS = (".py", ".pyz")  # what the SDK makes; it speaks zot unless it is told otherwise
# What a manifest has to say, and which of its words names the program.
_MANIFEST = {
    "zot": 'extension.json holds an object: "name" and "exec" are texts, "args" is a list of texts',
    "piglet": "manifest.yaml holds a mapping: `name` and `runtime` are texts, `entry` is a file of the folder",
}
_PROGRAM = {"zot": "exec", "piglet": "runtime"}
_MANIFESTS = ", ".join(row.manifest for row in DIALECTS.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A guest that can be started, or `argv` is empty and `remarks` say why not."""

    name: str
    dialect: str
    folder: Path
    environ: Mapping[str, str]
    argv: tuple[str, ...] = ()
    manifest: bool = True
    exclusive: bool = False  # only one of it may run at a time
    transport: str = "auto"  # on which descriptors it speaks, where its dialect knows several
    remarks: tuple[Finding, ...] = ()

    @classmethod
    def at(cls, path: Path | str, environ: Mapping[str, str]) -> Target:
        """The guest at a path; `NoGuest` if there is nothing at all."""
        path = Path(os.path.abspath(path))
        if not path.exists():
            raise NoGuest(
                "there is no such file or folder", who=str(path), hint="name a guest's folder, its manifest, or a program"
            )
        if path.suffix in PROGRAMS and not path.is_dir():
            argv = tuple(python_program(path, environ))
            return cls(name=path.name, dialect="zot", folder=path.parent, environ=environ, argv=argv, manifest=False)
        if path.is_file() and path.name not in {row.manifest for row in DIALECTS.values()}:
            raise NoGuest(
                "neither a guest's folder, nor its manifest, nor a Python program",
                who=str(path),
                hint=f"a manifest is one of {_MANIFESTS}",
            )
        return cls._read(path if path.is_dir() else path.parent, environ)

    @classmethod
    def _read(cls, folder: Path, environ: Mapping[str, str]) -> Target:
        dialect = "zot"
        try:
            found = inspect_folder(folder) or GuestFolder(
                folder, dialect, (), AuthorSettings()
            )  # without any, as if zot's were missing
            dialect = found.dialect if found.dialect in _MANIFEST else dialect
            manifest = read_manifest(found, "ad hoc", PersonSettings())
        except BadManifest as error:
            remark = failed(error.message, hint=_MANIFEST[dialect])
            return cls(name=folder.name, dialect=dialect, folder=folder, environ=environ, remarks=(remark,))
        argv, remarks = _command(manifest, environ)
        if not manifest.enabled:
            remarks = (*remarks, warned("it is disabled, so no host starts it", hint="take `enabled` out of the manifest"))
        return cls(
            name=manifest.name,
            dialect=manifest.dialect,
            folder=folder,
            environ=environ,
            argv=argv,
            exclusive=manifest.settings.exclusive,
            transport=manifest.transport,
            remarks=remarks,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is to be checked, how patiently, and which real calls and commands may be made."""

    target: Target
    patience: Patience = field(default_factory=Patience)
    calls: Sequence[tuple[str, object]] = ()
    commands: Sequence[str] = ()


def _command(manifest: GuestManifest, environ: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
    """The command line with its program found, or nothing and the reason."""
    program, *arguments = manifest.argv
    if "/" not in program:
        if found := shutil.which(program, path=environ.get("PATH", os.defpath)):
            return (found, *arguments), ()
        hint = "install it, or name a file of the folder with a path: ./run"  # spec zot 1.3, piglet 1.4
        return (), (failed(f"there is no program {program} in the PATH", hint=hint),)
    if os.path.isfile(program) and os.access(program, os.X_OK):
        return (program, *arguments), ()
    if os.path.exists(program):
        return (), (failed(f"{program} cannot be executed", hint="make it an executable file: chmod +x"),)
    return (), (
        failed(f"there is no file {program}", hint=f"`{_PROGRAM[manifest.dialect]}` is relative to the folder of the manifest"),
    )

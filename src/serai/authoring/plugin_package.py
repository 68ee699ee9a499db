"""What is told of a plugin's package: the reports of `serai guest new`, `check` and `pack` (spec yoi 19).

Their JSON has the origin's fields and no others. Nothing here is executed, compiled, enabled or fetched.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serai import atomic_file, paths
from serai.errors import BadManifest, NotWritten, SeraiError
from serai.plain_text import escape_text
from serai.plugins.package import ENDING, BadArchive

if TYPE_CHECKING:
    from serai.app.config import Config
    from serai.plugins.bounds import Bounds
    from serai.plugins.grants import ResolvedPlugin
    from serai.plugins.package import Package

# What none of these commands does; said in each report, for whoever reads it in a pipeline.
SAFETY = {
    "no_network": True,
    "no_plugin_execution": True,
    "no_enablement_config_mutation": True,
    "no_secrets_generated": True,
}
TEXT_WIDTH = 240  # characters of a message for people (spec yoi 17.2)


def read_bounds(config: Config | None = None) -> Bounds:
    """How large a package may be for this person."""
    from serai.plugins import resolution

    return resolution.read_plugin_settings(paths.read_settings() if config is None else config.settings).bounds


def open_package(path: Path, config: Config | None = None) -> Package:
    """The package that somebody named; what is wrong with it is said as an error."""
    from serai.plugins import package_store

    try:
        return package_store.read_package(path, read_bounds(config))
    except ValueError as error:
        raise BadManifest(str(error), who=str(path), hint="`serai guest check` says more") from None


# -- forms ------------------------------------------------------------------------------------------------------------------------


def build_new_report(template: str, destination: str, files: Iterable[str], next_steps: Iterable[str]) -> dict[str, Any]:
    """The report of a plugin that was begun."""
    return {
        "command": "new",
        "template": template,
        "destination": destination,
        "files": list(files),
        "safety": SAFETY,
        "next_steps": list(next_steps),
    }


def describe_package(package: Package, path: str) -> dict[str, Any]:
    """What a package is. It lies in no store yet: whoever names its file or folder has it as `user` (spec yoi 9)."""
    about = package.manifest
    return {
        "reference": f"user:{about.id}",
        "package": about.id,
        "source": "user",
        "version": about.version,
        "schema_version": about.schema_version,
        "digest": package.digest,
        "package_path": path,
        "entries": sorted(package.files),
        "surfaces": sorted(about.declared),
        "tools": [tool.name for tool in about.tools],
        "permissions": [permission.label for permission in about.permissions],
    }


# -- check ------------------------------------------------------------------------------------------------------------------------


def check_package(path: str, bounds: Bounds | None = None) -> dict[str, Any]:
    """Look at a package as it would be looked at before it runs, given all that it asks for."""
    from serai.plugins import authorization, package_store

    path = os.path.abspath(path)
    if os.path.basename(path) == "plugin.toml" and os.path.isfile(path):
        path = os.path.dirname(path)
    report: dict[str, Any] = {"command": "check", "status": "rejected", "input_path": path}
    report["input_kind"] = "directory" if os.path.isdir(path) else "package"
    found: list[dict[str, str]] = []
    try:
        package = package_store.read_package(Path(path), bounds or read_bounds())
    except (ValueError, SeraiError) as error:
        found.append(_describe_problem(error))
    else:
        report["package"] = describe_package(package, path)
        found += _check_artifact(package)
        inspection = authorization.inspect(grant_all(package, path))
        found += [{"kind": "grant", "phase": "resolution", "message": message} for message in inspection.diagnostics]
        status = "active" if inspection.eligible else "rejected"
        report["static_inspection"] = {"status": status, "diagnostics": len(inspection.diagnostics)}
        report["status"] = _get_status(found, refused=not inspection.eligible)
    return report | {"diagnostics": found, "safety": SAFETY, "next_steps": _list_next_steps(report, path)}


def grant_all(package: Package, path: str) -> ResolvedPlugin:
    """The plugin as if it had been granted all that it asks for, except roots for files: no manifest may name one (spec yoi 19)."""
    from serai.plugins.grants import FsGrant, Grants, ResolvedPlugin

    about, identity = package.manifest, f"user:{package.manifest.id}"
    grants = Grants(
        id=identity,
        version=about.version,
        digest=package.digest,
        permissions=about.permissions,
        request=about.request,
        websocket=about.websocket,
        fs=(FsGrant(root="/", operations=("read", "list", "write")),) if _asks_for_files(package) else (),
    )
    return ResolvedPlugin(
        identity=identity,
        source="user",
        package_path=path,
        package_label=os.path.basename(path),
        digest=package.digest,
        version=about.version,
        manifest=about,
        enabled_surfaces=tuple(sorted(about.declared)),
        grants=grants,
    )


def _asks_for_files(package: Package) -> bool:
    return any(permission.api == "fs" for permission in package.manifest.permissions)


def _describe_problem(error: Exception) -> dict[str, str]:
    kind = getattr(error, "kind", "") or ("malformed" if isinstance(error, ValueError) else "io")
    phase = "discovery" if isinstance(error, BadArchive | SeraiError) else "manifest"
    return {"kind": kind, "phase": phase, "message": getattr(error, "message", "") or str(error)}


def _check_artifact(package: Package) -> list[dict[str, str]]:
    """What keeps the component from running, as far as can be seen without compiling it."""
    runtime = package.manifest.runtime
    wrong = _find_problem(package.files.get(runtime.component, b""), runtime.world) if runtime else None
    return [{"kind": wrong[0], "phase": "runtime", "message": wrong[1]}] if wrong else []


def _find_problem(content: bytes, world: str) -> tuple[str, str] | None:
    """The kind and a message. A text is what templates put there until something is built (spec yoi 21.32)."""
    from serai.authoring import component
    from serai.dialects.yoi import worlds

    if content.startswith(component.COMPONENT):
        try:
            misfit = component.find_mismatch(component.read_interface_names(content), worlds.WORLDS[world])
        except ValueError as error:
            return "malformed", f"component is incompatible: {error}"
        return ("api", f"component is incompatible: it {misfit[0]}; {misfit[1]}") if misfit else None
    if content.startswith(component.CORE[:4]):
        return "api", "component is incompatible: it is a core module, not a component"
    if _is_text(content):
        return "placeholder", "the component is a placeholder: it has to be built, `serai guest build` does that"
    return "malformed", "component is incompatible: it is no WebAssembly"


def _is_text(content: bytes) -> bool:
    try:
        return "\0" not in content.decode()
    except UnicodeDecodeError:
        return False


def _get_status(found: Sequence[dict[str, str]], *, refused: bool) -> str:
    runtime = [one["kind"] for one in found if one["phase"] == "runtime"]
    if refused or any(kind != "placeholder" for kind in runtime):
        return "rejected"
    return "partial" if runtime else "active"


def _list_next_steps(report: dict[str, Any], path: str) -> list[str]:
    shown = escape_text(shlex.quote(path))
    if report["status"] == "rejected":
        return [f"mend what is said above, then `serai guest check {shown}` again"]
    if report["status"] == "partial":
        return [f"serai guest build {shown}", f"serai guest check {shown}"]
    steps = [f"serai guest pack {shown}"] if report["input_kind"] == "directory" else []
    return [*steps, f"serai guest add {shown}", f"serai guest grant {report['package']['package']}"]


# -- pack -------------------------------------------------------------------------------------------------------------------------


def pack(folder: str, output: str | None) -> dict[str, Any]:
    """Write the archive of a folder; it is read again first, as whoever gets it will read it."""
    from serai.plugins import package as plugins_package
    from serai.plugins.package import open_files

    source = paths.absolute_path(folder)
    if not os.path.isdir(source):
        raise BadManifest("not a directory", who=source, hint="name the folder of a plugin")
    bounds = read_bounds()
    try:
        packed = plugins_package.pack(open_package(Path(source)).files)
        package = open_files(plugins_package.read(packed, bounds), bounds)
    except ValueError as error:
        raise BadManifest(str(error), who=source, hint="`serai guest check` says more") from None
    target = paths.absolute_path(output) if output else f"{source}{ENDING}"
    _write(target, packed)
    return {
        "command": "pack",
        "status": "packed",
        "input_path": source,
        "output_path": target,
        "package": describe_package(package, target),
        "safety": SAFETY,
    }


def _write(target: str, content: bytes) -> None:
    """Whole, or not at all; what is above it is made, what is there is replaced (spec yoi 19)."""
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        atomic_file.write_atomically(target, content, mode=0o644)
    except OSError as error:
        raise NotWritten(f"cannot be written: {error.strerror}", who=target) from None

"""Programs that say they are Claude Code, in folders that look like an installation."""

from __future__ import annotations

import json
from pathlib import Path

from serai.agents.drivers.claude.installation import InstallLocations

BANNER = "{} (Claude Code)"


def program(path: Path, version: str = "2.1.300", *, says: str = "", body: str = "") -> Path:
    """A script that tells its version; each time it is asked, a line more is in `asked` beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    said = says or BANNER.format(version)
    path.write_text(f"#!/bin/sh\necho x >> {path.parent}/{path.name}.asked\n{body}\necho '{said}'\n")
    path.chmod(0o755)
    return path


def count_runs(path: Path) -> int:
    """How often it was asked."""
    record = path.parent / f"{path.name}.asked"
    return len(record.read_text().splitlines()) if record.exists() else 0


def environ(home: Path, *folders: Path, **more: str) -> dict[str, str]:
    """One where nothing is known but what is said; what is found is in `home` and on the PATH."""
    return {"HOME": str(home), "PATH": ":".join([*map(str, folders), "/usr/bin", "/bin"]), **more}


def places(environ: dict[str, str], root: Path, *, package: str = "claude_agent_none") -> InstallLocations:
    """The places of a machine of which all is below `root`: what is installed on this one is not seen."""
    path = ":".join(folder for folder in environ["PATH"].split(":") if folder.startswith(str(root)))
    return InstallLocations({**environ, "PATH": path}, package=package, beside=str(root / "beside"), machine=(str(root / "usr"),))


def npm(modules: Path, name: str, version: str, file: str) -> Path:
    """A package of npm's with one file; the path of that."""
    package = modules / "@anthropic-ai" / name
    package.mkdir(parents=True, exist_ok=True)
    (package / "package.json").write_text(json.dumps({"name": f"@anthropic-ai/{name}", "version": version}))
    return program(package / file, version)

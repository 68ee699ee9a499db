"""Where Claude Code may be installed (spec agents 2.1). Nothing is started here."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from typing import NamedTuple

from serai.agents.drivers.claude.environment import path_without

__all__ = ["Candidate", "Places"]

_NAMES = ("claude", "anthropic")
_SCOPE, _PACKAGE = "@anthropic-ai", "claude-code"
_ARCHITECTURES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


class Candidate(NamedTuple):
    """A file that may be it, and how it was found: `PATH`, `bundled` or `installed`."""

    path: str
    source: str


class Places:
    """The places of one machine, as seen from an environment. `looked` are those where one has looked, for who finds nothing."""

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        package: str = "claude_agent_sdk",
        beside: str = "",
        machine: tuple[str, ...] = ("/usr/local", "/opt/homebrew"),
    ) -> None:
        """`package` is Python's that has it inside, `beside` the folder of our own program, `machine` where it is for everybody."""
        self._environ = environ
        self._home = environ.get("HOME") or os.path.expanduser("~")
        self._package = package
        self._beside = beside or os.path.dirname(sys.executable)
        self._machine = machine
        self.looked: list[str] = []

    def on_path(self) -> Iterator[Candidate]:
        """The first of each name on the PATH. A relative folder there would be the project's, and nobody has installed that."""
        folders = [
            folder for folder in path_without(self._environ.get("PATH", os.defpath)).split(os.pathsep) if os.path.isabs(folder)
        ]
        self.looked.append("PATH")
        for name in _NAMES:
            files = (os.path.join(folder, name) for folder in folders)
            if found := next((file for file in files if _is_program(file)), ""):
                yield Candidate(native(os.path.realpath(found)), "PATH")

    def bundled(self) -> Iterator[Candidate]:
        """What came along with a package: the wheel `claude-agent-sdk`, or an application that has it beside itself."""
        self.looked.append(f"the package {self._package.replace('_', '-')}")
        files = [os.path.join(folder, "_bundled", "claude") for folder in _package(self._package)]
        beside = self._beside
        files += [os.path.join(beside, *place) for place in (("claude",), ("..", "Resources", "claude"), ("claude-code", "claude"))]
        yield from self._there(files, "bundled")

    def installed(self) -> Iterator[Candidate]:
        """What is installed for the person, then what is for the machine."""
        home = self._home
        folders = [os.path.join(home, *place) for place in ((".local", "bin"), (".npm-global", "bin"), (".claude", "local"))]
        folders += [os.path.join(home, "node_modules", ".bin"), os.path.join(home, ".yarn", "bin")]
        folders += [os.path.join(prefix, "bin") for prefix in self._machine]
        self.looked += folders
        yield from self._there((os.path.join(folder, "claude") for folder in folders), "installed")
        roots = [os.path.join(home, ".npm-global"), *self._prefixes(), *self._machine]
        modules = [os.path.join(root, "lib", "node_modules") for root in roots] + [os.path.join(home, "node_modules")]
        self.looked += modules
        yield from self._there(
            (native(os.path.join(folder, _SCOPE, _PACKAGE, "bin", "claude.exe")) for folder in modules), "installed"
        )

    def _prefixes(self) -> Iterator[str]:
        """Where npm installs for everybody: as it was told, else beside itself."""
        if told := self._environ.get("npm_config_prefix") or self._environ.get("NPM_CONFIG_PREFIX"):
            yield told
        for folder in self._environ.get("PATH", os.defpath).split(os.pathsep):
            if os.path.isabs(folder) and os.path.basename(folder) == "bin" and _is_program(os.path.join(folder, "npm")):
                yield os.path.dirname(folder)

    def _there(self, files: Iterable[str], source: str) -> Iterator[Candidate]:
        return (Candidate(native(os.path.realpath(file)), source) for file in files if _is_program(file))


def native(path: str) -> str:
    """For a file of npm's package the program itself, where it is: the file may be a script for node that starts it as a child."""
    parts = path.split(os.sep)
    if _SCOPE not in parts:
        return path
    scope = os.sep.join(parts[: parts.index(_SCOPE) + 1])
    package = os.path.join(scope, _PACKAGE)
    if not path.startswith(package + os.sep):
        return path
    for around in (scope, os.path.join(package, "node_modules", _SCOPE)):
        for name in _platforms():
            if _is_program(file := os.path.join(around, f"{_PACKAGE}-{name}", "claude")):
                return file
    return path


def _platforms() -> Iterator[str]:
    """The names of npm's packages for this machine; both kinds of C library, this one's first."""
    system = "darwin" if sys.platform == "darwin" else "linux"
    name = f"{system}-{_ARCHITECTURES.get(platform.machine().lower(), platform.machine())}"
    if system == "linux":
        musl = not platform.libc_ver()[0]
        yield from (f"{name}-musl", name) if musl else (name, f"{name}-musl")
    else:
        yield name


def _package(name: str) -> list[str]:
    """The folders of a package, which is not imported: that would take a quarter of a second."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return []
    return list(spec.submodule_search_locations or ()) if spec is not None else []


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)

"""Which Claude Code is driven: where it may be installed, and which version a file is (spec agents 2.1).

A program that a person names is used, or is an error: nothing else is tried then. Otherwise everything that is installed counts,
and the newest is used. A package says its version; else the program is run with `--version`. That takes a process, so it is not
done where there is no choice: the first frame tells the version too.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from itertools import chain, zip_longest
from typing import NamedTuple

import msgspec

from serai import paths
from serai.agents.drivers.claude.options import ClaudeOptions, build_environment, strip_package_folders
from serai.errors import BadSettings, NoAgent, SeraiError
from serai.limits import MIB, AgentLimits
from serai.wire.plain_process import PlainSpawner
from serai.wire.process import Child, Launch, Spawner

_NAMES = ("claude", "anthropic")
_SCOPE, _PACKAGE = "@anthropic-ai", "claude-code"
_ARCHITECTURES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}


class Candidate(NamedTuple):
    """A file that may be it, and how it was found: `PATH`, `bundled` or `installed`."""

    path: str
    source: str


class InstallLocations:
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

    def iter_path(self) -> Iterator[Candidate]:
        """The first of each name on the PATH. A relative folder there would be the project's, and nobody has installed that."""
        folders = [
            folder
            for folder in strip_package_folders(self._environ.get("PATH", os.defpath)).split(os.pathsep)
            if os.path.isabs(folder)
        ]
        self.looked.append("PATH")
        for name in _NAMES:
            files = (os.path.join(folder, name) for folder in folders)
            if found := next((file for file in files if _is_program(file)), ""):
                yield Candidate(resolve_native(os.path.realpath(found)), "PATH")

    def iter_bundled(self) -> Iterator[Candidate]:
        """What came along with a package: the wheel `claude-agent-sdk`, or an application that has it beside itself."""
        self.looked.append(f"the package {self._package.replace('_', '-')}")
        files = [os.path.join(folder, "_bundled", "claude") for folder in _find_package(self._package)]
        beside = self._beside
        files += [os.path.join(beside, *place) for place in (("claude",), ("..", "Resources", "claude"), ("claude-code", "claude"))]
        yield from self._iter_programs(files, "bundled")

    def iter_installed(self) -> Iterator[Candidate]:
        """What is installed for the person, then what is for the machine."""
        home = self._home
        folders = [os.path.join(home, *place) for place in ((".local", "bin"), (".npm-global", "bin"), (".claude", "local"))]
        folders += [os.path.join(home, "node_modules", ".bin"), os.path.join(home, ".yarn", "bin")]
        folders += [os.path.join(prefix, "bin") for prefix in self._machine]
        self.looked += folders
        yield from self._iter_programs((os.path.join(folder, "claude") for folder in folders), "installed")
        roots = [os.path.join(home, ".npm-global"), *self._iter_prefixes(), *self._machine]
        modules = [os.path.join(root, "lib", "node_modules") for root in roots] + [os.path.join(home, "node_modules")]
        self.looked += modules
        yield from self._iter_programs(
            (resolve_native(os.path.join(folder, _SCOPE, _PACKAGE, "bin", "claude.exe")) for folder in modules), "installed"
        )

    def _iter_prefixes(self) -> Iterator[str]:
        """Where npm installs for everybody: as it was told, else beside itself."""
        if told := self._environ.get("npm_config_prefix") or self._environ.get("NPM_CONFIG_PREFIX"):
            yield told
        for folder in self._environ.get("PATH", os.defpath).split(os.pathsep):
            if os.path.isabs(folder) and os.path.basename(folder) == "bin" and _is_program(os.path.join(folder, "npm")):
                yield os.path.dirname(folder)

    def _iter_programs(self, files: Iterable[str], source: str) -> Iterator[Candidate]:
        return (Candidate(resolve_native(os.path.realpath(file)), source) for file in files if _is_program(file))


def resolve_native(path: str) -> str:
    """For a file of npm's package the program itself, where it is: the file may be a script for node that starts it as a child."""
    parts = path.split(os.sep)
    if _SCOPE not in parts:
        return path
    scope = os.sep.join(parts[: parts.index(_SCOPE) + 1])
    package = os.path.join(scope, _PACKAGE)
    if not path.startswith(package + os.sep):
        return path
    for around in (scope, os.path.join(package, "node_modules", _SCOPE)):
        for name in _iter_platforms():
            if _is_program(file := os.path.join(around, f"{_PACKAGE}-{name}", "claude")):
                return file
    return path


def _iter_platforms() -> Iterator[str]:
    """The names of npm's packages for this machine; both kinds of C library, this one's first."""
    system = "darwin" if sys.platform == "darwin" else "linux"
    name = f"{system}-{_ARCHITECTURES.get(platform.machine().lower(), platform.machine())}"
    if system == "linux":
        musl = not platform.libc_ver()[0]
        yield from (f"{name}-musl", name) if musl else (name, f"{name}-musl")
    else:
        yield name


def _find_package(name: str) -> list[str]:
    """The folders of a package, which is not imported: that would take a quarter of a second."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return []
    return list(spec.submodule_search_locations or ()) if spec is not None else []


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


UNKNOWN = "unknown"
_PACKAGE_NAME = re.compile(r"@anthropic-ai/claude-code(-[a-z0-9-]+)?")
_PRODUCT = re.compile(r"claude (code|cli)", re.IGNORECASE)
_NUMBER = re.compile(r"v?(\d\S*)")
_INSTALLED = re.compile(r"\d+\.\d+\.\d+[0-9A-Za-z.+-]*")
_SHIMS = (".cmd", ".bat", ".ps1")
# A program of Linux or macOS, or a script. What npm leaves where its install script did not run is none of them.
_HEADS = (b"\x7fELF", b"#!", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
_MOST = MIB  # bytes of a package.json

# What only the Desktop application has: it is another program of the same name (spec agents 5.2 A12).
_DESKTOP = re.compile(r"/Claude\.app/|/claude-desktop/|/AnthropicClaude/|/Claude Desktop/", re.IGNORECASE)


def find_rejection(path: str) -> str:
    """Why a file cannot be it, from looking at it alone; empty when it can."""
    if path.lower().endswith(_SHIMS):  # a shell between us would not pass on signals, nor all arguments (spec agents 7.32)
        return "it is a script of the Windows shell: name the program that it starts"
    if _DESKTOP.search(os.path.realpath(path)) or _DESKTOP.search(path):
        return "it belongs to the Claude Desktop application"
    if not os.path.exists(path):
        return "it does not exist"
    if not os.path.isfile(path):
        return "it is not a file"
    if not os.access(path, os.X_OK):
        return "it is not executable"
    try:
        with open(path, "rb") as file:
            head = file.read(4)
    except OSError:
        return ""  # to be executed it need not be readable
    return "" if head.startswith(_HEADS) else "it is neither a program nor a script with a #! line"


def parse_banner(text: str) -> str:
    """The version in what `--version` printed; empty when it is not Claude Code's. Desktop says `1.0.0 (Claude)`."""
    if not _PRODUCT.search(text):
        return ""
    return parse_version(text) or UNKNOWN


def parse_version(text: str) -> str:
    """The first word of the first line that begins with a digit, or with `v` and one."""
    first = text.strip().partition("\n")[0]
    return next((found[1] for word in first.split() if (found := _NUMBER.fullmatch(word))), "")


def is_newer(one: str, other: str) -> bool:
    """Whether a version is later than another: by number, part by part, a missing part being 0."""
    mine, theirs = _parse_numbers(one), _parse_numbers(other)
    return next((a > b for a, b in zip_longest(mine, theirs, fillvalue=0) if a != b), False)


def _parse_numbers(version: str) -> list[int]:
    """-1 for what is no version: it is lower than all."""
    parts = [re.match(r"\d+", part) for part in version.removeprefix("v").split(".")]
    return [int(part[0]) if part else 0 for part in parts] if parts[0] else [-1]


def read_recorded_version(path: str) -> str:
    """The version, where a package or an installer has written it down beside the file; no process is needed then."""
    real = os.path.realpath(path)
    folder, name = os.path.split(real)
    with suppress(OSError, ValueError):  # the wheel has the banner in a file
        return parse_banner(paths.read_regular_file(f"{real}.version", _MOST).decode())
    if os.path.basename(folder) == "versions" and _INSTALLED.fullmatch(name):  # Claude's own installer: …/claude/versions/2.1.3
        return name
    for above in (folder, os.path.dirname(folder)):  # npm: in the package's folder, or in its `bin`
        with suppress(OSError, ValueError):
            about = json.loads(paths.read_regular_file(os.path.join(above, "package.json"), _MOST))
            if isinstance(about, dict) and _PACKAGE_NAME.fullmatch(str(about.get("name"))):
                return str(about.get("version") or UNKNOWN)
    return ""


class VersionCache:
    """What programs say of themselves. Each is asked once, until its file changes (spec agents 2.1 ★)."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int, int], str] = {}

    def invalidate(self) -> None:
        """Ask all of them again."""
        self._seen.clear()

    async def get(self, path: str, env: Mapping[str, str], *, limits: AgentLimits, spawner: Spawner | None = None) -> str:
        """Its version. `ValueError` says why it is not Claude Code."""
        if why := find_rejection(path):
            raise ValueError(why)
        if version := read_recorded_version(path):
            return version
        key = _make_cache_key(path)
        if key not in self._seen:
            self._seen[key] = await _query_version(path, env, limits, spawner)
        return self._seen[key]


def _make_cache_key(path: str) -> tuple[str, int, int]:
    about = os.stat(path)
    return os.path.realpath(path), about.st_mtime_ns, about.st_size


async def _query_version(path: str, env: Mapping[str, str], limits: AgentLimits, spawner: Spawner | None) -> str:
    if spawner is not None:
        return await _run_version(path, env, limits, spawner)
    async with PlainSpawner(limits, watchdog=False) as own:
        return await _run_version(path, env, limits, own)


async def _close_child(child: Child) -> None:
    """Also for one who is cancelled in this very moment: whoever waits for their end finds nothing left."""
    closing = asyncio.ensure_future(child.close())
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await closing
        raise


async def _run_version(path: str, env: Mapping[str, str], limits: AgentLimits, spawner: Spawner) -> str:
    try:
        child = await spawner.spawn(Launch(argv=[path, "--version"], env=env, cwd="/", who="claude", stdin="null"))
    except SeraiError as error:
        raise ValueError(error.message) from None
    try:
        said = child.drain_noise(child.stdout)
        async with asyncio.timeout(limits.agent_version):
            status = await child.exited
        said.drain()
        text = said.text()
    except TimeoutError:
        raise ValueError(f"it did not tell its version within {limits.agent_version:g} s") from None
    finally:
        await _close_child(child)
    if not status.ok:
        raise ValueError(f"it could not tell its version: {status}")
    version = parse_banner(text)
    if not version:
        raise ValueError("it says that it is something else than Claude Code")
    return version


HOW_TO_INSTALL = (
    "install the package claude-agent-sdk from PyPI, which has it inside, or @anthropic-ai/claude-code from npm; "
    'or say where it is: `path = "…"` under [agents.claude] of config.toml'
)
_ANY = ("claude", "anthropic")  # as a path these only mean the program of that name, wherever it is
_VARIABLE = "CLAUDE_CLI_PATH"

VERSIONS = VersionCache()  # what programs said of themselves, for as long as their files stay as they are


class ProgramFile(msgspec.Struct, frozen=True):
    """What is started. `version` is empty where nobody had to ask; `source` is `options`, `settings`, `CLAUDE_CLI_PATH`, `PATH`,
    `bundled` (with a package of Python's or beside us) or `installed`."""

    path: str
    version: str = ""
    source: str = ""


def invalidate() -> None:
    """Forget what programs said of themselves."""
    VERSIONS.invalidate()


async def find_claude(
    options: ClaudeOptions,
    environ: Mapping[str, str],
    *,
    limits: AgentLimits | None = None,
    configured: str = "",
    probe: bool = False,
    spawner: Spawner | None = None,
    versions: VersionCache | None = None,
    places: InstallLocations | None = None,
) -> ProgramFile:
    """The program; `NoAgent` says where it was looked for, and how to get it.

    `configured` is the path in the person's settings; what `options` name is stronger. With `probe` the version is always known.
    """
    prober = _ProgramProber(build_environment(environ, options, "/"), limits or AgentLimits(), spawner, versions or VERSIONS)
    bundled, everywhere = _read_kinds(options, environ)
    if named := _find_named(options, environ, configured):
        return await prober.check_named(*named)
    places = places or InstallLocations(environ)
    return await prober.pick_best(
        list(_iter_candidates(places, bundled=bundled, everywhere=everywhere)), places.looked, probe=probe
    )


def _find_named(options: ClaudeOptions, environ: Mapping[str, str], configured: str) -> Candidate | None:
    """The one that somebody named, the strongest word first."""
    for path, source in ((options.path, "options"), (configured, "settings"), (environ.get(_VARIABLE, ""), _VARIABLE)):
        if path and (path not in _ANY or source == _VARIABLE):
            home = environ.get("HOME", "")
            return Candidate(os.path.join(home, path[2:]) if home and path.startswith("~/") else path, source)
    return None


def _read_kinds(options: ClaudeOptions, environ: Mapping[str, str]) -> tuple[bool, bool]:
    """Whether it has to be one that came with a package, or one that was installed; neither: whichever there is."""
    bundled = options.use_bundled or environ.get("CLAUDE_USE_BUNDLED") == "1"
    everywhere = options.use_global or environ.get("CLAUDE_USE_GLOBAL") == "1"
    if bundled and everywhere:
        hint = "say one of `use_bundled` (CLAUDE_USE_BUNDLED=1) and `use_global` (CLAUDE_USE_GLOBAL=1), or none"
        raise BadSettings(
            "the program that came with a package and the installed one cannot both be meant", who="claude", hint=hint
        )
    return bundled, everywhere


def _iter_candidates(places: InstallLocations, *, bundled: bool, everywhere: bool) -> Iterator[Candidate]:
    """Each file once, those on the PATH first: they win a tie."""
    there = [] if bundled else [places.iter_path()]
    if not everywhere:
        there.append(places.iter_bundled())
    if not bundled:
        there.append(places.iter_installed())
    seen: set[str] = set()
    for candidate in chain.from_iterable(there):
        if candidate.path not in seen:
            seen.add(candidate.path)
            yield candidate


class _ProgramProber:
    """One search: how programs are asked for their version."""

    def __init__(self, env: Mapping[str, str], limits: AgentLimits, spawner: Spawner | None, versions: VersionCache) -> None:
        self._env, self._limits, self._spawner, self._versions = env, limits, spawner, versions

    async def check_named(self, path: str, source: str) -> ProgramFile:
        """The one that somebody named. It has to be one: to take another would not be what they said."""
        where = {"options": "the path that was given", "settings": "`path` under [agents.claude]"}.get(source, source)
        hint = f"correct {where}, or take it away; {HOW_TO_INSTALL}"
        if not os.path.isabs(path):  # it would be looked for in the project
            raise NoAgent(f"{where} is {path}, which is not an absolute path", who="claude", hint=hint)
        try:
            return ProgramFile(path, await self._get_version(path), source)
        except ValueError as error:
            raise NoAgent(f"{where} is {path}: {error}", who="claude", hint=hint) from None

    async def pick_best(self, candidates: list[Candidate], looked: list[str], *, probe: bool) -> ProgramFile:
        rejected = {one.path: why for one in candidates if (why := find_rejection(one.path))}
        left = [one for one in candidates if one.path not in rejected]
        if len(left) == 1 and not probe:
            return ProgramFile(left[0].path, read_recorded_version(left[0].path), left[0].source)
        found: ProgramFile | None = None
        for one in left:
            try:
                version = await self._get_version(one.path)
            except ValueError as error:
                rejected[one.path] = str(error)
                continue
            if found is None or is_newer(version, found.version):
                found = ProgramFile(one.path, version, one.source)
        if found is None:
            beside = "".join(f"; {path}: {why}" for path, why in rejected.items())
            raise NoAgent(f"Claude Code is not here; looked in {', '.join(looked)}{beside}", who="claude", hint=HOW_TO_INSTALL)
        return found

    async def _get_version(self, path: str) -> str:
        return await self._versions.get(path, self._env, limits=self._limits, spawner=self._spawner)

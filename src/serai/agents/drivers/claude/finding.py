"""Which Claude Code is driven (spec agents 2.1).

What a person names is taken, or is an error: nothing else is tried then. Otherwise all that is installed counts, and the newest is
taken. To ask a program for its version takes a process, so none is asked where there is no choice: its first frame tells it too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import chain

import msgspec

from serai.agents.drivers.claude.environment import environment
from serai.agents.drivers.claude.options import Options
from serai.agents.drivers.claude.places import Candidate, Places
from serai.agents.drivers.claude.versions import Versions, known, newer, refused
from serai.errors import BadSettings, NoAgent
from serai.limits import Limits
from serai.wire.process import Spawner

__all__ = ["HOW_TO_INSTALL", "VERSIONS", "Program", "find", "invalidate"]

HOW_TO_INSTALL = (
    "install the package claude-agent-sdk from PyPI, which has it inside, or @anthropic-ai/claude-code from npm; "
    'or say where it is: `path = "…"` under [agents.claude] of config.toml'
)
_ANY = ("claude", "anthropic")  # as a path these only mean the program of that name, wherever it is
_VARIABLE = "CLAUDE_CLI_PATH"

VERSIONS = Versions()  # what programs said of themselves, for as long as their files stay as they are


class Program(msgspec.Struct, frozen=True):
    """What is started. `version` is empty where nobody had to ask; `source` is `options`, `settings`, `CLAUDE_CLI_PATH`, `PATH`,
    `bundled` (with a package of Python's or beside us) or `installed`."""

    path: str
    version: str = ""
    source: str = ""


def invalidate() -> None:
    """Forget what programs said of themselves."""
    VERSIONS.invalidate()


async def find(
    options: Options,
    environ: Mapping[str, str],
    *,
    limits: Limits | None = None,
    configured: str = "",
    probe: bool = False,
    spawner: Spawner | None = None,
    versions: Versions | None = None,
    places: Places | None = None,
) -> Program:
    """The program; `NoAgent` says where it was looked for, and how to get it.

    `configured` is the path in the person's settings; what `options` name is stronger. With `probe` the version is always known.
    """
    look = _Look(environment(environ, options, "/"), limits or Limits(), spawner, versions or VERSIONS)
    bundled, everywhere = _kinds(options, environ)
    if named := _named(options, environ, configured):
        return await look.named(*named)
    places = places or Places(environ)
    return await look.best(list(_candidates(places, bundled=bundled, everywhere=everywhere)), places.looked, probe=probe)


def _named(options: Options, environ: Mapping[str, str], configured: str) -> Candidate | None:
    """The one that somebody named, the strongest word first."""
    for path, source in ((options.path, "options"), (configured, "settings"), (environ.get(_VARIABLE, ""), _VARIABLE)):
        if path and (path not in _ANY or source == _VARIABLE):
            home = environ.get("HOME", "")
            return Candidate(os.path.join(home, path[2:]) if home and path.startswith("~/") else path, source)
    return None


def _kinds(options: Options, environ: Mapping[str, str]) -> tuple[bool, bool]:
    """Whether it has to be one that came with a package, or one that was installed; neither: whichever there is."""
    bundled = options.use_bundled or environ.get("CLAUDE_USE_BUNDLED") == "1"
    everywhere = options.use_global or environ.get("CLAUDE_USE_GLOBAL") == "1"
    if bundled and everywhere:
        hint = "say one of `use_bundled` (CLAUDE_USE_BUNDLED=1) and `use_global` (CLAUDE_USE_GLOBAL=1), or none"
        raise BadSettings(
            "the program that came with a package and the installed one cannot both be meant", who="claude", hint=hint
        )
    return bundled, everywhere


def _candidates(places: Places, *, bundled: bool, everywhere: bool) -> Iterator[Candidate]:
    """Each file once, those on the PATH first: they win a tie."""
    there = [] if bundled else [places.on_path()]
    if not everywhere:
        there.append(places.bundled())
    if not bundled:
        there.append(places.installed())
    seen: set[str] = set()
    for candidate in chain.from_iterable(there):
        if candidate.path not in seen:
            seen.add(candidate.path)
            yield candidate


class _Look:
    """One search: how programs are asked for their version."""

    def __init__(self, env: Mapping[str, str], limits: Limits, spawner: Spawner | None, versions: Versions) -> None:
        self._env, self._limits, self._spawner, self._versions = env, limits, spawner, versions

    async def named(self, path: str, source: str) -> Program:
        """The one that somebody named. It has to be one: to take another would not be what they said."""
        where = {"options": "the path that was given", "settings": "`path` under [agents.claude]"}.get(source, source)
        hint = f"correct {where}, or take it away; {HOW_TO_INSTALL}"
        if not os.path.isabs(path):  # it would be looked for in the project
            raise NoAgent(f"{where} is {path}, which is not an absolute path", who="claude", hint=hint)
        try:
            return Program(path, await self._version(path), source)
        except ValueError as error:
            raise NoAgent(f"{where} is {path}: {error}", who="claude", hint=hint) from None

    async def best(self, candidates: list[Candidate], looked: list[str], *, probe: bool) -> Program:
        rejected = {one.path: why for one in candidates if (why := refused(one.path))}
        left = [one for one in candidates if one.path not in rejected]
        if len(left) == 1 and not probe:
            return Program(left[0].path, known(left[0].path), left[0].source)
        found: Program | None = None
        for one in left:
            try:
                version = await self._version(one.path)
            except ValueError as error:
                rejected[one.path] = str(error)
                continue
            if found is None or newer(version, found.version):
                found = Program(one.path, version, one.source)
        if found is None:
            beside = "".join(f"; {path}: {why}" for path, why in rejected.items())
            raise NoAgent(f"Claude Code is not here; looked in {', '.join(looked)}{beside}", who="claude", hint=HOW_TO_INSTALL)
        return found

    async def _version(self, path: str) -> str:
        return await self._versions.of(path, self._env, limits=self._limits, spawner=self._spawner)

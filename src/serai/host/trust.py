"""Which projects may start their guests (design rule 12).

A project is trusted by its real path, and each of its guests by what it was in that moment: where its folder really lies, its
command line, the content of what its manifest names, and all code in its folder: a file that comes later may take the place of
what another imports. A plugin is pinned by the digest of its package. Whatever changes or comes later has to be trusted again.
Not pinned are programs from PATH and what lies in `node_modules`, `venv`, `__pycache__`, hidden and linked folders: trust a project
as you would run its tests.

Its rules (`.serai/policy.toml`) and its settings (`.serai/config.toml`) are pinned too: until then they may only narrow. So is what
it has for driven agents (`.claude`, `.mcp.json`), whose hooks and servers they would start without asking anybody.

A guard that was trusted has to be there: what a project changes later must not switch it off without a word (design rule 8).
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from serai import paths
from serai.errors import BadManifest, BadSettings
from serai.host.adapters import ENDINGS
from serai.host.file_watcher import SOURCES, find_code
from serai.host.guest_manifest import PROJECT_PLACES, GuestManifest, inspect_folder, list_folders, read_manifest
from serai.host.guest_settings import PersonSettings, read_person_settings
from serai.limits import MIB
from serai.locked_file import LockedFile

TOO_MUCH = "there is too much of it, or some of it cannot be read"

_VERSION = 1
_MOST = 64 * MIB  # of all that is pinned of one guest: each look reads it

# More than is watched: what is loaded in place of a source, and what says how a program is run.
_ENDINGS = SOURCES.union({".pyc", ".pyo", ".pyd", ".so", ".node", ".dll", ".dylib", ".class", ".jar"})
_NAMES = frozenset({"package.json", "deno.json", "pyproject.toml", "Cargo.toml", "go.mod", "Makefile", "Gemfile"})
# What driven agents take from a project: settings with hooks, servers, sub-agents, skills. Copies of the project are not that.
_FOR_AGENTS = (".claude", ".mcp.json")
_NOT_FOR_AGENTS = ".claude/worktrees"
_MOST_FILES = 1000
_PASSED_OVER = frozenset({"node_modules", "venv", "__pycache__"})


class _Pin(msgspec.Struct, frozen=True):
    """A guest as it was trusted. The folder's real path is relative to the project's unless it lies elsewhere."""

    folder: str
    argv: list[str]
    files: dict[str, str]
    guard: bool = False
    digest: str = ""  # of all its content, where its dialect has one: then that is what is pinned


class _Project(msgspec.Struct):
    guests: dict[str, _Pin] = {}
    policy: str = ""  # the digest of its rules
    config: str = ""  # and of its settings
    agents: dict[str, str] | None = None  # of what it has for driven agents, by name; None: nobody was asked about that


class _File(msgspec.Struct):
    version: int = _VERSION
    projects: dict[str, _Project] = {}


class Trust:
    """The file `trust.json` among the person's configuration. Read anew each time: another Serai may have written it."""

    def __init__(self, file: Path, *, person: str = "") -> None:
        """`person` is the person's own folder (HOME), by default that of whoever runs this."""
        self.file = file
        self._own = LockedFile(file, BadSettings)
        self._person = os.path.realpath(person or os.path.expanduser("~"))

    @classmethod
    def usual(cls, environ: Mapping[str, str] = os.environ) -> Trust:
        return cls(Path(paths.config_folder(environ)) / "trust.json", person=environ.get("HOME", ""))

    def allow(
        self,
        project: Path | str,
        config: Mapping[str, Any] | None = None,
        *,
        rules: bytes | None = None,
        settings: bytes | None = None,
        agents: Mapping[str, str] | None = None,
    ) -> tuple[GuestManifest, ...]:
        """Trust this project's guests as they are now, and no others any more; the guests that were pinned.

        `config` are the person's settings, by default those beside this file: they may grant a guest more than it asks for. What
        cannot be read is not pinned, and so not started: finding reports it, and `find_obstacle` says why a guest was left out.
        `rules`, `settings` and `agents` are what a person has seen of the project's rules, its settings and its files for driven
        agents, empty for none: just that is trusted. By default they are read now.
        """
        folder = Path(paths.absolute_path(project))
        if not os.path.isdir(folder):
            raise BadSettings("not a directory", who=str(project), hint="name the folder of the project")
        config_folder = str(self.file.parent)
        person = read_person_settings(
            paths.read_settings_in(config_folder) if config is None else config, who=f"{config_folder}/config.toml"
        )
        pins: dict[str, _Pin] = {}
        manifests: list[GuestManifest] = []
        for manifest in _find_guests(folder, person):
            try:
                pins[_build_key(manifest.folder)] = _pin(manifest)
            except OSError:
                continue
            manifests.append(manifest)
        with self._own.lock():
            known = self._read()
            known.projects[_resolve_path(folder)] = _Project(
                pins,
                _hash_project_file(folder, paths.PROJECT_POLICY) if rules is None else _hash_content(rules),
                _hash_project_file(folder, paths.PROJECT_CONFIG) if settings is None else _hash_content(settings),
                self.for_agents(folder) if agents is None else dict(agents),
            )
            self._write(known)
        return tuple(manifests)

    def withdraw(self, project: Path | str) -> bool:
        """Forget a project; whether it was known."""
        folder = Path(paths.absolute_path(project))
        with self._own.lock():
            known = self._read()
            if known.projects.pop(_resolve_path(folder), None) is None:
                return False
            self._write(known)
        return True

    def check(self, manifest: GuestManifest) -> str:
        """Why this guest of a project must not be started, or nothing if it may."""
        pinned = self._read_pins(_find_project(manifest.folder)).get(_build_key(manifest.folder))
        if pinned is None:
            return "it was never trusted"
        try:
            now = _pin(manifest)
        except OSError as error:
            return _explain_error(error)
        if now.folder != pinned.folder:
            return f"it was moved since it was trusted: to {now.folder}"
        if now.digest != pinned.digest:
            return f"it has changed since it was trusted: {now.digest} now, {pinned.digest or 'something else'} then"
        if now.argv != pinned.argv:
            return "its command line has changed since it was trusted"
        changed = sorted(name for name in now.files.keys() | pinned.files if now.files.get(name) != pinned.files.get(name))
        return f"it has changed since it was trusted: {_format_names(changed)}" if changed else ""

    def check_policy(self, project: Path | str, content: bytes | None = None) -> str:
        """Why the project's rules may not allow anything, or nothing if they may. `content`: what was read of them."""
        pinned = self._read().projects.get(_resolve_path(Path(project)), _Project()).policy
        if not pinned:
            return "they were never trusted; look at them, then `serai trust`"
        now = _hash_project_file(Path(project), paths.PROJECT_POLICY) if content is None else _hash_content(content)
        return "" if now == pinned else "they have changed since they were trusted; look at them, then `serai trust`"

    def check_config(self, project: Path | str, content: bytes | None = None) -> str:
        """Why the project's settings may only narrow, or nothing if they may do more. `content`: what was read of them."""
        pinned = self._read().projects.get(_resolve_path(Path(project)), _Project()).config
        if not pinned:
            return "they were never trusted; look at them, then `serai trust`"
        now = _hash_project_file(Path(project), paths.PROJECT_CONFIG) if content is None else _hash_content(content)
        return "" if now == pinned else "they have changed since they were trusted; look at them, then `serai trust`"

    def check_agents(self, project: Path | str) -> str:
        """Why a driven agent must start without what the project has for it, or nothing if it may have that."""
        pinned = self._read().projects.get(_resolve_path(Path(project)), _Project()).agents
        now = self.for_agents(project)
        if now is None:
            return TOO_MUCH
        if pinned is None:
            return "it was never trusted; look at it, then `serai trust`"
        changed = sorted(name for name in now.keys() | pinned if now.get(name) != pinned.get(name))
        return f"it has changed since it was trusted: {_format_names(changed)}; look at it, then `serai trust`" if changed else ""

    def for_agents(self, project: Path | str) -> dict[str, str] | None:
        """What the project has for driven agents, by name, with a digest of each; None when not all of it can be looked at."""
        return _hash_agent_files(Path(os.path.realpath(project)), self._person)

    def find_obstacle(self, manifest: GuestManifest) -> str:
        """Why this guest cannot be trusted as it is now, or nothing."""
        try:
            _pin(manifest)
        except OSError as error:
            return _explain_error(error)
        return ""

    def find_lost_guards(self, project: Path, held: frozenset[Path]) -> list[Path]:
        """The folders of guards that were trusted in this project and are not among the held ones."""
        kept = {_build_key(folder) for folder in held}
        return [project / key for key, pin in sorted(self._read_pins(project).items()) if pin.guard and key not in kept]

    def _read_pins(self, project: Path) -> dict[str, _Pin]:
        return self._read().projects.get(_resolve_path(project), _Project()).guests

    # -- the file -----------------------------------------------------------------------------------------------------------------

    def _read(self) -> _File:
        try:
            known = msgspec.json.decode(self.file.read_bytes(), type=_File)
        except FileNotFoundError:
            return _File()
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            hint = "remove the file and trust your projects again"
            raise BadSettings(f"what was trusted cannot be read: {error}", who=str(self.file), hint=hint) from None
        if known.version != _VERSION:
            raise BadSettings(
                f"it is of version {known.version}, written by another Serai", who=str(self.file), hint="use that one"
            )
        return known

    def _write(self, known: _File) -> None:
        self._own.write(msgspec.json.format(msgspec.json.encode(known, order="sorted"), indent=2) + b"\n")


# -- what is pinned ---------------------------------------------------------------------------------------------------------------


def _find_guests(project: Path, person: PersonSettings) -> list[GuestManifest]:
    found = []
    for place in PROJECT_PLACES:
        for path in list_folders(project / place, endings=ENDINGS if place == PROJECT_PLACES[0] else ()):
            try:
                if folder := inspect_folder(path):
                    found.append(read_manifest(folder, "project", person))
            except BadManifest:  # finding says so, each time
                continue
    return found


def _hash_agent_files(project: Path, person: str) -> dict[str, str] | None:
    """The digest of each file that driven agents take from it, also through links; None when not all of it can be looked at."""
    found: dict[str, str] = {}
    walked: set[str] = set()
    waiting, left = [*(project / name for name in _FOR_AGENTS), *_iter_parent_files(project, person)], _MOST
    try:
        while waiting:
            path = waiting.pop()
            name = os.path.relpath(path, project)
            if path.is_dir():
                if path.is_symlink():
                    found[_encode_path(name)] = f"-> {_encode_path(os.readlink(path))}"
                if name != _NOT_FOR_AGENTS and (real := os.path.realpath(path)) not in walked:  # links may lead in circles
                    walked.add(real)
                    waiting += sorted(path.iterdir())
            elif path.exists():
                found[_encode_path(name)], size = _hash_file(path, left)
                left -= size
            elif path.is_symlink():  # what comes there later is a change
                found[_encode_path(name)] = f"-> {_encode_path(os.readlink(path))}"
            if len(found) + len(waiting) + len(walked) > _MOST_FILES:
                return None
    except OSError:
        return None
    return found


def _iter_parent_files(project: Path, person: str) -> Iterator[Path]:
    """What agents take from the folders around a project as well. Who can write there need not be who wrote the project."""
    for folder in project.parents:
        yield folder / ".mcp.json"
        if str(folder) != person:  # there it is the person's own
            yield from (folder / ".claude" / name for name in ("agents", "commands", "skills"))


def _hash_project_file(project: Path, name: str) -> str:
    """The digest of its rules or settings; none, or none that can be read: nothing."""
    try:
        return _hash_file(project / name, MIB)[0]
    except OSError:
        return ""


def _hash_content(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest() if content else ""


def _find_project(folder: Path) -> Path:
    return folder.parents[2]  # PROJECT/.serai/guests/NAME


def _build_key(folder: Path) -> str:
    return _encode_path(str(folder.relative_to(_find_project(folder))))


def _pin(manifest: GuestManifest) -> _Pin:
    """An `OSError` when something of it cannot be read, or is too much."""
    if manifest.digest:  # as it was read: whoever starts it runs that content and no other
        return _Pin(_find_real_folder(manifest), [], {}, manifest.settings.guard and manifest.active, manifest.digest)
    folder = str(manifest.folder)
    inside = f"{folder}/"
    # Paths are kept from the folder on, so that it does not matter through which links the project was entered; and as they are
    # written, `..` and all, because only the kernel knows what `a/..` is.
    argv = [f"./{word.removeprefix(inside)}" if word.startswith(inside) else word for word in manifest.argv]
    code = find_code(manifest.folder, endings=_ENDINGS, names=_NAMES, passed_over=_PASSED_OVER)
    if not code.complete:
        raise OSError(0, "it has too many files to be trusted", folder)
    files, left = {}, _MOST
    for path in {*manifest.sources, *code.files}:
        digest, size = _hash_file(path, left)
        files[_encode_path(str(path).removeprefix(inside))] = digest
        left -= size
    files |= {_encode_path(str(link).removeprefix(inside)): f"-> {_encode_path(os.readlink(link))}" for link in code.links}
    return _Pin(_find_real_folder(manifest), list(map(_encode_path, argv)), files, manifest.settings.guard and manifest.active)


def _find_real_folder(manifest: GuestManifest) -> str:
    """Where it really lies, from the project on unless that is elsewhere."""
    project, real = os.path.realpath(_find_project(manifest.folder)), os.path.realpath(manifest.folder)
    return _encode_path(real.removeprefix(f"{project}/"))


def _hash_file(path: Path, most: int) -> tuple[str, int]:
    """Of the content, through links: what they lead to is what would run. And how long it is, at most so much."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(0, "it is not a file", str(path))
        digest, size = hashlib.sha256(), 0
        while about.st_size <= most and size <= most and (piece := file.read(MIB)):
            digest.update(piece)
            size += len(piece)
    if about.st_size > most or size > most:
        raise OSError(0, f"with it there is more than {_MOST // MIB} MiB, too much to be trusted", str(path))
    return digest.hexdigest(), size


def _explain_error(error: OSError) -> str:
    return f"it cannot be read: {error.filename}: {error.strerror}"


def _format_names(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} others" if len(names) > 5 else "")


def _resolve_path(path: Path) -> str:
    return _encode_path(os.path.realpath(path))


def _encode_path(path: str) -> str:
    """A path that JSON can hold, whatever bytes it has, and no two paths the same."""
    return os.fsencode(path).replace(b"\\", b"\\\\").decode(errors="backslashreplace")

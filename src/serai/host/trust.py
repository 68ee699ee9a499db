"""Which projects may start their guests (design rule 12).

A project is trusted by its real path, and each of its guests by what it was in that moment: where its folder really lies, its
command line, and the content of its manifest, entry and executable. Whatever changes or comes later has to be trusted again.
A program from PATH is pinned by its name alone, and what an entry imports is not pinned: trust a project as you would run its
tests.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from serai import home
from serai.errors import BadManifest, BadSettings
from serai.host.manifest import PROJECT_PLACES, Manifest, folders_in, look, read
from serai.host.settings import Person

__all__ = ["Trust"]

_VERSION = 1


class _Pin(msgspec.Struct, frozen=True):
    """A guest as it was trusted. The folder's real path is relative to the project's unless it lies elsewhere."""

    folder: str
    argv: list[str]
    files: dict[str, str]


class _Project(msgspec.Struct):
    guests: dict[str, _Pin] = {}


class _File(msgspec.Struct):
    version: int = _VERSION
    projects: dict[str, _Project] = {}


class Trust:
    """The file `trust.json` among the person's configuration. Read anew each time: another Serai may have written it."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @classmethod
    def usual(cls, environ: Mapping[str, str] = os.environ) -> Trust:
        return cls(Path(home.config_folder(environ)) / "trust.json")

    def allow(self, project: Path) -> tuple[Manifest, ...]:
        """Trust this project's guests as they are now, and no others any more; the guests that were pinned.

        What cannot be read is not pinned, and so not started: finding reports it.
        """
        if not os.path.isdir(project):
            raise BadSettings("not a directory", who=str(project), hint="name the folder of the project")
        pins: dict[str, _Pin] = {}
        manifests: list[Manifest] = []
        for manifest in _guests_of(project):
            try:
                pins[_key(manifest)] = _pin(manifest)
            except OSError:
                continue
            manifests.append(manifest)
        known = self._read()
        known.projects[_real(project)] = _Project(pins)
        self._write(known)
        return tuple(manifests)

    def withdraw(self, project: Path) -> bool:
        """Forget a project; whether it was known."""
        known = self._read()
        if known.projects.pop(_real(project), None) is None:
            return False
        self._write(known)
        return True

    def check(self, manifest: Manifest) -> str:
        """Why this guest of a project must not be started, or nothing if it may."""
        pins = self._read().projects.get(_real(_project_of(manifest)), _Project()).guests
        pinned = pins.get(_key(manifest))
        if pinned is None:
            return "it was never trusted"
        try:
            now = _pin(manifest)
        except OSError as error:
            return f"it cannot be read: {error.filename}: {error.strerror}"
        if now.folder != pinned.folder:
            return f"it was moved since it was trusted: to {now.folder}"
        if now.argv != pinned.argv:
            return "its command line has changed since it was trusted"
        changed = sorted(name for name in now.files.keys() | pinned.files if now.files.get(name) != pinned.files.get(name))
        return f"it has changed since it was trusted: {', '.join(changed)}" if changed else ""

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
        """In one step: whoever reads meanwhile has the old or the new, and for this user alone."""
        temporary = ""
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(prefix=".trust-", dir=self.file.parent)  # made with 0600
            with open(descriptor, "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(known, order="sorted"), indent=2) + b"\n")
                file.flush()
                os.fsync(descriptor)
            os.replace(temporary, self.file)
        except OSError as error:
            if temporary:
                Path(temporary).unlink(missing_ok=True)
            raise BadSettings(f"cannot be written: {error.strerror}", who=str(self.file), hint="make its folder writable") from None


def _guests_of(project: Path) -> list[Manifest]:
    found = []
    for place in PROJECT_PLACES:
        for path in folders_in(Path(os.path.abspath(project)) / place):
            try:
                if folder := look(path):
                    found.append(read(folder, "project", Person()))
            except BadManifest:  # finding says so, each time
                continue
    return found


def _project_of(manifest: Manifest) -> Path:
    return manifest.folder.parents[2]  # PROJECT/.serai/guests/NAME


def _key(manifest: Manifest) -> str:
    return _text(str(manifest.folder.relative_to(_project_of(manifest))))


def _pin(manifest: Manifest) -> _Pin:
    folder = str(manifest.folder)
    inside = f"{folder}/"
    # Paths are kept from the folder on, so that it does not matter through which links the project was entered.
    argv = [f"./{word.removeprefix(inside)}" if word.startswith(inside) else word for word in manifest.argv]
    files = {_text(os.path.relpath(path, folder)): _digest(path) for path in manifest.sources}
    project, real = os.path.realpath(_project_of(manifest)), os.path.realpath(folder)
    return _Pin(_text(real.removeprefix(f"{project}/")), list(map(_text, argv)), files)


def _digest(path: Path) -> str:
    with open(path, "rb") as file:  # through links: what they lead to is what would run
        return hashlib.file_digest(file, "sha256").hexdigest()


def _real(path: Path) -> str:
    return _text(os.path.realpath(path))


def _text(path: str) -> str:
    """A path that JSON can hold, whatever bytes it has."""
    return os.fsencode(path).decode(errors="backslashreplace")

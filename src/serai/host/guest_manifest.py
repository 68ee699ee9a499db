"""What a guest's folder says, in neutral words: whatever its dialect, the host reads this record."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from serai.errors import BadManifest
from serai.host.adapters import DIALECTS, OWN, ManifestReader, finder, is_built, reader
from serai.host.default_files import DefaultFile, default_files_of
from serai.host.guest_settings import AuthorSettings, GuestSettings, PersonSettings, merge_settings, read_author_settings
from serai.limits import KIB, MIB
from serai.plain_text import escape_line, spell_literal

Scope = Literal["ad hoc", "project", "user", "zot home", "piglet home"]
SCOPES: tuple[Scope, ...] = ("ad hoc", "project", "user", "zot home", "piglet home")  # as they are loaded
PROJECT_PLACES = (".serai/guests", ".zot/extensions", ".piglet/extensions")
_LONGEST = 1 * MIB  # no manifest is longer; a device or a log by that name would be
_LONGEST_OWN = 8 * KIB  # of guest.toml, whose reading is slow
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,63}")  # a name that is nothing but one
_ALIKE = str.maketrans("l1345", "iieas", "._ -")  # what looks like a letter of ours, and what is hardly seen
_OURS = "serai"
_LONGEST_ID = 80  # characters, where it stands before each line
_WORDS = re.compile(r"""[\s'"=;&|()<>]+""")  # between the words of a shell's line


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestManifest:
    """A guest as it lies in its folder.

    `folder` is absolute and as it was given, links and all. `enabled` is what the manifest says; `active` counts the person's word
    too. `sources` are the files that make the guest what it is: trust pins them and a change of one is a reason to reload.

    A guest that its dialect's finder has found may be a file: then `folder` is that file. It has no command line; `digest` is that
    of all its content, `about` what the finder knows of it, `plan` what was resolved for its adapter, and `refused` says why
    it may not start although it is switched on.
    """

    dialect: str
    name: str
    folder: Path
    file: Path
    scope: Scope
    argv: tuple[str, ...]
    version: str = ""
    language: str = ""
    description: str = ""
    enabled: bool = True
    sources: tuple[Path, ...] = ()
    seeds: tuple[DefaultFile, ...] = ()  # files it ships for its settings (spec piglet 1.5)
    transport: str = "auto"  # on which descriptors it speaks, where its dialect knows several
    settings: GuestSettings = field(default_factory=GuestSettings)
    digest: str = ""
    about: Any = field(default=None, repr=False, compare=False)
    plan: Any = field(default=None, repr=False, hash=False)
    bounds: Any = field(default=None, repr=False, compare=False)  # how much its adapter lets it have, where the settings say so
    refused: str = ""

    @property
    def id(self) -> str:
        return f"{self.dialect}:{self.name}"

    @property
    def shown(self) -> str:
        """What stands before its words: its name, but the id where the name could pass for Serai's or for more than a name."""
        if _PLAIN.fullmatch(self.name) and _OURS not in self.name.lower().translate(_ALIKE):
            return self.name
        id = escape_line(self.id, spell_literal)  # a new line is whose?
        return id if len(id) <= _LONGEST_ID else f"{id[:_LONGEST_ID]}…"

    @property
    def active(self) -> bool:
        return self.enabled and self.settings.enabled

    def trusted(self) -> GuestManifest:
        """The same with what it asks for: its project is trusted."""
        return replace(self, settings=self.settings.granted())


class GuestFolder(NamedTuple):
    """A guest's folder before its manifest is read: the dialect that is taken, those that are not, and the author's words."""

    path: Path
    dialect: str
    others: tuple[str, ...]
    author: AuthorSettings


def folders_in(place: Path, *, endings: tuple[str, ...] = ()) -> list[Path]:
    """The folders of guests in a search place, by name: links to folders too, hidden ones and plain files not (spec zot 7.43).

    With `endings` also whatever has one of them. Also what may be a folder and cannot be seen, such as a link to a disk that is
    not there: reading it says why. A place that does not exist has none; one that cannot be read is a `BadManifest`.
    """
    try:
        names = sorted(os.listdir(place))
    except (FileNotFoundError, NotADirectoryError):
        if not os.path.islink(place):
            return []
        raise BadManifest("cannot be searched: it is a link that leads to no folder", who=str(place)) from None
    except OSError as error:
        raise BadManifest(f"cannot be searched: {error.strerror}", who=str(place)) from None
    return [place / name for name in names if not name.startswith(".") and (name.endswith(endings) or _may_be_folder(place / name))]


def _may_be_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except FileNotFoundError:
        return os.path.islink(path)  # else it went in this moment
    except OSError:
        return True


def inspect_folder(path: Path) -> GuestFolder | None:
    """Which manifests there are, and `guest.toml` if it is one of them; None if there is nothing of the kind."""
    if packed := packed_dialect(path):
        return GuestFolder(path, packed, (), AuthorSettings())
    try:
        names = set(os.listdir(path))
    except OSError as error:
        raise BadManifest(f"read manifest: {error.strerror}", who=str(path)) from None
    present = [dialect for dialect, row in DIALECTS.items() if row.manifest in names]
    if not present:
        return None
    author = AuthorSettings()
    if OWN in present:
        present.remove(OWN)
        author = read_author_settings(_content(path, DIALECTS[OWN].manifest, _LONGEST_OWN), who=str(path))
    dialect = author.dialect or (present[0] if present else "")
    return GuestFolder(path, dialect, tuple(other for other in present if other != dialect), author)


def packed_dialect(path: Path) -> str:
    """The dialect whose guests may be such a file, by its name; empty for a folder."""
    fitting = (name for name, row in DIALECTS.items() if row.ending and path.name.endswith(row.ending))
    return next(fitting, "") if not os.path.isdir(path) else ""


def read_manifest(folder: GuestFolder, scope: Scope, person: PersonSettings) -> GuestManifest:
    """The guest of this folder, or `BadManifest` with the reason."""
    dialect, who = folder.dialect, str(folder.path)
    if not dialect:
        raise BadManifest("guest.toml: it stands alone here, so it has to name a `dialect`", who=who)
    if dialect not in DIALECTS and not is_built(dialect):
        raise BadManifest(f"guest.toml: there is no dialect {dialect}", who=who, hint=f"the dialects are {', '.join(DIALECTS)}")
    if (reading := reader(dialect)) is None:
        raise BadManifest(f"the dialect {dialect} is not built yet", who=who, hint="remove the folder, or wait for a later Serai")
    if (finding := finder(dialect)) is not None:
        return finding.read(folder.path, scope, person, folder.author)
    manifest = _manifest(reading, dialect, folder.path, scope)
    settings = merge_settings(folder.author, person, dialect=dialect, name=manifest.name)
    return replace(manifest, settings=settings, sources=tuple(_sources(manifest)))


def _manifest(reading: ManifestReader, dialect: str, folder: Path, scope: Scope) -> GuestManifest:
    name = DIALECTS[dialect].manifest
    try:
        said = reading.parse(_content(folder, name, _LONGEST))
        seeds = default_files_of(getattr(said, "defaults", ()))
    except ValueError as error:
        raise BadManifest(_worded(reading, str(error), folder / name), who=str(folder)) from None
    except BadManifest as error:
        raise BadManifest(_worded(reading, error.message, folder / name), who=str(folder)) from None
    return GuestManifest(
        dialect=dialect,
        name=said.name,
        folder=folder,
        file=folder / name,
        scope=scope,
        argv=reading.argv(said, str(folder)),
        version=said.version,
        language=said.language,
        description=said.description,
        enabled=said.enabled,
        seeds=seeds,
        transport=getattr(said, "transport", "auto"),
    )


def _worded(reading: ManifestReader, why: str, file: Path) -> str:
    """The reason as the dialect has it: some name the file, such as `parse manifest <file>: …` (spec piglet 1.3)."""
    begin, _, rest = why.partition("manifest: ")
    if not getattr(reading, "NAMES_FILE", False) or begin not in ("", "read ", "parse "):
        return why
    return f"{begin}manifest {file}: {rest.removeprefix(f'{file.name}: ')}"


def _sources(manifest: GuestManifest) -> Iterator[Path]:
    """The manifest, `guest.toml`, and what the command line names: a program or an argument that is a file, from this folder on.

    `--require=./hook.js` names one too, and so does `sh -c "exec python3 main.py"`. A program from PATH or with an absolute path
    elsewhere belongs to the machine.
    """
    yield manifest.file
    if os.path.isfile(own := manifest.folder / DIALECTS[OWN].manifest):
        yield own
    yield from dict.fromkeys(_named(manifest.folder, manifest.argv))


def _named(folder: Path, argv: Sequence[str]) -> Iterator[Path]:
    inside = f"{folder}/"
    words = [argv[0]] if "/" in argv[0] else []
    for argument in argv[1:]:
        words += [argument, argument.partition("=")[2], *_WORDS.split(argument)]
    for word in words:
        path = os.path.join(folder, word)
        if word and path.startswith(inside) and os.path.isfile(path):
            yield Path(path)


def _content(folder: Path, name: str, most: int) -> bytes:
    """The bytes of a manifest. Never waits for a pipe of that name, never takes in a whole disk."""
    try:
        descriptor = os.open(folder / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise BadManifest(f"read manifest: {name} is not a file", who=str(folder))
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(most + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise BadManifest(f"read manifest: {name}: {error.strerror}", who=str(folder)) from None
    if len(content) > most:
        raise BadManifest(f"read manifest: {name} is longer than {most} bytes", who=str(folder))
    return content

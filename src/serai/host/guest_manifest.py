"""What a guest's folder says, in neutral words: whatever its dialect, the host reads this record.

The other half of this module are default files: those that a guest ships for its settings, and that are put into its own settings
folder when they are not there yet (spec piglet 1.5). The host does it, at install and before each start, so it must not do for a
guest what the guest may not do itself: nothing is overwritten, no link below the config folder is followed, nothing outside of the
guest's folder is read, and nothing is put anywhere but below `extensions/<its name>/`. The rest of the config folder is Serai's
and that of others: a file there may be a grant, a rule, or the code of a guard, so it is not written; that is reported, and the
guest runs. The manifest alone shows where a destination leads, so one that leaves the config folder is refused when the manifest
is read: before anything of the guest has run.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from serai import paths
from serai.errors import BadManifest
from serai.host.adapters import DIALECTS, OWN, ManifestReader, is_built, load_finder, load_reader
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

    def as_trusted(self) -> GuestManifest:
        """The same with what it asks for: its project is trusted."""
        return replace(self, settings=self.settings.as_granted())


class GuestFolder(NamedTuple):
    """A guest's folder before its manifest is read: the dialect that is taken, those that are not, and the author's words."""

    path: Path
    dialect: str
    others: tuple[str, ...]
    author: AuthorSettings


def list_folders(place: Path, *, endings: tuple[str, ...] = ()) -> list[Path]:
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
    if packed := find_packed_dialect(path):
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
        author = read_author_settings(_read_content(path, DIALECTS[OWN].manifest, _LONGEST_OWN), who=str(path))
    dialect = author.dialect or (present[0] if present else "")
    return GuestFolder(path, dialect, tuple(other for other in present if other != dialect), author)


def find_packed_dialect(path: Path) -> str:
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
    if (reading := load_reader(dialect)) is None:
        raise BadManifest(f"the dialect {dialect} is not built yet", who=who, hint="remove the folder, or wait for a later Serai")
    if (finding := load_finder(dialect)) is not None:
        return finding.read(folder.path, scope, person, folder.author)
    manifest = _parse_manifest(reading, dialect, folder.path, scope)
    settings = merge_settings(folder.author, person, dialect=dialect, name=manifest.name)
    return replace(manifest, settings=settings, sources=tuple(_iter_sources(manifest)))


def _parse_manifest(reading: ManifestReader, dialect: str, folder: Path, scope: Scope) -> GuestManifest:
    name = DIALECTS[dialect].manifest
    try:
        said = reading.parse(_read_content(folder, name, _LONGEST))
        seeds = parse_default_files(getattr(said, "defaults", ()))
    except ValueError as error:
        raise BadManifest(_format_reason(reading, str(error), folder / name), who=str(folder)) from None
    except BadManifest as error:
        raise BadManifest(_format_reason(reading, error.message, folder / name), who=str(folder)) from None
    return GuestManifest(
        dialect=dialect,
        name=said.name,
        folder=folder,
        file=folder / name,
        scope=scope,
        argv=reading.build_argv(said, str(folder)),
        version=said.version,
        language=said.language,
        description=said.description,
        enabled=said.enabled,
        seeds=seeds,
        transport=getattr(said, "transport", "auto"),
    )


def _format_reason(reading: ManifestReader, why: str, file: Path) -> str:
    """The reason as the dialect has it: some name the file, such as `parse manifest <file>: …` (spec piglet 1.3)."""
    begin, _, rest = why.partition("manifest: ")
    if not getattr(reading, "NAMES_FILE", False) or begin not in ("", "read ", "parse "):
        return why
    return f"{begin}manifest {file}: {rest.removeprefix(f'{file.name}: ')}"


def _iter_sources(manifest: GuestManifest) -> Iterator[Path]:
    """The manifest, `guest.toml`, and what the command line names: a program or an argument that is a file, from this folder on.

    `--require=./hook.js` names one too, and so does `sh -c "exec python3 main.py"`. A program from PATH or with an absolute path
    elsewhere belongs to the machine.
    """
    yield manifest.file
    if os.path.isfile(own := manifest.folder / DIALECTS[OWN].manifest):
        yield own
    yield from dict.fromkeys(_iter_named_files(manifest.folder, manifest.argv))


def _iter_named_files(folder: Path, argv: Sequence[str]) -> Iterator[Path]:
    inside = f"{folder}/"
    words = [argv[0]] if "/" in argv[0] else []
    for argument in argv[1:]:
        words += [argument, argument.partition("=")[2], *_WORDS.split(argument)]
    for word in words:
        path = os.path.join(folder, word)
        if word and path.startswith(inside) and os.path.isfile(path):
            yield Path(path)


def _read_content(folder: Path, name: str, most: int) -> bytes:
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


_MOST = 100  # files of one guest
_LARGEST = 4 * MIB  # bytes of one
_FOLDER, _FILE = 0o755, 0o644  # spec piglet 1.5
_PLACE = "extensions"  # of the config folder: a folder for each guest's settings
_MANIFESTS = frozenset(row.manifest for row in DIALECTS.values())


class ManifestDefault(Protocol):
    """One of the `defaults` of a manifest."""

    @property
    def src(self) -> str: ...
    @property
    def dest(self) -> str: ...


class DefaultFile(NamedTuple):
    """A file of the guest's folder, and where it goes below the config folder; both without `.` and `..`."""

    src: tuple[str, ...]
    dest: tuple[str, ...]


def parse_default_files(defaults: Sequence[ManifestDefault]) -> tuple[DefaultFile, ...]:
    """Those of a manifest; a `ValueError` says which of them leads out of the config folder, or of the guest's."""
    if len(defaults) > _MOST:
        raise ValueError(f"defaults: {len(defaults)} files; {_MOST} are the most that are put in place for a guest")
    return tuple(DefaultFile(_parse_relative_path("src", one.src), _parse_relative_path("dest", one.dest)) for one in defaults)


def write_default_files(manifest: GuestManifest, config: str) -> tuple[str, ...]:
    """Put in place what is missing; what could not be, a line each. Blocks, so not for the loop's own thread."""
    told: list[str] = []
    for one in manifest.seeds:
        try:
            _write_default(manifest, config, one)
        except OSError as error:
            blocked = error.errno in (errno.ELOOP, errno.ENOTDIR)
            why = "something on its way is no folder, or a link" if blocked else error.strerror or str(error)
            told.append(f"its default {'/'.join(one.src)} is not put into {'/'.join(one.dest)}: {why}")
    return tuple(told)


def _parse_relative_path(what: str, path: str) -> tuple[str, ...]:
    """The parts of a relative path that stays below where it begins. `~/` is nobody's home here (spec piglet 1.5)."""
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if not parts or path.startswith("/") or ".." in parts or parts[0].startswith("~") or "\0" in path:
        whose = "the guest's folder" if what == "src" else "the config folder"
        raise ValueError(f"defaults: {what} {path!r} does not lead to a file below {whose}")
    return parts


def _write_default(manifest: GuestManifest, config: str, one: DefaultFile) -> None:
    own = (_PLACE, manifest.name)
    if one.dest[:2] != own or len(one.dest) < 3:
        raise OSError(0, f"a guest's files go below {'/'.join(own)}/")
    _check_no_code(manifest, os.path.join(config, *own), one.dest[2:])
    try:
        content = _read_source(str(manifest.folder), one.src)
    except OSError:
        if os.path.lexists(os.path.join(config, *one.dest)):  # it was there when it was needed
            return
        raise
    if not os.path.isdir(config):
        paths.make_private_folder(config)
    with _open_folder(config, one.dest[:-1]) as parent:
        _write(parent, one.dest[-1], content)


def _check_no_code(manifest: GuestManifest, own: str, rest: Sequence[str]) -> None:
    """In piglet's home guests lie where their settings do: there a file may be what makes a guest, of this one or of another."""
    if rest[-1].lower() in _MANIFESTS:
        raise OSError(0, "it would be a guest's manifest")
    if not any(os.path.lexists(os.path.join(own, name)) for name in _MANIFESTS):
        return
    if not os.path.samefile(own, manifest.folder):
        raise OSError(0, "another guest lies there")
    named = {os.path.normpath(os.path.join(manifest.folder, word)).lower() for word in manifest.argv}
    if os.path.join(manifest.folder, *rest).lower() in named:
        raise OSError(0, "its manifest names that file as its program")


def _read_source(folder: str, src: Iterable[str]) -> bytes:
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, *src))
    if not path.startswith(f"{root}/"):
        raise OSError(0, "it lies outside of the guest's folder")
    return paths.read_regular_file(path, _LARGEST)


@contextmanager
def _open_folder(root: str, parts: Sequence[str]) -> Iterator[int]:
    """The folder at the end of that way, made where it is missing. Step by step from folder to folder, none of them a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    descriptor = os.open(root, flags)  # the config folder itself may be one
    try:
        for part in parts:
            made = False
            with suppress(FileExistsError):
                os.mkdir(part, _FOLDER, dir_fd=descriptor)
                made = True
            inner = os.open(part, flags | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
            if made:  # whatever the umask says
                os.fchmod(descriptor, _FOLDER)
        yield descriptor
    finally:
        os.close(descriptor)


def _write(parent: int, name: str, content: bytes) -> None:
    """All of it or nothing, and never in the place of something else: a link is no way around that, either."""
    with suppress(FileNotFoundError):
        os.stat(name, dir_fd=parent, follow_symlinks=False)
        return
    temporary = f".serai-{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, _FILE, dir_fd=parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(descriptor, _FILE)
        with suppress(FileExistsError):  # somebody was quicker
            os.link(temporary, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
    finally:
        os.unlink(temporary, dir_fd=parent)

"""The files a guest ships for its settings: put into its own settings folder when they are not there yet (spec piglet 1.5).

The host does it, at install and before each start, so it must not do for a guest what the guest may not do itself: nothing is
overwritten, no link below the config folder is followed, nothing outside of the guest's folder is read, and nothing is put
anywhere but below `extensions/<its name>/`. The rest of the config folder is Serai's and that of others: a file there may be a
grant, a rule, or the code of a guard, so it is not written; that is reported, and the guest runs. The manifest alone shows where a
destination leads, so one that leaves the config folder is refused when the manifest is read: before anything of the guest has run.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from serai import paths
from serai.host.adapters import DIALECTS
from serai.limits import MIB

if TYPE_CHECKING:
    from serai.host.guest_manifest import GuestManifest

_MOST = 100  # files of one guest
_LARGEST = 4 * MIB  # bytes of one
_FOLDER, _FILE = 0o755, 0o644  # spec piglet 1.5
_PLACE = "extensions"  # of the config folder: a folder for each guest's settings
_MANIFESTS = frozenset(row.manifest for row in DIALECTS.values())


class Default(Protocol):
    """One of the `defaults` of a manifest."""

    @property
    def src(self) -> str: ...
    @property
    def dest(self) -> str: ...


class DefaultFile(NamedTuple):
    """A file of the guest's folder, and where it goes below the config folder; both without `.` and `..`."""

    src: tuple[str, ...]
    dest: tuple[str, ...]


def default_files_of(defaults: Sequence[Default]) -> tuple[DefaultFile, ...]:
    """Those of a manifest; a `ValueError` says which of them leads out of the config folder, or of the guest's."""
    if len(defaults) > _MOST:
        raise ValueError(f"defaults: {len(defaults)} files; {_MOST} are the most that are put in place for a guest")
    return tuple(DefaultFile(_inside("src", one.src), _inside("dest", one.dest)) for one in defaults)


def write_default_files(manifest: GuestManifest, config: str) -> tuple[str, ...]:
    """Put in place what is missing; what could not be, a line each. Blocks, so not for the loop's own thread."""
    told: list[str] = []
    for one in manifest.seeds:
        try:
            _put(manifest, config, one)
        except OSError as error:
            blocked = error.errno in (errno.ELOOP, errno.ENOTDIR)
            why = "something on its way is no folder, or a link" if blocked else error.strerror or str(error)
            told.append(f"its default {'/'.join(one.src)} is not put into {'/'.join(one.dest)}: {why}")
    return tuple(told)


def _inside(what: str, path: str) -> tuple[str, ...]:
    """The parts of a relative path that stays below where it begins. `~/` is nobody's home here (spec piglet 1.5)."""
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if not parts or path.startswith("/") or ".." in parts or parts[0].startswith("~") or "\0" in path:
        whose = "the guest's folder" if what == "src" else "the config folder"
        raise ValueError(f"defaults: {what} {path!r} does not lead to a file below {whose}")
    return parts


def _put(manifest: GuestManifest, config: str, one: DefaultFile) -> None:
    own = (_PLACE, manifest.name)
    if one.dest[:2] != own or len(one.dest) < 3:
        raise OSError(0, f"a guest's files go below {'/'.join(own)}/")
    _no_code(manifest, os.path.join(config, *own), one.dest[2:])
    try:
        content = _content(str(manifest.folder), one.src)
    except OSError:
        if os.path.lexists(os.path.join(config, *one.dest)):  # it was there when it was needed
            return
        raise
    if not os.path.isdir(config):
        paths.make_private_folder(config)
    with _opened(config, one.dest[:-1]) as parent:
        _write(parent, one.dest[-1], content)


def _no_code(manifest: GuestManifest, own: str, rest: Sequence[str]) -> None:
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


def _content(folder: str, src: Iterable[str]) -> bytes:
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, *src))
    if not path.startswith(f"{root}/"):
        raise OSError(0, "it lies outside of the guest's folder")
    return paths.read_regular_file(path, _LARGEST)


@contextmanager
def _opened(root: str, parts: Sequence[str]) -> Iterator[int]:
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

"""The packages of plugins: read from a file or a folder, verified, and kept as copies of those that ran.

Copies go by digest: a session goes on with what it began with, whatever the store has (spec yoi 10.2).
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from time import time

import msgspec

from serai import atomic_file, paths
from serai.errors import BadManifest
from serai.limits import MIB
from serai.plugins import package
from serai.plugins import package as plugins_package
from serai.plugins.bounds import DEFAULT, Bounds
from serai.plugins.grants import ResolvedPlugin
from serai.plugins.package import ENDING, BadArchive, Package, is_left_out, open_files

log = logging.getLogger("serai.host")

_ABANDONED = 3600.0  # seconds: a half-written copy this old has no writer any more
_COPY = 1280 * MIB  # more than any settings let a package be
_COPIES, _COPIES_SIZE = 64, 1024 * MIB  # the newest of them; a session whose copy is gone needs the package itself


def find_copy(digest: str, environ: Mapping[str, str] = os.environ) -> Package | None:
    """The copy of the package with this digest, if there is one and it is that."""
    path = _locate_copy(digest, environ)
    if path is None:
        return None
    # Ours, and stored where the package may have been deflated: only the digest says whether it is to be taken.
    bounds = msgspec.structs.replace(DEFAULT, package=_COPY, file=_COPY, expanded=_COPY, entries=65_534)
    try:
        package = open_files(plugins_package.read(read_content(path, bounds.package, "it is none of ours"), bounds), bounds)
    except ValueError:
        return None
    return package if package.digest == digest else None


def keep_copy(package: Package, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Keep what runs, for this user alone, so that a session goes on with it once its file is another. None: it cannot be kept."""
    path = _locate_copy(package.digest, environ)
    if path is None:
        return None
    try:
        paths.make_private_folder(path.parent)
        os.chmod(path.parent, 0o700)
        if _is_whole(path, package):
            os.utime(path)  # it was needed again
        else:
            atomic_file.write_atomically(path, plugins_package.pack(package.files), sync=True)
        _trim(path.parent, path)
    except OSError as error:
        log.warning("a plugin's copy cannot be kept: %s: %s", path, error.strerror)
        return None
    return path


def _is_whole(path: Path, package: Package) -> bool:
    """By its size, at every start: to read it would take longer than the start may. Its digest is looked at when it is needed."""
    try:
        return path.stat().st_size == plugins_package.compute_packed_size(package.files)
    except FileNotFoundError:
        return False


def _locate_copy(digest: str, environ: Mapping[str, str]) -> Path | None:
    algorithm, _, hexdigest = digest.partition(":")
    if algorithm != "sha256" or len(hexdigest) != 64 or not set(hexdigest) <= set("0123456789abcdef"):
        return None
    return Path(paths.state_folder(environ)) / "plugins" / f"{hexdigest}{ENDING}"


def _trim(folder: Path, newest: Path) -> None:
    """The oldest go first; what cannot be looked at or deleted is left."""
    known: list[tuple[float, int, Path]] = []
    for path in folder.glob(f"*{ENDING}"):
        with suppress(OSError):
            about = path.lstat()
            known.append((about.st_mtime, about.st_size, path))
    for path in folder.glob(f"{atomic_file.PREFIX}*"):
        with suppress(OSError):
            if time() - path.lstat().st_mtime > _ABANDONED:
                path.unlink()
    size = 0
    for count, (_, bytes_, path) in enumerate(sorted(known, reverse=True)):
        size += bytes_
        if (count >= _COPIES or size > _COPIES_SIZE) and path != newest:
            with suppress(OSError):
                path.unlink()


def read_content(path: Path, most: int, too_much: str) -> bytes:
    """All of a file, which has to be one. Never waits for a pipe of that name, never takes in more than so much."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise BadArchive("io", "plugin package is not a regular file")
            content = file.read(most + 1)
    except OSError as error:
        raise make_read_error(path, error) from None
    if len(content) > most:
        raise BadArchive("bounds", too_much)
    return content


def make_read_error(path: Path, error: OSError) -> BadArchive:
    return BadArchive("io", f"plugin package cannot be read: {path.name}: {error.strerror}")


_CHANGED = "resolved plugin package digest does not match current package content"
GRANT_HINT = "`serai guest grant` shows what has changed and takes it as it is now"


# -- one package ------------------------------------------------------------------------------------------------------------------


def read_package(path: Path | str, bounds: Bounds = DEFAULT) -> Package:
    """The package in that file or folder, all of it checked; a `ValueError` says why there is none. What is read is read once."""
    path = Path(os.path.realpath(path))
    if os.path.isdir(path):
        return open_files(_read_files(path, bounds), bounds)
    content = read_content(path, bounds.package, f"plugin package is larger than {bounds.package} bytes")
    return open_files(package.read(content, bounds), bounds)


def _read_files(folder: Path, bounds: Bounds) -> dict[str, bytes]:
    """What a package of this folder would hold (spec yoi 7.2): no links, no special files, nothing of its making."""
    found: dict[str, bytes] = {}
    left = bounds.expanded
    for name, path in _walk(folder, bounds.entries):
        if left < bounds.file:
            content = read_content(path, left, f"plugin package expands to more than {bounds.expanded} bytes")
        else:
            content = read_content(path, bounds.file, f"plugin package entry is larger than {bounds.file} bytes")
        found[package.check_entry_path(name)] = content
        left -= len(content)
    return found


def _walk(folder: Path, most: int) -> Iterator[tuple[str, Path]]:
    """Each file by its path from the folder on, not more than so many."""
    waiting, count = [("", folder)], 0
    while waiting:
        above, path = waiting.pop()
        try:
            with os.scandir(path) as listing:
                inside = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            raise make_read_error(path, error) from None
        for entry in inside:
            count += 1
            if entry.is_symlink():
                raise BadArchive("traversal", "plugin directory contains a symlink entry")
            folder_too = entry.is_dir(follow_symlinks=False)
            if is_left_out(entry.name, folder=folder_too):
                continue
            if folder_too:
                waiting.append((f"{above}{entry.name}/", Path(entry.path)))
            elif entry.is_file(follow_symlinks=False):
                yield f"{above}{entry.name}", Path(entry.path)
            if count > 4 * most:  # folders are none of a package's entries, but they take time
                raise BadArchive("bounds", f"plugin package has more than {most} entries")


# -- copies of what ran -----------------------------------------------------------------------------------------------------------


def load_package(record: ResolvedPlugin, environ: Mapping[str, str] = os.environ, bounds: Bounds = DEFAULT) -> Package:
    """The package that this record means: of its file if that still is it, else of the copy; or `BadManifest` (spec yoi 10.2).

    What is given back are the bytes that were verified: whoever compiles them does not read again (spec yoi 21.34).
    """
    why = _CHANGED
    try:
        package = read_package(record.package_path, bounds)
        if package.digest == record.digest:
            return _verify_package(package, record)
    except ValueError as error:
        why = str(error)
    if (copy := find_copy(record.digest, environ)) is not None:
        return _verify_package(copy, record)
    raise BadManifest(why, who=record.package_path, hint=GRANT_HINT)


def _verify_package(package: Package, record: ResolvedPlugin) -> Package:
    """What was granted was granted to what this package says of itself; a plan that was kept may say something else."""
    if package.manifest != record.manifest:
        raise BadManifest("resolved plugin record does not fit its package", who=record.package_path, hint=GRANT_HINT)
    return package

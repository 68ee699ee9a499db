"""A package: its files, their meaning, their digest (spec yoi 7), and its form as one file, a ZIP (spec yoi 7, 7.2).

A ZIP says everything twice and lies in any order, so two readers may see two packages in one file. Here it has one reading or
none: the entries lie one after the other from the first byte on, then the directory, then the end record, then the comment, and an
entry's own header agrees with the directory. `zipfile` is not used: it accepts what this refuses.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from struct import Struct
from typing import Literal, NamedTuple
from unicodedata import normalize

from serai.plugins import manifest as _manifest
from serai.plugins.bounds import DEFAULT, Bounds
from serai.plugins.manifest import PluginManifest

ENDING = ".yoi-plugin"
Kind = Literal["malformed", "traversal", "bounds", "io"]

_END_WITHIN = 65_557  # bytes from the end: the record and the longest comment
_END, _END_MARK = Struct("<4s4H2LH"), b"PK\5\6"
_CENTRAL, _CENTRAL_MARK = Struct("<4s6H3L5H2L"), b"PK\1\2"
_LOCAL, _LOCAL_MARK = Struct("<4s5H3L2H"), b"PK\3\4"
_LOCATOR, _LOCATOR_MARK = 20, b"PK\6\7"  # of ZIP64, before the end record
_EXTRA = Struct("<2H")
_STORED, _DEFLATED = 0, 8
_UTF_8 = 0x0800
_ENCRYPTED = 0x2041  # and the two flags of strong encryption
_LATER = 0x0008  # the sizes come after the content
_LARGE, _MANY = 0xFFFF_FFFF, 0xFFFF  # of ZIP64: it is said elsewhere
_FILE, _FOLDER, _LINK = 0o10, 0o04, 0o12  # the type in a unix mode
_VERSION = 20
_ENDS = 8  # what looks like an end record: no honest file has so many

_ESCAPES = "plugin package entry path escapes the archive root"
_DISAGREES = "plugin package local header disagrees with the central directory"
_NOT_UTF_8 = "plugin package entry name is not UTF-8"
_ZIP64 = "plugin package uses unsupported ZIP64 structures"


class BadArchive(ValueError):
    """No package can be read from these bytes or files; `kind` as in a diagnostic (spec yoi 9)."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(text)
        self.kind: Kind = kind


class _Entry(NamedTuple):
    """What the directory says of an entry."""

    name: bytes
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    start: int
    type: int  # from the unix mode; 0 where there is none


# -- reading ----------------------------------------------------------------------------------------------------------------------


def read(data: bytes, bounds: Bounds = DEFAULT) -> dict[str, bytes]:
    """The files by their normalised paths, in the archive's order, or `BadArchive`. Nothing is inflated beyond the bounds."""
    if len(data) > bounds.package:
        raise BadArchive("bounds", f"plugin package is larger than {bounds.package} bytes")
    first: BadArchive | None = None
    for end in islice(_find_ends(data), _ENDS):
        try:
            return _read_files(data, _read_entries(data, end, bounds))
        except BadArchive as error:  # what looks like an end record may be a part of the content
            first = first or error
    raise first or BadArchive("malformed", "plugin package has no zip end record in its last 65557 bytes")


def _find_ends(data: bytes) -> Iterator[int]:
    """Where end records may begin. Only one of them can be real: see the top. A comment reaches to the very end."""
    at = data.find(_END_MARK, max(0, len(data) - _END_WITHIN))
    while at >= 0:
        if at + _END.size <= len(data) and at + _END.size + _END.unpack_from(data, at)[-1] == len(data):
            yield at
        at = data.find(_END_MARK, at + 1)


def _read_entries(data: bytes, end: int, bounds: Bounds) -> list[_Entry]:
    """The directory, which ends where its record begins."""
    _, disk, begun_on, here, count, size, start, _ = _END.unpack_from(data, end)
    if data[max(0, end - _LOCATOR) :][:4] == _LOCATOR_MARK or _MANY in (here, count) or _LARGE in (size, start):
        raise BadArchive("malformed", _ZIP64)
    if disk or begun_on or here != count:
        raise BadArchive("malformed", "plugin package spans several disks")
    if count > bounds.entries:
        raise BadArchive("bounds", f"plugin package has more than {bounds.entries} entries")
    if start + size != end:
        raise BadArchive("malformed", "plugin package central directory does not end at its end record")
    found, at = [], start
    for _ in range(count):
        if at + _CENTRAL.size > end or data[at : at + 4] != _CENTRAL_MARK:
            raise BadArchive("malformed", "plugin package central directory is malformed")
        (_, _, _, flags, method, _, _, crc, packed, full, name, extra, comment, disk, _, attributes, offset) = _CENTRAL.unpack_from(
            data, at
        )
        begin, at = at + _CENTRAL.size, at + _CENTRAL.size + name + extra + comment
        if at > end:
            raise BadArchive("malformed", "plugin package central directory is malformed")
        if _LARGE in (packed, full, offset) or _is_zip64(data[begin + name : begin + name + extra]):
            raise BadArchive("malformed", _ZIP64)
        if disk:
            raise BadArchive("malformed", "plugin package spans several disks")
        found.append(_Entry(data[begin : begin + name], flags, method, crc, packed, full, offset, attributes >> 28))
    if at != end:
        raise BadArchive("malformed", "plugin package central directory is malformed")
    _check_sizes(found, bounds)
    return _locate_contents(data, found, start)


def _check_sizes(entries: list[_Entry], bounds: Bounds) -> None:
    """What the directory promises, before anything is inflated."""
    for entry in entries:
        if entry.flags & _ENCRYPTED:
            raise BadArchive("malformed", "plugin package contains an encrypted entry")
        if entry.method != _STORED and (entry.method != _DEFLATED or not bounds.ratio):
            raise BadArchive("malformed", "plugin package uses an unsupported zip compression method")
        if entry.size > bounds.file:
            raise BadArchive("bounds", f"plugin package entry is larger than {bounds.file} bytes")
        if entry.method == _STORED and entry.packed != entry.size:
            raise BadArchive("malformed", "plugin package stored entry sizes disagree")
        if entry.method == _DEFLATED and entry.size > entry.packed * bounds.ratio:
            raise BadArchive("bounds", f"plugin package entry is compressed by more than a factor of {bounds.ratio}")
    if sum(entry.size for entry in entries) > bounds.expanded:
        raise BadArchive("bounds", f"plugin package expands to more than {bounds.expanded} bytes")


def _locate_contents(data: bytes, entries: list[_Entry], directory: int) -> list[_Entry]:
    """With `start` where the content begins. The entries follow each other without a gap and without lying over each other."""
    found, at = [], 0
    for entry in sorted(entries, key=lambda entry: entry.start):
        if entry.start != at:
            raise BadArchive("malformed", "plugin package entries overlap or leave a gap")
        if at + _LOCAL.size > directory or data[at : at + 4] != _LOCAL_MARK:
            raise BadArchive("malformed", "plugin package local header is malformed")
        _, _, flags, method, _, _, crc, packed, size, name, extra = _LOCAL.unpack_from(data, at)
        begin = at + _LOCAL.size
        content = begin + name + extra
        said = (data[begin : begin + name], flags, method, crc, packed, size)
        if content > directory or said != entry[:6] or flags & _LATER:  # then the sizes are not said here
            raise BadArchive("malformed", _DISAGREES)
        if _is_zip64(data[begin + name : content]):
            raise BadArchive("malformed", _ZIP64)
        at = content + packed
        if at > directory:
            raise BadArchive("malformed", "plugin package entry does not end before the central directory")
        found.append(entry._replace(start=content))
    if at != directory:
        raise BadArchive("malformed", "plugin package entries overlap or leave a gap")
    return found


def _is_zip64(extra: bytes) -> bool:
    at = 0
    while at + _EXTRA.size <= len(extra):
        kind, length = _EXTRA.unpack_from(extra, at)
        if kind == 1:
            return True
        at += _EXTRA.size + length
    return False


def _read_files(data: bytes, entries: list[_Entry]) -> dict[str, bytes]:
    names = [_read_name(entry) for entry in entries]  # all, before anything is inflated
    check_names(name.removesuffix("/") for name in names)
    return {
        name: _read_content(data, entry)
        for name, entry in zip(names, entries, strict=True)
        if not name.endswith("/")  # a folder is where its files are (spec yoi 7 [R])
    }


def _read_name(entry: _Entry) -> str:
    """The normalised path; a folder's ends with a slash."""
    if entry.type == _LINK:
        raise BadArchive("traversal", "plugin package contains a symlink entry")
    try:
        name = entry.name.decode()
    except UnicodeDecodeError:
        raise BadArchive("malformed", _NOT_UTF_8) from None
    folder = name.endswith("/")
    if entry.type not in ((0, _FOLDER) if folder else (0, _FILE)) or (folder and (entry.size or entry.packed > 2)):
        raise BadArchive("malformed", "plugin package contains an entry that is no regular file")
    return f"{check_entry_path(name[:-1])}/" if folder else check_entry_path(name)


def _read_content(data: bytes, entry: _Entry) -> bytes:
    raw = data[entry.start : entry.start + entry.packed]
    content = raw if entry.method == _STORED else _inflate(raw, entry.size)
    if entry.crc and zlib.crc32(content) != entry.crc:  # the origin writes 0 for all of them (spec yoi 7.2)
        raise BadArchive("malformed", "plugin package entry does not match its CRC")
    return content


def _inflate(raw: bytes, size: int) -> bytes:
    """Exactly so many bytes, and never more in memory."""
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        content = inflate.decompress(raw, size + 1)
    except zlib.error:
        raise BadArchive("malformed", "plugin package entry is not what deflate writes") from None
    if len(content) != size or not inflate.eof or inflate.unused_data or inflate.unconsumed_tail:
        raise BadArchive("malformed", "plugin package entry size disagrees with its content")
    return content


# -- names ------------------------------------------------------------------------------------------------------------------------


def check_entry_path(name: str) -> str:
    """The path of an entry, which has one form only: what is not in it is no path of a package."""
    drive = len(name) > 1 and name[1] == ":" and name[0].isascii() and name[0].isalpha()
    if not name or "\0" in name or "\\" in name or name[0] in "/~" or drive:
        raise BadArchive("traversal", _ESCAPES)
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise BadArchive("traversal", _ESCAPES)
    try:
        name.encode()
    except UnicodeEncodeError:  # a file's name on this machine
        raise BadArchive("malformed", _NOT_UTF_8) from None
    return name


def check_names(names: Iterable[str]) -> None:
    """No two may be one where a file system or a reader takes them for one (spec yoi 21.21)."""
    seen: set[str] = set()
    for name in names:
        if (form := normalize("NFC", name)) in seen:
            raise BadArchive("malformed", "plugin package contains duplicate normalized entry paths")
        seen.add(form)


# -- writing ----------------------------------------------------------------------------------------------------------------------


def compute_packed_size(files: Mapping[str, bytes]) -> int:
    """How long the archive of these files is."""
    names = sum(len(path.encode()) for path in files)
    return sum(map(len, files.values())) + 2 * names + len(files) * (_LOCAL.size + _CENTRAL.size) + _END.size


def pack(files: Mapping[str, bytes]) -> bytes:
    """The archive of these files: the same files, the same bytes (spec yoi 7.2). With true CRCs, so that other tools take it."""
    check_names(map(check_entry_path, files))
    parts: list[bytes] = []
    directory: list[bytes] = []
    at = 0
    for name, content in sorted((path.encode(), content) for path, content in files.items()):
        about = (_VERSION, _UTF_8, _STORED, 0, 0, zlib.crc32(content), len(content), len(content), len(name), 0)
        parts += [_LOCAL.pack(_LOCAL_MARK, *about), name, content]
        directory += [_CENTRAL.pack(_CENTRAL_MARK, _VERSION, *about, 0, 0, 0, 0, at), name]
        at += _LOCAL.size + len(name) + len(content)
    size = sum(map(len, directory))
    if len(files) >= _MANY or at + size >= _LARGE:
        raise BadArchive("bounds", "plugin package is too large for a zip file")
    return b"".join((*parts, *directory, _END.pack(_END_MARK, 0, 0, len(files), len(files), size, at, 0)))


MANIFEST = "plugin.toml"
MANIFEST_MOST = 65_536  # bytes
_DOMAIN = b"yoi-plugin-package-digest-v1\0"
_PREFIX = "sha256:"
_LEFT_OUT = frozenset({"target", "node_modules", ".git", "__pycache__", ".pytest_cache"})  # folders, spec yoi 7.2 [R]


@dataclass(frozen=True, slots=True)
class Package:
    """The very bytes that were checked: what is compiled is taken from here, never read again (spec yoi 21.34)."""

    files: Mapping[str, bytes]  # by normalised path
    manifest: PluginManifest
    digest: str  # `sha256:…`


def open_files(files: Mapping[str, bytes], bounds: Bounds = DEFAULT) -> Package:
    """The package of these files, its manifest parsed and checked; a `ValueError` says what is wrong, `BadArchive` of its form."""
    check_names(map(check_entry_path, files))
    if len(files) > bounds.entries:
        raise BadArchive("bounds", f"plugin package has more than {bounds.entries} entries")
    if any(len(content) > bounds.file for content in files.values()):
        raise BadArchive("bounds", f"plugin package entry is larger than {bounds.file} bytes")
    if sum(map(len, files.values())) > bounds.expanded:
        raise BadArchive("bounds", f"plugin package expands to more than {bounds.expanded} bytes")
    text = files.get(MANIFEST)
    if text is None:
        raise BadArchive("malformed", "plugin package is missing plugin.toml")
    if len(text) > MANIFEST_MOST:
        raise BadArchive("bounds", f"plugin.toml is larger than {MANIFEST_MOST} bytes")
    manifest = _manifest.parse(text)
    _manifest.check_package(manifest, files.keys())
    return Package(files, manifest, compute_digest(files))


def compute_digest(files: Mapping[str, bytes]) -> str:
    """Of the contents, whatever file they came in (spec yoi 7.1). The order is that of the paths' bytes (spec yoi 21.23)."""
    total = sha256(_DOMAIN)
    for path, content in sorted((path.encode(), content) for path, content in files.items()):
        total.update(path + b"\0" + len(content).to_bytes(8, "big") + sha256(content).digest())
    return f"{_PREFIX}{total.hexdigest()}"


def is_left_out(name: str, *, folder: bool) -> bool:
    """What lies in a plugin's folder and belongs to its making, not to the package (spec yoi 7.2)."""
    return name in _LEFT_OUT if folder else name.endswith(ENDING)

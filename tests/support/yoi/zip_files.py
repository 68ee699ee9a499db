"""ZIP files of every kind, written by hand: each field may lie."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=False)
class Entry:
    """One entry; what is None is as it should be, and in the local header as in the directory."""

    name: str | bytes
    content: bytes = b""
    deflate: bool = False
    flags: int = 0x0800
    method: int | None = None
    crc: int | None = None
    size: int | None = None
    mode: int = 0
    disk: int = 0
    extra: bytes = b""
    central_extra: bytes = b""
    offset: int | None = None
    raw_tail: bytes = b""
    local_name: str | None = None
    local_flags: int | None = None
    local_method: int | None = None
    local_size: int | None = None
    local_crc: int | None = None


def build_zip(
    entries: Mapping[str, bytes] | Iterable[Entry],
    *,
    comment: bytes = b"",
    disks: int = 0,
    count: int | None = None,
    zip64: bool = False,
    gap: bytes = b"",
    base: int = 0,
) -> bytes:
    """The archive; `gap` lies before its directory, `base` is added to every offset."""
    listed = [Entry(name, content) for name, content in entries.items()] if isinstance(entries, Mapping) else list(entries)
    parts, directory, at = [], [], 0
    for entry in listed:
        local, central = _headers(entry, base + at)
        parts.append(local)
        directory.append(central)
        at += len(local)
    middle = b"".join(directory)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, 0, 1) if zip64 else b""
    number = len(listed) if count is None else count
    end = struct.pack("<4s4H2LH", b"PK\5\6", disks, disks, number, number, len(middle), base + at + len(gap), len(comment))
    return b"".join((*parts, gap, middle, locator, end, comment))


def _headers(entry: Entry, at: int) -> tuple[bytes, bytes]:
    raw = entry.content
    if entry.deflate:
        deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
        raw = deflate.compress(raw) + deflate.flush()
    raw += entry.raw_tail
    name = _bytes(entry.name)
    method = (8 if entry.deflate else 0) if entry.method is None else entry.method
    crc = zlib.crc32(entry.content) if entry.crc is None else entry.crc
    size = len(entry.content) if entry.size is None else entry.size
    local_name = name if entry.local_name is None else _bytes(entry.local_name)
    local = struct.pack(
        "<4s5H3L2H", b"PK\3\4", 20, _or(entry.local_flags, entry.flags), _or(entry.local_method, method), 0, 0,
        _or(entry.local_crc, crc), len(raw), _or(entry.local_size, size), len(local_name), len(entry.extra),
    )  # fmt: skip
    central = struct.pack(
        "<4s6H3L5H2L", b"PK\1\2", 20, 20, entry.flags, method, 0, 0, crc, len(raw), size, len(name), len(entry.central_extra), 0,
        entry.disk, 0, entry.mode << 16, at if entry.offset is None else entry.offset,
    )  # fmt: skip
    return local + local_name + entry.extra + raw, central + name + entry.central_extra


def _bytes(name: str | bytes) -> bytes:
    return name.encode() if isinstance(name, str) else name


def _or(value: int | None, usual: int) -> int:
    return usual if value is None else value

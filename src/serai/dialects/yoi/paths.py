"""The host interface `fs`, without a file (spec yoi 6): which paths may be asked for, and the documents of the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from serai.dialects.yoi.denial import Denied
from serai.dialects.yoi.requests import lossy, size, strict
from serai.dialects.yoi.texts import told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from serai.dialects.yoi.grants import FsGrant, Operation, Record

__all__ = ["CONTENT", "ENTRIES", "Asked", "Entry", "check", "granted", "listed", "read", "root_of", "shown", "written"]

REQUEST = 64 * 1024
PATH = 4096
CONTENT = 64 * 1024
ENTRIES = 256
_SHOWN = 160


class _Path(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str


class _Write(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    content: str


class Entry(msgspec.Struct, frozen=True):
    name: str
    kind: str  # `file`, `dir`, `symlink` or `other`


class Asked(msgspec.Struct, frozen=True):
    operation: Operation
    path: str  # for the answer and for errors: redacted, bounded, no key
    parts: tuple[str, ...]  # none: the root itself
    content: bytes = b""


def check(operation: Operation, text: str) -> Asked:
    if size(text) > REQUEST:
        raise Denied(f"FS request exceeds {REQUEST} bytes")
    if operation == "write":
        asked = strict(text, _Write, what="FS request")
        content = asked.content.encode()
        if len(content) > CONTENT:
            raise Denied(f"FS write content exceeds {CONTENT} bytes")
        parts = _parts(asked.path)
        if not parts:
            raise Denied("FS write path must name a file")
        return Asked(operation, shown(asked.path), parts, content)
    path = strict(text, _Path, what="FS request").path
    return Asked(operation, shown(path), _parts(path))


def shown(path: str) -> str:
    """The path as answers and errors have it (spec yoi 6.1)."""
    return told(path, _SHOWN)


def _parts(path: str) -> tuple[str, ...]:
    """The components of a path. Nothing is looked up, so `..` is refused wherever it stands."""
    if not path:
        raise Denied("FS path must not be empty")
    if size(path) > PATH:
        raise Denied(f"FS path exceeds {PATH} bytes")
    if "\0" in path:
        raise Denied("FS path must not contain NUL")
    if path.startswith("/"):
        raise Denied("FS request paths must be relative to a configured fs grant root")
    parts = path.split("/")
    if ".." in parts:
        raise Denied("FS path traversal outside the grant root is denied")
    return tuple(part for part in parts if part not in ("", "."))


def granted(record: Record, operation: Operation) -> tuple[FsGrant, ...]:
    """The grants with this operation, in their order; none implies another."""
    grants = tuple(grant for grant in record.grants.fs if operation in grant.operations)
    if not grants:
        raise Denied(f"host_api.fs {operation} denied: no matching operation grant")
    return grants


def root_of(grant: FsGrant) -> str:
    """The root as it is opened. A trailing slash or `/.` would follow a symlink, `..` would leave a folder that is one."""
    root = grant.root
    parts = root.split("/")
    if not root.startswith("/") or size(root) > PATH or "\0" in root or ".." in parts:
        raise Denied(f"FS grant root must be an absolute path of at most {PATH} bytes without `..`")
    return "/" + "/".join(part for part in parts if part not in ("", "."))


def read(asked: Asked, data: bytes) -> str:
    """`data`: what was read, one byte more than may be given where there is more."""
    content, cut = lossy(data, CONTENT)
    return _document({"path": asked.path, "content": content, "truncated": cut})


def listed(asked: Asked, entries: Sequence[Entry], truncated: bool) -> str:
    return _document({"path": asked.path, "entries": entries, "truncated": truncated})


def written(asked: Asked) -> str:
    return _document({"path": asked.path, "bytes_written": len(asked.content)})


def _document(value: object) -> str:
    return msgspec.json.encode(value).decode()

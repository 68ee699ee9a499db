"""Serai's side of a hook: the request out, the response in, and what its files come to (spec hooks 1.3 to 1.9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from serai.dialects.hookproto.messages import (
    File,
    Request,
    Response,
    collect_members,
    dumps,
    loads,
    quote,
    read_integer,
    read_members,
    read_text,
)

if TYPE_CHECKING:
    from serai.dialects.hookproto.messages import Json, Readers

PERMISSIONS = 0o777
LONGEST_PATH = 4096
LONGEST_NAME = 255
# Above it comes only -1, which means "leave it" to chown.
HIGHEST_ID = 2**32 - 2
# What the kernel and the box server have in a box; a hook could put itself in their place.
RESERVED = (("proc",), ("sys",), ("dev",), ("run", "llmbox"))

Warn = Callable[[str], None]


class BadResponse(ValueError):
    """What a hook printed is no response. The text says why and shows nothing of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxFile:
    """A file as it is to be in the box: all rules applied, `path` absolute and plain."""

    path: str
    content: bytes = field(repr=False)
    mode: int
    uid: int
    gid: int


def encode_request(request: Request) -> bytes:
    """The request as it is written to the hook's stdin; empty members are left out, `event` and `box` never."""
    value: dict[str, object] = {"event": request.event, "box": collect_members(request.box, ("image", "box_id", "description"))}
    return dumps(value | collect_members(request, ("state",)))


def read_response(stdout: bytes) -> Response:
    """What a hook that ended well printed; nothing at all is an empty response (spec hooks 1.9)."""
    if not stdout:
        return Response()
    try:
        return _parse_response(loads(stdout, alone=True))
    except ValueError as error:
        raise BadResponse(f"decoding response: {error}") from None


def _parse_response(value: Json) -> Response:
    return Response(**read_members("the response", value, {"files": _parse_files, "state": read_text}))  # type: ignore[arg-type]


def _parse_files(name: str, value: Json) -> list[File]:
    if not isinstance(value, list):
        raise ValueError(f"{name} must be an array")  # noqa: TRY004  (bad JSON is a ValueError here)
    return [File(**({"path": ""} | read_members("a file", item, _FILE))) for item in value]  # type: ignore[arg-type]


_FILE: Readers = {
    "path": read_text,
    "content": read_text,
    "content_base64": read_text,
    "mode": read_text,
    "uid": read_integer,
    "gid": read_integer,
}


def resolve_file(file: File, warn: Warn) -> BoxFile:
    """What a file comes to; `ValueError` when it cannot be. `warn` is told what was passed over."""
    path = _normalise_path(file.path)
    content, mode = file.bytes(), file.file_mode()
    for name, number in (("uid", file.uid), ("gid", file.gid)):
        if not 0 <= number <= HIGHEST_ID:
            raise ValueError(f"owner of {quote(file.path)}: {name} {number} is not between 0 and {HIGHEST_ID}")
    if file.content and file.content_base64:
        warn(f"{quote(path)} has both content and content_base64: the latter counts")
    if mode & ~PERMISSIONS:
        warn(f"{quote(path)} was to have mode {mode:04o}: set-id and sticky bits are never set, it gets {mode & PERMISSIONS:04o}")
    return BoxFile(path=path, content=content, mode=mode & PERMISSIONS, uid=file.uid, gid=file.gid)


def _normalise_path(path: str) -> str:
    """The path without empty components and dots, so that two spellings of one file are the same (spec hooks 1.8)."""
    parts = path.split("/")
    names = [part for part in parts if part not in ("", ".")]
    if not path:
        wrong = "it is empty"
    elif "\0" in path:
        wrong = "it has a NUL"
    elif not path.startswith("/"):
        wrong = "it is not absolute"
    elif len(path.encode()) > LONGEST_PATH:
        wrong = f"it is longer than {LONGEST_PATH} bytes"
    elif ".." in parts:
        wrong = "it has a component `..`"
    elif parts[-1] in ("", "."):
        wrong = "it is that of a directory"
    elif any(len(name.encode()) > LONGEST_NAME for name in names):
        wrong = f"it has a component longer than {LONGEST_NAME} bytes"
    elif any(tuple(names[: len(reserved)]) == reserved for reserved in RESERVED):
        wrong = "hooks may not write there"
    else:
        return "/" + "/".join(names)
    raise ValueError(f"invalid path {quote(path)}: {wrong}")

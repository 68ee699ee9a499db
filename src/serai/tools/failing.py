"""Why a tool cannot do what was asked, in the codes of spec piglet 5.1."""

from __future__ import annotations

import errno
import os
from typing import Literal

from serai.model.tools import ToolResult

__all__ = ["Code", "Failed", "failed"]

Code = Literal[
    "INVALID_ARGS", "FILE_NOT_FOUND", "FILE_STALE", "FILE_TOO_LARGE", "NOT_REGULAR_FILE", "PERMISSION_DENIED", "NOT_UNIQUE",
    "TIMEOUT", "EXIT_NONZERO", "IO_ERROR", "INTERNAL",
]  # fmt: skip


class Failed(Exception):
    """Told to the model as an error result; it never leaves the box of tools."""

    def __init__(self, code: Code, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code: Code = code
        self.hint = hint

    def result(self) -> ToolResult:
        # What a model sent may be quoted in it, and half a character cannot be written down.
        text, hint = (said.encode(errors="backslashreplace").decode() for said in (str(self), self.hint))
        return ToolResult.error(text, code=self.code, hint=hint)


_CODES: dict[int, tuple[Code, str]] = {
    errno.ENOENT: ("FILE_NOT_FOUND", ""),
    errno.ENOTDIR: ("FILE_NOT_FOUND", "a part of the path is no folder"),
    errno.EACCES: ("PERMISSION_DENIED", "the machine does not allow it to this user"),
    errno.EPERM: ("PERMISSION_DENIED", "the machine does not allow it to this user"),
    errno.EROFS: ("PERMISSION_DENIED", "nothing can be changed there: it is mounted read-only"),
    errno.ELOOP: ("PERMISSION_DENIED", "a link on the way leads in circles, or was put there meanwhile"),
    errno.EISDIR: ("NOT_REGULAR_FILE", "it is a folder"),
    errno.ENXIO: ("NOT_REGULAR_FILE", "it is no file that can be read"),
    errno.EAGAIN: ("NOT_REGULAR_FILE", "it is no file that can be read at once"),
    errno.ENAMETOOLONG: ("INVALID_ARGS", "give a shorter path"),
    errno.ENOSPC: ("IO_ERROR", "make room on the disk"),
    errno.EDQUOT: ("IO_ERROR", "make room on the disk"),
}


def failed(error: OSError, shown: str) -> Failed:
    """What the machine said about this path."""
    number = error.errno or 0
    code, hint = _CODES.get(number, ("IO_ERROR", ""))
    return Failed(code, f"{shown}: {os.strerror(number) if number else error}", hint)

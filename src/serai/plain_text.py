from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass

# What terminals obey and nobody reads: CSI, OSC and its kin (also without an end), and the short ones.
_ESCAPE = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?")
_UNFINISHED = re.compile(r"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]*|[ -/]*)|\x9b[0-?]*[ -/]*)\Z")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_RETURN = re.compile(r"\r+\n?")


def strip_terminal_codes(text: str) -> str:
    """Text without escapes and control characters. A lone carriage return begins a line: what it would hide is kept."""
    return _RETURN.sub("\n", _bare(text))


def _bare(text: str) -> str:
    return _CONTROL.sub("", _ESCAPE.sub("", text))


def escape_line(text: str) -> str:
    """On one line, and with no bytes that are no text: names may hold anything."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode() for char in text)

"""Text that a person or a terminal is shown: escapes, control characters, characters that cannot be seen.

`make test` with a Hangul filler at its end looks like `make test` and is another command: nothing that `find_invisible` finds
something in counts as read. Standard library only, and little of it: programs that run alone import this, and so does every error.
"""

from __future__ import annotations

import re

# What terminals obey and nobody reads: CSI, OSC and its kin (also without an end), and the short ones.
_ESCAPE = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?")
UNFINISHED_ESCAPE = re.compile(r"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]*|[ -/]*)|\x9b[0-?]*[ -/]*)\Z")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
RETURN = re.compile(r"\r+\n?")


def strip_terminal_codes(text: str) -> str:
    """Text without escapes and control characters. A lone carriage return begins a line: what it would hide is kept."""
    return RETURN.sub("\n", strip_codes(text))


def strip_codes(text: str) -> str:
    """Text without escapes and control characters; carriage returns are left."""
    return _CONTROL.sub("", _ESCAPE.sub("", text))


def escape_line(text: str) -> str:
    """On one line, and with no bytes that are no text: names may hold anything."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode() for char in text)


# Unicode's default-ignorable code points, which are shown as nothing, and others that fonts draw as a blank.
_IGNORED = (
    *((0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
    *((0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF)),
    *((0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
)
_BLANK = (
    *((0x1680, 0x1680), (0x2800, 0x2800), (0x2D7F, 0x2D7F), (0x303F, 0x303F), (0xFFFC, 0xFFFC), (0x1107F, 0x1107F)),
    *((0x13430, 0x1345F), (0x16FE4, 0x16FE4), (0x1D159, 0x1D159)),
)
_RANGES = "".join(f"{chr(first)}-{chr(last)}" for first, last in _IGNORED + _BLANK)
_NOT_SEEN = re.compile(f"[{_RANGES}]")


def find_invisible(text: str) -> str | None:
    """The first character of the text that cannot be seen, or that is not read the same everywhere; None if there is none."""
    if text.isprintable():
        found = None if text.isascii() else _NOT_SEEN.search(text)
        return found[0] if found else None
    return next(char for char in text if not char.isprintable() or _NOT_SEEN.match(char))


def name_character(char: str) -> str:
    """The character as a message has it."""
    import unicodedata  # only for a message: most who import this module never need it

    name = unicodedata.name(char, "")
    return f"U+{ord(char):04X}" + (f" ({name.lower()})" if name else "")


def escape_printable(text: str) -> str:
    """What a terminal would act upon is spelt out."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def escape_text(text: str) -> str:
    """A text of several lines as a terminal may show it."""
    return "\n".join(escape_printable(line.removesuffix("\r")) for line in text.expandtabs().split("\n"))

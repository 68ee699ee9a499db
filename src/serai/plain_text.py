"""Text that a person, a terminal, a log or a model is shown: the one definition of what in it is not text.

Three families. `strip_*` removes terminal escapes and control characters, `escape_*` spells them out, `find_invisible` finds
characters that cannot be seen: `make test` with a Hangul filler at its end looks like `make test` and is another command.
Standard library only, and little of it: programs that run alone import this, and so does every error.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # C0 without tab and newline, DEL, C1
CSI = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]")  # colours and moves of the cursor
RETURN = re.compile(r"\r+\n?")
# OSC, DCS, SOS, PM and APC have a text of their own. One that does not end on its line hides nothing: only its start is removed,
# as of a CSI without its last character, and of those that are one character (C1), which few terminals obey.
# Another start ends the search for the end, or a text that is nothing but starts would take time quadratic in its length.
_STRING = r"\x1b[\]PX^_][^\x07\x1b\x9c\n]*"
_CODE = re.compile(rf"{CSI.pattern}|{_STRING}(?:\x07|\x1b\\|\x9c)|\x1b[ -/]*[0-~]?|(?!\r){CONTROL.pattern}")
UNFINISHED_ESCAPE = re.compile(rf"(?:(?:\x1b\[|\x9b)[0-?]*[ -/]*|{_STRING}\x1b?|\x1b[ -/]*)\Z")

# Turns text around, ends a line unseen, or is read by a model and seen by nobody (tags).
_STEERING = r"\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f"
# The rest of Unicode's default-ignorable code points, which are shown as nothing, then others that fonts draw as a blank. Emoji
# and some scripts need a few of them, so `strip_text` keeps them.
_UNSEEN = (
    r"\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    r"\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0080-\U000e0fff"
    r"\u1680\u2800\u2d7f\u303f\ufffc\U0001107f\U00013430-\U0001345f\U00016fe4\U0001d159"
)
_STEERS, _NOT_SEEN = re.compile(f"[{_STEERING}]"), re.compile(f"[{_STEERING}{_UNSEEN}]")
_LONE = re.compile("[\ud800-\udfff]")


def strip_codes(text: str) -> str:
    """Text without escapes and control characters; carriage returns are left."""
    return _CODE.sub("", text)


def strip_output(text: str) -> str:
    """A program's output without escapes and control characters. A lone carriage return begins a line and hides nothing."""
    return RETURN.sub("\n", strip_codes(text))


def strip_text(text: str) -> str:
    """A stranger's words without escapes, control and steering characters; newlines and tabs stay."""
    return text if text.isprintable() else strip_steering(strip_codes(text).replace("\r", ""))


def strip_steering(text: str) -> str:
    """Text without characters that turn it around or that only a model reads; half a surrogate pair is U+FFFD."""
    return _LONE.sub("\ufffd", _STEERS.sub("", text))


def find_invisible(text: str) -> str | None:
    """The first character of the text that cannot be seen, or that is not read the same everywhere; None if there is none."""
    if text.isprintable():
        found = None if text.isascii() else _NOT_SEEN.search(text)
        return found[0] if found else None
    return next(char for char in text if not char.isprintable() or _NOT_SEEN.match(char))


def is_visible(text: str) -> bool:
    """Whether every character of the text can be seen."""
    return find_invisible(text) is None


def name_character(char: str) -> str:
    """The character as a message has it."""
    import unicodedata  # only for a message: most who import this module never need it

    name = unicodedata.name(char, "")
    return f"U+{ord(char):04X}" + (f" ({name.lower()})" if name else "")


def spell_literal(char: str) -> str:
    """The character as a Python literal spells it: `\\n`, `\\u202e`."""
    return char.encode("unicode_escape", "surrogatepass").decode()


def _spell_hex(char: str) -> str:
    return f"\\x{ord(char):02x}"


def escape_line(text: str, spell: Callable[[str], str] = _spell_hex, is_shown: Callable[[str], bool] = str.isprintable) -> str:
    """Text on one line: spells out each character that a terminal acts upon, with `is_visible` also those that cannot be seen."""
    return text if is_shown(text) else "".join(char if is_shown(char) else spell(char) for char in text)


def escape_text(text: str) -> str:
    """A text of several lines as a terminal may show it."""
    return "\n".join(escape_line(line.removesuffix("\r")) for line in text.expandtabs().split("\n"))


def shorten(text: str, most: int = 40) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def utf8_size(text: str) -> int:
    """Its bytes in UTF-8. Half a surrogate pair, which has none, counts as the three bytes that would stand for it."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def escape_surrogates(text: str) -> str:
    """Text that UTF-8 can hold: bytes of a path that are no text, and halves of characters, are spelt out."""
    return text.encode(errors="backslashreplace").decode()

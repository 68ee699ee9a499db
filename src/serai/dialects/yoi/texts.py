"""Text that a plugin or its peers had a hand in: cut, redacted, and harmless to show (spec yoi 17.2, 17.3, 21.36)."""

from __future__ import annotations

import re
from datetime import UTC, datetime

__all__ = ["MESSAGE", "REDACTED", "bounded", "cut", "is_timestamp", "redacted", "shown", "size", "timestamp", "told"]

MESSAGE = 512  # bytes of a message, before the mark that it was cut
REDACTED = "<redacted>"
_CUT = "…"

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Text that runs backwards, and what a model reads and nobody sees.
_HIDDEN = re.compile("[\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
_LONE = re.compile("[\ud800-\udfff]")
_COLOURS = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]")  # and moves of the cursor; no class has an escape in it: linear
# What moves a cursor, turns text around, or is read by a model and seen by nobody.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")

# Two of our own sentences name such words without a value behind them (spec yoi 4.3), and are left readable.
_HEADER = re.compile(
    r"((?:proxy-authorization|authorization|set-cookie|cookie|x-api-key|x-auth-token|api-key)"
    r"(?!` is credential-like)[ \t=:]*)[^\r\n]+",
    re.IGNORECASE,
)
_WORD = re.compile(r"((?:(?:token|secret|password)(?!-ref grant)[\"']?[ \t=:]*)+)[^ ,;\r\n]+", re.IGNORECASE)

_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def size(text: str) -> int:
    """In bytes of UTF-8. Half a surrogate pair, which has none, counts as the three bytes that would stand for it."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def cut(text: str, most: int) -> str:
    """At most so many bytes of it, and no half of a character (the origin can panic there; spec yoi 17.2)."""
    if len(text) <= most // 4:  # no character has more than four
        return text
    return text.encode(errors="surrogatepass")[:most].decode(errors="ignore") if size(text) > most else text


def bounded(text: str, most: int = MESSAGE) -> str:
    """Without control characters, newline and tab excepted, and cut at `most` bytes (spec yoi 17.2)."""
    plain = _LONE.sub("\ufffd", _HIDDEN.sub("", _CONTROL.sub(" ", text)))
    short = cut(plain, most)
    return short if len(short) == len(plain) else short + _CUT


def redacted(text: str) -> str:
    """What stands behind a word for a credential, taken out (spec yoi 17.3).

    Behind a header's name it is all of the line: the origin takes one word, and `Authorization: Bearer abc` keeps its `abc`.
    """
    return _WORD.sub(rf"\1{REDACTED}", _HEADER.sub(rf"\1{REDACTED}", text))


def told(text: str, most: int = MESSAGE) -> str:
    """A text for the operator: redacted before it is cut, for a cut word is no longer known."""
    return bounded(redacted(text), most)


def shown(text: str) -> str:
    """The same words for a terminal or a model, without what would steer either (spec yoi 21.36)."""
    if text.isprintable() or text.replace("\n", " ").replace("\t", " ").isprintable():  # quick, and nearly always so
        return text
    text = text.replace("\r\n", "\n")
    return _LONE.sub("\ufffd", _UNSEEN.sub("", _COLOURS.sub("", text)))


def timestamp(seconds: float) -> str:
    """A moment since the epoch as RFC 3339 in UTC, with milliseconds (spec yoi 3.4)."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_timestamp(text: str) -> bool:
    """Whether it is RFC 3339: a date, a time and where on earth that is."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        return False
    date, time, zone = match.groups()
    try:
        datetime.fromisoformat(f"{date}T{time}{zone.upper()}")
    except ValueError:
        return False
    return True

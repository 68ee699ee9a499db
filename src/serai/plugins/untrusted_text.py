"""Text that a plugin or its peers wrote: cut, redacted, and harmless to show (spec yoi 17.2, 17.3, 21.36).

Also TOML and its shapes, with errors that never repeat what a stranger has written (spec yoi 9).
"""

from __future__ import annotations

import re
import tomllib
from datetime import UTC, date, datetime, time
from math import isfinite
from typing import Any, TypeVar

import msgspec

from serai.plain_text import CONTROL, CSI, strip_steering, utf8_size

T = TypeVar("T")
DEEPEST = 64  # tables and lists within each other
_DOTS = 50  # in a line: the time to read `a.a.a` grows with the square of its length
_LONGEST = 80  # characters of a name in an error
_PLACE = re.compile(r"\(at line (\d+), column (\d+)\)$")
_WHERE = re.compile(r"(.*) - at `(?:key in )?\$\.?(.*)`", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")
_ENUM = re.compile(r"Invalid (?:enum )?value .*", re.DOTALL)
_NUMBERS = range(-(2**63), 2**64)  # what JSON is read with holds


def read_toml(text: bytes) -> dict[str, Any]:
    """What it says, or a `ValueError` that tells where the trouble is in bytes."""
    at = 0
    for line in text.splitlines(keepends=True):
        if line.count(b".") > _DOTS:
            raise ValueError(f"a line with more than {_DOTS} dots at bytes {at}..{at + len(line)}")
        at += len(line)
    try:
        decoded = text.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at bytes {error.start}..{error.end}") from None
    try:
        return tomllib.loads(decoded)
    except (RecursionError, MemoryError):
        raise ValueError(f"nested too deep at bytes 0..{len(text)}") from None
    except ValueError as error:  # also a number of thousands of digits
        begin, end = _find_span(decoded, str(error))
        raise ValueError(f"not valid TOML at bytes {begin}..{end}") from None


def _find_span(text: str, message: str) -> tuple[int, int]:
    """From the line and the column that the parser tells, which counts characters."""
    whole = len(text.encode())
    found = _PLACE.search(message)
    if found is None:
        return (whole, whole) if message.endswith("(at end of document)") else (0, whole)
    lines = text.split("\n")
    line, column = int(found[1]) - 1, int(found[2]) - 1
    begin = sum(len(before.encode()) + 1 for before in lines[:line]) + len(lines[line][:column].encode())
    return begin, begin + len(lines[line][column : column + 1].encode())


def convert(value: object, kind: type[T]) -> T:
    """As `kind`, or a `ValueError` with the key and what is the matter with it, but not the value."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message, where = str(error), ""
        if found := _WHERE.fullmatch(message):
            message, where = found[1], found[2]
        raise ValueError(f"{where}: {_reword(message)}" if where else _reword(message)) from None
    except RecursionError:
        raise ValueError("nested too deep") from None


def _reword(message: str) -> str:
    if found := _UNKNOWN.fullmatch(message):
        return f"there is no key {quote(found[1])}"
    if found := _MISSING.fullmatch(message):
        return f"the key {quote(found[1])} is missing"
    return "a value that is not known there" if _ENUM.fullmatch(message) else message


def quote(name: str) -> str:
    """A name in an error, if it is harmless and short."""
    return f"`{name}`" if name.isprintable() and len(name) <= _LONGEST else "of that name, which cannot be shown"


def to_json_value(value: Any, *, dates: bool = True, depth: int = DEEPEST) -> Any:
    """As JSON has it, dates as RFC 3339 text if they may be there (spec yoi 3.1); what JSON cannot say is a `ValueError`."""
    if depth < 0:
        raise ValueError("nested too deep")
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("a key that is no text")
        return {_check_text(key): to_json_value(item, dates=dates, depth=depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(item, dates=dates, depth=depth - 1) for item in value]
    if dates and isinstance(value, datetime | date | time):
        return msgspec.to_builtins(value)
    if isinstance(value, str):
        return _check_text(value)
    if isinstance(value, float) and not isfinite(value):
        raise ValueError("a number that JSON does not have")
    if isinstance(value, int) and not isinstance(value, bool) and value not in _NUMBERS:
        raise ValueError("a number of more than 64 bits")
    if value is None or isinstance(value, bool | int | float):
        return value
    raise ValueError("a value that JSON does not have")


def _check_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("a text with half a character") from None
    return text


MESSAGE = 512  # bytes of a message, before the mark that it was cut
REDACTED = "<redacted>"
_CUT = "…"

# Two of our own sentences name such words without a value behind them (spec yoi 4.3), and are left readable.
_HEADER = re.compile(
    r"((?:proxy-authorization|authorization|set-cookie|cookie|x-api-key|x-auth-token|api-key)"
    r"(?!` is credential-like)[ \t=:]*)[^\r\n]+",
    re.IGNORECASE,
)
_WORD = re.compile(r"((?:(?:token|secret|password)(?!-ref grant)[\"']?[ \t=:]*)+)[^ ,;\r\n]+", re.IGNORECASE)

_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def cut(text: str, most: int) -> str:
    """At most so many bytes of it, and no half of a character (the origin can panic there; spec yoi 17.2)."""
    if len(text) <= most // 4:  # no character has more than four
        return text
    return text.encode(errors="surrogatepass")[:most].decode(errors="ignore") if utf8_size(text) > most else text


def bound_text(text: str, most: int = MESSAGE) -> str:
    """Without control characters, newline and tab excepted, and cut at `most` bytes (spec yoi 17.2)."""
    plain = strip_steering(CONTROL.sub(" ", text))
    short = cut(plain, most)
    return short if len(short) == len(plain) else short + _CUT


def redact(text: str) -> str:
    """What stands behind a word for a credential, taken out (spec yoi 17.3).

    Behind a header's name it is all of the line: the origin takes one word, and `Authorization: Bearer abc` keeps its `abc`.
    """
    return _WORD.sub(rf"\1{REDACTED}", _HEADER.sub(rf"\1{REDACTED}", text))


def operator_text(text: str, most: int = MESSAGE) -> str:
    """A text for the operator: redacted before it is cut, for a cut word is no longer known."""
    return bound_text(redact(text), most)


def to_display_text(text: str) -> str:
    """The same words for a terminal or a model, without what would steer either (spec yoi 21.36)."""
    if text.isprintable() or text.replace("\n", " ").replace("\t", " ").isprintable():  # quick, and nearly always so
        return text
    return strip_steering(CONTROL.sub("", CSI.sub("", text)))


def format_timestamp(seconds: float) -> str:
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

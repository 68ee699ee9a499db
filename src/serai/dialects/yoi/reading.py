"""TOML and its shapes, with errors that never repeat what a stranger has written (spec yoi 9)."""

from __future__ import annotations

import re
import tomllib
from datetime import date, datetime, time
from math import isfinite
from typing import Any, TypeVar

import msgspec

__all__ = ["DEEPEST", "convert", "plain", "quoted", "read_toml"]

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
        begin, end = _span(decoded, str(error))
        raise ValueError(f"not valid TOML at bytes {begin}..{end}") from None


def _span(text: str, message: str) -> tuple[int, int]:
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
        raise ValueError(f"{where}: {_worded(message)}" if where else _worded(message)) from None
    except RecursionError:
        raise ValueError("nested too deep") from None


def _worded(message: str) -> str:
    if found := _UNKNOWN.fullmatch(message):
        return f"there is no key {quoted(found[1])}"
    if found := _MISSING.fullmatch(message):
        return f"the key {quoted(found[1])} is missing"
    return "a value that is not known there" if _ENUM.fullmatch(message) else message


def quoted(name: str) -> str:
    """A name in an error, if it is harmless and short."""
    return f"`{name}`" if name.isprintable() and len(name) <= _LONGEST else "of that name, which cannot be shown"


def plain(value: Any, *, dates: bool = True, depth: int = DEEPEST) -> Any:
    """As JSON has it, dates as RFC 3339 text if they may be there (spec yoi 3.1); what JSON cannot say is a `ValueError`."""
    if depth < 0:
        raise ValueError("nested too deep")
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("a key that is no text")
        return {_text(key): plain(item, dates=dates, depth=depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, dates=dates, depth=depth - 1) for item in value]
    if dates and isinstance(value, datetime | date | time):
        return msgspec.to_builtins(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, float) and not isfinite(value):
        raise ValueError("a number that JSON does not have")
    if isinstance(value, int) and not isinstance(value, bool) and value not in _NUMBERS:
        raise ValueError("a number of more than 64 bits")
    if value is None or isinstance(value, bool | int | float):
        return value
    raise ValueError("a value that JSON does not have")


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("a text with half a character") from None
    return text

"""Ways to write a message that are all the same JSON."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["Frame", "backwards", "compact", "escaped", "spaced", "with_separators", "written"]

Frame = dict[str, Any]


def written(frame: Frame, *, nan: bool = True) -> bytes:
    """A frame as JSON; half a character, which a guest may have in a name, as an escape. `nan` is what no JSON has."""
    return json.dumps(frame, ensure_ascii=False, allow_nan=nan, separators=(",", ":")).encode(errors="backslashreplace")


def compact(frame: Frame) -> bytes:
    """As most hosts write it."""
    return written(frame, nan=False)


def backwards(frame: Frame) -> bytes:
    return compact(dict(reversed(frame.items())))


def spaced(frame: Frame) -> bytes:
    return b" \t" + json.dumps(frame, ensure_ascii=False, separators=(" , ", "\t: ")).encode() + b" "


def escaped(frame: Frame) -> bytes:
    return _escape(frame).encode()


def _escape(value: Any) -> str:
    """Every character of every text as an escape, names too."""
    if isinstance(value, str):
        units = value.encode("utf-16-be", "surrogatepass").hex()
        return '"' + "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4)) + '"'
    if isinstance(value, dict):
        return "{" + ",".join(f"{_escape(key)}:{_escape(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_escape, value)) + "]"
    return json.dumps(value)


def with_separators(frame: Frame) -> bytes:
    """Some hosts escape some of these; whoever relies on that has no JSON parser, or cuts its input in more places than it may."""
    return compact({**frame, "note": "next\x85line\u2028line\u2029paragraph"})

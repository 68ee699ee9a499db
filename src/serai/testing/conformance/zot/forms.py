"""Ways to write a request that are all the same JSON, and ids that are all a text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from serai.testing.conformance.zot.probe import compact
from serai.testing.zot_host.frames import Frame

__all__ = ["FORMS", "IDS"]


def _backwards(frame: Frame) -> bytes:
    return compact(dict(reversed(frame.items())))


def _spaced(frame: Frame) -> bytes:
    return b" \t" + json.dumps(frame, ensure_ascii=False, separators=(" , ", "\t: ")).encode() + b" "


def _escaped(frame: Frame) -> bytes:
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


def _with_separators(frame: Frame) -> bytes:
    """Zot escapes some of these; whoever relies on that has no JSON parser, or cuts its input in more places than it may."""
    return compact({**frame, "note": "next\x85line\u2028line\u2029paragraph"})


FORMS: dict[str, Callable[[Frame], bytes]] = {
    "with its type at the end": _backwards,
    "with blanks around its parts": _spaced,
    "with an escape for every character": _escaped,
    "with U+0085, U+2028 and U+2029 in a text": _with_separators,
}
IDS = {
    "with letters in its id": "aBcDeF-xYz_019",
    "with an id of 300 characters": "9876543210" * 30,
    "with quotes and more than ASCII in its id": '"7" \\ § 日本 😀',
}

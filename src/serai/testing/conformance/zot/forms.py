"""Ways to write a request that are all the same JSON, and ids that are all a text."""

from __future__ import annotations

from collections.abc import Callable

from serai.testing.conformance.forms import Frame, backwards, escaped, spaced, with_separators

__all__ = ["FORMS", "IDS"]

FORMS: dict[str, Callable[[Frame], bytes]] = {
    "with its type at the end": backwards,
    "with blanks around its parts": spaced,
    "with an escape for every character": escaped,
    "with U+0085, U+2028 and U+2029 in a text": with_separators,
}
IDS = {
    "with letters in its id": "aBcDeF-xYz_019",
    "with an id of 300 characters": "9876543210" * 30,
    "with quotes and more than ASCII in its id": '"7" \\ § 日本 😀',
}

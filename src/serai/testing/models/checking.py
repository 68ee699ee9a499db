"""Small questions to JSON that may be anything: the answer is the value in its type, or the 400 that a real API gives."""

from __future__ import annotations

from collections import Counter
from typing import Any

from serai.testing.models.answering import BadRequest, Json

__all__ = ["duplicates", "items", "need", "objects", "text_of"]


def need(ok: object, message: str, *, param: str | None = None, code: str | None = None) -> None:
    if not ok:
        raise BadRequest(message, param=param, code=code)


def items(value: object) -> list[Any]:
    """A list; anything else is none."""
    return value if isinstance(value, list) else []


def objects(value: object) -> list[Json]:
    """The objects of a list; what is none was complained about before, or does not matter."""
    return [item for item in items(value) if isinstance(item, dict)]


def duplicates(names: list[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def text_of(content: object, *kinds: str) -> str:
    """The text of a message: it is one, or the blocks of these kinds have it."""
    if isinstance(content, str):
        return content
    texts = [block.get("text") for block in objects(content) if block.get("type") in kinds]
    return "\n".join(text for text in texts if isinstance(text, str))

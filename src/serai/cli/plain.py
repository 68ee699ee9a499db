"""Text that a terminal only shows. Imports nothing, so that an error can be told at no cost."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    """What a terminal would act upon is spelt out."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)

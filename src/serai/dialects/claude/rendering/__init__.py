"""Claude Code's frames as text for people (spec agents 2.15)."""

from serai.dialects.claude.rendering.formatter import Formatter

__all__ = ["Formatter"]

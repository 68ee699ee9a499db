"""What came of a tool, in a few lines: a row for each tool that has a way of its own (spec agents 5.2 F18)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from serai.dialects.claude.rendering.plain import Given, counted, cut, one_line, plain

__all__ = ["content_text", "summary"]

UNKNOWN = "Result"  # the name of a tool that nobody told of
_FEW, _FIRST = 3, 5  # lines that are shown

Summary = Callable[[str, list[str]], str]


def summary(tool: str, content: Any, *, is_error: bool) -> str:
    """`✓` or `✗`, the tool, and what is worth seeing of its result. Empty: nothing is."""
    name = one_line(tool) or UNKNOWN
    lines = plain(content_text(content)).strip("\n").splitlines()
    if is_error:
        return _listed(f"✗ {name}", lines, lines[:_FIRST], "lines")
    return _SUMMARIES.get(tool, _first)(name, lines)


def content_text(content: Any) -> str:
    """A result is a text, blocks, or absent (spec agents 2.5)."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        return ""
    parts = []
    for one in content:
        block = Given(one)
        kind = block.text("type")
        parts.append(block.text("text") if kind == "text" else f"[{one_line(kind)}]" if kind else "")
    return "\n".join(part for part in parts if part)


def _listed(head: str, lines: list[str], some: list[str], what: str = "", *, above: bool = False) -> str:
    """The head and some of the lines; how many are left, where they would stand."""
    left = len(lines) - len(some)
    more = [f"  +{left} more {what}".rstrip()] if left > 0 else []
    body = [f"  {cut(line)}" for line in some]
    return "\n".join([head, *(more + body if above else body + more)])


def _first(name: str, lines: list[str]) -> str:
    return _listed(f"✓ {name}", lines, lines[:_FIRST], "lines")


def _count(name: str, lines: list[str]) -> str:
    return f"✓ {name}: {counted(len(lines), 'line')}"


def _last(name: str, lines: list[str]) -> str:
    """How a command ended is what matters."""
    return _listed(f"✓ {name}", lines, lines[-_FEW:], above=True)


def _matches(name: str, lines: list[str]) -> str:
    return _listed(f"✓ {name}: {len(lines)} {'match' if len(lines) == 1 else 'matches'}", lines, lines[:_FEW])


def _nothing(_name: str, _lines: list[str]) -> str:
    """Its use said it all."""
    return ""


def _todos(_name: str, _lines: list[str]) -> str:
    return "✓ Todos updated"


_SUMMARIES: Mapping[str, Summary] = {
    "Read": _count,
    "Bash": _last,
    "BashOutput": _last,
    "Grep": _matches,
    "Glob": _matches,
    "Edit": _nothing,
    "MultiEdit": _nothing,
    "NotebookEdit": _nothing,
    "Write": _nothing,
    "TodoWrite": _todos,
}

"""The system prompt: its parts in the order of spec piglet 6.9. Values in, text out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from serai.model.contributions import PromptSection
from serai.model.tools import ToolSpec

__all__ = ["DEFAULT", "PromptParts", "system_prompt"]

# When a person has written none.
DEFAULT = """\
You are an assistant who works on a person's machine with the tools you are given. Work step by step: look before you change \
something, use the tools instead of guessing, and say at the end in a few sentences what you did and what you found. When a tool \
fails, read what it says and do something about it. When a call is denied, do not try to get the same thing in another way: say \
what you would have needed it for."""


class PromptParts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a person and the guests have to say. `base` is the text of `prompt.md` or of the settings."""

    base: str = DEFAULT
    sections: tuple[PromptSection, ...] = ()
    order: Mapping[str, int] = msgspec.field(default_factory=dict)  # by title, over the sections' own
    guidelines: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)  # by tool, beside its hint


def system_prompt(parts: PromptParts, tools: Iterable[ToolSpec], deferred: Iterable[ToolSpec] = (), extra: str = "") -> str:
    """All of it. `deferred` are the tools that the model is told of by name only; `extra` is for this turn alone."""
    sections = sorted(parts.sections, key=lambda section: parts.order.get(section.title, section.order))
    texts = [parts.base.strip()] + [f"# {section.title}\n\n{section.content.strip()}" for section in sections]
    notes = [_note(tool, parts) for tool in sorted(tools, key=lambda tool: tool.name) if tool.hint or tool.name in parts.guidelines]
    if notes:
        texts.append("\n\n".join(["# Tool Usage Notes", *notes]))
    listed = [f"- **{tool.name}**: {tool.description}" for tool in sorted(deferred, key=lambda tool: tool.name)]
    if listed:
        texts.append("\n".join(["# Available Tools", "", *listed]))
    return "\n\n".join(text for text in [*texts, extra.strip()] if text)


def _note(tool: ToolSpec, parts: PromptParts) -> str:
    head = f"## {tool.name} — {tool.hint}" if tool.hint else f"## {tool.name}"
    bullets = [f"- {line}" for line in parts.guidelines.get(tool.name, ())]
    return "\n".join([head, "", *bullets]) if bullets else head

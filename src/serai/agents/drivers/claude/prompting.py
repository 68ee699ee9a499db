"""A prompt in the words of the wire (spec agents 2.4)."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any

from serai.agents.driver import Prompt

__all__ = ["content"]

_END = re.compile(r"<(\s*/\s*context)", re.IGNORECASE)


def content(prompt: Prompt) -> str | list[dict[str, Any]]:
    """What guests add stands before the prompt and is marked as theirs: the model must not take it for the person's words."""
    if not prompt.system and not prompt.images:
        return prompt.text
    blocks: list[dict[str, Any]] = []
    if prompt.system:
        blocks.append(_text(f'<context from="extensions">\n{_unmarked(prompt.system)}\n</context>'))
    for image in prompt.images:
        source = {"type": "base64", "media_type": image.mime or "image/png", "data": b64encode(image.data).decode()}
        blocks.append({"type": "image", "source": source})
    if prompt.text:
        blocks.append(_text(prompt.text))  # the last: only there a command of Claude's own is looked for
    return blocks


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _unmarked(text: str) -> str:
    """Nobody ends the block from within, however the model would read it."""
    return _END.sub(r"<\\\1", text)

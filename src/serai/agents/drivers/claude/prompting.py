"""A prompt: whether it may be sent, and in the words of the wire (spec agents 2.4)."""

from __future__ import annotations

import logging
import re
from base64 import b64encode
from typing import Any

from serai.agents.driver import Prompt
from serai.agents.joining import Interceptors

__all__ = ["content", "refusal"]

log = logging.getLogger("serai.agents")


async def refusal(interceptors: Interceptors) -> str:
    """Why it must not be, or "". Asked once for a prompt: the steps of its turn are Claude's own."""
    try:
        return await interceptors.before_step(1)
    except Exception as error:  # who cannot say yes has not said it (design rule 7)
        log.exception("an interceptor failed")
        return f"an interceptor failed: {error}"


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

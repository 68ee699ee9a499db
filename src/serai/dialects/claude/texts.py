"""Texts of Claude Code as people may see them, and its content in neutral blocks."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from serai.dialects.claude import blocks
from serai.model.tools import Block, ImageBlock, OtherBlock, TextBlock

__all__ = ["block_of", "content_of", "line_of", "plain", "shown"]

# A terminal's commands: with parameters, with a text up to their end, the rest. One without an end hides nothing.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")  # also what turns text around
_LONG = 300


def shown(text: str) -> str:
    """Without what a terminal would act upon; lines and tabs stay (spec agents 2.8)."""
    return text if text.isprintable() else _CONTROLS.sub("", _ESCAPES.sub("", text))


def line_of(text: str) -> str:
    """Its first line, as a person sees it."""
    line = next((line.strip() for line in shown(text[: 4 * _LONG]).splitlines() if line.strip()), "")
    return line if len(line) <= _LONG else line[: _LONG - 1] + "…"


def plain(value: Any) -> Any:
    """Opaque JSON as data; None when it is none."""
    if isinstance(value, msgspec.Raw):
        try:
            return msgspec.json.decode(value) if len(value) else None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
    return value


def content_of(content: str | Iterable[blocks.Block] | None) -> tuple[Block, ...]:
    """Of a tool's result."""
    if content is None:
        return ()
    if isinstance(content, str):
        return (TextBlock(content),)
    return tuple(map(block_of, content))


def block_of(block: blocks.Block) -> Block:
    kind = type(block)
    if kind is blocks.Text:
        return TextBlock(block.text)  # type: ignore[union-attr]
    if kind is blocks.Image and (image := _image(plain(block.source))):  # type: ignore[union-attr]
        return image
    if isinstance(block, blocks.UnknownBlock):
        return OtherBlock(block.kind, plain(block.raw))
    return OtherBlock(str(kind.__struct_config__.tag), msgspec.to_builtins(block, enc_hook=plain))


def _image(source: Any) -> ImageBlock | None:
    if not isinstance(source, dict) or not isinstance(data := source.get("data"), str):
        return None
    try:
        return ImageBlock(base64.b64decode(data, validate=True), str(source.get("media_type") or ""))
    except ValueError:
        return None

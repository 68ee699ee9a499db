"""A result as a model is told of it: never empty, not too long, with its code and hint. Values in, values out."""

from __future__ import annotations

import msgspec

from serai.limits import MIB
from serai.model.tools import Block, ImageBlock, TextBlock, ToolResult
from serai.wire import codec


def measure_json(data: object) -> int:
    """Of its JSON; 0 when it has none."""
    try:
        return len(codec.encode(data))
    except (*codec.BAD_INPUT, TypeError, OverflowError):
        return 0


_IMAGES = 5 * MIB  # of one result: what providers take
_CUT = "\n[… {} characters left out …]\n"


def fit_for_model(result: ToolResult, most: int) -> ToolResult:
    """At most `most` characters of text."""
    content = tuple(_repair_block(block) for block in result.content) or (TextBlock("(no output)"),)
    return _add_code(_limit_size(msgspec.structs.replace(result, content=content), most))


def _repair_block(block: Block) -> Block:
    """Half a character cannot be sent to anybody."""
    return TextBlock(codec.replace_surrogates(block.text)) if isinstance(block, TextBlock) else block


def _add_code(result: ToolResult) -> ToolResult:
    """With its code and hint where the model sees them (spec piglet 5.1)."""
    first = result.content[0] if result.content else TextBlock("")
    if not result.code or not isinstance(first, TextBlock) or first.text.startswith("[error:"):
        return result
    text = f"[error:{result.code}] {first.text}" + (f"\nhint: {result.hint}" if result.hint else "")
    return msgspec.structs.replace(result, content=(TextBlock(text), *result.content[1:]))


def _limit_size(result: ToolResult, most: int) -> ToolResult:
    """As much of it as a model is told; of a long text the beginning and the end."""
    sizes = [_measure_block(block) for block in result.content]
    text = sum(size for size, block in zip(sizes, result.content, strict=True) if not isinstance(block, ImageBlock))
    images = sum(sizes) - text
    room = most if text <= most else most // sum(not isinstance(block, ImageBlock) for block in result.content)
    content = tuple(_cut(block, room, images > _IMAGES) for block in result.content)
    return msgspec.structs.replace(result, content=content)


def _measure_block(block: Block) -> int:
    if isinstance(block, TextBlock):
        return len(block.text)
    return len(block.data) if isinstance(block, ImageBlock) else measure_json(block.native)


def _cut(block: Block, room: int, no_images: bool) -> Block:
    size = _measure_block(block)
    if isinstance(block, TextBlock):
        half = room // 2
        return block if size <= room else TextBlock(block.text[:half] + _CUT.format(size - 2 * half) + block.text[size - half :])
    if isinstance(block, ImageBlock):
        return block if not no_images else TextBlock(f"[an image of {size} bytes was left out: all of them together are too long]")
    return block if size <= room else TextBlock(f"[{block.kind} of {size} bytes was left out]")

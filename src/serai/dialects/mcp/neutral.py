"""Between MCP's messages and the types of `serai.model`, and tool names that every agent and every model accepts.

Names have letters, digits, `_` and `-`, at most 64 characters. An agent adds a prefix such as `mcp__serai__`, which counts too, so
less room is left for ours. One name that is too long or has another character would fail a whole request to the model, also for
all other tools.
"""

from __future__ import annotations

import hashlib
import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

import msgspec

from serai.dialects.mcp.messages import LOADED, CallResult, Carried, Tool
from serai.model.tools import Block, ImageBlock, OtherBlock, TextBlock, ToolResult, ToolSpec
from serai.wire.codec import BAD_INPUT, replace_surrogates

_SINCE = {"audio": "2025-03-26", "resource_link": "2025-06-18"}


# -- ours to theirs ---------------------------------------------------------------------------------------------------------------


def to_tool(spec: ToolSpec, name: str) -> Tool:
    """A tool under the name that the model gets. Arguments are an object: an API would refuse the request for any other type.

    Claude Code hides the tools of a server behind a search unless it is told not to; only a deferred one wants that.
    """
    return Tool(name, spec.description, {**spec.schema, "type": "object"}, {LOADED: not spec.deferred})


def to_call_result(result: ToolResult, version: str) -> CallResult:
    """What the model is told. `details` are not for it, so there is never any `structuredContent`."""
    content = [_to_content(block, version) for block in result.content]
    return CallResult(_prepend_code(result, content), is_error=True if result.is_error else msgspec.UNSET)


def _prepend_code(result: ToolResult, content: list[Any]) -> list[Any]:
    """With its code and hint where the model sees them, in the words that the resident's model gets (spec piglet 5.1)."""
    first = content[0] if content else _build_text("")
    if not result.code or first.get("type") != "text" or first["text"].startswith("[error:"):
        return content
    hint = f"\nhint: {result.hint}" if result.hint else ""
    return [_build_text(f"[error:{result.code}] {first['text']}{hint}"), *content[1:]]


def _to_content(block: Block, version: str) -> dict[str, Any]:
    match block:
        case TextBlock(text=text):
            return _build_text(text)
        case ImageBlock(data=data, mime=mime):
            return {"type": "image", "data": b2a_base64(data, newline=False).decode(), "mimeType": mime or "image/png"}
        case OtherBlock(kind=kind, native=native):
            if version >= _SINCE.get(kind, "") and isinstance(native, dict) and _is_carried(kind, native):
                return native
            return _build_text(msgspec.json.encode(replace_surrogates(native)).decode())


def _is_carried(kind: str, native: dict[str, Any]) -> bool:
    """Whether it is a block that MCP has and we have no word for: a client that checks drops the whole result for a bad one."""
    if native.get("type") != kind:
        return False
    try:
        block = msgspec.convert(native, Carried)
    except BAD_INPUT:
        return False
    resource = getattr(block, "resource", None)
    if resource is None:
        return True
    return isinstance(resource.get("uri"), str) and any(isinstance(resource.get(key), str) for key in ("text", "blob"))


def _build_text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


# -- theirs to ours ---------------------------------------------------------------------------------------------------------------


def to_tool_spec(tool: Tool) -> ToolSpec:
    deferred = isinstance(tool.meta, dict) and tool.meta.get(LOADED) is False
    return ToolSpec(tool.name, tool.description or "", tool.input_schema, deferred=deferred)


def to_tool_result(result: CallResult) -> ToolResult:
    return ToolResult(tuple(_iter_blocks(result.content)), is_error=result.is_error is True)


def _iter_blocks(content: Iterable[Any]) -> Iterable[Block]:
    """What has no block of ours is kept as it came (design rule 4)."""
    for item in content:
        if not isinstance(item, dict):
            yield OtherBlock("unknown", item)
            continue
        kind, text, data, mime = (item.get(key) for key in ("type", "text", "data", "mimeType"))
        if kind == "text" and isinstance(text, str):
            yield TextBlock(text)
        elif kind == "image" and isinstance(data, str):
            yield _decode_image(data, mime if isinstance(mime, str) else "")
        else:
            yield OtherBlock(kind if isinstance(kind, str) and kind else "unknown", item)


def _decode_image(data: str, mime: str) -> Block:
    try:
        return ImageBlock(a2b_base64(data, strict_mode=True), mime)
    except ValueError as error:
        return TextBlock(f"[an image that cannot be decoded: {error}]")


LONGEST = 64
_BAD = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST = 8
_LEAST = 16  # characters: some of the name itself besides the digest


def measure_prefix(server: str) -> int:
    """How many characters an agent puts before the tools of a server of that name: `mcp__serai__`."""
    return len(f"mcp__{server}__")


class NameMap:
    """A safe name for each of these names, and back.

    A name that is safe stays as it is. Any other has a digest of itself at its end, so what it becomes does not depend on the
    others, but for one whose very name is what this one would become. The same names give the same map, in any order.
    """

    __slots__ = ("_back", "_out", "room")

    def __init__(self, names: Iterable[str], *, prefix: int = 0) -> None:
        self.room = LONGEST - prefix
        if prefix < 0 or self.room < _LEAST:
            raise ValueError(f"a prefix of {prefix} characters leaves no room for names: the most is {LONGEST - _LEAST}")
        wanted = sorted(set(names))
        self._out = {name: name for name in wanted if self._is_safe(name)}
        self._back = dict(self._out)
        for name in wanted:
            if name not in self._out:
                made = next(made for made in self._iter_candidates(name) if made not in self._back)
                self._out[name], self._back[made] = made, name

    def get_safe_name(self, name: str) -> str:
        """The name that a model gets. `KeyError` for one that the map was not made of."""
        return self._out[name]

    def find_original(self, safe: str) -> str | None:
        """The true name, None when no tool has this one."""
        return self._back.get(safe)

    def __len__(self) -> int:
        return len(self._out)

    def _is_safe(self, name: str) -> bool:
        return 0 < len(name) <= self.room and not _BAD.search(name)

    def _iter_candidates(self, name: str) -> Iterator[str]:
        stem = (_BAD.sub("_", name) or "tool")[: self.room - _DIGEST - 1]
        for number in count():
            text = f"{number} {name}" if number else name
            yield f"{stem}_{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:_DIGEST]}"

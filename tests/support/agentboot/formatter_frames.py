"""Frames as Claude Code writes them, made in a line."""

from __future__ import annotations

from typing import Any

__all__ = ["assistant", "delta", "result_of", "system", "text", "use", "user"]

Frame = dict[str, Any]


def assistant(*blocks: Frame, **more: Any) -> Frame:
    return {"type": "assistant", "message": {"id": "msg_1", "role": "assistant", "content": list(blocks)}, **more}


def user(content: Any, **more: Any) -> Frame:
    return {"type": "user", "message": {"role": "user", "content": content}, **more}


def text(said: str) -> Frame:
    return {"type": "text", "text": said}


def use(name: str, id: str = "toolu_1", **input: Any) -> Frame:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


def result_of(id: str = "toolu_1", content: Any = None, **more: Any) -> Frame:
    return {"type": "tool_result", "tool_use_id": id, "content": content, **more}


def system(subtype: str, **more: Any) -> Frame:
    return {"type": "system", "subtype": subtype, **more}


def delta(said: str, *, kind: str = "text", **more: Any) -> Frame:
    piece = {"type": f"{kind}_delta", kind: said}
    return {"type": "stream_event", "event": {"type": "content_block_delta", "index": 0, "delta": piece}, **more}

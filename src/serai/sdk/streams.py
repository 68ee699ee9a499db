"""A model that an extension calls for its host: what comes bit by bit, and the message at the end (spec piglet 5.9)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from serai.sdk.records import StreamRequest
from serai.sdk.results import Returned, kind_of

__all__ = ["Deltas", "message_of"]

_USAGE = {"inputTokens": 0, "outputTokens": 0, "cacheReadTokens": 0, "cacheWriteTokens": 0, "cost": 0}


class Deltas:
    """Where a provider writes what the model says while it says it."""

    def __init__(self, tell: Callable[[str, dict[str, Any]], None], request: int) -> None:
        self._tell, self._request = tell, request
        self._text: list[str] = []

    def text(self, delta: str, *, index: int = 0) -> None:
        self._text.append(delta)
        self._send("text_delta", index, delta=delta)

    def thinking(self, delta: str, *, index: int = 0) -> None:
        self._send("thinking_delta", index, delta=delta)

    def tool_call(self, delta: str, *, index: int = 0) -> None:
        """A piece of the arguments of a call."""
        self._send("toolcall_delta", index, delta=delta)

    def tool_call_end(self, id: str, name: str, arguments: dict[str, Any] | str, *, index: int = 0) -> None:
        """A call is whole. On the wire its arguments are a JSON text."""
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        self._send("toolcall_end", index, tool={"id": id, "name": name, "arguments": text})

    @property
    def so_far(self) -> str:
        """All text that was written."""
        return "".join(self._text)

    def _send(self, type: str, index: int, **more: Any) -> None:
        self._tell("provider/delta", {"requestId": self._request, "type": type, **({"index": index} if index else {}), **more})


def message_of(value: object, request: StreamRequest, deltas: Deltas) -> dict[str, Any]:
    """The message that is the answer: a whole one as it is, a text, or nothing for what was written."""
    if value is None:
        value = deltas.so_far
    if isinstance(value, str):
        value = {"content": [{"type": "text", "text": value}]}
    if not isinstance(value, dict):
        raise Returned(f"it returned {kind_of(value)}; a provider returns a message, a text, or nothing for what it wrote")
    about = {"model": request.model.id, "provider": request.model.provider, "usage": _USAGE, "stopReason": "stop"}
    return {**about, "timestamp": _now(), **value}


def _now() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).isoformat().replace("+00:00", "Z")

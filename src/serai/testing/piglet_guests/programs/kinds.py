"""What each kind of handler answers, by what it has said (spec piglet 5)."""

from __future__ import annotations

from typing import Any

from serai.testing.piglet_guests.programs.acting import Act, Kind

__all__ = ["KINDS"]


def _tool(act: Act) -> dict[str, Any]:
    return {"content": [act.world.block(text) for text in act.said], **act.failure}


def _show(act: Act, text: str) -> None:
    act.tell("showMessage", {"text": text})


def _before(act: Act) -> dict[str, Any]:
    return {"allow": False, "preview": act.text} if act.said else {"allow": True}


def _after(act: Act) -> dict[str, Any]:
    return {"details": {"content": [{"type": "text", "text": act.text}]} if act.said else act.params.get("details")}


def _action(act: Act) -> dict[str, Any]:
    return {"action": {"type": "notify", "payload": {"message": act.text}} if act.said else None}


def _transform(act: Act) -> dict[str, Any]:
    return {"output": act.text if act.said else act.params["input"], "handled": False}


def _compact(act: Act) -> dict[str, Any]:
    return {"messages": [{"type": "user", "data": {"content": act.text}}] if act.said else act.params["messages"]}


def _piece(act: Act, text: str) -> None:
    act.tell("provider/delta", {"requestId": act.params["requestId"], "type": "text_delta", "delta": text})


def _stream(act: Act) -> dict[str, Any]:
    model = act.params.get("model") or {}
    usage = {"inputTokens": 5, "outputTokens": 1, "cacheReadTokens": 0, "cacheWriteTokens": 0, "cost": 0}
    about = {"model": model.get("id", ""), "provider": model.get("provider", ""), "usage": usage}
    return {
        "message": {
            "content": [{"text": "".join(act.said)}],
            **about,
            "stopReason": "stop",
            "timestamp": "2026-02-03T10:00:01.123456789Z",
        }
    }


KINDS = {
    "initialize": Kind(lambda _act: None),
    "tool": Kind(_tool),
    "command": Kind(lambda _act: {}, _show),
    "before": Kind(_before),
    "after": Kind(_after),
    "event": Kind(_action),
    "shortcut": Kind(_action),
    "hook": Kind(lambda act: {"injection": act.text}),
    "transformer": Kind(_transform),
    "compactor": Kind(_compact),
    "provider": Kind(_stream, _piece),
}

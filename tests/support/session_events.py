"""Events for a session writer, and what it makes of them."""

from __future__ import annotations

from typing import Any

import pytest

from serai.model import events
from serai.model.events import Event, Message, TurnEnded, TurnResult
from serai.model.tools import TextBlock, ToolCall, ToolResult
from serai.store import SessionWriter, StoredSession

READ = ToolCall("read", {"path": "a"}, "c1")
BASH = ToolCall("bash", {"command": "ls"}, "c2")


def tell(session_writer: SessionWriter, *happened: Event) -> None:
    for event in happened:
        session_writer.tell(event)


def message(text: str) -> Message:
    return Message(content=(TextBlock(text),), model="m1")


def invoke(call: ToolCall) -> events.ToolCalled:
    return events.ToolCalled(call=call)


def start(call: ToolCall) -> events.ToolStarted:
    return events.ToolStarted(call=call)


def complete(call: ToolCall, text: str = "ok") -> events.ToolEnded:
    return events.ToolEnded(call=call, result=ToolResult.of(text))


def finish(status: Any = "success") -> TurnEnded:
    return TurnEnded(result=TurnResult(status=status))


def types(session: StoredSession) -> list[str]:
    return [entry.type for entry in session.read_path()]


def record_writes(monkeypatch: pytest.MonkeyPatch, session: StoredSession) -> list[str]:
    """Each append and each sync, in order."""
    done_: list[str] = []
    append, sync = session.append, session.sync

    def noting_append(type: str, data: object, **more: Any) -> Any:
        done_.append(type)
        return append(type, data, **more)

    def noting_sync() -> None:
        done_.append("sync")
        sync()

    monkeypatch.setattr(session, "append", noting_append)
    monkeypatch.setattr(session, "sync", noting_sync)
    return done_

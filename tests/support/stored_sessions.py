"""Sessions and files for the tests of the store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from serai.limits import Limits
from serai.store import SessionFolder, StoredSession
from serai.store.entries import ReadProblems
from serai.store.messages import AssistantMessage, StoredText, StoredThinking, StoredToolCall, ToolResultMessage, UserMessage
from serai.store.session_file import CHUNK, SessionFile
from serai.store.session_tree import SessionTree

META = {"id": "6f1c", "cwd": "/app", "model": "m1", "createdAt": "2026-02-03T10:00:00.1Z"}
TS = "2026-02-03T10:00:01.000000001Z"


def create(folder: Path, limits: Limits | None = None, **about: str) -> StoredSession:
    return SessionFolder(folder / "sessions", limits=limits).create("/app", **about)


def line(type: str, id: str | None = None, parent: str | None = None, data: Any = None, **more: Any) -> bytes:
    """A line as other writers make it."""
    form: dict[str, Any] = {"type": type}
    form |= {key: value for key, value in (("id", id), ("parentId", parent)) if value is not None}
    return json.dumps(form | {"ts": TS, "data": data} | more, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def meta(**changes: Any) -> bytes:
    return line("meta", data=META | changes)


def user(id: str, parent: str | None, text: str, **more: Any) -> bytes:
    return line("user", id, parent, {"content": text, "timestamp": TS}, **more)


def file_of(folder: Path, *lines: bytes, name: str = "6f1c.jsonl") -> Path:
    path = folder / name
    path.write_bytes(b"".join(lines))
    return path


def lines_in(path: str | Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in Path(path).read_bytes().splitlines()]


def read_tree(path: str | Path, *, chunk: int = CHUNK, limits: Limits | None = None) -> SessionTree:
    """The file, read from its beginning."""
    from serai.store.session_tree import load

    file = SessionFile(str(path), limits or Limits(), chunk=chunk)
    try:
        return load(file, ReadProblems())
    finally:
        file.close()


def show(session: StoredSession) -> list[str]:
    """A conversation in short."""
    return [short(message) for message in session.read_messages()]


def short(message: UserMessage | AssistantMessage | ToolResultMessage) -> str:
    if isinstance(message, UserMessage):
        return f"user: {message.content}"
    texts = "".join(_short(item) for item in message.content)
    return f"assistant: {texts}" if isinstance(message, AssistantMessage) else f"{message.tool_call_id}: {texts}"


def _short(item: object) -> str:
    match item:
        case StoredText(text=text):
            return text
        case StoredThinking(thinking=text):
            return f"({text})"
        case StoredToolCall(id=id, name=name):
            return f"[{id} {name}]"
    return "?"


def every_kind(session: StoredSession) -> Iterator[str]:
    """Append one of each kind of entry; their ids."""
    first = session.append_user("hello\nthere").id
    yield first
    calls = (StoredThinking("hm"), StoredText("I look"), StoredToolCall("c1", "read", {"path": "a"}))
    yield session.say(AssistantMessage(calls, "m1", "p", stop_reason="toolUse", timestamp=TS)).id
    yield session.say(ToolResultMessage("c1", "read", (StoredText("text é"),), timestamp=TS)).id
    session.set_title("A title")
    yield session.append_custom("assistant", "by a guest").id
    yield session.append_entry("ext:memory:facts", {"n": [1, None, 2.5]}).id
    yield session.label(first, "start").id
    yield session.compact([UserMessage("in short")], 1234).id
    yield session.append_user("and then").id
    yield session.branch(first, "another way").id
    yield session.append_user("again").id
    yield session.append("event", {"type": "noticed"}).id
    yield session.reset("nothing left").id
    session.set_model("m2")
    yield session.append_user("anew").id

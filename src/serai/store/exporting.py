"""A session as a page to read: Markdown, the active path from its root, nothing of it cut."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from serai.store import messages
from serai.store.entries import Entry, Meta
from serai.store.messages import (
    AssistantMessage,
    Call,
    Image,
    Item,
    Message,
    Text,
    Thinking,
    ToolResultMessage,
    Unknown,
    UserMessage,
)
from serai.store.session import Session
from serai.store.tree import compacted, messages_of
from serai.wire import codec

__all__ = ["fenced", "markdown"]

_TICKS = re.compile("`+")


def markdown(session: Session) -> Iterator[str]:
    """Paragraph by paragraph; joined they are the page."""
    yield from _head(session.id, session.meta)
    for entry in session.path():
        yield from _entry(entry)


def _head(id: str, meta: Meta) -> Iterator[str]:
    yield f"# {_line(meta.title) or 'Session ' + id}\n\n"
    facts = {
        "Session": id,
        "Folder": meta.cwd,
        "Agent": meta.agent,
        "The agent's own id": meta.agent_session,
        "Model": meta.model,
        "Begun": _when(meta.at),
        "Forked from": meta.parent,
    }
    yield "".join(f"- {name}: {_code(value)}\n" for name, value in facts.items() if value) + "\n"


def _entry(entry: Entry) -> Iterator[str]:
    if compacted(entry) is not None:
        yield f"## Compacted{_at(entry)}\n\nFrom here on the conversation was this:\n\n"
        for message in messages_of([entry]):
            yield from _message(message, "")
    elif entry.type == "branch_summary":
        said = entry.data
        summary = said.get("summary") if isinstance(said, dict) else ""
        yield f"## Another way{_at(entry)}\n\n" + (f"{summary}\n\n" if summary else "")
    elif entry.type in ("user", "assistant", "tool_result", "custom_message"):
        try:
            message = messages.decode_message(entry.type, entry.raw)
        except codec.BAD_INPUT:
            yield f"## {entry.type}{_at(entry)}\n\n{fenced(bytes(entry.raw).decode(errors='replace'))}"
        else:
            yield from _message(message, _at(entry))


def _message(message: Message, at: str) -> Iterator[str]:
    if isinstance(message, UserMessage):
        yield f"## User{at}\n\n" + (f"{message.content}\n\n" if message.content else "")
        yield from map(_item, message.blocks)
    elif isinstance(message, AssistantMessage):
        yield f"## Assistant{at}\n\n"
        yield from map(_item, message.content)
        if message.error:
            yield f"**It failed:** {message.error}\n\n"
    else:
        yield from _result(message, at)


def _result(message: ToolResultMessage, at: str) -> Iterator[str]:
    yield f"### {'Error' if message.is_error else 'Result'} of {_code(message.tool_name or message.tool_call_id)}{at}\n\n"
    for item in message.content:
        yield fenced(item.text) if isinstance(item, Text) else _item(item)


def _item(item: Item) -> str:
    match item:
        case Text():
            return f"{item.text}\n\n"
        case Thinking():
            # A blank line on either side, or it would not be read as Markdown; no tag in it may end the fold.
            thought = item.thinking.replace("</details", "<\\/details")
            return f"<details><summary>Thinking</summary>\n\n{thought}\n\n</details>\n\n"
        case Call():
            arguments = msgspec.json.format(codec.encode(item.arguments)[:-1], indent=2).decode()
            return f"### Calls {_code(item.name)}\n\n{fenced(arguments, 'json')}"
        case Image():
            return f"*An image ({_line(item.mime_type)}, {len(item.data) * 3 // 4:,} bytes)*\n\n"
        case Unknown():
            return fenced(bytes(item.raw).decode(errors="replace"), "json")


def fenced(text: str, language: str = "") -> str:
    """A code block whose fence is longer than any in the text."""
    fence = "`" * max(3, 1 + max(map(len, _TICKS.findall(text)), default=0))
    return f"{fence}{language}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}\n\n"


def _code(text: str) -> str:
    """Within a line, as it is."""
    text = _line(text)
    ticks = "`" * (1 + max(map(len, _TICKS.findall(text)), default=0))
    space = " " if len(ticks) > 1 else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def _line(text: str) -> str:
    return " ".join(text.split())


def _at(entry: Entry) -> str:
    return f" · {when}" if (when := _when(entry.at)) else ""


def _when(at: float) -> str:
    if not at:
        return ""
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return ""

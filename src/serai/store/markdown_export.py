"""A session as a page to read: Markdown, what was said on the active path from its root, nothing of that cut.

A text is Markdown as it was written, unless it would spoil what follows it on the page: then it is shown as code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from serai.store import messages
from serai.store.entries import SessionEntry, SessionMeta
from serai.store.messages import (
    AssistantMessage,
    Item,
    StoredImage,
    StoredMessage,
    StoredText,
    StoredThinking,
    StoredToolCall,
    StoredUnknown,
    ToolResultMessage,
    UserMessage,
)
from serai.store.session_tree import compacted, messages_of
from serai.store.stored_session import StoredSession
from serai.wire import codec

_TICKS = re.compile("`+")
_FENCE = re.compile(r"(`{3,}|~{3,})([^`]*)$")
# Code within a line, and a plain link: what looks like a tag in these is none.
_TAME = re.compile(r"(?<![`\\])(`+)(?!`)[^`].*?(?<!`)\1(?!`)|<https?://[^\s<>]*>")
# A tag or a comment, which may hide all that follows; a fence within a list, of which only a parser knows where it ends.
_WILD = re.compile(r"<[!?/A-Za-z]|^[\s>*+\-\d.)]*(`{3}|~{3})")


def session_to_markdown(session: StoredSession) -> Iterator[str]:
    """Paragraph by paragraph; joined they are the page."""
    path = session.path()
    yield from _head(session.id, session.meta)
    for entry in path:
        yield from _entry(entry)


def _head(id: str, meta: SessionMeta) -> Iterator[str]:
    yield f"# {_inert(meta.title) or 'Session ' + id}\n\n"
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


def _entry(entry: SessionEntry) -> Iterator[str]:
    if compacted(entry) is not None:
        yield f"## Compacted{_at(entry)}\n\nFrom here on the conversation was this:\n\n"
        for message in messages_of([entry]):
            yield from _message(message, "")
    elif entry.type == "branch_summary":
        said = entry.data
        summary = said.get("summary") if isinstance(said, dict) else ""
        yield f"## Another way{_at(entry)}\n\n" + _text(str(summary or ""))
    elif entry.type in ("user", "assistant", "tool_result", "custom_message"):
        try:
            message = messages.decode_message(entry.type, entry.raw)
        except codec.BAD_INPUT:
            yield f"## {entry.type}{_at(entry)}\n\n{fenced(bytes(entry.raw).decode(errors='replace'))}"
        else:
            yield from _message(message, _at(entry))


def _message(message: StoredMessage, at: str) -> Iterator[str]:
    if isinstance(message, UserMessage):
        yield f"## User{at}\n\n" + _text(message.content)
        yield from map(_item, message.blocks)
    elif isinstance(message, AssistantMessage):
        yield f"## Assistant{at}\n\n"
        yield from map(_item, message.content)
        if message.error:
            yield (
                f"**It failed:** {_text(message.error)}"
                if _is_tame(message.error)
                else f"**It failed:**\n\n{fenced(message.error)}"
            )
    else:
        yield from _result(message, at)


def _result(message: ToolResultMessage, at: str) -> Iterator[str]:
    yield f"### {'Error' if message.is_error else 'Result'} of {_code(message.tool_name or message.tool_call_id)}{at}\n\n"
    for item in message.content:
        yield fenced(item.text) if isinstance(item, StoredText) else _item(item)


def _item(item: Item) -> str:
    match item:
        case StoredText():
            return _text(item.text)
        case StoredThinking():
            # As code, so that no tag in it ends the fold; a blank line on either side, or it would not be read as Markdown.
            return f"<details><summary>Thinking</summary>\n\n{fenced(item.thinking)}</details>\n\n"
        case StoredToolCall():
            arguments = msgspec.json.format(codec.encode(item.arguments)[:-1], indent=2).decode()
            return f"### Calls {_code(item.name)}\n\n{fenced(arguments, 'json')}"
        case StoredImage():
            return f"*An image ({_inert(item.mime_type)}, {len(item.data) * 3 // 4:,} bytes)*\n\n"
        case StoredUnknown():
            return fenced(bytes(item.raw).decode(errors="replace"), "json")


def _text(text: str) -> str:
    if not text:
        return ""
    return f"{text}\n\n" if _is_tame(text) else fenced(text)


def _is_tame(text: str) -> bool:
    """Whether all that it opens is closed when it ends. In doubt not: a parser of Markdown would be a long way to go."""
    fence = ""
    for line in re.split(r"\r\n|[\r\n]", text):
        found = _FENCE.match(line)
        if fence:
            if found and found[1].startswith(fence) and not found[2].strip():
                fence = ""
            elif not found and _FENCE.match(line.lstrip()):  # it may end here
                return False
        elif found:
            fence = found[1]
        elif _WILD.search(_TAME.sub("", line)):
            return False
    return not fence


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


def _inert(text: str) -> str:
    return _line(text).replace("<", "&lt;")


def _line(text: str) -> str:
    return " ".join(text.split())


def _at(entry: SessionEntry) -> str:
    return f" · {when}" if (when := _when(entry.at)) else ""


def _when(at: float) -> str:
    if not at:
        return ""
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return ""

"""A session as a page to read: Markdown, what was said on the active path from its root, nothing of that cut.

A text is Markdown as it was written, unless it would spoil what follows it on the page: then it is shown as code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from serai.store import messages
from serai.store import messages as stored
from serai.store.entries import SessionEntry, SessionMeta
from serai.store.session_tree import decode_compact, decode_messages
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
    path = session.read_path()
    yield from _render_head(session.id, session.meta)
    for entry in path:
        yield from _render_entry(entry)


def _render_head(id: str, meta: SessionMeta) -> Iterator[str]:
    yield f"# {_escape_tags(meta.title) or 'Session ' + id}\n\n"
    facts = {
        "Session": id,
        "Folder": meta.cwd,
        "Agent": meta.agent,
        "The agent's own id": meta.agent_session,
        "Model": meta.model,
        "Begun": _format_time(meta.at),
        "Forked from": meta.parent,
    }
    yield "".join(f"- {name}: {_format_code(value)}\n" for name, value in facts.items() if value) + "\n"


def _render_entry(entry: SessionEntry) -> Iterator[str]:
    if decode_compact(entry) is not None:
        yield f"## Compacted{_format_time_suffix(entry)}\n\nFrom here on the conversation was this:\n\n"
        for message in decode_messages([entry]):
            yield from _render_message(message, "")
    elif entry.type == "branch_summary":
        said = entry.data
        summary = said.get("summary") if isinstance(said, dict) else ""
        yield f"## Another way{_format_time_suffix(entry)}\n\n" + _render_text(str(summary or ""))
    elif entry.type in ("user", "assistant", "tool_result", "custom_message"):
        try:
            message = messages.decode_message(entry.type, entry.raw)
        except codec.BAD_INPUT:
            yield f"## {entry.type}{_format_time_suffix(entry)}\n\n{fence_text(bytes(entry.raw).decode(errors='replace'))}"
        else:
            yield from _render_message(message, _format_time_suffix(entry))


def _render_message(message: stored.StoredMessage, at: str) -> Iterator[str]:
    if isinstance(message, stored.UserMessage):
        yield f"## User{at}\n\n" + _render_text(message.content)
        yield from map(_render_item, message.blocks)
    elif isinstance(message, stored.AssistantMessage):
        yield f"## Assistant{at}\n\n"
        yield from map(_render_item, message.content)
        if message.error:
            yield (
                f"**It failed:** {_render_text(message.error)}"
                if _is_tame(message.error)
                else f"**It failed:**\n\n{fence_text(message.error)}"
            )
    else:
        yield from _render_result(message, at)


def _render_result(message: stored.ToolResultMessage, at: str) -> Iterator[str]:
    yield f"### {'Error' if message.is_error else 'Result'} of {_format_code(message.tool_name or message.tool_call_id)}{at}\n\n"
    for item in message.content:
        yield fence_text(item.text) if isinstance(item, stored.StoredText) else _render_item(item)


def _render_item(item: stored.Item) -> str:
    match item:
        case stored.StoredText():
            return _render_text(item.text)
        case stored.StoredThinking():
            # As code, so that no tag in it ends the fold; a blank line on either side, or it would not be read as Markdown.
            return f"<details><summary>Thinking</summary>\n\n{fence_text(item.thinking)}</details>\n\n"
        case stored.StoredToolCall():
            arguments = msgspec.json.format(codec.encode(item.arguments)[:-1], indent=2).decode()
            return f"### Calls {_format_code(item.name)}\n\n{fence_text(arguments, 'json')}"
        case stored.StoredImage():
            return f"*An image ({_escape_tags(item.mime_type)}, {len(item.data) * 3 // 4:,} bytes)*\n\n"
        case stored.StoredUnknown():
            return fence_text(bytes(item.raw).decode(errors="replace"), "json")


def _render_text(text: str) -> str:
    if not text:
        return ""
    return f"{text}\n\n" if _is_tame(text) else fence_text(text)


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


def fence_text(text: str, language: str = "") -> str:
    """A code block whose fence is longer than any in the text."""
    fence = "`" * max(3, 1 + max(map(len, _TICKS.findall(text)), default=0))
    return f"{fence}{language}\n{text}{'' if text.endswith(chr(10)) else chr(10)}{fence}\n\n"


def _format_code(text: str) -> str:
    """Within a line, as it is."""
    text = _join_lines(text)
    ticks = "`" * (1 + max(map(len, _TICKS.findall(text)), default=0))
    space = " " if len(ticks) > 1 else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def _escape_tags(text: str) -> str:
    return _join_lines(text).replace("<", "&lt;")


def _join_lines(text: str) -> str:
    return " ".join(text.split())


def _format_time_suffix(entry: SessionEntry) -> str:
    return f" · {when}" if (when := _format_time(entry.at)) else ""


def _format_time(at: float) -> str:
    if not at:
        return ""
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return ""

"""Content blocks, messages and stream events, as the model's API has them and Claude Code passes them on (spec agents 2.5).

What is absent reads as its zero value. A block, an event or a delta of a type that is not here becomes an `Unknown…` that keeps its
JSON (design rule 4); the strict decoder never makes one, `reading` does.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

NOTHING = Raw()  # an opaque member that is absent


class _Part(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", gc=False):
    pass


# -- blocks -----------------------------------------------------------------------------------------------------------------------


class Text(_Part, frozen=True, tag="text", gc=False):
    text: str = ""
    citations: Raw = NOTHING


class Thinking(_Part, frozen=True, tag="thinking", gc=False):
    thinking: str = ""
    signature: str = ""


class RedactedThinking(_Part, frozen=True, tag="redacted_thinking", gc=False):
    data: str = ""


class ToolUse(_Part, frozen=True, tag="tool_use", gc=False):
    """A call of the model. In a `content_block_start` its input is still empty."""

    id: str = ""
    name: str = ""
    input: dict[str, Any] = {}


class ToolResult(_Part, frozen=True, tag="tool_result", gc=False):
    tool_use_id: str = ""
    content: str | list[Block] | None = None
    is_error: bool | None = None


class ServerToolUse(_Part, frozen=True, tag="server_tool_use", gc=False):
    """A tool that runs at the model's provider: nobody is asked."""

    id: str = ""
    name: str = ""
    input: dict[str, Any] = {}


class _ServerResult(_Part, frozen=True, gc=False):
    tool_use_id: str = ""
    content: Raw = NOTHING


class WebSearchToolResult(_ServerResult, frozen=True, tag="web_search_tool_result", gc=False):
    pass


class WebFetchToolResult(_ServerResult, frozen=True, tag="web_fetch_tool_result", gc=False):
    pass


class CodeExecutionToolResult(_ServerResult, frozen=True, tag="code_execution_tool_result", gc=False):
    pass


class BashCodeExecutionToolResult(_ServerResult, frozen=True, tag="bash_code_execution_tool_result", gc=False):
    pass


class TextEditorCodeExecutionToolResult(_ServerResult, frozen=True, tag="text_editor_code_execution_tool_result", gc=False):
    pass


class ToolSearchToolResult(_ServerResult, frozen=True, tag="tool_search_tool_result", gc=False):
    pass


class AdvisorToolResult(_ServerResult, frozen=True, tag="advisor_tool_result", gc=False):
    pass


class ContainerUpload(_Part, frozen=True, tag="container_upload", gc=False):
    file_id: str = ""


class Image(_Part, frozen=True, tag="image", gc=False):
    source: Raw = NOTHING


class Document(_Part, frozen=True, tag="document", gc=False):
    source: Raw = NOTHING
    title: str | None = None


class UnknownBlock(_Part, frozen=True, tag="?", gc=False):
    """A block of another type, as it came."""

    kind: str = ""
    raw: Raw = NOTHING


Block = (
    Text
    | Thinking
    | RedactedThinking
    | ToolUse
    | ToolResult
    | ServerToolUse
    | WebSearchToolResult
    | WebFetchToolResult
    | CodeExecutionToolResult
    | BashCodeExecutionToolResult
    | TextEditorCodeExecutionToolResult
    | ToolSearchToolResult
    | AdvisorToolResult
    | ContainerUpload
    | Image
    | Document
    | UnknownBlock
)


# -- messages ---------------------------------------------------------------------------------------------------------------------


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Tokens of a message, or of a turn in a result.

    Each frame of a message tells the same ones again: never sum them (spec agents 2.10).
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class Message(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The model's. Each frame has one finished block of it, all of them the same id (spec agents 2.10)."""

    id: str = ""
    role: str = ""
    model: str = ""
    content: list[Block] = []
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: Usage | None = None


class UserMessage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    role: str = ""
    content: str | list[Block] = ""


# -- stream events ----------------------------------------------------------------------------------------------------------------


class TextDelta(_Part, frozen=True, tag="text_delta", gc=False):
    """It and two others are a piece of something: that is their `text`, whatever the wire calls it."""

    text: str = ""


class ThinkingDelta(_Part, frozen=True, tag="thinking_delta", gc=False):
    text: str = msgspec.field(default="", name="thinking")


class SignatureDelta(_Part, frozen=True, tag="signature_delta", gc=False):
    signature: str = ""


class InputJsonDelta(_Part, frozen=True, tag="input_json_delta", gc=False):
    text: str = msgspec.field(default="", name="partial_json")


class CitationsDelta(_Part, frozen=True, tag="citations_delta", gc=False):
    citation: Raw = NOTHING


class UnknownDelta(_Part, frozen=True, tag="?", gc=False):
    kind: str = ""
    raw: Raw = NOTHING


Delta = TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta | CitationsDelta | UnknownDelta


class MessageStart(_Part, frozen=True, tag="message_start", gc=False):
    message: Message = Message()


class ContentBlockStart(_Part, frozen=True, tag="content_block_start", gc=False):
    index: int = 0
    content_block: Block = UnknownBlock()


class ContentBlockDelta(_Part, frozen=True, tag="content_block_delta", gc=False):
    index: int = 0
    delta: Delta = UnknownDelta()


class ContentBlockStop(_Part, frozen=True, tag="content_block_stop", gc=False):
    index: int = 0


class Stop(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    stop_reason: str | None = None
    stop_sequence: str | None = None


class MessageDelta(_Part, frozen=True, tag="message_delta", gc=False):
    """Why the message ends, and its tokens: the last word on both."""

    delta: Stop = Stop()
    usage: Usage | None = None


class MessageStop(_Part, frozen=True, tag="message_stop", gc=False):
    pass


class Ping(_Part, frozen=True, tag="ping", gc=False):
    pass


class StreamError(_Part, frozen=True, tag="error", gc=False):
    error: Raw = NOTHING


class UnknownPart(_Part, frozen=True, tag="?", gc=False):
    """A stream event of another type, as it came."""

    kind: str = ""
    raw: Raw = NOTHING


StreamPart = (
    MessageStart
    | ContentBlockStart
    | ContentBlockDelta
    | ContentBlockStop
    | MessageDelta
    | MessageStop
    | Ping
    | StreamError
    | UnknownPart
)

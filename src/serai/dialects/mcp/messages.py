"""What goes over an MCP wire inside JSON-RPC: parameters, results and content blocks, as far as tools need them.

Fields that we only pass on or only look at by chance are `Any`: a client of tomorrow must not fail for them (design rule 4).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

# Those that begin with `initialize`, newest first. The one of 2026-07-28 does not: its clients go back to these when they are told
# that there is no such method.
VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
NEWEST = VERSIONS[0]

PARSE_ERROR = -32700
INVALID_PARAMS = -32602

TOOL_USE = "claudecode/toolUseId"  # in `_meta` of a call: the model's id of it, as Claude Code tells it

LOADED = "anthropic/alwaysLoad"  # in `_meta` of a tool: whether Claude Code tells the model of it before it searches


class Method(StrEnum):
    INITIALIZE = "initialize"
    PING = "ping"
    LIST = "tools/list"
    CALL = "tools/call"
    INITIALIZED = "notifications/initialized"
    CANCELLED = "notifications/cancelled"
    CHANGED = "notifications/tools/list_changed"


CANCELLED = ("notifications/cancelled", "requestId")  # the notification, and the member that has the id


class _Wire(msgspec.Struct, rename="camel", omit_defaults=True):
    """Members that are not there are not written."""


class Implementation(_Wire):
    """Who speaks."""

    name: str = ""
    version: str = ""
    title: str = ""


class InitializeParams(_Wire):
    protocol_version: str
    capabilities: Any = msgspec.field(default_factory=dict)
    client_info: Any = None


class InitializeResult(msgspec.Struct, frozen=True, rename="camel"):
    """Required members are written also when they are empty."""

    protocol_version: str
    capabilities: Any
    server_info: Any
    instructions: str | msgspec.UnsetType | None = msgspec.UNSET


class ListParams(_Wire):
    cursor: str | None = None


class Tool(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    description: str | None = ""
    input_schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object"})
    meta: Any = msgspec.field(name="_meta", default=msgspec.UNSET)


class ListResult(msgspec.Struct, frozen=True, rename="camel"):
    tools: list[Tool]
    next_cursor: str | msgspec.UnsetType | None = msgspec.UNSET


class CallParams(_Wire):
    name: str
    arguments: dict[str, Any] | None = None
    meta: Any = msgspec.field(name="_meta", default=None)


class CallResult(msgspec.Struct, frozen=True, rename="camel"):
    """`content` are plain objects: each has a `type`, and there are more of these than we know."""

    content: list[Any]
    is_error: bool | msgspec.UnsetType | None = msgspec.UNSET


# -- content that our own words have no block for; it is checked before it goes out, since a client drops a whole result for one


class Audio(_Wire, tag="audio", tag_field="type"):
    data: str
    mime_type: str


class Resource(_Wire, tag="resource", tag_field="type"):
    resource: dict[str, Any]


class Link(_Wire, tag="resource_link", tag_field="type"):
    uri: str
    name: str


Carried = Audio | Resource | Link

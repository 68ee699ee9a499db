"""The types of seed 002's permissions, with its JSON names (spec agents 1.16); `permitting` decides with them.

The default mode is `manual` here; the seed's `auto` has to be chosen (design rule 7). Durations are nanoseconds, as the seed's are.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = [
    "SECOND",
    "AskRequest",
    "AskResult",
    "PermissionConfig",
    "PermissionRequest",
    "PermissionResponse",
    "PermissionResult",
]

SECOND = 1_000_000_000
_ZERO = "0001-01-01T00:00:00Z"  # what the seed's language writes for a time that was never set


class PermissionConfig(msgspec.Struct, kw_only=True):
    """Every field is written, as the seed does; its empty lists come as null. `timeout` and `decision_duration` are nanoseconds."""

    default_mode: str = "manual"
    timeout: int = 3600 * SECOND
    enable_whitelist: bool = False
    whitelist: list[str] | None = []
    blacklist: list[str] | None = []
    remember_decisions: bool = True
    decision_duration: int = 24 * 3600 * SECOND


class _Wire(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Empty optional fields are left out; those that the seed always writes are required, or have a value of their own."""


class PermissionRequest(_Wire, kw_only=True):
    request_id: str
    agent_type: str
    tool_name: str
    input: dict[str, Any] | None
    timestamp: str = msgspec.field(default_factory=lambda: _ZERO)
    reason: str = ""
    session_id: str = ""
    bot_uuid: str = ""
    chat_id: str = ""
    platform: str = ""


class PermissionResponse(_Wire, kw_only=True):
    request_id: str
    approved: bool
    timestamp: str = msgspec.field(default_factory=lambda: _ZERO)
    reason: str = ""


class PermissionResult(_Wire, kw_only=True):
    """`updated_input` None: as it was asked. An empty one is written: it means other arguments, namely none."""

    approved: bool
    reason: str = ""
    updated_input: dict[str, Any] | None = None
    remember: bool = False


class AskRequest(_Wire, kw_only=True):
    """`type` is permission, question, confirmation or text_input."""

    id: str
    type: str
    agent_type: str
    platform: str
    chat_id: str
    bot_uuid: str
    session_id: str = ""
    tool_name: str = ""
    input: dict[str, Any] = {}
    message: str = ""
    call_id: str = ""
    reason: str = ""
    metadata: dict[str, Any] = {}


class AskResult(_Wire, kw_only=True):
    id: str
    approved: bool = False
    response: str = ""
    selection: dict[str, Any] = {}
    remember: bool = False
    reason: str = ""
    updated_input: dict[str, Any] = {}

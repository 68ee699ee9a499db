"""What the operator is told of an instance (spec yoi 3.7 to 3.9). `msgspec.to_builtins` gives the form that goes out.

What is absent is `null`. The enums are in PascalCase here, while those of manifests and grants are in snake_case.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

__all__ = [
    "CommandResult", "CommandStatus", "ConnectionState", "ConnectionStatus", "Counters", "Diagnostic", "DiagnosticKind",
    "DispatchReport", "InstanceStatus", "Lifecycle",
]  # fmt: skip


class Lifecycle(Enum):
    READY = "Ready"  # a plugin of the world `tool`, for ever
    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    FAILED = "Failed"


class DiagnosticKind(Enum):
    LIFECYCLE = "Lifecycle"
    INVALID_EVENT = "InvalidEvent"
    QUEUE_FULL = "QueueFull"
    DISPATCH_TIMEOUT = "DispatchTimeout"
    DISPATCH_FAILED = "DispatchFailed"
    SERVICE_UNAVAILABLE = "ServiceUnavailable"
    SERVICE_FAILED = "ServiceFailed"
    SERVICE_STOPPED = "ServiceStopped"
    COMMAND_RECORDED = "ServiceOutputCommandRecorded"
    COMMAND_REJECTED = "ServiceOutputCommandRejected"
    COMMAND_UNSUPPORTED = "ServiceOutputCommandUnsupported"
    WEBSOCKET_CONNECTED = "ServiceWebSocketConnected"
    WEBSOCKET_CLOSED = "ServiceWebSocketClosed"
    WEBSOCKET_ERROR = "ServiceWebSocketError"
    WEBSOCKET_SEND_FAILED = "ServiceWebSocketSendFailed"


class CommandStatus(Enum):
    RECORDED = "Recorded"
    REJECTED = "Rejected"
    UNSUPPORTED = "Unsupported"


class ConnectionState(Enum):
    CONNECTING = "Connecting"
    CONNECTED = "Connected"
    CLOSED = "Closed"
    FAILED = "Failed"


class Diagnostic(msgspec.Struct, frozen=True):
    kind: DiagnosticKind
    state: Lifecycle  # the instance's, when this was noted
    message: str


class Counters(msgspec.Struct, frozen=True):
    """Of events. What timed out has failed as well."""

    enqueued: int = 0
    dispatched: int = 0
    rejected: int = 0
    failed: int = 0
    timed_out: int = 0


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one output command. The ids and the kind are null where its envelope could not be read."""

    correlation_id: str | None = None
    source_event_id: str | None = None
    command_id: str | None = None
    kind: str | None = None
    status: CommandStatus
    message: str
    recorded_at: str


class ConnectionStatus(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    ingress_name: str
    state: ConnectionState = ConnectionState.CONNECTING
    last_frame_at: str | None = None
    last_error: str | None = None
    received_text_frames: int = 0
    sent_text_frames: int = 0
    queue_drops: int = 0
    send_failures: int = 0


class InstanceStatus(msgspec.Struct, frozen=True, kw_only=True):
    plugin_ref: str
    lifecycle: Lifecycle
    component_status: Any = None
    queue_depth: int = 0
    queue_capacity: int
    last_error: str | None = None
    dispatch_counters: Counters
    output_command_results: tuple[CommandResult, ...] = ()
    websocket_connections: tuple[ConnectionStatus, ...] = ()  # by url
    diagnostics: tuple[Diagnostic, ...] = ()
    restarts: int = 0  # ours (spec yoi 13.5)


class DispatchReport(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one event."""

    plugin_ref: str
    ingress: str
    accepted: bool = True
    output: Any
    output_command_results: tuple[CommandResult, ...] = ()  # of this event alone
    queue_depth: int
    dispatch_counters: Counters
    diagnostics: tuple[Diagnostic, ...] = ()

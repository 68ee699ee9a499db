"""What the operator sees of an instance (spec yoi 3.7 to 3.9). `msgspec.to_builtins` gives the form that goes out.

An absent value is `null`. The enums are in PascalCase here, while those of manifests and grants are in snake_case.
`ConnectionTable` has the websockets that the host keeps open for a plugin (spec yoi 16).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import msgspec

from serai.plugins.untrusted_text import operator_text


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


MOST = 4  # of one plugin; one that failed keeps its place


class ConnectionTable:
    """By normalised URL. `note` keeps what should be remembered."""

    def __init__(self, note: Callable[[DiagnosticKind, str], None]) -> None:
        self._note = note
        self._all: dict[str, ConnectionStatus] = {}

    def list_statuses(self) -> tuple[ConnectionStatus, ...]:
        return tuple(self._all[url] for url in sorted(self._all))

    def get(self, url: str) -> ConnectionStatus | None:
        return self._all.get(url)

    def clear(self) -> None:
        """A new life begins without them."""
        self._all.clear()

    def reserve(self, url: str, ingress_name: str) -> bool:
        """The first time or again. False: all places are taken, or this URL is another ingress's."""
        known = self._all.get(url)
        if known is None:
            if len(self._all) >= MOST:
                return False
            self._all[url] = ConnectionStatus(url=url, ingress_name=ingress_name)
            return True
        if known.ingress_name == ingress_name:
            self._change(url, state=ConnectionState.CONNECTING)
        return known.ingress_name == ingress_name

    def mark_opened(self, url: str) -> None:
        self._change(url, state=ConnectionState.CONNECTED)
        self._note(DiagnosticKind.WEBSOCKET_CONNECTED, f"host-owned WebSocket connected to {url}")

    def count_received(self, url: str, now: str) -> None:
        one = self._all[url]
        self._change(url, received_text_frames=one.received_text_frames + 1, last_frame_at=now)

    def count_dropped(self, url: str) -> None:
        """What came in could not be queued."""
        self._change(url, queue_drops=self._all[url].queue_drops + 1)

    def count_sent(self, url: str) -> None:
        self._change(url, sent_text_frames=self._all[url].sent_text_frames + 1)

    def record_send_failure(self, url: str, why: str) -> None:
        one = self._all[url]
        self._change(url, send_failures=one.send_failures + 1, last_error=operator_text(why))
        self._note(DiagnosticKind.WEBSOCKET_SEND_FAILED, f"host-owned WebSocket send to {url} failed: {why}")

    def mark_closed(self, url: str, why: str = "closed by peer") -> None:
        self._change(url, state=ConnectionState.CLOSED)
        self._note(DiagnosticKind.WEBSOCKET_CLOSED, f"host-owned WebSocket for {url}: {why}")

    def mark_failed(self, url: str, why: str) -> None:
        self._change(url, state=ConnectionState.FAILED, last_error=operator_text(why))
        self._note(DiagnosticKind.WEBSOCKET_ERROR, f"host-owned WebSocket for {url}: {why}")

    def close_all(self) -> None:
        """The instance stops."""
        for url in self._all:
            self._change(url, state=ConnectionState.CLOSED)

    def _change(self, url: str, **changes: Any) -> None:
        self._all[url] = msgspec.structs.replace(self._all[url], **changes)

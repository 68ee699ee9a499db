"""Output commands: what a plugin asks the host to do after an event (spec yoi 3.6 and 15.4).

`check` looks at all of them before the first one runs: one that is refused refuses the batch (spec yoi 21.14). It does nothing
else, so what it lets through is carried out by the host adapter, in order, each with a result of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from serai.dialects.yoi.messages import BadDocument, Event, Repeated, encode_json, find_repeated_key, strip_marks
from serai.dialects.yoi.status import CommandResult, CommandStatus
from serai.plain_text import utf8_size
from serai.plugins import authorization
from serai.plugins.grants import ResolvedPlugin
from serai.plugins.manifest import HostApi
from serai.plugins.untrusted_text import bound_text, is_timestamp, operator_text

MOST = 16  # commands in one answer
PAYLOAD = 16 * 1024  # bytes of JSON
ID = 128  # bytes

T = TypeVar("T")
Kind = Literal["websocket_send", "host_request_dispatch", "diagnostic_status_update"]

# What the host adapter says when it carries them out (spec yoi 16, 3.6).
NOT_DISPATCHED = "host_request_dispatch passed its checks, but this host does not send requests for a plugin after an event"
UPDATED = "diagnostic status updated"

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


class WebSocketSend(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: str
    text: str


class RequestDispatch(msgspec.Struct, frozen=True):
    descriptor: Any  # as `request` takes it (spec yoi 4.1)


class StatusUpdate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    message: str | None = None
    status: Any | UnsetType = UNSET


Payload = WebSocketSend | RequestDispatch | StatusUpdate


class _Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    correlation_id: str
    source_event_id: str
    command_id: str
    kind: Kind
    payload: Any
    requested_at: str


class OutputCommand(msgspec.Struct, frozen=True, kw_only=True):
    """One that passed every check."""

    correlation_id: str
    source_event_id: str
    command_id: str
    kind: Kind
    payload: Payload
    requested_at: str

    def build_result(self, status: CommandStatus, message: str, now: str) -> CommandResult:
        return CommandResult(
            correlation_id=self.correlation_id, source_event_id=self.source_event_id, command_id=self.command_id, kind=self.kind,
            status=status, message=operator_text(message), recorded_at=now,
        )  # fmt: skip


class Batch(msgspec.Struct, frozen=True):
    """All of them, or none and why."""

    ready: tuple[OutputCommand, ...] = ()
    rejected: tuple[CommandResult, ...] = ()


def describe_sent(count: int, url: str) -> str:
    return f"websocket_send sent {count} bytes to {url}"


def describe_missing(url: str) -> str:
    return f"no host-owned WebSocket connection is active for {url}"


def describe_unconnected(url: str) -> str:
    return f"host-owned WebSocket connection is not connected for {url}"


def check(
    value: Any | UnsetType,
    *,
    event: Event,
    record: ResolvedPlugin,
    now: str,
    websocket: Callable[[str, str], str],
    request: Callable[[Any], str],
) -> Batch:
    """The `output_commands` of an answer to `event`; `websocket` and `request` give the reason of a refusal, or nothing."""
    if value is UNSET:
        return Batch()
    if not isinstance(value, list):
        return Batch(rejected=(_reject_malformed("service output_commands must be an array", now),))
    if len(value) > MOST:
        return Batch(rejected=(_reject_malformed(f"service output_commands exceeds {MOST} commands", now),))
    ready: list[OutputCommand] = []
    rejected: list[CommandResult] = []
    for item in value:
        try:
            envelope = _read(_Envelope, item)
        except BadDocument as error:
            rejected.append(_reject_malformed(f"malformed service output command envelope: {error}", now))
            continue
        try:
            ready.append(_check_command(envelope, event, record, websocket, request))
        except BadDocument as error:
            rejected.append(_reject_command(envelope, str(error), now))
    return Batch(rejected=tuple(rejected)) if rejected else Batch(tuple(ready))


def _check_command(
    envelope: _Envelope, event: Event, record: ResolvedPlugin, websocket: Callable[[str, str], str], request: Callable[[Any], str]
) -> OutputCommand:
    """The rest of spec yoi 15.4, step 2, in its order."""
    for name in ("correlation_id", "source_event_id", "command_id"):
        text: str = getattr(envelope, name)
        if not 1 <= utf8_size(text) <= ID or _CONTROL.search(text):
            raise BadDocument(f"{name} must be 1 to {ID} bytes without control characters")
    if envelope.source_event_id != event.correlation_id:
        raise BadDocument("source_event_id must match the ingress event correlation_id")
    if not is_timestamp(envelope.requested_at):
        raise BadDocument(f"requested_at must be RFC3339: {bound_text(envelope.requested_at, 64)}")
    if utf8_size(encode_json(envelope.payload)) > PAYLOAD:
        raise BadDocument(f"payload exceeds {PAYLOAD} bytes")
    payload = _read_payload(envelope)
    _check_grant(envelope.kind, payload, record, websocket, request)
    return OutputCommand(
        correlation_id=envelope.correlation_id, source_event_id=envelope.source_event_id, command_id=envelope.command_id,
        kind=envelope.kind, payload=payload, requested_at=envelope.requested_at,
    )  # fmt: skip


def _read_payload(envelope: _Envelope) -> Payload:
    try:
        match envelope.kind:
            case "websocket_send":
                return _read(WebSocketSend, envelope.payload)
            case "diagnostic_status_update":
                update = _read(StatusUpdate, envelope.payload)
                return msgspec.structs.replace(update, status=strip_marks(update.status))
            case "host_request_dispatch":
                return _read_descriptor(envelope.payload)
    except BadDocument as error:
        raise BadDocument(f"malformed {envelope.kind} payload: {error}") from None


def _read_descriptor(value: Any) -> RequestDispatch:
    if (key := find_repeated_key(value)) is not None:  # nothing in it is free
        raise BadDocument(f"duplicate field `{key}`")
    return RequestDispatch(value)


def _check_grant(
    kind: Kind, payload: Payload, record: ResolvedPlugin, websocket: Callable[[str, str], str], request: Callable[[Any], str]
) -> None:
    """First the interface, then where it is to go. A status update needs no grant."""
    if isinstance(payload, StatusUpdate):
        return
    api: HostApi = "websocket" if isinstance(payload, WebSocketSend) else "request"
    if reason := authorization.find_api_refusal(record, api):
        raise BadDocument(f"{kind} not granted: {reason}")
    denied = websocket(payload.url, payload.text) if isinstance(payload, WebSocketSend) else request(payload.descriptor)
    if denied:
        raise BadDocument(f"{kind} target denied: {denied}")


def _read(type_: type[T], value: Any) -> T:
    if isinstance(value, Repeated):
        raise BadDocument(f"duplicate field `{value.key}`")
    try:
        return msgspec.convert(value, type_)
    except (ValueError, RecursionError) as error:
        raise BadDocument(str(error)) from None


def _reject_malformed(message: str, now: str) -> CommandResult:
    return CommandResult(status=CommandStatus.REJECTED, message=operator_text(message), recorded_at=now)


def _reject_command(envelope: _Envelope, message: str, now: str) -> CommandResult:
    """With the ids as they came, but of a bearable length: they may be what is wrong."""
    return CommandResult(
        correlation_id=bound_text(envelope.correlation_id, ID), source_event_id=bound_text(envelope.source_event_id, ID),
        command_id=bound_text(envelope.command_id, ID), kind=envelope.kind,
        status=CommandStatus.REJECTED, message=operator_text(message), recorded_at=now,
    )  # fmt: skip

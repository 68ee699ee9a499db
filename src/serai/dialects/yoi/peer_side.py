"""The plugin's side (spec yoi 20): the documents it answers with, kept within their bounds, and the edge that lets nothing out.

This runs inside a component, so it needs the standard library and nothing else. There is no clock in there, no randomness and
nobody who would catch an exception: one that leaves an export is a trap, and the end of the instance.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

OUTPUT = 65_536  # bytes of any document
SUMMARY = 1024
CONTENT = OUTPUT - SUMMARY - 4096
MESSAGE = 4096
ID = 128
EPOCH = "1970-01-01T00:00:00Z"
COMPLETED = "tool completed"
NOT_STARTED = "plugin instance has not been started"
CODES = ("invalid_input", "invalid_output", "serialization", "denied", "unsupported_tool", "failed")

Command = dict[str, Any]
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


class ToolError(Exception):
    """What a tool answers when it cannot do what it was asked for; an ordinary output for the host (spec yoi 3.3)."""

    def __init__(self, code: str, message: str, details: Any = None) -> None:
        super().__init__(message)
        self.code = code if code in CODES else "failed"
        self.message = message
        self.details = details


class Output(NamedTuple):
    """A summary of the author's own beside the content."""

    summary: str
    content: str | None = None


class Event(NamedTuple):
    """What came in at an ingress, with what an absent field means (spec yoi 3.4)."""

    kind: str
    source: str
    ingress_name: str = ""
    payload: Any = None
    created_at: str = ""
    attempt: int = 1
    correlation_id: str = ""

    @property
    def reply_url(self) -> str:
        """Where an answer to a websocket's event goes."""
        return self.source.removeprefix("websocket:")


# -- tools ----------------------------------------------------------------------------------------------------------------------


def read_input(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ToolError("invalid_input", f"input is not valid JSON: {error}") from None


def build_tool_output(summary: str = "", content: str | None = None) -> str:
    """Cut to fit. What is escaped grows, so the whole is measured again, and the content cut until it fits."""
    summary = _cut(summary if summary.strip() else COMPLETED, SUMMARY)
    content = None if content is None else _cut(content, CONTENT)
    text = _encode({"summary": summary, "content": content})
    while content and _count_bytes(text) > OUTPUT:
        # What is over is at most six times what must go: a sixth of it is never too much, and a few rounds are enough.
        content = _cut(content, _count_bytes(content) - max((_count_bytes(text) - OUTPUT) // 6, 1))
        text = _encode({"summary": summary, "content": content})
    return text


def build_json_output(value: Any, summary: str = "") -> str:
    """A structured result, as JSON inside `content`. Half of one is none: what is too large is an error, never cut."""
    content = _encode(value)
    if _count_bytes(content) > CONTENT:
        raise ToolError("invalid_output", f"the result has {_count_bytes(content)} bytes of JSON, {CONTENT} are the most")
    text = _encode({"summary": _cut(summary if summary.strip() else COMPLETED, SUMMARY), "content": content})
    if _count_bytes(text) > OUTPUT:
        raise ToolError("invalid_output", f"the output has {_count_bytes(text)} bytes of JSON, {OUTPUT} are the most")
    return text


def build_error_output(code: str, message: str, details: Any = None) -> str:
    """`details` that are too large, or no JSON, are left out."""
    code = code if code in CODES else "failed"
    error = {"code": code, "message": _cut(message, MESSAGE)}
    if details is not None:
        try:
            return build_json_output({"error": {**error, "details": details}}, f"tool error: {code}")
        except ToolError:
            pass
    return build_json_output({"error": error}, f"tool error: {code}")


def encode_answer(value: Any) -> str:
    """What a tool's function gave back: text, an `Output`, nothing, or any JSON value."""
    if isinstance(value, Output):
        return build_tool_output(*value)
    return build_tool_output("", value) if value is None or isinstance(value, str) else build_json_output(value)


# -- the instance ---------------------------------------------------------------------------------------------------------------


def build_status(state: str = "ready", data: Any = None) -> str:
    return _encode_whole({"state": state, "data": data})


def build_error(message: str) -> str:
    return _encode({"error": {"message": _cut(message, MESSAGE)}})


def read_event(text: str) -> Event:
    value = json.loads(text)
    if not isinstance(value, dict) or not {"kind", "source"} <= value.keys():
        raise ValueError("an ingress event is an object with `kind` and `source`")
    return Event(**{name: value[name] for name in Event._fields if name in value})


def build_service_output(commands: Sequence[Command] = (), *, accepted: bool = True, data: Any = None) -> str:
    document: dict[str, Any] = {"accepted": accepted, "data": data}
    return _encode_whole({**document, "output_commands": list(commands)} if commands else document)


def build_command(event: Event, command_id: str, kind: str, payload: Mapping[str, Any]) -> Command:
    """One output command. Its moment is the event's: there is no clock in here."""
    if not command_id or not event.correlation_id:
        raise ValueError("an output command needs an id of its own and an event that has one")
    joined = _encode_utf8(_CONTROL.sub("-", f"{event.correlation_id}:{command_id}"))
    return {
        "correlation_id": joined[:ID].decode(errors="ignore"),
        "source_event_id": event.correlation_id,
        "command_id": command_id,
        "kind": kind,
        "payload": dict(payload),
        "requested_at": event.created_at or EPOCH,
    }


def build_websocket_send(event: Event, command_id: str, text: str, url: str = "") -> Command:
    """To where the event came from, unless another URL is given."""
    return build_command(event, command_id, "websocket_send", {"url": url or event.reply_url, "text": text})


def build_status_update(event: Event, command_id: str, *, message: str | None = None, status: Any = None) -> Command:
    payload = {"message": message, "status": status}
    given = {key: value for key, value in payload.items() if value is not None}
    return build_command(event, command_id, "diagnostic_status_update", given)


class PeerSide:
    """The exports of both worlds over an object of the author's, which `make` makes of the configuration.

    The object has `tool(name, value)`, and may have `ingress(name, event)`, `status()` and `stop()`. Whatever it raises becomes a
    document; whatever it gives back becomes one too (`encode_answer`, and below).
    """

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make = make
        self._made: Any = None
        self._there = False

    def start(self, config_json: str) -> str:
        try:
            self._made, self._there = self._make(_parse_config(config_json)), True
            return build_status()
        except BaseException as error:
            return build_error(_describe_error(error))

    def call(self, tool_name: str, input_json: str) -> str:
        """The world `tool`, in which nobody calls `start`."""
        if not self._there:
            try:
                self._made, self._there = self._make(None), True
            except BaseException as error:
                return build_error_output("failed", _describe_error(error))
        return self.handle_tool(tool_name, input_json)

    def handle_tool(self, name: str, input_json: str) -> str:
        if not self._there:
            return build_error(NOT_STARTED)
        try:
            return encode_answer(self._made.tool(name, read_input(input_json)))
        except ToolError as error:
            return build_error_output(error.code, error.message, error.details)
        except BaseException as error:
            return build_error_output("failed", _describe_error(error))

    def handle_ingress(self, name: str, event_json: str) -> str:
        """The object gives nothing, a list of commands, or the whole answer."""

        def handle() -> str:
            given = self._made.ingress(name, read_event(event_json))
            return _encode_whole(given) if isinstance(given, dict) else build_service_output(given or ())

        return self._run_guarded(handle)

    def status(self) -> str:
        return self._run_guarded(lambda: _answer_state(self._made, "status", "ready"))

    def stop(self) -> str:
        """What could not be stopped is still there."""

        def stop_guest() -> str:
            text = _answer_state(self._made, "stop", "stopped")
            self._made, self._there = None, False
            return text

        return self._run_guarded(stop_guest)

    def _run_guarded(self, work: Callable[[], str]) -> str:
        if not self._there:
            return build_error(NOT_STARTED)
        try:
            return work()
        except BaseException as error:
            return build_error(_describe_error(error))


def _answer_state(made: Any, name: str, usual: str) -> str:
    """The object gives nothing, a state, or the whole document."""
    method = getattr(made, name, None)
    given = None if method is None else method()
    return _encode_whole(given) if isinstance(given, dict) else build_status(given or usual)


def _parse_config(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# -- text -----------------------------------------------------------------------------------------------------------------------


def _encode_whole(document: Mapping[str, Any]) -> str:
    """A document that says nothing when it is cut."""
    text = _encode(document)
    if _count_bytes(text) > OUTPUT:
        raise ToolError("invalid_output", f"the answer has {_count_bytes(text)} bytes of JSON, {OUTPUT} are the most")
    return text


def _encode(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolError("serialization", f"the result has no JSON: {_describe_error(error)}") from None
    return _encode_utf8(text).decode()


def _encode_utf8(text: str) -> bytes:
    """Half of a surrogate pair has no UTF-8, and a component's string must be UTF-8."""
    return text.encode(errors="replace")


def _count_bytes(text: str) -> int:
    return len(_encode_utf8(text))


def _cut(text: str, most: int) -> str:
    """At most so many bytes, the mark that something is missing included."""
    data = _encode_utf8(text)
    return data.decode() if len(data) <= most else data[: max(most - 3, 0)].decode(errors="ignore") + "…"


def _describe_error(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

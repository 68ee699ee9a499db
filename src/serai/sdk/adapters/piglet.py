"""piglet from the extension's side, with the standard library alone (spec piglet 2 to 5 and 8.1).

The host speaks first. What a person is shown as the answer of a command are notifications before it here, which arrive in order
(spec piglet 2.5).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from serai.sdk import answers, events
from serai.sdk.adapters import jsonrpc
from serai.sdk.answers import (
    Allow,
    Answer,
    Block,
    Display,
    Failed,
    Image,
    Insert,
    OpenPanel,
    Prompt,
    ToolError,
    ToolResult,
    Verdict,
)
from serai.sdk.host_records import StreamRequest, build_record, fold_keys, to_camel
from serai.sdk.workers import CommandAnswer, InterceptAnswer, PendingAnswer, ToolAnswer

if TYPE_CHECKING:
    from serai.sdk.registrations import Registration, Registrations
    from serai.sdk.workers import PendingAnswer

UNKNOWN_METHOD, INVALID, FAILED = -32601, -32602, -32603

# What is registered, and what its name is called (spec piglet 4).
_REGISTER = {
    "tool": ("register/tool", "name"),
    "command": ("register/command", "name"),
    "prompt section": ("register/promptSection", "title"),
    "guard": ("register/interceptor", "name"),
    "event": ("register/eventHandler", "name"),
    "event handler": ("register/eventHandler", "name"),
    "shortcut": ("register/shortcut", "key"),
    "message hook": ("register/messageHook", "name"),
    "input transformer": ("register/inputTransformer", "name"),
    "compactor": ("register/compactor", "name"),
    "provider": ("register/provider", "api"),
}
_ALWAYS = ("description", "parameters", "content")  # also when they are empty
# What zot's events are made of; `session_start` is made without one, when the host has taken the extension in.
EVENTS = {
    "turn_start": ("EventAgentStart", "EventTurnStart"),  # the first only to count the second
    "turn_end": ("EventTurnEnd",),
    "tool_call": ("EventToolStart",),
    "assistant_message": ("EventStreamDone",),
}
_LEVELS = {"success": "info"}


class Piglet:
    dialect = "piglet"
    max_line = 4 * 1024 * 1024  # with its newline, both ways (spec piglet 2.2)
    host_first = True

    def __init__(self) -> None:
        self.requests = self
        self._goodbye = b""
        self._titles: dict[str, str] = {}  # of panels

    # -- what is said -----------------------------------------------------------------------------------------------------------

    def encode_opening(self, registry: Registrations) -> bytes:
        """All registrations, in the order in which they were written; the answer to initialize ends them (spec piglet 3)."""
        return b"".join(self.encode_registration(offer, registry) for offer in registry.offers)

    def encode_registration(self, offer: Registration, registry: Registrations) -> bytes:
        if offer.kind not in _REGISTER or (offer.kind == "event" and offer.name not in EVENTS):
            return b""
        method, key = _REGISTER[offer.kind]
        about = {"events": list(EVENTS[offer.name])} if offer.kind == "event" else offer.about
        given = {to_camel(name): value for name, value in about.items() if value or name in _ALWAYS}
        return jsonrpc.encode_notification(method, {key: offer.name or registry.name, **given})

    def list_unsupported(self, registry: Registrations) -> list[str]:
        """What cannot be offered here (spec piglet 4 has no word for it)."""
        stages = [stage for stage in ("turn_start", "assistant_message") if stage in registry.interceptors]
        keys = [panel.id for panel in registry.panels.values() if panel.handlers()]
        yoi = [kind for kind, there in (("services", registry.services), ("ingresses", registry.ingresses)) if there]
        return [
            *(f"it has no {kind}: they are left out" for kind in yoi),
            *(f"it asks nobody at {stage}, so that interceptor is never called" for stage in stages),
            *(f'it sends no keys of panels, so the handlers of the panel "{id}" are never called' for id in keys),
        ]

    def encode_tool_result(self, id: str, result: ToolResult) -> bytes:
        return jsonrpc.encode_result(id, self.build_content(result))

    def build_content(self, result: ToolResult) -> dict[str, Any]:
        errors = {"isError": result.is_error, "errorCode": result.code, "errorHint": result.hint}
        content = [_build_block(one) for one in result.content]
        return {"content": content, **{key: value for key, value in errors.items() if value}}

    def encode_command_answer(self, id: str, answer: Answer) -> bytes:
        shown = b""
        match answer:
            case Prompt(text=text):
                shown = jsonrpc.encode_notification("sendMessage", {"content": text})
            case Insert(text=text):
                shown = jsonrpc.encode_notification("setInputText", {"text": text})
            case Display(text=text):
                shown = jsonrpc.encode_notification("showMessage", {"text": text})
            case OpenPanel(id=panel, title=title, lines=lines, footer=footer):
                shown = self.render(panel, title, lines, footer)
            case Failed(text=text):
                return self.encode_error(id, FAILED, text or "it failed and gave no reason")
        return shown + jsonrpc.encode_result(id, {})

    def encode_verdict(self, id: str, verdict: Verdict) -> bytes:
        """A block is a result that the model reads; without a reason the host has its own words (spec piglet 5.3)."""
        if isinstance(verdict, Block):
            return jsonrpc.encode_result(id, {"allow": False, **({"preview": verdict.reason} if verdict.reason else {})})
        return jsonrpc.encode_result(id, {"allow": True, **({} if isinstance(verdict, Allow) else {"args": verdict.value})})

    def notify(self, level: str, message: str) -> bytes:
        return jsonrpc.encode_notification("notify", {"message": message, "level": _LEVELS.get(level, level)})

    def render(self, panel: str, title: str, lines: Sequence[str], footer: str) -> bytes:
        """A panel is an overlay, without keys; each time all of it is told, so it keeps its title here."""
        title = self._titles[panel] = title or self._titles.get(panel, "")
        content = "\n".join([*lines, *(["", footer] if footer else [])])
        return jsonrpc.encode_notification("showOverlay", {"key": panel, **({"title": title} if title else {}), "content": content})

    def close_panel(self, panel: str) -> bytes:
        return jsonrpc.encode_notification("closeOverlay", {"key": panel})

    def encode_shutdown_ack(self) -> bytes:
        return self._goodbye

    def encode_result(self, id: str, value: object) -> bytes:
        return jsonrpc.encode_result(id, value)

    def encode_error(self, id: str, code: int, message: str) -> bytes:
        return jsonrpc.encode_error(id, code, message)

    def encode_request(self, number: int, method: str, params: dict[str, Any]) -> bytes:
        return jsonrpc.encode_request(number, method, params)

    def encode_notification(self, method: str, params: dict[str, Any]) -> bytes:
        return jsonrpc.encode_notification(method, params)

    def get_answer_types(self) -> dict[str, type[PendingAnswer]]:

        return KINDS

    # -- what is heard ----------------------------------------------------------------------------------------------------------

    def parse_line(self, line: bytes) -> Iterator[events.Heard]:
        if not line.strip():
            return
        try:
            message = jsonrpc.parse_line(line)
        except jsonrpc.BadLine as error:
            if error.unread:
                yield from self._report_unread(line[:4096], str(error))
            else:
                yield events.Unrecognized(str(error))
            return
        if message.id is None:
            yield from _parse_notification(message)
        elif not message.method:
            yield from _parse_reply(message)
        elif isinstance(message.id, int | str) and not isinstance(message.id, bool):
            yield self._parse_request(json.dumps(message.id), message.method, message.params)
        else:
            yield events.Unrecognized(f"malformed line: its id is neither a whole number nor a text: {jsonrpc.shorten_line(line)}")

    def parse_oversized(self, head: bytes, size: int) -> Iterator[events.Heard]:
        return self._report_unread(head, f"it has {size} bytes; this side reads {self.max_line}")

    def _report_unread(self, head: bytes, why: str) -> Iterator[events.Heard]:
        """Whoever waits for it is told, if its head shows who that is."""
        members = jsonrpc.parse_head(head)
        id = members.get("id", "null")
        try:
            number = json.loads(id)
        except ValueError:
            number = None
        if not isinstance(number, int | str) or isinstance(number, bool):  # nothing that an answer could carry: 1e999 is no JSON
            yield events.Unrecognized(f"a line was skipped: {why}: {jsonrpc.shorten_line(head)}")
        elif "method" in members or "params" in members:
            yield events.UnsupportedRequest(id, FAILED, f"the request could not be read: {why}")
        elif isinstance(number, int):
            yield events.ReplyReceived(number, None, (FAILED, f"the answer could not be read: {why}"))

    def _parse_request(self, id: str, method: str, params: Any) -> events.Heard:
        if method == "shutdown":
            self._goodbye = jsonrpc.encode_result(id, None)
            return events.ShutdownRequested()
        shape = _REQUESTS.get(method)
        if shape is None:
            return events.UnsupportedRequest(id, UNKNOWN_METHOD, f"unknown method: {method[:100]}")
        if params is not None and not isinstance(params, dict):
            return events.UnsupportedRequest(id, INVALID, "invalid params: they are no object")
        given = fold_keys(params, shape)
        for name in _TEXTS.intersection(shape):
            if given.get(name) is None:
                given[name] = ""
            elif not isinstance(given[name], str):
                return events.UnsupportedRequest(id, INVALID, f"invalid params: {name} is no text")
        return _build_request(id, method, given)


# The requests of a host and the names of their parameters, of which these are text (spec piglet 3 and 5).
_REQUESTS: dict[str, tuple[str, ...]] = {
    "initialize": ("protocolVersion", "cwd", "configDir"),
    "tool/execute": ("callId", "name", "args"),
    "command/execute": ("name", "args"),
    "interceptor/before": ("name", "toolName", "args"),
    "interceptor/after": ("name", "toolName", "details"),
    "event/dispatch": ("type", "data"),
    "shortcut/handle": ("key",),
    "messageHook/onMessage": ("message",),
    "inputTransformer/transform": ("input",),
    "compact/execute": ("messages",),
    "provider/stream": ("requestId", "model", "system", "messages", "tools", "options"),
}
_TEXTS = frozenset({"protocolVersion", "cwd", "configDir", "callId", "name", "toolName", "type", "key", "message", "input"})


def _build_request(id: str, method: str, given: dict[str, Any]) -> events.Heard:
    match method:
        case "initialize":
            return events.HandshakeStarted(id, _build_about(given))
        case "tool/execute":
            return events.ToolCalled(id, given["name"], given.get("args"), given["callId"])
        case "command/execute":
            args = given.get("args")
            return events.CommandInvoked(id, given["name"], args if isinstance(args, str) else "")
        case "interceptor/before":
            args = given.get("args")
            return events.InterceptRequest(
                id, "tool_call", events.ToolCall("", given["toolName"], {} if args is None else args), given["name"]
            )
        case "interceptor/after":
            return events.OptionalRequest(id, "after", given["name"], events.ToolDone(given["toolName"], given.get("details")))
        case "event/dispatch":
            return events.OptionalRequest(id, "event", given["type"], given.get("data"))
        case "shortcut/handle":
            return events.OptionalRequest(id, "shortcut", given["key"], None)
        case "messageHook/onMessage":
            return events.OptionalRequest(id, "message", "", given["message"])
        case "inputTransformer/transform":
            return events.OptionalRequest(id, "input", "", given["input"])
        case "compact/execute":
            messages = given.get("messages")
            tagged = [fold_keys(one, ("type", "data")) for one in messages] if isinstance(messages, list) else []
            return events.OptionalRequest(id, "compact", "", tagged)
        case _:
            request = build_record(StreamRequest, given)
            return events.OptionalRequest(id, "stream", request.model.api, (given.get("requestId"), request))


def _build_about(given: dict[str, Any]) -> dict[str, Any]:
    version = given["protocolVersion"]
    config = given["configDir"]
    return {
        "protocol_version": int(version) if version.isdecimal() and len(version) < 10 else 0,
        "cwd": given["cwd"],
        "config_dir": config,
        "data_dir": config,
    }


def _parse_notification(message: jsonrpc.RpcLine) -> Iterator[events.Heard]:
    """`shutdown` without an id says only that the end of input comes (spec piglet 5.10); what is unknown is passed over."""
    if message.method == "$/cancelRequest":
        id = fold_keys(message.params, ("id",)).get("id")
        if isinstance(id, int | str):
            yield events.CancelRequested(json.dumps(id))
    elif message.method == "eventBus/event":
        event = fold_keys(message.params, ("topic", "subscriptionId", "data"))
        number = event.get("subscriptionId")
        if isinstance(number, int) or (isinstance(number, float) and number.is_integer()):
            yield events.TopicPublished(int(number), str(event.get("topic", "")), event.get("data"))


def _parse_reply(message: jsonrpc.RpcLine) -> Iterator[events.Heard]:
    if not isinstance(message.id, int) or isinstance(message.id, bool):  # we never ask under another (spec piglet 2.3)
        return
    error = None
    if message.error is not None:  # wins over a result
        told = fold_keys(message.error, ("code", "message"))
        code = told.get("code")
        error = (code if isinstance(code, int) else FAILED, str(told.get("message", "")))
    yield events.ReplyReceived(message.id, message.result, error)


def _build_block(content: object) -> dict[str, str]:
    if isinstance(content, Image):
        from base64 import b64encode

        return {"type": "image", "data": b64encode(content.data).decode(), "mime": content.mime}
    return {"type": "text", "text": getattr(content, "text")}  # noqa: B009  (what else there is has been refused before)


ADAPTER = Piglet


def _encode_error(work: PendingAnswer, error: BaseException) -> bytes:
    adapter = work.adapter
    assert isinstance(adapter, Piglet)
    if isinstance(error, answers.NoHandler):
        return adapter.encode_error(work.id, INVALID, error.unknown)
    return adapter.encode_error(work.id, FAILED, answers.format_reason(error, work.name) or f"{work} failed and gave no reason")


class _Tool(ToolAnswer):
    def encode_error(self, error: BaseException) -> bytes:
        """A `ToolError` is a result for the model; all else is a tool that broke."""
        if isinstance(error, ToolError) and not isinstance(error, answers.NoHandler):
            return super().encode_error(error)
        return _encode_error(self, error)


class _Command(CommandAnswer):
    def encode_error(self, error: BaseException) -> bytes:
        return _encode_error(self, error) if isinstance(error, answers.NoHandler) else super().encode_error(error)


class _Question(InterceptAnswer):
    """A guard that stumbles is an error, and so blocks (spec piglet 5.3)."""

    encode_error = _encode_error


class _Any(PendingAnswer):
    """What settles it is what goes out."""

    kind = "request"

    def encode_value(self, value: object) -> bytes:
        assert isinstance(self.adapter, Piglet)
        return self.adapter.encode_result(self.id, value)

    encode_error = _encode_error


KINDS: dict[str, type[PendingAnswer]] = {work.kind: work for work in (_Tool, _Command, _Question, _Any)}

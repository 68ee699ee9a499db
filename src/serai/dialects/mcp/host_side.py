"""The client's side of an MCP wire (sans-IO): for tests, fakes and bridges. Messages are JSON without a newline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from serai.dialects.mcp import messages, neutral
from serai.dialects.mcp.events import Agreed, Changed, Done, Ended, Failed, HostEvent, Listed, Nothing, Pong, Reply
from serai.wire import jsonrpc
from serai.wire.codec import BAD_INPUT, decode
from serai.wire.stream import Oversize, PendingCall

_agreed = msgspec.json.Decoder(messages.InitializeResult)
_listed = msgspec.json.Decoder(messages.ListResult)
_done = msgspec.json.Decoder(messages.CallResult)


class HostSide:
    """One connection to a server. Each request waits from when it is made; `waiter` is the caller's own."""

    def __init__(self, name: str = "serai", version: str = "") -> None:
        self._about = messages.Implementation(name, version)
        self._connection = jsonrpc.JsonRpcConnection(cancel=jsonrpc.CancelStyle(*messages.CANCELLED))

    # -- commands: each gives the message to send -------------------------------------------------------------------------------

    def initialize(
        self, protocol: str = messages.NEWEST, *, now: float = 0.0, timeout: float | None = None, waiter: Any = None
    ) -> tuple[PendingCall[jsonrpc.Id], bytes]:
        about = {"name": self._about.name, "version": self._about.version}  # both are required, also when they are empty
        params = {"protocolVersion": protocol, "capabilities": {}, "clientInfo": about}
        return self._ask(messages.Method.INITIALIZE, params, now, timeout, waiter)

    def notify_initialized(self) -> bytes:
        """Said once, after `Agreed`."""
        return self._connection.notify(messages.Method.INITIALIZED).rstrip()

    def list_tools(
        self, cursor: str = "", *, now: float = 0.0, timeout: float | None = None, waiter: Any = None
    ) -> tuple[PendingCall[jsonrpc.Id], bytes]:
        return self._ask(messages.Method.LIST, {"cursor": cursor} if cursor else {}, now, timeout, waiter)

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        now: float = 0.0,
        timeout: float | None = None,
        waiter: Any = None,
    ) -> tuple[PendingCall[jsonrpc.Id], bytes]:
        params: dict[str, Any] = {"name": name, "arguments": {} if arguments is None else arguments}
        return self._ask(messages.Method.CALL, params if meta is None else params | {"_meta": meta}, now, timeout, waiter)

    def ping(self, *, now: float = 0.0, timeout: float | None = None, waiter: Any = None) -> tuple[PendingCall[jsonrpc.Id], bytes]:
        return self._ask(messages.Method.PING, {}, now, timeout, waiter)

    def cancel(self, call: PendingCall[jsonrpc.Id]) -> bytes | None:
        """No longer wait, and say so; None when it has ended already."""
        message = self._connection.cancel(call)
        return None if message is None else message.rstrip()

    # -- input ------------------------------------------------------------------------------------------------------------------

    def receive(self, message: bytes | Raw) -> HostEvent:
        """One message."""
        text = bytes(message).strip()
        for event in self._connection.receive(text.replace(b"\n", b" ") if b"\n" in text else text):
            return self._handle(event)
        return Nothing("a blank line")

    def oversize(self, frame: Oversize) -> Ended:
        """The calls that an oversize message ends (design rule 5)."""
        return self._connection.oversize(frame)

    def expire(self, now: float) -> Ended:
        """The calls whose deadline has passed. Each is to be told with the message that `encode_cancellation` gives."""
        return self._connection.expire(now)

    def encode_cancellation(self, call: PendingCall[jsonrpc.Id]) -> bytes | None:
        """What tells the server that nobody waits for this call any more."""
        message = self._connection.encode_cancellation(call)
        return None if message is None else message.rstrip()

    def next_deadline(self) -> float | None:
        return self._connection.next_deadline()

    def lose(self) -> Ended:
        """The server is gone: every waiting call."""
        return self._connection.lose()

    # -- inside -----------------------------------------------------------------------------------------------------------------

    def _ask(
        self, method: str, params: object, now: float, timeout: float | None, waiter: Any
    ) -> tuple[PendingCall[jsonrpc.Id], bytes]:
        call, frame = self._connection.request(method, params, now=now, timeout=timeout, waiter=waiter)
        return call, frame.rstrip()

    def _handle(self, event: jsonrpc.Event) -> HostEvent:
        match event:
            case jsonrpc.Answer():
                return self._handle_answer(event)
            case jsonrpc.Failure(call=call, code=code, message=text):
                return Failed(call, code, text)
            case jsonrpc.Garbled(call=call, why=why):
                return Failed(call, 0, why)
            case jsonrpc.Request(method=method):
                return self._handle_request(event, method)
            case jsonrpc.Notification(method=messages.Method.CHANGED):
                return Changed()
            case jsonrpc.Notification(method=method):
                return Nothing(f"the notification {method}")
        return Nothing(getattr(event, "why", type(event).__name__))

    def _handle_request(self, request: jsonrpc.Request, method: str) -> HostEvent:
        """A server may ask whether we are there; roots, sampling and the like were not declared."""
        if method == messages.Method.PING:
            message = self._connection.answer(request, {})
        else:
            message = self._connection.refuse(request, jsonrpc.METHOD_NOT_FOUND, f"method not found: {method}")
        return Nothing("answered already") if message is None else Reply(message.rstrip())

    @staticmethod
    def _handle_answer(answer: jsonrpc.Answer) -> HostEvent:
        call = answer.call
        try:
            match call.what:
                case messages.Method.INITIALIZE:
                    server = decode(_agreed, answer.result)
                    known = server.protocol_version in messages.VERSIONS
                    return Agreed(call, server, "" if known else f"it speaks version {server.protocol_version}, which we do not")
                case messages.Method.LIST:
                    page = decode(_listed, answer.result)
                    cursor = page.next_cursor if isinstance(page.next_cursor, str) else ""
                    return Listed(call, tuple(map(neutral.to_tool_spec, page.tools)), cursor)
                case messages.Method.CALL:
                    return Done(call, neutral.to_tool_result(decode(_done, answer.result)))
        except BAD_INPUT as error:
            return Failed(call, 0, f"its answer to {call.what} cannot be read: {error}")
        return Pong(call)

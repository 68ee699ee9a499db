"""Serai's side of an MCP wire (sans-IO): the server, which offers tools.

One message in, one thing heard: a `Reply` to send at once, a call to run, or nothing to do. Messages are JSON without a newline: on
a pipe or a socket each is a line, inside Claude's control protocol each is a part of one. What a model is told of a tool, and under
which name, is made here; what may run is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from serai.dialects.mcp import messages, neutral
from serai.dialects.mcp.events import Called, Cancelled, Nothing, PeerEvent, Reply
from serai.dialects.mcp.neutral import NameMap, measure_prefix
from serai.model.tools import ToolResult, ToolSpec
from serai.wire import jsonrpc
from serai.wire.codec import BAD_INPUT, Noise, Unknown, decode, encode
from serai.wire.stream import Oversize

T = TypeVar("T")

_initialize = msgspec.json.Decoder(messages.InitializeParams)
_list = msgspec.json.Decoder(messages.ListParams)
_call = msgspec.json.Decoder(messages.CallParams)
_members = msgspec.json.Decoder(dict[str, Raw])
_any = msgspec.json.Decoder(Raw)


class PeerSide:
    """One client's connection. `tools` are those of this moment; `page` is the most that one answer lists, all when it is None."""

    def __init__(
        self,
        name: str,
        version: str,
        tools: Callable[[], Sequence[ToolSpec]],
        *,
        prefix: int | None = None,
        page: int | None = None,
        instructions: str = "",
    ) -> None:
        self._about = messages.Implementation(name, version)
        self._tools = tools
        self._prefix = measure_prefix(name) if prefix is None else prefix
        self._page = page
        self._instructions = instructions
        self._connection = jsonrpc.JsonRpcConnection(cancel=jsonrpc.CancelStyle(*messages.CANCELLED))
        self._open: dict[bytes, jsonrpc.Request] = {}
        self._named: tuple[list[str], NameMap] = ([], NameMap((), prefix=self._prefix))
        self.version = messages.NEWEST  # what was agreed upon
        self.client: Any = None  # what the client says of itself
        self.ready = False  # the client has said that it is
        self.listed: list[str] | None = None  # the tools' names as the client was last told

    @property
    def pending(self) -> frozenset[bytes]:
        """The calls that are neither answered nor taken back."""
        return frozenset(self._open)

    @property
    def names(self) -> NameMap:
        """The tools' names and those that the model gets."""
        names = [spec.name for spec in self._tools()]
        if names != self._named[0]:
            self._named = names, NameMap(names, prefix=self._prefix)
        return self._named[1]

    # -- input ------------------------------------------------------------------------------------------------------------------

    def receive(self, message: bytes | Raw) -> PeerEvent:
        """One message. A line end is no part of any JSON text, so it counts as a blank."""
        text = bytes(message).strip()
        if b"\n" in text:
            text = text.replace(b"\n", b" ")
        for event in self._connection.receive(text):
            return self._handle(event)
        return Nothing("a blank line")

    def oversize(self, frame: Oversize) -> PeerEvent:
        """A line that was too long to be kept."""
        refusal = self._connection.refuse_oversize(frame)
        return Nothing(f"a message of {frame.size} bytes") if refusal is None else Reply(refusal.rstrip())

    def lose(self) -> frozenset[bytes]:
        """The client is gone: the calls that nobody waits for any more."""
        lost = self.pending
        self._open.clear()
        self._connection.lose()
        return lost

    # -- commands: each gives the message to send -------------------------------------------------------------------------------

    def answer(self, id: bytes, result: ToolResult) -> bytes | None:
        """None when it is not open any more: answered, or taken back."""
        request = self._open.get(id)
        if request is None:
            return None
        message = self._connection.answer(request, neutral.to_call_result(result, self.version))
        del self._open[id]  # only now: what cannot be encoded can still fail
        return _strip_newline(message)

    def fail(self, id: bytes, code: int, text: str) -> bytes | None:
        """An error of the protocol. What a tool does wrong is an answer."""
        request = self._open.pop(id, None)
        return None if request is None else _strip_newline(self._connection.refuse(request, code, text))

    @staticmethod
    def build_refusal(id: bytes, code: int, text: str) -> bytes:
        """An error in place of an answer that was made and is too long to be sent."""
        return _build_error(code, text, Raw(id)).message

    @property
    def changed(self) -> bool:
        """Whether the tools are others than the client was last told."""
        return self.listed is not None and self.listed != [spec.name for spec in self._tools()]

    def notify_tools_changed(self) -> bytes | None:
        """The tools are others now; None as long as the client has not said that it is ready."""
        return _strip_newline(self._connection.notify(messages.Method.CHANGED)) if self.ready else None

    # -- inside -----------------------------------------------------------------------------------------------------------------

    def _handle(self, event: jsonrpc.Event) -> PeerEvent:
        match event:
            case jsonrpc.Request():
                return self._handle_request(event)
            case jsonrpc.Notification(method=method):
                self.ready = self.ready or method == messages.Method.INITIALIZED
                return Nothing("" if method == messages.Method.INITIALIZED else f"the notification {method}")
            case jsonrpc.Cancelled(request=request):
                id = bytes(request.id)
                self.fail(id, jsonrpc.INTERNAL_ERROR, "cancelled")  # closed, and not sent: a cancelled call has no answer
                return Cancelled(id)
            case jsonrpc.Stray(why=why):
                return Nothing(why)
            case Noise(raw=raw):
                return _refuse_non_object(raw)
            case Unknown(raw=raw, why=why):
                return self._refuse_invalid(raw, why)
        return Nothing(f"{type(event).__name__}, which answers nothing of ours")

    def _handle_request(self, request: jsonrpc.Request) -> PeerEvent:
        match request.method:
            case messages.Method.INITIALIZE:
                return self._decode_and_serve(request, _initialize, self._initialize)
            case messages.Method.PING:
                return self._reply(request, {})
            case messages.Method.LIST:
                return self._decode_and_serve(request, _list, self._list_tools)
            case messages.Method.CALL:
                return self._decode_and_serve(request, _call, self._open_call)
        return self._refuse(request, jsonrpc.METHOD_NOT_FOUND, f"method not found: {request.method}")

    def _decode_and_serve(
        self, request: jsonrpc.Request, decoder: msgspec.json.Decoder[T], serve: Callable[[jsonrpc.Request, T], PeerEvent]
    ) -> PeerEvent:
        try:
            params = decode(decoder, request.params)
        except BAD_INPUT as error:
            return self._refuse(request, messages.INVALID_PARAMS, f"invalid params: {error}")
        return serve(request, params)

    def _initialize(self, request: jsonrpc.Request, params: messages.InitializeParams) -> PeerEvent:
        """The client's version if we know it, else our newest: then it is the client's turn to go."""
        self.version = params.protocol_version if params.protocol_version in messages.VERSIONS else messages.NEWEST
        self.client = params.client_info
        about = messages.InitializeResult(
            self.version, {"tools": {"listChanged": True}}, self._about, instructions=self._instructions or msgspec.UNSET
        )
        return self._reply(request, about)

    def _list_tools(self, request: jsonrpc.Request, params: messages.ListParams) -> PeerEvent:
        """By name; a cursor is the last name of the page before, so it holds whatever comes and goes in between."""
        names = self.names
        self.listed = self._named[0]
        tools = sorted(
            (neutral.to_tool(spec, names.get_safe_name(spec.name)) for spec in self._tools()), key=lambda tool: tool.name
        )
        rest = [tool for tool in tools if tool.name > (params.cursor or "")]
        page = rest[: self._page]
        return self._reply(request, messages.ListResult(page, page[-1].name if len(page) < len(rest) else msgspec.UNSET))

    def _open_call(self, request: jsonrpc.Request, params: messages.CallParams) -> PeerEvent:
        name = self.names.find_original(params.name)
        if name is None:
            return self._refuse(request, messages.INVALID_PARAMS, f"unknown tool: {params.name}")
        id = bytes(request.id)
        self._open[id] = request
        return Called(id, name, {} if params.arguments is None else params.arguments, params.meta)

    def _reply(self, request: jsonrpc.Request, result: object) -> PeerEvent:
        message = _strip_newline(self._connection.answer(request, result))
        return Nothing("answered already") if message is None else Reply(message)

    def _refuse(self, request: jsonrpc.Request, code: int, text: str) -> PeerEvent:
        message = _strip_newline(self._connection.refuse(request, code, text))
        return Nothing("answered already") if message is None else Reply(message)

    @staticmethod
    def _refuse_invalid(raw: bytes, why: str) -> PeerEvent:
        """An object that is no JSON-RPC. An answer is never answered, else two sides could go on for ever."""
        try:
            members = decode(_members, raw)
        except BAD_INPUT:  # not for what was read as one already
            members = {}
        if "result" in members or "error" in members:
            return Nothing(f"an answer that cannot be read: {why}")
        return _build_error(jsonrpc.INVALID_REQUEST, f"invalid request: {why}", members.get("id"))


def _refuse_non_object(raw: bytes) -> PeerEvent:
    try:
        decode(_any, raw)
    except BAD_INPUT as error:
        return _build_error(messages.PARSE_ERROR, f"not JSON: {error}")
    return _build_error(jsonrpc.INVALID_REQUEST, "batches are not supported" if raw[:1] == b"[" else "a message is an object")


def _build_error(code: int, text: str, id: Raw | None = None) -> Reply:
    """The answer to what is no request; its id is null where it has none (JSON-RPC 2.0, 5)."""
    error = {"code": code, "message": text}
    return Reply(encode({"jsonrpc": "2.0", "id": Raw(b"null") if id is None else id, "error": error}).rstrip())


def _strip_newline(message: bytes | None) -> bytes | None:
    return None if message is None else message.rstrip()

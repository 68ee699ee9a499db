"""Serai's side of the wire to Claude Code (sans-IO): runs in, events out; commands in, frames out.

A line that the program cannot read ends it (spec agents 2.6), so every frame is made here, and looked at before it is bytes.
Requests go both ways. Ours are `PendingCall`s with deadlines; its own are `pending` until they are answered, withdrawn or lost, and
each can be answered once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Raw

from serai.dialects.claude import events, messages
from serai.dialects.claude.events import Answered, Event, Failed, Odd, Stray, Told, Unsupported, Withdrawn
from serai.dialects.claude.frame_reader import FrameReader, decode_object, read_first_byte, scan_kind_and_id, scan_subtype
from serai.dialects.claude.messages import (
    ControlCancel,
    ControlRequest,
    ControlResponse,
    FromCli,
    OtherRequest,
    Response,
    encode_line,
)
from serai.errors import Closed, NoApproval
from serai.wire.codec import Noise, Unknown, encode
from serai.wire.stream import Oversize, PendingCall, PendingCalls

DENIED = "User denied this request"  # what the model is told where nobody said more (spec agents 2.8)
_REMEMBERED = 10_000  # ids of requests that are kept to know a repeated one; those pending are always known
_NOTHING_TOLD = Raw(b"{}")
_TOLD = frozenset(
    {messages.System, messages.Assistant, messages.User, messages.StreamEvent, messages.Result, messages.ToolProgress}
)


class HostSide:
    """The host's end of one process's wire."""

    def __init__(self) -> None:
        self._reader = FrameReader()
        self._calls: PendingCalls[str] = PendingCalls()
        self._last_id = 0
        self._lost = False
        self._pending: dict[str, messages.CliRequest] = {}
        self._seen: dict[str, None] = {}  # ids of its requests, the oldest first
        self._numbers: dict[str, int] = {}  # ids that came as numbers go back as numbers
        self._dialogs: frozenset[str] = frozenset()

    @property
    def noise(self) -> int:
        """How many lines were no frames."""
        return self._reader.noise

    @property
    def unknown(self) -> int:
        """How many frames were of no type that the spec knows, or control frames without an id."""
        return self._reader.unknown

    @property
    def repaired(self) -> int:
        """How many lines could be read only after their text was mended."""
        return self._reader.repaired

    @property
    def pending(self) -> Collection[str]:
        """Ids of its requests that wait for an answer, the oldest first."""
        return self._pending.keys()

    # -- what we say ------------------------------------------------------------------------------------------------------------

    def prompt(
        self, content: str | Sequence[Mapping[str, Any]], *, uuid: str = "", relayed: bool = False, session_id: str = ""
    ) -> bytes:
        """A user's message.

        `relayed`: it is somebody else's text, in which a leading `/` or `@` means nothing (spec agents 2.4).
        """
        frame: dict[str, Any] = {"type": "user", "message": {"role": "user", "content": content}, "parent_tool_use_id": None}
        frame["session_id"] = session_id
        if uuid:
            frame["uuid"] = uuid
        if relayed:
            frame["client_composed"] = True
        return encode_line(frame)

    def request(
        self, subtype: str, fields: Mapping[str, Any] = {}, *, now: float, timeout: float | None, waiter: Any = None
    ) -> tuple[PendingCall[str], bytes]:
        """Ask the program something (`messages.SUBTYPES`). The call is waiting from now on."""
        if self._lost:
            raise Closed(f"{subtype} cannot be asked: the agent is gone")
        if "subtype" in fields:
            raise ValueError(f"the fields of {subtype} have a subtype of their own")
        id = f"serai-{self._last_id + 1}"
        frame = encode_line({"type": "control_request", "request_id": id, "request": {"subtype": subtype, **fields}})
        self._last_id += 1
        self._note_dialogs(subtype, fields)
        return self._calls.start(id, subtype, now=now, timeout=timeout, waiter=waiter), frame

    def _note_dialogs(self, subtype: str, fields: Mapping[str, Any]) -> None:
        if subtype == "initialize":
            self._dialogs = frozenset(fields.get("supportedDialogKinds") or ())

    def cancel(self, call: PendingCall[str]) -> bytes | None:
        """Withdraw a request of ours; None when it has ended already."""
        if self._calls.finish(call.id) is None:
            return None
        return encode_line({"type": "control_cancel_request", "request_id": call.id})

    def allow(self, id: str, *, input: Mapping[str, Any] | None = None, permissions: Sequence[Any] = ()) -> bytes:
        """The tool may run, with this input or as it was asked.

        `permissions` are rules that the program is to remember (spec agents 2.8).
        """
        request = self._get_pending(id, messages.CanUseTool)
        if input is None and _has_repaired_text(request.input):
            input = request.input
        answer: dict[str, Any] = {"behavior": "allow"}
        if input is not None:
            answer["updatedInput"] = input
        if permissions:
            answer["updatedPermissions"] = list(permissions)
        return self.reply(id, answer)

    def deny(self, id: str, message: str = "", *, interrupt: bool = False) -> bytes:
        """The tool may not run; the model is told why.

        Never an error reply, which says that the asking failed (spec agents 2.8).
        """
        self._get_pending(id, messages.CanUseTool)
        answer: dict[str, Any] = {"behavior": "deny", "message": message or DENIED}
        if interrupt:
            answer["interrupt"] = True
        return self.reply(id, answer)

    def answer_mcp(self, id: str, response: object = None) -> bytes:
        """The server's JSON-RPC reply; nothing for a notification, which the program wants acknowledged (spec agents 2.7)."""
        self._get_pending(id, messages.McpMessage)
        return self.reply(id, {"mcp_response": {"jsonrpc": "2.0", "result": {}} if response is None else response})

    def reply(self, id: str, payload: object) -> bytes:
        """The answer to any of its requests: an object."""
        self._get_pending(id)
        answer = {"subtype": "success", "request_id": self._numbers.get(id, id), "response": payload}
        return self._finish(id, encode_line({"type": "control_response", "response": answer}))

    def refuse(self, id: str, error: str) -> bytes:
        """The request could not be dealt with. To a tool's request `deny` is the answer; a hook before a tool says no."""
        request = self._get_pending(id)
        return self._finish(id, _build_refusal(self._numbers.get(id, id), request.__struct_config__.tag, error, request))

    def _get_pending(self, id: str, kind: Any = None) -> Any:
        """The request that waits under this id; a wrong answer to it consumes nothing (spec agents 7.5)."""
        request = self._pending.get(id)
        if request is None:
            raise NoApproval(f"no request {id!r} of claude waits for an answer")
        if kind is not None and not isinstance(request, kind):
            raise TypeError(f"request {id!r} is no {kind.__struct_config__.tag} but {request.__struct_config__.tag}")
        return request

    def _finish(self, id: str, frame: bytes) -> bytes:
        del self._pending[id]
        return frame

    # -- our requests' ends -----------------------------------------------------------------------------------------------------

    def forget(self, call: PendingCall[str]) -> bool:
        """No longer wait for it. False when it has ended already."""
        return self._calls.finish(call.id) is not None

    def expire(self, now: float) -> list[PendingCall[str]]:
        return self._calls.expire(now)

    def next_deadline(self) -> float | None:
        return self._calls.next_deadline()

    def lose(self) -> list[PendingCall[str]]:
        """The program is gone: every waiting call, to be failed with that one cause. Its own requests need no answers any more."""
        self._lost = True
        self._pending.clear()
        return self._calls.abandon()

    def oversize(self, frame: Oversize) -> list[PendingCall[str]]:
        """The calls that an oversize frame ends: the one it answered if its head tells, else all (design rule 5)."""
        kind, id = scan_kind_and_id(frame.head)
        if kind and kind != "control_response":
            return []
        call = self._calls.finish(id) if kind else None
        return [call] if call is not None else self._calls.abandon()

    def refuse_oversize(self, frame: Oversize) -> bytes | None:
        """The refusal of a request that was too long to be kept, to be sent at once: the program waits for it."""
        kind, id = scan_kind_and_id(frame.head)
        if kind != "control_request" or id in self._seen:
            return None
        self._remember_id(id)
        return _build_refusal(id, scan_subtype(frame.head), f"The request has {frame.size} bytes; the limit is {frame.limit}")

    def note_sent(self, run: bytes, now: float) -> None:
        """Take up what this side said earlier, as in a replay: the answers to it then find their calls."""
        for frame in messages.FROM_HOST.create_reader().read(run):
            match frame:
                case messages.HostRequest(request_id=id, request=request):
                    subtype = str(request.get("subtype", ""))
                    self._note_dialogs(subtype, request)
                    self._last_id += 1
                    self._calls.start(id, subtype, now=now, timeout=None)
                case messages.HostResponse(response=reply):
                    self._pending.pop(str(reply.request_id), None)
                case messages.HostCancel(request_id=id):
                    self._calls.finish(id)

    # -- what we hear -----------------------------------------------------------------------------------------------------------

    def receive(self, run: bytes) -> list[Event]:
        """What a run as a `Framer` gives it says: one event for each line that is not blank."""
        return [self.interpret(frame, line) for frame, line in self.read_frames(run)]

    def read_frames(self, run: bytes) -> Iterator[tuple[FromCli | Unknown | Noise, bytes]]:
        """The first half of that: each frame with its line, in order, but not what `FrameTranslator.translate_pieces` takes."""
        return self._reader.read(run)

    def interpret(self, frame: FromCli | Unknown | Noise, line: bytes) -> Event:
        """The other half: what a frame says."""
        frame, line = self._reader.repair_pair(frame, line)
        if type(frame) in _TOLD:
            return Told(frame, line)  # type: ignore[arg-type]  # by the table, which checkers cannot see
        return self._interpret(frame, line)

    def _interpret(self, frame: Any, line: bytes) -> Event:
        match frame:
            case ControlRequest(request_id=id, request=request):
                return self._handle_request(frame, id, request, line)
            case ControlResponse(response=response):
                return self._handle_response(frame, response, line)
            case ControlCancel(request_id=id):
                if self._pending.pop(id, None) is None:
                    return Stray(frame, line, f"{id!r} does not wait for an answer")
                return Withdrawn(id, line)
            case Unknown() | Noise():
                return Odd(frame, line)
        return Stray(frame, line, "keep-alive")

    def _handle_request(self, frame: ControlRequest, id: str, request: messages.CliRequest, line: bytes) -> Event:
        if id in self._pending or id in self._seen:
            return Stray(frame, line, f"{id!r} was asked before")  # a replayed frame is presented once (spec agents 7.19)
        self._remember_id(id)
        if frame.number is not None:
            self._numbers[id] = frame.number
        if isinstance(request, messages.RequestUserDialog) and request.dialog_kind not in self._dialogs:
            return Unsupported(id, "request_user_dialog", None, line)
        if isinstance(request, OtherRequest):
            why = f"Unreadable {request.kind or 'control request'}: {request.why}"
            if not request.why:
                why = f"Unsupported control request subtype: {request.kind}"
            return Unsupported(id, request.kind, _build_refusal(self._numbers.get(id, id), request.kind, why), line)
        self._pending[id] = request
        return _build_request_event(id, request, line)

    def _remember_id(self, id: str) -> None:
        self._seen[id] = None
        if len(self._seen) > _REMEMBERED:
            oldest = next(iter(self._seen))
            del self._seen[oldest]
            if oldest not in self._pending:
                self._numbers.pop(oldest, None)

    def _handle_response(self, frame: ControlResponse, response: Response, line: bytes) -> Event:
        call = self._calls.finish(response.request_id)
        if call is None:
            return Stray(frame, line, f"nobody waits for an answer to {response.request_id!r}")
        if response.subtype == "error":
            return Failed(call, response.error or "it does not say why", response.error_code or "", line)
        if response.subtype != "success":
            return Failed(call, f"its answer is neither success nor error: {response.subtype!r}", "bad_answer", line)
        first = read_first_byte(response.response)
        if first not in (b"{", b"n", b""):  # an object, null or nothing at all
            return Failed(call, "its answer is no object", "bad_answer", line)
        return Answered(call, response.response if first == b"{" else _NOTHING_TOLD, line)


def _build_request_event(id: str, request: messages.CliRequest, line: bytes) -> Event:
    match request:
        case messages.CanUseTool():
            return events.CanUseTool(id, request, line)
        case messages.HookCallback(callback_id=callback_id, input=input, tool_use_id=tool_use_id):
            return events.HookCallback(id, callback_id, input, tool_use_id, line)
        case messages.McpMessage(server_name=server, message=message):
            return events.McpMessage(id, server, message, line)
        case messages.Elicitation():
            members = decode_object(line).get("request", {})
            return events.Elicitation(id, {name: value for name, value in members.items() if name != "subtype"}, line)
        case messages.RequestUserDialog(dialog_kind=kind, payload=payload, tool_use_id=tool_use_id):
            return events.Dialog(id, kind, payload, tool_use_id, line)
    raise AssertionError(request)  # pragma: no cover  (the others were taken before)


def _has_repaired_text(value: object) -> bool:
    """Whether text in it may differ from what the program holds: bad text reads as U+FFFD. What was judged is what must run."""
    return b"\xef\xbf\xbd" in encode(value)


def _build_refusal(id: str | int, subtype: str, why: str, request: messages.CliRequest | None = None) -> bytes:
    """That it could not be dealt with. After an error of a hook the program runs the tool (seen with 2.1.325): such a hook says no.

    So does whatever may have been one; to a permission request that is a bad answer, which is a no as well (spec agents 2.8).
    """
    answer: dict[str, Any] = {"subtype": "error", "request_id": id, "error": why}
    if subtype in ("hook_callback", "") and not (isinstance(request, messages.HookCallback) and _is_other_event(request)):
        denial = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": why}
        answer = {"subtype": "success", "request_id": id, "response": {"hookSpecificOutput": denial}}
    return encode_line({"type": "control_response", "response": answer})


def _is_other_event(request: messages.HookCallback) -> bool:
    """A hook of another event: there is no tool to hold up."""
    return bool(request.input.get("hook_event_name", "PreToolUse") != "PreToolUse")

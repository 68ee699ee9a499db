"""The program's side of the wire (sans-IO): for fakes, tests, and the other view of a replay.

It takes what a host writes as Claude Code 2.1.325 does (spec agents 2.6): blank lines, arrays and unknown types are passed over,
and what ends the program is told as `Fatal`. Ids and uuids are counted, so that the same script says the same twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from serai.dialects.claude import messages
from serai.wire.codec import BAD_INPUT, Noise, Unknown, encode
from serai.wire.stream import Oversize


class Prompted(msgspec.Struct, frozen=True, gc=False):
    """A user's message."""

    prompt: messages.Prompt
    line: bytes

    @property
    def text(self) -> str:
        content = self.prompt.message.content
        return content if isinstance(content, str) else "".join(str(block.get("text", "")) for block in content)


class Asked(msgspec.Struct, frozen=True, gc=False):
    """The host asks something: `SUBTYPES` are known. Answer it with `reply` or `refuse`."""

    id: str
    subtype: str
    fields: dict[str, Any]
    line: bytes


class Answered(msgspec.Struct, frozen=True, gc=False):
    """What we asked is answered; `error` is None unless the asking failed. An id that nobody waits for means nothing."""

    id: str
    response: dict[str, Any]
    error: str | None
    line: bytes


class Cancelled(msgspec.Struct, frozen=True, gc=False):
    id: str
    line: bytes


class Passed(msgspec.Struct, frozen=True, gc=False):
    """Taken without a word: a keep-alive, an array, a frame of another type."""

    line: bytes
    why: str


class Fatal(msgspec.Struct, frozen=True, gc=False):
    """A line that ends the program: it writes `why` to its standard error and exits with 1."""

    line: bytes
    why: str


Event = Prompted | Asked | Answered | Cancelled | Passed | Fatal


class PeerSide:
    """The program's end of one wire. Whoever makes frames out of order gets them: nothing is checked but the JSON."""

    def __init__(self, session_id: str = "00000000-0000-4000-8000-000000000000", *, cwd: str = "/", model: str = "fake-1") -> None:
        self.session_id = session_id
        self.cwd = cwd
        self.model = model
        self.results = 0
        self._reader = messages.FROM_HOST.create_reader()
        self._counted = 0

    # -- what the host says -----------------------------------------------------------------------------------------------------

    def receive(self, run: bytes) -> list[Event]:
        return [self._interpret(*self._reader.repair_pair(*pair)) for pair in self._reader.read_pairs(run)]

    def _interpret(self, frame: messages.FromHost | Unknown | Noise, line: bytes) -> Event:
        match frame:
            case messages.Prompt():
                return Prompted(frame, line)
            case messages.HostRequest(request_id=id, request=request):
                rest = {name: value for name, value in request.items() if name != "subtype"}
                return Asked(id, str(request.get("subtype", "")), rest, line)
            case messages.HostResponse(response=reply):
                return Answered(str(reply.request_id), reply.response, reply.error if reply.subtype == "error" else None, line)
            case messages.HostCancel(request_id=id):
                return Cancelled(id, line)
            case messages.HostKeepAlive():
                return Passed(line, "keep-alive")
            case Unknown(kind=kind, why=why):
                fatal = kind in ("user", "control_request")
                return Fatal(line, f"Error parsing streaming input line: {why}") if fatal else Passed(line, why)
            case Noise(why=why):
                return Passed(line, why) if _is_array(line) else Fatal(line, f"Error parsing streaming input line: {why}")

    def note_sent(self, run: bytes, now: float) -> None:
        """A replay tells what this side said; nothing here waits for an answer to it."""

    def oversize(self, frame: Oversize) -> list[Event]:
        return [Passed(frame.head, f"a line of {frame.size} bytes; the limit is {frame.limit}")]

    def lose(self) -> list[Event]:
        return []

    # -- what happens -----------------------------------------------------------------------------------------------------------

    def encode_frame(self, kind: str, **members: Any) -> bytes:
        """Any frame; the members that nearly all of them have are there."""
        return encode({"type": kind, **members, "session_id": self.session_id, "uuid": self.new_uuid()})

    def system(self, subtype: str, **members: Any) -> bytes:
        return self.encode_frame("system", subtype=subtype, **members)

    def init(self, **members: Any) -> bytes:
        """At the beginning of every turn (spec agents 2.5)."""
        about: dict[str, Any] = {
            "cwd": self.cwd,
            "tools": ["Bash", "Read", "Write"],
            "mcp_servers": [],
            "model": self.model,
            "permissionMode": "default",
            "slash_commands": [],
            "apiKeySource": "none",
            "claude_code_version": "2.1.325",
            "output_style": "default",
            "agents": [],
            "skills": [],
            "plugins": [],
            "capabilities": ["interrupt_receipt_v1"],
        }
        return self.system("init", **about | members)

    def assistant(self, *blocks: Mapping[str, Any], id: str = "msg_1", parent: str | None = None, **members: Any) -> bytes:
        """Finished blocks of the message `id`; the program sends one in each frame."""
        message = {
            "id": id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": list(blocks),
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 1},
        }
        return self.encode_frame("assistant", message=message, parent_tool_use_id=parent, **members)

    def text(self, text: str, *, id: str = "msg_1", parent: str | None = None, **members: Any) -> bytes:
        return self.assistant({"type": "text", "text": text}, id=id, parent=parent, **members)

    def tool_use(self, tool_use_id: str, name: str, input: Mapping[str, Any], *, id: str = "msg_1", **members: Any) -> bytes:
        return self.assistant({"type": "tool_use", "id": tool_use_id, "name": name, "input": dict(input)}, id=id, **members)

    def tool_result(
        self, tool_use_id: str, content: object, *, is_error: bool = False, parent: str | None = None, **members: Any
    ) -> bytes:
        block = {"tool_use_id": tool_use_id, "type": "tool_result", "content": content, "is_error": is_error}
        return self.user([block], parent=parent, **members)

    def user(self, content: object, *, parent: str | None = None, **members: Any) -> bytes:
        return self.encode_frame("user", message={"role": "user", "content": content}, parent_tool_use_id=parent, **members)

    def stream_event(self, event: Mapping[str, Any], *, parent: str | None = None, **members: Any) -> bytes:
        """One event of the model's stream."""
        return self.encode_frame("stream_event", event=dict(event), parent_tool_use_id=parent, **members)

    def stream_text(self, text: Sequence[str], *, id: str = "msg_1", parent: str | None = None) -> bytes:
        """One text block as it comes with partial messages: the message's frame precedes the block's stop (spec agents 2.10)."""
        usage = {"input_tokens": 10, "output_tokens": 1}
        start = {"id": id, "type": "message", "role": "assistant", "model": self.model, "content": [], "usage": usage}
        deltas: list[dict[str, Any]] = [
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}} for piece in text
        ]
        before: list[dict[str, Any]] = [
            {"type": "message_start", "message": start},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            *deltas,
        ]
        after: list[dict[str, Any]] = [
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ]
        frames = [self.stream_event(event, parent=parent, api_message_id=id) for event in before]
        frames.append(self.text("".join(text), id=id, parent=parent))
        frames += [self.stream_event(event, parent=parent, api_message_id=id) for event in after]
        return b"".join(frames)

    def result(self, text: str = "", *, subtype: str = "success", is_error: bool = False, **members: Any) -> bytes:
        """The end of a turn. As from the program its type stands near the end."""
        said: dict[str, Any] = {"result": text} if subtype == "success" else {"errors": [text] if text else []}
        about = {
            "duration_api_ms": 1,
            "stop_reason": "end_turn",
            "session_id": self.session_id,
            "total_cost_usd": 0.001,
            "usage": {"input_tokens": 10, "output_tokens": 1},
            "modelUsage": {},
            "permission_denials": [],
            "terminal_reason": "completed",
            "is_error": is_error or subtype != "success",
            "num_turns": 1,
            "subtype": subtype,
            **said,
            "type": "result",
            "duration_ms": 2,
            "uuid": self.new_uuid(),
            "queued_turn_count": 0,
            "result_index": self.results,
        }
        self.results += 1
        return encode(about | members)

    # -- the control protocol (spec agents 2.7) ---------------------------------------------------------------------------------

    def ask(self, subtype: str, fields: Mapping[str, Any] = {}, *, id: str = "") -> tuple[str, bytes]:
        """Any request to the host, and its id."""
        id = id or self.new_uuid()
        return id, encode({"type": "control_request", "request_id": id, "request": {"subtype": subtype, **fields}})

    def can_use_tool(self, name: str, input: Mapping[str, Any], tool_use_id: str, **members: Any) -> tuple[str, bytes]:
        about = {"tool_name": name, "display_name": name, "input": dict(input), "tool_use_id": tool_use_id}
        return self.ask("can_use_tool", about | members)

    def hook_callback(self, callback_id: str, input: Mapping[str, Any], tool_use_id: str = "") -> tuple[str, bytes]:
        about = {"callback_id": callback_id, "input": dict(input)}
        return self.ask("hook_callback", about | ({"tool_use_id": tool_use_id} if tool_use_id else {}))

    def mcp_message(self, server: str, message: Mapping[str, Any]) -> tuple[str, bytes]:
        return self.ask("mcp_message", {"server_name": server, "message": dict(message)})

    def withdraw(self, id: str) -> bytes:
        return encode({"type": "control_cancel_request", "request_id": id})

    def reply(self, id: str, payload: Mapping[str, Any] | None = None) -> bytes:
        said = {} if payload is None else {"response": dict(payload)}
        return encode({"type": "control_response", "response": {"subtype": "success", "request_id": id, **said}})

    def refuse(self, id: str, error: str, code: str = "") -> bytes:
        said = {"error": error, **({"error_code": code} if code else {})}
        return encode({"type": "control_response", "response": {"subtype": "error", "request_id": id, **said}})

    def answer(self, asked: Asked) -> bytes:
        """As the program answers what it knows nothing of, and with an empty object what it knows."""
        if asked.subtype in messages.SUBTYPES:
            return self.reply(asked.id, {})
        return self.refuse(asked.id, f"Unsupported control request subtype: {asked.subtype}", "unsupported_request")

    def new_uuid(self) -> str:
        self._counted += 1
        return f"{self._counted:08x}-0000-4000-8000-000000000000"


def _is_array(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), list)
    except BAD_INPUT:
        return False

"""The Chat Completions API: `POST /v1/chat/completions`, and the list of models that both of OpenAI's APIs have.

Requests are refused as the real API refuses them, with its texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from serai.agents.models.parrot import ScriptMessage
from serai.testing.models import reply

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PARTS = {
    "system": {"text"},
    "developer": {"text"},
    "tool": {"text"},
    "assistant": {"text", "refusal"},
    "user": {"text", "image_url", "input_audio", "file"},
}


def check(body: reply.Json) -> None:
    reply.need(isinstance(body.get("model"), str) and body["model"], "you must provide a model parameter")
    messages = body.get("messages")
    reply.need("messages" in body, "Missing required parameter: 'messages'.", param="messages", code="missing_required_parameter")
    if not isinstance(messages, list):
        raise reply.ApiRefusal("Invalid type for 'messages': expected an array of objects.", param="messages", code="invalid_type")
    reply.need(
        messages,
        "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        param="messages",
        code="empty_array",
    )
    reply.need(isinstance(body.get("stream") or False, bool), "Invalid type for 'stream': expected a boolean.", param="stream")
    options = body.get("stream_options")
    reply.need(
        options is None or body.get("stream"),
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        param="stream_options",
    )
    reply.need(
        options is None or isinstance(options, dict),
        "Invalid type for 'stream_options': expected an object.",
        param="stream_options",
    )
    _check_tools(body.get("tools"))
    for number, message in enumerate(messages):
        _check_message(f"messages[{number}]", message)
    _check_pairs(messages)


def _check_tools(tools: Any) -> None:
    if tools is None:
        return
    reply.need(
        isinstance(tools, list), "Invalid type for 'tools': expected an array of objects.", param="tools", code="invalid_type"
    )
    for number, tool in enumerate(tools):
        where = f"tools[{number}]"
        kind = tool.get("type") if isinstance(tool, dict) else None
        reply.need(
            isinstance(kind, str) and kind in ("function", "custom"), f"Missing required parameter: '{where}.type'.", param=where
        )
        about = tool.get(kind)
        name = about.get("name") if isinstance(about, dict) else None
        check_name(f"{where}.{kind}.name", name)


def check_name(where: str, name: Any) -> None:
    if not isinstance(name, str):
        raise reply.ApiRefusal(f"Missing required parameter: '{where}'.", param=where, code="missing_required_parameter")
    reply.need(
        _NAME.fullmatch(name),
        f"Invalid '{where}': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
        param=where,
        code="invalid_value",
    )


def _check_message(where: str, message: Any) -> None:
    reply.need(isinstance(message, dict), f"Invalid type for '{where}': expected an object.", param=where, code="invalid_type")
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or role not in _ROLES:
        said = (
            "Missing required parameter" if role is None else f"Invalid value: {role!r}. Supported values are: {', '.join(_ROLES)}"
        )
        raise reply.ApiRefusal(f"{said} ('{where}.role').", param=f"{where}.role", code="invalid_value")
    calls = message.get("tool_calls")
    if role == "assistant" and calls is not None:
        _check_calls(f"{where}.tool_calls", calls)
    elif role == "assistant":
        reply.need(content is not None or message.get("refusal"), _format_null_error(f"{where}.content"), param=f"{where}.content")
    if role == "tool":
        reply.need(
            isinstance(message.get("tool_call_id"), str),
            f"Missing required parameter: '{where}.tool_call_id'.",
            param=f"{where}.tool_call_id",
            code="missing_required_parameter",
        )
    may_lack = role in ("assistant", "function") and content is None
    reply.need(may_lack or isinstance(content, str | list), _format_null_error(f"{where}.content"), param=f"{where}.content")
    for number, part in enumerate(reply.as_list(content)):
        _check_part(f"{where}.content[{number}]", part, role)


def _format_null_error(where: str) -> str:
    return f"Invalid value for '{where}': expected a string, got null."


def _check_part(where: str, part: Any, role: str) -> None:
    kind = part.get("type") if isinstance(part, dict) else None
    known = _PARTS.get(role, {"text"})
    reply.need(
        isinstance(kind, str) and kind in known,
        f"Invalid value: {kind!r}. Supported values are: {', '.join(sorted(known))} ('{where}.type').",
        param=f"{where}.type",
        code="invalid_value",
    )
    if kind == "text":
        reply.need(isinstance(part.get("text"), str), f"Missing required parameter: '{where}.text'.", param=f"{where}.text")


def _check_calls(where: str, calls: Any) -> None:
    if not isinstance(calls, list) or not calls:
        raise reply.ApiRefusal(
            f"Invalid '{where}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            param=where,
            code="empty_array",
        )
    for number, call in enumerate(calls):
        at = f"{where}[{number}]"
        reply.need(isinstance(call, dict), f"Invalid type for '{at}': expected an object.", param=at, code="invalid_type")
        reply.need(isinstance(call.get("id"), str) and call["id"], f"Missing required parameter: '{at}.id'.", param=f"{at}.id")
        kind = call.get("type")
        reply.need(
            isinstance(kind, str) and kind in ("function", "custom"),
            f"Missing required parameter: '{at}.type'.",
            param=f"{at}.type",
        )
        about = call.get(kind)
        said = "arguments" if kind == "function" else "input"
        for field in ("name", said):
            missing = f"Missing required parameter: '{at}.{kind}.{field}'."
            reply.need(isinstance(about, dict) and isinstance(about.get(field), str), missing, param=f"{at}.{kind}.{field}")


def _check_pairs(messages: list[reply.Json]) -> None:
    """Behind calls come their results, and results come nowhere else."""
    asked: set[str] = set()  # by the newest message of the assistant
    waiting: set[str] = set()
    for number, message in enumerate(messages):
        if message["role"] == "tool":
            where, id = f"messages.[{number}]", message["tool_call_id"]
            reply.need(
                asked,
                "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
                param=f"{where}.role",
            )
            reply.need(
                id in asked,
                f"Invalid parameter: 'tool_call_id' of '{id}' not found in 'tool_calls' of previous message.",
                param=f"{where}.tool_call_id",
            )
            waiting.discard(id)
            continue
        _check_answered(waiting, number)
        ids = [call["id"] for call in message.get("tool_calls") or []] if message["role"] == "assistant" else []
        reply.need(
            not reply.find_duplicates(ids),
            f"Duplicate value for 'tool_call_id' of {', '.join(reply.find_duplicates(ids))!r} in message[{number}]",
        )
        asked, waiting = set(ids), set(ids)
    _check_answered(waiting, len(messages))


def _check_answered(waiting: set[str], number: int) -> None:
    reply.need(
        not waiting,
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(sorted(waiting))}",
        param=f"messages.[{number}].role",
    )


_STOPS = {"end": "stop", "tool_use": "tool_calls", "refusal": "content_filter"}  # `length` is the same word
_FINGERPRINT = "fp_serai"
_ARGUMENTS = 40  # characters of a call's arguments in one event
_ERRORS: dict[int, tuple[str, str | None]] = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("insufficient_permissions", None),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}


def read(body: reply.Json, raw: bytes, digest: str) -> reply.NeutralRequest:
    check(body)
    messages = reply.list_objects(body["messages"])
    systems = [message for message in messages if message["role"] in ("system", "developer")]
    return reply.NeutralRequest(
        body=body,
        digest=digest,
        model=body["model"],
        stream=bool(body.get("stream")),
        said=tuple(_iter_messages(messages)),
        system="\n".join(reply.join_text(message["content"], "text") for message in systems),
        tools=tuple(tool[tool["type"]]["name"] for tool in reply.list_objects(body.get("tools"))),
        tokens=reply.count_tokens(len(raw)),
        cached=reply.count_tokens(len(reply.dumps([body.get("tools"), systems]))),
    )


def _iter_messages(messages: list[reply.Json]) -> Iterator[ScriptMessage]:
    for message in messages:
        text = reply.join_text(message.get("content"), "text")
        match message["role"]:
            case "assistant":
                yield ScriptMessage("assistant", text)
            case "tool" | "function":
                yield ScriptMessage("tool", text)
            case "user":
                yield ScriptMessage("user", text)


def _usage(asked: reply.NeutralRequest, output: int, thought: int) -> reply.Json:
    return {
        "prompt_tokens": asked.tokens,
        "completion_tokens": output,
        "total_tokens": asked.tokens + output,
        "prompt_tokens_details": {"cached_tokens": 0 if asked.is_first else min(asked.cached, asked.tokens), "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": thought,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _build_head(asked: reply.NeutralRequest, kind: str) -> reply.Json:
    return {
        "id": asked.make_id("chatcmpl-"),
        "object": kind,
        "created": reply.CREATED,
        "model": asked.model,
        "service_tier": "default",
        "system_fingerprint": _FINGERPRINT,
    }


def build_answer(asked: reply.NeutralRequest, made: list[reply.ReplyBlock], stop: str) -> reply.Json:
    texts = {kind: "".join(block.text for block in made if block.kind is kind) for kind in (reply.TextPiece, reply.ThoughtPiece)}
    message: reply.Json = {"role": "assistant", "content": texts[reply.TextPiece] or None, "refusal": None, "annotations": []}
    if texts[reply.ThoughtPiece]:
        message["reasoning_content"] = texts[reply.ThoughtPiece]
    if calls := [block for block in made if block.kind is reply.CallPiece]:
        message["tool_calls"] = [_build_call(asked, block.number, block.name, block.text) for block in calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _STOPS.get(stop, stop)}
    thought = reply.count_tokens(len(texts[reply.ThoughtPiece])) if texts[reply.ThoughtPiece] else 0
    usage = _usage(asked, reply.count_tokens(sum(len(block.text) for block in made)), thought)
    return {**_build_head(asked, "chat.completion"), "choices": [choice], "usage": usage}


def _build_call(asked: reply.NeutralRequest, number: int, name: str, arguments: str) -> reply.Json:
    return {"id": asked.make_id("call_", number), "type": "function", "function": {"name": name, "arguments": arguments}}


class ChatEvents(reply.Encoder):
    """Chunks: the role, pieces of the content or of calls, the reason of its end, the usage if it was asked for, `[DONE]`.

    Thinking goes as `reasoning_content`: OpenAI's own keeps it to itself, but many who speak this API send it so.
    """

    def __init__(self, asked: reply.NeutralRequest, stop: str) -> None:
        super().__init__(asked, stop)
        options = asked.body.get("stream_options") or {}
        self._tells_usage = options.get("include_usage") is True
        head = reply.dumps(_build_head(asked, "chat.completion.chunk"))[:-1]
        self._before = b"data: " + head + b',"choices":[{"index":0,"delta":'
        self._after = b',"logprobs":null,"finish_reason":null}]%s}\n\n' % (b',"usage":null' if self._tells_usage else b"")
        self._last: tuple[reply.Content | None, bytes] = (None, b"")
        self._thought = 0

    def _encode_chunk(self, delta: reply.Json) -> bytes:
        return self._before + reply.dumps(delta) + self._after

    def begin(self) -> Iterator[bytes]:
        yield self._encode_chunk({"role": "assistant", "content": "", "refusal": None})

    def open(self, piece: reply.Content) -> Iterator[bytes]:
        if not isinstance(piece, reply.CallPiece):
            return
        call = _build_call(self.asked, piece.number, piece.name, "")
        yield self._encode_chunk({"tool_calls": [{"index": piece.number, **call}]})
        for start in range(0, len(piece.text), _ARGUMENTS):
            function = {"arguments": piece.text[start : start + _ARGUMENTS]}
            yield self._encode_chunk({"tool_calls": [{"index": piece.number, "function": function}]})

    def encode_delta(self, piece: reply.Content) -> bytes:
        if isinstance(piece, reply.ThoughtPiece):
            self._thought += len(piece.text)
        if piece is not self._last[0]:  # what repeats is encoded once
            self._last = (
                piece,
                self._encode_chunk({"content" if isinstance(piece, reply.TextPiece) else "reasoning_content": piece.text}),
            )
        return self._last[1]

    def close(self) -> Iterator[bytes]:
        return iter(())

    def end(self) -> Iterator[bytes]:
        head = _build_head(self.asked, "chat.completion.chunk")
        choice = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": _STOPS.get(self.stop, self.stop)}
        yield b"data: %s\n\n" % reply.dumps({**head, "choices": [choice], **({"usage": None} if self._tells_usage else {})})
        if self._tells_usage:
            usage = _usage(self.asked, reply.count_tokens(self.length), reply.count_tokens(self._thought) if self._thought else 0)
            yield b"data: %s\n\n" % reply.dumps({**head, "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"


def build_error(status: int, text: str, _request_id: str = "", why: reply.ApiRefusal | None = None) -> reply.Json:
    kind, code = _ERRORS.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
    code = why.code if why is not None else code
    return {"error": {"message": text or kind, "type": kind, "param": why.param if why is not None else None, "code": code}}


def encode_error(status: int, text: str, _sent: int) -> bytes:
    return b"data: %s\n\n" % reply.dumps(build_error(status, text))


def list_models(ids: tuple[str, ...]) -> reply.Json:
    return {"object": "list", "data": [{"id": id, "object": "model", "created": reply.CREATED, "owned_by": "serai"} for id in ids]}


API = reply.Api(
    name="openai",
    read=read,
    encoder=ChatEvents,
    whole=build_answer,
    error=build_error,
    broken=encode_error,
    malformed=b'data: {"id":"chatcmpl-broken","choices":[{"index":0,"delta":\n\n',
    request_id="x-request-id",
)

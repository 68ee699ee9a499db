"""The Chat Completions API: `POST /v1/chat/completions`, and the list of models that both of OpenAI's APIs have.

Requests are refused as the real API refuses them, with its texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from serai.agents.models.model_script import ScriptMessage
from serai.testing.models.reply import (
    CREATED,
    Api,
    BadRequest,
    CallPiece,
    Content,
    Encoder,
    Json,
    NeutralRequest,
    ReplyBlock,
    TextPiece,
    ThoughtPiece,
    dumps,
    duplicates,
    items,
    need,
    objects,
    text_of,
    tokens,
)

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PARTS = {
    "system": {"text"},
    "developer": {"text"},
    "tool": {"text"},
    "assistant": {"text", "refusal"},
    "user": {"text", "image_url", "input_audio", "file"},
}


def check(body: Json) -> None:
    need(isinstance(body.get("model"), str) and body["model"], "you must provide a model parameter")
    messages = body.get("messages")
    need("messages" in body, "Missing required parameter: 'messages'.", param="messages", code="missing_required_parameter")
    if not isinstance(messages, list):
        raise BadRequest("Invalid type for 'messages': expected an array of objects.", param="messages", code="invalid_type")
    need(
        messages,
        "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        param="messages",
        code="empty_array",
    )
    need(isinstance(body.get("stream") or False, bool), "Invalid type for 'stream': expected a boolean.", param="stream")
    options = body.get("stream_options")
    need(
        options is None or body.get("stream"),
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        param="stream_options",
    )
    need(
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
    need(isinstance(tools, list), "Invalid type for 'tools': expected an array of objects.", param="tools", code="invalid_type")
    for number, tool in enumerate(tools):
        where = f"tools[{number}]"
        kind = tool.get("type") if isinstance(tool, dict) else None
        need(isinstance(kind, str) and kind in ("function", "custom"), f"Missing required parameter: '{where}.type'.", param=where)
        about = tool.get(kind)
        name = about.get("name") if isinstance(about, dict) else None
        check_name(f"{where}.{kind}.name", name)


def check_name(where: str, name: Any) -> None:
    if not isinstance(name, str):
        raise BadRequest(f"Missing required parameter: '{where}'.", param=where, code="missing_required_parameter")
    need(
        _NAME.fullmatch(name),
        f"Invalid '{where}': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
        param=where,
        code="invalid_value",
    )


def _check_message(where: str, message: Any) -> None:
    need(isinstance(message, dict), f"Invalid type for '{where}': expected an object.", param=where, code="invalid_type")
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or role not in _ROLES:
        said = (
            "Missing required parameter" if role is None else f"Invalid value: {role!r}. Supported values are: {', '.join(_ROLES)}"
        )
        raise BadRequest(f"{said} ('{where}.role').", param=f"{where}.role", code="invalid_value")
    calls = message.get("tool_calls")
    if role == "assistant" and calls is not None:
        _check_calls(f"{where}.tool_calls", calls)
    elif role == "assistant":
        need(content is not None or message.get("refusal"), _null(f"{where}.content"), param=f"{where}.content")
    if role == "tool":
        need(
            isinstance(message.get("tool_call_id"), str),
            f"Missing required parameter: '{where}.tool_call_id'.",
            param=f"{where}.tool_call_id",
            code="missing_required_parameter",
        )
    may_lack = role in ("assistant", "function") and content is None
    need(may_lack or isinstance(content, str | list), _null(f"{where}.content"), param=f"{where}.content")
    for number, part in enumerate(items(content)):
        _check_part(f"{where}.content[{number}]", part, role)


def _null(where: str) -> str:
    return f"Invalid value for '{where}': expected a string, got null."


def _check_part(where: str, part: Any, role: str) -> None:
    kind = part.get("type") if isinstance(part, dict) else None
    known = _PARTS.get(role, {"text"})
    need(
        isinstance(kind, str) and kind in known,
        f"Invalid value: {kind!r}. Supported values are: {', '.join(sorted(known))} ('{where}.type').",
        param=f"{where}.type",
        code="invalid_value",
    )
    if kind == "text":
        need(isinstance(part.get("text"), str), f"Missing required parameter: '{where}.text'.", param=f"{where}.text")


def _check_calls(where: str, calls: Any) -> None:
    if not isinstance(calls, list) or not calls:
        raise BadRequest(
            f"Invalid '{where}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
            param=where,
            code="empty_array",
        )
    for number, call in enumerate(calls):
        at = f"{where}[{number}]"
        need(isinstance(call, dict), f"Invalid type for '{at}': expected an object.", param=at, code="invalid_type")
        need(isinstance(call.get("id"), str) and call["id"], f"Missing required parameter: '{at}.id'.", param=f"{at}.id")
        kind = call.get("type")
        need(
            isinstance(kind, str) and kind in ("function", "custom"),
            f"Missing required parameter: '{at}.type'.",
            param=f"{at}.type",
        )
        about = call.get(kind)
        said = "arguments" if kind == "function" else "input"
        for field in ("name", said):
            missing = f"Missing required parameter: '{at}.{kind}.{field}'."
            need(isinstance(about, dict) and isinstance(about.get(field), str), missing, param=f"{at}.{kind}.{field}")


def _check_pairs(messages: list[Json]) -> None:
    """Behind calls come their results, and results come nowhere else."""
    asked: set[str] = set()  # by the newest message of the assistant
    waiting: set[str] = set()
    for number, message in enumerate(messages):
        if message["role"] == "tool":
            where, id = f"messages.[{number}]", message["tool_call_id"]
            need(
                asked,
                "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
                param=f"{where}.role",
            )
            need(
                id in asked,
                f"Invalid parameter: 'tool_call_id' of '{id}' not found in 'tool_calls' of previous message.",
                param=f"{where}.tool_call_id",
            )
            waiting.discard(id)
            continue
        _check_answered(waiting, number)
        ids = [call["id"] for call in message.get("tool_calls") or []] if message["role"] == "assistant" else []
        need(not duplicates(ids), f"Duplicate value for 'tool_call_id' of {', '.join(duplicates(ids))!r} in message[{number}]")
        asked, waiting = set(ids), set(ids)
    _check_answered(waiting, len(messages))


def _check_answered(waiting: set[str], number: int) -> None:
    need(
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


def read(body: Json, raw: bytes, digest: str) -> NeutralRequest:
    check(body)
    messages = objects(body["messages"])
    systems = [message for message in messages if message["role"] in ("system", "developer")]
    return NeutralRequest(
        body=body,
        digest=digest,
        model=body["model"],
        stream=bool(body.get("stream")),
        said=tuple(_said(messages)),
        system="\n".join(text_of(message["content"], "text") for message in systems),
        tools=tuple(tool[tool["type"]]["name"] for tool in objects(body.get("tools"))),
        tokens=tokens(len(raw)),
        cached=tokens(len(dumps([body.get("tools"), systems]))),
    )


def _said(messages: list[Json]) -> Iterator[ScriptMessage]:
    for message in messages:
        text = text_of(message.get("content"), "text")
        match message["role"]:
            case "assistant":
                yield ScriptMessage("assistant", text)
            case "tool" | "function":
                yield ScriptMessage("tool", text)
            case "user":
                yield ScriptMessage("user", text)


def _usage(asked: NeutralRequest, output: int, thought: int) -> Json:
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


def _head(asked: NeutralRequest, kind: str) -> Json:
    return {
        "id": asked.id("chatcmpl-"),
        "object": kind,
        "created": CREATED,
        "model": asked.model,
        "service_tier": "default",
        "system_fingerprint": _FINGERPRINT,
    }


def whole(asked: NeutralRequest, made: list[ReplyBlock], stop: str) -> Json:
    texts = {kind: "".join(block.text for block in made if block.kind is kind) for kind in (TextPiece, ThoughtPiece)}
    message: Json = {"role": "assistant", "content": texts[TextPiece] or None, "refusal": None, "annotations": []}
    if texts[ThoughtPiece]:
        message["reasoning_content"] = texts[ThoughtPiece]
    if calls := [block for block in made if block.kind is CallPiece]:
        message["tool_calls"] = [_call(asked, block.number, block.name, block.text) for block in calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _STOPS.get(stop, stop)}
    thought = tokens(len(texts[ThoughtPiece])) if texts[ThoughtPiece] else 0
    usage = _usage(asked, tokens(sum(len(block.text) for block in made)), thought)
    return {**_head(asked, "chat.completion"), "choices": [choice], "usage": usage}


def _call(asked: NeutralRequest, number: int, name: str, arguments: str) -> Json:
    return {"id": asked.id("call_", number), "type": "function", "function": {"name": name, "arguments": arguments}}


class ChatEvents(Encoder):
    """Chunks: the role, pieces of the content or of calls, the reason of its end, the usage if it was asked for, `[DONE]`.

    Thinking goes as `reasoning_content`: OpenAI's own keeps it to itself, but many who speak this API send it so.
    """

    def __init__(self, asked: NeutralRequest, stop: str) -> None:
        super().__init__(asked, stop)
        options = asked.body.get("stream_options") or {}
        self._tells_usage = options.get("include_usage") is True
        head = dumps(_head(asked, "chat.completion.chunk"))[:-1]
        self._before = b"data: " + head + b',"choices":[{"index":0,"delta":'
        self._after = b',"logprobs":null,"finish_reason":null}]%s}\n\n' % (b',"usage":null' if self._tells_usage else b"")
        self._last: tuple[Content | None, bytes] = (None, b"")
        self._thought = 0

    def _chunk(self, delta: Json) -> bytes:
        return self._before + dumps(delta) + self._after

    def begin(self) -> Iterator[bytes]:
        yield self._chunk({"role": "assistant", "content": "", "refusal": None})

    def open(self, piece: Content) -> Iterator[bytes]:
        if not isinstance(piece, CallPiece):
            return
        call = _call(self.asked, piece.number, piece.name, "")
        yield self._chunk({"tool_calls": [{"index": piece.number, **call}]})
        for start in range(0, len(piece.text), _ARGUMENTS):
            function = {"arguments": piece.text[start : start + _ARGUMENTS]}
            yield self._chunk({"tool_calls": [{"index": piece.number, "function": function}]})

    def delta(self, piece: Content) -> bytes:
        if isinstance(piece, ThoughtPiece):
            self._thought += len(piece.text)
        if piece is not self._last[0]:  # what repeats is encoded once
            self._last = (piece, self._chunk({"content" if isinstance(piece, TextPiece) else "reasoning_content": piece.text}))
        return self._last[1]

    def close(self) -> Iterator[bytes]:
        return iter(())

    def end(self) -> Iterator[bytes]:
        head = _head(self.asked, "chat.completion.chunk")
        choice = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": _STOPS.get(self.stop, self.stop)}
        yield b"data: %s\n\n" % dumps({**head, "choices": [choice], **({"usage": None} if self._tells_usage else {})})
        if self._tells_usage:
            usage = _usage(self.asked, tokens(self.length), tokens(self._thought) if self._thought else 0)
            yield b"data: %s\n\n" % dumps({**head, "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"


def error(status: int, text: str, _request_id: str = "", why: BadRequest | None = None) -> Json:
    kind, code = _ERRORS.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
    code = why.code if why is not None else code
    return {"error": {"message": text or kind, "type": kind, "param": why.param if why is not None else None, "code": code}}


def broken(status: int, text: str, _sent: int) -> bytes:
    return b"data: %s\n\n" % dumps(error(status, text))


def models(ids: tuple[str, ...]) -> Json:
    return {"object": "list", "data": [{"id": id, "object": "model", "created": CREATED, "owned_by": "serai"} for id in ids]}


API = Api(
    name="openai",
    read=read,
    encoder=ChatEvents,
    whole=whole,
    error=error,
    broken=broken,
    malformed=b'data: {"id":"chatcmpl-broken","choices":[{"index":0,"delta":\n\n',
    request_id="x-request-id",
)

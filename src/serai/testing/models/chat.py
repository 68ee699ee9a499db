"""The Chat Completions API: `POST /v1/chat/completions`, and the list of models that both of OpenAI's APIs have."""

from __future__ import annotations

from collections.abc import Iterator

from serai.agents.models.model_script import ScriptMessage
from serai.testing.models.answering import (
    CREATED,
    Api,
    Asked,
    BadRequest,
    Block,
    Called,
    Content,
    Encoder,
    Json,
    Text,
    Thought,
    dumps,
    tokens,
)
from serai.testing.models.chat_checks import check
from serai.testing.models.checking import objects, text_of

__all__ = ["API", "error", "models"]

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


def read(body: Json, raw: bytes, digest: str) -> Asked:
    check(body)
    messages = objects(body["messages"])
    systems = [message for message in messages if message["role"] in ("system", "developer")]
    return Asked(
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


def _usage(asked: Asked, output: int, thought: int) -> Json:
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


def _head(asked: Asked, kind: str) -> Json:
    return {
        "id": asked.id("chatcmpl-"),
        "object": kind,
        "created": CREATED,
        "model": asked.model,
        "service_tier": "default",
        "system_fingerprint": _FINGERPRINT,
    }


def whole(asked: Asked, made: list[Block], stop: str) -> Json:
    texts = {kind: "".join(block.text for block in made if block.kind is kind) for kind in (Text, Thought)}
    message: Json = {"role": "assistant", "content": texts[Text] or None, "refusal": None, "annotations": []}
    if texts[Thought]:
        message["reasoning_content"] = texts[Thought]
    if calls := [block for block in made if block.kind is Called]:
        message["tool_calls"] = [_call(asked, block.number, block.name, block.text) for block in calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _STOPS.get(stop, stop)}
    thought = tokens(len(texts[Thought])) if texts[Thought] else 0
    usage = _usage(asked, tokens(sum(len(block.text) for block in made)), thought)
    return {**_head(asked, "chat.completion"), "choices": [choice], "usage": usage}


def _call(asked: Asked, number: int, name: str, arguments: str) -> Json:
    return {"id": asked.id("call_", number), "type": "function", "function": {"name": name, "arguments": arguments}}


class Events(Encoder):
    """Chunks: the role, pieces of the content or of calls, the reason of its end, the usage if it was asked for, `[DONE]`.

    Thinking goes as `reasoning_content`: OpenAI's own keeps it to itself, but many who speak this API send it so.
    """

    def __init__(self, asked: Asked, stop: str) -> None:
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
        if not isinstance(piece, Called):
            return
        call = _call(self.asked, piece.number, piece.name, "")
        yield self._chunk({"tool_calls": [{"index": piece.number, **call}]})
        for start in range(0, len(piece.text), _ARGUMENTS):
            function = {"arguments": piece.text[start : start + _ARGUMENTS]}
            yield self._chunk({"tool_calls": [{"index": piece.number, "function": function}]})

    def delta(self, piece: Content) -> bytes:
        if isinstance(piece, Thought):
            self._thought += len(piece.text)
        if piece is not self._last[0]:  # what repeats is encoded once
            self._last = (piece, self._chunk({"content" if isinstance(piece, Text) else "reasoning_content": piece.text}))
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
    encoder=Events,
    whole=whole,
    error=error,
    broken=broken,
    malformed=b'data: {"id":"chatcmpl-broken","choices":[{"index":0,"delta":\n\n',
    request_id="x-request-id",
)

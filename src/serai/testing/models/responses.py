"""The Responses API: `POST /v1/responses`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from serai.agents.models.model_script import ScriptMessage
from serai.testing.models import chat
from serai.testing.models.answering import (
    CREATED,
    Api,
    Asked,
    Block,
    Called,
    Content,
    Encoder,
    Gathered,
    Json,
    Text,
    Thought,
    dumps,
    tokens,
)
from serai.testing.models.checking import items, objects, text_of
from serai.testing.models.responses_checks import ANSWERS, CALLS, check, kind_of, sealed

__all__ = ["API"]

_INCOMPLETE = {"length": "max_output_tokens", "refusal": "content_filter"}
_SEALED = "reasoning.encrypted_content"
_OURS = re.compile(r"call_([0-9a-f]{24})\d{4,}")  # which answer, which of its calls (`Asked.id`)
_ARGUMENTS = 40  # characters of a call's arguments in one event


def read(body: Json, raw: bytes, digest: str) -> Asked:
    check(body)
    given = body["input"]
    system = [body.get("instructions") or ""]
    system += [_text(item) for item in objects(given) if kind_of(item) == "message" and item["role"] in ("system", "developer")]
    return Asked(
        body=body,
        digest=digest,
        model=body["model"],
        stream=bool(body.get("stream")),
        said=(ScriptMessage("user", given),) if isinstance(given, str) else tuple(_said(objects(given))),
        system="\n".join(filter(None, system)),
        tools=tuple(str(tool.get("name") or tool["type"]) for tool in objects(body.get("tools"))),
        tokens=tokens(len(raw)),
        cached=tokens(len(dumps([body.get("tools"), body.get("instructions")]))),
    )


def _text(item: Json) -> str:
    return text_of(item.get("content"), "input_text", "output_text")


def _said(given: list[Json]) -> Iterator[ScriptMessage]:
    """The items as messages. Calls of one answer stay one although a client puts each output right behind its call."""
    answer = ""
    for item in given:
        kind = kind_of(item)
        if kind in CALLS.values():
            yield ScriptMessage("tool", text_of(item["output"], "input_text", "output_text"))
        elif kind == "message" and item["role"] == "user":
            yield ScriptMessage("user", _text(item))
        elif kind in CALLS:
            ours = _OURS.fullmatch(item["call_id"])
            if ours is None or ours[1] != answer:
                yield ScriptMessage("assistant")
            answer = ours[1] if ours is not None else ""
        elif kind in ANSWERS or (kind == "message" and item["role"] == "assistant"):
            yield ScriptMessage("assistant", _text(item))


def _usage(asked: Asked, output: int, thought: int) -> Json:
    cached = 0 if asked.is_first else min(asked.cached, asked.tokens)
    return {
        "input_tokens": asked.tokens,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": asked.tokens + output,
    }


def _response(asked: Asked, status: str, output: list[Json], made: list[Block], stop: str = "end") -> Json:
    body = asked.body
    done = status != "in_progress"
    thought = sum(len(block.text) for block in made if block.kind is Thought)
    length = sum(len(block.text) for block in made)
    return {
        "id": asked.id("resp_"),
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": {"reason": _INCOMPLETE[stop]} if status == "incomplete" else None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "model": asked.model,
        "output": output,
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "previous_response_id": None,
        "reasoning": body.get("reasoning") or {"effort": None, "summary": None},
        "service_tier": "default",
        "store": body.get("store", True),
        "temperature": body.get("temperature", 1.0),
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools") or [],
        "top_p": body.get("top_p", 1.0),
        "truncation": "disabled",
        "usage": _usage(asked, tokens(length), tokens(thought) if thought else 0) if done else None,
        "user": None,
        "metadata": body.get("metadata") or {},
    }


def whole(asked: Asked, made: list[Block], stop: str) -> Json:
    output = [_item(asked, number, block, "completed") for number, block in enumerate(made)]
    return _response(asked, "incomplete" if stop in _INCOMPLETE else "completed", output, made, stop)


def _item(asked: Asked, number: int, block: Block, status: str) -> Json:
    """An item of the output: as it begins (`in_progress`, and the block is empty), or whole."""
    begins = status == "in_progress"
    if block.kind is Text:
        content = [] if begins else [_part(block.text)]
        return {"id": asked.id("msg_", number), "type": "message", "status": status, "role": "assistant", "content": content}
    if block.kind is Thought:
        summary = [] if begins else [{"type": "summary_text", "text": block.text}]
        item: Json = {"id": asked.id("rs_", number), "type": "reasoning", "summary": summary}
        if _SEALED in items(asked.body.get("include")):
            item["encrypted_content"] = "" if begins else sealed(block.text)
        return item
    called = {"call_id": asked.id("call_", block.number), "name": block.name}
    if _is_custom(asked, block.name):
        return {"id": asked.id("ctc_", number), "type": "custom_tool_call", "status": status, **called, "input": block.text}
    return {"id": asked.id("fc_", number), "type": "function_call", "status": status, **called, "arguments": block.text}


def _part(text: str) -> Json:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def _is_custom(asked: Asked, name: str) -> bool:
    """A tool that takes a text as it is, such as the `apply_patch` of Codex."""
    return any(tool.get("type") == "custom" and tool.get("name") == name for tool in objects(asked.body.get("tools")))


class Events(Encoder):
    """response.created, response.in_progress, { output_item.added, …, output_item.done }*, response.completed; all are numbered."""

    def __init__(self, asked: Asked, stop: str) -> None:
        super().__init__(asked, stop)
        self._sent = 0
        self._gathered = Gathered()
        self._output: list[Json] = []
        self._where: Json = {}
        self._last: tuple[Content | None, bytes, bytes] = (None, b"", b"")

    def _event(self, kind: str, fields: Json) -> bytes:
        event = b"event: %s\ndata: %s\n\n" % (kind.encode(), dumps({"type": kind, "sequence_number": self._sent, **fields}))
        self._sent += 1
        return event

    def begin(self) -> Iterator[bytes]:
        response = _response(self.asked, "in_progress", [], [])
        yield self._event("response.created", {"response": response})
        yield self._event("response.in_progress", {"response": response})

    def open(self, piece: Content) -> Iterator[bytes]:
        number = len(self._output)
        name, call = (piece.name, piece.number) if isinstance(piece, Called) else ("", 0)
        item = _item(self.asked, number, Block(type(piece), "", name, call), "in_progress")
        self._where = {"item_id": item["id"], "output_index": number}
        self._last = (None, b"", b"")
        yield self._event("response.output_item.added", {"output_index": number, "item": item})
        if isinstance(piece, Text):
            self._where["content_index"] = 0
            yield self._event("response.content_part.added", {**self._where, "part": _part("")})
        elif isinstance(piece, Thought):
            self._where["summary_index"] = 0
            yield self._event(
                "response.reasoning_summary_part.added", {**self._where, "part": {"type": "summary_text", "text": ""}}
            )
        else:
            self._gathered.add(piece)
            yield from self._arguments(piece)

    def _arguments(self, call: Called) -> Iterator[bytes]:
        custom = _is_custom(self.asked, call.name)
        kind, field = ("custom_tool_call_input", "input") if custom else ("function_call_arguments", "arguments")
        for start in range(0, len(call.text), _ARGUMENTS):
            yield self._event(f"response.{kind}.delta", {**self._where, "delta": call.text[start : start + _ARGUMENTS]})
        yield self._event(f"response.{kind}.done", {**self._where, field: call.text})

    def delta(self, piece: Content) -> bytes:
        self._gathered.add(piece)
        if piece is not self._last[0]:  # what repeats is encoded once, but for its number
            kind = b"response.output_text.delta" if isinstance(piece, Text) else b"response.reasoning_summary_text.delta"
            more: Json = {"logprobs": []} if isinstance(piece, Text) else {}
            before = b'event: %s\ndata: {"type":"%s","sequence_number":' % (kind, kind)
            self._last = (piece, before, b",%s\n\n" % dumps({**self._where, "delta": piece.text, **more})[1:])
        self._sent += 1
        return b"%s%d%s" % (self._last[1], self._sent - 1, self._last[2])

    def close(self) -> Iterator[bytes]:
        self._gathered.close()
        block = self._gathered.blocks[-1]
        if block.kind is Text:
            yield self._event("response.output_text.done", {**self._where, "text": block.text, "logprobs": []})
            yield self._event("response.content_part.done", {**self._where, "part": _part(block.text)})
        elif block.kind is Thought:
            part = {"type": "summary_text", "text": block.text}
            yield self._event("response.reasoning_summary_text.done", {**self._where, "text": block.text})
            yield self._event("response.reasoning_summary_part.done", {**self._where, "part": part})
        item = _item(self.asked, len(self._output), block, "completed")
        yield self._event("response.output_item.done", {"output_index": len(self._output), "item": item})
        self._output.append(item)

    def end(self) -> Iterator[bytes]:
        status = "incomplete" if self.stop in _INCOMPLETE else "completed"
        response = _response(self.asked, status, self._output, self._gathered.blocks, self.stop)
        yield self._event(f"response.{status}", {"response": response})


def broken(status: int, text: str, sent: int) -> bytes:
    told = chat.error(status, text)["error"]
    event = {
        "type": "error",
        "code": told["code"] or told["type"],
        "message": told["message"],
        "param": None,
        "sequence_number": sent,
    }
    return b"event: error\ndata: %s\n\n" % dumps(event)


API = Api(
    name="openai-responses",
    read=read,
    encoder=Events,
    whole=whole,
    error=chat.error,
    broken=broken,
    malformed=b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":\n\n',
    request_id="x-request-id",
)

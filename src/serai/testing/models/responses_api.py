"""The Responses API: `POST /v1/responses`. Requests are refused as the real API refuses them, with its texts."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from typing import Any

from serai.agents.models.parrot import ScriptMessage
from serai.testing.models import chat_api, reply
from serai.testing.models.chat_api import check_name

_ROLES = ("assistant", "system", "developer", "user")
_LEAST_OUTPUT = 16

# What a model says, item by item. (A type that is not named here is the provider's own, and passed over.)
CALLS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
ANSWERS = frozenset({"reasoning", *CALLS})
_SAID = {"assistant": {"output_text", "refusal"}}
_HEARD = {"input_text", "input_image", "input_file", "input_audio"}


def seal_thought(thought: str) -> str:
    """What stands for thoughts that only their model can read. Who sends it back with others is found out."""
    return base64.b64encode(b"sealed:" + hashlib.sha256(thought.encode(errors="surrogatepass")).digest()).decode()


def get_kind(item: reply.Json) -> str:
    kind = item.get("type", "message" if "role" in item else "")
    return kind if isinstance(kind, str) else ""


def check(body: reply.Json) -> None:
    reply.need(isinstance(body.get("model"), str) and body["model"], "Missing required parameter: 'model'.", param="model")
    previous = body.get("previous_response_id")
    reply.need(
        previous is None,
        f"Previous response with id '{previous}' not found.",
        param="previous_response_id",
        code="previous_response_not_found",
    )
    given = body.get("input")
    reply.need(given is not None, "Missing required parameter: 'input'.", param="input", code="missing_required_parameter")
    reply.need(
        isinstance(given, str | list),
        "Invalid type for 'input': expected a string or an array.",
        param="input",
        code="invalid_type",
    )
    reply.need(isinstance(body.get("stream") or False, bool), "Invalid type for 'stream': expected a boolean.", param="stream")
    said = body.get("instructions")
    reply.need(said is None or isinstance(said, str), "Invalid type for 'instructions': expected a string.", param="instructions")
    most = body.get("max_output_tokens")
    small = isinstance(most, int) and most < _LEAST_OUTPUT
    reply.need(
        most is None or (isinstance(most, int) and not small), f"Invalid 'max_output_tokens': Expected a value >= {_LEAST_OUTPUT}."
    )
    _check_tools(body.get("tools"))
    for number, item in enumerate(reply.as_list(given)):
        _check_item(f"input[{number}]", item)
    _check_pairs(reply.list_objects(given))
    _check_thoughts(reply.list_objects(given))


def _check_tools(tools: Any) -> None:
    if tools is None:
        return
    reply.need(
        isinstance(tools, list), "Invalid type for 'tools': expected an array of objects.", param="tools", code="invalid_type"
    )
    for number, tool in enumerate(tools):
        where = f"tools[{number}]"
        kind = tool.get("type") if isinstance(tool, dict) else None
        reply.need(isinstance(kind, str), f"Missing required parameter: '{where}.type'.", param=f"{where}.type")
        if kind in ("function", "custom"):
            check_name(f"{where}.name", tool.get("name"))


def _check_item(where: str, item: Any) -> None:
    reply.need(isinstance(item, dict), f"Invalid type for '{where}': expected an object.", param=where, code="invalid_type")
    kind = get_kind(item)
    reply.need(kind, f"Missing required parameter: '{where}.type'.", param=f"{where}.type", code="missing_required_parameter")
    if kind == "message":
        _check_message(where, item)
    elif kind in CALLS:
        for field in ("call_id", "name", "arguments" if kind == "function_call" else "input"):
            _need_text(where, item, field)
    elif kind in CALLS.values():
        _need_text(where, item, "call_id")
        output = isinstance(item.get("output"), str | list)
        reply.need(
            output, f"Missing required parameter: '{where}.output'.", param=f"{where}.output", code="missing_required_parameter"
        )
    elif kind == "reasoning":
        reply.need(
            isinstance(item.get("summary"), list), f"Missing required parameter: '{where}.summary'.", param=f"{where}.summary"
        )


def _need_text(where: str, item: reply.Json, field: str) -> None:
    is_text = isinstance(item.get(field), str)
    reply.need(
        is_text, f"Missing required parameter: '{where}.{field}'.", param=f"{where}.{field}", code="missing_required_parameter"
    )


def _check_message(where: str, item: reply.Json) -> None:
    role, content = item.get("role"), item.get("content")
    if not isinstance(role, str) or role not in _ROLES:
        names = ", ".join(f"'{name}'" for name in _ROLES)
        raise reply.ApiRefusal(
            f"Invalid value: {role!r}. Supported values are: {names}.", param=f"{where}.role", code="invalid_value"
        )
    has = isinstance(content, str | list)
    reply.need(has, f"Missing required parameter: '{where}.content'.", param=f"{where}.content", code="missing_required_parameter")
    known = _SAID.get(role, _HEARD)
    for number, part in enumerate(reply.as_list(content)):
        at = f"{where}.content[{number}]"
        kind = part.get("type") if isinstance(part, dict) else None
        names = ", ".join(f"'{name}'" for name in sorted(known))
        fits = isinstance(kind, str) and kind in known
        reply.need(fits, f"Invalid value: {kind!r}. Supported values are: {names}.", param=f"{at}.type", code="invalid_value")
        if kind in ("input_text", "output_text"):
            _need_text(at, part, "text")


def _check_pairs(given: list[reply.Json]) -> None:
    """Every output has its call before it, and every call its output behind it."""
    waiting: dict[str, str] = {}  # call -> what its output is
    outputs: set[tuple[str, str]] = set()
    for item in given:
        kind = get_kind(item)
        if kind in CALLS:
            waiting[item["call_id"]] = CALLS[kind]
            outputs.add((item["call_id"], CALLS[kind]))
        elif kind in CALLS.values():
            words = "function call output" if kind == "function_call_output" else "custom tool call output"
            id = item["call_id"]
            reply.need((id, kind) in outputs, f"No tool call found for {words} with call_id {id}.", param="input")
            waiting.pop(id, None)
    for id, output in waiting.items():
        words = "function call" if output == "function_call_output" else "custom tool call"
        raise reply.ApiRefusal(f"No tool output found for {words} {id}.", param="input")


def _check_thoughts(given: list[reply.Json]) -> None:
    """Thoughts come with what they led to, and unchanged."""
    for number, item in enumerate(given):
        if get_kind(item) != "reasoning":
            continue
        id = item.get("id")
        after = given[number + 1] if number + 1 < len(given) else {}
        leads = get_kind(after) in ANSWERS or (get_kind(after) == "message" and after.get("role") == "assistant")
        own = get_kind(after) not in ("message", *CALLS.values(), "")
        reply.need(
            leads or own, f"Item '{id}' of type 'reasoning' was provided without its required following item.", param="input"
        )
        seal = item.get("encrypted_content")
        thought = "\n\n".join(str(part.get("text")) for part in reply.list_objects(item["summary"]))
        fits = seal is None or seal == seal_thought(thought)
        reply.need(
            fits,
            f"The encrypted content for item {id} could not be verified.",
            code="invalid_encrypted_content",
        )


_INCOMPLETE = {"length": "max_output_tokens", "refusal": "content_filter"}
_SEALED = "reasoning.encrypted_content"
_OURS = re.compile(r"call_([0-9a-f]{24})\d{4,}")  # which answer, which of its calls (`Asked.id`)
_ARGUMENTS = 40  # characters of a call's arguments in one event


def read(body: reply.Json, raw: bytes, digest: str) -> reply.NeutralRequest:
    check(body)
    given = body["input"]
    system = [body.get("instructions") or ""]
    system += [
        _join(item) for item in reply.list_objects(given) if get_kind(item) == "message" and item["role"] in ("system", "developer")
    ]
    return reply.NeutralRequest(
        body=body,
        digest=digest,
        model=body["model"],
        stream=bool(body.get("stream")),
        said=(ScriptMessage("user", given),) if isinstance(given, str) else tuple(_iter_messages(reply.list_objects(given))),
        system="\n".join(filter(None, system)),
        tools=tuple(str(tool.get("name") or tool["type"]) for tool in reply.list_objects(body.get("tools"))),
        tokens=reply.count_tokens(len(raw)),
        cached=reply.count_tokens(len(reply.dumps([body.get("tools"), body.get("instructions")]))),
    )


def _join(item: reply.Json) -> str:
    return reply.join_text(item.get("content"), "input_text", "output_text")


def _iter_messages(given: list[reply.Json]) -> Iterator[ScriptMessage]:
    """The items as messages. Calls of one answer stay one although a client puts each output right behind its call."""
    answer = ""
    for item in given:
        kind = get_kind(item)
        if kind in CALLS.values():
            yield ScriptMessage("tool", reply.join_text(item["output"], "input_text", "output_text"))
        elif kind == "message" and item["role"] == "user":
            yield ScriptMessage("user", _join(item))
        elif kind in CALLS:
            ours = _OURS.fullmatch(item["call_id"])
            if ours is None or ours[1] != answer:
                yield ScriptMessage("assistant")
            answer = ours[1] if ours is not None else ""
        elif kind in ANSWERS or (kind == "message" and item["role"] == "assistant"):
            yield ScriptMessage("assistant", _join(item))


def _build_usage(asked: reply.NeutralRequest, output: int, thought: int) -> reply.Json:
    cached = 0 if asked.is_first else min(asked.cached, asked.tokens)
    return {
        "input_tokens": asked.tokens,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": asked.tokens + output,
    }


def _build_response(
    asked: reply.NeutralRequest, status: str, output: list[reply.Json], made: list[reply.ReplyBlock], stop: str = "end"
) -> reply.Json:
    body = asked.body
    done = status != "in_progress"
    thought = sum(len(block.text) for block in made if block.kind is reply.ThoughtPiece)
    length = sum(len(block.text) for block in made)
    return {
        "id": asked.make_id("resp_"),
        "object": "response",
        "created_at": reply.CREATED,
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
        "usage": _build_usage(asked, reply.count_tokens(length), reply.count_tokens(thought) if thought else 0) if done else None,
        "user": None,
        "metadata": body.get("metadata") or {},
    }


def build_answer(asked: reply.NeutralRequest, made: list[reply.ReplyBlock], stop: str) -> reply.Json:
    output = [_build_item(asked, number, block, "completed") for number, block in enumerate(made)]
    return _build_response(asked, "incomplete" if stop in _INCOMPLETE else "completed", output, made, stop)


def _build_item(asked: reply.NeutralRequest, number: int, block: reply.ReplyBlock, status: str) -> reply.Json:
    """An item of the output: as it begins (`in_progress`, and the block is empty), or whole."""
    begins = status == "in_progress"
    if block.kind is reply.TextPiece:
        content = [] if begins else [_build_part(block.text)]
        return {"id": asked.make_id("msg_", number), "type": "message", "status": status, "role": "assistant", "content": content}
    if block.kind is reply.ThoughtPiece:
        summary = [] if begins else [{"type": "summary_text", "text": block.text}]
        item: reply.Json = {"id": asked.make_id("rs_", number), "type": "reasoning", "summary": summary}
        if _SEALED in reply.as_list(asked.body.get("include")):
            item["encrypted_content"] = "" if begins else seal_thought(block.text)
        return item
    called = {"call_id": asked.make_id("call_", block.number), "name": block.name}
    if _is_custom(asked, block.name):
        return {"id": asked.make_id("ctc_", number), "type": "custom_tool_call", "status": status, **called, "input": block.text}
    return {"id": asked.make_id("fc_", number), "type": "function_call", "status": status, **called, "arguments": block.text}


def _build_part(text: str) -> reply.Json:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def _is_custom(asked: reply.NeutralRequest, name: str) -> bool:
    """A tool that takes a text as it is, such as the `apply_patch` of Codex."""
    return any(tool.get("type") == "custom" and tool.get("name") == name for tool in reply.list_objects(asked.body.get("tools")))


class ResponsesEvents(reply.Encoder):
    """response.created, response.in_progress, { output_item.added, …, output_item.done }*, response.completed; all are numbered."""

    def __init__(self, asked: reply.NeutralRequest, stop: str) -> None:
        super().__init__(asked, stop)
        self._sent = 0
        self._gathered = reply.BlockBuilder()
        self._output: list[reply.Json] = []
        self._where: reply.Json = {}
        self._last: tuple[reply.Content | None, bytes, bytes] = (None, b"", b"")

    def _encode_event(self, kind: str, fields: reply.Json) -> bytes:
        event = b"event: %s\ndata: %s\n\n" % (kind.encode(), reply.dumps({"type": kind, "sequence_number": self._sent, **fields}))
        self._sent += 1
        return event

    def begin(self) -> Iterator[bytes]:
        response = _build_response(self.asked, "in_progress", [], [])
        yield self._encode_event("response.created", {"response": response})
        yield self._encode_event("response.in_progress", {"response": response})

    def open(self, piece: reply.Content) -> Iterator[bytes]:
        number = len(self._output)
        name, call = (piece.name, piece.number) if isinstance(piece, reply.CallPiece) else ("", 0)
        item = _build_item(self.asked, number, reply.ReplyBlock(type(piece), "", name, call), "in_progress")
        self._where = {"item_id": item["id"], "output_index": number}
        self._last = (None, b"", b"")
        yield self._encode_event("response.output_item.added", {"output_index": number, "item": item})
        if isinstance(piece, reply.TextPiece):
            self._where["content_index"] = 0
            yield self._encode_event("response.content_part.added", {**self._where, "part": _build_part("")})
        elif isinstance(piece, reply.ThoughtPiece):
            self._where["summary_index"] = 0
            yield self._encode_event(
                "response.reasoning_summary_part.added", {**self._where, "part": {"type": "summary_text", "text": ""}}
            )
        else:
            self._gathered.add(piece)
            yield from self._encode_arguments(piece)

    def _encode_arguments(self, call: reply.CallPiece) -> Iterator[bytes]:
        custom = _is_custom(self.asked, call.name)
        kind, field = ("custom_tool_call_input", "input") if custom else ("function_call_arguments", "arguments")
        for start in range(0, len(call.text), _ARGUMENTS):
            yield self._encode_event(f"response.{kind}.delta", {**self._where, "delta": call.text[start : start + _ARGUMENTS]})
        yield self._encode_event(f"response.{kind}.done", {**self._where, field: call.text})

    def encode_delta(self, piece: reply.Content) -> bytes:
        self._gathered.add(piece)
        if piece is not self._last[0]:  # what repeats is encoded once, but for its number
            kind = b"response.output_text.delta" if isinstance(piece, reply.TextPiece) else b"response.reasoning_summary_text.delta"
            more: reply.Json = {"logprobs": []} if isinstance(piece, reply.TextPiece) else {}
            before = b'event: %s\ndata: {"type":"%s","sequence_number":' % (kind, kind)
            self._last = (piece, before, b",%s\n\n" % reply.dumps({**self._where, "delta": piece.text, **more})[1:])
        self._sent += 1
        return b"%s%d%s" % (self._last[1], self._sent - 1, self._last[2])

    def close(self) -> Iterator[bytes]:
        self._gathered.close()
        block = self._gathered.blocks[-1]
        if block.kind is reply.TextPiece:
            yield self._encode_event("response.output_text.done", {**self._where, "text": block.text, "logprobs": []})
            yield self._encode_event("response.content_part.done", {**self._where, "part": _build_part(block.text)})
        elif block.kind is reply.ThoughtPiece:
            part = {"type": "summary_text", "text": block.text}
            yield self._encode_event("response.reasoning_summary_text.done", {**self._where, "text": block.text})
            yield self._encode_event("response.reasoning_summary_part.done", {**self._where, "part": part})
        item = _build_item(self.asked, len(self._output), block, "completed")
        yield self._encode_event("response.output_item.done", {"output_index": len(self._output), "item": item})
        self._output.append(item)

    def end(self) -> Iterator[bytes]:
        status = "incomplete" if self.stop in _INCOMPLETE else "completed"
        response = _build_response(self.asked, status, self._output, self._gathered.blocks, self.stop)
        yield self._encode_event(f"response.{status}", {"response": response})


def encode_error(status: int, text: str, sent: int) -> bytes:
    told = chat_api.build_error(status, text)["error"]
    event = {
        "type": "error",
        "code": told["code"] or told["type"],
        "message": told["message"],
        "param": None,
        "sequence_number": sent,
    }
    return b"event: error\ndata: %s\n\n" % reply.dumps(event)


API = reply.Api(
    name="openai-responses",
    read=read,
    encoder=ResponsesEvents,
    whole=build_answer,
    error=chat_api.build_error,
    broken=encode_error,
    malformed=b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":\n\n',
    request_id="x-request-id",
)

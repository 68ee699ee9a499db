"""What the Responses API refuses, in its words."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from serai.testing.models.answering import BadRequest, Json
from serai.testing.models.chat_checks import check_name
from serai.testing.models.checking import items, need, objects

__all__ = ["ANSWERS", "CALLS", "check", "kind_of", "sealed"]

_ROLES = ("assistant", "system", "developer", "user")
_LEAST_OUTPUT = 16

# What a model says, item by item. (A type that is not named here is the provider's own, and passed over.)
CALLS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}
ANSWERS = frozenset({"reasoning", *CALLS})
_SAID = {"assistant": {"output_text", "refusal"}}
_HEARD = {"input_text", "input_image", "input_file", "input_audio"}


def sealed(thought: str) -> str:
    """What stands for thoughts that only their model can read. Who sends it back with others is found out."""
    return base64.b64encode(b"sealed:" + hashlib.sha256(thought.encode(errors="surrogatepass")).digest()).decode()


def kind_of(item: Json) -> str:
    kind = item.get("type", "message" if "role" in item else "")
    return kind if isinstance(kind, str) else ""


def check(body: Json) -> None:
    need(isinstance(body.get("model"), str) and body["model"], "Missing required parameter: 'model'.", param="model")
    previous = body.get("previous_response_id")
    need(
        previous is None,
        f"Previous response with id '{previous}' not found.",
        param="previous_response_id",
        code="previous_response_not_found",
    )
    given = body.get("input")
    need(given is not None, "Missing required parameter: 'input'.", param="input", code="missing_required_parameter")
    need(
        isinstance(given, str | list),
        "Invalid type for 'input': expected a string or an array.",
        param="input",
        code="invalid_type",
    )
    need(isinstance(body.get("stream") or False, bool), "Invalid type for 'stream': expected a boolean.", param="stream")
    said = body.get("instructions")
    need(said is None or isinstance(said, str), "Invalid type for 'instructions': expected a string.", param="instructions")
    most = body.get("max_output_tokens")
    small = isinstance(most, int) and most < _LEAST_OUTPUT
    need(
        most is None or (isinstance(most, int) and not small), f"Invalid 'max_output_tokens': Expected a value >= {_LEAST_OUTPUT}."
    )
    _check_tools(body.get("tools"))
    for number, item in enumerate(items(given)):
        _check_item(f"input[{number}]", item)
    _check_pairs(objects(given))
    _check_thoughts(objects(given))


def _check_tools(tools: Any) -> None:
    if tools is None:
        return
    need(isinstance(tools, list), "Invalid type for 'tools': expected an array of objects.", param="tools", code="invalid_type")
    for number, tool in enumerate(tools):
        where = f"tools[{number}]"
        kind = tool.get("type") if isinstance(tool, dict) else None
        need(isinstance(kind, str), f"Missing required parameter: '{where}.type'.", param=f"{where}.type")
        if kind in ("function", "custom"):
            check_name(f"{where}.name", tool.get("name"))


def _check_item(where: str, item: Any) -> None:
    need(isinstance(item, dict), f"Invalid type for '{where}': expected an object.", param=where, code="invalid_type")
    kind = kind_of(item)
    need(kind, f"Missing required parameter: '{where}.type'.", param=f"{where}.type", code="missing_required_parameter")
    if kind == "message":
        _check_message(where, item)
    elif kind in CALLS:
        for field in ("call_id", "name", "arguments" if kind == "function_call" else "input"):
            _need_text(where, item, field)
    elif kind in CALLS.values():
        _need_text(where, item, "call_id")
        output = isinstance(item.get("output"), str | list)
        need(output, f"Missing required parameter: '{where}.output'.", param=f"{where}.output", code="missing_required_parameter")
    elif kind == "reasoning":
        need(isinstance(item.get("summary"), list), f"Missing required parameter: '{where}.summary'.", param=f"{where}.summary")


def _need_text(where: str, item: Json, field: str) -> None:
    is_text = isinstance(item.get(field), str)
    need(is_text, f"Missing required parameter: '{where}.{field}'.", param=f"{where}.{field}", code="missing_required_parameter")


def _check_message(where: str, item: Json) -> None:
    role, content = item.get("role"), item.get("content")
    if not isinstance(role, str) or role not in _ROLES:
        names = ", ".join(f"'{name}'" for name in _ROLES)
        raise BadRequest(f"Invalid value: {role!r}. Supported values are: {names}.", param=f"{where}.role", code="invalid_value")
    has = isinstance(content, str | list)
    need(has, f"Missing required parameter: '{where}.content'.", param=f"{where}.content", code="missing_required_parameter")
    known = _SAID.get(role, _HEARD)
    for number, part in enumerate(items(content)):
        at = f"{where}.content[{number}]"
        kind = part.get("type") if isinstance(part, dict) else None
        names = ", ".join(f"'{name}'" for name in sorted(known))
        fits = isinstance(kind, str) and kind in known
        need(fits, f"Invalid value: {kind!r}. Supported values are: {names}.", param=f"{at}.type", code="invalid_value")
        if kind in ("input_text", "output_text"):
            _need_text(at, part, "text")


def _check_pairs(given: list[Json]) -> None:
    """Every output has its call before it, and every call its output behind it."""
    waiting: dict[str, str] = {}  # call -> what its output is
    outputs: set[tuple[str, str]] = set()
    for item in given:
        kind = kind_of(item)
        if kind in CALLS:
            waiting[item["call_id"]] = CALLS[kind]
            outputs.add((item["call_id"], CALLS[kind]))
        elif kind in CALLS.values():
            words = "function call output" if kind == "function_call_output" else "custom tool call output"
            id = item["call_id"]
            need((id, kind) in outputs, f"No tool call found for {words} with call_id {id}.", param="input")
            waiting.pop(id, None)
    for id, output in waiting.items():
        words = "function call" if output == "function_call_output" else "custom tool call"
        raise BadRequest(f"No tool output found for {words} {id}.", param="input")


def _check_thoughts(given: list[Json]) -> None:
    """Thoughts come with what they led to, and unchanged."""
    for number, item in enumerate(given):
        if kind_of(item) != "reasoning":
            continue
        id = item.get("id")
        after = given[number + 1] if number + 1 < len(given) else {}
        leads = kind_of(after) in ANSWERS or (kind_of(after) == "message" and after.get("role") == "assistant")
        own = kind_of(after) not in ("message", *CALLS.values(), "")
        need(leads or own, f"Item '{id}' of type 'reasoning' was provided without its required following item.", param="input")
        seal = item.get("encrypted_content")
        thought = "\n\n".join(str(part.get("text")) for part in objects(item["summary"]))
        fits = seal is None or seal == sealed(thought)
        need(
            fits,
            f"The encrypted content for item {id} could not be verified.",
            code="invalid_encrypted_content",
        )

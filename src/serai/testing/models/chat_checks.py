"""What the Chat Completions API refuses, in its words."""

from __future__ import annotations

import re
from typing import Any

from serai.testing.models.answering import BadRequest, Json
from serai.testing.models.checking import duplicates, items, need

__all__ = ["check"]

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

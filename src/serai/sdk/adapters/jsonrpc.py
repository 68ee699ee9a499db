"""Lines of JSON-RPC with the standard library alone (spec piglet 2.2, 2.3)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}:,]|[^][{}:,"\s]+')  # strings, what gives them their place, numbers and words


class BadLine(ValueError):
    """It is no message; `unread` when it may be one that Python cannot read."""

    def __init__(self, why: str, *, unread: bool = False) -> None:
        super().__init__(why)
        self.unread = unread


class RpcLine(NamedTuple):
    """A request has an id and a method, an answer an id alone, a notification a method alone."""

    id: Any = None
    method: str = ""
    params: Any = None
    result: Any = None
    error: Any = None


def parse_line(line: bytes) -> RpcLine:
    try:
        message = json.loads(line.decode("utf-8", "replace"), parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise BadLine(f"malformed line: {error}: {shorten_line(line)}") from None
    except (RecursionError, ValueError) as error:  # nested beyond what Python reads, or what is no number
        raise BadLine(str(error), unread=True) from None
    if not isinstance(message, dict):
        raise BadLine(f"malformed line: it is no object: {shorten_line(line)}")
    found = {key.lower(): value for key, value in message.items()} | message  # keys in any case, the very one wins
    method = found.get("method")
    text = method if isinstance(method, str) else ""
    return RpcLine(found.get("id"), text, found.get("params"), found.get("result"), found.get("error"))


def parse_head(head: bytes) -> dict[str, str]:
    """The members of a message as far as its head shows them, as JSON: its own, not those of what is in it."""
    members: dict[str, str] = {}
    for key, value in _iter_pairs(head.decode("utf-8", "replace")):
        try:
            members.setdefault(str(json.loads(key)).lower(), value)
        except ValueError:  # an escape that is none
            pass
    return members


def _iter_pairs(text: str) -> Iterator[tuple[str, str]]:
    depth, before = 0, ["", ""]
    for match in _TOKEN.finditer(text):
        word = match[0]
        if depth == 1 and before[1] == ":" and before[0][:1] == '"':
            yield before[0], word
        depth += (word in "{[") - (word in "}]")
        before = [before[1], word]


def encode_request(id: int, method: str, params: dict[str, Any]) -> bytes:
    return _encode_line({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def encode_notification(method: str, params: dict[str, Any]) -> bytes:
    return _encode_line({"jsonrpc": "2.0", "method": method, "params": params})


def encode_result(id: str, value: object) -> bytes:
    """`id` is JSON, as it came."""
    return _encode_line({"jsonrpc": "2.0", "id": json.loads(id), "result": value})


def encode_error(id: str, code: int, message: str) -> bytes:
    return _encode_line({"jsonrpc": "2.0", "id": json.loads(id), "error": {"code": code, "message": message}})


def shorten_line(line: bytes) -> str:
    return line[:120].decode("utf-8", "replace").strip() + ("…" if len(line) > 120 else "")


def _refuse_constant(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON")


def _encode_line(message: dict[str, Any]) -> bytes:
    """One line of UTF-8; half a surrogate pair, which no encoding has, stays as it is: escaped."""
    text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(message, allow_nan=False, separators=(",", ":")).encode() + b"\n"

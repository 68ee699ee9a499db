"""The frames, requests and values on the wire of the box server and the keeper (sans-IO, spec hooks 4)."""

from __future__ import annotations

import binascii
from _json import encode_basestring_ascii, make_scanner  # `json` itself brings regular expressions along: 8 ms for every box

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    Data: TypeAlias = dict[str, Any]

FRAME = 16 << 20  # bytes; a longer frame is refused
PACKET = 1 << 20  # bytes; a longer packet ends the stream

WORDS = {str: "a text", int: "an integer", bool: "true or false", dict: "an object", list: "a list"}


class Refusal(Exception):
    """Says why not: the `err` of an answer."""


class TooLarge(Refusal):
    """What follows cannot be read any more."""


class HungUp(Exception):
    """The connection is over, once what was said is sent."""


class _Reading:
    """How the scanner of JSON reads."""

    strict, object_hook, object_pairs_hook, parse_float, parse_int, parse_constant = True, None, None, float, int, float


_scan: Callable[[str, int], tuple[Any, int]] = make_scanner(_Reading)  # type: ignore[arg-type]


def take_frame(data: bytearray, head: int, limit: int) -> bytes | None:
    """The next frame of a stream of bytes, with its head, which ends in four bytes of length; None while it is not all here."""
    if len(data) < head:
        return None
    size = int.from_bytes(data[head - 4 : head], "big")
    if size > limit:
        raise TooLarge(f"frame too large: {size} bytes")
    if len(data) < head + size:
        return None
    frame = bytes(data[: head + size])
    del data[: head + size]
    return frame


def encode_packet(kind: int, payload: bytes) -> bytes:
    """One piece of a stream (spec hooks 3.7)."""
    return kind.to_bytes(1, "big") + len(payload).to_bytes(4, "big") + payload


def encode_json(value: Data | str | int) -> str:
    """Texts, integers, truth values and objects of them: an answer has no more."""
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    if isinstance(value, int):
        return str(value).lower()
    return "{" + ",".join(f"{encode_json(name)}:{encode_json(item)}" for name, item in value.items()) + "}"


def encode(value: Data) -> bytes:
    body = encode_json(value).encode()
    return len(body).to_bytes(4, "big") + body


def decode(body: bytes) -> tuple[str, Data]:
    """The verb and the data of a request."""
    try:
        text = str(body, "utf-8").strip(" \t\r\n")
        request, end = _scan(text, 0)
    except Exception:  # of any kind: the scanner takes the class of its errors from a module that is not here
        raise Refusal("malformed request: no JSON") from None
    if end != len(text) or type(request) is not dict or type(request.get("verb")) is not str:
        raise Refusal('malformed request: it must be one object with a "verb"')
    data = {} if request.get("data") is None else request["data"]
    if type(data) is not dict:
        raise Refusal('"data" must be an object')
    return request["verb"], data


def check_members(data: Data, known: Data) -> Data:
    """The members that are known, each of the type of its default; an absent one or null is the default."""
    values = {name: default if data.get(name) is None else data[name] for name, default in known.items()}
    for name, value in values.items():
        if type(value) is not type(known[name]):  # true is no integer here
            raise Refusal(f'"{name}" must be {WORDS[type(known[name])]}')
        if type(value) is int and value < 0 and name != "port":  # which has a text of its own
            raise Refusal(f'"{name}" must not be negative')
    return values


def decode_base64(data: Data, name: str) -> bytes:
    try:
        return binascii.a2b_base64(data[name], strict_mode=True)
    except ValueError:
        raise Refusal(f'"{name}" must be base64') from None


def check_command(argv: list[Any]) -> list[str]:
    if any(type(part) is not str or "\0" in part for part in argv):
        raise Refusal('"cmd" must be a list of texts without NUL')
    if not argv or not argv[0].strip():
        raise Refusal("command is required")
    return argv


def parse_variables(pairs: list[Any]) -> dict[str, str]:
    for pair in pairs:
        if len(pair) != 2 or any(type(part) is not str or "\0" in part for part in pair) or not pair[0] or "=" in pair[0]:
            raise Refusal('"env" must have names and texts, without NUL')
    return dict(pairs)


def format_duration(nanoseconds: int) -> str:
    """As the reference writes it: 5m0s, 1.5s, 300ms."""
    for unit, name in ((1_000, "ns"), (1_000_000, "µs"), (1_000_000_000, "ms")):
        if nanoseconds < unit:
            return f"{nanoseconds / (unit // 1_000):g}{name}"
    minutes, rest = divmod(nanoseconds, 60_000_000_000)
    seconds = f"{rest // 1_000_000_000}.{rest % 1_000_000_000:09}".rstrip("0").rstrip(".")
    return f"{minutes // 60}h" * (minutes >= 60) + f"{minutes % 60}m" * (minutes > 0) + f"{seconds}s"

"""The host interface `request`, before and after the network (spec yoi 4): what is asked is checked, what came back is cut down.

Nothing here touches a network: `serai.host.adapters.yoi.effects` does, with what `check` returns.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from serai.dialects.yoi import authorising, places
from serai.dialects.yoi.denial import Denied
from serai.dialects.yoi.messages import strict_json
from serai.dialects.yoi.targets import Parsed, parse_url
from serai.dialects.yoi.texts import bounded, redacted, told

if TYPE_CHECKING:
    from collections.abc import Iterable

    from serai.dialects.yoi.grants import Record

__all__ = ["AGENT", "BODY", "DESCRIPTOR", "RESPONSE", "Header", "Prepared", "answer", "check", "lossy", "parsed", "size", "strict"]

AGENT = "yoi-plugin-request-host-api/0.1"
DESCRIPTOR = 48 * 1024
BODY = 32 * 1024
RESPONSE = 64 * 1024
HEADERS = 16
NAME = 64
VALUE = 1024
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
CREDENTIALS = frozenset(
    {"authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "x-auth-token", "api-key", "apikey"}
)
# Where a message ends and who is addressed is ours to say: a second word on it is how requests are smuggled.
_OURS = frozenset(
    {"host", "content-length", "transfer-encoding", "te", "trailer", "expect", "keep-alive", "proxy-connection", "http2-settings"}
)
# With these some servers answer for another path or method than the one that was checked.
_ELSEWHERE = frozenset({"x-original-url", "x-rewrite-url", "x-http-method", "x-http-method-override", "x-method-override"})
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TEXT = re.compile(r"[\t\x20-\x7e]*")

T = TypeVar("T")


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    value: str


class Descriptor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    method: str
    url: str
    headers: tuple[Header, ...] = ()
    body: str | None = None


class Response(msgspec.Struct, frozen=True):
    status: int
    headers: tuple[Header, ...]
    body: str
    truncated: bool


class Prepared(msgspec.Struct, frozen=True):
    """A request that may be made; `url` is the normalised one."""

    method: str
    url: Parsed
    headers: tuple[tuple[str, str], ...]
    body: bytes | None

    def head(self) -> list[tuple[str, str]]:
        """All headers, ours first: nothing is kept alive, nothing comes compressed."""
        said = {name.lower() for name, _ in self.headers}
        head = [("host", places.authority(self.url))]
        if "user-agent" not in said:
            head.append(("user-agent", AGENT))
        if "accept" not in said:
            head.append(("accept", "*/*"))
        head += [("accept-encoding", "identity"), ("connection", "close")]
        if self.body is not None or self.method != "GET":
            head.append(("content-length", str(len(self.body or b""))))
        return [*head, *self.headers]


def size(text: str) -> int:
    """Bytes of a text. A worker that was taken over may send halves of characters, which have none."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise Denied("the text is not valid Unicode") from None


def strict(text: str, into: type[T], *, what: str) -> T:
    """A strict document: no unknown field, no key twice (spec yoi 21.16)."""
    try:
        return msgspec.convert(strict_json(text), into)
    except ValueError as error:
        raise Denied(f"invalid {what} JSON: {told(str(error))}") from None


def parsed(url: str, *, what: str) -> Parsed:
    try:
        return parse_url(url)
    except ValueError as error:
        raise Denied(f"invalid {what} URL: {told(str(error))}") from None


def check(record: Record, given: Any) -> Prepared:
    """The checks of spec yoi 4.3 but the first, in order; `given` is the document's text, or its value where it came as one."""
    text = given if isinstance(given, str) else msgspec.json.encode(given).decode()
    if size(text) > DESCRIPTOR:
        raise Denied(f"request descriptor exceeds {DESCRIPTOR} bytes")
    if reason := authorising.host_api(record, "request"):
        raise Denied(f"plugin host API dispatch denied: {reason}")
    asked = strict(text, Descriptor, what="request")
    if asked.method not in METHODS:
        raise Denied(f"request method `{told(asked.method, NAME)}` is not allowed")
    headers = _headers(asked.headers)
    body = None if asked.body is None else asked.body.encode()
    if body is not None and len(body) > BODY:
        raise Denied(f"request body exceeds {BODY} bytes")
    url = _located(parsed(asked.url, what="request"))
    if reason := authorising.request_target(record, asked.method, url):
        raise Denied(reason)
    return Prepared(asked.method, url, headers, body)


def _located(url: Parsed) -> Parsed:
    if url.scheme in ("ws", "wss"):
        raise Denied("WebSocket URLs are not supported by host_api.request")
    if url.scheme not in ("http", "https"):
        raise Denied(f'unsupported request URL scheme "{told(url.scheme, NAME)}"; only http and https are allowed')
    if not url.host:
        raise Denied("request URL must include a host")
    if url.credentials:
        raise Denied("request URLs with embedded credentials are not allowed")
    if places.climbs(url.path):  # ours: a server may decode what WHATWG rules leave
        raise Denied(f"request URL path has an encoded `..`: {url.safe}")
    return url


def _headers(given: tuple[Header, ...]) -> tuple[tuple[str, str], ...]:
    if len(given) > HEADERS:
        raise Denied(f"request descriptor has too many headers (max {HEADERS})")
    kept = []
    for header in given:
        _header(header.name, header.value)
        if header.name.lower() not in ("connection", "accept-encoding"):  # ours are sent in their place
            kept.append((header.name, header.value.strip(" \t")))
    return tuple(kept)


def _header(name: str, value: str) -> None:
    if not 1 <= size(name) <= NAME:
        raise Denied("request header name is invalid")
    shown, lower, tokens = bounded(name, NAME), name.lower(), _tokens(value)
    if size(value) > VALUE:
        raise Denied(f"request header `{shown}` exceeds {VALUE} bytes")
    if lower.strip() in CREDENTIALS:
        raise Denied(
            f"request header `{shown}` is credential-like and must be supplied by an explicit future secret-ref grant, "
            "not guest memory"
        )
    if lower == "upgrade" or (lower == "connection" and "upgrade" in tokens):
        raise Denied("persistent connection upgrade headers are not supported by host_api.request")
    if lower == "accept" and "text/event-stream" in tokens:
        raise Denied("SSE/event-stream requests are not supported by host_api.request")
    if not _TOKEN.fullmatch(name):
        raise Denied("request header name is invalid")
    if not _TEXT.fullmatch(value):
        raise Denied(f"request header `{shown}` has an invalid value")
    # What follows is ours: the origin's client has the last word on these.
    if lower in _OURS or (lower == "connection" and not tokens <= {"close", "keep-alive"}):
        raise Denied(f"request header `{shown}` is set by the host")
    if lower in _ELSEWHERE:
        raise Denied(f"request header `{shown}` would name another target than the one that was checked")


def _tokens(value: str) -> set[str]:
    return {part.partition(";")[0].strip().lower() for part in value.split(",")}


def lossy(data: bytes, most: int) -> tuple[str, bool]:
    """Text of at most so many bytes, and whether something was left out.

    Replacing what is no UTF-8 makes a text longer (spec yoi 21.12).
    """
    text = data[:most].decode("utf-8", "replace").encode()
    cut = text[:most].decode("utf-8", "ignore")
    return cut, len(data) > most or len(text) > most


def answer(status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> str:
    """The response's document (spec yoi 4.2); `body` is what was read, one byte more than may be given where there is more."""
    named = [(name.decode("latin-1").lower(), value) for name, value in headers]
    first = [(name, value) for name, value in named if name not in CREDENTIALS][:HEADERS]
    kept = tuple(Header(name, bounded(redacted(value.decode()), VALUE)) for name, value in first if _is_text(value))
    text, cut = lossy(body, RESPONSE)
    return msgspec.json.encode(Response(status, kept, text, cut)).decode()


def _is_text(value: bytes) -> bool:
    return value.isascii() and _TEXT.fullmatch(value.decode()) is not None

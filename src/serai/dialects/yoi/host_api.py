"""The host interfaces `request` (spec yoi 4), `websocket` (spec yoi 5) and `fs` (spec yoi 6), without network, socket or file.

Requests are checked: which URLs may be opened, which texts sent, which paths used. Answers are cut down and written as documents.
`serai.host.adapters.yoi.effects` does the rest with what `check_request`, `check_open` and `check_fs` return. A refusal is a
`HostCallDenied`, which reaches the plugin as a trap that it cannot catch (spec yoi 2.4).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from serai.dialects.yoi.messages import parse_strict_json
from serai.plugins import authorization, targets
from serai.plugins.targets import ParsedUrl, parse_url
from serai.plugins.untrusted_text import bound_text, operator_text, redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from serai.plugins.grants import FsGrant, Operation, ResolvedPlugin


class HostCallDenied(Exception):
    """A refused or failed call of a host interface; the text is for the operator, bounded and redacted by whoever shows it."""


REQUEST_AGENT = "yoi-plugin-request-host-api/0.1"
REQUEST_DESCRIPTOR = 48 * 1024
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


class RequestDescriptor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    method: str
    url: str
    headers: tuple[Header, ...] = ()
    body: str | None = None


class Response(msgspec.Struct, frozen=True):
    status: int
    headers: tuple[Header, ...]
    body: str
    truncated: bool


class PreparedRequest(msgspec.Struct, frozen=True):
    """A request that may be made; `url` is the normalised one."""

    method: str
    url: ParsedUrl
    headers: tuple[tuple[str, str], ...]
    body: bytes | None

    def head(self) -> list[tuple[str, str]]:
        """All headers, ours first: nothing is kept alive, nothing comes compressed."""
        said = {name.lower() for name, _ in self.headers}
        head = [("host", targets.get_authority(self.url))]
        if "user-agent" not in said:
            head.append(("user-agent", REQUEST_AGENT))
        if "accept" not in said:
            head.append(("accept", "*/*"))
        head += [("accept-encoding", "identity"), ("connection", "close")]
        if self.body is not None or self.method != "GET":
            head.append(("content-length", str(len(self.body or b""))))
        return [*head, *self.headers]


def count_bytes(text: str) -> int:
    """Bytes of a text. A worker that was taken over may send halves of characters, which have none."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise HostCallDenied("the text is not valid Unicode") from None


def decode_strict(text: str, into: type[T], *, what: str) -> T:
    """A strict document: no unknown field, no key twice (spec yoi 21.16)."""
    try:
        return msgspec.convert(parse_strict_json(text), into)
    except ValueError as error:
        raise HostCallDenied(f"invalid {what} JSON: {operator_text(str(error))}") from None


def parse_api_url(url: str, *, what: str) -> ParsedUrl:
    try:
        return parse_url(url)
    except ValueError as error:
        raise HostCallDenied(f"invalid {what} URL: {operator_text(str(error))}") from None


def check_request(record: ResolvedPlugin, given: Any) -> PreparedRequest:
    """The checks of spec yoi 4.3 but the first, in order; `given` is the document's text, or its value where it came as one."""
    text = given if isinstance(given, str) else msgspec.json.encode(given).decode()
    if count_bytes(text) > REQUEST_DESCRIPTOR:
        raise HostCallDenied(f"request descriptor exceeds {REQUEST_DESCRIPTOR} bytes")
    if reason := authorization.find_api_refusal(record, "request"):
        raise HostCallDenied(f"plugin host API dispatch denied: {reason}")
    asked = decode_strict(text, RequestDescriptor, what="request")
    if asked.method not in METHODS:
        raise HostCallDenied(f"request method `{operator_text(asked.method, NAME)}` is not allowed")
    headers = _check_headers(asked.headers)
    body = None if asked.body is None else asked.body.encode()
    if body is not None and len(body) > BODY:
        raise HostCallDenied(f"request body exceeds {BODY} bytes")
    url = _check_request_url(parse_api_url(asked.url, what="request"))
    if reason := authorization.find_request_refusal(record, asked.method, url):
        raise HostCallDenied(reason)
    return PreparedRequest(asked.method, url, headers, body)


def _check_request_url(url: ParsedUrl) -> ParsedUrl:
    if url.scheme in ("ws", "wss"):
        raise HostCallDenied("WebSocket URLs are not supported by host_api.request")
    if url.scheme not in ("http", "https"):
        raise HostCallDenied(f'unsupported request URL scheme "{operator_text(url.scheme, NAME)}"; only http and https are allowed')
    if not url.host:
        raise HostCallDenied("request URL must include a host")
    if url.credentials:
        raise HostCallDenied("request URLs with embedded credentials are not allowed")
    if targets.climbs(url.path):  # ours: a server may decode what WHATWG rules leave
        raise HostCallDenied(f"request URL path has an encoded `..`: {url.safe}")
    return url


def _check_headers(given: tuple[Header, ...]) -> tuple[tuple[str, str], ...]:
    if len(given) > HEADERS:
        raise HostCallDenied(f"request descriptor has too many headers (max {HEADERS})")
    kept = []
    for header in given:
        _check_header(header.name, header.value)
        if header.name.lower() not in ("connection", "accept-encoding"):  # ours are sent in their place
            kept.append((header.name, header.value.strip(" \t")))
    return tuple(kept)


def _check_header(name: str, value: str) -> None:
    if not 1 <= count_bytes(name) <= NAME:
        raise HostCallDenied("request header name is invalid")
    shown, lower, tokens = bound_text(name, NAME), name.lower(), _split_tokens(value)
    if count_bytes(value) > VALUE:
        raise HostCallDenied(f"request header `{shown}` exceeds {VALUE} bytes")
    if lower.strip() in CREDENTIALS:
        raise HostCallDenied(
            f"request header `{shown}` is credential-like and must be supplied by an explicit future secret-ref grant, "
            "not guest memory"
        )
    if lower == "upgrade" or (lower == "connection" and "upgrade" in tokens):
        raise HostCallDenied("persistent connection upgrade headers are not supported by host_api.request")
    if lower == "accept" and "text/event-stream" in tokens:
        raise HostCallDenied("SSE/event-stream requests are not supported by host_api.request")
    if not _TOKEN.fullmatch(name):
        raise HostCallDenied("request header name is invalid")
    if not _TEXT.fullmatch(value):
        raise HostCallDenied(f"request header `{shown}` has an invalid value")
    # What follows is ours: the origin's client has the last word on these.
    if lower in _OURS or (lower == "connection" and not tokens <= {"close", "keep-alive"}):
        raise HostCallDenied(f"request header `{shown}` is set by the host")
    if lower in _ELSEWHERE:
        raise HostCallDenied(f"request header `{shown}` would name another target than the one that was checked")


def _split_tokens(value: str) -> set[str]:
    return {part.partition(";")[0].strip().lower() for part in value.split(",")}


def decode_lossy(data: bytes, most: int) -> tuple[str, bool]:
    """Text of at most so many bytes, and whether something was left out.

    Replacing what is no UTF-8 makes a text longer (spec yoi 21.12).
    """
    text = data[:most].decode("utf-8", "replace").encode()
    cut = text[:most].decode("utf-8", "ignore")
    return cut, len(data) > most or len(text) > most


def answer_request(status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> str:
    """The response's document (spec yoi 4.2); `body` is what was read, one byte more than may be given where there is more."""
    named = [(name.decode("latin-1").lower(), value) for name, value in headers]
    first = [(name, value) for name, value in named if name not in CREDENTIALS][:HEADERS]
    kept = tuple(Header(name, bound_text(redact(value.decode()), VALUE)) for name, value in first if _is_text(value))
    text, cut = decode_lossy(body, RESPONSE)
    return msgspec.json.encode(Response(status, kept, text, cut)).decode()


def _is_text(value: bytes) -> bool:
    return value.isascii() and _TEXT.fullmatch(value.decode()) is not None


REQUEST = 64 * 1024
PATH = 4096
CONTENT = 64 * 1024
ENTRIES = 256
_SHOWN = 160


class _Path(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str


class _Write(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    content: str


class Entry(msgspec.Struct, frozen=True):
    name: str
    kind: str  # `file`, `dir`, `symlink` or `other`


class FsRequest(msgspec.Struct, frozen=True):
    operation: Operation
    path: str  # for the answer and for errors: redacted, bounded, no key
    parts: tuple[str, ...]  # none: the root itself
    content: bytes = b""


def check_fs(operation: Operation, text: str) -> FsRequest:
    if count_bytes(text) > REQUEST:
        raise HostCallDenied(f"FS request exceeds {REQUEST} bytes")
    if operation == "write":
        asked = decode_strict(text, _Write, what="FS request")
        content = asked.content.encode()
        if len(content) > CONTENT:
            raise HostCallDenied(f"FS write content exceeds {CONTENT} bytes")
        parts = _split_path(asked.path)
        if not parts:
            raise HostCallDenied("FS write path must name a file")
        return FsRequest(operation, format_path(asked.path), parts, content)
    path = decode_strict(text, _Path, what="FS request").path
    return FsRequest(operation, format_path(path), _split_path(path))


def format_path(path: str) -> str:
    """The path as answers and errors have it (spec yoi 6.1)."""
    return operator_text(path, _SHOWN)


def _split_path(path: str) -> tuple[str, ...]:
    """The components of a path. Nothing is looked up, so `..` is refused wherever it stands."""
    if not path:
        raise HostCallDenied("FS path must not be empty")
    if count_bytes(path) > PATH:
        raise HostCallDenied(f"FS path exceeds {PATH} bytes")
    if "\0" in path:
        raise HostCallDenied("FS path must not contain NUL")
    if path.startswith("/"):
        raise HostCallDenied("FS request paths must be relative to a configured fs grant root")
    parts = path.split("/")
    if ".." in parts:
        raise HostCallDenied("FS path traversal outside the grant root is denied")
    return tuple(part for part in parts if part not in ("", "."))


def find_grants(record: ResolvedPlugin, operation: Operation) -> tuple[FsGrant, ...]:
    """The grants with this operation, in their order; none implies another."""
    grants = tuple(grant for grant in record.grants.fs if operation in grant.operations)
    if not grants:
        raise HostCallDenied(f"host_api.fs {operation} denied: no matching operation grant")
    return grants


def normalise_root(grant: FsGrant) -> str:
    """The root as it is opened. A trailing slash or `/.` would follow a symlink, `..` would leave a folder that is one."""
    root = grant.root
    parts = root.split("/")
    if not root.startswith("/") or count_bytes(root) > PATH or "\0" in root or ".." in parts:
        raise HostCallDenied(f"FS grant root must be an absolute path of at most {PATH} bytes without `..`")
    return "/" + "/".join(part for part in parts if part not in ("", "."))


def answer_read(asked: FsRequest, data: bytes) -> str:
    """`data`: what was read, one byte more than may be given where there is more."""
    content, cut = decode_lossy(data, CONTENT)
    return _encode_fs_document({"path": asked.path, "content": content, "truncated": cut})


def answer_list(asked: FsRequest, entries: Sequence[Entry], truncated: bool) -> str:
    return _encode_fs_document({"path": asked.path, "entries": entries, "truncated": truncated})


def answer_write(asked: FsRequest) -> str:
    return _encode_fs_document({"path": asked.path, "bytes_written": len(asked.content)})


def _encode_fs_document(value: object) -> str:
    return msgspec.json.encode(value).decode()


WEBSOCKET_AGENT = "yoi-plugin-host/1"
WEBSOCKET_DESCRIPTOR = 8 * 1024
TEXT = 32 * 1024  # bytes sent at once
FRAME = 32 * 1024
MESSAGE = 64 * 1024
HANDLES = 4
AGE = 15 * 60.0  # seconds
SECONDS = 5.0  # for an open, a send, a close and an answer to a ping, and for a `recv` that says nothing
LONGEST = 30.0  # seconds of a `recv`
CONTROLS = 16  # pings and pongs within one `recv`


class WebSocketDescriptor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: str
    protocols: tuple[Any, ...] = ()
    headers: tuple[Any, ...] = ()


def check_open(record: ResolvedPlugin, text: str) -> ParsedUrl:
    """The checks of spec yoi 5.2 between the authorisation and the capacity, in their order."""
    if count_bytes(text) > WEBSOCKET_DESCRIPTOR:
        raise HostCallDenied(f"WebSocket open descriptor exceeds {WEBSOCKET_DESCRIPTOR} bytes")
    asked = decode_strict(text, WebSocketDescriptor, what="WebSocket open request")
    if asked.protocols:
        raise HostCallDenied("WebSocket subprotocol negotiation is not supported by host_api.websocket v1")
    if asked.headers:
        raise HostCallDenied(
            "WebSocket handshake headers from guest memory are not supported; "
            "credentials must be supplied by an explicit future secret-ref grant"
        )
    return check_url(record, asked.url)


def check_url(record: ResolvedPlugin, url: str) -> ParsedUrl:
    """A URL's own checks, which the connections that the host owns need as well (spec yoi 16)."""
    place = _check_websocket_url(parse_api_url(url, what="WebSocket"))
    if reason := authorization.find_websocket_refusal(record, place):
        raise HostCallDenied(reason)
    return place


def _check_websocket_url(url: ParsedUrl) -> ParsedUrl:
    if url.scheme in ("http", "https"):
        raise HostCallDenied("HTTP URLs are not supported by host_api.websocket")
    if url.scheme not in ("ws", "wss"):
        raise HostCallDenied(f'unsupported WebSocket URL scheme "{operator_text(url.scheme, 64)}"; only ws and wss are allowed')
    if not url.host:
        raise HostCallDenied("WebSocket URL must include a host")
    if url.credentials:
        raise HostCallDenied("WebSocket URLs with embedded credentials are not allowed")
    if targets.climbs(url.path):  # ours, as with `request`
        raise HostCallDenied(f"WebSocket URL path has an encoded `..`: {url.safe}")
    return url


def check_text(text: str) -> int:
    """How many bytes are sent."""
    if (count := count_bytes(text)) > TEXT:
        raise HostCallDenied(f"WebSocket text frame exceeds {TEXT} bytes")
    return count


def get_recv_timeout(milliseconds: int) -> float:
    """How long one `recv` waits: a plugin's 0 is the usual, and no plugin waits for ever."""
    return min(milliseconds / 1000, LONGEST) if milliseconds > 0 else SECONDS


def _encode_fields(**fields: Any) -> str:
    return msgspec.json.encode(fields).decode()


def answer_open(handle: int, url: ParsedUrl) -> str:
    return _encode_fields(handle=handle, url=url.safe)


def answer_send(count: int) -> str:
    return _encode_fields(sent=True, bytes=count)


def answer_recv(text: str | None) -> str:
    return _encode_fields(type="closed") if text is None else _encode_fields(type="text", text=text)


def answer_close(known: bool) -> str:
    return _encode_fields(closed=known)

"""The host interface `websocket`, without a socket (spec yoi 5): what may be opened and sent, and the documents of the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from serai.dialects.yoi import authorising, places
from serai.dialects.yoi.denial import Denied
from serai.dialects.yoi.requests import parsed, size, strict
from serai.dialects.yoi.texts import told

if TYPE_CHECKING:
    from serai.dialects.yoi.grants import Record
    from serai.dialects.yoi.targets import Parsed

__all__ = [
    "AGE", "AGENT", "CONTROLS", "FRAME", "HANDLES", "MESSAGE", "SECONDS", "TEXT", "check_open", "check_text", "check_url", "closed",
    "opened", "received", "sent", "wait",
]  # fmt: skip

AGENT = "yoi-plugin-host/1"
DESCRIPTOR = 8 * 1024
TEXT = 32 * 1024  # bytes sent at once
FRAME = 32 * 1024
MESSAGE = 64 * 1024
HANDLES = 4
AGE = 15 * 60.0  # seconds
SECONDS = 5.0  # for an open, a send, a close and an answer to a ping, and for a `recv` that says nothing
LONGEST = 30.0  # seconds of a `recv`
CONTROLS = 16  # pings and pongs within one `recv`


class Descriptor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: str
    protocols: tuple[Any, ...] = ()
    headers: tuple[Any, ...] = ()


def check_open(record: Record, text: str) -> Parsed:
    """The checks of spec yoi 5.2 between the authorisation and the capacity, in their order."""
    if size(text) > DESCRIPTOR:
        raise Denied(f"WebSocket open descriptor exceeds {DESCRIPTOR} bytes")
    asked = strict(text, Descriptor, what="WebSocket open request")
    if asked.protocols:
        raise Denied("WebSocket subprotocol negotiation is not supported by host_api.websocket v1")
    if asked.headers:
        raise Denied(
            "WebSocket handshake headers from guest memory are not supported; "
            "credentials must be supplied by an explicit future secret-ref grant"
        )
    return check_url(record, asked.url)


def check_url(record: Record, url: str) -> Parsed:
    """A URL's own checks, which the connections that the host owns need as well (spec yoi 16)."""
    place = _located(parsed(url, what="WebSocket"))
    if reason := authorising.websocket_target(record, place):
        raise Denied(reason)
    return place


def _located(url: Parsed) -> Parsed:
    if url.scheme in ("http", "https"):
        raise Denied("HTTP URLs are not supported by host_api.websocket")
    if url.scheme not in ("ws", "wss"):
        raise Denied(f'unsupported WebSocket URL scheme "{told(url.scheme, 64)}"; only ws and wss are allowed')
    if not url.host:
        raise Denied("WebSocket URL must include a host")
    if url.credentials:
        raise Denied("WebSocket URLs with embedded credentials are not allowed")
    if places.climbs(url.path):  # ours, as with `request`
        raise Denied(f"WebSocket URL path has an encoded `..`: {url.safe}")
    return url


def check_text(text: str) -> int:
    """How many bytes are sent."""
    if (count := size(text)) > TEXT:
        raise Denied(f"WebSocket text frame exceeds {TEXT} bytes")
    return count


def wait(milliseconds: int) -> float:
    """How long one `recv` waits: a plugin's 0 is the usual, and no plugin waits for ever."""
    return min(milliseconds / 1000, LONGEST) if milliseconds > 0 else SECONDS


def _document(**fields: Any) -> str:
    return msgspec.json.encode(fields).decode()


def opened(handle: int, url: Parsed) -> str:
    return _document(handle=handle, url=url.safe)


def sent(count: int) -> str:
    return _document(sent=True, bytes=count)


def received(text: str | None) -> str:
    return _document(type="closed") if text is None else _document(type="text", text=text)


def closed(known: bool) -> str:
    return _document(closed=known)

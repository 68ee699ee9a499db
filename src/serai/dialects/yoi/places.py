"""Where a call of `request` or `websocket` goes: what of a checked URL is sent, and which addresses are private (spec yoi 4.4)."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from serai.dialects.yoi.targets import Parsed

__all__ = ["authority", "climbs", "is_address", "is_private", "resource"]

_ROUNDS = 8  # of decoding: nobody means more
_SEPARATORS = re.compile(r"[/\\]")
_PADDING = "".join(map(chr, range(0x21))) + "\x7f"  # what a server may drop around a segment
_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")


def _parts(url: Parsed) -> tuple[str, str]:
    """The authority and what follows it, of the normalised form: there these are unambiguous."""
    rest = url.normalised.partition("://")[2]
    end = next((at for at, letter in enumerate(rest) if letter in "/?#"), len(rest))
    return rest[:end], rest[end:]


def authority(url: Parsed) -> str:
    """Host and explicit port, as the Host header has them."""
    return _parts(url)[0].rpartition("@")[2]


def resource(url: Parsed) -> str:
    """What is asked for: the normalised path and query. The very thing that was matched is what is sent (spec yoi 21.1)."""
    return _parts(url)[1].partition("#")[0] or "/"


def climbs(path: str) -> bool:
    """Whether a server that decodes more than WHATWG rules do would find a `..` in it: `..%2f`, `%252e%252e/`, `..;/`.

    Such a path starts with the granted prefix and may end anywhere.
    """
    for _ in range(_ROUNDS):
        if any(segment.partition(";")[0].strip(_PADDING) == ".." for segment in _SEPARATORS.split(path)):
            return True
        decoded = unquote(path, encoding="latin-1")
        if decoded == path:
            return False
        path = decoded
    return True


def is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _within(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 one leads to."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    return IPv4Address(int(address) & 0xFFFF_FFFF) if address in _NAT64 else None


def is_private(text: str) -> bool:
    """Whether an address is not one of the public internet's: private, loopback, link-local, multicast, reserved."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        inner = _within(address)
        if inner is None:
            return address not in _UNICAST or not address.is_global
        address = inner
    return not address.is_global or address.is_multicast

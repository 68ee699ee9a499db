"""Where `request` and `websocket` may go: URLs, targets, how both compare (spec yoi 4.5, 5.3, 11.5), and private addresses (spec
yoi 4.4).

A target is the same thing in a manifest and in a grant. Nothing here widens: a blank matches nothing, there are no wildcards but a
whole `*`, and a URL is compared only as the WHATWG rules write it.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Literal, NamedTuple
from urllib.parse import unquote

from serai.plugins.manifest import Target
from serai.plugins.untrusted_text import cut

_ROUNDS = 8  # of decoding: nobody means more
_SEPARATORS = re.compile(r"[/\\]")
_PADDING = "".join(map(chr, range(0x21))) + "\x7f"  # what a server may drop around a segment
_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")


def _split_url(url: ParsedUrl) -> tuple[str, str]:
    """The authority and what follows it, of the normalised form: there these are unambiguous."""
    rest = url.normalised.partition("://")[2]
    end = next((at for at, letter in enumerate(rest) if letter in "/?#"), len(rest))
    return rest[:end], rest[end:]


def get_authority(url: ParsedUrl) -> str:
    """Host and explicit port, as the Host header has them."""
    return _split_url(url)[0].rpartition("@")[2]


def get_resource(url: ParsedUrl) -> str:
    """What is asked for: the normalised path and query. The very thing that was matched is what is sent (spec yoi 21.1)."""
    return _split_url(url)[1].partition("#")[0] or "/"


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


def _extract_ipv4(address: IPv6Address) -> IPv4Address | None:
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
        inner = _extract_ipv4(address)
        if inner is None:
            return address not in _UNICAST or not address.is_global
        address = inner
    return not address.is_global or address.is_multicast


METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_SAFE_PATH = 120  # bytes of a path in a message
_ANY = "*"


class ParsedUrl(NamedTuple):
    """A URL by the WHATWG rules: `host` with the brackets of IPv6, `port` the one that is meant, also where it is not written."""

    scheme: str
    host: str
    port: int | None
    path: str
    normalised: str
    credentials: bool = False  # it names a user or has a password

    @property
    def bare(self) -> str:
        """The host as it is compared, resolved and connected to: no brackets, no dots at its end."""
        return normalise_host(self.host)

    @property
    def safe(self) -> str:
        """For messages: no query, no fragment, no credentials (spec yoi 4.3)."""
        port = f":{self.port}" if self.port is not None and self.port != _PORTS.get(self.scheme) else ""
        path = cut(self.path, _SAFE_PATH)
        return f"{self.scheme}://{self.host}{port}{path}{'…' if len(path) < len(self.path) else ''}"


def parse_url(text: str) -> ParsedUrl:
    """The URL as it will be matched and sent (spec yoi 21.1), or a `ValueError` whose text does not repeat it."""
    try:
        from ada_url import URL
    except ImportError:
        raise ValueError("the package ada-url is not installed: pip install 'serai[wasm]'") from None
    try:
        url = URL(text)
    except ValueError:  # also what has no UTF-8
        raise ValueError("it is not a URL") from None
    scheme = url.protocol.removesuffix(":")
    port = int(url.port) if url.port else _PORTS.get(scheme)
    return ParsedUrl(scheme, url.hostname, port, url.pathname, url.href, bool(url.username or url.password))


def normalise_host(host: str) -> str:
    host = host.rstrip(".")
    return (host[1:-1] if host.startswith("[") and host.endswith("]") else host).lower()


def _get_scheme(target: Target) -> str:
    return target.scheme.strip().lower()


def _get_methods(target: Target) -> frozenset[str]:
    return frozenset(method.upper() for method in target.methods if method)


def _get_prefixes(target: Target) -> tuple[str, ...] | None:
    """None: any path. A list with nothing in it but empty text is a list all the same, and matches nothing."""
    return tuple(prefix for prefix in target.path_prefixes if prefix) if target.path_prefixes else None


def request_matches(target: Target, method: str, url: ParsedUrl) -> bool:
    """Scheme, host, port, method and path, all of them; the query is not looked at."""
    return method.upper() in _get_methods(target) and websocket_matches(target, url)


def websocket_matches(target: Target, url: ParsedUrl) -> bool:
    """The same without a method."""
    scheme, prefixes = _get_scheme(target), _get_prefixes(target)
    return (
        scheme != ""
        and scheme in (_ANY, url.scheme)
        and host_matches(target, url)
        and target.port in (None, url.port)
        and (prefixes is None or url.path.startswith(prefixes))
    )


def host_matches(target: Target, url: ParsedUrl) -> bool:
    host = normalise_host(target.host)
    return host != "" and url.bare != "" and host in (_ANY, url.bare)


def names_private(target: Target, url: ParsedUrl) -> bool:
    """Whether it names this very address, or `localhost`, so that nobody can be surprised where it leads (rule.027)."""
    host = normalise_host(target.host)
    return host == url.bare and (host == "localhost" or is_address(host))


def is_usable_request(target: Target) -> bool:
    """Whether it can let anything through (spec yoi 11.4)."""
    return _is_named(target) and not _get_methods(target).isdisjoint(METHODS)


def is_usable_websocket(target: Target) -> bool:
    return _is_named(target) and _get_scheme(target) in ("ws", "wss", _ANY)


def _is_named(target: Target) -> bool:
    return _get_scheme(target) != "" and normalise_host(target.host).strip() != ""


def is_broad(target: Target) -> bool:
    """It changes labels and diagnostics, nothing else."""
    return _get_scheme(target) == _ANY or normalise_host(target.host) == _ANY or not target.path_prefixes


def format_target(target: Target, api: Literal["request", "websocket"]) -> str:
    """For people: `https://api.example.com GET,POST /v1 [broad-request]`."""
    port = "" if target.port is None else f":{target.port}"
    parts = [f"{_get_scheme(target) or '<no-scheme>'}://{target.host.strip().lower() or '<no-host>'}{port}"]
    if api == "request":
        parts.append(",".join(method.upper() for method in target.methods if method) or "<no-methods>")
    parts.append(",".join(target.path_prefixes) or _ANY)
    return " ".join(parts) + (f" [broad-{api}]" if is_broad(target) else "")


def covers(wide: Target, narrow: Target, api: Literal["request", "websocket"]) -> bool:
    """Whether all that `narrow` lets through `wide` does too. Neither counts for anything if it lets nothing through."""
    paths, inner = _get_prefixes(wide), _get_prefixes(narrow)
    return (
        _is_alive(wide, api)
        and _is_alive(narrow, api)
        and _get_scheme(wide) in (_ANY, _get_scheme(narrow))
        and normalise_host(wide.host) in (_ANY, normalise_host(narrow.host))
        and wide.port in (None, narrow.port)
        and (api == "websocket" or _get_methods(narrow) <= _get_methods(wide))
        and (paths is None or (inner is not None and all(prefix.startswith(paths) for prefix in inner)))
    )


def intersects(one: Target, other: Target, api: Literal["request", "websocket"]) -> bool:
    """Whether there may be something that both let through."""
    paths, others = _get_prefixes(one), _get_prefixes(other)
    return (
        _is_alive(one, api)
        and _is_alive(other, api)
        and _overlaps(_get_scheme(one), _get_scheme(other))
        and _overlaps(normalise_host(one.host), normalise_host(other.host))
        and (one.port is None or other.port is None or one.port == other.port)
        and (api == "websocket" or not _get_methods(one).isdisjoint(_get_methods(other)))
        and (
            paths is None
            or others is None
            or any(path.startswith(others) for path in paths)
            or any(path.startswith(paths) for path in others)
        )
    )


def _is_alive(target: Target, api: Literal["request", "websocket"]) -> bool:
    return _is_named(target) and _get_prefixes(target) != () and (api == "websocket" or bool(_get_methods(target)))


def _overlaps(one: str, other: str) -> bool:
    return one == other or _ANY in (one, other)

"""Hosts: whom a URL really reaches, and patterns over that.

`example.com` is that host alone, `*.example.com` everything below it, `*` any. A port may follow: `localhost:8080`. A URL that two
programs could read in two ways has no host here, and whoever asks gets a `ValueError` that says why.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import unicodedata
from urllib.parse import urlsplit

from serai.policy.globs import glob

__all__ = ["HostPattern", "host_of"]

_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}
_NETLOC = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:@%]+))(?::([0-9]*))?")
_NAME = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*")
_NUMBER = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+))*")
_OCTAL = re.compile(r"(?:.*\.)?0[0-9].*")
_LONGEST = 253  # a name in the DNS


def host_of(url: str) -> tuple[str, int]:
    """`(host, port)` as programs will use them: lower case, no dot at the end, numbers as addresses."""
    if re.search(r"[\x00-\x20\\\x7f]", url):
        raise ValueError("a URL with a backslash, a space or a control character in it")
    parts = urlsplit(url)  # a ValueError of its own for what is no URL at all
    if parts.scheme not in _PORTS or not parts.netloc:
        raise ValueError(f"not a URL of {', '.join(_PORTS)}")
    if "@" in parts.netloc:
        raise ValueError("a URL with a user name before its host")
    found = _NETLOC.fullmatch(parts.netloc)
    if found is None:
        raise ValueError("a URL whose host is no name, or whose port is no number")
    if found[3] and not re.fullmatch(r"[1-9][0-9]{0,4}", found[3]):  # 080 is 80 to most programs, and never one to rely on
        raise ValueError("a URL whose port is not written as a number from 1 to 65535")
    port = int(found[3]) if found[3] else _PORTS[parts.scheme]
    if port > 65535:
        raise ValueError("a URL whose port is not written as a number from 1 to 65535")
    return _address(found[1]) if found[1] else _host(found[2].lower()), port


def _host(name: str) -> str:
    """In the form that is looked up. Where programs do not agree on that form, there is none."""
    name = name.removesuffix(".")
    if len(name) > _LONGEST:
        raise ValueError("a URL whose host is no name")
    if not name.isascii():
        name = _international(name)
    if _NUMBER.fullmatch(name):  # 2130706433 and 0x7f.1 are 127.0.0.1 to most programs
        if _OCTAL.fullmatch(name):  # and 010 is 8 to some, 10 to others
            raise ValueError("a URL whose host is a number with a 0 before it")
        try:
            return str(ipaddress.ip_address(socket.inet_aton(name)))
        except OSError:
            raise ValueError("a URL whose host is no address") from None
    if not _NAME.fullmatch(name):
        raise ValueError("a URL whose host is no name")
    return name


def _international(name: str) -> str:
    """The `xn--` form of a name in its normal form. Wide letters, a sharp s, an ideographic dot are read in two ways."""
    try:
        found = name.encode("idna").decode()
        normal = unicodedata.normalize("NFKC", name).casefold() == name == found.encode().decode("idna")
    except UnicodeError:
        found, normal = "", False
    if not normal:
        raise ValueError("a URL whose host is written with letters that programs read in different ways")
    return found


def _address(name: str) -> str:
    try:
        found = ipaddress.IPv6Address(name)
    except ValueError:
        raise ValueError("a URL whose host is no address") from None
    return str(found.ipv4_mapped or found)


class HostPattern:
    """One pattern over hosts, with or without a port."""

    def __init__(self, text: str) -> None:
        self.text = text
        found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^:/\s\[\]\\]+))(?::(\d+))?", text, re.ASCII)
        if found is None:
            raise ValueError(f"a host pattern is a name such as *.example.com, with a port or without, not {text!r}")
        self._port = int(found[3]) if found[3] else None
        try:
            name = _address(found[1]) if found[1] else _pattern(found[2].lower())
        except ValueError:
            raise ValueError(f"a host pattern is a name such as *.example.com, not {text!r}") from None
        # 192.168.* means addresses; 192.168.example.com is a name.
        self._numbers = re.fullmatch(r"[0-9*?.]*[0-9][0-9*?.]*", name) is not None
        self._host = glob(name)

    def __repr__(self) -> str:
        return f"HostPattern({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HostPattern) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def matches(self, host: str, port: int) -> bool:
        if self._port not in (None, port) or self._host.fullmatch(host) is None:
            return False
        return not self._numbers or host.replace(".", "").isdigit()


def _pattern(name: str) -> str:
    """Hosts are compared in the form that is looked up, so that is how a pattern has to be."""
    if "*" not in name and "?" not in name:
        return _host(name)
    labels = name.removesuffix(".").split(".")
    if any("*" in label or "?" in label for label in labels if not label.isascii()):
        raise ValueError("a star within letters that are encoded")
    return ".".join(label if label.isascii() else _international(label) for label in labels)

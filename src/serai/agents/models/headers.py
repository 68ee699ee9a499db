"""Headers and addresses: what can be sent, and what of it must not be told."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from urllib.parse import unquote, urlsplit, urlunsplit

__all__ = ["address", "checked", "fits", "lines_of", "secrets_in"]

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER, _PASSWORD = 8, 4  # characters from which on it may be a secret: shorter ones are parts of words
_NO_ADDRESS = "base_url is the address of a server, http://host/path or https://host/path"


def fits(value: str) -> bool:
    """It can be sent in a header. A library's error about one that cannot would show it."""
    return value.isascii() and value.isprintable()


def checked(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers as they can be sent. The `ValueError` about one that cannot be names it and does not show its value."""
    if not all(map(_NAME.fullmatch, headers)):
        raise ValueError("one of the headers has a name that none can have")
    found = {name: value.strip() for name, value in headers.items()}
    if wrong := next((name for name, value in found.items() if not fits(value)), ""):
        raise ValueError(f"the header {wrong} has characters that no header can have")
    return found


def lines_of(text: str) -> dict[str, str]:
    """Headers that are written one per line, `Name: value`, as variables for the SDKs have them."""
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def address(url: str) -> tuple[str, dict[str, str]]:
    """An address without the password in it, and that as a header: whoever logs or shows an address would tell it.

    The `ValueError` about one that is no address does not show it.
    """
    try:
        parts = urlsplit(url)
        sound = url.isprintable() and parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        raise ValueError(_NO_ADDRESS) from None
    if not sound:
        raise ValueError(_NO_ADDRESS)
    who, found, where = parts.netloc.rpartition("@")
    if not found:
        return url, {}
    name, _, password = who.partition(":")
    basic = b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
    return urlunsplit(parts._replace(netloc=where)), {"Authorization": f"Basic {basic}"}


def secrets_in(key: str, headers: Mapping[str, str]) -> Sequence[str]:
    """What must not be told: the key, and every header long enough to be one. The longest first, they may overlap."""
    found = {value for value in (key, *headers.values()) if len(value) >= _HEADER}
    for scheme, _, value in [value.partition(" ") for value in found]:
        if len(value) >= _HEADER:
            found.add(value)
        if scheme.lower() == "basic" and len(password := _password(value)) >= _PASSWORD:
            found.add(password)
    return sorted(found, key=lambda value: (-len(value), value))


def _password(basic: str) -> str:
    try:
        return b64decode(basic).decode().partition(":")[2]
    except ValueError:
        return ""

"""The HTTP client of the model APIs: headers and addresses, the client under an SDK, and server-sent events.

The client is our own, because those of the SDKs follow redirects with all that is sent, read an error however long it is, and use
the proxies of the process's own environment. Headers and addresses are checked before they are sent, and their secrets are known.
`SseDecoder` is sans-IO: bytes in, the data of each event out. Names, ids and comments of events are ignored.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

from serai.errors import BadSettings
from serai.limits import KIB, Limits

if TYPE_CHECKING:
    import httpx2

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


_ERROR = 64 * KIB  # bytes of an error: more has nothing to say


def http_client(base_url: str, environ: Mapping[str, str], limits: Limits, *, local: bool) -> httpx2.AsyncClient:
    """A client for one server. What proxies and certificates it uses is in the environment that was given, and nowhere else."""
    import httpx2

    variable, proxy = ("", None) if local else proxy_for(base_url, environ)

    async def shorten(response: httpx2.Response) -> None:
        """Read the beginning of an error in place of the SDK, which would read it to its end, and unpacked."""
        if response.status_code < 300:
            return
        head = bytearray()
        whole = response.stream
        with suppress(TimeoutError, httpx2.HTTPError):  # the status says enough
            async with asyncio.timeout(limits.model_idle):
                async for piece in whole:  # type: ignore[union-attr]
                    head += piece
                    if len(head) >= _ERROR:
                        break
        await whole.aclose()  # type: ignore[union-attr]
        packed = is_compressed(response)
        response.headers.pop("content-encoding", None)
        response.stream = httpx2.ByteStream(b"" if packed else bytes(head[:_ERROR]))

    try:
        return httpx2.AsyncClient(
            trust_env=False,
            follow_redirects=False,
            headers={"Accept-Encoding": "identity"},
            proxy=proxy,
            verify=_certificates(environ),
            event_hooks={"response": [shorten]},
        )
    except (ValueError, ImportError, httpx2.InvalidURL):  # their words may show the password of the proxy
        raise BadSettings(f"{variable} names no proxy that can be used", hint="http://host:port is one") from None


def is_compressed(response: httpx2.Response) -> bool:
    """Against what was asked for: a few bytes can be unpacked to more than the machine holds."""
    return response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity")


def proxy_for(url: str, environ: Mapping[str, str]) -> tuple[str, str | None]:
    """The proxy through which a server is asked, if any, and the variable that names it."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    for name in (environ.get("no_proxy") or environ.get("NO_PROXY") or "").lower().split(","):
        without = name.strip().lstrip(".")
        if without and (without in ("*", f"{host}:{parts.port}") or f".{host}".endswith(f".{without}")):
            return "", None
    names = (f"{parts.scheme}_proxy", f"{parts.scheme}_proxy".upper(), "all_proxy", "ALL_PROXY")
    variable = next((name for name in names if environ.get(name, "").strip()), "")
    proxy = environ.get(variable, "").strip()
    return variable, (proxy if "://" in proxy else f"http://{proxy}") if proxy else None


def _certificates(environ: Mapping[str, str]) -> ssl.SSLContext | bool:
    """Whom to believe: as OpenSSL's variables say, else as is usual."""
    file, folder = environ.get("SSL_CERT_FILE") or None, environ.get("SSL_CERT_DIR") or None
    if file is None and folder is None:
        return True
    try:
        return ssl.create_default_context(cafile=file, capath=None if file else folder)
    except OSError as error:  # ssl.SSLError is one
        variable = "SSL_CERT_FILE" if file else "SSL_CERT_DIR"
        raise BadSettings(f"{variable}: {error.strerror or error}", who=file or folder or "") from None


class EventTooLong(Exception):
    """One event is longer than everything the answer may hold."""


class SseDecoder:
    """Cuts a stream into the data of its events. The SDKs' own decoders hold a line of any length; this one does not."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._line: list[bytes] = []  # of a line whose end has not come: joined once, however many pieces it has
        self._begun = 0  # bytes of that line
        self._data: list[bytes] = []  # of an event whose end has not come
        self._held = 0  # bytes of that event

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The data of every event that is complete with this piece."""
        *lines, rest = piece.split(b"\n")
        for line in lines:
            if self._line:
                self._line.append(line)
                whole = b"".join(self._line)
                self._line.clear()
                self._begun = 0
            else:
                whole = line
            whole = whole.removesuffix(b"\r")
            if whole:
                self._take(whole)
            elif self._data:
                yield self._event()
        if rest:
            self._line.append(rest)
            self._begun += len(rest)
            self._check()

    def end(self) -> Iterator[bytes]:
        """What was complete but for its empty line: servers have been seen to leave the last one out."""
        whole = b"".join(self._line).removesuffix(b"\r")
        self._line.clear()
        self._begun = 0
        if whole:
            self._take(whole)
        if self._data:
            yield self._event()

    def _take(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            data = line[6:] if line[5:6] == b" " else line[5:]
            self._data.append(data)
            self._held += len(data)
            self._check()

    def _check(self) -> None:
        if self._begun + self._held > self._most:
            raise EventTooLong

    def _event(self) -> bytes:
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        self._data.clear()
        self._held = 0
        return data

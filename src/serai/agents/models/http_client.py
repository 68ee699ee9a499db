"""The HTTP client of the model APIs: headers and addresses, the client under an SDK, server-sent events, and errors.

The client is our own, because those of the SDKs follow redirects with all that is sent, read an error however long it is, and use
the proxies of the process's own environment. Headers and addresses are checked before they are sent, and their secrets are known.
`SseDecoder` is sans-IO: bytes in, the data of each event out. Names, ids and comments of events are ignored.

`EndpointErrors` tells what a failure means: is it temporary, how long to wait, is the conversation too long, which key is wrong.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from serai.errors import BadSettings, LimitHit, ModelFailed
from serai.limits import KIB, AgentLimits
from serai.plain_text import escape_line, is_visible, spell_literal

if TYPE_CHECKING:
    import httpx2

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER, _PASSWORD = 8, 4  # characters from which on it may be a secret: shorter ones are parts of words
_NO_ADDRESS = "base_url is the address of a server, http://host/path or https://host/path"


def fits_header(value: str) -> bool:
    """It can be sent in a header. A library's error about one that cannot would show it."""
    return value.isascii() and value.isprintable()


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers as they can be sent. The `ValueError` about one that cannot be names it and does not show its value."""
    if not all(map(_NAME.fullmatch, headers)):
        raise ValueError("one of the headers has a name that none can have")
    found = {name: value.strip() for name, value in headers.items()}
    if wrong := next((name for name, value in found.items() if not fits_header(value)), ""):
        raise ValueError(f"the header {wrong} has characters that no header can have")
    return found


def parse_headers(text: str) -> dict[str, str]:
    """Headers that are written one per line, `Name: value`, as variables for the SDKs have them."""
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def split_address(url: str) -> tuple[str, dict[str, str]]:
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


def find_secrets(key: str, headers: Mapping[str, str]) -> Sequence[str]:
    """What must not be told: the key, and every header long enough to be one. The longest first, they may overlap."""
    found = {value for value in (key, *headers.values()) if len(value) >= _HEADER}
    for scheme, _, value in [value.partition(" ") for value in found]:
        if len(value) >= _HEADER:
            found.add(value)
        if scheme.lower() == "basic" and len(password := _decode_password(value)) >= _PASSWORD:
            found.add(password)
    return sorted(found, key=lambda value: (-len(value), value))


def _decode_password(basic: str) -> str:
    try:
        return b64decode(basic).decode().partition(":")[2]
    except ValueError:
        return ""


_ERROR = 64 * KIB  # bytes of an error: more has nothing to say


def make_http_client(base_url: str, environ: Mapping[str, str], limits: AgentLimits, *, local: bool) -> httpx2.AsyncClient:
    """A client for one server. What proxies and certificates it uses is in the environment that was given, and nowhere else."""
    import httpx2

    variable, proxy = ("", None) if local else find_proxy(base_url, environ)

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
            verify=_load_certificates(environ),
            event_hooks={"response": [shorten]},
        )
    except (ValueError, ImportError, httpx2.InvalidURL):  # their words may show the password of the proxy
        raise BadSettings(f"{variable} names no proxy that can be used", hint="http://host:port is one") from None


def is_compressed(response: httpx2.Response) -> bool:
    """Against what was asked for: a few bytes can be unpacked to more than the machine holds."""
    return response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity")


def find_proxy(url: str, environ: Mapping[str, str]) -> tuple[str, str | None]:
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


def _load_certificates(environ: Mapping[str, str]) -> ssl.SSLContext | bool:
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
                self._add_line(whole)
            elif self._data:
                yield self._take_event()
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
            self._add_line(whole)
        if self._data:
            yield self._take_event()

    def _add_line(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            data = line[6:] if line[5:6] == b" " else line[5:]
            self._data.append(data)
            self._held += len(data)
            self._check()

    def _check(self) -> None:
        if self._begun + self._held > self._most:
            raise EventTooLong

    def _take_event(self) -> bytes:
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        self._data.clear()
        self._held = 0
        return data


_TEMPORARY = frozenset({408, 409, 425, 429, 499})  # and everything from 500 on
_TOO_LONG = re.compile(
    r"context[ _]?(length|window)|maximum context|prompt is too long|input is too long|too many (input )?tokens"
    r"|exceeds? the (maximum|limit|context|model)|reduce the length|request_too_large",
    re.IGNORECASE,
)
# The words of an error that comes in mid-stream, when the status has long been 200.
_STATUS_OF = {
    "authentication_error": 401,
    "billing_error": 402,
    "context_length_exceeded": 400,
    "invalid_request_error": 400,
    "not_found_error": 404,
    "overloaded_error": 529,
    "permission_error": 403,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "request_too_large": 413,
}
_USELESS = frozenset({"insufficient_quota", "billing_hard_limit_reached"})  # a 429 that no waiting mends
_LONGEST = 500  # characters of a provider's own words


@dataclass(frozen=True, slots=True)
class EndpointErrors:
    """Makes the errors of one endpoint. `secrets` never get into one; `variable` is where its key comes from."""

    who: str
    limits: AgentLimits
    variable: str = ""
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def translate_exception(self, error: Exception) -> ModelFailed:
        """What an exception means that came in a call: of an SDK, of the HTTP library under it, of reading what came."""
        import httpx2  # with the SDK

        if isinstance(error, EventTooLong):
            return self.make_too_long()
        if isinstance(error, RecursionError):
            return ModelFailed("the conversation, a tool or the answer is nested too deep", who=self.who)
        if isinstance(error, ValueError):  # no JSON, or no such event: msgspec's are ValueErrors
            return self.make_not_understood(str(error))
        status = getattr(error, "status_code", None)
        response = getattr(error, "response", None)
        if isinstance(status, int) and response is not None and status >= 300:
            return self.build_status_error(status, response.headers, getattr(error, "body", None), str(error))
        if isinstance(error, httpx2.TimeoutException) or type(error).__name__ == "APITimeoutError":
            return self.make_idle()
        if isinstance(error, httpx2.HTTPError | httpx2.StreamError):
            return self.make_broken_off(self._redact(str(error)))
        if type(error).__name__ == "APIConnectionError":
            cause = self._redact(str(error.__cause__ or error))
            return ModelFailed(
                f"it cannot be reached: {cause}",
                who=self.who,
                temporary=True,
                hint="look at the network and at the model's base_url",
            )
        return ModelFailed(f"{type(error).__name__}: {self._redact(str(error))}", who=self.who)

    def build_status_error(self, status: int, headers: Mapping[str, str], body: object, text: str = "") -> ModelFailed:
        """An answer that is an error."""
        if status < 400:
            return self._build_redirect_error(status, headers)
        message, kind = _parse_error(body)
        message = self._redact(message or text or "no reason given")
        too_long = status == 413 or (status in (400, 422) and bool(_TOO_LONG.search(f"{kind} {message}")))
        temporary = (status in _TEMPORARY or status >= 500) and kind not in _USELESS
        return ModelFailed(
            f"HTTP {status}: {message}",
            who=self.who,
            status=status,
            temporary=temporary,
            wait=parse_retry_after(headers) if temporary else None,
            too_long=too_long,
            hint=self._build_hint(status, too_long=too_long, kind=kind),
        )

    def build_event_error(self, body: object) -> ModelFailed:
        """An error that came as an event."""
        message, kind = _parse_error(body)
        status = _STATUS_OF.get(kind, 500)
        failure = self.build_status_error(status, {}, {"message": message, "type": kind})
        failure.message = f"in mid-answer: {self._redact(message or kind or 'no reason given')}"
        return failure

    def _build_redirect_error(self, status: int, headers: Mapping[str, str]) -> ModelFailed:
        """A redirect, which is never followed: another server would get the conversation, and the keys in headers."""
        try:
            parts = urlsplit(headers.get("location", ""))
            where = f"{parts.scheme or 'http'}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else "another of its own paths"
        except ValueError:
            where = "an address that is none"
        hint = "if that is the right server, make it the model's base_url"
        return ModelFailed(f"HTTP {status}: it sends us on to {self._redact(where)}", who=self.who, status=status, hint=hint)

    def make_broken_off(self, why: str = "") -> ModelFailed:
        return ModelFailed(f"the answer broke off{f': {why}' if why else ''}", who=self.who, temporary=True)

    def make_not_understood(self, why: str) -> ModelFailed:
        return ModelFailed(f"it sent an event that cannot be understood: {self._redact(why)}", who=self.who, temporary=True)

    def make_compressed(self) -> ModelFailed:
        hint = "its answer is not unpacked, for it could be endless: look at what stands between us and the provider"
        return ModelFailed("it sent a compressed answer, which it was asked not to", who=self.who, hint=hint)

    def make_idle(self) -> ModelFailed:
        hit = LimitHit("model_idle", self.limits.model_idle)
        return ModelFailed("it says nothing more", who=self.who, temporary=True, limit=hit, hint="ask again, or raise the limit")

    def make_too_long(self) -> ModelFailed:
        hit = LimitHit("model_answer", self.limits.model_answer)
        return ModelFailed(
            "the answer is too long and was stopped", who=self.who, limit=hit, hint="ask for less, or raise the limit"
        )

    def make_too_many_calls(self) -> ModelFailed:
        hit = LimitHit("model_calls", self.limits.model_calls)
        return ModelFailed("it calls too many tools at once", who=self.who, limit=hit, hint="ask for less, or raise the limit")

    def _build_hint(self, status: int, *, too_long: bool, kind: str) -> str:
        if status in (401, 403):
            return f"the provider does not take the key: look at {self.variable}" if self.variable else "the provider wants a key"
        if status == 404:
            return "does the provider have this model? look at its id and base_url in models.toml"
        if too_long:
            return "the conversation is longer than the model takes: compact it, or begin a new one"
        return "the account has no credit left" if kind in _USELESS or status == 402 else ""

    def _redact(self, text: str) -> str:
        """A provider's words, cut, without what must not be told, and with nothing that a terminal acts upon or does not show."""
        for secret in self.secrets:
            text = text.replace(secret, "…")
        return clean_words(text)


def clean_words(text: str) -> str:
    """Somebody else's words in an error of ours: not too many, and with nothing that a terminal acts upon or does not show."""
    return escape_line(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…", spell_literal, is_visible)


def _parse_error(body: object) -> tuple[str, str]:
    """The message and the kind of an error, from any of the shapes that providers give it."""
    if isinstance(body, list) and body:  # Google's compatible endpoint wraps it
        body = body[0]
    if isinstance(body, dict) and isinstance(body.get("error"), dict | str):
        body = body["error"]
    if isinstance(body, str):
        return body, ""
    if not isinstance(body, dict):
        return "", ""
    return _to_text(body.get("message")), _to_text(body.get("code")) or _to_text(body.get("type"))


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def parse_retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """How long to wait, as the provider says: `retry-after-ms`, or `retry-after` in seconds or as a date."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * scale
        except (KeyError, ValueError):
            continue
        return max(seconds, 0.0) if isfinite(seconds) else None
    try:
        date = parsedate_to_datetime(headers["retry-after"])
        zoned = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
        return max((zoned - (now or datetime.now(UTC))).total_seconds(), 0.0)
    except (KeyError, ValueError, TypeError, OverflowError):  # no date, or one of a zone that cannot be
        return None

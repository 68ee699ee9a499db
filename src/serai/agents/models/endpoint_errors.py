"""What a provider's failure means: is it temporary, how long to wait, is the conversation too long, which key is wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any
from urllib.parse import urlsplit

from serai.agents.models.http_client import EventTooLong
from serai.errors import LimitHit, ModelFailed
from serai.limits import Limits
from serai.plain_text import escape_line, is_visible, spell_literal

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
    limits: Limits
    variable: str = ""
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def of(self, error: Exception) -> ModelFailed:
        """What an exception means that came in a call: of an SDK, of the HTTP library under it, of reading what came."""
        import httpx2  # with the SDK

        if isinstance(error, EventTooLong):
            return self.too_much()
        if isinstance(error, RecursionError):
            return ModelFailed("the conversation, a tool or the answer is nested too deep", who=self.who)
        if isinstance(error, ValueError):  # no JSON, or no such event: msgspec's are ValueErrors
            return self.not_understood(str(error))
        status = getattr(error, "status_code", None)
        response = getattr(error, "response", None)
        if isinstance(status, int) and response is not None and status >= 300:
            return self.status(status, response.headers, getattr(error, "body", None), str(error))
        if isinstance(error, httpx2.TimeoutException) or type(error).__name__ == "APITimeoutError":
            return self.idle()
        if isinstance(error, httpx2.HTTPError | httpx2.StreamError):
            return self.broke_off(self._plain(str(error)))
        if type(error).__name__ == "APIConnectionError":
            cause = self._plain(str(error.__cause__ or error))
            return ModelFailed(
                f"it cannot be reached: {cause}",
                who=self.who,
                temporary=True,
                hint="look at the network and at the model's base_url",
            )
        return ModelFailed(f"{type(error).__name__}: {self._plain(str(error))}", who=self.who)

    def status(self, status: int, headers: Mapping[str, str], body: object, text: str = "") -> ModelFailed:
        """An answer that is an error."""
        if status < 400:
            return self._sent_on(status, headers)
        message, kind = _words(body)
        message = self._plain(message or text or "no reason given")
        too_long = status == 413 or (status in (400, 422) and bool(_TOO_LONG.search(f"{kind} {message}")))
        temporary = (status in _TEMPORARY or status >= 500) and kind not in _USELESS
        return ModelFailed(
            f"HTTP {status}: {message}",
            who=self.who,
            status=status,
            temporary=temporary,
            wait=wait_of(headers) if temporary else None,
            too_long=too_long,
            hint=self._hint(status, too_long=too_long, kind=kind),
        )

    def in_stream(self, body: object) -> ModelFailed:
        """An error that came as an event."""
        message, kind = _words(body)
        status = _STATUS_OF.get(kind, 500)
        failure = self.status(status, {}, {"message": message, "type": kind})
        failure.message = f"in mid-answer: {self._plain(message or kind or 'no reason given')}"
        return failure

    def _sent_on(self, status: int, headers: Mapping[str, str]) -> ModelFailed:
        """A redirect, which is never followed: another server would get the conversation, and the keys in headers."""
        try:
            parts = urlsplit(headers.get("location", ""))
            where = f"{parts.scheme or 'http'}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else "another of its own paths"
        except ValueError:
            where = "an address that is none"
        hint = "if that is the right server, make it the model's base_url"
        return ModelFailed(f"HTTP {status}: it sends us on to {self._plain(where)}", who=self.who, status=status, hint=hint)

    def broke_off(self, why: str = "") -> ModelFailed:
        return ModelFailed(f"the answer broke off{f': {why}' if why else ''}", who=self.who, temporary=True)

    def not_understood(self, why: str) -> ModelFailed:
        return ModelFailed(f"it sent an event that cannot be understood: {self._plain(why)}", who=self.who, temporary=True)

    def compressed(self) -> ModelFailed:
        hint = "its answer is not unpacked, for it could be endless: look at what stands between us and the provider"
        return ModelFailed("it sent a compressed answer, which it was asked not to", who=self.who, hint=hint)

    def idle(self) -> ModelFailed:
        hit = LimitHit("model_idle", self.limits.model_idle)
        return ModelFailed("it says nothing more", who=self.who, temporary=True, limit=hit, hint="ask again, or raise the limit")

    def too_much(self) -> ModelFailed:
        hit = LimitHit("model_answer", self.limits.model_answer)
        return ModelFailed(
            "the answer is too long and was stopped", who=self.who, limit=hit, hint="ask for less, or raise the limit"
        )

    def too_many_calls(self) -> ModelFailed:
        hit = LimitHit("model_calls", self.limits.model_calls)
        return ModelFailed("it calls too many tools at once", who=self.who, limit=hit, hint="ask for less, or raise the limit")

    def _hint(self, status: int, *, too_long: bool, kind: str) -> str:
        if status in (401, 403):
            return f"the provider does not take the key: look at {self.variable}" if self.variable else "the provider wants a key"
        if status == 404:
            return "does the provider have this model? look at its id and base_url in models.toml"
        if too_long:
            return "the conversation is longer than the model takes: compact it, or begin a new one"
        return "the account has no credit left" if kind in _USELESS or status == 402 else ""

    def _plain(self, text: str) -> str:
        """A provider's words, cut, without what must not be told, and with nothing that a terminal acts upon or does not show."""
        for secret in self.secrets:
            text = text.replace(secret, "…")
        return words(text)


def words(text: str) -> str:
    """Somebody else's words in an error of ours: not too many, and with nothing that a terminal acts upon or does not show."""
    return escape_line(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…", spell_literal, is_visible)


def _words(body: object) -> tuple[str, str]:
    """The message and the kind of an error, from any of the shapes that providers give it."""
    if isinstance(body, list) and body:  # Google's compatible endpoint wraps it
        body = body[0]
    if isinstance(body, dict) and isinstance(body.get("error"), dict | str):
        body = body["error"]
    if isinstance(body, str):
        return body, ""
    if not isinstance(body, dict):
        return "", ""
    return _text(body.get("message")), _text(body.get("code")) or _text(body.get("type"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def wait_of(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
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

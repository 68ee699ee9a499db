"""Which request is for which API: one table. A further API is a module and a row."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Literal, NamedTuple

from serai.testing.models import anthropic, chat, responses
from serai.testing.models.answering import Api

__all__ = ["APIS", "KEY_HEADERS", "MODELS", "Route", "api_of", "has_key", "route_of"]

APIS = (anthropic.API, chat.API, responses.API)
MODELS = ("fake-1", "fake-small-1")

# Headers that carry a key: where it is looked for, and what is never kept.
KEY_HEADERS = ("x-api-key", "authorization", "x-goog-api-key", "api-key")


class Route(NamedTuple):
    api: Api
    what: Literal["answer", "count", "models"]


_ROUTES: dict[tuple[str, str], Route] = {
    ("POST", "/v1/messages"): Route(anthropic.API, "answer"),
    ("POST", "/v1/messages/count_tokens"): Route(anthropic.API, "count"),
    ("POST", "/v1/chat/completions"): Route(chat.API, "answer"),
    ("POST", "/v1/responses"): Route(responses.API, "answer"),
    ("GET", "/v1/models"): Route(chat.API, "models"),
}


def route_of(method: str, path: str, headers: Mapping[str, str]) -> Route | None:
    """Two APIs list their models at one path: Anthropic's clients tell its version."""
    found = _ROUTES.get((method, path))
    if found is not None and found.what == "models" and "anthropic-version" in headers:
        return Route(anthropic.API, "models")
    return found


def api_of(path: str, headers: Mapping[str, str]) -> Api:
    """Who complains about a request that nobody answers."""
    return anthropic.API if "anthropic-version" in headers or path.startswith("/v1/messages") else chat.API


def has_key(headers: Mapping[str, str], key: str) -> bool:
    said = [headers.get(name, "").removeprefix("Bearer ").strip() for name in KEY_HEADERS]
    return any(hmac.compare_digest(one.encode(), key.encode()) for one in said)

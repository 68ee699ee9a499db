"""From a model to who streams it: a table by API, imported when it is needed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from ipaddress import ip_address
from typing import Any, Protocol
from urllib.parse import urlsplit

from serai.agents.models.headers import address, checked, fits, lines_of
from serai.agents.models.resolving import variables_of
from serai.errors import BadSettings, ModelFailed, NoModel
from serai.limits import Limits
from serai.model.provider import Chunk, Completion, Model, ModelRequest

__all__ = ["Access", "ClosableProvider", "access", "is_local", "provider_for", "sdk_of"]

# api: (module, class, SDK, where it is asked, the variable that changes that)
_TABLE = {
    "anthropic": ("anthropic_api", "Anthropic", "anthropic", "https://api.anthropic.com", "ANTHROPIC_BASE_URL"),
    "openai": ("openai_chat", "OpenAIChat", "openai", "https://api.openai.com/v1", "OPENAI_BASE_URL"),
    "openai-responses": ("openai_responses", "OpenAIResponses", "openai", "https://api.openai.com/v1", "OPENAI_BASE_URL"),
}
# What OpenAI's SDK sends of the process's environment to every server; here it is the given one's, and for OpenAI alone.
_ACCOUNT = {"OPENAI_ORG_ID": "OpenAI-Organization", "OPENAI_PROJECT_ID": "OpenAI-Project"}
_AUTHORISING = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key"})


class ClosableProvider(Protocol):
    """A `ModelProvider` that holds connections until it is closed; its iterators can be closed, as generators can."""

    async def models(self) -> Sequence[Model]: ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | Completion, None]: ...

    async def close(self) -> None: ...


def provider_for(model: Model, *, environ: Mapping[str, str], limits: Limits, key: str | None = None) -> ClosableProvider:
    """Who streams that model. A missing SDK and a missing key are told here, before any request."""
    if model.api == "parrot":
        from serai.agents.models.parrot import Parrot

        return Parrot(limits)
    module, name, *_ = _TABLE.get(model.api, _TABLE["openai"])
    if find_spec(sdk_of(model)) is None:
        raise NoModel(f"{model.key} needs the package `{sdk_of(model)}`", hint="pip install 'serai[models]'")
    way = access(model, environ, key)
    if not way.ready:
        hint = f"set {' or '.join(variables_of(model.provider))}"
        raise ModelFailed("there is no key for it", who=model.key, status=401, hint=hint)

    from serai.agents.models.calling import Endpoint

    endpoint = Endpoint(
        model=model,
        base_url=way.base_url,
        limits=limits,
        variable=way.variable,
        local=way.local,
        key=way.key,
        headers=way.headers,
        environ=environ,
    )
    made: Any = getattr(import_module(f"serai.agents.models.{module}"), name)
    provider: ClosableProvider = made(endpoint)
    return provider


@dataclass(frozen=True, slots=True)
class Access:
    """Where a model is asked, and with what."""

    base_url: str
    headers: dict[str, str] = field(repr=False)
    local: bool
    variable: str  # where its key is, or would be
    key: str = field(repr=False)

    @property
    def ready(self) -> bool:
        """Whether there is what its provider wants to see."""
        return bool(self.key) or self.local or any(header.lower() in _AUTHORISING for header in self.headers)


def sdk_of(model: Model) -> str:
    """The package that speaks to it; empty when it needs none."""
    return "" if model.api == "parrot" else _TABLE.get(model.api, _TABLE["openai"])[2]


def access(model: Model, environ: Mapping[str, str], key: str | None = None) -> Access:
    """What the model, the variables and a given key say together. Nothing is imported for it, and nobody asked."""
    _, _, sdk, usual, variable = _TABLE.get(model.api, _TABLE["openai"])
    if not model.base_url and model.provider not in ("anthropic", "openai"):
        hint = "give it in models.toml as base_url"
        raise BadSettings("it has no address: its key is nobody else's", who=model.key, hint=hint)
    own = model.provider == sdk  # the variables speak of the provider itself, not of who talks like it
    try:
        base_url, headers = address(model.base_url or (environ.get(variable, "").strip() if own else "") or usual)
        headers |= checked({**(_of_account(sdk, environ) if own else {}), **model.headers})
    except ValueError as error:
        raise BadSettings(str(error), who=model.key, hint=f"look at models.toml, and at {variable} if it is set") from None
    variables = variables_of(model.provider)
    used = next((one for one in variables if environ.get(one, "").strip()), variables[0])
    secret = _checked(environ.get(used, "") if key is None else key, used, model)
    return Access(base_url, headers, is_local(base_url), used, secret)


def is_local(url: str) -> bool:
    """It is on this machine: nobody else hears the key, or its absence."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        raise BadSettings("base_url is no address of a server") from None
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _of_account(sdk: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The headers that variables for the SDK ask for."""
    told = {header: environ[name] for name, header in _ACCOUNT.items() if sdk == "openai" and environ.get(name)}
    return told | lines_of(environ.get(f"{sdk.upper()}_CUSTOM_HEADERS", ""))


def _checked(key: str, variable: str, model: Model) -> str:
    """The key as it fits into a header. A library's error about one that does not would show it."""
    key = key.strip()
    if not fits(key):
        raise ModelFailed("its key has characters that no key has", who=model.key, status=401, hint=f"look at {variable}")
    return key

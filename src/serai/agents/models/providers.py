"""From a model to the provider that streams it: a table by API, imported when it is needed, and a pool of open providers.

`probe_local_servers` asks the servers on this machine that a person names in `models.toml` which models they have. Only those that
speak OpenAI's API are asked (spec piglet 7.1, `host/syncModels`). A server that gives no usable answer has none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from ipaddress import ip_address
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec

from serai.agents.models.catalogue import Catalogue, choose, list_key_variables
from serai.agents.models.http_client import check_headers, fits_header, parse_headers, split_address
from serai.errors import BadSettings, ModelFailed, NoModel, SeraiError
from serai.limits import MIB, AgentLimits
from serai.model.provider import Chunk, Completion, Cost, Model, ModelProvider, ModelRequest

log = logging.getLogger("serai.agents")

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


def create_provider(model: Model, *, environ: Mapping[str, str], limits: AgentLimits, key: str | None = None) -> ClosableProvider:
    """Who streams that model. A missing SDK and a missing key are told here, before any request."""
    if model.api == "parrot":
        from serai.agents.models.parrot import Parrot

        return Parrot(limits)
    module, name, *_ = _TABLE.get(model.api, _TABLE["openai"])
    if find_spec(get_sdk(model)) is None:
        raise NoModel(f"{model.key} needs the package `{get_sdk(model)}`", hint="pip install 'serai[models]'")
    way = resolve_access(model, environ, key)
    if not way.ready:
        hint = f"set {' or '.join(list_key_variables(model.provider))}"
        raise ModelFailed("there is no key for it", who=model.key, status=401, hint=hint)

    from serai.agents.models.api_provider import ModelEndpoint

    endpoint = ModelEndpoint(
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
class ProviderAccess:
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


def get_sdk(model: Model) -> str:
    """The package that speaks to it; empty when it needs none."""
    return "" if model.api == "parrot" else _TABLE.get(model.api, _TABLE["openai"])[2]


def resolve_access(model: Model, environ: Mapping[str, str], key: str | None = None) -> ProviderAccess:
    """What the model, the variables and a given key say together. Nothing is imported for it, and nobody asked."""
    _, _, sdk, usual, variable = _TABLE.get(model.api, _TABLE["openai"])
    if not model.base_url and model.provider not in ("anthropic", "openai"):
        hint = "give it in models.toml as base_url"
        raise BadSettings("it has no address: its key is nobody else's", who=model.key, hint=hint)
    own = model.provider == sdk  # the variables speak of the provider itself, not of who talks like it
    try:
        base_url, headers = split_address(model.base_url or (environ.get(variable, "").strip() if own else "") or usual)
        headers |= check_headers({**(_build_account_headers(sdk, environ) if own else {}), **model.headers})
    except ValueError as error:
        raise BadSettings(str(error), who=model.key, hint=f"look at models.toml, and at {variable} if it is set") from None
    variables = list_key_variables(model.provider)
    used = next((one for one in variables if environ.get(one, "").strip()), variables[0])
    secret = _check_key(environ.get(used, "") if key is None else key, used, model)
    return ProviderAccess(base_url, headers, is_local(base_url), used, secret)


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


def _build_account_headers(sdk: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The headers that variables for the SDK ask for."""
    told = {header: environ[name] for name, header in _ACCOUNT.items() if sdk == "openai" and environ.get(name)}
    return told | parse_headers(environ.get(f"{sdk.upper()}_CUSTOM_HEADERS", ""))


def _check_key(key: str, variable: str, model: Model) -> str:
    """The key as it fits into a header. A library's error about one that does not would show it."""
    key = key.strip()
    if not fits_header(key):
        raise ModelFailed("its key has characters that no key has", who=model.key, status=401, hint=f"look at {variable}")
    return key


_SECONDS = 5.0  # for one server: it is on this machine
_LONGEST = 1 * MIB  # of its answer
_MOST = 1000  # models of one server


class _Served(msgspec.Struct, frozen=True):
    id: str


class _List(msgspec.Struct, frozen=True):
    data: list[_Served] = []


_list = msgspec.json.Decoder(_List)


async def probe_local_servers(catalogue: Catalogue, environ: Mapping[str, str], limits: AgentLimits) -> tuple[Model, ...]:
    """What the servers that the catalogue names have, one model of each as the pattern for the others."""
    servers: dict[str, Model] = {}
    for model in catalogue:
        if model.base_url and model.api.startswith("openai") and is_local(model.base_url):
            servers.setdefault(model.base_url, model)
    found = await asyncio.gather(*(_probe_server(model, environ, limits) for model in servers.values()))
    return tuple(model for models in found for model in models)


async def _probe_server(model: Model, environ: Mapping[str, str], limits: AgentLimits) -> Sequence[Model]:
    try:
        import httpx2
    except ImportError:
        log.info("%s is not asked for its models: pip install 'serai[models]'", model.provider)
        return ()
    try:
        async with asyncio.timeout(_SECONDS):
            ids = [one.id for one in _list.decode(await _fetch_models(model, environ, limits)).data[:_MOST]]
    except (SeraiError, httpx2.HTTPError, httpx2.InvalidURL, msgspec.MsgspecError, OSError, ValueError) as error:
        log.info("%s does not tell its models: %s", model.provider, type(error).__name__)  # its text may show an address with a key
        return ()
    plain = msgspec.structs.replace(model, reasoning=False, context_window=0, max_tokens=0, cost=Cost())
    return [msgspec.structs.replace(plain, id=id, name=id) for id in dict.fromkeys(ids) if id and id == id.strip()]


async def _fetch_models(model: Model, environ: Mapping[str, str], limits: AgentLimits) -> bytes:
    from serai.agents.models.http_client import make_http_client

    way = resolve_access(model, environ)
    headers = {**({"Authorization": f"Bearer {way.key}"} if way.key else {}), **way.headers}
    async with (
        make_http_client(way.base_url, environ, limits, local=True) as client,
        client.stream("GET", f"{way.base_url.rstrip('/')}/models", headers=headers) as response,
    ):
        response.raise_for_status()
        content = bytearray()
        async for piece in response.aiter_raw():
            content += piece
            if len(content) > _LONGEST:
                raise ValueError("its list is too long")
        return bytes(content)


Guests = Callable[[str], ModelProvider | None]  # the guest that streams the models of an API, at this moment


class ProviderPool:
    """One provider for each model, made when it is first wanted and closed at the end.

    A model whose `api` a guest has registered is streamed by that guest, whoever else could (spec piglet 5.9).
    """

    def __init__(
        self, environ: Mapping[str, str], settings: Mapping[str, Any], limits: AgentLimits, guests: Guests | None = None
    ) -> None:
        self._environ = environ
        self._settings = settings
        self._limits = limits
        self._guests = guests
        self._providers: dict[tuple[str, str, str], ModelProvider] = {}
        self.found: tuple[Model, ...] = ()  # on servers of this machine (`providers`), for this run

    def load_catalogue(self) -> Catalogue:
        """As it is written now, and what else was found."""
        written = Catalogue.load(self._environ)
        return written.with_models([model for model in self.found if written.get(model.key) is None])

    def select(
        self, query: str | Model, provider: ModelProvider | None, *, unchecked: bool = False
    ) -> tuple[Model, ModelProvider, str]:
        """The model that is meant, who streams it, and what a person should be told of the choice.

        `unchecked`: where guests may come that stream it, nobody is missing yet. `check` is for when they are there.
        """
        notice = ""
        if isinstance(query, Model):
            model = query
        elif provider is not None and not query:
            model = Model("unnamed")
        else:
            chosen = choose(query, self.load_catalogue(), environ=self._environ, settings=self._settings)
            model, notice = chosen.model, chosen.why
        if provider is None:
            provider = self._get_own(model) if self._guests is None else FallbackProvider(model, self._guests, self._get_own)
            if not unchecked:
                self.check(model)
        return model, provider, notice

    def check(self, model: Model) -> None:
        """Raises what is missing for it: its SDK, its key, its address. Nothing is when a guest streams it."""
        if self._guests is None or self._guests(model.api) is None:
            self._get_own(model)

    def _get_own(self, model: Model) -> ModelProvider:
        key = (model.key, model.api, model.base_url)
        if key not in self._providers:
            self._providers[key] = create_provider(model, environ=self._environ, limits=self._limits)
        return self._providers[key]

    async def close(self) -> None:
        for provider in self._providers.values():
            if (close := getattr(provider, "close", None)) is not None:
                await close()


class FallbackProvider:
    """A guest, or Serai's own client: who it is shows at each call, as guests come and go."""

    def __init__(self, model: Model, guests: Guests, own: Callable[[Model], ModelProvider]) -> None:
        self._model = model
        self._guests = guests
        self._own = own

    async def models(self) -> Sequence[Model]:
        return [self._model]

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk | Completion]:
        return (self._guests(self._model.api) or self._own(self._model)).stream(request)

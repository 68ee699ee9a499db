"""The models at hand, and those who stream them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from serai.agents.models.catalogue import Catalogue
from serai.agents.models.providers import provider_for
from serai.agents.models.resolving import choose
from serai.limits import Limits
from serai.model.provider import Chunk, Completion, Model, ModelProvider, ModelRequest

__all__ = ["Either", "Guests", "Shelf"]

Guests = Callable[[str], ModelProvider | None]  # the guest that streams the models of an API, at this moment


class Shelf:
    """One provider for each model, made when it is first wanted and closed at the end.

    A model whose `api` a guest has registered is streamed by that guest, whoever else could (spec piglet 5.9).
    """

    def __init__(
        self, environ: Mapping[str, str], settings: Mapping[str, Any], limits: Limits, guests: Guests | None = None
    ) -> None:
        self._environ = environ
        self._settings = settings
        self._limits = limits
        self._guests = guests
        self._providers: dict[tuple[str, str, str], ModelProvider] = {}
        self.found: tuple[Model, ...] = ()  # on servers of this machine (`probing`), for this run

    def catalogue(self) -> Catalogue:
        """As it is written now, and what else was found."""
        written = Catalogue.load(self._environ)
        return written.with_models([model for model in self.found if written.get(model.key) is None])

    def take(
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
            chosen = choose(query, self.catalogue(), environ=self._environ, settings=self._settings)
            model, notice = chosen.model, chosen.why
        if provider is None:
            provider = self._own(model) if self._guests is None else Either(model, self._guests, self._own)
            if not unchecked:
                self.check(model)
        return model, provider, notice

    def check(self, model: Model) -> None:
        """Raises what is missing for it: its SDK, its key, its address. Nothing is when a guest streams it."""
        if self._guests is None or self._guests(model.api) is None:
            self._own(model)

    def _own(self, model: Model) -> ModelProvider:
        key = (model.key, model.api, model.base_url)
        if key not in self._providers:
            self._providers[key] = provider_for(model, environ=self._environ, limits=self._limits)
        return self._providers[key]

    async def close(self) -> None:
        for provider in self._providers.values():
            if (close := getattr(provider, "close", None)) is not None:
                await close()


class Either:
    """A guest, or Serai's own client: who it is shows at each call, as guests come and go."""

    def __init__(self, model: Model, guests: Guests, own: Callable[[Model], ModelProvider]) -> None:
        self._model = model
        self._guests = guests
        self._own = own

    async def models(self) -> Sequence[Model]:
        return [self._model]

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk | Completion]:
        return (self._guests(self._model.api) or self._own(self._model)).stream(request)

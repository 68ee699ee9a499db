"""The models at hand, and those who stream them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from serai.agents.models.catalogue import Catalogue
from serai.agents.models.providers import provider_for
from serai.agents.models.resolving import choose
from serai.limits import Limits
from serai.model.provider import Model, ModelProvider

__all__ = ["Shelf"]


class Shelf:
    """One provider for each model, made when it is first wanted and closed at the end."""

    def __init__(self, environ: Mapping[str, str], settings: Mapping[str, Any], limits: Limits) -> None:
        self._environ = environ
        self._settings = settings
        self._limits = limits
        self._providers: dict[tuple[str, str, str], ModelProvider] = {}

    def take(self, query: str | Model, provider: ModelProvider | None) -> tuple[Model, ModelProvider, str]:
        """The model that is meant, who streams it, and what a person should be told of the choice."""
        notice = ""
        if isinstance(query, Model):
            model = query
        elif provider is not None and not query:
            model = Model("unnamed")
        else:
            chosen = choose(query, Catalogue.load(self._environ), environ=self._environ, settings=self._settings)
            model, notice = chosen.model, chosen.why
        return model, provider or self._provider(model), notice

    def _provider(self, model: Model) -> ModelProvider:
        key = (model.key, model.api, model.base_url)
        if key not in self._providers:
            self._providers[key] = provider_for(model, environ=self._environ, limits=self._limits)
        return self._providers[key]

    async def close(self) -> None:
        for provider in self._providers.values():
            if (close := getattr(provider, "close", None)) is not None:
                await close()

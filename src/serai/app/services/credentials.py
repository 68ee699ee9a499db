"""Keys of providers, for guests to which a person has granted them (design rule 13). No value is ever logged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from serai.agents.models.resolving import variables_of
from serai.app.services.grants import Grants, provider_of
from serai.app.services.group import Data, Operation

__all__ = ["Credentials"]


class Provider(msgspec.Struct, frozen=True):
    provider: str


class Credentials:
    """`granted` says whose keys a guest may have; `environ` has them."""

    def __init__(self, environ: Mapping[str, str], granted: Callable[[str], Grants]) -> None:
        self._environ = environ
        self._granted = granted
        self.operations: Mapping[str, Operation[Any]] = {"key": Operation(Provider, self.key)}

    async def key(self, guest: str, wanted: Provider) -> Data:
        """The key, or "": not granted, not there and not known look the same, so that nobody learns which keys there are."""
        provider = provider_of(wanted.provider)
        if not provider or provider not in self._granted(guest).keys:
            return {"key": ""}
        return {"key": next((key for name in variables_of(provider) if (key := self._environ.get(name, "").strip())), "")}

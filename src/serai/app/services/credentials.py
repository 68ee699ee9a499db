"""Keys of providers, for guests to which a person has granted them (design rule 13). No value is ever logged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from serai.agents.models.catalogue import Catalogue, variables_of
from serai.app.services.grants import Grants, provider_of
from serai.app.services.group import Data, Operation
from serai.errors import BadSettings

__all__ = ["Credentials"]


_KEYS = frozenset({"x-api-key", "api-key", "x-goog-api-key"})  # headers that are nothing but a key


class Provider(msgspec.Struct, frozen=True):
    provider: str


class Credentials:
    """`granted` says whose keys a guest may have; `environ` has them, if the person's `models.toml` does not.

    `known` is told each value, with a name for it, before a guest gets it: it must not get into a recording.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        granted: Callable[[str], Grants],
        known: Callable[[str, str], object] = lambda _name, _value: None,
    ) -> None:
        self._environ = environ
        self._granted = granted
        self._known = known
        self.operations: Mapping[str, Operation[Any]] = {"key": Operation(Provider, self.key)}

    async def key(self, guest: str, wanted: Provider) -> Data:
        """The key, or "": not granted, not there and not known look the same, so that nobody learns which keys there are."""
        provider = provider_of(wanted.provider)
        if not provider or provider not in self._granted(guest).keys:
            return {"key": ""}
        in_variables = (key for name in variables_of(provider) if (key := self._environ.get(name, "").strip()))
        key = self._stored(provider) or next(in_variables, "")
        if key:
            self._known(f"the key of {provider}", key)
        return {"key": key}

    def _stored(self, provider: str) -> str:
        """What the person has written down for one of its models, as a header that carries a key and nothing else."""
        try:
            models = [model for model in Catalogue.load(self._environ) if provider_of(model.provider) == provider]
        except BadSettings:  # that it cannot be read is told elsewhere; here nothing is told
            return ""
        headers = [(name.lower(), value.strip()) for model in models for name, value in model.headers.items()]
        plain = (value for name, value in headers if name in _KEYS)
        bearer = (rest.strip() for name, value in headers if name == "authorization" for rest in [_bearer(value)])
        return next(filter(None, (*plain, *bearer)), "")


def _bearer(value: str) -> str:
    scheme, _, rest = value.partition(" ")
    return rest if scheme.lower() == "bearer" else ""

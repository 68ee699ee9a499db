"""The catalogue: which models there are. A file of our own, and the person's `models.toml` over it."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import msgspec

from serai import home
from serai.agents.models.headers import address, checked
from serai.errors import BadSettings
from serai.model.provider import Cost, Model

__all__ = ["APIS", "FILE", "PARROT", "Catalogue"]

APIS = ("anthropic", "openai", "openai-responses", "parrot")
FILE = "models.toml"
PARROT = "parrot/parrot"
_LONGEST = 1024 * 1024  # bytes of a catalogue
_HUMP = re.compile(r"(?<=[a-z])([A-Z])")


class _CostEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0

    def __post_init__(self) -> None:
        if not all(0 <= price < 1e9 for price in (self.input, self.output, self.cache_read, self.cache_write)):
            raise ValueError("a cost is 0 or more dollars")


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of `[[models]]`, as spec piglet 6.5 has it."""

    id: str
    name: str = ""
    provider: str = ""
    api: str = "openai"
    base_url: str = ""
    reasoning: bool = False
    context_window: int = 0
    max_tokens: int = 0
    cost: _CostEntry = _CostEntry()
    headers: dict[str, str] = {}

    def __post_init__(self) -> None:
        if not self.id or self.id != self.id.strip():
            raise ValueError("a model has an id, without spaces around it")
        if min(self.context_window, self.max_tokens) < 0:
            raise ValueError("a number of tokens is 0 or more")
        if self.base_url:
            address(self.base_url)
        checked(self.headers)

    def model(self) -> Model:
        api = self.api if self.api in APIS else "openai"  # an unknown one is meant as compatible (spec piglet 6.5)
        cost = Cost(self.cost.input, self.cost.output, self.cost.cache_read, self.cost.cache_write)
        provider = self.provider or ("openai" if api.startswith("openai") else api)
        return Model(
            self.id,
            self.name or self.id,
            api,
            provider,
            self.base_url,
            self.reasoning,
            self.context_window,
            self.max_tokens,
            cost,
            self.headers,
        )


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: list[_Entry] = []


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Models in their order; a key is there once, whatever its case."""

    models: tuple[Model, ...]

    def __iter__(self) -> Iterator[Model]:
        return iter(self.models)

    def get(self, key: str) -> Model | None:
        """The model of that key, `provider/id` in any case."""
        wanted = key.lower()
        return next((model for model in self.models if model.key.lower() == wanted), None)

    def with_models(self, models: Sequence[Model]) -> Catalogue:
        """With these too: one of a known key takes the place of the other, a new one comes at the end."""
        found = {model.key.lower(): model for model in self.models}
        found.update((model.key.lower(), model) for model in models)
        return Catalogue(tuple(found.values()))

    @classmethod
    def built_in(cls) -> Catalogue:
        text = resources.files("serai.agents.models").joinpath("catalogue.toml").read_text("utf-8")
        return cls(()).with_models(read(text, who="catalogue.toml"))

    @classmethod
    def load(cls, environ: Mapping[str, str] = os.environ) -> Catalogue:
        """What is built in, and what the person has written; `BadSettings` names what is wrong with that."""
        path = os.path.join(home.config_folder(environ), FILE)
        try:
            with open(path, "rb") as file:
                text = file.read(_LONGEST + 1)
        except FileNotFoundError:
            return cls.built_in()
        except OSError as error:
            raise BadSettings(str(error), who=path) from None
        if len(text) > _LONGEST:
            raise BadSettings(f"it is longer than {_LONGEST} bytes", who=path)
        try:
            return cls.built_in().with_models(read(text.decode(), who=path))
        except UnicodeDecodeError as error:
            raise BadSettings(str(error), who=path) from None


def read(text: str, *, who: str) -> list[Model]:
    """The models of a file."""
    try:
        table = _snaked(tomllib.loads(text))
        return [entry.model() for entry in msgspec.convert(table, _File).models]
    except ValueError as error:  # no TOML, an unknown key, a value that cannot be: each says which
        raise BadSettings(str(error), who=who, hint="each of [[models]] has " + ", ".join(_Entry.__struct_fields__)) from None
    except (RecursionError, MemoryError):
        raise BadSettings("it is nested too deep", who=who) from None


def _snaked(value: Any) -> Any:
    """With our spelling of the keys that spec piglet 6.5 writes `baseUrl`; the names of headers are nobody's to change."""
    if isinstance(value, list):
        return [_snaked(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {_HUMP.sub(r"_\1", key).lower(): item if key == "headers" else _snaked(item) for key, item in value.items()}

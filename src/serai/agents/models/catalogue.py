"""The catalogue: which models there are, from a file of our own and the person's `models.toml` over it; and which one is meant.

`[[models]]` describes a model as a whole. `[[override]]` changes a few fields of one, whichever file describes it; where there is
no such model it changes nothing. `resolve` and `choose` apply the rules of spec piglet 6.5, also when nobody has named a model.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from typing import Any, NamedTuple

import msgspec

from serai import paths
from serai.agents.models.http_client import check_headers, split_address
from serai.errors import BadSettings, NoModel
from serai.model.provider import Cost, Model

APIS = ("anthropic", "openai", "openai-responses", "parrot")
FILE = "models.toml"
PARROT = "parrot/parrot"
MOST_TOKENS = 10**12
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
        _check_tokens(self.context_window, self.max_tokens)
        if self.base_url:
            split_address(self.base_url)
        check_headers(self.headers)

    def to_model(self) -> Model:
        api = self.api or "openai"  # one of nobody's: a guest may stream it, else it is meant as compatible (spec piglet 6.5)
        cost = Cost(self.cost.input, self.cost.output, self.cost.cache_read, self.cost.cache_write)
        provider = self.provider or (api if api in ("anthropic", "parrot") else "openai")
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


class Override(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of `[[override]]`: what is said otherwise of the model of that key. Empty and 0 leave things as they are."""

    key: str
    name: str = ""
    context_window: int = 0
    max_tokens: int = 0

    def __post_init__(self) -> None:
        _check_tokens(self.context_window, self.max_tokens)

    def apply(self, model: Model) -> Model:
        return msgspec.structs.replace(model, **self._get_changes())

    def merge(self, later: Override) -> Override:
        """Both in one: the later one counts where it says something."""
        return msgspec.structs.replace(self, **later._get_changes())

    def _get_changes(self) -> dict[str, Any]:
        return {field: value for field in ("name", "context_window", "max_tokens") if (value := getattr(self, field))}


def _check_tokens(*numbers: int) -> None:
    if not all(0 <= number <= MOST_TOKENS for number in numbers):
        raise ValueError(f"a number of tokens is 0 or more, and at most {MOST_TOKENS}")


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    models: list[_Entry] = []
    override: list[Override] = []


class CatalogueFile(NamedTuple):
    """What a file says."""

    models: tuple[Model, ...]
    overrides: tuple[Override, ...]


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

    def with_overrides(self, overrides: Iterable[Override]) -> Catalogue:
        """With these things changed; one of a key that is not there changes nothing."""
        found = {model.key.lower(): model for model in self.models}
        for key, override in merge_overrides(overrides).items():
            if key in found:
                found[key] = override.apply(found[key])
        return Catalogue(tuple(found.values()))

    @classmethod
    def load_built_in(cls) -> Catalogue:
        text = resources.files("serai.agents.models").joinpath("catalogue.toml").read_text("utf-8")
        return cls(()).with_models(parse_catalogue(text, who="catalogue.toml").models)

    @classmethod
    def load(cls, environ: Mapping[str, str] = os.environ) -> Catalogue:
        """What is built in, and what the person has written; `BadSettings` names what is wrong with that."""
        path = os.path.join(paths.config_folder(environ), FILE)
        try:
            with open(path, "rb") as file:
                content = file.read(_LONGEST + 1)
        except FileNotFoundError:
            return cls.load_built_in()
        except OSError as error:
            raise BadSettings(str(error), who=path) from None
        written = parse_catalogue(content, who=path)
        return cls.load_built_in().with_models(written.models).with_overrides(written.overrides)


def merge_overrides(overrides: Iterable[Override]) -> dict[str, Override]:
    """One for each model, by its key in small letters."""
    found: dict[str, Override] = {}
    for override in overrides:
        key = override.key.lower()
        found[key] = found[key].merge(override) if key in found else override
    return found


def parse_catalogue(content: str | bytes, *, who: str) -> CatalogueFile:
    """What a file says, or `BadSettings` with what is wrong with it."""
    try:
        content = content.encode() if isinstance(content, str) else content
        if len(content) > _LONGEST:
            raise BadSettings(f"it is longer than {_LONGEST} bytes", who=who)
        file = msgspec.convert(_to_snake_case(tomllib.loads(content.decode())), _File)
        return CatalogueFile(tuple(entry.to_model() for entry in file.models), tuple(file.override))
    except ValueError as error:  # no UTF-8, no TOML, an unknown key, a value that cannot be: each says which
        fields = ", ".join(_Entry.__struct_fields__)
        hint = f"each of [[models]] has {fields}; each of [[override]] has {', '.join(Override.__struct_fields__)}"
        raise BadSettings(str(error), who=who, hint=hint) from None
    except (RecursionError, MemoryError):
        raise BadSettings("it is nested too deep", who=who) from None


def _to_snake_case(value: Any) -> Any:
    """With our spelling of the keys that spec piglet 6.5 writes `baseUrl`; the names of headers are nobody's to change."""
    if isinstance(value, list):
        return [_to_snake_case(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {_HUMP.sub(r"_\1", key).lower(): item if key == "headers" else _to_snake_case(item) for key, item in value.items()}


# Where the key of a provider is looked for, in the order in which a model is chosen by them.
KEYS: dict[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "google": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
}
# The setting that a word stands for, and the variables that are stronger. Piglet's are known too.
_WORDS = {
    "default": ("default_model", ("SERAI_DEFAULT_MODEL", "PIGLET_DEFAULT_MODEL")),
    "small": ("small_model", ("SERAI_SMALL_MODEL", "PIGLET_SMALL_MODEL")),
}


class ModelChoice(msgspec.Struct, frozen=True):
    """A model, and why it is this one; `why` is empty when it was asked for."""

    model: Model
    why: str = ""


def list_key_variables(provider: str) -> tuple[str, ...]:
    """The variables that may hold a provider's key: `ACME_API_KEY` for one that we do not know."""
    made = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in provider.upper())
    return KEYS.get(provider.lower(), (f"{made}_API_KEY",))


def resolve(query: str, catalogue: Catalogue, environ: Mapping[str, str], settings: Mapping[str, Any] | None = None) -> Model:
    """The model that a query means. `""` and `default` mean the configured one, `small` the small one, else the same."""
    wanted = query.strip()
    word = wanted.lower() or "default"
    if word in _WORDS:
        wanted = _find_configured(word, environ, settings or {})
        if not wanted:
            raise NoModel("resolve provider: no model configured", hint="set SERAI_DEFAULT_MODEL, or name a model")
    return _find_model(wanted, catalogue)


def choose(query: str, catalogue: Catalogue, environ: Mapping[str, str], settings: Mapping[str, Any] | None = None) -> ModelChoice:
    """The same, and a choice of our own when nothing is asked for or configured: by the keys that are there, else parrot."""
    word = query.strip().lower() or "default"
    if word not in _WORDS or _find_configured(word, environ, settings or {}):
        return ModelChoice(resolve(query, catalogue, environ, settings))
    for provider, variables in KEYS.items():
        model = next((model for model in catalogue if model.provider == provider), None)
        there = next((name for name in variables if environ.get(name, "").strip()), None)
        if model is not None and there is not None:
            return ModelChoice(model, f"no model was chosen; {model.key} is, because {there} is set")
    every = ", ".join(name for variables in KEYS.values() for name in variables)
    why = f"no key and no model were found, so the offline parrot answers; set one of {every}, or choose a model"
    parrot = catalogue.get(PARROT)
    if parrot is None:
        raise NoModel("resolve provider: no model configured")
    return ModelChoice(parrot, why)


def _find_configured(word: str, environ: Mapping[str, str], settings: Mapping[str, Any]) -> str:
    """What the variables and settings say for a word; `small` falls back to the default."""
    setting, variables = _WORDS[word]
    for value in (*(environ.get(name, "") for name in variables), settings.get(setting, "")):
        if isinstance(value, str) and value.strip():
            return value.strip()
    return _find_configured("default", environ, settings) if word == "small" else ""


def _find_model(query: str, catalogue: Catalogue) -> Model:
    """Exact key, exact id, shortest id with that prefix, shortest id or name with it inside; ties go by key. Case is nothing."""
    wanted = query.lower()
    by_id = [(model.id.lower(), model) for model in catalogue]
    by_name = [(model.name.lower(), model) for model in catalogue]
    steps: tuple[Iterable[tuple[str, Model]], ...] = (
        ((model.key.lower(), model) for model in catalogue if model.key.lower() == wanted),
        ((id, model) for id, model in by_id if id == wanted),
        ((id, model) for id, model in by_id if id.startswith(wanted)),
        ((text, model) for text, model in by_id + by_name if wanted in text),
    )
    for step in steps:
        if found := min(step, key=lambda one: (len(one[0]), one[1].key), default=None):
            return found[1]
    raise NoModel(f"resolve provider: unknown model: {query}", hint=_build_hint(wanted, catalogue))


def _build_hint(wanted: str, catalogue: Catalogue) -> str:
    names = {text.lower(): model.key for model in catalogue for text in (model.key, model.id, model.name)}
    near = dict.fromkeys(names[name] for name in get_close_matches(wanted[:100], names, n=3, cutoff=0.5))
    if near:
        return f"did you mean {' or '.join(near)}? models.toml can describe others"
    return f"there are: {', '.join(model.key for model in catalogue)}; models.toml can describe others"

"""Which model is meant: the rules of spec piglet 6.5, and what to do when nobody has said anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import msgspec

from serai.agents.models.catalogue import PARROT, Catalogue
from serai.errors import NoModel
from serai.model.provider import Model

__all__ = ["KEYS", "Chosen", "choose", "resolve", "variables_of"]

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


class Chosen(msgspec.Struct, frozen=True):
    """A model, and why it is this one; `why` is empty when it was asked for."""

    model: Model
    why: str = ""


def variables_of(provider: str) -> tuple[str, ...]:
    """The variables that may hold a provider's key: `ACME_API_KEY` for one that we do not know."""
    made = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in provider.upper())
    return KEYS.get(provider.lower(), (f"{made}_API_KEY",))


def resolve(query: str, catalogue: Catalogue, environ: Mapping[str, str], settings: Mapping[str, Any] | None = None) -> Model:
    """The model that a query means. `""` and `default` mean the configured one, `small` the small one, else the same."""
    wanted = query.strip()
    word = wanted.lower() or "default"
    if word in _WORDS:
        wanted = _configured(word, environ, settings or {})
        if not wanted:
            raise NoModel("resolve provider: no model configured", hint="set SERAI_DEFAULT_MODEL, or name a model")
    return _found(wanted, catalogue)


def choose(query: str, catalogue: Catalogue, environ: Mapping[str, str], settings: Mapping[str, Any] | None = None) -> Chosen:
    """The same, and a choice of our own when nothing is asked for or configured: by the keys that are there, else parrot."""
    word = query.strip().lower() or "default"
    if word not in _WORDS or _configured(word, environ, settings or {}):
        return Chosen(resolve(query, catalogue, environ, settings))
    for provider, variables in KEYS.items():
        model = next((model for model in catalogue if model.provider == provider), None)
        there = next((name for name in variables if environ.get(name, "").strip()), None)
        if model is not None and there is not None:
            return Chosen(model, f"no model was chosen; {model.key} is, because {there} is set")
    every = ", ".join(name for variables in KEYS.values() for name in variables)
    why = f"no key and no model were found, so the offline parrot answers; set one of {every}, or choose a model"
    parrot = catalogue.get(PARROT)
    if parrot is None:
        raise NoModel("resolve provider: no model configured")
    return Chosen(parrot, why)


def _configured(word: str, environ: Mapping[str, str], settings: Mapping[str, Any]) -> str:
    """What the variables and settings say for a word; `small` falls back to the default."""
    setting, variables = _WORDS[word]
    for value in (*(environ.get(name, "") for name in variables), settings.get(setting, "")):
        if isinstance(value, str) and value.strip():
            return value.strip()
    return _configured("default", environ, settings) if word == "small" else ""


def _found(query: str, catalogue: Catalogue) -> Model:
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
    raise NoModel(f"resolve provider: unknown model: {query}", hint=_hint(wanted, catalogue))


def _hint(wanted: str, catalogue: Catalogue) -> str:
    names = {text.lower(): model.key for model in catalogue for text in (model.key, model.id, model.name)}
    near = dict.fromkeys(names[name] for name in get_close_matches(wanted[:100], names, n=3, cutoff=0.5))
    if near:
        return f"did you mean {' or '.join(near)}? models.toml can describe others"
    return f"there are: {', '.join(model.key for model in catalogue)}; models.toml can describe others"

"""Which model would run when none is named, where that choice comes from, and whether its key is set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from serai.errors import NoModel, SeraiError

if TYPE_CHECKING:
    from serai.agents.models.catalogue import Catalogue
    from serai.app.config import Config, ConfigValue
    from serai.model.provider import Model

# -- what would be used -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model that a run takes when none is named, and why it is that one; None: there is none, and `why` says what is wrong."""

    model: Model | None
    why: str
    hint: str = ""
    chosen: bool = True  # by the person, and not for want of anything else

    @property
    def key(self) -> str:
        return self.model.key if self.model is not None else ""


def default_model(catalogue: Catalogue, config: Config, environ: Mapping[str, str]) -> ModelChoice:
    """What `serai run` would take. What was said is never quoted: it may be a key in the wrong place."""
    from serai.agents.models.catalogue import choose

    said = next(value for value in config.values if value.key == "default_model")
    try:
        found = choose("", catalogue, environ, config.settings)
    except NoModel as error:
        return ModelChoice(None, f"{said.file or said.key} names a model that nobody knows", error.hint)
    if found.why:
        return ModelChoice(found.model, found.why, chosen=False)
    return ModelChoice(found.model, value_origin(said))


def value_origin(said: ConfigValue) -> str:
    """Where a value comes from, without the value."""
    return f"{said.file} is set" if said.source == "environment" else f"{said.key} of {said.file} says so"


def key_status(model: Model, environ: Mapping[str, str]) -> tuple[bool, str]:
    """Whether there is what a provider wants to see, and in words which variable that is. Never a value."""
    from serai.agents.models.catalogue import variables_of
    from serai.agents.models.providers import provider_access

    if model.api == "parrot":
        return True, "none needed"
    missing = f"set {' or '.join(variables_of(model.provider))}"
    try:
        way = provider_access(model, environ)
    except SeraiError as error:  # its address, or its key, cannot be used
        return False, error.hint or missing
    if way.key:
        return True, f"{way.variable} is set"
    return way.ready, "none needed" if way.local else "in models.toml" if way.ready else missing

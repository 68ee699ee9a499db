"""Services about models: which there are, another one, and what a person's `models.toml` says of them (spec piglet 6.5, 7.1)."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

import msgspec

from serai import paths
from serai.agents.models.catalogue import FILE, MOST_TOKENS, Catalogue, Override
from serai.app.services import writing
from serai.app.services.group import Data, NoArguments, Operation
from serai.errors import BadRequest, NoModel
from serai.model.actions import Action, SetStatus
from serai.model.provider import Model

__all__ = ["Models"]


class Switch(msgspec.Struct, frozen=True):
    model: str
    persist: bool = False


Tokens = Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)]


class Change(msgspec.Struct, frozen=True):
    """Empty and 0 leave things as they are."""

    name: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    context_window: Tokens | None = None
    max_tokens: Tokens | None = None


class Overrides(msgspec.Struct, frozen=True):
    overrides: dict[str, Change] | None = None


class Models:
    """`current` gives the key of the agent's model, `switch` takes another; `show` tells the person which it is.

    `catalogue` are all models as they are known now, `probe` asks the servers of this machine for theirs.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        current: Callable[[], str],
        switch: Callable[[str], Awaitable[str]],
        show: Callable[[Action], None],
        *,
        catalogue: Callable[[], Catalogue] | None = None,
        probe: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._environ = environ
        self._current = current
        self._switch = switch
        self._show = show
        self._catalogue = catalogue or (lambda: Catalogue.load(environ))
        self._probe = probe
        self.operations: Mapping[str, Operation[Any]] = {
            "list": Operation(NoArguments, self.list),
            "switch": Operation(Switch, self.switch),
            "sync": Operation(NoArguments, self.sync),
            "write": Operation(Overrides, self.write),
        }

    async def list(self, _guest: str, _arguments: NoArguments) -> Data:
        """By provider and id; the one in use is marked."""
        current = self._current()
        found = sorted(self._catalogue(), key=lambda model: (model.provider, model.id))
        return {"models": [_model_data(model) | {"current": model.key == current} for model in found]}

    async def switch(self, guest: str, wanted: Switch) -> Data:
        """Another model from the next step on; `persist`: in later runs too."""
        if not wanted.model:
            raise BadRequest("switch: the model is required", who=guest, hint="name it as PROVIDER/ID")
        model = self._known(wanted.model)
        await self._switch(model.key)
        self._show(SetStatus("model", _display(model)))
        if wanted.persist:
            writing.set_text(os.path.join(paths.config_folder(self._environ), "config.toml"), "default_model", model.key)
        return {}

    async def sync(self, _guest: str, _arguments: NoArguments) -> Data:
        """How many there are now: `models.toml` is read whenever a model is looked for, servers of this machine are asked here."""
        if self._probe is not None:
            await self._probe()
        return {"updated": len(self._catalogue().models)}

    async def write(self, _guest: str, wanted: Overrides) -> Data:
        """Change what is known of models. All of them are known, or nothing is written."""
        changes = [
            Override(self._known(key).key, change.name or "", change.context_window or 0, change.max_tokens or 0)
            for key, change in (wanted.overrides or {}).items()
        ]
        return {"models_written": writing.write_overrides(os.path.join(paths.config_folder(self._environ), FILE), changes)}

    def _known(self, key: str) -> Model:
        model = self._catalogue().get(key)
        if model is None:
            raise NoModel(f"unknown model: {key}", hint="name it as PROVIDER/ID, as `serai model list` shows it")
        return model


def _display(model: Model) -> str:
    return f"{model.provider}/{model.name}"


def _model_data(model: Model) -> Data:
    """Neither its headers nor its address: both may hold keys."""
    data: Data = {"id": model.id, "api": model.api, "display_name": _display(model), "provider": model.provider}
    others = {
        "context_window": model.context_window,
        "max_tokens": model.max_tokens,
        "reasoning": model.reasoning,
        "cost_input": model.cost.input,
        "cost_output": model.cost.output,
    }
    return data | {key: value for key, value in others.items() if value}

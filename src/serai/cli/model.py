"""`serai model`: the models of the catalogue, and which one would be used."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from serai.app.doctor.checks import DefaultModel, check_key, choose_default_model
from serai.cli import console
from serai.cli.completion import complete_models
from serai.cli.options import JSON, PATH
from serai.errors import NoModel

if TYPE_CHECKING:
    from serai.agents.models.catalogue import Catalogue
    from serai.model.provider import Cost, Model

CWD = click.option("--cwd", type=PATH, default=".", help="The project; this folder by default.")
_WORDS = ("default", "small")  # queries that are settings


@click.group()
def model() -> None:
    """List the models there are, what they need, and which one would be used."""


# -- list -------------------------------------------------------------------------------------------------------------------------


@model.command("list")
@click.argument("query", default="", shell_complete=complete_models)
@CWD
@JSON
def list_(query: str, *, cwd: str, as_json: bool) -> None:
    """The models there are; the one that would be used has a star.

    QUERY narrows the list to what it may mean: a part of a key or a name, `default` or `small`. Costs are US dollars for a million
    tokens.
    """
    here = ModelList.load(cwd)
    found = here.find(query.strip())
    if as_json:
        for one in found:
            click.echo(console.dump_json(here.dump_model(one)))
        return
    console.print_table([("", "key", "name", "context", "cost", "its key"), *map(here.build_row, found)])
    console.out(f"* {here.choice.key} would be used: {here.choice.why}" if here.choice.model else here.choice.why)
    if here.choice.hint:
        console.err(here.choice.hint)
    if query.strip():
        with suppress(NoModel):  # a part of keys alone is no query of a run
            console.out(f"--model {query.strip()} means {here.resolve(query).key}")


@model.command()
@click.argument("key", shell_complete=complete_models)
@CWD
@JSON
def show(key: str, *, cwd: str, as_json: bool) -> None:
    """All that is known of a model. KEY is what `serai run --model` takes: a key, or a part of one that says enough."""
    here = ModelList.load(cwd)
    found = here.resolve(key)
    if as_json:
        click.echo(console.dump_json(here.dump_model(found, whole=True)))
    else:
        for line in here.render_model(found):
            console.out(line)


@dataclass(frozen=True, slots=True)
class ModelList:
    """The catalogue as it is seen from a folder."""

    catalogue: Catalogue
    settings: Mapping[str, Any]
    choice: DefaultModel

    @classmethod
    def load(cls, cwd: str) -> ModelList:
        from serai.agents.models.catalogue import Catalogue
        from serai.app.config import Config

        config, catalogue = Config.load(cwd), Catalogue.load()
        return cls(catalogue, config.settings, choose_default_model(catalogue, config, os.environ))

    def resolve(self, query: str) -> Model:
        from serai.agents.models.catalogue import resolve

        return resolve(query, self.catalogue, os.environ, self.settings)

    def find(self, query: str) -> list[Model]:
        """What a query may mean; the error about one that means nothing has the names that are near."""
        wanted = query.lower()
        if wanted not in _WORDS and (
            found := [one for one in self.catalogue if wanted in one.key.lower() or wanted in one.name.lower()]
        ):
            return found
        return [self.resolve(query)]

    def build_row(self, one: Model) -> tuple[str, ...]:
        star = "*" if one.key == self.choice.key else ""
        context = f"{one.context_window:,}" if one.context_window else "-"
        return star, one.key, one.name, context, _format_cost(one.cost) or "-", check_key(one, os.environ)[1]

    def dump_model(self, one: Model, *, whole: bool = False) -> dict[str, Any]:
        """Addresses without the password that may be in one; of headers the names alone."""
        import msgspec

        from serai.agents.models.catalogue import list_key_variables
        from serai.agents.models.http_client import split_address

        used = one.key == self.choice.key
        ready, key = check_key(one, os.environ)
        form: dict[str, Any] = {
            "key": one.key,
            "name": one.name,
            "provider": one.provider,
            "api": one.api,
            "context_window": one.context_window,
            "max_tokens": one.max_tokens,
            "reasoning": one.reasoning,
            "cost": msgspec.to_builtins(one.cost),
            "variables": [] if one.api == "parrot" else list(list_key_variables(one.provider)),
            "ready": ready,
            "its_key": key,
            "used": used,
        }
        if whole:
            form |= {"base_url": split_address(one.base_url)[0] if one.base_url else "", "headers": sorted(one.headers)}
        return form | ({"why": self.choice.why} if used else {})

    def render_model(self, one: Model) -> Iterator[str]:
        from serai.agents.models.http_client import split_address

        yield f"{one.key}: {one.name}"
        yield f"  API {one.api}" + (f", at {split_address(one.base_url)[0]}" if one.base_url else "")
        if one.headers:
            yield f"  with the headers {', '.join(sorted(one.headers))}"
        if one.context_window:
            yield f"  context: {one.context_window:,} tokens" + (f", {one.max_tokens:,} of an answer" if one.max_tokens else "")
        if cost := _format_cost(one.cost):
            cache = f"; from the cache ${one.cost.cache_read:g}, into it ${one.cost.cache_write:g}" if one.cost.cache_read else ""
            yield f"  cost: {cost}{cache}, for a million tokens"
        yield f"  its key: {check_key(one, os.environ)[1]}"
        if one.key == self.choice.key:
            yield f"  it would be used: {self.choice.why}"


def _format_cost(cost: Cost) -> str:
    """In and out; nothing where it is not known."""
    return f"${cost.input:g} in, ${cost.output:g} out" if cost.input or cost.output else ""

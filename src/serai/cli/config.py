"""`serai config`: what is set here, and where each value comes from."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from serai.cli import approval_text as words
from serai.cli import console
from serai.cli.options import JSON, NonEmptyPath
from serai.errors import BadSettings

if TYPE_CHECKING:
    from serai.app.config import Config, ConfigValue

_LIST = "`serai config show --all` lists them"


@click.group()
def config() -> None:
    """Show what is set here and where each value comes from."""


def add_place_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say whose settings: the project's folder is the command's, the person's is for all of this run."""

    @click.option(
        "--cwd", type=NonEmptyPath(exists=True, file_okay=False), default=".", help="The project; this folder by default."
    )
    @click.option("--home", type=NonEmptyPath(file_okay=False), help="Where Serai keeps its things, instead of SERAI_HOME.")
    @wraps(command)
    def wrapped(*args: Any, cwd: str, home: str | None, **others: Any) -> None:
        if home := home or os.environ.get("SERAI_HOME"):
            os.environ["SERAI_HOME"] = os.path.abspath(home)
        command(*args, cwd=cwd, **others)

    return wrapped


@config.command()
@click.argument("key", required=False)
@add_place_options
@click.option("--all", "everything", is_flag=True, help="Also the limits that are as Serai ships them, with their reasons.")
@JSON
def show(key: str | None, *, cwd: str, everything: bool, as_json: bool) -> None:
    """Each value in force and where it comes from.

    KEY is a value, such as agent or limits.steps, or a table, such as limits. What a project says in vain is told on stderr.
    """
    from serai.app.config import Config

    found = Config.load(cwd)
    usual = [value for value in found.values if everything or not _is_shipped_limit(value)]
    chosen = usual if key is None else _find_values(key, found)
    if as_json:
        values = [value._asdict() | {"value": json.loads(_as_json(value))} for value in chosen]
        click.echo(console.dump_json({"values": values, "notes": console.mask_strings(found.notes)}))
    elif key is not None and len(chosen) == 1 and _strip_quotes(chosen[0].key) == _strip_quotes(key):
        click.echo(_as_json(chosen[0]))
        console.err(_describe_origin(chosen[0]))
    else:
        reasons = everything or key is not None
        rows = [(value.key, _format_value(value), _describe_origin(value, reasons=reasons)) for value in chosen]
        console.print_table([[words.make_visible(cell) for cell in row] for row in rows])
    for note in found.notes:
        console.err(words.make_visible(note))


@config.command()
@add_place_options
@JSON
def path(*, cwd: str, as_json: bool) -> None:
    """The files that settings are read from, whether they are there or not."""
    from serai import paths

    mine = os.path.join(paths.config_folder(), paths.CONFIG)
    theirs = os.path.join(os.path.abspath(cwd), paths.PROJECT_CONFIG)
    for source, file in (("person", mine), ("project", theirs)):
        if as_json:
            click.echo(console.dump_json({"source": source, "file": file, "exists": os.path.lexists(file)}))
        else:
            console.out(file)


def _is_shipped_limit(value: ConfigValue) -> bool:
    return value.source == "default" and value.key.startswith("limits.")


def _find_values(key: str, config: Config) -> list[ConfigValue]:
    """The value of that key, or those of that table; quotes may be left out."""
    wanted = _strip_quotes(key).removesuffix(".")
    names = [_strip_quotes(value.key) for value in config.values]
    exact = [value for value, name in zip(config.values, names, strict=True) if name == wanted]
    found = exact or [value for value, name in zip(config.values, names, strict=True) if name.startswith(f"{wanted}.")]
    if not found:
        known = dict.fromkeys([*(name.partition(".")[0] for name in names), *names])  # tables too
        raise BadSettings(f"there is no setting {key!r}", hint=console.suggest(wanted, known) or _LIST)
    return found


def _strip_quotes(key: str) -> str:
    return key.replace('"', "")


def _format_value(value: ConfigValue) -> str:
    unset = value.source == "default" and value.value in (None, "", {})
    return "-" if unset else _as_json(value)


def _as_json(value: ConfigValue) -> str:
    """What looks like a secret is masked: the name beside a value may be what says so."""
    from serai.record import secret_patterns

    name = console.dump_json(value.key.rpartition(".")[2])
    return secret_patterns.mask_text(f"{name}:{console.dump_json(value.value)}")[len(name) + 1 :]


def _describe_origin(value: ConfigValue, *, reasons: bool = True) -> str:
    source = f"{value.source}: {value.file}" if value.file else value.source
    told = value.note and (reasons or not value.key.startswith("limits."))
    return f"{source} ({value.note})" if told else source

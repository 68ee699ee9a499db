"""`serai completion`: the script for a shell, and what the values of options are completed with.

The functions `complete_…` are for `shell_complete=` of options and arguments. A person waits for each with a key pressed: they are
quick, and where something is wrong they offer nothing and say nothing.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import wraps

import click
from click.shell_completion import CompletionItem, get_completion_class

from serai.plain_text import escape_line

Items = list[CompletionItem[str]]
Completer = Callable[[click.Context, click.Parameter, str], Items]

_SHELLS = {
    "bash": 'bash 4.4 or later: put `eval "$(serai completion bash)"` into ~/.bashrc',
    "zsh": 'put `eval "$(serai completion zsh)"` into ~/.zshrc, after `compinit`',
    "fish": "serai completion fish > ~/.config/fish/completions/serai.fish",
}
# What a shell puts on the command line as it is. A project names its guests, so nothing else is ever offered.
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:@+-]*")
_SESSIONS = 30  # the newest: nobody reads more
_HELP = 60  # characters beside a value


@click.command()
@click.argument("shell", type=click.Choice(list(_SHELLS)))
def completion(shell: str) -> None:
    """Print the script that lets a shell complete commands, options and values."""
    from serai.cli.command_table import serai

    made = get_completion_class(shell)
    assert made is not None
    script = made(serai, {}, "serai", "_SERAI_COMPLETE")
    click.echo(script.source_template % script.source_vars(), nl=False)
    if sys.stdout.isatty():  # else somebody has put it where it belongs
        click.echo(f"to install it: {_SHELLS[shell]}", err=True)


# -- values -----------------------------------------------------------------------------------------------------------------------


def _suppress_errors(offer: Callable[[click.Context, str], Iterable[CompletionItem[str]]]) -> Completer:
    """Whatever goes wrong, nothing is said: the person is in the middle of a line."""

    @wraps(offer)
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:  # noqa: ARG001  (click's form)
        try:
            return [item for item in offer(ctx, incomplete) if item.value.startswith(incomplete) and _PLAIN.fullmatch(item.value)]
        except Exception:
            return []

    return complete


def _build_item(value: str, about: str = "") -> CompletionItem[str]:
    line = escape_line(" ".join(about.split())).replace(",", ";")  # fish takes what is behind a comma for something else
    return CompletionItem(value, help=line if len(line) <= _HELP else line[: _HELP - 1] + "…")


@_suppress_errors
def complete_models(ctx: click.Context, incomplete: str) -> Iterator[CompletionItem[str]]:
    """The keys of the catalogue; ids, when no key begins so."""
    from serai.agents.models.catalogue import Catalogue

    models = list(Catalogue.load(_environ(ctx)))
    by_key = any(model.key.startswith(incomplete) for model in models)
    return (_build_item(model.key if by_key else model.id, model.name) for model in models)


@_suppress_errors
def complete_agents(ctx: click.Context, incomplete: str) -> Iterator[CompletionItem[str]]:  # noqa: ARG001
    """The agents that there are."""
    from importlib.metadata import entry_points

    from serai.agents.factory import AGENTS

    return map(_build_item, sorted({*AGENTS, *(point.name for point in entry_points(group="serai.agents"))}))


@_suppress_errors
def complete_sessions(ctx: click.Context, incomplete: str) -> Iterator[CompletionItem[str]]:
    """The sessions of this folder, the newest first."""
    from serai.store.session_folder import SessionFolder

    cwd = _get_cwd(ctx)
    places = {cwd, os.path.realpath(cwd)}
    found = [one for one in SessionFolder.usual(_environ(ctx)).list() if one.meta.cwd in places and one.id.startswith(incomplete)]
    found.sort(key=lambda one: -one.modified)
    return (_build_item(one.id, one.meta.title) for one in found[:_SESSIONS])


@_suppress_errors
def complete_guests(ctx: click.Context, incomplete: str) -> Iterator[CompletionItem[str]]:  # noqa: ARG001
    """The names of the guests that are found here; none is started."""
    from serai.host.discovery import find_guests

    given = ctx.params.get("guests") or ()
    found = find_guests(cwd=_get_cwd(ctx), guests=given, installed=not ctx.params.get("no_installed"), environ=_environ(ctx))
    return (_build_item(name, about) for name, about in {guest.name: guest.description for guest in found.iter_all()}.items())


def _get_cwd(ctx: click.Context) -> str:
    """The folder that the line so far names, else the shell's."""
    return os.path.abspath(ctx.params.get("cwd") or ".")


def _environ(ctx: click.Context) -> dict[str, str]:
    """Ours, with the home that the line so far names."""
    said = ctx.params.get("home")
    return {**os.environ, "SERAI_HOME": os.path.abspath(said)} if said else {**os.environ}

"""The `serai` command and its sub-commands; each imports what it does when it is called, so that `--help` is quick."""

from __future__ import annotations

import click

from serai import __version__

__all__ = ["serai"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="serai %(version)s")
def serai() -> None:
    """Takes in any extension, drives any coding agent, under one policy, with every wire on record."""


@serai.command()
@click.option("--color/--no-color", default=None, help="Colours; by default when the output is a terminal and NO_COLOR is not set.")
def demo(*, color: bool | None) -> None:
    """Show what is built so far, with real child processes: a good peer, bad ones, and what the errors say."""
    from serai.cli.demo import run

    run(color=color)

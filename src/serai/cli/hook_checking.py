"""`serai hook check`: whether a hook keeps to its protocol, shown with the requests that prove it and what to do."""

from __future__ import annotations

import click

from serai.cli import checking, telling
from serai.cli.opening import JSON, NamedPath, Status, limits_of_the_person

__all__ = ["check"]


@click.command()
@click.argument("path", type=NamedPath())
@click.option("--rule", "only", multiple=True, metavar="NAME", help="Only this rule; repeatable.")
@click.option("--strict", is_flag=True, help="Warnings are failures, too.")
@JSON
def check(path: str, *, only: tuple[str, ...], strict: bool, as_json: bool) -> None:
    """Check whether a hook keeps to its protocol, and say what to do.

    PATH is the program; without a slash it is looked up in the PATH, as boxes do it. It is really run, for a dozen
    boxes that do not exist, and gets back every state that it answers with: what it makes it is also told to take away.
    """
    from serai.testing.conformance import checker, hook

    telling.tell("the hook is really run, for a dozen boxes; every state that it answers with is given back with box.destroy")
    try:
        report = hook.check(path, only=only, environ=hook.environment(), limits=limits_of_the_person(), tell=telling.tell)
    except checker.UnknownRule as error:
        raise click.UsageError(telling.safe(str(error))) from None
    if as_json:
        checking.show_json(report)
    else:
        checking.show(report)
    if not report.ok or (strict and report.of("warned")):
        raise click.exceptions.Exit(Status.FAILED)

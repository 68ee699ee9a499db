"""`serai guest check`: whether a guest keeps to its protocol, shown with the frames that prove it and what to do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from serai.cli import plugin_paths, telling
from serai.cli.opening import JSON, NamedPath, Status
from serai.errors import NoGuest

if TYPE_CHECKING:
    from serai.testing.conformance.findings import Finding, Report

__all__ = ["check", "show", "show_json"]


@click.command()
@click.argument("path", type=NamedPath(exists=True))
@click.option(
    "--call", "calls", multiple=True, metavar="NAME=JSON", help="A harmless tool call, to be made dozens of times; repeatable."
)
@click.option(
    "--command",
    "commands",
    multiple=True,
    metavar="LINE",
    help="A harmless command, to be run dozens of times: 'pick Bern'; repeatable.",
)
@click.option("--rule", "only", multiple=True, metavar="NAME", help="Only this rule; repeatable.")
@click.option("--env", "grants", multiple=True, metavar="NAME", help="A variable it gets although it looks like a credential.")
@click.option("--strict", is_flag=True, help="Warnings are failures, too.")
@JSON
def check(
    path: str,
    *,
    calls: tuple[str, ...],
    commands: tuple[str, ...],
    only: tuple[str, ...],
    grants: tuple[str, ...],
    strict: bool,
    as_json: bool,
) -> None:
    """Check whether an extension keeps to its protocol, and say what to do.

    PATH is its folder, its manifest, or a Python program alone; or a plugin's folder or file, which is only looked at and never
    executed. An extension is started some twenty times and treated in each way in which
    a host may treat it. A tool is called with arguments that do not fit it, and never with some that do unless --call gives
    them: --call 'weather={"city":"Bern"}'. What --call and --command give is done dozens of times, many at once and some cut
    short: give only what does no harm.
    """
    if plugin_paths.is_plugin(path):
        if calls or commands or only or grants:
            raise click.UsageError("a plugin is only looked at: --call, --command, --rule and --env have no meaning for it")
        _check_plugin(path, strict=strict, as_json=as_json)
        return
    from serai.testing.conformance import checker

    given = [_call(text) for text in calls]
    for line in commands:
        if not _is_text(line):
            raise click.UsageError(f"--command {telling.safe(line)}: it is no text in UTF-8")
    try:
        report = checker.check(path, calls=given, commands=commands, only=only, environ=checker.environment(grants=grants))
    except (NoGuest, checker.UnknownRule) as error:
        raise click.UsageError(telling.safe(str(error))) from None
    if as_json:
        show_json(report)
    else:
        show(report)
        if not (calls or commands):
            telling.tell("none of its tools and commands was run for real; --call and --command name those that may be")
    if not report.ok or (strict and report.of("warned")):
        raise click.exceptions.Exit(Status.FAILED)


def _check_plugin(path: str, *, strict: bool, as_json: bool) -> None:
    """Its report is printed whatever it says (spec yoi 19)."""
    from serai.cli import plugin_reports

    report = plugin_reports.check(path)
    if as_json:
        click.echo(telling.as_json(report))
    else:
        plugin_reports.show_check(report)
    if report["status"] == "rejected" or (strict and report["status"] != "active"):
        raise click.exceptions.Exit(Status.FAILED)


def _call(text: str) -> tuple[str, Any]:
    name, equals, arguments = text.partition("=")
    try:
        if name and equals and _is_text(name):
            value = json.loads(arguments)
            json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # no NaN, no infinity, no half characters
            return name, value
        reason = "it has to be NAME=JSON"
    except (ValueError, RecursionError) as error:
        reason = f"not JSON: {error}"
    raise click.UsageError(f"--call {telling.safe(text)}: {telling.safe(reason)}")


def _is_text(given: str) -> bool:
    """Whether it can be said in a frame: an argument may hold any bytes."""
    try:
        given.encode()
    except UnicodeEncodeError:
        return False
    return True


def show(report: Report) -> None:
    """A line for each finding, and below it what shows what is wrong."""
    width = max(len(finding.rule) for finding in report.findings)
    for finding in report.findings:
        _say(f"{finding.status:7}  {finding.rule:{width}}  {finding.why}")
        if finding.status in ("failed", "warned"):
            for line in finding.details():
                _say(f"         {line}")
    counts = ", ".join(f"{count} {status}" for status, count in report.summary().items())
    _say(f"{report.dialect}:{report.guest}: {counts}")


def _say(text: str) -> None:
    """It may quote a guest, so what looks like a secret is masked."""
    telling.say(telling.masked(text))


def show_json(report: Report) -> None:
    for finding in report.findings:
        click.echo(telling.as_json(telling.masked(_form(finding))))
    click.echo(
        telling.as_json({"summary": {"guest": report.guest, "dialect": report.dialect, "ok": report.ok, **report.summary()}})
    )


def _form(finding: Finding) -> dict[str, Any]:
    form: dict[str, Any] = {"rule": finding.rule, "status": finding.status, "why": finding.why}
    for key in ("frames", "stderr", "hint", "requirements"):
        if value := getattr(finding, key):
            form[key] = value
    return form

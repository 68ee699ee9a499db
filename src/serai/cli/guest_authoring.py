"""`serai guest new` and `serai guest bundle`: a new extension, and one file of it. `serai guest check`: whether a guest conforms.

A check shows the frames that prove each finding, and what to do.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from serai.authoring import component as authoring_component
from serai.authoring import scaffold
from serai.authoring.build import PROGRAMS, BuildPlan, build_component, plan_build, write_component
from serai.cli import console, options
from serai.cli.options import JSON, ExitCode, NonEmptyPath, run_async
from serai.errors import BadSettings, NoGuest
from serai.limits import KIB
from serai.plain_text import escape_text

if TYPE_CHECKING:
    from serai.testing.conformance.findings import Finding, Report


def _check_name(_context: click.Context, _parameter: click.Parameter, name: str) -> str:
    if not scaffold.is_name(name):
        rule = "a name is made of letters, digits, - and _, begins with no -, and is 64 long at most"
        raise click.BadParameter(f"{escape_text(name)!r} cannot be the name of an extension: {rule}")
    return name


@click.command()
@click.argument("name", callback=_check_name)
@click.option(
    "--dialect", type=click.Choice(list(scaffold.DIALECTS)), default="zot", show_default=True, help="The protocol it speaks."
)
@click.option(
    "--lang",
    "language",
    type=click.Choice(list(scaffold.LANGUAGES)),
    default="python",
    show_default=True,
    help="; ".join(f"with {dialect} {', '.join(languages)}" for dialect, languages in scaffold.DIALECTS.items()) + ".",
)
@click.option("--guard", is_flag=True, help="With an interceptor that refuses calls, and that must hold.")
@click.option("--service", is_flag=True, help="Of a plugin: with a service that hears what comes in.")
@click.option("--template", default="", help=f"A plugin by the name of its beginning: {', '.join(scaffold.PLUGINS)}.")
@click.option("--into", type=NonEmptyPath(exists=True, file_okay=False, path_type=Path), default=".", help="Make the folder there.")
@JSON
def new(name: str, *, dialect: str, language: str, guard: bool, service: bool, template: str, into: Path, as_json: bool) -> None:
    """Make a folder NAME with a working extension, and a test of it that passes."""
    if template:
        if template not in scaffold.PLUGINS:
            supported = ", ".join(scaffold.PLUGINS)
            raise BadSettings(
                f"unsupported plugin template `{escape_text(template)}` (supported: {supported})", hint="take one of them"
            )
        dialect, (language, service) = "yoi", scaffold.PLUGINS[template]
    if language not in scaffold.DIALECTS[dialect]:
        there = " or ".join(scaffold.DIALECTS[dialect])
        raise click.UsageError(f"there is no beginning in {language} for {dialect} yet: --lang may be {there}")
    if dialect == "yoi":
        if guard:
            raise click.UsageError("a plugin has no interceptors, so it is no guard: --guard is for the other dialects")
        _new_plugin(name, language, into, service=service, as_json=as_json)
        return
    if service:
        raise click.UsageError("only plugins have services: --service goes with --dialect yoi")
    run_async(_new(name, dialect, language, into, guard=guard, as_json=as_json))


def _new_plugin(name: str, language: str, into: Path, *, service: bool, as_json: bool) -> None:
    template = next((one for one, made_of in scaffold.PLUGINS.items() if made_of == (language, service)), "")
    if not template:
        raise click.UsageError(f"there is no beginning of a service in {language} yet: --service goes with --lang python or js")
    made = scaffold.create_plugin(name, into, language=language, service=service)
    path = shlex.quote(_format_path(made.folder))
    steps = [f"serai guest build {path}", f"serai guest check {path}", f"pytest {path}"]
    if language == "js":
        steps.insert(0, f"npm install --prefix {path}")
    if as_json:
        from serai.authoring.plugin_package import build_new_report

        click.echo(console.dump_json(build_new_report(template, _to_absolute(made.folder), made.files, steps)))
        return
    _report_scaffold(f"yoi:{name}", made, steps)


async def _new(name: str, dialect: str, language: str, into: Path, *, guard: bool, as_json: bool) -> ExitCode:
    command = await _find_command(language)
    made = scaffold.create_extension(name, into, language=language, guard=guard, command=command, dialect=dialect)
    if as_json:
        form = {"id": f"{dialect}:{name}", "folder": _to_absolute(made.folder), "language": language, "guard": guard}
        click.echo(console.dump_json(form | {"files": made.files, "next": _suggest_steps(made.folder)}))
    else:
        _report_scaffold(f"{dialect}:{name}", made, _suggest_steps(made.folder))
    if language == "python" and command != "python3":
        file = scaffold.get_manifest_file(dialect)
        console.err(f"no python3 on your PATH has serai, so {file} names {command}: change that before others get it")
    if language == "typescript" and not command:
        console.err("it needs Node 22.18 or newer, or bun; neither is on your PATH: install one")
    for tool in scaffold.LANGUAGES[language].tools:
        if shutil.which(tool) is None:
            console.err(f"it needs the program {tool}, which is not on your PATH: install it")
    return ExitCode.OK


def _report_scaffold(id: str, made: scaffold.Scaffold, steps: list[str]) -> None:
    console.out(f"made {id}: {_format_path(made.folder)}")
    for file in made.files:
        console.out(f"  {file}")
    console.out("next:")
    for line in steps:
        console.out(f"  {line}")


async def _find_command(language: str) -> str:
    """What starts it here; empty: what the language says."""
    if language == "python":
        return await scaffold.find_python_command()
    return await scaffold.find_typescript_command() if language == "typescript" else ""


def _suggest_steps(folder: Path) -> list[str]:
    """What to try now."""
    path = shlex.quote(_format_path(folder))
    return [
        f"""serai tool call greet '{{"name":"Ada"}}' --guest {path}""",
        f"serai guest check {path}",
        f"pytest {path}",
    ]


def _format_path(path: Path) -> str:
    """As a person would type it: a relative one is seen to be a path."""
    return str(path) if path.is_absolute() else os.path.join(".", path)


def _to_absolute(path: Path) -> str:
    return os.path.abspath(path)


@click.command()
@click.argument("path", type=NonEmptyPath(exists=True, path_type=Path))
@click.option(
    "-o", "--output", type=NonEmptyPath(dir_okay=False, path_type=Path), help="The file; NAME.pyz in this folder by default."
)
@click.option("--force", is_flag=True, help="Replace the file even if it is no bundle.")
@JSON
def bundle(path: Path, *, output: Path | None, force: bool, as_json: bool) -> None:
    """Make one file of an extension in Python, which runs with a bare python3.

    PATH is the extension's folder, of which all files go into the bundle but tests, caches and what is hidden; or its program
    alone, with the modules beside it that it imports. The SDK is in it; other packages are not, unless they lie in the folder.
    """
    from serai.authoring import bundle as authoring_bundle

    plan = authoring_bundle.plan_bundle(path)
    output = Path(f"{plan.name}.pyz") if output is None else output
    authoring_bundle.check_target(output, plan, force=force)
    bundled = authoring_bundle.pack_bundle(plan)
    authoring_bundle.write_bundle(bundled.content, output)
    manifest = plan.build_manifest(output.name)
    if as_json:
        form = {"file": _to_absolute(output), "size": len(bundled.content), "files": bundled.names}
        click.echo(console.dump_json(form | {"manifest": manifest, "warnings": plan.warnings}))
    else:
        console.out(f"bundled {plan.name}: {_format_path(output)}, {len(bundled.content) // KIB} KiB, {len(bundled.names)} files")
        file = scaffold.get_manifest_file(plan.dialect)
        console.out(f"it needs Python 3.11 or newer; the {file} that starts it, in a folder with it:")
        click.echo(escape_text(scaffold.format_manifest(manifest, plan.dialect)), nl=False)
    for warning in plan.warnings:
        console.err(warning)


@click.command()
@click.argument("folder", type=NonEmptyPath(exists=True, file_okay=False, path_type=Path), default=".")
@click.option(
    "--lang", "language", type=click.Choice(list(PROGRAMS)), help="What it is written in; else the file extension.* in it tells."
)
@JSON
def build(folder: Path, *, language: str | None, as_json: bool) -> None:
    """Make the component of the plugin in FOLDER, the file that its plugin.toml names.

    Its source is extension.py, .js, .c or .wat; the tool chain is found on this machine, or you are told what to install. Only the
    host interfaces that plugin.toml asks for are built in.

    Building runs the folder's own code as you, with no sandbox around it: build only what you would run.
    """
    run_async(_build(folder, language, as_json=as_json))


async def _build(folder: Path, language: str | None, *, as_json: bool) -> ExitCode:
    planned = plan_build(folder, language, show=lambda text: click.echo(escape_text(text), err=True))
    component = await build_component(planned)
    write_component(component, planned.folder / planned.component)
    _report_build(planned, component, as_json=as_json)
    return ExitCode.OK


def _report_build(planned: BuildPlan, component: bytes, *, as_json: bool) -> None:
    target = planned.folder / planned.component
    found = authoring_component.read_interface_names(component)
    if as_json:
        form = {"id": f"yoi:{planned.manifest.id}", "file": os.path.abspath(target), "size": len(component)}
        form |= {"language": planned.language, "world": planned.world, "imports": found.imports, "warnings": planned.warnings}
        click.echo(console.dump_json(form))
    else:
        console.out(f"built yoi:{planned.manifest.id}: {target}, {len(component) // KIB} KiB")
        console.out(f"it imports {', '.join(found.imports) or 'nothing'}")
        path = shlex.quote(str(planned.folder))
        console.out(f"next: serai guest check {path}; serai guest add {path}; serai guest grant {path}")
    for warning in planned.warnings:
        console.err(warning)


@click.command()
@click.argument("path", type=NonEmptyPath(exists=True))
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
    if options.is_plugin(path):
        if calls or commands or only or grants:
            raise click.UsageError("a plugin is only looked at: --call, --command, --rule and --env have no meaning for it")
        _check_plugin(path, strict=strict, as_json=as_json)
        return
    from serai.testing import conformance

    given = [_parse_call(text) for text in calls]
    for line in commands:
        if not _is_text(line):
            raise click.UsageError(f"--command {escape_text(line)}: it is no text in UTF-8")
    try:
        report = conformance.check(path, calls=given, commands=commands, only=only, environ=conformance.environment(grants=grants))
    except (NoGuest, conformance.UnknownRule) as error:
        raise click.UsageError(escape_text(str(error))) from None
    if as_json:
        show_json(report)
    else:
        show(report)
        if not (calls or commands):
            console.err("none of its tools and commands was run for real; --call and --command name those that may be")
    if not report.ok or (strict and report.of("warned")):
        raise click.exceptions.Exit(ExitCode.FAILED)


def _check_plugin(path: str, *, strict: bool, as_json: bool) -> None:
    """Its report is printed whatever it says (spec yoi 19)."""
    from serai.authoring import plugin_package
    from serai.cli import plugin_report

    report = plugin_package.check_package(path)
    if as_json:
        click.echo(console.dump_json(report))
    else:
        plugin_report.show_check(report)
    if report["status"] == "rejected" or (strict and report["status"] != "active"):
        raise click.exceptions.Exit(ExitCode.FAILED)


def _parse_call(text: str) -> tuple[str, Any]:
    name, equals, arguments = text.partition("=")
    try:
        if name and equals and _is_text(name):
            value = json.loads(arguments)
            json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # no NaN, no infinity, no half characters
            return name, value
        reason = "it has to be NAME=JSON"
    except (ValueError, RecursionError) as error:
        reason = f"not JSON: {error}"
    raise click.UsageError(f"--call {escape_text(text)}: {escape_text(reason)}")


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
    console.out(console.mask_strings(text))


def show_json(report: Report) -> None:
    for finding in report.findings:
        click.echo(console.dump_json(console.mask_strings(_dump_finding(finding))))
    click.echo(
        console.dump_json({"summary": {"guest": report.guest, "dialect": report.dialect, "ok": report.ok, **report.summary()}})
    )


def _dump_finding(finding: Finding) -> dict[str, Any]:
    form: dict[str, Any] = {"rule": finding.rule, "status": finding.status, "why": finding.why}
    for key in ("frames", "stderr", "hint", "requirements"):
        if value := getattr(finding, key):
            form[key] = value
    return form

"""`serai guest new` and `serai guest bundle`: the beginning of an extension, and one file of it."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import click

from serai.cli import scaffold, telling
from serai.cli.opening import JSON, NamedPath, Status, run
from serai.errors import BadSettings

__all__ = ["bundle", "new"]

KIB = 1024


def _named(_context: click.Context, _parameter: click.Parameter, name: str) -> str:
    if not scaffold.is_name(name):
        rule = "a name is made of letters, digits, - and _, begins with no -, and is 64 long at most"
        raise click.BadParameter(f"{telling.safe(name)!r} cannot be the name of an extension: {rule}")
    return name


@click.command()
@click.argument("name", callback=_named)
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
@click.option("--into", type=NamedPath(exists=True, file_okay=False, path_type=Path), default=".", help="Make the folder there.")
@JSON
def new(name: str, *, dialect: str, language: str, guard: bool, service: bool, template: str, into: Path, as_json: bool) -> None:
    """Make a folder NAME with a working extension, and a test of it that passes."""
    if template:
        if template not in scaffold.PLUGINS:
            supported = ", ".join(scaffold.PLUGINS)
            raise BadSettings(
                f"unsupported plugin template `{telling.safe(template)}` (supported: {supported})", hint="take one of them"
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
    run(_new(name, dialect, language, into, guard=guard, as_json=as_json))


def _new_plugin(name: str, language: str, into: Path, *, service: bool, as_json: bool) -> None:
    template = next((one for one, made_of in scaffold.PLUGINS.items() if made_of == (language, service)), "")
    if not template:
        raise click.UsageError(f"there is no beginning of a service in {language} yet: --service goes with --lang python or js")
    made = scaffold.make_plugin(name, into, language=language, service=service)
    path = shlex.quote(_shown(made.folder))
    steps = [f"serai guest build {path}", f"serai guest check {path}", f"pytest {path}"]
    if language == "js":
        steps.insert(0, f"npm install --prefix {path}")
    if as_json:
        from serai.cli.plugin_reports import new_form

        click.echo(telling.as_json(new_form(template, _absolute(made.folder), made.files, steps)))
        return
    _tell_made(f"yoi:{name}", made, steps)


async def _new(name: str, dialect: str, language: str, into: Path, *, guard: bool, as_json: bool) -> Status:
    command = await _command(language)
    made = scaffold.make(name, into, language=language, guard=guard, command=command, dialect=dialect)
    if as_json:
        form = {"id": f"{dialect}:{name}", "folder": _absolute(made.folder), "language": language, "guard": guard}
        click.echo(telling.as_json(form | {"files": made.files, "next": _next(made.folder)}))
    else:
        _tell_made(f"{dialect}:{name}", made, _next(made.folder))
    if language == "python" and command != "python3":
        file = scaffold.manifest_file(dialect)
        telling.tell(f"no python3 on your PATH has serai, so {file} names {command}: change that before others get it")
    if language == "typescript" and not command:
        telling.tell("it needs Node 22.18 or newer, or bun; neither is on your PATH: install one")
    for tool in scaffold.LANGUAGES[language].tools:
        if shutil.which(tool) is None:
            telling.tell(f"it needs the program {tool}, which is not on your PATH: install it")
    return Status.OK


def _tell_made(id: str, made: scaffold.Made, steps: list[str]) -> None:
    telling.say(f"made {id}: {_shown(made.folder)}")
    for file in made.files:
        telling.say(f"  {file}")
    telling.say("next:")
    for line in steps:
        telling.say(f"  {line}")


async def _command(language: str) -> str:
    """What starts it here; empty: what the language says."""
    if language == "python":
        return await scaffold.python_command()
    return await scaffold.typescript_command() if language == "typescript" else ""


def _next(folder: Path) -> list[str]:
    """What to try now."""
    path = shlex.quote(_shown(folder))
    return [
        f"""serai tool call greet '{{"name":"Ada"}}' --guest {path}""",
        f"serai guest check {path}",
        f"pytest {path}",
    ]


def _shown(path: Path) -> str:
    """As a person would type it: a relative one is seen to be a path."""
    return str(path) if path.is_absolute() else os.path.join(".", path)


def _absolute(path: Path) -> str:
    return os.path.abspath(path)


@click.command()
@click.argument("path", type=NamedPath(exists=True, path_type=Path))
@click.option(
    "-o", "--output", type=NamedPath(dir_okay=False, path_type=Path), help="The file; NAME.pyz in this folder by default."
)
@click.option("--force", is_flag=True, help="Replace the file even if it is no bundle.")
@JSON
def bundle(path: Path, *, output: Path | None, force: bool, as_json: bool) -> None:
    """Make one file of an extension in Python, which runs with a bare python3.

    PATH is the extension's folder, of which all files go into the bundle but tests, caches and what is hidden; or its program
    alone, with the modules beside it that it imports. The SDK is in it; other packages are not, unless they lie in the folder.
    """
    from serai.cli import bundling

    plan = bundling.plan(path)
    output = Path(f"{plan.name}.pyz") if output is None else output
    bundling.refuse_other(output, plan, force=force)
    bundled = bundling.pack(plan)
    bundling.write(bundled.content, output)
    manifest = plan.manifest(output.name)
    if as_json:
        form = {"file": _absolute(output), "size": len(bundled.content), "files": bundled.names}
        click.echo(telling.as_json(form | {"manifest": manifest, "warnings": plan.warnings}))
    else:
        telling.say(f"bundled {plan.name}: {_shown(output)}, {len(bundled.content) // KIB} KiB, {len(bundled.names)} files")
        file = scaffold.manifest_file(plan.dialect)
        telling.say(f"it needs Python 3.11 or newer; the {file} that starts it, in a folder with it:")
        click.echo(telling.safe(scaffold.manifest_text(manifest, plan.dialect)), nl=False)
    for warning in plan.warnings:
        telling.tell(warning)

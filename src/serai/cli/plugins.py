"""`serai guest pack`, `wit`, `run`, `status` and `restart`: what there is for plugins alone (spec yoi 19)."""

from __future__ import annotations

from pathlib import Path

import click

from serai.cli import telling
from serai.cli.completion import complete_guests
from serai.cli.opening import JSON, NamedPath, Options, run, with_options
from serai.cli.plugin_flags import Given, with_grants
from serai.errors import NotWritten

__all__ = ["pack", "restart", "run_", "status", "wit"]


# -- packages and texts -----------------------------------------------------------------------------------------------------------


@click.command()
@click.argument("folder", type=NamedPath())
@click.option("-o", "--output", type=NamedPath(), help="The file; FOLDER.yoi-plugin beside the folder by default.")
@JSON
def pack(folder: str, *, output: str | None, as_json: bool) -> None:
    """Make one file of a plugin's folder: the same files give the same bytes.

    Left out are target/, node_modules/, .git/ and other packages. What is packed was checked, and never executed; a file that is
    there already is replaced.
    """
    from serai.cli import plugin_reports

    report = plugin_reports.pack(folder, output)
    if as_json:
        click.echo(telling.as_json(report))
        return
    package = report["package"]
    telling.say(f"packed {package['package']} {package['version']}: {report['output_path']}")
    telling.say(f"  {package['digest']}, {len(package['entries'])} files")


@click.command()
@click.option("--into", type=NamedPath(file_okay=False, path_type=Path), help="Write the files into this folder.")
@JSON
def wit(*, into: Path | None, as_json: bool) -> None:
    """Print the interfaces of plugins as WIT: the two worlds, and what a host offers them."""
    files = dict(_wit_files())
    if into is None:
        if as_json:
            click.echo(telling.as_json({"files": files}))
        else:
            for name, text in files.items():
                click.echo(f"// {name}\n{text}")
        return
    for name, text in files.items():
        file = into / name
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        except OSError as error:
            raise NotWritten(f"cannot be written: {error.strerror}", who=str(file)) from None
        if not as_json:
            telling.say(f"wrote {file}")
    if as_json:
        click.echo(telling.as_json({"folder": str(into.absolute()), "files": list(files)}))


def _wit_files() -> list[tuple[str, str]]:
    """By their paths, as tool chains want them below one folder."""
    from importlib.resources import files

    root = files("serai.dialects.yoi") / "wit"
    found, waiting = [], [("", root)]
    while waiting:
        prefix, folder = waiting.pop()
        for entry in folder.iterdir():
            if entry.is_dir():
                waiting.append((f"{prefix}{entry.name}/", entry))
            elif entry.name.endswith(".wit"):
                found.append((f"{prefix}{entry.name}", entry.read_text(encoding="utf-8")))
    return sorted(found)


# -- one call ---------------------------------------------------------------------------------------------------------------------


@click.command("run")
@click.argument("package", type=NamedPath())
@click.argument("tool")
@click.argument("arguments", default="{}", metavar="[JSON]")
@with_grants
@click.option("--external-write", is_flag=True, help="It may change things elsewhere, where its tool says that it does.")
@click.option("--config", metavar="JSON", default="", help="What it is started with.")
@JSON
def run_(package: str, tool: str, arguments: str, *, given: Given, external_write: bool, config: str, as_json: bool) -> None:
    """Call one tool of a plugin, which has nothing but what is given here.

    PACKAGE is a plugin's folder or file; nothing of your settings is granted to it. JSON are the arguments, {} by default; - reads
    them from stdin and @FILE from a file. Your own act, on record; the status is that of `serai tool call`.
    """
    from serai.cli import plugin_running

    wanted = plugin_running.Wanted(package, tool, given, external_write=external_write)
    run(plugin_running.call(wanted, arguments, config, as_json=as_json))


# -- one that lives ---------------------------------------------------------------------------------------------------------------

NAME = click.argument("name", shell_complete=complete_guests)


@click.command()
@NAME
@with_options
@JSON
def status(name: str, *, options: Options, as_json: bool) -> None:
    """Start this plugin, and show how it is.

    It is a fresh instance in this very process, not one that another command runs: what it shows is how a start goes.
    """
    from serai.cli import plugin_running

    run(plugin_running.status(name, options, again=False, as_json=as_json))


@click.command()
@NAME
@with_options
@JSON
def restart(name: str, *, options: Options, as_json: bool) -> None:
    """Start this plugin, start it once more by hand, and show how it is.

    Both are instances of this very process: one that another command runs has its own supervisor, and is left alone.
    """
    from serai.cli import plugin_running

    run(plugin_running.status(name, options, again=True, as_json=as_json))

"""`serai command`: the commands that guests offer, and a run of one."""

from __future__ import annotations

import click
import msgspec

from serai.cli import console
from serai.cli.options import JSON, ExitCode, GuestOptions, add_guest_options, open_host, run_async, to_exit_code
from serai.errors import NoCommand
from serai.model.actions import Action, Display, Insert, OpenPanel, Panel, SubmitPrompt
from serai.plain_text import escape_text


@click.group()
def command() -> None:
    """List the commands that guests offer, and run one.

    Guests offer commands for people to type, such as /weather. From here one runs without a conversation around it.
    """


@command.command("list")
@add_guest_options
@JSON
def list_(*, options: GuestOptions, as_json: bool) -> None:
    """The commands there are, each with its owner."""
    run_async(_list(options, as_json=as_json))


async def _list(options: GuestOptions, *, as_json: bool) -> ExitCode:
    async with open_host(options, command="serai command list") as host:
        commands = host.table.commands
        if as_json:
            for name, (guest, about) in commands.items():
                form = {"name": name, "owner": guest.id, "description": about.description, "state": guest.state}
                click.echo(console.dump_json(form))
        else:
            rows = [(f"/{name}", guest.id, " ".join(about.description.split())) for name, (guest, about) in commands.items()]
            console.print_table(rows)
        if not commands:
            console.err("there are no commands; `serai guest list --live` shows who offers what")
    return ExitCode.OK


@command.command("run")
@click.argument("name")
@click.argument("arguments", nargs=-1, metavar="[ARGS]...")
@add_guest_options
@JSON
def run_(name: str, arguments: tuple[str, ...], *, options: GuestOptions, as_json: bool) -> None:
    """Run a guest's command and print what it wants done.

    ARGS are joined by single spaces; one alone is handed on as it is. Write -- before those that begin with a dash.
    """
    run_async(_run(name.removeprefix("/"), " ".join(arguments), options, as_json=as_json))


async def _run(name: str, args: str, options: GuestOptions, *, as_json: bool) -> ExitCode:
    surface = _Shown(as_json=as_json)
    async with open_host(options, command=f"serai command run {name}", surface=surface) as host:
        if name not in host.table.commands:
            hint = console.suggest(name, host.table.commands) or "`serai command list` shows what there is"
            raise NoCommand(f"there is no command /{name}", hint=hint)
        outcome = await host.run_command(name, args)
        if as_json:
            more = [one for one in surface.shown if one != outcome.action]
            shown = {"shown": msgspec.to_builtins(more)} if more else {}
            click.echo(console.dump_json(msgspec.to_builtins(outcome) | shown))
        elif outcome.error:
            click.echo(escape_text(outcome.error), err=True)
        elif outcome.action not in surface.shown:
            _print_action(outcome.action)
    return to_exit_code(outcome.code) if outcome.error else ExitCode.OK


class _Shown(console.NoticeSurface):
    """What a command shows while it runs is what it is for, where the protocol has no other answer (spec piglet 5.2)."""

    def __init__(self, *, as_json: bool) -> None:
        self.shown: list[Display] = []
        self._as_json = as_json

    def show(self, display: Display) -> None:
        self.shown.append(display)
        if not self._as_json:
            console.write_result("\n".join(display.format_lines()))


def _print_action(action: Action) -> None:
    """What the action means to somebody without a conversation. A notice was shown by the surface; the rest is nothing here."""
    match action:
        case Display():
            console.write_result("\n".join(action.format_lines()))
        case SubmitPrompt(text=text):
            if text.strip():  # blank text is nothing (spec zot 4.2)
                click.echo("would send to the agent:", err=True)
                console.write_result(text)
        case Insert(text=text):
            console.write_result(text)
        case OpenPanel(panel=panel):
            console.write_result("\n".join(_render_panel(panel)))
        case _:
            pass


def _render_panel(panel: Panel) -> list[str]:
    """A panel as plain text: the title is the guest's name when it has none, the footer stands apart (spec zot 4.6)."""
    title = panel.title or panel.owner.partition(":")[2]
    footer = ["", panel.footer] if panel.footer.strip() else []
    return [title, *panel.lines, *footer]

"""`serai tool`: the tools that guests offer, and a call of one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from serai.cli import console
from serai.cli.options import JSON, ExitCode, GuestOptions, NonEmptyPath, add_guest_options, open_host, run_async, to_exit_code
from serai.errors import NoTool
from serai.model.tools import ImageBlock, OtherBlock, TextBlock, ToolCall, ToolResult
from serai.plain_text import escape_text

if TYPE_CHECKING:
    from serai.host.host import Host


@click.group()
def tool() -> None:
    """List the tools that guests offer, and call one.

    A call from here is your own act: nobody asks whether it may be. Guards still judge it, and it is on record.
    """


@tool.command("list")
@add_guest_options
@JSON
def list_(*, options: GuestOptions, as_json: bool) -> None:
    """The tools there are, each with its owner."""
    run_async(_list(options, as_json=as_json))


async def _list(options: GuestOptions, *, as_json: bool) -> ExitCode:
    async with open_host(options, command="serai tool list") as host:
        tools = host.table.tools
        if as_json:
            for name, entry in tools.items():
                spec, owner = entry.spec, entry.owner.id
                form = {"name": name, "owner": owner, "description": spec.description, "schema": spec.schema}
                click.echo(console.dump_json(form | {"state": _get_state(host, owner)}))
        else:
            console.print_table([(name, entry.owner.id, _collapse_spaces(entry.spec.description)) for name, entry in tools.items()])
        if not tools:
            console.err("there are no tools; `serai guest list --live` shows who offers what")
    return ExitCode.OK


def _get_state(host: Host, owner: str) -> str:
    guest = host.guests.get(owner)
    return "ready" if guest is None else str(guest.state)  # Serai's own have no other


def _collapse_spaces(text: str) -> str:
    return " ".join(text.split())


@tool.command("call")
@click.argument("name")
@click.argument("arguments", default="{}", metavar="[JSON]")
@add_guest_options
@click.option(
    "-o", "--output", type=NonEmptyPath(path_type=Path, dir_okay=False), help="Write the first image of the result there."
)
@click.option("--force", is_flag=True, help="Replace the file of --output if there is one.")
@JSON
def call_(name: str, arguments: str, *, options: GuestOptions, output: Path | None, force: bool, as_json: bool) -> None:
    """Call a tool and print its result.

    JSON are its arguments, {} by default; - reads them from stdin and @FILE from a file.
    """
    if output is not None and not force and os.path.lexists(output):  # before the call: it may not be one to be made twice
        raise click.UsageError(f"{escape_text(str(output))} exists already: choose another name, or replace it with --force")
    run_async(_call(ToolCall(name, read_arguments(arguments), asker="person"), options, output, as_json=as_json))


async def _call(call: ToolCall, options: GuestOptions, output: Path | None, *, as_json: bool) -> ExitCode:
    async with open_host(options, command=f"serai tool call {call.name}") as host:
        known = host.table.tools.get(call.name)
        if known is None:
            raise NoTool(f"there is no tool {call.name}", hint=console.suggest(call.name, host.table.tools))
        result = await host.call_tool(call)
        if as_json:
            click.echo(
                console.dump_json({"tool": call.name, "owner": known.owner.id, "is_error": False} | msgspec.to_builtins(result))
            )
        else:
            print_result(result)
    status = to_exit_code(result.code) if result.is_error else ExitCode.OK
    if output is not None and status is ExitCode.OK:
        status = _write(result, output)
    return status


def read_arguments(text: str) -> Any:
    """The arguments of a call, from wherever they are. What is no JSON is a wrong command line."""
    raw, where = os.fsencode(text), "JSON"
    try:
        if text == "-":
            raw, where = sys.stdin.buffer.read(), "stdin"
        elif text.startswith("@"):
            where = text[1:]
            raw = Path(where).read_bytes()
        return msgspec.json.decode(raw)
    except OSError as error:
        reason = error.strerror or str(error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        reason = f"not JSON: {error}"
    raise click.UsageError(f"{escape_text(where)}: {escape_text(reason)}")


def print_result(result: ToolResult) -> None:
    """Text on stdout, or on stderr when it is an error; what is no text has a line on stderr, and never gets into a pipe."""
    for block in result.content:
        match block:
            case TextBlock(text=text) if result.is_error:
                click.echo(escape_text(text), err=True)
            case TextBlock(text=text):
                console.write_result(text)
            case ImageBlock(data=data, mime=mime):
                console.err(f"[image {mime or 'of an unknown kind'}, {len(data)} bytes]")
            case OtherBlock(kind=kind):
                console.err(f"[{kind}: see it with --json]")
    if result.is_error and result.hint and result.hint not in result.text:  # piglet's says it in its text (spec piglet 5.1)
        click.echo(escape_text(result.hint), err=True)


def _write(result: ToolResult, output: Path) -> ExitCode:
    image = next((block for block in result.content if isinstance(block, ImageBlock)), None)
    if image is None:
        console.err(f"{output}: not written, there is no image in the result")
        return ExitCode.FAILED
    try:
        output.write_bytes(image.data)
    except OSError as error:
        console.err(f"{output}: not written: {error.strerror}")
        return ExitCode.FAILED
    return ExitCode.OK

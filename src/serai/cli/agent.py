"""`serai agent`: the agents there are, whether each can be used here, and what it supports.

`serai agent sessions` and `serai agent show` read the sessions that an agent program stores itself.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from serai.cli import console
from serai.cli.options import JSON, PATH, NonEmptyPath, load_user_limits
from serai.plain_text import escape_text

if TYPE_CHECKING:
    from datetime import datetime

    from serai.agents.drivers.claude.transcripts.metadata import SessionMetadata
    from serai.agents.drivers.claude.transcripts.reader import Transcripts
    from serai.agents.factory import AgentStatus

_SHORT = 8  # of an id: enough to tell a few thousand sessions apart
_MANY = 20  # sessions, unless another number is wanted
_TITLE = 60  # characters of a title in the list
_LINES = 12  # of what was said
_AGENTS = ("claude",)  # those whose own sessions can be read

AGENT = click.option("--agent", type=click.Choice(_AGENTS), default=_AGENTS[0], help="Whose sessions.", show_default=True)


@click.command()
@AGENT
@click.option("--project", type=PATH, metavar="DIR", help="The sessions of that folder; of this one by default.")
@click.option("--all", "everywhere", is_flag=True, help="Those of every folder, also such as nobody said anything in.")
@click.option(
    "--limit", type=click.IntRange(0), default=_MANY, metavar="N", help="So many, the newest; 0 for all.", show_default=True
)
@JSON
def sessions(*, agent: str, project: str | None, everywhere: bool, limit: int, as_json: bool) -> None:  # noqa: ARG001  (so far there is one)
    """The sessions that an agent program keeps itself, the newest first.

    What was said through Serai is in `serai session` too. Sessions in which nobody said anything worth a line are left out; --all
    shows them.
    """
    from serai.agents.drivers.claude.transcripts.metadata import default_filter

    if everywhere and project is not None:
        raise click.UsageError("--project and --all exclude each other")
    transcripts = _open_transcripts()
    where = None if everywhere else project or os.getcwd()
    found = transcripts.list_recent(where, limit, None if everywhere else default_filter)
    if as_json:
        for one in found:
            click.echo(console.dump_json(one))
    elif found:
        console.print_table([("id", "begun", "status", "turns", "cost", "title", "folder"), *map(_build_session_row, found)])
    else:
        console.err(f"there are no sessions {f'of {where}' if where else 'at all'} in {transcripts.root}")


def _build_session_row(one: SessionMetadata) -> tuple[str, ...]:
    turns = f"{one.num_turns}{'+' if one.partial else ''}"
    cost = f"${one.total_cost_usd:.2f}" if one.total_cost_usd else "-"
    title = _collapse_spaces(one.title)
    shown = title if len(title) <= _TITLE else title[: _TITLE - 1] + "…"
    return one.session_id[:_SHORT], _format_time(one.start_time), one.status or "-", turns, cost, shown, one.project_path or "?"


@click.command()
@click.argument("id")
@AGENT
@JSON
def show(id: str, *, agent: str, as_json: bool) -> None:
    """What is known of one of them, and what was said first and last. ID is its id or the start of it.

    With --json first what is known, then every row as it is in the file.
    """
    transcripts = _open_transcripts()
    id = transcripts.resolve(id)
    if as_json:
        click.echo(console.dump_json(transcripts.get_session(id)))
        for event in transcripts.get_session_events(id):
            click.echo(_format_json(bytes(event.row)))
        return
    one = transcripts.get_session(id)
    console.out(_collapse_spaces(one.title) or f"session {one.session_id}")
    for line in _render_facts(one):
        console.out(f"  {line}")
    for who, text in (
        ("you, first", one.first_message),
        ("you, last", one.last_user_message if one.last_user_message != one.first_message else ""),
        (agent, one.last_assistant_message),
    ):
        if text.strip():
            _print_message(who, text)
    where = f"cd {shlex.quote(one.project_path)} && " if one.project_path else ""
    console.err(f"to go on with it: {where}serai run --agent {agent} --session {one.session_id} PROMPT")


def _render_facts(one: SessionMetadata) -> Iterator[str]:
    yield ", ".join(filter(None, (one.session_id, one.status, one.model, one.version and f"version {one.version}")))
    yield ", ".join(filter(None, (one.project_path, one.git_branch)))
    times = f"{_format_time(one.start_time)} to {_format_time(one.end_time)}"
    tokens = f"{one.input_tokens + one.cache_read_tokens + one.cache_creation_tokens} tokens in, {one.output_tokens} out"
    cost = f", ${one.total_cost_usd:.4f}" if one.total_cost_usd else ""
    yield f"{times}, {one.num_turns} turn{'' if one.num_turns == 1 else 's'}, {tokens}{cost}"
    if one.error:
        yield f"it failed: {_collapse_spaces(one.error)}"
    yield f"{one.file}, {one.size} bytes"


def _print_message(who: str, text: str) -> None:
    """Who, and below it what they said, moved to the right: no text can be taken for a heading."""
    click.echo()
    click.secho(who, bold=True)
    lines = escape_text(text.strip("\n")).split("\n")
    for line in lines[:_LINES]:
        click.echo(f"  {line}")
    if len(lines) > _LINES:
        click.echo(f"  … and {len(lines) - _LINES} lines more")


def _open_transcripts() -> Transcripts:
    from serai.agents.drivers.claude.transcripts.reader import Transcripts

    return Transcripts(limits=load_user_limits())


def _format_json(row: bytes) -> str:
    """A row in one line that is safe on a terminal; not decoded, for a file may have numbers that nothing here can hold."""
    import msgspec

    from serai.wire.codec import repair

    return console.escape_json(msgspec.json.format(repair(row) or row, indent=-1).decode())


def _collapse_spaces(text: str) -> str:
    return " ".join(text.split())


def _format_time(at: datetime | None) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S}" if at else "?"


_COLUMNS = ("", "agent", "version", "guards", "rewrite", "from", "can")


@click.group()
def agent() -> None:
    """List the agents there are, whether each can be used here, and what it can do."""


agent.add_command(sessions)
agent.add_command(show)


@agent.command("list")
@click.option("--cwd", type=NonEmptyPath(exists=True, file_okay=False), default=".", help="The project; this folder by default.")
@JSON
def list_(*, cwd: str, as_json: bool) -> None:
    """The agents there are; the one that would be used has a star.

    `guards` says which of its calls guards and rules see: each of them, those that it asks about, or none; `rewrite` whether they
    can change what is called.
    """
    from serai.agents.factory import AgentLookup, list_agent_statuses
    from serai.app.config import Config
    from serai.wire import event_loop

    config = Config.load(cwd)
    found = event_loop.run(list_agent_statuses(AgentLookup(os.environ, config.settings, config.limits)))
    if as_json:
        for one in found:
            click.echo(console.dump_json(_dump_agent(one, used=one.name == config.agent)))
        return
    console.print_table([_COLUMNS, *(_build_row(one, used=one.name == config.agent) for one in found)])
    for one in found:
        if not one.available:
            console.err(f"{one.name}: {one.why}")
            console.err(f"  {one.hint}")
    if config.agent not in {one.name for one in found}:
        console.err(f"the settings name the agent {config.agent}, and there is none of that name")


def _dump_agent(one: AgentStatus, *, used: bool) -> dict[str, Any]:
    import msgspec

    form: dict[str, Any] = {"name": one.name, "available": one.available, "used": used}
    form |= {key: value for key in ("path", "version", "source") if (value := getattr(one, key))}
    if one.capabilities is not None:
        form["capabilities"] = msgspec.to_builtins(one.capabilities)
    return form | ({"why": one.why, "hint": one.hint} if not one.available else {})


def _build_row(one: AgentStatus, *, used: bool) -> tuple[str, ...]:
    where = ": ".join(filter(None, (one.source, one.path))) if one.available else "not here"
    first = ("*" if used else "", one.name, one.version or "-")
    if (can := one.capabilities) is None:
        return *first, "-", "-", where, "-"
    others = [name for name in can.__struct_fields__ if name not in ("guards", "rewrite") and getattr(can, name)]
    return *first, can.guards, "yes" if can.rewrite else "no", where, ", ".join(others)

"""`serai agent sessions` and `serai agent show`: the sessions that an agent program keeps itself."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from serai.cli import telling
from serai.cli.opening import JSON, PATH, limits_of_the_person

if TYPE_CHECKING:
    from datetime import datetime

    from serai.agents.drivers.claude.transcripts.metadata import SessionMetadata
    from serai.agents.drivers.claude.transcripts.reader import Transcripts

__all__ = ["sessions", "show"]

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
    transcripts = _transcripts()
    where = None if everywhere else project or os.getcwd()
    found = transcripts.recent_filtered(where, limit, None if everywhere else default_filter)
    if as_json:
        for one in found:
            click.echo(telling.as_json(one))
    elif found:
        telling.table([("id", "begun", "status", "turns", "cost", "title", "folder"), *map(_row, found)])
    else:
        telling.tell(f"there are no sessions {f'of {where}' if where else 'at all'} in {transcripts.root}")


def _row(one: SessionMetadata) -> tuple[str, ...]:
    turns = f"{one.num_turns}{'+' if one.partial else ''}"
    cost = f"${one.total_cost_usd:.2f}" if one.total_cost_usd else "-"
    title = _line(one.title)
    shown = title if len(title) <= _TITLE else title[: _TITLE - 1] + "…"
    return one.session_id[:_SHORT], _when(one.start_time), one.status or "-", turns, cost, shown, one.project_path or "?"


@click.command()
@click.argument("id")
@AGENT
@JSON
def show(id: str, *, agent: str, as_json: bool) -> None:
    """What is known of one of them, and what was said first and last. ID is its id or the start of it.

    With --json first what is known, then every row as it is in the file.
    """
    transcripts = _transcripts()
    id = transcripts.resolve(id)
    if as_json:
        click.echo(telling.as_json(transcripts.get_session(id)))
        for event in transcripts.get_session_events(id):
            click.echo(_plain(bytes(event.row)))
        return
    one = transcripts.get_session(id)
    telling.say(_line(one.title) or f"session {one.session_id}")
    for line in _facts(one):
        telling.say(f"  {line}")
    for who, text in (
        ("you, first", one.first_message),
        ("you, last", one.last_user_message if one.last_user_message != one.first_message else ""),
        (agent, one.last_assistant_message),
    ):
        if text.strip():
            _say(who, text)
    where = f"cd {shlex.quote(one.project_path)} && " if one.project_path else ""
    telling.tell(f"to go on with it: {where}serai run --agent {agent} --session {one.session_id} PROMPT")


def _facts(one: SessionMetadata) -> Iterator[str]:
    yield ", ".join(filter(None, (one.session_id, one.status, one.model, one.version and f"version {one.version}")))
    yield ", ".join(filter(None, (one.project_path, one.git_branch)))
    times = f"{_when(one.start_time)} to {_when(one.end_time)}"
    tokens = f"{one.input_tokens + one.cache_read_tokens + one.cache_creation_tokens} tokens in, {one.output_tokens} out"
    cost = f", ${one.total_cost_usd:.4f}" if one.total_cost_usd else ""
    yield f"{times}, {one.num_turns} turn{'' if one.num_turns == 1 else 's'}, {tokens}{cost}"
    if one.error:
        yield f"it failed: {_line(one.error)}"
    yield f"{one.file}, {one.size} bytes"


def _say(who: str, text: str) -> None:
    """Who, and below it what they said, moved to the right: no text can be taken for a heading."""
    click.echo()
    click.secho(who, bold=True)
    lines = telling.safe(text.strip("\n")).split("\n")
    for line in lines[:_LINES]:
        click.echo(f"  {line}")
    if len(lines) > _LINES:
        click.echo(f"  … and {len(lines) - _LINES} lines more")


def _transcripts() -> Transcripts:
    from serai.agents.drivers.claude.transcripts.reader import Transcripts

    return Transcripts(limits=limits_of_the_person())


def _plain(row: bytes) -> str:
    """A row in one line that is safe on a terminal; not decoded, for a file may have numbers that nothing here can hold."""
    import msgspec

    from serai.wire.codec import repair

    return telling.plain_json(msgspec.json.format(repair(row) or row, indent=-1).decode())


def _line(text: str) -> str:
    return " ".join(text.split())


def _when(at: datetime | None) -> str:
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S}" if at else "?"

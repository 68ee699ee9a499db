"""`serai session`: the conversations with agents, as they are on disk."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from serai import atomic_file
from serai.cli import console
from serai.cli.completion import complete_sessions
from serai.cli.options import JSON, PATH, load_user_limits
from serai.errors import NoSession, NotWritten
from serai.plain_text import escape_line, escape_text

if TYPE_CHECKING:
    from serai.store import SessionSummary, StoredMessage, StoredSession, TreeRow
    from serai.store.messages import Item

_SHORT = 8  # of an id: enough to tell a few thousand sessions apart
_LINES = 12  # of a tool's result, unless all of it is wanted
_DEEPEST = 20  # branches of branches are moved to the right, but not out of sight

ID = click.argument("id", required=False, shell_complete=complete_sessions)
CWD = click.option("--cwd", type=PATH, default=".", help="The folder that is meant by `here`; this one by default.")


@click.group()
def session() -> None:
    """List, show and export sessions: the conversations with agents.

    ID is a session's id, the start of it, or the path of a file; by default the latest session of this folder.
    """
    # What a reading had to skip is told by the commands, and not by whatever Python does with a log that nobody wants.
    logging.getLogger("serai.store").addHandler(logging.NullHandler())


# -- list -------------------------------------------------------------------------------------------------------------------------


@session.command("list")
@click.option("--here", is_flag=True, help="Only the sessions of this folder.")
@CWD
@JSON
def list_(*, here: bool, cwd: str, as_json: bool) -> None:
    """The sessions there are, the newest first; those of this folder have a star."""
    from serai.store import SessionFolder

    sessions = SessionFolder.usual(limits=load_user_limits())
    found, problems = sessions.scan()
    places = {os.path.abspath(cwd), os.path.realpath(cwd)}
    shown = [one for one in found if not here or one.meta.cwd in places]
    if as_json:
        for one in shown:
            click.echo(console.dump_json(_dump_session(one) | {"here": one.meta.cwd in places}))
    elif shown:
        console.print_table([("", "id", "begun", "agent", "title", "folder"), *(_build_row(one, places) for one in shown)])
    else:
        console.err(f"there are no sessions {'of this folder' if here and found else f'in {sessions.folder}'}")
    for problem in problems:
        console.err(f"left out: {problem}")


def _build_row(one: SessionSummary, places: set[str]) -> tuple[str, ...]:
    meta = one.meta
    agent = " ".join(filter(None, (meta.agent, meta.model)))
    return ("*" if meta.cwd in places else "", one.id[:_SHORT], _format_time(meta.at), agent, _join_words(meta.title), meta.cwd)


def _dump_session(one: SessionSummary) -> dict[str, Any]:
    meta = one.meta
    form = {
        "id": one.id,
        "title": meta.title,
        "cwd": meta.cwd,
        "created": meta.created,
        "modified": one.modified,
        "bytes": one.size,
    }
    more = {"model": meta.model, "agent": meta.agent, "agent_session": meta.agent_session, "parent": meta.parent}
    return form | {key: value for key, value in more.items() if value}


# -- show -------------------------------------------------------------------------------------------------------------------------


@session.command()
@ID
@click.option("--last", type=click.IntRange(0), metavar="N", help="Only so many messages, at the end.")
@click.option("--full", is_flag=True, help="All of what tools answered, and what the agent thought.")
@CWD
@JSON
def show(id: str | None, *, last: int | None, full: bool, cwd: str, as_json: bool) -> None:
    """The conversation as it stands: its active branch, from the last compaction on."""
    from serai.store.messages import encode

    with _open_session(id, cwd) as one:
        said = one.read_messages()
        chosen = said if last is None else said[max(0, len(said) - last) :]
        if as_json:
            for message in chosen:
                click.echo(_format_json(encode(message, tagged=False)))
            return
        for line in _render_heading(one):
            console.out(line)
        if left := len(said) - len(chosen):
            console.out(f"({left} earlier message{'' if left == 1 else 's'})")
        for message in chosen:
            _print_message(message, one.meta.agent or "assistant", full=full)
    if not said:
        console.err("nothing was said yet")


def _render_heading(one: StoredSession) -> Iterator[str]:
    meta = one.meta
    yield _join_words(meta.title) or f"session {one.id}"
    facts = (one.id if meta.title else "", meta.agent, meta.model, meta.cwd, _format_time(meta.at))
    yield "  " + ", ".join(_join_words(fact) for fact in facts if fact)


def _print_message(message: StoredMessage, agent: str, *, full: bool) -> None:
    """Who, and below it what they said, moved to the right: no text can be taken for a heading."""
    from serai.store.entries import parse_time
    from serai.store.messages import StoredText, ToolResultMessage, UserMessage

    when = _format_time(parse_time(message.timestamp) / 1e9)
    if isinstance(message, UserMessage):
        who, items = "you", (StoredText(message.content), *message.blocks)
    elif isinstance(message, ToolResultMessage):
        who, items = f"{message.tool_name or 'tool'} {'failed' if message.is_error else 'answered'}", message.content
    else:
        who, items = agent, message.content
    click.echo()
    click.secho(f"{escape_line(who)}{f'  {when}' if when else ''}", bold=True)
    for item in items:
        lines = list(_render_item(item, full=full))
        cut = isinstance(message, ToolResultMessage) and not full and len(lines) > _LINES
        for line in lines[:_LINES] if cut else lines:
            click.echo(f"  {line}")
        if cut:
            click.echo(f"  … and {len(lines) - _LINES} lines more: --full shows them")
    if error := getattr(message, "error", ""):
        click.echo(f"  it failed: {escape_line(error)}")


def _render_item(item: Item, *, full: bool) -> Iterable[str]:
    from serai.store.messages import StoredImage, StoredText, StoredThinking, StoredToolCall

    match item:
        case StoredText(text=text):
            return escape_text(text).split("\n") if text else ()
        case StoredThinking(thinking=text):
            return [f"(thinks) {line}" for line in escape_text(text).split("\n")] if full else [f"(thinks, {len(text)} characters)"]
        case StoredToolCall(name=name, arguments=arguments):
            return [f"calls {escape_line(name)} {console.dump_json(arguments)}"]
        case StoredImage(data=data, mime_type=mime):
            return [f"[image {escape_line(mime)}, {len(data) * 3 // 4} bytes]"]
        case _:
            return [_format_json(item.raw)]


# -- tree -------------------------------------------------------------------------------------------------------------------------


@session.command()
@ID
@CWD
@JSON
def tree(id: str | None, *, cwd: str, as_json: bool) -> None:
    """Everything that was ever written, with all branches; the active one has stars."""
    with _open_session(id, cwd) as one:
        rows = one.read_tree().list_rows()
        if as_json:
            for row in rows:
                click.echo(console.dump_json(row))
            return
        for line in _render_heading(one):
            console.out(line)
    for row, place in _indent_rows(rows):
        label = f"  [{_join_words(row.label)}]" if row.label else ""
        preview = f"  {_join_words(row.preview)}" if row.preview else ""
        console.out(f"{'*' if row.active else ' '} {place}{row.id}  {row.type}{preview}{label}")


def _indent_rows(rows: Iterable[TreeRow]) -> Iterator[tuple[TreeRow, str]]:
    """What stands before each: a chain goes straight down, where it forks each branch begins with a plus, further to the right."""
    above: list[tuple[int, int]] = []  # level and children of those on the way here
    for row in rows:
        del above[row.depth :]
        level, forks = above[-1] if above else (0, 1)
        begins = forks > 1
        level = min(level + begins, _DEEPEST)
        above.append((level, row.children))
        yield row, "  " * (level - begins) + "+ " * begins


# -- export -----------------------------------------------------------------------------------------------------------------------


@session.command()
@ID
@click.option("-o", "--output", type=PATH, metavar="FILE", help="Write it there instead of to stdout, for you alone to read.")
@click.option("--force", is_flag=True, help="Replace the file if there is one; a pipe or a device is written to.")
@CWD
@click.option("--json", "as_json", is_flag=True, help="Not Markdown but the entries of the active branch, one per line.")
def export(id: str | None, *, output: str | None, force: bool, cwd: str, as_json: bool) -> None:
    """What was said on the active branch as one Markdown page, from its beginning, nothing of it cut or masked.

    With --json everything on that branch, also labels, events and what extensions keep there.
    """
    from serai.store import session_to_markdown

    with _open_session(id, cwd) as one:
        parts = _dump_entries(one) if as_json else session_to_markdown(one)
        if output is not None:
            _write(output, parts, replace=force)
            console.out(f"{output}: written")
        elif sys.stdout.isatty():
            click.echo(escape_text("".join(parts)), nl=False)
        else:
            for part in parts:
                click.echo(part, nl=False, color=True)  # else click would take colours out of what was said


def _dump_entries(one: StoredSession) -> Iterator[str]:
    """As they stand in the file, so that what reads one reads the other."""
    from serai.store.entries import encode

    for line in (one.meta.encode_line(), *map(encode, one.read_path())):
        yield _format_json(line) + "\n"


def _write(path: str, parts: Iterable[str], *, replace: bool) -> None:
    """All of it or nothing, for this user alone: a conversation may hold anything."""
    try:
        if replace and os.path.exists(path) and not os.path.isfile(path):  # a pipe or a device is written to, not replaced
            with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.writelines(parts)
            return
        if not replace:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))  # fails when there is one; else it is ours
        try:
            with atomic_file.atomic_writer(path) as file:
                file.writelines(part.encode(errors="backslashreplace") for part in parts)
        except BaseException:
            if not replace:
                os.unlink(path)
            raise
    except FileExistsError:
        hint = "choose another name, or replace it with --force"
        raise NotWritten("the file exists already", who=path, hint=hint) from None
    except OSError as error:
        raise NotWritten(f"the file cannot be written: {error.strerror}", who=path, hint="choose another place") from None


# -- all of them ------------------------------------------------------------------------------------------------------------------


@contextmanager
def _open_session(id: str | None, cwd: str) -> Iterator[StoredSession]:
    """The one that is meant; what could not be read of it is told at the end."""
    from serai.store import SessionFolder, StoredSession

    limits = load_user_limits()
    sessions = SessionFolder.usual(limits=limits)
    if id is None:
        latest = sessions.find_latest(cwd)
        if latest is None:
            raise NoSession("this folder has no sessions", who=os.path.abspath(cwd))
        one = StoredSession(latest.path, limits=limits)
    else:
        one = StoredSession(id, limits=limits) if os.sep in id else sessions.open(id)
    with one:
        yield one
        problems = one.problems
    if problems:
        console.err(f"{one.file}: some of it cannot be read and was left out: {problems[0]}")


def _format_json(raw: Any) -> str:
    """JSON in one line that is safe on a terminal; not decoded, for a file may have numbers that nothing here can hold."""
    import msgspec

    return console.escape_json(msgspec.json.format(bytes(raw), indent=-1).decode(errors="replace"))


def _join_words(text: str) -> str:
    return " ".join(text.split())


def _format_time(at: float) -> str:
    from datetime import datetime

    try:
        return f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M:%S}" if at else ""
    except (OverflowError, ValueError, OSError):  # whoever wrote that was not of this age
        return ""

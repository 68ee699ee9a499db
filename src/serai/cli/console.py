"""How the commands speak: results on stdout, everything else on stderr, and nothing that a terminal would act upon.

What a person asked for is never masked. What is told beside it may quote a guest's stderr, so what looks like a secret is.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click
import msgspec

from serai.model.actions import Action, Display, Notice
from serai.model.approvals import Approval, Decision, Question
from serai.model.events import Event
from serai.model.surface import HeadlessSurface
from serai.plain_text import escape_line, escape_text
from serai.record import secret_patterns

_OURS = "serai"  # who says what no guest says


def out(text: str) -> None:
    """A line of ours on stdout; a part of it may be a guest's, such as a path."""
    click.echo(escape_line(text))


def err(text: str) -> None:
    """A line beside the result, on stderr."""
    click.echo(escape_line(secret_patterns.mask_text(text)), err=True)


def mask_strings(value: Any) -> Any:
    """The same, with what looks like a secret masked in each text of it."""
    if isinstance(value, str):
        return secret_patterns.mask_text(value)
    if isinstance(value, dict):
        return {key: mask_strings(item) for key, item in value.items()}
    return [mask_strings(item) for item in value] if isinstance(value, list | tuple) else value


def write_result(text: str) -> None:
    """What a guest answered, on stdout: byte for byte into a file or a pipe, spelt out on a terminal."""
    click.echo(escape_text(text) if sys.stdout.isatty() else text, color=True)  # else click would take colours out


def dump_json(value: Any) -> str:
    """One line of JSON that is also safe on a terminal: what it would act upon is escaped, and so are odd bytes of a path."""
    return escape_json(json.dumps(msgspec.to_builtins(value), ensure_ascii=False, separators=(",", ":")))


def escape_json(text: str) -> str:
    """The same JSON with what a terminal would act upon escaped."""
    return escape_line(text, lambda char: json.dumps(char)[1:-1])


def print_table(rows: Iterable[Sequence[str]]) -> None:
    """Rows in columns on stdout; on a terminal each stays on its line."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in render_table([[escape_line(cell) for cell in row] for row in rows], width):
        click.echo(line)


def render_table(rows: Sequence[Sequence[str]], width: int | None = None) -> Iterator[str]:
    """The rows of a table, the last column as long as it is; what sticks out of `width` is cut."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip()
        yield line if width is None or len(line) <= width else line[: width - 1] + "…"


def suggest(name: str, names: Iterable[str]) -> str:
    """A hint for somebody who mistyped a name; nothing when none is near."""
    from difflib import get_close_matches

    near = get_close_matches(name, names)
    return f"there is {', '.join(near)}" if near else ""


def render_notice(notice: Notice) -> Iterator[str]:
    """A notice line by line. Each line of a guest says whose it is; what goes on with ours is set in, for it may quote somebody."""
    source = notice.source or _OURS
    first, *more = notice.text.expandtabs().split("\n")
    yield f"[{source}] {notice.level}: {first}"
    yield from (f"  {line}" if source == _OURS else f"[{source}]   {line}" for line in more)


class NoticeSurface:
    """A command that runs once: notices go to stderr (spec zot 4.5), nobody is asked, what a command answers is its caller's.

    A guest may show more than it answers (spec piglet 7.2): that goes to stderr too, where it is nobody's result.
    """

    interactive = False

    async def ask(self, request: Approval | Question) -> Decision:
        return await HeadlessSurface().ask(request)

    def act(self, action: Action) -> None:
        if isinstance(action, Notice):
            for line in render_notice(action):
                click.echo(escape_text(line), err=True)
        elif isinstance(action, Display):
            self.show(action)

    def show(self, display: Display) -> None:
        for line in display.format_lines():
            click.echo(escape_text(line), err=True)

    def tell(self, event: Event) -> None:
        pass

"""How rules, calls and what is remembered are told to a person: for `serai policy`, `serai trust` and who asks on a terminal."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Generator, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal
from unicodedata import east_asian_width

from serai import paths
from serai.plain_text import escape_line, is_visible
from serai.toml_writer import to_toml_pairs

if TYPE_CHECKING:
    from serai.model.approvals import Approval, Question
    from serai.policy import RememberedDecision, Rule

_MANNERS = ("id", "decide", "because")  # what a rule is not about
_ROWS, _CHARACTERS = 20, 2000  # of one text, where only a glance is wanted
_ENDS = 200  # rows of a request of which a person sees what fits: its long texts by beginning and end
_NAME = 32  # columns: a longer name would leave no room for what it names
TOOL = 64  # columns of a tool's name
_LEAST = 12  # columns of a text, however narrow the terminal is
_PLAIN = re.compile(r"[A-Za-z0-9_.:/-]+")
_TAB = "    "
# How much of a request is shown: enough to know it again, enough to answer it, or all; and of how many arguments.
How = Literal["glance", "ends", "whole"]
_ARGUMENTS: Mapping[How, int | None] = {"glance": 12, "ends": 40, "whole": None}
# What is told beside the arguments of a call. An argument's name has no blanks unless it is in quotes: none looks like these.
_ABOUT = {
    "title": "the agent calls it:",
    "description": "the agent describes it:",
    "blocked_path": "the path in the way:",
    "reason": "asked because:",
}
_FOR = {"session": "for the session ", "project": "in ", "always": "everywhere"}


def find_own_file() -> str:
    """Where a person writes rules of their own."""
    from serai.policy.rules import USER_FILE

    return os.path.join(paths.config_folder(), USER_FILE)


def describe_source(source: str) -> str:
    """The file or flag that a rule came from."""
    from serai.policy import rules

    return "what Serai ships" if source == os.path.join(os.path.dirname(rules.__file__), "default.toml") else source


def format_rule(rule: Rule) -> str:
    """What a rule means, in one line."""
    parts = [f"{name} {_join_alternatives(value)}" for name, value in _iter_pairs(rule.to_json())]
    return ", ".join(parts) or "every call"


def render_rule(rule: Rule) -> Iterator[str]:
    """A rule in two or three lines."""
    yield f"{rule.id}: {format_rule(rule)}"
    if rule.because:
        yield f"  because {rule.because}"
    yield f"  from {describe_source(rule.source)}"


def format_lifetime(one: RememberedDecision) -> str:
    """For whom a remembered decision holds, and until when."""
    until = "until it is forgotten" if one.expires is None else f"until {format_time(one.expires)}"
    return f"{_FOR[one.scope]}{one.key}, {until}"


def render_toml(rule: Rule) -> Iterator[str]:
    """A rule as it is written into a file."""
    yield "[[rule]]"
    yield from to_toml_pairs(rule.to_json()).splitlines()


# -- what somebody else wrote -----------------------------------------------------------------------------------------------------


def make_visible(text: str) -> str:
    """What a terminal would act upon or not show is spelt out."""
    return "".join(_escape_chars(text))


def quote_name(text: str, most: int = _NAME) -> str:
    """A name that others chose: what is no plain word stands in quotes, and of a long one there is the beginning and a `…`."""
    if len(text) <= most and _PLAIN.fullmatch(text):
        return text
    spelt = _escape_chars(text[:most].replace("\\", "\\\\").replace('"', '\\"'))
    row, count = next(_split_pieces(spelt, most))
    return f'"{row}"' + ("" if count == len(spelt) and len(text) <= most else "…")


def fit_line(text: str, columns: int) -> str:
    """A text that others chose, in one line of at most so many columns; of a longer one there is the beginning and a `…`."""
    spelt = _escape_chars(text[: columns + 1])
    row, count = next(_split_pieces(spelt, columns))
    return row if count == len(spelt) else next(_split_pieces(spelt, columns - 1))[0] + "…"


def fold_text(head: str, text: str, *, whole: bool = True, columns: int = 0) -> Generator[str, None, int]:
    """A text that others chose, folded, so that each row has the mark with which `head` ends and none can be taken for ours.

    A plus after the mark goes on with the line above. Returned is how many characters were left out, of what is not shown whole.
    `columns`: of the terminal, where it is not the one that shutil knows.
    """
    margin, before, end = _build_margin(head), f"  {head} ", 0
    for number, (row, begins, end_of_row) in enumerate(_fold(text if whole else text[:_CHARACTERS], _get_room(before, columns))):
        if number == _ROWS and not whole:
            break
        end = end_of_row
        yield (f"{margin}{' ' if begins else '+'}" if number else before) + row
    return len(text) - end


def fold_ends(head: str, text: str, *, rows: int = _ENDS, columns: int = 0) -> Generator[str, None, int]:
    """The same in at most so many rows: of a longer text its beginning and its end, and between them how much was left out."""
    margin, before, last = _build_margin(head), f"  {head} ", rows // 4
    room = _get_room(before, columns)
    found = list(islice(_fold(text[: rows * (room + 1) + 1], room), rows + 1))  # no row has more characters than columns
    shown = found if len(found) <= rows else found[: rows - last]
    for number, (row, begins, _) in enumerate(shown):
        yield (f"{margin}{' ' if begins else '+'}" if number else before) + row
    if len(found) <= rows:
        return 0
    rest = text[shown[-1][2] :]
    tail = rest[-last * room :]
    folded = list(_fold(tail, room))
    before_it, kept = folded[:-last], folded[-last:]
    left = len(rest) - len(tail) + (before_it[-1][2] if before_it else 0)
    yield f"  … {format_count(left, 'character')} left out …"
    yield from (f"{margin}{' ' if begins else '+'}{row}" for row, begins, _ in kept)
    return left


def fold_line(text: str, *, columns: int = 0) -> Iterator[str]:
    """A line of ours with something in it that others chose: where it is folded, what follows is marked."""
    margin = "    :+"
    for number, (row, _) in enumerate(_split_pieces(_escape_chars(text), _get_room(margin, columns))):
        yield (margin if number else "") + row


def _build_margin(head: str) -> str:
    return " " * (1 + _measure_width(head)) + head[-1]


def _get_room(before: str, columns: int = 0) -> int:
    """For what stands after this. The last column stays free: there, terminals do not agree on when a line ends."""
    return max(_LEAST, _get_width(columns) - _measure_width(before) - 1)


def _get_width(columns: int) -> int:
    return columns or shutil.get_terminal_size().columns


def _fold(text: str, room: int) -> Iterator[tuple[str, bool, int]]:
    """Each row of a text, whether a line begins with it, and where in the text it ends."""
    end = -1
    for line in text.split("\n"):
        end += 1
        for number, (row, count) in enumerate(_split_pieces(_escape_chars(line, tab=_TAB), room)):
            end += count
            yield row, not number, end


def _split_pieces(spelt: list[str], room: int) -> Iterator[tuple[str, int]]:
    """The characters in pieces that fit, each with their number; an empty one when there are none."""
    begun, columns = 0, 0
    for at, char in enumerate(spelt):
        wide = _measure_width(char)
        if columns + wide > room and at > begun:
            yield "".join(spelt[begun:at]), at - begun
            begun, columns = at, 0
        columns += wide
    yield "".join(spelt[begun:]), len(spelt) - begun


def _escape_chars(text: str, *, tab: str = "\\x09") -> list[str]:
    """Each character of it as it is shown."""
    return list(text) if is_visible(text) else [tab if char == "\t" else escape_line(char, is_shown=is_visible) for char in text]


def _measure_width(text: str) -> int:
    """How wide it is at most: what some terminals show in two columns has two, so that none folds a row once more."""
    return len(text) if text.isascii() else sum(1 if east_asian_width(char) in ("Na", "N", "H") else 2 for char in text)


# -- what is asked ----------------------------------------------------------------------------------------------------------------


def render_call(request: Approval, how: How, *, id: str = "", columns: int = 0) -> Generator[str, None, bool]:
    """The arguments of a call, then what was told about it; whether some of that was left out. `id` is that of its row on disk."""
    from serai.cli.console import dump_json

    cut = yield from _render_name("the tool is called:", request.tool, quote_name(request.tool, TOOL), how, columns)
    arguments = request.call.arguments
    pairs = list(arguments.items()) if isinstance(arguments, dict) else [("arguments", arguments)]
    shown = pairs[: _ARGUMENTS[how]]
    rows = max(_ROWS, _ENDS // max(1, len(shown)))
    most = min(_NAME, _get_width(columns) // 2 - 8)  # so that on a narrow terminal too there is room for what it names
    for key, value in shown:
        short = quote_name(key, most)
        cut |= yield from _render_name("the next is called:", key, short, how, columns)
        cut |= yield from _render_text(f"{short} |", value if isinstance(value, str) else dump_json(value), how, columns, rows)
    if left := len(pairs) - len(shown):
        cut |= how == "ends"
        yield f"  … and {format_count(left, 'more argument')}" + (f", all with: serai policy pending {id}" if id else "")
    for field, head in _ABOUT.items():
        if text := getattr(request, field):
            cut |= yield from _render_text(head, text, how, columns)
    return cut


def render_question(request: Question, how: How, *, columns: int = 0) -> Generator[str, None, bool]:
    """What a question asks; whether some of that was left out."""
    from serai.model.approvals import format_questions

    if not request.items:  # what was settled has none any more
        return False
    return (yield from _render_text("it asks |", format_questions(request.items), how, columns))


def _render_name(head: str, text: str, short: str, how: How, columns: int) -> Generator[str, None, bool]:
    """All of a name that is too long to stand before something; whether it was left out."""
    if not short.endswith("…"):
        return False
    return True if how == "glance" else (yield from _render_text(head, text, how, columns))


def _render_text(head: str, text: str, how: How, columns: int, rows: int = _ROWS) -> Generator[str, None, bool]:
    if how == "ends":
        return bool((yield from fold_ends(head, text, rows=rows, columns=columns)))
    left = yield from fold_text(head, text, whole=how == "whole", columns=columns)
    if left:
        yield f"  … and {format_count(left, 'character')} more"
    return bool(left)


# -- small words ------------------------------------------------------------------------------------------------------------------


def format_count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def format_time(at: float) -> str:
    return f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M:%S}"


def _iter_pairs(form: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in form.items():
        if key == "input":
            yield from ((f"input {name}", texts) for name, texts in value.items())
        elif key == "exactly":
            yield "exactly", "the same arguments"
        elif key not in _MANNERS:
            yield key, value


def _join_alternatives(value: str | Iterable[str]) -> str:
    return value if isinstance(value, str) else " or ".join(value)

"""A use of a tool in a line: a row for each tool of Claude Code (spec agents 5.2 F14). Adding one adds a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from serai.dialects.claude.rendering.plain import Given, counted, cut, one_line, plain, shown

__all__ = ["MARKS", "details", "grouped_reads", "one_liner", "read_subject"]

Line = Callable[[Given], str]
More = Callable[[Given], Iterator[str]]

MARKS = {"completed": "☑", "in_progress": "▶"}  # of a todo; else it is open
_MOST = 10  # lines of a detail


def one_liner(tool: str, input: Any) -> str:
    """What is done, for people. Never raises, whatever the input is."""
    given = Given(input)
    row = _LINES.get(tool)
    return row(given) if row is not None else _join(one_line(tool) or "Tool", _pairs(given))


def details(tool: str, input: Any) -> list[str]:
    """What else is worth seeing of it: why, or what changes."""
    more = _DETAILS.get(tool)
    return [] if more is None else list(more(Given(input)))


def read_subject(input: Any) -> str:
    """What a `Read` reads."""
    given = Given(input)
    return _join(_path(given), _range(given))


def grouped_reads(inputs: list[Any]) -> str:
    """Several `Read`s in a row."""
    subjects = [subject for one in inputs if (subject := read_subject(one))]
    return (
        _join(f"Read {counted(len(inputs), 'file')}:", cut(", ".join(subjects), 240)) if subjects else f"Read {len(inputs)} files"
    )


# -- parts


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _path(given: Given) -> str:
    return given.line("file_path", "notebook_path", "path")


def _pairs(given: Given) -> str:
    """Sorted by key (spec agents 5.2 F15), so that it looks the same every time."""
    return " ".join(f"{one_line(str(key), 40)}={shown(given.members[key], 80)}" for key in sorted(given.members, key=str))


def _quoted(text: str) -> str:
    return f'"{text}"' if text else ""


def _in(given: Given) -> str:
    path = given.line("path")
    return f"in {path}" if path else ""


def _range(given: Given) -> str:
    """The lines from `offset` on, `limit` of them."""
    start, limit = given.whole("offset"), given.whole("limit")
    if start is None and limit is None:
        return ""
    start = 1 if start is None else start
    return f"L{start}-" if limit is None else f"L{start}-{start + limit - 1}"


def _lines(text: str) -> int:
    return len(text.splitlines())


# -- rows


def _bash(given: Given) -> str:
    """`$` and what is run: several lines are one, cut where it is too long."""
    return f"$ {given.line('command')}".rstrip()


def _write(given: Given) -> str:
    content = given.text("content")
    return _join("Write", _path(given), f"({counted(_lines(content), 'line')})" if content else "")


def _edit(given: Given) -> str:
    return _join("Edit", _path(given), "(replace_all)" if given.true("replace_all") else "")


def _multi_edit(given: Given) -> str:
    return _join("MultiEdit", _path(given), f"({counted(len(given.items('edits')), 'edit')})")


def _bash_output(given: Given) -> str:
    wanted = given.line("filter")
    return _join("BashOutput", given.line("bash_id", "task_id"), f"/{wanted}/" if wanted else "")


def _grep(given: Given) -> str:
    return _join(
        "Grep", _quoted(given.line("pattern")), _in(given), given.line("glob", "type"), _bracketed(given.line("output_mode"))
    )


def _bracketed(text: str) -> str:
    return f"({text})" if text else ""


def _task(name: str, given: Given) -> str:
    kind, what = given.line("subagent_type"), given.line("description")
    return _join(name, f"{kind}:" if kind and what else kind, what)


def _todos(given: Given) -> str:
    return _join("TodoWrite", counted(len(given.items("todos")), "todo"))


def _notebook(given: Given) -> str:
    return _join("NotebookEdit", _path(given), _bracketed(_join(given.line("edit_mode"), given.line("cell_type"))))


def _plan(given: Given) -> str:
    return _join("ExitPlanMode", f"({counted(len(given.text('plan')), 'character')})")


def _slash(given: Given) -> str:
    command = given.line("command")
    return command if command.startswith("/") else _join("SlashCommand", command)


def _ask(given: Given) -> str:
    """A list of questions, or one question by itself."""
    asked = [text for one in given.items("questions") if (text := _question(one))] or [given.line("question")]
    return _join("AskUserQuestion", _quoted(asked[0]), f"+{len(asked) - 1} more" if len(asked) > 1 else "")


def _question(one: Any) -> str:
    return one_line(one) if isinstance(one, str) else Given(one).line("question", "header")


_LINES: Mapping[str, Line] = {
    "Read": lambda given: _join("Read", _path(given), _range(given)),
    "Write": _write,
    "Edit": _edit,
    "MultiEdit": _multi_edit,
    "Bash": _bash,
    "BashOutput": _bash_output,
    "KillBash": lambda given: _join("KillBash", given.line("shell_id", "bash_id")),
    "KillShell": lambda given: _join("KillShell", given.line("shell_id", "bash_id")),
    "Grep": _grep,
    "Glob": lambda given: _join("Glob", given.line("pattern"), _in(given)),
    "WebFetch": lambda given: _join("WebFetch", given.line("url")),
    "WebSearch": lambda given: _join("WebSearch", _quoted(given.line("query"))),
    "Task": lambda given: _task("Task", given),
    "Agent": lambda given: _task("Agent", given),  # its later name
    "TodoWrite": _todos,
    "NotebookEdit": _notebook,
    "ExitPlanMode": _plan,
    "SlashCommand": _slash,
    "AskUserQuestion": _ask,
}


# -- details (spec agents 5.2 F12)


def _described(given: Given) -> Iterator[str]:
    if text := given.line("description"):
        yield text


def _signed(sign: str, text: str) -> Iterator[str]:
    lines = plain(text).splitlines()
    for line in lines[:_MOST]:
        yield f"{sign} {cut(line)}"
    if len(lines) > _MOST:
        yield f"{sign} … +{len(lines) - _MOST} more lines"


def _diff(given: Given) -> Iterator[str]:
    yield from _signed("-", given.text("old_string"))
    yield from _signed("+", given.text("new_string"))


def _diffs(given: Given) -> Iterator[str]:
    for one in given.items("edits")[:_MOST]:
        yield from _diff(Given(one))


def _todo_list(given: Given) -> Iterator[str]:
    for one in given.items("todos"):
        todo = Given(one)
        yield f"{MARKS.get(todo.text('status'), '☐')} {todo.line('content', 'activeForm')}".rstrip()


def _asked(given: Given) -> Iterator[str]:
    for one in given.items("questions"):
        labels = [label for option in Given(one).items("options") if (label := _label(option))]
        yield _join(_question(one), f"[{' | '.join(labels)}]" if labels else "")


def _label(option: Any) -> str:
    return one_line(option) if isinstance(option, str) else Given(option).line("label")


_DETAILS: Mapping[str, More] = {
    "Bash": _described,
    "Edit": _diff,
    "MultiEdit": _diffs,
    "Write": lambda given: _signed("+", given.text("content")),
    "NotebookEdit": lambda given: _signed("+", given.text("new_source")),
    "TodoWrite": _todo_list,
    "AskUserQuestion": _asked,
    "ExitPlanMode": lambda given: _signed("|", given.text("plan")),
    "Task": lambda given: _signed("|", given.text("prompt")),
    "Agent": lambda given: _signed("|", given.text("prompt")),
    "WebFetch": lambda given: _signed("|", given.text("prompt")),
}

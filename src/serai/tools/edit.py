"""The tool `edit`: parts of a file replaced, all of them or none."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Annotated

from msgspec import Meta

from serai.limits import Limits
from serai.model.tools import TextBlock, ToolResult
from serai.tools.failing import Failed
from serai.tools.files import Stamp, opened
from serai.tools.places import Place
from serai.tools.tool import Arguments, Job, Tool, changing, make_tool
from serai.tools.write import encoded, keep_copy

__all__ = ["diff", "tool"]

_BOM = "\ufeff"
_NEWLINE = re.compile(r"(?<!\r)\n")
_CHANGES = 100  # of one call: each goes through the whole file
_CONTEXT = 3  # lines around a change
_DIFF = 100  # lines of a diff
_LINE = 300  # characters of one of its lines
_COMPARED = 3000  # lines: more take too long to compare
_TOLD = 10  # places where a text was found


class Change(Arguments, frozen=True):
    old: Annotated[str, Meta(min_length=1)]
    new: str
    replace_all: bool = False


class Edit(Arguments, frozen=True):
    path: Annotated[str, Meta(min_length=1)]
    old: Annotated[str, Meta(description="exact text that is there once")] = ""
    new: str = ""
    replace_all: Annotated[bool, Meta(description="every place where old is")] = False
    edits: Annotated[
        list[Change], Meta(max_length=_CHANGES, description="several changes, in this order, instead of old and new")
    ] = []  # noqa: RUF012


def tool(_: Limits) -> Tool:
    about = (
        "Replace exact text in a file that was read before. old must occur exactly once, unless replace_all; "
        "give enough lines around it, without line numbers. Either old and new, or edits: all are made, or none."
    )
    return make_tool("edit", Edit, changing(_edit), about, interrupt="block")


def _edit(arguments: Edit, job: Job) -> ToolResult:
    changes = _changes(arguments)
    place = job.place(arguments.path)
    with opened(place) as spot:
        data, status = spot.read(job.shop.limits.read_file)
        job.shop.seen.check(place, status, unseen=False)
        # Bytes that are no UTF-8 are carried along as they are.
        before = data.decode(errors="surrogateescape")
        after = _changed(before, changes, place, job)
        keep_copy(job.shop, spot, data)
        stamp: Stamp = spot.replace(after.encode(errors="surrogateescape"), status)
    job.shop.seen.note(place, stamp)
    lines = diff(before, after)
    shown = "\n".join(cut(lines))
    return ToolResult(
        (TextBlock(f"{place.shown}: changed\n{shown}"),), details={"path": place.shown, "diff": shown, **counts(lines)}
    )


def _changes(arguments: Edit) -> Sequence[Change]:
    if arguments.edits and (arguments.old or arguments.new):
        raise Failed("INVALID_ARGS", "edit: both `edits` and `old` are given", "give either `edits` or `old` and `new`")
    changes = arguments.edits or [Change(arguments.old, arguments.new, arguments.replace_all)]
    for change in changes:
        if not change.old:
            raise Failed("INVALID_ARGS", "edit: `old` is missing or empty", "name the text to replace; write makes a new file")
        if change.old == change.new:
            raise Failed("INVALID_ARGS", "edit: `old` and `new` are the same", "nothing was changed")
        encoded(change.old, "old")
        encoded(change.new, "new")
    return changes


def _changed(text: str, changes: Sequence[Change], place: Place, job: Job) -> str:
    """All changes made, one after the other. Line endings stay as the file has them, and so does a byte order mark."""
    mark = _BOM if text.startswith(_BOM) else ""
    before = now = text.removeprefix(mark)
    for number, change in enumerate(changes, 1):
        who = place.shown if len(changes) == 1 else f"{place.shown}, edit {number} of {len(changes)}"
        now = _replaced(now, change, who, job.shop.limits.read_file)
        job.wanted.check()  # the last time after the last one: what has begun is finished
    if now == before:
        raise Failed("INVALID_ARGS", f"{place.shown}: together the edits change nothing")
    return mark + now


def _replaced(text: str, change: Change, who: str, most: int) -> str:
    old, new = change.old, change.new
    returns = text.count("\r\n")
    if returns and (returns == text.count("\n") or old not in text):
        old, new = _NEWLINE.sub("\r\n", old), _NEWLINE.sub("\r\n", new)
    first = text.find(old)
    if first < 0:
        raise Failed("INVALID_ARGS", f"{who}: `old` is not in it; nothing was changed", _near(text, old))
    if not change.replace_all:
        if text.find(old, first + 1) >= 0:
            lines = [str(text.count("\n", 0, at) + 1) for at in _found(text, old)]
            more = " and others" if len(lines) == _TOLD else ""
            hint = "give more of the lines around the one that is meant, or set replace_all"
            raise Failed("NOT_UNIQUE", f"{who}: `old` is there more than once, at lines {', '.join(lines)}{more}", hint)
        return text[:first] + new + text[first + len(old) :]
    size = len(text) + text.count(old) * (len(new) - len(old))
    if size > most:  # before it is made: a short text may be there a million times
        raise Failed("FILE_TOO_LARGE", f"{who}: it would have {size} characters, and at most {most} are allowed")
    return text.replace(old, new)


def _found(text: str, old: str) -> Iterator[int]:
    """Where it is, overlapping ones too; the first few."""
    at = text.find(old)
    for _ in range(_TOLD):
        if at < 0:
            return
        yield at
        at = text.find(old, at + 1)


def _near(text: str, old: str) -> str:
    """The usual mistake is white space. Looked for as text, because to compare lines takes for ever where all are alike."""
    wanted, there = (f"\n{_stripped(part)}\n" for part in (old.strip(), text))
    if (at := there.find(wanted)) >= 0:
        line = there.count("\n", 0, at) + 1
        return f"line {line} has the same text with other white space: read it there and copy it exactly"
    return "read the file again and copy the text exactly, without the line numbers"


def _stripped(text: str) -> str:
    return "\n".join(line.strip() for line in text.split("\n"))


def diff(before: str, after: str) -> list[str]:
    """A unified diff. What is the same before and behind all changes is not compared: files are long and changes short."""
    old, new = before.split("\n"), after.split("\n")
    if not old[-1] and not new[-1]:  # behind the last newline is no line
        old, new = old[:-1], new[:-1]
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    start, end = max(start - _CONTEXT, 0), max(end - _CONTEXT, 0)
    a, b = old[start : len(old) - end], new[start : len(new) - end]
    if len(a) + len(b) > _COMPARED:
        return [f"@@ -{start + 1},{len(a)} +{start + 1},{len(b)} @@ [too many lines to show]"]
    lines: list[str] = []
    for group in SequenceMatcher(None, a, b).get_grouped_opcodes(_CONTEXT):
        first, last = group[0], group[-1]
        lines.append(f"@@ -{start + first[1] + 1},{last[2] - first[1]} +{start + first[3] + 1},{last[4] - first[3]} @@")
        for kind, a1, a2, b1, b2 in group:
            if kind == "equal":
                lines += (_shown(" ", line) for line in a[a1:a2])
            else:
                lines += (_shown("-", line) for line in a[a1:a2])
                lines += (_shown("+", line) for line in b[b1:b2])
    return lines


def cut(lines: list[str]) -> list[str]:
    """As much of a diff as a model is told."""
    return lines if len(lines) <= _DIFF else [*lines[:_DIFF], f"[… {len(lines) - _DIFF} more lines]"]


def counts(lines: list[str]) -> dict[str, int]:
    """What a diff comes to, as guests of piglet know it (spec piglet 5.3)."""
    signs = Counter(line[:1] for line in lines)
    return {"files": 1, "hunks": signs["@"], "added": signs["+"], "removed": signs["-"]}


def _common(a: list[str], b: list[str]) -> int:
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _shown(sign: str, line: str) -> str:
    line = line.removesuffix("\r").encode(errors="replace").decode()
    return sign + (line if len(line) <= _LINE else f"{line[:_LINE]}…")

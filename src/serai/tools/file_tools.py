"""The tools that work on files: `read`, `write` and `edit`.

`read`: a file's lines with their numbers, or an image. `write`: a whole file, new or in the place of another. `edit`: parts of a
file replaced, all of them or none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Annotated

from msgspec import Meta

from serai.errors import NotWritten
from serai.limits import KIB, MIB, ToolLimits
from serai.model.tools import ImageBlock, TextBlock, ToolResult
from serai.tools.tool import BuiltInTool, ToolArguments, ToolContext, ToolJob, make_tool, wrap_read, wrap_write
from serai.tools.workspace import FileStamp, HeldFile, ToolFailure, WorkspacePath, hold_file, to_text

_LINES = 2000
_READ_LINE = 2000  # characters of one line
_IMAGE = 5 * MIB  # what model providers take
BINARY = 8 * KIB  # bytes that are looked at: text has no NUL among them

_IMAGES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF87a", "image/gif"), (b"GIF89a", "image/gif"))


class Read(ToolArguments, frozen=True):
    path: Annotated[str, Meta(min_length=1)]
    offset: Annotated[int, Meta(ge=1, description="first line, from 1")] = 1
    limit: Annotated[int, Meta(ge=1, description="lines at most")] = _LINES


def make_read_tool(limits: ToolLimits) -> BuiltInTool:
    about = (
        f"Read a text file with line numbers (number, tab, line), or an image (png, jpeg, gif, webp). "
        f"At most {_LINES} lines and {limits.tool_output // KIB} KiB at once; go on with offset."
    )
    return make_tool("read", Read, wrap_read(_read), about, background=True)


def _read(arguments: Read, job: ToolJob) -> ToolResult:
    place = job.resolve_path(arguments.path)
    with hold_file(place) as held:
        data, status = held.read(job.context.limits.read_file)
        job.wanted.check()
        if mime := detect_image(data):
            if len(data) > _IMAGE:
                raise held.build_too_large(len(data), _IMAGE)
            return ToolResult((TextBlock(f"[{place.shown}: {mime}, {len(data)} bytes]"), ImageBlock(data, mime)))
    if b"\0" in data[:BINARY]:
        hint = "bash has file, strings, xxd and iconv for it"
        raise ToolFailure("INVALID_ARGS", f"{place.shown} is binary, no text ({len(data)} bytes)", hint)
    result = ToolResult.of(_number_lines(data, arguments, place, job.context.limits.tool_output))
    job.context.seen.note(place, FileStamp.from_stat(status))
    return result


def detect_image(data: bytes) -> str:
    """The kind of image, by its first bytes: names lie. Empty for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for start, mime in _IMAGES if data.startswith(start)), "")


def _number_lines(data: bytes, asked: Read, place: WorkspacePath, most: int) -> str:
    if not data:
        return f"[{place.shown} is empty]"
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not lines[-1]:  # what follows the last newline is no line
        lines.pop()
    if asked.offset > len(lines):
        raise ToolFailure("INVALID_ARGS", f"offset {asked.offset} is behind the end: {place.shown} has {len(lines)} lines")
    shown: list[str] = []
    size, odd = 0, False
    for number, line in enumerate(lines[asked.offset - 1 : asked.offset - 1 + min(asked.limit, _LINES)], asked.offset):
        text = line.removesuffix(b"\r").decode(errors="replace")
        odd = odd or ("\ufffd" in text and not _is_utf8(line))
        if len(text) > _READ_LINE:
            text = f"{text[:_READ_LINE]}… [{len(text) - _READ_LINE} more characters]"
        size += len(text.encode()) + len(str(number)) + 2
        if size > most and shown:
            break
        shown.append(f"{number}\t{text}")
    last = asked.offset + len(shown) - 1
    if last < len(lines):
        shown.append(f"[lines {asked.offset} to {last} of {len(lines)}; go on with offset={last + 1}]")
    if odd:
        shown.append("[not all of it is UTF-8: \ufffd stands for bytes that are none]")
    return "\n".join(shown)


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


class Write(ToolArguments, frozen=True):
    path: Annotated[str, Meta(min_length=1)]
    content: str


def make_write_tool(_: ToolLimits) -> BuiltInTool:
    about = "Write a whole file; folders that are missing are made, a file that is there is replaced. To change a part, use edit."
    return make_tool("write", Write, wrap_write(_write), about, interrupt="block")


def _write(arguments: Write, job: ToolJob) -> ToolResult:
    if arguments.path.endswith("/"):
        raise ToolFailure("NOT_REGULAR_FILE", f"{to_text(arguments.path)} names a folder", "name the file that is to be written")
    data = encode_text(arguments.content, "content")
    place = job.resolve_path(arguments.path)
    job.wanted.check()  # before folders are made
    with hold_file(place, make=True) as held:
        old = held.stat()
        if old is not None:
            # One that was never read may be replaced, there is a copy of it; one that changed behind our back may not.
            job.context.seen.check(place, old, unseen=True)
        job.wanted.check()  # the last time: what has begun is finished
        before = b""
        if old is not None and job.context.undo is not None and old.st_size <= job.context.undo.most:
            before = held.read(job.context.undo.most)[0]
            keep_copy(job.context, held, before)
        stamp = held.replace(data, old)
    job.context.seen.note(place, stamp)
    what = "made" if old is None else f"replaced ({old.st_size} bytes before)"
    return ToolResult(
        (TextBlock(f"{place.shown}: {what}, {len(data)} bytes"),), details={"path": place.shown, **_count_lines(data, before)}
    )


def _count_lines(new: bytes, old: bytes) -> dict[str, int]:
    """As guests of piglet know them (spec piglet 5.3): all lines are new, and as far as they were looked at all others gone."""
    added, removed = (len(text.splitlines()) for text in (new, old))
    return {"files": 1, "hunks": 1, "added": added, "removed": removed}


def encode_text(text: str, name: str) -> bytes:
    """As UTF-8; half a character, which JSON can spell, is none."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ToolFailure("INVALID_ARGS", f"`{name}` has half a character (a lone surrogate) in it") from None


def keep_copy(context: ToolContext, held: HeldFile, data: bytes) -> None:
    """The copy is on disk before the change; without it nothing is changed."""
    try:
        if context.undo is not None and len(data) <= context.undo.most:
            context.undo.keep(held.place.path, data)
    except NotWritten as error:
        raise ToolFailure("IO_ERROR", f"{held.place.shown} is left as it is: {error.message}", error.hint) from None


_BOM = "\ufeff"
_NEWLINE = re.compile(r"(?<!\r)\n")
_CHANGES = 100  # of one call: each goes through the whole file
_CONTEXT = 3  # lines around a change
_DIFF = 100  # lines of a diff
_DIFF_LINE = 300  # characters of one of its lines
_COMPARED = 3000  # lines: more take too long to compare
_TOLD = 10  # places where a text was found


class Change(ToolArguments, frozen=True):
    old: Annotated[str, Meta(min_length=1)]
    new: str
    replace_all: bool = False


class Edit(ToolArguments, frozen=True):
    path: Annotated[str, Meta(min_length=1)]
    old: Annotated[str, Meta(description="exact text that is there once")] = ""
    new: str = ""
    replace_all: Annotated[bool, Meta(description="every place where old is")] = False
    edits: Annotated[
        list[Change], Meta(max_length=_CHANGES, description="several changes, in this order, instead of old and new")
    ] = []  # noqa: RUF012


def make_edit_tool(_: ToolLimits) -> BuiltInTool:
    about = (
        "Replace exact text in a file that was read before. old must occur exactly once, unless replace_all; "
        "give enough lines around it, without line numbers. Either old and new, or edits: all are made, or none."
    )
    return make_tool("edit", Edit, wrap_write(_edit), about, interrupt="block")


def _edit(arguments: Edit, job: ToolJob) -> ToolResult:
    changes = _parse_changes(arguments)
    place = job.resolve_path(arguments.path)
    with hold_file(place) as held:
        data, status = held.read(job.context.limits.read_file)
        job.context.seen.check(place, status, unseen=False)
        # Bytes that are no UTF-8 are carried along as they are.
        before = data.decode(errors="surrogateescape")
        after = _apply_changes(before, changes, place, job)
        keep_copy(job.context, held, data)
        stamp: FileStamp = held.replace(after.encode(errors="surrogateescape"), status)
    job.context.seen.note(place, stamp)
    lines = diff(before, after)
    shown = "\n".join(cut_diff(lines))
    return ToolResult(
        (TextBlock(f"{place.shown}: changed\n{shown}"),), details={"path": place.shown, "diff": shown, **count_changes(lines)}
    )


def _parse_changes(arguments: Edit) -> Sequence[Change]:
    if arguments.edits and (arguments.old or arguments.new):
        raise ToolFailure("INVALID_ARGS", "edit: both `edits` and `old` are given", "give either `edits` or `old` and `new`")
    changes = arguments.edits or [Change(arguments.old, arguments.new, arguments.replace_all)]
    for change in changes:
        if not change.old:
            raise ToolFailure("INVALID_ARGS", "edit: `old` is missing or empty", "name the text to replace; write makes a new file")
        if change.old == change.new:
            raise ToolFailure("INVALID_ARGS", "edit: `old` and `new` are the same", "nothing was changed")
        encode_text(change.old, "old")
        encode_text(change.new, "new")
    return changes


def _apply_changes(text: str, changes: Sequence[Change], place: WorkspacePath, job: ToolJob) -> str:
    """All changes made, one after the other. Line endings stay as the file has them, and so does a byte order mark."""
    mark = _BOM if text.startswith(_BOM) else ""
    before = now = text.removeprefix(mark)
    for number, change in enumerate(changes, 1):
        who = place.shown if len(changes) == 1 else f"{place.shown}, edit {number} of {len(changes)}"
        now = _apply_change(now, change, who, job.context.limits.read_file)
        job.wanted.check()  # the last time after the last one: what has begun is finished
    if now == before:
        raise ToolFailure("INVALID_ARGS", f"{place.shown}: together the edits change nothing")
    return mark + now


def _apply_change(text: str, change: Change, who: str, most: int) -> str:
    old, new = change.old, change.new
    returns = text.count("\r\n")
    if returns and (returns == text.count("\n") or old not in text):
        old, new = _NEWLINE.sub("\r\n", old), _NEWLINE.sub("\r\n", new)
    first = text.find(old)
    if first < 0:
        raise ToolFailure("INVALID_ARGS", f"{who}: `old` is not in it; nothing was changed", _suggest_fix(text, old))
    if not change.replace_all:
        if text.find(old, first + 1) >= 0:
            lines = [str(text.count("\n", 0, at) + 1) for at in _find_matches(text, old)]
            more = " and others" if len(lines) == _TOLD else ""
            hint = "give more of the lines around the one that is meant, or set replace_all"
            raise ToolFailure("NOT_UNIQUE", f"{who}: `old` is there more than once, at lines {', '.join(lines)}{more}", hint)
        return text[:first] + new + text[first + len(old) :]
    size = len(text) + text.count(old) * (len(new) - len(old))
    if size > most:  # before it is made: a short text may be there a million times
        raise ToolFailure("FILE_TOO_LARGE", f"{who}: it would have {size} characters, and at most {most} are allowed")
    return text.replace(old, new)


def _find_matches(text: str, old: str) -> Iterator[int]:
    """Where it is, overlapping ones too; the first few."""
    at = text.find(old)
    for _ in range(_TOLD):
        if at < 0:
            return
        yield at
        at = text.find(old, at + 1)


def _suggest_fix(text: str, old: str) -> str:
    """The usual mistake is white space. Looked for as text, because to compare lines takes for ever where all are alike."""
    wanted, there = (f"\n{_strip_lines(part)}\n" for part in (old.strip(), text))
    if (at := there.find(wanted)) >= 0:
        line = there.count("\n", 0, at) + 1
        return f"line {line} has the same text with other white space: read it there and copy it exactly"
    return "read the file again and copy the text exactly, without the line numbers"


def _strip_lines(text: str) -> str:
    return "\n".join(line.strip() for line in text.split("\n"))


def diff(before: str, after: str) -> list[str]:
    """A unified diff. What is the same before and behind all changes is not compared: files are long and changes short."""
    old, new = before.split("\n"), after.split("\n")
    if not old[-1] and not new[-1]:  # behind the last newline is no line
        old, new = old[:-1], new[:-1]
    start = _count_common(old, new)
    end = _count_common(old[start:][::-1], new[start:][::-1])
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
                lines += (_format_line(" ", line) for line in a[a1:a2])
            else:
                lines += (_format_line("-", line) for line in a[a1:a2])
                lines += (_format_line("+", line) for line in b[b1:b2])
    return lines


def cut_diff(lines: list[str]) -> list[str]:
    """As much of a diff as a model is told."""
    return lines if len(lines) <= _DIFF else [*lines[:_DIFF], f"[… {len(lines) - _DIFF} more lines]"]


def count_changes(lines: list[str]) -> dict[str, int]:
    """What a diff comes to, as guests of piglet know it (spec piglet 5.3)."""
    signs = Counter(line[:1] for line in lines)
    return {"files": 1, "hunks": signs["@"], "added": signs["+"], "removed": signs["-"]}


def _count_common(a: list[str], b: list[str]) -> int:
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _format_line(sign: str, line: str) -> str:
    line = line.removesuffix("\r").encode(errors="replace").decode()
    return sign + (line if len(line) <= _DIFF_LINE else f"{line[:_DIFF_LINE]}…")

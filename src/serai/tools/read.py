"""The tool `read`: a file's lines with their numbers, or an image."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from serai.limits import KIB, MIB, Limits
from serai.model.tools import ImageBlock, TextBlock, ToolResult
from serai.tools.failing import Failed
from serai.tools.files import Stamp, opened
from serai.tools.places import Place
from serai.tools.tool import Arguments, Job, Tool, looking, make_tool

__all__ = ["BINARY", "image_of", "tool"]

_LINES = 2000
_LINE = 2000  # characters of one line
_IMAGE = 5 * MIB  # what model providers take
BINARY = 8 * KIB  # bytes that are looked at: text has no NUL among them

_IMAGES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF87a", "image/gif"), (b"GIF89a", "image/gif"))


class Read(Arguments, frozen=True):
    path: Annotated[str, Meta(min_length=1)]
    offset: Annotated[int, Meta(ge=1, description="first line, from 1")] = 1
    limit: Annotated[int, Meta(ge=1, description="lines at most")] = _LINES


def tool(limits: Limits) -> Tool:
    about = (
        f"Read a text file with line numbers (number, tab, line), or an image (png, jpeg, gif, webp). "
        f"At most {_LINES} lines and {limits.tool_output // KIB} KiB at once; go on with offset."
    )
    return make_tool("read", Read, looking(_read), about, background=True)


def _read(arguments: Read, job: Job) -> ToolResult:
    place = job.place(arguments.path)
    with opened(place) as spot:
        data, status = spot.read(job.shop.limits.read_file)
        job.wanted.check()
        if mime := image_of(data):
            if len(data) > _IMAGE:
                raise spot.too_large(len(data), _IMAGE)
            return ToolResult((TextBlock(f"[{place.shown}: {mime}, {len(data)} bytes]"), ImageBlock(data, mime)))
    if b"\0" in data[:BINARY]:
        hint = "bash has file, strings, xxd and iconv for it"
        raise Failed("INVALID_ARGS", f"{place.shown} is binary, no text ({len(data)} bytes)", hint)
    result = ToolResult.of(_numbered(data, arguments, place, job.shop.limits.tool_output))
    job.shop.seen.note(place, Stamp.of(status))
    return result


def image_of(data: bytes) -> str:
    """The kind of image, by its first bytes: names lie. Empty for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for start, mime in _IMAGES if data.startswith(start)), "")


def _numbered(data: bytes, asked: Read, place: Place, most: int) -> str:
    if not data:
        return f"[{place.shown} is empty]"
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not lines[-1]:  # what follows the last newline is no line
        lines.pop()
    if asked.offset > len(lines):
        raise Failed("INVALID_ARGS", f"offset {asked.offset} is behind the end: {place.shown} has {len(lines)} lines")
    shown: list[str] = []
    size, odd = 0, False
    for number, line in enumerate(lines[asked.offset - 1 : asked.offset - 1 + min(asked.limit, _LINES)], asked.offset):
        text = line.removesuffix(b"\r").decode(errors="replace")
        odd = odd or ("\ufffd" in text and not _is_utf8(line))
        if len(text) > _LINE:
            text = f"{text[:_LINE]}… [{len(text) - _LINE} more characters]"
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

"""The tool `write`: a whole file, new or in the place of another."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from serai.errors import NotWritten
from serai.limits import Limits
from serai.model.tools import TextBlock, ToolResult
from serai.tools.failing import Failed
from serai.tools.files import Spot, opened
from serai.tools.places import plain
from serai.tools.tool import Arguments, Job, Tool, Workshop, changing, make_tool

__all__ = ["encoded", "keep_copy", "tool"]


class Write(Arguments, frozen=True):
    path: Annotated[str, Meta(min_length=1)]
    content: str


def tool(_: Limits) -> Tool:
    about = "Write a whole file; folders that are missing are made, a file that is there is replaced. To change a part, use edit."
    return make_tool("write", Write, changing(_write), about, interrupt="block")


def _write(arguments: Write, job: Job) -> ToolResult:
    if arguments.path.endswith("/"):
        raise Failed("NOT_REGULAR_FILE", f"{plain(arguments.path)} names a folder", "name the file that is to be written")
    data = encoded(arguments.content, "content")
    place = job.place(arguments.path)
    job.wanted.check()  # before folders are made
    with opened(place, make=True) as spot:
        old = spot.status()
        if old is not None:
            # One that was never read may be replaced, there is a copy of it; one that changed behind our back may not.
            job.shop.seen.check(place, old, unseen=True)
        job.wanted.check()  # the last time: what has begun is finished
        before = b""
        if old is not None and job.shop.undo is not None and old.st_size <= job.shop.undo.most:
            before = spot.read(job.shop.undo.most)[0]
            keep_copy(job.shop, spot, before)
        stamp = spot.replace(data, old)
    job.shop.seen.note(place, stamp)
    what = "made" if old is None else f"replaced ({old.st_size} bytes before)"
    return ToolResult(
        (TextBlock(f"{place.shown}: {what}, {len(data)} bytes"),), details={"path": place.shown, **_counts(data, before)}
    )


def _counts(new: bytes, old: bytes) -> dict[str, int]:
    """As guests of piglet know them (spec piglet 5.3): all lines are new, and as far as they were looked at all others gone."""
    added, removed = (len(text.splitlines()) for text in (new, old))
    return {"files": 1, "hunks": 1, "added": added, "removed": removed}


def encoded(text: str, name: str) -> bytes:
    """As UTF-8; half a character, which JSON can spell, is none."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Failed("INVALID_ARGS", f"`{name}` has half a character (a lone surrogate) in it") from None


def keep_copy(shop: Workshop, spot: Spot, data: bytes) -> None:
    """The copy is on disk before the change; without it nothing is changed."""
    try:
        if shop.undo is not None and len(data) <= shop.undo.most:
            shop.undo.keep(spot.place.path, data)
    except NotWritten as error:
        raise Failed("IO_ERROR", f"{spot.place.shown} is left as it is: {error.message}", error.hint) from None

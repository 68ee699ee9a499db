"""What a program says, made fit for a model and for whoever watches: bounded, text, no escapes."""

from __future__ import annotations

import asyncio
import codecs
import logging
import re

from serai.model.tools import ProgressCallback

__all__ = ["Teller", "both_ends", "clean", "shorten"]

log = logging.getLogger("serai.tools")

# What terminals obey and nobody reads: CSI, OSC and its kin (also without an end), and the short ones.
_ESCAPE = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]?")
_UNFINISHED = re.compile(r"(?:\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]*|[ -/]*)|\x9b[0-?]*[ -/]*)\Z")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_RETURN = re.compile(r"\r+\n?")

_PAUSE = 0.05  # seconds between two pieces for whoever watches
_LONGEST = 256  # characters of an escape that is waited for
_PIECE = 16 * 1024  # characters: of more only the newest are shown


def clean(text: str) -> str:
    """Text without escapes and control characters. A lone carriage return begins a line: what it would hide is kept."""
    return _RETURN.sub("\n", _bare(text))


def _bare(text: str) -> str:
    return _CONTROL.sub("", _ESCAPE.sub("", text))


def both_ends(head: bytes, tail: bytes, total: int, most: int) -> str:
    """What was said, of which `head` are the first bytes and `tail` the last; at most about `most` bytes of it."""
    if total <= len(tail):
        return shorten(clean(tail.decode(errors="replace")), most)
    head, tail = head[: most // 2], tail[-(most // 2) :]
    # At ends of lines where there are some, so that no line is taken for another; never within a character.
    if head.rfind(b"\n") >= len(head) // 2:
        head = head[: head.rfind(b"\n") + 1]
    if 0 <= tail.find(b"\n") < len(tail) // 2:
        tail = tail[tail.find(b"\n") + 1 :]
    first = codecs.getincrementaldecoder("utf-8")("replace").decode(head)
    last = tail.lstrip(bytes(range(0x80, 0xC0))) if tail[:1] > b"\x7f" else tail
    left_out = total - len(head) - len(tail)
    return f"{shorten(clean(first), most // 2)}\n{_left_out(left_out)}\n{shorten(clean(last.decode(errors='replace')), most // 2)}"


def shorten(text: str, most: int) -> str:
    """At most so many bytes, its beginning and its end."""
    data = text.encode(errors="replace")
    if len(data) <= most:
        return text
    first, last = data[: most // 2].decode(errors="ignore"), data[-(most // 2) :].decode(errors="ignore")
    return f"{first}\n{_left_out(len(data) - most)}\n{last}"


def _left_out(count: int) -> str:
    return f"[… {count} bytes left out …]"


class Teller:
    """Tells whoever watches what a program says, as text and not too often; of a flood the newest."""

    def __init__(self, tell: ProgressCallback) -> None:
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""  # the beginning of an escape
        self._returns = ""  # carriage returns: what follows says what they mean
        self._waiting = ""
        self._left_out = 0
        self._timer: asyncio.TimerHandle | None = None

    def take(self, chunk: bytes) -> None:
        self._add(self._decoder.decode(chunk))
        if self._timer is None:
            self._speak()
            self._timer = self._loop.call_later(_PAUSE, self._again)

    def finish(self) -> None:
        """Tell the rest."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._add(self._decoder.decode(b"", final=True), last=True)
        self._speak()

    def _again(self) -> None:
        self._timer = None
        if self._waiting:
            self._speak()
            self._timer = self._loop.call_later(_PAUSE, self._again)

    def _add(self, text: str, *, last: bool = False) -> None:
        text = self._held + text
        unfinished = None if last else _UNFINISHED.search(text)
        cut = unfinished.start() if unfinished else len(text)
        if len(text) - cut > _LONGEST:  # it never ends
            cut = len(text)
        self._held = text[cut:]
        bare = self._returns + _bare(text[:cut])
        rest = bare if last else bare.rstrip("\r")
        self._returns = "\r" if len(rest) < len(bare) else ""
        self._waiting += _RETURN.sub("\n", rest)
        if len(self._waiting) > _PIECE:
            self._left_out += len(self._waiting) - _PIECE
            self._waiting = self._waiting[-_PIECE:]

    def _speak(self) -> None:
        text, self._waiting = self._waiting, ""
        if self._left_out:
            text = f"\n[… {self._left_out} characters not shown …]\n{text}"
            self._left_out = 0
        try:
            if text:
                self._tell(text)
        except Exception:  # theirs; the program goes on
            log.exception("whoever watches a tool failed")

"""What an extension says of itself on stderr, where its host keeps a log."""

from __future__ import annotations

import sys
from types import TracebackType

__all__ = ["Remarks", "told"]

_FRAMES = 6  # of a trace: the last ones are the author's
_TEXT = 2000


class Remarks:
    def __init__(self, name: str) -> None:
        self._name = name

    def say(self, text: str) -> None:
        try:
            sys.stderr.write("".join(f"[{self._name}] {line}\n" for line in text.split("\n")))
            sys.stderr.flush()
        except (AttributeError, OSError, ValueError):  # there is no stderr, or it was closed: nobody reads it anyway
            pass

    def trace(self, what: str, error: BaseException) -> None:
        """What went wrong, and the few lines of code that lead there."""
        lines = [f"{what}: {told(error)}", *_frames(error.__traceback__)]
        if (cause := error.__cause__) is not None:
            lines += [f"  because of {told(cause)}", *_frames(cause.__traceback__)]
        self.say("\n".join(lines))


def told(error: BaseException, *, named: bool = True) -> str:
    """An exception for whoever asked, a model or a person."""
    try:
        text = str(error)
    except Exception:  # an exception's own defect must not hide it
        text, named = "", True
    if not named:
        return text
    name = type(error).__name__
    return f"{name}: {text[:_TEXT]}" if text else name


def _frames(trace: TracebackType | None) -> list[str]:
    import traceback

    here = __file__.rpartition("/")[0]
    frames = [frame for frame in traceback.extract_tb(trace) if not frame.filename.startswith(here)]
    return [f"  {frame.filename.rpartition('/')[2]}:{frame.lineno} in {frame.name}: {frame.line}" for frame in frames[-_FRAMES:]]

"""What a finding quotes of a guest. What looks like a secret is masked first: a text that is cut may lose what tells it is one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from serai.record import secret_patterns
from serai.testing.zot_host.process import SHOWN, GuestProcess, show

__all__ = ["frame", "last_words", "masked", "transcript"]

_TAIL = 600  # of stderr, in a finding
_BEFORE = 1 << 16  # bytes around what is shown: longer than a key
_LINES = 300  # of what was said: more than a key has


def frame(who: str, raw: bytes) -> str:
    """One line of the host or the guest. Of a long one only the beginning is shown."""
    return show(who, secret_patterns.mask(raw[:_BEFORE]) + raw[_BEFORE:])


def masked(lines: Sequence[bytes]) -> list[bytes]:
    """Lines of a guest, masked as one text: a key goes over several."""
    whole = secret_patterns.mask(b"".join(lines))  # as long as it was
    return [whole[start:end] for start, end in pairwise(accumulate(map(len, lines), initial=0))]


def transcript(process: GuestProcess, since: int = 0) -> list[str]:
    """The last of what was said: from the host (→) and from the guest (←)."""
    said = process.transcript[-_LINES:]
    safe = iter(masked([raw for who, raw in said if who == "guest"]))
    read = [(who, next(safe) if who == "guest" else raw) for who, raw in said]
    shown = min(SHOWN, len(process.transcript) - since)
    return [show(who, raw if who == "guest" else secret_patterns.mask(raw)) for who, raw in read[len(read) - shown :]]


def last_words(process: GuestProcess) -> str:
    """The end of its stderr."""
    return secret_patterns.mask_text(process.last_words(_BEFORE))[-_TAIL:].strip()

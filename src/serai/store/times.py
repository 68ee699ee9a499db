"""Times as sessions write them: RFC 3339, in UTC, to the nanosecond."""

from __future__ import annotations

import re
import time
from datetime import date

__all__ = ["ZERO", "parse", "text"]

# What other writers put where no time was set.
ZERO = "0001-01-01T00:00:00Z"

_SECOND = 1_000_000_000
_FORM = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ]([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)(?:[.,](\d+))?(?:[Zz]|([+-])(\d\d):?([0-5]\d))?", re.ASCII
)
_EPOCH = date(1970, 1, 1).toordinal()


def text(ns: int | None = None) -> str:
    """A time in nanoseconds since 1970, or now."""
    seconds, rest = divmod(time.time_ns() if ns is None else ns, _SECOND)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:09}Z"


def parse(written: str) -> int:
    """Nanoseconds since 1970; 0 for the zero time and for what is no time: nobody chokes on those (spec piglet 6.2)."""
    match = _FORM.fullmatch(written)
    if match is None or written == ZERO:
        return 0
    year, month, day, hour, minute, second, fraction, sign, ahead, minutes = match.groups()
    try:
        days = date(int(year), int(month), int(day)).toordinal() - _EPOCH
    except ValueError:  # the 30th of February
        return 0
    seconds = ((days * 24 + int(hour)) * 60 + int(minute)) * 60 + int(second)
    if sign:
        offset = (int(ahead) * 60 + int(minutes)) * 60
        seconds += offset if sign == "-" else -offset
    return seconds * _SECOND + int((fraction or "0")[:9].ljust(9, "0"))

"""Values known to be secret, and how they are masked on their way into a recording (design rule 13).

A value is looked for in every form in which a wire may carry it: as it is, as JSON escapes it (encoders differ), percent-encoded,
in hexadecimal, and inside base64 at any of its three alignments. Each hit is replaced at equal length by characters that keep
the frame what it was: JSON stays JSON, base64 stays base64, a number stays a number. So masked frames decode and replay.

All forms of all values are found in one pass (Aho-Corasick with SIMD prefilter, gigabytes a second), because every byte of every
wire goes through here.

Not masked: values shorter than `SHORTEST`, which would match everywhere (they are named in the recording), and a value that
comes in pieces, such as in the deltas of a stream.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus

from ahocorasick_rs import BytesAhoCorasick, MatchKind

from serai.wire import environ

__all__ = ["SHORTEST", "Secrets"]

log = logging.getLogger("serai.record")

SHORTEST = 6
# A searcher with more patterns than this loses its SIMD prefilter and gets ten times slower: two searchers are quicker.
_PATTERNS = 60
# Of a value cut off at the end of what was kept, this many bytes are taken for a part of it.
_PART = 4


class Secrets:
    """The secret values of one host. May grow at any time, from any thread: what is written from then on is masked."""

    def __init__(self, values: Iterable[tuple[str, str]] = ()) -> None:
        self._masks: dict[bytes, bytes] = {}  # by the form looked for, what stands in its place
        self._searchers: tuple[BytesAhoCorasick, ...] = ()
        self.too_short: set[str] = set()  # names of values that cannot be masked
        self.add(*values)

    @classmethod
    def of(cls, variables: Mapping[str, str], *names: str) -> Secrets:
        """The values of all variables that look like credentials, and of the named ones whatever they look like."""
        return cls((name, value) for name, value in variables.items() if name in names or environ.looks_secret(name, value))

    def __len__(self) -> int:
        """How many forms are looked for."""
        return len(self._masks)

    def add(self, *values: tuple[str, str]) -> None:
        """Learn values with their names. What a person would call several (the lines of a key) is masked line by line."""
        masks = dict(self._masks)
        for name, value in values:
            lines = [line for line in value.splitlines() if len(line.strip()) >= SHORTEST]
            if value.strip() and not lines:
                self.too_short.add(name)
            for line in lines:
                masks.update(_forms(line.strip()))
        if len(masks) > len(self._masks):
            patterns = list(masks)
            groups = [patterns[at : at + _PATTERNS] for at in range(0, len(patterns), _PATTERNS)]
            self._masks = masks  # before those who search for it: another thread may be writing
            self._searchers = tuple(BytesAhoCorasick(group, matchkind=MatchKind.LeftmostLongest) for group in groups)

    def mask(self, data: bytes) -> bytes:
        """The same bytes with every known value masked at equal length; the very same object when there is none."""
        for searcher in self._searchers:
            if found := searcher.find_matches_as_indexes(data):
                masked = bytearray(data)
                for _, start, end in found:
                    masked[start:end] = self._masks[data[start:end]]
                data = bytes(masked)
        return data

    def mask_piece(self, data: bytes) -> bytes:
        """Like `mask`, for a piece cut out of something longer: parts of values at its two ends are masked too."""
        data = self.mask(data)
        for form, mask in self._masks.items():
            for size in range(min(len(form) - 1, len(data)), _PART - 1, -1):
                if data.startswith(form[-size:]):
                    data = mask[-size:] + data[size:]
                if data.endswith(form[:size]):
                    data = data[:-size] + mask[:size]
        return data


def _forms(value: str) -> Iterator[tuple[bytes, bytes]]:
    """Every form of a value on a wire, with its mask."""
    raw = value.encode(errors="surrogateescape")
    plain = {raw, quote(value, safe="", errors="surrogateescape").encode(), quote_plus(value, errors="surrogateescape").encode()}
    plain |= set(_escaped(value))
    filler = b"1" if value.isdigit() else b"*"
    yield from ((form, filler * len(form)) for form in plain)
    for form in (raw.hex(), raw.hex().upper()):
        yield form.encode(), b"0" * len(form)
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for skip in range(3):
            # What stands before shifts the value by `skip` bytes; only the characters that the value alone decides are known.
            inside = encode(b"\0" * skip + raw)[(skip * 8 + 5) // 6 : (skip + len(raw)) * 8 // 6]
            if len(inside) >= SHORTEST:
                yield inside, b"x" * len(inside)


def _escaped(value: str) -> Iterator[bytes]:
    """As the JSON encoders write it: UTF-8 as it is or all in ASCII; slashes or HTML's characters escaped."""
    for text in (json.dumps(value, ensure_ascii=False)[1:-1], json.dumps(value)[1:-1]):
        yield text.encode(errors="surrogateescape")
        yield text.replace("/", "\\/").encode(errors="surrogateescape")
        html = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
        yield html.encode(errors="surrogateescape")

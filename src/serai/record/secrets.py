"""Values known to be secret, and how they are masked on their way into a recording (design rule 13).

A value is looked for in every form in which a wire may carry it: as it is, as JSON escapes it (encoders differ; also JSON inside
JSON), percent-encoded, in hexadecimal, and inside base64 at any of its three alignments. Each hit is replaced at equal length by
characters that keep the frame what it was: JSON stays JSON, base64 stays base64, a number stays a number. So masked frames decode
and replay.

All forms of all values are looked for in one pass (Aho-Corasick with a SIMD prefilter, gigabytes a second), because every byte of
every wire goes through here. Only where something is found, each form is looked for by itself, so that values may overlap.

Not masked: values shorter than `SHORTEST`, which would match everywhere (they are named in the recording); a value that comes in
pieces, such as in the deltas of a stream or in base64 that is wrapped into lines; one that was compressed or encrypted.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus

from ahocorasick_rs import BytesAhoCorasick, MatchKind

from serai.wire import process

SHORTEST = 6
# A searcher with more patterns than this loses its SIMD prefilter and gets ten times slower: two searchers are quicker.
_PATTERNS = 60
# Of a value cut off at the end of what was kept, this many bytes are taken for a part of it.
_PART = 4
# What a decoder puts in place of half a character; the tail of a stderr may begin with it.
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}".encode()
# They look like credentials by their family, but their values are everyday words.
_PUBLIC = frozenset({"AWS_DEFAULT_OUTPUT", "AWS_DEFAULT_REGION", "AWS_PAGER", "AWS_PROFILE", "AWS_REGION", "SSH_AGENT_PID"})


class Secrets:
    """The secret values of one host. May grow at any time, from any thread: what is written from then on is masked."""

    def __init__(self, values: Iterable[tuple[str, str]] = ()) -> None:
        self._lock = threading.Lock()
        self._masks: dict[bytes, bytes] = {}  # by the form looked for, what stands in its place
        self._searchers: tuple[BytesAhoCorasick, ...] = ()
        self.too_short: set[str] = set()  # names of values that cannot be masked, or not all of them
        self.add(*values)

    @classmethod
    def from_env(cls, variables: Mapping[str, str], *names: str) -> Secrets:
        """The values of all variables that look like credentials, and of the named ones whatever they look like."""
        return cls(
            (name, value)
            for name, value in variables.items()
            if name in names or (name not in _PUBLIC and process.looks_secret(name, value))
        )

    def __len__(self) -> int:
        """How many forms are looked for."""
        return len(self._masks)

    def add(self, *values: tuple[str, str]) -> None:
        """Learn values with their names. What has parts (lines of a key, strings of a JSON object) is masked by parts."""
        with self._lock:
            masks = dict(self._masks)
            for name, value in values:
                leaves = _parse_leaves(value)
                lines = [line.strip() for part in leaves or [value] for line in part.splitlines() if line.strip()]
                long = [line for line in lines if len(line) >= SHORTEST]
                if len(long) < len(lines) and not (leaves and long):  # most objects hold short strings that are no secret
                    self.too_short = self.too_short | {name}
                for line in long:
                    masks.update(_iter_forms(line))
            if len(masks) > len(self._masks):
                patterns = list(masks)
                groups = [patterns[at : at + _PATTERNS] for at in range(0, len(patterns), _PATTERNS)]
                self._masks = masks  # before those who search for it: another thread may be writing
                self._searchers = tuple(BytesAhoCorasick(group, matchkind=MatchKind.LeftmostLongest) for group in groups)

    def mask(self, data: bytes) -> bytes:
        """The same bytes with every known value masked at equal length; the very same object when there is none."""
        for searcher in self._searchers:
            if searcher.find_matches_as_indexes(data):
                return self._mask_each(data)
        return data

    def mask_text(self, text: str) -> str:
        """The same for text, which can be encoded afterwards whatever it held."""
        return self.mask(encode_secret(text)).decode(errors="replace")

    def mask_piece(self, data: bytes) -> bytes:
        """Like `mask`, for a piece cut out of something longer: parts of values at its two ends are masked too."""
        data = self.mask(data)
        start = 0
        while data.startswith(_REPLACEMENT, start):
            start += len(_REPLACEMENT)
        for form, mask in self._masks.items():
            for size in range(min(len(form) - 1, len(data) - start), _PART - 1, -1):
                if data.startswith(form[-size:], start):
                    data = data[:start] + mask[-size:] + data[start + size :]
                if data.endswith(form[:size]):
                    data = data[:-size] + mask[:size]
        return data

    def _mask_each(self, data: bytes) -> bytes:
        """Every occurrence of every form, also where two overlap: each is looked for in what was there, not in what is masked."""
        masked = bytearray(data)
        for form, mask in self._masks.items():
            at = data.find(form)
            while at >= 0:
                masked[at : at + len(form)] = mask
                at = data.find(form, at + 1)
        return bytes(masked)


def encode_secret(text: str) -> bytes:
    """As the operating system has it, where it came from there; what cannot be encoded at all is replaced."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="replace")


def _parse_leaves(value: str) -> list[str]:
    """The strings and numbers in a JSON object or array, each of which may come alone; nothing of any other value."""
    if value.lstrip()[:1] not in ("{", "["):
        return []
    try:
        return list(_iter_leaves(json.loads(value)))
    except (ValueError, RecursionError):
        return []


def _iter_leaves(value: object) -> Iterator[str]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _iter_leaves(inner)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)


def _iter_forms(value: str) -> Iterator[tuple[bytes, bytes]]:
    """Every form of a value on a wire, with its mask."""
    raw = encode_secret(value)
    number = re.fullmatch(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", value)
    for form in {
        raw,
        raw.decode(errors="replace").encode(),
        *map(encode_secret, _escape_json(value)),
        *map(str.encode, _percent_encode(value)),
    }:
        yield form, re.sub(rb"[0-9]", b"1", form) if number else b"*" * len(form)
    for form in (raw.hex().encode(), raw.hex().upper().encode()):
        yield form, b"1" * len(form)
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for skip in range(3):
            # What stands before shifts the value by `skip` bytes; only the characters that the value alone decides are known.
            inside = encode(b"\0" * skip + raw)[(skip * 8 + 5) // 6 : (skip + len(raw)) * 8 // 6]
            if len(inside) >= SHORTEST:
                text = inside.decode()
                for carried in {text, *(escape(text) for escape in _ESCAPES), *_percent_encode(text)}:
                    yield carried.encode(), b"x" * len(carried)


def _percent_encode(value: str) -> Iterator[str]:
    """As URLs carry it: encoders differ in what they leave alone, and in the case of the digits."""
    for safe in ("", "/", "!'()*", "/!'()*"):
        for form in (quote(encode_secret(value), safe=safe), quote_plus(encode_secret(value), safe=safe)):
            yield form
            yield re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), form)


def _escape_json(value: str) -> set[str]:
    """As JSON encoders write it, and as they write a JSON text that holds it."""
    once = {escape(value) for escape in _ESCAPES}
    return once | {escape(text) for escape in _ESCAPES for text in once if text != value}


def _make_escape(special: str, digits: str = "04x") -> Callable[[str], str]:
    """An encoder that writes what matches `special` by its number, on top of what every encoder must escape."""

    def escape_match(found: re.Match[str]) -> str:
        units = found[0][-1].encode("utf-16-be", errors="surrogatepass")
        return "".join(f"\\u{int.from_bytes(units[at : at + 2]):{digits}}" for at in range(0, len(units), 2))

    return lambda text: re.sub(special, escape_match, json.dumps(text, ensure_ascii=False)[1:-1])


_ESCAPES = (
    _make_escape("(?!)"),  # UTF-8 as it is
    _make_escape(r"[^\x00-\x7f]"),  # all in ASCII, as Python does
    _make_escape(r"[^\x00-\x7f]", "04X"),
    _make_escape(r"[<>&\u2028\u2029]"),  # fit for HTML, as Go does
    _make_escape(r"[<>&='\u2028\u2029]"),  # and as Gson does
    _make_escape(r"[^\x00-\x7f]|[<>&'+`]|\\\"", "04X"),  # and as .NET does
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1].replace("/", "\\/"),  # PHP, some in JavaScript
    lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
)

"""What looks like a secret, masked at equal length whenever a recording is shown or exported (design rule 13).

By looks only: some secrets have none, and some things only look like one. Rather too often than too seldom; whoever needs the bytes
themselves has them in their own recording. JSON stays JSON: only what is inside a string is ever masked.

Input comes from programs one may not trust, so every pattern here takes linear time and no memory to speak of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Where a word begins; in a JSON string also after an escaped line end.
_START = rb"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))"
# Tokens that say what they are.
_TOKENS = re.compile(
    _START
    + rb"""(?:
        sk-[A-Za-z0-9_-]{16,}+ | sess-[A-Za-z0-9]{20,}+                        # Anthropic, OpenAI and those who do the same
      | (?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}+ | whsec_[A-Za-z0-9]{16,}+ # Stripe
      | gh[pousr]_[A-Za-z0-9]{20,}+ | github_pat_[A-Za-z0-9_]{20,}+            # GitHub
      | gl(?:pat|dt|rt|ft|soat)-[A-Za-z0-9_-]{16,}+                            # GitLab
      | (?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}                                    # AWS
      | AIza[A-Za-z0-9_-]{30,}+ | ya29\.[A-Za-z0-9_-]{20,}+ | GOCSPX-[A-Za-z0-9_-]{16,}+                # Google
      | xox[abeoprs]-[A-Za-z0-9-]{10,}+ | xapp-[A-Za-z0-9-]{10,}+              # Slack
      | (?:xai|pplx|nvapi|r8|gsk|hf|npm|pypi|dckr_pat|shpat|shpss|tgp_v1|figd|lin_api|rnd|ntn|secret)[-_][A-Za-z0-9_-]{20,}+
      | hv[sb]\.[A-Za-z0-9_-]{20,}+ | dop_v1_[a-f0-9]{32,}+ | AGE-SECRET-KEY-[A-Z0-9]{20,}+
      | SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,}+
      | eyJ[A-Za-z0-9_-]{8,8192}\.[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*+)?     # a JSON web token
    )""",
    re.VERBOSE,
)
# What stands around a secret; the group is what goes.
_AROUND = (
    re.compile(rb"://[^/\s@:\"'\\]{0,256}+:([^/\s@\"'\\]{1,1024}+)@"),  # the password in a URL
    re.compile(rb"https?://([^/\s@:\"'\\]{8,1024}+)@"),  # or a token for a user
    re.compile(rb"hooks\.slack\.com/services/([A-Za-z0-9/_-]{16,}+)"),
    re.compile(rb"\b(?:bearer|basic|token)\s{1,8}+([A-Za-z0-9._~+/=-]{8,}+)", re.IGNORECASE),
    re.compile(rb"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----([^\"'-]++)"),
)
# Where a key ends; what may stand before that, line ends included, also as a JSON string has them.
_KEY_END = re.compile(rb"-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BYTES = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/= \t\r\n\\"
# A name that says that its value is secret, up to where the value may begin.
_NAME = re.compile(
    rb"""(?: passw(?:or)?d | passphrase | \bpwd | secret | token | api[_-]?key | access[_-]?key | private[_-]?key | account[_-]?key
           | authorization | credentials? | cookie | \bsig(?!nal) )
         [A-Za-z0-9_-]{0,20}+
         (?: (?P<escapes>\\{0,15}+)(?P<quote>["'])\s{0,8}+:\s{0,8}+(?P=escapes)(?P=quote)     # "api_key": "x", 'password': 'x'
           | (?P<bare>\s{0,8}+[=:]\s{0,8}+|(?<=[a-z])\s++(?![=:])) )                          # TOKEN=x, password: x, --password x
    """,
    re.VERBOSE | re.IGNORECASE,
)
_OPTION = re.compile(rb"--[A-Za-z-]{0,40}+$")
# A value without quotes around it, or with its own; an escape in front of it that is no quote's is left alone, and so is what no
# string can be around.
_BARE = re.compile(rb"(?:\\[nrt])?(?:\\{0,15}+(?P<own>[\"']))?(?P<value>[^\s\"'\\;&,{}\[\]:][^\s\"'\\;&,{}\[\]]{5,}+)")
_QUOTES = re.compile(rb"(?<!\\)(\\*+)([\"'])")  # with all the backslashes before it
_SHORTEST = 6

_STARS = bytes(byte if byte in b"\r\n" else ord("*") for byte in range(256))


def mask(frame: bytes) -> bytes:
    """One frame, or one text, with look-alikes masked."""
    masked = bytearray(frame)
    for start, end in _find_secrets(frame):
        masked[start:end] = frame[start:end].translate(_STARS)
    return bytes(masked)


def mask_run(run: bytes) -> bytes:
    """Every line of a run by itself: what one line begins is not the next one's business."""
    return b"".join(map(mask, run.splitlines(keepends=True)))


def mask_text(text: str) -> str:
    return mask(text.encode(errors="replace")).decode(errors="replace")


def _find_secrets(frame: bytes) -> Iterator[tuple[int, int]]:
    for token in _TOKENS.finditer(frame):
        yield token.span()
    for pattern in _AROUND:
        for around in pattern.finditer(frame):
            yield _trim_escape(frame, *around.span(1))
    yield from _find_ended_keys(frame)
    done = 0  # up to here a value was found: a name inside it needs no look of its own, or a frame of names would take for ever
    for name in _NAME.finditer(frame):
        if name.end() <= done:
            continue
        span = _find_bare(frame, name) if name["bare"] is not None else _find_quoted(frame, name)
        if span is not None and span[1] - span[0] >= _SHORTEST:
            done = span[1]
            yield span


def _find_ended_keys(frame: bytes) -> Iterator[tuple[int, int]]:
    """What stands before the end of a key: where a text was cut to its tail, nothing else says that it is one."""
    done = 0  # nothing is looked at twice
    for end in _KEY_END.finditer(frame):
        before = frame[done : end.start()].rstrip()
        yield done + len(before.rstrip(_KEY_BYTES)), done + len(before)
        done = end.end()


def _find_quoted(frame: bytes, name: re.Match[bytes]) -> tuple[int, int] | None:
    """From the opening quote to the one that closes it: the same quote, escaped as often."""
    level, start = len(name["escapes"]), name.end()
    for found in _QUOTES.finditer(frame, start):
        escapes = len(found[1])
        if escapes < level:  # the string around it ends first
            return start, found.start()
        if found[2] == name["quote"] and escapes % (2 * level + 2) == level:  # more of them are backslashes of the value's own
            return start, found.end() - 1 - level
    return _trim_escape(frame, start, len(frame))


def _find_bare(frame: bytes, name: re.Match[bytes]) -> tuple[int, int] | None:
    """A value without quotes, or with quotes around it alone. After mere space only an option has one."""
    if not name["bare"].strip() and not _OPTION.search(frame, max(0, name.start() - 60), name.start()):
        return None
    value = _BARE.match(frame, name.end())
    return value and value.span("value")


def _trim_escape(frame: bytes, start: int, end: int) -> tuple[int, int]:
    """Leave alone a backslash at the end, which may belong to the quote behind it."""
    while end > start and frame[end - 1 : end] == b"\\":
        end -= 1
    return start, end

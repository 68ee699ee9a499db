"""What looks like a secret, masked at equal length whenever a recording is shown or exported (design rule 13).

By looks only: some secrets have none, and some things only look like one. Rather too often than too seldom; whoever needs the bytes
themselves has them in their own recording.
"""

from __future__ import annotations

import re

__all__ = ["mask"]

# Tokens that say what they are.
_TOKENS = re.compile(
    rb"""
      (?:(?<![A-Za-z0-9_])|(?<=\\[nrt]))                                    # a word begins, also after an escaped line end
      (?: sk-(?:ant-|proj-|or-|live-|test-)?[A-Za-z0-9_-]{16,}            # Anthropic, OpenAI and those who do the same
          | (?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}                     # Stripe
          | gh[pousr]_[A-Za-z0-9]{20,} | github_pat_[A-Za-z0-9_]{20,}       # GitHub
          | glpat-[A-Za-z0-9_-]{16,}                                        # GitLab
          | (?:AKIA|ASIA)[A-Z0-9]{16}                                       # AWS
          | AIza[A-Za-z0-9_-]{30,} | ya29\.[A-Za-z0-9_-]{20,}               # Google
          | xox[abeoprs]-[A-Za-z0-9-]{10,} | xapp-[A-Za-z0-9-]{10,}         # Slack
          | hf_[A-Za-z0-9]{20,} | npm_[A-Za-z0-9]{20,} | pypi-[A-Za-z0-9_-]{20,}
          | dop_v1_[a-f0-9]{32,} | SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}
          | eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*         # a JSON web token
        )
    """,
    re.VERBOSE,
)
# The password or token in a URL; group 1 is what goes.
_URL = re.compile(rb"://[^/\s@:\"\\]*:([^/\s@\"\\]+)@")
_HEADER = re.compile(rb"\b(?:bearer|basic)\s+([A-Za-z0-9._~+/=-]{8,})", re.IGNORECASE)
_PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----([^\"]+?)(?:-----END|\"|$)")
# The value of a member or a variable whose name says it: "api_key": "…", GITHUB_TOKEN=…; also inside a JSON string, where quotes
# are escaped. Amounts (max_tokens) are numbers and have no quotes.
_NAMED = re.compile(
    rb"""(?:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|authorization|credentials?|cookie)
         [A-Za-z0-9_-]{0,20}
         (?: "\s*:\s*" (?P<member>(?:[^"\\]|\\.){6,})
           | \\"\s*:\s*\\" (?P<inner>(?:[^"\\]|\\(?!").){6,})
           | \s*=\s*\\?["']? (?P<variable>[^\s"'\\;&,]{6,}) )""",
    re.VERBOSE | re.IGNORECASE,
)


def mask(data: bytes) -> bytes:
    """The same bytes with look-alikes masked; JSON stays JSON."""
    data = _TOKENS.sub(lambda found: _stars(found[0]), data)
    for pattern in (_URL, _HEADER, _PRIVATE_KEY, _NAMED):
        data = pattern.sub(_mask_group, data)
    return data


def _mask_group(found: re.Match[bytes]) -> bytes:
    """What was found, with its one group that took part masked."""
    start, end = found.span(found.lastindex or 0)
    return found[0][: start - found.start()] + _stars(found.string[start:end]) + found[0][end - found.start() :]


def _stars(value: bytes) -> bytes:
    """As many stars; line ends stay."""
    return re.sub(rb"[^\r\n]", b"*", value)

"""What a child may know of our environment (design rule 13, lesson L14).

Three kinds of children, three rules:

* **guests** get everything except what looks like a credential; each further name must be granted.
* **agents** get the same, plus the names on their driver's list (patterns allowed), minus its list of what must not leak in.
* **hooks** get everything: that is how their protocol configures them.

A variable looks like a credential by its name (`…_TOKEN`, `AWS_…`) or by its value (a URL with a password in it). Withheld
names are never silently gone: `withheld` lists them for reports.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

__all__ = ["for_agent", "for_guest", "for_hook", "looks_secret", "withheld"]

# A word of the name, as names separate words: at the start, at the end, or between underscores.
_SECRET_WORDS = (
    "API_?KEYS?|ACCESS_?KEYS?|SECRET_?KEYS?|PRIVATE_?KEYS?|SIGNING_?KEYS?|ENCRYPTION_?KEYS?|KEYS?|TOKENS?|SECRETS?|PASS|PASSWD|PASSWORDS?"
    "|PASSPHRASES?|PWD|CREDENTIALS?|CREDS?|COOKIES?|AUTH|OAUTH|BEARER|JWT|PAT|SAS|DSN|SESSION_?ID|WEBHOOK(?:_URL)?"
)
_SECRET_NAME = re.compile(rf"(?:^|_)(?:{_SECRET_WORDS})(?:_|$)|(?:TOKEN|SECRET|PASSWORD|APIKEY)$", re.IGNORECASE)

# Whole families, whatever their members are called.
_SECRET_FAMILIES = ("AWS_*", "AZURE_*", "GOOGLE_APPLICATION_*", "VAULT_*", "SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO")

# Names that only sound like one.
_HARMLESS = frozenset({"PWD", "OLDPWD", "XAUTHORITY", "SESSION_MANAGER", "COLORFGBG", "KEYBOARD", "KEYMAP", "KEYTIMEOUT"})

_PASSWORD_IN_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^/\s@:]*:[^/\s@]+@")


def looks_secret(name: str, value: str = "") -> bool:
    """Whether a variable should be kept from code that was not granted it. Rather too often than too seldom."""
    if name in _HARMLESS:
        return False
    if _SECRET_NAME.search(name) or any(fnmatchcase(name.upper(), family) for family in _SECRET_FAMILIES):
        return True
    return bool(_PASSWORD_IN_URL.search(value))


def withheld(base: Mapping[str, str], grants: Iterable[str] = ()) -> list[str]:
    """The names that a guest with these grants does not get, sorted."""
    granted = frozenset(grants)
    return sorted(name for name, value in base.items() if name not in granted and looks_secret(name, value))


def for_guest(base: Mapping[str, str], *, grants: Iterable[str] = (), extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """A guest's environment. Grants are exact names: a pattern would grant tomorrow's secrets too."""
    hidden = frozenset(withheld(base, grants))
    return {name: value for name, value in base.items() if name not in hidden} | dict(extra or {})


def for_agent(
    base: Mapping[str, str],
    *,
    keep: Iterable[str] = (),
    drop: Iterable[str] = (),
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """An agent's environment: `keep` is its driver's list of credentials it needs, `drop` what would mislead it."""
    kept, dropped = tuple(keep), tuple(drop)
    chosen = {
        name: value
        for name, value in base.items()
        if not _matches(name, dropped) and (_matches(name, kept) or not looks_secret(name, value))
    }
    return chosen | dict(extra or {})


def for_hook(base: Mapping[str, str], *, extra: Mapping[str, str] | None = None, clear: bool = False) -> dict[str, str]:
    """A box hook's environment: all of it, by protocol, unless its configuration says to start from nothing."""
    return ({} if clear else dict(base)) | dict(extra or {})


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)

"""What a child may know of our environment (design rule 13).

Three kinds of children, three rules:

* **guests** get everything except what looks like a credential; each further name must be granted.
* **agents** get the same, plus the names on their driver's list (patterns allowed), minus its list of what must not leak in.
* **hooks** get everything: that is how their protocol configures them.

A variable looks like a credential by its name (`…_TOKEN`, `AWS_…`) or by its value (a URL with a password in it). Withheld
names are never silently gone: `withheld_names` lists them for reports.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

# A credential has one of these words in its name, or a word that ends in one of the second (`PGPASSWORD`, `authToken`).
_WORDS = frozenset({
    "APIKEY", "AUTH", "BEARER", "COOKIE", "COOKIES", "CRED", "CREDENTIAL", "CREDENTIALS", "CREDS", "DSN", "JWT", "KEY", "KEYS",
    "OAUTH", "PASS", "PASSPHRASE", "PASSWD", "PASSWORD", "PASSWORDS", "PAT", "PWD", "SAS", "SECRET", "SECRETS", "TOKEN", "TOKENS",
    "WEBHOOK", "WEBHOOKS",
})  # fmt: skip
_ENDINGS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY", "ACCESSKEY", "SECRETKEY", "PRIVATEKEY")

# Whole families, whatever their members are called. Git's numbered settings may carry headers and only make sense together.
_FAMILIES = (
    "AWS_*", "AZURE_*", "BW_*", "GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_*", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_VALUE_*",
    "GOOGLE_APPLICATION_*", "GPG_AGENT_INFO", "OP_SESSION*", "SESSION_ID", "SSH_AGENT_PID", "SSHPASS", "VAULT_*",
)  # fmt: skip

# Names that only sound like one: the working directory, and how many tokens a model may use.
_HARMLESS = frozenset({"PWD"})
_AMOUNTS = frozenset({"MAX", "MIN", "NUM", "COUNT", "LIMIT", "BUDGET"})

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET_VALUE = re.compile(
    r"""://[^/\s@:]*:[^/\s@]+@                                                  # a URL with a password
      | https?://[^/\s@]+@                                                      # or with a token for a user
      | \b(?:password|passwd|pwd|secret|token|api[_-]?key)\s*=\s*[^;&\s]       # a connection string
      | \b(?:bearer|basic)\s+\S                                                # an authorisation header""",
    re.VERBOSE | re.IGNORECASE,
)


def looks_secret(name: str, value: str = "") -> bool:
    """Whether a variable should be kept from code that was not granted it. Rather too often than too seldom."""
    if name in _HARMLESS:
        return False
    words = {word.upper() for word in _WORD.findall(name)}
    if words & _AMOUNTS:
        words.discard("TOKENS")
    if words & _WORDS or any(word.endswith(_ENDINGS) for word in words):
        return True
    return any(fnmatchcase(name.upper(), family) for family in _FAMILIES) or bool(_SECRET_VALUE.search(value))


def withheld_names(base: Mapping[str, str], grants: Iterable[str] = ()) -> list[str]:
    """The names that a guest with these grants does not get, sorted."""
    granted = frozenset(grants)
    return sorted(name for name, value in base.items() if name not in granted and looks_secret(name, value))


_OURS = frozenset({"PIGLET_FD"})


def guest_environment(
    base: Mapping[str, str], *, grants: Iterable[str] = (), extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """A guest's environment. Grants are exact names: a pattern would grant tomorrow's secrets too.

    What tells a program that it has descriptors of a host is for the child of that host alone (spec piglet 2.1).
    """
    hidden = frozenset(withheld_names(base, grants)) | _OURS
    return {name: value for name, value in base.items() if name not in hidden} | dict(extra or {})


def agent_environment(
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


def hook_environment(base: Mapping[str, str], *, extra: Mapping[str, str] | None = None, clear: bool = False) -> dict[str, str]:
    """A box hook's environment: all of it, by protocol, unless its configuration says to start from nothing."""
    return ({} if clear else dict(base)) | dict(extra or {})


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)

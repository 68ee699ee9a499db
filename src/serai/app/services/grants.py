"""Which services a guest may use, and whose keys it may have. The person's settings say so; nobody else does."""

from __future__ import annotations

import msgspec

from serai.host.guest_settings import GROUPS, GuestSettings

__all__ = ["NOTHING", "USUAL", "Grants", "grants_of", "provider_of"]

USUAL = frozenset(GROUPS) - {"credentials"}
# Other names of providers (spec piglet 7.1).
_ALIASES = {
    "gemini": "google",
    "vertex": "google-vertex",
    "bedrock": "amazon-bedrock",
    "copilot": "github-copilot",
    "azure": "azure-openai",
}


class Grants(msgspec.Struct, frozen=True):
    """`groups` by name; `keys` are the providers, by the names that `provider_of` gives, whose keys it may have."""

    groups: frozenset[str] = USUAL
    keys: frozenset[str] = frozenset()


NOTHING = Grants(frozenset())  # for whoever is no guest of this house


def grants_of(settings: GuestSettings) -> Grants:
    """What a guest with these settings may use. A key that is granted opens `credentials`, and nothing else does."""
    groups = settings.groups if settings.keys else settings.groups - {"credentials"}
    return Grants(groups, frozenset(map(provider_of, settings.keys)))


def provider_of(name: str) -> str:
    """The one name of a provider that has several."""
    plain = name.strip().lower()
    return _ALIASES.get(plain, plain)

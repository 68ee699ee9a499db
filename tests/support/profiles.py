"""How many examples Hypothesis tries: the profile quick, ci or deep, chosen by `HYPOTHESIS_PROFILE`."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

__all__ = ["PROFILES", "examples", "load_profile"]

# The share of a test's examples that a profile tries. Tests state their number for `deep`.
PROFILES = {"quick": 0.04, "ci": 0.08, "deep": 1.0}
FEWEST = 5

_profile = os.environ.get("HYPOTHESIS_PROFILE", "ci")


def examples(number: int) -> int:
    """Returns `number` for the profile deep, and a share of it for the others."""
    return max(min(number, FEWEST), round(number * PROFILES[_profile]))


def load_profile() -> None:
    """Loads the chosen profile. It has no deadline: how long one example takes on a busy machine says nothing about it."""
    if _profile not in PROFILES:
        raise pytest.UsageError(f"HYPOTHESIS_PROFILE: {_profile!r} is unknown; use one of {', '.join(PROFILES)}")
    settings.register_profile(
        f"serai-{_profile}",
        settings.default,
        max_examples=examples(100),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile(f"serai-{_profile}")
